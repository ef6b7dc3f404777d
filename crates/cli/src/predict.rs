//! `predict`: what a recorded workload would have read under other settings of read-ahead, without running it again.

use std::collections::HashSet;

use flashscope_analysis::energy::{Activity, Work};
use flashscope_cachesim::Kernel;
use flashscope_predict::{
    Collector, ErrorBar, FilesystemOptions, Overlap, PREDICTION_SCHEMA, Prediction, Predictor, Storage, TRIED_KIB,
    Workload, has_bulk_read, request_bytes,
};
use flashscope_targets::board::Chip;
use flashscope_trace::{Device, Trace};

use crate::args::{ModelArgs, PowerArgs, PredictArgs};
use crate::failure::Failure;
use crate::output;
use crate::study::style;

pub fn run(args: &PredictArgs) -> Result<(), Failure> {
    let trace = Trace::open(&args.trace)?;
    let workload = workload(&trace, &args.model)?;
    let (kernel, exact) = model(&trace, args.model.kernel_model.as_deref())?;
    let mut storage = storage(&trace, &workload, kernel, args.model.io_kib);
    storage.budget_pages = usize::try_from(args.cache_mib.saturating_mul(256)).unwrap_or(usize::MAX);
    let mut predictor = Predictor::new(&workload, storage);
    let chips = args.chip.as_deref().zip(args.recorded_chip.as_deref());
    let read_ns = chips.map(|(chip, recorded)| chips_read_ns(chip, recorded, &workload)).transpose()?;
    if let Some([there, here]) = read_ns {
        if predictor.queue().is_some() {
            return Err(Failure::usage(
                "--chip: the trace has requests of a block queue, whose times are not taken of a chip; record raw NAND",
            ));
        }
        predictor.on_another_chip(there as f64 - here as f64);
    }
    let mut tried: Vec<u64> = args.readahead.iter().copied().chain(TRIED_KIB).collect();
    tried.sort_unstable();
    tried.dedup();
    let mut rows: Vec<_> = args.readahead.iter().map(|&kib| predictor.row(kib, &|_| false)).collect();
    if args.fadvise_random {
        let mut row = predictor.row(args.readahead.iter().copied().max().unwrap_or(0), &|_| true);
        row.random = true;
        rows.push(row);
    }
    if let Some(mounted) = predictor.on_ubifs() {
        let least = args.readahead.iter().copied().min().unwrap_or(0);
        let windows = args.readahead.iter().copied().filter(|&kib| args.bulk_read || kib == least);
        let made = FilesystemOptions { bulk_read: Some(!mounted), ..FilesystemOptions::default() };
        rows.extend(windows.map(|kib| predictor.row_made(kib, made)));
    } else if args.bulk_read {
        return Err(Failure::usage("--bulk-read: the trace's mounts name no UBIFS that was read"));
    }
    let filesystem = filesystem(&args.energy, &trace, &workload);
    if let Some(name) = &args.energy.power {
        let (without, with) = watts(name, &filesystem, &predictor)?;
        for row in &mut rows {
            let watts = if row.readahead_kib > 0 && !row.random { with } else { without };
            // Watts times nanoseconds are nanojoules.
            row.energy_uj = row.time_ns.map(|ns| ns * watts / 1e3);
        }
    }
    let mut notes = notes(&workload, &trace, kernel, exact);
    if let (Some([there, here]), Some((chip, recorded))) = (read_ns, chips) {
        notes.push(format!(
            "times as on chip {chip}: each read of flash takes {:.1} us instead of {:.1} ({recorded})",
            there as f64 / 1e3,
            here as f64 / 1e3
        ));
    }
    notes.extend(predictor.overlap().map(overlap_note));
    let timed = rows.iter().any(|row| row.time_ns.is_some());
    let error = error_bar(kernel, &predictor, &filesystem, &args.model).filter(|_| timed);
    if predictor.queue().is_some() {
        notes.extend(queue_notes(&workload, rows.iter().any(|row| row.time_ns.is_none())));
    } else if timed && error.is_none() {
        notes.push(
            "no error bar: how far predictions are off has not been measured as a whole (docs/explanation/readahead.md)".into(),
        );
    }
    let prediction = Prediction {
        schema: PREDICTION_SCHEMA,
        model: kernel.name(),
        model_source: kernel.source(),
        model_exact: exact,
        recorded: predictor.recorded(&tried),
        cost: predictor.cost(),
        queue: predictor.queue(),
        error,
        error_made: error_bar_made(kernel, &predictor, &args.model).filter(|_| timed),
        power: args.energy.power.clone(),
        notes,
        rows,
    };
    let file = |file: flashscope_cachesim::FileId| file_name(file);
    let task = |tid: u32| {
        let name = trace.comm(tid, flashscope_trace::TimeNs(u64::MAX)).unwrap_or("?");
        format!("{name} ({tid})")
    };
    if let Some(path) = &args.html {
        let title = args.trace.file_name().unwrap_or_default().to_string_lossy();
        let page = flashscope_report::html::prediction(&prediction, &title, &file, &task);
        let inputs: Vec<_> = args.model.layout.iter().chain([&args.trace]).cloned().collect();
        output::write(path, page.as_bytes(), &output::inputs(&inputs), "--html")?;
    }
    if args.json {
        out!("{}", flashscope_report::json::prediction(&prediction));
    } else {
        out!("{}", flashscope_report::terminal::prediction(&prediction, &file, &task, &style()));
    }
    Ok(())
}

