//! Child processes that end with this process, a search for programs, and a pump for a child's stdout.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::error::Error;

/// Runs a program to its end. `package`: the Debian package to install if the program is missing.
pub(crate) fn output(command: &mut Command, package: &str) -> Result<Output, Error> {
    command.stdin(Stdio::null());
    command.output().map_err(|e| spawn_error(command, package, e))
}

/// Like [`output`]; a failure becomes an error with the last line of the program's stderr.
pub(crate) fn checked(command: &mut Command, package: &str) -> Result<Vec<u8>, Error> {
    let output = output(command, package)?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let problem = stderr.lines().rev().find(|line| !line.trim().is_empty()).map(|line| line.trim().to_owned());
    Err(Error::ProgramFailed { program: program(command), problem: problem.unwrap_or(output.status.to_string()) })
}

pub(crate) fn spawn_error(command: &Command, package: &str, error: std::io::Error) -> Error {
    if error.kind() == std::io::ErrorKind::NotFound {
        Error::ProgramMissing { program: program(command), package: package.to_owned() }
    } else {
        Error::ProgramFailed { program: program(command), problem: error.to_string() }
    }
}

fn program(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

/// Finds a program in PATH and in the sbin directories, which a user's PATH often lacks. Empty and relative parts of PATH are ignored,
/// because they mean the working directory.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .filter(|dir| dir.is_absolute())
        .chain(["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|path| path.is_file())
}

/// A command that the kernel ends with `signal` (`KILL`, `TERM`) when the thread that spawned it ends, for any reason.
///
/// Spawn it in the thread that also waits for it. A shell starts setpriv, which requests the signal. The shell checks its parent first,
/// because this process may have ended before the request.
pub(crate) fn dies_with_us(signal: &str, program: &std::ffi::OsStr) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", signal, "--", "/bin/sh", "-c"]);
    command.arg(r#"[ "$PPID" = "$1" ] || exit 125; shift; exec "$@""#);
    command.arg("flashscope").arg(std::process::id().to_string()).arg(program);
    command
}

/// Sends a signal to a child that has not been waited for, so that its pid is still its own.
pub(crate) fn signal(child: &Child, name: &str) {
    Command::new("/bin/sh")
        .args(["-c", r#"kill -s "$1" "$2""#, "sh", name, &child.id().to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .ok();
}

/// Waits until a child that was asked to end has ended; kills it if it does not.
pub(crate) fn end(mut child: Child) {
    let asked = Instant::now();
    while asked.elapsed() < GRACE / 5 && matches!(child.try_wait(), Ok(None)) {
        std::thread::sleep(TICK);
    }
    child.kill().ok();
    child.wait().ok();
}

/// The result of the pump.
pub(crate) struct Pumped {
    /// Exit status; 128 + n for signal n.
    pub status: i32,
    pub stderr: String,
    /// Bytes written to `out`.
    pub bytes: u64,
    pub timed_out: bool,
    /// The child was asked to end.
    pub asked: bool,
}

const STDERR_LIMIT: usize = 64 * 1024;
/// Interval for checking the time limit and the stop flag.
const TICK: Duration = Duration::from_millis(50);
/// Time between a request to end and the kill.
const GRACE: Duration = Duration::from_secs(10);

/// A child that has not run for so long may never run again, which is told.
const STUCK: Duration = Duration::from_secs(5);
/// A child that has not run for so long is not waited for.
const GIVEN_UP: Duration = Duration::from_secs(30);

/// Size of the pipe from a child, if the system allows it: Linux' `fs.pipe-max-size` is 1 MiB.
const PIPE_BYTES: usize = 1 << 20;
/// A recorder writes many small frames. Reading each at once would wake this process thousands of times a second, on the CPUs whose work
/// is measured. The pipe holds what comes in this time.
const PIPE_PAUSE: Duration = Duration::from_millis(2);

/// Interval for reading a file that a child writes.
const FILE_TICK: Duration = Duration::from_millis(20);

/// A child's stdout.
pub(crate) enum Source<'a> {
    /// The child's own pipe.
    Pipe,
    /// This file, whose descriptor the child has. Read from its begin.
    File(&'a File),
}

/// The open end of a [`Source`].
enum Reader<'a> {
    Pipe { pipe: ChildStdout, pause: bool },
    File { file: &'a File, position: u64, child_ended: bool },
    Nothing,
}

enum Piece {
    Bytes(usize),
    Nothing,
    End,
}

impl Reader<'_> {
    fn of<'a>(source: Source<'a>, child: &mut Child) -> Reader<'a> {
        match (source, child.stdout.take()) {
            (Source::File(file), _) => Reader::File { file, position: 0, child_ended: false },
            (Source::Pipe, Some(pipe)) => Reader::Pipe { pause: make_large(&pipe), pipe },
            (Source::Pipe, None) => Reader::Nothing,
        }
    }

    /// Waits for a short time at most.
    fn next(&mut self, buffer: &mut [u8], child: &mut Child) -> Piece {
        match self {
            Reader::Pipe { pipe, pause } => {
                if !readable(pipe, TICK) {
                    return Piece::Nothing;
                }
                let piece = piece(pipe.read(buffer));
                if let Piece::Bytes(n) = piece
                    && *pause
                    && n < buffer.len()
                {
                    std::thread::sleep(PIPE_PAUSE);
                }
                piece
            }
            Reader::File { file, position, child_ended } => {
                // Asked before reading: a child that has ended writes nothing after that.
                *child_ended = !matches!(child.try_wait(), Ok(None));
                let piece = piece(file.read_at(buffer, *position));
                match piece {
                    Piece::Bytes(n) => *position += n as u64,
                    Piece::End if !*child_ended => {
                        std::thread::sleep(FILE_TICK);
                        return Piece::Nothing;
                    }
                    Piece::Nothing | Piece::End => {}
                }
                piece
            }
            Reader::Nothing => Piece::End,
        }
    }

    /// Whether the child was waited for: its pid may be another process's.
    fn child_ended(&self) -> bool {
        matches!(self, Reader::File { child_ended: true, .. })
    }
}

fn piece(read: std::io::Result<usize>) -> Piece {
    match read {
        Ok(0) => Piece::End,
        Ok(n) => Piece::Bytes(n),
        Err(error) if error.kind() == std::io::ErrorKind::Interrupted => Piece::Nothing,
        Err(_) => Piece::End,
    }
}

fn readable(pipe: &ChildStdout, limit: Duration) -> bool {
    let mut fds = [PollFd::new(pipe, PollFlags::IN)];
    let limit = Timespec { tv_sec: 0, tv_nsec: limit.subsec_nanos().into() };
    rustix::event::poll(&mut fds, Some(&limit)).is_ok_and(|ready| ready > 0)
}

fn make_large(pipe: &ChildStdout) -> bool {
    rustix::pipe::fcntl_setpipe_size(pipe, PIPE_BYTES).is_ok()
}

/// What a child says on stderr, read from now on, so that it never has to wait for us.
pub(crate) type Errors = std::thread::JoinHandle<String>;

pub(crate) fn errors_of(child: &mut Child) -> Option<Errors> {
    child.stderr.take().map(|pipe| std::thread::spawn(move || read_bounded(pipe)))
}

/// Copies a child's stdout to `out` until the child ends. Calls `ask_to_end` once, on time-out or if `stop` is set. An error of `out` ends
/// the child and is returned.
pub(crate) fn pump(
    mut child: Child,
    out: &mut dyn Write,
    timeout: Option<Duration>,
    stop: Option<&AtomicBool>,
    ask_to_end: impl FnMut(&mut Child),
) -> Result<Pumped, Error> {
    let stderr = errors_of(&mut child);
    pump_beside(child, stderr, Source::Pipe, out, timeout, stop, ask_to_end)
}

/// As [`pump`], of a child whose stderr is being read already.
pub(crate) fn pump_beside(
    mut child: Child,
    stderr: Option<Errors>,
    source: Source,
    out: &mut dyn Write,
    timeout: Option<Duration>,
    stop: Option<&AtomicBool>,
    mut ask_to_end: impl FnMut(&mut Child),
) -> Result<Pumped, Error> {
    let began = Instant::now();
    let mut reader = Reader::of(source, &mut child);
    let mut buffer = vec![0; 64 * 1024];

    let mut bytes = 0;
    let mut failed = None;
    let mut timed_out = false;
    let mut stuck = Stuck::default();
    let mut asked: Option<Instant> = None;
    loop {
        match reader.next(&mut buffer, &mut child) {
            Piece::Bytes(n) if failed.is_none() => match out.write_all(&buffer[..n]) {
                Ok(()) => bytes += n as u64,
                Err(error) => failed = Some(error),
            },
            Piece::Bytes(_) | Piece::Nothing => {}
            Piece::End => break,
        }
        if reader.child_ended() {
            continue;
        }
        if bytes == 0 && stuck.is_seen(child.id()) {
            let (process, seconds, most) = (in_kernel(child.id()), STUCK.as_secs(), GIVEN_UP.as_secs());
            flashscope_output::note(&format!(
                "{process} has not run for {seconds} s; Ctrl-C ends this command, and {most} s do"
            ));
        }
        let given_up = bytes == 0 && stuck.for_long();
        let late = timeout.is_some_and(|limit| began.elapsed() > limit);
        let stopped = stop.is_some_and(|stop| stop.load(Ordering::Relaxed));
        match asked {
            None if late || stopped || given_up || failed.is_some() => {
                timed_out = late && !stopped && !given_up && failed.is_none();
                ask_to_end(&mut child);
                asked = Some(Instant::now());
            }
            // A descendant may hold the pipe open after the child has ended: do not wait for it.
            Some(at) if at.elapsed() > stuck.grace() * 2 => break,
            Some(at) if at.elapsed() > stuck.grace() => {
                child.kill().ok();
            }
            _ => {}
        }
    }
    drop(reader);
    // Its stdout is closed. A child that does not end is asked to, then killed, as above.
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) => {}
            Err(error) => return Err(Error::ProgramFailed { program: "wait".to_owned(), problem: error.to_string() }),
        }
        match asked {
            None if timeout.is_some_and(|limit| began.elapsed() > limit) => {
                timed_out = true;
                ask_to_end(&mut child);
                asked = Some(Instant::now());
            }
            // Killed long ago: it waits in the kernel, and no signal ends that.
            Some(at) if at.elapsed() > stuck.grace() * 2 + TICK && is_in_kernel(child.id()) => {
                return Err(Error::Unkillable { process: in_kernel(child.id()) });
            }
            Some(at) if at.elapsed() > stuck.grace() => {
                child.kill().ok();
            }
            _ => {}
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    // What a child that was killed has started may hold its stderr open.
    let over = Instant::now();
    while asked.is_some() && over.elapsed() < GRACE && stderr.as_ref().is_some_and(|thread| !thread.is_finished()) {
        std::thread::sleep(TICK);
    }
    let stderr = match stderr {
        Some(thread) if asked.is_none() || thread.is_finished() => thread.join().unwrap_or_default(),
        _ => String::new(),
    };
    if failed.is_none() {
        failed = out.flush().err();
    }
    match failed {
        Some(error) => Err(Error::Output(error)),
        None => Ok(Pumped { status: exit_code(status), stderr, bytes, timed_out, asked: asked.is_some() }),
    }
}

