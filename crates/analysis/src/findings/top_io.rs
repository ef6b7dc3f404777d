//! The largest readers and writers: process, file, device.

use super::{Finding, MeasureUnit, Rule, Seen, StorageFacts, Weight, groups, measure, percent};
use crate::block::{BlockFound, FURTHER_FILES, FormerName, Group, GroupBy, IN_PIECES, Originator, OwnerKind};
use crate::total::Total as _;
use crate::units::{counted, grouped, size};
use crate::{Evidence, OWN_RECORDING, task_label, task_name};
use flashscope_trace::{FileId, TaskId};
use std::collections::HashMap;

/// Least number of bytes for naming the largest reader or writer.
const MIN_BYTES: u64 = 4096;
/// What is read is not worth a word beside what is written, or the other way round: less than both, bytes and percent.
const MIN_MOVED_BYTES: u64 = 1 << 20;
const MIN_MOVED_PERCENT: f64 = 2.0;
/// Least share of the largest reader or writer, percent.
const MIN_SHARE_PERCENT: f64 = 2.0;
/// Up to this share without a known owner, the answer stays the same, percent.
const MIN_UNKNOWN_PERCENT: f64 = 1.0;
/// From this share on, if it is more than the first program has, nobody known comes first, percent.
const MOST_UNKNOWN_PERCENT: f64 = 25.0;

/// A write returns once its data is in memory; the kernel writes it up to half a minute later (vm.dirty_expire_centisecs).
const UNSEEN: &str = "No event here says who changed those pages: that was before the recording began, or through a mapping. The \
                      kernel writes pages up to 30 s after their change: record for longer than that.";

/// More pieces than are followed ([`crate::bounded::MOST_PIECES`]).
const MANY_PIECES: &str =
    "The pages of these writes lie in so many pieces that flashscope does not follow who changed each of them.";

