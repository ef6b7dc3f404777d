//! Stacked devices: device mapper, md, partitions. One I/O of a program is one bio on the upper device, and one or
//! more on the hardware below; remap events connect them.
//!
//! A bio that is queued where a remap leads from a bio in flight is *below* that one. It is not counted again in the I/O of
//! programs: only in the figures of its own device, and in the table of the stack. The upper bio is in the device while
//! those below it are: its D is their first issue, and D2C ends with their last completion.
//!
//! Some drivers (NVMe multipath, md before 5.14) pass the bio itself on, and it is not queued again. It is in flight on the
//! lower device from its remap on, and completed on both at once.
//!
//! A flush of a cache has no sectors by which a remap could name it. A flush is below a bio of an upper device if it is queued on a lower
//! device while that bio waits for a flush, by the same thread or by a kernel thread that carries others' work.
//!
//! Bios that an array's thread queues below it for no single bio (parity) are below as well, and no program's I/O.
//!
//! A partition queues nothing of its own: its remap is an intermediate step, and no level.

use super::in_flight::{Bio, NEVER};
use crate::bounded::{BoundedMap, Full};
use flashscope_trace::{Device, TaskId};
use foldhash::HashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::collections::hash_map::Entry;

/// Most remaps that wait for their bio; beyond, the oldest is forgotten and counted: its bio then counts as an I/O of its own.
const MAX_REMAPS: usize = 1 << 14;
/// Most pairs of upper and lower device.
const MAX_EDGES: usize = 1024;
/// A mirror remaps to all its halves in one loop (raid1_write_request).
const MAX_AT_ONCE_NS: u64 = 1_000_000;
/// Most time for an array's thread to submit what a program's thread has remapped: later bios of that sector are others'.
const MAX_HANDOVER_NS: u64 = 1_000_000_000;
/// Most remaps that are followed upwards: they may form a circle.
const MAX_LEVELS: usize = 16;

/// The cost of one device that lies on others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct StackLevel {
    pub upper: String,
    /// All lower devices of its bios: `8:0, 8:16` of a mirror.
    pub lower: String,
    /// The trace has no remaps between them: the level is inferred from their bios.
    #[serde(default)]
    pub inferred: bool,
    /// Of a loop device: its backing file.
    #[serde(default)]
    pub file: Option<String>,
    /// Bios of the upper device with bios below, and their bytes; then the bios below, and theirs.
    pub upper_bios: u64,
    pub upper_bytes: u64,
    pub lower_bios: u64,
    pub lower_bytes: u64,
    /// Each lower device's part of these.
    #[serde(default)]
    pub legs: Vec<StackLeg>,
    /// Of a loop device: bios of the disk that worked for it at another time: read ahead, or written back from the page cache.
    #[serde(default)]
    pub cached_bios: u64,
    #[serde(default)]
    pub cached_bytes: u64,
    /// Means, nanoseconds: from the upper bio's queueing to that of the first below it; from the last completion below to
    /// its own; the time below; and the upper bio's Q2C. `None`: no bio has all of these times.
    pub mean_down_ns: Option<u64>,
    pub mean_up_ns: Option<u64>,
    pub mean_below_ns: Option<u64>,
    pub mean_q2c_ns: Option<u64>,
    /// The same for bios that met no other of the level: others may have waited for the lower device before it got them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alone: Option<StackAlone>,
}

/// Time that a level adds to a bio that waits for no other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct StackAlone {
    pub bios: u64,
    /// Time on the way down and on the way back.
    pub mean_own_ns: u64,
    pub mean_q2c_ns: u64,
}

/// Bios and bytes on one lower device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct StackLeg {
    pub device: String,
    pub bios: u64,
    pub bytes: u64,
}

/// Results of a first reading about stacked devices, for a second one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StackHints {
    /// Upper and lower devices, from remaps.
    edges: Vec<(Device, Device)>,
    /// From their bios (`levels.rs`): upper and lower device, and the offset that is added to the upper one's sectors.
    pub(super) offsets: Vec<(Device, Device, i64)>,
}

