//! Assigns the steps of a trace to bios.
//!
//! Unit: the bio, as it was queued. A request holds the bios whose sectors it covers; each step of a request is a step of
//! each of its bios. Bios are matched by device, kind and sectors: side by side, from the request's first sector to its
//! last. Sectors of a request that no known bio covers are skipped, so that a lost queueing does not affect the neighbours.
//!
//! Rules for several bios at one sector, and for lost events:
//!
//! - Two bios of the same sectors may be in flight at once (direct I/O, reads by two tasks). Where the trace's own counts
//!   show no loss, a step takes the oldest bio that has not had it: the block layer keeps their order.
//! - Else (the counts show losses or are missing, or a step came that belongs to no bio) an older bio that is still in flight
//!   when the same sectors are queued or issued again is *superseded*: the page cache never has two requests for one page,
//!   and a device is not given a request twice without a requeue. Steps take the newest bio then. A completion is
//!   undecided until the next event at that sector shows which bio it belongs to (`completing.rs`).
//! - A thread's requests are made by the thread that queued the bio (`blk_mq_submit_bio`): of several bios, G and M take
//!   one of the same thread.
//! - An issue without a bio is a request whose queueing is not in the trace: it waits only for its completion, so that no
//!   other bio takes it.
//! - A completion that comes up to [`SKEW_NS`] before its own queueing or issue was stamped by another CPU's clock.
//! - A split bio (`X`) is one bio, from its queueing to its last part's completion (`parts_in_flight.rs`). A split that is not
//!   in the trace shows in its requests (`split_events.rs`).
//! - A request that the driver gave back (`R`) is issued anew, perhaps with other sectors: `requeues.rs`.
//! - A thread's bios get their requests in the order of queueing. A bio that a later one has overtaken has lost its G or M,
//!   and the next G or M belongs to another.
//! - A completion of a part of a request completes the bios in that part, and shortens the bio that it ends in.
//! - Flushes, and bios that flush before or after their data: `flushes.rs`.
//! - A zone append is completed at the sector that the device chose: `appends.rs`.
//! - A discard may be merged into another's request without an event: `discards.rs`.
//!
//! A [`Watch`] receives the results: statistics, distributions, interference.

use super::clock::Clock;
use super::counts::MatchCounts;
use super::flush_machinery::Flushes;
use super::given_back::{FirstIssues, GivenBack};
use super::in_flight::{Bio, InFlight, NEVER, Place, Wanted};
use super::parts_in_flight::SplitBios;
use super::ranges::Discards;
use super::stack::{Stack, Upper};
use super::typical::TypicalTimes;
use super::watch::{Step, Watch};
use crate::bounded::{BoundedMap, Full};
use flashscope_trace::{BlockAction, BlockEvent, Device, RequestFlags, RequestKind, TaskId};
use foldhash::{HashMap, HashMapExt as _};
use std::collections::{BTreeMap, VecDeque};

/// Most bios in flight; beyond, the oldest is given up and counted.
pub const MAX_IN_FLIGHT: usize = 1 << 18;
/// Most devices; the events of further ones are counted.
const MAX_DEVICES: usize = 1024;
/// Most zones whose begin is kept.
const MAX_ZONES: usize = 1 << 16;
/// Most bios of one sector that wait where events are missing; beyond, the oldest is given up.
const MAX_SUPERSEDED: usize = 8;
/// Most threads, by device and kind, for which the last bio with a request is kept.
const MAX_SERVED: usize = 1 << 12;
/// Clocks of CPUs differ by microseconds in virtual machines; a completion that is earlier by more than this belongs to another bio.
pub(super) const SKEW_NS: u64 = 1_000_000;

/// Whether a bio is in the reported time, and whether it is shown.
pub(super) type Show = (bool, bool);

/// A completion without a bio, kept for a bio that is queued shortly after.
#[derive(Clone, Copy)]
pub(super) struct Stray {
    pub place: Place,
    pub sector: u64,
    pub time: u64,
    /// It was counted as an unmatched step.
    pub counted: bool,
}

/// The event that decides which bio an undecided completion belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// The same sectors are queued or issued again, by this thread.
    Again { tid: TaskId },
    /// Another completion came.
    Complete,
    /// The trace ends.
    End,
}

