//! Renders results only: a study's result or a trace's findings as terminal text, JSON, CSV, SVG figures or one HTML page.
//!
//! Every output depends on its input only: not on the clock, paths or the environment. Names in the input are untrusted; each renderer
//! escapes text that could act on a terminal, a page or a spreadsheet.
// A figure is text that the command prints. Only crates/output writes to standard output.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod block_view;
mod boot_view;
mod calls_view;
pub mod csv;
pub mod figures;
pub mod findings_view;
mod flash_view;
pub mod html;
pub mod json;
pub mod replays_view;
pub mod reproduction;
pub mod terminal;
pub mod top;

mod comparison_view;
mod layers_view;
mod names;
mod prediction_view;
mod readahead_view;
mod recorded_view;
mod rows;
mod runs_view;
mod svg;
mod text;
mod view;
mod waits_together;
mod wear_view;

pub use comparison_view::outcome;
pub use prediction_view::worst;
pub use text::{duration, size, visible};

#[cfg(test)]
mod study_tests;
#[cfg(test)]
mod synthetic;
#[cfg(test)]
mod synthetic_studies;
#[cfg(test)]
mod tests;
