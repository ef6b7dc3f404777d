//! Accuracy of read-ahead, page by page: the pages that it brought in, and how many of them were used. Input: page-cache events.
//!
//! A page that enters the cache while a task reads it (or faults on it) was requested. Any other page was read ahead. A page counts
//! as used when a later read or fault touches it before it leaves the cache. Folios count with all their pages. `bcc`'s `readahead`
//! (libbpf-tools/readahead.bpf.c) counts differently: allocations within `do_page_cache_ra`, until the first `folio_mark_accessed` of
//! the same address. There a large folio counts as one, whatever its size, or not at all (`page_cache_ra_order` allocates it outside of
//! that function); the request's own pages count as read-ahead; an evicted page stays unused until its frame holds another page.
//! Where the trace has calls (`--events …,syscall`), a request ends with its call. Else it lasts until the task's next one, and
//! its pages that `readahead()` brings back in between count as requested.
//!
//! Where no event shows writes, a page that a task brings in and makes dirty next belongs to the write. Where no event shows dirty pages
//! either, a page is known to be read ahead only in three cases: it comes with the page that a read requested, a bio reads it behind
//! such a page, or it comes in a call that writes nothing. Any other is [`Brought::origin_unknown`]. Pages behind the last read of a
//! task that still runs at the end are [`Brought::ahead_awaited`]: unused so far, and not wasted.
//!
//! Limitation: a trace does not show the touches of a mapping's pages. A touch first maps the cached pages around it (`do_read_fault`,
//! mm/memory.c). Only a touch whose own page is missing or marked for read-ahead goes on to `filemap_fault`, which has an event. So any
//! page of a mapped file may be touched without an event. Such pages are [`Brought::mapped`], neither used nor unused. A file is known
//! to be mapped from its first fault on.
//!
//! Lateness of a used page is known where the trace has the block device's events: it is late if its bio is still in flight when the
//! read or fault of that page begins. On MTD the reader reads its pages itself, and none can be late.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use flashscope_cachesim::PAGE_BYTES;
use flashscope_trace::{
    BlockAction, BlockEvent, CacheShown, Device, Event, EventKind, FileEvent, FileId, FileStep, TaskId,
};

use super::brought::{AccuracyFindings, Brought, FileBrought, TaskBrought};
use super::in_flight::{InFlight, is_read};
use crate::Analysis;
use crate::bounded::{BoundedMap, Full, Ranges};
use crate::calls::{is_copy, syncs_or_renames};

/// Most runs of pages of one kind; beyond, the oldest are forgotten. Below: most files and tasks with a count of their own.
const MAX_RUNS: usize = 1 << 18;
const MAX_NAMED: usize = 1 << 14;
/// Stands for all files without a count of their own.
const NO_FILE: FileId = FileId { device: None, inode: 0 };

/// Pages of one file that a task requests.
#[derive(Clone, Copy)]
struct Asked {
    file: FileId,
    first: u64,
    /// The page behind the last.
    end: u64,
}

/// The requests of a task: a read's buffer may lie in a mapping, so that a fault comes within the read.
#[derive(Clone, Copy, Default)]
struct Asking {
    read: Option<Asked>,
    fault: Option<Asked>,
}

impl Asking {
    fn is_for(&self, file: FileId, page: u64) -> bool {
        let holds = |asked: Asked| asked.file == file && (asked.first..asked.end).contains(&page);
        self.read.is_some_and(holds) || self.fault.is_some_and(holds)
    }

    fn is_of(&self, file: FileId) -> bool {
        [self.read, self.fault].into_iter().flatten().any(|asked| asked.file == file)
    }

    /// Cuts a range of pages into pieces, each with whether it was requested.
    fn pieces(&self, file: FileId, pages: Range<u64>) -> impl Iterator<Item = (Range<u64>, bool)> {
        let asked = [self.read, self.fault].into_iter().flatten().filter(|asked| asked.file == file);
        let ends = asked.flat_map(|asked| [asked.first, asked.end]).filter(|at| pages.contains(at));
        let mut cuts: Vec<u64> = ends.chain([pages.start, pages.end]).collect();
        cuts.sort_unstable();
        cuts.dedup();
        let pieces: Vec<_> = cuts.windows(2).map(|two| (two[0]..two[1], self.is_for(file, two[0]))).collect();
        pieces.into_iter()
    }
}

#[derive(Clone, Copy, PartialEq)]
struct Page {
    /// The task that brought it in.
    tid: TaskId,
    ahead: bool,
    used: bool,
    /// It is known that no write brought it in.
    sure: bool,
}

/// The kind of call that a task is in.
#[derive(Clone, Copy, PartialEq)]
enum InCall {
    Writes,
    /// It may read one file and write another, or its name is not in the trace.
    MayWrite,
    Other,
}

impl InCall {
    fn of(call: &str) -> InCall {
        match call {
            // Pages added in a write belong to the write, also where no event of the file system shows it.
            _ if call.starts_with("write") || call.starts_with("pwrite") => InCall::Writes,
            "" | "sendfile" | "sendfile64" | "splice" | "io_uring_enter" | "io_submit" | "truncate" | "truncate64"
            | "ftruncate" | "ftruncate64" | "fallocate" => InCall::MayWrite,
            _ if is_copy(call) => InCall::MayWrite,
            _ => InCall::Other,
        }
    }
}