/// Its compressed and checked pages are handed on to workers, in bios that no bracket of an inode encloses.
const OF_BTRFS: &str = "btrfs hands changed pages to workers of the kernel, and no event says whose they are. Who brings pages into the \
                        page cache is under Files.";

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let Some(found) = seen.block else { return Vec::new() };
    let all = shown(seen, found);
    let in_all = all.iter().fold(0u64, |sum, one| sum.saturating_add(one.read_bytes).saturating_add(one.written_bytes));
    let mut findings = Vec::new();
    for (verb, done, of, under) in [
        ("writes", "written", (|one| one.written_bytes) as fn(&Originator) -> u64, (|one| one.written_bytes) as OfName),
        ("reads", "read", |one| one.read_bytes, |one| one.read_bytes),
    ] {
        let sum: u64 = all.iter().fold(0, |sum: u64, one| sum.saturating_add(of(one)));
        let kind = |kind: OwnerKind| all.iter().copied().filter(move |one| one.kind == kind);
        let bytes = |kind_of: OwnerKind| kind(kind_of).map(of).fold(0, u64::saturating_add);
        // Operations without data, such as write zeroes, are no reads of a kernel thread.
        let programs = programs(kind(OwnerKind::Task), of, under);
        let first = programs.iter().max_by_key(|one| one.bytes).filter(|one| one.bytes >= MIN_BYTES);
        let Some(first) = first.filter(|_| sum >= MIN_MOVED_BYTES || percent(sum, in_all) >= MIN_MOVED_PERCENT) else {
            continue;
        };
        let source = source_of(verb);
        let (name, verb_of) = (first.label.clone(), if first.tasks > 1 { &verb[..verb.len() - 1] } else { verb });
        let unknown = bytes(OwnerKind::Unknown);
        // Then the sum counts some bytes twice, and shares of it mean nothing.
        let is_doubled = |device: &str| !is_seen(found, device) && !is_alone(found, device);
        let doubled = found.loops.iter().find(|one| one.backing.known().is_none() && is_doubled(&one.device));
        // What is of nobody known may be what the disk beneath does for the loop device: then it is not another one's.
        let beneath = doubled.map_or(0, |one| beneath(found, &one.device, verb));
        // Whoever leads among the rest leads nothing; a small part is a remark.
        let may_be_more = unknown > first.bytes.saturating_add(beneath);
        let mostly_unknown = may_be_more && (doubled.is_some() || percent(unknown, sum) >= MOST_UNKNOWN_PERCENT);
        if !mostly_unknown && percent(first.bytes, sum) < MIN_SHARE_PERCENT {
            continue;
        }
        let mut cause = String::new();
        if mostly_unknown {
            cause += &why_unknown(seen, found, verb);
            cause += &format!(" Of the rest {name} {verb_of} most: {}.", size(first.bytes));
        }
        if verb == "writes" && bytes(OwnerKind::Kernel) > 0 {
            cause += &format!(" {} are journal and metadata.", size(bytes(OwnerKind::Kernel)));
        }
        if percent(unknown, sum) >= MIN_UNKNOWN_PERCENT && !mostly_unknown && unknown > beneath {
            cause += &format!(" For whom {} were {done} is unknown.", size(unknown));
        }
        let (which, went) = match verb {
            "writes" => (most(seen.storage, found, |file| file.written_bytes), "go into"),
            _ => (most(seen.storage, found, |file| file.read_bytes), "come from"),
        };
        if let Some(one) = doubled {
            cause += &format!(
                " What the disk beneath {} does for it counts as I/O of its own: of how much this is a part is unknown.",
                seen.storage.device_name(&one.device)
            );
        }
        // With less than half in one file there is no such file; the recorder's own is never one. Where no owner is known, a part helps.
        let least = if mostly_unknown { sum / 10 } else { sum.div_ceil(2) };
        if let Some((file, bytes)) = which.filter(|(_, bytes)| *bytes >= least) {
            cause += &format!(" {} of all {went} {file}.", size(bytes));
        }
        let peers = programs.iter().filter(|one| one.bytes == first.bytes).count() as u64 - 1;
        let mut evidence = vec![measure(&format!("{done} for {name}"), first.bytes as f64, MeasureUnit::Bytes, source)];
        if mostly_unknown {
            evidence
                .insert(0, measure(&format!("{done} for nobody known"), unknown as f64, MeasureUnit::Bytes, source));
        }
        if doubled.is_none() {
            evidence.push(measure(&format!("{done} in all"), sum as f64, MeasureUnit::Bytes, source));
        }
        findings.push(Finding {
            rule: Rule::TopIo,
            weight: Weight::Overview,
            // If several do equally much, none is named.
            processes: Vec::new(),
            what: match doubled {
                Some(_) if mostly_unknown => format!("For whom {} were {done} is unknown.", size(unknown)),
                None if mostly_unknown => {
                    format!("For whom {} of {} were {done} is unknown.", size(unknown), size(sum))
                }
                _ if peers > 0 => {
                    format!("{name} {verb_of} {}, and {} as much.", size(first.bytes), counted(peers, "other program"))
                }
                _ if seen.is_of_process && first.bytes == sum => format!("{name} {verb_of} {}.", size(sum)),
                Some(_) => format!("{name} {verb_of} most: {}.", size(first.bytes)),
                None => format!(
                    "{}{name} {verb_of} most: {} of {} ({:.0} %).",
                    among(bytes(OwnerKind::Kernel) > first.bytes, may_be_more),
                    size(first.bytes),
                    size(sum),
                    percent(first.bytes, sum)
                ),
            },
            cause: cause.trim_start().to_owned(),
            evidence,
            lost_ns: Evidence::unknown("an overview: it names no lost time", ""),
            lost_bytes: Some(if mostly_unknown { unknown } else { first.bytes }),
            advice: Vec::new(),
            uncertain: None,
        });
    }
    findings
}

fn source_of(verb: &str) -> &'static str {
    match verb {
        "writes" => "block:block_bio_queue, and the task that made the page dirty",
        _ => "block:block_bio_queue",
    }
}

/// Why the owner of most of the bytes read or written is unknown.
fn why_unknown(seen: &Seen<'_>, found: &BlockFound, verb: &str) -> String {
    match (verb, found.originators.written_unknown_bytes.why()) {
        ("writes", None) if is_on_btrfs(seen) => OF_BTRFS.to_owned(),
        ("writes", None) => unseen(found),
        ("writes", Some(why)) => format!("Who changes pages is not in this trace: {}.", why.missing),
        _ => String::new(),
    }
}

