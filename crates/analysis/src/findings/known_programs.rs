//! Advice for who runs a program and cannot change it: options of well-known programs in place of lines of C.
//!
//! Input: a finding about programs of one name. Limit: a program is known by its thread's name, of which the kernel keeps 15 letters.

use super::{Finding, Gain, Remedy, Rule, Step, code, small_sync_writes};
use crate::{Evidence, task_name};

/// An option of a program that does what a rule advises.
struct Known {
    programs: &'static [&'static str],
    rules: &'static [Rule],
    what: &'static str,
    lines: &'static [&'static str],
    gains: Gains,
    risk: &'static str,
}

/// What an option gains.
#[derive(Clone, Copy, PartialEq)]
enum Gains {
    /// The same as the line of C that it replaces.
    Same,
    /// The program makes none of the calls any more.
    All,
    Unknown,
}

/// A process that the program starts may still make a few of the calls.
const MIN_OF_ALL_PERCENT: f64 = 90.0;
const SYNCS: &[Rule] = &[Rule::FsyncStorm, Rule::SmallSyncWrites];
const SMALL: &[Rule] = &[Rule::SmallSyncWrites, Rule::SmallReads, Rule::TinyCalls];
const SHELLS: &[&str] = &["sh", "bash", "dash", "ash", "busybox", "zsh"];

const KNOWN: [Known; 13] = [
    // dpkg(1), --force-unsafe-io. It syncs its database in any case.
    Known {
        programs: &["dpkg", "apt", "apt-get"],
        rules: SYNCS,
        what: "Where an installation can be begun again: have dpkg sync nothing (package eatmydata)",
        lines: &["eatmydata apt-get install PACKAGE"],
        gains: Gains::All,
        risk: "after a power cut packages and dpkg's own database may be damaged",
    },
    // dpkg(1), --path-exclude.
    Known {
        programs: &["dpkg"],
        rules: &[Rule::SmallFiles],
        what: "Leave out files that nobody reads on this machine",
        lines: &["dpkg --path-exclude='/usr/share/doc/*' --path-exclude='/usr/share/man/*' -i PACKAGE.deb"],
        gains: Gains::Unknown,
        risk: "the files that match are missing; put the options into /etc/dpkg/dpkg.cfg.d to have them for apt",
    },
    // git-config(1), since 2.36.
    Known {
        programs: &["git"],
        rules: SYNCS,
        what: "Where the repository can be cloned again: have git sync nothing",
        lines: &["git config core.fsync none"],
        gains: Gains::All,
        risk: "a power cut may leave empty objects and references",
    },
    Known {
        programs: &["git"],
        rules: &[Rule::SmallReads],
        what: "Have git pack loose objects earlier: then fewer files are read",
        lines: &["git config gc.auto 1000"],
        gains: Gains::Unknown,
        risk: "git gc runs more often",
    },
    // journald.conf(5).
    Known {
        programs: &["systemd-journal"],
        rules: SYNCS,
        what: "Sync less often. After each message of priority crit and above it syncs at once: find who sends these \
               (journalctl -p crit)",
        lines: &["SyncIntervalSec=15m # in /etc/systemd/journald.conf"],
        gains: Gains::Unknown,
        risk: "a power cut loses more of the log",
    },
    // rsyslog's omfile.
    Known {
        programs: &["rsyslogd", "rs:main Q:Reg"],
        rules: SYNCS,
        what: "Have rsyslog write without a sync of each message",
        lines: &["action(type=\"omfile\" file=\"FILE\" sync=\"off\")"],
        gains: Gains::Unknown,
        risk: "a power cut loses the last messages",
    },
    // redis.conf.
    Known {
        programs: &["redis-server"],
        rules: SYNCS,
        what: "Where the last second may be lost: have Redis sync its log once a second",
        lines: &["redis-cli CONFIG SET appendfsync everysec"],
        gains: Gains::Unknown,
        risk: "a power cut loses the changes of the last second or two",
    },
    // dev.mysql.com, innodb_flush_log_at_trx_commit.
    Known {
        programs: &["mysqld", "mariadbd"],
        rules: SYNCS,
        what: "Where the last second may be lost: have InnoDB sync its log once a second",
        lines: &["SET GLOBAL innodb_flush_log_at_trx_commit = 2;"],
        gains: Gains::Unknown,
        risk: "a power cut loses the transactions of the last second",
    },
    // rsync(1).
    Known {
        programs: &["rsync"],
        rules: SYNCS,
        what: "Leave out --fsync, and sync the file system once at the end",
        lines: &["rsync -a SOURCE DESTINATION && sync -f DESTINATION"],
        gains: Gains::Unknown,
        risk: "after a power cut the copy has to be made again",
    },
    // dd(1).
    Known {
        programs: &["dd"],
        rules: SMALL,
        what: "Use larger blocks",
        lines: &["dd bs=64K"],
        gains: Gains::Same,
        risk: "memory for the blocks",
    },
    // tar(1), --sort: on ext4 inodes lie in the order in which the files were made.
    Known {
        programs: &["tar"],
        rules: &[Rule::SmallReads],
        what: "Have tar read the files in the order of their inodes",
        lines: &["tar --sort=inode -cf ARCHIVE DIRECTORY"],
        gains: Gains::Unknown,
        risk: "the archive has another order",
    },
    Known {
        programs: &["tar", "cp", "rsync", "unzip"],
        rules: &[Rule::SmallFiles],
        what: "Keep the files in one archive, and unpack only what is needed",
        lines: &["tar -cf ARCHIVE -C DIRECTORY .", "tar -xf ARCHIVE FILE"],
        gains: Gains::Same,
        risk: "programs that read the files need them unpacked",
    },
    Known {
        programs: SHELLS,
        rules: &[Rule::SmallFiles],
        what: "Have the script append its records to one file, in place of a file for each",
        lines: &["printf '%s\\n' \"$record\" >> FILE"],
        gains: Gains::Same,
        risk: "programs that expect a file for each have to be changed",
    },
];

