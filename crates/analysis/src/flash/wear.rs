//! Wear in a trace: bytes written by each task, the pages and erases that they cause, and how evenly blocks are erased.
//!
//! - A page that is programmed while its thread writes a file back (`writeback_single_inode`) belongs to the tasks that wrote
//!   bytes to that file since the recording began; a page programmed within a task's own `write()` belongs to that task. Every
//!   other page belongs to its thread: garbage collection, a journal's commit, metadata.
//! - A `write()` ends with its system call's end (`--events syscall`); an `fsync()` is assumed to be of the file that its thread
//!   wrote last. Where system calls are not recorded, a write lasts until the thread's next step of a file.
//! - Bytes written to a file system without any programmed page (tmpfs, a disk) do not count as written to flash.
//! - An erase belongs to its thread: the kernel does not record the task for which a block is erased.
//!
//! Every program and every erase is counted once, under a task and (programs) under a file or under no file.

use super::{Geometry, MAX_TASKS, OTHER_TASKS};
use crate::bounded::{BoundedMap, Full};
use crate::clip::clip;
use crate::{Analysis, Lookup};
use flashscope_trace::{Device, Event, EventKind, FileEvent, FileId, FileStep, FlashOp, TaskId, TimeNs};
use foldhash::{HashMap, HashMapExt as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Most files; further ones are counted together.
pub const MAX_FILES: usize = 4096;
/// Most threads that write a file.
const MAX_THREADS: usize = 1 << 14;
/// Name for pages of files that several tasks wrote.
pub const SEVERAL_TASKS: &str = "(several tasks)";
/// Chips.
const MAX_CHIPS: usize = 64;
/// Most file systems.
const MAX_DEVICES: usize = 64;
/// Most files of one inode number, each on a device of its own.
const MAX_SAME: usize = 4;

/// Bytes that one task wrote, and the programs and erases they caused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct TaskWear {
    pub task: String,
    /// Bytes passed to `write()`, for files on flash.
    pub written_bytes: u64,
    pub programmed_pages: u64,
    pub erased_blocks: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct FileWear {
    /// "31:4"; `null` where only writeback named the file.
    pub device: Option<String>,
    pub inode: u64,
    /// The path, marked if the file was deleted or renamed: `/data/a (deleted)`; where the recording has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    pub written_bytes: u64,
    pub programmed_pages: u64,
}

/// Evenness of a chip's erases in this recording.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct EraseSpread {
    pub chip: u16,
    /// Blocks of the chip; 0 where it is not known.
    pub blocks: u32,
    pub erased_blocks: u64,
    pub erases: u64,
    pub most_of_a_block: u64,
    /// Over all blocks of the chip; where their number is not known, over those that were erased.
    pub mean: f64,
    pub standard_deviation: f64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct Wear {
    /// Bytes passed to `write()`, for files on flash; `null` where no writes of files were recorded (`--events cache`).
    pub written_bytes: Option<u64>,
    pub programmed_pages: u64,
    /// `null` where a chip's page size is not known.
    pub programmed_bytes: Option<u64>,
    pub erased_blocks: u64,
    pub erased_bytes: Option<u64>,
    /// Programmed divided by written bytes: the effect of compression, nodes' heads, journal and garbage collection.
    pub program_amplification: Option<f64>,
    /// Erased divided by programmed bytes.
    pub erase_amplification: Option<f64>,
    /// Most pages first.
    pub by_task: Vec<TaskWear>,
    /// Most pages first.
    pub by_file: Vec<FileWear>,
    /// Pages of no file: metadata, journal, garbage collection, raw writes.
    pub pages_of_no_file: u64,
    /// Pages of files beyond `MAX_FILES`.
    pub pages_of_further_files: u64,
    pub written_to_further_files_bytes: u64,
    /// Bytes written to file systems without any programmed page.
    pub written_elsewhere_bytes: u64,
    /// Steps of threads beyond the most, whose pages then count for no file.
    pub threads_not_followed: u64,
    /// Erases of blocks beyond the most: in no spread.
    #[serde(default)]
    pub erases_of_further_blocks: u64,
    pub spread: Vec<EraseSpread>,
    pub span_ns: u64,
}

/// Life time of a chip if the load of the recording continues.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct Life {
    pub chip: u16,
    /// Rated erase cycles of a block, as stated.
    pub endurance_cycles: u64,
    /// Erases of the most worn block before this recording (UBI's `max_ec`), else 0.
    pub used_cycles: u64,
    /// If wear levelling distributes all erases evenly.
    pub even_years: f64,
    /// If every block is erased as often as the most erased one.
    pub worst_block_years: f64,
}

