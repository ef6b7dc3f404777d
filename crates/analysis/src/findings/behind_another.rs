//! A program that waits behind another one's I/O.

use super::{Disk, Finding, Gain, MeasureUnit, Remedy, Rule, Seen, Step, discard_stalls, measure, percent};
use crate::block::{BlockFound, OwnerKind, OwnerLoad, WaitBehind};
use crate::calls::{is_read, is_write};
use crate::kernel_threads::is_worker;
use crate::total::Total as _;
use crate::units::{duration, grouped};
use crate::{Evidence, OWN_RECORDING};
use flashscope_trace::TaskId;

/// Below this share of the recorded time, or of its own bios' time, a wait is not reported, per cent.
const MIN_SPAN_PERCENT: f64 = 2.0;
const MIN_Q2C_PERCENT: f64 = 15.0;
/// Fewer bios are no evidence.
const MIN_BIOS: u64 = 10;
/// The scheduler serves it last if its bios wait in the queue for at least this share of their time, per cent.
const STARVED_PERCENT: f64 = 80.0;
/// An originator that moves this many times as much is greedy. Peers that share a device delay each other, and no order helps both.
pub(super) const GREEDY: u64 = 4;

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let Some(found) = seen.block else { return Vec::new() };
    let loads = found.interference.owners.iter();
    let all: Vec<(&str, Finding)> = loads
        .filter(|load| is_program(found, &load.owner) && !syncs_all(seen, &load.owner))
        .filter_map(|load| Some((load.device.as_str(), of_owner(seen, load)?)))
        .collect();
    let is_told = |device: &str, one: &Finding| {
        let same = all.iter().filter(|(_, other)| other.processes == one.processes);
        same.filter(|(other, _)| are_stacked(found, device, other)).any(|(_, other)| cost(other) > cost(one))
    };
    all.iter().filter(|(device, one)| !is_told(device, one)).map(|(_, one)| one.clone()).collect()
}

fn cost(finding: &Finding) -> u64 {
    finding.lost_ns.known().copied().unwrap_or(0)
}

/// Whether one device lies on the other. A wait in one is then part of the wait in the other.
fn are_stacked(found: &BlockFound, one: &str, other: &str) -> bool {
    let lies = |upper: &str, lower: &str| {
        found.stack.iter().any(|level| level.upper == upper && level.lower.split(", ").any(|leg| leg == lower))
    };
    lies(one, other) || lies(other, one)
}

pub(super) fn is_program(found: &BlockFound, name: &str) -> bool {
    let mut all = found.originators.originators.iter();
    all.any(|one| one.kind == OwnerKind::Task && one.is_called(name))
}

/// `sync` writes the changes of all tasks and waits for them: that is its purpose.
pub(super) fn syncs_all(seen: &Seen<'_>, name: &str) -> bool {
    let mut calls = seen.calls.by_process.iter();
    calls.any(|group| group.name == name && matches!(group.call.as_str(), "sync" | "syncfs"))
}

/// What all its bios wait behind others. What the device itself took longer is known only where it was seen without the others: else
/// the price is a lower bound.
pub(super) fn price(load: &OwnerLoad) -> u64 {
    let excess = load.mean_device_excess_ns.known().map_or(0, |&ns| ns.max(0) as u64);
    load.mean_behind_ns.saturating_add(excess).saturating_mul(load.bios)
}

/// Bytes read and written for an owner; discarded bytes count as written.
pub(super) fn moved(seen: &Seen<'_>, owner: &str) -> (u64, u64) {
    let all = seen.block.map_or(&[][..], |block| &block.originators.originators);
    all.iter()
        .find(|one| one.is_called(owner))
        .map_or((0, 0), |one| (one.read_bytes, one.written_bytes.saturating_add(one.covered_bytes)))
}

/// Whether most of its requests are discards of blocks that no file uses.
fn trims(found: &BlockFound, owner: &str) -> bool {
    let one = found.originators.originators.iter().find(|one| one.is_called(owner));
    one.is_some_and(|one| one.covered_bytes > one.read_bytes.saturating_add(one.written_bytes))
}

