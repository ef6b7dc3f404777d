//! Input and output types of a simulation.

use flashscope_trace::FileId;

/// Kernels whose rules are modelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, schemars::JsonSchema)]
pub enum Kernel {
    #[serde(rename = "2.6.37")]
    V2_6_37,
    #[serde(rename = "5.10")]
    V5_10,
    #[serde(rename = "6.1")]
    V6_1,
    #[serde(rename = "6.12")]
    V6_12,
    #[serde(rename = "7.2")]
    V7_2,
}

/// The model chosen for a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    pub kernel: Kernel,
    /// The kernel belongs to the line that the model follows; else the model is the nearest one.
    pub exact: bool,
}

/// Identifies an open file: the kernel keeps a window for each open, not for each file. The caller chooses the number, such as a
/// descriptor, or a task where descriptors are not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpenId(pub u64);

/// Advice given on a mapping (`madvise`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MapAdvice {
    #[default]
    Normal,
    Random,
    Sequential,
    /// No advice, on a mapping with `PROT_EXEC` of these pages of the file (`end` is behind the last). Kernels since 6.17 read ahead
    /// differently for it.
    Executable {
        first: u64,
        end: u64,
    },
}

/// An operation of a task on a file. Offsets and lengths are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The file is opened (again): it gets a new window of the knob's current value.
    Open,
    Read {
        offset: u64,
        length: u64,
    },
    /// A touch of a page that is not mapped yet.
    Fault {
        page: u64,
        advice: MapAdvice,
    },
    /// Written pages enter the cache; the file grows where the write ends behind it.
    Write {
        offset: u64,
        length: u64,
    },
    /// Pages enter without a read, fault or advice: the file system reads them itself (JFFS2's garbage collection,
    /// `jffs2_gc_fetch_page`, fs/jffs2/fs.c; a symlink's target, `page_get_link`, fs/namei.c; both of 6.1).
    Brought {
        page: u64,
        pages: u64,
    },
    /// `POSIX_FADV_NORMAL`; `_RANDOM` and `_SEQUENTIAL` follow.
    AdviseNormal,
    AdviseRandom,
    AdviseSequential,
    /// `POSIX_FADV_WILLNEED`, `readahead()` and `MADV_WILLNEED`; a length of 0 means the rest of the file.
    WillNeed {
        offset: u64,
        length: u64,
    },
    /// Pages are removed (truncation, `POSIX_FADV_DONTNEED`).
    Drop {
        page: u64,
        pages: u64,
    },
    /// All pages of the file are removed (`drop_caches`, unlinking).
    DropAll,
    /// The file's size changes without an [`Access::Write`]: it was truncated or extended.
    Resized {
        bytes: u64,
    },
}

/// Why a page came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// It is of the request itself.
    Request,
    ReadAhead,
    /// It was written whole or in part, or came by [`Access::Brought`].
    Write,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageStep {
    Added {
        cause: Cause,
    },
    /// Evicted because the cache was full. `used`: it was read, mapped or written while cached.
    Evicted {
        used: bool,
    },
    /// Removed by [`Access::Drop`] or [`Access::DropAll`].
    Dropped {
        used: bool,
    },
    /// The file system read fewer pages than the kernel had added (squashfs).
    TakenBack {
        used: bool,
    },
    /// The squashfs block that begins with this page is read from the device. Only with [`crate::Simulator::tell_blocks`].
    Block,
    /// A read or fault uses it, and waits for it where it is not read in yet. Pages that were added before it in the same access were
    /// requested from the device before the wait. Only with [`crate::Simulator::tell_uses`].
    Used,
}

/// A page enters or leaves the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageEvent {
    pub file: FileId,
    pub page: u64,
    pub step: PageStep,
}

impl PageEvent {
    /// Whether the page is read from the device.
    pub fn is_read(&self) -> bool {
        matches!(self.step, PageStep::Added { cause: Cause::Request | Cause::ReadAhead })
    }
}

/// Settings of the kernel. No value is refused; the cache bounds excessive ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Largest window: `read_ahead_kb` in pages.
    pub readahead_pages: u64,
    /// The device's best request in pages (`bdi->io_pages`): 0 for MTD, `max_sectors_kb` of a block device.
    pub io_pages: u64,
    /// Size of the cache, pages.
    pub budget_pages: usize,
    /// The faults were recorded under another window: one on a page that is already mapped under this window does not happen.
    /// Processes are not distinguished. A sequential mapping (`MADV_SEQUENTIAL`) is assumed to be read in order: the pages between
    /// two faults were read too, and fault where this window did not bring them in, or marked them.
    pub faults_of_another: bool,
}

impl Default for Settings {
    /// 128 KiB of read-ahead as of block devices, and a cache of 1 GiB.
    fn default() -> Settings {
        Settings { readahead_pages: 32, io_pages: 0, budget_pages: 1 << 18, faults_of_another: false }
    }
}
