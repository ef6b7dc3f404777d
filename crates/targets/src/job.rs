//! One agent command, on any target.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::scratch::ScratchDir;

/// A path of [`Job::put`] with this prefix, and the same word in [`Job::argv`], is in a private directory of the job: `@agent/replay`. No
/// other user can change what root runs or reads there.
pub const BESIDE_AGENT: &str = "@agent/";

/// A path with this prefix replaced by the directory.
pub(crate) fn placed(path: &str, directory: &str) -> String {
    match path.strip_prefix(BESIDE_AGENT) {
        Some(name) => format!("{}/{name}", directory.trim_end_matches('/')),
        None => path.to_owned(),
    }
}

/// An agent command with its input and output files.
#[derive(Clone, Debug, Default)]
pub struct Job {
    /// The agent's arguments, without argv\[0\].
    pub argv: Vec<String>,
    /// Files to put on the target first. An existing file is never overwritten; the files are removed afterwards.
    pub put: Vec<PutFile>,
    /// Files to fetch afterwards, as absolute paths.
    pub get: Vec<String>,
    /// Wall time after which the command is stopped.
    pub timeout: Option<Duration>,
    /// For `record … -- CMD`: CMD uses this process's stdin, stdout and stderr. On a board, stdin is [`Job::stdin`], and the output comes
    /// after power-off.
    pub pass_stdio: bool,
    /// On a board: the bytes of CMD's stdin. They are in the boot image, because nothing enters a board while it runs.
    pub stdin: Vec<u8>,
    /// If [`Target::writes_streams`]: a new regular file that the agent writes, at its begin.
    pub stream: Option<Arc<File>>,
}

impl Job {
    /// The arguments, with paths of files beside the agent as they are on the target.
    pub(crate) fn argv_beside(&self, directory: &str) -> Vec<String> {
        let put = |word: &String| self.put.iter().any(|file| file.path == *word);
        self.argv.iter().map(|word| if put(word) { placed(word, directory) } else { word.clone() }).collect()
    }
}

/// A file to put on the target.
#[derive(Clone, Debug)]
pub struct PutFile {
    /// Absolute path on the target, or a path with the prefix [`BESIDE_AGENT`].
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

/// The results of a job.
#[derive(Debug)]
pub struct JobOutcome {
    /// Exit status of the agent; 128 + n if signal n ended it. With `Job::pass_stdio`: 0 if the recording is complete.
    pub status: i32,
    /// With `Job::pass_stdio`: exit status of CMD. `None`: CMD did not run to its end.
    pub command: Option<i32>,
    /// The agent's stderr, at most 64 KiB of it.
    pub stderr: String,
    /// The files of `Job::get` in its order, as files on this host. They exist as long as this value.
    pub files: Vec<(String, PathBuf)>,
    pub(crate) _files_dir: Option<ScratchDir>,
}

/// A place where agent commands run.
pub trait Target {
    /// The text it was opened with: "local", "ssh://…", "board:armv7".
    fn name(&self) -> &str;

    /// Whether the agent can write [`Job::stream`] by itself; `out` of [`Target::run`] then gets a copy, some milliseconds later. A pipe
    /// needs a second process to read it, while the agent writes. On two CPUs, one of both then takes time from what is recorded.
    fn writes_streams(&self) -> bool {
        false
    }

    /// Runs one agent command and writes its stdout to `out` as it arrives; for a board that is after power-off.
    ///
    /// `record` writes the framed stream of `agent/protocol.h` on all targets. On a board that is all data from the port, of all sources.
    /// For other commands, stdout is taken from the frames.
    ///
    /// If an error comes after some bytes, these stay in `out`: a cut stream is readable.
    fn run(&self, job: &Job, out: &mut dyn std::io::Write) -> Result<JobOutcome, Error>;
}
