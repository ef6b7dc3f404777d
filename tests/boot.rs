//! Booting a small root file system twice from raw NAND: its phases are found, and they are what JFFS2 and UBIFS do.

use flashscope_analysis::flash::{Activity, ActivityKind, OpCounts};
use flashscope_study::boot::{Boot, BootResult};
use flashscope_tests::{TempDir, flashscope, stdout};

/// `studies/boot.toml` with a smaller partition, and a root file system of a shell alone.
const STUDY: &str = r#"
name = "boot-small"
title = "Small"
question = "What does the flash do?"

[boot]
board = "apf27"
kernel = ["6.1"]
first_block = 16
blocks = 64
packages = ["busybox-static"]
after_prompt_s = 5

[[boot.root]]
filesystem = "jffs2"

[[boot.root]]
filesystem = "ubifs"

[[published]]
id = "more-pages"
source = "this test"
statement = "JFFS2 looks at more pages than UBI"
quantity = "jffs2.first.mount_scan.pages / ubifs.first.mount_scan.pages"
min = 2.0
max = 64.0
unit = "x"
note = ""
"#;
const PAGES: u64 = 64;

fn of(boot: &Boot, kind: ActivityKind) -> Vec<&Activity> {
    boot.phases.phases.iter().filter(|phase| phase.kind == kind).collect()
}

fn one(boot: &Boot, kind: ActivityKind) -> &Activity {
    let all = of(boot, kind);
    assert_eq!(all.len(), 1, "{} boot: {kind:?} of {:?}", boot.name, boot.phases);
    all[0]
}

#[test]
fn first_and_second_boot_of_jffs2_and_ubifs_show_their_phases() {
    let dir = TempDir::new("boot");
    let (study, out) = (dir.path().join("boot-small.toml"), dir.path().join("out"));
    std::fs::write(&study, STUDY).expect("a study");
    let said =
        stdout(flashscope().args(["study", "--quiet", "--fresh", "--jobs", "1", "--output"]).arg(&out).arg(&study));
    for phase in ["mount scan", "formatting", "background check", "init scripts"] {
        assert!(said.contains(phase), "{said}");
    }
    let text = std::fs::read_to_string(out.join("results.json")).expect("results.json");
    flashscope_tests::valid("study-boot", &serde_json::from_str(&text).expect("JSON"));
    let found: BootResult = serde_json::from_str(&text).expect("a study of booting");
    let page = std::fs::read_to_string(out.join("report.html")).expect("the page");
    assert!(page.contains("until the login prompt") && out.join("timeline-g0-0.svg").exists());
    assert_eq!(found.published[0].within, Some(true), "{:?}", found.published);

    for group in &found.groups {
        let flashed = group.root.image_blocks;
        assert!((4..40).contains(&flashed), "{:?}", group.root);
        for boot in &group.boots {
            println!("{} {}: {:?}", group.id, boot.name, boot.phases.phases);
            // Every operation is in one phase.
            let mut sum = boot.phases.not_told;
            boot.phases.phases.iter().for_each(|phase| sum += phase.counts);
            assert_eq!(sum, boot.counts);
            assert_eq!(boot.phases.not_told, OpCounts::default());
            let scan = one(boot, ActivityKind::MountScan);
            assert_eq!(scan.scan.map(|scan| scan.blocks), Some(64));
            assert!(scan.end_ns <= boot.mounted_ns && boot.mounted_ns < boot.prompt_ns);
            // Init scripts read programs, and write what they keep.
            let init = of(boot, ActivityKind::Programs)[0];
            assert!(init.counts.reads > 100 && init.end_ns >= scan.end_ns);
        }
        let [first, second] = &group.boots[..] else { panic!("two boots") };
        let format = one(first, ActivityKind::Formatting);
        let empty = 64 - flashed;
        assert!(of(second, ActivityKind::Formatting).is_empty(), "{:?}", second.phases);
        match group.filesystem.as_str() {
            "jffs2" => {
                // Each block without data is erased, read to see that it is, and marked.
                assert_eq!(format.counts, OpCounts { reads: empty * PAGES, programs: empty, erases: empty });
                assert_eq!(format.first_page, (16 + flashed) * PAGES);
                for boot in [first, second] {
                    let (scan, check) = (one(boot, ActivityKind::MountScan), one(boot, ActivityKind::BackgroundCheck));
                    assert!(check.begin_ns > scan.end_ns && check.counts.sum() == check.counts.reads);
                    assert_eq!(check.tasks.len(), 1);
                    // Blocks with data are read whole; at the second boot one more, begun by the first.
                    let whole = scan.scan.map_or(0, |scan| scan.whole_blocks);
                    assert!((flashed - 1..=flashed + 1).contains(&whole), "{whole} of {flashed}");
                }
                assert!(format.begin_ns > one(first, ActivityKind::BackgroundCheck).end_ns);
            }
            _ => {
                let scan = one(first, ActivityKind::MountScan);
                assert_eq!(scan.scan.map(|scan| (scan.pages, scan.whole_blocks)), Some((64, 0)));
                // Its first blocks may be erased once more, for UBI's table of volumes.
                assert!((empty..empty + 6).contains(&format.counts.erases), "{:?}", format.counts);
                assert!(format.begin_ns >= scan.end_ns && format.begin_ns < scan.end_ns + 100_000_000);
                assert!(of(first, ActivityKind::BackgroundCheck).is_empty());
            }
        }
    }

    // What is finished is not booted again, and says the same.
    let again = dir.path().join("again");
    stdout(flashscope().args(["study", "--quiet", "--jobs", "1", "--output"]).arg(&again).arg(&study));
    assert_eq!(std::fs::read_to_string(again.join("results.json")).expect("results.json"), text);
}