/// Time in the calls of an owner, where they ask for what it reads or writes: what is read ahead, or written back later, nobody waits for.
/// `None`: it is not known.
pub(super) fn in_calls(seen: &Seen<'_>, owner: &str, read: u64, written: u64) -> Option<u64> {
    let mine = || seen.calls.by_process.iter().filter(|group| group.name == owner);
    let (is_it, moved): (fn(&str) -> bool, u64) = if read > written { (is_read, read) } else { (is_write, written) };
    let asked: u64 = mine().filter(|group| is_it(&group.call)).map(|group| group.bytes).total();
    let submits = seen.calls.asynchronous.iter().any(|one| one.name == owner);
    (moved > 0 && asked.saturating_mul(2) >= moved && !submits).then(|| mine().map(|group| group.total_ns).total())
}

/// Whether others, as workers of the kernel or a `sync`, write most of what it changed: then it waits within its calls alone.
fn is_written_by_others(found: &BlockFound, owner: &str) -> bool {
    let one = found.originators.originators.iter().find(|one| one.is_called(owner));
    one.is_some_and(|one| {
        let others = one.carriers.iter().filter(|carried| carried.carrier != owner);
        let carried: u64 = others.map(|carried| carried.written_bytes).total();
        carried.saturating_mul(2) > one.read_bytes.saturating_add(one.written_bytes)
    })
}

/// The longest that a thread can have waited for most of what it reads or writes: the recorded time without its calls that wait for the
/// other direction.
fn without_other_calls(seen: &Seen<'_>, owner: &str, read: u64, written: u64) -> u64 {
    if !seen.calls.is_empty() && seen.block.is_some_and(|found| is_written_by_others(found, owner)) {
        let mine = seen.calls.by_process.iter().filter(|group| group.name == owner);
        return mine.map(|group| group.total_ns).total();
    }
    let submits = seen.calls.asynchronous.iter().any(|one| one.name == owner);
    if thread(owner).is_none() || submits {
        return seen.span_ns;
    }
    let is_other = |call: &str| if read > written { is_write(call) || call.contains("sync") } else { is_read(call) };
    let mine = seen.calls.by_process.iter().filter(|group| group.name == owner && is_other(&group.call));
    seen.span_ns.saturating_sub(mine.map(|group| group.total_ns).total())
}

fn later_trim(seen: &Seen<'_>, culprit: &str, device: &str, gain: Evidence<Gain>) -> (String, Remedy) {
    // With a mount option, a kernel worker discards the blocks of removed files.
    let mount = seen.storage.mounts_of(device).find(|mount| mount.has("discard"));
    if let Some(mount) = mount.filter(|_| is_worker(culprit)) {
        let cause = format!(
            "{culprit} sends the discards that the mount option discard of {} asks for, and other I/O waits meanwhile.",
            mount.target
        );
        return (cause, discard_stalls::without(mount, gain));
    }
    let remedy = Remedy {
        what: "Trim when nothing else is done, once a week".to_owned(),
        steps: vec![Step::Run { command: "systemctl list-timers fstrim.timer".to_owned(), names: Vec::new() }],
        gain,
        risk: "until the trim the device has less spare room".to_owned(),
    };
    (format!("{culprit} trims the device (frees unused blocks), and other I/O waits meanwhile."), remedy)
}

/// The owner behind which most of the wait is spent.
pub(super) fn culprit<'a>(found: &'a BlockFound, load: &OwnerLoad) -> Option<&'a str> {
    let waited = |w: &&WaitBehind| w.victim == load.owner && w.device == load.device;
    let mut culprits: Vec<(&str, u64)> = Vec::new();
    for wait in found.interference.pairs.iter().filter(waited) {
        let ns = wait.served_ns.saturating_add(wait.handover_ns);
        match culprits.iter_mut().find(|(name, _)| *name == wait.behind) {
            Some((_, sum)) => *sum += ns,
            None => culprits.push((&wait.behind, ns)),
        }
    }
    // A journal does what the syncs and changes of programs cause, the waiting one's among them.
    // And who made a page of several programs dirty, or the file system's own, is nobody whose priority can be lowered: `(shared page)`.
    culprits.retain(|(name, _)| !name.contains(" journal [") && !name.starts_with('('));
    culprits.iter().max_by_key(|(_, ns)| *ns).map(|(name, _)| *name)
}

/// The command for a thread that still runs: `NAME (TID)`. Without a number there is none, and none for the kernel's workers.
pub(super) fn lower_priority(culprit: &str) -> Vec<Step> {
    if is_worker(culprit) {
        return Vec::new();
    }
    let run = |tid: &str| Step::Run { command: "ionice -c 3 -p".to_owned(), names: vec![tid.to_owned()] };
    thread(culprit).map(run).into_iter().collect()
}

