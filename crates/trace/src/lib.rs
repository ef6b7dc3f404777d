//! Reading and writing traces.

mod blktrace;
mod block;
mod bytes;
mod codec;
mod crc32;
pub mod dat;
mod error;
mod event;
pub mod export;
pub mod flashmon;
mod format;
mod input;
mod losses;
mod merge;
mod names;
mod pages;
mod pairs;
mod phase;
mod record;
mod ring;
mod stream;
mod tasks;
mod trace;
mod typed;

pub use block::{BlockAction, BlockDetail, BlockEvent, Device, RequestFlags, RequestKind};
pub use bytes::Endian;
pub use error::Error;
pub use event::{Event, EventKind, FlashAccess, FlashOp, TimeNs};
pub use format::{Array, Field, FieldKind, FormatError, Layout, Schema, Schemas, Value};
pub use losses::{Loss, Losses, Severity};
pub use pairs::Pair;
pub use phase::{Mark, Phase};
pub use record::Record;
pub use ring::{Encoder, Missed, TooLarge};
pub use stream::{LogLine, RecordingInfo, Session, SessionOptions, Step, StoredFile, encode_frame};
pub use trace::{Trace, TraceKind};
