//! A program that syncs so often that it spends its time in it.

use super::behind_another::{GREEDY, moved};
use super::databases::{Syncs, commit_log, of_sqlite, rollback_journal, write_ahead_log};
use super::fsync_advice::{
    Synced, calls_of, data_alone, is_of_a_range, less_often, listed, of_dpkg, of_lower_priority, of_script,
    one_file_alone,
};
use super::{
    Finding, Gain, MAX_NAMED, MIN_SPAN_PERCENT, Measure, MeasureUnit, Rule, Seen, Weight, measure, percent, small_files,
};
use crate::block::OwnerKind;
use crate::calls::{CallGroup, is_sync, is_write};
use crate::total::Total as _;
use crate::units::{duration, grouped, size};
use crate::{Evidence, OWN_RECORDING, task_name};
use flashscope_trace::FileId;
use std::collections::BTreeMap;

/// Least number of calls. A program that saves a document syncs a handful of times.
const MIN_CALLS: u64 = 20;
/// Least number of processes of one name that are taken as one script's.
const MIN_PROCESSES: usize = 5;
/// From this many bytes written between two calls on, each call has work of its own. Programs are advised to gather as much.
const ENOUGH_BYTES_A_CALL: u64 = 64 << 10;
/// From this share of all calls on, a statement about all calls also holds for these, percent.
const MOST_OF_ALL_PERCENT: f64 = 90.0;
/// Least share of the calls that have to show the file, percent.
const MOST_KNOWN_PERCENT: f64 = 75.0;
/// If others cause at least this share of the time of the process's own bios, they are named as the reason, percent.
const MOST_BEHIND_PERCENT: f64 = 50.0;
/// They also have to cause this share of the time in its syncs, percent.
const MIN_BEHIND_PERCENT: f64 = 20.0;
/// Most syncs of a file that is written once.
const SYNCS_A_FILE: u64 = 2;
/// Most files with more syncs for which a directory is looked up.
const MAX_LOOKED_UP: usize = 8;

const FLUSHES: &str = "flushes of the device";
const DPKG: &str = "dpkg";

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let mut processes: Vec<&str> = Vec::new();
    for group in seen.calls.by_process.iter().filter(|group| is_sync(&group.call)) {
        if !processes.contains(&group.name.as_str()) {
            processes.push(&group.name);
        }
    }
    let mut by_name: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for process in processes {
        by_name.entry(process.rsplit_once(" (").map_or(process, |(name, _)| name)).or_default().push(process);
    }
    by_name.iter().flat_map(|(name, all)| of_name(seen, name, all)).collect()
}

/// One finding for all tasks of a name in these cases: they are threads of one process; they sync one file or databases, as processes of a
/// server do; five of them sync files of their own; or a script starts one for each sync. Otherwise each has a finding of its own.
fn of_name(seen: &Seen<'_>, name: &str, all: &[&str]) -> Vec<Finding> {
    let together = || of_processes(seen, &seen.storage.tasks_called(name, all), all);
    let syncs: Syncs = syncs_of(seen, all).map(Syncs::of).sum();
    // A process with nearly all of the calls has a finding of its own.
    let most = all.iter().map(|one| syncs_of(seen, &[*one]).map(Syncs::of).sum::<Syncs>().n).max().unwrap_or(0);
    let are_many = percent(most, syncs.n) < MOST_OF_ALL_PERCENT;
    let are_of_databases =
        || !rollback_journal(seen, syncs, false, "").is_empty() || !write_ahead_log(seen, syncs, "").is_empty();
    let are_one = || {
        synced_file(seen, syncs.n, syncs.ns).is_some()
            || are_many && (seen.storage.are_threads_of_one(all) || are_of_databases())
            || are_many && all.len() >= MIN_PROCESSES && have_own_files(seen, syncs.n)
    };
    if all.len() > 1 && are_one() {
        return together().into_iter().collect();
    }
    let (mut found, mut rest) = (Vec::new(), Vec::new());
    for process in all {
        match of_processes(seen, process, &[process]) {
            Some(finding) => found.push(finding),
            None => rest.push(*process),
        }
    }
    if rest.len() >= MIN_PROCESSES {
        found.extend(of_processes(seen, &seen.storage.tasks_called(name, &rest), &rest));
    }
    found
}

fn syncs_of<'a>(seen: &Seen<'a>, names: &[&str]) -> impl Iterator<Item = &'a CallGroup> {
    seen.calls.by_process.iter().filter(|group| is_sync(&group.call) && names.contains(&group.name.as_str()))
}