/// Whether a process waits in the kernel where no signal ends it (state D, proc(5)).
fn is_in_kernel(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('D'))
}

/// Looks for a process that does not run: it waits in the kernel, and has not been switched to meanwhile. One that reads a slow
/// device waits again and again.
#[derive(Default)]
struct Stuck {
    /// The switches that it had, and since when.
    seen: Option<(String, Instant)>,
    looked: Option<Instant>,
    told: bool,
}

impl Stuck {
    /// Time between a request to end and the kill.
    fn grace(&self) -> Duration {
        if self.told { TICK * 10 } else { GRACE }
    }

    /// Once, when it has not run for [`STUCK`].
    fn is_seen(&mut self, pid: u32) -> bool {
        if self.looked.is_some_and(|at| at.elapsed() < STUCK / 5) {
            return false;
        }
        self.looked = Some(Instant::now());
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let switches = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches:")).map(str::to_owned);
        let Some(switches) = switches.filter(|_| is_in_kernel(pid)) else {
            self.seen = None;
            return false;
        };
        if self.seen.as_ref().is_none_or(|(before, _)| *before != switches) {
            self.seen = Some((switches, Instant::now()));
        }
        let told_before = self.told;
        self.told |= self.has_waited(STUCK);
        self.told && !told_before
    }

