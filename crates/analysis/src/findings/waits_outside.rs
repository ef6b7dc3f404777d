//! A program whose reads, writes and syncs take long while its bios do not. The wait is before the device's queue, or after the
//! completion. Calls without any storage event are among them. For syncs and bios without an owner, the time of all bios of the trace is
//! the upper bound.

use super::{
    Finding, GroupBy, Measure, MeasureUnit, Remedy, Rule, Seen, Step, Weight, fsync_storm, groups, lost_events,
    measure, percent, small_reads, stage,
};
use crate::Evidence;
use crate::block::{BlockFound, OwnerKind};
use crate::calls::{CallGroup, UnseenCalls, is_at_offset, is_read, is_sync, is_write};
use crate::units::{duration, grouped};

const MIN_CALLS: u64 = 50;
/// Least number of calls without storage that show a pattern.
const MIN_UNSEEN: u64 = 5;
/// A read from the page cache takes less than this, nanoseconds.
const MIN_MEAN_NS: u64 = 1_000_000;
/// From this duration on a few calls count too, nanoseconds. A busy processor or a lock of a file system delays them less.
const LONG_MEAN_NS: u64 = 100_000_000;
/// Least share of the recorded time, percent. Below it the program waits mostly for something else.
const MIN_SPAN_PERCENT: f64 = 20.0;
/// Least share of the calls' time that is spent outside storage, percent.
const MIN_OUTSIDE_PERCENT: f64 = 60.0;
/// From this share of the calls on they wait for a worker's bios, percent.
const OF_WORKERS_PERCENT: f64 = 80.0;
/// From this share of the recording with a task that waits for a processor on, the calls may have waited for one, per mille.
const BUSY_PERMILLE: u64 = 500;

/// 8 MiB: memory and nearly all devices are faster.
const SLOW_STREAM_BYTES_A_SECOND: f64 = (8 << 20) as f64;

/// Calls of one kind by one process.
struct Waits<'a> {
    name: &'a str,
    call: &'a str,
    n: u64,
    ns: u64,
    /// Upper bound of its bios' time: the process's own and those that workers queued for it, or all bios of the trace.
    bios_ns: u64,
    /// Kernel workers queued most of its reads.
    is_by_workers: bool,
    unseen: Option<&'a UnseenCalls>,
}

impl Waits<'_> {
    fn outside(&self) -> u64 {
        self.ns.saturating_sub(self.bios_ns)
    }

    fn matters(&self, seen: &Seen<'_>) -> bool {
        let mean = self.ns / self.n.max(1);
        let many = self.n >= MIN_CALLS || self.unseen.is_some_and(|unseen| unseen.n >= MIN_UNSEEN);
        (many && mean >= MIN_MEAN_NS || mean >= LONG_MEAN_NS)
            && seen.of_span(self.outside()) >= MIN_SPAN_PERCENT
            && percent(self.outside(), self.ns) >= MIN_OUTSIDE_PERCENT
    }
}

/// Sequential reads of a file with few bios that are much slower than a copy in memory. File systems with compression are left out,
/// because they take processor time.
fn is_slow_stream(seen: &Seen<'_>, read_bytes: u64, call: &CallGroup) -> bool {
    let slow = call.total_ns as f64 / 1e9 * SLOW_STREAM_BYTES_A_SECOND > call.bytes as f64;
    call.bytes > 0 && read_bytes.saturating_mul(2) >= call.bytes && slow && is_plain(seen)
}

/// Whether all used file systems store data without compression.
fn is_plain(seen: &Seen<'_>) -> bool {
    let plain = |kind: &str| matches!(kind, "ext2" | "ext3" | "ext4" | "xfs" | "vfat");
    let used = || seen.storage.mounts.iter().filter(|mount| seen.is_used(&mount.device));
    used().count() > 0 && used().all(|mount| plain(&mount.kind))
}

/// Bytes read for an unknown program. With a cgroup's limit kernel workers queue the program's bios.
fn read_for(found: &BlockFound, own: u64) -> u64 {
    let unknown = found.originators.originators.iter().filter(|one| one.kind == OwnerKind::Unknown);
    unknown.fold(own, |sum, one| sum.saturating_add(one.read_bytes))
}

/// Whether something was written for it.
fn writes(found: &BlockFound, name: &str) -> bool {
    found.originators.originators.iter().any(|one| one.is_called(name) && one.written_bytes > 0)
}

