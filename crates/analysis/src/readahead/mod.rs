//! Read-ahead: what it brought, what of that was used, and what another setting would have brought.
//!
//! - A trace taken apart: `workload` (reads, faults and advice), `descriptors` (which open file each is of), `held` (when others ran
//!   instead), `cached` (which pages are there), `ubifs` (where data nodes lie), `in_flight` (what a block device was
//!   asked for).
//! - What it costs: `cost` (a call and a page where reads bring their pages in themselves), `pages` (single ones of them),
//!   `flash_time` (pages of flash that are read whole, and in part), `index` (of UBIFS), `squashfs` (blocks), `queue` (the same in
//!   virtual time, behind a block queue).
//! - What is asked: `accuracy` (what was brought and used), `predict` with `accounts` (another window), `overlap` (tasks whose calls of
//!   one file overlap), `advise` with `blocks` and `silent` (what is worth changing), `validated` (by how much predictions were off).

mod accounts;
mod accuracy;
mod advise;
mod blocks;
mod cached;
mod cost;
mod descriptors;
mod flash_time;
mod held;
mod in_flight;
mod index;
mod overlap;
mod pages;
mod predict;
mod queue;
mod silent;
mod squashfs;
mod ubifs;
mod validated;
mod workload;

pub use accuracy::{Accuracy, AccuracyFindings, Brought, FileBrought, PageThere, TaskBrought, Use};
pub use advise::{Advice, Change, MOST, Off, advise};
pub use cost::Cost;
pub use overlap::Overlap;
pub use predict::{Made, PREDICTION_SCHEMA, Prediction, Predictor, Recorded, Row, Storage, TRIED_KIB, Tally};
pub use queue::{Asked, DeviceCost, ProcessorCost, QueueCost, Queued, request_bytes};
pub use silent::{Seen, Silent, recorded_knob, silent};
pub use ubifs::{Nodes, has_bulk_read};
pub use validated::ErrorBar;
pub use workload::{Call, Collector, Step, Workload};
