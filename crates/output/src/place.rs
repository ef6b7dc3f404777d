//! Resolves a path without following a link that another user can have created.
//!
//! Directories are opened one by one, each relative to the one before. So nobody can replace one by a link between its check
//! and its use.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat, fstat, fstatfs, openat, readlinkat, statat,
};
use rustix::io::Errno;

use crate::error::OutputError;

/// The kernel follows as many links (`MAXSYMLINKS`, include/linux/namei.h).
const LINKS: usize = 40;

/// What the last name of the path stands for.
pub(crate) enum Found {
    Nothing,
    /// Also a link of /proc, which only the kernel can follow.
    There(Stat),
    Magic,
}

/// An open directory, and a name in it that is no link.
pub(crate) struct Place {
    pub dir: OwnedFd,
    pub name: OsString,
    pub found: Found,
    /// Another user can create files in the directory.
    pub shared: bool,
}

pub(crate) fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Whether a user other than root and ours can create names in a directory.
fn others_may_write(dir: &Stat) -> bool {
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let foreign = dir.st_uid != 0 && dir.st_uid != user;
    let by_group = dir.st_mode & 0o020 != 0 && dir.st_gid != 0 && dir.st_gid != group;
    foreign || by_group || dir.st_mode & 0o002 != 0
}

fn open_dir(at: impl std::os::fd::AsFd, name: impl rustix::path::Arg) -> rustix::io::Result<OwnedFd> {
    openat(at, name, OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// The components of a path that are still to be resolved.
fn names(path: &Path) -> impl DoubleEndedIterator<Item = OsString> {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

/// Resolves a path.
///
/// # Errors
/// A directory that does not exist, a link in a directory that others can write to, and a path that names no file.
pub(crate) fn find(path: &Path) -> Result<Place, OutputError> {
    let failed = |action: &'static str, errno: Errno| OutputError::io(path, action, errno.into());
    let begin = |absolute: bool| open_dir(CWD, if absolute { "/" } else { "." });
    let mut dir = begin(path.is_absolute()).map_err(|e| failed("create", e))?;
    let mut left: VecDeque<OsString> = names(path).collect();
    let mut links = 0;
    loop {
        let Some(name) = left.pop_front() else { return Err(OutputError::NoName { path: path.to_owned() }) };
        let stat = match statat(&dir, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) if left.is_empty() => None,
            Err(errno) => return Err(failed("create", errno)),
            Ok(stat) => Some(stat),
        };
        let here = fstat(&dir).map_err(|e| failed("create", e))?;
        match stat {
            Some(stat) if kind(&stat) == FileType::Symlink => {
                let of_proc = fstatfs(&dir).is_ok_and(|fs| fs.f_type == PROC_SUPER_MAGIC);
                if of_proc && left.is_empty() {
                    return Ok(Place { dir, name, found: Found::Magic, shared: false });
                }
                if others_may_write(&here) {
                    return Err(OutputError::ForeignLink { path: path.to_owned(), name });
                }
                links += 1;
                if links > LINKS {
                    return Err(failed("follow the links of", Errno::LOOP));
                }
                let target = readlinkat(&dir, &name, Vec::new()).map_err(|e| failed("follow a link of", e))?;
                let target = std::path::PathBuf::from(OsString::from_vec(target.into_bytes()));
                if target.is_absolute() {
                    dir = begin(true).map_err(|e| failed("create", e))?;
                }
                names(&target).rev().for_each(|name| left.push_front(name));
            }
            found if left.is_empty() => {
                let found = found.map_or(Found::Nothing, Found::There);
                return Ok(Place { dir, name, found, shared: others_may_write(&here) });
            }
            _ => dir = open_dir(&dir, &name).map_err(|e| failed("create", e))?,
        }
    }
}
