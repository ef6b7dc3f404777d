//! Tables of call latencies, and one call with the causes of its delay.

use crate::layers_view::layer_name;
use crate::rows::Rows;
use crate::text::{counted, duration, grouped, percent, size};
use flashscope_analysis::calls::{CallGroup, CallsFound, FormerCalls};
use flashscope_analysis::layers::LayerTime;
use flashscope_analysis::{CallPath, task_name};
use std::collections::BTreeMap;

/// This many tasks with one name, making one kind of call, become one row.
const MIN_TOGETHER: usize = 5;
/// From this share of a group's time on, an earlier name of its process is named.
const MIN_FORMER_PERCENT: u64 = 10;
/// Largest number of owners of bios that delayed a call.
const MAX_HOLDERS: usize = 10;

fn groups(heads: &'static [&'static str], all: &[CallGroup], most: usize) -> Rows {
    Rows::new("ttnnnnnnn", heads, all.iter(), most, |group| row(group, true))
}

fn row(group: &CallGroup, percentiles: bool) -> Vec<String> {
    let bytes = if group.bytes > 0 { size(group.bytes) } else { String::new() };
    let percentile = |ns: u64| if percentiles { duration(ns) } else { String::new() };
    let mut row = vec![group.call.clone(), group.name.clone(), grouped(group.ns.n), bytes];
    row.extend([duration(group.total_ns), duration(group.ns.mean)]);
    row.extend([percentile(group.ns.p50), percentile(group.ns.p99), duration(group.ns.max)]);
    row
}

/// By kind of call, largest total time first.
pub fn by_call(calls: &CallsFound, most: usize) -> Rows {
    let heads = &["call", "n", "bytes", "time", "mean", "p50", "p99", "max"];
    let mut all = groups(&["call", "", "n", "bytes", "time", "mean", "p50", "p99", "max"], &calls.by_call, most);
    all.rows.iter_mut().for_each(|row| drop(row.remove(1)));
    Rows { kinds: "tnnnnnnn", heads, ..all }
}

/// The number of calls that are left out because they may concern another device than the recorded one.
pub fn left_out(calls: &CallsFound) -> Option<String> {
    let (all, syncs) = (calls.not_of_device.unwrap_or(0), calls.not_of_device_syncs.unwrap_or(0));
    (all > 0).then(|| {
        format!(
            "{} further calls ({} of them fsync or the like) caused no event on the recorded device: their files lie elsewhere, or \
             there was nothing to do. To see them, record without --device.",
            grouped(all),
            grouped(syncs)
        )
    })
}

/// I/O that is in no table of calls, because it is asynchronous.
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

/// Long reads and writes without any storage activity.
pub fn unseen(calls: &CallsFound) -> Option<String> {
    let all = &calls.long_without_storage;
    let (n, ns) = all.iter().fold((0u64, 0u64), |(n, ns), one| (n + one.n, ns.saturating_add(one.total_ns)));
    let most = all.first()?;
    Some(format!(
        "Without storage: {} of 1 ms or longer, {} in all, most of it {}() of {} ({}, {}). They are of pipes, \
         sockets, terminals or devices without storage (/dev/urandom), or they waited for what this trace does not show: a limit of the cgroup (io.max, io.pressure), a \
         lock, a file system over the network. record --events block,syscall,layers shows where a task waits.",
        counted(n, "call"),
        duration(ns),
        most.call,
        most.name,
        duration(most.total_ns),
        counted(most.n, "call")
    ))
}

/// The process with the earlier names under which it spent much of this time.
fn named(calls: &CallsFound, group: &CallGroup) -> String {
    let of = calls.under_former_names.iter().filter(|one| one.call == group.call && one.name == group.name);
    let is_much =
        |one: &&FormerCalls| one.total_ns.saturating_mul(100) >= group.total_ns.saturating_mul(MIN_FORMER_PERCENT);
    let former: Vec<&str> = of.filter(is_much).map(|one| one.former_name.as_str()).collect();
    if former.is_empty() { group.name.clone() } else { format!("{}, before: {}", group.name, former.join(", ")) }
}

