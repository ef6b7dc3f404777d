//! Linux 7.2: as 6.12 (`page_cache_sync_ra`, `page_cache_async_ra`, `page_cache_ra_order`, `do_page_cache_ra` in mm/readahead.c),
//! but `file_ra_state` keeps an order and a window ends at a multiple of it, a window that reaches the file's end gets no
//! marker, and `page_cache_prev_miss` counts all the pages it looked at (mm/filemap.c). A fault on
//! an executable mapping reads forward from itself (`do_sync_mmap_readahead`, `VM_EXEC`). Its order is `exec_folio_order()`, which
//! arm64 alone defines (64 KiB, arch/arm64/include/asm/pgtable.h); elsewhere it is 0 (include/linux/pgtable.h), and the branch is
//! taken all the same: on 32-bit ARM and x86 a window that is neither rounded nor has a marker. arm64's rounding is not modelled.

use std::ops::Range;

use super::{PreviousMoves, Rules, read_in_batches, v6_12};
use crate::mapping::Mapping;

pub const SOURCE: &str = "mm/readahead.c, mm/filemap.c of Linux 7.2.13 (Debian 7.2.13-1)";

pub struct V7_2;

impl Rules for V7_2 {
    fn sync(&self, m: &mut Mapping, index: u64, pages: u64) {
        if let Some((size, ahead)) = v6_12::sync_window(m, index, pages, true) {
            self.add_window(m, index, size, ahead);
        }
    }

    fn on_mark(&self, m: &mut Mapping, index: u64, pages: u64) {
        let max = v6_12::max_pages(m, pages);
        let Some(start) = v6_12::mark_window(m, index, pages) else { return };
        // ra->order is 0 where folios are pages (page_cache_ra_order puts it back), and 2 is added here.
        let align = 1 << 2.min(max.trailing_zeros());
        let end = start.saturating_add(m.ra.size);
        let aligned = end / align * align;
        if aligned > start {
            m.ra.size -= end - aligned;
        }
        m.ra.async_size = m.ra.size;
        let size = m.ra.size;
        self.add_window(m, start, size, size);
    }

    fn read(&self, m: &mut Mapping, bytes: Range<u64>) {
        read_in_batches(self, m, bytes, PreviousMoves::AtTheEnd);
    }

    /// The window from the fault on, no farther than the mapping goes. Such faults are no misses of mapped reads.
    fn executable(&self, m: &mut Mapping, index: u64, first: u64, end: u64) -> Option<()> {
        m.ra.start = index.max(first);
        m.ra.size = m.ra.start.saturating_add(m.ra.ra_pages).min(end).saturating_sub(m.ra.start);
        m.ra.async_size = 0;
        let (start, size) = (m.ra.start, m.ra.size);
        self.add_window(m, start, size, 0);
        Some(())
    }

    /// `do_page_cache_ra`: what reaches the file's end is not marked.
    fn add_window(&self, m: &mut Mapping, start: u64, size: u64, ahead: u64) {
        let reaches_end = m.end_index().is_some_and(|end| size > end.saturating_sub(start));
        m.add_within(start, size, if reaches_end { 0 } else { ahead });
    }
}
