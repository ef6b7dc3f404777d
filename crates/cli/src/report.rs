//! `report`: shows the contents of one trace, or of several together.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashMap;

use flashscope_analysis::block::{
    BLOCK_REPORT_SCHEMA, BlockAnalysis, BlockFound, BlockReport, BlockSetup, DirectUse, MissingEvent, StackHints,
    StagesFound, Unit,
};
use flashscope_analysis::cache::{Accuracy, AccuracyFindings};
use flashscope_analysis::calls::CallsFound;
use flashscope_analysis::comparison::RunFigures;
use flashscope_analysis::findings::{Finding, StorageFacts};
use flashscope_analysis::flash::{Health, UbiRegion, life};
use flashscope_analysis::layers::{LAYERS_REPORT_SCHEMA, Layers, LayersReport};
use flashscope_analysis::{
    Analysis, ChipShape, Evidence, FLASH_REPORT_SCHEMA, FileUses, FlashAnalysis, FlashReport, OwnWear, ProbeFacts,
    SplitBy, SplitReport, SystemFacts, name_block_files, name_flash_files,
};
use flashscope_report::terminal::{self, Style};
use flashscope_report::{html, json};
use flashscope_trace::facts::{Filter, Mount};
use flashscope_trace::{
    CacheShown, Device, Event, EventKind, Facts, FlashAccess, Schema, TaskId, TimeNs, Trace, TraceKind,
};

use crate::anonymous;
use crate::args::{ReportArgs, ReportBy};
use crate::attribution::Attribution;
use crate::conditions;
use crate::failure::Failure;
use crate::finding_inputs::FindingInputs;
use crate::inputs::Inputs;
use crate::output;
use crate::study::style;

pub fn run(args: &ReportArgs) -> Result<(), Failure> {
    for (option, value) in [("--from", args.from), ("--to", args.to)] {
        if value.is_some_and(|seconds| !seconds.is_finite() || seconds < 0.0) {
            return Err(Failure::usage(format!("{option}: seconds after the first event, 0 or more")));
        }
    }
    let given = [("--from", args.from.is_some()), ("--to", args.to.is_some()), ("--process", args.process.is_some())];
    let given = given.into_iter().chain([("--call", args.call.is_some())]).find(|(_, is_given)| *is_given);
    if let (Some(_), Some((option, _))) = (&args.perfetto, given) {
        return Err(Failure::usage(format!(
            "--perfetto: has the whole trace, since its slices and flows cross every limit; leave out {option}, and look at the part \
             there: drag over a time, or open the track of a process. The figures of a part: flashscope report TRACE {option} …"
        )));
    }
    if args.perfetto.is_some() && args.by == Some(ReportBy::Layer) {
        return Err(Failure::usage("--perfetto writes the whole trace; leave out --by layer"));
    }
    conditions::of_one_report(&args.limits, args.anonymize.is_asked_for())?;
    if let (true, Some(condition)) = (args.by == Some(ReportBy::Layer), args.limits.fail_if.first()) {
        return Err(Failure::usage(format!(
            "--fail-if '{}': --by layer has none of these figures; leave out one of the two",
            condition.text()
        )));
    }
    let copies = anonymous::copies(&args.anonymize, &args.traces, &args.clocks, None)?;
    let traces = copies.as_ref().map_or(&args.traces, |copies| &copies.traces);
    let inputs = Inputs::open_with(traces, &args.clocks.offsets, args.clocks.block_size)?;
    if let Some(number) = args.call {
        return crate::call::run(&inputs, args, number);
    }
    if args.by == Some(ReportBy::Layer) {
        let report = layers_report(&inputs, args)?;
        let forms: [Form; 3] =
            [&|| html::layers(&report), &|| json::any(&report), &|| terminal::layers(&report, &style())];
        return show(&inputs, args, (&[], None), forms);
    }
    let of_block_io = inputs.traces().filter(|trace| is_of_block_io(trace)).count();
    if of_block_io > 0 && of_block_io < inputs.traces().count() {
        return Err(Failure::usage(
            "some traces are of block I/O and some of flash; make a separate report of each kind",
        ));
    }
    if of_block_io > 0 {
        let report = block_report(&inputs, args)?;
        if args.process.is_none() {
            nothing_in_range(&inputs, args, shown(&report.found.stages) == 0)?;
        }
        if nothing_happened(&inputs, &report) {
            return Err(nothing_recorded(&inputs));
        }
        if let Some(by) = args.by.and_then(ReportBy::split) {
            let split = SplitReport::of_block(&report, by);
            nothing_so(&split)?;
            let forms: [Form; 3] = [&|| html::block(&report), &|| json::named(&split, &report.names), &|| {
                terminal::block_by(&report, by, &style_of(args))
            }];
            return show(&inputs, args, (&report.findings, Some(&RunFigures::of_block(&report))), forms);
        }
        let forms: [Form; 3] = [&|| html::block(&report), &|| json::named(&report, &report.names), &|| {
            terminal::block(&report, &style_of(args))
        }];
        return show(&inputs, args, (&report.findings, Some(&RunFigures::of_block(&report))), forms);
    }
    let report = flash_report(&inputs, args)?;
    nothing_in_range(&inputs, args, report.found.events == 0)?;
    if report.readahead.is_none() && !inputs.traces().any(is_of_flash) {
        return Err(nothing_to_report(&inputs));
    }
    if let Some(by) = args.by.and_then(ReportBy::split) {
        let split = SplitReport::of_flash(&report, by);
        nothing_so(&split)?;
        let forms: [Form; 3] = [&|| html::flash(&report), &|| json::named(&split, &report.names), &|| {
            terminal::flash_by(&report, by, &style_of(args))
        }];
        return show(&inputs, args, (&report.findings, Some(&RunFigures::of_flash(&report))), forms);
    }
    let forms: [Form; 3] = [&|| html::flash(&report), &|| json::named(&report, &report.names), &|| {
        terminal::flash(&report, &style_of(args))
    }];
    show(&inputs, args, (&report.findings, Some(&RunFigures::of_flash(&report))), forms)
}