/// Matches steps and bios; reads block events in order of time.
pub(super) struct Matching<W> {
    pub watch: W,
    pub(super) devices: Vec<Device>,
    last: usize,
    pub(super) bios: InFlight,
    pub(super) counts: MatchCounts,
    /// So far no event showed that others are missing.
    pub(super) whole_trace: bool,
    /// The trace's own counts show missing events, or it has no counts.
    pub(super) missing: bool,
    /// Events may be missing without a count: the first sign counts as proof.
    pub(super) uncounted: bool,
    /// Whether the next event is in the reported time; below: whether a bio or request that it begins has a reported
    /// owner.
    pub(super) in_range: bool,
    pub(super) own: bool,
    /// By device: it was issued a request (device mapper and md never are).
    pub(super) issues: Vec<bool>,
    /// By device: it completed something.
    pub(super) completes: Vec<bool>,
    /// By device: number of driver commands without data in flight.
    pub(super) commands: BTreeMap<u16, u64>,
    pub(super) splits: SplitBios,
    /// The trace has no event of splits: none was recorded, or no bio was split.
    pub(super) splits_not_shown: bool,
    pub(super) flushes: Flushes,
    pub(super) discards: Discards,
    pub(super) given_back: GivenBack,
    pub(super) first_issues: FirstIssues,
    /// Completions without an issue; the issue may follow from a CPU whose clock is late.
    pub(super) early: VecDeque<(u32, u64)>,
    pub(super) strays: VecDeque<Stray>,
    /// Begins of zones with appends, by device. Appends to a zone without room here are counted.
    pub(super) zones: BoundedMap<(u16, u64), ()>,
    pub(super) typical: TypicalTimes,
    pub(super) stack: Stack,
    /// The trace has events of allocated requests (G).
    gets: bool,
    /// By device, kind and thread, where events are missing: queueing time of the last of its bios that had a request.
    served: HashMap<(Place, TaskId), u64>,
    /// The next bio that is queued is below these, and is shown if the first of them is; or it does a loop device's work at another
    /// time.
    pub(super) next_uppers: Vec<Upper>,
    pub(super) next_below: Option<(Option<u16>, Show)>,
    /// The next request belongs to a bio at this sector whose queueing was lost, and which is below this one.
    next_request: Option<(u64, Upper, Show)>,
    /// The last parts of bios of upper devices, by name and time: bios below them may come without a remap.
    pub(super) lately_above: VecDeque<(u32, u64)>,
    /// A remap shows the upper device of the next bio.
    pub(super) is_remapped: bool,
    /// Upper device and sector that the next bio was remapped from, where no bio of that device is above it.
    pub(super) orphan: Option<(u16, u64)>,
    /// The leg that counts for an upper bio whose queueing was lost: the upper place, and the leg's own device.
    pub(super) first_leg: Option<((u16, u64), Device)>,
    next_array: Option<u16>,
    pub(super) group: Vec<u32>,
    pub(super) gaps: Vec<(u64, u64)>,
    pub(super) clock: Clock,
}

/// How many bytes of whole sectors there are beyond these.
fn short(bytes: u64) -> u16 {
    (bytes.wrapping_neg() % 512) as u16
}

/// The sectors of a step.
#[derive(Clone, Copy)]
pub(super) struct Range {
    pub place: Place,
    pub sector: u64,
    pub end: u64,
}

impl Range {
    #[inline(always)]
    pub fn of(device: u16, block: &BlockEvent) -> Range {
        let kind = block.kind();
        // An operation on a zone has no bytes.
        let end = if block.bytes == 0 { block.sector.saturating_add(1) } else { block.end() };
        Range { place: Place::sized(device, kind, end - block.sector), sector: block.sector, end }
    }

    #[inline(always)]
    pub fn from(self, sector: u64) -> Wanted {
        Wanted { place: self.place, sector, most: self.end - sector }
    }
}

/// Whether a walk over a request's sectors found a bio for each, or ended early ([`InFlight::may_look`]).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Walk {
    Whole,
    Gaps,
    GivenUp,
}

