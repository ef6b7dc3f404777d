//! `record --trigger`: the agent sends a complete stream for each capture, in sequence. Each one becomes a file.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use flashscope_output::Output;
use flashscope_targets::{Job, Target};
use flashscope_trace::Trace;

use super::{argv, way};
use crate::args::RecordArgs;
use crate::convert::{End, Way};
use crate::failure::Failure;
use crate::progress::Terminal;
use crate::recover::Pending;
use crate::target;
use flashscope_targets::{FS_END, Frames};

pub fn run(args: &RecordArgs, target: &dyn Target, terminal: &Terminal) -> Result<(), Failure> {
    if Output::is_through(&args.output) {
        return Err(Failure::usage(format!(
            "{}: each capture needs its own file, and this is a device, a FIFO or a pipe; name a file with --output",
            args.output.display()
        )));
    }
    let job = Job { argv: argv(args), ..Job::default() };
    let mut captures = Captures {
        output: &args.output,
        way: way(args)?,
        terminal,
        current: None,
        frames: Frames::default(),
        number: 0,
        written: 0,
        failed: None,
    };
    let ran = target.run(&job, &mut captures);
    if let Some((pending, file)) = captures.current.take() {
        // The connection was cut during a capture.
        drop(file);
        captures.finish(pending);
    }
    if let Some(failure) = captures.failed {
        return Err(failure);
    }
    let outcome =
        ran.map_err(|error| Failure::from(error).adding(&format!("; {} captures were written", captures.written)))?;
    if outcome.status != 0 {
        return Err(target::agent_failure(&outcome.stderr, outcome.status));
    }
    let said = outcome.stderr.lines().filter(|line| line.contains(" is lost: "));
    said.for_each(|line| flashscope_output::note(line.trim_start_matches("flashscope-agent: ")));
    terminal.line(&match captures.written {
        0 => "no trigger fired: nothing was written".to_owned(),
        1 => "1 capture was written".to_owned(),
        count => format!("{count} captures were written"),
    });
    Ok(())
}

struct Captures<'a> {
    output: &'a Path,
    way: Way,
    terminal: &'a Terminal,
    current: Option<(Pending, File)>,
    frames: Frames,
    /// Number in the last file's name.
    number: u32,
    written: u32,
    failed: Option<Failure>,
}

/// `trace.dat` → `trace.0001.dat`.
fn numbered(output: &Path, number: u32) -> PathBuf {
    let stem = output.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let name = match output.extension() {
        Some(extension) => format!("{stem}.{number:04}.{}", extension.to_string_lossy()),
        None => format!("{stem}.{number:04}"),
    };
    output.with_file_name(name)
}

impl Captures<'_> {
    fn begin(&mut self) -> Result<(Pending, File), Failure> {
        // Captures of an earlier run are kept.
        self.number += 1;
        while numbered(self.output, self.number).exists() {
            self.number += 1;
        }
        let mut pending = Pending::begin(&numbered(self.output, self.number), self.way.clone())?;
        let file = pending.writer()?;
        Ok((pending, file))
    }

    fn finish(&mut self, pending: Pending) {
        if !pending.is_capture() {
            self.number -= 1;
            let logs = pending.discard().map(|session| session.logs).unwrap_or_default();
            // Not earlier, because the agent refuses an invalid trigger.
            logs.iter().filter(|line| line.level == 2).for_each(|line| {
                self.terminal.line(&format!("{}; Ctrl-C (or `flashscope ctl stop`) ends it", line.text));
            });
            return;
        }
        match pending.finish(End::Asked) {
            Ok(finished) => {
                self.written += 1;
                finished.says.iter().for_each(|line| flashscope_output::note(line));
                self.say(&finished.path);
            }
            Err(failure) => self.failed = Some(failure),
        }
    }

    fn say(&self, path: &Path) {
        let trigger = Trace::open(path).ok().and_then(|trace| trace.facts().recording.trigger.clone());
        let trigger = trigger.unwrap_or_default();
        let reason = trigger.reason.as_deref().unwrap_or("?");
        let lost = trigger.captures_lost.filter(|&lost| lost > 0);
        let lost = lost.map_or_else(String::new, |lost| format!("; {lost} captures before it could not be written"));
        self.terminal.line(&format!("{}: {reason}{lost}", path.display()));
    }
}

impl Write for Captures<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let mut ended = false;
            let after = self.frames.one(rest, &mut |kind, _| ended |= kind == FS_END);
            let taken = rest.len() - after.len();
            if taken == 0 {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the agent's output is not a stream"));
            }
            if self.current.is_none() {
                self.current = Some(self.begin().map_err(|failure| io::Error::other(failure.to_string()))?);
            }
            if let Some((_, file)) = &mut self.current {
                file.write_all(&rest[..taken])?;
            }
            rest = after;
            if ended && let Some((pending, file)) = self.current.take() {
                drop(file);
                self.finish(pending);
                if let Some(failure) = &self.failed {
                    return Err(io::Error::other(failure.to_string()));
                }
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn captures_are_numbered_before_the_ending() {
        assert_eq!(numbered(Path::new("/a/trace.dat"), 3), Path::new("/a/trace.0003.dat"));
        assert_eq!(numbered(Path::new("stalls"), 12), Path::new("stalls.0012"));
    }
}
