//! Journal and metadata that outweigh the data.

use super::{Finding, MeasureUnit, Rule, Seen, Weight, measure, percent};
use crate::Evidence;
use crate::units::size;

const MIN_BYTES: u64 = 1 << 20;
/// From this part of what is written whose origin is known, percent.
const MIN_PERCENT: f64 = 50.0;

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let Some(found) = seen.block else { return Vec::new() };
    let o = &found.originators;
    let own = o.written_kernel_bytes;
    let known = [o.written_one_bytes, o.written_shared_bytes, o.written_direct_bytes, own].iter().sum::<u64>();
    if own < MIN_BYTES || percent(own, known.saturating_add(o.written_unknown_bytes)) < MIN_PERCENT {
        return Vec::new();
    }
    let source = "block:block_bio_queue, with who made the page dirty";
    vec![Finding {
        rule: Rule::MetadataDominated,
        weight: Weight::Overview,
        what: format!(
            "Journal and metadata are {} of the {} written ({:.0} %).",
            size(own),
            size(known.saturating_add(o.written_unknown_bytes)),
            percent(own, known.saturating_add(o.written_unknown_bytes))
        ),
        cause: "Many small changes to files and directories, syncs, or short commits write more metadata than data."
            .to_owned(),
        evidence: vec![
            measure("journal and metadata", own as f64, MeasureUnit::Bytes, source),
            measure("of programs", known.saturating_sub(own) as f64, MeasureUnit::Bytes, source),
        ],
        lost_ns: Evidence::unknown("an overview: the causes are findings of their own", ""),
        lost_bytes: Some(own),
        advice: Vec::new(),
        uncertain: None,
    }]
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Work, only};
    use super::*;

    fn work(kernel: u64, direct: u64, unknown: u64) -> Work {
        let mut work = Work::new(1_000_000_000);
        let o = &mut work.block().originators;
        (o.written_kernel_bytes, o.written_direct_bytes, o.written_unknown_bytes) = (kernel, direct, unknown);
        work
    }

    #[test]
    fn metadata_beside_little_data_is_told() {
        let finding = only(find(&work(6 << 20, 2 << 20, 0).seen()));
        assert_eq!(finding.what, "Journal and metadata are 6 MiB of the 8 MiB written (75 %).");
    }

    #[test]
    fn data_small_amounts_and_unknown_writers_are_not() {
        for (kernel, direct, unknown) in [(2 << 20, 6 << 20, 0), (1 << 19, 0, 0), (2 << 20, 0, 9 << 20)] {
            assert!(find(&work(kernel, direct, unknown).seen()).is_empty());
        }
    }
}