impl<W: Watch> Matching<W> {
    pub fn new(watch: W) -> Self {
        let counts = MatchCounts { begin_ns: u64::MAX, ..MatchCounts::default() };
        Matching {
            watch,
            devices: Vec::new(),
            last: 0,
            bios: InFlight::new(MAX_IN_FLIGHT),
            counts,
            whole_trace: true,
            missing: false,
            uncounted: false,
            in_range: true,
            own: true,
            issues: Vec::new(),
            completes: Vec::new(),
            commands: BTreeMap::new(),
            splits: SplitBios::default(),
            splits_not_shown: false,
            flushes: Flushes::default(),
            discards: Discards::default(),
            given_back: GivenBack::default(),
            first_issues: FirstIssues::default(),
            early: VecDeque::new(),
            strays: VecDeque::new(),
            zones: BoundedMap::new(MAX_ZONES, Full::Refuse),
            typical: TypicalTimes::default(),
            stack: Stack::default(),
            gets: false,
            served: HashMap::new(),
            next_uppers: Vec::new(),
            next_below: None,
            next_request: None,
            lately_above: VecDeque::new(),
            is_remapped: false,
            orphan: None,
            first_leg: None,
            next_array: None,
            group: Vec::new(),
            gaps: Vec::new(),
            clock: Clock::default(),
        }
    }

    #[inline]
    pub(super) fn device(&mut self, device: Device) -> Option<u16> {
        if self.devices.get(self.last) == Some(&device) {
            return Some(self.last as u16);
        }
        self.other_device(device)
    }

    fn other_device(&mut self, device: Device) -> Option<u16> {
        self.last = match self.devices.iter().position(|&d| d == device) {
            Some(at) => at,
            None if self.devices.len() == MAX_DEVICES => return None,
            None => {
                self.devices.push(device);
                self.issues.push(false);
                self.completes.push(false);
                self.typical.add_device();
                self.devices.len() - 1
            }
        };
        Some(self.last as u16)
    }

    /// Passes the bios of a request to `step`, in order of their sectors; of several at one sector the one with the highest `fits`.
    /// Stretches without a bio go to `gaps`.
    #[inline(always)]
    pub(super) fn walk(
        &mut self,
        range: Range,
        fits: impl Fn(&Bio) -> u8,
        mut step: impl FnMut(&mut W, u32, &mut Bio),
    ) -> Walk {
        let mut sector = range.sector;
        let mut walk = Walk::Whole;
        while sector < range.end {
            if !self.bios.may_look() {
                self.whole_trace = false;
                return Walk::GivenUp;
            }
            if let Some((at, _)) = self.bios.find(range.from(sector), &fits) {
                if self.whole_trace || !self.bios.covers_newer(at, range.end) {
                    let bio = self.bios.get(at);
                    sector = bio.end().max(sector + 1);
                    step(&mut self.watch, at, bio);
                    continue;
                }
                // Bios of one request lie side by side: this one belongs to another, and has lost its end.
                self.bios.get(at).superseded = true;
            }
            if walk == Walk::Whole {
                self.gaps.clear();
                walk = Walk::Gaps;
            }
            // Where no bio was queued and no request was given back, there is none behind the gap.
            let next = match self.counts.all_queued {
                0 if self.given_back.is_empty() => None,
                _ => self.bios.next_start(range.place, sector + 1, range.end, &fits),
            };
            let next = next.unwrap_or(range.end);
            self.gaps.push((sector, next));
            sector = next;
        }
        walk
    }

    #[inline(always)]
    pub(super) fn add(&mut self, bio: Bio) -> u32 {
        self.make_room(bio.place, bio.sector);
        self.bios.add(bio)
    }

    /// The [`Show`] of a bio that the current event begins.
    pub(super) fn show(&self) -> Show {
        (self.in_range, self.in_range && self.own)
    }

    fn queue(&mut self, device: u16, block: &BlockEvent, (owner, tid): (u32, TaskId), now: u64) {
        if self.is_rest_of_split(block, tid) {
            return;
        }
        self.counts.all_queued += 1;
        let range = Range::of(device, block);
        let sectors = u32::try_from(block.bytes.div_ceil(512)).unwrap_or(u32::MAX);
        let kind = block.kind();
        if kind == RequestKind::ZoneAppend {
            self.append_to(device, block.sector);
        } else if self.bios.any_at(range.place, range.sector) {
            self.whole_trace &= !self.uncounted || !self.next_step_lost(range, tid);
            self.again(range, tid);
        }
        let mut bio = InFlight::bio(device, (block.flags, kind), block.sector, sectors, (owner, tid), now);
        bio.short = short(block.bytes);
        bio.flush = block.flags.0 & (RequestFlags::FLUSH.0 | RequestFlags::FUA.0) != 0;
        let below = self.next_below.take();
        (bio.in_range, bio.shown) = below.map_or(self.show(), |(_, show)| show);
        bio.below = below.is_some();
        *if bio.below { &mut self.counts.below } else { &mut self.counts.queued } += u64::from(bio.shown);
        if !bio.below && !self.lately_above.is_empty() {
            self.submission_ended(tid);
        }
        let at = self.add(bio);
        match below {
            Some((Some(upper), (_, shown))) if self.next_uppers.is_empty() && shown => {
                self.stack.add_cached(upper, &bio)
            }
            Some(_) => self.stack.add(&self.next_uppers, at, &bio),
            None => {}
        }
        if let Some(array) = self.next_array.take().filter(|_| bio.shown) {
            self.stack.add_other(array, &bio);
        }
        self.watch.queued(at, self.bios.get(at), now);
        if bio.flush {
            self.flush_queued(at, false);
        }
        if kind == RequestKind::Discard {
            self.discard_queued(at);
        }
    }