/// Julian years.
const NS_PER_YEAR: f64 = 365.25 * 86400.0 * 1e9;

/// `None` for a chip without erases, or a recording without duration.
pub fn life(wear: &Wear, chip: u16, endurance_cycles: u64, used_cycles: u64) -> Option<Life> {
    let spread = wear.spread.iter().find(|spread| spread.chip == chip)?;
    if spread.erases == 0 || wear.span_ns == 0 {
        return None;
    }
    let left = endurance_cycles.saturating_sub(used_cycles) as f64;
    let years = wear.span_ns as f64 / NS_PER_YEAR;
    Some(Life {
        chip,
        endurance_cycles,
        used_cycles,
        even_years: left / spread.mean * years,
        worst_block_years: left / spread.most_of_a_block as f64 * years,
    })
}

#[derive(Default)]
struct OfFile {
    /// Index of the only task that wrote it; `None` where several did.
    writer: Option<usize>,
    written: u64,
    pages: u64,
}

/// A thread's current work on a file.
#[derive(Clone, Copy)]
struct Doing {
    file: FileId,
    writeback: bool,
}

#[derive(Default)]
struct OfTask {
    /// Bytes by device; there are few devices.
    written: Vec<(Option<Device>, u64)>,
    pages: u64,
    erases: u64,
}

impl OfTask {
    fn wrote(&mut self, device: Option<Device>, bytes: u64) {
        let at = self.written.iter().position(|(known, _)| *known == device);
        match at {
            Some(at) => self.written[at].1 = self.written[at].1.saturating_add(bytes),
            None if self.written.len() < MAX_DEVICES => self.written.push((device, bytes)),
            // Beyond the most devices, the rest is one sum.
            None => self.written[MAX_DEVICES - 1].1 = self.written[MAX_DEVICES - 1].1.saturating_add(bytes),
        }
    }
}

/// Folds file events and flash commands; reads them in order of time.
pub struct WearFold<L> {
    lookup: L,
    chips: BTreeMap<u16, (Geometry, u32)>,
    tasks: Vec<(String, OfTask)>,
    numbers: HashMap<String, usize>,
    files: BoundedMap<FileId, OfFile>,
    /// Files by inode number, one for each device.
    inodes: HashMap<u64, Vec<FileId>>,
    /// Devices of files with a programmed page, and devices that mounts show on raw flash.
    on_flash: BTreeSet<Device>,
    doing: BoundedMap<TaskId, Doing>,
    /// The file that a thread wrote to last.
    wrote: BoundedMap<TaskId, FileId>,
    erases: BTreeMap<u16, HashMap<u64, u64>>,
    /// Number of blocks in `erases`, of all chips.
    blocks_told: usize,
    pages: BTreeMap<u16, u64>,
    writes_seen: bool,
    time: Option<(u64, u64)>,
    found: Wear,
}

impl<L: Lookup<Name: AsRef<str>>> WearFold<L> {
    /// `chips`: number, shape, blocks (0: not known). `lookup`: the name of a thread at a time.
    pub fn new(chips: &[(u16, Geometry, u32)], lookup: L) -> Self {
        WearFold {
            lookup,
            chips: chips.iter().take(MAX_CHIPS).map(|&(chip, shape, blocks)| (chip, (shape, blocks))).collect(),
            tasks: Vec::new(),
            numbers: HashMap::new(),
            files: BoundedMap::new(MAX_FILES, Full::Refuse),
            inodes: HashMap::new(),
            on_flash: BTreeSet::new(),
            doing: BoundedMap::new(MAX_THREADS, Full::Refuse),
            wrote: BoundedMap::new(MAX_THREADS, Full::Refuse),
            erases: BTreeMap::new(),
            blocks_told: 0,
            pages: BTreeMap::new(),
            writes_seen: false,
            time: None,
            found: Wear::default(),
        }
    }