fn of_processes(seen: &Seen<'_>, process: &str, names: &[&str]) -> Option<Finding> {
    let mine = || seen.calls.by_process.iter().filter(|group| names.contains(&group.name.as_str()));
    let syncs: Vec<_> = syncs_of(seen, names).collect();
    let all: Syncs = syncs.iter().copied().map(Syncs::of).sum();
    let Syncs { n, ns, .. } = all;
    // One long call writes what came before: fewer calls do not save that.
    let longest = longest_of(&syncs, ns);
    let of_many = ns.saturating_sub(longest);
    if n < MIN_CALLS || seen.of_span(of_many) < MIN_SPAN_PERCENT {
        return None;
    }
    let (writes, written) =
        mine().filter(|group| is_write(&group.call)).fold((0, 0), |(n, sum), g| (n + g.ns.n, sum + g.bytes));
    // How much was written is known only where the trace shows files.
    let each = (writes > 0 && written > 0).then_some(written / n);
    if each.is_some_and(|bytes| bytes >= ENOUGH_BYTES_A_CALL) {
        return None;
    }
    let named = names_of(&syncs);
    // The call to make less often. sync_file_range() before an fsync() only starts the writes; it is no sync of its own.
    let call = &syncs.iter().find(|group| !is_of_a_range(&group.call)).unwrap_or(&syncs[0]).call;
    let wrote = each.map_or(String::new(), |bytes| format!(", one for each {} written", size(bytes)));
    let mut evidence = vec![
        measure(&format!("calls of {named}"), n as f64, MeasureUnit::Count, "syscalls:sys_enter_*, sys_exit_*"),
        measure("time in them", ns as f64, MeasureUnit::Ns, "syscalls:sys_enter_*, sys_exit_*"),
    ];
    let (mut waited, journal_percent) = waits(seen, ns, call, &mut evidence);
    let behind = behind_others(seen, process, ns);
    if let Some((culprit, part)) = behind {
        waited += &format!(" Of what its own bios take, {part:.0} % is behind others, most behind {culprit}.");
    }
    let of = format!("time in {named} of {process}");
    let synced = synced_file(seen, n, ns);
    let renamed: u64 = mine().filter(|group| group.call.starts_with("rename")).map(|group| group.ns.n).sum();
    let whole: u64 = syncs.iter().filter(|group| !is_of_a_range(&group.call)).map(|group| group.ns.n).sum();
    let of_what = if renamed > 0 && renamed * 2 >= whole {
        Synced::Renamed
    } else if writes == 0 && call == "fsync" && synced.is_some_and(|(_, is_directory)| is_directory) {
        Synced::Names
    } else if is_script(names, n) && have_own_files(seen, n) {
        Synced::FilesOfScript
    } else if synced.is_none() && (small_files::are_synced(seen, names, whole) || have_own_files(seen, n)) {
        Synced::Files
    } else {
        Synced::Records
    };
    // The program does not sync the log of a database itself. It decides how many transactions it makes.
    let is_renamed = of_what == Synced::Renamed;
    let mut advice = of_sqlite(seen, all, is_renamed, &of);
    let is_of_sqlite = !advice.is_empty();
    if is_renamed && task_name(names[0]) == DPKG {
        advice.extend(of_dpkg(whole, n - whole));
    } else if !is_of_sqlite {
        let mut less = less_often(call, &of_what.gain_of(&syncs, process), of_what, || directory_of_files(seen));
        if of_what == Synced::Records && is_of_script(names, n) {
            less.steps = vec![of_script(call)];
        }
        less.gain = less_where_bytes_stay(
            seen,
            less.gain,
            all,
            longest,
            writes == 0 && matches!(call.as_str(), "sync" | "syncfs"),
        );
        advice.push(less);
    }
    if call == "sync" {
        advice.push(one_file_alone());
    }
    advice.splice(0..0, commit_log(seen, all, &of).filter(|_| !is_of_sqlite));
    if let Some((culprit, part)) = behind {
        advice.insert(0, of_lower_priority(seen, culprit, part));
    }
    if call == "fsync" && journal_percent > 10.0 && !is_of_sqlite && of_what == Synced::Records {
        advice.push(data_alone(journal_percent));
    }
    Some(Finding {
        rule: Rule::FsyncStorm,
        weight: Weight::Cost,
        processes: names.iter().take(MAX_NAMED).map(|&name| name.to_owned()).collect(),
        what: format!(
            "{process} {} in {} calls of {named}{}{wrote}.",
            spends(seen, names, ns),
            grouped(n),
            synced.map_or(String::new(), |(file, _)| format!(" of {file}")),
        ),
        cause: format!("{}, and takes {} on average.{waited}", returns_when(call, &named), duration(ns / n)),
        evidence,
        lost_ns: ns.into(),
        lost_bytes: None,
        advice,
        uncertain: None,
    })
}

