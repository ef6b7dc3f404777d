//! The figures of a study by name, and the comparison of levers.

use super::plan::ReplaySpec;
use super::result::{Delay, LeverFound, ReplayGroup};
use crate::statement::{Figures, MIB};

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

/// The run of the application alone on the same kernel: with the same lever if there is one, else with the same disk settings, else the
/// case's first run. A lever that changes the application's own requests (its mount, its read-ahead) is compared with that lever alone.
fn alone<'a>(groups: &'a [ReplayGroup], specs: &[ReplaySpec], index: usize) -> Option<&'a ReplayGroup> {
    let all = all_alone(specs, index);
    let lever = |i: &&usize| specs[**i].lever.name == specs[index].lever.name;
    let disk = |i: &&usize| specs[**i].case.disk == specs[index].case.disk;
    let same = all.iter().find(lever);
    let other = || all.iter().find(disk).or_else(|| all.first()).filter(|_| !specs[index].lever.changes_own_requests());
    same.or_else(other).map(|&i| &groups[i])
}

fn all_alone(specs: &[ReplaySpec], index: usize) -> Vec<usize> {
    let of = |i: &usize| {
        Some(specs[*i].case.name.as_str()) == specs[index].alone() && specs[*i].kernel == specs[index].kernel
    };
    (0..specs.len()).filter(of).collect()
}

/// The application's read time alone with the same lever, else with the same disk settings: an effect of the lever without the others is
/// not protection from them. Unknown without such a run. Only reads since the others begin count, because before that, runs differ by the
/// place of files and journal.
fn alone_ns(groups: &[ReplayGroup], specs: &[ReplaySpec], index: usize) -> Option<u64> {
    let all = all_alone(specs, index);
    let lever = |i: &&usize| specs[**i].lever.name == specs[index].lever.name;
    let disk = |i: &&usize| specs[**i].case.disk == specs[index].case.disk && !specs[**i].lever.changes_own_requests();
    let other = || all.iter().find(disk).filter(|_| !specs[index].lever.changes_own_requests());
    let since = |&i: &usize| groups[i].reads_since.iter().find(|one| one.from_ns == specs[index].others_begin_ns());
    all.iter().find(lever).or_else(other).and_then(since).map(|one| one.total_ns)
}

/// The application's read time alone without a lever, from the time at which the others of this run begin.
fn alone_without_lever_ns(groups: &[ReplayGroup], specs: &[ReplaySpec], index: usize) -> Option<u64> {
    let spec = &specs[index];
    let same_start = |other: &ReplaySpec| {
        other.case.name == spec.case.name
            && other.kernel == spec.kernel
            && other.lever.name == "none"
            && other.others_begin_ns() == spec.others_begin_ns()
    };
    alone_ns(groups, specs, specs.iter().position(same_start)?)
}

fn reads_ns(group: &ReplayGroup) -> u64 {
    group.reads_since.first().map_or(0, |one| one.total_ns)
}

