//! A study file: the question, the matrix and the published values, as typed and as checked.

use std::path::{Path, PathBuf};

use flashscope_cachesim::Kernel;
use flashscope_output::hex;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::size::{Bytes, number_or_text};

/// The contents of a study file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    pub name: String,
    pub title: String,
    pub question: String,
    pub matrix: Matrix,
    /// Debian packages of the board's architecture to unpack into the boot image.
    #[serde(default)]
    pub packages: Vec<String>,
    /// Power profile (`power/`) for modelling energy.
    pub power: Option<String>,
    #[serde(default)]
    pub published: Vec<Published>,
}

/// Each combination is a cell; the first five axes make a group (one fresh boot). A file system is measured on boards with its storage: raw
/// NAND, or a disk.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Matrix {
    #[serde(default)]
    pub workload: Workload,
    pub board: Vec<String>,
    pub kernel: Vec<String>,
    pub filesystem: Vec<Filesystem>,
    pub contents: Vec<String>,
    pub file_size: Vec<Bytes>,
    /// Seed of the data file's contents.
    #[serde(default = "one_seed")]
    pub file_seed: u64,
    pub request_size: Vec<Bytes>,
    pub count: Vec<u64>,
    pub pattern: Vec<Pattern>,
    pub readahead: Vec<Readahead>,
    #[serde(default = "zero")]
    pub interarrival_us: Vec<u64>,
    #[serde(default = "one")]
    pub seed: Vec<u64>,
}

fn zero() -> Vec<u64> {
    vec![0]
}

fn one_seed() -> u64 {
    1
}

fn one() -> Vec<u64> {
    vec![1]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Filesystem {
    Jffs2,
    Ubifs,
    /// squashfs on `/dev/mtdblockN`, as on many products' root file systems.
    SquashfsMtdblock,
    /// squashfs on `/dev/ubiblock0_0`: a UBI volume as a read-only block device.
    SquashfsUbiblock,
    /// Built for the board's kernel (`kernel/yaffs2/`); on `/dev/mtdblockN`, which is the usual way.
    Yaffs2,
    /// On a board's disk.
    Ext4,
    /// On a board's disk.
    F2fs,
}

impl Filesystem {
    const ALL: [Filesystem; 7] = [
        Filesystem::Jffs2,
        Filesystem::Ubifs,
        Filesystem::SquashfsMtdblock,
        Filesystem::SquashfsUbiblock,
        Filesystem::Yaffs2,
        Filesystem::Ext4,
        Filesystem::F2fs,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Filesystem::Jffs2 => "jffs2",
            Filesystem::Ubifs => "ubifs",
            Filesystem::SquashfsMtdblock => "squashfs-mtdblock",
            Filesystem::SquashfsUbiblock => "squashfs-ubiblock",
            Filesystem::Yaffs2 => "yaffs2",
            Filesystem::Ext4 => "ext4",
            Filesystem::F2fs => "f2fs",
        }
    }

    /// Whether files can be created on it.
    pub fn is_written(self) -> bool {
        !self.is_squashfs()
    }

    /// Whether its image is made on the host.
    pub fn is_squashfs(self) -> bool {
        matches!(self, Filesystem::SquashfsMtdblock | Filesystem::SquashfsUbiblock)
    }

    /// Whether it needs a disk, not raw NAND.
    pub fn on_disk(self) -> bool {
        matches!(self, Filesystem::Ext4 | Filesystem::F2fs)
    }
}

impl std::str::FromStr for Filesystem {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Filesystem::ALL.into_iter().find(|f| f.as_str() == text).ok_or_else(|| {
            let all = Filesystem::ALL.map(Filesystem::as_str);
            format!("unknown file system '{text}': {} or {}", all[..all.len() - 1].join(", "), all[all.len() - 1])
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    Sequential,
    Random,
}

impl Pattern {
    pub fn as_str(self) -> &'static str {
        match self {
            Pattern::Sequential => "sequential",
            Pattern::Random => "random",
        }
    }
}

/// The read-ahead setting of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Readahead {
    /// Unchanged: the kernel's setting.
    Keep,
    /// The setting of the file system's bdi or queue, KiB.
    Kib(u64),
    /// `posix_fadvise` for this file; the bdi's setting stays.
    FadviseRandom,
    FadviseSequential,
}