fn returns_when(call: &str, named: &str) -> &'static str {
    match is_of_a_range(call) {
        true => "Each call returns once its range is written, or handed to the device, by its flags",
        false if named.contains("sync_file_range") => {
            "Each call returns once the device has the data (of sync_file_range(): as its flags say)"
        }
        false => "Each call returns once the device has the data",
    }
}

fn spends(seen: &Seen<'_>, names: &[&str], ns: u64) -> String {
    match names.len() > 1 {
        // They run in parallel, so the sum may be longer than the recording.
        true => format!("spend {} in all, within {},", duration(ns), duration(seen.span_ns)),
        false => format!("spends {} of {}", duration(ns), duration(seen.span_ns)),
    }
}

/// The longest call, if it has over half of the time; else 0.
fn longest_of(syncs: &[&CallGroup], ns: u64) -> u64 {
    let longest = syncs.iter().map(|group| group.ns.max).max();
    longest.filter(|&longest| longest.saturating_mul(2) > ns).unwrap_or(0)
}

/// The gain of fewer calls. What one long call writes stays, and what calls that write everybody's data (`is_of_all`) write.
fn less_where_bytes_stay(
    seen: &Seen<'_>,
    gain: Evidence<Gain>,
    syncs: Syncs,
    longest: u64,
    is_of_all: bool,
) -> Evidence<Gain> {
    let writes = seen.calls.by_process.iter().filter(|group| is_of_all && is_write(&group.call));
    let each = writes.map(|group| group.bytes).total() / syncs.n.max(1);
    if each >= ENOUGH_BYTES_A_CALL {
        return Evidence::unknown(
            format!("each call writes {} of all programs on average, and fewer calls write as much", size(each)),
            "try it, and compare two recordings: flashscope diff",
        );
    }
    match gain {
        Evidence::Known(mut gain) if longest > 0 => {
            gain.least_percent *= syncs.ns.saturating_sub(longest) as f64 / syncs.ns.max(1) as f64;
            gain.basis += &format!("; the longest call, {}, may stay as it is", duration(longest));
            Evidence::Known(gain)
        }
        gain => gain,
    }
}

/// Names of the calls, each once, the longest total time first: "fsync() and sync_file_range()".
fn names_of(syncs: &[&CallGroup]) -> String {
    listed(&calls_of(syncs))
}

/// Whether a script starts a process for each of its syncs.
fn is_script(names: &[&str], n: u64) -> bool {
    names.len() >= MIN_PROCESSES && n <= names.len() as u64 * SYNCS_A_FILE
}

/// Whether a script makes the syncs: by sync(1), or by tools that sync at their end (`dd conv=fsync`).
fn is_of_script(names: &[&str], n: u64) -> bool {
    match task_name(names[0]) {
        "sync" => true,
        "dd" | "busybox" => is_script(names, n),
        _ => false,
    }
}

fn synced_files<'a>(seen: &Seen<'a>) -> impl Iterator<Item = (FileId, &'a CallGroup)> {
    let groups = seen.calls.by_file.iter().filter(|group| is_sync(&group.call));
    groups.filter_map(|group| Some((FileId::parse(&group.name)?, group)))
}

