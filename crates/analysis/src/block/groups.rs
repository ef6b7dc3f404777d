//! Times of bios by stage and group: direction, flag, size, owner. With distributions.

use super::by_owner::ByOwner;
use super::counts::Unit;
use super::in_flight::Bio;
use super::stages::{Stage, each_stage};
use super::watch::Watch;
use crate::latency::{LatencyHistogram, LatencyNs, LatencyRange};
use flashscope_trace::{Device, RequestFlags, RequestKind};
use foldhash::HashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most owners with distributions of their own; the bios of further ones share one group.
const MAX_OWNERS: usize = 4096;
/// Most owners in the result: those with most bytes; all others are one group.
const MAX_LISTED: usize = 256;
/// Most devices with distributions of their own; the bios of further ones share one group.
const MAX_DEVICES: usize = 64;
/// Most classes whose times are kept separately; before there are more, they are added to their groups.
const MAX_CLASSES: usize = 1024;
/// Most sets of groups, shared with other classes, for which a class keeps Q2Q separately.
const MAX_SHARED: usize = 8;
/// Up to 4 KiB, up to 8 KiB, …, up to 1 MiB, above.
const SIZES: usize = 10;
const FLAGS: [(RequestFlags, &str); 6] = [
    (RequestFlags::SYNC, "sync"),
    (RequestFlags::META, "meta"),
    (RequestFlags::AHEAD, "read-ahead"),
    (RequestFlags::FLUSH, "flush"),
    (RequestFlags::FUA, "FUA"),
    (RequestFlags::DISCARD, "discard"),
];

/// The property that the bios of a group share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupBy {
    All,
    /// Device and direction.
    Device,
    /// A letter of RWBS. A bio with several letters is in several groups, a bio without any in the group "none".
    Flag,
    /// Bytes of the bio.
    Size,
    /// The owner of the bio.
    Owner,
    /// Inode and device of its file system, where the file is known.
    File,
    /// Parts of bios that were split, each from the bio's queueing to its own completion.
    Parts,
}

/// Splits the name of a group by device into device and direction: `8:0 zone appends`. Where several kinds end alike (`8:0 resets of all
/// zones`), the longest kind is taken.
pub fn device_and_kind(name: &str) -> Option<(&str, RequestKind)> {
    let of = |kind: &RequestKind| Some((name.strip_suffix(kind.plural())?.strip_suffix(' ')?, *kind));
    RequestKind::ALL.iter().filter_map(of).min_by_key(|(device, _)| device.len())
}

/// Times of one stage.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct StageTimes {
    pub stage: String,
    pub ns: LatencyNs,
    pub total_ns: u64,
    /// Share of the group's Q2C, per cent; `null` for Q2Q, which is no part of it.
    pub share_percent: Option<f64>,
}

/// The distribution of one stage's times.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct Distribution {
    pub stage: String,
    /// Ranges that are not empty, shortest times first.
    pub ranges: Vec<LatencyRange>,
}

/// Bios that share a property.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct Group {
    pub by: GroupBy,
    pub name: String,
    /// A file's path, where the recording has it; marked if the file was deleted or renamed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Queued bios, parts of splits not counted; requests, where the trace shows no queueing.
    pub bios: u64,
    pub bytes: u64,
    /// For a file: bytes read; below: bytes written. Discards are in neither.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_bytes: Option<u64>,
    /// Stages that were seen, in the order of [`Stage::ALL`].
    pub stages: Vec<StageTimes>,
    /// Of Q2C and D2C; only for all bios, and by device and direction.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub distributions: Vec<Distribution>,
}

#[derive(Default)]
pub(super) struct Times {
    pub bios: u64,
    pub bytes: u64,
    last_queue: Option<u64>,
    stages: StageHistograms,
}

impl Times {
    #[inline(always)]
    pub fn queued(&mut self, bio: &Bio, now: u64) {
        self.bios += 1;
        self.bytes += bio.bytes();
        if bio.is_request() || bio.kind == RequestKind::Flush {
            return;
        }
        if let Some(last) = self.last_queue.replace(now)
            && let Some(time) = now.checked_sub(last)
        {
            self.stages[Stage::Q2q as usize].add(time);
        }
    }

