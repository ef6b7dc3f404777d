//! A full file system: calls that it refused, or no free space when the recording began.

use super::{Finding, Measure, MeasureUnit, Mount, Remedy, Rule, Seen, Step, Weight, measure, percent};
use crate::Evidence;
use crate::calls::RefusedCalls;
use crate::units::{counted, grouped, size};
use flashscope_trace::FileId;

/// Least free part of its size, per cent. ext4 keeps 5 % for root (mke2fs -m), and reports the free space without it.
const MIN_FREE_PERCENT: f64 = 3.0;
/// With this much free, bytes, no usual write fails, however large the device is.
const ENOUGH_BYTES: u64 = 1 << 30;
/// If fewer bytes were written than this part of those read, the recording is of reading.
const READS_A_WRITE: u64 = 10;

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let (mut found, refused): (Vec<Finding>, Vec<String>) = refusals(seen).into_iter().unzip();
    for mount in &seen.storage.mounts {
        // The refused calls say more.
        if refused.contains(&mount.device) {
            continue;
        }
        // Images are always full.
        let grows =
            !mount.has("ro") && !matches!(mount.kind.as_str(), "squashfs" | "erofs" | "iso9660" | "tmpfs" | "devtmpfs");
        if let (Some(size), Some(free)) = (mount.size_bytes, mount.free_bytes)
            && grows
            && percent(free, size) < MIN_FREE_PERCENT
            && free < ENOUGH_BYTES
            && seen.is_used(&mount.device)
        {
            found.push(of_mount(mount, size, free, is_written(seen, &mount.device)));
        }
    }
    found
}

/// For each file system that refused calls: what is found, and its device. Calls whose file the trace does not show are the only one's that
/// has refused others, if there is one.
fn refusals(seen: &Seen<'_>) -> Vec<(Finding, String)> {
    let device = |one: &RefusedCalls| match &one.file {
        Some(file) => Some(FileId::parse(file)?.device?.to_string()),
        None => one.device.clone(),
    };
    let all = &seen.calls.refused;
    let mut devices: Vec<String> = Vec::new();
    for known in all.iter().filter_map(device) {
        if !devices.contains(&known) {
            devices.push(known);
        }
    }
    let is_only = devices.len() == 1;
    if devices.is_empty() || (!is_only && all.iter().any(|one| device(one).is_none())) {
        devices.push(String::new());
    }
    let of = |name: String| {
        let is_its = |one: &&RefusedCalls| device(one).map_or(is_only || name.is_empty(), |known| known == name);
        let its: Vec<&RefusedCalls> = all.iter().filter(is_its).collect();
        Some((of_refused(seen, &name, &its)?, name))
    };
    devices.into_iter().filter_map(of).collect()
}

fn of_refused(seen: &Seen<'_>, device: &str, its: &[&RefusedCalls]) -> Option<Finding> {
    let most = its.first()?;
    let n: u64 = its.iter().map(|one| one.n).sum();
    let mount = seen.storage.mounts_of(device).next();
    let place = match (mount, device) {
        (Some(mount), _) => mount.target.clone(),
        (None, "") => "a file system that the trace does not name".to_owned(),
        (None, device) => seen.storage.device_name(device),
    };
    let is_quota = most.error == "EDQUOT";
    let by_others = match its.iter().all(|one| one.file.is_none()) && !device.is_empty() {
        true => " All files that it writes otherwise are there: the trace does not show the file of the failed call.",
        false => "",
    };
    let cause = match is_quota {
        true => "The quota of its user, group or project there is used up. What was not written is not stored.",
        false => "No blocks or no inodes are free there. What was not written is not stored.",
    };
    let further = match n - most.n {
        0 => String::new(),
        rest => format!(", and {} more of it or of others", counted(rest, "call")),
    };
    let mut evidence =
        vec![measure("failed calls", n as f64, MeasureUnit::Count, "syscalls:sys_exit_* (their result)")];
    evidence.extend(mount.into_iter().flat_map(room));
    let target = mount.map(|mount| mount.target.clone());
    let command = if is_quota { "repquota -s" } else { "du -xh -d 2" };
    let mut steps = vec![Step::Run { command: "df -i".to_owned(), names: target.iter().cloned().collect() }];
    steps.extend(target.map(|target| Step::Run { command: command.to_owned(), names: vec![target] }));
    Some(Finding {
        weight: Weight::Fault,
        processes: vec![most.name.clone()],
        what: format!(
            "{} of {}() by {} failed with {} on {place}{further}.",
            if most.n == 1 { "A call".to_owned() } else { format!("{} calls", grouped(most.n)) },
            most.call,
            most.name,
            most.error
        ),
        cause: format!("{cause}{by_others}"),
        evidence,
        lost_ns: Evidence::unknown("what a refused call would have taken is not in the trace", ""),
        advice: vec![Remedy {
            what: "Find what uses the space, and free some; and have the program report the error".to_owned(),
            steps,
            gain: Evidence::unknown("how many calls succeed then follows from what is freed", "record it again"),
            risk: "none to look".to_owned(),
        }],
        ..Finding::of(Rule::FullDevice)
    })
}

fn room(mount: &Mount) -> Vec<Measure> {
    let source = "statvfs() of the mount point when the recording began";
    let of = |name: &str, bytes: Option<u64>| Some(measure(name, bytes? as f64, MeasureUnit::Bytes, source));
    [of("free", mount.free_bytes), of("size", mount.size_bytes)].into_iter().flatten().collect()
}

