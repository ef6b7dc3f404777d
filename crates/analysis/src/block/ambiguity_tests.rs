//! Lost events after which a step may be of either of two bios: each has its right time or none.

use super::in_flight::{Bio, NEVER};
use super::matching::Matching;
use super::watch::Watch;
use crate::testing;
use flashscope_trace::{BlockAction, BlockEvent, Device, TaskId};

/// Time, thread, step (blkparse's letter) and first sector of an event of a read of 8 sectors.
type Step = (u64, u32, char, u64);

/// When each bio was queued, issued and completed.
#[derive(Default)]
struct Ends(Vec<[u64; 3]>);

impl Watch for Ends {
    fn ended(&mut self, _at: u32, bio: &Bio, completed: u64) {
        self.0.push([bio.queued, bio.issued, completed]);
    }
}

fn block(step: char, sector: u64) -> BlockEvent {
    let action = BlockAction::ALL.iter().find(|action| action.letters().starts_with(step)).expect("a step");
    testing::block(*action, Device::new(8, 0), "R", sector, 4096)
}

/// Begin, thread, sector, and how long after the begin each step came.
fn read(begin: u64, tid: u32, sector: u64, steps: &[(char, u64)]) -> Vec<Step> {
    steps.iter().map(|&(step, after)| (begin + after, tid, step, sector)).collect()
}

const STEPS: &[(char, u64)] = &[('Q', 0), ('G', 1_000), ('I', 1_500), ('D', 2_000), ('C', 100_000)];
const BEGIN: u64 = 10_000_000;

/// Where the bio that was queued then had its issue and its completion, behind sixteen whole reads of 100 µs.
fn ends(steps: &[Vec<Step>]) -> Vec<[u64; 3]> {
    let mut all: Vec<Step> = (0..16).flat_map(|n| read(n * 200_000, 9, 5000 + n * 8, STEPS)).collect();
    all.extend(steps.iter().flatten());
    all.sort_unstable();
    let mut matching = Matching::new(Ends::default());
    (matching.whole_trace, matching.missing) = (false, true);
    for &(time, tid, step, sector) in &all {
        matching.block(&block(step, sector), (tid, TaskId(tid)), time, || tid);
    }
    let mut found = matching.finish().0.0;
    found.retain(|end| (BEGIN..NEVER).contains(&end[0]));
    found
}

fn without(steps: &[(char, u64)], lost: &str) -> Vec<(char, u64)> {
    steps.iter().copied().filter(|(step, _)| !lost.contains(*step)).collect()
}

#[test]
fn a_step_of_either_of_two_is_right_or_unknown() {
    let mut wrong = Vec::new();
    let busy = |until: u64| -> Vec<Step> {
        (0..until / 60_000).flat_map(|n| read(BEGIN + 7 + n * 60_000, 8, 100_000 + n * 8, STEPS)).collect()
    };
    // An older read that lost its end, a busy device, and a later read that lost its begin.
    for (older, newer) in [("DC", "Q"), ("IDC", "Q"), ("C", "Q")] {
        for later in [50_000, 150_000, 500_000, 2_000_000] {
            for tid in [1, 2] {
                let found = ends(&[
                    busy(later + 200_000),
                    read(BEGIN, 1, 0, &without(STEPS, older)),
                    read(BEGIN + later, tid, 0, &without(STEPS, newer)),
                ]);
                for end in found.iter().filter(|end| end[0] == BEGIN) {
                    let right = [if older.contains('D') { NEVER } else { BEGIN + 2_000 }, NEVER];
                    if end[1..].iter().zip(right).any(|(&is, right)| is != right && is != NEVER) {
                        wrong.push(format!("{older} {newer} {later} {tid}: {end:?}"));
                    }
                }
            }
        }
    }
    // Two at once, of which one has lost its completion.
    for (lost, second) in [(0, 20_000), (1, 20_000), (0, 50_000), (1, 50_000), (0, 90_000), (1, 90_000)] {
        for next in [None, Some((1, 900_000)), Some((2, 900_000)), Some((3, 900_000))] {
            let steps = [0, 1].map(|n| without(STEPS, if n == lost { "C" } else { "" }));
            let mut all = vec![busy(400_000), read(BEGIN, 1, 0, &steps[0]), read(BEGIN + second, 2, 0, &steps[1])];
            if let Some((tid, after)) = next {
                all.push(read(BEGIN + after, tid, 0, STEPS));
            }
            for end in ends(&all) {
                if end[2] != NEVER && end[2] != end[0] + 100_000 {
                    wrong.push(format!(
                        "one of two, {lost} {second} {next:?}: {:?}",
                        [end[0] - BEGIN, end[1] - end[0], end[2] - end[0]]
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}
