//! The whole analysis of block I/O, in one pass over the trace.

use super::errors::{Errors, ErrorsFound};
use super::files::Files;
use super::flush_machinery::{FlushRequests, FlushesFound};
use super::followed::{BlockSetup, Followed};
use super::groups::{Group, GroupBy, GroupsByUnit};
use super::interference::{Interference, InterferenceFound};
use super::lacks::{COPY_ALL, Lacks, LostEnds, missing_files};
use super::levels::Levels;
use super::loops::LoopFound;
use super::originators::OriginatorsFound;
use super::over_time::{LoadOverTime, OverTime};
use super::points::{IoPoints, Points};
use super::stack::{StackHints, StackLevel};
use super::stages::{StageSums, StagesFound, stages_found};
use super::syncs::{Syncs, SyncsFound};
use super::watch::Shown;
use crate::{Analysis, Lookup, Named, Unknown};
use flashscope_trace::{BlockAction, BlockEvent, Device, Event, EventKind, Losses, TaskId, TimeNs};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Results of one pass.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct BlockFound {
    pub stages: StagesFound,
    /// All bios, and groups by device and direction, flag, size, owner, file.
    pub groups: Vec<Group>,
    pub over_time: LoadOverTime,
    pub points: IoPoints,
    pub originators: OriginatorsFound,
    pub interference: InterferenceFound,
    pub flushes: FlushesFound,
    pub errors: ErrorsFound,
    pub syncs: SyncsFound,
    /// Stacked devices, and the time that each adds; empty where there are none.
    pub stack: Vec<StackLevel>,
    /// Devices that may lie on others in the trace, as its bios suggest; no event shows how. Totals over devices are unknown then.
    #[serde(default)]
    pub unclear: Vec<String>,
    /// Hints for a second reading of the trace, which counts each I/O of stacked devices once; `None`: this reading did.
    #[serde(skip)]
    pub again: Option<StackHints>,
    /// Loop devices that were used, and the devices that they lie on.
    #[serde(default)]
    pub loops: Vec<LoopFound>,
}

/// The parts that see only what is shown, and those that see all.
type Parts = (((StageSums, GroupsByUnit), Files), ((OverTime, Points), FlushRequests));
type Watches = (Shown<Parts>, ((Errors, Syncs), (Interference, Levels)));

/// Analyses the block events of a trace, in order of time.
pub struct BlockAnalysis<L> {
    followed: Followed<L, Watches>,
    /// Shows only I/O of owners with this name.
    only: Option<String>,
    /// CPUs whose events are not in the trace.
    missing_cpus: Vec<u64>,
    losses: LostEnds,
    requests_alone: bool,
}

impl<L: Lookup<Name: Named>> BlockAnalysis<L> {
    /// `lookup` returns the name of a thread at a time.
    pub fn new(lookup: L, setup: impl Into<BlockSetup>) -> Self {
        let stages = ((StageSums::new(), GroupsByUnit::default()), Files::default());
        let parts = (stages, ((OverTime::new(), Points::new()), FlushRequests::default()));
        let watches = (Shown(parts), (<(Errors, Syncs)>::default(), (Interference::new(), Levels::default())));
        let mut setup = setup.into();
        let missing_cpus = std::mem::take(&mut setup.missing_cpus);
        let requests_alone = setup.requests_alone;
        let followed = Followed::new(watches, lookup, setup);
        BlockAnalysis { followed, only: None, missing_cpus, losses: LostEnds::default(), requests_alone }
    }

    /// Events are missing, or may be: from now on steps are assigned to bios more carefully.
    #[inline]
    pub fn events_are_missing(&mut self) {
        self.followed.events_are_missing();
    }

    /// What the trace has lost, before [`Analysis::finish`]: some I/O without an end may have ended.
    pub fn losses(&mut self, losses: &Losses) {
        self.losses = LostEnds::of(losses);
    }

    /// Shows only the bios and calls of one process, by its name. The later steps of their requests count for it, whichever thread carries
    /// them (Hasegawa et al., equation 1). Others' bios are followed too: the process may wait for them.
    pub fn only(mut self, process: Option<&str>) -> Self {
        self.only = process.map(str::to_owned);
        self
    }

    /// Whether I/O that begins with the following events is shown. I/O that is not shown is still followed.
    #[inline]
    pub fn in_range(&mut self, shown: bool) {
        self.followed.matching.in_range = shown;
        self.followed.originators.counts = shown;
    }

    #[inline(always)]
    fn interference(&mut self) -> &mut Interference {
        &mut self.followed.matching.watch.1.1.0
    }

    /// Whether the bio or request that this event begins belongs to the shown process.
    fn is_own(&mut self, block: &BlockEvent, owner: u32, tid: TaskId, time: TimeNs) -> bool {
        let Some(only) = &self.only else { return true };
        match block.action {
            BlockAction::Queue => self.followed.originators.is_called(owner, only),
            BlockAction::Issue | BlockAction::BackMerge | BlockAction::FrontMerge => {
                let issuer = self.followed.originators.issuer(tid, time);
                self.followed.originators.is_called(issuer, only)
            }
            _ => false,
        }
    }
}

impl<L: Lookup<Name: Named>> Analysis for BlockAnalysis<L> {
    type Output = BlockFound;

