//! Places of files' pages on their device, as far as bios show. Where a file continues elsewhere on its device, reading it takes one
//! more bio (`mpage_readahead`, fs/mpage.c; `ext4_mpage_readpages`, fs/ext4/readpage.c; both of 6.1).

use flashscope_analysis::bounded::{Full, Ranges};
use flashscope_cachesim::PAGE_BYTES;
use flashscope_trace::FileId;

/// Most pieces of files that are kept.
const MAX_PIECES: usize = 1 << 16;
const PAGE_SECTORS: u64 = PAGE_BYTES / 512;

#[derive(Debug)]
pub struct Extents {
    /// Pages that follow each other on the device: the sector where the file's first page would lie.
    pieces: Ranges<FileId, u64>,
    /// Pages of bios beyond the most pieces: they are assumed to follow the pages before them.
    pub pages_not_kept: u64,
}

impl Default for Extents {
    fn default() -> Extents {
        Extents { pieces: Ranges::new(MAX_PIECES, Full::Refuse), pages_not_kept: 0 }
    }
}

impl Extents {
    /// Adds a bio of these pages that begins at `sector`. It replaces what was known of them.
    pub fn seen(&mut self, file: FileId, pages: &[u64], sector: u64) {
        let Some((&first, end)) = pages.first().zip(pages.last().and_then(|last| last.checked_add(1))) else { return };
        if end.checked_sub(first) == Some(pages.len() as u64) {
            let from = sector.wrapping_sub(first.wrapping_mul(PAGE_SECTORS));
            let lost = |_, run: std::ops::Range<u64>, _| self.pages_not_kept += run.end - run.start;
            self.pieces.update(file, first..end, |_, _| Some(from), lost);
        }
    }

    /// Whether the page before this one is known to lie elsewhere.
    pub fn breaks(&self, file: FileId, page: u64) -> bool {
        let elsewhere = |(run, _): (std::ops::Range<u64>, u64)| {
            run.start == page && page.checked_sub(1).is_some_and(|before| self.pieces.run(file, before).is_some())
        };
        self.pieces.run(file, page).is_some_and(elsewhere)
    }

    /// Number of places where a file continues elsewhere.
    pub fn all_breaks(&self) -> u64 {
        self.pieces.iter().filter(|(file, run, _)| self.breaks(*file, run.start)).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashscope_trace::Device;

    const FILE: FileId = FileId { device: Some(Device(7)), inode: 5 };
    const OTHER: FileId = FileId { device: Some(Device(7)), inode: 6 };

    fn pages(first: u64, end: u64) -> Vec<u64> {
        (first..end).collect()
    }

    #[test]
    fn a_file_breaks_where_it_goes_on_elsewhere() {
        let mut extents = Extents::default();
        extents.seen(FILE, &pages(0, 4), 1000);
        extents.seen(FILE, &pages(4, 8), 1032);
        extents.seen(FILE, &pages(8, 9), 5000);
        extents.seen(OTHER, &pages(8, 9), 9000);
        // Nothing is known of what lies before it.
        extents.seen(FILE, &pages(20, 22), 7000);
        let found: Vec<u64> = (0..30).filter(|&page| extents.breaks(FILE, page)).collect();
        assert_eq!((found, extents.all_breaks(), extents.pieces.iter().count()), (vec![8], 1, 4));
        // What is between is seen later, and fits.
        extents.seen(FILE, &pages(9, 20), 5008);
        assert!(!extents.breaks(FILE, 9) && extents.breaks(FILE, 20));
        extents.seen(FILE, &pages(8, 20), 1064);
        assert!(!extents.breaks(FILE, 8) && extents.breaks(FILE, 20), "{extents:?}");
    }

    /// In the order of random reads, page by page.
    #[test]
    fn pieces_grow_together_in_any_order() {
        let mut extents = Extents::default();
        for page in [5, 3, 4, 0, 2, 1, 6, 4] {
            extents.seen(FILE, &[page], 800 + page * 8);
        }
        assert_eq!(extents.pieces.iter().collect::<Vec<_>>(), [(FILE, 0..7, 800)]);
        // Written anew elsewhere, in the middle.
        extents.seen(FILE, &pages(2, 4), 10);
        let found: Vec<u64> = (0..9).filter(|&page| extents.breaks(FILE, page)).collect();
        assert_eq!(found, [2, 4]);
        assert_eq!(extents.pieces.run(FILE, 4), Some((4..7, 800)), "page 4 at sector 832");
    }

    #[test]
    fn nonsense_is_no_panic_and_memory_is_bounded() {
        let mut extents = Extents::default();
        extents.seen(FILE, &[], 1);
        extents.seen(FILE, &[3, 1], 1);
        extents.seen(FILE, &[u64::MAX], u64::MAX);
        extents.seen(FILE, &[u64::MAX - 2, u64::MAX - 1], u64::MAX);
        extents.seen(FILE, &[u64::MAX - 1], u64::MAX);
        for n in 0..2 * MAX_PIECES as u64 {
            extents.seen(OTHER, &[2 * n], n);
        }
        assert!(extents.pieces.iter().count() <= MAX_PIECES && extents.pages_not_kept > 0);
    }
}
