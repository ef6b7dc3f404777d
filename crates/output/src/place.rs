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
    AtFlags, CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat, StatxFlags, fstat, fstatfs, openat, readlinkat,
    statat, statx,
};
use rustix::io::Errno;

use crate::error::OutputError;
use crate::wait::answering;

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

/// File systems in user space that another user than root has mounted: device and user. The kernel lets nobody end a system call that
/// such a file system does not answer, not even with SIGKILL (fs/fuse/dev.c, `request_wait_answer`).
struct FuseOfOthers(Vec<((u32, u32), u32)>);

impl FuseOfOthers {
    fn read() -> FuseOfOthers {
        let text = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
        let me = rustix::process::geteuid().as_raw();
        let mounts = text.split(|&byte| byte == b'\n').filter_map(fuse_mount);
        FuseOfOthers(mounts.filter(|&(_, user)| user != 0 && user != me).collect())
    }

    /// Refuses a name on one of them. The kernel answers this itself (`AT_STATX_DONT_SYNC`).
    fn refuse(
        &self,
        path: &Path,
        dir: &OwnedFd,
        name: impl rustix::path::Arg,
        how: AtFlags,
    ) -> Result<(), OutputError> {
        if self.0.is_empty() {
            return Ok(());
        }
        let flags = how | AtFlags::STATX_DONT_SYNC | AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let Ok(stat) = statx(dir, name, flags, StatxFlags::TYPE) else { return Ok(()) };
        let device = (stat.stx_dev_major, stat.stx_dev_minor);
        match self.0.iter().find(|mount| mount.0 == device) {
            Some(&(_, user)) => Err(OutputError::ForeignMount { path: path.to_owned(), user }),
            None => Ok(()),
        }
    }
}

/// "36 35 0:45 / /mnt rw,nosuid - fuse.sshfs source rw,user_id=1000,group_id=1000" (proc(5)): device and user.
fn fuse_mount(line: &[u8]) -> Option<((u32, u32), u32)> {
    let line = String::from_utf8_lossy(line);
    let (mount, super_block) = line.split_once(" - ")?;
    let mut words = super_block.split(' ');
    let kind = words.next()?;
    if !kind.starts_with("fuse") || kind == "fusectl" {
        return None;
    }
    let user = words.next_back()?.split(',').find_map(|option| option.strip_prefix("user_id="))?.parse().ok()?;
    let (major, minor) = mount.split(' ').nth(2)?.split_once(':')?;
    Some(((major.parse().ok()?, minor.parse().ok()?), user))
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
    answering(path, || walk(path))
}

fn walk(path: &Path) -> Result<Place, OutputError> {
    let failed = |action: &'static str, errno: Errno| OutputError::io(path, action, errno.into());
    let begin = |absolute: bool| open_dir(CWD, if absolute { "/" } else { "." });
    let mut dir = begin(path.is_absolute()).map_err(|e| failed("create", e))?;
    let mut left: VecDeque<OsString> = names(path).collect();
    let mut links = 0;
    let fuse = FuseOfOthers::read();
    fuse.refuse(path, &dir, "", AtFlags::EMPTY_PATH)?;
    loop {
        let Some(name) = left.pop_front() else { return Err(OutputError::NoName { path: path.to_owned() }) };
        fuse.refuse(path, &dir, &name, AtFlags::empty())?;
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

#[cfg(test)]
mod tests {
    use super::fuse_mount;

    #[test]
    fn the_user_of_a_file_system_in_user_space_is_known() {
        let of = |line: &str| fuse_mount(line.as_bytes());
        let line = "36 35 0:45 / /mnt/a\\040-\\040b rw,nosuid shared:1 - fuse.sshfs a:/b rw,user_id=1000,group_id=7,allow_other";
        assert_eq!(of(line), Some(((0, 45), 1000)));
        assert_eq!(of("36 35 0:45 / /m rw - fuse src rw,user_id=0,group_id=0"), Some(((0, 45), 0)));
        assert_eq!(of("36 35 0:45 / /m rw - fusectl none rw,user_id=3"), None);
        assert_eq!(of("36 35 8:1 / / rw - ext4 /dev/sda1 rw"), None);
        assert_eq!(of(""), None);
    }
}
