//! YAFFS2's operations for no file: checkpoints, summaries, garbage collection. Recognised by task and pattern.
//!
//! YAFFS2's core (Aleph One's, yaffs_checkptrw.c, yaffs_summary.c, yaffs_yaffs2.c, yaffs_guts.c) fills one erase block after the other,
//! page by page, and ends each with a **summary** of its tags in the last page or pages. From that:
//!
//! - **Summary write**: a program of such a page.
//! - **Checkpoint write**: a block is begun while the one before is not full, and the next change to it, if any,
//!   is its erase: a checkpoint is valid only as long as nothing is written. Where the recording lacks the begin of
//!   the block before, the block's erase, or a read of the checkpoint, has to show it.
//! - **Checkpoint read**: first pages from the first block on up to a block whose first page is read again, and the pages after it.
//! - **Summary read**: after reads of every block's first page, each block's last pages before any other of its pages. They are
//!   not read twice, as they are where there is no summary.
//! - **Collection** by its thread, `yaffs2_gc_mtdN`: its operations that are none of the above.
//! - **Collection** by a writer: reads of one block, in order, each followed by a program elsewhere, at most five in a step, until
//!   the block's erase; and that erase.
//!
//! A partition has a YAFFS2 if its thread does something, or if the recording has a mount of one there ([`Yaffs2Fold::mounted`]).
//! The pattern alone is not enough: UBI's attach reads first pages twice as well, and a format erases the pages written last.

use super::activity::{MAX_STEP, Op, Stretch};
use super::{Activities, ActivityKind, OpCounts};
use crate::clip::clip;
use crate::flash::Geometry;
use crate::{Analysis, Lookup};
use flashscope_trace::{Event, EventKind, FlashAccess, FlashOp, TaskId, TimeNs};
use foldhash::{HashMap, HashSet};
use std::collections::BTreeMap;

/// Most pages that one step of the collector moves (yaffs_gc_block()).
const A_STEP: usize = 5;
/// Most blocks of a checkpoint.
const MAX_CHECKPOINT: usize = 64;
/// Most phases.
const MAX_KEPT: usize = 1000;
/// Most operations of a partition's steps that wait for their block's erase; below: most tasks that may be mounting it.
const MAX_WAITING: usize = 1 << 16;
const MAX_MOUNTING: usize = 1000;
/// Names of collector threads: our module's, before its MTD device's number; and Aleph One's (yaffs_vfs.c), which counts mounts.
const THREADS: [&str; 2] = ["yaffs2_gc_mtd", "yaffs-bg"];

fn is_thread(task: &str) -> bool {
    THREADS.iter().any(|head| task.starts_with(head))
}

/// One operation that waits to be reported.
#[derive(Clone, Debug)]
struct Waiting {
    time_ns: u64,
    op: FlashOp,
    page: u64,
    task: String,
}

/// A task's reads of one block, with the programs between them.
#[derive(Clone, Debug, Default)]
struct Group {
    tid: TaskId,
    block: u64,
    index: u64,
    reads: usize,
    moved: usize,
    ops: Vec<Waiting>,
}

/// A task's progress through a mount.
#[derive(Clone, Debug)]
enum Mounting {
    /// Reading blocks' first pages; the last block.
    Looking { block: u64 },
    /// Reading a checkpoint; the last page.
    Checkpoint { block: u64, index: u64 },
    /// Reading blocks from their ends. `seen`: blocks begun; `last`: the last block's page, if it was of its summary.
    Scanning { seen: HashSet<u64>, last: Option<(u64, Waiting)> },
}

/// Programs of blocks from their first page on, which may be a checkpoint.
#[derive(Clone, Debug)]
struct Candidate {
    /// The block before was not full.
    sure: bool,
    blocks: Vec<u64>,
    ops: Vec<Waiting>,
}

#[derive(Debug, Default)]
struct Partition {
    is_yaffs2: bool,
    /// The block that is being written, and its next page.
    writing: Option<(u64, u64)>,
    candidate: Option<Candidate>,
    checkpoints: HashSet<u64>,
    mounting: HashMap<TaskId, Mounting>,
    group: Option<Group>,
    /// Steps of blocks that are not erased yet.
    steps: HashMap<u64, Vec<Waiting>>,
    /// Number of operations in `steps`.
    waiting: usize,
    found: Vec<(ActivityKind, Stretch)>,
    /// Operations in no phase, because there were too many phases.
    not_told: OpCounts,
}

