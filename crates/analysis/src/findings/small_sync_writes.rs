//! Small writes that each wait for the device: O_SYNC, O_DSYNC or O_DIRECT.

use super::{
    Finding, Gain, GroupBy, MIN_SPAN_PERCENT, MeasureUnit, Mount, Remedy, Rule, Seen, Step, code, flush_stalls, groups,
    measure, percent, read_before_write, stage,
};
use crate::block::BlockFound;
use crate::calls::{CallGroup, is_at_offset, is_sync, is_write};
use crate::total::Total as _;
use crate::units::{duration, grouped, size};
use crate::usage::TaskWrites;
use crate::{Evidence, split_task_label};

const MIN_WRITES: u64 = 50;
/// Largest size of a small write, bytes.
const MAX_BYTES: u64 = 16 << 10;
/// Size of writes that the advice names, bytes.
const TOGETHER_BYTES: u64 = 64 << 10;
const PAGE_BYTES: u64 = 4096;
/// Cost of one larger write without its data (flushes, the journal), in small writes of now.
const COST_THEN: [f64; 2] = [0.25, 4.0];
/// Least lower end of a gain's range, percent. A lower one says nothing.
const MIN_LEAST_PERCENT: f64 = 25.0;
/// Most I/O of the task that is not these writes, percent of its bytes.
const MAX_OTHER_PERCENT: f64 = 10.0;
/// The page cache writes blocks of a file system: smaller bios are O_DIRECT, except on FAT, whose blocks have 512 bytes.
const SMALLEST_BLOCK: u64 = 1024;
/// How the cause of a finding about O_DIRECT begins.
pub(super) const DIRECT: &str = "It writes with O_DIRECT:";
/// A write to the page cache takes less than this, nanoseconds.
const MIN_MEAN_NS: u64 = 100_000;

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let Some(found) = seen.block else { return Vec::new() };
    // The mount option `sync` has a finding of its own.
    if seen.storage.mounts.iter().any(|mount| mount.has("sync") && seen.is_used(&mount.device)) {
        return Vec::new();
    }
    // A recording of one device has only those write calls that sync.
    if seen.calls.total(is_write).0 == 0 {
        return seen.usage.writers.iter().filter_map(|writer| of_bios(seen, found, writer)).collect();
    }
    let mut all = Vec::new();
    for call in seen.calls.by_process.iter().filter(|group| is_write(&group.call)) {
        // It has at least one bio for each call, and no other task writes most of its data later.
        let Some(own) = groups(found, GroupBy::Owner).find(|group| group.name == call.name) else { continue };
        let (n, ns) = (call.ns.n, call.total_ns);
        // A large write may become many small bios, as with data=journal. It is not a small write.
        let (of_bio, asked) = (own.bytes / own.bios.max(1), call.bytes / n.max(1));
        // Some of its bios may be reads.
        let what = if asked > 0 { format!("{} each", size(asked)) } else { format!("bios of {}", size(of_bio)) };
        let waits = call.ns.mean >= MIN_MEAN_NS && seen.matters(ns);
        if read_before_write::of_call(seen, call).is_some() {
            continue;
        }
        // Bios of its syncs are not those of its writes, which may wait for a lock of the file or for the journal.
        let bios = own.bios.saturating_sub(seen.calls.sync_bios.get(&call.name).copied().unwrap_or(0));
        if n < MIN_WRITES || bios * 2 < n || of_bio.max(asked) > MAX_BYTES || !waits {
            continue;
        }
        if is_written_later(seen, found, &call.name) {
            continue;
        }
        let d2c = stage(own, "D2C").map_or(0, |d2c| d2c.ns.mean);
        let writer = seen.usage.writers.iter().find(|one| is_task(found, one, &call.name));
        let is_direct = is_direct(seen, found, of_bio, writer.map(|one| (one.device.as_str(), n)));
        let source = "syscalls:sys_enter_*, sys_exit_*; block:block_bio_queue by the same thread";
        all.push(Finding {
            processes: vec![call.name.clone()],
            what: format!(
                "{} waits {} in {} writes that each go to the device: {what}.",
                call.name,
                duration(ns),
                grouped(n)
            ),
            cause: format!(
                "{} a write takes {}, of which the device has {}.",
                if is_direct { DIRECT } else { "It writes with O_SYNC, O_DSYNC or O_DIRECT:" },
                duration(call.ns.mean),
                duration(d2c)
            ),
            evidence: vec![
                measure("writes", n as f64, MeasureUnit::Count, source),
                measure("time in them", ns as f64, MeasureUnit::Ns, source),
                measure("its own bios", bios as f64, MeasureUnit::Count, source),
            ],
            lost_ns: ns.into(),
            advice: vec![remedy(call, d2c.saturating_mul(bios) / n, is_direct)],
            ..Finding::of(Rule::SmallSyncWrites)
        });
    }
    all
}