    /// The same sectors are queued or issued again while bios of them are in flight.
    #[cold]
    pub(super) fn again(&mut self, range: Range, tid: TaskId) {
        self.whole_trace &= !self.uncounted || !self.is_one_overdue(range, tid);
        self.decide_completion(range.place, range.sector, Cause::Again { tid });
        if self.whole_trace {
            return;
        }
        let mut group = std::mem::take(&mut self.group);
        self.bios.group(range.place, range.sector, &mut group);
        for &at in &group {
            self.bios.get(at).superseded = true;
        }
        if group.len() >= MAX_SUPERSEDED {
            self.give_up(group[0]);
        }
        self.group = group;
    }

    /// Whether this thread has queued these sectors before, and that bio has no later step. A thread that queues a bio allocates its
    /// request, or merges it, before it returns (blk_mq_submit_bio), so a step was lost. Devices without requests do neither; merges of
    /// discards have no event.
    #[cold]
    fn next_step_lost(&mut self, range: Range, tid: TaskId) -> bool {
        if !self.gets || !self.issues[usize::from(range.place.device())] {
            return false;
        }
        let mut group = std::mem::take(&mut self.group);
        self.bios.group(range.place, range.sector, &mut group);
        let is_stuck = |&at: &u32| {
            let bio = self.bios.see(at);
            let steps = [bio.got, bio.merged, bio.inserted, bio.issued];
            let has_steps = bio.kind != RequestKind::Discard && !bio.flush && !bio.is_request();
            bio.tid == tid && steps == [NEVER; 4] && has_steps
        };
        let lost = group.iter().any(is_stuck);
        self.group = group;
        lost
    }

    /// A bio, or a part of one, is remapped to a lower device.
    pub fn remapped(&mut self, to: (Device, u64), from: (Device, u64), tid: TaskId, now: u64) {
        let queues = self.devices.contains(&from.0);
        self.stack.remapped(to, from, (queues, tid), now);
    }

    /// The upper bio, or part of one, at a sector of an upper device.
    fn upper_at(&mut self, device: u16, block: &BlockEvent, sector: u64) -> Option<u32> {
        let place = Range::of(device, block).place;
        self.bios.newest_at(place, sector).or_else(|| self.bios.newest_around(place, sector))
    }

    /// Bios that are remapped to these sectors and were not queued there: they are the upper bios themselves.
    #[cold]
    fn moved(&mut self, device: u16, block: &BlockEvent, now: u64) {
        let mut sector = block.sector;
        while sector < block.end() {
            let place = (block.device, sector);
            let Some((from, _)) = self.stack.highest(place) else { return };
            let is_lost = self.stack.queues_again(from);
            if is_lost && block.action != BlockAction::Issue {
                return;
            }
            let Some(((from, from_sector), time)) = self.stack.remap(place) else { return };
            let upper = self.devices.iter().position(|&known| known == from);
            let Some(at) = upper.and_then(|upper| self.upper_at(upper as u16, block, from_sector)) else {
                return;
            };
            let upper = *self.bios.see(at);
            if is_lost {
                // Its queueing was lost: only the request is known.
                let of = Upper { at: self.splits.name(at, &upper), queued: upper.queued, bytes: block.bytes };
                self.next_request = Some((sector, of, (upper.in_range, upper.shown)));
                return;
            }
            let (flags, by) = ((upper.flags, upper.kind), (upper.owner, upper.tid));
            let mut bio = InFlight::bio(device, flags, sector, upper.sectors, by, time);
            (bio.in_range, bio.shown, bio.below) = (upper.in_range, upper.shown, true);
            self.counts.below += u64::from(bio.shown);
            let lower = self.add(bio);
            let name = self.splits.name(at, &upper);
            let bytes = upper.bytes();
            self.stack.add(&[Upper { at: name, queued: upper.queued, bytes }], lower, &bio);
            self.stack.moved(lower, at, upper.queued);
            if bio.shown || self.in_range {
                self.watch.queued(lower, self.bios.get(lower), now);
            }
            sector = bio.end().max(sector + 1);
        }
    }

