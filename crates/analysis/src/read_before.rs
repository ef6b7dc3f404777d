//! Finds the bytes of devices that have been read before in a trace.
//!
//! Pieces of 256 KiB that were read completely are kept as ranges, so that a read of any size is one entry. Other pieces have a bit for
//! each block of 4 KiB, or for each sector of a block. A read costs log n of the entries, plus the pieces that it completes.
//!
//! Pieces are hashed: random reads of a large disk are each of another piece, and a search in a tree would wait for memory at each level.
//! Their order is kept from the first read on that completes more than [`FEW`] pieces at once.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::ops::Range;

use flashscope_trace::Device;
use foldhash::{HashMap, HashMapExt as _};

use crate::bounded::{Full, Ranges};

pub(crate) const BLOCK_BYTES: u64 = 4096;
const SECTORS: u64 = BLOCK_BYTES / 512;
/// Blocks of a piece.
pub(crate) const PIECE: u64 = 64;
/// Most runs of complete pieces. A piece without room there keeps its bits.
const MAX_RUNS: usize = 1 << 16;
/// Up to this many pieces are looked up one by one (16 MiB: most bios are much shorter).
const FEW: u64 = 64;

/// The bits of `count` blocks or pages of a piece, beginning with `from`.
pub(crate) fn bits(from: u64, count: u64) -> u64 {
    u64::MAX >> (PIECE - count) << (from % PIECE)
}

/// The parts of all devices that were read.
pub(crate) struct ReadBefore {
    /// Pieces that were read completely, by device.
    whole: Ranges<Device, ()>,
    /// The other pieces, by device and piece: a bit for each block that was read.
    pieces: HashMap<(Device, u64), u64>,
    /// The keys of `pieces` in order, once the order was needed.
    ordered: Option<BTreeSet<(Device, u64)>>,
    /// Blocks of which only a part was read, by device and block: a bit for each sector.
    parts: BTreeMap<(Device, u64), u8>,
    /// Most pieces, and most parts of blocks.
    most: usize,
    /// Blocks, or parts of them, whose first read was not kept.
    pub not_followed: u64,
}

impl ReadBefore {
    pub fn new(most: usize) -> ReadBefore {
        let whole = Ranges::new(MAX_RUNS, Full::Refuse);
        let (pieces, ordered) = (HashMap::new(), None);
        ReadBefore { whole, pieces, ordered, parts: BTreeMap::new(), most, not_followed: 0 }
    }

    /// Reads of another recording are no repetition of these.
    pub fn recording_ends(&mut self) {
        *self = ReadBefore { not_followed: self.not_followed, ..ReadBefore::new(self.most) };
    }

    /// Adds a read. Returns how many of its bytes were read before.
    pub fn read(&mut self, device: Device, sector: u64, bytes: u64) -> u64 {
        let end_sector = sector.saturating_add(bytes.div_ceil(512));
        let blocks = sector.div_ceil(SECTORS)..end_sector / SECTORS;
        // Blocks of which only a part is read: a file system with blocks of 1 KiB reads the parts one by one.
        let head = (sector, end_sector.min(blocks.start.saturating_mul(SECTORS)));
        let tail = (head.1.max(blocks.end.saturating_mul(SECTORS)), end_sector);
        let parts = [head, tail].into_iter().filter(|(from, to)| from < to);
        let again: u64 = parts.map(|(from, to)| self.part(device, from / SECTORS, from % SECTORS, to - from)).sum();
        again + self.blocks(device, blocks)
    }

    fn blocks(&mut self, device: Device, blocks: Range<u64>) -> u64 {
        let whole = blocks.start.div_ceil(PIECE)..blocks.end / PIECE;
        if whole.is_empty() {
            let middle = blocks.end.min((blocks.start / PIECE + 1) * PIECE);
            return self.in_a_piece(device, blocks.start..middle) + self.in_a_piece(device, middle..blocks.end);
        }
        self.in_a_piece(device, blocks.start..whole.start * PIECE)
            + self.in_a_piece(device, whole.end * PIECE..blocks.end)
            + self.whole_pieces(device, whole)
    }

    /// Adds blocks of one piece.
    fn in_a_piece(&mut self, device: Device, blocks: Range<u64>) -> u64 {
        if blocks.is_empty() {
            return 0;
        }
        let (piece, count) = (blocks.start / PIECE, blocks.end - blocks.start);
        if self.whole.run(device, piece).is_some() {
            return count * BLOCK_BYTES;
        }
        let bits = bits(blocks.start, count);
        let full = self.pieces.len() >= self.most;
        let mut again = 0;
        match self.pieces.entry((device, piece)) {
            Entry::Occupied(mut seen) => {
                again = u64::from((seen.get() & bits).count_ones()) * BLOCK_BYTES;
                *seen.get_mut() |= bits;
                if *seen.get() == u64::MAX {
                    self.whole.update(device, piece..piece + 1, |_, _| Some(()), |_, _, ()| {});
                    if self.whole.run(device, piece).is_some() {
                        seen.remove();
                        self.ordered.as_mut().map(|ordered| ordered.remove(&(device, piece)));
                    }
                }
            }
            Entry::Vacant(_) if full => self.not_followed += count,
            Entry::Vacant(new) => {
                new.insert(bits);
                self.ordered.as_mut().map(|ordered| ordered.insert((device, piece)));
            }
        }
        again + self.parts_of(device, blocks)
    }

