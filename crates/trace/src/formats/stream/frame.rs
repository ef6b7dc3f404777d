//! Reads frames of `agent/protocol.h` from bytes, without I/O, for any input, in bounded time.

use crate::bytes::Endian;

/// `FS_MAGIC`: the bytes "FSC1".
pub(crate) const MAGIC: [u8; 4] = *b"FSC1";
/// `sizeof(struct fs_frame)`.
pub(crate) const HEADER: usize = 20;
/// `FS_MAX_FRAME`: header and payload.
pub(crate) const MAX_FRAME: usize = 1 << 20;

/// `enum fs_type`.
pub(crate) mod kind {
    pub const HELLO: u16 = 1;
    pub const FACTS: u16 = 2;
    pub const HEADER_PAGE: u16 = 3;
    pub const HEADER_EVENT: u16 = 4;
    pub const FORMAT: u16 = 5;
    pub const DATA: u16 = 6;
    pub const TASKS: u16 = 7;
    pub const PHASE: u16 = 8;
    pub const STATS: u16 = 9;
    pub const OUTPUT: u16 = 10;
    pub const EXIT: u16 = 11;
    pub const LOG: u16 = 12;
    pub const FILE: u16 = 13;
    pub const STEP: u16 = 14;
    pub const END: u16 = 15;
    /// DATA with a cheaper checksum; [`Header::read`](super::Header::read) returns DATA for both.
    pub const DATA_FOLDED: u16 = 16;
    pub const NAMES: u16 = 17;
    pub const PROGRESS: u16 = 18;
}

/// A frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub kind: u16,
    pub source: u16,
    pub seq: u32,
    /// Payload bytes.
    pub length: usize,
    pub crc: u32,
    /// `crc` was computed by [`folded`].
    folded: bool,
}

impl Header {
    /// `None` if this is not the header of a frame.
    pub fn read(bytes: &[u8]) -> Option<Header> {
        let le = Endian::Little;
        if bytes.get(..4)? != MAGIC {
            return None;
        }
        let length = le.u32(bytes, 12)? as usize;
        if length > MAX_FRAME - HEADER {
            return None;
        }
        let kind = le.u16(bytes, 4)?;
        let folded = kind == kind::DATA_FOLDED;
        Some(Header {
            kind: if folded { kind::DATA } else { kind },
            folded,
            source: le.u16(bytes, 6)?,
            seq: le.u32(bytes, 8)?,
            length,
            crc: le.u32(bytes, 16)?,
        })
    }

    pub fn frame_size(&self) -> usize {
        HEADER + self.length
    }
}

/// The item at the beginning of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scan {
    /// A whole frame with a correct checksum.
    Frame(Header),
    /// A frame with a wrong checksum; another frame, or the end, follows it.
    BadCrc(Header),
    /// Number of bytes that belong to no frame.
    Skip(usize),
    /// More bytes are needed to decide.
    More,
    /// The input ends inside a frame; number of remaining bytes.
    Cut(usize),
    End,
}

/// Finds frames. A damaged frame is lost, and with it at most one frame that its wrong length hides.
#[derive(Debug, Default)]
pub(crate) struct Scanner {
    /// Bytes scanned, and bytes whose checksum was computed in vain. `wasted` is kept below `scanned`, because otherwise a crafted file
    /// would take quadratic time.
    scanned: u64,
    wasted: u64,
}

const WASTE_ALLOWED: u64 = 16 << 20;

impl Scanner {
    /// `last`: no more bytes follow. The caller drops the used bytes and calls again.
    pub fn scan(&mut self, bytes: &[u8], last: bool) -> Scan {
        let found = self.look(bytes, last);
        self.scanned += match found {
            Scan::Frame(h) | Scan::BadCrc(h) => h.frame_size() as u64,
            Scan::Skip(n) | Scan::Cut(n) => n as u64,
            Scan::More | Scan::End => 0,
        };
        found
    }

