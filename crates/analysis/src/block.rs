//! Block I/O: where the time of a request goes. One file per question.

mod in_flight;
mod stages;

pub use stages::{DeviceStages, MAX_IN_FLIGHT, Stage, StageStats, Stages, StagesFound, UnmatchedSteps};