/// What times and flash reads, or requests, may be off by. With bulk_read it was validated apart (tests/readahead.rs).
pub fn error_bar(kernel: Kernel, predictor: &Predictor<'_>, filesystem: &str, model: &ModelArgs) -> Option<ErrorBar> {
    if predictor.queue().is_some() {
        return ErrorBar::of_queue(kernel, filesystem);
    }
    let validated = if predictor.on_ubifs() == Some(true) { "ubifs-bulk" } else { filesystem };
    if predictor.overlap().is_some() {
        return ErrorBar::of_overlap(kernel, validated, model.layout.is_some());
    }
    ErrorBar::of(kernel, validated, model.layout.is_some())
}

/// The same of UBIFS mounted otherwise than it was recorded, or of squashfs in other blocks.
pub fn error_bar_made(kernel: Kernel, predictor: &Predictor<'_>, model: &ModelArgs) -> Option<ErrorBar> {
    let made = match predictor.on_ubifs() {
        Some(true) => "ubifs",
        Some(false) => "ubifs-bulk",
        None => predictor.squashfs_block().map(|_| "squashfs")?,
    };
    ErrorBar::of_made(kernel, made, model.layout.is_some())
}

/// How calls that overlap are played, and where their error bound is from.
pub fn overlap_note(Overlap { tasks, files }: Overlap) -> String {
    let files = if files == 1 { "one file".to_owned() } else { format!("each of {files} files") };
    format!(
        "calls of {tasks} tasks overlap in {files}: they are predicted in the order in which they began. Under another window \
         they may come in another order, so the error bound is the one of two tasks that read one file"
    )
}

/// What is modelled behind a block queue; `lacking`: of some settings no time is predicted.
pub fn queue_notes(workload: &Workload, lacking: bool) -> Vec<String> {
    let mut notes = vec![
        "time behind the block queue is a model: each task's pauses as they were recorded, one processor, files in one piece but \
         where the trace shows otherwise, and what others ask of the device left out; how far it is off on a board: \
         docs/explanation/readahead.md"
            .to_owned(),
    ];
    let (extents, breaks) = (&workload.queued.extents, workload.queued.extents.all_breaks());
    if breaks > 0 {
        notes.push(format!("files go on elsewhere on their device at {breaks} places: requests end there"));
    }
    if extents.pages_not_kept > 0 {
        notes.push(format!(
            "where {} pages lie is not kept (files of more than 65,536 pieces): they are taken to follow the pages before them",
            extents.pages_not_kept
        ));
    }
    if workload.queued.pages_late > 0 {
        notes.push(format!(
            "when it was recorded, {} pages that had been read ahead were not there yet when the call that asks for them began",
            workload.queued.pages_late
        ));
    }
    if workload.queued.pages_given_up > 0 {
        notes.push(format!(
            "of {} pages that were read the end is not known (their completion was lost, or too many were on their way): no wait \
             for them is fitted",
            workload.queued.pages_given_up
        ));
    }
    if lacking {
        notes.push(
            "no time is predicted for requests much longer than any recorded one, or for any longer request if those were of one \
             length, or where only a few calls were recorded: what such a one costs is not known; record with a larger window, and \
             longer"
                .to_owned(),
        );
    }
    notes
}