/// Least number of calls. For fewer it may be chance, because no event joins a call and a worker's bio.
fn is_by_workers(unseen: &UnseenCalls) -> bool {
    unseen.n >= MIN_UNSEEN && percent(unseen.with_worker_bio, unseen.n) >= OF_WORKERS_PERCENT
}

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let mut all: Vec<Waits<'_>> = Vec::new();
    // Without bios in the trace no call shows storage.
    let Some(found) = seen.block.filter(|block| groups(block, GroupBy::All).any(|group| group.bios > 0)) else {
        return Vec::new();
    };
    let own = |name: &str| groups(found, GroupBy::Owner).find(|group| group.name == name);
    // How long lost bios were in flight is unknown.
    let whole = groups(found, GroupBy::All).find_map(|group| stage(group, "Q2C")).map(|q2c| q2c.total_ns);
    let whole = whole.filter(|_| lost_events::find(seen).is_empty());
    for call in seen.calls.by_process.iter().filter(|group| is_read(&group.call)) {
        // A program whose bios workers queue may have none of its own. Calls whose bios the trace lacks say nothing.
        let own = own(&call.name);
        let q2c = own.map(|own| stage(own, "Q2C"));
        if q2c.is_some_and(|q2c| q2c.is_none()) {
            continue;
        }
        let (bios, bytes) = own.map_or((0, 0), |own| (own.bios, own.bytes));
        let (n, ns) = (call.ns.n, call.total_ns);
        let of = |bios_ns, is_by_workers| Waits {
            name: &call.name,
            call: &call.call,
            n,
            ns,
            bios_ns,
            is_by_workers,
            unseen: None,
        };
        if let Some(q2c) = q2c.flatten()
            && (bios * 2 >= n || is_slow_stream(seen, bytes, call))
        {
            all.push(of(q2c.total_ns, false));
        } else if let Some(bios_ns) = whole
            && is_slow_stream(seen, read_for(found, bytes), call)
        {
            all.push(of(bios_ns, true));
        }
    }
    let storms = fsync_storm::find(seen);
    let is_storm = |name: &str| storms.iter().any(|one| one.processes.iter().any(|known| known == name));
    for call in seen.calls.by_process.iter().filter(|group| is_sync(&group.call) && !is_storm(&group.name)) {
        if let Some(bios_ns) = whole
            && is_plain(seen)
            && writes(found, &call.name)
        {
            let (n, ns, is_by_workers) = (call.ns.n, call.total_ns, false);
            all.push(Waits { name: &call.name, call: &call.call, n, ns, bios_ns, is_by_workers, unseen: None });
        }
    }
    for unseen in seen.calls.long_without_storage.iter().filter(|one| is_read(&one.call) || is_write(&one.call)) {
        // A read of a pipe or a terminal waits for another program.
        if !is_at_offset(&unseen.call) && !is_by_workers(unseen) {
            continue;
        }
        match all.iter_mut().find(|one| one.name == unseen.name && one.call == unseen.call) {
            Some(waits) => {
                waits.n += unseen.n;
                waits.ns = waits.ns.saturating_add(unseen.total_ns);
                waits.bios_ns = waits.bios_ns.saturating_add(unseen.worker_bios_ns);
                waits.unseen = Some(unseen);
            }
            None => {
                let (n, ns, bios_ns) = (unseen.n, unseen.total_ns, unseen.worker_bios_ns);
                let (name, call, is_by_workers) = (&unseen.name, &unseen.call, false);
                all.push(Waits { name, call, n, ns, bios_ns, is_by_workers, unseen: Some(unseen) });
            }
        }
    }
    // The finding on small reads already explains these.
    let told: Vec<Finding> = small_reads::find(seen).into_iter().filter(|one| one.weight == Weight::Cost).collect();
    let is_told = |waits: &&Waits<'_>| told.iter().any(|one| one.processes.iter().any(|name| name == waits.name));
    all.retain(|waits| !is_told(&waits));
    all.iter().filter(|waits| waits.matters(seen)).map(|waits| finding(seen, waits)).collect()
}

