//! Decodes records to typed events.
//!
//! The events of system `flashscope` (and of a kernel's own group name `flashscope_<pid>_<starttime>`) become
//! [`EventKind::Flash`], [`EventKind::FlashDone`] and [`EventKind::Mtd`]; the kernel's `block:` events become
//! [`EventKind::Block`], those of the page cache, of writeback and of ext4's map [`EventKind::File`]; every other event is [`EventKind::Other`].

pub mod block;
pub mod commands;
mod disks;
pub mod lives;
pub mod names;
pub mod reads;
pub mod tasks;

pub(crate) use disks::Disks;

use crate::decode::block::BlockPlan;
use crate::decode::commands::{Step, Translator};
use crate::events::file::{self, FilePlan};
use crate::events::{Event, EventKind, FlashAccess, FlashOp, TimeNs};
use crate::facts::Facts;
use crate::ids::TaskId;
use crate::losses::{Loss, Losses};
use crate::record::tid;
use crate::ring::schema::{Field, Schema};
use foldhash::{HashMap, HashMapExt as _};
use std::sync::Arc;

/// Geometry of the traced chips, from a recording's facts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// For the first NAND chip.
    pub pages_per_block: Option<u64>,
    /// Page and erase block in bytes; `None` unless all chips have the same.
    pub page_bytes: Option<u64>,
    pub block_bytes: Option<u64>,
    /// Page size of the recorded machine's memory, bytes.
    pub page_size: Option<u64>,
    mtds: Vec<Mtd>,
}

/// One MTD device: a chip, or a partition of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mtd {
    page_bytes: u64,
    block_bytes: u64,
    chip: u16,
    /// Kernel addresses of `struct nand_chip` and `struct mtd_info`, which events carry. 0: unknown.
    chip_pointer: u64,
    mtd_pointer: u64,
}

impl Geometry {
    pub fn from_facts(facts: &Facts) -> Geometry {
        let page_size = facts.kernel.page_size.filter(|size| size.is_power_of_two());
        let mut g = Geometry { page_size, ..Geometry::default() };
        for mtd in &facts.mtd {
            let (Some(page), Some(block)) = (mtd.writesize, mtd.erasesize) else { continue };
            // NOR and RAM have a page of one byte.
            if page < 16 || block < page {
                continue;
            }
            g.mtds.push(Mtd {
                page_bytes: page,
                block_bytes: block,
                chip: mtd.chip.and_then(|chip| u16::try_from(chip).ok()).unwrap_or(0),
                chip_pointer: mtd.chip_pointer.unwrap_or(0),
                mtd_pointer: mtd.mtd_pointer.unwrap_or(0),
            });
        }
        let first = g.mtds.first().copied();
        let same = |f: fn(&Mtd) -> u64| first.map(|m| f(&m)).filter(|&v| g.mtds.iter().all(|m| f(m) == v));
        g.page_bytes = same(|m| m.page_bytes);
        g.block_bytes = same(|m| m.block_bytes);
        g.pages_per_block = first.map(|m| m.block_bytes / m.page_bytes);
        if let Some(said) = facts.flashmon.pages_per_block {
            g.pages_per_block = Some(said);
        }
        g.pages_per_block = g.pages_per_block.filter(|&n| n > 0);
        g
    }

    fn pages_per_block_of(&self, chip: u16) -> u64 {
        self.mtds
            .iter()
            .find(|m| m.chip == chip)
            .map(|m| m.block_bytes / m.page_bytes)
            .or(self.pages_per_block)
            .unwrap_or(ASSUMED_PAGES_PER_BLOCK)
    }

    /// Page and block size, in bytes, of the MTD device with this kernel address.
    fn of_mtd(&self, pointer: Option<u64>) -> (Option<u64>, Option<u64>) {
        match self.mtds.iter().find(|m| m.mtd_pointer != 0 && Some(m.mtd_pointer) == pointer) {
            Some(m) => (Some(m.page_bytes), Some(m.block_bytes)),
            None => (self.page_bytes, self.block_bytes),
        }
    }

    fn chip_at(&self, pointer: u64) -> Option<u16> {
        self.mtds.iter().find(|m| m.chip_pointer != 0 && m.chip_pointer == pointer).map(|m| m.chip)
    }
}

/// Pages per block if the facts do not tell it: the chip of the Flashmon paper (Micron, 2 KB pages, 64 a block; section 4).
pub(crate) const ASSUMED_PAGES_PER_BLOCK: u64 = 64;