impl Readahead {
    fn kib(kib: u64) -> Result<Readahead, String> {
        match kib {
            0..=MOST_READAHEAD_KIB => Ok(Readahead::Kib(kib)),
            _ => Err(format!("read-ahead of {kib} KiB: take up to {MOST_READAHEAD_KIB}")),
        }
    }

    /// The value for the agent's `--readahead`.
    pub fn argument(self) -> String {
        match self {
            Readahead::Keep => "keep".to_owned(),
            Readahead::Kib(kib) => kib.to_string(),
            Readahead::FadviseRandom => "fadvise-random".to_owned(),
            Readahead::FadviseSequential => "fadvise-sequential".to_owned(),
        }
    }
}

/// A bare number is KiB, as in `/sys/class/bdi/*/read_ahead_kb`; suffixes are allowed.
impl std::str::FromStr for Readahead {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "keep" => return Ok(Readahead::Keep),
            "fadvise-random" => return Ok(Readahead::FadviseRandom),
            "fadvise-sequential" => return Ok(Readahead::FadviseSequential),
            _ => {}
        }
        let size: Bytes =
            text.parse().map_err(|error| format!("read-ahead {error}, or keep, fadvise-random, fadvise-sequential"))?;
        let bytes = match text.trim().bytes().all(|byte| byte.is_ascii_digit()) {
            true => size.0.checked_mul(1024).ok_or_else(|| format!("read-ahead {text} is too large"))?,
            false => size.0,
        };
        if bytes % 1024 != 0 {
            return Err(format!("read-ahead of {bytes} bytes is not a whole number of KiB, as the kernel's knob is"));
        }
        Readahead::kib(bytes / 1024)
    }
}

impl<'de> Deserialize<'de> for Readahead {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        number_or_text(deserializer, Readahead::kib)
    }
}

/// A published value, and the cells that it is compared with.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    pub id: String,
    /// Paper and section.
    pub source: String,
    pub statement: String,
    pub quantity: Quantity,
    pub filesystem: Filesystem,
    pub pattern: Pattern,
    /// Range of the number of requests, both ends included.
    pub count: [u64; 2],
    pub request_size: Option<Bytes>,
    pub readahead: Option<Readahead>,
    /// Not measured: pages of the page cache that these requests would have read with the read-ahead rules of this kernel (`2.6.37`). For
    /// random requests it is the mean of 200 draws. A SELECT counts as one page of the database.
    pub kernel_model: Option<String>,
    /// Modelled random requests begin at any byte of the file, not only at multiples of their size.
    #[serde(default)]
    pub at_any_byte: bool,
    pub fold: Fold,
    pub min: f64,
    pub max: f64,
    pub unit: String,
    /// Why our value may differ, and how the text was interpreted.
    pub note: String,
}

/// The work of a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// `count` reads of a file (`bench read`).
    #[default]
    Read,
    /// `count` SELECTs from a table of contacts (`bench sqlite`). `contents` is `text-N`: N bytes in each of a record's five texts.
    /// `request_size` is SQLite's page size. `file_size` is the space to reserve.
    Sqlite,
}

impl Workload {
    /// The unit of `count`.
    pub fn as_str(self) -> &'static str {
        match self {
            Workload::Read => "reads",
            Workload::Sqlite => "selects",
        }
    }
}

/// Records of the table of contacts (the read-ahead paper, section 3.1.2).
pub const RECORDS: u64 = 1000;

