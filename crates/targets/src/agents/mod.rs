//! Finds agents: those in this program, and the user's own.
//!
//! An agent runs as root on the user's machine or board. So it comes from this program, or from a place that the user named (`--agent`, or
//! the directory in `FLASHSCOPE_AGENTS`), and never from the working directory or the program's directory.

mod build;
mod carried;
mod unpack;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::error::Error;

pub use carried::{CARRIED_BY_DESIGN, carried};

/// File name of an agent in its architecture's directory.
const AGENT: &str = "flashscope-agent";

/// The path given with `--agent`.
static NAMED: OnceLock<PathBuf> = OnceLock::new();

/// Takes agents from `path` from now on: one agent, or a directory with `ARCH/flashscope-agent`. Only the first call has an effect.
pub fn use_agents(path: &Path) -> Result<(), Error> {
    let path = std::path::absolute(path).map_err(|e| Error::io(path, e))?;
    let meta = std::fs::metadata(&path).map_err(|e| Error::io(&path, e))?;
    if meta.is_file() && Program::of(&path)?.is_none() {
        return Err(Error::NoAgentFile { path });
    }
    NAMED.set(path).ok();
    Ok(())
}

/// The place of an agent.
enum Source {
    File(PathBuf),
    Carried(&'static carried::Carried),
}

/// The agent's bytes for an architecture: `x86_64`, `aarch64`, `armhf`, `armel`, `riscv64`, `mipsel`, `mips64el`, or a name in the user's
/// own directory.
pub(crate) fn agent_bytes(arch: &str) -> Result<Vec<u8>, Error> {
    match find(arch, AGENT)? {
        Source::File(path) => {
            let program = std::fs::read(&path).map_err(|e| Error::io(&path, e))?;
            build::check(Some(&path), &program)?;
            Ok(program)
        }
        Source::Carried(carried) => {
            let program = carried.bytes()?;
            build::check(None, &program)?;
            Ok(program)
        }
    }
}

/// The agent for an architecture as a file to run or send. A built-in agent is unpacked first, to a directory that no other user can write
/// to.
pub fn agent_for(arch: &str) -> Result<PathBuf, Error> {
    let source = find(arch, AGENT)?;
    let named = matches!(source, Source::File(_));
    let path = file(source)?;
    let program = std::fs::read(&path).map_err(|e| Error::io(&path, e))?;
    build::check(named.then_some(&*path), &program)?;
    Ok(path)
}

/// Another program for a machine that has an agent (`flashscope-sqlite`). `machine`: as in `uname -m`.
pub fn companion_for(machine: &str, name: &str) -> Result<PathBuf, Error> {
    file(find(arch_of_machine(machine).unwrap_or(machine), name)?)
}

/// The agent for this host.
pub fn host_agent() -> Result<PathBuf, Error> {
    agent_for(host_arch())
}

/// The agent for cleaning up after earlier runs: one of another build is accepted.
pub fn sweeping_agent() -> Result<PathBuf, Error> {
    file(find(host_arch(), AGENT)?)
}

/// The agent architecture of this host.
fn host_arch() -> &'static str {
    let little = cfg!(target_endian = "little");
    match std::env::consts::ARCH {
        "arm" if cfg!(target_abi = "eabihf") => "armhf",
        "arm" => "armel",
        "mips" | "mips32r6" if little => "mipsel",
        "mips64" | "mips64r6" if little => "mips64el",
        other => other,
    }
}

fn file(source: Source) -> Result<PathBuf, Error> {
    match source {
        Source::File(path) => Ok(path),
        Source::Carried(carried) => unpack::unpacked(carried),
    }
}

fn find(arch: &str, name: &str) -> Result<Source, Error> {
    match NAMED.get() {
        Some(path) if path.is_dir() => return in_directory(arch, name, path),
        Some(path) if name == AGENT => return own(arch, path.clone()).map(Source::File),
        // `--agent` with one agent does not concern other programs.
        Some(_) | None => {}
    }
    if let Some(dir) = std::env::var_os("FLASHSCOPE_AGENTS").filter(|dir| !dir.is_empty()) {
        return in_directory(arch, name, Path::new(&dir));
    }
    match carried::find(arch, name) {
        Some(carried) => Ok(Source::Carried(carried)),
        None => Err(Error::AgentNotCarried { arch: arch.to_owned(), name: name.to_owned(), carried: carried() }),
    }
}

