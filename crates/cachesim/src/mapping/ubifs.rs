//! UBIFS mounted with `bulk_read`: from the third page in a row on, reading a page also brings in the pages whose data nodes
//! follow its node in the same LEB.
//!
//! `ubifs_read_folio`, `ubifs_bulk_read`, `ubifs_do_bulk_read` (fs/ubifs/file.c), `ubifs_tnc_get_bu_keys` (fs/ubifs/tnc.c) of
//! Linux 6.1.192; 5.10 to 7.2 do the same with pages or folios. What shows in the cache:
//! - the row is counted for the inode, not for the open file (`ui->last_page_read`, `ui->read_in_a_row`), and counts pages that
//!   are read in, not cached ones;
//! - a new inode's `last_page_read` is 0: page 1 follows page 0 although page 0 was not read;
//! - a bulk read has at most 32 nodes (`UBIFS_MAX_BULK_READ`) that follow each other in one LEB. The buffer sets no other limit: it
//!   holds 32 nodes of the largest size or a whole LEB (`c->max_bu_buf_len`), except where 129.5 KiB could not be allocated;
//! - cached pages are skipped, and a locked page ends the bulk read. `page_cache_ra_unbounded` adds a whole window, locked, before
//!   it reads it. So each page of a window is read alone, while its bulk read reads up to 32 nodes of flash and keeps one;
//! - at the file's end bulk reading is switched off.
//!
//! 2.6.37 added a window's pages one by one (`read_pages`, mm/readahead.c), so later ones are not cached yet.
//!
//! LEB boundaries cannot be derived: [`NodeRuns`] holds the known ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Mapping;
use crate::PAGE_BYTES;

/// `UBIFS_MAX_BULK_READ` (fs/ubifs/ubifs.h).
const MOST_NODES: u64 = 32;
/// `UBIFS_MAX_DATA_NODE_SZ` (fs/ubifs/ubifs-media.h), bytes: a header of 48 before an uncompressed block.
pub const LARGEST_NODE: u64 = 48 + PAGE_BYTES;
/// Pages read in a row that switch bulk reading on.
const IN_A_ROW: u64 = 3;

/// By page of a file: the first and last page of flash of its data node.
pub type NodePlaces = BTreeMap<u64, (u64, u64)>;

/// The runs of a file's pages whose data nodes follow each other in one LEB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRuns {
    /// First page of each run, and the page behind its last known one; ascending.
    runs: Vec<(u64, u64)>,
    /// Nodes of a LEB: the assumed length of a run whose end is not known.
    in_a_leb: u64,
    /// Bytes of a node.
    node_bytes: u64,
    page_bytes: u64,
    /// Places of the nodes that are known.
    places: Arc<NodePlaces>,
}

/// Pages of flash that a read takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Touched {
    pages: u64,
    /// Pages of flash that are read in part only.
    in_part: u64,
}

impl NodeRuns {
    /// `runs`: first page of each and the page behind its last known one, in any order. Without runs, the file is assumed to fill
    /// LEBs from its first page on, `in_a_leb` nodes each.
    pub fn new(mut runs: Vec<(u64, u64)>, in_a_leb: u64) -> NodeRuns {
        runs.sort_unstable();
        NodeRuns { runs, in_a_leb: in_a_leb.max(1), node_bytes: LARGEST_NODE, page_bytes: 2048, places: Arc::default() }
    }

    /// Sets the sizes of a node and of a page of flash, bytes. The default is the largest nodes and pages of 2 KiB.
    pub fn of_nodes(self, node_bytes: u64, page_bytes: u64) -> NodeRuns {
        NodeRuns { node_bytes: node_bytes.max(1), page_bytes: page_bytes.max(1), ..self }
    }

    /// Sets the known places of nodes.
    pub fn at(self, places: Arc<NodePlaces>) -> NodeRuns {
        NodeRuns { places, ..self }
    }

    /// The first page of the run of `page`, and the first page after the run.
    fn run(&self, page: u64) -> (u64, u64) {
        let next = self.runs.partition_point(|&(first, _)| first <= page);
        let (first, known) = if next == 0 { (0, 0) } else { self.runs[next - 1] };
        let full = known.max(first.saturating_add(self.in_a_leb));
        let (first, end) = match page < full {
            true => (first, full),
            false => {
                let lebs = (page - full) / self.in_a_leb;
                let first = full.saturating_add(lebs.saturating_mul(self.in_a_leb));
                (first, first.saturating_add(self.in_a_leb))
            }
        };
        (first, self.runs.get(next).map_or(end, |&(first, _)| end.min(first)))
    }

