//! The rules of each kernel generation, and the choice of one for a kernel's release.

mod v2_6_37;
mod v5_10;
mod v6_1;
mod v6_12;
mod v7_2;

use std::ops::Range;

use crate::PAGE_BYTES;
use crate::mapping::{MMAP_LOTS_OF_MISSES, Mapping};
use crate::types::{Choice, Kernel, MapAdvice};

impl Kernel {
    pub const ALL: [Kernel; 5] = [Kernel::V2_6_37, Kernel::V5_10, Kernel::V6_1, Kernel::V6_12, Kernel::V7_2];

    pub fn name(self) -> &'static str {
        match self {
            Kernel::V2_6_37 => "2.6.37",
            Kernel::V5_10 => "5.10",
            Kernel::V6_1 => "6.1",
            Kernel::V6_12 => "6.12",
            Kernel::V7_2 => "7.2",
        }
    }

    /// The kernel source that the model follows, with its patch level.
    pub fn source(self) -> &'static str {
        match self {
            Kernel::V2_6_37 => v2_6_37::SOURCE,
            Kernel::V5_10 => v5_10::SOURCE,
            Kernel::V6_1 => v6_1::SOURCE,
            Kernel::V6_12 => v6_12::SOURCE,
            Kernel::V7_2 => v7_2::SOURCE,
        }
    }

    /// The model for a release (`6.1.0-50-armmp`) or a line's name; `newest` is the newest model. `None` where there is no
    /// version in the text.
    ///
    /// The nearest is the one whose rules the release has, as far as the history of mm/readahead.c is known: 3.12 made context
    /// read-ahead conservative (commit 2cad40180197), 6.10 to 6.12 split `ondemand_readahead` in two, 6.16 gave
    /// `file_ra_state` its order.
    pub fn nearest(release: &str) -> Option<Choice> {
        if release == "newest" {
            return Some(Choice { kernel: Kernel::V7_2, exact: true });
        }
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|text| text.parse::<u64>().ok());
        let version = (numbers.next()??, numbers.next()??, numbers.next().flatten().unwrap_or(0));
        let (kernel, exact) = match version {
            v if v < (3, 12, 0) => (Kernel::V2_6_37, v == (2, 6, 37)),
            v if v < (5, 17, 0) => (Kernel::V5_10, (v.0, v.1) == (5, 10)),
            v if v < (6, 10, 0) => (Kernel::V6_1, (v.0, v.1) == (6, 1)),
            v if v < (6, 16, 0) => (Kernel::V6_12, (v.0, v.1) == (6, 12)),
            v => (Kernel::V7_2, (v.0, v.1) == (7, 2)),
        };
        Some(Choice { kernel, exact })
    }

    pub(crate) fn rules(self) -> &'static dyn Rules {
        match self {
            Kernel::V2_6_37 => &v2_6_37::V2_6_37,
            Kernel::V5_10 => &v5_10::V5_10,
            Kernel::V6_1 => &v6_1::V6_1,
            Kernel::V6_12 => &v6_12::V6_12,
            Kernel::V7_2 => &v7_2::V7_2,
        }
    }
}

/// The rules that differ between kernels. `from` is a byte, `index` a page, `pages` how many pages the caller still wants.
pub(crate) trait Rules: Sync {
    /// A miss: `page_cache_sync_ra`.
    fn sync(&self, m: &mut Mapping, index: u64, pages: u64);

    /// A marked page is used: `page_cache_async_ra`. It clears the mark itself.
    fn on_mark(&self, m: &mut Mapping, index: u64, pages: u64);

    /// `read()` of a range of bytes, not empty.
    fn read(&self, m: &mut Mapping, bytes: Range<u64>);

    /// A fault on a page that is not mapped: `filemap_fault`.
    fn fault(&self, m: &mut Mapping, index: u64, advice: MapAdvice) {
        fault(self, m, index, advice);
    }

    /// A fault on a page that is not cached, in an executable mapping of these pages. `None`: treated as any other fault.
    fn executable(&self, _m: &mut Mapping, _index: u64, _first: u64, _end: u64) -> Option<()> {
        None
    }

    /// Adds a window's pages, of which the last `ahead` are its asynchronous part: `do_page_cache_ra`.
    fn add_window(&self, m: &mut Mapping, start: u64, size: u64, ahead: u64) {
        m.add_within(start, size, ahead);
    }

    /// `POSIX_FADV_WILLNEED`, `readahead()`, `MADV_WILLNEED`.
    fn will_need(&self, m: &mut Mapping, index: u64, pages: u64) {
        m.force(index, pages);
    }
}

/// When a read updates `file_ra_state.prev_pos`.
#[derive(Clone, Copy, PartialEq)]
enum PreviousMoves {
    /// With each batch of folios that is copied (6.1).
    WithEachBatch,
    /// When the read is over (from 6.10 on).
    AtTheEnd,
}

