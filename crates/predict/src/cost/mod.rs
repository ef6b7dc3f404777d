//! Fits the cost of reads from the trace: a time for each call, and a time for each page that it brings in.
//!
//! On MTD a read reads its pages itself, one after the other, and its time is the sum. Behind a block queue the device reads ahead
//! while the reader goes on: see `queue/`.
//!
//! Tasks that read at the same time also wait for each other, as the scheduler decides. But one of them is always served. So the
//! time is that in which any task was in a call, and the fit uses stretches of it.

pub mod costs;
pub mod squashfs;

use flashscope_cachesim::BulkReads;
use schemars::JsonSchema;
use serde::Serialize;

use crate::measured::flash_time::ReadTimes;
use crate::workload::{Call, Workload};

/// A time in which calls were under way without a gap: one call, or overlapping calls of several tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Stretch {
    calls: f64,
    pages: f64,
    flash_reads: f64,
    flash_reads_in_part: f64,
    ns: f64,
}

impl Stretch {
    /// No page and no flash read: only the call itself takes time.
    fn is_idle(&self) -> bool {
        self.pages == 0.0 && self.flash_reads == 0.0
    }
}

/// Calls of one kind.
#[derive(Debug, Default)]
pub struct Calls {
    /// Stretches that have only calls of this kind, with known ends.
    stretches: Vec<Stretch>,
    pages: u64,
    flash_reads: u64,
}

/// The time in a workload's calls.
#[derive(Debug, Default)]
pub struct Busy {
    /// Reads, faults and advice.
    pub kinds: [Calls; 3],
    /// Time in which any task was in a call.
    pub total_ns: u64,
}

/// A stretch that has not ended yet.
struct Open {
    /// `None`: it has calls of several kinds.
    kind: Option<usize>,
    begin: u64,
    end: u64,
    so_far: Stretch,
}

impl Busy {
    pub fn of(workload: &Workload) -> Busy {
        let mut busy = Busy::default();
        let mut open: Option<Open> = None;
        let calls = workload.calls.iter().map(|call| (usize::from(call.is_fault), call));
        let mut all: Vec<(usize, &Call)> = calls.chain(workload.advice.iter().map(|call| (2, call))).collect();
        all.sort_by_key(|(_, call)| call.began_ns);
        for (kind, call) in all {
            busy.add(&mut open, kind, call);
        }
        busy.close(open);
        busy
    }

    fn add(&mut self, open: &mut Option<Open>, kind: usize, call: &Call) {
        let of_kind = &mut self.kinds[kind];
        of_kind.pages += u64::from(call.pages_added);
        of_kind.flash_reads += u64::from(call.flash_reads);
        let Some(ns) = call.duration_ns else { return };
        // Time in which no task is served, because others run, is in no stretch.
        let begin = call.clock_began_ns();
        let end = begin.saturating_add(ns);
        let open = match open {
            Some(open) if begin < open.end => open,
            _ => {
                self.close(open.take());
                open.insert(Open { kind: Some(kind), begin, end: begin, so_far: Stretch::default() })
            }
        };
        open.kind = open.kind.filter(|&known| known == kind);
        open.end = open.end.max(end);
        open.so_far.calls += 1.0;
        open.so_far.pages += f64::from(call.pages_added);
        open.so_far.flash_reads += f64::from(call.flash_reads);
        open.so_far.flash_reads_in_part += f64::from(call.flash_reads_in_part);
    }

