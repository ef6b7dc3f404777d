//! Bios in flight, found by device, direction and first sector. Several may begin at one sector.
//!
//! The cost of an event is bounded. A bucket has a limited number of bios; a search over sectors uses an ordered index where there
//! are many bios; steps of requests may look at [`LOOKS_OF_AN_EVENT`] bios for each event so far, and find none beyond that.
//! Looks at bios of crowded buckets come out of a reserve ([`RESERVE`]), so that a trace of a single sector takes no longer than others.

use flashscope_trace::{RequestFlags, RequestKind, TaskId};
use std::cell::Cell;
use std::collections::BTreeMap;

/// No time: the step was not seen.
pub(super) const NEVER: u64 = u64::MAX;
/// No bio.
pub(super) const NONE: u32 = u32::MAX;
/// Most bios of one bucket, and so of one sector; beyond, the oldest is given up. A thousand threads may flush a device at once.
pub(super) const MOST_IN_BUCKET: usize = 1024;
/// This many bios of a bucket may always be looked at. Further looks come out of the reserve; once it is used up, the bucket keeps only
/// these.
pub(super) const FEW_IN_BUCKET: usize = 64;
/// Looks at the begin of a trace, about a second of work: a hundred thousand events of sectors with 256 bios each. Each event adds some.
const RESERVE: u64 = 1 << 27;
const RESERVE_OF_AN_EVENT: u64 = 256;
/// Bios that steps of requests may look at: this many for each event, and unused looks are saved. A bio has some five steps after its
/// queueing; only events that repeat the same long request need more.
const LOOKS_OF_AN_EVENT: usize = 128;
pub(super) const MOST_LOOKS: usize = 1 << 14;
/// Up to this many bios are searched one by one for a range of sectors.
const FEW: usize = 128;
/// Up to this many sectors are searched one by one.
const SHORT: u64 = 64;

/// Device and kind in one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place(u32);

impl Place {
    /// Empty flushes have no sectors: they have a place of their own, where no range leads to them.
    const OF_EMPTY_FLUSHES: u32 = RequestKind::COUNT as u32;
    /// Lowest bit of the size of a zone append, of which the low bits suffice.
    const SIZE: u32 = 21;

    #[inline(always)]
    pub fn new(device: u16, kind: RequestKind) -> Place {
        Place(u32::from(device) | (kind as u32) << 16)
    }

    /// The place of a bio of this size. Zone appends of one zone all name its begin: their size distinguishes them.
    #[inline(always)]
    pub fn sized(device: u16, kind: RequestKind, sectors: u64) -> Place {
        let place = Place::new(device, kind);
        if kind == RequestKind::ZoneAppend { Place(place.0 | (sectors as u32) << Self::SIZE) } else { place }
    }

    #[inline(always)]
    pub fn kind(self) -> usize {
        (self.0 >> 16) as usize & ((1 << (Self::SIZE - 16)) - 1)
    }

    #[inline]
    pub fn device(self) -> u16 {
        self.0 as u16
    }

    pub fn of_empty_flushes(device: u16) -> Place {
        Place(u32::from(device) | Self::OF_EMPTY_FLUSHES << 16)
    }
}

