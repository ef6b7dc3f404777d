//! What writers cost the flash: on a board, against the trace's own totals and against what was written.

use std::path::PathBuf;

use flashscope_analysis::Analysis as _;
use flashscope_analysis::OwnWear;
use flashscope_analysis::flash::{AmplificationFold, LayerBytes, UbiRegion, Wear, WearFold, WriteLayer};
use flashscope_tests::{Booted, Plan, geometry, nothing_lost, top};

/// The agent under another name: its task is then called so.
fn writer(arch: &str) -> Vec<u8> {
    let agent: PathBuf = top().join("agent/build").join(arch).join("flashscope-agent");
    std::fs::read(&agent).unwrap_or_else(|error| panic!("{}: {error}; make agents", agent.display()))
}

fn plan<'a>(kernel: &'a str, modules: &'a [&'a str], mount: &[&str]) -> Plan<'a> {
    let mut plan = Plan::new("armv7", kernel);
    plan.parts = &[256];
    plan.modules = modules;
    plan.files = vec![("/player", 0o755, writer("armhf")), ("/logger", 0o755, writer("armhf"))];
    let write = |who: &str, bytes: u32, contents: &str| {
        format!(
            "run {who} /{who} bench read --create --file /mnt/{who} --size {bytes} --contents {contents} --count 1 --request 1"
        )
    };
    plan.lines = ["mkdir /mnt"].iter().chain(mount).map(|line| (*line).to_owned()).collect();
    plan.lines.extend(
        [
            "settle jffs2_gcd 500 20000",
            "record-start --events flash,cache,syscall --ring 16384",
            "phase-begin writers",
            &write("player", 262_144, "random"),
            &write("logger", 131_072, "random"),
            "phase-end writers",
            "umount /mnt",
            "nand-erase 1 0 8",
            "record-stop",
        ]
        .map(str::to_owned),
    );
    plan
}

fn wear(booted: &Booted) -> (Wear, Vec<LayerBytes>) {
    let trace = booted.recording(0);
    nothing_lost(&trace, "the recording");
    let mut fold = WearFold::new(&[(0, geometry(&trace), 2048)], |tid, time| trace.comm(tid, time));
    let ubi = UbiRegion::of_facts(trace.facts(), 0);
    let mut layers = AmplificationFold::new([(0, 2048)], &ubi, |tid, time| trace.comm(tid, time));
    trace
        .for_each(&mut |event| {
            fold.event(event);
            layers.event(event);
        })
        .expect("a readable trace");
    let wear = fold.finish();
    let layers = layers.finish(&wear);
    let said: Vec<String> = layers.iter().map(|l| format!("{} {} ({:?})", l.layer.name(), l.bytes, l.times)).collect();
    println!("  {}", said.join(", "));
    for own in OwnWear::of_facts(trace.facts()) {
        println!("  {}", own.sentence());
    }
    let stats = &trace.stats()["crosscheck"];
    // Every program and erase is in the trace, under one task.
    assert_eq!(stats["programs_seen"], stats["programs_expected"], "{stats}");
    assert_eq!(wear.programmed_pages, stats["programs_seen"].as_u64().expect("a count"));
    assert_eq!(wear.erased_blocks, stats["erases_seen"].as_u64().expect("a count"));
    assert_eq!(wear.programmed_pages, wear.by_task.iter().map(|t| t.programmed_pages).sum::<u64>());
    assert_eq!(wear.erased_blocks, wear.by_task.iter().map(|t| t.erased_blocks).sum::<u64>());
    let of_files: u64 = wear.by_file.iter().map(|f| f.programmed_pages).sum();
    assert_eq!(wear.programmed_pages, of_files + wear.pages_of_no_file + wear.pages_of_further_files);
    for task in &wear.by_task {
        println!(
            "  {}: {} bytes written, {} pages, {} erases",
            task.task, task.written_bytes, task.programmed_pages, task.erased_blocks
        );
    }
    for file in &wear.by_file {
        println!("  {:?} {}: {} bytes, {} pages", file.device, file.inode, file.written_bytes, file.programmed_pages);
    }
    println!(
        "  of no file {}, elsewhere {} bytes, amplification {:?}",
        wear.pages_of_no_file, wear.written_elsewhere_bytes, wear.program_amplification
    );
    (wear, layers)
}

