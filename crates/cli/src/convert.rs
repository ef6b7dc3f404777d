//! Converts a recorded stream to the requested file.

use std::fs::File;
use std::path::{Path, PathBuf};

use flashscope_output::quote::shell_path;
use flashscope_output::{Existing, Output, Rules};
use flashscope_trace::dat::Key;
use flashscope_trace::{Session, Trace};

use crate::anonymous;
use crate::failure::Failure;

/// The kind of file that a stream becomes.
#[derive(Clone)]
pub enum Way {
    /// A trace.dat.
    Convert,
    /// The stream itself, renamed.
    Stream,
    /// A trace.dat with pseudonyms; the name is used for nothing else. `file`: the source of the key.
    Anonymize { key: Key, file: Option<PathBuf> },
}

/// A finished recording.
pub struct Finished {
    pub path: PathBuf,
    /// The recorder ended well, and all of its data is here.
    pub complete: bool,
    /// Messages of the agent, and the fate of an earlier file with this name, one line each.
    pub says: Vec<String>,
}

/// The agent's message if the filters matched nothing, so that there is no trace to write.
pub fn matched_nothing(stream: &Path) -> Option<String> {
    let session = Session::open(stream).ok()?;
    let trace = session.recording(0).ok()?;
    if !session.complete || trace.stats()["matched"] != 0 {
        return None;
    }
    let said = session.logs.iter().find(|line| line.text.starts_with("no event matched "));
    Some(format!("{}; no file was written", said.map_or("no event matched the filters", |line| line.text.as_str())))
}

/// How the process that made a recording ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum End {
    Asked,
    /// Its disk had no more space: the data is complete, and shorter than what was asked for.
    DiskFull,
    Killed,
}

/// Converts a stream. If that fails, the stream is kept. An existing file with the name is kept as `NAME.old`, as in perf; an incomplete
/// file, and one whose process was killed or whose disk was full, never replaces one: the second such would remove the one before.
///
/// With [`Way::Stream`] the stream is renamed, so there is no second copy.
pub fn convert(stream: &Path, output: &Path, rules: Rules<'_>, way: &Way, end: End) -> Result<Finished, Failure> {
    let session = Session::open(stream)?;
    let complete = session.complete && end != End::Killed;
    let as_asked = complete && end == End::Asked;
    let says = session.logs.iter().filter(|line| line.level <= 1);
    let mut says: Vec<String> = says.map(|line| format!("the agent says: {}", line.text)).collect();
    let trace = match session.recordings.len() {
        1 => session.recording(0)?,
        0 => return Err(Failure::new("the agent recorded nothing")),
        count => return Err(Failure::new(format!("{} holds {count} recordings, not one", stream.display()))),
    };
    let existing = if as_asked { Existing::KeepAsOld } else { Existing::Stays("incomplete") };
    let rules = Rules { existing, ..rules };
    let through = Output::is_through(output);
    let there = !through && std::fs::metadata(output).is_ok_and(|meta| meta.is_file());
    // A link stays: the file behind it is kept under another name.
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
    match (there, as_asked) {
        (true, true) => {
            let earlier = if output.is_symlink() { &*earlier } else { output };
            says.push(format!("the earlier {} is kept as {}.old", output.display(), earlier.display()));
        }
        (true, false) => says.push(format!(
            "the recording {}: {} is unchanged, and the recorded data is in {}",
            if complete { "is shorter than was asked for" } else { "was interrupted" },
            output.display(),
            path.display()
        )),
        (false, _) => {}
    }
    Ok(Finished { path, complete, says })
}

/// Writes a trace.dat. Without enough space, the stream gets the name instead, and the reason is returned.
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

/// Checks the space for a trace.dat. The error has the KiB that it needs at most, and the free KiB. Its sub-buffers have their full size,
/// so it is about 7 % larger than the stream.
fn room_for_a_copy(stream: &Path) -> Result<(), (u64, u64)> {
    let Ok(file) = File::open(stream) else { return Ok(()) };
    let bytes = file.metadata().map_or(0, |meta| meta.len());
    let needed = bytes.saturating_add(bytes / 8);
    // If the file system does not tell its free space, try.
    match flashscope_output::free_bytes_of(&file) {
        Ok(free) if free < needed => Err((needed >> 10, free >> 10)),
        _ => Ok(()),
    }
}
