//! Reads a boot's port file as one group of results.

use std::ops::RangeInclusive;
use std::path::Path;

use flashscope_analysis::Analysis as _;
use flashscope_analysis::block::{
    BLOCK_REPORT_SCHEMA, BlockAnalysis, BlockFound, BlockReport, BlockSetup, InterferenceFound, IoPoint, RequestKind,
    Sizes, StagesFound,
};
use flashscope_targets::board::BootFailureKind;
use flashscope_trace::{EventKind, FlashOp, Session, TaskId, TimeNs, Trace};
use serde::Deserialize;

use super::plan::{ReplaySpec, STEP};
use super::result::{Delay, LeverRefused, Pattern, Played, Player, ReadsSince, ReplayGroup, Stage};
use super::script::Verb;
use crate::collect::losses;
use crate::error::StudyError;
use crate::lab;
use crate::result::Inputs;

/// The used fields of the agent's `bench replay` object.
#[derive(Debug, Deserialize)]
struct Bench {
    start_ns: u64,
    measured: Span,
    tasks: Vec<Task>,
}

#[derive(Debug, Deserialize)]
struct Span {
    begin_ns: u64,
    end_ns: u64,
}

#[derive(Debug, Deserialize)]
struct Task {
    bytes_read: u64,
    end_ns: u64,
    bytes_written: u64,
    begins_ns: Vec<u64>,
    latencies_ns: Vec<u64>,
}

/// VLC's buffer of a file, seconds (its option file-caching).
const CACHING_S: f64 = 0.3;
const FRAMES_S: f64 = 30.0;
/// A burst begins after a pause of this length without a read.
const BURST_NS: u64 = 500_000_000;
/// A write within this time of a film's beginning belongs to it.
const BEGIN_NS: u64 = 2_000_000_000;

/// If the kernel lacks a lever, `bench replay` names the missing option after this text.
const OPTION: &str = " CONFIG_";

/// The result of a boot that ended because its kernel lacks the lever.
pub(super) fn refused(spec: &ReplaySpec, why: &BootFailureKind) -> Option<Played> {
    let BootFailureKind::PlanFailed { reason, .. } = why else { return None };
    let at = reason.find("cgroup ").filter(|_| reason.contains(OPTION))?;
    Some(Played::Refused(LeverRefused {
        case: spec.case.name.clone(),
        lever: spec.lever.name.clone(),
        kernel: spec.kernel.clone(),
        why: reason[at..].trim_end().to_owned(),
    }))
}

pub(super) fn collect(port: &Path, spec: &ReplaySpec, inputs: Inputs, medium: String) -> Result<Played, StudyError> {
    let session = Session::open(port)?;
    let bench: Bench = lab::printed(&session, &spec.id(), STEP)?;
    ran(&session, &bench, spec, inputs, medium).map(|group| Played::Ran(Box::new(group)))
}

fn ran(
    session: &Session,
    bench: &Bench,
    spec: &ReplaySpec,
    inputs: Inputs,
    medium: String,
) -> Result<ReplayGroup, StudyError> {
    let trace = session.recording(0)?;
    lab::whole(&trace, &spec.id(), "its requests are unknown; take shorter scripts")?;
    let mut block = analysis(&trace, spec);
    let (mut reads, mut programs, mut flash) = (0, 0, false);
    trace.for_each(&mut |event| {
        // The files are made before the first call.
        let shown = event.time.0 >= bench.start_ns && event.time.0 <= bench.measured.end_ns;
        if let (EventKind::Flash(access), true) = (&event.kind, shown) {
            flash = true;
            reads += u64::from(access.op == FlashOp::Read);
            programs += u64::from(access.op == FlashOp::Program);
        }
        block.in_range(shown);
        block.event(event);
    })?;
    let found = block.finish();
    let has_block = found.stages.bios_queued.known().is_some_and(|&n| n > 0);
    let mut delays = Vec::new();
    for &from_ns in spec.delay_from_ns.iter().filter(|_| has_block) {
        delays.extend(delay(spec, &trace, from_ns, bench.start_ns + from_ns..=bench.measured.end_ns)?);
    }
    let (own, others) = bench.tasks.split_at(spec.own_tasks.min(bench.tasks.len()));
    let mut group = ReplayGroup {
        id: spec.id(),
        name: spec.name.clone(),
        inputs: inputs.recorded(trace.facts()),
        filesystem: spec.case.filesystem.as_str().to_owned(),
        medium,
        duration_ns: bench.measured.end_ns.saturating_sub(bench.measured.begin_ns),
        player: player(spec, own),
        stages: if has_block { stages(&found.stages) } else { Vec::new() },
        pattern: has_block.then(|| pattern(spec, &found.points.points, bench.start_ns)),
        delay: delays,
        reads_since: spec.delay_from_ns.iter().map(|&from_ns| reads_since(own, from_ns)).collect(),
        flash_reads: flash.then_some(reads),
        flash_programs: flash.then_some(programs),
        others_bytes: others.iter().map(|task| task.bytes_read + task.bytes_written).sum(),
        others_ns: others.iter().map(|task| task.end_ns).max().unwrap_or(0).saturating_sub(spec.others_begin_ns()),
        report: None,
        losses: losses(&trace),
    };
    if spec.case.figure && has_block {
        group.report = Some(Box::new(report(spec, found)));
    }
    Ok(group)
}

