//! Discards that each take a device long.

use super::{Finding, Gain, MeasureUnit, Mount, Remedy, Rule, Seen, Step, Weight, measure, stage};
use crate::Evidence;
use crate::units::{counted, duration};

const MIN_DISCARDS: u64 = 5;
/// Below this share of the recorded time it is not reported, per cent.
const MIN_PERCENT: f64 = 2.0;

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let with = seen.storage.mounts.iter().filter(|mount| mount.has("discard"));
    let mut found = Vec::new();
    for mount in with {
        let Some(group) = seen.device_group(&mount.device, "discards") else { continue };
        let Some(q2c) = stage(group, "Q2C") else { continue };
        if group.bios < MIN_DISCARDS || seen.of_span(q2c.total_ns) < MIN_PERCENT {
            continue;
        }
        let source = "block:block_bio_queue, block_rq_complete; mount options of /proc/self/mounts";
        found.push(Finding {
            rule: Rule::DiscardStalls,
            weight: Weight::Cost,
            processes: Vec::new(),
            what: format!(
                "{} of {} take {}: {} each, {} at most.",
                counted(group.bios, "discard"),
                mount.target,
                duration(q2c.total_ns),
                duration(q2c.ns.mean),
                duration(q2c.ns.max)
            ),
            cause:
                "The mount option discard sends each freed range to the device at once, and other I/O waits behind it."
                    .to_owned(),
            evidence: vec![
                measure("discards", group.bios as f64, MeasureUnit::Count, source),
                measure("their time", q2c.total_ns as f64, MeasureUnit::Ns, source),
                measure("discarded", group.bytes as f64, MeasureUnit::Bytes, source),
            ],
            lost_ns: q2c.total_ns.into(),
            lost_bytes: None,
            advice: vec![without(
                mount,
                Gain {
                    of: format!("time of discards of {}", mount.target),
                    least_percent: 90.0,
                    most_percent: 100.0,
                    basis: "the file system sends none any more".to_owned(),
                }
                .into(),
            )],
            uncertain: None,
        });
    }
    found
}

/// Mount without discards, and trim rarely.
pub(super) fn without(mount: &Mount, gain: Evidence<Gain>) -> Remedy {
    Remedy {
        what: "Mount without discard, and trim once a week when nothing else is done".to_owned(),
        steps: vec![
            Step::Remount { target: mount.target.clone(), options: "nodiscard".into(), undo: "discard".into() },
            Step::Run { command: "fstrim".to_owned(), names: vec![mount.target.clone()] },
        ],
        gain,
        risk: "until the weekly trim the device has less spare room".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Work, only};
    use super::*;

    fn work(options: &str, device_ns: u64) -> Work {
        let mut work = Work::new(1_000_000_000);
        work.bios(20, "D", 1_000, device_ns);
        work.mount("/data", "ext4", options);
        work
    }

    #[test]
    fn slow_discards_of_the_option_are_told() {
        let finding = only(find(&work("rw,discard", 10_000_000).seen()));
        assert!(finding.what.starts_with("20 discards of /data take 200.02 ms"), "{}", finding.what);
    }

    #[test]
    fn fast_ones_and_those_of_fstrim_are_not() {
        assert!(find(&work("rw,discard", 10_000).seen()).is_empty());
        assert!(find(&work("rw", 10_000_000).seen()).is_empty());
    }
}