/// Whether nearly all of these calls have a file of their own, or sync the directory of such a file. The trace does not say which process
/// synced which file. So it is known only if nearly all files are like that, or if other processes have too few calls for these files.
fn have_own_files(seen: &Seen<'_>, n: u64) -> bool {
    let of_files = synced_files(seen).filter(|(_, group)| group.ns.n <= SYNCS_A_FILE);
    let files: u64 = of_files.map(|(_, group)| group.ns.n).sum();
    let mut often: Vec<_> = synced_files(seen).filter(|(_, group)| group.ns.n > SYNCS_A_FILE).collect();
    let known = files + often.iter().map(|(_, group)| group.ns.n).sum::<u64>();
    often.sort_by_key(|(_, group)| std::cmp::Reverse(group.ns.n));
    let is_directory = |file: FileId| seen.storage.file_names.is_directory(file);
    let directories = often.iter().take(MAX_LOOKED_UP).filter(|(file, _)| is_directory(*file));
    let own = files + directories.map(|(_, group)| group.ns.n).sum::<u64>().min(files * SYNCS_A_FILE);
    let (all, _) = seen.calls.total(is_sync);
    percent(own.saturating_sub(all.saturating_sub(n)), n) >= MOST_KNOWN_PERCENT
        || percent(own, known) >= MOST_OF_ALL_PERCENT && percent(known, all) >= MOST_KNOWN_PERCENT
}

/// A directory of these files.
fn directory_of_files(seen: &Seen<'_>) -> String {
    let of_files = synced_files(seen).filter(|(_, group)| group.ns.n <= SYNCS_A_FILE);
    let mut paths = of_files.filter_map(|(_, group)| group.path.as_deref().filter(|path| path.starts_with('/')));
    let directory = paths.find_map(|path| path.rsplit_once('/')).map(|(directory, _)| directory);
    directory.filter(|path| !path.is_empty()).unwrap_or("DIRECTORY").to_owned()
}

/// The file of most of these calls, if it has a path, and whether it is a directory. The trace does not say which process synced which
/// file. So it is known only if no other process syncs nearly as much.
fn synced_file<'a>(seen: &Seen<'a>, n: u64, ns: u64) -> Option<(&'a str, bool)> {
    let all = seen.calls.by_process.iter().filter(|group| is_sync(&group.call)).map(|group| group.total_ns).total();
    let synced = || seen.calls.by_file.iter().filter(|group| is_sync(&group.call));
    let most = synced().max_by_key(|group| group.ns.n)?;
    let file = FileId::parse(&most.name)?;
    // A call shows no file if another thread's call has already written its data.
    let known = synced().map(|group| group.ns.n).total();
    let is_it = percent(ns, all) > MOST_OF_ALL_PERCENT
        && percent(most.ns.n, known) > MOST_OF_ALL_PERCENT
        && percent(most.ns.n, n) > MOST_KNOWN_PERCENT;
    is_it.then(|| Some((most.path.as_deref()?, seen.storage.file_names.is_directory(file)))).flatten()
}

/// What the calls waited for, as text for the cause, and the share of the journal, percent. Unknown if other processes have more than a
/// few of the calls.
fn waits(seen: &Seen<'_>, ns: u64, call: &str, evidence: &mut Vec<Measure>) -> (String, f64) {
    let mut waited = String::new();
    let mut journal_percent = 0.0;
    // If the others hardly count, the waits of all calls are those of this process.
    if let Some(syncs) = seen.block.map(|block| &block.syncs)
        && percent(ns, syncs.durations.mean.saturating_mul(syncs.durations.n)) > MOST_OF_ALL_PERCENT
        && let (Some(&data), Some(&journal), Some(&rest)) =
            (syncs.data_ns.known(), syncs.journal_ns.known(), syncs.rest_ns.known())
    {
        let all = ns.max(1);
        journal_percent = percent(journal, all);
        let mut parts = vec![(data_of(call), data), ("the journal", journal)];
        // A device that writes through its cache has no flushes. Then the text does not mention them.
        parts.extend(syncs.flush_ns.known().filter(|&&flush| flush > 0).map(|&flush| (FLUSHES, flush)));
        parts.sort_by_key(|&(_, part)| std::cmp::Reverse(part));
        for &(what, part) in &parts {
            let source = "block:block_bio_queue, block_rq_complete within the calls";
            evidence.push(measure(&format!("waited for {what}"), part as f64, MeasureUnit::Ns, source));
        }
        let most = parts.first().copied();
        waited = match most {
            Some((_, part)) if rest > part => {
                evidence.push(measure("for no bio", rest as f64, MeasureUnit::Ns, "the rest of their time"));
                format!(
                    " {:.0} % of that passed with none of {} bios under way: for a limit of its cgroup \
                     (io.max), a lock, another task or a CPU. {} shows which.",
                    percent(rest, all),
                    if call == "sync" { "these" } else { "its" },
                    match seen.storage.has_layers {
                        true => "`report --by layer`",
                        false => "`record --events block,layers`",
                    },
                )
            }
            Some((what, part)) => format!(" They waited most for {what} ({:.0} %).", percent(part, all)),
            None => String::new(),
        };
    }
    (waited, journal_percent)
}

