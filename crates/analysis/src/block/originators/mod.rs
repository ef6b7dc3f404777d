//! Originators of I/O: the task that caused it, not the task that carried it.
//!
//! - A read, and a direct or synchronous write, is queued by the task that requests it: the originator is the carrier.
//! - A page that a task wrote in the page cache is written to the device by any flusher: a kworker, an `fsync` of another task,
//!   the journal. A write bio's sectors lead through the file system's extents to the pages of a file, and a page leads to
//!   the task that dirtied it; where several did before it was written, it is shared. Where no extents are recorded, the
//!   file that the carrier writes back (`writeback_single_inode`) names the originator, if only one task dirtied its pages.
//! - All other I/O of a file system's own threads counts for them: the journal, garbage collection, metadata.
//! - Any other kernel thread is only a carrier: the originator is unknown, and is counted so.
//!
//! The unit is the page. A bio of several originators counts for each by its bytes.

mod direct;
mod former;
mod found;
mod owner_cache;

use direct::{Direct, Way};
pub use direct::{DirectBytes, DirectUse};
pub use former::FormerName;
use former::FormerNames;
use found::Moved;
pub use found::{CarriedBytes, FileBytes, Originator, OriginatorsFound, OwnerKind, WrittenSums};

use super::sizes::Sizes;
use crate::bounded::{BoundedMap, Full, MOST_PIECES, Ranges};
use crate::kernel_threads::{is_carrier, role};
use crate::{Lookup, Named, task_label};
use flashscope_trace::{BlockEvent, Device, FileEvent, FileId, FileStep, RequestFlags, RequestKind, TaskId, TimeNs};
use foldhash::{HashMap, HashMapExt as _, HashSet, HashSetExt as _};
use owner_cache::OwnerCache;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Most runs of dirty pages of one owner; below: most extents. Beyond, the oldest are forgotten.
const MAX_RUNS: usize = 1 << 18;
const MAX_EXTENTS: usize = 1 << 18;
/// Most owners with names of their own.
const MAX_OWNERS: usize = 4096;
/// Most files, and most files whose bytes are counted.
const MAX_FILES: usize = 1 << 16;
/// Most carriers that write files back at one time.
const MAX_CARRIERS: usize = 1024;
/// Most partitions; below: most partitions before a sector that are checked for it, since devices above partitions may begin close
/// to one another.
const MAX_PARTITIONS: usize = 1024;
const NEAR_PARTITIONS: usize = 4;
/// Most pairs of an originator and a carrier with a count of their own.
const MAX_PAIRS: usize = 1 << 16;
/// Most threads with a cached owner.
const MAX_RECENT: usize = 1 << 16;
/// Thread numbers from here on stand for owners that are no task.
const NOBODY: TaskId = TaskId(u32::MAX - 2);
/// Whose pages lie in more pieces of one bio than are followed.
pub const IN_PIECES: &str = "(in too many pieces)";
/// Stands for the carriers beyond [`MAX_PAIRS`].
const OTHER_CARRIERS: u32 = u32::MAX;

/// The owner that a thread counts for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Who {
    owner: u32,
    /// It carries I/O of others.
    carries: bool,
    /// Its name at that time, where it had another one later: a number of [`FormerNames`], or 0.
    former: u32,
}

#[derive(Clone, Copy, PartialEq)]
struct Dirty {
    /// 0 where it is shared.
    owner: u32,
    /// The name of the owner then, as in [`Who`].
    former: u32,
    shared: bool,
    /// At least a part of it is being written: the next task that dirties it becomes its only owner.
    written: bool,
    /// All of it was written since, so it is clean.
    clean: bool,
    /// A loop device's worker wrote the bytes, for a bio of that device.
    by_loop: bool,
}

#[derive(Clone, Copy)]
pub(super) struct Extent {
    blocks: u64,
    pub(super) inode: u64,
    /// First block of the file.
    logical: u64,
}

impl Dirty {
    fn by(owner: u32, former: u32) -> Dirty {
        Dirty { owner, former, shared: false, written: false, clean: false, by_loop: false }
    }

    /// Adds another write. At its end a write makes its page dirty, which counts as no second task.
    fn again(self, by: Dirty) -> Dirty {
        let shared = self.shared || by.shared || self.owner != by.owner;
        let (owner, former) = if shared { (0, 0) } else { (self.owner, by.former) };
        Dirty { owner, former, shared, by_loop: self.by_loop && by.by_loop, ..self }
    }
}

/// The content of a device at a byte.
pub(super) enum At {
    /// A file: the byte in it, and how many bytes of it follow there.
    File(FileId, u64, u64),
    /// No known file, for so many bytes.
    Unknown(u64),
}

