//! UBIFS's index: the index nodes that a page needs and that are not in memory yet (`ubifs_lookup_level0()`, fs/ubifs/tnc.c, reads the
//! tree node by node and keeps it). A node of the lowest level points at data nodes, one of the next level at those, and so on.
//!
//! By default a file's pages are divided from its first one on, as appending fills nodes, and a node lies on one page of flash.
//! A recording in which a file was read page by page from its last one down shows the real division: a page for which the index is
//! read is the last one of its node. One read more means that the node lies on two pages of flash, or that the node above was read as
//! well: so it is for the file's last node, and for each eighth. Where the file was read upwards as well, further reads in both
//! directions belong to the node itself. Further reads in one direction belong to the node above, which ends, or begins, there. Pages
//! before the begin came with the inode.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use flashscope_trace::FileId;

/// Children of a node of the index: `UBIFS_DEFAULT_FANOUT` of mkfs.ubifs and `DEFAULT_FANOUT` of the kernel (fs/ubifs/sb.c).
const FANOUT: u64 = 8;
/// Levels above the data nodes: enough for more than 2 GiB of file.
const LEVELS: usize = 6;
/// Levels of a file of some MiB.
pub const DEPTH: usize = 3;
/// Most nodes kept while a setting is played: those of 28 GiB of files, more than a chip of raw NAND has. Further ones are read again
/// for each page.
const MAX_ENTRIES: usize = 1 << 20;

/// Index reads while a file is read page by page: from its last page down, then, with nothing in memory, up again.
#[derive(Debug, Default)]
pub struct Descent {
    highest: u64,
    lowest: Option<u64>,
    /// Reads of the index, by the page that needed them.
    reads: BTreeMap<u64, u32>,
    up: Ascent,
}

/// Reading upwards, or every second page before the one below it: two in a row would begin a bulk read.
#[derive(Debug, Default)]
struct Ascent {
    /// The lowest page that has not been read yet.
    next: u64,
    has_second: bool,
    reads: BTreeMap<u64, u32>,
}

impl Ascent {
    /// Takes `page` if it is the next one, up to the highest. Returns whether it was.
    fn page(&mut self, page: u64, reads: u32, highest: u64) -> bool {
        let is_second = !self.has_second && page.checked_sub(1) == Some(self.next);
        if page > highest || !(is_second || page == self.next) {
            return false;
        }
        if is_second {
            self.has_second = true;
        } else {
            self.next = self.next.saturating_add(if self.has_second { 2 } else { 1 });
            self.has_second = false;
        }
        if reads > 0 {
            self.reads.insert(page, reads);
        }
        true
    }
}

/// A node, with the reads on the way down and on the way up.
#[derive(Clone, Copy)]
struct Read {
    first: u64,
    end: u64,
    /// Flash reads of it and of nodes above it.
    down: u32,
    up: u32,
}

impl Read {
    /// A node of which only the end is known.
    fn until(end: u64, down: u32, pages_of_one: u64) -> Read {
        Read { first: end.saturating_add(1).saturating_sub(pages_of_one), end, down, up: 0 }
    }
}

impl Descent {
    pub fn page(&mut self, page: u64, reads: u32) {
        if self.lowest == Some(0) && self.up.page(page, reads, self.highest) {
            return;
        }
        if page.checked_add(1) != self.lowest {
            self.reads.clear();
            self.up = Ascent::default();
            self.highest = page;
        }
        self.lowest = Some(page);
        if reads > 0 {
            self.reads.insert(page, reads);
        }
    }

    /// The levels of a file whose last page read is `last`. `None` where it was not read downwards from there to page 0.
    pub fn levels(&self, last: u64) -> Option<Levels> {
        if self.lowest != Some(0) || self.highest != last {
            return None;
        }
        // Where the whole index was in memory on the way up, that direction shows nothing.
        let both = self.up.next > self.highest && (self.reads.is_empty() || !self.up.reads.is_empty());
        let mut levels = Vec::new();
        let mut pages_of_one = FANOUT;
        let mut left: Vec<Read> =
            self.reads.iter().rev().map(|(&page, &reads)| Read::until(page, reads, pages_of_one)).collect();
        complete(&mut left, self.highest, pages_of_one);
        if both {
            self.climb(&mut left);
        }
        while !left.is_empty() && levels.len() < LEVELS {
            let own = if both { of_both(&left) } else { of_eighths(&left) };
            levels.push(Level(left.iter().zip(&own).map(|(one, &own)| (one.end, (one.first, own))).collect()));
            pages_of_one *= FANOUT;
            left = above(&left, &own, pages_of_one);
            if let Some(&Read { end, .. }) = left.first() {
                complete(&mut left, end, pages_of_one);
            }
        }
        Some(Levels(levels))
    }

