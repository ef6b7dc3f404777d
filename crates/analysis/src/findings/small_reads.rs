//! A program whose small reads wait for the device one after another.

use super::fragmented_file::pieces;
use super::metadata_reads::is_search;
use super::{
    Finding, Gain, MeasureUnit, Remedy, Rule, Seen, Step, Weight, code, groups, measure, percent, random_reads, stage,
};
use crate::Evidence;
use crate::block::{BlockFound, GroupBy};
use crate::calls::{FURTHER, is_read};
use crate::total::Total as _;
use crate::units::{duration, grouped, size};
use crate::usage::TaskReads;
use flashscope_trace::FileId;
use std::collections::BTreeMap;

const MIN_BIOS: u64 = 100;
/// Largest size of a small read, bytes. For larger ones the start of a request hardly counts.
const MAX_BYTES: u64 = 32 << 10;
/// Least share of the recorded time, percent. Below it the program waits mostly for something else.
const MIN_SPAN_PERCENT: f64 = 20.0;
/// Most I/O of the task that is not reads, percent of its bytes.
const MAX_OTHER_PERCENT: f64 = 10.0;
/// Least share of reads that are queued at least half a device time after the one before, percent: then they come one after another.
const MIN_APART_PERCENT: f64 = 80.0;
/// Limits of the share of reads that begin where the one before ended, percent: above they are in order, below at random.
const MIN_SEQUENTIAL_PERCENT: f64 = 80.0;
const MAX_SEQUENTIAL_PERCENT: f64 = 20.0;
/// From this share of the regions that the reads touch, it is less work to read the whole region in order, percent.
const MIN_COVERED_PERCENT: f64 = 60.0;
/// With at most this many reads for each opened file, the program reads many files.
const READS_A_FILE: u64 = 4;
/// Size of reads that the advice names.
const TOGETHER_BYTES: u64 = 64 << 10;

/// Positions of the reads.
enum Lie {
    Files(u64),
    InOrder,
    AllOfARange,
    HereAndThere,
}

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let Some(found) = seen.block else { return Vec::new() };
    // Beneath dm-crypt and other layers the same thread may do the work of its reads above.
    let is_below = |device: &str| found.stack.iter().any(|level| level.legs.iter().any(|leg| leg.device == device));
    let readers = seen.usage.readers.iter().filter(|reader| !is_below(&reader.device) && !is_search(reader));
    // The file system scattered the pieces of the file, not the program.
    let readers = readers.filter(|reader| pieces(seen, reader).is_none());
    readers.filter_map(|reader| of_reader(seen, found, reader)).collect()
}

