//! Who reads and writes most: process, file, device.

use super::{Finding, MeasureUnit, Rule, Seen, Weight, groups, measure, percent};
use crate::block::{GroupBy, Originator, OwnerKind};
use crate::units::size;
use crate::{Evidence, OWN_RECORDING};

/// With less there is no "most", bytes.
const MIN_BYTES: u64 = 4096;

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let Some(found) = seen.block else { return Vec::new() };
    // What the recorder itself did is no workload.
    let all: Vec<_> = found.originators.originators.iter().filter(|one| !one.name.starts_with(OWN_RECORDING)).collect();
    let file = groups(found, GroupBy::File).next();
    let mut findings = Vec::new();
    for (verb, done, of) in [
        ("writes", "written", (|one| one.written_bytes) as fn(&Originator) -> u64),
        ("reads", "read", |one| one.read_bytes),
    ] {
        let sum: u64 = all.iter().fold(0, |sum: u64, one| sum.saturating_add(of(one)));
        let kind = |kind: OwnerKind| all.iter().copied().filter(move |one| one.kind == kind);
        let bytes = |kind_of: OwnerKind| kind(kind_of).map(of).fold(0, u64::saturating_add);
        // Operations without data, as write zeroes, are no reads of a kernel thread.
        let Some(first) = kind(OwnerKind::Task).max_by_key(|one| of(one)).filter(|one| of(one) >= MIN_BYTES) else {
            continue;
        };
        let source = "block:block_bio_queue, with who made the page dirty";
        let thread = format!(" ({})", first.tid);
        let name = if first.name.ends_with(&thread) { first.name.clone() } else { first.name.clone() + &thread };
        let mut cause = String::new();
        if verb == "writes" && bytes(OwnerKind::Kernel) > 0 {
            cause += &format!("{} are journal and metadata.", size(bytes(OwnerKind::Kernel)));
        }
        if bytes(OwnerKind::Unknown) > 0 {
            cause += &format!(" For whom {} were {done} is unknown.", size(bytes(OwnerKind::Unknown)));
        }
        if let Some(file) = file.filter(|_| findings.is_empty()) {
            cause += &format!(" Most bytes are of file {}: {}.", file.name, size(file.bytes));
        }
        findings.push(Finding {
            rule: Rule::TopIo,
            weight: Weight::Overview,
            what: format!(
                "{name} {verb} most: {} of {} ({:.0} %).",
                size(of(first)),
                size(sum),
                percent(of(first), sum)
            ),
            cause: cause.trim_start().to_owned(),
            evidence: vec![
                measure(&format!("{done} for {name}"), of(first) as f64, MeasureUnit::Bytes, source),
                measure(&format!("{done} in all"), sum as f64, MeasureUnit::Bytes, source),
            ],
            lost_ns: Evidence::unknown("an overview: no time of it is lost by itself", ""),
            lost_bytes: Some(of(first)),
            advice: Vec::new(),
            uncertain: None,
        });
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::testing::Work;
    use super::*;

    #[test]
    fn the_most_is_named_for_each_direction() {
        let mut work = Work::new(1_000_000);
        work.owner("tar", OwnerKind::Task, 1 << 20, 3 << 20);
        work.owner("kworker/u8:1", OwnerKind::Unknown, 0, 9 << 20);
        work.owner("player", OwnerKind::Task, 5 << 20, 0);
        let what: Vec<String> = find(&work.seen()).into_iter().map(|finding| finding.what + &finding.cause).collect();
        assert_eq!(what[0], "tar (7) writes most: 3 MiB of 12 MiB (25 %).For whom 9 MiB were written is unknown.");
        assert_eq!(what[1], "player (7) reads most: 5 MiB of 6 MiB (83 %).");
        assert_eq!(what.len(), 2);
    }

    #[test]
    fn nobody_is_named_where_nobody_did_anything() {
        let mut work = Work::new(1_000_000);
        work.owner("idle", OwnerKind::Task, 100, 0);
        assert!(find(&work.seen()).is_empty());
    }
}
