//! Repeated reads of the same bytes from the device: the page cache is too small for them, or is bypassed.

use super::{Finding, Gain, MeasureUnit, Remedy, Rule, Seen, Step, Weight, code, groups, measure, percent, swap};
use crate::block::{BlockFound, GroupBy, OwnerKind};
use crate::cache::Brought;
use crate::units::size;
use crate::usage::DeviceUse;
use crate::{Evidence, task_name};
use flashscope_cachesim::PAGE_BYTES;
use flashscope_trace::FileId;

/// Fewer bytes are not reported.
const MIN_BYTES: u64 = 4 << 20;
/// Least share of all bytes read, per cent.
const MIN_PERCENT: f64 = 25.0;
/// Share of the bytes read, per cent: below it, pages entering the page cache show that it is bypassed; above 100 less this, that it is not.
const PASSED_BY_PERCENT: f64 = 10.0;
/// Pages dropped by programs are the cause from this share on, both of the bytes read again and of all pages that left, per cent.
const MIN_DROPPED_PERCENT: f64 = 50.0;
/// Gain of keeping these pages, as a part of the bytes read again: with little memory some leave anyway, and read-ahead differs.
const KEPT: [f64; 2] = [0.5, 1.05];

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let Some(block) = seen.block else { return Vec::new() };
    // Bios below a loop device or an array work for the programs above.
    let by_program = |device: &DeviceUse| {
        let is_task =
            |tid| block.originators.originators.iter().any(|one| one.tid == tid && one.kind == OwnerKind::Task);
        seen.usage.readers.iter().any(|reader| reader.device == device.device && is_task(reader.tid))
    };
    let is_below = |device: &str| {
        let is_leg = block.stack.iter().any(|level| level.legs.iter().any(|leg| leg.device == device));
        is_leg || block.loops.iter().filter_map(|one| one.backing.known()).any(|backing| backing.device == device)
    };
    let devices = || seen.usage.devices.iter();
    let most = devices().map(|device| device.read_again_bytes).max().unwrap_or(0);
    // Bytes read again above are read again below as well: the device that the program reads has a little less.
    let as_much = devices().filter(|device| device.read_again_bytes.saturating_mul(2) >= most);
    let Some(device) = as_much.max_by_key(|one| (by_program(one) && !is_below(&one.device), one.read_again_bytes))
    else {
        return Vec::new();
    };
    let (again, all) = (device.read_again_bytes, device.read_bytes);
    // Each place of the swap holds other pages in turn.
    let is_swap = swap::is_swap(seen, block, &device.device);
    if is_swap || again < MIN_BYTES || percent(again, all) < MIN_PERCENT {
        return Vec::new();
    }
    let source = "block:block_bio_queue: sectors that were read before in this trace";
    let passed_by = is_direct(seen, all);
    let no_longer = "The page cache no longer had them: it is too small, a limit of the cgroup's memory keeps it small, or it was \
                     emptied";
    let dropped = dropped(seen, block).filter(|(_, bytes)| percent(*bytes, again) >= MIN_DROPPED_PERCENT);
    let mut cause = match passed_by {
        _ if let Some((name, bytes)) = &dropped => {
            format!(
                "{name} had the kernel drop {} of the page cache: posix_fadvise(POSIX_FADV_DONTNEED).",
                size(*bytes)
            )
        }
        Some(true) => "They are read with O_DIRECT: the page cache keeps nothing of it.".to_owned(),
        Some(false) => format!("{no_longer}."),
        None => format!("{no_longer}; or O_DIRECT passes it by."),
    };
    let program = program(seen, block, &device.device).filter(|(_, bytes)| bytes * 2 >= again && dropped.is_none());
    if let Some((name, bytes)) = program {
        cause += &format!(" {name} reads {} of them.", size(bytes));
    }
    if let Some((file, bytes)) = file(seen, block, &device.device).filter(|(_, bytes)| bytes * 2 >= all) {
        cause += &format!(" {} of all that is read come from {file}.", size(bytes));
    }
    vec![Finding {
        rule: Rule::ReadAgain,
        weight: Weight::Cost,
        processes: Vec::new(),
        what: format!(
            "{} of the {} read from {} were read before ({:.0} %).",
            size(again),
            size(all),
            seen.storage.device_name(&device.device),
            percent(again, all)
        ),
        cause,
        evidence: vec![
            measure("read", all as f64, MeasureUnit::Bytes, source),
            measure("read again", again as f64, MeasureUnit::Bytes, source),
        ],
        lost_ns: seen.cost_of(block, "reads", again),
        lost_bytes: Some(again),
        advice: vec![match dropped {
            Some(_) => keep(&seen.storage.device_name(&device.device), percent(again, all)),
            None => remedy(passed_by == Some(true), percent(again, all)),
        }],
        uncertain: None,
    }]
}

