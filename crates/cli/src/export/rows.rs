//! `export --rows bios|requests`: a table with one row per bio or request.

use std::cell::Cell;
use std::io::Write;

use flashscope_analysis::block::{BlockSetup, IoRows, ROWS_SCHEMA, RowsFound, RowsOf, StackSurvey};
use flashscope_trace::export::{TableWriter, TableWritten, TextTable};
use flashscope_trace::{Error, Trace};

use super::{Written, open, written};
use crate::args::{ExportArgs, ExportFormat, ExportRows};
use crate::failure::Failure;
use crate::inputs::Inputs;

pub fn run(args: &ExportArgs, to_stdout: bool, quiet: bool) -> Result<(), Failure> {
    if !matches!(args.to, ExportFormat::Csv | ExportFormat::Json | ExportFormat::Parquet) {
        return Err(Failure::usage("--rows: only csv, json and parquet are tables; choose one of them with --to"));
    }
    let of = if args.rows == ExportRows::Bios { RowsOf::Bios } else { RowsOf::Requests };
    let inputs = match args.recording {
        Some(_) if args.traces.len() > 1 => {
            return Err(Failure::usage(
                "--recording: of several traces none can be chosen; export the recording alone",
            ));
        }
        Some(_) => Inputs::one(open(args)?)?,
        None => Inputs::open_with(&args.traces, &args.clocks.offsets, args.clocks.block_size)?,
    };
    if inputs.of_several_machines() {
        return Err(Failure::usage(format!(
            "--rows {}: these traces may be of different boots, so devices with one name cannot be distinguished; export \
             them one at a time",
            of.name()
        )));
    }
    if let Some(failure) = inputs.without_block_size() {
        return Err(failure);
    }
    let mut failed = None;
    let result = written(args, to_stdout, quiet, |out| {
        let mut table = table(args, of, out).map_err(|error| cannot(args, error))?;
        let found = fill(&inputs, of, &mut *table).map_err(|failure| failed = Some(failure));
        let Ok(found) = found else { return Ok(Written { items: 0, summary: String::new(), empty: String::new() }) };
        let notes = [
            ("flashscope.schema", ROWS_SCHEMA.to_string()),
            ("flashscope.rows", of.name().to_owned()),
            ("flashscope.clock", inputs.traces().next().map_or("", Trace::clock).to_owned()),
        ];
        let TableWritten { rows, clamped } = table.finish(&notes).map_err(|error| cannot(args, error))?;
        Ok(Written { items: rows, summary: summary(rows, clamped), empty: why_empty(of, &found).to_owned() })
    });
    failed.map_or(result, Err)
}

/// The notes about a table.
pub fn summary(rows: u64, clamped: u64) -> String {
    match clamped {
        0 => format!("{rows} rows"),
        n => format!("{rows} rows; {n} numbers beyond 2^63 - 1 were cut to that"),
    }
}

fn cannot(args: &ExportArgs, source: std::io::Error) -> Error {
    Error::Io { path: args.output.clone(), action: "write the export of", source }
}

fn table<'a>(
    args: &ExportArgs,
    of: RowsOf,
    out: &'a mut (dyn Write + Send),
) -> std::io::Result<Box<dyn TableWriter + 'a>> {
    Ok(match args.to {
        ExportFormat::Csv => Box::new(TextTable::csv(of.columns(), args.csv_raw, out)),
        #[cfg(feature = "parquet")]
        ExportFormat::Parquet => Box::new(flashscope_trace::export::ParquetTable::new(of.columns(), out)?),
        _ => Box::new(TextTable::json_lines(of.columns(), out)),
    })
}

/// Facts about the traces, and facts about stacked devices that need a pass over the whole trace.
pub fn setup_of(inputs: &Inputs) -> Result<BlockSetup, Failure> {
    let mut survey = StackSurvey::default();
    inputs.for_each(&mut |_, event| survey.event(event))?;
    Ok(survey.finish(BlockSetup::of(inputs.traces())))
}

/// One pass over the traces, after the pass for stacked devices.
fn fill(inputs: &Inputs, of: RowsOf, table: &mut dyn TableWriter) -> Result<RowsFound, Failure> {
    // The trace of the current event; lookups of names during the event need it.
    let at = Cell::new(0);
    let lookup = |tid, time| inputs.thread(at.get(), tid, time);
    let mut rows = IoRows::new(of, lookup, setup_of(inputs)?).names(inputs.names());
    inputs.for_each(&mut |source, event| {
        at.set(source);
        if inputs.merged().sources()[source].trace.met_gap() {
            rows.events_are_missing();
        }
        rows.event(event, &mut |row| row.cells(|cells| table.row(cells)));
    })?;
    rows.losses(&inputs.merged().losses());
    Ok(rows.finish(&mut |row| row.cells(|cells| table.row(cells))))
}

/// The missing events, and the next command.
fn why_empty(of: RowsOf, found: &RowsFound) -> &'static str {
    match of {
        _ if found.events == 0 => {
            "the trace has no block I/O; record it with `flashscope record --events block`, or export its events without --rows"
        }
        RowsOf::Bios if found.queued == 0 => {
            "the trace does not show what was queued (block_bio_queue, blktrace's Q); --rows requests has what was issued; record \
             with `flashscope record --events block`"
        }
        RowsOf::Requests if found.issued == 0 => {
            "the trace does not show what was issued (block_rq_issue, blktrace's D); --rows bios has what was queued; record with \
             `flashscope record --events block`"
        }
        _ => "none of its block events could be followed; export the events themselves without --rows",
    }
}
