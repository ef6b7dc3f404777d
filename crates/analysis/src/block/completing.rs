//! The end of a bio: the bio that a completion belongs to, and bios that have lost their completion.
//!
//! Where several bios wait at one sector, and the trace may have lost events, a completion is *undecided*: it is noted at the newest
//! bio. The next event at that sector decides which bio it belongs to:
//!
//! - Another completion: both bios were in flight, and the first completion belongs to the oldest bio. Exception: the trace may have
//!   lost events, and that bio has been in the device for far too long. For a bio that has a request, and whose issue is not in the
//!   trace, the time counts from its queueing.
//! - The same sectors again, by a thread that waits for one of the two: a thread that does synchronous I/O
//!   waits for one request before it makes the next, so the completion belongs to that thread's bio.
//! - The same sectors again, by another thread: the service time decides. It is computed from the issue of the older and of the
//!   newer bio, and the one nearer to the device's usual service time wins. If that is the newer bio, the older one has lost its
//!   completion. Where no service time of the device is known yet, the completion belongs to the newer bio.
//! - The end of the trace: the service time decides, too.
//! - The same sectors again, or the end of the trace, where events are missing: the older bio has lost its completion if it would have
//!   been in the device for far longer than usual. If not, and both bios are of one thread or should have ended by now, either may
//!   have lost it, and neither bio has an end.
//!
//! Where a bio has lost its completion, the bios behind it in its request have lost it too. A bio has lost its issue if its request
//! still waits for it while a newer bio of its sectors is done, or while its device is idle.

use super::in_flight::{Bio, InFlight, MOST_IN_BUCKET, NEVER, NONE, Place, Wanted};
use super::matching::{Cause, Matching, Range, SKEW_NS, Stray};
use super::parts_in_flight::Lost;
use super::ranges::is_discard;
use super::watch::Watch;
use flashscope_trace::{BlockEvent, RequestFlags, RequestKind, TaskId, is_of_newer, is_overdue};

/// Most completions without a bio that are kept for bios queued shortly after.
const MAX_STRAYS: usize = 64;

/// The owner of the one completion of two bios of one sector.
enum OneForTwo {
    Newer,
    Either,
}

/// An undecided completion.
struct Undecided {
    /// The newest bio, at which it is noted.
    on: u32,
    time: u64,
    error: i32,
}

impl<W: Watch> Matching<W> {
    /// A driver's own command completes. Its event then names neither sectors nor bytes (`N 0 + 0`).
    #[cold]
    pub(super) fn command_complete(&mut self, device: u16, block: &BlockEvent, now: u64) -> bool {
        let nowhere = block.sector == 0 || block.sector == u64::MAX;
        let place = Place::new(device, RequestKind::Other);
        if !nowhere || block.kind() != RequestKind::Other {
            return false;
        }
        let wanted = Wanted { place, sector: 0, most: u64::MAX };
        if let Some(end) = self.bios.find(wanted, |bio| u8::from(bio.is_request())).map(|(_, bio)| bio.end()) {
            self.complete(Range { place, sector: 0, end: end.max(1) }, block.error, now);
            return true;
        }
        // A command without data, such as a test for a disk.
        let without_data = self.commands.get_mut(&device).filter(|under_way| **under_way > 0);
        without_data.map(|under_way| *under_way -= 1).is_some()
    }

    /// Rank of a bio for a completion: one that is not superseded comes first, then one that was issued; of equals the longest, then the
    /// oldest. A device above others (device mapper, md) completes bios that it never issued.
    #[inline(always)]
    fn completes(bio: &Bio) -> u8 {
        u8::from(!bio.data_done) * (1 + 2 * u8::from(bio.issued != NEVER) + u8::from(!bio.superseded))
    }