struct Owner {
    name: String,
    kind: OwnerKind,
    tid: TaskId,
    /// Its ordinal among tasks with this number and name, from 1.
    ordinal: u32,
    /// State of its task at its last bio.
    is_user: bool,
    is_carrier: bool,
    /// The user selected it under another of its names.
    is_wanted: bool,
}

/// Bytes of one write by owner.
#[derive(Default)]
struct BytesByOwner {
    bytes: BTreeMap<u32, u64>,
    /// Of these, by owner and former name.
    former: BTreeMap<(u32, u32), u64>,
    pieces: usize,
    /// Of these, bytes that a loop device's worker wrote into the page cache, by owner.
    by_loop: BTreeMap<u32, u64>,
}

impl BytesByOwner {
    fn add(&mut self, owner: u32, bytes: u64) {
        self.pieces += 1;
        let sum = self.bytes.entry(owner).or_default();
        *sum = sum.saturating_add(bytes);
    }

    /// The same of an owner that had another name then, unless `former` is 0.
    fn add_of(&mut self, owner: u32, former: u32, bytes: u64) {
        self.add(owner, bytes);
        if former > 0 {
            let sum = self.former.entry((owner, former)).or_default();
            *sum = sum.saturating_add(bytes);
        }
    }
}

/// Follows pages of files from the task that dirties them to the task that writes them.
pub(super) struct Originators<L> {
    lookup: L,
    /// Tasks that are no kernel threads, whatever their names.
    users: HashSet<TaskId>,
    owners: Vec<Owner>,
    ids: HashMap<(TaskId, u32, String), u32>,
    owner_cache: OwnerCache,
    /// The last owner of each thread, at any time.
    recent: HashMap<TaskId, u32>,
    /// Dirty pages of each file.
    dirty: Ranges<FileId, Dirty>,
    /// Extents by device and first block.
    pub(super) extents: BoundedMap<(Device, u64), Extent>,
    /// Tasks that dirtied a file since it was last written back: one, or several.
    files: BoundedMap<FileId, Dirty>,
    /// The file that a carrier writes back.
    writing: BoundedMap<TaskId, FileId>,
    /// The file that a thread reads; empty where the trace has no files.
    reading: BoundedMap<TaskId, FileId>,
    direct: Direct,
    /// Whether the trace has pages that become dirty.
    shows_dirtied: bool,
    /// First sectors of partitions; below: partitions by whole device and first sector.
    partitions: BoundedMap<Device, (Device, u64)>,
    by_sector: BTreeSet<(Device, u64, Device)>,
    sizes: Sizes,
    /// Bytes read, written and covered, by owner and carrier.
    bytes: HashMap<(u32, u32), [u64; 3]>,
    former: FormerNames,
    file_bytes: BoundedMap<FileId, u64>,
    /// Whether bytes that are queued now are counted.
    pub counts: bool,
    /// File of the last write, if all of it was dirtied for bios of a loop device: its bytes count there.
    pub by_loop: Option<FileId>,
    found: OriginatorsFound,
    written: WrittenSums,
}

impl<L: Lookup<Name: Named>> Originators<L> {
    /// `lookup` returns a thread's name.
    pub fn new(lookup: L, sizes: Sizes) -> Self {
        Originators {
            lookup,
            users: HashSet::new(),
            owners: Vec::new(),
            ids: HashMap::new(),
            owner_cache: OwnerCache::default(),
            recent: HashMap::new(),
            dirty: Ranges::new(MAX_RUNS, Full::ForgetOldest),
            extents: BoundedMap::new(MAX_EXTENTS, Full::ForgetOldest),
            files: BoundedMap::new(MAX_FILES, Full::Refuse),
            writing: BoundedMap::new(MAX_CARRIERS, Full::Refuse),
            reading: BoundedMap::new(MAX_RECENT, Full::ForgetOldest),
            direct: Direct::default(),
            shows_dirtied: false,
            partitions: BoundedMap::new(MAX_PARTITIONS, Full::Refuse),
            by_sector: BTreeSet::new(),
            sizes,
            bytes: HashMap::new(),
            former: FormerNames::default(),
            file_bytes: BoundedMap::new(MAX_FILES, Full::Refuse),
            counts: true,
            by_loop: None,
            found: OriginatorsFound::default(),
            written: WrittenSums::default(),
        }
    }

    /// The number of an owner; the last one is for all beyond the most.
    pub(super) fn id(&mut self, tid: TaskId, name: &str, kind: OwnerKind) -> u32 {
        self.id_of((tid, 1), name, kind)
    }

