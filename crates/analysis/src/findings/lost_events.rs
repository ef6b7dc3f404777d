//! Events that the recording lost: other findings may be incomplete.

use super::{Finding, MeasureUnit, Remedy, Rule, Seen, Step, Weight, measure};
use crate::units::grouped;
use crate::{Evidence, LossCount};
use flashscope_trace::{Loss, LostIn};

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let lost_in = |loss: &LossCount| Loss::from_name(&loss.name)?.of_events();
    let is_lost = |loss: &&LossCount| loss.count > 0 && matches!(lost_in(loss), Some(LostIn::Ring | LostIn::File));
    let lost: Vec<_> = seen.losses.iter().filter(is_lost).collect();
    let Some(first) = lost.iter().max_by_key(|loss| loss.count) else { return Vec::new() };
    vec![Finding {
        rule: Rule::LostEvents,
        weight: Weight::Overview,
        processes: Vec::new(),
        what: format!("The recording is not complete: {} {}.", first.name, grouped(first.count)),
        cause: format!("{}: figures may be too low.", capital(&first.meaning)),
        evidence: lost
            .iter()
            .map(|loss| measure(&loss.name, loss.count as f64, MeasureUnit::Count, "loss counters"))
            .collect(),
        lost_ns: Evidence::unknown("lost events have no time", ""),
        lost_bytes: None,
        advice: match lost_in(first) == Some(LostIn::File) {
            true => copy_again(),
            false => larger_ring(),
        },
        uncertain: None,
    }]
}

fn larger_ring() -> Vec<Remedy> {
    vec![Remedy {
        what: "Record again with a larger ring, or fewer events".to_owned(),
        steps: vec![Step::Run {
            command: "flashscope record --ring 16384 --events block".to_owned(),
            names: Vec::new(),
        }],
        gain: Evidence::unknown("the rate of lost events is unknown", ""),
        risk: "16 MiB of memory for each processor".to_owned(),
    }]
}

fn copy_again() -> Vec<Remedy> {
    vec![Remedy {
        what: "Copy the whole trace again from where it was recorded; if it is no longer there, record again"
            .to_owned(),
        steps: Vec::new(),
        gain: Evidence::unknown("missing data has no time", ""),
        risk: "none".to_owned(),
    }]
}

pub(super) fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Work, only};
    use super::*;
    fn loss(name: &str, count: u64) -> LossCount {
        LossCount { name: name.into(), count, meaning: "entries that the ring wrote over".into() }
    }

    #[test]
    fn lost_events_make_the_others_uncertain() {
        let mut work = Work::new(1_000_000_000);
        work.call("fsync", "logger (7)", 300, 800_000_000, 0);
        assert!(super::super::find(&work.seen()).iter().all(|finding| finding.uncertain.is_none()));
        work.losses.push(loss("events_overwritten", 12));
        assert!(only(find(&work.seen())).what.contains("events_overwritten 12"));
        let all = super::super::find(&work.seen());
        assert!(all[0].rule == Rule::FsyncStorm && all[0].uncertain.is_some(), "{all:?}");
    }

    /// A larger ring helps where events found no place, and not where the file is cut.
    #[test]
    fn what_to_do_depends_on_where_events_were_lost() {
        for (name, word) in [
            ("data_cut", "Copy"),
            ("cpu_files_missing", "Copy"),
            ("records_missing", "ring"),
            ("gaps_of_unknown_size", "ring"),
        ] {
            let mut work = Work::new(1_000_000_000);
            work.losses.push(loss(name, 2));
            let found = only(find(&work.seen()));
            assert!(found.what.contains(name) && found.advice[0].what.contains(word), "{found:?}");
        }
    }

    #[test]
    fn counters_that_are_zero_or_of_names_are_none() {
        let mut work = Work::new(1_000_000_000);
        work.losses = vec![loss("events_overwritten", 0), loss("names_dropped", 5)];
        assert!(find(&work.seen()).is_empty());
    }
}
