//! Loop devices: the bios of a disk that do the work of a loop device's bios.
//!
//! The kernel has no remap event there. The link is the backing file. The recording's facts name its file system, inode and offset; the
//! file system's extents give its place on the disk; a kernel worker (`loop_rootcg_workfn`, before 5.14 the thread `loopN`) carries the
//! I/O (drivers/block/loop.c).
//!
//! - A read, and with direct I/O a write, of the backing file by a worker is below the bios of the loop device that cover the same
//!   bytes and were issued to it. Where the file is not known, I/O of the device's own thread (before 5.14) is below them too, and a
//!   worker's read while a loop device has a single read, of that size.
//! - A read of other bytes is read-ahead of the backing file. Its owner is the owner of all bios in the loop device, else unknown.
//! - Without direct I/O a write ends in the page cache; the task that wrote to the loop device dirtied the page (`originators/`).

use super::in_flight::{Bio, NEVER, NONE, Place};
use super::matching::Matching;
use super::originators::{At, Originators, OwnerKind};
use super::stack::{StackLevel, Upper};
use super::watch::Watch;
use crate::Evidence;
use crate::{Lookup, Named};
use flashscope_trace::facts::Disk;
use flashscope_trace::{BlockEvent, Device, Facts, FileEvent, FileId, FileStep, RequestKind, TaskId, TimeNs};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::ops::Range;

/// Documentation/admin-guide/devices.txt
const LOOP_MAJOR: u32 = 7;
const AGAIN: &str = "flashscope record --events block,cache, started when the loop device is set up";
/// Most bios of a loop device that one bio of the disk works for.
const MAX_UPPERS: usize = 256;

/// A loop device with its backing file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Loop {
    device: Device,
    file: String,
    /// The file's place: device of its file system, inode, first byte of the loop device.
    file_system: Device,
    inode: u64,
    offset: u64,
    direct: bool,
}

/// Loop devices, from the facts of recordings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loops {
    all: Vec<Loop>,
    /// Indices in `all`, by the backing file and by the device: a fact may repeat either.
    by_file: HashMap<FileId, usize>,
    by_device: HashMap<Device, usize>,
}

/// A loop device that was used, and its backing file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct LoopFound {
    pub device: String,
    pub backing: Evidence<LoopBacking>,
}

/// The backing file of a loop device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct LoopBacking {
    pub file: String,
    /// Device of its file system.
    pub device: String,
    pub inode: u64,
    pub direct_io: bool,
}

