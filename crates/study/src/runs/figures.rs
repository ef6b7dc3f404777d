//! The figures of a study by name: `CASE[.SIZE][.raN][.TRACER][.PART].QUANTITY`.

use std::collections::BTreeMap;

use super::definition::Tracer;
use super::plan::PHASE_AFTER;
use super::result::{Cost, PART_BUSY, Part, RunGroup, Spread};
use crate::statement::{Figures, MIB};
use flashscope_analysis::flash::OpCounts;

/// Entries of Flashmon's log in its case studies (Flashmon V2, section 5.2).
const FLASHMON_ENTRIES: f64 = 40_000.0;

pub(super) fn figures(groups: &[RunGroup], costs: &[Cost], spreads: &[Spread]) -> Figures {
    let mut figures = Figures::new();
    let several = groups.iter().any(|group| group.tracer != groups[0].tracer);
    for group in groups {
        let mut name = group.name.clone();
        if several {
            name += &format!(".{}", group.tracer.as_str());
        }
        of_group(&mut figures, &name, group);
    }
    let of = |name: &str, tracer: Tracer, part: &str| match part {
        "" => format!("{name}.{}", tracer.as_str()),
        part => format!("{name}.{}.{part}", tracer.as_str()),
    };
    for spread in spreads {
        let name = of(&spread.name, spread.tracer, &spread.part);
        figures.insert(format!("{name}.cost_percent"), spread.percent);
        figures.insert(format!("{name}.cost_percent.least"), spread.least_percent);
        figures.insert(format!("{name}.cost_percent.most"), spread.most_percent);
        figures.extend(spread.us_an_event.map(|us| (format!("{name}.us_an_event"), us)));
    }
    for cost in costs {
        let name = of(&cost.name, cost.tracer, &cost.part);
        figures.insert(format!("{name}.cost_percent"), cost.percent());
        figures.extend(cost.us_an_event().map(|us| (format!("{name}.us_an_event"), us)));
    }
    shares(&mut figures, groups);
    // Divisions by zero give no figure.
    figures.retain(|_, value| value.is_finite());
    figures.values_mut().for_each(|value| *value = (*value * 1e6).round() / 1e6);
    figures
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn of_group(figures: &mut Figures, name: &str, group: &RunGroup) {
    let mut put = |quantity: &str, value: f64| {
        figures.insert(format!("{name}.{quantity}"), value);
    };
    put("total_s", seconds(group.total_ns));
    if let Some(busy_ns) = group.busy_ns {
        put("busy_s", seconds(busy_ns));
    }
    if let Some(all) = &group.all {
        counts(&mut put, "", all);
    }
    if let Some(ring) = &group.ring {
        let each = ring.bytes as f64 / ring.events as f64;
        put("ring_bytes_an_event", each);
        put("ring_mib_of_flashmons_log", each * FLASHMON_ENTRIES / MIB);
    }
    for part in &group.parts {
        put(&format!("{}.s", part.name), seconds(part.duration_ns()));
        if let Some(of) = &part.counts {
            counts(&mut put, &format!("{}.", part.name), of);
            for (what, at) in [("operation", part.last_ns), ("erase", part.last_erase_ns)] {
                if let Some(at) = at {
                    put(&format!("{}.last_{what}_s", part.name), seconds(at.saturating_sub(part.begin_ns)));
                }
            }
        }
    }
    if let Some(postmark) = &group.postmark {
        put("bytes_read_mib", postmark.bytes_read as f64 / MIB);
        put("bytes_written_mib", postmark.bytes_written as f64 / MIB);
        put("read_s", seconds(postmark.read_ns));
        put("write_s", seconds(postmark.write_ns));
        for share in &postmark.shares {
            put(&format!("share_{}_mib_s", share.percent), share.mib_per_s());
        }
    }
}

fn counts(put: &mut impl FnMut(&str, f64), prefix: &str, of: &OpCounts) {
    put(&format!("{prefix}page_reads"), of.reads as f64);
    put(&format!("{prefix}page_programs"), of.programs as f64);
    put(&format!("{prefix}erases"), of.erases as f64);
}

/// The tracing cost of the whole run and of each timed part.
pub(super) fn costs(groups: &[RunGroup]) -> Vec<Cost> {
    let mut costs = Vec::new();
    for traced in groups.iter().filter(|group| group.tracer != Tracer::None) {
        let same = |other: &&RunGroup| other.name == traced.name && other.tracer == Tracer::None;
        let Some(bare) = groups.iter().find(same) else { continue };
        let mut put = |part: &str, without_ns: u64, with_ns: u64, events: u64| {
            let (name, tracer) = (traced.name.clone(), traced.tracer);
            costs.push(Cost { name, part: part.to_owned(), tracer, without_ns, with_ns, events });
        };
        let timed = |group: &'_ RunGroup| -> Vec<Part> {
            group.parts.iter().filter(|part| part.name != PHASE_AFTER).cloned().collect()
        };
        let events = |part: &Part| part.counts.map_or(0, |counts| counts.sum());
        let (without, with) = (timed(bare), timed(traced));
        put("", bare.total_ns, traced.total_ns, with.iter().map(events).sum());
        for (without, with) in without.iter().zip(&with) {
            put(&with.name, without.duration_ns(), with.duration_ns(), events(with));
        }
        if let (Some(without), Some(with), Some(all)) = (bare.busy_ns, traced.busy_ns, &traced.all) {
            put(PART_BUSY, without, with, all.sum());
        }
    }
    costs
}

