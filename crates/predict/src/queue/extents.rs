//! Places of files' pages on their device, as far as bios show. Where a file continues elsewhere on its device, reading it takes one
//! more bio (`mpage_readahead`, fs/mpage.c; `ext4_mpage_readpages`, fs/ext4/readpage.c; both of 6.1).

use std::collections::BTreeMap;

use flashscope_cachesim::PAGE_BYTES;
use flashscope_trace::FileId;

/// Most pieces of files that are kept.
const MAX_PIECES: usize = 1 << 16;
const PAGE_SECTORS: u64 = PAGE_BYTES / 512;

/// Pages that follow each other on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    /// The page behind the last.
    end: u64,
    sector: u64,
}

impl Piece {
    fn sector_of(&self, first: u64, page: u64) -> u64 {
        self.sector.saturating_add((page - first).saturating_mul(PAGE_SECTORS))
    }
}

#[derive(Clone, Debug, Default)]
pub struct Extents {
    /// By first page. Pieces of a file do not overlap; two adjacent pieces are not adjacent on the device.
    pieces: BTreeMap<(FileId, u64), Piece>,
    /// Pages of bios beyond the most pieces: they are assumed to follow the pages before them.
    pub pages_not_kept: u64,
}

impl Extents {
    /// Adds a bio of these pages that begins at `sector`. It replaces what was known of them.
    pub fn seen(&mut self, file: FileId, pages: &[u64], sector: u64) {
        let Some((&first, end)) = pages.first().zip(pages.last().and_then(|last| last.checked_add(1))) else { return };
        if end.checked_sub(first) != Some(pages.len() as u64) {
            return;
        }
        if self.pieces.len() >= MAX_PIECES {
            self.pages_not_kept += end - first;
            return;
        }
        let mut new = (first, Piece { end, sector });
        self.clear(file, first, end);
        if let Some((&(_, before), piece)) = self.before(file, first)
            && piece.end == first
            && piece.sector_of(before, first) == sector
        {
            new = (before, Piece { end, ..*piece });
        }
        if let Some(behind) = self.pieces.get(&(file, end)).copied()
            && new.1.sector_of(new.0, end) == behind.sector
        {
            self.pieces.remove(&(file, end));
            new.1.end = behind.end;
        }
        self.pieces.insert((file, new.0), new.1);
    }

    /// The last piece that begins before a page.
    fn before(&self, file: FileId, page: u64) -> Option<(&(FileId, u64), &Piece)> {
        self.pieces.range((file, 0)..(file, page)).next_back()
    }

    /// Removes these pages.
    fn clear(&mut self, file: FileId, first: u64, end: u64) {
        if let Some((&key, &piece)) = self.before(file, first)
            && piece.end > first
        {
            self.pieces.insert(key, Piece { end: first, ..piece });
            if piece.end > end {
                self.pieces.insert((file, end), Piece { end: piece.end, sector: piece.sector_of(key.1, end) });
            }
        }
        let within: Vec<u64> = self.pieces.range((file, first)..(file, end)).map(|(&(_, page), _)| page).collect();
        for page in within {
            if let Some(piece) = self.pieces.remove(&(file, page))
                && piece.end > end
            {
                self.pieces.insert((file, end), Piece { end: piece.end, sector: piece.sector_of(page, end) });
            }
        }
    }

    /// Whether the page before this one is known to lie elsewhere.
    pub fn breaks(&self, file: FileId, page: u64) -> bool {
        self.pieces.contains_key(&(file, page)) && self.before(file, page).is_some_and(|(_, piece)| piece.end == page)
    }

    /// Number of places where a file continues elsewhere.
    pub fn all_breaks(&self) -> u64 {
        self.pieces.keys().filter(|&&(file, page)| self.breaks(file, page)).count() as u64
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
        assert_eq!((found, extents.all_breaks(), extents.pieces.len()), (vec![8], 1, 4));
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
        assert_eq!(extents.pieces, [((FILE, 0), Piece { end: 7, sector: 800 })].into());
        // Written anew elsewhere, in the middle.
        extents.seen(FILE, &pages(2, 4), 10);
        let found: Vec<u64> = (0..9).filter(|&page| extents.breaks(FILE, page)).collect();
        assert_eq!(found, [2, 4]);
        assert_eq!(extents.pieces[&(FILE, 4)], Piece { end: 7, sector: 832 });
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
        assert!(extents.pieces.len() <= MAX_PIECES && extents.pages_not_kept > 0);
    }
}
