//! Raw flash on which many more bytes are programmed than programs write.

use super::{Finding, MeasureUnit, Remedy, Rule, Seen, code, measure};
use crate::calls::is_write;
use crate::flash::{ActivityKind, TaskWear, Wear};
use crate::total::Total as _;
use crate::units::{digits, size};
use crate::{Evidence, FlashFindings};
use std::collections::BTreeSet;

/// Bytes programmed for each byte written.
const MIN_TIMES: f64 = 3.0;
/// Fewer bytes are not reported.
const MIN_BYTES: u64 = 256 << 10;

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let Some(flash) = seen.flash else { return Vec::new() };
    let Some(wear) = flash.wear.known() else { return Vec::new() };
    let (Some(written), Some(all)) = (wear.written_bytes, wear.programmed_bytes) else { return Vec::new() };
    let written = written.max(written_to_mounts(seen));
    let page = all / wear.programmed_pages.max(1);
    let formatted = formatted_pages(flash, wear).saturating_mul(page);
    let programmed = all.saturating_sub(formatted);
    let times = programmed as f64 / written.max(1) as f64;
    if written == 0 || programmed < MIN_BYTES || times < MIN_TIMES {
        return Vec::new();
    }
    let first = wear.by_task.iter().filter(|task| task.written_bytes > 0).max_by_key(|task| task.written_bytes);
    let spends =
        first.map_or(String::new(), |task| format!(" Most is written by {}: {}.", task.task, size(task.written_bytes)));
    let source = "flashscope:nand_program, flashscope:file_write";
    let mut evidence = vec![
        measure("written by programs", written as f64, MeasureUnit::Bytes, source),
        measure("programmed", programmed as f64, MeasureUnit::Bytes, source),
        measure("erased", wear.erased_bytes.unwrap_or(0) as f64, MeasureUnit::Bytes, "flashscope:nand_erase"),
    ];
    if formatted > 0 {
        evidence.push(measure("programmed by formatting, not counted", formatted as f64, MeasureUnit::Bytes, source));
    }
    vec![Finding {
        what: format!(
            "{} written by programs become {} programmed on the flash: {} times as much.",
            size(written),
            size(programmed),
            digits(times)
        ),
        cause: format!(
            "Writes smaller than a page each fill a page, and each moves the index, where they are synced one by one or are files of their own.{spends}"
        ),
        evidence,
        lost_ns: Evidence::unknown(
            "durations of programs are recorded with --detail duration only",
            "record with --detail duration",
        ),
        lost_bytes: Some(programmed.saturating_sub(written)),
        advice: vec![Remedy {
            what: "Gather records to a page (2 or 4 KiB) or more before they are synced".to_owned(),
            steps: vec![code::FLUSH_AND_FSYNC.with(50)],
            gain: super::Gain {
                of: "bytes programmed on the flash".to_owned(),
                least_percent: (1.0 - 2.0 / times).max(0.0) * 25.0,
                most_percent: (1.0 - 1.0 / (2.0 * times)) * 100.0,
                basis: "as many bytes as are written stay, and up to three quarters of the rest: mounts, formatting, the file system's own work".to_owned(),
            }
            .into(),
            risk: "a power cut loses the records that were gathered".to_owned(),
        }],
        ..Finding::of(Rule::FlashAmplification)
    }]
}

/// Bytes that calls wrote to file systems on raw flash. A `sync` of another process programs pages of no known file, as with JFFS2: then
/// only the mount shows that the file lies on flash.
fn written_to_mounts(seen: &Seen<'_>) -> u64 {
    let mounts = seen.storage.flash_mounts();
    let devices: BTreeSet<&str> = mounts.map(|mount| mount.device.as_str()).collect();
    devices.into_iter().map(|device| seen.calls_on(device, is_write).2).total()
}

