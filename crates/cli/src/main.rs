//! flashscope: what storage really does under embedded Linux.

mod advise;
mod args;
mod bench;
mod bench_agent;
mod board;
mod ctl;
mod demo;
mod doctor;
mod export;
mod failure;
mod inputs;
mod manual;
mod predict;
mod progress;
mod record;
mod recover;
mod replay;
mod report;
mod stop;
mod study;
mod target;
mod version;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};
use failure::Failure;

fn main() -> ExitCode {
    // clap itself exits with 2 for a usage error, as promised.
    let cli = Cli::parse();
    if let Some(Err(error)) = cli.agent.as_deref().map(flashscope_target::use_agents) {
        eprintln!("flashscope: {error}");
        return Failure::from(error).exit_code();
    }
    // First what earlier runs left, if they were killed: promise 2 of docs/architecture.md.
    recover::recover(cli.quiet);
    match run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("flashscope: {failure}");
            failure.exit_code()
        }
    }
}

fn run(cli: &Cli) -> Result<(), Failure> {
    match &cli.command {
        Command::Demo(args) => demo::run(args, cli.quiet),
        Command::Record(args) => record::run(args, cli.quiet),
        Command::Ctl(args) => ctl::run(args, cli.quiet),
        Command::Report(args) => report::run(args),
        Command::Advise(args) => advise::run(args, cli.quiet),
        Command::Policy { .. } => Err(Failure::usage(
            "policy was removed in 0.2.0: where a read brings its pages in itself, no window beats none; type `flashscope \
             advise TRACE` for what is worth changing, or `flashscope predict TRACE --readahead 0,32,128` to compare windows",
        )),
        Command::Predict(args) => predict::run(args),
        Command::Study(args) => study::run(args, cli.quiet),
        Command::Bench(args) => bench::run(args, cli.quiet),
        Command::Export(args) => export::run(args, cli.quiet),
        Command::Doctor(args) => doctor::run(args, cli.quiet),
        Command::Board(args) => board::run(args, cli.quiet),
        Command::Completions { shell } => {
            manual::completions(*shell);
            Ok(())
        }
        Command::Man { directory } => manual::man_pages(directory),
    }
}
