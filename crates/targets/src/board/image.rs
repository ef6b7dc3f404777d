//! The boot image: all inputs of a run, fixed before power-on.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufWriter, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flashscope_output::hex;
use sha2::{Digest, Sha256};

use super::cpio::{self, Contents, Entry};
use super::modules::{self, name_of};
use super::{Board, DiskSettings, Kernel, MOUNT_POINT, Package, disk, external};
use crate::agents;
use crate::error::Error;
use crate::progress::NoProgress;
use crate::scratch::{ScratchDir, cache_subdir};

/// A finished boot image: a cpio archive in the cache, named by the hash of its contents.
#[derive(Clone, Debug)]
pub struct Image {
    pub path: PathBuf,
    pub sha256: String,
    pub agent_sha256: String,
    pub size_bytes: u64,
    pub(super) disk: Option<ImageDisk>,
    /// An image with a private file is removed with this directory.
    _private: Option<Arc<ScratchDir>>,
}

/// A disk file for QEMU; each run gets a copy.
#[derive(Clone, Debug)]
pub(super) struct ImageDisk {
    pub qemu_args: Vec<String>,
    pub contents: disk::Contents,
}

/// Composes a boot image. Equal calls give equal bytes on every host.
///
/// The image has the agent at `/flashscope/agent` (and `/init`), the plan at `/flashscope/plan`, and modules in `/flashscope/modules`.
/// `/bin`, `/sbin`, `/lib` and `/lib64` are links to `/usr`, as in Debian.
#[derive(Debug)]
pub struct ImageBuilder {
    entries: BTreeMap<String, Entry>,
    /// Modules that earlier calls have returned.
    loaded: BTreeSet<String>,
    agent_sha256: String,
    port_modules: Vec<String>,
    net_modules: Vec<String>,
    board: String,
    /// Debian's name of its architecture.
    arch: String,
    nand: Option<super::Chip>,
    disk: Option<super::Disk>,
    image_disk: Option<ImageDisk>,
    problem: Option<String>,
    has_private_file: bool,
}

const MERGED: [&str; 5] = ["bin", "lib", "lib32", "lib64", "sbin"];

/// Directories in packages that a board does not need.
const UNUSED: [&str; 8] = [
    "usr/share/doc",
    "usr/share/man",
    "usr/share/info",
    "usr/share/locale",
    "usr/share/lintian",
    "usr/share/bug",
    "usr/share/doc-base",
    "usr/share/bash-completion",
];

/// Names for busybox on a board. Debian's package has no links, and its shell finds applets only by links. A name that a build does not
/// support fails with a message when called.
const APPLETS: &str = "[ ash awk base64 basename cat chgrp chmod chown clear cmp cp cut date dd df diff dirname dmesg du \
    echo env expr false find free getopt grep gunzip gzip head hexdump hostname id ifconfig insmod ip kill killall less ln \
    losetup ls lsmod md5sum mkdir mkfifo mknod mktemp modprobe more mount mountpoint mv nc nproc od patch pidof ping \
    printf ps pwd readlink realpath reset rm rmdir rmmod route sed seq setsid sh sha256sum sleep sort stat strings stty \
    swapoff sync sysctl tail tar tee test time timeout top touch tr true truncate tty umount uname uniq unxz uptime usleep \
    vi watch wc wget which xargs xxd xz yes zcat";

impl ImageBuilder {
    /// An image with the agent for the board's architecture, without a plan.
    pub fn new(board: &Board) -> Result<ImageBuilder, Error> {
        let agent = agents::agent_bytes(&board.agent)?;
        let mut builder = ImageBuilder {
            entries: BTreeMap::new(),
            loaded: BTreeSet::new(),
            agent_sha256: hex(&Sha256::digest(&agent)),
            port_modules: board.modules.port.clone(),
            net_modules: board.modules.net.clone(),
            board: board.name.clone(),
            arch: board.arch.clone(),
            nand: board.chip().cloned(),
            disk: board.disk().cloned(),
            image_disk: None,
            problem: None,
            has_private_file: false,
        };
        for dir in ["dev", "etc", "mnt", "proc", "root", "run", "sys", "tmp", "usr", "var"] {
            builder.insert(dir, 0o755, Contents::Directory);
        }
        for name in MERGED {
            builder.insert(&format!("usr/{name}"), 0o755, Contents::Directory);
            builder.insert(name, 0o777, Contents::Link(format!("usr/{name}")));
        }
        builder.insert("dev/console", 0o600, Contents::Device(5, 1));
        builder.insert("flashscope/agent", 0o755, Contents::Bytes(agent));
        builder.insert("init", 0o777, Contents::Link("/flashscope/agent".to_owned()));
        Ok(builder)
    }