/// Size of a text for `text-N`, bytes.
pub fn text_bytes(contents: &str) -> Option<u64> {
    contents.strip_prefix("text-")?.parse().ok().filter(|bytes| (1..=65_536).contains(bytes))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// Time that read-ahead 0 saves against the largest setting, percent of the latter.
    TimeSavedPercent,
    /// The same, with the time for opening the file (or database).
    TimeSavedWithOpenPercent,
    /// Flash reads that read-ahead 0 saves compared with the largest setting, percent of the latter.
    ReadsSavedPercent,
    /// Modelled energy that read-ahead 0 saves against the largest setting, percent of the latter.
    EnergySavedPercent,
    /// (largest − smallest) / smallest mean read() latency over all inter-arrival times, percent.
    LatencySpreadPercent,
}

impl Quantity {
    pub fn as_str(self) -> &'static str {
        match self {
            Quantity::TimeSavedPercent => "time_saved_percent",
            Quantity::TimeSavedWithOpenPercent => "time_saved_with_open_percent",
            Quantity::ReadsSavedPercent => "reads_saved_percent",
            Quantity::EnergySavedPercent => "energy_saved_percent",
            Quantity::LatencySpreadPercent => "latency_spread_percent",
        }
    }
}

/// How several cells are combined to one figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fold {
    Min,
    Max,
    Mean,
}

/// A study file that was read and checked, with the hash of its text.
#[derive(Clone, Debug)]
pub struct Checked<D> {
    pub definition: D,
    pub sha256: String,
}

/// The definition in a study file of one kind.
pub trait Define: DeserializeOwned {
    /// Checks the values; the error says what is wrong.
    fn check(&self) -> Result<(), String>;
}

/// A study of a matrix of settings.
pub type Study = Checked<Definition>;

#[derive(Debug, thiserror::Error)]
pub enum DefinitionError {
    #[error("study {path}: {source}; check the path, or name one of studies/*.toml")]
    Read { path: PathBuf, source: std::io::Error },
    /// The TOML reader's message, which names line and column.
    #[error("study {name}: line {line}, column {column}: {message}")]
    Syntax { name: String, line: usize, column: usize, message: String },
    #[error("study {name}: {message}")]
    Meaning { name: String, message: String },
}

impl<D: Define> Checked<D> {
    pub fn read(path: &Path) -> Result<Self, DefinitionError> {
        let text = flashscope_targets::read_text(path, flashscope_targets::DEFINITION_BYTES)
            .map_err(|source| DefinitionError::Read { path: path.to_owned(), source })?;
        Checked::parse(&path.display().to_string(), &text)
    }

    /// `name`: the text's name in errors.
    pub fn parse(name: &str, text: &str) -> Result<Self, DefinitionError> {
        let definition = toml::from_str(text).map_err(|error| syntax(name, text, &error))?;
        Ok(Checked { sha256: hex(&Sha256::digest(text.as_bytes())), ..Checked::new(name, definition)? })
    }

    /// A study without a file: `bench read` is a study with a single cell. It has no text, so no hash.
    pub fn new(name: &str, definition: D) -> Result<Self, DefinitionError> {
        definition.check().map_err(|message| DefinitionError::Meaning { name: name.to_owned(), message })?;
        Ok(Checked { definition, sha256: String::new() })
    }
}

impl Define for Definition {
    fn check(&self) -> Result<(), String> {
        check(self)
    }
}

/// The TOML reader's error, with its position in the text.
pub(crate) fn syntax(name: &str, text: &str, error: &toml::de::Error) -> DefinitionError {
    let (line, column) = position(text, error.span().map_or(0, |span| span.start));
    DefinitionError::Syntax { name: name.to_owned(), line, column, message: error.message().to_owned() }
}

/// Line and column (in characters) of a byte offset, both from 1.
fn position(text: &str, offset: usize) -> (usize, usize) {
    let mut end = offset.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let before = &text[..end];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |last| last.chars().count()) + 1;
    (line, column)
}

