//! Latencies of calls as tables, and one call with what held it up.

use crate::layers_view::layer_name;
use crate::rows::Rows;
use crate::text::{counted, duration, grouped, percent, size};
use flashscope_analysis::CallPath;
use flashscope_analysis::calls::{CallGroup, CallsFound, is_sync};
use flashscope_analysis::layers::LayerTime;

/// Owners of bios that held a call up.
const MAX_HOLDERS: usize = 10;

fn groups(heads: &'static [&'static str], all: &[CallGroup], most: usize) -> Rows {
    Rows::new("ttnnnnnnn", heads, all.iter(), most, |group| {
        let bytes = if group.bytes > 0 { size(group.bytes) } else { String::new() };
        let mut row = vec![group.call.clone(), group.name.clone(), grouped(group.ns.n), bytes];
        row.push(duration(group.total_ns));
        row.extend([group.ns.mean, group.ns.p50, group.ns.p99, group.ns.max].map(duration));
        row
    })
}

/// What recordings are limited to, so that nobody takes a part for the whole.
pub fn limited_to(limits: &[String]) -> Vec<String> {
    let sentence = |limit: &String| {
        let beneath = match limit.contains("--device loop") || limit.contains("--device /dev/loop") {
            true => " Of the disk beneath a loop device it has only blocks that the file had when it began.",
            false => "",
        };
        format!("Recorded with {limit}: other I/O is not in the trace.{beneath}")
    };
    limits.iter().map(sentence).collect()
}

/// Why a flight recorder wrote each of these recordings, and how to see what the call waited for.
pub fn captured(reasons: &[String], calls: &CallsFound) -> Vec<String> {
    let sentence = |reason: &String| {
        let task = reason.split_once(" of task ").and_then(|(_, rest)| rest.split(' ').next()?.parse::<u32>().ok());
        let told = reason.split_once(" took ").or_else(|| reason.split_once(" has taken "));
        let told_ms = told.and_then(|(_, rest)| rest.split(' ').next()?.parse::<f64>().ok());
        // The call of that task that took longest is the one that fired it; a shorter one is another, whose end the capture has.
        let is_it =
            |tid: u32, ns: u64| told_ms.is_some_and(|told| ns as f64 / 1e6 + 0.1 >= told) && tid == task.unwrap_or(0);
        let call = calls.slowest.iter().find(|call| is_sync(&call.call) && is_it(call.tid.0, call.duration_ns));
        let call = call.map_or(String::new(), |call| {
            let file = call.path.as_ref().or(call.file.as_ref()).map_or(String::new(), |file| format!(" of {file}"));
            format!(
                " It is {}(){file} by {}. What it waited for: flashscope report TRACE --call {}",
                call.call, call.task, call.number
            )
        });
        format!("Captured because of {reason}.{call}")
    };
    reasons.iter().map(sentence).collect()
}

/// By kind of call, most time first.
pub fn by_call(calls: &CallsFound, most: usize) -> Rows {
    let heads = &["call", "n", "bytes", "time", "mean", "p50", "p99", "max"];
    let mut all = groups(&["call", "", "n", "bytes", "time", "mean", "p50", "p99", "max"], &calls.by_call, most);
    all.rows.iter_mut().for_each(|row| drop(row.remove(1)));
    Rows { kinds: "tnnnnnnn", heads, ..all }
}

/// Calls that are left out, since they are not known to be of the recorded device.
pub fn left_out(calls: &CallsFound) -> Option<String> {
    let (all, syncs) = (calls.not_of_device, calls.not_of_device_syncs);
    (all > 0).then(|| {
        format!(
            "{} further calls ({} of them fsync or the like) caused no event on the recorded device: their files lie elsewhere, or \
             there was nothing to do. To see them, record without --device.",
            grouped(all),
            grouped(syncs)
        )
    })
}

/// I/O that is in no table of calls, since it is none.
pub fn asynchronous(calls: &CallsFound) -> Option<String> {
    let most = calls.asynchronous.first()?;
    let n: u64 = calls.asynchronous.iter().map(|one| one.n).sum();
    let others = if n > most.n { format!("most by {}", most.name) } else { format!("by {}", most.name) };
    Some(format!(
        "{} of io_uring or io_submit, {others}: the reads, writes and syncs that they submit are no calls, and in none of these tables. \
         Their bios are in the tables of block I/O, by device, task and file.",
        counted(n, "call")
    ))
}

/// Long reads and writes in which nothing of storage happened.
pub fn unseen(calls: &CallsFound) -> Option<String> {
    let all = &calls.long_without_storage;
    let (n, ns) = all.iter().fold((0u64, 0u64), |(n, ns), one| (n + one.n, ns.saturating_add(one.total_ns)));
    let most = all.first()?;
    Some(format!(
        "{} of 1 ms or longer took {} in all and show no storage, most of it {}() of {} ({}, {}). They are of pipes, \
         sockets and terminals, or they waited for what this trace does not show: a limit of the cgroup (io.max, io.pressure), a \
         lock, a file system over the network. record --events block,syscall,layers shows where a task waits.",
        counted(n, "call"),
        duration(ns),
        most.call,
        most.name,
        duration(most.total_ns),
        counted(most.n, "call")
    ))
}