enum EventFields {
    Flash {
        op: FlashOp,
        address: Field,
        /// The address is in blocks, not pages.
        blocks: bool,
        offset: Option<Field>,
        length: Option<Field>,
        chip: Option<Field>,
    },
    Done(FlashOp),
    Mtd {
        op: FlashOp,
        address: Field,
        /// Upper half, if a 64-bit argument came in two registers.
        address_high: Option<Field>,
        length: Field,
        mtd: Option<Field>,
    },
    Block(Box<BlockPlan>),
    File(Box<FilePlan>),
    /// A driver's command, in a trace that has no step of the block layer.
    Command(Step),
    /// A system call returned.
    Returned(Field),
    Other,
}

struct Mapping {
    plan: EventFields,
    /// Reused for every event of this kind, so that its names are copied only once.
    event: Event,
}

/// Nested operations of one task that wait for their return.
const MAX_PENDING: usize = 8;
/// Tasks with operations that wait for their return.
const MAX_TASKS: usize = 1 << 16;
/// Chips distinguished by their address in the kernel.
const MAX_CHIPS: usize = 256;

/// Turns records into events. Joins returns to their beginnings, and compares the counts of two layers.
pub(crate) struct Typer {
    by_id: Vec<Option<Mapping>>,
    geometry: Geometry,
    disks: Disks,
    /// Page size of the page cache, bytes.
    page_size: u64,
    pending: HashMap<(TaskId, FlashOp), Vec<u64>>,
    /// Operations whose returns are recorded.
    returns: Vec<FlashOp>,
    chips: Vec<u64>,
    counts: CrossCount,
    losses: Losses,
    commands: Option<Translator>,
}

#[derive(Default)]
struct CrossCount {
    programs_can_be_seen: bool,
    erases_can_be_seen: bool,
    programs_expected: u64,
    programs_seen: u64,
    erases_expected: u64,
    erases_seen: u64,
}

impl Typer {
    pub fn new(geometry: Geometry, disks: Disks, commands: Option<Translator>) -> Typer {
        Typer {
            commands,
            disks,
            by_id: Vec::new(),
            page_size: geometry.page_size.unwrap_or(4096),
            geometry,
            pending: HashMap::new(),
            returns: Vec::new(),
            chips: Vec::new(),
            counts: CrossCount::default(),
            losses: Losses::new(),
        }
    }

    fn mapping(&mut self, schema: &Schema) -> usize {
        let id = usize::from(schema.id);
        if self.by_id.len() <= id {
            self.by_id.resize_with(id + 1, || None);
        }
        if self.by_id[id].is_none() {
            let command = self.commands.as_ref().and_then(|_| Step::of(&schema.name));
            let plan = command.map_or_else(|| plan(schema), EventFields::Command);
            match &plan {
                EventFields::Flash { op: FlashOp::Program, .. } => self.counts.programs_can_be_seen = true,
                EventFields::Flash { op: FlashOp::Erase, .. } => self.counts.erases_can_be_seen = true,
                EventFields::Done(op) => self.returns.push(*op),
                _ => {}
            }
            self.by_id[id] = Some(Mapping {
                plan,
                event: Event {
                    time: TimeNs(0),
                    cpu: 0,
                    tid: TaskId(0),
                    kind: EventKind::Other { system: schema.system.clone(), name: schema.name.clone(), result: None },
                },
            });
        }
        id
    }