    /// Whether bios that are remapped from this bio's device are queued again below it.
    pub(super) fn queues_again(&self, upper: u32) -> bool {
        self.stack.queues_again(self.devices[usize::from(self.bios.see(upper).device)])
    }

    /// The owner of the upper bio that the next queued bio belongs to; `None` where there is none.
    pub fn is_below(&mut self, block: &BlockEvent) -> Option<u32> {
        (self.orphan, self.is_remapped) = (None, false);
        let (device, sector) = self.stack.origin((block.device, block.sector))?;
        self.is_remapped = true;
        let device = self.devices.iter().position(|&known| known == device)? as u16;
        let Some(at) = self.upper_at(device, block, sector) else {
            self.orphan = Some((device, sector));
            return None;
        };
        self.stack.placed(self.devices[usize::from(device)], block.device, block.sector.wrapping_sub(sector) as i64);
        let bio = self.bios.see(at);
        // A part is named by its bio.
        let name = self.splits.name(at, bio);
        let (upper, show) = (Upper { at: name, queued: bio.queued, bytes: block.bytes }, (bio.in_range, bio.shown));
        let owner = bio.owner;
        self.next_uppers.clear();
        self.next_uppers.push(upper);
        self.next_below = Some((None, show));
        Some(owner)
    }

    pub(super) fn orphaned(&self) -> bool {
        self.orphan.is_some()
    }

    /// Whether the bio that is queued next, by a thread that carries others' work, was remapped from a device and belongs to none of that
    /// device's bios alone.
    pub(super) fn next_of_array(&mut self) -> bool {
        let Some((device, _)) = self.orphan.take() else { return false };
        self.next_uppers.clear();
        (self.next_array, self.next_below) = (Some(device), Some((None, self.show())));
        true
    }

    /// Sets the upper bios of the bio that is queued next; without any it works for this loop device, at another time.
    pub(super) fn next_below(&mut self, uppers: Vec<Upper>, device: Option<u16>, show: Show) {
        (self.next_uppers, self.next_below) = (uppers, Some((device, show)));
    }

    /// A request whose bios' queueing is not in the trace.
    fn request(&mut self, device: u16, block: &BlockEvent, (begin, end): (u64, u64), by: (u32, TaskId), now: u64) {
        let kind = block.kind();
        let range = Range { sector: begin, end, ..Range::of(device, block) };
        if kind == RequestKind::ZoneAppend {
            self.append_to(device, begin);
        } else if self.bios.any_at(range.place, begin) {
            self.again(range, by.1);
        }
        let sectors = if block.bytes == 0 { 0 } else { u32::try_from(end - begin).unwrap_or(u32::MAX) };
        let mut bio = InFlight::bio(device, (block.flags, kind), begin, sectors, by, NEVER);
        bio.short = short(block.bytes);
        bio.issued = now;
        (bio.in_range, bio.shown) = self.show();
        let upper = self.next_request.take();
        if let Some((.., show)) = upper {
            ((bio.in_range, bio.shown), bio.below) = (show, true);
        }
        let at = self.add(bio);
        if let Some((_, upper, _)) = upper {
            self.stack.add(&[upper], at, &bio);
        }
        self.counts.all_requests += 1;
        self.counts.requests += u64::from(bio.shown);
        self.watch.requested(at, self.bios.get(at), now);
    }

    /// Takes one block event. A bio that it queues belongs to `owner`, and was queued by the thread `tid`; `issuer` is the
    /// owner of a request whose queueing is not in the trace.
    #[inline]
    pub fn block(&mut self, block: &BlockEvent, (owner, tid): (u32, TaskId), now: u64, issuer: impl FnOnce() -> u32) {
        self.bios.next_event();
        let now = match self.clock.time(now) {
            Some(now) => now,
            None => self.begins_again(now),
        };
        if !self.in_range {
            let unmatched = self.counts.unmatched;
            self.follow(block, (owner, tid), now, issuer);
            self.counts.unmatched = unmatched;
            return;
        }
        let counts = &mut self.counts;
        counts.events += 1;
        if now < counts.begin_ns {
            counts.begin_ns = now;
        }
        if now > counts.end_ns {
            counts.end_ns = now;
        }
        self.follow(block, (owner, tid), now, issuer);
        self.counts.steps_given_up += u64::from(self.bios.gave_up());
    }

