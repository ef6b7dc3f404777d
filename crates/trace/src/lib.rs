//! Reads storage traces of Linux in all common formats, and writes the formats that other tools open.
//!
//! [`Trace::open`] recognises a format by the contents of the file (list: docs/reference/formats.md). It gives two models, in order of time
//! and in bounded memory, whatever the size of the file. [`Record`] is an event with its format and its bytes, without loss. [`Event`] is
//! typed, with units, for analyses. [`Trace::losses`] names and counts everything that is missing. A stream with more than one recording,
//! or with a board's output and files, opens as a [`Session`]. [`MergedTrace`] puts traces of several machines in one order. [`export`] and
//! [`dat`] write.
//!
//! Which process did how many flash operations:
//!
//! ```
//! use flashscope_trace::{EventKind, FlashOp, Session};
//! use std::collections::BTreeMap;
//!
//! let session = Session::open("tests/data/stream/armv7-6.1.port".as_ref())?;
//! let trace = session.recording(0)?;
//! let mut counts = BTreeMap::new();
//! trace.for_each(&mut |event| {
//!     if let EventKind::Flash(access) = &event.kind {
//!         let process = trace.comm(event.tid, event.time).unwrap_or("<...>");
//!         *counts.entry((process.to_string(), access.op)).or_insert(0) += 1;
//!     }
//! })?;
//! let count = |process: &str, op| counts[&(process.to_string(), op)];
//! assert_eq!(count("init", FlashOp::Erase), 2);
//! assert_eq!(count("init", FlashOp::Program), 4);
//! assert_eq!(count("agent", FlashOp::Read), 15);
//! # Ok::<(), flashscope_trace::Error>(())
//! ```

mod bytes;
mod decode;
mod error;
mod events;
pub mod export;
pub mod facts;
mod formats;
mod identity;
mod ids;
mod input;
mod kind;
mod lanes;
mod losses;
mod median;
mod merged;
mod pairs;
mod record;
mod ring;
mod source;
mod task_label;
mod time;
mod trace;

pub use bytes::Endian;
pub use decode::commands::Commands;
pub use error::Error;
pub use events::block::{BlockAction, BlockDetail, BlockEvent, RequestFlags, RequestKind};
pub use events::file::{FileEvent, FileStep};
pub use events::layer::{CallKind, Crossing, Crossings, Layer, SleepSource};
pub use events::phase::{Mark, Phase};
pub use events::shown::CacheShown;
pub use events::{Event, EventKind, FlashAccess, FlashOp, TimeNs};
pub use export::dat;
pub use facts::Facts;
pub use formats::blktrace::files_of;
pub use formats::stream::{
    LogLine, RecordingInfo, Session, SessionOptions, Step, StoredFile, StreamWindow, encode_frame,
};
pub use formats::{Format, TABLE as FORMATS, help as formats_help, table as formats_table};

/// Flashmon's files: the log is read like any trace, and written. The spatial view has only counts for each block.
pub mod flashmon {
    pub use crate::export::flashmon::{Written, write_log, write_spatial};
    pub use crate::formats::flashmon::{BlockCounts, parse_spatial_view, read_spatial};
}
pub use identity::{
    App, AppKind, DeviceName, DeviceNames, FileName, FileNames, NAMELESS, NameState, Process, file_label, own_data,
};
pub use ids::{Device, FileId, ProcessId, TaskId};
pub use kind::TraceKind;
pub use losses::{Loss, Losses, LostIn, Severity};
pub use median::{RunningMedian, factor_from_usual, is_of_newer, is_overdue};
pub use merged::{Alignment, MergedTrace, SYNC, Source};
pub use pairs::Pair;
pub use record::Record;
pub use ring::schema::{Array, Field, FieldKind, FormatError, Layout, Schema, Schemas, Value};
pub use ring::{Encoder, Missed, TooLarge};
pub use task_label::{split_task_label, task_label, task_name};
pub use trace::Trace;
