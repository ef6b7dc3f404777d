//! The measured cost of each page: flash reads and time.
//!
//! A call adds its pages first and then reads them, one after the other. No event says where one ends. But between two pages the file
//! system works on the data (checks, decompresses), and within one it does not. So pages end at the longest pauses between the call's
//! flash reads, one fewer than there are pages, if they are clearly longer than the rest; else each page gets the call's mean. A
//! page's time goes from its first read to the next page's first, and the last page's to the end of the call.

use std::collections::{BTreeMap, HashMap};

use flashscope_trace::FileId;

use crate::measured::Times;

/// Most pages and flash reads followed in one call, and most pages with a cost.
const MOST_IN_A_CALL: usize = 4096;
const MOST_PAGES: usize = 1 << 18;

/// A call that has not ended yet.
#[derive(Debug, Default)]
pub struct InCall {
    pages: Vec<u64>,
    reads_ns: Vec<u64>,
    /// The last place that a worker read for it, and whether the places so far had a gap.
    place: Option<(u16, u64)>,
    is_torn: bool,
    /// Pages added, kept or not.
    came: u64,
    overflown: bool,
}

impl InCall {
    pub fn page(&mut self, page: u64) {
        self.came += 1;
        self.overflown |= self.pages.len() >= MOST_IN_A_CALL;
        if !self.overflown {
            self.pages.push(page);
        }
    }

    /// Adds several pages of one event.
    pub fn pages(&mut self, pages: std::ops::Range<u64>) {
        // Pages beyond the most that are followed are only counted.
        let followed = pages.start.saturating_add(MOST_IN_A_CALL as u64 + 1).min(pages.end);
        (pages.start..followed).for_each(|page| self.page(page));
        self.came = self.came.saturating_add(pages.end - followed);
    }

    pub fn read(&mut self, time_ns: u64) {
        self.overflown |= self.reads_ns.len() >= MOST_IN_A_CALL;
        if !self.overflown {
            self.reads_ns.push(time_ns);
        }
    }

    /// The place of the last read, in pages of a chip. A page may be read in parts.
    pub fn read_at(&mut self, chip: u16, page: u64) {
        let last = self.place.replace((chip, page));
        self.is_torn |= last.is_some_and(|(of, last)| of != chip || page.wrapping_sub(last) > 1);
    }
}

/// The cost of one page.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PageCost {
    pub flash_reads: f32,
    /// `None` where its call's end is not known, or another task was served at the same time.
    pub ns: Option<f32>,
}

/// The pages of one call.
#[derive(Clone, Copy, Debug)]
struct Came {
    last: u64,
    pages: u32,
    reads: u32,
}

/// Costs of pages.
#[derive(Debug, Default)]
pub struct PageCosts {
    /// The cost of each when it was last read.
    known: HashMap<(FileId, u64), PageCost>,
    /// Earlier costs in order: another file may have had its number then.
    earlier: HashMap<(FileId, u64), Vec<PageCost>>,
    earlier_pages: usize,
    /// Costs from another recording, of pages read one by one.
    learned: HashMap<(FileId, u64), PageCost>,
    /// Where pages come in blocks: the pages of one call, by the first of them.
    blocks: BTreeMap<(FileId, u64), Came>,
    /// Times from one flash read to the next in a call, ns.
    between_reads: Times,
    /// Pages without a cost of their own, which cost the mean: of calls too long to follow, and beyond the most that are kept.
    pub not_kept: u64,
}

impl PageCosts {
    /// The cost when it was read for the `nth` time, counted from 0; beyond, the last one's.
    pub fn nth(&self, file: FileId, page: u64, nth: usize) -> Option<PageCost> {
        let earlier = self.earlier.get(&(file, page)).and_then(|earlier| earlier.get(nth)).copied();
        earlier.or_else(|| self.known.get(&(file, page)).copied())
    }

    /// The cost in another recording.
    pub fn learned(&self, file: FileId, page: u64) -> Option<PageCost> {
        self.learned.get(&(file, page)).copied()
    }

    /// Whether it was read more than once.
    pub fn came_again(&self, file: FileId, page: u64) -> bool {
        self.earlier.contains_key(&(file, page))
    }

    /// Takes the costs of pages of these files from `other`, also of pages that this recording lacks. Returns their number.
    pub fn learn(&mut self, other: &PageCosts, of: impl Fn(FileId) -> bool) -> usize {
        self.learned.extend(other.known.iter().filter(|((file, _), _)| of(*file)));
        let mut pages = self.learned.len();
        for (&at, &came) in other.blocks.iter().filter(|((file, _), _)| of(*file)) {
            pages += came.pages as usize;
            self.add_block(at, came);
        }
        pages
    }