/// Whether the page cache is bypassed: far fewer pages entered it than were read (`true`), or about as many (`false`). `None`: neither,
/// or the trace does not show pages.
fn is_direct(seen: &Seen<'_>, read_bytes: u64) -> Option<bool> {
    let cache = seen.readahead?;
    let Brought { requested, ahead, mapped, origin_unknown, .. } = cache.total;
    let parts = [requested, ahead, mapped, origin_unknown, cache.file_systems_own, cache.not_followed];
    let pages = parts.into_iter().fold(0, u64::saturating_add);
    let part = percent(pages.saturating_mul(PAGE_BYTES), read_bytes);
    match part {
        _ if pages == 0 => None,
        part if part < PASSED_BY_PERCENT => Some(true),
        part if part > 100.0 - PASSED_BY_PERCENT => Some(false),
        _ => None,
    }
}

/// Bytes that programs dropped themselves, if they are most of what left the page cache; with the thread that dropped most.
fn dropped(seen: &Seen<'_>, block: &BlockFound) -> Option<(String, u64)> {
    let usage = seen.usage;
    let sum = usage.dropped.values().copied().fold(usage.dropped_further_bytes, u64::saturating_add);
    let (tid, _) = usage.dropped.iter().max_by_key(|(_, bytes)| **bytes)?;
    let task = block.originators.task(*tid)?;
    let number = format!("({tid})");
    let name = if task.name.ends_with(&number) { task.name.clone() } else { format!("{} {number}", task.name) };
    (percent(sum, usage.left_bytes) >= MIN_DROPPED_PERCENT).then_some((name, sum))
}

fn keep(device: &str, again_percent: f64) -> Remedy {
    Remedy {
        what: "Leave out POSIX_FADV_DONTNEED for what is read again; drop it after the last read alone".to_owned(),
        steps: vec![code::KEEP_CACHED.step()],
        gain: Gain {
            of: format!("bytes read from {device}"),
            least_percent: again_percent * KEPT[0],
            most_percent: (again_percent * KEPT[1]).min(100.0),
            basis: "what was read again is in memory then; where memory is short, a part of it leaves all the same"
                .to_owned(),
        }
        .into(),
        risk: "it stays in memory that other programs could use".to_owned(),
    }
}

fn remedy(is_direct: bool, again_percent: f64) -> Remedy {
    if is_direct {
        return Remedy {
            what: "Read through the page cache, or keep in the program what it reads again".to_owned(),
            steps: vec![Step::Code {
                line: "open(path, O_RDONLY); /* without O_DIRECT; QEMU: -drive cache=writeback */".to_owned(),
            }],
            gain: Evidence::unknown(
                format!(
                    "at most {again_percent:.0} % of these bytes; how much memory is free for them is not in the trace"
                ),
                "try it, and compare two recordings: flashscope diff",
            ),
            risk: "the page cache takes memory, and copies the data once more".to_owned(),
        };
    }
    let command = "free -m; cat /proc/pressure/memory; grep -r . /sys/fs/cgroup --include=memory.max \
                   --include=memory.limit_in_bytes";
    Remedy {
        what:
            "See how much memory is left for the cache, which programs take the rest, and which limits the cgroups have"
                .to_owned(),
        steps: vec![Step::Run { command: command.to_owned(), names: Vec::new() }],
        gain: Evidence::unknown("how much memory the cache had is not in the trace", ""),
        risk: "none to look".to_owned(),
    }
}

/// The program whose threads read most bytes again, and their number; threads of one name count as one program.
fn program(seen: &Seen<'_>, block: &BlockFound, device: &str) -> Option<(String, u64)> {
    let mut programs: Vec<(&str, u64, u64)> = Vec::new();
    for reader in seen.usage.readers.iter().filter(|reader| reader.device == device) {
        let again = reader.bytes.saturating_sub(reader.first_bytes);
        let Some(task) = block.originators.task(reader.tid) else { continue };
        let name = task_name(&task.name);
        match programs.iter_mut().find(|(known, ..)| *known == name) {
            Some((_, bytes, threads)) => (*bytes, *threads) = (bytes.saturating_add(again), *threads + 1),
            None => programs.push((name, again, 1)),
        }
    }
    let (name, bytes, threads) = programs.into_iter().max_by_key(|(_, bytes, _)| *bytes)?;
    let name = if threads > 1 { format!("{name} ({threads} tasks)") } else { name.to_owned() };
    Some((name, bytes))
}

