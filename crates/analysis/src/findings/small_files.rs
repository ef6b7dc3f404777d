//! A program that writes many small files: each costs a block, an inode and an entry of a directory.

use super::{
    Finding, Gain, MAX_NAMED, MOST_PERCENT, MeasureUnit, Remedy, Rule, Seen, Weight, code, gain, measure, percent,
    small_reads,
};
use crate::calls::{FURTHER, is_copy, is_sync, is_write};
use crate::total::Total as _;
use crate::units::{duration, grouped, size};
use crate::{Evidence, task_name};
use flashscope_trace::FileId;
use std::collections::BTreeMap;

/// Least number of files. Fewer cost little, however small they are.
const MIN_FILES: u64 = 500;
/// Largest size of a small file, bytes. For larger files the amount of data matters, not their number.
const MAX_BYTES: u64 = 16 << 10;
/// Most write calls for a small file that is written once.
const CALLS_A_FILE: u64 = 4;
/// From this ratio of the wait for small reads to the wait for written files on, the reads are the cause.
const MOSTLY_READS: u64 = 2;
/// Least share of one program in the writes to small files, percent.
const MIN_OF_WRITES_PERCENT: f64 = 50.0;

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    one(seen).into_iter().collect()
}

/// Whether the program's own syncs, which `storm` reports, take most of the time for its files.
pub(super) fn is_by_syncs(files: &Finding, storm: &Finding) -> bool {
    let lost = |finding: &Finding| finding.lost_ns.known().copied().unwrap_or(0);
    let of_script = |finding: &Finding| finding.processes.first().filter(|_| finding.processes.len() > 1).cloned();
    let is_script = of_script(files).zip(of_script(storm)).is_some_and(|(a, b)| task_name(&a) == task_name(&b));
    (is_script || files.processes.iter().any(|name| storm.processes.contains(name)))
        && percent(lost(storm), lost(files)) >= MOST_PERCENT
}

/// Whether these processes write many small files and may sync each of them.
pub(super) fn are_synced(seen: &Seen<'_>, processes: &[&str], syncs: u64) -> bool {
    let few = |finding: &Finding| finding.evidence.first().is_none_or(|files| files.value > syncs as f64);
    let is_theirs = |finding: &Finding| finding.processes.iter().any(|name| processes.contains(&name.as_str()));
    one(seen).is_some_and(|finding| is_theirs(&finding) && !few(&finding))
}

/// The largest writer: a process, or all processes of one name if a script starts one for each file.
struct Writer<'a> {
    processes: Vec<&'a str>,
    /// Calls of these processes.
    n: u64,
}

impl Writer<'_> {
    fn is(&self, process: &str) -> bool {
        match self.processes[..] {
            [one] => one == process,
            [first, ..] => task_name(first) == task_name(process),
            [] => false,
        }
    }

    fn label(&self, seen: &Seen<'_>) -> String {
        match self.processes[..] {
            [one] => format!("{one} writes"),
            [first, ..] => format!("{} write", seen.storage.tasks_called(task_name(first), &self.processes)),
            [] => String::new(),
        }
    }
}

/// The writer with most calls. A process with most of the calls of its name is named alone.
fn writer<'a>(seen: &Seen<'a>, is_write: fn(&str) -> bool) -> Option<Writer<'a>> {
    let mut processes: BTreeMap<&str, u64> = BTreeMap::new();
    for group in seen.calls.by_process.iter().filter(|group| is_write(&group.call) && group.name != FURTHER) {
        *processes.entry(&group.name).or_default() += group.ns.n;
    }
    let mut programs: BTreeMap<&str, u64> = BTreeMap::new();
    for (process, n) in &processes {
        *programs.entry(task_name(process)).or_default() += n;
    }
    let (name, n) = programs.into_iter().max_by_key(|(_, n)| *n)?;
    let (first, most) = processes.iter().filter(|(one, _)| task_name(one) == name).max_by_key(|(_, n)| **n)?;
    Some(match most * 2 >= n {
        true => Writer { processes: vec![first], n: *most },
        false => Writer { processes: processes.into_keys().filter(|one| task_name(one) == name).collect(), n },
    })
}

