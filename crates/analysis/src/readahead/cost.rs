//! What a read costs, fitted from the trace itself: so much a call, so much a page that has to be brought in.
//!
//! On MTD a read brings its pages in itself, one after the other, and its time is the sum. Where a device works on its own (a
//! block queue) read-ahead overlaps with the reader; such calls are not fitted, and no time is predicted.

use serde::Serialize;

use super::workload::Call;

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// Of a call that brings nothing in.
    pub call_ns: f64,
    pub page_ns: f64,
    /// Array reads of flash for a page.
    pub flash_reads_per_page: f64,
    /// Calls that were fitted.
    pub calls: u64,
    /// The calls' own times against the fit: mean of the absolute differences, in per cent of the mean time.
    pub residual_percent: f64,
    /// All calls brought in the same number of pages: what a call and what a page costs cannot be told apart, and all is the
    /// page's.
    pub degenerate: bool,
}

impl Cost {
    /// Least squares over calls whose duration is known. `None` where there are none, or none that read flash.
    pub fn fit<'a>(calls: impl Iterator<Item = &'a Call> + Clone) -> Option<Cost> {
        let known = || calls.clone().filter_map(|call| Some((f64::from(call.pages_added), call.duration_ns? as f64)));
        let (mut n, mut x, mut y, mut xx, mut xy) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for (pages, ns) in known() {
            n += 1.0;
            x += pages;
            y += ns;
            xx += pages * pages;
            xy += pages * ns;
        }
        let flash: f64 = calls.clone().map(|call| f64::from(call.flash_reads)).sum();
        let pages: f64 = calls.clone().map(|call| f64::from(call.pages_added)).sum();
        if n == 0.0 || x == 0.0 || y == 0.0 || flash == 0.0 {
            return None;
        }
        let spread = n * xx - x * x;
        let (mut call_ns, mut page_ns) = (0.0, xy / xx);
        let degenerate = spread <= f64::EPSILON * n * xx;
        if !degenerate {
            page_ns = (n * xy - x * y) / spread;
            call_ns = (y - page_ns * x) / n;
            // A negative cost is noise: through the origin then.
            if call_ns < 0.0 || page_ns < 0.0 {
                (call_ns, page_ns) = (0.0, xy / xx);
            }
        }
        let off: f64 = known().map(|(pages, ns)| (ns - call_ns - page_ns * pages).abs()).sum();
        Some(Cost {
            call_ns,
            page_ns,
            flash_reads_per_page: flash / pages,
            calls: n as u64,
            residual_percent: off / y * 100.0,
            degenerate,
        })
    }

    /// Without what a call itself costs.
    pub fn of_pages(self) -> Cost {
        Cost { call_ns: 0.0, ..self }
    }

    pub fn time_ns(&self, calls: u64, pages: u64) -> f64 {
        self.call_ns * calls as f64 + self.page_ns * pages as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashscope_readahead::FileId;

    fn call(pages_added: u32, flash_reads: u32, ns: u64) -> Call {
        let file = FileId { device: None, inode: 1 };
        Call { tid: 1, file, is_fault: false, pages_added, flash_reads, duration_ns: Some(ns) }
    }

    #[test]
    fn a_line_is_found_again() {
        let calls = [call(0, 0, 1000), call(1, 3, 501_000), call(4, 12, 2_001_000), call(0, 0, 1000)];
        let cost = Cost::fit(calls.iter()).unwrap();
        assert!((cost.call_ns - 1000.0).abs() < 1e-3 && (cost.page_ns - 500_000.0).abs() < 1e-3, "{cost:?}");
        assert!(cost.residual_percent < 1e-6 && !cost.degenerate);
        assert_eq!((cost.flash_reads_per_page, cost.calls), (3.0, 4));
        assert!((cost.time_ns(2, 3) - 1_502_000.0).abs() < 1e-3);
    }

    #[test]
    fn what_cannot_be_told_is_not_told() {
        assert_eq!(Cost::fit([].iter()), None);
        assert_eq!(Cost::fit([call(1, 0, 9)].iter()), None, "no flash");
        let same = [call(1, 2, 100), call(1, 2, 300)];
        let cost = Cost::fit(same.iter()).unwrap();
        assert!(cost.degenerate && cost.call_ns == 0.0 && (cost.page_ns - 200.0).abs() < 1e-9);
        assert!((cost.residual_percent - 50.0).abs() < 1e-9);
    }
}
