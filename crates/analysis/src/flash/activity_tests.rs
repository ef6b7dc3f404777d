use super::ActivityKind::{BackgroundCheck, Formatting, GarbageCollection, MountScan, Programs};
use super::*;
use crate::testing::{access, flash};
use FlashOp::{Erase, Program, Read};
use flashscope_trace::TaskId;

const SHAPE: Geometry = Geometry { page_bytes: 2048, pages_per_block: 64 };
const PARTITION: (u16, u64, u64) = (0, 16, 64);

/// The events of a file of `recorded/`, whose head says how it is written, and the tasks' names by their number.
fn recorded(text: &str) -> (Vec<Event>, Vec<String>) {
    let (mut events, mut tasks): (Vec<Event>, Vec<String>) = (Vec::new(), Vec::new());
    let (mut begin_us, mut tid) = (0u64, 0);
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split(' ').peekable();
        begin_us += words.next().unwrap().parse::<u64>().unwrap();
        let (op, page) = words.next().unwrap().split_at(1);
        let op = match op {
            "R" => Read,
            "P" => Program,
            "E" => Erase,
            other => panic!("{other} in {line}"),
        };
        let page: i64 = page.parse().unwrap();
        let (mut count, mut step, mut lasts_us) = (1u64, 0i64, 0u64);
        if let Some(run) = words.next_if(|word| word.contains('*')) {
            let (n, rest) = run.split_once('*').unwrap();
            let (by, lasts) = rest.split_once('+').unwrap();
            (count, step, lasts_us) = (n.parse().unwrap(), by.parse().unwrap(), lasts.parse().unwrap());
        }
        if let Some(name) = words.next() {
            tid = tasks.iter().position(|task| task == name).unwrap_or_else(|| {
                tasks.push(name.to_owned());
                tasks.len() - 1
            });
        }
        for i in 0..count {
            let time_us = begin_us + lasts_us * i / count.saturating_sub(1).max(1);
            events.push(flash(time_us * 1000, tid as u32, access(op, (page + step * i as i64) as u64)));
        }
    }
    events.sort_by_key(|event| event.time);
    (events, tasks)
}

fn fold(events: &[Event], tasks: &[&str], partitions: &[(u16, u64, u64)]) -> Activities {
    let lookup = |tid: TaskId, _| tasks.get(tid.0 as usize).copied();
    let mut fold = ActivityFold::new(&[(0, SHAPE)], partitions, lookup);
    events.iter().for_each(|event| fold.event(event));
    fold.finish()
}

/// Every operation is in one phase, and in one task of it.
fn told_all(found: &Activities, events: &[Event]) {
    let mut all = OpCounts::default();
    for event in events {
        if let EventKind::Flash(access) = &event.kind {
            all.add(access.op);
        }
    }
    let (mut sum, mut of_tasks) = (found.not_told, found.not_told);
    for phase in &found.phases {
        sum += phase.counts;
        phase.tasks.iter().for_each(|task| of_tasks += task.counts);
    }
    assert_eq!((sum, of_tasks), (all, all));
}

fn of_file(text: &str) -> Activities {
    let (events, tasks) = recorded(text);
    let tasks: Vec<&str> = tasks.iter().map(String::as_str).collect();
    let found = fold(&events, &tasks, &[PARTITION]);
    told_all(&found, &events);
    // A recording that does not know the partition says the same of these.
    assert_eq!(fold(&events, &tasks, &[]), found);
    found
}

fn kinds(found: &Activities) -> Vec<ActivityKind> {
    found.phases.iter().map(|phase| phase.kind).collect()
}

fn one(found: &Activities, kind: ActivityKind) -> &Activity {
    let mut of_kind = found.phases.iter().filter(|phase| phase.kind == kind);
    let first = of_kind.next().unwrap_or_else(|| panic!("no {kind:?} in {found:?}"));
    assert!(of_kind.next().is_none(), "one {kind:?}");
    first
}

#[test]
fn jffs2_s_first_boot_has_its_phases() {
    let found = of_file(include_str!("recorded/jffs2-first.txt"));
    assert_eq!(kinds(&found), [MountScan, Programs, BackgroundCheck, Programs, Formatting]);
    let scan = one(&found, MountScan);
    // Eight blocks hold data. Of the others: the first four pages, for what their spare area says, and the summary's page.
    assert_eq!(scan.scan, Some(Scanned { pages: 8 * 64 + 56 * 5, blocks: 64, whole_blocks: 8 }));
    let format = one(&found, Formatting);
    assert_eq!(format.counts, OpCounts { reads: 56 * 64, programs: 56, erases: 56 });
    assert_eq!((format.first_page, format.last_page), (24 * 64, 80 * 64 - 1));
    let check = one(&found, BackgroundCheck);
    assert_eq!((check.counts.programs, check.counts.erases), (0, 0));
    assert!(check.begin_ns > scan.end_ns && format.begin_ns > check.end_ns);
    for phase in [format, check] {
        assert_eq!(phase.tasks.len(), 1);
        assert_eq!(phase.tasks[0].task, "jffs2_gcd_mtd1");
    }
}

