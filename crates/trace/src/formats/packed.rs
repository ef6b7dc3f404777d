//! gzip, xz and zstd around a trace: unpacked once, into a nameless file, in bounded memory.
//!
//! The beginning is unpacked first; a file that is not a trace is rejected there. Recordings shrink to 1/7 up to 1/17 of their size, and a
//! recording of a single repeated call to 1/66. A file that grows far beyond that is made to fill a disk, or to take hours.

use super::{Format, Head, Reader};
use crate::error::Error;
use crate::input::Input;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

/// Packed files are unpacked before the format inside is recognised.
pub(crate) const FORMAT: Format = Format {
    name: "any of them packed with gzip, xz or zstd",
    read: "yes",
    written: "no",
    recognised_by: "`1f 8b`, `fd \"7zXZ\"`, `28 b5 2f fd`",
    reader: Reader::None,
};

/// Unpacked bytes that stay in memory; more go to a file.
const IN_MEMORY: usize = 1 << 20;
/// Unpacked size that is always allowed.
const ALWAYS: u64 = 64 << 20;
/// Packed size up to which only `ALWAYS` bytes may be unpacked: an optimised build reports on 64 MiB of any format within 10 s.
const SMALL: u64 = 1 << 20;
/// Unpacked bytes that each further packed byte allows.
const MOST_TIMES: u64 = 100;
/// Memory limit for xz, KiB: its highest level has a dictionary of 64 MiB.
const XZ_MEMORY_KIB: u32 = 80 << 10;
/// The same for a packed size up to `SMALL`: a dictionary of 32 MiB.
const XZ_SMALL_KIB: u32 = 40 << 10;
/// Largest dictionary that such a file gets, bytes, and its byte in a header (xz-file-format 1.2.1, section 5.3.1).
const XZ_SMALL_DICTIONARY: u64 = 32 << 20;
const XZ_SMALL_CODE: u8 = 26;
/// Largest window of a zstd frame, bytes: every decoder should accept it, and encoders do not exceed it by default (RFC 8878, section
/// 3.1.1.1.2). The decoder keeps twice as much. `zstd --long` and `--ultra` need up to 128 MiB and more.
const ZSTD_WINDOW: u64 = 8 << 20;

/// The compression of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    Gzip,
    Xz,
    Zstd,
}

impl Packing {
    pub fn of(head: &[u8]) -> Option<Packing> {
        match head {
            [0x1f, 0x8b, 8, ..] => Some(Packing::Gzip),
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Packing::Xz),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Packing::Zstd),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Packing::Gzip => "gzip",
            Packing::Xz => "xz",
            Packing::Zstd => "zstd",
        }
    }

    /// The message if the decoder would need more memory than it may take of xz (KiB).
    fn too_wide(self, xz_kib: u32) -> String {
        match self {
            Packing::Zstd => format!(
                "was packed with a window of more than {} MiB; unpack it (zstd -dc --long=31 FILE >TRACE), and give what comes out",
                ZSTD_WINDOW >> 20
            ),
            _ => format!(
                "needs more than {} MiB of memory to unpack; unpack it with {}, and give what comes out",
                xz_kib >> 10,
                self.name()
            ),
        }
    }

    fn reader<'a>(self, packed: impl Read + 'a, xz_kib: u32) -> io::Result<Box<dyn Read + 'a>> {
        let packed = io::BufReader::with_capacity(64 << 10, packed);
        Ok(match self {
            Packing::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(packed)),
            Packing::Xz => Box::new(lzma_rust2::XzReader::new_mem_limit(packed, true, xz_kib)),
            Packing::Zstd => Box::new(Frames { packed, frame: None }),
        })
    }
}