fn is_code(remedy: &Remedy) -> bool {
    remedy.steps.iter().any(code::is_c)
}

/// Puts options of a known program in the place of lines of C. To others it adds what can be done without a change of the program.
pub(super) fn adapt(finding: &mut Finding) {
    let Some(name) = finding.processes.first().map(|one| task_name(one).to_owned()) else { return };
    let is_one = finding.processes.iter().all(|one| task_name(one) == name);
    let code = finding.advice.iter().position(is_code);
    if !is_one || code.is_none() && !finding.advice.is_empty() {
        return;
    }
    // Options that leave out syncs: O_DIRECT has none.
    let is_direct = finding.cause.starts_with(small_sync_writes::DIRECT);
    let helps = |known: &&Known| !is_direct || known.rules != SYNCS;
    let is_known =
        |known: &&Known| known.programs.contains(&name.as_str()) && known.rules.contains(&finding.rule) && helps(known);
    match KNOWN.iter().find(is_known) {
        Some(known) => {
            let replaced = code.map(|at| finding.advice[at].gain.clone());
            finding.advice.retain(|remedy| !is_code(remedy));
            let of = format!("time in syncs of {}", finding.processes[0]);
            finding.advice.insert(code.unwrap_or(0).min(finding.advice.len()), remedy_of(known, replaced, of));
        }
        None if is_direct => {}
        None if code.is_some() && SYNCS.contains(&finding.rule) => finding.advice.push(without_syncs()),
        None => {}
    }
}

fn compare<T>(missing: &str) -> Evidence<T> {
    Evidence::unknown(missing, "try it, and compare two recordings: flashscope diff")
}

/// `replaced`: the gain of the line of C; `of`: what falls where there was none.
fn remedy_of(known: &Known, replaced: Option<Evidence<Gain>>, of: String) -> Remedy {
    let gain = match (known.gains, replaced) {
        (Gains::Same, Some(gain)) => gain,
        (Gains::All, replaced) => Gain {
            of: replaced.and_then(|gain| gain.known().cloned()).map_or(of, |gain| gain.of),
            least_percent: MIN_OF_ALL_PERCENT,
            most_percent: 100.0,
            basis: "the program makes none of these calls then; the kernel writes the data later".to_owned(),
        }
        .into(),
        _ => compare("how much of this the option saves is not in the trace"),
    };
    Remedy {
        what: known.what.to_owned(),
        steps: known.lines.iter().map(|line| Step::Code { line: (*line).to_owned() }).collect(),
        gain,
        risk: known.risk.to_owned(),
    }
}