fn report(spec: &ReplaySpec, found: BlockFound) -> BlockReport {
    BlockReport {
        schema: BLOCK_REPORT_SCHEMA,
        title: spec.name.clone(),
        system: Default::default(),
        losses: Vec::new(),
        missing: Vec::new(),
        names: Default::default(),
        readahead: None,
        calls: Default::default(),
        found,
        findings: Vec::new(),
    }
}

fn at(sorted: &[u64], percent: usize) -> Option<u64> {
    sorted.get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1))).copied()
}

fn player(spec: &ReplaySpec, tasks: &[Task]) -> Player {
    let mut latencies: Vec<u64> = tasks.iter().flat_map(|task| &task.latencies_ns).copied().collect();
    latencies.sort_unstable();
    Player {
        reads: latencies.len() as u64,
        bytes: tasks.iter().map(|task| task.bytes_read).sum(),
        p50_ns: at(&latencies, 50),
        p99_ns: at(&latencies, 99),
        max_ns: latencies.last().copied(),
        total_ns: latencies.iter().fold(0, |sum, &ns| sum.saturating_add(ns)),
        late_frames: spec.case.film_s.map(|film_s| late_frames(spec, tasks, film_s)),
    }
}

fn reads_since(tasks: &[Task], from_ns: u64) -> ReadsSince {
    let reads = tasks.iter().flat_map(|task| task.begins_ns.iter().zip(&task.latencies_ns));
    let total_ns = reads.filter(|(begin, _)| **begin >= from_ns).fold(0u64, |sum, (_, &ns)| sum.saturating_add(ns));
    ReadsSince { from_ns, total_ns }
}

/// Number of frames that came too late. The film starts at the earliest time for which no read of the recording was late, plus 0.3 s,
/// VLC's buffer.
fn late_frames(spec: &ReplaySpec, tasks: &[Task], film_s: f64) -> u64 {
    let mut bytes = vec![0u64; spec.script.files.len()];
    let own = |task: usize| task < spec.own_tasks;
    for call in spec.script.calls.iter().filter(|call| own(call.task)) {
        if let Verb::Read { length, .. } = call.verb {
            bytes[call.file] += length;
        }
    }
    let film = (0..bytes.len()).max_by_key(|&file| bytes[file]).unwrap_or(0);
    let size = spec.script.files.get(film).and_then(|file| file.size).unwrap_or(0);
    let rate = size.max(1) as f64 / film_s;
    let mut next = vec![0usize; spec.script.tasks.len()];
    // Offset, length, recorded return, our return; times in seconds.
    let mut reads: Vec<(f64, f64, f64, f64)> = Vec::new();
    for call in spec.script.calls.iter().filter(|call| own(call.task)) {
        let Verb::Read { offset, length } = call.verb else { continue };
        let index = next[call.task];
        next[call.task] += 1;
        let task = &tasks[call.task];
        let (Some(begin), Some(took)) = (task.begins_ns.get(index), task.latencies_ns.get(index)) else { continue };
        if call.file == film {
            let recorded = (call.time_ns + call.took_ns) as f64 / 1e9;
            reads.push((offset as f64, length as f64, recorded, (begin + took) as f64 / 1e9));
        }
    }
    let start = reads.iter().map(|(offset, _, recorded, _)| recorded - offset / rate).fold(0.0, f64::max) + CACHING_S;
    let late = reads.iter().filter(|(offset, _, _, ours)| *ours > start + offset / rate);
    late.map(|(_, length, ..)| (length * FRAMES_S / rate).ceil() as u64).sum()
}

fn stages(found: &StagesFound) -> Vec<Stage> {
    let q2c =
        found.stages.iter().zip(&found.all).find(|(name, _)| *name == "Q2C").map_or(0, |(_, stats)| stats.total_ns);
    let stage = |(name, stats): (&String, &flashscope_analysis::block::StageStats)| Stage {
        name: name.clone(),
        n: stats.n,
        mean_ns: (stats.n > 0).then_some(stats.mean_ns),
        percent: (name != "Q2Q" && name != "Q2C" && q2c > 0)
            .then(|| (stats.total_ns as f64 / q2c as f64 * 1e4).round() / 100.0),
    };
    found.stages.iter().zip(&found.all).map(stage).collect()
}

