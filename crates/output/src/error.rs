//! Errors of writing files.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// Why a file cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    #[error("{}: cannot {action}: {source}; name another file", path.display())]
    Io { path: PathBuf, action: &'static str, source: io::Error },
    #[error("{}: it is an input of this command, and writing would destroy it; name another file", path.display())]
    Input { path: PathBuf },
    #[error(
        "{}: {} is a symbolic link in a directory that others can write to, and it is not followed; name the file itself, or \
         another directory",
        path.display(),
        Path::new(name).display()
    )]
    ForeignLink { path: PathBuf, name: OsString },
    #[error(
        "{}: somebody else put this {kind} into a directory that others can write to; name another file",
        path.display()
    )]
    ForeignNode { path: PathBuf, kind: &'static str },
    #[error(
        "{}: user {user} has mounted a file system in user space (FUSE) there, which may never answer; name another file",
        path.display()
    )]
    ForeignMount { path: PathBuf, user: u32 },
    #[error("{}: the earlier file is to be kept under this name, which is no file's; move it away, or name another file", path.display())]
    NoRoomForOld { path: PathBuf },
    #[error("{}: this file is somebody else's, and only its owner can replace it in this directory; name another file", path.display())]
    NotOurs { path: PathBuf },
    #[error("{}: this is a {kind}; name a file", path.display())]
    NoFile { path: PathBuf, kind: &'static str },
    #[error("{}: the path names no file; name one", path.display())]
    NoName { path: PathBuf },
    #[error("{}: a signal ended the wait for a reader of this FIFO; start its reader first, or name a file", path.display())]
    NobodyReads { path: PathBuf },
    #[error("{}: somebody replaced the file while it was written; name a file in a directory of your own", path.display())]
    Replaced { path: PathBuf },
}

impl OutputError {
    pub(crate) fn io(path: &Path, action: &'static str, source: io::Error) -> OutputError {
        OutputError::Io { path: path.to_owned(), action, source }
    }

    /// The kind of the system's error; `None` for an error that no system call returned.
    pub fn kind(&self) -> Option<io::ErrorKind> {
        match self {
            OutputError::Io { source, .. } => Some(source.kind()),
            _ => None,
        }
    }
}
