//! The simulator: takes accesses and reports page-cache events.

use crate::PAGE_BYTES;
use crate::cache::PageCache;
use crate::mapping::squashfs::{Buffer, Squashfs};
use crate::mapping::ubifs::{Bulk, BulkReads, InARow, NodeRuns};
use crate::mapping::{Mapping, Window};
use crate::types::{Access, Cause, Kernel, MapAdvice, OpenId, PageEvent, PageStep, Settings};
use flashscope_trace::FileId;
use foldhash::HashMap;

/// Most open files, and most files, kept at once. The oldest are forgotten: an open file loses its window, a file its size.
const MAX_OPEN: usize = 1 << 16;
/// Largest window, pages: keeps its arithmetic far from the end of 64 bits.
const MAX_WINDOW: u64 = 1 << 40;

/// Most bytes of one read or write (`MAX_RW_COUNT`, include/linux/fs.h).
const MAX_CALL_BYTES: u64 = (i32::MAX as u64) / PAGE_BYTES * PAGE_BYTES;

/// Pages between two faults of a sequential mapping that still count as read: 2 MiB, more than windows and squashfs blocks hold.
const MOST_BETWEEN: u64 = 512;

/// A page cache under one kernel's rules.
pub struct Simulator {
    kernel: Kernel,
    settings: Settings,
    cache: PageCache,
    files: HashMap<FileKey, u32>,
    known: Vec<Known>,
    open: HashMap<(u32, u64), Window>,
    most_open: usize,
    windows_forgotten: u64,
    tells_uses: bool,
    tells_blocks: bool,
    /// The block that squashfs keeps outside the page cache.
    buffer: Buffer,
    /// State of files on a mount with `bulk_read`.
    bulk: HashMap<u32, (InARow, NodeRuns)>,
}

#[derive(Clone, Copy)]
struct Known {
    file: FileId,
    size: u64,
    squashfs: Option<Squashfs>,
}

type FileKey = (u32, u64);

fn key(file: FileId) -> FileKey {
    // Device numbers have 32 bits; the kernel never assigns u32::MAX (12 bits of majors).
    (file.device.map_or(u32::MAX, |device| device.0), file.inode)
}

impl Simulator {
    pub fn new(kernel: Kernel, settings: Settings) -> Simulator {
        let settings = Settings {
            readahead_pages: settings.readahead_pages.min(MAX_WINDOW),
            io_pages: settings.io_pages.min(MAX_WINDOW),
            ..settings
        };
        Simulator {
            kernel,
            settings,
            cache: PageCache::new(settings.budget_pages),
            files: HashMap::default(),
            known: Vec::new(),
            open: HashMap::default(),
            most_open: MAX_OPEN,
            windows_forgotten: 0,
            tells_uses: false,
            tells_blocks: false,
            buffer: Buffer::default(),
            bulk: HashMap::default(),
        }
    }

    /// Also reports the pages that reads and faults use, in order with the pages that are added.
    pub fn tell_uses(&mut self) {
        self.tells_uses = true;
    }

    /// Also reports the blocks of squashfs that are read.
    pub fn tell_blocks(&mut self) {
        self.tells_blocks = true;
    }

    fn number(&mut self, file: FileId) -> u32 {
        let next = self.known.len() as u32;
        let number = *self.files.entry(key(file)).or_insert(next);
        if number == next {
            self.known.push(Known { file, size: 0, squashfs: None });
        }
        number
    }

    /// Sets a file's size. Without it a file ends behind the last byte read or written, and nothing is read ahead.
    pub fn set_size(&mut self, file: FileId, bytes: u64) {
        let number = self.number(file);
        self.known[number as usize].size = bytes;
    }

    /// Sets the block size of a file on squashfs: its pages are then read by blocks.
    pub fn set_squashfs_block(&mut self, file: FileId, bytes: u64) {
        let number = self.number(file);
        self.known[number as usize].squashfs = Squashfs::new(bytes, self.kernel);
    }

