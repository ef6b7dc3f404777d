//! Boots a board: QEMU as a child that ends with this process, its console in one file, and the results' port in another.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{Board, Image, Kernel, unpacked};
use crate::boot_failure::{BootFailure, BootFailureKind, CONSOLE, PORT};
use crate::error::Error;
use crate::process;
use crate::progress::Progress;
use crate::scratch::{self, ScratchDir};

/// Options of a boot. [`Run::new`] is right for a measured run.
#[derive(Clone)]
pub struct Run<'a> {
    pub board: &'a Board,
    pub kernel: &'a Kernel,
    pub image: &'a Image,
    /// Wall time after which the board is powered off.
    pub timeout: Duration,
    /// Guest time counts instructions, which exact repetition needs. Otherwise the guest follows the host's clock.
    pub icount: bool,
    /// The console is this process's terminal. Input reaches the guest, so do not use it for measuring.
    pub interactive: bool,
    /// A port of this host (on 127.0.0.1) that is forwarded to port 22 of the guest. Not for measuring.
    pub hostfwd: Option<u16>,
    /// Additional kernel command line.
    pub cmdline: String,
    /// Additional arguments for QEMU.
    pub args: Vec<String>,
    /// Set it to power off the board before its plan ends.
    pub stop: Option<&'a AtomicBool>,
}

impl<'a> Run<'a> {
    /// At most ten minutes, counted instructions, no input.
    pub fn new(board: &'a Board, kernel: &'a Kernel, image: &'a Image) -> Run<'a> {
        Run {
            board,
            kernel,
            image,
            timeout: Duration::from_secs(600),
            icount: true,
            interactive: false,
            hostfwd: None,
            cmdline: String::new(),
            args: Vec::new(),
            stop: None,
        }
    }
}

/// A boot with a completed plan. Its files are removed with the value.
#[derive(Debug)]
pub struct BootOutcome {
    dir: ScratchDir,
    /// Host time from the start to the end of QEMU.
    pub wall: Duration,
    /// Exit status of QEMU.
    pub status: i32,
}

impl BootOutcome {
    /// The data from the port: frames of `agent/protocol.h`.
    pub fn port_file(&self) -> PathBuf {
        self.dir.path().join(PORT)
    }

