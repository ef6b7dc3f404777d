//! Kernels from Debian's packages, through the cache, or from a user's directory.
//!
//! Cache: `kernels/BOARD/LINE/VERSION/` has `kernel.json` and `root/`, the unpacked packages; `current` links to the version that was
//! resolved last. A version in the cache never changes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use flashscope_output::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::modules::{self, ModuleIndex};
use super::stanza::{self, Resolved};
use super::{Board, KernelLine, apt};
use crate::error::Error;
use crate::progress::Progress;
use crate::scratch::{self, ScratchDir, cache_dir, remove_tree};

/// A kernel that can be booted.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The line's name; for a user's own kernel its directory.
    pub name: String,
    /// "6.1.0-50-armmp"; "unknown" for a user's own kernel without modules.
    pub release: String,
    /// "linux-image-6.1.0-50-armmp", "user's own".
    pub package: String,
    /// Version of the package; empty for a user's own kernel.
    pub version: String,
    /// The suite of the package.
    pub suite: Option<String>,
    /// SHA-256 of the kernel image.
    pub sha256: String,
    pub vmlinuz: PathBuf,
    /// The directory with `kernel/…` and `modules.builtin`: lib/modules/RELEASE.
    pub modules_root: PathBuf,
    pub(super) index: Arc<ModuleIndex>,
}

/// `kernel.json`
#[derive(Serialize, Deserialize)]
struct Cached {
    release: String,
    package: String,
    version: String,
    suite: String,
    sha256: String,
    vmlinuz: String,
    packages: Vec<CachedPackage>,
}

#[derive(Serialize, Deserialize)]
struct CachedPackage {
    package: String,
    version: String,
    sha256: String,
}

