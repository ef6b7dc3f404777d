//! One open file under a kernel's rules: `struct address_space` and `struct file_ra_state` together, with the operations that
//! all generations share.

pub mod squashfs;
pub mod ubifs;

use self::squashfs::{Buffer, Squashfs};
use self::ubifs::Bulk;
use crate::PAGE_BYTES;
use crate::cache::{Flags, PageCache};
use crate::types::{Cause, PageStep};

/// `struct file_ra_state` (include/linux/fs.h), and the mode bit of `POSIX_FADV_RANDOM`.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub start: u64,
    pub size: u64,
    pub async_size: u64,
    /// Largest window, pages.
    pub ra_pages: u64,
    /// Misses of mapped reads minus their hits.
    pub mmap_miss: u64,
    /// Page of the last fault on a sequential mapping, with [`crate::Settings::faults_of_another`].
    pub faulted: Option<u64>,
    /// Byte behind the last read (kernels differ in which byte exactly); `None` before the first.
    pub prev_pos: Option<u64>,
    pub random: bool,
}

/// Pages of one fault-around: `fault_around_bytes`, 64 KiB since Linux 3.15 (mm/memory.c).
const FAULT_AROUND_PAGES: u64 = 16;
/// `MMAP_LOTSAMISS` (mm/filemap.c): with this many more misses than hits, mapped reads no longer read around.
pub const MMAP_LOTS_OF_MISSES: u64 = 100;
/// 2 MiB: `force_page_cache_ra` reads in pieces of this size.
const CHUNK_PAGES: u64 = (2 << 20) / PAGE_BYTES;

pub struct Mapping<'a> {
    pub cache: &'a mut PageCache,
    pub file: u32,
    /// `i_size`, bytes.
    pub size: u64,
    pub ra: &'a mut Window,
    /// `bdi->io_pages`.
    pub io_pages: u64,
    /// How squashfs reads this file; `None` on other file systems, where pages are read singly.
    pub squashfs: Option<Squashfs>,
    /// How UBIFS mounted with `bulk_read` reads this file; else `None`.
    pub bulk: Option<Bulk<'a>>,
    /// First page that the caller requested, and the page behind the last: all others are read-ahead.
    pub requested: (u64, u64),
    /// Whether [`PageStep::Used`] is reported.
    pub tells_uses: bool,
    /// Whether [`PageStep::Block`] is reported.
    pub tells_blocks: bool,
    pub buffer: &'a mut Buffer,
    /// File, page, step.
    pub out: &'a mut dyn FnMut(u32, u64, PageStep),
}

