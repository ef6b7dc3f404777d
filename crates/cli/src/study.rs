//! `study`: a matrix of settings, and its results as files.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use flashscope_study::layers::LayersResult;
use flashscope_study::{Options, Study, StudyFile, StudyResult};

use crate::args::{BoardOptions, StudyArgs};
use crate::failure::Failure;
use crate::progress::Terminal;
use crate::stop;

/// Host time for one board: ten times what the largest shipped study takes on a slow machine.
const BOARD_TIMEOUT: Duration = Duration::from_secs(3600);

pub fn run(args: &StudyArgs, quiet: bool) -> Result<(), Failure> {
    if args.output.is_some() && args.files.len() > 1 {
        return Err(Failure::usage("--output takes the results of one study: name one file, or leave --output out"));
    }
    for file in &args.files {
        let study = StudyFile::read(file)?;
        let output = args.output.clone().unwrap_or_else(|| Path::new("out").join(study.name()));
        let terminal = Arc::new(Terminal::new(quiet));
        let options = options(args.jobs, args.fresh, &args.board)?;
        let (json, text, written) = match &study {
            StudyFile::Matrix(study) => {
                let result = measure(study, &options, &terminal)?;
                let text = flashscope_report::terminal::study(&result, &style());
                (flashscope_report::json::study(&result), text, write(&result, &output)?)
            }
            StudyFile::Layers(study) => {
                let result = flashscope_study::layers::run(study, &options, &*terminal)?;
                let text = flashscope_report::terminal::layers_study(&result, &style());
                (flashscope_report::json::layers_study(&result), text, write_layers(&result, &output)?)
            }
        };
        if args.json {
            print!("{json}");
        } else {
            print!("{text}");
            println!("\nReport: {}", written.display());
        }
    }
    Ok(())
}

pub fn options(jobs: Option<usize>, fresh: bool, board: &BoardOptions) -> Result<Options, Failure> {
    Ok(Options {
        jobs: jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)).max(1),
        fresh,
        store: flashscope_target::cache_dir()?.join("groups"),
        kernel: board.kernel.clone(),
        packages: board.packages.clone(),
        disk: board.disk.clone(),
        timeout: BOARD_TIMEOUT,
        stop: stop::flag()?,
    })
}

pub fn measure(study: &Study, options: &Options, terminal: &Terminal) -> Result<StudyResult, Failure> {
    Ok(flashscope_study::run(study, options, terminal)?)
}

/// Writes results.json, results.csv and report.html; returns the page's path.
pub fn write(result: &StudyResult, directory: &Path) -> Result<PathBuf, Failure> {
    let files = [
        ("results.json", flashscope_report::json::study(result)),
        ("results.csv", flashscope_report::csv::study(result)),
        ("report.html", flashscope_report::html::study(result)),
    ];
    write_files(&files, directory)
}

/// The same of a study of layers, and each of its figures as a file.
fn write_layers(result: &LayersResult, directory: &Path) -> Result<PathBuf, Failure> {
    let mut files = vec![("results.json".to_owned(), flashscope_report::json::layers_study(result))];
    for figure in flashscope_report::figures::layers_study(result) {
        files.push((format!("{}.svg", figure.id), figure.standalone()));
    }
    files.push(("report.html".to_owned(), flashscope_report::html::layers_study(result)));
    write_files(&files, directory)
}

/// Writes files of these names; returns the path of the last.
fn write_files(files: &[(impl AsRef<str>, String)], directory: &Path) -> Result<PathBuf, Failure> {
    let failed = |path: &Path, error: std::io::Error| {
        Failure::new(format!("{}: {error}; free some space or name another directory with --output", path.display()))
    };
    std::fs::create_dir_all(directory).map_err(|error| failed(directory, error))?;
    let mut last = directory.to_owned();
    for (name, text) in files {
        last = directory.join(name.as_ref());
        std::fs::write(&last, text).map_err(|error| failed(&last, error))?;
    }
    Ok(last)
}

/// How tables are drawn: as wide as the terminal says it is, with emphasis where it shows it.
pub fn style() -> flashscope_report::terminal::Style {
    use std::io::IsTerminal as _;
    let default = flashscope_report::terminal::Style::default();
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    flashscope_report::terminal::Style {
        width: columns.unwrap_or(default.width),
        colour: std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none(),
    }
}
