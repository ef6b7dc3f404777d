//! Counts of matched steps and bios, and of those that could not be followed, by reason.

use flashscope_trace::Device;
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

/// Bios that were not followed to their end, by the step that was lost: their later stages are unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct GivenUp {
    /// Issued, never completed, and the same sectors were queued again.
    pub completion_lost: u64,
    /// Neither issued nor completed, and the same sectors were queued again.
    pub issue_lost: u64,
    /// Completed before they were queued or issued, by the trace's times: the clocks of two CPUs differ.
    pub time_backwards: u64,
    /// Too many in flight at one time.
    pub too_many: u64,
}

impl GivenUp {
    pub fn sum(&self) -> u64 {
        self.completion_lost + self.issue_lost + self.time_backwards + self.too_many
    }
}

/// The unit of counts and times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// A bio, as it was queued.
    #[default]
    Bio,
    /// A request, as it was issued: the trace does not show queueing.
    Request,
}

/// Counts of the matching.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MatchCounts {
    pub events: u64,
    pub begin_ns: u64,
    pub end_ns: u64,
    /// All bios and requests; the other counts are only of those shown.
    pub all_queued: u64,
    pub all_requests: u64,
    pub queued: u64,
    pub completed: u64,
    /// Queued below another device's bio: not among `queued` and `completed`.
    pub below: u64,
    /// Requests whose queueing is not in the trace; below: those of them that were completed.
    pub requests: u64,
    pub requests_completed: u64,
    /// The trace has issues; below: completions.
    pub issues: bool,
    pub completions: bool,
    /// A device that takes bios, issues no request, and completes none: its kernel does not report completions.
    pub endless: Option<Device>,
    pub parts: u64,
    /// There are bios without a request of their own in the trace, and splits are not in it.
    pub parts_unknown: bool,
    pub requeues: u64,
    /// Issues of a request that was in the device, without a requeue.
    pub reissued: u64,
    pub without_data: u64,
    pub unfinished: u64,
    /// Bios or requests have no end when the trace ends: those of programs, and those below.
    pub open: [bool; 2],
    /// Ends of bios or requests are lost: the same.
    pub ends_lost: [bool; 2],
    /// Completed without an issue, on a device that issues requests.
    pub without_issue: u64,
    pub given_up: GivenUp,
    /// Events of devices beyond the most.
    pub of_further_devices: u64,
    pub unmatched: UnmatchedSteps,
    /// Steps with bios that were not searched, because there were too many.
    pub steps_given_up: u64,
    /// Remaps that were forgotten before their bio came, because too many waited.
    pub remaps_forgotten: u64,
    /// Zone appends to zones beyond the most.
    pub appends_of_further_zones: u64,
}

impl MatchCounts {
    /// The unit of the figures: a trace without any queueing shows only requests.
    pub fn unit(&self) -> Unit {
        if self.all_queued == 0 && (self.all_requests > 0 || self.completions) { Unit::Request } else { Unit::Bio }
    }
}