/// The known use of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    Used,
    Unused,
    /// Its file is mapped.
    Unknown,
}

/// A cached page, as far as followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageThere {
    pub device: Option<Device>,
    pub inode: u64,
    pub page: u64,
    pub ahead: bool,
    pub used: Use,
}

#[derive(Default)]
struct File {
    brought: Brought,
    mapped: bool,
}

/// Follows the pages of a trace.
pub struct Accuracy {
    pages: Ranges<FileId, Page>,
    /// Each task's last request.
    asking: BoundedMap<TaskId, Asking>,
    writing: BoundedMap<TaskId, FileId>,
    /// The pages that a task brought in last without a request, in order and without a bio since: they belong to a write if they become
    /// dirty next.
    brought_last: BoundedMap<TaskId, (FileId, Range<u64>)>,
    /// The end of the pages that came with a task's requested pages.
    came_with: BoundedMap<TaskId, (FileId, u64)>,
    /// The last read of each task that has not ended.
    reading: BoundedMap<TaskId, Asked>,
    in_flight: InFlight<()>,
    /// A bio held pages of the cache; below: a read ended.
    sees_device: bool,
    sees_ends: bool,
    files: BTreeMap<FileId, File>,
    tasks: BTreeMap<TaskId, Brought>,
    /// Tasks in a call, where the trace has calls.
    in_call: BoundedMap<TaskId, InCall>,
    sees_calls: bool,
    file_systems_own: u64,
    not_followed: u64,
    folded: bool,
    shown: CacheShown,
}

impl Default for Accuracy {
    fn default() -> Accuracy {
        Accuracy::new()
    }
}

impl Accuracy {
    /// For a trace with all events that the figures need.
    pub fn new() -> Accuracy {
        Accuracy::of(CacheShown::ALL)
    }

    /// For a trace that shows only these events.
    pub fn of(shown: CacheShown) -> Accuracy {
        Accuracy {
            pages: Ranges::new(MAX_RUNS, Full::ForgetOldest),
            asking: BoundedMap::new(MAX_NAMED, Full::ForgetOldest),
            writing: BoundedMap::new(MAX_NAMED, Full::ForgetOldest),
            brought_last: BoundedMap::new(MAX_NAMED, Full::ForgetOldest),
            came_with: BoundedMap::new(MAX_NAMED, Full::ForgetOldest),
            reading: BoundedMap::new(MAX_NAMED, Full::ForgetOldest),
            in_flight: InFlight::default(),
            sees_device: false,
            sees_ends: false,
            files: BTreeMap::new(),
            tasks: BTreeMap::new(),
            in_call: BoundedMap::new(MAX_NAMED, Full::ForgetOldest),
            sees_calls: false,
            file_systems_own: 0,
            not_followed: 0,
            folded: false,
            shown,
        }
    }

