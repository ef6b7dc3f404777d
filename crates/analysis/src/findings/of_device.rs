//! What findings about a recording of one device share: the time in calls is not in it.

use super::{GroupBy, MIN_SPAN_PERCENT, Remedy, Seen, Step, Weight, groups, stage};
use crate::Evidence;
use crate::block::BlockFound;

/// A cost where bios are under way for a good part of the time; else nothing shows that anybody waits.
pub(super) fn weight(seen: &Seen<'_>, found: &BlockFound) -> Weight {
    let all = groups(found, GroupBy::All).find_map(|group| stage(group, "Q2C")).map_or(0, |q2c| q2c.total_ns);
    if seen.of_span(all) >= MIN_SPAN_PERCENT { Weight::Cost } else { Weight::Overview }
}

/// How to see the calls.
pub(super) fn record_calls(what: &str) -> Remedy {
    Remedy {
        what: format!("Record the calls too, to see {what}"),
        steps: vec![Step::Run {
            command: "flashscope record --events block,cache,syscall".to_owned(),
            names: Vec::new(),
        }],
        gain: Evidence::unknown("how long the program waits in its calls is not in a recording of one device", ""),
        risk: "none to look; the calls of all programs make the recording larger".to_owned(),
    }
}

pub(super) fn lost() -> Evidence<u64> {
    Evidence::unknown(
        "the time in calls is not in a recording of one device",
        "record with --events block,cache,syscall",
    )
}

#[cfg(test)]
pub(super) fn testing() -> super::testing::Work {
    let mut work = super::testing::Work::new(1_000_000_000);
    work.bios_of("tar", 100, "W", 1_000, 999_000);
    work.storage.lacks_calls = true;
    work
}
