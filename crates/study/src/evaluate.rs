//! Evaluates cells: savings and costs of read-ahead, published values beside measured ones, and the verdict.

use flashscope_cachesim::Kernel;

use crate::definition::{Fold, Published, Quantity, Workload};
use crate::modelled::Requests;
use crate::result::{Cell, Comparison, GainPoint, Group, Verdict};

/// A difference below this percentage of a run's time is not worth a change of setting.
const WORTH_PERCENT: f64 = 3.0;

/// Two cells that differ in read-ahead only: the smallest setting and the largest.
struct Pair<'a> {
    off: &'a Cell,
    on: &'a Cell,
}

impl Pair<'_> {
    fn time_saved_percent(&self) -> f64 {
        saved_percent(self.off.total_ns, self.on.total_ns)
    }

    fn time_saved_with_open_percent(&self) -> f64 {
        let whole = |cell: &Cell| cell.open_ns.saturating_add(cell.total_ns);
        saved_percent(whole(self.off), whole(self.on))
    }

    fn reads_saved_percent(&self) -> f64 {
        saved_percent(self.off.flash_reads, self.on.flash_reads)
    }

    fn energy_saved_percent(&self) -> Option<f64> {
        let (off, on) = (self.off.energy?.uj, self.on.energy?.uj);
        (on > 0.0).then(|| (on - off) / on * 100.0)
    }
}

/// The saving of `off` compared with `on`, percent of `on`; 0 if both are 0.
fn saved_percent(off: u64, on: u64) -> f64 {
    if on == 0 {
        return 0.0;
    }
    // Counts below 2^53 are exact in f64.
    (on as f64 - off as f64) / on as f64 * 100.0
}

fn same_but_readahead(a: &Cell, b: &Cell) -> bool {
    a.count == b.count
        && a.request_bytes == b.request_bytes
        && a.pattern == b.pattern
        && a.interarrival_us == b.interarrival_us
        && a.seed == b.seed
}

fn pairs(group: &Group) -> Vec<Pair<'_>> {
    // posix_fadvise and "keep" are cells of their own, not sizes.
    let knobs = || group.cells.iter().filter(|cell| cell.readahead == cell.readahead_kib.to_string());
    let Some(most) = knobs().map(|cell| cell.readahead_kib).max() else { return Vec::new() };
    let least = knobs().map(|cell| cell.readahead_kib).min().unwrap_or(most);
    if least == most {
        return Vec::new();
    }
    knobs()
        .filter(|cell| cell.readahead_kib == least)
        .filter_map(|off| {
            let on = knobs().find(|on| on.readahead_kib == most && same_but_readahead(off, on))?;
            Some(Pair { off, on })
        })
        .collect()
}

/// Savings with read-ahead off compared with the largest setting, for each combination of the other settings.
pub fn gains(group: &Group) -> Vec<GainPoint> {
    pairs(group)
        .iter()
        .map(|pair| GainPoint {
            pattern: pair.off.pattern.clone(),
            count: pair.off.count,
            request_bytes: pair.off.request_bytes,
            interarrival_us: pair.off.interarrival_us,
            seed: pair.off.seed,
            off_saves_time_percent: round(pair.time_saved_percent()),
            off_saves_reads_percent: round(pair.reads_saved_percent()),
            off_saves_energy_percent: pair.energy_saved_percent().map(round),
        })
        .collect()
}

/// Two decimals are enough for all statements here, and keep the JSON readable.
fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// Compares one published value with ours. If the study did not measure it, the result says so.
pub fn compare(published: &Published, groups: &[Group]) -> Comparison {
    let values: Vec<f64> = groups
        .iter()
        .filter(|group| group.filesystem == published.filesystem.as_str())
        .flat_map(|group| quantities(published, group))
        .collect();
    let ours = match (values.is_empty(), published.fold) {
        (true, _) => None,
        (_, Fold::Min) => values.iter().copied().reduce(f64::min),
        (_, Fold::Max) => values.iter().copied().reduce(f64::max),
        (_, Fold::Mean) => Some(values.iter().sum::<f64>() / values.len() as f64),
    }
    .map(round);
    Comparison {
        id: published.id.clone(),
        source: published.source.clone(),
        statement: published.statement.clone(),
        quantity: published.quantity.as_str().to_owned(),
        kernel_model: published.kernel_model.clone(),
        filesystem: published.filesystem.as_str().to_owned(),
        pattern: published.pattern.as_str().to_owned(),
        count: published.count,
        request_bytes: published.request_size.map(|size| size.0),
        published_min: published.min,
        published_max: published.max,
        unit: published.unit.clone(),
        ours,
        within: ours.map(|ours| (published.min..=published.max).contains(&ours)),
        note: match ours {
            Some(_) => published.note.clone(),
            None => "not measured: no cell of this study has these settings".to_owned(),
        },
    }
}

