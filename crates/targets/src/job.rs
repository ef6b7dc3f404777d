//! One agent command, wherever it runs.

use std::path::PathBuf;
use std::time::Duration;

use crate::error::Error;
use crate::scratch::ScratchDir;

/// A path of [`Job::put`] that begins so, and the same word of [`Job::argv`], lies in a directory that is this job's alone:
/// `@agent/replay`. No other user can have changed what root runs or reads there.
pub const BESIDE_AGENT: &str = "@agent/";

/// A path with that directory in its place.
pub(crate) fn placed(path: &str, directory: &str) -> String {
    match path.strip_prefix(BESIDE_AGENT) {
        Some(name) => format!("{}/{name}", directory.trim_end_matches('/')),
        None => path.to_owned(),
    }
}

/// An agent command with what it needs and leaves.
#[derive(Clone, Debug, Default)]
pub struct Job {
    /// The agent's arguments, without argv\[0\].
    pub argv: Vec<String>,
    /// Files to put there first. A file that exists is never overwritten; what was put is removed afterwards.
    pub put: Vec<PutFile>,
    /// Files to fetch afterwards, absolute paths.
    pub get: Vec<String>,
    /// Wall time after which the command is stopped.
    pub timeout: Option<Duration>,
    /// Of `record … -- CMD`: CMD reads this process's stdin and writes to its stdout and stderr. On a board stdin is empty,
    /// and the output comes after power-off.
    pub pass_stdio: bool,
}

impl Job {
    /// The arguments, with the paths of files that lie beside the agent as they are there.
    pub(crate) fn argv_beside(&self, directory: &str) -> Vec<String> {
        let put = |word: &String| self.put.iter().any(|file| file.path == *word);
        self.argv.iter().map(|word| if put(word) { placed(word, directory) } else { word.clone() }).collect()
    }
}

/// A file to put on the target.
#[derive(Clone, Debug)]
pub struct PutFile {
    /// Absolute path on the target, or one that begins with [`BESIDE_AGENT`].
    pub path: String,
    /// Permission bits.
    pub mode: u32,
    pub source: PutSource,
}

#[derive(Clone, Debug)]
pub enum PutSource {
    Bytes(Vec<u8>),
    Path(PathBuf),
}

impl PutFile {
    pub(crate) fn bytes(&self) -> Result<Vec<u8>, Error> {
        match &self.source {
            PutSource::Bytes(bytes) => Ok(bytes.clone()),
            PutSource::Path(path) => std::fs::read(path).map_err(|e| Error::io(path, e)),
        }
    }
}

/// What a job left.
#[derive(Debug)]
pub struct JobOutcome {
    /// Exit status of the agent; 128 + n where signal n ended it. With `Job::pass_stdio`: 0 where the recording is whole.
    pub status: i32,
    /// With `Job::pass_stdio`: how CMD ended. `None`: it was not run to its end.
    pub command: Option<i32>,
    /// What it said on stderr, at most 64 KiB of it.
    pub stderr: String,
    /// `Job::get` in its order, as files on this host that live as long as this value.
    pub files: Vec<(String, PathBuf)>,
    pub(crate) _files_dir: Option<ScratchDir>,
}

/// A place where agent commands run.
pub trait Target {
    /// As it was opened: "local", "ssh://…", "board:armv7".
    fn name(&self) -> &str;

    /// Runs one agent command and writes its stdout to `out` as it comes; on a board that is after power-off.
    ///
    /// `record` gives the framed stream of `agent/protocol.h` everywhere. On a board it is everything that left by the
    /// port, all sources; other commands' stdout is taken out of its frames.
    ///
    /// An error after bytes have come leaves them in `out`: a cut stream stays readable.
    fn run(&self, job: &Job, out: &mut dyn std::io::Write) -> Result<JobOutcome, Error>;
}
