//! Checks a command's output files before its work, so that nothing is read, measured or printed if a file cannot be written. Limits: a
//! disk that fills up later; `record` has its own rules (`recover.rs`).

use std::path::{Path, PathBuf};

use flashscope_output::{HostFile, Output, Rules};

use crate::args::{Bench, Cli, Command};
use crate::failure::Failure;
use crate::{output, replay};

/// The output and input files of a command.
#[derive(Default)]
struct Destinations<'a> {
    /// Each file with its option.
    files: Vec<(&'a Path, &'static str)>,
    /// A directory that is created if missing, and a file in it.
    directory: Option<(&'a Path, &'static str)>,
    inputs: Vec<PathBuf>,
}

/// Refuses an output file that cannot be written, is an input, or is another option's output too.
pub fn check(cli: &Cli) -> Result<(), Failure> {
    if let Command::Record(args) = &cli.command {
        is_file(&args.output, "--output")?;
    }
    let Destinations { files, directory, inputs } = of(&cli.command);
    let inputs = output::inputs(&inputs);
    for (at, &(path, option)) in files.iter().enumerate() {
        is_file(path, option)?;
        let same = |other: &&(&Path, &str)| are_one_file(other.0, path);
        if let Some((_, other)) = files[..at].iter().find(same) {
            return Err(Failure::usage(format!(
                "{}: {other} and {option} name the same file; name two",
                path.display()
            )));
        }
        // A file in a directory that will be created can be written if the directory can be created.
        if directory.is_some_and(|(directory, _)| path.parent() == Some(directory) && !directory.exists()) {
            continue;
        }
        Output::check(path, Rules { inputs: &inputs, ..Rules::default() })
            .map_err(crate::failure::with_option(option))?;
    }
    directory.map_or(Ok(()), |(directory, name)| check_directory(directory, name))
}

/// Refuses `-` as a file name: the user means standard output.
fn is_file(path: &Path, option: &str) -> Result<(), Failure> {
    match path.as_os_str() == "-" {
        false => Ok(()),
        true => Err(Failure::usage(format!(
            "{option} -: this is not written to standard output; name a file (./- for one of that name)"
        ))),
    }
}

fn of(command: &Command) -> Destinations<'_> {
    let mut all = Destinations::default();
    match command {
        Command::Report(args) => {
            all.inputs.clone_from(&args.traces);
            all.add(&args.html, "--html").add(&args.perfetto, "--perfetto").add(&args.limits.junit, "--junit");
        }
        Command::Diff(args) => {
            all.inputs = [&args.before[..], &args.against].concat();
            all.add(&args.html, "--html").add(&args.limits.junit, "--junit");
        }
        Command::Predict(args) => {
            all.inputs = args.model.layout.iter().chain([&args.trace]).cloned().collect();
            all.add(&args.html, "--html");
        }
        Command::Export(args) => {
            all.inputs.clone_from(&args.traces);
            all.add_or_standard([&args.output], "--output");
        }
        Command::Top(args) => _ = all.add(&args.prometheus, "--prometheus"),
        Command::Study(args) => {
            all.inputs.clone_from(&args.files);
            all.add(&args.report, "--report");
            all.directory = args.output.as_deref().map(|directory| (directory, "report.html"));
        }
        Command::Demo(args) => all.directory = Some((&args.output, "report.html")),
        Command::Bench(args) => match &args.bench {
            Bench::Replay(args) => {
                all.inputs = replay::inputs(args);
                all.add_or_standard(&args.script, "--script").add(&args.output, "--output");
            }
            Bench::ImportStrace(args) => {
                let path = |file: &String| file.rsplit('=').next().unwrap_or(file).into();
                all.inputs = args.files.iter().map(path).collect();
                all.add_or_standard([&args.output], "--output");
            }
            Bench::Read(_) | Bench::Sqlite(_) | Bench::Postmark(_) => {}
        },
        Command::Record(_)
        | Command::Ctl(_)
        | Command::Advise(_)
        | Command::Policy { .. }
        | Command::Doctor(_)
        | Command::Board(_)
        | Command::Schema(_)
        | Command::Completions { .. }
        | Command::Man { .. } => {}
    }
    all
}

impl<'a> Destinations<'a> {
    /// Adds a file, if the option is used.
    fn add(&mut self, path: impl IntoIterator<Item = &'a PathBuf>, option: &'static str) -> &mut Self {
        self.files.extend(path.into_iter().map(|path| (path.as_path(), option)));
        self
    }

    /// The same for an option whose `-` is standard output.
    fn add_or_standard(&mut self, path: impl IntoIterator<Item = &'a PathBuf>, option: &'static str) -> &mut Self {
        let named = path.into_iter().filter(|path| path.as_os_str() != "-");
        self.add(named, option)
    }
}

/// Whether two names are one file. A device or FIFO may be two outputs.
fn are_one_file(a: &Path, b: &Path) -> bool {
    if Output::is_through(a) {
        return false;
    }
    match (HostFile::of(a), HostFile::of(b)) {
        (Some(a), Some(b)) => a == b,
        (None, None) => {
            let place = |path: &Path| {
                let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
                Some((HostFile::of(parent.unwrap_or(Path::new(".")))?, path.file_name()?.to_owned()))
            };
            place(a).is_some_and(|place_of_a| place(b) == Some(place_of_a))
        }
        _ => false,
    }
}

/// Whether a directory can be created, or an existing file in it can be written.
fn check_directory(directory: &Path, name: &str) -> Result<(), Failure> {
    let file = directory.join(name);
    let first_missing = directory.ancestors().filter(|path| !path.as_os_str().is_empty() && !path.exists()).last();
    Output::check(first_missing.unwrap_or(&file), Rules::default()).map_err(crate::failure::with_option("--output"))
}
