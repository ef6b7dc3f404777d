//! Random faults on many mapped files, each of which reads a window that is hardly used. Single files are judged by
//! `readahead_wasted`.
//!
//! Uses of a mapping's pages leave no event. But on kernels whose `mm_filemap_map_pages` is recorded, the trace shows all mapped
//! pages: other pages that were brought in were not used.

use super::{Disk, Finding, MeasureUnit, Remedy, Rule, Seen, code, gain, measure, percent};
use crate::cache::FileBrought;
use crate::calls::is_read;
use crate::split_task_label;
use crate::units::{counted, grouped, size};
use crate::usage::FileFaults;
use flashscope_cachesim::PAGE_BYTES;
use std::collections::{BTreeMap, BTreeSet};

/// With fewer files each is judged by itself.
const MIN_FILES: u64 = 8;
/// Fewer faults are no evidence.
const MIN_FAULTS: u64 = 8;
/// Fewer unused bytes are not worth a setting.
const MIN_UNUSED_BYTES: u64 = 1 << 20;
/// Least share of the bytes that faults bring in, per cent.
const MIN_UNUSED_PERCENT: f64 = 50.0;
/// Below this share of the recorded time it is not reported, per cent.
const MIN_SPAN_PERCENT: f64 = 2.0;
/// Part of the lower bound that is promised: the kernel maps some pages again.
const LEAST: f64 = 0.9;

/// Files of one device.
#[derive(Default)]
struct Sums {
    files: u64,
    faults: u64,
    brought: u64,
    mapped: u64,
    /// Bytes of the file with most bytes brought in.
    most: u64,
}

impl Sums {
    fn add(&mut self, file: &FileBrought, faults: FileFaults) {
        let brought = file.pages.mapped.saturating_mul(PAGE_BYTES);
        self.files += 1;
        self.faults = self.faults.saturating_add(faults.faults);
        self.brought = self.brought.saturating_add(brought);
        self.mapped = self.mapped.saturating_add(faults.mapped_bytes.min(brought));
        self.most = self.most.max(brought);
    }

    /// An upper bound of the bytes used.
    fn used(&self) -> u64 {
        self.mapped.saturating_add(self.faults.saturating_mul(PAGE_BYTES))
    }

    fn unused(&self) -> u64 {
        self.brought.saturating_sub(self.used())
    }
}

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    if !seen.usage.shows_mapped {
        return Vec::new();
    }
    // Headers of programs and libraries are read: these files are mapped to be executed.
    let mut reads = BTreeSet::new();
    reads.extend(seen.calls.by_file.iter().filter(|group| is_read(&group.call)).map(|group| group.name.as_str()));
    let is_read_too = |device: &str, inode: u64| reads.contains(format!("{device} inode {inode}").as_str());
    let mut devices: BTreeMap<String, Sums> = BTreeMap::new();
    for file in seen.readahead.map_or(&[][..], |found| &found.files) {
        let Some(device) = file.device.map(|device| device.to_string()) else { continue };
        let key = (device, file.inode);
        if let Some(&faults) = seen.usage.file_faults.get(&key)
            && file.pages.mapped > 0
            && !is_read_too(&key.0, file.inode)
        {
            devices.entry(key.0).or_default().add(file, faults);
        }
    }
    devices.iter().filter_map(|(device, sums)| of_device(seen, device, sums)).collect()
}

fn of_device(seen: &Seen<'_>, device: &str, sums: &Sums) -> Option<Finding> {
    let disk = seen.storage.disk(device)?;
    let kib = seen.storage.read_ahead(device)?.kib;
    let cost = seen.cost_of(seen.block?, "reads", sums.unused());
    let is_one = sums.most * 2 >= sums.brought;
    if sums.files < MIN_FILES
        || sums.faults < MIN_FAULTS
        || is_one
        || sums.unused() < MIN_UNUSED_BYTES
        || percent(sums.unused(), sums.brought) < MIN_UNUSED_PERCENT
        || cost.known().is_some_and(|&ns| seen.of_span(ns) < MIN_SPAN_PERCENT)
    {
        return None;
    }
    let source = "filemap:mm_filemap_fault, mm_filemap_map_pages, mm_filemap_add_to_page_cache; /sys/block/*/queue/read_ahead_kb";
    let reader = reader(seen, device, sums.brought);
    Some(Finding {
        processes: reader.iter().cloned().collect(),
        what: format!(
            "Read-ahead of {kib} KiB on {} brings in {} around {} of {} mapped files, of which {} at most are used.",
            disk.name,
            size(sums.brought),
            counted(sums.faults, "fault"),
            grouped(sums.files),
            size(sums.used())
        ),
        cause: format!(
            "Each fault reads a window around it, and the files are used here and there.{}",
            reader.map_or(String::new(), |name| format!(" Most is read by {name}."))
        ),
        evidence: vec![
            measure("faults", sums.faults as f64, MeasureUnit::Count, source),
            measure("brought in around them", sums.brought as f64, MeasureUnit::Bytes, source),
            measure("mapped, or of a fault itself", sums.used() as f64, MeasureUnit::Bytes, source),
        ],
        lost_ns: cost,
        lost_bytes: Some(sums.unused()),
        advice: vec![remedy(disk, sums)],
        ..Finding::of(Rule::ReadaheadWasted)
    })
}

