//! Finds the lower device of each upper one where no remap shows it.
//!
//! Device mapper, md and bcache complete bios and are issued no requests. Where the trace has no remap (`block_bio_remap`) of such a
//! device, its bios show the lower device: almost each of them contains, between its queueing and its completion, a bio of a lower
//! device of the same kind and size, always at the same distance in sectors. The result is for a second reading of the trace
//! ([`super::stack::StackHints`]). Where such a device may lie on another one and its bios do not show how, totals of both are unknown
//! ([`Levels::finish`]): one I/O may be two bios in the trace. The same holds for bios without a remap on a device that has remaps for
//! others: a cache, a thin volume or a snapshot (drivers/md before Linux 5.18) sends some on from a thread of its own, and completes
//! others itself.
//!
//! Limits: devices that cut or combine bios (stripes), or that move them anywhere (caches, thin volumes), are not found.

use super::followed::BlockSetup;
use super::in_flight::{Bio, NEVER, NONE, Place};
use super::matching::Matching;
use super::stack::Upper as Above;
use super::watch::{Step, Watch};
use flashscope_trace::{BlockAction, BlockDetail, BlockEvent, Device, Event, EventKind, RequestKind, TaskId};
use std::collections::BTreeMap;

/// Most bios of an upper device that are followed at a time; below: most samples.
const MAX_LIVE: usize = 256;
const MAX_SAMPLES: usize = 4096;
/// Most bios of lower devices within one upper bio.
const MAX_LOWER: usize = 8;
/// Most parts of upper bios that the next bio of their thread may be below.
const MAX_LATELY: usize = 16;
/// Fewer samples prove nothing.
const MIN_SAMPLES: usize = 5;
/// Per cent of bios: from this many with a bio below, the device is a level; up to `FEW_PERCENT` it lies on nothing in the trace.
const ENOUGH_PERCENT: usize = 90;
const FEW_PERCENT: usize = 10;
/// A lower place with less than this per cent of the bios is chance.
const CHANCE_PERCENT: usize = 5;
/// Per cent of bios without a remap, on a device with remaps and in a complete trace: more with a bio below are no chance.
const CHANCE_REMAPPED_PERCENT: usize = 1;

/// Another device's bio within an upper one's time: its device, and the distance where it has the same size.
type Lower = (u16, Option<i64>);

/// A device, a device below it, and by how many sectors a place on the lower one is further from its begin.
type Below = (Device, Device, i64);

/// A bio in flight, of a device without requests.
struct Live {
    at: u32,
    queued: u64,
    kind: RequestKind,
    sector: u64,
    sectors: u32,
    lower: Vec<Lower>,
}

#[derive(Default)]
struct Upper {
    live: Vec<Live>,
    /// Samples: bios without a remap, each with the bios found within it.
    samples: Vec<Vec<Lower>>,
    /// Bios with a remap.
    remapped: usize,
}

/// Watches all bios of a device until its first request.
#[derive(Default)]
pub(super) struct Levels {
    /// By device: it was issued a request.
    issues: Vec<bool>,
    uppers: BTreeMap<u16, Upper>,
    live: usize,
}

impl Levels {
    #[cold]
    fn issued(&mut self, device: u16) {
        let device = usize::from(device);
        if self.issues.len() <= device {
            self.issues.resize(device + 1, false);
        }
        self.issues[device] = true;
        if let Some(upper) = self.uppers.remove(&(device as u16)) {
            self.live -= upper.live.len();
        }
    }

    #[inline(always)]
    fn has_issued(&self, device: u16) -> bool {
        self.issues.get(usize::from(device)).copied().unwrap_or(false)
    }

    #[cold]
    fn begins(&mut self, at: u32, bio: &Bio) {
        let upper = self.uppers.entry(bio.device).or_default();
        if upper.live.len() < MAX_LIVE && upper.samples.len() < MAX_SAMPLES {
            let Bio { queued, kind, sector, whole_sectors, .. } = *bio;
            upper.live.push(Live { at, queued, kind, sector, sectors: whole_sectors, lower: Vec::new() });
            self.live += 1;
        }
    }

