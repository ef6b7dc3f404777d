//! The page cache: what read-ahead brought and what of that was used, and which bios were on their way.

mod accuracy;
pub mod in_flight;

pub use accuracy::{Accuracy, AccuracyFindings, Brought, FileBrought, PageThere, TaskBrought, Use};