/// The file of this device with most bytes read, and their number.
fn file(seen: &Seen<'_>, block: &BlockFound, device: &str) -> Option<(String, u64)> {
    let files = groups(block, GroupBy::File).filter_map(|group| {
        let file = FileId::parse(&group.name).filter(|file| file.device.is_some_and(|of| of.to_string() == device))?;
        Some((group, file.inode, group.read_bytes?))
    });
    let (group, inode, bytes) = files.max_by_key(|(.., bytes)| *bytes)?;
    Some((group.path.clone().unwrap_or_else(|| seen.storage.file_name(device, inode)), bytes))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Work, only};
    use super::*;
    use crate::cache::AccuracyFindings;
    use crate::usage::TaskReads;
    use flashscope_trace::TaskId;

    fn work(read_bytes: u64, read_again_bytes: u64) -> Work {
        let mut work = Work::new(1_000_000_000);
        work.bios(10, "R", 1_000, 1_000_000);
        work.usage.devices.push(DeviceUse { device: "8:0".into(), read_bytes, read_again_bytes });
        work
    }

    #[test]
    fn what_is_read_again_is_told() {
        let finding = only(find(&work(100 << 20, 60 << 20).seen()));
        assert_eq!(finding.what, "60 MiB of the 100 MiB read from 8:0 were read before (60 %).");
    }

    #[test]
    fn the_program_and_the_file_are_named() {
        let mut work = work(100 << 20, 60 << 20);
        for tid in [8, 9] {
            work.owner("cat", OwnerKind::Task, 50 << 20, 0);
            work.block().originators.originators.last_mut().expect("one").tid = TaskId(tid);
            let (bytes, first_bytes) = (50 << 20, 20 << 20);
            work.usage.readers.push(TaskReads {
                device: "8:0".into(),
                tid: TaskId(tid),
                bytes,
                first_bytes,
                ..TaskReads::default()
            });
        }
        let mut group = work.block().groups[0].clone();
        (group.by, group.name, group.path) = (GroupBy::File, "8:0 inode 12".into(), Some("/data/film".into()));
        group.read_bytes = Some(90 << 20);
        work.block().groups.push(group);
        let cause = only(find(&work.seen())).cause;
        assert!(
            cause.ends_with(" cat (2 tasks) reads 60 MiB of them. 90 MiB of all that is read come from /data/film."),
            "{cause}"
        );
    }

    #[test]
    fn the_device_that_a_program_reads_is_named() {
        let mut work = work(100 << 20, 60 << 20);
        let below = DeviceUse { device: "254:0".into(), read_bytes: 100 << 20, read_again_bytes: 60 << 20 };
        work.usage.devices.push(below);
        work.usage.readers.push(TaskReads { device: "8:0".into(), tid: TaskId(7), ..TaskReads::default() });
        assert!(only(find(&work.seen())).what.contains("read from 8:0"));
    }

    #[test]
    fn reads_that_pass_the_page_cache_by_are_told_apart() {
        for (pages, begins) in [
            (100, "They are read with O_DIRECT: "),
            (25_600, "The page cache no longer had them: it is too small, a limit of the cgroup's memory"),
            (12_000, "The page cache no longer had them: "),
            (0, "The page cache no longer had them: "),
        ] {
            let mut work = work(100 << 20, 60 << 20);
            let total = Brought { requested: pages, ..Brought::default() };
            work.readahead = Some(AccuracyFindings { total, ..AccuracyFindings::default() });
            let finding = only(find(&work.seen()));
            assert!(finding.cause.starts_with(begins), "{pages}: {}", finding.cause);
            assert_eq!(finding.cause.contains("; or O_DIRECT"), [0, 12_000].contains(&pages), "{}", finding.cause);
            assert_eq!(matches!(finding.advice[0].steps[0], Step::Code { .. }), pages == 100);
        }
    }

    #[test]
    fn who_has_pages_dropped_is_named() {
        for (dropped, left_bytes, is_told) in
            [(60 << 20, 70 << 20, true), (20 << 20, 30 << 20, false), (60 << 20, 200 << 20, false)]
        {
            let mut work = work(100 << 20, 60 << 20);
            work.usage.dropped.insert(TaskId(7), dropped);
            work.usage.left_bytes = left_bytes;
            let finding = only(find(&work.seen()));
            let said = "task (7) had the kernel drop 60 MiB of the page cache: posix_fadvise(POSIX_FADV_DONTNEED).";
            assert_eq!(finding.cause.starts_with(said), is_told, "{}", finding.cause);
            let gain = finding.advice[0].gain.known().map(|gain| (gain.least_percent, gain.most_percent));
            assert_eq!(gain, is_told.then_some((30.0, 63.0)));
        }
    }

    #[test]
    fn little_of_it_is_not() {
        assert!(find(&work(100 << 20, 10 << 20).seen()).is_empty());
        assert!(find(&work(2 << 20, 1 << 20).seen()).is_empty());
        let mut swap = work(100 << 20, 60 << 20);
        swap.storage.swaps.push("8:0".into());
        assert!(find(&swap.seen()).is_empty());
    }
}
