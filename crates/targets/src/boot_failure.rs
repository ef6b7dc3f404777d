//! Failures of a board's boot.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::scratch_dir::ScratchDir;

/// Names of a boot's files, in a directory of its own.
pub(crate) const PORT: &str = "port";
pub(crate) const CONSOLE: &str = "console";

/// A failed boot with its files. They are removed with the value.
#[derive(Debug)]
pub struct BootFailure {
    pub board: String,
    pub kernel: String,
    pub kind: BootFailureKind,
    /// The console's last lines, without control characters.
    pub console_tail: Vec<String>,
    pub(crate) dir: ScratchDir,
}

#[derive(Clone, Debug, PartialEq)]
pub enum BootFailureKind {
    /// The kernel's message.
    Panic(String),
    Timeout(Duration),
    /// [`crate::board::Run::stop`] was set.
    Stopped,
    /// QEMU ended before the plan: its status and its output.
    QemuDied {
        how: String,
        said: String,
    },
    PlanFailed {
        step: u32,
        line: String,
        reason: String,
    },
    /// The plan is complete, but the port has no data.
    NoPort,
}

impl BootFailure {
    /// The data from the port before the failure: a stream that may be cut or empty.
    pub fn port_file(&self) -> PathBuf {
        self.dir.path().join(PORT)
    }

    pub fn console(&self) -> PathBuf {
        self.dir.path().join(CONSOLE)
    }
}

impl fmt::Display for BootFailure {
    /// One line with the next step. The console's last lines are in [`BootFailure::console_tail`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "board {} (kernel {}): ", self.board, self.kernel)?;
        match &self.kind {
            // The kernel's words where nothing is left to be ended (mm/oom_kill.c, out_of_memory).
            BootFailureKind::Panic(words) if words.contains("deadlocked on memory") => {
                write!(f, "kernel panic: {words}; raise memory_mib in the board's file")?;
            }
            BootFailureKind::Panic(words) => {
                write!(f, "kernel panic: {words}; try another kernel line, or see the console's last lines")?;
            }
            BootFailureKind::Timeout(limit) => {
                write!(f, "no end after {} s; raise the time limit, or see the console's last lines", limit.as_secs())?
            }
            // After a stop, the state of the board does not matter.
            BootFailureKind::Stopped => return write!(f, "stopped by a signal before the plan's end"),
            BootFailureKind::QemuDied { how, said } => {
                let said = if said.is_empty() { String::new() } else { format!(" ({said})") };
                write!(f, "QEMU ended before the plan: {how}{said}; run it again, or see the console's last lines")?;
            }
            BootFailureKind::PlanFailed { step, line, reason } => {
                write!(f, "plan failed at step {step} ({line}): {reason}; correct that step and run it again")?;
            }
            BootFailureKind::NoPort => write!(
                f,
                "the plan is complete and nothing came out of the port; load the board's port modules first in the plan"
            )?,
        }
        Ok(())
    }
}