#[test]
fn ubi_scans_first_pages_and_formats_at_once() {
    let found = of_file(include_str!("recorded/ubifs-first.txt"));
    assert_eq!(kinds(&found), [MountScan, Programs, Formatting, GarbageCollection]);
    let (scan, format) = (one(&found, MountScan), one(&found, Formatting));
    assert_eq!(scan.scan, Some(Scanned { pages: 64, blocks: 64, whole_blocks: 0 }));
    // 23 blocks were flashed; two of the others carry UBI's table of volumes again, which grew.
    assert_eq!((format.counts.erases, format.counts.programs), (43, 43));
    assert!(format.begin_ns - scan.end_ns < 20_000_000);
    assert_eq!(format.tasks[0].task, "ubi_bgt0d");
}

#[test]
fn a_second_boot_formats_nothing() {
    let found = of_file(include_str!("recorded/ubifs-second.txt"));
    assert_eq!(kinds(&found), [MountScan, Programs, GarbageCollection]);
    assert_eq!(one(&found, GarbageCollection).counts.erases, 2);
}

/// Pages of one read after the other, a millisecond each.
fn reads(tid: u32, from_ms: u64, pages: impl IntoIterator<Item = u64>) -> Vec<Event> {
    pages
        .into_iter()
        .enumerate()
        .map(|(i, page)| flash((from_ms + i as u64) * 1_000_000, tid, access(Read, page)))
        .collect()
}

fn heads(first: u64, blocks: u64) -> impl Iterator<Item = u64> {
    (first..first + blocks).map(|block| block * 64)
}

#[test]
fn a_file_in_order_is_no_scan_but_a_whole_partition_is() {
    let whole = reads(0, 0, 16 * 64..80 * 64);
    assert_eq!(kinds(&fold(&whole, &["cat"], &[])), [Programs]);
    assert_eq!(kinds(&fold(&whole, &["mount"], &[PARTITION])), [MountScan]);
    let half = reads(0, 0, 16 * 64..48 * 64);
    assert_eq!(kinds(&fold(&half, &["cat"], &[PARTITION])), [Programs]);
    assert_eq!(kinds(&fold(&reads(0, 0, heads(16, 15)), &["cat"], &[])), [Programs]);
}

#[test]
fn bad_blocks_are_stepped_over_and_others_read_beside_it() {
    let mut events = reads(0, 0, heads(16, 20).chain(heads(38, 20)));
    events.extend(reads(1, 0, [1600, 1700, 1800, 1900]));
    events.sort_by_key(|event| event.time);
    let found = fold(&events, &["mount", "cat"], &[]);
    assert_eq!(kinds(&found), [MountScan, Programs]);
    assert_eq!(one(&found, MountScan).scan.map(|scan| scan.blocks), Some(40));
    told_all(&found, &events);
}

fn erases(tid: u32, from_ms: u64, blocks: impl IntoIterator<Item = u64>) -> Vec<Event> {
    let erase = |(i, block): (usize, u64)| flash((from_ms + i as u64) * 1_000_000, tid, access(Erase, block * 64));
    blocks.into_iter().enumerate().map(erase).collect()
}

#[test]
fn erases_are_formatting_only_of_blocks_without_data_after_a_scan_and_in_a_run() {
    let scan = reads(0, 0, heads(16, 64));
    let after = |more: Vec<Event>| {
        let events = [scan.clone(), more].concat();
        let found = fold(&events, &["mount", "ubi_bgt0d"], &[]);
        told_all(&found, &events);
        found
    };
    // Either way, and two lists of blocks.
    let found = after(erases(1, 100, (20..30).rev().chain(60..70)));
    assert_eq!(one(&found, Formatting).counts.erases, 20);
    // Too few, too far from one another, and without a scan.
    assert_eq!(kinds(&after(erases(1, 100, 20..27))), [MountScan, GarbageCollection]);
    assert_eq!(kinds(&after(erases(1, 100, (16..80).step_by(9)))), [MountScan, GarbageCollection]);
    assert_eq!(kinds(&fold(&erases(1, 0, 20..60), &["", "ubi_bgt0d"], &[])), [GarbageCollection]);
    // What was written, or read further than its head, has data; what was erased as empty has none again.
    let written: Vec<Event> =
        (20..30).map(|block| flash((100 + block) * 1_000_000, 1, access(Program, block * 64 + 5))).collect();
    let found = after([written, erases(1, 200, 20..30), erases(1, 300, 20..30)].concat());
    assert_eq!(one(&found, GarbageCollection).counts.erases, 10);
    assert_eq!(one(&found, Formatting).counts.erases, 10);
    let found = after([reads(0, 100, [20 * 64 + 9]), erases(1, 200, [20])].concat());
    assert_eq!(one(&found, GarbageCollection).counts.erases, 1);
}