/// Each layer's bytes make sense of the one above: random data, written whole, by two writers.
fn check_layers(name: &str, booted: &Booted, wear: &Wear, layers: &[LayerBytes]) {
    let of = |layer: WriteLayer| layers.iter().find(|l| l.layer == layer).map(|l| l.bytes);
    let calls = of(WriteLayer::Calls).expect("calls");
    assert_eq!(of(WriteLayer::Flash), Some(wear.programmed_pages * 2048));
    assert_eq!(of(WriteLayer::Blocks), Some(wear.erased_blocks * 131_072));
    let own = OwnWear::of_facts(booted.recording(0).facts());
    match name {
        // JFFS2 writes within the call: nothing waits in the page cache, and there is no UBI.
        "jffs2" => {
            assert_eq!((of(WriteLayer::PageCache), of(WriteLayer::FileSystem)), (None, None));
            assert_eq!(own, []);
        }
        _ => {
            // Every page of both files became dirty once: they are multiples of 4 KiB.
            assert_eq!(of(WriteLayer::PageCache), Some(calls), "{name}");
            // What is not the file system's are UBI's headers: a page of each block that it erased and took (init's eight erases
            // are of another partition).
            let file_system = of(WriteLayer::FileSystem).expect("UBI is there");
            let headers = (wear.programmed_pages * 2048 - file_system) / 2048;
            assert!(file_system > calls && headers > 0, "{name}: {file_system} of {calls}");
            let [OwnWear::Ubi { device, max_erases, .. }] = own.as_slice() else { panic!("{own:?}") };
            assert!(device == "ubi0" && *max_erases >= 1, "{own:?}");
        }
    }
}

#[test]
fn programmed_pages_belong_to_who_wrote_and_to_its_file() {
    let jffs2 = ("jffs2", vec!["jffs2"], vec!["mount mtd0 /mnt jffs2 -"]);
    let ubifs = (
        "ubifs",
        vec!["ubi", "deflate", "lzo", "zstd", "ubifs"],
        vec!["ubi-attach 0", "ubi-mkvol 0 data all", "mount ubi0:data /mnt ubifs -"],
    );
    for ((name, modules, mount), kernels) in [(jffs2, &["6.1"][..]), (ubifs, &["5.10", "newest"])] {
        for kernel in kernels {
            println!("{name} {kernel}");
            let booted = plan(kernel, &modules, &mount).boot();
            let (wear, layers) = wear(&booted);
            check_layers(name, &booted, &wear, &layers);
            let of = |task: &str| wear.by_task.iter().find(|t| t.task == task).unwrap_or_else(|| panic!("{task}"));
            let (player, logger) = (of("player"), of("logger"));
            assert_eq!((player.written_bytes, logger.written_bytes), (262_144, 131_072), "{name}");
            assert_eq!(wear.written_bytes, Some(262_144 + 131_072), "{name}: what both wrote, and nothing of tmpfs");
            // Random data shrinks by nothing: a task's pages hold its bytes, and few more of the file system's own.
            for (task, bytes) in [(player, 262_144), (logger, 131_072)] {
                let pages = bytes / 2048;
                assert!(
                    (pages..=pages * 5 / 4).contains(&task.programmed_pages),
                    "{name} {kernel}: {} has {} pages, wrote {pages}",
                    task.task,
                    task.programmed_pages
                );
            }
            let mut files: Vec<u64> = wear.by_file.iter().map(|f| f.written_bytes).filter(|&bytes| bytes > 0).collect();
            files.sort_unstable();
            assert_eq!(files, [131_072, 262_144], "{name}: one file each");
            // The eight blocks of the other partition, and what the file system erased.
            assert!(of("init").erased_blocks >= 8);
        }
    }
}
