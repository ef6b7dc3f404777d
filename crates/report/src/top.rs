//! The rows of `flashscope top` for one interval.
//!
//! Input: the report about the last seconds. Output: one row for each owner, file or device, as plain data.

use flashscope_analysis::block::{BlockFound, BlockReport, Group, GroupBy, OwnerLoad, RequestKind, device_and_kind};
use flashscope_analysis::cache::AccuracyFindings;
use flashscope_analysis::{Evidence, FlashReport, LatencyNs, NamesFound};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeMap, HashSet};

/// Version of [`TopSnapshot`].
pub const TOP_SCHEMA: u32 = 2;
/// Largest number of rows in a table; further rows are counted.
const MOST_ROWS: usize = 200;

/// What a row stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TopBy {
    Process,
    App,
    File,
    Device,
}

impl TopBy {
    pub const ALL: [TopBy; 4] = [TopBy::Process, TopBy::App, TopBy::File, TopBy::Device];

    pub fn name(self) -> &'static str {
        match self {
            TopBy::Process => "process",
            TopBy::App => "app",
            TopBy::File => "file",
            TopBy::Device => "device",
        }
    }
}

/// Times of the bios of a row, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TopTimes {
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
}

/// One owner, file or device in one interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct TopRow {
    pub name: String,
    /// A device's name beside its number, a file's path or what it is instead; where they are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Of a file: names of the processes that used it, without their numbers; at most eight.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<String>,
    /// `None` where the trace does not distinguish reads from writes of this row.
    pub read_bytes_per_s: Option<f64>,
    pub written_bytes_per_s: Option<f64>,
    /// Bios; on raw NAND reads, programs and erases of flash. `None` where one I/O may be several bios.
    pub ios_per_s: Option<f64>,
    /// Queueing to completion; `None` where nothing was completed.
    pub times: Option<TopTimes>,
    /// Calls of fsync and similar that ended; `None` where these were not recorded, and of files and devices.
    pub syncs_per_s: Option<f64>,
    /// `None` of files and of raw NAND.
    pub errors: Option<u64>,
    /// Whom it waited for longest, and how long per second; `None` where its waits were not measured, and of files and devices.
    pub waits_behind: Option<String>,
    pub waits_ns_per_s: Option<f64>,
    /// Erased blocks of raw NAND.
    pub erases_per_s: Option<f64>,
}

/// All of one interval: a line of `top --json`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct TopSnapshot {
    pub schema: u32,
    /// Since the start of the recording.
    pub time_s: f64,
    pub interval_s: f64,
    pub process: Vec<TopRow>,
    pub app: Vec<TopRow>,
    pub file: Vec<TopRow>,
    pub device: Vec<TopRow>,
    /// Rows beyond the first 200 of each kind.
    pub further_rows: u64,
    /// Most bios that were queued and not completed.
    pub most_in_flight: Evidence<u64>,
    /// Read-ahead pages that came and were not used within the window, of all that came.
    pub readahead_unused: Evidence<f64>,
    /// Erases of the block that was erased most within the window; `None` of block I/O.
    pub most_erases_of_a_block: Option<u64>,
    /// Sub-buffers of events that came faster than they were looked at, and are in no figure.
    pub dropped: u64,
}

impl TopSnapshot {
    /// An interval without events.
    pub fn empty(time_s: f64, interval_s: f64) -> TopSnapshot {
        TopSnapshot {
            schema: TOP_SCHEMA,
            time_s,
            interval_s,
            process: Vec::new(),
            app: Vec::new(),
            file: Vec::new(),
            device: Vec::new(),
            further_rows: 0,
            most_in_flight: Evidence::unknown(
                "no event in this interval: what was queued before it may still be in flight",
                "",
            ),
            readahead_unused: Evidence::unknown("no page came into the page cache in this interval", ""),
            most_erases_of_a_block: None,
            dropped: 0,
        }
    }

    pub fn rows(&self, by: TopBy) -> &[TopRow] {
        match by {
            TopBy::Process => &self.process,
            TopBy::App => &self.app,
            TopBy::File => &self.file,
            TopBy::Device => &self.device,
        }
    }

    /// Rows from a report about the interval, and from the same report by application if that is shown. `shows_syncs`: fsync and similar
    /// calls were recorded.
    pub fn of_block(
        report: &BlockReport,
        apps: Option<&BlockFound>,
        shows_syncs: bool,
        time_s: f64,
        interval_s: f64,
    ) -> TopSnapshot {
        let found = &report.found;
        let mut top = TopSnapshot::empty(time_s, interval_s);
        top.process = processes(found, shows_syncs, interval_s);
        top.app = apps.map(|apps| processes(apps, shows_syncs, interval_s)).unwrap_or_default();
        top.device = devices(report, interval_s);
        top.file = files(report, interval_s);
        top.most_in_flight = found.over_time.most_in_flight.clone();
        if let Some(found) = &report.readahead {
            top.readahead_unused = unused(found);
        }
        top.bounded()
    }

