//! The figures of a report by name: `p99(d2c, write, 179:0)`, `bytes(write, app=logd)`.

use crate::Unknown;
use crate::block::{BlockFound, BlockReport, Group, GroupBy, Unit, device_and_kind, kind_name};
use crate::calls::{CallsFound, FURTHER};
use crate::flash_report::FlashReport;
use crate::kernel_threads::is_worker;
use crate::latency::LatencyNs;
use crate::task_name;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FigureUnit {
    Nanoseconds,
    Bytes,
    Count,
    /// A number of a result without a unit.
    Number,
}

/// The direction of an improvement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    Lower,
    /// An amount of work: neither direction is better.
    Neither,
}

/// A property by which a figure is selected.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Dimension {
    /// `app`, where the name alone is ambiguous; else empty.
    key: &'static str,
    name: String,
    /// Further names of it.
    aliases: Vec<String>,
}

impl Dimension {
    fn is_called(&self, key: &str, name: &str) -> bool {
        (self.key == key || key.is_empty() && self.key.is_empty() || self.key == "app" && key == "process")
            && (self.name.eq_ignore_ascii_case(name)
                || self.aliases.iter().any(|alias| alias.eq_ignore_ascii_case(name)))
    }
}

/// A figure of one report.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// What is computed: `p99`, `bytes`, `errors`.
    function: String,
    dimensions: Vec<Dimension>,
    pub unit: FigureUnit,
    pub better: Better,
    pub value: f64,
    /// Number of times, bytes or events that it represents: of a thousand times, the mean represents all, p99 ten. `None`: it is no part of
    /// a total.
    pub stands_for: Option<f64>,
}

impl Figure {
    fn new(function: &str, unit: FigureUnit, better: Better, value: f64) -> Figure {
        Figure { function: function.to_owned(), dimensions: Vec::new(), unit, better, value, stands_for: None }
    }

    /// A number of bytes or events that is a part of a total.
    fn part(function: &str, unit: FigureUnit, n: u64) -> Figure {
        Figure { stands_for: Some(1.0), ..Figure::new(function, unit, Better::Neither, n as f64) }
    }

    /// A figure whose name is one word.
    pub(super) fn plain(name: &str, unit: FigureUnit, better: Better, value: f64) -> Figure {
        Figure::new(name, unit, better, value)
    }

    fn of(mut self, key: &'static str, name: impl Into<String>, aliases: &[&str]) -> Figure {
        let aliases = aliases.iter().map(|&alias| alias.to_owned()).collect();
        self.dimensions.push(Dimension { key, name: name.into(), aliases });
        self
    }

    /// For a tail: the number of times in it.
    pub(super) fn tail_of(&self) -> Option<f64> {
        self.stands_for.filter(|_| matches!(self.function.as_str(), "p90" | "p99" | "p999" | "max"))
    }

    /// The name as in a condition.
    pub fn name(&self) -> String {
        if self.dimensions.is_empty() {
            return self.function.clone();
        }
        let names: Vec<String> = self
            .dimensions
            .iter()
            .map(|one| if one.key.is_empty() { one.name.clone() } else { format!("{}={}", one.key, one.name) })
            .collect();
        format!("{}({})", self.function, names.join(", "))
    }

    /// Whether `function(arguments)` selects it: each argument names one of its dimensions, and it has no other.
    pub(super) fn is_asked_for(&self, function: &str, arguments: &[(String, String)]) -> bool {
        self.function.eq_ignore_ascii_case(function)
            && self.dimensions.len() == arguments.len()
            && arguments.iter().all(|(key, name)| self.dimensions.iter().any(|one| one.is_called(key, name)))
    }

    /// Whether it has each of these dimensions, and perhaps others.
    pub(super) fn has(&self, arguments: &[(String, String)]) -> bool {
        arguments.iter().all(|(key, name)| {
            key.is_empty() && self.function.eq_ignore_ascii_case(name)
                || self.dimensions.iter().any(|one| one.is_called(key, name))
        })
    }

    /// Whether figures of several owners may be added.
    pub(super) fn is_a_sum(&self) -> bool {
        matches!(self.unit, FigureUnit::Bytes | FigureUnit::Count)
    }
}

/// Adds a distribution: `p50(what…)`, `p99(what…)`, ….
fn times(figures: &mut Vec<Figure>, ns: &LatencyNs, of: &dyn Fn(Figure) -> Figure) {
    if ns.n == 0 {
        return;
    }
    let n = ns.n as f64;
    let each = [
        ("mean", ns.mean, n),
        ("p50", ns.p50, n / 2.0),
        ("p90", ns.p90, n / 10.0),
        ("p99", ns.p99, n / 100.0),
        ("p999", ns.p999, n / 1000.0),
        ("max", ns.max, 1.0),
    ];
    for (function, value, n) in each {
        let figure = Figure::new(function, FigureUnit::Nanoseconds, Better::Lower, value as f64);
        figures.push(of(Figure { stands_for: Some(n), ..figure }));
    }
}

