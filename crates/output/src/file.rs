//! Writes files that are either complete or absent.
//!
//! Data goes to a file without a name in the same directory, so that a command that is killed leaves nothing; it gets its name
//! when it is complete. Where a file system has no such files, it has an unpredictable temporary name until then. A device, a
//! FIFO or a pipe is written directly, because a rename would replace it. An input is never used as output.
//! Limit: where others can write to the directory, they can also replace the finished file.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{
    Access, AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, RenameFlags, Stat, accessat, fcntl_getfl,
    fcntl_setfl, flock, fstat, linkat, mkdirat, openat, renameat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

use crate::error::OutputError;
use crate::place::{self, Found, Place, kind};
use crate::temporary::{random, temporary};
use crate::wait::{LOOK, SAID_AFTER, answering, is_asked_to_stop};

/// Names of a directory that are looked at for leftovers. A file system may list names without end.
const MOST_LISTED: usize = 1 << 16;

/// Identifies a file of this machine, whatever its name. (Files of traces: `flashscope_trace::FileId`.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostFile {
    device: u64,
    inode: u64,
}

impl HostFile {
    /// The file at a path, links followed. `None`: there is none.
    pub fn of(path: &Path) -> Option<HostFile> {
        std::fs::metadata(path).ok().map(|meta| HostFile { device: meta.dev(), inode: meta.ino() })
    }

    fn of_stat(stat: &Stat) -> HostFile {
        HostFile { device: stat.st_dev, inode: stat.st_ino }
    }
}

/// What happens to a file that already has the name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// It is replaced.
    #[default]
    Replace,
    /// It is kept as `NAME.old`, in place of an earlier one.
    KeepAsOld,
    /// It keeps its name; the new file is called `NAME.SUFFIX`, or `NAME.SUFFIX.2` and so on.
    Stays(&'static str),
}

/// Options for writing a file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules<'a> {
    /// Files that the command reads: none of them is overwritten.
    pub inputs: &'a [HostFile],
    /// Only the owner may read it.
    pub private: bool,
    /// Only the owner may read and run it.
    pub program: bool,
    /// It is written at positions. A pipe cannot do that: it gets the data when all of it is written.
    pub positions: bool,
    pub existing: Existing,
}

/// Where the data is until the file is complete.
enum Way {
    /// In a temporary file in the same directory. `None`: it has no name yet.
    Beside { place: Box<Place>, temporary: Option<String> },
    /// In the file itself: a device, a FIFO or a pipe, which a rename would replace.
    Through,
    /// In a file without a name, because it is written in any order.
    Spooled(File),
}

/// A file that is being written. If it is dropped before [`Output::publish`], nothing is left behind.
pub struct Output<'a> {
    path: PathBuf,
    file: File,
    way: Way,
    rules: Rules<'a>,
}