/// The data that a call writes.
fn data_of(call: &str) -> &'static str {
    match call {
        "sync" => "the data of all programs",
        "syncfs" => "the data of the file system",
        _ => "the data of the file",
    }
}

/// The program behind which this process's own bios wait most, and its share of their time, percent. `None` if that is little of the time
/// in its syncs, which then wait for flushes and the journal.
fn behind_others<'a>(seen: &Seen<'a>, process: &str, syncs_ns: u64) -> Option<(&'a str, f64)> {
    let found = &seen.block?.interference;
    let load =
        found.owners.iter().filter(|load| load.owner == process && load.bios > 0).max_by_key(|load| load.bios)?;
    let excess = load.mean_device_excess_ns.known().map_or(0, |&ns| ns.max(0) as u64);
    let behind = load.mean_behind_ns.saturating_add(excess);
    let part = percent(behind, load.mean_q2c_ns).min(100.0);
    if part < MOST_BEHIND_PERCENT || percent(behind.saturating_mul(load.bios), syncs_ns) < MIN_BEHIND_PERCENT {
        return None;
    }
    // Only a program with bios in the trace. The syncs themselves cause the I/O of the journal.
    let is_program = |name: &str| {
        let mut all = seen.block.iter().flat_map(|block| &block.originators.originators);
        all.any(|one| one.kind == OwnerKind::Task && one.is_called(name)) && !name.starts_with(OWN_RECORDING)
    };
    // Peers that write as much delay each other. No priority helps all of them.
    let bytes = |name: &str| {
        let (read, written) = moved(seen, name);
        read.saturating_add(written)
    };
    let own = bytes(&load.owner);
    let waits = found.pairs.iter().filter(|wait| wait.victim == load.owner && wait.device == load.device);
    let most = waits
        .filter(|wait| is_program(&wait.behind) && bytes(&wait.behind) >= own.saturating_mul(GREEDY))
        .max_by_key(|wait| wait.served_ns.saturating_add(wait.handover_ns))?;
    Some((&most.behind, part))
}

#[cfg(test)]
mod tests {
    use super::super::Step;
    use super::super::testing::{Work, only};
    use super::*;
    use crate::Evidence;
    use crate::block::{SyncCall, SyncTimes};
    use crate::latency::LatencyNs;

    #[test]
    fn a_logger_that_syncs_each_line() {
        let mut work = Work::new(1_000_000_000);
        work.call("fsync", "logger (7)", 300, 800_000_000, 0);
        work.call("write", "logger (7)", 300, 1_000_000, 24_000);
        let finding = only(find(&work.seen()));
        assert_eq!(
            finding.what,
            "logger (7) spends 800.00 ms of 1.00 s in 300 calls of fsync(), one for each 80 B written."
        );
        assert_eq!(finding.lost_ns, 800_000_000.into());
        let gain = finding.advice[0].gain.known().expect("a range");
        assert_eq!((gain.least_percent, gain.most_percent), (60.0, 99.0));
    }

    /// `sync` 22 times, the first of which writes a file of 12 MiB: 3.47 s of 4.06 s.
    #[test]
    fn one_long_sync_is_no_storm() {
        for (rest_ns, told) in [(590_000_000, false), (2_000_000_000, true)] {
            let mut work = Work::new(13_410_000_000);
            work.call("sync", "sync (93)", 1, 3_470_000_000, 0);
            for tid in 0..21 {
                work.call("sync", &format!("sync ({})", 100 + tid), 1, rest_ns / 21, 0);
            }
            let found = find(&work.seen());
            assert_eq!(!found.is_empty(), told, "{found:?}");
            let Some(finding) = found.first() else { continue };
            let gain = finding.advice[0].gain.known().expect("a range");
            // 60 % of the 36.6 % that the others have.
            assert!((21.9..22.0).contains(&gain.least_percent), "{gain:?}");
            assert!(gain.basis.ends_with("the longest call, 3.47 s, may stay as it is"), "{gain:?}");
        }
    }