    pub fn of_flash(report: &FlashReport, time_s: f64, interval_s: f64) -> TopSnapshot {
        let found = &report.found;
        let mut top = TopSnapshot::empty(time_s, interval_s);
        // The counts are for all chips together.
        let page = report.chips.first().map(|chip| chip.page_bytes);
        let page = page.filter(|page| report.chips.iter().all(|chip| chip.page_bytes == *page)).map(f64::from);
        let row = |name: &str, reads: u64, programs: u64, erases: u64| TopRow {
            name: name.to_owned(),
            read_bytes_per_s: page.map(|page| reads as f64 * page / interval_s),
            written_bytes_per_s: page.map(|page| programs as f64 * page / interval_s),
            ios_per_s: Some((reads + programs + erases) as f64 / interval_s),
            erases_per_s: Some(erases as f64 / interval_s),
            ..TopRow::default()
        };
        top.process = found
            .by_task
            .iter()
            .map(|task| row(&task.task, task.counts.reads, task.counts.programs, task.counts.erases))
            .collect();
        let total = found.counts.known().map(|counts| counts.total);
        top.device = total.iter().map(|total| row("raw NAND", total.reads, total.programs, total.erases)).collect();
        top.most_erases_of_a_block = found.blocks.blocks.iter().map(|block| block.counts.erases).max();
        top.most_in_flight = match found.counts.why() {
            Some(_) => Evidence::unknown(
                "the recording shows neither block I/O nor raw NAND",
                "record it too: flashscope top --events block,syscall",
            ),
            None => Evidence::unknown("operations of raw NAND have no queue", ""),
        };
        if let Some(found) = &report.readahead {
            top.readahead_unused = unused(found);
        }
        top.bounded()
    }

    /// Marks figures as unknown whose events the recording lacks. `shows_cache`: pages that enter the page cache were recorded.
    pub fn lacking(mut self, shows_cache: bool) -> TopSnapshot {
        if !shows_cache {
            self.readahead_unused = Evidence::unknown(
                "the recording does not show pages that come into the page cache (filemap:mm_filemap_add_to_page_cache)",
                "record them too: flashscope top --events block,cache,syscall",
            );
        }
        self
    }

    fn bounded(mut self) -> TopSnapshot {
        for rows in [&mut self.process, &mut self.app, &mut self.file, &mut self.device] {
            let ios = |row: &TopRow| row.ios_per_s.unwrap_or(0.0);
            rows.retain(|row| {
                let some = [ios(row), bytes(row), row.syncs_per_s.unwrap_or(0.0)].iter().any(|n| *n > 0.0);
                some || row.errors.is_some_and(|n| n > 0)
            });
            rows.sort_by(|a, b| bytes(b).total_cmp(&bytes(a)).then(ios(b).total_cmp(&ios(a))));
            self.further_rows += rows.len().saturating_sub(MOST_ROWS) as u64;
            rows.truncate(MOST_ROWS);
        }
        self
    }
}

/// Bytes per second of both directions.
pub fn bytes(row: &TopRow) -> f64 {
    row.read_bytes_per_s.unwrap_or(0.0) + row.written_bytes_per_s.unwrap_or(0.0)
}

fn unused(found: &Evidence<AccuracyFindings>) -> Evidence<f64> {
    match found {
        Evidence::Unknown(why) => Evidence::Unknown(why.clone()),
        Evidence::Known(found) if found.total.ahead == 0 => {
            Evidence::unknown("no page was read ahead in this interval", "")
        }
        Evidence::Known(found) => (found.total.ahead_unused() as f64 / found.total.ahead as f64).into(),
    }
}

fn times(group: &Group) -> Option<TopTimes> {
    let stage = ["Q2C", "D2C"].iter().find_map(|name| group.stages.iter().find(|stage| stage.stage == *name))?;
    let LatencyNs { n, p50, p99, max, .. } = stage.ns;
    (n > 0).then_some(TopTimes { p50_ns: p50, p99_ns: p99, max_ns: max })
}

