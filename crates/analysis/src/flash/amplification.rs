//! Write amplification by layer: the calls, the page cache, the file system, UBI, the erase blocks.

use super::Wear;
use crate::Lookup;
use crate::clip::clip;
use flashscope_trace::facts::Ubi;
use flashscope_trace::{Event, EventKind, Facts, FileStep, FlashOp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The bytes of one layer.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct LayerBytes {
    pub layer: WriteLayer,
    pub bytes: u64,
    /// Divided by the bytes of the nearest known layer above; `null` where there is none, or it has 0 bytes.
    pub times: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteLayer {
    /// Passed to `write()` and similar calls.
    Calls,
    /// Pages of the page cache that became dirty: a file system that writes back later has them as its input. JFFS2 writes
    /// within the call and has none.
    PageCache,
    /// Pages programmed by the file system: with its nodes' heads, journal, index, metadata and garbage collection, its
    /// compression taken off.
    FileSystem,
    /// All pages programmed, with UBI's headers of blocks and what it moves between blocks to level wear.
    Flash,
    Blocks,
}

impl WriteLayer {
    pub fn name(self) -> &'static str {
        match self {
            WriteLayer::Calls => "calls",
            WriteLayer::PageCache => "page cache",
            WriteLayer::FileSystem => "file system",
            WriteLayer::Flash => "flash",
            WriteLayer::Blocks => "erase blocks",
        }
    }
}

/// The place of UBI, and the number of its own pages in each block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UbiRegion {
    pub chip: u16,
    pub first_block: u64,
    pub blocks: u64,
    pub pages_per_block: u64,
    pub header_pages: u64,
}

impl UbiRegion {
    /// From a recording's facts (docs/reference/agent.md): UBI devices attached when it began. `first_chip` is added to chip numbers.
    pub fn of_facts(facts: &Facts, first_chip: u16) -> Vec<UbiRegion> {
        let region = |ubi: &Ubi| {
            let mtd = facts.mtd(ubi.mtd_num?)?;
            let number = |said: Option<u64>| said.filter(|&n| n > 0);
            let (block, page) = (number(mtd.erasesize)?, number(mtd.writesize)?);
            Some(UbiRegion {
                chip: u16::try_from(mtd.chip?).ok()?.checked_add(first_chip)?,
                first_block: mtd.offset? / block,
                blocks: mtd.size? / block,
                pages_per_block: block / page,
                // A logical block is a physical one without its headers.
                header_pages: block.checked_sub(number(ubi.eraseblock_size)?)? / page,
            })
        };
        facts.ubi.iter().filter_map(region).take(64).collect()
    }

    fn is_header(&self, chip: u16, page: u64) -> bool {
        let per_block = self.pages_per_block.max(1);
        let block = page / per_block;
        chip == self.chip
            && block.checked_sub(self.first_block).is_some_and(|at| at < self.blocks)
            && page % per_block < self.header_pages
    }
}

/// Folds dirtied pages and programs.
pub struct AmplificationFold<L> {
    lookup: L,
    ubi: Vec<UbiRegion>,
    page_bytes: BTreeMap<u16, u64>,
    dirtied_bytes: u64,
    ubi_bytes: u64,
}

impl<L: Lookup<Name: AsRef<str>>> AmplificationFold<L> {
    /// `page_bytes`: page size of each chip. `lookup`: the name of a thread at a time.
    pub fn new(page_bytes: impl IntoIterator<Item = (u16, u32)>, ubi: &[UbiRegion], lookup: L) -> Self {
        let page_bytes = page_bytes.into_iter().map(|(chip, bytes)| (chip, u64::from(bytes))).collect();
        AmplificationFold { lookup, ubi: ubi.to_vec(), page_bytes, dirtied_bytes: 0, ubi_bytes: 0 }
    }

    pub fn event(&mut self, event: &Event) {
        match &event.kind {
            // File systems on MTD have no block device; a file with one lies on other storage.
            EventKind::File(file) if file.step == FileStep::Dirtied && file.device.is_none() => {
                self.dirtied_bytes = self.dirtied_bytes.saturating_add(file.bytes);
            }
            EventKind::Flash(access) if access.op == FlashOp::Program && !self.ubi.is_empty() => {
                let header = self.ubi.iter().any(|region| region.is_header(access.chip, access.page));
                // UBI levels wear from a thread of its own (drivers/mtd/ubi/build.c: "ubi_bgt%dd").
                let mut moves =
                    || (self.lookup)(event.tid, event.time).is_some_and(|n| clip(n.as_ref()).starts_with("ubi_bgt"));
                if header || moves() {
                    let bytes = self.page_bytes.get(&access.chip).copied().unwrap_or(0);
                    self.ubi_bytes = self.ubi_bytes.saturating_add(bytes);
                }
            }
            _ => {}
        }
    }

