//! What a read costs, fitted from the trace itself: so much a call, so much a page that has to be brought in.
//!
//! On MTD a read brings its pages in itself, one after the other, and its time is the sum. Where a device works on its own (a
//! block queue) read-ahead overlaps with the reader: `queue.rs` has that.
//!
//! Where tasks read at the same time each waits for the other as well, and how long is the scheduler's matter. But somebody is
//! served all the while: so time is time in which any task was in a call, and what is fitted are stretches of it.

use flashscope_readahead::BulkReads;
use serde::Serialize;

use super::workload::{Call, Workload};

/// Time in which calls were under way without a pause: one call, or some of tasks that waited for each other.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Stretch {
    calls: f64,
    pages: f64,
    flash_reads: f64,
    ns: f64,
}

/// Calls of one kind.
#[derive(Debug, Default)]
pub struct Calls {
    /// Those that hold calls of this kind alone, and whose ends are known.
    stretches: Vec<Stretch>,
    pages: u64,
    flash_reads: u64,
}

/// What a workload's calls took.
#[derive(Debug, Default)]
pub struct Busy {
    pub reads: Calls,
    pub faults: Calls,
    pub advice: Calls,
    /// Time in which any task was in one.
    pub total_ns: u64,
}

/// A stretch that goes on.
struct Open {
    kind: Option<Kind>,
    begin: u64,
    end: u64,
    calls: u32,
    pages: u64,
    flash_reads: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Read,
    Fault,
    Advice,
}

impl Busy {
    pub fn of(workload: &Workload) -> Busy {
        let mut busy = Busy::default();
        let mut open: Option<Open> = None;
        let (mut calls, mut advice) = (workload.calls.iter().peekable(), workload.advice.iter().peekable());
        // Both are in order of their begins.
        loop {
            let advice_first = match (calls.peek(), advice.peek()) {
                (Some(call), Some(advice)) => advice.began_ns < call.began_ns,
                (None, advice) => advice.is_some(),
                _ => false,
            };
            let (kind, call) = match if advice_first { advice.next() } else { calls.next() } {
                Some(call) if advice_first => (Kind::Advice, call),
                Some(call) if call.is_fault => (Kind::Fault, call),
                Some(call) => (Kind::Read, call),
                None => break,
            };
            busy.add(&mut open, kind, call);
        }
        busy.close(open);
        busy
    }

    fn add(&mut self, open: &mut Option<Open>, kind: Kind, call: &Call) {
        let of_kind = self.of_kind(kind);
        of_kind.pages += u64::from(call.pages_added);
        of_kind.flash_reads += u64::from(call.flash_reads);
        let Some(ns) = call.duration_ns else { return };
        let end = call.began_ns.saturating_add(ns);
        match open {
            Some(open) if call.began_ns < open.end => {
                open.kind = open.kind.filter(|&known| known == kind);
                open.end = open.end.max(end);
                open.calls += 1;
                open.pages += u64::from(call.pages_added);
                open.flash_reads += u64::from(call.flash_reads);
            }
            _ => {
                let (pages, flash_reads) = (u64::from(call.pages_added), u64::from(call.flash_reads));
                let new = Open { kind: Some(kind), begin: call.began_ns, end, calls: 1, pages, flash_reads };
                self.close(open.replace(new));
            }
        }
    }

    fn close(&mut self, open: Option<Open>) {
        let Some(open) = open else { return };
        let ns = open.end - open.begin;
        self.total_ns = self.total_ns.saturating_add(ns);
        if let Some(kind) = open.kind {
            self.of_kind(kind).stretches.push(Stretch {
                calls: open.calls.into(),
                pages: open.pages as f64,
                flash_reads: open.flash_reads as f64,
                ns: ns as f64,
            });
        }
    }