    pub fn ended(&mut self, bio: &Bio, completed: u64) {
        each_stage(bio, completed, |stage, ns| self.stages[stage as usize].add(ns));
    }

    /// Adds the times of another group.
    pub fn merge(&mut self, other: &Times) {
        self.bios += other.bios;
        self.bytes += other.bytes;
        self.merge_stages(&other.stages);
    }

    fn merge_stages(&mut self, stages: &StageHistograms) {
        for (to, from) in self.stages.iter_mut().zip(stages) {
            to.merge(from);
        }
    }

    pub fn finish(&self, by: GroupBy, name: String) -> Group {
        let whole = self.stages[Stage::Q2c as usize].total_ns();
        let stages = Stage::ALL
            .iter()
            .map(|&stage| {
                let times = &self.stages[stage as usize];
                let share = (stage != Stage::Q2q && whole > 0).then(|| percent(times.total_ns(), whole));
                StageTimes {
                    stage: stage.name().to_owned(),
                    ns: times.finish(),
                    total_ns: times.total_ns(),
                    share_percent: share,
                }
            })
            .filter(|times| times.ns.n > 0)
            .collect();
        let spread = |stage: &Stage| Distribution {
            stage: stage.name().to_owned(),
            ranges: self.stages[*stage as usize].ranges(),
        };
        let mut distributions = Vec::new();
        if matches!(by, GroupBy::All | GroupBy::Device) {
            distributions.extend([Stage::Q2c, Stage::D2c].iter().map(spread).filter(|d| !d.ranges.is_empty()));
        }
        Group {
            by,
            name,
            path: None,
            bios: self.bios,
            bytes: self.bytes,
            read_bytes: None,
            written_bytes: None,
            stages,
            distributions,
        }
    }
}

/// Per cent, to two decimals, so that a result is short and the same on every machine.
pub(super) fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { (part as f64 / whole as f64 * 10_000.0).round() / 100.0 }
}

/// The properties that determine the groups of a bio. Bios of one class are in the same groups. So each time is added once, to its class,
/// and a class is added to its groups in the end.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Class(u64);

impl Class {
    const KIND: u32 = 7;
    const FLAGS: u32 = Self::KIND + 4;
    const SIZE: u32 = Self::FLAGS + FLAGS.len() as u32;
    const OWNER: u32 = Self::SIZE + 4;
    const BELOW: u32 = Self::OWNER + 13;

    /// Index of its device; [`MAX_DEVICES`] stands for all further ones.
    fn device(self) -> usize {
        (self.0 & 0x7f) as usize
    }

    fn kind(self) -> usize {
        (self.0 >> Self::KIND & 0xf) as usize
    }

    /// One bit for each of [`FLAGS`].
    fn flags(self) -> u64 {
        self.0 >> Self::FLAGS & ((1 << FLAGS.len()) - 1)
    }

    fn size(self) -> usize {
        (self.0 >> Self::SIZE & 0xf) as usize
    }

    /// Index of the owner among those with distributions; [`MAX_OWNERS`] stands for all others.
    fn owner(self) -> usize {
        (self.0 >> Self::OWNER & 0x1fff) as usize
    }

    /// A bio that does another bio's work counts for its device only.
    fn is_below(self) -> bool {
        self.0 >> Self::BELOW != 0
    }

    /// The kinds of groups that it is in.
    fn groups(self) -> Of {
        if self.is_below() {
            return OF_DEVICE;
        }
        let flags = match self.flags() as Of {
            0 => 1 << FLAGS.len(),
            flags => flags,
        };
        OF_ALL | OF_DEVICE | OF_SIZE | OF_OWNER | flags << FLAGS_FROM
    }

    /// The groups that bios of another class are in, too.
    fn shared(self, other: Class) -> Of {
        let further = self.device() == MAX_DEVICES && other.device() == MAX_DEVICES;
        let same = |is: bool, of: Of| if is { of } else { 0 };
        let same = same(further || (self.device(), self.kind()) == (other.device(), other.kind()), OF_DEVICE)
            | same(self.size() == other.size(), OF_SIZE)
            | same(self.owner() == other.owner(), OF_OWNER)
            | !(OF_DEVICE | OF_SIZE | OF_OWNER);
        self.groups() & other.groups() & same
    }
}