/// Finds YAFFS2's phases; reads events in order of time.
#[derive(Debug)]
pub struct Yaffs2Fold<L> {
    lookup: L,
    shapes: HashMap<u16, Geometry>,
    /// Partitions: chip, first erase block, and number of blocks.
    places: Vec<(u16, u64, u64)>,
    partitions: BTreeMap<usize, Partition>,
}

/// Pages of a block's summary (yaffs_summary_init()): 12 bytes for each page of the block, and a head of 16 in each summary page.
fn summary_pages(shape: Geometry) -> u64 {
    let page = u64::from(shape.page_bytes);
    (u64::from(shape.pages_per_block) * 12 + page - 1) / page.saturating_sub(16).max(1)
}

impl<L: Lookup<Name: AsRef<str>>> Yaffs2Fold<L> {
    /// `partitions`: chip, first erase block, and number of blocks. Without any nothing is reported.
    pub fn new(chips: &[(u16, Geometry)], partitions: &[(u16, u64, u64)], lookup: L) -> Self {
        Self {
            lookup,
            shapes: chips.iter().copied().collect(),
            places: partitions.to_vec(),
            partitions: BTreeMap::new(),
        }
    }

    /// Partitions with a mounted YAFFS2.
    pub fn mounted(mut self, partitions: &[(u16, u64, u64)]) -> Self {
        for (at, place) in self.places.iter().enumerate() {
            if partitions.contains(place) {
                self.partitions.entry(at).or_default().is_yaffs2 = true;
            }
        }
        self
    }

    fn access(&mut self, time_ns: u64, tid: TaskId, access: &FlashAccess) {
        let Some(&shape) = self.shapes.get(&access.chip) else { return };
        let pages = u64::from(shape.pages_per_block);
        let Some(block) = access.page.checked_div(pages) else { return };
        let inside = |&(chip, first, blocks): &(u16, u64, u64)| {
            chip == access.chip && (first..first.saturating_add(blocks)).contains(&block)
        };
        // The smallest one: a master that is listed beside its partitions contains them all.
        let places = self.places.iter().enumerate().filter(|(_, place)| inside(place));
        let Some((at, &(_, first, _))) = places.min_by_key(|(_, place)| place.2) else { return };
        let named = (self.lookup)(tid, TimeNs(time_ns));
        let task = named.as_ref().map_or("", |name| clip(name.as_ref()));
        let index = access.page % pages;
        let op = Op {
            time_ns,
            chip: access.chip,
            op: access.op,
            page: access.page,
            block,
            index,
            pages_per_block: pages,
            task,
        };
        let summary = pages.saturating_sub(summary_pages(shape));
        let partition = self.partitions.entry(at).or_default();
        partition.is_yaffs2 |= is_thread(task);
        match access.op {
            FlashOp::Read => partition.read(tid, &op, first, summary),
            FlashOp::Program => partition.program(tid, &op, summary),
            FlashOp::Erase => partition.erase(tid, &op, summary),
        }
    }
}

impl Waiting {
    fn of(op: &Op) -> Self {
        Self { time_ns: op.time_ns, op: op.op, page: op.page, task: op.task.to_owned() }
    }
}

impl Partition {
    fn tell(&mut self, kind: ActivityKind, chip: u16, one: &Waiting) {
        let mut stretch = Stretch::new(chip, one.time_ns);
        let op = Op {
            time_ns: one.time_ns,
            chip,
            op: one.op,
            page: one.page,
            block: 0,
            index: 0,
            pages_per_block: 1,
            task: &one.task,
        };
        stretch.add(&op);
        if let Some((_, there)) = self.found.iter_mut().rev().find(|(of, there)| *of == kind && there.beside(&stretch))
        {
            there.join(stretch);
        } else if self.found.len() < MAX_KEPT {
            self.found.push((kind, stretch));
        } else {
            self.not_told.add(one.op);
        }
    }

    fn tell_all(&mut self, kind: ActivityKind, chip: u16, all: &[Waiting]) {
        all.iter().for_each(|one| self.tell(kind, chip, one));
    }

    fn read(&mut self, tid: TaskId, op: &Op, first: u64, summary: u64) {
        if is_thread(op.task) {
            return self.tell(ActivityKind::CollectionByThread, op.chip, &Waiting::of(op));
        }
        if !self.mount(tid, op, first, summary) {
            self.group(tid, op);
        }
    }

