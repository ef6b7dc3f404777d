//! The answers of a trace: what costs time or bytes, with the evidence, the cause, and what to type next.
//!
//! One rule a file. A rule says something only where its threshold is passed and the trace has what it rests on; else it is
//! silent. Faults come first, then causes by the time that they cost, then the overview.

mod fsync_storm;
mod storage;
mod top_io;
mod where_time_goes;

pub use storage::{Disk, Mount, StorageFacts};

use crate::block::{BlockFound, Group, GroupBy, StageTimes};
use crate::calls::CallsFound;
use crate::{Evidence, LossCount};
use serde::{Deserialize, Serialize};

/// Which rule found it; as JSON has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    FsyncStorm,
    WhereTimeGoes,
    TopIo,
}

/// How findings are ordered before their cost is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Weight {
    /// Data or the device is in danger.
    Fault,
    /// Something costs time or bytes that need not be spent.
    Cost,
    /// Who does what, and where time goes: no advice.
    Overview,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MeasureUnit {
    Ns,
    Bytes,
    Count,
    Percent,
    PerSecond,
    /// A factor.
    Times,
}

/// A figure that a finding rests on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measure {
    pub name: String,
    pub value: f64,
    pub unit: MeasureUnit,
    /// The events, or the file of the system, that it comes from.
    pub source: String,
}

/// What to type, or to change in a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "do")]
pub enum Step {
    /// A file below /sys that takes a value at run time.
    Set { path: String, value: String },
    /// `mount -o remount,OPTIONS TARGET`; `undo`: the options that were there before.
    Remount { target: String, options: String, undo: String },
    /// A command: words of ours, and names of the trace behind them that are not yet quoted.
    Run { command: String, names: Vec<String> },
    /// A line of a program.
    Code { line: String },
}

/// What following an advice brings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    /// Which figure falls: "time in fsync() of logger (12)".
    pub of: String,
    /// By so much of what it is now, percent.
    pub least_percent: f64,
    pub most_percent: f64,
    /// Where the range comes from.
    pub basis: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Remedy {
    pub what: String,
    pub steps: Vec<Step>,
    pub gain: Evidence<Gain>,
    pub risk: String,
}

/// One answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    pub rule: Rule,
    pub weight: Weight,
    /// One sentence.
    pub what: String,
    /// Why it is so.
    pub cause: String,
    pub evidence: Vec<Measure>,
    pub lost_ns: Evidence<u64>,
    pub lost_bytes: Option<u64>,
    pub advice: Vec<Remedy>,
    /// Why it may not be all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncertain: Option<String>,
}

/// What rules look at. What a trace has not is `None` or empty.
pub struct Seen<'a> {
    pub storage: &'a StorageFacts,
    pub block: Option<&'a BlockFound>,
    pub calls: &'a CallsFound,
    pub losses: &'a [LossCount],
    /// From the first event that is shown to the last.
    pub span_ns: u64,
}

impl Seen<'_> {
    /// Part of the recorded time, percent.
    fn of_span(&self, ns: u64) -> f64 {
        percent(ns, self.span_ns)
    }
}

fn percent(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { part as f64 / of as f64 * 100.0 }
}

fn measure(name: &str, value: impl Into<f64>, unit: MeasureUnit, source: &str) -> Measure {
    Measure { name: name.to_owned(), value: value.into(), unit, source: source.to_owned() }
}

fn stage<'a>(group: &'a Group, name: &str) -> Option<&'a StageTimes> {
    group.stages.iter().find(|one| one.stage == name)
}

fn groups(block: &BlockFound, by: GroupBy) -> impl Iterator<Item = &Group> {
    block.groups.iter().filter(move |group| group.by == by)
}

/// All that the trace answers, what matters most first.
pub fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let rules = [fsync_storm::find, where_time_goes::find, top_io::find];
    let mut all: Vec<Finding> = rules.iter().flat_map(|rule| rule(seen)).collect();
    let lost = |finding: &Finding| finding.lost_ns.known().copied().unwrap_or(0);
    all.sort_by_key(|finding| (finding.weight, std::cmp::Reverse((lost(finding), finding.lost_bytes)), finding.rule));
    all
}

#[cfg(test)]
mod testing;
