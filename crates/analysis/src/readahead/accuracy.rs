//! What read-ahead brought in, and what of it was used: page by page, from the page cache's own events.
//!
//! A page that comes while a task reads it (or faults on it) was asked for; one that comes beside that was read ahead. It is used
//! when a later read or fault touches it before it leaves. `bcc`'s `readahead` counts returns of one function and the first use of
//! a page by its address, which misses pages of large folios and whatever is inlined; here folios count with all their pages.
//!
//! Not told by a trace: which pages of a mapping were touched after a fault mapped them around itself. Such pages are
//! [`Brought::mapped`], neither used nor unused. And whether a page that was used had arrived in time: on MTD the reader brings in
//! pages itself and none can be late; behind a block queue nothing says it page by page.

use std::collections::{BTreeMap, HashMap};

use flashscope_readahead::PAGE_BYTES;
use flashscope_trace::{Device, Event, EventKind, FileEvent, FileStep};
use serde::{Deserialize, Serialize};

use crate::Analysis;

/// Counts of pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Brought {
    /// They were of the read or fault itself.
    pub requested: u64,
    pub ahead: u64,
    /// Of those ahead: touched while they were there.
    pub ahead_used: u64,
    /// Of those ahead: they left, and nothing had touched them.
    pub ahead_evicted_unused: u64,
    /// Of those ahead: still there at the trace's end, untouched.
    pub ahead_left_unused: u64,
    /// Of those ahead: a fault mapped them around itself; whether they were touched is not known.
    pub mapped: u64,
}

impl Brought {
    pub fn ahead_unused(&self) -> u64 {
        self.ahead_evicted_unused + self.ahead_left_unused
    }

    fn add(&mut self, other: &Brought) {
        self.requested += other.requested;
        self.ahead += other.ahead;
        self.ahead_used += other.ahead_used;
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
    /// Pages beyond the most that are followed: they are in no count.
    pub not_followed: u64,
    /// Files and tasks beyond the most that are kept are counted together under inode and task 0.
    pub folded: bool,
}

/// Pages, files and tasks that are followed at once.
const MAX_PAGES: usize = 1 << 20;
const MAX_NAMED: usize = 1 << 14;
/// `fault_around_bytes` (mm/memory.c): 64 KiB.
const AROUND: u64 = 16;

type Key = (Option<Device>, u64);

#[derive(Clone, Copy)]
struct Asked {
    file: Key,
    first: u64,
    /// The page behind the last.
    end: u64,
    by_fault: bool,
}

#[derive(Clone, Copy)]
struct Page {
    /// Who brought it in.
    tid: u32,
    ahead: bool,
    used: bool,
    mapped: bool,
}

/// Follows the pages of a trace.
#[derive(Default)]
pub struct Accuracy {
    pages: HashMap<(Key, u64), Page>,
    /// What a task asked for last.
    asked: HashMap<u32, Asked>,
    writing: HashMap<u32, Key>,
    files: BTreeMap<Key, Brought>,
    tasks: BTreeMap<u32, Brought>,
    not_followed: u64,
    folded: bool,
}

impl Accuracy {
    pub fn new() -> Accuracy {
        Accuracy::default()
    }

    fn of(&mut self, key: Key, tid: u32) -> [&mut Brought; 2] {
        let key = if self.files.len() < MAX_NAMED || self.files.contains_key(&key) { key } else { (None, 0) };
        let tid = if self.tasks.len() < MAX_NAMED || self.tasks.contains_key(&tid) { tid } else { 0 };
        self.folded |= key == (None, 0);
        [self.files.entry(key).or_default(), self.tasks.entry(tid).or_default()]
    }

    fn ask(&mut self, tid: u32, asked: Asked) {
        if self.asked.len() >= MAX_NAMED && !self.asked.contains_key(&tid) {
            self.asked.clear();
        }
        self.asked.insert(tid, asked);
        self.writing.remove(&tid);
    }

    fn touch(&mut self, key: Key, page: u64) {
        let Some(known) = self.pages.get_mut(&(key, page)) else { return };
        if known.used {
            return;
        }
        known.used = true;
        if known.ahead {
            let (tid, mapped) = (known.tid, std::mem::take(&mut known.mapped));
            for brought in self.of(key, tid) {
                brought.ahead_used += 1;
                brought.mapped -= u64::from(mapped);
            }
        }
    }

    fn map_around(&mut self, key: Key, page: u64) {
        let first = page / AROUND * AROUND;
        for near in first..first.saturating_add(AROUND) {
            let Some(known) = self.pages.get_mut(&(key, near)) else { continue };
            if known.ahead && !known.used && !known.mapped {
                known.mapped = true;
                let tid = known.tid;
                for brought in self.of(key, tid) {
                    brought.mapped += 1;
                }
            }
        }
    }

