//! Numbers and bytes of bios against blkparse's own sums, on recordings from boards (crates/trace/tests/data/blktrace, origin there).

use flashscope_analysis::Analysis as _;
use flashscope_analysis::block::{BlockAnalysis, GroupBy, Sizes};
use flashscope_trace::Trace;
use std::path::Path;
use std::process::Command;

/// Recordings of one device without control groups, whose records blkparse does not know.
const RECORDED: [&str; 7] =
    ["armv7-5.10", "armv7-6.1", "armv7-6.12", "armv7-newest", "x86_64-5.10", "x86_64-6.1", "x86_64-6.12"];

/// `Reads Queued:          79,     1488KiB`: the number and the KiB behind this heading, over all CPUs.
fn sum(text: &str, heading: &str) -> (u64, u64) {
    // The last one is of all CPUs, where there are several.
    let rest = &text[text.rfind(heading).expect("a sum") + heading.len()..];
    let mut numbers = rest.split(|c: char| !c.is_ascii_digit()).filter(|word| !word.is_empty());
    let mut next = || numbers.next().expect("a number").parse().expect("a number");
    (next(), next())
}

#[test]
fn bios_and_bytes_are_those_that_blkparse_counts() {
    let mut compared = 0;
    for name in RECORDED {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../trace/tests/data/blktrace").join(name);
        let run = Command::new("blkparse").current_dir(&dir).args(["-i", "main"]).output();
        let Ok(out) = run.inspect_err(|e| assert!(std::env::var_os("CI").is_none(), "blkparse: {e}")) else {
            eprintln!("skipped: install blkparse (apt-get install blktrace) to compare with it");
            return;
        };
        assert!(out.status.success(), "{name}");
        let text = String::from_utf8_lossy(&out.stdout);
        let trace = Trace::open(&dir.join("main")).unwrap();
        let mut analysis = BlockAnalysis::new(|tid, time| trace.comm(tid, time), Sizes::of_facts([trace.facts()]));
        trace.for_each(&mut |event| analysis.event(event)).unwrap();
        let found = analysis.finish();
        let of = |is_read: bool| {
            let groups =
                found.groups.iter().filter(|g| g.by == GroupBy::Device && g.name.ends_with(" reads") == is_read);
            groups.fold((0, 0), |sum, group| (sum.0 + group.bios, sum.1 + group.bytes))
        };
        for (is_read, heading) in [(true, "Reads Queued:"), (false, "Writes Queued:")] {
            // To blkparse, discards and flushes are writes.
            let (bios, bytes) = of(is_read);
            assert_eq!(
                (bios, bytes / 1024, bytes % 1024),
                (sum(&text, heading).0, sum(&text, heading).1, 0),
                "{name} {heading}"
            );
        }
        // What was queued before the recording began is in blkparse's sums of requests, and no bio of this trace.
        if found.stages.unmatched.sum() > 0 {
            continue;
        }
        compared += 1;
        for (is_read, heading) in [(true, "Reads Completed:"), (false, "Writes Completed:")] {
            // These are requests, but the bytes are the bios'.
            assert_eq!(of(is_read).1 / 1024, sum(&text, heading).1, "{name} {heading}");
        }
    }
    assert!(compared >= 4, "{compared}");
}
