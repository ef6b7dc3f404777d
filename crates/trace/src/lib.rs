//! Reading and writing traces.

mod bytes;
mod crc32;
mod error;
mod event;
mod format;
mod losses;
mod ring;

pub use bytes::Endian;
pub use error::Error;
pub use event::{Event, EventKind, FlashAccess, FlashOp, TimeNs};
pub use format::{Array, Field, FieldKind, FormatError, Layout, Schema, Schemas, Value};
pub use losses::{Loss, Losses, Severity};
pub use ring::{Encoder, Missed, TooLarge};
