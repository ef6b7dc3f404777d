//! `--anonymize`: replaces names in traces by pseudonyms before any other code reads them.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use flashscope_output::Rules;
use flashscope_targets::ScratchDir;
use flashscope_trace::dat::{self, Key};
use flashscope_trace::{Session, Trace};

use crate::args::{AnonymizeArgs, ClockArgs};
use crate::failure::Failure;

/// Longest key file: a key is short, and a device may have no end.
const MAX_KEY: u64 = 1 << 20;

/// The key for pseudonyms: the file's content, or a random key for this run. `None`: names stay.
pub fn key(args: &AnonymizeArgs) -> Result<Option<Key>, Failure> {
    match &args.anonymize_key {
        Some(path) => of_file(path).map(Some),
        None => Ok(if args.anonymize { Some(random()?) } else { None }),
    }
}

/// The key in a file.
pub fn of_file(path: &Path) -> Result<Key, Failure> {
    let cannot = |error: &dyn std::fmt::Display| Failure::new(format!("--anonymize-key {}: {error}", path.display()));
    let mut bytes = Vec::new();
    let file = flashscope_output::open_input(path).map_err(|error| cannot(&error))?;
    file.take(MAX_KEY + 1).read_to_end(&mut bytes).map_err(|error| cannot(&error))?;
    match bytes.len() {
        0..16 => Err(cannot(&"holds less than 16 bytes; make one with: head -c 32 /dev/urandom >FILE")),
        length if length as u64 > MAX_KEY => Err(cannot(&"is longer than 1 MiB; name a file of 32 bytes")),
        _ => Ok(Key::of(&bytes)),
    }
}

/// A random key.
pub fn random() -> Result<Key, Failure> {
    let half = || flashscope_output::random().map_err(|error| Failure::new(format!("random numbers: {error}")));
    Ok(Key::of(format!("{}{}", half()?, half()?).as_bytes()))
}

/// Copies of traces with pseudonyms; they are deleted on drop.
pub struct Copies {
    _dir: ScratchDir,
    pub traces: Vec<PathBuf>,
}

/// `None` if names stay. `recording`: index, for a stream with several recordings.
pub fn copies(
    args: &AnonymizeArgs,
    traces: &[PathBuf],
    clocks: &ClockArgs,
    recording: Option<usize>,
) -> Result<Option<Copies>, Failure> {
    let Some(key) = key(args)? else { return Ok(None) };
    if !clocks.offsets.is_empty() {
        return Err(Failure::usage("--anonymize: the traces lose their names, which --offset needs: leave it out"));
    }
    let dir = ScratchDir::new("anonymous")?;
    let one = |(number, path): (usize, &PathBuf)| {
        // File names are private too.
        let copy = dir.path().join(format!("trace-{}.dat", number + 1));
        write(&open(path, recording)?, &copy, Rules::default(), &key)?;
        Ok(copy)
    };
    let traces = traces.iter().enumerate().map(one).collect::<Result<Vec<_>, Failure>>()?;
    Ok(Some(Copies { _dir: dir, traces }))
}

fn open(path: &Path, recording: Option<usize>) -> Result<Trace, Failure> {
    match recording {
        Some(index) => Ok(Session::open(path)?.recording(index)?),
        None => Ok(Trace::open(path)?),
    }
}

/// Writes a trace.dat with pseudonyms.
pub fn write(trace: &Trace, path: &Path, rules: Rules<'_>, key: &Key) -> Result<PathBuf, Failure> {
    dat::write_anonymized(trace, path, rules, key).map(|(_, path)| path).map_err(|error| match error {
        flashscope_trace::Error::Unsupported { path, .. } => Failure::new(format!(
            "--anonymize: {}: only a trace.dat or an agent's stream, which hold the kernel's ring buffer, can be anonymized",
            path.display()
        )),
        error => error.into(),
    })
}