/// What a read of a page takes on a chip, and on the one of the recording: ns.
fn chips_read_ns(chip: &str, recorded: &str, workload: &Workload) -> Result<[u64; 2], Failure> {
    if workload.flash_reads == 0 {
        return Err(Failure::usage(
            "--chip: the trace has no reads of flash; record with --events flash,cache,syscall",
        ));
    }
    let there = Chip::load(chip)?;
    if recorded == "none" {
        return Ok([there.page_read_ns(), 0]);
    }
    let here = Chip::load(recorded)?;
    if there.page_bytes != here.page_bytes {
        return Err(Failure::usage(format!(
            "--chip {chip}: its pages have {} bytes and those of {recorded} {}: a page of a file would be other reads of flash; \
             record on a chip with such pages",
            there.page_bytes, here.page_bytes
        )));
    }
    let (page_ns, between_ns) = (here.page_read_ns(), workload.costs.between_reads_ns());
    if let Some(between_ns) = between_ns.filter(|&ns| (page_ns as f64) > ns) {
        return Err(Failure::usage(format!(
            "--recorded-chip {recorded}: it takes {:.1} us to read a page, and the trace has reads {:.1} us after one another: it was \
             recorded on another chip, or on one that takes no time (none)",
            page_ns as f64 / 1e3,
            between_ns / 1e3
        )));
    }
    Ok([there.page_read_ns(), page_ns])
}

/// Mean power of such reads without and with read-ahead, watts. A profile that does not know them is an error, not a blank.
pub fn watts(name: &str, filesystem: &str, predictor: &Predictor<'_>) -> Result<(f64, f64), Failure> {
    let profile = flashscope_study::load_power(name)?;
    let pattern = if predictor.is_sequential() { "sequential" } else { "random" };
    let of = |readahead| {
        let power = profile.of(Work { activity: Activity::Read, filesystem, pattern, readahead })?;
        Some(power.cpu_w + power.memory_w)
    };
    of(false).zip(of(true)).ok_or_else(|| {
        let problem = match filesystem {
            "" => "the trace does not name the file system that was read; name it with --filesystem".to_owned(),
            _ => format!("the profile has no {pattern} reads of {filesystem}; leave it out, or name another"),
        };
        Failure::usage(format!("--power {name}: {problem}"))
    })
}

/// What is read, as it is said or as the trace's mounts tell; empty where neither does (it was mounted while it was recorded).
pub fn filesystem(said: &PowerArgs, trace: &Trace, workload: &Workload) -> String {
    said.filesystem.clone().or_else(|| mounted(trace, workload)).unwrap_or_default()
}

/// What the file that is read most lies on, as the bars of validation name it: `squashfs-mtdblock` where it is not on MTD itself.
pub fn mounted(trace: &Trace, workload: &Workload) -> Option<String> {
    let (most, _) = workload.pages_added.iter().max_by_key(|&(_, pages)| pages)?;
    let number = Device(most.device?).to_string();
    let mount = trace.facts()["mounts"].as_array()?.iter().find(|mount| mount["device"] == number.as_str())?;
    let kind = mount["type"].as_str()?;
    let below = ["mtdblock", "ubiblock"].into_iter().find(|name| mount["source"].as_str().unwrap_or("").contains(name));
    Some(match below {
        Some(below) if kind == "squashfs" => format!("{kind}-{below}"),
        _ => kind.to_owned(),
    })
}