/// Pages of formatting, and of programs that format (ubiformat also writes its volume table): they belong to no file.
fn formatted_pages(flash: &FlashFindings, wear: &Wear) -> u64 {
    let of = |kind| flash.activities.phases.iter().filter(move |phase| phase.kind == kind);
    let programs = |kind, task: &str| -> u64 {
        of(kind).flat_map(|phase| &phase.tasks).filter(|one| one.task == task).map(|one| one.counts.programs).total()
    };
    let formats = |task: &TaskWear| {
        let pages = programs(ActivityKind::Formatting, &task.task);
        let is_for_files = task.written_bytes > 0 || programs(ActivityKind::GarbageCollection, &task.task) > 0;
        if pages == 0 || is_for_files { pages } else { task.programmed_pages }
    };
    wear.by_task.iter().map(formats).total()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Work, only};
    use super::*;
    use crate::flash::{Activity, OpCounts, TaskOps};

    fn work(written: u64, programmed: u64) -> Work {
        let mut work = Work::new(1_000_000_000);
        let wear = work.flash().wear.known_mut().expect("wear");
        (wear.written_bytes, wear.programmed_bytes) = (Some(written), Some(programmed));
        work
    }

    #[test]
    fn tiny_writes_are_told() {
        let finding = only(find(&work(20_000, 1 << 20).seen()));
        assert!(
            finding.what.starts_with("19.5 KiB written by programs become 1 MiB programmed on the flash: 52.4 times")
        );
        let gain = finding.advice[0].gain.known().expect("a range");
        assert!(gain.least_percent > 20.0 && gain.most_percent < 100.0, "{gain:?}");
    }

    #[test]
    fn formatting_is_left_out() {
        let mut work = work(20_000, 1 << 20);
        let flash = work.flash();
        let ops =
            |task: &str, programs| TaskOps { task: task.into(), counts: OpCounts { programs, ..OpCounts::default() } };
        let phase = |kind, tasks| Activity {
            kind,
            chip: 0,
            begin_ns: 0,
            end_ns: 1,
            counts: OpCounts::default(),
            first_page: 0,
            last_page: 9,
            scan: None,
            tasks,
        };
        flash.activities.phases = vec![
            phase(ActivityKind::Formatting, vec![ops("ubiformat", 80), ops("jffs2_gcd_mtd0", 40)]),
            phase(ActivityKind::GarbageCollection, vec![ops("jffs2_gcd_mtd0", 60)]),
        ];
        let wear = flash.wear.known_mut().expect("wear");
        let task = |task: &str, programmed_pages, written_bytes| TaskWear {
            task: task.into(),
            written_bytes,
            programmed_pages,
            erased_blocks: 0,
        };
        wear.programmed_pages = 512;
        wear.by_task = vec![task("ubiformat", 100, 0), task("jffs2_gcd_mtd0", 100, 0), task("log", 312, 20_000)];
        let finding = only(find(&work.seen()));
        assert!(finding.what.contains("become 744 KiB programmed on the flash: 38.1 times"), "{}", finding.what);
        assert_eq!(finding.evidence[3].value, 140.0 * 2048.0);
    }

    /// Lines on JFFS2, each synced by `sync`: no page is known to be the file's.
    #[test]
    fn syncs_of_another_process_are_told() {
        for (kind, told) in [("jffs2", true), ("ext4", false)] {
            let mut work = work(0, 1 << 20);
            work.mount("/m", kind, "rw");
            work.file_call("write", "8:0 inode 12", 300, 30_000_000);
            work.calls.by_file[0].bytes = 20_000;
            assert_eq!(find(&work.seen()).first().is_some_and(|one| one.what.contains("52.4 times")), told, "{kind}");
        }
    }

    #[test]
    fn large_writes_and_little_of_it_are_not() {
        for (written, programmed) in [(1 << 20, 2 << 20), (1_000, 100_000), (0, 1 << 20)] {
            assert!(find(&work(written, programmed).seen()).is_empty());
        }
    }
}
