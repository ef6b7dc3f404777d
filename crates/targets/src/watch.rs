//! Reads the command's exit status from a recorder's stream while the stream passes through.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::frames::{FS_END, FS_EXIT, Frames, u32_at};

/// Passes a stream on unchanged. The stream must be from one recorder (one source).
pub(crate) struct StreamMonitor<'a> {
    out: &'a mut dyn Write,
    frames: Frames,
    /// Exit status of the command; 128 + n if signal n ended it.
    pub status: Option<i32>,
    /// Set when the stream is complete; other threads read it.
    pub ended: &'a AtomicBool,
}

impl<'a> StreamMonitor<'a> {
    pub fn new(out: &'a mut dyn Write, ended: &'a AtomicBool) -> StreamMonitor<'a> {
        StreamMonitor { out, frames: Frames::default(), status: None, ended }
    }

    fn follow(&mut self, bytes: &[u8]) {
        // Bytes outside of frames have no information here; the reader of the recording reports them.
        self.frames.follow(bytes, &mut |kind, payload| match kind {
            FS_EXIT => self.status = u32_at(payload, 16).map(|bits| bits as i32),
            FS_END => self.ended.store(true, Ordering::Relaxed),
            _ => {}
        });
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
    use crate::frames::{FS_PROGRESS, MAGIC};

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

    #[test]
    fn every_frame_is_seen_however_the_stream_is_cut() {
        let stream = [frame(1, b"hello"), frame(16, &[7; 9000]), frame(FS_PROGRESS, &[1; 24]), frame(15, &[])].concat();
        for piece in [1, 7, 20, 21, 4096, stream.len()] {
            let (mut frames, mut seen) = (Frames::default(), Vec::new());
            for bytes in stream.chunks(piece) {
                frames.follow(bytes, &mut |kind, payload| seen.push((kind, payload.len())));
            }
            assert_eq!(seen, [(1, 5), (16, 0), (FS_PROGRESS, 24), (15, 0)], "pieces of {piece}");
        }
    }

    #[test]
    fn what_is_no_stream_has_no_frames() {
        let mut frames = Frames::default();
        frames.follow(&[0xff; 100_000], &mut |_, _| panic!("no frame"));
    }
}
