//! Flash reads of squashfs, which reads whole blocks. A block that the recording shows costs its recorded flash reads. The other blocks
//! share a calibrated rate: the recording's flash reads without those of known blocks, divided by the pages of other blocks that the
//! model reads under the recording's own window.

use flashscope_cachesim::PAGE_BYTES;
use flashscope_trace::FileId;

use crate::workload::Workload;

/// Pages of the blocks that were read.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BlockReads {
    /// Pages of blocks with known flash reads.
    known_pages: u64,
    known_flash_reads: u64,
    /// Pages of blocks with unknown flash reads.
    other_pages: u64,
}

impl BlockReads {
    /// Adds the block of `block_bytes` that begins with page `first`. `as_recorded`: squashfs has the recorded block size.
    pub fn add(&mut self, workload: &Workload, file: FileId, first: u64, block_bytes: u64, as_recorded: bool) {
        let end = workload.sizes.get(&file).map_or(u64::MAX, |size| size.div_ceil(PAGE_BYTES));
        let behind = first.saturating_add((block_bytes / PAGE_BYTES).max(1));
        let pages = first..behind.min(end);
        // Behind the file's last page there may be cached pages, but no data is read.
        let last = if behind >= end { u64::MAX } else { behind - 1 };
        let known = workload.costs.block(file, pages.clone(), last).filter(|_| as_recorded);
        let count = pages.end.saturating_sub(pages.start);
        match known {
            Some(reads) => {
                self.known_pages += count;
                self.known_flash_reads += u64::from(reads);
            }
            None => self.other_pages += count,
        }
    }

    /// Flash reads for a page of an unknown block, given the recording's `flash_reads` for these blocks.
    pub fn rate(&self, flash_reads: u64) -> f64 {
        let other = flash_reads.saturating_sub(self.known_flash_reads);
        match (self.other_pages, self.known_pages) {
            (0, 0) => 0.0,
            (0, known) => self.known_flash_reads as f64 / known as f64,
            (pages, _) => other as f64 / pages as f64,
        }
    }

    pub fn flash_reads(&self, rate: f64) -> f64 {
        self.known_flash_reads as f64 + rate * self.other_pages as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::pages::InCall;
    use flashscope_trace::Device;

    const FILE: FileId = FileId { device: Some(Device(1)), inode: 1 };

    #[test]
    fn blocks_cost_what_they_took_and_others_what_is_left() {
        let mut workload = Workload::default();
        workload.sizes.insert(FILE, 42 * PAGE_BYTES);
        let came = |pages: &[u64], reads: u64| {
            let mut call = InCall::default();
            pages.iter().for_each(|&page| call.page(page));
            (0..reads).for_each(|time| call.read(time));
            call
        };
        workload.costs.add(FILE, &came(&[3, 4, 5], 200), None, Some(true));
        let blocks = |workload: &Workload, at: &[u64], as_recorded| {
            let mut blocks = BlockReads::default();
            at.iter().for_each(|&first| blocks.add(workload, FILE, first, 32 * PAGE_BYTES, as_recorded));
            blocks
        };
        let first = blocks(&workload, &[0, 32], true);
        assert_eq!(first, BlockReads { known_pages: 32, known_flash_reads: 200, other_pages: 10 });
        assert_eq!(first.rate(250), 5.0);
        assert_eq!(blocks(&workload, &[32, 32], true).flash_reads(5.0), 100.0);
        assert_eq!(blocks(&workload, &[0, 32], false), BlockReads { other_pages: 42, ..BlockReads::default() });
        // The last block, with pages behind the file's end.
        workload.costs.add(FILE, &came(&[32, 41, 63, 64, 95], 60), None, Some(true));
        assert_eq!(blocks(&workload, &[0, 32], true).flash_reads(5.0), 260.0);
        assert_eq!(blocks(&workload, &[0, 32], true).rate(1), 260.0 / 42.0);
        assert_eq!((BlockReads::default().rate(7), BlockReads::default().flash_reads(7.0)), (0.0, 0.0));
    }
}
