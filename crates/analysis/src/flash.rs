//! Flash operations: how many, where, when, by whom.

use serde::{Deserialize, Serialize};

/// Array commands by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpCounts {
    pub reads: u64,
    pub programs: u64,
    pub erases: u64,
}

/// Operations of one erase block; blocks without any are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockCounts {
    pub block: u32,
    #[serde(flatten)]
    pub counts: OpCounts,
}

/// Operations over time and address, binned to a bounded number of points.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    pub begin_ns: u64,
    pub end_ns: u64,
    /// Width of a bin along time and along pages; 1 and 1 where nothing was binned.
    pub bin_ns: u64,
    pub bin_pages: u32,
    pub points: Vec<TimelinePoint>,
    /// Named spans (mount, settle, cells), for the figure's x axis.
    pub spans: Vec<Span>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimelinePoint {
    /// Middle of the bin.
    pub time_ns: u64,
    pub page: u64,
    pub op: flashscope_trace::FlashOp,
    pub count: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Span {
    pub name: String,
    pub begin_ns: u64,
    pub end_ns: u64,
}

/// Distribution of the times of a set of calls, nanoseconds; percentiles by nearest rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyNs {
    pub n: u64,
    pub min: u64,
    pub mean: u64,
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub max: u64,
}
