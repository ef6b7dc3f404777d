//! `predict`: what a recorded workload would have read with other read-ahead settings, without running it again.

use std::collections::HashSet;

use flashscope_analysis::energy::{Activity, Work};
use flashscope_cachesim::Kernel;
use flashscope_predict::{
    Collector, ErrorBar, FilesystemOptions, Overlap, PREDICTION_SCHEMA, Prediction, Predictor, Storage, TRIED_KIB,
    Workload, has_bulk_read, request_bytes,
};
use flashscope_targets::board::Chip;
use flashscope_trace::{Device, DeviceNames, FileId, FileNames, TaskId, Trace};

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
        if predictor.costs.queue.is_some() {
            return Err(Failure::usage(
                "--chip is for raw NAND, and this trace has requests of a block device; record raw NAND, or leave out --chip",
            ));
        }
        predictor.costs.more_a_read_ns = there as f64 - here as f64;
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
    if let Some(mounted) = predictor.costs.on_ubifs() {
        let least = args.readahead.iter().copied().min().unwrap_or(0);
        let windows = args.readahead.iter().copied().filter(|&kib| args.bulk_read || kib == least);
        let options = FilesystemOptions { bulk_read: Some(!mounted), ..FilesystemOptions::default() };
        rows.extend(windows.map(|kib| predictor.row_with(kib, options)));
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
    notes.extend(predictor.overlap.map(overlap_note));
    notes.extend(windows_note(&predictor));
    let timed = rows.iter().any(|row| row.time_ns.is_some());
    let error = error_bar(kernel, &predictor, &filesystem, &args.model).filter(|_| timed);
    if predictor.costs.queue.is_some() {
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
        cost: predictor.costs.cost,
        queue: predictor.costs.queue,
        error,
        error_other_options: error_bar_other_options(kernel, &predictor, &args.model).filter(|_| timed),
        power: args.energy.power.clone(),
        notes,
        rows,
    };
    let labels = Labels::of(&trace);
    let file = |file: FileId| labels.file(file);
    let task = |tid: TaskId| {
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
        out!("{}", flashscope_report::json::any(&prediction));
    } else {
        out!("{}", flashscope_report::terminal::prediction(&prediction, &file, &task, &style()));
    }
    Ok(())
}

/// The error of times and flash reads, or requests. bulk_read was validated separately (tests/readahead/mod.rs).
pub fn error_bar(kernel: Kernel, predictor: &Predictor<'_>, filesystem: &str, model: &ModelArgs) -> Option<ErrorBar> {
    if predictor.costs.queue.is_some() {
        return ErrorBar::of_queue(kernel, filesystem);
    }
    let validated = if predictor.costs.on_ubifs() == Some(true) { "ubifs-bulk" } else { filesystem };
    if predictor.overlap.is_some() {
        return ErrorBar::of_overlap(kernel, validated, model.layout.is_some());
    }
    ErrorBar::of(kernel, validated, model.layout.is_some())
}

/// The same for UBIFS with other mount options than in the recording, or for squashfs with another block size.
pub fn error_bar_other_options(kernel: Kernel, predictor: &Predictor<'_>, model: &ModelArgs) -> Option<ErrorBar> {
    let filesystem = match predictor.costs.on_ubifs() {
        Some(true) => "ubifs",
        Some(false) => "ubifs-bulk",
        None => predictor.costs.squashfs_block().map(|_| "squashfs")?,
    };
    ErrorBar::of_other_options(kernel, filesystem, model.layout.is_some())
}

/// A note if the workload has more open files than the model keeps windows of.
pub fn windows_note(predictor: &Predictor<'_>) -> Option<String> {
    let forgotten = predictor.windows_forgotten.get();
    (forgotten > 0).then(|| {
        format!(
            "WARNING: the read-ahead windows of {forgotten} open files were forgotten, because more than 65,536 had one: those that are read on begin anew."
        )
    })
}

