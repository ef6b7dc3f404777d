//! A program that lists, searches or removes a tree of files: it reads directories, inodes and their tables, and little data.

use super::{Finding, MeasureUnit, Remedy, Rule, Seen, Step, groups, measure, percent, q2c_on};
use crate::Evidence;
use crate::block::{BlockFound, GroupBy};
use crate::units::{duration, grouped, size};
use crate::usage::TaskReads;

const MIN_BIOS: u64 = 50;
/// Least bios with the flag: a program that reads the device itself has none.
const MIN_FLAGGED: u64 = 20;
/// Least share of its reads, per cent.
const MIN_PERCENT: f64 = 50.0;
/// Below this share of the recorded time it is not reported, per cent.
const MIN_SPAN_PERCENT: f64 = 5.0;
/// A shorter wait is not noticed, even in a short recording, nanoseconds.
const MIN_NS: u64 = 50_000_000;

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let Some(found) = seen.block else { return Vec::new() };
    seen.usage.readers.iter().filter_map(|reader| of_reader(seen, found, reader)).collect()
}

/// Whether most of the reads that it waits for are metadata. A program that starts with empty caches makes the kernel read many inode
/// tables ahead around its libraries, and waits for their data.
pub(super) fn is_search(reader: &TaskReads) -> bool {
    reader.flagged_bios >= MIN_FLAGGED
        && reader.metadata_bios >= MIN_BIOS
        && percent(reader.flagged_bios, asked(reader)) >= MIN_PERCENT
}

/// Bios without ext4's read-ahead of inode tables, which has no flag.
fn asked(reader: &TaskReads) -> u64 {
    reader.bios.saturating_sub(reader.metadata_bios.saturating_sub(reader.flagged_bios))
}

fn of_reader(seen: &Seen<'_>, found: &BlockFound, reader: &TaskReads) -> Option<Finding> {
    if !is_search(reader) {
        return None;
    }
    let task = found.originators.task(reader.tid)?;
    let own = groups(found, GroupBy::Owner).find(|group| task.is_called(&group.name))?;
    let (total_ns, mean_ns) = q2c_on(found, own, &reader.device)?;
    // No task waits for ext4's read-ahead of inode tables, which has no flag. And several bios may be in flight at once:
    // their sum exceeds the time that it waits.
    let ahead = reader.metadata_bios.saturating_sub(reader.flagged_bios);
    let waited = u128::from(total_ns) * u128::from(asked(reader)) / u128::from(reader.bios);
    let waited = u64::try_from(waited).unwrap_or(u64::MAX).min(seen.span_ns);
    if waited < MIN_NS || seen.of_span(waited) < MIN_SPAN_PERCENT {
        return None;
    }
    let device = seen.storage.device_name(&reader.device);
    let source =
        "block:block_bio_queue with the flag for metadata (M), or into the device's own cache; block_rq_complete";
    let why = "the trace does not show whether the same directories are read again";
    Some(Finding {
        processes: vec![own.name.clone()],
        what: format!(
            "{} goes through files of {device}: {} of its {} reads are metadata ({}){}. Its bios take {} each, {} added up.",
            own.name,
            grouped(reader.metadata_bios),
            grouped(reader.bios),
            size(reader.metadata_bytes),
            if ahead > 0 { format!(", {} of them read ahead", grouped(ahead)) } else { String::new() },
            duration(mean_ns),
            duration(total_ns)
        ),
        cause: "To list, search or remove a tree, each directory and each block of inodes is read from the device: they lie apart, and \
                most reads wait for the one before."
            .to_owned(),
        evidence: vec![
            measure("reads", reader.bios as f64, MeasureUnit::Count, source),
            measure("of them metadata", reader.metadata_bios as f64, MeasureUnit::Count, source),
            measure("of these read ahead", ahead as f64, MeasureUnit::Count, source),
            measure("time of its bios, added up", total_ns as f64, MeasureUnit::Ns, source),
        ],
        lost_ns: waited.into(),
        advice: vec![Remedy {
            what: "Go through a smaller part of the tree, or less often; where it reads the same again, have the kernel keep inodes \
                   in memory for longer"
                .to_owned(),
            steps: vec![Step::Run { command: "sysctl vm.vfs_cache_pressure=50".to_owned(), names: Vec::new() }],
            gain: Evidence::unknown(why, "record the second search, and compare: flashscope diff"),
            risk: "inodes take memory that the page cache would have".to_owned(),
        }],
        ..Finding::of(Rule::MetadataReads)
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Work, only};
    use super::*;
    use flashscope_trace::TaskId;

    /// Reads of 8:0, 1 ms each; so many of them of metadata.
    fn work(bios: u64, metadata_bios: u64) -> Work {
        let mut work = Work::new(1_000_000_000);
        work.bios_of("find", bios, "RM", 1_000, 999_000);
        let metadata_bytes = metadata_bios * 4096;
        let bytes = bios * 4096;
        let device = "8:0".into();
        work.usage.readers.push(TaskReads {
            device,
            tid: TaskId(7),
            bios,
            bytes,
            metadata_bios,
            metadata_bytes,
            flagged_bios: metadata_bios / 2,
            ..TaskReads::default()
        });
        work
    }

    #[test]
    fn a_search_is_told() {
        let finding = only(find(&work(400, 390).seen()));
        assert_eq!(
            finding.what,
            "find (7) goes through files of 8:0: 390 of its 400 reads are metadata (1.52 MiB), 195 of them read ahead. Its bios take 1.00 ms each, 400.00 ms added up."
        );
        // It waits for 205 reads of 1 ms.
        assert_eq!(finding.lost_ns, 205_000_000.into());
    }

    /// A search of two file systems: each has its own time.
    #[test]
    fn each_device_has_the_time_of_its_own_bios() {
        let mut work = work(400, 390);
        let mut other = work.usage.readers[0].clone();
        (other.device, other.bios, other.metadata_bios, other.flagged_bios) = ("8:16".into(), 100, 100, 100);
        work.usage.readers.push(other);
        let block = work.block.as_mut().unwrap();
        let mut load = block.interference.owners[0].clone();
        (load.device, load.bios, load.mean_q2c_ns) = ("8:16".into(), 100, 2_000_000);
        block.interference.owners.push(load);
        let found = find(&work.seen());
        assert!(found[0].what.ends_with("Its bios take 1.00 ms each, 400.00 ms added up."), "{found:?}");
        assert!(found[1].what.ends_with("Its bios take 2.00 ms each, 200.00 ms added up."), "{found:?}");
    }

    #[test]
    fn reads_of_data_few_of_them_and_quick_ones_are_not() {
        let mut quick = work(60, 60);
        quick.span_ns *= 10;
        assert!(find(&quick.seen()).is_empty());
        // 40 ms of 200.
        let mut short = work(80, 80);
        short.span_ns /= 5;
        assert!(find(&short.seen()).is_empty());
        // A program that starts: ext4 reads tables around the inodes of its libraries, and 30 reads are waited for.
        let mut start = work(400, 400);
        start.usage.readers[0].flagged_bios = 30;
        start.span_ns *= 2;
        assert!(find(&start.seen()).is_empty());
        // So does an interpreter: it waits for 62 reads of metadata and for 103 of its modules' data.
        let mut interpreter = work(667, 564);
        interpreter.usage.readers[0].flagged_bios = 62;
        assert!(find(&interpreter.seen()).is_empty());
        for (bios, metadata) in [(400, 100), (40, 40)] {
            assert!(find(&work(bios, metadata).seen()).is_empty(), "{bios} {metadata}");
        }
    }
}