fn in_directory(arch: &str, name: &str, dir: &Path) -> Result<Source, Error> {
    // The architecture may come from a remote `uname -m`: it must be a plain name, not a path.
    let plain = arch.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b));
    let path = dir.join(arch).join(name);
    if plain && path.is_file() {
        return Ok(Source::File(path));
    }
    Err(Error::AgentMissing { arch: arch.to_owned(), name: name.to_owned(), path })
}

/// The agent that the user named; an error if it is for another architecture.
fn own(arch: &str, path: PathBuf) -> Result<PathBuf, Error> {
    let Some(program) = Program::of(&path)? else { return Err(Error::NoAgentFile { path }) };
    match Program::wanted(arch) {
        Some(wanted) if wanted != program => {
            Err(Error::AgentOfAnother { path, arch: arch.to_owned(), machine: program.to_string() })
        }
        _ => Ok(path),
    }
}

/// The machine of an ELF program: the first fields of its header (System V ABI, "ELF Header").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Program {
    bits: u8,
    little_endian: bool,
    machine: u16,
}

impl Program {
    fn of(path: &Path) -> Result<Option<Program>, Error> {
        use std::io::Read as _;
        let mut header = Vec::new();
        // A FIFO may have no writer, so reading it could block.
        if !std::fs::metadata(path).map_err(|e| Error::io(path, e))?.is_file() {
            return Ok(None);
        }
        let file = std::fs::File::open(path).map_err(|e| Error::io(path, e))?;
        file.take(20).read_to_end(&mut header).map_err(|e| Error::io(path, e))?;
        let Ok(header) = <[u8; 20]>::try_from(header) else { return Ok(None) };
        let bits = match header[4] {
            1 => 32,
            2 => 64,
            _ => return Ok(None),
        };
        if header[..4] != *b"\x7fELF" {
            return Ok(None);
        }
        let little_endian = header[5] == 1;
        let machine = [header[18], header[19]];
        let machine = if little_endian { u16::from_le_bytes(machine) } else { u16::from_be_bytes(machine) };
        Ok(Some(Program { bits, little_endian, machine }))
    }

    /// The header fields of an agent for this architecture; `None` for an unknown name.
    fn wanted(arch: &str) -> Option<Program> {
        let (bits, machine) = match arch {
            "x86_64" => (64, 62),
            "aarch64" => (64, 183),
            "armhf" | "armel" => (32, 40),
            "riscv64" => (64, 243),
            "mipsel" => (32, 8),
            "mips64el" => (64, 8),
            _ => return None,
        };
        Some(Program { bits, little_endian: true, machine })
    }
}

impl std::fmt::Display for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let machine = match self.machine {
            3 => "x86",
            8 => "MIPS",
            20 | 21 => "PowerPC",
            40 | 183 => "ARM",
            62 => "x86-64",
            243 => "RISC-V",
            other => return write!(f, "{}-bit machine {other}", self.bits),
        };
        write!(f, "{}-bit {}{machine}", self.bits, if self.little_endian { "" } else { "big-endian " })
    }
}

/// The agent's architecture for a name from `uname -m`. 32-bit ARM below v7 has no hard float by Debian's definition: armel. For MIPS the
/// name does not give the byte order: see [`arch_of_remote`].
pub(crate) fn arch_of_machine(machine: &str) -> Option<&'static str> {
    Some(match machine {
        "x86_64" | "amd64" => "x86_64",
        "aarch64" | "arm64" => "aarch64",
        "armv7l" | "armv7" | "armv8l" | "arm" | "armhf" => "armhf",
        "armel" => "armel",
        "riscv64" => "riscv64",
        "mipsel" => "mipsel",
        "mips64el" => "mips64el",
        _ if machine.starts_with("armv5") || machine.starts_with("armv6") || machine.starts_with("armv4t") => "armel",
        _ => return None,
    })
}