/// Pages that nobody is known of: changed without an event here, or not followed because they are too many, or in too many pieces.
fn unseen(found: &BlockFound) -> String {
    let unknown = || found.originators.originators.iter().filter(|one| one.kind == OwnerKind::Unknown);
    let pieces = unknown().filter(|one| one.name == IN_PIECES).map(|one| one.written_bytes).total();
    if pieces.saturating_mul(2) >= unknown().map(|one| one.written_bytes).total() {
        return MANY_PIECES.to_owned();
    }
    match found.originators.pages_given_up {
        0 => UNSEEN.to_owned(),
        pages => format!(
            "{} changed pages are too many, or in too many pieces, to be followed. Of others: {UNSEEN}",
            grouped(pages)
        ),
    }
}

/// Among whom the first one does most: a journal does more, or may do more, as nobody known may.
fn among(kernel_does_more: bool, unknown_may_do_more: bool) -> &'static str {
    match (kernel_does_more, unknown_may_do_more) {
        (_, true) => "Of the known programs ",
        (true, false) => "Of the programs ",
        (false, false) => "",
    }
}

/// The recorder's own I/O is no workload. If one program is selected, others have no group.
fn shown<'a>(seen: &Seen<'_>, found: &'a BlockFound) -> Vec<&'a Originator> {
    let has_group = |one: &Originator| groups(found, GroupBy::Owner).any(|group| one.is_called(&group.name));
    let all = found.originators.originators.iter().filter(|one| !one.name.starts_with(OWN_RECORDING));
    all.filter(|one| !seen.is_of_process || has_group(one)).collect()
}

/// Tasks of one name: a script starts the same program again and again, and each does little.
struct Program {
    /// With the number where it is one task.
    label: String,
    tasks: u64,
    bytes: u64,
}

type OfName = fn(&FormerName) -> u64;

/// A task under its last name, with the bytes that are not of one of the others.
fn under_last(task: &Originator, of: fn(&Originator) -> u64, under: OfName) -> (&str, String, u64) {
    let Originator { tid, name, .. } = task;
    let label = match task_name(name) {
        // An application has no thread number: 0.
        short if *tid != TaskId(0) && short == name && *name != format!("tid {tid}") => format!("{name} ({tid})"),
        _ => name.clone(),
    };
    let others = task.under_former_names.iter().map(under).total();
    (task_name(name), label, of(task).saturating_sub(others))
}

/// Those that did some of it, in the order in which the first of each name stands in the trace's list. After an `exec` a task is another
/// program.
fn programs<'a>(
    tasks: impl Iterator<Item = &'a Originator>,
    of: fn(&Originator) -> u64,
    under: OfName,
) -> Vec<Program> {
    let mut programs: Vec<Program> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    let parts = tasks.flat_map(|task| {
        let label = |name: &str| match task.tid {
            TaskId(0) => name.to_owned(),
            tid => task_label(name, tid, task.ordinal.unwrap_or(1)),
        };
        let former = task.under_former_names.iter().map(move |one| (one.name.as_str(), label(&one.name), under(one)));
        std::iter::once(under_last(task, of, under)).chain(former)
    });
    for (name, label, bytes) in parts.filter(|(.., bytes)| *bytes > 0) {
        let place = *places.entry(name).or_insert(programs.len());
        match programs.get_mut(place) {
            Some(program) => {
                program.tasks += 1;
                program.bytes = program.bytes.saturating_add(bytes);
                program.label = format!("{} tasks named {name}", program.tasks);
            }
            None => programs.push(Program { label, tasks: 1, bytes }),
        }
    }
    programs
}

/// The file with most bytes of all tasks, and its bytes.
fn most(storage: &StorageFacts, found: &BlockFound, moved: impl Fn(&Group) -> Option<u64>) -> Option<(String, u64)> {
    // The group of all unlisted files is not a file.
    let files = groups(found, GroupBy::File).filter(|file| file.name != FURTHER_FILES);
    let files = files.filter_map(|file| Some((file, moved(file)?)));
    let (file, bytes) = files.max_by_key(|(_, bytes)| *bytes).filter(|(_, bytes)| *bytes > 0)?;
    // Its path alone: the device that it lies on would say little here.
    let unnamed = || match FileId::parse(&file.name) {
        Some(FileId { device: Some(device), inode }) => storage.file_name(&device.to_string(), inode),
        _ => file.name.clone(),
    };
    Some((file.path.clone().unwrap_or_else(unnamed), bytes))
}

