//! Pages that read-ahead brings in and no task uses.

use super::squashfs_blocks::is_on_squashfs;
use super::storage::ReadAhead;
use super::{Disk, Finding, Gain, MeasureUnit, Remedy, Rule, Seen, Step, code, gain, measure, percent};
use crate::Evidence;
use crate::block::BlockFound;
use crate::cache::{AccuracyFindings, Brought, FileBrought};
use crate::units::{grouped, size};
use crate::usage::{FileFaults, FileReads};
use flashscope_cachesim::PAGE_BYTES;
use flashscope_trace::Device;
use std::collections::BTreeMap;

/// Least number of pages, 1 MiB. For fewer no setting is worth changing.
const MIN_PAGES: u64 = 256;
/// Least share of the pages read ahead that are unused, percent.
const MIN_PERCENT: f64 = 50.0;
/// From this share of reads that begin where the one before ended, a file is read in order, percent.
const IN_ORDER_PERCENT: f64 = 80.0;
/// Least number of faults that show a pattern.
const MIN_FAULTS: u64 = 8;
/// From this many faults on, if nearly all jump, the default window is too large. Each must bring in this many pages.
const MIN_JUMPS: u64 = 200;
const MIN_AROUND_PAGES: u64 = 8;
/// From this share of the range of the faults on, all of it was read, and no unused part is known, percent.
const MAX_DENSE_PERCENT: f64 = 90.0;
/// A fault brings in at least this many default windows: then the default saves half or more.
const MIN_WINDOWS: u64 = 2;
/// From this number of files on, the finding names the program instead of a file. None of them has half of the pages.
const MANY_FILES: u64 = 8;
/// Least share of the recorded time that the reads of these pages take, percent.
const MIN_SPAN_PERCENT: f64 = 2.0;
/// `VM_READAHEAD_PAGES` (include/linux/mm.h): 128 KiB.
const DEFAULT_KIB: u64 = 128;

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let (Some(found), Some(block)) = (seen.readahead, seen.block) else { return Vec::new() };
    around_faults(seen, found).into_iter().chain(of_reads(seen, found, block)).collect()
}

/// btrfs and f2fs keep metadata in an inode: its pages are used without an event, and no program can say how they are read.
fn is_file_systems_own(seen: &Seen<'_>, file: &FileBrought) -> bool {
    file.device.is_some_and(|device| seen.storage.file_systems_own(&device.to_string(), file.inode).is_some())
}

