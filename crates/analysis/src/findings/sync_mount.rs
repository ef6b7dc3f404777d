//! A file system that is mounted `sync` or `dirsync`: each write, or each change of a name, waits for the device.

use super::{Finding, MeasureUnit, Mount, Remedy, Rule, Seen, Step, gain, measure};
use crate::calls::{is_write, opens};
use crate::total::Total as _;
use crate::units::{duration, grouped};

/// Fewer writes are not worth a mount option.
const MIN_WRITES: u64 = 10;
/// Below this share of the recorded time it is not reported, per cent.
const MIN_PERCENT: f64 = 2.0;
/// Time of a write into the page cache, nanoseconds: from a fast desktop to a slow ARM core with tracing.
const CACHED_WRITE_NS: [u64; 2] = [1_000, 300_000];

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let mounts = || seen.storage.mounts.iter();
    let mut found: Vec<Finding> =
        mounts().filter(|mount| mount.has("sync")).filter_map(|mount| of_mount(seen, mount)).collect();
    // A file system may be mounted at several places.
    let names = mounts().find_map(|mount| mount.has("dirsync").then(|| of_names(seen, mount)).flatten());
    found.extend(names.filter(|_| found.is_empty()));
    found
}

/// The trace does not show in which directory a name was changed: the calls of a process count where they are slow, and where the device
/// has a write for each.
fn of_names(seen: &Seen<'_>, mount: &Mount) -> Option<Finding> {
    let calls = seen.calls.by_process.iter().filter(|group| changes_names(&group.call));
    let slow: Vec<_> = calls.filter(|group| group.ns.n >= MIN_WRITES && group.ns.mean >= CACHED_WRITE_NS[1]).collect();
    let n = slow.iter().map(|group| group.ns.n).total();
    let ns = slow.iter().map(|group| group.total_ns).total();
    let written = seen.device_group(&mount.device, "writes").map_or(0, |group| group.bios);
    if n == 0 || written < n || !(seen.of_span(ns) >= MIN_PERCENT || seen.matters(ns)) {
        return None;
    }
    let then = |each: u64| (100.0 - n.saturating_mul(each) as f64 / ns as f64 * 100.0).clamp(0.0, 100.0);
    let most = slow.iter().max_by_key(|group| group.total_ns)?;
    let source = "syscalls:sys_enter_*, sys_exit_*; mount options of /proc/self/mounts";
    let rest = mount.options.iter().filter(|one| *one != "dirsync").map(String::as_str).collect::<Vec<_>>().join(",");
    Some(Finding {
        what: format!(
            "{} is mounted with dirsync: {} calls that make, remove or rename files take {}, {} each.",
            mount.target,
            grouped(n),
            duration(ns),
            duration(ns / n)
        ),
        cause: format!(
            "With this option such a call returns only when the directory is on the device. Most time has {} in {}().",
            most.name, most.call
        ),
        evidence: vec![
            measure("calls", n as f64, MeasureUnit::Count, source),
            measure("time in them", ns as f64, MeasureUnit::Ns, source),
            measure("writes of the device", written as f64, MeasureUnit::Count, "block:block_bio_queue"),
        ],
        lost_ns: ns.into(),
        advice: vec![Remedy {
            what: "Mount without dirsync, and call fsync() of the directory where a name must last. A remount does not change this option"
                .to_owned(),
            steps: vec![
                Step::Run { command: "umount".into(), names: vec![mount.target.clone()] },
                Step::Run { command: "mount -o".into(), names: vec![rest, mount.source.clone(), mount.target.clone()] },
            ],
            gain: gain(
                "time in these calls",
                [then(CACHED_WRITE_NS[1]), then(CACHED_WRITE_NS[0])],
                "a change of a directory in memory takes 1 to 300 µs",
            ),
            risk: "a power cut loses names of the last seconds, unless the program calls fsync()".to_owned(),
        }],
        ..Finding::of(Rule::SyncMount)
    })
}

fn changes_names(call: &str) -> bool {
    opens(call)
        || ["creat", "unlink", "rename", "link", "symlink", "mkdir", "rmdir", "mknod"]
            .iter()
            .any(|head| call.starts_with(head))
}

