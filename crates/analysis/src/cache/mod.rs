//! The page cache: what read-ahead brought and what of that was used, and which bios were on their way.

mod accuracy;
mod brought;
pub mod in_flight;

pub use accuracy::{Accuracy, PageThere, Use};
pub use brought::{AccuracyFindings, Brought, FileBrought, TaskBrought};
