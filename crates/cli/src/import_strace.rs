//! `bench import-strace`: makes a replay script from the output of `strace -f -ttt -T -y`.
//!
//! Input: calls on files below the requested directories. Output: a script of version 2. Limits: a task of the replay has one descriptor
//! per file. strace does not show faults of mapped files and calls by io_uring. `sendfile` and `splice` are left out and counted.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use flashscope_study::replays::{Call, File, Script, Task, Verb};

use crate::args::BenchImportStraceArgs;
use crate::failure::Failure;
use crate::output;

/// Longest text of strace.
const MAX_TEXT: u64 = 1 << 30;
/// Limits of a script: a century, and files of 64 TiB. Sums of such numbers do not overflow.
const MOST_NS: u64 = 3_155_760_000_000_000_000;
const MOST_BYTES: u64 = 1 << 46;
/// Largest read or write in one call of a script.
const MOST_REQUEST: u64 = 256 << 20;
/// Largest transfer in one call of Linux (MAX_RW_COUNT with pages of 4 KiB).
const MOST_MOVED: u64 = 0x7fff_f000;
/// Largest size of joined reads: the default read-ahead of block devices.
const MAX_JOINED: u64 = 128 << 10;

pub fn run(args: &BenchImportStraceArgs) -> Result<(), Failure> {
    let mut whole = Import::new(args);
    let mut inputs = Vec::new();
    for file in &args.files {
        let (name, path) = match file.split_once('=') {
            Some((name, path)) if !name.is_empty() && !name.contains('/') => (Some(name), path),
            _ => (None, file.as_str()),
        };
        let text = flashscope_targets::read_text(Path::new(path), MAX_TEXT)
            .map_err(|error| Failure::new(format!("{path}: {error}")))?;
        whole.recording(path, name, &text)?;
        inputs.push(path.into());
    }
    let (script, left_out) = whole.finish()?;
    let text = script.text();
    Script::parse("the script", &text)?;
    match args.output.as_os_str() == "-" {
        true => out!("{text}"),
        false => output::write(&args.output, text.as_bytes(), &output::inputs(&inputs), "--output")?,
    }
    flashscope_output::note(&format!(
        "{} calls of {} tasks on {} files in {:.1} s; {left_out} calls left out (sendfile, splice, copy_file_range, reads of what these wrote)",
        script.calls.len(),
        script.tasks.len(),
        script.files.len(),
        script.duration_ns() as f64 / 1e9
    ));
    Ok(())
}

/// A line of strace: `[PID[<NAME>]] SECONDS CALL(ARGUMENTS) = RESULT… <SECONDS>`.
#[derive(Debug, PartialEq, Eq)]
struct Line<'a> {
    pid: u32,
    name: Option<&'a str>,
    time_ns: u64,
    call: &'a str,
    arguments: Vec<&'a str>,
    result: i64,
    /// The path that -y prints after a returned descriptor.
    result_path: Option<&'a str>,
    took_ns: u64,
}

/// Decimal seconds as ns, without float rounding.
fn nanoseconds(text: &str) -> Option<u64> {
    let (seconds, fraction) = text.split_once('.')?;
    let fraction = format!("{fraction:0<9}");
    let time =
        seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(fraction.get(..9)?.parse().ok()?)?;
    (time <= MOST_NS).then_some(time)
}

/// Pid and name, time, and the rest of the line.
fn head(line: &str) -> Option<(u32, Option<&str>, u64, &str)> {
    let line = line.trim_start_matches("[pid ").trim_start();
    let mut rest = line;
    let (mut pid, mut name) = (0, None);
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    if line.as_bytes().get(digits) != Some(&b'.') {
        pid = line.get(..digits)?.parse().ok()?;
        rest = &line[digits..];
        if let Some(after) = rest.strip_prefix('<') {
            let end = after.find("> ")?;
            name = Some(&after[..end]);
            rest = &after[end + 1..];
        }
        rest = rest.trim_start_matches(']').trim_start();
    }
    let (time, rest) = rest.split_once(' ')?;
    Some((pid, name, nanoseconds(time)?, rest))
}