/// Bytes that a device `reads` or `writes`.
fn moved(found: &BlockFound, device: &str, verb: &str) -> u64 {
    let name = format!("{device} {verb}");
    groups(found, GroupBy::Device).find(|group| group.name == name).map_or(0, |group| group.bytes)
}

/// What a disk may have done for a loop device, at most: no more than the loop device did, and than other devices did.
fn beneath(found: &BlockFound, device: &str, verb: &str) -> u64 {
    let is_other = |group: &&Group| group.name.strip_suffix(verb).is_some_and(|name| name.trim_end() != device);
    let others = groups(found, GroupBy::Device).filter(is_other).map(|group| group.bytes);
    moved(found, device, verb).min(others.fold(0, u64::saturating_add))
}

/// Whether the disk beneath a loop device is known to do the work of all of its I/O.
fn is_seen(found: &BlockFound, device: &str) -> bool {
    let of = found.groups.iter().filter(|group| group.by == GroupBy::Device);
    let bytes = of.filter(|group| group.name.split(' ').next() == Some(device)).map(|group| group.bytes).total();
    found.stack.iter().any(|level| level.upper == device && level.upper_bytes >= bytes)
}

/// Whether the trace has bios of this device and of no other, as `record --device` leaves them.
fn is_alone(found: &BlockFound, device: &str) -> bool {
    let is_it = |group: &Group| group.name.split(' ').next() == Some(device);
    let mut all = groups(found, GroupBy::Device).peekable();
    all.peek().is_some() && all.all(is_it)
}

