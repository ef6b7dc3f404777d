//! Virtual boards: kernels and packages from Debian, reproducible boot images, QEMU.

mod apt;
mod chip;
mod cpio;
mod delay;
mod disk;
mod external;
mod files;
mod image;
mod kernel;
mod modules;
mod packages;
mod qemu;
mod source;
mod stanza;
mod target;
mod translation;
mod unpacked;

use flashscope_output::hex;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::error::Error;
use crate::progress::Progress;

pub use crate::boot_failure::{BootFailure, BootFailureKind};
pub use chip::Chip;
pub use disk::{Disk, DiskFilesystem, DiskSettings, MOUNT_POINT};
pub use external::ExternalModule;
pub use files::power_profile;
pub use image::{Image, ImageBuilder};
pub use kernel::Kernel;
pub use packages::Package;
pub use qemu::{BootOutcome, Run, boot};
pub(crate) use target::BoardTarget;
pub use target::plan_word;

/// A virtual machine, defined by a file (`boards/*.toml`).
#[derive(Clone, Debug)]
pub struct Board {
    pub name: String,
    pub description: String,
    /// The meaning of "time" on the board, for results.
    pub clock: String,
    /// Debian's name of its architecture.
    pub arch: String,
    /// The agent's name of the architecture.
    pub agent: String,
    /// The output of `uname -m` on the board.
    pub machine: String,
    /// RAM in MiB; a large boot image raises it ([`Board::memory_for`]).
    pub memory_mib: u64,
    /// Used if no board is named.
    pub default: bool,
    /// SHA-256 of the board's file together with the chip's file.
    pub sha256: String,
    pub kernels: Vec<KernelLine>,
    /// The board whose directory has the kernels: for a board that inherits its kernels, the parent.
    pub(crate) kernels_of: String,
    pub(crate) qemu: Qemu,
    pub(crate) modules: Modules,
    chip: Option<Chip>,
    disk: Option<Disk>,
}

/// Missing values come from the parent board. A board that sets its disk has no chip, unless it sets one too.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BoardFile {
    name: String,
    inherits: Option<String>,
    description: Option<String>,
    clock: Option<String>,
    arch: Option<String>,
    agent: Option<String>,
    machine: Option<String>,
    chip: Option<String>,
    disk: Option<String>,
    memory_mib: Option<u64>,
    #[serde(default)]
    default: bool,
    qemu: Option<Qemu>,
    /// QEMU's -icount, if the speed differs from the parent board's.
    icount: Option<Vec<String>>,
    modules: Option<Modules>,
    #[serde(default)]
    kernel: Vec<KernelLine>,
}

/// How to call QEMU.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Qemu {
    pub binary: String,
    /// Debian package with this QEMU.
    pub package: String,
    pub args: Vec<String>,
    pub icount: Vec<String>,
    /// Start of RAM, where an ARM kernel that was unpacked on the host is loaded. Without it a kernel unpacks itself.
    #[serde(default)]
    pub ram_base: Option<u32>,
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

/// A kernel that a board can boot: a package of a suite. The version is resolved when it is fetched.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelLine {
    /// "6.1"
    pub name: String,
    /// Tried in order.
    pub suites: Vec<String>,
    /// A metapackage: `linux-image-armmp`.
    pub package: String,
    /// Required prefix of the version; empty: any.
    #[serde(default)]
    pub version: String,
    /// Used if no kernel line is named.
    #[serde(default)]
    pub default: bool,
}

/// All boards, sorted by name. A file that cannot be parsed is an error in the list.
pub fn list() -> Vec<Result<Board, Error>> {
    files::BOARDS.names().iter().map(|name| load(name)).collect()
}

/// Loads a board by name, or from a file if the name contains a slash. Files in `$FLASHSCOPE_BOARDS` take precedence over built-in ones.
pub fn load(name: &str) -> Result<Board, Error> {
    load_inheriting(name, 0)
}

