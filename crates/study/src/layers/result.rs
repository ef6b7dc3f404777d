//! What a study of layers found: plain data, free of host time and host paths.

use crate::result::Inputs;
use flashscope_analysis::LossCount;
use flashscope_analysis::layers::{CallLayers, CallSum};
use serde::{Deserialize, Serialize};

/// Version of this document's shape; raised when a field changes its meaning.
pub const LAYERS_SCHEMA: u32 = 1;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LayersResult {
    pub schema: u32,
    pub study: String,
    pub title: String,
    pub question: String,
    /// What "time" is in this document.
    pub clock: String,
    pub flashscope: String,
    pub study_sha256: String,
    pub groups: Vec<LayersGroup>,
}

/// One boot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LayersGroup {
    pub id: String,
    pub inputs: Inputs,
    pub filesystem: String,
    /// What it lies on, with its settings.
    pub medium: String,
    /// What was probed on this kernel, from user space down and up again.
    pub boundaries: Vec<Boundary>,
    /// Cold reads, and writes with their syncs, each as one operation.
    pub calls: Vec<CallLayers>,
    /// The same by kind.
    pub sums: Vec<CallSum>,
    /// All are listed, zero ones too.
    pub losses: Vec<LossCount>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boundary {
    /// As the agent names it.
    pub layer: String,
    /// Function, or kernel event.
    pub what: String,
}
