//! What a recorder's stream says of the command under it, read while the stream passes.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::frames::{FS_END, FS_EXIT, HEADER, MAGIC, u32_at};

/// Passes a stream on unchanged. It must be a recorder's own: one source.
pub(crate) struct StreamMonitor<'a> {
    out: &'a mut dyn Write,
    /// The frame that has begun: its header, and its payload where that is wanted.
    frame: Vec<u8>,
    /// Bytes of a payload that are still to come and not wanted.
    skip: u64,
    lost: bool,
    /// How the command ended; 128 + n where signal n ended it.
    pub status: Option<i32>,
    /// The stream is whole. Set where another thread can see it.
    pub ended: &'a AtomicBool,
}

impl<'a> StreamMonitor<'a> {
    pub fn new(out: &'a mut dyn Write, ended: &'a AtomicBool) -> StreamMonitor<'a> {
        StreamMonitor { out, frame: Vec::new(), skip: 0, lost: false, status: None, ended }
    }

    fn follow(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.lost {
            let skipped = usize::try_from(self.skip).unwrap_or(usize::MAX).min(bytes.len());
            self.skip -= skipped as u64;
            bytes = &bytes[skipped..];
            let length = u32_at(&self.frame, 12).map(|length| length as usize);
            let wanted = HEADER + length.filter(|_| self.frame.len() >= HEADER).unwrap_or(0);
            let taken = bytes.len().min(wanted - self.frame.len());
            self.frame.extend_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
            if self.frame.len() < HEADER {
                continue;
            }
            let kind = u16::from_le_bytes([self.frame[4], self.frame[5]]);
            let length = u32_at(&self.frame, 12).unwrap_or(0) as usize;
            // What is no frame tells nothing more; who reads the recording says so.
            self.lost = u32_at(&self.frame, 0) != Some(MAGIC);
            if kind != FS_EXIT && kind != FS_END || length > 4096 {
                self.skip = length as u64;
                self.frame.clear();
            } else if self.frame.len() == HEADER + length {
                if kind == FS_EXIT {
                    self.status = u32_at(&self.frame, HEADER + 16).map(|bits| bits as i32);
                } else {
                    self.ended.store(true, Ordering::Relaxed);
                }
                self.frame.clear();
            }
        }
    }
}

impl Write for StreamMonitor<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.follow(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u16, payload: &[u8]) -> Vec<u8> {
        let mut bytes = MAGIC.to_le_bytes().to_vec();
        bytes.extend(kind.to_le_bytes());
        bytes.extend([0; 6]);
        bytes.extend((payload.len() as u32).to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(payload);
        bytes
    }

    #[test]
    fn the_end_of_the_command_is_seen_however_the_stream_is_cut_into_pieces() {
        let mut exit = [0; 24];
        exit[16..20].copy_from_slice(&143i32.to_le_bytes());
        let mut stream = frame(1, b"hello");
        stream.extend(frame(16, &[7; 5000]));
        stream.extend(frame(FS_EXIT, &exit));
        stream.extend(frame(9, b"{}"));
        let whole = stream.len();
        stream.extend(frame(FS_END, &[0; 8]));
        for piece in [1, 3, 19, 20, 21, 4096, stream.len()] {
            let (mut out, ended) = (Vec::new(), AtomicBool::new(false));
            let mut watch = StreamMonitor::new(&mut out, &ended);
            for bytes in stream[..whole].chunks(piece) {
                watch.write_all(bytes).unwrap();
            }
            assert_eq!(watch.status, Some(143), "pieces of {piece}");
            assert!(!ended.load(Ordering::Relaxed));
            watch.write_all(&stream[whole..]).unwrap();
            assert!(ended.load(Ordering::Relaxed));
            assert_eq!(out, stream);
        }
    }

    #[test]
    fn what_is_no_stream_passes_and_tells_nothing() {
        let (mut out, ended) = (Vec::new(), AtomicBool::new(false));
        let mut watch = StreamMonitor::new(&mut out, &ended);
        watch.write_all(&[0xff; 100_000]).unwrap();
        assert_eq!((watch.status, out.len()), (None, 100_000));
    }
}
