//! Why a study ended early.

use std::path::PathBuf;

use crate::boards::Interrupted;
use crate::collect::CollectError;
use crate::lab;

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Target(#[from] flashscope_targets::Error),
    #[error(transparent)]
    Collect(#[from] CollectError),
    #[error(transparent)]
    Keep(#[from] lab::KeepError),
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
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}