pub(super) fn figures(groups: &[ReplayGroup], specs: &[ReplaySpec], levers: &[LeverFound]) -> Figures {
    let mut figures = Figures::new();
    for (index, group) in groups.iter().enumerate() {
        let mut put = |quantity: &str, value: f64| {
            figures.insert(format!("{}.{quantity}", group.name), value);
        };
        put("duration_s", group.duration_ns as f64 / 1e9);
        let player = &group.player;
        for (name, ns) in
            [("p50", player.p50_ns), ("p99", player.p99_ns), ("max", player.max_ns), ("sum", Some(player.total_ns))]
        {
            if let Some(ns) = ns {
                put(&format!("read_{name}_ms"), ms(ns));
            }
        }
        if let Some(frames) = player.late_frames {
            put("late_frames", frames as f64);
        }
        for stage in &group.stages {
            let name = stage.name.to_lowercase();
            put(&format!("{name}_n"), stage.n as f64);
            if let Some(mean_ns) = stage.mean_ns {
                put(&format!("{name}_ms"), ms(mean_ns));
            }
            if let Some(percent) = stage.percent {
                put(&format!("{name}_percent"), percent);
            }
        }
        if let Some(pattern) = &group.pattern {
            put("reads", pattern.reads as f64);
            put("breaks", pattern.breaks as f64);
            put("writes", pattern.writes as f64);
            put("bursts", pattern.bursts as f64);
            for (name, value) in [
                ("common_kib", pattern.common_bytes.map(|bytes| bytes as f64 / 1024.0)),
                ("common_percent", pattern.common_percent),
                ("sequential_percent", pattern.sequential_percent),
                ("half_s", pattern.half_ns.map(|ns| ns as f64 / 1e9)),
                ("burst_every_s", Some(group.duration_ns as f64 / 1e9 / pattern.bursts as f64)),
                ("writes_at_begins_percent", pattern.writes_at_begins_percent),
            ] {
                if let Some(value) = value {
                    put(name, value);
                }
            }
        }
        for (name, value) in [("flash_reads", group.flash_reads), ("flash_programs", group.flash_programs)] {
            if let Some(value) = value {
                put(name, value as f64);
            }
        }
        if group.others_bytes > 0 {
            put("others_mib_s", rate(group));
        }
        let Some(delay) = group.delay.first() else { continue };
        put("behind_us", delay.told_behind_ns as f64 / 1e3);
        let from = |alone: &&Delay| alone.from_ns == delay.from_ns;
        let Some(before) = alone(groups, specs, index).and_then(|alone| alone.delay.iter().find(from)) else {
            continue;
        };
        put("delay_measured_us", (delay.mean_q2c_ns as f64 - before.mean_q2c_ns as f64) / 1e3);
        if let Some(told) = delay.told_alone_ns {
            put("delay_told_us", (delay.mean_q2c_ns as f64 - told as f64) / 1e3);
            let apart = (told as f64 - before.mean_q2c_ns as f64).abs() / 1e3;
            put("delay_apart_us", apart);
            let measured = (delay.mean_q2c_ns as f64 - before.mean_q2c_ns as f64).abs() / 1e3;
            put("delay_within", f64::from(u8::from(apart <= 20.0 || apart <= measured * 0.05)));
        }
    }
    for lever in levers {
        let name = format!("{}.{}.{}", lever.case, lever.lever, lever.kernel.replace('.', "_"));
        for (quantity, values) in [
            ("p99_ms", Some(lever.p99_ms)),
            ("read_ms", Some(lever.read_ms)),
            ("wait_ms", lever.wait_ms),
            ("slower_ms", lever.slower_ms),
            ("late_frames", lever.late_frames),
            ("others_mib_s", Some(lever.others_mib_s)),
        ] {
            let Some(values) = values else { continue };
            figures.insert(format!("{name}.{quantity}"), values[0]);
            figures.insert(format!("{name}.{quantity}.least"), values[1]);
            figures.insert(format!("{name}.{quantity}.most"), values[2]);
        }
    }
    figures.retain(|_, value| value.is_finite());
    figures.values_mut().for_each(|value| *value = (*value * 1e6).round() / 1e6);
    figures
}

/// Throughput of the other scripts in MiB/s, from the beginning of the first one to the end of all.
fn rate(group: &ReplayGroup) -> f64 {
    group.others_bytes as f64 / MIB / (group.others_ns as f64 / 1e9)
}

/// Mean, smallest and largest value.
fn spread(values: &[f64]) -> [f64; 3] {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    [mean, least, most].map(|value| (value * 1e3).round() / 1e3)
}

pub(super) fn levers(groups: &[ReplayGroup], specs: &[ReplaySpec]) -> Vec<LeverFound> {
    let mut found: Vec<LeverFound> = Vec::new();
    for (index, spec) in specs.iter().enumerate() {
        let same = |other: &ReplaySpec| {
            other.case.name == spec.case.name && other.lever.name == spec.lever.name && other.kernel == spec.kernel
        };
        if spec.case.lever.is_empty() || spec.others.is_empty() || specs[..index].iter().any(same) {
            continue;
        }
        let runs: Vec<usize> = (0..specs.len()).filter(|&i| same(&specs[i])).collect();
        // An application without reads waits for no read: nothing can be compared.
        let p99_ms: Option<Vec<f64>> = runs.iter().map(|&i| groups[i].player.p99_ns.map(ms)).collect();
        let Some(p99_ms) = p99_ms else { continue };
        let of = |value: &dyn Fn(usize) -> f64| spread(&runs.iter().map(|&i| value(i)).collect::<Vec<_>>());
        let late = |runs: &[usize]| {
            let frames: Option<Vec<f64>> =
                runs.iter().map(|&i| groups[i].player.late_frames.map(|n| n as f64)).collect();
            frames.map(|frames| spread(&frames))
        };
        let alone: Option<Vec<f64>> = runs.iter().map(|&i| alone_ns(groups, specs, i).map(ms)).collect();
        let without: Option<Vec<f64>> =
            runs.iter().map(|&i| alone_without_lever_ns(groups, specs, i).map(ms)).collect();
        let longer_than = |alone: &Vec<f64>| {
            spread(&runs.iter().zip(alone).map(|(&i, alone)| ms(reads_ns(&groups[i])) - alone).collect::<Vec<_>>())
        };
        found.push(LeverFound {
            case: spec.case.name.clone(),
            lever: spec.lever.name.clone(),
            kernel: spec.kernel.clone(),
            runs: runs.len() as u64,
            p99_ms: spread(&p99_ms),
            read_ms: of(&|i| ms(reads_ns(&groups[i]))),
            alone_ms: alone.as_ref().map(|alone| spread(alone)[0]),
            wait_ms: alone.as_ref().map(longer_than),
            slower_ms: without.as_ref().map(longer_than),
            late_frames: late(&runs),
            others_mib_s: of(&|i| rate(&groups[i])),
            systemd: spec.lever.systemd.clone(),
        });
    }
    found
}