    /// The pages that are cached now, in no order.
    pub fn pages(&self) -> impl Iterator<Item = PageThere> + '_ {
        self.pages.iter().flat_map(|(key, pages, known)| {
            let used = self.use_of(key, &known);
            pages.map(move |page| PageThere { device: key.device, inode: key.inode, page, ahead: known.ahead, used })
        })
    }

    fn use_of(&self, key: FileId, page: &Page) -> Use {
        let is_mapped = || self.files.get(&self.named(key)).is_some_and(|file| file.mapped);
        match page.used {
            true => Use::Used,
            false if !self.shown.faults || is_mapped() => Use::Unknown,
            false => Use::Unused,
        }
    }

    /// The file's key in the counts.
    fn named(&self, key: FileId) -> FileId {
        if self.files.len() < MAX_NAMED || self.files.contains_key(&key) { key } else { NO_FILE }
    }

    fn counts(&mut self, key: FileId, tid: TaskId) -> [&mut Brought; 2] {
        let key = self.named(key);
        let tid = if self.tasks.len() < MAX_NAMED || self.tasks.contains_key(&tid) { tid } else { TaskId(0) };
        self.folded |= key == NO_FILE;
        [&mut self.files.entry(key).or_default().brought, self.tasks.entry(tid).or_default()]
    }

    /// A task begins to request pages: of a read, or the page of a fault.
    fn ask(&mut self, tid: TaskId, change: impl FnOnce(&mut Asking)) {
        self.writing.remove(&tid);
        self.brought_last.remove(&tid);
        self.came_with.remove(&tid);
        self.in_flight.forget_pending(tid);
        if let Some(asking) = self.asking.entry(tid, Asking::default) {
            change(asking);
        }
    }

    /// Changes the state of a file's pages. Pages without room are in no count from then on.
    fn update(
        &mut self,
        key: FileId,
        pages: Range<u64>,
        mut change: impl FnMut(Range<u64>, Option<Page>) -> Option<Page>,
    ) {
        let mut forgotten: Vec<(FileId, Page, u64)> = Vec::new();
        let end = pages.end;
        let reached = self.pages.update(key, pages, &mut change, |of, run, page| {
            forgotten.push((of, page, run.end - run.start));
        });
        self.not_followed = self.not_followed.saturating_add(end - reached);
        for (key, page, count) in forgotten.into_iter().filter(|(_, page, _)| page.ahead && page.sure && !page.used) {
            self.not_followed = self.not_followed.saturating_add(count);
            for brought in self.counts(key, page.tid) {
                brought.ahead = brought.ahead.saturating_sub(count);
            }
        }
    }

    fn touch(&mut self, key: FileId, pages: Range<u64>) {
        let mut touched: Vec<(TaskId, Range<u64>)> = Vec::new();
        self.update(key, pages, |run, there| {
            there.map(|page| {
                if page.ahead && page.sure && !page.used {
                    touched.push((page.tid, run));
                }
                Page { used: true, ..page }
            })
        });
        for (tid, run) in touched {
            let (count, late) = (run.end - run.start, self.in_flight.coming_of(key, run));
            for brought in self.counts(key, tid) {
                brought.ahead_used = brought.ahead_used.saturating_add(count);
                *brought.ahead_late.get_or_insert(0) += late;
            }
        }
    }

    /// It is known now that no write brought these pages in.
    fn confirm(&mut self, key: FileId, pages: Range<u64>) {
        let mut known: Vec<(Page, u64)> = Vec::new();
        self.update(key, pages, |run, there| {
            there.map(|page| {
                if page.ahead && !page.sure {
                    known.push((page, run.end - run.start));
                }
                Page { sure: true, ..page }
            })
        });
        for (page, count) in known {
            for brought in self.counts(key, page.tid) {
                brought.ahead = brought.ahead.saturating_add(count);
                brought.ahead_used = brought.ahead_used.saturating_add(if page.used { count } else { 0 });
            }
        }
    }

    fn file(&mut self, tid: TaskId, event: &FileEvent) {
        let key = event.file();
        let first = event.offset / PAGE_BYTES;
        let end = event.offset.saturating_add(event.bytes).div_ceil(PAGE_BYTES);
        let pages = first..end.max(first);
        match event.step {
            FileStep::Read => {
                let asked = Asked { file: key, first, end };
                self.reading.insert(tid, asked);
                self.ask(tid, |asking| *asking = Asking { read: Some(asked), fault: None });
                self.touch(key, pages);
            }
            FileStep::Fault => {
                let fault = Some(Asked { file: key, first, end: first.saturating_add(1) });
                self.ask(tid, |asking| asking.fault = fault);
                let key_of_file = self.named(key);
                self.files.entry(key_of_file).or_default().mapped = true;
                self.touch(key, first..first.saturating_add(1));
            }
            FileStep::Mapped => {
                let key = self.named(key);
                self.files.entry(key).or_default().mapped = true;
            }
            FileStep::Write | FileStep::WriteBegin => {
                self.writing.insert(tid, key);
                self.brought_last.remove(&tid);
                self.touch(key, pages);
            }
            FileStep::Dirtied => self.dirtied(tid, key, pages),
            FileStep::Cached => self.cached(tid, key, pages),
            FileStep::Uncached => self.uncached(key, pages),
            _ => {}
        }
    }

    fn block(&mut self, tid: TaskId, event: &BlockEvent) {
        match event.action {
            BlockAction::Queue => {
                let Some(bio) = self.in_flight.queued(tid, event, ()) else { return };
                let read = bio.file.filter(|_| !self.shown.writes).map(|file| (file, bio.pages.clone()));
                self.sees_device = true;
                self.brought_last.remove(&tid);
                let asking = self.asking.get(&tid).copied().unwrap_or_default();
                if let Some((file, pages)) = read.filter(|(file, _)| asking.is_of(*file)) {
                    pages.into_iter().for_each(|page| self.confirm(file, page..page.saturating_add(1)));
                }
            }
            BlockAction::Complete if is_read(event) => {
                self.sees_ends = true;
                self.in_flight.completed(event);
            }
            _ => {}
        }
    }

    fn cached(&mut self, tid: TaskId, key: FileId, pages: Range<u64>) {
        // Pages added in a write belong to the write.
        if self.writing.get(&tid) == Some(&key) {
            return;
        }
        // The event of their departure was lost.
        self.uncached(key, pages.clone());
        let count = pages.end - pages.start;
        let asking = self.asking.get(&tid).copied().unwrap_or_default();
        let asks = asking.read.is_some() || asking.fault.is_some();
        let call = self.in_call.get(&tid).copied();
        if !asks && call == Some(InCall::Writes) && !self.writing.contains_key(&tid) {
            return;
        }
        if !asks && (self.writing.contains_key(&tid) || self.sees_calls && !self.in_call.contains_key(&tid)) {
            self.file_systems_own = self.file_systems_own.saturating_add(count);
            return;
        }
        self.in_flight.added(tid, key, pages.start, count);
        let before = self.brought_last.remove(&tid).filter(|(file, before)| *file == key && before.end == pages.start);
        let first = before.map_or(pages.start, |(_, before)| before.start);
        self.brought_last.insert(tid, (key, first..pages.end));
        let pieces: Vec<_> = asking.pieces(key, pages.clone()).collect();
        let is_asked_for = pieces.iter().any(|(_, requested)| *requested);
        let comes_with = is_asked_for || self.came_with.get(&tid) == Some(&(key, pages.start));
        if comes_with {
            self.came_with.insert(tid, (key, pages.end));
        }
        let sure = comes_with || self.shown.writes || call == Some(InCall::Other);
        if is_asked_for && !self.shown.writes {
            self.confirm(key, first..pages.start);
        }
        for (piece, requested) in pieces {
            if requested {
                self.brought_last.remove(&tid);
            }
            let count = if sure { piece.end - piece.start } else { 0 };
            for brought in self.counts(key, tid) {
                let sum = if requested { &mut brought.requested } else { &mut brought.ahead };
                *sum = sum.saturating_add(count);
            }
            self.update(key, piece, |_, _| Some(Page { tid, ahead: !requested, used: requested, sure }));
        }
    }

    /// Where no event shows writes, pages that a task brings in and makes dirty next belong to a write, too. The event may name the disk
    /// instead of the file system's device.
    fn dirtied(&mut self, tid: TaskId, key: FileId, pages: Range<u64>) {
        let is_it = |(file, brought): &(FileId, Range<u64>)| file.inode == key.inode && brought.contains(&pages.start);
        let Some((key, pages)) = self.brought_last.remove(&tid).filter(is_it) else { return self.touch(key, pages) };
        self.in_flight.gone(key, pages.clone());
        let mut written: Vec<(TaskId, u64)> = Vec::new();
        self.update(key, pages, |run, there| {
            let unused = there.filter(|page| page.ahead && page.sure && !page.used);
            written.extend(unused.map(|page| (page.tid, run.end - run.start)));
            there.filter(|_| unused.is_none())
        });
        for (tid, count) in written {
            for brought in self.counts(key, tid) {
                brought.ahead = brought.ahead.saturating_sub(count);
            }
        }
    }

    fn uncached(&mut self, key: FileId, pages: Range<u64>) {
        self.in_flight.gone(key, pages.clone());
        let mut gone: Vec<(Page, u64)> = Vec::new();
        self.update(key, pages, |run, there| {
            gone.extend(there.map(|page| (page, run.end - run.start)));
            None
        });
        for (page, count) in gone.into_iter().filter(|(page, _)| page.ahead) {
            self.count(key, &page, count, |brought| brought.ahead_evicted_unused.get_or_insert(0));
        }
    }

    /// Counts the pages that are there. What is cached in another recording is unknown.
    fn recording_ends(&mut self) {
        self.count_awaited();
        let left = std::mem::replace(&mut self.pages, Ranges::new(MAX_RUNS, Full::ForgetOldest));
        for (key, run, page) in left.iter().filter(|(.., page)| page.ahead) {
            self.count(key, &page, run.end - run.start, Brought::left_unused);
        }
        self.asking.clear();
        self.writing.clear();
        self.brought_last.clear();
        self.came_with.clear();
        self.reading.clear();
        self.in_call.clear();
        self.in_flight.recording_ends();
    }

    /// Counts unused pages behind each task's last read. Pages cached before the trace may lie in between.
    fn count_awaited(&mut self) {
        let places: BTreeSet<_> = self.reading.iter().map(|(_, asked)| (asked.file, asked.end)).collect();
        let files: BTreeSet<FileId> = places.iter().map(|(file, _)| *file).collect();
        let is_unused = |file: FileId, page: &Page| page.ahead && page.sure && self.use_of(file, page) == Use::Unused;
        let runs = self.pages.iter().filter(|(file, _, page)| files.contains(file) && is_unused(*file, page));
        let mut runs: Vec<_> = runs.map(|(file, run, _)| (file, run.start, run.end)).collect();
        runs.sort_unstable();
        runs.dedup_by(|next, run| {
            let goes_on = next.0 == run.0 && next.1 == run.2;
            run.2 = if goes_on { next.2 } else { run.2 };
            goes_on
        });
        let mut runs: BTreeMap<_, _> = runs.into_iter().map(|(file, begin, end)| ((file, begin), end)).collect();
        for (file, at) in places {
            let next = runs.range((file, at)..).next().map(|(&(of, begin), &end)| (of, begin, end));
            let Some((_, begin, end)) = next.filter(|&(of, begin, end)| of == file && begin - at <= end - begin) else {
                continue;
            };
            // Another task may have read up to the same page.
            runs.remove(&(file, begin));
            let name = self.named(file);
            if let Some(file) = self.files.get_mut(&name) {
                file.brought.ahead_awaited = file.brought.ahead_awaited.saturating_add(end - begin);
            }
        }
    }

    /// Counts the use of a page that was read ahead: an unused one in the count `unused`, which depends on when that was known.
    fn count(&mut self, key: FileId, page: &Page, pages: u64, unused: fn(&mut Brought) -> &mut u64) {
        let known = self.use_of(key, page);
        let unused = if self.shown.departures { unused } else { Brought::left_unused };
        for brought in self.counts(key, page.tid) {
            match known {
                _ if !page.sure => brought.origin_unknown = brought.origin_unknown.saturating_add(pages),
                Use::Used => {}
                Use::Unused => *unused(brought) = unused(brought).saturating_add(pages),
                Use::Unknown => brought.mapped = brought.mapped.saturating_add(pages),
            }
        }
    }
}