/// libeatmydata takes the place of the C library's fsync(), fdatasync(), sync(), syncfs(), msync(), sync_file_range() and O_SYNC.
fn without_syncs() -> Remedy {
    Remedy {
        what: "Where the program is not yours, and all that it writes can be made again: run it without syncs (package eatmydata)"
            .to_owned(),
        steps: vec![Step::Code { line: "eatmydata PROGRAM".to_owned() }],
        gain: compare("the kernel writes the data later, and how long the program then waits for it is not in the trace"),
        risk: "a power cut may damage all files that it has written; a statically linked program still syncs".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::find;
    use super::super::testing::Work;
    use super::*;

    /// The steps of the first finding's advice, for a program that syncs each record.
    fn steps(program: &str) -> Vec<String> {
        let mut work = Work::new(1_000_000_000);
        work.call("fsync", program, 300, 800_000_000, 0);
        let advice = find(&work.seen()).remove(0).advice;
        let line = |step: &Step| match step {
            Step::Code { line } => line.clone(),
            other => format!("{other:?}"),
        };
        advice.iter().flat_map(|remedy| &remedy.steps).map(line).collect()
    }

    #[test]
    fn a_known_program_gets_its_option_and_another_one_both() {
        assert_eq!(steps("git (7)"), ["git config core.fsync none"]);
        assert_eq!(steps("dpkg (7)"), ["eatmydata apt-get install PACKAGE"]);
        assert_eq!(steps("systemd-journal (7)"), ["SyncIntervalSec=15m # in /etc/systemd/journald.conf"]);
        assert_eq!(steps("logger (7)"), ["if (++records % 10 == 0) fsync(fd);", "eatmydata PROGRAM"]);
    }

    /// With --force-unsafe-io dpkg hands files to the device ahead, and syncs its database: no line of C, and not that option again.
    #[test]
    fn dpkg_that_does_not_sync_its_files_gets_advice() {
        let mut work = Work::new(3_000_000_000);
        work.call("sync_file_range", "dpkg (7)", 921, 550_000_000, 0);
        work.call("fsync", "dpkg (7)", 12, 380_000_000, 0);
        work.call("rename", "dpkg (7)", 925, 10_000_000, 0);
        let advice = find(&work.seen()).remove(0).advice;
        assert_eq!(advice.len(), 1, "{advice:?}");
        assert_eq!(advice[0].steps, [Step::Code { line: "eatmydata apt-get install PACKAGE".to_owned() }]);
        assert_eq!(advice[0].gain.known().map(|gain| (gain.least_percent, gain.most_percent)), Some((90.0, 100.0)));
    }

    /// What a program that writes 2,000 files of 300 bytes is told first, if so many blocks went to the device meanwhile.
    fn of_small_files(program: &str, bios: u64) -> Remedy {
        let (mut work, process) = (Work::new(1_000_000_000), format!("{program} (7)"));
        work.bios(bios, "W", 1_000, 10_000);
        work.call("write", &process, 2000, 200_000_000, 600_000);
        work.call("openat", &process, 2000, 200_000_000, 0);
        for inode in 0..2000 {
            work.file_call("write", &format!("8:0 inode {}", inode + 12), 1, 100_000);
            work.calls.by_file.last_mut().expect("a file").bytes = 300;
        }
        let found = find(&work.seen());
        found.iter().find(|one| one.rule == Rule::SmallFiles).expect("small files").advice[0].clone()
    }

    #[test]
    fn a_script_gets_no_line_of_c() {
        let line = "printf '%s\\n' \"$record\" >> FILE".to_owned();
        assert_eq!(of_small_files("bash", 4000).steps, [Step::Code { line }]);
    }

    /// An archive is no option of rsync. Most data is not yet written: the gain is unknown for the reason that the line of C has.
    #[test]
    fn an_unknown_gain_keeps_its_reason() {
        let [known, other] = ["rsync", "logger"].map(|program| of_small_files(program, 100));
        assert!(known.steps != other.steps && known.gain.why().is_some(), "{known:?}");
        assert_eq!(known.gain, other.gain);
    }

    /// Larger blocks of dd are what the line of C would do: it keeps the range.
    #[test]
    fn an_option_that_does_the_same_has_the_same_gain() {
        let gain = |program: &str| {
            let mut work = Work::new(1_000_000_000);
            work.bios_of(program, 100, "WS", 1_000, 600_000);
            work.call("write", &format!("{program} (7)"), 100, 600_000_000, 409_600);
            let found = find(&work.seen());
            let writes = found.iter().find(|one| one.rule == Rule::SmallSyncWrites).expect("small writes");
            let gain = writes.advice[0].gain.known().expect("a range");
            (gain.least_percent, gain.most_percent)
        };
        assert_eq!(gain("dd"), gain("logger"));
    }

    #[test]
    fn a_name_is_what_the_kernel_keeps_of_it() {
        assert!(KNOWN.iter().flat_map(|known| known.programs).all(|name| name.len() <= 15));
    }
}