/// Whether other tasks, as the kernel's workers, write most of what the task changed, in bios that nobody waits for: without the flag `S`.
/// Its writes may take long all the same: they wait for room in the journal, or for memory.
fn is_written_later(seen: &Seen<'_>, found: &BlockFound, name: &str) -> bool {
    let Some(one) = found.originators.originators.iter().find(|one| one.is_called(name)) else { return false };
    let is_later = |carrier: &str| {
        let tid = split_task_label(carrier).map(|(_, tid, _)| tid);
        let its = seen.usage.writers.iter().filter(|writer| carrier != name && Some(writer.tid) == tid);
        let (sync, bytes) = its.fold((0, 0), |(sync, bytes), one| (sync + one.sync_bytes, bytes + one.bytes));
        sync * 2 < bytes
    };
    let later = one.carriers.iter().filter(|carried| is_later(&carried.carrier));
    later.map(|carried| carried.written_bytes).total().saturating_mul(2) > one.written_bytes
}

/// Writes that only bios show: small, synchronous and one after another.
fn of_bios(seen: &Seen<'_>, found: &BlockFound, writer: &TaskWrites) -> Option<Finding> {
    let task = found.originators.task(writer.tid)?;
    let own = groups(found, GroupBy::Owner).find(|group| task.is_called(&group.name))?;
    let syncs = seen.calls.by_process.iter().any(|group| group.name == own.name && is_sync(&group.call));
    let (q2c, d2c) = (stage(own, "Q2C")?, stage(own, "D2C")?);
    let (n, of_bio) = (writer.sync_bios, writer.sync_bytes / writer.sync_bios.max(1));
    // The task's group also has its reads and its I/O on other devices.
    let is_rest = percent(own.bytes.saturating_sub(writer.sync_bytes), own.bytes) > MAX_OTHER_PERCENT;
    // If their sum is longer than the time in which they came, several were in flight at once.
    let beside = q2c.total_ns.saturating_sub(q2c.ns.max) > writer.active_ns.saturating_add(writer.active_ns / 10);
    let lost = q2c.total_ns.min(seen.span_ns);
    if n < MIN_WRITES || of_bio > MAX_BYTES || syncs || is_rest || beside || seen.of_span(lost) < MIN_SPAN_PERCENT {
        return None;
    }
    let flushes = found.flushes.requests.n;
    // Its own bios are its writes alone: the flushes are those of a journal.
    let is_of_others = flushes >= n / 2 && own.bios.saturating_sub(n) < n / 2;
    let is_direct = is_direct(seen, found, of_bio, Some((&writer.device, n)));
    // A sync of another program may cause them, too. The flushes and the writes fill the time in which it writes at most.
    let flushes_ns = found.flushes.requests_total_ns.known().copied().unwrap_or(0);
    let awaited = match is_of_others && !flush_stalls::is_by_syncs(seen) {
        true => flushes_ns.min(writer.active_ns.saturating_sub(lost)),
        false => 0,
    };
    let source = "block:block_bio_queue, block_rq_issue, block_rq_complete by the same thread";
    Some(Finding {
        processes: vec![own.name.clone()],
        what: format!(
            "{} waits {} in {} writes of {} to {} that go to the device one after another{}.",
            own.name,
            duration(lost),
            grouped(n),
            size(of_bio),
            seen.storage.device_name(&writer.device),
            match awaited > 0 {
                true => format!(", and up to {} for the journal's flushes between them", duration(awaited)),
                false => String::new(),
            }
        ),
        cause: format!(
            "{} its {} bios{} take {} each, of which the device has {}.{}",
            match is_direct {
                true => DIRECT,
                false => "It writes with O_SYNC, O_DSYNC or O_DIRECT, or syncs each write:",
            },
            grouped(own.bios),
            if flushes > 0 && own.bios > n && !is_of_others { ", flushes among them," } else { "" },
            duration(q2c.ns.mean),
            duration(d2c.ns.mean),
            if is_of_others {
                format!(
                    " Beside them the device takes {} for {} flushes, which commits of the journal cause: with O_SYNC it waits for these, too.",
                    duration(flushes_ns),
                    grouped(flushes)
                )
            } else {
                String::new()
            }
        ),
        evidence: [
            Some(measure("writes", n as f64, MeasureUnit::Count, source)),
            Some(measure("time of its bios", q2c.total_ns as f64, MeasureUnit::Ns, source)),
            (awaited > 0).then(|| measure("time of flushes", flushes_ns as f64, MeasureUnit::Ns, source)),
            Some(measure("its own bios", own.bios as f64, MeasureUnit::Count, source)),
        ]
        .into_iter()
        .flatten()
        .collect(),
        lost_ns: lost.saturating_add(awaited).min(seen.span_ns).into(),
        advice: vec![Remedy {
            what: "Gather records, and write 64 KiB or more at once; or have the page cache gather them, and sync where it matters"
                .to_owned(),
            steps: vec![match is_direct {
                true => code::WRITE_MORE_OR_CACHED.step(),
                false => code::BUFFER_NOT_SYNC.step(),
            }],
            gain: Evidence::unknown(
                "how much each call writes, and where, is not in a recording of one device",
                "record with --events block,cache,syscall",
            ),
            risk: "a power cut loses what is in the buffer".to_owned(),
        }],
        ..Finding::of(Rule::SmallSyncWrites)
    })
}