    fn look(&mut self, bytes: &[u8], last: bool) -> Scan {
        if bytes.is_empty() {
            return if last { Scan::End } else { Scan::More };
        }
        if bytes.len() < HEADER {
            if !last && maybe_magic(bytes) {
                return Scan::More;
            }
            if last && maybe_magic(bytes) {
                return Scan::Cut(bytes.len());
            }
            return self.skip(bytes, last);
        }
        let Some(header) = Header::read(bytes) else {
            return self.skip(bytes, last);
        };
        let size = header.frame_size();
        if bytes.len() < size + 4 && !last {
            return Scan::More;
        }
        if bytes.len() < size {
            // The frame is cut here, unless whole frames follow: then this header is wrong.
            let mut at = 4;
            while let Some(next) = find_magic(&bytes[at..]) {
                at += next;
                if let Some(h) = Header::read(&bytes[at..])
                    && self.followed(&bytes[at..], &h)
                    && self.check(&bytes[at..], &h)
                {
                    return Scan::Skip(at);
                }
                at += 4;
            }
            return Scan::Cut(bytes.len());
        }
        let followed = self.followed(bytes, &header);
        if !followed && self.wasted > self.scanned + WASTE_ALLOWED {
            return self.skip(bytes, last);
        }
        if self.check(bytes, &header) {
            Scan::Frame(header)
        } else if followed {
            Scan::BadCrc(header)
        } else {
            self.wasted += size as u64;
            self.skip(bytes, last)
        }
    }

    /// The frame is complete, and another frame or the end follows it.
    fn followed(&self, bytes: &[u8], header: &Header) -> bool {
        let size = header.frame_size();
        bytes.len() == size || bytes.get(size..size + 4).is_some_and(|m| m == MAGIC)
    }

    fn check(&self, bytes: &[u8], header: &Header) -> bool {
        let payload = &bytes[HEADER..header.frame_size()];
        header.crc == if header.folded { folded(payload) } else { crc32fast::hash(payload) }
    }

    /// Skips to the next magic after the first byte.
    fn skip(&self, bytes: &[u8], last: bool) -> Scan {
        match find_magic(&bytes[1..]) {
            Some(at) => Scan::Skip(at + 1),
            None if last => Scan::Skip(bytes.len()),
            // The last bytes may be the beginning of a magic.
            None => Scan::Skip(bytes.len().saturating_sub(3).max(1)),
        }
    }
}

/// `fs_crc32_folded` of agent/common/frame.c: the CRC-32 of eight sums and of the remaining bytes. Each sum takes every eighth 32-bit word.
/// It is rotated by five bits before a word is added, so that the order of words counts.
fn folded(payload: &[u8]) -> u32 {
    const LANES: usize = 8;
    let mut lanes = [0u32; LANES];
    let blocks = payload.chunks_exact(4 * LANES);
    let rest = blocks.remainder();
    for block in blocks {
        for (lane, word) in lanes.iter_mut().zip(block.chunks_exact(4)) {
            let word = Endian::Little.u32(word, 0).unwrap_or_default();
            *lane = lane.rotate_left(5).wrapping_add(word);
        }
    }
    let mut all: Vec<u8> = lanes.iter().flat_map(|lane| lane.to_le_bytes()).collect();
    all.extend_from_slice(rest);
    crc32fast::hash(&all)
}

fn find_magic(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|w| w == MAGIC)
}

fn maybe_magic(bytes: &[u8]) -> bool {
    let n = bytes.len().min(4);
    bytes[..n] == MAGIC[..n]
}

