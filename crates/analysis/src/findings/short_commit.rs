//! A journal that is committed more often than the kernel's default.

use super::{Finding, GroupBy, MeasureUnit, Mount, Remedy, Rule, Seen, Step, gain, groups, measure, percent, stage};
use crate::calls::is_sync;
use crate::units::{duration, grouped, size};

/// `JBD2_DEFAULT_MAX_COMMIT_AGE` (include/linux/jbd2.h), seconds.
pub(super) const DEFAULT_S: f64 = 5.0;
/// Least number of commits that show an interval.
const MIN_COMMITS: u64 = 3;
/// Least share of the journal in all written bytes, percent.
const MIN_PERCENT: f64 = 10.0;
/// Least share of the bytes of the commits caused by the option that a longer interval saves. Blocks that are journalled only once are
/// written at any interval.
const LEAST_OF_SAVING: f64 = 0.4;

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    seen.storage.mounts.iter().filter_map(|mount| of_mount(seen, mount)).collect()
}

/// Syncs that may concern this device: all except those known to concern another.
pub(super) fn syncs(seen: &Seen<'_>, device: &str) -> u64 {
    let head = format!("{device} inode ");
    let elsewhere = seen.calls.by_file.iter().filter(|group| is_sync(&group.call) && !group.name.starts_with(&head));
    seen.calls.total(is_sync).0.saturating_sub(elsewhere.map(|group| group.ns.n).sum())
}

fn of_mount(seen: &Seen<'_>, mount: &Mount) -> Option<Finding> {
    let found = seen.block?;
    let seconds: f64 = mount.value("commit").and_then(|value| value.parse().ok())?;
    if !(seconds > 0.0 && seconds < DEFAULT_S && seen.is_used(&mount.device)) {
        return None;
    }
    // "ext4 journal [jbd2/sda1-8]"
    let thread = format!("[jbd2/{}-", mount.source.strip_prefix("/dev/")?);
    let owner = found.originators.originators.iter().find(|one| one.name.contains(&thread))?;
    let journal = groups(found, GroupBy::Owner).find(|group| group.name.contains(&thread))?;
    let commits = seen.usage.commits.get(&owner.tid).copied().unwrap_or(0);
    // Syncs also commit the journal. Then the interval is not the cause.
    if commits < MIN_COMMITS || syncs(seen, &mount.device) * 2 >= commits {
        return None;
    }
    let written = seen.device_group(&mount.device, "writes").map_or(0, |group| group.bytes);
    if percent(journal.bytes, written) < MIN_PERCENT {
        return None;
    }
    // The commits come at this interval, not at the default one.
    let span_s = seen.span_ns as f64 / 1e9;
    if commits as f64 * (seconds + DEFAULT_S) / 2.0 < span_s {
        return None;
    }
    let saving = 1.0 - seconds / DEFAULT_S;
    let q2c = stage(journal, "Q2C").map_or(0, |q2c| q2c.total_ns);
    let source = "jbd2:jbd2_start_commit, block:block_bio_queue; mount options of /proc/self/mounts";
    Some(Finding {
        what: format!(
            "{} commits its journal each {} ({} commits in {}): the journal writes {}.",
            mount.target,
            duration((seconds * 1e9) as u64),
            grouped(commits),
            duration(seen.span_ns),
            size(journal.bytes)
        ),
        cause: format!(
            "The mount option commit={seconds} is shorter than the default of {DEFAULT_S} s; the journal has {:.0} % of what \
             is written there.",
            percent(journal.bytes, written)
        ),
        evidence: vec![
            measure("commits", commits as f64, MeasureUnit::Count, source),
            measure("written by the journal", journal.bytes as f64, MeasureUnit::Bytes, source),
            measure("time of its bios", q2c as f64, MeasureUnit::Ns, source),
        ],
        lost_ns: ((q2c.min(seen.span_ns) as f64 * saving) as u64).into(),
        lost_bytes: Some((journal.bytes as f64 * saving) as u64),
        advice: vec![Remedy {
            what: "Commit at the default interval".to_owned(),
            steps: vec![Step::Remount {
                target: mount.target.clone(),
                options: format!("commit={DEFAULT_S}"),
                undo: format!("commit={seconds}"),
            }],
            gain: gain(
                format!("bytes that the journal of {} writes", mount.target),
                [saving * LEAST_OF_SAVING * 100.0, saving * 100.0],
                format!("{:.0} % fewer commits; each may have more blocks", saving * 100.0),
            ),
            risk: format!("a power cut loses up to {DEFAULT_S} s of work that was not synced, instead of {seconds} s"),
        }],
        ..Finding::of(Rule::ShortCommit)
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Work, only};
    use super::*;
    use flashscope_trace::TaskId;

    fn work(options: &str, commits: u64, syncs: u64) -> Work {
        let mut work = Work::new(20_000_000_000);
        work.bios_of("jbd2/sda-8", 60, "WS", 1_000, 1_000_000);
        work.mount("/data", "ext4", options);
        work.usage.commits.insert(TaskId(7), commits);
        if syncs > 0 {
            work.call("fsync", "app (7)", syncs, 1_000_000, 0);
        }
        work
    }

    #[test]
    fn commits_at_the_options_rhythm_are_told() {
        let finding = only(find(&work("rw,commit=1", 20, 0).seen()));
        assert!(finding.what.starts_with("/data commits its journal each 1.00 s (20 commits"), "{}", finding.what);
        let gain = finding.advice[0].gain.known().expect("a range");
        assert_eq!((gain.least_percent.round(), gain.most_percent.round()), (32.0, 80.0));
    }

    #[test]
    fn the_default_syncs_and_rare_commits_are_not() {
        for (options, commits, syncs) in
            [("rw", 20, 0), ("rw,commit=30", 20, 0), ("rw,commit=1", 20, 15), ("rw,commit=1", 4, 0)]
        {
            assert!(find(&work(options, commits, syncs).seen()).is_empty(), "{options} {commits} {syncs}");
        }
    }
}