impl Loops {
    /// From the facts of recordings (`docs/reference/agent.md`, "Facts").
    pub fn of_facts<'a>(facts: impl IntoIterator<Item = &'a Facts>) -> Loops {
        let number = |said: &Option<String>| said.as_deref().and_then(Device::parse);
        let one = |disk: &Disk| {
            Some(Loop {
                device: number(&disk.device)?,
                file: disk.of_loop.backing_file.clone()?,
                file_system: number(&disk.of_loop.device)?,
                inode: disk.of_loop.inode?,
                offset: disk.of_loop.offset?,
                direct: disk.of_loop.direct_io? != 0,
            })
        };
        let mut loops = Loops::default();
        for one in facts.into_iter().flat_map(|facts| &facts.block).filter_map(one) {
            let at = loops.all.len();
            loops.by_file.entry(FileId::on(one.file_system, one.inode)).or_insert(at);
            loops.by_device.entry(one.device).or_insert(at);
            loops.all.push(one);
        }
        loops
    }

    /// The owner of the next bio, and whether it works for a bio of an upper device. Its bytes count only if it does not.
    pub(super) fn queue<L: Lookup<Name: Named>, W: Watch>(
        &self,
        (matching, originators): (&mut Matching<W>, &mut Originators<L>),
        block: &BlockEvent,
        tid: TaskId,
        time: TimeNs,
    ) -> (u32, bool) {
        if matching.is_rest_of_split(block, tid) {
            return (0, true);
        }
        let above = if block.kind() == RequestKind::Flush && block.bytes == 0 {
            let carries = originators.carries(tid, time);
            matching.is_flush_below(block, tid, carries)
        } else {
            let above = matching.is_below(block);
            if above.is_none() && !matching.orphaned() { matching.is_inferred_below(block, tid) } else { above }
        };
        let above = match above {
            None => self.below((matching, originators), block, tid, time),
            above => above,
        };
        if let Some(owner) = above {
            return (owner, true);
        }
        if matching.orphaned() && originators.carries(tid, time) && matching.next_of_array() {
            return (originators.task(tid, time).0, true);
        }
        if matching.next_leg(block) {
            return (originators.task(tid, time).0, true);
        }
        let owner = originators.queue(block, tid, time);
        let by_loop = originators.by_loop.take().and_then(|file| self.of_file(file)).map(|one| one.device);
        if let Some(device) = by_loop {
            matching.below_cache(device);
        }
        (owner, by_loop.is_some())
    }

    /// The owner of the loop device's bio that the next queued bio belongs to; `None` where there is none.
    fn below<L: Lookup<Name: Named>, W: Watch>(
        &self,
        (matching, originators): (&mut Matching<W>, &mut Originators<L>),
        block: &BlockEvent,
        tid: TaskId,
        time: TimeNs,
    ) -> Option<u32> {
        if block.bytes == 0 || block.device.major() == LOOP_MAJOR {
            return None;
        }
        let Some((file, byte, left)) = originators.file_at(block).filter(|_| !self.all.is_empty()) else {
            if !matching.devices.iter().any(|device| device.major() == LOOP_MAJOR) {
                return None;
            }
            let thread = originators.thread(tid, time)?;
            let owners = match matching.loop_of(&thread) {
                Some(device) => matching.below_loops_thread(device, block.kind()),
                // Writes of a worker are mostly writeback, of no loop device.
                None if thread.starts_with("kworker/") && block.kind() == RequestKind::Read => {
                    matching.below_loops_worker(block)
                }
                None => None,
            };
            return owners.map(|owners| originators.one_of(&owners));
        };
        let of = self.of_file(file)?;
        let kind = block.kind();
        let write = kind != RequestKind::Read;
        if (write && !of.direct) || !originators.carries(tid, time) {
            return None;
        }
        let end = byte.saturating_add(left.min(block.bytes)).checked_sub(of.offset)?;
        let begin = byte.saturating_sub(of.offset);
        let owners = matching.below_loop(of.device, kind, begin / 512..end.div_ceil(512), !write)?;
        Some(originators.one_of(&owners))
    }

    /// A step of a file. Pages that a loop device's worker puts into the page cache have the owner of the loop device's bio.
    pub(super) fn file<L: Lookup<Name: Named>, W: Watch>(
        &self,
        (matching, originators): (&mut Matching<W>, &mut Originators<L>),
        file: &FileEvent,
        tid: TaskId,
        time: TimeNs,
    ) {
        match self.asker((matching, originators), file, tid, time) {
            Some(owner) => originators.dirtied_for(file, owner),
            None => originators.file(file, tid, time),
        }
    }

    /// The owner, at the loop device, of a worker's write to the backing file; `None` where it is no such write.
    fn asker<L: Lookup<Name: Named>, W: Watch>(
        &self,
        (matching, originators): (&mut Matching<W>, &mut Originators<L>),
        file: &FileEvent,
        tid: TaskId,
        time: TimeNs,
    ) -> Option<u32> {
        if self.all.is_empty() || !(file.step.writes() || file.step == FileStep::Dirtied) {
            return None;
        }
        let of = self.of_file(file.file())?;
        if !originators.carries(tid, time) {
            return None;
        }
        let begin = file.offset.saturating_sub(of.offset) / 512;
        let end = file.offset.saturating_add(file.bytes.max(1)).saturating_sub(of.offset).div_ceil(512);
        let owners = matching.owners_at(of.device, RequestKind::Write, begin..end);
        match owners.as_slice() {
            [] => None,
            [one] => Some(*one),
            _ => Some(originators.several()),
        }
    }

    /// The loop device that lies in a file.
    fn of_file(&self, file: FileId) -> Option<&Loop> {
        self.by_file.get(&file).map(|&at| &self.all[at])
    }

    fn of_device(&self, device: Device) -> Option<&Loop> {
        self.by_device.get(&device).map(|&at| &self.all[at])
    }

    /// The backing file of a device.
    pub(super) fn file_of(&self, device: Device) -> Option<String> {
        self.of_device(device).map(|one| one.file.clone())
    }

    /// The loop devices among the devices that were used. `levels`: upper and lower devices.
    pub(super) fn found<L>(
        &self,
        used: &[Device],
        originators: &Originators<L>,
        levels: &[StackLevel],
    ) -> Vec<LoopFound> {
        let loops = used.iter().filter(|device| device.major() == LOOP_MAJOR);
        loops
            .map(|&device| {
                let name = device.to_string();
                let backing = match self.backing(device, originators) {
                    Evidence::Unknown(_) if levels.iter().any(|level| level.upper == name) => Evidence::unknown(
                        format!(
                            "{}; what its thread does, or a worker reads, counts once where one I/O alone (one read of that size) \
                             was in the device",
                            match self.file_of(device) {
                                Some(file) => format!(
                                    "where {file}, the file of loop device {name}, lies on its disk is not in the trace (events of \
                                     ext4 or f2fs say so)"
                                ),
                                None => format!("the file of loop device {name} is not in the trace"),
                            }
                        ),
                        AGAIN,
                    ),
                    backing => backing,
                };
                LoopFound { device: name, backing }
            })
            .collect()
    }

    fn backing<L>(&self, device: Device, originators: &Originators<L>) -> Evidence<LoopBacking> {
        let Some(one) = self.of_device(device) else {
            let why = format!(
                "the backing file of loop device {device} is not in the trace: the I/O of the disk beneath it counts as I/O of its own"
            );
            return Evidence::unknown(why, AGAIN);
        };
        if !originators.has_extents(one.file_system, one.inode) {
            let why = format!(
                "where {} lies on its disk is not in the trace (events of ext4 or f2fs say so): the I/O of the disk beneath loop \
                 device {device} counts as I/O of its own",
                one.file
            );
            return Evidence::unknown(why, AGAIN);
        }
        Evidence::Known(LoopBacking {
            file: one.file.clone(),
            device: one.file_system.to_string(),
            inode: one.inode,
            direct_io: one.direct,
        })
    }
}

