//! The calls of a trace, as reports show them.

use crate::LossCount;
use flashscope_trace::TaskId;
use foldhash::HashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::former::FormerCalls;
use super::refused::RefusedCalls;
use super::sums::CallGroup;
use super::unseen::UnseenCalls;

/// One call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct SlowCall {
    /// Number among all calls in the trace, from 1, by begin: the argument of `report --call`.
    pub number: u64,
    pub call: String,
    pub task: String,
    pub tid: TaskId,
    pub begin_ns: u64,
    pub duration_ns: u64,
    /// `DEVICE inode N`
    pub file: Option<String>,
    /// Its path, as in a group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    pub bytes: u64,
}

/// Calls of one kind by one process that submit I/O.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct AsynchronousCalls {
    /// `io_uring_enter` or `io_submit`
    pub call: String,
    /// `NAME (THREAD)`
    pub name: String,
    pub n: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct CallsFound {
    /// Calls of all processes. Most time first, as in the next three.
    #[serde(default)]
    pub by_call: Vec<CallGroup>,
    pub by_process: Vec<CallGroup>,
    /// Of these, calls under a name that the process had before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub under_former_names: Vec<FormerCalls>,
    pub by_file: Vec<CallGroup>,
    /// The longest first.
    pub slowest: Vec<SlowCall>,
    /// Reads and writes that touched no storage; in a recording with --device: not that device. `None`, as the other counts, where the
    /// trace has no call.
    pub without_storage: Option<u64>,
    /// Of these, calls of 1 ms and longer, most time first: their waits are in no other table. In a recording with --device only calls
    /// with a bio of a worker.
    #[serde(default)]
    pub long_without_storage: Vec<UnseenCalls>,
    /// Other calls of a recording with --device without an event of that device: their files lie elsewhere, or they had nothing to do
    /// there. They are in no sum.
    #[serde(default)]
    pub not_of_device: Option<u64>,
    /// How many of these are `fsync` and similar calls.
    #[serde(default)]
    pub not_of_device_syncs: Option<u64>,
    /// Calls that submit I/O and do not wait for it. The submitted I/O is no call, and in no sum of calls; its bios are in the tables of
    /// bios. Most calls first.
    #[serde(default)]
    pub asynchronous: Vec<AsynchronousCalls>,
    /// Calls that the file system refused because it was full or a quota was exceeded, most first.
    #[serde(default)]
    pub refused: Vec<RefusedCalls>,
    /// Calls that began before the trace or had not ended.
    pub cut: Option<u64>,
    /// Calls and faults that were not followed, because too many threads were in one.
    #[serde(skip)]
    pub not_followed: u64,
    /// Writes of threads that were not followed, because there were too many: where a call of theirs is refused, the file system is unknown.
    #[serde(skip)]
    pub writes_not_followed: u64,
    /// Bios that a process queued within its syncs.
    #[serde(skip)]
    pub sync_bios: HashMap<String, u64>,
    /// The call selected by its number.
    #[serde(skip)]
    pub wanted: Option<SlowCall>,
}

impl CallsFound {
    pub fn is_empty(&self) -> bool {
        self.by_process.is_empty()
    }

    /// Counters of calls left out to bound memory, zero counts included.
    pub fn losses(&self) -> Vec<LossCount> {
        [
            (
                "calls_not_followed",
                self.not_followed,
                "calls and faults that are in no table: more than 16,384 threads were in one at once",
            ),
            (
                "call_writes_not_followed",
                self.writes_not_followed,
                "writes of threads beyond the first 16,384: which file system refused a call of theirs may be unknown",
            ),
        ]
        .map(|(name, count, meaning)| LossCount { name: name.to_owned(), count, meaning: meaning.to_owned() })
        .into()
    }

    /// Number and total time of all calls whose name passes the test.
    pub fn total(&self, is: impl Fn(&str) -> bool) -> (u64, u64) {
        let of = self.by_process.iter().filter(|group| is(&group.call));
        of.fold((0, 0), |(n, ns): (u64, u64), group| (n + group.ns.n, ns.saturating_add(group.total_ns)))
    }
}