pub fn file_name(file: flashscope_cachesim::FileId) -> String {
    let device = file.device.map(Device);
    device.map_or_else(|| format!("inode {}", file.inode), |device| format!("{device} inode {}", file.inode))
}

/// The accesses of a trace, and what another says of how its files lie. An error says what is missing and what to record.
pub fn workload(trace: &Trace, model: &ModelArgs) -> Result<Workload, Failure> {
    let mut workload = recorded(trace)?;
    if let Some(path) = &model.layout
        && workload.learn(&recorded(&Trace::open(path)?)?) == 0
    {
        return Err(Failure::new(format!(
            "--layout {}: it has no page of a file of {} (by device and inode); record it while the same file systems are mounted",
            path.display(),
            trace.path().display()
        )));
    }
    Ok(workload)
}

fn recorded(trace: &Trace) -> Result<Workload, Failure> {
    let in_ram: HashSet<String> = crate::replay::devices_in_ram(trace);
    let in_ram: Vec<u32> = in_ram.iter().filter_map(|text| Device::parse(text)).map(|device| device.0).collect();
    let mut collector = Collector::new(trace.facts(), in_ram);
    let mounts = trace.facts()["mounts"].as_array();
    if mounts.is_some_and(|mounts| mounts.iter().any(|mount| mount["type"] == "squashfs")) {
        collector.through_block_layer();
    }
    trace.for_each_access(&mut |pair| collector.pair(&pair))?;
    let workload = collector.finish();
    let path = trace.path().display();
    if workload.calls.is_empty() && workload.faults == 0 {
        return Err(Failure::new(format!(
            "{path}: this trace does not say which part of which file was read: it has neither flashscope:file_read (our probe) nor \
             filemap:mm_filemap_get_pages (Linux 6.12 and later, where there are no kprobe_events). Record again with `flashscope \
             record --events block,cache,syscall` (flash,cache,syscall on raw NAND)"
        )));
    }
    if !workload.cache_seen {
        return Err(Failure::new(format!(
            "{path}: it does not say which pages came into the page cache, so that nothing holds a prediction against what \
             happened; record with --events flash,cache,syscall"
        )));
    }
    Ok(workload)
}

/// Largest request of a block device over MTD or UBI, pages: 255 sectors (`BLK_SAFE_MAX_SECTORS`, include/linux/blkdev.h), since
/// their drivers set no limit.
const MTD_BLOCK_PAGES: u64 = 31;

/// What the files that are read lie on, as the trace's mounts tell.
pub fn storage(trace: &Trace, workload: &Workload, kernel: Kernel, io_kib: Option<u64>) -> Storage {
    let mut storage = Storage::new(kernel);
    let devices: HashSet<u32> = workload.sizes.keys().filter_map(|file| file.device).collect();
    for mount in trace.facts()["mounts"].as_array().into_iter().flatten() {
        let device = mount["device"].as_str().and_then(Device::parse);
        let Some(device) = device.filter(|device| devices.contains(&device.0)) else { continue };
        let source = mount["source"].as_str().unwrap_or_default();
        if source.contains("mtdblock") || source.contains("ubiblock") {
            storage.io_pages = MTD_BLOCK_PAGES;
        }
        if let Some(bytes) = request_bytes(trace.facts(), device) {
            storage.request_bytes = bytes;
            storage.io_pages = bytes / 4096;
        }
        if mount["type"] == "squashfs"
            && let Some(bytes) = mount["block_bytes"].as_u64()
        {
            storage.squashfs.insert(device.0, bytes);
        }
        if mount["type"] == "ubifs" && has_bulk_read(mount) {
            storage.bulk_read.insert(device.0);
        }
    }
    if let Some(kib) = io_kib {
        storage.io_pages = kib / 4;
    }
    storage
}

