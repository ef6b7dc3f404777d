//! Observers of the matching of steps and bios: statistics, distributions and interference each implement [`Watch`].

use super::in_flight::Bio;
use flashscope_trace::BlockEvent;

/// A step of a bio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Got,
    Merged,
    Inserted,
    Issued,
    /// The driver gave it back.
    Requeued,
}

/// Receives every bio's steps. `at` names the bio from `queued` to `ended`, then it may name another one.
pub(super) trait Watch {
    /// Any event with a device and data, before its bios have their step.
    fn event(&mut self, _device: u16, _block: &BlockEvent, _now: u64, _shown: bool) {}
    fn queued(&mut self, _at: u32, _bio: &Bio, _now: u64) {}
    /// A request was issued whose queueing is not in the trace: `ended` gets it too.
    fn requested(&mut self, _at: u32, _bio: &Bio, _now: u64) {}
    /// `bio` has the times before the step.
    fn step(&mut self, _at: u32, _bio: &Bio, _step: Step, _now: u64) {}
    /// A request whose queueing is not in the trace was given back, and is now issued with other sectors.
    fn reshaped(&mut self, _at: u32, _before: &Bio, _bio: &Bio) {}
    /// A request whose queueing is not in the trace became part of another one; `reshaped` of that one follows, and `ended`.
    fn absorbed(&mut self, _at: u32, _bio: &Bio) {}
    /// A bio was split: `to` names the second part; both bios are in their new state.
    fn split(&mut self, _from: u32, _to: u32) {}
    /// A part of a split bio ended, at `completed`, or without a known end (`NEVER`).
    fn part_ended(&mut self, _at: u32, _part: &Bio, _completed: u64) {}
    /// The first `sectors` sectors of it failed; the rest continues.
    fn failed_part(&mut self, _at: u32, _bio: &Bio, _sectors: u64) {}
    /// A completion with an error whose bio or request is not known: it has sectors, but no owner and no begin.
    fn failed_alone(&mut self, _bio: &Bio, _now: u64) {}
    /// Its data was written, at `completed`; the flush after it is not done.
    fn data_written(&mut self, _at: u32, _bio: &Bio, _completed: u64) {}
    /// Bios below it worked for it; `ended` follows.
    fn was_above(&mut self, _at: u32, _bio: &Bio) {}
    /// One of the bios at the sector of this one ended; which one is decided by a later event (`decided`).
    fn undecided(&mut self, _at: u32, _bio: &Bio, _now: u64) {}
    /// `ended` of the one that ended follows.
    fn decided(&mut self, _at: u32) {}
    /// The bio ended, at `completed`, or without a known end (`NEVER`).
    fn ended(&mut self, _at: u32, _bio: &Bio, _completed: u64) {}
    /// The trace ended. The bios passed on next were still in flight (`unfinished`), or their completion was lost.
    fn at_end(&mut self, _unfinished: bool) {}
    /// Another recording begins; the time since the one before is not known.
    fn begins_again(&mut self) {}
}

impl<A: Watch, B: Watch> Watch for (A, B) {
    #[inline(always)]
    fn event(&mut self, device: u16, block: &BlockEvent, now: u64, shown: bool) {
        self.0.event(device, block, now, shown);
        self.1.event(device, block, now, shown);
    }

    fn queued(&mut self, at: u32, bio: &Bio, now: u64) {
        self.0.queued(at, bio, now);
        self.1.queued(at, bio, now);
    }

    fn requested(&mut self, at: u32, bio: &Bio, now: u64) {
        self.0.requested(at, bio, now);
        self.1.requested(at, bio, now);
    }

    // The step is a constant at each call, so a watch that ignores it costs nothing.
    #[inline(always)]
    fn step(&mut self, at: u32, bio: &Bio, step: Step, now: u64) {
        self.0.step(at, bio, step, now);
        self.1.step(at, bio, step, now);
    }

