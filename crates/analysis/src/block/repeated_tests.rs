//! Events that a text has twice, as when two buffers are merged, and events that it lost: the figures are those of the text that has each
//! event once.

use super::groups::StageTimes;
use super::loss_tests::{Random, Recorded, correct};
use super::{BlockAnalysis, Sizes};
use crate::Analysis as _;
use flashscope_trace::{BlockAction, BlockDetail, Loss, Trace};
use std::path::PathBuf;

/// Removes the file with the value.
struct Text(PathBuf);

impl Drop for Text {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// As the kernel prints it, with nanoseconds.
fn line(Recorded { time, tid, block, .. }: &Recorded) -> String {
    let (name, error) = match block.action {
        BlockAction::Queue => ("block_bio_queue", "t"),
        BlockAction::GetRq => ("block_getrq", "t"),
        BlockAction::BackMerge => ("block_bio_backmerge", "t"),
        BlockAction::Insert => ("block_rq_insert", "t"),
        BlockAction::Issue => ("block_rq_issue", "t"),
        BlockAction::Complete => ("block_rq_complete", "0"),
        BlockAction::Split => ("block_split", "t"),
        other => panic!("{other:?}"),
    };
    let range = match block.detail {
        BlockDetail::Split { sector } => format!("{} / {sector}", block.sector),
        _ => format!("{} + {}", block.sector, block.bytes / 512),
    };
    let letters = if block.flags.has(flashscope_trace::RequestFlags::WRITE) { "WS" } else { "R" };
    let of_request = ["block_rq_insert", "block_rq_issue", "block_rq_complete"].contains(&name);
    let bytes = if of_request { "() " } else { "" };
    let (seconds, rest) = (time / 1_000_000_000, time % 1_000_000_000);
    format!("t-{tid} [000] ..... {seconds}.{rest:09}: {name}: 8,0 {letters} {bytes}{range} [{error}]\n")
}

/// Bios, stages, and how many events were there before.
fn found(lines: &[&str]) -> (String, Vec<StageTimes>, u64) {
    let path = std::env::temp_dir().join(format!("flashscope-repeated-{}", std::process::id()));
    let text = Text(path);
    std::fs::write(&text.0, lines.concat()).expect("a temporary file");
    let trace = Trace::open(&text.0).expect("a trace");
    let mut analysis = BlockAnalysis::new(|tid, time| trace.comm(tid, time), Sizes::of_facts([trace.facts()]));
    analysis.events_are_missing();
    trace.for_each(&mut |event| analysis.event(event)).expect("events");
    let found = analysis.finish();
    let bios = format!("{:?} {:?}", found.stages.bios_queued, found.stages.bios_completed);
    (bios, found.groups[0].stages.clone(), trace.losses().get(Loss::EventsRepeated))
}

#[test]
fn an_event_that_is_there_twice_counts_once() {
    let mut random = Random(0x5eed_0000_0002);
    for round in 0..40 {
        let lines: Vec<String> = correct(&mut random).iter().map(line).collect();
        let lost = random.below(100);
        let left: Vec<&str> = lines.iter().filter(|_| random.below(1000) >= lost).map(String::as_str).collect();
        let once = found(&left);
        assert_eq!(once.2, 0, "round {round}");
        // Some of them, one behind the other, as merging by time leaves them.
        let (mut merged, mut copies) = (Vec::new(), 0);
        for line in &left {
            merged.push(*line);
            if random.below(3) == 0 {
                merged.push(*line);
                copies += 1;
            }
        }
        assert_eq!(found(&merged), (once.0.clone(), once.1.clone(), copies), "round {round}: merged");
        // The second buffer begins in the middle of the first one.
        let middle = random.below(left.len() as u64) as usize;
        let appended: Vec<&str> = left.iter().chain(&left[middle..]).copied().collect();
        let copies = (left.len() - middle) as u64;
        assert_eq!(found(&appended), (once.0, once.1, copies), "round {round}: appended");
    }
}
