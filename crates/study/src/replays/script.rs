//! The script of `bench replay` (docs/reference/replay-script.md, "The replay script"): read, checked, combined, written.
//!
//! The agent parses the same grammar (agent/replay_script.c). The check here comes before a board is booted.

use std::fmt::Write as _;

/// The beginning of a script's first line; a version follows.
pub const MAGIC: &str = "flashscope-replay ";
/// The version that is written.
pub const VERSION: u32 = 2;

const MAX_FILES: usize = 65_536;
const MAX_TASKS: usize = 256;
const MAX_CGROUPS: usize = 32;
const MAX_SIZE: u64 = 1 << 46;
const MAX_REQUEST: u64 = 256 << 20;
/// A century in ns.
const MAX_TIME: u64 = 3_155_760_000_000_000_000;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    pub files: Vec<File>,
    pub tasks: Vec<Task>,
    pub cgroups: Vec<Cgroup>,
    /// In order of time.
    pub calls: Vec<Call>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// `None`: the file does not exist before a call creates it.
    pub size: Option<u64>,
    pub label: String,
}

/// A process of the replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Task {
    /// The kernel's name: at most 15 bytes are kept.
    pub name: String,
    /// Added to the times of its calls.
    pub start_ns: u64,
    pub nice: Option<i32>,
    /// `rt:N`, `be:N`, `idle`.
    pub ionice: Option<String>,
    pub cgroup: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroup {
    pub name: String,
    /// Files such as `io.max`, with their values; `{device}` is the disk of the directory.
    pub settings: Vec<(String, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub time_ns: u64,
    /// Recorded duration; 0: unknown.
    pub took_ns: u64,
    pub task: usize,
    pub file: usize,
    pub verb: Verb,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    Read {
        offset: u64,
        length: u64,
    },
    Write {
        offset: u64,
        length: u64,
    },
    Fsync,
    Fdatasync,
    /// Its modes: `read,write,sync,dsync,direct,truncate`.
    Open(String),
    Create(String),
    Close,
    Unlink,
    Rename(usize),
    Truncate(u64),
    Fault(u64),
    FaultWrite(u64),
}

/// An invalid line.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}:{line}: {why}")]
pub struct ScriptError {
    pub name: String,
    pub line: usize,
    pub why: String,
}

impl Script {
    /// `name`: the text's name in errors.
    pub fn parse(name: &str, text: &str) -> Result<Script, ScriptError> {
        let at = |line: usize, why: String| ScriptError { name: name.to_owned(), line: line + 1, why };
        let mut lines = text.split('\n').enumerate();
        let first = lines.next().map_or("", |(_, line)| line);
        let version = match first.strip_prefix(MAGIC).map(str::parse::<u32>) {
            Some(Ok(version @ 1..=VERSION)) => version,
            Some(Ok(version)) => {
                let why = format!(
                    "a replay script of version {version}; versions 1 and {VERSION} are known: take a newer flashscope"
                );
                return Err(at(0, why));
            }
            _ => return Err(at(0, format!("its first line is not `{MAGIC}{VERSION}`; is it a replay script?"))),
        };
        let mut reader = Reader { version, script: Script::default(), most: Vec::new() };
        for (number, line) in lines {
            if !line.is_empty() && !line.starts_with('#') {
                reader.line(line).map_err(|why| at(number, why))?;
            }
        }
        if reader.script.calls.is_empty() {
            return Err(at(0, "no calls are in it; record some with --events cache,syscall".to_owned()));
        }
        Ok(reader.script)
    }

    /// Adds another script's tasks and files, started `start_ns` later.
    pub fn beside(&mut self, other: Script, start_ns: u64) {
        let (files, tasks) = (self.files.len(), self.tasks.len());
        self.files.extend(other.files);
        let later = |task: Task| Task { start_ns: task.start_ns.saturating_add(start_ns), ..task };
        self.tasks.extend(other.tasks.into_iter().map(later));
        for cgroup in other.cgroups {
            if self.cgroups.iter().all(|known| known.name != cgroup.name) {
                self.cgroups.push(cgroup);
            }
        }
        self.calls.extend(other.calls.into_iter().map(|call| {
            let verb = match call.verb {
                Verb::Rename(to) => Verb::Rename(to + files),
                verb => verb,
            };
            Call { task: call.task + tasks, file: call.file + files, verb, ..call }
        }));
        // The sort is stable: calls of a task with one time keep their order.
        self.calls.sort_by_key(|call| call.time_ns);
    }

    /// End of the last call, with the tasks' starts.
    pub fn duration_ns(&self) -> u64 {
        let end = |call: &Call| self.tasks[call.task].start_ns.saturating_add(call.time_ns + call.took_ns);
        self.calls.iter().map(end).max().unwrap_or(0)
    }

    /// Total size of the files that are made before the first call, bytes.
    pub fn file_bytes(&self) -> u64 {
        self.files.iter().filter_map(|file| file.size).sum()
    }

    pub fn text(&self) -> String {
        let mut out = format!("{MAGIC}{VERSION}\n");
        for file in &self.files {
            let size = file.size.map_or_else(|| "-".to_owned(), |size| size.to_string());
            let _ =
                writeln!(out, "{}", format!("file {size} {}", file.label.replace(char::is_control, "?")).trim_end());
        }
        for cgroup in &self.cgroups {
            let settings = cgroup.settings.iter().map(|(file, value)| format!(" {file}={}", escape(value)));
            let _ = writeln!(out, "cgroup {}{}", cgroup.name, settings.collect::<String>());
        }
        for task in &self.tasks {
            let _ = write!(out, "task {}", escape(&task.name));
            if task.start_ns > 0 {
                let _ = write!(out, " start={}", task.start_ns);
            }
            let nice = task.nice.map(|nice| nice.to_string());
            for (key, value) in [("nice", &nice), ("ionice", &task.ionice), ("cgroup", &task.cgroup)] {
                if let Some(value) = value {
                    let _ = write!(out, " {key}={value}");
                }
            }
            out.push('\n');
        }
        for call in &self.calls {
            let _ = writeln!(out, "{}", call_line(call));
        }
        out
    }
}

fn call_line(call: &Call) -> String {
    let (verb, rest) = match &call.verb {
        Verb::Read { offset, length } => ("read", format!(" {offset} {length}")),
        Verb::Write { offset, length } => ("write", format!(" {offset} {length}")),
        Verb::Fsync => ("fsync", String::new()),
        Verb::Fdatasync => ("fdatasync", String::new()),
        Verb::Open(modes) => ("open", format!(" {modes}")),
        Verb::Create(modes) => ("create", format!(" {modes}")),
        Verb::Close => ("close", String::new()),
        Verb::Unlink => ("unlink", String::new()),
        Verb::Rename(to) => ("rename", format!(" {to}")),
        Verb::Truncate(size) => ("truncate", format!(" {size}")),
        Verb::Fault(offset) => ("fault", format!(" {offset}")),
        Verb::FaultWrite(offset) => ("fault-write", format!(" {offset}")),
    };
    let took = if call.took_ns > 0 { format!("+{}", call.took_ns) } else { String::new() };
    format!("{verb} {}{took} {} {}{rest}", call.time_ns, call.task, call.file)
}

/// Escapes spaces, and characters that a line cannot contain, as `%20`.
fn escape(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'!'..=b'~' if byte != b'%' => out.push(byte as char),
            _ => {
                let _ = write!(out, "%{byte:02x}");
            }
        }
    }
    if out.is_empty() { "?".to_owned() } else { out }
}

fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok().filter(|&byte| byte != 0)?);
        rest = &rest[2..];
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// A script that is being read.
struct Reader {
    version: u32,
    script: Script,
    /// The size that each file has after the calls so far.
    most: Vec<u64>,
}

/// The forms of calls, for error messages.
const FORMS: [(&str, &str); 12] = [
    ("read", " OFFSET LENGTH"),
    ("write", " OFFSET LENGTH"),
    ("fsync", ""),
    ("fdatasync", ""),
    ("open", " MODES"),
    ("create", " MODES"),
    ("close", ""),
    ("unlink", ""),
    ("rename", " FILE"),
    ("truncate", " SIZE"),
    ("fault", " OFFSET"),
    ("fault-write", " OFFSET"),
];

/// A number of decimal digits only: `+5` is invalid.
fn number(word: &str, most: u64) -> Option<u64> {
    let digits = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    word.parse().ok().filter(|&number| digits && number <= most)
}

impl Reader {
    fn line(&mut self, line: &str) -> Result<(), String> {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        match verb {
            "file" => self.file(rest),
            "task" => self.task(rest),
            "cgroup" if self.version > 1 => self.cgroup(rest),
            verb => {
                let known = if self.version > 1 { &FORMS[..] } else { &FORMS[..1] };
                match known.iter().find(|(name, _)| *name == verb) {
                    Some((name, form)) => self.call(name, form, rest),
                    None if self.version > 1 => {
                        Err("not a line of a replay script (file, task, cgroup, or a call)".to_owned())
                    }
                    None => Err("not a line of a replay script of version 1 (file, task, read)".to_owned()),
                }
            }
        }
    }

