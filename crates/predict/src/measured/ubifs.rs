//! Places of a file's data nodes on UBIFS, as far as a trace shows: a bulk read ends with its LEB.
//!
//! Reading a page reads its data node last (fs/ubifs/file.c, `read_block`: `ubifs_tnc_lookup` first, which may read index nodes, then
//! the node; 6.1.192). So a call's last flash read is the place of the last page that it brought in. Two pages whose places lie in
//! one erase block, no farther apart than nodes of the largest size reach, lie in one run. Between other places, the LEB is assumed
//! to end where one would be full.
//!
//! UBIFS pads its write buffer to a page of flash where it has to be written out before it is full (`ubifs_wbuf_sync_nolock`,
//! fs/ubifs/io.c), and a new run begins behind the padding. A node that shares no page of flash with the one before it follows such
//! padding, or the node before happened to end with a page. It is padding where the LEB holds fewer nodes than a full one. As many
//! paddings are assumed as explain the missing nodes, from the LEB's begin on: a new LEB of the journal may request a commit
//! (`ubifs_add_bud_to_log`, fs/ubifs/log.c), which writes the buffers out (`do_commit`, fs/ubifs/commit.c) while the LEB has few nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use flashscope_cachesim::{LARGEST_NODE, NodePlaces, NodeRuns};
use flashscope_trace::facts::Mount;
use flashscope_trace::{Device, Facts, FileId};

use crate::measured::index::{Descent, Index, Levels};

/// Most places that are kept (40 bytes each).
const MAX_PLACES: usize = 1 << 20;

/// The flash below a UBIFS mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    pub leb_bytes: u64,
    pub block_pages: u64,
    pub page_bytes: u64,
}

/// The flash geometry of each UBIFS mount, by device number.
pub fn mounts(facts: &Facts) -> BTreeMap<Device, Geometry> {
    let of = |mount: &Mount| {
        let device = mount.device()?;
        // ubi0:name, ubi0_0, /dev/ubi0_0
        let source = mount.source.as_deref()?;
        let source = source.strip_prefix("/dev/").unwrap_or(source);
        let name = source.split([':', '_', '!']).next();
        let ubi = facts.ubi.iter().find(|ubi| ubi.name.as_deref() == name)?;
        let mtd = facts.mtd(ubi.mtd_num?)?;
        let (leb_bytes, block_bytes) = (ubi.eraseblock_size?, mtd.erasesize?);
        let page_bytes = mtd.writesize.filter(|&bytes| bytes > 0)?;
        let block_pages = block_bytes / page_bytes;
        (block_pages > 0 && leb_bytes > 0).then_some((device, Geometry { leb_bytes, block_pages, page_bytes }))
    };
    facts.mounts.iter().filter(|mount| mount.is("ubifs")).filter_map(of).collect()
}

/// Whether /proc/mounts says `bulk_read`: `ubifs_show_options` (fs/ubifs/super.c) names it only where it was requested, and the
/// default is without.
pub fn has_bulk_read(mount: &Mount) -> bool {
    mount.options.as_deref().is_some_and(|options| options.split(',').any(|option| option == "bulk_read"))
}

/// Pages of flash that were read consecutively.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    chip: u16,
    /// `None` for a call with several pages: where the last page's reads begin is not known.
    first: Option<u64>,
    last: u64,
}

impl Place {
    /// Adds a page of flash to the consecutive reads in `before`; begins anew where it does not follow.
    pub fn after(before: Option<Place>, chip: u16, page: u64) -> Place {
        match before {
            Some(run) if run.chip == chip && (page == run.last || page.checked_sub(1) == Some(run.last)) => {
                Place { last: page, ..run }
            }
            _ => Place { chip, first: Some(page), last: page },
        }
    }

    /// Whether `next` begins with the page of flash behind this place.
    pub fn is_before(self, next: Place) -> bool {
        self.chip == next.chip && next.first.is_some_and(|first| first.checked_sub(1) == Some(self.last))
    }

    /// Number of pages of flash of a single node.
    fn reads(self) -> Option<u64> {
        Some(self.last.saturating_sub(self.first?).saturating_add(1))
    }