    /// Devices of the mounts that lie on raw flash, from the recording. JFFS2's pages may be programmed by other tasks, for no known file.
    /// And where no page is programmed at all, the written bytes are known, too.
    pub fn with_mounts_on(mut self, devices: &[Device]) -> Self {
        self.on_flash.extend(devices.iter().take(MAX_DEVICES));
        self
    }

    fn task(&mut self, tid: TaskId, time: TimeNs) -> usize {
        match (self.lookup)(tid, time) {
            Some(name) => self.number(clip(name.as_ref())),
            None => self.number(&format!("tid {tid}")),
        }
    }

    fn number(&mut self, name: &str) -> usize {
        if let Some(&number) = self.numbers.get(name) {
            return number;
        }
        // Two more names than tasks: the further tasks, and files of several.
        let name = match self.tasks.len() < MAX_TASKS || [OTHER_TASKS, SEVERAL_TASKS].contains(&name) {
            true => name,
            false => return self.number(OTHER_TASKS),
        };
        self.tasks.push((name.to_owned(), OfTask::default()));
        self.numbers.insert(name.to_owned(), self.tasks.len() - 1);
        self.tasks.len() - 1
    }

    fn file(&mut self, event: &FileEvent, tid: TaskId, time: TimeNs) {
        let file = event.file();
        match event.step {
            FileStep::Write | FileStep::WriteBegin | FileStep::Dirtied => {
                let task = self.task(tid, time);
                let bytes = if event.step.writes() { event.bytes } else { 0 };
                self.writes_seen |= event.step.writes();
                self.tasks[task].1.wrote(event.device, bytes);
                // A page that a write makes dirty was already counted at the write, which names its device.
                if event.device.is_some() || self.by_inode(event.inode).is_none() {
                    self.dirtied(file, task, bytes);
                }
                if event.step.writes() {
                    self.does(tid, Some(Doing { file, writeback: false }));
                    self.wrote.insert(tid, file);
                }
            }
            FileStep::WritebackBegin => {
                let file = if event.device.is_none() { self.by_inode(event.inode).unwrap_or(file) } else { file };
                self.does(tid, Some(Doing { file, writeback: true }));
            }
            FileStep::WritebackEnd | FileStep::Read | FileStep::Fault => self.does(tid, None),
            FileStep::Cached | FileStep::Uncached | FileStep::Extent | FileStep::Mapped | FileStep::Synced => {}
        }
    }

    /// The only file with that inode number; of several, the one on flash.
    fn by_inode(&self, inode: u64) -> Option<FileId> {
        let all = self.inodes.get(&inode)?;
        let on_flash = |file: &&FileId| file.device.is_some_and(|device| self.on_flash.contains(&device));
        match all.as_slice() {
            [one] => Some(*one),
            _ => match all.iter().filter(on_flash).collect::<Vec<_>>()[..] {
                [one] => Some(*one),
                _ => None,
            },
        }
    }

    fn dirtied(&mut self, file: FileId, task: usize, bytes: u64) {
        if !self.files.contains_key(&file) {
            if self.files.insert(file, OfFile { writer: Some(task), ..OfFile::default() }).is_some() {
                let sum = &mut self.found.written_to_further_files_bytes;
                *sum = sum.saturating_add(bytes);
                return;
            }
            let same = self.inodes.entry(file.inode).or_default();
            if same.len() < MAX_SAME {
                same.push(file);
            }
        }
        if let Some(of) = self.files.get_mut(&file) {
            of.written = of.written.saturating_add(bytes);
            if of.writer != Some(task) {
                of.writer = None;
            }
        }
    }

    fn does(&mut self, tid: TaskId, doing: Option<Doing>) {
        match doing {
            None => drop(self.doing.remove(&tid)),
            Some(doing) => drop(self.doing.insert(tid, doing)),
        }
    }

