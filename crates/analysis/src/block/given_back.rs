//! Requests that the driver gave back, until they are issued again. Their later steps are in `requeues.rs`.

use super::in_flight::{Bio, Place};
use std::collections::BTreeMap;

/// Most requests given back that are kept until they are issued again.
const MAX_GIVEN_BACK: usize = 1 << 12;
/// Most places whose first issues are kept; below: most issues of a place, and the longest time from an issue to its completion.
const MAX_PLACES: usize = 1 << 12;
const MAX_FIRST_ISSUES: usize = 64;
const MAX_IN_DEVICE_NS: u64 = 10_000_000_000;

/// Requests given back that have no bio in the trace, by their place and first sector at that time.
#[derive(Default)]
pub(super) struct GivenBack(pub BTreeMap<(Place, u64), u32>);

impl GivenBack {
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn add(&mut self, place: Place, sector: u64, at: u32) {
        if self.0.len() >= MAX_GIVEN_BACK {
            self.0.pop_first();
        }
        self.0.insert((place, sector), at);
    }
}

/// First issues of requests that were issued again without a requeue in the trace: a further completion shows that these were other
/// requests. By place and first sector.
#[derive(Default)]
pub(super) struct FirstIssues(BTreeMap<(Place, u64), Vec<Bio>>);

impl FirstIssues {
    pub fn add(&mut self, bio: Bio) {
        if self.0.len() >= MAX_PLACES {
            self.0.pop_first();
        }
        let issues = self.0.entry((bio.place, bio.sector)).or_default();
        if issues.len() < MAX_FIRST_ISSUES {
            issues.push(bio);
        }
    }

    /// The earliest of exactly these sectors; it is removed.
    pub fn take(&mut self, place: Place, (sector, end): (u64, u64), now: u64) -> Option<Bio> {
        let issues = self.0.get_mut(&(place, sector))?;
        issues.retain(|bio| bio.issued.saturating_add(MAX_IN_DEVICE_NS) > now);
        let found = issues.iter().position(|bio| bio.end() == end).map(|at| issues.remove(at));
        if issues.is_empty() {
            self.0.remove(&(place, sector));
        }
        found
    }
}