fn of_reader(seen: &Seen<'_>, found: &BlockFound, reader: &TaskReads) -> Option<Finding> {
    let task = found.originators.task(reader.tid)?;
    let own = groups(found, GroupBy::Owner).find(|group| task.is_called(&group.name))?;
    let (q2c, d2c) = (stage(own, "Q2C")?, stage(own, "D2C")?);
    // Its group also has its writes and its I/O on other devices.
    if reader.bios < MIN_BIOS || percent(own.bytes.saturating_sub(reader.bytes), own.bytes) > MAX_OTHER_PERCENT {
        return None;
    }
    let each = reader.bytes / reader.bios;
    // The median, because a few long reads say nothing about the others.
    let apart = percent(reader.apart(d2c.ns.p50.min(d2c.ns.mean) / 2), reader.bios - 1);
    // If their sum is longer than the time in which they came, several were in flight at once.
    // The median counts for all: tables of inodes are read ahead, dozens at once, and wait long.
    let sum = q2c.total_ns.saturating_sub(q2c.ns.mean).min(q2c.ns.p50.saturating_mul(reader.bios));
    let beside = sum > reader.active_ns.saturating_add(reader.active_ns / 10);
    // The share of other programs is a finding of its own.
    let load =
        found.interference.owners.iter().find(|load| load.device == reader.device && task.is_called(&load.owner));
    let behind = load.map_or(0, |load| load.mean_behind_ns.saturating_mul(load.bios));
    // And what device mapper adds. No other finding has what a loop device adds, and fewer reads cost less of it.
    let is_mapped = seen.storage.disk(&reader.device).is_some_and(|disk| disk.dm_uuid.is_some());
    let level = found.stack.iter().find(|level| is_mapped && level.upper == reader.device);
    let level = level.and_then(|level| level.alone.as_ref());
    let layer = level.map_or(0, |alone| alone.mean_own_ns.saturating_mul(reader.bios));
    let lie = lie(seen, reader, &own.name);
    // Where a few were in flight at once, their sum is longer than the wait.
    let of_bios = q2c.total_ns.min(reader.active_ns.saturating_add(q2c.ns.max)).min(seen.span_ns);
    // Where each call waits for a bio or so, the program waits for its calls: it has to be woken for each, too.
    let waited = match lie {
        // Without read-ahead each page that a call reads is a request of its own, however much it asks for.
        Lie::InOrder if is_off(seen, &reader.device) => of_calls(seen, &own.name, None).unwrap_or(0).max(of_bios),
        Lie::InOrder | Lie::AllOfARange => of_calls(seen, &own.name, Some(reader.bios)).unwrap_or(0).max(of_bios),
        Lie::Files(_) | Lie::HereAndThere => of_bios,
    };
    let lost = waited.saturating_sub(behind).saturating_sub(layer);
    if each > MAX_BYTES || beside || apart < MIN_APART_PERCENT || seen.of_span(lost) < MIN_SPAN_PERCENT {
        return None;
    }
    if matches!(lie, Lie::AllOfARange) && !random_reads::find(seen).is_empty() {
        return None;
    }
    let woken = match waited > q2c.total_ns.max(of_bios) {
        true => format!("; until the program goes on, {}", duration(waited / reader.bios)),
        false => String::new(),
    };
    let device = seen.storage.device_name(&reader.device);
    let source = "block:block_bio_queue, block_rq_issue, block_rq_complete";
    let how = match &lie {
        Lie::Files(opened) => format!("in {} files", grouped(*opened)),
        Lie::InOrder => "in order".to_owned(),
        Lie::AllOfARange => "at random, and of nearly all of their range in the end".to_owned(),
        Lie::HereAndThere => "here and there".to_owned(),
    };
    Some(Finding {
        rule: Rule::SmallReads,
        // Random reads and reads of many files are needed. Findings about avoidable work come first.
        weight: match lie {
            Lie::InOrder | Lie::AllOfARange => Weight::Cost,
            Lie::Files(_) | Lie::HereAndThere => Weight::Overview,
        },
        processes: vec![own.name.clone()],
        what: format!(
            "{} waits {} of {} in {} reads of {} from {device}, {how}, one after another.",
            own.name,
            duration(lost),
            duration(seen.span_ns),
            grouped(reader.bios),
            size(each)
        ),
        cause: format!(
            "Each read is a request of its own that takes {}{woken}, and the next one begins when it ends.",
            duration(q2c.ns.mean)
        ),
        evidence: vec![
            measure("reads", reader.bios as f64, MeasureUnit::Count, source),
            measure("their time", lost as f64, MeasureUnit::Ns, source),
            measure(
                "reads that begin where the one before ended",
                reader.sequential as f64,
                MeasureUnit::Count,
                source,
            ),
            measure("read for the first time", reader.first_bytes as f64, MeasureUnit::Bytes, source),
        ],
        lost_ns: lost.into(),
        lost_bytes: None,
        advice: vec![remedy(seen, reader, &lie, &own.name, [lost, q2c.ns.min])],
        uncertain: None,
    })
}

fn is_off(seen: &Seen<'_>, device: &str) -> bool {
    seen.storage.read_ahead(device).is_some_and(|one| one.kib == 0)
}

