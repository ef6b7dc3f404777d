//! Typed events with units, the input of analyses.

pub mod block;
pub mod file;
pub mod layer;
pub mod phase;
pub mod shown;

use crate::events::block::BlockEvent;
use crate::events::file::FileEvent;
use crate::ids::TaskId;
pub use crate::time::TimeNs;

/// One event: time, CPU, task and kind.
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
    /// The name in tables and exports.
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
    /// One command to the NAND array.
    Flash(FlashAccess),
    /// A NAND array command finished (only with durations recorded); it started at `Event::time - duration_ns`.
    FlashDone {
        op: FlashOp,
        duration_ns: u64,
    },
    /// One call at the MTD layer, which may span many pages. It is compared with the array commands, and used if those are missing.
    Mtd {
        op: FlashOp,
        address: u64,
        length_bytes: u64,
    },
    /// One step of a bio or a request, from blktrace or the kernel's `block:` events.
    Block(BlockEvent),
    /// One step of file I/O: the page cache, writeback, or the file system's block map.
    File(FileEvent),
    /// A named part of a run began or ended, or a moment was marked.
    PhaseBegin {
        name: String,
    },
    PhaseEnd {
        name: String,
    },
    Mark {
        name: String,
    },
    /// The next event of this trace is the first of another recording in the same text: nothing from before ends in it.
    Recording,
    /// An event without a typed form, by system and name.
    Other {
        system: String,
        name: String,
        /// For a system call's return (`sys_exit_*`): the result; errors are negative.
        result: Option<i64>,
    },
}

/// One array command. `page` counts the pages of the chip (or of the target `chip_select`) from 0. For an erase it is the first page of the
/// block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashAccess {
    pub op: FlashOp,
    pub page: u64,
    /// Offset in the page, bytes; the spare area follows the data. `None` if it was not recorded.
    pub offset_bytes: Option<u32>,
    /// Bytes that the command moved; `None` if they were not recorded.
    pub length_bytes: Option<u32>,
    /// Number of the chip (`facts.mtd[].chip`); 0 if there is only one.
    pub chip: u16,
}