    pub fn console(&self) -> PathBuf {
        self.dir.path().join(CONSOLE)
    }
}

const QEMU_SAYS: &str = "qemu";
const DISK: &str = "disk";
const TAIL_LINES: usize = 15;
/// Interval for checking a running board. A check takes a dozen system calls. On hosts that are virtual themselves these are slow: checks
/// every 10 ms took a tenth of a core from the board.
const TICK: Duration = Duration::from_millis(100);

/// A board powers off when its plan is complete. An x86_64 board with two processors and counted instructions does not (QEMU 7.2).
const POWER_OFF: Duration = Duration::from_secs(15);

/// The first line of `qemu --version`.
pub(super) fn version(board: &Board) -> Result<String, Error> {
    let output = process::checked(Command::new(&board.qemu.binary).arg("--version"), &board.qemu.package)?;
    Ok(String::from_utf8_lossy(&output).lines().next().unwrap_or_default().trim().to_owned())
}

/// Denied to a guest that breaks out of QEMU: starting programs, other users' rights, schedulers and limits.
const SANDBOX: &str = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny";

/// Whether this QEMU has the system call filter, checked once per program; `Err` has QEMU's message. Debian's builds have it.
fn sandbox(qemu: &Path) -> Result<(), String> {
    static ASKED: Mutex<BTreeMap<PathBuf, Result<(), String>>> = Mutex::new(BTreeMap::new());
    let mut asked = ASKED.lock().unwrap_or_else(PoisonError::into_inner);
    let answer = asked.entry(qemu.to_owned()).or_insert_with(|| {
        // The filter is set before QEMU prints the list of machines.
        let mut command = Command::new(qemu);
        process::checked(command.args(["-sandbox", SANDBOX, "-M", "help"]), "").map(|_| ()).map_err(|e| match e {
            Error::ProgramFailed { problem, .. } => clean(&problem),
            other => other.to_string(),
        })
    });
    answer.clone()
}

/// Boots and waits for the end of the plan. QEMU ends at the latest when the calling thread ends.
pub fn boot(run: &Run, progress: &dyn Progress) -> Result<BootOutcome, Error> {
    scratch::sweep()?;
    let dir = ScratchDir::under("run", &run.board.name)?;
    let says = dir.path().join(QEMU_SAYS);
    let stderr = std::fs::File::create(&says).map_err(|e| Error::io(&says, e))?;
    if let Some(disk) = &run.image.disk {
        disk.contents.write(&dir.path().join(DISK))?;
    }
    let mut command = command(run, dir.path(), progress)?;
    command.stderr(stderr);
    progress.step(&format!("booting {} with kernel {}", run.board.name, run.kernel.name));
    let memory = run.board.memory_for(run.image);
    if memory != run.board.memory_mib {
        let (mib, usual) = (run.image.size_bytes >> 20, run.board.memory_mib);
        progress.step(&format!("an image of {mib} MiB: the board gets {memory} MiB of RAM instead of {usual}"));
    }
    let began = Instant::now();
    let mut child = command.spawn().map_err(|e| process::spawn_error(&command, "util-linux", e))?;

    let mut console = Follow::new(dir.path().join(CONSOLE));
    let mut steps = crate::frames::Steps::follow(dir.path().join(PORT));
    let mut timed_out = false;
    let mut stopped = false;
    let mut complete: Option<Instant> = None;
    let mut left_on = false;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) => {}
            Err(error) => {
                child.kill().ok();
                return Err(Error::ProgramFailed { program: "wait".to_owned(), problem: error.to_string() });
            }
        }
        if !timed_out && began.elapsed() > run.timeout && !run.interactive {
            timed_out = true;
            child.kill().ok();
        }
        if !stopped && run.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            stopped = true;
            match run.interactive {
                // On TERM, QEMU restores the terminal.
                true => process::signal(&child, "TERM"),
                false => _ = child.kill(),
            }
        }
        console.lines(|line| {
            if line.starts_with(SAYS) {
                progress.step(line);
            }
            if line.contains(COMPLETE) {
                complete = Some(Instant::now());
            }
        });
        if !left_on && !run.interactive && complete.is_some_and(|since| since.elapsed() > POWER_OFF) {
            left_on = true;
            child.kill().ok();
        }
        steps.since(|name| progress.plan_step(name));
        std::thread::sleep(TICK);
    };
    let wall = began.elapsed();
    // A signal to the whole process group also ends QEMU, before this check.
    let stopped = stopped || run.stop.is_some_and(|stop| stop.load(Ordering::Relaxed));

    let console = read_console(&dir.path().join(CONSOLE));
    let empty_port = std::fs::metadata(dir.path().join(PORT)).map_or(true, |meta| meta.len() == 0);
    let kind = match verdict(&console) {
        Some(End::Failed(kind)) => Some(kind),
        Some(End::Complete) if empty_port => Some(BootFailureKind::NoPort),
        Some(End::Complete) => None,
        None if stopped => Some(BootFailureKind::Stopped),
        None if timed_out => Some(BootFailureKind::Timeout(run.timeout)),
        // The user left the console with QEMU's own keys.
        None if run.interactive && status.success() => None,
        None => {
            let said = std::fs::read(&says).unwrap_or_default();
            let said = String::from_utf8_lossy(&said);
            let said = said.lines().next_back().map(clean).unwrap_or_default();
            Some(BootFailureKind::QemuDied { how: status.to_string(), said })
        }
    };
    match kind {
        None => Ok(BootOutcome { dir, wall, status: if left_on { 0 } else { process::exit_code(status) } }),
        Some(kind) => Err(Error::Boot(Box::new(BootFailure {
            board: run.board.name.clone(),
            kernel: run.kernel.name.clone(),
            kind,
            console_tail: tail(&console),
            dir,
        }))),
    }
}

/// QEMU's command line, with its sandbox if it has one.
fn command(run: &Run, dir: &Path, progress: &dyn Progress) -> Result<Command, Error> {
    let qemu = process::find_program(&run.board.qemu.binary).ok_or_else(|| Error::ProgramMissing {
        program: run.board.qemu.binary.clone(),
        package: run.board.qemu.package.clone(),
    })?;
    let absolute = |path: &Path| std::path::absolute(path).map_err(|e| Error::io(path, e));
    let kernel = absolute(&unpacked::boot_file(run.board, run.kernel, progress)?)?;
    let qemu = absolute(&qemu)?;
    // QEMU restores the console's terminal, so it must end by itself.
    let mut command = process::dies_with_us(if run.interactive { "TERM" } else { "KILL" }, qemu.as_os_str());
    match sandbox(&qemu) {
        Ok(()) => _ = command.args(["-sandbox", SANDBOX]),
        Err(why) => progress.step(&format!("{} runs without a sandbox: {why}", run.board.qemu.binary)),
    }
    command.args(arguments(run, &kernel, dir));
    // QEMU looks for its firmware in the working directory first (qemu_find_file), so that must not contain other users' files.
    command.current_dir(dir);
    if run.interactive {
        command.stdin(Stdio::inherit()).stdout(Stdio::inherit());
    } else {
        command.stdin(Stdio::null()).stdout(Stdio::null());
    }
    Ok(command)
}

