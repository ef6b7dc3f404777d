//! Pages that read-ahead brings in and no task uses.

use super::{Finding, Gain, MeasureUnit, Remedy, Rule, Seen, Step, Weight, measure, percent};
use crate::Evidence;
use crate::cache::{AccuracyFindings, FileBrought};
use crate::units::{grouped, size};
use crate::usage::FileReads;
use flashscope_cachesim::PAGE_BYTES;

/// Fewer pages are not worth a knob: 1 MiB.
const MIN_PAGES: u64 = 256;
/// Below this part of what is read ahead, percent.
const MIN_PERCENT: f64 = 50.0;
/// A file is read in order with so many reads that begin where the one before ended, percent.
const IN_ORDER_PERCENT: f64 = 80.0;
/// Fewer faults show no habit.
const MIN_FAULTS: u64 = 8;
/// From so many faults on that nearly all jump, the default window is too large, if it brings so many pages around each.
const MIN_JUMPS: u64 = 200;
const MIN_AROUND_PAGES: u64 = 8;
/// Where so much of the range that faults lie in was brought in, all of it was read, and nothing shows that a part was not needed, percent.
const MAX_DENSE_PERCENT: f64 = 90.0;
/// A window of the default saves half or more where a fault brings in at least two of them.
const MIN_WINDOWS: u64 = 2;
/// Below this share of the recorded time what faults bring in does not matter, percent.
const MIN_FAULTS_SPAN_PERCENT: f64 = 2.0;
/// `VM_READAHEAD_PAGES` (include/linux/mm.h): 128 KiB.
const DEFAULT_KIB: u64 = 128;

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let (Some(found), Some(block)) = (seen.readahead, seen.block) else { return Vec::new() };
    let total = &found.total;
    let unused = total.ahead_unused();
    // Pages of mapped files may have been used in silence: then none is called unused.
    if unused < MIN_PAGES || percent(unused, total.ahead) < MIN_PERCENT {
        return around_faults(seen, found).into_iter().collect();
    }
    let Some(file) = found.files.iter().max_by_key(|file| file.pages.ahead_unused()) else { return Vec::new() };
    let Some(device) = file.device.map(|device| device.to_string()) else { return Vec::new() };
    let knob = seen.storage.disk(&device).and_then(|disk| Some((disk.name.clone(), disk.read_ahead_kib?)));
    let Some((name, kib)) = knob.filter(|(_, kib)| *kib > 0) else { return Vec::new() };
    let then = if kib > DEFAULT_KIB { DEFAULT_KIB } else { kib / 4 };
    let bytes = unused.saturating_mul(PAGE_BYTES);
    let source = "filemap:mm_filemap_add_to_page_cache and reads of files; /sys/block/*/queue/read_ahead_kb";
    let cost = seen.cost_of(block, "reads", bytes);
    let is_it = |one: &&FileReads| one.device == device && one.inode == file.inode;
    let reads = seen.usage.files.iter().find(is_it);
    let in_order = reads.is_some_and(|one| percent(one.sequential, one.reads) >= IN_ORDER_PERCENT);
    let random = Remedy {
        what: "Tell the kernel that this file is read at random".to_owned(),
        steps: vec![Step::Code { line: "posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);".to_owned() }],
        gain: of_random(file, unused, total.ahead),
        risk: "parts that are read in order need more requests".to_owned(),
    };
    let smaller = Remedy {
        what: format!("Read ahead {then} KiB"),
        steps: vec![Step::Set { path: format!("/sys/block/{name}/queue/read_ahead_kb"), value: then.to_string() }],
        gain: Evidence::unknown(
            "what smaller windows bring in follows from the order of the reads",
            "flashscope advise TRACE predicts it",
        ),
        risk: "files that are read in order need more requests; open files keep their window".to_owned(),
    };
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
            "The largest part is of file {}: it is {}.",
            seen.storage.file_name(&device, file.inode),
            match in_order {
                true => "read in order, and the program stops before the end of what was read ahead",
                false => "not read in order",
            }
        ),
        evidence: vec![
            measure("pages read ahead", total.ahead as f64, MeasureUnit::Count, source),
            measure("of them unused", unused as f64, MeasureUnit::Count, source),
            measure("pages requested", total.requested as f64, MeasureUnit::Count, source),
        ],
        lost_ns: cost,
        lost_bytes: Some(bytes),
        advice: if in_order { vec![smaller] } else { vec![random, smaller] },
        uncertain: None,
    }]
}

