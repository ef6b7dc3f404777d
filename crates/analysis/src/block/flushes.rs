//! Flushes of a device's cache, and bios that flush before or after their data.
//!
//! A bio with `REQ_PREFLUSH` or `REQ_FUA` goes through the flush machinery (block/blk-flush.c): a flush before its data, the
//! data, and, where the device does not know FUA, a flush after it. The flushes are the machinery's own requests (`FF`,
//! `FN`), which serve all bios that wait for one. The data's completion does not end the bio; its last completion without
//! sectors does (`WS () 8208 + 0`; before 6.6 its sector is the one behind the data). A bio that flushes and has no data (`FWS
//! 0 + 0`) ends with such a completion too. Where no empty flush of a device has one (traces that were filtered by sectors),
//! the completion of the flush that served it ends it.
//!
//! A last completion follows in two cases: the bio has FUA and its data was issued without it (then the kernel flushes after
//! it), or a flush was issued for it before its data. A device with FUA of its own completes it once.

use super::flush_machinery::{Needs, Span, Waiting};
use super::in_flight::{InFlight, NEVER, Place};
use super::matching::{Matching, Range, SKEW_NS};
use super::stack::Upper;
use super::watch::{Step, Watch};
use flashscope_trace::{BlockEvent, RequestFlags, RequestKind, TaskId};

/// Most pairs of devices of which one may lie on the other.
const MAX_DOUBTFUL: usize = 64;
/// Most bios in the flush machinery at a time; beyond, the oldest is given up.
const MAX_WAITING: usize = 1 << 12;

impl<W: Watch> Matching<W> {
    /// A bio that flushes is queued.
    #[cold]
    pub(super) fn flush_queued(&mut self, at: u32, empty: bool) {
        if self.flushes.waiting.len() == MAX_WAITING {
            let oldest = self.flushes.waiting[0].at;
            self.give_up(oldest);
        }
        let bio = *self.bios.get(at);
        let (flushes, before) = (&mut self.flushes, bio.flags.has(RequestFlags::FLUSH));
        *if empty { &mut flushes.empty } else { &mut flushes.with_data } += u64::from(bio.shown && !bio.below);
        flushes.waiting.push(Waiting {
            at,
            device: bio.device,
            kind: bio.kind,
            flags: bio.flags,
            sector: bio.sector,
            end: bio.end(),
            empty,
            shown: bio.shown,
            own: false,
            needs: if before { Needs::FlushBefore } else { Needs::Data },
            keeps_fua: None,
            pending: NEVER,
            served: NEVER,
            sure: false,
            unseen: NEVER,
            before: Span::UNKNOWN,
            data: Span::UNKNOWN,
            after: Span::UNKNOWN,
        });
    }

    /// A bio without data that flushes is queued.
    pub(super) fn flush_queue(&mut self, device: u16, block: &BlockEvent, by: (u32, TaskId), now: u64) {
        self.counts.all_queued += 1;
        // No range leads to it: its number distinguishes it from others.
        let number = self.counts.all_queued;
        let mut bio = InFlight::bio(device, (block.flags, RequestKind::Flush), number, 0, by, now);
        (bio.place, bio.flush) = (Place::of_empty_flushes(device), true);
        let below = self.next_below.take();
        if !self.whole_trace {
            self.flush_asked_anew(device, by.1, below.is_some());
        }
        (bio.in_range, bio.shown) = below.map_or(self.show(), |(_, show)| show);
        bio.below = below.is_some();
        *if bio.below { &mut self.counts.below } else { &mut self.counts.queued } += u64::from(bio.shown);
        let at = self.add(bio);
        if bio.below {
            self.stack.add(&self.next_uppers, at, &bio);
        }
        self.watch.queued(at, self.bios.get(at), now);
        self.flush_queued(at, true);
    }

