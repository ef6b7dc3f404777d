//! Flash operations: counts, places, times, tasks, durations. One file per question.

mod activity;
mod amplification;
mod blocks;
mod counts;
mod health;
mod phases;
mod tasks;
mod timeline;
mod wear;
mod windows;
mod yaffs2;

pub use crate::latency::{LatencyHistogram, LatencyNs};
pub use activity::{Activities, Activity, ActivityFold, ActivityKind, MAX_ACTIVITIES, Scanned};
pub use amplification::{AmplificationFold, LayerBytes, UbiRegion, WriteLayer};
pub use blocks::{BlockCounts, BlockMap, Blocks, MAX_BLOCKS};
pub use counts::{Counts, Geometry, KindCounts, LabelledCounts, OpCounts};
pub use flashscope_trace::FlashOp;
pub use health::Health;
pub use phases::{MAX_PHASES, PhaseOps, Phases, PhasesFound};
pub use tasks::{ByTask, MAX_TASKS, OTHER_TASKS, TaskOps};
pub use timeline::{MAX_POINTS, Span, Timeline, TimelineFold, TimelinePoint};
pub use wear::{EraseSpread, FileWear, Life, TaskWear, Wear, WearFold, life};
pub use windows::{Window, WindowCounts};
pub use yaffs2::Yaffs2Fold;