    #[cold]
    fn ends(&mut self, at: u32, bio: &Bio, completed: u64) {
        let begin = bio.end().saturating_sub(u64::from(bio.whole_sectors));
        for (&device, upper) in &mut self.uppers {
            if device == bio.device {
                if let Some(own) = upper.live.iter().position(|one| one.at == at && one.queued == bio.queued) {
                    let own = upper.live.swap_remove(own);
                    self.live -= 1;
                    if completed != NEVER {
                        upper.samples.push(own.lower);
                    }
                }
                continue;
            }
            if bio.below || completed == NEVER {
                continue;
            }
            let within =
                |one: &&mut Live| one.kind == bio.kind && one.queued <= bio.queued && one.lower.len() < MAX_LOWER;
            for one in upper.live.iter_mut().filter(within) {
                let same = one.sectors == bio.whole_sectors;
                one.lower.push((bio.device, same.then(|| begin.wrapping_sub(one.sector) as i64)));
            }
        }
    }

    /// Returns the hints for a second reading beyond the remaps' `edges`, and devices with bios without remaps that may lie on others.
    /// `lossy`: events may be missing.
    pub fn finish(
        &self,
        devices: &[Device],
        edges: &[(Device, Device)],
        lossy: bool,
    ) -> (Vec<Below>, Vec<(Device, Device)>) {
        let name = |device: u16| devices[usize::from(device)];
        let is_bare = |device: u16| !edges.iter().any(|&(upper, _)| upper == name(device));
        let uppers = || self.uppers.iter().filter(|(_, upper)| !upper.samples.is_empty());
        let places: BTreeMap<u16, Vec<(u16, i64)>> =
            uppers().filter_map(|(&device, upper)| Some((device, upper.places()?))).collect();
        let (mut offsets, mut unclear) = (Vec::new(), Vec::new());
        for (&device, upper) in uppers() {
            if let Some(found) = places.get(&device) {
                // Only the nearest level: further ones lie below that.
                let further = |lower: u16| {
                    let nearer =
                        found.iter().filter(|(near, _)| *near != lower).filter_map(|(near, _)| places.get(near));
                    nearer.flatten().any(|(below, _)| *below == lower)
                };
                let near = found.iter().filter(|(lower, _)| !further(*lower));
                offsets.extend(near.map(|&(lower, sectors)| (name(device), name(lower), sectors)));
                continue;
            }
            let below = |lower: &&Lower| self.has_issued(lower.0) || places.contains_key(&lower.0);
            let with = upper.samples.iter().filter(|lower| lower.iter().any(|one| below(&one))).count();
            let all = upper.samples.len() + upper.remapped;
            let chance = if is_bare(device) || lossy { FEW_PERCENT } else { CHANCE_REMAPPED_PERCENT };
            if with * 100 > upper.samples.len() * FEW_PERCENT && with * 100 > all * chance {
                let mut lower: Vec<u16> = upper.samples.iter().flatten().filter(below).map(|one| one.0).collect();
                lower.sort_unstable();
                lower.dedup();
                unclear.extend(lower.into_iter().map(|lower| (name(device), name(lower))));
            }
        }
        (offsets, unclear)
    }
}

impl Upper {
    /// Lower devices and distances where almost all of its bios are found.
    fn places(&self) -> Option<Vec<(u16, i64)>> {
        let n = self.samples.len();
        let mut times: BTreeMap<(u16, i64), usize> = BTreeMap::new();
        for lower in &self.samples {
            let mut own: Vec<(u16, i64)> = lower.iter().filter_map(|&(device, by)| Some((device, by?))).collect();
            own.sort_unstable();
            own.dedup();
            for place in own {
                *times.entry(place).or_default() += 1;
            }
        }
        times.retain(|_, times| *times * 100 >= n * CHANCE_PERCENT && *times > 1);
        let there = |lower: &&Vec<Lower>| {
            lower.iter().any(|&(device, by)| by.is_some_and(|by| times.contains_key(&(device, by))))
        };
        let covered = self.samples.iter().filter(there).count();
        (n >= MIN_SAMPLES && covered * 100 >= n * ENOUGH_PERCENT).then(|| times.into_keys().collect())
    }
}