    /// A thread waits for one flush before it requests the next: an older flush of it that still waits has lost its end.
    #[cold]
    fn flush_asked_anew(&mut self, device: u16, tid: TaskId, below: bool) {
        let upper = if below { self.next_uppers.first().map(|upper| upper.queued) } else { None };
        let before = |one: &&Waiting| {
            let bio = self.bios.see(one.at);
            // One upper bio may have several flushes below it.
            let of_another = !below || self.stack.upper_of(one.at) != upper;
            one.device == device && one.empty && bio.tid == tid && bio.below == below && of_another
        };
        let before: Vec<u32> = self.flushes.waiting.iter().filter(before).map(|one| one.at).collect();
        for at in before {
            self.flush_without_end(at);
        }
    }

    /// The owner of the upper bio that the next queued flush belongs to; `None` where there is none. `carries`: its thread
    /// carries others' work.
    pub(super) fn is_flush_below(&mut self, block: &BlockEvent, tid: TaskId, carries: bool) -> Option<u32> {
        // Its remap has no sectors that distinguish it from another's.
        self.stack.remap((block.device, block.sector));
        let uppers = self.stack.uppers_of(block.device);
        let lower = self.devices.iter().position(|&known| known == block.device).map(|at| at as u16);
        for upper in uppers {
            let Some(upper) = self.devices.iter().position(|&known| known == upper) else { continue };
            let waits = |one: &&Waiting| {
                let unserved = matches!(one.needs, Needs::FlushBefore | Needs::FlushAfter) && one.pending == NEVER;
                usize::from(one.device) == upper && unserved
            };
            // The thread's own bio comes first, the newest of them; then one without a flush below it, then the oldest.
            let rank = |one: &&Waiting| {
                let bio = self.bios.see(one.at);
                let served = lower.is_some_and(|lower| self.stack.is_above(one.at, bio.queued, lower));
                let other = bio.tid != tid;
                (other, served, if other { bio.queued } else { u64::MAX - bio.queued })
            };
            let own = |one: &&Waiting| carries || self.bios.see(one.at).tid == tid;
            let Some(at) = self.flushes.waiting.iter().filter(waits).filter(own).min_by_key(rank).map(|one| one.at)
            else {
                continue;
            };
            let bio = *self.bios.see(at);
            self.next_uppers.clear();
            self.next_uppers.push(Upper { at, queued: bio.queued, bytes: 0 });
            self.next_below = Some((None, (bio.in_range, bio.shown)));
            return Some(bio.owner);
        }
        for at in 0..self.flushes.waiting.len() {
            let one = &self.flushes.waiting[at];
            let pair = (self.devices[usize::from(one.device)], block.device);
            let own = carries || self.bios.see(one.at).tid == tid;
            let doubtful = &mut self.flushes.doubtful;
            if own && pair.0 != pair.1 && doubtful.len() < MAX_DOUBTFUL && !doubtful.contains(&pair) {
                doubtful.push(pair);
            }
        }
        None
    }

    pub(super) fn flush_got(&mut self, device: u16, tid: TaskId, now: u64) {
        let waiting = self.flushes.waiting.iter().rev().filter(|one| one.device == device && one.empty);
        let at = waiting.map(|one| one.at).find(|&at| {
            let bio = self.bios.get(at);
            bio.got == NEVER && bio.issued == NEVER && bio.tid == tid
        });
        let Some(at) = at else {
            self.counts.unmatched.got += 1;
            self.flush_ends_lost(device);
            return;
        };
        let bio = self.bios.get(at);
        self.watch.step(at, bio, Step::Got, now);
        bio.got = now;
    }

    /// A flush without a known bio begins. Bios whose flush is done end at once: those that still wait have lost their end, and the next
    /// end may be this flush's.
    #[cold]
    fn flush_ends_lost(&mut self, device: u16) {
        if !self.missing {
            return;
        }
        let is_due =
            |one: &&Waiting| one.device == device && one.empty && one.needs == Needs::End && one.served != NEVER;
        let due: Vec<u32> = self.flushes.waiting.iter().filter(is_due).map(|one| one.at).collect();
        for at in due {
            self.give_up(at);
        }
    }