    /// Pages of flash for `nodes` nodes from that of `page` on; `None` where the place of the first or the last is not known.
    fn known(&self, page: u64, nodes: u64) -> Option<u64> {
        let (first, _) = self.places.get(&page)?;
        let (_, last) = self.places.get(&page.checked_add(nodes.checked_sub(1)?)?)?;
        Some(last.checked_sub(*first)?.saturating_add(1))
    }

    /// Pages of flash read for `nodes` nodes from that of `page` on. Where their places are not known, a run is assumed to begin with
    /// a page of flash (a LEB does, and so does data behind padding), and nodes to follow each other.
    fn touched(&self, page: u64, nodes: u64) -> Touched {
        let begin = (page - self.run(page).0).saturating_mul(self.node_bytes);
        let end = begin.saturating_add(nodes.saturating_mul(self.node_bytes));
        let guessed = end.div_ceil(self.page_bytes) - begin / self.page_bytes;
        let pages = self.known(page, nodes).unwrap_or(guessed);
        let in_part =
            u64::from(!begin.is_multiple_of(self.page_bytes)) + u64::from(!end.is_multiple_of(self.page_bytes));
        Touched { pages, in_part: in_part.min(pages) }
    }
}

/// Bulk reads of UBIFS, and what they read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
pub struct BulkReads {
    pub reads: u64,
    /// Data nodes that they read from flash.
    pub nodes: u64,
    /// Pages that they filled. These are fewer if some pages were cached already, or locked.
    pub pages: u64,
    /// Flash pages that they read, from the places of the nodes.
    pub flash_reads: u64,
    /// Flash pages of `flash_reads` that were needed only in part: the first and last page of each bulk read.
    pub flash_reads_in_part: u64,
    /// Pages whose nodes were read one by one, from known places.
    pub alone: u64,
    /// Flash pages that these reads took.
    pub flash_reads_alone: u64,
}

impl BulkReads {
    /// The reads since `before`.
    pub fn since(self, before: BulkReads) -> BulkReads {
        BulkReads {
            reads: self.reads - before.reads,
            nodes: self.nodes - before.nodes,
            pages: self.pages - before.pages,
            flash_reads: self.flash_reads - before.flash_reads,
            flash_reads_in_part: self.flash_reads_in_part - before.flash_reads_in_part,
            alone: self.alone - before.alone,
            flash_reads_alone: self.flash_reads_alone - before.flash_reads_alone,
        }
    }
}

/// The fields of `struct ubifs_inode` that bulk reading uses.
#[derive(Clone, Copy, Debug, Default)]
pub struct InARow {
    last_page_read: u64,
    read_in_a_row: u64,
    bulk_read: bool,
    pub done: BulkReads,
}

impl InARow {
    /// A new inode of the same file: its state is reset, the counters stay.
    pub fn of_a_new_inode(self) -> InARow {
        InARow { done: self.done, ..InARow::default() }
    }
}

/// A file on a mount with `bulk_read`, while a kernel's rules run on it.
#[derive(Clone, Copy)]
pub struct Bulk<'a> {
    pub row: InARow,
    pub runs: &'a NodeRuns,
    /// All pages of a window are added, locked, before the first of them is read.
    pub windows_locked: bool,
}

/// `page_cache_ra_unbounded`: runs of missing pages are added, then read.
pub fn add_range(m: &mut Mapping, windows_locked: bool, start: u64, end: u64, marked: Option<u64>) {
    let mut first = start;
    for page in start..end {
        if m.has(page) {
            read_run(m, first, page);
            first = page + 1;
            continue;
        }
        m.add(page, marked == Some(page));
        m.cache.set_empty(m.file, page, true);
        if !windows_locked {
            read_run(m, page, page + 1);
            first = page + 1;
        }
    }
    read_run(m, first, end);
}

fn read_run(m: &mut Mapping, first: u64, end: u64) {
    for page in first..end {
        read_folio(m, page);
    }
}

/// `ubifs_read_folio` of a cached, locked page.
pub fn read_folio(m: &mut Mapping, page: u64) {
    m.cache.set_empty(m.file, page, false);
    let Some(mut bulk) = m.bulk else { return };
    let row = &mut bulk.row;
    let follows = page == row.last_page_read.wrapping_add(1);
    row.last_page_read = page;
    if !follows {
        row.read_in_a_row = 1;
        row.bulk_read = false;
    } else if !row.bulk_read {
        row.read_in_a_row += 1;
        row.bulk_read = row.read_in_a_row >= IN_A_ROW;
    }
    if !(follows && row.bulk_read && bulk_read(m, &mut bulk, page))
        && let Some(reads) = bulk.runs.known(page, 1)
    {
        bulk.row.done.alone += 1;
        bulk.row.done.flash_reads_alone = bulk.row.done.flash_reads_alone.saturating_add(reads);
    }
    m.bulk = Some(bulk);
}