/// An upper bio that another bio works for, at least in part.
#[derive(Clone, Copy)]
pub(super) struct Upper {
    /// Its name, and its queueing time, because names are reused.
    pub at: u32,
    pub queued: u64,
    /// The number of its bytes that the other bio covers.
    pub bytes: u64,
}

/// One element, and rarely more.
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
    /// Number of those bios in flight.
    open: u32,
    first_queued: u64,
    first_issue: u64,
    all_issued: bool,
    /// The last completion in the lowest device; below: the last of a bio directly below.
    last: u64,
    last_below: u64,
    all_completed: bool,
    /// No other was below when it came there, and none ended there since it was queued.
    alone: bool,
}

/// Number of upper bios with a bio on a lower device, and the end of the last one.
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

/// The origin of a remapped bio, and the time of the remap.
#[derive(Clone, Copy)]
struct Remap {
    from: (Device, u64),
    /// The thread that remapped it.
    tid: TaskId,
    time: u64,
    /// Number of such remaps at once, for a mirror with halves at the same sector of partitions of one disk.
    legs: u32,
}

pub(super) struct Stack {
    remaps: BoundedMap<(Device, u64), Remap>,
    /// Bios that were remapped without being queued again, by the lower name: the upper one's name and time.
    moved: HashMap<u32, (u32, u64)>,
    /// Upper bios, by name.
    above: HashMap<u32, Above>,
    /// The upper bios of each lower bio.
    below: HashMap<u32, Few<Upper>>,
    /// By the number of the upper device; the matching limits these numbers.
    levels: BTreeMap<u16, Sums>,
    /// By lower device.
    company: HashMap<u16, Company>,
    /// Upper and lower devices, from remaps or from a first reading.
    edges: Vec<(Device, Device)>,
    pub(super) known: Option<StackHints>,
    /// Upper and lower devices of bios that were queued below others, and the offset of the last one's sectors.
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

    /// Whether bios that are remapped from this device are queued again on a lower one: so it is for device mapper and md, and not for
    /// a partition.
    pub fn queues_again(&self, upper: Device) -> bool {
        self.placed.iter().any(|one| one.0 == upper)
    }

    /// Whether bios were remapped from this device.
    pub fn is_upper(&self, device: Device) -> bool {
        self.edges.iter().any(|edge| edge.0 == device)
    }

    /// Places above this device without a remap: upper devices, and the offset added to their sectors. `lost`: remaps may be
    /// missing.
    pub fn places_of(&self, lower: Device, lost: bool) -> Vec<(Device, i64)> {
        let known = self.known.iter().flat_map(|known| &known.offsets);
        let all = known.chain(self.placed.iter().filter(|_| lost));
        all.filter(|one| one.1 == lower).map(|one| (one.0, one.2)).collect()
    }

    /// Takes the results of a first reading.
    pub fn learn(&mut self, hints: StackHints) {
        self.edges.clone_from(&hints.edges);
        hints.offsets.iter().for_each(|&(upper, lower, _)| self.edge(upper, lower));
        self.known = Some(hints);
    }

    pub fn edges(&self) -> &[(Device, Device)] {
        &self.edges
    }

    /// Hints for a second reading, if one is needed: for levels that no remap shows, or for flushes (`doubtful`: upper and lower
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

    /// Queueing time of this bio's upper bio.
    pub fn upper_of(&self, at: u32) -> Option<u64> {
        self.below.get(&at).map(|uppers| uppers.first.queued)
    }

    /// Whether a bio is below this upper one.
    pub fn is_below(&self, at: u32, upper: u32, queued: u64) -> bool {
        let uppers = self.below.get(&at).into_iter().flat_map(Few::all);
        uppers.into_iter().any(|one| (one.at, one.queued) == (upper, queued))
    }

    /// End of the last bio below an upper one; 0: none has ended.
    pub fn ended_below(&self, at: u32, queued: u64) -> u64 {
        self.above.get(&at).filter(|above| above.queued == queued).map_or(0, |above| above.last_below)
    }

