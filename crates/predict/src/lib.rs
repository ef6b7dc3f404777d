//! What another read-ahead setting would have brought, and what that costs.
//!
//! Input: a trace with file reads and page-cache events. Output: a row for each setting ([`Prediction`]), and advice ([`advise()`]).
//! `workload/` takes the trace apart. `measured/` knows what pages and flash reads took; `cost/` what calls take, `queue/` the same
//! behind a block queue, in virtual time. `accounts` sums up one setting, `predictor` plays them. `validated` has the error bounds.
//!
//! Limits: one processor behind a block queue; calls of several tasks in one file are played in their recorded order.

mod accounts;
mod advise;
mod cost;
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
pub use measured::ubifs::{Nodes, has_bulk_read};
pub use prediction::{Prediction, Recorded, Row};
pub use predictor::Predictor;
pub use queue::{DeviceCost, ProcessorCost, QueueCost, Queued, Requested, request_bytes};
pub use settings::{FilesystemOptions, PREDICTION_SCHEMA, Storage, TRIED_KIB, Tally};
pub use validated::ErrorBar;
pub use workload::overlap::Overlap;
pub use workload::{Call, Collector, TaskAccess, Workload};