/// Whether anything writes to it: a task that only reads is not affected.
fn is_written(seen: &Seen<'_>, device: &str) -> bool {
    let bytes = |what: &str| seen.device_group(device, what).map_or(0, |group| group.bytes);
    seen.usage.program_wrote(device) || bytes("writes").saturating_mul(READS_A_WRITE) > bytes("reads")
}

fn of_mount(mount: &Mount, all: u64, free: u64, is_written: bool) -> Finding {
    Finding {
        weight: if is_written { Weight::Fault } else { Weight::Overview },
        what: format!("{} is full: {} of {} are free.", mount.target, size(free), size(all)),
        cause:
            "Writes fail with ENOSPC, files are laid out in pieces, and flash has no spare room to collect garbage in."
                .to_owned(),
        evidence: room(mount),
        lost_ns: Evidence::unknown("the time with enough free space is not in the trace", ""),
        advice: vec![Remedy {
            what: "Find what uses the space, and free some".to_owned(),
            steps: vec![Step::Run { command: "du -xh -d 2".to_owned(), names: vec![mount.target.clone()] }],
            gain: Evidence::unknown("the time with enough free space is not in the trace", "record it again"),
            risk: "none to look".to_owned(),
        }],
        ..Finding::of(Rule::FullDevice)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Work, only};
    use super::*;

    fn work(options: &str, kind: &str, free: u64) -> Work {
        let mut work = Work::new(1_000_000_000);
        work.bios(10, "W", 1_000, 1_000_000);
        work.mount("/data", kind, options);
        work.storage.mounts[0].size_bytes = Some(100 << 20);
        work.storage.mounts[0].free_bytes = Some(free);
        work
    }

    fn refused(call: &str, name: &str, error: &str, file: Option<&str>, n: u64) -> RefusedCalls {
        let (call, name, error) = (call.into(), name.into(), error.into());
        RefusedCalls { call, name, error, file: file.map(str::to_owned), device: None, n }
    }

    #[test]
    fn refused_calls_name_the_file_system_that_they_filled() {
        // There was room when the recording began.
        let mut work = work("rw", "ext4", 50 << 20);
        work.calls.refused = vec![
            refused("write", "dd (7)", "ENOSPC", Some("8:0 inode 12"), 3),
            refused("openat", "sh (8)", "ENOSPC", None, 2),
        ];
        let finding = only(find(&work.seen()));
        assert_eq!((finding.rule, finding.weight), (Rule::FullDevice, Weight::Fault));
        assert_eq!(
            finding.what,
            "3 calls of write() by dd (7) failed with ENOSPC on /data, and 2 calls more of it or of others."
        );
        assert_eq!(super::super::find(&work.seen())[0].rule, Rule::FullDevice);
        // It is said once.
        work.storage.mounts[0].free_bytes = Some(0);
        assert!(only(find(&work.seen())).what.contains("failed with ENOSPC"));
        // Without a file, none is named.
        work.storage.mounts[0].free_bytes = Some(50 << 20);
        work.calls.refused.remove(0);
        let finding = only(find(&work.seen()));
        assert_eq!(
            finding.what,
            "2 calls of openat() by sh (8) failed with ENOSPC on a file system that the trace does not name."
        );
        assert!(matches!(&finding.advice[0].steps[..], [Step::Run { names, .. }] if names.is_empty()), "{finding:?}");
        // All that it writes is on one file system.
        work.calls.refused[0].device = Some("8:0".to_owned());
        let finding = only(find(&work.seen()));
        assert_eq!(finding.what, "2 calls of openat() by sh (8) failed with ENOSPC on /data.");
        assert!(finding.cause.contains("All files that it writes otherwise are there"), "{}", finding.cause);
    }

    #[test]
    fn a_used_up_quota_and_two_file_systems_are_told_apart() {
        let mut work = work("rw", "ext4", 50 << 20);
        work.calls.refused = vec![
            refused("write", "dd (7)", "EDQUOT", Some("8:0 inode 12"), 1),
            refused("write", "dd (8)", "ENOSPC", Some("8:16 inode 12"), 1),
        ];
        let found = find(&work.seen());
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found[0].what, "A call of write() by dd (7) failed with EDQUOT on /data.");
        assert!(found[0].cause.starts_with("The quota of its user"), "{}", found[0].cause);
        assert_eq!(found[1].what, "A call of write() by dd (8) failed with ENOSPC on 8:16.");
    }

    #[test]
    fn a_full_file_system_is_named() {
        let finding = only(find(&work("rw", "ext4", 1 << 20).seen()));
        assert_eq!(finding.what, "/data is full: 1 MiB of 100 MiB are free.");
    }

    #[test]
    fn who_only_reads_is_not_held_up_by_it() {
        let mut work = work("rw", "ext4", 1 << 20);
        work.bios(10, "R", 1_000, 1_000_000);
        assert_eq!(only(find(&work.seen())).weight, Weight::Overview);
        work.usage.writes.insert("8:0".into(), 1);
        assert_eq!(only(find(&work.seen())).weight, Weight::Fault);
    }

    #[test]
    fn images_and_file_systems_with_room_are_not() {
        for (options, kind, free) in [("ro", "ext4", 0), ("rw", "squashfs", 0), ("rw", "ext4", 10 << 20)] {
            assert!(find(&work(options, kind, free).seen()).is_empty(), "{options} {kind} {free}");
        }
        // Two percent of a large disk is room enough.
        let mut large = work("rw", "ext4", 20 << 30);
        large.storage.mounts[0].size_bytes = Some(1 << 40);
        assert!(find(&large.seen()).is_empty());
        let mut other = work("rw", "ext4", 0);
        other.storage.mounts[0].device = "8:16".into();
        assert!(find(&other.seen()).is_empty());
    }
}
