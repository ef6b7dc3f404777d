//! Changes between two sides, and whether they exceed run-to-run variation.

use super::figures::{Better, Figure, FigureUnit, UnknownFigure, of_block, of_flash, unknown_of_block};
use super::spread;
use crate::block::{BlockReport, Unit};
use crate::findings::{Finding, Rule, Weight};
use crate::flash_report::FlashReport;
use crate::{Evidence, LossCount};
use flashscope_trace::{Loss, Severity};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of [`Comparison`].
pub const COMPARISON_SCHEMA: u32 = 1;

/// The figures of one recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunFigures {
    pub title: String,
    pub figures: Vec<Figure>,
    /// Figures of the whole trace that are unknown.
    pub unknown: Vec<UnknownFigure>,
    /// From the first event to the last; 0 where it is not known.
    pub seconds: f64,
    /// Bytes without a known owner; `None` where figures by owner make no sense.
    pub unattributed_bytes: Option<u64>,
    /// Events, or parts of the file, that the recording lost.
    pub lost: u64,
    /// The part of it that is not compared.
    pub left_out: Option<String>,
    /// Findings of its report; empty where it is no report.
    pub findings: Vec<Finding>,
    /// Unit of its figures of block I/O; `None` where it is no report on block I/O.
    pub unit: Option<Unit>,
}

impl RunFigures {
    pub fn of_block(report: &BlockReport) -> RunFigures {
        let found = &report.found;
        RunFigures {
            title: report.title.clone(),
            figures: of_block(report),
            unknown: unknown_of_block(found),
            seconds: found.stages.end_ns.saturating_sub(found.stages.begin_ns) as f64 / 1e9,
            unattributed_bytes: found.originators.written_unknown_bytes.known().copied(),
            lost: lost_in(&report.losses),
            left_out: None,
            findings: report.findings.clone(),
            unit: Some(found.stages.unit),
        }
    }

    pub fn of_flash(report: &FlashReport) -> RunFigures {
        let found = &report.found;
        RunFigures {
            title: report.title.clone(),
            figures: of_flash(report),
            unknown: Vec::new(),
            seconds: found.end_ns.saturating_sub(found.begin_ns) as f64 / 1e9,
            unattributed_bytes: None,
            lost: lost_in(&report.losses),
            left_out: None,
            findings: report.findings.clone(),
            unit: None,
        }
    }

    /// The divisor of a rate.
    pub(super) fn seconds_or_one(&self, per_seconds: Option<f64>) -> f64 {
        if per_seconds.is_some() { self.seconds } else { 1.0 }
    }
}

/// Lost data. What the kernel has overwritten or dropped shows as gaps in the data, too.
fn lost_in(losses: &[LossCount]) -> u64 {
    let count = |of: Loss| losses.iter().filter(|one| one.name == of.name()).map(|one| one.count).fold(0, u64::max);
    let counted = count(Loss::EventsOverwritten).saturating_add(count(Loss::EventsDropped));
    let data = Loss::ALL.iter().filter(|one| one.severity() == Severity::Data && **one != Loss::EventsMissedAtGaps);
    sum_of(data.map(|&one| count(one))).saturating_add(count(Loss::EventsMissedAtGaps).saturating_sub(counted))
}

/// A saturating sum: the counts may come from a hostile file.
fn sum_of(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

/// Range of a change with run-to-run variation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct Variation {
    /// 95 % confidence interval of the change of the mean (Welch's t), in the figure's unit.
    pub from: f64,
    pub to: f64,
}

/// A figure on both sides.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct Change {
    /// Name as in `--fail-if`.
    pub figure: String,
    pub unit: FigureUnit,
    pub better: Better,
    /// Means of the side's recordings.
    pub before: f64,
    pub after: f64,
    /// Per cent of `before`; `null` where that is 0.
    pub percent: Option<f64>,
    pub confidence: Evidence<Variation>,
    /// Of a tail (p90, p99, p999, max): number of times of one recording in it, on the side with fewer.
    #[serde(skip)]
    pub tail_of: Option<f64>,
}

/// With one recording on each side: fewest times in a tail. With fewer, a single request determines it.
const MIN_TAIL: f64 = 10.0;

