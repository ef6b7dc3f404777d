//! Follows the steps of bios, their owners and loop devices together, for the report and for its rows.

use super::loops::Loops;
use super::matching::Matching;
use super::originators::Originators;
use super::sizes::Sizes;
use super::stack::StackHints;
use super::watch::Watch;
use crate::{Lookup, Named};
use flashscope_trace::{BlockAction, BlockDetail, BlockEvent, Device, FileEvent, FileId, TaskId, TimeNs, Trace};

/// What is known of a trace before its events are read.
#[derive(Default)]
pub struct BlockSetup {
    pub sizes: Sizes,
    /// Tasks that are no kernel threads, though they may carry such a name ([`Trace::user_tasks`]).
    pub users: Vec<TaskId>,
    /// Loop devices and their backing files, from the recording's facts.
    pub loops: Loops,
    /// Results of a first reading about stacked devices ([`super::BlockFound::again`]).
    pub stacked: Option<StackHints>,
    /// Devices that another one may lie on, as a first reading has found, where nothing shows for which bios.
    pub maybe_below: Vec<Device>,
    /// Events are missing, or may be: steps are assigned to bios more carefully.
    pub events_are_missing: bool,
    /// Events may be missing without a count in the trace.
    pub drops_are_uncounted: bool,
    /// No event shows splits of bios.
    pub splits_not_shown: bool,
    /// CPUs whose events are not in the trace: other users of a device, and completions there, may be unknown.
    pub missing_cpus: Vec<u64>,
    /// Only issues, requeues and completions are used, as in a trace without queueing: the unit is the request.
    pub requests_alone: bool,
    /// Completions are recorded, even if there is none.
    pub records_completions: bool,
}

impl BlockSetup {
    /// For traces that are read as one.
    pub fn of<'a>(traces: impl Iterator<Item = &'a Trace> + Clone) -> BlockSetup {
        BlockSetup {
            sizes: Sizes::of_facts(traces.clone().map(Trace::facts)),
            users: traces.clone().flat_map(|trace| trace.user_tasks().iter().copied()).collect(),
            loops: Loops::of_facts(traces.clone().map(Trace::facts)),
            stacked: None,
            maybe_below: Vec::new(),
            events_are_missing: traces.clone().any(Trace::may_miss_events),
            drops_are_uncounted: traces.clone().any(Trace::has_uncounted_drops),
            splits_not_shown: traces.clone().any(|trace| !trace.shows_splits()),
            missing_cpus: traces.clone().flat_map(|trace| trace.facts().blktrace.cpus_missing.clone()).collect(),
            requests_alone: false,
            records_completions: false,
        }
    }
}

impl From<Sizes> for BlockSetup {
    fn from(sizes: Sizes) -> BlockSetup {
        BlockSetup { sizes, ..BlockSetup::default() }
    }
}

pub(super) struct Followed<L, W> {
    pub matching: Matching<W>,
    pub originators: Originators<L>,
    pub loops: Loops,
}

impl<L: Lookup<Name: Named>, W: Watch> Followed<L, W> {
    pub fn new(watch: W, lookup: L, setup: BlockSetup) -> Self {
        let originators = Originators::new(lookup, setup.sizes);
        let mut followed = Followed { matching: Matching::new(watch), originators, loops: setup.loops };
        setup.users.into_iter().for_each(|tid| followed.originators.is_user(tid));
        if let Some(hints) = setup.stacked {
            followed.matching.stack.learn(hints);
        }
        if setup.events_are_missing {
            followed.events_are_missing();
        }
        followed.matching.counts.completions = setup.records_completions;
        followed.matching.uncounted = setup.drops_are_uncounted;
        followed.matching.splits_not_shown = setup.splits_not_shown;
        followed
    }

    /// Events are missing from now on.
    #[inline]
    pub fn events_are_missing(&mut self) {
        (self.matching.whole_trace, self.matching.missing) = (false, true);
    }

    /// Another recording begins at this time: none of its bios or pages are those of the one before.
    #[cold]
    pub fn recording_begins(&mut self, now: u64) {
        self.matching.begins_again(now);
        self.originators.recording_begins();
    }

    pub fn file(&mut self, file: &FileEvent, tid: TaskId, time: TimeNs) {
        self.loops.file((&mut self.matching, &mut self.originators), file, tid, time);
    }

    /// Handles the event if it is a remap.
    #[inline]
    pub fn remap(&mut self, block: &BlockEvent, tid: TaskId, time: TimeNs) {
        if let (BlockAction::Remap, BlockDetail::Remap { device, sector }) = (block.action, block.detail) {
            // A device that takes bios itself has its own files, and may lie on a partition, whose place on the disk is not in the remap.
            if !self.matching.devices.contains(&device) {
                self.originators.remapped(block.device, device, block.sector, sector);
            }
            self.matching.remapped((block.device, block.sector), (device, sector), tid, time.0);
        }
    }

    /// A bio is queued. Returns its owner, and its file, unless it belongs to a bio of an upper device.
    pub fn queue(&mut self, block: &BlockEvent, tid: TaskId, time: TimeNs) -> (u32, Option<FileId>) {
        let (owner, below) = self.loops.queue((&mut self.matching, &mut self.originators), block, tid, time);
        (owner, if below { None } else { self.originators.file_of(block, tid) })
    }
}