    #[inline(always)]
    fn follow(&mut self, block: &BlockEvent, (owner, tid): (u32, TaskId), now: u64, issuer: impl FnOnce() -> u32) {
        let completes = block.action == BlockAction::Complete;
        self.counts.completions |= completes;
        // A partition has no bios of its own.
        if block.action == BlockAction::Remap {
            return;
        }
        let Some(device) = self.device(block.device) else {
            self.counts.of_further_devices += u64::from(self.in_range);
            return;
        };
        if completes {
            self.completes[usize::from(device)] = true;
        }
        if block.bytes == 0 || block.flags.has(RequestFlags::PASSTHROUGH) {
            self.without_bytes(device, block, (owner, tid), now, issuer);
            return;
        }
        self.watch.event(device, block, now, self.in_range && self.own);
        self.with_sectors(device, block, (owner, tid), now, issuer);
    }

    #[inline(always)]
    fn with_sectors(
        &mut self,
        device: u16,
        block: &BlockEvent,
        (owner, tid): (u32, TaskId),
        now: u64,
        issuer: impl FnOnce() -> u32,
    ) {
        if self.stack.has_remaps() && block.action.is_of_a_request() {
            self.moved(device, block, now);
        }
        match block.action {
            BlockAction::Queue => self.queue(device, block, (owner, tid), now),
            BlockAction::GetRq => self.got(Range::of(device, block), tid, now),
            BlockAction::Insert => self.inserted(Range::of(device, block), tid, now),
            BlockAction::BackMerge | BlockAction::FrontMerge => self.merged(Range::of(device, block), tid, now),
            BlockAction::Issue => self.issued(device, block, tid, now, issuer),
            BlockAction::Requeue => self.requeued(Range::of(device, block), now),
            BlockAction::Complete => {
                let mut range = Range::of(device, block);
                if block.kind() == RequestKind::ZoneAppend {
                    range = self.in_zone(device, range);
                }
                self.complete(range, block.error, now);
            }
            BlockAction::Split => self.split(device, block),
            _ => {}
        }
    }

    #[inline(always)]
    fn got(&mut self, range: Range, tid: TaskId, now: u64) {
        self.gets = true;
        let (served, mut last) = (std::mem::take(&mut self.served), 0);
        let walk = self.walk(
            range,
            |bio| {
                let fits = bio.got == NEVER && bio.merged == NEVER && bio.issued == NEVER;
                u8::from(fits && !Self::is_overtaken(&served, bio))
                    * (1 + 2 * u8::from(bio.tid == tid) + u8::from(!bio.superseded))
            },
            |watch, at, bio| {
                watch.step(at, bio, Step::Got, now);
                bio.got = now;
                if bio.tid == tid {
                    last = bio.queued;
                }
            },
        );
        self.served = served;
        self.serves(range, tid, last);
        if walk == Walk::Gaps && self.append_written(range) {
            self.got(range, tid, now);
        } else if walk == Walk::Gaps {
            let parts = self.parts_in_gaps(range);
            if parts.is_empty() {
                self.counts.unmatched.got += 1;
                self.whole_trace = false;
                self.allocated_again(range, tid);
            }
            parts.into_iter().for_each(|part| self.got(part, tid, now));
        }
    }

    /// Whether a later bio of its thread already has its request.
    #[inline]
    fn is_overtaken(served: &HashMap<(Place, TaskId), u64>, bio: &Bio) -> bool {
        !served.is_empty() && served.get(&(bio.place, bio.tid)).is_some_and(|&last| bio.queued < last)
    }

    /// A bio of this thread, queued at `queued`, has its request.
    #[inline]
    fn serves(&mut self, range: Range, tid: TaskId, queued: u64) {
        if self.whole_trace || queued == 0 {
            return;
        }
        if self.served.len() >= MAX_SERVED {
            self.served.clear();
        }
        let last = self.served.entry((range.place, tid)).or_default();
        *last = queued.max(*last);
    }