impl Change {
    /// Whether it has too few times to be compared: a tail of a few times, without repetitions that show its variation.
    pub fn is_of_too_few(&self) -> bool {
        self.confidence.known().is_none() && self.tail_of.is_some_and(|n| n < MIN_TAIL)
    }

    /// Whether it exceeds the variation; without repetitions any change may.
    pub fn is_beyond_variation(&self) -> bool {
        match &self.confidence {
            Evidence::Known(range) => range.from > 0.0 || range.to < 0.0,
            Evidence::Unknown(_) => self.before != self.after,
        }
    }
}

/// Two sides, each one or several recordings of the same work.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct Comparison {
    pub schema: u32,
    /// Names of the recordings.
    pub before: Vec<String>,
    pub after: Vec<String>,
    /// Mean length of the recordings, seconds.
    pub before_seconds: f64,
    pub after_seconds: f64,
    /// Events, or parts of files, that the recordings of both sides lost.
    pub lost: u64,
    /// Figures of both sides, those beyond variation first. Within each part: those that changed most of all time, bytes or events first. A
    /// figure that is no part of a whole counts by its own change.
    pub changes: Vec<Change>,
    /// Findings of the first recording of each side, by rule; faults and costs first, the overview left out.
    #[serde(default)]
    pub findings: Vec<FindingOnSides>,
    /// Figures that only one side has.
    pub only_before: Vec<String>,
    pub only_after: Vec<String>,
    /// Recordings whose bios are left out, because another one has no queueing: requests are compared instead.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub as_requests: Vec<String>,
}

impl Comparison {
    pub fn new(before: &[RunFigures], after: &[RunFigures]) -> Comparison {
        let (a, b) = (by_name(before), by_name(after));
        let whole = Whole::of(a.values().chain(b.values()).map(|(figure, _)| *figure));
        let mut changes: Vec<(f64, Change)> = a
            .iter()
            .filter_map(|(name, (figure, before))| {
                let (other, after) = b.get(name)?;
                let change = change(name, [figure, other], before, after);
                Some((whole.part(&change, figure, other), change))
            })
            .collect();
        // Stable: figures that changed equally stay sorted by name.
        changes.sort_by(|(x_part, x), (y_part, y)| {
            y.is_beyond_variation().cmp(&x.is_beyond_variation()).then(y_part.total_cmp(x_part))
        });
        let changes = changes.into_iter().map(|(_, change)| change).collect();
        let only = |a: &BTreeMap<String, _>, b: &BTreeMap<String, _>| {
            a.keys().filter(|name| !b.contains_key(*name)).cloned().collect::<Vec<_>>()
        };
        let mean = |runs: &[RunFigures]| runs.iter().map(|run| run.seconds).sum::<f64>() / runs.len().max(1) as f64;
        Comparison {
            schema: COMPARISON_SCHEMA,
            before: before.iter().map(|run| run.title.clone()).collect(),
            after: after.iter().map(|run| run.title.clone()).collect(),
            before_seconds: mean(before),
            after_seconds: mean(after),
            lost: sum_of(before.iter().chain(after).map(|run| run.lost)),
            changes,
            findings: on_sides(before.first(), after.first()),
            only_before: only(&a, &b),
            only_after: only(&b, &a),
            as_requests: Vec::new(),
        }
    }

    /// Compares the same sides by requests instead of bios. Figures that only bios have stay listed.
    pub fn of_requests(self, before: &[RunFigures], after: &[RunFigures], as_requests: Vec<String>) -> Comparison {
        let requests = Comparison::new(before, after);
        let only = |bios: Vec<String>, requests: Vec<String>| {
            let mut all = [bios, requests].concat();
            all.sort();
            all.dedup();
            all
        };
        Comparison {
            only_before: only(self.only_before, requests.only_before),
            only_after: only(self.only_after, requests.only_after),
            as_requests,
            ..requests
        }
    }
}

/// Findings of one rule on both sides; empty: none.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct FindingOnSides {
    pub rule: Rule,
    pub before: Vec<String>,
    pub after: Vec<String>,
}

