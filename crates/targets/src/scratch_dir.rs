//! A directory that is removed when its value is dropped.

use std::path::{Path, PathBuf};

/// A directory in the cache that belongs to this process; it is removed with the value.
#[derive(Debug)]
pub struct ScratchDir {
    path: PathBuf,
    keep: bool,
}

impl ScratchDir {
    /// Takes over an existing directory that no other code will remove.
    pub(crate) fn owning(path: PathBuf) -> ScratchDir {
        ScratchDir { path, keep: false }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Moves the directory to `to` on the same file system. It is then kept.
    pub(crate) fn publish(mut self, to: &Path) -> std::io::Result<()> {
        if let Some(parent) = to.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::rename(&self.path, to)?;
        self.keep = true;
        Ok(())
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        if !self.keep {
            remove_tree(&self.path);
        }
    }
}

/// Removes a tree that may contain read-only directories (some packages have such).
pub(crate) fn remove_tree(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    if std::fs::remove_dir_all(path).is_ok() || !path.exists() {
        return;
    }
    fn open_up(dir: &Path) {
        std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700)).ok();
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open_up(&entry.path());
            }
        }
    }
    open_up(path);
    std::fs::remove_dir_all(path).ok();
}
