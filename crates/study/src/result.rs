//! Results of a matrix study: plain data, ready to serialise, without host time and host paths.

use crate::definition::Workload;
use flashscope_analysis::LossCount;
use flashscope_analysis::energy::Energy;
use flashscope_analysis::flash::{BlockCounts, Health, LatencyNs, OpCounts, TaskOps, Timeline};
use flashscope_trace::Facts;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Version of this document; raised when a field changes its meaning.
pub const SCHEMA: u32 = 1;

/// The header of the results of all kinds of studies.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct Header {
    pub schema: u32,
    pub study: String,
    pub title: String,
    /// The question that the study answers, one sentence.
    pub question: String,
    /// The meaning of "time" in this document ("guest time: executed instructions at 2 ns each").
    pub clock: String,
    pub flashscope: String,
    pub study_sha256: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct StudyResult {
    #[serde(flatten)]
    pub header: Header,
    /// The power profile for energy; `null`: energy was not modelled.
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
    /// The unit of a cell's `count`.
    #[serde(default)]
    pub workload: Workload,
    pub filesystem: String,
    pub contents: String,
    pub file_size_bytes: u64,
    /// The kernel's read-ahead before any change.
    pub default: DefaultReadahead,
    pub chip: ChipFacts,
    pub probes: Vec<ProbeUsed>,
    pub tracer: TracerCost,
    /// Flash operations by phase: mount, settle, …
    pub phases: Vec<PhaseCounts>,
    pub by_task: Vec<TaskOps>,
    pub timeline: Timeline,
    pub blocks: Vec<BlockCounts>,
    /// Work of error correction, and bad blocks; empty for sound chips.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub health: Vec<Health>,
    /// All losses by name, zero counts included.
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
    /// With kernel and agent from the recording's own facts.
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
    /// The unit of [`Cell::flash_reads`], in words.
    pub fn reads(&self) -> &'static str {
        match self.filesystem.parse::<crate::definition::Filesystem>() {
            Ok(filesystem) if filesystem.on_disk() => "device reads",
            _ => "flash reads",
        }
    }
}

/// The medium: a chip, or a disk in blocks of its file system (which then count as pages and as blocks).
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct ChipFacts {
    pub name: String,
    pub page_bytes: u32,
    pub block_bytes: u32,
    pub blocks: u32,
    /// The configured time of a full page read, and the measured time without the tracer.
    pub page_read_ns_measured: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct ProbeUsed {
    pub operation: String,
    pub symbol: String,
    pub how_chosen: String,
    pub loses: String,
}

/// The tracer's own cost: N raw page reads (on a disk: N cold random reads of 4 KiB), without and with tracing, in the same boot.
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
    /// The requested setting: "0", "128", "keep", "fadvise-random".
    pub readahead: String,
    /// The effective setting while the cell ran.
    pub readahead_kib: u64,
    pub interarrival_us: u64,
    pub seed: u64,
    /// CRC-32 of all bytes read. Cells with equal requests have equal values on every file system.
    pub crc32: u32,
    /// Sum of the read() times.
    pub total_ns: u64,
    pub latency: LatencyNs,
    /// For SELECTs: bytes of their texts.
    pub bytes_read: u64,
    /// Array reads from the first read() to the last; for a disk, read requests to its driver.
    pub flash_reads: u64,
    /// Array reads during open(); on JFFS2 it reads every node header of the file.
    pub flash_reads_open: u64,
    pub open_ns: u64,
    /// Energy for [`Cell::total_ns`]; `null` without a power profile, or if the profile lacks this work.
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
    /// The compared quantity: `time_saved_percent`, `time_saved_with_open_percent`, `reads_saved_percent`, `energy_saved_percent`,
    /// `latency_spread_percent`.
    pub quantity: String,
    /// Modelled with the read-ahead rules of this kernel, not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_model: Option<String>,
    pub filesystem: String,
    pub pattern: String,
    /// Range of the number of requests in the statement.
    pub count: [u64; 2],
    /// Size of a request in the statement; `None`: any.
    pub request_bytes: Option<u64>,
    pub published_min: f64,
    pub published_max: f64,
    pub unit: String,
    /// `None` if the study did not measure it; `note` has the reason.
    pub ours: Option<f64>,
    pub within: Option<bool>,
    pub note: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct Verdict {
    pub filesystem: String,
    pub kernel: String,
    /// One sentence, which begins with the current setting.
    pub sentence: String,
    /// The command for it, or why none is needed.
    pub command: String,
    pub today_kib: u64,
    pub best_kib: u64,
    /// Time saved compared with the current setting, by number of sequential requests. Negative: a loss.
    pub gain_percent: Vec<GainPoint>,
}

#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct GainPoint {
    pub pattern: String,
    pub count: u64,
    pub request_bytes: u64,
    pub interarrival_us: u64,
    pub seed: u64,
    /// Time saved by read-ahead 0 compared with the largest setting, percent of the latter.
    pub off_saves_time_percent: f64,
    /// Flash reads saved, percent.
    pub off_saves_reads_percent: f64,
    /// Energy saved, percent; only if both have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub off_saves_energy_percent: Option<f64>,
}