/// The application's request pattern, as in figures 5 to 7.
fn pattern(spec: &ReplaySpec, points: &[IoPoint], start_ns: u64) -> Pattern {
    let of = |kind: RequestKind| {
        let mut found: Vec<&IoPoint> = points.iter().filter(|point| point.kind == kind).collect();
        found.sort_by_key(|point| (point.time_ns, point.sector));
        found
    };
    let (reads, writes) = (of(RequestKind::Read), of(RequestKind::Write));
    let begins = begins(spec);
    let times: Vec<u64> = writes.iter().map(|point| point.time_ns.saturating_sub(start_ns)).collect();
    let mut sizes = std::collections::BTreeMap::<u64, u64>::new();
    for point in &reads {
        *sizes.entry(point.bytes / u64::from(point.bios.max(1))).or_default() += 1;
    }
    let common = sizes.into_iter().max_by_key(|&(bytes, n)| (n, bytes));
    let pairs = || reads.windows(2).map(|pair| (pair[0], pair[1]));
    let percent = |n: usize, of: usize| (of > 0).then(|| (n as f64 / of as f64 * 1e4).round() / 100.0);
    let follows = pairs().filter(|(a, b)| a.sector + a.bytes / 512 == b.sector).count();
    let total: u64 = reads.iter().map(|point| point.bytes).sum();
    let mut sum = 0;
    let half = reads.iter().find(|point| {
        sum += point.bytes;
        sum * 2 >= total
    });
    Pattern {
        reads: reads.len() as u64,
        common_bytes: common.map(|(bytes, _)| bytes),
        common_percent: common.and_then(|(_, n)| percent(n as usize, reads.len())),
        sequential_percent: percent(follows, reads.len().saturating_sub(1)),
        breaks: (begins.len() as u64).saturating_sub(1),
        writes: writes.len() as u64,
        writes_at_begins_percent: at_begins(&begins, &times),
        bursts: pairs().filter(|(a, b)| b.time_ns - a.time_ns >= BURST_NS).count() as u64
            + u64::from(!reads.is_empty()),
        half_ns: half.map(|point| point.time_ns.saturating_sub(start_ns)),
    }
}

/// The times at which the application begins to play each film, in its script's time. Films' heads are read long before, so it is the first
/// read after the last read of the film before.
fn begins(spec: &ReplaySpec) -> Vec<u64> {
    let mut films = std::collections::BTreeMap::<usize, Vec<u64>>::new();
    for call in spec.script.calls.iter().filter(|call| call.task < spec.own_tasks) {
        if matches!(call.verb, Verb::Read { .. }) && spec.script.files[call.file].label.ends_with(".mp4") {
            films.entry(call.file).or_default().push(spec.script.tasks[call.task].start_ns + call.time_ns);
        }
    }
    let mut films: Vec<Vec<u64>> = films.into_values().collect();
    films.sort_by_key(|reads| reads.iter().max().copied());
    let mut last = None;
    let mut found = Vec::new();
    for reads in &films {
        found.extend(reads.iter().filter(|&&time| last.is_none_or(|last| time > last)).min());
        last = reads.iter().max().copied();
    }
    found
}

/// The share of writes near a film's beginning. Times count from the replay's start.
fn at_begins(begins: &[u64], writes: &[u64]) -> Option<f64> {
    if begins.len() < 2 || writes.is_empty() {
        return None;
    }
    let near = |time: &&u64| begins.iter().any(|begin| begin.abs_diff(**time) <= BEGIN_NS);
    Some((writes.iter().filter(near).count() as f64 / writes.len() as f64 * 1e4).round() / 100.0)
}

fn analysis<'a>(trace: &'a Trace, spec: &ReplaySpec) -> BlockAnalysis<impl FnMut(TaskId, TimeNs) -> Option<&'a str>> {
    let users = trace.user_tasks().iter().copied().collect();
    let setup = BlockSetup { users, ..Sizes::of_facts([trace.facts()]).into() };
    BlockAnalysis::new(move |tid, time| trace.comm(tid, time), setup).only(spec.application.first().map(String::as_str))
}

/// The application's mean delay, and the part caused by others, over the bios of all its tasks in a range of time. Before the others begin,
/// runs also differ (the application waits for the file system's journal), but not because of the others.
fn delay(
    spec: &ReplaySpec,
    trace: &Trace,
    from_ns: u64,
    range: RangeInclusive<u64>,
) -> Result<Option<Delay>, StudyError> {
    let mut block = analysis(trace, spec);
    trace.for_each(&mut |event| {
        block.in_range(range.contains(&event.time.0));
        block.event(event);
    })?;
    Ok(mean_delay(spec, &block.finish().interference, from_ns))
}