/// Pages read ahead of the files of one device that use less than half of them.
fn of_reads(seen: &Seen<'_>, found: &AccuracyFindings, block: &BlockFound) -> Option<Finding> {
    // The cache of the device itself, and files without a disk, have no read-ahead setting.
    let knob = |file: &FileBrought| {
        let device = file.device?.to_string();
        Some((seen.storage.disk(&device)?, seen.storage.read_ahead(&device).filter(|one| one.kib > 0)?))
    };
    let wastes = |file: &&FileBrought| {
        percent(file.pages.ahead_wasted(), file.pages.ahead) >= MIN_PERCENT
            && knob(file).is_some()
            && !is_on_squashfs(seen, file)
            && !is_file_systems_own(seen, file)
    };
    let wasteful: Vec<&FileBrought> = found.files.iter().filter(wastes).collect();
    let mut by_device: BTreeMap<Option<Device>, u64> = BTreeMap::new();
    for file in &wasteful {
        *by_device.entry(file.device).or_default() += file.pages.ahead_wasted();
    }
    let (&most, _) = by_device.iter().max_by_key(|(_, unused)| **unused)?;
    let of_device = || wasteful.iter().filter(|one| one.device == most);
    let file = of_device().max_by_key(|file| file.pages.ahead_wasted())?;
    let (files, all) = (of_device().count() as u64, sum(of_device().map(|one| &one.pages)));
    let awaited = of_device().map(|one| one.pages.ahead_awaited).fold(0, u64::saturating_add);
    let device = file.device?.to_string();
    let (unused, ahead) = (all.ahead_wasted().saturating_sub(without_device(seen, &device, &all)), all.ahead);
    if unused < MIN_PAGES {
        return None;
    }
    let (disk, ReadAhead { path, kib }) = knob(file)?;
    let name = &disk.name;
    let then = if kib > DEFAULT_KIB { DEFAULT_KIB } else { kib / 4 };
    let bytes = unused.saturating_mul(PAGE_BYTES);
    let source = "filemap:mm_filemap_add_to_page_cache and reads of files; /sys/block/*/queue/read_ahead_kb";
    let cost = seen.cost_of(block, "reads", bytes);
    if cost.known().is_some_and(|&ns| seen.of_span(ns) < MIN_SPAN_PERCENT) {
        return None;
    }
    let many = files >= MANY_FILES && file.pages.ahead_wasted() * 2 < unused;
    let is_it = |one: &&FileReads| one.device == device && one.inode == file.inode;
    let reads = seen.usage.files.iter().find(is_it);
    let in_order = reads.is_some_and(|one| percent(one.sequential, one.reads) >= IN_ORDER_PERCENT);
    let random = Remedy {
        what: format!(
            "Tell the kernel that {} at random",
            if many { "these files are read" } else { "this file is read" }
        ),
        steps: vec![code::RANDOM_FILE.step()],
        gain: match many {
            true => of_random(&all, "these files"),
            false if file.pages.ahead_wasted() * 2 < unused => {
                Evidence::unknown(format!("the {} pages read ahead are of several files", grouped(ahead)), "")
            }
            false => of_random(&file.pages, "this file"),
        },
        risk: "parts that are read in order need more requests".to_owned(),
    };
    let smaller = Remedy {
        what: format!("Read ahead {then} KiB"),
        steps: vec![Step::Set { path, value: then.to_string() }],
        gain: Evidence::unknown(
            "what smaller windows bring in follows from the order of the reads",
            "flashscope advise TRACE predicts it",
        ),
        risk: "files that are read in order need more requests; open files keep their window".to_owned(),
    };
    Some(Finding {
        what: format!(
            "Read-ahead of {kib} KiB on {name} brings in {} that nobody uses: {} of {} pages.",
            size(bytes),
            grouped(unused),
            grouped(ahead)
        ),
        cause: match many {
            true => of_many(found, &all, files),
            false => format!(
                "The largest part is of file {}: it is {}.",
                seen.storage.file_name(&device, file.inode),
                match in_order {
                    true => "read in order, and the program stops before the end of what was read ahead",
                    false => "not read in order",
                }
            ),
        },
        evidence: vec![
            measure("pages read ahead", ahead as f64, MeasureUnit::Count, source),
            measure("of them unused", unused as f64, MeasureUnit::Count, source),
            measure("pages requested", all.requested as f64, MeasureUnit::Count, source),
        ],
        lost_ns: cost,
        lost_bytes: Some(bytes),
        advice: if in_order { vec![smaller] } else { vec![random, smaller] },
        uncertain: (awaited > 0).then(|| {
            format!(
                "{} more came ahead of what was still being read at the end of the recording: whether they were used is unknown",
                grouped(awaited)
            )
        }),
        ..Finding::of(Rule::ReadaheadWasted)
    })
}

/// Whether the pages may have been used without an event, as those of mapped files. Then none is called unused.
fn sum<'a>(files: impl Iterator<Item = &'a Brought>) -> Brought {
    files.fold(Brought::default(), |all, pages| Brought {
        ahead: all.ahead.saturating_add(pages.ahead),
        ahead_left_unused: all.ahead_left_unused.saturating_add(pages.ahead_wasted()),
        requested: all.requested.saturating_add(pages.requested),
        mapped: all.mapped.saturating_add(pages.mapped),
        ..all
    })
}

/// Pages that came in without a read of the device: holes of sparse files, which cost nothing. No event tells which ones. 0 if the trace
/// has no bios with this device's number, as for btrfs.
fn without_device(seen: &Seen<'_>, device: &str, brought: &Brought) -> u64 {
    let mut devices = seen.usage.devices.iter();
    let Some(one) = devices.find(|one| one.device == device && one.read_bytes > 0) else { return 0 };
    brought.ahead.saturating_add(brought.requested).saturating_sub(one.read_bytes.div_ceil(PAGE_BYTES))
}

