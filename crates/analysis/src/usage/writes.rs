//! Writes by thread and device: synchronous data, and the file system's own data (journal, checkpoints).
//!
//! Input: bios when they are queued, and begins of commits. Limit: at most [`MAX_WRITERS`] threads and devices.

use crate::bounded::{BoundedMap, Full};
use flashscope_trace::{BlockEvent, Device, RequestFlags, RequestKind, TaskId};

const MAX_WRITERS: usize = 4096;
/// Most threads in the result: those with most writes.
const MAX_LISTED: usize = 64;

/// Writes of one thread to one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskWrites {
    pub device: String,
    pub tid: TaskId,
    /// With the flag `S` (`REQ_SYNC`), without `M` (`REQ_META`): a task waits for this data.
    pub sync_bios: u64,
    pub sync_bytes: u64,
    /// The file system's own: with the flag `M`.
    pub metadata_bios: u64,
    pub metadata_bytes: u64,
    /// Bytes of all its writes.
    pub bytes: u64,
    /// From the first to the last sector that it wrote in order, each bio behind the one before; only metadata, where it wrote any in
    /// order. For a journal's thread that range is the journal: a superblock lies elsewhere.
    pub range_bytes: u64,
    /// From the queueing of the first write to that of the last.
    pub active_ns: u64,
}

#[derive(Default)]
struct Of {
    sync: (u64, u64),
    metadata: (u64, u64),
    bytes: u64,
    /// Sectors of the file system's own writes, and of the rest.
    ranges: [Option<(u64, u64)>; 2],
    /// The sector behind the last bio.
    end: Option<u64>,
    first_at: u64,
    last_at: u64,
}

pub(crate) struct Writes(BoundedMap<(TaskId, Device), Of>);

impl Default for Writes {
    fn default() -> Writes {
        Writes(BoundedMap::new(MAX_WRITERS, Full::Refuse))
    }
}

impl Writes {
    pub fn queued(&mut self, block: &BlockEvent, tid: TaskId, at: u64) {
        if block.flags.kind() != RequestKind::Write || block.bytes == 0 {
            return;
        }
        let new = || Of { first_at: at, ..Of::default() };
        let Some(of) = self.0.entry((tid, block.device), new) else { return };
        let add = |to: &mut (u64, u64)| *to = (to.0 + 1, to.1.saturating_add(block.bytes));
        if block.flags.has(RequestFlags::META) {
            add(&mut of.metadata);
        } else if block.flags.has(RequestFlags::SYNC) {
            add(&mut of.sync);
        }
        of.bytes = of.bytes.saturating_add(block.bytes);
        let (begin, end) = (block.sector, block.sector.saturating_add(block.bytes.div_ceil(512)));
        if of.end.replace(end) == Some(begin) {
            let range = &mut of.ranges[usize::from(!block.flags.has(RequestFlags::META))];
            *range = Some(range.map_or((begin, end), |(low, high)| (low.min(begin), high.max(end))));
        }
        of.last_at = at;
    }

    /// Writes of threads without room.
    pub fn lost(&self) -> u64 {
        self.0.lost()
    }

    /// Sorted by the number of synchronous writes and metadata writes, most first.
    pub fn finish(&self) -> Vec<TaskWrites> {
        let mut all: Vec<_> = self.0.iter().collect();
        all.sort_by_key(|(key, of)| (std::cmp::Reverse(of.sync.0 + of.metadata.0), **key));
        all.truncate(MAX_LISTED);
        let one = |(&(tid, device), of): (&(TaskId, Device), &Of)| TaskWrites {
            device: device.to_string(),
            tid,
            sync_bios: of.sync.0,
            sync_bytes: of.sync.1,
            metadata_bios: of.metadata.0,
            metadata_bytes: of.metadata.1,
            bytes: of.bytes,
            range_bytes: of.ranges[0].or(of.ranges[1]).map_or(0, |(low, high)| (high - low).saturating_mul(512)),
            active_ns: of.last_at.saturating_sub(of.first_at),
        };
        all.into_iter().map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::block;
    use flashscope_trace::{BlockAction, Device};

    #[test]
    fn writes_are_summed_by_what_they_are() {
        let mut writes = Writes::default();
        for (at, tid, letters, sector, bytes) in [
            (100, 7, "WS", 80, 4096),
            (200, 7, "WFS", 800, 512),
            (250, 7, "WSM", 80_000, 1024),
            // A superblock, then three blocks of a journal, of which the first has none before it.
            (300, 7, "WSM", 2, 1024),
            (310, 7, "WSM", 90_000, 1024),
            (320, 7, "WSM", 90_002, 1024),
            (330, 7, "WSM", 90_004, 1024),
            (400, 7, "W", 88, 4096),
            (500, 7, "R", 8000, 4096),
            (600, 7, "FWS", 0, 0),
            (700, 8, "WS", 0, 512),
        ] {
            writes.queued(&block(BlockAction::Queue, Device::new(8, 0), letters, sector, bytes), TaskId(tid), at);
        }
        let all = writes.finish();
        let first = TaskWrites {
            device: "8:0".into(),
            tid: TaskId(7),
            sync_bios: 2,
            sync_bytes: 4608,
            metadata_bios: 5,
            metadata_bytes: 5120,
            bytes: 13_824,
            range_bytes: 2048,
            active_ns: 300,
        };
        assert_eq!((all.len(), &all[0], (all[1].sync_bios, all[1].range_bytes)), (2, &first, (1, 0)));
    }
}
