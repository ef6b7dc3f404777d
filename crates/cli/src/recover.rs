//! Cleans up after killed runs: any later command finds their files and completes or removes them.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use flashscope_output::quote::shell_path;
use flashscope_output::{Existing, Output, Rules};
use flashscope_targets::ScratchDir;
use flashscope_trace::dat::Key;
use flashscope_trace::{Session, Trace};

use crate::anonymous;
use crate::convert::{End, Finished, Way, convert, matched_nothing};
use crate::failure::{Failure, with_option};

/// A recorder whose parent was killed still writes the names, which takes 5 seconds at most (`NAMES_MOST_S` in the agent).
const RECORDER_ENDS: Duration = Duration::from_secs(7);

/// The note in a recording's scratch directory: the stream's path, NUL, the output's path. A path may contain any other byte, also line
/// feeds.
const NOTE: &str = "recording";

/// A recording that is not yet a trace.dat: a stream file beside the output, and a note about it.
pub struct Pending {
    note: Option<ScratchDir>,
    stream: PathBuf,
    output: PathBuf,
    way: Way,
}

/// End of a note if the recording may get its name only with pseudonyms.
const ANONYMIZE: &str = "\0anonymize";

/// As much of a file's name as leaves room for an end of 55 bytes (`NAME_MAX`: 255).
fn begin_of(name: &str) -> &str {
    let mut end = name.len().min(200);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

/// `PATH_MAX` (include/uapi/linux/limits.h), with the NUL.
const LONGEST_PATH: usize = 4096;

impl Pending {
    /// `way`: the kind of file that it becomes.
    pub fn begin(output: &Path, way: Way) -> Result<Pending, Failure> {
        let absolute = std::path::absolute(output)
            .map_err(|error| Failure::usage(format!("{}: {error}; name a file with --output", output.display())))?;
        // Check before recording that the output can be written.
        Output::check(&absolute, Rules { existing: Existing::KeepAsOld, ..rules() })
            .map_err(with_option("--output"))?;
        let note = ScratchDir::new(flashscope_targets::RECORDING)?;
        let random = flashscope_output::random().map_err(|error| Failure::new(format!("random numbers: {error}")))?;
        let stream = match Output::is_through(&absolute) {
            // A directory of devices is no place for a recording.
            true => std::env::temp_dir().join(format!("flashscope-{random}.stream")),
            false => {
                let name = absolute.file_name().and_then(|name| name.to_str()).unwrap_or_default();
                absolute.with_file_name(format!("{}.{random}.stream", begin_of(name)))
            }
        };
        if stream.as_os_str().len() >= LONGEST_PATH {
            let bytes = stream.as_os_str().len();
            let most = LONGEST_PATH - 1;
            return Err(Failure::usage(format!(
                "--output: the recording's path would have {bytes} bytes, of at most {most}; name a file with a shorter path"
            )));
        }
        let (Some(stream_text), Some(output_text)) = (stream.to_str(), absolute.to_str()) else {
            return Err(Failure::usage(format!("{}: the path is not UTF-8: name another", output.display())));
        };
        let (mark, key) = match &way {
            Way::Anonymize { file, .. } => (ANONYMIZE, file.as_deref()),
            _ => ("", None),
        };
        let key = key.map(|key| std::path::absolute(key).unwrap_or_else(|_| key.to_owned()));
        // The key file's name, not the key: the note must not reveal pseudonyms.
        let key = key.as_deref().and_then(Path::to_str).unwrap_or_default();
        std::fs::write(note.path().join(NOTE), format!("{stream_text}\0{output_text}{mark}{key}"))
            .map_err(|error| Failure::new(format!("{}: {error}", note.path().display())))?;
        Ok(Pending { note: Some(note), stream, output: absolute, way })
    }

    /// The recorded stream, until it is finished.
    pub fn stream(&self) -> &Path {
        &self.stream
    }

    pub fn writer(&mut self) -> Result<File, Failure> {
        let file = flashscope_output::create_new(&self.stream, flashscope_output::is_root()).map_err(|error| {
            Failure::new(format!("{}: {error}; name another file with --output", self.output.display()))
        })?;
        flashscope_output::hold(&file);
        Ok(file)
    }

    /// Makes the trace.dat and removes the stream. If that fails (for example on a full disk), the stream is kept under its own name, which
    /// the error has.
    pub fn finish(mut self, end: End) -> Result<Finished, Failure> {
        let result = finish(&self.stream, &self.output, &self.way, end);
        drop(self.note.take());
        result
    }

    /// Discards the stream, which has no recording.
    pub fn discard(mut self) -> Option<Session> {
        let session = Session::open(&self.stream).ok();
        std::fs::remove_file(&self.stream).ok();
        drop(self.note.take());
        session
    }

    /// Whether the stream has a recording that a trigger wrote.
    pub fn is_capture(&self) -> bool {
        let trace = Session::open(&self.stream).ok().and_then(|session| session.recording(0).ok());
        trace.is_some_and(|trace| trace.facts().recording.trigger.is_some())
    }
}

/// Only root may read what root records, because it shows the activity of all users.
fn rules() -> Rules<'static> {
    Rules { private: flashscope_output::is_root(), ..Rules::default() }
}