/// Says what to record if a trace has no data for this split.
fn nothing_so(split: &SplitReport) -> Result<(), Failure> {
    if !split.is_empty() {
        return Ok(());
    }
    let missing = match split.by {
        SplitBy::File => "nothing in it names a file; record with `flashscope record --events block,cache,syscall`",
        SplitBy::Device => "it has no I/O of a block device and no operation of raw flash",
        SplitBy::Call => {
            "it has no call from entry to return; record with `flashscope record --events block,cache,syscall`"
        }
    };
    Err(Failure::new(format!("{}: {missing}", split.title)))
}

/// A report rendered in one form.
type Form<'a> = &'a dyn Fn() -> String;

/// Writes and prints the requested forms; ends by the result of the conditions.
fn show(
    inputs: &Inputs,
    args: &ReportArgs,
    (findings, figures): (&[Finding], Option<&RunFigures>),
    [page, json, text]: [Form<'_>; 3],
) -> Result<(), Failure> {
    if let Some(path) = &args.html {
        output::write(path, page().as_bytes(), &output::inputs(&args.traces), "--html")?;
    }
    if let Some(path) = &args.perfetto {
        crate::perfetto::write(path, inputs, args, findings)?;
    }
    let checked = figures.map(|figures| conditions::checked(&args.limits, figures)).unwrap_or_default();
    conditions::write(&args.limits, &checked, &args.traces)?;
    out!("{}", if args.json { json() } else { text() });
    conditions::end(&checked)
}

fn style_of(args: &ReportArgs) -> Style {
    Style { top: args.top, ..style() }
}

/// Time of calls by layer.
fn layers_report(inputs: &Inputs, args: &ReportArgs) -> Result<LayersReport, Failure> {
    let mut traces = inputs.traces();
    let (Some(trace), None) = (traces.next(), traces.next()) else {
        return Err(Failure::usage("--by layer: takes one trace"));
    };
    let crossings = trace.crossings();
    let has = |name: &str| trace.schemas().any(|schema| schema.name.starts_with(name));
    if !crossings.are_there() {
        let wanted = [
            ("sys_enter_read", "entry and return of calls (syscalls:sys_enter_read, sys_exit_read, …)"),
            ("enter_", "boundaries of layers (flashscope:enter_…, or funcgraph_entry of the function_graph tracer)"),
            ("block_rq_issue", "block:block_rq_issue and block_rq_complete"),
            ("sched_switch", "sched:sched_switch"),
        ];
        let missing: Vec<&str> = wanted.iter().filter(|(name, _)| !has(name)).map(|(_, what)| *what).collect();
        return Err(Failure::new(format!(
            "{}: has no boundaries of layers: --by layer needs calls, and what they enter. Missing: {}. Record them with \
             `flashscope record --events layers`, or with trace-cmd record -p function_graph -e syscalls -e block -e sched:sched_switch",
            trace.path().display(),
            missing.join("; ")
        )));
    }
    let attribution = Attribution::new(inputs, args);
    let lookup = |tid, time| attribution.name_or_wanted(0, tid, time);
    let mut layers = Layers::new(lookup, crossings.sleep()).only(args.process.as_deref());
    let mut first = None;
    trace.for_each_pair(&mut |pair| {
        if let Some(event) = pair.event {
            let begin = *first.get_or_insert(event.time.0);
            if event.kind == EventKind::Recording || in_time(event, begin, args) {
                layers.event(event);
            }
        }
        if let Some(record) = pair.record {
            let seconds = record.time.0.saturating_sub(*first.get_or_insert(record.time.0)) as f64 / 1e9;
            if args.from.is_none_or(|from| seconds >= from) && args.to.is_none_or(|to| seconds <= to) {
                crossings.read(record, &mut |tid, crossing| layers.crossing(crossing, tid, record.time));
            }
        }
    })?;
    let mut findings = layers.finish();
    for call in &mut findings.calls {
        let ordinal = inputs.task_ordinal(0, call.tid, TimeNs(call.begin_ns));
        call.ordinal = Some(ordinal).filter(|&ordinal| ordinal > 1);
    }
    nothing_in_range(inputs, args, findings.sums.is_empty())?;
    let mut losses = inputs.losses();
    losses.extend(findings.losses());
    Ok(LayersReport {
        schema: LAYERS_REPORT_SCHEMA,
        title: inputs.title(),
        system: system(inputs),
        losses,
        found: findings,
    })
}

/// The block I/O of all traces. Several traces must be about different devices, or from the same boot: then a number of a thread or device
/// means the same in all of them.
///
/// If only the end of a trace shows how its devices are stacked, the traces are read a second time.
pub fn block_report(inputs: &Inputs, args: &ReportArgs) -> Result<BlockReport, Failure> {
    Ok(block_report_and(inputs, args, None)?.0)
}

/// The same, with the report by another attribution (`also`) from the same pass.
pub fn block_report_and(inputs: &Inputs, args: &ReportArgs, also: Option<ReportBy>) -> Result<BlockReports, Failure> {
    let (mut first, other) = read_block(inputs, args, also, None)?;
    match first.found.again.take() {
        Some(hints) => read_block(inputs, args, also, Some(hints)),
        None => Ok((first, other)),
    }
}

type BlockReports = (BlockReport, Option<BlockFound>);

/// I/O past the page cache. The files are those of one machine.
fn direct_of_one_machine<'a>(inputs: &Inputs, found: &'a BlockFound) -> &'a [DirectUse] {
    if inputs.of_several_machines() { &[] } else { &found.originators.direct }
}

