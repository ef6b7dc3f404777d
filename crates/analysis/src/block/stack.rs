//! Stacked devices: device mapper, md, partitions. One I/O of a program is one bio where the program asked, and one or
//! more where the hardware did it; remap events connect them.
//!
//! A bio that is queued where a remap leads from a bio on its way is *below* that one. It is not counted again in what
//! programs did: only in the figures of its own device, and in the table of the stack. The upper bio is in the device while
//! those below it are: its D is their first issue, and D2C ends with their last completion.
//!
//! Some drivers (NVMe multipath, md before 5.14) hand the bio itself down, and it is not queued again. It is on its way in the
//! lower device from its remap on, and completed in both at once.
//!
//! A flush of a cache has no sectors by which a remap could name it. One that is queued in a lower device, by the same thread or by a
//! kernel thread that carries others' work, while a bio of an upper device waits for a flush, is below that bio.
//!
//! What an array's thread queues below it for none of its bios alone (parity) is below as well, and no program's I/O.
//!
//! A partition queues nothing of its own: its remap is a step on the way, and no level.

use super::in_flight::{Bio, NEVER};
use crate::bounded::{BoundedMap, Full};
use flashscope_trace::{Device, TaskId};
use foldhash::HashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::collections::hash_map::Entry;

/// Remaps that wait for their bio. Of more, the oldest is forgotten, which is counted: its bio then counts as one of its own.
const MAX_REMAPS: usize = 1 << 14;
/// Pairs of devices of which one lies on the other.
const MAX_EDGES: usize = 1024;
/// A mirror remaps to all its halves in one loop (raid1_write_request).
const MAX_AT_ONCE_NS: u64 = 1_000_000;
/// How long an array's thread may take to submit what a program's thread has remapped: later ones of that sector are others'.
const MAX_HANDOVER_NS: u64 = 1_000_000_000;
/// Remaps that are followed upwards: they may lead in a circle.
const MAX_LEVELS: usize = 16;

/// What one device adds above another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct StackLevel {
    pub upper: String,
    /// All that bios of it went to: `8:0, 8:16` of a mirror.
    pub lower: String,
    /// The trace has no remaps between them: their bios show it.
    #[serde(default)]
    pub inferred: bool,
    /// Of a loop device: the file that it lies on.
    #[serde(default)]
    pub file: Option<String>,
    /// Bios of the upper device that had any below them, their bytes, and those below them.
    pub upper_bios: u64,
    pub upper_bytes: u64,
    pub lower_bios: u64,
    pub lower_bytes: u64,
    /// Each lower device's part of these.
    #[serde(default)]
    pub legs: Vec<StackLeg>,
    /// Of a loop device: bios of the disk that did its work at another time, read ahead or written back from the page cache.
    #[serde(default)]
    pub cached_bios: u64,
    #[serde(default)]
    pub cached_bytes: u64,
    /// Means, nanoseconds: from the upper bio's queueing to that of the first below it; from the last completion below to
    /// its own; and both times of the upper bio's whole.
    pub mean_down_ns: u64,
    pub mean_up_ns: u64,
    pub mean_below_ns: u64,
    pub mean_q2c_ns: u64,
    /// Of bios that no other one of the level was before: the others may wait for the device below on the way down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alone: Option<StackAlone>,
}

/// What a level adds to a bio that waits for no other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct StackAlone {
    pub bios: u64,
    /// The way down and the way back.
    pub mean_own_ns: u64,
    pub mean_q2c_ns: u64,
}

/// What went to one lower device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct StackLeg {
    pub device: String,
    pub bios: u64,
    pub bytes: u64,
}

/// What a first reading has found of stacked devices, for a second one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StackHints {
    /// Devices and what they lie on, as remaps show.
    edges: Vec<(Device, Device)>,
    /// As their bios show (`levels.rs`): upper and lower device, and what is added to the upper one's sectors.
    pub(super) offsets: Vec<(Device, Device, i64)>,
}

/// A bio whose work another one does, or some of it.
#[derive(Clone, Copy)]
pub(super) struct Upper {
    /// Its name, and its time, because names are given again.
    pub at: u32,
    pub queued: u64,
    /// As many of its bytes.
    pub bytes: u64,
}

/// One, and seldom more.
struct Few<T> {
    first: T,
    rest: Vec<T>,
}

impl<T> Few<T> {
    fn one(first: T) -> Few<T> {
        Few { first, rest: Vec::new() }
    }

    fn all(&self) -> impl Iterator<Item = &T> {
        std::iter::once(&self.first).chain(&self.rest)
    }
}

