//! Unmarked phases: the file systems' own work, inferred from the tasks, operations and places.
//!
//! Every operation is in exactly one phase. The rules, in order of precedence (a task is one thread):
//!
//! - **Mount scan**: a task reads through erase blocks in ascending order ([`MIN_WALK`] or more, [`MAX_STEP`] further at
//!   most). Either it reads only first or last pages in as many consecutive blocks (headers of UBI and YAFFS2, JFFS2's check of blocks
//!   without data), or nine tenths of a partition. A file that lies in order is read so too, but completely and without the end of
//!   its partition.
//! - **Formatting**: after a scan, erases of blocks without data, as far as was seen: since the recording began none of their data
//!   was read (a scan's check of the first pages aside) or written. At least [`MIN_RUN`] neighbours in a row, in either direction.
//!   It includes the reads that check that such a block is empty (JFFS2, fs/jffs2/erase.c, jffs2_block_check_erase) and the first
//!   program of its first page (JFFS2's clean marker, UBI's header).
//! - **Background check**: reads by `jffs2_gcd_mtdN` after a scan until it first programs or erases: its pass over the nodes
//!   whose checksums have not been checked yet (fs/jffs2/gc.c, jffs2_garbage_collect_pass).
//! - **Garbage collection**: all other work of the file systems' own collectors, and all erases of blocks that had data.
//! - **Programs**: the rest: reads and writes by programs, and by writeback.
//!
//! Scans, checks and formatting are one phase each from a scan to the next; any other phase ends after a pause of
//! [`QUIET_NS`].

use super::{Geometry, OTHER_TASKS, OpCounts, TaskOps};
use crate::clip::clip;
use crate::{Analysis, Lookup};
use flashscope_trace::{Event, EventKind, FlashAccess, FlashOp, TaskId, TimeNs};
use foldhash::{HashMap, HashMapExt as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Fewest erase blocks of a scan.
const MIN_WALK: u64 = 16;
/// Largest step from one block of a scan to the next: bad blocks are skipped.
pub(super) const MAX_STEP: u64 = 8;
/// First pages of a block that a scan reads to see whether there is more.
const HEAD_PAGES: u64 = 4;
/// Fewest erases of neighbours that count as formatting.
const MIN_RUN: u64 = 8;
/// A pause that ends a phase.
const QUIET_NS: u64 = 2_000_000_000;
/// Most phases; operations in further ones are counted.
pub const MAX_ACTIVITIES: usize = 1000;
/// Most phases that are searched for a late operation.
const LATE: usize = 64;
/// Most tasks of one phase.
const MAX_NAMES: usize = 64;
/// Most walks at once: tasks that read at the same time.
const MAX_WALKS: usize = 256;
/// Most pages of a block; no chip has more.
const MAX_PAGES: u64 = 1 << 16;
/// Most erase blocks that are kept.
const MAX_BLOCKS: usize = super::MAX_BLOCKS;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, JsonSchema, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActivityKind {
    MountScan,
    Formatting,
    BackgroundCheck,
    GarbageCollection,
    Programs,
    // YAFFS2's own work (yaffs2.rs); the phases above have these operations as well.
    CheckpointWrite,
    CheckpointRead,
    CheckpointErase,
    SummaryWrite,
    SummaryRead,
    CollectionByThread,
    CollectionByWriter,
}

impl ActivityKind {
    pub fn as_str(self) -> &'static str {
        match self {
            ActivityKind::MountScan => "mount scan",
            ActivityKind::Formatting => "formatting",
            ActivityKind::BackgroundCheck => "background check",
            ActivityKind::GarbageCollection => "garbage collection",
            ActivityKind::Programs => "programs",
            ActivityKind::CheckpointWrite => "checkpoint write",
            ActivityKind::CheckpointRead => "checkpoint read",
            ActivityKind::CheckpointErase => "checkpoint erase",
            ActivityKind::SummaryWrite => "summary write",
            ActivityKind::SummaryRead => "summary read",
            ActivityKind::CollectionByThread => "garbage collection by its thread",
            ActivityKind::CollectionByWriter => "garbage collection by a writer",
        }
    }
}

