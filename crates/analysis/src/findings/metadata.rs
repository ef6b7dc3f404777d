//! More journal and metadata than data.

use super::{Finding, MeasureUnit, Mount, Remedy, Rule, Seen, Step, Weight, measure, percent};
use crate::Evidence;
use crate::block::BlockFound;
use crate::units::size;

const MIN_BYTES: u64 = 1 << 20;
/// Least share of the written bytes of known origin, per cent.
const MIN_PERCENT: f64 = 50.0;
/// With data=journal each byte is written to the journal and to its place. Least share of the device's written bytes, per cent: a
/// part may have been changed before the recording.
const MIN_JOURNALLED_PERCENT: f64 = 40.0;

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let Some(found) = seen.block else { return Vec::new() };
    let Some(written) = found.originators.written() else { return Vec::new() };
    let (own, all) = (written.kernel_bytes, written.bytes());
    if let Some(mount) = seen.storage.mounts.iter().find(|mount| is_journalled(seen, mount)) {
        // Bytes written to other devices, or below this one, do not count.
        let there = seen.device_group(&mount.device, "writes").map_or(all, |group| group.bytes).min(all);
        if own >= MIN_BYTES && percent(own, there) >= MIN_JOURNALLED_PERCENT {
            return vec![of_data_journal(seen, found, mount, own, there)];
        }
    }
    if own < MIN_BYTES || percent(own, all) < MIN_PERCENT {
        return Vec::new();
    }
    let source = "block:block_bio_queue, and the task that made the page dirty";
    vec![Finding {
        weight: Weight::Overview,
        what: format!(
            "Journal and metadata are {} of the {} written ({:.0} %).",
            size(own),
            size(all),
            percent(own, all)
        ),
        cause: "Many small changes to files and directories, syncs, or short commits write more metadata than data."
            .to_owned(),
        evidence: vec![
            measure("journal and metadata", own as f64, MeasureUnit::Bytes, source),
            measure(
                "of programs",
                all.saturating_sub(own).saturating_sub(written.unknown_bytes) as f64,
                MeasureUnit::Bytes,
                source,
            ),
        ],
        lost_ns: Evidence::unknown("an overview: the causes are separate findings", ""),
        lost_bytes: Some(own),
        advice: Vec::new(),
        ..Finding::of(Rule::MetadataDominated)
    }]
}

/// ext4 writes data into its journal, too.
fn is_journalled(seen: &Seen<'_>, mount: &Mount) -> bool {
    mount.value("data") == Some("journal") && seen.is_used(&mount.device)
}

fn of_data_journal(seen: &Seen<'_>, found: &BlockFound, mount: &Mount, own: u64, all: u64) -> Finding {
    let source = "block:block_bio_queue, and the task that made the page dirty; mount options of /proc/self/mounts";
    let written = seen.device_group(&mount.device, "writes").map_or(all, |group| group.bytes);
    Finding {
        what: format!(
            "{} writes data twice, first into its journal: journal and metadata are {} of the {} written ({:.0} %).",
            mount.target,
            size(own),
            size(all),
            percent(own, all)
        ),
        cause: "The mount option data=journal: each block goes to the journal, and later to its place.".to_owned(),
        evidence: vec![
            measure("journal and metadata", own as f64, MeasureUnit::Bytes, source),
            measure("written to the device", written as f64, MeasureUnit::Bytes, source),
        ],
        lost_ns: seen.cost_of(found, "writes", own),
        lost_bytes: Some(own),
        advice: vec![Remedy {
            what: "Mount with data=ordered, the default; it takes effect after umount and mount".to_owned(),
            steps: vec![
                Step::Run { command: "umount".to_owned(), names: vec![mount.target.clone()] },
                Step::Run {
                    command: "mount -o data=ordered".to_owned(),
                    names: vec![mount.source.clone(), mount.target.clone()],
                },
            ],
            gain: Evidence::unknown(
                format!(
                    "the bytes written fall by at most what the journal and metadata have ({:.0} %); how much of it are \
                     copies of data is not in the trace",
                    percent(own, all)
                ),
                "try it, and compare two recordings: flashscope diff",
            ),
            risk: "after a power cut a file that was being overwritten may have new and old blocks".to_owned(),
        }],
        ..Finding::of(Rule::MetadataDominated)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Work, only};
    use super::*;

    fn work(kernel: u64, direct: u64, unknown: u64) -> Work {
        let mut work = Work::new(1_000_000_000);
        let o = &mut work.block().originators;
        let of = Evidence::Known;
        (o.written_kernel_bytes, o.written_direct_bytes, o.written_unknown_bytes) =
            (of(kernel), of(direct), of(unknown));
        work
    }

    #[test]
    fn metadata_beside_little_data_is_told() {
        let finding = only(find(&work(6 << 20, 2 << 20, 0).seen()));
        assert_eq!(finding.what, "Journal and metadata are 6 MiB of the 8 MiB written (75 %).");
    }

    #[test]
    fn data_in_the_journal_is_a_cause_of_its_own() {
        let mut work = Work::new(1_000_000_000);
        work.bios(10, "W", 1_000, 5_000_000);
        let o = &mut work.block().originators;
        (o.written_kernel_bytes, o.written_one_bytes) = (Evidence::Known(6 << 20), Evidence::Known(4 << 20));
        work.mount("/data", "ext4", "rw,data=journal");
        let finding = only(find(&work.seen()));
        assert!(finding.what.starts_with("/data writes data twice, first into its journal"), "{}", finding.what);
        assert!(finding.weight == Weight::Cost && finding.cause.contains("data=journal"));
        work.storage.mounts[0].device = "8:16".into();
        assert_eq!(only(find(&work.seen())).weight, Weight::Overview);
    }

    #[test]
    fn data_small_amounts_and_unknown_writers_are_not() {
        for (kernel, direct, unknown) in [(2 << 20, 6 << 20, 0), (1 << 19, 0, 0), (2 << 20, 0, 9 << 20)] {
            assert!(find(&work(kernel, direct, unknown).seen()).is_empty());
        }
    }
}
