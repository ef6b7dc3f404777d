//! Why a study of runs ended early.

use crate::boards::Interrupted;
use crate::lab::KeepError;

#[derive(Debug, thiserror::Error)]
pub enum RunsError {
    #[error(transparent)]
    Target(#[from] flashscope_targets::Error),
    #[error(transparent)]
    Trace(#[from] flashscope_trace::Error),
    #[error(transparent)]
    Keep(#[from] KeepError),
    #[error("board {board} has no raw NAND; name another board in runs.board (flashscope board list)")]
    NoChip { board: String },
    #[error("group {group}: step '{step}' {why}")]
    Step { group: String, step: String, why: String },
    #[error(
        "group {group}: the recording lost {count} events ({name}), so its operations are unknown; take a smaller workload"
    )]
    Lost { group: String, name: &'static str, count: u64 },
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}
