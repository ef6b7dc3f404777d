//! How to run a study, and what it reports while it runs.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use flashscope_targets::Progress;

use crate::boards::Boards;

/// How to run a study.
pub struct Options {
    /// Boards that run at once, also those of other studies.
    pub boards: Arc<Boards>,
    /// Measure also what an earlier run with the same inputs has finished.
    pub fresh: bool,
    /// Where finished groups are kept, by the hash of their inputs.
    pub store: PathBuf,
    /// A kernel instead of the study's own lines: a line's name or a directory.
    pub kernel: Option<String>,
    /// More packages for the boot image.
    pub packages: Vec<String>,
    /// Changes of the settings of boards' disks, by name.
    pub disk: Vec<(String, String)>,
    /// Stop a board that has not finished by then (host time).
    pub timeout: Duration,
    /// Set from a signal handler: no further board is started.
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
