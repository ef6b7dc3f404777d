//! Finds definitions of boards, chips and disks: built in, or in a directory that the user names.
//!
//! The working directory is never searched, because a board's file chooses the program that runs as QEMU.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use crate::error::Error;

/// A folder of TOML files, with the built-in ones.
pub(super) struct Folder {
    /// What a file of it describes, for messages.
    what: &'static str,
    /// Environment variable with a directory that takes precedence over built-in files.
    env: &'static str,
    /// Its path in the source tree, for messages.
    dir: &'static str,
    built_in: &'static [(&'static str, &'static str)],
}

// BUILT_IN_BOARDS and so on: all files of a folder, from build.rs.
include!(concat!(env!("OUT_DIR"), "/built_in.rs"));

pub(super) const BOARDS: Folder =
    Folder { what: "board", env: "FLASHSCOPE_BOARDS", dir: "boards", built_in: BUILT_IN_BOARDS };

pub(super) const CHIPS: Folder =
    Folder { what: "chip", env: "FLASHSCOPE_CHIPS", dir: "chips", built_in: BUILT_IN_CHIPS };

pub(super) const DISKS: Folder =
    Folder { what: "disk", env: "FLASHSCOPE_DISKS", dir: "disks", built_in: BUILT_IN_DISKS };

/// Mean powers of boards under load.
const POWER: Folder = Folder { what: "power profile", env: "FLASHSCOPE_POWER", dir: "power", built_in: BUILT_IN_POWER };

/// A power profile's text, by name or path, and its name for errors.
pub fn power_profile(name: &str) -> Result<(String, String), Error> {
    POWER.find(name).map(|file| (file.path, file.text))
}

/// One of our kernel modules, `kernel/NAME/`.
pub(super) struct OwnModule {
    pub manifest_path: String,
    pub manifest: String,
    /// Path in the module's folder, and contents.
    pub files: Vec<(String, Vec<u8>)>,
}

macro_rules! own_files {
    ($module:literal, $($file:literal),* $(,)?) => {
        &[$(($file, include_str!(concat!("../../../../kernel/", $module, "/", $file)))),*]
    };
}

type BuiltIn = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

const OWN_MODULES: [BuiltIn; 2] = [
    (
        "flashmon",
        include_str!("../../../../kernel/flashmon/module.toml"),
        own_files!(
            "flashmon", "Kbuild", "Kconfig", "Makefile", "compat.h", "dkms.conf", "drain.c", "finder.c", "flashmon.h",
            "flashmon_stream.h", "kernel-tree", "main.c", "notify.c", "probes.c", "proc.c", "ring.c",
        ),
    ),
    (
        "yaffs2",
        include_str!("../../../../kernel/yaffs2/module.toml"),
        own_files!(
            "yaffs2", "Kbuild", "compat.h", "dir.c", "file.c", "check.c", "checkpoint.c", "chunk.c", "gc.c",
            "include/dm/devres.h", "include/yportenv.h", "inode.c", "mtd.c", "namei.c", "options.c", "super.c",
            "yaffs2.h",
        ),
    ),
];

/// Names of our modules.
pub(super) fn own_modules() -> Vec<&'static str> {
    OWN_MODULES.iter().map(|(name, ..)| *name).collect()
}

pub(super) fn own_module(name: &str) -> Result<OwnModule, Error> {
    let (name, manifest, files) = OWN_MODULES
        .iter()
        .find(|(own, ..)| *own == name)
        .ok_or_else(|| Error::Image(format!("flashscope has no module {name}")))?;
    Ok(OwnModule {
        manifest_path: format!("kernel/{name}/module.toml"),
        manifest: (*manifest).to_owned(),
        files: files.iter().map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec())).collect(),
    })
}

/// A file's text, and its name for errors.
pub(super) struct File {
    pub path: String,
    pub text: String,
}