impl<'a> Output<'a> {
    /// Opens `path` for writing according to `rules`.
    ///
    /// # Errors
    /// See [`OutputError`]; nothing has been created or changed then.
    pub fn create(path: &Path, rules: Rules<'a>) -> Result<Output<'a>, OutputError> {
        let place = place::find(path)?;
        let Some(mode) = mode_beside(path, &place, &rules)? else { return Output::through(path, place, rules) };
        let created = answering(path, || {
            leftovers(&place.dir, &place.name);
            match nameless(&place.dir, mode) {
                Ok(file) => Ok((file, None)),
                Err(_) => beside(&place.dir, &place.name, mode).map(|(file, name)| (file, Some(name))),
            }
        });
        let (file, temporary) = created.map_err(|e| OutputError::io(path, "create", e.into()))?;
        Ok(Output { path: path.to_owned(), file, way: Way::Beside { place: Box::new(place), temporary }, rules })
    }

    /// Whether [`Output::create`] and [`Output::publish`] would accept `path`; called before the work. It leaves nothing behind, and
    /// opens no device or FIFO.
    ///
    /// # Errors
    /// As [`Output::create`]; and where the existing file cannot be replaced or kept.
    pub fn check(path: &Path, rules: Rules<'a>) -> Result<(), OutputError> {
        if !Output::is_through(path) {
            let place = place::find(path)?;
            let Some(mode) = mode_beside(path, &place, &rules)? else { return Ok(()) };
            answering(path, || {
                leftovers(&place.dir, &place.name);
                can_create(&place.dir, &place.name, mode)
            })
            .map_err(|e| OutputError::io(path, "create", e.into()))?;
            return can_appear(path, &place, rules.existing);
        }
        let place = place::find(path)?;
        if let Found::There(stat) = &place.found {
            foreign_node(path, &place, stat)?;
        }
        accessat(&place.dir, &place.name, Access::WRITE_OK, AtFlags::EACCESS)
            .map_err(|errno| OutputError::io(path, "open", errno.into()))
    }

    fn through(path: &Path, place: Place, rules: Rules<'a>) -> Result<Output<'a>, OutputError> {
        let failed = |errno: Errno| OutputError::io(path, "open", errno.into());
        let mut flags = OFlags::WRONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
        if let Found::There(stat) = &place.found {
            flags |= OFlags::NOFOLLOW;
            foreign_node(path, &place, stat)?;
            if kind(stat) == FileType::BlockDevice {
                // With O_EXCL the kernel refuses a device that is mounted or in use (block/bdev.c, bd_prepare_to_claim).
                flags |= OFlags::EXCL;
            }
        } else {
            // The shell opened it with `> FILE` or `>> FILE`: its content stays.
            flags |= OFlags::APPEND;
        }
        let file = open_through(path, &place, flags)?;
        let now = fstat(&file).map_err(failed)?;
        if rules.inputs.contains(&HostFile::of_stat(&now)) && kind(&now) == FileType::RegularFile {
            return Err(OutputError::Input { path: path.to_owned() });
        }
        if let Found::There(stat) = &place.found
            && (HostFile::of_stat(stat) != HostFile::of_stat(&now) || kind(stat) != kind(&now))
        {
            return Err(OutputError::Replaced { path: path.to_owned() });
        }
        if !rules.positions {
            return Ok(Output { path: path.to_owned(), file, way: Way::Through, rules });
        }
        let spool = temporary(&std::env::temp_dir()).map_err(|e| OutputError::io(path, "keep a copy of", e))?;
        Ok(Output { path: path.to_owned(), file: spool, way: Way::Spooled(file), rules })
    }

    /// The open file, for writing at positions.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The path as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file is a device, a FIFO or a pipe, which a rename would replace.
    pub fn is_through(path: &Path) -> bool {
        match place::find(path).map(|place| place.found) {
            Ok(Found::Magic) => true,
            Ok(Found::There(stat)) => !matches!(kind(&stat), FileType::RegularFile | FileType::Directory),
            Ok(Found::Nothing) | Err(_) => false,
        }
    }

    /// Gives the complete file its name, and returns the path it has.
    ///
    /// # Errors
    /// Where its last bytes do not fit, or the name now stands for something else; the earlier file is unchanged.
    pub fn publish(mut self) -> Result<PathBuf, OutputError> {
        let path = std::mem::take(&mut self.path);
        let failed = |action: &'static str, error: io::Error| OutputError::io(&path, action, error);
        match &mut self.way {
            Way::Through => self.file.flush().map_err(|e| failed("write", e))?,
            Way::Spooled(to) => {
                self.file.rewind().map_err(|e| failed("write", e))?;
                io::copy(&mut self.file, to).map_err(|e| failed("write", e))?;
            }
            Way::Beside { place, temporary } => {
                self.file.sync_all().map_err(|e| failed("write", e))?;
                if temporary.is_none() && first_name(place, &self.file) {
                    return Ok(path);
                }
                let temporary = match temporary {
                    Some(name) => name,
                    none => {
                        none.insert(named(&place.dir, &place.name, &self.file).map_err(|e| failed("name", e.into()))?)
                    }
                };
                let name = appear(&path, place, temporary, &self.file, &self.rules)?;
                return Ok(path_of(&path, place, &name));
            }
        }
        Ok(path)
    }

    /// Writes a whole file in one step.
    ///
    /// # Errors
    /// As [`Output::create`] and [`Output::publish`].
    pub fn write_whole(path: &Path, bytes: &[u8], rules: Rules<'a>) -> Result<PathBuf, OutputError> {
        let mut output = Output::create(path, rules)?;
        output.file.write_all(bytes).map_err(|e| OutputError::io(path, "write", e))?;
        output.publish()
    }
}

impl Write for Output<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Output<'_> {
    fn drop(&mut self) {
        if let Way::Beside { place, temporary: Some(temporary) } = &self.way
            && is_file(&place.dir, OsStr::new(temporary), &self.file)
        {
            // Nothing can be done if the file cannot be removed. A published file has another name.
            let _ = unlinkat(&place.dir, temporary.as_str(), AtFlags::empty());
        }
    }
}

/// The permissions of a temporary file beside `path`. `None`: the data goes into the file itself.
fn mode_beside(path: &Path, place: &Place, rules: &Rules<'_>) -> Result<Option<u32>, OutputError> {
    let old = match &place.found {
        Found::Nothing => None,
        Found::Magic => return Ok(None),
        Found::There(stat) if rules.inputs.contains(&HostFile::of_stat(stat)) => {
            return Err(OutputError::Input { path: path.to_owned() });
        }
        Found::There(stat) => match kind(stat) {
            FileType::RegularFile => Some(stat.st_mode & 0o666),
            FileType::Directory => return Err(OutputError::NoFile { path: path.to_owned(), kind: "directory" }),
            FileType::Socket => return Err(OutputError::NoFile { path: path.to_owned(), kind: "socket" }),
            _ => return Ok(None),
        },
    };
    // Rewriting a file must not make it readable to others.
    Ok(Some(match rules {
        Rules { program: true, .. } => 0o700,
        Rules { private: true, .. } => 0o600,
        _ => old.unwrap_or(0o666) | 0o600,
    }))
}

/// Refuses a device or FIFO that another user can have put there.
fn foreign_node(path: &Path, place: &Place, stat: &Stat) -> Result<(), OutputError> {
    let (me, owner) = (rustix::process::geteuid().as_raw(), stat.st_uid);
    let what = match kind(stat) {
        FileType::Fifo => "FIFO",
        FileType::Socket => return Err(OutputError::NoFile { path: path.to_owned(), kind: "socket" }),
        _ => "device",
    };
    if place.shared && owner != me && (owner != 0 || what == "FIFO") {
        return Err(OutputError::ForeignNode { path: path.to_owned(), kind: what });
    }
    Ok(())
}

/// Prints a message while it waits for the reader of a FIFO. A signal ends the wait; a signal that ended the recording before
/// does not.
fn open_through(path: &Path, place: &Place, flags: OFlags) -> Result<File, OutputError> {
    let failed = |errno: Errno| OutputError::io(path, "open", errno.into());
    let stat = statat(&place.dir, &place.name, AtFlags::empty()).map_err(failed)?;
    if kind(&stat) != FileType::Fifo {
        return Ok(openat(&place.dir, &place.name, flags, Mode::empty()).map_err(failed)?.into());
    }
    let began = Instant::now();
    let (mut said, asked_before) = (false, is_asked_to_stop());
    loop {
        if !asked_before && is_asked_to_stop() {
            return Err(OutputError::NobodyReads { path: path.to_owned() });
        }
        // fs/pipe.c, fifo_open: ENXIO where there is no reader.
        match openat(&place.dir, &place.name, flags | OFlags::NONBLOCK, Mode::empty()) {
            Ok(fifo) => {
                let flags = fcntl_getfl(&fifo).map_err(failed)? - OFlags::NONBLOCK;
                fcntl_setfl(&fifo, flags).map_err(failed)?;
                return Ok(fifo.into());
            }
            // A pipe without a name cannot get a new reader.
            Err(Errno::NXIO) if matches!(place.found, Found::Magic) => return Err(failed(Errno::PIPE)),
            Err(Errno::NXIO) => {}
            Err(errno) => return Err(failed(errno)),
        }
        if !said && began.elapsed() >= SAID_AFTER {
            crate::note(&format!("{}: this is a FIFO, and nobody reads it: waiting for a reader", path.display()));
            said = true;
        }
        std::thread::sleep(LOOK);
    }
}

/// Whether a name leads to this open file.
fn is_file(dir: &OwnedFd, name: &OsStr, file: &File) -> bool {
    match (statat(dir, name, AtFlags::SYMLINK_NOFOLLOW), fstat(file)) {
        (Ok(named), Ok(open)) => HostFile::of_stat(&named) == HostFile::of_stat(&open),
        _ => false,
    }
}

/// The beginning of a temporary file's name: `.NAME.flashscope-RANDOM`. Long names are cut: a name has at most 255 bytes.
fn unfinished(name: &OsStr) -> OsString {
    use std::os::unix::ffi::OsStrExt as _;
    let bytes = name.as_bytes();
    let mut begin = OsString::from(".");
    begin.push(OsStr::from_bytes(&bytes[..bytes.len().min(200)]));
    begin.push(".flashscope-");
    begin
}

/// Creates a file without a name that [`named`] can give one. It is locked before it has a name, as those of [`beside`].
fn nameless(dir: &OwnedFd, mode: u32) -> rustix::io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file: File = openat(dir, ".", flags, Mode::from_raw_mode(mode))?.into();
    let _ = flock(&file, FlockOperation::LockExclusive);
    let (by_name, open) = (statat(CWD, of_proc(&file), AtFlags::empty())?, fstat(&file)?);
    // Without /proc, or where inode numbers change, it would not get a name.
    if HostFile::of_stat(&by_name) == HostFile::of_stat(&open) { Ok(file) } else { Err(Errno::STALE) }
}

