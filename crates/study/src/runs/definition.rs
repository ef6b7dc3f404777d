//! The definition of a runs study, as in its file.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::definition::{Checked, Define, Filesystem, Readahead};
use crate::size::Bytes;
use crate::statement::Statement;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunsDefinition {
    pub name: String,
    pub title: String,
    pub question: String,
    pub runs: Runs,
    /// Debian packages of the board's architecture to unpack into the boot image.
    #[serde(default)]
    pub packages: Vec<String>,
    #[serde(default)]
    pub published: Vec<Statement>,
}

/// Each value in a case's lists, with each kernel and tracer, is a group: one fresh boot.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Runs {
    pub board: String,
    pub kernel: Vec<String>,
    /// Size of the NAND partition of each case.
    pub partition: Bytes,
    #[serde(default = "ring")]
    pub tracer: Vec<Tracer>,
    /// Recording time after the end of a file system's workload, seconds.
    #[serde(default)]
    pub watch_s: u64,
    pub case: Vec<Case>,
}

fn ring() -> Vec<Tracer> {
    vec![Tracer::Ring]
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Prefix of its figures' names.
    pub name: String,
    pub filesystem: Option<Filesystem>,
    /// Mount options.
    pub options: Option<String>,
    /// RAM of the board, for workloads whose data in the simulated chip leaves too little of the board's own.
    pub memory: Option<Bytes>,
    /// Tracers that replace the study's.
    pub tracer: Option<Vec<Tracer>>,
    #[serde(default = "keep")]
    pub readahead: Vec<Readahead>,
    /// Files below /proc/sys, and their values before the workload, such as settings of writeback.
    #[serde(default)]
    pub sysctl: BTreeMap<String, String>,
    /// Files of one size; replaces the configuration's range.
    #[serde(default)]
    pub file_size: Vec<Bytes>,
    pub postmark: Option<Postmark>,
    /// One run for each of these seeds; replaces `postmark.seed`.
    #[serde(default)]
    pub seed: Vec<u64>,
    pub raw: Option<Raw>,
}

fn keep() -> Vec<Readahead> {
    vec![Readahead::Keep]
}

/// Settings of `bench postmark`; missing values come from the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Postmark {
    pub config: String,
    #[serde(default = "seed")]
    pub seed: u64,
    pub files: Option<u64>,
    pub transactions: Option<u64>,
    pub subdirectories: Option<u64>,
    pub read_bias: Option<u64>,
    /// Size of the largest file.
    pub size_max: Option<Bytes>,
    pub contents: Option<String>,
    /// Drop the caches before each file that is read.
    #[serde(default)]
    pub cold_reads: bool,
}

fn seed() -> u64 {
    42
}

/// `flash_erase` of the whole partition, then `nandwrite` and `nanddump` (mtd-utils) of this many bytes, each this many times, at
/// consecutive places (then through busybox's shell).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Raw {
    pub bytes: Bytes,
    #[serde(default = "once")]
    pub times: u32,
}

fn once() -> u32 {
    1
}

/// How a run is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tracer {
    /// Without recording.
    None,
    /// By tracefs to the ring, which is read once at the end.
    Ring,
    /// By tracefs, drained during the recording.
    Stream,
    /// By our module flashmon to its log, which is read once at the end.
    FlashmonRing,
    /// By flashmon, drained during the recording.
    FlashmonStream,
}

impl Tracer {
    pub fn as_str(self) -> &'static str {
        match self {
            Tracer::None => "none",
            Tracer::Ring => "ring",
            Tracer::Stream => "stream",
            Tracer::FlashmonRing => "flashmon-ring",
            Tracer::FlashmonStream => "flashmon-stream",
        }
    }

    pub fn is_flashmon(self) -> bool {
        matches!(self, Tracer::FlashmonRing | Tracer::FlashmonStream)
    }
}

/// A runs study that was read and checked.
pub type RunsStudy = Checked<RunsDefinition>;

/// Longer than any collector was seen to work.
const MOST_SECONDS: u64 = 3600;
/// Limit for the chip's pages in the board's RAM; the tools' data take the same amount again for each repetition.
const MOST_RAW_BYTES: u64 = 64 << 20;
/// RAM sizes with which QEMU's `virt` boots an armhf kernel.
const MEMORY: std::ops::RangeInclusive<u64> = 32 << 20..=2 << 30;
const MOST_GROUPS: usize = 1000;

impl Define for RunsDefinition {
    fn check(&self) -> Result<(), String> {
        check(self)
    }
}

/// Characters for figures' names: a letter or digit first, no space, no slash.
fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