    /// A completion of these sectors.
    #[inline(always)]
    pub(super) fn complete(&mut self, range: Range, error: i32, now: u64) {
        if is_discard(range.place) && self.discards_done(range, error, now) {
            return;
        }
        let mut sector = range.sector;
        while sector < range.end {
            if !self.bios.may_look() {
                self.whole_trace = false;
                return;
            }
            if let Some((at, bio)) = self.bios.find(range.from(sector), Self::completes) {
                let begin = sector;
                sector = bio.end().max(sector + 1);
                if !self.whole_trace && self.bios.covers_newer(at, range.end) {
                    sector = self.passed_over(range, begin, at);
                    continue;
                }
                let bio = self.bios.see(at);
                let (device, issued, end) = (bio.device, bio.issued, bio.end());
                if bio.superseded && end < range.end && self.is_part_of_newer(range.from(begin), end) {
                    sector = self.complete_rest(range, begin, error, now);
                    continue;
                }
                if self.bios.is_contested(at) {
                    self.contested(range.from(begin), error, now);
                } else if issued == NEVER && self.issues[usize::from(device)] {
                    self.complete_early(at, error, now);
                } else {
                    if issued != NEVER {
                        self.typical.add(device, range.place.kind(), now.saturating_sub(issued));
                    }
                    self.take(at, now, error);
                }
            } else {
                sector = self.complete_rest(range, sector, error, now);
            }
        }
    }

    /// Makes room for one more bio that begins here.
    #[inline(always)]
    pub(super) fn make_room(&mut self, place: Place, sector: u64) {
        // One suffices, unless the bucket may keep fewer than before.
        for _ in 0..MOST_IN_BUCKET {
            let Some(at) = self.bios.too_many(place, sector) else { return };
            self.lose(at, Some(Lost::TooMany));
        }
    }

    /// No bio of this sector ends within the range. Returns where the next one begins.
    #[cold]
    fn complete_rest(&mut self, range: Range, sector: u64, error: i32, now: u64) -> u64 {
        let wanted = Wanted { most: u64::MAX, ..range.from(sector) };
        if let Some((at, bio)) = self.bios.find(wanted, Self::completes)
            && u64::from(bio.sectors) > range.end - sector
        {
            // The rest of it has another completion.
            if error != 0 && bio.error == 0 {
                bio.error = error;
                // The parts of a split bio count for the whole.
                let name = self.splits.name(at, bio);
                let bio = *bio;
                self.watch.failed_part(name, &bio, range.end - sector);
            }
            let (place, end) = (bio.place, range.end);
            self.make_room(place, end);
            if self.bios.see(at).live {
                self.bios.shorten(at, (end - sector) as u32);
            }
            return end;
        }
        if self.bios.len() > 0
            && let Some(at) = self.part_completed_first(Range { sector, ..range })
        {
            let end = self.bios.see(at).end();
            self.take(at, now, error);
            return end;
        }
        if let Some(at) = self.was_another(Range { sector, ..range }, now) {
            self.take(at, now, error);
            return range.end;
        }
        let next = match self.bios.len() {
            0 => None,
            _ => self.bios.next_start(range.place, sector + 1, range.end, Self::completes),
        };
        self.counts.unmatched.completed += 1;
        let end = next.unwrap_or(range.end);
        self.failed_alone(range.place, (sector, end), error, now);
        self.stray(range.place, sector, now);
        end
    }

    /// A completion without a bio: the failure is known from it alone.
    pub(super) fn failed_alone(&mut self, place: Place, (sector, end): (u64, u64), error: i32, now: u64) {
        if error == 0 || !self.in_range || !self.own {
            return;
        }
        let sectors = u32::try_from(end - sector).unwrap_or(u32::MAX);
        let of = (RequestFlags(0), RequestKind::ALL[place.kind()]);
        let bio = Bio { error, ..InFlight::bio(place.device(), of, sector, sectors, (NONE, TaskId(NONE)), NEVER) };
        self.watch.failed_alone(&bio, now);
    }

    /// Whether a completion that continues behind the end of a superseded bio, where no other begins, belongs to a part of a longer one that
    /// was issued at the same sector since.
    #[cold]
    fn is_part_of_newer(&mut self, wanted: Wanted, end: u64) -> bool {
        let behind = Wanted { sector: end, most: u64::MAX, ..wanted };
        let longer = |bio: &Bio| {
            let there = !bio.superseded && !bio.data_done && bio.issued != NEVER;
            u8::from(there && u64::from(bio.sectors) > wanted.most)
        };
        self.bios.find(behind, |_| 1).is_none() && self.bios.find(Wanted { most: u64::MAX, ..wanted }, longer).is_some()
    }