/// Splits arguments at commas, but not in strings, brackets and braces.
fn arguments(text: &str) -> Vec<&str> {
    let (mut depth, mut quoted, mut begin, mut escaped) = (0i32, false, 0, false);
    let mut found = Vec::new();
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'[' | b'{' | b'(' => depth += 1,
            b']' | b'}' | b')' => depth -= 1,
            b',' if depth == 0 => {
                found.push(text[begin..at].trim());
                begin = at + 1;
            }
            _ => {}
        }
    }
    found.push(text[begin..].trim());
    found
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Option<Line<'a>> {
        let (pid, name, time_ns, rest) = head(line)?;
        let (call, rest) = rest.split_once('(')?;
        // The last " = " after the call's bracket and before a number: paths, also the result's path, may contain it too.
        let (inside, result) = rest.rmatch_indices(" = ").find_map(|(at, equals)| {
            let (inside, result) = (rest[..at].trim_end(), &rest[at + equals.len()..]);
            let number = result.starts_with(|c: char| c == '-' || c == '?' || c.is_ascii_digit());
            inside.strip_suffix(')').filter(|_| number).map(|inside| (inside, result))
        })?;
        let (result, took) = match result.rsplit_once(" <") {
            Some((result, took)) => (result, took.strip_suffix('>').and_then(nanoseconds)?),
            None => (result, 0),
        };
        let number: String = result.chars().take_while(|c| *c == '-' || c.is_ascii_digit()).collect();
        let result_path = result.split_once('<').and_then(|(_, path)| path.strip_suffix('>'));
        Some(Line {
            pid,
            name,
            time_ns,
            call,
            arguments: arguments(inside),
            result: number.parse().ok()?,
            result_path,
            took_ns: took,
        })
    }

    fn number(&self, at: usize) -> Option<u64> {
        self.arguments.get(at)?.parse().ok()
    }
}

/// `7</a/path>`: the descriptor and its path.
fn descriptor(argument: &str) -> Option<(i32, &str)> {
    let (number, path) = argument.split_once('<')?;
    Some((number.parse().ok()?, path.strip_suffix('>')?.trim_end_matches("(deleted)").trim_end()))
}

/// A path in quotes. It is relative to `directory` (`AT_FDCWD</home>`), if -y prints that.
fn path(argument: &str, directory: Option<&str>) -> Option<String> {
    let path = argument.strip_prefix('"')?.strip_suffix('"')?;
    if path.starts_with('/') {
        return Some(path.to_owned());
    }
    let (_, directory) = directory?.split_once('<')?;
    Some(format!("{}/{}", directory.strip_suffix('>')?, path.trim_start_matches("./")))
}

/// The modes of an open(), in the script's form.
fn modes(flags: &str) -> String {
    let has = |flag: &str| flags.split('|').any(|word| word == flag);
    let mut modes = match () {
        () if has("O_RDWR") => "read,write".to_owned(),
        () if has("O_WRONLY") => "write".to_owned(),
        () => "read".to_owned(),
    };
    for (flag, mode) in [("O_SYNC", ",sync"), ("O_DSYNC", ",dsync"), ("O_DIRECT", ",direct"), ("O_TRUNC", ",truncate")]
    {
        if has(flag) {
            modes += mode;
        }
    }
    modes
}

/// One call, before the recordings are combined.
struct Found {
    call: Call,
    /// Where a joined read must begin; `None` if no read may be joined.
    read_end: Option<u64>,
}

struct Import<'a> {
    args: &'a BenchImportStraceArgs,
    files: Vec<File>,
    /// File numbers by path.
    numbers: BTreeMap<String, usize>,
    tasks: Vec<Task>,
    found: Vec<Found>,
    left_out: u64,
    /// The known end of each file, where O_APPEND writes.
    ends: Vec<u64>,
}

/// Descriptors and tasks of one recording.
struct Recording<'n> {
    name: Option<&'n str>,
    begin_ns: Option<u64>,
    tasks: HashMap<u32, usize>,
    opened: Descriptors,
    /// Descriptors by task and file.
    open: HashMap<(usize, usize), Open>,
    /// Calls that have not returned, by pid.
    unfinished: HashMap<u32, String>,
}

/// A task's descriptors of one file.
#[derive(Default)]
struct Open {
    descriptors: u32,
    /// Modes that change a call's requests (`sync`, `dsync`, `direct`), with which the replay has the file open.
    modes: String,
}

/// An open file description: its position, whether it appends (O_APPEND), and its modes.
struct Description {
    position: u64,
    appends: bool,
    modes: String,
}

const PLAIN: &str = "read,write";

/// Open files by process, descriptor and path. strace does not tell which processes are threads of one process. A descriptor that a process
/// has not opened is the last one opened with that number and path.
#[derive(Default)]
struct Descriptors {
    all: Vec<Description>,
    own: HashMap<(u32, i32, String), usize>,
    last: HashMap<(i32, String), usize>,
}

impl Descriptors {
    fn put(&mut self, pid: u32, fd: i32, path: &str, description: usize) {
        self.own.insert((pid, fd, path.to_owned()), description);
        self.last.insert((fd, path.to_owned()), description);
    }

    fn opened(&mut self, pid: u32, fd: i32, path: &str, modes: &str) {
        let modes = modes.split(',').filter(|mode| *mode != "truncate").collect::<Vec<_>>().join(",");
        self.all.push(Description { position: 0, appends: false, modes });
        self.put(pid, fd, path, self.all.len() - 1);
    }

