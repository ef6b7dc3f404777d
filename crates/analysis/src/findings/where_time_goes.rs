//! A slow device, a queue in front of it, or the program itself.

use super::{Finding, MeasureUnit, Rule, Seen, Weight, layered_device, lost_events, measure, percent, stage};
use crate::Evidence;
use crate::block::{BlockFound, GroupBy, Unit};
use crate::calls::{is_read, is_write};
use crate::units::{duration, grouped};

/// Least share of the recorded time with bios in flight, percent. Below it they delay nothing.
const PROGRAM_PERCENT: f64 = 20.0;
/// A task notices a wait of this length for a bio, even if the device is mostly idle.
const STALL_NS: u64 = 100_000_000;
/// From this share of Q2C on, a stage takes most of the time, percent.
const MOST_PERCENT: f64 = 60.0;

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let Some(found) = seen.block else { return Vec::new() };
    let Some(all) = found.groups.iter().find(|group| group.by == GroupBy::All) else { return Vec::new() };
    let Some(d2c) = stage(all, "D2C") else { return Vec::new() };
    let source = match found.stages.unit {
        Unit::Bio => "block:block_bio_queue, block_rq_issue, block_rq_complete",
        Unit::Request => "block:block_rq_issue, block_rq_complete",
    };
    let mut evidence = vec![
        measure("time of requests in the device (D2C), sum", d2c.total_ns as f64, MeasureUnit::Ns, source),
        measure("mean D2C", d2c.ns.mean as f64, MeasureUnit::Ns, source),
    ];
    let (q2c, q2d) = (stage(all, "Q2C"), stage(all, "Q2D"));
    let (what, cause) = match (q2c, q2d) {
        (Some(q2c), Some(q2d)) if found.stages.unit == Unit::Bio => {
            evidence.push(measure("time before it (Q2D), sum", q2d.total_ns as f64, MeasureUnit::Ns, source));
            evidence.push(measure("mean Q2D", q2d.ns.mean as f64, MeasureUnit::Ns, source));
            // Bios without an issue (of zram, or of a layer that passes them on) are in neither sum.
            let issued = d2c.ns.n == q2c.ns.n;
            let whole = if issued { q2c.total_ns } else { d2c.total_ns.saturating_add(q2d.total_ns) };
            let shares = (percent(d2c.total_ns, whole), percent(q2d.total_ns, whole));
            let (device, front) = (duration(d2c.ns.mean), duration(q2d.ns.mean));
            let each = if issued {
                let took = duration(q2c.ns.mean);
                format!("Of {took} a bio on average {device} are in the device and {front} in front of it.")
            } else {
                format!(
                    "The {} of {} bios that were issued are {device} in the device on average, and {front} in front of it.",
                    grouped(d2c.ns.n),
                    grouped(q2c.ns.n)
                )
            };
            // Parallel bios are all counted, so this is an upper bound.
            // When lost bios were in flight is unknown.
            if seen.of_span(q2c.total_ns) < PROGRAM_PERCENT && !lost_events::find(seen).is_empty() {
                let part = seen.of_span(q2c.total_ns);
                let part = at_most(part);
                (format!("The bios that were not lost are under way for {part} of the time."), each)
            } else if seen.of_span(q2c.total_ns) < PROGRAM_PERCENT {
                let most = at_most(seen.of_span(q2c.total_ns));
                let what = format!("Bios are under way for {most} of the time");
                match longest_sync(found) {
                    Some(sync) => (format!("{what}, but a call waited for them: {sync}."), each),
                    None if q2c.ns.max >= STALL_NS => {
                        (format!("{what}, but the longest took {}.", duration(q2c.ns.max)), each + before_bios(seen))
                    }
                    None => {
                        let what = format!("{what}: the device and its queue are not the cause of slowness.");
                        (what, each + before_bios(seen))
                    }
                }
            } else if shares.0 >= MOST_PERCENT {
                (format!("The device takes most of the time: {:.0} % of what bios take (D2C).", shares.0), each)
            } else if shares.1 >= MOST_PERCENT
                && let Some((layer, part)) = slow_layer(seen, found, q2d.total_ns)
            {
                let what = format!(
                    "Bios wait above the device: {:.0} % of what they take (Q2D), and {part:.0} % of that in {layer}.",
                    shares.1
                );
                (what, each)
            } else if shares.1 >= MOST_PERCENT {
                let what = format!("Bios wait in front of the device: {:.0} % of what they take (Q2D).", shares.1);
                (what, each)
            } else {
                ("Bios spend their time in the device and in front of it alike.".to_owned(), each)
            }
        }
        _ => (
            format!("Requests spend {} on average in the device (D2C).", duration(d2c.ns.mean)),
            "The trace shows no queueing: how long bios wait in front of the device is unknown.".to_owned(),
        ),
    };
    vec![Finding {
        rule: Rule::WhereTimeGoes,
        weight: Weight::Overview,
        processes: Vec::new(),
        what,
        cause,
        evidence,
        lost_ns: Evidence::unknown("an overview: it names no lost time", ""),
        lost_bytes: None,
        advice: Vec::new(),
        uncertain: None,
    }]
}

