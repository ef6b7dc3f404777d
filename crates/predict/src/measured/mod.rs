//! The measured cost of each page and of each flash read. A workload collects them, and `cost` applies them.

pub mod flash_time;
pub mod index;
pub mod pages;
pub mod ubifs;

/// Most times that are kept for a median: the first ones.
const MOST_TIMES: usize = 1 << 16;

/// Times of which the median is used, ns.
#[derive(Debug, Default)]
struct Times(Vec<u32>);

impl Times {
    fn add(&mut self, ns: u64) {
        if self.0.len() < MOST_TIMES {
            self.0.push(ns.try_into().unwrap_or(u32::MAX));
        }
    }

    fn median(&self) -> Option<f64> {
        let mut times = self.0.clone();
        let middle = times.len() / 2;
        (!times.is_empty()).then(|| f64::from(*times.select_nth_unstable(middle).1))
    }
}