pub(super) fn fetch(board: &Board, kernel: &str, refresh: bool, progress: &dyn Progress) -> Result<Kernel, Error> {
    let named = board.kernels.iter().any(|line| line.name == kernel);
    if kernel.contains('/') || (!kernel.is_empty() && !named && Path::new(kernel).is_dir()) {
        return own(Path::new(kernel));
    }
    let line = if kernel.is_empty() { board.default_kernel() } else { board.kernel_line(kernel)? };
    let cached = cached(board, line);
    match cached {
        Some(kernel) if !refresh => return Ok(kernel),
        _ => {}
    }
    scratch::sweep()?;
    let mut problem = None;
    for suite in &line.suites {
        match fetch_from(board, line, suite, progress) {
            Ok(kernel) => return Ok(kernel),
            Err(error @ (Error::IndexUnavailable { .. } | Error::WrongVersion { .. } | Error::Download { .. })) => {
                if line.suites.last() != Some(suite) || cached.is_some() {
                    progress.step(&error.to_string());
                }
                problem.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    let problem = problem.expect("a line has at least one suite: checked when the board is loaded");
    match cached {
        Some(kernel) => {
            progress.step(&format!("using kernel {} {} of an earlier fetch", line.name, kernel.version));
            Ok(kernel)
        }
        None => Err(problem),
    }
}

fn line_dir(board: &Board, line: &KernelLine) -> Result<PathBuf, Error> {
    Ok(cache_dir()?.join("kernels").join(&board.kernels_of).join(&line.name))
}

/// The version of a line that was resolved last, if it is complete.
fn cached(board: &Board, line: &KernelLine) -> Option<Kernel> {
    let dir = std::fs::canonicalize(line_dir(board, line).ok()?.join("current")).ok()?;
    open_cached(line, &dir).ok()
}

/// The kernel's release, without reading its modules.
pub(super) fn cached_release(board: &Board, line: &KernelLine) -> Option<String> {
    let dir = std::fs::canonicalize(line_dir(board, line).ok()?.join("current")).ok()?;
    read_cached(line, &dir).ok().map(|(cached, _)| cached.release)
}

/// The stored data of an unpacked kernel, and the path of its image.
fn read_cached(line: &KernelLine, dir: &Path) -> Result<(Cached, PathBuf), Error> {
    let path = dir.join("kernel.json");
    let text = std::fs::read(&path).map_err(|e| Error::io(&path, e))?;
    let bad = |problem: String| Error::BadModules { kernel: line.name.clone(), path: path.clone(), problem };
    let cached: Cached = serde_json::from_slice(&text).map_err(|e| bad(e.to_string()))?;
    let vmlinuz = dir.join("root").join(&cached.vmlinuz);
    if !vmlinuz.is_file() {
        return Err(bad(format!("{} is missing", cached.vmlinuz)));
    }
    Ok((cached, vmlinuz))
}

fn open_cached(line: &KernelLine, dir: &Path) -> Result<Kernel, Error> {
    let (cached, vmlinuz) = read_cached(line, dir)?;
    let modules_root = dir.join("root/lib/modules").join(&cached.release);
    let index = ModuleIndex::read(&cached.release, &modules_root, &modules_root)?;
    Ok(Kernel {
        name: line.name.clone(),
        release: cached.release,
        package: cached.package,
        version: cached.version,
        suite: Some(cached.suite),
        sha256: cached.sha256,
        vmlinuz,
        modules_root,
        index: Arc::new(index),
    })
}

/// Resolves, downloads and unpacks a kernel. If the index does not match the mirror's packages, it is updated once.
fn fetch_from(board: &Board, line: &KernelLine, suite: &str, progress: &dyn Progress) -> Result<Kernel, Error> {
    let apt = apt::Apt::open(suite, &board.arch, true, progress)?;
    let download = |apt: &apt::Apt| -> Result<(Resolved, ScratchDir, Vec<apt::Deb>), Error> {
        let resolved = stanza::resolve(line, suite, &|name| apt.show(name))?;
        let dir = ScratchDir::new("kernel")?;
        let target = line_dir(board, line)?.join(&resolved.version);
        if open_cached(line, &target).is_ok() {
            return Ok((resolved, dir, Vec::new()));
        }
        let wanted: Vec<String> =
            resolved.packages.iter().map(|stanza| format!("{}={}", stanza.package, stanza.version)).collect();
        progress.step(&format!("fetching kernel {} for {}: {}", line.name, board.name, resolved.packages[0].package));
        let debs = apt.download(&wanted, dir.path(), progress)?;
        Ok((resolved, dir, debs))
    };
    let (resolved, dir, debs) = match download(&apt) {
        Err(Error::Download { problem, .. }) => {
            progress.step(&format!("{suite}: {problem}; updating its index again"));
            apt.update(progress)?;
            download(&apt)?
        }
        other => other?,
    };
    let target = line_dir(board, line)?.join(&resolved.version);
    if !debs.is_empty() {
        progress.step(&format!("unpacking kernel {}", line.name));
        let root = dir.path().join("root");
        for deb in &debs {
            let deb = dir.path().join(&deb.file);
            apt::unpack(&deb, &root)?;
            std::fs::remove_file(&deb).map_err(|e| Error::io(&deb, e))?;
        }
        for unused in ["usr/share", "usr/lib/linux-image-"] {
            remove_unused(&root, unused);
        }
        // Packages of 7.x have modules only below usr/lib.
        if !root.join("lib").exists() {
            let link = root.join("lib");
            std::os::unix::fs::symlink("usr/lib", &link).map_err(|e| Error::io(&link, e))?;
        }
        let release = one_release(&root.join("lib/modules")).map_err(|problem| Error::BadModules {
            kernel: line.name.clone(),
            path: root.join("lib/modules"),
            problem,
        })?;
        modules::depmod(&root, &release)?;
        let modules = root.join("lib/modules").join(&release);
        remove_tree(&modules.join("dtb"));
        ModuleIndex::read(&release, &modules, &modules)?;
        let vmlinuz = find_image(&root).map_err(|problem| Error::BadModules {
            kernel: line.name.clone(),
            path: root.join("boot"),
            problem,
        })?;
        let image = std::fs::read(root.join(&vmlinuz)).map_err(|e| Error::io(&vmlinuz, e))?;
        let cached = Cached {
            release,
            package: resolved.packages[0].package.clone(),
            version: resolved.packages[0].version.clone(),
            suite: suite.to_owned(),
            sha256: hex(&Sha256::digest(image)),
            vmlinuz: vmlinuz.display().to_string(),
            packages: resolved
                .packages
                .iter()
                .map(|stanza| CachedPackage {
                    package: stanza.package.clone(),
                    version: stanza.version.clone(),
                    sha256: stanza.sha256.clone(),
                })
                .collect(),
        };
        let path = dir.path().join("kernel.json");
        let text = serde_json::to_vec_pretty(&cached).expect("strings serialise");
        std::fs::write(&path, text).map_err(|e| Error::io(&path, e))?;
        // If another process was faster, its kernel stays, because it may be booting. A kernel that cannot be opened is replaced.
        if open_cached(line, &target).is_err() {
            let aside = ScratchDir::new("broken")?;
            std::fs::rename(&target, aside.path().join("kernel")).ok();
            apt::publish(dir, &target)?;
        }
    }
    // `current` is replaced by rename, so it always points to a complete version.
    let swap = ScratchDir::new("current")?;
    let link = swap.path().join("current");
    let failed = |e| Error::io(&link, e);
    std::os::unix::fs::symlink(&resolved.version, &link).map_err(failed)?;
    std::fs::rename(&link, line_dir(board, line)?.join("current")).map_err(failed)?;
    open_cached(line, &target)
}

/// Removes documentation and device trees: half of a kernel's packages, and not used by our boards.
fn remove_unused(root: &Path, path: &str) {
    let (parent, prefix) = path.rsplit_once('/').unwrap_or(("", path));
    for entry in std::fs::read_dir(root.join(parent)).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            remove_tree(&entry.path());
        }
    }
}

/// The only release below lib/modules.
fn one_release(dir: &Path) -> Result<String, String> {
    let entries = std::fs::read_dir(dir).map_err(|e| e.to_string())?;
    let mut names: Vec<String> = entries
        .flatten()
        .filter(|entry| entry.path().is_dir())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    match names.len() {
        1 => Ok(names.remove(0)),
        0 => Err("no release in it".to_owned()),
        _ => Err(format!("several releases in it: {}", names.join(", "))),
    }
}

/// The only kernel image in a tree or its boot/, relative to the tree.
fn find_image(root: &Path) -> Result<PathBuf, String> {
    let mut found = Vec::new();
    for dir in ["", "boot", "usr/lib/modules", "lib/modules"] {
        let base = root.join(dir);
        let releases = std::fs::read_dir(&base).into_iter().flatten().flatten().map(|entry| entry.path());
        let dirs: Vec<PathBuf> = if dir.ends_with("modules") { releases.collect() } else { vec![base] };
        for dir in dirs {
            for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                let image = ["vmlinuz", "zImage", "bzImage"]
                    .iter()
                    .any(|kind| name == *kind || name.strip_prefix(kind).is_some_and(|rest| rest.starts_with('-')));
                if image && entry.path().is_file() {
                    found.extend(entry.path().strip_prefix(root).ok().map(Path::to_owned));
                }
            }
            if !found.is_empty() {
                break;
            }
        }
        if !found.is_empty() {
            break;
        }
    }
    found.sort();
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => Err("no kernel image in it".to_owned()),
        _ => Err(format!("several kernel images in it: {}", found[0].display())),
    }
}

