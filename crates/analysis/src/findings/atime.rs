//! Access times that are written although programs only read.

use super::{Finding, GroupBy, MeasureUnit, Mount, Remedy, Rule, Seen, Step, gain, groups, measure, percent};
use crate::Evidence;
use crate::block::{BlockFound, FURTHER_FILES};
use crate::calls::{is_read, is_write};
use crate::total::Total as _;
use crate::units::{duration, size};
use flashscope_trace::{Device, FileId, own_data};

/// Fewer reads, bytes, or bytes a second (as on an idle machine) are not worth a mount option.
const MIN_READS: u64 = 10;
const MIN_BYTES: u64 = 32 << 10;
const MIN_BYTES_A_SECOND: u64 = 2048;
/// Least share of the bytes read there, and of the recorded time, percent.
const MIN_READ_PERCENT: f64 = 2.0;
const MIN_SPAN_PERCENT: f64 = 1.0;
/// Least gain of the mount option, percent of the written bytes. The rest at most may be contents of files.
const LEAST_PERCENT: f64 = 80.0;
/// File systems that write access times by default.
const KINDS: [&str; 6] = ["ext2", "ext3", "ext4", "f2fs", "xfs", "btrfs"];

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let all = seen.storage.mounts.iter();
    all.filter(|mount| KINDS.contains(&mount.kind.as_str()) && !mount.has("noatime") && !mount.has("ro"))
        .filter_map(|mount| of_mount(seen, mount))
        .collect()
}

/// Whether a program changed something that the trace cannot assign to a device. Then the writes may come from that.
fn changed_elsewhere(seen: &Seen<'_>) -> bool {
    let changes = |call: &str| {
        [
            "unlink", "unlinkat", "rename", "renameat", "renameat2", "truncate", "ftruncate", "fallocate",
            "copy_file_range",
        ]
        .contains(&call)
    };
    let (placed, _) =
        seen.calls.by_file.iter().filter(|group| is_write(&group.call)).fold((0, 0), |(n, _), g| (n + g.ns.n, 0));
    let (all, _) = seen.calls.total(is_write);
    all > placed || seen.calls.total(changes).0 > 0
}

/// Bytes of file contents written there. A kernel worker writes them for a loop device, or for a program that changed them before the
/// trace. The recorder's file, the journal and the file system's own inodes do not count.
fn written_of_files(found: &BlockFound, mount: &Mount) -> u64 {
    let kind = |device: Device| (device.to_string() == mount.device).then_some(mount.kind.as_str());
    let is_there = |file: &FileId| {
        file.device.is_some_and(|device| kind(device).is_some() && own_data(device, file.inode, kind).is_none())
    };
    let of = groups(found, GroupBy::File).filter(|file| {
        let is_own = || file.path.as_deref().is_some_and(|path| path.starts_with("/run/flashscope/"));
        file.name == FURTHER_FILES || FileId::parse(&file.name).as_ref().is_some_and(is_there) && !is_own()
    });
    of.filter_map(|file| file.written_bytes).fold(0, u64::saturating_add)
}

/// Whether a loop device whose file is on this device is written to.
fn is_written_above(seen: &Seen<'_>, mount: &Mount) -> bool {
    let mut loops = seen.storage.disks.iter().filter(|disk| seen.device_group(&disk.device, "writes").is_some());
    loops.any(|disk| {
        let holds = |target: &str, path: &str| {
            path.strip_prefix(target.trim_end_matches('/')).is_some_and(|rest| rest.starts_with('/'))
        };
        let path = disk.backing_file.as_deref().unwrap_or_default();
        let mounts = seen.storage.mounts.iter().filter(|one| holds(&one.target, path));
        mounts.max_by_key(|one| one.target.len()).is_some_and(|one| one.device == mount.device)
    })
}

/// Reads of files there. A recording of one device has no calls that read: those reads of data that came to the device count.
fn reads_there(seen: &Seen<'_>, mount: &Mount) -> u64 {
    let (reads, ..) = seen.calls_on(&mount.device, is_read);
    let readers = || seen.usage.readers.iter().filter(|reader| reader.device == mount.device);
    match seen.storage.lacks_calls {
        true => readers().map(|reader| reader.bios.saturating_sub(reader.metadata_bios)).total(),
        false => reads,
    }
}