    /// Whether an upper bio has one below it on this device.
    pub fn is_above(&self, at: u32, queued: u64, device: u16) -> bool {
        let known = self.above.get(&at).filter(|above| above.queued == queued);
        known.is_some_and(|above| above.legs.all().any(|leg| leg.0 == device))
    }

    /// A bio is remapped to a lower device. `queues`: bios are queued to the upper device.
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

    /// The origin of a bio that is queued here: the highest device and sector from which remaps lead here.
    pub fn origin(&mut self, at: (Device, u64)) -> Option<(Device, u64)> {
        self.remap(at).map(|(from, _)| from)
    }

    /// The same, with the time of the first of these remaps. It removes the remaps.
    pub fn remap(&mut self, at: (Device, u64)) -> Option<((Device, u64), u64)> {
        if self.remaps.is_empty() {
            return None;
        }
        let Remap { mut from, mut time, .. } = self.remaps.remove(&at)?;
        // A partition may lie between.
        while let Some(higher) = self.remaps.remove(&from) {
            (from, time) = (higher.from, higher.time);
        }
        Some((from, time))
    }

    /// The same as [`Self::origin`], without removing the remaps.
    pub fn highest(&self, at: (Device, u64)) -> Option<(Device, u64)> {
        let mut from = self.remaps.get(&at)?.from;
        for _ in 0..MAX_LEVELS {
            let Some(higher) = self.remaps.get(&from) else { break };
            from = higher.from;
        }
        Some(from)
    }

    /// Whether there are remaps whose bios were not queued again.
    pub fn has_remaps(&self) -> bool {
        !self.remaps.is_empty()
    }

    /// Remaps that were forgotten before their bio came.
    pub fn remaps_forgotten(&self) -> u64 {
        self.remaps.lost()
    }

    /// The bio `at` is the upper bio itself, remapped.
    pub fn moved(&mut self, at: u32, upper: u32, queued: u64) {
        self.moved.insert(at, (upper, queued));
    }

    /// The upper bio that this bio is itself: both are completed together.
    pub fn take_moved(&mut self, at: u32) -> Option<(u32, u64)> {
        if self.moved.is_empty() { None } else { self.moved.remove(&at) }
    }

    pub fn is_empty(&self) -> bool {
        self.below.is_empty() && self.above.is_empty()
    }

    /// A bio below others was queued. Bytes beyond theirs count for the first one.
    pub fn add(&mut self, uppers: &[Upper], at: u32, bio: &Bio) {
        let all = bio.whole_bytes();
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

    /// Completion of the last bio below this one; `None`: some are still in flight, or it has none below.
    pub fn done_below(&self, at: u32, queued: u64) -> Option<u64> {
        let above = self.above.get(&at).filter(|above| above.queued == queued)?;
        (above.open == 0 && above.all_completed).then_some(above.last_below)
    }

    /// A bio was queued that works for a loop device at another time than the device's own bios.
    pub fn add_cached(&mut self, upper: u16, bio: &Bio) {
        let sums = self.levels.entry(upper).or_default();
        sums.cached_bios += 1;
        sums.cached_bytes += bio.whole_bytes();
        sums.legs.entry(bio.device).or_default();
    }

    /// A bio was queued for an upper device, but for no single bio of it: parity of an array.
    pub fn add_other(&mut self, upper: u16, bio: &Bio) {
        let leg = self.levels.entry(upper).or_default().legs.entry(bio.device).or_default();
        *leg = (leg.0 + 1, leg.1 + bio.whole_bytes());
    }

    /// A bio ends. It takes its time in the device from those below it, and passes its own to those above. Returns whether any was below.
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
        sums.upper_bytes += bio.whole_bytes();
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

    /// `file` returns the backing file of a loop device.
    pub fn finish(&self, devices: &[Device], file: impl Fn(Device) -> Option<String>) -> Vec<StackLevel> {
        let level = |(&upper, sums): (&u16, &Sums)| {
            let mean = |sum: u128| sum.checked_div(sums.upper_bios.into()).map(|ns| ns as u64);
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