    /// A flush is issued. Returns whether it is a waiting bio's own request, not the machinery's.
    pub(super) fn flush_issue(&mut self, device: u16, block: &BlockEvent, now: u64) -> bool {
        let bios = &mut self.bios;
        let waiting = self.flushes.waiting.iter_mut();
        let mut own = waiting.filter(|one| one.device == device && one.empty && one.flags == block.flags);
        let Some(one) = own.find(|one| bios.get(one.at).issued == NEVER && one.pending == NEVER) else { return false };
        one.own = true;
        let bio = bios.get(one.at);
        self.watch.step(one.at, bio, Step::Issued, now);
        bio.issued = now;
        true
    }

    /// Whether a flush issued now serves a bio that is shown.
    pub(super) fn flushes_for_shown(&self, device: u16) -> bool {
        let waits = |one: &Waiting| matches!(one.needs, Needs::FlushBefore | Needs::FlushAfter) && one.pending == NEVER;
        self.flushes.waiting.iter().any(|one| one.device == device && one.shown && waits(one))
    }

    /// The machinery issued a flush: it serves all bios that wait for one.
    pub(super) fn flush_request_issued(&mut self, device: u16, now: u64) {
        self.flushes.last_issue.insert(device, now);
        // The machinery issues the next flush at once where a bio waits for it: these bios had theirs, and its issue was lost.
        let had = |one: &&Waiting| one.empty && one.device == device && one.needs == Needs::FlushBefore;
        let is_old = |one: &&Waiting| one.pending == NEVER && one.unseen.saturating_add(SKEW_NS) < now;
        let had: Vec<u32> = self.flushes.waiting.iter().filter(had).filter(is_old).map(|one| one.at).collect();
        had.into_iter().for_each(|at| self.give_up(at));
        for one in self.flushes.waiting.iter_mut().filter(|one| one.device == device && one.pending == NEVER) {
            match one.needs {
                Needs::FlushBefore => {
                    let bio = self.bios.get(one.at);
                    // Its data is in flight, so the flush before was the one whose issue is not in the trace.
                    if !one.empty && one.unseen != NEVER && bio.inserted != NEVER {
                        continue;
                    }
                    one.before.from = now;
                    self.watch.step(one.at, bio, Step::Issued, now);
                    if one.empty {
                        bio.issued = now;
                    }
                }
                Needs::FlushAfter => one.after.from = now,
                Needs::Data | Needs::End => continue,
            }
            one.pending = now;
        }
    }

    /// The data of bios that flush is issued.
    #[cold]
    pub(super) fn flush_data_issued(&mut self, range: Range, keeps_fua: bool, now: u64) {
        for one in &mut self.flushes.waiting {
            let bio = self.bios.get(one.at);
            let in_range = bio.place == range.place && bio.sector >= range.sector && bio.end() <= range.end;
            if in_range && bio.issued == now && !one.empty {
                one.data.from = now;
                one.keeps_fua = Some(keeps_fua);
                if one.needs == Needs::FlushBefore {
                    one.needs = Needs::Data;
                }
            }
        }
    }