    /// Declares which events were armed: an operation whose probe never fired still counts as observable.
    pub fn declare<'a>(&mut self, schemas: impl Iterator<Item = &'a Arc<Schema>>) {
        for schema in schemas {
            self.mapping(schema);
        }
    }

    /// What began before has no return in what follows.
    pub fn recording_begins(&mut self) {
        self.pending.clear();
        if let Some(commands) = &mut self.commands {
            commands.recording_begins();
        }
    }

    /// The typed form of a record. `None` if it has none (a return without its beginning, a record that is too short); that is counted.
    pub fn event(&mut self, time: u64, cpu: u16, schema: &Schema, data: &[u8]) -> Option<&Event> {
        let id = self.mapping(schema);
        let task = tid(schema, data);
        let Mapping { plan, event } = self.by_id.get_mut(id)?.as_mut()?;
        event.time = TimeNs(time);
        event.cpu = cpu;
        event.tid = task;
        let read = |f: &Field| schema.uint(f, data);
        match plan {
            EventFields::Other => {}
            EventFields::Returned(ret) => returned(event, schema.long(ret, data)),
            EventFields::Command(step) => event.kind = self.commands.as_mut()?.kind(*step, schema, data)?,
            EventFields::Block(plan) => match plan.read(schema, data) {
                Some(block) => event.kind = EventKind::Block(block),
                None => {
                    self.losses.add(Loss::RecordsMalformed, 1);
                    return None;
                }
            },
            EventFields::File(plan) => match plan.read(schema, data, self.page_size) {
                Some(Some(mut step)) => {
                    self.disks.find(task, &mut step, plan.is_by_disk());
                    event.kind = EventKind::File(step);
                }
                Some(None) => return None,
                None => {
                    self.losses.add(Loss::RecordsMalformed, 1);
                    return None;
                }
            },
            EventFields::Flash { op, address, blocks, offset, length, chip } => {
                let Some(mut page) = read(address) else {
                    self.losses.add(Loss::RecordsMalformed, 1);
                    return None;
                };
                let chip = match chip.as_ref().and_then(read) {
                    None => 0,
                    Some(v) => self.geometry.chip_at(v).unwrap_or_else(|| chip_number(&mut self.chips, v)),
                };
                if *blocks {
                    page = page.saturating_mul(self.geometry.pages_per_block_of(chip));
                }
                let small = |f: &Option<Field>| f.as_ref().and_then(read).map(|v| u32::try_from(v).unwrap_or(u32::MAX));
                match op {
                    FlashOp::Program => self.counts.programs_seen += 1,
                    FlashOp::Erase => self.counts.erases_seen += 1,
                    FlashOp::Read => {}
                }
                event.kind = EventKind::Flash(FlashAccess {
                    op: *op,
                    page,
                    offset_bytes: small(offset),
                    length_bytes: small(length),
                    chip,
                });
                if self.returns.contains(op)
                    && (self.pending.len() < MAX_TASKS || self.pending.contains_key(&(task, *op)))
                {
                    let list = self.pending.entry((task, *op)).or_default();
                    if list.len() == MAX_PENDING {
                        list.remove(0);
                    }
                    list.push(time);
                }
            }
            EventFields::Done(op) => {
                let begin = self.pending.get_mut(&(task, *op)).and_then(Vec::pop).filter(|&b| b <= time);
                let Some(begin) = begin else {
                    self.losses.add(Loss::ReturnsUnmatched, 1);
                    return None;
                };
                event.kind = EventKind::FlashDone { op: *op, duration_ns: time - begin };
            }
            EventFields::Mtd { op, address, address_high, length, mtd } => {
                let (Some(low), Some(length)) = (read(address), read(length)) else {
                    self.losses.add(Loss::RecordsMalformed, 1);
                    return None;
                };
                let address = match address_high.as_ref().and_then(read) {
                    Some(high) => low | high << 32,
                    None => low,
                };
                let (page_bytes, block_bytes) = self.geometry.of_mtd(mtd.as_ref().and_then(read));
                match op {
                    FlashOp::Program => {
                        let spanned = spanned(address, length, page_bytes);
                        self.counts.programs_expected = self.counts.programs_expected.saturating_add(spanned);
                    }
                    FlashOp::Erase => {
                        let spanned = spanned(address, length, block_bytes);
                        self.counts.erases_expected = self.counts.erases_expected.saturating_add(spanned);
                    }
                    FlashOp::Read => {}
                }
                event.kind = EventKind::Mtd { op: *op, address, length_bytes: length };
            }
        }
        Some(event)
    }

    /// The losses, those of the comparison between layers included.
    pub fn finish(self) -> Losses {
        let mut losses = self.losses;
        losses.add(Loss::CommandsWithoutSize, self.commands.map_or(0, |commands| commands.without_size));
        let c = self.counts;
        if c.programs_can_be_seen {
            losses.set(Loss::ProgramsNotSeen, c.programs_expected.saturating_sub(c.programs_seen));
        }
        if c.erases_can_be_seen {
            losses.set(Loss::ErasesNotSeen, c.erases_expected.saturating_sub(c.erases_seen));
        }
        losses
    }
}

fn returned(event: &mut Event, value: Option<i64>) {
    if let EventKind::Other { result, .. } = &mut event.kind {
        *result = value;
    }
}

/// Units of `unit` bytes that a range touches; 0 if the unit is unknown.
fn spanned(address: u64, length: u64, unit: Option<u64>) -> u64 {
    match unit {
        Some(unit) if length > 0 => address.saturating_add(length - 1) / unit - address / unit + 1,
        _ => 0,
    }
}

