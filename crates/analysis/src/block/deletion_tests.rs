//! Events removed from real recordings: the means and percentiles of what is left are those of the I/Os that are left.

use super::groups::StageTimes;
use super::in_flight::Bio;
use super::loss_tests::Random;
use super::matching::Matching;
use super::stages::{Stage, each_stage};
use super::watch::Watch;
use super::{BlockAnalysis, Sizes};
use crate::Analysis as _;
use crate::latency::LatencyNs;
use flashscope_trace::{BlockAction, BlockEvent, Event, EventKind, RequestFlags, RequestKind, Trace};
use std::path::Path;

/// Below crates/trace/tests/data/blktrace; boards' recordings of reads, writes, merges, splits and flushes.
const RECORDINGS: [&str; 5] = ["armv7-5.10", "armv7-6.1", "armv7-6.12", "armv7-newest", "x86_64-6.1"];
/// Of each recording.
const DELETIONS: u64 = 20;
/// Lost events, of a thousand, up to which no figure is wrong.
const FEW: u64 = 30;
/// A percentile is at most this share below the true value (1/128).
const STEP: f64 = 1.0 / 128.0;

/// An I/O of the whole recording, and how long it took.
struct Io {
    sectors: std::ops::Range<u64>,
    flush: bool,
    time: std::ops::RangeInclusive<u64>,
    stages: Vec<(Stage, u64)>,
}

impl Io {
    /// This event may be one of its steps.
    fn has(&self, event: &Event, block: &BlockEvent) -> bool {
        let end = block.end();
        let meets = (block.sector..end).start < self.sectors.end && self.sectors.start < end;
        self.time.contains(&event.time.0) && if block.bytes == 0 { self.flush } else { meets }
    }

    /// Both are on their way at once, at the same sectors: which step is whose is not said.
    fn contests(&self, other: &Io) -> bool {
        let at_once = self.time.start() <= other.time.end() && other.time.start() <= self.time.end();
        at_once && self.sectors.start < other.sectors.end && other.sectors.start < self.sectors.end
    }
}

#[derive(Default)]
struct Ios(Vec<Io>);

impl Watch for Ios {
    fn ended(&mut self, _at: u32, bio: &Bio, completed: u64) {
        if bio.is_request() {
            return;
        }
        let mut stages = Vec::new();
        each_stage(bio, completed, |stage, ns| stages.push((stage, ns)));
        self.0.push(Io {
            sectors: bio.sector..bio.sector + u64::from(bio.whole_sectors),
            flush: bio.flush || bio.kind() == RequestKind::Flush || bio.flags.has(RequestFlags::FUA),
            time: bio.queued..=completed,
            stages,
        });
    }
}

fn events(trace: &Trace) -> Vec<Event> {
    let mut all = Vec::new();
    trace.for_each(&mut |event| all.push(event.clone())).unwrap();
    all
}

fn ios(events: &[Event]) -> Vec<Io> {
    let mut matching = Matching::new(Ios::default());
    (matching.whole_trace, matching.missing) = (false, true);
    for event in events {
        if let EventKind::Block(block) = &event.kind {
            matching.block(block, (event.tid.0, event.tid), event.time.0, || event.tid.0);
        }
    }
    matching.finish().0.0
}

/// Between which values each figure of `kept` lies, whichever of `hurt` are there too: the extremes have some of the lowest
/// of them, or some of the highest.
fn bounds(kept: &[u64], hurt: &[u64]) -> [(u64, u64); FIGURES.len()] {
    let mut hurt = hurt.to_vec();
    hurt.sort_unstable();
    let mut bounds = [(u64::MAX, 0); FIGURES.len()];
    for _ in 0..2 {
        let mut times = kept.to_vec();
        times.sort_unstable();
        for next in std::iter::once(None).chain(hurt.iter().map(Some)) {
            if let Some(&next) = next {
                times.insert(times.partition_point(|&time| time < next), next);
            }
            if times.is_empty() {
                continue;
            }
            let with = LatencyNs::from_unsorted(times.clone());
            for ((least, most), (_, figure)) in bounds.iter_mut().zip(FIGURES) {
                (*least, *most) = ((*least).min(figure(&with)), (*most).max(figure(&with)));
            }
        }
        hurt.reverse();
    }
    bounds
}

type Figure = fn(&LatencyNs) -> u64;
const FIGURES: [(&str, Figure); 5] =
    [("mean", |l| l.mean), ("p50", |l| l.p50), ("p90", |l| l.p90), ("p99", |l| l.p99), ("p999", |l| l.p999)];

