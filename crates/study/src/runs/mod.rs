//! Runs studies: whole workloads (Postmark, raw erases, writes and reads), each on a fresh boot, with or without a tracer.
//!
//! A case is timed and counted as a whole and by its parts. Every figure has a name, by which published statements are compared with it.

mod collect;
mod definition;
mod figures;
mod plan;
mod result;
mod run;

pub use definition::{Case, Postmark, Raw, Runs, RunsDefinition, RunsStudy, Tracer};
pub use plan::{PostmarkCommand, postmark_commands};
pub use result::{Cost, Part, PostmarkFacts, RUNS_SCHEMA, RingUse, RunGroup, RunsResult, Share, Spread};
pub use run::run;
