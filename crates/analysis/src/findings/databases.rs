//! Databases that sync often, recognised by the names of the files they sync. The advice is the database's own setting for fewer syncs.

use super::{Gain, Remedy, Seen, Step, percent};
use crate::Evidence;
use crate::calls::{CallGroup, is_sync, is_write};
use crate::units::{duration, grouped};
use flashscope_trace::{FileId, NAMELESS};
use std::collections::{BTreeMap, BTreeSet};

/// A rollback journal is synced once or twice a transaction, and the database once (sqlite.org/atomiccommit.html, 3.6 and 3.7).
const MAX_JOURNAL_SYNCS: u64 = 4;
/// Least cost of a sync of a write-ahead log, in syncs of the database: both overwrite blocks of one file. 0.33 was measured on a disk that
/// others used.
const CHEAP_LOG: f64 = 0.25;
/// Cost of one sync in place of ten, in syncs of now: it waits for more data, and other users of the device change it. 0.19 was measured
/// with msync() for each tenth page, where the calls for each page had taken 6.06 s.
pub(super) const SYNC_COST: [f64; 2] = [0.1, 4.0];
/// Cost of a sync at a checkpoint: it writes the pages of all transactions since the last one.
const CHECKPOINT_COST: [f64; 2] = [0.1, 10.0];
/// With asynchronous commit PostgreSQL writes its log every 200 ms (`wal_writer_delay`, the default). A crash loses at most three times
/// as much (postgresql.org/docs/current/wal-async-commit.html).
const POSTGRESQL_LOG_NS: u64 = 200_000_000;
/// Cost of a sync of that log, in syncs of now: it waits for no other sync, and writes the data of more transactions.
const POSTGRESQL_COST: [f64; 2] = [0.1, 4.0];

const RISK_OF_LOG: &str = "all programs that use the database have to be on this machine; beside it lie two more files";
const RISK_OF_NORMAL: &str =
    "a power cut loses the transactions since the last checkpoint; the database stays consistent";

/// Number of sync calls, and their time.
#[derive(Clone, Copy, Default)]
pub(super) struct Syncs {
    pub n: u64,
    pub ns: u64,
    /// The kinds of calls, a bit for each of [`SYNCS`].
    kinds: u8,
}

/// Calls that sync one file.
const SYNCS: [&str; 3] = ["fsync", "fdatasync", "msync"];

fn kind_of(call: &str) -> u8 {
    SYNCS.iter().position(|one| *one == call).map_or(0, |at| 1 << at)
}

impl Syncs {
    pub fn of(group: &CallGroup) -> Syncs {
        Syncs { n: group.ns.n, ns: group.total_ns, kinds: kind_of(&group.call) }
    }

    /// Whether these calls may be among a file's syncs: a file that is synced by another call alone is another process's.
    fn may_be_of(&self, file: &CallGroup) -> bool {
        is_sync(&file.call) && (kind_of(&file.call) == 0 || self.kinds & kind_of(&file.call) != 0)
    }
}

impl std::iter::Sum for Syncs {
    fn sum<I: Iterator<Item = Syncs>>(all: I) -> Syncs {
        all.fold(Syncs::default(), |sum, one| Syncs {
            n: sum.n + one.n,
            ns: sum.ns.saturating_add(one.ns),
            kinds: sum.kinds | one.kinds,
        })
    }
}

/// Databases, and the syncs of their rollback journals.
struct Databases<'a> {
    /// The most often synced one is first.
    paths: Vec<&'a str>,
    data: Syncs,
    journal: Syncs,
    /// The journals have the databases' names.
    is_named: bool,
}

/// Advice for SQLite with a rollback journal or a write-ahead log, or both.
pub(super) fn of_sqlite(seen: &Seen<'_>, all: Syncs, renamed: bool, of: &str) -> Vec<Remedy> {
    let known = [rollback_journal(seen, all, renamed, of), write_ahead_log(seen, all, of)].concat();
    if known.is_empty() { written_database(seen, all, of) } else { known }
}