    /// `sync` after 80 KiB of another process, and after a line.
    #[test]
    fn a_sync_of_much_data_gains_nothing_that_is_known() {
        for (bytes, known) in [(21 * (80 << 10), false), (21 * 40, true)] {
            let mut work = Work::new(2_000_000_000);
            for tid in 0..21 {
                work.call("sync", &format!("sync ({})", 100 + tid), 1, 28_000_000, 0);
            }
            work.call("write", "busybox (9)", 420, 50_000_000, bytes);
            let finding = only(find(&work.seen()));
            let gain = &finding.advice[0].gain;
            assert_eq!(gain.known().is_some(), known, "{gain:?}");
            assert_eq!(format!("{gain:?}").contains("each call writes 80 KiB of all programs"), !known, "{gain:?}");
        }
    }

    #[test]
    fn the_line_of_code_is_one_of_c() {
        for (call, line) in [
            ("fdatasync", "fdatasync(fd)"),
            ("sync", "sync()"),
            ("msync", "msync(map, length, MS_SYNC)"),
            ("sync_file_range2", "sync_file_range(fd, offset, length, SYNC_FILE_RANGE_WRITE_AND_WAIT)"),
        ] {
            let mut work = Work::new(1_000_000_000);
            work.call(call, "app (7)", 100, 800_000_000, 0);
            let finding = only(find(&work.seen()));
            let line = format!("if (++records % 10 == 0) {line};");
            assert_eq!(finding.advice[0].steps, [Step::Code { line }]);
        }
    }

    #[test]
    fn each_call_that_was_counted_is_named() {
        for (with_fsync, told, code) in [
            (true, "50 calls of sync_file_range() and fsync().", "fsync(fd)"),
            (false, "30 calls of sync_file_range().", "AND_WAIT"),
        ] {
            let mut work = Work::new(1_000_000_000);
            work.call("sync_file_range", "dpkg (7)", 30, 500_000_000, 0);
            if with_fsync {
                work.call("fsync", "dpkg (7)", 20, 300_000_000, 0);
            }
            let finding = only(find(&work.seen()));
            assert!(finding.what.ends_with(told), "{}", finding.what);
            assert!(finding.cause.contains("flags"), "{}", finding.cause);
            let Step::Code { line } = &finding.advice[0].steps[0] else { panic!("{:?}", finding.advice) };
            assert!(line.contains(code), "{line}");
        }
    }

    #[test]
    fn what_calls_did_not_wait_for_is_not_called_their_wait() {
        for (data_ns, rest_ns, told) in [
            (20_000_000, 780_000_000, "98 % of that passed"),
            (700_000_000, 100_000_000, "the data of the file (88 %)"),
        ] {
            let mut work = Work::new(1_000_000_000);
            work.call("fsync", "logger (7)", 200, 800_000_000, 0);
            let syncs = &mut work.block().syncs;
            syncs.durations = LatencyNs { n: 200, mean: 4_000_000, ..LatencyNs::default() };
            (syncs.data_ns, syncs.journal_ns, syncs.rest_ns) = (data_ns.into(), 0.into(), rest_ns.into());
            let times = SyncTimes { data_ns, journal_ns: 0, flush_ns: 0.into(), rest_ns, longest: None };
            let call = |waits| SyncCall {
                call: "fsync".to_owned(),
                number: 1,
                task: "logger".to_owned(),
                begin_ns: 0,
                duration_ns: 4_000_000,
                waits,
            };
            syncs.calls = vec![call(times.into())];
            let finding = only(find(&work.seen()));
            assert!(finding.cause.contains(told), "{}", finding.cause);
            assert!(!finding.evidence.iter().any(|one| one.name.contains("flushes")), "{:?}", finding.evidence);
        }
    }

    #[test]
    fn who_replaces_files_syncs_before_it_renames_them() {
        for (renamed, told) in [(190, true), (3, false)] {
            let mut work = Work::new(1_000_000_000);
            work.call("fsync", "installer (7)", 200, 800_000_000, 0);
            // It begins to write before it syncs.
            work.call("sync_file_range", "installer (7)", 400, 10_000_000, 0);
            work.call("rename", "installer (7)", renamed, 1_000_000, 0);
            let finding = only(find(&work.seen()));
            assert_eq!(
                finding.advice[0].steps[0]
                    == Step::Code { line: "syncfs(directory); /* once, before rename() of each */".into() },
                told
            );
        }
    }