    fn whole_pieces(&mut self, device: Device, pieces: Range<u64>) -> u64 {
        let (mut again, mut gaps, mut lost) = (0, Vec::new(), 0);
        let change = |part: Range<u64>, seen: Option<()>| {
            match seen {
                Some(()) => again += (part.end - part.start) * PIECE * BLOCK_BYTES,
                None => gaps.push(part),
            }
            Some(())
        };
        let reached = self.whole.update(device, pieces.clone(), change, |_, run, ()| lost += run.end - run.start);
        self.not_followed = self.not_followed.saturating_add((lost + pieces.end - reached) * PIECE);
        for gap in gaps {
            again += self.take(device, gap.clone()) * BLOCK_BYTES;
            again += self.parts_of(device, gap.start * PIECE..gap.end * PIECE);
        }
        again
    }

    /// These pieces are complete now. Returns how many of their blocks were read before.
    fn take(&mut self, device: Device, pieces: Range<u64>) -> u64 {
        if self.ordered.is_none() && pieces.end - pieces.start > FEW {
            self.ordered = Some(self.pieces.keys().copied().collect());
        }
        let keys: Vec<_> = match &self.ordered {
            Some(ordered) => ordered.range((device, pieces.start)..(device, pieces.end)).copied().collect(),
            None => pieces.map(|piece| (device, piece)).collect(),
        };
        let mut blocks = 0;
        for key in keys {
            blocks += self.pieces.remove(&key).map_or(0, |bits| u64::from(bits.count_ones()));
            self.ordered.as_mut().map(|ordered| ordered.remove(&key));
        }
        blocks
    }

    /// These blocks are complete now. Returns what was read of them in part before.
    fn parts_of(&mut self, device: Device, blocks: Range<u64>) -> u64 {
        if self.parts.is_empty() {
            return 0;
        }
        let keys: Vec<_> =
            self.parts.range((device, blocks.start)..(device, blocks.end)).map(|(key, _)| *key).collect();
        let parts = keys.iter().filter_map(|key| self.parts.remove(key));
        parts.map(|part| u64::from(part.count_ones()) * 512).sum()
    }

    /// Adds `sectors` sectors of a block, beginning with `first`.
    fn part(&mut self, device: Device, block: u64, first: u64, sectors: u64) -> u64 {
        let bits = u8::MAX >> (8 - sectors.min(8)) << first;
        let whole = self.whole.run(device, block / PIECE).is_some()
            || self.pieces.get(&(device, block / PIECE)).is_some_and(|seen| seen >> (block % PIECE) & 1 == 1);
        if whole {
            return u64::from(bits.count_ones()) * 512;
        }
        let full = self.parts.len() >= self.most;
        match self.parts.entry((device, block)) {
            btree_map::Entry::Occupied(mut seen) => {
                let again = u64::from((seen.get() & bits).count_ones());
                *seen.get_mut() |= bits;
                again * 512
            }
            btree_map::Entry::Vacant(_) if full => {
                self.not_followed += 1;
                0
            }
            btree_map::Entry::Vacant(new) => {
                new.insert(bits);
                0
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk() -> Device {
        Device::new(8, 0)
    }

    #[test]
    fn parts_of_a_block_are_no_block_that_is_read_again() {
        // Sectors and what of them was read before: four blocks of 1 KiB, the second of them again, the whole, half of the next with it.
        let reads =
            [(0, 2, 0), (2, 2, 0), (4, 2, 0), (6, 1, 0), (2, 2, 2), (0, 8, 7), (7, 5, 1), (10, 22, 2), (7, 25, 25)];
        let mut before = ReadBefore::new(8);
        for (sector, sectors, again) in reads {
            assert_eq!(before.read(disk(), sector, sectors * 512), again * 512, "{sector} {sectors}");
        }
        assert_eq!(before.read(disk(), u64::MAX - 3, 4096), 0);
    }

    /// Random reads give what a bit for each sector gives.
    #[test]
    fn reads_of_any_place_and_size_are_what_single_sectors_say() {
        let mut before = ReadBefore::new(1000);
        let mut single = vec![false; 1 << 17];
        let mut random = 1_u64;
        for n in 0..3000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            if n % 100 == 0 {
                before = ReadBefore::new(1000);
                single.fill(false);
            }
            // Up to a block, a piece, several, and more than those that are looked up one by one.
            let (room, most) = match n % 100 {
                60..70 => (80_000, 50_000),
                40.. => (100_000, 512),
                n => (1000, [8, 512, 3000][n % 3]),
            };
            let (sector, sectors) = (random % room, random / room % most + 1);
            let of = &mut single[sector as usize..(sector + sectors) as usize];
            let again = of.iter().filter(|read| **read).count() as u64;
            of.fill(true);
            assert_eq!(before.read(disk(), sector, sectors * 512), again * 512, "{n}: {sector} {sectors}");
        }
        assert_eq!(before.not_followed, 0);
    }

    /// The most that a bio can have, from any place on: no loop over what it covers.
    #[test]
    fn reads_of_four_gibibytes_are_one_entry_each() {
        let (mut before, mut again, bytes) = (ReadBefore::new(1 << 18), 0, (4 << 30) - 4096);
        for n in 0..100_000 {
            before.read(disk(), n << 20, 512);
        }
        for n in 0..50_000 {
            again += before.read(disk(), 1 + n * 8, bytes);
            before.read(Device::new(8, 1), n << 24, bytes);
        }
        assert_eq!((again / 512, before.not_followed), (50_000 * (bytes / 512) - bytes / 512 - 49_999 * 8 + 8, 0));
        assert!(before.pieces.len() + before.parts.len() < 200_004);
    }
}