fn read_block(
    inputs: &Inputs,
    args: &ReportArgs,
    also: Option<ReportBy>,
    hints: Option<StackHints>,
) -> Result<BlockReports, Failure> {
    // The trace of the current event; lookups of names during the event need it.
    let at = &Cell::new(0);
    let attribution = Attribution::new(inputs, args);
    let (files, devices) = inputs.names();
    let mut uses = FileUses::new(|tid, time| attribution.member(at.get(), tid, time), &files, cache_shown(inputs));
    let new = |by: Option<ReportBy>| {
        let attribution = by.map_or(attribution, |by| attribution.by(by));
        let lookup = move |tid, time| attribution.lasting_member(at.get(), tid, time);
        let (stacked, requests_alone) = (hints.clone(), args.requests_alone);
        let records_completions = args.records_completions;
        let setup = BlockSetup { stacked, requests_alone, records_completions, ..BlockSetup::of(inputs.traces()) };
        BlockAnalysis::new(lookup, setup).only(args.process.as_deref())
    };
    let (mut analysis, mut other) = (new(None), also.map(|by| new(Some(by))));
    let mut accuracy = Accuracy::of(cache_shown(inputs));
    let lookup = |tid, time| attribution.thread_or_wanted(at.get(), tid, time);
    let mut for_findings = FindingInputs::new(lookup, args.process.as_deref(), inputs);
    // blktrace's records have no events of the page cache.
    let shows_cache = inputs.traces().any(|trace| trace.kind() != TraceKind::Blktrace);
    let mut first = None;
    let mut owners: HashMap<Device, usize> = HashMap::new();
    let mut twice = None;
    let (of_several_machines, has_recorder) = (inputs.of_several_machines(), inputs.has_recorder());
    let traces: Vec<&Trace> = inputs.traces().collect();
    let shows_all = args.from.is_none() && args.to.is_none() && args.shown_until.is_empty();
    inputs.for_each(&mut |source, event| {
        at.set(source);
        if of_several_machines && let EventKind::Block(block) = &event.kind {
            let machine = inputs.machine(source);
            let owner = *owners.entry(block.device).or_insert(machine);
            if owner != machine {
                twice.get_or_insert((block.device, owner, source));
            }
        }
        let begins = event.kind == EventKind::Recording;
        let shown = shows_all || begins || in_time(event, *first.get_or_insert(event.time.0), args);
        let follow = |analysis: &mut BlockAnalysis<_>| {
            if traces[source].met_gap() {
                analysis.events_are_missing();
            }
            // I/O outside of the range is analysed too, because other I/O waits for it.
            analysis.in_range(shown);
            analysis.event(event);
        };
        follow(&mut analysis);
        if let Some(other) = &mut other {
            follow(other);
        }
        if of_several_machines && inputs.machine(source) != 0 {
            return;
        }
        // The recorder's I/O is not part of the workload.
        let by_recorder = shown && !begins && has_recorder && inputs.recorder(source, event.tid).is_some();
        for_findings.event(event, shown && !by_recorder);
        // The device's own work has no task and no file.
        let is_block = matches!(event.kind, EventKind::Block(_));
        if !shown || is_block && !shows_cache {
            return;
        }
        let is_wanted = begins || !is_block && attribution.is_wanted(source, event.tid, event.time);
        if is_wanted {
            uses.event(event);
        }
        if shows_cache && (is_block || is_wanted) {
            accuracy.event(event);
        }
    })?;
    twice.map_or(Ok(()), |twice| Err(in_two_traces(inputs, twice)))?;
    std::iter::once(&mut analysis).chain(&mut other).for_each(|one| one.losses(&inputs.merged().losses()));
    let findings = analysis.finish();
    let shown = shown(&findings.stages);
    if let Some(process) = args.process.as_ref().filter(|_| shown == 0) {
        return Err(no_bio_of(process, &findings, args));
    }
    let missing = missing_events(inputs, &findings);
    let mut report = BlockReport {
        schema: BLOCK_REPORT_SCHEMA,
        title: inputs.title(),
        system: system(inputs),
        losses: inputs.losses(),
        missing,
        readahead: readahead(accuracy, inputs),
        names: uses.finish_with(&devices, direct_of_one_machine(inputs, &findings)),
        findings: Vec::new(),
        calls: CallsFound::default(),
        found: findings,
    };
    name_block_files(&mut report, &files);
    for one in &mut report.found.originators.originators {
        one.former_names = inputs.former_names(one.tid, &one.name);
    }
    for_findings.of_block(inputs, &mut report);
    Ok((report, other.map(Analysis::finish)))
}

