//! Pages in flight on a block device: the pages of a bio, from `block_bio_queue` until the whole bio is complete.
//!
//! No event names the pages of a bio. A task that adds pages requests them next, in the same order. So a bio that it queues holds the
//! pages that it added last and has not requested yet.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use flashscope_cachesim::PAGE_BYTES;
use flashscope_trace::{BlockAction, BlockEvent, FileId, RequestFlags, RequestKind, TaskId};

use crate::bounded::{BoundedMap, Full};

/// Most tasks, bios and pages of a task that are followed at once.
pub const MAX_FOLLOWED: usize = 1 << 10;
/// Most pages in flight that are followed at once.
const MAX_COMING: usize = 1 << 16;
/// An upper bound for the sectors of a bio: how far before a request's first sector its bio may begin.
const BIO_SECTORS: u64 = 1 << 13;

/// A bio in flight, with its pages.
#[derive(Clone, Debug)]
pub struct Bio<By> {
    end: u64,
    sectors_left: u64,
    pub file: Option<FileId>,
    pub pages: Vec<u64>,
    pub by: By,
}

#[derive(Debug)]
pub struct InFlight<By> {
    /// Pages that a task has added and not requested from the device yet.
    pending: BoundedMap<TaskId, VecDeque<(FileId, u64)>>,
    /// Number of these pages, for all tasks.
    pending_pages: usize,
    /// By major number and first sector: a bio names its partition, a request its disk.
    bios: BTreeMap<(u32, u64), Bio<By>>,
    coming: BTreeSet<(FileId, u64)>,
    /// A bio held pages of a task, so the trace shows the device of the files.
    asks: bool,
    /// Pages of bios that were given up: their completion was lost, or too many were in flight.
    given_up: u64,
    /// Pages that were forgotten before their bio came, because too many were waiting.
    forgotten: u64,
}

impl<By> Default for InFlight<By> {
    fn default() -> InFlight<By> {
        InFlight {
            pending: BoundedMap::new(MAX_FOLLOWED, Full::ForgetOldest),
            pending_pages: 0,
            bios: BTreeMap::new(),
            coming: BTreeSet::new(),
            asks: false,
            given_up: 0,
            forgotten: 0,
        }
    }
}

/// Whether it is a read of a block device; metadata reads count too.
pub fn is_read(event: &BlockEvent) -> bool {
    event.flags.kind() == RequestKind::Read && event.flags.has(RequestFlags::READ)
}

impl<By> InFlight<By> {
    /// Pages without a known completion: see `given_up` and `forgotten`.
    pub fn pages_given_up(&self) -> u64 {
        // Where the trace does not show the device (MTD), no page waits for a bio.
        self.given_up.saturating_add(if self.asks { self.forgotten } else { 0 })
    }

    /// Pages added before a call began or ended belong to no bio that comes later.
    pub fn forget_pending(&mut self, tid: TaskId) {
        self.pending_pages -= self.pending.remove(&tid).map_or(0, |pending| pending.len());
    }

    /// Nothing of this recording arrives in another one.
    pub fn recording_ends(&mut self) {
        self.pending.clear();
        self.pending_pages = 0;
        self.bios.clear();
        self.coming.clear();
    }

    /// Pages were added to the cache.
    pub fn added(&mut self, tid: TaskId, file: FileId, first: u64, pages: u64) {
        let mut pending = self.pending.remove(&tid).unwrap_or_default();
        // Of too many, the last ones are kept.
        let end = first.saturating_add(pages);
        for page in first.max(end.saturating_sub(MAX_FOLLOWED as u64))..end {
            match pending.len() >= MAX_FOLLOWED {
                true => self.forgotten += u64::from(pending.pop_front().is_some()),
                false => self.pending_pages += 1,
            }
            pending.push_back((file, page));
        }
        let mut gone = self.pending.insert(tid, pending);
        if gone.is_none() && self.pending_pages > MAX_COMING {
            gone = self.pending.forget_oldest();
        }
        if let Some((_, pages)) = gone {
            self.forgotten += pages.len() as u64;
            self.pending_pages -= pages.len();
        }
    }