fn of_mount(seen: &Seen<'_>, mount: &Mount) -> Option<Finding> {
    let (n, ns, bytes) = seen.calls_on(&mount.device, is_write);
    // File systems of raw flash have no bios.
    let is_used = seen.is_used(&mount.device) || mount.is_of_flash() && seen.programs_flash();
    if n < MIN_WRITES || !(seen.of_span(ns) >= MIN_PERCENT || seen.matters(ns)) || !is_used {
        return None;
    }
    let then = |each: u64| (100.0 - n.saturating_mul(each) as f64 / ns as f64 * 100.0).clamp(0.0, 100.0);
    let source = "syscalls:sys_enter_*, sys_exit_*; mount options of /proc/self/mounts";
    let of = format!("time in write() to files of {}", mount.target);
    Some(Finding {
        what: format!(
            "{} is mounted with sync: {} writes to its files take {}, {} each.",
            mount.target,
            grouped(n),
            duration(ns),
            duration(ns / n)
        ),
        cause: "With this option write() returns only when the data and the metadata are on the device.".to_owned(),
        evidence: vec![
            measure("writes", n as f64, MeasureUnit::Count, source),
            measure("time in them", ns as f64, MeasureUnit::Ns, source),
            measure("written", bytes as f64, MeasureUnit::Bytes, source),
        ],
        lost_ns: ns.into(),
        advice: vec![Remedy {
            what: "Mount without sync, and call fsync() where data must last".to_owned(),
            steps: vec![Step::Remount { target: mount.target.clone(), options: "async".into(), undo: "sync".into() }],
            gain: gain(
                of,
                [then(CACHED_WRITE_NS[1]), then(CACHED_WRITE_NS[0])],
                "a write into the page cache takes 1 to 300 µs",
            ),
            risk: "a power cut loses what was written in the last 30 s, unless the program calls fsync()".to_owned(),
        }],
        ..Finding::of(Rule::SyncMount)
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Work, only};
    use super::*;

    fn work(options: &str, n: u64, ns: u64) -> Work {
        let mut work = Work::new(1_000_000_000);
        work.bios(10, "WS", 1_000, 1_000_000);
        work.mount("/data", "ext4", options);
        work.call("write", "app (7)", n, ns, 4096 * n);
        work.file_call("write", "8:0 inode 12", n, ns);
        work
    }

    /// 300 files are made on ext4 with `dirsync`; without the option; and where nothing is written for it.
    #[test]
    fn names_that_wait_name_the_mount() {
        for (options, bios, each_ns, told) in [
            ("rw,relatime,dirsync", 1200, 4_000_000, true),
            ("rw,relatime", 1200, 4_000_000, false),
            ("rw,relatime,dirsync", 20, 4_000_000, false),
            ("rw,relatime,dirsync", 1200, 100_000, false),
        ] {
            let mut work = Work::new(2_600_000_000);
            work.bios(bios, "WS", 1_000, 1_000_000);
            work.mount("/data", "ext4", options);
            work.call("openat", "app (7)", 300, 300 * each_ns, 0);
            let found = find(&work.seen());
            assert_eq!(!found.is_empty(), told, "{options} {bios} {each_ns}");
            let Some(finding) = found.first() else { continue };
            let what =
                "/data is mounted with dirsync: 300 calls that make, remove or rename files take 1.20 s, 4.00 ms each.";
            assert_eq!(finding.what, what);
            let gain = finding.advice[0].gain.known().expect("a range");
            assert_eq!((gain.least_percent, gain.most_percent), (92.5, 99.975));
            let Step::Run { names, .. } = &finding.advice[0].steps[1] else { panic!("{:?}", finding.advice) };
            assert_eq!(names, &["rw,relatime", "/dev/sda", "/data"]);
        }
    }

    #[test]
    fn writes_that_wait_name_the_mount() {
        let finding = only(find(&work("rw,sync", 100, 500_000_000).seen()));
        assert_eq!(finding.what, "/data is mounted with sync: 100 writes to its files take 500.00 ms, 5.00 ms each.");
        let gain = finding.advice[0].gain.known().expect("a range");
        assert!((93.9..94.1).contains(&gain.least_percent) && gain.most_percent > 99.9, "{gain:?}");
    }

    #[test]
    fn raw_flash_has_no_bios() {
        for (kind, pages, n) in [("ubifs", 9, 1), ("ubifs", 0, 0), ("tmpfs", 9, 0)] {
            let mut work = work("rw,sync", 100, 500_000_000);
            work.block = None;
            work.storage.mounts[0].kind = kind.into();
            work.flash().wear.known_mut().expect("wear").programmed_pages = pages;
            assert_eq!(find(&work.seen()).len(), n, "{kind} {pages}");
        }
    }

    #[test]
    fn without_the_option_or_without_writes_nothing_is_said() {
        for (options, n, ns) in [("rw", 100, 500_000_000), ("rw,sync", 5, 500_000_000), ("rw,sync", 100, 1_000_000)] {
            assert!(find(&work(options, n, ns).seen()).is_empty(), "{options} {n} {ns}");
        }
    }
}
