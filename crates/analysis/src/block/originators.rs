//! Whose I/O it is: the task that caused it, not the one that carried it.
//!
//! - A read, and a direct or synchronous write, is queued by the task that asked for it: the originator is the carrier.
//! - A page that a task put into the page cache is written by whoever flushes it: a kworker, an `fsync` of another task,
//!   the journal. A write bio's sectors lead through the file system's extents to the pages of a file, and a page leads to
//!   the task that dirtied it; where several did before it was written, it is shared. Where no extents are recorded, the
//!   file that the carrier writes back (`writeback_single_inode`) names the page's dirtiers as far as they are one.
//! - What a file system's own threads do beside that is theirs: the journal, garbage collection, metadata.
//! - A kernel thread whose work nothing above explains is a carrier only: the originator is unknown, and is counted so.
//!
//! The unit is the page. A bio of several originators is counted with each by its bytes.

use super::sizes::Sizes;
use crate::kernel_threads::{is_carrier, role};
use flashscope_trace::{BlockEvent, Device, FileEvent, FileStep, RequestFlags, RequestKind, TimeNs};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// Dirty pages, and extents, that are remembered.
const MAX_PAGES: usize = 1 << 20;
const MAX_EXTENTS: usize = 1 << 18;
/// Owners with names of their own.
const MAX_OWNERS: usize = 4096;
/// Files that are remembered, and files whose bytes are counted.
const MAX_FILES: usize = 1 << 16;
/// Carriers that write files back at one time.
const MAX_CARRIERS: usize = 1024;
/// Partitions whose begin is remembered.
const MAX_PARTITIONS: usize = 1024;
/// Pairs of an originator and a carrier whose bytes are told apart.
const MAX_PAIRS: usize = 1 << 16;
/// Threads whose last answer is kept.
const MAX_RECENT: usize = 1 << 16;
/// Thread numbers from here on stand for owners that are no task.
const NOBODY: u32 = u32::MAX - 2;
/// Stands for all carriers of an originator that are too many.
const OTHER_CARRIERS: u32 = u32::MAX;

/// What an originator is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OwnerKind {
    Task,
    /// A journal's, a garbage collector's or another kernel thread's own work.
    Kernel,
    /// Several tasks dirtied the page.
    Shared,
    /// A carrier whose work nothing explains.
    Unknown,
}

/// Bytes that a carrier moved for an originator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CarriedBytes {
    pub carrier: String,
    pub read_bytes: u64,
    pub written_bytes: u64,
}

/// What one originator caused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Originator {
    pub name: String,
    pub kind: OwnerKind,
    pub tid: u32,
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// Most bytes first.
    pub carriers: Vec<CarriedBytes>,
}

/// Bytes queued of one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileBytes {
    pub device: String,
    pub inode: u64,
    pub written_bytes: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OriginatorsFound {
    /// Most bytes first.
    pub originators: Vec<Originator>,
    /// Written bytes whose page only one task dirtied; several; a kernel thread's own; nobody knows.
    pub written_one_bytes: u64,
    pub written_shared_bytes: u64,
    pub written_kernel_bytes: u64,
    pub written_unknown_bytes: u64,
    /// Written bytes whose originator is the task that queued them.
    pub written_direct_bytes: u64,
    /// Bios of several originators.
    pub mixed_bios: u64,
    /// Written back from the page cache, most bytes first; at most 256.
    pub files: Vec<FileBytes>,
    /// Dirty pages and extents that were not remembered: too many.
    pub pages_given_up: u64,
    pub extents_given_up: u64,
    /// Dirtied files, files being written back, written files and partitions that were not remembered: too many.
    pub files_given_up: u64,
}

#[derive(Clone, Copy)]
struct Dirty {
    owner: u32,
    shared: bool,
    /// On its way to the device, or some of it: whoever dirties it from now on begins anew.
    written: bool,
}

#[derive(Clone, Copy)]
struct Extent {
    blocks: u64,
    inode: u64,
    /// First block of the file.
    logical: u64,
}