/// SQLite syncs its rollback journal, `DATABASE-journal`, and then the database, for each transaction (sqlite.org/atomiccommit.html).
/// With a write-ahead log it syncs that alone, once.
///
/// A journal exists for a millisecond, and often its name is not recorded. Then its deletion identifies it: not where files are
/// `renamed`, since the one that had the name before is deleted.
pub(super) fn rollback_journal(seen: &Seen<'_>, all: Syncs, renamed: bool, of: &str) -> Vec<Remedy> {
    of_rollback_journal(seen, all, renamed, of).unwrap_or_default()
}

fn of_rollback_journal(seen: &Seen<'_>, all: Syncs, renamed: bool, of: &str) -> Option<Vec<Remedy>> {
    let n = all.n;
    let found = databases(seen, all, renamed)?;
    let Databases { data, journal, .. } = found;
    // Only if they are most of this process's syncs; else the database may be another process's. A file that is synced far more often
    // than the database is already a write-ahead log.
    let fits = data.n > 0
        && (data.n..=data.n.saturating_mul(MAX_JOURNAL_SYNCS)).contains(&journal.n)
        && (n..=n * 2).contains(&((journal.n + data.n) * 2));
    let path = match found.paths[..] {
        _ if !fits => return None,
        [one] => one.to_owned(),
        [first, ..] => format!("{} databases (most often synced: {first})", grouped(found.paths.len() as u64)),
        [] => return None,
    };
    let what = if found.is_named {
        format!("Have SQLite keep a write-ahead log for {path} instead of a rollback journal")
    } else {
        format!(
            "It syncs {path}, and as often files that are deleted at once, as SQLite does with a rollback journal: have it \
             keep a write-ahead log"
        )
    };
    let log = Remedy {
        what,
        steps: vec![Step::Code { line: "PRAGMA journal_mode=WAL;".to_owned() }],
        gain: gain_of_log(all, data, journal, of).into(),
        risk: RISK_OF_LOG.to_owned(),
    };
    let transactions = ten_changes(
        format!("Put ten changes of {path} into one transaction: it has {:.1} syncs", n as f64 / data.n as f64),
        n,
        of,
    );
    Some(vec![log, transactions])
}

/// Files whose journal is synced. An inode number that journals of several databases used in turn counts once.
fn databases<'a>(seen: &Seen<'a>, all: Syncs, renamed: bool) -> Option<Databases<'a>> {
    let names = &seen.storage.file_names;
    let synced = || {
        let groups = seen.calls.by_file.iter().filter(move |group| all.may_be_of(group));
        groups.filter_map(|group| Some((FileId::parse(&group.name)?, group)))
    };
    let sum = |is: &dyn Fn(FileId, &CallGroup) -> bool| -> Syncs {
        synced().filter(|(file, group)| is(*file, group)).map(|(_, group)| Syncs::of(group)).sum()
    };
    let of_file = |file: FileId| sum(&|other, _| other == file);
    let is_journal_of = |file: FileId, group: &CallGroup, (of, database): (FileId, &str)| {
        let path = format!("{database}-journal");
        let known = group.path.as_deref().is_some_and(|known| known.trim_end_matches(" (deleted)") == path);
        // A journal without a recorded name is identified by its inode number.
        let is_nameless = group.path.as_deref().is_none_or(|known| known.starts_with(NAMELESS));
        (file.device, file.inode == of.inode) == (of.device, false)
            && (known || is_nameless && names.had_path(file, &path))
    };
    let mut named: Vec<(FileId, &'a str)> = Vec::new();
    for (of, group) in synced() {
        let Some(database) = group.path.as_deref().map(|path| (of, path)) else { continue };
        if synced().any(|(file, group)| is_journal_of(file, group, database)) && !named.contains(&database) {
            named.push(database);
        }
    }
    named.sort_by_key(|(file, _)| std::cmp::Reverse(of_file(*file).n));
    if !named.is_empty() {
        return Some(Databases {
            paths: named.iter().map(|(_, path)| *path).collect(),
            data: sum(&|file, _| named.iter().any(|(of, _)| *of == file)),
            journal: sum(&|file, group| named.iter().any(|of| is_journal_of(file, group, *of))),
            is_named: true,
        });
    }
    let by_deletion = |(of, group): (FileId, &'a CallGroup)| {
        let is_other = |file: FileId| file.device == of.device && file.inode != of.inode;
        let data = of_file(of);
        let deleted: u64 = synced().filter(|(file, _)| is_other(*file)).map(|(file, _)| names.deleted(file)).sum();
        let journal = sum(&|file, _| is_other(file) && names.deleted(file) > 0);
        let fits = !renamed && deleted * 2 >= data.n && journal.n >= data.n;
        let paths = vec![group.path.as_deref()?];
        fits.then_some(Databases { paths, data, journal, is_named: false })
    };
    synced().filter_map(by_deletion).max_by_key(|found| found.data.n)
}