/// Kinds of groups, one bit each; those of flags have the highest bits.
type Of = u16;
const OF_ALL: Of = 1;
const OF_DEVICE: Of = 1 << 1;
const OF_SIZE: Of = 1 << 2;
const OF_OWNER: Of = 1 << 3;
const FLAGS_FROM: u32 = 4;

const _: () = assert!(FLAGS_FROM + (FLAGS.len() as u32) < Of::BITS);

const _: () = assert!(MAX_DEVICES < 1 << 7 && RequestKind::COUNT <= 1 << 4 && SIZES <= 1 << 4 && MAX_OWNERS < 1 << 13);
const _: () = assert!(Class::BELOW < u64::BITS);

type StageHistograms = [LatencyHistogram; 9];

/// Bios of one class, and their stages.
struct OfClass {
    class: Class,
    bios: u64,
    bytes: u64,
    /// Q2Q is measured to a bio of the same class.
    stages: StageHistograms,
    /// Q2Q to a bio of another class, by the groups that both are in.
    q2q: Vec<(Of, LatencyHistogram)>,
}

/// Distributions by group.
#[derive(Default)]
pub(super) struct Groups {
    all: Times,
    devices: Vec<[Times; RequestKind::COUNT]>,
    further_devices: Times,
    flags: [Times; FLAGS.len() + 1],
    sizes: [Times; SIZES],
    owners: Vec<(u32, Times)>,
    /// Index of each owner in `owners`.
    places: ByOwner,
    others: Times,
    parts: Times,
    /// Bios that are not in their groups yet; below: the index of each class.
    classes: Vec<OfClass>,
    known: HashMap<Class, usize>,
    /// The last bio that was queued: `last_queue` of its groups lags behind.
    last: Option<(Class, u64)>,
    /// For each bio in flight, by its name: its class, and the class's index.
    of_bio: Vec<(Class, usize)>,
}

pub(super) fn size_name(class: usize) -> String {
    match class {
        c if c == SIZES - 1 => "over 1 MiB".to_owned(),
        c => format!("to {} KiB", 4 << c),
    }
}

pub(super) fn size_class(sectors: u32) -> usize {
    // 8 sectors are 4 KiB.
    (sectors.div_ceil(8).max(1).next_power_of_two().trailing_zeros() as usize).min(SIZES - 1)
}

impl Groups {
    fn class(&mut self, bio: &Bio) -> Class {
        let device = u64::from(bio.device).min(MAX_DEVICES as u64);
        let class = device | (bio.kind() as u64) << Class::KIND;
        if bio.below {
            return Class(class | 1 << Class::BELOW);
        }
        let bit = |at: usize| u64::from(bio.flags.has(FLAGS[at].0)) << at;
        let flags = (0..FLAGS.len()).fold(0, |flags, at| flags | bit(at));
        let size = size_class(bio.whole_sectors) as u64;
        let owner = self.place(bio.owner) as u64;
        Class(class | flags << Class::FLAGS | size << Class::SIZE | owner << Class::OWNER)
    }

    fn place(&mut self, owner: u32) -> usize {
        if let Some(place) = self.places.get(owner) {
            return usize::from(place);
        }
        let place = self.owners.len();
        if place < MAX_OWNERS {
            self.owners.push((owner, Times::default()));
        }
        self.places.set(owner, place as u16);
        place
    }

    /// Q2Q is not measured from the last bio of another recording.
    fn begins_again(&mut self) {
        self.gather();
        self.last = None;
        let of_device = self.devices.iter_mut().flatten().chain([&mut self.further_devices]);
        let of_owner = self.owners.iter_mut().map(|(_, times)| times).chain([&mut self.others]);
        let others = self.flags.iter_mut().chain(&mut self.sizes).chain([&mut self.all]);
        of_device.chain(of_owner).chain(others).for_each(|times| times.last_queue = None);
    }