fn of_proc(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Gives a file of [`nameless`] its own name at once, where nothing has it.
fn first_name(place: &Place, file: &File) -> bool {
    linkat(CWD, of_proc(file), &place.dir, &place.name, AtFlags::SYMLINK_FOLLOW).is_ok()
        && is_file(&place.dir, &place.name, file)
}

/// Gives a file of [`nameless`] a temporary name in its directory.
fn named(dir: &OwnedFd, name: &OsStr, file: &File) -> rustix::io::Result<String> {
    let begin = unfinished(name);
    let begin = begin.to_str().unwrap_or(".output.flashscope-");
    let temporary = format!("{begin}{}", random().map_err(|_| Errno::IO)?);
    linkat(CWD, of_proc(file), dir, temporary.as_str(), AtFlags::SYMLINK_FOLLOW)?;
    Ok(temporary)
}

/// Creates a temporary file, and locks it while it is open, so that a later command knows that it is in use.
fn beside(dir: &OwnedFd, name: &OsStr, mode: u32) -> rustix::io::Result<(File, String)> {
    let begin = unfinished(name);
    let Some(begin) = begin.to_str() else { return beside(dir, OsStr::new("output"), mode) };
    for _ in 0..100 {
        let temporary = format!("{begin}{}", random().map_err(|_| Errno::IO)?);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file: File = match openat(dir, temporary.as_str(), flags, Mode::from_raw_mode(mode)) {
            Ok(file) => file.into(),
            Err(Errno::EXIST) => continue,
            Err(errno) => return Err(errno),
        };
        // On a file system without locks, a leftover file counts as one in use.
        let _ = flock(&file, FlockOperation::LockExclusive);
        match statat(dir, temporary.as_str(), AtFlags::SYMLINK_NOFOLLOW) {
            // Another process has removed it as a leftover before it was locked.
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
            Ok(_) if is_file(dir, OsStr::new(&temporary), &file) => return Ok((file, temporary)),
            // Inode numbers that change tell nobody which file is ours.
            Ok(_) => {
                let _ = unlinkat(dir, temporary.as_str(), AtFlags::empty());
                return Err(Errno::STALE);
            }
        }
    }
    Err(Errno::EXIST)
}

/// Whether a file can be created: of one without a name, a command that is killed leaves nothing.
fn can_create(dir: &OwnedFd, name: &OsStr, mode: u32) -> rustix::io::Result<()> {
    if nameless(dir, mode).is_ok() {
        return Ok(());
    }
    let (file, temporary) = beside(dir, name, mode)?;
    if is_file(dir, OsStr::new(&temporary), &file) {
        unlinkat(dir, temporary.as_str(), AtFlags::empty())
    } else {
        Ok(())
    }
}

/// Gives the finished file its name, and returns that name.
fn appear(
    path: &Path,
    place: &Place,
    temporary: &str,
    file: &File,
    rules: &Rules<'_>,
) -> Result<OsString, OutputError> {
    let Place { dir, name, .. } = place;
    let failed = |errno: Errno| OutputError::io(path, "rename the finished file to", errno.into());
    let replaced = || OutputError::Replaced { path: path.to_owned() };
    if !is_file(dir, OsStr::new(temporary), file) {
        return Err(replaced());
    }
    let there = match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => false,
        Err(errno) => return Err(failed(errno)),
        Ok(stat) if rules.inputs.contains(&HostFile::of_stat(&stat)) => {
            return Err(OutputError::Input { path: path.to_owned() });
        }
        Ok(stat) if kind(&stat) == FileType::RegularFile => true,
        Ok(_) => return Err(replaced()),
    };
    let called = match rules.existing {
        Existing::Stays(suffix) if there => {
            let mut base = name.clone();
            base.push(format!(".{suffix}"));
            aside(dir, OsStr::new(temporary), &base).map_err(failed)?
        }
        existing => {
            if there && existing == Existing::KeepAsOld {
                keep_as_old(dir, name)
                    .map_err(|e| OutputError::io(path, "keep the earlier file as .old of", e.into()))?;
            }
            renameat(dir, temporary, dir, name).map_err(failed)?;
            name.clone()
        }
    };
    if is_file(dir, &called, file) { Ok(called) } else { Err(replaced()) }
}

