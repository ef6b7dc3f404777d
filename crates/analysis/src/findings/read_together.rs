//! Programs that read one device at the same time, each in order: each waits for the others.

use super::behind_another::{GREEDY, culprit, in_calls, is_program, moved, price, syncs_all};
use super::{Finding, MeasureUnit, Remedy, Rule, Seen, Step, gain, groups, measure, percent, stage};
use crate::block::{BlockFound, Group, GroupBy, OwnerLoad};
use crate::units::{counted, duration, grouped};
use crate::{OWN_RECORDING, split_task_label};

/// In order: parts that begin where the one before ended, percent. What is read at random gains nothing from being alone.
const MIN_SEQUENTIAL_PERCENT: f64 = 80.0;
const MIN_SPAN_PERCENT: f64 = 2.0;
const MIN_Q2C_PERCENT: f64 = 15.0;
const MIN_BIOS: u64 = 10;
/// One after the other, the programs may take this much longer than now, percent: what each waits for the others is not exact.
const MAX_LONGER_PERCENT: f64 = 125.0;
/// Programs that are named.
const NAMED: usize = 2;

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let Some(found) = seen.block else { return Vec::new() };
    let mut devices: Vec<&str> = found.interference.owners.iter().map(|load| load.device.as_str()).collect();
    devices.sort_unstable();
    devices.dedup();
    devices.into_iter().filter_map(|device| of_device(seen, found, device)).collect()
}

struct Reader<'a> {
    load: &'a OwnerLoad,
    group: &'a Group,
    behind_ns: u64,
    /// At most the time of its calls.
    waits_ns: u64,
    /// From its first read to its last.
    active_ns: u64,
}

/// One that reads in order and waits for others.
fn reader<'a>(seen: &Seen<'a>, found: &'a BlockFound, load: &'a OwnerLoad) -> Option<Reader<'a>> {
    let (read, written) = moved(seen, &load.owner);
    let behind_ns = price(load);
    if load.bios < MIN_BIOS
        || read <= written
        || !is_program(found, &load.owner)
        || syncs_all(seen, &load.owner)
        || load.owner.starts_with(OWN_RECORDING)
        || percent(behind_ns, load.mean_q2c_ns.saturating_mul(load.bios)) < MIN_Q2C_PERCENT
    {
        return None;
    }
    let (_, tid, _) = split_task_label(&load.owner)?;
    // Reads are summed up by number.
    found.originators.task(tid).filter(|one| one.is_called(&load.owner))?;
    let reads = seen.usage.readers.iter().find(|one| one.device == load.device && one.tid == tid)?;
    if percent(reads.sequential, reads.bios) < MIN_SEQUENTIAL_PERCENT {
        return None;
    }
    let group = groups(found, GroupBy::Owner).find(|group| group.name == load.owner)?;
    let waits_ns = behind_ns.min(in_calls(seen, &load.owner, read, written).unwrap_or(seen.span_ns)).min(seen.span_ns);
    (seen.of_span(waits_ns) >= MIN_SPAN_PERCENT).then_some(Reader {
        load,
        group,
        behind_ns,
        waits_ns,
        active_ns: reads.active_ns,
    })
}

