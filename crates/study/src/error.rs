//! Errors that end a study.

use std::path::PathBuf;

use crate::boards::Interrupted;

#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    #[error(transparent)]
    Target(#[from] flashscope_targets::Error),
    #[error(transparent)]
    Trace(#[from] flashscope_trace::Error),
    #[error("{path}: {source}; free some space or name another directory")]
    Store { path: PathBuf, source: std::io::Error },
    #[error("{0}; `make sqlite` builds it")]
    NoSqlite(flashscope_targets::Error),
    #[error("{path}: {problem}; power/omap3evm.toml is an example")]
    Power { path: String, problem: String },
    #[error("{program}: {problem}; install the Debian package {package}")]
    Program { program: &'static str, problem: String, package: &'static str },
    #[error(
        "group {group}: board {board} has no {what}; name another board (flashscope board list), or another file system"
    )]
    NoStorage { group: String, board: String, what: &'static str },
    #[error("board {board} has no raw NAND; name a board that has (flashscope board list)")]
    NoNand { board: String },
    #[error(
        "a partition of {blocks} erase blocks from block {first} on does not fit the {of} of {chip}; take a smaller one"
    )]
    Partition { first: u64, blocks: u64, of: u32, chip: String },
    #[error("group {group}: the board sent no result of step '{step}': its console says why; run the study again")]
    NoStep { group: String, step: String },
    #[error("group {group}: step '{step}' {why}")]
    Step { group: String, step: String, why: String },
    #[error("group {group}: the recording has no {what}: the board's console says why; run the study again")]
    Missing { group: String, what: String },
    #[error("group {group}: {found} of {asked} {what} are in the recording")]
    Calls { group: String, what: &'static str, found: usize, asked: u64 },
    #[error("group {group}: cell {cell} ran with read-ahead {got} KiB, asked for {asked} KiB")]
    Readahead { group: String, cell: String, got: u64, asked: u64 },
    #[error("group {group}: the recording lost {count} events ({name}), so {unknown}")]
    Lost { group: String, name: &'static str, count: u64, unknown: &'static str },
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}