    /// Bios of one request lie side by side. A bio within which a newer one begins belongs to another request, and has lost its end.
    #[cold]
    fn passed_over(&mut self, range: Range, sector: u64, at: u32) -> u64 {
        self.bios.get(at).superseded = true;
        self.counts.unmatched.completed += 1;
        self.bios.next_start(range.place, sector + 1, range.end, Self::completes).unwrap_or(range.end)
    }

    pub(super) fn stray(&mut self, place: Place, sector: u64, time: u64) {
        self.whole_trace = false;
        if self.strays.len() == MAX_STRAYS {
            self.strays.pop_front();
        }
        self.strays.push_back(Stray { place, sector, time, counted: self.in_range });
    }

    /// Whether a completion without a bio came just before this bio was queued or issued: it belongs to this bio.
    pub(super) fn take_stray(&mut self, place: Place, sector: u64, queued: u64, issued: u64) -> bool {
        let last = if issued == NEVER { queued } else { issued };
        let near = |s: &Stray| {
            s.place == place && s.sector == sector && s.time <= last && s.time.saturating_add(SKEW_NS) >= queued
        };
        let Some(at) = self.strays.iter().rposition(near) else { return false };
        let counted = self.strays.remove(at).is_some_and(|stray| stray.counted);
        self.counts.unmatched.completed -= u64::from(counted);
        true
    }

    /// A completion at a sector at which several bios wait.
    #[cold]
    fn contested(&mut self, wanted: Wanted, error: i32, now: u64) {
        if !self.whole_trace {
            self.decide_completion(wanted.place, wanted.sector, Cause::Complete);
        }
        let Some((at, _)) = self.bios.find(wanted, Self::completes) else {
            self.counts.unmatched.completed += 1;
            return;
        };
        if self.whole_trace || !self.bios.is_contested(at) {
            self.take(at, now, error);
            return;
        }
        let mut group = std::mem::take(&mut self.group);
        self.bios.group(wanted.place, wanted.sector, &mut group);
        let newest = group.iter().rev().copied().find(|&at| {
            let bio = self.bios.get(at);
            u64::from(bio.sectors) <= wanted.most && !bio.data_done
        });
        // Bios that wait only for the end of their flush do not compete for it.
        let is_only = group.iter().all(|&other| other == at || self.bios.see(other).data_done);
        self.group = group;
        if is_only {
            self.take(at, now, error);
            return;
        }
        let at = newest.unwrap_or(at);
        let bio = self.bios.get(at);
        (bio.undecided, bio.error) = (now, error);
        self.watch.undecided(at, bio, now);
    }

    /// A completion of a bio that was not issued: the issue was lost, or another CPU stamps it a moment later.
    #[cold]
    fn complete_early(&mut self, at: u32, error: i32, now: u64) {
        self.whole_trace = false;
        let bio = self.bios.get(at);
        if bio.undecided != NEVER {
            self.counts.unmatched.completed += 1;
            return;
        }
        (bio.undecided, bio.error) = (now, error);
        self.watch.undecided(at, bio, now);
        self.early.push_back((at, now));
        self.take_late(now);
    }

    /// Completes bios whose issue can no longer follow: the issues were lost.
    #[cold]
    pub(super) fn take_late(&mut self, now: u64) {
        while let Some(&(at, time)) = self.early.front()
            && time.saturating_add(SKEW_NS) < now
        {
            self.early.pop_front();
            let bio = self.bios.get(at);
            if bio.live && bio.undecided == time && bio.issued == NEVER && self.is_of_one(at) {
                self.take_undecided(at);
            }
        }
    }

    /// Whether a bio's undecided completion can belong to no other: all others at its sector were queued later.
    fn is_of_one(&mut self, at: u32) -> bool {
        if !self.bios.is_contested(at) {
            return true;
        }
        let Bio { place, sector, undecided, .. } = *self.bios.see(at);
        let mut group = std::mem::take(&mut self.group);
        self.bios.group(place, sector, &mut group);
        let one = group.iter().all(|&other| other == at || self.bios.see(other).queued > undecided);
        self.group = group;
        one
    }

