//! Operations over time and address (Flashmon v2, figures 2 and 3), in bounded memory.

use crate::Analysis;
use crate::clip::clip;
use flashscope_trace::{Event, EventKind, FlashOp};
use foldhash::{HashMap, HashMapExt as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most points of a timeline: a figure of 900 × 400 dots shows no more.
pub const MAX_POINTS: usize = 3000;
/// Most spans: the first ones are kept.
const MAX_SPANS: usize = 1000;
/// When bins must grow, they grow first along an axis with more bins than this.
const TIME_BINS: u64 = 512;
const PAGE_BINS: u64 = 256;

/// Operations over time and address, binned to a bounded number of points.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct Timeline {
    pub begin_ns: u64,
    pub end_ns: u64,
    /// Width of a bin along time and along pages; 1 and 1 where nothing was binned.
    pub bin_ns: u64,
    pub bin_pages: u32,
    /// By time, page, chip, operation.
    pub points: Vec<TimelinePoint>,
    /// Named spans (mount, settle, cells), for the figure's x axis.
    pub spans: Vec<Span>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct TimelinePoint {
    /// Middle of the bin.
    pub time_ns: u64,
    pub page: u64,
    pub op: FlashOp,
    pub count: u32,
    /// 0 where there is one chip only.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub chip: u16,
}

fn is_zero(n: &u16) -> bool {
    *n == 0
}

#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct Span {
    pub name: String,
    pub begin_ns: u64,
    pub end_ns: u64,
}

/// Bins that double when there are too many points, so that neither the time span nor the address range need be known
/// in advance. Bin widths are powers of two and bins are aligned to 0, so the order of events changes nothing.
#[derive(Debug)]
pub struct TimelineFold {
    max_points: usize,
    time_shift: u32,
    page_shift: u32,
    bins: HashMap<Bin, u32>,
    time: Option<(u64, u64)>,
    pages: Option<(u64, u64)>,
    open: Vec<(String, u64)>,
    spans: Vec<Span>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Bin {
    time: u64,
    page: u64,
    chip: u16,
    op: FlashOp,
}

impl Default for TimelineFold {
    fn default() -> Self {
        Self::new(MAX_POINTS)
    }
}

fn widen(range: &mut Option<(u64, u64)>, value: u64) {
    let (low, high) = range.get_or_insert((value, value));
    *low = value.min(*low);
    *high = value.max(*high);
}

fn middle(index: u64, shift: u32) -> u64 {
    match shift {
        0 => index,
        64.. => 1 << 63,
        _ => (index << shift) | (1 << (shift - 1)),
    }
}

fn shr(value: u64, shift: u32) -> u64 {
    value.checked_shr(shift).unwrap_or(0)
}

impl TimelineFold {
    /// At most `max_points` points. The coarsest binning has one bin for each operation and chip, so a trace with more chips
    /// than a third of `max_points` exceeds it: 3 points a chip.
    pub fn new(max_points: usize) -> Self {
        Self {
            max_points: max_points.max(3),
            time_shift: 0,
            page_shift: 0,
            bins: HashMap::new(),
            time: None,
            pages: None,
            open: Vec::new(),
            spans: Vec::new(),
        }
    }

    /// Adds a span that the events do not name.
    pub fn span(&mut self, span: Span) {
        if self.spans.len() < MAX_SPANS {
            self.spans.push(span);
        }
    }

    fn add(&mut self, bin: Bin, count: u32) {
        let slot = self.bins.entry(bin).or_default();
        *slot = slot.saturating_add(count);
    }

    /// Number of bins in the range at this width.
    fn bins_of(range: Option<(u64, u64)>, shift: u32) -> u64 {
        range.map_or(1, |(low, high)| (shr(high, shift) - shr(low, shift)).saturating_add(1))
    }

    fn coarsen(&mut self) {
        while self.bins.len() > self.max_points {
            let times = Self::bins_of(self.time, self.time_shift);
            let pages = Self::bins_of(self.pages, self.page_shift);
            if times == 1 && pages == 1 {
                return; // chips and operations alone
            }
            // times / TIME_BINS ≥ pages / PAGE_BINS, without fractions
            let along_time = u128::from(times) * u128::from(PAGE_BINS) >= u128::from(pages) * u128::from(TIME_BINS);
            let (time, page) = if (along_time && times > 1) || pages == 1 {
                self.time_shift += 1;
                (1, 0)
            } else {
                self.page_shift += 1;
                (0, 1)
            };
            for (bin, count) in std::mem::take(&mut self.bins) {
                let wider = Bin { time: bin.time >> time, page: bin.page >> page, ..bin };
                self.add(wider, count);
            }
        }
    }
}

impl Analysis for TimelineFold {
    type Output = Timeline;

    fn event(&mut self, event: &Event) {
        let now = event.time.0;
        match &event.kind {
            EventKind::Flash(access) => {
                widen(&mut self.time, now);
                widen(&mut self.pages, access.page);
                self.add(
                    Bin {
                        time: shr(now, self.time_shift),
                        page: shr(access.page, self.page_shift),
                        chip: access.chip,
                        op: access.op,
                    },
                    1,
                );
                self.coarsen();
            }
            EventKind::PhaseBegin { name } if self.open.len() < MAX_SPANS => {
                self.open.push((clip(name).to_owned(), now));
            }
            EventKind::PhaseEnd { name } => {
                if let Some(at) = self.open.iter().rposition(|(n, _)| n == clip(name)) {
                    let (name, begin_ns) = self.open.remove(at);
                    self.span(Span { name, begin_ns, end_ns: now });
                }
            }
            _ => {}
        }
    }