/// A bio, or a part of one that was split, between its queueing and its completion; or a request whose bios' queueing is
/// not in the trace (`queued` is `NEVER`).
#[derive(Clone, Copy, Debug)]
pub(super) struct Bio {
    pub sector: u64,
    pub sectors: u32,
    /// As it was queued; `sectors` shrinks with splits and parts of completions.
    pub whole_sectors: u32,
    /// How many bytes its last sector lacks: a driver's own command transfers any number.
    pub short: u16,
    /// The analysis's number of the device.
    pub device: u16,
    pub flags: RequestFlags,
    pub(super) kind: RequestKind,
    pub(super) place: Place,
    /// Number of its owner.
    pub owner: u32,
    /// The thread that queued it.
    pub tid: TaskId,
    pub queued: u64,
    pub got: u64,
    pub inserted: u64,
    pub merged: u64,
    pub issued: u64,
    /// A completion of this bio or of another at this sector: later events decide.
    pub undecided: u64,
    /// The last completion below it, in a stack; else its own.
    pub device_done: u64,
    /// It works for another bio, of an upper device.
    pub below: bool,
    /// Error of its completion; 0: none.
    pub error: i32,
    /// The split bio that it is a part of.
    pub split_of: u32,
    /// It flushes the device's cache before or after its data, or does nothing else.
    pub flush: bool,
    /// Its data is written; the flush after it is not done.
    pub data_done: bool,
    /// The same sectors were queued again after it.
    pub superseded: bool,
    /// It was queued in the reported time.
    pub in_range: bool,
    /// In addition, its owner is reported.
    pub shown: bool,
    /// The next one of the bucket; of a free entry, the next free one.
    pub(super) next: u32,
    /// In flight; else the entry is free.
    pub(super) live: bool,
}

impl Bio {
    #[inline]
    pub fn kind(&self) -> RequestKind {
        self.kind
    }

    /// A request whose bios' queueing is not in the trace.
    #[inline]
    pub fn is_request(&self) -> bool {
        self.queued == NEVER
    }

    /// Its issue, or its queueing: no completion of it is earlier.
    #[inline(always)]
    pub fn begun(&self) -> u64 {
        let (queued, issued) = (self.queued.wrapping_add(1), self.issued.wrapping_add(1));
        queued.max(issued).saturating_sub(1)
    }

    pub fn end(&self) -> u64 {
        self.sector.saturating_add(u64::from(self.sectors))
    }

    #[inline]
    pub fn bytes(&self) -> u64 {
        (u64::from(self.sectors) * 512).saturating_sub(u64::from(self.short))
    }

    /// As it was queued.
    #[inline]
    pub fn whole_bytes(&self) -> u64 {
        (u64::from(self.whole_sectors) * 512).saturating_sub(u64::from(self.short))
    }
}

/// The place to search for a bio.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub place: Place,
    pub sector: u64,
    /// Most sectors that the bio may have.
    pub most: u64,
}

impl Wanted {
    #[inline(always)]
    fn is(&self, bio: &Bio) -> bool {
        bio.sector == self.sector && bio.place == self.place && u64::from(bio.sectors) <= self.most
    }
}

/// All bios in flight, in bounded memory; beyond the bound the oldest is given up.
#[derive(Debug)]
pub(super) struct InFlight {
    bios: Vec<Bio>,
    free: u32,
    live: usize,
    /// How many of them were merged into a request.
    merged: usize,
    /// First bio of each bucket; a power of two of them.
    buckets: Vec<u32>,
    shift: u32,
    max: usize,
    /// Position of a clock hand, to find the oldest.
    clock: u32,
    /// Number of bios by place and first sector; built when a range is searched with more than [`FEW`] bios.
    starts: Option<BTreeMap<(Place, u64), u32>>,
    /// Bios that events may still look at.
    looks: usize,
    /// This event needed more looks.
    gave_up: Cell<bool>,
    /// Looks at bios of crowded buckets that are left.
    reserve: Cell<u64>,
}

/// The bios of a bucket, oldest first, until the reserve is used up.
struct InBucket<'b> {
    of: &'b InFlight,
    at: u32,
    seen: usize,
}

impl<'b> Iterator for InBucket<'b> {
    type Item = (u32, &'b Bio);

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let (at, bio) = (self.at, self.of.bios.get(self.at as usize)?);
        if self.seen >= FEW_IN_BUCKET && !self.of.spend(1) {
            return None;
        }
        self.seen += 1;
        self.at = bio.next;
        Some((at, bio))
    }
}

impl InFlight {
    pub fn new(max: usize) -> InFlight {
        let bits = 10;
        InFlight {
            bios: Vec::new(),
            free: NONE,
            live: 0,
            merged: 0,
            buckets: vec![NONE; 1 << bits],
            shift: 64 - bits,
            max,
            clock: 0,
            starts: None,
            looks: MOST_LOOKS,
            gave_up: Cell::new(false),
            reserve: Cell::new(RESERVE),
        }
    }

