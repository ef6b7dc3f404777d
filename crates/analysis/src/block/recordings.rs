//! The end of a recording, and several recordings in one trace: `blktrace -o - >> FILE` of two boots.
//!
//! The clock of each boot restarts ([`Clock`](super::clock::Clock)). No bio of the first recording can be completed in the second.

use super::in_flight::NEVER;
use super::matching::Matching;
use super::parts_in_flight::Lost;
use super::watch::Watch;
use std::collections::BTreeMap;

impl<W: Watch> Matching<W> {
    /// The clock fell back: a new recording begins with this time.
    #[cold]
    pub(super) fn begins_again(&mut self, now: u64) -> u64 {
        self.recording_ends();
        self.strays.clear();
        self.early.clear();
        self.watch.begins_again();
        self.clock.begin_again(now)
    }

    /// Passes on the bios still in flight.
    pub(super) fn recording_ends(&mut self) {
        self.decide_all();
        self.flushes_end();
        let rest: Vec<u32> = self.bios.rest().map(|(at, _)| at).collect();
        let mut stuck = BTreeMap::new();
        for at in rest {
            let bio = *self.bios.get(at);
            let device = usize::from(bio.device);
            if !bio.is_request() && !self.issues[device] && !self.completes[device] {
                let bios = stuck.entry(device).or_insert(0u64);
                *bios += 1;
                // A single bio may be in flight.
                if *bios > 1 {
                    self.counts.endless.get_or_insert(self.devices[device]);
                }
            }
            let backwards = !bio.is_request() && self.take_stray(bio.place, bio.sector, bio.queued, bio.issued);
            self.counts.open[usize::from(bio.below)] |= bio.shown && !backwards;
            self.watch.at_end(!backwards && !bio.superseded);
            let lost = match (backwards, bio.superseded, bio.issued) {
                (true, ..) => Lost::TimeBackwards,
                (_, false, _) => Lost::Unfinished,
                (_, true, NEVER) => Lost::Issue,
                (_, true, _) => Lost::Completion,
            };
            self.lose(at, Some(lost).filter(|_| !bio.is_request() && !bio.below));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::stages::Stages;
    use super::super::{Stage, StagesFound};
    use crate::Analysis;
    use crate::testing::event;
    use flashscope_trace::{BlockAction, BlockDetail, BlockEvent, Device, EventKind, RequestFlags};

    /// Reads of 4 KiB: time, action, sector.
    fn run(steps: &[(u64, BlockAction, u64)]) -> StagesFound {
        let mut stages = Stages::new();
        for &(time, action, sector) in steps {
            let (flags, device) = (RequestFlags::READ, Device::new(8, 0));
            let detail = BlockDetail::None;
            let block = BlockEvent { action, device, flags, sector, bytes: 4096, error: 0, cgroup: 0, detail };
            stages.event(&event(time, 1, EventKind::Block(block)));
        }
        stages.finish()
    }

    #[test]
    fn a_second_boot_ends_what_the_first_had_on_its_way() {
        use BlockAction::{Complete, Issue, Queue};
        const BOOT: u64 = 900_000_000_000;
        let found = run(&[
            (BOOT, Queue, 8),
            (BOOT + 1_000, Issue, 8),
            (BOOT + 51_000, Complete, 8),
            // On its way when the first recording ends.
            (BOOT + 100_000, Queue, 16),
            (BOOT + 101_000, Issue, 16),
            // The second boot reads the same sectors.
            (5_000_000, Queue, 16),
            (5_002_000, Issue, 16),
            (5_072_000, Complete, 16),
            (6_000_000, Queue, 24),
            (6_002_000, Issue, 24),
            (6_072_000, Complete, 24),
        ]);
        let of = |stage: Stage| found.all[stage as usize];
        let (d2c, q2q) = (of(Stage::D2c), of(Stage::Q2q));
        assert_eq!((d2c.n, d2c.min_ns, d2c.max_ns, d2c.total_ns), (3, 50_000, 70_000, 190_000));
        assert_eq!((q2q.n, q2q.min_ns, q2q.max_ns), (2, 100_000, 1_000_000));
        assert_eq!((found.bios_queued, found.bios_completed, found.unfinished), (4.into(), 3.into(), 1.into()));
        // 101 µs of the first, 1,072 µs of the second.
        assert_eq!(found.end_ns - found.begin_ns, 1_173_000);
    }
}