    fn for_long(&self) -> bool {
        self.has_waited(GIVEN_UP)
    }

    fn has_waited(&self, limit: Duration) -> bool {
        self.seen.as_ref().is_some_and(|(_, since)| since.elapsed() >= limit)
    }
}

/// A process that waits in the kernel, with the kernel's function where root may see it.
fn in_kernel(pid: u32) -> String {
    let wchan = std::fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
    match wchan.chars().all(|c| c.is_ascii_alphanumeric() || "_.".contains(c)) && wchan.len() > 1 {
        true => format!("process {pid}, which waits in the kernel ({wchan}),"),
        false => format!("process {pid}, which waits in the kernel,"),
    }
}

/// Exit code; 128 + n if signal n ended the child.
pub(crate) fn exit_code(status: std::process::ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt as _;
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// Reads to the end and keeps the first 64 KiB, as text.
fn read_bounded(mut pipe: impl Read) -> String {
    let mut kept = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(n @ 1..) = pipe.read(&mut buffer) {
        let room = STDERR_LIMIT.saturating_sub(kept.len()).min(n);
        kept.extend_from_slice(&buffer[..room]);
    }
    String::from_utf8_lossy(&kept).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_child_writes_into_a_file_is_seen_while_it_runs_and_whole_at_its_end() {
        struct Seen<'a> {
            bytes: Vec<u8>,
            file: &'a File,
            pieces: u32,
        }
        impl Write for Seen<'_> {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.bytes.extend_from_slice(bytes);
                self.pieces += 1;
                if self.bytes == b"one\n" {
                    // The child waits for it.
                    self.file.write_at(b"go", 0)?;
                }
                Ok(bytes.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let dir = crate::ScratchDir::new("test-file").unwrap();
        let gate = File::create_new(dir.path().join("gate")).unwrap();
        let file = File::create_new(dir.path().join("stream")).unwrap();
        let mut child = Command::new("/bin/sh")
            .args(["-c", "echo one; until [ -s gate ]; do sleep 0.01; done; head -c 200000 /dev/zero; echo two"])
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::from(file.try_clone().unwrap()))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let errors = errors_of(&mut child);
        let mut seen = Seen { bytes: Vec::new(), file: &gate, pieces: 0 };
        let limit = Some(Duration::from_secs(60));
        let pumped = pump_beside(child, errors, Source::File(&file), &mut seen, limit, None, |child| {
            child.kill().ok();
        });
        let pumped = pumped.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((pumped.status, pumped.timed_out, pumped.bytes), (0, false, 200_008));
        assert!(seen.bytes.starts_with(b"one\n") && seen.bytes.ends_with(b"two\n") && seen.pieces > 2);
    }

    /// A parent waits in the kernel until its child of `CLONE_VFORK` has ended (kernel/fork.c, `wait_for_vfork_done`).
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_process_that_does_not_run_is_seen_and_one_that_sleeps_is_not() {
        const CLONE: &str = "import ctypes, time\n\
            if ctypes.CDLL(None).syscall(56, 0x4000 | 17, 0, 0, 0, 0, 0) == 0: time.sleep(60)";
        // The copy outlives its parent, and must not hold what this test writes to.
        let start =
            |command: &mut Command| command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let Ok(mut waits) = start(Command::new("python3").args(["-c", CLONE])) else {
            println!("skipped: needs python3");
            return;
        };
        let mut sleeps = start(Command::new("sleep").arg("60")).unwrap();
        let (mut stuck, mut other) = (Stuck::default(), Stuck::default());
        let began = Instant::now();
        let mut seen = 0;
        while seen == 0 && began.elapsed() < Duration::from_secs(50) {
            assert!(!other.is_seen(sleeps.id()));
            seen += u32::from(stuck.is_seen(waits.id()));
            std::thread::sleep(TICK);
        }
        let took = began.elapsed();
        assert!(!stuck.is_seen(waits.id()), "told once");
        assert!(seen == 1 && took >= STUCK && stuck.grace() < GRACE && other.grace() == GRACE, "{seen}, {took:?}");
        for child in [&mut waits, &mut sleeps] {
            child.kill().ok();
            child.wait().ok();
        }
    }
}
