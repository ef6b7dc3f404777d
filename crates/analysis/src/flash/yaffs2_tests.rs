use super::*;
use crate::testing::{access, flash};
use FlashOp::{Erase, Program, Read};
use flashscope_trace::TaskId;

const SHAPE: Geometry = Geometry { page_bytes: 2048, pages_per_block: 64 };
const PARTITION: (u16, u64, u64) = (0, 100, 20);
const WRITER: u32 = 0;
const THREAD_OF: u32 = 1;
const MOUNT: u32 = 2;
const TASKS: [&str; 3] = ["writer", "yaffs2_gc_mtd0", "mount"];

/// Block of the partition and page, to the page's number.
fn page(block: u64, index: u64) -> u64 {
    (100 + block) * 64 + index
}

fn found(ops: &[(u32, FlashOp, u64)]) -> Vec<(ActivityKind, u64, u64, u64)> {
    found_where(ops, &[])
}

fn found_where(ops: &[(u32, FlashOp, u64)], mounted: &[(u16, u64, u64)]) -> Vec<(ActivityKind, u64, u64, u64)> {
    let fold = Yaffs2Fold::new(&[(0, SHAPE)], &[PARTITION], |tid: TaskId, _| TASKS.get(tid.0 as usize).copied());
    let mut fold = fold.mounted(mounted);
    for (at, &(tid, op, page)) in ops.iter().enumerate() {
        fold.event(&flash(at as u64 * 1000, tid, access(op, page)));
    }
    let mut rows: Vec<_> = fold
        .finish()
        .phases
        .iter()
        .map(|one| (one.kind, one.counts.reads, one.counts.programs, one.counts.erases))
        .collect();
    rows.sort();
    rows
}

fn log(ops: &mut Vec<(u32, FlashOp, u64)>, block: u64, indexes: std::ops::Range<u64>) {
    ops.extend(indexes.map(|index| (WRITER, Program, page(block, index))));
}

/// The thread has done something: it is a YAFFS2.
fn thread_works(ops: &mut Vec<(u32, FlashOp, u64)>) {
    ops.push((THREAD_OF, Read, page(19, 5)));
}

#[test]
fn a_log_has_summaries_and_a_checkpoint_is_what_is_erased_before_anything_else_is_written() {
    let mut ops = Vec::new();
    log(&mut ops, 0, 0..64);
    log(&mut ops, 1, 0..10);
    // An unmount, and the next write.
    ops.extend((0..3).map(|index| (MOUNT, Program, page(2, index))));
    ops.push((WRITER, Erase, page(2, 0)));
    log(&mut ops, 1, 10..64);
    thread_works(&mut ops);
    assert_eq!(
        found(&ops),
        [
            (ActivityKind::CheckpointWrite, 0, 3, 0),
            (ActivityKind::CheckpointErase, 0, 0, 1),
            (ActivityKind::SummaryWrite, 0, 2, 0),
            (ActivityKind::CollectionByThread, 1, 0, 0),
        ]
    );
}

#[test]
fn a_block_begun_before_the_last_is_full_and_written_on_is_no_checkpoint() {
    let mut ops = Vec::new();
    log(&mut ops, 0, 0..10);
    // A mount that scans goes on in a block of its own.
    ops.extend((0..20).map(|block| (MOUNT, Read, page(block, 0))));
    ops.push((MOUNT, Read, page(0, 63)));
    ops.extend((0..64).rev().map(|index| (MOUNT, Read, page(0, index))));
    ops.push((MOUNT, Program, page(1, 0)));
    log(&mut ops, 1, 1..64);
    log(&mut ops, 2, 0..5);
    thread_works(&mut ops);
    let rows = found(&ops);
    assert!(rows.contains(&(ActivityKind::SummaryWrite, 0, 1, 0)), "{rows:?}");
    assert!(!rows.iter().any(|row| row.0 == ActivityKind::CheckpointWrite), "{rows:?}");
}