    /// Takes a read of a mount; returns whether it was one.
    fn mount(&mut self, tid: TaskId, op: &Op, first: u64, summary: u64) -> bool {
        let begins = op.index == 0 && (first..=first + MAX_STEP).contains(&op.block);
        let last_block = |block: u64| (block + 1..=block + 1 + MAX_STEP).contains(&op.block);
        let next = match self.mounting.remove(&tid) {
            Some(Mounting::Looking { block }) if op.index == 0 && op.block == block => {
                // Its first page is read again, with data: a checkpoint begins.
                if self.candidate.as_ref().is_some_and(|one| one.blocks.contains(&block)) {
                    self.confirm(op.chip);
                }
                self.checkpoints.insert(block);
                self.tell(ActivityKind::CheckpointRead, op.chip, &Waiting::of(op));
                Some(Mounting::Checkpoint { block, index: 0 })
            }
            Some(Mounting::Looking { block }) if op.index == 0 && last_block(block) => {
                Some(Mounting::Looking { block: op.block })
            }
            Some(Mounting::Looking { .. }) if op.index >= summary => {
                let seen = HashSet::from_iter([op.block]);
                Some(Mounting::Scanning { seen, last: Some((op.block, Waiting::of(op))) })
            }
            Some(Mounting::Checkpoint { block, index }) if op.block == block && op.index == index + 1 => {
                self.tell(ActivityKind::CheckpointRead, op.chip, &Waiting::of(op));
                Some(Mounting::Checkpoint { block, index: op.index })
            }
            // It continues in another block, whose tags are read first.
            Some(Mounting::Checkpoint { block, index })
                if index + 1 == op.pages_per_block && op.index == 0 && op.block != block =>
            {
                Some(Mounting::Looking { block: op.block })
            }
            Some(Mounting::Scanning { mut seen, last }) => {
                let again = last.as_ref().is_some_and(|(_, one)| one.page == op.page);
                if let Some((_, one)) = last.filter(|_| !again) {
                    self.tell(ActivityKind::SummaryRead, op.chip, &one);
                }
                let begun = seen.insert(op.block);
                // A second page of the block's summary.
                let more = !again && !begun && op.index > summary;
                let last = (op.index >= summary && (begun || more)).then(|| (op.block, Waiting::of(op)));
                Some(Mounting::Scanning { seen, last })
            }
            _ if begins && self.mounting.len() < MAX_MOUNTING => Some(Mounting::Looking { block: op.block }),
            _ => None,
        };
        let is_mount = next.is_some();
        if let Some(next) = next {
            self.mounting.insert(tid, next);
        }
        is_mount
    }

    fn end_mount(&mut self, tid: TaskId, chip: u16) {
        if let Some(Mounting::Scanning { last, .. }) = self.mounting.remove(&tid) {
            if let Some((_, one)) = last {
                self.tell(ActivityKind::SummaryRead, chip, &one);
            }
            // The next write begins a block, and the one before need not be full.
            self.writing = None;
        }
    }

    /// A writer's read that may be a step of the collector.
    fn group(&mut self, tid: TaskId, op: &Op) {
        let goes_on = |group: &&mut Group| group.tid == tid && group.block == op.block && op.index > group.index;
        match self.group.as_mut().filter(goes_on) {
            Some(group) => {
                group.index = op.index;
                group.reads += 1;
                group.ops.push(Waiting::of(op));
            }
            None => {
                self.end_group();
                self.group = Some(Group {
                    tid,
                    block: op.block,
                    index: op.index,
                    reads: 1,
                    moved: 0,
                    ops: vec![Waiting::of(op)],
                });
            }
        }
    }

    /// Keeps complete steps until their block is erased.
    fn end_group(&mut self) {
        if let Some(group) = self.group.take()
            && group.reads == A_STEP
            && group.moved > 0
        {
            if self.waiting + group.ops.len() > MAX_WAITING {
                group.ops.iter().for_each(|one| self.not_told.add(one.op));
                return;
            }
            self.waiting += group.ops.len();
            self.steps.entry(group.block).or_default().extend(group.ops);
        }
    }

