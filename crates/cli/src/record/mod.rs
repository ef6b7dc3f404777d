//! `record`: writes the agent's data to a stream file as it arrives, and converts that to a trace.dat at the end.

mod board_stdin;
mod flight;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flashscope_output::Output;
use flashscope_output::quote::shell_path;
use flashscope_targets::{Job, JobOutcome, OpenOptions};
use flashscope_trace::{Loss, Severity, Trace};

use crate::anonymous;
use crate::args::{Mode, Paths, RecordArgs, Source};
use crate::convert::{End, Finished, Way};
use crate::failure::Failure;
use crate::limits::{Limited, Reached};
use crate::live::Live;
use crate::progress::Terminal;
use crate::recover::Pending;
use crate::{stop, target};

pub fn run(args: &RecordArgs, quiet: bool) -> Result<(), Failure> {
    if args.target.target.starts_with("board:") {
        suits_a_board(args)?;
    }
    let terminal = Arc::new(Terminal::new(quiet));
    // On a machine, modules are left to its owner; a virtual board has only those that it is given.
    let mut options = OpenOptions::default();
    if args.source == Source::Flashmon && args.target.target.starts_with("board:") {
        options.modules.push("flashmon".to_owned());
    }
    let target = target::open_with(&args.target, &terminal, options)?;
    if !args.trigger.is_empty() {
        return flight::run(args, &*target, &terminal);
    }
    let stdin = match args.target.target.strip_prefix("board:") {
        Some(_) => board_stdin::read(&args.target.target)?,
        None => Vec::new(),
    };
    let mut pending = Pending::begin(&args.output, way(args)?)?;
    let mut argv = argv(args);
    if terminal.is_live() && !args.target.target.starts_with("board:") {
        argv.insert(1, "--progress".to_owned());
    }
    let mut job = Job { argv, pass_stdio: !args.command.is_empty(), stdin, ..Job::default() };
    let begins = match args.duration {
        None if args.command.is_empty() => Some("recording; Ctrl-C (or `flashscope ctl stop`) ends it".to_owned()),
        Some(seconds) if args.command.is_empty() => Some(match args.paths {
            Some(Paths::Walk) => format!("recording for {seconds} s, then looking for names; Ctrl-C ends it earlier"),
            // As `names_limit_ns` in the agent.
            _ => format!(
                "recording for {seconds} s, then at most {} s for names; Ctrl-C ends it earlier",
                (seconds / 5).clamp(1, 5)
            ),
        }),
        _ => None,
    };
    let (ran, reached) = {
        let file = Arc::new(pending.writer()?);
        job.stream = target.writes_streams().then(|| Arc::clone(&file));
        let mut limited = Limited::new(file, job.stream.is_some(), args.max_size.map(|size| size.0), stop::flag()?);
        if job.stream.is_some() {
            job.argv.splice(1..1, limited.of_agent());
        }
        let ran = target.run(&job, &mut Live::new(&mut limited, &terminal, begins));
        (ran, limited.reached())
    };
    // Without a command the user waits for the end of -d. On a busy machine this may take longer, so the line shows progress.
    let recorded = std::fs::metadata(pending.stream()).map(|stream| stream.len()).ok();
    if let (true, Some(recorded), Ok(0)) =
        (args.command.is_empty(), recorded, ran.as_ref().map(|outcome| outcome.status))
    {
        terminal.line(&format!("recorded {:.1} MiB; preparing {}", mib(recorded), args.output.display()));
    }
    if let Some((line, status)) = ran.as_ref().ok().and_then(|outcome| never_ran(args, outcome)) {
        // There is no data, so an earlier recording with this name is kept.
        pending.discard();
        flashscope_output::note(&format!("{line}; nothing was recorded"));
        return Err(Failure::of_command(status));
    }
    let end = pending.finish(match reached {
        Some(Reached::Disk(_)) => End::DiskFull,
        _ => End::Asked,
    });
    match ran {
        // The recorder was asked to end, and so was its command. A disk that was full at once made the recorder fail.
        Ok(_) if reached.is_some() && end.as_ref().map_or(true, |finished| finished.complete) => {
            ended_early(reached, end?, &terminal)
        }
        Ok(outcome) if outcome.status == 0 => {
            let finished = end.map_err(|end| if recorded == Some(0) { sent_nothing(args, &end) } else { end })?;
            // The command has printed its own error, and its status is passed on.
            let own = |line: &&String| !(outcome.command.is_some() && line.contains("(run command "));
            finished.says.iter().filter(own).for_each(|line| flashscope_output::note(line));
            summarise(&finished.path, &terminal)?;
            match outcome.command {
                None | Some(0) => Ok(()),
                Some(status) => Err(Failure::of_command(status)),
            }
        }
        // The recorder or its command failed: the recorded data is kept, and the reason is passed on.
        Ok(outcome) => {
            let failure = target::agent_failure(&outcome.stderr, outcome.status);
            match end {
                Ok(finished) => {
                    finished.says.iter().for_each(|line| flashscope_output::note(line));
                    summarise(&finished.path, &terminal)?;
                    Err(if finished.complete { failure } else { failure.adding(&so_far(&finished)) })
                }
                Err(end) => Err(failure.and(&end)),
            }
        }
        Err(error) => {
            let kept = match end {
                Ok(finished) => so_far(&finished),
                Err(failure) => format!("; {failure}"),
            };
            Err(Failure::from(error).adding(&kept))
        }
    }
}

