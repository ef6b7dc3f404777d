//! All output of the command: files, standard output, standard error, and names escaped for their destination.
//!
//! A crate of its own, because `trace`, `target` and `report` all write and none may depend on another. Limits: it knows no
//! file format and no option of the command line.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod cell;
mod error;
mod file;
mod input;
mod place;
pub mod quote;
mod standard;
mod temporary;
mod text;
mod wait;

pub use cell::cell;
pub use error::OutputError;
pub use file::{
    Existing, HostFile, Output, Rules, adopt, create_directories, create_new, hold, is_own, read_own, remove_leftovers,
    set_aside, wait_until_free,
};
pub use input::open_input;
pub use standard::{StdoutError, can_print, flush, note, note_with, print, print_bytes, print_error};
pub use temporary::{random, temporary};
pub use text::{acts, escaped, escaped_json, hex, visible};
pub use wait::ends_waits;

/// Whether this process has root's rights over files.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Bytes that this process may still write to the file system of an open file (`f_bavail`; with root's rights `f_bfree`).
///
/// # Errors
/// `fstatvfs` failed.
pub fn free_bytes_of(file: &std::fs::File) -> std::io::Result<u64> {
    let all = rustix::fs::fstatvfs(file)?;
    let blocks = if is_root() { all.f_bfree } else { all.f_bavail };
    Ok(blocks.saturating_mul(all.f_frsize))
}

/// Size in bytes of the file system that an open file lies on.
///
/// # Errors
/// `fstatvfs` failed.
pub fn total_bytes_of(file: &std::fs::File) -> std::io::Result<u64> {
    let all = rustix::fs::fstatvfs(file)?;
    Ok(all.f_blocks.saturating_mul(all.f_frsize))
}
