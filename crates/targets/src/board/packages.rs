//! Debian packages of a board's architecture, unpacked for its boot image.
//!
//! Cache: `packages/ARCH/NAME_VERSION/root`; `packages/sets/` has the resolved packages for a list of names.

use std::path::PathBuf;

use flashscope_output::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Board, apt, stanza};
use crate::error::Error;
use crate::progress::Progress;
use crate::scratch::{ScratchDir, cache_dir};

/// An unpacked package on this host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Package {
    pub name: String,
    pub version: String,
    /// SHA-256 of its .deb, from the index.
    pub sha256: String,
    /// The directory of its files.
    pub root: PathBuf,
}

/// Packages that only maintainer scripts and package management need, which do not run on a board. A package that is requested by name is
/// never left out.
const LEFT_OUT: [&str; 13] = [
    "adduser", "debconf", "dpkg", "init-system-helpers", "libpam-runtime", "libsemanage-common", "lsb-base", "procps",
    "runit-helper", "sensible-utils", "sysvinit-utils", "ucf", "usrmerge",
];

pub(super) fn fetch(
    board: &Board,
    suite: &str,
    packages: &[String],
    refresh: bool,
    progress: &dyn Progress,
) -> Result<Vec<Package>, Error> {
    if packages.is_empty() {
        return Ok(Vec::new());
    }
    let mut names = packages.to_vec();
    names.sort();
    names.dedup();
    if let Some(bad) = names.iter().find(|name| !plain(name)) {
        return Err(Error::NoSuchPackage { package: bad.clone(), suite: suite.to_owned() });
    }
    let set = set_path(board, suite, &names)?;
    let cached = std::fs::read(&set).ok().and_then(|text| serde_json::from_slice::<Vec<Package>>(&text).ok());
    if let Some(found) = cached.filter(|found| !refresh && found.iter().all(|package| package.root.is_dir())) {
        return Ok(found);
    }

    let mut apt = apt::Apt::open(suite, &board.arch, refresh, progress)?;
    let fetched = match download(board, &apt, &names, progress) {
        // The cached index may be older than the pool.
        Err(Error::Download { .. } | Error::NoSuchPackage { .. }) => {
            apt = apt::Apt::open(suite, &board.arch, true, progress)?;
            download(board, &apt, &names, progress)?
        }
        other => other?,
    };
    let scratch = ScratchDir::new("set")?;
    let path = scratch.path().join("set.json");
    std::fs::write(&path, serde_json::to_vec_pretty(&fetched).expect("strings serialise"))
        .map_err(|e| Error::io(&path, e))?;
    if let Some(parent) = set.parent() {
        std::fs::create_dir_all(parent).map_err(|e| Error::io(parent, e))?;
    }
    std::fs::rename(&path, &set).map_err(|e| Error::io(&set, e))?;
    Ok(fetched)
}

/// Whether Debian policy allows this package name.
fn plain(name: &str) -> bool {
    name.bytes().next().is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"+-.".contains(&b))
        && !name.ends_with(['-', '+'])
        || name.ends_with("++")
}

fn set_path(board: &Board, suite: &str, names: &[String]) -> Result<PathBuf, Error> {
    let key =
        hex(&Sha256::digest(format!("{} {suite} {} without {}", board.arch, names.join(" "), LEFT_OUT.join(" "))));
    Ok(cache_dir()?.join("packages/sets").join(format!("{}.json", &key[..32])))
}

fn download(board: &Board, apt: &apt::Apt, names: &[String], progress: &dyn Progress) -> Result<Vec<Package>, Error> {
    let mut fetched = Vec::new();
    let mut missing = Vec::new();
    let set = apt.show_all(&apt.closure(names)?)?;
    for stanza in stanza::reached(&set, names, &LEFT_OUT) {
        let name = stanza.package;
        let dir = cache_dir()?.join("packages").join(&board.arch).join(format!("{name}_{}", stanza.version));
        let package =
            Package { name: name.clone(), version: stanza.version, sha256: stanza.sha256, root: dir.join("root") };
        if !package.root.is_dir() {
            missing.push((package.clone(), dir));
        }
        fetched.push(package);
    }
    if missing.is_empty() {
        return Ok(fetched);
    }
    progress.step(&format!("fetching {} packages for {}: {}", missing.len(), board.name, names.join(" ")));
    let dir = ScratchDir::new("debs")?;
    let wanted: Vec<String> =
        missing.iter().map(|(package, _)| format!("{}={}", package.name, package.version)).collect();
    let debs = apt.download(&wanted, dir.path(), progress)?;
    progress.step("unpacking packages (their maintainer scripts are not run)");
    for (package, to) in missing {
        // NAME_VERSION_ARCH.deb
        let deb = debs.iter().find(|deb| deb.file.split('_').next() == Some(&package.name)).ok_or_else(|| {
            Error::Download { package: package.name.clone(), problem: "apt made no file of that name".to_owned() }
        })?;
        let unpacked = ScratchDir::new("package")?;
        apt::unpack(&dir.path().join(&deb.file), &unpacked.path().join("root"))?;
        apt::publish(unpacked, &to)?;
    }
    Ok(fetched)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_apt_would_take_for_something_else_are_refused() {
        assert!(plain("trace-cmd") && plain("libstdc++6") && plain("g++"));
        assert!(!plain("mtd-utils-") && !plain("fio+") && !plain("-o") && !plain("a b") && !plain("") && !plain("a/b"));
    }
}
