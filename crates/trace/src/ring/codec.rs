//! Decompresses parts of a trace.dat version 7. Sizes are known in advance; no output exceeds them.

use crate::bytes::Endian;
use miniz_oxide::inflate::decompress_slice_iter_to_slice;
use ruzstd::decoding::FrameDecoder;

/// Largest part that is unpacked. trace-cmd's chunks have ten pages. Its largest section, apart from kallsyms, is the formats: 5 MiB with
/// all events of a kernel. kallsyms is unpacked only when it is copied.
pub(crate) const MAX_UNPACKED: u32 = 16 << 20;
/// Largest zstd window, which bounds the decoder's memory. The default levels use 8 MiB at most (zstd's manual, "windowLog").
const MAX_WINDOW: u64 = 8 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Codec {
    Zlib,
    Zstd,
}

impl Codec {
    /// The codec with this name in the file; `None` for an unknown name.
    pub fn named(name: &str) -> Option<Codec> {
        match name {
            "zlib" => Some(Codec::Zlib),
            "zstd" => Some(Codec::Zstd),
            _ => None,
        }
    }

    /// Unpacks exactly `out.len()` bytes; false if `packed` holds fewer or more.
    pub fn unpack(self, packed: &[u8], out: &mut [u8]) -> bool {
        match self {
            Codec::Zlib => {
                let length = out.len();
                decompress_slice_iter_to_slice(out, std::iter::once(packed), true, false) == Ok(length)
            }
            Codec::Zstd => {
                if window(packed).is_none_or(|w| w > MAX_WINDOW.max(out.len() as u64)) {
                    return false;
                }
                let length = out.len();
                FrameDecoder::new().decode_all(packed, out).is_ok_and(|n| n == length)
            }
        }
    }
}

/// The window size in a zstd frame's header (RFC 8878, section 3.1.1.1).
fn window(frame: &[u8]) -> Option<u64> {
    let le = Endian::Little;
    if le.u32(frame, 0)? != 0xFD2F_B528 {
        return None;
    }
    let descriptor = *frame.get(4)?;
    if descriptor & 0x20 == 0 {
        let byte = u64::from(*frame.get(5)?);
        let base = 1u64 << (10 + (byte >> 3));
        return Some(base + base / 8 * (byte & 7));
    }
    // A single segment: the window has the size of the content.
    let at = 5 + [0, 1, 2, 4][usize::from(descriptor & 3)];
    match descriptor >> 6 {
        0 => frame.get(at).map(|&b| u64::from(b)),
        1 => le.u16(frame, at).map(|v| u64::from(v) + 256),
        2 => le.u32(frame, at).map(u64::from),
        _ => le.u64(frame, at),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zstd(bytes: &[u8]) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
    }

    #[test]
    fn unpacks_exactly_what_was_said() {
        let want = b"flashscope".repeat(100);
        let zlib = miniz_oxide::deflate::compress_to_vec_zlib(&want, 6);
        for (codec, packed) in [(Codec::Zlib, zlib), (Codec::Zstd, zstd(&want))] {
            let mut out = vec![0; 1000];
            assert!(codec.unpack(&packed, &mut out), "{codec:?}");
            assert_eq!(out, want);
            for size in [0, 1, 999, 1001, 5000] {
                assert!(!codec.unpack(&packed, &mut vec![0; size]), "{codec:?} {size}");
            }
            for cut in 0..packed.len() {
                assert!(!codec.unpack(&packed[..cut], &mut out), "{codec:?} {cut}");
            }
            for at in 0..packed.len() {
                for bit in 0..8 {
                    let mut damaged = packed.clone();
                    damaged[at] ^= 1 << bit;
                    codec.unpack(&damaged, &mut out);
                }
            }
        }
    }

    #[test]
    fn a_huge_window_is_refused() {
        // Descriptor without a content size, window descriptor of the largest kind.
        let frame = [0x28, 0xb5, 0x2f, 0xfd, 0, 0xff, 1, 0, 0];
        assert_eq!(window(&frame), Some((1 << 41) + (1 << 38) * 7));
        assert!(!Codec::Zstd.unpack(&frame, &mut [0; 8]));
    }
}