/// A longer chain of boards is taken for a circle, which is an error.
const INHERITS_AT_MOST: u32 = 8;
/// 1 TiB.
const MOST_MEMORY_MIB: u64 = 1 << 20;

fn load_inheriting(name: &str, depth: u32) -> Result<Board, Error> {
    let file = files::BOARDS.find(name)?;
    let parsed: BoardFile = files::parse(&file.path, &file.text)?;
    let bad = |problem: String| Error::Toml { path: file.path.clone(), line: 1, column: 1, problem };
    if depth > INHERITS_AT_MOST {
        return Err(bad("boards inherit one another in a circle: let one of them inherit none".to_owned()));
    }
    let base = parsed.inherits.as_deref().map(|base| load_inheriting(base, depth + 1)).transpose()?;
    let base = base.as_ref();
    let mut hash = Sha256::new();
    hash.update(&file.text);
    if let Some(base) = base {
        hash.update(&base.sha256);
    }
    let mut chip = match parsed.disk {
        Some(_) => None,
        None => base.and_then(|base| base.chip.clone()),
    };
    if let Some(name) = &parsed.chip {
        let file = files::CHIPS.find(name)?;
        hash.update(&file.text);
        chip = Some(files::parse(&file.path, &file.text)?);
    }
    let mut disk = base.and_then(|base| base.disk.clone());
    if let Some(name) = &parsed.disk {
        let file = files::DISKS.find(name)?;
        hash.update(&file.text);
        disk = Some(files::parse(&file.path, &file.text)?);
    }
    let missing = |what: &str| bad(format!("a board needs {what}, in its own file or in the one that it inherits"));
    let own_kernels = !parsed.kernel.is_empty();
    let mut board = Board {
        kernels_of: match base {
            Some(base) if !own_kernels => base.kernels_of.clone(),
            _ => parsed.name.clone(),
        },
        name: parsed.name,
        description: parsed.description.ok_or_else(|| missing("a description"))?,
        clock: parsed.clock.or_else(|| base.map(|b| b.clock.clone())).ok_or_else(|| missing("a clock"))?,
        arch: parsed.arch.or_else(|| base.map(|b| b.arch.clone())).ok_or_else(|| missing("an arch"))?,
        agent: parsed.agent.or_else(|| base.map(|b| b.agent.clone())).ok_or_else(|| missing("an agent"))?,
        machine: parsed.machine.or_else(|| base.map(|b| b.machine.clone())).ok_or_else(|| missing("a machine"))?,
        memory_mib: parsed.memory_mib.or(base.map(|b| b.memory_mib)).ok_or_else(|| missing("memory_mib"))?,
        default: parsed.default,
        sha256: hex(&hash.finalize()),
        kernels: match base {
            Some(base) if !own_kernels => base.kernels.clone(),
            _ => parsed.kernel,
        },
        qemu: parsed.qemu.or_else(|| base.map(|b| b.qemu.clone())).ok_or_else(|| missing("[qemu]"))?,
        modules: parsed.modules.or_else(|| base.map(|b| b.modules.clone())).ok_or_else(|| missing("[modules]"))?,
        chip,
        disk,
    };
    if let Some(icount) = parsed.icount {
        board.qemu.icount = icount;
    }
    // These names become directories in the cache.
    let of_kernels = board.kernels.iter().flat_map(|line| line.suites.iter().chain([&line.name]));
    for name in [&board.name, &board.arch, &board.agent].into_iter().chain(of_kernels) {
        if !files::is_plain(name) {
            return Err(bad(format!("{name:?}: a name has letters, digits, - _ and ., a letter or digit first")));
        }
    }
    if board.kernels.is_empty() || board.kernels.iter().any(|line| line.suites.is_empty()) {
        return Err(bad("a board needs at least one [[kernel]], each with at least one suite".to_owned()));
    }
    if board.chip.is_none() && board.disk.is_none() {
        return Err(missing("a chip or a disk"));
    }
    if !(1..=MOST_MEMORY_MIB).contains(&board.memory_mib) {
        return Err(bad(format!("memory_mib: 1 to {MOST_MEMORY_MIB}")));
    }
    Ok(board)
}

