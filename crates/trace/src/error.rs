//! Errors of reading or writing a trace.

use std::io;
use std::path::{Path, PathBuf};

/// The message is one line: which thing, what is wrong, and the next step.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}: cannot {action}: {source}{}", path.display(), next_step(action, source))]
    Io { path: PathBuf, action: &'static str, source: io::Error },
    #[error(
        "{}: not a trace that flashscope reads: {hint} (a trace.dat, blktrace's or Perfetto's files, the text of ftrace, blkparse or \
         perf script and more are read: `flashscope report --help` lists them)",
        path.display()
    )]
    Unrecognised { path: PathBuf, hint: &'static str },
    #[error(
        "{}: its agent ({agent}) uses protocol {version}, and this flashscope reads protocol {ours}: use the agent and \
         the flashscope of one version (the file is not changed)",
        path.display()
    )]
    OtherProtocol { path: PathBuf, version: u16, agent: String, ours: u16 },
    #[error("{}: at byte {offset}: expected {expected}, found {found}", path.display())]
    Malformed { path: PathBuf, offset: u64, expected: String, found: String },
    #[error(
        "{}: this stream holds no recording: nothing was recorded, or it was cut before its first frame",
        path.display()
    )]
    NoRecording { path: PathBuf },
    #[error(
        "{}: this stream holds {count} recordings; convert the one that you want: \
         `flashscope export FILE --recording 0 --to trace.dat -o one.dat` (0 is the first)",
        path.display()
    )]
    SeveralRecordings { path: PathBuf, count: usize },
    #[error("{}: there is no recording {index}; this stream holds {count}", path.display())]
    NoSuchRecording { path: PathBuf, index: usize, count: usize },
    #[error(
        "{}: no space left while writing the trace; {} is kept and readable: free space and convert it again",
        path.display(),
        source_path.display()
    )]
    NoSpace { path: PathBuf, source_path: PathBuf },
    #[error("{}: {what}", path.display())]
    Unsupported { path: PathBuf, what: String },
    #[error(transparent)]
    Output(#[from] flashscope_output::OutputError),
}

/// Root's recordings are readable by root only.
fn next_step(action: &str, source: &io::Error) -> &'static str {
    match (action, source.kind()) {
        ("open", io::ErrorKind::PermissionDenied) => {
            "; run the command as the file's owner (what root recorded: with sudo), or give the file away with chown"
        }
        _ => "",
    }
}

impl Error {
    pub(crate) fn io(path: &Path, action: &'static str, source: io::Error) -> Error {
        Error::Io { path: path.to_path_buf(), action, source }
    }

    pub(crate) fn malformed(path: &Path, offset: u64, expected: impl Into<String>, found: impl Into<String>) -> Error {
        Error::Malformed { path: path.to_path_buf(), offset, expected: expected.into(), found: found.into() }
    }
}