/// Owners: bytes by requester, times and numbers of bios from the groups.
fn processes(found: &BlockFound, shows_syncs: bool, interval_s: f64) -> Vec<TopRow> {
    let mut rows: BTreeMap<&str, TopRow> = BTreeMap::new();
    for one in &found.originators.originators {
        let row = rows.entry(&one.name).or_default();
        *row.read_bytes_per_s.get_or_insert(0.0) += one.read_bytes as f64 / interval_s;
        *row.written_bytes_per_s.get_or_insert(0.0) += one.written_bytes as f64 / interval_s;
    }
    for group in found.groups.iter().filter(|group| group.by == GroupBy::Owner) {
        let row = rows.entry(&group.name).or_default();
        row.ios_per_s = Some(group.bios as f64 / interval_s);
        row.times = times(group);
    }
    for one in &found.syncs.by_task {
        *rows.entry(&one.task).or_default().syncs_per_s.get_or_insert(0.0) += one.calls as f64 / interval_s;
    }
    for failure in found.errors.failures.iter().filter(|one| !one.below) {
        *rows.entry(&failure.owner).or_default().errors.get_or_insert(0) += 1;
    }
    for load in &found.interference.owners {
        if let Some(row) = rows.get_mut(load.owner.as_str()) {
            *row.waits_ns_per_s.get_or_insert(0.0) += waited(load) / interval_s;
        }
    }
    // The longest waits come first in `pairs`.
    for pair in found.interference.pairs.iter().rev() {
        if let Some(row) = rows.get_mut(pair.victim.as_str()) {
            row.waits_behind = Some(pair.behind.clone());
        }
    }
    let known = found.errors.failed.known().is_some();
    let named = rows.into_iter().map(|(name, row)| TopRow {
        name: name.to_owned(),
        syncs_per_s: row.syncs_per_s.or(shows_syncs.then_some(0.0)),
        errors: row.errors.or(known.then_some(0)),
        ..row
    });
    named.collect()
}

fn waited(load: &OwnerLoad) -> f64 {
    load.bios as f64 * load.mean_behind_ns as f64
}

fn files(report: &BlockReport, interval_s: f64) -> Vec<TopRow> {
    let of = report.found.groups.iter().filter(|group| group.by == GroupBy::File);
    of.map(|group| TopRow {
        name: group.name.clone(),
        label: other_than(report.names.file(group.path.as_deref(), &group.name), &group.name),
        processes: users(&report.names, &group.name),
        read_bytes_per_s: group.read_bytes.map(|bytes| bytes as f64 / interval_s),
        written_bytes_per_s: group.written_bytes.map(|bytes| bytes as f64 / interval_s),
        ios_per_s: Some(group.bios as f64 / interval_s),
        times: times(group),
        ..TopRow::default()
    })
    .collect()
}

fn other_than(label: String, name: &str) -> Option<String> {
    (label != name).then_some(label)
}

/// The users of a file, most bytes first.
fn users(names: &NamesFound, file: &str) -> Vec<String> {
    const MOST: usize = 8;
    let Some((device, inode)) = file.split_once(" inode ") else { return Vec::new() };
    let Ok(inode) = inode.parse::<u64>() else { return Vec::new() };
    let uses = names.files.iter().filter(|one| one.inode == inode && one.device == device && !one.who.is_empty());
    uses.take(MOST).map(|one| one.who.clone()).collect()
}

/// Devices: the groups of all directions together; the times are from the direction with more bios.
fn devices(report: &BlockReport, interval_s: f64) -> Vec<TopRow> {
    let mut rows: BTreeMap<&str, (TopRow, u64)> = BTreeMap::new();
    for group in report.found.groups.iter().filter(|group| group.by == GroupBy::Device) {
        let Some((device, kind)) = device_and_kind(&group.name) else { continue };
        let (row, most) = rows.entry(device).or_default();
        *row.ios_per_s.get_or_insert(0.0) += group.bios as f64 / interval_s;
        let rate = group.bytes as f64 / interval_s;
        match kind {
            RequestKind::Read => row.read_bytes_per_s = Some(rate),
            // Zone appends count as writes.
            kind if kind.writes_data() => *row.written_bytes_per_s.get_or_insert(0.0) += rate,
            _ => {}
        }
        if group.bios > *most {
            *most = group.bios;
            row.times = times(group);
        }
    }
    // Failures of lower devices are counted there.
    let known = report.found.errors.failed.known().is_some();
    for failure in &report.found.errors.failures {
        if let Some((row, _)) = rows.get_mut(failure.device.as_str()) {
            *row.errors.get_or_insert(0) += 1;
        }
    }
    rows.into_iter()
        .map(|(name, (row, _))| TopRow {
            name: name.to_owned(),
            label: other_than(report.names.device(name).to_owned(), name),
            read_bytes_per_s: row.read_bytes_per_s.or(Some(0.0)),
            written_bytes_per_s: row.written_bytes_per_s.or(Some(0.0)),
            errors: row.errors.or(known.then_some(0)),
            ..row
        })
        .collect()
}

/// Name, help text, and the value of a row if it has one.
type Gauge = (&'static str, &'static str, fn(&TopRow) -> Option<f64>);

