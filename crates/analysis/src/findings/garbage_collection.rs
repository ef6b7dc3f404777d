//! Raw flash whose file systems copy much data to free erase blocks, as nearly full ones do.
//!
//! JFFS2 and YAFFS2 copy in threads of their own, UBI in `ubi_bgtNd` to level wear. UBIFS copies within the writer: a worker of the kernel
//! that writes back then reads pages. It reads whole blocks, and its index, so it has copied at most as many pages as it reads: the
//! result is an upper bound there, and says so. Limits: a program whose own call copies (a sync on UBIFS, a write on JFFS2 without a
//! free block) cannot be distinguished from one that reads its file. What it copies is left out.

use super::{Finding, MeasureUnit, Mount, Remedy, Rule, Seen, Step, measure, percent};
use crate::flash::{ActivityKind, TaskOps};
use crate::kernel_threads::is_worker;
use crate::total::Total as _;
use crate::units::size;
use crate::{Evidence, FlashFindings};
use flashscope_trace::FlashOp;

/// Fewer bytes are not reported.
const MIN_BYTES: u64 = 256 << 10;
/// Least share of all that is programmed without formatting, per cent.
const MIN_PERCENT: f64 = 10.0;
/// Above this a file system is called nearly full, per cent of its size.
const FULL_PERCENT: f64 = 70.0;

const UBI: &str = "ubi_bgt";

/// Who copied most.
#[derive(Default)]
struct Copies {
    task: String,
    pages: u64,
}

pub(super) fn find(seen: &Seen<'_>) -> Vec<Finding> {
    let Some(flash) = seen.flash else { return Vec::new() };
    let Some(wear) = flash.wear.known() else { return Vec::new() };
    let Some(page) = wear.programmed_bytes.and_then(|all| all.checked_div(wear.programmed_pages)) else {
        return Vec::new();
    };
    let is_ubifs = seen.storage.flash_mounts().any(|mount| mount.kind == "ubifs");
    let copies = copies(flash, is_ubifs);
    let pages = copies.iter().map(|one| one.pages).total();
    let of = |kind| flash.activities.phases.iter().filter(move |phase| phase.kind == kind);
    let both = of(ActivityKind::Programs).chain(of(ActivityKind::GarbageCollection));
    let all: u64 = both.map(|phase| phase.counts.programs).total();
    let Some(most) = copies.iter().max_by_key(|one| one.pages) else { return Vec::new() };
    let bytes = pages.saturating_mul(page);
    if bytes < MIN_BYTES || percent(pages, all) < MIN_PERCENT {
        return Vec::new();
    }
    // Of UBIFS's workers the reads are known, and not how many of these pages are copied.
    let is_bound = copies.iter().any(|one| is_worker(&one.task));
    let (amount, copied) = match is_bound {
        true => (format!("Up to {}", size(bytes)), "pages copied, at most"),
        false => (size(bytes), "pages copied"),
    };
    let erases = of(ActivityKind::GarbageCollection).map(|phase| phase.counts.erases).total();
    let source = "flashscope:nand_read, nand_program, nand_erase by these threads";
    vec![Finding {
        what: format!(
            "{amount} of the {} programmed on the flash ({:.0} %) are data that is copied to free erase blocks, most by {}.",
            size(all.saturating_mul(page)),
            percent(pages, all),
            most.task
        ),
        cause: cause(seen, most),
        evidence: vec![
            measure(copied, pages as f64, MeasureUnit::Count, source),
            measure("pages programmed, without formatting", all as f64, MeasureUnit::Count, source),
            measure("erases", erases as f64, MeasureUnit::Count, source),
        ],
        lost_ns: time(flash, pages, erases),
        lost_bytes: Some(bytes),
        advice: vec![remedy(seen, most)],
        ..Finding::of(Rule::GarbageCollection)
    }]
}

