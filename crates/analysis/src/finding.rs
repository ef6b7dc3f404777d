//! A finding: a cost in time or bytes, its evidence, and the command to type. The rules are in [`crate::findings`].

use crate::Evidence;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The rule that made a finding, named as in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    Errors,
    FullDevice,
    Wear,
    SyncMount,
    FsyncStorm,
    ShortCommit,
    SmallJournal,
    Atime,
    SmallSyncWrites,
    ReadBeforeWrite,
    BehindAnother,
    CopyUp,
    DirtyLimit,
    DiscardStalls,
    FlushStalls,
    ReadaheadWasted,
    ReadAgain,
    RandomReads,
    FragmentedFile,
    SmallReads,
    SmallFiles,
    FewRequests,
    SmallRequests,
    DeepQueue,
    MetadataReads,
    Swap,
    TinyCalls,
    WaitsOutside,
    LayeredDevice,
    DoubleIo,
    FlashAmplification,
    GarbageCollection,
    MetadataDominated,
    WhereTimeGoes,
    TopIo,
    LostEvents,
}

/// Findings are ordered by weight first, then by cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Weight {
    /// Data or the device is in danger.
    Fault,
    /// Time or bytes that could be saved.
    Cost,
    /// Which tasks do the I/O, and where time goes.
    Overview,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
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

/// A figure that a finding is based on.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct Measure {
    pub name: String,
    pub value: f64,
    pub unit: MeasureUnit,
    /// The events, or the file of the system, that it comes from.
    pub source: String,
}

/// A command to type, or a change in a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
#[serde(rename_all = "snake_case", tag = "do")]
pub enum Step {
    /// A write of a value to a file below /sys.
    Set { path: String, value: String },
    /// `mount -o remount,OPTIONS TARGET`; `undo`: the options before.
    Remount { target: String, options: String, undo: String },
    /// A command: fixed words, then names from the trace, not quoted yet.
    Run { command: String, names: Vec<String> },
    /// A line of a program.
    Code { line: String },
}

/// The gain from following an advice.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct Gain {
    /// The figure that falls: "time in fsync() of logger (12)".
    pub of: String,
    /// The fall, in per cent of the present figure.
    pub least_percent: f64,
    pub most_percent: f64,
    /// Where the range comes from.
    pub basis: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct Remedy {
    pub what: String,
    pub steps: Vec<Step>,
    pub gain: Evidence<Gain>,
    pub risk: String,
}

/// A result of a rule.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct Finding {
    pub rule: Rule,
    pub weight: Weight,
    /// The processes concerned, named as in other tables. The first one waits or fails; with `behind_another` the next one is what it waits
    /// for. At most 16; empty for a finding about a device or a file system.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<String>,
    /// One sentence.
    pub what: String,
    /// The cause of the cost.
    pub cause: String,
    pub evidence: Vec<Measure>,
    pub lost_ns: Evidence<u64>,
    pub lost_bytes: Option<u64>,
    pub advice: Vec<Remedy>,
    /// Why it may be incomplete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncertain: Option<String>,
}

impl Finding {
    /// A cost that is not described yet.
    pub(crate) fn of(rule: Rule) -> Finding {
        Finding {
            rule,
            weight: Weight::Cost,
            processes: Vec::new(),
            what: String::new(),
            cause: String::new(),
            evidence: Vec::new(),
            lost_ns: Evidence::Known(0),
            lost_bytes: None,
            advice: Vec::new(),
            uncertain: None,
        }
    }
}