/// A recording of one device has calls that sync, but no reads and writes: what these wait for before a bio is queued is not in it.
fn before_bios(seen: &Seen<'_>) -> &'static str {
    let (calls, _) = seen.calls.total(|call| is_read(call) || is_write(call));
    let is_without = seen.calls.not_of_device.is_some() && seen.calls.without_storage.is_none_or(|n| n == 0);
    if calls > 0 || !is_without && !seen.storage.lacks_calls {
        return "";
    }
    " What a program waits for before its bios, as for a limit of its cgroup (io.max, memory.high), is seen with its calls: record \
     with --events block,cache,syscall."
}

/// A bound in per cent: one that would be rounded to 0 is less than 0.1.
fn at_most(percent: f64) -> String {
    if percent < 0.05 { "less than 0.1 %".to_owned() } else { format!("at most {percent:.1} %") }
}

/// The device-mapper layer in which bios spend most of the time before their issue, and its share. It must also add time to bios that
/// are alone; otherwise they may wait for the device beneath.
fn slow_layer(seen: &Seen<'_>, found: &BlockFound, q2d_ns: u64) -> Option<(String, f64)> {
    let levels = found.stack.iter().filter(|level| layered_device::adds_time(seen, level));
    let of =
        levels.filter_map(|level| Some((percent(level.mean_down_ns?.saturating_mul(level.upper_bios), q2d_ns), level)));
    let (part, level) = of.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(part, _)| *part >= MOST_PERCENT)?;
    Some((seen.storage.device_name(&level.upper), part.min(100.0)))
}