/// How overlapping calls are modelled, and the source of their error bound.
pub fn overlap_note(Overlap { tasks, files }: Overlap) -> String {
    let files = if files == 1 { "one file".to_owned() } else { format!("each of {files} files") };
    format!(
        "Calls of {tasks} tasks overlap in {files}. They are replayed in the order in which they began, which may differ with another window. The error bound is that of two tasks that read one file."
    )
}

/// Notes with a count above zero.
fn counted<'a>(counts: &'a [(u64, &str)]) -> impl Iterator<Item = String> + 'a {
    counts.iter().filter(|(n, _)| *n > 0).map(|(n, note)| note.replacen("{}", &n.to_string(), 1))
}

/// Notes about the model of a block queue. `lacking`: some settings have no predicted time.
pub fn queue_notes(workload: &Workload, lacking: bool) -> Vec<String> {
    let mut notes = vec![
        "Times are a model. It assumes that each task pauses as recorded, that there is one CPU, that files are contiguous unless the trace shows otherwise, and that no other program uses the device. Measured errors: docs/explanation/readahead.md."
            .to_owned(),
    ];
    let (queued, breaks) = (&workload.queued, workload.queued.extents.all_breaks());
    let counts = [
        (breaks, "Files are fragmented at {} places, and a request ends at each."),
        (
            queued.extents.pages_not_kept,
            "The place of {} pages on the device was not kept (files of more than 65,536 pieces). They are assumed to follow the pages before them.",
        ),
        (queued.pages_late, "{} pages that had been read ahead had not arrived when a call needed them."),
        (
            queued.pages_given_up,
            "When {} pages arrived is unknown: their completion was lost, or too many were in flight. The model counts no wait for them.",
        ),
        (
            queued.calls_not_followed,
            "{} calls are not in the cost of the processor: more than 1,024 were under way at once.",
        ),
        (
            queued.requests_not_followed,
            "{} requests are not in the cost of the device: their completion was lost, more than 1,024 were in flight, or they are of a disk beyond the first 64.",
        ),
    ];
    notes.extend(counted(&counts));
    if lacking {
        notes.push(
            "The time of some settings is unknown: they make longer requests than any recorded one, or too few calls were recorded. Record longer, with larger read-ahead."
                .to_owned(),
        );
    }
    notes
}

/// Time to read a page on a chip, and on the chip of the recording, ns.
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
            "--chip {chip}: its pages have {} bytes and those of {recorded} {}: its flash reads cannot be derived; record on a chip with \
             the same page size",
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

/// Mean power of such reads without and with read-ahead, watts. A profile without such reads is an error.
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

/// The file system that is read, from the option or from the mounts in the trace; empty if neither has it (mounted during the recording).
pub fn filesystem(said: &PowerArgs, trace: &Trace, workload: &Workload) -> String {
    said.filesystem.clone().or_else(|| mounted(trace, workload)).unwrap_or_default()
}

/// The storage of the file that is read most, by the name of the validation's error bars: `squashfs-mtdblock` if it is not on MTD itself.
pub fn mounted(trace: &Trace, workload: &Workload) -> Option<String> {
    let (most, _) = workload.pages_added.iter().max_by_key(|&(_, pages)| pages)?;
    let mount = trace.facts().mount_of(most.device?)?;
    let kind = mount.kind.as_deref()?;
    let source = mount.source.as_deref().unwrap_or_default();
    let below = ["mtdblock", "ubiblock"].into_iter().find(|name| source.contains(name));
    Some(match below {
        Some(below) if kind == "squashfs" => format!("{kind}-{below}"),
        _ => kind.to_owned(),
    })
}

/// Names of a trace's files.
#[derive(Default)]
pub struct Labels {
    files: FileNames,
    devices: DeviceNames,
}

impl Labels {
    pub fn of(trace: &Trace) -> Labels {
        Labels { files: trace.file_names(), devices: trace.device_names() }
    }

