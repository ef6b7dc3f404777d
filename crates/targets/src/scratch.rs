//! The cache, and directories in it that belong to one process.
//!
//! Unfinished data is in `tmp/<pid>_<starttime>_<n>` or `run/<pid>_<starttime>_<n>` (field 22 of /proc/pid/stat), and is moved to its place
//! by one rename. So a killed process leaves nothing incomplete in the cache, and the next process knows what to remove. `<n>` is a number,
//! the inode of the PID namespace and the first digits of the boot's id, separated by dashes: a home directory may be shared with
//! containers, where a pid is another process, and it outlives a boot.

use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use crate::error::Error;
pub use crate::scratch_dir::ScratchDir;
pub(crate) use crate::scratch_dir::remove_tree;

/// `$XDG_CACHE_HOME/flashscope` or `~/.cache/flashscope`; `FLASHSCOPE_CACHE` overrides both. Services and accounts without a home have
/// neither, and root refuses a directory that another user can change (`sudo -E`). They use `/var/cache/flashscope` (root), or a private
/// directory below `/tmp`.
pub fn cache_dir() -> Result<PathBuf, Error> {
    let user = user().ok_or(Error::NoCacheDir)?;
    let is_safe = |dir: &PathBuf| user != 0 || !others_can_change(dir);
    if let Some(dir) = named_cache().filter(is_safe) {
        return Ok(dir);
    }
    if let Some(dir) = absolute("XDG_CACHE_HOME").map(|dir| dir.join("flashscope")).filter(is_safe) {
        return Ok(dir);
    }
    let home = absolute("HOME").map(|dir| dir.join(".cache/flashscope"));
    match home.filter(|dir| can_be_made(dir) && is_safe(dir)) {
        Some(dir) => Ok(dir),
        None => without_a_home(user, &std::env::temp_dir()),
    }
}

fn absolute(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())
}

fn named_cache() -> Option<PathBuf> {
    absolute("FLASHSCOPE_CACHE")
}

/// The directory of `FLASHSCOPE_CACHE`, where root does not use it because another user can change it.
pub fn refused_cache() -> Option<PathBuf> {
    named_cache().filter(|dir| user() == Some(0) && others_can_change(dir))
}

/// Whether a user other than root and this one can change a directory, or replace it. For a missing directory, its first existing parent
/// counts.
fn others_can_change(dir: &Path) -> bool {
    let us = user();
    let is_safe = |meta: &Metadata, is_last: bool| {
        let mode = meta.mode();
        let closed = mode & 0o002 == 0 && (mode & 0o020 == 0 || meta.gid() == 0);
        // In a sticky directory, other users cannot rename or remove our files.
        let sticky = mode & 0o1000 != 0 && !is_last;
        (meta.uid() == 0 || Some(meta.uid()) == us) && (closed || sticky)
    };
    first_unsafe(dir, is_safe).is_some()
}

/// Symbolic links that are followed on one way, as many as the kernel follows (`MAXSYMLINKS`, include/linux/namei.h).
const MOST_LINKS: usize = 40;

/// The first directory or link on the way to `dir` with which another user can lead elsewhere. A missing directory has the way to its first
/// existing parent. `is_safe` gets each directory, and whether it is `dir` itself.
pub(crate) fn first_unsafe(dir: &Path, is_safe: impl Fn(&Metadata, bool) -> bool) -> Option<PathBuf> {
    // From the last to the first.
    let names = |path: &Path| {
        let parts = path.components().rev().filter(|part| *part != Component::CurDir);
        parts.map(|part| part.as_os_str().to_owned()).collect::<Vec<_>>()
    };
    let mut left = names(&std::path::absolute(dir).ok()?);
    let (mut at, mut links) = (PathBuf::from("/"), 0);
    loop {
        match std::fs::symlink_metadata(&at) {
            // It will be created in a directory that was safe.
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            // Nor can it be used.
            Err(error) if error.kind() == ErrorKind::PermissionDenied && user() != Some(0) => return None,
            Ok(meta) if meta.is_symlink() => {
                links += 1;
                // In a sticky directory everyone can put a link, also a second name of a link of ours.
                let is_ours = meta.uid() == 0 || Some(meta.uid()) == user();
                let target =
                    std::fs::read_link(&at).ok().filter(|_| is_ours && meta.nlink() == 1 && links <= MOST_LINKS);
                let Some(target) = target else { return Some(at) };
                at.pop();
                left.extend(names(&target));
            }
            Ok(meta) if is_safe(&meta, left.is_empty()) => {}
            _ => return Some(at),
        }
        match left.pop() {
            None => return None,
            Some(name) if name == ".." => drop(at.pop()),
            // An absolute name replaces all before it.
            Some(name) => at.push(name),
        }
    }
}