/// The same where the syncs show no file, as on btrfs: they write its trees alone. Then the files that are written name the database.
fn written_database(seen: &Seen<'_>, all: Syncs, of: &str) -> Vec<Remedy> {
    let by_file = || seen.calls.by_file.iter();
    let (total, _) = seen.calls.total(is_sync);
    let shown: u64 =
        by_file().filter(|group| is_sync(&group.call) && group.path.is_some()).map(|group| group.ns.n).sum();
    // Syncs on other file systems show their files. Another program's database is none of this one's.
    let hidden = total.saturating_sub(shown);
    if hidden * 4 < all.n * 3 || all.n * 4 < hidden * 3 {
        return Vec::new();
    }
    let path = |group: &CallGroup| group.path.clone().map(|path| path.trim_end_matches(" (deleted)").to_owned());
    let writes = || by_file().filter(|group| is_write(&group.call));
    let paths: BTreeSet<String> = by_file().filter_map(path).collect();
    // The database, and how often its journal or log is written. With a log a journal is there only when it begins.
    let with = |end: &str| {
        let of_log = |group: &CallGroup| Some((path(group)?.strip_suffix(end)?.to_owned(), group.ns.n));
        let mut by_database: BTreeMap<String, u64> = BTreeMap::new();
        for (database, n) in writes().filter_map(of_log) {
            *by_database.entry(database).or_default() += n;
        }
        by_database.into_iter().filter(|(database, _)| paths.contains(database)).max_by_key(|(_, n)| *n)
    };
    let (journal, log) = (with("-journal"), with("-wal"));
    let often = |one: &Option<(String, u64)>| one.as_ref().map_or(0, |(_, n)| *n);
    let [journal, log] = match often(&log) >= often(&journal) {
        true => [None, log],
        false => [journal, None],
    };
    let next = "try it, and compare the time in its syncs: flashscope diff";
    let remedy = |what: String, line: &str, missing: &str, risk: &str| Remedy {
        what,
        steps: vec![Step::Code { line: line.to_owned() }],
        gain: Evidence::unknown(missing, next),
        risk: risk.to_owned(),
    };
    let first = journal.map(|(database, _)| {
        let log = remedy(
            format!("Have SQLite keep a write-ahead log for {database} instead of a rollback journal"),
            "PRAGMA journal_mode=WAL;",
            "which of these syncs are the journal's is not in the trace",
            RISK_OF_LOG,
        );
        (log, format!("Put ten changes of {database} into one transaction"))
    });
    let found = first.or_else(|| {
        let (database, _) = log?;
        let normal = remedy(
            format!(
                "Where the last transactions may be lost: have SQLite sync {database}-wal before a checkpoint alone"
            ),
            "PRAGMA synchronous=NORMAL;",
            "which of these syncs are a checkpoint's is not in the trace",
            RISK_OF_NORMAL,
        );
        Some((
            normal,
            format!(
                "Put ten changes of {database} into one transaction: SQLite syncs its write-ahead log once for each"
            ),
        ))
    });
    found.map_or(Vec::new(), |(first, transactions)| vec![first, ten_changes(transactions, all.n, of)])
}