    pub fn file(&self, file: FileId) -> String {
        let Some(device) = file.device else { return format!("inode {}", file.inode) };
        let path = self.files.display(device, file.inode);
        self.devices.file_label(path.as_deref(), device, file.inode)
    }

    /// The same, safe for a terminal.
    pub fn visible(&self, file: FileId) -> String {
        flashscope_report::visible(&self.file(file)).into_owned()
    }
}

/// The accesses in a trace, and the layout of its files from another trace. An error says what is missing and what to record.
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
    let in_ram = in_ram.iter().filter_map(|text| Device::parse(text));
    let mut collector = Collector::new(trace.facts(), in_ram);
    if trace.facts().mounts.iter().any(|mount| mount.is("squashfs")) {
        collector.through_block_layer();
    }
    trace.for_each_access(&mut |pair| collector.pair(&pair))?;
    let mut workload = collector.finish();
    workload.faults_shown = trace.cache_shown().faults;
    workload.switches_shown = trace.schemas().any(|schema| schema.name == "sched_switch");
    let path = trace.path().display();
    if workload.calls.is_empty() && workload.faults == 0 {
        if trace.schemas().any(|schema| matches!(&*schema.name, "file_read" | "mm_filemap_get_pages")) {
            return Err(Failure::new(format!("{path}: no file on a device was read while it was recorded")));
        }
        return Err(Failure::new(format!(
            "{path}: this trace does not say which part of which file was read: it has neither flashscope:file_read (our probe) nor \
             filemap:mm_filemap_get_pages (Linux 6.12 and later, where there are no kprobe_events). Record again with `flashscope \
             record --events block,cache,syscall` (flash,cache,syscall on raw NAND)"
        )));
    }
    if !workload.cache_seen {
        return Err(Failure::new(format!(
            "{path}: it does not say which pages came into the page cache, so a prediction cannot be \
             checked; record with --events flash,cache,syscall"
        )));
    }
    match trace.recordings_met() {
        0 => Ok(workload),
        further => Err(Failure::new(format!(
            "{path}: has {} recordings, one after the other: what was cached when each of them began is unknown; give one alone (each begins \
             with a header, or where the times fall back)",
            further + 1
        ))),
    }
}

/// Largest request of a block device over MTD or UBI, pages: 255 sectors (`BLK_SAFE_MAX_SECTORS`, include/linux/blkdev.h), because their
/// drivers set no limit.
const MTD_BLOCK_PAGES: u64 = 31;

/// The storage of the files that are read, from the trace's mounts.
pub fn storage(trace: &Trace, workload: &Workload, kernel: Kernel, io_kib: Option<u64>) -> Storage {
    let mut storage = Storage::new(kernel);
    let devices: HashSet<Device> = workload.sizes.keys().filter_map(|file| file.device).collect();
    for mount in &trace.facts().mounts {
        let Some(device) = mount.device().filter(|device| devices.contains(device)) else { continue };
        let source = mount.source.as_deref().unwrap_or_default();
        if source.contains("mtdblock") || source.contains("ubiblock") {
            storage.io_pages = MTD_BLOCK_PAGES;
        }
        if let Some(bytes) = request_bytes(trace.facts(), device) {
            storage.request_bytes = bytes;
            storage.io_pages = bytes / 4096;
        }
        if mount.is("squashfs")
            && let Some(bytes) = mount.block_bytes
        {
            storage.squashfs.insert(device, bytes);
        }
        if mount.is("ubifs") && has_bulk_read(mount) {
            storage.bulk_read.insert(device);
        }
    }
    if let Some(kib) = io_kib {
        storage.io_pages = kib / 4;
    }
    storage
}