/// The first 24 bytes of an xz file whose dictionary is larger than `XZ_SMALL_DICTIONARY`, with that one. The decoder takes memory for the
/// whole dictionary, and level 9 asks for 64 MiB whatever the size of the file; what unpacks to less never reaches back further. Only for
/// the usual header: one filter, LZMA2, and no sizes (xz-file-format 1.2.1, section 3.1).
fn narrowed(begin: &[u8; 24]) -> Option<[u8; 24]> {
    let [size, flags, filter, properties, code] = [begin[12], begin[13], begin[14], begin[15], begin[16]];
    if [size, flags, filter, properties] != [2, 0, 0x21, 1] || code <= XZ_SMALL_CODE || begin[17..20] != [0; 3] {
        return None;
    }
    let check = |header: &[u8]| {
        let mut crc = flate2::Crc::new();
        crc.update(header);
        crc.sum().to_le_bytes()
    };
    if check(&begin[12..20]) != begin[20..] {
        return None;
    }
    let mut narrow = *begin;
    narrow[16] = XZ_SMALL_CODE;
    let sum = check(&narrow[12..20]);
    narrow[20..].copy_from_slice(&sum);
    Some(narrow)
}

/// The frames of a zstd file in sequence.
struct Frames<R: io::BufRead> {
    packed: R,
    frame: Option<Box<ruzstd::decoding::FrameDecoder>>,
}

impl<R: io::BufRead> Read for Frames<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder, errors::FrameDecoderError};
        let damaged = |e: &dyn std::fmt::Display| io::Error::new(io::ErrorKind::InvalidData, e.to_string());
        loop {
            let Some(frame) = &mut self.frame else {
                if self.packed.fill_buf()?.is_empty() {
                    return Ok(0);
                }
                let mut next = Box::new(FrameDecoder::new());
                next.set_max_window_size(ZSTD_WINDOW);
                next.init(&mut self.packed).map_err(|e| match e {
                    FrameDecoderError::WindowSizeTooBig { .. } => io::ErrorKind::OutOfMemory.into(),
                    e => damaged(&e),
                })?;
                self.frame = Some(next);
                continue;
            };
            if !frame.is_finished() && frame.can_collect() < into.len() {
                frame
                    .decode_blocks(&mut self.packed, BlockDecodingStrategy::UptoBytes(into.len()))
                    .map_err(|e| damaged(&e))?;
            }
            let n = frame.read(into)?;
            if n > 0 || into.is_empty() {
                return Ok(n);
            }
            if frame.is_finished() {
                self.frame = None;
            }
        }
    }
}

/// Largest unpacked size for this packed size, bytes.
pub(crate) fn most(packed: u64) -> u64 {
    ALWAYS.saturating_add(packed.saturating_sub(SMALL).saturating_mul(MOST_TIMES))
}

/// The message for a packed file that exceeds its limit.
fn too_large(packing: Packing, packed: u64, most: u64) -> String {
    let name = packing.name();
    let what = format!("if you trust it, unpack it ({name} -dc FILE >TRACE) and give what comes out");
    format!("{}; {what}", grows_too_far(packed, most))
}

/// The part of the message that is also true for a file with packed parts.
pub(crate) fn grows_too_far(packed: u64, most: u64) -> String {
    format!(
        "unpacks to more than {} MiB, which is the limit for {packed} packed bytes (few recordings pack so well)",
        most >> 20
    )
}

/// The result of unpacking.
pub(crate) struct Unpacked {
    pub input: Input,
    /// The packed file is cut or damaged: `input` has the data before that place.
    pub cut: bool,
}

