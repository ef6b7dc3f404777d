//! I/O past the page cache (`O_DIRECT`), which no event of a file shows.
//!
//! Input: calls, steps of files, and bios that a task queues. Output: bytes by file and owner. A task's bio goes past the cache if a call
//! that reads or writes queues it, and no step of its file came before in this call. Of a thread without a call in the trace that is unknown:
//! the trace has no calls, or the thread works for a task's io_uring.

use crate::bounded::{BoundedMap, Full};
use flashscope_trace::{Device, FileId, TaskId};
use std::collections::BTreeMap;

/// Most threads within a call; below: most pairs of a file or device and an owner.
const MAX_THREADS: usize = 4096;
const MAX_PAIRS: usize = 1 << 16;

/// I/O of one owner on one file past the page cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirectUse {
    pub who: String,
    pub device: Device,
    /// `None`: the trace does not show which files of this device they are.
    pub inode: Option<u64>,
    pub bytes: DirectBytes,
}

/// Bytes read and written past the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectBytes {
    pub read: u64,
    pub written: u64,
    /// Further reads and writes may be such.
    pub may_read: bool,
    pub may_write: bool,
}

/// The way of a bio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Direct,
    Cache,
    Unknown,
}

/// A call that a thread is in, or that it is in none which reads or writes.
#[derive(Clone, Copy)]
struct Open {
    reads: bool,
    writes: bool,
    /// The file of the last step in this call.
    by_cache: Option<FileId>,
}

pub(super) struct Direct {
    open: BoundedMap<TaskId, Open>,
    /// Threads that used a file through the cache: their bios of it outside of known calls are the cache's.
    cached: BoundedMap<(TaskId, FileId), ()>,
    of_files: BoundedMap<(FileId, u32), DirectBytes>,
    /// I/O of unknown files.
    of_devices: BoundedMap<(Device, u32), DirectBytes>,
}

impl Default for Direct {
    fn default() -> Direct {
        Direct {
            open: BoundedMap::new(MAX_THREADS, Full::ForgetOldest),
            cached: BoundedMap::new(MAX_PAIRS, Full::ForgetOldest),
            of_files: BoundedMap::new(MAX_PAIRS, Full::Refuse),
            of_devices: BoundedMap::new(MAX_PAIRS, Full::Refuse),
        }
    }
}

impl Direct {
    /// Whether a thread has made calls.
    pub fn is_used(&self) -> bool {
        !self.open.is_empty()
    }

    /// No call of the recording before goes on.
    pub fn recording_begins(&mut self) {
        self.open.clear();
        self.cached.clear();
    }

    /// A call begins or ends.
    pub fn call(&mut self, event: &str, tid: TaskId) {
        let Some(name) = event.strip_prefix("sys_enter_") else {
            if event.starts_with("sys_exit") {
                self.open.insert(tid, Open { reads: false, writes: false, by_cache: None });
            }
            return;
        };
        let (reads, writes) = match name {
            "read" | "pread64" | "readv" | "preadv" | "preadv2" => (true, false),
            "write" | "pwrite64" | "writev" | "pwritev" | "pwritev2" => (false, true),
            "io_submit" | "io_uring_enter" => (true, true),
            _ => (false, false),
        };
        self.open.insert(tid, Open { reads, writes, by_cache: None });
    }

    /// A step of a file in the page cache. Metadata is used in direct I/O too: it is of the device's own file, or of the first inodes.
    pub fn step(&mut self, file: FileId, tid: TaskId) {
        let is_own = |device: Device| device.major() == 0 || file.inode == u64::from(device.0) || file.inode <= 2;
        if !self.open.is_empty()
            && !file.device.is_none_or(is_own)
            && let Some(open) = self.open.get_mut(&tid)
        {
            open.by_cache = Some(file);
        }
    }

    /// A thread uses another file than before through the cache.
    pub fn uses(&mut self, file: FileId, tid: TaskId) {
        self.cached.insert((tid, file), ());
    }

    /// The way of a task's bio of this file.
    pub fn way(&self, file: Option<FileId>, write: bool, tid: TaskId) -> Way {
        match self.open.get(&tid) {
            None if file.is_some_and(|file| self.cached.get(&(tid, file)).is_some()) => Way::Cache,
            None => Way::Unknown,
            Some(open) if !(if write { open.writes } else { open.reads }) => Way::Cache,
            Some(Open { by_cache: Some(cached), .. }) if file.is_none_or(|file| file == *cached) => Way::Cache,
            Some(_) => Way::Direct,
        }
    }

    /// A bio, or a part of one. Where only its way is known, and not its file, its bytes are of no file.
    pub fn count(&mut self, (device, file): (Device, Option<FileId>), owner: u32, write: bool, way: Way, bytes: u64) {
        let sums = match (file, way) {
            (_, Way::Cache) | (None, Way::Unknown) => return,
            (Some(file), _) => self.of_files.entry((file, owner), DirectBytes::default),
            (None, Way::Direct) => self.of_devices.entry((device, owner), DirectBytes::default),
        };
        let Some(sums) = sums else { return };
        let (sum, may) =
            if write { (&mut sums.written, &mut sums.may_write) } else { (&mut sums.read, &mut sums.may_read) };
        match way {
            Way::Direct => *sum = sum.saturating_add(bytes),
            _ => *may = true,
        }
    }

    /// I/O of files and devices that were too many to keep. A thread that is forgotten makes bytes unknown, and needs no count.
    pub fn lost(&self) -> u64 {
        self.of_files.lost() + self.of_devices.lost()
    }

    /// By owner's name, for the owners that have one.
    pub fn finish(&self, name: impl Fn(u32) -> Option<String>) -> Vec<DirectUse> {
        let files = self
            .of_files
            .iter()
            .filter_map(|((file, owner), bytes)| Some((file.device?, Some(file.inode), owner, bytes)));
        let devices = self.of_devices.iter().map(|((device, owner), bytes)| (*device, None, owner, bytes));
        let mut all: BTreeMap<(Device, Option<u64>, String), DirectBytes> = BTreeMap::new();
        for (device, inode, owner, bytes) in files.chain(devices) {
            let Some(name) = name(*owner) else { continue };
            let sum = all.entry((device, inode, name)).or_default();
            sum.read = sum.read.saturating_add(bytes.read);
            sum.written = sum.written.saturating_add(bytes.written);
            sum.may_read |= bytes.may_read;
            sum.may_write |= bytes.may_write;
        }
        all.into_iter().map(|((device, inode, who), bytes)| DirectUse { who, device, inode, bytes }).collect()
    }
}