#[test]
fn jffs2_s_thread_collects_once_it_has_written() {
    let mut events = reads(0, 0, heads(16, 64));
    events.extend(reads(1, 100, 2000..2010));
    events.push(flash(200_000_000, 1, access(Program, 3000)));
    events.extend(reads(1, 300, 2100..2105));
    let found = fold(&events, &["mount", "jffs2_gcd_mtd1"], &[]);
    assert_eq!(one(&found, BackgroundCheck).counts.reads, 10);
    assert_eq!(one(&found, GarbageCollection).counts, OpCounts { reads: 5, programs: 1, erases: 0 });
    // Without a mount before it nothing says that it checks.
    assert_eq!(kinds(&fold(&events[64..], &["mount", "jffs2_gcd_mtd1"], &[])), [GarbageCollection]);
}

#[test]
fn pauses_end_what_programs_do_but_not_a_check() {
    let mut events = reads(0, 0, heads(16, 64));
    for second in [1, 2, 9, 20] {
        events.extend(reads(1, second * 1000, [2000 + second]));
        events.extend(reads(2, second * 1000 + 1, [2100 + second]));
    }
    let found = fold(&events, &["mount", "jffs2_gcd_mtd1", "cat"], &[]);
    assert_eq!(found.phases.iter().filter(|phase| phase.kind == Programs).count(), 3);
    assert_eq!(one(&found, BackgroundCheck).counts.reads, 4);
}

#[test]
fn unknown_shapes_are_counted_and_memory_stays_bounded() {
    let found = fold(&[flash(1, 0, flashscope_trace::FlashAccess { chip: 9, ..access(Read, 1) })], &["a"], &[]);
    assert_eq!(found.not_told.reads, 1);
    assert!(found.phases.is_empty());

    let mut fold = ActivityFold::new(&[(0, SHAPE)], &[(0, u64::MAX - 1, u64::MAX)], |_, _| None::<&str>);
    for i in 0..5000u64 {
        // Thousands of tasks, phases and distances that overflow where they are not watched.
        fold.event(&flash(i * 3_000_000_000, i as u32, access(Read, u64::MAX - i * 1000)));
        fold.event(&flash(i * 3_000_000_000, i as u32, access(Erase, i * 64)));
    }
    assert!(fold.walks.len() <= MAX_WALKS);
    let found = fold.finish();
    assert_eq!(found.phases.len(), MAX_ACTIVITIES);
    let sum: u64 = found.phases.iter().map(|phase| phase.counts.sum()).sum();
    assert_eq!(sum + found.not_told.sum(), 10_000);
}

#[test]
fn scans_and_formatting_before_programs_are_setup() {
    let of = |phases: &[(ActivityKind, u64, u64)]| {
        let phase = |&(kind, begin_ns, end_ns): &(ActivityKind, u64, u64)| Activity {
            kind,
            chip: 0,
            begin_ns,
            end_ns,
            counts: OpCounts::default(),
            first_page: 0,
            last_page: 0,
            scan: None,
            tasks: Vec::new(),
        };
        Activities { phases: phases.iter().map(phase).collect(), not_told: OpCounts::default() }.setup_ns()
    };
    // ubiformat, ubiattach beside its last programs, and a file system that is used.
    let ubi = [
        (MountScan, 37, 42),
        (Formatting, 42, 93),
        (Programs, 92, 171),
        (MountScan, 93, 104),
        (GarbageCollection, 104, 170),
    ];
    assert_eq!(of(&ubi), 5 + 50 + 11);
    // JFFS2 formats in the background until it is written.
    assert_eq!(of(&[(MountScan, 10, 20), (Formatting, 15, 60), (Programs, 30, 90)]), 20);
    // Beside programs it may be what they need.
    assert_eq!(of(&[(Programs, 0, 100), (Formatting, 10, 90)]), 0);
    assert_eq!(of(&[(Programs, 0, 5), (Formatting, 10, 90)]), 80);
    assert_eq!(of(&[]), 0);
}
