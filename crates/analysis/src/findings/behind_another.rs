//! A program that waits behind another one's I/O, and a scheduler that lets it.

use super::{Finding, Gain, MeasureUnit, Remedy, Rule, Seen, Step, Weight, measure, percent};
use crate::Evidence;
use crate::block::{OwnerKind, OwnerLoad, WaitBehind};
use crate::units::{duration, grouped};

/// Below this part of the recorded time, or of what its own bios take, a wait is not worth a word, percent.
const MIN_SPAN_PERCENT: f64 = 2.0;
const MIN_Q2C_PERCENT: f64 = 15.0;
/// A handful of bios shows no habit.
const MIN_BIOS: u64 = 10;
/// What another order of the queue takes off a wait at least, as a part of it.
const LEAST_OF_WAIT: f64 = 0.2;

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let Some(found) = seen.block else { return Vec::new() };
    let all = &found.originators.originators;
    let is_program = |name: &str| {
        all.iter().any(|one| {
            one.kind == OwnerKind::Task && (name == one.name || name == format!("{} ({})", one.name, one.tid))
        })
    };
    let loads = found.interference.owners.iter();
    loads.filter(|load| is_program(&load.owner)).filter_map(|load| of_owner(seen, load)).collect()
}

fn of_owner(seen: &Seen<'_>, load: &OwnerLoad) -> Option<Finding> {
    let found = seen.block?;
    let behind = load.mean_behind_ns.saturating_mul(load.bios);
    // What the device itself took longer is known only where it was seen without the others.
    let excess = load.mean_device_excess_ns.known().map_or(0, |&ns| ns.max(0) as u64).saturating_mul(load.bios);
    let price = behind.saturating_add(excess);
    let all = load.mean_q2c_ns.saturating_mul(load.bios);
    if load.bios < MIN_BIOS || seen.of_span(price) < MIN_SPAN_PERCENT || percent(price, all) < MIN_Q2C_PERCENT {
        return None;
    }
    let waited = |w: &&WaitBehind| w.victim == load.owner && w.device == load.device;
    let mut culprits: Vec<(&str, u64)> = Vec::new();
    for wait in found.interference.pairs.iter().filter(waited) {
        let ns = wait.served_ns.saturating_add(wait.handover_ns);
        match culprits.iter_mut().find(|(name, _)| *name == wait.behind) {
            Some((_, sum)) => *sum += ns,
            None => culprits.push((&wait.behind, ns)),
        }
    }
    let (culprit, _) = *culprits.iter().max_by_key(|(_, ns)| *ns)?;
    let disk = seen.storage.disk(&load.device);
    let without = disk.filter(|disk| disk.scheduler.as_deref() == Some("none"));
    let source = "block:block_bio_queue, block_rq_insert, block_rq_issue, block_rq_complete";
    let evidence = vec![
        measure("bios", load.bios as f64, MeasureUnit::Count, source),
        measure("mean time of one (Q2C)", load.mean_q2c_ns as f64, MeasureUnit::Ns, source),
        measure("of it behind others", (price / load.bios) as f64, MeasureUnit::Ns, source),
    ];
    let gain = Gain {
        of: format!("mean time of a bio of {}", load.owner),
        least_percent: percent(price, all) * LEAST_OF_WAIT,
        most_percent: percent(price, all).min(100.0),
        basis: "at most all of the measured wait, at least a fifth of it".to_owned(),
    };
    let device = seen.storage.device_name(&load.device);
    let (rule, cause, remedy) = match without {
        Some(disk) => (
            Rule::SchedulerHurts,
            format!("{device} has the scheduler none: requests go to the device in the order in which they come."),
            Remedy {
                what: "Let a scheduler put reads before writes".to_owned(),
                steps: vec![Step::Set {
                    path: format!("/sys/block/{}/queue/scheduler", disk.name),
                    value: "mq-deadline".to_owned(),
                }],
                gain: gain.into(),
                risk: format!("{culprit} gets less of the device; a little more processor time for each request"),
            },
        ),
        None => {
            let tid = culprit.rsplit_once('(').and_then(|(_, tid)| tid.strip_suffix(')')).unwrap_or("TID");
            let remedy = Remedy {
                what: format!("Give the I/O of {culprit} a lower priority"),
                steps: vec![Step::Run { command: "ionice -c 3 -p".to_owned(), names: vec![tid.to_owned()] }],
                gain: gain.into(),
                risk: "it may take much longer; with the scheduler none or kyber priorities have no effect".to_owned(),
            };
            (
                Rule::BehindAnother,
                "Both use the device at the same time, and its queue serves the other first.".to_owned(),
                remedy,
            )
        }
    };
    Some(Finding {
        rule,
        weight: Weight::Cost,
        what: format!(
            "{} waits {} behind {culprit} on {device}: {} of the {} that each of its {} bios takes.",
            load.owner,
            duration(price),
            duration(price / load.bios),
            duration(load.mean_q2c_ns),
            grouped(load.bios)
        ),
        cause,
        evidence,
        lost_ns: Evidence::Known(price),
        lost_bytes: None,
        advice: vec![remedy],
        uncertain: None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Work, only};
    use super::*;
    use crate::block::WaitStage;

    fn work(bios: u64, behind_ns: u64, kind: OwnerKind) -> Work {
        let mut work = Work::new(1_000_000_000);
        work.owner("player", kind, 4096, 0);
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
            "player (7) waits 400.00 ms behind backup (9) on 8:0: 4.00 ms of the 5.00 ms that each of its 100 bios takes."
        );
        assert_eq!(finding.rule, Rule::BehindAnother);
        assert_eq!(finding.advice[0].steps[0], Step::Run { command: "ionice -c 3 -p".into(), names: vec!["9".into()] });
        let gain = finding.advice[0].gain.known().expect("a range");
        assert_eq!((gain.least_percent, gain.most_percent), (16.0, 80.0));
    }

    #[test]
    fn without_a_scheduler_that_is_the_cause() {
        let mut work = work(100, 4_000_000, OwnerKind::Task);
        let scheduler = Some("none".to_owned());
        work.storage.disks.push(super::super::Disk {
            name: "sda".into(),
            device: "8:0".into(),
            scheduler,
            ..Default::default()
        });
        let finding = only(find(&work.seen()));
        assert_eq!(finding.rule, Rule::SchedulerHurts);
        assert!(finding.cause.contains("scheduler none"));
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
