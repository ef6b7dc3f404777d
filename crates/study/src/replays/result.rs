//! Results of a replay study: plain data without host time and host paths.

use flashscope_analysis::LossCount;
use flashscope_analysis::block::BlockReport;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::result::{Header, Inputs};
use crate::statement::{Figures, Row};

/// Version of this document; raised when a field changes its meaning.
pub const REPLAYS_SCHEMA: u32 = 6;

#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct ReplaysResult {
    #[serde(flatten)]
    pub header: Header,
    pub groups: Vec<ReplayGroup>,
    /// The application's delay with each lever.
    pub levers: Vec<LeverFound>,
    /// Levers that a kernel lacks.
    pub refused: Vec<LeverRefused>,
    pub figures: Figures,
    pub published: Vec<Row>,
}

/// One boot.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct ReplayGroup {
    pub id: String,
    pub name: String,
    pub inputs: Inputs,
    pub filesystem: String,
    /// The chip, or the disk with its settings.
    pub medium: String,
    /// Time from the first call to the last.
    pub duration_ns: u64,
    pub player: Player,
    /// Stages of its requests to a block device; empty on raw NAND.
    pub stages: Vec<Stage>,
    pub pattern: Option<Pattern>,
    /// Delays from the time when the others began. If the application is alone: one for each such time in the runs that it is compared
    /// with. Empty without block events.
    pub delay: Vec<Delay>,
    /// Its read() calls from each of those times on.
    pub reads_since: Vec<ReadsSince>,
    /// Flash reads and programs; only on raw NAND.
    pub flash_reads: Option<u64>,
    pub flash_programs: Option<u64>,
    /// Bytes that the other scripts' tasks read and wrote, and the time for it from the beginning of the first one.
    pub others_bytes: u64,
    pub others_ns: u64,
    /// The application's requests, for a figure.
    pub report: Option<Box<BlockReport>>,
    pub losses: Vec<LossCount>,
}

/// The application's read() calls.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct Player {
    pub reads: u64,
    pub bytes: u64,
    /// `None` without a read, like the next two.
    pub p50_ns: Option<u64>,
    pub p99_ns: Option<u64>,
    pub max_ns: Option<u64>,
    pub total_ns: u64,
    /// Frames whose read returned too late for the film; `None` without a film.
    pub late_frames: Option<u64>,
}

/// The application's read() calls from a time on, when the others begin or would begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct ReadsSince {
    /// Time in the scripts.
    pub from_ns: u64,
    pub total_ns: u64,
}

/// A stage between two steps of a bio, as in btt.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct Stage {
    pub name: String,
    pub n: u64,
    /// `None` if no bio has the stage.
    pub mean_ns: Option<u64>,
    /// Share of Q2C; `None` for Q2Q and Q2C.
    pub percent: Option<f64>,
}

/// The pattern of the points in figures 5 to 7.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct Pattern {
    pub reads: u64,
    /// The most frequent size of a read, and its share of all reads; `None` without a read.
    pub common_bytes: Option<u64>,
    pub common_percent: Option<f64>,
    /// Share of reads that begin at the end of the previous read, without the first read; `None` with fewer than two.
    pub sequential_percent: Option<f64>,
    /// Number of times that the next read is from another file: the number of films minus one.
    pub breaks: u64,
    pub writes: u64,
    /// Share of writes within 2 s of a film's beginning; `None` without a break or a write.
    pub writes_at_begins_percent: Option<f64>,
    /// Number of pauses of at least half a second without a read, plus one.
    pub bursts: u64,
    /// Time at which half of the bytes were read; `None` without a read.
    pub half_ns: Option<u64>,
}

/// Mean time from queueing to completion of the bios that the application queued from a time on.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct Delay {
    /// Time in the scripts.
    pub from_ns: u64,
    pub bios: u64,
    pub mean_q2c_ns: u64,
    /// Estimate without the others, from this trace alone; `None`: unknown.
    pub told_alone_ns: Option<u64>,
    /// The part of the delay that passed behind others.
    pub told_behind_ns: u64,
}

/// A boot, or the refusal of a kernel without the lever.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Played {
    Ran(Box<ReplayGroup>),
    Refused(LeverRefused),
}

/// A lever that `bench replay` refused on this kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct LeverRefused {
    pub case: String,
    pub lever: String,
    pub kernel: String,
    /// Contains the name of the kernel option.
    pub why: String,
}

/// A lever in one case, over its shifts.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct LeverFound {
    pub case: String,
    pub lever: String,
    pub kernel: String,
    pub runs: u64,
    /// Mean, smallest and largest value over the shifts: the application's p99, and the time of all its reads since the others began.
    pub p99_ms: [f64; 3],
    pub read_ms: [f64; 3],
    /// Time of its reads since the same moments when alone (mean of the shifts), with the same lever or else the same disk settings.
    /// `None`: no such run.
    pub alone_ms: Option<f64>,
    /// Additional time of its reads compared with that: the cost of the others.
    pub wait_ms: Option<[f64; 3]>,
    /// Additional time compared with the run alone without a lever: the cost of the others and the lever.
    pub slower_ms: Option<[f64; 3]>,
    /// `None`: the application plays no film.
    pub late_frames: Option<[f64; 3]>,
    /// Throughput of the others, MiB/s.
    pub others_mib_s: [f64; 3],
    pub systemd: String,
}
