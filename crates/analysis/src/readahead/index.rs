//! UBIFS's index: which of its nodes a page needs that are not in memory yet (`ubifs_lookup_level0()`, fs/ubifs/tnc.c, reads the tree
//! node by node and keeps it). A node of the lowest level points at data nodes, one of the next level at those, and so on.
//!
//! Where a recording shows no more, a file's pages are taken to be divided from its first one on, as appending fills nodes, and a
//! node to lie on one page of flash. A recording in which a file was read page by page from its last one down shows how they are: a page
//! for which the index is read is the last one of its node. It may have taken one read more because the node lies on two pages of
//! flash, or because the one above it was read as well: that is so of the file's last one, and of each eighth.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use flashscope_readahead::FileId;

/// Children of a node of the index: `UBIFS_DEFAULT_FANOUT` of mkfs.ubifs and `DEFAULT_FANOUT` of the kernel (fs/ubifs/sb.c).
const FANOUT: u64 = 8;
/// Levels above the data nodes that are told apart: of more than 2 GiB of file.
const LEVELS: usize = 6;
/// Levels that a file of some MiB has.
pub const DEPTH: usize = 3;
/// Nodes that are kept while a setting is played: those of 28 GiB of files, more than a chip of raw NAND has. Beyond, one is read again
/// for each page.
const MAX_ENTRIES: usize = 1 << 20;

/// Reads of the index while a file is read page by page, from its last page down.
#[derive(Debug, Default)]
pub struct Descent {
    highest: u64,
    lowest: Option<u64>,
    /// Pages for which it was read, and how many reads those were.
    reads: BTreeMap<u64, u32>,
}

impl Descent {
    pub fn page(&mut self, page: u64, reads: u32) {
        if page.checked_add(1) != self.lowest {
            self.reads.clear();
            self.highest = page;
        }
        self.lowest = Some(page);
        if reads > 0 {
            self.reads.insert(page, reads);
        }
    }

    /// Of a file whose last page that was read, in any order, is this one. `None` where it was not read downwards from there.
    pub fn levels(&self, last: u64) -> Option<Levels> {
        if self.lowest != Some(0) || self.highest != last {
            return None;
        }
        let mut levels = Vec::new();
        let mut left: Vec<(u64, u32)> = self.reads.iter().rev().map(|(&page, &reads)| (page, reads)).collect();
        let mut pages_of_one = FANOUT;
        complete(&mut left, self.highest, pages_of_one);
        while !left.is_empty() && levels.len() < LEVELS {
            // Of which of them the node above was read: each eighth, from one of the first eight on.
            let more =
                |phase: &usize| left.iter().skip(*phase).step_by(FANOUT as usize).filter(|one| one.1 > 1).count();
            let phase = (0..FANOUT as usize).rev().max_by_key(more).unwrap_or(0);
            let mut ends = BTreeMap::new();
            let mut above = Vec::new();
            for (at, &(page, reads)) in left.iter().enumerate() {
                let is_above = (at == 0 || at % FANOUT as usize == phase) && reads > 1;
                ends.insert(page, if is_above { 1 } else { reads });
                if is_above {
                    above.push((page, reads - 1));
                }
            }
            levels.push(Level { ends, pages_of_one });
            left = above;
            pages_of_one *= FANOUT;
            if let Some(&(first, _)) = left.first() {
                complete(&mut left, first, pages_of_one);
            }
        }
        Some(Levels(levels))
    }
}

/// Nodes that were in memory when their pages were read: where ends lie farther apart than one reaches, and from the highest page on.
/// The lowest one comes with the inode.
fn complete(ends: &mut Vec<(u64, u32)>, highest: u64, pages_of_one: u64) {
    let mut whole = Vec::new();
    let mut next = highest;
    for &(end, reads) in ends.iter() {
        while next > end {
            whole.push((next, 1));
            let Some(below) = next.checked_sub(pages_of_one).filter(|&below| below > end) else { break };
            next = below;
        }
        whole.push((end, reads));
        next = end.saturating_sub(pages_of_one);
    }
    while next >= pages_of_one {
        whole.push((next, 1));
        next -= pages_of_one;
    }
    *ends = whole;
}

/// Nodes of one level.
#[derive(Clone, Debug, PartialEq)]
struct Level {
    /// The last page that each covers, and reads of flash for it.
    ends: BTreeMap<u64, u32>,
    /// The most that one covers.
    pages_of_one: u64,
}

/// A file's part of the index, from the lowest level up.
#[derive(Clone, Debug, PartialEq)]
pub struct Levels(Vec<Level>);

/// What of the index is in memory.
#[derive(Default)]
pub struct Index<'a> {
    shown: Option<&'a BTreeMap<FileId, Arc<Levels>>>,
    /// File, level, and the node.
    known: HashSet<(FileId, usize, u64)>,
}

