//! A program whose reads take long while its bios do not: the wait is before the queue of the device, or behind its completion.

use super::{Finding, GroupBy, MeasureUnit, Remedy, Rule, Seen, Step, Weight, groups, measure, percent, stage};
use crate::Evidence;
use crate::calls::is_read;
use crate::units::{duration, grouped};

const MIN_CALLS: u64 = 50;
/// A read from the page cache takes less, nanoseconds.
const MIN_MEAN_NS: u64 = 1_000_000;
/// Below this part of the recorded time it is not what the program waits for, percent.
const MIN_SPAN_PERCENT: f64 = 20.0;
/// From this part of the calls on it is the wait outside that counts, percent.
const MIN_OUTSIDE_PERCENT: f64 = 60.0;

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let Some(found) = seen.block else { return Vec::new() };
    let mut all = Vec::new();
    for call in seen.calls.by_process.iter().filter(|group| is_read(&group.call)) {
        // Calls whose bios are not in the trace say nothing: it must show those of this program.
        let Some(own) = groups(found, GroupBy::Owner).find(|group| group.name == call.name) else { continue };
        let Some(q2c) = stage(own, "Q2C") else { continue };
        let outside = call.total_ns.saturating_sub(q2c.total_ns);
        if call.ns.n < MIN_CALLS
            || call.ns.mean < MIN_MEAN_NS
            || own.bios * 2 < call.ns.n
            || seen.of_span(outside) < MIN_SPAN_PERCENT
            || percent(outside, call.total_ns) < MIN_OUTSIDE_PERCENT
        {
            continue;
        }
        let source = "syscalls:sys_enter_*, sys_exit_*; block:block_bio_queue, block_rq_complete of the same thread";
        all.push(Finding {
            rule: Rule::WaitsOutside,
            weight: Weight::Cost,
            what: format!(
                "{} waits {} in {} calls of {}(), and all of its bios are under way for {} at most.",
                call.name,
                duration(call.total_ns),
                grouped(call.ns.n),
                call.call,
                duration(q2c.total_ns)
            ),
            cause: "The rest passes before a bio comes to the queue, or after it has ended: a limit of its cgroup (io.max, \
                    blkio.throttle), a lock, or no free processor. The device is not what is slow."
                .to_owned(),
            evidence: vec![
                measure("calls", call.ns.n as f64, MeasureUnit::Count, source),
                measure("time in them", call.total_ns as f64, MeasureUnit::Ns, source),
                measure("time of its bios", q2c.total_ns as f64, MeasureUnit::Ns, source),
            ],
            lost_ns: outside.into(),
            lost_bytes: None,
            advice: vec![Remedy {
                what: "Look for a limit of the cgroup, and record which it waits for".to_owned(),
                steps: vec![
                    Step::Run {
                        command: "grep -r . /sys/fs/cgroup --include=io.max --include=blkio.throttle.*_device".to_owned(),
                        names: Vec::new(),
                    },
                    Step::Run { command: "flashscope record --events block,layers".to_owned(), names: Vec::new() },
                ],
                gain: Evidence::unknown("which of them it is, is not in the trace", "record it with --events block,layers"),
                risk: "none to look".to_owned(),
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