/// By call and process, most time first.
pub fn by_process(calls: &CallsFound, most: usize) -> Rows {
    groups(&["call", "process", "n", "bytes", "time", "mean", "p50", "p99", "max"], &calls.by_process, most)
}

/// By call and file, as far as files are known.
pub fn by_file(calls: &CallsFound, most: usize) -> Rows {
    groups(&["call", "file", "n", "bytes", "time", "mean", "p50", "p99", "max"], &calls.by_file, most)
}

/// The longest calls; `begin_ns`: of the trace.
pub fn slowest(calls: &CallsFound, begin_ns: u64, most: usize) -> Rows {
    let heads = &["--call", "call", "process", "file", "begins", "took"];
    Rows::new("ntttnn", heads, calls.slowest.iter(), most, |one| {
        vec![
            one.number.to_string(),
            one.call.clone(),
            one.task.clone(),
            one.file.clone().unwrap_or_default(),
            format!("+{}", duration(one.begin_ns.saturating_sub(begin_ns))),
            duration(one.duration_ns),
        ]
    })
}

/// Whose bios the device had while a call's own waited.
pub fn holders(path: &CallPath) -> Rows {
    let heads = &["owner", "device", "bios", "bytes", "in the device"];
    Rows::new("ttnnn", heads, path.held_up_by.iter(), MAX_HOLDERS, |one| {
        let (bios, bytes) = (grouped(one.bios), size(one.bytes));
        vec![one.owner.clone(), one.device.clone(), bios, bytes, duration(one.in_device_ns)]
    })
}

/// Time of each layer of one call.
pub fn layers(layers: &[LayerTime], unattributed_ns: u64, total_ns: u64) -> Rows {
    let mut all: Vec<(&str, u64)> = layers.iter().map(|one| (layer_name(one.layer), one.ns)).collect();
    if unattributed_ns > 0 {
        all.push(("no layer", unattributed_ns));
    }
    Rows::new("tnn", &["layer", "time", "share"], all.into_iter(), usize::MAX, |(name, ns)| {
        let share = percent(ns as f64 / total_ns.max(1) as f64 * 100.0);
        vec![name.to_owned(), duration(ns), share]
    })
}

/// The bios that a call waited for.
pub fn bios(path: &CallPath) -> Rows {
    let begin = path.call.begin_ns;
    let heads = &["kind", "for", "device", "sector", "bytes", "begins", "in front of\nthe device", "in the\ndevice"];
    Rows::new("tttnnnnn", heads, path.bios.iter(), usize::MAX, |bio| {
        let unknown = || "unknown".to_owned();
        let before = bio.issued_ns.map_or_else(unknown, |at| duration(at.saturating_sub(bio.queued_ns)));
        let within = bio.issued_ns.map_or_else(unknown, |at| duration(bio.completed_ns.saturating_sub(at)));
        vec![
            format!("{} {}", bio.kind, bio.flags),
            bio.owner.clone(),
            bio.device.clone(),
            bio.sector.to_string(),
            size(bio.bytes),
            format!("+{}", duration(bio.queued_ns.saturating_sub(begin))),
            before,
            within,
        ]
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashscope_analysis::TaskId;
    use flashscope_analysis::calls::SlowCall;

    #[test]
    fn a_part_is_no_whole() {
        let said = limited_to(&["--comm dd".to_owned(), "--device loop0".to_owned()]);
        assert_eq!(said[0], "Recorded with --comm dd: other I/O is not in the trace.");
        assert!(said[1].ends_with("only blocks that the file had when it began."), "{said:?}");
        assert!(limited_to(&[]).is_empty());
    }

    #[test]
    fn a_capture_says_why_and_which_call_it_was() {
        let call = |number: u64, call: &str, tid: u32| SlowCall {
            number,
            call: call.to_owned(),
            task: format!("dd ({tid})"),
            tid: TaskId(tid),
            begin_ns: 0,
            duration_ns: 18_700_000,
            file: Some("8:0 inode 12".to_owned()),
            path: Some("/data/y".to_owned()),
            bytes: 0,
        };
        let calls = CallsFound {
            slowest: vec![call(3, "write", 7), call(5, "fsync", 8), call(9, "fsync", 7), call(11, "fsync", 7)],
            ..CallsFound::default()
        };
        let reasons = [
            "fsync>5ms: a sync of task 7 (dd) took 18.7 ms",
            "error: a request to 8:0 at sector 3 ended with -5",
            "fsync>5ms: a sync of task 8 (dd) has taken 270.1 ms and is not done",
        ];
        let said = captured(&reasons.map(str::to_owned), &calls);
        assert_eq!(
            said,
            [
                "Captured because of fsync>5ms: a sync of task 7 (dd) took 18.7 ms. It is fsync() of /data/y by dd (7). What it \
                 waited for: flashscope report TRACE --call 9",
                "Captured because of error: a request to 8:0 at sector 3 ended with -5.",
                "Captured because of fsync>5ms: a sync of task 8 (dd) has taken 270.1 ms and is not done."
            ]
        );
    }
}