/// Whether a disk that the trace has bios of is mounted as btrfs.
fn is_on_btrfs(seen: &Seen<'_>) -> bool {
    let mut mounts = seen.storage.mounts.iter().filter(|mount| mount.kind == "btrfs");
    mounts.any(|mount| {
        let is_source = |name: &str| mount.source.strip_prefix("/dev/") == Some(name);
        seen.storage.disks.iter().any(|disk| is_source(&disk.name) && seen.is_used(&disk.device))
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::Work;
    use super::*;

    #[test]
    fn of_one_program_no_other_is_named() {
        let mut work = Work::new(1_000_000);
        work.bios_of("player", 10, "R", 1_000, 9_000);
        work.owner("tar", OwnerKind::Task, 1 << 20, 3 << 20);
        assert_eq!(find(&work.seen()).len(), 2);
        work.is_of_process = true;
        let found = find(&work.seen());
        assert_eq!(found.iter().map(|one| one.what.as_str()).collect::<Vec<_>>(), ["player (7) reads 40 KiB."]);
    }

    /// python3 writes 30 MiB and then executes dd, which writes 20 MiB and reads 8: one task, two programs.
    #[test]
    fn after_an_exec_a_task_is_another_program() {
        let mut work = Work::new(1_000_000);
        work.owner("dd", OwnerKind::Task, 8 << 20, 50 << 20);
        let name = "python3".to_owned();
        work.block().originators.originators[0].under_former_names =
            vec![FormerName { name, read_bytes: 0, written_bytes: 30 << 20 }];
        let what: Vec<_> = find(&work.seen()).into_iter().map(|one| one.what).collect();
        assert_eq!(
            what,
            ["python3 (7) writes most: 30 MiB of 50 MiB (60 %).", "dd (7) reads most: 8 MiB of 8 MiB (100 %)."]
        );
        // A shell that executes a program has next to no I/O of its own.
        work.block().originators.originators[0].under_former_names[0].written_bytes = 4096;
        assert!(find(&work.seen())[0].what.starts_with("dd (7) writes most: "), "{:?}", find(&work.seen())[0].what);
        // With another dd they are two of that name.
        work.owner("dd", OwnerKind::Task, 0, 10 << 20);
        assert!(find(&work.seen())[0].what.starts_with("2 tasks named dd write most: "));
    }

    #[test]
    fn small_shares_are_left_out() {
        let what = |work: &mut Work| find(&work.seen()).into_iter().map(|one| one.what).collect::<Vec<_>>();
        let mut work = Work::new(1_000_000);
        work.owner("tar", OwnerKind::Task, 100 << 10, 100 << 20);
        assert_eq!(what(&mut work), ["tar (7) writes most: 100 MiB of 100 MiB (100 %)."]);
        let mut work = Work::new(1_000_000);
        work.owner("cat", OwnerKind::Task, 0, 40 << 10);
        work.owner("jbd2", OwnerKind::Kernel, 0, 60 << 10);
        assert_eq!(what(&mut work), ["Of the programs cat (7) writes most: 40 KiB of 100 KiB (40 %)."]);
        work.owner("kworker/u8:1", OwnerKind::Unknown, 0, 50 << 10);
        work.owner("jbd2", OwnerKind::Kernel, 0, 100 << 10);
        assert_eq!(what(&mut work), ["Of the known programs cat (7) writes most: 40 KiB of 250 KiB (16 %)."]);
        work.owner("jbd2", OwnerKind::Kernel, 0, 60 << 20);
        assert!(what(&mut work).is_empty());
    }

    #[test]
    fn the_most_is_named_for_each_direction() {
        let mut work = Work::new(1_000_000);
        work.owner("tar", OwnerKind::Task, 1 << 20, 3 << 20);
        work.owner("kworker/u8:1", OwnerKind::Unknown, 0, 2 << 20);
        work.owner("player", OwnerKind::Task, 5 << 20, 0);
        let what: Vec<String> = find(&work.seen()).into_iter().map(|finding| finding.what + &finding.cause).collect();
        assert_eq!(what[0], "tar (7) writes most: 3 MiB of 5 MiB (60 %).For whom 2 MiB were written is unknown.");
        assert_eq!(what[1], "player (7) reads most: 5 MiB of 6 MiB (83 %).");
        assert_eq!(what.len(), 2);
        // An application of several processes.
        work.block().originators.originators.iter_mut().for_each(|one| one.tid = TaskId(0));
        assert_eq!(find(&work.seen())[1].what, "player reads most: 5 MiB of 6 MiB (83 %).");
    }

    #[test]
    fn who_wrote_little_of_what_nobody_is_known_for_does_not_write_most() {
        let mut work = Work::new(1_000_000);
        work.owner("cat", OwnerKind::Task, 0, 4096);
        work.owner("kworker/u8:1", OwnerKind::Unknown, 0, 50 << 20);
        let finding = find(&work.seen()).remove(0);
        assert_eq!(finding.what, "For whom 50 MiB of 50 MiB were written is unknown.");
        assert!(finding.cause.contains("record for longer") && finding.cause.ends_with("cat (7) writes most: 4 KiB."));
        assert_eq!((finding.lost_bytes, finding.evidence.len()), (Some(50 << 20), 3));
        work.block().originators.written_unknown_bytes = Evidence::unknown("it has no writeback events", "");
        let finding = find(&work.seen()).remove(0);
        assert!(finding.cause.starts_with("Who changes pages is not in this trace: it has no writeback events."));
    }

    #[test]
    fn pages_that_are_not_followed_were_changed_in_the_recording() {
        let mut work = Work::new(1_000_000);
        work.owner("cat", OwnerKind::Task, 0, 4096);
        work.owner(IN_PIECES, OwnerKind::Unknown, 0, 50 << 20);
        work.owner("kworker/u8:1", OwnerKind::Unknown, 0, 40 << 20);
        work.block().originators.pages_given_up = 12_800;
        let cause = find(&work.seen()).remove(0).cause;
        assert!(
            cause.starts_with("The pages of these writes lie in so many pieces") && !cause.contains("began"),
            "{cause}"
        );
        // Most is a worker's, and some pages were too many.
        work.owner("kworker/u8:2", OwnerKind::Unknown, 0, 40 << 20);
        let cause = find(&work.seen()).remove(0).cause;
        assert!(
            cause.starts_with("12,800 changed pages are too many") && cause.contains("before the recording began"),
            "{cause}"
        );
    }

    /// Its files have a number that no disk has: the disk is found by the mount's source.
    #[test]
    fn workers_of_btrfs_write_what_was_changed_in_the_recording() {
        use super::super::{Disk, Mount};
        let mut work = Work::new(1_000_000);
        work.bios(10, "W", 1_000, 1_000);
        work.owner("kworker/u8:1", OwnerKind::Unknown, 0, 50 << 20);
        let mount = |source: &str| Mount { source: source.into(), kind: "btrfs".into(), ..Mount::default() };
        work.storage.disks.push(Disk { name: "sda".into(), device: "8:0".into(), ..Disk::default() });
        work.storage.mounts.push(mount("/dev/sdb"));
        assert!(find(&work.seen())[0].cause.contains("before the recording began"));
        work.storage.mounts.push(mount("/dev/sda"));
        let cause = find(&work.seen()).remove(0).cause;
        assert!(cause.starts_with("btrfs hands changed pages to workers") && !cause.contains("began"), "{cause}");
    }

    #[test]
    fn what_is_written_goes_into_the_file_that_was_written() {
        let mut work = Work::new(1_000_000);
        work.owner("python3", OwnerKind::Task, 0, 2 << 20);
        work.owner("ld", OwnerKind::Task, 40 << 20, 0);
        let group = |inode, path: Option<&str>, read_bytes, written_bytes| Group {
            by: GroupBy::File,
            name: format!("254:0 inode {inode}"),
            path: path.map(str::to_owned),
            bios: 1,
            bytes: read_bytes + written_bytes,
            read_bytes: Some(read_bytes),
            written_bytes: Some(written_bytes),
            stages: Vec::new(),
            distributions: Vec::new(),
        };
        work.block().groups = vec![
            group(9, Some("/lib/c.so"), 30 << 20, 0),
            group(7, Some("/var/log/a"), 10 << 20, 2 << 20),
            group(8, None, 0, 50 << 10),
        ];
        let causes: Vec<String> = find(&work.seen()).into_iter().map(|finding| finding.cause).collect();
        assert_eq!(causes, ["2 MiB of all go into /var/log/a.", "30 MiB of all come from /lib/c.so."]);
        // The file that most was written to is not the one that most was read from, however much it is.
        work.owner("rustc", OwnerKind::Task, 0, 50 << 20);
        work.block().groups.push(group(10, Some("/out.bin"), 0, 50 << 20));
        let causes: Vec<String> = find(&work.seen()).into_iter().map(|finding| finding.cause).collect();
        assert_eq!(causes, ["50 MiB of all go into /out.bin.", "30 MiB of all come from /lib/c.so."]);
        // What is in many files is in none of them.
        let further = Group { name: FURTHER_FILES.to_owned(), ..group(0, None, 0, 900 << 20) };
        work.block().groups.push(further);
        assert_eq!(find(&work.seen())[0].cause, causes[0]);
        // A twentieth of what is read says nothing of where it comes from.
        work.block().groups.iter_mut().for_each(|group| group.read_bytes = Some(2 << 20));
        assert!(find(&work.seen())[1].cause.is_empty());
    }

    #[test]
    fn of_two_that_write_as_much_none_writes_most() {
        let mut work = Work::new(1_000_000);
        work.owner("alpha", OwnerKind::Task, 0, 3 << 20);
        work.owner("beta", OwnerKind::Task, 0, 3 << 20);
        work.owner("gamma", OwnerKind::Task, 0, 1 << 20);
        assert_eq!(find(&work.seen())[0].what, "beta (7) writes 3 MiB, and 1 other program as much.");
    }

    #[test]
    fn a_loop_device_without_any_other_counts_nothing_twice() {
        let mut work = Work::new(1_000_000);
        work.bios(10, "W", 1_000, 10_000);
        work.block().originators.originators.clear();
        work.owner("tar", OwnerKind::Task, 0, 40 << 10);
        let backing = Evidence::unknown("where it lies is not in the trace", "");
        work.block().loops.push(crate::block::LoopFound { device: "8:0".into(), backing });
        let finding = find(&work.seen()).remove(0);
        assert_eq!(
            (finding.what.as_str(), finding.cause.as_str()),
            ("tar (7) writes most: 40 KiB of 40 KiB (100 %).", "")
        );
        let mut beneath = groups(work.block(), GroupBy::Device).next().expect("writes").clone();
        beneath.name = "8:16 writes".to_owned();
        work.block().groups.push(beneath);
        assert!(find(&work.seen())[0].cause.contains("beneath 8:0 does for it counts"));
    }

    /// A script that starts `dd` eight times: no single one of them writes most of it.
    #[test]
    fn tasks_of_one_name_count_together() {
        let mut work = Work::new(1_000_000);
        work.owner("tar", OwnerKind::Task, 0, 2 << 20);
        for tid in 21..29 {
            work.owner("dd", OwnerKind::Task, 0, 1 << 20);
            let one = work.block().originators.originators.iter_mut().rfind(|one| one.name == "dd").expect("a dd");
            (one.tid, one.name) = (TaskId(tid), format!("dd ({tid})"));
        }
        let finding = find(&work.seen()).remove(0);
        assert_eq!(finding.what, "8 tasks named dd write most: 8 MiB of 10 MiB (80 %).");
        assert_eq!(finding.lost_bytes, Some(8 << 20));
        // A greater one beside them.
        work.owner("rsync", OwnerKind::Task, 0, 30 << 20);
        assert_eq!(find(&work.seen())[0].what, "rsync (7) writes most: 30 MiB of 40 MiB (75 %).");
    }

    #[test]
    fn bytes_that_may_count_twice_are_no_whole() {
        let mut work = Work::new(1_000_000);
        work.owner("tar", OwnerKind::Task, 0, 3 << 20);
        work.owner("kworker/u8:1", OwnerKind::Unknown, 0, 3 << 20);
        let backing = Evidence::unknown("where it lies is not in the trace", "");
        work.block().loops.push(crate::block::LoopFound { device: "7:0".into(), backing });
        let finding = find(&work.seen()).remove(0);
        assert_eq!((finding.what.as_str(), finding.evidence.len()), ("tar (7) writes most: 3 MiB.", 1));
        assert!(finding.cause.contains("beneath 7:0 does for it counts"), "{}", finding.cause);
        // More that is nobody's; and the same where all of it may be what the disk does for the loop device.
        work.owner("kworker/u8:2", OwnerKind::Unknown, 0, 1 << 20);
        assert_eq!(find(&work.seen())[0].what, "For whom 4 MiB were written is unknown.");
        work.bios(1024, "W", 1_000, 10_000);
        let mut group = groups(work.block(), GroupBy::Device).next().expect("writes").clone();
        group.name = "7:0 writes".to_owned();
        let mut work = on_a_loop_device();
        work.block().groups.push(group.clone());
        group.name = "254:0 writes".to_owned();
        work.block().groups.push(group);
        let finding = find(&work.seen()).remove(0);
        assert_eq!(finding.what, "tar (7) writes most: 3 MiB.");
        assert!(!finding.cause.contains("For whom"), "{}", finding.cause);
        // The disk itself wrote little: most is of somebody who wrote to the loop device.
        work.block().groups.last_mut().expect("writes").bytes = 4096;
        assert_eq!(find(&work.seen())[0].what, "For whom 4 MiB were written is unknown.");
    }

    /// A loop device of which nobody knows where it lies, and 4 MiB that are nobody's.
    fn on_a_loop_device() -> Work {
        let mut work = Work::new(1_000_000);
        work.owner("tar", OwnerKind::Task, 0, 3 << 20);
        work.owner("kworker/u8:1", OwnerKind::Unknown, 0, 4 << 20);
        let backing = Evidence::unknown("where it lies is not in the trace", "");
        work.block().loops.push(crate::block::LoopFound { device: "7:0".into(), backing });
        work
    }

    #[test]
    fn nobody_is_named_where_nobody_did_anything() {
        let mut work = Work::new(1_000_000);
        work.owner("idle", OwnerKind::Task, 100, 0);
        assert!(find(&work.seen()).is_empty());
    }
}