impl Folder {
    fn directory(&self) -> Option<PathBuf> {
        std::env::var_os(self.env).filter(|dir| !dir.is_empty()).map(PathBuf::from)
    }

    /// Names of all files, sorted.
    pub(super) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.built_in.iter().map(|(name, _)| (*name).to_owned()).collect();
        let entries = self.directory().and_then(|dir| std::fs::read_dir(dir).ok());
        for entry in entries.into_iter().flatten().flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|extension| extension == "toml") {
                names.extend(path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned));
            }
        }
        names.sort();
        names.dedup();
        names
    }

    /// A file by name, or by path if the name contains a slash.
    pub(super) fn find(&self, name: &str) -> Result<File, Error> {
        if name.contains('/') {
            return read(Path::new(name));
        }
        let own = self.directory().map(|dir| dir.join(format!("{name}.toml")));
        if let Some(own) = own.filter(|own| is_plain(name) && own.is_file()) {
            return read(&own);
        }
        match self.built_in.iter().find(|(built_in, _)| *built_in == name) {
            Some((_, text)) => Ok(File { path: format!("{}/{name}.toml", self.dir), text: (*text).to_owned() }),
            None => Err(Error::UnknownName { what: self.what, name: name.to_owned(), known: self.names() }),
        }
    }
}

/// Whether a name is not a path.
pub(super) fn is_plain(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

fn read(path: &Path) -> Result<File, Error> {
    let text = crate::read_text(path, crate::DEFINITION_BYTES).map_err(|e| Error::io(path, e))?;
    Ok(File { path: path.display().to_string(), text })
}

/// Parses TOML; errors have file, line and column.
pub(super) fn parse<T: DeserializeOwned>(path: &str, text: &str) -> Result<T, Error> {
    toml::from_str(text).map_err(|error: toml::de::Error| {
        let at = error.span().map_or(0, |span| span.start).min(text.len());
        let before = text.get(..at).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        let problem = error.message().lines().collect::<Vec<_>>().join(": ");
        Error::Toml { path: path.to_owned(), line, column, problem }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Sample {
        #[allow(dead_code)]
        memory: u32,
    }

    #[test]
    fn errors_in_toml_name_the_line_and_column() {
        let wrong_type = parse::<Sample>("boards/x.toml", "# a comment\nmemory = \"much\"\n").unwrap_err();
        let text = wrong_type.to_string();
        assert!(text.starts_with("boards/x.toml:2:10: "), "{text}");
        let unknown = parse::<Sample>("boards/x.toml", "memory = 1\n  memry = 2\n").unwrap_err().to_string();
        assert!(unknown.starts_with("boards/x.toml:2:3: unknown field `memry`"), "{unknown}");
        let syntax = parse::<Sample>("boards/x.toml", "memory = \n").unwrap_err().to_string();
        assert!(syntax.starts_with("boards/x.toml:1:"), "{syntax}");
        assert_eq!(syntax.lines().count(), 1);
    }

    #[test]
    fn an_unknown_board_is_told_with_those_that_exist() {
        let error = BOARDS.find("armv9").err().unwrap().to_string();
        assert!(
            error.starts_with(&format!("board armv9: unknown; there are {}", BOARDS.names().join(", "))),
            "{error}"
        );
    }

    #[test]
    fn every_file_of_a_folder_is_built_in() {
        let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for folder in [BOARDS, CHIPS, DISKS, POWER] {
            let mut files: Vec<(String, String)> = std::fs::read_dir(top.join(folder.dir))
                .unwrap()
                .map(|entry| entry.unwrap().path())
                .map(|path| {
                    (path.file_stem().unwrap().to_str().unwrap().to_owned(), std::fs::read_to_string(path).unwrap())
                })
                .collect();
            files.sort();
            assert!(!files.is_empty());
            assert!(
                files.iter().map(|(name, text)| (&**name, &**text)).eq(folder.built_in.iter().copied()),
                "{}",
                folder.dir
            );
        }
    }
}
