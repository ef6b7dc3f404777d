//! A file on squashfs that is read at random: each missing page reads its whole compressed block.

use super::{Finding, MeasureUnit, Remedy, Rule, Seen, Step, gain, measure, percent};
use crate::cache::FileBrought;
use crate::calls::is_read;
use crate::units::{duration, grouped, size};
use flashscope_cachesim::PAGE_BYTES;

/// Least number of pages, 1 MiB. For fewer a new image is not worth the effort.
const MIN_PAGES: u64 = 256;
/// Below this part of what comes in, percent.
const MIN_PERCENT: f64 = 50.0;
/// Least number of pages that a missing page brings in: half of a block of 128 KiB, the default of mksquashfs.
const MIN_EACH: u64 = 16;
const MIN_MISSING: u64 = 4;
/// From this share of reads that begin where the one before ended, the file is read in order, percent.
const IN_ORDER_PERCENT: f64 = 80.0;
/// Least share of the recorded time, percent.
const MIN_SPAN_PERCENT: f64 = 2.0;
/// Advised block size, pages.
const THEN_PAGES: u64 = 4;
/// Context read-ahead brings in a few more.
const SLACK: f64 = 0.9;

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let files = seen.readahead.map_or(&[][..], |found| &found.files);
    let found = files.iter().filter_map(|file| of_file(seen, file));
    found.max_by_key(|finding| finding.lost_bytes).into_iter().collect()
}

/// Neither a smaller window nor `POSIX_FADV_RANDOM` changes what a block brings in (fs/squashfs/file.c, squashfs_readpage_block).
pub(super) fn is_on_squashfs(seen: &Seen<'_>, file: &FileBrought) -> bool {
    let kind = file.device.and_then(|device| seen.storage.device_names.filesystem(device));
    let mounted = |device: String| seen.storage.mounts_of(&device).next().is_some_and(|mount| mount.kind == "squashfs");
    kind == Some("squashfs") || file.device.is_some_and(|device| mounted(device.to_string()))
}

fn of_file(seen: &Seen<'_>, file: &FileBrought) -> Option<Finding> {
    let pages = &file.pages;
    let (unused, all) = (pages.ahead_wasted(), pages.ahead.saturating_add(pages.requested));
    let is_much = unused >= MIN_PAGES && percent(unused, all) >= MIN_PERCENT && pages.requested >= MIN_MISSING;
    if !is_much || all / pages.requested.max(1) < MIN_EACH || pages.mapped > 0 || !is_on_squashfs(seen, file) {
        return None;
    }
    let device = file.device?.to_string();
    let reads = seen.usage.files.iter().find(|one| one.device == device && one.inode == file.inode);
    if reads.is_some_and(|one| percent(one.sequential, one.reads) >= IN_ORDER_PERCENT) {
        return None;
    }
    // Time of the calls, because unpacking a block also takes time.
    let label = format!("{device} inode {}", file.inode);
    let calls = seen.calls.by_file.iter().filter(|group| is_read(&group.call) && group.name == label);
    let (n, ns) = calls.fold((0u64, 0u64), |(n, ns), group| (n + group.ns.n, ns.saturating_add(group.total_ns)));
    let lost_ns = (ns as f64 * unused as f64 / all as f64) as u64;
    if n == 0 || seen.of_span(lost_ns) < MIN_SPAN_PERCENT {
        return None;
    }
    let used = all.saturating_sub(unused);
    let name = seen.storage.file_name(&device, file.inode);
    let source = "filemap:mm_filemap_add_to_page_cache and reads of files; syscalls:sys_enter_*, sys_exit_*";
    Some(Finding {
        what: format!(
            "Reads of {name} bring in {} that nobody uses: {} of {} pages. Its {} reads take {}.",
            size(unused.saturating_mul(PAGE_BYTES)),
            grouped(unused),
            grouped(all),
            grouped(n),
            duration(ns)
        ),
        cause: format!(
            "The file is not read in order. Squashfs unpacks a complete block for each missing page: {} pages missed, and each brought in {} on average.",
            grouped(pages.requested),
            size((all / pages.requested.max(1)).saturating_mul(PAGE_BYTES))
        ),
        evidence: vec![
            measure("pages brought in", all as f64, MeasureUnit::Count, source),
            measure("of them unused", unused as f64, MeasureUnit::Count, source),
            measure("pages that missed", pages.requested as f64, MeasureUnit::Count, source),
            measure("time in reads", ns as f64, MeasureUnit::Ns, source),
        ],
        lost_ns: lost_ns.into(),
        lost_bytes: Some(unused.saturating_mul(PAGE_BYTES)),
        advice: vec![Remedy {
            what: "Make the image with smaller blocks, or read the file in order".to_owned(),
            steps: vec![Step::Code { line: "mksquashfs ROOT IMAGE -b 16K".to_owned() }],
            gain: gain(
                "bytes that come into the page cache of this file",
                [(100.0 - percent(used.saturating_mul(THEN_PAGES), all)).max(0.0) * SLACK, 100.0 - percent(used, all)],
                "each page that is used brings in 16 KiB at most, and itself at least",
            ),
            risk: "smaller blocks compress less: the image is larger, and reads in order take longer".to_owned(),
        }],
        ..Finding::of(Rule::ReadaheadWasted)
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Work, only};
    use super::*;
    use crate::cache::{AccuracyFindings, Brought};
    use crate::usage::FileReads;
    use flashscope_trace::Device;

    fn work(kind: &str, ahead: u64, unused: u64, requested: u64, ns: u64) -> Work {
        let mut work = Work::new(1_000_000_000);
        work.mount("/m", kind, "ro");
        let pages = Brought { requested, ahead, ahead_left_unused: unused, ..Brought::default() };
        let file = FileBrought { device: Some(Device::new(8, 0)), inode: 12, path: None, pages };
        work.readahead = Some(AccuracyFindings { files: vec![file], ..AccuracyFindings::default() });
        work.file_call("read", "8:0 inode 12", 100, ns);
        work
    }

    #[test]
    fn blocks_of_a_mebibyte_for_a_page_each() {
        let mut work = work("squashfs", 2040, 1948, 8, 80_000_000);
        let finding = only(find(&work.seen()));
        assert!(finding.what.contains("bring in 7.61 MiB that nobody uses: 1,948 of 2,048 pages"), "{}", finding.what);
        assert!(finding.cause.contains("each brought in 1 MiB"), "{}", finding.cause);
        let gain = finding.advice[0].gain.known().expect("a range");
        assert!((72.0..73.0).contains(&gain.least_percent) && (95.0..95.2).contains(&gain.most_percent), "{gain:?}");
        // In order: the program stops before the end of the block.
        let device = "8:0".to_owned();
        work.usage.files = vec![FileReads { device, inode: 12, reads: 50, sequential: 49, ..FileReads::default() }];
        assert!(find(&work.seen()).is_empty());
    }

    #[test]
    fn other_file_systems_small_blocks_and_little_time_are_not() {
        for (kind, ahead, unused, requested, ns) in [
            ("ext4", 2040, 1948, 8, 80_000_000),
            ("squashfs", 2040, 500, 8, 80_000_000),
            ("squashfs", 1000, 900, 200, 80_000_000),
            ("squashfs", 200, 190, 8, 80_000_000),
        ] {
            assert!(find(&work(kind, ahead, unused, requested, ns).seen()).is_empty(), "{kind} {ahead} {requested}");
        }
        let mut long = work("squashfs", 2040, 1948, 8, 80_000_000);
        long.span_ns = 100_000_000_000;
        assert!(find(&long.seen()).is_empty());
    }
}
