//! The agent's stream (`agent/protocol.h`): what a board sent, step by step, with its recordings.

pub(crate) mod frame;
pub(crate) mod index;
mod session;
mod window;

pub use frame::encode_frame;
pub use session::{LogLine, RecordingInfo, Session, SessionOptions, Step, StoredFile};
pub(crate) use session::{SourceState, looks_like_stream};
pub use window::StreamWindow;
