//! `export`: writes a trace in another format.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use flashscope_output::{Output, Rules, StdoutError, note};
use flashscope_trace::{Error, Session, Trace, dat, export, flashmon};

use crate::anonymous;
use crate::args::{ExportArgs, ExportFormat, ExportRows};
use crate::failure::Failure;
use crate::inputs::Inputs;
use crate::output::{self, Noted};

pub mod rows;

pub fn run(args: &ExportArgs, quiet: bool) -> Result<(), Failure> {
    if args.to == ExportFormat::Parquet && !cfg!(feature = "parquet") {
        return Err(Failure::usage(
            "export --to parquet: this flashscope was built without it (--no-default-features); build it with `cargo build \
             --release -p flashscope`, or export to csv or json",
        ));
    }
    let to_stdout = args.output == Path::new("-");
    if to_stdout && matches!(args.to, ExportFormat::TraceDat | ExportFormat::Flashmon) {
        return Err(Failure::usage(
            "--output -: only csv, json, text, perfetto and parquet go to standard output; name a file",
        ));
    }
    if let Some(copies) = anonymous::copies(&args.anonymize, &args.traces, &args.clocks, args.recording)? {
        // As everywhere, an output must not replace an input.
        let traces = copies.traces.clone();
        return run_on(&ExportArgs { traces, recording: None, ..args.clone() }, to_stdout, quiet, &args.traces);
    }
    run_on(args, to_stdout, quiet, &args.traces)
}

fn run_on(args: &ExportArgs, to_stdout: bool, quiet: bool, given: &[PathBuf]) -> Result<(), Failure> {
    let given = output::inputs(given);
    if !to_stdout {
        Output::check(&args.output, Rules { inputs: &given, ..Rules::default() })
            .map_err(crate::failure::with_option(OPTION))?;
    }
    if args.rows != ExportRows::Events {
        return rows::run(args, to_stdout, quiet);
    }
    if args.traces.len() > 1 || !args.clocks.offsets.is_empty() {
        return merged(args, to_stdout, quiet);
    }
    let trace = open(args)?;
    let summary = match args.to {
        ExportFormat::TraceDat => {
            let _note = output::note(&args.output);
            let inputs = output::inputs(&args.traces);
            let (written, _) =
                dat::write_as(&trace, &args.output, Rules { inputs: &inputs, ..Rules::default() }).map_err(named)?;
            format!("{} bytes", written.bytes)
        }
        ExportFormat::Flashmon => return to_flashmon(&trace, args, quiet),
        _ => return written(args, to_stdout, quiet, |out| write(&trace, args, out)),
    };
    tell(args, quiet, &summary);
    Ok(())
}

/// The number of written items (rows, lines, or slices and instants), and notes about them.
struct Written {
    items: u64,
    summary: String,
    /// The reason for an empty export, and the next command.
    empty: String,
}

/// Buffers the output until the export has data, so that an empty export writes nothing.
struct DelayedWriter<W: Write> {
    out: W,
    buffered: Vec<u8>,
    open: bool,
}

/// Headings, schemas and facts of an empty export are shorter than this.
const MOST_BUFFERED: usize = 1 << 20;

impl<W: Write> DelayedWriter<W> {
    fn new(out: W) -> DelayedWriter<W> {
        DelayedWriter { out, buffered: Vec::new(), open: false }
    }

    fn pass_on(&mut self) -> io::Result<()> {
        self.open = true;
        self.out.write_all(&std::mem::take(&mut self.buffered))
    }
}

impl<W: Write> Write for DelayedWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.open {
            if self.buffered.len() + bytes.len() <= MOST_BUFFERED {
                self.buffered.extend_from_slice(bytes);
                return Ok(bytes.len());
            }
            self.pass_on()?;
        }
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.open { self.out.flush() } else { Ok(()) }
    }
}