fn check(definition: &RunsDefinition) -> Result<(), String> {
    let runs = &definition.runs;
    if runs.kernel.is_empty() || runs.tracer.is_empty() || runs.case.is_empty() {
        return Err("runs.kernel, runs.tracer or runs.case is empty: name at least one".to_owned());
    }
    if runs.partition.0 == 0 || runs.watch_s > MOST_SECONDS {
        return Err(format!("runs.partition is 0, or runs.watch_s more than {MOST_SECONDS}"));
    }
    // Each case is compared with those before it, so their number is limited.
    if runs.case.len() > MOST_GROUPS {
        return Err(format!("more than {MOST_GROUPS} cases: split the study"));
    }
    for (index, case) in runs.case.iter().enumerate() {
        let name = &case.name;
        let wrong = |why: &str| Err(format!("runs.case '{name}': {why}"));
        if !is_name(name) || runs.case[..index].iter().any(|other| other.name == *name) {
            return wrong("a unique name is needed, of letters, digits, '-', '_' and '.'");
        }
        match (&case.postmark, &case.raw, case.filesystem) {
            (Some(_), None, Some(Filesystem::Jffs2 | Filesystem::Ubifs | Filesystem::Yaffs2)) => {}
            (Some(_), None, _) => return wrong("Postmark needs a filesystem: jffs2, ubifs or yaffs2"),
            (None, Some(raw), None)
                if (1..=MOST_RAW_BYTES.min(runs.partition.0))
                    .contains(&raw.bytes.0.saturating_mul(u64::from(raw.times))) => {}
            (None, Some(_), None) => return wrong("raw.bytes times raw.times is 0, or more than the partition or 64M"),
            _ => return wrong("name either postmark and a filesystem, or raw"),
        }
        if case.readahead.is_empty() {
            return wrong("readahead is empty");
        }
        if case.tracer.as_ref().is_some_and(Vec::is_empty) {
            return wrong("tracer is empty");
        }
        if case.memory.is_some_and(|memory| memory.0 % (1 << 20) != 0 || !MEMORY.contains(&memory.0)) {
            return wrong("memory is 32M to 2G, in whole MiB");
        }
        if case.options.as_ref().is_some_and(|options| options.is_empty() || options.contains(char::is_whitespace)) {
            return wrong("options are mount options, separated by commas");
        }
        let odd = |word: &str| {
            word.is_empty() || word.contains(|c: char| c.is_whitespace() || c == '%') || word.contains("..")
        };
        if case.sysctl.iter().any(|(path, value)| odd(path) || odd(value)) {
            return wrong("sysctl needs paths below /proc/sys (vm/dirty_ratio), each with a value");
        }
        if case.file_size.iter().any(|size| size.0 == 0) {
            return wrong("file_size is 0");
        }
        if case.seed.iter().enumerate().any(|(index, seed)| case.seed[..index].contains(seed)) {
            return wrong("a seed is named twice");
        }
    }
    let of = |case: &Case| {
        let tracers = case.tracer.as_ref().unwrap_or(&runs.tracer).len();
        case.readahead.len() * case.file_size.len().max(1) * case.seed.len().max(1) * tracers
    };
    if runs.case.iter().map(of).sum::<usize>() * runs.kernel.len() > MOST_GROUPS {
        return Err(format!("more than {MOST_GROUPS} boots: split the study"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHIPPED: &str = include_str!("../../../../studies/postmark.toml");

    #[test]
    fn the_shipped_studies_are_read() {
        for text in [
            SHIPPED,
            include_str!("../../../../studies/postmark-partial-reads.toml"),
            include_str!("../../../../studies/tracer-cost.toml"),
        ] {
            let study = RunsStudy::parse("study", text).unwrap();
            assert!(!study.definition.published.is_empty());
        }
    }

    #[test]
    fn slips_are_named() {
        for (from, to, said) in [
            ("watch_s = 600", "watch_s = 6000", "watch_s more than 3600"),
            ("watch_s = 600", "watch = 600", "unknown field `watch`"),
            ("name = \"jffs2\"", "name = \"a/b\"", "a unique name"),
            ("filesystem = \"jffs2\"", "filesystem = \"ext4\"", "jffs2, ubifs or yaffs2"),
            ("filesystem = \"jffs2\"", "raw = { bytes = \"1M\" }", "either postmark and a filesystem"),
            ("kernel = [\"6.1\"]", "kernel = []", "is empty"),
            ("options = \"write-through\"", "tracer = []", "tracer is empty"),
            ("memory = \"192M\"", "memory = \"8M\"", "memory is 32M to 2G"),
        ] {
            assert!(SHIPPED.contains(from), "{from}");
            let error = RunsStudy::parse("postmark.toml", &SHIPPED.replace(from, to)).unwrap_err().to_string();
            assert!(error.starts_with("study postmark.toml") && error.contains(said), "{error}");
        }
    }
}
