//! Use of files and devices: repeated reads, random reads of files, and writes by programs.

mod drops;
mod files;
mod writes;

use crate::bounded::{BoundedMap, Full};
use crate::read_before::{BLOCK_BYTES, PIECE, ReadBefore, bits};
use crate::{Analysis, LossCount};
use drops::{Dropped, Drops};
use files::WrittenFiles;
use flashscope_trace::{
    BlockAction, BlockEvent, Device, Event, EventKind, FileId, FileStep, RequestFlags, RequestKind, TaskId,
};
use foldhash::{HashMap, HashMapExt as _};
use schemars::JsonSchema;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::hash_map::Entry;
use writes::Writes;

pub use files::TaskFiles;
pub use writes::TaskWrites;

/// Most pieces of 64 blocks of 4 KiB with reads: 64 GiB of a device.
const MAX_PIECES: usize = 1 << 18;
/// Most files with reads, and most pieces of 64 pages of them.
const MAX_FILES: usize = 4096;
/// Most files in the result: those with most reads.
const MAX_LISTED: usize = 16;
/// Most threads in the result: those with most bios.
const MAX_READERS: usize = 64;
/// Most threads of a file whose reads are followed; below: most pages of one read.
const MAX_THREADS: usize = 64;
const MAX_PAGES: u64 = 4096;
/// Size of the regions of a device in which a thread's reads are counted; below: most regions, and least reads of a region.
const REGION_BYTES: u64 = 256 << 10;
const MAX_REGIONS: usize = 1 << 16;
const MIN_REGION_READS: u32 = 4;
/// A fault within this many bytes behind the one before is sequential: twice the largest window in use.
const MAX_STEP: u64 = 4 << 20;

/// Reads of one device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DeviceUse {
    pub device: String,
    pub read_bytes: u64,
    /// Of these: blocks of 4 KiB that had been read before in the trace.
    pub read_again_bytes: u64,
}

/// Reads of one file by all programs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FileReads {
    pub device: String,
    pub inode: u64,
    pub reads: u64,
    /// Reads that began at the end of the thread's read before.
    pub sequential: u64,
    /// Reads that ended at the begin of the thread's read before.
    #[serde(skip)]
    pub backward: u64,
    pub bytes: u64,
    /// Bytes of pages that were read at least once.
    pub covered_bytes: u64,
    /// `None`: no event has it; the file is assumed to end with the last read.
    pub size: Option<u64>,
}

/// Faults of one mapped file that had to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileFaults {
    pub faults: u64,
    /// Of these: not within 4 MiB behind the thread's fault before.
    pub elsewhere: u64,
    /// From the lowest to the highest byte that a fault had to read.
    pub extent_bytes: u64,
    /// Cached pages that were mapped around faults: only these, and the faults' own pages, can have been used.
    pub mapped_bytes: u64,
}

/// Reads that one thread requested from one device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TaskReads {
    pub device: String,
    pub tid: TaskId,
    pub bios: u64,
    pub bytes: u64,
    /// Reads that began at the end of the one before.
    pub sequential: u64,
    /// Reads of the file system's metadata: directories, inodes, maps. They have the flag `M`, or read ahead into the cache of the device
    /// itself, as ext4 does with inode tables.
    pub metadata_bios: u64,
    pub metadata_bytes: u64,
    /// Of these: reads with the flag.
    pub flagged_bios: u64,
    /// Reads ahead of what the program asked for: the kernel keeps several under way.
    #[serde(skip)]
    pub ahead_bios: u64,
    /// Bytes that had not been read before in the trace.
    pub first_bytes: u64,
    /// Bytes of the regions of 256 KiB with four reads or more; `None`: there were too many regions.
    pub extent_bytes: Option<u64>,
    /// Reads within these regions.
    #[serde(skip)]
    pub extent_reads: u64,
    /// From the queueing of the first read to that of the last.
    pub active_ns: u64,
    /// Times between the queueing of a read and the one before: how many in `2^n .. 2^(n+1)` nanoseconds.
    pub gaps: Vec<u64>,
    /// Files of the device that the thread read, as far as they are followed; below: reads of the one that was read most.
    #[serde(skip)]
    pub files: u64,
    #[serde(skip)]
    pub most_of_file: u64,
}