impl Board {
    /// Its raw NAND chip, if it has one.
    pub fn chip(&self) -> Option<&Chip> {
        self.chip.as_ref()
    }

    /// Whether its kernels are those of the parent board.
    pub fn inherits_kernels(&self) -> bool {
        self.kernels_of != self.name
    }

    /// Its block device, if it has one.
    pub fn disk(&self) -> Option<&Disk> {
        self.disk.as_ref()
    }

    /// The settings of its disk for a run. `None` without a disk; changes are an error then.
    pub fn disk_settings(&self, changes: &[(String, String)]) -> Result<Option<DiskSettings>, Error> {
        match (&self.disk, changes.is_empty()) {
            (Some(disk), _) => disk.settings(&self.name, changes).map(Some),
            (None, true) => Ok(None),
            (None, false) => {
                Err(Error::Disk { board: self.name.clone(), problem: "it has no disk with settings".to_owned() })
            }
        }
    }

    /// RAM in MiB for booting an image. The kernel has an image twice in memory while it unpacks it. QEMU places it no lower than half of
    /// the RAM (or 128 MiB, hw/arm/boot.c). A quarter of the board's RAM stays free. The result depends only on the image, so that a run is
    /// repeatable.
    pub fn memory_for(&self, image: &Image) -> u64 {
        let image_mib = image.size_bytes.div_ceil(1 << 20);
        if image_mib <= self.memory_mib / 4 {
            return self.memory_mib;
        }
        (self.memory_mib + 2 * image_mib).next_multiple_of(128)
    }

    /// The same board with another RAM size. That is another input of a run, so the hash changes.
    pub fn with_memory_mib(&self, memory_mib: u64) -> Board {
        let mut hash = Sha256::new();
        hash.update(&self.sha256);
        hash.update(format!("memory_mib = {memory_mib}"));
        Board { memory_mib, sha256: hex(&hash.finalize()), ..self.clone() }
    }

    /// The kernel line that is used if none is named.
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

    /// The kernel, from the cache or from Debian. `kernel`: the name of a line, `""` for the default line, or a directory with your own
    /// kernel (a name with a slash, or a directory that has no line's name).
    pub fn fetch(&self, kernel: &str, progress: &dyn Progress) -> Result<Kernel, Error> {
        let _alone = alone();
        kernel::fetch(self, kernel, false, progress)
    }

    /// Like [`Board::fetch`], but resolves the version again from the suite's index.
    pub fn fetch_refresh(&self, kernel: &str, progress: &dyn Progress) -> Result<Kernel, Error> {
        let _alone = alone();
        kernel::fetch(self, kernel, true, progress)
    }

    /// The release of a line's kernel, if it is in the cache.
    pub fn cached_release(&self, line: &KernelLine) -> Option<String> {
        kernel::cached_release(self, line)
    }

    /// Debian packages of the board's architecture with their dependencies, from the kernel's suite. Maintainer scripts are not run, so
    /// packages that only they need are left out.
    pub fn fetch_packages(
        &self,
        kernel: &Kernel,
        packages: &[String],
        progress: &dyn Progress,
    ) -> Result<Vec<Package>, Error> {
        let _alone = alone();
        packages::fetch(self, &self.suite_of(kernel), packages, false, progress)
    }

    /// Builds one of our kernel modules (`kernel/NAME/`) for a kernel of this board, or takes it from the cache.
    pub fn build_module(&self, kernel: &Kernel, name: &str, progress: &dyn Progress) -> Result<ExternalModule, Error> {
        let _alone = alone();
        external::build(&self.name, &self.arch, kernel, name, progress)
    }

    /// Builds those of these modules that are ours and missing in the kernel, with progress messages. [`ImageBuilder::add_module_closure`]
    /// builds without messages.
    pub fn prepare_modules(&self, kernel: &Kernel, names: &[&str], progress: &dyn Progress) -> Result<(), Error> {
        let mut ours = names.iter().filter(|name| external::is_ours(name) && !kernel.index.has(name));
        ours.try_for_each(|name| self.build_module(kernel, name, progress).map(drop))
    }

