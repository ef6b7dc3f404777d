//! Writes trace.dat version 6 (read by `formats::dat`): a trace unchanged, with pseudonyms, or with some of its records.

mod anonymous;
mod records;
mod write;

pub use anonymous::Key;
pub use records::{RecordsWritten, write_filtered, write_merged};
pub use write::{Written, write, write_anonymized, write_as};
