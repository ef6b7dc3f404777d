//! Parses lines of ext4, XFS, f2fs, writeback, the page cache and read-ahead to the fields of the kernel's formats.
//!
//! The text uses other names for values than the formats. With the formats' names, an event in text and in a `trace.dat` gives the same
//! [`crate::FileEvent`]. Sources: `include/trace/events/{ext4,f2fs,writeback,filemap,readahead}.h`, `fs/xfs/xfs_trace.h`
//! (Linux 5.10, 6.1, 6.12 and 6.18).

use super::fields::{add, device, pairs, push, value_of, words};
use crate::formats::parsed::{Parsed, Value};
use crate::ids::Device;

/// `PAGE_SHIFT` of most machines, for lines that count in bytes: the text does not contain it.
const PAGE_SHIFT: u32 = 12;

/// The system of an event that this module reads.
pub(super) fn system(name: &str) -> Option<&'static str> {
    if name.starts_with("mm_filemap_") {
        return Some("filemap");
    }
    if matches!(name, "page_cache_sync_ra" | "page_cache_async_ra" | "page_cache_ra_order" | "page_cache_ra_unbounded")
    {
        return Some("readahead");
    }
    if matches!(name, "xfs_file_fsync" | "xfs_dir_fsync" | "xfs_file_buffered_write") {
        return Some("xfs");
    }
    match name.split_once('_')?.0 {
        "ext4" => Some("ext4"),
        "f2fs" => Some("f2fs"),
        "jbd2" => Some("jbd2"),
        "writeback" => Some("writeback"),
        _ => None,
    }
}

/// Reads a line of such an event. Returns false for other events, and for lines without the kernel's form.
pub(super) fn read<'a>(out: &mut Parsed<'a>, rest: &'a [u8]) -> bool {
    match out.system {
        "writeback" => writeback(out, rest),
        "ext4" | "jbd2" => ext4(out, rest),
        "f2fs" => f2fs(out, rest),
        "xfs" => xfs(out, rest),
        "filemap" => filemap(out, rest),
        "readahead" => readahead(out, rest),
        _ => false,
    }
}

/// `bdi 8:0: ino=12 index=3`
fn writeback<'a>(out: &mut Parsed<'a>, rest: &'a [u8]) -> bool {
    let Some(bdi) = rest.strip_prefix(b"bdi ") else { return false };
    let Some(end) = bdi.iter().position(|&b| b == b' ') else { return false };
    let name = bdi[..end].strip_suffix(b":").unwrap_or(&bdi[..end]);
    add(out, "name", Value::Text(name));
    pairs(out, &bdi[end..]);
    true
}

/// `dev 8,0 ino 12 pos 0 len 5`: a number belongs to the word before it. `[0/36) 9025` is a range of the file and its first block.
fn ext4<'a>(out: &mut Parsed<'a>, rest: &'a [u8]) -> bool {
    let Some(dev) = rest.strip_prefix(b"dev ").and_then(|rest| device(words(rest).next()?)) else { return false };
    add(out, "dev", Value::Unsigned(dev));
    let (mut key, mut placed) = ("", false);
    for word in words(rest).skip(2) {
        if let Some((first, length)) = range(word) {
            add(out, "lblk", Value::Unsigned(first));
            add(out, "len", Value::Unsigned(length));
            // The number after the range, or after "mapped", is the first block.
            (key, placed) = ("pblk", true);
            continue;
        }
        match value_of(word) {
            Value::Text(b"mapped") if placed => {}
            Value::Text(text) => key = std::str::from_utf8(text).unwrap_or(""),
            _ if key.is_empty() => {}
            _ => push(out, std::mem::take(&mut key), word),
        }
    }
    true
}

/// `dev 7:1 ino 0x83 disize 0x0 pos 0x1000 bytecount 0x200`; values have the names of the event's format.
fn xfs<'a>(out: &mut Parsed<'a>, rest: &'a [u8]) -> bool {
    let dev = |rest| Device::parse(std::str::from_utf8(words(rest).next()?).ok()?);
    let Some(dev) = rest.strip_prefix(b"dev ").and_then(dev) else { return false };
    add(out, "dev", Value::Unsigned(u64::from(dev.0)));
    let mut all = words(rest).skip(2);
    while let (Some(key), Some(value)) = (all.next(), all.next()) {
        let Ok(key) = std::str::from_utf8(key) else { continue };
        let key = match key {
            "pos" => "offset",
            "bytecount" => "count",
            "disize" => "size",
            key => key,
        };
        push(out, key, value);
    }
    true
}