    fn take_undecided(&mut self, at: u32) {
        let bio = self.bios.get(at);
        let (time, error) = (bio.undecided, bio.error);
        bio.undecided = NEVER;
        self.watch.decided(at);
        self.counts.without_issue +=
            u64::from(bio.shown && bio.issued == NEVER && self.issues[usize::from(bio.device)]);
        self.take(at, time, error);
    }

    /// Bios of a request that is issued after they were completed: the clocks of two CPUs differ, and none of their times is valid.
    #[cold]
    pub(super) fn completed_before_issue(&mut self, range: Range) {
        let mut sector = range.sector;
        let fits = |bio: &Bio| u8::from(bio.undecided != NEVER && bio.issued != NEVER);
        while sector < range.end {
            if !self.bios.may_look() {
                return;
            }
            let Some((at, bio)) = self.bios.find(range.from(sector), fits) else {
                sector = self.bios.next_start(range.place, sector + 1, range.end, fits).unwrap_or(range.end);
                continue;
            };
            let (begin, end) = (sector, bio.end().max(sector + 1));
            sector = end;
            if self.bios.is_contested(at) {
                self.decide_completion(range.place, begin, Cause::Complete);
            } else {
                self.lose(at, Some(Lost::TimeBackwards));
            }
        }
    }

    /// Decides which bio an undecided completion belongs to, where there is one.
    #[cold]
    pub(super) fn decide_completion(&mut self, place: Place, sector: u64, cause: Cause) {
        let mut group = std::mem::take(&mut self.group);
        self.bios.group(place, sector, &mut group);
        if let Some(&on) = group.iter().find(|&&at| self.bios.get(at).undecided != NEVER) {
            if group.len() == 1 {
                self.take_undecided(on);
            } else {
                let bio = self.bios.get(on);
                let completion = Undecided { on, time: bio.undecided, error: bio.error };
                (bio.undecided, bio.error) = (NEVER, 0);
                self.watch.decided(on);
                self.decide(&group, &completion, cause);
            }
        }
        self.group = group;
    }

    fn decide(&mut self, group: &[u32], completion: &Undecided, cause: Cause) {
        let time = completion.time;
        let issued = |bio: &Bio| bio.issued != NEVER && bio.issued <= time;
        let waits = |&at: &u32| at != completion.on && !self.bios.see(at).data_done;
        let older: Vec<u32> = group.iter().copied().filter(waits).collect();
        let by_issue = |at: &u32| self.bios.see(*at).issued;
        let oldest = older.iter().copied().filter(|&at| issued(self.bios.see(at))).min_by_key(by_issue);
        // Where both ended, it is the older one's; bios that have lost their completion are left out.
        let oldest = match cause {
            Cause::Complete if self.missing => {
                let requested = |bio: &Bio| issued(bio) || bio.issued == NEVER && bio.got != NEVER;
                let gone = |at: u32| self.typical_of(self.bios.see(at)).is_some() && self.is_long_gone(at, time);
                let punctual = |&at: &u32| requested(self.bios.see(at)) && !gone(at);
                older.iter().copied().filter(punctual).min_by_key(|&at| self.bios.see(at).begun()).or(oldest)
            }
            _ => oldest,
        };
        let newest = *self.bios.see(completion.on);
        // Issued after the completion, it cannot be completed by it.
        let possible = newest.issued == NEVER || newest.issued <= time;
        let mut cause = cause;
        let mut oldest = oldest;
        if let (Some(older), true, true) = (oldest, self.missing && possible, cause != Cause::Complete) {
            if self.should_have_ended([older, completion.on]) {
                cause = Cause::End;
            }
            match self.one_for_two((older, completion.on), time, cause == Cause::End) {
                Some(OneForTwo::Either) => {
                    self.give_up(older);
                    self.give_up(completion.on);
                    return;
                }
                Some(OneForTwo::Newer) => oldest = None,
                None => {}
            }
        }
        let mut lost = Vec::new();
        let chosen = match (oldest, cause) {
            (Some(oldest), Cause::Complete)
                if !self.missing || self.looks_like_the_newer(oldest, &newest, time) != Some(true) =>
            {
                oldest
            }
            (Some(oldest), _) if !possible => oldest,
            (Some(oldest), Cause::Again { tid }) => {
                let own = older.iter().copied().find(|&at| self.bios.see(at).tid == tid && issued(self.bios.see(at)));
                let newer = self.looks_like_the_newer(oldest, &newest, time);
                // The thread that issues a request need not be the one that waits for it.
                let waiter_is_known = !newest.is_request();
                match (own, newest.tid == tid) {
                    _ if newer == Some(true) => completion.on,
                    // The older one may still be in flight.
                    (None, true) if waiter_is_known => completion.on,
                    (Some(own), false) if waiter_is_known => own,
                    _ if newer.is_none() => completion.on,
                    _ => oldest,
                }
            }
            (Some(oldest), Cause::End) if self.looks_like_the_newer(oldest, &newest, time) == Some(false) => oldest,
            _ => completion.on,
        };
        if chosen == completion.on {
            let gone = |&at: &u32| self.is_overdue(at, time) || self.is_outrun(at, time);
            lost.extend(older.iter().copied().filter(gone));
            for first in 0..lost.len() {
                self.others_of_request(lost[first], &mut lost);
            }
        }
        let Bio { issued, shown, .. } = *self.bios.see(chosen);
        self.counts.without_issue += u64::from(shown && issued == NEVER);
        if issued <= time {
            self.typical.add(newest.device, newest.kind as usize, time - issued);
        }
        self.take(chosen, time, completion.error);
        for at in lost {
            self.give_up(at);
        }
    }

