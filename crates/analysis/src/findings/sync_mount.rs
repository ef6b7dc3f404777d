//! A file system that is mounted `sync`: each write waits for the device.

use super::{Finding, Gain, MeasureUnit, Mount, Remedy, Rule, Seen, Step, Weight, measure};
use crate::calls::is_write;
use crate::units::{duration, grouped};

/// Fewer writes are not worth a mount option.
const MIN_WRITES: u64 = 10;
/// Below this share of the recorded time it is not reported, per cent.
const MIN_PERCENT: f64 = 2.0;
/// Time of a write into the page cache, nanoseconds: from a fast desktop to a slow ARM core with tracing.
const CACHED_WRITE_NS: [u64; 2] = [1_000, 300_000];

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    seen.storage.mounts.iter().filter(|mount| mount.has("sync")).filter_map(|mount| of_mount(seen, mount)).collect()
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
        rule: Rule::SyncMount,
        weight: Weight::Cost,
        processes: Vec::new(),
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
        lost_bytes: None,
        advice: vec![Remedy {
            what: "Mount without sync, and call fsync() where data must last".to_owned(),
            steps: vec![Step::Remount { target: mount.target.clone(), options: "async".into(), undo: "sync".into() }],
            gain: Gain {
                of,
                least_percent: then(CACHED_WRITE_NS[1]),
                most_percent: then(CACHED_WRITE_NS[0]),
                basis: "a write into the page cache takes 1 to 300 µs".to_owned(),
            }
            .into(),
            risk: "a power cut loses what was written in the last 30 s, unless the program calls fsync()".to_owned(),
        }],
        uncertain: None,
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