    fn reshaped(&mut self, at: u32, before: &Bio, bio: &Bio) {
        self.0.reshaped(at, before, bio);
        self.1.reshaped(at, before, bio);
    }

    fn absorbed(&mut self, at: u32, bio: &Bio) {
        self.0.absorbed(at, bio);
        self.1.absorbed(at, bio);
    }

    fn split(&mut self, from: u32, to: u32) {
        self.0.split(from, to);
        self.1.split(from, to);
    }

    fn part_ended(&mut self, at: u32, part: &Bio, completed: u64) {
        self.0.part_ended(at, part, completed);
        self.1.part_ended(at, part, completed);
    }

    fn failed_part(&mut self, at: u32, bio: &Bio, sectors: u64) {
        self.0.failed_part(at, bio, sectors);
        self.1.failed_part(at, bio, sectors);
    }

    fn failed_alone(&mut self, bio: &Bio, now: u64) {
        self.0.failed_alone(bio, now);
        self.1.failed_alone(bio, now);
    }

    fn data_written(&mut self, at: u32, bio: &Bio, completed: u64) {
        self.0.data_written(at, bio, completed);
        self.1.data_written(at, bio, completed);
    }

    fn was_above(&mut self, at: u32, bio: &Bio) {
        self.0.was_above(at, bio);
        self.1.was_above(at, bio);
    }

    fn ended(&mut self, at: u32, bio: &Bio, completed: u64) {
        self.0.ended(at, bio, completed);
        self.1.ended(at, bio, completed);
    }

    fn undecided(&mut self, at: u32, bio: &Bio, now: u64) {
        self.0.undecided(at, bio, now);
        self.1.undecided(at, bio, now);
    }

    fn decided(&mut self, at: u32) {
        self.0.decided(at);
        self.1.decided(at);
    }

    fn at_end(&mut self, unfinished: bool) {
        self.0.at_end(unfinished);
        self.1.at_end(unfinished);
    }

    fn begins_again(&mut self) {
        self.0.begins_again();
        self.1.begins_again();
    }
}

/// Receives the steps of only those bios and requests that are shown, and every event.
pub(super) struct Shown<W>(pub W);

impl<W: Watch> Watch for Shown<W> {
    fn begins_again(&mut self) {
        self.0.begins_again();
    }

    #[inline(always)]
    fn event(&mut self, device: u16, block: &BlockEvent, now: u64, shown: bool) {
        self.0.event(device, block, now, shown);
    }

    #[inline(always)]
    fn queued(&mut self, at: u32, bio: &Bio, now: u64) {
        if bio.shown {
            self.0.queued(at, bio, now);
        }
    }

    #[inline(always)]
    fn requested(&mut self, at: u32, bio: &Bio, now: u64) {
        if bio.shown {
            self.0.requested(at, bio, now);
        }
    }

    #[inline(always)]
    fn step(&mut self, at: u32, bio: &Bio, step: Step, now: u64) {
        if bio.shown {
            self.0.step(at, bio, step, now);
        }
    }

    fn reshaped(&mut self, at: u32, before: &Bio, bio: &Bio) {
        if bio.shown {
            self.0.reshaped(at, before, bio);
        }
    }

    fn absorbed(&mut self, at: u32, bio: &Bio) {
        if bio.shown {
            self.0.absorbed(at, bio);
        }
    }

    fn undecided(&mut self, at: u32, bio: &Bio, now: u64) {
        if bio.shown {
            self.0.undecided(at, bio, now);
        }
    }

    fn decided(&mut self, at: u32) {
        self.0.decided(at);
    }

    #[inline(always)]
    fn part_ended(&mut self, at: u32, part: &Bio, completed: u64) {
        if part.shown {
            self.0.part_ended(at, part, completed);
        }
    }

    #[inline(always)]
    fn ended(&mut self, at: u32, bio: &Bio, completed: u64) {
        if bio.shown {
            self.0.ended(at, bio, completed);
        }
    }
}
