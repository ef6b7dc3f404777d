//! `diff`: shows the changes between two sides.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use flashscope_analysis::block::Unit;
use flashscope_analysis::comparison::{Checked, Comparison, RunFigures, run_of_json};
use schemars::JsonSchema;
use serde::Serialize;

use crate::anonymous;
use crate::args::{ClockArgs, DiffArgs, ReportArgs};
use crate::conditions;
use crate::failure::Failure;
use crate::inputs::Inputs;
use crate::output;
use crate::report;
use crate::study::style;

/// Largest JSON result: it is read into memory, a trace is not.
const MOST_JSON_BYTES: u64 = 256 << 20;

/// The output of `--json`.
#[derive(Serialize, JsonSchema)]
pub struct Printed<'a> {
    #[serde(flatten)]
    comparison: &'a Comparison,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    conditions: &'a Vec<Checked>,
    /// Parts of a JSON result that are not compared.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left_out: &'a Vec<String>,
}

pub fn run(args: &DiffArgs) -> Result<(), Failure> {
    let (before, after) = sides(args)?;
    conditions::without_names(&args.limits, args.anonymize.is_asked_for())?;
    let given: Vec<PathBuf> = before.iter().chain(after).cloned().collect();
    // One key for both sides, so that equal names have equal pseudonyms.
    let copies = match args.anonymize.is_asked_for() {
        true => {
            for path in &given {
                if json(path)?.is_some() {
                    return Err(Failure::usage(format!(
                        "--anonymize: {}: a JSON result cannot be anonymized; make it again with report --anonymize --json",
                        path.display()
                    )));
                }
            }
            anonymous::copies(&args.anonymize, &given, &ClockArgs::default(), None)?
        }
        false => None,
    };
    let inputs = copies.as_ref().map_or(&given, |copies| &copies.traces);
    let (before, after) = inputs.split_at(before.len());
    let figures = |paths: &[PathBuf]| {
        paths.iter().map(|path| run_figures(path, args.block_size, false)).collect::<Result<Vec<_>, Failure>>()
    };
    let (a, b) = (figures(before)?, figures(after)?);
    let left_out = a.iter().chain(&b).filter_map(|run| Some(format!("{}: {}", run.title, run.left_out.as_ref()?)));
    let left_out: Vec<String> = left_out.collect();
    left_out.iter().for_each(|what| flashscope_output::note(what));
    let mut comparison = Comparison::new(&a, &b);
    let is_of = |unit| inputs.iter().zip(a.iter().chain(&b)).find(|(_, run)| run.unit == Some(unit));
    let mut of_a_change = b[..1].to_vec();
    if let (Some(_), Some((without, _))) = (is_of(Unit::Bio), is_of(Unit::Request)) {
        let (without, mut left_out) = (without.display().to_string(), Vec::new());
        let requests = as_requests((before, &a), args.block_size, &without, &mut left_out)?;
        of_a_change = as_requests((after, &b), args.block_size, &without, &mut left_out)?;
        comparison = comparison.of_requests(&requests, &of_a_change, left_out);
    }
    if comparison.changes.is_empty() {
        return Err(Failure::new(format!(
            "{} and {} have no figure in common; compare two recordings, or two results, of the same kind",
            before[0].display(),
            after[0].display()
        )));
    }
    // On a side with several recordings, each one must keep a limit.
    let checked: Vec<Checked> = args
        .limits
        .fail_if
        .iter()
        .flat_map(|condition| {
            let runs = if condition.is_of_a_change() { &of_a_change[..1] } else { &b[..] };
            let of_run = |run| {
                conditions::of_nobody(condition, run);
                condition.check_change(&comparison, run)
            };
            runs.iter().map(of_run).collect::<Vec<_>>()
        })
        .collect();
    if let Some(page) = &args.html {
        output::write(
            page,
            flashscope_report::html::comparison(&comparison, &checked).as_bytes(),
            &output::inputs(&given),
            "--html",
        )?;
    }
    conditions::write(&args.limits, &checked, &given)?;
    if args.json {
        out!(
            "{}",
            flashscope_report::json::any(&Printed {
                comparison: &comparison,
                conditions: &checked,
                left_out: &left_out
            })
        );
    } else {
        out!("{}", flashscope_report::terminal::comparison(&comparison, args.top, &style()));
    }
    conditions::end(&checked)
}

/// The files of both sides.
fn sides(args: &DiffArgs) -> Result<(&[PathBuf], &[PathBuf]), Failure> {
    match (&args.before[..], &args.against[..]) {
        ([_, _], []) => Ok(args.before.split_at(1)),
        (_, []) => Err(Failure::usage("two sides are needed: diff BEFORE AFTER, or diff BEFORE… --against AFTER…")),
        (before, after) => Ok((before, after)),
    }
}

/// If not all recordings have queueing, requests are compared: recordings with queueing are read again without their bios and named in
/// `left_out`.
fn as_requests(
    (paths, runs): (&[PathBuf], &[RunFigures]),
    block_size: Option<u64>,
    without: &str,
    left_out: &mut Vec<String>,
) -> Result<Vec<RunFigures>, Failure> {
    let request = |(path, run): (&PathBuf, &RunFigures)| {
        let run = match run.unit {
            Some(Unit::Bio) if json(path)?.is_some() => {
                return Err(Failure::new(format!(
                    "{}: this JSON result is of bios, and {without} has no queueing and is of requests; give the trace instead of this \
                     result",
                    path.display()
                )));
            }
            Some(Unit::Bio) => {
                left_out.push(run.title.clone());
                run_figures(path, block_size, true)?
            }
            _ => run.clone(),
        };
        // Rules that need bios do not apply to the others.
        Ok(RunFigures { findings: Vec::new(), ..run })
    };
    paths.iter().zip(runs).map(request).collect()
}

/// The figures of a trace or of a stored result.
fn run_figures(path: &Path, block_size: Option<u64>, requests_alone: bool) -> Result<RunFigures, Failure> {
    if let Some(run) = json(path)? {
        return Ok(run);
    }
    let args = ReportArgs { traces: vec![path.to_owned()], requests_alone, ..ReportArgs::default() };
    let inputs = Inputs::open_with(&args.traces, &[], block_size)?;
    if let Some(failure) = inputs.without_block_size() {
        return Err(failure);
    }
    if inputs.traces().any(report::is_of_block_io) {
        Ok(RunFigures::of_block(&report::block_report(&inputs, &args)?))
    } else {
        Ok(RunFigures::of_flash(&report::flash_report(&inputs, &args)?))
    }
}

/// The figures of a JSON result; `None` if the file is a trace.
fn json(path: &Path) -> Result<Option<RunFigures>, Failure> {
    let failed = |error: std::io::Error| Failure::new(format!("{}: {error}", path.display()));
    if !path.is_file() {
        return Ok(None);
    }
    let mut file = File::open(path).map_err(failed)?;
    let mut first = [0; 1];
    if file.read(&mut first).map_err(failed)? == 0 || first[0] != b'{' {
        return Ok(None);
    }
    let mut text = vec![b'{'];
    file.take(MOST_JSON_BYTES).read_to_end(&mut text).map_err(failed)?;
    if text.len() as u64 > MOST_JSON_BYTES {
        return Err(Failure::new(format!("{}: a JSON result of more than 256 MiB", path.display())));
    }
    // A line of events may begin in the same way.
    let title = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    run_of_json(&title, &text).map_err(|error| Failure::new(format!("{}: {error}", path.display())))
}