impl TaskReads {
    /// Number of reads queued at least this long after the one before.
    pub fn apart(&self, ns: u64) -> u64 {
        self.gaps.iter().enumerate().filter(|(power, _)| 1u64 << power >= ns).map(|(_, n)| n).sum()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct UsageFound {
    /// Commits of ext4's journals, by the journal's thread.
    pub commits: BTreeMap<TaskId, u64>,
    pub devices: Vec<DeviceUse>,
    /// Most reads first.
    pub files: Vec<FileReads>,
    /// Writes to files by device of the file system, as far as the trace shows them.
    pub writes: BTreeMap<String, u64>,
    /// Faults of mapped files that had to read.
    pub faults: u64,
    /// Of these: not within 4 MiB behind the thread's fault before in this file.
    pub faults_elsewhere: u64,
    /// The same by file, as `DEVICE` and inode.
    #[serde(skip)]
    pub file_faults: BTreeMap<(String, u64), FileFaults>,
    /// Whether the trace shows which pages are mapped around a fault (`mm_filemap_map_pages`).
    #[serde(skip)]
    pub shows_mapped: bool,
    /// Requests of the I/O class idle, by the thread that inserted them into the scheduler.
    #[serde(skip)]
    pub idle_requests: BTreeMap<TaskId, u64>,
    /// Most bios first.
    pub readers: Vec<TaskReads>,
    /// Writers with most writes first; counted are synchronous writes and metadata.
    #[serde(skip)]
    pub writers: Vec<TaskWrites>,
    /// Threads that write into most files first.
    #[serde(skip)]
    pub written_files: Vec<TaskFiles>,
    /// By thread: bytes of pages that it made the kernel drop with `posix_fadvise()`.
    #[serde(skip)]
    pub dropped: BTreeMap<TaskId, u64>,
    /// The same for threads without an entry there.
    #[serde(skip)]
    pub dropped_further_bytes: u64,
    /// Bytes of all pages that left the page cache.
    #[serde(skip)]
    pub left_bytes: u64,
    /// Counts of what had no room in the tables of this analysis.
    pub not_followed: NotFollowed,
}

/// Counts of what was not followed. Findings are based on the rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct NotFollowed {
    /// Blocks of 4 KiB, or parts of them, whose first read was not kept: their later reads do not count as repeated.
    pub blocks: u64,
    /// Reads of further files, reads by further threads of a file, and pages of files that were not kept.
    pub file_reads: u64,
    /// Reads and writes of a device by further threads.
    pub reader_bios: u64,
    /// Faults of further threads or files: their order or extent was not kept.
    pub faults: u64,
}

impl UsageFound {
    /// Counters of what was left out to bound memory, zero counts included.
    pub fn losses(&self) -> Vec<LossCount> {
        let NotFollowed { blocks, file_reads, reader_bios, faults } = self.not_followed;
        [
            (
                "usage_blocks_not_followed",
                blocks,
                "blocks whose first read was not kept, because too many were read: findings do not see that they were read again",
            ),
            (
                "usage_file_reads_not_followed",
                file_reads,
                "reads and pages of files that findings leave out, because there were too many files, threads or pages",
            ),
            (
                "usage_reads_of_threads_not_followed",
                reader_bios,
                "bios and page cache events of threads that findings leave out, because there were too many threads",
            ),
            (
                "usage_faults_not_followed",
                faults,
                "faults whose order or place findings do not know, because there were too many threads or files",
            ),
        ]
        .map(|(name, count, meaning)| LossCount { name: name.to_owned(), count, meaning: meaning.to_owned() })
        .into()
    }