    /// The data of a bio that flushes is written. Returns whether the bio still waits for more.
    #[cold]
    pub(super) fn flush_data_done(&mut self, at: u32, time: u64) -> bool {
        let Some(index) = self.flushes.waiting.iter().position(|one| one.at == at) else { return false };
        let one = &mut self.flushes.waiting[index];
        one.data.to = time;
        let flush_after = one.flags.has(RequestFlags::FUA) && one.keeps_fua == Some(false);
        // A device that is issued no requests (device mapper, md) completes a bio once.
        let machinery = self.issues[usize::from(one.device)];
        let flushes_first = one.flags.has(RequestFlags::FLUSH);
        let unknown = machinery && (one.keeps_fua.is_none() || flushes_first) && self.flushes.ends > 0;
        let goes_on = flush_after || one.before.from != NEVER || unknown || one.unseen != NEVER;
        if !goes_on {
            self.flush_over(index);
            return false;
        }
        one.needs = if one.flags.has(RequestFlags::FUA) && one.keeps_fua != Some(true) {
            Needs::FlushAfter
        } else {
            Needs::End
        };
        (one.pending, one.served) = (NEVER, time);
        let bio = self.bios.get(at);
        bio.data_done = true;
        self.watch.data_written(at, bio, time);
        true
    }

    /// A bio leaves the machinery: its steps are counted, and its issue becomes that of the flush before its data.
    fn flush_over(&mut self, index: usize) {
        let one = self.flushes.waiting.remove(index);
        self.flushes.count(&one);
        // A device that is issued flushes was issued one for this bio.
        let lost = one.before.from == NEVER && one.flags.has(RequestFlags::FLUSH) && !one.empty;
        let is_issued = one.unseen != NEVER || self.flushes.last_issue.contains_key(&one.device);
        let bio = self.bios.get(one.at);
        bio.issued = if lost && is_issued { NEVER } else { bio.issued.min(one.before.from) };
    }

    fn flush_end(&mut self, index: usize, error: i32, now: u64) {
        let one = &self.flushes.waiting[index];
        let at = one.at;
        if one.empty {
            self.flushes.own_ends.insert(one.device);
        }
        self.flush_over(index);
        let bio = self.bios.get(at);
        if bio.error == 0 {
            bio.error = error;
        }
        self.done(at, now);
    }

    /// A flush without sectors, with the letter of a flush, completes.
    pub(super) fn flush_complete(&mut self, device: u16, block: &BlockEvent, now: u64) {
        let range = Range { place: Place::new(device, RequestKind::Flush), sector: 0, end: 1 };
        let issued = self.bios.any_at(range.place, 0);
        let write = block.flags.has(RequestFlags::WRITE);
        let own = |one: &Waiting| one.empty && one.flags == block.flags && (one.own || !issued);
        // Of a stack's upper bios the one whose lower ones ended last.
        let below = |one: &Waiting| self.stack.ended_below(one.at, self.bios.see(one.at).queued);
        let found = self.flushes.find_served(device, own, below);
        let found = found.or_else(|| if write { self.flushes.find(device, |one| one.empty) } else { None });
        if let Some(index) = found {
            self.flush_end(index, block.error, now);
            return;
        }
        // A last completion follows its flush at once: a bio that still waits for one has lost it.
        let late = |one: &Waiting| {
            let ended = one.device == device && one.needs == Needs::End && one.served != NEVER;
            ended && one.served.saturating_add(SKEW_NS) < now
        };
        let late: Vec<u32> = self.flushes.waiting.iter().filter(|one| late(one)).map(|one| one.at).collect();
        for at in late {
            self.flush_without_end(at);
        }
        let of_device = self.flushes.waiting.iter_mut().filter(|one| one.device == device);
        let first = of_device.map(|one| one.pending).min().unwrap_or(NEVER);
        let sure = self.flushes.last_issue.get(&device) == Some(&first);
        if first == NEVER {
            let before = |one: &&mut Waiting| one.device == device && one.needs == Needs::FlushBefore;
            self.flushes.waiting.iter_mut().filter(before).for_each(|one| one.unseen = now);
        }
        let served = self.flushes.waiting.iter_mut().filter(|one| one.device == device && one.pending == first);
        for one in served.filter(|one| one.pending != NEVER) {
            (one.pending, one.served, one.sure) = (NEVER, now, sure);
            if block.error != 0 {
                self.bios.get(one.at).error = block.error;
            }
            if one.needs == Needs::FlushAfter {
                one.after.to = now;
                one.needs = Needs::End;
            } else {
                one.before.to = now;
                one.needs = if one.empty { Needs::End } else { Needs::Data };
            }
        }
        self.complete(range, block.error, now);
    }