fn of_device(seen: &Seen<'_>, found: &BlockFound, device: &str) -> Option<Finding> {
    let loads = found.interference.owners.iter().filter(|load| load.device == device);
    let mut readers: Vec<Reader<'_>> = loads.filter_map(|load| reader(seen, found, load)).collect();
    let names: Vec<&str> = readers.iter().map(|one| one.load.owner.as_str()).collect();
    // In a device that takes many requests at once one may wait for nobody outside it.
    let waits_for: Vec<Option<&str>> = readers.iter().map(|one| culprit(found, one.load)).collect();
    if !waits_for.iter().flatten().any(|other| names.contains(other)) {
        return None;
    }
    readers.retain(|one| culprit(found, one.load).is_none_or(|other| names.contains(&other)));
    let bytes = |one: &Reader<'_>| moved(seen, &one.load.owner).0;
    let (least, most) = (readers.iter().map(bytes).min()?, readers.iter().map(bytes).max()?);
    // A program that reads much more is reported by another finding.
    if readers.len() < 2 || most >= least.saturating_mul(GREEDY) {
        return None;
    }
    // A program that reads with several threads means to: together they have more requests under way than one.
    if seen.storage.are_threads_of_one(&readers.iter().map(|one| one.load.owner.as_str()).collect::<Vec<_>>()) {
        return None;
    }
    let n = readers.len() as u64;
    let sum = |of: fn(&Reader<'_>) -> u64| readers.iter().map(of).fold(0, u64::saturating_add);
    let bios = sum(|one| one.load.bios).max(1);
    let q2c = sum(|one| one.load.mean_q2c_ns.saturating_mul(one.load.bios));
    let behind = sum(|one| one.behind_ns);
    let shortest = sum(|one| stage(one.group, "D2C").map_or(0, |d2c| d2c.ns.min).saturating_mul(one.load.bios));
    let waits = sum(|one| one.waits_ns) / n;
    // Programs that do other things between their reads, as players do, would end later.
    let alone = sum(|one| one.active_ns.saturating_sub(one.waits_ns));
    if percent(alone, readers.iter().map(|one| one.active_ns).max()?) > MAX_LONGER_PERCENT {
        return None;
    }
    let unknown = readers.iter().find_map(|one| one.load.mean_device_excess_ns.why());
    let at_least = if unknown.is_some() { "at least " } else { "" };
    let mut who = readers.iter().take(NAMED).map(|one| one.load.owner.as_str()).collect::<Vec<_>>().join(" and ");
    if readers.len() > NAMED {
        who = format!("{}, {}", who.replace(" and ", ", "), counted(n - NAMED as u64, "other program"));
    }
    let on = seen.storage.device_name(device);
    let source = "block:block_bio_queue, block_rq_insert, block_rq_issue, block_rq_complete";
    Some(Finding {
        processes: readers.iter().map(|one| one.load.owner.clone()).collect(),
        what: format!(
            "{who} read from {on} at the same time and wait for one another, {at_least}{} each: {} of the {} that a bio takes.",
            duration(waits),
            duration(behind / bios),
            duration(q2c / bios)
        ),
        cause: "Each reads in order, and the device serves them in turn. One after the other, the first ends sooner, and the last no later."
            .to_owned(),
        evidence: vec![
            measure("bios", bios as f64, MeasureUnit::Count, source),
            measure("mean time of one (Q2C)", (q2c / bios) as f64, MeasureUnit::Ns, source),
            measure("of it behind the others", (behind / bios) as f64, MeasureUnit::Ns, source),
        ],
        lost_ns: waits.into(),
        advice: vec![Remedy {
            what: "Start one when the other has ended".to_owned(),
            steps: vec![Step::Code { line: "first-program && second-program # in place of: first-program & second-program".to_owned() }],
            gain: gain(
                format!("time that the {} bios of both take (Q2C, added up)", grouped(bios))
                    .replace("of both", if n > 2 { "of all" } else { "of both" }),
                [0.0, 100.0 - percent(shortest, q2c).min(100.0)],
                "nothing where a program's own requests then wait for one another instead; at most all but the shortest time in \
                        the device",
            ),
            risk: "the second one begins later".to_owned(),
        }],
        uncertain: unknown.map(|why| format!("what the device itself took longer is unknown: {}", why.missing)),
        ..Finding::of(Rule::BehindAnother)
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Work, only};
    use super::*;
    use crate::Evidence;
    use crate::block::{OwnerKind, WaitBehind, WaitStage};
    use crate::usage::TaskReads;
    use flashscope_trace::TaskId;

    /// What is changed, and how.
    type Case = (&'static str, fn(&mut Work));

    /// Two that read 4 MiB each in order, 100 bios of 8 ms, 4 ms of them behind the other.
    fn work() -> Work {
        let mut work = Work::new(1_000_000_000);
        work.bios_of("cat", 100, "R", 1_000, 4_000_000);
        work.block().originators.originators.clear();
        work.block().interference.owners.clear();
        work.block().groups.retain(|group| group.by == GroupBy::Owner);
        let mut second = work.block().groups[0].clone();
        second.name = "cat (8)".to_owned();
        work.block().groups.push(second);
        for (tid, other) in [(7, 8), (8, 7)] {
            work.owner("cat", OwnerKind::Task, 4 << 20, 0);
            let found = work.block();
            found.originators.originators.last_mut().expect("a task").tid = TaskId(tid);
            found.interference.owners.push(OwnerLoad {
                device: "8:0".into(),
                owner: format!("cat ({tid})"),
                bios: 100,
                mean_q2c_ns: 8_000_000,
                mean_behind_ns: 4_000_000,
                mean_device_excess_ns: 0.into(),
                mean_alone_ns: Evidence::unknown("never alone", ""),
                longest_q2c_ns: 0,
                longest_behind_ns: 0,
            });
            found.interference.pairs.push(WaitBehind {
                device: "8:0".into(),
                victim: format!("cat ({tid})"),
                behind: format!("cat ({other})"),
                stage: WaitStage::Scheduler,
                served_ns: 400_000_000,
                handover_ns: 0,
            });
            work.usage.readers.push(TaskReads {
                device: "8:0".into(),
                tid: TaskId(tid),
                bios: 100,
                bytes: 4 << 20,
                sequential: 99,
                ..TaskReads::default()
            });
        }
        work
    }

    #[test]
    fn two_that_read_in_order_wait_for_one_another() {
        let finding = only(find(&work().seen()));
        assert_eq!(
            finding.what,
            "cat (7) and cat (8) read from 8:0 at the same time and wait for one another, 400.00 ms each: 4.00 ms of the 8.00 ms that a \
             bio takes."
        );
        let gain = finding.advice[0].gain.known().expect("a range");
        assert_eq!((gain.least_percent, gain.most_percent.round()), (0.0, 50.0));
        assert!(super::super::behind_another::find(&work().seen()).is_empty(), "no second finding");
    }

    /// Two players of 3 s wait 400 ms of it each: one after the other, they would take 5.2 s.
    #[test]
    fn programs_that_do_other_things_between_their_reads_are_not() {
        let of = |active_ns: u64| {
            let mut work = work();
            work.usage.readers.iter_mut().for_each(|reader| reader.active_ns = active_ns);
            find(&work.seen()).len()
        };
        assert_eq!((of(820_000_000), of(3_000_000_000)), (1, 0));
    }

    #[test]
    fn threads_of_one_process_read_together_on_purpose() {
        use flashscope_trace::ProcessId;
        let mut work = work();
        work.storage.processes = [(TaskId(7), ProcessId(6)), (TaskId(8), ProcessId(8))].into();
        assert!(only(find(&work.seen())).what.starts_with("cat (7) and cat (8) read from 8:0"));
        work.storage.processes.insert(TaskId(8), ProcessId(6));
        assert!(find(&work.seen()).is_empty());
    }

    /// Its queue holds nobody up: what the device took longer is known, since one went on alone.
    #[test]
    fn in_a_device_that_takes_many_at_once_they_wait_too() {
        let mut work = work();
        let found = &mut work.block().interference;
        for load in &mut found.owners {
            (load.mean_behind_ns, load.mean_device_excess_ns) = (1_000, 3_999_000.into());
        }
        found.pairs.truncate(1);
        assert!(only(find(&work.seen())).what.contains("400.00 ms each"));
        work.block().interference.pairs.clear();
        assert!(find(&work.seen()).is_empty(), "they may not have read at the same time");
    }

    #[test]
    fn random_readers_writers_and_greedy_ones_are_not() {
        let cases: [Case; 6] = [
            ("at random", |work| work.usage.readers[0].sequential = 9),
            ("it writes", |work| work.block().originators.originators[1].written_bytes = 8 << 20),
            ("it reads more", |work| work.block().originators.originators[1].read_bytes = 40 << 20),
            ("hardly waits", |work| work.block().interference.owners[0].mean_behind_ns = 100_000),
            ("its calls are short", |work| work.call("read", "cat (8)", 100, 9_000_000, 4 << 20)),
            ("another one", |work| work.block().interference.pairs[0].behind = "dd (9)".into()),
        ];
        for (name, change) in cases {
            let mut work = work();
            change(&mut work);
            assert!(find(&work.seen()).is_empty(), "{name}");
        }
    }
}