/// The error for a device that is in two traces, named by their numbers.
fn in_two_traces(inputs: &Inputs, (device, a, b): (Device, usize, usize)) -> Failure {
    let path = |i: usize| inputs.merged().sources()[i].trace.path().display();
    Failure::new(format!(
        "{}: its device {device} is in {} too, and the traces may be of different boots, so their requests cannot be \
         distinguished; report them one at a time",
        path(b),
        path(a)
    ))
}

/// Number of bios, or of requests if no bio is known; if neither is counted, of events.
fn shown(stages: &StagesFound) -> u64 {
    let count = match stages.unit {
        Unit::Bio => &stages.bios_queued,
        Unit::Request => &stages.requests,
    };
    count.known().copied().unwrap_or(stages.events)
}

/// The error if the requested process has no bios, with the names of processes that have.
fn no_bio_of(process: &str, findings: &BlockFound, args: &ReportArgs) -> Failure {
    let mut names: Vec<&str> = findings.originators.originators.iter().map(|one| one.name.as_str()).collect();
    names.truncate(10);
    Failure::new(format!(
        "--process {}: no {} of a task with that name{}{}",
        flashscope_report::visible(process),
        if findings.stages.unit == Unit::Bio { "bio" } else { "request" },
        if args.from.is_some() || args.to.is_some() { " in this time" } else { "" },
        match names.is_empty() {
            true => String::new(),
            false => format!("; there are bios of: {}", flashscope_report::visible(&names.join(", "))),
        }
    ))
}

/// Events that the kernels lack, and events that the traces lack.
fn missing_events(inputs: &Inputs, findings: &BlockFound) -> Vec<MissingEvent> {
    let mut missing: Vec<MissingEvent> = Vec::new();
    let of_trace = |trace: &Trace| {
        let calls = trace.schemas().filter_map(|schema| schema.name.strip_prefix("sys_enter"));
        let calls = MissingEvent::of_calls(trace.facts(), calls.map(|call| call.trim_start_matches('_')));
        MissingEvent::of_facts(trace.facts()).into_iter().chain(calls).collect::<Vec<_>>()
    };
    missing.extend(inputs.traces().filter_map(Trace::commands).map(MissingEvent::of_commands));
    for one in inputs.traces().flat_map(of_trace) {
        if !missing.contains(&one) {
            missing.push(one);
        }
    }
    missing.extend(MissingEvent::of_findings(findings));
    missing
}

/// The error for a range without events, with the length of the trace.
fn nothing_in_range(inputs: &Inputs, args: &ReportArgs, nothing: bool) -> Result<(), Failure> {
    if !nothing || args.from.is_none() && args.to.is_none() && args.process.is_none() {
        return Ok(());
    }
    let mut span: Option<(u64, u64)> = None;
    inputs.for_each(&mut |_, event| {
        let (_, last) = span.get_or_insert((event.time.0, event.time.0));
        *last = event.time.0.max(*last);
    })?;
    let seconds = span.map_or(0.0, |(first, last)| last.saturating_sub(first) as f64 / 1e9);
    let of = |option: &str, value: Option<f64>| value.map_or(String::new(), |value| format!(" {option} {value}"));
    let process = args.process.as_ref().map_or(String::new(), |name| format!(" --process {name}"));
    let given = format!("{}{}{process}", of("--from", args.from), of("--to", args.to));
    Err(Failure::new(format!(
        "{}: no event is within{}; the trace has events from 0 to {seconds:.6} s after the first",
        inputs.title(),
        flashscope_report::visible(&given)
    )))
}