    /// The next event begins.
    #[inline(always)]
    pub fn next_event(&mut self) {
        self.looks = (self.looks + LOOKS_OF_AN_EVENT).min(MOST_LOOKS);
        self.gave_up.set(false);
        self.reserve.set((self.reserve.get() + RESERVE_OF_AN_EVENT).min(RESERVE));
    }

    /// Takes looks from the reserve; without enough, the event finds no more.
    #[inline(always)]
    fn spend(&self, looks: u64) -> bool {
        match self.reserve.get().checked_sub(looks) {
            Some(left) => self.reserve.set(left),
            None => self.gave_up.set(true),
        }
        !self.gave_up.get()
    }

    #[inline(always)]
    fn in_bucket(&self, place: Place, sector: u64) -> InBucket<'_> {
        InBucket { of: self, at: self.buckets[self.bucket(place, sector)], seen: 0 }
    }

    /// The bios that begin here, oldest first.
    #[inline(always)]
    fn here(&self, place: Place, sector: u64) -> impl Iterator<Item = (u32, &Bio)> {
        self.in_bucket(place, sector).filter(move |(_, bio)| bio.sector == sector && bio.place == place)
    }

    /// Whether one more bio may be looked at.
    #[inline(always)]
    pub fn may_look(&mut self) -> bool {
        match self.looks.checked_sub(1) {
            Some(looks) => self.looks = looks,
            None => self.gave_up.set(true),
        }
        !self.gave_up.get()
    }

    /// Whether this event needed more looks than it had.
    #[inline(always)]
    pub fn gave_up(&self) -> bool {
        self.gave_up.get()
    }

    pub fn len(&self) -> usize {
        self.live
    }

    #[inline(always)]
    fn bucket(&self, place: Place, sector: u64) -> usize {
        // Fibonacci hashing (Knuth, The Art of Computer Programming 3, 6.4).
        let key = sector ^ u64::from(place.0) << 46;
        (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    /// One of the oldest, which has to go, where all places or this bucket's are taken.
    #[inline]
    pub fn too_many(&mut self, place: Place, sector: u64) -> Option<u32> {
        if self.live == self.max {
            return self.oldest();
        }
        let first = self.buckets[self.bucket(place, sector)];
        match self.bios.get(first as usize) {
            Some(bio) if bio.next != NONE => self.crowded(first),
            _ => None,
        }
    }

    /// The first bio of a full bucket.
    #[inline(never)]
    fn crowded(&self, first: u32) -> Option<u32> {
        let most = if self.reserve.get() < MOST_IN_BUCKET as u64 { FEW_IN_BUCKET } else { MOST_IN_BUCKET };
        let there = InBucket { of: self, at: first, seen: 0 }.take(most).count();
        (there == most).then_some(first)
    }

    /// Adds a bio. Returns its name, valid until it is removed.
    #[inline(always)]
    pub fn add(&mut self, bio: Bio) -> u32 {
        if self.live * 2 == self.buckets.len() {
            self.grow();
        }
        let index = self.free;
        let index = match self.bios.get_mut(index as usize) {
            Some(old) => {
                self.free = old.next;
                *old = bio;
                index
            }
            None => {
                self.bios.push(bio);
                (self.bios.len() - 1) as u32
            }
        };
        self.live += 1;
        self.merged += usize::from(bio.merged != NEVER);
        self.link(index, bio.place, bio.sector);
        index
    }

    /// Appends it to its bucket: the oldest is found first.
    #[inline]
    fn link(&mut self, index: u32, place: Place, sector: u64) {
        if let Some(starts) = &mut self.starts {
            *starts.entry((place, sector)).or_default() += 1;
        }
        let bucket = self.bucket(place, sector);
        let mut at = self.buckets[bucket];
        if at == NONE {
            self.buckets[bucket] = index;
            return;
        }
        loop {
            let bio = &mut self.bios[at as usize];
            if bio.next == NONE {
                bio.next = index;
                return;
            }
            at = bio.next;
        }
    }

    /// One of the oldest: the clock hand passes over the entries in order of creation.
    #[cold]
    fn oldest(&mut self) -> Option<u32> {
        for _ in 0..self.bios.len() {
            let index = self.clock;
            self.clock = (self.clock + 1) % self.bios.len() as u32;
            if self.bios[index as usize].live {
                return Some(index);
            }
        }
        None
    }

    #[cold]
    fn grow(&mut self) {
        self.shift -= 1;
        let mut buckets = vec![NONE; self.buckets.len() * 2];
        let mut ends = vec![NONE; buckets.len()];
        for old in std::mem::take(&mut self.buckets) {
            let mut at = old;
            while at != NONE {
                let bio = self.bios[at as usize];
                let bucket = self.bucket(bio.place, bio.sector);
                self.bios[at as usize].next = NONE;
                match ends[bucket] {
                    NONE => buckets[bucket] = at,
                    end => self.bios[end as usize].next = at,
                }
                ends[bucket] = at;
                at = bio.next;
            }
        }
        self.buckets = buckets;
    }

    /// The bio at this sector, with at most `wanted.most` sectors, that `fits` ranks highest; of equals the longest, then the
    /// oldest. `fits` returns 0 for a bio that must not be taken.
    #[inline(always)]
    pub fn find(&mut self, wanted: Wanted, fits: impl Fn(&Bio) -> u8) -> Option<(u32, &mut Bio)> {
        let first = self.buckets[self.bucket(wanted.place, wanted.sector)];
        let bio = self.bios.get(first as usize)?;
        // Almost always it is alone in its bucket.
        if bio.next == NONE {
            let found = wanted.is(bio) && fits(bio) > 0;
            return if found { Some((first, &mut self.bios[first as usize])) } else { None };
        }
        let at = self.best(first, wanted.place, wanted.sector, wanted.most, fits)?;
        Some((at, &mut self.bios[at as usize]))
    }

    /// The best bio of a bucket.
    #[inline(never)]
    fn best(&self, first: u32, place: Place, sector: u64, most: u64, fits: impl Fn(&Bio) -> u8) -> Option<u32> {
        let wanted = Wanted { place, sector, most };
        let (mut best, mut rank) = (None, (0, 0));
        for (at, bio) in (InBucket { of: self, at: first, seen: 0 }) {
            if wanted.is(bio) {
                let found = (fits(bio), bio.sectors);
                if found.0 > 0 && found > rank {
                    (best, rank) = (Some(at), found);
                }
            }
        }
        best
    }

    #[inline(always)]
    pub fn see(&self, index: u32) -> &Bio {
        &self.bios[index as usize]
    }

    #[inline(always)]
    pub fn get(&mut self, index: u32) -> &mut Bio {
        &mut self.bios[index as usize]
    }

    #[inline(always)]
    pub fn remove(&mut self, index: u32) {
        self.hide(index);
        self.release(index);
    }

    /// No event finds it any more; its name stays in use.
    #[inline(always)]
    pub fn hide(&mut self, index: u32) {
        self.unlink(index);
        let bio = &mut self.bios[index as usize];
        bio.live = false;
        self.live -= 1;
        self.merged -= usize::from(bio.merged != NEVER);
    }

    /// The name of a hidden bio becomes free.
    #[inline(always)]
    pub fn release(&mut self, index: u32) {
        self.bios[index as usize].next = self.free;
        self.free = index;
    }

    /// Counts further bios that were merged into requests.
    pub fn were_merged(&mut self, bios: usize) {
        self.merged += bios;
    }

    /// Removes the first sectors of a bio. There has to be room at its new begin ([`InFlight::too_many`]).
    pub fn shorten(&mut self, index: u32, sectors: u32) {
        self.unlink(index);
        let bio = &mut self.bios[index as usize];
        bio.sector += u64::from(sectors);
        bio.sectors -= sectors;
        bio.next = NONE;
        let (place, sector) = (bio.place, bio.sector);
        self.link(index, place, sector);
    }

    /// Moves it to another place and sector. There has to be room ([`InFlight::too_many`]).
    pub fn rename(&mut self, index: u32, place: Place, sector: u64) {
        self.unlink(index);
        let bio = &mut self.bios[index as usize];
        (bio.place, bio.sector, bio.next) = (place, sector, NONE);
        self.link(index, place, sector);
    }

    #[inline(always)]
    fn unlink(&mut self, index: u32) {
        let bio = &self.bios[index as usize];
        let next = bio.next;
        if let Some(starts) = &mut self.starts
            && let std::collections::btree_map::Entry::Occupied(mut there) = starts.entry((bio.place, bio.sector))
        {
            *there.get_mut() -= 1;
            if *there.get() == 0 {
                there.remove();
            }
        }
        let bucket = self.bucket(bio.place, bio.sector);
        let mut at = self.buckets[bucket];
        if at == index {
            self.buckets[bucket] = next;
            return;
        }
        loop {
            let bio = &mut self.bios[at as usize];
            if bio.next == index {
                bio.next = next;
                return;
            }
            at = bio.next;
        }
    }

    /// Whether any bio begins here.
    #[inline(always)]
    pub fn any_at(&self, place: Place, sector: u64) -> bool {
        self.here(place, sector).next().is_some()
    }

    /// Whether another bio begins where this one does.
    #[inline(always)]
    pub fn is_contested(&self, index: u32) -> bool {
        let bio = &self.bios[index as usize];
        let first = self.buckets[self.bucket(bio.place, bio.sector)];
        // Almost always it is alone in its bucket.
        (first != index || bio.next != NONE) && self.others(first, index)
    }

    #[inline(never)]
    fn others(&self, first: u32, index: u32) -> bool {
        let (place, sector) = (self.bios[index as usize].place, self.bios[index as usize].sector);
        let mut there = InBucket { of: self, at: first, seen: 0 };
        there.any(|(at, bio)| at != index && bio.sector == sector && bio.place == place)
    }

    /// The newest bio that begins here.
    pub fn newest_at(&self, place: Place, sector: u64) -> Option<u32> {
        self.here(place, sector).last().map(|(at, _)| at)
    }

    /// All bios that begin here, oldest first.
    pub fn group(&self, place: Place, sector: u64, into: &mut Vec<u32>) {
        into.clear();
        into.extend(self.here(place, sector).map(|(at, _)| at));
    }

    /// The first sector from `from` on and before `end` at which a bio begins that `fits` accepts and that ends by `end`.
    #[cold]
    pub fn next_start(&mut self, place: Place, from: u64, end: u64, fits: impl Fn(&Bio) -> u8) -> Option<u64> {
        if self.live == 0 || from >= end {
            return None;
        }
        if self.bios.len() as u64 <= (end - from).min(FEW as u64) {
            let within = |bio: &Bio| (from..end).contains(&bio.sector) && u64::from(bio.sectors) <= end - bio.sector;
            let there = |bio: &&Bio| bio.live && bio.place == place && within(bio) && fits(bio) > 0;
            return self.bios.iter().filter(there).map(|bio| bio.sector).min();
        }
        if end - from <= SHORT {
            return (from..end)
                .find(|&sector| self.find(Wanted { place, sector, most: end - sector }, &fits).is_some());
        }
        self.index();
        let mut at = from;
        loop {
            let (&(_, sector), &bios) = self.starts.as_ref()?.range((place, at)..(place, end)).next()?;
            self.looks = self.looks.saturating_sub(bios as usize);
            if self.looks == 0 {
                return None;
            }
            if self.find(Wanted { place, sector, most: end - sector }, &fits).is_some() {
                return Some(sector);
            }
            at = sector + 1;
        }
    }

    /// The newest bio that contains this sector.
    pub fn newest_around(&mut self, place: Place, sector: u64) -> Option<u32> {
        let around = |bio: &Bio| bio.place == place && bio.sector <= sector && sector < bio.end().max(bio.sector + 1);
        if self.bios.len() <= FEW {
            return self.rest().filter(|(_, bio)| around(bio)).max_by_key(|(_, bio)| bio.queued).map(|(at, _)| at);
        }
        self.index();
        let (mut found, mut group) = (None, Vec::new());
        let starts = self.starts.as_ref()?;
        for (&(_, begin), &bios) in starts.range((place, 0)..=(place, sector)).rev() {
            self.looks = self.looks.saturating_sub(bios as usize);
            if self.looks == 0 {
                break;
            }
            self.group(place, begin, &mut group);
            let here = group.iter().copied().filter(|&at| around(self.see(at)));
            found = here.map(|at| (self.see(at).queued, at)).chain(found).max_by_key(|&(queued, _)| queued);
        }
        found.map(|(_, at)| at)
    }

    /// Builds the index of first sectors, if it does not exist.
    fn index(&mut self) {
        if self.starts.is_none() {
            let mut starts = BTreeMap::new();
            for bio in self.bios.iter().filter(|bio| bio.live) {
                *starts.entry((bio.place, bio.sector)).or_default() += 1;
            }
            self.starts = Some(starts);
        }
    }

    /// Whether a bio that was queued later, and merged into a request that began before it, begins within this one and ends
    /// by `end`.
    #[inline]
    pub fn covers_newer(&mut self, index: u32, end: u64) -> bool {
        self.merged > 0 && self.covers_merged(index, end)
    }

    #[cold]
    fn covers_merged(&mut self, index: u32, end: u64) -> bool {
        let bio = &self.bios[index as usize];
        if bio.sectors <= 1 {
            return false;
        }
        let (place, queued, behind) = (bio.place, bio.queued, bio.end());
        let from = bio.sector + 1;
        if self.bios.len() as u64 <= end.saturating_sub(from).min(FEW as u64) {
            let within = |other: &Bio| {
                (from..end.min(behind)).contains(&other.sector) && u64::from(other.sectors) <= end - other.sector
            };
            // Most were not merged.
            let newer = |other: &Bio| other.merged != NEVER && other.live && other.queued > queued;
            return self.bios.iter().any(|other| newer(other) && other.place == place && within(other));
        }
        let newer = |other: &Bio| u8::from(other.merged != NEVER && other.queued > queued);
        self.next_start(place, from, end, newer).is_some_and(|sector| sector < behind)
    }

    /// Whether a device has a bio in it. Looks come out of the reserve; without enough, the answer is yes.
    pub fn is_busy(&self, device: u16) -> bool {
        let busy = |bio: &Bio| bio.live && bio.device == device && bio.issued != NEVER && !bio.data_done;
        let found = self.bios.iter().take(self.reserve.get() as usize).position(busy);
        !self.spend(found.unwrap_or(self.bios.len()) as u64) || found.is_some()
    }

    /// Bios still in flight, until the reserve is used up; then the event has given up.
    pub fn rest_in_reserve(&self) -> impl Iterator<Item = (u32, &Bio)> {
        let looked_at = |at: usize| at < FEW_IN_BUCKET || self.spend(1);
        let live = self.bios.iter().enumerate().take_while(move |&(at, _)| looked_at(at)).filter(|(_, bio)| bio.live);
        live.map(|(at, bio)| (at as u32, bio))
    }

    /// Bios still in flight.
    pub fn rest(&self) -> impl Iterator<Item = (u32, &Bio)> {
        self.bios.iter().enumerate().filter(|(_, bio)| bio.live).map(|(at, bio)| (at as u32, bio))
    }

    #[inline(always)]
    pub fn bio(
        device: u16,
        (flags, kind): (RequestFlags, RequestKind),
        sector: u64,
        sectors: u32,
        (owner, tid): (u32, TaskId),
        queued: u64,
    ) -> Bio {
        Bio {
            sector,
            sectors,
            whole_sectors: sectors,
            short: 0,
            device,
            flags,
            kind,
            place: Place::sized(device, kind, u64::from(sectors)),
            owner,
            tid,
            queued,
            got: NEVER,
            inserted: NEVER,
            merged: NEVER,
            issued: NEVER,
            undecided: NEVER,
            device_done: NEVER,
            below: false,
            error: 0,
            split_of: NONE,
            flush: false,
            data_done: false,
            superseded: false,
            in_range: true,
            shown: true,
            next: NONE,
            live: true,
        }
    }

    /// A bio of a test.
    #[cfg(test)]
    pub fn plain(device: u16, flags: RequestFlags, sector: u64, sectors: u32, owner: u32, queued: u64) -> Bio {
        Self::bio(device, (flags, flags.kind()), sector, sectors, (owner, TaskId(owner)), queued)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many reads of one sector that never end, each followed by a search for one that is not there: looks at bios in all, and bios
    /// that are kept.
    fn reads_of_one_sector(count: usize, reserve: u64) -> (usize, usize) {
        let mut bios = InFlight::new(1 << 18);
        bios.reserve.set(reserve);
        let bio = InFlight::plain(0, RequestFlags::from_letters(b"R"), 8, 8, 1, 1);
        let looks = Cell::new(0);
        let none = |_: &Bio| {
            looks.set(looks.get() + 1);
            0
        };
        for _ in 0..count {
            bios.next_event();
            while let Some(at) = bios.too_many(bio.place, 8) {
                bios.remove(at);
            }
            bios.add(bio);
            assert!(bios.find(Wanted { place: bio.place, sector: 8, most: 8 }, none).is_none());
        }
        (looks.get(), bios.len())
    }

    #[test]
    fn events_of_one_sector_look_at_so_many_bios_and_no_more() {
        let all = |count: usize| count * (count + 1) / 2;
        // As long as there is a reserve, each event looks at all.
        assert_eq!(reads_of_one_sector(1000, RESERVE), (all(1000), 1000));
        // Without one, they look at no more than an event brings, and fewer are kept.
        let (looks, kept) = reads_of_one_sector(50_000, 100_000);
        let bound = 100_000 + 50_000 * (RESERVE_OF_AN_EVENT as usize + FEW_IN_BUCKET);
        assert!(looks < bound && kept < MOST_IN_BUCKET / 2, "{looks} of {bound}, {kept}");
    }

    #[test]
    fn bios_of_a_loop_device_are_searched_as_far_as_the_reserve_goes() {
        let mut bios = InFlight::new(1 << 18);
        let bio = InFlight::plain(0, RequestFlags::from_letters(b"R"), 8, 8, 1, 1);
        for n in 0..2000 {
            bios.add(Bio { sector: n * 8, ..bio });
        }
        assert_eq!((bios.rest_in_reserve().count(), bios.gave_up()), (2000, false));
        bios.reserve.set(1000);
        assert_eq!((bios.rest_in_reserve().count(), bios.gave_up()), (FEW_IN_BUCKET + 1000, true));
    }

    #[test]
    fn whether_a_device_is_busy_is_looked_for_as_far_as_the_reserve_goes() {
        let mut bios = InFlight::new(1 << 18);
        let bio = InFlight::plain(0, RequestFlags::from_letters(b"R"), 8, 8, 1, 1);
        for n in 0..2000 {
            bios.add(Bio { sector: n * 8, ..bio });
        }
        assert!(!bios.is_busy(0) && !bios.gave_up());
        bios.reserve.set(1000);
        // What is not known is taken for busy: no bio is given up for it.
        assert!(bios.is_busy(0) && bios.gave_up());
        bios.next_event();
        bios.reserve.set(3000);
        bios.add(Bio { sector: 1 << 20, issued: 5, ..bio });
        assert!(bios.is_busy(0));
        assert_eq!((bios.gave_up(), bios.reserve.get()), (false, 1000));
    }
}
