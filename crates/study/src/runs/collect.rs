//! Reads a boot's port file as one group of results.

use std::path::Path;

use flashscope_analysis::Analysis as _;
use flashscope_analysis::flash::{ByTask, Geometry, OpCounts, Span, TimelineFold};
use flashscope_targets::board::Chip;
use flashscope_trace::{Event, EventKind, FlashOp, Session, Trace};
use serde::Deserialize;

use super::definition::Tracer;
use super::plan::{IDLE_STEPS, PHASE_AFTER, PostmarkWork, RAW_STEPS, RunSpec, STEP_POSTMARK, Work};
use super::result::{Part, PostmarkFacts, RingUse, RunGroup, Share};
use crate::collect::losses;
use crate::definition::Readahead;
use crate::error::StudyError;
use crate::lab;
use crate::result::Inputs;

/// The used fields of the agent's `bench postmark` object.
#[derive(Debug, Deserialize)]
struct Bench {
    contents: String,
    size_min_bytes: u64,
    size_max_bytes: u64,
    readahead: BenchReadahead,
    phases: Phases,
    total_ns: u64,
    created: u64,
    read: u64,
    appended: u64,
    bytes_read: u64,
    bytes_written: u64,
    read_ns: u64,
    write_ns: u64,
    shares: Vec<Share>,
    checksum: u32,
}

