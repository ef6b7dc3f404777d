//! Predicts the pages, flash reads and time of a workload under other read-ahead settings.
//!
//! Input: a trace with file reads and page-cache events. Output: a row for each setting ([`Prediction`]), and advice ([`advise()`]).
//! `workload/` extracts the accesses. `measured/` has the cost of each page and flash read, `cost/` the fitted cost of calls, `queue/`
//! the same behind a block queue, in virtual time. `predictor` plays a setting, `accounts` sums it up. `validated` has error bounds.
//!
//! Limits: one processor behind a block queue; calls of several tasks in one file are played in their recorded order.

mod accounts;
mod advise;
mod cost;
mod least_squares;
mod measured;
mod prediction;
mod predictor;
mod queue;
mod settings;
mod validated;
mod workload;

pub use advise::silent::{Seen, Silent, recorded_knob, silent};
pub use advise::{Advice, Change, ErrorPercents, MOST, advise};
pub use cost::Cost;
pub use cost::costs::Costs;
pub use measured::ubifs::{Nodes, has_bulk_read};
pub use prediction::{Prediction, Recorded, Row};
pub use predictor::Predictor;
pub use queue::{DeviceCost, ProcessorCost, QueueCost, Queued, Requested, request_bytes};
pub use settings::{FilesystemOptions, PREDICTION_SCHEMA, Storage, TRIED_KIB, Tally};
pub use validated::ErrorBar;
pub use workload::overlap::Overlap;
pub use workload::{Call, Collector, TaskAccess, Workload};
