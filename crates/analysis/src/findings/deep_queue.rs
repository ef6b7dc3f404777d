//! A program that keeps many reads under way at once: each waits in the device for those before it.
//!
//! A device that is asked for more at once than it serves in parallel completes no more of them a second. By Little's law so many are
//! served at once as are completed in the time that one takes alone. Limit: that time is the shortest in the trace.
//! Reads ahead are under way because of the kernel's window, not of the program.

use super::{Finding, MIN_SPAN_PERCENT, MeasureUnit, Remedy, Rule, Seen, Step, Weight, gain, groups, measure, stage};
use crate::block::GroupBy;
use crate::units::{duration, grouped};

const MIN_READS: u64 = 200;
/// Largest mean size of a read, bytes: the time of larger ones depends on their size.
const MAX_BYTES: u64 = 32 << 10;
/// Least mean number of reads under way at once: a program seldom keeps so many by chance.
const MIN_DEPTH: f64 = 16.0;
/// The reads take this many times as long as the shortest one.
const MIN_TIMES_LONGER: u64 = 8;
/// Number of reads under way for each that is served at once: enough to have the next ones ready.
const READY: f64 = 2.0;

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let Some(found) = seen.block else { return Vec::new() };
    let mut all = Vec::new();
    for reader in &seen.usage.readers {
        let Some(task) = found.originators.task(reader.tid) else { continue };
        let Some(own) = groups(found, GroupBy::Owner).find(|group| task.is_called(&group.name)) else { continue };
        let Some(d2c) = stage(own, "D2C") else { continue };
        let (active_ns, shortest_ns) = (reader.active_ns.max(1) as f64, d2c.ns.min);
        // Its group also has its writes and its I/O on other devices.
        let is_all = own.bios <= reader.bios + reader.bios / 10;
        let is_asked = reader.ahead_bios * 2 < reader.bios;
        if reader.bios < MIN_READS || !is_all || !is_asked || reader.bytes / reader.bios > MAX_BYTES || shortest_ns == 0
        {
            continue;
        }
        // Another program's requests are in the device, too: that is a finding of its own.
        let load = found.interference.owners.iter();
        let mut load = load.filter(|load| load.device == reader.device && task.is_called(&load.owner));
        let is_behind = load.any(|load| load.mean_behind_ns >= d2c.ns.mean / 4);
        let depth = d2c.total_ns as f64 / active_ns;
        let served = reader.bios as f64 * shortest_ns as f64 / active_ns;
        let enough = (served * READY).ceil().max(READY);
        let is_longer = d2c.ns.p50.min(d2c.ns.mean) >= shortest_ns.saturating_mul(MIN_TIMES_LONGER);
        let matters = seen.of_span(reader.active_ns) >= MIN_SPAN_PERCENT;
        if is_behind || !is_longer || !matters || depth < MIN_DEPTH || depth < enough * READY {
            continue;
        }
        let source = "block:block_bio_queue, block_rq_issue, block_rq_complete";
        let per_second = reader.bios as f64 * 1e9 / active_ns;
        all.push(Finding {
            rule: Rule::DeepQueue,
            // A program that counts only how much is done loses nothing.
            weight: Weight::Overview,
            processes: vec![own.name.clone()],
            what: format!(
                "{} keeps {depth:.0} reads under way at once on {}: each takes {} in the device, the shortest {}.",
                own.name,
                seen.storage.device_name(&reader.device),
                duration(d2c.ns.mean),
                duration(shortest_ns)
            ),
            cause: format!(
                "The device completes {} reads a second. If each takes {}, it serves {served:.1} at once, and the others wait in it.",
                grouped(per_second as u64),
                duration(shortest_ns)
            ),
            evidence: vec![
                measure("reads", reader.bios as f64, MeasureUnit::Count, source),
                measure("under way at once, on average", depth, MeasureUnit::Count, source),
                measure("completed", per_second, MeasureUnit::PerSecond, source),
                measure("the shortest", shortest_ns as f64, MeasureUnit::Ns, source),
            ],
            lost_ns: reader.active_ns.min(seen.span_ns).into(),
            lost_bytes: None,
            advice: vec![Remedy {
                what: format!("If each read has to end soon, keep {enough:.0} under way at once, and compare the reads a second"),
                steps: vec![Step::Code { line: format!("fio --iodepth={enough:.0}") }]
                    .into_iter()
                    .filter(|_| own.name.starts_with("fio "))
                    .chain([Step::Run { command: "flashscope diff BEFORE.dat AFTER.dat".to_owned(), names: Vec::new() }])
                    .collect(),
                gain: gain(
                    format!("time of a read of {} in the device", own.name),
                    [0.0, 100.0 - super::percent(shortest_ns, d2c.ns.mean)],
                    "from none, if one takes as long alone, to what the shortest took",
                ),
                risk: "the device may serve more at once than computed from the shortest read; then it completes fewer reads a second".to_owned(),
            }],
            uncertain: None,
        });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Work, only};
    use super::*;
    use crate::usage::TaskReads;
    use flashscope_trace::TaskId;

    /// 400 reads of 4 KiB within 1 s, which take so long on average; the shortest of them.
    fn work(mean_ns: u64, shortest_ns: u64) -> Work {
        let mut work = Work::new(1_000_000_000);
        work.bios_of("viewer", 400, "R", 1_000, 1_000_000);
        for stage in work.block().groups.iter_mut().flat_map(|group| &mut group.stages) {
            if stage.stage == "D2C" {
                (stage.total_ns, stage.ns.mean, stage.ns.p50, stage.ns.min) =
                    (400 * mean_ns, mean_ns, mean_ns, shortest_ns);
            }
        }
        let (device, tid, active_ns) = ("8:0".to_owned(), TaskId(7), 900_000_000);
        work.usage.readers.push(TaskReads {
            device,
            tid,
            bios: 400,
            bytes: 400 << 12,
            active_ns,
            ..TaskReads::default()
        });
        work
    }

    #[test]
    fn more_reads_at_once_than_the_device_serves_are_told() {
        let finding = only(find(&work(280_000_000, 2_000_000).seen()));
        assert_eq!(
            finding.what,
            "viewer (7) keeps 124 reads under way at once on 8:0: each takes 280.00 ms in the device, the shortest 2.00 ms."
        );
        assert!(finding.cause.contains("completes 444 reads a second") && finding.cause.contains("serves 0.9 at once"));
        assert!(finding.advice[0].what.contains("keep 2 under way"), "{:?}", finding.advice);
        assert_eq!(finding.advice[0].gain.known().map(|gain| gain.most_percent.round()), Some(99.0));
    }

    #[test]
    fn few_at_once_a_device_that_serves_them_and_other_work_are_not() {
        // Four at once; 124 at once, which the device serves; and 16 of which it serves half.
        for (mean, shortest) in [(9_000_000, 1_000_000), (280_000_000, 270_000_000), (36_000_000, 18_000_000)] {
            assert!(find(&work(mean, shortest).seen()).is_empty(), "{mean} {shortest}");
        }
        let mut ahead = work(280_000_000, 2_000_000);
        ahead.usage.readers[0].ahead_bios = 390;
        assert!(find(&ahead.seen()).is_empty());
        let mut writes = work(280_000_000, 2_000_000);
        writes.block().groups.iter_mut().for_each(|group| group.bios = 800);
        assert!(find(&writes.seen()).is_empty());
        let mut large = work(280_000_000, 2_000_000);
        large.usage.readers[0].bytes = 400 << 16;
        assert!(find(&large.seen()).is_empty());
    }
}
