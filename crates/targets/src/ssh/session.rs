//! `record -- CMD` over ssh with this terminal as CMD's stdin, stdout and stderr. CMD has its own connection, and the stream comes through
//! a FIFO and the holder's connection. So neither waits for the other, and CMD's output never passes through the recorder.

use std::io::{Read, Write};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::{Holder, Ssh, answer_in_time, quote};
use crate::Error;
use crate::job::{Job, JobOutcome};
use crate::process::{self, Pumped};
use crate::watch::StreamMonitor;
use std::sync::Arc;

const TICK: Duration = Duration::from_millis(20);
/// Processes that CMD started may keep its output open. They are abandoned after this time without output, counted after the recording's
/// end.
const IDLE: Duration = Duration::from_secs(3);

/// Copies CMD's output as it arrives, and keeps its beginning.
struct Relay {
    began: Instant,
    /// Time of the last copied byte, in ms after `began`; `BUSY` during a copy.
    moved: Arc<AtomicU64>,
    thread: JoinHandle<String>,
}

const BUSY: u64 = u64::MAX;
const KEPT: usize = 64 * 1024;

impl Relay {
    fn new(mut from: impl Read + Send + 'static, mut to: impl Write + Send + 'static) -> Relay {
        let began = Instant::now();
        let moved = Arc::new(AtomicU64::new(0));
        let shared = Arc::clone(&moved);
        let thread = std::thread::spawn(move || {
            let mut kept = Vec::new();
            let mut buffer = vec![0; 64 * 1024];
            while let Ok(n @ 1..) = from.read(&mut buffer) {
                shared.store(BUSY, Ordering::Relaxed);
                kept.extend_from_slice(&buffer[..n.min(KEPT - kept.len())]);
                let passed = to.write_all(&buffer[..n]).and_then(|()| to.flush());
                shared.store(u64::try_from(began.elapsed().as_millis()).unwrap_or(0), Ordering::Relaxed);
                if passed.is_err() {
                    // Closing our end is the end of CMD's input, as with a pipe.
                    break;
                }
            }
            String::from_utf8_lossy(&kept).into_owned()
        });
        Relay { began, moved, thread }
    }

    fn idle(&self) -> bool {
        let moved = self.moved.load(Ordering::Relaxed);
        moved != BUSY && self.began.elapsed().saturating_sub(Duration::from_millis(moved)) > IDLE
    }

    fn said(self) -> String {
        if self.thread.is_finished() { self.thread.join().unwrap_or_default() } else { String::new() }
    }
}

/// CMD's connection: the client and its relays.
struct Session {
    client: Child,
    relays: [Relay; 2],
    stopped: bool,
}

impl Session {
    /// Waits until the client ends, the user stops it, or no more output is expected. Then the holder may end.
    fn watch(&mut self, ended: &AtomicBool, stop: Option<&AtomicBool>, finish: &AtomicBool, done: &AtomicBool) {
        let mut over: Option<Instant> = None;
        loop {
            if !matches!(self.client.try_wait(), Ok(None)) {
                break;
            }
            if stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                // The holder asks the agent to end; then the stream and the client end by themselves.
                self.stopped = true;
                finish.store(true, Ordering::Relaxed);
            }
            if ended.load(Ordering::Relaxed) || done.load(Ordering::Relaxed) {
                let since = *over.get_or_insert_with(Instant::now);
                if since.elapsed() > IDLE && self.relays.iter().all(Relay::idle) {
                    process::signal(&self.client, "TERM");
                    break;
                }
            }
            std::thread::sleep(TICK);
        }
        finish.store(true, Ordering::Relaxed);
    }

    fn end(mut self) -> Result<(ExitStatus, String), Error> {
        let status = self
            .client
            .wait()
            .map_err(|e| Error::ProgramFailed { program: "wait".to_owned(), problem: e.to_string() })?;
        // The pipes still have CMD's last output.
        let began = Instant::now();
        while !self.relays.iter().all(|relay| relay.thread.is_finished() || relay.idle())
            && began.elapsed() < IDLE * 100
        {
            std::thread::sleep(TICK);
        }
        let [_, errors] = self.relays;
        Ok((status, errors.said()))
    }
}

