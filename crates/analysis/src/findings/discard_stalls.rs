//! Discards that each take a device long: those of the mount option, and those of programs such as fstrim.
//!
//! Limit: the device of a program's discards is known only where a single one has as many.

use super::{Finding, Gain, MAX_NAMED, MeasureUnit, Mount, Remedy, Rule, Seen, Step, gain, groups, measure, stage};
use crate::block::{BlockFound, Group, GroupBy, OwnerKind};
use crate::total::Total as _;
use crate::units::{counted, duration, size};
use crate::{Evidence, task_name};
use std::collections::BTreeMap;

const MIN_DISCARDS: u64 = 5;
/// Below this share of the recorded time it is not reported, per cent.
const MIN_PERCENT: f64 = 2.0;

/// They discard in calls of their own (ioctl FITRIM, BLKDISCARD). Discards of a mount option come from workers, or from who removes a file.
const TRIMMERS: [&str; 2] = ["fstrim", "blkdiscard"];

/// What programs discard.
#[derive(Default)]
struct Trimmed {
    bios: u64,
    bytes: u64,
    ns: u64,
}

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let (mut found, by_programs) = of_programs(seen);
    let with = seen.storage.mounts.iter().filter(|mount| mount.has("discard"));
    for mount in with {
        let Some(group) = seen.device_group(&mount.device, "discards") else { continue };
        let Some(q2c) = stage(group, "Q2C") else { continue };
        let is_trimmed = by_programs.bios > 0 && trimmed_device(seen, by_programs.bytes) == Some(&mount.device);
        // Most of them are a program's.
        if is_trimmed && by_programs.bytes.saturating_mul(2) > group.bytes {
            continue;
        }
        let less = if is_trimmed { &by_programs } else { &Trimmed::default() };
        let (bios, ns) = (group.bios.saturating_sub(less.bios), q2c.total_ns.saturating_sub(less.ns));
        if bios < MIN_DISCARDS || seen.of_span(ns) < MIN_PERCENT {
            continue;
        }
        let source = "block:block_bio_queue, block_rq_complete; mount options of /proc/self/mounts";
        // The longest one may be the program's.
        let most = if is_trimmed { String::new() } else { format!(", {} at most", duration(q2c.ns.max)) };
        let each = if is_trimmed { ns / bios } else { q2c.ns.mean };
        found.push(Finding {
            what: format!(
                "{} of {} take {}: {} each{most}.",
                counted(bios, "discard"),
                mount.target,
                duration(ns),
                duration(each),
            ),
            cause:
                "The mount option discard sends each freed range to the device at once, and other I/O waits behind it."
                    .to_owned(),
            evidence: vec![
                measure("discards", bios as f64, MeasureUnit::Count, source),
                measure("their time", ns as f64, MeasureUnit::Ns, source),
                measure("discarded", group.bytes.saturating_sub(less.bytes) as f64, MeasureUnit::Bytes, source),
            ],
            lost_ns: ns.into(),
            advice: vec![without(
                mount,
                gain(
                    format!(
                        "time of discards of {}{}",
                        mount.target,
                        if is_trimmed { ", without those of programs" } else { "" }
                    ),
                    [90.0, 100.0],
                    "the file system sends none any more",
                ),
            )],
            ..Finding::of(Rule::DiscardStalls)
        });
    }
    found
}

/// The bios of programs that discard, by program.
fn trimmers(block: &BlockFound) -> BTreeMap<&str, Vec<(&Group, u64)>> {
    let mut by_name: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    for one in &block.originators.originators {
        if one.kind == OwnerKind::Task
            && one.covered_bytes > 0
            && let Some(name) = TRIMMERS.iter().find(|name| **name == one.name || **name == task_name(&one.name))
            && let Some(group) = groups(block, GroupBy::Owner).find(|group| one.is_called(&group.name))
        {
            by_name.entry(name).or_default().push((group, one.covered_bytes));
        }
    }
    by_name
}