/// `filemap_read` and `filemap_get_pages` (mm/filemap.c), from 5.12 on. A batch ends behind a marked folio, at a hole or with
/// the read; where it is cut for being full makes no difference here.
fn read_in_batches<R: Rules + ?Sized>(rules: &R, m: &mut Mapping, bytes: Range<u64>, moves: PreviousMoves) {
    let Range { start: from, end } = bytes;
    let last = end.div_ceil(PAGE_BYTES);
    let mut at = from;
    while at < end && at < m.size {
        let index = at / PAGE_BYTES;
        let mut count = batch(m, index, last);
        if count == 0 {
            rules.sync(m, index, last - index);
            count = batch(m, index, last);
        }
        if count == 0 {
            // filemap_create_folio
            m.bring(index);
            m.uses(index);
            count = 1;
        } else {
            let tail = index + count - 1;
            let flags = m.flags(tail);
            // What is still on its way ends a batch as well: the reader comes to the mark when it has waited for all before it.
            (index..tail).for_each(|page| m.uses(page));
            if flags.is_some_and(|flags| flags.marked) {
                rules.on_mark(m, tail, last - tail);
            }
            // filemap_update_page
            if flags.is_some_and(|flags| flags.empty) {
                m.bring(tail);
            }
            m.uses(tail);
        }
        for page in index..index + count {
            m.touch(page);
        }
        at = ((index + count).saturating_mul(PAGE_BYTES)).min(end).min(m.size);
        if moves == PreviousMoves::WithEachBatch {
            m.ra.prev_pos = Some(at);
        }
    }
    if at > from {
        m.ra.prev_pos = Some(at);
    }
}

/// `filemap_get_read_batch`: cached pages from `index` on, up to and with the first that is marked or has yet to be read in.
fn batch(m: &Mapping, index: u64, last: u64) -> u64 {
    let mut pages = 0;
    while index + pages < last
        && let Some(flags) = m.flags(index + pages)
    {
        pages += 1;
        if flags.marked || flags.empty {
            break;
        }
    }
    pages
}

/// `do_generic_file_read`, since 4.10 `generic_file_buffered_read` (mm/filemap.c), up to 5.11: page by page. `prev_pos` is the
/// last page read and the offset in it behind what was copied, which is 0 where that was the page's end. A read at the file's
/// end brings in a page that holds nothing, before the size is looked at.
fn read_by_page<R: Rules + ?Sized>(rules: &R, m: &mut Mapping, bytes: Range<u64>) {
    let Range { start: mut at, end } = bytes;
    let last = end.div_ceil(PAGE_BYTES);
    let mut previous = m.ra.prev_pos;
    while at < end {
        let index = at / PAGE_BYTES;
        if !m.has(index) {
            rules.sync(m, index, last - index);
        }
        if m.marked(index) {
            rules.on_mark(m, index, last - index);
        }
        // no_cached_page, readpage
        m.bring(index);
        m.uses(index);
        if at >= m.size {
            break;
        }
        m.touch(index);
        at = ((index + 1).saturating_mul(PAGE_BYTES)).min(end).min(m.size);
        previous = Some(index * PAGE_BYTES + at % PAGE_BYTES);
        if at == m.size {
            // The loop goes on to find that nothing is left where more was requested and the file ends with a page;
            // in the middle of a page it stops at the size.
            if at < end && !at.is_multiple_of(PAGE_BYTES) {
                break;
            }
        }
    }
    m.ra.prev_pos = previous;
}

/// `filemap_fault`, `do_sync_mmap_readahead` and `do_async_mmap_readahead`, from 5.10 on.
fn fault<R: Rules + ?Sized>(rules: &R, m: &mut Mapping, index: u64, advice: MapAdvice) {
    if m.end_index().is_none_or(|end| index > end) {
        return; // SIGBUS
    }
    let silent = advice == MapAdvice::Random || m.ra.ra_pages == 0;
    if m.has(index) {
        if !silent {
            m.ra.mmap_miss = m.ra.mmap_miss.saturating_sub(1);
            if m.marked(index) {
                let pages = m.ra.ra_pages;
                rules.on_mark(m, index, pages);
            }
        }
    } else {
        if !silent {
            miss(rules, m, index, advice);
        }
    }
    m.bring(index);
    m.uses(index);
    m.touch(index);
    m.map_around(index);
}

/// The rest of `do_sync_mmap_readahead`: a sequential mapping reads as `read()` does, others read around the fault.
fn miss<R: Rules + ?Sized>(rules: &R, m: &mut Mapping, index: u64, advice: MapAdvice) {
    if advice == MapAdvice::Sequential {
        let pages = m.ra.ra_pages;
        rules.sync(m, index, pages);
        return;
    }
    if let MapAdvice::Executable { first, end } = advice
        && rules.executable(m, index, first, end).is_some()
    {
        return;
    }
    m.ra.mmap_miss = (m.ra.mmap_miss + 1).min(MMAP_LOTS_OF_MISSES * 10);
    if m.ra.mmap_miss > MMAP_LOTS_OF_MISSES {
        return;
    }
    m.ra.start = index.saturating_sub(m.ra.ra_pages / 2);
    m.ra.size = m.ra.ra_pages;
    m.ra.async_size = m.ra.ra_pages / 4;
    let (start, size, ahead) = (m.ra.start, m.ra.size, m.ra.async_size);
    rules.add_window(m, start, size, ahead);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_find_their_rules() {
        let of = |text: &str| Kernel::nearest(text).map(|choice| (choice.kernel.name(), choice.exact));
        assert_eq!(of("6.1.0-50-armmp"), Some(("6.1", true)));
        assert_eq!(of("2.6.37"), Some(("2.6.37", true)));
        assert_eq!(of("2.6.32"), Some(("2.6.37", false)));
        assert_eq!(of("4.19.94-ti-r42"), Some(("5.10", false)));
        assert_eq!(of("6.6.30"), Some(("6.1", false)));
        assert_eq!(of("6.12.107"), Some(("6.12", true)));
        assert_eq!(of("newest"), Some(("7.2", true)));
        assert_eq!(of("9.99"), Some(("7.2", false)));
        assert_eq!(of("bogus"), None);
        assert_eq!(of(""), None);
        assert_eq!(of("99999999999999999999999.1"), None);
    }
}