/// The number in `NAME (TID)`.
fn thread(name: &str) -> Option<&str> {
    let tid = name.rsplit_once('(').and_then(|(_, tid)| tid.strip_suffix(')'));
    tid.filter(|tid| !tid.is_empty() && tid.bytes().all(|byte| byte.is_ascii_digit()))
}

/// A worker takes whatever is queued next: its priority is nobody's. What it does tells whose work it can be.
pub(super) fn less_for_worker(seen: &Seen<'_>, worker: &str, gain: Evidence<Gain>) -> Remedy {
    let (read, written) = moved(seen, worker);
    let (verb, job) = match read > written {
        true => ("read", "reads what programs ask of loop devices and of layers like dm-crypt"),
        false => ("write", "writes what programs left in the page cache, and what they write to loop devices"),
    };
    Remedy {
        what: format!(
            "Find out whose work {worker} does, and have that program {verb} less at once, or later: a worker of the kernel {job}"
        ),
        steps: Vec::new(),
        gain,
        risk: "that program may take longer".to_owned(),
    }
}

struct Waits<'a> {
    culprit: &'a str,
    reader_behind_writer: bool,
    /// The disk, where it has no scheduler.
    no_scheduler: Option<&'a Disk>,
    device: &'a str,
}

fn cause_and_remedy(seen: &Seen<'_>, at: &Waits<'_>, gain: Evidence<Gain>) -> (String, Remedy) {
    match at.no_scheduler {
        Some(disk) => (
            format!("{} has the scheduler none: requests go to the device in the order in which they come.", at.device),
            Remedy {
                what: "Try a scheduler that separates processes".to_owned(),
                steps: vec![Step::Set {
                    path: format!("/sys/block/{}/queue/scheduler", disk.name),
                    value: if at.reader_behind_writer { "mq-deadline" } else { "bfq" }.to_owned(),
                }],
                gain,
                risk: format!(
                    "{} gets less of the device; on fast devices a scheduler can make all of them slower",
                    at.culprit
                ),
            },
        ),
        None => (
            "Both use the device at the same time, and its queue serves the other first.".to_owned(),
            match is_worker(at.culprit) {
                true => less_for_worker(seen, at.culprit, gain),
                false => Remedy {
                    what: format!("Give the I/O of {} a lower priority, or start it with ionice -c 3", at.culprit),
                    steps: lower_priority(at.culprit),
                    gain,
                    risk: "it may take much longer; with the scheduler kyber priorities have no effect".to_owned(),
                },
            },
        ),
    }
}

/// Schedulers serve the class idle last. The cause, where the requests of the one that waits have it; and what to do, also where nearly
/// all of what a bio takes is its wait in the queue and nothing shows the class.
fn served_last(seen: &Seen<'_>, load: &OwnerLoad, behind_percent: f64) -> Option<(Option<String>, Remedy)> {
    let scheduler = seen.storage.disk(&load.device).and_then(|disk| disk.scheduler.as_deref());
    let scheduler = scheduler.filter(|name| matches!(*name, "bfq" | "mq-deadline"))?;
    let tid = thread(&load.owner)?;
    let requests = tid.parse().ok().and_then(|tid| seen.usage.idle_requests.get(&TaskId(tid))).copied().unwrap_or(0);
    let is_idle = requests.saturating_mul(2) >= load.bios;
    if !is_idle && behind_percent < STARVED_PERCENT {
        return None;
    }
    let owner = &load.owner;
    let (cause, what, unknown) = if is_idle {
        (
            Some(format!(
                "{} of its requests have the I/O class idle: {scheduler} serves all others first.",
                grouped(requests)
            )),
            format!("Give {owner} the class best-effort"),
            "how much of the wait another order saves is not in the trace",
        )
    } else {
        (
            None,
            format!("If ionice -p {tid} says idle, the scheduler serves {owner} last: give it the class best-effort"),
            "the priority of the requests is not in the trace",
        )
    };
    let remedy = Remedy {
        what,
        steps: vec![Step::Run { command: "ionice -c 2 -p".to_owned(), names: vec![tid.to_owned()] }],
        gain: Evidence::unknown(unknown, "try it, and compare two recordings: flashscope diff"),
        risk: "the others get less of the device".to_owned(),
    };
    Some((cause, remedy))
}

