//! Targets: this machine, a machine over ssh, or a virtual board. All have one interface: run an agent command, stream its output, put
//! files before it and get files after it.
//!
//! - [`open`] gives a [`Target`] for `local`, `ssh://user@host[:port]` or `board:NAME`.
//! - [`board`] is the virtual board itself, for callers that compose their own boot images.
//!
//! This crate prints nothing. Files that a killed run leaves in the cache have its process in their names; the next run removes them
//! ([`sweep`]).

mod agents;
pub mod board;
mod boot_failure;
mod error;
mod frames;
mod job;
mod local;
mod process;
mod progress;
mod scratch;
mod scratch_dir;
mod ssh;
mod watch;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

pub use agents::{CARRIED_BY_DESIGN, agent_for, carried, companion_for, host_agent, sweeping_agent, use_agents};
pub use error::Error;
pub use frames::{FS_END, FS_PROGRESS, Frames};
pub use job::{BESIDE_AGENT, Job, JobOutcome, PutFile, PutSource, Target};
pub use progress::{NoProgress, Progress};
pub use scratch::{
    DEFINITION_BYTES, RECORDING, ScratchDir, cache_dir, read_text, refused_cache, sweep, take_abandoned,
};

/// Options for reaching a target. `Default` suits most cases.
#[derive(Clone, Default)]
pub struct OpenOptions {
    /// For a board: the name of a kernel line, or a directory with your own kernel. `None`: the board's default line.
    pub kernel: Option<String>,
    /// For a board: Debian packages to unpack into the image.
    pub packages: Vec<String>,
    /// For a board: erase blocks of each NAND partition; the rest of the chip becomes one more partition. Empty: one partition.
    pub parts: Vec<u64>,
    /// For a board: changes to its disk's settings, by name (`disks/*.toml`).
    pub disk: Vec<(String, String)>,
    /// For a board: kernel modules to load in addition to those of its chip or disk.
    pub modules: Vec<String>,
    /// For a board: lines of its plan after its storage is ready and before the command, such as those that make a file system.
    pub before: Vec<String>,
    /// Wall time after which a job without its own limit is stopped. `None`: no limit (boards: ten minutes).
    pub timeout: Option<Duration>,
    /// More options for the ssh client, before the host (`["-F", "config"]`).
    pub ssh_options: Vec<String>,
    /// Set it to end a running job in an orderly way: the agent gets SIGTERM and completes its stream.
    pub stop: Option<Arc<AtomicBool>>,
    /// Progress messages while kernels are fetched and boards boot.
    pub progress: Option<Arc<dyn Progress + Send + Sync>>,
}

impl OpenOptions {
    pub(crate) fn progress(&self) -> &dyn Progress {
        match &self.progress {
            Some(progress) => progress.as_ref(),
            None => &NoProgress,
        }
    }
}

/// Opens `local`, `ssh://user@host[:port]` or `board:NAME`, without contacting or starting anything.
pub fn open(spec: &str, options: &OpenOptions) -> Result<Box<dyn Target>, Error> {
    if spec == "local" {
        Ok(Box::new(local::Local::new(options)?))
    } else if spec.starts_with("ssh://") {
        Ok(Box::new(ssh::Ssh::new(spec, options)?))
    } else if let Some(name) = spec.strip_prefix("board:") {
        Ok(Box::new(board::BoardTarget::new(name, options)?))
    } else {
        Err(Error::UnknownTarget(spec.to_owned()))
    }
}
