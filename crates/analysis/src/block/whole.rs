//! All that a trace of block I/O tells, in one pass.

use super::files::Files;
use super::groups::{Group, Groups};
use super::interference::{Interference, InterferenceFound};
use super::matching::Matching;
use super::originators::{Originators, OriginatorsFound};
use super::over_time::{LoadOverTime, OverTime};
use super::points::{IoPoints, Points};
use super::sizes::Sizes;
use super::stages::{StageSums, StagesFound, stages_found};
use crate::Analysis;
use flashscope_trace::{BlockAction, BlockDetail, Event, EventKind, TimeNs};
use serde::{Deserialize, Serialize};

/// What one pass finds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BlockFound {
    pub stages: StagesFound,
    /// All, by device and direction, flag, size, owner, file.
    pub groups: Vec<Group>,
    pub over_time: LoadOverTime,
    pub points: IoPoints,
    pub originators: OriginatorsFound,
    pub interference: InterferenceFound,
}

type Watches = (((StageSums, Groups), Files), ((OverTime, Points), Interference));

/// Folds the events of a trace with block I/O; reads them in order of time.
pub struct BlockAnalysis<L> {
    matching: Matching<Watches>,
    originators: Originators<L>,
    /// Only bios of owners with this name.
    only: Option<String>,
}

impl<L, N> BlockAnalysis<L>
where
    L: FnMut(u32, TimeNs) -> Option<N>,
    N: AsRef<str>,
{
    /// `lookup` says what a thread was called at a time.
    pub fn new(lookup: L, sizes: Sizes) -> Self {
        let stages = ((StageSums::new(), Groups::default()), Files::default());
        let watches = (stages, ((OverTime::new(), Points::new()), Interference::new()));
        BlockAnalysis { matching: Matching::new(watches), originators: Originators::new(lookup, sizes), only: None }
    }

    /// Tasks that are no kernel threads, though they may carry such a name ([`flashscope_trace::Trace::user_tasks`]).
    pub fn users(mut self, tids: impl IntoIterator<Item = u32>) -> Self {
        tids.into_iter().for_each(|tid| self.originators.is_user(tid));
        self
    }

    /// Statistics of the bios of one process alone, by its name: the rest of their requests' way is theirs, whoever
    /// carried it (Hasegawa et al., equation 1).
    pub fn only(mut self, process: Option<&str>) -> Self {
        self.only = process.map(str::to_owned);
        self
    }
}

impl<L, N> Analysis for BlockAnalysis<L>
where
    L: FnMut(u32, TimeNs) -> Option<N>,
    N: AsRef<str>,
{
    type Output = BlockFound;

    fn event(&mut self, event: &Event) {
        match &event.kind {
            EventKind::File(file) => self.originators.file(file, event.tid, event.time),
            EventKind::Block(block) => {
                if let (BlockAction::Remap, BlockDetail::Remap { device, sector }) = (block.action, block.detail) {
                    self.originators.remapped(block.device, device, block.sector, sector);
                }
                let mut owner = 0;
                if block.action == BlockAction::Queue && block.bytes > 0 {
                    owner = self.originators.queue(block, event.tid, event.time);
                    if self.only.as_ref().is_some_and(|only| !self.originators.is_called(owner, only)) {
                        return;
                    }
                    self.matching.watch.0.1.next = self.originators.file_of(block, event.tid);
                }
                self.matching.block(block, owner, event.time.0);
            }
            // A kernel thread makes no system calls.
            EventKind::Other { name, .. } if name.starts_with("sys_enter") => self.originators.is_user(event.tid),
            _ => {}
        }
    }

    fn finish(self) -> BlockFound {
        let ((((sums, groups), files), ((over_time, points), interference)), devices, counts) = self.matching.finish();
        let name = |owner| self.originators.name(owner);
        let mut groups = groups.finish(&devices, name);
        groups.extend(files.finish());
        BlockFound {
            stages: stages_found(sums, &devices, &counts),
            groups,
            over_time: over_time.finish(),
            points: points.finish(&devices, name),
            interference: interference.finish(&devices, name),
            originators: self.originators.finish(),
        }
    }
}
