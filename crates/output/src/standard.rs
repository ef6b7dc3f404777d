//! Standard output and standard error. A reader that has gone is no failure; a disk that is full is one, of one line.

use std::fmt;
use std::io::{self, Write};

use crate::visible;

/// What keeps text from standard output.
#[derive(Debug, thiserror::Error)]
pub enum StdoutError {
    /// The reader of the pipe has had enough: the command ends, quietly.
    #[error("standard output: its reader has ended")]
    Closed,
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

/// Writes to standard output.
///
/// # Errors
/// As [`StdoutError`] says.
pub fn print(text: fmt::Arguments<'_>) -> Result<(), StdoutError> {
    // In one piece: a table would else be as many calls as it has cells.
    print_bytes(text.to_string().as_bytes())
}

/// As [`print()`], of what need not be text.
///
/// # Errors
/// As [`StdoutError`] says.
pub fn print_bytes(bytes: &[u8]) -> Result<(), StdoutError> {
    Ok(io::stdout().lock().write_all(bytes)?)
}

/// What is still kept back goes out; the last thing that a command does.
///
/// # Errors
/// As [`StdoutError`] says.
pub fn flush() -> Result<(), StdoutError> {
    Ok(io::stdout().lock().flush()?)
}

/// As [`print()`], on standard error; where that is closed or full, the text is lost.
pub fn print_error(text: fmt::Arguments<'_>) {
    let _ = io::stderr().lock().write_all(text.to_string().as_bytes());
}

/// One line on standard error, `flashscope: ` before it. What of it would act on a terminal is shown escaped. Where standard
/// error is closed or full, the text is lost.
pub fn note(text: &str) {
    note_with(text, &[]);
}

/// As [`note`], with lines below it, each indented behind a bar.
pub fn note_with(text: &str, below: &[String]) {
    let below = below.iter().map(|line| format!("    | {}\n", visible(line)));
    let said = format!("flashscope: {}\n", visible(text)) + &below.collect::<String>();
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