impl Mapping<'_> {
    pub fn has(&self, page: u64) -> bool {
        self.cache.has(self.file, page)
    }

    pub fn flags(&self, page: u64) -> Option<Flags> {
        self.cache.flags(self.file, page)
    }

    pub fn marked(&self, page: u64) -> bool {
        self.flags(page).is_some_and(|flags| flags.marked)
    }

    pub fn clear_mark(&mut self, page: u64) {
        self.cache.clear_mark(self.file, page);
    }

    pub fn touch(&mut self, page: u64) {
        self.cache.touch(self.file, page);
    }

    /// The reader uses the page: it waits here until the page is read.
    pub fn uses(&mut self, page: u64) {
        if self.tells_uses {
            (self.out)(self.file, page, PageStep::Used);
        }
    }

    /// The block that begins with this page is read from the device.
    pub fn reads_block(&mut self, first: u64) {
        if self.tells_blocks {
            (self.out)(self.file, first, PageStep::Block);
        }
    }

    /// Brings in a page that is used and was not read ahead: adds it where it is missing, and reads it (`read_folio`).
    pub fn bring(&mut self, page: u64) {
        let flags = self.flags(page);
        if flags.is_none() {
            self.add(page, false);
        }
        if flags.is_none_or(|flags| flags.empty) {
            if self.squashfs.is_some() {
                squashfs::read_folio(self, page);
            } else if self.bulk.is_some() {
                ubifs::read_folio(self, page);
            }
        }
    }

    /// Adds one page where it is missing.
    pub fn add(&mut self, page: u64, marked: bool) {
        if self.has(page) {
            return;
        }
        let cause =
            if (self.requested.0..self.requested.1).contains(&page) { Cause::Request } else { Cause::ReadAhead };
        self.add_for(page, marked, cause);
    }

    pub fn add_for(&mut self, page: u64, marked: bool, cause: Cause) {
        if let Some(removed) = self.cache.insert(self.file, page, marked) {
            (self.out)(removed.file, removed.page, PageStep::Evicted { used: removed.used });
        }
        (self.out)(self.file, page, PageStep::Added { cause });
    }

    /// Index of the file's last page; `None` for an empty file.
    pub fn end_index(&self) -> Option<u64> {
        Some(self.size.checked_sub(1)? / PAGE_BYTES)
    }

    /// Removes a page that was added and not filled.
    pub fn take_back(&mut self, page: u64) {
        if let Some(removed) = self.cache.remove(self.file, page) {
            (self.out)(self.file, page, PageStep::TakenBack { used: removed.used });
        }
    }

    /// `page_cache_ra_unbounded`: adds the missing pages of a range; page `marked` gets PG_readahead where it was missing.
    /// A range longer than the whole cache is cut: a kernel would run out of memory first.
    pub fn add_range(&mut self, start: u64, pages: u64, marked: Option<u64>) {
        let pages = pages.min(self.cache.budget() as u64);
        if let Some(squashfs) = self.squashfs {
            squashfs::add_range(self, squashfs, start, start.saturating_add(pages), marked);
            return;
        }
        if let Some(bulk) = self.bulk {
            ubifs::add_range(self, bulk.windows_locked, start, start.saturating_add(pages), marked);
            return;
        }
        for page in start..start.saturating_add(pages) {
            self.add(page, marked == Some(page));
        }
    }

    /// `do_page_cache_ra` (before 5.10 `__do_page_cache_readahead`): [`Mapping::add_range`] cut at the file's end. The marker's place
    /// counts from the end of the cut range; a place before its begin means no marker (unsigned arithmetic).
    pub fn add_within(&mut self, start: u64, pages: u64, lookahead: u64) {
        let Some(end) = self.end_index().filter(|&end| start <= end) else { return };
        let pages = pages.min(end - start + 1);
        self.add_range(start, pages, pages.checked_sub(lookahead).map(|at| start + at));
    }

    /// `force_page_cache_ra`, from 5.10 on: no more than the larger of the window and the device's best request.
    pub fn force(&mut self, start: u64, pages: u64) {
        let mut left = pages.min(self.io_pages.max(self.ra.ra_pages)).min(self.cache.budget() as u64);
        let mut at = start;
        while left > 0 && self.end_index().is_some_and(|end| at <= end) {
            let chunk = left.min(CHUNK_PAGES);
            self.add_within(at, chunk, 0);
            at = at.saturating_add(chunk);
            left -= chunk;
        }
    }

    /// Cached pages before `index`, at most `limit`.
    pub fn history(&self, index: u64, limit: u64) -> u64 {
        let mut pages = 0;
        while pages < limit && pages < index && self.has(index - 1 - pages) {
            pages += 1;
        }
        pages
    }

    /// Cached pages from `index` on, at most `limit`.
    pub fn run(&self, index: u64, limit: u64) -> u64 {
        let mut pages = 0;
        while pages < limit && self.has(index.saturating_add(pages)) {
            pages += 1;
        }
        pages
    }

    /// The kernel's test for a sequential read: `index - prev_index` is 0 or 1.
    pub fn follows(&self, index: u64) -> bool {
        self.ra.prev_pos.is_some_and(|pos| index.wrapping_sub(pos / PAGE_BYTES) <= 1)
    }

    /// `do_fault_around`: maps the cached pages around a fault, which leaves no event. Marked ones are skipped
    /// (`next_uptodate_page`). Each mapped page counts as a hit of mapped reads.
    pub fn map_around(&mut self, page: u64) {
        let first = page / FAULT_AROUND_PAGES * FAULT_AROUND_PAGES;
        self.cache.set_mapped(self.file, page);
        for near in first..first + FAULT_AROUND_PAGES {
            if self.flags(near).is_some_and(|flags| !flags.marked && !flags.empty) {
                self.ra.mmap_miss = self.ra.mmap_miss.saturating_sub(1);
                self.cache.set_mapped(self.file, near);
            }
        }
    }
}

/// `get_init_ra_size`, the same in all generations: the first window for a request of `size` pages.
pub fn initial_size(size: u64, max: u64) -> u64 {
    let rounded = size.max(1).checked_next_power_of_two().unwrap_or(max);
    if rounded <= max / 32 {
        rounded * 4
    } else if rounded <= max / 4 {
        rounded * 2
    } else {
        max
    }
}

/// `get_next_ra_size`: the window after one of `current` pages.
pub fn next_size(current: u64, max: u64) -> u64 {
    let next = if current < max / 16 { current.saturating_mul(4) } else { current.saturating_mul(2) };
    next.min(max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_grow_as_the_kernel_s() {
        // Of the comment above get_init_ra_size: with 32 pages, 1-2 pages give 16k... 5-8 pages 64k, more than 8 the most.
        let first: Vec<u64> = [1, 2, 3, 5, 8, 9, 32].iter().map(|&size| initial_size(size, 32)).collect();
        assert_eq!(first, [4, 4, 8, 16, 16, 32, 32]);
        assert_eq!([1, 2, 16, 31, 32].map(|size| next_size(size, 32)), [4, 4, 32, 32, 32]);
        assert_eq!((initial_size(u64::MAX, 9), next_size(u64::MAX, u64::MAX)), (9, u64::MAX));
    }
}