    /// Adds the bios behind this one in its request: one completion would have ended them all.
    fn others_of_request(&mut self, at: u32, lost: &mut Vec<u32>) {
        let mut last = *self.bios.see(at);
        while last.issued != NEVER && self.bios.may_look() {
            let wanted = Wanted { place: last.place, sector: last.end(), most: u64::MAX };
            let same = |bio: &Bio| u8::from(bio.issued == last.issued && !bio.data_done && bio.undecided == NEVER);
            let Some((next, bio)) = self.bios.find(wanted, same) else { return };
            last = *bio;
            if last.sectors == 0 || lost.contains(&next) {
                return;
            }
            lost.push(next);
        }
    }

    fn typical_of(&self, bio: &Bio) -> Option<u64> {
        self.typical.of(bio.device, bio.kind as usize)
    }

    /// Whether it has been in flight far longer than bios usually are in the device. The time counts from its issue if known, else from its
    /// queueing.
    fn is_long_gone(&self, at: u32, time: u64) -> bool {
        let bio = self.bios.see(at);
        let since = if bio.issued == NEVER { bio.queued } else { bio.issued };
        let typical = self.typical_of(bio).unwrap_or(0);
        since != NEVER && is_overdue(time.saturating_sub(since), typical)
    }

    /// Whether a bio has been in the device far longer than usual: its completion was lost.
    fn is_overdue(&self, at: u32, time: u64) -> bool {
        self.bios.see(at).issued != NEVER && self.is_long_gone(at, time)
    }

    /// Whether a bio has a request that should have been issued long before a newer one of its sectors was done: its issue was lost.
    fn is_outrun(&self, at: u32, time: u64) -> bool {
        let bio = self.bios.see(at);
        Self::waits_for_issue(bio) && self.typical_of(bio).is_some() && self.is_long_gone(at, time)
    }

    /// Whether both bios have been in the device far longer than usual by now: no second completion will come.
    fn should_have_ended(&self, two: [u32; 2]) -> bool {
        let now = self.counts.end_ns;
        two.into_iter().all(|at| self.typical_of(self.bios.see(at)).is_some() && self.is_overdue(at, now))
    }

    /// Two bios of one sector have one completion, and if `all`, no other will come. Returns which bio it belongs to, where events are
    /// missing and the times show it.
    fn one_for_two(&self, (older, newer): (u32, u32), time: u64, all: bool) -> Option<OneForTwo> {
        let newest = *self.bios.see(newer);
        let older_bio = self.bios.see(older);
        let typical = self.typical_of(&newest)?;
        let never_issued = newest.issued == NEVER && !Self::waits_for_issue(&newest);
        if never_issued || newest.split_of != NONE || older_bio.split_of != NONE {
            return None;
        }
        let old = time.saturating_sub(older_bio.issued);
        let is_late = if all { old > typical.saturating_mul(2) } else { is_overdue(old, typical) };
        if is_late || self.looks_like_the_newer(older, &newest, time) == Some(true) {
            return Some(OneForTwo::Newer);
        }
        // Most threads wait for a bio before they queue the same sectors again.
        let of_one_thread = !newest.is_request() && newest.tid == older_bio.tid;
        (all || of_one_thread).then_some(OneForTwo::Either)
    }

