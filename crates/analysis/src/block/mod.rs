//! Block I/O: the time of a request, stage by stage. One file per question.

#[cfg(test)]
mod ambiguity_tests;
mod analysis;
mod appends;
mod by_owner;
mod clock;
mod completing;
mod counts;
#[cfg(test)]
mod deletion_tests;
mod discards;
mod errors;
mod files;
mod flush_machinery;
mod flushes;
mod followed;
mod given_back;
mod groups;
mod in_flight;
mod interference;
mod lacks;
mod levels;
mod loops;
#[cfg(test)]
mod loss_tests;
mod matching;
mod missing;
mod originators;
mod over_time;
mod parts_in_flight;
mod points;
mod ranges;
mod recordings;
#[cfg(test)]
mod repeated_tests;
#[cfg(test)]
mod requeue_tests;
mod requeues;
mod rows;
mod service;
mod sizes;
mod split_events;
mod stack;
#[cfg(test)]
mod stack_loss_tests;
mod stages;
mod syncs;
mod typical;
mod watch;

pub use analysis::{BlockAnalysis, BlockFound};
pub use counts::{GivenUp, Unit, UnmatchedSteps};
pub use errors::{ErrorsFound, Failure};
pub(crate) use files::FURTHER_FILES;
pub use flashscope_trace::RequestKind;
pub use flush_machinery::FlushesFound;
pub use followed::BlockSetup;
pub use groups::{Distribution, Group, GroupBy, StageTimes, device_and_kind};
pub use interference::{InterferenceFound, OwnWork, OwnerLoad, TOLD_APART, WaitBehind, WaitStage};
pub use levels::StackSurvey;
pub use loops::{LoopBacking, LoopFound, Loops};
pub use matching::MAX_IN_FLIGHT;
pub use missing::MissingEvent;
pub use originators::{
    CarriedBytes, DirectBytes, DirectUse, FileBytes, FormerName, IN_PIECES, Originator, OriginatorsFound, OwnerKind,
};
pub use over_time::{BlockWindow, LoadOverTime};
pub use points::{IoPoint, IoPoints};
pub(crate) use rows::kind_name;
pub use rows::{BIO_COLUMNS, IoRow, IoRows, NamedRow, REQUEST_COLUMNS, ROWS_SCHEMA, RowStatus, RowsFound, RowsOf};
pub use sizes::Sizes;
pub use stack::{StackAlone, StackHints, StackLeg, StackLevel};
pub use stages::{DeviceStages, KindStages, Stage, StageStats, Stages, StagesFound};
pub use syncs::{LongestWait, SyncCall, SyncTask, SyncTimes, SyncWait, SyncsFound, begins_sync};

use crate::cache::AccuracyFindings;
use crate::clip::clip;
use crate::{LossCount, SystemFacts};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Version of [`BlockReport`].
pub const BLOCK_REPORT_SCHEMA: u32 = 5;

/// The report on the block I/O of a trace.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct BlockReport {
    pub schema: u32,
    /// Name of the trace.
    pub title: String,
    pub system: SystemFacts,
    /// All losses are listed, zero ones too.
    pub losses: Vec<LossCount>,
    /// Events that the recorded kernel does not have.
    #[serde(default)]
    pub missing: Vec<MissingEvent>,
    /// Accuracy of read-ahead; `None` where the trace has no file reads with page-cache events.
    #[serde(default)]
    pub readahead: Option<crate::Evidence<AccuracyFindings>>,
    /// Names of devices and files; empty where the recording has none.
    #[serde(default, skip_serializing_if = "crate::NamesFound::is_empty")]
    pub names: crate::NamesFound,
    /// Findings, the most important first.
    #[serde(default)]
    pub findings: Vec<crate::finding::Finding>,
    /// Durations of calls; empty where the trace has none.
    #[serde(default)]
    pub calls: crate::calls::CallsFound,
    #[serde(rename = "block")]
    pub found: BlockFound,
}