    /// A request was allocated for sectors that are in the device, or that had one: the next issue of them may belong to another.
    #[cold]
    fn allocated_again(&mut self, range: Range, tid: TaskId) {
        let gaps = std::mem::take(&mut self.gaps);
        let mut group = std::mem::take(&mut self.group);
        for &(sector, _) in &gaps {
            // A completion that came without its issue does not belong to the next issue.
            self.decide_completion(range.place, sector, Cause::Again { tid });
            self.bios.group(range.place, sector, &mut group);
            for &at in &group {
                let bio = self.bios.get(at);
                bio.superseded |= bio.issued != NEVER;
                // The next issue may belong to either of the two: neither is known to be in the device then.
                if Self::waits_for_issue(bio) && bio.undecided == NEVER && u64::from(bio.sectors) <= range.end - sector
                {
                    self.give_up(at);
                }
            }
        }
        (self.group, self.gaps) = (group, gaps);
    }

    #[inline(always)]
    fn inserted(&mut self, range: Range, tid: TaskId, now: u64) {
        let gets = self.gets;
        let walk = self.walk(
            range,
            |bio| {
                let new = 8 * u8::from(bio.inserted == NEVER);
                let requested = 4 * u8::from(bio.got != NEVER || bio.merged != NEVER);
                u8::from(bio.issued == NEVER)
                    * (1 + new + requested + 2 * u8::from(bio.tid == tid) + u8::from(!bio.superseded))
            },
            |watch, at, bio| {
                // A merged bio waits from its merge on, as in btt; without either step its merge may have been lost.
                if bio.inserted == NEVER && bio.merged == NEVER && (bio.got != NEVER || !gets) {
                    watch.step(at, bio, Step::Inserted, now);
                    bio.inserted = now;
                }
            },
        );
        if walk == Walk::Gaps {
            let parts = self.parts_in_gaps(range);
            if parts.is_empty() && !self.discards.any(range.place) {
                self.counts.unmatched.inserted += 1;
                self.whole_trace = false;
            }
            parts.into_iter().for_each(|part| self.inserted(part, tid, now));
        }
    }

    #[inline(always)]
    fn merged(&mut self, range: Range, tid: TaskId, now: u64) {
        // Where a request is merged into another, its bios have had this step already.
        let mut merged = 0;
        let (served, mut last) = (std::mem::take(&mut self.served), 0);
        let walk = self.walk(
            range,
            |bio| {
                let fresh = bio.got == NEVER && bio.merged == NEVER;
                let new = 4 * u8::from(fresh);
                let overtaken = fresh && Self::is_overtaken(&served, bio);
                u8::from(bio.issued == NEVER && !overtaken)
                    * (1 + new + 2 * u8::from(bio.tid == tid) + u8::from(!bio.superseded))
            },
            |watch, at, bio| {
                if bio.got == NEVER && bio.merged == NEVER {
                    watch.step(at, bio, Step::Merged, now);
                    bio.merged = now;
                    merged += 1;
                    if bio.tid == tid {
                        last = bio.queued;
                    }
                }
            },
        );
        self.served = served;
        self.serves(range, tid, last);
        self.bios.were_merged(merged);
        if walk == Walk::Gaps {
            let parts = self.parts_in_gaps(range);
            if parts.is_empty() {
                self.counts.unmatched.merged += 1;
                self.whole_trace = false;
            }
            parts.into_iter().for_each(|part| self.merged(part, tid, now));
        }
    }

    #[inline(always)]
    fn issued(&mut self, device: u16, block: &BlockEvent, tid: TaskId, now: u64, issuer: impl FnOnce() -> u32) {
        self.issues[usize::from(device)] = true;
        let below = self.next_request.take();
        if !self.early.is_empty() {
            self.take_late(now);
        }
        let range = Range::of(device, block);
        let (mut walk, any) = self.issue_bios(range, block.flags.has(RequestFlags::FUA), now);
        if !self.given_back.is_empty() && self.reshaped(range, walk, (tid, now)) {
            walk = Walk::Whole;
        }
        if walk == Walk::Gaps && !any && self.append_written(range) {
            self.issued(device, block, tid, now, issuer);
        } else if walk == Walk::Gaps && !(any && self.discards_merged(range, now)) {
            // Without splits in the trace, a part of a waiting bio is preferred to a request that is issued again.
            if self.splits_not_shown && self.parts_issued(range, now)
                || !any && self.issued_again(range, now)
                || self.parts_issued(range, now)
            {
                return;
            }
            // A driver's own commands are never queued.
            if block.kind() != RequestKind::Other {
                self.counts.unmatched.issued += 1;
                self.whole_trace = false;
            }
            let gaps = std::mem::take(&mut self.gaps);
            let by = (issuer(), tid);
            for &gap in &gaps {
                self.next_request = below.filter(|(sector, ..)| (gap.0..gap.1).contains(sector));
                self.request(device, block, gap, by, now);
            }
            self.gaps = gaps;
        }
    }