/// Common name of the kernel's workers (`kworker/u8:3`).
const WORKERS: &str = "kworker";

/// `iotest (1201)` without the thread's number, which differs in each run.
fn without_number(owner: &str) -> &str {
    task_name(owner)
}

/// The owner's name without parts that differ in each run: a thread's number, and a worker's.
fn app_of(owner: &str) -> &str {
    let name = without_number(owner);
    if is_worker(name) { WORKERS } else { name }
}

/// A device's number or kernel name, without further names: `mmcblk0p2 (ext4, /data)`.
fn first_word(device: &str) -> &str {
    device.split(' ').next().unwrap_or(device)
}

/// The name of a device in a figure: as a user types it (`mmcblk0p2`), or its number where the recording has no name, or has it twice.
/// Then its other names.
fn device_names<'a>(report: &'a BlockReport, device: &'a str) -> (&'a str, [&'a str; 3]) {
    let shown = report.names.device(device);
    let short = first_word(shown);
    let of_others = |other: &str| other != device && first_word(report.names.device(other)) == short;
    let mut devices =
        groups(report).filter_map(|group| Some(device_and_kind(&group.name)?.0)).filter(|other| of_others(other));
    let name = if devices.next().is_some() { device } else { short };
    (name, [device, shown, short])
}

fn groups(report: &BlockReport) -> impl Iterator<Item = &Group> {
    report.found.groups.iter().filter(|group| group.by == GroupBy::Device)
}

/// The figures of a report on block I/O.
pub fn of_block(report: &BlockReport) -> Vec<Figure> {
    let found = &report.found;
    let mut figures = Vec::new();
    let unit = if found.stages.unit == Unit::Bio { "bios" } else { "requests" };
    for group in &found.groups {
        let (kind, device) = match group.by {
            GroupBy::All => ("", ""),
            GroupBy::Device => match device_and_kind(&group.name) {
                Some((device, kind)) => (kind_name(kind), device),
                None => continue,
            },
            _ => continue,
        };
        let (name, aliases) = device_names(report, device);
        let of = |figure: Figure| match kind {
            "" => figure,
            kind => figure.of("", kind, &[]).of("", name, &aliases),
        };
        figures.push(of(Figure::part(unit, FigureUnit::Count, group.bios)));
        figures.push(of(Figure::part("bytes", FigureUnit::Bytes, group.bytes)));
        for stage in group.stages.iter().filter(|stage| stage.stage != "Q2Q") {
            let stage_name = stage.stage.to_ascii_lowercase();
            times(&mut figures, &stage.ns, &|figure| of(figure.of("", stage_name.as_str(), &[])));
        }
    }
    owners(&mut figures, report);
    for (name, ns) in [("fsync", &found.syncs.durations), ("flush", &found.flushes.requests)] {
        if ns.n > 0 {
            figures.push(Figure::part("calls", FigureUnit::Count, ns.n).of("", name, &[]));
        }
        times(&mut figures, ns, &|figure| figure.of("", name, &[]));
    }
    for (name, n) in [("errors", &found.errors.failed), ("retries", &found.errors.retries)] {
        figures.extend(n.known().map(|&n| Figure::new(name, FigureUnit::Count, Better::Lower, n as f64)));
    }
    time_in_calls(&mut figures, &report.calls);
    figures
}

/// A figure of the whole trace that is unknown: its name, the reason, and its lower bound.
#[derive(Clone, Debug, PartialEq)]
pub struct UnknownFigure {
    pub(super) name: &'static str,
    pub(super) why: Unknown,
    pub(super) at_least: u64,
}

/// The counts of [`of_block`] that are unknown.
pub fn unknown_of_block(found: &BlockFound) -> Vec<UnknownFigure> {
    let (stages, errors) = (&found.stages, &found.errors);
    let retries = errors.failures.iter().filter(|one| !one.below && one.attempt > 1).count() as u64;
    let counts = [
        ("errors", errors.failed.why(), errors.seen(false).0),
        ("retries", errors.retries.why(), retries),
        ("bios", stages.bios_queued.why(), 0),
        ("bytes", stages.bios_queued.why().filter(|_| stages.unit == Unit::Bio), 0),
    ];
    let unknown =
        |(name, why, at_least): (_, Option<&Unknown>, _)| Some(UnknownFigure { name, why: why?.clone(), at_least });
    counts.into_iter().filter_map(unknown).collect()
}

