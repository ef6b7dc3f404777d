//! Virtual boards: kernels and packages from Debian, reproducible boot images, QEMU.

mod apt;
mod chip;
mod cpio;
mod files;
mod frames;
mod image;
mod kernel;
mod modules;
mod packages;
mod qemu;
mod stanza;
mod target;

use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::error::Error;
use crate::progress::Progress;

pub use chip::Chip;
pub use image::{Image, ImageBuilder};
pub use kernel::Kernel;
pub use packages::Package;
pub use qemu::{BootFailure, BootFailureKind, BootOutcome, Run, boot};
pub(crate) use target::BoardTarget;
pub use target::plan_word;

/// A virtual machine as data (`boards/*.toml`).
#[derive(Clone, Debug)]
pub struct Board {
    pub name: String,
    pub description: String,
    /// What "time" is on it, for results.
    pub clock: String,
    /// Debian's name of its architecture.
    pub arch: String,
    /// The agent's name of it.
    pub agent: String,
    /// What `uname -m` says there.
    pub machine: String,
    /// RAM in MiB; a large boot image raises it ([`Board::memory_for`]).
    pub memory_mib: u64,
    /// The board that is taken where none is named.
    pub default: bool,
    /// SHA-256 of its file and of its chip's.
    pub sha256: String,
    pub kernels: Vec<KernelLine>,
    pub(crate) qemu: Qemu,
    pub(crate) modules: Modules,
    chip: Chip,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BoardFile {
    name: String,
    description: String,
    clock: String,
    arch: String,
    agent: String,
    machine: String,
    chip: String,
    memory_mib: u64,
    #[serde(default)]
    default: bool,
    qemu: Qemu,
    modules: Modules,
    kernel: Vec<KernelLine>,
}

/// How QEMU is called.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Qemu {
    pub binary: String,
    /// Debian package that holds it.
    pub package: String,
    pub args: Vec<String>,
    pub icount: Vec<String>,
    pub cmdline: String,
    pub serial_device: String,
    pub net_device: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Modules {
    pub port: Vec<String>,
    pub net: Vec<String>,
}

/// A kernel that a board can boot: which package of which suite. The version is resolved when it is fetched.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelLine {
    /// "6.1"
    pub name: String,
    /// Tried in order.
    pub suites: Vec<String>,
    /// A metapackage: `linux-image-armmp`.
    pub package: String,
    /// How its version has to begin; empty: any.
    #[serde(default)]
    pub version: String,
    /// The line that is taken where none is named.
    #[serde(default)]
    pub default: bool,
}

/// Every board there is, sorted by name. A file that does not parse is an error in its place.
pub fn list() -> Vec<Result<Board, Error>> {
    files::BOARDS.names().iter().map(|name| load(name)).collect()
}

/// Loads a board by name, or from a file where the name holds a slash. Files in `$FLASHSCOPE_BOARDS` (else `boards/`)
/// come before what is built in.
pub fn load(name: &str) -> Result<Board, Error> {
    let file = files::BOARDS.find(name)?;
    let parsed: BoardFile = files::parse(&file.path, &file.text)?;
    let chip_file = files::CHIPS.find(&parsed.chip)?;
    let chip = files::parse(&chip_file.path, &chip_file.text)?;
    let mut hash = Sha256::new();
    hash.update(&file.text);
    hash.update(&chip_file.text);
    if parsed.kernel.is_empty() || parsed.kernel.iter().any(|line| line.suites.is_empty()) {
        let problem = "a board needs at least one [[kernel]], each with at least one suite".to_owned();
        return Err(Error::Toml { path: file.path, line: 1, column: 1, problem });
    }
    Ok(Board {
        name: parsed.name,
        description: parsed.description,
        clock: parsed.clock,
        arch: parsed.arch,
        agent: parsed.agent,
        machine: parsed.machine,
        memory_mib: parsed.memory_mib,
        default: parsed.default,
        sha256: hex(&hash.finalize()),
        kernels: parsed.kernel,
        qemu: parsed.qemu,
        modules: parsed.modules,
        chip,
    })
}

impl Board {
    pub fn chip(&self) -> &Chip {
        &self.chip
    }

    /// RAM in MiB that an image boots with. The kernel holds an image twice while it unpacks it, QEMU places it no lower than
    /// half of the RAM (or 128 MiB, hw/arm/boot.c), and a quarter of the board's RAM stays free. A function of the image
    /// alone, so that a run repeats.
    pub fn memory_for(&self, image: &Image) -> u64 {
        let image_mib = image.size_bytes.div_ceil(1 << 20);
        if image_mib <= self.memory_mib / 4 {
            return self.memory_mib;
        }
        (self.memory_mib + 2 * image_mib).next_multiple_of(128)
    }

    /// The kernel line that is taken where none is named.
    pub fn default_kernel(&self) -> &KernelLine {
        self.kernels.iter().find(|line| line.default).unwrap_or(&self.kernels[0])
    }

    /// A kernel line by name.
    pub fn kernel_line(&self, name: &str) -> Result<&KernelLine, Error> {
        self.kernels.iter().find(|line| line.name == name).ok_or_else(|| Error::UnknownKernel {
            board: self.name.clone(),
            kernel: name.to_owned(),
            known: self.kernels.iter().map(|line| line.name.clone()).collect(),
        })
    }

    /// The kernel, from the cache or else from Debian: a line's name, `""` for the default line, or a directory with a
    /// kernel of one's own (a name with a slash, or one that is no line's and is a directory).
    pub fn fetch(&self, kernel: &str, progress: &dyn Progress) -> Result<Kernel, Error> {
        kernel::fetch(self, kernel, false, progress)
    }

    /// As [`Board::fetch`], with the version resolved anew from the suite's index.
    pub fn fetch_refresh(&self, kernel: &str, progress: &dyn Progress) -> Result<Kernel, Error> {
        kernel::fetch(self, kernel, true, progress)
    }

    /// A line's kernel where it is in the cache already.
    pub fn cached(&self, line: &KernelLine) -> Option<Kernel> {
        kernel::cached(self, line)
    }

    /// Debian packages of the board's architecture, with what they depend on, from the kernel's suite. Their maintainer
    /// scripts are not run, so what only those need is left out.
    pub fn fetch_packages(
        &self,
        kernel: &Kernel,
        packages: &[String],
        progress: &dyn Progress,
    ) -> Result<Vec<Package>, Error> {
        packages::fetch(self, &self.suite_of(kernel), packages, false, progress)
    }

    fn suite_of(&self, kernel: &Kernel) -> String {
        kernel.suite.clone().unwrap_or_else(|| self.default_kernel().suites[0].clone())
    }

    /// What QEMU says of itself: "QEMU emulator version 7.2.22 (Debian …)".
    pub fn qemu_version(&self) -> Result<String, Error> {
        qemu::version(self)
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_board_loads_and_has_one_default_line() {
        let boards: Vec<Board> = list().into_iter().collect::<Result<_, _>>().unwrap();
        assert_eq!(boards.iter().map(|b| b.name.as_str()).collect::<Vec<_>>(), ["armv7", "x86_64"]);
        assert_eq!(boards.iter().filter(|b| b.default).count(), 1);
        for board in &boards {
            assert_eq!(board.kernels.iter().filter(|line| line.default).count(), 1);
            assert_eq!(board.default_kernel().name, "6.1");
            assert!(board.kernels.iter().all(|line| !line.suites.is_empty()));
            assert_eq!(board.chip().size_bytes(), 256 << 20);
        }
    }
}