/// Whether this user can write there, after missing directories are created.
fn can_be_made(dir: &Path) -> bool {
    let there = dir.ancestors().find(|above| std::fs::symlink_metadata(above).is_ok());
    let rights = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    there.is_some_and(|there| there.is_dir() && rustix::fs::access(there, rights).is_ok())
}

fn without_a_home(user: u32, temporary: &Path) -> Result<PathBuf, Error> {
    let system = PathBuf::from("/var/cache/flashscope");
    if user == 0 && can_be_made(&system) {
        return Ok(system);
    }
    let own = temporary.join(format!("flashscope-cache-{user}"));
    // Any user can create something with that name there.
    match std::fs::symlink_metadata(&own) {
        Ok(_) if !is_ours(&own) => Err(Error::NoCacheDir),
        _ => Ok(own),
    }
}

/// Creates a directory of the cache and those above it.
pub(crate) fn cache_subdir(name: &str) -> Result<PathBuf, Error> {
    let cache = cache_dir()?;
    let dir = cache.join(name);
    let failed = |source| Error::Cache { path: dir.clone(), source };
    if cache.parent() == Some(&std::env::temp_dir()) {
        let made = std::fs::DirBuilder::new().mode(0o700).create(&cache);
        made.or_else(|error| if is_ours(&cache) { Ok(()) } else { Err(error) }).map_err(failed)?;
    }
    std::fs::create_dir_all(&dir).map_err(failed)?;
    Ok(dir)
}

/// The user id of this process: the owner of its entry in /proc.
pub(crate) fn user() -> Option<u32> {
    std::fs::metadata("/proc/self").ok().map(|meta| meta.uid())
}

impl ScratchDir {
    /// Creates an empty directory. `label` is the end of its name, for people.
    pub fn new(label: &str) -> Result<ScratchDir, Error> {
        ScratchDir::under("tmp", label)
    }

    pub(crate) fn under(parent: &str, label: &str) -> Result<ScratchDir, Error> {
        let path = cache_subdir(parent)?.join(own_name(label));
        // No other user can read it or create files in it.
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(|source| Error::Cache { path: path.clone(), source })?;
        Ok(ScratchDir::owning(path))
    }
}

/// Reads a text file that a user named, up to `most` bytes, because a device may have no end.
///
/// # Errors
/// The file cannot be read, is not UTF-8, or is larger.
pub fn read_text(path: &Path, most: u64) -> std::io::Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    let read =
        flashscope_output::open_input(path)?.take(most + 1).read_to_string(&mut text).map_err(|e| match e.kind() {
            std::io::ErrorKind::InvalidData => std::io::Error::other("it is no text in UTF-8"),
            _ => e,
        })?;
    if read as u64 > most {
        return Err(std::io::Error::other(format!("more than {most} bytes, which no such file has")));
    }
    Ok(text)
}

/// Largest size of a definition written by hand (a study, a board, a chip), bytes. The reader of TOML takes up to 380 times as much memory,
/// and the largest study of ours has 19 KB.
pub const DEFINITION_BYTES: u64 = 128 << 10;

/// Field 22 of /proc/pid/stat. Together with the pid it identifies a process.
pub(crate) fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command, field 2, may hold spaces and parentheses: count from the last one.
    stat.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()
}

/// The inode number of this process's PID namespace; 0 if unknown.
fn pid_namespace() -> u64 {
    let link = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let number = link.to_str().and_then(|text| text.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok());
    number.unwrap_or(0)
}

/// A unique name for a directory in the cache.
fn own_name(label: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let pid = std::process::id();
    let start = start_time(pid).unwrap_or(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{pid}_{start}_{n}-{}-{}_{label}", pid_namespace(), boot())
}

/// The first eight digits of the boot's id; 0 if unknown.
fn boot() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let first: String = id.chars().take_while(char::is_ascii_hexdigit).collect();
    if first.is_empty() { "0".to_owned() } else { first }
}

/// Whether the owner in a name `<pid>_<starttime>_…` still runs. `None`: another name, or an owner that is invisible in this PID namespace.
fn owner_lives(name: &str) -> Option<bool> {
    let mut parts = name.splitn(4, '_');
    let pid: u32 = parts.next()?.parse().ok()?;
    let start: u64 = parts.next()?.parse().ok()?;
    let mut third = parts.next()?.split('-').skip(1);
    if let (Some(namespace), Some(booted)) = (third.next(), third.next()) {
        if booted != boot() {
            return Some(false);
        }
        if namespace.parse() != Ok(pid_namespace()) {
            return None;
        }
    }
    Some(start_time(pid) == Some(start))
}

