//! Writes newc cpio archives (Linux Documentation/driver-api/early-userspace/buffer-format.rst) that depend only on their contents: entries
//! sorted by path, numbered inodes, owner root, time 0.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::PathBuf;

pub(super) const DIRECTORY: u32 = 0o040_000;
pub(super) const REGULAR: u32 = 0o100_000;
pub(super) const LINK: u32 = 0o120_000;
pub(super) const CHARACTER: u32 = 0o020_000;

/// The contents of an entry.
#[derive(Clone, Debug)]
pub(super) enum Contents {
    Directory,
    Bytes(Vec<u8>),
    /// A file of this host, with its size.
    File(PathBuf, u64),
    /// The target of a symbolic link.
    Link(String),
    /// The numbers of a character device.
    Device(u32, u32),
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Permission bits.
    pub mode: u32,
    pub contents: Contents,
}

/// Writes an archive. Paths have no leading slash; the map's order puts parents before children.
pub(super) fn write(entries: &BTreeMap<String, Entry>, out: &mut dyn Write) -> io::Result<()> {
    let mut position = 0;
    for (inode, (path, entry)) in entries.iter().enumerate() {
        let (kind, size, device) = match &entry.contents {
            Contents::Directory => (DIRECTORY, 0, (0, 0)),
            Contents::Bytes(bytes) => (REGULAR, bytes.len() as u64, (0, 0)),
            Contents::File(_, size) => (REGULAR, *size, (0, 0)),
            Contents::Link(target) => (LINK, target.len() as u64, (0, 0)),
            Contents::Device(major, minor) => (CHARACTER, 0, (*major, *minor)),
        };
        let links = if kind == DIRECTORY { 2 } else { 1 };
        header(out, &mut position, inode as u32 + 1, kind | entry.mode, links, size, device, path)?;
        match &entry.contents {
            Contents::Directory | Contents::Device(..) => {}
            Contents::Bytes(bytes) => put(out, &mut position, bytes)?,
            Contents::Link(target) => put(out, &mut position, target.as_bytes())?,
            Contents::File(source, size) => {
                let copied = io::copy(&mut std::fs::File::open(source)?.take(*size), out)?;
                if copied != *size {
                    return Err(io::Error::other(format!("{} changed while it was read", source.display())));
                }
                position += copied;
            }
        }
        pad(out, &mut position, 4)?;
    }
    header(out, &mut position, 0, 0, 1, 0, (0, 0), "TRAILER!!!")?;
    pad(out, &mut position, 512)
}

#[allow(clippy::too_many_arguments)]
fn header(
    out: &mut dyn Write,
    position: &mut u64,
    inode: u32,
    mode: u32,
    links: u32,
    size: u64,
    (major, minor): (u32, u32),
    path: &str,
) -> io::Result<()> {
    let size = u32::try_from(size).map_err(|_| io::Error::other(format!("{path}: 4 GiB or more")))?;
    let name_size = path.len() + 1;
    // magic, inode, mode, uid, gid, links, mtime, size, device of the file (2), device number (2), length of the name, checksum
    let header = format!(
        "070701{inode:08x}{mode:08x}{0:08x}{0:08x}{links:08x}{0:08x}{size:08x}{0:08x}{0:08x}{major:08x}{minor:08x}\
         {name_size:08x}{0:08x}{path}\0",
        0
    );
    put(out, position, header.as_bytes())?;
    pad(out, position, 4)
}

fn put(out: &mut dyn Write, position: &mut u64, bytes: &[u8]) -> io::Result<()> {
    *position += bytes.len() as u64;
    out.write_all(bytes)
}

fn pad(out: &mut dyn Write, position: &mut u64, to: u64) -> io::Result<()> {
    let missing = position.next_multiple_of(to) - *position;
    put(out, position, &[0; 512][..missing as usize])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    fn sample() -> BTreeMap<String, Entry> {
        let entry = |mode, contents| Entry { mode, contents };
        BTreeMap::from([
            ("dev".to_owned(), entry(0o755, Contents::Directory)),
            ("dev/console".to_owned(), entry(0o600, Contents::Device(5, 1))),
            ("etc".to_owned(), entry(0o755, Contents::Directory)),
            ("etc/a".to_owned(), entry(0o644, Contents::Bytes(b"hello".to_vec()))),
            ("init".to_owned(), entry(0o777, Contents::Link("/flashscope/agent".to_owned()))),
        ])
    }

    fn bytes(entries: &BTreeMap<String, Entry>) -> Vec<u8> {
        let mut out = Vec::new();
        write(entries, &mut out).unwrap();
        out
    }

    #[test]
    fn cpio_lists_what_was_written() {
        let archive = bytes(&sample());
        assert_eq!(archive, bytes(&sample()), "the same bytes twice");
        assert_eq!(archive.len() % 512, 0);
        let child = Command::new("cpio")
            .args(["-tv", "--numeric-uid-gid", "--quiet"])
            .env("TZ", "UTC")
            .env("LC_ALL", "C")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = match child {
            Ok(child) => child,
            Err(error) => {
                eprintln!("skipped: cpio: {error}; install the Debian package cpio");
                return;
            }
        };
        child.stdin.take().unwrap().write_all(&archive).unwrap();
        let listed = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
        let squeezed: Vec<String> =
            listed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(
            squeezed,
            [
                "drwxr-xr-x 2 0 0 0 Jan 1 1970 dev",
                "crw------- 1 0 0 5, 1 Jan 1 1970 dev/console",
                "drwxr-xr-x 2 0 0 0 Jan 1 1970 etc",
                "-rw-r--r-- 1 0 0 5 Jan 1 1970 etc/a",
                "lrwxrwxrwx 1 0 0 17 Jan 1 1970 init -> /flashscope/agent",
            ]
        );
    }

    #[test]
    fn the_first_header_is_what_the_format_says() {
        let archive = bytes(&BTreeMap::from([(
            "a".to_owned(),
            Entry { mode: 0o644, contents: Contents::Bytes(b"xyz".to_vec()) },
        )]));
        let expected = concat!(
            "070701", "00000001", "000081a4", "00000000", "00000000", "00000001", "00000000", "00000003", "00000000",
            "00000000", "00000000", "00000000", "00000002", "00000000", "a\0"
        );
        assert_eq!(&archive[..expected.len()], expected.as_bytes());
        assert_eq!(&archive[112..116], b"xyz\0");
        assert_eq!(&archive[116..122], b"070701");
    }
}
