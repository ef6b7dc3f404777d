//! `export`: a trace in another format.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use flashscope_trace::{Error, Session, Trace, dat, export, flashmon};

use crate::args::{ExportArgs, ExportFormat};
use crate::failure::Failure;
use crate::inputs::Inputs;

pub fn run(args: &ExportArgs, quiet: bool) -> Result<(), Failure> {
    if args.to == ExportFormat::Parquet && !cfg!(feature = "parquet") {
        return Err(Failure::usage(
            "export --to parquet: this flashscope was built without it; build it with `cargo build --release --features \
             parquet -p flashscope`, or export to csv or json",
        ));
    }
    let to_stdout = args.output == Path::new("-");
    if to_stdout && matches!(args.to, ExportFormat::TraceDat | ExportFormat::Flashmon) {
        return Err(Failure::usage(
            "--output -: only csv, json, text, perfetto and parquet go to standard output; name a file",
        ));
    }
    if args.traces.len() > 1 || !args.clocks.offsets.is_empty() {
        return merged(args, to_stdout, quiet);
    }
    let trace = open(args)?;
    let said = match args.to {
        ExportFormat::TraceDat => {
            let _note = crate::recover::note_partial(&args.output)?;
            let written = dat::write(&trace, &args.output)?;
            format!("{} bytes", written.bytes)
        }
        ExportFormat::Flashmon => return to_flashmon(&trace, args, quiet),
        _ => return written(args, to_stdout, quiet, |out| write(&trace, args.to, out)),
    };
    tell(args, quiet, &said);
    Ok(())
}

/// Writes to standard output, or to a file that is there whole or not at all.
fn written(
    args: &ExportArgs,
    to_stdout: bool,
    quiet: bool,
    write: impl FnOnce(&mut (dyn Write + Send)) -> Result<String, Error>,
) -> Result<(), Failure> {
    if to_stdout {
        return match write(&mut BufWriter::new(std::io::stdout())) {
            // Whoever reads has had enough.
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            written => Ok(written.map(drop)?),
        };
    }
    let mut file = Partial::create(&args.output)?;
    let said = write(&mut file.out)?;
    file.publish()?;
    tell(args, quiet, &said);
    Ok(())
}

fn tell(args: &ExportArgs, quiet: bool, said: &str) {
    if !quiet {
        eprintln!("flashscope: wrote {}: {said}", args.output.display());
    }
}

/// Several traces, in one order of time.
fn merged(args: &ExportArgs, to_stdout: bool, quiet: bool) -> Result<(), Failure> {
    if args.recording.is_some() {
        return Err(Failure::usage("--recording: of several traces none can be chosen; export the recording alone"));
    }
    if matches!(args.to, ExportFormat::Perfetto | ExportFormat::Parquet | ExportFormat::Flashmon) {
        return Err(Failure::usage(
            "several traces become csv, json, text or a trace.dat; write them as a trace.dat first, then export that",
        ));
    }
    let inputs = Inputs::open(&args.traces, &args.clocks.offsets)?;
    let traces = inputs.merged();
    if args.to == ExportFormat::TraceDat {
        let _note = crate::recover::note_partial(&args.output)?;
        let written = dat::write_merged(traces, &args.output, &|_, _| true)?;
        let mut said = format!("{} records, {} bytes, of {}", written.records, written.bytes, inputs.title());
        if written.too_large > 0 {
            said += &format!("; {} records too large for its sub-buffers are not in it", written.too_large);
        }
        tell(args, quiet, &said);
        return Ok(());
    }
    written(args, to_stdout, quiet, |out| {
        Ok(match args.to {
            ExportFormat::Csv => format!("{} events of {}", export::csv_merged(traces, out)?, inputs.title()),
            ExportFormat::Json => format!("{} records of {}", export::json_lines_merged(traces, out)?, inputs.title()),
            _ => format!("{} records of {}", export::text_merged(traces, out)?, inputs.title()),
        })
    })
}

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

/// Writes a format that is one stream of bytes; says what it was.
fn write(trace: &Trace, to: ExportFormat, out: &mut (dyn Write + Send)) -> Result<String, Error> {
    Ok(match to {
        ExportFormat::Csv => format!("{} events", export::csv(trace, out)?),
        ExportFormat::Json => format!("{} records", export::json_lines(trace, out)?),
        ExportFormat::Text => format!("{} records", export::text(trace, out)?),
        ExportFormat::Perfetto => {
            let written = export::perfetto(trace, out)?;
            let mut said = format!("{} slices, {} instants", written.slices, written.instants);
            if written.unmatched > 0 {
                said +=
                    &format!("; {} completions of requests that were issued before the trace began", written.unmatched);
            }
            said
        }
        #[cfg(feature = "parquet")]
        ExportFormat::Parquet => {
            let written = export::parquet(trace, out)?;
            match written.clamped {
                0 => format!("{} rows", written.rows),
                n => format!("{} rows; {n} numbers beyond 2^63 - 1 were cut to that", written.rows),
            }
        }
        _ => unreachable!("`run` takes care of the others"),
    })
}

/// Flashmon's files are about one chip.
fn to_flashmon(trace: &Trace, args: &ExportArgs, quiet: bool) -> Result<(), Failure> {
    let mut blocks = args.output.clone().into_os_string();
    blocks.push(".blocks");
    let blocks = PathBuf::from(blocks);
    let (mut log, mut view) = (Partial::create(&args.output)?, Partial::create(&blocks)?);
    flashmon::write_log(trace, args.chip, &mut log.out)?;
    let counted = flashmon::write_spatial(trace, args.chip, &mut view.out)?;
    log.publish()?;
    view.publish()?;
    if !quiet {
        eprintln!("flashscope: wrote {} and {}", args.output.display(), blocks.display());
        if counted.other_chips > 0 {
            eprintln!("flashscope: {} operations of other chips are not in them (--chip)", counted.other_chips);
        }
        if counted.beyond > 0 {
            eprintln!(
                "flashscope: {} operations of blocks from 1048576 on are not in {}",
                counted.beyond,
                blocks.display()
            );
        }
    }
    Ok(())
}

/// A file under a name of its own until it is whole: what was there before stays until then.
struct Partial {
    out: BufWriter<File>,
    partial: PathBuf,
    target: PathBuf,
    published: bool,
    /// Removes the half, should this process be killed.
    _note: flashscope_target::ScratchDir,
}

impl Partial {
    fn create(target: &Path) -> Result<Partial, Failure> {
        let note = crate::recover::note_partial(target)?;
        let mut name = std::ffi::OsString::from(".");
        name.push(target.file_name().unwrap_or_default());
        name.push(format!(".partial-{}", std::process::id()));
        let partial = target.with_file_name(name);
        let file = File::create(&partial).map_err(|e| cannot(target, &e))?;
        Ok(Partial { out: BufWriter::new(file), partial, target: target.to_owned(), published: false, _note: note })
    }

    fn publish(mut self) -> Result<(), Failure> {
        self.out.flush().map_err(|e| cannot(&self.target, &e))?;
        std::fs::rename(&self.partial, &self.target).map_err(|e| cannot(&self.target, &e))?;
        self.published = true;
        Ok(())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.published {
            std::fs::remove_file(&self.partial).ok();
        }
    }
}

fn cannot(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("{}: {error}; name another file with --output", path.display()))
}
