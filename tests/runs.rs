//! Studies of runs: what they count is what the kernel and the benchmark say of themselves, and they repeat to the byte.

use flashscope_study::runs::{Part, RunGroup, RunsResult};
use flashscope_tests::{TempDir, flashscope, stdout};

const STUDY: &str = r#"
name = "runs"
title = "A small Postmark"
question = "Does it count?"
[runs]
board = "armv7"
kernel = ["6.1"]
partition = "16M"
watch_s = 30
[[runs.case]]
name = "jffs2"
filesystem = "jffs2"
postmark = { config = "flashmon", files = 60, transactions = 200 }
[[runs.case]]
name = "ubifs"
filesystem = "ubifs"
postmark = { config = "flashmon", files = 60, transactions = 200 }
[[published]]
id = "more"
source = "nobody"
statement = "JFFS2 writes more"
quantity = "jffs2.page_programs / ubifs.page_programs"
min = 1.0
max = 100.0
unit = "×"
note = "JFFS2 writes when write() is called."
"#;

fn part<'a>(group: &'a RunGroup, name: &str) -> &'a Part {
    group.parts.iter().find(|part| part.name == name).unwrap_or_else(|| panic!("{}: no part {name}", group.id))
}

#[test]
fn a_small_postmark_is_counted_by_part_and_repeats_to_the_byte() {
    let dir = TempDir::new("runs");
    let study = dir.path().join("runs.toml");
    std::fs::write(&study, STUDY).expect("the study");
    let run = |to: &str| {
        let output = dir.path().join(to);
        let said = stdout(flashscope().args(["study", "--quiet", "--fresh", "--output"]).arg(&output).arg(&study));
        (said, std::fs::read(output.join("results.json")).expect("results"), output)
    };
    let (said, first, output) = run("first");
    flashscope_tests::valid("study-runs", &serde_json::from_slice(&first).expect("JSON"));
    let found: RunsResult = serde_json::from_slice(&first).expect("a study's result");
    let of = |name: &str| found.groups.iter().find(|group| group.name == name).expect("a group");
    for name in ["jffs2", "ubifs"] {
        let traced = of(name);
        let did = traced.postmark.as_ref().expect("Postmark");
        // The same is requested on each file system.
        let other = of("jffs2").postmark.as_ref().expect("Postmark");
        assert_eq!((did.created, did.read, did.appended), (other.created, other.read, other.appended));
        assert_eq!(
            (did.bytes_read, did.bytes_written, did.crc32),
            (other.bytes_read, other.bytes_written, other.crc32)
        );
        // Nothing was lost: every program and erase was counted at the MTD layer as well.
        for loss in &traced.losses {
            assert_eq!(loss.count, 0, "{}: {}", traced.id, loss.name);
        }
        // Parts follow one another without a gap in what they count.
        let all = traced.all.expect("counts");
        let sum = |of: fn(&flashscope_analysis::flash::OpCounts) -> u64| -> u64 {
            traced.parts.iter().map(|part| of(part.counts.as_ref().expect("counts"))).sum()
        };
        assert_eq!((sum(|c| c.reads), sum(|c| c.programs), sum(|c| c.erases)), (all.reads, all.programs, all.erases));
        let tasks: u64 = traced.by_task.iter().map(|task| task.counts.sum()).sum();
        assert_eq!(tasks, all.sum());
        assert_eq!(part(traced, "after").duration_ns() / 1_000_000_000, 30);
        println!("{name}: {} programs, {} erases, {} ns", all.programs, all.erases, traced.total_ns);
    }
    // JFFS2 writes what write() is given before it returns, and cannot make printable text smaller than 6.57 bits a byte.
    let jffs2 = of("jffs2");
    let did = jffs2.postmark.as_ref().expect("Postmark");
    let programs: u64 = ["create", "transactions", "delete"]
        .map(|name| part(jffs2, name).counts.expect("counts").programs)
        .iter()
        .sum();
    let least = did.bytes_written * 657 / 800 / 2048;
    assert!((least..2 * least).contains(&programs), "{programs} pages of {} bytes", did.bytes_written);
    assert_eq!(found.published[0].within, Some(true), "{:?}", found.published);
    assert!(said.contains("Published values beside ours") && said.contains("JFFS2 writes more"), "{said}");
    let page = std::fs::read_to_string(output.join("report.html")).expect("the page");
    assert!(page.contains("armv7-6.1-jffs2-ring") && page.contains("<svg"));

    let (_, second, _) = run("second");
    assert!(first == second, "two runs of one study differ");
}
