//! Operations of each erase block (the spatial view of Flashmon v2, §3.3).

use super::{Geometry, OpCounts};
use crate::Analysis;
use crate::bounded::{BoundedMap, Full};
use flashscope_trace::{Event, EventKind, FlashAccess};
use foldhash::HashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most distinct blocks: those of 32 GiB of flash with 128 KiB blocks.
pub const MAX_BLOCKS: usize = 1 << 18;

/// Operations of one erase block; blocks without any are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct BlockCounts {
    /// 0 where there is one chip only.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub chip: u16,
    pub block: u32,
    #[serde(flatten)]
    pub counts: OpCounts,
}

fn is_zero(n: &u16) -> bool {
    *n == 0
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct BlockMap {
    /// By chip, then by block.
    pub blocks: Vec<BlockCounts>,
    /// Operations without a known block: on a chip of unknown shape, or beyond [`MAX_BLOCKS`] blocks.
    pub not_placed: OpCounts,
}

/// Counts by erase block.
#[derive(Debug)]
pub struct Blocks {
    pages_per_block: HashMap<u16, u32>,
    blocks: BoundedMap<(u16, u32), OpCounts>,
    not_placed: OpCounts,
}

impl Blocks {
    pub fn new(chips: &[(u16, Geometry)]) -> Self {
        Self {
            pages_per_block: chips.iter().map(|(chip, shape)| (*chip, shape.pages_per_block)).collect(),
            blocks: BoundedMap::new(MAX_BLOCKS, Full::Refuse),
            not_placed: OpCounts::default(),
        }
    }

    fn place(&self, access: &FlashAccess) -> Option<(u16, u32)> {
        let per_block = u64::from(*self.pages_per_block.get(&access.chip)?);
        let block = u32::try_from(access.page.checked_div(per_block)?).ok()?;
        Some((access.chip, block))
    }
}

impl Analysis for Blocks {
    type Output = BlockMap;

    fn event(&mut self, event: &Event) {
        if let EventKind::Flash(access) = &event.kind {
            let counts = self.place(access).and_then(|key| self.blocks.entry(key, OpCounts::default));
            counts.unwrap_or(&mut self.not_placed).add(access.op);
        }
    }

    fn finish(self) -> BlockMap {
        let blocks = self.blocks.iter().map(|(&(chip, block), &counts)| BlockCounts { chip, block, counts }).collect();
        BlockMap { blocks, not_placed: self.not_placed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{access, flash};
    use flashscope_trace::FlashOp::{Erase, Program, Read};

    const CHIP: Geometry = Geometry { page_bytes: 2048, pages_per_block: 64 };

    #[test]
    fn pages_fall_into_their_blocks() {
        let mut fold = Blocks::new(&[(0, CHIP), (1, CHIP)]);
        for (op, page, chip) in [
            (Read, 0, 0),
            (Read, 63, 0),
            (Read, 64, 0),
            (Program, 65, 0),
            (Erase, 128, 0), // an erase names its block's first page
            (Read, 64, 1),
            (Read, 5, 2), // a chip that nobody described
            (Read, u64::MAX, 0),
        ] {
            fold.event(&flash(1, 1, FlashAccess { chip, ..access(op, page) }));
        }
        let found = fold.finish();
        let rows: Vec<(u16, u32, u64, u64, u64)> = found
            .blocks
            .iter()
            .map(|b| {
                let c = b.counts;
                (b.chip, b.block, c.reads, c.programs, c.erases)
            })
            .collect();
        assert_eq!(rows, [(0, 0, 2, 0, 0), (0, 1, 1, 1, 0), (0, 2, 0, 0, 1), (1, 1, 1, 0, 0),]);
        assert_eq!(found.not_placed.reads, 2);
    }

    #[test]
    fn a_shape_without_pages_is_no_division_by_zero() {
        let mut fold = Blocks::new(&[(0, Geometry { page_bytes: 0, pages_per_block: 0 })]);
        fold.event(&flash(1, 1, access(Read, 5)));
        assert_eq!(fold.finish().not_placed.reads, 1);
    }
}