    fn insert(&mut self, path: &str, mode: u32, contents: Contents) {
        for (at, _) in path.match_indices('/') {
            let parent = &path[..at];
            self.entries
                .entry(parent.to_owned())
                .or_insert_with(|| Entry { mode: 0o755, contents: Contents::Directory });
        }
        self.entries.insert(path.to_owned(), Entry { mode, contents });
    }

    /// Adds a file; [`ImageBuilder::build`] reports a path that is not absolute and plain.
    pub fn add_file(&mut self, path: &str, mode: u32, bytes: Vec<u8>) {
        match canonical(path) {
            Some(path) => self.insert(&path, mode & 0o7777, Contents::Bytes(bytes)),
            None => {
                self.problem.get_or_insert_with(|| format!("{path:?} is not an absolute path; name one"));
            }
        }
    }

    /// Adds a file that must not stay in the cache: the image is removed after its last use.
    pub fn add_private_file(&mut self, path: &str, mode: u32, bytes: Vec<u8>) {
        self.has_private_file = true;
        self.add_file(path, mode, bytes);
    }

    /// Adds modules and their dependencies. Returns their paths in the guest in load order, without modules that are built in or were
    /// returned before. A module of ours that the kernel lacks is built ([`Board::build_module`]).
    pub fn add_module_closure(&mut self, kernel: &Kernel, names: &[&str]) -> Result<Vec<String>, Error> {
        let mut paths = Vec::new();
        for name in names {
            if kernel.index.has(name) || !external::is_ours(name) {
                paths.extend(self.add_kernels_own(kernel, name)?);
                continue;
            }
            let module = external::build(&self.board, &self.arch, kernel, name, &NoProgress)?;
            for need in &module.needs {
                paths.extend(self.add_kernels_own(kernel, need)?);
            }
            if self.loaded.insert(module.name.clone()) {
                let path = format!("flashscope/modules/{}.ko", module.name);
                let bytes = std::fs::read(&module.path).map_err(|e| Error::io(&module.path, e))?;
                self.insert(&path, 0o644, Contents::Bytes(bytes));
                paths.push(format!("/{path}"));
            }
        }
        Ok(paths)
    }

    fn add_kernels_own(&mut self, kernel: &Kernel, name: &str) -> Result<Vec<String>, Error> {
        let files = kernel.index.closure(&kernel.release, &[name], &mut self.loaded)?;
        let mut paths = Vec::new();
        for file in files {
            let bytes = modules::read_module(&kernel.modules_root.join(&file))?;
            let path = format!("flashscope/modules/{}.ko", name_of(&file));
            self.insert(&path, 0o644, Contents::Bytes(bytes));
            paths.push(format!("/{path}"));
        }
        Ok(paths)
    }

    fn module_lines(&mut self, kernel: &Kernel, names: &[String]) -> Result<Vec<String>, Error> {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let paths = self.add_module_closure(kernel, &names)?;
        Ok(paths.into_iter().map(|path| format!("module {path}")).collect())
    }

    /// Adds the modules for the results' port. Returns the lines of the plan that load them, which must come first.
    pub fn add_port_modules(&mut self, kernel: &Kernel) -> Result<Vec<String>, Error> {
        let names = self.port_modules.clone();
        self.module_lines(kernel, &names)
    }

    /// Adds the modules for a network device. Returns the lines of the plan.
    pub fn add_net_modules(&mut self, kernel: &Kernel) -> Result<Vec<String>, Error> {
        let names = self.net_modules.clone();
        self.module_lines(kernel, &names)
    }

    /// Adds the board's chip with partitions of this many erase blocks (the rest of the chip becomes one more partition). Returns the lines
    /// of the plan; `/dev/mtd0` exists after them.
    pub fn add_nand(&mut self, kernel: &Kernel, parts: &[u64]) -> Result<Vec<String>, Error> {
        let Some(nand) = self.nand.clone() else {
            return Err(Error::Image(format!("board {} has no raw NAND; take one with a chip, as armv7", self.board)));
        };
        let blocks: u64 = parts.iter().sum();
        if blocks > u64::from(nand.blocks) || parts.contains(&0) {
            return Err(Error::Image(format!(
                "partitions of {parts:?} erase blocks do not fit the {} of {}; take smaller files",
                nand.blocks, nand.name
            )));
        }
        let mut lines = self.module_lines(kernel, &["nandsim".to_owned()])?;
        let Some(last) = lines.last_mut().filter(|line| line.ends_with("/nandsim.ko")) else {
            return Err(Error::Image(format!(
                "kernel {} has nandsim built in, where it takes no parameters; build it as a module",
                kernel.release
            )));
        };
        for param in nand.nandsim_params(parts) {
            last.push(' ');
            last.push_str(&param);
        }
        Ok(lines)
    }

