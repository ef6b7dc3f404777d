//! Requests that the driver gives back (`R`), and requests that are issued again.
//!
//! - I2D ends, and D2C begins, with the last issue.
//! - The bios of such a request have their steps by their sectors, as others have. A request whose bios' queueing is not in the trace has
//!   no bios: between its requeue and its next issue others may be merged into it, or it may be split. It then takes the sectors of
//!   that issue that belong to no bio. Of two that were merged the lower one takes the sectors between them,
//!   and those of the other: they are one request.
//! - A request belongs to the task that issued it first. A kernel thread often issues it again.
//! - An issue of exactly the bios of a request in the device is the same request, issued again: its requeue was lost,
//!   or its driver has no such event. It is another request if one was allocated for those sectors meanwhile.
//! - So is an issue of exactly the sectors of a request without bios, where the trace has lost no completion and shows no requeue: it may
//!   have been recorded without them. If each of the two issues has a completion, they were two requests after all.

use super::in_flight::{Bio, NEVER};
use super::matching::{Matching, Range, Walk};
use super::ranges::is_discard;
use super::watch::{Step, Watch};
use flashscope_trace::{RequestKind, TaskId};

/// Most requests below the end of an issue for which it is checked whether they reach into it.
const MOST_LOOKED_AT: usize = 16;

impl<W: Watch> Matching<W> {
    /// A request is issued: requests given back before take its stretches without a bio. Returns whether none is left.
    #[cold]
    pub(super) fn reshaped(&mut self, range: Range, walk: Walk, (tid, now): (TaskId, u64)) -> bool {
        if walk == Walk::Gaps {
            let gaps = std::mem::take(&mut self.gaps);
            let left = gaps.into_iter().filter(|&gap| !self.takes_gap(range, gap, (tid, now)));
            self.gaps = left.collect();
        }
        let issued = |at: u32| self.bios.see(at).issued != NEVER;
        let there = self.given_back.0.range((range.place, range.sector)..(range.place, range.end));
        let over: Vec<_> = there.filter(|(_, at)| issued(**at)).map(|(key, _)| *key).collect();
        let mut below = None;
        for key in over {
            let Some(at) = self.given_back.0.remove(&key) else { continue };
            let bio = self.bios.see(at);
            let is_it = bio.live && bio.is_request() && (bio.place, bio.sector) == key && bio.issued == now;
            match below {
                Some(below) if is_it && self.are_merged(below, at) => {}
                _ => below = Some(at).filter(|_| is_it),
            }
        }
        walk == Walk::Gaps && self.gaps.is_empty()
    }

    /// Two requests without bios are issued as one, if the second begins where the first ends: the first has the sectors of both.
    fn are_merged(&mut self, below: u32, at: u32) -> bool {
        let (old, second) = (*self.bios.see(below), *self.bios.see(at));
        let plain = |bio: &Bio| !bio.superseded && !bio.below && bio.undecided == NEVER;
        if old.end() != second.sector || !plain(&old) || !plain(&second) {
            return false;
        }
        self.watch.absorbed(at, &second);
        self.counts.all_requests -= 1;
        self.counts.requests -= u64::from(second.shown);
        self.lose(at, None);
        let bio = self.bios.get(below);
        bio.sectors = bio.sectors.saturating_add(second.sectors);
        bio.whole_sectors = bio.whole_sectors.saturating_add(second.sectors);
        self.watch.reshaped(below, &old, bio);
        true
    }