/// An upper bio that has bios below it.
struct Above {
    queued: u64,
    /// By lower device: bios and bytes.
    legs: Few<(u16, u64, u64)>,
    /// Those of them that are on their way.
    open: u32,
    first_queued: u64,
    first_issue: u64,
    all_issued: bool,
    /// The last completion in the lowest device, and that of a bio just below.
    last: u64,
    last_below: u64,
    all_completed: bool,
    /// None was below when it came there, nor ended there since it was queued.
    alone: bool,
}

/// Upper bios that have something on a lower device, and when the last of them was over.
#[derive(Clone, Copy, Default)]
struct Company {
    open: u32,
    last_over: u64,
}

#[derive(Default)]
struct Sums {
    upper_bios: u64,
    upper_bytes: u64,
    legs: BTreeMap<u16, (u64, u64)>,
    cached_bios: u64,
    cached_bytes: u64,
    down: u128,
    up: u128,
    below: u128,
    q2c: u128,
    alone_bios: u64,
    alone_own: u128,
    alone_q2c: u128,
}

/// Where a remapped bio comes from, and when it was remapped.
#[derive(Clone, Copy)]
struct Remap {
    from: (Device, u64),
    /// Who did it.
    tid: TaskId,
    time: u64,
    /// So many at once, of a mirror with halves at the same sector of partitions of one disk.
    legs: u32,
}

pub(super) struct Stack {
    remaps: BoundedMap<(Device, u64), Remap>,
    /// Bios that were remapped without being queued again, by the name of that below: the upper one's name and time.
    moved: HashMap<u32, (u32, u64)>,
    /// By the upper bio's name.
    above: HashMap<u32, Above>,
    /// The upper bios of each that is below any.
    below: HashMap<u32, Few<Upper>>,
    /// By the number of the upper device, of which the matching gives out a bounded number.
    levels: BTreeMap<u16, Sums>,
    /// By lower device.
    company: HashMap<u16, Company>,
    /// Devices and what they lie on, as remaps show, or a first reading.
    edges: Vec<(Device, Device)>,
    pub(super) known: Option<StackHints>,
    /// Upper and lower devices of bios that were queued below others, and what was added to the sectors of the last one.
    placed: Vec<(Device, Device, i64)>,
}

impl Default for Stack {
    fn default() -> Stack {
        Stack {
            remaps: BoundedMap::new(MAX_REMAPS, Full::ForgetOldest),
            moved: HashMap::default(),
            above: HashMap::default(),
            below: HashMap::default(),
            levels: BTreeMap::new(),
            company: HashMap::default(),
            edges: Vec::new(),
            known: None,
            placed: Vec::new(),
        }
    }
}

impl Stack {
    /// A bio was queued where a remap leads.
    pub fn placed(&mut self, upper: Device, lower: Device, by: i64) {
        if let Some(one) = self.placed.iter_mut().find(|one| (one.0, one.1) == (upper, lower)) {
            one.2 = by;
        } else if self.placed.len() < MAX_EDGES {
            self.placed.push((upper, lower, by));
        }
    }

    /// Whether bios that are remapped from this device are queued again in a lower one, as those of device mapper and md are and a
    /// partition's are not.
    pub fn queues_again(&self, upper: Device) -> bool {
        self.placed.iter().any(|one| one.0 == upper)
    }

    /// Whether bios were remapped from this device.
    pub fn is_upper(&self, device: Device) -> bool {
        self.edges.iter().any(|edge| edge.0 == device)
    }

    /// Where a bio of this device may lie above it, without a remap: upper devices, and what was added to their sectors.
    /// `lost`: remaps may be missing.
    pub fn places_of(&self, lower: Device, lost: bool) -> Vec<(Device, i64)> {
        let known = self.known.iter().flat_map(|known| &known.offsets);
        let all = known.chain(self.placed.iter().filter(|_| lost));
        all.filter(|one| one.1 == lower).map(|one| (one.0, one.2)).collect()
    }

    /// What a first reading has found.
    pub fn learn(&mut self, hints: StackHints) {
        self.edges.clone_from(&hints.edges);
        hints.offsets.iter().for_each(|&(upper, lower, _)| self.edge(upper, lower));
        self.known = Some(hints);
    }

    pub fn edges(&self) -> &[(Device, Device)] {
        &self.edges
    }

    /// What a second reading has to know, if one is needed: of levels that no remap shows, or of flushes (`doubtful`: upper and lower
    /// device) that came before the first remap between their devices.
    pub fn again(&self, offsets: Vec<(Device, Device, i64)>, doubtful: &[(Device, Device)]) -> Option<StackHints> {
        let late = || doubtful.iter().any(|&(upper, lower)| self.uppers_of(lower).contains(&upper));
        (self.known.is_none() && (!offsets.is_empty() || late()))
            .then(|| StackHints { edges: self.edges.clone(), offsets })
    }

