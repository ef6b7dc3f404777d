//! Advice for a program that syncs too often (`fsync_storm`).

use super::behind_another::{less_for_worker, lower_priority};
use super::code::Line;
use super::databases::SYNC_COST;
use super::{Remedy, Seen, Step, code, gain};
use crate::Evidence;
use crate::calls::CallGroup;
use crate::kernel_threads::is_worker;

/// The advice: one call in place of this many.
const TOGETHER: u64 = 10;
/// The same of ten files with an inode and a block each: 4.03 on ext4, for 500 files that were each synced with their directory. What more
/// it may be elsewhere is our choice.
const MOST_COST_OF_FILES: f64 = 9.0;

/// It may only begin to write, and no flush of the device follows (sync_file_range(2)).
pub(super) fn is_of_a_range(call: &str) -> bool {
    matches!(call, "sync_file_range" | "sync_file_range2")
}

pub(super) fn calls_of<'a>(syncs: &[&'a CallGroup]) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for group in syncs {
        if !names.contains(&group.call.as_str()) {
            names.push(&group.call);
        }
    }
    names
}

/// "fsync(), sync_file_range() and syncfs()".
pub(super) fn listed(names: &[&str]) -> String {
    match names {
        [head @ .., last] if !head.is_empty() => format!("{}() and {last}()", head.join("(), ")),
        _ => format!("{}()", names.join("")),
    }
}

/// Purpose of the calls.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Synced {
    Records,
    /// After each call it renames a new file over the old one, as package installers do.
    Renamed,
    /// It writes many small files and syncs each of them.
    Files,
    /// A script starts a process for each file.
    FilesOfScript,
    /// It syncs a directory and writes nothing itself, as mail and package programs do.
    Names,
}

impl Synced {
    /// What falls: calls of `syncfs` take the place of the others.
    pub(super) fn gain_of(self, syncs: &[&CallGroup], process: &str) -> String {
        let mut names = calls_of(syncs);
        if matches!(self, Synced::Renamed | Synced::Files | Synced::FilesOfScript) && !names.contains(&"syncfs") {
            names.push("syncfs");
        }
        match self {
            // Then another program makes the syncs.
            Synced::FilesOfScript => format!("time in {} of all that the script starts", listed(&names)),
            _ => format!("time in {} of {process}", listed(&names)),
        }
    }
}

/// The call for some records at once: a mapping is synced by its address, and a range of a file by its place.
fn of_records(call: &str) -> Line {
    match call {
        "sync" => code::SYNC,
        "syncfs" => code::SYNCFS,
        "msync" => code::MSYNC,
        "fdatasync" => code::FDATASYNC,
        call if is_of_a_range(call) => code::SYNC_RANGE,
        _ => code::FSYNC,
    }
}

/// The same in a script that starts sync(1), whose options choose the call.
pub(super) fn of_script(call: &str) -> Step {
    let command = match call {
        "sync" => "sync",
        "syncfs" => "sync -f FILE",
        "fdatasync" => "sync -d FILE",
        _ => "sync FILE",
    };
    Step::Code { line: format!("records=$((records + 1)); [ $((records % {TOGETHER})) -ne 0 ] || {command}") }
}

/// For a file that grows with each record: its size is metadata, and goes through the journal.
pub(super) fn data_alone(journal_percent: f64) -> Remedy {
    Remedy {
        what: "Reserve the file's blocks once, and sync its data alone".to_owned(),
        steps: vec![code::ALLOCATE.step(), code::SYNC_DATA.step()],
        gain: Evidence::unknown(
            format!(
                "the journal has {journal_percent:.0} % of the time, and how much of it is left depends on the file \
                 system's version"
            ),
            "try it, and compare the time in fdatasync()",
        ),
        risk: "times of the last change are written later; the file is longer than its contents".to_owned(),
    }
}

/// `sync` writes what all programs have changed, on all file systems.
pub(super) fn one_file_alone() -> Remedy {
    Remedy {
        what: "Sync only the file that must be safe: fsync(fd) in a program, sync FILE in a script".to_owned(),
        steps: vec![Step::Code { line: "sync FILE".to_owned() }],
        gain: Evidence::unknown(
            "how much of what sync() writes is that file's is not in the trace",
            "try it, and compare two recordings: flashscope diff",
        ),
        risk: "a power cut loses changes of other files that are still in memory".to_owned(),
    }
}