/// Writes to standard output, or to a file that appears only when complete. An empty export fails and leaves no file.
fn written(
    args: &ExportArgs,
    to_stdout: bool,
    quiet: bool,
    write: impl FnOnce(&mut (dyn Write + Send)) -> Result<Written, Error>,
) -> Result<(), Failure> {
    let nothing = |written: &Written| match written.items {
        0 => Err(Failure::new(format!("{}: nothing to export: {}", args.traces[0].display(), written.empty))),
        _ => Ok(()),
    };
    if to_stdout {
        flashscope_output::can_print()?;
        let mut out = DelayedWriter::new(BufWriter::new(std::io::stdout()));
        let written = match write(&mut out) {
            // Errors of standard output are handled in one place.
            Err(Error::Io { action: "write the export of", source, .. }) => {
                return Err(StdoutError::from(source).into());
            }
            Err(error) => return Err(error.into()),
            Ok(written) => written,
        };
        nothing(&written)?;
        return Ok(out.pass_on().and_then(|()| out.flush()).map_err(StdoutError::from)?);
    }
    let inputs = output::inputs(&args.traces);
    let mut noted = Noted::create(&args.output, &inputs, OPTION)?;
    let mut out = DelayedWriter::new(BufWriter::new(&mut noted.file));
    let written = write(&mut out).map_err(|error| output::not_exported(&args.output, error, OPTION))?;
    nothing(&written)?;
    out.pass_on().and_then(|()| out.flush()).map_err(|error| output::cannot(&args.output, &error, OPTION))?;
    drop(out);
    noted.publish()?;
    tell(args, quiet, &written.summary);
    Ok(())
}

fn tell(args: &ExportArgs, quiet: bool, summary: &str) {
    if !quiet {
        note(&format!("wrote {}: {summary}", args.output.display()));
    }
}

/// Exports several traces in order of time.
fn merged(args: &ExportArgs, to_stdout: bool, quiet: bool) -> Result<(), Failure> {
    if args.recording.is_some() {
        return Err(Failure::usage("--recording: of several traces none can be chosen; export the recording alone"));
    }
    if matches!(args.to, ExportFormat::Perfetto | ExportFormat::Parquet | ExportFormat::Flashmon) {
        return Err(Failure::usage(
            "several traces become csv, json, text or a trace.dat; write them as a trace.dat first, then export that",
        ));
    }
    let inputs = Inputs::open_with(&args.traces, &args.clocks.offsets, args.clocks.block_size)?;
    let traces = inputs.merged();
    if args.to == ExportFormat::TraceDat {
        let _note = output::note(&args.output);
        let written = dat::write_merged(traces, &args.output, &|_, _| true).map_err(named)?;
        let mut summary = format!("{} records, {} bytes, of {}", written.records, written.bytes, inputs.title());
        if written.too_large > 0 {
            summary += &format!("; {} records too large for its sub-buffers are not in it", written.too_large);
        }
        tell(args, quiet, &summary);
        return Ok(());
    }
    written(args, to_stdout, quiet, |out| {
        let (items, unit, empty) = match args.to {
            ExportFormat::Csv => (export::csv_merged_as(traces, args.csv_raw, out)?, "events", NO_EVENTS),
            ExportFormat::Json => (export::json_lines_merged(traces, out)?, "records", NO_EVENTS),
            _ => (export::text_merged(traces, out)?, "records", NO_EVENTS),
        };
        Ok(Written { items, summary: format!("{items} {unit} of {}", inputs.title()), empty: empty.to_owned() })
    })
}

const NO_EVENTS: &str =
    "the trace has no events; record again with what is to be seen, as `flashscope record --events block`";

const NO_ISSUES: &str = "no completion of a block request has its issue in the trace, so none has a slice; record issues too (flashscope record --events block, \
     blktrace without -a)";

fn open(args: &ExportArgs) -> Result<Trace, Failure> {
    let path = &args.traces[0];
    match args.recording {
        None => match Trace::open(path) {
            Err(Error::SeveralRecordings { path, count }) => Err(Failure::usage(format!(
                "{}: this stream holds {count} recordings; choose one with --recording 0 to {}",
                path.display(),
                count - 1
            ))),
            other => Ok(other?),
        },
        Some(index) => Ok(Session::open(path)?.recording(index)?),
    }
}

