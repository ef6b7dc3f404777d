//! A cursor over a header, in a file or unpacked in memory. Every length is checked against the available data, and against a budget.

use crate::bytes::Endian;
use crate::error::Error;
use crate::formats::recorded::Blob;
use crate::input::Input;
use std::path::Path;

/// Longest single text, and the sum of all texts.
const MAX_TEXT: u64 = 4 << 20;
const MAX_TEXTS: u64 = 64 << 20;

#[derive(Clone, Copy)]
enum Under<'a> {
    File(&'a Input),
    /// An unpacked section, and its place in the file.
    Memory(&'a [u8], u64),
}

pub(super) struct Cursor<'a> {
    input: Under<'a>,
    path: &'a Path,
    pub at: u64,
    /// End of the readable range.
    pub size: u64,
    pub endian: Endian,
    budget: u64,
}

impl<'a> Cursor<'a> {
    pub fn of_file(file: &'a Input, path: &'a Path, size: u64) -> Cursor<'a> {
        Cursor { input: Under::File(file), path, at: 0, size, endian: Endian::Little, budget: MAX_TEXTS }
    }

    /// A cursor over an unpacked section from `offset` of the file.
    pub fn of_memory(&self, bytes: &'a [u8], offset: u64) -> Cursor<'a> {
        Cursor { input: Under::Memory(bytes, offset), at: 0, size: bytes.len() as u64, ..*self }
    }

    /// A cursor over a part of the same file.
    pub fn of_part(&self, at: u64, size: u64) -> Cursor<'a> {
        Cursor { at, size: at.saturating_add(size).min(self.size), ..*self }
    }

    pub fn path(&self) -> &'a Path {
        self.path
    }

    pub fn bad(&self, expected: impl Into<String>, found: impl Into<String>) -> Error {
        match self.input {
            Under::File(_) => Error::malformed(self.path, self.at, expected, found),
            Under::Memory(_, offset) => {
                let expected = format!("{} at byte {} of the unpacked section", expected.into(), self.at);
                Error::malformed(self.path, offset, expected, found)
            }
        }
    }

    fn check(&self, length: u64, what: &str) -> Result<(), Error> {
        let left = self.size.saturating_sub(self.at);
        if length > left {
            return Err(self.bad(format!("{what} ({length} bytes)"), format!("the end, {left} bytes on: it was cut")));
        }
        Ok(())
    }

    pub fn bytes(&mut self, length: u64, what: &str) -> Result<Vec<u8>, Error> {
        self.check(length, what)?;
        if length > MAX_TEXT || length > self.budget {
            return Err(self.bad(format!("{what} of a valid size"), format!("{length} bytes")));
        }
        self.budget -= length;
        let out = match self.input {
            Under::File(file) => {
                let mut out = vec![0; length as usize];
                file.read_exact_at(&mut out, self.at).map_err(|e| Error::io(self.path, "read", e))?;
                out
            }
            Under::Memory(bytes, _) => bytes[self.at as usize..(self.at + length) as usize].to_vec(),
        };
        self.at += length;
        Ok(out)
    }

    /// A text that is skipped.
    pub fn blob(&mut self, length: u64, what: &str) -> Result<Option<Blob>, Error> {
        self.check(length, what)?;
        let blob = match self.input {
            Under::File(_) => Blob::File { offset: self.at, size: length },
            Under::Memory(bytes, _) => Blob::Memory(bytes[self.at as usize..(self.at + length) as usize].into()),
        };
        self.at += length;
        Ok(Some(blob).filter(|b| b.size() > 0))
    }

    pub fn skip(&mut self, length: u64, what: &str) -> Result<(), Error> {
        self.check(length, what)?;
        self.at += length;
        Ok(())
    }

    pub fn u16(&mut self, what: &str) -> Result<u16, Error> {
        let b = self.bytes(2, what)?;
        Ok(self.endian.u16(&b, 0).unwrap_or(0))
    }

    pub fn u32(&mut self, what: &str) -> Result<u32, Error> {
        let b = self.bytes(4, what)?;
        Ok(self.endian.u32(&b, 0).unwrap_or(0))
    }

    pub fn u64(&mut self, what: &str) -> Result<u64, Error> {
        let b = self.bytes(8, what)?;
        Ok(self.endian.u64(&b, 0).unwrap_or(0))
    }

    /// Text up to a NUL, at most 256 bytes.
    pub fn string(&mut self, what: &str) -> Result<String, Error> {
        let length = self.size.saturating_sub(self.at).min(256);
        let begin = self.at;
        let bytes = self.bytes(length, what)?;
        let Some(end) = bytes.iter().position(|&b| b == 0) else {
            self.at = begin;
            return Err(self.bad(format!("{what}, ended by a NUL within 256 bytes"), "none"));
        };
        self.budget += length - end as u64;
        self.at = begin + end as u64 + 1;
        Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
    }

    /// A text with its length in front.
    pub fn text8(&mut self, what: &str) -> Result<String, Error> {
        let length = self.u64(&format!("the size of {what}"))?;
        Ok(String::from_utf8_lossy(&self.bytes(length, what)?).into_owned())
    }

    pub fn expect(&mut self, tag: &[u8], what: &str) -> Result<(), Error> {
        let begin = self.at;
        let found = self.bytes(tag.len() as u64, what)?;
        if found != tag {
            self.at = begin;
            return Err(self.bad(what, format!("\"{}\"", found.escape_ascii())));
        }
        Ok(())
    }
}