/// Each erase of a collector is followed by a program of the block's header or clean marker: that is no copy.
fn copies(flash: &FlashFindings, is_ubifs: bool) -> Vec<Copies> {
    let mut all: Vec<Copies> = Vec::new();
    let mut add = |one: &TaskOps, pages: u64| match all.iter_mut().find(|known| known.task == one.task) {
        Some(known) => known.pages = known.pages.saturating_add(pages),
        None => all.push(Copies { task: one.task.clone(), pages }),
    };
    for phase in &flash.activities.phases {
        for one in &phase.tasks {
            match phase.kind {
                ActivityKind::GarbageCollection => add(one, one.counts.programs.saturating_sub(one.counts.erases)),
                ActivityKind::Programs if is_ubifs && is_worker(&one.task) => {
                    add(one, one.counts.reads.min(one.counts.programs));
                }
                _ => {}
            }
        }
    }
    all.retain(|one| one.pages > 0);
    all
}

/// The fullest file system of the kind that these threads belong to, and how full it is, per cent.
fn fullest<'a>(seen: &Seen<'a>, most: &Copies) -> Option<(&'a Mount, f64)> {
    let kind = match most.task.as_str() {
        task if task.starts_with("jffs2") => "jffs2",
        task if task.starts_with("yaffs") => "yaffs",
        _ => "ubifs",
    };
    let of_kind = seen.storage.flash_mounts().filter(|mount| mount.kind.starts_with(kind));
    let used = |mount: &'a Mount| {
        let (size, free) = mount.size_bytes.zip(mount.free_bytes)?;
        Some((mount, percent(size.saturating_sub(free), size)))
    };
    of_kind.filter_map(used).max_by(|a, b| a.1.total_cmp(&b.1))
}

fn cause(seen: &Seen<'_>, most: &Copies) -> String {
    if most.task.starts_with(UBI) {
        return "UBI moves blocks that rarely change, so that all wear alike, and blocks with bit errors.".to_owned();
    }
    let how = "A block is erased as a whole: what is still valid in it is written again elsewhere. The fuller the file system is, the \
               more each block still has.";
    match fullest(seen, most) {
        Some((mount, used)) => {
            format!("{} was {used:.0} % full when the recording began. {how}", mount.target)
        }
        None => format!("{how} The trace does not show how full it was: df shows it."),
    }
}

fn remedy(seen: &Seen<'_>, most: &Copies) -> Remedy {
    let compare = |missing: &str| Evidence::unknown(missing, "try it, and compare two recordings: flashscope diff");
    if most.task.starts_with(UBI) {
        return Remedy {
            what: "Write less; or have UBI move later, with a larger CONFIG_MTD_UBI_WEAR_THRESHOLD".to_owned(),
            steps: Vec::new(),
            gain: compare("how much is moved then follows from what is written"),
            risk: "with a larger threshold some blocks wear out earlier".to_owned(),
        };
    }
    let mount = fullest(seen, most);
    let target = mount.map(|(mount, _)| mount).or_else(|| seen.storage.flash_mounts().next());
    let what = match mount.is_some_and(|(_, used)| used < FULL_PERCENT) {
        true => "Keep files that often change apart from those that do not: then whole blocks become free",
        false => "Free some of it, and leave a reserve (a quarter or more); or give the file system a larger partition",
    };
    Remedy {
        what: what.to_owned(),
        steps: vec![Step::Run {
            command: "df -h".to_owned(),
            names: target.map(|mount| mount.target.clone()).into_iter().collect(),
        }],
        gain: compare("how much is copied with more free space follows from where the data lies"),
        risk: "none to look".to_owned(),
    }
}

