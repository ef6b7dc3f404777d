//! Reads the part of the agent's stream (`agent/protocol.h`) that is needed to get one command's output.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;

/// FS_MAGIC, "FSC1".
pub(crate) const MAGIC: u32 = 0x3143_5346;
pub(crate) const HEADER: usize = 20;
const MAX_FRAME: u32 = 1 << 20;

pub(crate) const FS_OUTPUT: u16 = 10;
pub(crate) const FS_EXIT: u16 = 11;
pub(crate) const FS_LOG: u16 = 12;
pub(crate) const FS_FILE: u16 = 13;
const FS_STEP: u16 = 14;
pub const FS_END: u16 = 15;
const FS_DATA_FOLDED: u16 = 16;
pub const FS_PROGRESS: u16 = 18;

#[derive(Debug, PartialEq)]
pub(crate) struct Frame {
    pub kind: u16,
    pub source: u16,
    pub payload: Vec<u8>,
}

/// A little-endian field of a payload; `None` if the payload is too short.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// The next frame. `None`: the stream ends here, complete or cut. Invalid data is an error.
pub(crate) fn next(input: &mut dyn Read) -> io::Result<Option<Frame>> {
    let mut header = [0; HEADER];
    if !fill(input, &mut header)? {
        return Ok(None);
    }
    let field = |at| u32_at(&header, at).expect("inside the header");
    let length = field(12);
    if field(0) != MAGIC || length > MAX_FRAME - HEADER as u32 {
        return Err(io::Error::other("not a frame of the agent's stream"));
    }
    let mut payload = vec![0; length as usize];
    if !fill(input, &mut payload)? {
        return Ok(None);
    }
    let half = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    // Ring data has another kind of checksum. It is not used here, and the reader of the recording checks it.
    if half(4) != FS_DATA_FOLDED && crc32fast::hash(&payload) != field(16) {
        return Err(io::Error::other("a frame's checksum is wrong"));
    }
    Ok(Some(Frame { kind: half(4), source: half(6), payload }))
}

fn fill(input: &mut dyn Read, buffer: &mut [u8]) -> io::Result<bool> {
    match input.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// [`Frames`] does not keep payloads above this size.
const KEPT: usize = 4096;

/// Finds frames in a stream that comes in pieces of any size. Other data gives no frames.
#[derive(Default)]
pub struct Frames {
    /// The unfinished frame: its header, and its payload if that is short.
    frame: Vec<u8>,
    /// Bytes of the payload that have not come yet.
    rest: usize,
    kept: bool,
    lost: bool,
}

impl Frames {
    /// Calls `each` at the end of every frame, with its type and its payload (empty if it is long).
    pub fn follow(&mut self, bytes: &[u8], each: &mut impl FnMut(u16, &[u8])) {
        let mut bytes = bytes;
        while !bytes.is_empty() && !self.lost {
            bytes = self.one(bytes, each);
        }
    }

    /// Reads up to the end of one frame; returns the remaining bytes.
    pub fn one<'b>(&mut self, bytes: &'b [u8], each: &mut impl FnMut(u16, &[u8])) -> &'b [u8] {
        let mut bytes = bytes;
        if self.frame.len() < HEADER {
            let taken = bytes.len().min(HEADER - self.frame.len());
            self.frame.extend_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
            if self.frame.len() < HEADER {
                return bytes;
            }
            self.lost = u32_at(&self.frame, 0) != Some(MAGIC);
            self.rest = u32_at(&self.frame, 12).unwrap_or(0) as usize;
            self.kept = self.rest <= KEPT;
        }
        let taken = bytes.len().min(self.rest);
        if self.kept {
            self.frame.extend_from_slice(&bytes[..taken]);
        }
        self.rest -= taken;
        if self.rest == 0 && !self.lost {
            let kind = u16::from_le_bytes([self.frame[4], self.frame[5]]);
            each(kind, &self.frame[HEADER..]);
            self.frame.clear();
        }
        &bytes[taken..]
    }
}

/// Reads the names of steps in a growing port file, for progress only: invalid data stops it silently.
pub(crate) struct Steps {
    path: PathBuf,
    position: u64,
}

impl Steps {
    pub fn follow(path: PathBuf) -> Steps {
        Steps { path, position: 0 }
    }

    /// Reads the steps since the last call.
    pub fn since(&mut self, mut each: impl FnMut(&str)) {
        let Ok(mut file) = File::open(&self.path) else { return };
        let size = file.metadata().map_or(0, |meta| meta.len());
        while self.position + HEADER as u64 <= size {
            let mut header = [0; HEADER];
            if file.seek(SeekFrom::Start(self.position)).is_err() || file.read_exact(&mut header).is_err() {
                return;
            }
            let (magic, length) = (u32_at(&header, 0), u32_at(&header, 12).unwrap_or(0));
            let end = self.position + HEADER as u64 + u64::from(length);
            if magic != Some(MAGIC) || end > size {
                return;
            }
            self.position = end;
            if u16::from_le_bytes([header[4], header[5]]) == FS_STEP && length <= 256 {
                let mut name = vec![0; length as usize];
                if file.read_exact(&mut name).is_ok() {
                    each(&String::from_utf8_lossy(&name));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u16, source: u16, payload: &[u8]) -> Vec<u8> {
        let mut bytes = MAGIC.to_le_bytes().to_vec();
        bytes.extend(kind.to_le_bytes());
        bytes.extend(source.to_le_bytes());
        bytes.extend(0u32.to_le_bytes());
        bytes.extend((payload.len() as u32).to_le_bytes());
        bytes.extend(crc32fast::hash(payload).to_le_bytes());
        bytes.extend(payload);
        bytes
    }

    #[test]
    fn frames_are_read_and_a_cut_ends_them() {
        let mut bytes = frame(FS_OUTPUT, 3, b"\x01\0\0\0hello");
        bytes.extend(&frame(FS_EXIT, 3, &[0; 24])[..30]);
        let input = &mut bytes.as_slice();
        let first = next(input).unwrap().unwrap();
        assert_eq!((first.kind, first.source, &first.payload[4..]), (FS_OUTPUT, 3, &b"hello"[..]));
        assert_eq!(next(input).unwrap(), None);
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        assert!(next(&mut &b"no frame here, twenty bytes"[..]).is_err());
        let mut long = frame(FS_LOG, 0, b"");
        long[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(next(&mut long.as_slice()).is_err());
        let mut flipped = frame(FS_LOG, 0, b"text");
        *flipped.last_mut().unwrap() ^= 1;
        assert!(next(&mut flipped.as_slice()).is_err());
    }
}
