//! The command `flashscope`, which measures storage under (embedded) Linux: arguments, and the glue between the crates below.
//!
//! A recording flows from left to right: target → trace → analysis → report.
//!
//! | crate | answers | begin at |
//! |---|---|---|
//! | [`flashscope_targets`] | where is it recorded: this host, over SSH, on a virtual board? | [`flashscope_targets::Target`] |
//! | [`flashscope_trace`] | what happened, and when: every input format, as typed events | [`flashscope_trace::Trace`] |
//! | [`flashscope_analysis`] | what does that mean: one fold over events for each question | [`flashscope_analysis::Analysis`] |
//! | [`flashscope_cachesim`] | what does the page cache do with these reads? | [`flashscope_cachesim::Simulator`] |
//! | [`flashscope_predict`] | what would another read-ahead setting have cost? | [`flashscope_predict::Predictor`] |
//! | [`flashscope_study`] | what comes out of a matrix of settings, beside published values? | [`flashscope_study::StudyFile`] |
//! | [`flashscope_report`] | how is it shown: terminal, JSON, CSV, SVG, HTML? | [`flashscope_report::terminal`] |
//! | [`flashscope_output`] | how does it get into a file or a terminal without harm? | [`flashscope_output::Output`] |
//!
//! The map of the repository is `docs/explanation/architecture.md`; `CONTRIBUTING.md` walks through three changes.
// Only `out!` and `outln!` write to standard output. They distinguish a reader that has gone from a full disk.
#![deny(clippy::print_stdout, clippy::print_stderr)]

/// Like `print!`, in a function whose error is a [`failure::Failure`].
macro_rules! out {
    ($($text:tt)*) => { flashscope_output::print(format_args!($($text)*))? };
}

/// Like `println!`, in a function whose error is a [`failure::Failure`].
macro_rules! outln {
    () => { out!("\n") };
    ($($text:tt)+) => { out!("{}\n", format_args!($($text)+)) };
}

mod advise;
mod anonymous;
mod args;
mod at_boot;
mod attribution;
mod bench;
mod board;
mod call;
mod conditions;
mod convert;
mod ctl;
mod demo;
mod destinations;
mod diff;
mod doctor;
mod export;
mod failure;
mod finding_inputs;
mod import_strace;
mod inputs;
mod limits;
mod live;
mod manual;
mod output;
mod perfetto;
mod predict;
mod progress;
mod record;
mod recover;
mod replay;
mod report;
mod schema;
mod stop;
mod study;
mod target;
mod top;
mod version;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};
use failure::{Failure, OWN_FAILURE};

fn main() -> ExitCode {
    let ended = Cli::try_parse().map_err(usage).and_then(|cli| {
        let ended = begin(&cli);
        if runs_a_command(&cli) { ended.map_err(Failure::beside_a_command) } else { ended }
    });
    match ended.and_then(|()| Ok(flashscope_output::flush()?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.tell();
            failure.exit_code()
        }
    }
}

fn begin(cli: &Cli) -> Result<(), Failure> {
    stop::limit_of_files_is_an_error()?;
    cli.agent.as_deref().map(flashscope_targets::use_agents).transpose()?;
    // First clean up after earlier runs that were killed: docs/reference/files.md.
    recover::recover(cli.quiet);
    destinations::check(cli)?;
    run(cli)
}

/// clap's result: help, on standard output, or an error in the arguments.
fn usage(error: clap::Error) -> Failure {
    use std::io::IsTerminal as _;
    let text = error.render();
    let text = |colour: bool| if colour { text.ansi().to_string() } else { text.to_string() };
    let colour = std::env::var_os("NO_COLOR").is_none();
    if error.use_stderr() {
        // clap quotes an argument, which may be a file name that another user chose.
        let acting: Vec<String> = std::env::args_os()
            .map(|word| word.to_string_lossy().into_owned())
            .filter(|word| word.chars().any(flashscope_output::acts))
            .collect();
        let mut text = text(colour && acting.is_empty() && std::io::stderr().is_terminal());
        for word in &acting {
            text = text.replace(word.as_str(), &flashscope_output::visible(word));
        }
        if !acting.is_empty() {
            // Arguments that are quoted only in part.
            let lines = text.lines().map(flashscope_output::visible);
            text = lines.collect::<Vec<_>>().join("\n") + "\n";
        }
        flashscope_output::print_error(format_args!("{text}"));
        return Failure::reported(if would_run_a_command() { OWN_FAILURE } else { 2 });
    }
    match flashscope_output::print(format_args!("{}", text(colour && std::io::stdout().is_terminal()))) {
        Ok(()) => Failure::reported(0),
        Err(error) => error.into(),
    }
}

/// Whether the exit status is a command's.
fn runs_a_command(cli: &Cli) -> bool {
    matches!(&cli.command, Command::Record(args) if !args.command.is_empty())
}

/// The same for arguments that cannot be parsed.
fn would_run_a_command() -> bool {
    let words: Vec<_> = std::env::args_os().skip(1).take_while(|word| word != "--").collect();
    words.len() + 1 < std::env::args_os().len() && words.iter().any(|word| word == "record")
}

fn run(cli: &Cli) -> Result<(), Failure> {
    match &cli.command {
        Command::Record(_) | Command::Top(_) | Command::Demo(_) | Command::Study(_) | Command::Bench(_) => {
            stop::beside_signals(|| run_here(cli))
        }
        _ => run_here(cli),
    }
}

fn run_here(cli: &Cli) -> Result<(), Failure> {
    match &cli.command {
        Command::Demo(args) => demo::run(args, cli.quiet),
        Command::Record(args) if args.boot => at_boot::run(args, cli.quiet),
        Command::Record(args) => record::run(args, cli.quiet),
        Command::Top(args) => top::run(args, cli.quiet),
        Command::Ctl(args) => ctl::run(args, cli.quiet),
        Command::Report(args) => report::run(args),
        Command::Diff(args) => diff::run(args),
        Command::Advise(args) => advise::run(args, cli.quiet),
        Command::Policy { .. } => Err(Failure::usage(
            "policy was removed in 0.2.0: where a read fetches its own pages, no window is better than none; type `flashscope \
             advise TRACE` for what is worth changing, or `flashscope predict TRACE --readahead 0,32,128` to compare windows",
        )),
        Command::Predict(args) => predict::run(args),
        Command::Study(args) => study::run(args, cli.quiet),
        Command::Bench(args) => bench::run(args, cli.quiet),
        Command::Export(args) => export::run(args, cli.quiet),
        Command::Doctor(args) => doctor::run(args, cli.quiet),
        Command::Board(args) => board::run(args, cli.quiet),
        Command::Schema(args) => schema::run(args),
        Command::Completions { shell } => manual::completions(*shell),
        Command::Man { directory, reference: false } => manual::man_pages(directory),
        Command::Man { directory, reference: true } => manual::write_reference(directory),
    }
}