    fn event(&mut self, event: &Event) {
        let mut switches = false;
        match &event.kind {
            EventKind::File(file) => {
                self.followed.file(file, event.tid, event.time);
            }
            EventKind::Block(block) if self.requests_alone && !is_of_request(block) => {}
            EventKind::Block(block) => {
                self.followed.remap(block, event.tid, event.time);
                let mut owner = 0;
                if block.action == BlockAction::Queue {
                    let file;
                    (owner, file) = self.followed.queue(block, event.tid, event.time);
                    let syncs = &mut self.followed.matching.watch.1.0.1;
                    if syncs.any_open() && self.followed.originators.is_kernels_own(owner) {
                        syncs.is_journal(owner);
                    }
                    self.followed.matching.watch.0.0.0.1.next = file;
                    self.followed.matching.watch.1.1.0.task = self.followed.originators.task_of(owner);
                }
                let (tid, time) = (event.tid, event.time);
                self.interference().processors.current = event.cpu;
                self.followed.matching.own = self.is_own(block, owner, tid, time);
                self.followed
                    .matching
                    .block(block, (owner, tid), time.0, || self.followed.originators.issuer(tid, time));
            }
            // A kernel thread makes no system calls.
            EventKind::Other { name, .. } => {
                let (tid, time) = (event.tid, event.time);
                self.followed.originators.call(name, tid);
                switches = name == "sched_switch";
                let in_range = self.followed.matching.in_range;
                let owner = || {
                    let owner = self.followed.originators.issuer(tid, time);
                    let own = self.only.as_ref().is_none_or(|only| self.followed.originators.is_called(owner, only));
                    (in_range && own).then_some(owner)
                };
                self.followed.matching.watch.1.0.1.event(name, tid, time.0, owner);
            }
            EventKind::Recording => self.followed.recording_begins(event.time.0),
            _ => {}
        }
        self.interference().processors.seen(event.cpu, event.tid, event.time.0, switches);
    }

    fn finish(self) -> BlockFound {
        let Followed { matching, originators, loops } = self.followed;
        let lossy = matching.may_lose();
        // A trace that counts its losses, and has none, has all completions: one without a bio belongs to I/O from before.
        let may_lack_ends = matching.missing || matching.uncounted;
        let (watches, devices, mut counts, flushes, stack) = matching.finish();
        counts.ends_lost = counts.ends_lost.map(|lost| lost && may_lack_ends);
        let (Shown((((sums, groups), files), ((over_time, points), flush_requests))), rest) = watches;
        let ((mut errors, syncs), (interference, levels)) = rest;
        let (offsets, unclear) = levels.finish(&devices, stack.edges(), lossy);
        let again = stack.again(offsets, &flushes.doubtful);
        let lacks = Lacks::of(&counts, doubt(&unclear, stack.edges()).as_ref(), &self.missing_cpus, &self.losses);
        let name = |owner| originators.name(owner);
        let shown = |owner| self.only.as_ref().is_none_or(|only| originators.is_called(owner, only));
        let mut groups = groups.finish(counts.unit(), &devices, name);
        groups.extend(files.finish());
        if lacks.unclear.is_some() {
            // One I/O may be in these groups twice.
            groups.retain(|group| matches!(group.by, GroupBy::Device | GroupBy::Parts));
        }
        if counts.events > 0 && counts.all_queued + counts.all_requests == 0 {
            // The trace has only completions: the number of bios is unknown.
            groups.clear();
        }
        let mut unclear: Vec<String> = unclear.into_iter().map(|(upper, _)| upper.to_string()).collect();
        unclear.dedup();
        let levels = stack.finish(&devices, |device| loops.file_of(device));
        let mut found = BlockFound {
            stages: stages_found(sums, &devices, &counts, &lacks),
            unclear,
            again,
            groups,
            over_time: over_time.finish(&lacks),
            points: points.finish(&devices, name),
            interference: interference.finish(&devices, name, shown),
            flushes: flushes.finish(&lacks, &flush_requests),
            errors: errors.finish(&lacks, &devices, name),
            syncs: syncs.finish(counts.unit(), &lacks, &devices, name),
            loops: loops.found(&devices, &originators, &levels),
            stack: levels,
            originators: OriginatorsFound { direct: originators.direct(shown), ..originators.finish() },
        };
        if !self.missing_cpus.is_empty() {
            let missing = format!("{}: other users of the devices are unknown", missing_files(&self.missing_cpus));
            found.interference.has_unseen(&Unknown::new(missing, COPY_ALL));
        }
        found.interference.lacks(&lacks);
        if let Some(why) = lacks.queueing.as_ref().or(lacks.unclear.as_ref()) {
            found.originators.is_unknown(why);
        }
        found
    }
}

/// Whether a trace without queueing has such a step.
fn is_of_request(block: &BlockEvent) -> bool {
    matches!(block.action, BlockAction::Issue | BlockAction::Requeue | BlockAction::Complete)
}

/// Why totals are unknown where upper devices may lie on lower ones.
fn doubt(unclear: &[(Device, Device)], edges: &[(Device, Device)]) -> Option<Unknown> {
    let (upper, _) = unclear.first()?;
    let lower: Vec<String> = unclear.iter().filter(|one| one.0 == *upper).map(|one| one.1.to_string()).collect();
    if edges.iter().any(|edge| edge.0 == *upper) {
        let missing = format!(
            "some bios of {upper} have no block:block_bio_remap, and may be those of {} at the same time: one I/O may be a bio of both, \
             and totals over devices are unknown",
            lower.join(", ")
        );
        return Some(Unknown::new(
            missing,
            "take the figures of one device; Linux 5.18 and later trace more of these remaps",
        ));
    }
    let missing = format!(
        "the trace has no block:block_bio_remap of {upper}, which may lie on {}: one I/O may be a bio of both, and totals over \
         devices are unknown",
        lower.join(", ")
    );
    Some(Unknown::new(
        missing,
        "record block:block_bio_remap too (flashscope record --events block, blktrace without -a)",
    ))
}
