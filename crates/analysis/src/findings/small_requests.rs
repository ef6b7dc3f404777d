//! Bios that are split into many requests, because the device's request size limit (`max_sectors_kb`) is small.

use super::{Finding, MeasureUnit, Remedy, Rule, Seen, Step, gain, groups, measure, stage};
use crate::block::GroupBy;
use crate::units::{duration, grouped, size};

/// Drivers accept 64 KiB or more; a smaller value was set by hand.
const MOST_SET_KIB: u64 = 32;
/// Least number of requests for each bio, on average.
const MIN_PARTS: u64 = 4;
/// Least number of requests. Large bios are rare, so fewer show no pattern.
const MIN_REQUESTS: u64 = 200;
/// `BLK_DEF_MAX_SECTORS` of Linux before 6.8 (include/linux/blkdev.h): 1,280 KiB.
const DEFAULT_KIB: u64 = 1280;

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let Some(found) = seen.block else { return Vec::new() };
    let mut all = Vec::new();
    for disk in seen.storage.disks.iter().filter(|disk| !disk.device.is_empty()) {
        let Some(most_kib) = disk.max_sectors_kib.filter(|kib| (1..=MOST_SET_KIB).contains(kib)) else { continue };
        let kinds = ["reads", "writes"].map(|what| format!("{} {what}", disk.device));
        let is_cut = |bytes: u64, bios: u64| bytes / bios.max(1) >= (most_kib << 10) * MIN_PARTS;
        let cut = groups(found, GroupBy::Device)
            .filter(|group| kinds.contains(&group.name) && is_cut(group.bytes, group.bios));
        let (bios, bytes, ns) = cut.fold((0u64, 0u64, 0u64), |(bios, bytes, ns), group| {
            let q2c = stage(group, "Q2C").map_or(0, |stage| stage.total_ns);
            (bios + group.bios, bytes.saturating_add(group.bytes), ns.saturating_add(q2c))
        });
        if bytes / (most_kib << 10) < MIN_REQUESTS || seen.of_span(ns) < super::MIN_SPAN_PERCENT {
            continue;
        }
        let device = seen.storage.device_name(&disk.device);
        let parts = bytes / bios / (most_kib << 10);
        let source = "block:block_bio_queue, block_rq_complete; /sys/block/*/queue/max_sectors_kb";
        all.push(Finding {
            what: format!(
                "{} bios of {device} take {}, and each of its {} on average is cut into {} requests.",
                grouped(bios),
                duration(ns),
                size(bytes / bios),
                grouped(parts)
            ),
            cause: format!("The largest request of the device is {most_kib} KiB (max_sectors_kb): the start of each is paid again."),
            evidence: vec![
                measure("bios", bios as f64, MeasureUnit::Count, source),
                measure("their time", ns as f64, MeasureUnit::Ns, source),
                measure("requests of each", parts as f64, MeasureUnit::Count, source),
            ],
            // The times of requests that overlap sum up to more than the elapsed time.
            lost_ns: ns.min(seen.span_ns).into(),
            advice: vec![Remedy {
                what: "Let requests be as large as the default".to_owned(),
                // `advise --apply` does not change this setting.
                steps: vec![Step::Run {
                    command: format!("echo {DEFAULT_KIB} | tee"),
                    names: vec![format!("/sys/block/{}/queue/max_sectors_kb", disk.name)],
                }],
                gain: gain(
                    format!("time of bios of {device}"),
                    [0.0, 100.0 * (1.0 - 1.0 / parts as f64)],
                    "from none, if the device takes as long for one as for all that it replaces, to one small request in place of \
                            all of them; this trace has no larger request of the device: a second recording tells",
                ),
                risk: "a value above max_hw_sectors_kb, what the driver takes, is refused: set that one; beside large requests others \
                       wait longer"
                    .to_owned(),
            }],
            ..Finding::of(Rule::SmallRequests)
        });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::Disk;
    use super::super::testing::{Work, only};
    use super::*;

    /// 100 reads of 8:0 of so many KiB, 1 ms each.
    fn work(max_sectors_kib: u64, kib: u64) -> Work {
        let mut work = Work::new(1_000_000_000);
        work.bios(100, "R", 1_000, 999_000);
        for group in &mut work.block().groups {
            group.bytes = group.bios * (kib << 10);
        }
        let max_sectors_kib = Some(max_sectors_kib);
        work.storage.disks.push(Disk { name: "sda".into(), device: "8:0".into(), max_sectors_kib, ..Disk::default() });
        work
    }

    #[test]
    fn bios_that_are_cut_name_the_limit() {
        let finding = only(find(&work(4, 128).seen()));
        assert_eq!(
            finding.what,
            "100 bios of sda (8:0) take 100.00 ms, and each of its 128 KiB on average is cut into 32 requests."
        );
        let names = vec!["/sys/block/sda/queue/max_sectors_kb".to_owned()];
        let step = Step::Run { command: "echo 1280 | tee".into(), names };
        assert_eq!(finding.advice[0].steps, [step]);
        assert_eq!(finding.advice[0].gain.known().map(|gain| gain.most_percent.round()), Some(97.0));
    }

    /// cat of 50 MiB with a read-ahead of 4 MiB.
    #[test]
    fn few_large_bios_are_many_requests() {
        let mut work = work(4, 3200);
        for group in &mut work.block().groups {
            (group.bios, group.bytes) = (16, 16 * (3200 << 10));
        }
        assert!(only(find(&work.seen())).what.contains("16 bios of sda"));
        for group in &mut work.block().groups {
            (group.bios, group.bytes) = (2, 2 * (128 << 10));
        }
        assert!(find(&work.seen()).is_empty(), "64 requests");
    }

    #[test]
    fn usual_limits_small_bios_and_short_times_are_none() {
        for (kib, of) in [(64, 512), (4, 8), (0, 128)] {
            assert!(find(&work(kib, of).seen()).is_empty(), "{kib} {of}");
        }
        let mut short = work(4, 128);
        short.span_ns = 10_000_000_000;
        assert!(find(&short.seen()).is_empty());
        short.storage.disks[0].max_sectors_kib = None;
        assert!(find(&short.seen()).is_empty());
    }
}