    /// The place of the last page of a call with several: only its end is known.
    pub fn of_the_last_page(self) -> Place {
        Place { first: None, ..self }
    }
}

/// The pages of flash that each page of a file was last read from.
#[derive(Default)]
pub struct Places {
    mounts: BTreeMap<Device, Geometry>,
    by_page: BTreeMap<(FileId, u64), Place>,
    descents: BTreeMap<FileId, Descent>,
}

/// Results from the places.
#[derive(Clone, Debug, Default)]
pub struct Nodes {
    pub runs: BTreeMap<FileId, NodeRuns>,
    /// Mean pages of flash of a data node, from nodes that follow each other; `None` where no two are known.
    pub flash_pages: Option<f64>,
    /// Flash reads for a data node that is read alone; `None` where no page was read so.
    pub alone: Option<f64>,
    /// First and last page of flash of each page's node.
    places: BTreeMap<FileId, Arc<NodePlaces>>,
    /// Files for which the trace shows no run.
    pub guessed: usize,
    /// The index nodes of pages, for files where they are known.
    index: BTreeMap<FileId, Arc<Levels>>,
}

impl Nodes {
    /// Flash reads for this page's node, where its place is known.
    pub fn of(&self, file: FileId, page: u64) -> Option<u64> {
        self.places.get(&file)?.get(&page).map(|&(first, last)| last.saturating_sub(first).saturating_add(1))
    }

    /// The index as far as it is known, with no node in memory.
    pub fn index(&self) -> Index<'_> {
        Index::new(&self.index)
    }

    /// The runs of a file on UBIFS, with the places of its nodes.
    pub fn runs_of(&self, file: FileId) -> Option<NodeRuns> {
        let runs = self.runs.get(&file)?.clone();
        Some(runs.at(self.places.get(&file).cloned().unwrap_or_default()))
    }

    /// Takes the places from `other` for these files (with their sizes), where they are on UBIFS.
    pub fn learn(&mut self, other: &Nodes, of: &BTreeMap<FileId, u64>) {
        if other.flash_pages.is_none() {
            return;
        }
        self.flash_pages = other.flash_pages;
        self.alone = other.alone.or(self.alone);
        let shown = other.runs.iter().filter(|(file, _)| of.contains_key(file));
        self.runs.extend(shown.map(|(&file, runs)| (file, runs.clone())));
        for (&file, places) in other.places.iter().filter(|(file, _)| of.contains_key(file)) {
            Arc::make_mut(self.places.entry(file).or_default()).extend(places.iter());
        }
        let index = other.index.iter().filter(|(file, _)| of.contains_key(file));
        self.index.extend(index.map(|(&file, levels)| (file, levels.clone())));
        self.guessed = self.runs.keys().filter(|file| !other.runs.contains_key(file)).count().min(self.guessed);
    }
}

impl Places {
    pub fn new(facts: &Facts) -> Places {
        Places { mounts: mounts(facts), by_page: BTreeMap::new(), descents: BTreeMap::new() }
    }

    /// A call that brought in pages up to this one ended with consecutive flash reads at `place`, of `reads` in all.
    pub fn note(&mut self, file: FileId, page: u64, place: Place, reads: u32) {
        let on_ubifs = file.device.is_some_and(|device| self.mounts.contains_key(&device));
        if on_ubifs && (self.by_page.len() < MAX_PLACES || self.by_page.contains_key(&(file, page))) {
            self.by_page.insert((file, page), place);
            if let Some(node) = place.reads() {
                let of_index = u64::from(reads).saturating_sub(node);
                self.descents.entry(file).or_default().page(page, of_index.try_into().unwrap_or(u32::MAX));
            }
        }
    }