/// SQLite with a write-ahead log, `DATABASE-wal`, syncs it after each transaction; with `synchronous=NORMAL` before a checkpoint alone
/// (sqlite.org/pragma.html).
pub(super) fn write_ahead_log(seen: &Seen<'_>, all: Syncs, of: &str) -> Vec<Remedy> {
    let synced = || seen.calls.by_file.iter().filter(|group| all.may_be_of(group));
    let path = |group: &CallGroup| group.path.clone().map(|path| path.trim_end_matches(" (deleted)").to_owned());
    let log_of = |group: &CallGroup| path(group).and_then(|path| Some(path.strip_suffix("-wal")?.to_owned()));
    let log: Syncs = synced().filter(|group| log_of(group).is_some()).map(Syncs::of).sum();
    let databases: BTreeSet<String> = synced().filter_map(log_of).collect();
    let is_database = |group: &&CallGroup| path(group).is_some_and(|path| databases.contains(&path));
    let data: Syncs = synced().filter(is_database).map(Syncs::of).sum();
    // Only if they are most of this process's syncs; else the database may be another process's.
    if log.n * 2 <= all.n || log.n > all.n * 2 {
        return Vec::new();
    }
    let most = synced().filter(|group| log_of(group).is_some()).max_by_key(|group| group.ns.n);
    let name = most.and_then(log_of).unwrap_or_default();
    let (of_what, its_log, logs) = match databases.len() as u64 {
        0 | 1 => (name.clone(), "its write-ahead log", format!("{name}-wal")),
        n => {
            let all = format!("{} databases (most often synced: {name})", grouped(n));
            (format!("each of {all}"), "a write-ahead log", format!("the write-ahead logs of {all}"))
        }
    };
    let gain = |then: u64, cost: [f64; 2], basis: String| {
        let part = |cost: f64| (100.0 * (1.0 - cost * then as f64 / all.n as f64)).clamp(0.0, 100.0);
        Gain { of: of.to_owned(), least_percent: part(cost[1]), most_percent: part(cost[0]), basis }
    };
    let transactions = ten_changes(
        format!("Put ten changes of {of_what} into one transaction: SQLite syncs {its_log} once for each"),
        all.n,
        of,
    );
    // A checkpoint syncs the log and the database, and the last connection makes one when it closes.
    let then = (data.n + databases.len() as u64) * 2;
    let normal = Remedy {
        what: format!("Where the last transactions may be lost: have SQLite sync {logs} before a checkpoint alone"),
        steps: vec![Step::Code { line: "PRAGMA synchronous=NORMAL;".to_owned() }],
        gain: gain(
            then,
            CHECKPOINT_COST,
            format!(
                "at most {} calls, two for each checkpoint, in place of {}, each at {} to {} times what one takes now",
                grouped(then),
                grouped(all.n),
                CHECKPOINT_COST[0],
                CHECKPOINT_COST[1]
            ),
        )
        .into(),
        risk: RISK_OF_NORMAL.to_owned(),
    };
    match then * 2 < all.n {
        true => vec![normal, transactions],
        false => vec![transactions],
    }
}

/// A tenth of the transactions, with their syncs.
fn ten_changes(what: String, n: u64, of: &str) -> Remedy {
    let part = |cost: f64| (100.0 * (1.0 - cost * n.div_ceil(10) as f64 / n as f64)).clamp(0.0, 100.0);
    Remedy {
        what,
        steps: vec![Step::Code { line: "BEGIN; /* ten changes */ COMMIT;".to_owned() }],
        gain: Gain {
            of: of.to_owned(),
            least_percent: part(SYNC_COST[1]),
            most_percent: part(SYNC_COST[0]),
            basis: format!(
                "a tenth of the calls, each at {} to {} times what one takes now",
                SYNC_COST[0], SYNC_COST[1]
            ),
        }
        .into(),
        risk: "a power cut loses up to ten changes more; other connections wait longer for a transaction".to_owned(),
    }
}

