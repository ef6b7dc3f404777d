//! Runs one agent command: `run [-o SSH_OPTION]… TARGET ARGV…`. The tests kill it at bad moments.

use flashscope_targets::{Error, Job, OpenOptions, open};

fn main() -> std::process::ExitCode {
    match run() {
        Ok(status) => std::process::ExitCode::from(u8::try_from(status).unwrap_or(1)),
        Err(error) => {
            eprintln!("{error}");
            std::process::ExitCode::FAILURE
        }
    }
}

fn run() -> Result<i32, Error> {
    let mut args = std::env::args().skip(1).peekable();
    let mut options = OpenOptions::default();
    while args.next_if_eq("-o").is_some() {
        options.ssh_options.extend(["-o".to_owned(), args.next().unwrap_or_default()]);
    }
    let target = open(&args.next().unwrap_or_default(), &options)?;
    let outcome = target.run(&Job { argv: args.collect(), ..Job::default() }, &mut std::io::stdout())?;
    eprint!("{}", outcome.stderr);
    Ok(outcome.status)
}
