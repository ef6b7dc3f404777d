//! A finding: what costs time or bytes, its evidence, and what to type. [`crate::findings`] has the rules that find it.

use crate::Evidence;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which rule found it; as JSON has it.
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
    MetadataReads,
    Swap,
    TinyCalls,
    WaitsOutside,
    LayeredDevice,
    DoubleIo,
    FlashAmplification,
    MetadataDominated,
    WhereTimeGoes,
    TopIo,
    LostEvents,
}

/// How findings are ordered before their cost is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Weight {
    /// Data or the device is in danger.
    Fault,
    /// Something costs time or bytes that need not be spent.
    Cost,
    /// Which tasks do what, and where time goes.
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

/// A figure that a finding rests on.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct Measure {
    pub name: String,
    pub value: f64,
    pub unit: MeasureUnit,
    /// The events, or the file of the system, that it comes from.
    pub source: String,
}

/// What to type, or to change in a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct Gain {
    /// Which figure falls: "time in fsync() of logger (12)".
    pub of: String,
    /// By so much of what it is now, percent.
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

/// One answer.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct Finding {
    pub rule: Rule,
    pub weight: Weight,
    /// The processes that it is about, as other tables name them: the one that waits or fails first. With `behind_another` the next one is
    /// what it waits for. Of many the first 16; none where it is about a device or a file system.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<String>,
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