/// One pass over the traces, for the selected range and process.
pub fn flash_report(inputs: &Inputs, args: &ReportArgs) -> Result<FlashReport, Failure> {
    let (chips, first_chips) = all_chips(inputs);
    let shapes: Vec<_> = chips.iter().map(|chip| (chip.chip, chip.geometry(), chip.blocks)).collect();
    // The trace of the current event; lookups of names during the event need it.
    let at = Cell::new(0);
    let partitions = all_partitions(inputs, &first_chips);
    let ubi: Vec<UbiRegion> = inputs
        .traces()
        .zip(&first_chips)
        .flat_map(|(trace, first)| UbiRegion::of_facts(trace.facts(), *first))
        .collect();
    let attribution = Attribution::new(inputs, args);
    let (files, devices) = inputs.names();
    let mut uses = FileUses::new(|tid, time| attribution.member(at.get(), tid, time), &files, cache_shown(inputs));
    let mut analysis =
        FlashAnalysis::new(&shapes, &partitions, &ubi, |tid, time| task(&attribution, at.get(), tid, time))
            .with_yaffs2_on(&yaffs2_partitions(inputs, &first_chips))
            .with_mounts_on(&devices_on_flash(inputs))
            .shows_operations(inputs.traces().any(is_of_flash));
    let mut first = None;
    let mut accuracy = Accuracy::of(cache_shown(inputs));
    let lookup = |tid, time| attribution.thread_or_wanted(at.get(), tid, time);
    let mut for_findings = FindingInputs::new(lookup, args.process.as_deref(), inputs);
    inputs.for_each(&mut |source, event| {
        let begin = *first.get_or_insert(event.time.0);
        at.set(source);
        if inputs.machine(source) == 0 {
            let is_own = inputs.recorder(source, event.tid).is_some();
            for_findings.event(event, in_time(event, begin, args) && !is_own);
        }
        if event.kind != EventKind::Recording && !wanted(event, source, begin, &attribution, args) {
            return;
        }
        if inputs.machine(source) == 0 {
            accuracy.event(event);
            uses.event(event);
        }
        match (&event.kind, inputs.machine(source)) {
            (_, 0) => analysis.event(event),
            (EventKind::Flash(access), machine) => {
                let chip = access.chip.saturating_add(first_chips[machine]);
                let kind = EventKind::Flash(FlashAccess { chip, ..*access });
                analysis.event(&Event { kind, tid: tagged(event.tid, machine), ..*event });
            }
            (_, machine) => analysis.event(&Event { tid: tagged(event.tid, machine), ..event.clone() }),
        }
    })?;
    let mut probes_of_all: Vec<ProbeFacts> = Vec::new();
    for probe in inputs.traces().flat_map(|trace| probes(trace.facts())) {
        if !probes_of_all.contains(&probe) {
            probes_of_all.push(probe);
        }
    }
    let findings = analysis.finish();
    let life = match &args.endurance {
        Some(cycles) => {
            let cycles = endurance(cycles)?;
            let wear = findings.wear.known();
            let of = |chip: &ChipShape| life(wear?, chip.chip, cycles, used(inputs, chip.chip));
            chips.iter().filter_map(of).collect()
        }
        None => Vec::new(),
    };
    let mut report = FlashReport {
        schema: FLASH_REPORT_SCHEMA,
        title: inputs.title(),
        system: system(inputs),
        chips,
        life,
        probes: probes_of_all,
        health: inputs.traces().flat_map(|trace| Health::of_recording(trace.facts(), trace.stats())).collect(),
        losses: inputs.losses(),
        readahead: readahead(accuracy, inputs),
        names: uses.finish(&devices),
        findings: Vec::new(),
        calls: CallsFound::default(),
        found: findings,
    };
    name_flash_files(&mut report, &files);
    for_findings.of_flash(inputs, &mut report);
    Ok(report)
}

fn cache_shown(inputs: &Inputs) -> CacheShown {
    inputs.traces().map(Trace::cache_shown).fold(CacheShown::default(), CacheShown::or)
}

/// Pages that read-ahead brought in; unknown if no trace shows their use.
fn readahead(followed: Accuracy, inputs: &Inputs) -> Option<Evidence<AccuracyFindings>> {
    let mut found = Some(followed.finish()).filter(|found| !found.total.is_empty())?;
    for task in &mut found.tasks {
        task.name = inputs.comm(0, task.tid, TimeNs(u64::MAX)).map(str::to_owned);
    }
    const NEXT: &str = "record with `flashscope record --events block,cache,syscall`";
    let is_of_unknown_origin = found.total.requested == 0 && found.total.ahead == 0;
    Some(match cache_shown(inputs).reads {
        true if is_of_unknown_origin => Evidence::unknown(
            "no read asked for the pages that came into the page cache, and the trace has no event that shows writes \
             (writeback:writeback_dirty_folio, or the calls): whether they were read ahead or written is unknown",
            NEXT,
        ),
        true => found.into(),
        false => Evidence::unknown(
            "the trace has pages that came into the page cache and no event that shows reads (flashscope:file_read, or \
             filemap:mm_filemap_get_pages of Linux 6.12 and later): which of them were read ahead and used is unknown",
            format!("{NEXT} on a kernel with kprobe_events, or of 6.12 or later"),
        ),
    })
}