    /// Sets the places of data nodes of a file on UBIFS mounted with `bulk_read`.
    pub fn set_bulk_read(&mut self, file: FileId, runs: NodeRuns) {
        let number = self.number(file);
        self.bulk.insert(number, (InARow::default(), runs));
    }

    /// Sums of all bulk reads so far.
    pub fn bulk_reads(&self) -> BulkReads {
        let mut all = BulkReads::default();
        for (row, _) in self.bulk.values() {
            all.reads += row.done.reads;
            all.nodes += row.done.nodes;
            all.pages += row.done.pages;
            all.flash_reads += row.done.flash_reads;
            all.flash_reads_in_part += row.done.flash_reads_in_part;
            all.alone += row.done.alone;
            all.flash_reads_alone = all.flash_reads_alone.saturating_add(row.done.flash_reads_alone);
        }
        all
    }

    /// Adds a page that was cached before the recording began.
    pub fn preload(&mut self, file: FileId, page: u64) {
        let number = self.number(file);
        if !self.cache.has(number, page) {
            self.cache.insert(number, page, false);
            self.cache.touch(number, page);
        }
    }

    /// Number of cached pages that nothing has used, by file.
    pub fn unused(&self) -> Vec<(FileId, u64)> {
        let mut unused: Vec<(FileId, u64)> = self.known.iter().map(|known| (known.file, 0)).collect();
        self.cache.each(|file, used| unused[file as usize].1 += u64::from(!used));
        unused.retain(|&(_, pages)| pages > 0);
        unused
    }

    fn make_room(&mut self, file: u32, open: OpenId) {
        if self.open.len() >= self.most_open && !self.open.contains_key(&(file, open.0)) {
            self.windows_forgotten += self.open.len() as u64;
            self.open.clear();
        }
    }

    /// Open files whose window was forgotten because more than 65,536 had one. Each begins with a new window.
    pub fn windows_forgotten(&self) -> u64 {
        self.windows_forgotten
    }

    /// Plays one access; `out` gets the page events in order.
    pub fn apply(&mut self, file: FileId, open: OpenId, access: Access, out: &mut dyn FnMut(PageEvent)) {
        let number = self.number(file);
        let access = match access {
            Access::Read { offset, length } => Access::Read { offset, length: length.min(MAX_CALL_BYTES) },
            Access::Write { offset, length } => Access::Write { offset, length: length.min(MAX_CALL_BYTES) },
            other => other,
        };
        let size = &mut self.known[number as usize].size;
        match access {
            Access::Drop { page, pages } => {
                for page in page..page.saturating_add(pages) {
                    if let Some(removed) = self.cache.remove(number, page) {
                        out(PageEvent { file, page, step: PageStep::Dropped { used: removed.used } });
                    }
                }
                return;
            }
            Access::DropAll => {
                // The inode leaves with its pages, and its bulk-read state with it.
                if let Some((row, _)) = self.bulk.get_mut(&number) {
                    *row = row.of_a_new_inode();
                }
                while let Some(page) = self.cache.any_of(number) {
                    if let Some(removed) = self.cache.remove(number, page) {
                        out(PageEvent { file, page, step: PageStep::Dropped { used: removed.used } });
                    }
                }
                return;
            }
            Access::Resized { bytes } => {
                *size = bytes;
                return;
            }
            Access::Write { offset, length } => *size = (*size).max(offset.saturating_add(length)),
            _ => {}
        }
        self.access(number, open, access, out);
    }