    /// The suite for a kernel's user space.
    fn suite_of(&self, kernel: &Kernel) -> String {
        let suite = kernel.suite.as_deref().unwrap_or(&self.default_kernel().suites[0]);
        apt::base_of(suite).unwrap_or(suite).to_owned()
    }

    /// QEMU's version line: "QEMU emulator version 7.2.22 (Debian …)".
    pub fn qemu_version(&self) -> Result<String, Error> {
        qemu::version(self)
    }
}

/// A lock: studies that run at the same time need the same kernels, packages and modules. The first one fetches them; the others find them.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static FETCHING: std::sync::Mutex<()> = std::sync::Mutex::new(());
    FETCHING.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_board_loads_and_has_one_default_line() {
        let boards: Vec<Board> = list().into_iter().collect::<Result<_, _>>().unwrap();
        let names: Vec<&str> = boards.iter().map(|b| b.name.as_str()).collect();
        assert_eq!(names, files::BOARDS.names());
        assert_eq!(boards.iter().filter(|b| b.default).count(), 1);
        for board in &boards {
            assert_eq!(board.kernels.iter().filter(|line| line.default).count(), 1);
            assert_eq!(board.default_kernel().name, "6.1");
            assert!(board.kernels.iter().all(|line| !line.suites.is_empty()));
            assert!(board.chip().is_none_or(|chip| chip.size_bytes() == 256 << 20));
            assert_ne!(board.chip().is_some(), board.disk().is_some(), "{}", board.name);
        }
    }

    #[test]
    fn what_a_board_does_not_say_it_inherits() {
        let (base, blk) = (load("armv7").unwrap(), load("armv7-blk").unwrap());
        assert_eq!((blk.arch.as_str(), blk.kernels_of.as_str(), blk.default), ("armhf", "armv7", false));
        assert_eq!(blk.qemu.args, base.qemu.args);
        assert_ne!(blk.sha256, base.sha256);
        let settings = blk.disk_settings(&[("scheduler".to_owned(), "bfq".to_owned())]).unwrap().unwrap();
        assert_eq!((settings.get("scheduler"), settings.get("queue_depth")), (Some("bfq"), Some("64")));
        let error = base.disk_settings(&[("scheduler".to_owned(), "bfq".to_owned())]).unwrap_err();
        assert!(error.to_string().starts_with("board armv7: it has no disk"), "{error}");
        let slower = load("apf27").unwrap();
        assert_eq!((&slower.qemu.args, slower.memory_mib), (&base.qemu.args, 128));
        assert_eq!(slower.qemu.icount[1], "shift=2,sleep=off");
        let larger = slower.with_memory_mib(192);
        assert_eq!((larger.memory_mib, larger.name.as_str()), (192, "apf27"));
        assert_ne!(larger.sha256, slower.sha256);
        assert!(slower.inherits_kernels() && !base.inherits_kernels());
    }

    #[test]
    fn what_is_missing_and_circles_are_told() {
        let dir = crate::ScratchDir::new("boards").unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let error = load(&write("a.toml", "name = \"a\"\ndescription = \"a\"\n")).unwrap_err().to_string();
        assert!(error.contains("needs a clock, in its own file or in the one that it inherits"), "{error}");
        let out = "name = \"../../x\"\ninherits = \"armv7\"\ndescription = \"a\"\n";
        let error = load(&write("c.toml", out)).unwrap_err().to_string();
        assert!(error.contains("\"../../x\": a name has letters, digits"), "{error}");
        let itself = dir.path().join("b.toml");
        let text = format!("name = \"b\"\ninherits = \"{}\"\n", itself.display());
        let error = load(&write("b.toml", &text)).unwrap_err().to_string();
        assert!(error.contains("in a circle"), "{error}");
    }
}