    fn close(&mut self, open: Option<Open>) {
        let Some(Open { kind, begin, end, so_far }) = open else { return };
        self.total_ns = self.total_ns.saturating_add(end - begin);
        if let Some(kind) = kind {
            self.kinds[kind].stretches.push(Stretch { ns: (end - begin) as f64, ..so_far });
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
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
    /// All calls brought in the same number of pages: what a call and what a page costs cannot be distinguished, and all is the
    /// page's.
    pub degenerate: bool,
}

impl Cost {
    /// `None` where no call has a known time, or none reads flash.
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

    /// The same without the cost of the call itself.
    pub fn of_pages(self) -> Cost {
        Cost { call_ns: 0.0, ..self }
    }

    pub fn time_ns(&self, calls: u64, pages: u64) -> f64 {
        self.call_ns * calls as f64 + self.page_ns * pages as f64
    }
}

/// A line: the cost of a call, and of each unit done in it.
struct Line {
    call_ns: f64,
    each_ns: f64,
    /// All calls did the same amount.
    degenerate: bool,
}

impl Line {
    /// Where some calls were idle, their time is the cost of a call, and the rest is the cost of what was done. Else a least-squares fit, if
    /// the cost that it gives a call exceeds chance ([`call_error_ns`]); if not, all is the cost of what was done. `None` where
    /// nothing was done.
    fn through(stretches: &[&Stretch], done: impl Fn(&Stretch) -> f64) -> Option<Line> {
        let mut sums = Sums::default();
        stretches.iter().for_each(|one| sums.add([one.calls, done(one)], one.ns));
        let (calls, x): (f64, f64) =
            (stretches.iter().map(|one| one.calls).sum(), stretches.iter().map(|one| done(one)).sum());
        let y = sums.y;
        if x == 0.0 || y == 0.0 {
            return None;
        }
        let fitted = sums.solve();
        let left_ns = |idle_ns: &f64| y - idle_ns * calls;
        let [call_ns, each_ns] = match idle_call_ns(stretches).filter(|idle_ns| left_ns(idle_ns) > 0.0) {
            Some(idle_ns) => [idle_ns, left_ns(&idle_ns) / x],
            // A negative cost is noise, or pages differ in cost (a page behind a file's end costs nothing).
            None => fitted
                .filter(|&[call_ns, each_ns]| each_ns >= 0.0 && call_ns > SURE * call_error_ns(&sums, call_ns, each_ns))
                .unwrap_or([0.0, y / x]),
        };
        Some(Line { call_ns, each_ns, degenerate: fitted.is_none() })
    }
}

/// A call's cost counts where it is more than this many standard errors above 0.
const SURE: f64 = 3.0;
/// Fewest stretches for a standard error.
const ENOUGH: f64 = 8.0;

/// Over stretches: their calls, and the amount done in them.
type Sums = crate::least_squares::Sums<2>;

/// The standard error of a call's cost. Infinite for few stretches: a line always fits two, and one slow stretch makes calls expensive
/// and pages cheap.
fn call_error_ns(sums: &Sums, call_ns: f64, each_ns: f64) -> f64 {
    if sums.n < ENOUGH {
        return f64::INFINITY;
    }
    let off = sums.yy - call_ns * sums.xy[0] - each_ns * sums.xy[1];
    (off.max(0.0) / (sums.n - 2.0) * sums.xx[1][1] / sums.spread()).sqrt()
}

/// Time of an idle call: the median, so that one call that waited for a CPU does not shift it. `None` where no call was idle.
fn idle_call_ns(stretches: &[&Stretch]) -> Option<f64> {
    let mut idle: Vec<f64> = stretches.iter().filter(|one| one.is_idle()).map(|one| one.ns / one.calls).collect();
    let middle = idle.len() / 2;
    (!idle.is_empty()).then(|| *idle.select_nth_unstable_by(middle, f64::total_cmp).1)
}

/// Cost of reads on UBIFS by flash reads, where the places of nodes are known. A bulk read reads a page of flash that two nodes share
/// once, so its pages are cheaper than single ones. Within a window it reads nodes in vain, which costs flash reads and brings no page.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeCost {
    call_ns: f64,
    times: ReadTimes,
    /// Further time of a page: its node is checked and unpacked.
    page_ns: f64,
    /// Flash reads for a node that is read alone.
    single_reads: f64,
}

/// Pages of flash of which a node read alone takes only a part: its first and its last.
const ENDS: f64 = 2.0;

impl NodeCost {
    /// `single_reads`: flash reads for a node that is read alone. `times`: of flash reads; the rest of the calls' time is the pages'.
    /// Where there is no rest, or the times are not known, all of the calls' time is shared equally by the flash reads.
    /// `None` as for [`Cost::fit`].
    pub fn fit(busy: &Busy, single_reads: f64, times: Option<ReadTimes>) -> Option<NodeCost> {
        let stretches: Vec<&Stretch> = busy.kinds.iter().flat_map(|calls| &calls.stretches).collect();
        let line = Line::through(&stretches, |one| one.flash_reads)?;
        let call_ns = idle_call_ns(&stretches).unwrap_or(0.0);
        let left_ns = |one: &&Stretch, times: ReadTimes| {
            one.ns - call_ns * one.calls - times.ns(one.flash_reads, one.flash_reads_in_part)
        };
        let pages: f64 = stretches.iter().map(|one| one.pages).sum();
        let apart = times
            .map(|times| (times, stretches.iter().map(|one| left_ns(one, times)).sum::<f64>() / pages))
            .filter(|&(_, page_ns)| page_ns > 0.0);
        let all_alike = ReadTimes { part_ns: line.each_ns, page_ns: line.each_ns };
        Some(match apart {
            Some((times, page_ns)) => NodeCost { call_ns, times, page_ns, single_reads },
            None => NodeCost { call_ns: line.call_ns, times: all_alike, page_ns: 0.0, single_reads },
        })
    }