/// Reads of the beginning of many files.
fn of_many(found: &AccuracyFindings, all: &Brought, files: u64) -> String {
    let most = found.tasks.iter().max_by_key(|task| task.pages.ahead_wasted());
    let most = most.filter(|task| task.pages.ahead_wasted() * 2 > all.ahead_wasted());
    let reader = most.and_then(|task| Some(format!("; most are read by {} ({})", task.name.as_deref()?, task.tid)));
    format!(
        "The pages are of {} files, of each of which {} are requested on average{}.",
        grouped(files),
        size(all.requested.saturating_mul(PAGE_BYTES) / files.max(1)),
        reader.unwrap_or_default()
    )
}

/// Without read-ahead only used pages are read, each by a request of its own.
fn of_random(pages: &Brought, of: &str) -> Evidence<Gain> {
    let all = pages.ahead.saturating_add(pages.requested);
    if pages.mapped > 0 || all == 0 {
        return Evidence::unknown("some of these pages are mapped, and their use leaves no event", "");
    }
    let part = percent(pages.ahead_wasted(), all);
    gain(
        format!("bytes read of {of}"),
        [part * 0.9, (part * 1.1).min(100.0)],
        "the pages that nobody used are not read, and the others are",
    )
}

/// Faults at random places of a mapped file, each of which reads too large a window: the file with most pages. Each file is judged by
/// itself, because starting programs fault in their libraries in order.
fn around_faults(seen: &Seen<'_>, found: &AccuracyFindings) -> Option<Finding> {
    let of = |file| Some((file, Around::of(seen, file)?));
    let (file, around) = found.files.iter().filter_map(of).max_by_key(|(file, _)| file.pages.mapped)?;
    Some(of_faults(seen, file, &around))
}

/// Faults of one file, and the read-ahead setting of its disk.
struct Around<'a> {
    faults: FileFaults,
    disk: &'a Disk,
    /// The file that sets the read-ahead, and its value.
    path: String,
    kib: u64,
    /// The window is larger than the default's, and a fault brings in more than one of these.
    is_large: bool,
}

