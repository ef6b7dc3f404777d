//! A program that syncs so often that it spends its time in it.

use super::{Finding, Gain, MIN_SPAN_PERCENT, MeasureUnit, Remedy, Rule, Seen, Step, Weight, measure, percent};
use crate::Evidence;
use crate::calls::{is_sync, is_write};
use crate::units::{duration, grouped, size};

/// Fewer calls are no storm: a program that saves a document syncs a handful of times.
const MIN_CALLS: u64 = 20;
/// What is written between two calls: with more, each call has its own work to do.
const MAX_BYTES_A_CALL: u64 = 64 << 10;
/// The advice: one call in place of so many.
const TOGETHER: u64 = 10;
/// What one call in place of ten costs, times one of now: it has more data to wait for, and a device beside others varies.
const COST_THEN: [f64; 2] = [0.25, 4.0];

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let mut processes: Vec<&str> = Vec::new();
    for group in seen.calls.by_process.iter().filter(|group| is_sync(&group.call)) {
        if !processes.contains(&group.name.as_str()) {
            processes.push(&group.name);
        }
    }
    processes.into_iter().filter_map(|process| of_process(seen, process)).collect()
}

fn of_process(seen: &Seen<'_>, process: &str) -> Option<Finding> {
    let mine = || seen.calls.by_process.iter().filter(|group| group.name == process);
    let syncs: Vec<_> = mine().filter(|group| is_sync(&group.call)).collect();
    let (n, ns) = syncs.iter().fold((0, 0), |(n, ns), group| (n + group.ns.n, ns + group.total_ns));
    if n < MIN_CALLS || seen.of_span(ns) < MIN_SPAN_PERCENT {
        return None;
    }
    let (writes, written) =
        mine().filter(|group| is_write(&group.call)).fold((0, 0), |(n, sum), g| (n + g.ns.n, sum + g.bytes));
    // How much was written is known only where the trace shows files.
    let each = (writes > 0 && written > 0).then_some(written / n);
    if each.is_some_and(|bytes| bytes > MAX_BYTES_A_CALL) {
        return None;
    }
    let call = &syncs[0].call;
    let wrote = each.map_or(String::new(), |bytes| format!(", one for each {} written", size(bytes)));
    let mut evidence = vec![
        measure(&format!("calls of {call}()"), n as f64, MeasureUnit::Count, "syscalls:sys_enter_*, sys_exit_*"),
        measure("time in them", ns as f64, MeasureUnit::Ns, "syscalls:sys_enter_*, sys_exit_*"),
    ];
    let mut waited = String::new();
    let mut journal_percent = 0.0;
    // What all calls waited for is what this process waited for where the others hardly count.
    if let Some(syncs) = seen.block.map(|block| &block.syncs)
        && percent(ns, syncs.durations.mean.saturating_mul(syncs.durations.n)) > 90.0
        && syncs.calls.iter().any(|call| call.waits.known().is_some())
    {
        let all = ns.max(1);
        journal_percent = percent(syncs.journal_ns, all);
        let parts = [
            ("its own data", Some(syncs.data_ns)),
            ("the journal", Some(syncs.journal_ns)),
            ("flushes of the device", syncs.flush_ns.known().copied()),
        ];
        for (what, part) in parts.iter().filter_map(|(what, part)| Some((what, (*part)?))) {
            let source = "block:block_bio_queue, block_rq_complete within the calls";
            evidence.push(measure(&format!("waited for {what}"), part as f64, MeasureUnit::Ns, source));
        }
        let most = parts.iter().filter_map(|(what, part)| Some((*what, (*part)?))).max_by_key(|(_, part)| *part);
        let rest = syncs.rest_ns;
        waited = match most {
            Some((_, part)) if rest > part => {
                evidence.push(measure("for no bio", rest as f64, MeasureUnit::Ns, "the rest of their time"));
                format!(
                    " {:.0} % of that passed with none of its bios under way: for a lock, another task or a CPU. `record \
                     --events block,layers` shows which.",
                    percent(rest, all)
                )
            }
            Some((what, part)) => format!(" They waited most for {what} ({:.0} %).", percent(part, all)),
            None => String::new(),
        };
    }
    let of = format!("time in {call}() of {process}");
    let then = |cost: f64| 100.0 * (1.0 - cost / TOGETHER as f64);
    let mut advice = vec![Remedy {
        what: format!("Sync once for {TOGETHER} records, or once a second, instead of after each"),
        steps: vec![Step::Code { line: format!("if (++records % {TOGETHER} == 0) {call}(fd);") }],
        gain: Gain {
            of: of.clone(),
            least_percent: then(COST_THEN[1]),
            most_percent: then(COST_THEN[0]),
            basis: format!(
                "a tenth of the calls, each at {} to {} times what one takes now",
                COST_THEN[0], COST_THEN[1]
            ),
        }
        .into(),
        risk: format!("a power cut loses up to {TOGETHER} records more"),
    }];
    if call == "fsync" && journal_percent > 10.0 {
        advice.push(Remedy {
            what: "Reserve the file's blocks once, and sync its data alone".to_owned(),
            steps: vec![
                Step::Code { line: "posix_fallocate(fd, 0, 1 << 20);".to_owned() },
                Step::Code { line: "fdatasync(fd);".to_owned() },
            ],
            gain: Evidence::unknown(
                format!(
                    "the journal has {journal_percent:.0} % of the time, and how much of it is left depends on the file \
                     system's version"
                ),
                "try it, and compare the time in fdatasync()",
            ),
            risk: "times of the last change are written later; the file is longer than its contents".to_owned(),
        });
    }
    Some(Finding {
        rule: Rule::FsyncStorm,
        weight: Weight::Cost,
        what: format!(
            "{process} spends {} of {} in {} calls of {call}(){wrote}.",
            duration(ns),
            duration(seen.span_ns),
            grouped(n)
        ),
        cause: format!(
            "Each call returns once the device has the data, and takes {} on average.{waited}",
            duration(ns / n)
        ),
        evidence,
        lost_ns: ns.into(),
        lost_bytes: None,
        advice,
        uncertain: None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Work, only};
    use super::*;
    use crate::block::{SyncCall, SyncTimes};
    use crate::latency::LatencyNs;

    #[test]
    fn a_logger_that_syncs_each_line() {
        let mut work = Work::new(1_000_000_000);
        work.call("fsync", "logger (7)", 300, 800_000_000, 0);
        work.call("write", "logger (7)", 300, 1_000_000, 24_000);
        let finding = only(find(&work.seen()));
        assert_eq!(
            finding.what,
            "logger (7) spends 800.00 ms of 1.00 s in 300 calls of fsync(), one for each 80 B written."
        );
        assert_eq!(finding.lost_ns, 800_000_000.into());
        let gain = finding.advice[0].gain.known().expect("a range");
        assert_eq!((gain.least_percent, gain.most_percent), (60.0, 97.5));
    }

    #[test]
    fn what_calls_did_not_wait_for_is_not_called_their_wait() {
        for (data_ns, rest_ns, told) in
            [(20_000_000, 780_000_000, "98 % of that passed"), (700_000_000, 100_000_000, "its own data (88 %)")]
        {
            let mut work = Work::new(1_000_000_000);
            work.call("fsync", "logger (7)", 200, 800_000_000, 0);
            let syncs = &mut work.block().syncs;
            syncs.durations = LatencyNs { n: 200, mean: 4_000_000, ..LatencyNs::default() };
            (syncs.data_ns, syncs.rest_ns) = (data_ns, rest_ns);
            let times = SyncTimes { data_ns, journal_ns: 0, flush_ns: 0.into(), rest_ns, longest: None };
            let call = |waits| SyncCall {
                call: "fsync".to_owned(),
                number: 1,
                task: "logger".to_owned(),
                begin_ns: 0,
                duration_ns: 4_000_000,
                waits,
            };
            syncs.calls = vec![call(times.into())];
            let finding = only(find(&work.seen()));
            assert!(finding.cause.contains(told), "{}", finding.cause);
        }
    }

    #[test]
    fn rare_short_or_large_syncs_are_none() {
        for (n, ns, bytes) in [(19, 800_000_000, 0), (300, 40_000_000, 0), (30, 800_000_000, 300 << 20)] {
            let mut work = Work::new(1_000_000_000);
            work.call("fsync", "editor (7)", n, ns, 0);
            work.call("write", "editor (7)", n, 1_000_000, bytes);
            assert!(find(&work.seen()).is_empty(), "{n} {ns} {bytes}");
        }
        // Reads take as long as they like.
        let mut work = Work::new(1_000_000_000);
        work.call("read", "reader (7)", 300, 800_000_000, 0);
        assert!(find(&work.seen()).is_empty());
    }
}