impl Analysis for Accuracy {
    type Output = AccuracyFindings;

    fn event(&mut self, event: &Event) {
        match &event.kind {
            EventKind::File(file) => self.file(event.tid, file),
            EventKind::Block(block) => self.block(event.tid, block),
            // The call returned, and its request ends: `sys_exit_read`, or `sys_exit` of the raw ones.
            EventKind::Other { name, .. } if name.starts_with("sys_exit") => {
                self.asking.remove(&event.tid);
                self.writing.remove(&event.tid);
                self.in_call.remove(&event.tid);
            }
            EventKind::Other { name, .. } if name.starts_with("sys_enter") => {
                let call = name.strip_prefix("sys_enter_").unwrap_or_default();
                self.sees_calls |= !syncs_or_renames(call);
                self.in_call.insert(event.tid, InCall::of(call));
            }
            EventKind::Recording => self.recording_ends(),
            EventKind::Other { name, .. } if name == "sched_process_exit" => drop(self.reading.remove(&event.tid)),
            EventKind::Other { name, .. } if name == "file_fault_end" => {
                if let Some(asking) = self.asking.get_mut(&event.tid) {
                    asking.fault = None;
                }
            }
            _ => {}
        }
    }

    fn finish(mut self) -> AccuracyFindings {
        self.recording_ends();
        let (sees_late, sees_gone) = (self.sees_device && self.sees_ends, self.shown.departures);
        for brought in self.files.values_mut().map(|file| &mut file.brought).chain(self.tasks.values_mut()) {
            brought.ahead_late = sees_late.then_some(brought.ahead_late.unwrap_or(0));
            brought.ahead_evicted_unused = sees_gone.then_some(brought.ahead_evicted_unused.unwrap_or(0));
        }
        let (ahead_late, ahead_evicted_unused) = (sees_late.then_some(0), sees_gone.then_some(0));
        let mut total = Brought { ahead_late, ahead_evicted_unused, ..Brought::default() };
        self.files.values().for_each(|file| total.add(&file.brought));
        let mut files: Vec<FileBrought> = self
            .files
            .into_iter()
            .map(|(FileId { device, inode }, file)| FileBrought { device, inode, path: None, pages: file.brought })
            .filter(|file| !file.pages.is_empty())
            .collect();
        files.sort_by_key(|file| std::cmp::Reverse((file.pages.ahead_unused(), file.pages.ahead)));
        let mut tasks: Vec<TaskBrought> =
            self.tasks.into_iter().map(|(tid, pages)| TaskBrought { tid, name: None, pages }).collect();
        tasks.sort_by_key(|task| std::cmp::Reverse((task.pages.ahead_unused(), task.pages.ahead)));
        AccuracyFindings {
            total,
            files,
            tasks,
            not_followed: self.not_followed,
            tasks_forgotten: [self.asking.lost(), self.writing.lost(), self.in_call.lost()].iter().sum(),
            file_systems_own: self.file_systems_own,
            arrival_unknown: self.in_flight.pages_given_up(),
            faults_not_shown: !self.shown.faults,
            folded: self.folded,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::event;

    const MTD: Option<Device> = Some(Device(31 << 20));

    fn pages_of(step: FileStep, device: Option<Device>, inode: u64, page: u64, pages: u64) -> EventKind {
        EventKind::File(crate::testing::file(step, device, inode, page * PAGE_BYTES, pages * PAGE_BYTES))
    }

    fn file(step: FileStep, page: u64, pages: u64) -> EventKind {
        pages_of(step, MTD, 5, page, pages)
    }

    fn block(action: BlockAction, page: u64, pages: u64) -> EventKind {
        let disk = Device::new(8, 0);
        EventKind::Block(crate::testing::block(action, disk, "R", page * 8, pages * PAGE_BYTES))
    }

    fn call(name: &str) -> EventKind {
        crate::testing::call(name, None)
    }

    fn run(steps: &[(u32, FileStep, u64, u64)]) -> AccuracyFindings {
        run_with(CacheShown::ALL, steps)
    }

    fn run_with(shown: CacheShown, steps: &[(u32, FileStep, u64, u64)]) -> AccuracyFindings {
        let mut accuracy = Accuracy::of(shown);
        for (time, &(tid, step, page, pages)) in steps.iter().enumerate() {
            accuracy.event(&event(time as u64, tid, file(step, page, pages)));
        }
        accuracy.finish()
    }

    /// Ranges, not their pages, are what is worked on and remembered: this would take for ever.
    #[test]
    fn ranges_of_any_length_are_one_piece() {
        use FileStep::{Cached, Read, Uncached};
        let most = u64::MAX / PAGE_BYTES;
        let mut steps = Vec::new();
        for tid in 0..1000 {
            steps.extend([(tid, Read, 0, 1), (tid, Cached, 0, most), (tid, Read, 10, most), (tid, Uncached, 0, most)]);
        }
        let found = run(&steps);
        assert_eq!((found.total.requested, found.not_followed), (1000, 0));
        assert_eq!(found.total.ahead, 1000 * (most - 1));
        assert_eq!((found.total.ahead_used, found.total.ahead_evicted_unused), (1000 * (most - 10), Some(9000)));
    }

    /// Every second page of a file: the oldest make room, and are in no count.
    #[test]
    fn what_was_forgotten_is_in_no_count() {
        let steps: Vec<_> = (0..MAX_RUNS as u64 + 50).map(|page| (1, FileStep::Cached, 2 * page, 1)).collect();
        let found = run(&steps);
        assert_eq!((found.total.ahead, found.not_followed), (MAX_RUNS as u64, 50));
        assert_eq!(found.total.ahead_left_unused, MAX_RUNS as u64);
    }

    #[test]
    fn what_is_read_ahead_is_used_or_not() {
        use FileStep::{Cached, Read, Uncached};
        let found = run(&[
            (1, Read, 0, 1),
            (1, Cached, 0, 1),
            // One folio of two pages counts as two.
            (1, Cached, 1, 2),
            (1, Cached, 3, 1),
            (2, Read, 1, 1),
            (2, Read, 1, 1),
            (9, Uncached, 3, 1),
            (9, Uncached, 0, 1),
        ]);
        let pages = Brought {
            requested: 1,
            ahead: 3,
            ahead_used: 1,
            ahead_late: None,
            ahead_evicted_unused: Some(1),
            ahead_left_unused: 1,
            ahead_awaited: 0,
            mapped: 0,
            origin_unknown: 0,
        };
        // Task 2 may have come to page 2.
        assert_eq!(found.total, Brought { ahead_awaited: 1, ..pages });
        assert_eq!(found.files.len(), 1);
        // Task 2 brought in nothing: what it used was task 1's.
        assert_eq!(found.tasks, [TaskBrought { tid: TaskId(1), name: None, pages }]);
    }

    #[test]
    fn what_a_reader_may_have_come_to_is_awaited() {
        use FileStep::{Cached, Read};
        // Tasks 1 and 2 are at page 2; page 40 is of an earlier read.
        let steps = [(1, Read, 0, 1), (1, Cached, 0, 9), (1, Cached, 40, 1), (1, Read, 1, 1), (2, Read, 1, 1)];
        let pages = run(&steps).files[0].pages;
        assert_eq!((pages.ahead_unused(), pages.ahead_awaited, pages.ahead_wasted()), (8, 7, 1));
        // What it read before the trace began is not followed.
        let pages = run(&[(1, Read, 7, 1), (1, Cached, 10, 8)]).files[0].pages;
        assert_eq!((pages.ahead_unused(), pages.ahead_awaited), (8, 8));
        // Both ended.
        let mut accuracy = Accuracy::new();
        for kind in [file(Read, 0, 1), file(Cached, 0, 9), call("sched_process_exit")] {
            accuracy.event(&event(1, 1, kind));
        }
        let pages = accuracy.finish().files[0].pages;
        assert_eq!((pages.ahead_unused(), pages.ahead_awaited, pages.ahead_wasted()), (8, 0, 8));
    }

    #[test]
    fn what_is_touched_of_a_mapped_file_is_not_known() {
        use FileStep::{Cached, Fault, Read, Uncached};
        let mut steps = vec![(1, Read, 0, 1), (1, Cached, 0, 2), (2, Uncached, 1, 1), (1, Fault, 20, 0)];
        steps.extend((4..36).map(|page| (1, Cached, page, 1)));
        let found = run(&steps);
        // The page that left before the first fault was not mapped.
        assert_eq!((found.total.requested, found.total.ahead, found.total.mapped), (2, 32, 31));
        assert_eq!((found.total.ahead_evicted_unused, found.total.ahead_unused()), (Some(1), 1));
        steps.extend([(1, Read, 17, 1), (1, Uncached, 17, 2)]);
        let found = run(&steps);
        assert_eq!((found.total.mapped, found.total.ahead_used), (30, 1));
    }

    #[test]
    fn what_the_device_has_not_brought_when_it_is_asked_for_is_late() {
        let file = |step, page, pages| pages_of(step, Some(Device::new(8, 1)), 5, page, pages);
        use BlockAction::{Complete, Queue};
        use FileStep::{Cached, Read, Uncached};
        let mut accuracy = Accuracy::new();
        let mut run = |kinds: Vec<EventKind>| {
            for kind in kinds {
                accuracy.event(&event(0, 1, kind));
            }
        };
        // Its own page, and three ahead.
        run(vec![file(Read, 0, 1), file(Cached, 0, 4), block(Queue, 0, 1), block(Queue, 1, 2), block(Queue, 3, 1)]);
        run(vec![block(Complete, 0, 1), file(Read, 1, 1), block(Complete, 1, 2), file(Read, 2, 1)]);
        // It leaves, comes again for a read that asks for it, and no task waits for it.
        run(vec![file(Uncached, 3, 1), file(Read, 3, 1), file(Cached, 3, 1), block(Queue, 3, 1), file(Read, 3, 1)]);
        let found = accuracy.finish();
        let total = found.total;
        assert_eq!((total.requested, total.ahead, total.ahead_used, total.ahead_late), (2, 3, 2, Some(1)));
        assert_eq!(found.files[0].pages.ahead_late, Some(1));
        // The page of which a second bio came before the first was done.
        assert_eq!(found.arrival_unknown, 1);
    }

    #[test]
    fn what_a_file_system_brings_in_for_itself_is_not_read_ahead() {
        let file = |step, inode, page| pages_of(step, MTD, inode, page, 1);
        use FileStep::{Cached, Read, Write};
        let mut accuracy = Accuracy::new();
        let mut run = |tid: u32, kind| accuracy.event(&event(0, tid, kind));
        run(1, call("sys_enter_fadvise64_64"));
        run(1, file(Cached, 5, 0));
        run(1, call("sys_exit_fadvise64_64"));
        run(1, call("sys_enter_read"));
        run(1, file(Read, 5, 1));
        run(1, file(Cached, 5, 1));
        // The collector's thread, and the collector in a task that writes something else.
        run(9, file(Cached, 5, 2));
        run(1, call("sys_exit_read"));
        run(1, call("sys_enter_write"));
        run(1, file(Write, 6, 0));
        run(1, file(Cached, 5, 3));
        run(1, file(Cached, 6, 0));
        let found = accuracy.finish();
        assert_eq!((found.total.requested, found.total.ahead, found.file_systems_own), (1, 1, 2));
    }

    #[test]
    fn a_request_ends_with_its_call() {
        let mut accuracy = Accuracy::new();
        for kind in [
            file(FileStep::Read, 0, 2),
            // Its buffer is of a mapping of the file: both ask.
            file(FileStep::Fault, 8, 0),
            file(FileStep::Cached, 8, 2),
            call("file_fault_end"),
            file(FileStep::Cached, 0, 1),
            file(FileStep::Uncached, 8, 2),
            call("sys_exit_pread64"),
            // readahead(): nothing reads what was requested before.
            file(FileStep::Cached, 1, 1),
            file(FileStep::Cached, 8, 1),
        ] {
            accuracy.event(&event(1, 1, kind));
        }
        let there: BTreeMap<u64, (bool, Use)> =
            accuracy.pages().map(|there| (there.page, (there.ahead, there.used))).collect();
        let unknown = (true, Use::Unknown);
        assert_eq!(there, [(0, (false, Use::Used)), (1, unknown), (8, unknown)].into());
        let total = accuracy.finish().total;
        assert_eq!((total.requested, total.ahead, total.mapped), (2, 3, 3));
    }

    #[test]
    fn tasks_beyond_the_most_cost_the_oldest_one_and_are_counted() {
        let most = MAX_NAMED as u32;
        let mut steps: Vec<_> = (0..=most).map(|tid| (tid, FileStep::Read, 4 * u64::from(tid), 1)).collect();
        // The first task was forgotten: its page is no longer known to be requested. All others' are.
        steps.extend((0..=most).map(|tid| (tid, FileStep::Cached, 4 * u64::from(tid), 1)));
        let found = run(&steps);
        assert_eq!(found.tasks_forgotten, 1);
        assert_eq!((found.total.requested, found.total.ahead), (u64::from(most), 1));
        assert_eq!(run(&steps[1..]).tasks_forgotten, 0);
    }

    #[test]
    fn calls_beyond_the_most_cost_the_oldest_one_and_are_counted() {
        let most = MAX_NAMED as u32;
        let mut accuracy = Accuracy::new();
        let mut run = |tid: u32, kind| accuracy.event(&event(0, tid, kind));
        (0..=most).for_each(|tid| run(tid, call("sys_enter_readahead")));
        (0..=most).for_each(|tid| run(tid, file(FileStep::Cached, u64::from(tid), 1)));
        let found = accuracy.finish();
        assert_eq!((found.total.ahead, found.file_systems_own, found.tasks_forgotten), (u64::from(most), 1, 1));
    }

    /// On XFS without probes no event shows a write: a page comes, and is dirty next.
    #[test]
    fn what_becomes_dirty_next_is_a_write_s() {
        use FileStep::{Cached, Dirtied, Read};
        assert_eq!(run(&[(1, Cached, 0, 4), (1, Dirtied, 0, 1), (1, Cached, 4, 1), (1, Dirtied, 4, 1)]).total.ahead, 0);
        // btrfs makes room for all pages of a write first.
        assert_eq!(run(&[(1, Cached, 0, 1), (1, Cached, 1, 1), (1, Dirtied, 0, 1), (1, Dirtied, 1, 1)]).total.ahead, 0);
        // What another task brought in, or what came before a read, was read ahead: the write uses it.
        for steps in [
            [(1, Read, 0, 1), (1, Cached, 0, 3), (2, Dirtied, 1, 1)],
            [(1, Cached, 1, 2), (1, Read, 9, 1), (1, Dirtied, 1, 1)],
        ] {
            let found = run(&steps).total;
            assert_eq!((found.ahead, found.ahead_used), (2, 1));
        }
    }

    #[test]
    fn what_is_written_is_not_read_ahead() {
        use FileStep::{Cached, Write};
        let none = Brought { ahead_evicted_unused: Some(0), ..Brought::default() };
        assert_eq!(run(&[(1, Write, 0, 2), (1, Cached, 0, 1), (1, Cached, 1, 1)]).total, none);
    }

    /// Neither calls nor writes nor dirty pages are in the trace.
    #[test]
    fn pages_that_a_write_may_have_brought_in_are_of_unknown_origin() {
        use FileStep::{Cached, Read, Uncached};
        let without = CacheShown { writes: false, ..CacheShown::ALL };
        let counts = |steps: &[(u32, FileStep, u64, u64)]| {
            let found = run_with(without, steps).total;
            [found.requested, found.ahead, found.ahead_used, found.ahead_unused(), found.origin_unknown]
        };
        // No read at all, or of another task; what left is not wasted.
        assert_eq!(counts(&[(1, Cached, 0, 4)]), [0, 0, 0, 0, 4]);
        assert_eq!(counts(&[(2, Read, 0, 1), (1, Cached, 4, 4), (9, Uncached, 4, 4)]), [0, 0, 0, 0, 4]);
        // What a read uses of it may have been written before.
        assert_eq!(counts(&[(1, Cached, 0, 4), (2, Read, 0, 2)]), [0, 0, 0, 0, 4]);
        // They come with the page that was asked for: in its folio, behind it and, around a fault, before it.
        assert_eq!(
            counts(&[(1, Read, 0, 1), (1, Cached, 0, 4), (1, Cached, 4, 1), (1, Cached, 5, 2)]),
            [1, 6, 0, 6, 0]
        );
        assert_eq!(
            counts(&[(1, Read, 2, 1), (1, Cached, 0, 1), (1, Cached, 1, 1), (1, Cached, 2, 1)]),
            [1, 2, 0, 2, 0]
        );
        // Elsewhere in the file that was read before, or behind its last page after another read: written, or read ahead.
        assert_eq!(counts(&[(1, Read, 0, 1), (1, Cached, 0, 2), (1, Cached, 9, 1)]), [1, 1, 0, 1, 1]);
        assert_eq!(counts(&[(1, Read, 0, 1), (1, Cached, 0, 2), (1, Read, 1, 1), (1, Cached, 2, 1)]), [1, 1, 1, 0, 1]);
        assert_eq!(run(&[(1, Cached, 0, 4)]).total.ahead, 4);
    }

    #[test]
    fn a_bio_or_a_call_says_that_pages_were_read() {
        use FileStep::{Cached, Read};
        let counts = |kinds: Vec<EventKind>| {
            let mut accuracy = Accuracy::of(CacheShown { writes: false, ..CacheShown::ALL });
            for kind in kinds {
                accuracy.event(&event(0, 1, kind));
            }
            let found = accuracy.finish().total;
            ([found.requested, found.ahead, found.ahead_used, found.origin_unknown], found.ahead_late)
        };
        // The next window, read behind a page of the first; its end is in no event.
        let window = vec![file(Read, 1, 1), file(Cached, 8, 4), block(BlockAction::Queue, 8, 4), file(Read, 8, 1)];
        assert_eq!(counts(window.clone()), ([0, 4, 1, 0], None));
        let ended = [&window[..3], &[block(BlockAction::Complete, 8, 4)], &window[3..]].concat();
        assert_eq!(counts(ended), ([0, 4, 1, 0], Some(0)));
        // Behind no read: a part of a page may be written.
        assert_eq!(counts(window[1..3].to_vec()), ([0, 0, 0, 4], None));
        let within = |name: &str| counts(vec![call(name), file(Cached, 0, 4)]).0;
        assert_eq!(within("sys_enter_fadvise64"), [0, 4, 0, 0]);
        assert_eq!(within("sys_enter_pwritev2"), [0, 0, 0, 0]);
        for name in ["sys_enter", "sys_enter_copy_file_range", "sys_enter_sendfile64", "sys_enter_io_uring_enter"] {
            assert_eq!(within(name), [0, 0, 0, 4], "{name}");
        }
    }

    #[test]
    fn without_faults_or_departures_unused_and_evicted_are_unknown() {
        use FileStep::{Cached, Read, Uncached};
        let steps = [(1, Read, 0, 1), (1, Cached, 0, 4), (1, Read, 1, 1), (9, Uncached, 2, 1), (1, Cached, 2, 1)];
        let counts = |shown| {
            let found = run_with(shown, &steps).total;
            (found.ahead, found.ahead_used, found.ahead_evicted_unused, found.ahead_left_unused, found.mapped)
        };
        assert_eq!(counts(CacheShown::ALL), (4, 1, Some(1), 2, 0));
        assert_eq!(counts(CacheShown { faults: false, ..CacheShown::ALL }), (4, 1, Some(0), 0, 3));
        // That a page comes again says that it left: how many others did is not known.
        assert_eq!(counts(CacheShown { departures: false, ..CacheShown::ALL }), (4, 1, None, 3, 0));
    }
}