/// Unpacks one file of a trace. `whole`: packed bytes of all files of the trace. `wanted` decides by the beginning whether to go on.
pub(crate) fn unpack(
    path: &Path,
    input: &Input,
    packing: Packing,
    whole: u64,
    wanted: impl FnOnce(&Head) -> Result<(), Error>,
) -> Result<Unpacked, Error> {
    let size = input.size().map_err(|e| Error::io(path, "read", e))?;
    // Each file gets its share of the trace's limit.
    let whole = whole.max(size).max(1);
    let mut most = (u128::from(most(whole)) * u128::from(size) / u128::from(whole)) as u64;
    let kib = if whole > SMALL { XZ_MEMORY_KIB } else { XZ_SMALL_KIB };
    let failed = |e| Error::io(path, "read", e);
    let mut source = input.reader();
    let mut header = Vec::new();
    if packing == Packing::Xz && whole <= SMALL {
        source.by_ref().take(24).read_to_end(&mut header).map_err(failed)?;
        if let Some(narrow) = header.first_chunk().and_then(narrowed) {
            header = narrow.to_vec();
            // One piece less: what reaches back further would count as damaged.
            most = most.min(XZ_SMALL_DICTIONARY - IN_MEMORY as u64);
        }
    }
    let mut reader = packing.reader(io::Cursor::new(header).chain(source), kib).map_err(failed)?;
    let (mut begin, mut cut) = (Vec::new(), false);
    let too_wide = || Error::Unsupported { path: path.to_path_buf(), what: packing.too_wide(kib) };
    fill(&mut reader, &mut begin, IN_MEMORY, &mut cut, too_wide)?;
    if begin.is_empty() {
        let what =
            format!("is packed with {}, and nothing is in it, or it is damaged from its beginning", packing.name());
        return Err(Error::Unsupported { path: path.to_path_buf(), what });
    }
    let first = Input::Memory(begin.into());
    wanted(&Head::read(&first).map_err(|e| Error::io(path, "read", e))?)?;
    let Input::Memory(mut piece) = first else { return Ok(Unpacked { input: first, cut }) };
    if piece.len() < IN_MEMORY || cut {
        return Ok(Unpacked { input: Input::Memory(piece), cut });
    }
    let mut file = nameless(path)?;
    let mut written = 0;
    while !piece.is_empty() {
        written += piece.len() as u64;
        if written > most {
            return Err(Error::Unsupported { path: path.to_path_buf(), what: too_large(packing, size, most) });
        }
        file.write_all(&piece).map_err(|e| not_kept(path, &e))?;
        let mut next = Vec::new();
        if !cut {
            fill(&mut reader, &mut next, IN_MEMORY, &mut cut, too_wide)?;
        }
        piece = next.into();
    }
    Ok(Unpacked { input: Input::Unpacked { file, packed: size }, cut })
}

/// The disk that is full is not the trace's.
fn not_kept(path: &Path, error: &io::Error) -> Error {
    let dir = std::env::temp_dir();
    Error::Unsupported {
        path: path.to_path_buf(),
        what: format!(
            "what is unpacked of it cannot be kept in {}: {error}; set TMPDIR to a larger disk",
            dir.display()
        ),
    }
}

/// Reads up to `wanted` bytes; stops at the end, or where the packed data is damaged.
fn fill(
    reader: &mut dyn Read,
    into: &mut Vec<u8>,
    wanted: usize,
    cut: &mut bool,
    too_wide: impl Fn() -> Error,
) -> Result<(), Error> {
    into.resize(wanted, 0);
    let mut filled = 0;
    while filled < wanted {
        match reader.read(&mut into[filled..]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::OutOfMemory => return Err(too_wide()),
            Err(_cut_or_damaged) => {
                *cut = true;
                break;
            }
        }
    }
    into.truncate(filled);
    Ok(())
}