    /// Calls `f` for the groups of a class that are in `of`.
    fn each(&mut self, class: Class, of: Of, mut f: impl FnMut(&mut Times)) {
        let of = of & class.groups();
        if of & OF_ALL != 0 {
            f(&mut self.all);
        }
        if of & OF_DEVICE != 0 {
            let device = class.device();
            if device >= MAX_DEVICES {
                f(&mut self.further_devices);
            } else {
                if self.devices.len() <= device {
                    self.devices.resize_with(device + 1, Default::default);
                }
                f(&mut self.devices[device][class.kind()]);
            }
        }
        if of & OF_SIZE != 0 {
            f(&mut self.sizes[class.size()]);
        }
        if of & OF_OWNER != 0 {
            f(self.owners.get_mut(class.owner()).map_or(&mut self.others, |(_, times)| times));
        }
        let mut flags = of >> FLAGS_FROM;
        while flags != 0 {
            f(&mut self.flags[flags.trailing_zeros() as usize]);
            flags &= flags - 1;
        }
    }

    /// The index of a class; `at`: a guess.
    #[inline(always)]
    fn find(&mut self, class: Class, at: usize) -> usize {
        match self.classes.get(at) {
            Some(of) if of.class == class => at,
            _ => match self.known.get(&class) {
                Some(&at) => at,
                None => self.new_class(class),
            },
        }
    }

    #[cold]
    fn new_class(&mut self, class: Class) -> usize {
        if self.classes.len() == MAX_CLASSES {
            self.gather();
        }
        self.known.insert(class, self.classes.len());
        self.classes.push(OfClass { class, bios: 0, bytes: 0, stages: Default::default(), q2q: Vec::new() });
        self.classes.len() - 1
    }

    /// Adds the classes' bios to their groups.
    fn gather(&mut self) {
        self.known.clear();
        for OfClass { class, bios, bytes, stages, q2q } in std::mem::take(&mut self.classes) {
            self.each(class, Of::MAX, |times| {
                // A reshaped request is subtracted from its class after that was added.
                times.bios = times.bios.wrapping_add(bios);
                times.bytes = times.bytes.wrapping_add(bytes);
                times.merge_stages(&stages);
            });
            for (shared, ns) in q2q {
                self.each(class, shared, |times| times.stages[Stage::Q2q as usize].merge(&ns));
            }
        }
    }

    /// A bio of an existing class was queued behind one of another class: only groups of both have that one as the last.
    fn behind_another(&mut self, at: usize, (before, then): (Class, u64), now: u64) {
        let class = self.classes[at].class;
        let shared = class.shared(before);
        self.each(before, !shared, |times| times.last_queue = Some(then));
        self.each(class, !shared, |times| {
            if let Some(ns) = times.last_queue.and_then(|last| now.checked_sub(last)) {
                times.stages[Stage::Q2q as usize].add(ns);
            }
        });
        let Some(ns) = now.checked_sub(then) else { return };
        let q2q = &mut self.classes[at].q2q;
        match q2q.iter().position(|(of, _)| *of == shared) {
            Some(at) => q2q[at].1.add(ns),
            None if q2q.len() < MAX_SHARED => {
                let mut times = LatencyHistogram::default();
                times.add(ns);
                q2q.push((shared, times));
            }
            None => self.each(class, shared, |times| times.stages[Stage::Q2q as usize].add(ns)),
        }
    }