/// `[4/32)`: the first block and how many.
fn range(word: &[u8]) -> Option<(u64, u64)> {
    let text = std::str::from_utf8(word).ok()?.strip_prefix('[')?.strip_suffix(')')?;
    let (first, length) = text.split_once('/')?;
    Some((first.parse().ok()?, length.parse().ok()?))
}

/// `dev = (8,0), ino = 5, pos = 0, len = 4096`; values have the names of the event's format.
fn f2fs<'a>(out: &mut Parsed<'a>, rest: &'a [u8]) -> bool {
    let Some((dev, rest)) = bracketed(rest) else { return false };
    add(out, "dev", Value::Unsigned(dev));
    let map = out.name == "f2fs_map_blocks";
    for part in rest.split(|&b| b == b',') {
        let Some(equals) = part.iter().position(|&b| b == b'=') else { continue };
        let Ok(said) = std::str::from_utf8(part[..equals].trim_ascii()) else { continue };
        let key = match said {
            "file offset" if map => "m_lblk",
            "start blkaddr" if map => "m_pblk",
            "len" if map => "m_len",
            "err" => "ret",
            "page_index" | "folio_index" => "index",
            "oldaddr" => "old_blkaddr",
            "newaddr" => "new_blkaddr",
            said if said.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') && !said.is_empty() => said,
            _ => continue,
        };
        push(out, key, &part[equals + 1..]);
    }
    true
}

/// `dev = (8,0), …`
fn bracketed(rest: &[u8]) -> Option<(u64, &[u8])> {
    let rest = rest.strip_prefix(b"dev = (")?;
    let end = rest.iter().position(|&b| b == b')')?;
    Some((device(&rest[..end])?, &rest[end + 1..]))
}

/// `dev 8:0 ino c pfn=0x1 ofs=4096 order=0`, `dev=8:0 ino=c ofs=0-4095`: inode numbers are hexadecimal, and pages are in bytes.
fn filemap<'a>(out: &mut Parsed<'a>, rest: &'a [u8]) -> bool {
    let Some(rest) = file(out, rest) else { return false };
    for word in words(rest) {
        let Some(ofs) = word.strip_prefix(b"ofs=") else {
            pairs(out, word);
            continue;
        };
        let mut ends = ofs.splitn(2, |&b| b == b'-').map(|end| match value_of(end) {
            Value::Unsigned(bytes) => Some(bytes >> PAGE_SHIFT),
            _ => None,
        });
        let (Some(Some(first)), last) = (ends.next(), ends.next()) else { continue };
        add(out, "index", Value::Unsigned(first));
        if let Some(Some(last)) = last {
            add(out, "last_index", Value::Unsigned(last));
        }
    }
    true
}

/// `dev=8:0 ino=c index=0 req_count=1 …`
fn readahead<'a>(out: &mut Parsed<'a>, rest: &'a [u8]) -> bool {
    let Some(rest) = file(out, rest) else { return false };
    pairs(out, rest);
    true
}

/// Device and inode number at the beginning of the line; returns the text after them.
fn file<'a>(out: &mut Parsed<'a>, rest: &'a [u8]) -> Option<&'a [u8]> {
    let word = |rest: &'a [u8], name: &str| {
        let rest = rest.trim_ascii_start().strip_prefix(name.as_bytes())?;
        let rest = rest.strip_prefix(b"=").or_else(|| rest.strip_prefix(b" "))?;
        let end = rest.iter().position(|&b| b == b' ').unwrap_or(rest.len());
        Some((&rest[..end], &rest[end..]))
    };
    let (dev, rest) = word(rest, "dev")?;
    let (ino, rest) = word(rest, "ino")?;
    let dev = crate::ids::Device::parse(std::str::from_utf8(dev).ok()?)?;
    let ino = std::str::from_utf8(ino).ok().filter(|ino| ino.bytes().all(|b| b.is_ascii_hexdigit()))?;
    add(out, "s_dev", Value::Unsigned(u64::from(dev.0)));
    add(out, "i_ino", Value::Unsigned(u64::from_str_radix(ino, 16).ok()?));
    Some(rest)
}
