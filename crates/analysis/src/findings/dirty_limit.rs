//! A program that writes into the page cache faster than the device takes the data: the kernel delays it.
//!
//! Above a limit of changed pages `balance_dirty_pages()` (mm/page-writeback.c) makes a writing task sleep, so that it continues as fast
//! as the device. The evidence: the calls take long, the program has no bios of its own in them, and its data reaches the device at
//! the rate of the calls. Where the limit itself is small, the device need not be busy: the kernel lets the task sleep for longer.

use super::{
    DirtyLimit, Finding, GroupBy, MeasureUnit, Remedy, Rule, Seen, Step, gain, groups, measure, percent, stage,
};
use crate::block::{BlockFound, Originator};
use crate::calls::{CallGroup, is_sync, is_write};
use crate::total::Total as _;
use crate::units::{duration, grouped, size};

/// Below this share of the recorded time the program does not wait for it, per cent.
const MIN_SPAN_PERCENT: f64 = 10.0;
/// Fewer bytes fit below any limit in use.
const MIN_BYTES: u64 = 4 << 20;
/// Least share of the calls' bytes that reached the device, per cent: else the calls did not run at its rate.
const MIN_REACHED_PERCENT: f64 = 50.0;
/// Least share of these written by others, such as kernel workers: else the program waits for bios of its own, per cent.
const MIN_CARRIED_PERCENT: f64 = 80.0;

/// A limit below this share of the available memory is small, per cent. Below: at least this many times the limit was written.
const SMALL_PERCENT: f64 = 5.0;
const TIMES_THE_LIMIT: u64 = 4;

/// The kernel delays no task below the middle between the background limit and this one (`dirty_freerun_ceiling()`). If less than this share
/// of the limit was changed in all, something else takes the time, per cent.
const MIN_CHANGED_PERCENT: f64 = 50.0;

/// Memory takes at least twice as many bytes a second as the device: else the device would hardly delay the program.
const LEAST_GAIN_PERCENT: f64 = 50.0;

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let writes = seen.calls.by_process.iter().filter(|group| is_write(&group.call));
    writes.filter_map(|group| of_calls(seen, group)).collect()
}

/// Bytes that other threads wrote for the program.
fn carried(one: &Originator) -> u64 {
    let others = one.carriers.iter().filter(|by| !one.is_called(&by.carrier));
    others.map(|by| by.written_bytes).total()
}

fn of_calls(seen: &Seen<'_>, group: &CallGroup) -> Option<Finding> {
    let found = seen.block?;
    let (n, ns, bytes) = (group.ns.n, group.total_ns, group.bytes);
    if bytes < MIN_BYTES || seen.of_span(ns) < MIN_SPAN_PERCENT {
        return None;
    }
    let written = found.originators.originators.iter().find(|one| one.is_called(&group.name))?;
    let reached = written.written_bytes;
    if percent(reached, bytes) < MIN_REACHED_PERCENT || percent(carried(written), reached) < MIN_CARRIED_PERCENT {
        return None;
    }
    // A queue that is never empty: its bios together take as long as the calls, or longer.
    let own = groups(found, GroupBy::Owner).find(|one| one.name == group.name)?;
    let mine = || seen.calls.by_process.iter().filter(|other| other.name == group.name);
    let syncs = mine().filter(|other| is_sync(&other.call)).map(|other| other.total_ns).total();
    let limit = seen.storage.dirty_limit.as_ref();
    if limit.is_some_and(|limit| percent(changed(seen, found), limit.bytes) < MIN_CHANGED_PERCENT) {
        return None;
    }
    let small = limit.filter(|limit| is_small(limit, bytes));
    if small.is_none() && stage(own, "Q2C")?.total_ns < ns || syncs > ns {
        return None;
    }
    let rate = |bytes: u64| size((bytes as f64 / (ns as f64 / 1e9)) as u64);
    let source = "syscalls:sys_enter_*, sys_exit_*; bytes from the events of the page cache and of bios";
    let limit = "The kernel holds up a program that writes while more than vm.dirty_ratio or vm.dirty_bytes of the memory is changed and not \
                 yet written (balance_dirty_pages)";
    Some(Finding {
        processes: vec![group.name.clone()],
        what: format!(
            "{} waits {} of {} in {} calls of {}() into the page cache: {} a second, {}.",
            group.name,
            duration(ns),
            duration(seen.span_ns),
            grouped(n),
            group.call,
            rate(bytes),
            match small {
                Some(limit) => format!("where {} of changed memory are allowed ({})", amount(limit), limit.setting),
                None => "as fast as the device takes it".to_owned(),
            }
        ),
        cause: format!(
            "{limit}.{} Of {} that it wrote, {} reached the device meanwhile.",
            seen.storage.dirty_limit.as_ref().map_or(String::new(), is_set),
            size(bytes),
            size(reached)
        ),
        evidence: vec![
            measure("time in these calls", ns as f64, MeasureUnit::Ns, source),
            measure("written by them", bytes as f64, MeasureUnit::Bytes, source),
            measure("of it written to the device", reached as f64, MeasureUnit::Bytes, source),
            measure("of it by other tasks", carried(written) as f64, MeasureUnit::Bytes, source),
        ],
        lost_ns: ns.min(seen.span_ns).into(),
        advice: vec![remedy(seen, group)],
        ..Finding::of(Rule::DirtyLimit)
    })
}

