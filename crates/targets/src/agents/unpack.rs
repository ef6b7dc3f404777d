//! Unpacks a built-in program to a file named by its hash, in a directory that only this user and root can change.

use std::fs::{DirBuilder, Metadata};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use flashscope_output::{Output, OutputError, Rules, hex};
use sha2::{Digest, Sha256};

use super::carried::Carried;
use crate::error::Error;
use crate::scratch::{cache_dir, first_unsafe, user};

/// The path of a built-in program, ready to run. Its bytes are compared with its hash at each call.
pub(super) fn unpacked(carried: &Carried) -> Result<PathBuf, Error> {
    let mut problem = None;
    for place in places() {
        match unpacked_in(&place, carried) {
            Ok(path) => return Ok(path),
            Err(error) => problem = problem.or(Some(error)),
        }
    }
    Err(problem.unwrap_or(Error::NoCacheDir))
}

/// Directories to try: the cache, or a system directory if the cache belongs to another user (`sudo` that keeps HOME).
fn places() -> Vec<PathBuf> {
    let mut places: Vec<PathBuf> = cache_dir().into_iter().map(|dir| dir.join("agents")).collect();
    let user = user();
    if user == Some(0) {
        places.push(PathBuf::from("/var/cache/flashscope/agents"));
    }
    if let Some(user) = user {
        places.push(std::env::temp_dir().join(format!("flashscope-agents-{user}")));
    }
    places
}

fn unpacked_in(place: &Path, carried: &Carried) -> Result<PathBuf, Error> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| Error::Cache { path, source }
    };
    let dir = place.join(&carried.sha256[..16]);
    let check = || match changeable(&dir) {
        Some(path) => Err(Error::AgentPlace { place: place.to_owned(), path }),
        None => Ok(()),
    };
    // Before, because a link could lead elsewhere; and after, because the directory may have been there.
    check()?;
    DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(failed(&dir))?;
    check()?;
    let path = dir.join(carried.name);
    if std::fs::read(&path).is_ok_and(|found| hex(&Sha256::digest(&found)) == carried.sha256) {
        return Ok(path);
    }
    // Whole under its name or not there: another process may be running or unpacking it, and this one may be killed.
    let rules = Rules { program: true, ..Rules::default() };
    // The links on the way are safe, which was checked.
    let file = std::fs::canonicalize(&dir).map_err(failed(&dir))?.join(carried.name);
    Output::write_whole(&file, &carried.bytes()?, rules).map_err(|error| match error {
        OutputError::Io { source, .. } => failed(&path)(source),
        error => failed(&path)(std::io::Error::other(error.to_string())),
    })?;
    Ok(path)
}

/// The first directory or link on the way to `dir` by which users other than root and this one can replace files.
fn changeable(dir: &Path) -> Option<PathBuf> {
    let user = user();
    first_unsafe(dir, |meta: &Metadata, is_last| {
        let closed = meta.mode() & 0o022 == 0;
        // In a sticky directory, other users cannot rename or remove our files. The directory itself must be ours, also below a sticky one.
        let shared = meta.mode() & 0o1000 != 0 || closed;
        if is_last {
            closed && Some(meta.uid()) == user
        } else {
            shared && (meta.uid() == 0 || Some(meta.uid()) == user)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn carried() -> Carried {
        Carried {
            arch: "x86_64",
            name: "flashscope-agent",
            size: 5,
            sha256: "d4f0bc5a29de06b510f9aa428f1eedba926012b591fef7a518e776a7c9bd1824",
            deflated: miniz_oxide::deflate::compress_to_vec(b"agent", 9).leak(),
        }
    }

    #[test]
    fn an_agent_is_unpacked_once_and_again_where_it_was_changed() {
        let dir = crate::ScratchDir::new("unpack").unwrap();
        let path = unpacked_in(dir.path(), &carried()).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"agent");
        let first = std::fs::metadata(&path).unwrap();
        assert_eq!(first.mode() & 0o777, 0o700);
        assert_eq!(unpacked_in(dir.path(), &carried()).unwrap(), path);
        assert_eq!(std::fs::metadata(&path).unwrap().ino(), first.ino(), "it is not written anew");
        std::fs::write(&path, "evil").unwrap();
        // Of a command that was killed while it wrote, on a file system without files without names.
        let left = path.with_file_name(format!(".flashscope-agent.flashscope-{}", "0".repeat(32)));
        std::fs::write(left, "age").unwrap();
        assert_eq!(std::fs::read(unpacked_in(dir.path(), &carried()).unwrap()).unwrap(), b"agent");
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn nothing_is_unpacked_where_others_can_write() {
        let dir = crate::ScratchDir::new("unpack-open").unwrap();
        let open = dir.path().join("open");
        std::fs::create_dir(&open).unwrap();
        for (mode, refused) in [(0o777, true), (0o775, true), (0o1777, false), (0o755, false)] {
            std::fs::set_permissions(&open, std::fs::Permissions::from_mode(mode)).unwrap();
            let unpacked = unpacked_in(&open.join(format!("{mode:o}")), &carried());
            assert_eq!(matches!(unpacked, Err(Error::AgentPlace { .. })), refused, "{mode:o}: {unpacked:?}");
        }
    }

    #[test]
    fn a_link_does_not_lead_past_the_check() {
        let dir = crate::ScratchDir::new("unpack-link").unwrap();
        let (open, link) = (dir.path().join("open"), dir.path().join("link"));
        std::fs::create_dir(&open).unwrap();
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
        std::os::unix::fs::symlink(&open, &link).unwrap();
        assert!(matches!(unpacked_in(&link, &carried()), Err(Error::AgentPlace { .. })));
        assert_eq!(
            std::fs::read_dir(&open).unwrap().count(),
            0,
            "nothing is created behind a link before it is looked at"
        );
    }
}