/// A write at an offset changes a part of a file, as in a database or a virtual disk. The next write is elsewhere.
///
/// `in_device_ns`: of one write.
fn remedy(call: &CallGroup, in_device_ns: u64, is_direct: bool) -> Remedy {
    if is_at_offset(&call.call) {
        return Remedy {
            what: "Have the page cache gather them, and sync where it matters; or have several under way at once"
                .to_owned(),
            steps: vec![match (is_virtual_machine(&call.name), is_direct) {
                (true, _) => Step::Code { line: "-drive file=DISK,cache=writeback".to_owned() },
                (_, true) => code::NOT_DIRECT.step(),
                (_, false) => code::NEITHER_DIRECT_NOR_SYNC.step(),
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
        steps: vec![match is_direct {
            true => code::WRITE_MORE.step(),
            false => code::BUFFER_WRITES.step(),
        }],
        gain: gain(call, in_device_ns),
        risk: "a power cut loses what is in the buffer".to_owned(),
    }
}

/// Whether the writes pass the page cache by and sync nothing: their bios are too small for it, or most of them cause no flush of a
/// cache that a sync would flush. Then libraries and options that leave out syncs do not help.
///
/// `writes`: the device that they go to, and their number.
fn is_direct(seen: &Seen<'_>, found: &BlockFound, of_bio: u64, writes: Option<(&str, u64)>) -> bool {
    let is_fat = |kind: &str| matches!(kind, "vfat" | "msdos" | "exfat");
    let on_fat = seen.storage.mounts.iter().any(|mount| is_fat(&mount.kind) && seen.is_used(&mount.device));
    of_bio < SMALLEST_BLOCK && !on_fat
        || writes.is_some_and(|(device, n)| would_flush(seen, device) && flushes(found) < n / 2)
}

/// Requests and bios of the trace that flush.
fn flushes(found: &BlockFound) -> u64 {
    let bios = groups(found, GroupBy::Flag).filter(|group| matches!(group.name.as_str(), "flush" | "FUA"));
    bios.map(|group| group.bios).max().unwrap_or(0).max(found.flushes.requests.n)
}

/// Whether each sync of a file there flushes the device's cache: it has one, and no mount option leaves the flushes out.
fn would_flush(seen: &Seen<'_>, device: &str) -> bool {
    let is_off = |mount: &Mount| {
        mount.has("nobarrier") || mount.value("barrier") == Some("0") || mount.value("fsync_mode") == Some("nobarrier")
    };
    let has_cache = seen.storage.disk(device).and_then(|disk| disk.write_cache.as_deref()) == Some("write back");
    has_cache && !seen.storage.mounts_of(device).any(is_off)
}

fn is_task(found: &BlockFound, writer: &TaskWrites, name: &str) -> bool {
    found.originators.task(writer.tid).is_some_and(|task| task.is_called(name))
}

/// By its name: qemu-system-arm, kvm.
fn is_virtual_machine(name: &str) -> bool {
    ["qemu", "kvm"].iter().any(|head| name.starts_with(head))
}

/// Many records share the cost of one write. Their data takes at most as long as its blocks take now, one by one.
fn gain(call: &CallGroup, in_device_ns: u64) -> Evidence<Gain> {
    let unknown = Evidence::unknown(
        "the device's time for larger writes is not in the trace",
        "record the program with a larger buffer, and compare: flashscope diff",
    );
    let each = call.bytes / call.ns.n.max(1);
    if each == 0 {
        return unknown;
    }
    let mean = call.ns.mean.max(1) as f64;
    let data = (in_device_ns as f64).min(mean);
    let records = TOGETHER_BYTES as f64 / each as f64;
    let blocks = records.min((TOGETHER_BYTES / PAGE_BYTES) as f64);
    // The last one is not full.
    let then = call.bytes.div_ceil(TOGETHER_BYTES) as f64;
    let part = |cost: f64| 100.0 * (1.0 - cost * then / call.total_ns.max(1) as f64);
    let least_percent = part(COST_THEN[1] * (mean - data) + blocks * data);
    if least_percent < MIN_LEAST_PERCENT {
        return unknown;
    }
    super::gain(
        format!("time in {}() of {}", call.call, call.name),
        [least_percent, part(COST_THEN[0] * mean)],
        format!(
            "a write of {} has {records:.0} records: its data takes as long as its blocks now, one by one, or less; what else a write \
             takes now is paid once, at {} to {} times",
            size(TOGETHER_BYTES),
            COST_THEN[0],
            COST_THEN[1]
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::super::Disk;
    use super::super::testing::{Work, only};
    use super::*;
    use crate::block::CarriedBytes;
    use flashscope_trace::TaskId;

    /// The change, and how to make it.
    type Case = (&'static str, fn(&mut Work));

    #[test]
    fn small_writes_that_wait_are_told() {
        let mut work = Work::new(1_000_000_000);
        work.bios(100, "WS", 1_000, 5_000_000);
        work.call("write", "task (7)", 100, 600_000_000, 409_600);
        let finding = only(find(&work.seen()));
        assert!(finding.advice[0].what.starts_with("Gather records"), "{:?}", finding.advice);
        assert_eq!(finding.what, "task (7) waits 600.00 ms in 100 writes that each go to the device: 4 KiB each.");
        // 16 of them in one write: 5 of the 6 ms are their data, whose time in one piece is unknown.
        assert!(finding.advice[0].gain.why().is_some());
        // Records of 200 bytes fill a block by the twenties; and 4 KiB that wait most for flushes are flushed once.
        work.calls.by_process[0].bytes = 20_000;
        let gain = |work: &Work| only(find(&work.seen())).advice[0].gain.known().cloned().expect("a range");
        let of = gain(&work);
        assert_eq!((of.least_percent.round(), of.most_percent.round()), (86.0, 100.0));
        let mut flushed = Work::new(1_000_000_000);
        flushed.bios(100, "WS", 1_000, 600_000);
        flushed.call("write", "task (7)", 100, 600_000_000, 409_600);
        assert_eq!(gain(&flushed).least_percent.round(), 64.0);
        work.calls.by_process[0].bytes = 409_600;
        // A place of a file that is written at random has no neighbour to be gathered with.
        work.calls.by_process[0].call = "pwrite64".to_owned();
        let finding = only(find(&work.seen()));
        assert!(finding.advice[0].what.starts_with("Have the page cache gather them"), "{:?}", finding.advice);
        work.mount("/data", "ext4", "rw,sync");
        assert!(find(&work.seen()).is_empty());
    }

    /// 100 new files, written to the page cache: the journal is full, and a worker writes them later.
    #[test]
    fn what_a_worker_writes_later_is_not_of_synchronous_writes() {
        let mut work = Work::new(1_000_000_000);
        work.bios(100, "W", 1_000, 5_000_000);
        work.call("write", "task (7)", 100, 600_000_000, 10_000);
        let told = |work: &Work| find(&work.seen()).len();
        assert_eq!(told(&work), 1);
        let worker = "kworker/u2:3 (40)".to_owned();
        let owner = &mut work.block.as_mut().unwrap().originators.originators[0];
        let written_bytes = owner.written_bytes;
        owner.carriers = vec![CarriedBytes { carrier: worker, read_bytes: 0, written_bytes }];
        let (device, bytes) = ("8:0".to_owned(), written_bytes);
        work.usage.writers.push(TaskWrites { device, tid: TaskId(40), bytes, ..TaskWrites::default() });
        assert_eq!(told(&work), 0);
        // Workers of dm-crypt and btrfs write what a task waits for.
        work.usage.writers[0].sync_bytes = bytes;
        assert_eq!(told(&work), 1);
    }

    #[test]
    fn bios_of_syncs_are_not_of_writes() {
        // Four threads write one file: each waits in write() for a lock that a sync of another has.
        let mut work = Work::new(1_000_000_000);
        work.bios(302, "WS", 1_000, 1_000_000);
        work.call("pwrite64", "task (7)", 300, 228_000_000, 300 << 12);
        work.call("fsync", "task (7)", 300, 600_000_000, 0);
        assert_eq!(find(&work.seen()).len(), 1);
        work.calls.sync_bios.insert("task (7)".to_owned(), 300);
        assert!(find(&work.seen()).is_empty());
    }

    #[test]
    fn writes_without_calls_are_known_by_their_bios() {
        let made = || {
            let mut work = Work::new(1_000_000_000);
            work.bios(100, "WS", 1_000, 5_000_000);
            work.usage.writers.push(TaskWrites {
                device: "8:0".into(),
                tid: TaskId(7),
                sync_bios: 100,
                sync_bytes: 409_600,
                active_ns: 500_000_000,
                ..TaskWrites::default()
            });
            work
        };
        let finding = only(find(&made().seen()));
        // A device that writes through its cache has none.
        assert!(!finding.cause.contains("flushes"), "{}", finding.cause);
        // A journal flushes, and the program's own bios are its writes alone.
        let mut journal = made();
        let flushes = &mut journal.block().flushes;
        (flushes.requests.n, flushes.requests_total_ns) = (100, 300_000_000.into());
        let cause = only(find(&journal.seen())).cause;
        assert!(!cause.contains("among them") && cause.contains("300.00 ms for 100 flushes"), "{cause}");
        // It waits for them where it writes for longer than its bios take, and no other program syncs.
        journal.usage.writers[0].active_ns = 900_000_000;
        let long = only(find(&journal.seen()));
        assert_eq!(long.lost_ns, 800_100_000.into());
        assert!(long.what.ends_with(", and up to 300.00 ms for the journal's flushes between them."), "{long:?}");
        journal.call("fsync", "other (8)", 100, 300_000_000, 0);
        assert_eq!(only(find(&journal.seen())).lost_ns, 500_100_000.into());
        let mut flushed = made();
        flushed.block().flushes.requests.n = 100;
        flushed.block().groups.iter_mut().for_each(|group| group.bios = 200);
        assert!(only(find(&flushed.seen())).cause.contains("200 bios, flushes among them, take"));
        let what = "task (7) waits 500.10 ms in 100 writes of 4 KiB to 8:0 that go to the device one after another.";
        assert_eq!((finding.what.as_str(), finding.lost_ns), (what, 500_100_000.into()));
        assert!(finding.advice[0].gain.why().is_some());
        let cases: [Case; 5] = [
            ("it syncs", |work| work.call("fsync", "task (7)", 100, 500_000_000, 0)),
            ("several at once", |work| work.usage.writers[0].active_ns = 100_000_000),
            ("large ones", |work| work.usage.writers[0].sync_bytes = 100 << 16),
            ("most is something else", |work| work.usage.writers[0].sync_bytes = 100 << 9),
            ("written with calls that are short", |work| work.call("write", "task (7)", 100, 1_000_000, 409_600)),
        ];
        for (name, change) in cases {
            let mut work = made();
            change(&mut work);
            assert!(find(&work.seen()).is_empty(), "{name}");
        }
    }

    /// Bios of 512 bytes pass the page cache by: the syncs of a program are not what it waits for. On FAT they are written through it.
    #[test]
    fn bios_smaller_than_a_block_are_direct() {
        let of = |bytes: u64, kind: &str| {
            let mut work = Work::new(1_000_000_000);
            work.bios(100, "WS", 1_000, 5_000_000);
            work.mount("/data", kind, "rw");
            for group in &mut work.block().groups {
                group.bytes = 100 * bytes;
            }
            work.call("write", "task (7)", 100, 600_000_000, 100 * bytes);
            super::super::find(&work.seen()).remove(0)
        };
        let direct = of(512, "ext4");
        assert!(direct.cause.starts_with("It writes with O_DIRECT: a write takes 6.00 ms"), "{}", direct.cause);
        let lines = |finding: &Finding| finding.advice.iter().map(|one| one.what.clone()).collect::<Vec<_>>();
        assert_eq!(lines(&direct), ["Gather records, and write 64 KiB or more at once"]);
        for (bytes, kind) in [(4096, "ext4"), (512, "vfat")] {
            let finding = of(bytes, kind);
            assert!(finding.cause.starts_with("It writes with O_SYNC, O_DSYNC or O_DIRECT:"), "{}", finding.cause);
            assert!(lines(&finding).iter().any(|what| what.contains("eatmydata")), "{finding:?}");
        }
    }

    /// Where a sync would flush the device's cache, and nothing does, 4 KiB are written with O_DIRECT, too.
    #[test]
    fn writes_that_cause_no_flush_of_a_cache_are_direct() {
        let of = |cache: Option<&str>, options: &str, flushes: u64, program: &str| {
            let mut work = Work::new(1_000_000_000);
            work.bios_of(program, 100, "WS", 1_000, 5_000_000);
            work.mount("/data", "ext4", options);
            let (device, write_cache) = ("8:0".to_owned(), cache.map(str::to_owned));
            work.storage.disks.push(Disk { device, write_cache, name: "sda".into(), ..Disk::default() });
            let (device, tid) = ("8:0".to_owned(), TaskId(7));
            let (sync_bios, sync_bytes) = (100, 409_600);
            work.usage.writers.push(TaskWrites { device, tid, sync_bios, sync_bytes, ..TaskWrites::default() });
            work.block().flushes.requests.n = flushes;
            work.call("write", &format!("{program} (7)"), 100, 600_000_000, 409_600);
            let finding = super::super::find(&work.seen()).remove(0);
            let syncs = finding.advice.iter().any(|one| one.what.contains("sync"));
            (finding.cause.starts_with(DIRECT), syncs)
        };
        assert_eq!(of(Some("write back"), "rw", 3, "task"), (true, false));
        // Options of a known program that leave out syncs do not help it either.
        assert_eq!(of(Some("write back"), "rw", 3, "mysqld"), (true, false));
        for (cache, options, flushes) in [
            (Some("write back"), "rw", 100),
            (Some("write back"), "rw,nobarrier", 0),
            (Some("write through"), "rw", 0),
            (None, "rw", 0),
        ] {
            assert_eq!(of(cache, options, flushes, "task"), (false, true), "{cache:?} {options} {flushes}");
        }
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