fn check(definition: &Definition) -> Result<(), String> {
    let matrix = &definition.matrix;
    let axes = [
        ("board", matrix.board.len()),
        ("kernel", matrix.kernel.len()),
        ("filesystem", matrix.filesystem.len()),
        ("contents", matrix.contents.len()),
        ("file_size", matrix.file_size.len()),
        ("request_size", matrix.request_size.len()),
        ("count", matrix.count.len()),
        ("pattern", matrix.pattern.len()),
        ("readahead", matrix.readahead.len()),
        ("interarrival_us", matrix.interarrival_us.len()),
        ("seed", matrix.seed.len()),
    ];
    if let Some((axis, _)) = axes.iter().find(|(_, values)| *values == 0) {
        return Err(format!("matrix.{axis} is empty: name at least one value"));
    }
    let cells = axes.iter().try_fold(1usize, |product, (_, values)| product.checked_mul(*values));
    if cells.is_none_or(|cells| cells > MOST_CELLS) {
        return Err(format!("the matrix has more than {MOST_CELLS} cells: split the study"));
    }
    for published in &definition.published {
        let Some(model) = &published.kernel_model else {
            if published.at_any_byte {
                return Err(format!("published {}: at_any_byte is for a kernel_model", published.id));
            }
            continue;
        };
        if published.quantity != Quantity::ReadsSavedPercent {
            return Err(format!("published {}: kernel_model is for reads_saved_percent", published.id));
        }
        if Kernel::nearest(model).is_none_or(|choice| !choice.exact) {
            return Err(format!(
                "published {}: no model of kernel '{model}': 2.6.37, 5.10, 6.1, 6.12, 7.2",
                published.id
            ));
        }
    }
    if matrix.workload == Workload::Sqlite {
        return check_sqlite(matrix);
    }
    for contents in &matrix.contents {
        if !["compressible", "printable", "random", "zero"].contains(&contents.as_str()) {
            return Err(format!("unknown contents '{contents}': compressible, printable, random or zero"));
        }
    }
    for (what, sizes) in [("file_size", &matrix.file_size), ("request_size", &matrix.request_size)] {
        if sizes.iter().any(|size| size.0 == 0) {
            return Err(format!("matrix.{what} is 0"));
        }
    }
    let bytes = |sizes: &[Bytes]| sizes.iter().map(|size| size.0).max().unwrap_or(0);
    for (what, largest, most) in [
        ("file_size", bytes(&matrix.file_size), MOST_FILE_BYTES),
        ("request_size", bytes(&matrix.request_size), MOST_REQUEST_BYTES),
        ("count", matrix.count.iter().copied().max().unwrap_or(0), MOST_REQUESTS),
        ("interarrival_us", matrix.interarrival_us.iter().copied().max().unwrap_or(0), LONGEST_PAUSE_US),
    ] {
        if largest > most {
            return Err(format!("matrix.{what} is {largest}: take up to {most}"));
        }
    }
    for &file in &matrix.file_size {
        for &request in &matrix.request_size {
            for &count in &matrix.count {
                let asked = match matrix.pattern.contains(&Pattern::Sequential) {
                    true => request.0.checked_mul(count),
                    false => Some(request.0),
                };
                if asked.is_none_or(|asked| asked > file.0) {
                    return Err(format!(
                        "{count} sequential requests of {} bytes read more than the file's {} bytes: \
                         fewer requests, or a larger file_size",
                        request.0, file.0
                    ));
                }
            }
        }
    }
    Ok(())
}

fn check_sqlite(matrix: &Matrix) -> Result<(), String> {
    if let Some(contents) = matrix.contents.iter().find(|contents| text_bytes(contents).is_none()) {
        return Err(format!("contents '{contents}' of a database: text-N, N bytes in each of a record's five texts"));
    }
    if let Some(count) = matrix.count.iter().find(|count| !(1..=RECORDS).contains(*count)) {
        return Err(format!("{count} selects: the table has {RECORDS} records; take 1 to {RECORDS}"));
    }
    if let Some(page) =
        matrix.request_size.iter().find(|page| !page.0.is_power_of_two() || !(512..=65_536).contains(&page.0))
    {
        return Err(format!("request_size {page}: SQLite's pages are a power of two from 512 to 65536 bytes"));
    }
    if matrix.request_size.len() > 1 || matrix.seed.len() > 1 || matrix.interarrival_us != [0] {
        return Err("a study of SQLite has one request_size, one seed and no interarrival_us".to_owned());
    }
    match matrix.filesystem.iter().find(|filesystem| !filesystem.is_written()) {
        Some(filesystem) => Err(format!("{} cannot hold a database that is written", filesystem.as_str())),
        None => Ok(()),
    }
}