/// What a virtual board, which sends its recording when it has ended, cannot do.
fn suits_a_board(args: &RecordArgs) -> Result<(), Failure> {
    if args.command.is_empty() && args.trigger.is_empty() {
        let target = &args.target.target;
        return Err(Failure::usage(format!("{target}: a recording on a board needs an end: give a command after --")));
    }
    if args.max_size.is_some() {
        return Err(Failure::usage(
            "--max-size: a virtual board's recording comes when the board has ended; leave it out",
        ));
    }
    if !args.trigger.is_empty() {
        return Err(Failure::usage(
            "--trigger: a virtual board sends its events when it has ended; use it on local or ssh:// targets",
        ));
    }
    Ok(())
}

fn so_far(finished: &Finished) -> String {
    format!("; the data recorded so far is in {}", finished.path.display())
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// The recorder ended well, and its stream is empty.
fn sent_nothing(args: &RecordArgs, end: &Failure) -> Failure {
    Failure::new(format!("{}: the recorder ended before it sent anything; run it again", args.target.target)).and(end)
}

/// The kind of file that was requested.
pub fn way(args: &RecordArgs) -> Result<Way, Failure> {
    Ok(match anonymous::key(&args.anonymize)? {
        Some(key) => Way::Anonymize { key, file: args.anonymize.anonymize_key.clone() },
        None if args.no_convert => Way::Stream,
        None => Way::Convert,
    })
}

/// The agent's message about a command that it could not start, and the exit status.
fn never_ran<'a>(args: &RecordArgs, outcome: &'a JobOutcome) -> Option<(&'a str, i32)> {
    let says = format!("{}: cannot be run: ", args.command.first()?);
    let lines = outcome.stderr.lines().filter_map(|line| line.strip_prefix("flashscope-agent: "));
    let line = lines.clone().find(|line| line.starts_with(&says))?;
    Some((line, outcome.command.filter(|status| matches!(status, 126 | 127))?))
}

/// A recording that a limit ended. At --max-size it is as requested; before a full disk it is shorter.
fn ended_early(reached: Option<Reached>, finished: Finished, terminal: &Terminal) -> Result<(), Failure> {
    finished.says.iter().for_each(|line| flashscope_output::note(line));
    summarise(&finished.path, terminal)?;
    match reached {
        Some(Reached::Disk(free)) => Err(Failure::new(format!(
            "there is no space left for a longer recording ({} KiB were free): it was ended, and its data is complete; free \
             some space, or record less (--events, --no-convert): {}",
            free >> 10,
            finished.path.display()
        ))),
        _ => {
            terminal.line("the recording has reached --max-size and was ended");
            Ok(())
        }
    }
}

