//! The bytes of a trace: a file or memory, both read at positions.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

#[derive(Debug)]
pub(crate) enum Input {
    File(File),
    Memory(Arc<[u8]>),
    /// An unpacked file, with the packed size that it came from.
    Unpacked {
        file: File,
        packed: u64,
    },
}

impl Input {
    pub fn open(path: &Path) -> io::Result<Input> {
        flashscope_output::open_input(path).map(Input::File)
    }

    /// Reads from the beginning.
    pub fn reader(&self) -> Positioned<'_> {
        Positioned { input: self, at: 0 }
    }

    /// Reads from this offset.
    pub fn reader_at(&self, at: u64) -> Positioned<'_> {
        Positioned { input: self, at }
    }

    /// Size in bytes; 0 if a device does not report it.
    pub fn size(&self) -> io::Result<u64> {
        match self {
            Input::File(file) | Input::Unpacked { file, .. } => Ok(file.metadata()?.len()),
            Input::Memory(bytes) => Ok(bytes.len() as u64),
        }
    }

    /// Bytes that the user gave. The limits for unpacked data are multiples of this size.
    pub fn given(&self) -> io::Result<u64> {
        match self {
            Input::Unpacked { packed, .. } => Ok(*packed),
            _ => self.size(),
        }
    }

    /// Like `FileExt::read_at`: may read fewer bytes than wanted; 0 bytes mean the end.
    pub fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        match self {
            Input::File(file) | Input::Unpacked { file, .. } => loop {
                match file.read_at(into, at) {
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    other => return other,
                }
            },
            Input::Memory(bytes) => {
                let begin = usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
                let n = into.len().min(bytes.len() - begin);
                into[..n].copy_from_slice(&bytes[begin..begin + n]);
                Ok(n)
            }
        }
    }

    pub fn read_exact_at(&self, into: &mut [u8], at: u64) -> io::Result<()> {
        match self.fill_at(into, at)? {
            n if n == into.len() => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Reads until `into` is full or the input ends. Returns the number of bytes.
    pub fn fill_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < into.len() {
            match self.read_at(&mut into[filled..], at + filled as u64)? {
                0 => break,
                n => filled += n,
            }
        }
        Ok(filled)
    }
}

/// A sequential reader with its own position: two passes over one input do not disturb each other.
pub(crate) struct Positioned<'a> {
    input: &'a Input,
    at: u64,
}

impl io::Read for Positioned<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let n = self.input.read_at(into, self.at)?;
        self.at += n as u64;
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_file_read_the_same() {
        let path = std::env::temp_dir().join(format!("flashscope-input-{}", std::process::id()));
        std::fs::write(&path, b"0123456789").unwrap();
        let both = [Input::open(&path).unwrap(), Input::Memory(b"0123456789".as_slice().into())];
        std::fs::remove_file(&path).unwrap();
        for input in both {
            assert_eq!(input.size().unwrap(), 10);
            let mut b = [0; 4];
            assert_eq!((input.fill_at(&mut b, 8).unwrap(), b), (2, *b"89\0\0"));
            assert_eq!(input.read_at(&mut b, 10).unwrap(), 0);
            assert_eq!(input.read_at(&mut b, 1 << 40).unwrap(), 0);
            assert!(input.read_exact_at(&mut b, 7).is_err());
            input.read_exact_at(&mut b, 6).unwrap();
            assert_eq!(b, *b"6789");
        }
    }
}
