//! A question, its matrix of settings, its boards, and the published values beside ours.

mod definition;
mod evaluate;
mod plan;
mod result;
mod size;

pub use definition::{Definition, DefinitionError, Filesystem, Fold, Matrix, Pattern, Published, Quantity, Study};
pub use evaluate::{compare, gains, verdict};
pub use plan::{CellSpec, GroupSpec, groups};
pub use result::*;
pub use size::Bytes;