/// One sync of the log for each transaction. A log that grows waits for new data and for the file's new size, as the journal's syncs do
/// together. Otherwise it overwrites blocks, as the database's sync does.
fn gain_of_log(all: Syncs, data: Syncs, journal: Syncs, of: &str) -> Gain {
    let a_transaction = |ns: u64| ns / data.n.max(1);
    let costs = [(a_transaction(data.ns) as f64 * CHEAP_LOG) as u64, a_transaction(journal.ns)];
    let [least, most] = [costs[0].min(costs[1]), costs[0].max(costs[1])];
    let gain = |cost: u64| (100.0 - percent(cost.saturating_mul(data.n), all.ns)).max(0.0);
    Gain {
        of: of.to_owned(),
        least_percent: gain(most),
        most_percent: gain(least),
        basis: format!(
            "one call for each of {} transactions in place of {:.1}; it takes {} ({CHEAP_LOG} times what one of the database takes \
             now) to {} (what those of the journal take together)",
            grouped(data.n),
            all.n as f64 / data.n.max(1) as f64,
            duration(costs[0]),
            duration(costs[1]),
        ),
    }
}

/// PostgreSQL's processes each sync the log, `pg_wal/SEGMENT`, when a transaction is committed.
pub(super) fn commit_log(seen: &Seen<'_>, all: Syncs, of: &str) -> Option<Remedy> {
    let synced = seen.calls.by_file.iter().filter(|group| is_sync(&group.call));
    let of_log = |group: &&CallGroup| group.path.as_deref().is_some_and(|path| path.contains("/pg_wal/"));
    let log: Syncs = synced.filter(of_log).map(Syncs::of).sum();
    // Only if they are most of these processes' syncs; else the log may be another server's.
    let fits = log.n * 2 > all.n && log.n <= all.n * 2;
    let then = seen.span_ns / POSTGRESQL_LOG_NS + 1;
    if !fits || then >= all.n {
        return None;
    }
    let gain = |cost: f64| (100.0 * (1.0 - cost * then as f64 / all.n as f64)).clamp(0.0, 100.0);
    Some(Remedy {
        what: "Where the last transactions may be lost: have PostgreSQL commit before its log is on the device".to_owned(),
        steps: vec![
            Step::Code { line: "ALTER SYSTEM SET synchronous_commit = off;".to_owned() },
            Step::Code { line: "SELECT pg_reload_conf();".to_owned() },
        ],
        gain: Gain {
            of: of.to_owned(),
            least_percent: gain(POSTGRESQL_COST[1]),
            most_percent: gain(POSTGRESQL_COST[0]),
            basis: format!(
                "at most {} calls, one every 200 ms (wal_writer_delay, its default), in place of {}, each at {} to {} times what one takes now",
                grouped(then),
                grouped(all.n),
                POSTGRESQL_COST[0],
                POSTGRESQL_COST[1],
            ),
        }
        .into(),
        risk: "a crash loses what was committed in the last 0.6 s (three times wal_writer_delay, here its default); the database stays \
               consistent"
            .to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::fsync_storm::find;
    use super::super::testing::{Work, only};
    use super::*;

    #[test]
    fn a_rollback_journal_of_sqlite_is_told() {
        for (path, told) in
            [("/data/db-journal (deleted)", true), ("/data/db-wal", false), ("/data/other-journal", false)]
        {
            let mut work = Work::new(1_300_000_000);
            work.call("fdatasync", "sqlite3 (7)", 600, 1_100_000_000, 0);
            for (inode, path, n, ns) in [(14, path, 302, 880_000_000), (13, "/data/db", 151, 220_000_000)] {
                work.path_call("fdatasync", (&format!("7:0 inode {inode}"), path), n, ns);
            }
            let remedy = only(find(&work.seen())).advice.remove(0);
            assert_eq!(remedy.what.contains("write-ahead log for /data/db"), told, "{remedy:?}");
            if told {
                let gain = remedy.gain.known().expect("a range");
                // 1,100 ms less 880 ms of the journal; less a quarter of the database's 220 ms.
                assert_eq!((gain.least_percent.round(), gain.most_percent.round()), (20.0, 95.0), "{gain:?}");
            }
        }
    }

    /// 183 syncs of a database and its journal, all with fdatasync(), and 200 fsync() of a log by another program.
    #[test]
    fn a_program_that_syncs_with_another_call_has_no_part_in_a_database() {
        for (call, told) in [("fsync", false), ("fdatasync", true)] {
            let mut work = Work::new(1_300_000_000);
            work.call(call, "python3 (7)", 200, 600_000_000, 0);
            for (inode, path, n) in [(14, "/data/db-journal (deleted)", 122), (13, "/data/db", 61)] {
                work.path_call("fdatasync", (&format!("7:0 inode {inode}"), path), n, 200_000_000);
            }
            work.path_call("fsync", ("7:0 inode 15", "/data/log"), 200, 600_000_000);
            let advice = only(find(&work.seen())).advice;
            assert_eq!(advice[0].what.contains("SQLite"), told, "{call}: {advice:?}");
        }
    }

    /// On btrfs each sync shows a block of its trees, inode 1.
    #[test]
    fn a_database_is_known_by_what_is_written_where_syncs_show_no_file() {
        for (ends, others, told) in [
            ("-journal (deleted)", 0, "instead of a rollback journal"),
            ("-wal", 0, "before a checkpoint alone"),
            ("-index", 0, "Sync once for 10 records"),
            // Another program syncs more.
            ("-wal", 900, "Sync once for 10 records"),
        ] {
            let mut work = Work::new(1_300_000_000);
            work.call("fdatasync", "python3 (7)", 320, 1_000_000_000, 0);
            if others > 0 {
                work.call("fsync", "other (8)", others, 10_000_000, 0);
            }
            work.file_call("fdatasync", "0:39 inode 1", 320, 1_000_000_000);
            // A compiler beside it syncs files of ext4, which are shown.
            work.call("fsync", "cc1 (9)", 600, 10_000_000, 0);
            work.path_call("fsync", ("8:0 inode 77", "/tmp/a.o"), 600, 10_000_000);
            work.path_call("pwrite64", ("0:39 inode 257", "/data/db"), 160, 1_000_000);
            work.path_call("pwrite64", ("0:39 inode 300", &format!("/data/db{ends}")), 240, 1_000_000);
            // Its first transaction, which chooses the log, has a journal.
            if ends == "-wal" {
                work.path_call("pwrite64", ("0:39 inode 301", "/data/db-journal (deleted)"), 3, 1_000_000);
            }
            let advice = only(find(&work.seen())).advice;
            assert!(advice[0].what.contains(told), "{advice:?}");
            if told.contains("log") {
                // 32 calls of 320, at 0.1 to 4 times what one takes now.
                let gain = advice[1].gain.known().expect("a range");
                assert_eq!((gain.least_percent, gain.most_percent), (60.0, 99.0));
            }
        }
    }

    #[test]
    fn a_journal_that_nobody_saw_is_known_by_its_deletions() {
        use serde_json::json;
        // What is renamed over a file deletes the one before: that is no journal.
        for (deleted, renamed, told) in [(150, 0, true), (10, 0, false), (150, 300, false)] {
            let mut work = Work::new(1_300_000_000);
            work.call("rename", "sqlite3 (7)", renamed, 1_000_000, 0);
            let file = |i: u64| json!({"device": "7:0", "inode": 14, "why": "deleted", "until_ns": i});
            let files: Vec<_> = (1..=deleted).map(file).collect();
            work.storage.file_names = flashscope_trace::FileNames::of_facts(&json!({"names": {"files": files}}));
            work.call("fdatasync", "sqlite3 (7)", 600, 1_100_000_000, 0);
            work.file_call("fdatasync", "7:0 inode 14", 300, 600_000_000);
            work.path_call("fdatasync", ("7:0 inode 13", "/data/db"), 150, 300_000_000);
            let remedy = only(find(&work.seen())).advice.remove(0);
            assert_eq!(
                remedy.what.starts_with("It syncs /data/db, and as often files that are deleted"),
                told,
                "{remedy:?}"
            );
            assert_eq!(remedy.what.contains("write-ahead log"), told, "{remedy:?}");
        }
    }

    /// A log that already is written ahead: its inode had a rollback journal before, and the database is synced at its end.
    #[test]
    fn a_write_ahead_log_is_not_advised_again() {
        for (database, told) in [(2, false), (60, true)] {
            let mut work = Work::new(1_300_000_000);
            work.call("fdatasync", "sqlite3 (7)", 205 + database, 900_000_000, 0);
            for (inode, path, n) in [(14, "/data/db-journal (deleted)", 205), (13, "/data/db", database)] {
                work.path_call("fdatasync", (&format!("7:0 inode {inode}"), path), n, n * 3_000_000);
            }
            let remedy = only(find(&work.seen())).advice.remove(0);
            assert_eq!(remedy.what.contains("write-ahead log"), told, "{remedy:?}");
        }
    }

    /// Transactions of a write-ahead log: the log is synced for each, and both files at a checkpoint.
    #[test]
    fn a_write_ahead_log_is_told_what_syncs_it_less() {
        for (log, data, first) in [(200, 2, "PRAGMA synchronous=NORMAL;"), (40, 30, "BEGIN; /* ten changes */ COMMIT;")]
        {
            let mut work = Work::new(1_300_000_000);
            work.call("fdatasync", "sqlite3 (7)", log + data, 900_000_000, 0);
            for (inode, path, n) in [(14, "/data/db-wal (deleted)", log), (13, "/data/db", data)] {
                work.path_call("fdatasync", (&format!("7:0 inode {inode}"), path), n, n * 3_000_000);
            }
            let finding = only(find(&work.seen()));
            assert_eq!(finding.advice[0].steps, [Step::Code { line: first.into() }], "{:?}", finding.advice);
            assert!(finding.advice[0].what.contains("/data/db"), "{:?}", finding.advice);
            let gain = finding.advice[0].gain.known().expect("a range");
            if data == 2 {
                // Six calls, each at a tenth to ten times, in place of 202.
                assert_eq!((gain.least_percent.round(), gain.most_percent.round()), (70.0, 100.0), "{gain:?}");
                assert!(finding.advice[1].what.starts_with("Put ten changes of /data/db into one transaction"));
            }
        }
    }

    #[test]
    fn several_write_ahead_logs_are_told_together() {
        let mut work = Work::new(1_300_000_000);
        work.call("fdatasync", "app (7)", 303, 900_000_000, 0);
        for (inode, path, n) in [(14, "/d/a-wal (deleted)", 101), (15, "/d/b-wal", 100), (16, "/d/c-wal", 99)] {
            for (inode, path, n) in [(inode, path, n), (inode + 10, path.split('-').next().expect("a path"), 1)] {
                work.path_call("fdatasync", (&format!("7:0 inode {inode}"), path), n, n * 3_000_000);
            }
        }
        let advice = only(find(&work.seen())).advice;
        let all = "3 databases (most often synced: /d/a)";
        assert!(advice[0].what.ends_with(&format!("the write-ahead logs of {all} before a checkpoint alone")));
        assert!(advice[1].what.starts_with(&format!("Put ten changes of each of {all}")), "{advice:?}");
        // Three checkpoints and one more of each, two calls each, in place of 303.
        let gain = advice[0].gain.known().expect("a range");
        assert!((60.0..60.5).contains(&gain.least_percent) && gain.most_percent > 99.0, "{gain:?}");
    }

    /// Each has a third of the syncs: none alone has most of them. And three of one connection, whose journals had one number.
    #[test]
    fn several_databases_are_told_together() {
        use serde_json::json;
        for journals in [3, 1] {
            let mut work = Work::new(1_300_000_000);
            work.call("fdatasync", "app (7)", 450, 900_000_000, 0);
            let mut files = vec![(11, "/d/a", 51), (12, "/d/b", 50), (13, "/d/c", 49)];
            if journals == 3 {
                files.extend([(21, "/d/a-journal", 100), (22, "/d/b-journal", 100), (23, "/d/c-journal", 100)]);
            } else {
                let had = |until: u64, path| json!({"device": "7:0", "inode": 21, "path": path, "until_ns": until});
                let rows = [had(5, "/d/a-journal"), had(6, "/d/b-journal"), had(7, "/d/c-journal")];
                let names = json!({"names": {"files": rows}});
                work.storage.file_names = flashscope_trace::FileNames::of_facts(&names);
                files.push((21, NAMELESS, 300));
            }
            for (inode, path, n) in files {
                work.path_call("fdatasync", (&format!("7:0 inode {inode}"), path), n, n * 2_000_000);
            }
            let remedy = only(find(&work.seen())).advice.remove(0);
            assert!(remedy.what.contains("write-ahead log for 3 databases (most often synced: /d/a)"), "{remedy:?}");
        }
    }

    /// Each process has its own database; and a process beside it that made the tables.
    #[test]
    fn processes_with_databases_are_told_together_unless_one_has_nearly_all() {
        for (other, told) in [(200, "2 tasks called sqlite3 spend"), (4, "sqlite3 (7) spends")] {
            let mut work = Work::new(1_300_000_000);
            work.call("fdatasync", "sqlite3 (7)", 600, 800_000_000, 0);
            work.call("fdatasync", "sqlite3 (8)", other, other * 1_000_000, 0);
            for (inode, path, n) in [(13, "/d/a", 200), (14, "/d/a-journal", 400 + other)] {
                work.path_call("fdatasync", (&format!("7:0 inode {inode}"), path), n, n * 1_000_000);
            }
            let found = find(&work.seen());
            assert!(found[0].what.starts_with(told), "{found:?}");
        }
    }

    /// Measured with pgbench: 482 calls, 4.74 s; with the setting 27 calls, 65 ms.
    #[test]
    fn the_log_of_postgresql_is_told() {
        for (path, told) in [("/pg/data/pg_wal/000000010000000000000005", true), ("/pg/data/base/5/16397", false)] {
            let mut work = Work::new(5_180_000_000);
            for tid in 0..4 {
                work.call("fdatasync", &format!("postgres ({})", 5904 + tid), 120, 1_185_000_000, 0);
            }
            work.path_call("fdatasync", ("7:0 inode 13", path), 480, 4_740_000_000);
            let finding = only(find(&work.seen()));
            assert_eq!(
                finding.what,
                format!(
                    "4 tasks called postgres spend 4.74 s in all, within 5.18 s, in 480 calls of fdatasync() of {path}."
                )
            );
            let remedy = &finding.advice[0];
            assert_eq!(
                remedy.steps[0] == Step::Code { line: "ALTER SYSTEM SET synchronous_commit = off;".into() },
                told
            );
            let gain = remedy.gain.known().expect("a range");
            if told {
                assert_eq!((gain.least_percent.round(), gain.most_percent.round()), (78.0, 99.0), "{gain:?}");
            }
        }
    }
}