impl<'a> Around<'a> {
    /// `None`: the pages take little time, or no unused part is known.
    fn of(seen: &Seen<'a>, file: &FileBrought) -> Option<Around<'a>> {
        let device = file.device?.to_string();
        let pages = file.pages.mapped;
        let &faults = seen.usage.file_faults.get(&(device.clone(), file.inode))?;
        let FileFaults { faults: n, elsewhere, extent_bytes, mapped_bytes } = faults;
        if n < MIN_FAULTS || elsewhere * 2 < n || pages < MIN_PAGES {
            return None;
        }
        let each = pages / n;
        let disk = seen.storage.disk(&device)?;
        let ReadAhead { path, kib } = seen.storage.read_ahead(&device)?;
        let is_large = kib > DEFAULT_KIB && each * PAGE_BYTES >= (MIN_WINDOWS * DEFAULT_KIB) << 10;
        // The default window is too large as well if nearly all faults jump.
        let jumps = n >= MIN_JUMPS && elsewhere * 10 >= n * 9 && each >= MIN_AROUND_PAGES;
        let bytes = pages * PAGE_BYTES;
        // A starting program faults in a few windows of its libraries, which takes little device time.
        let cost = seen.block.map(|block| seen.cost_of(block, "reads", bytes));
        let is_short = cost.is_some_and(|cost| cost.known().is_some_and(|&ns| seen.of_span(ns) < MIN_SPAN_PERCENT));
        // If the trace shows what is mapped, all of it may have been used.
        let used = seen.usage.shows_mapped && percent(mapped_bytes + n * PAGE_BYTES, bytes) >= MAX_DENSE_PERCENT;
        let told = (is_large || jumps) && !is_short && !used && percent(bytes, extent_bytes) < MAX_DENSE_PERCENT;
        told.then_some(Around { faults, disk, path, kib, is_large })
    }
}

fn of_faults(seen: &Seen<'_>, file: &FileBrought, around: &Around<'_>) -> Finding {
    let &Around { faults: FileFaults { faults, elsewhere, .. }, disk, ref path, kib, is_large } = around;
    let bytes = file.pages.mapped * PAGE_BYTES;
    let source = "flashscope:file_fault, filemap:mm_filemap_add_to_page_cache; /sys/block/*/queue/read_ahead_kb";
    // Each fault still reads a window or a page. If all pages of the large windows are used, more faults read as many bytes.
    let then = if is_large { DEFAULT_KIB << 10 } else { PAGE_BYTES };
    let most = (1.0 - (faults * then) as f64 / bytes as f64) * 100.0;
    let random = code::RANDOM_MAP.step();
    let (what, steps) = match is_large {
        true => (
            format!("Read ahead {DEFAULT_KIB} KiB, or tell the kernel that the mapping is used at random"),
            vec![Step::Set { path: path.clone(), value: DEFAULT_KIB.to_string() }, random],
        ),
        false => ("Tell the kernel that the mapping is used at random".to_owned(), vec![random]),
    };
    let name = file.path.clone().unwrap_or_else(|| format!("inode {}", file.inode));
    Finding {
        what: format!(
            "Read-ahead of {kib} KiB on {} brings in {} around {} faults of a mapped file, {} each.",
            disk.name,
            size(bytes),
            grouped(faults),
            size(bytes / faults)
        ),
        cause: format!(
            "{} of the faults are not behind the one before: {} is used here and there.",
            grouped(elsewhere),
            name
        ),
        evidence: vec![
            measure("faults that had to read", faults as f64, MeasureUnit::Count, source),
            measure("of them not in order", elsewhere as f64, MeasureUnit::Count, source),
            measure("brought in around them", bytes as f64, MeasureUnit::Bytes, source),
        ],
        // The device time of all these faults, because no event shows which pages were used.
        lost_ns: match seen.block {
            Some(block) => seen.cost_of(block, "reads", bytes),
            None => Evidence::unknown("the trace has no bios", "record with --events block,cache,syscall"),
        },
        advice: vec![Remedy {
            what,
            steps,
            gain: gain(
                format!("bytes that faults bring in of {name}"),
                [0.0, most.max(0.0)],
                format!(
                    "each of these faults reads a {} still; which pages were used leaves no event: with all of them used, as many \
                     bytes are read by more faults. mincore() after MADV_RANDOM, or a second recording, tells how many",
                    if is_large { "window" } else { "page" }
                ),
            ),
            risk: "where most of what is brought in is used, and files that are read in order: more requests, which take longer; \
                   open files keep their window"
                .to_owned(),
        }],
        ..Finding::of(Rule::ReadaheadWasted)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Work, only};
    use super::*;
    use crate::cache::TaskBrought;
    use crate::usage::DeviceUse;
    use flashscope_trace::TaskId;

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

    /// Faults of its file.
    fn faulted(work: &mut Work, faults: u64, elsewhere: u64, extent_bytes: u64) {
        work.usage
            .file_faults
            .insert(("8:0".to_owned(), 12), FileFaults { faults, elsewhere, extent_bytes, mapped_bytes: 0 });
    }

    #[test]
    fn a_file_systems_own_pages_are_no_file_read_at_random() {
        let mut work = work(1000, 900, 0);
        let mount = |kind: &str| {
            serde_json::json!({"names": {"mounts": [
            {"device": "8:0", "type": kind, "point": "/b", "root": "/", "source": "/dev/sda"}]}})
        };
        work.readahead.as_mut().expect("made above").files[0].inode = 1;
        for (kind, n) in [("btrfs", 0), ("f2fs", 0), ("xfs", 1)] {
            work.storage.device_names = flashscope_trace::DeviceNames::of_facts(&mount(kind));
            assert_eq!(find(&work.seen()).len(), n, "{kind}");
        }
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

    /// A copy of a sparse file: 2,000 of the pages that are brought in have blocks on the disk, the others are holes.
    #[test]
    fn holes_are_not_read() {
        let mut work = work(4312, 2496, 0);
        work.usage.devices.push(DeviceUse { device: "8:0".into(), read_bytes: 2000 << 12, read_again_bytes: 0 });
        assert!(find(&work.seen()).is_empty());
        work.usage.devices[0].read_bytes = 4362 << 12;
        assert!(only(find(&work.seen())).what.contains("2,496 of 4,312 pages"));
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
        faulted(&mut work, 14, 12, 100 << 20);
        let finding = only(find(&work.seen()));
        assert!(finding.what.contains("23 MiB around 14 faults of a mapped file"), "{}", finding.what);
        // 5,900 pages at 1 ms each, and no more than was recorded.
        assert_eq!(finding.lost_ns, 1_000_000_000.into());
        let gain = finding.advice[0].gain.known().expect("a range");
        assert_eq!((gain.least_percent, gain.most_percent.round()), (0.0, 92.0));
        // All of the range was read: nothing shows that a part was not needed.
        faulted(&mut work, 14, 12, 24 << 20);
        assert!(find(&work.seen()).is_empty());
        faulted(&mut work, 14, 12, 100 << 20);
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
        faulted(&mut work, 14, 2, 100 << 20);
        assert!(find(&work.seen()).is_empty());
        faulted(&mut work, 14, 12, 100 << 20);
        work.storage.disks[0].read_ahead_kib = Some(128);
        assert!(find(&work.seen()).is_empty());
    }

    /// A shell that starts beside it faults in its libraries in order, and another file is read to its end.
    #[test]
    fn files_are_judged_one_by_one() {
        let add = |work: &mut Work, device, inode, pages: Brought| {
            let found = work.readahead.as_mut().expect("pages");
            found.files.push(FileBrought { device: Some(device), inode, path: None, pages });
        };
        let mut mapped = work(6000, 0, 5900);
        faulted(&mut mapped, 14, 12, 100 << 20);
        let library = FileFaults { faults: 100, elsewhere: 2, extent_bytes: 2 << 20, mapped_bytes: 0 };
        mapped.usage.file_faults.insert(("8:0".to_owned(), 13), library);
        add(&mut mapped, Device::new(8, 0), 13, Brought { ahead: 500, mapped: 500, ..Brought::default() });
        let finding = only(find(&mapped.seen()));
        assert!(finding.what.contains("23 MiB around 14 faults of a mapped file, 1.65 MiB each"), "{}", finding.what);

        // Of its file 900 of 1,000 pages; of another disk's as many, which this one's knob does not change.
        let mut read = work(1000, 900, 0);
        let whole = Brought { ahead: 50_000, ahead_used: 50_000, ..Brought::default() };
        add(&mut read, Device::new(8, 0), 13, whole);
        add(&mut read, Device::new(8, 16), 14, Brought { ahead: 950, ahead_left_unused: 890, ..Brought::default() });
        let finding = only(find(&read.seen()));
        assert!(finding.what.ends_with("3.52 MiB that nobody uses: 900 of 1,000 pages."), "{}", finding.what);
    }

    /// A program that reads the first page of each of 100 files.
    #[test]
    fn begins_of_many_files_name_their_reader() {
        let mut work = work(0, 0, 0);
        let found = work.readahead.as_mut().expect("pages");
        let pages = Brought { requested: 1, ahead: 3, ahead_left_unused: 3, ..Brought::default() };
        found.files =
            (12..112).map(|inode| FileBrought { device: Some(Device::new(8, 0)), inode, path: None, pages }).collect();
        let pages = Brought { ahead: 300, ahead_left_unused: 300, ..Brought::default() };
        // The largest single one is the cache of a device itself.
        let own = Brought { ahead: 250, ahead_left_unused: 250, ..Brought::default() };
        found.files.push(FileBrought { device: Some(Device::new(0, 3)), inode: 7 << 20, path: None, pages: own });
        found.tasks.push(TaskBrought { tid: TaskId(7), name: Some("thumbs".into()), pages });
        let finding = only(find(&work.seen()));
        assert_eq!(
            finding.cause,
            "The pages are of 100 files, of each of which 4 KiB are requested on average; most are read by thumbs (7)."
        );
        // 300 of the 400 pages that were brought in.
        let gain = finding.advice[0].gain.known().expect("a range");
        assert!(gain.least_percent < 75.0 && 75.0 < gain.most_percent, "{gain:?}");
        // Half of a percent of the time.
        work.span_ns = 60_000_000_000;
        assert!(find(&work.seen()).is_empty());
    }

    #[test]
    fn a_program_that_jumps_about_a_mapping_is_told_with_the_default_window_too() {
        let of = |faults, elsewhere, pages, extent| {
            let mut work = work(pages, 0, pages);
            work.storage.disks[0].read_ahead_kib = Some(128);
            faulted(&mut work, faults, elsewhere, extent);
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