    /// The index of the descriptor's description; a new one if the descriptor was not opened.
    fn find(&mut self, pid: u32, fd: i32, path: &str) -> usize {
        let known = self.own.get(&(pid, fd, path.to_owned())).or_else(|| self.last.get(&(fd, path.to_owned())));
        if let Some(&at) = known {
            return at;
        }
        self.opened(pid, fd, path, PLAIN);
        self.all.len() - 1
    }

    /// The modes of the descriptor in a call's first argument.
    fn modes_of(&mut self, line: &Line<'_>) -> String {
        let Some((fd, path)) = line.arguments.first().and_then(|argument| descriptor(argument)) else {
            return PLAIN.to_owned();
        };
        let at = self.find(line.pid, fd, path);
        self.all[at].modes.clone()
    }

    fn closed(&mut self, pid: u32, fd: i32, path: &str) {
        let key = (fd, path.to_owned());
        let own = self.own.remove(&(pid, fd, path.to_owned()));
        if own.is_none() || own == self.last.get(&key).copied() {
            self.last.remove(&key);
        }
    }
}

/// The modes of a call that change its requests to the device.
fn lasting(modes: &str) -> String {
    modes.split(',').filter(|mode| ["sync", "dsync", "direct"].contains(mode)).collect::<Vec<_>>().join(",")
}

