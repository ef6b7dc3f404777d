//! How a recorded stream becomes the file that was requested.

use std::fs::File;
use std::path::{Path, PathBuf};

use flashscope_output::quote::shell_path;
use flashscope_output::{Existing, Output, Rules};
use flashscope_trace::dat::Key;
use flashscope_trace::{Session, Trace};

use crate::anonymous;
use crate::failure::Failure;

/// How a stream becomes what was requested.
#[derive(Clone)]
pub enum Way {
    /// A trace.dat is made of it.
    Convert,
    /// The stream itself takes the name.
    Stream,
    /// A trace.dat with pseudonyms, and nothing else under that name. `file`: where the key came from.
    Anonymize { key: Key, file: Option<PathBuf> },
}

/// A recording that is a trace.dat now.
pub struct Finished {
    pub path: PathBuf,
    /// What the agent wanted people to know, and what became of an earlier file of that name, one line each.
    pub says: Vec<String>,
}

/// Why there is no trace to write: the filters let nothing through. What the agent says of it.
pub fn matched_nothing(stream: &Path) -> Option<String> {
    let session = Session::open(stream).ok()?;
    let trace = session.recording(0).ok()?;
    if !session.complete || trace.stats()["matched"] != 0 {
        return None;
    }
    let said = session.logs.iter().find(|line| line.text.starts_with("no event matched "));
    Some(format!("{}; no file was written", said.map_or("no event matched the filters", |line| line.text.as_str())))
}

/// Turns a stream into what the user requested. The stream is left alone where that fails. A file that has the name already is
/// kept as `NAME.old`, as perf does; what was cut short never takes the place of one.
///
/// By [`Way::Stream`] the stream itself takes the name: no second copy is made.
pub fn convert(stream: &Path, output: &Path, rules: Rules<'_>, way: &Way) -> Result<Finished, Failure> {
    let session = Session::open(stream)?;
    let says = session.logs.iter().filter(|line| line.level <= 1);
    let mut says: Vec<String> = says.map(|line| format!("the agent says: {}", line.text)).collect();
    let trace = match session.recordings.len() {
        1 => session.recording(0)?,
        0 => return Err(Failure::new("the agent recorded nothing")),
        count => return Err(Failure::new(format!("{} holds {count} recordings, not one", stream.display()))),
    };
    let existing = if session.complete { Existing::KeepAsOld } else { Existing::Stays("incomplete") };
    let rules = Rules { existing, ..rules };
    let through = Output::is_through(output);
    let there = !through && std::fs::metadata(output).is_ok_and(|meta| meta.is_file());
    // A link stays: the file that it leads to is the one that is kept.
    let earlier = std::fs::canonicalize(output).unwrap_or_else(|_| output.to_owned());
    let (path, no_room) = match way {
        Way::Anonymize { key, .. } => (anonymous::write(&trace, output, rules, key)?, None),
        Way::Stream if !through => (flashscope_output::adopt(stream, output, rules)?, None),
        Way::Stream | Way::Convert => copy(&trace, stream, output, rules)?,
    };
    if let Some(why) = no_room {
        says.push(format!(
            "{0}: {why}: this is the agent's stream, which flashscope reads as well; for trace-cmd and KernelShark type: flashscope \
             export {1} --to trace.dat -o FILE, with FILE on another disk",
            path.display(),
            shell_path(&path)
        ));
    }
    match (there, session.complete) {
        (true, true) => {
            let earlier = if output.is_symlink() { &*earlier } else { output };
            says.push(format!("the earlier {} is kept as {}.old", output.display(), earlier.display()));
        }
        (true, false) => says.push(format!(
            "the recording was interrupted: {} is unchanged, and the recorded data is in {}",
            output.display(),
            path.display()
        )),
        (false, _) => {}
    }
    Ok(Finished { path, says })
}

/// Writes a trace.dat. Where there is no room for it the stream takes the name: why.
fn copy(trace: &Trace, stream: &Path, output: &Path, rules: Rules<'_>) -> Result<(PathBuf, Option<String>), Failure> {
    let through = Output::is_through(output);
    let why = match if through { Ok(()) } else { room_for_a_copy(stream) } {
        Ok(()) => match flashscope_trace::dat::write_as(trace, output, rules) {
            Ok((_, path)) => return Ok((path, None)),
            Err(flashscope_trace::Error::NoSpace { .. }) if !through => {
                "a trace.dat needs more room beside the recording than there is".to_owned()
            }
            Err(error) => return Err(error.into()),
        },
        Err((needed, free)) => format!("a trace.dat needs {needed} KiB beside the recording, and {free} KiB are free"),
    };
    Ok((flashscope_output::adopt(stream, output, rules)?, Some(why)))
}

/// KiB that a trace.dat of a stream needs at most, and those that are free, where these are fewer. Its sub-buffers have their
/// whole size: it is some 7 % larger than the stream.
fn room_for_a_copy(stream: &Path) -> Result<(), (u64, u64)> {
    let Ok(file) = File::open(stream) else { return Ok(()) };
    let bytes = file.metadata().map_or(0, |meta| meta.len());
    let needed = bytes.saturating_add(bytes / 8);
    // A file system that does not say is tried.
    match flashscope_output::free_bytes_of(&file) {
        Ok(free) if free < needed => Err((needed >> 10, free >> 10)),
        _ => Ok(()),
    }
}
