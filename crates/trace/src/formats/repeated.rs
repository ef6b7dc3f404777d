//! Finds events that a source has twice: text pasted twice, overlapping captures in one file, a copied line.
//!
//! Two events are equal if everything in the source is equal: time to the last digit, CPU, thread, name, text and flags. Their position
//! decides whether equal events are one event:
//!
//! - Times ran backwards, and the event occurred before that. Then it is a copy: a second copy starts again at earlier times. This holds
//!   for events of every kind.
//! - Both have one time, and times did not run backwards. Then only bios and requests with sectors are copies. The block layer does not do
//!   one step of the same sectors twice within the resolution of a clock (a microsecond in text). A wake-up, a system call, or the end of a
//!   flush may occur twice. Zone appends are all queued at the beginning of their zone. Completions of the same sectors occur as often as
//!   requests for them were issued: two threads may read one sector.
//!
//! Memory is bounded. Nothing is kept for a source whose times never run backwards. For other sources, events are kept from the earliest
//! time that came after a later one.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Largest number of kept events, if times run backwards. Above it copies are not found (the losses have `times_backwards`).
const MAX_SEEN: usize = 1 << 20;
/// Events with one time that are compared.
const MAX_MOMENT: usize = 256;
/// Ranges of sectors with a count of requests.
const MAX_RANGES: usize = 1 << 16;

/// How often an event can occur at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Any number of times.
    Any,
    /// Once.
    Once,
    /// Once; it issues a request for these sectors (a hash of device and range).
    Issued(u64),
    /// As often as requests for these sectors are in flight, in a text without other copies.
    Completed(u64),
}

/// The earliest time that came after a later one, from a first pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Backwards {
    last: u64,
    from: Option<u64>,
}

impl Backwards {
    /// Whether times run backwards.
    pub fn are_there(&self) -> bool {
        self.from.is_some()
    }

    pub fn time(&mut self, time: u64) {
        if time < self.last {
            self.from = Some(self.from.map_or(time, |from| from.min(time)));
        }
        self.last = time;
    }
}

/// Finds repeated events in one pass.
#[derive(Debug)]
pub(super) struct Repeated {
    from: Option<u64>,
    last: u64,
    /// How often times have run backwards.
    stretch: u32,
    /// The stretch in which an event occurred first.
    seen: HashMap<u64, u32>,
    /// Hashes of bios and requests with sectors at the time of the last event.
    moment: Vec<u64>,
    /// Requests in flight, by their sectors.
    issued: HashMap<u64, u32>,
    /// A step that can occur only once was repeated, so the text has copies. Then completions are not compared with issued requests: after
    /// a lost completion, a copy would count as the second one.
    has_copies: bool,
    pub count: u64,
}

impl Repeated {
    pub fn new(backwards: Backwards) -> Repeated {
        Repeated {
            from: backwards.from,
            last: 0,
            stretch: 0,
            seen: HashMap::new(),
            moment: Vec::new(),
            issued: HashMap::new(),
            has_copies: false,
            count: 0,
        }
    }

    /// Whether this event (CPU, thread, name, text or fields, and flags) is a repetition, which is counted.
    pub fn is(&mut self, time: u64, event: impl Hash, step: Step) -> bool {
        let once = step != Step::Any;
        if time != self.last {
            self.stretch += u32::from(time < self.last);
            self.last = time;
            self.moment.clear();
        }
        let may_return = self.from.is_some_and(|from| time >= from);
        if !may_return && !once {
            return false;
        }
        let mut hasher = DefaultHasher::new();
        (time, event).hash(&mut hasher);
        let hash = hasher.finish();
        let mut is = false;
        if may_return {
            match self.seen.get(&hash) {
                Some(&stretch) => is = stretch < self.stretch,
                None if self.seen.len() < MAX_SEEN => drop(self.seen.insert(hash, self.stretch)),
                None => {}
            }
        }
        if once && !is {
            is = self.moment.contains(&hash)
                && !matches!(step, Step::Completed(range) if !self.has_copies && self.issued.contains_key(&range));
            self.has_copies |= is && !matches!(step, Step::Completed(_));
            if !is && self.moment.len() < MAX_MOMENT {
                self.moment.push(hash);
            }
        }
        if !is {
            self.follow(step);
        }
        self.count += u64::from(is);
        is
    }