    pub fn program_wrote(&self, device: &str) -> bool {
        self.writes.get(device).is_some_and(|&writes| writes > 0)
    }
}

#[derive(Default)]
struct OfTask {
    bios: u64,
    bytes: u64,
    sequential: u64,
    metadata_bios: u64,
    metadata_bytes: u64,
    flagged_bios: u64,
    ahead_bios: u64,
    first_bytes: u64,
    /// A sector.
    last_end: u64,
    first_at: u64,
    last_at: u64,
    gaps: Vec<u64>,
}

impl OfTask {
    /// `is_own`: a read ahead by the file system for itself.
    fn read(&mut self, block: &BlockEvent, at: u64, again: u64, is_own: bool) {
        let end = block.sector.saturating_add(block.bytes.div_ceil(512));
        if self.bios == 0 {
            self.first_at = at;
        } else {
            self.sequential += u64::from(block.sector == self.last_end);
            let power = at.saturating_sub(self.last_at).max(1).ilog2() as usize;
            self.gaps.resize(self.gaps.len().max(power + 1), 0);
            self.gaps[power] += 1;
        }
        self.bios += 1;
        self.bytes = self.bytes.saturating_add(block.bytes);
        let is_ahead = block.flags.has(RequestFlags::AHEAD);
        self.ahead_bios += u64::from(is_ahead);
        let ahead = is_ahead && is_own;
        let flagged = block.flags.has(RequestFlags::META);
        self.flagged_bios += u64::from(flagged);
        if flagged || ahead {
            self.metadata_bios += 1;
            self.metadata_bytes = self.metadata_bytes.saturating_add(block.bytes);
        }
        self.first_bytes = self.first_bytes.saturating_add(block.bytes.saturating_sub(again));
        (self.last_end, self.last_at) = (end, at);
    }
}

#[derive(Default)]
struct OfFile {
    reads: u64,
    sequential: u64,
    backward: u64,
    bytes: u64,
    size: Option<u64>,
    end: u64,
    /// Begin and end of each thread's last read.
    last: HashMap<TaskId, (u64, u64)>,
    covered: HashMap<u64, u64>,
    /// Bytes covered in recordings before.
    covered_before: u64,
}

impl OfFile {
    fn covered_bytes(&self) -> u64 {
        let bits = self.covered.values().map(|bits| u64::from(bits.count_ones()) * BLOCK_BYTES);
        bits.fold(self.covered_before, u64::saturating_add)
    }

    /// No read of another recording follows these.
    fn recording_ends(&mut self) {
        self.covered_before = self.covered_bytes();
        self.covered.clear();
        self.last.values_mut().for_each(|last| *last = (u64::MAX, u64::MAX));
    }
}

/// Faults of one file.
#[derive(Clone, Copy)]
struct OfFaults {
    faults: u64,
    elsewhere: u64,
    /// The lowest and the highest offset of a fault.
    low: u64,
    high: u64,
    mapped: u64,
}

/// Folds the events that are shown.
pub struct Usage {
    commits: BTreeMap<TaskId, u64>,
    devices: BTreeMap<Device, (u64, u64)>,
    before: ReadBefore,
    files: HashMap<FileId, OfFile>,
    covered: usize,
    writes: BTreeMap<Device, u64>,
    faults: u64,
    faults_elsewhere: u64,
    /// Place of a thread's last fault in a file.
    fault_ends: BoundedMap<(TaskId, FileId), u64>,
    /// By thread: the inode of the page that it added to the page cache last.
    cached: BoundedMap<TaskId, u64>,
    /// The trace has page-cache events of files only, not of the device's own cache.
    of_files_alone: bool,
    /// By thread, in such a trace: bytes of pages that it added to the page cache and that no bio has read yet.
    unread: BoundedMap<TaskId, u64>,
    file_faults: BoundedMap<FileId, OfFaults>,
    shows_mapped: bool,
    idle_requests: BoundedMap<TaskId, u64>,
    /// By thread and device. At most [`MAX_FILES`].
    readers: HashMap<(TaskId, Device), OfTask>,
    /// Reads by thread, device and region; beyond [`MAX_REGIONS`] none are kept.
    regions: HashMap<(TaskId, Device, u64), u32>,
    further_regions: bool,
    task_writes: Writes,
    written_files: WrittenFiles,
    drops: Drops,
    not_followed: NotFollowed,
    limits: Limits,
}

/// Limits of memory.
#[derive(Clone, Copy)]
struct Limits {
    pieces: usize,
    files: usize,
    /// Threads of a file whose reads are followed.
    threads: usize,
}

impl Default for Usage {
    fn default() -> Usage {
        Usage::within(Limits { pieces: MAX_PIECES, files: MAX_FILES, threads: MAX_THREADS })
    }
}

impl Usage {
    /// For a recording of one device with page-cache events: it has the pages of files on it, and none of the device's own cache.
    pub fn of_files_alone(mut self, is_so: bool) -> Usage {
        self.of_files_alone = is_so;
        self
    }