    /// `owner` returns an owner's name.
    pub fn finish(mut self, devices: &[Device], owner: impl Fn(u32) -> String) -> Vec<Group> {
        self.gather();
        let mut groups = vec![self.all.finish(GroupBy::All, "all".to_owned())];
        for (kinds, device) in self.devices.iter().zip(devices) {
            for (times, kind) in kinds.iter().zip(RequestKind::ALL) {
                groups.push(times.finish(GroupBy::Device, format!("{device} {}", kind.plural())));
            }
        }
        groups.push(self.further_devices.finish(GroupBy::Device, "(further devices)".to_owned()));
        let names = FLAGS.iter().map(|(_, name)| *name).chain(["none"]);
        groups.extend(self.flags.iter().zip(names).map(|(t, name)| t.finish(GroupBy::Flag, name.to_owned())));
        for (class, times) in self.sizes.iter().enumerate() {
            groups.push(times.finish(GroupBy::Size, size_name(class)));
        }
        self.owners.sort_by_key(|(id, times)| (std::cmp::Reverse(times.bytes), *id));
        for (_, times) in self.owners.drain(MAX_LISTED.min(self.owners.len())..) {
            self.others.merge(&times);
        }
        groups.extend(self.owners.iter().map(|(id, times)| times.finish(GroupBy::Owner, owner(*id))));
        groups.push(self.others.finish(GroupBy::Owner, "(further owners)".to_owned()));
        groups.push(self.parts.finish(GroupBy::Parts, "parts of split bios".to_owned()));
        groups.retain(|group| group.bios > 0 || group.by == GroupBy::All);
        groups
    }
}

impl Watch for Groups {
    fn queued(&mut self, at: u32, bio: &Bio, now: u64) {
        let class = self.class(bio);
        let last = self.of_bio.get(at as usize).map_or(0, |(_, of)| *of);
        let (at, of) = (at as usize, self.find(class, last));
        if self.of_bio.len() <= at {
            self.of_bio.resize(at + 1, (class, of));
        }
        self.of_bio[at] = (class, of);
        let one = &mut self.classes[of];
        one.bios = one.bios.wrapping_add(1);
        one.bytes = one.bytes.wrapping_add(bio.bytes());
        if bio.is_request() || bio.kind == RequestKind::Flush {
            return;
        }
        match self.last.replace((class, now)) {
            Some((before, then)) if before == class => {
                now.checked_sub(then).into_iter().for_each(|ns| one.stages[Stage::Q2q as usize].add(ns));
            }
            Some(before) => self.behind_another(of, before, now),
            None => {}
        }
    }

    fn reshaped(&mut self, at: u32, before: &Bio, bio: &Bio) {
        let Some(&(class, of)) = self.of_bio.get(at as usize) else { return };
        let of = self.find(class, of);
        let one = &mut self.classes[of];
        one.bios = one.bios.wrapping_sub(1);
        one.bytes = one.bytes.wrapping_sub(before.whole_bytes());
        let class = self.class(bio);
        let of = self.find(class, of);
        self.of_bio[at as usize] = (class, of);
        let one = &mut self.classes[of];
        one.bios = one.bios.wrapping_add(1);
        one.bytes = one.bytes.wrapping_add(bio.whole_bytes());
    }

    fn absorbed(&mut self, at: u32, bio: &Bio) {
        let Some(&(class, of)) = self.of_bio.get(at as usize) else { return };
        let of = self.find(class, of);
        let one = &mut self.classes[of];
        one.bios = one.bios.wrapping_sub(1);
        one.bytes = one.bytes.wrapping_sub(bio.whole_bytes());
    }

    fn part_ended(&mut self, _at: u32, part: &Bio, completed: u64) {
        self.parts.bios += 1;
        self.parts.bytes += part.bytes();
        self.parts.ended(part, completed);
    }

    fn ended(&mut self, at: u32, bio: &Bio, completed: u64) {
        let Some(&(class, of)) = self.of_bio.get(at as usize) else { return };
        let of = self.find(class, of);
        let stages = &mut self.classes[of].stages;
        each_stage(bio, completed, |stage, ns| stages[stage as usize].add(ns));
    }
}

/// Bios, and separately requests whose bios' queueing is not in the trace.
#[derive(Default)]
pub(super) struct GroupsByUnit {
    bios: Groups,
    requests: Groups,
}

impl GroupsByUnit {
    pub fn finish(self, unit: Unit, devices: &[Device], owner: impl Fn(u32) -> String) -> Vec<Group> {
        let groups = if unit == Unit::Request { self.requests } else { self.bios };
        groups.finish(devices, owner)
    }
}

impl Watch for GroupsByUnit {
    fn begins_again(&mut self) {
        self.bios.begins_again();
        self.requests.begins_again();
    }

