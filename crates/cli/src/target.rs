//! Opens targets that the command line names, and runs agent commands there.

use std::sync::Arc;

use flashscope_targets::{Job, OpenOptions, Target};
use serde_json::Value;

use crate::args::TargetArgs;
use crate::failure::Failure;
use crate::progress::Terminal;
use crate::stop;

pub fn open(args: &TargetArgs, terminal: &Arc<Terminal>) -> Result<Box<dyn Target>, Failure> {
    open_with(args, terminal, OpenOptions::default())
}

/// The same with additional parts of a virtual board.
pub fn open_with(
    args: &TargetArgs,
    terminal: &Arc<Terminal>,
    options: OpenOptions,
) -> Result<Box<dyn Target>, Failure> {
    let board_options = args.board.kernel.is_some()
        || !args.board.packages.is_empty()
        || !args.board.modules.is_empty()
        || !args.board.disk.is_empty();
    if !args.target.starts_with("board:") && board_options {
        return Err(Failure::usage(format!(
            "--kernel, --packages, --modules and --disk are for virtual boards, and {} is none: leave them out, or name --on board:armv7",
            args.target
        )));
    }
    let options = OpenOptions {
        kernel: args.board.kernel.clone(),
        packages: args.board.packages.clone(),
        modules: args.board.modules.iter().cloned().chain(options.modules).collect(),
        disk: args.board.disk.iter().cloned().chain(options.disk).collect(),
        stop: Some(stop::flag()?),
        progress: Some(Arc::clone(terminal) as _),
        ..options
    };
    Ok(flashscope_targets::open(&args.target, &options)?)
}

/// Limit of an agent's answer: facts of a machine with a thousand devices have 1 MiB.
const MOST_OF_AN_ANSWER: usize = 16 << 20;

/// What to type next where a machine answers as no agent does.
const LOOK: &str = "log in by hand to see what it prints, and run this again";

/// An answer with a size limit, because the other machine may send any amount.
#[derive(Default)]
struct Answer {
    bytes: Vec<u8>,
    is_too_long: bool,
}

impl std::io::Write for Answer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.is_too_long |= self.bytes.len() + bytes.len() > MOST_OF_AN_ANSWER;
        if self.is_too_long {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Runs an agent command on an open target to its end; returns its output.
pub fn answer(target: &dyn Target, job: &Job) -> Result<Vec<u8>, Failure> {
    let mut out = Answer::default();
    let outcome = target.run(job, &mut out);
    if out.is_too_long {
        return Err(Failure::new(format!("{}: more than 16 MiB came, which no agent answers; {LOOK}", target.name())));
    }
    let outcome = outcome?;
    if outcome.status != 0 {
        return Err(agent_failure(&outcome.stderr, outcome.status));
    }
    Ok(out.bytes)
}

/// Runs an agent command to its end; returns its output.
pub fn output(args: &TargetArgs, argv: Vec<String>, terminal: &Arc<Terminal>) -> Result<Vec<u8>, Failure> {
    answer(&*open(args, terminal)?, &Job { argv, ..Job::default() })
}

/// Prints an agent's output. It comes from another machine, so terminal control characters are escaped.
pub fn print(text: &[u8]) -> Result<(), Failure> {
    for line in String::from_utf8_lossy(text).lines() {
        outln!("{}", flashscope_output::escaped(line));
    }
    Ok(())
}

/// Runs an agent command that prints one JSON object.
pub fn facts(args: &TargetArgs, argv: &[&str], terminal: &Arc<Terminal>) -> Result<Value, Failure> {
    let out = output(args, argv.iter().map(|&word| word.to_owned()).collect(), terminal)?;
    serde_json::from_slice(&out).map_err(|error| {
        let problem = if out.is_empty() { "it is empty".to_owned() } else { error.to_string() };
        Failure::new(format!("{}: the agent's answer cannot be read: {problem}; {LOOK}", args.target))
    })
}

/// The error for a failed agent: the agent's own line and exit status. If a command failed under the recorder, it is the line before the
/// last one, because the recorder's last line says no more.
pub fn agent_failure(stderr: &str, status: i32) -> Failure {
    let lines: Vec<&str> = stderr.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = match lines.as_slice() {
        [.., said, recorder] if recorder.ends_with("; its events are recorded") => Some(said),
        all => all.last(),
    };
    let message = match last {
        Some(line) => flashscope_report::visible(line.trim().trim_start_matches("flashscope-agent: ")).into_owned(),
        None => format!("the agent ended with status {status} and no message"),
    };
    if status == 2 { Failure::usage(message) } else { Failure::new(message) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_under_the_recorder_is_told_by_the_command_itself() {
        let recorder = "flashscope-agent: ended with status 1; its events are recorded\n";
        let both = format!("flashscope-agent: /x: cannot make a directory there\n{recorder}");
        for (stderr, says) in [
            (both.as_str(), "/x: cannot make a directory there"),
            (recorder, "ended with status 1; its events are recorded"),
            ("one\n\nflashscope-agent: two\n", "two"),
            ("", "the agent ended with status 1 and no message"),
        ] {
            assert_eq!(agent_failure(stderr, 1).to_string(), says);
        }
    }
}
