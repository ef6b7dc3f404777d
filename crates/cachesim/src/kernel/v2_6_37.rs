//! Linux 2.6.37, the paper's kernel: `ondemand_readahead`, `try_context_readahead`, `force_page_cache_readahead`
//! (mm/readahead.c), `do_generic_file_read`, `do_sync_mmap_readahead`, `do_async_mmap_readahead` (mm/filemap.c).
//!
//! Read in trees of 3.0 (mm/readahead.c) and 2.6.35 (mm/filemap.c), between which these functions did not change but for the
//! plugging of queues. Context read-ahead takes any cached page before the request as the trace of a stream, which is what made
//! random reads prefetch; 3.12 (commit 2cad40180197) wants more of them than are requested. A window that is merged with the
//! next may become twice the largest one, which 4.x mended. The limit by free memory (`max_sane_readahead`) is not modelled.

use std::ops::Range;

use super::{Rules, read_by_page};
use crate::mapping::{MMAP_LOTS_OF_MISSES, Mapping, initial_size, next_size};
use crate::types::MapAdvice;

pub const SOURCE: &str = "mm/readahead.c of Linux 3.0 and mm/filemap.c of 2.6.35, as they were in 2.6.37";

pub struct V2_6_37;

impl Rules for V2_6_37 {
    fn sync(&self, m: &mut Mapping, index: u64, pages: u64) {
        if m.ra.ra_pages == 0 {
            return;
        }
        if m.ra.random {
            self.will_need(m, index, pages);
        } else {
            ondemand(m, false, index, pages);
        }
    }

    fn on_mark(&self, m: &mut Mapping, index: u64, pages: u64) {
        if m.ra.ra_pages == 0 {
            return;
        }
        m.clear_mark(index);
        ondemand(m, true, index, pages);
    }

    fn read(&self, m: &mut Mapping, bytes: Range<u64>) {
        read_by_page(self, m, bytes);
    }

    /// No limit but memory, whatever the window: with read-ahead off too.
    fn will_need(&self, m: &mut Mapping, index: u64, pages: u64) {
        m.add_within(index, pages, 0);
    }

    fn fault(&self, m: &mut Mapping, index: u64, advice: MapAdvice) {
        if m.end_index().is_none_or(|end| index > end) {
            return;
        }
        let random = advice == MapAdvice::Random;
        if m.has(index) {
            if !random {
                m.ra.mmap_miss = m.ra.mmap_miss.saturating_sub(1);
                if m.marked(index) {
                    let pages = m.ra.ra_pages;
                    self.on_mark(m, index, pages);
                }
            }
        } else {
            if !random {
                self.miss(m, index, advice);
            }
        }
        m.bring(index);
        m.uses(index);
        // No fault-around before 3.15.
        m.touch(index);
        m.cache.set_mapped(m.file, index);
        m.ra.prev_pos = Some(index.saturating_mul(crate::PAGE_BYTES));
    }
}

impl V2_6_37 {
    fn miss(&self, m: &mut Mapping, index: u64, advice: MapAdvice) {
        let after_previous = m.ra.prev_pos.is_some_and(|pos| index.checked_sub(1) == Some(pos / crate::PAGE_BYTES));
        if advice == MapAdvice::Sequential || after_previous {
            let pages = m.ra.ra_pages;
            self.sync(m, index, pages);
            return;
        }
        m.ra.mmap_miss = m.ra.mmap_miss.saturating_add(1);
        if m.ra.mmap_miss > MMAP_LOTS_OF_MISSES || m.ra.ra_pages == 0 {
            return;
        }
        m.ra.start = index.saturating_sub(m.ra.ra_pages / 2);
        m.ra.size = m.ra.ra_pages;
        m.ra.async_size = 0;
        let (start, size) = (m.ra.start, m.ra.size);
        m.add_within(start, size, 0);
    }
}

fn ondemand(m: &mut Mapping, hit_mark: bool, index: u64, pages: u64) {
    let max = m.ra.ra_pages;
    let expected = m.ra.start.wrapping_add(m.ra.size).wrapping_sub(m.ra.async_size);
    if index == 0 {
        initial(m, index, pages, max);
    } else if index == expected || index == m.ra.start.wrapping_add(m.ra.size) {
        m.ra.start = m.ra.start.wrapping_add(m.ra.size);
        m.ra.size = next_size(m.ra.size, max);
        m.ra.async_size = m.ra.size;
    } else if hit_mark {
        let ahead = 1 + m.run(index.saturating_add(1), max);
        // radix_tree_next_hole looks at `max` pages: with no hole among them the start lies beyond the limit.
        if ahead > max {
            return;
        }
        m.ra.start = index.saturating_add(ahead);
        m.ra.size = next_size(ahead.saturating_add(pages), max);
        m.ra.async_size = m.ra.size;
    } else if pages > max || m.follows(index) {
        initial(m, index, pages, max);
    } else {
        let mut history = m.history(index, max);
        if history == 0 {
            m.add_within(index, pages, 0);
            return;
        }
        if history >= index {
            history *= 2;
        }
        m.ra.start = index;
        m.ra.size = initial_size(history.saturating_add(pages), max);
        m.ra.async_size = m.ra.size;
    }
    if index == m.ra.start && m.ra.size == m.ra.async_size {
        m.ra.async_size = next_size(m.ra.size, max);
        m.ra.size = m.ra.size.saturating_add(m.ra.async_size);
    }
    let (start, size, ahead) = (m.ra.start, m.ra.size, m.ra.async_size);
    m.add_within(start, size, ahead);
}

fn initial(m: &mut Mapping, index: u64, pages: u64, max: u64) {
    m.ra.start = index;
    m.ra.size = initial_size(pages, max);
    m.ra.async_size = if m.ra.size > pages { m.ra.size - pages } else { m.ra.size };
}