/// A phase that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct Activity {
    pub kind: ActivityKind,
    pub chip: u16,
    /// Time of its first operation; below: of its last.
    pub begin_ns: u64,
    pub end_ns: u64,
    pub counts: OpCounts,
    pub first_page: u64,
    pub last_page: u64,
    /// Of a scan: distinct pages read, their erase blocks, and the number of these that were read completely.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scan: Option<Scanned>,
    /// Busiest first.
    pub tasks: Vec<TaskOps>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct Scanned {
    pub pages: u64,
    pub blocks: u64,
    pub whole_blocks: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct Activities {
    /// In order of begin. They overlap: a background check continues beside programs.
    pub phases: Vec<Activity>,
    /// Operations on chips of unknown shape, on blocks beyond the most, or in phases beyond the most.
    pub not_told: OpCounts,
}

impl Activities {
    pub fn is_empty(&self) -> bool {
        self.phases.is_empty() && self.not_told.sum() == 0
    }

    /// Time of mount scans, and of formatting until a program writes. Formatting beside programs is left out: a file system erases so, too.
    pub(crate) fn setup_ns(&self) -> u64 {
        let mut programs = self.phases.iter().filter(|phase| phase.kind == ActivityKind::Programs).peekable();
        // Ends of the last program's phase so far, and of what is counted.
        let (mut running, mut counted, mut sum) = (0, 0, 0u64);
        for phase in &self.phases {
            while let Some(before) = programs.next_if(|one| one.begin_ns <= phase.begin_ns) {
                running = before.end_ns.max(running);
            }
            let end = match phase.kind {
                ActivityKind::MountScan => phase.end_ns,
                ActivityKind::Formatting if running <= phase.begin_ns => {
                    programs.peek().map_or(phase.end_ns, |next| next.begin_ns.min(phase.end_ns))
                }
                _ => continue,
            };
            sum = sum.saturating_add(end.saturating_sub(phase.begin_ns.max(counted)));
            counted = end.max(counted);
        }
        sum
    }
}

/// A stretch of operations of one kind.
#[derive(Clone, Debug)]
pub(super) struct Stretch {
    chip: u16,
    begin_ns: u64,
    end_ns: u64,
    counts: OpCounts,
    first_page: u64,
    last_page: u64,
    tasks: BTreeMap<String, OpCounts>,
}

impl Stretch {
    pub(super) fn new(chip: u16, time_ns: u64) -> Self {
        Self {
            chip,
            begin_ns: time_ns,
            end_ns: time_ns,
            counts: OpCounts::default(),
            first_page: u64::MAX,
            last_page: 0,
            tasks: BTreeMap::new(),
        }
    }

    pub(super) fn add(&mut self, op: &Op) {
        self.counts.add(op.op);
        self.begin_ns = self.begin_ns.min(op.time_ns);
        self.end_ns = self.end_ns.max(op.time_ns);
        self.first_page = self.first_page.min(op.page);
        self.last_page = self.last_page.max(op.page);
        self.task(op.task).add(op.op);
    }

    /// Whether they are on one chip, with no more than a pause between them.
    pub(super) fn beside(&self, other: &Stretch) -> bool {
        self.chip == other.chip
            && other.begin_ns <= self.end_ns.saturating_add(QUIET_NS)
            && self.begin_ns <= other.end_ns.saturating_add(QUIET_NS)
    }

    pub(super) fn join(&mut self, other: Stretch) {
        self.counts += other.counts;
        self.begin_ns = self.begin_ns.min(other.begin_ns);
        self.end_ns = self.end_ns.max(other.end_ns);
        self.first_page = self.first_page.min(other.first_page);
        self.last_page = self.last_page.max(other.last_page);
        for (task, counts) in other.tasks {
            *self.task(&task) += counts;
        }
    }

    fn task(&mut self, name: &str) -> &mut OpCounts {
        let name = if self.tasks.len() < MAX_NAMES || self.tasks.contains_key(name) { name } else { OTHER_TASKS };
        if !self.tasks.contains_key(name) {
            self.tasks.insert(name.to_owned(), OpCounts::default());
        }
        self.tasks.get_mut(name).expect("it is there")
    }

    pub(super) fn finish(self, kind: ActivityKind, scan: Option<Scanned>) -> Activity {
        let mut tasks: Vec<TaskOps> = self.tasks.into_iter().map(|(task, counts)| TaskOps { task, counts }).collect();
        tasks.sort_by(|a, b| b.counts.sum().cmp(&a.counts.sum()).then_with(|| a.task.cmp(&b.task)));
        Activity {
            kind,
            chip: self.chip,
            begin_ns: self.begin_ns,
            end_ns: self.end_ns,
            counts: self.counts,
            first_page: self.first_page,
            last_page: self.last_page,
            scan,
            tasks,
        }
    }
}

/// One operation, with its place and its task.
pub(super) struct Op<'a> {
    pub(super) time_ns: u64,
    pub(super) chip: u16,
    pub(super) op: FlashOp,
    pub(super) page: u64,
    pub(super) block: u64,
    /// Page within its block.
    pub(super) index: u64,
    pub(super) pages_per_block: u64,
    pub(super) task: &'a str,
}

