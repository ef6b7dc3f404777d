//! Pages that another kernel's read-ahead would have read: the same requests under its rules (`crates/cachesim`).

use flashscope_cachesim::{Access, Kernel, OpenId, PAGE_BYTES, Settings, Simulator};
use flashscope_trace::FileId;

use crate::definition::Pattern;

/// Draws of random requests for the mean of a modelled figure: with 32 requests, single draws differ by tens of percent.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=200;

/// The requests of a cell, like the agent's (agent/bench/bench_read.c).
#[derive(Clone, Copy, Debug)]
pub struct Requests {
    pub file_bytes: u64,
    pub request_bytes: u64,
    pub count: u64,
    pub pattern: Pattern,
    /// Random requests begin at any byte, not only at multiples of their size.
    pub at_any_byte: bool,
}

impl Requests {
    fn offsets(self, seed: u64) -> Vec<u64> {
        match self.pattern {
            Pattern::Sequential => (0..self.count).map(|index| index * self.request_bytes).collect(),
            Pattern::Random if self.at_any_byte => {
                let last = self.file_bytes.saturating_sub(self.request_bytes);
                random_slots(seed, self.count, last.saturating_add(1))
            }
            Pattern::Random => {
                let slots = (self.file_bytes / self.request_bytes.max(1)).max(1);
                random_slots(seed, self.count, slots).into_iter().map(|slot| slot * self.request_bytes).collect()
            }
        }
    }

    fn pages_read(self, kernel: Kernel, readahead_kib: u64, seed: u64) -> u64 {
        let settings = Settings { readahead_pages: readahead_kib * 1024 / PAGE_BYTES, ..Settings::default() };
        let mut simulator = Simulator::new(kernel, settings);
        let file = FileId { device: None, inode: 1 };
        simulator.set_size(file, self.file_bytes);
        let mut read = 0;
        for offset in self.offsets(seed) {
            let access = Access::Read { offset, length: self.request_bytes };
            simulator.apply(file, OpenId(0), access, &mut |event| read += u64::from(event.is_read()));
        }
        read
    }

    /// Pages that no read-ahead saves compared with `readahead_kib`, percent of the latter; for random requests the mean over draws.
    pub fn pages_saved_percent(self, kernel: Kernel, readahead_kib: u64) -> f64 {
        let seeds = match self.pattern {
            Pattern::Sequential => 1..=1,
            Pattern::Random => SEEDS,
        };
        let draws = (seeds.end() - seeds.start() + 1) as f64;
        let saved = seeds.map(|seed| {
            let [with, without] = [readahead_kib, 0].map(|kib| self.pages_read(kernel, kib, seed) as f64);
            if with > 0.0 { (with - without) / with * 100.0 } else { 0.0 }
        });
        saved.sum::<f64>() / draws
    }
}

/// The slots that `bench read --pattern random` reads: SplitMix64 from the seed (agent/bench/prng.c); a value beyond the last slot is drawn
/// again.
pub fn random_slots(seed: u64, count: u64, slots: u64) -> Vec<u64> {
    let mut state = seed ^ 0x0070_6174_7465_726e;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let bits = u64::BITS - slots.saturating_sub(1).leading_zeros();
    let mask = if bits == 0 { 0 } else { u64::MAX >> (u64::BITS - bits) };
    let mut below = || {
        loop {
            let drawn = next() & mask;
            if drawn < slots.max(1) {
                return drawn;
            }
        }
    };
    (0..count).map(|_| below()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(count: u64, pattern: Pattern) -> Requests {
        Requests { file_bytes: 5 << 20, request_bytes: 4096, count, pattern, at_any_byte: false }
    }

    /// As measured on the board with 6.1, and as in the paper's kernel: sequential reads never needed context read-ahead.
    #[test]
    fn sequential_reads_save_what_the_board_measures_under_every_kernel() {
        for kernel in [Kernel::V2_6_37, Kernel::V5_10, Kernel::V6_1] {
            let saved =
                [8, 32, 64, 256].map(|count| of(count, Pattern::Sequential).pages_saved_percent(kernel, 128).round());
            assert_eq!(saved, [71.0, 65.0, 48.0, 19.0], "{kernel:?}");
        }
        assert_eq!(of(1, Pattern::Random).pages_saved_percent(Kernel::V6_1, 0), 0.0);
    }

    /// The paper (000, section 4.1.2): about 20 % up to 32 requests and up to 50 % at 256. With its kernel's rules, requests that begin
    /// anywhere, each on two pages, give these values. Requests of whole pages give the value at 256, and half of the value at 32.
    #[test]
    fn random_reads_save_what_the_paper_says_under_its_kernels_rules_and_no_longer_do() {
        let holds = |kernel: Kernel, at_any_byte: bool, ends: [(f64, f64); 4]| {
            let saved = [32, 64, 256, 1024].map(|count| {
                let requests = Requests { at_any_byte, ..of(count, Pattern::Random) };
                requests.pages_saved_percent(kernel, 128)
            });
            let from = if at_any_byte { "any byte" } else { "a page" };
            println!("random from {from}, {}: {saved:.1?} % fewer pages without read-ahead", kernel.name());
            let inside = saved.iter().zip(ends).all(|(value, (least, most))| (least..=most).contains(value));
            assert!(inside, "{saved:?} are not in {ends:?}");
        };
        holds(Kernel::V2_6_37, false, [(6.0, 12.0), (15.0, 22.0), (46.0, 52.0), (40.0, 46.0)]);
        holds(Kernel::V6_1, false, [(0.0, 1.0), (0.0, 1.0), (2.0, 5.0), (16.0, 20.0)]);
        holds(Kernel::V2_6_37, true, [(15.0, 20.0), (27.0, 34.0), (50.0, 55.0), (17.0, 22.0)]);
        holds(Kernel::V6_1, true, [(0.0, 4.0), (2.0, 6.0), (13.0, 18.0), (16.0, 20.0)]);
    }

    #[test]
    fn slots_are_within_the_file() {
        assert!(random_slots(3, 1000, 1280).iter().all(|&slot| slot < 1280));
        assert_eq!(random_slots(3, 4, 1), [0; 4]);
        assert_eq!(random_slots(3, 1, 0), [0]);
    }
}