    fn within(limits: Limits) -> Usage {
        Usage {
            commits: BTreeMap::new(),
            devices: BTreeMap::new(),
            before: ReadBefore::new(limits.pieces),
            files: HashMap::new(),
            covered: 0,
            writes: BTreeMap::new(),
            faults: 0,
            faults_elsewhere: 0,
            fault_ends: BoundedMap::new(limits.files, Full::Refuse),
            cached: BoundedMap::new(limits.files, Full::Refuse),
            of_files_alone: false,
            unread: BoundedMap::new(limits.files, Full::Refuse),
            file_faults: BoundedMap::new(limits.files, Full::Refuse),
            shows_mapped: false,
            idle_requests: BoundedMap::new(limits.files, Full::Refuse),
            readers: HashMap::new(),
            regions: HashMap::new(),
            further_regions: false,
            task_writes: Writes::default(),
            written_files: WrittenFiles::default(),
            drops: Drops::default(),
            not_followed: NotFollowed::default(),
            limits,
        }
    }

    fn read(&mut self, block: &BlockEvent, tid: TaskId, at: u64) {
        let again = self.before.read(block.device, block.sector, block.bytes);
        let sums = self.devices.entry(block.device).or_default();
        (sums.0, sums.1) = (sums.0.saturating_add(block.bytes), sums.1.saturating_add(again));
        let full = self.readers.len() >= self.limits.files;
        // block/bdev.c: the inode number of a device's own page cache is its number. A recording of one device has only the pages of files
        // on it: a read without any is the file system's own.
        let cached = self.cached.get(&tid).copied();
        let is_own = cached == Some(u64::from(block.device.0))
            || self.of_files_alone && self.unread.get(&tid).is_none_or(|&bytes| bytes == 0);
        if self.of_files_alone
            && let Some(bytes) = self.unread.get_mut(&tid)
        {
            *bytes = bytes.saturating_sub(block.bytes);
        }
        match self.readers.entry((tid, block.device)) {
            Entry::Occupied(of) => of.into_mut().read(block, at, again, is_own),
            Entry::Vacant(_) if full => self.not_followed.reader_bios += 1,
            Entry::Vacant(new) => new.insert(OfTask::default()).read(block, at, again, is_own),
        }
        if self.further_regions {
            return;
        }
        let full = self.regions.len() >= MAX_REGIONS;
        match self.regions.entry((tid, block.device, block.sector.saturating_mul(512) / REGION_BYTES)) {
            Entry::Occupied(mut reads) => *reads.get_mut() = reads.get().saturating_add(1),
            Entry::Vacant(_) if full => {
                // The total size of the regions is unknown then.
                (self.further_regions, self.regions) = (true, HashMap::new());
            }
            Entry::Vacant(new) => drop(new.insert(1)),
        }
    }