/// The requested model, or the model of the recording's kernel; and whether it is for that kernel line.
pub fn model(trace: &Trace, asked: Option<&str>) -> Result<(Kernel, bool), Failure> {
    let names = || Kernel::ALL.map(Kernel::name).join(", ");
    if let Some(asked) = asked {
        let choice = Kernel::nearest(asked)
            .ok_or_else(|| Failure::usage(format!("--kernel-model {asked}: no version of Linux; {}", names())))?;
        return Ok((choice.kernel, choice.exact));
    }
    let release = trace.facts().kernel.release.as_deref().unwrap_or_default();
    match Kernel::nearest(release) {
        Some(choice) => Ok((choice.kernel, choice.exact)),
        None => Err(Failure::usage(format!(
            "{}: it does not say which kernel it is of; name one with --kernel-model: {}",
            trace.path().display(),
            names()
        ))),
    }
}

/// Sentences about the limits of the prediction.
pub fn notes(workload: &Workload, trace: &Trace, kernel: Kernel, exact: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if !exact {
        let release = trace.facts().kernel.release.as_deref().unwrap_or("unknown");
        notes.push(format!(
            "WARNING: flashscope has no read-ahead model of this kernel ({release}), and used that of Linux {}.",
            kernel.name()
        ));
    }
    notes.extend(counted(&[(workload.open_ended.len() as u64, "The size of {} files is unknown, because no read reached their end; they are assumed to end at the last page seen. To add the sizes, record a read of the whole files and pass that trace with --layout.")]));
    if !workload.flash_seen && workload.queued.cost.is_none() {
        notes.push(
            "Times are unknown: the trace has neither reads of raw NAND (record with --events flash,cache,syscall) nor calls that wait for a block device (--events block,cache,syscall)."
                .into(),
        );
    } else if workload.without_end > 0 {
        notes.push(format!(
            "The end of {} of {} reads is not in the trace; the time model leaves them out.",
            workload.without_end,
            workload.calls.len()
        ));
    }
    let cached = workload.cached_before.iter().map(|(_, pages)| pages.end - pages.start).fold(0, u64::saturating_add);
    notes.extend(counted(&[
        (workload.faults, "There are {} faults of mapped files. Each fault maps up to 64 KiB, and later use of these pages leaves no event. To see each used page, write 4096 into /sys/kernel/debug/fault_around_bytes before you record."),
        (cached, "{} pages were in the cache before the recording began."),
        (workload.costs.not_kept, "{} pages have the mean cost: their calls were larger than 4,096 pages, or came after the first 262,144."),
    ]));
    if !workload.faults_shown {
        notes.push(
            "Faults of mapped files are not in the trace (filemap:mm_filemap_fault, flashscope:file_fault; record with --events cache): \
             which pages came for them, or were used through a mapping, is unknown."
                .into(),
        );
    }
    if workload.cpu_wait_ns > 0 {
        notes.push(format!(
            "Calls waited {:.1} ms for a CPU (the recorder used some of it). No time here includes that.",
            workload.cpu_wait_ns as f64 / 1e6
        ));
    }
    notes.extend(counted(&[
        (workload.pages_brought, "{} pages were read without a read, fault, write or advice of a program (garbage collection, a symlink's target, sendfile()). Read-ahead does not affect them, and they are not counted."),
        (workload.nodes.guessed as u64, "The places of the data nodes of {} files on UBIFS are not in the trace (record with --events flash,cache,syscall). For bulk_read, LEBs are assumed to be full of them."),
        (workload.left_out, "WARNING: {} accesses are left out: only the first 4,000,000 are used, and 262,144 pages plus 16 for each event."),
        (workload.of_further_files, "WARNING: {} events are left out: only the first 131,072 files are used."),
        (workload.forgotten, "WARNING: {} calls, writes, open files and mappings were forgotten: more than 65,536 of a kind at once (1,024 mappings of a task). Their read-ahead starts anew."),
        (workload.pages_forgotten, "Whether {} pages were in the cache is unknown: there were too many, in too many pieces."),
    ]));
    let losses: u64 = trace.losses().iter().map(|(_, n)| n).sum();
    if losses > 0 {
        notes.push(
            "WARNING: the trace lost events (flashscope report says how many of what), and figures are of the rest."
                .into(),
        );
    }
    notes
}