/// Time in reads by this process. `bios`: only where there is about one call for each of them.
fn of_calls(seen: &Seen<'_>, name: &str, bios: Option<u64>) -> Option<u64> {
    let mine = || seen.calls.by_process.iter().filter(|group| group.name == name && is_read(&group.call));
    // A limit of its cgroup delays them. Larger reads would wait for it too.
    if seen.calls.long_without_storage.iter().any(|unseen| unseen.name == name && unseen.with_worker_bio > 0) {
        return None;
    }
    let n: u64 = mine().map(|group| group.ns.n).sum();
    let about_one = |bios: u64| n <= bios.saturating_mul(2) && bios <= n.saturating_mul(2);
    bios.is_none_or(about_one).then(|| mine().map(|group| group.total_ns).total())
}

fn lie(seen: &Seen<'_>, reader: &TaskReads, name: &str) -> Lie {
    let opens = seen.calls.by_process.iter().filter(|group| group.name == name && group.call.starts_with("open"));
    let opened: u64 = opens.map(|group| group.ns.n).sum();
    // A program opens more than it reads from this device, its libraries for example: how many files are read there is a bound. But an
    // open that finds its inode in memory is in no group where only what touched the device is recorded.
    let reads = || seen.calls.by_file.iter().filter(|group| is_read(&group.call));
    let there = reads_there(seen, &reader.device);
    let opened = match there.len() as u64 {
        // No reads were recorded, or none are made, as by a copy within the kernel: the page cache shows which files are read.
        0 if opened == 0 => reader.files,
        0 if reader.files > 0 => opened.min(reader.files),
        0 => opened,
        read if opened == 0
            || seen.calls.not_of_device.is_some_and(|n| n > 0)
            || reads().any(|group| group.name == FURTHER) =>
        {
            opened.max(read)
        }
        read => opened.min(read),
    };
    // Most of its reads are of one file: an interpreter opens hundreds of files when it starts, and then reads one.
    let most = there.values().max().copied().unwrap_or(reader.most_of_file);
    let is_one_file = most * 2 >= reader.bios;
    let sequential = percent(reader.sequential, reader.bios);
    if opened * READS_A_FILE >= reader.bios && !is_one_file {
        Lie::Files(opened)
    } else if sequential >= MIN_SEQUENTIAL_PERCENT {
        Lie::InOrder
    } else if sequential <= MAX_SEQUENTIAL_PERCENT
        && reader.extent_bytes.is_some_and(|all| percent(first_there(reader), all) >= MIN_COVERED_PERCENT)
    {
        Lie::AllOfARange
    } else {
        Lie::HereAndThere
    }
}

/// Files of a device that are read, and how often: by calls, or by faults of a mapping.
fn reads_there(seen: &Seen<'_>, device: &str) -> BTreeMap<u64, u64> {
    let by_calls = seen.calls.by_file.iter().filter(|group| is_read(&group.call)).filter_map(|group| {
        let FileId { device: Some(of), inode } = FileId::parse(&group.name)? else { return None };
        (of.to_string() == device).then_some((inode, group.ns.n))
    });
    let mapped = seen.usage.file_faults.iter().filter(|((of, _), _)| of == device);
    let mut files = BTreeMap::new();
    for (inode, n) in by_calls.chain(mapped.map(|((_, inode), faults)| (*inode, faults.faults))) {
        *files.entry(inode).or_default() += n;
    }
    files
}

/// Bytes read for the first time in regions with many reads, as a share of all. Where it matters, few reads lie elsewhere.
fn first_there(reader: &TaskReads) -> u64 {
    let part = u128::from(reader.first_bytes) * u128::from(reader.extent_reads) / u128::from(reader.bios.max(1));
    u64::try_from(part).unwrap_or(u64::MAX)
}

