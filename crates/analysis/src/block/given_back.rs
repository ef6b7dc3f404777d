//! Requests that the driver gave back, until they are issued again. Their later steps are in `requeues.rs`.

use super::in_flight::Place;
use std::collections::BTreeMap;

/// Most requests given back that are kept until they are issued again.
const MAX_GIVEN_BACK: usize = 1 << 12;

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