    fn file(&mut self, tid: u32, event: &FileEvent) {
        let key = (event.device, event.inode);
        let first = event.offset / PAGE_BYTES;
        let end = event.offset.saturating_add(event.bytes).div_ceil(PAGE_BYTES);
        match event.step {
            FileStep::Read => {
                self.ask(tid, Asked { file: key, first, end, by_fault: false });
                // No more pages can be there than are followed.
                for page in first..end.min(first.saturating_add(MAX_PAGES as u64)) {
                    self.touch(key, page);
                }
            }
            FileStep::Fault => {
                self.ask(tid, Asked { file: key, first, end: first.saturating_add(1), by_fault: true });
                self.touch(key, first);
                self.map_around(key, first);
            }
            FileStep::Write => {
                if self.writing.len() >= MAX_NAMED {
                    self.writing.clear();
                }
                self.writing.insert(tid, key);
                for page in first..end.min(first.saturating_add(MAX_PAGES as u64)) {
                    self.touch(key, page);
                }
            }
            FileStep::Cached => self.cached(tid, key, first, end),
            FileStep::Uncached => {
                for page in first..end.min(first.saturating_add(MAX_PAGES as u64)) {
                    let Some(gone) = self.pages.remove(&(key, page)) else { continue };
                    if gone.ahead && !gone.used && !gone.mapped {
                        for brought in self.of(key, gone.tid) {
                            brought.ahead_evicted_unused += 1;
                        }
                    }
                }
            }
            _ => {}
        }
    }

    fn cached(&mut self, tid: u32, key: Key, first: u64, end: u64) {
        // What a write brings in is the write's.
        if self.writing.get(&tid) == Some(&key) {
            return;
        }
        let asked = self.asked.get(&tid).copied().filter(|asked| asked.file == key);
        for page in first..end.min(first.saturating_add(MAX_PAGES as u64)) {
            if self.pages.len() >= MAX_PAGES {
                self.not_followed += 1;
                continue;
            }
            let requested = asked.is_some_and(|asked| (asked.first..asked.end).contains(&page));
            self.pages.insert((key, page), Page { tid, ahead: !requested, used: requested, mapped: false });
            for brought in self.of(key, tid) {
                match requested {
                    true => brought.requested += 1,
                    false => brought.ahead += 1,
                }
            }
        }
        // The fault that brought them in goes on to map those about its page.
        if let Some(asked) = asked.filter(|asked| asked.by_fault) {
            self.map_around(key, asked.first);
        }
    }
}

impl Analysis for Accuracy {
    type Output = AccuracyFindings;

    fn event(&mut self, event: &Event) {
        if let EventKind::File(file) = &event.kind {
            self.file(event.tid, file);
        }
    }

    fn finish(mut self) -> AccuracyFindings {
        let left: Vec<(Key, u32)> = self
            .pages
            .iter()
            .filter(|(_, page)| page.ahead && !page.used && !page.mapped)
            .map(|(&(key, _), page)| (key, page.tid))
            .collect();
        for (key, tid) in left {
            for brought in self.of(key, tid) {
                brought.ahead_left_unused += 1;
            }
        }
        let mut total = Brought::default();
        self.files.values().for_each(|brought| total.add(brought));
        let mut files: Vec<FileBrought> =
            self.files.into_iter().map(|((device, inode), pages)| FileBrought { device, inode, pages }).collect();
        files.sort_by_key(|file| std::cmp::Reverse((file.pages.ahead_unused(), file.pages.ahead)));
        let mut tasks: Vec<TaskBrought> =
            self.tasks.into_iter().map(|(tid, pages)| TaskBrought { tid, pages }).collect();
        tasks.sort_by_key(|task| std::cmp::Reverse((task.pages.ahead_unused(), task.pages.ahead)));
        AccuracyFindings { total, files, tasks, not_followed: self.not_followed, folded: self.folded }
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
        let pages =
            Brought { requested: 1, ahead: 3, ahead_used: 1, ahead_evicted_unused: 1, ahead_left_unused: 1, mapped: 0 };
        assert_eq!(found.total, pages);
        assert_eq!(found.files.len(), 1);
        // Task 2 brought in nothing: what it used was task 1's.
        assert_eq!(found.tasks, [TaskBrought { tid: 1, pages }]);
    }

    #[test]
    fn what_a_fault_maps_around_it_is_not_known_to_be_used() {
        use FileStep::{Cached, Fault, Read};
        let mut steps = vec![(1, Fault, 20, 0)];
        steps.extend((4..36).map(|page| (1, Cached, page, 1)));
        let found = run(&steps);
        // Of 31 pages ahead, those of 16 to 31 are mapped with the fault's own.
        assert_eq!((found.total.requested, found.total.ahead, found.total.mapped), (1, 31, 15));
        assert_eq!(found.total.ahead_unused(), 16);
        steps.push((1, Read, 17, 1));
        let found = run(&steps);
        assert_eq!((found.total.mapped, found.total.ahead_used), (14, 1));
    }

    #[test]
    fn what_is_written_is_not_read_ahead() {
        use FileStep::{Cached, Write};
        assert_eq!(run(&[(1, Write, 0, 2), (1, Cached, 0, 1), (1, Cached, 1, 1)]).total, Brought::default());
    }
}