/// Whether a finished file could get its name: an existing file of that name, or of the kept one's, can be replaced.
fn can_appear(path: &Path, place: &Place, existing: Existing) -> Result<(), OutputError> {
    let Found::There(stat) = &place.found else { return Ok(()) };
    if matches!(existing, Existing::Stays(_)) {
        return Ok(());
    }
    can_go(path, place, stat)?;
    if existing == Existing::KeepAsOld {
        let old = old_name(&place.name);
        let old_path = path_of(path, place, &old);
        match statat(&place.dir, &old, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(OutputError::io(&old_path, "keep the earlier file as", errno.into())),
            Ok(stat) if kind(&stat) == FileType::RegularFile => can_go(&old_path, place, &stat)?,
            Ok(_) => return Err(OutputError::NoRoomForOld { path: old_path }),
        }
    }
    Ok(())
}

/// In a directory with the sticky bit only the owner of a file or of the directory may remove it (fs/namei.c, `__check_sticky`).
fn can_go(path: &Path, place: &Place, stat: &Stat) -> Result<(), OutputError> {
    let me = rustix::process::geteuid().as_raw();
    let dir = fstat(&place.dir).map_err(|e| OutputError::io(path, "replace", e.into()))?;
    match dir.st_mode & 0o1000 != 0 && me != 0 && dir.st_uid != me && stat.st_uid != me {
        true => Err(OutputError::NotOurs { path: path.to_owned() }),
        false => Ok(()),
    }
}