/// With the bytes that they discard.
fn of_programs(seen: &Seen<'_>) -> (Vec<Finding>, Trimmed) {
    let (mut found, mut trimmed) = (Vec::new(), Trimmed::default());
    let Some(block) = seen.block else { return (found, trimmed) };
    for (name, all) in trimmers(block) {
        let stages = || all.iter().filter_map(|(group, _)| stage(group, "Q2C"));
        let (bios, bytes): (u64, u64) =
            (all.iter().map(|(group, _)| group.bios).total(), all.iter().map(|(_, bytes)| *bytes).total());
        let (ns, ended) = (stages().map(|one| one.total_ns).total(), stages().map(|one| one.ns.n).total());
        if ended < MIN_DISCARDS || seen.of_span(ns) < MIN_PERCENT {
            continue;
        }
        let names: Vec<&str> = all.iter().map(|(group, _)| group.name.as_str()).collect();
        let who = match names[..] {
            [one] => format!("{one} discards"),
            _ => format!("{} discard", seen.storage.tasks_called(name, &names)),
        };
        let source = "block:block_bio_queue, block_rq_complete";
        let device = trimmed_device(seen, bytes);
        let mount = device.and_then(|device| seen.storage.mounts.iter().find(|mount| mount.device == device));
        let on = device.map_or(String::new(), |device| format!(" on {}", seen.storage.device_name(device)));
        let command = match name {
            "fstrim" => "fstrim --minimum 1MiB",
            _ => "blkdiscard --step 64MiB",
        };
        let target = mount.filter(|_| name == "fstrim").map_or("TARGET", |mount| &mount.target);
        found.push(Finding {
            what: format!(
                "{who} {}{on}: {} take {} each, {} at most.",
                size(bytes),
                counted(bios, "bio"),
                duration(ns / ended),
                duration(stages().map(|one| one.ns.max).max().unwrap_or(0))
            ),
            cause: "It tells the device each free range at once, and other I/O waits behind it.".to_owned(),
            processes: names.iter().take(MAX_NAMED).map(|&name| name.to_owned()).collect(),
            evidence: vec![
                measure("its bios", bios as f64, MeasureUnit::Count, source),
                measure("their time, in sum", ns as f64, MeasureUnit::Ns, source),
                measure("discarded", bytes as f64, MeasureUnit::Bytes, source),
            ],
            // Many are under way at once.
            lost_ns: ns.min(seen.span_ns).into(),
            advice: vec![Remedy {
                what: "Run it when nothing else is done, once a week; and leave out short ranges, or discard in steps"
                    .to_owned(),
                steps: vec![Step::Run { command: command.to_owned(), names: vec![target.to_owned()] }],
                gain: Evidence::unknown(
                    "how many of its ranges are short is not in the trace",
                    "try it, and compare two recordings: flashscope diff",
                ),
                risk: "the device has less spare room until all is discarded".to_owned(),
            }],
            ..Finding::of(Rule::DiscardStalls)
        });
        trimmed.bios = trimmed.bios.saturating_add(bios);
        trimmed.bytes = trimmed.bytes.saturating_add(bytes);
        trimmed.ns = trimmed.ns.saturating_add(ns);
    }
    (found, trimmed)
}

/// The only device with as many bytes discarded.
fn trimmed_device<'a>(seen: &Seen<'a>, bytes: u64) -> Option<&'a str> {
    let all = groups(seen.block?, GroupBy::Device).filter(|group| group.bytes >= bytes);
    let mut devices = all.filter_map(|group| group.name.strip_suffix(" discards"));
    devices.next().filter(|_| devices.next().is_none())
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

    /// 20 discards of a program on 8:0, 4 KiB each.
    fn by(program: &str, options: &str, device_ns: u64) -> Work {
        let mut work = Work::new(1_000_000_000);
        work.bios_of(program, 20, "D", 1_000, device_ns);
        work.mount("/data", "ext4", options);
        work
    }

    /// With the option or without it: the program asked for them.
    #[test]
    fn fstrim_is_told_as_the_cause() {
        for options in ["rw", "rw,discard"] {
            let finding = only(find(&by("fstrim", options, 10_000_000).seen()));
            let told = "fstrim (7) discards 80 KiB on 8:0: 20 bios take 10.00 ms each, 10.00 ms at most.";
            assert_eq!((finding.what.as_str(), &finding.processes), (told, &vec!["fstrim (7)".to_owned()]));
            assert_eq!(finding.lost_ns.known(), Some(&200_020_000));
            let step = Step::Run { command: "fstrim --minimum 1MiB".into(), names: vec!["/data".into()] };
            assert_eq!(finding.advice[0].steps, [step]);
        }
        assert!(find(&by("fstrim", "rw", 10_000).seen()).is_empty());
        // On FAT who removes a file discards its blocks: that is the option.
        assert!(find(&by("rm", "rw", 10_000_000).seen()).is_empty());
        assert!(only(find(&by("rm", "rw,discard", 10_000_000).seen())).cause.contains("mount option"));
    }

    #[test]
    fn slow_discards_of_the_option_are_told() {
        let finding = only(find(&work("rw,discard", 10_000_000).seen()));
        assert!(finding.what.starts_with("20 discards of /data take 200.02 ms"), "{}", finding.what);
    }

    /// 30 of the option and 20 of fstrim, 4 KiB each: each finding has its own.
    #[test]
    fn the_option_is_told_without_what_fstrim_discards() {
        let mut work = Work::new(1_000_000_000);
        work.bios_by("D", &[("fstrim", 7, 20, 1_000, 10_000_000), ("rm", 8, 30, 1_000, 5_000_000)]);
        work.mount("/data", "ext4", "rw,discard");
        let found = find(&work.seen());
        let told: Vec<_> = found.iter().map(|one| (one.what.as_str(), one.lost_ns.known().copied())).collect();
        assert_eq!(
            told,
            [
                ("fstrim (7) discards 80 KiB on 8:0: 20 bios take 10.00 ms each, 10.00 ms at most.", Some(200_020_000)),
                ("30 discards of /data take 150.03 ms: 5.00 ms each.", Some(150_030_000)),
            ]
        );
    }

    #[test]
    fn fast_ones_and_those_of_fstrim_are_not() {
        assert!(find(&work("rw,discard", 10_000).seen()).is_empty());
        assert!(find(&work("rw", 10_000_000).seen()).is_empty());
    }
}
