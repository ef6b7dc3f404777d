//! A study's cells prepared for tables and figures: rows of cells that differ in read-ahead only, and the x axis.

use flashscope_analysis::flash::Health;
use flashscope_study::{Cell, GainPoint, Group, StudyResult, Workload, gains};

/// The parameters of a cell, except its read-ahead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting<'a> {
    pub pattern: &'a str,
    pub count: u64,
    pub request_bytes: u64,
    pub interarrival_us: u64,
    pub seed: u64,
}

impl<'a> Setting<'a> {
    pub fn of(cell: &'a Cell) -> Self {
        Self {
            pattern: &cell.pattern,
            count: cell.count,
            request_bytes: cell.request_bytes,
            interarrival_us: cell.interarrival_us,
            seed: cell.seed,
        }
    }

    fn of_gain(gain: &'a GainPoint) -> Self {
        Self {
            pattern: &gain.pattern,
            count: gain.count,
            request_bytes: gain.request_bytes,
            interarrival_us: gain.interarrival_us,
            seed: gain.seed,
        }
    }
}

/// A row of a results table.
pub struct Row<'a> {
    pub setting: Setting<'a>,
    /// One cell per entry of [`Results::readaheads`].
    pub cells: Vec<Option<&'a Cell>>,
    /// Savings of the smallest read-ahead against the largest.
    pub gain: Option<GainPoint>,
}

/// A group's cells as a table.
pub struct Results<'a> {
    /// Settings of read-ahead, ascending.
    pub readaheads: Vec<Readahead<'a>>,
    pub rows: Vec<Row<'a>>,
}

/// The name of a saving, and its value.
pub type Saving = (&'static str, fn(&GainPoint) -> Option<f64>);

impl Results<'_> {
    /// The columns of savings; energy only if a power profile covers this work.
    pub fn savings(&self) -> Vec<Saving> {
        let energy = self.rows.iter().flat_map(|row| &row.gain).any(|gain| gain.off_saves_energy_percent.is_some());
        let all: [Saving; 3] = [
            ("time", |gain| Some(gain.off_saves_time_percent)),
            ("reads", |gain| Some(gain.off_saves_reads_percent)),
            ("energy", |gain| gain.off_saves_energy_percent),
        ];
        all.into_iter().take(if energy { 3 } else { 2 }).collect()
    }

    /// "off saves": the heading of the columns of savings.
    pub fn saves(&self) -> String {
        compared(self.readaheads.iter().copied())
            .map_or("saved".to_owned(), |(least, _)| format!("{} saves", least.short()))
    }
}

/// A setting of read-ahead, sorted: sizes first, then settings that do not change the size ("keep", "fadvise-random").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Readahead<'a> {
    /// The name; empty for a size.
    name: &'a str,
    kib: u64,
}

impl<'a> Readahead<'a> {
    pub fn of(cell: &'a Cell) -> Self {
        let size = cell.readahead.parse() == Ok(cell.readahead_kib);
        Self { name: if size { "" } else { &cell.readahead }, kib: cell.readahead_kib }
    }

    /// "off", "128 KiB", "keep (0 KiB)"
    pub fn short(&self) -> String {
        match (self.name, self.kib) {
            ("", 0) => "off".to_owned(),
            ("", kib) => format!("{kib} KiB"),
            (name, kib) => format!("{name} ({kib} KiB)"),
        }
    }

    /// "read-ahead off"
    pub fn words(&self) -> String {
        format!("read-ahead {}", self.short())
    }
}

/// The two sizes that a saving compares: the smallest and the largest. `None` if there are not two sizes.
pub fn compared<'a>(all: impl Iterator<Item = Readahead<'a>> + Clone) -> Option<(Readahead<'a>, Readahead<'a>)> {
    let sizes = all.filter(|r| r.name.is_empty());
    let (least, most) = (sizes.clone().min()?, sizes.max()?);
    (least != most).then_some((least, most))
}

/// The unit of a cell's counts.
pub fn counted(group: &Group) -> &'static str {
    match group.workload {
        Workload::Read => "requests",
        Workload::Sqlite => "selects",
    }
}

pub fn results(group: &Group) -> Results<'_> {
    let mut readaheads: Vec<Readahead<'_>> = group.cells.iter().map(Readahead::of).collect();
    readaheads.sort_unstable();
    readaheads.dedup();
    let gains = gains(group);
    let mut rows: Vec<Row<'_>> = Vec::new();
    for cell in &group.cells {
        let setting = Setting::of(cell);
        let at = rows.iter().position(|row| row.setting == setting).unwrap_or_else(|| {
            rows.push(Row {
                gain: gains.iter().find(|gain| Setting::of_gain(gain) == setting).cloned(),
                setting,
                cells: vec![None; readaheads.len()],
            });
            rows.len() - 1
        });
        if let Ok(column) = readaheads.binary_search(&Readahead::of(cell)) {
            rows[at].cells[column] = Some(cell);
        }
    }
    Results { readaheads, rows }
}

