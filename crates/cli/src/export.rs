//! `export`: a trace in another format.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use flashscope_trace::{Trace, dat, flashmon};

use crate::args::{ExportArgs, ExportFormat};
use crate::failure::Failure;

pub fn run(args: &ExportArgs) -> Result<(), Failure> {
    let trace = Trace::open(&args.trace)?;
    match args.to {
        ExportFormat::TraceDat => {
            let _note = crate::recover::note_partial(&args.output)?;
            dat::write(&trace, &args.output)?;
        }
        ExportFormat::Flashmon => {
            // Flashmon's files are about one chip.
            let mut blocks = args.output.clone().into_os_string();
            blocks.push(".blocks");
            let blocks = PathBuf::from(blocks);
            flashmon::write_log(&trace, args.chip, &mut create(&args.output)?)?;
            flashmon::write_spatial(&trace, args.chip, &mut create(&blocks)?)?;
            eprintln!("flashscope: wrote {} and {}", args.output.display(), blocks.display());
        }
    }
    Ok(())
}

fn create(path: &Path) -> Result<BufWriter<File>, Failure> {
    File::create(path)
        .map(BufWriter::new)
        .map_err(|error| Failure::new(format!("{}: {error}; name another file with --output", path.display())))
}
