//! What a study of replays found: plain data, free of host time and host paths.

use flashscope_analysis::LossCount;
use flashscope_analysis::block::BlockReport;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::result::{Header, Inputs};
use crate::statement::{Figures, Row};

/// Version of this document's shape; raised when a field changes its meaning.
pub const REPLAYS_SCHEMA: u32 = 6;

#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct ReplaysResult {
    #[serde(flatten)]
    pub header: Header,
    pub groups: Vec<ReplayGroup>,
    /// The application's delay with each lever.
    pub levers: Vec<LeverFound>,
    /// Levers that a kernel does not have.
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
    /// The chip or the disk with its settings.
    pub medium: String,
    /// From the first call to the last.
    pub duration_ns: u64,
    pub player: Player,
    /// Of its requests to a block device; empty on raw NAND.
    pub stages: Vec<Stage>,
    pub pattern: Option<Pattern>,
    /// From when the others began, or of the application alone from each of those times that it is compared with. Empty where there
    /// are no block events.
    pub delay: Vec<Delay>,
    /// Of its read() calls from each of those times on.
    pub reads_since: Vec<ReadsSince>,
    /// Flash reads and programs; of raw NAND.
    pub flash_reads: Option<u64>,
    pub flash_programs: Option<u64>,
    /// What the other scripts' tasks read and wrote, and how long that took from the first one's begin.
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
    /// `None` without a read, as the two below.
    pub p50_ns: Option<u64>,
    pub p99_ns: Option<u64>,
    pub max_ns: Option<u64>,
    pub total_ns: u64,
    /// Frames whose read returned later than the film needs it; `None` without a film.
    pub late_frames: Option<u64>,
}

/// The application's read() calls from a time on, when the others begin or would begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct ReadsSince {
    /// In the scripts' time.
    pub from_ns: u64,
    pub total_ns: u64,
}

/// A stage between two steps of a bio, as btt has it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct Stage {
    pub name: String,
    pub n: u64,
    /// `None` where no bio has the stage.
    pub mean_ns: Option<u64>,
    /// Of Q2C; `None` for Q2Q and Q2C.
    pub percent: Option<f64>,
}

/// What the points of figures 5 to 7 show.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct Pattern {
    pub reads: u64,
    /// The most frequent size of a read, and the share of reads that have it; `None` without a read.
    pub common_bytes: Option<u64>,
    pub common_percent: Option<f64>,
    /// Reads that begin where the one before them ended, of all but the first; `None` with fewer than two.
    pub sequential_percent: Option<f64>,
    /// Times at which the next read is of another file: films, less one.
    pub breaks: u64,
    pub writes: u64,
    /// Writes within 2 s of the begin of a film, of all of them; `None` without a break or a write.
    pub writes_at_begins_percent: Option<f64>,
    /// Times without a read of half a second and more, plus one.
    pub bursts: u64,
    /// When half of the bytes were read; `None` without a read.
    pub half_ns: Option<u64>,
}

/// The mean time from queueing to completion of the bios that the application queued from a time on.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct Delay {
    /// In the scripts' time.
    pub from_ns: u64,
    pub bios: u64,
    pub mean_q2c_ns: u64,
    /// Without the others, calculated from the trace alone; `None`: unknown.
    pub told_alone_ns: Option<u64>,
    /// Of that, passed behind others.
    pub told_behind_ns: u64,
}

/// A boot, where its kernel has the lever.
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
    /// Names the kernel option.
    pub why: String,
}

/// A lever in one case, over its shifts.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct LeverFound {
    pub case: String,
    pub lever: String,
    pub kernel: String,
    pub runs: u64,
    /// Mean, least and most of the shifts: the application's p99, and all of its reads since the others began.
    pub p99_ms: [f64; 3],
    pub read_ms: [f64; 3],
    /// Its reads since the same moments alone (the mean of the shifts), with the same lever or else the same disk settings. `None`: no
    /// such run.
    pub alone_ms: Option<f64>,
    /// How much longer its reads took than that: what the others cost it.
    pub wait_ms: Option<[f64; 3]>,
    /// How much longer they took than alone without a lever: what the others and the lever cost it together.
    pub slower_ms: Option<[f64; 3]>,
    /// `None`: the application plays no film.
    pub late_frames: Option<[f64; 3]>,
    /// MiB a second of the others.
    pub others_mib_s: [f64; 3],
    pub systemd: String,
}