    /// Whether a completion is nearer to the device's usual time from the newer one's issue than from the older one's; `None`
    /// where the device's usual time is not known yet.
    fn looks_like_the_newer(&self, older: u32, newest: &Bio, time: u64) -> Option<bool> {
        let typical = self.typical_of(newest)?;
        let begun = |bio: &Bio| if bio.issued == NEVER { bio.queued } else { bio.issued };
        let since = begun(newest);
        if since == NEVER {
            return None;
        }
        let [older, newer] = [begun(self.bios.see(older)), since].map(|from| time.saturating_sub(from));
        Some(is_of_newer(older, newer, typical))
    }

    /// Whether a bio at these sectors has been in the device far longer than usual, or waits for an idle device, or all bios below it
    /// ended long ago.
    pub(super) fn is_one_overdue(&self, range: Range, tid: TaskId) -> bool {
        let mut group = Vec::new();
        self.bios.group(range.place, range.sector, &mut group);
        group.into_iter().any(|at| self.is_overdue_bio(at, Some(tid)))
    }

    /// Where the device's usual time is not known yet, a bio is overdue if its own thread continues: most threads wait for their bios.
    pub(super) fn is_overdue_bio(&self, at: u32, tid: Option<TaskId>) -> bool {
        let (bio, now) = (self.bios.see(at), self.counts.end_ns);
        let done_below = || {
            let last = self.stack.done_below(at, bio.queued);
            last.is_some_and(|last| last.saturating_add(SKEW_NS) < now)
        };
        let is_long_since = |since: u64| {
            let took = now.saturating_sub(since);
            match self.typical_of(bio) {
                Some(typical) => is_overdue(took, typical),
                None => tid == Some(bio.tid) && took > SKEW_NS,
            }
        };
        match bio.issued {
            NEVER => {
                Self::waits_for_issue(bio) && is_long_since(bio.queued) && self.is_passed_over(bio) || done_below()
            }
            issued => is_long_since(issued) || done_below(),
        }
    }

    /// Whether a bio has a request that was not issued. Discards are merged, and flushes issued, without an event of their own.
    pub(super) fn waits_for_issue(bio: &Bio) -> bool {
        let has_request = bio.got != NEVER || bio.merged != NEVER || bio.inserted != NEVER;
        bio.issued == NEVER && has_request && !bio.flush && bio.kind != RequestKind::Discard
    }

    /// Whether a bio waits for its issue while its device has nothing in flight: its issue was lost.
    #[cold]
    fn is_passed_over(&self, bio: &Bio) -> bool {
        self.issues[usize::from(bio.device)] && !self.bios.is_busy(bio.device)
    }

    /// Decides the completions that are undecided when the trace ends.
    pub(super) fn decide_all(&mut self) {
        let undecided: Vec<(Place, u64)> = self
            .bios
            .rest()
            .filter(|(_, bio)| bio.undecided != NEVER)
            .map(|(_, bio)| (bio.place, bio.sector))
            .collect();
        for (place, sector) in undecided {
            self.decide_completion(place, sector, Cause::End);
        }
    }

    /// A completion belongs to this bio.
    #[inline(always)]
    pub(super) fn take(&mut self, at: u32, time: u64, error: i32) {
        let bio = self.bios.get(at);
        if time < bio.begun() {
            self.lose(at, Some(Lost::TimeBackwards));
            return;
        }
        if error != 0 && bio.error == 0 {
            bio.error = error;
        }
        if bio.flush && self.flush_data_done(at, time) {
            return;
        }
        self.done(at, time);
    }