/// What is wrong with a stage's figures, where `kept` and, as far as they are known, `hurt` are its times.
fn wrong(found: &StageTimes, kept: &[u64], hurt: &[u64]) -> Vec<String> {
    let (n, least) = (found.ns.n as usize, kept.len());
    let mut wrong = Vec::new();
    if !(least..=least + hurt.len()).contains(&n) {
        wrong.push(format!("{} n {n}: {least} to {}", found.stage, least + hurt.len()));
    }
    if n == 0 {
        return wrong;
    }
    for ((name, figure), (low, high)) in FIGURES.iter().zip(bounds(kept, hurt)) {
        let value = figure(&found.ns);
        let slack = if *name == "mean" { 1.0 } else { low as f64 * STEP + 1.0 };
        if (value as f64) < low as f64 - slack || value > high {
            wrong.push(format!("{} {name} {value}: {low} to {high}", found.stage));
        }
    }
    wrong
}

/// Times between queueings, flushes without data aside.
fn q2q(events: &[&Event]) -> Vec<u64> {
    let queued = events.iter().filter_map(|event| match &event.kind {
        EventKind::Block(b) if b.action == BlockAction::Queue && b.kind() != RequestKind::Flush && b.bytes > 0 => {
            Some(event.time.0)
        }
        _ => None,
    });
    let queued: Vec<u64> = queued.collect();
    queued.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect()
}

/// What is hurt beside what lost an event itself: the I/Os that were at the same sectors at the same time.
fn spread(truth: &[Io], hurt: &mut [bool]) {
    let mut next: Vec<usize> = (0..truth.len()).filter(|&i| hurt[i]).collect();
    while let Some(one) = next.pop() {
        for other in 0..truth.len() {
            if !hurt[other] && truth[one].contests(&truth[other]) {
                hurt[other] = true;
                next.push(other);
            }
        }
    }
}

#[test]
fn deleted_events_move_no_mean_and_no_percentile_by_more_than_their_ios() {
    let mut random = Random(0x5eed_0000_0028);
    let (mut all_wrong, mut wrong_of_few) = (Vec::new(), Vec::new());
    let (mut figures, mut kept_ios, mut hurt_ios) = (0, 0, 0);
    for name in RECORDINGS {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../trace/tests/data/blktrace").join(name).join("main");
        let trace = Trace::open(&path).unwrap();
        let events = events(&trace);
        let truth = ios(&events);
        assert!(truth.len() > 90, "{name}: {}", truth.len());
        for round in 0..DELETIONS {
            // From 0.1 to 10 %.
            let per_mille = 1 + random.below(100);
            let (mut left, mut hurt) = (Vec::new(), vec![false; truth.len()]);
            for event in &events {
                match &event.kind {
                    EventKind::Block(block) if random.below(1000) < per_mille => {
                        hurt.iter_mut().zip(&truth).for_each(|(hurt, io)| *hurt |= io.has(event, block));
                    }
                    _ => left.push(event),
                }
            }
            spread(&truth, &mut hurt);
            let mut analysis = BlockAnalysis::new(|tid, time| trace.comm(tid, time), Sizes::of_facts([trace.facts()]));
            analysis.events_are_missing();
            left.iter().for_each(|event| analysis.event(event));
            let found = analysis.finish();
            kept_ios += hurt.iter().filter(|hurt| !**hurt).count();
            hurt_ios += hurt.iter().filter(|hurt| **hurt).count();
            for stage in Stage::ALL {
                let of = |wanted: bool| -> Vec<u64> {
                    let ios = truth.iter().zip(&hurt).filter(|(_, hurt)| **hurt == wanted);
                    ios.flat_map(|(io, _)| &io.stages).filter(|(s, _)| *s == stage).map(|(_, ns)| *ns).collect()
                };
                let (kept, hurt) = if stage == Stage::Q2q { (q2q(&left), Vec::new()) } else { (of(false), of(true)) };
                let times = &found.groups[0].stages[stage as usize];
                assert_eq!(times.stage, stage.name());
                figures += FIGURES.len();
                let wrong = wrong(times, &kept, &hurt).into_iter();
                // An I/O that lost its end and a later one of its sectors that lost its queueing look like one long I/O, and
                // nothing in the trace says otherwise. Where few events are lost this does not happen.
                let all_wrong = if per_mille <= FEW { &mut wrong_of_few } else { &mut all_wrong };
                all_wrong.extend(wrong.map(|wrong| format!("{name} {round} ({per_mille} ‰): {wrong}")));
            }
        }
    }
    println!("{figures} figures of {kept_ios} whole and {hurt_ios} hurt I/Os");
    assert!(kept_ios > 10_000 && hurt_ios > 1_000, "{kept_ios} {hurt_ios}");
    assert!(wrong_of_few.is_empty(), "{} are wrong:\n{}", wrong_of_few.len(), wrong_of_few.join("\n"));
    assert!(all_wrong.len() * 640 <= figures, "{} are wrong:\n{}", all_wrong.len(), all_wrong.join("\n"));
}