    /// Another recording begins: its events are no copies. `counted` of them have been counted as such.
    pub fn begin_again(&mut self, counted: u64) {
        self.count -= counted;
        self.seen.clear();
        self.moment.clear();
        self.issued.clear();
    }

    fn follow(&mut self, step: Step) {
        match step {
            Step::Issued(range) => {
                if self.issued.len() >= MAX_RANGES && !self.issued.contains_key(&range) {
                    self.issued.clear();
                }
                *self.issued.entry(range).or_default() += 1;
            }
            Step::Completed(range) => {
                if let Some(under_way) = self.issued.get_mut(&range) {
                    *under_way -= 1;
                    if *under_way == 0 {
                        self.issued.remove(&range);
                    }
                }
            }
            Step::Any | Step::Once => {}
        }
    }
}

/// A hash of a request's device and range.
pub(super) fn range(request: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    request.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of these events (time, thread, text) are copies.
    fn copies(once: bool, events: &[(u64, u32, &'static str)]) -> Vec<bool> {
        let step = if once { Step::Once } else { Step::Any };
        let mut backwards = Backwards::default();
        events.iter().for_each(|event| backwards.time(event.0));
        let mut repeated = Repeated::new(backwards);
        let event = |tid, text: &'static str| (0, tid, "block_bio_queue", text.as_bytes(), &b""[..]);
        events.iter().map(|&(time, tid, text)| repeated.is(time, event(tid, text), step)).collect()
    }

    #[test]
    fn a_copy_begins_again_at_earlier_times() {
        // Two wake-ups at one time are two, and so they are where the whole comes again.
        let once = [(5, 1, "a"), (5, 1, "a"), (7, 2, "b"), (9, 1, "c")];
        assert_eq!(copies(false, &once), [false; 4]);
        let twice = [&once[..], &once].concat();
        assert_eq!(copies(false, &twice), [[false; 4], [true; 4]].concat());
        // Captures that overlap: what is new in the second is kept.
        let overlapping = [&once[..], &[(7, 2, "b"), (9, 1, "c"), (11, 1, "d")]].concat();
        assert_eq!(copies(false, &overlapping), [false, false, false, false, true, true, false]);
        // Another thread's, or another text, is another event.
        assert_eq!(copies(false, &[(5, 1, "a"), (7, 1, "b"), (5, 2, "a"), (7, 1, "c")]), [false; 4]);
    }

    #[test]
    fn the_same_step_of_the_same_sectors_comes_once_at_a_time() {
        let events = [(5, 1, "8,0 R 8 + 8"), (5, 1, "8,0 R 16 + 8"), (5, 1, "8,0 R 8 + 8"), (6, 1, "8,0 R 8 + 8")];
        assert_eq!(copies(true, &events), [false, false, true, false]);
        assert_eq!(copies(false, &events), [false; 4]);
    }

    /// Two requests of one sector that end in one microsecond are two; a line that was copied is one.
    #[test]
    fn completions_of_one_sector_come_as_often_as_it_was_issued() {
        let followed = |events: &[(u64, &str, Step)]| -> Vec<bool> {
            let mut repeated = Repeated::new(Backwards::default());
            events.iter().map(|&(time, event, step)| repeated.is(time, event, step)).collect()
        };
        let (issue, complete) = (Step::Issued(8), Step::Completed(8));
        let two = [(10, "issue", issue), (11, "issue", issue), (20, "complete", complete), (20, "complete", complete)];
        assert_eq!(followed(&two), [false; 4]);
        assert_eq!(followed(&[&two[..], &two[3..]].concat()), [false, false, false, false, true]);
        let copied = [(5, "issue", issue), (5, "issue", issue), (9, "complete", complete), (9, "complete", complete)];
        assert_eq!(followed(&copied), [false, true, false, true]);
        // In a text with copies, the completion that is missing is not found in one.
        assert_eq!(followed(&[&copied[..], &two].concat())[4..], [false, false, false, true]);
    }
}
