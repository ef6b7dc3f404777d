//! Block I/O: where the time of a request goes. One file per question.

mod in_flight;
mod stages;

pub use stages::{DeviceStages, MAX_IN_FLIGHT, Stage, StageStats, Stages, StagesFound, UnmatchedSteps};

use crate::{LossCount, SystemFacts};
use serde::{Deserialize, Serialize};

/// Version of [`BlockReport`].
pub const BLOCK_REPORT_SCHEMA: u32 = 1;

/// What a trace of block I/O holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BlockReport {
    pub schema: u32,
    /// Name of the trace.
    pub title: String,
    pub system: SystemFacts,
    /// All losses are listed, zero ones too.
    pub losses: Vec<LossCount>,
    pub findings: StagesFound,
}