    /// A bio was queued. Returns it, if it holds pages that its task has added.
    pub fn queued(&mut self, tid: TaskId, event: &BlockEvent, by: By) -> Option<&Bio<By>> {
        debug_assert_eq!(event.action, BlockAction::Queue);
        // The file system waits for metadata itself; it belongs to no page of a file.
        if !is_read(event) || event.flags.has(RequestFlags::META) {
            return None;
        }
        let pending = self.pending.get_mut(&tid)?;
        let count = (event.bytes / PAGE_BYTES).min(pending.len() as u64) as usize;
        let of: Vec<(FileId, u64)> = pending.drain(..count).collect();
        self.pending_pages -= count;
        self.asks |= count > 0;
        // A lost completion would keep its bio in flight for ever.
        if self.bios.len() >= MAX_FOLLOWED || self.coming.len() + of.len() > MAX_COMING {
            self.given_up += self.coming.len() as u64;
            self.bios.clear();
            self.coming.clear();
        }
        let key = (event.device.major(), event.sector);
        if let Some(old) = self.bios.remove(&key) {
            self.given_up += old.pages.len() as u64;
            self.take(&old);
        }
        self.coming.extend(&of);
        let bio = Bio {
            end: event.end(),
            sectors_left: event.end() - event.sector,
            file: of.last().map(|&(file, _)| file),
            pages: of.into_iter().map(|(_, page)| page).collect(),
            by,
        };
        self.bios.insert(key, bio);
        self.bios.get(&key)
    }

    fn take(&mut self, bio: &Bio<By>) {
        for &page in &bio.pages {
            if let Some(file) = bio.file {
                self.coming.remove(&(file, page));
            }
        }
    }

    /// Whether a request holds a part of a bio in flight.
    pub fn has_part_of(&self, event: &BlockEvent) -> bool {
        !self.parts_of(event).is_empty()
    }

    /// First sectors of the bios of which a request holds a part.
    fn parts_of(&self, event: &BlockEvent) -> Vec<u64> {
        let major = event.device.major();
        let (from, to) = (event.sector.saturating_sub(BIO_SECTORS), event.end());
        let of = self.bios.range((major, from)..(major, to.max(from)));
        of.filter(|(_, bio)| bio.end > event.sector).map(|(&(_, first), _)| first).collect()
    }

    /// A request completed. Returns the bios that it completes.
    pub fn completed(&mut self, event: &BlockEvent) -> Vec<Bio<By>> {
        let major = event.device.major();
        let mut whole = Vec::new();
        for first in self.parts_of(event) {
            let Some(bio) = self.bios.get_mut(&(major, first)) else { continue };
            let sectors = event.end().min(bio.end) - event.sector.max(first).min(bio.end);
            bio.sectors_left = bio.sectors_left.saturating_sub(sectors);
            if bio.sectors_left == 0
                && let Some(bio) = self.bios.remove(&(major, first))
            {
                self.take(&bio);
                whole.push(bio);
            }
        }
        whole
    }

    /// Whether the page is in flight.
    #[cfg(test)]
    fn is_coming(&self, file: FileId, page: u64) -> bool {
        self.coming.contains(&(file, page))
    }

    /// Number of these pages in flight.
    pub fn coming_of(&self, file: FileId, pages: Range<u64>) -> u64 {
        self.coming.range((file, pages.start)..(file, pages.end)).count() as u64
    }