impl Watch for Levels {
    #[inline(always)]
    fn queued(&mut self, at: u32, bio: &Bio, _now: u64) {
        if !self.has_issued(bio.device) && bio.sectors > 0 && !bio.below {
            self.begins(at, bio);
        }
    }

    #[inline(always)]
    fn requested(&mut self, _at: u32, bio: &Bio, _now: u64) {
        if !self.has_issued(bio.device) {
            self.issued(bio.device);
        }
    }

    #[inline(always)]
    fn step(&mut self, _at: u32, bio: &Bio, step: Step, _now: u64) {
        if step == Step::Issued && !self.has_issued(bio.device) {
            self.issued(bio.device);
        }
    }

    #[cold]
    fn was_above(&mut self, at: u32, bio: &Bio) {
        let Some(upper) = self.uppers.get_mut(&bio.device) else { return };
        if let Some(own) = upper.live.iter().position(|one| one.at == at && one.queued == bio.queued) {
            upper.live.swap_remove(own);
            upper.remapped += 1;
            self.live -= 1;
        }
    }

    #[inline(always)]
    fn ended(&mut self, at: u32, bio: &Bio, completed: u64) {
        if self.live > 0 && !bio.is_request() && bio.whole_sectors > 0 {
            self.ends(at, bio, completed);
        }
    }
}

impl<W: Watch> Matching<W> {
    /// Whether the next bio is another leg of an upper bio whose queueing was lost: the first leg counts for it.
    pub(super) fn next_leg(&mut self, block: &BlockEvent) -> bool {
        let Some(from) = self.orphan else { return false };
        let leg = self.first_leg.is_some_and(|(first, device)| first == from && device != block.device);
        if leg {
            self.next_uppers.clear();
            (self.orphan, self.next_below) = (None, Some((None, self.show())));
        } else {
            self.first_leg = Some((from, block.device));
        }
        leg
    }

    /// The owner of the upper bio that the next queued bio belongs to, where no remap shows it. A first reading has found
    /// the places of the devices; or other remaps show them, and this one's was lost, or may have been without a count.
    pub(super) fn is_inferred_below(&mut self, block: &BlockEvent, tid: TaskId) -> Option<u32> {
        let places = self.stack.places_of(block.device, self.may_lose());
        if block.bytes == 0 || places.is_empty() && self.lately_above.is_empty() {
            return None;
        }
        let lower = self.devices.iter().position(|&known| known == block.device).map(|at| at as u16);
        let mut group = Vec::new();
        for (upper, by) in places {
            let Some(upper) = self.devices.iter().position(|&known| known == upper) else { continue };
            let sector = block.sector.wrapping_sub(by as u64);
            self.bios.group(Place::new(upper as u16, block.kind()), sector, &mut group);
            let free = |at: &u32| {
                let bio = self.bios.see(*at);
                let same = bio.whole_bytes() == block.bytes && bio.split_of == NONE;
                same && !lower.is_some_and(|lower| self.stack.is_above(*at, bio.queued, lower))
            };
            let Some(at) = group.iter().copied().find(free) else { continue };
            let bio = *self.bios.see(at);
            self.next_uppers.clear();
            self.next_uppers.push(Above { at, queued: bio.queued, bytes: block.bytes });
            self.next_below = Some((None, (bio.in_range, bio.shown)));
            return Some(bio.owner);
        }
        self.follows_its_upper(block, tid, lower)
    }

