//! Time behind a block queue, where the device works while the reader continues.
//!
//! [`QueueReader`] reads a recording: the bios that a call requested, their completion times, and the processor time of calls.
//! [`QueueCost`] is fitted from these. [`Replay`] runs the calls again in virtual time: a call waits for the pages that it uses; pages
//! that no call waits for cost only their requests; the pauses between a task's calls stay as recorded.
//!
//! Bios and requests: a run of contiguous pages is one bio of at most 256 pages (`BIO_MAX_VECS`, include/linux/bio.h; fs/mpage.c,
//! fs/ext4/readpage.c), cut into requests of at most `max_sectors_kb` (`bio_split_to_limits`, block/blk-merge.c). Its pages are ready
//! when the whole bio is (`bio_endio`). All of Linux 6.1. A run ends where the recording shows that the file continues elsewhere on
//! its device ([`Extents`]).

use flashscope_trace::facts::Disk;
use flashscope_trace::{Device, Facts};
use schemars::JsonSchema;
use serde::Serialize;

mod device;
mod extents;
mod processor;
mod replay;
mod watch;

pub use device::DeviceCost;
pub use extents::Extents;
pub use processor::ProcessorCost;
pub use replay::Replay;
pub use watch::QueueReader;

/// Device time of a request, and processor time of a call.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct QueueCost {
    pub device: DeviceCost,
    pub processor: ProcessorCost,
}

/// The block queue in a recording.
#[derive(Debug, Default)]
pub struct Queued {
    /// `None` where no call was seen to wait for a block device.
    pub cost: Option<QueueCost>,
    /// Read requests of the devices that calls read from; `kib` has their size.
    pub requests: u64,
    /// Of those: requests for a file system's metadata.
    pub metadata_requests: u64,
    pub kib: u64,
    /// Pages that an earlier call had read ahead, and that were not ready when the call that requests them began.
    pub pages_late: u64,
    /// Pages in flight whose completion was lost, or that were forgotten because too many were in flight.
    pub pages_given_up: u64,
    /// Calls beyond the most that are followed at once: their waits are in no figure.
    pub calls_not_followed: u64,
    /// Requests without a duration: of further disks, or without a completion.
    pub requests_not_followed: u64,
    /// Places of files on their devices.
    pub extents: Extents,
}

/// What a setting requests of the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Requested {
    pub requests: u64,
    pub kib: u64,
    /// Pages that an earlier call had read ahead, and that are not there yet when the call that asks for them begins.
    pub pages_late: u64,
}

/// The longest request of the queue below a file system (`max_sectors_kb`), bytes, from the recording's facts.
pub fn request_bytes(facts: &Facts, device: Device) -> Option<u64> {
    let source = facts.mount_of(device)?.source.as_deref()?.rsplit('/').next()?;
    // A partition's name begins with its disk's.
    let of = |disk: &Disk| {
        let name = disk.name.as_deref().filter(|name| source.starts_with(name))?;
        Some((name.len(), disk.max_sectors_kb?))
    };
    let (_, kib) = facts.block.iter().filter_map(of).max()?;
    Some(kib.saturating_mul(1024)).filter(|&bytes| bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_request_is_of_the_disk_whose_partition_is_mounted() {
        let facts = Facts::of(&serde_json::json!({
            "mounts": [{"device": "179:2", "source": "/dev/mmcblk0p2"}, {"device": "1:1", "source": "tmpfs"}],
            "block": [{"name": "mmcblk0", "max_sectors_kb": 512}, {"name": "mmcblk1", "max_sectors_kb": 4},
                      {"name": "mm", "max_sectors_kb": 8}],
        }));
        assert_eq!(request_bytes(&facts, Device::new(179, 2)), Some(512 << 10));
        assert_eq!(request_bytes(&facts, Device::new(1, 1)), None);
        assert_eq!(request_bytes(&Facts::default(), Device::new(1, 1)), None);
    }
}