    fn of_kind(&mut self, kind: Kind) -> &mut Calls {
        match kind {
            Kind::Read => &mut self.reads,
            Kind::Fault => &mut self.faults,
            Kind::Advice => &mut self.advice,
        }
    }
}

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
    /// `None` where there are no calls whose time is known, or none that read flash.
    pub fn fit(calls: &Calls) -> Option<Cost> {
        let stretches: Vec<&Stretch> = calls.stretches.iter().collect();
        let line = Line::through(&stretches, |one| one.pages).filter(|_| calls.flash_reads > 0)?;
        let ns: f64 = calls.stretches.iter().map(|one| one.ns).sum();
        let off = |one: &Stretch| (one.ns - line.call_ns * one.calls - line.each_ns * one.pages).abs();
        Some(Cost {
            call_ns: line.call_ns,
            page_ns: line.each_ns,
            flash_reads_per_page: calls.flash_reads as f64 / calls.pages as f64,
            calls: calls.stretches.iter().map(|one| one.calls).sum::<f64>() as u64,
            residual_percent: calls.stretches.iter().map(off).sum::<f64>() / ns * 100.0,
            degenerate: line.degenerate,
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

/// So much a call, so much for each of what it does.
struct Line {
    call_ns: f64,
    each_ns: f64,
    /// All calls did as much.
    degenerate: bool,
}

impl Line {
    /// Where some calls did nothing, the median of those is what a call costs, and all else is for what was done: one call that
    /// was held up takes nothing from what hundreds of others show. Least squares else. `None` where nothing was done.
    fn through(stretches: &[&Stretch], done: impl Fn(&Stretch) -> f64) -> Option<Line> {
        let mut idle: Vec<f64> =
            stretches.iter().filter(|one| done(one) == 0.0).map(|one| one.ns / one.calls).collect();
        let middle = idle.len() / 2;
        let idle_ns = (!idle.is_empty()).then(|| *idle.select_nth_unstable_by(middle, f64::total_cmp).1);
        let (mut x, mut y, mut nn, mut nx, mut xx, mut ny, mut xy) = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0);
        for one in stretches {
            let (calls, each) = (one.calls, done(one));
            x += each;
            y += one.ns;
            nn += calls * calls;
            nx += calls * each;
            xx += each * each;
            ny += calls * one.ns;
            xy += each * one.ns;
        }
        if x == 0.0 || y == 0.0 {
            return None;
        }
        let spread = nn * xx - nx * nx;
        let (mut call_ns, mut each_ns) = (0.0, y / x);
        let degenerate = spread <= f64::EPSILON * nn * xx;
        let calls: f64 = stretches.iter().map(|one| one.calls).sum();
        let left_ns = |idle_ns: &f64| y - idle_ns * calls;
        if let Some(idle_ns) = idle_ns.filter(|idle_ns| left_ns(idle_ns) > 0.0) {
            (call_ns, each_ns) = (idle_ns, left_ns(&idle_ns) / x);
        } else if !degenerate {
            each_ns = (nn * xy - nx * ny) / spread;
            call_ns = (xx * ny - nx * xy) / spread;
            // A negative cost is noise, or a page does not always cost the same (one behind a file's end costs nothing): all is the
            // pages' then, each the mean, so that what was recorded comes to its own time.
            if call_ns < 0.0 || each_ns < 0.0 {
                (call_ns, each_ns) = (0.0, y / x);
            }
        }
        Some(Line { call_ns, each_ns, degenerate })
    }
}

/// What reads cost on UBIFS by reads of flash, where nodes lie known: a bulk read takes pages of flash that two nodes share
/// once, so that its pages are cheaper than single ones; in a window it reads nodes for nothing, which cost the flash and no page.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeCost {
    call_ns: f64,
    /// A read of flash.
    read_ns: f64,
    /// What a page takes beside: its node is checked and unpacked.
    page_ns: f64,
    /// Reads of flash for a node that is read alone.
    single_reads: f64,
    /// Pages of flash that a node takes.
    node_pages: f64,
}

impl NodeCost {
    /// `node_pages`: of flash, one node's. `alone`: reads of flash for a node that was read alone; where none is known, it takes what
    /// its node touches, one page of flash more than it is long. `read_ns`: from one read of flash to the next within a page; what is
    /// left of the calls' time is the pages'. Where nothing is left, or it is not known, all of a read's time is the read's.
    /// `None` as for [`Cost::fit`].
    pub fn fit(busy: &Busy, node_pages: f64, alone: Option<f64>, read_ns: Option<f64>) -> Option<NodeCost> {
        let kinds = [&busy.reads, &busy.faults, &busy.advice];
        let stretches = || kinds.iter().flat_map(|calls| &calls.stretches);
        let line = Line::through(&stretches().collect::<Vec<_>>(), |one| one.flash_reads)?;
        let sum = |of: &dyn Fn(&Stretch) -> f64| stretches().map(of).sum::<f64>();
        let empty = |one: &Stretch| one.pages == 0.0 && one.flash_reads == 0.0;
        let empty_calls = sum(&|one| if empty(one) { one.calls } else { 0.0 });
        let empty_ns = sum(&|one| if empty(one) { one.ns } else { 0.0 });
        let call_ns = if empty_calls > 0.0 { empty_ns / empty_calls } else { 0.0 };
        let (ns, pages) = (sum(&|one| one.ns), sum(&|one| one.pages));
        let rest =
            |read_ns: f64| (ns - call_ns * sum(&|one| one.calls) - read_ns * sum(&|one| one.flash_reads)) / pages;
        let apart = read_ns.map(|read_ns| (call_ns, read_ns, rest(read_ns))).filter(|&(.., page_ns)| page_ns > 0.0);
        let (call_ns, read_ns, page_ns) = apart.unwrap_or((line.call_ns, line.each_ns, 0.0));
        let single_reads = alone.unwrap_or(node_pages + 1.0);
        Some(NodeCost { call_ns, read_ns, page_ns, single_reads, node_pages })
    }

    /// `index`: reads of the index's nodes.
    pub fn flash_reads(&self, pages: u64, bulk: BulkReads, index: u64) -> f64 {
        let alone = pages.saturating_sub(bulk.pages) as f64;
        alone * self.single_reads + bulk.nodes as f64 * self.node_pages + bulk.reads as f64 + index as f64
    }

    pub fn time_ns(&self, calls: u64, pages: u64, flash_reads: f64) -> f64 {
        self.call_ns * calls as f64 + self.read_ns * flash_reads + self.page_ns * pages as f64
    }

    /// A node that is read alone, and the index before it: reads of flash.
    pub fn alone(&self, index: u64) -> f64 {
        self.single_reads + index as f64
    }

    pub fn read_ns(&self) -> f64 {
        self.read_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashscope_readahead::FileId;

    fn call(began_ns: u64, pages_added: u32, flash_reads: u32, ns: u64) -> Call {
        let file = FileId { device: None, inode: 1 };
        Call { tid: 1, file, is_fault: false, pages_added, flash_reads, began_ns, duration_ns: Some(ns) }
    }

    fn fit(calls: &[Call]) -> Option<Cost> {
        Cost::fit(&Busy::of(&Workload { calls: calls.to_vec(), ..Workload::default() }).reads)
    }

    #[test]
    fn a_line_is_found_again() {
        let calls = [
            call(0, 0, 0, 1000),
            call(2000, 1, 3, 501_000),
            call(600_000, 4, 12, 2_001_000),
            call(9_000_000, 0, 0, 1000),
        ];
        let cost = fit(&calls).unwrap();
        assert!((cost.call_ns - 1000.0).abs() < 1e-3 && (cost.page_ns - 500_000.0).abs() < 1e-3, "{cost:?}");
        assert!(cost.residual_percent < 1e-6 && !cost.degenerate);
        assert_eq!((cost.flash_reads_per_page, cost.calls), (3.0, 4));
        assert!((cost.time_ns(2, 3) - 1_502_000.0).abs() < 1e-3);
    }

    #[test]
    fn a_bulk_read_takes_shared_pages_of_flash_once() {
        // Nodes of two pages and a bit, each read alone: three reads of flash, 100 us each, 30 us a page and 10 us a call.
        let calls = vec![call(0, 1, 3, 340_000), call(400_000, 2, 6, 670_000), call(2_000_000, 0, 0, 10_000)];
        let fit = |calls, read_ns| {
            NodeCost::fit(&Busy::of(&Workload { calls, ..Workload::default() }), 2.0, Some(3.0), read_ns)
        };
        let cost = fit(calls.clone(), Some(100_000.0)).unwrap();
        let bulk = BulkReads { reads: 2, nodes: 60, pages: 60 };
        let reads = cost.flash_reads(62, bulk, 5);
        assert!((reads - (2.0 * 3.0 + 120.0 + 2.0 + 5.0)).abs() < 1e-9, "{cost:?}");
        let ns = cost.time_ns(4, 62, reads);
        assert!((ns - (40_000.0 + 133.0 * 100_000.0 + 62.0 * 30_000.0)).abs() < 1.0, "{cost:?}");
        assert_eq!((cost.alone(2), cost.read_ns()), (5.0, 100_000.0));
        // In a window a node comes again and again.
        let wasted = BulkReads { reads: 32, nodes: 32 * 30, pages: 32 };
        assert!(cost.flash_reads(32, wasted, 0) > 1900.0);
        // Without the time of a read, or with one that leaves nothing: all is the reads'.
        for read_ns in [None, Some(1e9)] {
            let cost = fit(calls.clone(), read_ns).unwrap();
            assert!((cost.read_ns - 110_000.0).abs() < 1.0 && cost.page_ns == 0.0, "{cost:?}");
        }
        assert_eq!(fit(vec![call(0, 1, 0, 9)], None), None);
    }

    /// Pages behind a file's end come one by one and cost nothing, those of the file four a call.
    #[test]
    fn where_no_line_fits_the_recording_comes_to_its_own_time() {
        let calls: Vec<Call> = (0..8)
            .map(|n| if n % 2 == 0 { call(n * 10_000, 4, 12, 4000) } else { call(n * 10_000, 1, 0, 4) })
            .collect();
        let cost = fit(&calls).unwrap();
        assert_eq!(cost.call_ns, 0.0);
        assert!((cost.time_ns(8, 20) - 16_016.0).abs() < 1e-6, "{cost:?}");
    }

    /// Three calls that found all cached, and two of which one was held up: a call is no dearer for it.
    #[test]
    fn a_call_that_was_held_up_makes_empty_ones_no_dearer() {
        let calls = [
            call(0, 4, 10, 3_087_000),
            call(4_000_000, 0, 0, 4000),
            call(4_100_000, 0, 0, 3600),
            call(4_200_000, 0, 0, 90_000),
            call(5_000_000, 1, 5, 1_396_000),
        ];
        let cost = fit(&calls).unwrap();
        assert!((cost.call_ns - 4000.0).abs() < 1e-6, "{cost:?}");
        let recorded: u64 = calls.iter().filter_map(|call| call.duration_ns).sum();
        assert!((cost.time_ns(5, 5) - recorded as f64).abs() < 1e-3, "{cost:?}");
    }

    #[test]
    fn what_cannot_be_told_is_not_told() {
        assert_eq!(fit(&[]), None);
        assert_eq!(fit(&[call(0, 1, 0, 9)]), None, "no flash");
        let cost = fit(&[call(0, 1, 2, 100), call(200, 1, 2, 300)]).unwrap();
        assert!(cost.degenerate && cost.call_ns == 0.0 && (cost.page_ns - 200.0).abs() < 1e-9);
        assert!((cost.residual_percent - 50.0).abs() < 1e-9);
    }

    /// Two tasks at once: a page costs 100 and a call 10, and each waits for the other.
    #[test]
    fn tasks_that_wait_for_each_other_cost_no_more() {
        let together = [call(0, 2, 2, 315), call(5, 1, 1, 315), call(1000, 1, 1, 110), call(2000, 0, 0, 10)];
        let busy = Busy::of(&Workload { calls: together.to_vec(), ..Workload::default() });
        assert_eq!(busy.total_ns, 320 + 110 + 10);
        let cost = Cost::fit(&busy.reads).unwrap();
        assert!((cost.call_ns - 10.0).abs() < 1e-6 && (cost.page_ns - 100.0).abs() < 1e-6, "{cost:?}");
        // What is of two kinds tells neither's cost.
        let fault = Call { is_fault: true, ..call(5, 1, 1, 315) };
        let mixed = Busy::of(&Workload { calls: vec![together[0], fault], ..Workload::default() });
        assert_eq!((mixed.total_ns, Cost::fit(&mixed.reads)), (320, None));
    }
}