    /// The same for one of several tasks with this number and name.
    fn id_of(&mut self, (tid, ordinal): (TaskId, u32), name: &str, kind: OwnerKind) -> u32 {
        if let Some(&id) = self.recent.get(&tid)
            && let Some(owner) = self.owners.get(id as usize)
            && (owner.name.as_str(), owner.kind, owner.tid, owner.ordinal) == (name, kind, tid, ordinal)
        {
            return id;
        }
        if self.recent.len() >= MAX_RECENT {
            self.recent.clear();
        }
        let key = (tid, ordinal, name.to_owned());
        if let Some(&id) = self.ids.get(&key) {
            self.recent.insert(tid, id);
            return id;
        }
        if self.owners.len() >= MAX_OWNERS {
            return MAX_OWNERS as u32 - 1;
        }
        let (name, tid) = match self.owners.len() {
            n if n == MAX_OWNERS - 1 => ("(further tasks)".to_owned(), TaskId(0)),
            _ => (key.2.clone(), tid),
        };
        let id = self.owners.len() as u32;
        self.owners.push(Owner { name, kind, tid, ordinal, is_user: false, is_carrier: false, is_wanted: false });
        self.ids.insert(key, id);
        self.recent.insert(tid, id);
        id
    }

    /// Another recording begins: whose its pages are, and where its files lie, it shows itself.
    pub fn recording_begins(&mut self) {
        self.dirty = Ranges::new(MAX_RUNS, Full::ForgetOldest);
        self.extents.clear();
        self.files.clear();
        self.writing.clear();
        self.reading.clear();
        self.direct.recording_begins();
    }

    /// This task is a user's: it made a system call, or the trace has its clone or its `exec`.
    pub fn is_user(&mut self, tid: TaskId) {
        if self.users.len() < MAX_RECENT && self.users.insert(tid) {
            self.owner_cache.forget(tid);
        }
    }

    /// A system call begins or ends.
    pub fn call(&mut self, event: &str, tid: TaskId) {
        if event.starts_with("sys_") {
            if event.starts_with("sys_enter") {
                self.is_user(tid);
            }
            self.direct.call(event, tid);
        }
    }

    /// The owner that a thread counts for, and whether it carries others' I/O.
    #[inline]
    pub(super) fn task(&mut self, tid: TaskId, time: TimeNs) -> (u32, bool) {
        let who = self.who(tid, time);
        (who.owner, who.carries)
    }

    #[inline]
    fn who(&mut self, tid: TaskId, time: TimeNs) -> Who {
        self.owner_cache.get(tid, time.0).unwrap_or_else(|| self.ask(tid, time))
    }

    fn ask(&mut self, tid: TaskId, time: TimeNs) -> Who {
        let named = (self.lookup)(tid, time);
        let former =
            named.as_ref().and_then(Named::former_name).map_or(0, |name| self.former.number(super::clip(name)));
        let is_wanted = named.as_ref().is_some_and(Named::is_wanted);
        let key = named.as_ref().and_then(Named::key).unwrap_or(tid);
        let ordinal = named.as_ref().map_or(1, Named::ordinal);
        let name = match &named {
            Some(named) => named.name(),
            // Process 0 is the idle task.
            None if tid == TaskId(0) => "swapper/0",
            None => "",
        };
        let is_user = self.users.contains(&tid);
        // Almost always it has the owner of its last bio.
        if let Some(&id) = self.recent.get(&tid)
            && let Some(owner) = self.owners.get(id as usize)
            && (owner.tid, owner.ordinal) == (key, ordinal)
            && owner.is_user == is_user
            && owner.is_wanted == is_wanted
            // The submitter of an io_uring worker may be named later.
            && (owner.kind != OwnerKind::Unknown || !name.starts_with("iou-"))
            && owner.name == super::clip(name)
        {
            let who = Who { owner: id, carries: owner.is_carrier, former };
            if key == tid && !name.starts_with("iou-") {
                self.owner_cache.put(tid, named.as_ref().map_or(0..0, Named::holds), who);
            }
            return who;
        }
        let name = if name.is_empty() { format!("tid {tid}") } else { super::clip(name).to_owned() };
        // io_uring/io-wq.c, io_wq_worker() and sqpoll.c, io_sq_thread() (6.1): a worker has the number of the task that it works for.
        let of = name.strip_prefix("iou-wrk-").or(name.strip_prefix("iou-sqp-"));
        let submitter = of.and_then(|of| of.parse().ok()).map(TaskId);
        if let Some(submitter) = submitter.filter(|&of| of != tid && of != TaskId(0)) {
            if (self.lookup)(submitter, time).is_some_and(|named| !named.name().starts_with("iou-")) {
                return self.who(submitter, time);
            }
            return Who { owner: self.id(tid, &name, OwnerKind::Unknown), carries: true, former };
        }
        let carrier = !is_user && is_carrier(&name);
        let kind = match role(&name).filter(|_| !is_user) {
            Some(_) => OwnerKind::Kernel,
            None if carrier => OwnerKind::Unknown,
            None => OwnerKind::Task,
        };
        let id = self.id_of((key, ordinal), &name, kind);
        // The last owner is kept by thread, not by the owner's number.
        self.recent.insert(tid, id);
        if let Some(owner) = self.owners.get_mut(id as usize) {
            (owner.is_user, owner.is_carrier, owner.is_wanted) = (is_user, carrier, is_wanted);
        }
        Who { owner: id, carries: carrier, former }
    }