/// Whether only this user can write to a directory. Root must not act on a note of another user, whose cache it may have been given.
fn is_ours(path: &Path) -> bool {
    let us = user();
    let ours = |meta: std::fs::Metadata| meta.is_dir() && us == Some(meta.uid()) && meta.mode() & 0o022 == 0;
    std::fs::symlink_metadata(path).is_ok_and(ours)
}

/// The label of notes about running recordings.
pub const RECORDING: &str = "recording";

fn has_label(name: &str, label: &str) -> bool {
    name.splitn(4, '_').nth(3) == Some(label)
}

/// Takes over the scratch directories with this label whose owner has died, for a caller that can recover data from them. Two callers at
/// the same time never get the same directory.
pub fn take_abandoned(label: &str) -> Vec<ScratchDir> {
    let Ok(cache) = cache_dir() else { return Vec::new() };
    if user() == Some(0) && others_can_change(&cache) {
        return Vec::new();
    }
    take_abandoned_in(&cache.join("tmp"), label)
}

fn take_abandoned_in(parent: &Path, label: &str) -> Vec<ScratchDir> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(parent)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| {
            let name = entry.file_name();
            let name = name.to_str().unwrap_or_default();
            has_label(name, label) && owner_lives(name) == Some(false) && is_ours(&entry.path())
        })
        .map(|entry| entry.path())
        .collect();
    found.sort();
    let take = |path: PathBuf| {
        let own = parent.join(own_name(label));
        // The first rename wins.
        std::fs::rename(path, &own).ok()?;
        Some(ScratchDir::owning(own))
    };
    found.into_iter().filter_map(take).filter(|taken| is_ours(taken.path())).collect()
}

/// Time after which an unused boot image is removed.
const IMAGE_AGE: Duration = Duration::from_secs(24 * 3600);

/// Removes directories that killed runs left in the cache, and boot images that were not used for a day. Returns the removed paths. Notes
/// of recordings are left for [`take_abandoned`], because an owner may have died after the caller looked for them.
pub fn sweep() -> Result<Vec<PathBuf>, Error> {
    let cache = cache_dir()?;
    let mut removed = Vec::new();
    // Another user could replace a directory by a link to root's files in the meantime.
    if user() == Some(0) && others_can_change(&cache) {
        return Ok(removed);
    }
    for parent in ["tmp", "run"] {
        removed.append(&mut sweep_in(&cache.join(parent)));
    }
    for entry in std::fs::read_dir(cache.join("images")).into_iter().flatten().flatten() {
        let age = entry
            .metadata()
            .and_then(|meta| meta.modified())
            .ok()
            .and_then(|at| SystemTime::now().duration_since(at).ok());
        if age.is_some_and(|age| age > IMAGE_AGE) && std::fs::remove_file(entry.path()).is_ok() {
            removed.push(entry.path());
        }
    }
    removed.sort();
    Ok(removed)
}