impl<L: Lookup<Name: Named>> Originators<L> {
    /// The owner; a bio read ahead or written for several belongs to none of them.
    fn one_of(&mut self, owners: &[u32]) -> u32 {
        match owners {
            [one] => *one,
            _ => self.several(),
        }
    }

    /// The name of a thread that carries others' I/O.
    fn thread(&mut self, tid: TaskId, time: TimeNs) -> Option<String> {
        let (owner, carries) = self.task(tid, time);
        carries.then(|| self.owner(owner).map(|(name, ..)| name.into_owned())).flatten()
    }

    /// An owner that stands for several.
    fn several(&mut self) -> u32 {
        self.id(TaskId(u32::MAX - 1), "(several)", OwnerKind::Shared)
    }

    /// The file in which a bio begins, its byte there, and how many bytes of the bio follow there.
    fn file_at(&self, block: &BlockEvent) -> Option<(FileId, u64, u64)> {
        if self.extents.is_empty() {
            return None;
        }
        match self.at(block.device, block.sector.saturating_mul(512)) {
            At::File(file, byte, left) => Some((file, byte, left)),
            At::Unknown(_) => None,
        }
    }

    /// Whether a thread is a kernel thread that carries others' I/O.
    fn carries(&mut self, tid: TaskId, time: TimeNs) -> bool {
        self.task(tid, time).1
    }
}

impl<L> Originators<L> {
    /// Whether the trace has a file's place on its device.
    fn has_extents(&self, device: Device, inode: u64) -> bool {
        self.extents.range((device, 0)..=(device, u64::MAX)).any(|(_, extent)| extent.inode == inode)
    }
}

impl<W: Watch> Matching<W> {
    /// The next bio is below the bios that were issued to this loop device for the same sectors. Returns their owners. `ahead`: where there
    /// are none it is read-ahead, for the bios in the loop device.
    fn below_loop(&mut self, device: Device, kind: RequestKind, sectors: Range<u64>, ahead: bool) -> Option<Vec<u32>> {
        let device = self.devices.iter().position(|&known| known == device)? as u16;
        let place = Place::new(device, kind);
        let mut owners = Vec::new();
        let mut uppers: Vec<Upper> = Vec::new();
        let mut show = None;
        let (mut all, mut any) = (Vec::new(), false);
        for (at, bio) in self.bios.rest_in_reserve().filter(|(_, bio)| bio.place == place && bio.issued != NEVER) {
            any = true;
            if !all.contains(&bio.owner) {
                all.push(bio.owner);
            }
            let shared = bio.end().min(sectors.end).saturating_sub(bio.sector.max(sectors.start));
            if shared == 0 || uppers.len() == MAX_UPPERS {
                continue;
            }
            // A part is named by its bio.
            let name = self.splits.name(at, bio);
            uppers.push(Upper { at: name, queued: bio.queued, bytes: shared * 512 });
            show.get_or_insert((bio.in_range, bio.shown));
            if !owners.contains(&bio.owner) {
                owners.push(bio.owner);
            }
        }
        let show = match show {
            Some(show) => show,
            None if ahead && any => (self.in_range, self.in_range),
            None => return None,
        };
        self.next_below(uppers, Some(device), show);
        Some(if owners.is_empty() { all } else { owners })
    }

