//! Split bios while parts of them are in flight. The splits themselves are in `split_events.rs`.
//!
//! Each part is in requests of its own. The bio's steps are those of its first part, its issue is the first of
//! any part, and its completion is the last part's. Where a part's issue or completion is not in the trace, the bio's is
//! unknown.

use super::in_flight::{Bio, NEVER, NONE};

struct SplitBio {
    /// The first part's name, which is the bio's name.
    root: u32,
    /// The bio before the split.
    bio: Bio,
    /// Parts in flight.
    left: u32,
    first_issue: u64,
    all_issued: bool,
    last: u64,
    all_completed: bool,
    /// Why a part was not followed to its end.
    lost: Option<Lost>,
}

/// Why a bio was not followed to its end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Lost {
    Completion,
    Issue,
    TimeBackwards,
    TooMany,
    /// The trace ended first.
    Unfinished,
}

/// The split bios in flight.
#[derive(Default)]
pub(super) struct SplitBios {
    bios: Vec<SplitBio>,
    free: Vec<u32>,
}

impl SplitBios {
    pub fn is_empty(&self) -> bool {
        self.bios.len() == self.free.len()
    }

    /// A bio, or a part, is split in two. Returns the number of the split bio.
    pub fn split(&mut self, at: u32, bio: &Bio) -> u32 {
        if bio.split_of != NONE {
            self.bios[bio.split_of as usize].left += 1;
            return bio.split_of;
        }
        let split = SplitBio {
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
                self.bios[free as usize] = split;
                free
            }
            None => {
                self.bios.push(split);
                (self.bios.len() - 1) as u32
            }
        }
    }

    /// The name of a bio for others: a part of a split bio has that of its first part.
    pub fn name(&self, at: u32, bio: &Bio) -> u32 {
        if bio.split_of == NONE { at } else { self.root(bio.split_of) }
    }

    pub fn root(&self, number: u32) -> u32 {
        self.bios[number as usize].root
    }

    /// A part will not be followed to its end; the first reason counts.
    pub fn lost(&mut self, number: u32, lost: Lost) {
        let known = &mut self.bios[number as usize].lost;
        *known = known.or(Some(lost));
    }

    /// Ends a part. If it was the last one: returns the bio, its completion, and why that is unknown.
    pub fn part_done(&mut self, part: &Bio, at: u32, completed: u64) -> Option<(Bio, u64, Option<Lost>)> {
        let split = &mut self.bios[part.split_of as usize];
        split.left -= 1;
        split.first_issue = split.first_issue.min(part.issued);
        split.all_issued &= part.issued != NEVER;
        split.all_completed &= completed != NEVER;
        split.last = split.last.max(if completed == NEVER { 0 } else { completed });
        if split.bio.error == 0 {
            split.bio.error = part.error;
        }
        if at == split.root {
            (split.bio.got, split.bio.inserted, split.bio.merged) = (part.got, part.inserted, part.merged);
        }
        if split.left > 0 {
            return None;
        }
        self.free.push(part.split_of);
        let sectors = split.bio.whole_sectors;
        let issued = if split.all_issued { split.first_issue } else { NEVER };
        let bio = Bio { issued, sectors, split_of: part.split_of, ..split.bio };
        Some((bio, if split.all_completed { split.last } else { NEVER }, split.lost))
    }
}