    /// Sets the reads of these nodes on the way up.
    fn climb(&self, nodes: &mut [Read]) {
        let below: Vec<Option<u64>> =
            nodes.iter().skip(1).map(|below| Some(below.end.saturating_add(1))).chain([None]).collect();
        for (one, below) in nodes.iter_mut().zip(below) {
            let mut reads = self.up.reads.range(below.unwrap_or(0)..=one.end).peekable();
            one.first = match (below, reads.peek()) {
                (Some(below), _) => one.first.max(below),
                // The pages before came with the inode. Every second page was read before the one below it.
                (None, Some(&(&begun, _))) if begun > one.first.saturating_add(1) => begun,
                _ => one.first,
            };
            one.up = reads.map(|(_, reads)| reads).sum();
        }
    }
}

/// Flash reads of these nodes themselves, from both directions. Where a node is alone below its parent, the parent was read both
/// times: the node follows another's end, and precedes another's begin or is the first.
fn of_both(nodes: &[Read]) -> Vec<u32> {
    let least = |one: &Read| one.down.min(one.up).max(1);
    let is_alone = |at: usize| {
        let lower_ends = nodes.get(at + 1).is_some_and(|lower| lower.down > least(lower));
        let higher_begins = at.checked_sub(1).is_none_or(|higher| nodes[higher].up > least(&nodes[higher]));
        lower_ends && higher_begins
    };
    let own = |(at, one): (usize, &Read)| least(one) - u32::from(least(one) > 1 && is_alone(at));
    nodes.iter().enumerate().map(own).collect()
}

/// The same from the downward direction only: the node above was read for each eighth, from one of the first eight on.
fn of_eighths(nodes: &[Read]) -> Vec<u32> {
    let fanout = FANOUT as usize;
    let more = |phase: &usize| nodes.iter().skip(*phase).step_by(fanout).filter(|one| one.down > 1).count();
    let phase = (0..fanout).rev().max_by_key(more).unwrap_or(0);
    let own = |(at, one): (usize, &Read)| if at == 0 || at % fanout == phase { 1 } else { one.down };
    nodes.iter().enumerate().map(own).collect()
}

/// The nodes above these, from the highest page down.
fn above(nodes: &[Read], own: &[u32], pages_of_one: u64) -> Vec<Read> {
    let mut above: Vec<Read> = Vec::new();
    // Whether the begin of the last one is still missing.
    let mut open = false;
    for (one, own) in nodes.iter().zip(own) {
        if one.down > *own {
            if let Some(higher) = above.last_mut().filter(|_| open) {
                higher.first = higher.first.max(one.end.saturating_add(1));
            }
            above.push(Read::until(one.end, one.down - own, pages_of_one));
            open = true;
        }
        if let Some(higher) = above.last_mut().filter(|_| open && one.up > *own) {
            (higher.first, higher.up) = (one.first, one.up - own);
            open = false;
        }
    }
    above
}

/// Adds nodes that were in memory when their pages were read: where ends lie farther apart than one node reaches, and from the highest
/// page on. The lowest node comes with the inode.
fn complete(nodes: &mut Vec<Read>, highest: u64, pages_of_one: u64) {
    let mut whole = Vec::new();
    let mut next = highest;
    for &one in nodes.iter() {
        while next > one.end {
            whole.push(Read::until(next, 1, pages_of_one));
            let Some(below) = next.checked_sub(pages_of_one).filter(|&below| below > one.end) else { break };
            next = below;
        }
        whole.push(one);
        next = one.first.saturating_sub(1);
    }
    while next >= pages_of_one {
        whole.push(Read::until(next, 1, pages_of_one));
        next -= pages_of_one;
    }
    *nodes = whole;
}

/// Nodes of one level, by the last page that each covers: its first page, and its flash reads.
#[derive(Clone, Debug, PartialEq)]
struct Level(BTreeMap<u64, (u64, u32)>);

/// A file's part of the index, from the lowest level up.
#[derive(Clone, Debug, PartialEq)]
pub struct Levels(Vec<Level>);

/// The index nodes that are in memory.
#[derive(Default)]
pub struct Index<'a> {
    shown: Option<&'a BTreeMap<FileId, Arc<Levels>>>,
    /// File, level and last page of the node.
    known: HashSet<(FileId, usize, u64)>,
}

