//! Durations of flash reads on UBIFS, of a whole page and of a part of one.
//!
//! The kernel reads a part of a page with another command than a page (`nand_do_read_ops`, drivers/mtd/nand/raw/nand_base.c of 6.1.192:
//! `read_subpage`, which fetches the error correction by a column of its own), so the two take different times. A node may lie
//! anywhere: the first and the last of its consecutive pages are read in part. No event shows this. Pages read in a row are
//! distinguished by their places; the first of a row, which may begin with its page, is distinguished by its time.

use crate::measured::Times;
use crate::measured::ubifs::Place;

/// Consecutive pages of flash that a call reads.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadRun {
    last: Option<(Place, u64)>,
    pages: u32,
    /// From the first read to the second.
    first_ns: u64,
    first_is_whole: bool,
}

/// Times of flash reads in all calls.
#[derive(Debug, Default)]
pub struct FlashTimes {
    of_a_part: Times,
    of_a_page: Times,
}

/// Time of one read, up to the next of its row, ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReadTimes {
    pub part_ns: f64,
    pub page_ns: f64,
}

impl ReadTimes {
    /// Time of `reads` flash reads, of which `in_part` are of a part of a page.
    pub fn ns(self, reads: f64, in_part: f64) -> f64 {
        self.page_ns * (reads - in_part) + self.part_ns * in_part
    }
}

impl ReadRun {
    /// Adds a page of flash. Where it begins a new row, returns how many pages of the row before were read in part.
    pub fn read(&mut self, chip: u16, page: u64, time_ns: u64, times: &mut FlashTimes) -> u32 {
        let here = Place::after(None, chip, page);
        let Some((_, last_ns)) = self.last.filter(|(last, _)| last.is_before(here)) else {
            let in_part = self.in_part();
            *self = ReadRun { last: Some((here, time_ns)), pages: 1, ..ReadRun::default() };
            return in_part;
        };
        let took = time_ns.saturating_sub(last_ns);
        self.pages += 1;
        self.last = Some((here, time_ns));
        match self.pages {
            2 => self.first_ns = took,
            3 => {
                // Compared with the second page, which is certainly read whole.
                self.first_is_whole = self.first_ns.saturating_mul(5) < took.saturating_mul(6);
                let first = if self.first_is_whole { &mut times.of_a_page } else { &mut times.of_a_part };
                first.add(self.first_ns);
                times.of_a_page.add(took);
            }
            _ => times.of_a_page.add(took),
        }
        0
    }

    /// Number of the row's pages that were read in part.
    pub fn in_part(&self) -> u32 {
        self.pages.min(2) - u32::from(self.first_is_whole)
    }
}

impl FlashTimes {
    /// The medians; `None` where no row shows a whole page. Where no row shows a part, a part takes as long as a page.
    pub fn times(&self) -> Option<ReadTimes> {
        let page_ns = self.of_a_page.median()?;
        Some(ReadTimes { part_ns: self.of_a_part.median().unwrap_or(page_ns), page_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(row: &mut ReadRun, times: &mut FlashTimes, pages: &[(u64, u64)]) -> u32 {
        pages.iter().map(|&(page, time_ns)| row.read(0, page, time_ns, times)).sum()
    }

    #[test]
    fn the_ends_of_a_row_are_read_in_part() {
        let (mut row, mut times) = (ReadRun::default(), FlashTimes::default());
        // A node of the index, a node on three pages, one on the page where that ended and two more.
        let reads = [(9, 0), (40, 270), (41, 540), (42, 683), (42, 1117), (43, 1387), (44, 1530)];
        assert_eq!(read(&mut row, &mut times, &reads), 1 + 2);
        assert_eq!(row.in_part(), 2);
        assert_eq!(times.times(), Some(ReadTimes { part_ns: 270.0, page_ns: 143.0 }));
        // Another chip's page is not the next one.
        assert_eq!(row.read(1, 45, 2000, &mut times), 2);
    }

    #[test]
    fn a_row_that_begins_with_its_page_shows_by_its_time() {
        let (mut row, mut times) = (ReadRun::default(), FlashTimes::default());
        assert_eq!(read(&mut row, &mut times, &[(1, 0), (2, 143), (3, 286), (4, 429)]), 0);
        assert_eq!(row.in_part(), 1);
        assert_eq!(times.times(), Some(ReadTimes { part_ns: 143.0, page_ns: 143.0 }));
        let (mut row, mut times) = (ReadRun::default(), FlashTimes::default());
        assert_eq!(row.in_part(), 0);
        read(&mut row, &mut times, &[(1, u64::MAX), (2, 0)]);
        assert_eq!((row.in_part(), times.times()), (2, None), "no row shows a whole page");
    }
}