    /// The bio ends.
    #[inline(always)]
    pub(super) fn done(&mut self, at: u32, time: u64) {
        let bio = self.bios.get(at);
        if self.splits_not_shown && !bio.is_request() && bio.got == NEVER && bio.merged == NEVER {
            self.counts.parts_unknown = true;
        }
        if bio.split_of != NONE {
            self.part_done(at, time);
            return;
        }
        if bio.is_request() {
            self.counts.requests_completed += u64::from(bio.shown);
        } else {
            self.counts.completed += u64::from(bio.shown && !bio.below);
        }
        if self.stack.is_empty() {
            self.watch.ended(at, bio, time);
            self.bios.remove(at);
            return;
        }
        if bio.flush {
            let queued = bio.queued;
            self.flushes_below_end(at, queued);
        }
        let bio = self.bios.get(at);
        if self.stack.over(at, bio, time) {
            self.watch.was_above(at, bio);
        }
        let error = bio.error;
        self.watch.ended(at, bio, time);
        self.bios.remove(at);
        // An upper device with requests of its own (request-based multipath) completes those itself.
        if let Some((upper, queued)) = self.stack.take_moved(at)
            && self.bios.see(upper).live
            && self.bios.see(upper).queued == queued
            && self.bios.see(upper).issued == NEVER
            && !self.queues_again(upper)
        {
            self.take(upper, time, error);
        }
    }

    /// A part of a split bio ends.
    #[cold]
    fn part_done(&mut self, at: u32, time: u64) {
        let part = *self.bios.get(at);
        self.watch.part_ended(at, &part, time);
        self.bios.hide(at);
        let root = self.splits.root(part.split_of);
        if part.error != 0 {
            self.watch.failed_part(root, &part, u64::from(part.sectors));
        }
        if at != root {
            self.bios.release(at);
        }
        let Some((mut bio, completed, lost)) = self.splits.part_done(&part, at, time) else { return };
        self.counts.completed += u64::from(bio.shown && completed != NEVER && !bio.below);
        if self.stack.over(root, &mut bio, completed) {
            self.watch.was_above(root, &bio);
        }
        self.watch.ended(root, &bio, completed);
        self.bios.release(root);
        self.count_lost(&bio, lost);
    }

    /// Gives up a bio whose completion cannot come any more; it is counted by the step that was lost.
    pub(super) fn give_up(&mut self, at: u32) {
        let bio = *self.bios.get(at);
        let backwards = !bio.is_request() && self.take_stray(bio.place, bio.sector, bio.queued, bio.issued);
        let lost = match (backwards, bio.issued) {
            (true, _) => Lost::TimeBackwards,
            (_, NEVER) => Lost::Issue,
            _ => Lost::Completion,
        };
        self.lose(at, Some(lost));
    }

    /// Forgets a bio. It is counted by the reason, a split one with its last part.
    pub(super) fn lose(&mut self, at: u32, lost: Option<Lost>) {
        let bio = self.bios.get(at);
        if bio.flush {
            self.flush_forgotten(at);
        }
        let bio = self.bios.get(at);
        if bio.split_of != NONE {
            if let Some(lost) = lost {
                self.splits.lost(bio.split_of, lost);
            }
            self.part_done(at, NEVER);
            return;
        }
        if self.stack.over(at, bio, NEVER) {
            self.watch.was_above(at, bio);
        }
        let bio = *bio;
        self.watch.ended(at, &bio, NEVER);
        self.bios.remove(at);
        self.count_lost(&bio, lost);
    }

    fn count_lost(&mut self, bio: &Bio, lost: Option<Lost>) {
        let is_lost = matches!(lost, Some(Lost::Completion | Lost::Issue | Lost::TooMany));
        self.counts.ends_lost[usize::from(bio.below)] |= is_lost && bio.shown;
        // Only bios count, as programs submitted them; requests only where the trace has no bios.
        if bio.below || bio.is_request() && self.counts.all_queued > 0 {
            return;
        }
        let given_up = &mut self.counts.given_up;
        let count = match lost {
            None => return,
            Some(Lost::Completion) => &mut given_up.completion_lost,
            Some(Lost::Issue) => &mut given_up.issue_lost,
            Some(Lost::TimeBackwards) => &mut given_up.time_backwards,
            Some(Lost::TooMany) => &mut given_up.too_many,
            Some(Lost::Unfinished) => &mut self.counts.unfinished,
        };
        *count += u64::from(bio.shown);
    }
}
