//! Counts of array commands by kind.

use crate::Analysis;
use flashscope_trace::{Event, EventKind, FlashAccess, FlashOp, TaskId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Array commands by operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct OpCounts {
    pub reads: u64,
    pub programs: u64,
    pub erases: u64,
}

impl OpCounts {
    pub fn add(&mut self, op: FlashOp) {
        match op {
            FlashOp::Read => self.reads += 1,
            FlashOp::Program => self.programs += 1,
            FlashOp::Erase => self.erases += 1,
        }
    }

    pub fn of(&self, op: FlashOp) -> u64 {
        match op {
            FlashOp::Read => self.reads,
            FlashOp::Program => self.programs,
            FlashOp::Erase => self.erases,
        }
    }

    pub fn sum(&self) -> u64 {
        self.reads + self.programs + self.erases
    }
}

impl std::ops::AddAssign for OpCounts {
    fn add_assign(&mut self, other: Self) {
        self.reads += other.reads;
        self.programs += other.programs;
        self.erases += other.erases;
    }
}

/// Shape of a chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct Geometry {
    /// Data bytes of a page; the spare area (OOB) begins at this column.
    pub page_bytes: u32,
    pub pages_per_block: u32,
}

/// Reads, or programs, by the data moved. Each command is in exactly one of the first five;
/// `repeats` is counted across them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct KindCounts {
    /// From column 0, at least all data bytes of the page.
    pub full_page: u64,
    /// Some data bytes of the page.
    pub partial: u64,
    /// Began in the spare area.
    pub oob: u64,
    /// The command moved no byte itself: its driver moves the data by other means.
    pub command_only: u64,
    /// Column or length was not recorded (`--detail offset` records them).
    pub not_recorded: u64,
    /// The same command (page, and columns where they are recorded) as this chip's last one, by the same task:
    /// a retry. MTD locks the chip for the whole of a retried read, so no other command comes between.
    pub repeats: u64,
}

/// All commands of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct LabelledCounts {
    pub total: OpCounts,
    pub reads: KindCounts,
    pub programs: KindCounts,
    /// Calls at the MTD layer, which may span many pages each: the cross-count.
    pub mtd_calls: OpCounts,
}

/// Counts and labels every flash command.
#[derive(Debug)]
pub struct Counts {
    page_bytes: BTreeMap<u16, u32>,
    /// The last command of each chip, and its task. At most one entry per `u16`.
    last: BTreeMap<u16, (TaskId, FlashAccess)>,
    counts: LabelledCounts,
}

impl Counts {
    /// `chips`: number and shape. A chip that is not listed has no full pages, only commands "not recorded".
    pub fn new(chips: &[(u16, Geometry)]) -> Self {
        Self {
            page_bytes: chips.iter().map(|(n, g)| (*n, g.page_bytes)).collect(),
            last: BTreeMap::new(),
            counts: LabelledCounts::default(),
        }
    }

    fn access(&mut self, tid: TaskId, access: FlashAccess) {
        self.counts.total.add(access.op);
        let repeated = self.last.insert(access.chip, (tid, access)) == Some((tid, access));
        let kinds = match access.op {
            FlashOp::Read => &mut self.counts.reads,
            FlashOp::Program => &mut self.counts.programs,
            FlashOp::Erase => return,
        };
        let page_bytes = self.page_bytes.get(&access.chip);
        *match (access.offset_bytes, access.length_bytes, page_bytes) {
            (_, Some(0), _) => &mut kinds.command_only,
            (Some(offset), _, Some(page)) if offset >= *page => &mut kinds.oob,
            (Some(0), Some(length), Some(page)) if length >= *page => &mut kinds.full_page,
            (Some(_), Some(_), Some(_)) => &mut kinds.partial,
            _ => &mut kinds.not_recorded,
        } += 1;
        kinds.repeats += u64::from(repeated);
    }
}

impl Analysis for Counts {
    type Output = LabelledCounts;

    fn event(&mut self, event: &Event) {
        match &event.kind {
            EventKind::Flash(access) => self.access(event.tid, *access),
            EventKind::Mtd { op, .. } => self.counts.mtd_calls.add(*op),
            _ => {}
        }
    }

    fn finish(self) -> LabelledCounts {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{access, flash, mtd};
    use FlashOp::{Erase, Program, Read};

    const CHIP: Geometry = Geometry { page_bytes: 2048, pages_per_block: 64 };

    fn count(events: &[Event]) -> LabelledCounts {
        let mut fold = Counts::new(&[(0, CHIP)]);
        events.iter().for_each(|e| fold.event(e));
        fold.finish()
    }

    fn at(op: FlashOp, page: u64, columns: Option<(u32, u32)>) -> FlashAccess {
        FlashAccess { offset_bytes: columns.map(|c| c.0), length_bytes: columns.map(|c| c.1), ..access(op, page) }
    }

    #[test]
    fn labels_each_command_once() {
        let found = count(&[
            flash(1, 7, at(Read, 10, Some((0, 2048)))),
            flash(2, 7, at(Read, 11, Some((0, 2112)))), // data and spare in one command
            flash(3, 7, at(Read, 12, Some((512, 512)))),
            flash(4, 7, at(Read, 12, Some((0, 512)))),
            flash(5, 7, at(Read, 12, Some((2048, 64)))),
            flash(6, 7, at(Read, 13, Some((0, 0)))),
            flash(7, 7, at(Read, 14, None)),
            flash(8, 7, at(Program, 15, Some((0, 2048)))),
            flash(9, 7, at(Erase, 64, None)),
            mtd(10, 7, Program, 0, 65536),
        ]);
        assert_eq!(
            found,
            LabelledCounts {
                total: OpCounts { reads: 7, programs: 1, erases: 1 },
                reads: KindCounts { full_page: 2, partial: 2, oob: 1, command_only: 1, not_recorded: 1, repeats: 0 },
                programs: KindCounts { full_page: 1, ..KindCounts::default() },
                mtd_calls: OpCounts { programs: 1, ..OpCounts::default() },
            }
        );
    }

    #[test]
    fn a_repeat_is_the_same_command_by_the_same_task_with_nothing_between() {
        let again = at(Read, 5, Some((0, 2048)));
        let found = count(&[
            flash(1, 7, again),
            flash(2, 7, again),                         // repeat
            flash(3, 7, again),                         // repeat
            flash(4, 8, again),                         // another task
            flash(5, 8, at(Read, 5, Some((2048, 64)))), // other columns
            flash(6, 8, at(Read, 6, None)),
            flash(7, 8, at(Read, 6, None)), // repeat, as far as the page tells
            flash(8, 8, at(Program, 6, None)),
            flash(9, 8, at(Read, 6, None)), // something between
        ]);
        assert_eq!(found.reads.repeats, 3);
        assert_eq!(found.programs.repeats, 0);
        assert_eq!(found.total.reads, 8);
    }

    #[test]
    fn columns_mean_nothing_on_a_chip_of_unknown_shape() {
        let mut fold = Counts::new(&[]);
        fold.event(&flash(1, 7, at(Read, 10, Some((0, 2048)))));
        assert_eq!(fold.finish().reads.not_recorded, 1);
    }
}