/// Rated erase cycles of a block: a number, or from a chip's file.
fn endurance(text: &str) -> Result<u64, Failure> {
    match text.parse() {
        Ok(0) => Err(Failure::usage("--endurance 0: not a number of erase cycles; use the figure from the data sheet")),
        Ok(cycles) => Ok(cycles),
        Err(_) => Ok(u64::from(flashscope_targets::board::Chip::load(text)?.erase_cycles)),
    }
}

/// Erases of a chip's most worn block before the recording, from UBI's counters.
fn used(inputs: &Inputs, chip: u16) -> u64 {
    let of_chip = inputs.traces().map(Trace::facts).flat_map(|facts| {
        let on = |mtd: Option<u64>| facts.mtd(mtd?)?.chip;
        facts.ubi.iter().filter(move |ubi| on(ubi.mtd_num) == Some(u64::from(chip)))
    });
    of_chip.filter_map(|ubi| ubi.max_ec).max().unwrap_or(0)
}

/// Thread ids are below 2²² (`PID_MAX_LIMIT`, `include/linux/threads.h`): higher bits distinguish machines.
const TID_BITS: u32 = 22;

fn tagged(tid: TaskId, machine: usize) -> TaskId {
    if !tid.has_number() {
        return tid;
    }
    TaskId(tid.0 | (machine as u32) << TID_BITS)
}

/// A thread's name. A thread without a name on another machine is distinguished from those of the first machine.
fn task<'w>(attribution: &Attribution<'w>, source: usize, tid: TaskId, time: TimeNs) -> Option<Cow<'w, str>> {
    let inputs = attribution.inputs;
    let machine = inputs.machine(source);
    let own = if machine == 0 || !tid.has_number() { tid } else { TaskId(tid.0 & ((1 << TID_BITS) - 1)) };
    match attribution.group(source, own, time) {
        Some(name) => Some(name),
        None if machine == 0 => None,
        None => Some(format!("tid {own} of {}", inputs.merged().sources()[machine].trace.path().display()).into()),
    }
}

/// The chips of all machines with consecutive numbers, and for each trace the number of its machine's first chip.
fn all_chips(inputs: &Inputs) -> (Vec<ChipShape>, Vec<u16>) {
    let (mut all, mut firsts, mut next) = (Vec::new(), Vec::new(), 0u16);
    for (source, trace) in inputs.traces().enumerate() {
        let machine = inputs.machine(source);
        firsts.push(if machine == source { next } else { firsts[machine] });
        let (first, own) = (firsts[source], chips(trace.facts()));
        let several = inputs.of_several_machines();
        for chip in own {
            let number = chip.chip.saturating_add(first);
            next = next.max(number.saturating_add(1));
            let name = if several { format!("{} of {}", chip.name, trace.path().display()) } else { chip.name };
            if !all.iter().any(|known: &ChipShape| known.chip == number) {
                all.push(ChipShape { chip: number, name, ..chip });
            }
        }
        // A log without a description of its chip has one chip.
        next = next.max(first.saturating_add(1));
    }
    (all, firsts)
}

/// Chip, first erase block and number of blocks of every MTD partition with a known place.
fn all_partitions(inputs: &Inputs, first_chips: &[u16]) -> Vec<(u16, u64, u64)> {
    let each = inputs.traces().zip(first_chips);
    each.flat_map(|(trace, first)| trace_partitions(trace.facts(), *first).map(|(_, place)| place)).collect()
}

/// Those of them with YAFFS2: it was mounted at the beginning of a recording, or its thread exists during it.
fn yaffs2_partitions(inputs: &Inputs, first_chips: &[u16]) -> Vec<(u16, u64, u64)> {
    let mut all = Vec::new();
    for (trace, first) in inputs.traces().zip(first_chips) {
        let facts = trace.facts();
        let tasks = trace.tasks();
        let is_mounted = |index: u64| {
            let of = |mount: &Mount| {
                let source = mount.source.as_deref().unwrap_or_default();
                let here = source == format!("mtd{index}") || source.ends_with(&format!("/mtdblock{index}"));
                (mount.is("yaffs") || mount.is("yaffs2")) && here
            };
            let thread = format!("yaffs2_gc_mtd{index}");
            facts.mounts.iter().any(of) || tasks.iter().any(|(_, name)| *name == thread)
        };
        all.extend(trace_partitions(facts, *first).filter(|(index, _)| is_mounted(*index)).map(|(_, place)| place));
    }
    all
}

/// Devices of mounts on raw flash, of the first machine.
fn devices_on_flash(inputs: &Inputs) -> Vec<Device> {
    let storage = inputs.traces().next().map(StorageFacts::of_recording).unwrap_or_default();
    storage.flash_mounts().filter_map(|mount| Device::parse(&mount.device)).collect()
}

