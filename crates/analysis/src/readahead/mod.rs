//! Read-ahead: what it brought, what of that was used, and what another setting would have brought.

mod accuracy;
mod advise;
mod clairvoyant;
mod cost;
mod descriptors;
mod predict;
mod search;
mod validated;
mod workload;

pub use accuracy::{Accuracy, AccuracyFindings, Brought, FileBrought, TaskBrought};
pub use advise::{Advice, Change, MOST, advise};
pub use clairvoyant::Clairvoyant;
pub use cost::Cost;
pub use predict::{PREDICTION_SCHEMA, Prediction, Predictor, Recorded, Row, Storage, Tally};
pub use search::{Best, Choice, Found, Owner, SEARCH_SCHEMA, Search, Spent, Wanted};
pub use validated::ErrorBar;
pub use workload::{Call, Collector, Step, Workload};
