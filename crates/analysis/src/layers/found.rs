//! The results of `crate::layers`: time of calls by layer.

use crate::{Evidence, LossCount};
use flashscope_trace::{Layer, SleepSource, TaskId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An operation of a program: a call, or writes and the sync that makes them durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    Read,
    /// Without a sync after it.
    Write,
    /// Without a write before it.
    Sync,
    /// The writes of a task to a file (at most the last 64) and its sync of that file, as one.
    WriteSync,
}

/// Time in one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct LayerTime {
    pub layer: Layer,
    pub ns: u64,
    /// Number of stretches between two recorded events that make up the sum. Each includes the cost of recording one event.
    pub stretches: u64,
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct CallLayers {
    pub call: Operation,
    pub task: String,
    pub tid: TaskId,
    /// Its ordinal among tasks with this number and name, where it is not the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordinal: Option<u32>,
    pub begin_ns: u64,
    /// Time in the calls: of several, the sum without the time between them.
    pub total_ns: u64,
    /// Number of system calls.
    pub calls: u32,
    /// The result of the call: bytes (of several, the sum), 0, or an error as a negative number.
    pub result: i64,
    /// From the task down to the device; layers without time are left out.
    pub layers: Vec<LayerTime>,
    pub unattributed_ns: u64,
    /// Time in which the device worked for the task while the task ran.
    pub overlap_ns: u64,
    /// Number of stretches in that time.
    pub overlap_stretches: u64,
    /// Slices in order of time, for drawing; none for an operation with more than [`super::MAX_SLICES`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<Slice>,
}

/// A stretch of a call in one layer; `null` is unattributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct Slice {
    pub layer: Option<Layer>,
    pub begin_ns: u64,
    pub end_ns: u64,
}

/// All operations of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct CallSum {
    pub call: Operation,
    pub n: u64,
    pub total_ns: u64,
    pub layers: Vec<LayerTime>,
    pub unattributed_ns: u64,
    pub overlap_ns: u64,
    pub overlap_stretches: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct LayersFound {
    pub sums: Vec<CallSum>,
    /// In order of begin; the first [`super::MAX_CALLS`] that ended.
    pub calls: Vec<CallLayers>,
    /// Calls that had not ended, and returns of calls that had begun before the trace.
    pub calls_cut: u64,
    /// Boundaries left but not entered, never left within their call, or nested too deep.
    pub boundaries_unmatched: u64,
    /// Total time that tasks slept in these operations.
    pub slept_ns: Evidence<u64>,
    /// Calls that touched no storage, as far as the trace shows: of a pipe, a socket, /proc. In no sum.
    #[serde(default)]
    pub calls_without_storage: u64,
    /// Operations that are in the sums only.
    pub calls_not_listed: u64,
    /// Bios given up, the oldest first, because too many were in flight.
    pub bios_given_up: u64,
    /// Events of tasks that were too many to follow.
    pub events_not_followed: u64,
}

impl LayersFound {
    /// An empty result.
    pub fn new(sleep: SleepSource) -> LayersFound {
        LayersFound {
            sums: Vec::new(),
            calls: Vec::new(),
            calls_cut: 0,
            boundaries_unmatched: 0,
            slept_ns: slept(sleep),
            calls_without_storage: 0,
            calls_not_listed: 0,
            bios_given_up: 0,
            events_not_followed: 0,
        }
    }

    /// Counters of what was left out to bound memory, zero counts included.
    pub fn losses(&self) -> Vec<LossCount> {
        [
            (
                "layer_calls_not_listed",
                self.calls_not_listed,
                "operations that are in the sums, but not listed one by one",
            ),
            (
                "layer_bios_given_up",
                self.bios_given_up,
                "bios that were not followed to their end, because too many were on their way: their device time is \
                 unattributed",
            ),
            (
                "layer_events_not_followed",
                self.events_not_followed,
                "events of tasks that were too many to follow: their calls are missing",
            ),
        ]
        .map(|(name, count, meaning)| LossCount { name: name.to_owned(), count, meaning: meaning.to_owned() })
        .into()
    }
}

/// Only the scheduler's own event shows every sleep, and the task on the CPU meanwhile.
fn slept(sleep: SleepSource) -> Evidence<u64> {
    let instead = match sleep {
        SleepSource::Switches => return Evidence::Known(0),
        SleepSource::Functions => "waits are what `schedule` in the trace of functions shows",
        SleepSource::Waits => "only waits for pages and for the journal are seen",
        SleepSource::Nothing => "waits are inferred from what the device does",
    };
    Evidence::unknown(
        format!(
            "sleep is unknown: the trace has no sched:sched_switch; {instead}, and the time of other tasks is in the layers"
        ),
        "record again with --events layers (or, with trace-cmd, -e sched:sched_switch)",
    )
}