    fn programmed(&mut self, tid: TaskId, time: TimeNs) {
        let Some(Doing { file, writeback }) = self.doing.get(&tid).copied() else {
            let task = self.task(tid, time);
            self.tasks[task].1.pages += 1;
            self.found.pages_of_no_file += 1;
            return;
        };
        if let Some(device) = file.device
            && self.on_flash.len() < MAX_DEVICES
        {
            self.on_flash.insert(device);
        }
        let mut writer = None;
        if let Some(of) = self.files.entry(file, OfFile::default) {
            of.pages += 1;
            writer = (of.written > 0 || of.writer.is_some()).then_some(of.writer);
        } else {
            self.found.pages_of_further_files += 1;
        }
        let task = match writer {
            Some(Some(task)) if writeback => task,
            Some(None) if writeback => self.number(SEVERAL_TASKS),
            _ => self.task(tid, time),
        };
        self.tasks[task].1.pages += 1;
    }
}

impl<L: Lookup<Name: AsRef<str>>> Analysis for WearFold<L> {
    type Output = Wear;

    fn event(&mut self, event: &Event) {
        let now = event.time.0;
        let (low, high) = self.time.get_or_insert((now, now));
        (*low, *high) = (now.min(*low), now.max(*high));
        match &event.kind {
            EventKind::File(file) => self.file(file, event.tid, event.time),
            EventKind::Flash(access) if access.op == FlashOp::Program => {
                *self.pages.entry(access.chip).or_default() += 1;
                self.programmed(event.tid, event.time);
            }
            EventKind::Flash(access) if access.op == FlashOp::Erase => {
                let task = self.task(event.tid, event.time);
                self.tasks[task].1.erases += 1;
                let per_block = self.chips.get(&access.chip).map_or(1, |(shape, _)| shape.pages_per_block.max(1));
                let block = access.page / u64::from(per_block);
                let blocks = self.erases.entry(access.chip).or_default();
                if self.blocks_told < super::MAX_BLOCKS || blocks.contains_key(&block) {
                    let erases = blocks.entry(block).or_insert(0);
                    self.blocks_told += usize::from(*erases == 0);
                    *erases += 1;
                } else {
                    self.found.erases_of_further_blocks += 1;
                }
                self.found.erased_blocks += 1;
            }
            EventKind::Other { name, .. } if name.starts_with("sys_") => {
                let writes_back = self.doing.get(&event.tid).is_some_and(|doing| doing.writeback);
                // The thread is back in user space: its next writes belong to another call.
                if name.starts_with("sys_exit") && !writes_back {
                    self.does(event.tid, None);
                } else if matches!(name.as_str(), "sys_enter_fsync" | "sys_enter_fdatasync" | "sys_enter_msync") {
                    self.does(event.tid, self.wrote.get(&event.tid).map(|&file| Doing { file, writeback: false }));
                }
            }
            _ => {}
        }
    }

