//! The processor time of calls, fitted by least squares.

use schemars::JsonSchema;
use serde::Serialize;

/// Processor time of a call, by step. Fitted by least squares without negative parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct ProcessorCost {
    /// For each call.
    pub call_ns: f64,
    /// For each page that is added to the page cache.
    pub added_ns: f64,
    /// For each bio.
    pub bio_ns: f64,
    /// For each page that is put into a bio.
    pub bio_page_ns: f64,
    /// For each wait: going to sleep and waking up.
    pub wait_ns: f64,
    /// For each page that the reader gets.
    pub page_ns: f64,
    /// For each page of an issued bio: work of the driver before the reader continues, in parallel with the device.
    pub driver_page_ns: f64,
    /// For each page of a completed bio.
    pub done_page_ns: f64,
    /// For each completed bio.
    pub done_ns: f64,
    /// Calls that were fitted.
    pub calls: u64,
    /// Root mean square of the residuals, in percent of the mean.
    pub residual_percent: f64,
}

const PARTS: usize = 9;

pub(super) type Sums = crate::least_squares::Sums<PARTS>;

impl Sums {
    /// Coordinate descent on the normal equations; every part stays at 0 or above. Of parts that always occur together the first gets
    /// the whole cost.
    fn solve(&self) -> [f64; PARTS] {
        let mut parts = [0.0; PARTS];
        for _ in 0..50_000 {
            let mut moved = 0.0_f64;
            for i in 0..PARTS {
                if self.xx[i][i] == 0.0 {
                    continue;
                }
                let others: f64 = (0..PARTS).filter(|&k| k != i).map(|k| self.xx[i][k] * parts[k]).sum();
                let part = ((self.xy[i] - others) / self.xx[i][i]).max(0.0);
                moved = moved.max((part - parts[i]).abs());
                parts[i] = part;
            }
            if moved < 1e-6 {
                break;
            }
        }
        parts
    }

    pub(super) fn fit(&self) -> Option<ProcessorCost> {
        if self.n == 0.0 || self.y <= 0.0 {
            return None;
        }
        let p = self.solve();
        let modelled: f64 = (0..PARTS).map(|i| p[i] * self.xy[i]).sum();
        let squares: f64 =
            (0..PARTS).flat_map(|i| (0..PARTS).map(move |k| (i, k))).map(|(i, k)| p[i] * p[k] * self.xx[i][k]).sum();
        let off = ((self.yy - 2.0 * modelled + squares).max(0.0) / self.n).sqrt();
        Some(ProcessorCost {
            call_ns: p[0],
            added_ns: p[1],
            bio_ns: p[2],
            wait_ns: p[3],
            page_ns: p[4],
            driver_page_ns: p[5],
            done_page_ns: p[6],
            done_ns: p[7],
            bio_page_ns: p[8],
            calls: self.n as u64,
            residual_percent: off / (self.y / self.n) * 100.0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_are_told_apart_are_found_and_none_is_negative() {
        let mut sums = Sums::default();
        for (added, bios) in [(0.0, 0.0), (1.0, 1.0), (4.0, 1.0), (8.0, 2.0)] {
            sums.add([1.0, added, bios, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], 5.0 + 3.0 * added + 7.0 * bios);
        }
        let fit = sums.fit().unwrap();
        let near = |a: f64, b: f64| (a - b).abs() < 1e-3;
        assert!(near(fit.call_ns, 5.0) && near(fit.added_ns, 3.0) && near(fit.bio_ns, 7.0), "{fit:?}");
        assert!(fit.residual_percent < 0.1 && fit.calls == 4);
        let mut sums = Sums::default();
        sums.add([1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], 10.0);
        sums.add([1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], 4.0);
        assert!(sums.fit().unwrap().added_ns == 0.0);
        assert!(Sums::default().fit().is_none());
    }
}
