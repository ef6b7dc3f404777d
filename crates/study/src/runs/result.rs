//! Results of a runs study: plain data without host time and host paths.

use super::definition::Tracer;
use crate::result::{Header, Inputs};
use crate::statement::{Figures, Row};
use flashscope_analysis::LossCount;
use flashscope_analysis::flash::{Geometry, OpCounts, TaskOps, Timeline};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Version of this document; raised when a field changes its meaning.
pub const RUNS_SCHEMA: u32 = 2;

#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct RunsResult {
    #[serde(flatten)]
    pub header: Header,
    pub groups: Vec<RunGroup>,
    /// The tracing costs, if the runs were also made without tracing.
    pub costs: Vec<Cost>,
    /// The costs of runs that differ in their seed only.
    #[serde(default)]
    pub spreads: Vec<Spread>,
    /// All figures of the groups by name, and those that combine two or more groups.
    pub figures: Figures,
    /// Published statements with our values.
    pub published: Vec<Row>,
}

/// One boot.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct RunGroup {
    pub id: String,
    /// Prefix of its figures' names.
    pub name: String,
    pub case: String,
    pub inputs: Inputs,
    pub tracer: Tracer,
    pub chip: String,
    pub geometry: Geometry,
    pub chip_blocks: u32,
    pub partition_bytes: u64,
    /// Facts of a Postmark run.
    pub postmark: Option<PostmarkFacts>,
    /// The measured time: the sum of all parts except "after".
    pub total_ns: u64,
    /// Time that the processor was not idle, from before the workload to the end of recording, including file systems' threads and the
    /// recorder. Only for runs that are compared; the kernel counts in steps of 10 ms.
    #[serde(default)]
    pub busy_ns: Option<u64>,
    pub parts: Vec<Part>,
    /// Operations from the beginning of the first part to the end of the last one; `None` if nothing was recorded.
    pub all: Option<OpCounts>,
    pub by_task: Vec<TaskOps>,
    /// The workload and an equal time after it; and the whole time, if it is longer.
    pub timelines: Vec<Timeline>,
    pub ring: Option<RingUse>,
    /// All losses, zero counts included; empty if nothing was recorded.
    pub losses: Vec<LossCount>,
}

/// The properties that `bench postmark` prints.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct PostmarkFacts {
    pub filesystem: String,
    /// Mount options, if any.
    pub options: Option<String>,
    /// The requested setting, and the effective one during the run.
    pub readahead: String,
    pub readahead_kib: Option<u64>,
    pub size_min_bytes: u64,
    pub size_max_bytes: u64,
    pub contents: String,
    pub created: u64,
    pub read: u64,
    pub appended: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub read_ns: u64,
    pub write_ns: u64,
    pub shares: Vec<Share>,
    /// CRC-32 of all bytes read, in order.
    pub crc32: u32,
}

/// Read throughput for a share of each file.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct Share {
    pub percent: u64,
    pub bytes: u64,
    pub read_ns: u64,
}

impl Share {
    /// Throughput of read() in MiB/s.
    pub fn mib_per_s(&self) -> f64 {
        self.bytes as f64 * 1e9 / (1u64 << 20) as f64 / self.read_ns as f64
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct Part {
    pub name: String,
    pub begin_ns: u64,
    pub end_ns: u64,
    pub counts: Option<OpCounts>,
    /// Times of the last operation and the last erase in it.
    pub last_ns: Option<u64>,
    pub last_erase_ns: Option<u64>,
}

impl Part {
    pub fn duration_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.begin_ns)
    }
}

/// Data of a recording in the kernel's ring buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct RingUse {
    pub events: u64,
    /// Bytes of whole sub-buffers, as they left the ring.
    pub bytes: u64,
}

/// The time of a run or a part of it, without and with the tracer: two equal boots.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct Cost {
    pub name: String,
    /// Empty: the whole run. `busy`: the processor's time, until the end of recording.
    pub part: String,
    pub tracer: Tracer,
    pub without_ns: u64,
    pub with_ns: u64,
    /// Events that were recorded meanwhile.
    pub events: u64,
}

/// The part of a [`Cost`] for the processor's time.
pub(super) const PART_BUSY: &str = "busy";

/// Costs of runs with several seeds.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct Spread {
    pub name: String,
    pub part: String,
    pub tracer: Tracer,
    pub seeds: usize,
    /// The median, and the smallest and largest value.
    pub percent: f64,
    pub least_percent: f64,
    pub most_percent: f64,
    /// The median; `None` if a run has no event.
    pub us_an_event: Option<f64>,
}

impl Cost {
    fn more_ns(&self) -> f64 {
        self.with_ns as f64 - self.without_ns as f64
    }

    pub fn percent(&self) -> f64 {
        self.more_ns() / self.without_ns as f64 * 100.0
    }

    /// `None` without an event.
    pub fn us_an_event(&self) -> Option<f64> {
        (self.events > 0).then(|| self.more_ns() / 1e3 / self.events as f64)
    }
}
