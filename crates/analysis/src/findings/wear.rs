//! Wear: the life time of the flash, and the tasks that use it up.

use super::{Finding, MeasureUnit, Rule, Seen, Weight, measure};
use crate::units::{digits, size};
use crate::{Evidence, OwnWear};

/// A device with a shorter life time is in danger, years.
const MIN_YEARS: f64 = 5.0;
/// Tenths of its life that an eMMC reports as used (JESD84-B51): from 80 % on it is reported.
const MAX_TENTHS: u16 = 9;
/// With fewer erases no life time is estimated.
const MIN_ERASES: u64 = 10;

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    let spends = seen.flash.and_then(|flash| flash.wear.known()?.by_task.first());
    for life in seen.life {
        let erased = seen.flash.and_then(|flash| flash.wear.known()).map_or(0, |wear| wear.erased_blocks);
        if life.even_years >= MIN_YEARS || erased < MIN_ERASES {
            continue;
        }
        let who = spends
            .map_or(String::new(), |task| format!(" {} writes most of it: {}.", task.task, size(task.written_bytes)));
        found.push(Finding {
            weight: Weight::Fault,
            what: format!(
                "The flash lasts {} years at this rate, if all blocks wear alike.{who}",
                digits(life.even_years)
            ),
            cause: format!(
                "The most worn block reaches {} erases in {} years.",
                life.endurance_cycles,
                digits(life.worst_block_years)
            ),
            evidence: vec![
                measure("blocks erased", erased as f64, MeasureUnit::Count, "flashscope:nand_erase"),
                measure("rated erase cycles", life.endurance_cycles as f64, MeasureUnit::Count, "--endurance"),
            ],
            lost_ns: Evidence::unknown("wear has no cost in time", ""),
            advice: Vec::new(),
            ..Finding::of(Rule::Wear)
        });
    }
    for own in seen.own_wear {
        let OwnWear::Emmc { life_time, pre_end_of_life, .. } = own else { continue };
        if life_time.iter().any(|&tenths| tenths >= MAX_TENTHS) || *pre_end_of_life >= 2 {
            let tenths = life_time.iter().max().copied().unwrap_or(0);
            found.push(Finding {
                weight: Weight::Fault,
                what: own.sentence(),
                cause: "The device itself counts what it wrote and erased since it was made.".to_owned(),
                evidence: vec![measure(
                    "life used, tenths",
                    tenths,
                    MeasureUnit::Count,
                    "/sys/block/*/device/life_time",
                )],
                lost_ns: Evidence::unknown("wear has no cost in time", ""),
                advice: Vec::new(),
                ..Finding::of(Rule::Wear)
            });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Work, only};
    use super::*;
    use crate::flash::Life;

    fn life(even_years: f64) -> Life {
        Life { chip: 0, endurance_cycles: 100_000, used_cycles: 0, even_years, worst_block_years: even_years / 3.0 }
    }

    #[test]
    fn a_short_life_is_told() {
        let mut work = Work::new(1_000_000_000);
        work.flash().wear.known_mut().expect("wear").erased_blocks = 500;
        work.life.push(life(1.5));
        assert!(only(find(&work.seen())).what.starts_with("The flash lasts 1.5 years"));
    }

    #[test]
    fn a_long_one_or_a_handful_of_erases_is_not() {
        let mut work = Work::new(1_000_000_000);
        work.flash().wear.known_mut().expect("wear").erased_blocks = 500;
        work.life.push(life(15.0));
        assert!(find(&work.seen()).is_empty());
        work.life[0] = life(1.0);
        work.flash().wear.known_mut().expect("wear").erased_blocks = 3;
        assert!(find(&work.seen()).is_empty());
    }

    #[test]
    fn an_old_emmc_says_so_itself() {
        let mut work = Work::new(1_000_000_000);
        let emmc = |tenths| OwnWear::Emmc { device: "mmcblk0".into(), life_time: [tenths, 1], pre_end_of_life: 1 };
        work.own_wear.push(emmc(3));
        assert!(find(&work.seen()).is_empty());
        work.own_wear.push(emmc(10));
        assert_eq!(only(find(&work.seen())).rule, Rule::Wear);
    }
}