    fn file(&mut self, rest: &str) -> Result<(), String> {
        let (word, label) = rest.split_once(' ').unwrap_or((rest, ""));
        let size = match (word, number(word, MAX_SIZE)) {
            ("-", _) if self.version > 1 => None,
            (_, Some(size)) if size > 0 || self.version > 1 => Some(size),
            _ => {
                return Err(
                    "not `file SIZE [LABEL]` with SIZE at most 64 TiB, or, from version 2 on, `file - [LABEL]`"
                        .to_owned(),
                );
            }
        };
        if self.script.files.len() == MAX_FILES {
            return Err(format!("more than {MAX_FILES} files"));
        }
        self.script.files.push(File { size, label: label.to_owned() });
        self.most.push(size.unwrap_or(0));
        Ok(())
    }

    fn task(&mut self, rest: &str) -> Result<(), String> {
        if self.script.tasks.len() == MAX_TASKS {
            return Err(format!("more than {MAX_TASKS} tasks"));
        }
        let mut words = rest.split(' ');
        let first = words.next().unwrap_or("");
        if self.version == 1 {
            self.script.tasks.push(Task { name: first.to_owned(), ..Task::default() });
            return Ok(());
        }
        let name = unescape(first).filter(|name| !name.is_empty());
        let mut task = Task {
            name: name.ok_or("not `task NAME [start=NS] [nice=N] [ionice=CLASS:N] [cgroup=NAME]`")?,
            ..Task::default()
        };
        let mut keys = Vec::new();
        for word in words {
            let (key, value) =
                word.split_once('=').ok_or("a word of a task that is not KEY=VALUE (start, nice, ionice, cgroup)")?;
            if keys.contains(&key) {
                return Err(format!("a task with {key}= twice"));
            }
            keys.push(key);
            match key {
                "start" => task.start_ns = number(value, MAX_TIME).ok_or("start= needs nanoseconds, 0 or more")?,
                "nice" => {
                    let nice = value.parse().ok().filter(|nice| (-20..20).contains(nice) && !value.starts_with('+'));
                    task.nice = Some(nice.ok_or("nice= needs -20 to 19")?);
                }
                "ionice" => {
                    let (class, level) = value.split_once(':').unwrap_or((value, "4"));
                    if value != "idle" && (!["rt", "be"].contains(&class) || number(level, 7).is_none()) {
                        return Err("ionice= needs rt:N, be:N (N 0 to 7) or idle".to_owned());
                    }
                    task.ionice = Some(value.to_owned());
                }
                "cgroup" if self.script.cgroups.iter().any(|cgroup| cgroup.name == value) => {
                    task.cgroup = Some(value.to_owned());
                }
                "cgroup" => return Err("a cgroup that no line above declares".to_owned()),
                _ => return Err("a word of a task that is none of start=, nice=, ionice=, cgroup=".to_owned()),
            }
        }
        self.script.tasks.push(task);
        Ok(())
    }