    /// Adds the board's disk with the file system of its settings. Returns the lines of the plan. After them the device exists, nothing of
    /// it is cached, and nothing is mounted.
    pub fn add_disk(&mut self, kernel: &Kernel, settings: &DiskSettings) -> Result<Vec<String>, Error> {
        let Some(disk) = self.disk.clone() else {
            return Err(Error::Image(format!("board {} has no disk; take one that has, as armv7-blk", self.board)));
        };
        let mut lines = Vec::new();
        for (name, parameters) in disk.modules(settings) {
            for path in self.add_module_closure(kernel, &[&name])? {
                let own = name_of(&path) == name.replace('-', "_") && !parameters.is_empty();
                lines.push(if own { format!("module {path} {parameters}") } else { format!("module {path}") });
            }
        }
        lines.extend(disk.setup(settings));
        let filesystem = settings.filesystem().map_err(|problem| Error::Disk { board: self.board.clone(), problem })?;
        let contents = match filesystem {
            Some(filesystem) => {
                for path in self.add_module_closure(kernel, &[filesystem.name()])? {
                    lines.push(format!("module {path}"));
                }
                filesystem.make(settings.size_bytes())?
            }
            None => disk::Contents::empty(settings.size_bytes()),
        };
        // QEMU's files besides the image are inputs of the run too.
        self.insert("flashscope/disk.sha256", 0o644, Contents::Bytes(contents.sha256().into_bytes()));
        if disk.is_file() {
            self.image_disk = Some(ImageDisk { qemu_args: disk.qemu_args(settings), contents });
        } else {
            for (index, (offset, bytes)) in contents.pieces.into_iter().enumerate() {
                let path = format!("flashscope/disk.{index}");
                lines.push(format!("disk-write {} /{path} {offset}", disk.device));
                self.insert(&path, 0o644, Contents::Bytes(bytes));
            }
        }
        Ok(lines)
    }

    /// Adds the board's storage: its chip with partitions, as `/dev/mtd0` and so on; or its disk, mounted on [`MOUNT_POINT`] if it has a
    /// file system.
    pub fn add_storage(
        &mut self,
        kernel: &Kernel,
        parts: &[u64],
        settings: Option<&DiskSettings>,
    ) -> Result<Vec<String>, Error> {
        let mut lines = Vec::new();
        if self.nand.is_some() {
            lines.extend(self.add_nand(kernel, parts)?);
            lines.push("device-wait /dev/mtd0 10000".to_owned());
        }
        if let (Some(disk), Some(settings)) = (self.disk.clone(), settings) {
            lines.extend(self.add_disk(kernel, settings)?);
            if let Ok(Some(filesystem)) = settings.filesystem() {
                lines.push(format!("mount {} {MOUNT_POINT} {} -", disk.device, filesystem.name()));
            }
        }
        Ok(lines)
    }

    /// Adds packages' files, without documentation and translations. busybox gets links for commands that no other package has.
    pub fn add_packages(&mut self, packages: &[Package]) -> Result<(), Error> {
        self.add_packages_under("", packages)
    }

    /// Adds a directory `/NAME` with a root file system of its own: packages' files, as in [`ImageBuilder::add_packages`].
    pub fn add_root(&mut self, name: &str, packages: &[Package]) -> Result<(), Error> {
        for dir in MERGED {
            self.insert(&format!("{name}/usr/{dir}"), 0o755, Contents::Directory);
            self.insert(&format!("{name}/{dir}"), 0o777, Contents::Link(format!("usr/{dir}")));
        }
        self.add_packages_under(&format!("{name}/"), packages)
    }

    fn add_packages_under(&mut self, under: &str, packages: &[Package]) -> Result<(), Error> {
        packages.iter().try_for_each(|package| self.add_tree(&package.root, "", under))?;
        if self.entries.contains_key(&format!("{under}usr/bin/busybox")) {
            for applet in APPLETS.split_whitespace() {
                let places = ["usr/bin", "usr/sbin"].map(|dir| format!("{under}{dir}/{applet}"));
                if !places.iter().any(|path| self.entries.contains_key(path)) {
                    self.insert(&places[0], 0o777, Contents::Link("busybox".to_owned()));
                }
            }
        }
        Ok(())
    }