fn on_sides(before: Option<&RunFigures>, after: Option<&RunFigures>) -> Vec<FindingOnSides> {
    let told = |run: Option<&RunFigures>| -> Vec<(Rule, String)> {
        let all = run.into_iter().flat_map(|run| &run.findings);
        all.filter(|one| one.weight != Weight::Overview).map(|one| (one.rule, one.what.clone())).collect()
    };
    let (before, after) = (told(before), told(after));
    let mut sides: Vec<FindingOnSides> = Vec::new();
    for (is_after, (rule, what)) in
        before.into_iter().map(|one| (false, one)).chain(after.into_iter().map(|one| (true, one)))
    {
        let at = sides.iter().position(|side| side.rule == rule).unwrap_or_else(|| {
            sides.push(FindingOnSides { rule, before: Vec::new(), after: Vec::new() });
            sides.len() - 1
        });
        let side = &mut sides[at];
        if is_after { side.after.push(what) } else { side.before.push(what) }
    }
    sides
}

/// Totals by unit, so that a change counts as a part of them. A tail of eight discards that is two hundred times as long matters less
/// than reads that take a fifth longer, where reads are most of the time.
#[derive(Default)]
struct Whole(Vec<(FigureUnit, f64)>);

impl Whole {
    fn of<'a>(figures: impl Iterator<Item = &'a Figure>) -> Whole {
        let mut whole = Whole::default();
        for figure in figures {
            let Some(n) = figure.stands_for else { continue };
            let sum = figure.value * n;
            match whole.0.iter_mut().find(|(unit, _)| *unit == figure.unit) {
                Some((_, most)) => *most = most.max(sum),
                None => whole.0.push((figure.unit, sum)),
            }
        }
        whole
    }

    /// The part of the total by which this figure changed.
    fn part(&self, change: &Change, before: &Figure, after: &Figure) -> f64 {
        let whole = self.0.iter().find(|(unit, _)| *unit == change.unit).map_or(0.0, |(_, whole)| *whole);
        match before.stands_for.zip(after.stands_for) {
            Some((before, after)) if whole > 0.0 => (change.after - change.before).abs() * before.max(after) / whole,
            _ => size(change),
        }
    }
}

/// Size of a change relative to the larger side, so that doubling and halving are equal.
fn size(change: &Change) -> f64 {
    let larger = change.before.abs().max(change.after.abs());
    if larger == 0.0 { 0.0 } else { (change.after - change.before).abs() / larger }
}

type Values<'a> = BTreeMap<String, (&'a Figure, Vec<f64>)>;

/// Values of each figure in the recordings that have it.
fn by_name(runs: &[RunFigures]) -> Values<'_> {
    let mut values: Values = BTreeMap::new();
    for run in runs {
        for figure in &run.figures {
            values.entry(figure.name()).or_insert((figure, Vec::new())).1.push(figure.value);
        }
    }
    values.retain(|_, (_, values)| values.len() == runs.len());
    values
}

