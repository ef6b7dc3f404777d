//! Events removed from correct traces of stacked devices: what is left keeps its times, and no I/O counts twice.

use super::in_flight::{Bio, NEVER};
use super::loss_tests::Random;
use super::matching::{Matching, Watch};
use flashscope_trace::{BlockAction, BlockDetail, BlockEvent, Device, RequestFlags, RequestKind};
use std::collections::HashMap;

const UPPER: Device = Device(253 << 20);
const LOWER: Device = Device(8 << 20);

struct Recorded {
    time: u64,
    tid: u32,
    block: BlockEvent,
    /// Number of the I/O of a program that it is a step of.
    of: usize,
}

fn block(action: BlockAction, device: Device, letters: &str, sector: u64, sectors: u64) -> BlockEvent {
    BlockEvent {
        action,
        device,
        flags: RequestFlags::from_letters(letters.as_bytes()),
        sector,
        bytes: sectors * 512,
        error: 0,
        cgroup: 0,
        detail: BlockDetail::None,
    }
}

/// Reads, writes, writes with FUA and flushes through an upper device, several at a time, some given back by the driver; and reads of
/// the lower device by others. No sector is in use twice at a time.
fn correct(random: &mut Random) -> Vec<Recorded> {
    let mut events: Vec<Recorded> = Vec::new();
    let (mut now, mut flush_until) = (1_000_000, 0);
    for of in 0..50usize {
        now += 1_000 + random.below(60_000);
        let (tid, sector) = (100 + random.below(3) as u32, 64 * (1 + of as u64));
        let mut add = |time: u64, block: BlockEvent| events.push(Recorded { time, tid, block, of });
        use BlockAction::*;
        let (mut time, lower) = (now, sector + 4096);
        let letters = ["R", "W", "WFS"][random.below(3) as usize];
        match random.below(6) {
            0 if of > 0 && now > flush_until => {
                add(time, block(Queue, UPPER, "FWS", 0, 0));
                add(time + 100, block(Queue, LOWER, "FWS", 0, 0));
                add(time + 300, block(Issue, LOWER, "FF", 0, 0));
                add(time + 90_000, block(Complete, LOWER, "FF", 0, 0));
                add(time + 90_200, block(Complete, LOWER, "WS", 0, 0));
                add(time + 90_400, block(Complete, UPPER, "FWS", 0, 0));
                flush_until = time + 200_000;
            }
            1 if of > 0 => {
                let at = 1 << 20 | sector;
                for (action, after) in [(Queue, 0), (GetRq, 200), (Issue, 500), (Complete, 70_500)] {
                    add(time + after, block(action, LOWER, "R", at, 8));
                }
            }
            _ => {
                let letters = if letters == "WFS" { "WSF" } else { letters };
                add(time, block(Queue, UPPER, letters, sector, 8));
                let detail = BlockDetail::Remap { device: UPPER, sector };
                add(time + 100, BlockEvent { detail, ..block(Remap, LOWER, letters, lower, 8) });
                for (action, after) in [(Queue, 200), (GetRq, 300), (Issue, 600)] {
                    add(time + after, block(action, LOWER, letters, lower, 8));
                }
                if random.below(8) == 0 {
                    add(time + 5_000, block(Requeue, LOWER, letters, lower, 8));
                    add(time + 9_000, block(Issue, LOWER, letters, lower, 8));
                }
                time += 80_000 + random.below(20_000);
                add(time, block(Complete, LOWER, letters, lower, 8));
                add(time + 1_500, block(Complete, UPPER, letters, sector, 8));
            }
        }
    }
    events.sort_by_key(|event| event.time);
    events
}

/// What a bio had: got, issued, completed; and whether it is below another.
type Way = ([u64; 3], bool);

#[derive(Default)]
struct Ways(HashMap<u64, Way>);

impl Watch for Ways {
    fn gone(&mut self, _at: u32, bio: &Bio, completed: u64) {
        if !bio.is_request() {
            let way = ([bio.got, bio.issued, completed], bio.below);
            assert!(self.0.insert(bio.queued, way).is_none(), "a bio has one way");
        }
    }
}