#[derive(Debug, Deserialize)]
struct BenchReadahead {
    effective_kib: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct Phases {
    create: Interval,
    transactions: Interval,
    delete: Interval,
}

#[derive(Debug, Deserialize)]
struct Interval {
    begin_ns: u64,
    end_ns: u64,
}

fn part(name: &str, begin_ns: u64, end_ns: u64) -> Part {
    Part { name: name.to_owned(), begin_ns, end_ns, counts: None, last_ns: None, last_erase_ns: None }
}

pub(super) fn collect(port: &Path, spec: &RunSpec, inputs: Inputs, chip: &Chip) -> Result<RunGroup, StudyError> {
    let session = Session::open(port)?;
    let (mut parts, total_ns, postmark) = match &spec.work {
        Work::Raw(_) => {
            let parts = RAW_STEPS.iter().map(|step| raw_part(&session, spec, step)).collect::<Result<Vec<_>, _>>()?;
            let total_ns = parts.iter().map(Part::duration_ns).sum();
            (parts, total_ns, None)
        }
        Work::Postmark(work) => postmark_parts(&session, spec, work)?,
    };
    let mut group = RunGroup {
        id: spec.id(),
        name: spec.name.clone(),
        case: spec.case.clone(),
        inputs,
        tracer: spec.tracer,
        chip: chip.name.clone(),
        geometry: Geometry { page_bytes: chip.page_bytes, pages_per_block: chip.pages_per_block },
        chip_blocks: chip.blocks,
        partition_bytes: spec.partition.0,
        postmark,
        total_ns,
        busy_ns: None,
        parts: Vec::new(),
        all: None,
        by_task: Vec::new(),
        timelines: Vec::new(),
        ring: None,
        losses: Vec::new(),
    };
    if spec.compared && group.postmark.is_some() {
        let [before, after] =
            IDLE_STEPS.map(|step| lab::finished(&session, &spec.id(), step).and_then(|done| busy(spec, done)));
        group.busy_ns = Some(after?.saturating_sub(before?));
    }
    if spec.tracer != Tracer::None {
        let trace = session.recording(0)?;
        lab::whole(&trace, &spec.id(), "its operations are unknown; take a smaller workload")?;
        count(&trace, &mut parts, &mut group)?;
        group.losses = losses(&trace);
        group.inputs = group.inputs.recorded(trace.facts());
        let bytes = session.recordings.first().map_or(0, |recording| recording.bytes);
        // The bytes of flashmon's events in the trace say nothing about its log, whose entries have a fixed size.
        group.ring = group.ring.filter(|_| !spec.tracer.is_flashmon()).map(|ring| RingUse { bytes, ..ring });
    }
    group.parts = parts;
    Ok(group)
}

/// The time of a program from its start to its end.
fn raw_part(session: &Session, spec: &RunSpec, step: &str) -> Result<Part, StudyError> {
    let done = lab::finished(session, &spec.id(), step)?;
    match (done.begin_ns, done.end_ns) {
        (Some(begin_ns), Some(end_ns)) => Ok(part(step, begin_ns, end_ns)),
        _ => Err(StudyError::Step { group: spec.id(), step: step.to_owned(), why: "has no times".to_owned() }),
    }
}

/// Time that the processor was not idle since it started, from `/proc/uptime`, whose times are in hundredths of a second.
fn busy(spec: &RunSpec, step: &flashscope_trace::Step) -> Result<u64, StudyError> {
    let text = String::from_utf8_lossy(&step.stdout);
    let hundredths = |word: Option<&str>| -> Option<u64> {
        let (seconds, rest) = word?.split_once('.')?;
        let rest = rest.parse::<u64>().ok().filter(|_| rest.len() == 2)?;
        seconds.parse::<u64>().ok()?.checked_mul(100)?.checked_add(rest)
    };
    let mut words = text.split_whitespace().map(Some);
    let (up, idle) = (hundredths(words.next().flatten()), hundredths(words.next().flatten()));
    up.zip(idle).and_then(|(up, idle)| up.checked_sub(idle)?.checked_mul(10_000_000)).ok_or_else(|| StudyError::Step {
        group: spec.id(),
        step: step.name.clone(),
        why: format!("printed {text:?}, not the processor's two times"),
    })
}

type PostmarkParts = (Vec<Part>, u64, Option<PostmarkFacts>);

fn postmark_parts(session: &Session, spec: &RunSpec, work: &PostmarkWork) -> Result<PostmarkParts, StudyError> {
    let failed = |why: String| StudyError::Step { group: spec.id(), step: STEP_POSTMARK.to_owned(), why };
    let bench: Bench = lab::printed(session, &spec.id(), STEP_POSTMARK)?;
    if let (Readahead::Kib(asked), Some(got)) = (work.readahead, bench.readahead.effective_kib)
        && got != asked
    {
        return Err(failed(format!("ran with read-ahead {got} KiB, asked for {asked} KiB")));
    }
    let phases = &bench.phases;
    let mut parts: Vec<Part> =
        [("create", &phases.create), ("transactions", &phases.transactions), ("delete", &phases.delete)]
            .map(|(name, span)| part(name, span.begin_ns, span.end_ns))
            .into();
    let after = session.phases().iter().find(|phase| phase.name == PHASE_AFTER).and_then(|phase| phase.end_ns);
    if let Some(end_ns) = after {
        // This part includes the benchmark's own work after its last file: removing directories.
        parts.push(part(PHASE_AFTER, phases.delete.end_ns, end_ns));
    }
    let facts = PostmarkFacts {
        filesystem: work.filesystem.as_str().to_owned(),
        options: work.options.clone(),
        readahead: work.readahead.argument(),
        readahead_kib: bench.readahead.effective_kib,
        size_min_bytes: bench.size_min_bytes,
        size_max_bytes: bench.size_max_bytes,
        contents: bench.contents,
        created: bench.created,
        read: bench.read,
        appended: bench.appended,
        bytes_read: bench.bytes_read,
        bytes_written: bench.bytes_written,
        read_ns: bench.read_ns,
        write_ns: bench.write_ns,
        shares: bench.shares,
        crc32: bench.checksum,
    };
    Ok((parts, bench.total_ns, Some(facts)))
}

/// One pass over the events: counts by part, by task, and over time.
fn count(trace: &Trace, parts: &mut [Part], group: &mut RunGroup) -> Result<(), StudyError> {
    let begin = parts.first().map_or(0, |part| part.begin_ns);
    let end = parts.last().map_or(0, |part| part.end_ns);
    let worked = parts.iter().filter(|part| part.name != PHASE_AFTER).map(|part| part.end_ns).max().unwrap_or(end);
    let near = worked.saturating_add(worked.saturating_sub(begin)).min(end);
    for part in parts.iter_mut() {
        part.counts = Some(OpCounts::default());
    }
    let mut by_task = ByTask::new(|tid, time| trace.comm(tid, time));
    let mut timelines = [TimelineFold::default(), TimelineFold::default()];
    for part in parts.iter() {
        for (timeline, until) in timelines.iter_mut().zip([near, end]) {
            timeline.span(Span { name: part.name.clone(), begin_ns: part.begin_ns, end_ns: part.end_ns.min(until) });
        }
    }
    let (mut events, mut later) = (0u64, false);
    let mut all = OpCounts::default();
    trace.for_each(&mut |event: &Event| {
        let EventKind::Flash(access) = &event.kind else { return };
        events += 1;
        let time = event.time.0;
        if !(begin..end).contains(&time) {
            return;
        }
        all.add(access.op);
        by_task.event(event);
        timelines[1].event(event);
        if time < near {
            timelines[0].event(event);
        } else {
            later = true;
        }
        for part in parts.iter_mut().filter(|part| (part.begin_ns..part.end_ns).contains(&time)) {
            part.counts.get_or_insert_default().add(access.op);
            part.last_ns = part.last_ns.max(Some(time));
            if access.op == FlashOp::Erase {
                part.last_erase_ns = part.last_erase_ns.max(Some(time));
            }
        }
    })?;
    group.all = Some(all);
    group.by_task = by_task.finish();
    group.ring = Some(RingUse { events, bytes: 0 });
    let kept = if later { 2 } else { 1 };
    group.timelines = timelines.into_iter().take(kept).map(TimelineFold::finish).collect();
    Ok(())
}