    #[test]
    fn who_syncs_names_syncs_a_directory() {
        use serde_json::json;
        // A file below it makes it a directory; without one it may be a log to which others write.
        for (below, told) in [(Some("/mail/new/1"), true), (Some("/mail/newer"), false), (None, false)] {
            let mut work = Work::new(1_000_000_000);
            let mut files = vec![json!({"device": "7:0", "inode": 13, "path": "/mail/new"})];
            files.extend(below.map(|path| json!({"device": "7:0", "inode": 14, "path": path})));
            work.storage.file_names = flashscope_trace::FileNames::of_facts(&json!({"names": {"files": files}}));
            work.call("fsync", "sync (7)", 200, 800_000_000, 0);
            work.call("write", "sh (8)", 200, 1_000_000, 20_000);
            work.path_call("fsync", ("7:0 inode 13", "/mail/new"), 200, 800_000_000);
            let finding = only(find(&work.seen()));
            assert_eq!(finding.what, "sync (7) spends 800.00 ms of 1.00 s in 200 calls of fsync() of /mail/new.");
            assert_eq!(finding.advice[0].what.contains("Sync the directory once"), told, "{:?}", finding.advice);
        }
    }

    /// Eight threads append to one log: a call that finds its record written by another's commit shows no file.
    #[test]
    fn threads_that_sync_one_file_are_told_together() {
        for (shown, told) in [(422, 1), (200, 8)] {
            let mut work = Work::new(500_000_000);
            for tid in 0..8 {
                work.call("fsync", &format!("log ({})", 100 + tid), 60, 400_000_000, 0);
            }
            work.path_call("fsync", ("7:0 inode 14", "/var/log/all"), shown, 2_800_000_000);
            let found = find(&work.seen());
            assert_eq!(found.len(), told, "{found:?}");
            assert_eq!(found[0].what.ends_with("in 480 calls of fsync() of /var/log/all."), told == 1, "{found:?}");
        }
    }

    #[test]
    fn a_script_that_syncs_each_line_is_told() {
        for (n, told) in [(40, true), (10, false)] {
            let mut work = Work::new(1_000_000_000);
            for tid in 0..n {
                work.call("sync", &format!("sync ({})", 100 + tid), 1, 10_000_000, 0);
            }
            let found = find(&work.seen());
            assert_eq!(found.len(), usize::from(told), "{found:?}");
            assert!(
                found.iter().all(|one| one.what
                    == "40 tasks called sync spend 400.00 ms in all, within 1.00 s, in 40 calls of sync().")
            );
            let line = "records=$((records + 1)); [ $((records % 10)) -ne 0 ] || sync";
            assert!(found.iter().all(|one| one.advice[0].steps == [Step::Code { line: line.into() }]), "{found:?}");
        }
        // Of programs of several names none is a script's.
        let mut work = Work::new(1_000_000_000);
        for tid in 0..40 {
            work.call("fsync", &format!("editor{tid} ({})", 100 + tid), 1, 10_000_000, 0);
        }
        assert!(find(&work.seen()).is_empty());
    }

    /// Each in a process of its own, or several workers with many files each; and processes of one name that sync one file each again and
    /// again.
    #[test]
    fn processes_that_sync_files_of_their_own_are_told_together() {
        for (processes, files, of_each, found_n, told) in
            [(60, 1, 1, 1, Some("Have the script write")), (12, 30, 1, 1, Some("Write 10 files")), (8, 1, 30, 8, None)]
        {
            let mut work = Work::new(1_000_000_000);
            for process in 0..processes {
                work.call("fsync", &format!("save ({})", 100 + process), files * of_each, 80_000_000, 0);
                for file in 0..files {
                    let (inode, path) = (1000 * (process + 1) + file, format!("/d/my files/{process}.{file}"));
                    work.path_call("fsync", (&format!("7:0 inode {inode}"), &path), of_each, 80_000_000);
                }
            }
            let found = find(&work.seen());
            assert_eq!(found.len(), found_n, "{found:?}");
            let remedy = &found[0].advice[0];
            assert_eq!(told.is_some_and(|told| remedy.what.starts_with(told)), told.is_some(), "{remedy:?}");
            if processes == 60 {
                assert_eq!(remedy.steps, [Step::Run { command: "sync -f".into(), names: vec!["/d/my files".into()] }]);
            }
            // None of them is a file that could be reserved once.
            assert_eq!(found[0].advice.len(), 1, "{found:?}");
        }
    }

