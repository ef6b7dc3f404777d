//! `study`: runs a matrix of settings and writes the results to files.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use flashscope_output::quote::shell_path;
use flashscope_report::figures::{self, Figure};
use flashscope_report::reproduction::{self, Chapter};
use flashscope_study::boot::BootResult;
use flashscope_study::layers::LayersResult;
use flashscope_study::replays::ReplaysResult;
use flashscope_study::runs::RunsResult;
use flashscope_study::{
    Boards, DefinitionError, Header, Inputs, Interrupted, NotMeasurable, Options, Row, Study, StudyFile, StudyResult,
};

use crate::args::{BoardOptions, StudyArgs};
use crate::failure::Failure;
use crate::output;
use crate::progress::{StudyLines, Terminal};
use crate::stop;

/// Host time limit for one board: ten times the largest built-in study on a slow machine.
const BOARD_TIMEOUT: Duration = Duration::from_secs(3600);

pub fn run(args: &StudyArgs, quiet: bool) -> Result<(), Failure> {
    // All files are read before the first run, so that syntax errors are reported at once.
    let (files, studies): (Vec<PathBuf>, Vec<StudyFile>) = if args.all {
        let parsed = |(name, text): &(&str, &str)| Ok((PathBuf::from(name), StudyFile::parse(name, text)?));
        flashscope_study::SHIPPED.iter().map(parsed).collect::<Result<_, DefinitionError>>()?
    } else {
        args.files.iter().map(|file| study_of(file)).collect::<Result<_, DefinitionError>>()?
    };
    if args.output.is_some() && files.len() > 1 {
        return Err(Failure::usage("--output takes the results of one study: name one file, or leave --output out"));
    }
    let options = options(args.jobs, args.fresh, &args.board)?;
    let terminal = Terminal::new(quiet);
    let several = studies.len() > 1;
    let run_one = |(file, study): (&PathBuf, &StudyFile)| -> Option<Result<(Finished, PathBuf), Failure>> {
        let lines = StudyLines::new(&terminal, several.then(|| study.name()));
        let output = args.output.clone().unwrap_or_else(|| Path::new("out").join(study.name()));
        let ended = one(study, &file.to_string_lossy(), args.csv_raw, &options, &lines)?.and_then(|finished| {
            let page = write_files(&finished.files, &output)?;
            Ok((finished, page))
        });
        // Each failure is printed when it happens: the other studies continue, and the command can end with only one error.
        if let (Err(failure), true) = (&ended, several) {
            terminal.line(&format!("{}: {failure}", study.name()));
        }
        Some(ended)
    };
    // All together, with one board per core, so that the last board of a study leaves no core idle. Results are shown in the files' order.
    let ended: Vec<_> = std::thread::scope(|scope| {
        let run_one = &run_one;
        let threads: Vec<_> = files.iter().zip(&studies).map(|study| scope.spawn(move || run_one(study))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let mut chapters = Vec::new();
    let mut failed = None;
    for finished in ended.into_iter().flatten() {
        let (finished, page) = match finished {
            Ok(finished) => finished,
            Err(failure) => {
                failed.get_or_insert(failure);
                continue;
            }
        };
        if args.json {
            out!("{}", finished.json());
        } else {
            out!("{}", finished.text);
            outln!("\nReport: {}", page.display());
        }
        chapters.push(finished.chapter);
    }
    if let Some(failure) = failed {
        return Err(failure);
    }
    if let Some(page) = &args.report {
        let not_measured: Vec<NotMeasurable> = studies.iter().flat_map(not_measured).cloned().collect();
        reproduce(&chapters, &not_measured, page, args)?;
    }
    Ok(())
}

/// Runs a study and renders all of its files; a file with only statements that cannot be measured has nothing to run.
fn one(
    study: &StudyFile,
    file: &str,
    csv_raw: bool,
    options: &Options,
    lines: &StudyLines,
) -> Option<Result<Finished, Failure>> {
    let finished = match study {
        StudyFile::Matrix(study) => {
            flashscope_study::run(study, options, lines).map(|result| of_matrix(&result, file, csv_raw))
        }
        StudyFile::Layers(study) => {
            flashscope_study::layers::run(study, options, lines).map(|result| of_layers(&result, file))
        }
        StudyFile::Runs(study) => {
            flashscope_study::runs::run(study, options, lines).map(|result| of_runs(&result, file))
        }
        StudyFile::Replays(study) => {
            flashscope_study::replays::run(study, options, lines).map(|result| of_replays(&result, file))
        }
        StudyFile::Boot(study) => {
            flashscope_study::boot::run(study, options, lines).map(|result| of_boot(&result, file))
        }
        StudyFile::NotMeasured(_) => return None,
    };
    Some(finished.map_err(Failure::from))
}

fn not_measured(study: &StudyFile) -> &[NotMeasurable] {
    match study {
        StudyFile::NotMeasured(statements) => &statements.not_measured,
        _ => &[],
    }
}

/// A user's study by path, or a built-in one by name: `readahead-reads`.
fn study_of(file: &Path) -> Result<(PathBuf, StudyFile), DefinitionError> {
    let name = file.to_str().filter(|name| !name.contains(['/', '.'])).map(|name| format!("studies/{name}.toml"));
    let shipped = flashscope_study::SHIPPED.iter().find(|(path, _)| Some(*path) == name.as_deref());
    match shipped {
        Some((path, text)) => Ok((PathBuf::from(path), StudyFile::parse(path, text)?)),
        None => Ok((file.to_owned(), StudyFile::read(file)?)),
    }
}

/// A finished study with all its renderings.
struct Finished {
    /// Contents by file name, results.json first and the page last.
    files: Vec<(String, String)>,
    text: String,
    chapter: Chapter,
}

impl Finished {
    fn json(&self) -> &str {
        &self.files[0].1
    }
}

/// The common part of a chapter: the header of the results, and the boards.
fn chapter<'a>(
    header: &Header,
    inputs: impl Iterator<Item = &'a Inputs>,
    file: &str,
    rows: Vec<Row>,
    figures: Vec<Figure>,
) -> Chapter {
    Chapter {
        study: header.study.clone(),
        title: header.title.clone(),
        question: header.question.clone(),
        clock: header.clock.clone(),
        file: file.to_owned(),
        measured_on: reproduction::measured_on(inputs),
        rows,
        more: String::new(),
        figures,
    }
}

fn of_matrix(result: &StudyResult, file: &str, csv_raw: bool) -> Finished {
    let inputs = result.groups.iter().map(|group| &group.inputs);
    let rows = result.comparisons.iter().map(Row::from).collect();
    let chapter = chapter(&result.header, inputs, file, rows, figures::study(result));
    Finished {
        files: matrix_files(result, csv_raw),
        text: flashscope_report::terminal::study(result, &style()),
        chapter: Chapter { more: reproduction::verdicts(result), ..chapter },
    }
}

/// A study whose figures are separate files beside its page.
fn with_figures(chapter: Chapter, json: String, text: String, page: String) -> Finished {
    let mut files = vec![("results.json".to_owned(), json)];
    files.extend(chapter.figures.iter().map(|figure| (format!("{}.svg", figure.id), figure.standalone())));
    files.push(("report.html".to_owned(), page));
    Finished { files, text, chapter }
}

fn of_layers(result: &LayersResult, file: &str) -> Finished {
    let inputs = result.groups.iter().map(|group| &group.inputs);
    let chapter = chapter(&result.header, inputs, file, result.published.clone(), figures::layers_study(result));
    let json = flashscope_report::json::any(result);
    let text = flashscope_report::terminal::layers_study(result, &style());
    with_figures(chapter, json, text, flashscope_report::html::layers_study(result))
}

fn of_runs(result: &RunsResult, file: &str) -> Finished {
    let inputs = result.groups.iter().map(|group| &group.inputs);
    let chapter = chapter(&result.header, inputs, file, result.published.clone(), figures::runs_study(result));
    let chapter = Chapter { more: reproduction::runs(result), ..chapter };
    let json = flashscope_report::json::any(result);
    let text = flashscope_report::terminal::runs_study(result, &style());
    with_figures(chapter, json, text, flashscope_report::html::runs_study(result))
}

fn of_replays(result: &ReplaysResult, file: &str) -> Finished {
    let inputs = result.groups.iter().map(|group| &group.inputs);
    let chapter = chapter(&result.header, inputs, file, result.published.clone(), figures::replays_study(result));
    let chapter = Chapter { more: reproduction::replays(result), ..chapter };
    let json = flashscope_report::json::any(result);
    let text = flashscope_report::terminal::replays_study(result, &style());
    with_figures(chapter, json, text, flashscope_report::html::replays_study(result))
}

fn of_boot(result: &BootResult, file: &str) -> Finished {
    let inputs = result.groups.iter().map(|group| &group.inputs);
    let chapter = chapter(&result.header, inputs, file, result.published.clone(), figures::boot_study(result));
    let json = flashscope_report::json::any(result);
    let text = flashscope_report::terminal::boot_study(result, &style());
    with_figures(chapter, json, text, flashscope_report::html::boot_study(result))
}

/// Writes the page, and its figures in a directory with its name beside it.
fn reproduce(
    chapters: &[Chapter],
    not_measured: &[NotMeasurable],
    page: &Path,
    args: &StudyArgs,
) -> Result<(), Failure> {
    let name = page.file_stem().and_then(|stem| stem.to_str()).unwrap_or("reproduction");
    let files = args.files.iter().map(|file| shell_path(file)).collect::<Vec<_>>().join(" ");
    let what = if args.all { "--all".to_owned() } else { files };
    let command = format!("flashscope study {what} --report {}", shell_path(page));
    let parent = page.parent().unwrap_or(Path::new(""));
    let drawn: Vec<(String, String)> = chapters
        .iter()
        .flat_map(|chapter| chapter.figures.iter().map(|figure| (chapter.figure_file(figure), figure.standalone())))
        .collect();
    write_files(&drawn, &parent.join(name))?;
    let text = reproduction::page(chapters, not_measured, name, &command);
    let file = page.file_name().and_then(|name| name.to_str()).unwrap_or("reproduction.md").to_owned();
    let written = write_files(&[(file, text)], parent)?;
    flashscope_output::note(&format!("published values and ours: {}", written.display()));
    Ok(())
}

pub fn options(jobs: Option<NonZeroUsize>, fresh: bool, board: &BoardOptions) -> Result<Options, Failure> {
    let jobs = jobs.or_else(|| std::thread::available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN);
    let boards = Arc::new(Boards::new(jobs));
    let kept = Arc::clone(&boards);
    stop::end_soon(move || match kept.interrupted() {
        Interrupted { groups: 0, .. } => "interrupted before the first board ran; nothing was measured".to_owned(),
        some => some.to_string(),
    })?;
    Ok(Options {
        boards,
        fresh,
        store: flashscope_targets::cache_dir()?.join("groups"),
        kernel: board.kernel.clone(),
        packages: board.packages.clone(),
        disk: board.disk.clone(),
        timeout: BOARD_TIMEOUT,
        stop: stop::flag()?,
    })
}

pub fn measure(study: &Study, options: &Options, lines: &StudyLines) -> Result<StudyResult, Failure> {
    Ok(flashscope_study::run(study, options, lines)?)
}

/// Writes results.json, results.csv and report.html; returns the page's path.
pub fn write(result: &StudyResult, directory: &Path) -> Result<PathBuf, Failure> {
    write_files(&matrix_files(result, false), directory)
}

fn matrix_files(result: &StudyResult, csv_raw: bool) -> Vec<(String, String)> {
    [
        ("results.json", flashscope_report::json::any(result)),
        ("results.csv", flashscope_report::csv::study(result, csv_raw)),
        ("report.html", flashscope_report::html::study(result)),
    ]
    .map(|(name, text)| (name.to_owned(), text))
    .into()
}

/// Writes these files; returns the path of the last one.
fn write_files(files: &[(String, String)], directory: &Path) -> Result<PathBuf, Failure> {
    crate::failure::create_directory(directory, "free some space or name another directory")?;
    let mut last = directory.to_owned();
    for (name, text) in files {
        last = directory.join(name);
        output::write(&last, text.as_bytes(), &[], "")?;
    }
    Ok(last)
}

fn columns_of_terminal() -> Option<usize> {
    terminal_size::terminal_size().map(|(terminal_size::Width(columns), _)| columns.into())
}

/// The style of tables: the terminal's width, and emphasis if the terminal supports it.
pub fn style() -> flashscope_report::terminal::Style {
    use std::io::IsTerminal as _;
    let default = flashscope_report::terminal::Style::default();
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    flashscope_report::terminal::Style {
        width: columns.or_else(columns_of_terminal).unwrap_or(default.width),
        top: None,
        colour: std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none(),
    }
}
