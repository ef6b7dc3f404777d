//! The target `local`: runs the agent as a child that ends with this process.

use std::fs::OpenOptions as FileOptions;
use std::io::Write;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::job::{Job, JobOutcome, Target, placed};
use crate::process::Source;
use crate::scratch::ScratchDir;
use crate::watch::StreamMonitor;
use crate::{Error, OpenOptions, agents, process};

pub(crate) struct Local {
    agent: PathBuf,
    options: OpenOptions,
}

impl Local {
    pub(crate) fn new(options: &OpenOptions) -> Result<Local, Error> {
        Ok(Local { agent: agents::host_agent()?, options: options.clone() })
    }
}

/// Files that were put and are removed at the end.
struct Put(Vec<String>);

impl Drop for Put {
    fn drop(&mut self) {
        for path in &self.0 {
            std::fs::remove_file(path).ok();
        }
    }
}

/// Copies of this process's stdin, stdout and stderr without close-on-exec, for a child to inherit.
fn inheritable_stdio() -> Result<[OwnedFd; 3], Error> {
    let failed = |e: rustix::io::Errno| Error::ProgramFailed { program: "dup".to_owned(), problem: e.to_string() };
    Ok([
        rustix::io::dup(std::io::stdin()).map_err(failed)?,
        rustix::io::dup(std::io::stdout()).map_err(failed)?,
        rustix::io::dup(std::io::stderr()).map_err(failed)?,
    ])
}

/// The agent's arguments with `--stdio` after the first one.
fn with_stdio(argv: &[String], stdio: Option<&[OwnedFd; 3]>) -> Vec<String> {
    let mut argv = argv.to_vec();
    if let (Some([input, output, errors]), 1..) = (stdio, argv.len()) {
        let three = format!("{},{},{}", input.as_raw_fd(), output.as_raw_fd(), errors.as_raw_fd());
        argv.splice(1..1, ["--stdio".to_owned(), three]);
    }
    argv
}

impl Target for Local {
    fn name(&self) -> &str {
        "local"
    }

    fn writes_streams(&self) -> bool {
        true
    }

    fn run(&self, job: &Job, out: &mut dyn Write) -> Result<JobOutcome, Error> {
        let directory = ScratchDir::new("put")?;
        let beside = directory.path().to_string_lossy().into_owned();
        let mut put = Put(Vec::new());
        for file in &job.put {
            let path = placed(&file.path, &beside);
            let bytes = file.bytes()?;
            let failed = |e: std::io::Error| Error::Put {
                target: "local".to_owned(),
                path: path.clone(),
                problem: e.to_string(),
            };
            let mut created =
                FileOptions::new().write(true).create_new(true).mode(file.mode).open(&path).map_err(|e| {
                    match e.kind() {
                        std::io::ErrorKind::AlreadyExists => {
                            Error::PutExists { target: "local".to_owned(), path: path.clone() }
                        }
                        _ => failed(e),
                    }
                })?;
            put.0.push(path.clone());
            created.write_all(&bytes).map_err(failed)?;
        }

        let mut command = process::dies_with_us("TERM", self.agent.as_os_str());
        let argv = job.argv_beside(&beside);
        // The agent keeps its own three descriptors. The command's are three more, open only in this block.
        let mut child = {
            let stdio = if job.pass_stdio { Some(inheritable_stdio()?) } else { None };
            command.args(with_stdio(&argv, stdio.as_ref()));
            let stdout = match &job.stream {
                Some(file) => Stdio::from(file.try_clone().map_err(Error::Output)?),
                None => Stdio::piped(),
            };
            command.stdin(Stdio::null()).stdout(stdout).stderr(Stdio::piped());
            command.spawn().map_err(|e| process::spawn_error(&command, "util-linux", e))?
        };
        let timeout = job.timeout.or(self.options.timeout);
        let ended = AtomicBool::new(false);
        let mut watch = StreamMonitor::new(out, &ended);
        let source = job.stream.as_deref().map_or(Source::Pipe, Source::File);
        let stderr = process::errors_of(&mut child);
        let stop = self.options.stop.as_deref();
        let pumped = process::pump_beside(child, stderr, source, &mut watch, timeout, stop, |child| {
            process::signal(child, "TERM");
        })?;
        let command = watch.status.filter(|_| job.pass_stdio);
        if pumped.timed_out {
            let seconds = timeout.unwrap_or_default().as_secs();
            return Err(Error::JobTimeout { target: "local".to_owned(), seconds });
        }

        let dir = ScratchDir::new("get")?;
        let mut files = Vec::new();
        for (n, path) in job.get.iter().enumerate() {
            let to = dir.path().join(n.to_string());
            std::fs::copy(path, &to).map_err(|e| Error::Get {
                target: "local".to_owned(),
                path: path.clone(),
                problem: e.to_string(),
            })?;
            files.push((path.clone(), to));
        }
        // If the recording is complete, the agent ends with its command's status.
        let whole = job.pass_stdio && pumped.status == command.unwrap_or(0) && ended.load(Ordering::Relaxed);
        let status = if whole { 0 } else { pumped.status };
        Ok(JobOutcome { status, command, stderr: pumped.stderr, files, _files_dir: Some(dir) })
    }
}
