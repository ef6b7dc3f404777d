//! Where things run: this machine, a machine over ssh, a virtual board. One interface: run an agent command, stream what
//! it says, put files before and get files after.
//!
//! - [`open`] gives a [`Target`] for `local`, `ssh://user@host[:port]` or `board:NAME`.
//! - [`board`] is the virtual board itself, for those who compose boot images of their own.
//!
//! Nothing here prints. What a killed run leaves in the cache is named after its process and swept by the next
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
pub use scratch::{DEFINITION_BYTES, RECORDING, ScratchDir, cache_dir, read_text, sweep, take_abandoned};

/// How to reach a target. `Default` is right for most.
#[derive(Clone, Default)]
pub struct OpenOptions {
    /// For a board: a kernel line's name, or a directory with a kernel of one's own. `None`: the board's default line.
    pub kernel: Option<String>,
    /// For a board: Debian packages to unpack into the image.
    pub packages: Vec<String>,
    /// For a board: erase blocks of each NAND partition; the rest of the chip becomes one more. Empty: one for all.
    pub parts: Vec<u64>,
    /// For a board: changes of its disk's settings, by name (`disks/*.toml`).
    pub disk: Vec<(String, String)>,
    /// For a board: kernel modules to load beside those of its chip or disk.
    pub modules: Vec<String>,
    /// For a board: lines of its plan between its storage and the command, such as those that make a file system.
    pub before: Vec<String>,
    /// Wall time after which a job without a limit of its own is stopped. `None`: none (boards: ten minutes).
    pub timeout: Option<Duration>,
    /// More options for the ssh client, before the host (`["-F", "config"]`).
    pub ssh_options: Vec<String>,
    /// Set to ask a running job to end in good order: the agent gets SIGTERM and completes its stream.
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

/// Opens `local`, `ssh://user@host[:port]` or `board:NAME`. Nothing is contacted or started yet.
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