struct Owner {
    name: String,
    kind: OwnerKind,
    tid: u32,
}

/// Follows files' pages from whoever dirties them to whoever writes them.
pub(super) struct Originators<L> {
    lookup: L,
    owners: Vec<Owner>,
    ids: HashMap<(u32, String), u32>,
    /// The last answer for each thread: asked at every bio.
    recent: HashMap<u32, u32>,
    dirty: HashMap<(u32, u64, u64), Dirty>,
    /// Of each device, by first block.
    extents: HashMap<u32, BTreeMap<u64, Extent>>,
    extent_count: usize,
    /// Dirtiers of a whole file since it was last written back: one, or several.
    files: HashMap<(u32, u64), Dirty>,
    /// The file that a carrier writes back.
    writing: HashMap<u32, (u32, u64)>,
    /// The file whose pages a thread reads; empty where the trace has no files.
    reading: HashMap<u32, (u32, u64)>,
    /// First sectors of partitions.
    partitions: HashMap<u32, (u32, u64)>,
    sizes: Sizes,
    bytes: BTreeMap<(u32, u32), (u64, u64)>,
    file_bytes: BTreeMap<(u32, u64), u64>,
    found: OriginatorsFound,
}

impl<L, N> Originators<L>
where
    L: FnMut(u32, TimeNs) -> Option<N>,
    N: AsRef<str>,
{
    /// `lookup` says a thread's name.
    pub fn new(lookup: L, sizes: Sizes) -> Self {
        Originators {
            lookup,
            owners: Vec::new(),
            ids: HashMap::new(),
            recent: HashMap::new(),
            dirty: HashMap::new(),
            extents: HashMap::new(),
            extent_count: 0,
            files: HashMap::new(),
            writing: HashMap::new(),
            reading: HashMap::new(),
            partitions: HashMap::new(),
            sizes,
            bytes: BTreeMap::new(),
            file_bytes: BTreeMap::new(),
            found: OriginatorsFound::default(),
        }
    }

    /// The number of a name; the last one is for all that are too many.
    fn id(&mut self, tid: u32, name: &str, kind: OwnerKind) -> u32 {
        if let Some(&id) = self.recent.get(&tid)
            && let Some(owner) = self.owners.get(id as usize)
            && (owner.name.as_str(), owner.kind, owner.tid) == (name, kind, tid)
        {
            return id;
        }
        if self.recent.len() >= MAX_RECENT {
            self.recent.clear();
        }
        let key = (tid, name.to_owned());
        if let Some(&id) = self.ids.get(&key) {
            self.recent.insert(tid, id);
            return id;
        }
        if self.owners.len() >= MAX_OWNERS {
            return MAX_OWNERS as u32 - 1;
        }
        let (name, tid) = match self.owners.len() {
            n if n == MAX_OWNERS - 1 => ("(further tasks)".to_owned(), 0),
            _ => (key.1.clone(), tid),
        };
        let id = self.owners.len() as u32;
        self.owners.push(Owner { name, kind, tid });
        self.ids.insert(key, id);
        self.recent.insert(tid, id);
        id
    }

    fn task(&mut self, tid: u32, time: TimeNs) -> (u32, bool) {
        let name = (self.lookup)(tid, time);
        let name = match &name {
            Some(name) => name.as_ref(),
            // Process 0 runs where nothing else does.
            None if tid == 0 => "swapper/0",
            None => "",
        };
        let name = if name.is_empty() { format!("tid {tid}") } else { super::clip(name).to_owned() };
        let carrier = is_carrier(&name);
        let kind = match role(&name) {
            Some(_) => OwnerKind::Kernel,
            None if carrier => OwnerKind::Unknown,
            None => OwnerKind::Task,
        };
        (self.id(tid, &name, kind), carrier)
    }

    /// Names an owner for a report: a role's own name, a task with its number.
    pub fn name(&self, owner: u32) -> String {
        match self.owners.get(owner as usize) {
            None if owner == OTHER_CARRIERS => "(further carriers)".to_owned(),
            None => "(nobody)".to_owned(),
            Some(owner) => match (role(&owner.name), owner.kind) {
                (Some(role), _) => format!("{role} [{}]", owner.name),
                (None, OwnerKind::Shared) => owner.name.clone(),
                (None, _) if owner.tid == 0 || owner.tid >= NOBODY => owner.name.clone(),
                (None, _) => format!("{} ({})", owner.name, owner.tid),
            },
        }
    }

    /// Whether a process's name is this.
    pub fn is_called(&self, owner: u32, name: &str) -> bool {
        self.owners.get(owner as usize).is_some_and(|owner| owner.name == name)
    }

    fn shared(&mut self) -> u32 {
        self.id(u32::MAX, "(shared page)", OwnerKind::Shared)
    }

    /// A step of a file.
    pub fn file(&mut self, event: &FileEvent, tid: u32, time: TimeNs) {
        let Some(Device(device)) = event.device else { return };
        match event.step {
            FileStep::Write | FileStep::Dirtied => {
                let (owner, carrier) = self.task(tid, time);
                let mmap = event.step == FileStep::Dirtied;
                // A kernel thread that dirties a page does so for its own metadata.
                if carrier && mmap {
                    return;
                }
                let first = event.offset / self.sizes.page();
                let last = event.offset.saturating_add(event.bytes.max(1) - 1) / self.sizes.page();
                for page in first..=last.min(first.saturating_add(MAX_PAGES as u64)) {
                    self.dirtied((device, event.inode, page), owner, mmap);
                }
                let (key, room) = ((device, event.inode), self.files.len() < MAX_FILES);
                match self.files.get_mut(&key) {
                    Some(file) => file.shared |= file.owner != owner,
                    None if room => {
                        self.files.insert(key, Dirty { owner, shared: false, written: false });
                    }
                    None => self.found.files_given_up += 1,
                }
            }
            FileStep::WritebackBegin => {
                if self.writing.len() < MAX_CARRIERS || self.writing.contains_key(&tid) {
                    self.writing.insert(tid, (device, event.inode));
                } else {
                    self.found.files_given_up += 1;
                }
            }
            FileStep::WritebackEnd => {
                // ext4's own bracket stands within the kernel's: the outer one is closed last.
                self.writing.remove(&tid);
            }
            FileStep::Extent => self.extent(device, event),
            FileStep::Read | FileStep::Fault | FileStep::Cached => {
                if self.reading.len() >= MAX_RECENT {
                    self.reading.clear();
                }
                self.reading.insert(tid, (device, event.inode));
            }
            FileStep::Uncached => {}
        }
    }

    fn dirtied(&mut self, key: (u32, u64, u64), owner: u32, mmap: bool) {
        if let Some(dirty) = self.dirty.get_mut(&key) {
            if dirty.written {
                *dirty = Dirty { owner, shared: false, written: false };
            } else {
                // The page of a write becomes dirty at its end: that is no second dirtier.
                dirty.shared |= dirty.owner != owner && !mmap;
            }
            return;
        }
        if self.dirty.len() >= MAX_PAGES {
            self.dirty.retain(|_, dirty| !dirty.written);
        }
        if self.dirty.len() < MAX_PAGES {
            self.dirty.insert(key, Dirty { owner, shared: false, written: false });
        } else {
            self.found.pages_given_up += 1;
        }
    }

    fn extent(&mut self, device: u32, event: &FileEvent) {
        let map = self.extents.entry(device).or_default();
        let (begin, end) = (event.block, event.block.saturating_add(event.bytes));
        // What lay there before lies there no more.
        let mut stale: Vec<u64> = map.range(begin..end).map(|(at, _)| *at).collect();
        if let Some((at, before)) = map.range(..begin).next_back()
            && at + before.blocks > begin
        {
            stale.push(*at);
        }
        for at in stale {
            let Some(old) = map.remove(&at) else { continue };
            self.extent_count -= 1;
            if at < begin {
                map.insert(at, Extent { blocks: begin - at, ..old });
                self.extent_count += 1;
            }
            if at + old.blocks > end {
                let cut = end - at;
                map.insert(end, Extent { blocks: old.blocks - cut, logical: old.logical + cut, ..old });
                self.extent_count += 1;
            }
        }
        if self.extent_count < MAX_EXTENTS {
            map.insert(begin, Extent { blocks: event.bytes, inode: event.inode, logical: event.offset });
            self.extent_count += 1;
        } else {
            self.found.extents_given_up += 1;
        }
    }

    /// Where a partition begins, as its bios' way down shows.
    pub fn remapped(&mut self, device: Device, from: Device, sector: u64, from_sector: u64) {
        let Some(begin) = sector.checked_sub(from_sector) else { return };
        if self.partitions.len() < MAX_PARTITIONS || self.partitions.contains_key(&from.0) {
            self.partitions.insert(from.0, (device.0, begin));
        } else {
            self.found.files_given_up += 1;
        }
    }

    /// The file that lies at a byte of a device: device of its file system, inode, byte of the file, and how many more
    /// bytes of it follow there.
    fn at(&self, device: u32, byte: u64) -> Option<(u32, u64, u64, u64)> {
        let look = |fs: u32, byte: u64| {
            let unit = self.sizes.block(Device(fs));
            let (first, extent) = self.extents.get(&fs)?.range(..=byte / unit).next_back()?;
            let into = byte - first * unit;
            let whole = extent.blocks * unit;
            (into < whole).then(|| (fs, extent.inode, extent.logical * unit + into, whole - into))
        };
        look(device, byte).or_else(|| {
            // The file system may lie on a partition of this device.
            self.partitions
                .iter()
                .filter(|(_, (whole, _))| *whole == device)
                .find_map(|(part, (_, begin))| look(*part, byte.checked_sub(begin * 512)?))
        })
    }

    /// The file of a bio that this thread queues, as far as the trace tells: what the file system's extents say of its first
    /// byte; else, of data, what the thread reads or writes back of this device.
    pub fn file_of(&self, block: &BlockEvent, tid: u32) -> Option<(u32, u64)> {
        if self.extent_count == 0 && self.reading.is_empty() && self.writing.is_empty() {
            return None;
        }
        if let Some((device, inode, ..)) = self.at(block.device.0, block.sector.saturating_mul(512)) {
            return Some((device, inode));
        }
        if block.flags.has(RequestFlags::META) {
            return None;
        }
        let files = if block.flags.kind() == RequestKind::Write { &self.writing } else { &self.reading };
        let on = |device: u32| {
            let whole = self.partitions.get(&device).map(|(whole, _)| *whole);
            device == block.device.0 || whole == Some(block.device.0)
        };
        files.get(&tid).copied().filter(|(device, _)| on(*device))
    }

    /// The owner of a bio that this thread queues. Its bytes are counted.
    pub fn queue(&mut self, block: &BlockEvent, tid: u32, time: TimeNs) -> u32 {
        let (carrier, is_carrier) = self.task(tid, time);
        let write = block.flags.kind() == RequestKind::Write;
        if !write {
            self.count(carrier, carrier, block.bytes, false);
            return carrier;
        }
        let page = self.sizes.page();
        let mut owner = None;
        let mut mixed = false;
        let begin = block.sector.saturating_mul(512);
        let mut at = begin;
        let end = begin.saturating_add(block.bytes);
        while at < end {
            let (piece, bytes) = match self.at(block.device.0, at) {
                None => {
                    let bytes = page - at % page;
                    if is_carrier
                        && let Some(&file) = self.writing.get(&tid).filter(|file| self.files.contains_key(file))
                    {
                        self.count_file(file, bytes.min(end - at));
                    }
                    (self.unmapped(block, tid, carrier, is_carrier), bytes)
                }
                Some((device, inode, byte, left)) => {
                    let bytes = (page - byte % page).min(left);
                    let key = (device, inode, byte / page);
                    let dirty = self.dirty.get_mut(&key).map(|dirty| {
                        dirty.written = true;
                        *dirty
                    });
                    let piece = match dirty {
                        Some(Dirty { shared: true, .. }) => self.shared(),
                        Some(Dirty { owner, .. }) => owner,
                        None => carrier,
                    };
                    if dirty.is_some() {
                        self.count_file((device, inode), bytes.min(end - at));
                    }
                    (piece, bytes)
                }
            };
            let bytes = bytes.min(end - at).max(1);
            self.count(piece, carrier, bytes, true);
            mixed |= owner.is_some_and(|known| known != piece);
            owner.get_or_insert(piece);
            at += bytes;
        }
        if mixed {
            self.found.mixed_bios += 1;
            return self.id(u32::MAX - 1, "(several)", OwnerKind::Shared);
        }
        owner.unwrap_or(carrier)
    }

    /// A part of a write that no extent explains.
    fn unmapped(&mut self, block: &BlockEvent, tid: u32, carrier: u32, is_carrier: bool) -> u32 {
        if !is_carrier {
            return carrier;
        }
        match self.writing.get(&tid) {
            Some(file) => match self.files.get(file).copied() {
                Some(Dirty { shared: true, .. }) => self.shared(),
                Some(Dirty { owner, .. }) => owner,
                // A file that no task wrote to: the file system's own, such as the device's (metadata).
                None => self.id(NOBODY, "(metadata)", OwnerKind::Kernel),
            },
            None if block.flags.has(RequestFlags::META) => self.id(NOBODY, "(metadata)", OwnerKind::Kernel),
            None => carrier,
        }
    }

    fn count_file(&mut self, file: (u32, u64), bytes: u64) {
        let room = self.file_bytes.len() < MAX_FILES;
        match self.file_bytes.get_mut(&file) {
            Some(known) => *known += bytes,
            None if room => {
                self.file_bytes.insert(file, bytes);
            }
            None => self.found.files_given_up += 1,
        }
    }

    fn count(&mut self, owner: u32, carrier: u32, bytes: u64, write: bool) {
        // Of more pairs, each originator's bytes go to one carrier that stands for the rest.
        let known = self.bytes.len() < MAX_PAIRS || self.bytes.contains_key(&(owner, carrier));
        let entry = self.bytes.entry((owner, if known { carrier } else { OTHER_CARRIERS })).or_default();
        if !write {
            entry.0 += bytes;
            return;
        }
        entry.1 += bytes;
        let kind = self.owners.get(owner as usize).map_or(OwnerKind::Unknown, |owner| owner.kind);
        let found = &mut self.found;
        match kind {
            OwnerKind::Task if owner == carrier => found.written_direct_bytes += bytes,
            OwnerKind::Task => found.written_one_bytes += bytes,
            OwnerKind::Shared => found.written_shared_bytes += bytes,
            OwnerKind::Kernel => found.written_kernel_bytes += bytes,
            OwnerKind::Unknown => found.written_unknown_bytes += bytes,
        }
    }

    pub fn finish(&self) -> OriginatorsFound {
        let mut found = self.found.clone();
        let mut by_owner: BTreeMap<u32, Originator> = BTreeMap::new();
        for (&(owner, carrier), &(read_bytes, written_bytes)) in &self.bytes {
            let (kind, tid) = self.owners.get(owner as usize).map_or((OwnerKind::Unknown, 0), |o| (o.kind, o.tid));
            let tid = if tid >= NOBODY { 0 } else { tid };
            let entry = by_owner.entry(owner).or_insert_with(|| Originator {
                name: self.name(owner),
                kind,
                tid,
                read_bytes: 0,
                written_bytes: 0,
                carriers: Vec::new(),
            });
            entry.read_bytes += read_bytes;
            entry.written_bytes += written_bytes;
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
            .map(|(&(device, inode), &written_bytes)| FileBytes {
                device: Device(device).to_string(),
                inode,
                written_bytes,
            })
            .collect();
        found.files.sort_by_key(|file| std::cmp::Reverse(file.written_bytes));
        found.files.truncate(256);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashscope_trace::{BlockAction, BlockDetail};

    const DISK: Device = Device(0xfe0_0000);

    fn names(tid: u32, _: TimeNs) -> Option<&'static str> {
        match tid {
            1 => Some("app"),
            2 => Some("other"),
            7 => Some("kworker/u2:1"),
            8 => Some("jbd2/nullb0-8"),
            _ => None,
        }
    }

    type Lookup = fn(u32, TimeNs) -> Option<&'static str>;

    fn fold() -> Originators<Lookup> {
        Originators::new(names as Lookup, Sizes::default().with_block(DISK, 1024))
    }

    fn file(step: FileStep, offset: u64, bytes: u64, block: u64) -> FileEvent {
        FileEvent { step, device: Some(DISK), inode: 12, offset, bytes, size: None, block }
    }

    fn bio(rwbs: &str, sector: u64, bytes: u64) -> BlockEvent {
        BlockEvent {
            action: BlockAction::Queue,
            device: DISK,
            flags: RequestFlags::from_letters(rwbs.as_bytes()),
            sector,
            bytes,
            error: 0,
            cgroup: 0,
            detail: BlockDetail::None,
        }
    }

    #[test]
    fn a_page_leads_to_who_dirtied_it() {
        let mut fold = fold();
        let t = TimeNs(0);
        fold.file(&file(FileStep::Write, 0, 8192, 0), 1, t);
        fold.file(&file(FileStep::Write, 4096, 100, 0), 2, t);
        fold.file(&file(FileStep::Write, 8192, 4096, 0), 2, t);
        // Twelve blocks of 1 KiB from block 100 on.
        fold.file(&file(FileStep::Extent, 0, 12, 100), 7, t);
        let owner = fold.queue(&bio("W", 200, 12288), 7, t);
        assert_eq!(fold.name(owner), "(several)");
        let found = fold.finish();
        assert_eq!((found.written_one_bytes, found.written_shared_bytes, found.mixed_bios), (8192, 4096, 1));
        let of = |name: &str| found.originators.iter().find(|o| o.name == name).map_or(0, |o| o.written_bytes);
        assert_eq!((of("app (1)"), of("other (2)"), of("(shared page)")), (4096, 4096, 4096));
        assert_eq!(found.originators[0].carriers[0].carrier, "kworker/u2:1 (7)");
        assert_eq!(found.files, [FileBytes { device: "254:0".into(), inode: 12, written_bytes: 12288 }]);
    }

    #[test]
    fn without_extents_the_file_being_written_back_names_them() {
        let mut fold = fold();
        let t = TimeNs(0);
        fold.file(&file(FileStep::Dirtied, 0, 4096, 0), 1, t);
        fold.file(&file(FileStep::WritebackBegin, 0, 0, 0), 7, t);
        let owner = fold.queue(&bio("W", 8, 4096), 7, t);
        assert_eq!(fold.name(owner), "app (1)");
        fold.file(&file(FileStep::WritebackEnd, 0, 0, 0), 7, t);
        let owner = fold.queue(&bio("W", 8, 4096), 7, t);
        assert_eq!(fold.name(owner), "kworker/u2:1 (7)");
        let found = fold.finish();
        assert_eq!((found.written_one_bytes, found.written_unknown_bytes), (4096, 4096));
    }

    #[test]
    fn a_bio_is_of_the_file_that_lies_there_or_that_its_thread_handles() {
        let mut fold = fold();
        let t = TimeNs(0);
        assert_eq!(fold.file_of(&bio("R", 8, 4096), 1), None);
        let here = file(FileStep::Read, 0, 4096, 0);
        let this = here.device.map(|device| (device.0, here.inode));
        fold.file(&here, 1, t);
        assert_eq!(fold.file_of(&bio("R", 8, 4096), 1), this);
        assert_eq!(fold.file_of(&bio("R", 8, 4096), 2), None, "another thread");
        assert_eq!(fold.file_of(&bio("RM", 8, 4096), 1), None, "metadata");
        assert_eq!(fold.file_of(&bio("W", 8, 4096), 1), None, "it reads");
        fold.file(&file(FileStep::WritebackBegin, 0, 0, 0), 7, t);
        assert_eq!(fold.file_of(&bio("W", 8, 4096), 7), this);
        fold.file(&file(FileStep::WritebackEnd, 0, 0, 0), 7, t);
        assert_eq!(fold.file_of(&bio("W", 8, 4096), 7), None);
        let elsewhere = FileEvent { device: Some(Device::new(0, 2)), ..here };
        fold.file(&elsewhere, 1, t);
        assert_eq!(fold.file_of(&bio("R", 8, 4096), 1), None, "a file of another device");
    }

    #[test]
    fn reads_direct_writes_and_journals_are_their_carriers() {
        let mut fold = fold();
        let t = TimeNs(0);
        let reader = fold.queue(&bio("RA", 8, 4096), 2, t);
        let direct = fold.queue(&bio("WS", 8, 4096), 1, t);
        let journal = fold.queue(&bio("WS", 8, 4096), 8, t);
        assert_eq!(
            [reader, direct, journal].map(|o| fold.name(o)),
            ["other (2)", "app (1)", "ext4 journal [jbd2/nullb0-8]"]
        );
        let found = fold.finish();
        assert_eq!((found.written_direct_bytes, found.written_kernel_bytes), (4096, 4096));
        let metadata = fold.queue(&bio("WM", 8, 4096), 7, t);
        assert_eq!(fold.name(metadata), "(metadata)");
    }

    #[test]
    fn blocks_that_are_given_out_anew_belong_to_the_new_file() {
        let mut fold = fold();
        let t = TimeNs(0);
        fold.file(&file(FileStep::Extent, 0, 16, 100), 7, t);
        fold.file(&FileEvent { inode: 99, ..file(FileStep::Extent, 0, 4, 104) }, 7, t);
        let at = |block: u64| fold.at(DISK.0, block * 1024).map(|(_, inode, byte, left)| (inode, byte, left));
        assert_eq!((at(100), at(104), at(108)), (Some((12, 0, 4096)), Some((99, 0, 4096)), Some((12, 8192, 8192))));
        assert_eq!((at(99), at(116)), (None, None));
    }

    #[test]
    fn what_is_too_much_to_remember_is_counted() {
        let mut fold = fold();
        for i in 0..MAX_FILES as u64 + 10 {
            fold.file(&FileEvent { inode: i, ..file(FileStep::Dirtied, 0, 1, 0) }, 1, TimeNs(i));
        }
        for tid in 0..MAX_CARRIERS as u32 + 5 {
            fold.file(&file(FileStep::WritebackBegin, 0, 0, 0), 10_000 + tid, TimeNs(0));
            // The same again is not one more.
            fold.file(&file(FileStep::WritebackBegin, 0, 0, 0), 10_000, TimeNs(0));
        }
        for i in 0..MAX_PARTITIONS as u32 + 3 {
            fold.remapped(DISK, Device(i), 100, 10);
        }
        assert_eq!(fold.finish().files_given_up, 18);
    }

    #[test]
    fn a_partition_is_found_by_its_bios_way_down() {
        let mut fold = fold();
        let part = Device(DISK.0 + 1);
        let on_part = FileEvent { device: Some(part), ..file(FileStep::Extent, 0, 4, 10) };
        fold.file(&on_part, 7, TimeNs(0));
        fold.remapped(DISK, part, 2048 + 80, 80);
        assert_eq!(fold.at(DISK.0, (2048 * 512) + 10 * 4096).map(|f| f.1), Some(12));
    }
}
