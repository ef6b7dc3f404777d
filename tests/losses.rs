//! What has no room in a table that a trace fills is counted, and the report or the prediction shows how much.

use std::fmt::Write as _;

use flashscope_tests::{TempDir, flashscope, stdout};
use serde_json::Value;

/// More than there is room for.
const MORE: u64 = 3;

/// A task, and what it did.
type Step = (u64, String);

/// Steps as ftrace's text, 10 µs apart.
fn text(steps: impl Iterator<Item = Step>) -> String {
    let mut text = "# tracer: nop\n#\n".to_owned();
    for (at, (tid, step)) in steps.enumerate() {
        let us = 1_000_000 + 10 * at;
        writeln!(text, "app-{tid} [000] ..... {}.{:06}: {step}", us / 1_000_000, us % 1_000_000).expect("a string");
    }
    text
}

fn queued(tid: u64, letters: &str, sector: u64, sectors: u64) -> Step {
    (tid, format!("block_bio_queue: 8,0 {letters} {sector} + {sectors} [app]"))
}

fn got_pages(tid: u64) -> Step {
    (tid, "mm_filemap_get_pages: dev=8:1 ino=c ofs=0-4095".to_owned())
}

fn reads(tid: u64) -> Step {
    (tid, "sys_read(fd: 3, buf: 7f, count: 1000)".to_owned())
}

/// A name in the report, how many it has to count, the text that shows it, and the steps.
type Case = (&'static str, u64, &'static str, Vec<Step>);

fn cases() -> Vec<Case> {
    let one = || std::iter::once(queued(1, "R", 64, 8));
    vec![
        (
            "losses/calls_not_followed",
            MORE,
            "calls_not_followed",
            one().chain((0..16_384 + MORE).map(|tid| (1000 + tid, "sys_fsync(fd: 3)".to_owned()))).collect(),
        ),
        (
            "losses/usage_reads_of_threads_not_followed",
            MORE,
            "usage_reads_of_threads_not_followed",
            (0..4096 + MORE).map(|tid| queued(1000 + tid, "R", tid * 64, 8)).collect(),
        ),
        // A block of each piece of 64 blocks: 262,144 pieces are kept.
        (
            "losses/usage_blocks_not_followed",
            MORE,
            "usage_blocks_not_followed",
            (0..262_144 + MORE).map(|at| queued(1, "R", at * 512, 8)).collect(),
        ),
        (
            "losses/usage_file_reads_not_followed",
            MORE,
            "usage_file_reads_not_followed",
            one().chain((0..64 + MORE).map(|tid| got_pages(1000 + tid))).collect(),
        ),
        // The table begins anew: all calls that were in it are without their reads.
        (
            "losses/reads_not_followed",
            65_536,
            "reads_not_followed",
            one().chain([got_pages(2)]).chain((0..65_536 + MORE).map(|tid| reads(1000 + tid))).collect(),
        ),
        (
            "block/stages/remaps_forgotten",
            MORE,
            "remaps forgotten before their bio came",
            std::iter::once((1, "block_bio_queue: 253,0 R 7 + 8 [app]".to_owned()))
                .chain(
                    (0..16_384 + MORE)
                        .map(|at| (1, format!("block_bio_remap: 8,0 R {} + 8 <- (253,0) {}", 2048 + at * 8, at * 8))),
                )
                .collect(),
        ),
        (
            "block/stages/appends_of_further_zones",
            MORE,
            "zone appends to further zones",
            (0..65_536 + MORE).map(|zone| queued(1, "ZA", zone * 64, 8)).collect(),
        ),
    ]
}

/// The count of a loss by its name, or a figure by the way to it.
fn figure(report: &Value, path: &str) -> Option<u64> {
    match path.strip_prefix("losses/") {
        Some(name) => report["losses"].as_array()?.iter().find(|loss| loss["name"] == name)?["count"].as_u64(),
        None => report.pointer(&format!("/{path}"))?.as_u64(),
    }
}

#[test]
fn what_has_no_room_is_shown() {
    let dir = TempDir::new("losses");
    let file = dir.path().join("t.txt");
    let report = |more: &[&str]| stdout(flashscope().arg("report").args(more).arg(&file));
    for (path, wanted, shown, steps) in cases() {
        std::fs::write(&file, text(steps.into_iter())).expect("a temporary directory");
        let json: Value = serde_json::from_str(&report(&["--json"])).expect("JSON");
        assert_eq!(figure(&json, path), Some(wanted), "{path}");
        assert!(report(&[]).contains(shown), "{path}");
    }
}

/// Forty reads of a page each, which a block device carries out.
fn forty_reads() -> Vec<Step> {
    let read = |page: u64| {
        let (sector, offset) = (2048 + page * 8, page * 4096);
        [
            reads(1000),
            (1000, format!("mm_filemap_add_to_page_cache: dev 8:1 ino c pfn=0x{:x} ofs={offset} order=0", 1000 + page)),
            queued(1000, "R", sector, 8),
            (1000, format!("block_rq_issue: 8,0 R 4096 () {sector} + 8 be,0,4 [app]")),
            (1, format!("block_rq_complete: 8,0 R () {sector} + 8 be,0,4 [0]")),
            (1000, format!("mm_filemap_get_pages: dev=8:1 ino=c ofs={offset}-{}", offset + 4095)),
            (1000, "sys_read -> 0x1000".to_owned()),
        ]
    };
    (0..40).flat_map(read).collect()
}

#[test]
fn what_a_prediction_did_not_follow_is_in_its_notes() {
    let dir = TempDir::new("losses-predicted");
    let file = dir.path().join("t.txt");
    let calls = (0..1024 + MORE).flat_map(|tid| [reads(2000 + tid), got_pages(2000 + tid)]).collect();
    let issue = |at: u64| (2000, format!("block_rq_issue: 8,0 R 4096 () {} + 8 be,0,4 [app]", 9000 + at * 64));
    // The table begins anew: of all that were in flight the time is unknown.
    let requests = (0..1024 + MORE).map(issue).collect();
    let none: Vec<Step> = Vec::new();
    for (more, wanted) in [
        (calls, Some("3 calls are not in the cost of the processor")),
        (requests, Some("1024 requests are not in the cost of the device")),
        (none, None),
    ] {
        std::fs::write(&file, text(forty_reads().into_iter().chain(more))).expect("a temporary directory");
        let mut predict = flashscope();
        let said = stdout(predict.arg("predict").arg(&file).args(["--readahead", "0", "--kernel-model", "6.12"]));
        match wanted {
            Some(note) => assert!(said.contains(note), "{note}: {said}"),
            None => assert!(!said.contains("not in the cost"), "{said}"),
        }
    }
}