    /// The thread that issues a request whose queueing is not in this trace.
    pub fn issuer(&mut self, tid: TaskId, time: TimeNs) -> u32 {
        self.task(tid, time).0
    }

    /// Whether an owner is a kernel thread with work of its own, such as a journal.
    pub fn is_kernels_own(&self, owner: u32) -> bool {
        self.owners.get(owner as usize).is_some_and(|owner| owner.kind == OwnerKind::Kernel)
    }

    /// An owner's thread; 0: it has none.
    pub fn task_of(&self, owner: u32) -> TaskId {
        self.owners.get(owner as usize).map_or(TaskId(0), |owner| owner.tid)
    }

    /// An owner's ordinal among tasks with its number and name, where it is not the first.
    pub fn ordinal(&self, owner: u32) -> Option<u32> {
        self.owners.get(owner as usize).map(|owner| owner.ordinal).filter(|&ordinal| ordinal > 1)
    }

    /// An owner's name (a role's own), kind and thread; `None` where there is no such owner.
    pub fn owner(&self, owner: u32) -> Option<(Cow<'_, str>, OwnerKind, Option<TaskId>)> {
        let owner = self.owners.get(owner as usize)?;
        let tid = Some(owner.tid).filter(|&tid| tid != TaskId(0) && tid < NOBODY);
        let name = match role(&owner.name).filter(|_| owner.kind == OwnerKind::Kernel) {
            Some(role) => Cow::Owned(format!("{role} [{}]", owner.name)),
            None => Cow::Borrowed(owner.name.as_str()),
        };
        Some((name, owner.kind, tid))
    }

    /// An owner's name in a report: a role's own name, a task with its number.
    pub fn name(&self, owner: u32) -> String {
        match self.owners.get(owner as usize) {
            None if owner == OTHER_CARRIERS => "(further carriers)".to_owned(),
            None => "(nobody)".to_owned(),
            Some(owner) => match (role(&owner.name).filter(|_| owner.kind == OwnerKind::Kernel), owner.kind) {
                (Some(role), _) => format!("{role} [{}]", owner.name),
                (None, OwnerKind::Shared) => owner.name.clone(),
                (None, _) if owner.tid == TaskId(0) || owner.tid >= NOBODY => owner.name.clone(),
                // A task without a name already has its number as its name.
                (None, _) if owner.name == format!("tid {}", owner.tid) => owner.name.clone(),
                (None, _) => task_label(&owner.name, owner.tid, owner.ordinal),
            },
        }
    }

    /// Whether a process has this name, or the user selected it under another of its names.
    pub fn is_called(&self, owner: u32, name: &str) -> bool {
        self.owners.get(owner as usize).is_some_and(|owner| owner.name == name || owner.is_wanted)
    }

    fn shared(&mut self) -> u32 {
        self.id(TaskId(u32::MAX), "(shared page)", OwnerKind::Shared)
    }

    /// Takes a step of a file.
    pub fn file(&mut self, event: &FileEvent, tid: TaskId, time: TimeNs) {
        let Some(device) = event.device else { return };
        match event.step {
            FileStep::Write | FileStep::WriteBegin | FileStep::Dirtied => {
                let Who { owner, carries: carrier, former } = self.who(tid, time);
                let mmap = event.step == FileStep::Dirtied;
                self.shows_dirtied |= mmap;
                self.direct.step(event.file(), tid);
                // A kernel thread dirties pages only of its own metadata.
                if carrier && mmap {
                    return;
                }
                self.dirtied(event, Dirty::by(owner, former));
            }
            FileStep::WritebackBegin => {
                self.writing.insert(tid, event.file());
            }
            FileStep::WritebackEnd => {
                // ext4's own begin and end lie within the kernel's: the outer end comes last.
                self.writing.remove(&tid);
            }
            FileStep::Extent => self.extent(device, event),
            FileStep::Read | FileStep::Fault | FileStep::Cached => {
                self.direct.step(event.file(), tid);
                if self.reading.get(&tid) != Some(&event.file()) {
                    self.direct.uses(event.file(), tid);
                    self.reading.insert(tid, event.file());
                }
            }
            FileStep::Uncached | FileStep::Mapped | FileStep::Synced => {}
        }
    }

    /// A loop device's worker dirties its backing file, for a bio of this owner.
    pub fn dirtied_for(&mut self, event: &FileEvent, owner: u32) {
        if event.device.is_some() {
            self.dirtied(event, Dirty { by_loop: true, ..Dirty::by(owner, 0) });
        }
    }

