//! This machine: the agent as a child that ends with us.

use std::fs::OpenOptions as FileOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::process::Stdio;

use crate::job::{Job, JobOutcome, Target};
use crate::scratch::ScratchDir;
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

/// Files that were put, removed again.
struct Put(Vec<String>);

impl Drop for Put {
    fn drop(&mut self) {
        for path in &self.0 {
            std::fs::remove_file(path).ok();
        }
    }
}

impl Target for Local {
    fn name(&self) -> &str {
        "local"
    }

    fn run(&self, job: &Job, out: &mut dyn Write) -> Result<JobOutcome, Error> {
        let mut put = Put(Vec::new());
        for file in &job.put {
            let bytes = file.bytes()?;
            let failed = |e: std::io::Error| Error::Put {
                target: "local".to_owned(),
                path: file.path.clone(),
                problem: e.to_string(),
            };
            let mut created =
                FileOptions::new().write(true).create_new(true).mode(file.mode).open(&file.path).map_err(
                    |e| match e.kind() {
                        std::io::ErrorKind::AlreadyExists => {
                            Error::PutExists { target: "local".to_owned(), path: file.path.clone() }
                        }
                        _ => failed(e),
                    },
                )?;
            put.0.push(file.path.clone());
            created.write_all(&bytes).map_err(failed)?;
        }

        let mut command = process::dies_with_us("TERM", self.agent.as_os_str());
        command.args(&job.argv).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().map_err(|e| process::spawn_error(&command, "util-linux", e))?;
        let timeout = job.timeout.or(self.options.timeout);
        let pumped = process::pump(child, out, timeout, self.options.stop.as_deref(), |child| {
            process::signal(child, "TERM");
        })?;
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
        Ok(JobOutcome { status: pumped.status, stderr: pumped.stderr, files, _files_dir: Some(dir) })
    }
}