    fn finish(self) -> Wear {
        let mut wear = self.found;
        wear.threads_not_followed = self.doing.lost().max(self.wrote.lost());
        let on_flash = |device: &Option<Device>| device.is_none_or(|device| self.on_flash.contains(&device));
        let written = |all: &[(Option<Device>, u64)], here: bool| {
            all.iter()
                .filter(|(device, _)| on_flash(device) == here)
                .fold(0, |sum: u64, (_, bytes)| sum.saturating_add(*bytes))
        };
        let of_all = |here: bool| {
            let tasks = self.tasks.iter().map(|(_, of)| written(&of.written, here));
            tasks.fold(0, u64::saturating_add)
        };
        wear.written_bytes = self.writes_seen.then(|| of_all(true));
        wear.written_elsewhere_bytes = of_all(false);
        wear.span_ns = self.time.map_or(0, |(low, high)| high - low);
        wear.programmed_pages = self.pages.values().sum();
        let page: fn(Geometry) -> u64 = |shape| u64::from(shape.page_bytes);
        let block: fn(Geometry) -> u64 = |shape| u64::from(shape.page_bytes) * u64::from(shape.pages_per_block);
        let bytes = |chip: u16, n: u64, per: fn(Geometry) -> u64| n.checked_mul(per(self.chips.get(&chip)?.0));
        let sum = |sum: Option<u64>, more: Option<u64>| sum?.checked_add(more?);
        wear.programmed_bytes = self.pages.iter().map(|(chip, n)| bytes(*chip, *n, page)).fold(Some(0), sum);
        wear.erased_bytes =
            self.erases.iter().map(|(chip, of)| bytes(*chip, of.values().sum(), block)).fold(Some(0), sum);
        let over = |a: Option<u64>, b: Option<u64>| {
            a.zip(b).filter(|(_, b)| *b > 0).map(|(a, b)| (a as f64 / b as f64 * 1000.0).round() / 1000.0)
        };
        wear.program_amplification = over(wear.programmed_bytes, wear.written_bytes);
        wear.erase_amplification = over(wear.erased_bytes, wear.programmed_bytes);
        wear.by_task = self
            .tasks
            .iter()
            .map(|(task, of)| TaskWear {
                task: task.clone(),
                written_bytes: written(&of.written, true),
                programmed_pages: of.pages,
                erased_blocks: of.erases,
            })
            .filter(|of| of.written_bytes > 0 || of.programmed_pages > 0 || of.erased_blocks > 0)
            .collect();
        wear.by_task.sort_by(|a, b| {
            let key = |t: &TaskWear| std::cmp::Reverse((t.programmed_pages, t.written_bytes, t.erased_blocks));
            key(a).cmp(&key(b)).then_with(|| a.task.cmp(&b.task))
        });
        wear.by_file = self
            .files
            .iter()
            .filter(|(file, _)| on_flash(&file.device))
            .map(|(file, of)| FileWear {
                device: file.device.map(|device| device.to_string()),
                inode: file.inode,
                path: None,
                written_bytes: of.written,
                programmed_pages: of.pages,
            })
            .collect();
        wear.by_file.sort_by(|a, b| {
            let key = |f: &FileWear| std::cmp::Reverse((f.programmed_pages, f.written_bytes));
            key(a).cmp(&key(b)).then_with(|| (&a.device, a.inode).cmp(&(&b.device, b.inode)))
        });
        let no_erases = HashMap::new();
        let mut chips: Vec<u16> = self.chips.keys().chain(self.erases.keys()).copied().collect();
        chips.sort_unstable();
        chips.dedup();
        wear.spread = chips
            .into_iter()
            .map(|chip| {
                let blocks = self.chips.get(&chip).map_or(0, |(_, blocks)| *blocks);
                spread(chip, blocks, self.erases.get(&chip).unwrap_or(&no_erases))
            })
            .collect();
        wear
    }
}

