//! Flushes of a device's cache that take long.

use super::{Finding, MeasureUnit, Remedy, Rule, Seen, code, measure, percent};
use crate::calls::is_sync;
use crate::units::{counted, duration};
use crate::{Evidence, OWN_RECORDING, task_name};
use std::collections::BTreeMap;

const MIN_FLUSHES: u64 = 5;
/// A flush that takes less is no stall, nanoseconds.
const MIN_MEAN_NS: u64 = 1_000_000;
/// Below this share of the recorded time it is not reported, per cent.
const MIN_PERCENT: f64 = 10.0;

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let Some(found) = seen.block else { return Vec::new() };
    let flushes = &found.flushes;
    let Some(&total) = flushes.requests_total_ns.known() else { return Vec::new() };
    if flushes.requests.n < MIN_FLUSHES || flushes.requests.mean < MIN_MEAN_NS || seen.of_span(total) < MIN_PERCENT {
        return Vec::new();
    }
    let source = "block:block_rq_issue, block_rq_complete of flushes (F)";
    // Flushes of several devices, or of stacked ones, overlap: their sum exceeds the time that a task waits.
    let lost = total.min(seen.span_ns);
    let together = if total > seen.span_ns { " in all" } else { "" };
    vec![Finding {
        what: format!(
            "The device spends {}{together} on {}: {} each, {} at most.",
            duration(total),
            counted(flushes.requests.n, "flush"),
            duration(flushes.requests.mean),
            duration(flushes.requests.max)
        )
        .replace(" flushs", " flushes"),
        cause: format!(
            "Each fsync, each write with O_SYNC or O_DSYNC, and each commit of a journal has the device write its cache out, and waits.{}",
            most_syncs(seen).unwrap_or_default()
        ),
        evidence: vec![
            measure("flushes", flushes.requests.n as f64, MeasureUnit::Count, source),
            measure("their time in the device", total as f64, MeasureUnit::Ns, source),
        ],
        lost_ns: lost.into(),
        advice: vec![Remedy {
            what: "Sync less often: each sync costs a flush or two".to_owned(),
            steps: vec![code::SYNC_DATA_ONCE.step()],
            gain: Evidence::unknown("it follows from how many syncs the program can spare", ""),
            risk: "a power cut loses what was not synced; never turn flushes off (nobarrier) on a device with a volatile cache"
                .to_owned(),
        }],
        ..Finding::of(Rule::FlushStalls)
    }]
}

/// Least time in the syncs that are named, per cent of the flushes.
const MIN_SYNCS_PERCENT: f64 = 25.0;
/// Each sync flushes once or twice; on a loop device the disk below does so too.
const FLUSHES_OF_SYNC: u64 = 4;

/// Whether calls that sync explain the flushes: else a journal's commits do.
pub(super) fn is_by_syncs(seen: &Seen<'_>) -> bool {
    let flushes = seen.block.map_or(0, |found| found.flushes.requests.n);
    seen.calls.total(is_sync).0.saturating_mul(FLUSHES_OF_SYNC) >= flushes
}

/// The process with most time in calls that sync, or those of one name, as where a script starts one for each.
fn most_syncs(seen: &Seen<'_>) -> Option<String> {
    let syncs =
        seen.calls.by_process.iter().filter(|group| is_sync(&group.call) && !group.name.starts_with(OWN_RECORDING));
    let mut programs: BTreeMap<(&str, &str), (u64, u64, Vec<&str>)> = BTreeMap::new();
    for group in syncs {
        let (ns, n, names) = programs.entry((task_name(&group.name), &group.call)).or_default();
        (*ns, *n) = (ns.saturating_add(group.total_ns), n.saturating_add(group.ns.n));
        names.push(&group.name);
    }
    let ((name, call), (ns, n, names)) = programs.into_iter().max_by_key(|(_, (ns, ..))| *ns)?;
    // Where nobody's syncs take so long, writes with O_SYNC and commits of a journal cause the flushes.
    let flushes = seen.block.and_then(|found| found.flushes.requests_total_ns.known()).copied().unwrap_or(0);
    if percent(ns, flushes) < MIN_SYNCS_PERCENT {
        return None;
    }
    let (have, who) = match names[..] {
        [one] => ("has", one.to_owned()),
        _ => ("have", seen.storage.tasks_called(name, &names)),
    };
    Some(format!(" Most time in syncs {have} {who}: {} in {} of {call}().", duration(ns), counted(n, "call")))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Work, only};
    use super::*;

    fn work(n: u64, mean: u64) -> Work {
        let mut work = Work::new(1_000_000_000);
        let flushes = &mut work.block().flushes;
        (flushes.requests.n, flushes.requests.mean) = (n, mean);
        flushes.requests_total_ns = (n * mean).into();
        work
    }

    #[test]
    fn long_flushes_are_told() {
        let finding = only(find(&work(100, 5_000_000).seen()));
        assert!(
            finding.what.starts_with("The device spends 500.00 ms on 100 flushes: 5.00 ms each"),
            "{}",
            finding.what
        );
    }

    #[test]
    fn who_waits_longest_in_syncs_is_named() {
        let mut work = work(100, 5_000_000);
        assert!(only(find(&work.seen())).cause.ends_with("and waits."));
        // One short sync explains no flushes of 500 ms.
        work.call("fsync", "dd (6)", 1, 20_000_000, 0);
        assert!(only(find(&work.seen())).cause.ends_with("and waits."));
        work.call("fsync", "db (7)", 1, 200_000_000, 0);
        work.call("fdatasync", "log (8)", 4, 300_000_000, 0);
        work.call("read", "player (9)", 4, 900_000_000, 0);
        let cause = only(find(&work.seen())).cause;
        assert!(cause.ends_with("Most time in syncs has log (8): 300.00 ms in 4 calls of fdatasync()."), "{cause}");
    }

    /// A script that starts `sync` for each file.
    #[test]
    fn processes_of_one_name_are_told_together() {
        let mut work = work(100, 5_000_000);
        work.call("fsync", "db (7)", 1, 200_000_000, 0);
        (20..60).for_each(|tid| work.call("sync", &format!("sync ({tid})"), 1, 10_000_000, 0));
        let cause = only(find(&work.seen())).cause;
        assert!(
            cause.ends_with("Most time in syncs have 40 tasks called sync: 400.00 ms in 40 calls of sync()."),
            "{cause}"
        );
    }

    #[test]
    fn flushes_of_several_devices_cost_no_more_than_the_recorded_time() {
        let finding = only(find(&work(1000, 5_000_000).seen()));
        assert!(finding.what.starts_with("The device spends 5.00 s in all on 1,000 flushes"), "{}", finding.what);
        assert_eq!(finding.lost_ns, 1_000_000_000.into());
    }

    #[test]
    fn short_or_few_ones_are_not() {
        for (n, mean) in [(4, 100_000_000), (900, 500_000), (10, 2_000_000)] {
            assert!(find(&work(n, mean).seen()).is_empty(), "{n} {mean}");
        }
    }
}
