//! Frames of the agent's stream while it passes (`agent/protocol.h`): where each ends, and what the short ones say.

/// `FS_END`: a stream is whole.
pub const END: u16 = 15;
/// `FS_PROGRESS`.
pub const PROGRESS: u16 = 18;

const MAGIC: u32 = 0x3143_5346;
const HEADER: usize = 20;
/// Payloads of more bytes are not kept.
const KEPT: usize = 4096;

/// Follows a stream however it is cut into pieces. What is no stream tells nothing.
#[derive(Default)]
pub struct Frames {
    /// The frame that has begun: its header, and its payload where that is short.
    frame: Vec<u8>,
    /// Bytes of the payload that are still to come.
    rest: usize,
    kept: bool,
    lost: bool,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|four| four.try_into().ok()).map_or(0, u32::from_le_bytes)
}

impl Frames {
    /// Calls `each` at the end of every frame, with its type and its payload (empty where that is long).
    pub fn follow(&mut self, bytes: &[u8], each: &mut impl FnMut(u16, &[u8])) {
        let mut bytes = bytes;
        while !bytes.is_empty() && !self.lost {
            bytes = self.one(bytes, each);
        }
    }

    /// As far as the end of one frame at most; the bytes behind it.
    pub fn one<'b>(&mut self, bytes: &'b [u8], each: &mut impl FnMut(u16, &[u8])) -> &'b [u8] {
        let mut bytes = bytes;
        if self.frame.len() < HEADER {
            let taken = bytes.len().min(HEADER - self.frame.len());
            self.frame.extend_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
            if self.frame.len() < HEADER {
                return bytes;
            }
            self.lost = u32_at(&self.frame, 0) != MAGIC;
            self.rest = u32_at(&self.frame, 12) as usize;
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
    fn every_frame_is_seen_however_the_stream_is_cut() {
        let stream = [frame(1, b"hello"), frame(16, &[7; 9000]), frame(PROGRESS, &[1; 24]), frame(15, &[])].concat();
        for piece in [1, 7, 20, 21, 4096, stream.len()] {
            let (mut frames, mut seen) = (Frames::default(), Vec::new());
            for bytes in stream.chunks(piece) {
                frames.follow(bytes, &mut |kind, payload| seen.push((kind, payload.len())));
            }
            assert_eq!(seen, [(1, 5), (16, 0), (PROGRESS, 24), (15, 0)], "pieces of {piece}");
        }
    }

    #[test]
    fn what_is_no_stream_tells_nothing() {
        let mut frames = Frames::default();
        frames.follow(&[0xff; 100_000], &mut |_, _| panic!("no frame"));
    }
}