fn old_name(name: &OsStr) -> OsString {
    let mut old = name.to_owned();
    old.push(".old");
    old
}

/// The old file gets its second name before it loses the first: it always has one.
fn keep_as_old(dir: &OwnedFd, name: &OsStr) -> rustix::io::Result<()> {
    let old = old_name(name);
    match statat(dir, &old, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno),
        Ok(stat) if kind(&stat) == FileType::RegularFile => unlinkat(dir, &old, AtFlags::empty())?,
        Ok(_) => return Err(Errno::EXIST),
    }
    match linkat(dir, name, dir, &old, AtFlags::empty()) {
        // The file system has no hard links.
        Err(Errno::PERM | Errno::OPNOTSUPP | Errno::MLINK) => renameat(dir, name, dir, &old),
        done => done,
    }
}

/// Renames to `base`, or to `base.2` and so on where that name is taken; it never replaces a file.
fn aside(dir: &OwnedFd, from: &OsStr, base: &OsStr) -> rustix::io::Result<OsString> {
    for n in 1..10_000 {
        let mut name = base.to_owned();
        if n > 1 {
            name.push(format!(".{n}"));
        }
        let renamed = match renameat_with(dir, from, dir, &name, RenameFlags::NOREPLACE) {
            Err(Errno::INVAL | Errno::NOSYS) => {
                linkat(dir, from, dir, &name, AtFlags::empty()).and_then(|()| unlinkat(dir, from, AtFlags::empty()))
            }
            done => done,
        };
        match renamed {
            Err(Errno::EXIST) => {}
            done => return done.map(|()| name),
        }
    }
    Err(Errno::EXIST)
}