    /// The device has flushed, and the bio's own completion did not come: it was lost; or, where no empty flush of this device
    /// has one in the trace, the flush's completion ends the bio.
    pub(super) fn flush_without_end(&mut self, at: u32) {
        let waiting = self.flushes.waiting.iter().position(|one| one.at == at);
        match waiting.map(|index| (index, &self.flushes.waiting[index])) {
            Some((index, one))
                if one.empty && one.sure && one.served != NEVER && !self.flushes.own_ends.contains(&one.device) =>
            {
                let served = one.served;
                self.flush_over(index);
                self.done(at, served);
            }
            _ => self.give_up(at),
        }
    }

    /// A bio ends, and so do the flushes below it.
    #[cold]
    pub(super) fn flushes_below_end(&mut self, at: u32, queued: u64) {
        let below = |one: &&Waiting| one.empty && one.served != NEVER && self.stack.is_below(one.at, at, queued);
        let below: Vec<u32> = self.flushes.waiting.iter().filter(below).map(|one| one.at).collect();
        below.into_iter().for_each(|at| self.flush_without_end(at));
    }

    /// When the trace ends: ends empty flushes whose device's flush has ended.
    pub(super) fn flushes_end(&mut self) {
        let ended = |one: &&Waiting| one.empty && one.needs == Needs::End && one.served != NEVER;
        let ended: Vec<(u32, u16)> =
            self.flushes.waiting.iter().filter(ended).map(|one| (one.at, one.device)).collect();
        for (at, device) in ended {
            if !self.flushes.own_ends.contains(&device) {
                self.flush_without_end(at);
            }
        }
    }

    /// A completion without sectors and without a flush's letter: it ends a bio in the machinery.
    pub(super) fn flush_ended(&mut self, device: u16, block: &BlockEvent, now: u64) {
        let kind = block.flags.kind();
        let here =
            |one: &Waiting| !one.empty && one.kind == kind && (one.sector == block.sector || one.end == block.sector);
        let nowhere = block.sector == 0 || block.sector == u64::MAX;
        let bios = &self.bios;
        // If its sectors were written again since, it has lost its end.
        let found = self.flushes.find(device, |one| here(one) && one.data.to != NEVER && !bios.see(one.at).superseded);
        let found = found.or_else(|| self.flushes.find(device, |one| here(one) && one.data.to != NEVER));
        let found = found.or_else(|| {
            let empty = |ready: bool| move |one: &Waiting| one.empty && (!ready || one.needs == Needs::End);
            let served = |one: &Waiting| if one.served == NEVER { 0 } else { one.served };
            let flushed = if nowhere { self.flushes.find_served(device, empty(true), served) } else { None };
            flushed.or_else(|| if nowhere { self.flushes.find(device, empty(false)) } else { None })
        });
        let found = found.or_else(|| self.flushes.find(device, here));
        match found {
            Some(index) => {
                self.flushes.ends += 1;
                self.flush_end(index, block.error, now);
            }
            None => {
                self.failed_alone(Place::new(device, kind), (block.sector, block.sector), block.error, now);
                // Without queueing, no bio that flushes is known: nothing is lost.
                if self.counts.all_queued > 0 || self.counts.all_requests == 0 {
                    self.counts.unmatched.completed += 1;
                    self.stray(Place::new(device, kind), block.sector, now);
                }
            }
        }
    }

    /// A bio leaves the machinery without an end.
    #[cold]
    pub(super) fn flush_forgotten(&mut self, at: u32) {
        if let Some(index) = self.flushes.waiting.iter().position(|one| one.at == at) {
            self.flush_over(index);
        }
    }
}
