//! Options for running a study, and its progress messages.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use flashscope_targets::Progress;

use crate::boards::Boards;

/// Options for running a study.
pub struct Options {
    /// Limits the boards that run at once, together with other studies.
    pub boards: Arc<Boards>,
    /// Measure again what an earlier run with the same inputs finished.
    pub fresh: bool,
    /// Directory of finished groups, by the hash of their inputs.
    pub store: PathBuf,
    /// A kernel that replaces the study's lines: a line's name or a directory.
    pub kernel: Option<String>,
    /// Additional packages for the boot image.
    pub packages: Vec<String>,
    /// Changes to the settings of boards' disks, by name.
    pub disk: Vec<(String, String)>,
    /// Host time after which an unfinished board is stopped.
    pub timeout: Duration,
    /// Set by a signal handler: no further board is started.
    pub stop: std::sync::Arc<std::sync::atomic::AtomicBool>,
}

/// Progress of a run. Called from several threads.
pub trait RunProgress: Sync {
    fn study_started(&self, groups: usize);
    fn group_started(&self, id: &str, cells: usize);
    /// A group's board is at this cell, counted from 1.
    fn cell_started(&self, id: &str, cell: usize, cells: usize);
    /// `reused`: an earlier run with the same inputs had finished it.
    fn group_finished(&self, id: &str, wall: Duration, reused: bool);
    fn progress(&self) -> &dyn Progress;
}