    fn dirtied(&mut self, event: &FileEvent, by: Dirty) {
        let file = event.file();
        let first = event.offset / self.sizes.page();
        let last = event.offset.saturating_add(event.bytes.max(1) - 1) / self.sizes.page();
        let (pages, mmap) = (first..last.saturating_add(1), event.step == FileStep::Dirtied);
        if let Some(whole) = self.files.entry(file, || by) {
            *whole = whole.again(by);
        }
        let given_up = &mut self.found.pages_given_up;
        let change = |_: Range<u64>, there: Option<Dirty>| match there {
            Some(dirty) if dirty.written => Some(by),
            Some(dirty) if mmap => Some(dirty),
            Some(dirty) => Some(dirty.again(by)),
            None => Some(by),
        };
        let end = pages.end;
        let mut forgotten = 0_u64;
        let reached = self.dirty.update(file, pages, change, |_, pages, dirty| {
            forgotten = forgotten.saturating_add(if dirty.written { 0 } else { pages.end - pages.start });
        });
        *given_up = given_up.saturating_add(forgotten).saturating_add(end - reached);
    }

    fn extent(&mut self, device: Device, event: &FileEvent) {
        let (begin, end) = (event.block, event.block.saturating_add(event.bytes));
        if end == begin {
            return;
        }
        // Extents that lay there before are invalid now.
        let before = self.extents.range((device, 0)..(device, begin)).next_back();
        let before = before.filter(|((_, at), extent)| at.saturating_add(extent.blocks) > begin);
        let within = self.extents.range((device, begin)..(device, end));
        let stale: Vec<((Device, u64), Extent)> =
            before.into_iter().chain(within).map(|(&at, &old)| (at, old)).collect();
        for ((_, at), old) in stale {
            self.extents.remove(&(device, at));
            if at < begin {
                self.extents.insert((device, at), Extent { blocks: begin - at, ..old });
            }
            if at.saturating_add(old.blocks) > end {
                let cut = end - at;
                let logical = old.logical.saturating_add(cut);
                self.extents.insert((device, end), Extent { blocks: old.blocks - cut, logical, ..old });
            }
        }
        let new = Extent { blocks: end - begin, inode: event.inode, logical: event.offset };
        // Without delayed allocation each block comes alone: a bio of many of them would have too many pieces.
        let before = self.extents.range((device, 0)..(device, begin)).next_back().map(|(&(_, at), &old)| (at, old));
        let continues = |(at, old): &(u64, Extent)| {
            at.checked_add(old.blocks) == Some(begin)
                && old.inode == new.inode
                && old.logical.checked_add(old.blocks) == Some(new.logical)
        };
        match before.filter(continues) {
            Some((at, old)) => {
                self.extents.insert((device, at), Extent { blocks: old.blocks.saturating_add(new.blocks), ..old });
            }
            None => {
                self.extents.insert((device, begin), new);
            }
        }
    }

    /// Learns a partition's first sector from a remap of its bios.
    pub fn remapped(&mut self, device: Device, from: Device, sector: u64, from_sector: u64) {
        let Some(begin) = sector.checked_sub(from_sector) else { return };
        let old = self.partitions.get(&from).copied();
        if old == Some((device, begin)) || self.partitions.insert(from, (device, begin)).is_some() {
            return;
        }
        if let Some((device, begin)) = old {
            self.by_sector.remove(&(device, begin, from));
        }
        self.by_sector.insert((device, begin, from));
    }

    /// The content of a device at a byte.
    pub(super) fn at(&self, device: Device, byte: u64) -> At {
        let own = self.on_file_system(device, byte);
        let At::Unknown(mut nothing) = own else { return own };
        // The file system may lie on a partition of this device.
        let sector = byte / 512;
        let before = self.by_sector.range((device, 0, Device(0))..=(device, sector, Device(u32::MAX))).rev();
        for &(_, begin, part) in before.take(NEAR_PARTITIONS) {
            match self.on_file_system(part, byte.saturating_sub(begin.saturating_mul(512))) {
                At::Unknown(bytes) => nothing = nothing.min(bytes),
                file @ At::File(..) => return file,
            }
        }
        let end = (device, u64::MAX, Device(u32::MAX));
        let next = self.by_sector.range((device, sector.saturating_add(1), Device(0))..=end).next();
        At::Unknown(next.map_or(nothing, |&(_, begin, _)| nothing.min(begin.saturating_mul(512) - byte)))
    }

