//! Memory that is written to swap and read back.

use super::{Finding, MeasureUnit, Remedy, Rule, Seen, Step, Weight, measure, percent, stage};
use crate::block::{BlockFound, OwnerKind};
use crate::calls::{is_read, is_write};
use crate::total::Total as _;
use crate::units::{duration, size};
use crate::{Evidence, split_task_label, task_label};
use flashscope_cachesim::PAGE_BYTES;

const MIN_BYTES: u64 = 1 << 20;
/// Below this share of the recorded time it is not reported, per cent.
const MIN_PERCENT: f64 = 2.0;
/// Largest share of other files in the I/O of a device with a swap file, per cent.
const MAX_OTHER_PERCENT: f64 = 10.0;

/// Whether the device is swap alone, or little more than a swap file.
pub(super) fn is_swap(seen: &Seen<'_>, found: &BlockFound, device: &str) -> bool {
    let has_file = seen.storage.swap_files.iter().any(|(_, of)| of == device);
    seen.storage.swaps.iter().any(|swap| swap == device) || has_file && is_of_swap(seen, found, device)
}

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let Some(found) = seen.block else { return Vec::new() };
    let devices = seen.storage.swaps.iter().filter_map(|device| of_device(seen, found, device, None));
    let files = seen.storage.swap_files.iter().filter(|(_, device)| is_of_swap(seen, found, device));
    devices.chain(files.filter_map(|(path, device)| of_device(seen, found, device, Some(path)))).collect()
}

/// Whether hardly any I/O of a device with a swap file belongs to its other files. Swapping uses no page of a file and
/// no call.
fn is_of_swap(seen: &Seen<'_>, found: &BlockFound, device: &str) -> bool {
    let Some(cache) = seen.readahead else { return false };
    let pages = cache.files.iter().filter(|file| file.device.is_some_and(|number| number.to_string() == device));
    let pages = pages.map(|file| {
        let of = &file.pages;
        [of.requested, of.ahead, of.mapped, of.origin_unknown].into_iter().total()
    });
    let read = pages.total().saturating_mul(PAGE_BYTES).max(seen.calls_on(device, is_read).2);
    let written = seen.calls_on(device, is_write).2;
    let not_kept = cache.not_followed.saturating_mul(PAGE_BYTES);
    // Writes without a known owner are of files that were changed before the recording; swap has none. They may all lie on another device.
    let of_owner = || found.originators.originators.iter().filter(|one| one.kind == OwnerKind::Unknown);
    let mut loads = found.interference.owners.iter().filter(|load| load.device == device);
    let is_here = found.interference.not_measured > 0
        || found.interference.owners.is_empty()
        || loads.any(|load| of_owner().any(|one| one.is_called(&load.owner)));
    let unknown = if is_here { of_owner().map(|one| one.written_bytes).total() } else { 0 };
    let moved =
        ["reads", "writes"].iter().filter_map(|what| seen.device_group(device, what)).map(|one| one.bytes).total();
    percent([read, written, not_kept, unknown].into_iter().total(), moved) <= MAX_OTHER_PERCENT
}