/// Bytes written by all programs, or bytes that reached the devices, if more: pages may have been changed before the recording.
fn changed(seen: &Seen<'_>, found: &BlockFound) -> u64 {
    let calls = seen.calls.by_process.iter().filter(|group| is_write(&group.call)).map(|group| group.bytes).total();
    calls.max(found.originators.originators.iter().map(|one| one.written_bytes).total())
}

fn is_small(limit: &DirtyLimit, written: u64) -> bool {
    let part = limit.available_bytes.map(|available| percent(limit.bytes, available));
    part.is_some_and(|part| part < SMALL_PERCENT) && written / TIMES_THE_LIMIT >= limit.bytes
}

/// " The limit is 1 MiB (vm.dirty_bytes=1048576), and 900 MiB were available."
fn is_set(limit: &DirtyLimit) -> String {
    let there = limit.available_bytes.map_or(String::new(), |bytes| format!(", and {} were available", size(bytes)));
    format!(" The limit is {} ({}){there}.", amount(limit), limit.setting)
}

fn amount(limit: &DirtyLimit) -> String {
    let about = if limit.is_estimate { "about " } else { "" };
    format!("{about}{}", size(limit.bytes))
}

/// What has to fit below the limit.
///
/// balance_dirty_pages() lets everybody go on below the middle between the background limit and this one: with a limit of twice of all
/// that is written nobody waits.
fn remedy(seen: &Seen<'_>, group: &CallGroup) -> Remedy {
    let writes = seen.calls.by_process.iter().filter(|group| is_write(&group.call));
    let all = writes.fold(0u64, |sum, group| sum.saturating_add(group.bytes));
    let mib = all.saturating_mul(2).div_ceil(1 << 20);
    let available = seen.storage.dirty_limit.as_ref().and_then(|limit| limit.available_bytes);
    let command = |command: String| Step::Run { command, names: Vec::new() };
    Remedy {
        what: match available {
            // Twice of it has to be there.
            Some(there) if there / 2 >= mib << 20 => "Raise the limit: the memory for it is there".to_owned(),
            _ => format!(
                "Where {} of memory are free for what is written in one go, raise the limit; else the device is the limit: write less",
                size(all)
            ),
        },
        steps: vec![
            // To be put back: the one in use is not 0.
            command("sysctl vm.dirty_ratio vm.dirty_bytes".to_owned()),
            command(format!("sysctl vm.dirty_bytes={}", mib << 20)),
        ],
        gain: gain(
            format!("time in {}() of {}", group.call, group.name),
            [LEAST_GAIN_PERCENT, 100.0],
            "all that was written here fits below the limit then, and is copied into memory, which takes half of the time or \
                    less; with less free memory, or where the program goes on writing, it waits again",
        ),
        risk: "vm.dirty_bytes and vm.dirty_ratio replace one another: note both first, and put back the one that is not 0; a power cut loses more, a sync takes longer, and the changed pages are no room for other data"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Work, only};
    use super::*;
    use crate::block::{CarriedBytes, OwnerKind};

    /// Calls of one second, and bios of 8 MiB.
    fn work(asked: u64, by: &str) -> Work {
        let mut work = Work::new(2_000_000_000);
        work.bios_of("dd", 2048, "W", 1_000, 600_000);
        work.block().originators.originators.clear();
        work.owner("dd", OwnerKind::Task, 0, 8 << 20);
        let one = &mut work.block().originators.originators[0];
        one.carriers.push(CarriedBytes { carrier: by.into(), read_bytes: 0, written_bytes: 8 << 20 });
        work.call("write", "dd (7)", 128, 1_000_000_000, asked);
        work
    }

    #[test]
    fn writes_as_fast_as_the_device_are_told() {
        let mut work = work(10 << 20, "kworker/u8:1 (9)");
        work.call("write", "other (8)", 1, 1_000, 512 << 10);
        let finding = only(find(&work.seen()));
        // Twice of all that is written: the kernel holds nobody up below half of it.
        let steps = &finding.advice[0].steps;
        assert!(
            matches!(&steps[1], Step::Run { command, .. } if command == "sysctl vm.dirty_bytes=22020096"),
            "{steps:?}"
        );
        assert!(finding.advice[0].gain.known().is_some_and(|gain| gain.least_percent >= 50.0));
        assert_eq!(
            finding.what,
            "dd (7) waits 1.00 s of 2.00 s in 128 calls of write() into the page cache: 10 MiB a second, as fast as the device takes it."
        );
        assert!(finding.cause.contains("Of 10 MiB that it wrote, 8 MiB reached the device"), "{}", finding.cause);
    }

    /// The bios are under way for a part of the time, and the limit is what holds it up.
    #[test]
    fn a_small_limit_is_named() {
        let of = |bytes, available_bytes| {
            let mut work = work(10 << 20, "kworker/u8:1 (9)");
            work.calls.by_process[0].total_ns = 1_900_000_000;
            let setting = format!("vm.dirty_bytes={bytes}");
            work.storage.dirty_limit = Some(DirtyLimit { bytes, is_estimate: false, setting, available_bytes });
            find(&work.seen())
        };
        let finding = only(of(1 << 20, Some(200 << 20)));
        assert!(
            finding.what.ends_with(", where 1 MiB of changed memory are allowed (vm.dirty_bytes=1048576)."),
            "{}",
            finding.what
        );
        assert!(
            finding.cause.contains("The limit is 1 MiB (vm.dirty_bytes=1048576), and 200 MiB were available."),
            "{}",
            finding.cause
        );
        assert_eq!(finding.advice[0].what, "Raise the limit: the memory for it is there");
        let setting = "vm.dirty_ratio=1".to_owned();
        let of_ratio = DirtyLimit { bytes: 2 << 20, is_estimate: true, setting, available_bytes: Some(200 << 20) };
        assert_eq!(is_set(&of_ratio), " The limit is about 2 MiB (vm.dirty_ratio=1), and 200 MiB were available.");
        for (bytes, available) in [(1 << 20, None), (20 << 20, Some(200 << 20)), (8 << 20, Some(200 << 20))] {
            assert!(of(bytes, available).is_empty(), "{bytes} {available:?}");
        }
    }

    /// 10 MiB are written, and 4 GiB may be changed: a file system that has little room left writes at once, and finds blocks slowly.
    #[test]
    fn writes_that_stay_far_below_the_limit_are_not() {
        for (limit_mib, told) in [(4096, false), (21, false), (18, true)] {
            let mut work = work(10 << 20, "kworker/u8:1 (9)");
            let setting = "vm.dirty_ratio=20".to_owned();
            let bytes = limit_mib << 20;
            let available_bytes = Some(5 * bytes);
            work.storage.dirty_limit = Some(DirtyLimit { bytes, is_estimate: true, setting, available_bytes });
            assert_eq!(find(&work.seen()).len(), usize::from(told), "{limit_mib}");
        }
    }

    #[test]
    fn own_bios_writes_that_stay_in_memory_and_syncs_are_not() {
        assert!(find(&work(10 << 20, "dd (7)").seen()).is_empty());
        assert!(find(&work(80 << 20, "kworker/u8:1 (9)").seen()).is_empty());
        let mut synced = work(10 << 20, "kworker/u8:1 (9)");
        synced.call("fsync", "dd (7)", 128, 1_100_000_000, 0);
        assert!(find(&synced.seen()).is_empty());
        // The bios were under way for a part of the time: something else holds it up.
        let mut rare = work(10 << 20, "kworker/u8:1 (9)");
        rare.calls.by_process[0].total_ns = 1_900_000_000;
        assert!(find(&rare.seen()).is_empty());
    }
}
