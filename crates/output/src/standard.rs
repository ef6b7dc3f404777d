//! Standard output and standard error. A pipe whose reader has ended is no failure; a full disk is one, told in one line.

use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::{Errno, fcntl_getfd};

use crate::text::visible_message;
use crate::visible;

/// Whether standard output was closed when the program began.
static WAS_CLOSED: AtomicBool = AtomicBool::new(false);

extern "C" fn look() {
    WAS_CLOSED.store(fcntl_getfd(rustix::stdio::stdout()) == Err(Errno::BADF), Ordering::Relaxed);
}

/// Called before `main`, and before Rust's runtime opens /dev/null in the place of a closed standard output: what is written there would
/// be lost without an error, and `main` cannot tell it from a /dev/null of the caller.
#[used]
#[expect(unsafe_code, reason = "a section of pointers to functions; this one touches nothing but the static above")]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = look;

/// Why text could not be written to standard output.
#[derive(Debug, thiserror::Error)]
pub enum StdoutError {
    /// The reader of the pipe has ended: the command ends without a message.
    #[error("standard output: its reader has ended")]
    Closed,
    /// It is closed, or open for reading only.
    #[error("standard output: it is not open for writing; send it to a file or a pipe")]
    NotOpen,
    #[error("standard output: {0}; free some space, or send it elsewhere")]
    Failed(io::Error),
}

impl From<io::Error> for StdoutError {
    fn from(error: io::Error) -> StdoutError {
        match error.kind() {
            io::ErrorKind::BrokenPipe => StdoutError::Closed,
            _ => StdoutError::Failed(error),
        }
    }
}

/// Whether text can be written to standard output. Rust's own functions take a closed one for a place where text is not wanted.
///
/// # Errors
/// [`StdoutError::NotOpen`].
pub fn can_print() -> Result<(), StdoutError> {
    let mode = fcntl_getfl(io::stdout()).map(|flags| flags & OFlags::RWMODE);
    if WAS_CLOSED.load(Ordering::Relaxed) || !matches!(mode, Ok(OFlags::WRONLY | OFlags::RDWR)) {
        return Err(StdoutError::NotOpen);
    }
    Ok(())
}

/// Writes to standard output.
///
/// # Errors
/// See [`StdoutError`].
pub fn print(text: fmt::Arguments<'_>) -> Result<(), StdoutError> {
    // In one write: a table would otherwise take one call for each cell.
    print_bytes(text.to_string().as_bytes())
}

/// As [`print()`], for bytes that need not be text.
///
/// # Errors
/// See [`StdoutError`].
pub fn print_bytes(bytes: &[u8]) -> Result<(), StdoutError> {
    can_print()?;
    Ok(io::stdout().lock().write_all(bytes)?)
}

/// Writes out the buffered rest. A command calls it last.
///
/// # Errors
/// See [`StdoutError`].
pub fn flush() -> Result<(), StdoutError> {
    Ok(io::stdout().lock().flush()?)
}

/// As [`print()`], on standard error; where that is closed or full, the text is lost.
pub fn print_error(text: fmt::Arguments<'_>) {
    let _ = io::stderr().lock().write_all(text.to_string().as_bytes());
}

/// Writes one line to standard error, after `flashscope: `. Characters that control a terminal are escaped. Where standard
/// error is closed or full, the text is lost.
pub fn note(text: &str) {
    note_with(text, &[]);
}

/// As [`note`], with more lines below, each indented behind a bar.
pub fn note_with(text: &str, below: &[String]) {
    let below = below.iter().map(|line| format!("    | {}\n", visible(line)));
    let said = format!("flashscope: {}\n", visible_message(text)) + &below.collect::<String>();
    let _ = io::stderr().lock().write_all(said.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_has_gone_is_told_from_a_full_disk() {
        assert!(matches!(StdoutError::from(io::Error::from(io::ErrorKind::BrokenPipe)), StdoutError::Closed));
        let full = StdoutError::from(io::Error::from(io::ErrorKind::StorageFull));
        assert!(full.to_string().starts_with("standard output: no storage space"), "{full}");
    }
}
