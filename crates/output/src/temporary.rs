//! Files without a name, for data that does not fit into memory. They vanish with the process.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, openat, unlinkat};
use rustix::io::Errno;

/// 128 random bits as 32 hexadecimal digits, for names that nobody can guess.
///
/// # Errors
/// Where the kernel gives no random numbers.
pub fn random() -> io::Result<String> {
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(crate::hex(&bytes))
}

/// A file in `dir` that only this process can open, for reading and writing.
///
/// # Errors
/// Where no file can be created there.
pub fn temporary(dir: &Path) -> io::Result<File> {
    let mode = Mode::RUSR | Mode::WUSR;
    match openat(rustix::fs::CWD, dir, OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, mode) {
        Ok(file) => return Ok(file.into()),
        // Not every file system has files without a name.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {}
        Err(errno) => return Err(errno.into()),
    }
    let name = format!(".flashscope-{}", random()?);
    let opened = openat(rustix::fs::CWD, dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(&opened, &name, flags, mode)?;
    unlinkat(&opened, &name, AtFlags::empty())?;
    Ok(file.into())
}