    /// Adds the files in `inside` of a tree, below a directory of the image (`under` is empty or ends in a slash).
    fn add_tree(&mut self, root: &Path, inside: &str, under: &str) -> Result<(), Error> {
        let dir = root.join(inside);
        let mut children = Vec::new();
        for entry in std::fs::read_dir(&dir).map_err(|e| Error::io(&dir, e))? {
            children.push(entry.map_err(|e| Error::io(&dir, e))?);
        }
        for child in children {
            let Ok(name) = child.file_name().into_string() else { continue };
            let path = if inside.is_empty() { name } else { format!("{inside}/{name}") };
            let Some(target) = canonical(&format!("/{path}")) else { continue };
            let placed = format!("{under}{target}");
            let meta = child.metadata().map_err(|e| Error::io(&child.path(), e))?;
            let mode = meta.permissions().mode() & 0o7777;
            if meta.is_dir() {
                if UNUSED.contains(&target.as_str()) {
                    continue;
                }
                if !MERGED.contains(&target.as_str()) {
                    // A directory that exists in the image keeps its mode.
                    self.entries.entry(placed).or_insert(Entry { mode, contents: Contents::Directory });
                }
                self.add_tree(root, &path, under)?;
            } else if meta.is_symlink() {
                let link = std::fs::read_link(child.path()).map_err(|e| Error::io(&child.path(), e))?;
                if !MERGED.contains(&target.as_str())
                    && let Some(link) = link.to_str()
                {
                    self.insert(&placed, 0o777, Contents::Link(link.to_owned()));
                }
            } else if meta.is_file() {
                self.insert(&placed, mode, Contents::File(child.path(), meta.len()));
            }
        }
        Ok(())
    }

    /// Sets the plan, one verb per line.
    pub fn set_plan<S: AsRef<str>>(&mut self, lines: &[S]) {
        let mut text = String::new();
        for line in lines {
            text.push_str(line.as_ref());
            text.push('\n');
        }
        self.insert("flashscope/plan", 0o644, Contents::Bytes(text.into_bytes()));
    }

    /// Writes the image to the cache; with a private file, to a directory of this process.
    pub fn build(self) -> Result<Image, Error> {
        if let Some(problem) = self.problem {
            return Err(Error::Image(problem));
        }
        if !self.entries.contains_key("flashscope/plan") {
            return Err(Error::Image("no plan was set".to_owned()));
        }
        let scratch = ScratchDir::new("image")?;
        let partial = scratch.path().join("image.cpio");
        let failed = |e| Error::io(&partial, e);
        let file = std::fs::File::create(&partial).map_err(failed)?;
        let mut out = Hashing { inner: BufWriter::with_capacity(1 << 18, file), hash: Sha256::new(), size: 0 };
        cpio::write(&self.entries, &mut out).and_then(|()| out.flush()).map_err(failed)?;
        let sha256 = hex(&out.hash.finalize());
        let (path, private) = if self.has_private_file {
            (partial, Some(Arc::new(scratch)))
        } else {
            let path = cache_subdir("images")?.join(format!("{sha256}.cpio"));
            std::fs::rename(&partial, &path).map_err(|e| Error::io(&path, e))?;
            (path, None)
        };
        let disk = self.image_disk;
        Ok(Image { path, sha256, agent_sha256: self.agent_sha256, size_bytes: out.size, disk, _private: private })
    }
}

struct Hashing<W> {
    inner: W,
    hash: Sha256,
    size: u64,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let n = self.inner.write(bytes)?;
        self.hash.update(&bytes[..n]);
        self.size += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}

/// An absolute path in the image's form: no leading slash, only plain names, `/lib/…` as `usr/lib/…`.
fn canonical(path: &str) -> Option<String> {
    let path = path.strip_prefix('/')?;
    let plain = |name: &str| !name.is_empty() && name != "." && name != ".." && !name.contains('\0');
    if !path.split('/').all(plain) {
        return None;
    }
    let merged = path.split_once('/').is_some_and(|(first, _)| MERGED.contains(&first));
    Some(if merged { format!("usr/{path}") } else { path.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_merged_into_usr_and_tricks_are_refused() {
        assert_eq!(canonical("/lib/ld-linux-armhf.so.3").as_deref(), Some("usr/lib/ld-linux-armhf.so.3"));
        assert_eq!(canonical("/library/x").as_deref(), Some("library/x"));
        assert_eq!(canonical("/bin").as_deref(), Some("bin"));
        for bad in ["relative", "/a//b", "/../etc", "/a/./b", "/", ""] {
            assert_eq!(canonical(bad), None, "{bad}");
        }
    }
}
