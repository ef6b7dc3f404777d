//! The cache, and directories in it that belong to one process.
//!
//! What is unfinished lies under `tmp/<pid>_<starttime>_<n>` or `run/<pid>_<starttime>_<n>` (field 22 of /proc/pid/stat),
//! and is moved into place by one rename. So a killed process leaves nothing half-done in the cache, and the next one
//! knows what to remove. `<n>` is a number, the inode of the PID namespace and the begin of the boot's id, with dashes between:
//! a home directory may be shared with containers, where a pid means another process, and outlives a boot.

use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use crate::error::Error;
pub use crate::scratch_dir::ScratchDir;
pub(crate) use crate::scratch_dir::remove_tree;

/// `$XDG_CACHE_HOME/flashscope` or `~/.cache/flashscope`; `FLASHSCOPE_CACHE` overrides both.
pub fn cache_dir() -> Result<PathBuf, Error> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("FLASHSCOPE_CACHE")
        .or_else(|| absolute("XDG_CACHE_HOME").map(|dir| dir.join("flashscope")))
        .or_else(|| absolute("HOME").map(|dir| dir.join(".cache/flashscope")))
        .ok_or(Error::NoCacheDir)
}

/// Creates a directory of the cache and those above it.
pub(crate) fn cache_subdir(name: &str) -> Result<PathBuf, Error> {
    let dir = cache_dir()?.join(name);
    std::fs::create_dir_all(&dir).map_err(|source| Error::Cache { path: dir.clone(), source })?;
    Ok(dir)
}

impl ScratchDir {
    /// A fresh empty directory; `label` ends its name, for people who look.
    pub fn new(label: &str) -> Result<ScratchDir, Error> {
        ScratchDir::under("tmp", label)
    }

    pub(crate) fn under(parent: &str, label: &str) -> Result<ScratchDir, Error> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let parent = cache_subdir(parent)?;
        let pid = std::process::id();
        let start = start_time(pid).unwrap_or(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("{pid}_{start}_{n}-{}-{}_{label}", pid_namespace(), boot()));
        // Nobody else's to read or to plant anything in.
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(|source| Error::Cache { path: path.clone(), source })?;
        Ok(ScratchDir::owning(path))
    }
}

/// Reads a text file that a user named, `most` bytes of it at most: a device may have no end.
///
/// # Errors
/// Where it cannot be read, is no UTF-8, or has more.
pub fn read_text(path: &Path, most: u64) -> std::io::Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    let read = flashscope_output::open_input(path)?.take(most + 1).read_to_string(&mut text)?;
    if read as u64 > most {
        return Err(std::io::Error::other(format!("more than {most} bytes, which no such file has")));
    }
    Ok(text)
}

/// Most bytes of a definition that a person wrote: a study, a board, a chip.
pub const DEFINITION_BYTES: u64 = 1 << 20;

/// Field 22 of /proc/pid/stat: with the pid, it names a process for good.
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

/// The first eight digits of the boot's id; 0 if unknown.
fn boot() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let first: String = id.chars().take_while(char::is_ascii_hexdigit).collect();
    if first.is_empty() { "0".to_owned() } else { first }
}

/// Whether the owner in a name `<pid>_<starttime>_…` still runs. `None`: no such name, or an owner that cannot be seen from
/// this PID namespace.
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

/// Whether a directory is this user's alone to write: root acts on no note of somebody else, whose cache it may have been given.
fn is_ours(path: &Path) -> bool {
    let us = std::fs::metadata("/proc/self").map(|meta| meta.uid());
    let ours =
        |meta: std::fs::Metadata| meta.is_dir() && us.is_ok_and(|us| us == meta.uid()) && meta.mode() & 0o022 == 0;
    std::fs::symlink_metadata(path).is_ok_and(ours)
}

/// Scratch directories of a label whose owner has died: for a caller that can still recover something, before [`sweep`].
pub fn abandoned(label: &str) -> Vec<PathBuf> {
    let Ok(cache) = cache_dir() else { return Vec::new() };
    let mut found: Vec<PathBuf> = std::fs::read_dir(cache.join("tmp"))
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| {
            let name = entry.file_name();
            let name = name.to_str().unwrap_or_default();
            name.splitn(4, '_').nth(3) == Some(label) && owner_lives(name) == Some(false) && is_ours(&entry.path())
        })
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}

/// How long an unused boot image is kept.
const IMAGE_AGE: Duration = Duration::from_secs(24 * 3600);

/// Removes what killed runs left in the cache, and boot images that were not used for a day. Returns what it removed.
pub fn sweep() -> Result<Vec<PathBuf>, Error> {
    let cache = cache_dir()?;
    let mut removed = Vec::new();
    for parent in ["tmp", "run"] {
        for entry in std::fs::read_dir(cache.join(parent)).into_iter().flatten().flatten() {
            if entry.file_name().to_str().and_then(owner_lives) == Some(false) {
                remove_tree(&entry.path());
                removed.push(entry.path());
            }
        }
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
