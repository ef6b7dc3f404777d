//! Compares two recordings, and checks a report against stated limits.
//!
//! Input: reports (block, flash), or any JSON result of flashscope. Output: named figures ([`Figure`]), their changes
//! ([`Comparison`]) and the results of conditions ([`Condition`]). Limit: a change is distinguished from run-to-run variation only
//! where both sides have at least two recordings.

mod change;
mod condition;
mod figures;
mod kept;
mod results;
mod spread;

pub use change::{COMPARISON_SCHEMA, Change, Comparison, FindingOnSides, RunFigures, Variation};
pub use condition::{Checked, Condition, GRAMMAR, Outcome, OutcomeUnit};
pub use figures::{Better, Figure, FigureUnit, UnknownFigure, of_block, of_flash};
pub use kept::{KeptError, run_of_json};