/// Size of a database with 1000 records and texts of this size, in pages of 1024 bytes, from `bench sqlite` (docs/reference/agent.md;
/// tests/benches.rs checks the first value).
fn database_bytes(contents: &str) -> u64 {
    if contents == "text-64" { 518_144 } else { 1_035_264 }
}

fn quantities(published: &Published, group: &Group) -> Vec<f64> {
    let wanted = |cell: &Cell| {
        cell.pattern == published.pattern.as_str()
            && (published.count[0]..=published.count[1]).contains(&cell.count)
            && published.request_size.is_none_or(|size| size.0 == cell.request_bytes)
    };
    if let Some(choice) = published.kernel_model.as_deref().and_then(Kernel::nearest) {
        let modelled = |pair: &Pair<'_>| {
            let requests = Requests {
                file_bytes: match group.workload {
                    Workload::Read => group.file_size_bytes,
                    Workload::Sqlite => database_bytes(&group.contents),
                },
                request_bytes: pair.off.request_bytes,
                count: pair.off.count,
                pattern: published.pattern,
                at_any_byte: published.at_any_byte,
            };
            requests.pages_saved_percent(choice.kernel, pair.on.readahead_kib)
        };
        return pairs(group).iter().filter(|pair| wanted(pair.off)).map(modelled).collect();
    }
    match published.quantity {
        Quantity::TimeSavedPercent => {
            pairs(group).iter().filter(|pair| wanted(pair.off)).map(Pair::time_saved_percent).collect()
        }
        Quantity::TimeSavedWithOpenPercent => {
            pairs(group).iter().filter(|pair| wanted(pair.off)).map(Pair::time_saved_with_open_percent).collect()
        }
        Quantity::ReadsSavedPercent => {
            pairs(group).iter().filter(|pair| wanted(pair.off)).map(Pair::reads_saved_percent).collect()
        }
        Quantity::EnergySavedPercent => {
            pairs(group).iter().filter(|pair| wanted(pair.off)).filter_map(Pair::energy_saved_percent).collect()
        }
        Quantity::LatencySpreadPercent => {
            let means: Vec<u64> = group
                .cells
                .iter()
                .filter(|cell| wanted(cell))
                .filter(|cell| published.readahead.is_none_or(|asked| asked.argument() == cell.readahead))
                .map(|cell| cell.latency.mean)
                .collect();
            match (means.iter().min(), means.iter().max()) {
                (Some(&least), Some(&most)) if least > 0 => vec![(most - least) as f64 / least as f64 * 100.0],
                _ => Vec::new(),
            }
        }
    }
}

