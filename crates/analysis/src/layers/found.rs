//! What is found of where the time of calls goes: plain data (`crate::layers` finds it).

use crate::{Evidence, LossCount};
use flashscope_trace::{Layer, SleepSource, TaskId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a program does: a call, or a write and the sync that makes it last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    Read,
    /// That no sync followed.
    Write,
    /// That no write went before.
    Sync,
    /// The writes of a task to a file (at most the last 64) and its sync of that file, as one.
    WriteSync,
}

/// Time that one layer had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct LayerTime {
    pub layer: Layer,
    pub ns: u64,
    /// Of how many stretches between two recorded events it is the sum. Each holds what it costs to record one of them.
    pub stretches: u64,
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct CallLayers {
    pub call: Operation,
    pub task: String,
    pub tid: TaskId,
    /// Which of the tasks with this number and name it is, where it is not the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordinal: Option<u32>,
    pub begin_ns: u64,
    /// Time in the calls: of several their sum, without what lies between them.
    pub total_ns: u64,
    /// System calls that it is made of.
    pub calls: u32,
    /// What the call gave: bytes (of several their sum), 0, or an error as a negative number.
    pub result: i64,
    /// From the task down to the device; layers without time are left out.
    pub layers: Vec<LayerTime>,
    pub unattributed_ns: u64,
    /// The device worked for the task while it ran.
    pub overlap_ns: u64,
    /// Of the stretches those in which it did.
    pub overlap_stretches: u64,
    /// Slices in the order of time, for a picture; none of an operation that has more than [`super::MAX_SLICES`].
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
    /// In the order of their begins; the first [`super::MAX_CALLS`] that ended.
    pub calls: Vec<CallLayers>,
    /// Calls that had not ended, and returns of calls that had begun before the trace.
    pub calls_cut: u64,
    /// Boundaries that were left without having been entered, or never left in their call, or entered too deep to follow.
    pub boundaries_unmatched: u64,
    /// How long tasks slept in these operations, all together.
    pub slept_ns: Evidence<u64>,
    /// Calls that touched no storage, as far as the trace shows: of a pipe, a socket, /proc. They are in no sum.
    #[serde(default)]
    pub calls_without_storage: u64,
    /// Operations that are in the sums only.
    pub calls_not_listed: u64,
    /// Bios given up, the oldest first, because more were on their way than are followed.
    pub bios_given_up: u64,
    /// Events of tasks that were too many to follow.
    pub events_not_followed: u64,
}

impl LayersFound {
    /// Nothing yet.
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

    /// What was given up so that memory stays bounded, zero counts included.
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