impl Op<'_> {
    /// Whether its task is a file system's own collector.
    fn of_collector(&self) -> bool {
        self.of_jffs2() || ["ubi_bgt", "yaffs2_gc", "yaffs-bg"].iter().any(|name| self.task.starts_with(name))
    }

    fn of_jffs2(&self) -> bool {
        self.task.starts_with("jffs2_gcd")
    }

    fn in_head(&self) -> bool {
        self.index < HEAD_PAGES || self.index + 1 == self.pages_per_block
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct BlockState {
    /// Its data was read or written.
    data: bool,
    /// It was erased without having data, and its first page is not programmed yet.
    fresh: bool,
}

/// A task's reads through erase blocks.
#[derive(Debug)]
struct Walk {
    stretch: Stretch,
    first_block: u64,
    block: u64,
    /// Pages of `block` that were read.
    pages: Vec<u64>,
    only_head: bool,
    /// Consecutive blocks so far of which only first and last pages were read.
    heads: u64,
    most_heads: u64,
    scanned: Scanned,
}

impl Walk {
    fn new(op: &Op) -> Self {
        let mut walk = Self {
            stretch: Stretch::new(op.chip, op.time_ns),
            first_block: op.block,
            block: op.block,
            pages: vec![0; op.pages_per_block.min(MAX_PAGES).div_ceil(64) as usize],
            only_head: true,
            heads: 0,
            most_heads: 0,
            scanned: Scanned::default(),
        };
        walk.read(op);
        walk
    }

    fn goes_on(&self, op: &Op) -> bool {
        op.chip == self.stretch.chip
            && (self.block..=self.block.saturating_add(MAX_STEP)).contains(&op.block)
            && op.time_ns.saturating_sub(self.stretch.end_ns) <= QUIET_NS
    }

    fn read(&mut self, op: &Op) {
        self.stretch.add(op);
        if let Some(word) = self.pages.get_mut(op.index as usize / 64) {
            *word |= 1 << (op.index % 64);
        }
        self.only_head &= op.in_head();
    }

    /// The walk leaves its block. Returns whether data of it was read.
    fn leave(&mut self, pages_per_block: u64) -> bool {
        let pages: u64 = self.pages.iter().map(|word| u64::from(word.count_ones())).sum();
        self.pages.fill(0);
        self.scanned.pages += pages;
        self.scanned.blocks += 1;
        self.scanned.whole_blocks += u64::from(pages == pages_per_block);
        let data = !std::mem::replace(&mut self.only_head, true);
        self.heads = if data { 0 } else { self.heads + 1 };
        self.most_heads = self.most_heads.max(self.heads);
        data
    }
}

/// State of a chip since its last scan.
#[derive(Debug, Default)]
struct Chip {
    /// First and last block of all scans.
    scanned: Option<(u64, u64)>,
    /// Erases of blocks without data that are not known to be formatting yet, with their reads and programs.
    pending: Option<Stretch>,
    last_erased: Option<u64>,
    run: u64,
    formats: bool,
    /// A collector of JFFS2 has done more than read.
    collects: bool,
}

/// Finds phases. Reads events in order of time; bounded memory.
#[derive(Debug)]
pub struct ActivityFold<L> {
    lookup: L,
    pages_per_block: HashMap<u16, u64>,
    /// Partitions: chip, first erase block, and number of blocks.
    partitions: Vec<(u16, u64, u64)>,
    blocks: HashMap<(u16, u64), BlockState>,
    walks: HashMap<TaskId, Walk>,
    chips: BTreeMap<u16, Chip>,
    found: Vec<(ActivityKind, Stretch, Option<Scanned>)>,
    /// Index in `found` of the phase that the next operation may extend.
    open: HashMap<(ActivityKind, u16), usize>,
    not_told: OpCounts,
}

impl<L: Lookup<Name: AsRef<str>>> ActivityFold<L> {
    /// `partitions`, where known: chip, first erase block, and number of blocks.
    pub fn new(chips: &[(u16, Geometry)], partitions: &[(u16, u64, u64)], lookup: L) -> Self {
        Self {
            lookup,
            pages_per_block: chips.iter().map(|(chip, shape)| (*chip, u64::from(shape.pages_per_block))).collect(),
            partitions: partitions.to_vec(),
            blocks: HashMap::new(),
            walks: HashMap::new(),
            chips: BTreeMap::new(),
            found: Vec::new(),
            open: HashMap::new(),
            not_told: OpCounts::default(),
        }
    }

    fn access(&mut self, time_ns: u64, tid: TaskId, access: &FlashAccess) {
        let pages_per_block = self.pages_per_block.get(&access.chip).copied().unwrap_or(0);
        let Some(block) = access.page.checked_div(pages_per_block) else {
            self.not_told.add(access.op);
            return;
        };
        if !self.blocks.contains_key(&(access.chip, block)) && self.blocks.len() >= MAX_BLOCKS {
            self.not_told.add(access.op);
            return;
        }
        let named = (self.lookup)(tid, TimeNs(time_ns));
        let unnamed;
        let task = match &named {
            Some(name) => clip(name.as_ref()),
            None => {
                unnamed = format!("tid {tid}");
                &unnamed
            }
        };
        let index = access.page % pages_per_block;
        let op =
            Op { time_ns, chip: access.chip, op: access.op, page: access.page, block, index, pages_per_block, task };
        if op.op != FlashOp::Read || op.of_collector() {
            self.end_scan(tid, &op);
        }
        match op.op {
            FlashOp::Read => self.read(tid, &op),
            FlashOp::Program => {
                self.end_walk(tid);
                self.program(&op);
            }
            FlashOp::Erase => {
                self.end_walk(tid);
                self.erase(&op);
            }
        }
    }

    fn read(&mut self, tid: TaskId, op: &Op) {
        let state = *self.blocks.entry((op.chip, op.block)).or_default();
        if state.fresh {
            return self.format(op);
        }
        if op.of_jffs2() {
            self.blocks.entry((op.chip, op.block)).or_default().data = true;
            let chip = self.chips.entry(op.chip).or_default();
            let checks = chip.scanned.is_some() && !chip.collects;
            let kind = if checks { ActivityKind::BackgroundCheck } else { ActivityKind::GarbageCollection };
            return self.one(kind, op);
        }
        if self.walks.get(&tid).is_some_and(|walk| !walk.goes_on(op)) {
            self.end_walk(tid);
        }
        match self.walks.get_mut(&tid) {
            Some(walk) => {
                if op.block != walk.block {
                    let left = (op.chip, walk.block);
                    if walk.leave(op.pages_per_block) {
                        self.blocks.entry(left).or_default().data = true;
                    }
                    walk.block = op.block;
                }
                walk.read(op);
            }
            None => {
                if self.walks.len() >= MAX_WALKS {
                    let oldest = self.walks.iter().min_by_key(|(tid, walk)| (walk.stretch.end_ns, **tid));
                    if let Some(tid) = oldest.map(|(tid, _)| *tid) {
                        self.end_walk(tid);
                    }
                }
                self.walks.insert(tid, Walk::new(op));
            }
        }
    }

    fn program(&mut self, op: &Op) {
        let state = self.blocks.entry((op.chip, op.block)).or_default();
        if std::mem::take(&mut state.fresh) && op.index == 0 {
            return self.format(op);
        }
        state.data = true;
        self.chips.entry(op.chip).or_default().collects |= op.of_jffs2();
        self.one(if op.of_collector() { ActivityKind::GarbageCollection } else { ActivityKind::Programs }, op);
    }

    fn erase(&mut self, op: &Op) {
        let state = self.blocks.entry((op.chip, op.block)).or_default();
        let chip = self.chips.entry(op.chip).or_default();
        let empty = !state.data && chip.scanned.is_some_and(|(first, last)| (first..=last).contains(&op.block));
        *state = BlockState { data: false, fresh: empty };
        chip.collects |= op.of_jffs2();
        if !empty {
            return self.one(ActivityKind::GarbageCollection, op);
        }
        let next_to = chip.last_erased.is_some_and(|last| (1..=MAX_STEP).contains(&last.abs_diff(op.block)));
        chip.run = if next_to { chip.run + 1 } else { 1 };
        chip.last_erased = Some(op.block);
        if chip.run >= MIN_RUN && !std::mem::replace(&mut chip.formats, true) {
            let pending = chip.pending.take();
            if let Some(pending) = pending {
                self.add(ActivityKind::Formatting, pending);
            }
        }
        self.format(op);
    }

    /// An operation that belongs to the erase of a block without data.
    fn format(&mut self, op: &Op) {
        let chip = self.chips.entry(op.chip).or_default();
        if chip.formats {
            return self.one(ActivityKind::Formatting, op);
        }
        chip.pending.get_or_insert_with(|| Stretch::new(op.chip, op.time_ns)).add(op);
    }

    /// A scan ends as soon as another task does more than read in its blocks.
    fn end_scan(&mut self, tid: TaskId, op: &Op) {
        let over = |(of, walk): (&TaskId, &Walk)| {
            let inside = walk.stretch.chip == op.chip && (walk.first_block..=walk.block).contains(&op.block);
            (*of != tid && inside && walk.scanned.blocks >= MIN_WALK).then_some(*of)
        };
        while let Some(of) = self.walks.iter().find_map(over) {
            self.end_walk(of);
        }
    }

    /// Ends a walk: it was a scan, or a program's reads.
    fn end_walk(&mut self, tid: TaskId) {
        let Some(mut walk) = self.walks.remove(&tid) else { return };
        let chip_number = walk.stretch.chip;
        let pages_per_block = self.pages_per_block.get(&chip_number).copied().unwrap_or(0);
        let data = walk.leave(pages_per_block);
        if data {
            self.blocks.entry((chip_number, walk.block)).or_default().data = true;
        }
        let whole = |&(chip, first, blocks): &(u16, u64, u64)| {
            let inside = walk.first_block >= first && walk.block < first.saturating_add(blocks);
            chip == chip_number && inside && walk.scanned.blocks.saturating_mul(10) >= blocks.saturating_mul(9)
        };
        let walked = walk.scanned.blocks >= MIN_WALK;
        if walked && (walk.most_heads >= MIN_WALK || self.partitions.iter().any(whole)) {
            self.end_pending(chip_number);
            let chip = self.chips.entry(chip_number).or_default();
            let (first, last) = chip.scanned.unwrap_or((walk.first_block, walk.block));
            *chip = Chip { scanned: Some((first.min(walk.first_block), last.max(walk.block))), ..Chip::default() };
            for kind in [ActivityKind::Formatting, ActivityKind::BackgroundCheck, ActivityKind::MountScan] {
                self.open.remove(&(kind, chip_number));
            }
            self.keep(ActivityKind::MountScan, walk.stretch, Some(walk.scanned));
            return;
        }
        // A page that a program reads is data, even if it is the first page alone.
        for block in walk.first_block..=walk.block {
            if let Some(state) = self.blocks.get_mut(&(chip_number, block)) {
                state.data = true;
            }
        }
        self.add(ActivityKind::Programs, walk.stretch);
    }

    fn end_pending(&mut self, chip: u16) {
        if let Some(pending) = self.chips.get_mut(&chip).and_then(|chip| chip.pending.take()) {
            self.add(ActivityKind::GarbageCollection, pending);
        }
    }

    fn one(&mut self, kind: ActivityKind, op: &Op) {
        // Most operations extend the last phase of their kind.
        if let Some(&at) = self.open.get(&(kind, op.chip))
            && (self.found[at].1.end_ns.saturating_add(QUIET_NS) >= op.time_ns || once(kind))
        {
            return self.found[at].1.add(op);
        }
        let mut stretch = Stretch::new(op.chip, op.time_ns);
        stretch.add(op);
        self.add(kind, stretch);
    }

    /// Adds a stretch to the phase of its kind at that time, or as a new one.
    fn add(&mut self, kind: ActivityKind, stretch: Stretch) {
        if once(kind) {
            return match self.open.get(&(kind, stretch.chip)) {
                Some(&at) => self.found[at].1.join(stretch),
                None => self.keep(kind, stretch, None),
            };
        }
        // A walk is reported at its end, when later phases exist already.
        match self.found.iter_mut().rev().take(LATE).find(|(of, there, _)| *of == kind && there.beside(&stretch)) {
            Some((_, there, _)) => there.join(stretch),
            None => self.keep(kind, stretch, None),
        }
    }

    fn keep(&mut self, kind: ActivityKind, stretch: Stretch, scan: Option<Scanned>) {
        if self.found.len() >= MAX_ACTIVITIES {
            self.not_told += stretch.counts;
            return;
        }
        self.open.insert((kind, stretch.chip), self.found.len());
        self.found.push((kind, stretch, scan));
    }
}

/// Joins phases of one kind that meet because a part between them was reported last.
fn joined(found: Vec<(ActivityKind, Stretch, Option<Scanned>)>) -> Vec<Activity> {
    let mut sorted = found;
    sorted.sort_by_key(|(kind, stretch, _)| (*kind, stretch.chip, stretch.begin_ns));
    let mut kept: Vec<(ActivityKind, Stretch, Option<Scanned>)> = Vec::new();
    for (kind, stretch, scan) in sorted {
        match kept.last_mut() {
            Some((of, last, None)) if *of == kind && !once(kind) && last.beside(&stretch) => last.join(stretch),
            _ => kept.push((kind, stretch, scan)),
        }
    }
    let mut phases: Vec<Activity> = kept.into_iter().map(|(kind, stretch, scan)| stretch.finish(kind, scan)).collect();
    phases.sort_by_key(|phase| (phase.begin_ns, phase.kind, phase.chip));
    phases
}

/// Whether there is one phase of this kind from a scan to the next.
fn once(kind: ActivityKind) -> bool {
    matches!(kind, ActivityKind::Formatting | ActivityKind::BackgroundCheck)
}

impl<L: Lookup<Name: AsRef<str>>> Analysis for ActivityFold<L> {
    type Output = Activities;

    fn event(&mut self, event: &Event) {
        if let EventKind::Flash(access) = &event.kind {
            self.access(event.time.0, event.tid, access);
        }
    }

    fn finish(mut self) -> Activities {
        let mut tids: Vec<(u64, TaskId)> = self.walks.iter().map(|(tid, walk)| (walk.stretch.begin_ns, *tid)).collect();
        tids.sort_unstable();
        for (_, tid) in tids {
            self.end_walk(tid);
        }
        for chip in self.chips.keys().copied().collect::<Vec<_>>() {
            self.end_pending(chip);
        }
        Activities { phases: joined(self.found), not_told: self.not_told }
    }
}

#[cfg(test)]
#[path = "activity_tests.rs"]
mod tests;