/// The agent's architecture for a remote machine, also using the ELF header of its shell: the bytes `EI_CLASS` (1: 32 bits) and `EI_DATA`
/// (1: little endian). A MIPS kernel is called "mips" or "mips64" in both byte orders; user space decides.
pub(crate) fn arch_of_remote(machine: &str, shell: &str) -> Option<&'static str> {
    match (machine, shell) {
        ("mips" | "mips64", "\u{1}\u{1}") => Some("mipsel"),
        ("mips64", "\u{2}\u{1}") => Some("mips64el"),
        _ => arch_of_machine(machine),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_map_to_the_agents_that_run_there() {
        assert_eq!(arch_of_machine("armv7l"), Some("armhf"));
        assert_eq!(arch_of_machine("armv6l"), Some("armel"));
        assert_eq!(arch_of_machine("armv5tejl"), Some("armel"));
        assert_eq!(arch_of_machine("aarch64"), Some("aarch64"));
        assert_eq!(arch_of_machine("riscv64"), Some("riscv64"));
        assert_eq!(arch_of_machine("ppc64le"), None);
        assert_eq!(arch_of_machine("../x86_64"), None);
    }

    #[test]
    fn the_byte_order_of_mips_is_user_spaces() {
        assert_eq!(arch_of_remote("mips", "\u{1}\u{1}"), Some("mipsel"));
        assert_eq!(arch_of_remote("mips64", "\u{2}\u{1}"), Some("mips64el"));
        assert_eq!(arch_of_remote("mips64", "\u{1}\u{1}"), Some("mipsel"));
        for unknown in ["\u{1}\u{2}", "\u{2}\u{2}", "-"] {
            assert_eq!(arch_of_remote("mips", unknown), None);
        }
        assert_eq!(arch_of_remote("armv7l", "-"), Some("armhf"));
    }

    /// The first 20 bytes of a program.
    fn header(class: u8, data: u8, machine: [u8; 2]) -> Vec<u8> {
        let mut header = b"\x7fELF".to_vec();
        header.extend([class, data, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0]);
        header.extend(machine);
        header
    }

    #[test]
    fn an_agent_of_ones_own_has_to_be_of_the_targets_architecture() {
        let dir = crate::ScratchDir::new("own-agent").unwrap();
        let path = dir.path().join("agent");
        std::fs::write(&path, header(1, 1, [40, 0])).unwrap();
        assert!(own("armhf", path.clone()).is_ok() && own("armel", path.clone()).is_ok());
        // For an unknown name, the user is responsible.
        assert!(own("armv7-uclibc", path.clone()).is_ok());
        let error = own("aarch64", path.clone()).unwrap_err().to_string();
        assert!(error.contains("is for 32-bit ARM") && error.contains("aarch64"), "{error}");
        std::fs::write(&path, header(1, 2, [0, 8])).unwrap();
        let error = own("mipsel", path.clone()).unwrap_err().to_string();
        assert!(error.contains("32-bit big-endian MIPS"), "{error}");
        std::fs::write(&path, "#!/bin/sh\n").unwrap();
        assert!(matches!(own("x86_64", path), Err(Error::NoAgentFile { .. })));
    }

    #[test]
    fn a_far_sides_name_is_no_way_out_of_the_directory() {
        let dir = crate::ScratchDir::new("agents").unwrap();
        for (inside, name) in [("agents/x86_64", AGENT), ("elsewhere", AGENT)] {
            std::fs::create_dir_all(dir.path().join(inside)).unwrap();
            std::fs::write(dir.path().join(inside).join(name), "").unwrap();
        }
        let agents = dir.path().join("agents");
        assert!(in_directory("x86_64", AGENT, &agents).is_ok());
        assert!(in_directory("../elsewhere", AGENT, &agents).is_err());
    }
}