    /// The same for the file system on a device or partition.
    fn on_file_system(&self, device: Device, byte: u64) -> At {
        let unit = self.sizes.block(device);
        let block = byte / unit;
        if let Some((&(_, first), extent)) = self.extents.range((device, 0)..=(device, block)).next_back() {
            let into = byte - first.saturating_mul(unit).min(byte);
            let whole = extent.blocks.saturating_mul(unit);
            if into < whole {
                let at = extent.logical.saturating_mul(unit).saturating_add(into);
                return At::File(FileId::on(device, extent.inode), at, whole - into);
            }
        }
        let next = self.extents.range((device, block.saturating_add(1))..=(device, u64::MAX)).next();
        At::Unknown(next.map_or(u64::MAX, |(&(_, first), _)| first.saturating_mul(unit).saturating_sub(byte).max(1)))
    }

    /// The file of a bio that this thread queues, as far as known: from the file system's extents at its first
    /// byte; else, for data, the file that the thread reads or writes back on this device.
    pub fn file_of(&self, block: &BlockEvent, tid: TaskId) -> Option<FileId> {
        if self.extents.is_empty() && self.reading.is_empty() && self.writing.is_empty() {
            return None;
        }
        if let At::File(file, ..) = self.at(block.device, block.sector.saturating_mul(512)) {
            return Some(file);
        }
        if block.flags.has(RequestFlags::META) {
            return None;
        }
        let files = match block.flags.kind() {
            RequestKind::Write => &self.writing,
            RequestKind::Read => &self.reading,
            // The file that a thread reads is not the file whose blocks it discards.
            _ => return None,
        };
        let on = |device: Device| {
            let whole = self.partitions.get(&device).map(|(whole, _)| *whole);
            device == block.device || whole == Some(block.device)
        };
        files.get(&tid).copied().filter(|file| file.device.is_some_and(on))
    }

    /// The owner of a bio that this thread queues. Its bytes are counted.
    pub fn queue(&mut self, block: &BlockEvent, tid: TaskId, time: TimeNs) -> u32 {
        let who = self.who(tid, time);
        let (carrier, is_carrier) = (who.owner, who.carries);
        let moved = Moved::of(block.flags.kind());
        let write = block.flags.kind() == RequestKind::Write;
        // The place of a zone append is known only at its completion. Without extents, a task's own write is its own.
        if !write || self.extents.is_empty() && !is_carrier {
            if write {
                self.by_loop = None;
            }
            if matches!(moved, Moved::Read | Moved::Written) && !is_carrier {
                self.past_cache(block, tid, carrier);
            }
            self.count(carrier, carrier, block.bytes, moved);
            self.count_former((carrier, who.former), block.bytes, moved);
            return carrier;
        }
        let mut by_owner = BytesByOwner::default();
        let begin = block.sector.saturating_mul(512);
        let mut at = begin;
        let end = begin.saturating_add(block.bytes);
        let mut of = None;
        while at < end {
            let bytes = match self.at(block.device, at) {
                At::Unknown(bytes) => {
                    let ((owner, former), bytes) = (self.unmapped(block, tid, who), bytes.min(end - at));
                    by_owner.add_of(owner, former, bytes);
                    if !is_carrier && !block.flags.has(RequestFlags::META) && self.counts {
                        let way = self.direct.way(None, true, tid);
                        self.direct.count((block.device, None), owner, true, way, bytes);
                    }
                    if is_carrier
                        && let Some(&file) = self.writing.get(&tid).filter(|file| self.files.contains_key(file))
                    {
                        self.count_file(file, bytes);
                    }
                    bytes
                }
                At::File(file, byte, left) => {
                    let bytes = left.min(end - at);
                    of = Some(file);
                    self.written((file, byte), bytes, (who, tid), &mut by_owner);
                    bytes
                }
            };
            at = at.saturating_add(bytes.max(1));
            if by_owner.pieces > MOST_PIECES && at < end {
                self.found.pages_given_up += (end - at).div_ceil(self.sizes.page());
                by_owner.add(self.id(NOBODY, IN_PIECES, OwnerKind::Unknown), end - at);
                break;
            }
        }
        // Bytes that a loop device's bios wrote into the cache were counted there.
        let by_loop = by_owner.by_loop.values().fold(0, |sum: u64, &bytes| sum.saturating_add(bytes));
        self.by_loop = of.filter(|_| by_loop >= block.bytes);
        let counts = self.counts && self.by_loop.is_none();
        for (owner, &bytes) in by_owner.bytes.iter().filter(|_| counts) {
            let bytes = bytes.saturating_sub(by_owner.by_loop.get(owner).copied().unwrap_or(0));
            if bytes > 0 {
                self.count(*owner, carrier, bytes, moved);
            }
        }
        for (&of, &bytes) in by_owner.former.iter().filter(|_| counts) {
            self.count_former(of, bytes, moved);
        }
        if by_owner.bytes.len() > 1 {
            self.written.mixed_bios += u64::from(counts);
            return self.id(TaskId(u32::MAX - 1), "(several)", OwnerKind::Shared);
        }
        by_owner.bytes.into_keys().next().unwrap_or(carrier)
    }