    /// Flash reads for a block, where one call brought in that block alone, up to page `last` at most.
    pub fn block(&self, file: FileId, pages: std::ops::Range<u64>, last: u64) -> Option<u32> {
        let of_block = self.blocks.range((file, pages.start)..(file, pages.end.max(pages.start))).map(|(_, came)| came);
        of_block.filter(|came| came.last <= last).map(|came| came.reads).min()
    }

    /// Another call may also have read metadata about the places of blocks: the cheapest one counts.
    fn add_block(&mut self, at: (FileId, u64), came: Came) {
        let room = self.blocks.len() < MOST_PAGES;
        match self.blocks.get_mut(&at) {
            Some(known) if (known.last, known.reads) > (came.last, came.reads) => *known = came,
            Some(_) => {}
            None if room => {
                self.blocks.insert(at, came);
            }
            None => self.not_kept += u64::from(came.pages),
        }
    }

    /// Mean time of this recording's pages with a known time.
    pub fn mean_ns(&self) -> f64 {
        let (count, sum) = self
            .known
            .values()
            .filter_map(|cost| cost.ns)
            .fold((0_u64, 0.0), |(count, sum), ns| (count + 1, sum + f64::from(ns)));
        if count == 0 { 0.0 } else { sum / count as f64 }
    }

    /// Time from one flash read to the next in a call, ns: the median, which is that of consecutive reads of one page. `None` where no
    /// call read twice.
    pub fn between_reads_ns(&self) -> Option<f64> {
        self.between_reads.median()
    }

    /// Ends a call that brought in these pages of a file. `ended_ns`: only where nothing else was served meanwhile. `in_blocks`: `None`
    /// where pages are read one by one; else a worker read them, and the value says whether it did so for this call alone.
    pub fn add(&mut self, file: FileId, call: &InCall, ended_ns: Option<u64>, in_blocks: Option<bool>) {
        let (pages, reads) = (&call.pages, &call.reads_ns);
        if call.overflown {
            self.not_kept += call.came;
            return;
        }
        reads.windows(2).for_each(|two| self.between_reads.add(two[1].saturating_sub(two[0])));
        let Some(&first) = reads.first() else {
            if in_blocks.is_some() {
                return;
            }
            // Holes, and pages behind a file's end.
            let nothing = PageCost { flash_reads: 0.0, ns: ended_ns.map(|_| 0.0) };
            pages.iter().for_each(|&page| self.insert(file, page, nothing));
            return;
        };
        if pages.is_empty() {
            return;
        }
        if let Some(alone) = in_blocks {
            // Where several calls wait, reads in a row belong to one call, and were made once.
            if let (Some(&first), Some(&last)) = (pages.iter().min(), pages.iter().max())
                && (alone || !call.is_torn)
            {
                self.add_block((file, first), Came { last, pages: pages.len() as u32, reads: reads.len() as u32 });
            }
            return;
        }
        let Some(ends) = ends(reads, pages.len()) else {
            // Only the mean of each page is known.
            let each = pages.len() as f64;
            let ns = ended_ns.map(|ended| (ended.saturating_sub(first) as f64 / each) as f32);
            let cost = PageCost { flash_reads: (reads.len() as f64 / each) as f32, ns };
            pages.iter().for_each(|&page| self.insert(file, page, cost));
            return;
        };
        let mut from = 0;
        for (&page, end) in pages.iter().zip(ends) {
            let until = ended_ns.map(|ended| reads.get(end).copied().unwrap_or(ended));
            let ns = until.map(|until| until.saturating_sub(reads[from]) as f32);
            self.insert(file, page, PageCost { flash_reads: (end - from) as f32, ns });
            from = end;
        }
    }

    fn insert(&mut self, file: FileId, page: u64, cost: PageCost) {
        if self.known.len() < MOST_PAGES || self.known.contains_key(&(file, page)) {
            let before = self.known.insert((file, page), cost);
            if let Some(before) = before.filter(|_| self.earlier_pages < MOST_PAGES) {
                self.earlier.entry((file, page)).or_default().push(before);
                self.earlier_pages += 1;
            }
        } else {
            self.not_kept += 1;
        }
    }
}