    pub(super) fn may_lose(&self) -> bool {
        !self.whole_trace || self.uncounted
    }

    /// Keeps a part of a bio, where remaps may be missing and its device is above others, until its thread queues another bio of its own.
    /// A driver queues all bios below a bio before `submit_bio_noacct` returns to the thread (block/blk-core.c).
    pub(super) fn may_be_above(&mut self, at: u32, device: Device) {
        if !self.may_lose() || !self.stack.is_upper(device) {
            return;
        }
        if self.lately_above.len() == MAX_LATELY {
            self.lately_above.pop_front();
        }
        self.lately_above.push_back((at, self.bios.see(at).queued));
    }

    /// This thread queued a bio that is below none: all bios below its last one have been queued.
    #[cold]
    pub(super) fn submission_ended(&mut self, tid: TaskId) {
        let Matching { bios, lately_above, .. } = self;
        lately_above.retain(|&(at, queued)| bios.see(at).tid != tid && bios.see(at).queued == queued);
    }

    /// The upper bio of the next bio, whose remap was lost, for striped devices, whose places differ: a part of the bio that this thread
    /// queued last on an upper device, of the same size and with no bio below it there yet.
    fn follows_its_upper(&mut self, block: &BlockEvent, tid: TaskId, lower: Option<u16>) -> Option<u32> {
        if self.is_remapped {
            return None;
        }
        let uppers = self.stack.uppers_of(block.device);
        let above = self.lately_above.iter().rev().find_map(|&(at, queued)| {
            let bio = self.bios.see(at);
            let is = bio.live && bio.queued == queued && bio.tid == tid && bio.kind == block.kind();
            let same = bio.bytes() == block.bytes;
            let device = self.devices[usize::from(bio.device)];
            if !is || !same || bio.split_of == NONE || device == block.device || !uppers.contains(&device) {
                return None;
            }
            let name = self.splits.root(bio.split_of);
            let free = !lower.is_some_and(|lower| self.stack.is_above(name, queued, lower));
            free.then_some((name, *bio))
        });
        let (at, bio) = above?;
        self.next_uppers.clear();
        self.next_uppers.push(Above { at, queued: bio.queued, bytes: block.bytes });
        self.next_below = Some((None, (bio.in_range, bio.shown)));
        Some(bio.owner)
    }
}

/// Finds the order of stacked devices where only the whole trace shows it, for a second reading.
pub struct StackSurvey(Matching<Levels>);

impl Default for StackSurvey {
    fn default() -> Self {
        StackSurvey(Matching::new(Levels::default()))
    }
}

impl StackSurvey {
    /// Takes events in order of time.
    pub fn event(&mut self, event: &Event) {
        let (EventKind::Block(block), matching) = (&event.kind, &mut self.0) else { return };
        if let (BlockAction::Remap, BlockDetail::Remap { device, sector }) = (block.action, block.detail) {
            matching.remapped((block.device, block.sector), (device, sector), event.tid, event.time.0);
        }
        if block.action == BlockAction::Queue {
            match (block.kind(), block.bytes) {
                (RequestKind::Flush, 0) => drop(matching.is_flush_below(block, event.tid, true)),
                _ => drop(matching.is_below(block)),
            }
        }
        matching.block(block, (0, event.tid), event.time.0, || 0);
    }

    /// What is known of the trace with what was found here.
    pub fn finish(self, setup: BlockSetup) -> BlockSetup {
        let lossy = self.0.may_lose() || setup.events_are_missing || setup.drops_are_uncounted;
        let (levels, devices, _, flushes, stack) = self.0.finish();
        let (offsets, unclear) = levels.finish(&devices, stack.edges(), lossy);
        let maybe_below = unclear.into_iter().map(|(_, lower)| lower).collect();
        BlockSetup { stacked: stack.again(offsets, &flushes.doubtful), maybe_below, ..setup }
    }
}
