//! Results of a layers study: plain data without host time and host paths.

use crate::result::{Header, Inputs};
use crate::statement::{Figures, Row};
use flashscope_analysis::LossCount;
use flashscope_analysis::layers::{CallLayers, CallSum, Operation};
use flashscope_trace::Layer;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Version of this document; raised when a field changes its meaning.
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
    /// The storage with its settings.
    pub medium: String,
    /// The boundaries that were probed on this kernel, from user space down and back up.
    pub boundaries: Vec<Boundary>,
    /// Cold reads, and writes with their syncs; each pair of write and sync is one operation.
    pub calls: Vec<CallLayers>,
    /// The calls summed by kind.
    pub sums: Vec<CallSum>,
    /// All losses, zero counts included.
    pub losses: Vec<LossCount>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct Boundary {
    /// The agent's name of the layer.
    pub layer: String,
    /// A function, or a kernel event.
    pub what: String,
}

/// Each layer's share of each kind of call, percent of the calls' time, by name: `GROUP.read.device` and so on. Also the split of Hasegawa
/// et al. (IPSJ, table 5): `above_block`, `block_and_driver`.
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
