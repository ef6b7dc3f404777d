//! Reading and writing traces.

mod event;

pub use event::{Event, EventKind, FlashAccess, FlashOp, TimeNs};
