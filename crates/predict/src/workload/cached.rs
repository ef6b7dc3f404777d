//! The cached pages of files, as far as a trace shows: runs of pages, in bounded memory.

use std::collections::HashMap;
use std::ops::Range;

use flashscope_trace::FileId;

use flashscope_analysis::bounded::{Full, Ranges};

/// Most runs of pages; beyond, the oldest are forgotten.
const MAX_RUNS: usize = 1 << 18;
/// Most pages that were cached before the recording began: as many as a cache of 1 GiB holds.
const MOST_BEFORE: u64 = 1 << 18;

/// Pages that were added and not removed yet, and pages that a read found although they were never added.
#[derive(Debug)]
pub struct Cached {
    there: Ranges<FileId, ()>,
    before: Ranges<FileId, ()>,
    before_pages: u64,
    /// Number of cached pages of each file.
    counts: HashMap<FileId, u64>,
    /// Pages that were forgotten, although they are cached or were before the recording.
    pub forgotten: u64,
}

impl Default for Cached {
    fn default() -> Cached {
        let runs = || Ranges::new(MAX_RUNS, Full::ForgetOldest);
        Cached { there: runs(), before: runs(), before_pages: 0, counts: HashMap::new(), forgotten: 0 }
    }
}

impl Cached {
    /// Whether a page of this file is known to be cached.
    pub fn knows(&self, file: FileId) -> bool {
        self.counts.contains_key(&file)
    }

    /// Pages are added. Returns those that were not cached.
    pub fn add(&mut self, file: FileId, pages: Range<u64>) -> Vec<Range<u64>> {
        self.change(file, pages, true)
    }

    /// Pages are removed. Returns those that were cached, run by run, each with whether it was the file's last.
    /// `taken_back`: their reader removed them itself, as part of the read.
    pub fn left(&mut self, file: FileId, pages: Range<u64>, taken_back: bool) -> Vec<(Range<u64>, bool)> {
        let runs = self.change(file, pages, false);
        let left = runs.into_iter().map(|run| {
            self.fewer(file, run.end - run.start);
            let is_last = !self.knows(file);
            (run, is_last)
        });
        left.filter(|_| !taken_back).collect()
    }

    /// Sets whether these pages are cached. Returns those that change, and counts them where they come.
    fn change(&mut self, file: FileId, pages: Range<u64>, cached: bool) -> Vec<Range<u64>> {
        let (mut changed, mut gone) = (Vec::new(), Vec::new());
        let end = pages.end;
        let set = |run: Range<u64>, there: Option<()>| {
            if there.is_some() != cached {
                changed.push(run);
            }
            cached.then_some(())
        };
        let reached = self.there.update(file, pages, set, |of, run, ()| gone.push((of, run.end - run.start)));
        if cached && !changed.is_empty() {
            *self.counts.entry(file).or_default() += changed.iter().map(|run| run.end - run.start).sum::<u64>();
        }
        self.forgotten = self.forgotten.saturating_add(end - reached);
        for (of, pages) in gone {
            self.forgotten = self.forgotten.saturating_add(pages);
            self.fewer(of, pages);
        }
        changed
    }

    /// A read found these pages: those that were never added were cached before.
    pub fn found(&mut self, file: FileId, pages: Range<u64>) {
        let room = MOST_BEFORE - self.before_pages;
        let end = pages.start.saturating_add(room).min(pages.end);
        self.forgotten = self.forgotten.saturating_add(pages.end.saturating_sub(end));
        if end <= pages.start {
            return;
        }
        for run in self.add(file, pages.start..end) {
            self.before_pages += run.end - run.start;
            let lost = |_, run: Range<u64>, ()| self.forgotten = self.forgotten.saturating_add(run.end - run.start);
            self.before.update(file, run, |_, _| Some(()), lost);
        }
    }

    fn fewer(&mut self, file: FileId, pages: u64) {
        if let Some(left) = self.counts.get_mut(&file) {
            *left = left.saturating_sub(pages);
            if *left == 0 {
                self.counts.remove(&file);
            }
        }
    }

    /// Pages that were cached before the recording, in order.
    pub fn before(&self) -> Vec<(FileId, Range<u64>)> {
        self.before.iter().map(|(file, run, ())| (file, run)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = FileId { device: None, inode: 1 };

    #[test]
    fn what_came_leaves_run_by_run() {
        let mut cached = Cached::default();
        let new = [cached.add(FILE, 0..10), cached.add(FILE, 5..12)];
        assert_eq!(new.concat(), [0..10, 10..12]);
        cached.add(FILE, 20..30);
        assert_eq!(cached.left(FILE, 8..25, false), [(8..12, false), (20..25, false)]);
        assert_eq!(cached.left(FILE, 0..u64::MAX, false), [(0..8, false), (25..30, true)]);
        assert!(!cached.knows(FILE) && cached.left(FILE, 0..9, false).is_empty());
        // Two pages that read-ahead takes back are not cached any more: the next two are the last.
        cached.add(FILE, 0..4);
        assert_eq!(cached.left(FILE, 0..2, true), []);
        assert_eq!(cached.left(FILE, 2..4, false), [(2..4, true)]);
        cached.found(FILE, 3..5);
        assert_eq!((cached.before(), cached.forgotten), (vec![(FILE, 3..5)], 0));
    }

    #[test]
    fn memory_is_bounded_and_what_is_forgotten_is_counted() {
        let mut cached = Cached::default();
        cached.found(FILE, 0..u64::MAX);
        assert_eq!(cached.forgotten, u64::MAX - MOST_BEFORE);
        let mut cached = Cached::default();
        for inode in 0..MAX_RUNS as u64 + 7 {
            cached.add(FileId { inode, ..FILE }, 0..3);
        }
        assert_eq!((cached.forgotten, cached.counts.len()), (21, MAX_RUNS));
    }
}