/// The longest sync call, if it mostly waited for bios.
fn longest_sync(found: &BlockFound) -> Option<String> {
    let call = found.syncs.calls.first()?;
    let times = call.waits.known()?;
    let parts = [
        (Some(times.data_ns), "for data"),
        (Some(times.journal_ns), "for the journal"),
        (times.flush_ns.known().copied(), "for a flush of the device"),
    ];
    let waited: u64 = parts.iter().filter_map(|part| part.0).sum();
    let (most, how) = parts.iter().max_by_key(|part| part.0)?;
    if percent(waited, call.duration_ns) < MOST_PERCENT {
        return None;
    }
    let (took, most) = (duration(call.duration_ns), duration((*most)?));
    Some(format!("{} took {took} in {}, {most} of it {how}", call.task, call.call))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Work, only};
    use super::*;
    use crate::block::{StackAlone, StackLevel, SyncCall, SyncTimes};
    use crate::findings::Disk;

    /// A limit of the cgroup holds reads back before they are bios.
    #[test]
    fn a_recording_without_reads_and_writes_says_what_it_does_not_show() {
        let cause = |not_of_device, call: Option<&str>| {
            let mut work = Work::new(100_000_000);
            work.bios(4, "R", 1_000, 9_000);
            work.calls.not_of_device = not_of_device;
            call.into_iter().for_each(|call| work.call(call, "dd (7)", 4, 90_000_000, 16_384));
            only(find(&work.seen())).cause
        };
        assert!(cause(Some(3), Some("fsync")).ends_with("record with --events block,cache,syscall."));
        for (not_of_device, call) in [(Some(0), Some("read")), (None, None)] {
            assert!(cause(not_of_device, call).ends_with("in front of it."), "{call:?}");
        }
        // Not even a call that syncs: the recording did not ask for the others.
        let mut work = Work::new(100_000_000);
        work.bios(4, "R", 1_000, 9_000);
        work.storage.lacks_calls = true;
        assert!(only(find(&work.seen())).cause.contains("(io.max, memory.high)"));
    }

    #[test]
    fn device_queue_and_program_are_told_apart() {
        for (queue, device, span, word) in [
            (1_000, 99_000, 400_000, "The device takes most"),
            (90_000, 10_000, 400_000, "wait in front of the device"),
            (1_000, 9_000, 100_000_000, "not the cause of slowness"),
        ] {
            let mut work = Work::new(span);
            work.bios(1, "R", queue, device);
            let finding = only(find(&work.seen()));
            assert!(finding.what.contains(word), "{}", finding.what);
            assert!(finding.advice.is_empty());
        }
    }

    /// A delay of device mapper is no queue of the device beneath.
    #[test]
    fn a_layers_time_is_its_own() {
        for (down_ns, says) in [
            (85_000, "Bios wait above the device: 90 % of what they take (Q2D), and 94 % of that in dm-0 (253:0)."),
            (15_000, "Bios wait in front of the device: 90 % of what they take (Q2D)."),
        ] {
            let mut work = Work::new(4_000_000);
            work.bios(40, "R", 90_000, 10_000);
            work.block().stack.push(StackLevel {
                upper: "253:0".into(),
                lower: "8:0".into(),
                upper_bios: 40,
                mean_down_ns: Some(down_ns),
                mean_q2c_ns: Some(100_000),
                alone: Some(StackAlone { bios: 40, mean_own_ns: down_ns, mean_q2c_ns: 100_000 }),
                ..StackLevel::default()
            });
            let disk = Disk { name: "dm-0".into(), device: "253:0".into(), ..Disk::default() };
            work.storage.disks.push(disk);
            let finding = only(find(&work.seen()));
            assert_eq!(finding.what, says);
        }
    }

    /// A device that is idle most of the time may be what one fsync() waits for.
    #[test]
    fn an_idle_device_that_a_sync_waits_for_is_a_cause() {
        for (flush, says) in [
            (
                90_000_000,
                "but a call waited for them: db (7) took 91.00 ms in fsync, 90.00 ms of it for a flush of the device.",
            ),
            (9_000_000, "the device and its queue are not the cause of slowness."),
        ] {
            let mut work = Work::new(10_000_000_000);
            work.bios(1, "W", 1_000, 9_000);
            let times = SyncTimes { data_ns: 0, journal_ns: 0, flush_ns: flush.into(), rest_ns: 1, longest: None };
            work.block().syncs.calls.push(SyncCall {
                call: "fsync".into(),
                number: 1,
                task: "db (7)".into(),
                begin_ns: 0,
                duration_ns: 91_000_000,
                waits: times.into(),
            });
            let finding = only(find(&work.seen()));
            assert!(finding.what.ends_with(says), "{}", finding.what);
        }
    }

    /// What a flight recorder catches.
    #[test]
    fn an_idle_device_that_stalls_once_is_a_cause() {
        for (device, says) in [
            (700_000_000, ", but the longest took 700.00 ms."),
            (90_000_000, ": the device and its queue are not the cause of slowness."),
        ] {
            let mut work = Work::new(10_000_000_000);
            work.bios(1, "W", 1_000, device - 1_000);
            let finding = only(find(&work.seen()));
            assert!(finding.what.ends_with(says), "{}", finding.what);
        }
    }

    #[test]
    fn lost_events_are_no_idle_storage() {
        let mut work = Work::new(100_000_000);
        work.bios(1, "R", 1_000, 9_000);
        let meaning = "entries that the ring wrote over".to_owned();
        work.losses.push(crate::LossCount { name: "events_dropped".into(), count: 9, meaning });
        let finding = only(find(&work.seen()));
        assert!(finding.what.starts_with("The bios that were not lost are under way"), "{}", finding.what);
    }

    #[test]
    fn nothing_is_said_of_no_requests() {
        assert!(find(&Work::new(1).seen()).is_empty());
        let mut work = Work::new(1);
        work.bios(0, "R", 0, 0);
        assert!(find(&work.seen()).is_empty());
    }
}
