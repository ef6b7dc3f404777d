//! Requests that were given back, until they are issued again. What comes of them: `requeues.rs`.

use super::in_flight::Place;
use std::collections::BTreeMap;

/// Requests that were given back, and are remembered until they are issued again.
const MAX_GIVEN_BACK: usize = 1 << 12;

/// Requests without a bio in the trace that were given back, by where they began then.
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
