//! Events that the recording lost: what the other findings may leave out.

use super::{Finding, MeasureUnit, Remedy, Rule, Seen, Step, Weight, measure};
use crate::Evidence;
use crate::units::grouped;

/// Counters of events that happened and are not in the trace.
const COUNTERS: [&str; 8] = [
    "events_overwritten",
    "events_dropped",
    "events_missed_at_gaps",
    "events_not_drained",
    "frames_missing",
    "frames_bad_crc",
    "data_cut",
    "stream_cut",
];

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let lost: Vec<_> = seen.losses.iter().filter(|loss| loss.count > 0 && COUNTERS.contains(&&*loss.name)).collect();
    let Some(first) = lost.iter().max_by_key(|loss| loss.count) else { return Vec::new() };
    vec![Finding {
        rule: Rule::LostEvents,
        weight: Weight::Overview,
        what: format!("The recording is not complete: {} {}.", first.name, grouped(first.count)),
        cause: format!("{}: figures may be too low.", capital(&first.meaning)),
        evidence: lost
            .iter()
            .map(|loss| measure(&loss.name, loss.count as f64, MeasureUnit::Count, "loss counters"))
            .collect(),
        lost_ns: Evidence::unknown("what is lost has no time", ""),
        lost_bytes: None,
        advice: vec![Remedy {
            what: "Record again with a larger ring, or fewer events".to_owned(),
            steps: vec![Step::Run {
                command: "flashscope record --ring 16384 --events block".to_owned(),
                names: Vec::new(),
            }],
            gain: Evidence::unknown("how fast events come is not known where they are lost", ""),
            risk: "16 MiB of memory for each processor".to_owned(),
        }],
        uncertain: None,
    }]
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Work, only};
    use super::*;
    use crate::LossCount;

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

    #[test]
    fn counters_that_are_zero_or_of_names_are_none() {
        let mut work = Work::new(1_000_000_000);
        work.losses = vec![loss("events_overwritten", 0), loss("names_dropped", 5)];
        assert!(find(&work.seen()).is_empty());
    }
}
