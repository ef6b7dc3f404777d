//! A program that writes many small files, in a recording of one device: which calls write them is not in it.
//!
//! Input: pages that become dirty. Limit: the time in calls is unknown, so none is named.

use super::of_device::{lost, record_calls, weight};
use super::{Finding, GroupBy, MeasureUnit, Rule, Seen, groups, measure};
use crate::block::{BlockFound, OwnerKind};
use crate::units::{grouped, size};
use crate::usage::TaskFiles;

/// Least number of files; below: largest size of a small one, bytes. As where calls show them (`small_files`).
const MIN_FILES: u64 = 500;
const MAX_BYTES: u64 = 16 << 10;

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let Some(found) = seen.block.filter(|_| seen.storage.lacks_calls) else { return Vec::new() };
    seen.usage.written_files.iter().find_map(|task| of_task(seen, found, task)).into_iter().collect()
}

fn of_task(seen: &Seen<'_>, found: &BlockFound, task: &TaskFiles) -> Option<Finding> {
    let owner = found.originators.task(task.tid)?;
    let group = groups(found, GroupBy::Owner).find(|group| owner.is_called(&group.name))?;
    if task.files < MIN_FILES || task.bytes / task.files > MAX_BYTES {
        return None;
    }
    let at_least = if task.at_least { "at least " } else { "" };
    let kernel = found.originators.originators.iter().filter(|one| one.kind == OwnerKind::Kernel);
    let metadata = kernel.fold(0u64, |sum, one| sum.saturating_add(one.written_bytes));
    let beside = match metadata {
        0 => String::new(),
        bytes => format!(" Of the journal and metadata {} are written beside them.", size(bytes)),
    };
    let source = "writeback:writeback_dirty_folio";
    Some(Finding {
        weight: weight(seen, found),
        processes: vec![group.name.clone()],
        what: format!(
            "{} writes {at_least}{} files of {} on average on {}.",
            group.name,
            grouped(task.files),
            size(task.bytes / task.files),
            seen.storage.device_name(&task.device)
        ),
        cause: format!(
            "Each file takes a block of its own, an inode and an entry of a directory, however little is in it.{beside} How long \
             it waits for them is in its calls, which a recording of one device leaves out."
        ),
        evidence: vec![
            measure("files that it wrote", task.files as f64, MeasureUnit::Count, source),
            measure("pages of them", task.bytes as f64, MeasureUnit::Bytes, source),
            measure("journal and metadata", metadata as f64, MeasureUnit::Bytes, "block:block_bio_queue"),
        ],
        lost_ns: lost(),
        lost_bytes: Some(metadata),
        advice: vec![record_calls("what open, write and close of so many files cost")],
        ..Finding::of(Rule::SmallFiles)
    })
}

#[cfg(test)]
mod tests {
    use super::super::Weight;
    use super::super::of_device::testing as work;
    use super::super::testing::only;
    use super::*;
    use flashscope_trace::TaskId;

    #[test]
    fn many_small_files_are_told_without_calls() {
        let of = |files, bytes| {
            let mut work = work();
            let (device, tid) = ("8:0".to_owned(), TaskId(7));
            work.usage.written_files.push(TaskFiles { device, tid, files, bytes, at_least: false });
            work
        };
        let mut tar = of(1200, 1200 * 4096);
        let finding = only(find(&tar.seen()));
        assert_eq!(finding.what, "tar (7) writes 1,200 files of 4 KiB on average on 8:0.");
        assert!(finding.lost_ns.why().is_some() && finding.weight == Weight::Cost);
        // Hardly anything is under way.
        tar.span_ns = 60_000_000_000;
        assert_eq!(only(find(&tar.seen())).weight, Weight::Overview);
        // With calls another rule has the time.
        tar.storage.lacks_calls = false;
        assert!(find(&tar.seen()).is_empty());
        for (files, bytes) in [(400, 400 * 4096), (1200, 1200 << 20)] {
            assert!(find(&of(files, bytes).seen()).is_empty(), "{files} {bytes}");
        }
    }
}
