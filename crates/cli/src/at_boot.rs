//! `record --boot`: prepares a machine so that its next boot is recorded, collects the recording, and undoes the preparation. The agent
//! does the work (`agent/record/at_boot.c`). Limits: the kernel's work before init is not recorded.

use std::sync::Arc;

use flashscope_targets::{Job, Target};

use crate::args::RecordArgs;
use crate::failure::Failure;
use crate::progress::Terminal;
use crate::recover::Pending;
use crate::{record, target};

/// Default recording time of a boot, seconds.
const SECONDS: u64 = 60;

pub fn run(args: &RecordArgs, quiet: bool) -> Result<(), Failure> {
    let name = &args.target.target;
    if !name.starts_with("ssh://") {
        return Err(Failure::usage(format!("{name}: --boot is for a machine over ssh: add --on ssh://root@HOST")));
    }
    let terminal = Arc::new(Terminal::new(quiet));
    let target = target::open(&args.target, &terminal)?;
    if args.undo {
        return target::print(&ask(&*target, vec!["undo".to_owned()])?);
    }
    if args.collect {
        return collect(args, &*target, &terminal);
    }
    let said = ask(&*target, ["prepare".to_owned()].into_iter().chain(recorder(args)).collect())?;
    target::print(&said)?;
    let name = flashscope_output::quote::shell(name).unwrap_or_else(|| "TARGET".to_owned());
    terminal.line(&format!(
        "reboot it now; then collect with: flashscope record --boot --collect --on {name} -o boot.dat (or --undo in place of \
         --collect)"
    ));
    Ok(())
}

/// The recorder's options, without the name of its command.
fn recorder(args: &RecordArgs) -> Vec<String> {
    // The kernel starts the recorder there.
    let mut argv: Vec<String> = record::argv(args).into_iter().skip(1).filter(|word| word != "--own-parent").collect();
    for (option, value, given) in
        [("-d", SECONDS.to_string(), args.duration.is_some()), ("--name", "boot".to_owned(), args.name.is_some())]
    {
        if !given {
            argv.extend([option.to_owned(), value]);
        }
    }
    argv
}

/// Runs one of the agent's `boot` commands; returns its output.
fn ask(target: &dyn Target, words: Vec<String>) -> Result<Vec<u8>, Failure> {
    let argv = ["boot".to_owned()].into_iter().chain(words).collect();
    target::answer(target, &Job { argv, ..Job::default() })
}

/// Stores the recording on this disk before anything is undone on the machine.
fn collect(args: &RecordArgs, target: &dyn Target, terminal: &Terminal) -> Result<(), Failure> {
    let mut pending = Pending::begin(&args.output, record::way(args)?)?;
    let job = Job { argv: vec!["boot".to_owned(), "collect".to_owned()], ..Job::default() };
    let ran = {
        let mut writer = pending.writer()?;
        target.run(&job, &mut writer)
    };
    match ran {
        Ok(outcome) if outcome.status == 0 => {
            let finished = pending.finish(crate::convert::End::Asked)?;
            finished.says.iter().for_each(|line| flashscope_output::note(line));
            outcome.stderr.lines().for_each(flashscope_output::note);
            record::summarise(&finished.path, terminal)?;
        }
        Ok(outcome) => {
            pending.discard();
            return Err(target::agent_failure(&outcome.stderr, outcome.status));
        }
        Err(error) => {
            pending.discard();
            return Err(Failure::new(format!("{error}; the recording is still there: collect it again")));
        }
    }
    let said = ask(target, vec!["undo".to_owned()])?;
    String::from_utf8_lossy(&said).lines().for_each(|line| terminal.line(line));
    Ok(())
}