    /// Whether parts of bios whose split is not in the trace are issued.
    #[cold]
    fn parts_issued(&mut self, range: Range, now: u64) -> bool {
        let parts = self.parts_in_gaps(range);
        for part in &parts {
            self.issue_bios(*part, false, now);
        }
        !parts.is_empty()
    }

    /// Issues the bios of a request; returns whether there is any.
    #[inline(always)]
    fn issue_bios(&mut self, range: Range, keeps_fua: bool, now: u64) -> (Walk, bool) {
        let fits = |bio: &Bio| {
            let requested = bio.got != NEVER || bio.merged != NEVER;
            // If a completion was noted at it before, its issue may have been lost: another bio of the sector is preferred.
            let was_done = bio.undecided.saturating_add(SKEW_NS) < now;
            let rank = match was_done {
                true => 1,
                false => 2 + 4 * u8::from(!bio.superseded) + u8::from(requested) + u8::from(bio.inserted != NEVER),
            };
            u8::from(bio.issued == NEVER) * rank
        };
        let (mut early, mut any, mut flush) = (false, false, false);
        let walk = self.walk(range, fits, |watch, at, bio| {
            watch.step(at, bio, Step::Issued, now);
            bio.issued = now;
            any = true;
            early |= bio.undecided != NEVER;
            flush |= bio.flush;
        });
        if early {
            self.completed_before_issue(range);
        }
        if flush {
            self.flush_data_issued(range, keeps_fua, now);
        }
        (walk, any)
    }

    /// Flushes, operations on zones, and commands without sectors.
    #[cold]
    fn without_bytes(
        &mut self,
        device: u16,
        block: &BlockEvent,
        (owner, tid): (u32, TaskId),
        now: u64,
        issuer: impl FnOnce() -> u32,
    ) {
        let kind = block.kind();
        if block.flags.has(RequestFlags::PASSTHROUGH) {
            self.counts.without_data += u64::from(block.action == BlockAction::Issue && self.in_range && self.own);
        } else if kind.manages_zones() {
            self.watch.event(device, block, now, self.in_range && self.own);
            self.with_sectors(device, block, (owner, tid), now, issuer);
        } else if kind == RequestKind::Flush {
            self.watch.event(device, block, now, self.in_range && self.own);
            match block.action {
                BlockAction::Queue => self.flush_queue(device, block, (owner, tid), now),
                BlockAction::GetRq => self.flush_got(device, tid, now),
                BlockAction::Issue => {
                    self.issues[usize::from(device)] = true;
                    if !self.flush_issue(device, block, now) {
                        let at = (0, 1);
                        // It belongs to the bios that wait for it, whichever thread issues it.
                        self.own |= self.flushes_for_shown(device);
                        self.request(device, &BlockEvent { sector: 0, ..*block }, at, (issuer(), tid), now);
                        self.flush_request_issued(device, now);
                    }
                }
                BlockAction::Complete => self.flush_complete(device, block, now),
                _ => {}
            }
        } else if block.action == BlockAction::Complete {
            if !self.command_complete(device, block, now) {
                self.flush_ended(device, block, now);
            }
        } else if block.action == BlockAction::Issue && kind == RequestKind::Other {
            self.counts.without_data += u64::from(self.in_range && self.own);
            *self.commands.entry(device).or_default() += 1;
        } else {
            self.counts.without_data += u64::from(block.action == BlockAction::Queue && self.in_range && self.own);
        }
    }

    /// Passes on the bios still in flight; returns the results.
    pub fn finish(mut self) -> (W, Vec<Device>, MatchCounts, Flushes, Stack) {
        self.recording_ends();
        if self.counts.events == 0 {
            self.counts.begin_ns = 0;
        }
        self.counts.issues = self.issues.contains(&true);
        self.counts.remaps_forgotten = self.stack.remaps_forgotten();
        self.counts.appends_of_further_zones = self.zones.lost();
        (self.watch, self.devices, self.counts, self.flushes, self.stack)
    }
}