    /// A task's own bio, if it goes past the page cache. It is of one file.
    fn past_cache(&mut self, block: &BlockEvent, tid: TaskId, owner: u32) {
        if !self.counts || block.flags.has(RequestFlags::META) || !self.direct.is_used() && self.extents.is_empty() {
            return;
        }
        let write = block.flags.kind() == RequestKind::Write;
        let file = match self.at(block.device, block.sector.saturating_mul(512)) {
            At::File(file, ..) => Some(file),
            At::Unknown(_) => None,
        };
        let way = self.direct.way(file, write, tid);
        self.direct.count((block.device, file), owner, write, way, block.bytes);
    }

    /// I/O past the page cache, of the owners that are shown; not of kernel threads.
    pub fn direct(&self, shown: impl Fn(u32) -> bool) -> Vec<DirectUse> {
        let name = |owner: u32| {
            let known = self.owners.get(owner as usize)?;
            (known.kind == OwnerKind::Task && shown(owner)).then(|| known.name.clone())
        };
        let mut all = self.direct.finish(name);
        // A disk's bios may be those of its partitions.
        for at in 0..all.len() {
            let of_disk = all[at].clone();
            if of_disk.inode.is_none() {
                let parts = self.partitions.iter().filter(|(_, (whole, _))| *whole == of_disk.device);
                all.extend(parts.map(|(&device, _)| DirectUse { device, ..of_disk.clone() }));
            }
        }
        all
    }

    /// Bytes of a file are written to the device: counts them for the tasks that dirtied them.
    fn written(
        &mut self,
        (file, byte): (FileId, u64),
        bytes: u64,
        (carrier, tid): (Who, TaskId),
        by_owner: &mut BytesByOwner,
    ) {
        let shared = self.shared();
        let page = self.sizes.page();
        let end = byte.saturating_add(bytes);
        let pages = byte / page..end.div_ceil(page);
        // Bytes of a run of pages that belong to this write.
        let of = |run: &Range<u64>| {
            run.end.saturating_mul(page).min(end).saturating_sub(run.start.saturating_mul(page).max(byte))
        };
        let (mut dirty_bytes, mut clean_bytes) = (0_u64, 0_u64);
        // A page that is clean is written only past the cache.
        let way = if carrier.carries { Way::Cache } else { self.direct.way(Some(file), true, tid) };
        let is_past = way == Way::Direct || way == Way::Unknown && self.shows_dirtied;
        let change = |run: Range<u64>, there: Option<Dirty>| {
            let is_clean = there.is_none_or(|dirty| dirty.clean);
            clean_bytes += if is_clean { of(&run) } else { 0 };
            if is_clean && is_past && there.is_some() {
                by_owner.add_of(carrier.owner, carrier.former, of(&run));
                return there;
            }
            let (owner, former) = match there {
                Some(Dirty { shared: true, .. }) => (shared, 0),
                Some(Dirty { owner, former, .. }) => (owner, former),
                None => (carrier.owner, carrier.former),
            };
            by_owner.add_of(owner, former, of(&run));
            there.map(|dirty| {
                let bytes = of(&run);
                *if dirty.by_loop { by_owner.by_loop.entry(owner).or_default() } else { &mut dirty_bytes } += bytes;
                Dirty {
                    written: true,
                    clean: dirty.clean || bytes == (run.end - run.start).saturating_mul(page),
                    ..dirty
                }
            })
        };
        let mut forgotten = 0_u64;
        let reached = self.dirty.update(file, pages.clone(), change, |_, pages, dirty| {
            forgotten = forgotten.saturating_add(if dirty.written { 0 } else { pages.end - pages.start });
        });
        if reached < pages.end {
            let owner = self.id(NOBODY, IN_PIECES, OwnerKind::Unknown);
            by_owner.add(owner, of(&(reached..pages.end)));
        }
        let given_up = &mut self.found.pages_given_up;
        *given_up = given_up.saturating_add(forgotten).saturating_add(pages.end - reached);
        if dirty_bytes > 0 {
            self.count_file(file, dirty_bytes);
        }
        if clean_bytes > 0 && self.counts {
            let device = file.device.unwrap_or_default();
            self.direct.count((device, Some(file)), carrier.owner, true, way, clean_bytes);
        }
    }