    /// Results for these files; those not on UBIFS are left out.
    pub fn nodes(&self, files: impl Iterator<Item = FileId>) -> Nodes {
        let mut nodes = Nodes::default();
        let files: Vec<(FileId, Geometry)> =
            files.filter_map(|file| Some((file, *self.mounts.get(&file.device?)?))).collect();
        let (mut steps, mut apart) = (0_u64, 0_u64);
        for &(file, geometry) in &files {
            for (a, b) in self.neighbours(file).filter(|&(a, b)| follows(geometry, a, b)) {
                steps += b.0 - a.0;
                apart += b.1.last - a.1.last;
            }
        }
        nodes.flash_pages = (steps > 0 && apart > 0).then(|| apart as f64 / steps as f64);
        // The index is read before the node, from another LEB: the consecutive reads at the end are the node's.
        let alone: Vec<u64> =
            files.iter().flat_map(|&(file, _)| self.of(file)).filter_map(|(_, place)| place.reads()).collect();
        nodes.alone = (!alone.is_empty()).then(|| alone.iter().sum::<u64>() as f64 / alone.len() as f64);
        for (file, geometry) in files {
            // Places are whole pages of flash: where their mean is close to the largest node, nodes are assumed to have that size.
            let node_bytes = nodes.flash_pages.map_or(LARGEST_NODE as f64, |pages| pages * geometry.page_bytes as f64);
            let largest = LARGEST_NODE as f64;
            let node_bytes = if node_bytes > 0.95 * largest { largest } else { node_bytes };
            let in_a_leb = (geometry.leb_bytes as f64 / node_bytes) as u64;
            let mut runs = Vec::new();
            // First page of the run, and the page behind the last known one.
            let mut run: Option<(u64, u64)> = None;
            for (&(_, page), _) in self.of(file).take(1) {
                run = Some((page - page % in_a_leb.max(1), page.saturating_add(1)));
            }
            let mut padded = Vec::new();
            for (a, b) in self.neighbours(file) {
                let (first, _) = run.unwrap_or((a.0, a.0.saturating_add(1)));
                if follows(geometry, a, b) {
                    run = Some((first, b.0.saturating_add(1)));
                    if b.0 == a.0 + 1 && b.1.first.is_some_and(|of_b| of_b > a.1.last) {
                        padded.push(b.0);
                    }
                } else {
                    let end = first.saturating_add(in_a_leb).clamp(a.0 + 1, b.0);
                    let begun_there = !runs.is_empty();
                    padded.truncate(match begun_there {
                        true => paddings(geometry, in_a_leb, end - first, node_bytes),
                        false => 0,
                    });
                    let ends: Vec<u64> = padded.drain(..).chain([end]).collect();
                    let firsts = std::iter::once(first).chain(ends.iter().copied());
                    runs.extend(firsts.zip(ends.iter().copied()));
                    run = Some((end, b.0.saturating_add(1)));
                }
            }
            nodes.guessed += usize::from(run.is_none());
            runs.extend(run);
            let runs = NodeRuns::new(runs, in_a_leb).of_nodes(node_bytes.round() as u64, geometry.page_bytes);
            let places = self.of(file).filter_map(|(&(_, page), place)| Some((page, (place.first?, place.last))));
            nodes.places.insert(file, Arc::new(places.collect()));
            let last = self.of(file).next_back().map_or(0, |(&(_, page), _)| page);
            if let Some(levels) = self.descents.get(&file).and_then(|descent| descent.levels(last)) {
                nodes.index.insert(file, Arc::new(levels));
            }
            nodes.runs.insert(file, runs);
        }
        nodes
    }

    fn of(&self, file: FileId) -> impl DoubleEndedIterator<Item = (&(FileId, u64), &Place)> {
        self.by_page.range((file, 0)..=(file, u64::MAX))
    }

    fn neighbours(&self, file: FileId) -> impl Iterator<Item = (Placed, Placed)> {
        let placed = |(key, place): (&(FileId, u64), &Place)| (key.1, *place);
        self.of(file).map(placed).zip(self.of(file).skip(1).map(placed))
    }
}

/// A page, and where it lies.
type Placed = (u64, Place);

/// Fewest paddings of the write buffer in a LEB that holds `nodes` nodes: its unused end is shorter than one more node, and each
/// padding is shorter than a page of flash.
fn paddings(geometry: Geometry, in_a_leb: u64, nodes: u64, node_bytes: f64) -> usize {
    if nodes >= in_a_leb {
        return 0;
    }
    let lacking = geometry.leb_bytes as f64 - (nodes + 1) as f64 * node_bytes;
    (lacking / geometry.page_bytes as f64).ceil().max(1.0) as usize
}