/// Notes that a trace.dat is being written, so that an incomplete one is removed if this process is killed.
pub fn note_partial(output: &Path) -> Result<ScratchDir, Failure> {
    let absolute = std::path::absolute(output)
        .map_err(|error| Failure::usage(format!("{}: {error}; name a file with --output", output.display())))?;
    let note = ScratchDir::new(flashscope_targets::RECORDING)?;
    std::fs::write(note.path().join(NOTE), format!("\0{}", absolute.display()))
        .map_err(|error| Failure::new(format!("{}: {error}", note.path().display())))?;
    Ok(note)
}

fn finish(stream: &Path, output: &Path, way: &Way, end: End) -> Result<Finished, Failure> {
    let empty = std::fs::symlink_metadata(stream).map_or(true, |meta| meta.len() == 0);
    if empty {
        std::fs::remove_file(stream).ok();
        return Err(Failure::new("nothing was recorded"));
    }
    // A recorder that was refused leaves a stream without a recording: there is nothing to keep.
    if Session::open(stream).is_ok_and(|session| session.recordings.is_empty()) {
        std::fs::remove_file(stream).ok();
        return Err(Failure::new("the agent recorded nothing"));
    }
    if let Some(nothing) = matched_nothing(stream) {
        std::fs::remove_file(stream).ok();
        return Err(Failure::new(nothing));
    }
    match convert(stream, output, rules(), way, end) {
        Ok(finished) => {
            std::fs::remove_file(stream).ok();
            Ok(finished)
        }
        Err(error) => {
            // Beside the output, unless that is a device. An earlier kept stream is not replaced.
            let kept = if stream.parent() == output.parent() {
                flashscope_output::set_aside(stream, output, "stream").unwrap_or_else(|_| stream.to_owned())
            } else {
                stream.to_owned()
            };
            // With the file's new name.
            let error = error.to_string().replace(&stream.display().to_string(), &kept.display().to_string());
            Err(Failure::new(format!("{error}; the recording itself is kept: flashscope report {}", shell_path(&kept))))
        }
    }
}

/// A note of versions up to 0.1, with a line feed between the paths. If a path has a line feed too, the note is ignored.
fn earlier_note(note: &str) -> Option<(&str, &str)> {
    note.split_once('\n').filter(|(_, output)| !output.contains('\n'))
}

/// The key of a killed recording, from its file. A key without a file is lost with its process; another key hides the names as well.
fn key_again(file: &str, say: &dyn Fn(&str)) -> Result<Key, Failure> {
    if file.is_empty() {
        return anonymous::random();
    }
    anonymous::of_file(Path::new(file)).or_else(|error| {
        say(&format!("{error}: the pseudonyms of an earlier recording, which was killed, are of another key"));
        anonymous::random()
    })
}

/// The trace that was already made from a stream by a process that was killed before it removed the stream. A second one would replace the
/// first, or duplicate it.
fn made_before(stream: &Path, output: &Path) -> Option<PathBuf> {
    let name = |n: u32| {
        let mut name = output.as_os_str().to_owned();
        match n {
            0 => {}
            1 => name.push(".incomplete"),
            n => name.push(format!(".incomplete.{n}")),
        }
        PathBuf::from(name)
    };
    let written = |path: &Path| std::fs::symlink_metadata(path).ok()?.modified().ok();
    // Start time and process. Boots of a virtual board are equal to the nanosecond, so the trace must not be older either.
    let begun = |path: &Path| {
        let trace = Trace::open(path).ok()?;
        let facts = trace.facts_json();
        Some((facts["clocks"]["monotonic_ns"].as_u64()?, facts["recording"]["own"]["pid"].as_u64()?))
    };
    let last = written(stream)?;
    let later = |path: &PathBuf| path.is_file() && written(path).is_some_and(|written| written >= last);
    let candidates: Vec<_> = (0..).map(name).take_while(|path| path.exists() || path == output).filter(later).collect();
    if candidates.is_empty() {
        return None;
    }
    let begun_stream = begun(stream)?;
    candidates.into_iter().find(|path| begun(path) == Some(begun_stream))
}

fn is_fifo(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    std::fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo())
}