    /// The loop device whose thread has this name (drivers/block/loop.c, loop_prepare_queue() before 5.14: "loop%d").
    fn loop_of(&self, thread: &str) -> Option<Device> {
        let number: u32 = thread.strip_prefix("loop")?.parse().ok()?;
        let mut loops = self.devices.iter().filter(|device| device.major() == LOOP_MAJOR);
        let named = loops.clone().find(|device| device.minor() == number);
        // With partitions their numbers are further apart: only one device can match.
        named.or_else(|| loops.next().filter(|_| loops.next().is_none())).copied()
    }

    /// The next bio of this device's own thread works for the bio issued to the device, wherever its file lies.
    fn below_loops_thread(&mut self, device: Device, kind: RequestKind) -> Option<Vec<u32>> {
        let place = Place::new(self.devices.iter().position(|&known| known == device)? as u16, kind);
        // With several it is unknown which one.
        let sectors = {
            let mut issued = self.bios.rest_in_reserve().filter(|(_, bio)| bio.place == place && bio.issued != NEVER);
            match (issued.next(), issued.next()) {
                (Some((_, bio)), None) if !self.bios.gave_up() => bio.sector..bio.end(),
                _ => return None,
            }
        };
        self.below_loop(device, kind, sectors, false)
    }

    /// The next read of a worker works for the only read of its size in any loop device (5.14 and later), if that has no bio below it
    /// yet.
    fn below_loops_worker(&mut self, block: &BlockEvent) -> Option<Vec<u32>> {
        if !self.devices.iter().any(|device| device.major() == LOOP_MAJOR) {
            return None;
        }
        let lower = self.devices.iter().position(|&known| known == block.device).map(|at| at as u16);
        let (device, sectors) = {
            let fits = |bio: &Bio| {
                let same = bio.kind == block.kind() && bio.whole_bytes() == block.bytes;
                same && bio.issued != NEVER && self.devices[usize::from(bio.device)].major() == LOOP_MAJOR
            };
            let mut fitting = self.bios.rest_in_reserve().filter(|(_, bio)| fits(bio));
            let (at, bio) = fitting.next().filter(|_| fitting.next().is_none() && !self.bios.gave_up())?;
            if bio.split_of != NONE || lower.is_some_and(|lower| self.stack.is_above(at, bio.queued, lower)) {
                return None;
            }
            (self.devices[usize::from(bio.device)], bio.sector..bio.end())
        };
        self.below_loop(device, block.kind(), sectors, false)
    }

    /// Owners of the bios that were issued for these sectors.
    fn owners_at(&self, device: Device, kind: RequestKind, sectors: Range<u64>) -> Vec<u32> {
        let Some(device) = self.devices.iter().position(|&known| known == device) else { return Vec::new() };
        let place = Place::new(device as u16, kind);
        let mut owners = Vec::new();
        for (_, bio) in self.bios.rest_in_reserve().filter(|(_, bio)| bio.place == place && bio.issued != NEVER) {
            if bio.sector < sectors.end && sectors.start < bio.end() && !owners.contains(&bio.owner) {
                owners.push(bio.owner);
            }
        }
        owners
    }

    /// The next bio writes pages that a loop device's worker added to the page cache.
    fn below_cache(&mut self, device: Device) {
        let device = self.devices.iter().position(|&known| known == device).map(|at| at as u16);
        self.next_below(Vec::new(), device, (self.in_range, self.in_range));
    }
}

#[cfg(test)]
mod tests {
    use super::super::{BlockAnalysis, BlockFound, BlockSetup};
    use super::*;
    use crate::Analysis;
    use crate::testing::{self, event};
    use flashscope_trace::{BlockAction, EventKind};
    use serde_json::{Value, json};

    const DISK: Device = Device(0xfe0_0000);
    const LOOP: Device = Device(7 << 20);
    const WORKER: u32 = 7;

    fn block(action: BlockAction, device: Device, rwbs: &str, sector: u64, sectors: u64) -> EventKind {
        EventKind::Block(testing::block(action, device, rwbs, sector, sectors * 512))
    }

    /// A file of 1 MiB that lies at block 1000 of the disk; the loop device begins at its third block.
    fn found(facts: &Value, events: &[(u64, u32, EventKind)]) -> BlockFound {
        let names = |tid: TaskId, _| Some(["", "app", "other", "", "", "", "", "kworker/u8:1"][tid.0 as usize]);
        let mut analysis = BlockAnalysis::new(
            names,
            BlockSetup { loops: Loops::of_facts([&Facts::of(facts)]), ..BlockSetup::default() },
        );
        let extent = FileEvent { block: 1000, ..testing::file(FileStep::Extent, Some(DISK), 12, 0, 256) };
        analysis.event(&event(0, 1, EventKind::File(extent)));
        for (time, tid, kind) in events {
            analysis.event(&event(*time, *tid, kind.clone()));
        }
        analysis.finish()
    }

