//! Inputs of a prediction (storage, file-system options), and the page counts of one setting.

use std::collections::{BTreeMap, BTreeSet};

use flashscope_cachesim::{Kernel, PAGE_BYTES};
use flashscope_trace::Device;
use schemars::JsonSchema;
use serde::Serialize;

pub const PREDICTION_SCHEMA: u32 = 4;

/// Windows that are compared with a recording to find the one it was made with, KiB.
pub const TRIED_KIB: [u64; 10] = [0, 4, 8, 16, 32, 64, 128, 256, 512, 1024];

/// Pages that one setting brings into the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Tally {
    /// Calls that read.
    pub calls: u64,
    /// Pages that a call, a fault or advice asked for.
    pub pages_requested: u64,
    /// Pages that read-ahead added.
    pub pages_ahead: u64,
    /// Pages of `pages_ahead` that nothing used: evicted ones, and those still in the page cache.
    pub pages_unused: u64,
    /// Pages that calls of `read()` brought in. Their time depends on these.
    pub pages_in_calls: u64,
    /// Page faults of mapped files; `None` if the trace has no event that shows them.
    pub faults: Option<u64>,
    /// Pages that these faults brought in; `None` as in `faults`.
    pub pages_in_faults: Option<u64>,
    /// Pages that `readahead()` and advice requested.
    pub pages_in_advice: u64,
}

/// Adds a count; `None` (not in the trace) adds nothing.
fn add(to: &mut Option<u64>, more: Option<u64>) {
    if let Some(more) = more {
        *to.get_or_insert(0) += more;
    }
}

impl Tally {
    /// The trace shows faults: a missing count becomes 0.
    pub(crate) fn shows_faults(&mut self) {
        self.faults.get_or_insert(0);
        self.pages_in_faults.get_or_insert(0);
    }

    /// Reads and faults.
    pub(crate) fn requests(&self) -> u64 {
        self.calls + self.faults.unwrap_or(0)
    }

    pub fn pages(&self) -> u64 {
        self.pages_requested + self.pages_ahead
    }

    pub(crate) fn add(&mut self, other: &Tally) {
        self.calls += other.calls;
        self.pages_requested += other.pages_requested;
        self.pages_ahead += other.pages_ahead;
        self.pages_unused += other.pages_unused;
        self.pages_in_calls += other.pages_in_calls;
        add(&mut self.faults, other.faults);
        add(&mut self.pages_in_faults, other.pages_in_faults);
        self.pages_in_advice += other.pages_in_advice;
    }

    pub fn wasted_bytes(&self) -> u64 {
        self.pages_unused * PAGE_BYTES
    }
}

/// What is set beside the window; `None`: as it was recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, JsonSchema)]
pub struct FilesystemOptions {
    /// UBIFS mounted with, or without, `bulk_read`.
    pub bulk_read: Option<bool>,
    /// squashfs with blocks of this many bytes.
    pub squashfs_block: Option<u64>,
}

/// The kernel, device and file systems that the files are read from.
#[derive(Clone, Debug)]
pub struct Storage {
    pub kernel: Kernel,
    /// Largest preferred request of the device, pages (`bdi->io_pages`): 0 on MTD.
    pub io_pages: u64,
    /// The longest request of its queue, bytes; 0 where it is not known.
    pub request_bytes: u64,
    pub budget_pages: usize,
    /// Block sizes of file systems that are squashfs, bytes, by device number.
    pub squashfs: BTreeMap<Device, u64>,
    /// UBIFS mounts with `bulk_read`, by device number.
    pub bulk_read: BTreeSet<Device>,
}

impl Storage {
    /// Raw flash without a block layer, and a page cache of 1 GiB.
    pub fn new(kernel: Kernel) -> Storage {
        Storage {
            kernel,
            io_pages: 0,
            request_bytes: 0,
            budget_pages: 1 << 18,
            squashfs: BTreeMap::new(),
            bulk_read: BTreeSet::new(),
        }
    }
}