/// Runs before every command. Prints what it cleaned up. A failure must not stop the command.
pub fn recover(quiet: bool) {
    let say = |text: &str| {
        if !quiet {
            flashscope_output::note(text);
        }
    };
    if let Some(named) = flashscope_targets::refused_cache() {
        let used =
            flashscope_targets::cache_dir().map_or_else(|error| error.to_string(), |dir| dir.display().to_string());
        say(&format!(
            "FLASHSCOPE_CACHE, {}: other users can change this directory, so root uses {used} instead; name another",
            named.display()
        ));
    }
    for dir in flashscope_targets::take_abandoned(flashscope_targets::RECORDING) {
        let Ok(note) = flashscope_output::read_own(&dir.path().join(NOTE), 1 << 20) else { continue };
        let Ok(note) = String::from_utf8(note) else { continue };
        let Some((stream, output)) = note.split_once('\0').or_else(|| earlier_note(&note)) else { continue };
        let (output, way) = match output.split_once(ANONYMIZE) {
            None => (output, Way::Convert),
            Some((output, file)) => match key_again(file, &say) {
                Ok(key) => (output, Way::Anonymize { key, file: None }),
                Err(error) => {
                    say(&format!("an earlier recording was killed: {error}"));
                    continue;
                }
            },
        };
        let (stream, output) = (Path::new(stream), Path::new(output));
        flashscope_output::remove_leftovers(output);
        // A user who can write to its directory could have put any file there.
        if !flashscope_output::is_own(stream) {
            continue;
        }
        flashscope_output::wait_until_free(stream, RECORDER_ENDS);
        // The FIFO may never get a reader, and every command would wait for it.
        if is_fifo(output) {
            let (output, stream) = (output.display(), shell_path(stream));
            say(&format!(
                "an earlier recording into the FIFO {output} was killed: it is kept: flashscope report {stream}"
            ));
            continue;
        }
        if let Some(made) = made_before(stream, output) {
            std::fs::remove_file(stream).ok();
            say(&format!("an earlier recording was killed; its data is in {}", made.display()));
            continue;
        }
        match finish(stream, output, &way, End::Killed) {
            Ok(finished) => {
                finished.says.iter().for_each(|line| say(line));
                say(&format!("an earlier recording was killed; its data is in {}", finished.path.display()));
            }
            Err(error) => say(&format!("an earlier recording was killed: {error}")),
        }
    }
    if let Err(error) = flashscope_targets::sweep() {
        say(&format!("cannot clean up after earlier runs: {error}"));
    }
    if let Some(done) = sweep_this_machine() {
        say(&done);
    }
}

/// No command waits longer for a sweep, which then goes on by itself.
const SWEEP_MOST: Duration = Duration::from_secs(10);

/// Probes, instances and knobs of a killed local agent, which the agent itself can undo. Returns a line about what it undid; a running
/// recorder's own are not reported.
fn sweep_this_machine() -> Option<String> {
    let traces = ["/sys/kernel/tracing/instances", "/sys/kernel/debug/tracing/instances", "/run/flashscope"]
        .iter()
        .filter_map(|dir| std::fs::read_dir(dir).ok())
        .flatten()
        .flatten()
        .any(|entry| {
            entry.file_name().to_string_lossy().contains("flashscope_") || entry.path().starts_with("/run/flashscope")
        });
    if !traces {
        return None;
    }
    let agent = flashscope_targets::sweeping_agent().ok()?;
    let mut sweep = std::process::Command::new(agent);
    sweep.arg("sweep").stdin(std::process::Stdio::null()).stderr(std::process::Stdio::inherit());
    let said = match said_within(SWEEP_MOST, sweep) {
        Ok(said) => said?,
        Err(pid) => {
            let most = SWEEP_MOST.as_secs();
            return Some(format!(
                "cannot clean up after earlier runs: flashscope-agent sweep (process {pid}) has not ended in {most} s; if the kernel \
                 does not answer it (ps -o stat,wchan -p {pid} prints D), only a reboot helps"
            ));
        }
    };
    // The first line is about what was undone; leftovers of other PID namespaces are not reported.
    let said = said.lines().next().unwrap_or_default();
    said.contains(|c: char| ('1'..='9').contains(&c)).then(|| format!("left by an earlier run, {said}"))
}

/// What a program prints until it ends. `Err`: its process, which has not ended in this time and is left alone, because one that waits in
/// the kernel cannot be killed either.
fn said_within(most: Duration, mut command: std::process::Command) -> Result<Option<String>, u32> {
    let Ok(child) = command.stdout(std::process::Stdio::piped()).spawn() else { return Ok(None) };
    let pid = child.id();
    let (sender, receiver) = std::sync::mpsc::channel();
    // This thread ends with the child, or with this process.
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    let Ok(output) = receiver.recv_timeout(most) else { return Err(pid) };
    Ok(output.ok().and_then(|output| String::from_utf8(output.stdout).ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_does_not_end_is_not_waited_for() {
        let sh = |script: &str| {
            let mut command = std::process::Command::new("/bin/sh");
            command.args(["-c", script]);
            command
        };
        let long = Duration::from_secs(60);
        assert_eq!(said_within(long, sh("echo done")), Ok(Some("done\n".to_owned())));
        assert_eq!(said_within(long, std::process::Command::new("/no/such/program")), Ok(None));
        let began = std::time::Instant::now();
        let left = said_within(Duration::from_millis(100), sh("exec sleep 30")).unwrap_err();
        assert!(began.elapsed() < Duration::from_secs(20));
        std::process::Command::new("kill").arg(left.to_string()).status().unwrap();
    }
}