/// What the files cost, with the bytes of data and those that were written for them.
fn cause_of(seen: &Seen<'_>, device: &str, data: u64, written: u64) -> String {
    let each = "Each file takes a block of its own, an inode and an entry of a directory, however little is in it.";
    if written <= data {
        return each.to_owned();
    }
    let device = seen.storage.device_name(device);
    format!("{each} {} were written to {device} for {} of data.", size(written), size(data))
}

fn one(seen: &Seen<'_>) -> Option<Finding> {
    // A copy call is listed with the file that it reads. Each such file stands for one written file of the same file system.
    of_calls(seen, is_write).or_else(|| of_calls(seen, is_copy))
}

fn of_calls(seen: &Seen<'_>, is_write: fn(&str) -> bool) -> Option<Finding> {
    let mut small: Vec<(FileId, u64, u64)> = Vec::new();
    let (mut elsewhere, mut small_ns) = (0, 0u64);
    for group in seen.calls.by_file.iter().filter(|group| is_write(&group.call)) {
        let Some(file) = FileId::parse(&group.name) else { continue };
        if group.ns.n <= CALLS_A_FILE && (1..=MAX_BYTES).contains(&group.bytes) {
            small.push((file, group.ns.n, group.bytes));
            small_ns = small_ns.saturating_add(group.total_ns);
        } else {
            elsewhere += group.ns.n;
        }
    }
    let (files, writes) = (small.len() as u64, small.iter().map(|(_, n, _)| n).sum::<u64>());
    let small_bytes = small.iter().map(|(.., bytes)| *bytes).total();
    // Files beyond the limit share one group, whose number of files is unknown.
    let rest = seen.calls.by_file.iter().find(|group| is_write(&group.call) && group.name == FURTHER);
    let at_least = if rest.is_some() { "at least " } else { "" };
    let writer = writer(seen, is_write)?;
    // Calls by file are those of all processes. The program's share is at least its calls less those of other files and processes.
    let all: u64 = seen.calls.by_process.iter().filter(|group| is_write(&group.call)).map(|group| group.ns.n).sum();
    let own = writer.n.saturating_sub(elsewhere).max(writes.saturating_sub(all - writer.n)).min(writes);
    if files < MIN_FILES || percent(own, writes) < MIN_OF_WRITES_PERCENT {
        return None;
    }
    let device = small[0].0.device.map(|device| device.to_string()).unwrap_or_default();
    let data = data_of(seen, &device).max(small_bytes);
    // A `sync` after it waits mostly for these files. An fsync of another program does not.
    let is_most = small_bytes.saturating_add(rest.map_or(0, |rest| rest.bytes)).saturating_mul(2) >= data;
    let mine = || seen.calls.by_process.iter().filter(|group| writer.is(&group.name));
    let makes = |call: &str| is_sync(call) || call.starts_with("open") || call.starts_with("rename");
    let write_ns = mine().filter(|group| is_write(&group.call)).map(|group| group.total_ns).total();
    let own_ns = mine().filter(|group| makes(&group.call)).map(|group| group.total_ns).total();
    let whole = |call: &str| is_most && matches!(call, "sync" | "syncfs");
    let others = seen.calls.by_process.iter().filter(|group| !writer.is(&group.name) && whole(&group.call));
    let waited = write_ns
        .min(small_ns.saturating_add(rest.map_or(0, |rest| rest.total_ns)))
        .saturating_add(own_ns)
        .saturating_add(others.map(|group| group.total_ns).total())
        .min(seen.span_ns);
    if !seen.matters(waited) {
        return None;
    }
    let written = seen.device_group(&device, "writes").map_or(0, |group| group.bytes);
    let mut cause = cause_of(seen, &device, data, written);
    let reads = reads_ns(seen, |name| writer.is(name)).min(waited);
    if is_write("copy_file_range") && percent(reads, waited) >= MOST_PERCENT {
        cause += &format!(" Of this time {} are waits for reads of the files that it copies.", duration(reads));
    }
    let source = "syscalls:sys_enter_*, sys_exit_*; events of the page cache within them";
    let mut evidence = vec![
        measure("files of at most 16 KiB that were written", files as f64, MeasureUnit::Count, source),
        measure("bytes in them", small_bytes as f64, MeasureUnit::Bytes, source),
        measure(
            if is_most { "time of the calls and of syncs" } else { "time of the calls" },
            waited as f64,
            MeasureUnit::Ns,
            source,
        ),
    ];
    if written > 0 {
        let source = "block:block_bio_queue";
        evidence.push(measure("written to the device", written as f64, MeasureUnit::Bytes, source));
    }
    let gain = gain_of(seen, &device, data, written);
    Some(Finding {
        rule: Rule::SmallFiles,
        weight: match reads_ns(seen, |_| true) >= waited.saturating_mul(MOSTLY_READS) {
            true => Weight::Overview,
            false => Weight::Cost,
        },
        processes: writer.processes.iter().take(MAX_NAMED).map(|&name| name.to_owned()).collect(),
        what: format!(
            "{} most of {at_least}{} files of {} on average: these calls{} take {} of {}.",
            writer.label(seen),
            grouped(files),
            size(small_bytes / files),
            if is_most { ", and syncs of all," } else { "" },
            duration(waited),
            duration(seen.span_ns)
        ),
        cause,
        evidence,
        lost_ns: waited.into(),
        lost_bytes: Some(written.saturating_sub(data)),
        advice: vec![Remedy {
            what: "Keep the records in one file (a database or an archive), or in fewer and larger ones".to_owned(),
            steps: vec![code::WRITE_ARCHIVE.step()],
            gain,
            risk: "programs that expect a file for each have to be changed".to_owned(),
        }],
        uncertain: None,
    })
}

