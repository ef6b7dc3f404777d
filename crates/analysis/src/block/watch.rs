//! Observers of the matching of steps and bios: statistics, distributions and interference each implement [`Watch`].

use super::in_flight::Bio;
use flashscope_trace::BlockEvent;

/// What a bio has just had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Got,
    Merged,
    Inserted,
    Issued,
    /// The driver gave it back.
    Requeued,
}

/// Sees every bio's way. `at` names the bio from `queued` to `ended`, then it may name another one.
pub(super) trait Watch {
    /// Any event that has a device and data, before its bios have had their step.
    fn event(&mut self, _device: u16, _block: &BlockEvent, _now: u64, _shown: bool) {}
    fn queued(&mut self, _at: u32, _bio: &Bio, _now: u64) {}
    /// A request was issued whose queueing is not in the trace: `ended` gets it too.
    fn requested(&mut self, _at: u32, _bio: &Bio, _now: u64) {}
    /// Its times are those before the step.
    fn step(&mut self, _at: u32, _bio: &Bio, _step: Step, _now: u64) {}
    /// A request whose queueing is not in the trace was given back, and is issued with other sectors.
    fn reshaped(&mut self, _at: u32, _before: &Bio, _bio: &Bio) {}
    /// A second part has the name `to`; both are what they have become.
    fn split(&mut self, _from: u32, _to: u32) {}
    /// The way of a part of a split bio is over, at `completed`, or as far as the trace goes (`NEVER`).
    fn part_ended(&mut self, _at: u32, _part: &Bio, _completed: u64) {}
    /// So many sectors of it failed, from its first one on; what is left of it goes on.
    fn failed_part(&mut self, _at: u32, _bio: &Bio, _sectors: u64) {}
    /// A completion with an error came whose bio or request is not known: of these sectors, without an owner and a begin.
    fn failed_alone(&mut self, _bio: &Bio, _now: u64) {}
    /// Its data is written, at `completed`; what flushes the cache after it is not done.
    fn data_written(&mut self, _at: u32, _bio: &Bio, _completed: u64) {}
    /// Bios below it did its work; `ended` follows.
    fn was_above(&mut self, _at: u32, _bio: &Bio) {}
    /// Its way is over, at `completed`, or as far as the trace goes (`NEVER`).
    fn ended(&mut self, _at: u32, _bio: &Bio, _completed: u64) {}
    /// The trace is over. What is handed over next was still on its way (`unfinished`), or its completion was lost.
    fn at_end(&mut self, _unfinished: bool) {}
    /// Another recording begins; how long after the one before is not known.
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

    // Which step it is is known where it is called: what a step is nothing to costs nothing.
    #[inline(always)]
    fn step(&mut self, at: u32, bio: &Bio, step: Step, now: u64) {
        self.0.step(at, bio, step, now);
        self.1.step(at, bio, step, now);
    }

    fn reshaped(&mut self, at: u32, before: &Bio, bio: &Bio) {
        self.0.reshaped(at, before, bio);
        self.1.reshaped(at, before, bio);
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

    fn at_end(&mut self, unfinished: bool) {
        self.0.at_end(unfinished);
        self.1.at_end(unfinished);
    }

    fn begins_again(&mut self) {
        self.0.begins_again();
        self.1.begins_again();
    }
}

/// Sees the ways of those bios and requests alone that are shown, and every event.
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