/// The model that is asked for, or the one of the recording's kernel; and whether it is of that kernel's line.
pub fn model(trace: &Trace, asked: Option<&str>) -> Result<(Kernel, bool), Failure> {
    let names = || Kernel::ALL.map(Kernel::name).join(", ");
    if let Some(asked) = asked {
        let choice = Kernel::nearest(asked)
            .ok_or_else(|| Failure::usage(format!("--kernel-model {asked}: no version of Linux; {}", names())))?;
        return Ok((choice.kernel, choice.exact));
    }
    let release = trace.facts()["kernel"]["release"].as_str().unwrap_or_default();
    match Kernel::nearest(release) {
        Some(choice) => Ok((choice.kernel, choice.exact)),
        None => Err(Failure::usage(format!(
            "{}: it does not say which kernel it is of; name one with --kernel-model: {}",
            trace.path().display(),
            names()
        ))),
    }
}

/// What bounds the prediction, said plainly.
pub fn notes(workload: &Workload, trace: &Trace, kernel: Kernel, exact: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if !exact {
        let release = trace.facts()["kernel"]["release"].as_str().unwrap_or("unknown");
        notes.push(format!(
            "WARNING: there is no model of the recording's kernel ({release}) or of the one that was asked for; the nearest, {}, \
             was taken",
            kernel.name()
        ));
    }
    if !workload.open_ended.is_empty() {
        notes.push(format!(
            "{} files end where the trace last saw them: no read met their end, and larger windows may read further there \
             (--layout, a recording that read them whole, tells it)",
            workload.open_ended.len()
        ));
    }
    if !workload.flash_seen && workload.queued.cost.is_none() {
        notes.push(
            "no time and no flash reads are predicted: the trace has no reads of flash (--events flash,cache,syscall) and no call \
             that waits for a block device (--events block,cache,syscall)"
                .into(),
        );
    } else if workload.without_end > 0 {
        notes.push(format!(
            "the trace does not show the end of {} of {} reads: they are not in the fit of time (--events …,syscall)",
            workload.without_end,
            workload.calls.len()
        ));
    }
    if workload.faults > 0 {
        notes.push(format!(
            "{} faults of mapped files: what a fault maps around it leaves no event, and its pages' use is not known; 4096 in \
             /sys/kernel/debug/fault_around_bytes while it is recorded shows each page that is touched",
            workload.faults
        ));
    }
    if !workload.cached_before.is_empty() {
        let pages: u64 = workload.cached_before.iter().map(|(_, pages)| pages.end - pages.start).sum();
        notes.push(format!("{pages} pages were cached before the recording began"));
    }
    if workload.costs.not_kept > 0 {
        notes.push(format!(
            "{} pages cost the mean: of calls that bring in or read more than 4,096, or beyond the first 262,144 whose cost is kept",
            workload.costs.not_kept
        ));
    }
    if workload.held_ns > 0 {
        notes.push(format!(
            "calls were held up for {:.1} ms while others ran in their place (the recorder among them): it is in no time here",
            workload.held_ns as f64 / 1e6
        ));
    }
    if workload.pages_brought > 0 {
        notes.push(format!(
            "{} pages came for no read, fault, write or advice that is followed (garbage that a file system collects, a symlink's \
             target, sendfile()): they come under each setting, and are in no count",
            workload.pages_brought
        ));
    }
    if workload.nodes.guessed > 0 {
        notes.push(format!(
            "of {} files on UBIFS the trace does not show where their data nodes lie: for bulk_read LEBs are taken to be full of \
             them (--events flash,cache,syscall)",
            workload.nodes.guessed
        ));
    }
    if workload.left_out > 0 {
        notes.push(format!(
            "WARNING: {} accesses are left out: beyond the first 4,000,000, or beyond 262,144 pages asked for and 16 more an event",
            workload.left_out
        ));
    }
    if workload.of_further_files > 0 {
        notes.push(format!(
            "WARNING: {} events of files beyond the first 131,072 are left out",
            workload.of_further_files
        ));
    }
    if workload.pages_forgotten > 0 {
        notes.push(format!(
            "of {} pages it is not known whether they were in the cache: they lay in too many pieces, or were too many",
            workload.pages_forgotten
        ));
    }
    let losses: u64 = trace.losses().iter().map(|(_, n)| n).sum();
    if losses > 0 {
        notes.push(
            "WARNING: the trace is not whole (flashscope report says what is lost): figures are of what is left".into(),
        );
    }
    notes
}