impl<'a> Index<'a> {
    pub fn new(shown: &'a BTreeMap<FileId, Arc<Levels>>) -> Index<'a> {
        Index { shown: Some(shown), ..Index::default() }
    }

    /// A page is read: returns the flash reads for the index of its file.
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
            // The node with the first pages came with the inode, whose key is the one before theirs.
            let Some((&end, &(first, reads))) = level.0.range(page..).next() else { break };
            if page < first || !self.is_new(file, at, end) {
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
    use flashscope_trace::Device;

    const FILE: FileId = FileId { device: Some(Device(14)), inode: 5 };

    /// The reads of the index for these pages, in this order, with nothing in memory at first.
    fn reads(levels: &Levels, pages: &[u64]) -> Vec<u64> {
        let shown = BTreeMap::from([(FILE, Arc::new(levels.clone()))]);
        let mut index = Index::new(&shown);
        pages.iter().map(|&page| index.reads(FILE, page)).collect()
    }

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
        let reads = |pages: &[u64]| reads(&levels, pages);
        assert_eq!(levels.0.iter().map(|level| level.0.len()).collect::<Vec<_>>(), [17, 2]);
        assert_eq!(reads(&[3, 0, 11, 4, 12, 19]), [0, 0, 2, 0, 1, 0], "the first ones came with the inode");
        // Two pages of flash; below the node that came with another; its own.
        assert_eq!(reads(&[116, 123, 107, 106]), [2, 0, 2, 0]);
        assert_eq!(reads(&[90, 107, 43, 44]), [2, 1, 2, 1]);
        // All of it downwards is what was read.
        let downwards: Vec<u64> = (0..140).rev().collect();
        let all: u32 = descent().reads.values().sum();
        assert_eq!(reads(&downwards).iter().sum::<u64>(), u64::from(all));
    }

    /// Leaves of eight pages that end with 4, 12, 20 and so on to 60, the last one of four, at 64; 4 came with the inode, as did the
    /// node above the first three. The next one above has five, and the one behind that the last leaf, and one more of what is above
    /// both; the leaf that ends with 36 lies on two pages of flash.
    fn down_and_up(up: &[u64]) -> Descent {
        let leaf = |page: u64| if page > 60 { 64 } else { (page + 3) / 8 * 8 + 4 };
        let mut known = HashSet::new();
        let mut descent = Descent::default();
        let mut read = |known: &mut HashSet<u64>, page: u64| {
            let leaf = leaf(page);
            let mut reads = u32::from(leaf > 4 && known.insert(leaf)) * if leaf == 36 { 2 } else { 1 };
            if leaf > 20 {
                reads += u32::from(known.insert(if leaf > 60 { 1000 } else { 1001 })) + u32::from(known.insert(1002));
            }
            descent.page(page, reads);
        };
        (0..65).rev().for_each(|page| read(&mut known, page));
        known.clear();
        up.iter().for_each(|&page| read(&mut known, page));
        descent
    }

    #[test]
    fn reading_upwards_as_well_shows_where_nodes_begin() {
        let straight: Vec<u64> = (0..65).collect();
        let in_pairs: Vec<u64> = (0..64).map(|page| page ^ 1).chain([64]).collect();
        for up in [straight, in_pairs.clone()] {
            let levels = down_and_up(&up).levels(64).unwrap();
            let leaves = [
                (12, (5, 1)),
                (20, (13, 1)),
                (28, (21, 1)),
                (36, (29, 2)),
                (44, (37, 1)),
                (52, (45, 1)),
                (60, (53, 1)),
            ];
            let leaves = Level(leaves.into_iter().chain([(64, (61, 1))]).collect());
            assert_eq!(levels.0[..2], [leaves, Level(BTreeMap::from([(60, (21, 1)), (64, (61, 1))]))], "{levels:?}");
            // What is above the leaf came with the inode, or did not; a recording downwards would have it begin with page 0.
            assert_eq!(reads(&levels, &[12, 20, 4, 28, 36, 64]), [1, 1, 0, 3, 2, 2]);
        }
        // Not up to the end: only downwards.
        let levels = down_and_up(&in_pairs[..40]).levels(64).unwrap();
        assert_eq!(levels, down_and_up(&[]).levels(64).unwrap());
        assert_ne!(levels, down_and_up(&in_pairs).levels(64).unwrap());
        assert_eq!(down_and_up(&[0, 2, 1, 5]).levels(64), None, "read in no order");
    }

    #[test]
    fn what_was_all_in_memory_on_the_way_up_shows_no_more() {
        let mut descent = descent();
        let downwards = descent.levels(139);
        (0..140).for_each(|page| descent.page(page, 0));
        assert_eq!(descent.levels(139), downwards);
    }

    #[test]
    fn nodes_that_were_in_memory_are_where_they_have_to_be() {
        let of = |ends: &[(u64, u32)], highest, pages_of_one| {
            let mut nodes: Vec<Read> = ends.iter().map(|&(end, down)| Read::until(end, down, pages_of_one)).collect();
            complete(&mut nodes, highest, pages_of_one);
            nodes.iter().map(|one| (one.end, one.down)).collect::<Vec<_>>()
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
        assert_eq!(reads(&absurd.levels(0).unwrap(), &[u64::MAX]), [0]);
    }
}