    fn access(&mut self, number: u32, open: OpenId, access: Access, out: &mut dyn FnMut(PageEvent)) {
        let Known { size, squashfs, .. } = self.known[number as usize];
        self.make_room(number, open);
        let fresh = fresh(self.settings.readahead_pages);
        let ra = self.open.entry((number, open.0)).or_insert(fresh);
        let requested = match access {
            Access::Read { offset, length } => {
                (offset / PAGE_BYTES, offset.saturating_add(length).div_ceil(PAGE_BYTES))
            }
            Access::Fault { page, .. } => (page, page.saturating_add(1)),
            _ => (0, 0),
        };
        let known = &self.known;
        let mut emit =
            |file: u32, page: u64, step: PageStep| out(PageEvent { file: known[file as usize].file, page, step });
        let windows_locked = self.kernel >= Kernel::V5_10;
        let (mut no_file, mut bulk) = (InARow::default(), None);
        let row = match self.bulk.get_mut(&number) {
            Some((row, runs)) => {
                bulk = Some(Bulk { row: *row, runs, windows_locked });
                row
            }
            None => &mut no_file,
        };
        let mut mapping = Mapping {
            cache: &mut self.cache,
            file: number,
            size,
            ra,
            io_pages: self.settings.io_pages,
            squashfs,
            bulk,
            requested,
            tells_uses: self.tells_uses,
            tells_blocks: self.tells_blocks,
            buffer: &mut self.buffer,
            out: &mut emit,
        };
        let m = &mut mapping;
        let rules = self.kernel.rules();
        match access {
            Access::Open => *m.ra = fresh,
            Access::Read { offset, length } if length > 0 => {
                rules.read(m, offset..offset.saturating_add(length));
            }
            Access::Fault { page, advice: MapAdvice::Sequential } if self.settings.faults_of_another => {
                // The pages since the last fault were read without an event; another window may fault on some of them.
                let last = m.ra.faulted.filter(|&last| last < page && page - last <= MOST_BETWEEN);
                for touched in last.map_or(page, |last| last + 1)..=page {
                    if !m.flags(touched).is_some_and(|flags| flags.mapped) {
                        rules.fault(m, touched, MapAdvice::Sequential);
                    }
                }
                m.ra.faulted = Some(page);
            }
            Access::Fault { page, .. }
                if self.settings.faults_of_another && m.flags(page).is_some_and(|flags| flags.mapped) => {}
            Access::Fault { page, advice } => rules.fault(m, page, advice),
            Access::Write { offset, length } if length > 0 => {
                let (first, end) = (offset / PAGE_BYTES, offset.saturating_add(length).div_ceil(PAGE_BYTES));
                for page in first..end.min(first.saturating_add(m.cache.budget() as u64)) {
                    if !m.has(page) {
                        m.add_for(page, false, Cause::Write);
                    }
                    m.touch(page);
                }
            }
            Access::Brought { page, pages } => {
                for page in page..page.saturating_add(pages) {
                    if !m.has(page) {
                        m.add_for(page, false, Cause::Write);
                    }
                    m.touch(page);
                }
            }
            // generic_fadvise
            Access::AdviseNormal => {
                m.ra.ra_pages = fresh.ra_pages;
                m.ra.random = false;
            }
            Access::AdviseRandom => m.ra.random = true,
            Access::AdviseSequential => {
                m.ra.ra_pages = fresh.ra_pages.saturating_mul(2);
                m.ra.random = false;
            }
            Access::WillNeed { offset, length } => {
                let first = offset / PAGE_BYTES;
                let last = match length {
                    0 => u64::MAX,
                    length => offset.saturating_add(length - 1),
                };
                rules.will_need(m, first, last / PAGE_BYTES - first + 1);
            }
            _ => {}
        }
        if let Some(bulk) = mapping.bulk {
            *row = bulk.row;
        }
    }
}

