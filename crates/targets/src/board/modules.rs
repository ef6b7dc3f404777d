//! Finds the kernel modules to load, and their order.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::Error;
use crate::process;

/// depmod's data about a kernel's modules.
#[derive(Clone, Debug, Default)]
pub(super) struct ModuleIndex {
    /// Name → file (relative to the modules' directory) and its dependencies, nearest first.
    files: HashMap<String, (String, Vec<String>)>,
    built_in: HashSet<String>,
    /// `softdep NAME pre: …`: modules to load before it, by name or alias.
    soft: HashMap<String, Vec<String>>,
    /// Aliases without wildcards.
    aliases: HashMap<String, String>,
    /// A kernel without modules: all are assumed to be built in.
    none: bool,
}

/// Modules that others request by name from the crypto layer, so that modules.dep lacks them. UBIFS does not mount without the compressors
/// that it was built with (fs/ubifs/compress.c, `compr_init`).
const ASKED_FOR_BY_NAME: [(&str, &[&str]); 1] = [("ubifs", &["deflate", "lzo", "zstd"])];

/// The kernel option for each module (Kconfig of Linux 6.1).
const OPTIONS: [(&str, &str); 25] = [
    ("nandsim", "CONFIG_MTD_NAND_NANDSIM"),
    ("mtdram", "CONFIG_MTD_MTDRAM"),
    ("block2mtd", "CONFIG_MTD_BLOCK2MTD"),
    ("mtdblock", "CONFIG_MTD_BLOCK"),
    ("jffs2", "CONFIG_JFFS2_FS"),
    ("ubi", "CONFIG_MTD_UBI"),
    ("ubifs", "CONFIG_UBIFS_FS"),
    ("squashfs", "CONFIG_SQUASHFS"),
    ("ext4", "CONFIG_EXT4_FS"),
    ("f2fs", "CONFIG_F2FS_FS"),
    ("null_blk", "CONFIG_BLK_DEV_NULL_BLK"),
    ("loop", "CONFIG_BLK_DEV_LOOP"),
    ("mmc_block", "CONFIG_MMC_BLOCK"),
    ("sdhci_pci", "CONFIG_MMC_SDHCI_PCI"),
    ("mq_deadline", "CONFIG_MQ_IOSCHED_DEADLINE"),
    ("kyber_iosched", "CONFIG_MQ_IOSCHED_KYBER"),
    ("bfq", "CONFIG_IOSCHED_BFQ"),
    ("virtio_mmio", "CONFIG_VIRTIO_MMIO"),
    ("virtio_pci", "CONFIG_VIRTIO_PCI"),
    ("virtio_console", "CONFIG_VIRTIO_CONSOLE"),
    ("virtio_net", "CONFIG_VIRTIO_NET"),
    ("deflate", "CONFIG_CRYPTO_DEFLATE"),
    ("lzo", "CONFIG_CRYPTO_LZO"),
    ("zstd", "CONFIG_CRYPTO_ZSTD"),
    ("overlay", "CONFIG_OVERLAY_FS"),
];

/// The kernel's name of a module: for `kernel/drivers/…/virtio-rng.ko.xz`, `virtio_rng`.
pub(super) fn name_of(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    let stem = file.split(".ko").next().unwrap_or(file);
    stem.replace('-', "_")
}

impl ModuleIndex {
    pub(super) fn without_modules() -> ModuleIndex {
        ModuleIndex { none: true, ..ModuleIndex::default() }
    }

    /// Reads `modules.dep` and related files from `dep_dir`, and `modules.builtin` from the modules' own directory.
    pub(super) fn read(kernel: &str, modules: &Path, dep_dir: &Path) -> Result<ModuleIndex, Error> {
        let required = |path: PathBuf| {
            std::fs::read_to_string(&path).map_err(|e| Error::BadModules {
                kernel: kernel.to_owned(),
                problem: e.to_string(),
                path,
            })
        };
        let dep = required(dep_dir.join("modules.dep"))?;
        let built_in = required(modules.join("modules.builtin"))?;
        let optional = |name: &str| std::fs::read_to_string(dep_dir.join(name)).unwrap_or_default();
        Ok(ModuleIndex::parse(&dep, &built_in, &optional("modules.softdep"), &optional("modules.alias")))
    }