/// The parameter that a study varies along x.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    Count,
    RequestBytes,
    Interarrival,
}

impl Axis {
    /// The first of number, size and distance of requests that the study varies; the number if it varies none.
    pub fn of(result: &StudyResult) -> Self {
        [Axis::Count, Axis::RequestBytes, Axis::Interarrival]
            .into_iter()
            .find(|axis| distinct(result.groups.iter().flat_map(|g| &g.cells).map(|c| axis.value(&Setting::of(c)))) > 1)
            .unwrap_or(Axis::Count)
    }

    pub fn value(self, setting: &Setting<'_>) -> u64 {
        match self {
            Axis::Count => setting.count,
            Axis::RequestBytes => setting.request_bytes,
            Axis::Interarrival => setting.interarrival_us,
        }
    }
}

fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> usize {
    let mut seen = Vec::new();
    for value in values {
        if !seen.contains(&value) {
            seen.push(value);
        }
        if seen.len() > 1 {
            break;
        }
    }
    seen.len()
}

/// The common parameters of one figure's lines, and those that distinguish this figure from the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facet<'a> {
    pub board: &'a str,
    pub kernel: &'a str,
    pub contents: &'a str,
    pub file_size_bytes: u64,
    pub count: Option<u64>,
    pub request_bytes: Option<u64>,
    pub interarrival_us: Option<u64>,
    pub seed: u64,
}

impl<'a> Facet<'a> {
    pub fn of(group: &'a Group, setting: &Setting<'_>, axis: Axis) -> Self {
        Self {
            board: &group.inputs.board,
            kernel: &group.inputs.kernel_release,
            contents: &group.contents,
            file_size_bytes: group.file_size_bytes,
            count: (axis != Axis::Count).then_some(setting.count),
            request_bytes: (axis != Axis::RequestBytes).then_some(setting.request_bytes),
            interarrival_us: (axis != Axis::Interarrival).then_some(setting.interarrival_us),
            seed: setting.seed,
        }
    }

    /// The facet as text, without usual values (no time between requests).
    pub fn words(&self) -> String {
        use crate::text::{bytes, grouped};
        let mut words = Vec::new();
        if let Some(count) = self.count {
            words.push(format!("{} requests", grouped(count)));
        }
        if let Some(size) = self.request_bytes {
            words.push(format!("{} a request", bytes(size)));
        }
        if let Some(us) = self.interarrival_us.filter(|&us| us > 0) {
            words.push(format!("{} µs between requests", grouped(us)));
        }
        words.push(format!("a {} file of {} data", bytes(self.file_size_bytes), self.contents));
        words.push(format!("Linux {} on board {}", self.kernel, self.board));
        words.join(", ")
    }
}

/// The facets of a study in order of appearance, each with its rows by group.
pub fn facets(result: &StudyResult, axis: Axis) -> Vec<(Facet<'_>, Vec<(&Group, Row<'_>)>)> {
    let mut facets: Vec<(Facet<'_>, Vec<(&Group, Row<'_>)>)> = Vec::new();
    for group in &result.groups {
        for row in results(group).rows {
            let facet = Facet::of(group, &row.setting, axis);
            match facets.iter_mut().find(|(f, _)| *f == facet) {
                Some((_, rows)) => rows.push((group, row)),
                None => facets.push((facet, vec![(group, row)])),
            }
        }
    }
    facets
}

/// A group as text.
pub fn group_words(group: &Group) -> String {
    format!(
        "{}, {} file of {} data, Linux {} on board {}",
        group.filesystem,
        crate::text::bytes(group.file_size_bytes),
        group.contents,
        group.inputs.kernel_release,
        group.inputs.board
    )
}

