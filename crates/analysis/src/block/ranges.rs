//! Discards that wait for a request, and requests of several ranges in the device. Their later steps are in `discards.rs`.

use super::in_flight::{Bio, NEVER, Place};
use flashscope_trace::RequestKind;
use std::collections::{BTreeMap, VecDeque};

/// Most discards of a device that wait for their request; beyond, the oldest is forgotten. A request has at most 256 ranges
/// (NVM command set specification, Dataset Management).
pub(super) const MAX_WAITING: usize = 1 << 12;
/// Most requests with several ranges.
pub(super) const MAX_REQUESTS: usize = 1 << 10;

/// A bio: its name and its queueing time, since names are reused.
pub(super) type Named = (u32, u64);

/// A request with several ranges in the device.
pub(super) struct Merged {
    /// Stretches behind its first sector that no bio there covers.
    pub gaps: Vec<(u64, u64)>,
    pub end: u64,
    pub bios: Vec<Named>,
}

#[derive(Default)]
pub(super) struct Discards {
    pub waiting: BTreeMap<u16, VecDeque<Named>>,
    pub merged: BTreeMap<(u16, u64), Merged>,
}

impl Discards {
    /// Whether a discard was queued to the device of this place, if the place is one of discards.
    #[inline]
    pub fn any(&self, place: Place) -> bool {
        is_discard(place) && self.waiting.contains_key(&place.device())
    }
}

#[inline(always)]
pub(super) fn is_discard(place: Place) -> bool {
    place.kind() == RequestKind::Discard as usize
}

/// Whether the name still belongs to the same bio.
pub(super) fn is_there(bio: &Bio, (_, queued): Named) -> bool {
    bio.live && bio.queued == queued && bio.kind() == RequestKind::Discard
}

/// In addition, whether it has no request in the device.
pub(super) fn waits(bio: &Bio, one: Named) -> bool {
    is_there(bio, one) && bio.issued == NEVER
}