    /// Flash reads in all. `index`: those of index nodes.
    pub fn flash_reads(&self, pages: u64, bulk: BulkReads, index: u64) -> f64 {
        let guessed = (self.alone(pages, bulk) - bulk.alone as f64).max(0.0);
        guessed * self.single_reads + (bulk.flash_reads_alone + bulk.flash_reads + index) as f64
    }

    /// Time in all; see [`NodeCost::flash_reads`].
    pub fn time_ns(&self, calls: u64, pages: u64, bulk: BulkReads, index: u64) -> f64 {
        let in_part = self.alone(pages, bulk) * self.single_reads.min(ENDS) + (bulk.flash_reads_in_part + index) as f64;
        let flash_ns = self.times.ns(self.flash_reads(pages, bulk, index), in_part);
        self.call_ns * calls as f64 + flash_ns + self.page_ns * pages as f64
    }

    /// Pages whose nodes are read alone.
    fn alone(&self, pages: u64, bulk: BulkReads) -> f64 {
        pages.saturating_sub(bulk.pages) as f64
    }

    /// Flash reads and time for further index nodes: each is a read of a part of a page.
    pub fn of_index(&self, nodes: f64) -> (f64, f64) {
        (nodes, nodes * self.times.part_ns)
    }

    /// Difference in flash reads and time between a page whose node is read alone and a page that took `flash_reads`. `node`: flash reads
    /// of the node where known; `index`: index nodes read before it.
    pub fn instead_of(&self, flash_reads: f64, node: Option<u64>, index: u64) -> (f64, f64) {
        let node = node.map_or(0.0, |reads| reads as f64 - self.single_reads);
        let index = self.single_reads + index as f64 - flash_reads;
        (node + index, node * self.times.page_ns + index * self.times.part_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashscope_trace::{FileId, TaskId};

    fn call(began_ns: u64, pages_added: u32, flash_reads: u32, ns: u64) -> Call {
        let file = FileId { device: None, inode: 1 };
        Call { pages_added, flash_reads, duration_ns: Some(ns), ..Call::new(TaskId(1), file, false, began_ns) }
    }

    fn fit(calls: &[Call]) -> Option<Cost> {
        Cost::fit(&Busy::of(&Workload { calls: calls.to_vec(), ..Workload::default() }).kinds[0])
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
        // Nodes on three pages of flash, each read alone: 270 us for each of the two that are read in part, 140 for the other, 160 a
        // page of the file and 10 a call.
        let of_nodes =
            |began_ns, nodes: u32, ns| Call { flash_reads_in_part: 2 * nodes, ..call(began_ns, nodes, 3 * nodes, ns) };
        let calls = vec![of_nodes(0, 1, 850_000), of_nodes(1_000_000, 2, 1_690_000), call(5_000_000, 0, 0, 10_000)];
        let fit = |calls, times| NodeCost::fit(&Busy::of(&Workload { calls, ..Workload::default() }), 3.0, times);
        let times = ReadTimes { part_ns: 270_000.0, page_ns: 140_000.0 };
        let cost = fit(calls.clone(), Some(times)).unwrap();
        let bulk = BulkReads {
            reads: 2,
            nodes: 60,
            pages: 60,
            flash_reads: 122,
            flash_reads_in_part: 3,
            ..BulkReads::default()
        };
        let reads = cost.flash_reads(62, bulk, 5);
        assert!((reads - (2.0 * 3.0 + 122.0 + 5.0)).abs() < 1e-9, "{cost:?}");
        let ns = cost.time_ns(4, 62, bulk, 5);
        let (parts, whole) = (4.0 + 3.0 + 5.0, 2.0 + 119.0);
        let expected = 40_000.0 + parts * 270_000.0 + whole * 140_000.0 + 62.0 * 160_000.0;
        assert!((ns - expected).abs() < 1.0, "{ns} {expected} {cost:?}");
        // One of the two that are read alone has its node's own.
        let known = BulkReads { alone: 1, flash_reads_alone: 2, ..bulk };
        assert!((cost.flash_reads(62, known, 5) - (3.0 + 2.0 + 122.0 + 5.0)).abs() < 1e-9);
        // Two nodes of the index, which are each read in part.
        assert_eq!(cost.instead_of(3.0, None, 2), (2.0, 540_000.0));
        assert_eq!(cost.instead_of(3.0, Some(4), 0), (1.0, 140_000.0));
        // In a window a node comes again and again.
        let wasted = BulkReads {
            reads: 32,
            nodes: 32 * 30,
            pages: 32,
            flash_reads: 1952,
            flash_reads_in_part: 64,
            ..BulkReads::default()
        };
        assert!(cost.flash_reads(32, wasted, 0) > 1900.0);
        // Without the time of a read, or with one that leaves nothing: all is the reads'.
        let absurd = ReadTimes { part_ns: 1e9, page_ns: 1e9 };
        for times in [None, Some(absurd)] {
            let cost = fit(calls.clone(), times).unwrap();
            let each = (850_000.0 + 1_690_000.0 - 20_000.0) / 9.0;
            assert!((cost.time_ns(0, 1, BulkReads::default(), 0) - 3.0 * each).abs() < 1.0, "{cost:?}");
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

    /// Two reads, of four pages and of eight, at a millisecond a page; the first was delayed for as long again. That read-ahead costs
    /// time is seen all the same.
    #[test]
    fn two_calls_tell_nothing_of_what_a_call_costs() {
        let cost = fit(&[call(0, 4, 12, 8_000_000), call(9_000_000, 8, 24, 8_000_000)]).unwrap();
        assert_eq!(cost.call_ns, 0.0, "{cost:?}");
        assert!((cost.time_ns(2, 12) - 16_000_000.0).abs() < 1e-3 && !cost.degenerate, "{cost:?}");
    }

    /// No call is idle: 2 ms a call and 1 ms a page, and a few microseconds of noise, which does not hide it. Beside noise that does,
    /// it is the pages'.
    #[test]
    fn what_a_call_costs_is_told_where_it_is_sure() {
        let calls = |noise_ns: i64| -> Vec<Call> {
            let ns = |n: i64| 2_000_000 + (1 + n % 4) * 1_000_000 + (n * 7 % 5 - 2) * noise_ns;
            (0..20).map(|n| call(n as u64 * 20_000_000, 1 + n as u32 % 4, 3, ns(n) as u64)).collect()
        };
        let cost = fit(&calls(5000)).unwrap();
        assert!((cost.call_ns / 2e6 - 1.0).abs() < 0.01 && (cost.page_ns / 1e6 - 1.0).abs() < 0.01, "{cost:?}");
        assert_eq!(fit(&calls(900_000)).unwrap().call_ns, 0.0);
    }

    /// Three calls that found all cached, and two of which one was delayed: a call costs no more for it.
    #[test]
    fn a_call_that_was_held_up_does_not_raise_the_cost_of_empty_ones() {
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
        let cost = Cost::fit(&busy.kinds[0]).unwrap();
        assert!((cost.call_ns - 10.0).abs() < 1e-6 && (cost.page_ns - 100.0).abs() < 1e-6, "{cost:?}");
        // A stretch with calls of two kinds shows the cost of neither.
        let fault = Call { is_fault: true, ..call(5, 1, 1, 315) };
        let mixed = Busy::of(&Workload { calls: vec![together[0], fault], ..Workload::default() });
        assert_eq!((mixed.total_ns, Cost::fit(&mixed.kinds[0])), (320, None));
    }
}
