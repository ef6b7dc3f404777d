//! Flash operations: how many, where, when, by whom, how long. One file per question.

mod blocks;
mod counts;
mod latency;
mod phases;
mod tasks;
mod timeline;
mod windows;

pub use blocks::{BlockCounts, BlockMap, Blocks, MAX_BLOCKS};
pub use counts::{Counts, Geometry, KindCounts, LabelledCounts, OpCounts, saved_percent};
pub use latency::{LatencyHistogram, LatencyNs};
pub use phases::{MAX_PHASES, PhaseOps, Phases, PhasesFound};
pub use tasks::{ByTask, MAX_TASKS, OTHER_TASKS, TaskOps};
pub use timeline::{MAX_POINTS, Span, Timeline, TimelineFold, TimelinePoint};
pub use windows::{Window, WindowCounts};