/// Renames a file to `PATH.SUFFIX` in the same directory, or to `PATH.SUFFIX.2` and so on; returns the new name.
///
/// # Errors
/// Where `from` does not exist or the directory is not writable.
pub fn set_aside(from: &Path, path: &Path, suffix: &str) -> Result<PathBuf, OutputError> {
    let place = place::find(from)?;
    let mut base = path.file_name().unwrap_or_default().to_owned();
    base.push(format!(".{suffix}"));
    let name = aside(&place.dir, &place.name, &base).map_err(|e| OutputError::io(from, "rename", e.into()))?;
    Ok(from.with_file_name(name))
}

/// Removes temporary files that killed processes left beside `path`. Only our own: regular files of our user with one link, a
/// name of our form, and no process that holds the lock.
pub fn remove_leftovers(path: &Path) {
    if let Ok(place) = place::find(path) {
        leftovers(&place.dir, &place.name);
    }
}

fn leftovers(dir: &OwnedFd, name: &OsStr) {
    use std::os::unix::ffi::OsStrExt as _;
    let begin = unfinished(name);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(listed) = openat(dir, ".", flags, Mode::empty()) else { return };
    let Ok(entries) = rustix::fs::Dir::new(listed) else { return };
    for entry in entries.flatten().take(MOST_LISTED) {
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        let random = name.as_bytes().strip_prefix(begin.as_bytes());
        if random.is_some_and(|random| random.len() == 32 && random.iter().all(u8::is_ascii_hexdigit)) {
            remove_leftover(dir, name);
        }
    }
}

fn remove_leftover(dir: impl AsFd, name: &OsStr) {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = openat(&dir, name, flags, Mode::empty()) else { return };
    if fstat(&file).is_ok_and(|stat| is_ours(&stat)) && flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
        let _ = unlinkat(&dir, name, AtFlags::empty());
    }
}