/// Without read-ahead a file's unused pages are not read, and each page that was used is, by a request of its own.
fn of_random(file: &FileBrought, unused: u64, ahead: u64) -> Evidence<Gain> {
    let pages = &file.pages;
    let all = pages.ahead.saturating_add(pages.requested);
    if pages.mapped > 0 || pages.ahead_unused() * 2 < unused || all == 0 {
        return Evidence::unknown(format!("the {} pages read ahead are of several files", grouped(ahead)), "");
    }
    let part = percent(pages.ahead_unused(), all);
    Evidence::Known(Gain {
        of: "bytes read of this file".to_owned(),
        least_percent: part * 0.9,
        most_percent: (part * 1.1).min(100.0),
        basis: "its pages that nobody used are not read, and the others are".to_owned(),
    })
}

/// Faults here and there in mapped files, each of which reads a window much larger than the default around it.
fn around_faults(seen: &Seen<'_>, found: &AccuracyFindings) -> Option<Finding> {
    let (faults, elsewhere) = (seen.usage.faults, seen.usage.faults_elsewhere);
    if faults < MIN_FAULTS || elsewhere * 2 < faults || found.total.mapped < MIN_PAGES {
        return None;
    }
    let file = found.files.iter().max_by_key(|file| file.pages.mapped)?;
    let each = file.pages.mapped / faults;
    let disk = seen.storage.disk(&file.device?.to_string())?;
    let kib = disk.read_ahead_kib?;
    // The window is what brings them: a fault brings more than one of the default's.
    let is_large = kib > DEFAULT_KIB && each * PAGE_BYTES >= (MIN_WINDOWS * DEFAULT_KIB) << 10;
    // The default's is too large as well, where a program jumps about all the time.
    let jumps = faults >= MIN_JUMPS && elsewhere * 10 >= faults * 9 && each >= MIN_AROUND_PAGES;
    if !is_large && !jumps {
        return None;
    }
    let source = "flashscope:file_fault, filemap:mm_filemap_add_to_page_cache; /sys/block/*/queue/read_ahead_kb";
    let bytes = file.pages.mapped * PAGE_BYTES;
    // Programs that start fault in a few windows of their libraries: a moment of the device.
    let cost = seen.block.map(|block| seen.cost_of(block, "reads", bytes));
    if cost.is_some_and(|cost| cost.known().is_some_and(|&ns| seen.of_span(ns) < MIN_FAULTS_SPAN_PERCENT)) {
        return None;
    }
    let extent = seen.usage.fault_extents.get(&(file.device?.to_string(), file.inode))?;
    if percent(bytes, *extent) >= MAX_DENSE_PERCENT {
        return None;
    }
    // Each fault reads a window still, or a page; and where all of the large ones is used, as many bytes are read by more faults.
    let then = if is_large { DEFAULT_KIB << 10 } else { PAGE_BYTES };
    let most = (1.0 - (faults * then) as f64 / bytes as f64) * 100.0;
    let random = Step::Code { line: "madvise(map, length, MADV_RANDOM);".to_owned() };
    let (what, steps) = match is_large {
        true => (
            format!("Read ahead {DEFAULT_KIB} KiB, or tell the kernel that the mapping is used at random"),
            vec![
                Step::Set {
                    path: format!("/sys/block/{}/queue/read_ahead_kb", disk.name),
                    value: DEFAULT_KIB.to_string(),
                },
                random,
            ],
        ),
        false => ("Tell the kernel that the mapping is used at random".to_owned(), vec![random]),
    };
    let path = file.path.clone().unwrap_or_else(|| format!("inode {}", file.inode));
    Some(Finding {
        rule: Rule::ReadaheadWasted,
        weight: Weight::Cost,
        what: format!(
            "Read-ahead of {kib} KiB on {} brings in {} around {} faults of mapped files, {} each.",
            disk.name,
            size(bytes),
            grouped(faults),
            size(each * PAGE_BYTES)
        ),
        cause: format!(
            "{} of the faults are not behind the one before: {} is used here and there.",
            grouped(elsewhere),
            path
        ),
        evidence: vec![
            measure("faults that had to read", faults as f64, MeasureUnit::Count, source),
            measure("of them not in order", elsewhere as f64, MeasureUnit::Count, source),
            measure("brought in around them", bytes as f64, MeasureUnit::Bytes, source),
        ],
        lost_ns: Evidence::unknown("which pages of a mapped file were used leaves no event", ""),
        lost_bytes: None,
        advice: vec![Remedy {
            what,
            steps,
            gain: Gain {
                of: format!("bytes that faults bring in of {path}"),
                least_percent: 0.0,
                most_percent: most.max(0.0),
                basis: format!(
                    "each of these faults reads a {} still; which pages were used leaves no event: with all of them used, as many \
                     bytes are read by more faults",
                    if is_large { "window" } else { "page" }
                ),
            }
            .into(),
            risk: "where most of what is brought in is used, and files that are read in order: more requests, which take longer; \
                   open files keep their window"
                .to_owned(),
        }],
        uncertain: None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::Disk;
    use super::super::testing::{Work, only};
    use super::*;
    use crate::cache::Brought;
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
        // 900 of the 1,050 pages that were brought in are not read without read-ahead.
        let gain = finding.advice[0].gain.known().expect("a range");
        assert!(gain.least_percent < 85.7 && 85.7 < gain.most_percent, "{gain:?}");
    }

    #[test]
    fn a_program_that_reads_the_begin_of_a_file_reads_in_order() {
        let mut work = work(1000, 900, 0);
        for (sequential, told) in [(49, "read in order, and the program stops"), (5, "not read in order")] {
            let device = "8:0".to_owned();
            work.usage.files =
                vec![FileReads { device, inode: 12, reads: 50, sequential, bytes: 50 << 16, ..FileReads::default() }];
            let finding = only(find(&work.seen()));
            assert!(finding.cause.contains(told), "{}", finding.cause);
            assert_eq!(finding.advice[0].what == "Read ahead 128 KiB", sequential == 49);
        }
    }

    #[test]
    fn windows_around_faults_here_and_there_are_told() {
        let mut work = work(6000, 0, 5900);
        (work.usage.faults, work.usage.faults_elsewhere) = (14, 12);
        work.usage.fault_extents.insert(("8:0".to_owned(), 12), 100 << 20);
        let finding = only(find(&work.seen()));
        assert!(finding.what.contains("23 MiB around 14 faults of mapped files"), "{}", finding.what);
        assert!(finding.lost_ns.known().is_none());
        let gain = finding.advice[0].gain.known().expect("a range");
        assert_eq!((gain.least_percent, gain.most_percent.round()), (0.0, 92.0));
        // All of the range was read: nothing shows that a part was not needed.
        work.usage.fault_extents.insert(("8:0".to_owned(), 12), 24 << 20);
        assert!(find(&work.seen()).is_empty());
        work.usage.fault_extents.insert(("8:0".to_owned(), 12), 100 << 20);
        // Windows of 160 KiB: with the default's little is saved. And what a program's start faults in within a minute.
        let mut start = work.seen().readahead.cloned().expect("pages");
        start.files[0].pages.mapped = 40 * 14;
        let all = work.readahead.replace(start);
        assert!(find(&work.seen()).is_empty());
        work.readahead = all;
        work.span_ns = 1_000_000_000_000;
        assert!(find(&work.seen()).is_empty());
        work.span_ns = 1_000_000_000;
        // In order; the default window.
        work.usage.faults_elsewhere = 2;
        assert!(find(&work.seen()).is_empty());
        work.usage.faults_elsewhere = 12;
        work.storage.disks[0].read_ahead_kib = Some(128);
        assert!(find(&work.seen()).is_empty());
    }

    #[test]
    fn a_program_that_jumps_about_a_mapping_is_told_with_the_default_window_too() {
        let of = |faults, elsewhere, pages, extent| {
            let mut work = work(pages, 0, pages);
            work.storage.disks[0].read_ahead_kib = Some(128);
            (work.usage.faults, work.usage.faults_elsewhere) = (faults, elsewhere);
            work.usage.fault_extents.insert(("8:0".to_owned(), 12), extent);
            find(&work.seen())
        };
        let finding = only(of(2000, 1950, 40_000, 200 << 20));
        assert_eq!(finding.advice[0].steps, [Step::Code { line: "madvise(map, length, MADV_RANDOM);".into() }]);
        // A page for each of the 2,000 faults in place of 20.
        assert_eq!(finding.advice[0].gain.known().map(|gain| gain.most_percent.round()), Some(95.0));
        // A program that starts; one that goes on behind its faults; a page each; all of the range in the end.
        for (faults, elsewhere, pages, extent) in [
            (150, 145, 3_000, 200 << 20),
            (2000, 1500, 40_000, 200 << 20),
            (2000, 1950, 4_000, 200 << 20),
            (2000, 1950, 40_000, 160 << 20),
        ] {
            assert!(of(faults, elsewhere, pages, extent).is_empty(), "{faults} {elsewhere} {pages} {extent}");
        }
    }

    #[test]
    fn used_few_or_mapped_pages_are_not_told() {
        for (ahead, unused, mapped) in [(1000, 400, 0), (200, 200, 0), (1000, 0, 1000)] {
            assert!(find(&work(ahead, unused, mapped).seen()).is_empty());
        }
    }
}