    /// `wear`: of the same events. Unknown layers are left out.
    pub fn finish(self, wear: &Wear) -> Vec<LayerBytes> {
        let calls = wear.written_bytes;
        let cache = calls.and(Some(self.dirtied_bytes)).filter(|&bytes| bytes > 0);
        let flash = wear.programmed_bytes;
        let file_system = flash.filter(|_| !self.ubi.is_empty()).map(|bytes| bytes.saturating_sub(self.ubi_bytes));
        let known = [
            (WriteLayer::Calls, calls),
            (WriteLayer::PageCache, cache),
            (WriteLayer::FileSystem, file_system),
            (WriteLayer::Flash, flash),
            (WriteLayer::Blocks, wear.erased_bytes),
        ];
        let mut layers: Vec<LayerBytes> = Vec::new();
        for (layer, bytes) in known.into_iter().filter_map(|(layer, bytes)| Some((layer, bytes?))) {
            let above = layers.last().map(|above| above.bytes).filter(|&above| above > 0);
            let times = above.map(|above| (bytes as f64 / above as f64 * 1000.0).round() / 1000.0);
            layers.push(LayerBytes { layer, bytes, times });
        }
        layers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{access, event, flash};
    use flashscope_trace::{FileEvent, TaskId, TimeNs};
    use serde_json::json;

    const NAME: fn(TaskId, TimeNs) -> Option<&'static str> =
        |tid, _| Some(if tid == TaskId(9) { "ubi_bgt0d" } else { "app" });

    fn layers(ubi: &[UbiRegion], events: &[Event], wear: &Wear) -> Vec<(&'static str, u64, Option<f64>)> {
        let mut fold = AmplificationFold::new([(0, 2048)], ubi, NAME);
        events.iter().for_each(|e| fold.event(e));
        fold.finish(wear).iter().map(|layer| (layer.layer.name(), layer.bytes, layer.times)).collect()
    }

    #[test]
    fn each_layer_is_held_against_the_one_above() {
        let facts = json!({
            "mtd": [{ "index": 4, "chip": 0, "offset": 131_072, "size": 1_310_720, "erasesize": 131_072, "writesize": 2048 }],
            "ubi": [{ "name": "ubi0", "mtd_num": 4, "eraseblock_size": 129_024 }, { "name": "ubi1", "mtd_num": 9 }],
        });
        let ubi = UbiRegion::of_facts(&Facts::of(&facts), 0);
        let region = UbiRegion { chip: 0, first_block: 1, blocks: 10, pages_per_block: 64, header_pages: 1 };
        assert_eq!(ubi, [region]);
        let file = crate::testing::file(FileStep::Dirtied, None, 65, 0, 4096);
        let on_disk = FileEvent { device: Some(flashscope_trace::Device::new(179, 1)), ..file };
        let program = |tid: TaskId, page: u64| flash(u64::from(tid.0), tid.0, access(FlashOp::Program, page));
        let events = [
            event(0, 1, EventKind::File(file)),
            event(0, 1, EventKind::File(on_disk)),
            program(TaskId(1), 64), // a header
            program(TaskId(1), 65),
            program(TaskId(9), 130), // moved
            program(TaskId(1), 0),   // before UBI's partition
            program(TaskId(1), 704), // behind it
        ];
        let wear = Wear {
            written_bytes: Some(1024),
            programmed_pages: 5,
            programmed_bytes: Some(5 * 2048),
            erased_bytes: Some(131_072),
            ..Wear::default()
        };
        assert_eq!(
            layers(&ubi, &events, &wear),
            [
                ("calls", 1024, None),
                ("page cache", 4096, Some(4.0)),
                ("file system", 3 * 2048, Some(1.5)),
                ("flash", 5 * 2048, Some(1.667)),
                ("erase blocks", 131_072, Some(12.8)),
            ]
        );
        // Without UBI there is nothing between the file system and the flash; without calls the page cache's bytes say nothing.
        let unknown = Wear { written_bytes: None, ..wear };
        assert_eq!(layers(&[], &events, &unknown), [("flash", 10_240, None), ("erase blocks", 131_072, Some(12.8))]);
        assert_eq!(layers(&[], &[], &Wear::default()), []);
    }

    #[test]
    fn odd_facts_are_no_region() {
        for facts in [
            json!({ "mtd": 1, "ubi": 2 }),
            json!({ "mtd": [{ "index": 0 }], "ubi": [{ "mtd_num": 0, "eraseblock_size": 5 }] }),
            json!({ "mtd": [{ "index": 0, "chip": 65_535, "offset": 0, "size": 1, "erasesize": 4, "writesize": 2 }],
                    "ubi": [{ "mtd_num": 0, "eraseblock_size": 8 }] }),
        ] {
            assert_eq!(UbiRegion::of_facts(&Facts::of(&facts), 9), []);
        }
    }
}