/// The costs of runs that differ in their seed only, combined: median, smallest and largest value.
pub(super) fn spreads(costs: &[Cost]) -> Vec<Spread> {
    let mut alike: Vec<(String, Vec<&Cost>)> = Vec::new();
    for cost in costs {
        let Some(name) = without_seed(&cost.name) else { continue };
        let same = |of: &&mut (String, Vec<&Cost>)| {
            of.0 == name && (of.1[0].tracer, &of.1[0].part) == (cost.tracer, &cost.part)
        };
        match alike.iter_mut().find(same) {
            Some((_, costs)) => costs.push(cost),
            None => alike.push((name, vec![cost])),
        }
    }
    alike
        .into_iter()
        .map(|(name, costs)| {
            let sorted = |mut values: Vec<f64>| {
                values.sort_by(f64::total_cmp);
                values
            };
            let percents = sorted(costs.iter().map(|cost| cost.percent()).collect());
            let an_event: Option<Vec<f64>> = costs.iter().map(|cost| cost.us_an_event()).collect();
            Spread {
                name,
                part: costs[0].part.clone(),
                tracer: costs[0].tracer,
                seeds: costs.len(),
                percent: median(&percents),
                least_percent: percents[0],
                most_percent: percents[percents.len() - 1],
                us_an_event: an_event.map(|values| median(&sorted(values))),
            }
        })
        .collect()
}

/// The median of an ascending list that is not empty.
fn median(values: &[f64]) -> f64 {
    let middle = values.len() / 2;
    match values.len() % 2 {
        0 => f64::midpoint(values[middle - 1], values[middle]),
        _ => values[middle],
    }
}

/// `ubifs.seed7` → `ubifs`; `None` for a name without a seed.
fn without_seed(name: &str) -> Option<String> {
    let (before, after) = name.split_once(".seed")?;
    Some(format!("{before}{}", after.trim_start_matches(|c: char| c.is_ascii_digit())))
}