/// The sentence about the current setting, its cost and a possible gain, and the command for it.
pub fn verdict(group: &Group) -> Verdict {
    let pairs = pairs(group);
    let today = group.default.kib;
    let (off_kib, on_kib) = match pairs.first() {
        Some(pair) => (pair.off.readahead_kib, pair.on.readahead_kib),
        None => (today, today),
    };
    let gains = gains(group);
    // Compares with the measured setting that is nearest to the current one.
    let today_is_on = today.abs_diff(on_kib) < today.abs_diff(off_kib);
    let best_off = gains.iter().max_by(|a, b| a.off_saves_time_percent.total_cmp(&b.off_saves_time_percent));
    let best_on = gains.iter().min_by(|a, b| a.off_saves_time_percent.total_cmp(&b.off_saves_time_percent));
    let (Some(best_off), Some(best_on)) = (best_off, best_on) else {
        return Verdict {
            filesystem: group.filesystem.clone(),
            kernel: group.inputs.kernel_release.clone(),
            sentence: format!(
                "Today read-ahead is {} for {} ({}); this study measured one setting only, so there is nothing to compare.",
                on_or_off(today),
                group.filesystem,
                group.default.knob
            ),
            command: "none".to_owned(),
            today_kib: today,
            best_kib: today,
            gain_percent: gains,
        };
    };
    let off_gains = best_off.off_saves_time_percent > WORTH_PERCENT;
    let on_gains = best_on.off_saves_time_percent < -WORTH_PERCENT;
    let best_kib = match (off_gains, on_gains) {
        (true, false) => off_kib,
        (false, true) => on_kib,
        // The result depends on the workload, or the difference is small: keep the setting.
        _ => today,
    };
    let cost = cost_today(&pairs, today_is_on, group);
    let head = format!("Today read-ahead is {} for {} ({})", on_or_off(today), group.filesystem, group.default.knob);
    let done = group.workload.as_str();
    let off_text = format!(
        "up to {:.0} % of the time of {} {} {done}",
        best_off.off_saves_time_percent, best_off.count, best_off.pattern
    );
    // The time that switching on saves, relative to off: (off − on) / off.
    let on_saves = {
        let saved = best_on.off_saves_time_percent / 100.0;
        -saved / (1.0 - saved) * 100.0
    };
    let on_text = format!("up to {on_saves:.0} % of the time of {} {} {done}", best_on.count, best_on.pattern);
    let (sentence, command) = match (off_gains, on_gains, today_is_on) {
        (true, false, false) => (
            format!(
                "{head}, and {cost}; that is right: against {on_kib} KiB it saves {off_text}, and nothing measured here would gain from switching it on."
            ),
            format!("none needed; keep it: echo {off_kib} > {}", group.default.knob),
        ),
        (true, false, true) => (
            format!(
                "{head}, and {cost}; switching it off would save {off_text} and cost nothing measured here more than {WORTH_PERCENT:.0} %."
            ),
            format!("echo {off_kib} > {}", group.default.knob),
        ),
        (false, true, false) => (
            format!(
                "{head}, and {cost}; switching on {on_kib} KiB would save {on_text} and cost nothing measured here more than {WORTH_PERCENT:.0} %."
            ),
            format!("echo {on_kib} > {}", group.default.knob),
        ),
        (false, true, true) => (
            format!("{head}, and {cost}; that is right: against off it saves {on_text}."),
            format!("none needed; keep it: echo {on_kib} > {}", group.default.knob),
        ),
        (true, true, _) => (
            format!(
                "{head}, and {cost}; it depends on the reader: off saves {off_text}, {on_kib} KiB saves {on_text}: leave the knob and tell the kernel per file with posix_fadvise(POSIX_FADV_RANDOM) where reads are few."
            ),
            format!(
                "per file: posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM); for all: echo {off_kib} > {}",
                group.default.knob
            ),
        ),
        (false, false, _) => (
            format!(
                "{head}, and {cost}; no setting measured here changes the time by more than {WORTH_PERCENT:.0} %, so nothing is worth changing."
            ),
            "none needed".to_owned(),
        ),
    };
    Verdict {
        filesystem: group.filesystem.clone(),
        kernel: group.inputs.kernel_release.clone(),
        sentence,
        command,
        today_kib: today,
        best_kib,
        gain_percent: gains,
    }
}

/// The cost of the current setting, for the fewest sequential requests of the matrix (or else the first pair).
fn cost_today(pairs: &[Pair<'_>], today_is_on: bool, group: &Group) -> String {
    let pair = pairs
        .iter()
        .filter(|pair| pair.off.pattern == "sequential")
        .min_by_key(|pair| pair.off.count)
        .or(pairs.first())
        .expect("a verdict with gains has pairs");
    let cell = if today_is_on { pair.on } else { pair.off };
    let of = match group.workload {
        Workload::Read => format!("reads of {}", crate::size::Bytes(cell.request_bytes)),
        Workload::Sqlite => group.workload.as_str().to_owned(),
    };
    format!(
        "{} {} {of} cost {:.2} ms and {} {}",
        cell.count,
        cell.pattern,
        cell.total_ns as f64 / 1e6,
        cell.flash_reads,
        group.reads()
    )
}

fn on_or_off(kib: u64) -> String {
    match kib {
        0 => "off".to_owned(),
        kib => format!("on at {kib} KiB"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cell in which only times and reads matter.
    fn cell(open_ns: u64, total_ns: u64, flash_reads: u64) -> Cell {
        serde_json::from_value(serde_json::json!({
            "count": 10, "request_bytes": 1024, "pattern": "sequential", "readahead": "0", "readahead_kib": 0,
            "interarrival_us": 0, "seed": 1, "crc32": 0, "total_ns": total_ns, "bytes_read": 0, "flash_reads": flash_reads,
            "flash_reads_open": 0, "open_ns": open_ns, "energy": null,
            "latency": { "n": 1, "min": 0, "mean": 0, "p50": 0, "p90": 0, "p99": 0, "p999": 0, "max": 0 },
        }))
        .unwrap()
    }

    #[test]
    fn opening_counts_where_it_is_asked_for() {
        let (off, on) = (cell(300, 60, 9), cell(300, 100, 36));
        let pair = Pair { off: &off, on: &on };
        assert_eq!(pair.time_saved_percent(), 40.0);
        assert_eq!(pair.time_saved_with_open_percent(), 10.0);
        assert_eq!(pair.reads_saved_percent(), 75.0);
        assert_eq!(saved_percent(0, 0), 0.0);
        assert_eq!(saved_percent(150, 100), -50.0);
    }
}