fn spread(chip: u16, blocks: u32, erases: &HashMap<u64, u64>) -> EraseSpread {
    let all = u64::from(blocks).max(erases.len() as u64);
    let total: u64 = erases.values().sum();
    let mean = total as f64 / (all as f64).max(1.0);
    // In whole numbers first: the order of a hash map must not change a result.
    let squares: u128 = erases.values().map(|&n| u128::from(n) * u128::from(n)).sum();
    let variance = (squares as f64 / (all as f64).max(1.0) - mean * mean).max(0.0);
    EraseSpread {
        chip,
        blocks,
        erased_blocks: erases.len() as u64,
        erases: total,
        most_of_a_block: erases.values().copied().max().unwrap_or(0),
        mean,
        standard_deviation: variance.sqrt(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{access, event, file, flash};
    use flashscope_trace::FlashOp::{Erase, Program};

    const SHAPE: Geometry = Geometry { page_bytes: 2048, pages_per_block: 64 };
    const MTD: Option<Device> = Some(Device(0x1f0_0004));

    fn names(TaskId(tid): TaskId, _: TimeNs) -> Option<&'static str> {
        match tid {
            1 => Some("player"),
            2 => Some("logger"),
            7 => Some("kworker/u2:1"),
            8 => Some("jffs2_gcd_mtd4"),
            _ => None,
        }
    }

    fn step(time: u64, tid: u32, step: FileStep, device: Option<Device>, inode: u64, bytes: u64) -> Event {
        event(time, tid, EventKind::File(file(step, device, inode, 0, bytes)))
    }

    fn exit(time: u64, tid: u32) -> Event {
        event(time, tid, EventKind::Other { system: "raw_syscalls".into(), name: "sys_exit".into(), result: None })
    }

    fn run(events: &[Event]) -> Wear {
        let mut fold = WearFold::new(&[(0, SHAPE, 100)], names);
        events.iter().for_each(|e| fold.event(e));
        fold.finish()
    }

    #[test]
    fn a_page_in_a_write_is_the_tasks_and_the_files() {
        let wear = run(&[
            step(0, 1, FileStep::Write, MTD, 12, 4096),
            flash(1, 1, access(Program, 64)),
            flash(2, 1, access(Program, 65)),
            exit(3, 1),
            // unlink(): no file's.
            flash(4, 1, access(Program, 66)),
            // A log on tmpfs is no flash's.
            step(4, 2, FileStep::Write, Some(Device(25)), 12, 999),
            exit(4, 2),
            flash(5, 8, access(Program, 67)),
            flash(6, 8, access(Erase, 128)),
            flash(7, 8, access(Erase, 128)),
            flash(1_000_000_007, 8, access(Erase, 192)),
        ]);
        assert_eq!((wear.written_bytes, wear.programmed_pages, wear.erased_blocks), (Some(4096), 4, 3));
        assert_eq!((wear.programmed_bytes, wear.erased_bytes), (Some(8192), Some(3 * 131_072)));
        assert_eq!((wear.program_amplification, wear.erase_amplification), (Some(2.0), Some(48.0)));
        let task = |t: &TaskWear| (t.task.clone(), t.written_bytes, t.programmed_pages, t.erased_blocks);
        assert_eq!(
            wear.by_task.iter().map(task).collect::<Vec<_>>(),
            [("player".into(), 4096, 3, 0), ("jffs2_gcd_mtd4".into(), 0, 1, 3)]
        );
        assert_eq!(
            wear.by_file,
            [FileWear { device: Some("31:4".into()), inode: 12, path: None, written_bytes: 4096, programmed_pages: 2 }]
        );
        assert_eq!((wear.pages_of_no_file, wear.written_elsewhere_bytes), (2, 999));
        let [spread] = wear.spread.as_slice() else { panic!("{:?}", wear.spread) };
        assert_eq!((spread.erased_blocks, spread.erases, spread.most_of_a_block, spread.mean), (2, 3, 2, 0.03));
        let life = life(&wear, 0, 100_000, 50_000).unwrap();
        let a_year = NS_PER_YEAR / 1_000_000_007.0;
        assert!((life.even_years * a_year / (50_000.0 / 0.03) - 1.0).abs() < 1e-9, "{life:?}");
        assert!((life.worst_block_years * a_year / 25_000.0 - 1.0).abs() < 1e-9, "{life:?}");
    }

    #[test]
    fn what_is_written_back_belongs_to_the_writers_of_the_file() {
        let ubifs = Some(Device(17));
        let wear = run(&[
            step(0, 1, FileStep::Write, ubifs, 65, 8192),
            // The page becomes dirty in the same call; the event names no device.
            step(1, 1, FileStep::Dirtied, None, 65, 4096),
            exit(2, 1),
            step(3, 1, FileStep::Write, ubifs, 66, 100),
            step(4, 2, FileStep::Write, ubifs, 66, 100),
            step(5, 7, FileStep::WritebackBegin, None, 65, 0),
            flash(6, 7, access(Program, 1)),
            step(7, 7, FileStep::WritebackEnd, None, 65, 0),
            step(8, 7, FileStep::WritebackBegin, None, 66, 0),
            flash(9, 7, access(Program, 2)),
            step(10, 7, FileStep::WritebackEnd, None, 66, 0),
            flash(11, 7, access(Program, 3)),
            // The file it wrote last.
            event(12, 1, EventKind::Other { system: "syscalls".into(), name: "sys_enter_fsync".into(), result: None }),
            flash(13, 1, access(Program, 4)),
            exit(14, 1),
            flash(15, 1, access(Program, 5)),
        ]);
        let pages = |name: &str| wear.by_task.iter().find(|t| t.task == name).map_or(0, |t| t.programmed_pages);
        assert_eq!((pages("player"), pages(SEVERAL_TASKS), pages("kworker/u2:1"), pages("logger")), (3, 1, 1, 0));
        assert_eq!(wear.by_file.iter().map(|f| (f.inode, f.programmed_pages)).collect::<Vec<_>>(), [(66, 2), (65, 1)]);
        assert_eq!(wear.written_bytes, Some(8392));
        assert_eq!(wear.programmed_pages, wear.by_task.iter().map(|t| t.programmed_pages).sum::<u64>());
    }

    /// A `sync` of another task programs what was written to JFFS2; of another recording nothing was programmed yet.
    #[test]
    fn a_mount_tells_that_files_lie_on_flash() {
        let device = Device(31);
        for (pages, times) in [(0, 0.0), (8, 4.0)] {
            let mut fold = WearFold::new(&[(0, SHAPE, 100)], names).with_mounts_on(&[device]);
            fold.event(&step(0, 1, FileStep::Write, Some(device), 12, 4096));
            fold.event(&exit(1, 1));
            (0..pages).for_each(|page| fold.event(&flash(2 + page, 9, access(Program, page))));
            let wear = fold.finish();
            assert_eq!((wear.written_bytes, wear.written_elsewhere_bytes), (Some(4096), 0));
            assert_eq!(wear.program_amplification, Some(times));
        }
    }

    #[test]
    fn nothing_is_said_that_was_not_recorded() {
        let mut fold = WearFold::new(&[], names);
        fold.event(&flash(0, 8, access(Program, 1)));
        let wear = fold.finish();
        assert_eq!((wear.written_bytes, wear.programmed_bytes, wear.program_amplification), (None, None, None));
        assert!(wear.spread.is_empty() && life(&wear, 0, 1000, 0).is_none());
    }

    #[test]
    fn erases_of_too_many_blocks_are_counted() {
        let mut fold = WearFold::new(&[], |_, _| None::<&str>);
        for block in 0..super::super::MAX_BLOCKS as u64 + 5 {
            fold.event(&flash(block, 1, access(Erase, block)));
            fold.event(&flash(block, 1, access(Erase, 0)));
        }
        let wear = fold.finish();
        assert_eq!((wear.erases_of_further_blocks, wear.spread[0].erased_blocks), (5, super::super::MAX_BLOCKS as u64));
    }

    /// Two writes of nearly all bytes that there are numbers for.
    #[test]
    fn sums_of_bytes_do_not_overflow() {
        let mut fold = WearFold::new(&[], |_, _| None::<&str>);
        for (tid, device) in [(1, 1), (1, 1), (2, 2)] {
            fold.event(&step(0, tid, FileStep::Write, Some(Device(device)), 5, u64::MAX - 1));
        }
        assert_eq!(fold.finish().written_elsewhere_bytes, u64::MAX);
    }

    #[test]
    fn too_many_files_tasks_and_threads_are_counted() {
        let mut fold = WearFold::new(&[(0, SHAPE, 100)], |tid, _| Some(format!("t{tid}")));
        let threads = MAX_THREADS as u32 + 10;
        for i in 0..threads {
            fold.event(&step(0, i, FileStep::Write, MTD, u64::from(i), 1));
            fold.event(&flash(0, i, access(Program, 0)));
        }
        let wear = fold.finish();
        assert_eq!(wear.written_bytes, Some(u64::from(threads)));
        assert_eq!(wear.by_file.len(), MAX_FILES);
        assert_eq!(wear.written_to_further_files_bytes, u64::from(threads) - MAX_FILES as u64);
        assert_eq!(wear.threads_not_followed, 10);
        assert_eq!(wear.by_task.iter().map(|t| t.programmed_pages).sum::<u64>(), u64::from(threads));
        assert!(wear.by_task.len() <= MAX_TASKS + 2);
        let of_files: u64 = wear.by_file.iter().map(|f| f.programmed_pages).sum();
        assert_eq!(of_files + wear.pages_of_further_files + wear.pages_of_no_file, u64::from(threads));
    }
}
