//! What read-ahead brought in, and what of it was used: page by page, from the page cache's own events.
//!
//! A page that comes while a task reads it (or faults on it) was asked for; one that comes beside that was read ahead. It is used
//! when a later read or fault touches it before it leaves. Folios count with all their pages. `bcc`'s `readahead`
//! (libbpf-tools/readahead.bpf.c) counts allocations within `do_page_cache_ra`, until the first `folio_mark_accessed` of the same
//! address: a large folio is one there, whatever its size, or none (`page_cache_ra_order` allocates it outside of that function),
//! the request's own pages are read-ahead, and what was evicted stays unused until its frame serves somebody else.
//! Where the trace has calls (`--events …,syscall`) a request ends with its call; else it lasts until the task's next one, and what
//! `readahead()` brings back of it in between counts as asked for.
//!
//! Not told by a trace: which pages of a mapping were touched. A touch maps what is cached around it before anything else is tried
//! (`do_read_fault`, mm/memory.c), and only one that finds its own page missing or marked for read-ahead goes on to `filemap_fault`,
//! which has an event. So pages of a file that is mapped may be touched in silence, wherever they lie: they are
//! [`Brought::mapped`], neither used nor unused. A file is known to be mapped from its first fault on.
//!
//! Whether a page that was used had arrived in time is told where the trace has the block device's events: it is late when its bio is
//! still on its way as the read or fault begins that asks for it. On MTD the reader brings in pages itself, and none can be late.

use std::collections::{BTreeMap, HashMap, HashSet};

use flashscope_readahead::{FileId, PAGE_BYTES};
use flashscope_trace::{BlockAction, BlockEvent, Device, Event, EventKind, FileEvent, FileStep};
use serde::{Deserialize, Serialize};

use super::in_flight::{InFlight, is_read};
use crate::Analysis;

/// Counts of pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Brought {
    /// They were of the read or fault itself.
    pub requested: u64,
    pub ahead: u64,
    /// Of those ahead: touched while they were there.
    pub ahead_used: u64,
    /// Of those used: the device had not brought it when it was asked for. `None` where the trace does not show the device.
    pub ahead_late: Option<u64>,
    /// Of those ahead: they left, and nothing had touched them.
    pub ahead_evicted_unused: u64,
    /// Of those ahead: still there at the trace's end, untouched.
    pub ahead_left_unused: u64,
    /// Of those ahead: nothing is known to have touched them, but their file was mapped, and what is touched there is not told.
    pub mapped: u64,
}

impl Brought {
    /// No page was followed.
    pub fn is_empty(&self) -> bool {
        self.requested == 0 && self.ahead == 0
    }

    pub fn ahead_unused(&self) -> u64 {
        self.ahead_evicted_unused + self.ahead_left_unused
    }

    fn add(&mut self, other: &Brought) {
        self.requested += other.requested;
        self.ahead += other.ahead;
        self.ahead_used += other.ahead_used;
        self.ahead_late = self.ahead_late.zip(other.ahead_late).map(|(ours, theirs)| ours + theirs);
        self.ahead_evicted_unused += other.ahead_evicted_unused;
        self.ahead_left_unused += other.ahead_left_unused;
        self.mapped += other.mapped;
    }
}

/// Of one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileBrought {
    pub device: Option<Device>,
    pub inode: u64,
    #[serde(flatten)]
    pub pages: Brought,
}

/// Of one task: what it brought in, whoever used it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskBrought {
    pub tid: u32,
    #[serde(flatten)]
    pub pages: Brought,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccuracyFindings {
    pub total: Brought,
    /// Most pages ahead that went unused first.
    pub files: Vec<FileBrought>,
    pub tasks: Vec<TaskBrought>,
    /// Pages that came in no call, or in a write to another file: the file system's own. They are in no other count.
    #[serde(default)]
    pub file_systems_own: u64,
    /// Pages beyond the most that are followed: they are in no count.
    pub not_followed: u64,
    /// Pages on their way from a device whose arrival was not seen: whether they were late is not told.
    #[serde(default)]
    pub arrival_unknown: u64,
    /// Files and tasks beyond the most that are kept are counted together under inode and task 0.
    pub folded: bool,
}

