//! Lines of a program that rules advise, in C and in Python: a rule names the line, and `adapt` writes it in the finding's language.
//!
//! A Python program is known by its thread's name (python3, or a script `NAME.py`), or by the program that its command line begins
//! with, as of a script whose first line names python3.

use super::{Finding, Seen, Step};
use crate::{split_task_label, task_name};

/// A line of a program. `{}` is a number, the same everywhere in it.
#[derive(Clone, Copy)]
pub(super) struct Line {
    c: &'static str,
    /// `None`: it stays C, as for calls that Python's library lacks.
    python: Option<&'static str>,
}

impl Line {
    pub(super) fn step(self) -> Step {
        Step::Code { line: self.c.to_owned() }
    }

    pub(super) fn with(self, number: u64) -> Step {
        Step::Code { line: self.c.replace("{}", &number.to_string()) }
    }

    /// The number in this line, if `c` is this line: empty where it has none.
    fn number(self, c: &str) -> Option<&str> {
        let Some((before, _)) = self.c.split_once("{}") else { return (self.c == c).then_some("") };
        let rest = c.strip_prefix(before)?;
        let number = &rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())];
        (!number.is_empty() && self.c.replace("{}", number) == c).then_some(number)
    }
}

macro_rules! lines {
    ($($name:ident: $c:literal, $python:expr;)*) => {
        $(pub(super) const $name: Line = Line { c: $c, python: $python };)*
        const ALL: &[Line] = &[$($name),*];
    };
}

lines! {
    FSYNC: "if (++records % {} == 0) fsync(fd);", Some("if records % {} == 0: f.flush(); os.fsync(f.fileno())");
    FLUSH_AND_FSYNC: "if (++records % {} == 0) { fflush(file); fsync(fileno(file)); }", FSYNC.python;
    FDATASYNC: "if (++records % {} == 0) fdatasync(fd);", Some("if records % {} == 0: f.flush(); os.fdatasync(f.fileno())");
    SYNC: "if (++records % {} == 0) sync();", Some("if records % {} == 0: os.sync()");
    MSYNC: "if (++records % {} == 0) msync(map, length, MS_SYNC);", Some("if records % {} == 0: map.flush()");
    SYNC_RANGE: "if (++records % {} == 0) sync_file_range(fd, offset, length, SYNC_FILE_RANGE_WRITE_AND_WAIT);", None;
    SYNCFS: "if (++records % {} == 0) syncfs(fd);", None;
    FSYNC_DIRECTORY: "if (++files % {} == 0) fsync(directory);", Some("if files % {} == 0: os.fsync(directory)");
    // Python has no syncfs().
    SYNCFS_DIRECTORY: "if (++files % {} == 0) syncfs(directory);", Some("if files % {} == 0: subprocess.run(['sync', '-f', directory])");
    SYNCFS_BEFORE_RENAME: "syncfs(directory); /* once, before rename() of each */",
        Some("subprocess.run(['sync', '-f', directory]) # once, before os.replace() of each");
    ALLOCATE: "posix_fallocate(fd, 0, 1 << 20);", Some("os.posix_fallocate(f.fileno(), 0, 1 << 20)");
    SYNC_DATA: "fdatasync(fd);", Some("os.fdatasync(f.fileno())");
    SYNC_DATA_ONCE: "fdatasync(fd); /* once for many records */", SYNC_DATA.python;
    NOT_DIRECT: "fdatasync(fd); /* once for many writes, without O_DIRECT; or io_uring */", NEITHER_DIRECT_NOR_SYNC.python;
    NEITHER_DIRECT_NOR_SYNC: "fdatasync(fd); /* once for many writes, without O_DIRECT and O_SYNC; or io_uring */",
        Some("os.fdatasync(fd) # once for many writes, without O_DIRECT and O_SYNC");
    WRITE_MORE: "write(fd, buffer, 65536);", None;
    WRITE_MORE_OR_CACHED: "write(fd, buffer, 65536); /* or without O_DIRECT, and fdatasync(fd) once for many */", None;
    // The descriptor keeps its flags, as with setvbuf().
    BUFFER_WRITES: "setvbuf(file, NULL, _IOFBF, 1 << 16);", Some("f = os.fdopen(fd, 'wb', buffering=1 << 16) # and f.write()");
    BUFFER_NOT_SYNC: "setvbuf(file, NULL, _IOFBF, 1 << 16); /* and no O_SYNC: fdatasync(fd) */",
        Some("f = open(path, 'ab', buffering=1 << 16) # and no O_SYNC: os.fdatasync(f.fileno())");
    BUFFER_TINY_WRITES: "setvbuf(file, NULL, _IOFBF, {}); /* and fwrite() to it */",
        Some("f = os.fdopen(fd, 'wb', buffering={}) # and f.write()");
    BUFFER_READS: "char buffer[{}]; ssize_t n = read(fd, buffer, sizeof(buffer));",
        Some("f = os.fdopen(fd, 'rb', buffering={}) # and f.read(n)");
    READ_MORE: "read(fd, buffer, {});", None;
    READ_RANGE: "pread(fd, buffer, {}, offset);", Some("os.pread(fd, {}, offset)");
    WRITE_BLOCK: "pwrite(fd, block, {}, number * {}L); /* not a part of it */", Some("os.pwrite(fd, block, number * {}) # not a part of it");
    WRITE_ARCHIVE: "write(archive_fd, record, length); /* in place of open() of a file for each */",
        Some("archive.write(record) # in place of open() of a file for each");
    NEED_FILE: "posix_fadvise(fd, 0, 0, POSIX_FADV_WILLNEED);", Some("os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)");
    NEED_NEXT_FILE: "posix_fadvise(next_fd, 0, 0, POSIX_FADV_WILLNEED);", Some("os.posix_fadvise(next_fd, 0, 0, os.POSIX_FADV_WILLNEED)");
    NEED_NEXT_RANGE: "posix_fadvise(fd, next_offset, length, POSIX_FADV_WILLNEED);",
        Some("os.posix_fadvise(fd, next_offset, length, os.POSIX_FADV_WILLNEED)");
    KEEP_CACHED: "/* no posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) */", None;
    RANDOM_FILE: "posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);", Some("os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_RANDOM)");
    RANDOM_MAP: "madvise(map, length, MADV_RANDOM);", Some("map.madvise(mmap.MADV_RANDOM)");
}

