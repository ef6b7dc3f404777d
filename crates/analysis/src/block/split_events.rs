//! Events of splits (`X`), and splits without an event: they divide a bio in flight in two (`parts_in_flight.rs`).
//!
//! A request that begins where a bio does and ends within it shows a split. Where the trace has no splits at all, so does a request that
//! begins within a bio without a step yet: parts are issued in any order, and merged with other bios.

use super::in_flight::{Bio, NEVER, NONE, Wanted};
use super::matching::{Matching, Range};
use super::watch::Watch;
use flashscope_trace::{BlockDetail, BlockEvent, TaskId};

impl<W: Watch> Matching<W> {
    /// Linux 4.3 to 4.11 queue the rest of a split bio once more: it is no new bio.
    pub(super) fn is_rest_of_split(&mut self, block: &BlockEvent, tid: TaskId) -> bool {
        if self.splits.is_empty() {
            return false;
        }
        let Some(device) = self.device(block.device) else { return false };
        let range = Range::of(device, block);
        let rest = |bio: &Bio| {
            let new = bio.got == NEVER && bio.merged == NEVER && bio.inserted == NEVER && bio.issued == NEVER;
            u8::from(new && bio.split_of != NONE && bio.tid == tid && bio.end() == range.end)
        };
        self.bios.find(range.from(range.sector), rest).is_some_and(|(_, bio)| bio.sector == range.sector)
    }

    pub(super) fn split(&mut self, device: u16, block: &BlockEvent) {
        let wanted = Wanted { most: u64::MAX, ..Range::of(device, block).from(block.sector) };
        let fresh = |bio: &Bio| {
            let fits = bio.issued == NEVER && !bio.is_request() && bio.bytes() > block.bytes;
            u8::from(fits) * (1 + u8::from(!bio.superseded))
        };
        let BlockDetail::Split { sector } = block.detail else { return };
        let found = self.bios.find(wanted, fresh);
        let Some((at, _)) = found.filter(|(_, bio)| sector > bio.sector && sector < bio.end()) else {
            self.counts.unmatched.split += 1;
            return;
        };
        self.cut(at, sector);
    }

    /// Whether a step belongs to a part of a bio whose split is not in the trace: it was lost, or splits were not recorded. `range` begins
    /// where the bio does, and no other bio is in it; so the step belongs to the first part.
    #[cold]
    fn is_part(&mut self, range: Range) -> bool {
        let whole = |bio: &Bio| {
            let steps = [bio.got, bio.inserted, bio.merged, bio.issued];
            let fresh = steps == [NEVER; 4] && !bio.is_request() && !bio.superseded;
            u8::from(fresh && bio.end() > range.end)
        };
        let wanted = Wanted { most: u64::MAX, ..range.from(range.sector) };
        let Some((at, _)) = self.bios.find(wanted, whole) else { return false };
        self.cut(at, range.end);
        true
    }

    /// The stretches without a bio of a step, if each is a part of a bio.
    #[cold]
    pub(super) fn parts_in_gaps(&mut self, range: Range) -> Vec<Range> {
        let gaps: Vec<Range> = self.gaps.iter().map(|&(sector, end)| Range { sector, end, ..range }).collect();
        if let &[gap] = &gaps[..]
            && gap.end == range.end
            && self.is_part(gap)
        {
            return gaps;
        }
        if !self.splits_not_shown {
            return Vec::new();
        }
        // The last stretch may be the head of a bio, the others the rest of one.
        let bios: Vec<_> = gaps.iter().map(|gap| self.bio_around(*gap)).collect();
        let is_head = |at: usize| bios[at].is_none() && at + 1 == gaps.len() && gaps[at].end == range.end;
        if !(0..gaps.len()).all(|at| bios[at].is_some() || is_head(at)) || gaps.is_empty() {
            return Vec::new();
        }
        if bios.last().is_some_and(Option::is_none) && gaps.last().is_some_and(|gap| !self.is_part(*gap)) {
            return Vec::new();
        }
        for (at, gap) in bios.into_iter().zip(&gaps).filter_map(|(at, gap)| Some((at?, gap))) {
            self.cut(at, gap.sector);
            self.is_part(*gap);
        }
        gaps
    }

    /// A bio without a step that begins before a stretch, and ends with it or behind it.
    #[cold]
    fn bio_around(&mut self, gap: Range) -> Option<u32> {
        let at = self.bios.newest_around(gap.place, gap.sector)?;
        let bio = self.bios.see(at);
        let steps = [bio.got, bio.inserted, bio.merged, bio.issued];
        let fresh = steps == [NEVER; 4] && !bio.is_request() && !bio.superseded && !bio.data_done;
        (fresh && bio.sector < gap.sector && gap.end <= bio.end()).then_some(at)
    }

    /// A later part completes first, on a device whose issues are not in the trace. Returns that part.
    #[cold]
    pub(super) fn part_completed_first(&mut self, range: Range) -> Option<u32> {
        let has_issues = self.issues[usize::from(range.place.device())];
        if has_issues || !self.splits_not_shown {
            return None;
        }
        let at = self.bios.newest_around(range.place, range.sector)?;
        let end = self.bios.see(at).end().min(range.end);
        let gap = Range { end, ..range };
        let at = self.bio_around(gap)?;
        self.cut(at, gap.sector);
        self.is_part(gap);
        self.bios.find(gap.from(gap.sector), |bio| u8::from(bio.end() == end)).map(|(at, _)| at)
    }

    /// Splits a bio, or a part, at a sector within it.
    fn cut(&mut self, at: u32, sector: u64) {
        if self.bios.get(at).flush {
            self.flush_forgotten(at);
        }
        let bio = self.bios.get(at);
        bio.flush = false;
        let number = self.splits.split(at, bio);
        bio.split_of = number;
        let first = (sector - bio.sector) as u32;
        let second = Bio { sector, sectors: bio.sectors - first, next: NONE, ..*bio };
        bio.sectors = first;
        self.counts.parts += u64::from(second.shown);
        if self.bios.any_at(second.place, sector) {
            self.again(Range { place: second.place, sector, end: second.end() }, second.tid);
        }
        let device = self.devices[usize::from(second.device)];
        let second = self.add(second);
        [at, second].into_iter().for_each(|part| self.may_be_above(part, device));
        self.watch.split(at, second);
    }
}
