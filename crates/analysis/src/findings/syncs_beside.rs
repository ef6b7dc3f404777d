//! A few long syncs of little data, beside a program that writes much to the same device.
//!
//! `fsync_storm` has those who sync often. Of a few calls the trace hardly shows how long each would take alone: the cause is named as
//! what happened meanwhile, and no gain is promised. `sync` and `syncfs` write everybody's data on purpose, and are left out.

use super::behind_another::{GREEDY, lower_priority};
use super::fsync_advice::listed;
use super::{Finding, MAX_NAMED, MIN_SPAN_PERCENT, MeasureUnit, Remedy, Rule, Seen, measure, percent};
use crate::calls::{CallGroup, is_write};
use crate::total::Total as _;
use crate::units::{duration, grouped, size};
use crate::{Evidence, task_name};
use flashscope_trace::FileId;
use std::collections::{BTreeMap, BTreeSet};

/// Fewer calls are a document that is saved; from 20 on `fsync_storm` has them.
const MIN_CALLS: u64 = 5;
const MAX_CALLS: u64 = 19;
/// Shorter calls are not noticed, nanoseconds.
const MIN_MEAN_NS: u64 = 5_000_000;
const MIN_NS: u64 = 100_000_000;
/// From this many bytes a call on, it has work of its own.
const MAX_OWN_BYTES: u64 = 64 << 10;
/// Least bytes that the other program writes.
const MIN_BESIDE_BYTES: u64 = 4 << 20;
/// Least share of all syncs, by number and by files on one device, per cent.
const MOST_PERCENT: f64 = 75.0;

fn is_of_file(call: &str) -> bool {
    matches!(call, "fsync" | "fdatasync")
}

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let mut by_name: BTreeMap<&str, Vec<&CallGroup>> = BTreeMap::new();
    for group in seen.calls.by_process.iter().filter(|group| is_of_file(&group.call)) {
        by_name.entry(task_name(&group.name)).or_default().push(group);
    }
    by_name.into_iter().filter_map(|(name, syncs)| of_name(seen, name, &syncs)).collect()
}

fn of_name(seen: &Seen<'_>, name: &str, syncs: &[&CallGroup]) -> Option<Finding> {
    let n = syncs.iter().map(|group| group.ns.n).total();
    let ns = syncs.iter().map(|group| group.total_ns).total();
    let (all, _) = seen.calls.total(is_of_file);
    if !(MIN_CALLS..=MAX_CALLS).contains(&n)
        || ns < MIN_NS.max(n.saturating_mul(MIN_MEAN_NS))
        || seen.of_span(ns) < MIN_SPAN_PERCENT
        || percent(n, all) < MOST_PERCENT
    {
        return None;
    }
    let (device, own) = device_of_files(seen, n)?;
    let writer = writer_to(seen, &device, name)?;
    if own / n >= MAX_OWN_BYTES || writer.bytes < MIN_BESIDE_BYTES.max(own.saturating_mul(GREEDY)) {
        return None;
    }
    let names: BTreeSet<&str> = syncs.iter().map(|group| group.name.as_str()).collect();
    let names: Vec<&str> = names.into_iter().collect();
    let who = match names[..] {
        [one] => one.to_owned(),
        _ => seen.storage.tasks_called(name, &names),
    };
    let calls: BTreeSet<&str> = syncs.iter().map(|group| group.call.as_str()).collect();
    let called = listed(&calls.into_iter().collect::<Vec<_>>());
    let source = "syscalls:sys_enter_*, sys_exit_*";
    let waits = if names.len() > 1 { "wait" } else { "waits" };
    Some(Finding {
        processes: [names[0], &writer.name].iter().take(MAX_NAMED).map(|&one| one.to_owned()).collect(),
        what: format!(
            "{who} {waits} {} in {} calls of {called}, {} each, for {} of data each.",
            duration(ns),
            grouped(n),
            duration(ns / n),
            size(own / n)
        ),
        cause: format!(
            "Meanwhile {} writes {} to {}: what a sync waits for (the device's queue, a commit of the journal, a flush) has such data \
             before it.",
            writer.name,
            size(writer.bytes),
            seen.storage.device_name(&device)
        ),
        evidence: vec![
            measure(&format!("calls of {called}"), n as f64, MeasureUnit::Count, source),
            measure("time in them", ns as f64, MeasureUnit::Ns, source),
            measure("written to their files", own as f64, MeasureUnit::Bytes, source),
            measure("written by the other program", writer.bytes as f64, MeasureUnit::Bytes, source),
        ],
        lost_ns: ns.into(),
        advice: vec![Remedy {
            what: format!(
                "Have {} write more slowly, at another time, or with ionice -c 3; or keep these files on another device",
                writer.name
            ),
            steps: lower_priority(&writer.name),
            gain: Evidence::unknown(
                "how long these calls take alone is not in the trace",
                "record them without the other program, and compare: flashscope diff",
            ),
            risk: "it may take much longer; without a scheduler that knows priorities (mq-deadline, bfq) they have no effect"
                .to_owned(),
        }],
        ..Finding::of(Rule::BehindAnother)
    })
}