    fn cgroup(&mut self, rest: &str) -> Result<(), String> {
        let plain = |word: &str| !word.is_empty() && !word.starts_with('.') && !word.contains('/');
        let mut words = rest.split(' ');
        let name = words.next().unwrap_or("");
        if !plain(name) || self.script.cgroups.len() == MAX_CGROUPS {
            return Err(format!("not `cgroup NAME [FILE=VALUE]…`, or more than {MAX_CGROUPS} of them"));
        }
        if self.script.cgroups.iter().any(|cgroup| cgroup.name == name) {
            return Err("a cgroup that a line above declares".to_owned());
        }
        let mut settings = Vec::new();
        for word in words {
            let value = word.split_once('=').and_then(|(file, value)| Some((file, unescape(value)?)));
            let (file, value) = value.ok_or("a cgroup's setting that is not FILE=VALUE")?;
            // cgroup.procs, cgroup.kill and so on are refused: a script must not affect other processes.
            if !plain(file) || !["io.", "memory.", "cpu.", "pids."].iter().any(|of| file.starts_with(of)) {
                return Err("a cgroup's setting of a file that is none of io.*, memory.*, cpu.* and pids.*".to_owned());
            }
            settings.push((file.to_owned(), value));
        }
        self.script.cgroups.push(Cgroup { name: name.to_owned(), settings });
        Ok(())
    }