/// By call and process, largest total time first. Tasks with one name, as those that a script starts one after the other, share a row. It
/// has no percentiles, because these do not follow from the tasks' percentiles.
pub fn by_process(calls: &CallsFound, most: usize) -> Rows {
    let mut by_name: BTreeMap<(&str, &str), Vec<&CallGroup>> = BTreeMap::new();
    for group in &calls.by_process {
        let name = task_name(&group.name);
        by_name.entry((&group.call, name)).or_default().push(group);
    }
    let mut all: Vec<(CallGroup, bool)> = Vec::new();
    for ((_, name), of) in by_name {
        if of.len() < MIN_TOGETHER {
            all.extend(of.into_iter().map(|group| (CallGroup { name: named(calls, group), ..group.clone() }, true)));
            continue;
        }
        let mut sum = of[0].clone();
        for one in &of[1..] {
            sum.bytes = sum.bytes.saturating_add(one.bytes);
            sum.total_ns = sum.total_ns.saturating_add(one.total_ns);
            sum.ns.n = sum.ns.n.saturating_add(one.ns.n);
            sum.ns.max = sum.ns.max.max(one.ns.max);
        }
        sum.ns.mean = sum.total_ns / sum.ns.n.max(1);
        sum.name = format!("{name} ({} tasks)", grouped(of.len() as u64));
        all.push((sum, false));
    }
    all.sort_by(|(a, _), (b, _)| b.total_ns.cmp(&a.total_ns).then_with(|| (&a.call, &a.name).cmp(&(&b.call, &b.name))));
    let heads = &["call", "process", "n", "bytes", "time", "mean", "p50", "p99", "max"];
    Rows::new("ttnnnnnnn", heads, all.iter(), most, |(group, percentiles)| row(group, *percentiles))
}

/// By call and file, for known files.
pub fn by_file(calls: &CallsFound, most: usize) -> Rows {
    groups(&["call", "file", "n", "bytes", "time", "mean", "p50", "p99", "max"], &calls.by_file, most)
}

/// The longest calls. `begin_ns`: beginning of the trace.
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

/// Owners of the bios that the device processed while the call's own bios waited.
pub fn holders(path: &CallPath) -> Rows {
    let heads = &["owner", "device", "bios", "bytes", "in the device"];
    Rows::new("ttnnn", heads, path.held_up_by.iter(), MAX_HOLDERS, |one| {
        let (bios, bytes) = (grouped(one.bios), size(one.bytes));
        vec![one.owner.clone(), one.device.clone(), bios, bytes, duration(one.in_device_ns)]
    })
}

/// Time of one call by layer.
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
    use flashscope_analysis::LatencyNs;

    #[test]
    fn tasks_that_a_script_starts_are_one_row_with_their_sums() {
        let group = |name: String, n: u64, max: u64| CallGroup {
            call: "fdatasync".to_owned(),
            name,
            path: None,
            bytes: 0,
            total_ns: n * max,
            ns: LatencyNs { n, mean: max, p50: max, p99: max, max, ..LatencyNs::default() },
        };
        let mut by_process = vec![group("logger (7)".to_owned(), 4, 1_000_000)];
        by_process.extend((0..5).map(|tid| group(format!("sync ({})", 100 + tid), 2, 1_000_000 * (tid + 1))));
        by_process.extend((0..4).map(|tid| group(format!("dd ({tid})"), 1, 1_000)));
        let rows = super::by_process(&CallsFound { by_process, ..CallsFound::default() }, usize::MAX).rows;
        assert_eq!(rows[0], ["fdatasync", "sync (5 tasks)", "10", "", "30.00 ms", "3.00 ms", "", "", "5.00 ms"]);
        assert_eq!(
            rows[1],
            ["fdatasync", "logger (7)", "4", "", "4.00 ms", "1.00 ms", "1.00 ms", "1.00 ms", "1.00 ms"]
        );
        assert_eq!(rows.len(), 2 + 4);
    }
}
