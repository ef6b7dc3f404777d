//! A journal that is full again and again: programs that change files wait until there is room in it.

use super::short_commit::{DEFAULT_S, syncs};
use super::{Finding, GroupBy, MeasureUnit, Mount, Remedy, Rule, Seen, Step, gain, groups, measure, percent, stage};
use crate::block::Originator;
use crate::units::{duration, grouped, size};
use crate::usage::TaskWrites;
use crate::{split_task_label, task_label};

const MIN_COMMITS: u64 = 3;
/// If at least this share of the journal was written, it was full, percent of its size.
const MIN_WRITTEN_PERCENT: f64 = 150.0;
/// Least number of bios that programs write to free space in the journal. With fewer they hardly wait.
const MIN_CHECKPOINT_BIOS: u64 = 50;
/// Least share of the recorded time, percent.
const MIN_SPAN_PERCENT: f64 = 5.0;
/// Commits come at least this many times as often as the kernel makes them without a cause.
const MIN_TIMES: f64 = 2.0;
/// A commit begins when a transaction has a quarter of the journal (fs/jbd2/journal.c, `j_max_transaction_buffers`).
const TRANSACTIONS: u64 = 4;
/// The advice, bytes: no less than 16 MiB, no more than 1 GiB or an eighth of the file system.
const LEAST_BYTES: u64 = 16 << 20;
const MOST_BYTES: u64 = 1 << 30;
const PART_OF_FILESYSTEM: u64 = 8;

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let kinds = ["ext3", "ext4"];
    let mounts = seen.storage.mounts.iter().filter(|mount| kinds.contains(&mount.kind.as_str()));
    mounts.filter_map(|mount| of_mount(seen, mount)).collect()
}

/// Who writes metadata of this file system itself, and how many bios: the journal's thread and the kernel's workers do it unasked.
fn makes_room<'a>(seen: &Seen<'a>, mount: &Mount) -> Option<(&'a Originator, u64)> {
    let tasks = &seen.block?.originators;
    let of = seen
        .usage
        .writers
        .iter()
        .filter(|one| one.device == mount.device)
        .filter_map(|one| Some((tasks.task(one.tid)?, one.metadata_bios)));
    of.max_by_key(|(_, bios)| *bios).filter(|(_, bios)| *bios >= MIN_CHECKPOINT_BIOS)
}