impl Ssh {
    /// Asks the holder to create the FIFO and to read it.
    fn begin_stream(&self, holder: &mut Holder) -> Result<(), Error> {
        let problem = |problem| Error::RemoteStream { target: self.name.clone(), problem };
        let asked = holder.stdin.as_mut().map(|stdin| stdin.write_all(b"stream\n").and_then(|()| stdin.flush()));
        let stdout = holder.stdout.take().filter(|_| matches!(asked, Some(Ok(()))));
        let answered = stdout.map(|stdout| answer_in_time(stdout, self.options.stop.as_deref()));
        let said = match answered {
            Some(Ok((said, stdout))) => {
                holder.stdout = Some(stdout);
                said
            }
            Some(Err(waited)) => {
                return Err(Error::SshSilent { target: self.name.clone(), seconds: waited.as_secs() });
            }
            None => None,
        };
        match said.as_deref() {
            Some("stream") => Ok(()),
            Some(_) => Err(problem("no FIFO can be made there; put mkfifo there (BusyBox has it)")),
            None => Err(problem("the connection ended; run the command again")),
        }
    }

    fn session(&self, holder: &Holder, agent: &str, job: &Job) -> Result<Session, Error> {
        let dir = quote(&holder.dir);
        let argv = job.argv_beside(&holder.dir);
        let mut words = argv.iter().map(|word| quote(word));
        let first = words.next().unwrap_or_default();
        let rest: Vec<String> = words.collect();
        // The shell becomes the agent with the same pid.
        let script = format!(
            "start() {{ read -r s </proc/$1/stat || return 1; s=${{s##*) }}; set -- $s; shift 19; echo $1; }}; \
             (umask 077; echo $$ $(start $$) >{dir}/pid) && \
             exec {} {first} --stdio 3,4,5 {} 3<&0 4>&1 5>&2 </dev/null >{dir}/stream 2>{dir}/messages",
            quote(agent),
            rest.join(" ")
        );
        let mut command = self.command(&script);
        command.stdin(Stdio::inherit());
        let mut client = command.spawn().map_err(|e| process::spawn_error(&command, "util-linux", e))?;
        let relays = [
            Relay::new(client.stdout.take().expect("stdout is piped"), std::io::stdout()),
            Relay::new(client.stderr.take().expect("stderr is piped"), std::io::stderr()),
        ];
        Ok(Session { client, relays, stopped: false })
    }

    pub(super) fn run_passing_stdio(
        &self,
        mut holder: Holder,
        agent: &str,
        job: &Job,
        out: &mut dyn Write,
    ) -> Result<JobOutcome, Error> {
        self.begin_stream(&mut holder)?;
        let mut session = self.session(&holder, agent, job)?;
        let (ended, finish, done) = (AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false));
        let mut watch = StreamMonitor::new(out, &ended);
        let mut child = holder.child.take().expect("the holder is held");
        child.stdout = holder.stdout.take().map(std::io::BufReader::into_inner);
        let (mut stdin, errors) = (holder.stdin.take(), holder.errors.take());
        let timeout = job.timeout.or(self.options.timeout);
        let stop = self.options.stop.as_deref();
        let pumped = std::thread::scope(|scope| {
            let watcher = scope.spawn(|| session.watch(&ended, stop, &finish, &done));
            let pumped =
                process::pump_beside(child, errors, process::Source::Pipe, &mut watch, timeout, Some(&finish), |_| {
                    drop(stdin.take())
                });
            done.store(true, Ordering::Relaxed);
            watcher.join().ok();
            pumped
        });
        let command = watch.status;
        let pumped = pumped?;
        let stopped = session.stopped;
        let (status, said) = session.end()?;
        self.judge(&pumped, process::exit_code(status), &said, command, stopped || ended.load(Ordering::Relaxed))?;
        if pumped.timed_out {
            let seconds = timeout.unwrap_or_default().as_secs();
            return Err(Error::JobTimeout { target: self.name.clone(), seconds });
        }
        let whole = ended.load(Ordering::Relaxed) && pumped.status == 0;
        let status = if whole { 0 } else { process::exit_code(status).max(1) };
        Ok(JobOutcome { status, command, stderr: pumped.stderr, files: Vec::new(), _files_dir: None })
    }

    /// Failures of ssh itself: of the stream's connection, or of CMD's connection before the recording ended.
    fn judge(&self, stream: &Pumped, status: i32, said: &str, command: Option<i32>, over: bool) -> Result<(), Error> {
        if let Some(error) = self.connection_error(stream).filter(|_| !over) {
            return Err(error);
        }
        if status == 255 && !over && command != Some(255) {
            return Err(super::classify(&self.name, said, stream.bytes));
        }
        Ok(())
    }
}