    fn program(&mut self, tid: TaskId, op: &Op, summary: u64) {
        self.end_mount(tid, op.chip);
        if let Some(one) = &mut self.candidate {
            let block = *one.blocks.last().expect("it has one");
            let goes_on = one.ops.last().is_some_and(|last| last.task == op.task && last.page + 1 == op.page);
            let full = (one.ops.len() as u64).is_multiple_of(op.pages_per_block) && one.blocks.len() < MAX_CHECKPOINT;
            let next = one.sure && full && op.index == 0 && op.block > block;
            if op.block == block && goes_on || next {
                if next {
                    one.blocks.push(op.block);
                }
                one.ops.push(Waiting::of(op));
                return;
            }
            self.drop_candidate(op.chip, op.pages_per_block, summary);
        }
        let before = self.writing;
        let begins = op.index == 0 && before.is_none_or(|(block, next)| block != op.block && next < op.pages_per_block);
        if begins && !is_thread(op.task) {
            self.candidate =
                Some(Candidate { sure: before.is_some(), blocks: vec![op.block], ops: vec![Waiting::of(op)] });
            return;
        }
        self.data(tid, op, summary);
    }

    /// A program of a page of the log.
    fn data(&mut self, tid: TaskId, op: &Op, summary: u64) {
        let now = Waiting::of(op);
        self.writing = Some((op.block, op.index + 1));
        if op.index >= summary {
            return self.tell(ActivityKind::SummaryWrite, op.chip, &now);
        }
        if is_thread(op.task) {
            return self.tell(ActivityKind::CollectionByThread, op.chip, &now);
        }
        match self.group.as_mut() {
            Some(group) if group.tid == tid && group.ops.last().is_some_and(|last| last.op == FlashOp::Read) => {
                group.moved += 1;
                group.ops.push(now);
            }
            _ => self.end_group(),
        }
    }

    /// The candidate was the log's next block, and no checkpoint.
    fn drop_candidate(&mut self, chip: u16, pages_per_block: u64, summary: u64) {
        let Some(one) = self.candidate.take() else { return };
        for op in &one.ops {
            if op.page % pages_per_block >= summary {
                self.tell(ActivityKind::SummaryWrite, chip, op);
            }
        }
        self.writing = one.ops.last().map(|last| (last.page / pages_per_block, last.page % pages_per_block + 1));
    }

    fn confirm(&mut self, chip: u16) {
        let Some(one) = self.candidate.take() else { return };
        self.tell_all(ActivityKind::CheckpointWrite, chip, &one.ops);
        self.checkpoints.extend(one.blocks);
    }

    fn erase(&mut self, tid: TaskId, op: &Op, summary: u64) {
        self.end_mount(tid, op.chip);
        match &self.candidate {
            Some(one) if one.blocks.contains(&op.block) => self.confirm(op.chip),
            Some(_) => self.drop_candidate(op.chip, op.pages_per_block, summary),
            None => {}
        }
        let now = Waiting::of(op);
        if self.checkpoints.remove(&op.block) {
            return self.tell(ActivityKind::CheckpointErase, op.chip, &now);
        }
        let last = self.group.take().filter(|group| group.tid == tid && group.block == op.block && group.moved > 0);
        let steps = self.steps.remove(&op.block).unwrap_or_default();
        self.waiting -= steps.len();
        if is_thread(op.task) {
            self.tell(ActivityKind::CollectionByThread, op.chip, &now);
        } else {
            self.tell(ActivityKind::CollectionByWriter, op.chip, &now);
        }
        self.tell_all(ActivityKind::CollectionByWriter, op.chip, &steps);
        if let Some(group) = last {
            self.tell_all(ActivityKind::CollectionByWriter, op.chip, &group.ops);
        }
    }

    fn finish(mut self, chip: u16) -> Activities {
        for tid in self.mounting.keys().copied().collect::<Vec<_>>() {
            self.end_mount(tid, chip);
        }
        if self.candidate.as_ref().is_some_and(|one| one.sure) {
            self.confirm(chip);
        }
        if !self.is_yaffs2 {
            return Activities::default();
        }
        let phases = self.found.into_iter().map(|(kind, stretch)| stretch.finish(kind, None)).collect();
        Activities { phases, not_told: self.not_told }
    }
}

impl<L: Lookup<Name: AsRef<str>>> Analysis for Yaffs2Fold<L> {
    type Output = Activities;

    fn event(&mut self, event: &Event) {
        if let EventKind::Flash(access) = &event.kind {
            self.access(event.time.0, event.tid, access);
        }
    }

    fn finish(self) -> Activities {
        let places = self.places;
        let mut all = Activities::default();
        for (at, partition) in self.partitions {
            let found = partition.finish(places[at].0);
            all.phases.extend(found.phases);
            all.not_told += found.not_told;
        }
        all.phases.sort_by_key(|phase| (phase.begin_ns, phase.kind, phase.chip));
        all
    }
}

#[cfg(test)]
#[path = "yaffs2_tests.rs"]
mod tests;