fn finding(seen: &Seen<'_>, waits: &Waits<'_>) -> Finding {
    let source = "syscalls:sys_enter_*, sys_exit_*; block:block_bio_queue, block_rq_complete of the same thread";
    let mut evidence = vec![
        measure("calls", waits.n as f64, MeasureUnit::Count, source),
        measure("time in them", waits.ns as f64, MeasureUnit::Ns, source),
        measure("time of its bios", waits.bios_ns as f64, MeasureUnit::Ns, source),
    ];
    let calls = if waits.n == 1 { "call" } else { "calls" };
    let head =
        format!("{} waits {} in {} {calls} of {}()", waits.name, duration(waits.ns), grouped(waits.n), waits.call);
    let bios = format!("all of its bios are under way for {} at most", duration(waits.bios_ns));
    let mut what = format!("{head}, and {bios}.");
    let pressure = seen.storage.cpu_wait_permille;
    let is_busy = pressure.is_some_and(|part| part >= BUSY_PERMILLE);
    // Waits for a processor are not this long in each call.
    let is_long = waits.ns / waits.n.max(1) >= LONG_MEAN_NS;
    let others = if pressure.is_none() { ", a lock, or no free processor" } else { ", or a lock" };
    let mut cause = format!(
        "The rest passes before a bio comes to the queue, or after it has ended: a limit of its cgroup (io.max, blkio.throttle)\
         {others}. The device is not what is slow."
    );
    if waits.is_by_workers {
        cause = "Workers of the kernel queued most of what it read. A limit of the cgroup (io.max, blkio.throttle) holds bios back \
                 so. The device is not what is slow."
            .to_owned();
    }
    if let Some(unseen) = waits.unseen {
        evidence.push(measure("calls that show no storage", unseen.n as f64, MeasureUnit::Count, source));
        let by_worker = "bios of workers (kworker) that were queued within the call and completed at its end";
        evidence.push(measure(
            "of them with a worker's bio",
            unseen.with_worker_bio as f64,
            MeasureUnit::Count,
            by_worker,
        ));
        if is_by_workers(unseen) {
            cause = format!(
                "A worker of the kernel queued the bios of {} of these calls, and those were under way for {}. A limit of the \
                 cgroup (io.max, blkio.throttle) holds bios back so. The device is not what is slow.",
                grouped(unseen.with_worker_bio),
                duration(unseen.worker_bios_ns)
            );
        } else if unseen.n == waits.n {
            what = format!("{head} that show no storage.");
            cause = "Nothing in this trace shows what they waited for: it may be a limit of the cgroup (io.max), a lock, or a \
                     file system over the network or in another program (FUSE)."
                .to_owned();
        }
    }
    // Bios that a worker queues later show a limit, also when tasks wait for a processor.
    let is_held_back = waits.is_by_workers || waits.unseen.is_some_and(|unseen| unseen.with_worker_bio > 0);
    if is_busy && !is_held_back && !is_long {
        return no_free_processor(waits, what, evidence, pressure.unwrap_or(0) as f64 / 10.0);
    }
    Finding {
        processes: vec![waits.name.to_owned()],
        what,
        cause,
        evidence,
        lost_ns: waits.outside().into(),
        advice: vec![Remedy {
            what: "Look for a limit of the cgroup and how long it stalls (io.pressure), and record what it waits for".to_owned(),
            steps: vec![
                Step::Run {
                    command: "grep -r . /sys/fs/cgroup --include=io.max --include=io.pressure --include=blkio.throttle.*_device"
                        .to_owned(),
                    names: Vec::new(),
                },
                Step::Run { command: "flashscope record --events block,syscall,layers".to_owned(), names: Vec::new() },
            ],
            gain: Evidence::unknown("which of them it is, is not in the trace", "record it with --events block,syscall,layers"),
            risk: "none to look".to_owned(),
        }],
        ..Finding::of(Rule::WaitsOutside)
    }
}