fn arguments(run: &Run, kernel: &Path, dir: &Path) -> Vec<OsString> {
    let board = run.board;
    let mut args: Vec<OsString> = board.qemu.args.iter().map(OsString::from).collect();
    if run.icount {
        args.extend(icount(run).into_iter().map(OsString::from));
    }
    args.extend(["-m".into(), board.memory_for(run.image).to_string().into()]);
    let mut cmdline = format!("{} rdinit=/init", board.qemu.cmdline);
    if !run.cmdline.is_empty() {
        cmdline.push(' ');
        cmdline.push_str(&run.cmdline);
    }
    args.extend(["-kernel".into(), kernel.into(), "-initrd".into(), run.image.path.clone().into()]);
    args.extend(["-append".into(), cmdline.into(), "-display".into(), "none".into()]);
    let console = option_path(&dir.join(CONSOLE));
    if run.interactive {
        let chardev = format!("stdio,id=console,mux=on,signal=off,logfile={console}");
        args.extend(
            ["-chardev", &chardev, "-serial", "chardev:console", "-mon", "chardev=console"].map(OsString::from),
        );
    } else {
        let chardev = format!("file,id=console,path={console}");
        args.extend(["-chardev", &chardev, "-serial", "chardev:console", "-monitor", "none"].map(OsString::from));
    }
    let port = format!("file,id=port,path={}", option_path(&dir.join(PORT)));
    args.extend(["-device", &board.qemu.serial_device, "-chardev", &port].map(OsString::from));
    args.extend(["-device", "virtserialport,chardev=port,name=flashscope"].map(OsString::from));
    if let Some(disk) = &run.image.disk {
        let file = option_path(&dir.join(DISK));
        args.extend(disk.qemu_args.iter().map(|word| word.replace(super::disk::FILE, &file).into()));
    }
    if let Some(host) = run.hostfwd {
        let netdev = format!("user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:{host}-:22");
        let device = format!("{},netdev=net", board.qemu.net_device);
        args.extend(["-netdev", &netdev, "-device", &device].map(OsString::from));
    }
    args.extend(run.args.iter().map(OsString::from));
    args
}

/// QEMU's -icount. On a board with one processor, QEMU also records the run, and the record is discarded: only the recorder's lock is
/// needed (docs/explanation/measurement.md, "Repeatability"). QEMU does not record several processors.
fn icount(run: &Run) -> Vec<String> {
    let mut words = run.board.qemu.icount.clone();
    let all: Vec<&String> = run.board.qemu.args.iter().chain(&run.args).collect();
    let processors = all.windows(2).rev().find(|pair| pair[0] == "-smp").map_or("1", |pair| pair[1]);
    if let (Some(value), "1") = (words.last_mut(), processors) {
        value.push_str(",rr=record,rrfile=/dev/null");
    }
    words
}

/// Escapes a path for QEMU's comma-separated options.
fn option_path(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

/// Reads lines from a growing file.
struct Follow {
    path: PathBuf,
    position: u64,
    rest: Vec<u8>,
}

impl Follow {
    fn new(path: PathBuf) -> Follow {
        Follow { path, position: 0, rest: Vec::new() }
    }

    fn lines(&mut self, mut each: impl FnMut(&str)) {
        let Ok(mut file) = std::fs::File::open(&self.path) else { return };
        let mut new = Vec::new();
        if file.seek(SeekFrom::Start(self.position)).is_err() || file.take(1 << 20).read_to_end(&mut new).is_err() {
            return;
        }
        self.position += new.len() as u64;
        self.rest.extend(new);
        while let Some(end) = self.rest.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            each(&clean(&String::from_utf8_lossy(&line)));
        }
        // A line without an end is not kept indefinitely.
        if self.rest.len() > 64 * 1024 {
            self.rest.clear();
        }
    }
}

