//! Small writes that each wait for the device: O_SYNC, O_DSYNC or O_DIRECT.

use super::{Finding, GroupBy, MeasureUnit, Remedy, Rule, Seen, Step, Weight, groups, measure, stage};
use crate::Evidence;
use crate::calls::{is_at_offset, is_write};
use crate::units::{duration, grouped, size};

const MIN_WRITES: u64 = 50;
/// What a write has to ask for at most to be small.
const MAX_BYTES: u64 = 16 << 10;
/// A write into the page cache takes less, nanoseconds.
const MIN_MEAN_NS: u64 = 100_000;

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let Some(found) = seen.block else { return Vec::new() };
    // A mount with `sync` is a cause of its own.
    if seen.storage.mounts.iter().any(|mount| mount.has("sync") && seen.is_used(&mount.device)) {
        return Vec::new();
    }
    let mut all = Vec::new();
    for call in seen.calls.by_process.iter().filter(|group| is_write(&group.call)) {
        // Its own bios, one or more for each call: no other task writes them later.
        let Some(own) = groups(found, GroupBy::Owner).find(|group| group.name == call.name) else { continue };
        let (n, ns) = (call.ns.n, call.total_ns);
        // A large write may become many small bios, as with data=journal: that is no small write.
        let (of_bio, asked) = (own.bytes / own.bios.max(1), call.bytes / n.max(1));
        // Its bios may be reads, too.
        let what = if asked > 0 { format!("{} each", size(asked)) } else { format!("bios of {}", size(of_bio)) };
        let waits = call.ns.mean >= MIN_MEAN_NS && seen.matters(ns);
        if n < MIN_WRITES || own.bios * 2 < n || of_bio.max(asked) > MAX_BYTES || !waits {
            continue;
        }
        let d2c = stage(own, "D2C").map_or(0, |d2c| d2c.ns.mean);
        let source = "syscalls:sys_enter_*, sys_exit_*; block:block_bio_queue by the same thread";
        all.push(Finding {
            rule: Rule::SmallSyncWrites,
            weight: Weight::Cost,
            what: format!(
                "{} waits {} in {} writes that each go to the device: {what}.",
                call.name,
                duration(ns),
                grouped(n)
            ),
            cause: format!(
                "It writes with O_SYNC or O_DIRECT: a write takes {}, of which the device has {}.",
                duration(call.ns.mean),
                duration(d2c)
            ),
            evidence: vec![
                measure("writes", n as f64, MeasureUnit::Count, source),
                measure("time in them", ns as f64, MeasureUnit::Ns, source),
                measure("its own bios", own.bios as f64, MeasureUnit::Count, source),
            ],
            lost_ns: ns.into(),
            lost_bytes: None,
            advice: vec![remedy(&call.call)],
            uncertain: None,
        });
    }
    all
}

/// A write at an offset changes a place of a file, as in a database or the disk of a virtual machine: its neighbour does not come next.
fn remedy(call: &str) -> Remedy {
    if is_at_offset(call) {
        return Remedy {
            what: "Have the page cache gather them, and sync where it matters; or have several under way at once"
                .to_owned(),
            steps: vec![Step::Code {
                line: "-drive file=DISK,cache=writeback /* QEMU; your own program: no O_DIRECT or O_SYNC, and \
                       fdatasync(fd), or io_uring */"
                    .to_owned(),
            }],
            gain: Evidence::unknown(
                "it follows from how often it has to sync, and from how many writes the device takes at once",
                "try it, and compare two recordings: flashscope diff",
            ),
            risk: "a power cut loses what was not yet synced".to_owned(),
        };
    }
    Remedy {
        what: "Gather records, and write 64 KiB or more at once".to_owned(),
        steps: vec![Step::Code { line: "setvbuf(file, NULL, _IOFBF, 1 << 16);".to_owned() }],
        gain: Evidence::unknown(
            "the device's time for larger writes is not in the trace",
            "record the program with a larger buffer, and compare: flashscope diff",
        ),
        risk: "a power cut loses what is in the buffer".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Work, only};
    use super::*;

    #[test]
    fn small_writes_that_wait_are_told() {
        let mut work = Work::new(1_000_000_000);
        work.bios(100, "WS", 1_000, 5_000_000);
        work.call("write", "task (7)", 100, 600_000_000, 409_600);
        let finding = only(find(&work.seen()));
        assert!(finding.advice[0].what.starts_with("Gather records"), "{:?}", finding.advice);
        assert_eq!(finding.what, "task (7) waits 600.00 ms in 100 writes that each go to the device: 4 KiB each.");
        // A place of a file that is written at random has no neighbour to be gathered with.
        work.calls.by_process[0].call = "pwrite64".to_owned();
        let finding = only(find(&work.seen()));
        assert!(finding.advice[0].what.starts_with("Have the page cache gather them"), "{:?}", finding.advice);
        work.mount("/data", "ext4", "rw,sync");
        assert!(find(&work.seen()).is_empty());
    }

    #[test]
    fn in_a_quiet_recording_most_of_the_time_in_calls_is_enough() {
        let mut work = Work::new(10_000_000_000);
        work.bios(100, "WS", 1_000, 2_000_000);
        work.call("write", "task (7)", 100, 200_000_000, 409_600);
        only(find(&work.seen()));
        work.call("fsync", "other (8)", 10, 300_000_000, 0);
        assert!(find(&work.seen()).is_empty());
    }

    #[test]
    fn large_writes_that_become_small_bios_are_not() {
        let mut work = Work::new(1_000_000_000);
        work.bios(1000, "WS", 1_000, 500_000);
        work.call("write", "task (7)", 60, 600_000_000, 60 << 16);
        assert!(find(&work.seen()).is_empty());
    }

    #[test]
    fn writes_into_the_cache_are_not() {
        let mut work = Work::new(1_000_000_000);
        work.bios(100, "WS", 1_000, 5_000_000);
        work.call("write", "task (7)", 1000, 2_000_000, 409_600);
        assert!(find(&work.seen()).is_empty());
        let mut other = Work::new(1_000_000_000);
        other.bios(100, "WS", 1_000, 5_000_000);
        other.call("write", "other (8)", 100, 600_000_000, 409_600);
        assert!(find(&other.seen()).is_empty());
    }
}