/// Pages, files and tasks that are followed at once.
const MAX_PAGES: usize = 1 << 20;
const MAX_NAMED: usize = 1 << 14;

type Key = (Option<Device>, u64);

fn file_id((device, inode): Key) -> FileId {
    FileId { device: device.map(|device| device.0), inode }
}

/// Pages of one file that a task asks for.
#[derive(Clone, Copy)]
struct Asked {
    file: Key,
    first: u64,
    /// The page behind the last.
    end: u64,
}

/// A task in a read, whose buffer may be of a mapping that it faults on.
#[derive(Clone, Copy, Default)]
struct Asking {
    read: Option<Asked>,
    fault: Option<Asked>,
}

impl Asking {
    fn is_for(&self, file: Key, page: u64) -> bool {
        let holds = |asked: Asked| asked.file == file && (asked.first..asked.end).contains(&page);
        self.read.is_some_and(holds) || self.fault.is_some_and(holds)
    }
}

#[derive(Clone, Copy)]
struct Page {
    /// Who brought it in.
    tid: u32,
    ahead: bool,
    used: bool,
}

/// What is known of a page's use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    Used,
    Unused,
    /// Its file is mapped.
    Unknown,
}

/// A page that is in the cache, as far as was followed.
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
#[derive(Default)]
pub struct Accuracy {
    pages: HashMap<(Key, u64), Page>,
    /// What a task asked for last.
    asking: HashMap<u32, Asking>,
    writing: HashMap<u32, Key>,
    in_flight: InFlight<()>,
    /// A bio was of pages that came into the cache.
    sees_device: bool,
    files: BTreeMap<Key, File>,
    tasks: BTreeMap<u32, Brought>,
    /// Tasks in a call, where the trace has calls.
    in_call: HashSet<u32>,
    sees_calls: bool,
    file_systems_own: u64,
    not_followed: u64,
    folded: bool,
}

impl Accuracy {
    pub fn new() -> Accuracy {
        Accuracy::default()
    }