    fn edge(&mut self, upper: Device, lower: Device) {
        if self.edges.last() != Some(&(upper, lower))
            && upper != lower
            && self.edges.len() < MAX_EDGES
            && !self.edges.contains(&(upper, lower))
        {
            self.edges.push((upper, lower));
        }
    }

    /// The devices that lie on this one, directly or not: the nearest first.
    pub fn uppers_of(&self, device: Device) -> Vec<Device> {
        let mut found = vec![device];
        let mut at = 0;
        while at < found.len() {
            for &(upper, lower) in &self.edges {
                if lower == found[at] && !found.contains(&upper) {
                    found.push(upper);
                }
            }
            at += 1;
        }
        found.remove(0);
        found
    }

    /// When the upper bio of this one was queued.
    pub fn upper_of(&self, at: u32) -> Option<u64> {
        self.below.get(&at).map(|uppers| uppers.first.queued)
    }

    /// Whether a bio is below this upper one.
    pub fn is_below(&self, at: u32, upper: u32, queued: u64) -> bool {
        let uppers = self.below.get(&at).into_iter().flat_map(Few::all);
        uppers.into_iter().any(|one| (one.at, one.queued) == (upper, queued))
    }

    /// When the last of the bios below an upper one ended; 0: none has.
    pub fn ended_below(&self, at: u32, queued: u64) -> u64 {
        self.above.get(&at).filter(|above| above.queued == queued).map_or(0, |above| above.last_below)
    }

    /// Whether an upper bio has one below it on this device.
    pub fn is_above(&self, at: u32, queued: u64, device: u16) -> bool {
        let known = self.above.get(&at).filter(|above| above.queued == queued);
        known.is_some_and(|above| above.legs.all().any(|leg| leg.0 == device))
    }

    /// A bio moves to a lower device. `queues`: the upper device is one to which bios are queued.
    pub fn remapped(&mut self, to: (Device, u64), from: (Device, u64), (queues, tid): (bool, TaskId), time: u64) {
        self.edge(from.0, to.0);
        if !queues && (self.remaps.is_empty() || !self.leads_to(from, to.0, (tid, time))) {
            return;
        }
        let at_once = |known: &&Remap| {
            known.from == from && known.tid == tid && time.saturating_sub(known.time) <= MAX_AT_ONCE_NS && queues
        };
        let legs = self.remaps.get(&to).filter(at_once).map_or(1, |known| known.legs.saturating_add(1));
        self.remaps.insert(to, Remap { from, tid, time, legs });
    }

    /// Whether a remap leads to this place of a partition. Since Linux 4.14 a remap to a partition has the number of its disk and the
    /// partition's sector (`bio_dev` in include/linux/bio.h). The partition's own remap follows: at once, by the same thread, or when
    /// the array's thread submits it (raid1d in drivers/md/raid1.c).
    fn leads_to(&mut self, place: (Device, u64), disk: Device, (tid, time): (TaskId, u64)) -> bool {
        if self.remaps.contains_key(&place) {
            return true;
        }
        let named_by_disk = (disk, place.1);
        let near = |remap: &&mut Remap| remap.tid == tid || time.saturating_sub(remap.time) <= MAX_HANDOVER_NS;
        let Some(remap) = self.remaps.get_mut(&named_by_disk).filter(near) else { return false };
        let one = Remap { legs: 1, ..*remap };
        if remap.legs > 1 {
            remap.legs -= 1;
        } else {
            self.remaps.remove(&named_by_disk);
        }
        self.remaps.insert(place, one);
        true
    }

    /// Where a bio that is queued here comes from: the highest device and sector to which remaps lead.
    pub fn origin(&mut self, at: (Device, u64)) -> Option<(Device, u64)> {
        self.remap(at).map(|(from, _)| from)
    }

    /// The same, and when the first of these remaps was.
    pub fn remap(&mut self, at: (Device, u64)) -> Option<((Device, u64), u64)> {
        if self.remaps.is_empty() {
            return None;
        }
        let Remap { mut from, mut time, .. } = self.remaps.remove(&at)?;
        // A partition lies between.
        while let Some(higher) = self.remaps.remove(&from) {
            (from, time) = (higher.from, higher.time);
        }
        Some((from, time))
    }

