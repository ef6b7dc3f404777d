//! The end of a recording, and several recordings in one trace: `blktrace -o - >> FILE` of two boots.
//!
//! The clock of each boot restarts ([`Clock`](super::clock::Clock)). No bio of the first recording can be completed in the second.

use super::in_flight::NEVER;
use super::matching::Matching;
use super::parts_in_flight::Lost;
use super::watch::Watch;
use std::collections::BTreeMap;

impl<W: Watch> Matching<W> {
    /// A new recording begins with this time: the clock fell back, or the trace says so.
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
            let counts = !bio.below && (!bio.is_request() || self.counts.all_queued == 0);
            self.lose(at, counts.then_some(lost));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Stage;
    use super::super::stages::Stages;
    use crate::Analysis;
    use crate::testing::steps_from;

    #[test]
    fn a_second_boot_ends_what_the_first_had_on_its_way() {
        // The read of sector 16 is on its way when the first recording ends. The second boot reads it again.
        let first = steps_from(900_000_000_000, "R 8+8: Q0 D1000 C51000; R 16+8: Q100000 D101000");
        let second = steps_from(5_000_000, "R 16+8: Q0 D2000 C72000; R 24+8: Q1000000 D1002000 C1072000");
        let mut stages = Stages::new();
        first.iter().chain(&second).for_each(|event| stages.event(event));
        let found = stages.finish();
        let of = |stage: Stage| found.all[stage as usize];
        let (d2c, q2q) = (of(Stage::D2c), of(Stage::Q2q));
        assert_eq!((d2c.n, d2c.min_ns, d2c.max_ns, d2c.total_ns), (3, 50_000, 70_000, 190_000));
        assert_eq!((q2q.n, q2q.min_ns, q2q.max_ns), (2, 100_000, 1_000_000));
        assert_eq!((found.bios_queued, found.bios_completed, found.unfinished), (4.into(), 3.into(), 1.into()));
        // 101 µs of the first, 1,072 µs of the second.
        assert_eq!(found.end_ns - found.begin_ns, 1_173_000);
    }

    /// Issues and completions alone: of three requests the last one is in the device when the recording ends.
    #[test]
    fn a_request_in_flight_at_the_end_is_unfinished() {
        let mut stages = Stages::new();
        steps_from(0, "R 0+8: D0 C50; R 8+8: D100 C150; R 16+8: D200").iter().for_each(|event| stages.event(event));
        let found = stages.finish();
        assert_eq!((found.requests_completed, found.unfinished), (2.into(), 1.into()));
    }
}