    fn read_file(&mut self, file: &flashscope_trace::FileEvent, tid: TaskId) {
        let (key, bytes) = (file.file(), file.bytes_read());
        if file.device.is_none() || bytes == 0 {
            return;
        }
        if self.files.len() >= self.limits.files && !self.files.contains_key(&key) {
            self.not_followed.file_reads += 1;
            return;
        }
        let of = self.files.entry(key).or_default();
        of.reads += 1;
        of.bytes = of.bytes.saturating_add(bytes);
        let end = file.offset.saturating_add(bytes);
        of.end = of.end.max(end);
        of.size = of.size.max(file.size);
        if of.last.len() < self.limits.threads || of.last.contains_key(&tid) {
            let before = of.last.insert(tid, (file.offset, end));
            of.sequential += u64::from(before.is_some_and(|(_, its_end)| its_end == file.offset));
            of.backward += u64::from(before.is_some_and(|(its_begin, _)| its_begin == end));
        } else {
            self.not_followed.file_reads += 1;
        }
        let (first, last) = (file.offset / BLOCK_BYTES, end.div_ceil(BLOCK_BYTES));
        let most = last.min(first.saturating_add(MAX_PAGES));
        self.not_followed.file_reads = self.not_followed.file_reads.saturating_add(last - most);
        let mut page = first;
        while page < most {
            let pages = (most - page).min(PIECE - page % PIECE);
            match of.covered.get_mut(&(page / PIECE)) {
                Some(piece) => *piece |= bits(page, pages),
                None if self.covered < self.limits.pieces => {
                    self.covered += 1;
                    of.covered.insert(page / PIECE, bits(page, pages));
                }
                None => self.not_followed.file_reads += pages,
            }
            page += pages;
        }
    }
}

impl Usage {
    fn fault(&mut self, file: &flashscope_trace::FileEvent, tid: TaskId) {
        self.faults += 1;
        let before = self.fault_ends.get(&(tid, file.file())).copied();
        let follows = before.is_some_and(|end| (end..=end.saturating_add(MAX_STEP)).contains(&file.offset));
        self.faults_elsewhere += u64::from(!follows);
        self.fault_ends.insert((tid, file.file()), file.offset);
        if file.device.is_none() {
            return;
        }
        let first = || OfFaults { faults: 0, elsewhere: 0, low: file.offset, high: file.offset, mapped: 0 };
        if let Some(of) = self.file_faults.entry(file.file(), first) {
            of.faults += 1;
            of.elsewhere += u64::from(!follows);
            (of.low, of.high) = (of.low.min(file.offset), of.high.max(file.offset));
        }
    }
}

impl Usage {
    /// By thread and device: number of files that it read, and the most reads of one of them. Files of btrfs and overlays name a device
    /// without a disk (major number 0), and stand for the device that the thread reads.
    fn files_by_thread(&self) -> HashMap<(TaskId, Device), (u64, u64)> {
        let mut by: HashMap<(TaskId, Device), (u64, u64)> = HashMap::new();
        for (file, of) in &self.files {
            let Some(device) = file.device else { continue };
            for &tid in of.last.keys() {
                let sums = by.entry((tid, device)).or_default();
                *sums = (sums.0 + 1, sums.1.max(of.reads));
            }
        }
        let without_disk: Vec<_> = by.iter().filter(|((_, of), _)| of.major() == 0).map(|(of, n)| (of.0, *n)).collect();
        for (tid, files) in without_disk {
            for &(_, device) in self.readers.keys().filter(|(reader, _)| *reader == tid) {
                by.entry((tid, device)).or_insert(files);
            }
        }
        by
    }
}

impl Usage {
    /// Nothing is counted before the first fault of a file that had to read: its pages came in otherwise.
    fn mapped(&mut self, file: &flashscope_trace::FileEvent) {
        self.shows_mapped = true;
        if let Some(of) = self.file_faults.get_mut(&file.file()) {
            of.mapped = of.mapped.saturating_add(file.bytes);
        }
    }
}

impl Usage {
    /// Another recording begins: its order and its cache are its own.
    fn recording_ends(&mut self) {
        self.before.recording_ends();
        self.files.values_mut().for_each(OfFile::recording_ends);
        self.covered = 0;
        self.fault_ends.clear();
        self.cached.clear();
        self.unread.clear();
        self.readers.values_mut().for_each(|of| of.last_end = u64::MAX);
        self.drops.recording_ends();
    }
}

impl Analysis for Usage {
    type Output = UsageFound;

    fn event(&mut self, event: &Event) {
        match &event.kind {
            EventKind::Other { name, .. } if name == "jbd2_start_commit" => {
                *self.commits.entry(event.tid).or_default() += 1;
            }
            EventKind::Other { name, .. } => self.drops.other(name, event.tid),
            EventKind::Recording => self.recording_ends(),
            EventKind::Block(block)
                if block.action == BlockAction::Queue && block.flags.kind() == RequestKind::Read =>
            {
                self.read(block, event.tid, event.time.0);
            }
            EventKind::Block(block) if block.action == BlockAction::Queue => {
                self.task_writes.queued(block, event.tid, event.time.0);
            }
            EventKind::Block(block) if block.action == BlockAction::Insert && block.flags.has(RequestFlags::IDLE) => {
                if let Some(requests) = self.idle_requests.entry(event.tid, || 0) {
                    *requests += 1;
                }
            }
            EventKind::File(file) => match file.step {
                FileStep::Read => self.read_file(file, event.tid),
                FileStep::Fault => self.fault(file, event.tid),
                FileStep::Mapped => self.mapped(file),
                FileStep::Cached => {
                    self.cached.insert(event.tid, file.inode);
                    if self.of_files_alone
                        && let Some(bytes) = self.unread.entry(event.tid, || 0)
                    {
                        *bytes = bytes.saturating_add(file.bytes);
                    }
                }
                FileStep::Uncached => self.drops.left(event.tid, file.bytes),
                FileStep::Dirtied => self.written_files.dirtied(file, event.tid),
                FileStep::Write | FileStep::WriteBegin => {
                    if let Some(device) = file.device {
                        *self.writes.entry(device).or_default() += 1;
                    }
                }
                _ => {}
            },
            _ => {}
        }
    }

