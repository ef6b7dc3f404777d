//! Events removed from correct traces of stacked devices: what is left keeps its times, and no I/O counts twice.

use super::in_flight::{Bio, NEVER};
use super::loss_tests::Random;
use super::matching::Matching;
use super::watch::Watch;
use crate::testing;
use flashscope_trace::{BlockAction, BlockDetail, BlockEvent, Device, RequestKind, TaskId};
use std::collections::HashMap;

const UPPER: Device = Device(253 << 20);
const LOWER: Device = Device(8 << 20);
/// A partition of the lower device, and a loop device whose file is there.
const PART: Device = Device(8 << 20 | 1);
const LOOP: Device = Device(7 << 20);
/// The mirror's other half.
const OTHER: Device = Device(8 << 20 | 16);
const MIRROR: Device = Device(9 << 20);

/// Numbers of the I/Os of the loop's worker begin here.
const WORKER: usize = 50;

struct Recorded {
    time: u64,
    tid: TaskId,
    block: BlockEvent,
    /// Number of the I/O of a program that it is a step of.
    of: usize,
}

fn block(action: BlockAction, device: Device, letters: &str, sector: u64, sectors: u64) -> BlockEvent {
    testing::block(action, device, letters, sector, sectors * 512)
}

/// Reads, writes, writes with FUA and flushes through an upper device, several at a time, some given back by the driver; writes
/// to a mirror, reads that are split below; reads of a partition, and of a loop device, whose worker reads the lower device (its
/// reads are I/Os of their own here); and reads of the lower device by others. No sector is in use twice at a time.
fn correct(random: &mut Random) -> Vec<Recorded> {
    let mut events: Vec<Recorded> = Vec::new();
    let (mut now, mut flush_until) = (1_000_000, 0);
    for of in 0..WORKER {
        now += 1_000 + random.below(60_000);
        let (tid, sector) = (100 + random.below(3) as u32, 64 * (1 + of as u64));
        let mut add = |time: u64, block: BlockEvent| events.push(Recorded { time, tid: TaskId(tid), block, of });
        use BlockAction::*;
        let (mut time, lower) = (now, sector + 4096);
        let letters = ["R", "W", "WFS"][random.below(3) as usize];
        match if of == 1 { 2 } else { random.below(10) } {
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
            // A write to both halves of a mirror.
            2 if of > 0 => {
                add(time, block(Queue, MIRROR, "W", sector, 8));
                for (leg, begin) in [(LOWER, 100), (OTHER, 150)] {
                    let detail = BlockDetail::Remap { device: MIRROR, sector };
                    add(time + begin, BlockEvent { detail, ..block(Remap, leg, "W", sector + (1 << 22), 8) });
                    for (action, after) in [(Queue, 100), (GetRq, 200), (Issue, 600), (Complete, 75_000)] {
                        add(time + begin + after, block(action, leg, "W", sector + (1 << 22), 8));
                    }
                }
                add(time + 78_000, block(Complete, MIRROR, "W", sector, 8));
            }
            // A read that is split below the upper device.
            3 if of > 0 => {
                add(time, block(Queue, UPPER, "R", sector, 16));
                let detail = BlockDetail::Remap { device: UPPER, sector };
                add(time + 100, BlockEvent { detail, ..block(Remap, LOWER, "R", lower, 16) });
                add(time + 200, block(Queue, LOWER, "R", lower, 16));
                let detail = BlockDetail::Split { sector: lower + 8 };
                add(time + 250, BlockEvent { detail, ..block(Split, LOWER, "R", lower, 8) });
                for (part, begin) in [(lower, 300), (lower + 8, 400)] {
                    for (action, after) in [(GetRq, 0), (Issue, 500), (Complete, 70_000)] {
                        add(time + begin + after, block(action, LOWER, "R", part, 8));
                    }
                }
                add(time + 72_000, block(Complete, UPPER, "R", sector, 16));
            }
            // A partition's bio is queued on the disk.
            4 if of > 0 => {
                let at = sector + (1 << 23);
                let detail = BlockDetail::Remap { device: PART, sector };
                add(time, BlockEvent { detail, ..block(Remap, LOWER, letters, at, 8) });
                for (action, after) in [(Queue, 50), (GetRq, 200), (Issue, 500), (Complete, 70_500)] {
                    add(time + after, block(action, LOWER, letters, at, 8));
                }
            }
            5 if of > 0 => {
                for (action, after) in [(Queue, 0), (GetRq, 200), (Issue, 500), (Complete, 76_000)] {
                    add(time + after, block(action, LOOP, "R", sector, 8));
                }
                let at = sector + (1 << 24);
                for (action, after) in [(Queue, 2_000), (GetRq, 2_200), (Issue, 2_500), (Complete, 72_500)] {
                    let block = block(action, LOWER, "R", at, 8);
                    events.push(Recorded { time: time + after, tid: TaskId(7), block, of: WORKER + of });
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
    fn ended(&mut self, _at: u32, bio: &Bio, completed: u64) {
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
            matching.remapped((block.device, block.sector), (device, sector), *tid, *time);
        }
        if block.action == BlockAction::Queue {
            if block.kind() == RequestKind::Flush {
                matching.is_flush_below(block, *tid, false);
            } else if matching.is_below(block).is_none() {
                let inferred = if matching.orphaned() { None } else { matching.is_inferred_below(block, *tid) };
                if inferred.is_none() {
                    matching.next_leg(block);
                }
            }
        }
        matching.block(block, (tid.0, *tid), *time, || tid.0);
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
        // The first two I/Os say which device lies on which.
        let lost: Vec<bool> = events.iter().map(|event| event.of > 1 && random.below(1000) < lost_per_mille).collect();
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
        for (of, _) in tops.iter().enumerate().filter(|(_, tops)| **tops > 1) {
            let lost = events.iter().zip(&lost).filter(|(event, lost)| event.of == of && **lost);
            let lost: Vec<String> =
                lost.map(|(event, _)| format!("{:?} {}", event.block.action, event.block.device)).collect();
            twice.push(format!("{round}: {of} without {}", lost.join(", ")));
        }
    }
    println!("{whole} whole and {hurt} hurt bios, {} wrong, {} twice", wrong.len(), twice.len());
    assert!(whole > 10_000 && hurt > 500, "{whole} {hurt}");
    // All events of these I/Os are there. Where a flush request lost its completion and the bio that it served its end, the flush of another
    // thread that follows may stand for it.
    let other: Vec<&String> = broken.iter().filter(|one| !one.contains("Flush")).collect();
    assert!(other.is_empty(), "{} of {whole}: {:#?}", other.len(), &other[..other.len().min(20)]);
    assert!(broken.len() * 1000 < whole, "{} of {whole}: {:#?}", broken.len(), &broken[..broken.len().min(20)]);
    // Without its queueing and the remap of one of its legs nothing says that the other leg is of the same I/O.
    twice.retain(|one| !(one.contains("Queue 9:0") && one.contains("Remap")));
    assert!(twice.is_empty(), "{} twice: {:?}", twice.len(), &twice[..twice.len().min(10)]);
    assert!(wrong.len() * 50 < hurt, "{} of {hurt}: {:#?}", wrong.len(), &wrong[..wrong.len().min(20)]);
}