/// `chip` is a number or a kernel address; addresses get numbers in the order in which they appear.
fn chip_number(chips: &mut Vec<u64>, value: u64) -> u16 {
    if value < MAX_CHIPS as u64 {
        return value as u16;
    }
    if let Some(i) = chips.iter().position(|&c| c == value) {
        return i as u16;
    }
    if chips.len() < MAX_CHIPS {
        chips.push(value);
    }
    (chips.len() - 1) as u16
}

fn plan(schema: &Schema) -> EventFields {
    if let Some(plan) = block::plan(schema) {
        return EventFields::Block(Box::new(plan));
    }
    if let Some(plan) = file::plan(schema) {
        return EventFields::File(Box::new(plan));
    }
    if schema.system == "syscalls" && schema.name.starts_with("sys_exit_") {
        return schema.field("ret").cloned().map_or(EventFields::Other, EventFields::Returned);
    }
    let ours = schema.system == "flashscope" || schema.system.starts_with("flashscope_");
    if !ours {
        return EventFields::Other;
    }
    let op = |name: &str| match name {
        "read" => Some(FlashOp::Read),
        "program" | "write" => Some(FlashOp::Program),
        "erase" => Some(FlashOp::Erase),
        _ => None,
    };
    let field = |name: &str| schema.field(name).cloned();
    if let Some(rest) = schema.name.strip_prefix("nand_") {
        if let Some(op) = rest.strip_suffix("_done").and_then(op) {
            return EventFields::Done(op);
        }
        if let Some(op) = op(rest) {
            let (address, blocks) = match (field("page"), field("block")) {
                (Some(page), _) => (page, false),
                (None, Some(block)) => (block, true),
                (None, None) => return EventFields::Other,
            };
            return EventFields::Flash {
                op,
                address,
                blocks,
                offset: field("offset"),
                length: field("length"),
                chip: field("chip"),
            };
        }
    }
    if let Some(op) = schema.name.strip_prefix("mtd_").and_then(op)
        && let (Some(address), Some(length)) = (field("address"), field("length"))
    {
        return EventFields::Mtd { op, address, address_high: field("address_high"), length, mtd: field("mtd") };
    }
    EventFields::Other
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn geometry_is_only_one_where_all_chips_agree() {
        let nand = serde_json::json!({"writesize": 2048, "erasesize": 131072});
        let nor = serde_json::json!({"writesize": 1, "erasesize": 65536});
        let big = serde_json::json!({"writesize": 4096, "erasesize": 262144});
        let g = Geometry::from_facts(&Facts::of(&serde_json::json!({"mtd": [nor, nand, nand]})));
        assert_eq!(g.pages_per_block, Some(64));
        assert_eq!(g.page_bytes, Some(2048));
        let g = Geometry::from_facts(&Facts::of(&serde_json::json!({"mtd": [nand, big]})));
        assert_eq!((g.pages_per_block, g.page_bytes), (Some(64), None));
        let at = serde_json::json!({"writesize": 4096, "erasesize": 524288, "chip": 1, "mtd_pointer": 0xc1u64,
                                    "chip_pointer": 0xc2u64});
        let g = Geometry::from_facts(&Facts::of(&serde_json::json!({"mtd": [nand, at]})));
        assert_eq!(g.of_mtd(Some(0xc1)), (Some(4096), Some(524_288)));
        assert_eq!(g.of_mtd(Some(0xc9)), (None, None));
        assert_eq!((g.chip_at(0xc2), g.chip_at(0)), (Some(1), None));
        assert_eq!((g.pages_per_block_of(1), g.pages_per_block_of(0), g.pages_per_block_of(7)), (128, 64, 64));
        assert_eq!(Geometry::from_facts(&Facts::default()), Geometry::default());
    }

    #[test]
    fn ranges_span_what_they_touch() {
        assert_eq!(spanned(0, 2048, Some(2048)), 1);
        assert_eq!(spanned(2047, 2, Some(2048)), 2);
        assert_eq!(spanned(0, 0, Some(2048)), 0);
        assert_eq!(spanned(u64::MAX, u64::MAX, Some(2048)), 1);
        assert_eq!(spanned(0, 4096, None), 0);
    }

    #[test]
    fn chips_by_address_get_numbers() {
        let mut chips = vec![];
        assert_eq!(chip_number(&mut chips, 0xc123_4000), 0);
        assert_eq!(chip_number(&mut chips, 0xc123_8000), 1);
        assert_eq!(chip_number(&mut chips, 0xc123_4000), 0);
        assert_eq!(chip_number(&mut chips, 3), 3);
    }
}