fn ways<'a>(events: impl Iterator<Item = &'a Recorded>, missing: bool) -> HashMap<u64, Way> {
    let mut matching = Matching::new(Ways::default());
    (matching.whole_trace, matching.missing) = (!missing, missing);
    for Recorded { time, tid, block, .. } in events {
        if let BlockDetail::Remap { device, sector } = block.detail {
            matching.remapped((block.device, block.sector), (device, sector), *time);
        }
        if block.action == BlockAction::Queue {
            if block.kind() == RequestKind::Flush {
                matching.is_flush_below(block, *tid, false);
            } else if matching.is_below(block).is_none() && !matching.orphaned() {
                matching.is_inferred_below(block);
            }
        }
        matching.block(block, (*tid, *tid), *time, || *tid);
    }
    matching.finish().0.0
}

#[test]
fn a_lost_event_of_a_stack_costs_its_own_io_and_none_counts_twice() {
    let mut random = Random(0x5eed_0000_0253);
    let (mut whole, mut hurt, mut wrong, mut twice, mut broken) = (0, 0, Vec::new(), Vec::new(), Vec::new());
    for round in 0..300 {
        let events = correct(&mut random);
        let truth = ways(events.iter(), false);
        assert!(truth.values().all(|(times, _)| times[2] != NEVER), "a correct trace completes all");
        let lost_per_mille = 1 + random.below(100);
        // The first I/O says which device lies on which.
        let lost: Vec<bool> = events.iter().map(|event| event.of > 0 && random.below(1000) < lost_per_mille).collect();
        let ios = events.iter().map(|event| event.of).max().unwrap_or(0) + 1;
        let (mut damaged, mut tops) = (vec![false; ios], vec![0; ios]);
        events.iter().zip(&lost).for_each(|(event, &lost)| damaged[event.of] |= lost);
        let found = ways(events.iter().zip(&lost).filter(|(_, lost)| !**lost).map(|(event, _)| event), true);
        assert!(found.keys().all(|queued| truth.contains_key(queued)), "none is invented");
        for event in events.iter().filter(|event| event.block.action == BlockAction::Queue) {
            let (want, found) = (&truth[&event.time], found.get(&event.time));
            tops[event.of] += u64::from(found.is_some_and(|(_, below)| !below));
            if !damaged[event.of] {
                whole += 1;
                if found != Some(want) {
                    broken.push(format!("{round}: {} {:?} {found:?} {want:?}", event.block.device, event.block.kind()));
                }
            } else if let Some((times, _)) = found {
                hurt += 1;
                if times.iter().zip(want.0).any(|(time, want)| ![NEVER, want].contains(time)) {
                    wrong.push(format!("{round}: {} {:?} {times:?} {want:?}", event.block.device, event.block.kind()));
                }
            }
        }
        twice.extend(tops.iter().enumerate().filter(|(_, tops)| **tops > 1).map(|(of, _)| format!("{round}: {of}")));
    }
    println!("{whole} whole and {hurt} hurt bios, {} wrong, {} twice", wrong.len(), twice.len());
    assert!(whole > 10_000 && hurt > 500, "{whole} {hurt}");
    // All events of these I/Os are there. Where a flush request lost its completion and the bio that it served its end, the flush of another
    // thread that follows may stand for it.
    let other: Vec<&String> = broken.iter().filter(|one| !one.contains("Flush")).collect();
    assert!(other.is_empty(), "{} of {whole}: {:#?}", other.len(), &other[..other.len().min(20)]);
    assert!(broken.len() * 1000 < whole, "{} of {whole}: {:#?}", broken.len(), &broken[..broken.len().min(20)]);
    assert!(twice.is_empty(), "{} twice: {:?}", twice.len(), &twice[..twice.len().min(10)]);
    assert!(wrong.len() * 50 < hurt, "{} of {hurt}: {:#?}", wrong.len(), &wrong[..wrong.len().min(20)]);
}