/// The console's last 256 KiB.
fn read_console(path: &Path) -> String {
    let mut bytes = Vec::new();
    if let Ok(mut file) = std::fs::File::open(path) {
        let size = file.metadata().map_or(0, |meta| meta.len());
        file.seek(SeekFrom::Start(size.saturating_sub(256 * 1024))).ok();
        file.read_to_end(&mut bytes).ok();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A guest's text without terminal control characters.
fn clean(line: &str) -> String {
    line.chars().filter(|c| !c.is_control() || *c == '\t').collect::<String>().trim_end().to_owned()
}

fn tail(console: &str) -> Vec<String> {
    let lines: Vec<String> = console.lines().map(clean).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].to_vec()
}

#[derive(Debug, PartialEq)]
enum End {
    Complete,
    Failed(BootFailureKind),
}

/// Prefix of PID 1's lines.
const SAYS: &str = "flashscope: ";
/// PID 1's last line after success.
const COMPLETE: &str = "flashscope: plan complete";

/// The result by the console's text. Kernel messages may come before PID 1's text on a line.
fn verdict(console: &str) -> Option<End> {
    let mut end = None;
    for line in console.lines().map(clean) {
        if let Some(failed) = line.split_once("flashscope: plan failed: step ").map(|(_, rest)| rest) {
            return Some(End::Failed(plan_failed(failed)));
        }
        if line.contains(COMPLETE) {
            end = Some(End::Complete);
        } else if end.is_none()
            && let Some((_, words)) = line.split_once("Kernel panic - not syncing: ")
        {
            end = Some(End::Failed(BootFailureKind::Panic(words.to_owned())));
        }
    }
    end
}

/// `N (LINE): reason`; LINE may contain parentheses, so the last `): ` ends it.
fn plan_failed(text: &str) -> BootFailureKind {
    let (step, rest) = text.split_once(' ').unwrap_or((text, ""));
    let (line, reason) = rest.strip_prefix('(').and_then(|r| r.split_once("): ")).unwrap_or(("", rest));
    BootFailureKind::PlanFailed {
        step: step.trim_end_matches(':').parse().unwrap_or(0),
        line: line.to_owned(),
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_console_tells_the_ends_apart() {
        assert_eq!(
            verdict("[    1.0] x\r\nflashscope: plan complete\r\n[ 2.0] reboot: Power down\r\n"),
            Some(End::Complete)
        );
        assert_eq!(
            verdict("flashscope: plan failed: step 3 (mount mtd0 /mnt jffs2 -): No such device\n"),
            Some(End::Failed(BootFailureKind::PlanFailed {
                step: 3,
                line: "mount mtd0 /mnt jffs2 -".to_owned(),
                reason: "No such device".to_owned()
            }))
        );
        assert_eq!(
            verdict("[ 1.2] Kernel panic - not syncing: VFS: Unable to mount root fs\n[ 1.3] CPU: 0\n"),
            Some(End::Failed(BootFailureKind::Panic("VFS: Unable to mount root fs".to_owned())))
        );
        assert_eq!(verdict("[ 0.1] booting\n"), None);
    }

    #[test]
    fn a_guests_text_cannot_drive_the_terminal() {
        assert_eq!(clean("a\x1b[31mb\x07\r"), "a[31mb");
        let console: String = (0..40).map(|n| format!("line {n}\n")).collect();
        assert_eq!(tail(&console).len(), TAIL_LINES);
        assert_eq!(tail(&console).last().unwrap(), "line 39");
    }

    #[test]
    fn a_qemu_without_the_filter_is_told_from_one_with_it() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = std::env::temp_dir().join(format!("flashscope-sandbox-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let fake = |name: &str, script: &str| {
            let path = dir.join(name);
            std::fs::write(&path, script).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            path
        };
        let with = fake("with", "#!/bin/sh\n[ \"$1\" = -sandbox ] && [ \"${2%%,*}\" = on ]\n");
        let without =
            fake("without", "#!/bin/sh\necho '-sandbox support is not enabled in this QEMU binary' >&2; exit 1\n");
        assert_eq!(sandbox(&with), Ok(()));
        assert_eq!(sandbox(&without), Err("-sandbox support is not enabled in this QEMU binary".to_owned()));
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn paths_survive_qemus_option_syntax() {
        assert_eq!(option_path(Path::new("/a,b/c")), "/a,,b/c");
    }
}