    /// dpkg 1.21 with three packages of 360 files: 409 fsync() of 1,129 calls; with the option 49 of 409.
    #[test]
    fn dpkg_has_an_option_of_its_own() {
        for (name, fsyncs, ranges, told) in [("dpkg", 409, 720, 1), ("dpkg", 49, 360, 0), ("installer", 409, 720, 1)] {
            let mut work = Work::new(1_000_000_000);
            let name_of_task = format!("{name} (7)");
            work.call("fsync", &name_of_task, fsyncs, 700_000_000, 0);
            work.call("sync_file_range", &name_of_task, ranges, 20_000_000, 0);
            work.call("rename", &name_of_task, 749, 1_000_000, 0);
            let finding = only(find(&work.seen()));
            assert_eq!(finding.advice.len(), told, "{finding:?}");
            let with_option = format!("{:?}", finding.advice).contains("--force-unsafe-io");
            assert_eq!(with_option, name == "dpkg" && told == 1, "{finding:?}");
        }
    }

    #[test]
    fn who_holds_the_syncs_up_is_named() {
        use crate::block::{OwnerLoad, WaitBehind, WaitStage};
        for (behind_ns, syncs_ns, told) in
            [(3_000_000, 340_000_000, true), (500_000, 340_000_000, false), (3_000_000, 900_000_000, false)]
        {
            let mut work = Work::new(5_000_000_000);
            work.call("fsync", "editor (8)", 25, syncs_ns, 0);
            // With its thread in its name or without.
            work.owner(if told { "cp (7)" } else { "cp" }, OwnerKind::Task, 0, 100 << 20);
            let found = &mut work.block().interference;
            found.owners.push(OwnerLoad {
                device: "8:0".into(),
                owner: "editor (8)".into(),
                bios: 35,
                mean_q2c_ns: 4_000_000,
                mean_behind_ns: behind_ns,
                mean_device_excess_ns: Evidence::unknown("none of it was alone", ""),
                mean_alone_ns: Evidence::unknown("none of it was alone", ""),
                longest_q2c_ns: 5_000_000,
                longest_behind_ns: 4_000_000,
            });
            let wait = |behind: &str, served_ns| WaitBehind {
                device: "8:0".into(),
                victim: "editor (8)".into(),
                behind: behind.into(),
                stage: WaitStage::Scheduler,
                served_ns,
                handover_ns: 0,
            };
            found.pairs = vec![wait("ext4 journal [jbd2/sda-8]", 90_000_000), wait("cp (7)", 50_000_000)];
            let finding = only(find(&work.seen()));
            assert_eq!(finding.cause.contains("75 % is behind others, most behind cp (7)."), told, "{}", finding.cause);
            assert_eq!(finding.advice[0].what.contains("cp (7)"), told, "{:?}", finding.advice);
        }
    }

    #[test]
    fn rare_short_or_large_syncs_are_none() {
        for (n, ns, bytes) in [(19, 800_000_000, 0), (300, 40_000_000, 0), (30, 800_000_000, 300 << 20)] {
            let mut work = Work::new(1_000_000_000);
            work.call("fsync", "editor (7)", n, ns, 0);
            work.call("write", "editor (7)", n, 1_000_000, bytes);
            assert!(find(&work.seen()).is_empty(), "{n} {ns} {bytes}");
        }
        // Reads take as long as they like.
        let mut work = Work::new(1_000_000_000);
        work.call("read", "reader (7)", 300, 800_000_000, 0);
        assert!(find(&work.seen()).is_empty());
    }

    /// `dd conv=fsync oflag=append` in a loop: nobody changes dd. One that syncs again and again is a program.
    #[test]
    fn tools_that_a_script_starts_get_a_line_for_the_script() {
        for (name, processes, each, line) in [
            ("dd", 150, 1, "records=$((records + 1)); [ $((records % 10)) -ne 0 ] || sync FILE"),
            ("busybox", 150, 1, "records=$((records + 1)); [ $((records % 10)) -ne 0 ] || sync FILE"),
            ("busybox", 1, 150, "if (++records % 10 == 0) fsync(fd);"),
            ("logger", 150, 1, "if (++records % 10 == 0) fsync(fd);"),
        ] {
            let mut work = Work::new(1_730_000_000);
            for tid in 0..processes {
                work.call("fsync", &format!("{name} ({})", 100 + tid), each, each * 2_160_000, 0);
            }
            work.path_call("fsync", ("8:0 inode 12", "/mnt/f"), 150, 324_000_000);
            let finding = only(find(&work.seen()));
            assert_eq!(finding.advice[0].steps, [Step::Code { line: line.into() }], "{name}");
        }
    }
}