    /// Where a bio that is here comes from, as [`Self::origin`] would say.
    pub fn highest(&self, at: (Device, u64)) -> Option<(Device, u64)> {
        let mut from = self.remaps.get(&at)?.from;
        for _ in 0..MAX_LEVELS {
            let Some(higher) = self.remaps.get(&from) else { break };
            from = higher.from;
        }
        Some(from)
    }

    /// Remaps are known whose bios were not queued again.
    pub fn has_remaps(&self) -> bool {
        !self.remaps.is_empty()
    }

    /// Remaps that were forgotten before their bio came.
    pub fn remaps_forgotten(&self) -> u64 {
        self.remaps.lost()
    }

    /// The bio `at` is the upper bio itself, as it was remapped.
    pub fn moved(&mut self, at: u32, upper: u32, queued: u64) {
        self.moved.insert(at, (upper, queued));
    }

    /// The upper bio that a bio is, where it is one: they are completed together.
    pub fn take_moved(&mut self, at: u32) -> Option<(u32, u64)> {
        if self.moved.is_empty() { None } else { self.moved.remove(&at) }
    }

    pub fn is_empty(&self) -> bool {
        self.below.is_empty() && self.above.is_empty()
    }

    /// A bio below others was queued. What it has more than their bytes counts with the first.
    pub fn add(&mut self, uppers: &[Upper], at: u32, bio: &Bio) {
        let all = u64::from(bio.whole_sectors) * 512;
        let more = all.saturating_sub(uppers.iter().skip(1).map(|upper| upper.bytes).sum());
        for (i, upper) in uppers.iter().enumerate() {
            let leg = if i == 0 { (bio.device, 1, more) } else { (bio.device, 0, upper.bytes) };
            match self.above.entry(upper.at) {
                Entry::Occupied(known) if known.get().queued == upper.queued => {
                    known.into_mut().add(leg);
                }
                entry => {
                    let company = self.company.entry(bio.device).or_default();
                    let alone = company.open == 0 && company.last_over <= upper.queued;
                    company.open += 1;
                    entry.insert_entry(Above { alone, ..Above::new(upper.queued, bio.queued, leg) });
                }
            }
        }
        if let [first, rest @ ..] = uppers {
            self.below.insert(at, Few { first: *first, rest: rest.to_vec() });
        }
    }

    /// When the last of the bios that do this one's work was completed; `None`: not all are, or it is above none.
    pub fn done_below(&self, at: u32, queued: u64) -> Option<u64> {
        let above = self.above.get(&at).filter(|above| above.queued == queued)?;
        (above.open == 0 && above.all_completed).then_some(above.last_below)
    }

    /// A bio was queued that does a loop device's work at another time than that device's bios are on their way.
    pub fn add_cached(&mut self, upper: u16, bio: &Bio) {
        let sums = self.levels.entry(upper).or_default();
        sums.cached_bios += 1;
        sums.cached_bytes += u64::from(bio.whole_sectors) * 512;
        sums.legs.entry(bio.device).or_default();
    }

    /// A bio was queued for a device above, and for none of that device's bios alone: parity of an array.
    pub fn add_other(&mut self, upper: u16, bio: &Bio) {
        let leg = self.levels.entry(upper).or_default().legs.entry(bio.device).or_default();
        *leg = (leg.0 + 1, leg.1 + u64::from(bio.whole_sectors) * 512);
    }

    /// A bio is over: what it was above gives it its time in the device, and it gives its own to those above it. Whether it was above any.
    pub fn over(&mut self, at: u32, bio: &mut Bio, completed: u64) -> bool {
        let above = self.above.remove(&at).filter(|above| above.queued == bio.queued);
        let was_above = above.is_some();
        if let Some(above) = above {
            // A loop device is issued requests of its own.
            let whole = above.open == 0 && above.all_completed;
            if bio.issued == NEVER {
                bio.issued = if above.all_issued && whole { above.first_issue } else { NEVER };
                bio.device_done = if whole { above.last } else { NEVER };
            }
            let company = self.company.entry(above.legs.first.0).or_default();
            company.open = company.open.saturating_sub(1);
            company.last_over = if completed == NEVER { company.last_over } else { company.last_over.max(completed) };
            self.count(bio, &above, completed);
        }
        let Some(uppers) = self.below.remove(&at) else { return was_above };
        for upper in uppers.all() {
            let Some(above) = self.above.get_mut(&upper.at).filter(|above| above.queued == upper.queued) else {
                continue;
            };
            above.open = above.open.saturating_sub(1);
            above.first_issue = above.first_issue.min(bio.issued);
            above.all_issued &= bio.issued != NEVER;
            above.all_completed &= completed != NEVER;
            let done = if bio.device_done == NEVER { completed } else { bio.device_done };
            above.last = above.last.max(if done == NEVER { 0 } else { done });
            above.last_below = above.last_below.max(if completed == NEVER { 0 } else { completed });
        }
        was_above
    }