/// Whether a step is a line of C: lines for a shell, SQL and options are not.
pub(super) fn is_c(step: &Step) -> bool {
    matches!(step, Step::Code { line } if ALL.iter().any(|one| one.number(line).is_some()))
}

/// `python3 (7)`, `python3.11 (7)`, `logger.py (7)`.
fn is_python(process: &str) -> bool {
    let name = task_name(process);
    is_interpreter(name) || name.ends_with(".py")
}

/// `python`, `python3`, `python3.11`.
fn is_interpreter(name: &str) -> bool {
    let version = name.strip_prefix("python");
    version.is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit() || c == '.'))
}

/// Whether a command line begins with Python: `/usr/bin/python3 /opt/logd -v`.
pub fn is_run_by_python(command: &str) -> bool {
    let program = command.split(' ').next().unwrap_or_default();
    is_interpreter(program.rsplit('/').next().unwrap_or_default())
}

fn python_of(c: &str) -> Option<String> {
    let (line, number) = ALL.iter().find_map(|line| Some((line, line.number(c)?)))?;
    Some(line.python?.replace("{}", number))
}

/// Puts lines of Python in the place of lines of C, where all processes of a finding run Python.
pub(super) fn adapt(seen: &Seen<'_>, finding: &mut Finding) {
    let by_command =
        |process: &str| split_task_label(process).is_some_and(|(_, tid, _)| seen.storage.python_threads.contains(&tid));
    let is_its = |process: &String| is_python(process) || by_command(process);
    if finding.processes.is_empty() || !finding.processes.iter().all(is_its) {
        return;
    }
    for step in finding.advice.iter_mut().flat_map(|remedy| &mut remedy.steps) {
        if let Step::Code { line } = step
            && let Some(python) = python_of(line)
        {
            *line = python;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Work;
    use super::super::{Rule, find};
    use super::*;
    use flashscope_trace::TaskId;

    fn lines(program: &str, call: &str) -> Vec<String> {
        let mut work = Work::new(1_000_000_000);
        work.storage.python_threads.insert(TaskId(9));
        work.call(call, program, 300, 800_000_000, 0);
        let found = find(&work.seen());
        let advice = &found.iter().find(|one| one.rule == Rule::FsyncStorm).expect("a finding").advice;
        let line = |step: &Step| match step {
            Step::Code { line } => line.clone(),
            other => format!("{other:?}"),
        };
        advice.iter().flat_map(|remedy| &remedy.steps).map(line).collect()
    }

    #[test]
    fn python_gets_python() {
        let synced = ["if records % 10 == 0: f.flush(); os.fsync(f.fileno())", "eatmydata PROGRAM"];
        for program in ["python3 (7)", "python3.11 (7)", "python (7)", "logger.py (7)", "logd (9)"] {
            assert_eq!(lines(program, "fsync"), synced, "{program}");
        }
        assert_eq!(lines("python3 (7)", "sync")[0], "if records % 10 == 0: os.sync()");
        assert_eq!(lines("python3 (7)", "msync")[0], "if records % 10 == 0: map.flush()");
        for program in ["pythond (7)", "logger (7)", "happy (7)"] {
            assert_eq!(lines(program, "fsync")[0], "if (++records % 10 == 0) fsync(fd);", "{program}");
        }
    }

    #[test]
    fn a_command_line_tells_python() {
        for (command, python) in [
            ("/usr/bin/python3 /opt/logd -v", true),
            ("python3.11 logd", true),
            ("/opt/logd -v python3", false),
            ("/usr/bin/python3-config --libs", false),
            ("/usr/bin/pythond", false),
            ("", false),
        ] {
            assert_eq!(is_run_by_python(command), python, "{command}");
        }
    }

    /// The lines of C as other rules have them.
    #[test]
    fn numbers_are_kept() {
        for (c, python) in [
            (
                "if (++records % 50 == 0) { fflush(file); fsync(fileno(file)); }",
                "if records % 50 == 0: f.flush(); os.fsync(f.fileno())",
            ),
            ("setvbuf(file, NULL, _IOFBF, 1 << 16);", "f = os.fdopen(fd, 'wb', buffering=1 << 16) # and f.write()"),
            (
                "setvbuf(file, NULL, _IOFBF, 1 << 16); /* and no O_SYNC: fdatasync(fd) */",
                "f = open(path, 'ab', buffering=1 << 16) # and no O_SYNC: os.fdatasync(f.fileno())",
            ),
            (
                "setvbuf(file, NULL, _IOFBF, 4096); /* and fwrite() to it */",
                "f = os.fdopen(fd, 'wb', buffering=4096) # and f.write()",
            ),
            (
                "char buffer[4096]; ssize_t n = read(fd, buffer, sizeof(buffer));",
                "f = os.fdopen(fd, 'rb', buffering=4096) # and f.read(n)",
            ),
            ("posix_fallocate(fd, 0, 1 << 20);", "os.posix_fallocate(f.fileno(), 0, 1 << 20)"),
            (
                "pwrite(fd, block, 4096, number * 4096L); /* not a part of it */",
                "os.pwrite(fd, block, number * 4096) # not a part of it",
            ),
            ("pread(fd, buffer, 65536, offset);", "os.pread(fd, 65536, offset)"),
            ("posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);", "os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_RANDOM)"),
        ] {
            assert_eq!(python_of(c).as_deref(), Some(python));
        }
        for c in ["PRAGMA journal_mode=WAL;", "eatmydata PROGRAM", "sync FILE"] {
            assert_eq!(python_of(c), None);
        }
    }
}
