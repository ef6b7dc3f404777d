//! What could not be followed of the bios' ways, by reason.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Steps that belong to no bio that was queued in the trace, in events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct UnmatchedSteps {
    pub got: u64,
    pub inserted: u64,
    pub merged: u64,
    pub issued: u64,
    pub completed: u64,
    pub requeued: u64,
    pub split: u64,
}

impl UnmatchedSteps {
    pub fn sum(&self) -> u64 {
        self.got + self.inserted + self.merged + self.issued + self.completed + self.requeued + self.split
    }
}

/// Bios whose way was not followed to its end, by what was lost: their later stages are unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct GivenUp {
    /// Issued, never completed, and the same sectors came again.
    pub completion_lost: u64,
    /// Neither issued nor completed, and the same sectors came again.
    pub issue_lost: u64,
    /// Completed before they were queued or issued, by the trace's times: the clocks of two CPUs differ.
    pub time_backwards: u64,
    /// Too many on their way at one time.
    pub too_many: u64,
}

impl GivenUp {
    pub fn sum(&self) -> u64 {
        self.completion_lost + self.issue_lost + self.time_backwards + self.too_many
    }
}
