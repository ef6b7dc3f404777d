//! What goes into a simulation and what comes out of it.

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

/// The model that was taken for a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    pub kernel: Kernel,
    /// The kernel is of the very line that the model follows; else the model is the nearest one.
    pub exact: bool,
}

/// What stands for an open file: the kernel keeps a window for each, not for each file. Any number of the caller's choice, such
/// as a descriptor, or a task where descriptors are not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpenId(pub u64);

/// Advice given on a mapping (`madvise`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MapAdvice {
    #[default]
    Normal,
    Random,
    Sequential,
    /// None, on a mapping with `PROT_EXEC` of these pages of the file (`end` is behind the last): since 6.17 kernels read such
    /// ones their own way.
    Executable {
        first: u64,
        end: u64,
    },
}

/// What a task does with a file. Offsets and lengths are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The file is opened (again): its window begins anew, with the knob's value of now.
    Open,
    Read {
        offset: u64,
        length: u64,
    },
    /// A mapped page is touched that is not mapped yet.
    Fault {
        page: u64,
        advice: MapAdvice,
    },
    /// Pages written come into the cache; the file grows where the write ends behind it.
    Write {
        offset: u64,
        length: u64,
    },
    /// Pages come for no read, fault or advice: the file system brings them in for itself (JFFS2's garbage collection,
    /// `jffs2_gc_fetch_page`, fs/jffs2/fs.c; a symlink's target, `page_get_link`, fs/namei.c; both of 6.1).
    Brought {
        page: u64,
        pages: u64,
    },
    /// `POSIX_FADV_NORMAL`, `_RANDOM`, `_SEQUENTIAL`.
    AdviseNormal,
    AdviseRandom,
    AdviseSequential,
    /// `POSIX_FADV_WILLNEED`, `readahead()` and `MADV_WILLNEED`; a length of 0 is the rest of the file.
    WillNeed {
        offset: u64,
        length: u64,
    },
    /// Pages leave for a reason of their own (truncation, `POSIX_FADV_DONTNEED`).
    Drop {
        page: u64,
        pages: u64,
    },
    /// All pages of the file leave (`drop_caches`, unlinking).
    DropAll,
    /// The file has so many bytes from now on, for a reason of its own (it was cut, or grew without a [`Access::Write`]).
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
    /// For want of room. `used`: it was read, mapped or written while it was there.
    Evicted {
        used: bool,
    },
    /// By [`Access::Drop`] or [`Access::DropAll`].
    Dropped {
        used: bool,
    },
    /// The file system read less than the kernel had made room for (squashfs).
    TakenBack {
        used: bool,
    },
    /// Its block of squashfs, whose first page this is, is read from the device: only where [`crate::Simulator::tell_blocks`] requested it.
    Block,
    /// A read or fault takes it, and waits where it is not read in yet: only where [`crate::Simulator::tell_uses`] requested it. What
    /// was added before it in the same access was asked of the device before the wait.
    Used,
}

/// One page comes or goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageEvent {
    pub file: FileId,
    pub page: u64,
    pub step: PageStep,
}

impl PageEvent {
    /// Whether the device is read for it.
    pub fn is_read(&self) -> bool {
        matches!(self.step, PageStep::Added { cause: Cause::Request | Cause::ReadAhead })
    }
}

/// Settings of the kernel. Every value is taken as it is; those that are beyond reason are bounded by the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Largest window: `read_ahead_kb` in pages.
    pub readahead_pages: u64,
    /// The device's best request in pages (`bdi->io_pages`): 0 for MTD, `max_sectors_kb` of a block device.
    pub io_pages: u64,
    /// Room of the cache.
    pub budget_pages: usize,
    /// Faults are those of another window: one on a page that is mapped already under this one does not happen. Which process
    /// has it mapped is not distinguished. A sequential mapping (`MADV_SEQUENTIAL`) is taken to be read in order: the pages between
    /// two faults were read too, and fault where this window did not bring them in, or marked them.
    pub faults_of_another: bool,
}

impl Default for Settings {
    /// 128 KiB of read-ahead as of block devices, and a cache of 1 GiB.
    fn default() -> Settings {
        Settings { readahead_pages: 32, io_pages: 0, budget_pages: 1 << 18, faults_of_another: false }
    }
}