/// Read throughput with read-ahead off relative to on, for each share of the files: for each size, and the smallest and largest over all
/// sizes of a case.
fn shares(figures: &mut Figures, groups: &[RunGroup]) {
    let mut spread: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    for off in groups {
        let Some(without) = &off.postmark else { continue };
        let on = groups.iter().filter(|on| on.case == off.case && on.tracer == off.tracer).find(|on| {
            let with = on.postmark.as_ref();
            with.is_some_and(|with| {
                with.readahead_kib > without.readahead_kib
                    && (with.size_min_bytes, with.size_max_bytes) == (without.size_min_bytes, without.size_max_bytes)
            })
        });
        let Some(with) = on.and_then(|on| on.postmark.as_ref()) else { continue };
        let base = off.name.trim_end_matches(&format!(".ra{}", without.readahead)).to_owned();
        for (a, b) in without.shares.iter().zip(&with.shares) {
            let ratio = a.mib_per_s() / b.mib_per_s();
            figures.insert(format!("{base}.share_{}_off_on", a.percent), ratio);
            let (least, most) =
                spread.entry(format!("{}.share_{}_off_on", off.case, a.percent)).or_insert((ratio, ratio));
            *least = least.min(ratio);
            *most = most.max(ratio);
        }
    }
    for (name, (least, most)) in spread {
        figures.insert(format!("{name}.least"), least);
        figures.insert(format!("{name}.most"), most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Inputs;
    use crate::runs::{PostmarkFacts, Share};
    use flashscope_analysis::flash::Geometry;

    fn group(name: &str, tracer: Tracer, total_ns: u64, readahead_kib: u64, bytes: u64) -> RunGroup {
        let text = String::new;
        let inputs = Inputs {
            board: text(),
            board_sha256: text(),
            kernel: text(),
            kernel_release: text(),
            kernel_package: text(),
            kernel_sha256: text(),
            qemu: text(),
            agent: text(),
            agent_sha256: text(),
            image_sha256: text(),
        };
        let counts = (tracer != Tracer::None).then_some(OpCounts { reads: 60, programs: 30, erases: 10 });
        let part = Part {
            name: "create".to_owned(),
            begin_ns: 0,
            end_ns: total_ns,
            counts,
            last_ns: None,
            last_erase_ns: None,
        };
        RunGroup {
            id: name.to_owned(),
            name: name.to_owned(),
            case: "jffs2".to_owned(),
            inputs,
            tracer,
            chip: text(),
            geometry: Geometry { page_bytes: 2048, pages_per_block: 64 },
            chip_blocks: 2048,
            partition_bytes: 1 << 20,
            postmark: Some(PostmarkFacts {
                filesystem: "jffs2".to_owned(),
                options: None,
                readahead: readahead_kib.to_string(),
                readahead_kib: Some(readahead_kib),
                size_min_bytes: bytes,
                size_max_bytes: bytes,
                contents: text(),
                created: 1,
                read: 1,
                appended: 0,
                bytes_read: bytes,
                bytes_written: bytes,
                read_ns: 1,
                write_ns: 1,
                shares: vec![Share { percent: 25, bytes, read_ns: 1000 * (1 + readahead_kib) }],
                crc32: 0,
            }),
            total_ns,
            busy_ns: (tracer != Tracer::Ring).then_some(total_ns / 2),
            parts: vec![part],
            all: counts,
            by_task: Vec::new(),
            timelines: Vec::new(),
            ring: None,
            losses: Vec::new(),
        }
    }

    #[test]
    fn a_cost_is_of_two_runs_that_differ_in_their_tracer() {
        let groups = [group("jffs2", Tracer::None, 1_000_000, 0, 1), group("jffs2", Tracer::Stream, 1_050_000, 0, 1)];
        let costs = costs(&groups);
        let of: Vec<(&str, u64)> = costs.iter().map(|cost| (cost.part.as_str(), cost.events)).collect();
        assert_eq!(of, [("", 100), ("create", 100), ("busy", 100)]);
        let figures = figures(&groups, &costs, &[]);
        assert_eq!(figures["jffs2.stream.cost_percent"], 5.0);
        assert_eq!(figures["jffs2.stream.create.us_an_event"], 0.5);
        assert_eq!(figures["jffs2.none.total_s"], 0.001);
        assert!(!figures.contains_key("jffs2.none.page_reads"), "nothing was counted");
    }

    #[test]
    fn runs_of_several_seeds_are_one_figure_with_its_spread() {
        let mut groups = Vec::new();
        for (seed, with_ns) in [(1, 1_010_000), (2, 990_000), (3, 1_030_000)] {
            let name = format!("ubifs.seed{seed}");
            groups.push(group(&name, Tracer::None, 1_000_000, 0, 1));
            groups.push(group(&name, Tracer::FlashmonRing, with_ns, 0, 1));
        }
        let costs = costs(&groups);
        let spreads = spreads(&costs);
        assert_eq!(spreads.len(), 3, "the whole, one part, the processor's time");
        let figures = figures(&groups, &costs, &spreads);
        assert_eq!(figures["ubifs.flashmon-ring.cost_percent"], 1.0);
        assert_eq!(figures["ubifs.flashmon-ring.cost_percent.least"], -1.0);
        assert_eq!(figures["ubifs.flashmon-ring.busy.cost_percent.most"], 3.0);
        assert_eq!(figures["ubifs.flashmon-ring.us_an_event"], 0.1);
        assert_eq!(median(&[1.0, 2.0, 4.0, 8.0]), 3.0);
        assert_eq!(without_seed("ubifs.seed12.6.1").as_deref(), Some("ubifs.6.1"));
    }

    #[test]
    fn a_sweep_says_its_least_and_its_most() {
        let ring = |name: &str, kib, bytes| group(name, Tracer::Ring, 1, kib, bytes);
        let groups = [
            ring("jffs2.1K.ra0", 0, 1024),
            ring("jffs2.1K.ra1", 1, 1024),
            ring("jffs2.2K.ra0", 0, 2048),
            ring("jffs2.2K.ra4", 4, 2048),
        ];
        let figures = figures(&groups, &[], &[]);
        assert_eq!(figures["jffs2.1K.share_25_off_on"], 2.0);
        assert_eq!(figures["jffs2.2K.share_25_off_on"], 5.0);
        assert_eq!((figures["jffs2.share_25_off_on.least"], figures["jffs2.share_25_off_on.most"]), (2.0, 5.0));
    }
}