/// Total time in calls: all of a kind, and each application's. What a sync costs and how many there are change together where a program
/// syncs less often: only the total shows the gain.
fn time_in_calls(figures: &mut Vec<Figure>, calls: &CallsFound) {
    let mut sums: BTreeMap<(&str, Option<&str>), u64> = BTreeMap::new();
    for group in &calls.by_process {
        let app = Some(app_of(&group.name)).filter(|_| group.name != FURTHER);
        for whose in [None].into_iter().chain(app.map(Some)) {
            let sum = sums.entry((group.call.as_str(), whose)).or_default();
            *sum = sum.saturating_add(group.total_ns);
        }
    }
    for ((call, app), ns) in sums {
        let figure = Figure::part("time", FigureUnit::Nanoseconds, ns).of("", call, &[]);
        figures.push(match app {
            Some(app) => figure.of("app", app, &[]),
            None => figure,
        });
    }
}

/// Bytes and times by owner. Thread numbers differ between runs: owners of the same name are merged.
fn owners(figures: &mut Vec<Figure>, report: &BlockReport) {
    let mut bytes: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for one in &report.found.originators.originators {
        let sum = bytes.entry(app_of(&one.name)).or_default();
        sum.0 = sum.0.saturating_add(one.read_bytes);
        sum.1 = sum.1.saturating_add(one.written_bytes);
    }
    for (name, (read, written)) in bytes {
        for (kind, n) in [("read", read), ("write", written)] {
            if n > 0 {
                let figure = Figure::part("bytes", FigureUnit::Bytes, n);
                figures.push(figure.of("", kind, &[]).of("app", name, &[]));
            }
        }
        let both = Figure::part("bytes", FigureUnit::Bytes, read.saturating_add(written));
        figures.push(both.of("app", name, &[]));
    }
    let groups = || report.found.groups.iter().filter(|group| group.by == GroupBy::Owner);
    let workers: Vec<_> = groups().filter(|group| app_of(&group.name) == WORKERS).collect();
    if workers.len() > 1 {
        of_workers(figures, &workers);
    }
    for group in groups() {
        let name = app_of(&group.name);
        // Percentiles of several threads cannot be merged afterwards.
        let name = match groups().filter(|other| app_of(&other.name) == name).count() > 1 {
            true if name == WORKERS => continue,
            true => &group.name,
            false => name,
        };
        for stage in group.stages.iter().filter(|stage| matches!(stage.stage.as_str(), "Q2C" | "D2C")) {
            let stage_name = stage.stage.to_ascii_lowercase();
            times(figures, &stage.ns, &|figure| figure.of("", stage_name.as_str(), &[]).of("app", name, &[]));
        }
    }
}

/// The times of several workers that can be merged.
fn of_workers(figures: &mut Vec<Figure>, workers: &[&Group]) {
    for (stage_name, short) in [("Q2C", "q2c"), ("D2C", "d2c")] {
        let all = || workers.iter().flat_map(|group| &group.stages).filter(|stage| stage.stage == stage_name);
        let n = all().fold(0, |n: u64, stage| n.saturating_add(stage.ns.n));
        let sum: u128 = all().map(|stage| u128::from(stage.total_ns)).sum();
        let Some(max) = all().map(|stage| stage.ns.max).max().filter(|_| n > 0) else { continue };
        for (function, value, stands_for) in [("mean", sum as f64 / n as f64, n as f64), ("max", max as f64, 1.0)] {
            let figure = Figure::new(function, FigureUnit::Nanoseconds, Better::Lower, value);
            let figure = Figure { stands_for: Some(stands_for), ..figure };
            figures.push(figure.of("", short, &[]).of("app", WORKERS, &[]));
        }
    }
}