/// Default events.
fn events(args: &RecordArgs) -> String {
    match args.events.as_slice() {
        [] if args.source == Source::Flashmon || !args.mtd.is_empty() || !args.detail.is_empty() => "flash".to_owned(),
        [] => "auto".to_owned(),
        asked => asked.join(","),
    }
}

fn filters(args: &RecordArgs, option: &mut impl FnMut(&str, String)) {
    if let Some(seconds) = args.duration {
        option("-d", seconds.to_string());
    }
    args.device.iter().for_each(|name| option("--device", name.clone()));
    args.pid.iter().for_each(|pid| option("--pid", pid.to_string()));
    args.cgroup.iter().for_each(|path| option("--cgroup", path.clone()));
    args.comm.iter().for_each(|name| option("--comm", name.clone()));
    args.trigger.iter().for_each(|trigger| option("--trigger", trigger.clone()));
    for (name, value) in [("--before", args.before), ("--after", args.after), ("--captures", args.captures)] {
        if let Some(value) = value {
            option(name, value.to_string());
        }
    }
}

/// The agent's options; the agent checks their values.
pub fn argv(args: &RecordArgs) -> Vec<String> {
    let mut argv = vec!["record".to_owned(), "--events".to_owned(), events(args)];
    let mut option = |name: &str, value: String| argv.extend([name.to_owned(), value]);
    filters(args, &mut option);
    if let Some(ring) = &args.ring {
        option("--ring", ring.0.div_ceil(1024).to_string());
    }
    if args.source == Source::Flashmon {
        option("--from", "flashmon".to_owned());
    }
    option("--mode", if args.mode == Mode::Ring { "ring" } else { "stream" }.to_owned());
    if !args.detail.is_empty() {
        option("--detail", args.detail.join(","));
    }
    for mtd in &args.mtd {
        option("--mtd", mtd.to_string());
    }
    let paths = args.paths.or(args.no_paths.then_some(Paths::None));
    option("--paths", paths.map_or("auto", Paths::word).to_owned());
    if let Some(name) = &args.name {
        option("--name", name.clone());
    }
    if args.paused {
        argv.push("--paused".to_owned());
    }
    if !args.target.target.starts_with("board:") {
        argv.push("--own-parent".to_owned());
    }
    if let Some(user) = &args.user {
        argv.extend(["--user".to_owned(), user.clone()]);
    }
    if !args.command.is_empty() {
        argv.push("--".to_owned());
        argv.extend(args.command.iter().cloned());
    }
    argv
}

/// Prints one line about the recording, and one line for each kind of loss.
pub fn summarise(path: &Path, terminal: &Terminal) -> Result<(), Failure> {
    if Output::is_through(path) {
        // The file is gone, or another process has it.
        return Ok(());
    }
    let trace = Trace::open(path)?;
    let mut events = 0u64;
    // Also counts the losses, so that they need no pass of their own.
    trace.for_each_pair(&mut |pair| events += u64::from(pair.record.is_some_and(|record| record.buffer != "tasks")))?;
    terminal.line(&format!(
        "{}: {events} events; see them with: flashscope report {}",
        path.display(),
        shell_path(path)
    ));
    let losses = trace.losses();
    // The same events: counted by the kernel, and found missing in the data.
    let counted = losses.get(Loss::EventsOverwritten) + losses.get(Loss::EventsDropped) > 0;
    for (loss, count) in losses.iter() {
        let again = counted && loss == Loss::EventsMissedAtGaps;
        if count > 0 && loss.severity() == Severity::Data && !again {
            terminal.line(&format!("lost: {} {count}: {}", loss.name(), loss.meaning()));
        }
    }
    Ok(())
}

/// An unbuffered writer: each write of the agent goes to the file at once.
pub fn stream_file(path: &PathBuf) -> Result<impl Write + use<>, Failure> {
    File::create_new(path)
        .map_err(|error| Failure::new(format!("{}: {error}; name another file with --output", path.display())))
}
