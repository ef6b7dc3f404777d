//! Bios that were split: one bio from its queueing to the completion of its last part.
//!
//! Each part goes its own way in requests of its own. The bio's steps are those of its first part, its issue is the first of
//! any part, and it is completed with the last one. Where a part's issue or completion is not in the trace, the bio's is
//! unknown.

use super::in_flight::{Bio, NEVER, NONE};

struct Whole {
    /// The first part's name, which is the bio's.
    root: u32,
    /// As it was before the split.
    bio: Bio,
    /// Parts on their way.
    left: u32,
    first_issue: u64,
    all_issued: bool,
    last: u64,
    all_completed: bool,
    /// Why the way of a part of it was not followed to its end.
    lost: Option<Lost>,
}

/// Why a bio's way was not followed to its end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Lost {
    Completion,
    Issue,
    TimeBackwards,
    TooMany,
    /// The trace ends before.
    Unfinished,
}

/// The split bios that are on their way.
#[derive(Default)]
pub(super) struct Wholes {
    wholes: Vec<Whole>,
    free: Vec<u32>,
}

impl Wholes {
    pub fn is_empty(&self) -> bool {
        self.wholes.len() == self.free.len()
    }

    /// A bio, or a part, is cut in two; the number of the bio.
    pub fn split(&mut self, at: u32, bio: &Bio) -> u32 {
        if bio.whole != NONE {
            self.wholes[bio.whole as usize].left += 1;
            return bio.whole;
        }
        let whole = Whole {
            root: at,
            bio: *bio,
            left: 2,
            first_issue: NEVER,
            all_issued: true,
            last: 0,
            all_completed: true,
            lost: None,
        };
        match self.free.pop() {
            Some(free) => {
                self.wholes[free as usize] = whole;
                free
            }
            None => {
                self.wholes.push(whole);
                (self.wholes.len() - 1) as u32
            }
        }
    }

    pub fn root(&self, whole: u32) -> u32 {
        self.wholes[whole as usize].root
    }

    /// A part of it will not be followed to its end; the first reason counts.
    pub fn lost(&mut self, whole: u32, lost: Lost) {
        let known = &mut self.wholes[whole as usize].lost;
        *known = known.or(Some(lost));
    }

    /// The bio, its completion, and why that is not known, where this was its last part.
    pub fn part_done(&mut self, part: &Bio, at: u32, completed: u64) -> Option<(Bio, u64, Option<Lost>)> {
        let whole = &mut self.wholes[part.whole as usize];
        whole.left -= 1;
        whole.first_issue = whole.first_issue.min(part.issued);
        whole.all_issued &= part.issued != NEVER;
        whole.all_completed &= completed != NEVER;
        whole.last = whole.last.max(if completed == NEVER { 0 } else { completed });
        if whole.bio.error == 0 {
            whole.bio.error = part.error;
        }
        if at == whole.root {
            (whole.bio.got, whole.bio.inserted, whole.bio.merged) = (part.got, part.inserted, part.merged);
        }
        if whole.left > 0 {
            return None;
        }
        self.free.push(part.whole);
        let sectors = whole.bio.whole_sectors;
        let issued = if whole.all_issued { whole.first_issue } else { NEVER };
        let bio = Bio { issued, sectors, whole: part.whole, ..whole.bio };
        Some((bio, if whole.all_completed { whole.last } else { NEVER }, whole.lost))
    }
}
