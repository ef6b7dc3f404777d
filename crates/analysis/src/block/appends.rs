//! Zone appends: the device, or the kernel in its place, chooses the sector.
//!
//! An append is queued at the begin of its zone and completed where it was written. A completion belongs to the oldest append of that
//! zone with its size. Where a device does not know appends (SCSI, zoned UFS), Linux 6.10 and later turn one into a write at the zone's
//! write pointer before it has a request (block/blk-zoned.c, blk_zone_wplug_prepare_bio): its later steps are a write's.

use super::in_flight::{NEVER, Place, Wanted};
use super::matching::{Matching, Range};
use super::watch::Watch;
use flashscope_trace::RequestKind;

impl<W: Watch> Matching<W> {
    /// A zone that begins here gets an append.
    pub(super) fn append_to(&mut self, device: u16, begin: u64) {
        self.zones.insert((device, begin), ());
    }

    /// The sectors of a zone append's completion, as its queueing named them.
    pub(super) fn in_zone(&self, device: u16, range: Range) -> Range {
        match self.zones.range((device, 0)..=(device, range.sector)).next_back() {
            Some((&(_, begin), ())) => Range { sector: begin, end: begin + (range.end - range.sector), ..range },
            None => range,
        }
    }

    /// A write request without a queued bio belongs to the oldest append of its size in that zone. Returns whether there is one.
    #[cold]
    pub(super) fn append_written(&mut self, range: Range) -> bool {
        let (device, sectors) = (range.place.device(), range.end - range.sector);
        if self.zones.is_empty() || range.place != Place::new(device, RequestKind::Write) {
            return false;
        }
        let place = Place::sized(device, RequestKind::ZoneAppend, sectors);
        let wanted = Wanted { place, sector: self.in_zone(device, range).sector, most: sectors };
        let waits = |bio: &super::in_flight::Bio| {
            u8::from(bio.got == NEVER && bio.issued == NEVER && u64::from(bio.sectors) == sectors)
        };
        let Some((at, _)) = self.bios.find(wanted, waits) else { return false };
        self.make_room(range.place, range.sector);
        if self.bios.see(at).live {
            self.bios.rename(at, range.place, range.sector);
        }
        true
    }
}
