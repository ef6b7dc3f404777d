//! The clock of a trace that may hold several recordings.
//!
//! A clock that falls back by [`BACK_NS`] belongs to another boot or another recording. How much time passed between two recordings is
//! unknown: the second one follows the first at once, and no time (Q2Q) spans both.

/// Larger than any difference between the clocks of CPUs.
const BACK_NS: u64 = 1_000_000_000;

/// Times of a trace, joined over its recordings.
#[derive(Default)]
pub(super) struct Clock {
    latest: u64,
    /// Added to the times of this recording.
    pub shift: u64,
}

impl Clock {
    /// `None`: the clock fell back.
    #[inline(always)]
    pub fn time(&mut self, now: u64) -> Option<u64> {
        let now = now.saturating_add(self.shift);
        if now > self.latest {
            self.latest = now;
        }
        if self.latest - now < BACK_NS { Some(now) } else { None }
    }

    /// A recording begins with this time. Returns the time that its first event gets: a later one is kept.
    pub fn begin_again(&mut self, now: u64) -> u64 {
        self.shift = self.latest.saturating_sub(now);
        self.latest = self.latest.max(now);
        self.latest
    }
}