/// A fact of all groups: each distinct value once, with the groups that have it.
pub fn by_value<'a, T: PartialEq>(groups: &'a [Group], fact: impl Fn(&'a Group) -> T) -> Vec<(T, Vec<&'a str>)> {
    let mut values: Vec<(T, Vec<&'a str>)> = Vec::new();
    for group in groups {
        let value = fact(group);
        match values.iter_mut().find(|(v, _)| *v == value) {
            Some((_, ids)) => ids.push(&group.id),
            None => values.push((value, vec![&group.id])),
        }
    }
    values
}

/// A loss summed over all groups, and the groups with this loss.
pub struct LossRow<'a> {
    pub name: &'a str,
    pub meaning: &'a str,
    pub count: u64,
    pub groups: Vec<(&'a str, u64)>,
}

pub fn losses(groups: &[Group]) -> Vec<LossRow<'_>> {
    let mut rows: Vec<LossRow<'_>> = Vec::new();
    for group in groups {
        for loss in &group.losses {
            let at = rows.iter().position(|row| row.name == loss.name).unwrap_or_else(|| {
                rows.push(LossRow { name: &loss.name, meaning: &loss.meaning, count: 0, groups: Vec::new() });
                rows.len() - 1
            });
            rows[at].count = rows[at].count.saturating_add(loss.count);
            if loss.count > 0 {
                rows[at].groups.push((&group.id, loss.count));
            }
        }
    }
    rows
}

/// Largest number of listed values of one fact; the JSON has all.
const MAX_VALUES: usize = 40;
/// Largest number of group names in a list.
const MAX_NAMED: usize = 8;

/// Groups as text: "a, b and 3 more". Names are cut to fit a line.
pub fn places(names: impl ExactSizeIterator<Item = String>) -> String {
    let more = names.len().saturating_sub(MAX_NAMED);
    let mut words: Vec<String> = names.take(MAX_NAMED).map(|name| short(&name)).collect();
    if more > 0 {
        words.push(format!("and {more} more"));
    }
    words.join(", ")
}

/// A group's name, cut to fit a line.
pub fn short(name: &str) -> String {
    let mut out: String = name.chars().take(80).collect();
    if out.len() < name.len() {
        out.push('…');
    }
    out
}

/// A line in the box "measured on".
pub struct Fact {
    pub label: &'static str,
    /// Each value with its groups, as text; no groups if all agree.
    pub values: Vec<(String, String)>,
}

/// The facts of the box "measured on".
pub fn facts(result: &StudyResult) -> Vec<Fact> {
    let groups = &result.groups;
    let of = |fact: fn(&Group) -> String| {
        let values = by_value(groups, fact);
        let agree = values.len() == 1;
        let words = |ids: Vec<&str>| if agree { String::new() } else { places(ids.into_iter().map(str::to_owned)) };
        values.into_iter().take(MAX_VALUES).map(|(value, ids)| (value, words(ids))).collect()
    };
    let one = |value: &str| vec![(value.to_owned(), String::new())];
    let facts = [
        ("clock", one(&result.header.clock)),
        ("board", of(|g| g.inputs.board.clone())),
        ("kernel", of(|g| format!("{} ({}: {})", g.inputs.kernel_release, g.inputs.kernel, g.inputs.kernel_package))),
        ("QEMU", of(|g| g.inputs.qemu.clone())),
        (
            "chip",
            of(|g| {
                let chip = &g.chip;
                format!(
                    "{}: {} blocks of {}, {} a page; a full page read took {} untraced",
                    chip.name,
                    crate::text::grouped(chip.blocks.into()),
                    crate::text::bytes(chip.block_bytes.into()),
                    crate::text::bytes(chip.page_bytes.into()),
                    crate::text::duration(chip.page_read_ns_measured)
                )
            }),
        ),
        (
            "read-ahead as shipped",
            of(|g| {
                let state = if g.default.kib == 0 { "off".to_owned() } else { format!("{} KiB", g.default.kib) };
                format!("{state} ({})", g.default.knob)
            }),
        ),
        (
            "error correction",
            match groups.iter().any(|group| !group.health.is_empty()) {
                true => of(|g| g.health.iter().flat_map(Health::sentences).collect::<Vec<_>>().join(" ")),
                false => Vec::new(),
            },
        ),
        ("agent", of(|g| g.inputs.agent.clone())),
        (
            "energy",
            result
                .power
                .as_ref()
                .map_or(Vec::new(), |p| one(&format!("model, not measured: {} ({})", p.title, p.source))),
        ),
        ("flashscope", one(&result.header.flashscope)),
        ("SHA-256 of the study", one(&result.header.study_sha256)),
        ("SHA-256 of the board", of(|g| g.inputs.board_sha256.clone())),
        ("SHA-256 of the kernel", of(|g| g.inputs.kernel_sha256.clone())),
        ("SHA-256 of the agent", of(|g| g.inputs.agent_sha256.clone())),
        ("SHA-256 of the boot image", of(|g| g.inputs.image_sha256.clone())),
    ];
    facts.into_iter().map(|(label, values)| Fact { label, values }).filter(|fact| !fact.values.is_empty()).collect()
}
