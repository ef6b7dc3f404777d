//! What a study of layers found: plain data, free of host time and host paths.

use crate::result::{Header, Inputs};
use crate::statement::{Figures, Row};
use flashscope_analysis::LossCount;
use flashscope_analysis::layers::{CallLayers, CallSum, Operation};
use flashscope_trace::Layer;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Version of this document's shape; raised when a field changes its meaning.
pub const LAYERS_SCHEMA: u32 = 1;

#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct LayersResult {
    #[serde(flatten)]
    pub header: Header,
    pub groups: Vec<LayersGroup>,
    #[serde(default)]
    pub published: Vec<Row>,
}

/// One boot.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
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

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct Boundary {
    /// As the agent names it.
    pub layer: String,
    /// Function, or kernel event.
    pub what: String,
}

/// Every layer's share of each kind of call, percent of its calls' time, by name: `GROUP.read.device` and so on; and, as
/// Hasegawa et al. cut it (IPSJ, table 5): `above_block`, `block_and_driver`.
pub fn figures(groups: &[LayersGroup]) -> Figures {
    let mut figures = Figures::new();
    for group in groups {
        for sum in &group.sums {
            let call = match sum.call {
                Operation::Read => "read",
                Operation::Write => "write",
                Operation::Sync => "sync",
                Operation::WriteSync => "write_sync",
            };
            for time in &sum.layers {
                let share = time.ns as f64 / sum.total_ns.max(1) as f64 * 100.0;
                let mut add = |name: &str| *figures.entry(format!("{}.{call}.{name}", group.id)).or_default() += share;
                add(time.layer.name());
                match time.layer {
                    Layer::Call | Layer::Vfs | Layer::PageCache | Layer::FileSystem => add("above_block"),
                    Layer::Block | Layer::Driver => add("block_and_driver"),
                    _ => {}
                }
            }
        }
    }
    figures
}