fn of_owner(seen: &Seen<'_>, load: &OwnerLoad) -> Option<Finding> {
    let found = seen.block?;
    let behind = load.mean_behind_ns.saturating_mul(load.bios);
    let (price, excess) = (price(load), &load.mean_device_excess_ns);
    let at_least = excess.why().map_or("", |_| "at least ");
    let all = load.mean_q2c_ns.saturating_mul(load.bios);
    if load.bios < MIN_BIOS || seen.of_span(price) < MIN_SPAN_PERCENT || percent(price, all) < MIN_Q2C_PERCENT {
        return None;
    }
    let culprit = culprit(found, load)?;
    // The recorder has ended: no priority of it helps, and what waits behind it does so only while it records.
    if culprit.starts_with(OWN_RECORDING) || load.owner.starts_with(OWN_RECORDING) {
        return None;
    }
    let ((read, written), (their_reads, their_writes)) = (moved(seen, &load.owner), moved(seen, culprit));
    let reader_behind_writer = read > written && their_writes > their_reads;
    if !reader_behind_writer && their_reads + their_writes < (read + written).saturating_mul(GREEDY) {
        return None;
    }
    let disk = seen.storage.disk(&load.device);
    let no_scheduler = disk.is_some_and(|disk| disk.scheduler.as_deref() == Some("none"));
    let source = "block:block_bio_queue, block_rq_insert, block_rq_issue, block_rq_complete";
    let evidence = vec![
        measure("bios", load.bios as f64, MeasureUnit::Count, source),
        measure("mean time of one (Q2C)", load.mean_q2c_ns as f64, MeasureUnit::Ns, source),
        measure(
            if at_least.is_empty() { "of it behind others" } else { "of it behind others, in front of the device" },
            (price / load.bios) as f64,
            MeasureUnit::Ns,
            source,
        ),
    ];
    let device = seen.storage.device_name(&load.device);
    let part = percent(price, all).min(100.0);
    let most = if at_least.is_empty() {
        format!(
            "it is at most the measured wait ({part:.0} % of what a bio takes); how much of it another order saves is not in the trace"
        )
    } else {
        format!(
            "how much another order saves of the measured wait ({part:.0} % of what a bio takes) and of the time in the device is not \
             in the trace"
        )
    };
    let gain = Evidence::unknown(most, "try it, and compare two recordings: flashscope diff");
    let at = Waits { culprit, reader_behind_writer, no_scheduler: disk.filter(|_| no_scheduler), device: &device };
    let (cause, remedy) = match trims(found, culprit) {
        true => later_trim(seen, culprit, &load.device, gain),
        false => cause_and_remedy(seen, &at, gain),
    };
    let (cause, advice) = match served_last(seen, load, percent(behind, all)) {
        Some((Some(idle), own)) => (idle, vec![own, remedy]),
        Some((None, own)) => (cause, vec![remedy, own]),
        None => (cause, vec![remedy]),
    };
    // Many of its bios wait at once, or are read ahead: together for longer than it can have waited.
    let longest = in_calls(seen, &load.owner, read, written)
        .unwrap_or_else(|| without_other_calls(seen, &load.owner, read, written))
        .min(seen.span_ns);
    if seen.of_span(price.min(longest)) < MIN_SPAN_PERCENT {
        return None;
    }
    let who = match price > longest {
        true => format!("Bios of {} together wait", load.owner),
        false => format!("{} waits", load.owner),
    };
    Some(Finding {
        processes: vec![load.owner.clone(), culprit.to_owned()],
        what: format!(
            "{who} {at_least}{} behind {culprit} on {device}: {} of the {} that each of its {} bios takes.",
            duration(price),
            duration(price / load.bios),
            duration(load.mean_q2c_ns),
            grouped(load.bios)
        ),
        cause,
        evidence,
        lost_ns: Evidence::Known(price.min(longest)),
        advice,
        uncertain: excess.why().map(|why| format!("what the device itself took longer is unknown: {}", why.missing)),
        ..Finding::of(Rule::BehindAnother)
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Work, only};
    use super::*;
    use crate::block::{StackLevel, WaitStage};
    use flashscope_trace::TaskId;

    fn work(bios: u64, behind_ns: u64, kind: OwnerKind) -> Work {
        let mut work = Work::new(1_000_000_000);
        work.owner("player", kind, 400 << 10, 0);
        work.owner("backup", OwnerKind::Task, 0, 4 << 20);
        work.block().originators.originators[1].tid = TaskId(9);
        let found = &mut work.block().interference;
        found.owners.push(OwnerLoad {
            device: "8:0".into(),
            owner: "player (7)".into(),
            bios,
            mean_q2c_ns: 5_000_000,
            mean_behind_ns: behind_ns,
            mean_device_excess_ns: Evidence::unknown("never alone", ""),
            mean_alone_ns: Evidence::unknown("never alone", ""),
            longest_q2c_ns: 0,
            longest_behind_ns: 0,
        });
        for (behind, served_ns) in [("jbd2", 1), ("backup (9)", behind_ns)] {
            let (device, victim, behind) = ("8:0".into(), "player (7)".into(), behind.into());
            let stage = WaitStage::Scheduler;
            found.pairs.push(WaitBehind { device, victim, behind, stage, served_ns, handover_ns: 0 });
        }
        work
    }

    #[test]
    fn the_price_and_whose_it_is_are_told() {
        let finding = only(find(&work(100, 4_000_000, OwnerKind::Task).seen()));
        assert_eq!(
            finding.what,
            "player (7) waits at least 400.00 ms behind backup (9) on 8:0: 4.00 ms of the 5.00 ms that each of its 100 bios takes."
        );
        assert_eq!(finding.rule, Rule::BehindAnother);
        assert_eq!(finding.advice[0].steps[0], Step::Run { command: "ionice -c 3 -p".into(), names: vec!["9".into()] });
        // No order of the queue was tried.
        assert!(finding.advice[0].gain.why().is_some_and(|why| why.missing.contains("(80 % of what a bio takes)")));
    }

    #[test]
    fn bios_beside_one_another_wait_no_longer_than_was_recorded() {
        let mut work = work(1000, 4_000_000, OwnerKind::Task);
        let finding = only(find(&work.seen()));
        assert!(
            finding.what.starts_with("Bios of player (7) together wait at least 4.00 s behind backup (9)"),
            "{}",
            finding.what
        );
        assert_eq!(finding.lost_ns, 1_000_000_000.into());
        // Who syncs all that others wrote waits for that.
        work.call("syncfs", "player (7)", 1, 700_000_000, 0);
        assert!(find(&work.seen()).is_empty());
    }

    /// A script appends lines, and workers write them: only `sync` waits for that.
    #[test]
    fn who_leaves_its_data_to_workers_waits_in_its_calls_alone() {
        use crate::block::CarriedBytes;
        let mut work = work(100, 4_000_000, OwnerKind::Task);
        let of = |carrier: &str, written_bytes| CarriedBytes { carrier: carrier.into(), read_bytes: 0, written_bytes };
        let player = &mut work.block().originators.originators[0];
        (player.read_bytes, player.written_bytes) = (0, 400 << 10);
        player.carriers = vec![of("player (7)", 100 << 10), of("kworker/u8:1 (5)", 300 << 10)];
        // Without calls nothing says so.
        assert_eq!(only(find(&work.seen())).lost_ns, 400_000_000.into());
        work.call("openat", "player (7)", 40, 2_000_000, 0);
        assert!(find(&work.seen()).is_empty());
        work.call("write", "player (7)", 40, 200_000_000, 80);
        assert_eq!(only(find(&work.seen())).lost_ns, 202_000_000.into());
        work.block().originators.originators[0].carriers.swap_remove(1);
        assert_eq!(only(find(&work.seen())).lost_ns, 400_000_000.into());
    }

    #[test]
    fn what_is_read_ahead_is_not_waited_for() {
        // Its reads take 100 of the 400 ms that its bios wait.
        let mut work = work(100, 4_000_000, OwnerKind::Task);
        work.call("read", "player (7)", 100, 100_000_000, 400 << 10);
        let finding = only(find(&work.seen()));
        assert!(finding.what.starts_with("Bios of player (7) together wait at least 400.00 ms"), "{}", finding.what);
        assert_eq!(finding.lost_ns, 100_000_000.into());
        // It hardly waits; and where its calls are not those that read, how long it waits is not known.
        work.calls.by_process[0].total_ns = 10_000_000;
        assert!(find(&work.seen()).is_empty());
        work.calls.by_process[0].bytes = 100 << 10;
        assert_eq!(only(find(&work.seen())).lost_ns, 400_000_000.into());
        // While it waits for what it syncs, it does not wait for what is read.
        work.call("fsync", "player (7)", 300, 700_000_000, 0);
        assert_eq!(only(find(&work.seen())).lost_ns, 300_000_000.into());
    }

    /// A loop device, and the disk that its file lies on: what waits there waits above, too.
    #[test]
    fn a_wait_is_told_of_one_device_of_a_stack() {
        let mut work = work(100, 4_000_000, OwnerKind::Task);
        let found = work.block();
        let above =
            OwnerLoad { device: "7:0".into(), mean_behind_ns: 4_500_000, ..found.interference.owners[0].clone() };
        found.interference.owners.push(above);
        for pair in found.interference.pairs.clone() {
            found.interference.pairs.push(WaitBehind { device: "7:0".into(), ..pair });
        }
        assert_eq!(find(&work.seen()).len(), 2);
        let level = StackLevel { upper: "7:0".into(), lower: "8:0".into(), ..StackLevel::default() };
        work.block().stack.push(level);
        let finding = only(find(&work.seen()));
        assert!(finding.what.contains("behind backup (9) on 7:0"), "{}", finding.what);
    }

    /// What a program leaves in the page cache is written later: its calls are all that it waits for.
    #[test]
    fn what_is_written_back_later_is_not_waited_for() {
        let mut work = work(100, 4_000_000, OwnerKind::Task);
        let all = &mut work.block().originators.originators;
        (all[0].read_bytes, all[0].written_bytes, all[1].written_bytes) = (0, 400 << 10, 40 << 20);
        work.call("write", "player (7)", 100, 1_000_000, 400 << 10);
        assert!(find(&work.seen()).is_empty());
        work.call("fsync", "player (7)", 10, 300_000_000, 0);
        assert_eq!(only(find(&work.seen())).lost_ns, 301_000_000.into());
    }

    #[test]
    fn without_a_thread_there_is_no_command() {
        let mut work = work(100, 4_000_000, OwnerKind::Task);
        work.block().interference.pairs[1].behind = "backup".to_owned();
        assert_eq!(only(find(&work.seen())).advice[0].steps, []);
    }

    #[test]
    fn a_worker_of_the_kernel_gets_no_priority() {
        let mut work = work(100, 4_000_000, OwnerKind::Task);
        work.block().originators.originators[1].name = "kworker/u8:2".to_owned();
        work.block().interference.pairs[1].behind = "kworker/u8:2 (9)".to_owned();
        let finding = only(find(&work.seen()));
        assert!(finding.what.contains("behind kworker/u8:2 (9)"), "{}", finding.what);
        assert_eq!(finding.advice[0].steps, []);
        let what = &finding.advice[0].what;
        assert!(
            what.starts_with("Find out whose work kworker/u8:2 (9) does, and have that program write less"),
            "{what}"
        );
        // It reads for a loop device: nothing is to be written less.
        let worker = &mut work.block().originators.originators[1];
        (worker.read_bytes, worker.written_bytes) = (8 << 20, 0);
        let finding = only(find(&work.seen()));
        let what = &finding.advice[0].what;
        assert!(what.contains("have that program read less at once") && what.contains("loop devices"), "{what}");
    }

    #[test]
    fn a_journal_is_no_other_program() {
        let mut work = work(100, 4_000_000, OwnerKind::Task);
        let journal = "ext4 journal [jbd2/sda-8]".to_owned();
        work.block().originators.originators[1].name = journal.clone();
        work.block().interference.pairs[1].behind = journal;
        work.block().interference.pairs.remove(0);
        assert!(find(&work.seen()).is_empty());
    }

    #[test]
    fn an_unknown_excess_is_not_one_of_0() {
        let mut work = work(100, 4_000_000, OwnerKind::Task);
        let unknown = only(find(&work.seen()));
        assert_eq!(unknown.uncertain.as_deref(), Some("what the device itself took longer is unknown: never alone"));
        work.block().interference.owners[0].mean_device_excess_ns = 500_000.into();
        let known = only(find(&work.seen()));
        assert_eq!((known.uncertain, known.lost_ns), (None, 450_000_000.into()));
        assert!(known.what.starts_with("player (7) waits 450.00 ms behind backup"), "{}", known.what);
    }

    #[test]
    fn without_a_scheduler_one_is_to_be_tried() {
        let mut work = work(100, 4_000_000, OwnerKind::Task);
        let scheduler = Some("none".to_owned());
        work.storage.disks.push(super::super::Disk {
            name: "sda".into(),
            device: "8:0".into(),
            scheduler,
            ..Default::default()
        });
        let finding = only(find(&work.seen()));
        assert!(finding.cause.contains("scheduler none"));
        assert!(matches!(&finding.advice[0].steps[0], Step::Set { value, .. } if value == "mq-deadline"));
    }

    #[test]
    fn one_that_starves_may_be_of_the_class_idle() {
        let mut work = work(100, 4_500_000, OwnerKind::Task);
        let disk = |scheduler: &str| super::super::Disk {
            name: "sda".into(),
            device: "8:0".into(),
            scheduler: Some(scheduler.to_owned()),
            ..Default::default()
        };
        work.storage.disks.push(disk("bfq"));
        let finding = only(find(&work.seen()));
        assert_eq!(finding.advice.len(), 2, "{:?}", finding.advice);
        assert_eq!(finding.advice[1].steps, [Step::Run { command: "ionice -c 2 -p".into(), names: vec!["7".into()] }]);
        work.storage.disks[0] = disk("kyber");
        assert_eq!(only(find(&work.seen())).advice.len(), 1);
        // With bfq its requests say so themselves, also where it does not starve.
        let mut idle = self::work(100, 3_000_000, OwnerKind::Task);
        idle.storage.disks.push(disk("bfq"));
        assert_eq!(only(find(&idle.seen())).advice.len(), 1);
        idle.usage.idle_requests.insert(TaskId(7), 90);
        let finding = only(find(&idle.seen()));
        assert_eq!(finding.cause, "90 of its requests have the I/O class idle: bfq serves all others first.");
        assert_eq!(finding.advice[0].what, "Give player (7) the class best-effort");
        idle.usage.idle_requests.insert(TaskId(7), 9);
        assert_eq!(only(find(&idle.seen())).advice.len(), 1);
    }

    #[test]
    fn who_trims_is_to_do_it_later() {
        let mut work = work(100, 4_000_000, OwnerKind::Task);
        let trimmer = &mut work.block().originators.originators[1];
        (trimmer.written_bytes, trimmer.covered_bytes) = (0, 4 << 30);
        let finding = only(find(&work.seen()));
        assert!(finding.cause.starts_with("backup (9) trims the device (frees unused blocks)"), "{}", finding.cause);
        assert!(finding.advice[0].what.starts_with("Trim when nothing else is done"));
    }

    #[test]
    fn a_worker_that_trims_does_so_for_a_mount_option() {
        let cause_and_step = |option: &str| {
            let mut work = work(100, 4_000_000, OwnerKind::Task);
            work.mount("/data", "ext4", option);
            let found = work.block();
            let worker = &mut found.originators.originators[1];
            (worker.name, worker.kind, worker.written_bytes) = ("kworker/1:1".into(), OwnerKind::Unknown, 0);
            worker.covered_bytes = 40 << 20;
            for pair in &mut found.interference.pairs {
                pair.behind = "kworker/1:1 (9)".into();
            }
            let finding = only(find(&work.seen()));
            (finding.cause.contains("the mount option discard of /data"), finding.advice[0].steps[0].clone())
        };
        let (is_option, step) = cause_and_step("rw,discard");
        assert!(is_option && matches!(step, Step::Remount { .. }), "{step:?}");
        let (is_option, step) = cause_and_step("rw");
        assert!(!is_option && matches!(step, Step::Run { .. }), "{step:?}");
    }

    #[test]
    fn peers_are_not_told() {
        let mut work = work(100, 4_000_000, OwnerKind::Task);
        let all = &mut work.block().originators.originators;
        // Both write as much.
        (all[0].read_bytes, all[0].written_bytes) = (0, 4 << 20);
        assert!(find(&work.seen()).is_empty());
        // One writes ten times as much: no scheduler puts it behind, but it is greedy.
        work.block().originators.originators[1].written_bytes = 40 << 20;
        assert_eq!(only(find(&work.seen())).rule, Rule::BehindAnother);
    }

    #[test]
    fn short_waits_few_bios_and_kernel_threads_are_none() {
        for (bios, behind, kind) in
            [(100, 500_000, OwnerKind::Task), (5, 4_000_000, OwnerKind::Task), (100, 4_000_000, OwnerKind::Kernel)]
        {
            assert!(find(&work(bios, behind, kind).seen()).is_empty());
        }
    }
}