/// Makes a file without a name in the directory for temporary files. `path` is for messages: the input that the file will hold.
pub(crate) fn nameless(path: &Path) -> Result<File, Error> {
    let dir = std::env::temp_dir();
    flashscope_output::temporary(&dir).map_err(|e| Error::Unsupported {
        path: path.to_path_buf(),
        what: format!("is kept in a file in {}, where none can be made ({e}); set TMPDIR", dir.display()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        out.write_all(bytes).unwrap();
        out.finish().unwrap()
    }

    fn zstd(bytes: &[u8]) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
    }

    fn all(packed: Vec<u8>) -> Result<(Vec<u8>, bool), Error> {
        let packing = Packing::of(&packed).unwrap();
        let out = unpack(Path::new("x"), &Input::Memory(packed.into()), packing, 0, |_| Ok(()))?;
        let mut bytes = vec![0; out.input.size().unwrap() as usize];
        out.input.read_exact_at(&mut bytes, 0).unwrap();
        Ok((bytes, out.cut))
    }

    #[test]
    fn one_member_and_two_come_back_and_a_cut_one_as_far_as_it_goes() {
        let mut text = Vec::new();
        (0..200_000u32)
            .for_each(|n| text.extend_from_slice(format!("{n} {}\n", n.wrapping_mul(2_654_435_761)).as_bytes()));
        for pack in [gzip as fn(&[u8]) -> Vec<u8>, zstd] {
            let packed = pack(&text);
            assert!(all(packed.clone()).unwrap() == (text.clone(), false));
            let two = [pack(&text[..70_000]), pack(&text[70_000..])].concat();
            assert!(all(two).unwrap() == (text.clone(), false));
            let (begin, cut) = all(packed[..packed.len() / 2].to_vec()).unwrap();
            assert!(cut && begin.len() > text.len() / 8 && text.starts_with(&begin));
            assert!(all(packed[..12].to_vec()).is_err());
        }
    }

    #[test]
    fn what_grows_without_end_ends_with_a_message() {
        for pack in [gzip as fn(&[u8]) -> Vec<u8>, zstd] {
            let packed = pack(&vec![b' '; 100 << 20]);
            assert!(packed.len() < 1 << 20, "{}", packed.len());
            let error = all(packed).unwrap_err().to_string();
            assert!(error.contains("unpacks to more than 64 MiB"), "{error}");
            assert!(error.contains(" -dc FILE >TRACE"), "{error}");
            // Within the limit it comes back whole.
            assert_eq!(all(pack(&vec![b' '; 64 << 20])).unwrap().0.len(), 64 << 20);
        }
    }

    /// A frame of one block as it is, whose header asks for a window of 2 to the power of 10 and `exponent` (RFC 8878, 3.1.1).
    #[test]
    fn a_window_that_takes_too_much_memory_is_refused() {
        let frame =
            |exponent: u8| [&[0x28, 0xb5, 0x2f, 0xfd, 0, exponent << 3][..], &[5 << 3 | 1, 0, 0], b"hello"].concat();
        assert_eq!(all(frame(13)).unwrap(), (b"hello".to_vec(), false));
        for exponent in [14, 17, 31] {
            let error = all(frame(exponent)).unwrap_err().to_string();
            assert!(error.contains("a window of more than 8 MiB; unpack it (zstd -dc --long=31 FILE"), "{error}");
        }
    }

    /// The begin of what `xz -9` makes, and of `xz -8`.
    #[test]
    fn the_dictionary_of_a_small_file_of_xz_is_narrowed() {
        let begin = |code: u8, check: [u8; 4]| {
            let head = [0xfd, b'7', b'z', b'X', b'Z', 0, 0, 4, 0xe6, 0xd6, 0xb4, 0x46, 2, 0, 0x21, 1, code, 0, 0, 0];
            <[u8; 24]>::try_from([&head[..], &check].concat()).unwrap()
        };
        let level_8 = begin(26, [0xcc, 0x90, 0x33, 0xe9]);
        let level_9 = begin(28, [0x10, 0xcf, 0x58, 0xcc]);
        assert_eq!(narrowed(&level_9), Some(level_8));
        assert_eq!(narrowed(&level_8), None);
        assert_eq!(narrowed(&begin(28, [0; 4])), None, "a damaged header");
    }

    #[test]
    fn files_of_one_trace_share_what_it_may_unpack_to() {
        let packed = gzip(&vec![b' '; 60 << 20]);
        let open = |files: u64| {
            let input = Input::Memory(packed.clone().into());
            unpack(Path::new("x"), &input, Packing::Gzip, files * packed.len() as u64, |_| Ok(())).map(|_| ())
        };
        assert!(open(1).is_ok());
        assert!(open(2).unwrap_err().to_string().contains("unpacks to more than 32 MiB"));
    }

    #[test]
    fn a_mebibyte_is_64_and_each_further_one_100() {
        for (packed, mebibytes) in [(0, 64), (100 << 10, 64), (1 << 20, 64), (2 << 20, 164), (11 << 20, 1064)] {
            assert_eq!(most(packed) >> 20, mebibytes, "{packed}");
        }
        assert_eq!(most(u64::MAX), u64::MAX);
    }
}