#[test]
fn a_mount_reads_a_checkpoint_or_the_summaries() {
    let mut ops: Vec<(u32, FlashOp, u64)> = (0..4).map(|block| (MOUNT, Read, page(block, 0))).collect();
    ops.extend((0..5).map(|index| (MOUNT, Read, page(3, index))));
    // The root directory's header.
    ops.push((MOUNT, Read, page(1, 7)));
    assert_eq!(found_where(&ops, &[PARTITION]), [(ActivityKind::CheckpointRead, 5, 0, 0)]);

    let mut ops: Vec<(u32, FlashOp, u64)> = (0..20).map(|block| (MOUNT, Read, page(block, 0))).collect();
    // The block that was written last has no summary: its pages are looked at one by one.
    ops.push((MOUNT, Read, page(4, 63)));
    ops.extend((0..64).rev().map(|index| (MOUNT, Read, page(4, index))));
    for block in (0..4).rev() {
        ops.push((MOUNT, Read, page(block, 63)));
        ops.push((MOUNT, Read, page(block, 9)));
    }
    thread_works(&mut ops);
    assert_eq!(
        found_where(&ops, &[PARTITION]),
        [(ActivityKind::SummaryRead, 4, 0, 0), (ActivityKind::CollectionByThread, 1, 0, 0)]
    );
}

#[test]
fn writers_collect_by_steps() {
    let mut ops = Vec::new();
    log(&mut ops, 0, 0..64);
    log(&mut ops, 1, 0..64);
    log(&mut ops, 2, 0..2);
    // A step, a header that is written anew, and the last step.
    let moved = [(0, 1), (0, 3), (0, 8), (0, 20), (0, 21), (1, 40), (0, 30), (0, 31)];
    for (next, (block, index)) in (2..).zip(moved) {
        ops.push((WRITER, Read, page(block, index)));
        ops.push((WRITER, Program, page(2, next)));
    }
    ops.push((WRITER, Erase, page(0, 0)));
    thread_works(&mut ops);
    assert_eq!(
        found(&ops),
        [
            (ActivityKind::SummaryWrite, 0, 2, 0),
            (ActivityKind::CollectionByThread, 1, 0, 0),
            (ActivityKind::CollectionByWriter, 7, 7, 1),
        ]
    );
}

#[test]
fn nothing_is_said_of_what_is_no_yaffs2_nor_of_what_lies_elsewhere() {
    let mut ops = Vec::new();
    log(&mut ops, 0, 0..64);
    assert_eq!(found(&ops), []);
    assert_eq!(found(&[(THREAD_OF, Read, 5)]), []);
    // UBI's attach reads the first page of each block twice, and nothing says that a YAFFS2 is mounted here.
    let mut ops = Vec::new();
    ops.extend((0..8).flat_map(|block| [(MOUNT, Read, page(block, 0)), (MOUNT, Read, page(block, 0))]));
    ops.push((WRITER, Erase, page(0, 0)));
    assert_eq!(found(&ops), []);
    assert_ne!(found_where(&ops, &[PARTITION]), []);
    assert_eq!(found_where(&ops, &[(0, 0, 20)]), []);
}

#[test]
fn phases_beyond_those_kept_are_counted_as_not_told() {
    let mut fold = Yaffs2Fold::new(&[(0, SHAPE)], &[PARTITION], |tid: TaskId, _| TASKS.get(tid.0 as usize).copied());
    let apart = 10_000_000_000;
    for at in 0..MAX_KEPT as u64 + 7 {
        fold.event(&flash(at * apart, THREAD_OF, access(Read, page(3, 1))));
    }
    let found = fold.finish();
    assert_eq!((found.phases.len(), found.not_told.reads), (MAX_KEPT, 7));
}

#[test]
fn steps_that_wait_for_an_erase_are_bounded() {
    let mut fold = Yaffs2Fold::new(&[(0, SHAPE)], &[PARTITION], |tid: TaskId, _| TASKS.get(tid.0 as usize).copied());
    let (mut time, mut programmed) = (0, 1);
    let mut one = |tid: u32, op: FlashOp, page: u64| {
        time += 1000;
        fold.event(&flash(time, tid, access(op, page)));
    };
    one(THREAD_OF, Read, page(19, 5));
    one(WRITER, Program, page(2, 0));
    // Whole steps of a block that is never erased.
    // The first dozen have their programs in what may be a checkpoint.
    let steps = MAX_WAITING / (2 * A_STEP) + 30;
    for _ in 0..=steps {
        for index in 1..=A_STEP as u64 {
            one(WRITER, Read, page(5, index));
            one(WRITER, Program, page(2, programmed));
            programmed = programmed % 60 + 1;
        }
    }
    let found = fold.finish();
    assert!(found.not_told.reads > 0 && found.not_told.reads <= 30 * A_STEP as u64, "{:?}", found.not_told);
}