/// Whether all nodes from `a` to `b` follow each other.
fn follows(geometry: Geometry, a: Placed, b: Placed) -> bool {
    let (Place { chip, last: from, .. }, Place { chip: other, last: to, .. }) = (a.1, b.1);
    let most = (b.0 - a.0).saturating_mul(LARGEST_NODE).div_ceil(geometry.page_bytes);
    chip == other && from / geometry.block_pages == to / geometry.block_pages && to >= from && to - from <= most
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashscope_cachesim::PAGE_BYTES;
    use serde_json::json;

    const FILE: FileId = FileId { device: Some(Device(14)), inode: 5 };

    fn facts(options: &str) -> Facts {
        Facts::of(&json!({
            "ubi": [{"name": "ubi0", "mtd_num": 3, "eraseblock_size": 126_976}],
            "mtd": [{"index": 3, "erasesize": 131_072, "writesize": 2048}],
            "mounts": [{"source": "ubi0:data", "type": "ubifs", "device": "0:14", "options": options}],
        }))
    }

    fn at(last: u64) -> Place {
        Place { chip: 0, first: None, last }
    }

    /// Pages of nodes of 4144 bytes from a page of flash on.
    fn fill(places: &mut Places, pages: std::ops::Range<u64>, from: u64) {
        for page in pages.clone() {
            let end = from * 2048 + (page - pages.start + 1) * 4144;
            places.note(FILE, page, Place { chip: 0, first: Some((end - 4144) / 2048), last: (end - 1) / 2048 }, 3);
        }
    }

    #[test]
    fn a_mount_says_whether_it_reads_in_bulk() {
        for (options, bulk) in
            [("rw,relatime,bulk_read,assert=read-only", true), ("rw,no_bulk_read", false), ("rw", false)]
        {
            let facts = facts(options);
            let geometry = mounts(&facts)[&Device(14)];
            assert_eq!(geometry, Geometry { leb_bytes: 126_976, block_pages: 64, page_bytes: 2048 });
            assert_eq!(has_bulk_read(&facts.mounts[0]), bulk);
        }
        assert!(
            mounts(&Facts::of(&json!({"mounts": [{"type": "ubifs", "device": "x", "source": 5}], "ubi": 3})))
                .is_empty()
        );
    }

    #[test]
    fn places_tell_where_lebs_end() {
        let mut places = Places::new(&facts("rw"));
        fill(&mut places, 0..12, 64 * 9 + 20);
        fill(&mut places, 12..42, 64 * 4 + 2);
        let nodes = places.nodes([FILE].into_iter());
        assert_eq!(nodes.runs[&FILE], NodeRuns::new(vec![(0, 12), (12, 42)], 30));
        let pages = nodes.flash_pages.unwrap();
        assert!((pages - 4144.0 / 2048.0).abs() < 0.03, "{pages}");
        assert_eq!(nodes.guessed, 0);
        // A node of 4144 bytes lies on three pages of flash.
        assert_eq!(nodes.alone, Some(3.0));
    }

    /// A LEB that has room for 36 nodes and holds 35: one padding makes that, of three nodes that begin with a page of flash.
    #[test]
    fn what_happens_to_begin_with_a_page_is_no_padding() {
        let mut places = Places::new(&facts("rw"));
        let mut at = 64 * 4 * 2048 + 4096;
        for page in 0..107 {
            match page {
                36 => at = 64 * 7 * 2048 + 4096,
                71 => at = 64 * 9 * 2048 + 4096,
                37 | 47 | 57 => at = u64::next_multiple_of(at, 2048),
                _ => {}
            }
            // Those at 47 and 57 end what was 2 bytes short of the page.
            let bytes = if matches!(page, 46 | 56) { (at + 3472).next_multiple_of(2048) - 2 - at } else { 3472 };
            places.note(FILE, page, Place { chip: 0, first: Some(at / 2048), last: (at + bytes - 1) / 2048 }, 3);
            at += bytes;
        }
        let nodes = places.nodes([FILE].into_iter());
        let runs = vec![(0, 36), (36, 37), (37, 71), (71, 107)];
        let node_bytes = (nodes.flash_pages.unwrap() * 2048.0).round() as u64;
        assert_eq!(nodes.runs[&FILE], NodeRuns::new(runs, 36).of_nodes(node_bytes, 2048));
    }

    /// The write buffer was written out behind the first node of the second LEB.
    #[test]
    fn a_padded_write_buffer_ends_a_run_within_its_leb() {
        let mut places = Places::new(&facts("rw"));
        fill(&mut places, 0..12, 64 * 9 + 20);
        fill(&mut places, 12..13, 64 * 4 + 2);
        fill(&mut places, 13..41, 64 * 4 + 5);
        fill(&mut places, 41..60, 64 * 5 + 2);
        let nodes = places.nodes([FILE].into_iter());
        assert_eq!(nodes.runs[&FILE], NodeRuns::new(vec![(0, 12), (12, 13), (13, 41), (41, 60)], 30));
        let reads = [(0, 7), (0, 8), (0, 8), (0, 9), (1, 10), (0, 3)];
        let runs: Vec<Place> = reads
            .iter()
            .scan(None, |run, &(chip, page)| {
                *run = Some(Place::after(*run, chip, page));
                *run
            })
            .collect();
        assert_eq!(runs[3], Place { chip: 0, first: Some(7), last: 9 });
        assert_eq!((runs[4].first, runs[5].first), (Some(10), Some(3)));
    }

    /// Only the last page of each call is known: a LEB ends where it is full.
    #[test]
    fn between_places_a_leb_ends_where_it_is_full() {
        let mut places = Places::new(&facts("rw"));
        places.note(FILE, 3, at(64 * 2 + 9), 3);
        places.note(FILE, 29, at(64 * 2 + 62), 3);
        places.note(FILE, 35, at(64 * 7 + 14), 3);
        let nodes = places.nodes([FILE].into_iter());
        assert_eq!(nodes.runs[&FILE], NodeRuns::new(vec![(0, 30), (30, 36)], 30));
    }

    #[test]
    fn without_places_the_file_fills_lebs() {
        let places = Places::new(&facts("rw"));
        let other = FileId { device: Some(Device(9)), inode: 5 };
        let nodes = places.nodes([FILE, other].into_iter());
        assert_eq!((nodes.runs.len(), nodes.guessed, nodes.flash_pages, nodes.alone), (1, 1, None, None));
        assert_eq!(nodes.runs[&FILE], NodeRuns::new(vec![], 30));
    }

    #[test]
    fn another_recording_shows_where_nodes_lie_and_what_of_the_index_they_need() {
        let mut places = Places::new(&facts("rw"));
        for page in (0..20).rev() {
            let of_index = u32::from(page % 8 == 3);
            places.note(FILE, page, Place { chip: 0, first: Some(700 + 2 * page), last: 701 + 2 * page }, 2 + of_index);
        }
        let layout = places.nodes([FILE].into_iter());
        let mut nodes = Places::new(&facts("rw")).nodes([FILE].into_iter());
        assert_eq!((nodes.index().reads(FILE, 0), nodes.of(FILE, 7)), (3, None));
        nodes.learn(&layout, &BTreeMap::from([(FILE, 20 * PAGE_BYTES)]));
        let index: Vec<u64> = {
            let mut index = nodes.index();
            [0, 3, 4, 11, 19, 12].map(|page| index.reads(FILE, page)).to_vec()
        };
        assert_eq!((index, nodes.of(FILE, 7)), (vec![1, 0, 1, 0, 1, 0], Some(2)));
        assert_eq!(nodes.runs_of(FILE), layout.runs_of(FILE));
        assert_ne!(nodes.runs_of(FILE).as_ref(), nodes.runs.get(&FILE), "with places");
        assert_eq!(nodes.runs_of(FileId { inode: 6, ..FILE }), None);
    }

    #[test]
    fn nonsense_is_no_panic() {
        let mut places = Places::new(&facts("rw"));
        for (page, flash) in [(0, u64::MAX), (u64::MAX, 0), (u64::MAX - 1, 5), (7, 7)] {
            places.note(FILE, page, at(flash), 1);
        }
        places.nodes([FILE].into_iter());
    }
}