/// Bytes that programs write to files of a device, small and large. The device of files beyond the limit is unknown.
fn data_of(seen: &Seen<'_>, device: &str) -> u64 {
    let is_of = |name: &str| name == FURTHER || name.split(' ').next() == Some(device);
    let all = seen.calls.by_file.iter().filter(|group| is_write(&group.call) || is_copy(&group.call));
    all.filter(|group| is_of(&group.name)).map(|group| group.bytes).total()
}

/// The gain of one file in place of many. Programs wrote `bytes` to files, and `written` went to the device.
fn gain_of(seen: &Seen<'_>, device: &str, bytes: u64, written: u64) -> Evidence<Gain> {
    match written > bytes {
        true => gain(
            format!("bytes written to {}", seen.storage.device_name(device)),
            [0.0, 100.0 - percent(bytes, written)],
            "the data itself has to be written; what else was written there meanwhile stays",
        ),
        // Raw flash has no bios.
        false if !seen.is_used(device) && seen.programs_flash() => Evidence::unknown(
            "the trace does not show which of the programmed pages are of these files alone",
            "compare the bytes programmed of two recordings: flashscope diff",
        ),
        false => Evidence::unknown(
            "the files were not yet written to the device when the recording ended",
            "record until they are: sync at the end",
        ),
    }
}