/// The node exporter's text format (textfile collector): gauges of the interval.
pub fn prometheus(top: &TopSnapshot) -> String {
    let mut out = String::new();
    let figures: [Gauge; 7] = [
        ("read_bytes_per_second", "bytes read a second", |row| row.read_bytes_per_s),
        ("written_bytes_per_second", "bytes written a second", |row| row.written_bytes_per_s),
        ("ios_per_second", "bios queued a second", |row| row.ios_per_s),
        ("latency_p50_seconds", "median of queueing to completion", |row| {
            row.times.map(|times| times.p50_ns as f64 / 1e9)
        }),
        ("latency_p99_seconds", "99th percentile of queueing to completion", |row| {
            row.times.map(|times| times.p99_ns as f64 / 1e9)
        }),
        ("wait_seconds_per_second", "time spent waiting for others", |row| Some(row.waits_ns_per_s? / 1e9)),
        ("errors", "failed bios of the last interval", |row| Some(row.errors? as f64)),
    ];
    for (name, help, figure) in figures {
        out += &format!("# HELP flashscope_{name} {help}\n# TYPE flashscope_{name} gauge\n");
        for by in [TopBy::Process, TopBy::Device] {
            let mut labels = HashSet::new();
            for row in top.rows(by) {
                let label = unique(label(&row.name), &mut labels);
                if let Some(value) = figure(row) {
                    out += &format!("flashscope_{name}{{{}=\"{label}\"}} {value}\n", by.name());
                }
            }
        }
    }
    out += "# HELP flashscope_dropped_total sub-buffers of events that no figure has\n# TYPE flashscope_dropped_total counter\n";
    out += &format!("flashscope_dropped_total {}\n", top.dropped);
    out
}

/// Makes labels unique. Names that are cut, or equal after escaping, would give one series twice, and the collector refuses such a file.
fn unique(label: String, known: &mut HashSet<String>) -> String {
    let mut found = label.clone();
    for n in 2.. {
        if known.insert(found.clone()) {
            break;
        }
        found = format!("{label} #{n}");
    }
    found
}

/// A label's value: backslash, quote and line feed are escaped, and so are terminal control characters.
fn label(text: &str) -> String {
    crate::text::visible(text).replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line of the text format (prometheus/docs, instrumenting/exposition_formats.md): name, labels, value.
    fn series(line: &str) -> (String, Vec<(String, String)>, f64) {
        let (name, rest) = line.split_at(line.find(['{', ' ']).expect("a name"));
        assert!(name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'), "{line}");
        let mut labels = Vec::new();
        let mut rest = rest.strip_prefix('{').unwrap_or(rest);
        while !rest.starts_with([' ', '}']) {
            let (key, value) = rest.split_once("=\"").expect("a label");
            let (mut text, mut chars) = (String::new(), value.char_indices());
            let end = loop {
                let (at, c) = chars.next().expect("an end of the label");
                match c {
                    '"' => break at,
                    '\\' => match chars.next().expect("an escape").1 {
                        'n' => text.push('\n'),
                        c @ ('\\' | '"') => text.push(c),
                        other => panic!("\\{other} is no escape: {line}"),
                    },
                    c => text.push(c),
                }
            };
            labels.push((key.to_owned(), text));
            rest = value[end + 1..].trim_start_matches(',');
        }
        let value = rest.trim_start_matches('}').strip_prefix(' ').expect("a value");
        (name.to_owned(), labels, value.parse().expect("a number"))
    }

    #[test]
    fn every_series_is_there_once_whatever_processes_are_called() {
        let row =
            |name: &str, ios_per_s| TopRow { name: name.to_owned(), ios_per_s: Some(ios_per_s), ..TopRow::default() };
        // Names that become equal: an escape and the letters of that escape; two that are cut at the same place.
        let long = "x".repeat(100_000);
        let names = ["\u{1b}a", "\\x1ba", "a\"b\\", "a\nb", &(long.clone() + "1"), &(long + "2")];
        let process = names.iter().zip(1..).map(|(name, n)| row(name, f64::from(n))).collect();
        let top = TopSnapshot { process, device: vec![row("7:0", 9.0)], ..TopSnapshot::empty(1.0, 1.0) };
        let text = prometheus(&top);
        let (mut families, mut seen) = (HashSet::new(), HashSet::new());
        let mut family = String::new();
        for line in text.lines() {
            if let Some(said) = line.strip_prefix("# TYPE ") {
                family = said.split(' ').next().expect("a name").to_owned();
                assert!(families.insert(family.clone()), "{line}");
            } else if !line.starts_with("# HELP ") {
                let (name, labels, _) = series(line);
                assert_eq!(name, family);
                assert!(seen.insert((name, labels)), "twice: {line}");
            }
        }
        let ios = text.lines().filter(|line| line.starts_with("flashscope_ios_per_second{process"));
        let mut values: Vec<f64> = ios.map(|line| series(line).2).collect();
        values.sort_by(f64::total_cmp);
        assert_eq!(values, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    }
}