    fn queued(&mut self, at: u32, bio: &Bio, now: u64) {
        self.bios.queued(at, bio, now);
    }

    fn requested(&mut self, at: u32, bio: &Bio, now: u64) {
        self.requests.queued(at, bio, now);
    }

    fn reshaped(&mut self, at: u32, before: &Bio, bio: &Bio) {
        self.requests.reshaped(at, before, bio);
    }

    fn absorbed(&mut self, at: u32, bio: &Bio) {
        self.requests.absorbed(at, bio);
    }

    fn part_ended(&mut self, at: u32, part: &Bio, completed: u64) {
        self.bios.part_ended(at, part, completed);
    }

    fn ended(&mut self, at: u32, bio: &Bio, completed: u64) {
        let groups = if bio.is_request() { &mut self.requests } else { &mut self.bios };
        groups.ended(at, bio, completed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_classed_by_powers_of_two() {
        assert_eq!([1, 8, 9, 16, 17, 2048, 2049, u32::MAX].map(size_class), [0, 0, 1, 1, 2, 8, 9, 9]);
    }

    #[test]
    fn a_bio_is_in_every_group_it_belongs_to() {
        let mut groups = Groups::default();
        for (owner, letters, sectors) in [(1, "RS", 8), (2, "WSM", 64), (1, "R", 8)] {
            let flags = RequestFlags::from_letters(letters.as_bytes());
            let bio = super::super::in_flight::InFlight::plain(0, flags, 0, sectors, owner, 100 * u64::from(owner));
            groups.queued(0, &bio, bio.queued);
            groups.ended(0, &bio, bio.queued + 50);
        }
        let found = groups.finish(&[Device::new(8, 0)], |owner| format!("task {owner}"));
        let of = |by, name: &str| found.iter().find(|g| g.by == by && g.name == name).map_or(0, |g| g.bios);
        assert_eq!(
            (of(GroupBy::All, "all"), of(GroupBy::Device, "8:0 reads"), of(GroupBy::Device, "8:0 writes")),
            (3, 2, 1)
        );
        assert_eq!((of(GroupBy::Flag, "sync"), of(GroupBy::Flag, "meta"), of(GroupBy::Flag, "none")), (2, 1, 1));
        assert_eq!((of(GroupBy::Size, "to 4 KiB"), of(GroupBy::Size, "to 32 KiB")), (2, 1));
        assert_eq!((of(GroupBy::Owner, "task 1"), of(GroupBy::Owner, "task 2")), (2, 1));
        let all = &found[0];
        assert_eq!(all.stages.iter().map(|s| s.stage.as_str()).collect::<Vec<_>>(), ["Q2Q", "Q2C"]);
        assert_eq!((all.stages[1].ns.p999, all.stages[1].share_percent), (50, Some(100.0)));
        assert_eq!(all.distributions.iter().map(|d| d.stage.as_str()).collect::<Vec<_>>(), ["Q2C"]);
        assert_eq!(all.distributions[0].ranges, [LatencyRange { from_ns: 46, to_ns: 54, n: 3 }]);
        assert!(found.iter().all(|g| g.distributions.is_empty() == (g.by > GroupBy::Device)));
    }

    #[test]
    fn every_bio_is_in_a_group_by_device_however_many_there_are() {
        let mut groups = Groups::default();
        for device in 0..100 {
            let bio = super::super::in_flight::InFlight::plain(device, RequestFlags::READ, 0, 8, 1, 100);
            groups.queued(0, &bio, 100);
            groups.ended(0, &bio, 150);
        }
        let devices: Vec<Device> = (0..100).map(|minor| Device::new(8, minor)).collect();
        let found = groups.finish(&devices, |owner| owner.to_string());
        let by_device: Vec<&Group> = found.iter().filter(|g| g.by == GroupBy::Device).collect();
        assert_eq!((by_device.len(), by_device.iter().map(|g| g.bios).sum::<u64>()), (65, 100));
        let further = by_device[64];
        assert_eq!((further.name.as_str(), further.bios, further.stages.len()), ("(further devices)", 36, 2));
    }
}
