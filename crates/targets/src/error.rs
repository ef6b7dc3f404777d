//! Errors of reaching a target, running a command or fetching files. Each is one line that names the thing and the next step.

use std::path::{Path, PathBuf};

use crate::boot_failure::BootFailure;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}: no such target; name local, ssh://user@host[:port] or board:NAME (flashscope board list)")]
    UnknownTarget(String),
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: std::io::Error },
    #[error("the cache, {path}: {source}; name a directory of your own in FLASHSCOPE_CACHE, or free some space")]
    Cache { path: PathBuf, source: std::io::Error },
    #[error("no place for the cache: set FLASHSCOPE_CACHE to an absolute path")]
    NoCacheDir,
    #[error(
        "no {name} for {arch}: {path} is not there; build it with make -C agent one ARCH={arch}, or leave out --agent and FLASHSCOPE_AGENTS to use the one that flashscope carries"
    )]
    AgentMissing { arch: String, name: String, path: PathBuf },
    #[error("this flashscope carries no {name} for {arch} ({}); name one of your own with --agent PATH, or build flashscope with it: make agents build", carries(.carried))]
    AgentNotCarried { arch: String, name: String, carried: Vec<&'static str> },
    #[error("the {name} for {arch} in this flashscope is damaged: install flashscope again")]
    AgentDamaged { arch: String, name: String },
    #[error("{path}: not an ELF program; --agent takes a flashscope-agent, or a directory with ARCH/flashscope-agent")]
    NoAgentFile { path: PathBuf },
    #[error(
        "{path}: it is for {machine}, the target is {arch}; name its directory with --agent DIR (DIR/{arch}/flashscope-agent), or leave --agent out"
    )]
    AgentOfAnother { path: PathBuf, arch: String, machine: String },
    #[error(
        "{path}: the agent writes stream version {stream}, and this flashscope reads version {own}; build both from the same sources, or \
         leave out --agent and FLASHSCOPE_AGENTS"
    )]
    AgentStream { path: PathBuf, stream: String, own: String },
    #[error(
        "{place}: the agent is not unpacked there: other users can write to {path}; name a directory of your own in FLASHSCOPE_CACHE"
    )]
    AgentPlace { place: PathBuf, path: PathBuf },
    #[error("{program}: not found; install the Debian package {package}")]
    ProgramMissing { program: String, package: String },
    #[error("{program}: {problem}; run the same command again, or {program} by hand to see why")]
    ProgramFailed { program: String, problem: String },
    #[error(
        "{process} does not end, although it was killed: something of this kernel never answers (dmesg may tell what); only a reboot helps"
    )]
    Unkillable { process: String },
    #[error("the output cannot be written: {0}; free some space or write elsewhere (what came before is kept)")]
    Output(std::io::Error),
    #[error("{target}: the agent did not finish in {seconds} s; raise the time limit (its output so far is kept)")]
    JobTimeout { target: String, seconds: u64 },
    #[error("{target}: {path} exists already and is not overwritten; name another path")]
    PutExists { target: String, path: String },
    #[error(
        "{target}: cannot put {path}: {problem}; name another path, or see that its directory is there and writable, and has room"
    )]
    Put { target: String, path: String, problem: String },
    #[error("{target}: cannot get {path}: {problem}; see that the command writes it, and that you may read it")]
    Get { target: String, path: String, problem: String },

    #[error("{0}: not ssh://[user@]host[:port]")]
    SshSpec(String),
    #[error("{target}: {problem}; start sshd there or check the port")]
    SshRefused { target: String, problem: String },
    #[error("{target}: {problem}; add your key there (ssh-copy-id) or to your agent: flashscope asks for no password")]
    SshAuth { target: String, problem: String },
    #[error("{target}: {problem}; connect once with ssh to accept its host key")]
    SshHostKey { target: String, problem: String },
    #[error("{target}: {problem}; check the name, the network and your ssh config")]
    SshUnreachable { target: String, problem: String },
    #[error(
        "{target}: it did not answer within {seconds} s; log in there with ssh: its shell must run commands, and its sshd must not be stopped"
    )]
    SshSilent { target: String, seconds: u64 },
    #[error("{target}: the connection was cut after {bytes} bytes ({problem}); what came is kept")]
    SshCut { target: String, bytes: u64, problem: String },
    #[error(
        "{target}: no writable directory that allows programs (tried $TMPDIR /tmp /run /dev/shm /var/tmp); set TMPDIR there"
    )]
    NoRemoteDir { target: String },
    #[error(
        "{target}: its shell did not answer as a POSIX shell: {problem}; log in there with ssh: commands must run, and the login's \
         files must print nothing"
    )]
    RemoteShell { target: String, problem: String },
    #[error("{target}: the recording did not begin: {problem}")]
    RemoteStream { target: String, problem: &'static str },
    #[error(
        "{target}: no agent for its machine {machine:?}; build one with: make agent CROSS=…, and name it with --agent PATH"
    )]
    UnknownMachine { target: String, machine: String },

    #[error("{what} {name}: unknown; there are {}", .known.join(", "))]
    UnknownName { what: &'static str, name: String, known: Vec<String> },
    #[error("board {board}: {problem}; see its file in boards/ and its disk's in disks/")]
    Disk { board: String, problem: String },
    /// A file of flashscope or of the user has invalid contents; `line` and `column` count from 1.
    #[error("{path}:{line}:{column}: {problem}")]
    Toml { path: String, line: usize, column: usize, problem: String },
    #[error("board {board}: no kernel {kernel}; there are {}, or name a directory with a kernel of your own", .known.join(", "))]
    UnknownKernel { board: String, kernel: String, known: Vec<String> },
    #[error(
        "{path}: {problem}; a kernel of your own is a directory with one vmlinuz, zImage or bzImage (also under boot/) and lib/modules/RELEASE"
    )]
    OwnKernel { path: PathBuf, problem: String },
    #[error("this host's apt names no Debian mirror; set FLASHSCOPE_DEBIAN_MIRROR to the URI of one")]
    NoMirror,
    #[error(
        "{suite}: its package index is not available ({problem}); check the network and the mirror, or name another kernel"
    )]
    IndexUnavailable { suite: String, problem: String },
    #[error("{package}: not in {suite}; check its name")]
    NoSuchPackage { package: String, suite: String },
    #[error("{package}: {problem}; try again later, or with --refresh")]
    Download { package: String, problem: String },
    #[error("{package} of {suite} is {version}, and not {wanted}x: name another suite in the board's file")]
    WrongVersion { package: String, suite: String, version: String, wanted: String },
    #[error(
        "kernel {kernel} has no {module}; {}name another kernel (flashscope board list)",
        .option.map(|option| format!("build it with {option}=m, or ")).unwrap_or_default()
    )]
    NoModule { kernel: String, module: String, option: Option<&'static str> },
    #[error("kernel {kernel}: {path}: {problem}")]
    BadModules { kernel: String, path: PathBuf, problem: String },
    #[error(
        "module {module} for kernel {kernel}: {problem}; take another kernel of the board (flashscope board list), or see kernel/{module}/README.md"
    )]
    ModuleBuild { module: String, kernel: String, problem: String },
    #[error(
        "{module}: the source of {package} ({suite}) is not a version that it was tested with: {problem}; known: {}. Update flashscope, or add the version (kernel/{module}/README.md, \"Another version of the core\")",
        .known.join(", ")
    )]
    SourceNotPinned { module: String, package: String, suite: String, problem: String, known: Vec<String> },
    #[error(
        "{package} {version}: not in {suite} any more; fetch the board's kernel anew: flashscope board fetch --refresh"
    )]
    NoHeaders { package: String, version: String, suite: String },
    #[error("the boot image: {0}")]
    Image(String),
    #[error("the plan for {board}: {problem}")]
    Plan { board: String, problem: String },
    #[error("{0}")]
    Boot(Box<BootFailure>),
}

impl Error {
    pub(crate) fn io(path: &Path, source: std::io::Error) -> Error {
        Error::Io { path: path.to_owned(), source }
    }

    /// Whether the request is impossible, so that trying again does not help.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Error::UnknownTarget(_)
                | Error::SshSpec(_)
                | Error::UnknownName { what: "board" | "chip", .. }
                | Error::Toml { .. }
                | Error::UnknownKernel { .. }
                | Error::OwnKernel { .. }
                | Error::NoAgentFile { .. }
                | Error::AgentOfAnother { .. }
                | Error::AgentStream { .. }
        )
    }

    /// The last lines of the board's console, if the error is about a boot.
    pub fn console_tail(&self) -> &[String] {
        match self {
            Error::Boot(failure) => &failure.console_tail,
            _ => &[],
        }
    }
}

fn carries(architectures: &[&str]) -> String {
    match architectures {
        [] => "it was built without any".to_owned(),
        some => format!("it has {}", some.join(", ")),
    }
}