/// The device of nearly all files that these calls sync, and the bytes written to these files.
fn device_of_files(seen: &Seen<'_>, n: u64) -> Option<(String, u64)> {
    let mut devices: BTreeMap<String, (u64, BTreeSet<&str>)> = BTreeMap::new();
    for group in seen.calls.by_file.iter().filter(|group| is_of_file(&group.call)) {
        let Some(device) = FileId::parse(&group.name).and_then(|file| file.device) else { continue };
        let of = devices.entry(device.to_string()).or_default();
        of.0 = of.0.saturating_add(group.ns.n);
        of.1.insert(&group.name);
    }
    let (device, (known, files)) = devices.into_iter().max_by_key(|(_, (known, _))| *known)?;
    if percent(known, n) < MOST_PERCENT {
        return None;
    }
    let writes = seen.calls.by_file.iter().filter(|group| is_write(&group.call) && files.contains(group.name.as_str()));
    Some((device, writes.map(|group| group.bytes).total()))
}

struct Writer {
    name: String,
    bytes: u64,
}

/// The program that writes most, if the files of this device must have most of that. The trace does not say which process wrote which file.
fn writer_to(seen: &Seen<'_>, device: &str, syncs: &str) -> Option<Writer> {
    let mut by_process: BTreeMap<&str, u64> = BTreeMap::new();
    for group in seen.calls.by_process.iter().filter(|group| is_write(&group.call)) {
        let bytes = by_process.entry(&group.name).or_default();
        *bytes = bytes.saturating_add(group.bytes);
    }
    let all = by_process.values().copied().total();
    let (&name, &most) = by_process.iter().max_by_key(|(_, bytes)| **bytes)?;
    let (_, _, there) = seen.calls_on(device, is_write);
    let bytes = there.saturating_sub(all - most).min(most);
    (task_name(name) != syncs && bytes.saturating_mul(2) >= most).then(|| Writer { name: name.to_owned(), bytes })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Work, only};
    use super::*;

    /// `sync FILE` for each line of a script, beside dd.
    fn work(n: u64, each_ns: u64, own: u64, beside: u64, there: &str) -> Work {
        let mut work = Work::new(2_300_000_000);
        for tid in 0..n {
            work.call("fsync", &format!("sync ({})", 100 + tid), 1, each_ns, 0);
        }
        work.file_call("fsync", "8:0 inode 12", n, n * each_ns);
        work.call("write", "bash (7)", n, 1_000_000, own);
        work.call("write", "dd (8)", 150, 300_000_000, beside);
        for (file, bytes) in [("8:0 inode 12", own), (there, beside)] {
            work.file_call("write", file, 15, 1_000_000);
            work.calls.by_file.last_mut().expect("a file").bytes = bytes;
        }
        work
    }

    #[test]
    fn a_few_long_syncs_beside_a_writer_are_told() {
        let finding = only(find(&work(15, 31_000_000, 75, 150 << 20, "8:0 inode 13").seen()));
        let what = "15 tasks called sync wait 465.00 ms in 15 calls of fsync(), 31.00 ms each, for 5 B of data each.";
        assert_eq!(finding.what, what);
        assert!(finding.cause.starts_with("Meanwhile dd (8) writes 150 MiB to 8:0:"), "{}", finding.cause);
        assert_eq!(finding.processes[1], "dd (8)");
        assert!(finding.advice[0].gain.known().is_none());
    }

    #[test]
    fn others_are_not() {
        for (n, each_ns, own, beside, there) in [
            // Rare, short, with data of their own, beside little, and beside a writer on another device.
            (4, 31_000_000, 75, 150 << 20, "8:0 inode 13"),
            (20, 31_000_000, 75, 150 << 20, "8:0 inode 13"),
            (15, 4_000_000, 75, 150 << 20, "8:0 inode 13"),
            (15, 31_000_000, 15 << 16, 150 << 20, "8:0 inode 13"),
            (15, 31_000_000, 75, 1 << 20, "8:0 inode 13"),
            (15, 31_000_000, 75, 150 << 20, "8:16 inode 13"),
        ] {
            assert!(
                find(&work(n, each_ns, own, beside, there).seen()).is_empty(),
                "{n} {each_ns} {own} {beside} {there}"
            );
        }
    }
}
