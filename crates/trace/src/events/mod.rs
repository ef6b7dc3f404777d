//! Typed events, with units: what analyses read.

pub mod block;
pub mod file;
pub mod layer;
pub mod phase;
pub mod shown;

use crate::events::block::BlockEvent;
use crate::events::file::FileEvent;
use crate::ids::TaskId;
pub use crate::time::TimeNs;

/// What happened, where and on whose behalf.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub time: TimeNs,
    pub cpu: u16,
    /// The task that ran when the event fired (thread id, as the kernel's `common_pid`).
    pub tid: TaskId,
    pub kind: EventKind,
}

/// A kind of flash array operation.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, schemars::JsonSchema, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum FlashOp {
    Read,
    Program,
    Erase,
}

impl FlashOp {
    /// As tables and exports name it.
    pub fn name(self) -> &'static str {
        match self {
            FlashOp::Read => "read",
            FlashOp::Program => "program",
            FlashOp::Erase => "erase",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum EventKind {
    /// One array command of a NAND chip.
    Flash(FlashAccess),
    /// One array command came back (only with durations recorded); it started at `Event::time - duration_ns`.
    FlashDone {
        op: FlashOp,
        duration_ns: u64,
    },
    /// One call at the MTD layer, which may span many pages: the cross-count, and the fallback.
    Mtd {
        op: FlashOp,
        address: u64,
        length_bytes: u64,
    },
    /// One step on the way of a bio or a request, from blktrace or the kernel's `block:` events.
    Block(BlockEvent),
    /// One step between a file and its device: the page cache, writeback, the file system's map.
    File(FileEvent),
    /// A named part of a run began, ended, or a moment was marked.
    PhaseBegin {
        name: String,
    },
    PhaseEnd {
        name: String,
    },
    Mark {
        name: String,
    },
    /// An event that has no typed form (yet): system and name say which.
    Other {
        system: String,
        name: String,
        /// Of a system call that returned (`sys_exit_*`): its result, a negative error number among them.
        result: Option<i64>,
    },
}

/// One array command. `page` counts pages of the chip (or of the target that `chip_select` names) from 0;
/// an erase names the first page of its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashAccess {
    pub op: FlashOp,
    pub page: u64,
    /// Column in the page, bytes, spare area counted after the data; `None` where it was not recorded.
    pub offset_bytes: Option<u32>,
    /// Bytes moved by the command itself; `None` where it was not recorded.
    pub length_bytes: Option<u32>,
    /// Which chip (`facts.mtd[].chip`); 0 where there is one only.
    pub chip: u16,
}