    /// A request given back that lies at or in this stretch takes it. Returns whether there is one.
    fn takes_gap(&mut self, range: Range, (begin, end): (u64, u64), (tid, now): (TaskId, u64)) -> bool {
        let place = range.place;
        let below = self.given_back.0.range((place, 0)..=(place, end)).rev().take(MOST_LOOKED_AT);
        // One that contains or touches the stretch and was just issued; or one that reaches into it.
        let fits = below.filter_map(|(&key, &at)| {
            let bio = self.bios.see(at);
            if !bio.live || !bio.is_request() || (bio.place, bio.sector) != key || bio.superseded {
                return None;
            }
            let is_beside = bio.issued == now && (bio.end() == begin || bio.sector == end);
            let reaches_in = bio.issued == NEVER && bio.sector < end && bio.end() > begin;
            (is_beside || reaches_in).then_some((key, at, is_beside))
        });
        let Some((key, at, is_beside)) = fits.last() else { return false };
        let old = *self.bios.see(at);
        let (begin, end) = if is_beside { (begin.min(old.sector), end.max(old.end())) } else { (begin, end) };
        if begin != old.sector {
            if self.bios.any_at(place, begin) {
                self.again(Range { place, sector: begin, end }, tid);
            }
            self.make_room(place, begin);
            if !self.bios.see(at).live {
                return false;
            }
            self.given_back.0.remove(&key);
            self.given_back.0.insert((place, begin), at);
            self.bios.rename(at, place, begin);
        }
        let bio = self.bios.get(at);
        let sectors = u32::try_from(end - begin).unwrap_or(u32::MAX);
        bio.whole_sectors = (bio.whole_sectors - bio.sectors).saturating_add(sectors);
        bio.sectors = sectors;
        self.watch.reshaped(at, &old, bio);
        if bio.issued == NEVER {
            self.watch.step(at, bio, Step::Issued, now);
            bio.issued = now;
        }
        true
    }

    /// Whether a request in the device is issued again.
    #[cold]
    pub(super) fn issued_again(&mut self, range: Range, now: u64) -> bool {
        let may_be_alone = !self.missing && !self.uncounted && self.counts.requeues == 0;
        let waits = |bio: &Bio| {
            // Appends to a zone all begin at its first sector, and commands of drivers at sector 0.
            let is_placed = !matches!(bio.kind, RequestKind::ZoneAppend | RequestKind::Other);
            let is_same = may_be_alone && is_placed && (bio.sector, bio.end()) == (range.sector, range.end);
            let free = !bio.superseded && !bio.data_done && bio.undecided == NEVER;
            u8::from(free && bio.issued != NEVER && (is_same || !bio.is_request()))
        };
        let (mut sector, mut before, mut shown) = (range.sector, NEVER, false);
        let mut first = None;
        while sector < range.end {
            if !self.bios.may_look() {
                self.whole_trace = false;
                return true;
            }
            let Some((_, bio)) = self.bios.find(range.from(sector), waits) else { return false };
            // All of its bios were issued together.
            if before != NEVER && bio.issued != before {
                return false;
            }
            before = bio.issued;
            shown |= bio.shown;
            first = Some(*bio).filter(Bio::is_request);
            sector = bio.end().max(sector + 1);
        }
        first.into_iter().for_each(|bio| self.first_issues.add(bio));
        self.counts.reissued += u64::from(shown);
        self.walk(range, waits, |watch, at, bio| {
            watch.step(at, bio, Step::Requeued, now);
            bio.issued = NEVER;
            watch.step(at, bio, Step::Issued, now);
            bio.issued = now;
        });
        true
    }

    /// A request that seemed to be issued again has another completion: it was two requests. Returns the name of the other one.
    #[cold]
    pub(super) fn was_another(&mut self, range: Range, now: u64) -> Option<u32> {
        let bio = self.first_issues.take(range.place, (range.sector, range.end), now)?;
        self.counts.reissued -= u64::from(bio.shown);
        self.counts.all_requests += 1;
        self.counts.requests += u64::from(bio.shown);
        let at = self.add(bio);
        self.watch.requested(at, self.bios.get(at), now);
        Some(at)
    }

    pub(super) fn requeued(&mut self, range: Range, now: u64) {
        if is_discard(range.place) && self.discards_requeued(range, now) {
            return;
        }
        let (mut shown, mut alone) = (self.in_range && self.own, Vec::new());
        let walk = self.walk(
            range,
            |bio| u8::from(bio.issued != NEVER) * (1 + u8::from(!bio.superseded)),
            |watch, at, bio| {
                watch.step(at, bio, Step::Requeued, now);
                bio.issued = NEVER;
                shown |= bio.shown;
                if bio.is_request() {
                    alone.push((bio.sector, at));
                }
            },
        );
        for (sector, at) in alone {
            self.given_back.add(range.place, sector, at);
        }
        self.counts.requeues += u64::from(shown);
        if walk == Walk::Gaps {
            self.counts.unmatched.requeued += 1;
            self.whole_trace = false;
        }
    }
}
