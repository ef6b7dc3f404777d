//! squashfs: reading a page brings in the whole compressed block that holds it.
//!
//! Up to 5.19 pages were read one by one: `squashfs_readpage`, `squashfs_readpage_block` (fs/squashfs/file.c, file_direct.c with
//! CONFIG_SQUASHFS_FILE_DIRECT as Debian has it; 5.10.223), which fill what is missing of the block beside the page. From 6.0 on
//! `squashfs_readahead` (6.1.176) asks for the window to be extended to whole blocks (`readahead_expand`, mm/readahead.c) and
//! reads block by block, with three habits that show in the cache:
//! - a window of exactly whole blocks is extended by one more (`(len | mask) + 1`), over the file's end too;
//! - the window is not extended behind where it could not be extended before, because a page is there;
//! - how much a block holds is taken from the first block of the window: a last block that is shorter than it is read, found to
//!   be short, and not marked as read (`res == expected`), so that it is read again. Boards with 6.12.95 do not do that any more
//!   (`start` goes along with the blocks).
//!
//! Pages of the window that are not read leave the cache again (`read_pages`). Tails in fragments are read as blocks are.
//!
//! A block is unpacked straight into the page cache where all its pages are available. Where one is cached already, or locked, it
//! is unpacked into a buffer of squashfs (`squashfs_read_cache`, `squashfs_get_datablock`; cache.c). There is one for each processor
//! (`squashfs_max_decompressors`, decompressor_multi_percpu.c); the model has one, where the next page of the block finds it.

use super::Mapping;
use crate::PAGE_BYTES;
use crate::types::Kernel;

#[derive(Clone, Copy, Debug)]
pub struct Squashfs {
    block_pages: u64,
    /// The kernel's squashfs has an `aops->readahead`.
    by_readahead: bool,
    /// A last block that is shorter than the first of its window is read and thrown away.
    tail_in_vain: bool,
}

impl Squashfs {
    /// `None` for an invalid block size: squashfs has powers of two from 4 KiB to 1 MiB.
    pub fn new(block_bytes: u64, kernel: Kernel) -> Option<Squashfs> {
        let valid = block_bytes.is_power_of_two() && (PAGE_BYTES..=1 << 20).contains(&block_bytes);
        let (by_readahead, tail_in_vain) = (kernel >= Kernel::V6_1, kernel == Kernel::V6_1);
        valid.then_some(Squashfs { block_pages: block_bytes / PAGE_BYTES, by_readahead, tail_in_vain })
    }

    fn block_bytes(self) -> u64 {
        self.block_pages * PAGE_BYTES
    }
}

/// The block that squashfs keeps outside the page cache.
#[derive(Clone, Copy, Debug, Default)]
pub struct Buffer {
    /// File and first page of that block.
    block: Option<(u32, u64)>,
}

/// `page_cache_ra_unbounded`: runs of missing pages are added, then read.
pub fn add_range(m: &mut Mapping, squashfs: Squashfs, start: u64, end: u64, marked: Option<u64>) {
    let mut first = start;
    for page in start..end {
        if m.has(page) {
            read_run(m, squashfs, first, page);
            first = page + 1;
        } else {
            add_empty(m, page, marked == Some(page));
        }
    }
    read_run(m, squashfs, first, end);
}

fn add_empty(m: &mut Mapping, page: u64, marked: bool) {
    m.add(page, marked);
    m.cache.set_empty(m.file, page, true);
}

fn read_run(m: &mut Mapping, squashfs: Squashfs, first: u64, end: u64) {
    if first >= end {
        return;
    }
    if squashfs.by_readahead {
        readahead(m, squashfs, first, end);
    } else {
        // Each page that is not read in yet brings in its block; the others of the run are locked meanwhile and follow in turn.
        for page in first..end {
            read_folio(m, page);
        }
    }
}