/// Largest file of the agent's `bench read` (`agent/bench/bench_read.c`, `agent/bench/bench_readahead.c`).
const MOST_FILE_BYTES: u64 = 1 << 46;
const MOST_REQUEST_BYTES: u64 = 256 << 20;
const MOST_REQUESTS: u64 = 1 << 24;
const LONGEST_PAUSE_US: u64 = 3_600_000_000;
const MOST_READAHEAD_KIB: u64 = 4_194_303;

/// More than any useful matrix; protects memory from typing errors.
const MOST_CELLS: usize = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#"
name = "t"
title = "t"
question = "q?"
[matrix]
board = ["armv7"]
kernel = ["6.1"]
filesystem = ["jffs2"]
contents = ["random"]
file_size = ["64K"]
request_size = ["4K"]
count = [8]
pattern = ["sequential"]
readahead = ["0", "128K"]
"#;

    #[test]
    fn reads_a_small_study() {
        let study = Study::parse("t.toml", SMALL).unwrap();
        assert_eq!(study.definition.matrix.file_size[0].0, 65536);
        assert_eq!(study.definition.matrix.seed, [1]);
        assert_eq!(study.sha256.len(), 64);
    }

    #[test]
    fn a_slip_is_named_with_line_and_column() {
        let text = SMALL.replace("count = [8]", "count = [8");
        let error = Study::parse("t.toml", &text).unwrap_err().to_string();
        assert!(error.starts_with("study t.toml: line 1"), "{error}");
        let text = SMALL.replace("count = [8]", "cuont = [8]");
        let error = Study::parse("t.toml", &text).unwrap_err().to_string();
        assert!(error.contains("line 12, column 1") && error.contains("cuont"), "{error}");
    }

    #[test]
    fn reads_past_the_end_of_the_file_are_refused() {
        let text = SMALL.replace("count = [8]", "count = [17]");
        let error = Study::parse("t.toml", &text).unwrap_err().to_string();
        assert!(error.contains("17 sequential requests"), "{error}");
    }

    #[test]
    fn numbers_that_no_agent_takes_are_refused() {
        const ENDLESS: &str = "9223372036854775807";
        for (from, to, said) in [
            ("count = [8]", "interarrival_us = [ENDLESS]\ncount = [8]", "matrix.interarrival_us is ENDLESS"),
            ("\"64K\"", "ENDLESS", "matrix.file_size is ENDLESS"),
            ("\"4K\"", "ENDLESS", "matrix.request_size is ENDLESS"),
            ("[8]", "[16777217]", "matrix.count is 16777217: take up to 16777216"),
            ("[8]", "[ENDLESS]", "matrix.count is ENDLESS"),
            ("\"128K\"", "ENDLESS", "read-ahead of ENDLESS KiB"),
            ("\"128K\"", "\"4G\"", "read-ahead of 4194304 KiB: take up to 4194303"),
            ("\"128K\"", "\"ENDLESS\"", "read-ahead ENDLESS is too large"),
            ("count = [8]", "count = [8]\ninterarrival_us = [-1]", "line 13"),
        ] {
            let text = SMALL.replace(from, to).replace("ENDLESS", ENDLESS);
            let error = Study::parse("t.toml", &text).unwrap_err().to_string();
            assert!(error.contains(&said.replace("ENDLESS", ENDLESS)), "{to}: {error}");
        }
    }

    #[test]
    fn a_matrix_that_is_too_large_is_refused_before_it_is_built() {
        let many = (0..400).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
        let text = format!("{SMALL}seed = [{many}]\ninterarrival_us = [{many}]\n");
        let error = Study::parse("t.toml", &text).unwrap_err().to_string();
        assert!(error.contains("more than 100000 cells"), "{error}");
    }
}