/// `file`: the swap file, if the device is a file system's.
fn of_device(seen: &Seen<'_>, found: &BlockFound, device: &str, file: Option<&String>) -> Option<Finding> {
    let [reads, writes] = ["reads", "writes"].map(|what| seen.device_group(device, what));
    let bytes = |group: Option<&crate::block::Group>| group.map_or(0, |group| group.bytes);
    let time = reads.and_then(|group| stage(group, "Q2C"));
    // Many bios are in flight at once: their sum exceeds the time that programs wait for them.
    let waited = time.map_or(0, |q2c| q2c.total_ns).min(seen.span_ns);
    if bytes(reads) + bytes(writes) < MIN_BYTES || seen.of_span(waited) < MIN_PERCENT {
        return None;
    }
    let place = file.map_or_else(|| seen.storage.device_name(device), |path| format!("the file {path}"));
    let task = |tid| found.originators.task(tid);
    let readers = seen.usage.readers.iter().filter(|reader| reader.device == device);
    let first = readers.filter_map(|reader| Some((task(reader.tid)?, reader.bytes))).max_by_key(|(_, bytes)| *bytes);
    let thread = first.map(|(one, _)| match split_task_label(&one.name) {
        Some(_) => one.name.clone(),
        None => task_label(&one.name, one.tid, 1),
    });
    let whose = match (&thread, first) {
        (Some(name), Some((_, read))) => format!(" {name} reads {} of it back.", size(read)),
        _ => String::new(),
    };
    let source = "block:block_bio_queue, block_rq_complete; /proc/swaps";
    Some(Finding {
        rule: Rule::Swap,
        weight: Weight::Cost,
        processes: thread.iter().cloned().collect(),
        what: format!(
            "Memory is swapped: {} are written to {} and {} read back.{whose}",
            size(bytes(writes)),
            place,
            size(bytes(reads))
        ),
        cause: format!(
            "Programs need more memory than there is, or than their cgroup may have. Each page that was swapped out has to be read \
             when it is used: {} on average.",
            duration(time.map_or(0, |q2c| q2c.ns.mean))
        ),
        evidence: vec![
            measure("written to swap", bytes(writes) as f64, MeasureUnit::Bytes, source),
            measure("read back", bytes(reads) as f64, MeasureUnit::Bytes, source),
        ],
        lost_ns: waited.into(),
        lost_bytes: Some(bytes(reads).saturating_add(bytes(writes))),
        advice: vec![Remedy {
            what: "Give the program more memory (a higher memory.max, or memory.limit_in_bytes, of its cgroup), or have it use less"
                .to_owned(),
            steps: vec![Step::Run {
                command: "grep -r . /sys/fs/cgroup --include=memory.max --include=memory.limit_in_bytes; free -m".to_owned(),
                names: Vec::new(),
            }],
            gain: Evidence::unknown(
                "how much memory the program needs is not in the trace",
                "record again with more, and compare: flashscope diff",
            ),
            risk: "other programs have less memory".to_owned(),
        }],
        uncertain: None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Work, only};
    use super::*;
    use crate::block::OwnerLoad;
    use crate::usage::TaskReads;
    use flashscope_trace::TaskId;

    #[test]
    fn a_device_that_is_swap_is_told_with_its_program() {
        let mut work = Work::new(1_000_000_000);
        work.bios(400, "R", 1_000, 999_000);
        work.usage.readers.push(TaskReads {
            device: "8:0".into(),
            tid: TaskId(7),
            bytes: 400 << 12,
            ..TaskReads::default()
        });
        assert!(find(&work.seen()).is_empty());
        work.storage.swaps.push("8:0".into());
        let finding = only(find(&work.seen()));
        assert_eq!(
            finding.what,
            "Memory is swapped: 0 B are written to 8:0 and 1.56 MiB read back. task (7) reads 1.56 MiB of it back."
        );
        assert_eq!(finding.lost_ns, 400_000_000.into());
        work.span_ns *= 100;
        assert!(find(&work.seen()).is_empty());
    }

    #[test]
    fn a_swap_file_is_told_where_other_files_hardly_count() {
        use crate::cache::{AccuracyFindings, Brought, FileBrought};
        use flashscope_trace::Device;
        for (pages, told) in [(10, true), (200, false)] {
            let mut work = Work::new(1_000_000_000);
            work.bios(400, "R", 1_000, 999_000);
            work.storage.swap_files.push(("/data/swap".to_owned(), "8:0".to_owned()));
            // Nothing shows what comes through the page cache.
            assert!(find(&work.seen()).is_empty());
            let pages = Brought { requested: pages, ..Brought::default() };
            let files = vec![FileBrought { device: Some(Device::new(8, 0)), inode: 12, path: None, pages }];
            work.readahead = Some(AccuracyFindings { files, ..AccuracyFindings::default() });
            let found = find(&work.seen());
            assert_eq!(found.len(), usize::from(told), "{found:?}");
            let what = "Memory is swapped: 0 B are written to the file /data/swap and 1.56 MiB read back.";
            assert!(found.iter().all(|one| one.what == what), "{found:?}");
        }
    }

    /// Beside it a compiler fills another disk with pages that were changed before the recording.
    #[test]
    fn writes_of_nobody_known_count_where_they_are() {
        use crate::cache::AccuracyFindings;
        for (device, told) in [("8:16", true), ("8:0", false)] {
            let mut work = Work::new(1_000_000_000);
            work.bios(400, "R", 1_000, 999_000);
            work.storage.swap_files.push(("/data/swap".to_owned(), "8:0".to_owned()));
            work.readahead = Some(AccuracyFindings::default());
            work.owner("kworker/u8:1", OwnerKind::Unknown, 0, 90 << 20);
            let owners = &mut work.block().interference.owners;
            let worker = OwnerLoad { device: device.into(), owner: "kworker/u8:1 (7)".into(), ..owners[0].clone() };
            owners.push(worker);
            assert_eq!(find(&work.seen()).len(), usize::from(told), "{device}");
        }
    }
}