fn of_mount(seen: &Seen<'_>, mount: &Mount) -> Option<Finding> {
    let reads = reads_there(seen, mount);
    let (writes, ..) = seen.calls_on(&mount.device, is_write);
    if reads < MIN_READS || writes > 0 || seen.usage.program_wrote(&mount.device) {
        return None;
    }
    // With strictatime each read writes a time, whatever else was written there; with relatime only some do.
    let is_strict = !mount.has("relatime");
    let may_be_more = seen.storage.lacks_calls || changed_elsewhere(seen);
    if may_be_more && !is_strict {
        return None;
    }
    let found = seen.block?;
    // Initialisation of the file system also writes.
    if found.originators.originators.iter().any(|one| one.name.contains("lazy init") && one.written_bytes > 0) {
        return None;
    }
    let group = seen.device_group(&mount.device, "writes")?;
    let of_files = written_of_files(found, mount);
    let at_rate = (seen.span_ns / 1_000_000_000).saturating_mul(MIN_BYTES_A_SECOND);
    if group.bytes < MIN_BYTES.max(at_rate)
        || percent(of_files, group.bytes) > 100.0 - LEAST_PERCENT
        || may_be_more && of_files > 0
        || is_written_above(seen, mount)
    {
        return None;
    }
    let ns = super::stage(group, "Q2C").map_or(0, |q2c| q2c.total_ns);
    let read = seen.device_group(&mount.device, "reads").map_or(0, |reads| reads.bytes);
    if seen.of_span(ns) < MIN_SPAN_PERCENT && percent(group.bytes, read) < MIN_READ_PERCENT {
        return None;
    }
    let source = "block:block_bio_queue, syscalls:sys_enter_*; mount options of /proc/self/mounts";
    let now = if is_strict { "strictatime" } else { "relatime" };
    let written = size(group.bytes);
    let cause = format!("The mount option {now} writes a time of access into the inode of a file that is read.");
    Some(Finding {
        what: match may_be_more {
            true => format!(
                "Programs read files of {}, and {written} are written to it: the journal and metadata, no file's data.",
                mount.target
            ),
            false => format!(
                "Programs only read files of {}, and {written} are written to it: times of last access.",
                mount.target
            ),
        },
        cause: match may_be_more {
            true => format!("{cause} Changed names and attributes of files there, if any, are among what is written."),
            false => cause,
        },
        evidence: vec![
            measure("reads of files there", reads as f64, MeasureUnit::Count, source),
            measure("writes of data by programs there", 0.0, MeasureUnit::Count, source),
            measure("written to the device", group.bytes as f64, MeasureUnit::Bytes, source),
        ],
        lost_ns: ns.into(),
        lost_bytes: Some(group.bytes),
        advice: vec![Remedy {
            what: "Mount with noatime".to_owned(),
            steps: vec![Step::Remount { target: mount.target.clone(), options: "noatime".into(), undo: now.into() }],
            gain: match may_be_more {
                true => Evidence::unknown(
                    "the trace does not show whether programs changed names or attributes of files there",
                    "try it, and compare two recordings: flashscope diff",
                ),
                false => gain(
                    format!("bytes written to {} ({})", mount.target, duration(ns)),
                    [LEAST_PERCENT, 100.0],
                    "nothing else was written there",
                ),
            },
            risk: "programs that compare times of access (some mail readers, tmpwatch) no longer see them".to_owned(),
        }],
        ..Finding::of(Rule::Atime)
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Work, only};
    use super::*;

    fn work(options: &str) -> Work {
        let mut work = Work::new(1_000_000_000);
        work.bios(20, "WM", 1_000, 1_000_000);
        work.mount("/data", "ext4", options);
        work.call("read", "job (7)", 100, 1_000_000, 0);
        work.file_call("read", "8:0 inode 12", 100, 1_000_000);
        work
    }

    #[test]
    fn writes_without_a_writer_are_times_of_access() {
        let finding = only(find(&work("rw,relatime").seen()));
        assert!(
            finding.what.starts_with("Programs only read files of /data, and 80 KiB are written"),
            "{}",
            finding.what
        );
    }

    #[test]
    fn a_hardly_noticed_write_is_not_told() {
        let mut long = work("rw,relatime");
        let mut reads = long.block().groups.iter().find(|group| group.name == "8:0 writes").expect("writes").clone();
        reads.name = "8:0 reads".to_owned();
        reads.bytes *= 100;
        long.block().groups.push(reads);
        assert_eq!(find(&long.seen()).len(), 1);
        long.span_ns = 60_000_000_000;
        assert!(find(&long.seen()).is_empty());
    }

    #[test]
    fn a_machine_that_does_nothing_needs_no_mount_option() {
        let of = |bytes, seconds: u64| {
            let mut idle = work("rw,relatime");
            let writes = idle.block().groups.iter_mut().find(|group| group.name == "8:0 writes").expect("writes");
            writes.bytes = bytes;
            idle.span_ns = seconds * 1_000_000_000;
            find(&idle.seen()).len()
        };
        assert_eq!([of(40 << 10, 1), of(8 << 10, 1), of(40 << 10, 40)], [1, 0, 0]);
    }

    /// A recording of one device has no calls, and other programs may have removed files: with strictatime times are written all the same.
    #[test]
    fn with_strictatime_reads_alone_show_it() {
        let of_device = |options: &str| {
            let mut work = work(options);
            work.calls = Default::default();
            work.storage.lacks_calls = true;
            let (device, bios) = ("8:0".to_owned(), 100);
            work.usage.readers.push(crate::usage::TaskReads { device, bios, ..Default::default() });
            work
        };
        let mut removed = work("rw");
        removed.call("unlinkat", "job (7)", 1, 1, 0);
        for work in [of_device("rw"), removed] {
            let finding = only(find(&work.seen()));
            assert!(
                finding.cause.starts_with("The mount option strictatime") && finding.advice[0].gain.why().is_some()
            );
            assert!(finding.what.ends_with("80 KiB are written to it: the journal and metadata, no file's data."));
        }
        assert!(find(&of_device("rw,relatime").seen()).is_empty());
        let mut few = of_device("rw");
        few.usage.readers[0].metadata_bios = 95;
        assert!(find(&few.seen()).is_empty());
        let mut written = of_device("rw");
        let mut file = written.block().groups.iter().find(|group| group.name == "8:0 writes").expect("writes").clone();
        (file.by, file.name, file.written_bytes) = (GroupBy::File, "8:0 inode 13".to_owned(), Some(4096));
        written.block().groups.push(file);
        assert!(find(&written.seen()).is_empty());
    }

    #[test]
    fn where_anybody_may_have_written_nothing_is_said() {
        assert!(find(&work("rw,noatime").seen()).is_empty());
        let mut placed = work("rw,relatime");
        placed.file_call("write", "8:0 inode 13", 1, 1);
        assert!(find(&placed.seen()).is_empty());
        for call in ["write", "unlinkat"] {
            let mut elsewhere = work("rw,relatime");
            elsewhere.call(call, "job (7)", 1, 1, 0);
            assert!(find(&elsewhere.seen()).is_empty(), "{call}");
        }
        let mut above = work("rw,relatime");
        let disk = |device: &str, file: Option<&str>| super::super::Disk {
            device: device.into(),
            backing_file: file.map(str::to_owned),
            ..Default::default()
        };
        above.storage.disks.extend([disk("8:0", None), disk("7:0", Some("/data/image"))]);
        assert_eq!(find(&above.seen()).len(), 1, "nothing is written to the loop device");
        let mut writes = above.block().groups.iter().find(|group| group.name == "8:0 writes").expect("writes").clone();
        writes.name = "7:0 writes".to_owned();
        above.block().groups.push(writes.clone());
        assert!(find(&above.seen()).is_empty());
        above.storage.disks[1].backing_file = Some("/database/image".into());
        assert_eq!(find(&above.seen()).len(), 1, "its file lies elsewhere");
        (writes.by, writes.written_bytes) = (GroupBy::File, Some(writes.bytes / 2));
        for (name, path, said) in [
            ("8:0 inode 13", "/data/file", 0),
            (FURTHER_FILES, "", 0),
            ("8:1 inode 13", "/other", 1),
            ("8:0 inode 8", "(journal of 8:0)", 1),
            ("8:0 inode 13", "/run/flashscope/r", 1),
        ] {
            let mut files = work("rw,relatime");
            (writes.name, writes.path) = (name.to_owned(), Some(path.to_owned()));
            files.block().groups.push(writes.clone());
            assert_eq!(find(&files.seen()).len(), said, "{name} {path}");
        }
        let mut dirtied = work("rw,relatime");
        dirtied.usage.writes.insert("8:0".into(), 1);
        assert!(find(&dirtied.seen()).is_empty());
    }
}
