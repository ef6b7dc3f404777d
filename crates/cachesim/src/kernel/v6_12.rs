//! Linux 6.12: `page_cache_sync_ra` and `page_cache_async_ra` decide each for itself (`ondemand_readahead` is gone),
//! `page_cache_ra_order`, `do_page_cache_ra` (mm/readahead.c), `filemap_read`, `page_cache_next_miss` (mm/filemap.c). A window
//! no longer merges with the next where it would hit its own marker: half of it becomes its asynchronous part. Only a mark
//! advances a window; a miss at its end is a sequential miss like others.

use std::ops::Range;

use super::{PreviousMoves, Rules, read_in_batches};
use crate::mapping::{Mapping, initial_size, next_size};

pub const SOURCE: &str = "mm/readahead.c, mm/filemap.c of Linux 6.12.117 (Debian 6.12.117-1~deb12u1)";

pub struct V6_12;

impl Rules for V6_12 {
    fn sync(&self, m: &mut Mapping, index: u64, pages: u64) {
        if let Some((size, ahead)) = sync_window(m, index, pages, false) {
            m.add_within(index, size, ahead);
        }
    }

    fn on_mark(&self, m: &mut Mapping, index: u64, pages: u64) {
        if let Some(start) = mark_window(m, index, pages) {
            m.ra.async_size = m.ra.size;
            let size = m.ra.size;
            m.add_within(start, size, size);
        }
    }

    fn read(&self, m: &mut Mapping, bytes: Range<u64>) {
        read_in_batches(self, m, bytes, PreviousMoves::AtTheEnd);
    }
}

/// `ractl_max_pages`.
pub fn max_pages(m: &Mapping, pages: u64) -> u64 {
    let max = m.ra.ra_pages;
    if pages > max && m.io_pages > max { pages.min(m.io_pages) } else { max }
}

/// `page_cache_sync_ra` up to the window: its size and asynchronous part; `None` where all is done. `whole_history`: as many
/// cached pages as are looked at count in full (`page_cache_prev_miss` was mended in 6.18), else as one less.
pub fn sync_window(m: &mut Mapping, index: u64, pages: u64, whole_history: bool) -> Option<(u64, u64)> {
    if m.ra.ra_pages == 0 {
        m.force(index, 1);
        return None;
    }
    if m.ra.random {
        m.force(index, pages);
        return None;
    }
    let max = max_pages(m, pages);
    if index == 0 || pages > max || m.follows(index) {
        m.ra.start = index;
        m.ra.size = initial_size(pages, max);
        m.ra.async_size = if m.ra.size > pages { m.ra.size - pages } else { m.ra.size / 2 };
        return Some((m.ra.size, m.ra.async_size));
    }
    let mut history = m.history(index, max);
    if history == max && !whole_history {
        history -= 1;
    }
    if history <= pages {
        m.add_within(index, pages, 0);
        return None;
    }
    // All pages from the file's begin on: `miss == ULONG_MAX`, seen only where the scan gets there.
    if history == index {
        history *= 2;
    }
    m.ra.start = index;
    m.ra.size = history.saturating_add(pages).min(max);
    m.ra.async_size = 1;
    Some((m.ra.size, 1))
}

/// `page_cache_async_ra` up to the window's start and size; `None` where nothing is to be done.
pub fn mark_window(m: &mut Mapping, index: u64, pages: u64) -> Option<u64> {
    if m.ra.ra_pages == 0 {
        return None;
    }
    m.clear_mark(index);
    let max = max_pages(m, pages);
    let expected = m.ra.start.wrapping_add(m.ra.size).wrapping_sub(m.ra.async_size);
    if index == expected {
        m.ra.start = m.ra.start.wrapping_add(m.ra.size);
        m.ra.size = m.ra.size.max(next_size(m.ra.size, max));
        return Some(m.ra.start);
    }
    // page_cache_next_miss: with no hole among the `max` pages that are looked at, the start lies beyond the limit.
    let ahead = 1 + m.run(index.saturating_add(1), max);
    if ahead > max {
        return None;
    }
    m.ra.start = index.saturating_add(ahead);
    m.ra.size = next_size(ahead.saturating_add(pages), max);
    Some(m.ra.start)
}