fn change(name: &str, sides: [&Figure; 2], before: &[f64], after: &[f64]) -> Change {
    let figure = sides[0];
    let tail_of = sides.map(Figure::tail_of);
    let (a, b) = (spread::mean(before), spread::mean(after));
    let confidence = match spread::difference(before, after) {
        Some((from, to)) => Evidence::Known(Variation { from, to }),
        None => Evidence::unknown(
            "one recording a side does not show how much runs differ by themselves",
            "record each side three times or more: flashscope diff A1 A2 A3 --against B1 B2 B3",
        ),
    };
    let percent = (a != 0.0).then(|| (b - a) / a * 100.0);
    Change {
        figure: name.to_owned(),
        unit: figure.unit,
        better: figure.better,
        before: a,
        after: b,
        percent,
        confidence,
        tail_of: tail_of[0].zip(tail_of[1]).map(|(a, b)| a.min(b)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Means of times, and of how many.
    fn run(means: [(&str, f64, f64); 3]) -> RunFigures {
        let of = |(name, n, ns): (&str, f64, f64)| {
            let mut figure = Figure::plain(name, FigureUnit::Nanoseconds, Better::Lower, ns);
            figure.stands_for = Some(n);
            figure
        };
        let errors = Figure::plain("errors", FigureUnit::Count, Better::Lower, means[0].1 / 1e4 - 1.0);
        RunFigures { figures: means.map(of).into_iter().chain([errors]).collect(), ..RunFigures::default() }
    }

    #[test]
    fn what_is_most_of_all_time_stands_before_a_tail_of_a_few() {
        let before = run([("mean(reads)", 1e4, 100e3), ("mean(discards)", 8.0, 20e3), ("max(reads)", 1.0, 200e3)]);
        let after = run([("mean(reads)", 2e4, 120e3), ("mean(discards)", 8.0, 4e6), ("max(reads)", 1.0, 900e3)]);
        let found = Comparison::new(&[before], &[after]);
        // From 0 errors to 1, 400 ms of 2,400, 32 ms, 0.7 ms.
        let names: Vec<&str> = found.changes.iter().map(|change| change.figure.as_str()).collect();
        assert_eq!(names, ["errors", "mean(reads)", "mean(discards)", "max(reads)"]);
    }

    /// Results of a file that anybody may have written.
    #[test]
    fn counts_that_fill_their_type_are_added() {
        let run = RunFigures { lost: u64::MAX - 1, ..RunFigures::default() };
        assert_eq!(Comparison::new(std::slice::from_ref(&run), std::slice::from_ref(&run)).lost, u64::MAX);
    }

    #[test]
    fn what_no_side_has_did_not_stay_the_same() {
        use super::super::Condition;
        let before = run([("mean", 1e4, 100e3), ("p50", 1e4, 90e3), ("p99", 1e4, 200e3)]);
        let after = run([("mean", 2e4, 100e3), ("p50", 1e4, 90e3), ("p99", 1e4, 200e3)]);
        let of = |condition: &str, [a, b]: [&RunFigures; 2]| {
            let condition = Condition::parse(condition).expect("a condition");
            condition.check_change(&Comparison::new(std::slice::from_ref(a), std::slice::from_ref(b)), b)
        };
        let Evidence::Unknown(why) = of("regress(d2c, read) > 1%", [&before, &after]).met else {
            panic!("neither side has it")
        };
        assert!(why.missing.contains("no regress(d2c, read) in common") && why.missing.contains("p50"), "{why:?}");
        assert_eq!(of("regress(p50) > 1%", [&before, &after]).met, Evidence::Known(false));
        // From no error to one, and back.
        let errors = of("regress > 10%", [&before, &after]);
        assert_eq!(
            (errors.met, errors.seen[0].figure.as_str(), errors.seen[0].value),
            (Evidence::Known(true), "errors", 1.0)
        );
        assert_eq!(of("regress > 10%", [&after, &before]).met, Evidence::Known(false));
        // Names with commas, and of a task that has none.
        for name in ["p99(d2c, write, mmcblk0p2 (ext4, /data)) > 1ms", "bytes(app=<...>) > 1MiB"] {
            let Evidence::Unknown(why) = of(name, [&before, &after]).met else { panic!("{name}") };
            assert!(why.missing.contains(name.rsplit_once(" >").unwrap().0), "{why:?}");
        }
    }

    #[test]
    fn a_tail_of_a_few_times_is_no_regression() {
        use super::super::Condition;
        // 8 I/Os, of which one was slow; and 2,000, of which 20 were.
        let side = |n: f64, p50: f64, p99: f64, max: f64| {
            let of = |(name, ns, n)| {
                let mut figure = Figure::plain(name, FigureUnit::Nanoseconds, Better::Lower, ns);
                figure.stands_for = Some(n);
                figure
            };
            let figures = [("p50", p50, n / 2.0), ("p99", p99, n / 100.0), ("max", max, 1.0)].map(of);
            RunFigures { figures: figures.into(), ..RunFigures::default() }
        };
        let met = |condition: &str, n: f64, runs: usize| {
            let before = vec![side(n, 1e6, 1e6, 1e6); runs];
            let after = vec![side(n, 1e6, 9e6, 9e6); runs];
            let found = Comparison::new(&before, &after);
            let condition = Condition::parse(condition).expect("a condition");
            condition.check_change(&found, &after[0]).met.known().copied()
        };
        assert_eq!(met("regress > 10%", 8.0, 1), Some(false));
        assert_eq!(met("regress > 10%", 2000.0, 1), Some(true));
        assert_eq!(met("regress > 10%", 8.0, 3), Some(true));
        // Asked for by name, it is unknown.
        assert_eq!(met("regress(p99) > 10%", 8.0, 1), None);
        assert_eq!(met("regress(p99) > 10%", 2000.0, 1), Some(true));
        assert_eq!(met("regress(max) > 10%", 2000.0, 1), None);
    }
}