/// At the mean of all operations of this trace.
fn time(flash: &FlashFindings, pages: u64, erases: u64) -> Evidence<u64> {
    let mean = |op| flash.durations.iter().find(|one| one.op == op).map(|one| one.latency_ns.mean);
    let (Some(read), Some(program)) = (mean(FlashOp::Read), mean(FlashOp::Program)) else {
        return Evidence::unknown(
            "durations of flash operations are recorded with --detail duration only",
            "record with --detail duration",
        );
    };
    let of_erases = erases.saturating_mul(mean(FlashOp::Erase).unwrap_or(0));
    pages.saturating_mul(read.saturating_add(program)).saturating_add(of_erases).into()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Work, only};
    use super::*;
    use crate::flash::{Activity, OpCounts};

    fn phase(kind: ActivityKind, tasks: &[(&str, [u64; 3])]) -> Activity {
        let ops = |&(task, [reads, programs, erases]): &(&str, [u64; 3])| TaskOps {
            task: task.into(),
            counts: OpCounts { reads, programs, erases },
        };
        let tasks: Vec<TaskOps> = tasks.iter().map(ops).collect();
        let mut counts = OpCounts::default();
        tasks.iter().for_each(|task| counts += task.counts);
        Activity { kind, chip: 0, begin_ns: 0, end_ns: 1, counts, first_page: 0, last_page: 9, scan: None, tasks }
    }

    fn work(phases: Vec<Activity>) -> Work {
        let mut work = Work::new(1_000_000_000);
        let flash = work.flash();
        flash.activities.phases = phases;
        let wear = flash.wear.known_mut().expect("wear");
        (wear.programmed_pages, wear.programmed_bytes) = (10_000, Some(10_000 * 2048));
        work
    }

    /// JFFS2 of 12 MiB, 84 % full, 1,200 writes of 4 KiB here and there: what nandsim counted.
    #[test]
    fn a_collector_that_copies_is_told() {
        let mut work = work(vec![
            phase(ActivityKind::Formatting, &[("jffs2_gcd_mtd0", [6080, 95, 95])]),
            phase(ActivityKind::Programs, &[("busybox", [3129, 9470, 0])]),
            phase(ActivityKind::GarbageCollection, &[("jffs2_gcd_mtd0", [6800, 1464, 77]), ("busybox", [0, 0, 2])]),
        ]);
        let finding = only(find(&work.seen()));
        // 1,464 - 77 pages of 10,934.
        let what = "2.71 MiB of the 21.4 MiB programmed on the flash (13 %) are data that is copied to free erase blocks, most by \
                    jffs2_gcd_mtd0.";
        assert_eq!(finding.what, what);
        assert!(finding.cause.contains("does not show how full it was"), "{}", finding.cause);
        work.mount("/m", "jffs2", "rw");
        (work.storage.mounts[0].size_bytes, work.storage.mounts[0].free_bytes) = (Some(100 << 20), Some(16 << 20));
        let finding = only(find(&work.seen()));
        assert!(finding.cause.starts_with("/m was 84 % full"), "{}", finding.cause);
        assert!(finding.advice[0].what.starts_with("Free some"), "{:?}", finding.advice);
    }

    /// UBIFS, 94 % and 72 % full: what nandsim counted. With other file systems a worker's reads are no copies.
    #[test]
    fn a_writer_of_ubifs_that_copies_is_told() {
        for (kind, reads, programs, told) in
            [("ubifs", 2695, 12355, true), ("ubifs", 36, 7384, false), ("jffs2", 2695, 12355, false)]
        {
            let mut work = work(vec![
                phase(ActivityKind::Programs, &[("kworker/u2:1", [reads, programs, 0]), ("sync", [63, 253, 0])]),
                phase(ActivityKind::GarbageCollection, &[("ubi_bgt0d", [0, 93, 93])]),
            ]);
            work.mount("/m", kind, "rw");
            let found = find(&work.seen());
            assert_eq!(!found.is_empty(), told, "{kind} {reads}: {found:?}");
            assert!(
                found.iter().all(|one| one.what.contains("(21 %)") && one.what.ends_with("kworker/u2:1.")),
                "{found:?}"
            );
            assert!(found.iter().all(|one| one.what.starts_with("Up to 5.26 MiB of the ")), "{found:?}");
        }
    }

    #[test]
    fn ubi_moves_to_level_wear() {
        let finding = only(find(
            &work(vec![
                phase(ActivityKind::Programs, &[("app", [0, 1000, 0])]),
                phase(ActivityKind::GarbageCollection, &[("ubi_bgt0d", [640, 650, 10])]),
            ])
            .seen(),
        ));
        assert!(finding.cause.contains("wear alike"), "{}", finding.cause);
        assert!(finding.what.starts_with("1.25 MiB of the 3.22 MiB"), "{}", finding.what);
    }

    #[test]
    fn erases_with_their_headers_are_no_copies() {
        for ops in [[0, 2048, 2048], [0, 0, 300], [100, 100, 0]] {
            let phases = vec![
                phase(ActivityKind::Programs, &[("app", [0, 5000, 0])]),
                phase(ActivityKind::GarbageCollection, &[("jffs2_gcd_mtd0", ops)]),
            ];
            assert!(find(&work(phases).seen()).is_empty(), "{ops:?}");
        }
    }
}
