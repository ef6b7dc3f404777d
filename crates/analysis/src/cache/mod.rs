//! The page cache: the pages that read-ahead brought in, their use, and the bios in flight.

mod accuracy;
mod brought;
pub mod in_flight;

pub use accuracy::{Accuracy, PageThere, Use};
pub use brought::{AccuracyFindings, Brought, FileBrought, TaskBrought};