/// `ubifs_do_bulk_read`; returns whether it read the page.
fn bulk_read(m: &mut Mapping, bulk: &mut Bulk, page: u64) -> bool {
    let row = &mut bulk.row;
    let Some(last) = m.end_index().filter(|&last| page <= last) else {
        // No node: `out_bu_off`.
        (row.read_in_a_row, row.bulk_read) = (0, false);
        return false;
    };
    let nodes = MOST_NODES.min(bulk.runs.run(page).1 - page).min(last - page + 1);
    let touched = bulk.runs.touched(page, nodes);
    // The key behind the file's last is read only while there is room for it (`bu->eof`).
    if nodes < MOST_NODES && page + nodes - 1 == last {
        (row.read_in_a_row, row.bulk_read) = (1, false);
    }
    row.done.reads += 1;
    row.done.nodes += nodes;
    row.done.flash_reads = row.done.flash_reads.saturating_add(touched.pages);
    row.done.flash_reads_in_part += touched.in_part;
    row.done.pages += 1;
    row.last_page_read = fill(m, row, page + 1, page + nodes);
    true
}

/// The rest of `ubifs_do_bulk_read`: fills pages from `next` up to `end` or a locked page. Returns the last page filled.
fn fill(m: &mut Mapping, row: &mut InARow, mut next: u64, end: u64) -> u64 {
    while next < end {
        match m.flags(next) {
            Some(flags) if flags.empty => break,
            Some(_) => {}
            None => {
                m.add(next, false);
                row.done.pages += 1;
            }
        }
        next += 1;
    }
    next - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, Kernel, OpenId, Settings, Simulator};
    use flashscope_trace::{Device, FileId};

    const FILE: FileId = FileId { device: Some(Device(1)), inode: 1 };

    fn simulator(kernel: Kernel, readahead_pages: u64, pages: u64, runs: NodeRuns) -> Simulator {
        let mut simulator = Simulator::new(kernel, Settings { readahead_pages, ..Settings::default() });
        simulator.set_size(FILE, pages * 4096);
        simulator.set_bulk_read(FILE, runs);
        simulator
    }

    fn one_run() -> NodeRuns {
        NodeRuns::new(vec![(0, 10_000)], 30)
    }

    fn read(simulator: &mut Simulator, page: u64, pages: u64) -> Vec<u64> {
        let mut came = Vec::new();
        let access = Access::Read { offset: page * 4096, length: pages * 4096 };
        simulator.apply(FILE, OpenId(1), access, &mut |event| came.push(event.page));
        came
    }

    #[test]
    fn the_third_page_in_a_row_brings_in_those_that_follow_in_its_leb() {
        for kernel in Kernel::ALL {
            // The first run ends with page 30, the next one is as long as a LEB may be.
            let mut s = simulator(kernel, 0, 200, NodeRuns::new(vec![(0, 31), (31, 31)], 40));
            assert_eq!([read(&mut s, 0, 1), read(&mut s, 1, 1)], [[0], [1]], "{kernel:?}");
            assert_eq!(read(&mut s, 2, 1), (2..31).collect::<Vec<_>>(), "{kernel:?}");
            assert!(read(&mut s, 30, 1).is_empty(), "{kernel:?}");
            assert_eq!(read(&mut s, 31, 1), (31..63).collect::<Vec<_>>(), "{kernel:?}");
            assert_eq!(read(&mut s, 63, 1), (63..71).collect::<Vec<_>>(), "{kernel:?}");
            // Not in a row: alone, and the count begins anew.
            assert_eq!([read(&mut s, 100, 1), read(&mut s, 101, 1)], [[100], [101]], "{kernel:?}");
            assert_eq!(read(&mut s, 102, 1).len(), 9, "{kernel:?}: to page 110, where a LEB ends");
            let done = s.bulk_reads();
            assert_eq!((done.reads, done.nodes, done.pages), (4, 78, 78), "{kernel:?}");
        }
    }

    #[test]
    fn what_nodes_touch_is_counted_in_pages_of_flash() {
        let touched = |page, nodes| {
            let runs = NodeRuns::new(vec![(0, 30), (30, 31)], 30);
            let Touched { pages, in_part } = runs.touched(page, nodes);
            (pages, in_part)
        };
        // 4144 bytes are two pages and 48 bytes: a LEB's 30 nodes end 1440 bytes into the 61st page.
        assert_eq!([touched(0, 1), touched(0, 30), touched(2, 28), touched(1, 1)], [(3, 1), (61, 1), (57, 2), (3, 2)]);
        // Nodes that follow what is known begin a LEB of their own; the 128 of 4144 bytes end with a page.
        assert_eq!([touched(30, 2), touched(60, 1), touched(61, 30)], [(5, 1), (3, 1), (61, 2)]);
        let long = NodeRuns::new(vec![(0, 1000)], 30);
        assert_eq!(long.touched(0, 128), Touched { pages: 259, in_part: 0 });
        let small = NodeRuns::new(vec![], 60).of_nodes(500, 4096);
        assert_eq!(small.touched(1, 2), Touched { pages: 1, in_part: 1 });
        let mut s = simulator(Kernel::V6_1, 0, 200, NodeRuns::new(vec![], 30));
        read(&mut s, 0, 30);
        let done = s.bulk_reads();
        assert_eq!((done.reads, done.nodes, done.flash_reads, done.flash_reads_in_part), (1, 28, 57, 2));
        assert_eq!((done.alone, done.flash_reads_alone), (0, 0), "not known");
    }

    #[test]
    fn nodes_whose_places_are_known_take_what_lies_there() {
        // Compressed: pages 0 and 2 to one page of flash, page 1 over two; page 29 ends 40 pages from there.
        let places = BTreeMap::from([(0, (640, 640)), (1, (640, 641)), (2, (641, 641)), (29, (679, 680))]);
        let runs = NodeRuns::new(vec![], 30).at(places.into());
        let pages = |page, nodes| runs.touched(page, nodes).pages;
        assert_eq!([pages(0, 1), pages(1, 1), pages(0, 3), pages(2, 28), pages(0, 0)], [1, 2, 2, 40, 0]);
        assert_eq!(pages(3, 1), 3, "not known: as of 4144 bytes each");
        let mut s = simulator(Kernel::V6_1, 0, 200, runs);
        read(&mut s, 0, 30);
        let done = s.bulk_reads();
        assert_eq!((done.reads, done.flash_reads, done.alone, done.flash_reads_alone), (1, 40, 2, 3));
    }

    #[test]
    fn one_read_of_many_pages_is_in_a_row_itself() {
        let mut s = simulator(Kernel::V6_1, 0, 200, one_run());
        assert_eq!(read(&mut s, 50, 4), (50..84).collect::<Vec<_>>());
        // A new inode's last page is page 0.
        let mut s = simulator(Kernel::V6_1, 0, 200, one_run());
        read(&mut s, 1, 2);
        assert_eq!(read(&mut s, 3, 1).len(), 32);
    }

    #[test]
    fn what_is_there_is_passed_over_and_counts_as_read() {
        let mut s = simulator(Kernel::V6_1, 0, 200, one_run());
        read(&mut s, 5, 1);
        read(&mut s, 0, 2);
        let came: Vec<u64> = (2..34).filter(|&page| page != 5).collect();
        assert_eq!(read(&mut s, 2, 1), came);
        assert_eq!(read(&mut s, 34, 1).len(), 32);
    }

    #[test]
    fn at_the_file_s_end_it_is_switched_off() {
        let mut s = simulator(Kernel::V6_1, 0, 10, one_run());
        assert_eq!(read(&mut s, 0, 3).len(), 10);
        assert_eq!(s.bulk_reads().reads, 1);
        let mut last = Vec::new();
        s.apply(FILE, OpenId(1), Access::Drop { page: 9, pages: 1 }, &mut |_| {});
        s.apply(FILE, OpenId(1), Access::Fault { page: 9, advice: Default::default() }, &mut |e| last.push(e.page));
        assert_eq!((last, s.bulk_reads().reads), (vec![9], 1));
    }

    /// A window's pages are locked: only its last page reads on. 2.6.37 adds them one by one.
    #[test]
    fn within_a_window_each_page_is_read_alone() {
        for (kernel, pages, done) in
            [(Kernel::V5_10, 35, (2, 64, 33)), (Kernel::V6_1, 35, (2, 64, 33)), (Kernel::V2_6_37, 34, (1, 32, 32))]
        {
            let mut s = simulator(kernel, 32, 200, one_run());
            // Four pages: the third and the fourth of them are bulk reads.
            assert_eq!(read(&mut s, 0, 1).len(), pages, "{kernel:?}");
            let bulk = s.bulk_reads();
            assert_eq!((bulk.reads, bulk.nodes, bulk.pages), done, "{kernel:?}");
        }
    }

    #[test]
    fn no_number_is_too_large() {
        for kernel in Kernel::ALL {
            for runs in [NodeRuns::new(vec![], 0), NodeRuns::new(vec![(5, 2), (u64::MAX, u64::MAX), (7, 7)], u64::MAX)]
            {
                let mut s = Simulator::new(kernel, Settings { budget_pages: 64, ..Settings::default() });
                s.set_size(FILE, u64::MAX);
                s.set_bulk_read(FILE, runs);
                for offset in [0, 4096, 8192, u64::MAX / 2, u64::MAX - 4096] {
                    s.apply(FILE, OpenId(1), Access::Read { offset, length: 1 << 20 }, &mut |_| {});
                }
            }
        }
    }
}