/// This time is outside storage, so findings about storage come first.
fn no_free_processor(waits: &Waits<'_>, what: String, mut evidence: Vec<Measure>, busy_percent: f64) -> Finding {
    let source = "/proc/pressure/cpu when the recording began and ended";
    evidence.push(measure(
        "of the recording: a task waited for a processor",
        busy_percent,
        MeasureUnit::Percent,
        source,
    ));
    Finding {
        weight: Weight::Overview,
        processes: vec![waits.name.to_owned()],
        what,
        cause: format!(
            "The processors were busy: in {busy_percent:.0} % of the recorded time some task waited for a free one, and these calls \
             may have waited for that. A lock is possible, too. The device is not what is slow."
        ),
        evidence,
        lost_ns: waits.outside().into(),
        advice: vec![Remedy {
            what: "See what keeps the processors busy, and record again without it".to_owned(),
            steps: vec![Step::Run { command: "top -b -n 1".to_owned(), names: Vec::new() }],
            gain: Evidence::unknown(
                "how long these calls waited for a processor is not in the trace",
                "record it with --events block,syscall,layers",
            ),
            risk: "none to look".to_owned(),
        }],
        ..Finding::of(Rule::WaitsOutside)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Work, only};
    use super::*;

    #[test]
    fn a_wait_before_the_queue_is_told() {
        let mut work = Work::new(5_000_000_000);
        work.bios_of("reader", 1000, "R", 1_000, 186_000);
        work.call("pread64", "reader (7)", 1000, 4_900_000_000, 0);
        let finding = only(find(&work.seen()));
        assert_eq!(
            finding.what,
            "reader (7) waits 4.90 s in 1,000 calls of pread64(), and all of its bios are under way for 187.00 ms at most."
        );
        assert_eq!(finding.lost_ns, 4_713_000_000.into());
    }

    #[test]
    fn busy_processors_stand_behind_what_storage_costs() {
        let mut work = Work::new(5_000_000_000);
        work.bios_of("reader", 1000, "R", 1_000, 186_000);
        work.call("pread64", "reader (7)", 1000, 4_900_000_000, 0);
        work.storage.cpu_wait_permille = Some(900);
        let busy = only(find(&work.seen()));
        assert_eq!(busy.weight, Weight::Overview);
        assert!(busy.cause.starts_with("The processors were busy: in 90 % of the recorded time"), "{}", busy.cause);
        work.storage.cpu_wait_permille = Some(20);
        let free = only(find(&work.seen()));
        assert!(free.weight == Weight::Cost && !free.cause.contains("processor"), "{}", free.cause);
        // A limit of a cgroup is known by bios that come later.
        work.calls.long_without_storage = vec![unseen("pread64", 30, 30)];
        work.storage.cpu_wait_permille = Some(900);
        assert_eq!(only(find(&work.seen())).weight, Weight::Cost);
        // One call of seconds does not wait for a processor.
        let mut sync = Work::new(5_000_000_000);
        sync.mount("/data", "ext4", "rw");
        sync.bios_of("dd", 20, "R", 1_000, 1_999_000);
        sync.owner("dd (7)", OwnerKind::Task, 0, 8 << 20);
        sync.call("fsync", "dd (7)", 1, 4_000_000_000, 0);
        sync.storage.cpu_wait_permille = Some(900);
        assert_eq!(only(find(&sync.seen())).weight, Weight::Cost);
    }

    #[test]
    fn a_stream_that_a_limit_holds_back_has_few_bios() {
        let of = |kind: &str, bytes, ns| {
            let mut work = Work::new(5_000_000_000);
            work.mount("/data", kind, "rw");
            // 20 bios are under way for 50 ms together; these have 4 KiB each here.
            work.bios_of("dd", 20, "R", 1_000, 2_499_000);
            work.call("read", "dd (7)", 64, ns, bytes);
            find(&work.seen())
        };
        let finding = only(of("ext4", 80 << 10, 4_000_000_000));
        assert!(finding.what.starts_with("dd (7) waits 4.00 s in 64 calls of read()"), "{}", finding.what);
        assert!(finding.cause.contains("io.max"), "{}", finding.cause);
        // Most came from the page cache; a file system that unpacks.
        assert!(of("ext4", 1 << 20, 4_000_000_000).is_empty());
        assert!(of("squashfs", 80 << 10, 4_000_000_000).is_empty());
    }

    /// `dd` beside a worker that queues what it reads; and with one sync of what it wrote.
    #[test]
    fn all_bios_of_a_trace_bound_what_a_call_can_wait_for_them() {
        let of = |call: &str, n, ns, bios_ns: u64, kind: OwnerKind| {
            let mut work = Work::new(5_000_000_000);
            work.mount("/data", "ext4", "rw");
            work.bios_of("dd", 20, "R", 1_000, bios_ns / 20 - 1_000);
            work.owner("dd (7)", OwnerKind::Task, 0, 8 << 20);
            work.owner("kworker/1:3", kind, 20 << 20, 0);
            work.call(call, "dd (7)", n, ns, if call == "read" { 18 << 20 } else { 0 });
            find(&work.seen())
        };
        let unknown = OwnerKind::Unknown;
        let read = only(of("read", 300, 4_800_000_000, 40_000_000, unknown));
        assert_eq!(
            read.what,
            "dd (7) waits 4.80 s in 300 calls of read(), and all of its bios are under way for 40.00 ms at most."
        );
        assert!(read.cause.starts_with("Workers of the kernel queued most of what it read."), "{}", read.cause);
        // Workers queued all of it: its own code was in memory.
        let mut held = Work::new(5_000_000_000);
        held.mount("/data", "ext4", "rw");
        held.bios_of("other", 20, "R", 1_000, 2_000_000);
        held.owner("kworker/1:3", OwnerKind::Unknown, 8 << 20, 0);
        held.call("read", "cat (7)", 64, 4_800_000_000, 8 << 20);
        assert_eq!(only(find(&held.seen())).processes, ["cat (7)"]);
        let sync = only(of("fsync", 1, 4_000_000_000, 40_000_000, unknown));
        assert!(sync.what.starts_with("dd (7) waits 4.00 s in 1 call of fsync(), and all"), "{}", sync.what);
        // What another program read is not for it; a device that is busy; short calls; quick ones.
        assert!(of("read", 300, 4_800_000_000, 40_000_000, OwnerKind::Task).is_empty());
        assert!(of("fsync", 1, 4_000_000_000, 3_000_000_000, unknown).is_empty());
        assert!(of("fsync", 20, 1_200_000_000, 40_000_000, unknown).is_empty());
        assert!(of("read", 300, 1_200_000_000, 40_000_000, unknown).is_empty());
        // A storm of syncs has a finding of its own.
        assert!(of("fsync", 40, 4_800_000_000, 40_000_000, unknown).is_empty());
    }

    fn unseen(call: &str, n: u64, with_worker_bio: u64) -> UnseenCalls {
        let (call, name) = (call.to_owned(), "reader (7)".to_owned());
        UnseenCalls {
            call,
            name,
            n,
            total_ns: n * 95_000_000,
            longest_ns: 99_000_000,
            with_worker_bio,
            worker_bios_ns: n * 100_000,
        }
    }

    #[test]
    fn calls_without_storage_are_told_as_far_as_the_trace_shows_them() {
        let of = |calls: Vec<UnseenCalls>| {
            let mut work = Work::new(5_000_000_000);
            work.bios_of("reader", 570, "R", 1_000, 186_000);
            work.call("pread64", "reader (7)", 570, 120_000_000, 0);
            work.calls.long_without_storage = calls;
            find(&work.seen())
        };
        // 30 of 600 calls wait for a limit: 570 are quick.
        let finding = only(of(vec![unseen("pread64", 30, 30)]));
        assert!(
            finding.what.starts_with("reader (7) waits 2.97 s in 600 calls of pread64(), and all of its"),
            "{}",
            finding.what
        );
        assert!(
            finding.cause.starts_with("A worker of the kernel queued the bios of 30 of these calls"),
            "{}",
            finding.cause
        );
        // read() may be of a pipe; pread() is not, and what it waits for is unknown.
        assert!(of(vec![unseen("read", 30, 2)]).is_empty());
        // Neither where other reads of it are of a file.
        let mut shell = Work::new(5_000_000_000);
        shell.bios_of("reader", 10, "R", 1_000, 186_000);
        shell.call("read", "reader (7)", 10, 2_000_000, 0);
        shell.calls.long_without_storage = vec![unseen("read", 31, 0)];
        assert!(find(&shell.seen()).is_empty());
        // One call of a pipe, at whose end a worker's bio completed by chance.
        let mut chance = unseen("read", 1, 1);
        chance.total_ns = 1_450_000_000;
        shell.calls.long_without_storage = vec![chance];
        assert!(find(&shell.seen()).is_empty());
        let by_worker = only(of(vec![unseen("read", 30, 28)]));
        assert!(by_worker.cause.contains("io.max"), "{}", by_worker.cause);
        let unknown = only(of(vec![unseen("pwrite64", 30, 0)]));
        assert_eq!(unknown.what, "reader (7) waits 2.85 s in 30 calls of pwrite64() that show no storage.");
        assert!(unknown.cause.starts_with("Nothing in this trace shows what they waited for"), "{}", unknown.cause);
        assert!(of(vec![unseen("pwrite64", 4, 0)]).is_empty());
        // Without bios no call shows storage.
        let mut without = Work::new(5_000_000_000);
        without.calls.long_without_storage = vec![unseen("pread64", 30, 0)];
        assert!(find(&without.seen()).is_empty());
    }

    #[test]
    fn a_slow_device_and_calls_of_others_are_not() {
        let mut slow = Work::new(5_000_000_000);
        slow.bios_of("reader", 1000, "R", 1_000, 4_800_000);
        slow.call("pread64", "reader (7)", 1000, 4_900_000_000, 0);
        assert!(find(&slow.seen()).is_empty());
        // Its bios are not in the trace, as with a file system of the network.
        let mut elsewhere = Work::new(5_000_000_000);
        elsewhere.bios_of("other", 1000, "R", 1_000, 186_000);
        elsewhere.call("pread64", "reader (8)", 1000, 4_900_000_000, 0);
        assert!(find(&elsewhere.seen()).is_empty());
    }
}
