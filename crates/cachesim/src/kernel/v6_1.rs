//! Linux 6.1: `page_cache_sync_ra`, `page_cache_async_ra`, `ondemand_readahead`, `try_context_readahead`,
//! `page_cache_ra_order`, `do_page_cache_ra`, `force_page_cache_ra` (mm/readahead.c), `filemap_read`, `filemap_get_pages`,
//! `filemap_fault`, `page_cache_prev_miss`, `page_cache_next_miss` (mm/filemap.c), `generic_fadvise` (mm/fadvise.c).

use std::ops::Range;

use super::{PreviousMoves, Rules, read_in_batches};
use crate::mapping::{Mapping, initial_size, next_size};

pub const SOURCE: &str = "mm/readahead.c, mm/filemap.c of Linux 6.1.176 (Debian 6.1.176-1)";

pub struct V6_1;

impl Rules for V6_1 {
    fn sync(&self, m: &mut Mapping, index: u64, pages: u64) {
        sync(m, index, pages);
    }

    fn on_mark(&self, m: &mut Mapping, index: u64, pages: u64) {
        on_mark(m, index, pages);
    }

    fn read(&self, m: &mut Mapping, bytes: Range<u64>) {
        read_in_batches(self, m, bytes, PreviousMoves::WithEachBatch);
    }
}

/// `page_cache_sync_ra`: with read-ahead off just the one page, with `POSIX_FADV_RANDOM` just the request.
pub fn sync(m: &mut Mapping, index: u64, pages: u64) {
    if m.ra.ra_pages == 0 {
        m.force(index, 1);
    } else if m.ra.random {
        m.force(index, pages);
    } else {
        ondemand(m, false, index, pages);
    }
}

/// `page_cache_async_ra`.
pub fn on_mark(m: &mut Mapping, index: u64, pages: u64) {
    if m.ra.ra_pages == 0 {
        return;
    }
    m.clear_mark(index);
    ondemand(m, true, index, pages);
}

/// `ondemand_readahead`, all folios of one page.
fn ondemand(m: &mut Mapping, hit_mark: bool, index: u64, pages: u64) {
    let mut max = m.ra.ra_pages;
    // A request larger than the window may go up to the device's best request.
    if pages > max && m.io_pages > max {
        max = pages.min(m.io_pages);
    }
    let expected = m.ra.start.wrapping_add(m.ra.size).wrapping_sub(m.ra.async_size);
    if index == 0 {
        initial(m, index, pages, max);
    } else if index == expected || index == m.ra.start.wrapping_add(m.ra.size) {
        m.ra.start = m.ra.start.wrapping_add(m.ra.size);
        // At least as large as before: the size may exceed the window (MADV_HUGEPAGE, and expansion by a file system).
        m.ra.size = m.ra.size.max(next_size(m.ra.size, max));
        m.ra.async_size = m.ra.size;
    } else if hit_mark {
        // A stream among others: the next hole shows how far it has been read ahead.
        let ahead = 1 + m.run(index.saturating_add(1), max.saturating_sub(1));
        m.ra.start = index.saturating_add(ahead);
        m.ra.size = next_size(ahead.saturating_add(pages), max);
        m.ra.async_size = m.ra.size;
    } else if pages > max || m.follows(index) {
        initial(m, index, pages, max);
    } else if !context(m, index, pages, max) {
        // A small read on its own: just what was requested, and the window is left as it is.
        m.add_within(index, pages, 0);
        return;
    }
    submit(m, index, max);
}

fn initial(m: &mut Mapping, index: u64, pages: u64, max: u64) {
    m.ra.start = index;
    m.ra.size = initial_size(pages, max);
    m.ra.async_size = if m.ra.size > pages { m.ra.size - pages } else { m.ra.size };
}

/// `try_context_readahead` with `count_history_pages`: pages that a sequential stream would have left behind. `max` pages that
/// are all cached count as one less (`page_cache_prev_miss` names the last that it looked at; mended later than 6.1).
fn context(m: &mut Mapping, index: u64, pages: u64, max: u64) -> bool {
    let mut history = m.history(index, max);
    if history == max && max > 0 {
        history -= 1;
    }
    if history <= pages {
        return false;
    }
    if history >= index {
        history *= 2;
    }
    m.ra.start = index;
    m.ra.size = history.saturating_add(pages).min(max);
    m.ra.async_size = 1;
    true
}

/// `readit:` a window that would hit its own marker is merged with the next one.
fn submit(m: &mut Mapping, index: u64, max: u64) {
    if index == m.ra.start && m.ra.size == m.ra.async_size {
        let more = next_size(m.ra.size, max);
        if m.ra.size.saturating_add(more) <= max {
            m.ra.async_size = more;
            m.ra.size += more;
        } else {
            m.ra.size = max;
            m.ra.async_size = max / 2;
        }
    }
    let (start, size, ahead) = (m.ra.start, m.ra.size, m.ra.async_size);
    m.add_within(start, size, ahead);
}