    fn parse(dep: &str, built_in: &str, softdep: &str, alias: &str) -> ModuleIndex {
        let mut index = ModuleIndex::default();
        for line in dep.lines() {
            let Some((file, needs)) = line.split_once(':') else { continue };
            let needs = needs.split_whitespace().map(str::to_owned).collect();
            index.files.insert(name_of(file), (file.to_owned(), needs));
        }
        index.built_in = built_in.lines().filter(|line| !line.is_empty()).map(name_of).collect();
        for line in softdep.lines() {
            let Some(rest) = line.strip_prefix("softdep ") else { continue };
            let mut words = rest.split_whitespace();
            let Some(name) = words.next() else { continue };
            let before = words.skip_while(|w| *w != "pre:").skip(1).take_while(|w| *w != "post:").map(str::to_owned);
            index.soft.entry(name.replace('-', "_")).or_default().extend(before);
        }
        for line in alias.lines() {
            let mut words = line.split_whitespace();
            if let (Some("alias"), Some(alias), Some(name)) = (words.next(), words.next(), words.next())
                && !alias.contains(['*', '?', '['])
            {
                index.aliases.insert(alias.to_owned(), name.replace('-', "_"));
            }
        }
        index
    }

    /// Whether the kernel has the module, built in or as a file.
    pub(super) fn has(&self, name: &str) -> bool {
        let name = name.replace('-', "_");
        self.none || self.built_in.contains(&name) || self.files.contains_key(&name)
    }

    /// Files to load for these modules, dependencies first, without built-in modules and those in `loaded`.
    pub(super) fn closure(
        &self,
        kernel: &str,
        names: &[&str],
        loaded: &mut BTreeSet<String>,
    ) -> Result<Vec<String>, Error> {
        let mut order = Vec::new();
        if self.none {
            return Ok(order);
        }
        for name in names {
            let name = name.replace('-', "_");
            if !self.add(&name, 0, loaded, &mut order) {
                let option = OPTIONS.iter().find(|(module, _)| *module == name).map(|(_, option)| *option);
                return Err(Error::NoModule { kernel: kernel.to_owned(), module: name, option });
            }
        }
        Ok(order)
    }

    /// Adds a module and its dependencies. Returns false if the kernel has no such module.
    fn add(&self, name: &str, depth: u32, loaded: &mut BTreeSet<String>, order: &mut Vec<String>) -> bool {
        // Soft dependencies may be circular; hard ones are flat in modules.dep.
        if self.built_in.contains(name) || loaded.contains(name) || depth > 8 {
            return true;
        }
        let Some((file, needs)) = self.files.get(name) else { return false };
        for wanted in self.wanted_first(name) {
            let resolved = if self.files.contains_key(&wanted) { Some(&wanted) } else { self.aliases.get(&wanted) };
            if let Some(resolved) = resolved {
                self.add(resolved, depth + 1, loaded, order);
            }
        }
        for need in needs.iter().rev() {
            let need_name = name_of(need);
            for wanted in self.wanted_first(&need_name) {
                let resolved = if self.files.contains_key(&wanted) { Some(&wanted) } else { self.aliases.get(&wanted) };
                if let Some(resolved) = resolved
                    && resolved != name
                {
                    self.add(resolved, depth + 1, loaded, order);
                }
            }
            if loaded.insert(need_name) {
                order.push(need.clone());
            }
        }
        if loaded.insert(name.to_owned()) {
            order.push(file.clone());
        }
        true
    }

    /// Modules to load before a module, if the kernel has them.
    fn wanted_first(&self, name: &str) -> Vec<String> {
        let by_name = ASKED_FOR_BY_NAME.iter().find(|(module, _)| *module == name).map_or(&[][..], |(_, names)| names);
        let soft = self.soft.get(name).into_iter().flatten().cloned();
        by_name.iter().map(|name| (*name).to_owned()).chain(soft).collect()
    }
}

/// Runs depmod for a kernel's modules in base/lib/modules/RELEASE, where it writes its files.
pub(super) fn depmod(base: &Path, release: &str) -> Result<(), Error> {
    let program = process::find_program("depmod")
        .ok_or_else(|| Error::ProgramMissing { program: "depmod".to_owned(), package: "kmod".to_owned() })?;
    process::checked(Command::new(program).arg("-b").arg(base).arg(release), "kmod").map(drop)
}