/// Writes a format that has a single output.
fn write(trace: &Trace, args: &ExportArgs, out: &mut (dyn Write + Send)) -> Result<Written, Error> {
    let of = |items: u64, summary: String, empty: &str| Written { items, summary, empty: empty.to_owned() };
    Ok(match args.to {
        ExportFormat::Csv => {
            let events = export::csv_as(trace, args.csv_raw, out)?;
            of(events, format!("{events} events"), NO_EVENTS)
        }
        ExportFormat::Json => {
            let records = export::json_lines(trace, out)?;
            of(records, format!("{records} records"), NO_EVENTS)
        }
        ExportFormat::Text => {
            let records = export::text(trace, out)?;
            of(records, format!("{records} records"), NO_EVENTS)
        }
        ExportFormat::Perfetto => {
            let written = export::perfetto(trace, out)?;
            let mut summary = format!("{} slices, {} instants", written.slices, written.instants);
            if written.unmatched > 0 {
                summary +=
                    &format!("; {} completions of requests that were issued before the trace began", written.unmatched);
            }
            if written.waiting_flushes > 0 {
                summary += &format!(
                    "; {} empty flushes have no slice of their own: the flush of the device that they waited for has one",
                    written.waiting_flushes
                );
            }
            let empty = if written.unmatched > 0 { NO_ISSUES } else { NO_EVENTS };
            of(written.slices + written.instants, summary, empty)
        }
        #[cfg(feature = "parquet")]
        ExportFormat::Parquet => {
            let written = export::parquet(trace, out)?;
            of(written.rows, rows::summary(written.rows, written.clamped), NO_EVENTS)
        }
        _ => unreachable!("`run` takes care of the others"),
    })
}

/// Writes Flashmon's files, for one chip.
fn to_flashmon(trace: &Trace, args: &ExportArgs, quiet: bool) -> Result<(), Failure> {
    let mut blocks = args.output.clone().into_os_string();
    blocks.push(".blocks");
    let blocks = PathBuf::from(blocks);
    if Output::is_through(&args.output) {
        return Err(Failure::usage(
            "--to flashmon: two files are written, which no device and no pipe can take; name a file",
        ));
    }
    let inputs = output::inputs(&args.traces);
    let (mut log, mut view) = (Noted::create(&args.output, &inputs, OPTION)?, Noted::create(&blocks, &inputs, OPTION)?);
    let mut out = BufWriter::new(&mut log.file);
    let not_exported = |path: &Path| {
        let path = path.to_owned();
        move |error| output::not_exported(&path, error, OPTION)
    };
    let lines = flashmon::write_log(trace, args.chip, &mut out).map_err(not_exported(&args.output))?;
    if lines.lines == 0 {
        let why = match lines.other_chips {
            0 => "the trace has no flash operations (flashscope:nand_read and others); record with `flashscope record --events flash`".to_owned(),
            n => format!("the trace has no operations of chip {}, and {n} of others; choose one with --chip", args.chip),
        };
        return Err(Failure::new(format!("{}: nothing to export: {why}", args.traces[0].display())));
    }
    out.flush().map_err(|error| output::cannot(&args.output, &error, OPTION))?;
    drop(out);
    let mut out = BufWriter::new(&mut view.file);
    let counted = flashmon::write_spatial(trace, args.chip, &mut out).map_err(not_exported(&blocks))?;
    out.flush().map_err(|error| output::cannot(&blocks, &error, OPTION))?;
    drop(out);
    log.publish()?;
    view.publish()?;
    if !quiet {
        note(&format!("wrote {} and {}", args.output.display(), blocks.display()));
        if counted.other_chips > 0 {
            note(&format!("{} operations of other chips are not in them (--chip)", counted.other_chips));
        }
        if counted.beyond > 0 {
            note(&format!("{} operations of blocks from 1048576 on are not in {}", counted.beyond, blocks.display()));
        }
    }
    Ok(())
}

/// The option that names the output file.
const OPTION: &str = "--output";

/// An error of writing a trace, with the option for another file name.
fn named(error: Error) -> Failure {
    match error {
        Error::Output(error) => crate::failure::with_option(OPTION)(error),
        error => error.into(),
    }
}
