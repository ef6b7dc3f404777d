//! Replay studies: recorded applications, alone and together, on boards, and ways to protect one from another.
//!
//! Input: replay scripts and a list of cases, each on a board's storage. Output: for each boot the stages of the application's requests,
//! their pattern, its waits and late frames, and the throughput of the others, as figures by name. Limits: a script repeats the requests of
//! the recording; the application cannot decide differently.

mod collect;
mod definition;
mod figures;
mod plan;
mod result;
mod run;
mod script;

pub use definition::{Case, Change, Lever, Replays, ReplaysDefinition, ReplaysStudy};
pub use result::{Delay, LeverFound, LeverRefused, Pattern, Player, REPLAYS_SCHEMA, ReplayGroup, ReplaysResult, Stage};
pub use run::run;
pub use script::{Call, Cgroup, File, MAGIC, Script, ScriptError, Task, Verb};
