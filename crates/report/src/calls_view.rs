//! Latencies of calls as tables, and one call with what delayed it.

use crate::layers_view::layer_name;
use crate::rows::Rows;
use crate::text::{counted, duration, grouped, percent, size};
use flashscope_analysis::CallPath;
use flashscope_analysis::calls::{CallGroup, CallsFound};
use flashscope_analysis::layers::LayerTime;

/// Owners of bios that delayed a call.
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

/// Owners of the bios that the device had while the call's own waited.
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
