//! Bios that wait for a free request, because the device's queue was shortened.

use super::{Finding, MeasureUnit, Remedy, Rule, Seen, Step, gain, groups, measure, percent, stage};
use crate::block::GroupBy;
use crate::total::Total as _;
use crate::units::{duration, grouped};

/// Smallest queue that can be set (BLKDEV_MIN_RQ, block/blk-mq.c): a shorter one is the driver's own.
const FEWEST_SET: u64 = 4;
/// SATA's queue has 32 requests; a device that does more at once loses less.
const FEW: u64 = 32;
const MIN_BIOS: u64 = 50;
/// Share of the bios' time, per cent.
const MIN_PERCENT: f64 = 30.0;
/// One thread that submits many at once waits for each request in turn, with one bio at a time: the share is small where the queue is
/// deep. Then it counts how much of the recorded time one waits, per cent.
const MIN_IN_TURN_PERCENT: f64 = 50.0;
/// The wait in front of the device has to be this many times shorter: a device that takes requests at once is not full.
const SOONER: u64 = 10;
/// A queue long enough for any device of this rule.
const ENOUGH: u64 = 128;

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let Some(found) = seen.block else { return Vec::new() };
    let mut all = Vec::new();
    for disk in seen.storage.disks.iter().filter(|disk| !disk.device.is_empty()) {
        let Some(requests) = disk.nr_requests.filter(|n| (FEWEST_SET..FEW).contains(n)) else { continue };
        let of_disk = |what: &str| format!("{} {what}", disk.device);
        let kinds = [of_disk("reads"), of_disk("writes")];
        let mine = || groups(found, GroupBy::Device).filter(|group| kinds.contains(&group.name));
        let sum = |name: &str| mine().filter_map(|group| stage(group, name)).map(|stage| stage.total_ns).total();
        let [wait, in_front, all_ns] = ["Q2G", "I2D", "Q2C"].map(sum);
        let bios: u64 = mine().map(|group| group.bios).sum();
        let is_full = in_front.saturating_mul(SOONER) > wait;
        // If all requests are always in use, one bio waits as long as a request takes, divided by their number.
        let in_turn_percent = MIN_IN_TURN_PERCENT / (requests + 1) as f64;
        let is_in_turn = (in_turn_percent..MIN_PERCENT).contains(&percent(wait, all_ns))
            && seen.of_span(wait) >= MIN_IN_TURN_PERCENT;
        if bios < MIN_BIOS
            || is_full
            || percent(wait, all_ns) < MIN_PERCENT && !is_in_turn
            || seen.of_span(wait) < super::MIN_SPAN_PERCENT
        {
            continue;
        }
        let device = seen.storage.device_name(&disk.device);
        let source = "block:block_bio_queue, block_getrq, block_rq_complete; /sys/block/*/queue/nr_requests";
        let part = percent(wait, all_ns);
        let by_one = " Who submits them waits there, too, and no more are under way at once.";
        all.push(Finding {
            what: format!(
                "{} bios of {device} wait {} for a free request (Q2G): {part:.0} % of what they take.",
                grouped(bios),
                duration(wait)
            ),
            cause: format!(
                "Its queue has {requests} requests (nr_requests), and all of them are in use. Once a bio has one, it goes to the \
                 device at once: the device is not what they wait for.{}",
                if is_in_turn { by_one } else { "" }
            ),
            evidence: vec![
                measure("bios", bios as f64, MeasureUnit::Count, source),
                measure("waiting for a request", wait as f64, MeasureUnit::Ns, source),
                measure("between queue and device", in_front as f64, MeasureUnit::Ns, source),
                measure("requests of the queue", requests as f64, MeasureUnit::Count, source),
            ],
            lost_ns: wait.into(),
            advice: vec![Remedy {
                what: "Give the queue more requests".to_owned(),
                steps: vec![Step::Set {
                    path: format!("/sys/block/{}/queue/nr_requests", disk.name),
                    value: ENOUGH.to_string(),
                }],
                gain: match is_in_turn {
                    // From as many at once as now, to all that there is room for.
                    true => gain(
                        format!("time until as many bios of {device} are done"),
                        [0.0, 100.0 - percent(requests, ENOUGH)],
                        "from none, if the device serves no more at once, to as many times less as there are more requests",
                    ),
                    false => gain(
                        format!("time of bios of {device}"),
                        [0.0, part],
                        "from none, if the device serves no more at once, to the whole wait for a request",
                    ),
                },
                risk: "without a scheduler, a driver refuses more than its device has; with more at once, each may take longer"
                    .to_owned(),
            }],
            ..Finding::of(Rule::FewRequests)
        });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::Disk;
    use super::super::testing::{Work, only};
    use super::*;

    /// 100 reads of 8:0, each so long before its request, and in front of the device.
    fn work(nr_requests: Option<u64>, wait_ns: u64, in_front_ns: u64) -> Work {
        let mut work = Work::new(1_000_000_000);
        work.bios(100, "R", wait_ns + in_front_ns, 1_000_000);
        for group in &mut work.block().groups {
            let whole = stage(group, "Q2D").expect("a stage").clone();
            for (name, ns) in [("Q2G", wait_ns), ("I2D", in_front_ns)] {
                let mut one = whole.clone();
                (one.stage, one.total_ns) = (name.into(), ns * 100);
                group.stages.retain(|stage| stage.stage != name);
                group.stages.push(one);
            }
        }
        work.storage.disks.push(Disk { name: "sda".into(), device: "8:0".into(), nr_requests, ..Disk::default() });
        work
    }

    #[test]
    fn a_short_queue_is_told() {
        let finding = only(find(&work(Some(4), 3_000_000, 10_000).seen()));
        assert_eq!(
            finding.what,
            "100 bios of sda (8:0) wait 300.00 ms for a free request (Q2G): 75 % of what they take."
        );
        let path = "/sys/block/sda/queue/nr_requests".to_owned();
        assert_eq!(finding.advice[0].steps, [Step::Set { path, value: "128".into() }]);
        assert_eq!(finding.lost_ns, 300_000_000.into());
    }

    /// One thread submits many at once: it waits for each request in turn, a fourth of the time that one takes.
    #[test]
    fn one_thread_that_submits_many_waits_for_requests_in_turn() {
        let of = |wait_ns: u64, span_ns: u64| {
            let mut work = work(Some(4), wait_ns, 1_000);
            work.span_ns = span_ns;
            find(&work.seen())
        };
        let finding = only(of(250_000, 30_000_000));
        assert!(finding.cause.ends_with("no more are under way at once."), "{}", finding.cause);
        let gain = finding.advice[0].gain.known().map(|gain| (gain.of.as_str(), gain.most_percent));
        assert_eq!(gain, Some(("time until as many bios of sda (8:0) are done", 96.875)));
        // Nobody waits for most of the time; and a wait that is too short for a queue that is always full.
        assert!(of(250_000, 60_000_000).is_empty());
        assert!(of(90_000, 10_000_000).is_empty());
    }

    #[test]
    fn a_full_device_a_driver_of_few_and_an_unknown_queue_are_not() {
        for (requests, wait, in_front) in [
            (Some(4), 3_000_000, 1_000_000),
            (Some(2), 3_000_000, 10_000),
            (Some(64), 3_000_000, 10_000),
            (None, 3_000_000, 10_000),
            (Some(4), 100_000, 0),
        ] {
            assert!(find(&work(requests, wait, in_front).seen()).is_empty(), "{requests:?} {wait} {in_front}");
        }
    }
}