    fn finish(self) -> UsageFound {
        let read_by = self.files_by_thread();
        let mut files: Vec<FileReads> = self
            .files
            .into_iter()
            .filter_map(|(file, of)| Some((file.device?, file.inode, of)))
            .map(|(device, inode, of)| FileReads {
                device: device.to_string(),
                inode,
                reads: of.reads,
                sequential: of.sequential,
                backward: of.backward,
                bytes: of.bytes,
                covered_bytes: of.covered_bytes(),
                size: of.size.filter(|&size| size > 0).or(Some(of.end)),
            })
            .collect();
        files.sort_by_key(|file| (Reverse(file.reads), file.inode));
        files.truncate(MAX_LISTED);
        let device = |(device, (read_bytes, read_again_bytes)): (Device, (u64, u64))| DeviceUse {
            device: device.to_string(),
            read_bytes,
            read_again_bytes,
        };
        // By thread and device: number of regions, and of reads in them.
        let mut often: HashMap<(TaskId, Device), (u64, u64)> = HashMap::new();
        for (&(tid, device, _), &reads) in self.regions.iter().filter(|(_, reads)| **reads >= MIN_REGION_READS) {
            let sums = often.entry((tid, device)).or_default();
            *sums = (sums.0 + 1, sums.1 + u64::from(reads));
        }
        let often = |of: &(TaskId, Device)| often.get(of).copied().unwrap_or_default();
        let extent = |of: &(TaskId, Device)| (!self.further_regions).then(|| often(of).0 * REGION_BYTES);
        let mut readers: Vec<(&(TaskId, Device), &OfTask)> = self.readers.iter().collect();
        readers.sort_by_key(|(of, reads)| (Reverse(reads.bios), **of));
        readers.truncate(MAX_READERS);
        let reader = |(key, of): (&(TaskId, Device), &OfTask)| TaskReads {
            device: key.1.to_string(),
            tid: key.0,
            bios: of.bios,
            bytes: of.bytes,
            sequential: of.sequential,
            metadata_bios: of.metadata_bios,
            metadata_bytes: of.metadata_bytes,
            flagged_bios: of.flagged_bios,
            ahead_bios: of.ahead_bios,
            first_bytes: of.first_bytes,
            extent_bytes: extent(key),
            extent_reads: often(key).1,
            active_ns: of.last_at.saturating_sub(of.first_at),
            gaps: of.gaps.clone(),
            files: read_by.get(key).map_or(0, |files| files.0),
            most_of_file: read_by.get(key).map_or(0, |files| files.1),
        };
        let readers = readers.into_iter().map(reader).collect();
        let mut not_followed = self.not_followed;
        not_followed.blocks = self.before.not_followed;
        not_followed.reader_bios += self.cached.lost() + self.idle_requests.lost() + self.task_writes.lost();
        not_followed.faults = self.fault_ends.lost().max(self.file_faults.lost());
        let Dropped { by_thread, further_bytes, left_bytes } = self.drops.finish();
        UsageFound {
            dropped: by_thread,
            dropped_further_bytes: further_bytes,
            left_bytes,
            not_followed,
            commits: self.commits,
            devices: self.devices.into_iter().map(device).collect(),
            files,
            writes: self.writes.into_iter().map(|(device, n)| (device.to_string(), n)).collect(),
            faults: self.faults,
            faults_elsewhere: self.faults_elsewhere,
            file_faults: self
                .file_faults
                .iter()
                .filter_map(|(file, &OfFaults { faults, elsewhere, low, high, mapped })| {
                    let of = FileFaults { faults, elsewhere, extent_bytes: high - low, mapped_bytes: mapped };
                    Some(((file.device?.to_string(), file.inode), of))
                })
                .collect(),
            shows_mapped: self.shows_mapped,
            idle_requests: self.idle_requests.iter().map(|(&tid, &requests)| (tid, requests)).collect(),
            readers,
            writers: self.task_writes.finish(),
            written_files: self.written_files.finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{block, event, file};
    use flashscope_trace::{FileEvent, RequestFlags};

    const DISK: Device = Device(8 << 20);

    fn bio(sector: u64, bytes: u64) -> EventKind {
        EventKind::Block(block(BlockAction::Queue, DISK, "R", sector, bytes))
    }

    #[test]
    fn faults_in_order_and_elsewhere() {
        let mut usage = Usage::default();
        // The first of a file is nowhere in order; then 2 MiB further, back, and in another file.
        for (inode, offset) in [(12, 0), (12, 2 << 20), (12, 1 << 20), (13, 3 << 20)] {
            usage.event(&event(1, 7, EventKind::File(file(FileStep::Fault, Some(DISK), inode, offset, 0))));
        }
        let found = usage.finish();
        assert_eq!((found.faults, found.faults_elsewhere), (4, 3));
        let of = |faults, elsewhere, extent_bytes| FileFaults { faults, elsewhere, extent_bytes, mapped_bytes: 0 };
        assert_eq!(found.file_faults.into_values().collect::<Vec<_>>(), [of(3, 2, 2 << 20), of(1, 1, 0)]);
    }

    #[test]
    fn what_is_read_again_is_counted_by_block() {
        let mut usage = Usage::default();
        for (sector, bytes) in [(0, 8192), (8, 8192), (1 << 20, 4096)] {
            usage.event(&event(1, 7, bio(sector, bytes)));
        }
        let found = usage.finish();
        assert_eq!((found.devices[0].read_bytes, found.devices[0].read_again_bytes), (20_480, 4096));
    }

    #[test]
    fn requests_of_the_class_idle_are_counted_for_their_thread() {
        let mut usage = Usage::default();
        let idle = RequestFlags(RequestFlags::READ.0 | RequestFlags::IDLE.0);
        let insert = BlockAction::Insert;
        for (tid, action, flags) in
            [(7, insert, idle), (7, BlockAction::Issue, idle), (7, insert, RequestFlags::READ), (8, insert, idle)]
        {
            let request = BlockEvent { flags, ..block(action, DISK, "R", 0, 4096) };
            usage.event(&event(1, tid, EventKind::Block(request)));
        }
        assert_eq!(usage.finish().idle_requests.into_iter().collect::<Vec<_>>(), [(TaskId(7), 1), (TaskId(8), 1)]);
    }

    #[test]
    fn what_has_no_room_is_counted() {
        let mut usage = Usage::within(Limits { pieces: 2, files: 2, threads: 1 });
        let page = |step, inode, offset| EventKind::File(file(step, Some(DISK), inode, offset, 4096));
        // Three pieces of 64 blocks, and a block of a fourth in part, twice: two are kept, and one part.
        [(0, 4096), (512, 4096), (1024, 8192), (1537, 512), (2049, 512), (2561, 512)]
            .into_iter()
            .for_each(|(sector, bytes)| usage.event(&event(1, 7, bio(sector, bytes))));
        usage.event(&event(1, 8, bio(0, 4096)));
        usage.event(&event(1, 9, bio(0, 4096)));
        assert_eq!((usage.before.not_followed, usage.not_followed.reader_bios), (3, 1));
        // Of the third file nothing, of the second the second thread's order, and its page in a third piece.
        for (tid, inode, offset) in [(7, 1, 0), (7, 2, 0), (8, 2, 64 << 12), (7, 3, 0)] {
            usage.event(&event(2, tid, page(FileStep::Read, inode, offset)));
        }
        assert_eq!(usage.not_followed.file_reads, 3);
        (1..=4).for_each(|inode| usage.event(&event(3, 7, page(FileStep::Fault, inode, 0))));
        (7..=9).for_each(|tid| usage.event(&event(3, tid, page(FileStep::Cached, 1, 0))));
        let found = usage.finish();
        assert_eq!(found.losses().iter().map(|loss| loss.count).collect::<Vec<_>>(), [3, 3, 2, 2]);
        assert_eq!(found.devices[0].read_again_bytes, 8192);
    }

    #[test]
    fn how_a_thread_reads_a_device() {
        let mut usage = Usage::default();
        for (at, tid, sector) in [(1_000, 7, 400), (2_000, 7, 408), (2_100, 8, 0), (600_000, 7, 80), (602_500, 7, 80)] {
            usage.event(&event(at, tid, bio(sector, 4096)));
        }
        let found = usage.finish();
        let reader = &found.readers[0];
        assert_eq!((reader.tid.0, reader.bios, reader.bytes, reader.sequential), (7, 4, 16_384, 1));
        // The last was read before; four lie in the same 256 KiB, and a single one elsewhere is no region.
        assert_eq!((reader.first_bytes, reader.extent_bytes, reader.active_ns), (12_288, Some(256 << 10), 601_500));
        assert_eq!((reader.extent_reads, found.readers[1].extent_reads), (4, 0));
        assert_eq!(found.readers[1].extent_bytes, Some(0));
        // Behind one another by 1, 598 and 2.5 µs, whose powers of two are 512, 524,288 and 2,048 ns.
        assert_eq!([1, 513, 2_048, 524_288, 524_289].map(|ns| reader.apart(ns)), [3, 2, 2, 1, 0]);
        assert_eq!(found.readers[1].bios, 1);
    }

    /// Files of btrfs name a device without a disk.
    #[test]
    fn files_that_a_thread_reads_are_counted() {
        for device in [DISK, Device::new(0, 44)] {
            let mut usage = Usage::default();
            usage.event(&event(1, 7, bio(0, 4096)));
            usage.event(&event(1, 8, bio(8, 4096)));
            for inode in [12, 13, 13, 14] {
                usage.event(&event(2, 7, EventKind::File(file(FileStep::Read, Some(device), inode, 0, 4096))));
            }
            let readers = usage.finish().readers;
            assert_eq!([(3, 2), (0, 0)], [0, 1].map(|i| (readers[i].files, readers[i].most_of_file)), "{device}");
        }
    }

    #[test]
    fn reads_of_a_file_systems_own_data_are_counted() {
        let mut usage = Usage::default();
        let device = Device::new(7, 0);
        let mut step = |at, kind| usage.event(&event(at, 1, kind));
        let cached = |inode| EventKind::File(file(FileStep::Cached, Some(Device::new(0, 3)), inode, 0, 4096));
        let read = |letters, sector| EventKind::Block(block(BlockAction::Queue, device, letters, sector, 4096));
        step(1, read("RM", 0));
        // A table of inodes, read ahead into the device's cache; then data of a file.
        step(2, cached(u64::from(device.0)));
        step(3, read("RA", 8));
        step(4, read("R", 16));
        step(5, cached(12));
        step(6, read("RA", 24));
        let found = usage.finish();
        let reader = &found.readers[0];
        assert_eq!((reader.bios, reader.flagged_bios, reader.metadata_bios, reader.metadata_bytes), (4, 1, 2, 8192));
        assert_eq!(reader.ahead_bios, 2);
    }

    /// A recording of one device has no event of the device's own cache.
    #[test]
    fn what_is_read_ahead_without_a_page_of_a_file_is_the_file_systems_own() {
        let of = |of_files_alone| {
            let mut usage = Usage::default().of_files_alone(of_files_alone);
            let device = Device::new(7, 0);
            let mut step = |at, kind| usage.event(&event(at, 1, kind));
            let read =
                |letters, sector, bytes| EventKind::Block(block(BlockAction::Queue, device, letters, sector, bytes));
            step(1, read("RM", 0, 4096));
            step(2, read("RA", 8, 4096));
            // 16 KiB of a file, in two bios; then a table of inodes.
            step(3, EventKind::File(file(FileStep::Cached, Some(device), 12, 0, 16_384)));
            step(4, read("RA", 16, 8192));
            step(5, read("RA", 80, 8192));
            step(6, read("RA", 160, 4096));
            let reader = usage.finish().readers.remove(0);
            (reader.bios, reader.flagged_bios, reader.metadata_bios)
        };
        assert_eq!((of(true), of(false)), ((5, 1, 3), (5, 1, 1)));
    }

    /// dd of a file of 10,000 bytes: its last read meets the end, and gets nothing.
    #[test]
    fn what_lies_beyond_a_files_end_is_not_read() {
        let mut usage = Usage::default();
        for offset in [0, 8192, 10_000] {
            let read = FileEvent { size: Some(10_000), ..file(FileStep::Read, Some(DISK), 12, offset, 8192) };
            usage.event(&event(1, 7, EventKind::File(read)));
        }
        let file = usage.finish().files.remove(0);
        assert_eq!((file.reads, file.sequential, file.bytes, file.covered_bytes), (2, 1, 10_000, 12_288));
    }

    #[test]
    fn order_and_cover_of_a_file() {
        let mut usage = Usage::default();
        for offset in [0, 4096, 40_960, 36_864] {
            let read = FileEvent { size: Some(65_536), ..file(FileStep::Read, Some(DISK), 12, offset, 4096) };
            usage.event(&event(1, 7, EventKind::File(read)));
        }
        let file = usage.finish().files.remove(0);
        assert_eq!((file.reads, file.sequential, file.backward), (4, 1, 1));
        assert_eq!((file.covered_bytes, file.size), (16_384, Some(65_536)));
    }
}
