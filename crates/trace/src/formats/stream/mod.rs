//! The agent's stream (`agent/protocol.h`): a board's output, step by step, with its recordings.

pub(crate) mod frame;
pub(crate) mod index;
mod recording;
mod session;
mod window;

pub use frame::encode_frame;
use session::looks_like_stream;
pub use session::{LogLine, RecordingInfo, Session, SessionOptions, Step, StoredFile};
pub use window::StreamWindow;

use crate::error::Error;
use crate::formats::{Format, Reader};
use crate::input::Input;
use crate::source::Opened;
use std::path::Path;

pub(crate) const FORMAT: Format = Format {
    name: "the agent's stream (`agent/protocol.h`, docs/reference/agent-protocol.md)",
    read: "yes",
    written: "by the agent",
    recognised_by: "the bytes `FSC1`",
    reader: Reader::Bytes { is: looks_like_stream, open },
};

/// Opens the only recording of a stream.
fn open(path: &Path, input: Input) -> Result<Opened, Error> {
    let session = Session::of(path, input, SessionOptions::default())?;
    match session.recordings.len() {
        0 => Err(Error::NoRecording { path: path.to_path_buf() }),
        1 => session.opened(0),
        count => Err(Error::SeveralRecordings { path: path.to_path_buf(), count }),
    }
}