impl<'a> Index<'a> {
    pub fn new(shown: &'a BTreeMap<FileId, Arc<Levels>>) -> Index<'a> {
        Index { shown: Some(shown), ..Index::default() }
    }

    /// A page comes: reads of flash for the index of its file.
    pub fn reads(&mut self, file: FileId, page: u64) -> u64 {
        if let Some(levels) = self.shown.and_then(|shown| shown.get(&file)) {
            return self.shown_reads(file, page, levels);
        }
        let mut reads = 0;
        let mut pages_of_one = FANOUT;
        for level in 0..DEPTH {
            if !self.is_new(file, level, page / pages_of_one) {
                break;
            }
            reads += 1;
            pages_of_one *= FANOUT;
        }
        reads
    }

    fn shown_reads(&mut self, file: FileId, page: u64, levels: &Levels) -> u64 {
        let mut all = 0;
        for (at, level) in levels.0.iter().enumerate() {
            // What covers the first pages came with the inode, whose key is the one before theirs.
            let Some((&end, &reads)) = level.ends.range(page..).next() else { break };
            if end - page >= level.pages_of_one || !self.is_new(file, at, end) {
                break;
            }
            all += u64::from(reads);
        }
        all
    }

    fn is_new(&mut self, file: FileId, level: usize, node: u64) -> bool {
        let one = (file, level, node);
        let new = !self.known.contains(&one);
        if new && self.known.len() < MAX_ENTRIES {
            self.known.insert(one);
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = FileId { device: Some(14), inode: 5 };

    #[test]
    fn the_index_is_read_once() {
        let mut index = Index::default();
        let other = FileId { inode: 6, ..FILE };
        let reads: Vec<u64> = [(FILE, 0), (FILE, 1), (FILE, 7), (FILE, 8), (FILE, 64), (FILE, 3), (other, 3)]
            .map(|(file, page)| index.reads(file, page))
            .to_vec();
        assert_eq!(reads, [3, 0, 0, 1, 2, 0, 3]);
    }

    /// Nodes of eight pages that end with page 3, 11, ..., the first of which came with the inode; the third from the top lies on two
    /// pages of flash. The fifth and the thirteenth come with the one above them.
    fn descent() -> Descent {
        let mut descent = Descent::default();
        for page in (0..140).rev() {
            let ordinal = (139 - page) / 8;
            let reads = match page {
                3 => 0,
                _ if page % 8 != 3 => 0,
                _ if ordinal == 2 || ordinal % 8 == 4 => 2,
                _ => 1,
            };
            descent.page(page, reads);
        }
        descent
    }

    #[test]
    fn reading_downwards_shows_where_nodes_end() {
        let levels = descent().levels(139).unwrap();
        let shown = BTreeMap::from([(FILE, Arc::new(levels.clone()))]);
        let reads = |pages: &[u64]| {
            let mut index = Index::new(&shown);
            pages.iter().map(|&page| index.reads(FILE, page)).collect::<Vec<u64>>()
        };
        assert_eq!(levels.0.iter().map(|level| level.ends.len()).collect::<Vec<_>>(), [17, 2]);
        assert_eq!(reads(&[3, 0, 11, 4, 12, 19]), [0, 0, 2, 0, 1, 0], "the first ones came with the inode");
        // Two pages of flash; below the node that came with another; its own.
        assert_eq!(reads(&[116, 123, 107, 106]), [2, 0, 2, 0]);
        assert_eq!(reads(&[90, 107, 43, 44]), [2, 1, 2, 1]);
        // All of it downwards is what was read.
        let downwards: Vec<u64> = (0..140).rev().collect();
        let all: u32 = descent().reads.values().sum();
        assert_eq!(reads(&downwards).iter().sum::<u64>(), u64::from(all));
    }

    #[test]
    fn nodes_that_were_in_memory_are_where_they_have_to_be() {
        let of = |ends: &[(u64, u32)], highest, pages_of_one| {
            let mut ends = ends.to_vec();
            complete(&mut ends, highest, pages_of_one);
            ends
        };
        assert_eq!(of(&[(27, 2), (19, 1), (11, 1)], 27, 8), [(27, 2), (19, 1), (11, 1)]);
        assert_eq!(of(&[(27, 2), (22, 1)], 40, 8), [(40, 1), (32, 1), (27, 2), (22, 1), (14, 1)]);
        assert_eq!(of(&[], 20, 8), [(20, 1), (12, 1)]);
        assert_eq!(of(&[(300, 1), (60, 1)], 300, 64), [(300, 1), (236, 1), (172, 1), (108, 1), (60, 1)]);
    }

    #[test]
    fn what_was_read_otherwise_shows_nothing() {
        let mut descent = descent();
        assert!(descent.levels(139).is_some());
        assert_eq!(descent.levels(140), None, "not from its last page on");
        descent.page(7, 1);
        assert_eq!(descent.levels(7), None, "a new one, from page 7 on");
        (0..7).rev().for_each(|page| descent.page(page, 0));
        assert_eq!((descent.levels(139), descent.levels(7).map(|levels| levels.0.len())), (None, Some(1)));
        assert_eq!(Descent::default().levels(0), None);
        let mut absurd = Descent::default();
        absurd.page(u64::MAX, u32::MAX);
        absurd.page(0, u32::MAX);
        let shown = BTreeMap::from([(FILE, Arc::new(absurd.levels(0).unwrap()))]);
        assert_eq!(Index::new(&shown).reads(FILE, u64::MAX), 0);
    }
}