    fn finish(mut self) -> Timeline {
        let last = (self.time.map(|t| t.1)).into_iter().chain(self.spans.iter().map(|s| s.end_ns)).max();
        for (name, begin_ns) in std::mem::take(&mut self.open) {
            let end_ns = last.unwrap_or(begin_ns).max(begin_ns);
            self.span(Span { name, begin_ns, end_ns });
        }
        for span in &self.spans {
            widen(&mut self.time, span.begin_ns);
            widen(&mut self.time, span.end_ns);
        }
        // Outer spans before those inside them.
        self.spans.sort_by(|a, b| {
            (a.begin_ns.cmp(&b.begin_ns)).then(b.end_ns.cmp(&a.end_ns)).then_with(|| a.name.cmp(&b.name))
        });
        // A phase may occur twice: as an event of the trace, and from the caller.
        self.spans.dedup();
        let mut bins: Vec<(Bin, u32)> = self.bins.into_iter().collect();
        bins.sort_unstable();
        let (begin_ns, end_ns) = self.time.unwrap_or((0, 0));
        Timeline {
            begin_ns,
            end_ns,
            bin_ns: 1u64.checked_shl(self.time_shift).unwrap_or(u64::MAX),
            bin_pages: 1u32.checked_shl(self.page_shift).unwrap_or(u32::MAX),
            points: bins
                .into_iter()
                .map(|(bin, count)| TimelinePoint {
                    time_ns: middle(bin.time, self.time_shift),
                    page: middle(bin.page, self.page_shift),
                    op: bin.op,
                    count,
                    chip: bin.chip,
                })
                .collect(),
            spans: self.spans,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{access, begin, end, flash};
    use FlashOp::{Erase, Program, Read};

    fn fold(max: usize, events: &[Event]) -> Timeline {
        let mut fold = TimelineFold::new(max);
        events.iter().for_each(|e| fold.event(e));
        fold.finish()
    }

    fn plain(timeline: &Timeline) -> Vec<(u64, u64, FlashOp, u32)> {
        timeline.points.iter().map(|p| (p.time_ns, p.page, p.op, p.count)).collect()
    }

    #[test]
    fn few_points_stay_as_they_are() {
        let found = fold(
            100,
            &[
                begin(90, "mount"),
                flash(100, 1, access(Read, 5)),
                flash(101, 1, access(Program, 5)),
                flash(101, 1, access(Erase, 64)),
                end(120, "mount"),
            ],
        );
        assert_eq!((found.bin_ns, found.bin_pages), (1, 1));
        assert_eq!((found.begin_ns, found.end_ns), (90, 120));
        assert_eq!(plain(&found), [(100, 5, Read, 1), (101, 5, Program, 1), (101, 64, Erase, 1)]);
        assert_eq!(found.spans, [Span { name: "mount".into(), begin_ns: 90, end_ns: 120 }]);
    }

    #[test]
    fn bins_double_until_the_points_fit() {
        // Eight reads of one page at times 0…7 into at most 4 points: bins of 2 ns, two reads each, middles 1 3 5 7.
        let events: Vec<Event> = (0..8).map(|t| flash(t, 1, access(Read, 9))).collect();
        let found = fold(4, &events);
        assert_eq!((found.bin_ns, found.bin_pages), (2, 1));
        assert_eq!(plain(&found), [(1, 9, Read, 2), (3, 9, Read, 2), (5, 9, Read, 2), (7, 9, Read, 2)]);
    }

    #[test]
    fn pages_double_too() {
        // One moment, pages 0…7: only pages can be binned.
        let events: Vec<Event> = (0..8).map(|p| flash(3, 1, access(Erase, p))).collect();
        let found = fold(4, &events);
        assert_eq!((found.bin_ns, found.bin_pages), (1, 2));
        assert_eq!(plain(&found), [(3, 1, Erase, 2), (3, 3, Erase, 2), (3, 5, Erase, 2), (3, 7, Erase, 2)]);
    }

    #[test]
    fn nothing_is_lost_and_memory_is_bounded_over_wild_ranges() {
        let mut fold = TimelineFold::new(50);
        let mut n: u64 = 1;
        for i in 0..20_000u64 {
            n = n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let op = [Read, Program, Erase][(i % 3) as usize];
            fold.event(&flash(n >> (i % 60), 1, access(op, n.rotate_left(17) >> (i % 50))));
            assert!(fold.bins.len() <= 50);
        }
        let found = fold.finish();
        assert!(found.points.len() <= 50);
        assert_eq!(found.points.iter().map(|p| u64::from(p.count)).sum::<u64>(), 20_000);
    }

    #[test]
    fn the_order_of_events_changes_nothing() {
        let mut events: Vec<Event> =
            (0..500).map(|i| flash(i * 977 % 10_007, 1, access(Read, i * 31 % 1009))).collect();
        let forward = fold(60, &events);
        events.reverse();
        assert_eq!(fold(60, &events), forward);
    }

    #[test]
    fn a_span_told_twice_is_one() {
        let mut fold = TimelineFold::default();
        fold.span(Span { name: "mount".into(), begin_ns: 3, end_ns: 7 });
        for event in [begin(3, "mount"), begin(4, "scan"), end(5, "scan"), end(7, "mount")] {
            fold.event(&event);
        }
        let names: Vec<String> = fold.finish().spans.into_iter().map(|s| s.name).collect();
        assert_eq!(names, ["mount", "scan"]);
    }

    #[test]
    fn an_open_phase_ends_with_the_trace() {
        let found = fold(10, &[begin(5, "settle"), flash(9, 1, access(Read, 0))]);
        assert_eq!(found.spans[0].end_ns, 9);
        let empty = fold(10, &[]);
        assert_eq!((empty.begin_ns, empty.end_ns, empty.points.len()), (0, 0, 0));
    }
}
