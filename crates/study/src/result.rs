//! What a study found: plain data, ready to serialise, free of host time and host paths.

use crate::definition::Workload;
use flashscope_analysis::LossCount;
use flashscope_analysis::energy::Energy;
use flashscope_analysis::flash::{BlockCounts, Health, LatencyNs, OpCounts, TaskOps, Timeline};
use flashscope_trace::Facts;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Version of this document's shape; raised when a field changes its meaning.
pub const SCHEMA: u32 = 1;

/// What the results of every kind of study begin with.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct Header {
    pub schema: u32,
    pub study: String,
    pub title: String,
    /// The question that the study answers, one sentence.
    pub question: String,
    /// What "time" is in this document ("guest time: executed instructions at 2 ns each").
    pub clock: String,
    pub flashscope: String,
    pub study_sha256: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct StudyResult {
    #[serde(flatten)]
    pub header: Header,
    /// What energy was modelled with; `null`: it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power: Option<PowerUsed>,
    pub groups: Vec<Group>,
    pub comparisons: Vec<Comparison>,
    pub verdicts: Vec<Verdict>,
}

/// A power profile.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct PowerUsed {
    pub name: String,
    pub title: String,
    pub source: String,
}

/// Cells that shared one fresh boot.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct Group {
    pub id: String,
    pub inputs: Inputs,
    /// What a cell has `count` of.
    #[serde(default)]
    pub workload: Workload,
    pub filesystem: String,
    pub contents: String,
    pub file_size_bytes: u64,
    /// The read-ahead that the kernel had set before anything was changed.
    pub default: DefaultReadahead,
    pub chip: ChipFacts,
    pub probes: Vec<ProbeUsed>,
    pub tracer: TracerCost,
    /// Flash operations by phase: mount, settle, …
    pub phases: Vec<PhaseCounts>,
    pub by_task: Vec<TaskOps>,
    pub timeline: Timeline,
    pub blocks: Vec<BlockCounts>,
    /// What error correction did, and bad blocks; of sound chips nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub health: Vec<Health>,
    /// Named counters of what was not seen. All are listed, zero ones too.
    pub losses: Vec<LossCount>,
    pub cells: Vec<Cell>,
}

#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct Inputs {
    pub board: String,
    pub board_sha256: String,
    pub kernel: String,
    pub kernel_release: String,
    /// Package name and version, or "user's own".
    pub kernel_package: String,
    pub kernel_sha256: String,
    pub qemu: String,
    pub agent: String,
    pub agent_sha256: String,
    pub image_sha256: String,
}

impl Inputs {
    /// With the kernel and the agent as the recording itself states them.
    pub(crate) fn recorded(self, facts: &Facts) -> Inputs {
        Inputs {
            kernel_release: facts.kernel.release.clone().unwrap_or(self.kernel_release),
            agent: facts.agent.version.clone().unwrap_or(self.agent),
            ..self
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct DefaultReadahead {
    /// "/sys/class/bdi/mtd-0/read_ahead_kb"
    pub knob: String,
    pub kib: u64,
}

impl Group {
    /// What [`Cell::flash_reads`] counts here, in words.
    pub fn reads(&self) -> &'static str {
        match self.filesystem.parse::<crate::definition::Filesystem>() {
            Ok(filesystem) if filesystem.on_disk() => "device reads",
            _ => "flash reads",
        }
    }
}

/// The medium: a chip, or a disk in blocks of its file system (then a page is such a block, and so is a block).
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct ChipFacts {
    pub name: String,
    pub page_bytes: u32,
    pub block_bytes: u32,
    pub blocks: u32,
    /// The configured time of a full page read, and the measured time untraced.
    pub page_read_ns_measured: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct ProbeUsed {
    pub operation: String,
    pub symbol: String,
    pub how_chosen: String,
    pub loses: String,
}

/// The tracer's own cost: N page-sized raw reads (of a disk: N reads of 4 KiB at random, cold), without and with tracing, on this
/// very boot.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct TracerCost {
    pub reads: u64,
    pub untraced_ns: u64,
    pub traced_ns: u64,
    pub ns_per_event: f64,
    pub percent_of_page_read: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct PhaseCounts {
    pub phase: String,
    pub duration_ns: u64,
    pub counts: OpCounts,
}

/// One setting, measured once from a cold cache.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct Cell {
    pub count: u64,
    pub request_bytes: u64,
    pub pattern: String,
    /// As asked: "0", "128", "keep", "fadvise-random".
    pub readahead: String,
    /// What the knob said while the cell ran.
    pub readahead_kib: u64,
    pub interarrival_us: u64,
    pub seed: u64,
    /// CRC-32 of all bytes read: cells of equal requests agree on every file system.
    pub crc32: u32,
    /// Sum of the read() times.
    pub total_ns: u64,
    pub latency: LatencyNs,
    /// Of selects: bytes of their texts.
    pub bytes_read: u64,
    /// Array reads from the first read() to the last; of a disk, read requests that its driver got.
    pub flash_reads: u64,
    /// Array reads of open(), which on JFFS2 reads every node header of the file.
    pub flash_reads_open: u64,
    pub open_ns: u64,
    /// Of [`Cell::total_ns`]; `null` where the study has no power profile, or it has no such work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy: Option<Energy>,
}

/// A published value beside ours.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct Comparison {
    pub id: String,
    /// "Olivier et al. 2014, section 4.1.2, figure 3-b"
    pub source: String,
    pub statement: String,
    /// What is compared: `time_saved_percent`, `time_saved_with_open_percent`, `reads_saved_percent`, `energy_saved_percent`,
    /// `latency_spread_percent`.
    pub quantity: String,
    /// Modelled by the read-ahead rules of this kernel instead of measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_model: Option<String>,
    pub filesystem: String,
    pub pattern: String,
    /// Numbers of requests that the statement is about, from and to.
    pub count: [u64; 2],
    /// Size of one request that the statement is about; `None`: any.
    pub request_bytes: Option<u64>,
    pub published_min: f64,
    pub published_max: f64,
    pub unit: String,
    /// `None` where the study did not measure it; `note` says why.
    pub ours: Option<f64>,
    pub within: Option<bool>,
    pub note: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct Verdict {
    pub filesystem: String,
    pub kernel: String,
    /// One plain sentence that begins with what is on today.
    pub sentence: String,
    /// The command for it, or why none is needed.
    pub command: String,
    pub today_kib: u64,
    pub best_kib: u64,
    /// Time that could be saved against today, by number of requests, sequential. Negative: a loss.
    pub gain_percent: Vec<GainPoint>,
}

#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct GainPoint {
    pub pattern: String,
    pub count: u64,
    pub request_bytes: u64,
    pub interarrival_us: u64,
    pub seed: u64,
    /// Time saved by read-ahead 0 against the largest setting, percent of the latter.
    pub off_saves_time_percent: f64,
    /// Flash reads saved, percent.
    pub off_saves_reads_percent: f64,
    /// Energy saved, percent; where both have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub off_saves_energy_percent: Option<f64>,
}
