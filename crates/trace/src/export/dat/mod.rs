//! Writes trace.dat of version 6 ([`crate::formats::dat`] reads it): a trace as it is, with other names, or some of its records.

mod anonymous;
mod records;
mod write;

pub use anonymous::Key;
pub use records::{RecordsWritten, write_filtered, write_merged};
pub use write::{Written, write, write_anonymized, write_as};
