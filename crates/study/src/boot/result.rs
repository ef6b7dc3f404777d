//! What a study of booting found: plain data, free of host time and host paths.

use crate::result::{Header, Inputs};
use crate::statement::{Figures, Row};
use flashscope_analysis::LossCount;
use flashscope_analysis::flash::{Activities, OpCounts, TaskOps, Timeline};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Version of this document's shape; raised when a field changes its meaning.
pub const BOOT_SCHEMA: u32 = 1;

#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct BootResult {
    #[serde(flatten)]
    pub header: Header,
    pub groups: Vec<BootGroup>,
    /// What the phases come to, by name; the published statements are compared with these.
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
    /// First page of its partition, and the one behind its last.
    pub partition_pages: [u64; 2],
    pub root: RootFs,
    pub boots: Vec<Boot>,
    /// All are listed, zero ones too.
    pub losses: Vec<LossCount>,
}

/// What was flashed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct RootFs {
    pub image_bytes: u64,
    pub image_blocks: u64,
    /// Files, directories and links.
    pub files: u64,
    pub files_bytes: u64,
    /// Of them a file that fills the image up.
    pub filler_bytes: u64,
    /// "busybox-static 1:1.35.0-4"
    #[serde(default)]
    pub packages: Vec<String>,
}

/// From the mount on.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct Boot {
    pub name: String,
    /// On the recording's clock; every other time of a boot counts from here.
    pub begin_ns: u64,
    pub duration_ns: u64,
    /// The root file system is mounted, and its init begins.
    pub mounted_ns: u64,
    pub prompt_ns: u64,
    /// First and last flash operation of what made the SSH server's keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys_ns: Option<[u64; 2]>,
    pub counts: OpCounts,
    pub by_task: Vec<TaskOps>,
    /// Found in the operations; times from the boot's begin.
    pub phases: Activities,
    pub timeline: Timeline,
}