/// Runs depmod for modules in a read-only directory, through a tree of links below `base`. Returns the directory with depmod's files.
pub(super) fn depmod_elsewhere(modules: &Path, base: &Path, release: &str) -> Result<PathBuf, Error> {
    let dir = base.join("lib/modules").join(release);
    std::fs::create_dir_all(&dir).map_err(|e| Error::io(&dir, e))?;
    let modules = std::fs::canonicalize(modules).map_err(|e| Error::io(modules, e))?;
    for entry in std::fs::read_dir(&modules).map_err(|e| Error::io(&modules, e))?.flatten() {
        let name = entry.file_name();
        let input = ["modules.builtin", "modules.builtin.modinfo", "modules.order"].iter().any(|input| name == *input);
        // `build` and `source` point out of the tree.
        let tree = entry.path().is_dir() && name != "build" && name != "source";
        if input || tree {
            let link = dir.join(&name);
            std::os::unix::fs::symlink(entry.path(), &link).map_err(|e| Error::io(&link, e))?;
        }
    }
    depmod(base, release)?;
    Ok(dir)
}

/// A module's bytes, decompressed according to its file name.
pub(super) fn read_module(path: &Path) -> Result<Vec<u8>, Error> {
    let (program, package) = match path.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => ("xz", "xz-utils"),
        Some("zst") => ("zstd", "zstd"),
        Some("gz") => ("gzip", "gzip"),
        _ => return std::fs::read(path).map_err(|e| Error::io(path, e)),
    };
    process::checked(Command::new(program).arg("-dcq").arg(path), package)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEP: &str = "\
kernel/drivers/mtd/mtd.ko.xz:
kernel/lib/bch.ko.xz:
kernel/drivers/mtd/nand/nandcore.ko.xz: kernel/drivers/mtd/mtd.ko.xz
kernel/drivers/mtd/nand/raw/nand.ko.xz: kernel/drivers/mtd/nand/nandcore.ko.xz kernel/lib/bch.ko.xz kernel/drivers/mtd/mtd.ko.xz
kernel/drivers/mtd/nand/raw/nandsim.ko.xz: kernel/drivers/mtd/nand/raw/nand.ko.xz kernel/drivers/mtd/nand/nandcore.ko.xz kernel/lib/bch.ko.xz kernel/drivers/mtd/mtd.ko.xz
kernel/fs/ubifs/ubifs.ko.xz: kernel/drivers/mtd/ubi/ubi.ko.xz kernel/drivers/mtd/mtd.ko.xz
kernel/drivers/mtd/ubi/ubi.ko.xz: kernel/drivers/mtd/mtd.ko.xz
kernel/crypto/deflate.ko.xz:
kernel/crypto/crc32c-generic.ko.xz:
kernel/fs/ext4/ext4.ko.xz:
";

    fn index() -> ModuleIndex {
        ModuleIndex::parse(
            DEP,
            "kernel/drivers/virtio/virtio_mmio.ko\nkernel/crypto/lzo.ko\n",
            "# comment\nsoftdep ext4 pre: crc32c\n",
            "alias crc32c crc32c_generic\nalias pci:v* e1000\n",
        )
    }

    fn names(index: &ModuleIndex, wanted: &[&str]) -> Vec<String> {
        index.closure("k", wanted, &mut BTreeSet::new()).unwrap().iter().map(|path| name_of(path)).collect()
    }

    #[test]
    fn what_a_module_needs_comes_first_and_once() {
        assert_eq!(names(&index(), &["nandsim"]), ["mtd", "bch", "nandcore", "nand", "nandsim"]);
        assert_eq!(
            names(&index(), &["nandsim", "ubi", "nandsim"]),
            ["mtd", "bch", "nandcore", "nand", "nandsim", "ubi"]
        );
    }

    #[test]
    fn built_in_modules_are_skipped() {
        assert_eq!(names(&index(), &["virtio-mmio"]), Vec::<String>::new());
    }

    #[test]
    fn what_is_asked_for_by_name_or_softly_comes_where_the_kernel_has_it() {
        assert_eq!(names(&index(), &["ubifs"]), ["deflate", "mtd", "ubi", "ubifs"]);
        assert_eq!(names(&index(), &["ext4"]), ["crc32c_generic", "ext4"]);
    }

    #[test]
    fn a_missing_module_is_told_with_its_option() {
        let error = index().closure("6.1.0-9-arm64", &["jffs2"], &mut BTreeSet::new()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "kernel 6.1.0-9-arm64 has no jffs2; build it with CONFIG_JFFS2_FS=m, or name another kernel (flashscope board list)"
        );
        let error = index().closure("k", &["nosuch"], &mut BTreeSet::new()).unwrap_err();
        assert_eq!(error.to_string(), "kernel k has no nosuch; name another kernel (flashscope board list)");
    }
}