    fn call(&mut self, verb: &str, form: &str, rest: &str) -> Result<(), String> {
        let wrong = || {
            format!(
                "not `{verb} TIME_NS TASK FILE{form}`, with whole numbers of 0 or more; LENGTH is at most 256 MiB, OFFSET and SIZE at most 64 TiB"
            )
        };
        let words: Vec<&str> = rest.split(' ').collect();
        let [time, task, file, rest @ ..] = &words[..] else { return Err(wrong()) };
        let (time, took) = match time.split_once('+') {
            Some((time, took)) if self.version > 1 => (time, took),
            _ => (*time, "0"),
        };
        let of = |word: &str, most: u64| number(word, most).ok_or_else(wrong);
        let (time_ns, took_ns) = (of(time, MAX_TIME)?, of(took, MAX_TIME)?);
        let (task, file) = (of(task, MAX_TASKS as u64)? as usize, of(file, MAX_FILES as u64)? as usize);
        if task >= self.script.tasks.len() || file >= self.script.files.len() {
            return Err("the number of a task or file that no line above declares".to_owned());
        }
        if self.script.calls.last().is_some_and(|last| time_ns < last.time_ns) {
            return Err("a time before that of the call above".to_owned());
        }
        let verb = match (verb, rest) {
            ("read" | "write", [offset, length]) => {
                let (offset, length) = (of(offset, MAX_SIZE)?, of(length, MAX_REQUEST)?);
                let write = verb == "write";
                if length == 0 || (!write && offset + length > self.most[file]) {
                    return Err("a read or write of 0 bytes, or a read past the end of its file".to_owned());
                }
                self.most[file] = self.most[file].max(offset + length);
                if write { Verb::Write { offset, length } } else { Verb::Read { offset, length } }
            }
            ("open" | "create", [modes]) => {
                let known = ["read", "write", "sync", "dsync", "direct", "truncate"];
                let all = modes.split(',').all(|mode| known.contains(&mode));
                if !all || !modes.split(',').any(|mode| mode == "read" || mode == "write") {
                    return Err("MODES are read, write, sync, dsync, direct, truncate, with commas between them, and one of the first two".to_owned());
                }
                if verb == "open" { Verb::Open((*modes).to_owned()) } else { Verb::Create((*modes).to_owned()) }
            }
            ("rename", [to]) => {
                let to = of(to, MAX_FILES as u64)? as usize;
                if to >= self.script.files.len() || to == file {
                    return Err("a rename to the file itself, or to one that no line above declares".to_owned());
                }
                self.most[to] = self.most[to].max(self.most[file]);
                Verb::Rename(to)
            }
            ("truncate", [size]) => {
                let size = of(size, MAX_SIZE)?;
                self.most[file] = self.most[file].max(size);
                Verb::Truncate(size)
            }
            ("fault" | "fault-write", [offset]) => {
                let offset = of(offset, MAX_SIZE)?;
                if offset >= self.most[file] {
                    return Err("a fault past the end of its file".to_owned());
                }
                if verb == "fault" { Verb::Fault(offset) } else { Verb::FaultWrite(offset) }
            }
            ("fsync", []) => Verb::Fsync,
            ("fdatasync", []) => Verb::Fdatasync,
            ("close", []) => Verb::Close,
            ("unlink", []) => Verb::Unlink,
            _ => return Err(wrong()),
        };
        self.script.calls.push(Call { time_ns, took_ns, task, file, verb });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY_VERB: &str = "flashscope-replay 2\nfile 8192 a film\nfile -\nfile -\n\
        cgroup log io.max={device}%20wbps=1\ntask vlc%20demux start=5 nice=-3 ionice=be:2 cgroup=log\ntask b\n\
        open 0+10 0 0 read\nread 10+5 0 0 0 4096\nfault 20 0 0 5000\ncreate 20 1 1 read,write,truncate\nwrite 30 1 1 0 10000\n\
        fsync 40 1 1\nfdatasync 45 1 1\nfault-write 46 1 1 3\nread 50 1 1 9900 100\nrename 60 1 1 2\n\
        truncate 70 1 2 100\nclose 80 1 2\nunlink 90 1 2\n";

    #[test]
    fn what_is_written_is_what_was_read() {
        let script = Script::parse("s", EVERY_VERB).unwrap();
        assert_eq!(script.text(), EVERY_VERB);
        assert_eq!((script.tasks[0].name.as_str(), script.duration_ns(), script.file_bytes()), ("vlc demux", 90, 8192));
        let old = Script::parse("s", "flashscope-replay 1\nfile 5 x\n# c\ntask cat 7\nread 0 0 0 1 4\n").unwrap();
        assert_eq!((old.tasks[0].name.as_str(), old.text().lines().nth(2)), ("cat", Some("task cat")));
    }

    #[test]
    fn two_scripts_are_one() {
        let mut script = Script::parse("s", EVERY_VERB).unwrap();
        script.beside(Script::parse("s", EVERY_VERB).unwrap(), 1000);
        let again = Script::parse("s", &script.text()).unwrap();
        assert_eq!(again, script);
        assert_eq!((script.files.len(), script.tasks.len(), script.cgroups.len()), (6, 4, 1));
        assert_eq!((script.tasks[2].start_ns, script.tasks[3].start_ns), (1005, 1000));
        assert!(script.calls.iter().any(|call| call.file == 4 && call.verb == Verb::Rename(5)));
    }

    #[test]
    fn lines_that_cannot_be_are_named() {
        for (lines, said) in [
            ("file -1", "2: not `file SIZE"),
            ("file 5\ntask a\nread 0 0 0 1 5", "4: a read or write of 0 bytes, or a read past"),
            ("file 5\ntask a\nread -1 0 0 1 1", "4: not `read TIME_NS TASK FILE OFFSET LENGTH`"),
            ("file 5\ntask a\nread 0 0 1 1 1", "4: the number of a task or file that"),
            ("file 5\ntask a\nread 9 0 0 1 1\nread 8 0 0 1 1", "5: a time before that of the call above"),
            ("file 5\ntask a\nerase 0 0 0", "4: not a line of a replay script"),
            ("file 5\ntask a\nopen 0 0 0 sync", "4: MODES are"),
            ("file 5\ntask a\nfsync 0 0 0 0", "4: not `fsync"),
            ("file 5\ntask a\nrename 0 0 0 0", "4: a rename to the file itself"),
            ("file 5\ntask a\nwrite 0+ 0 0 0 4", "4: not `write"),
            ("file 5\ntask a\nfault 0 0 0 5", "4: a fault past"),
            ("task a nice=20", "2: nice= needs"),
            ("task a ionice=be:8", "2: ionice= needs"),
            ("task a cgroup=b", "2: a cgroup that no line"),
            ("task a start=-1", "2: start= needs"),
            ("cgroup ../a", "2: not `cgroup NAME"),
            ("cgroup a ../x=1", "2: a cgroup's setting of a file"),
            ("", "1: no calls are in it"),
        ] {
            let error = Script::parse("s", &format!("flashscope-replay 2\n{lines}\n")).unwrap_err().to_string();
            assert!(error.starts_with(&format!("s:{said}")), "{error}");
        }
        let error = Script::parse("s", "flashscope-replay 3\n").unwrap_err().to_string();
        assert!(error.starts_with("s:1: a replay script of version 3"), "{error}");
        assert!(Script::parse("s", "flashscope-replay 1\nwrite 1\n").unwrap_err().why.contains("of version 1"));
    }
}