/// Encodes one frame, for tests and for tools that make streams.
pub fn encode_frame(kind: u16, source: u16, seq: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER + payload.len());
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&source.to_le_bytes());
    out.extend_from_slice(&seq.to_le_bytes());
    out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    let check = if kind == kind::DATA_FOLDED { folded(payload) } else { crc32fast::hash(payload) };
    out.extend_from_slice(&check.to_le_bytes());
    out.extend_from_slice(payload);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> (Vec<u32>, usize, usize, bool) {
        let mut s = Scanner::default();
        let (mut at, mut seqs, mut skipped, mut bad, mut cut) = (0, vec![], 0, 0, false);
        for _ in 0..=bytes.len() {
            match s.scan(&bytes[at..], true) {
                Scan::Frame(h) => {
                    seqs.push(h.seq);
                    at += h.frame_size();
                }
                Scan::BadCrc(h) => {
                    bad += 1;
                    at += h.frame_size();
                }
                Scan::Skip(n) => {
                    assert!(n > 0);
                    skipped += n;
                    at += n;
                }
                Scan::Cut(n) => {
                    cut = true;
                    at += n;
                }
                Scan::More => panic!("asked for more after the last"),
                Scan::End => return (seqs, skipped, bad, cut),
            }
        }
        panic!("no progress");
    }

    fn three() -> Vec<u8> {
        // Of each kind of checksum.
        (0..3).flat_map(|i| encode_frame([6, 16, 1][i as usize], 1, i, &[i as u8; 100])).collect()
    }

    /// The agent's unit tests hold these too (agent/tests/unit_frame.c).
    #[test]
    fn a_folded_checksum_is_the_agents() {
        let bytes: Vec<u8> = (0..100u8).map(|i| i.wrapping_mul(7)).collect();
        assert_eq!(folded(&[]), crc32fast::hash(&[0; 32]));
        assert_eq!(folded(b"123456789"), crc32fast::hash(&[&[0; 32][..], b"123456789"].concat()));
        assert_eq!(folded(&bytes[..32]), crc32fast::hash(&bytes[..32]));
        assert_eq!(folded(&bytes), 0x96f9_6f85);
    }

    #[test]
    fn any_changed_bit_or_swapped_block_shows_in_a_folded_checksum() {
        let bytes: Vec<u8> = (0..4100u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let right = folded(&bytes);
        for bit in 0..bytes.len() * 8 {
            let mut wrong = bytes.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(folded(&wrong), right, "bit {bit}");
        }
        for block in 1..bytes.len() / 32 {
            let mut wrong = bytes.clone();
            let (a, b) = wrong.split_at_mut(block * 32);
            a[(block - 1) * 32..].swap_with_slice(&mut b[..32]);
            assert_ne!(folded(&wrong), right, "block {block}");
        }
    }

    #[test]
    fn cut_anywhere_keeps_what_came_before() {
        let b = three();
        for cut in 0..=b.len() {
            let (seqs, skipped, bad, was_cut) = all(&b[..cut]);
            assert_eq!(seqs.len(), cut / 120, "{cut}");
            assert_eq!((skipped, bad), (0, 0), "{cut}");
            assert_eq!(was_cut, cut % 120 != 0, "{cut}");
        }
    }

    #[test]
    fn damage_costs_one_frame() {
        let b = three();
        // In the payload: known as damaged.
        let mut d = b.clone();
        d[150] ^= 1;
        assert_eq!(all(&d), (vec![0, 2], 0, 1, false));
        // In the magic: skipped.
        let mut d = b.clone();
        d[120] ^= 1;
        assert_eq!(all(&d), (vec![0, 2], 120, 0, false));
        // A length that lies, short and long, and one of 4 GiB.
        for length in [0u32, 99, 101, 220, 1 << 19, u32::MAX] {
            let mut d = b.clone();
            d[132..136].copy_from_slice(&length.to_le_bytes());
            let (seqs, ..) = all(&d);
            assert!(seqs == [0, 2] || (length == 220 && seqs == [0]), "{length}: {seqs:?}");
        }
        // Garbage between frames.
        let mut d = b[..120].to_vec();
        d.extend(b"FSC1 and other noise FSC");
        d.extend(&b[120..]);
        assert_eq!(all(&d), (vec![0, 1, 2], 24, 0, false));
    }
}