fn of_mount(seen: &Seen<'_>, mount: &Mount) -> Option<Finding> {
    let found = seen.block?;
    // "ext4 journal [jbd2/sda1-8]"
    let device = mount.source.strip_prefix("/dev/")?;
    let thread = format!("[jbd2/{device}-");
    let owner = found.originators.originators.iter().find(|one| one.name.contains(&thread))?;
    let journal = groups(found, GroupBy::Owner).find(|group| group.name.contains(&thread))?;
    let is_its = |one: &&TaskWrites| one.tid == owner.tid && one.device == mount.device;
    let writes = seen.usage.writers.iter().find(is_its)?;
    let commits = seen.usage.commits.get(&owner.tid).copied().unwrap_or(0);
    let unasked = seen.span_ns as f64 / 1e9 / DEFAULT_S + 1.0;
    if commits < MIN_COMMITS || (commits as f64) < unasked * MIN_TIMES || syncs(seen, &mount.device) * 2 >= commits {
        return None;
    }
    let held = writes.range_bytes;
    if held == 0 || percent(writes.bytes, held) < MIN_WRITTEN_PERCENT {
        return None;
    }
    let (task, bios) = makes_room(seen, mount)?;
    let name = match split_task_label(&task.name) {
        Some(_) => task.name.clone(),
        None => task_label(&task.name, task.tid, 1),
    };
    let q2c = stage(journal, "Q2C").map_or(0, |q2c| q2c.total_ns).min(seen.span_ns);
    // It waits within its calls, if the trace has them: not those of mkdir, and a recording of one device has few.
    let calls = || seen.calls.by_process.iter().filter(|group| group.name == name);
    let has_them = calls().map(|group| group.ns.n).sum::<u64>() >= bios;
    let calls = has_them.then(|| calls().map(|group| group.total_ns).fold(0, u64::saturating_add));
    let lost = calls.map_or(q2c, |ns| ns.min(q2c));
    if seen.of_span(lost) < MIN_SPAN_PERCENT {
        return None;
    }
    let most = mount.size_bytes.map_or(MOST_BYTES, |bytes| (bytes / PART_OF_FILESYSTEM).min(MOST_BYTES));
    let enough = writes.bytes.saturating_mul(TRANSACTIONS).next_power_of_two().clamp(LEAST_BYTES, MOST_BYTES).min(most);
    let mib = enough >> 20;
    if enough < held.saturating_mul(2) {
        return None;
    }
    let full = writes.bytes.saturating_mul(TRANSACTIONS).div_ceil(mib << 20);
    let then = (unasked + full as f64).min(commits as f64);
    let source = "jbd2:jbd2_start_commit, block:block_bio_queue";
    let run = |command: &str, names: &[&str]| Step::Run {
        command: command.to_owned(),
        names: names.iter().map(|&name| name.to_owned()).collect(),
    };
    Some(Finding {
        processes: vec![name.clone()],
        what: format!(
            "The journal of {} is full again and again: it has {}, {} were written into it, and {name} waits for room in it.",
            mount.target,
            size(held),
            size(writes.bytes)
        ),
        cause: format!(
            "A change of a file needs room in the journal. There were {} commits in {}, and {name} wrote {} blocks of metadata itself to \
             make room.",
            grouped(commits),
            duration(seen.span_ns),
            grouped(bios)
        ),
        evidence: vec![
            measure("commits", commits as f64, MeasureUnit::Count, source),
            measure("the journal lies within", held as f64, MeasureUnit::Bytes, source),
            measure("written by the journal", writes.bytes as f64, MeasureUnit::Bytes, source),
            measure("bios of metadata by the program", bios as f64, MeasureUnit::Count, source),
        ],
        lost_ns: lost.into(),
        advice: vec![Remedy {
            what: format!("Make the journal larger: {mib} MiB, with the file system not mounted"),
            steps: vec![
                run("umount", &[&mount.target]),
                run("tune2fs -O ^has_journal", &[&mount.source]),
                run(&format!("tune2fs -J size={mib}"), &[&mount.source]),
                run("mount", &[&mount.source, &mount.target]),
            ],
            gain: gain(
                format!("number of commits of the journal of {}", mount.target),
                [100.0 - percent((then * 1e3) as u64, commits.saturating_mul(1000)), 100.0],
                format!(
                    "the kernel commits each {DEFAULT_S} s, and when changes fill a quarter of the journal; less changes nothing"
                ),
            ),
            risk: "while it has no journal, a power cut damages the file system: have a copy; a larger journal takes room, and longer after \
                   a power cut"
                .to_owned(),
        }],
        ..Finding::of(Rule::SmallJournal)
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Work, only};
    use super::*;
    use crate::block::OwnerKind;
    use flashscope_trace::TaskId;

    /// What is changed, and how.
    type Case = (&'static str, fn(&mut Work));

    /// 40 commits in 50 s of a journal of 1 MiB, into which 9 MiB are written.
    fn work() -> Work {
        let mut work = Work::new(50_000_000_000);
        work.bios_of("jbd2/sda-8", 60, "WS", 1_000, 100_000_000);
        work.mount("/data", "ext4", "rw");
        work.owner("mkfiles", OwnerKind::Task, 0, 5 << 20);
        work.block().originators.originators.last_mut().expect("a task").tid = TaskId(9);
        work.usage.commits.insert(TaskId(7), 40);
        let of = |tid, metadata_bios, bytes, range_bytes| TaskWrites {
            device: "8:0".into(),
            tid: TaskId(tid),
            metadata_bios,
            bytes,
            range_bytes,
            ..TaskWrites::default()
        };
        work.usage.writers = vec![of(7, 9000, 9 << 20, 1 << 20), of(9, 5000, 5 << 20, 2 << 30)];
        work
    }

    #[test]
    fn a_journal_that_is_full_is_told() {
        let finding = only(find(&work().seen()));
        assert_eq!(
            finding.what,
            "The journal of /data is full again and again: it has 1 MiB, 9 MiB were written into it, and mkfiles (9) waits for room in \
             it."
        );
        let advice = &finding.advice[0];
        assert!(advice.what.contains("64 MiB") && advice.steps.len() == 4, "{advice:?}");
        // Ten commits of the default, one at the end, and one that fills a quarter.
        let gain = advice.gain.known().expect("a range");
        assert_eq!((gain.least_percent.round(), gain.most_percent), (70.0, 100.0));
        // A small file system has no room for as much.
        let mut small = work();
        small.storage.mounts[0].size_bytes = Some(128 << 20);
        let advice = only(find(&small.seen())).advice.remove(0);
        assert!(advice.what.contains("16 MiB"), "{advice:?}");
        assert_eq!(advice.gain.known().map(|gain| gain.least_percent.round()), Some(65.0));
    }

    #[test]
    fn flushes_of_its_commits_are_no_finding_of_their_own() {
        let has_flushes = |syncs| {
            let mut work = work();
            let flushes = &mut work.block().flushes;
            (flushes.requests.n, flushes.requests.mean) = (80, 100_000_000);
            flushes.requests_total_ns = 8_000_000_000.into();
            work.call("fsync", "app (8)", syncs, 1_000_000, 0);
            super::super::find(&work.seen()).iter().any(|one| one.rule == Rule::FlushStalls)
        };
        assert_eq!((has_flushes(2), has_flushes(30)), (false, true));
    }

    #[test]
    fn it_costs_no_more_than_the_calls_where_these_are_known() {
        let lost = |calls| {
            let mut work = work();
            work.call("openat", "mkfiles (9)", calls, 3_000_000_000, 0);
            only(find(&work.seen())).lost_ns
        };
        let q2c: crate::Evidence<u64> = 6_000_060_000.into();
        assert_eq!((lost(6000), lost(40)), (3_000_000_000.into(), q2c));
    }

    #[test]
    fn room_syncs_and_the_defaults_rhythm_are_not() {
        let cases: [Case; 6] = [
            ("there is room", |work| work.usage.writers[0].range_bytes = 8 << 20),
            ("nobody waits for it", |work| work.usage.writers[1].metadata_bios = 20),
            ("workers write it", |work| work.block().originators.originators[1].kind = OwnerKind::Unknown),
            ("syncs commit", |work| work.call("fsync", "app (9)", 30, 1_000_000, 0)),
            ("commits are rare", |work| work.span_ns = 150_000_000_000),
            ("the file system is too small for more", |work| work.storage.mounts[0].size_bytes = Some(8 << 20)),
        ];
        for (name, change) in cases {
            let mut work = work();
            change(&mut work);
            assert!(find(&work.seen()).is_empty(), "{name}");
        }
    }
}
