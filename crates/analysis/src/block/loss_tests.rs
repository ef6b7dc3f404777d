//! Events removed from correct traces: what is left keeps its times, and nothing is invented.

use super::in_flight::{Bio, NEVER};
use super::matching::Matching;
use super::watch::Watch;
use crate::testing;
use flashscope_trace::{BlockAction, BlockDetail, BlockEvent, Device, TaskId};
use std::collections::HashMap;

/// Numbers without a pattern, the same ones on every run (xorshift64*, Marsaglia 2003, Vigna 2016).
pub(super) struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % n
    }
}

/// An event, and the bios (their numbers) whose step it is.
pub(super) struct Recorded {
    pub time: u64,
    pub tid: TaskId,
    pub block: BlockEvent,
    of: Vec<u32>,
}

fn block(action: BlockAction, letters: &str, sector: u64, sectors: u64) -> BlockEvent {
    testing::block(action, Device::new(8, 0), letters, sector, sectors * 512)
}

/// A correct trace: requests of one to three bios side by side, several in the device at a time, some split, on few sectors,
/// so that most are used again and again; never two at once on one sector.
pub(super) fn correct(random: &mut Random) -> Vec<Recorded> {
    let (mut events, mut bios) = (Vec::new(), 0);
    // When each slot of 64 sectors is free again.
    let mut free = [0u64; 12];
    let mut now = 1_000_000;
    for _ in 0..60 {
        let slot = random.below(12);
        now = (now + 1_000 + random.below(80_000)).max(free[slot as usize] + 20_000);
        let letters = ["R", "WS"][random.below(2) as usize];
        let tid = 100 + random.below(3) as u32;
        let sector = slot * 64;
        let count = 1 + random.below(3);
        let mut add = |time: u64, action, sector, sectors, of: Vec<u32>| {
            events.push(Recorded { time, tid: TaskId(tid), block: block(action, letters, sector, sectors), of });
        };
        let first = bios;
        let mut time = now;
        if random.below(5) == 0 {
            // One bio in two requests.
            bios += 1;
            add(time, BlockAction::Queue, sector, 32, vec![first]);
            events.push(Recorded {
                time: time + 300,
                tid: TaskId(tid),
                block: BlockEvent {
                    detail: BlockDetail::Split { sector: sector + 16 },
                    ..block(BlockAction::Split, letters, sector, 16)
                },
                of: vec![first],
            });
            for part in 0..2 {
                let (at, from) = (sector + 16 * part, time + 600 + 900 * part);
                for (action, after) in [(BlockAction::GetRq, 0), (BlockAction::Insert, 250), (BlockAction::Issue, 500)]
                {
                    let block = block(action, letters, at, 16);
                    events.push(Recorded { time: from + after, tid: TaskId(tid), block, of: vec![first] });
                }
                let block = block(BlockAction::Complete, letters, at, 16);
                let time = from + 100_000 + random.below(9_000);
                events.push(Recorded { time, tid: TaskId(0), block, of: vec![first] });
            }
            time += 112_000;
        } else {
            let all: Vec<u32> = (0..count as u32).map(|i| first + i).collect();
            bios += count as u32;
            for i in 0..count {
                let at = sector + 8 * i;
                add(time, BlockAction::Queue, at, 8, vec![first + i as u32]);
                let got = if i == 0 { BlockAction::GetRq } else { BlockAction::BackMerge };
                add(time + 200, got, at, 8, vec![first + i as u32]);
                time += 500;
            }
            add(time, BlockAction::Insert, sector, 8 * count, all.clone());
            add(time + 700, BlockAction::Issue, sector, 8 * count, all.clone());
            time += 100_000 + random.below(9_000);
            add(time, BlockAction::Complete, sector, 8 * count, all);
        }
        free[slot as usize] = time;
    }
    events.sort_by_key(|event| event.time);
    events
}

/// What a bio had: queued, got, merged, inserted, issued, completed.
type Times = [u64; 6];

/// The times of all bios, by the time of their queueing, which no two have in common.
#[derive(Default)]
struct Ways(HashMap<u64, Times>);

impl Watch for Ways {
    fn ended(&mut self, _at: u32, bio: &Bio, completed: u64) {
        if bio.is_request() {
            return;
        }
        let times = [bio.queued, bio.got, bio.merged, bio.inserted, bio.issued, completed];
        assert!(self.0.insert(bio.queued, times).is_none(), "a bio has one way");
    }
}

fn ways<'a>(events: impl Iterator<Item = &'a Recorded>, missing: bool) -> HashMap<u64, Times> {
    let mut matching = Matching::new(Ways::default());
    (matching.whole_trace, matching.missing) = (!missing, missing);
    for event in events {
        matching.block(&event.block, (event.tid.0, event.tid), event.time, || event.tid.0);
    }
    matching.finish().0.0
}

#[test]
fn a_lost_event_costs_its_own_bio_alone() {
    let mut random = Random(0x5eed_0000_0001);
    let (mut whole, mut hurt, mut mixed) = (0, 0, 0);
    for round in 0..300 {
        let events = correct(&mut random);
        let truth = ways(events.iter(), false);
        assert!(truth.values().all(|times| times[5] != NEVER), "a correct trace completes all");
        // From 0.1 to 10 % are lost; that some are is all that is known.
        let lost_per_mille = 1 + random.below(100);
        let lost: Vec<bool> = events.iter().map(|_| random.below(1000) < lost_per_mille).collect();
        let mut queued: HashMap<u32, u64> = HashMap::new();
        let mut damaged: HashMap<u32, bool> = HashMap::new();
        for (event, &lost) in events.iter().zip(&lost) {
            for &bio in &event.of {
                if event.block.action == BlockAction::Queue {
                    queued.insert(bio, event.time);
                }
                *damaged.entry(bio).or_default() |= lost;
            }
        }
        let left = events.iter().zip(&lost).filter(|(_, lost)| !**lost).map(|(event, _)| event);
        let found = ways(left, true);
        assert!(found.keys().all(|queued| truth.contains_key(queued)), "none is invented");
        for (bio, queued) in queued {
            let want = truth[&queued];
            if !damaged[&bio] {
                whole += 1;
                assert_eq!(found.get(&queued), Some(&want), "round {round}: all events of this bio are there");
            } else if let Some(times) = found.get(&queued) {
                hurt += 1;
                // One that lost its end and another of the same sectors that lost its queueing look like one I/O.
                let wrong = times.iter().zip(want).any(|(time, want)| ![NEVER, want].contains(time));
                mixed += u64::from(wrong);
            }
        }
    }
    assert!(whole > 10_000 && hurt > 500 && mixed * 50 < hurt, "{whole} {hurt} {mixed}");
}
