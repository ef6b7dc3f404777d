//! `report`: what one trace holds.

use std::collections::HashMap;

use flashscope_analysis::block::{BLOCK_REPORT_SCHEMA, BlockAnalysis, BlockReport};
use flashscope_analysis::{
    Analysis, ChipShape, FLASH_REPORT_SCHEMA, FlashAnalysis, FlashReport, ProbeFacts, SystemFacts,
};
use flashscope_trace::{Device, Event, Trace, TraceKind};
use serde_json::Value;

use crate::args::ReportArgs;
use crate::failure::Failure;
use crate::study::style;

pub fn run(args: &ReportArgs) -> Result<(), Failure> {
    for (option, value) in [("--from", args.from), ("--to", args.to)] {
        if value.is_some_and(|seconds| !seconds.is_finite() || seconds < 0.0) {
            return Err(Failure::usage(format!("{option}: seconds after the first event, 0 or more")));
        }
    }
    let trace = Trace::open(&args.trace)?;
    if is_of_block_io(&trace) {
        let report = block_report(&trace, args)?;
        if args.html.is_some() {
            return Err(Failure::usage("--html: there is no page of block I/O yet; take --json, or the text"));
        }
        if args.json {
            print!("{}", flashscope_report::json::block(&report));
        } else {
            print!("{}", flashscope_report::terminal::block(&report, &style()));
        }
        return Ok(());
    }
    let report = flash_report(&trace, args)?;
    if let Some(page) = &args.html {
        std::fs::write(page, flashscope_report::html::flash(&report))
            .map_err(|error| Failure::new(format!("{}: {error}; name another file with --html", page.display())))?;
    }
    if args.json {
        print!("{}", flashscope_report::json::flash(&report));
    } else {
        print!("{}", flashscope_report::terminal::flash(&report, &style()));
    }
    Ok(())
}

/// What a trace of block I/O holds.
fn block_report(trace: &Trace, args: &ReportArgs) -> Result<BlockReport, Failure> {
    let mut analysis =
        BlockAnalysis::new(|tid, time| trace.comm(tid, time), block_bytes(trace.facts())).only(args.process.as_deref());
    let mut first = None;
    trace.for_each(&mut |event| {
        let begin = *first.get_or_insert(event.time.0);
        if in_time(event, begin, args) {
            analysis.event(event);
        }
    })?;
    Ok(BlockReport {
        schema: BLOCK_REPORT_SCHEMA,
        title: title(args),
        system: system(trace, trace.facts()),
        losses: flashscope_study::losses(trace),
        findings: analysis.finish(),
    })
}

/// The block size of each mounted file system, by its device.
fn block_bytes(facts: &Value) -> HashMap<Device, u64> {
    let mounts = facts["mounts"].as_array().into_iter().flatten();
    mounts
        .filter_map(|mount| {
            let (major, minor) = mount["device"].as_str()?.split_once(':')?;
            let device = Device::new(major.parse().ok()?, minor.parse().ok()?);
            Some((device, mount["block_bytes"].as_u64()?))
        })
        .collect()
}

fn title(args: &ReportArgs) -> String {
    args.trace.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// One pass over the trace, of what the options let through.
fn flash_report(trace: &Trace, args: &ReportArgs) -> Result<FlashReport, Failure> {
    let facts = trace.facts();
    let chips = chips(facts);
    let shapes: Vec<_> = chips.iter().map(|chip| (chip.chip, chip.geometry())).collect();
    let mut analysis = FlashAnalysis::new(&shapes, |tid, time| trace.comm(tid, time));
    let mut first = None;
    trace.for_each(&mut |event| {
        let begin = *first.get_or_insert(event.time.0);
        if wanted(event, begin, trace, args) {
            analysis.event(event);
        }
    })?;
    Ok(FlashReport {
        schema: FLASH_REPORT_SCHEMA,
        title: title(args),
        system: system(trace, facts),
        chips,
        probes: probes(facts),
        losses: flashscope_study::losses(trace),
        findings: analysis.finish(),
    })
}

/// A trace of block events, and of no flash.
fn is_of_block_io(trace: &Trace) -> bool {
    let has =
        |system: &str, name: &str| trace.schemas().any(|s| s.system.starts_with(system) && s.name.starts_with(name));
    trace.kind() == TraceKind::Blktrace || has("block", "block_") && !has("flashscope", "nand_")
}

fn in_time(event: &Event, begin: u64, args: &ReportArgs) -> bool {
    let seconds = event.time.0.saturating_sub(begin) as f64 / 1e9;
    args.from.is_none_or(|from| seconds >= from) && args.to.is_none_or(|to| seconds <= to)
}

fn wanted(event: &Event, begin: u64, trace: &Trace, args: &ReportArgs) -> bool {
    in_time(event, begin, args)
        && args.process.as_ref().is_none_or(|process| trace.comm(event.tid, event.time) == Some(process.as_str()))
}

/// One shape a chip, from its partitions: their sizes add up to what of the chip is visible.
pub fn chips(facts: &Value) -> Vec<ChipShape> {
    let mut chips: Vec<ChipShape> = Vec::new();
    for mtd in facts["mtd"].as_array().into_iter().flatten() {
        let number = |field: &str| mtd[field].as_u64().unwrap_or(0);
        let (page, block) = (number("writesize"), number("erasesize"));
        if page == 0 || block < page {
            continue;
        }
        let chip = u16::try_from(number("chip")).unwrap_or(0);
        // A master that is listed beside its partitions covers them.
        let end = number("offset").saturating_add(number("size")) / block;
        let end = u32::try_from(end).unwrap_or(u32::MAX);
        match chips.iter_mut().find(|known| known.chip == chip) {
            Some(known) => known.blocks = known.blocks.max(end),
            None => chips.push(ChipShape {
                chip,
                name: mtd["name"].as_str().unwrap_or_default().to_owned(),
                page_bytes: u32::try_from(page).unwrap_or(u32::MAX),
                pages_per_block: u32::try_from(block / page).unwrap_or(u32::MAX),
                blocks: end,
            }),
        }
    }
    chips
}

fn system(trace: &Trace, facts: &Value) -> SystemFacts {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    SystemFacts {
        kernel_release: text(&facts["kernel"]["release"]),
        machine: text(&facts["kernel"]["machine"]),
        cpus: trace.cpus(),
        agent_version: text(&facts["agent"]["version"]),
        clock: trace.clock().to_owned(),
        mounts: facts["mounts"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|mount| {
                matches!(mount["type"].as_str(), Some("jffs2" | "ubifs" | "yaffs2" | "squashfs" | "ext4" | "f2fs"))
            })
            .map(|mount| {
                format!("{} on {} at {}", text(&mount["type"]), text(&mount["source"]), text(&mount["target"]))
            })
            .collect(),
    }
}

fn probes(facts: &Value) -> Vec<ProbeFacts> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    facts["recording"]["probes"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|probe| ProbeFacts {
            event: text(&probe["event"]),
            operation: text(&probe["operation"]),
            symbol: text(&probe["symbol"]),
            level: text(&probe["level"]),
            loses: text(&probe["loses"]),
        })
        .collect()
}
