//! Fetches the part of a kernel module that comes from a Debian source package.
//!
//! Each file has a pinned SHA-256, for each version of the package that the module was tested with. Other files are refused, so that
//! neither a newer version nor a file changed in the cache becomes a kernel module.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use flashscope_output::hex;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::apt;
use crate::error::Error;
use crate::process;
use crate::progress::Progress;
use crate::scratch::{ScratchDir, cache_dir};

/// A file's path in the module's tree, and its bytes.
pub(super) type SourceFile = (String, Vec<u8>);

/// `[source]` of a module's manifest.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Source {
    package: String,
    /// Tried in order.
    suites: Vec<String>,
    /// Directory of the files in the package's upstream archive, and in the build.
    folder: String,
    into: String,
    pub(super) versions: Vec<Version>,
}

/// A version of the package with which the module was tested.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Version {
    /// Upstream's name of the version.
    name: String,
    /// SHA-256 of each file that the build needs.
    files: BTreeMap<String, String>,
}

impl Source {
    /// The files, from the cache or from Debian.
    ///
    /// # Errors
    /// No suite has the package, or the package has none of the pinned versions.
    pub(super) fn fetch(&self, module: &str, progress: &dyn Progress) -> Result<Vec<SourceFile>, Error> {
        let cached = cache_dir()?.join("sources").join(module);
        if cached.is_dir() {
            match self.pinned(module, "the cache", &cached) {
                Ok((_, files)) => return Ok(files),
                // Another flashscope wrote it, or it was changed since.
                Err(_) => std::fs::remove_dir_all(&cached).map_err(|e| Error::io(&cached, e))?,
            }
        }
        let mut problem = None;
        for suite in &self.suites {
            match self.download(module, suite, &cached, progress) {
                Ok(files) => return Ok(files),
                Err(error) => problem = problem.or(Some(error)),
            }
        }
        Err(problem
            .unwrap_or_else(|| Error::NoSuchPackage { package: self.package.clone(), suite: "no suite".to_owned() }))
    }

    fn download(
        &self,
        module: &str,
        suite: &str,
        to: &Path,
        progress: &dyn Progress,
    ) -> Result<Vec<SourceFile>, Error> {
        progress.step(&format!("fetching the source of {} ({suite})", self.package));
        let apt = apt::Apt::open_sources(suite, &apt::host_arch()?, progress)?;
        let dir = ScratchDir::new("source")?;
        let archive = apt.download_source(&self.package, dir.path(), progress)?;
        let unpacked = ScratchDir::new("unpacked")?;
        let mut command = Command::new("tar");
        command.arg("-xf").arg(&archive).arg("-C").arg(unpacked.path());
        // The archive has one top directory with any name.
        command.args(["--strip-components", &(self.folder.split('/').count() + 1).to_string(), "--wildcards"]);
        command.arg(format!("*/{}/*", self.folder));
        process::checked(&mut command, "tar")?;
        let (version, files) = self.pinned(module, suite, unpacked.path())?;
        let out = ScratchDir::new("files")?;
        for (name, (_, bytes)) in version.files.keys().zip(&files) {
            let path = out.path().join(name);
            std::fs::write(&path, bytes).map_err(|e| Error::io(&path, e))?;
        }
        apt::publish(out, to)?;
        Ok(files)
    }

    /// The pinned version of a directory's files, and the files sorted by name.
    fn pinned(&self, module: &str, suite: &str, dir: &Path) -> Result<(&Version, Vec<SourceFile>), Error> {
        let mut other = String::new();
        for version in &self.versions {
            match version.files_of(dir, &self.into) {
                Ok(files) => return Ok((version, files)),
                // The last version is the newest: its differences are the most useful to report.
                Err(problem) => other = problem,
            }
        }
        Err(Error::SourceNotPinned {
            module: module.to_owned(),
            package: self.package.clone(),
            suite: suite.to_owned(),
            problem: other,
            known: self.versions.iter().map(|version| version.name.clone()).collect(),
        })
    }
}

impl Version {
    /// The files, if each has its hash; otherwise the difference.
    fn files_of(&self, dir: &Path, into: &str) -> Result<Vec<SourceFile>, String> {
        let mut files = Vec::new();
        for (name, wanted) in &self.files {
            let bytes = std::fs::read(dir.join(name)).map_err(|_| format!("{name} is missing"))?;
            let found = hex(&Sha256::digest(&bytes));
            if found != *wanted {
                return Err(format!("{name} has SHA-256 {found}"));
            }
            files.push((format!("{into}/{name}"), bytes));
        }
        Ok(files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source() -> Source {
        let version = |name: &str, text: &[u8]| Version {
            name: name.to_owned(),
            files: BTreeMap::from([("a.c".to_owned(), hex(&Sha256::digest(text)))]),
        };
        Source {
            package: "u-boot".to_owned(),
            suites: vec!["bookworm".to_owned()],
            folder: "fs/yaffs2".to_owned(),
            into: "core".to_owned(),
            versions: vec![version("2023.01", b"old"), version("2025.01", b"new")],
        }
    }

    #[test]
    fn each_pinned_version_is_taken_and_nothing_else() {
        let dir = ScratchDir::new("pinned").unwrap();
        let source = source();
        for (text, name) in [("old", "2023.01"), ("new", "2025.01")] {
            std::fs::write(dir.path().join("a.c"), text).unwrap();
            // A file that is not listed is not used.
            std::fs::write(dir.path().join("yportenv.h"), "U-Boot's").unwrap();
            let (version, files) = source.pinned("yaffs2", "bookworm", dir.path()).unwrap();
            assert_eq!(version.name, name);
            assert_eq!(files, [("core/a.c".to_owned(), text.as_bytes().to_vec())]);
        }
        std::fs::write(dir.path().join("a.c"), "changed").unwrap();
        let error = source.pinned("yaffs2", "bookworm", dir.path()).unwrap_err().to_string();
        let hash = hex(&Sha256::digest(b"changed"));
        assert!(error.contains(&hash) && error.contains("2023.01, 2025.01"), "{error}");
        assert!(error.contains("kernel/yaffs2/README.md"), "{error}");
        std::fs::remove_file(dir.path().join("a.c")).unwrap();
        let error = source.pinned("yaffs2", "bookworm", dir.path()).unwrap_err().to_string();
        assert!(error.contains("a.c is missing"), "{error}");
    }
}