/// Gives a finished file in the directory of `to` that name, by the same rules as a file that was written there; returns the
/// path it has.
///
/// # Errors
/// As [`Output::publish`]; the file keeps its name then.
pub fn adopt(from: &Path, to: &Path, rules: Rules<'_>) -> Result<PathBuf, OutputError> {
    let mut rules = rules;
    rules.positions = false;
    let (own, place) = (place::find(from)?, place::find(to)?);
    let failed = |errno: Errno| OutputError::io(to, "rename the finished file to", errno.into());
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file: File = openat(&own.dir, &own.name, flags, Mode::empty()).map_err(failed)?.into();
    let named = own.name.to_string_lossy().into_owned();
    let name = appear(to, &place, &named, &file, &rules)?;
    Ok(path_of(to, &place, &name))
}

/// The path of a file that was requested as `path` and got `name`: a link may have led into another directory.
fn path_of(path: &Path, place: &Place, name: &OsStr) -> PathBuf {
    if name == place.name {
        return path.to_owned();
    }
    let dir = std::fs::read_link(format!("/proc/self/fd/{}", place.dir.as_raw_fd()));
    dir.map_or_else(|_| path.with_file_name(name), |dir| dir.join(name))
}

/// Creates a file that does not exist yet; follows no link. `private`: only its owner may read it.
///
/// # Errors
/// Where the name exists, or a directory of the path is a link that is not followed.
pub fn create_new(path: &Path, private: bool) -> Result<File, OutputError> {
    let place = place::find(path)?;
    let mode = Mode::from_raw_mode(if private { 0o600 } else { 0o666 });
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(&place.dir, &place.name, flags, mode).map_err(|e| OutputError::io(path, "create", e.into()))?;
    Ok(file.into())
}

/// Creates a directory and those above it that do not exist, behind no link that another user can have put there.
///
/// # Errors
/// A link that is not followed, or a directory that cannot be created.
pub fn create_directories(path: &Path) -> Result<(), OutputError> {
    let above: Vec<&Path> = path.ancestors().filter(|above| above.file_name().is_some()).collect();
    for dir in above.into_iter().rev() {
        let place = place::find(dir)?;
        if let Found::Nothing = place.found {
            match mkdirat(&place.dir, &place.name, Mode::from_raw_mode(0o777)) {
                // Another process created it meanwhile.
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(OutputError::io(dir, "create", errno.into())),
            }
        }
    }
    Ok(())
}

fn is_ours(stat: &Stat) -> bool {
    let me = rustix::process::geteuid().as_raw();
    kind(stat) == FileType::RegularFile && stat.st_nlink == 1 && stat.st_uid == me
}

/// Whether the path leads to our own file: a regular one of our user with one link, reached without another user's links.
pub fn is_own(path: &Path) -> bool {
    match place::find(path).map(|place| place.found) {
        Ok(Found::There(stat)) => is_ours(&stat),
        _ => false,
    }
}

/// Locks a file for as long as a process has it open that inherited it. Not every file system has locks.
pub fn hold(file: &File) {
    rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive).ok();
}

/// Waits until no process holds our own file ([`hold`]), but not longer than `limit`.
pub fn wait_until_free(path: &Path, limit: Duration) {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::open(path, flags, Mode::empty()) else { return };
    let began = Instant::now();
    while rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK)
        && began.elapsed() < limit
    {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Reads our own file ([`is_own`]), `most` bytes at most, that an earlier process left.
///
/// # Errors
/// Where it does not exist, is not our own or is longer.
pub fn read_own(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let place = place::find(path).map_err(|e| io::Error::other(e.to_string()))?;
    // Without O_NONBLOCK the open would wait on a FIFO.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(&place.dir, &place.name, flags, Mode::empty())?;
    if !is_ours(&fstat(&file)?) {
        return Err(io::Error::other("not a file of ours"));
    }
    let mut bytes = Vec::new();
    File::from(file).take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::other(format!("more than {most} bytes")));
    }
    Ok(bytes)
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
