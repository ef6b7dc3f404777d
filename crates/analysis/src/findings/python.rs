//! Lines of C that rules advise, as Python has them.
//!
//! Input: the steps of a finding about Python programs. A program is known by its thread's name (python3, or a script `NAME.py`), or by the
//! program that its command line begins with, as of a script whose first line names python3.
//! Calls that Python's library lacks (sync_file_range) stay lines of C.

use super::{Finding, Seen, Step};
use crate::{split_task_label, task_name};

/// What a line of C contains, and the line of Python in its place. `{}` is a number, the same in both.
const LINES: [(&str, &str); 22] = [
    ("++records % {} == 0) { fflush(file);", "if records % {} == 0: f.flush(); os.fsync(f.fileno())"),
    ("++records % {} == 0) fsync(fd);", "if records % {} == 0: f.flush(); os.fsync(f.fileno())"),
    ("++records % {} == 0) fdatasync(fd);", "if records % {} == 0: f.flush(); os.fdatasync(f.fileno())"),
    ("++records % {} == 0) sync();", "if records % {} == 0: os.sync()"),
    ("++records % {} == 0) msync(", "if records % {} == 0: map.flush()"),
    ("++files % {} == 0) fsync(directory);", "if files % {} == 0: os.fsync(directory)"),
    // Python has no syncfs().
    ("++files % {} == 0) syncfs(", "if files % {} == 0: subprocess.run(['sync', '-f', directory])"),
    (
        "syncfs(directory); /* once, before",
        "subprocess.run(['sync', '-f', directory]) # once, before os.replace() of each",
    ),
    ("posix_fallocate(fd, 0, 1 << {})", "os.posix_fallocate(f.fileno(), 0, 1 << {})"),
    ("fdatasync(fd); /* once for many writes,", "os.fdatasync(fd) # once for many writes, without O_DIRECT and O_SYNC"),
    ("no O_SYNC: fdatasync(fd)", "f = open(path, 'ab', buffering=1 << 16) # and no O_SYNC: os.fdatasync(f.fileno())"),
    ("fdatasync(fd);", "os.fdatasync(f.fileno())"),
    // The descriptor keeps its flags, as with setvbuf().
    ("setvbuf(file, NULL, _IOFBF, 1 << {});", "f = os.fdopen(fd, 'wb', buffering=1 << {}) # and f.write()"),
    ("setvbuf(file, NULL, _IOFBF, {});", "f = os.fdopen(fd, 'wb', buffering={}) # and f.write()"),
    ("char buffer[{}]; ssize_t n = read(", "f = os.fdopen(fd, 'rb', buffering={}) # and f.read(n)"),
    ("posix_fadvise(fd, next_offset,", "os.posix_fadvise(fd, next_offset, length, os.POSIX_FADV_WILLNEED)"),
    ("posix_fadvise(next_fd, 0, 0,", "os.posix_fadvise(next_fd, 0, 0, os.POSIX_FADV_WILLNEED)"),
    ("posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);", "os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_RANDOM)"),
    ("madvise(map, length, MADV_RANDOM);", "map.madvise(mmap.MADV_RANDOM)"),
    ("pread(fd, buffer, {}, offset);", "os.pread(fd, {}, offset)"),
    ("pwrite(fd, block, {}, number *", "os.pwrite(fd, block, number * {}) # not a part of it"),
    ("write(archive_fd,", "archive.write(record) # in place of open() of a file for each"),
];

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
    LINES.iter().find_map(|(sign, python)| {
        let Some((before, after)) = sign.split_once("{}") else {
            return c.contains(sign).then(|| (*python).to_owned());
        };
        let (_, rest) = c.split_once(before)?;
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (number, rest) = rest.split_at(digits);
        (!number.is_empty() && rest.starts_with(after)).then(|| python.replace("{}", number))
    })
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