fn mean_delay(spec: &ReplaySpec, found: &InterferenceFound, from_ns: u64) -> Option<Delay> {
    let is_own = |owner: &str| spec.application.iter().any(|name| owner.starts_with(&format!("{name} (")));
    let own: Vec<_> = found.owners.iter().filter(|one| is_own(&one.owner)).collect();
    let bios: u64 = own.iter().map(|one| one.bios).sum();
    if bios == 0 {
        return None;
    }
    let mean = |of: &dyn Fn(usize) -> u64| {
        (0..own.len()).map(|i| u128::from(of(i)) * u128::from(own[i].bios)).sum::<u128>() as u64 / bios
    };
    let alone: Option<Vec<u64>> = own.iter().map(|one| one.mean_alone_ns.known().copied()).collect();
    Some(Delay {
        from_ns,
        bios,
        mean_q2c_ns: mean(&|i| own[i].mean_q2c_ns),
        told_alone_ns: alone.map(|alone| mean(&|i| alone[i])),
        told_behind_ns: mean(&|i| own[i].mean_behind_ns),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> ReplaySpec {
        let text = "name='s'\ntitle='t'\nquestion='q'\n[replays]\nkernel=['6.1']\n[[replays.case]]\nname='c'\nboard='armv7-blk'\n\
            filesystem='ext4'\nscripts=['navit-fast']\nlever=['l']\n[[replays.lever]]\nname='l'\n";
        let study: crate::replays::ReplaysDefinition = toml::from_str(text).expect("a study");
        super::super::plan::groups(&study.replays, None).swap_remove(0)
    }

    #[test]
    fn without_a_read_its_times_and_shares_are_unknown() {
        let player = player(&spec(), &[]);
        assert_eq!((player.reads, player.total_ns), (0, 0));
        assert_eq!((player.p50_ns, player.p99_ns, player.max_ns), (None, None, None));
        let pattern = pattern(&spec(), &[], 0);
        assert_eq!((pattern.reads, pattern.bursts), (0, 0));
        assert_eq!((pattern.common_bytes, pattern.common_percent), (None, None));
        assert_eq!((pattern.sequential_percent, pattern.half_ns), (None, None));
    }

    #[test]
    fn a_kernel_without_the_lever_is_a_result_and_another_failure_is_not() {
        let spec = &spec();
        let failed =
            |reason: &str| BootFailureKind::PlanFailed { step: 9, line: "run".to_owned(), reason: reason.to_owned() };
        let lacks =
            "cgroup x: io.latency=254:0 target=1: Not supported: it needs CONFIG_BLK_CGROUP_IOLATENCY; leave it out";
        let said = failed(&format!("/agent: exit status 1: flashscope-agent: {lacks}"));
        let Some(Played::Refused(found)) = refused(spec, &said) else { panic!("a refusal") };
        assert_eq!((found.case.as_str(), found.lever.as_str(), found.kernel.as_str()), ("c", "l", "6.1"));
        assert_eq!(found.why, lacks);
        assert_eq!(
            refused(spec, &failed("/agent: exit status 1: flashscope-agent: cgroup x: io.max=1: Invalid argument")),
            None
        );
        assert_eq!(refused(spec, &BootFailureKind::NoPort), None);
    }

    #[test]
    fn reads_count_from_the_moment_when_the_others_begin() {
        let task = |begins_ns: [u64; 3], latencies_ns: [u64; 3]| Task {
            bytes_read: 0,
            end_ns: 0,
            bytes_written: 0,
            begins_ns: begins_ns.to_vec(),
            latencies_ns: latencies_ns.to_vec(),
        };
        let tasks = [task([0, 60, 70], [39, 5, 7]), task([10, 59, 80], [100, 200, 11])];
        assert_eq!(reads_since(&tasks, 60), ReadsSince { from_ns: 60, total_ns: 5 + 7 + 11 });
        assert_eq!(reads_since(&tasks, 0).total_ns, 39 + 5 + 7 + 100 + 200 + 11);
        assert_eq!(reads_since(&tasks, 81).total_ns, 0);
    }

    #[test]
    fn writes_belong_to_the_begins_that_they_are_near() {
        let s = |seconds: u64| seconds * 1_000_000_000;
        assert_eq!(at_begins(&[s(1), s(30)], &[s(1), s(10), s(29), s(32)]), Some(75.0));
        assert_eq!(at_begins(&[s(1)], &[s(1)]), None, "one film has no break");
        assert_eq!(at_begins(&[s(1), s(30)], &[]), None, "nothing was written");
    }
}