    fn facts(direct: u64) -> Value {
        let of = json!({"backing_file": "/image", "device": DISK.to_string(), "inode": 12, "offset": 8192, "direct_io": direct});
        json!({"block": [{"device": "7:0", "loop": of}]})
    }

    use BlockAction::{Complete, Issue, Queue};

    /// Two bios of two tasks in one request of the loop device, and a third elsewhere: one bio of the disk does the work of the two.
    fn reads() -> Vec<(u64, u32, EventKind)> {
        let sector = 1002 * 8;
        vec![
            (10, 1, block(Queue, LOOP, "R", 0, 8)),
            (20, 2, block(Queue, LOOP, "R", 8, 8)),
            (30, 2, block(Issue, LOOP, "R", 0, 16)),
            (50, WORKER, block(Queue, DISK, "R", sector, 24)),
            (60, WORKER, block(Issue, DISK, "R", sector, 24)),
            (160, WORKER, block(Complete, DISK, "R", sector, 24)),
            (200, WORKER, block(Complete, LOOP, "R", 0, 16)),
        ]
    }

    #[test]
    fn one_bio_of_the_disk_does_the_work_of_two_of_the_loop_device() {
        let found = found(&facts(0), &reads());
        assert_eq!((found.stages.bios_queued, found.stages.bios_below), (2.into(), 1.into()));
        let level = &found.stack[0];
        assert_eq!(
            (level.upper.as_str(), level.lower.as_str(), level.file.as_deref()),
            ("7:0", "254:0", Some("/image"))
        );
        assert_eq!((level.upper_bios, level.upper_bytes, level.lower_bios, level.lower_bytes), (2, 8192, 1, 12288));
        let means = [level.mean_down_ns, level.mean_below_ns, level.mean_up_ns, level.mean_q2c_ns];
        assert_eq!(means, [35, 110, 40, 185].map(Some));
        // The second came while the first was below.
        assert_eq!(level.alone.as_ref().map(|alone| alone.bios), Some(1));
        // It is of two tasks; each has its own bytes, once.
        let owners: Vec<_> =
            found.originators.originators.iter().map(|one| (one.name.as_str(), one.read_bytes)).collect();
        assert_eq!(owners, [("app (1)", 4096), ("other (2)", 4096)]);
        assert!(matches!(&found.loops[0].backing, Evidence::Known(file) if file.inode == 12 && !file.direct_io));
    }

    #[test]
    fn a_page_that_the_worker_dirtied_is_whose_the_loop_devices_bio_was() {
        let dirty = testing::file(FileStep::Dirtied, Some(DISK), 12, 8192, 4096);
        let events = [
            (10, 1, block(Queue, LOOP, "W", 0, 8)),
            (20, 1, block(Issue, LOOP, "W", 0, 8)),
            (30, WORKER, EventKind::File(dirty)),
            (40, WORKER, block(Complete, LOOP, "W", 0, 8)),
            (90, WORKER, block(Queue, DISK, "W", 1002 * 8, 8)),
            (95, WORKER, block(Issue, DISK, "W", 1002 * 8, 8)),
            (99, WORKER, block(Complete, DISK, "W", 1002 * 8, 8)),
        ];
        let found = found(&facts(0), &events);
        assert_eq!((found.stages.bios_queued, found.stages.bios_below), (1.into(), 1.into()));
        assert_eq!((found.stack[0].cached_bios, found.stack[0].cached_bytes), (1, 4096));
        let owners: Vec<_> =
            found.originators.originators.iter().map(|one| (one.name.as_str(), one.written_bytes)).collect();
        assert_eq!(owners, [("app (1)", 4096)]);
        let disk = found.groups.iter().find(|group| group.name == "app (1)").expect("a group");
        assert_eq!((disk.bios, disk.bytes), (1, 4096));
    }

    #[test]
    fn a_loop_device_without_facts_says_what_is_missing() {
        let found = found(&json!({}), &reads());
        assert_eq!((found.stages.bios_queued, found.stages.bios_below), (3.into(), 0.into()));
        assert!(found.stack.is_empty());
        let why = found.loops[0].backing.why().expect("a reason");
        assert!(why.missing.contains("backing file of loop device 7:0") && why.next.contains("block,cache"), "{why:?}");
    }
}
