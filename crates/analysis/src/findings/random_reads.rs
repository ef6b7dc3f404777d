//! Random reads of nearly all of a file, or reads of a file from its end to its begin.

use super::{Finding, GroupBy, MeasureUnit, Remedy, Rule, Seen, code, groups, measure, percent, q2c_on};
use crate::Evidence;
use crate::calls::is_read;
use crate::units::{grouped, size};
use crate::usage::FileReads;

const MIN_READS: u64 = 200;
/// Below this share of reads that begin where the one before ended, the reads are random, per cent.
const MAX_SEQUENTIAL_PERCENT: f64 = 20.0;
/// From this share of reads that end where the one before began on, the file is read backwards, per cent.
const MIN_BACKWARD_PERCENT: f64 = 80.0;
/// From this share of the file that is read in all on, reading it in order is less work, per cent.
const MIN_COVERED_PERCENT: f64 = 60.0;
/// For larger reads the cost of a seek hardly counts.
const MAX_READ_BYTES: u64 = 32 << 10;

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in &seen.usage.files {
        let Some(bytes) = file.size.filter(|&bytes| bytes > 0) else { continue };
        let jumps = percent(file.sequential, file.reads) <= MAX_SEQUENTIAL_PERCENT;
        let small = file.bytes / file.reads.max(1) <= MAX_READ_BYTES;
        let covered = percent(file.covered_bytes, bytes);
        // Where the pages came from the cache, no task waited.
        let touched = seen.readahead.is_some_and(|found| {
            found.files.iter().any(|one| {
                one.inode == file.inode
                    && one.device.map(|device| device.to_string()) == Some(file.device.clone())
                    && one.pages.requested * 2 >= file.reads
            })
        });
        if file.reads < MIN_READS || !jumps || !small || covered < MIN_COVERED_PERCENT || !touched {
            continue;
        }
        let how = match percent(file.backward, file.reads) >= MIN_BACKWARD_PERCENT {
            true => "backwards",
            false => "at random",
        };
        let source = "reads of files (flashscope:file_read, filemap:mm_filemap_get_pages)";
        found.push(Finding {
            what: format!(
                "File {} is read {how} in {} reads of {}, {covered:.0} % of it in the end.",
                seen.storage.file_name(&file.device, file.inode),
                grouped(file.reads),
                size(file.bytes / file.reads.max(1))
            ),
            cause: "Each small read is a request of its own; in order they would be a few large ones.".to_owned(),
            evidence: vec![
                measure("reads", file.reads as f64, MeasureUnit::Count, source),
                measure(
                    "reads that begin where the one before ended",
                    file.sequential as f64,
                    MeasureUnit::Count,
                    source,
                ),
                measure("of them where the one before began", file.backward as f64, MeasureUnit::Count, source),
                measure("of the file needed", file.covered_bytes as f64, MeasureUnit::Bytes, source),
            ],
            lost_ns: waited(seen, file),
            advice: vec![Remedy {
                what: "Read the file in the order of its offsets, or whole and at once".to_owned(),
                steps: vec![code::NEED_FILE.step()],
                gain: Evidence::unknown(
                    "the device's time for large requests is not in the trace",
                    "record a sequential read of the file beside it",
                ),
                risk: "memory for the whole file".to_owned(),
            }],
            ..Finding::of(Rule::RandomReads)
        });
    }
    found
}

/// Time that programs wait for these reads: their calls on the file; without calls, bios of the thread that reads the device most.
fn waited(seen: &Seen<'_>, file: &FileReads) -> Evidence<u64> {
    let name = format!("{} inode {}", file.device, file.inode);
    let calls = seen.calls.by_file.iter().filter(|group| is_read(&group.call) && group.name == name);
    let ns = calls.map(|group| group.total_ns).fold(0, u64::saturating_add);
    let of_bios = || {
        let found = seen.block?;
        let reader = seen.usage.readers.iter().filter(|one| one.device == file.device).max_by_key(|one| one.bios)?;
        let task = found.originators.task(reader.tid)?;
        let own = groups(found, GroupBy::Owner).find(|group| task.is_called(&group.name))?;
        (reader.bios * 2 >= file.reads).then(|| q2c_on(found, own, &file.device).map(|(ns, _)| ns))?
    };
    match (ns, of_bios()) {
        (0, None) => Evidence::unknown("the trace has no calls of these reads, and no bios of one thread for them", ""),
        (0, Some(ns)) | (ns, _) => ns.min(seen.span_ns).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Work, only};
    use super::*;
    use crate::cache::{AccuracyFindings, Brought, FileBrought};
    use crate::usage::TaskReads;
    use flashscope_trace::{Device, TaskId};

    fn work(reads: u64, sequential: u64, covered_bytes: u64) -> Work {
        let mut work = Work::new(1_000_000_000);
        let (device, inode, size) = ("8:0".to_owned(), 12, Some(4 << 20));
        work.usage.files.push(FileReads {
            device,
            inode,
            reads,
            sequential,
            backward: 0,
            bytes: reads * 4096,
            covered_bytes,
            size,
        });
        let pages = Brought { requested: 1000, ..Brought::default() };
        let files = vec![FileBrought { device: Some(Device::new(8, 0)), inode: 12, path: None, pages }];
        work.readahead = Some(AccuracyFindings { files, ..AccuracyFindings::default() });
        work
    }

    #[test]
    fn a_whole_file_at_random_is_told() {
        let finding = only(find(&work(1000, 10, 4 << 20).seen()));
        assert_eq!(
            finding.what,
            "File inode 12 on 8:0 is read at random in 1,000 reads of 4 KiB, 100 % of it in the end."
        );
    }

    #[test]
    fn it_costs_what_programs_wait_for_these_reads() {
        let mut work = work(1000, 10, 4 << 20);
        assert!(only(find(&work.seen())).lost_ns.why().is_some());
        work.bios_of("viewer", 1000, "R", 1_000, 499_000);
        let reader = TaskReads { device: "8:0".into(), tid: TaskId(7), bios: 1000, ..TaskReads::default() };
        work.usage.readers.push(reader);
        assert_eq!(only(find(&work.seen())).lost_ns, 500_000_000.into());
        work.file_call("pread64", "8:0 inode 12", 1000, 600_000_000);
        assert_eq!(only(find(&work.seen())).lost_ns, 600_000_000.into());
    }

    #[test]
    fn from_the_end_to_the_begin_is_no_random_order() {
        let mut work = work(1000, 0, 4 << 20);
        work.usage.files[0].backward = 999;
        let finding = only(find(&work.seen()));
        assert!(finding.what.contains("is read backwards in 1,000 reads of 4 KiB"), "{}", finding.what);
    }

    #[test]
    fn order_few_reads_and_a_part_of_a_file_are_not() {
        for (reads, sequential, covered) in [(1000, 900, 4 << 20), (100, 0, 4 << 20), (1000, 0, 1 << 20)] {
            assert!(find(&work(reads, sequential, covered).seen()).is_empty());
        }
        let mut cached = work(1000, 10, 4 << 20);
        cached.readahead = None;
        assert!(find(&cached.seen()).is_empty());
    }
}