    /// What is there now, in no order.
    pub fn pages(&self) -> impl Iterator<Item = PageThere> + '_ {
        self.pages.iter().map(|(&(key, page), known)| PageThere {
            device: key.0,
            inode: key.1,
            page,
            ahead: known.ahead,
            used: self.use_of(key, known),
        })
    }

    fn use_of(&self, key: Key, page: &Page) -> Use {
        let is_mapped = || self.files.get(&self.named(key)).is_some_and(|file| file.mapped);
        match page.used {
            true => Use::Used,
            false if is_mapped() => Use::Unknown,
            false => Use::Unused,
        }
    }

    /// The name under which a file is counted.
    fn named(&self, key: Key) -> Key {
        if self.files.len() < MAX_NAMED || self.files.contains_key(&key) { key } else { (None, 0) }
    }

    fn of(&mut self, key: Key, tid: u32) -> [&mut Brought; 2] {
        let key = self.named(key);
        let tid = if self.tasks.len() < MAX_NAMED || self.tasks.contains_key(&tid) { tid } else { 0 };
        self.folded |= key == (None, 0);
        [&mut self.files.entry(key).or_default().brought, self.tasks.entry(tid).or_default()]
    }

    fn asking(&mut self, tid: u32) -> &mut Asking {
        if self.asking.len() >= MAX_NAMED && !self.asking.contains_key(&tid) {
            self.asking.clear();
        }
        self.writing.remove(&tid);
        self.in_flight.forget_pending(tid);
        self.asking.entry(tid).or_default()
    }

    fn touch(&mut self, key: Key, page: u64) {
        let Some(known) = self.pages.get_mut(&(key, page)) else { return };
        if !std::mem::replace(&mut known.used, true) && known.ahead {
            let tid = known.tid;
            let late = u64::from(self.in_flight.is_coming(file_id(key), page));
            for brought in self.of(key, tid) {
                brought.ahead_used += 1;
                *brought.ahead_late.get_or_insert(0) += late;
            }
        }
    }

    fn file(&mut self, tid: u32, event: &FileEvent) {
        let key = (event.device, event.inode);
        let first = event.offset / PAGE_BYTES;
        let end = event.offset.saturating_add(event.bytes).div_ceil(PAGE_BYTES);
        // No more pages can be there than are followed.
        let pages = first..end.min(first.saturating_add(MAX_PAGES as u64));
        match event.step {
            FileStep::Read => {
                *self.asking(tid) = Asking { read: Some(Asked { file: key, first, end }), fault: None };
                pages.for_each(|page| self.touch(key, page));
            }
            FileStep::Fault => {
                self.asking(tid).fault = Some(Asked { file: key, first, end: first.saturating_add(1) });
                let key_of_file = self.named(key);
                self.files.entry(key_of_file).or_default().mapped = true;
                self.touch(key, first);
            }
            FileStep::Write => {
                if self.writing.len() >= MAX_NAMED {
                    self.writing.clear();
                }
                self.writing.insert(tid, key);
                pages.for_each(|page| self.touch(key, page));
            }
            FileStep::Cached => pages.for_each(|page| self.cached(tid, key, page)),
            FileStep::Uncached => pages.for_each(|page| self.uncached(key, page)),
            _ => {}
        }
    }

    fn block(&mut self, tid: u32, event: &BlockEvent) {
        match event.action {
            BlockAction::Queue => self.sees_device |= self.in_flight.queued(tid, event, ()).is_some(),
            BlockAction::Complete if is_read(event) => drop(self.in_flight.completed(event)),
            _ => {}
        }
    }

    fn cached(&mut self, tid: u32, key: Key, page: u64) {
        // What a write brings in is the write's.
        if self.writing.get(&tid) == Some(&key) {
            return;
        }
        // That it left was lost.
        self.uncached(key, page);
        let asks = self.asking.get(&tid).is_some_and(|asking| asking.read.is_some() || asking.fault.is_some());
        if !asks && (self.writing.contains_key(&tid) || self.sees_calls && !self.in_call.contains(&tid)) {
            self.file_systems_own += 1;
            return;
        }
        self.in_flight.added(tid, file_id(key), page, 1);
        if self.pages.len() >= MAX_PAGES {
            self.not_followed += 1;
            return;
        }
        let requested = self.asking.get(&tid).is_some_and(|asking| asking.is_for(key, page));
        self.pages.insert((key, page), Page { tid, ahead: !requested, used: requested });
        for brought in self.of(key, tid) {
            match requested {
                true => brought.requested += 1,
                false => brought.ahead += 1,
            }
        }
    }

    fn uncached(&mut self, key: Key, page: u64) {
        self.in_flight.gone(file_id(key), page);
        if let Some(gone) = self.pages.remove(&(key, page)).filter(|gone| gone.ahead) {
            self.count(key, &gone, |brought| &mut brought.ahead_evicted_unused);
        }
    }

    /// What became of a page that came ahead: where it was not used, in the count that says when that was clear.
    fn count(&mut self, key: Key, page: &Page, unused: fn(&mut Brought) -> &mut u64) {
        let known = self.use_of(key, page);
        for brought in self.of(key, page.tid) {
            match known {
                Use::Used => {}
                Use::Unused => *unused(brought) += 1,
                Use::Unknown => brought.mapped += 1,
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
            // The call came back, and with it what it asked for: `sys_exit_read`, or `sys_exit` of the raw ones.
            EventKind::Other { name, .. } if name.starts_with("sys_exit") => {
                self.asking.remove(&event.tid);
                self.writing.remove(&event.tid);
                self.in_call.remove(&event.tid);
            }
            EventKind::Other { name, .. } if name.starts_with("sys_enter") => {
                self.sees_calls = true;
                if self.in_call.len() >= MAX_NAMED {
                    self.in_call.clear();
                }
                self.in_call.insert(event.tid);
            }
            EventKind::Other { name, .. } if name == "file_fault_end" => {
                if let Some(asking) = self.asking.get_mut(&event.tid) {
                    asking.fault = None;
                }
            }
            _ => {}
        }
    }

    fn finish(mut self) -> AccuracyFindings {
        let left: Vec<(Key, Page)> =
            self.pages.iter().filter(|(_, page)| page.ahead).map(|(&(key, _), &page)| (key, page)).collect();
        for (key, page) in left {
            self.count(key, &page, |brought| &mut brought.ahead_left_unused);
        }
        for brought in self.files.values_mut().map(|file| &mut file.brought).chain(self.tasks.values_mut()) {
            brought.ahead_late = self.sees_device.then_some(brought.ahead_late.unwrap_or(0));
        }
        let mut total = Brought { ahead_late: self.sees_device.then_some(0), ..Brought::default() };
        self.files.values().for_each(|file| total.add(&file.brought));
        let mut files: Vec<FileBrought> = self
            .files
            .into_iter()
            .map(|((device, inode), file)| FileBrought { device, inode, pages: file.brought })
            .filter(|file| !file.pages.is_empty())
            .collect();
        files.sort_by_key(|file| std::cmp::Reverse((file.pages.ahead_unused(), file.pages.ahead)));
        let mut tasks: Vec<TaskBrought> =
            self.tasks.into_iter().map(|(tid, pages)| TaskBrought { tid, pages }).collect();
        tasks.sort_by_key(|task| std::cmp::Reverse((task.pages.ahead_unused(), task.pages.ahead)));
        AccuracyFindings {
            total,
            files,
            tasks,
            not_followed: self.not_followed,
            file_systems_own: self.file_systems_own,
            arrival_unknown: self.in_flight.pages_given_up,
            folded: self.folded,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashscope_trace::TimeNs;

    fn run(steps: &[(u32, FileStep, u64, u64)]) -> AccuracyFindings {
        let mut accuracy = Accuracy::new();
        for (time, &(tid, step, page, pages)) in steps.iter().enumerate() {
            let file = FileEvent {
                step,
                device: Some(Device::new(31, 0)),
                inode: 5,
                offset: page * PAGE_BYTES,
                bytes: pages * PAGE_BYTES,
                size: None,
                block: 0,
            };
            let (time, kind) = (TimeNs(time as u64), EventKind::File(file));
            accuracy.event(&Event { time, cpu: 0, tid, kind });
        }
        accuracy.finish()
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
            ahead_evicted_unused: 1,
            ahead_left_unused: 1,
            mapped: 0,
        };
        assert_eq!(found.total, pages);
        assert_eq!(found.files.len(), 1);
        // Task 2 brought in nothing: what it used was task 1's.
        assert_eq!(found.tasks, [TaskBrought { tid: 1, pages }]);
    }

    #[test]
    fn what_is_touched_of_a_mapped_file_is_not_known() {
        use FileStep::{Cached, Fault, Read, Uncached};
        let mut steps = vec![(1, Read, 0, 1), (1, Cached, 0, 2), (2, Uncached, 1, 1), (1, Fault, 20, 0)];
        steps.extend((4..36).map(|page| (1, Cached, page, 1)));
        let found = run(&steps);
        // The page that left before the first fault was not mapped.
        assert_eq!((found.total.requested, found.total.ahead, found.total.mapped), (2, 32, 31));
        assert_eq!((found.total.ahead_evicted_unused, found.total.ahead_unused()), (1, 1));
        steps.extend([(1, Read, 17, 1), (1, Uncached, 17, 2)]);
        let found = run(&steps);
        assert_eq!((found.total.mapped, found.total.ahead_used), (30, 1));
    }

    #[test]
    fn what_the_device_has_not_brought_when_it_is_asked_for_is_late() {
        use flashscope_trace::{BlockDetail, RequestFlags};
        let device = Some(Device::new(8, 1));
        let file = |step, page: u64, pages: u64| {
            let (offset, bytes) = (page * PAGE_BYTES, pages * PAGE_BYTES);
            EventKind::File(FileEvent { step, device, inode: 5, offset, bytes, size: None, block: 0 })
        };
        let block = |action, page: u64, pages: u64| {
            let (device, sector, bytes) = (Device::new(8, 0), page * 8, pages * PAGE_BYTES);
            let (flags, detail) = (RequestFlags::READ, BlockDetail::None);
            EventKind::Block(BlockEvent { action, device, flags, sector, bytes, error: 0, cgroup: 0, detail })
        };
        use BlockAction::{Complete, Queue};
        use FileStep::{Cached, Read, Uncached};
        let mut accuracy = Accuracy::new();
        let mut run = |kinds: Vec<EventKind>| {
            for kind in kinds {
                accuracy.event(&Event { time: TimeNs(0), cpu: 0, tid: 1, kind });
            }
        };
        // Its own page, and three ahead.
        run(vec![file(Read, 0, 1), file(Cached, 0, 4), block(Queue, 0, 1), block(Queue, 1, 2), block(Queue, 3, 1)]);
        run(vec![block(Complete, 0, 1), file(Read, 1, 1), block(Complete, 1, 2), file(Read, 2, 1)]);
        // It leaves, comes again for a read that asks for it, and is late for nobody.
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
        let device = Some(Device::new(31, 0));
        let file = |step, inode, page: u64| {
            let offset = page * PAGE_BYTES;
            EventKind::File(FileEvent { step, device, inode, offset, bytes: PAGE_BYTES, size: None, block: 0 })
        };
        let call = |name: &str| EventKind::Other { system: "syscalls".into(), name: name.into() };
        use FileStep::{Cached, Read, Write};
        let mut accuracy = Accuracy::new();
        let mut run = |tid, kind| accuracy.event(&Event { time: TimeNs(0), cpu: 0, tid, kind });
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
        let file = |step, page: u64, pages: u64| {
            let device = Some(Device::new(31, 0));
            let (offset, bytes) = (page * PAGE_BYTES, pages * PAGE_BYTES);
            EventKind::File(FileEvent { step, device, inode: 5, offset, bytes, size: None, block: 0 })
        };
        let other = |name: &str| EventKind::Other { system: "syscalls".into(), name: name.into() };
        let mut accuracy = Accuracy::new();
        for kind in [
            file(FileStep::Read, 0, 2),
            // Its buffer is of a mapping of the file: both ask.
            file(FileStep::Fault, 8, 0),
            file(FileStep::Cached, 8, 2),
            other("file_fault_end"),
            file(FileStep::Cached, 0, 1),
            file(FileStep::Uncached, 8, 2),
            other("sys_exit_pread64"),
            // readahead(): nothing reads what was asked for before.
            file(FileStep::Cached, 1, 1),
            file(FileStep::Cached, 8, 1),
        ] {
            accuracy.event(&Event { time: TimeNs(1), cpu: 0, tid: 1, kind });
        }
        let there: BTreeMap<u64, (bool, Use)> =
            accuracy.pages().map(|there| (there.page, (there.ahead, there.used))).collect();
        let unknown = (true, Use::Unknown);
        assert_eq!(there, [(0, (false, Use::Used)), (1, unknown), (8, unknown)].into());
        let total = accuracy.finish().total;
        assert_eq!((total.requested, total.ahead, total.mapped), (2, 3, 3));
    }

    #[test]
    fn what_is_written_is_not_read_ahead() {
        use FileStep::{Cached, Write};
        assert_eq!(run(&[(1, Write, 0, 2), (1, Cached, 0, 1), (1, Cached, 1, 1)]).total, Brought::default());
    }
}