/// The window of a newly opened file.
fn fresh(ra_pages: u64) -> Window {
    Window { start: 0, size: 0, async_size: 0, ra_pages, mmap_miss: 0, faulted: None, prev_pos: None, random: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = FileId { device: None, inode: 1 };

    fn pages(simulator: &mut Simulator, access: Access) -> Vec<u64> {
        let mut pages = vec![];
        simulator.apply(FILE, OpenId(1), access, &mut |event| {
            if event.is_read() {
                pages.push(event.page);
            }
        });
        pages
    }

    #[test]
    fn windows_that_are_forgotten_are_counted() {
        let mut simulator = simulator(Kernel::V6_1, 32);
        simulator.most_open = 2;
        for open in [1, 2, 1, 3, 3] {
            simulator.apply(FILE, OpenId(open), Access::Read { offset: 0, length: 4096 }, &mut |_| {});
        }
        assert_eq!(simulator.windows_forgotten(), 2);
    }

    fn read(simulator: &mut Simulator, offset: u64, length: u64) -> Vec<u64> {
        pages(simulator, Access::Read { offset, length })
    }

    fn simulator(kernel: Kernel, readahead_pages: u64) -> Simulator {
        let mut simulator = Simulator::new(kernel, Settings { readahead_pages, ..Settings::default() });
        simulator.set_size(FILE, 5 << 20);
        simulator
    }

    #[test]
    fn without_read_ahead_each_page_comes_alone() {
        for kernel in Kernel::ALL {
            let mut s = simulator(kernel, 0);
            assert_eq!(read(&mut s, 0, 4096), [0], "{kernel:?}");
            assert!(read(&mut s, 4000, 96).is_empty(), "{kernel:?}");
            assert_eq!(read(&mut s, 4000, 200), [1], "{kernel:?}");
        }
    }

    #[test]
    fn a_stream_is_read_ahead_of() {
        for kernel in [Kernel::V5_10, Kernel::V6_1, Kernel::V6_12, Kernel::V7_2] {
            let mut s = simulator(kernel, 32);
            assert_eq!(read(&mut s, 0, 4096), [0, 1, 2, 3], "{kernel:?}");
            // Page 1 has the mark: eight more behind the window.
            assert_eq!(read(&mut s, 4096, 4096), (4..12).collect::<Vec<_>>(), "{kernel:?}");
            assert!(read(&mut s, 8192, 4096).is_empty(), "{kernel:?}");
        }
    }

    #[test]
    fn a_file_that_was_cut_is_not_read_behind_its_end() {
        for kernel in Kernel::ALL {
            let mut s = simulator(kernel, 32);
            assert!(pages(&mut s, Access::Resized { bytes: 2 * 4096 + 1 }).is_empty(), "{kernel:?}");
            assert_eq!(read(&mut s, 0, 4096), [0, 1, 2], "{kernel:?}");
            pages(&mut s, Access::Resized { bytes: 900 * 4096 });
            assert_eq!(read(&mut s, 800 * 4096, 4096), [800], "{kernel:?}");
        }
    }

    #[test]
    fn a_lone_read_brings_what_it_asks_for() {
        for kernel in Kernel::ALL {
            let mut s = simulator(kernel, 32);
            assert_eq!(read(&mut s, 100 * 4096 + 5, 8192), [100, 101, 102], "{kernel:?}");
        }
    }

    /// The change that made random reads cheap: one cached neighbour is no stream any more.
    #[test]
    fn one_neighbour_made_a_stream_in_2_6_37() {
        for kernel in Kernel::ALL {
            let mut s = simulator(kernel, 32);
            read(&mut s, 100 * 4096, 4096);
            read(&mut s, 900 * 4096, 4096);
            let after = read(&mut s, 101 * 4096, 4096);
            assert_eq!(after.len() > 1, kernel == Kernel::V2_6_37, "{kernel:?}: {after:?}");
        }
    }

    #[test]
    fn advice_is_followed() {
        for kernel in Kernel::ALL {
            let mut s = simulator(kernel, 32);
            pages(&mut s, Access::AdviseRandom);
            assert_eq!(read(&mut s, 0, 4096), [0], "{kernel:?}");
            assert_eq!(read(&mut s, 4096, 4096), [1], "{kernel:?}");
            pages(&mut s, Access::AdviseSequential);
            assert!(read(&mut s, 8192, 40 * 4096).len() >= 40, "{kernel:?}");
        }
        // WILLNEED reads nothing on MTD from 5.10 on, where read-ahead is 0 (docs/explanation/measurement.md).
        let ask = Access::WillNeed { offset: 0, length: 40960 };
        assert!(pages(&mut simulator(Kernel::V6_1, 0), ask).is_empty());
        assert_eq!(pages(&mut simulator(Kernel::V2_6_37, 0), ask).len(), 10);
        assert_eq!(pages(&mut simulator(Kernel::V6_1, 8), ask).len(), 8);
        let all = Access::WillNeed { offset: 0, length: 0 };
        assert_eq!(pages(&mut simulator(Kernel::V2_6_37, 0), all).len(), 1280);
    }

    #[test]
    fn faults_read_around() {
        let fault = Access::Fault { page: 100, advice: MapAdvice::Normal };
        for kernel in Kernel::ALL {
            let mut s = simulator(kernel, 32);
            assert_eq!(pages(&mut s, fault), (84..116).collect::<Vec<_>>(), "{kernel:?}");
            let random = Access::Fault { page: 500, advice: MapAdvice::Random };
            assert_eq!(pages(&mut s, random), [500], "{kernel:?}");
            assert_eq!(pages(&mut simulator(kernel, 0), fault), [100], "{kernel:?}");
        }
    }

    /// Recorded on squashfs without read-ahead: one fault a block of 32 pages. With a window its mark faults within a block.
    #[test]
    fn pages_between_faults_of_a_sequential_mapping_are_read_too() {
        let came = |faults_of_another, faults: &[u64]| {
            let settings = Settings { readahead_pages: 4, faults_of_another, ..Settings::default() };
            let mut s = Simulator::new(Kernel::V6_1, settings);
            s.set_size(FILE, 1000 * 4096);
            let fault = |&page: &u64| pages(&mut s, Access::Fault { page, advice: MapAdvice::Sequential }).len();
            faults.iter().map(fault).sum::<usize>()
        };
        let every: Vec<u64> = (0..=320).collect();
        let all = came(true, &every);
        assert!(all > 320);
        assert_eq!(came(true, &[0, 32, 64, 320]), all);
        assert_eq!(came(true, &[0, 320]), all);
        assert!(came(false, &[0, 320]) < 20, "each fault for itself");
    }

    #[test]
    fn a_fault_on_a_program_reads_forward_on_the_newest_kernel() {
        let fault = Access::Fault { page: 100, advice: MapAdvice::Executable { first: 90, end: 120 } };
        for kernel in Kernel::ALL {
            let came = pages(&mut simulator(kernel, 32), fault);
            let wanted = if kernel == Kernel::V7_2 { 100..120 } else { 84..116 };
            assert_eq!(came, wanted.collect::<Vec<_>>(), "{kernel:?}");
            assert_eq!(pages(&mut simulator(kernel, 0), fault), [100], "{kernel:?}");
        }
    }

    #[test]
    fn no_number_is_too_large() {
        for kernel in Kernel::ALL {
            let settings =
                Settings { readahead_pages: u64::MAX, io_pages: u64::MAX, budget_pages: 64, ..Settings::default() };
            let mut s = Simulator::new(kernel, settings);
            s.set_size(FILE, u64::MAX);
            let big = [0, 1, 4096, u64::MAX / 2, u64::MAX - 4096, u64::MAX];
            for offset in big {
                for length in [0, 1, 4096, 1 << 20] {
                    read(&mut s, offset, length);
                    pages(&mut s, Access::WillNeed { offset, length });
                    pages(&mut s, Access::Write { offset, length });
                    pages(&mut s, Access::Fault { page: offset, advice: MapAdvice::Normal });
                    pages(&mut s, Access::Fault { page: offset, advice: MapAdvice::Sequential });
                    let mapped = MapAdvice::Executable { first: length, end: offset };
                    pages(&mut s, Access::Fault { page: offset, advice: mapped });
                    pages(&mut s, Access::Drop { page: offset, pages: 3 });
                }
            }
            pages(&mut s, Access::AdviseSequential);
            read(&mut s, 0, 1 << 20);
            pages(&mut s, Access::DropAll);
            let number = s.number(FILE);
            assert!(!s.cache.has(number, 0));
        }
    }

    #[test]
    fn an_absurd_read_is_bounded_by_its_file() {
        for kernel in Kernel::ALL {
            let mut s = simulator(kernel, 32);
            assert_eq!(read(&mut s, 0, u64::MAX).len() / 10, 128, "{kernel:?}: the file's 1280 pages");
        }
    }
}