fn sweep_in(parent: &Path) -> Vec<PathBuf> {
    let mut removed = Vec::new();
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_str().unwrap_or_default();
        if owner_lives(name) == Some(false) && !(has_label(name, RECORDING) && is_ours(&entry.path())) {
            remove_tree(&entry.path());
            removed.push(entry.path());
        }
    }
    removed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_living_owner_is_told_from_a_dead_one_and_from_a_recycled_pid() {
        let pid = std::process::id();
        let start = start_time(pid).expect("this process is in /proc");
        assert_eq!(owner_lives(&format!("{pid}_{start}_0_x")), Some(true));
        assert_eq!(owner_lives(&format!("{pid}_{}_0_x", start + 1)), Some(false));
        assert_eq!(owner_lives("README"), None);
        assert_eq!(owner_lives(&format!("{pid}_{start}")), None);
        let (here, now) = (pid_namespace(), boot());
        assert_eq!(owner_lives(&format!("{pid}_{start}_0-{here}-{now}_x")), Some(true));
        assert_eq!(owner_lives(&format!("{pid}_{}_0-{here}-{now}_x", start + 1)), Some(false));
        assert_eq!(owner_lives(&format!("{pid}_{start}_0-{here}-ffff_x")), Some(false), "of an earlier boot");
        assert_eq!(owner_lives(&format!("{pid}_{}_0-{}-{now}_x", start + 1, here + 1)), None, "of a container");
    }

    #[test]
    fn what_a_killed_run_left_is_taken_over_once() {
        let dir = ScratchDir::new("taken").unwrap();
        let left = dir.path().join("1_1_0_recording");
        std::fs::create_dir(&left).unwrap();
        std::fs::write(left.join("note"), "what").unwrap();
        std::fs::create_dir(dir.path().join("1_1_0_other")).unwrap();
        // Removed by a command that looked for killed recordings before this one was killed.
        assert_eq!(sweep_in(dir.path()), [dir.path().join("1_1_0_other")]);
        let taken = take_abandoned_in(dir.path(), "recording");
        assert_eq!(taken.len(), 1);
        assert_eq!(std::fs::read(taken[0].path().join("note")).unwrap(), b"what");
        let name = taken[0].path().file_name().and_then(|name| name.to_str()).unwrap();
        assert_eq!(owner_lives(name), Some(true), "a second one leaves it alone");
        assert!(!left.exists() && take_abandoned_in(dir.path(), "recording").is_empty());
    }

    #[test]
    fn an_account_without_a_home_has_a_private_cache() {
        let dir = ScratchDir::new("homeless").unwrap();
        let us = user().unwrap();
        let private = dir.path().join(format!("flashscope-cache-{us}"));
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(can_be_made(&private) && !can_be_made(&file.join("cache")));
        if us != 0 {
            assert_eq!(without_a_home(us, dir.path()).unwrap(), private);
        }
        let other = dir.path().join("flashscope-cache-4321");
        assert_eq!(without_a_home(4321, dir.path()).unwrap(), other);
        std::os::unix::fs::symlink("/etc", &other).unwrap();
        assert!(without_a_home(4321, dir.path()).is_err(), "somebody else made it");
    }

    #[test]
    fn who_can_change_the_way_to_a_cache_can_change_it() {
        let dir = ScratchDir::new("changed").unwrap();
        let (above, cache) = (dir.path().join("above"), dir.path().join("above/cache"));
        std::fs::create_dir_all(&cache).unwrap();
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        };
        for (of_above, of_cache, others) in [
            (0o755, 0o700, false),
            (0o755, 0o777, true),
            (0o755, 0o1777, true),
            (0o777, 0o700, true),
            (0o1777, 0o700, false),
        ] {
            mode(&above, of_above);
            mode(&cache, of_cache);
            assert_eq!(others_can_change(&cache), others, "{of_above:o} {of_cache:o}");
        }
        mode(&cache, 0o700);
        assert!(!others_can_change(&above.join("not/there")), "what is made in a sticky directory is ours");
        if user() == Some(0) {
            std::os::unix::fs::chown(&above, Some(65534), None).unwrap();
            assert!(others_can_change(&cache) && others_can_change(&above.join("not/there")));
        }
    }

    /// Only another user's links and a second name of ours are refused; what they lead to is safe in itself.
    #[test]
    fn a_link_of_somebody_else_is_no_way_to_a_cache() {
        let dir = ScratchDir::new("led").unwrap();
        let (sticky, own) = (dir.path().join("sticky"), dir.path().join("own"));
        for path in [&sticky, &own] {
            std::fs::create_dir(path).unwrap();
        }
        std::fs::set_permissions(&sticky, std::os::unix::fs::PermissionsExt::from_mode(0o1777)).unwrap();
        let link = |to: &str, name: &str| {
            std::os::unix::fs::symlink(to, sticky.join(name)).unwrap();
            sticky.join(name)
        };
        assert!(!others_can_change(&link("../own", "relative")) && !others_can_change(&link("./../own/.", "dots")));
        assert!(!others_can_change(&link(own.to_str().unwrap(), "absolute")));
        assert!(!others_can_change(&sticky.join("absolute/not/there")));
        assert!(others_can_change(&link("loop", "loop")), "an endless way");
        std::fs::hard_link(sticky.join("relative"), sticky.join("twice")).unwrap();
        assert!(others_can_change(&sticky.join("twice")));
        if user() == Some(0) {
            std::os::unix::fs::lchown(sticky.join("absolute"), Some(65534), None).unwrap();
            assert!(others_can_change(&sticky.join("absolute")));
            assert!(others_can_change(&sticky.join("absolute/not/there")));
        }
    }

    #[test]
    fn a_directory_that_others_may_write_says_nothing() {
        let dir = std::env::temp_dir().join(format!("flashscope-ours-{}", std::process::id()));
        let mode = |mode| std::fs::set_permissions(&dir, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        std::fs::create_dir(&dir).unwrap();
        for (bits, ours) in [(0o700, true), (0o755, true), (0o775, false), (0o777, false)] {
            mode(bits);
            assert_eq!(is_ours(&dir), ours, "{bits:o}");
        }
        let link = dir.with_extension("link");
        std::os::unix::fs::symlink(&dir, &link).unwrap();
        mode(0o700);
        assert!(!is_ours(&link));
        std::fs::remove_file(&link).unwrap();
        std::fs::remove_dir(&dir).unwrap();
    }
}