impl<'a> Import<'a> {
    fn new(args: &'a BenchImportStraceArgs) -> Import<'a> {
        Import {
            args,
            files: Vec::new(),
            numbers: BTreeMap::new(),
            tasks: Vec::new(),
            found: Vec::new(),
            left_out: 0,
            ends: Vec::new(),
        }
    }

    fn recording(&mut self, path: &str, name: Option<&str>, text: &str) -> Result<(), Failure> {
        let mut recording = Recording {
            name,
            begin_ns: None,
            tasks: HashMap::new(),
            opened: Descriptors::default(),
            open: HashMap::new(),
            unfinished: HashMap::new(),
        };
        let mut lines = 0;
        for line in text.lines() {
            let Some((pid, ..)) = head(line) else { continue };
            lines += 1;
            if let Some(begin) = line.strip_suffix(" <unfinished ...>") {
                recording.unfinished.insert(pid, begin.to_owned());
            } else if let Some((_, rest)) = line.split_once(" resumed>")
                && line.contains("<... ")
            {
                if let Some(begin) = recording.unfinished.remove(&pid) {
                    self.line(&mut recording, &format!("{begin}{rest}"));
                }
            } else {
                self.line(&mut recording, line);
            }
        }
        if lines == 0 {
            return Err(Failure::usage(format!(
                "{path}: no line of it is strace's; record with: strace -f -ttt -T -y -Y -o FILE -e trace=desc,file COMMAND"
            )));
        }
        Ok(())
    }

    fn line(&mut self, recording: &mut Recording<'_>, text: &str) {
        let Some(line) = Line::parse(text).filter(|line| line.result >= 0) else { return };
        if self.duplicated(recording, &line).is_some() {
            return;
        }
        let Some((file, verb)) = self.meaning(recording, &line) else { return };
        let begin = *recording.begin_ns.get_or_insert(line.time_ns);
        let time_ns = line.time_ns.saturating_sub(begin);
        if self.args.first.is_some_and(|seconds| time_ns as f64 > seconds * 1e9) {
            return;
        }
        let task = *recording.tasks.entry(line.pid).or_insert_with(|| {
            let name = line.name.or(recording.name).unwrap_or("app").to_owned();
            self.tasks.push(Task { name, ..Task::default() });
            self.tasks.len() - 1
        });
        // A task of the replay has one descriptor per file: only the first open() and the last close() count, and an open() in another mode
        // after them.
        let open = recording.open.entry((task, file)).or_default();
        match &verb {
            Verb::Open(modes) | Verb::Create(modes) => {
                open.descriptors += 1;
                let before = std::mem::replace(&mut open.modes, lasting(modes));
                if open.descriptors > 1 && matches!(verb, Verb::Open(_)) && before == open.modes {
                    return;
                }
            }
            Verb::Close => {
                open.descriptors = open.descriptors.saturating_sub(1);
                if open.descriptors > 0 {
                    return;
                }
                open.modes.clear();
            }
            Verb::Read { .. } | Verb::Write { .. } => {
                // Through a descriptor that another task has opened, or through another descriptor of this task.
                let modes = recording.opened.modes_of(&line);
                if lasting(&modes) != open.modes {
                    open.modes = lasting(&modes);
                    let call = Call { time_ns, took_ns: 0, task, file, verb: Verb::Open(modes) };
                    self.found.push(Found { call, read_end: None });
                }
            }
            _ => {}
        }
        let read_end = match verb {
            Verb::Read { offset, length } => Some(offset + length),
            _ => None,
        };
        self.found.push(Found { call: Call { time_ns, took_ns: line.took_ns, task, file, verb }, read_end });
    }

    /// The file's number, if the file is requested.
    fn file(&mut self, path: &str) -> Option<usize> {
        if !self.args.under.iter().any(|under| Path::new(path).starts_with(under)) {
            return None;
        }
        if let Some(&number) = self.numbers.get(path) {
            return Some(number);
        }
        // Data beyond the bytes that were read matters for read-ahead.
        let there = std::fs::metadata(path).ok();
        if there.as_ref().is_some_and(|meta| !meta.is_file()) {
            return None;
        }
        let size = there.map_or(0, |meta| meta.len());
        let label = Path::new(path).file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        self.files.push(File { size: Some(size), label });
        self.ends.push(size);
        self.numbers.insert(path.to_owned(), self.files.len() - 1);
        Some(self.files.len() - 1)
    }

    /// dup() and similar calls: another descriptor of an open file. `None` for other calls and other files.
    fn duplicated(&mut self, recording: &mut Recording<'_>, line: &Line<'_>) -> Option<()> {
        let is_fcntl = matches!(line.call, "fcntl" | "fcntl64") && line.arguments.get(1)?.starts_with("F_DUPFD");
        if !matches!(line.call, "dup" | "dup2" | "dup3") && !is_fcntl {
            return None;
        }
        let (fd, path) = descriptor(line.arguments.first()?)?;
        let file = self.file(path)?;
        let to = i32::try_from(line.result).ok().filter(|&to| to != fd)?;
        let at = recording.opened.find(line.pid, fd, path);
        recording.opened.put(line.pid, to, path, at);
        let task = *recording.tasks.get(&line.pid)?;
        recording.open.entry((task, file)).or_default().descriptors += 1;
        Some(())
    }

    fn meaning(&mut self, recording: &mut Recording<'_>, line: &Line<'_>) -> Option<(usize, Verb)> {
        match line.call {
            "open" | "openat" | "creat" => self.opened(recording, line),
            "unlink" => Some((self.file(&path(line.arguments.first()?, None)?)?, Verb::Unlink)),
            "unlinkat" if !line.arguments.get(2)?.contains("AT_REMOVEDIR") => {
                let name = path(line.arguments.get(1)?, line.arguments.first().copied())?;
                Some((self.file(&name)?, Verb::Unlink))
            }
            "rename" | "renameat" | "renameat2" => {
                let at = line.call != "rename";
                let of = |n: usize| path(line.arguments.get(n)?, at.then(|| line.arguments[n - 1]));
                let (from, to) = if at { (of(1)?, of(3)?) } else { (of(0)?, of(1)?) };
                let from = self.file(&from)?;
                let existed = self.numbers.contains_key(&to);
                let to = self.file(&to).filter(|&to| to != from)?;
                if !existed {
                    // The path now has the renamed file.
                    self.files[to].size = None;
                }
                self.ends[to] = self.ends[from];
                Some((from, Verb::Rename(to)))
            }
            // Names of 32-bit programs' calls end in 64.
            "truncate" | "truncate64" => {
                let file = self.file(&path(line.arguments.first()?, None)?)?;
                self.ends[file] = line.number(1)?;
                Some((file, Verb::Truncate(self.ends[file])))
            }
            "sendfile" | "sendfile64" | "splice" | "copy_file_range" => {
                let ours = line.arguments.iter().filter_map(|argument| descriptor(argument));
                self.left_out += u64::from(
                    ours.map(|(_, path)| path)
                        .any(|path| self.args.under.iter().any(|dir| Path::new(path).starts_with(dir))),
                );
                None
            }
            _ => self.of_descriptor(recording, line),
        }
    }

    fn opened(&mut self, recording: &mut Recording<'_>, line: &Line<'_>) -> Option<(usize, Verb)> {
        let flags = match line.call {
            "creat" => "O_WRONLY|O_CREAT|O_TRUNC",
            "open" => line.arguments.get(1)?,
            _ => line.arguments.get(2)?,
        };
        let has = |flag: &str| flags.split('|').any(|word| word == flag);
        if has("O_DIRECTORY") || has("O_PATH") || has("O_TMPFILE") {
            return None;
        }
        let path = line.result_path?;
        let known = self.numbers.contains_key(path);
        let file = self.file(path)?;
        let modes = modes(flags);
        recording.opened.opened(line.pid, i32::try_from(line.result).ok()?, path, &modes);
        if let Some(description) = recording.opened.all.last_mut() {
            description.appends = has("O_APPEND");
        }
        if has("O_TRUNC") {
            self.ends[file] = 0;
        }
        let creates = has("O_CREAT");
        if creates && !known && (has("O_EXCL") || has("O_TRUNC")) {
            self.files[file].size = None;
        }
        Some((file, if creates { Verb::Create(modes) } else { Verb::Open(modes) }))
    }

    /// Calls whose first argument is an open file.
    fn of_descriptor(&mut self, recording: &mut Recording<'_>, line: &Line<'_>) -> Option<(usize, Verb)> {
        let (fd, path) = descriptor(line.arguments.first()?)?;
        let file = self.file(path)?;
        let at = recording.opened.find(line.pid, fd, path);
        let description = &mut recording.opened.all[at];
        if description.appends && matches!(line.call, "write" | "writev") {
            description.position = self.ends[file];
        }
        let position = &mut description.position;
        let length = u64::try_from(line.result).ok()?;
        let offset = match line.call {
            "pread64" | "pwrite64" | "pread" | "pwrite" | "preadv" | "pwritev" => line.number(3)?,
            "preadv2" | "pwritev2" => line.number(3)?,
            _ => *position,
        };
        let moves = matches!(line.call, "read" | "readv" | "write" | "writev");
        let verb = match line.call {
            "lseek" => {
                *position = length;
                return None;
            }
            "_llseek" => {
                *position = line.arguments.get(2)?.trim_matches(['[', ']']).parse().ok()?;
                return None;
            }
            "close" => {
                recording.opened.closed(line.pid, fd, path);
                return Some((file, Verb::Close));
            }
            "fsync" => return Some((file, Verb::Fsync)),
            "fdatasync" => return Some((file, Verb::Fdatasync)),
            "ftruncate" | "ftruncate64" => Verb::Truncate(line.number(1)?),
            "read" | "readv" | "pread64" | "pread" | "preadv" | "preadv2" => Verb::Read { offset, length },
            "write" | "writev" | "pwrite64" | "pwrite" | "pwritev" | "pwritev2" => Verb::Write { offset, length },
            _ => return None,
        };
        // No file is that long, and no call moves so much: the line is not from strace.
        let end = offset.checked_add(length).filter(|&end| end <= MOST_BYTES && length <= MOST_MOVED)?;
        if moves {
            *position = position.saturating_add(length);
        }
        match verb {
            // At the end of the file: no data.
            Verb::Read { length: 0, .. } | Verb::Write { length: 0, .. } => return None,
            Verb::Truncate(size) => self.ends[file] = size,
            _ => self.ends[file] = self.ends[file].max(end),
        }
        Some((file, verb))
    }

    /// Combines the recordings in order of time. Returns the number of calls that are left out, too.
    fn finish(mut self) -> Result<(Script, u64), Failure> {
        if self.found.is_empty() {
            return Err(Failure::usage(
                "no call on a file below --under is in it; is it recorded with -y, and is the path as strace prints it?",
            ));
        }
        // strace prints a call when it returns; it is sorted by its beginning.
        self.found.sort_by_key(|found| found.call.time_ns);
        let mut calls: Vec<Found> = Vec::new();
        let mut last: HashMap<usize, usize> = HashMap::new();
        for found in self.found {
            if let Some(&at) = last.get(&found.call.task)
                && join(&mut calls[at], &found, self.args.join)
            {
                continue;
            }
            last.insert(found.call.task, calls.len());
            calls.push(found);
        }
        let mut calls = calls.into_iter().flat_map(|found| pieces(found.call)).collect();
        let left_out = self.left_out + provide(&mut self.files, &mut calls);
        Ok((Script { files: self.files, tasks: self.tasks, cgroups: Vec::new(), calls }, left_out))
    }
}

/// Splits a call into consecutive calls that a script accepts.
fn pieces(call: Call) -> Vec<Call> {
    let (Verb::Read { offset, length } | Verb::Write { offset, length }) = call.verb else { return vec![call] };
    let writes = matches!(call.verb, Verb::Write { .. });
    let begins = (0..length.div_ceil(MOST_REQUEST)).map(|n| n * MOST_REQUEST);
    let piece = |begin: u64| {
        let (offset, left) = (offset + begin, length - begin);
        let length = left.min(MOST_REQUEST);
        let verb = if writes { Verb::Write { offset, length } } else { Verb::Read { offset, length } };
        Call { took_ns: if left == length { call.took_ns } else { 0 }, verb, ..call }
    };
    begins.map(piece).collect()
}

/// Gives each file the length that was read of it, if it existed before the recording under this or an earlier name. Other reads beyond the
/// written data come from calls that a script lacks, or from elsewhere: these reads are left out and counted.
fn provide(files: &mut [File], calls: &mut Vec<Call>) -> u64 {
    let mut ends: Vec<u64> = files.iter().map(|file| file.size.unwrap_or(0)).collect();
    // The file whose contents each file has.
    let mut origins: Vec<usize> = (0..files.len()).collect();
    let all = calls.len();
    calls.retain(|call| {
        let file = call.file;
        match call.verb {
            Verb::Read { offset, length } if offset + length > ends[file] => {
                let Some(size) = &mut files[origins[file]].size else { return false };
                *size = (*size).max(offset + length);
                ends[file] = offset + length;
            }
            Verb::Write { offset, length } => ends[file] = ends[file].max(offset + length),
            Verb::Truncate(size) => ends[file] = ends[file].max(size),
            Verb::Rename(to) => {
                ends[to] = ends[to].max(ends[file]);
                origins[to] = origins[file];
            }
            _ => {}
        }
        true
    });
    (all - calls.len()) as u64
}

/// Adds a read to the previous one, if it continues there.
fn join(before: &mut Found, next: &Found, pause_us: u64) -> bool {
    let end_ns = before.call.time_ns + before.call.took_ns;
    let (Verb::Read { length, .. }, Verb::Read { offset: next_offset, length: next_length }) =
        (&mut before.call.verb, &next.call.verb)
    else {
        return false;
    };
    if pause_us == 0
        || before.call.file != next.call.file
        || before.read_end != Some(*next_offset)
        || *length + *next_length > MAX_JOINED
        || next.call.time_ns > end_ns.saturating_add(pause_us.saturating_mul(1000))
    {
        return false;
    }
    *length += *next_length;
    before.call.took_ns = (next.call.time_ns + next.call.took_ns).saturating_sub(before.call.time_ns);
    before.read_end = next.read_end;
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of strace 6.1 with -f -ttt -T -y -Y, on ext4; the paths are not from this host.
    const STRACE: &str = "\
7<vlc> 100.000000 openat(AT_FDCWD</nowhere>, \"/films/a = (b).mp4\", O_RDONLY|O_CLOEXEC) = 3</films/a = (b).mp4> <0.000010>
7<vlc> 100.000100 read(3</films/a = (b).mp4>, \"\\0\\0\\\", ftyp\"..., 4096) = 4096 <0.000100>
8<a thread> 100.000150 read(3</films/a = (b).mp4>,  <unfinished ...>
7<vlc> 100.000160 openat(AT_FDCWD</nowhere>, \"/etc/passwd\", O_RDONLY) = 4</etc/passwd> <0.000010>
8<a thread> 100.000300 <... read resumed>\"abc\", 1000) = 1000 <0.000140>
7<vlc> 100.000400 lseek(3</films/a = (b).mp4>, 8192, SEEK_SET) = 8192 <0.000001>
7<vlc> 100.000500 read(3</films/a = (b).mp4>, \"x\"..., 100) = 100 <0.000010>
7<vlc> 100.000520 read(3</films/a = (b).mp4>, \"x\"..., 100) = 100 <0.000010>
7<vlc> 100.001000 openat(5</films>, \"conf.tmp\", O_RDWR|O_CREAT|O_EXCL|O_CLOEXEC, 0600) = 6</films/conf.tmp> <0.000010>
7<vlc> 100.002000 pwrite64(6</films/conf.tmp>, \"x\"..., 512, 0) = 512 <0.000010>
7<vlc> 100.003000 fsync(6</films/conf.tmp>) = 0 <0.002000>
7<vlc> 100.006000 close(6</films/conf.tmp>) = 0 <0.000010>
7<vlc> 100.007000 renameat2(AT_FDCWD</films>, \"conf.tmp\", AT_FDCWD</films>, \"conf\", 0) = 0 <0.000010>
7<vlc> 100.008000 read(3</films/a = (b).mp4>, \"\", 100) = 0 <0.000010>
7<vlc> 100.009000 unlink(\"/films/none\") = -1 ENOENT (No such file or directory) <0.000010>
";

    fn args(join: u64) -> BenchImportStraceArgs {
        let under = vec!["/films".to_owned()];
        BenchImportStraceArgs { files: Vec::new(), under, first: None, join, output: "-".into() }
    }

    fn script(join: u64) -> Script {
        let options = args(join);
        let mut import = Import::new(&options);
        import.recording("x", None, STRACE).unwrap();
        import.finish().unwrap().0
    }

    #[test]
    fn calls_become_lines() {
        let text = script(0).text();
        assert_eq!(
            text,
            "flashscope-replay 2\nfile 8392 a = (b).mp4\nfile - conf.tmp\nfile - conf\ntask vlc\ntask a%20thread\n\
             open 0+10000 0 0 read\nread 100000+100000 0 0 0 4096\nread 150000+140000 1 0 4096 1000\n\
             read 500000+10000 0 0 8192 100\nread 520000+10000 0 0 8292 100\ncreate 1000000+10000 0 1 read,write\n\
             write 2000000+10000 0 1 0 512\nfsync 3000000+2000000 0 1\nclose 6000000+10000 0 1\nrename 7000000+10000 0 1 2\n"
        );
        Script::parse("s", &text).unwrap();
    }

    #[test]
    fn a_32_bit_programs_calls_are_the_same() {
        let text = "\
7<dd> 100.000000 openat(AT_FDCWD</x>, \"/films/log\", O_WRONLY|O_CREAT|O_TRUNC, 0600) = 3</films/log> <0.000010>
7<dd> 100.001000 ftruncate64(3</films/log>, 24672) = 0 <0.000020>
7<dd> 100.002000 truncate64(\"/films/log\", 100) = 0 <0.000030>
";
        let script = imported(text);
        assert!(script.ends_with("truncate 1000000+20000 0 0 24672\ntruncate 2000000+30000 0 0 100\n"), "{script}");
    }

    fn imported(text: &str) -> String {
        let options = args(0);
        let mut import = Import::new(&options);
        import.recording("x", None, text).unwrap();
        let text = import.finish().unwrap().0.text();
        Script::parse("s", &text).unwrap();
        text
    }

    /// coreutils' dd: it opens its output, makes it descriptor 1, and closes the first descriptor.
    #[test]
    fn a_descriptor_that_is_duplicated_stays_open_as_it_was() {
        for dup in [
            "dup2(3</films/log>, 1<pipe:[7]>) = 1</films/log> <0.000010>",
            "dup3(3</films/log>, 1</dev/null>, O_CLOEXEC) = 1</films/log> <0.000010>",
            "fcntl64(3</films/log>, F_DUPFD_CLOEXEC, 1) = 1</films/log> <0.000010>",
        ] {
            let text = imported(&format!(
                "\
7<dd> 100.000000 openat(AT_FDCWD</x>, \"/films/log\", O_WRONLY|O_CREAT|O_TRUNC|O_DSYNC, 0600) = 3</films/log> <0.000010>
7<dd> 100.001000 {dup}
7<dd> 100.002000 close(3</films/log>) = 0 <0.000010>
7<dd> 100.003000 write(1</films/log>, \"\"..., 4096) = 4096 <0.001000>
7<dd> 100.005000 write(1</films/log>, \"\"..., 4096) = 4096 <0.001000>
7<dd> 100.007000 close(1</films/log>) = 0 <0.000010>
"
            ));
            let calls = "create 0+10000 0 0 write,dsync,truncate\nwrite 3000000+1000000 0 0 0 4096\n\
                         write 5000000+1000000 0 0 4096 4096\nclose 7000000+10000 0 0\n";
            assert!(text.ends_with(calls), "{dup}: {text}");
        }
    }

    #[test]
    fn what_is_appended_is_written_at_the_end() {
        let text = imported(
            "\
7<a> 100.000000 openat(AT_FDCWD</x>, \"/films/log\", O_WRONLY|O_CREAT|O_TRUNC|O_APPEND, 0600) = 3</films/log> <0.000010>
7<a> 100.001000 write(3</films/log>, \"\"..., 100) = 100 <0.000010>
7<a> 100.002000 close(3</films/log>) = 0 <0.000010>
8<b> 100.003000 openat(AT_FDCWD</x>, \"/films/log\", O_WRONLY|O_APPEND) = 3</films/log> <0.000010>
8<b> 100.004000 write(3</films/log>, \"\"..., 50) = 50 <0.000010>
8<b> 100.005000 ftruncate(3</films/log>, 10) = 0 <0.000010>
8<b> 100.006000 write(3</films/log>, \"\"..., 7) = 7 <0.000010>
",
        );
        let writes: Vec<&str> = text.lines().filter(|line| line.starts_with("write")).collect();
        let expected =
            ["write 1000000+10000 0 0 0 100", "write 4000000+10000 1 0 100 50", "write 6000000+10000 1 0 10 7"];
        assert_eq!(writes, expected);
    }

    #[test]
    fn processes_with_the_same_descriptor_have_positions_of_their_own() {
        let text = imported(
            "\
7<a> 100.000000 openat(AT_FDCWD</x>, \"/films/film\", O_RDONLY) = 3</films/film> <0.000010>
8<b> 100.001000 openat(AT_FDCWD</x>, \"/films/film\", O_RDONLY|O_DIRECT) = 3</films/film> <0.000010>
8<b> 100.002000 lseek(3</films/film>, 1048576, SEEK_SET) = 1048576 <0.000010>
7<a> 100.003000 read(3</films/film>, \"\"..., 4096) = 4096 <0.000010>
8<b> 100.004000 read(3</films/film>, \"\"..., 4096) = 4096 <0.000010>
7<a> 100.005000 read(3</films/film>, \"\"..., 4096) = 4096 <0.000010>
9<thread> 100.006000 read(3</films/film>, \"\"..., 4096) = 4096 <0.000010>
",
        );
        for line in
            ["read 3000000+10000 0 0 0 4096", "read 4000000+10000 1 0 1048576 4096", "read 5000000+10000 0 0 4096 4096"]
        {
            assert!(text.contains(line), "{line}: {text}");
        }
        let thread = "open 6000000 2 0 read,direct\nread 6000000+10000 2 0 1052672 4096\n";
        assert!(text.ends_with(thread), "a thread reads through the descriptor that was opened last: {text}");
    }

    #[test]
    fn reads_that_follow_each_other_are_joined() {
        let text = script(15).text();
        assert!(text.contains("\nread 500000+30000 0 0 8192 200\n") && !text.contains(" 8292 "), "{text}");
        assert!(script(5).text().contains(" 8292 "), "5 µs are less than the pause");
    }

    #[test]
    fn what_is_none_of_straces_is_refused() {
        let options = args(0);
        let mut import = Import::new(&options);
        assert!(import.recording("x", None, "hello\n").unwrap_err().to_string().contains("no line of it is strace's"));
        import.recording("x", None, "1 100.5 close(3</etc/a>) = 0 <0.1>\n").unwrap();
        assert!(import.finish().unwrap_err().to_string().contains("no call on a file below --under"));
    }

    /// `cat a > b; cat b` of coreutils 9, a file that is read under another name, a file renamed to itself, and a read of 600 MiB.
    #[test]
    fn what_is_read_is_there() {
        let text = "\
7<cat> 100.000000 openat(AT_FDCWD</x>, \"/films/b\", O_WRONLY|O_CREAT|O_TRUNC, 0600) = 1</films/b> <0.000010>
7<cat> 100.001000 copy_file_range(3</films/a>, NULL, 1</films/b>, NULL, 9223372035781033984, 0) = 12813 <0.000887>
8<cat> 100.002000 openat(AT_FDCWD</x>, \"/films/b\", O_RDONLY) = 3</films/b> <0.000010>
8<cat> 100.003000 read(3</films/b>, \"x\"..., 131072) = 12813 <0.000010>
8<cat> 100.004000 rename(\"/films/b\", \"/films/b\") = 0 <0.000010>
8<cat> 100.005000 rename(\"/films/old\", \"/films/new\") = 0 <0.000010>
8<cat> 100.006000 pread64(4</films/new>, \"x\"..., 629145600, 4096) = 629145600 <0.500000>
8<cat> 100.007000 pread64(4</films/new>, \"x\"..., 35184372088832, 4096) = 35184372088832 <0.500000>
";
        let options = args(0);
        let mut import = Import::new(&options);
        import.recording("x", None, text).unwrap();
        let (script, left_out) = import.finish().unwrap();
        let text = script.text();
        assert_eq!(left_out, 2, "the copy, and the read of what it wrote");
        assert!(text.contains("file - b\nfile 629149696 old\nfile - new\n"), "{text}");
        let whole = "read 6000000 1 2 4096 268435456\nread 6000000 1 2 268439552 268435456\n\
                     read 6000000+500000000 1 2 536875008 92274688\n";
        assert!(text.ends_with(whole), "{text}");
        assert_eq!(Script::parse("s", &text).unwrap().calls, script.calls);
    }

    /// Lines that resemble strace's: no panic and no overflow; the result is a readable script or one line of error.
    /// `FLASHSCOPE_MUTATIONS=N` asks for more.
    #[test]
    #[expect(clippy::print_stdout, reason = "a test says how many inputs it tried")]
    fn any_text_is_a_script_or_an_error() {
        const WORDS: [&str; 20] = [
            "18446744073709551615", "9223372036854775807", "-1", "0", "<", ">", "(", ")", "\"", ",", " = ", "\\",
            "\u{202e}", " <unfinished ...>", "<... read resumed>", "pread64", "_llseek", "[", "]", "\n",
        ];
        let wanted = std::env::var("FLASHSCOPE_MUTATIONS").ok().and_then(|n| n.parse::<u64>().ok()).unwrap_or(3000);
        let (mut scripts, mut errors) = (0, 0);
        for seed in 1..=wanted {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let mut next = |most: usize| {
                state ^= state >> 12;
                state ^= state << 25;
                state ^= state >> 27;
                (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % most
            };
            let mut text = STRACE.to_owned();
            for _ in 0..=next(8) {
                let mut at = next(text.len());
                while !text.is_char_boundary(at) {
                    at -= 1;
                }
                let mut end = (at + next(24)).min(text.len());
                while !text.is_char_boundary(end) {
                    end += 1;
                }
                text.replace_range(at..end, WORDS[next(WORDS.len())]);
            }
            let options = args([0, 1000, u64::MAX][next(3)]);
            let mut import = Import::new(&options);
            match import.recording("x", None, &text).and_then(|()| import.finish()) {
                Ok((script, _)) => {
                    Script::parse("x", &script.text()).expect("what is made can be read");
                    scripts += 1;
                }
                Err(_) => errors += 1,
            }
        }
        println!("import_strace: {wanted} executions, {scripts} scripts, {errors} errors, 0 findings");
        assert!(scripts > wanted / 2, "{scripts} of {wanted} are scripts");
    }
}
