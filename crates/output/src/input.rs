//! Opens an input file. Prints a message while it waits for the writer of a FIFO.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};

use crate::wait::SAID_AFTER;

/// Opens a file for reading. `open` of a FIFO returns when a writer opens it (fs/pipe.c, `fifo_open`); a signal ends the wait
/// and the command.
///
/// # Errors
/// As [`File::open`].
pub fn open_input(path: &Path) -> io::Result<File> {
    if !std::fs::metadata(path)?.file_type().is_fifo() {
        return File::open(path);
    }
    let (opened, wait) = channel::<()>();
    let text = format!("{}: this is a FIFO, and nobody writes to it: waiting for a writer", path.display());
    std::thread::spawn(move || {
        if wait.recv_timeout(SAID_AFTER) == Err(RecvTimeoutError::Timeout) {
            crate::note(&text);
        }
    });
    let file = File::open(path);
    drop(opened);
    file
}