/// A program's wait for small reads, for example while it copies a tree. Then the written files are not the main cause.
fn reads_ns(seen: &Seen<'_>, is_of: impl Fn(&str) -> bool) -> u64 {
    let found = small_reads::find(seen);
    let of = found.iter().filter(|finding| finding.processes.iter().any(|name| is_of(name)));
    of.filter_map(|finding| finding.lost_ns.known().copied()).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::Step;
    use super::super::testing::{Work, only};
    use super::*;

    /// A program that writes so many files, so many bytes into each.
    fn work(files: u64, bytes: u64, calls: u64, ns: u64) -> Work {
        let mut work = Work::new(1_000_000_000);
        work.bios(4000, "W", 1_000, 10_000);
        work.call("write", "tar (7)", files * calls, ns / 2, files * bytes);
        work.call("openat", "tar (7)", files, ns / 2, 0);
        for inode in 0..files {
            work.file_call("write", &format!("8:0 inode {}", inode + 12), calls, ns / files);
            work.calls.by_file.last_mut().expect("a file").bytes = bytes;
        }
        work
    }

    /// A copy of a tree that is not in memory: each file is read before it is written.
    #[test]
    fn where_reads_take_longer_it_is_part_of_the_overview() {
        use crate::usage::TaskReads;
        use flashscope_trace::TaskId;
        let mut work = work(1000, 4000, 1, 100_000_000);
        assert_eq!(only(find(&work.seen())).weight, Weight::Cost);
        work.bios_of("tar", 800, "R", 1_000, 999_000);
        let mut gaps = vec![0; 20];
        gaps[19] = 799;
        let (device, tid, active_ns) = ("8:0".to_owned(), TaskId(7), 799 * 1_000_001);
        let bytes = 800 * 4096;
        work.usage.readers.push(TaskReads { device, tid, bios: 800, bytes, active_ns, gaps, ..TaskReads::default() });
        assert_eq!(only(find(&work.seen())).weight, Weight::Overview);
    }

    #[test]
    fn many_small_files_are_told_with_what_they_cost() {
        let mut work = work(2000, 300, 1, 200_000_000);
        work.call("syncfs", "sync (8)", 1, 300_000_000, 0);
        let finding = only(find(&work.seen()));
        assert_eq!(
            finding.what,
            "tar (7) writes most of 2,000 files of 300 B on average: these calls, and syncs of all, take 500.00 ms of 1.00 s."
        );
        assert!(finding.cause.contains("15.6 MiB were written to 8:0 for 586 KiB of data."), "{}", finding.cause);
        // 4,000 blocks less the data, of 4,000 blocks.
        assert_eq!(finding.advice[0].gain.known().map(|gain| gain.most_percent.round()), Some(96.0));
    }

    #[test]
    fn of_more_files_than_are_kept_apart_the_number_is_at_least() {
        let mut work = work(2000, 300, 1, 200_000_000);
        work.file_call("write", FURTHER, 1000, 100_000_000);
        work.calls.by_file.last_mut().expect("a group").bytes = 300_000;
        let finding = only(find(&work.seen()));
        assert!(finding.what.starts_with("tar (7) writes most of at least 2,000 files of 300 B"), "{}", finding.what);
        assert!(finding.cause.contains("for 879 KiB of data."), "{}", finding.cause);
    }

    /// An archive is unpacked: 4,000 KiB in small files, and 100 MiB in ten large ones.
    #[test]
    fn large_files_beside_them_are_data_too() {
        let mut work = work(1000, 4096, 1, 200_000_000);
        work.bios(20_000, "W", 1_000, 10_000);
        work.call("write", "tar (7)", 1000, 90_000_000, 100 << 20);
        for inode in 0..10 {
            work.file_call("write", &format!("8:0 inode {}", inode + 5000), 100, 9_000_000);
            work.calls.by_file.last_mut().expect("a file").bytes = 10 << 20;
        }
        work.call("syncfs", "sync (8)", 1, 300_000_000, 0);
        let found = find(&work.seen());
        let finding = only(found);
        // Its writes: 190 ms, of them no more than 200 ms in small files; and 100 ms of open(). The sync is for the large ones.
        assert!(
            finding.what.ends_with("1,000 files of 4 KiB on average: these calls take 290.00 ms of 1.00 s."),
            "{}",
            finding.what
        );
        assert_eq!(finding.evidence[1].value, 4_096_000.0);
        // The device has 24,000 blocks of 4 KiB (93.75 MiB), which is less than the data.
        assert!(!finding.cause.contains("were written"), "{}", finding.cause);
        assert!(finding.advice[0].gain.known().is_none());
    }

    #[test]
    fn who_writes_as_often_into_one_file_is_not_named() {
        let mut work = work(800, 2000, 1, 200_000_000);
        work.call("write", "strace (8)", 20_000, 100_000_000, 900_000);
        work.file_call("write", "8:16 inode 12", 20_000, 100_000_000);
        work.calls.by_file.last_mut().expect("a log").bytes = 900_000;
        assert!(find(&work.seen()).is_empty());
        // Alone, what is not in the log is in the small files.
        work.calls.by_process.retain(|group| group.name != "tar (7)");
        work.calls.by_process[0].ns.n = 20_800;
        assert!(only(find(&work.seen())).what.starts_with("strace (8) writes most of 800 files"));
    }

    /// A script that starts `cp` for each file; and where one of them writes most, it is named alone.
    #[test]
    fn processes_of_one_name_write_together() {
        let script = |of_first: u64| {
            let mut work = work(800, 2000, 1, 200_000_000);
            work.calls.by_process.clear();
            for tid in 0..800 {
                let n = if tid == 0 { of_first } else { 1 };
                work.call("write", &format!("cp ({})", 100 + tid), n, n * 200_000, 2000);
            }
            // Other programs beside them.
            work.call("write", "sh (7)", 300, 1_000_000, 300);
            only(find(&work.seen()))
        };
        let finding = script(1);
        assert!(
            finding.what.starts_with("800 tasks called cp write most of 800 files of 1.95 KiB"),
            "{}",
            finding.what
        );
        assert_eq!((finding.processes.len(), finding.processes[0].as_str()), (MAX_NAMED, "cp (100)"));
        let finding = script(900);
        assert_eq!(finding.processes, ["cp (100)"]);
        assert!(finding.what.starts_with("cp (100) writes most of 800 files"), "{}", finding.what);
    }

    /// `cp -r` of files that are not in memory: most of the time in its calls is their reads.
    #[test]
    fn copies_say_what_they_wait_for_reads() {
        use crate::usage::TaskReads;
        use flashscope_trace::TaskId;
        let cause = |ns: u64| {
            let mut work = work(800, 2000, 1, 800_000_000);
            for group in work.calls.by_process.iter_mut().chain(&mut work.calls.by_file) {
                if group.call == "write" {
                    group.call = "copy_file_range".to_owned();
                }
            }
            work.bios_of("tar", 800, "R", 1_000, ns);
            let mut gaps = vec![0; 21];
            gaps[20] = 799;
            let (device, tid, active_ns) = ("8:0".to_owned(), TaskId(7), 799 * (ns + 1_001));
            let bytes = 800 * 4096;
            work.usage.readers.push(TaskReads {
                device,
                tid,
                bios: 800,
                bytes,
                active_ns,
                gaps,
                ..TaskReads::default()
            });
            only(find(&work.seen())).cause
        };
        assert!(
            cause(600_000).contains("480.80 ms are waits for reads of the files that it copies."),
            "{}",
            cause(600_000)
        );
        assert!(!cause(300_000).contains("it copies"));
    }

    #[test]
    fn copies_of_small_files_write_as_many() {
        let mut work = work(800, 2000, 1, 200_000_000);
        for group in work.calls.by_process.iter_mut().chain(&mut work.calls.by_file) {
            if group.call == "write" {
                group.call = "copy_file_range".to_owned();
            }
        }
        let finding = only(find(&work.seen()));
        assert!(finding.what.starts_with("tar (7) writes most of 800 files of 1.95 KiB"), "{}", finding.what);
    }

    #[test]
    fn few_large_quick_ones_and_one_log_are_not() {
        for (files, bytes, calls, ns) in [
            (400, 300, 1, 200_000_000),
            (2000, 64 << 10, 1, 200_000_000),
            (2000, 300, 1, 8_000_000),
            (600, 4000, 50, 200_000_000),
        ] {
            assert!(find(&work(files, bytes, calls, ns).seen()).is_empty(), "{files} {bytes} {calls} {ns}");
        }
        // Written by many programs, each some.
        let mut shared = work(2000, 300, 1, 200_000_000);
        for tid in 0..10 {
            shared.call("write", &format!("cc{tid} (1{tid})"), 200, 20_000_000, 60_000);
        }
        shared.calls.by_process.remove(0);
        assert!(find(&shared.seen()).is_empty());
    }

    /// Each file is synced: the syncs stand first, and their advice is about files. One log that is synced as well is no such program.
    #[test]
    fn files_that_are_synced_one_by_one_are_a_storm() {
        let synced = |syncs| {
            let mut work = work(1000, 2000, 1, 20_000_000);
            work.call("fsync", "tar (7)", syncs, 500_000_000, 0);
            super::super::find(&work.seen())
        };
        let all = synced(1000);
        assert_eq!([all[0].rule, all[1].rule], [Rule::FsyncStorm, Rule::SmallFiles]);
        let line = |all: &[Finding]| all[0].advice[0].steps.clone();
        assert_eq!(line(&all), [Step::Code { line: "if (++files % 10 == 0) syncfs(directory);".into() }]);
        assert_eq!(
            all[0].advice[0].gain.known().map(|gain| gain.of.as_str()),
            Some("time in fsync() and syncfs() of tar (7)")
        );
        let rare = synced(300);
        assert_eq!(line(&rare), [Step::Code { line: "if (++records % 10 == 0) fsync(fd);".into() }]);
    }

    #[test]
    fn small_files_without_syncs_of_their_own_stand_first() {
        let mut work = work(1000, 2000, 1, 400_000_000);
        work.call("fsync", "tar (7)", 100, 100_000_000, 0);
        let all = super::super::find(&work.seen());
        assert_eq!([all[0].rule, all[1].rule], [Rule::SmallFiles, Rule::FsyncStorm]);
    }
}