/// A user's own kernel. Nothing is written to its directory.
fn own(dir: &Path) -> Result<Kernel, Error> {
    let bad = |problem: String| Error::OwnKernel { path: dir.to_owned(), problem };
    if !dir.is_dir() {
        return Err(bad("no such directory".to_owned()));
    }
    let vmlinuz = dir.join(find_image(dir).map_err(bad)?);
    let image = std::fs::read(&vmlinuz).map_err(|e| Error::io(&vmlinuz, e))?;
    let base = ["", "usr"].iter().map(|prefix| dir.join(prefix)).find(|base| base.join("lib/modules").is_dir());
    let (release, modules_root, index) = match base {
        None => ("unknown".to_owned(), dir.to_owned(), ModuleIndex::without_modules()),
        Some(base) => {
            let release = one_release(&base.join("lib/modules")).map_err(bad)?;
            let modules_root = base.join("lib/modules").join(&release);
            let scratch = ScratchDir::new("depmod")?;
            let dep_dir = modules::depmod_elsewhere(&modules_root, scratch.path(), &release)?;
            let index = ModuleIndex::read(&release, &modules_root, &dep_dir)?;
            (release, modules_root, index)
        }
    };
    Ok(Kernel {
        name: dir.display().to_string(),
        release,
        package: "user's own".to_owned(),
        version: String::new(),
        suite: None,
        sha256: hex(&Sha256::digest(image)),
        vmlinuz,
        modules_root,
        index: Arc::new(index),
    })
}
