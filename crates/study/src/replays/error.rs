//! Why a study of replays ended early.

use crate::boards::Interrupted;
use crate::error::RunError;
use crate::lab::KeepError;

#[derive(Debug, thiserror::Error)]
pub enum ReplaysError {
    #[error(transparent)]
    Target(#[from] flashscope_targets::Error),
    #[error(transparent)]
    Trace(#[from] flashscope_trace::Error),
    #[error(transparent)]
    Keep(#[from] KeepError),
    #[error(transparent)]
    Image(Box<RunError>),
    #[error(
        "group {group}: board {board} has no {what}; name another board (flashscope board list), or another file system"
    )]
    NoStorage { group: String, board: String, what: &'static str },
    #[error("group {group}: the replay {why}")]
    Step { group: String, why: String },
    #[error("group {group}: the recording lost {count} events ({name}); take shorter scripts")]
    Lost { group: String, name: &'static str, count: u64 },
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}
