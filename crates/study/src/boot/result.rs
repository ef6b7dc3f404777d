//! Results of a boot study: plain data without host time and host paths.

use crate::result::{Header, Inputs};
use crate::statement::{Figures, Row};
use flashscope_analysis::LossCount;
use flashscope_analysis::flash::{Activities, OpCounts, TaskOps, Timeline};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Version of this document; raised when a field changes its meaning.
pub const BOOT_SCHEMA: u32 = 1;

#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct BootResult {
    #[serde(flatten)]
    pub header: Header,
    pub groups: Vec<BootGroup>,
    /// Figures of the phases, by name; they are compared with the published statements.
    pub figures: Figures,
    pub published: Vec<Row>,
}

/// One root file system.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct BootGroup {
    pub id: String,
    pub inputs: Inputs,
    pub filesystem: String,
    pub chip: String,
    pub page_bytes: u32,
    pub pages_per_block: u32,
    /// First page of its partition, and the first page after it.
    pub partition_pages: [u64; 2],
    pub root: RootFs,
    pub boots: Vec<Boot>,
    /// All losses, zero counts included.
    pub losses: Vec<LossCount>,
}

/// The flashed file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct RootFs {
    pub image_bytes: u64,
    pub image_blocks: u64,
    /// Files, directories and links.
    pub files: u64,
    pub files_bytes: u64,
    /// Size of a file in it that fills the image.
    pub filler_bytes: u64,
    /// "busybox-static 1:1.35.0-4"
    #[serde(default)]
    pub packages: Vec<String>,
}

/// One boot, from its mount on.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct Boot {
    pub name: String,
    /// Time on the recording's clock. All other times of a boot count from here.
    pub begin_ns: u64,
    pub duration_ns: u64,
    /// The root file system is mounted, and init begins.
    pub mounted_ns: u64,
    pub prompt_ns: u64,
    /// First and last flash operation of the program that generates the SSH server's keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys_ns: Option<[u64; 2]>,
    pub counts: OpCounts,
    pub by_task: Vec<TaskOps>,
    /// Phases found in the operations; times count from the boot's beginning.
    pub phases: Activities,
    pub timeline: Timeline,
}