/// The task that reads nearly as much of this device as faults bring in.
fn reader(seen: &Seen<'_>, device: &str, brought: u64) -> Option<String> {
    let most = seen.usage.readers.iter().filter(|one| one.device == device).max_by_key(|one| one.bytes)?;
    let task = seen.block?.originators.task(most.tid)?;
    (most.bytes * 2 >= brought && split_task_label(&task.name).is_some()).then(|| task.name.clone())
}

fn remedy(disk: &Disk, sums: &Sums) -> Remedy {
    let pages = sums.faults.saturating_mul(PAGE_BYTES);
    Remedy {
        what: "Tell the kernel that these mappings are used at random".to_owned(),
        steps: vec![code::RANDOM_MAP.step()],
        gain: gain(
            format!("bytes that faults bring in on {}", disk.name),
            [percent(sums.unused(), sums.brought) * LEAST, 100.0 - percent(pages.min(sums.brought), sums.brought)],
            "each page that is used is read alone: at least one for each fault, and no more than were mapped",
        ),
        risk: "parts that are used in order need more requests, which take longer".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Work, only};
    use super::*;
    use crate::cache::{AccuracyFindings, Brought};
    use flashscope_trace::Device;

    /// Files of 100 pages that two faults brought in, of which so many bytes were mapped besides.
    fn work(files: u64, mapped_bytes: u64) -> Work {
        let mut work = Work::new(1_000_000_000);
        work.bios(10, "R", 1_000, 1_000_000);
        let read_ahead_kib = Some(2048);
        work.storage.disks.push(Disk { name: "sda".into(), device: "8:0".into(), read_ahead_kib, ..Disk::default() });
        let pages = Brought { requested: 1, ahead: 99, mapped: 100, ..Brought::default() };
        let file = |inode| FileBrought { device: Some(Device::new(8, 0)), inode, path: None, pages };
        work.readahead =
            Some(AccuracyFindings { files: (1..=files).map(file).collect(), ..AccuracyFindings::default() });
        let faults = FileFaults { faults: 2, elsewhere: 2, extent_bytes: 8 << 12, mapped_bytes };
        work.usage.file_faults = (1..=files).map(|inode| (("8:0".to_owned(), inode), faults)).collect();
        work.usage.shows_mapped = true;
        work
    }

    #[test]
    fn windows_of_many_files_are_told_together() {
        let finding = only(find(&work(200, 0).seen()));
        assert_eq!(
            finding.what,
            "Read-ahead of 2048 KiB on sda brings in 78.1 MiB around 400 faults of 200 mapped files, of which 1.56 MiB at most are used."
        );
        let gain = finding.advice[0].gain.known().expect("a range");
        assert_eq!((gain.least_percent.round(), gain.most_percent.round()), (88.0, 98.0), "{gain:?}");
        assert_eq!(finding.lost_bytes, Some((100 - 2) * 200 * 4096));
    }

    #[test]
    fn files_that_are_used_few_files_and_short_ones_are_not() {
        // Nearly all of it was mapped; a program that starts with its libraries; nothing shows what was mapped.
        assert!(find(&work(200, 90 << 12).seen()).is_empty());
        assert!(find(&work(5, 0).seen()).is_empty());
        let mut unknown = work(200, 0);
        unknown.usage.shows_mapped = false;
        assert!(find(&unknown.seen()).is_empty());
        let mut long = work(200, 0);
        long.span_ns = 1_000_000_000_000;
        assert!(find(&long.seen()).is_empty());
        // Libraries.
        let mut read = work(200, 0);
        (1..=200).for_each(|inode| read.file_call("read", &format!("8:0 inode {inode}"), 1, 1_000));
        assert!(find(&read.seen()).is_empty());
        // Most is of one file, which is judged by itself.
        let mut one = work(200, 0);
        one.readahead.as_mut().expect("pages").files[0].pages.mapped = 100_000;
        assert!(find(&one.seen()).is_empty());
    }
}