    fn count(&mut self, bio: &Bio, above: &Above, completed: u64) {
        let unknown = completed == NEVER || above.first_queued == NEVER;
        if unknown || !bio.shown || !above.all_completed || above.open > 0 {
            return;
        }
        let sums = self.levels.entry(bio.device).or_default();
        sums.upper_bios += 1;
        sums.upper_bytes += u64::from(bio.whole_sectors) * 512;
        for (device, bios, bytes) in above.legs.all() {
            let leg = sums.legs.entry(*device).or_default();
            *leg = (leg.0 + bios, leg.1 + bytes);
        }
        let down = u128::from(above.first_queued.saturating_sub(bio.queued));
        let up = u128::from(completed.saturating_sub(above.last_below));
        sums.down += down;
        sums.up += up;
        if above.alone {
            sums.alone_bios += 1;
            sums.alone_own += down + up;
            sums.alone_q2c += u128::from(completed.saturating_sub(bio.queued));
        }
        sums.below += u128::from(above.last_below.saturating_sub(above.first_queued));
        sums.q2c += u128::from(completed.saturating_sub(bio.queued));
    }

    /// `file` names what a loop device lies on.
    pub fn finish(&self, devices: &[Device], file: impl Fn(Device) -> Option<String>) -> Vec<StackLevel> {
        let level = |(&upper, sums): (&u16, &Sums)| {
            let mean = |sum: u128| (sum / u128::from(sums.upper_bios.max(1))) as u64;
            let name = |device: u16| devices[usize::from(device)].to_string();
            let legs = sums.legs.iter().map(|(&device, &(bios, bytes))| StackLeg { device: name(device), bios, bytes });
            let legs: Vec<StackLeg> = legs.collect();
            let lower: Vec<&str> = legs.iter().map(|leg| leg.device.as_str()).collect();
            StackLevel {
                upper: name(upper),
                lower: lower.join(", "),
                inferred: self
                    .known
                    .as_ref()
                    .is_some_and(|known| known.offsets.iter().any(|one| one.0 == devices[usize::from(upper)])),
                file: file(devices[usize::from(upper)]),
                upper_bios: sums.upper_bios,
                upper_bytes: sums.upper_bytes,
                lower_bios: legs.iter().map(|leg| leg.bios).sum(),
                lower_bytes: legs.iter().map(|leg| leg.bytes).sum(),
                cached_bios: sums.cached_bios,
                cached_bytes: sums.cached_bytes,
                mean_down_ns: mean(sums.down),
                mean_up_ns: mean(sums.up),
                mean_below_ns: mean(sums.below),
                mean_q2c_ns: mean(sums.q2c),
                alone: (sums.alone_bios > 0).then(|| StackAlone {
                    bios: sums.alone_bios,
                    mean_own_ns: (sums.alone_own / u128::from(sums.alone_bios)) as u64,
                    mean_q2c_ns: (sums.alone_q2c / u128::from(sums.alone_bios)) as u64,
                }),
                legs,
            }
        };
        self.levels.iter().map(level).collect()
    }
}

impl Above {
    fn new(queued: u64, first_queued: u64, leg: (u16, u64, u64)) -> Above {
        Above {
            queued,
            legs: Few::one(leg),
            open: 1,
            first_queued,
            first_issue: NEVER,
            all_issued: true,
            last: 0,
            last_below: 0,
            all_completed: true,
            alone: false,
        }
    }

    fn add(&mut self, leg: (u16, u64, u64)) {
        self.open += 1;
        let legs = &mut self.legs;
        match std::iter::once(&mut legs.first).chain(&mut legs.rest).find(|known| known.0 == leg.0) {
            Some(known) => *known = (leg.0, known.1 + leg.1, known.2 + leg.2),
            None => legs.rest.push(leg),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_too_many_remaps_the_oldest_is_forgotten() {
        let (upper, lower) = (Device::new(253, 0), Device::new(8, 0));
        let (mut stack, last) = (Stack::default(), MAX_REMAPS as u64);
        (0..=last).for_each(|at| stack.remapped((lower, at), (upper, at + 7), (true, TaskId(1)), at));
        let origins = [0, 1, last].map(|at| stack.origin((lower, at)));
        assert_eq!(origins, [None, Some((upper, 8)), Some((upper, last + 7))]);
        assert_eq!(stack.remaps_forgotten(), 1);
    }
}