/// `times`: the lost time, and the time of the shortest read.
fn remedy(seen: &Seen<'_>, reader: &TaskReads, lie: &Lie, name: &str, times: [u64; 2]) -> Remedy {
    let [lost_ns, shortest_ns] = times;
    // The same bytes in larger requests. Each takes as long as the shortest small one at least, and as all that it replaces at most.
    let larger = |bytes: u64| {
        let least_ns = bytes.div_ceil(TOGETHER_BYTES).saturating_mul(shortest_ns);
        Evidence::Known(Gain {
            of: format!("time that {name} waits for its reads"),
            least_percent: 0.0,
            most_percent: 100.0 - percent(least_ns, lost_ns).min(100.0),
            basis: format!(
                "requests of {}, each of which takes as long as the shortest small one now, or as all those that it replaces; \
                 a second recording tells which",
                size(TOGETHER_BYTES)
            ),
        })
    };
    let beside = || {
        Evidence::unknown(
            "the number of requests that the device serves in parallel is not in the trace",
            "try it, and compare two recordings: flashscope diff",
        )
    };
    match lie {
        Lie::InOrder if is_off(seen, &reader.device) => Remedy {
            what: "Read ahead: it is turned off for this device".to_owned(),
            steps: seen
                .storage
                .read_ahead(&reader.device)
                .map(|one| Step::Set { path: one.path, value: (TOGETHER_BYTES >> 10).to_string() })
                .into_iter()
                .collect(),
            gain: larger(reader.bytes),
            risk: "random reads may then read pages ahead that are never used".to_owned(),
        },
        Lie::InOrder => Remedy {
            what: format!(
                "Read {} or more at once; or let the kernel read ahead: without O_DIRECT and POSIX_FADV_RANDOM",
                size(TOGETHER_BYTES)
            ),
            steps: vec![code::READ_MORE.with(TOGETHER_BYTES)],
            gain: larger(reader.bytes),
            risk: "memory for the buffer".to_owned(),
        },
        Lie::AllOfARange => Remedy {
            what: format!("Read the range in the order of its offsets, {} or more at once", size(TOGETHER_BYTES)),
            steps: vec![code::READ_RANGE.with(TOGETHER_BYTES)],
            gain: larger(reader.extent_bytes.unwrap_or(reader.bytes)),
            risk: "memory for the range".to_owned(),
        },
        Lie::Files(_) => Remedy {
            what:
                "Ask for the next files before they are needed, read them in several threads, or keep them in one file"
                    .to_owned(),
            steps: vec![code::NEED_NEXT_FILE.step()],
            gain: beside(),
            risk: "memory for data that is read before it is used".to_owned(),
        },
        Lie::HereAndThere => Remedy {
            what:
                "Have several reads under way at once (threads, io_uring), or keep in one place what is read together"
                    .to_owned(),
            steps: vec![code::NEED_NEXT_RANGE.step()],
            gain: beside(),
            risk: "memory for data that is read before it is used; with O_DIRECT this call has no effect".to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::Disk;
    use super::super::testing::{Work, only};
    use super::*;
    use crate::block::OwnerKind;
    use crate::block::{StackAlone, StackLeg, StackLevel};
    use crate::usage::FileFaults;
    use flashscope_trace::TaskId;

    /// A task's reads of 4 KiB of 8:0, one after another, 1 ms each.
    fn work(bios: u64, sequential: u64, first_bytes: u64, extent_bytes: u64) -> Work {
        let mut work = Work::new(1_000_000_000);
        work.bios_of("viewer", bios, "R", 1_000, 999_000);
        let mut gaps = vec![0; 20];
        gaps[19] = bios - 1;
        work.usage.readers.push(TaskReads {
            device: "8:0".into(),
            tid: TaskId(7),
            bios,
            bytes: bios * 4096,
            sequential,
            first_bytes,
            extent_bytes: Some(extent_bytes),
            extent_reads: bios,
            active_ns: (bios - 1) * 1_000_001,
            gaps,
            ..TaskReads::default()
        });
        work
    }

    /// A recording of one device has no calls of `cp -r`: the page cache shows that it reads many files.
    #[test]
    fn without_calls_the_page_cache_tells_how_many_files_are_read() {
        let of = |files: u64, most_of_file: u64| {
            let mut work = work(900, 880, 900 * 4096, 4 << 20);
            (work.usage.readers[0].files, work.usage.readers[0].most_of_file) = (files, most_of_file);
            only(find(&work.seen()))
        };
        let finding = of(800, 1);
        assert_eq!(finding.weight, Weight::Overview);
        assert!(finding.what.ends_with("in 800 files, one after another."), "{}", finding.what);
        // Most is read of one, and the rest of libraries.
        assert!(of(300, 600).what.ends_with("in order, one after another."));
        assert!(of(1, 900).what.ends_with("in order, one after another."));
    }

    /// Tables of inodes are read ahead, dozens at once: their sum is no wait, and the other reads still come one after another.
    #[test]
    fn a_few_reads_at_once_add_no_time() {
        let mut work = work(900, 880, 900 * 4096, 4 << 20);
        for group in &mut work.block().groups {
            for stage in group.stages.iter_mut().filter(|stage| stage.stage == "Q2C") {
                stage.total_ns += 600_000_000;
            }
        }
        let active_ns = work.usage.readers[0].active_ns;
        let lost = only(find(&work.seen())).lost_ns.known().copied().expect("a time");
        assert!(lost >= active_ns && lost < active_ns + 2_000_000, "{lost} {active_ns}");
    }

    #[test]
    fn how_small_reads_lie_is_told() {
        let all = 800 * 4096;
        let mut files = work(800, 700, all, all);
        files.call("openat", "viewer (7)", 700, 1_000_000, 0);
        let mut unseen = work(800, 5, all, all);
        (0..700).for_each(|inode| unseen.file_call("read", &format!("8:0 inode {inode}"), 2, 1_000_000));
        // git gc: it maps its loose objects, and reads a few files.
        let mut mapped = work(800, 5, all, all);
        mapped.call("openat", "viewer (7)", 700, 1_000_000, 0);
        mapped.file_call("read", "8:0 inode 12", 3, 1_000_000);
        for inode in 100..800 {
            let faults = FileFaults { faults: 1, ..FileFaults::default() };
            mapped.usage.file_faults.insert(("8:0".to_owned(), inode), faults);
        }
        // One file that is mapped, and its libraries.
        let mut one_mapped = work(800, 5, all, all * 100);
        one_mapped.call("openat", "viewer (7)", 300, 1_000_000, 0);
        let faults = FileFaults { faults: 700, ..FileFaults::default() };
        one_mapped.usage.file_faults.insert(("8:0".to_owned(), 12), faults);
        // It opens its libraries, and reads one file.
        let mut libraries = work(800, 5, all, all * 100);
        libraries.call("openat", "viewer (7)", 300, 1_000_000, 0);
        libraries.file_call("read", "8:0 inode 12", 800, 1_000_000);
        // The same with an interpreter, which reads its modules.
        let mut modules = work(800, 5, all, all * 100);
        modules.call("openat", "viewer (7)", 300, 1_000_000, 0);
        (0..250).for_each(|inode| modules.file_call("read", &format!("8:0 inode {}", inode + 20), 1, 1_000_000));
        modules.file_call("read", "8:0 inode 12", 550, 1_000_000);
        for (work, how, most) in [
            (mapped, "in 700 files", None),
            (one_mapped, "here and there", None),
            (libraries, "here and there", None),
            (modules, "here and there", None),
            (files, "in 700 files", None),
            (unseen, "in 700 files", None),
            (work(800, 790, all, all), "in order", Some(93.75)),
            (work(800, 5, all, all), "nearly all of their range", Some(93.75)),
            (work(800, 5, all, all * 100), "here and there", None),
        ] {
            let finding = only(find(&work.seen()));
            assert!(finding.what.starts_with("viewer (7) waits 800.00 ms of 1.00 s in 800 reads of 4 KiB from 8:0"));
            assert!(finding.what.contains(how), "{}", finding.what);
            assert_eq!(finding.weight == Weight::Cost, most.is_some());
            let gain = finding.advice[0].gain.known().map(|gain| (gain.least_percent, gain.most_percent));
            assert_eq!(gain, most.map(|most| (0.0, most)));
        }
    }

    /// 198 reads here and there of 50 MiB: four pieces of 256 KiB happen to have four of them or more.
    #[test]
    fn few_reads_that_lie_close_by_chance_are_no_range() {
        let mut work = work(198, 0, 198 * 4096, 4 * (256 << 10));
        work.usage.readers[0].extent_reads = 17;
        work.span_ns /= 2;
        let finding = only(find(&work.seen()));
        assert!(finding.weight == Weight::Overview && finding.what.contains("here and there"), "{}", finding.what);
    }

    #[test]
    fn a_program_that_has_to_be_woken_for_each_read_waits_for_its_calls() {
        let mut work = work(800, 790, 800 * 4096, 800 * 4096);
        work.span_ns = 10_000_000_000;
        assert!(find(&work.seen()).is_empty());
        work.call("read", "viewer (7)", 801, 8_000_000_000, 800 * 4096);
        let finding = only(find(&work.seen()));
        assert_eq!(finding.lost_ns, 8_000_000_000.into());
        assert!(finding.cause.contains("takes 1.00 ms; until the program goes on, 10.00 ms"), "{}", finding.cause);
        // Of calls that have several bios each, or none, it is not known.
        work.calls.by_process[0].ns.n = 80;
        assert!(find(&work.seen()).is_empty());
    }

    #[test]
    fn what_a_loop_device_adds_is_told_here_and_what_device_mapper_adds_is_not() {
        for (dm_uuid, told) in [(None, true), (Some("CRYPT-LUKS2-1".to_owned()), false)] {
            let mut work = work(800, 790, 800 * 4096, 800 * 4096);
            work.storage.disks.push(Disk { name: "d".into(), device: "8:0".into(), dm_uuid, ..Disk::default() });
            let alone = Some(StackAlone { bios: 800, mean_q2c_ns: 1_000_000, mean_own_ns: 900_000 });
            work.block().stack.push(StackLevel { upper: "8:0".into(), alone, ..StackLevel::default() });
            assert_eq!(find(&work.seen()).len(), usize::from(told));
        }
    }

    #[test]
    fn few_of_them_large_ones_and_several_at_once_are_not() {
        assert!(find(&work(50, 0, 0, 1 << 30).seen()).is_empty());
        let mut large = work(800, 5, 0, 1 << 30);
        large.usage.readers[0].bytes = 800 * 65_536;
        assert!(find(&large.seen()).is_empty());
        let mut beside = work(800, 5, 0, 1 << 30);
        beside.usage.readers[0].gaps = vec![0, 0, 0, 0, 0, 799];
        assert!(find(&beside.seen()).is_empty());
        // A device of one request at a time takes them at this pace, however many are queued before.
        let mut queued = work(800, 5, 0, 1 << 30);
        queued.bios_of("viewer", 800, "R", 1_000_000, 1_000_000);
        assert!(find(&queued.seen()).is_empty());
        let mut seldom = work(800, 5, 0, 1 << 30);
        seldom.span_ns *= 10;
        assert!(find(&seldom.seen()).is_empty());
        // It does the work of reads of another device.
        let mut below = work(800, 5, 0, 1 << 30);
        let leg = StackLeg { device: "8:0".into(), bios: 800, bytes: 800 * 4096 };
        below.block().stack.push(StackLevel { upper: "253:0".into(), legs: vec![leg], ..StackLevel::default() });
        assert!(find(&below.seen()).is_empty());
        // The recording does not say that a program did it.
        let mut carried = work(800, 5, 0, 1 << 30);
        carried.block().originators.originators[0].kind = OwnerKind::Unknown;
        assert!(find(&carried.seen()).is_empty());
    }
}
