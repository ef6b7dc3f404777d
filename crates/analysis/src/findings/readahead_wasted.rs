//! Pages that read-ahead brings in and nobody uses.

use super::{Finding, MeasureUnit, Remedy, Rule, Seen, Step, Weight, measure, percent};
use crate::Evidence;
use crate::units::{grouped, size};

/// Fewer pages are not worth a knob: 1 MiB.
const MIN_PAGES: u64 = 256;
/// Below this part of what is read ahead, percent.
const MIN_PERCENT: f64 = 50.0;
const PAGE_BYTES: u64 = 4096;
/// `VM_READAHEAD_PAGES` (include/linux/mm.h): 128 KiB.
const DEFAULT_KIB: u64 = 128;

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let (Some(found), Some(block)) = (seen.readahead, seen.block) else { return Vec::new() };
    let total = &found.total;
    let unused = total.ahead_unused();
    // Pages of mapped files may have been used in silence: then none is called unused.
    if unused < MIN_PAGES || percent(unused, total.ahead) < MIN_PERCENT {
        return Vec::new();
    }
    let Some(file) = found.files.iter().max_by_key(|file| file.pages.ahead_unused()) else { return Vec::new() };
    let Some(device) = file.device.map(|device| device.to_string()) else { return Vec::new() };
    let knob = seen.storage.disk(&device).and_then(|disk| Some((disk.name.clone(), disk.read_ahead_kib?)));
    let Some((name, kib)) = knob.filter(|(_, kib)| *kib > 0) else { return Vec::new() };
    let then = if kib > DEFAULT_KIB { DEFAULT_KIB } else { kib / 4 };
    let bytes = unused.saturating_mul(PAGE_BYTES);
    let source = "filemap:mm_filemap_add_to_page_cache and reads of files; /sys/block/*/queue/read_ahead_kb";
    let cost = seen.read_cost(block, bytes);
    vec![Finding {
        rule: Rule::ReadaheadWasted,
        weight: Weight::Cost,
        what: format!(
            "Read-ahead of {kib} KiB on {name} brings in {} that nobody uses: {} of {} pages.",
            size(bytes),
            grouped(unused),
            grouped(total.ahead)
        ),
        cause: format!(
            "The largest part is of file {}: it is not read in order.",
            seen.storage.file_name(&device, file.inode)
        ),
        evidence: vec![
            measure("pages read ahead", total.ahead as f64, MeasureUnit::Count, source),
            measure("of them unused", unused as f64, MeasureUnit::Count, source),
            measure("pages asked for", total.requested as f64, MeasureUnit::Count, source),
        ],
        lost_ns: cost,
        lost_bytes: Some(bytes),
        advice: vec![Remedy {
            what: format!("Read ahead {then} KiB"),
            steps: vec![Step::Set { path: format!("/sys/block/{name}/queue/read_ahead_kb"), value: then.to_string() }],
            gain: Evidence::unknown(
                "what smaller windows bring in follows from the order of the reads",
                "flashscope advise TRACE predicts it",
            ),
            risk: "files that are read in order need more requests; open files keep their window".to_owned(),
        }],
        uncertain: None,
    }]
}

#[cfg(test)]
mod tests {
    use super::super::Disk;
    use super::super::testing::{Work, only};
    use super::*;
    use crate::cache::{AccuracyFindings, Brought, FileBrought};
    use flashscope_trace::Device;

    fn work(ahead: u64, unused: u64, mapped: u64) -> Work {
        let mut work = Work::new(1_000_000_000);
        work.bios(10, "R", 1_000, 1_000_000);
        let pages = Brought { ahead, ahead_left_unused: unused, mapped, requested: 50, ..Brought::default() };
        let files = vec![FileBrought { device: Some(Device::new(8, 0)), inode: 12, path: None, pages }];
        work.readahead = Some(AccuracyFindings { total: pages, files, ..AccuracyFindings::default() });
        let read_ahead_kib = Some(2048);
        work.storage.disks.push(Disk { name: "sda".into(), device: "8:0".into(), read_ahead_kib, ..Disk::default() });
        work
    }

    #[test]
    fn unused_pages_name_the_knob() {
        let finding = only(find(&work(1000, 900, 0).seen()));
        assert!(finding.what.starts_with("Read-ahead of 2048 KiB on sda brings in 3.52 MiB"), "{}", finding.what);
        // 10 bios of 4 KiB at 1 ms: a page costs 1 ms.
        assert_eq!(finding.lost_ns.known(), Some(&900_000_000));
    }

    #[test]
    fn used_few_or_mapped_pages_are_not_told() {
        for (ahead, unused, mapped) in [(1000, 400, 0), (200, 200, 0), (1000, 0, 1000)] {
            assert!(find(&work(ahead, unused, mapped).seen()).is_empty());
        }
    }
}