/// The figures of a report on raw NAND.
pub fn of_flash(report: &FlashReport) -> Vec<Figure> {
    let found = &report.found;
    let mut figures = Vec::new();
    let count = |name: &str, n: u64, better| Figure::new(name, FigureUnit::Count, better, n as f64);
    let of_op = |op| match op {
        crate::flash::FlashOp::Read => "read",
        crate::flash::FlashOp::Program => "program",
        crate::flash::FlashOp::Erase => "erase",
    };
    if let Some(total) = found.counts.known().map(|counts| counts.total) {
        for (name, n) in [("reads", total.reads), ("programs", total.programs), ("erases", total.erases)] {
            figures.push(count(name, n, Better::Neither));
        }
    }
    let mut tasks: BTreeMap<&str, [u64; 3]> = BTreeMap::new();
    for task in &found.by_task {
        let sum = tasks.entry(app_of(&task.task)).or_default();
        let counts = [task.counts.reads, task.counts.programs, task.counts.erases];
        sum.iter_mut().zip(counts).for_each(|(sum, n)| *sum = sum.saturating_add(n));
    }
    for (name, counts) in tasks {
        for (function, n) in ["reads", "programs", "erases"].into_iter().zip(counts).filter(|(_, n)| *n > 0) {
            figures.push(count(function, n, Better::Neither).of("app", name, &[]));
        }
    }
    for one in &found.durations {
        times(&mut figures, &one.latency_ns, &|figure| figure.of("", of_op(one.op), &[]));
    }
    for layer in &found.amplification {
        let name = serde_json::to_value(layer.layer).ok();
        let name = name.as_ref().and_then(|name| name.as_str()).unwrap_or("layer").to_owned();
        let bytes = Figure::new("bytes", FigureUnit::Bytes, Better::Neither, layer.bytes as f64);
        figures.push(bytes.of("", name.clone(), &[]));
        if let Some(n) = layer.times {
            let figure = Figure::new("amplification", FigureUnit::Number, Better::Lower, n);
            figures.push(figure.of("", name, &[]));
        }
    }
    // A recording without a chip's counters does not show errors.
    if !report.health.is_empty() {
        let of_chip = report.health.iter().flat_map(|chip| [chip.ecc_failures, chip.blocks_gone_bad]);
        let errors = of_chip.fold(0, u64::saturating_add);
        figures.push(count("errors", errors, Better::Lower));
    }
    time_in_calls(&mut figures, &report.calls);
    figures
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::StageTimes;
    use crate::calls::CallGroup;

    #[test]
    fn kinds_of_groups_have_the_names_of_exports() {
        for (group, kind, device) in [
            ("8:0 reads", "read", "8:0"),
            ("mmcblk0p2 (ext4, /data) writes", "write", "mmcblk0p2 (ext4, /data)"),
            ("8:0 flushes", "flush", "8:0"),
            ("8:0 zone appends", "zone_append", "8:0"),
            ("8:0 zone finishes", "zone_finish", "8:0"),
            ("8:0 writes of zeroes", "write_zeroes", "8:0"),
            ("8:0 secure erases", "secure_erase", "8:0"),
        ] {
            let found = device_and_kind(group).map(|(device, kind)| (kind_name(kind), device));
            assert_eq!(found, Some((kind, device)), "{group}");
        }
        assert_eq!(device_and_kind("8:0"), None);
    }

    /// Of programs that sync once for ten records each sync takes longer, and all of them less.
    #[test]
    fn time_in_calls_is_the_sum_of_an_applications_threads() {
        let group = |call: &str, name: &str, total_ns| CallGroup {
            call: call.to_owned(),
            name: name.to_owned(),
            path: None,
            bytes: 0,
            total_ns,
            ns: LatencyNs::default(),
        };
        let by_process = vec![
            group("fsync", "logger (7)", 30),
            group("fsync", "logger (8)", 20),
            group("fsync", "mail (9)", 5),
            group("fsync", FURTHER, u64::MAX),
            group("openat", "logger (7)", 1),
        ];
        let mut figures = Vec::new();
        time_in_calls(&mut figures, &CallsFound { by_process, ..CallsFound::default() });
        let shown: Vec<_> = figures.iter().map(|figure| (figure.name(), figure.value)).collect();
        let expected = [
            ("time(fsync)", u64::MAX as f64),
            ("time(fsync, app=logger)", 50.0),
            ("time(fsync, app=mail)", 5.0),
            ("time(openat)", 1.0),
            ("time(openat, app=logger)", 1.0),
        ];
        assert_eq!(shown, expected.map(|(name, ns)| (name.to_owned(), ns)));
    }

    /// The next run's `kworker/u8:3` is another one.
    #[test]
    fn workers_of_the_kernel_are_one_app() {
        assert_eq!(app_of("kworker/u8:3 (77)"), "kworker");
        assert_eq!(app_of("kworker/0:1H"), "kworker");
        assert_eq!(app_of("iotest (1201)"), "iotest");
        let group = |name: &str, (n, mean, max)| Group {
            by: GroupBy::Owner,
            name: name.to_owned(),
            path: None,
            bios: n,
            bytes: 0,
            read_bytes: None,
            written_bytes: None,
            stages: vec![StageTimes {
                stage: "Q2C".to_owned(),
                ns: LatencyNs { n, mean, max, ..LatencyNs::default() },
                total_ns: n * mean,
                share_percent: None,
            }],
            distributions: Vec::new(),
        };
        let groups = [group("kworker/u8:3", (1, 100, 100)), group("kworker/u8:5", (3, 20, 30))];
        let mut figures = Vec::new();
        of_workers(&mut figures, &groups.iter().collect::<Vec<_>>());
        let shown: Vec<_> = figures.iter().map(|figure| (figure.name(), figure.value)).collect();
        assert_eq!(shown, [("mean(q2c, app=kworker)".to_owned(), 40.0), ("max(q2c, app=kworker)".to_owned(), 100.0)]);
    }
}