    /// The pages left the cache.
    pub fn gone(&mut self, file: FileId, pages: Range<u64>) {
        let coming: Vec<_> = self.coming.range((file, pages.start)..(file, pages.end)).copied().collect();
        for page in coming {
            self.coming.remove(&page);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashscope_trace::Device;

    const FILE: FileId = FileId { device: Some(Device(7)), inode: 5 };
    const OTHER: FileId = FileId { device: Some(Device(7)), inode: 6 };

    fn block(action: BlockAction, page: u64, pages: u64) -> BlockEvent {
        crate::testing::block(action, Device(7), "R", 1000 + page * 8, pages * PAGE_BYTES)
    }

    #[test]
    fn a_page_is_on_its_way_until_all_of_its_bio_is_done() {
        let mut way = InFlight::default();
        way.added(TaskId(1), FILE, 10, 4);
        assert!(!way.is_coming(FILE, 10), "the device was not asked");
        assert!(way.queued(TaskId(2), &block(BlockAction::Queue, 0, 4), ()).is_none(), "another task's");
        assert!(way.queued(TaskId(1), &block(BlockAction::Queue, 0, 4), ()).is_some());
        assert!(way.is_coming(FILE, 10) && way.is_coming(FILE, 13) && !way.is_coming(FILE, 14));
        assert!(!way.is_coming(OTHER, 10));
        assert!(way.completed(&block(BlockAction::Complete, 0, 3)).is_empty());
        assert!(way.is_coming(FILE, 10));
        let done = way.completed(&block(BlockAction::Complete, 3, 1));
        assert_eq!(done.iter().map(|bio| (bio.file, bio.pages.len())).collect::<Vec<_>>(), [(Some(FILE), 4)]);
        assert!(!way.is_coming(FILE, 10) && !way.is_coming(FILE, 13));
        assert_eq!(way.pages_given_up(), 0);
    }

    #[test]
    fn tasks_beyond_the_most_cost_the_oldest_ones_pages() {
        let mut way = InFlight::default();
        for tid in 0..=MAX_FOLLOWED as u32 {
            way.added(TaskId(tid), FILE, 4 * u64::from(tid), 2);
        }
        assert_eq!(way.pages_given_up(), 0, "no bio was of pages: the device is not in the trace");
        assert!(way.queued(TaskId(0), &block(BlockAction::Queue, 0, 2), ()).is_none(), "it was forgotten");
        assert!(way.queued(TaskId(1), &block(BlockAction::Queue, 4, 2), ()).is_some());
        assert!(way.queued(TaskId(MAX_FOLLOWED as u32), &block(BlockAction::Queue, 8, 2), ()).is_some());
        assert_eq!(way.pages_given_up(), 2);
        // Each may have as many pages as are followed of all tasks: of more, those go that came first.
        let mut way = InFlight::default();
        let tasks = (MAX_COMING / MAX_FOLLOWED) as u32;
        (0..=tasks).for_each(|tid| way.added(TaskId(tid), FILE, 0, MAX_FOLLOWED as u64));
        assert!(way.queued(TaskId(0), &block(BlockAction::Queue, 0, 1), ()).is_none());
        assert!(way.queued(TaskId(1), &block(BlockAction::Queue, 0, 1), ()).is_some());
        assert_eq!(way.pages_given_up(), MAX_FOLLOWED as u64);
    }

    #[test]
    fn what_never_comes_back_is_given_up_and_counted() {
        let mut way = InFlight::default();
        for page in 0..=MAX_FOLLOWED as u64 {
            way.added(TaskId(1), FILE, page, 1);
            way.queued(TaskId(1), &block(BlockAction::Queue, page, 1), ());
        }
        assert_eq!(way.pages_given_up(), MAX_FOLLOWED as u64);
        assert!(!way.is_coming(FILE, 0) && way.is_coming(FILE, MAX_FOLLOWED as u64));
        // The same sectors are requested again: the first completion was lost.
        way.added(TaskId(1), OTHER, 0, 1);
        way.queued(TaskId(1), &block(BlockAction::Queue, MAX_FOLLOWED as u64, 1), ());
        assert_eq!(way.pages_given_up(), MAX_FOLLOWED as u64 + 1);
        assert!(way.is_coming(OTHER, 0) && !way.is_coming(FILE, MAX_FOLLOWED as u64));
    }
}