/// What is left to do in dpkg: its own database is synced with the option, too.
pub(super) fn of_dpkg(whole: u64, of_ranges: u64) -> Option<Remedy> {
    // With the option a file is written back ahead, and not synced.
    (whole * 4 > of_ranges).then(|| Remedy {
        what: "Where an installation can be begun again: have dpkg rename new files without a sync of each".to_owned(),
        steps: vec![
            Step::Code { line: "dpkg --force-unsafe-io -i PACKAGE.deb".to_owned() },
            Step::Code { line: "apt-get -o Dpkg::Options::=--force-unsafe-io install PACKAGE".to_owned() },
        ],
        gain: Evidence::unknown(
            "the trace does not show which of these syncs are of the packages' files, and which of dpkg's own database, which stay",
            "try it, and compare two recordings: flashscope diff",
        ),
        risk: "after a power cut new files may be empty or cut: install the packages again".to_owned(),
    })
}

/// `directory` has the files of a script.
pub(super) fn less_often(call: &str, of: &str, synced: Synced, directory: impl FnOnce() -> String) -> Remedy {
    let costs = match synced {
        Synced::Files | Synced::FilesOfScript => [SYNC_COST[0], MOST_COST_OF_FILES],
        _ => SYNC_COST,
    };
    let then = |cost: f64| 100.0 * (1.0 - cost / TOGETHER as f64);
    let (what, step, risk) = match synced {
        Synced::Names => (
            format!("It writes no data: it syncs names of files. Sync the directory once for {TOGETHER} of them"),
            code::FSYNC_DIRECTORY.with(TOGETHER),
            format!("a power cut loses up to {TOGETHER} names more"),
        ),
        Synced::Renamed => (
            format!("Write {TOGETHER} new files, sync the file system once, and then rename them"),
            code::SYNCFS_BEFORE_RENAME.step(),
            format!("a power cut loses up to {TOGETHER} new files more; the old ones stay"),
        ),
        Synced::Files => (
            format!("Write {TOGETHER} files, and sync the file system once, in place of each file"),
            code::SYNCFS_DIRECTORY.with(TOGETHER),
            format!("a power cut loses up to {TOGETHER} files more; what other programs have written is synced, too"),
        ),
        Synced::FilesOfScript => (
            format!(
                "Have the script write {TOGETHER} files, and then sync the file system once, in place of a sync of each \
                 file"
            ),
            Step::Run { command: "sync -f".to_owned(), names: vec![directory()] },
            format!("a power cut loses up to {TOGETHER} files more; what other programs have written is synced, too"),
        ),
        Synced::Records => (
            format!("Sync once for {TOGETHER} records, or once a second, instead of after each"),
            of_records(call).with(TOGETHER),
            format!("a power cut loses up to {TOGETHER} records more"),
        ),
    };
    Remedy {
        what,
        steps: vec![step],
        gain: gain(
            of.to_owned(),
            [then(costs[1]), then(costs[0])],
            format!("a tenth of the calls, each at {} to {} times what one takes now", costs[0], costs[1]),
        ),
        risk,
    }
}

pub(super) fn of_lower_priority(seen: &Seen<'_>, culprit: &str, part: f64) -> Remedy {
    let gain = Evidence::unknown(
        format!("it is at most what its bios wait behind others ({part:.0} %), and what the journal's wait"),
        "try it, and compare two recordings: flashscope diff",
    );
    if is_worker(culprit) {
        return less_for_worker(seen, culprit, gain);
    }
    Remedy {
        what: format!(
            "Give the I/O of {culprit} a lower priority, start it with ionice -c 3, or have it write more slowly"
        ),
        steps: lower_priority(culprit),
        gain,
        risk:
            "it may take much longer; without a scheduler that knows priorities (mq-deadline, bfq) they have no effect"
                .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_listed_as_a_sentence_has_them() {
        for (names, told) in [
            (&["fsync"][..], "fsync()"),
            (&["fsync", "syncfs"], "fsync() and syncfs()"),
            (&["fsync", "sync_file_range", "syncfs"], "fsync(), sync_file_range() and syncfs()"),
        ] {
            assert_eq!(listed(names), told);
        }
    }
}