    /// The owner of a part of a write without an extent, and its former name.
    fn unmapped(&mut self, block: &BlockEvent, tid: TaskId, carrier: Who) -> (u32, u32) {
        if !carrier.carries {
            return (carrier.owner, carrier.former);
        }
        match self.writing.get(&tid) {
            Some(file) => match self.files.get(file).copied() {
                Some(Dirty { shared: true, .. }) => (self.shared(), 0),
                Some(Dirty { owner, former, .. }) => (owner, former),
                // No task wrote to the file: it is the file system's own, such as the device's (metadata).
                None => (self.id(NOBODY, "(metadata)", OwnerKind::Kernel), 0),
            },
            None if block.flags.has(RequestFlags::META) => (self.id(NOBODY, "(metadata)", OwnerKind::Kernel), 0),
            None => (carrier.owner, carrier.former),
        }
    }

    fn count_file(&mut self, file: FileId, bytes: u64) {
        if self.counts
            && let Some(known) = self.file_bytes.entry(file, || 0)
        {
            *known = known.saturating_add(bytes);
        }
    }

    fn count_former(&mut self, of: (u32, u32), bytes: u64, moved: Moved) {
        if self.counts {
            self.former.count(of, bytes, moved);
        }
    }

    fn count(&mut self, owner: u32, carrier: u32, bytes: u64, moved: Moved) {
        if !self.counts {
            return;
        }
        // Beyond the most pairs, an originator's bytes go to one carrier that stands for the rest.
        let known = self.bytes.len() < MAX_PAIRS || self.bytes.contains_key(&(owner, carrier));
        let entry = self.bytes.entry((owner, if known { carrier } else { OTHER_CARRIERS })).or_default();
        let sum = &mut entry[moved as usize];
        *sum = sum.saturating_add(bytes);
        if moved != Moved::Written {
            return;
        }
        let kind = self.owners.get(owner as usize).map_or(OwnerKind::Unknown, |owner| owner.kind);
        let written = &mut self.written;
        let sum = match kind {
            OwnerKind::Task if owner == carrier => &mut written.direct_bytes,
            OwnerKind::Task => &mut written.one_bytes,
            OwnerKind::Shared => &mut written.shared_bytes,
            OwnerKind::Kernel => &mut written.kernel_bytes,
            OwnerKind::Unknown => &mut written.unknown_bytes,
        };
        *sum = sum.saturating_add(bytes);
    }

    pub fn finish(&self) -> OriginatorsFound {
        let mut found = self.found.clone();
        found.set_written(self.written.into());
        found.extents_given_up = self.extents.lost();
        found.files_given_up = self.files.lost()
            + self.writing.lost()
            + self.reading.lost()
            + self.direct.lost()
            + self.partitions.lost()
            + self.file_bytes.lost();
        let mut former = self.former.by_owner();
        let mut by_owner: BTreeMap<u32, Originator> = BTreeMap::new();
        let mut pairs: Vec<_> = self.bytes.iter().collect();
        pairs.sort_unstable();
        for (&(owner, carrier), &[read_bytes, written_bytes, covered_bytes]) in pairs {
            let (kind, tid) =
                self.owners.get(owner as usize).map_or((OwnerKind::Unknown, TaskId(0)), |o| (o.kind, o.tid));
            let tid = if tid >= NOBODY { TaskId(0) } else { tid };
            let entry = by_owner.entry(owner).or_insert_with(|| Originator {
                name: self.name(owner),
                kind,
                tid,
                ordinal: self.ordinal(owner),
                former_names: Vec::new(),
                under_former_names: former.remove(&owner).unwrap_or_default(),
                read_bytes: 0,
                written_bytes: 0,
                covered_bytes: 0,
                carriers: Vec::new(),
            });
            entry.read_bytes = entry.read_bytes.saturating_add(read_bytes);
            entry.written_bytes = entry.written_bytes.saturating_add(written_bytes);
            entry.covered_bytes = entry.covered_bytes.saturating_add(covered_bytes);
            entry.carriers.push(CarriedBytes { carrier: self.name(carrier), read_bytes, written_bytes });
        }
        found.originators = by_owner.into_values().collect();
        let key = |read: u64, written: u64| std::cmp::Reverse(read.saturating_add(written));
        for one in &mut found.originators {
            one.carriers.sort_by(|a, b| {
                (key(a.read_bytes, a.written_bytes), &a.carrier).cmp(&(key(b.read_bytes, b.written_bytes), &b.carrier))
            });
        }
        found.originators.sort_by(|a, b| {
            (key(a.read_bytes, a.written_bytes), &a.name).cmp(&(key(b.read_bytes, b.written_bytes), &b.name))
        });
        found.files = self
            .file_bytes
            .iter()
            .filter_map(|(file, bytes)| Some((file.device?, file.inode, *bytes)))
            .map(|(device, inode, written_bytes)| FileBytes {
                device: device.to_string(),
                inode,
                path: None,
                written_bytes,
            })
            .collect();
        found.files.sort_by_key(|file| std::cmp::Reverse(file.written_bytes));
        found.files.truncate(256);
        found
    }
}

#[cfg(test)]
mod tests;
