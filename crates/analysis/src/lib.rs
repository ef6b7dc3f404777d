//! Analyses of a trace. Each ([`Analysis`]) is a fold over its events and uses no files, no clock and no output.

pub mod block;
pub mod bounded;
pub mod cache;
mod call_path;
pub mod calls;
mod clip;
pub mod comparison;
pub mod energy;
mod evidence;
mod finding;
pub mod findings;
pub mod flash;
mod flash_report;
mod kernel_threads;
mod latency;
pub mod layers;
mod names;
mod own_wear;
mod read_before;
mod split;
#[cfg(test)]
mod testing;
mod total;
pub mod units;
pub mod usage;

pub use call_path::{CALL_PATH_SCHEMA, CallPath, Holder, PathBio, PathBios, call_path, path_bios};
pub use evidence::{Evidence, Unknown};
pub use flash_report::*;
pub use flashscope_trace::{FileId, TaskId, file_label};
pub use flashscope_trace::{split_task_label, task_label, task_name};
pub use latency::{LatencyHistogram, LatencyNs, LatencyRange};
pub use names::*;
pub use own_wear::OwnWear;
pub use split::{ChipOps, SPLIT_REPORT_SCHEMA, SplitBy, SplitReport};

use flashscope_trace::Event;

/// A fold over a stream of events, without files, clock or output.
pub trait Analysis {
    type Output: serde::Serialize;
    fn event(&mut self, event: &Event);
    fn finish(self) -> Self::Output;
}