/// `squashfs_read_folio`: reads the page and the missing or unread pages of its block.
pub fn read_folio(m: &mut Mapping, page: u64) {
    let (Some(squashfs), Some(end)) = (m.squashfs, m.end_index()) else { return };
    let first = page / squashfs.block_pages * squashfs.block_pages;
    // A page behind the end of the file is filled with zeroes.
    m.cache.set_empty(m.file, page, false);
    if page > end {
        return;
    }
    let mut all = true;
    for near in first..=(first + squashfs.block_pages - 1).min(end) {
        // Before `squashfs_readahead`, an unread page was locked by its window.
        let could_be_had = m.flags(near).is_none_or(|flags| flags.empty && squashfs.by_readahead);
        all &= near == page || could_be_had;
        m.add(near, false);
        m.cache.set_empty(m.file, near, false);
    }
    let block = Some((m.file, first));
    if all || m.buffer.block != block {
        m.reads_block(first);
    }
    if !all {
        m.buffer.block = block;
    }
}

/// `squashfs_readahead`.
fn readahead(m: &mut Mapping, squashfs: Squashfs, first: u64, end: u64) {
    let block = squashfs.block_pages;
    let wanted = first / block * block;
    let length = ((end - wanted) | (block - 1)) + 1;
    // readahead_expand
    let (mut from, mut to) = (first, end);
    while from > wanted && !m.has(from - 1) {
        from -= 1;
        add_empty(m, from, false);
    }
    if from == wanted {
        while to < wanted.saturating_add(length) && !m.has(to) {
            add_empty(m, to, false);
            to += 1;
            m.ra.size = m.ra.size.saturating_add(1);
            m.ra.async_size = m.ra.async_size.saturating_add(1);
        }
    }
    let (size, block_bytes) = (m.size, squashfs.block_bytes());
    let bytes_of = |index: u64| if index == size / block_bytes { size % block_bytes } else { block_bytes };
    let expected = bytes_of(wanted / block);
    let most = expected.div_ceil(PAGE_BYTES);
    let mut at = from;
    while at < to && most > 0 {
        let pages = most.min(to - at);
        let (index, tail) = (at / block, (at + pages - 1) / block);
        let read = at.saturating_mul(PAGE_BYTES) < size && index == tail;
        let filled = read && (bytes_of(index) == expected || !squashfs.tail_in_vain);
        if read {
            m.reads_block(index * block);
        }
        for page in at..at + pages {
            m.cache.set_empty(m.file, page, !filled);
        }
        at += pages;
        if !read {
            break;
        }
    }
    // read_pages
    for page in at..to {
        m.ra.size = m.ra.size.saturating_sub(1);
        if m.ra.async_size >= 1 {
            m.ra.async_size -= 1;
            m.take_back(page);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Access, Kernel, MapAdvice, OpenId, PageStep, Settings, Simulator};
    use flashscope_trace::{Device, FileId};

    const FILE: FileId = FileId { device: Some(Device(1)), inode: 1 };

    fn simulator(kernel: Kernel, readahead_pages: u64, size: u64) -> Simulator {
        let mut simulator = Simulator::new(kernel, Settings { readahead_pages, io_pages: 31, ..Settings::default() });
        simulator.set_size(FILE, size);
        simulator.set_squashfs_block(FILE, 128 << 10);
        simulator
    }

    /// Pages that came and stayed, and how many were taken back.
    fn read(simulator: &mut Simulator, page: u64, pages: u64) -> (Vec<u64>, usize) {
        let (mut came, mut back) = (Vec::new(), 0);
        let access = Access::Read { offset: page * 4096, length: pages * 4096 };
        simulator.apply(FILE, OpenId(1), access, &mut |event| match event.step {
            PageStep::TakenBack { .. } => {
                came.retain(|&page| page != event.page);
                back += 1;
            }
            _ => came.push(event.page),
        });
        came.sort_unstable();
        (came, back)
    }

    fn blocks(simulator: &mut Simulator, page: u64, pages: u64) -> Vec<u64> {
        let mut read = Vec::new();
        let access = Access::Read { offset: page * 4096, length: pages * 4096 };
        simulator.tell_blocks();
        simulator.apply(FILE, OpenId(1), access, &mut |event| {
            if let PageStep::Block = event.step {
                read.push(event.page);
            }
        });
        read
    }

    #[test]
    fn blocks_that_are_read_are_told() {
        for kernel in Kernel::ALL {
            let mut s = simulator(kernel, 0, 5 << 20);
            assert_eq!(blocks(&mut s, 40, 1), [32], "{kernel:?}");
            assert!(blocks(&mut s, 41, 1).is_empty(), "{kernel:?}");
            // Two pages of it left: what comes for one goes through the buffer, where it is read alone, and so does the next.
            for page in [50, 60] {
                s.apply(FILE, OpenId(1), Access::Drop { page, pages: 1 }, &mut |_| {});
            }
            assert_eq!(blocks(&mut s, 50, 1), [32], "{kernel:?}");
            s.apply(FILE, OpenId(1), Access::Drop { page: 50, pages: 1 }, &mut |_| {});
            let again: &[u64] = if kernel < Kernel::V6_1 { &[] } else { &[32] };
            assert_eq!(blocks(&mut s, 50, 1), again, "{kernel:?}");
        }
        // A window of four pages in one block; the first of them finds the others locked.
        let mut s = simulator(Kernel::V5_10, 4, 5 << 20);
        assert_eq!(blocks(&mut s, 0, 1), [0]);
        // 6.1 reads a last block that is shorter than the first of the window twice.
        let whole = |kernel| blocks(&mut simulator(kernel, 64, (32 + 10) * 4096), 0, 42);
        assert_eq!(whole(Kernel::V6_1), [0, 32, 32]);
        assert_eq!(whole(Kernel::V6_12), [0, 32]);
    }

    #[test]
    fn a_page_brings_in_its_block() {
        for kernel in Kernel::ALL {
            for readahead in [0, 4] {
                let mut s = simulator(kernel, readahead, 5 << 20);
                assert_eq!(read(&mut s, 40, 1), ((32..64).collect(), 0), "{kernel:?} {readahead}");
                assert_eq!(read(&mut s, 63, 1), (vec![], 0), "{kernel:?} {readahead}");
            }
        }
    }

    #[test]
    fn a_fault_brings_in_its_block() {
        for kernel in [Kernel::V5_10, Kernel::V6_1] {
            let mut s = simulator(kernel, 0, 5 << 20);
            let mut came = 0;
            let fault = Access::Fault { page: 70, advice: MapAdvice::Normal };
            s.apply(FILE, OpenId(1), fault, &mut |_| came += 1);
            assert_eq!(came, 32, "{kernel:?}");
        }
    }

    /// `(len | mask) + 1` of exactly one block is two.
    #[test]
    fn a_window_of_whole_blocks_is_extended_by_one_more() {
        for (kernel, pages) in [(Kernel::V6_1, 64), (Kernel::V5_10, 32)] {
            let mut s = simulator(kernel, 32, 5 << 20);
            // Just the requested pages: no window goes on from there.
            s.apply(FILE, OpenId(1), Access::AdviseRandom, &mut |_| {});
            assert_eq!(read(&mut s, 0, 32), ((0..pages).collect(), 0), "{kernel:?}");
        }
    }

    #[test]
    fn a_last_block_ends_with_its_file() {
        for kernel in Kernel::ALL {
            // Two blocks and three pages.
            let mut s = simulator(kernel, 0, (67 << 12) - 100);
            let (came, _) = read(&mut s, 66, 1);
            assert_eq!(came.iter().filter(|&&page| page < 67).count(), 3, "{kernel:?}: {came:?}");
        }
    }

    #[test]
    fn no_number_is_too_large() {
        for kernel in Kernel::ALL {
            for bytes in [0, 1, 4096, 5000, 1 << 20, u64::MAX] {
                let mut s = Simulator::new(kernel, Settings { budget_pages: 64, ..Settings::default() });
                s.set_size(FILE, u64::MAX);
                s.set_squashfs_block(FILE, bytes);
                for offset in [0, u64::MAX / 2, u64::MAX - 4096] {
                    s.apply(FILE, OpenId(1), Access::Read { offset, length: 1 << 20 }, &mut |_| {});
                    let fault = Access::Fault { page: offset, advice: MapAdvice::Sequential };
                    s.apply(FILE, OpenId(1), fault, &mut |_| {});
                }
            }
        }
    }
}