/// For each page the index of its last read. `None` where that is unknown: there are fewer reads than pages, or a pause within a page
/// is as long as one between pages (chunks that are only copied, an interrupt, a page in two nodes).
fn ends(reads: &[u64], pages: usize) -> Option<Vec<usize>> {
    if reads.len() < pages {
        return None;
    }
    let pause = |at: usize| reads[at].saturating_sub(reads[at - 1]);
    let mut order: Vec<usize> = (1..reads.len()).collect();
    order.sort_unstable_by_key(|&at| (std::cmp::Reverse(pause(at)), at));
    let (between, within) = order.split_at(pages - 1);
    if let (Some(&shortest), Some(&longest)) = (between.last(), within.first())
        && 20 * pause(shortest) < 21 * pause(longest)
    {
        return None;
    }
    let mut ends = between.to_vec();
    ends.sort_unstable();
    ends.push(reads.len());
    Some(ends)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = FileId { device: None, inode: 1 };

    /// The cost of a page when it was last read, here or in another recording.
    fn last(costs: &PageCosts, page: u64) -> Option<PageCost> {
        costs.learned(FILE, page).or_else(|| costs.nth(FILE, page, usize::MAX))
    }

    #[test]
    fn the_longest_pauses_are_between_pages() {
        let mut call = InCall::default();
        [7, 8, 9].into_iter().for_each(|page| call.page(page));
        [100, 250, 400, 900, 1050, 1600, 1750].into_iter().for_each(|time| call.read(time));
        let mut costs = PageCosts::default();
        costs.add(FILE, &call, Some(2200), None);
        let cost = |flash_reads, ns| Some(PageCost { flash_reads, ns: Some(ns) });
        assert_eq!(
            [7, 8, 9, 10].map(|page| last(&costs, page)),
            [cost(3.0, 800.0), cost(2.0, 700.0), cost(2.0, 600.0), None]
        );
        assert_eq!(costs.mean_ns(), 700.0);
        assert_eq!(costs.between_reads_ns(), Some(150.0), "of 150 150 500 150 550 150");
        assert_eq!(PageCosts::default().between_reads_ns(), None);
        let mut learned = PageCosts::default();
        learned.add(FILE, &call, Some(2200), Some(true));
        assert_eq!(last(&learned, 7), None, "in one block");
        let mut of_blocks = PageCosts::default();
        assert_eq!(of_blocks.learn(&learned, |_| true), 3);
        assert_eq!(last(&of_blocks, 7), None);
        assert_eq!([of_blocks.block(FILE, 0..32, 31), of_blocks.block(FILE, 8..16, 15)], [Some(7), None]);
        assert_eq!(of_blocks.block(FILE, 4..8, 7), None, "more than the block came");
        assert_eq!(of_blocks.block(FILE, 4..8, 15), Some(7), "the file's last, and what lies behind it");
        assert_eq!((learned.learn(&costs, |file| file != FILE), learned.learn(&costs, |file| file == FILE)), (0, 3));
        assert_eq!((last(&learned, 7), learned.mean_ns()), (cost(3.0, 800.0), 0.0));
        costs.add(FILE, &call, None, None);
        assert_eq!(last(&costs, 9), Some(PageCost { flash_reads: 2.0, ns: None }));
        call.reads_ns.truncate(5);
        learned.add(FILE, &call, None, Some(true));
        assert_eq!(learned.block(FILE, 0..32, 31), Some(5));
    }

    #[test]
    fn what_is_not_told_apart_has_the_mean() {
        let mut call = InCall::default();
        [7, 8].into_iter().for_each(|page| call.page(page));
        call.read(100);
        let mut costs = PageCosts::default();
        costs.add(FILE, &call, Some(200), None);
        costs.add(FILE, &InCall::default(), Some(200), None);
        assert_eq!(last(&costs, 7), Some(PageCost { flash_reads: 0.5, ns: Some(50.0) }));
        // A hole.
        call = InCall::default();
        call.page(9);
        costs.add(FILE, &call, Some(200), None);
        assert_eq!(last(&costs, 9), Some(PageCost { flash_reads: 0.0, ns: Some(0.0) }));
        // Flash was read, and no page came.
        call = InCall::default();
        call.read(100);
        costs.add(FILE, &call, Some(200), None);
        // Pauses alike.
        call = InCall::default();
        [7, 8].into_iter().for_each(|page| call.page(page));
        [100, 250, 402, 550].into_iter().for_each(|time| call.read(time));
        costs.add(FILE, &call, Some(700), None);
        assert_eq!(last(&costs, 8), Some(PageCost { flash_reads: 2.0, ns: Some(300.0) }));
        call = InCall::default();
        (0..5000).for_each(|n| call.read(n));
        call.page(1);
        costs.add(FILE, &call, Some(9000), None);
        assert_eq!((last(&costs, 1), costs.not_kept), (None, 1), "too many");
    }
}
