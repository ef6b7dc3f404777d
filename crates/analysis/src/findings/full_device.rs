//! A file system without room.

use super::{Finding, MeasureUnit, Mount, Remedy, Rule, Seen, Step, Weight, measure, percent};
use crate::Evidence;
use crate::units::size;

/// Below this part of its size that is free, percent. ext4 keeps 5 % for root (mke2fs -m), and reports what is left beside it.
const MIN_FREE_PERCENT: f64 = 3.0;
/// With so much free, bytes, no usual write fails, however large the device is.
const ENOUGH_BYTES: u64 = 1 << 30;
/// With fewer bytes written than this part of those read, what is recorded is reading.
const READS_A_WRITE: u64 = 10;

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let mut found: Vec<Finding> = Vec::new();
    for mount in &seen.storage.mounts {
        // Images are full by nature.
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

/// A task that only reads is not delayed by it.
fn is_written(seen: &Seen<'_>, device: &str) -> bool {
    let bytes = |what: &str| seen.device_group(device, what).map_or(0, |group| group.bytes);
    seen.usage.program_wrote(device) || bytes("writes").saturating_mul(READS_A_WRITE) > bytes("reads")
}

fn of_mount(mount: &Mount, all: u64, free: u64, is_written: bool) -> Finding {
    let source = "statvfs() of the mount point when the recording began";
    Finding {
        rule: Rule::FullDevice,
        weight: if is_written { Weight::Fault } else { Weight::Overview },
        what: format!("{} is full: {} of {} are free.", mount.target, size(free), size(all)),
        cause:
            "Writes fail with ENOSPC, files are laid out in pieces, and flash has no spare room to collect garbage in."
                .to_owned(),
        evidence: vec![
            measure("free", free as f64, MeasureUnit::Bytes, source),
            measure("size", all as f64, MeasureUnit::Bytes, source),
        ],
        lost_ns: Evidence::unknown("the time with enough free space is not in the trace", ""),
        lost_bytes: None,
        advice: vec![Remedy {
            what: "Find what uses the space, and free some".to_owned(),
            steps: vec![Step::Run { command: "du -xh -d 2".to_owned(), names: vec![mount.target.clone()] }],
            gain: Evidence::unknown("the time with enough free space is not in the trace", "record it again"),
            risk: "none to look".to_owned(),
        }],
        uncertain: None,
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
