//! Writes a command's files by the rules of `flashscope_output`. A note in the cache tells the next command which file is left over if this
//! one is killed.

use std::path::{Path, PathBuf};

use flashscope_output::{HostFile, Output, Rules};
use flashscope_targets::ScratchDir;

use crate::failure::{Failure, with_option};
use crate::recover;

/// A file that is being written, and the note about it.
pub struct Noted<'a> {
    pub file: Output<'a>,
    _note: Option<ScratchDir>,
}

impl<'a> Noted<'a> {
    /// Opens `path`, which must not be one of `inputs`; `option` is the option that named it.
    pub fn create(path: &Path, inputs: &'a [HostFile], option: &str) -> Result<Noted<'a>, Failure> {
        let note = note(path);
        let file = Output::create(path, Rules { inputs, ..Rules::default() }).map_err(with_option(option))?;
        Ok(Noted { file, _note: note })
    }

    /// Makes the complete file appear.
    pub fn publish(self) -> Result<PathBuf, Failure> {
        Ok(self.file.publish()?)
    }
}

/// The note about a file that is being written. Without a cache there is none: then the next command that writes the same file removes the
/// leftover.
pub fn note(path: &Path) -> Option<ScratchDir> {
    if Output::is_through(path) { None } else { recover::note_partial(path).ok() }
}

/// The input files of a command: all files that the traces with these names are read from.
pub fn inputs(paths: &[PathBuf]) -> Vec<HostFile> {
    paths.iter().flat_map(|path| flashscope_trace::files_of(path)).filter_map(|file| HostFile::of(&file)).collect()
}

/// Writes a page or a table: either completely, or not at all.
pub fn write(path: &Path, bytes: &[u8], inputs: &[HostFile], option: &str) -> Result<(), Failure> {
    use std::io::Write as _;
    let mut noted = Noted::create(path, inputs, option)?;
    noted.file.write_all(bytes).map_err(|error| cannot(path, &error, option))?;
    noted.publish().map(drop)
}

/// The error for a file that cannot be written, with the option that named it; a file of a directory has none.
pub fn cannot(path: &Path, error: &std::io::Error, option: &str) -> Failure {
    let other = if option.is_empty() { "directory".to_owned() } else { format!("file with {option}") };
    Failure::new(format!("{}: {error}; free some space or name another {other}", path.display()))
}

/// The same for an export: its error names the trace, but the file without space is another one.
pub fn not_exported(path: &Path, error: flashscope_trace::Error, option: &str) -> Failure {
    match error {
        flashscope_trace::Error::Io { action: "write the export of", source, .. } => cannot(path, &source, option),
        error => error.into(),
    }
}