/// For each MTD device of a trace with a known place: its number; chip, first erase block, and number of blocks.
fn trace_partitions(facts: &Facts, first_chip: u16) -> impl Iterator<Item = (u64, (u16, u64, u64))> + '_ {
    facts.mtd.iter().filter_map(move |mtd| {
        let block = mtd.erasesize.filter(|&bytes| bytes > 0)?;
        let chip = u16::try_from(mtd.chip?).ok()?.saturating_add(first_chip);
        Some((mtd.index.unwrap_or(u64::MAX), (chip, mtd.offset? / block, mtd.size? / block)))
    })
}

/// Whether a trace can show flash operations.
pub fn is_of_flash(trace: &Trace) -> bool {
    let is_flash = |s: &Schema| s.system.starts_with("flashscope") && s.name.starts_with("nand_");
    trace.kind() == TraceKind::FlashmonLog || trace.schemas().any(|schema| is_flash(schema))
}

/// The error for traces without storage events: their events, and how to record storage events.
fn nothing_to_report(inputs: &Inputs) -> Failure {
    const NAMED: usize = 8;
    if let Some(failure) = inputs.without_block_size() {
        return failure;
    }
    let paths: Vec<String> = inputs.traces().map(|trace| trace.path().display().to_string()).collect();
    let mut names: Vec<String> = inputs
        .traces()
        .flat_map(Trace::schemas)
        // `text` is the placeholder for missing names in text.
        .filter(|schema| schema.system != "ftrace" && schema.name != "text")
        .map(|schema| match &*schema.system {
            "text" | "" => schema.name.clone(),
            system => format!("{system}:{}", schema.name),
        })
        .collect();
    names.sort();
    names.dedup();
    let more = names.len().saturating_sub(NAMED);
    names.truncate(NAMED);
    let there = match names.is_empty() {
        true => "no events at all".to_owned(),
        false => format!("these: {}", names.join(", ")),
    };
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let layers = match inputs.traces().any(|trace| trace.crossings().are_there()) {
        true => "; its calls and layers are shown by `flashscope report --by layer`",
        false => "",
    };
    Failure::new(format!(
        "{}: has no events of block I/O (block:block_bio_queue, block_rq_issue, block_rq_complete) and none of raw flash \
         (flashscope:nand_read, nand_program, nand_erase); it has {}{more}. Record a disk, an eMMC or an SD card with `flashscope record \
         --events block` or `trace-cmd record -e block`, raw flash with `flashscope record --events flash`{layers}",
        paths.join(", "),
        flashscope_report::visible(&there)
    ))
}

/// Whether another tool's traces have no step, and nothing else for a report. In flashscope's own traces, zero I/O is a result, because the
/// facts tell what was recorded.
fn nothing_happened(inputs: &Inputs, report: &BlockReport) -> bool {
    let others = inputs.traces().all(|trace| trace.facts_json()["recording"].is_null());
    let calls = !report.calls.by_process.is_empty() || !report.calls.slowest.is_empty();
    others && report.found.stages.events == 0 && report.readahead.is_none() && !calls
}

fn nothing_recorded(inputs: &Inputs) -> Failure {
    let lost: Vec<String> = inputs
        .losses()
        .iter()
        .filter(|loss| loss.count > 0)
        .map(|loss| format!("{} {}", loss.name, loss.count))
        .collect();
    let lost = if lost.is_empty() { String::new() } else { format!(" It is not complete: {}.", lost.join(", ")) };
    let others = ["block_io_start", "block_io_done", "block_rq_error"];
    let seen: Vec<&str> =
        others.into_iter().filter(|name| inputs.traces().any(|trace| has_event(trace, "block", name))).collect();
    // Text has formats only of events that happened; a binary trace has those of all recorded events.
    if !seen.is_empty() && inputs.traces().all(|trace| !has_event(trace, "block", "block_rq_complete")) {
        return Failure::new(format!(
            "{}: has {} alone, and no block_rq_issue and block_rq_complete: how long the device took does not follow.{lost} Record these \
             too, with `flashscope record --events block -- COMMAND` or `trace-cmd record -e block`",
            inputs.title(),
            seen.join(" and ")
        ));
    }
    Failure::new(format!(
        "{}: has no step of block I/O: none happened while it was recorded, or none was kept.{lost} Record again while the device is \
         used, with `flashscope record --events block -- COMMAND` or `blktrace -d DEVICE`",
        inputs.title()
    ))
}

fn has_event(trace: &Trace, system: &str, name: &str) -> bool {
    trace.schemas().any(|schema| schema.system == system && schema.name == name)
}

/// Whether a trace has block events and no flash events.
pub fn is_of_block_io(trace: &Trace) -> bool {
    let has =
        |system: &str, name: &str| trace.schemas().any(|s| s.system.starts_with(system) && s.name.starts_with(name));
    let has_commands = || trace.commands().is_some_and(|commands| commands.without_block_size.is_empty());
    trace.kind() == TraceKind::Blktrace || (has("block", "block_") || has_commands()) && !has("flashscope", "nand_")
}

