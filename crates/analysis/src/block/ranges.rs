//! Requests of several ranges: discards that wait for one, and those that are in the device. What comes of them: `discards.rs`.

use super::in_flight::{Bio, NEVER, Place};
use flashscope_trace::RequestKind;
use std::collections::{BTreeMap, VecDeque};

/// Discards that wait for their request and are remembered, by device: of more, the oldest is forgotten. A request has 256 ranges at
/// most (NVM command set specification, Dataset Management).
pub(super) const MAX_WAITING: usize = 1 << 12;
/// Requests with several ranges that are followed.
pub(super) const MAX_REQUESTS: usize = 1 << 10;

/// A bio, by its name and when it was queued: a name is used again.
pub(super) type Named = (u32, u64);

/// A request with several ranges that is in the device.
pub(super) struct Merged {
    /// Sectors behind its first one's that are no bio's there.
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
    /// Some discard was queued to the device of this place, which is one of discards.
    #[inline]
    pub fn any(&self, place: Place) -> bool {
        is_discard(place) && self.waiting.contains_key(&place.device())
    }
}

#[inline(always)]
pub(super) fn is_discard(place: Place) -> bool {
    place.kind() == RequestKind::Discard as usize
}

/// The name still belongs to the same bio.
pub(super) fn is_there(bio: &Bio, (_, queued): Named) -> bool {
    bio.live && bio.queued == queued && bio.kind() == RequestKind::Discard
}

/// And it has no request that is in the device.
pub(super) fn waits(bio: &Bio, one: Named) -> bool {
    is_there(bio, one) && bio.issued == NEVER
}