#[inline]
fn in_time(event: &Event, begin: u64, args: &ReportArgs) -> bool {
    let before = args.shown_until.get(usize::from(event.cpu)).copied().flatten();
    if before.is_some_and(|until| event.time <= until) {
        return false;
    }
    if args.from.is_none() && args.to.is_none() {
        return true;
    }
    let seconds = event.time.0.saturating_sub(begin) as f64 / 1e9;
    args.from.is_none_or(|from| seconds >= from) && args.to.is_none_or(|to| seconds <= to)
}

fn wanted(event: &Event, source: usize, begin: u64, attribution: &Attribution<'_>, args: &ReportArgs) -> bool {
    in_time(event, begin, args) && attribution.is_wanted(source, event.tid, event.time)
}

/// One shape per chip, from its partitions: their sizes add up to the visible part of the chip.
pub fn chips(facts: &Facts) -> Vec<ChipShape> {
    let mut chips: Vec<ChipShape> = Vec::new();
    for mtd in &facts.mtd {
        let (page, block) = (mtd.writesize.unwrap_or(0), mtd.erasesize.unwrap_or(0));
        if page == 0 || block < page {
            continue;
        }
        let chip = mtd.chip.and_then(|chip| u16::try_from(chip).ok()).unwrap_or(0);
        // A master device that is listed besides its partitions covers them.
        let end = mtd.offset.unwrap_or(0).saturating_add(mtd.size.unwrap_or(0)) / block;
        let end = u32::try_from(end).unwrap_or(u32::MAX);
        match chips.iter_mut().find(|known| known.chip == chip) {
            Some(known) => known.blocks = known.blocks.max(end),
            None => chips.push(ChipShape {
                chip,
                name: mtd.name.clone().unwrap_or_default(),
                page_bytes: u32::try_from(page).unwrap_or(u32::MAX),
                pages_per_block: u32::try_from(block / page).unwrap_or(u32::MAX),
                blocks: end,
            }),
        }
    }
    chips
}

/// Facts of several traces, equal ones once; the number of CPUs is that of the machine with most.
fn system(inputs: &Inputs) -> SystemFacts {
    let text = |said: &Option<String>| said.clone().unwrap_or_default();
    let each = |of: &dyn Fn(&Trace) -> Vec<String>| {
        let mut all: Vec<String> = Vec::new();
        for said in inputs.traces().flat_map(of) {
            if !said.is_empty() && !all.contains(&said) {
                all.push(said);
            }
        }
        all
    };
    let joined = |of: &dyn Fn(&Trace) -> String| each(&|trace| vec![of(trace)]).join(", ");
    SystemFacts {
        kernel_release: joined(&|trace| text(&trace.facts().kernel.release)),
        machine: joined(&|trace| text(&trace.facts().kernel.machine)),
        cpus: inputs.traces().map(Trace::cpus).max().unwrap_or(0),
        agent_version: joined(&|trace| text(&trace.facts().agent.version)),
        clock: joined(&|trace| trace.clock().to_owned()),
        mounts: each(&|trace| mounts(trace.facts())),
        wear: own_wear(inputs),
        captured: each(&|trace| trace.facts().recording.trigger.iter().map(|trigger| text(&trigger.reason)).collect()),
        limited_to: each(&|trace| vec![limits(&trace.facts().recording.filter)]),
    }
}

/// The filter as options of `record`.
fn limits(filter: &Filter) -> String {
    let numbers: Vec<String> = filter.pid.iter().map(i64::to_string).collect();
    let options = [("comm", &filter.comm), ("pid", &numbers), ("cgroup", &filter.cgroup), ("device", &filter.device)];
    let options = options.into_iter().flat_map(|(name, all)| all.iter().map(move |one| format!("--{name} {one}")));
    options.collect::<Vec<_>>().join(" ")
}

/// For several traces of one boot, the first one: each trace has the state when its recording began.
fn own_wear(inputs: &Inputs) -> Vec<OwnWear> {
    let of = |source: usize, trace: &Trace| match inputs.machine(source) == source {
        true => OwnWear::of_facts(trace.facts()),
        false => Vec::new(),
    };
    inputs.traces().enumerate().flat_map(|(source, trace)| of(source, trace)).collect()
}

fn mounts(facts: &Facts) -> Vec<String> {
    let text = |said: &Option<String>| said.clone().unwrap_or_default();
    let storage = |mount: &&Mount| {
        matches!(mount.kind.as_deref(), Some("jffs2" | "ubifs" | "yaffs2" | "squashfs" | "ext4" | "f2fs"))
    };
    let line = |mount: &Mount| format!("{} on {} at {}", text(&mount.kind), text(&mount.source), text(&mount.target));
    facts.mounts.iter().filter(storage).map(line).collect()
}

fn probes(facts: &Facts) -> Vec<ProbeFacts> {
    let text = |said: &Option<String>| said.clone().unwrap_or_default();
    let probes = facts.recording.probes.iter().map(|probe| ProbeFacts {
        event: text(&probe.event),
        operation: text(&probe.operation),
        symbol: text(&probe.symbol),
        level: text(&probe.level),
        loses: text(&probe.loses),
    });
    probes.collect()
}
