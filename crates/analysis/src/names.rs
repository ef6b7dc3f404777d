//! Names in a report: owners, files and devices of the I/O, and the share of the bytes that has a path.
//!
//! Input: file events, and the names in the recording ([`FileNames`], [`DeviceNames`]). Output: [`NamesFound`]. The bytes of a file are
//! the larger of the bytes read from it and the bytes added to the page cache, plus the bytes written to it (where no event shows
//! writes: pages that became dirty).

use crate::block::{BlockReport, DirectBytes, DirectUse, GroupBy};
use crate::bounded::{BoundedMap, Full};
use crate::calls::{CallsFound, SlowCall};
use crate::{Evidence, FlashReport};
use flashscope_trace::{
    CacheShown, Device, DeviceNames, Event, EventKind, FileId, FileName, FileNames, FileStep, TaskId, TimeNs,
    file_label, own_data,
};
use foldhash::{HashMap, HashMapExt as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Most pairs of a file and an owner, and most names.
const MAX_PAIRS: usize = 1 << 17;
const MAX_NAMES: usize = 1 << 14;
/// Rows of [`NamesFound::files`].
const MAX_ROWS: usize = 4096;

/// Name of the recorder's own tasks in a report.
pub const OWN_RECORDING: &str = "flashscope's own recording";

/// The identity that a thread is counted under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member<'n> {
    pub name: Cow<'n, str>,
    /// The number shared by all threads counted together; `None`: the thread's own.
    pub key: Option<TaskId>,
    /// Its ordinal among tasks with this number and name, from 1.
    pub ordinal: u32,
    /// The user selected it under another name than this.
    pub is_wanted: bool,
    /// Its name at that time, where `name` is a later one.
    pub former_name: Option<&'n str>,
    /// The time in which this answer holds; empty where that is not known.
    pub holds: Range<u64>,
}

/// Looks up the name of a thread at a time; any such closure is one. `None`: the recording has no name.
pub trait Lookup: FnMut(TaskId, TimeNs) -> Option<<Self as Lookup>::Name> {
    type Name;
}

impl<F, N> Lookup for F
where
    F: FnMut(TaskId, TimeNs) -> Option<N>,
{
    type Name = N;
}

/// Identity of a thread, as a lookup returns it: a name, or a [`Member`].
pub trait Named {
    fn name(&self) -> &str;
    fn key(&self) -> Option<TaskId> {
        None
    }
    fn ordinal(&self) -> u32 {
        1
    }
    fn is_wanted(&self) -> bool {
        false
    }
    fn former_name(&self) -> Option<&str> {
        None
    }
    fn holds(&self) -> Range<u64> {
        0..0
    }
}

impl<N: AsRef<str>> Named for N {
    fn name(&self) -> &str {
        self.as_ref()
    }
}

impl Named for Member<'_> {
    fn name(&self) -> &str {
        &self.name
    }

    fn key(&self) -> Option<TaskId> {
        self.key
    }

    fn ordinal(&self) -> u32 {
        self.ordinal
    }

    fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    fn former_name(&self) -> Option<&str> {
        self.former_name
    }

    fn holds(&self) -> Range<u64> {
        self.holds.clone()
    }
}

/// A device of the recorded machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct NamedDevice {
    /// `254:0`
    pub device: String,
    /// `mmcblk0p2 (ext4, /data)`
    pub name: String,
    /// The type of its file system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filesystem: Option<String>,
    /// Names of the devices beneath it, the nearest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beneath: Vec<String>,
}

/// I/O of one application, process or thread on one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct FileUse {
    /// Its name; empty if the trace does not name it.
    pub who: String,
    /// Device of the file's file system, `MAJOR:MINOR`.
    pub device: String,
    pub inode: u64,
    /// The path. If the file is gone, it says so: `/data/a (deleted)`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// What it is, if not a file: `metadata of vda (ext4, /)`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub what: Option<String>,
    /// Why there is no path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unnamed: Option<String>,
    /// Bytes that it read; `None` if the trace does not show reads of files, or not all of them ([`NamesFound::direct_not_shown`]).
    pub read_bytes: Option<u64>,
    /// Bytes that came into the page cache.
    pub cached_bytes: u64,
    /// Bytes that it wrote; `None` if the trace does not show writes of files, or not of this file system's
    /// ([`NamesFound::writes_not_shown`]), or not all of them ([`NamesFound::direct_not_shown`]).
    pub written_bytes: Option<u64>,
}

impl FileUse {
    fn bytes(&self) -> u64 {
        self.read_bytes.unwrap_or(0).max(self.cached_bytes).saturating_add(self.written_bytes.unwrap_or(0))
    }
}

/// Files without a path, by the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct Unnamed {
    /// `deleted`, `metadata`, `no_mount`, `remote`, `not_reachable`, `out_of_time`, `busy`, `not_looked_for`.
    pub why: String,
    pub files: u64,
    pub bytes: u64,
}

/// How much of the files' bytes has a path.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct Coverage {
    pub bytes: u64,
    pub named_bytes: u64,
    /// A file system's own data, which has no path, is not counted in it.
    pub named_percent: Evidence<f64>,
    pub unnamed: Vec<Unnamed>,
    /// Events of pairs of a file and a user of it that were too many to keep.
    pub not_kept: u64,
}

impl Default for Coverage {
    fn default() -> Self {
        let named_percent = Evidence::unknown("the trace has no events of files", "record with --events cache");
        Coverage { bytes: 0, named_bytes: 0, named_percent, unnamed: Vec::new(), not_kept: 0 }
    }
}

/// The names of a report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct NamesFound {
    pub devices: Vec<NamedDevice>,
    /// Most bytes first.
    pub files: Vec<FileUse>,
    /// Devices of file systems whose writes to files no event of the trace shows, though it shows those of others: btrfs, FUSE and others,
    /// and those of raw flash where the kernel has no kprobes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writes_not_shown: Vec<String>,
    /// Devices with I/O past the page cache (`O_DIRECT`) of unknown files, or I/O that may have gone past it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub direct_not_shown: Vec<String>,
    pub coverage: Coverage,
}

impl NamesFound {
    pub fn is_empty(&self) -> bool {
        self.devices.is_empty() && self.files.is_empty()
    }

    /// Names of devices only.
    pub fn of_devices(devices: &DeviceNames) -> NamesFound {
        let named = devices.iter().map(|(device, _)| NamedDevice {
            device: device.to_string(),
            name: devices.display(device),
            filesystem: devices.filesystem(device).filter(|kind| !kind.is_empty()).map(str::to_owned),
            beneath: devices.stack(device),
        });
        NamesFound { devices: named.collect(), ..NamesFound::default() }
    }

    /// A device's display name; its number where it has none.
    pub fn device<'n>(&'n self, number: &'n str) -> &'n str {
        self.devices.iter().find(|one| one.device == number).map_or(number, |one| &one.name)
    }

    /// A file in a column of its own: its path; without one `inode 12 on mmcblk0p2 (ext4, /data)`. `name`: `254:0 inode 12`.
    pub fn file(&self, path: Option<&str>, name: &str) -> String {
        match (path, FileId::parse(name)) {
            (Some(path), _) => path.to_owned(),
            (None, Some(FileId { device: Some(device), inode })) => self.unnamed(device, inode),
            (None, _) => name.to_owned(),
        }
    }

    /// The display name of a file without a path.
    pub fn unnamed(&self, device: Device, inode: u64) -> String {
        match self.own_data(device, inode) {
            Some(own) => own,
            None => file_label(None, inode, self.device(&device.to_string())),
        }
    }

    /// `metadata of vda (ext4, /)`, where the inode holds the file system's own data.
    pub fn own_data(&self, device: Device, inode: u64) -> Option<String> {
        let known = |device: Device| {
            let number = device.to_string();
            self.devices.iter().find(|one| one.device == number)
        };
        let kind = |device| known(device).map(|one| one.filesystem.as_deref().unwrap_or_default());
        let (what, device) = own_data(device, inode, kind)?;
        Some(format!("{what} {}", known(device)?.name))
    }
}

/// File systems that are never written.
const READ_ONLY: [&str; 5] = ["squashfs", "erofs", "cramfs", "romfs", "iso9660"];
/// File systems without a block device's cache whose writes go through `generic_perform_write`, where our probe is.
const PROBED: [&str; 7] = ["ubifs", "jffs2", "yaffs", "yaffs2", "nfs", "nfs4", "tmpfs"];
/// Major number of MTD's block devices (Documentation/admin-guide/devices.txt), which is also that of JFFS2's and YAFFS2's mounts.
const MTD_BLOCK: u32 = 31;

/// Whether the trace shows all buffered writes to files on this device. `writeback_dirty_folio` names the device of the cache: of a block
/// device its number, of others often a name (`btrfs-1`, `mtd-0`). FUSE writes without making pages dirty.
fn shows_writes_on(device: Device, kind: Option<&str>, shown: CacheShown) -> bool {
    let kind = kind.unwrap_or_default();
    let has_cache = !matches!(device.major(), 0 | MTD_BLOCK) && kind != "fuseblk";
    let by_probe = shown.probed_writes && PROBED.contains(&kind);
    READ_ONLY.contains(&kind) || by_probe || has_cache && shown.dirtied
}

#[derive(Clone, Copy, Default)]
struct Bytes {
    read: u64,
    cached: u64,
    written: u64,
    /// Of the pages that the file system prepared for writes.
    begun: u64,
    /// Begin and end of the last of these steps, and its call: a thread and the number of its call, or 0.
    last_begun: (u64, u64),
    call: (TaskId, u64),
    dirtied: u64,
    /// Past the page cache.
    direct: DirectBytes,
}

impl Bytes {
    /// A write may be shown twice: whole by a probe, and page by page by its file system.
    fn written(&self) -> u64 {
        self.written.max(self.begun)
    }

    /// A file system with large folios is asked for all that is left of a write, and takes one folio of it (`generic_perform_write`,
    /// mm/filemap.c, Linux 6.18). A step within the last one, up to the same end, is the rest of that write. It asks again where it could not
    /// copy, because the program's page was not in memory. A call writes each byte once, in order.
    fn begin(&mut self, from: u64, bytes: u64, call: (TaskId, u64)) {
        let (last, end) = self.last_begun;
        let is_same_call = call.1 > 0 && std::mem::replace(&mut self.call, call) == call;
        let to = from.saturating_add(bytes);
        self.last_begun = (from, to);
        if is_same_call && from < end && from >= last {
            self.last_begun.1 = to.max(end);
            self.begun = self.begun.saturating_add(to.saturating_sub(end));
        } else if from <= last || from >= end || self.last_begun.1 != end {
            self.begun = self.begun.saturating_add(bytes);
        }
    }
}

/// Counts the files that each owner uses.
pub struct FileUses<'f, L> {
    lookup: L,
    files: &'f FileNames,
    shown: CacheShown,
    /// Owners by number; the first is for threads without a name.
    whos: Vec<String>,
    numbers: HashMap<String, u32>,
    /// Number of each thread's call, counted over all of them.
    calls: HashMap<TaskId, u64>,
    all_calls: u64,
    /// Device, inode, ordinal of the file among those with this inode number, and number of the owner.
    pairs: BoundedMap<(Device, u64, u32, u32), Bytes>,
}

impl<'f, L: Lookup<Name: Named>> FileUses<'f, L> {
    /// `lookup` returns the owner that a thread is counted under; `shown`: the events that the traces have.
    pub fn new(lookup: L, files: &'f FileNames, shown: CacheShown) -> Self {
        FileUses {
            lookup,
            files,
            shown,
            whos: vec![String::new()],
            numbers: HashMap::new(),
            calls: HashMap::new(),
            all_calls: 0,
            pairs: BoundedMap::new(MAX_PAIRS, Full::Refuse),
        }
    }

    pub fn event(&mut self, event: &Event) {
        let file = match &event.kind {
            EventKind::File(file) => file,
            EventKind::Other { name, .. } => return self.call(name, event.tid),
            EventKind::Recording => return self.calls.clear(),
            _ => return,
        };
        let Some(device) = file.device else { return };
        if matches!(file.step, FileStep::Fault | FileStep::Mapped | FileStep::Uncached | FileStep::Extent)
            || matches!(file.step, FileStep::WritebackBegin | FileStep::WritebackEnd | FileStep::Synced)
        {
            return;
        }
        let who = match (self.lookup)(event.tid, event.time) {
            Some(named) => self.number(named.name()),
            None => 0,
        };
        let add = |sum: &mut u64| *sum = sum.saturating_add(file.bytes);
        let read = |sum: &mut u64| *sum = sum.saturating_add(file.bytes_read());
        let turn = self.files.turn(device, file.inode, event.time);
        let call = self.calls.get(&event.tid).copied().unwrap_or(0);
        let Some(used) = self.pairs.entry((device, file.inode, turn, who), Bytes::default) else { return };
        match file.step {
            FileStep::Read => read(&mut used.read),
            FileStep::Cached => add(&mut used.cached),
            FileStep::Write => add(&mut used.written),
            FileStep::WriteBegin => used.begin(file.offset, file.bytes, (event.tid, call)),
            _ => add(&mut used.dirtied),
        }
    }

    /// A system call begins or ends.
    fn call(&mut self, event: &str, tid: TaskId) {
        // One call of these may write several times, and further ones in the name of this thread.
        let is_one_write = event.strip_prefix("sys_enter_").is_some_and(|name| !name.starts_with("io_"));
        if is_one_write && self.calls.len() < MAX_NAMES {
            self.all_calls += 1;
            self.calls.insert(tid, self.all_calls);
        } else if event.starts_with("sys_e") {
            self.calls.remove(&tid);
        }
    }

    /// The number of a name; 0 where there are too many.
    fn number(&mut self, name: &str) -> u32 {
        if let Some(&number) = self.numbers.get(name) {
            return number;
        }
        if self.whos.len() >= MAX_NAMES {
            return 0;
        }
        let number = self.whos.len() as u32;
        self.whos.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        number
    }

    /// Adds names to the results.
    pub fn finish(self, devices: &DeviceNames) -> NamesFound {
        self.finish_with(devices, &[])
    }

    /// The same, with I/O past the page cache.
    pub fn finish_with(self, devices: &DeviceNames, direct: &[DirectUse]) -> NamesFound {
        let named = NamesFound::of_devices(devices);
        let mut by_who: BTreeMap<(Device, u64, u32, String), Bytes> = BTreeMap::new();
        let mut shows_writes: BTreeSet<(Device, u64, u32)> = BTreeSet::new();
        for (&(device, inode, turn, who), bytes) in self.pairs.iter() {
            let who = self.whos.get(who as usize).cloned().unwrap_or_default();
            let sum = by_who.entry((device, inode, turn, who)).or_default();
            sum.read = sum.read.saturating_add(bytes.read);
            sum.cached = sum.cached.saturating_add(bytes.cached);
            sum.written = sum.written.saturating_add(bytes.written);
            sum.begun = sum.begun.saturating_add(bytes.begun);
            sum.dirtied = sum.dirtied.saturating_add(bytes.dirtied);
            if bytes.written() > 0 {
                shows_writes.insert((device, inode, turn));
            }
        }
        let mut all_shown: BTreeSet<Device> = shows_writes.iter().map(|&(device, ..)| device).collect();
        all_shown.extend(by_who.keys().map(|key| key.0).filter(|&device| {
            self.shown.written_files && shows_writes_on(device, devices.filesystem(device), self.shown)
        }));
        direct.iter().for_each(|one| add_direct(&mut by_who, one, self.files));
        let (mut writes_not_shown, mut direct_not_shown) = (BTreeSet::new(), BTreeSet::new());
        let mut all: Vec<FileUse> = by_who
            .into_iter()
            .map(|((device, inode, turn, who), bytes)| {
                let written =
                    if shows_writes.contains(&(device, inode, turn)) { bytes.written() } else { bytes.dirtied };
                let is_shown = all_shown.contains(&device) || written > 0;
                if self.shown.written_files && !is_shown {
                    writes_not_shown.insert(device);
                }
                let direct = bytes.direct;
                if direct.may_read || direct.may_write {
                    direct_not_shown.insert(device);
                }
                let shows_reads = (self.shown.reads || bytes.read > 0) && !direct.may_read;
                let name = self.files.of_turn(device, inode, turn);
                let path = name.and_then(FileName::display);
                let what = if path.is_none() { named.own_data(device, inode) } else { None };
                let why = match name {
                    Some(FileName::Unnamed { why }) => Some(why.clone()),
                    Some(FileName::Path { .. }) => None,
                    None if what.is_some() => Some("metadata".to_owned()),
                    None => Some("not_looked_for".to_owned()),
                };
                FileUse {
                    who,
                    device: device.to_string(),
                    inode,
                    path,
                    what,
                    unnamed: why,
                    read_bytes: shows_reads.then_some(bytes.read.saturating_add(direct.read)),
                    cached_bytes: bytes.cached,
                    written_bytes: (is_shown && !direct.may_write).then_some(written.saturating_add(direct.written)),
                }
            })
            .collect();
        all.sort_by_key(|one| (std::cmp::Reverse(one.bytes()), one.device.clone(), one.inode));
        let mut coverage = coverage(&all, self.files.looked_for);
        coverage.not_kept = self.pairs.lost();
        all.truncate(MAX_ROWS);
        let [writes_not_shown, direct_not_shown] =
            [writes_not_shown, direct_not_shown].map(|devices| devices.iter().map(Device::to_string).collect());
        NamesFound { files: all, coverage, writes_not_shown, direct_not_shown, ..named }
    }
}

/// Adds I/O past the page cache to the files of its owner.
fn add_direct(by_who: &mut BTreeMap<(Device, u64, u32, String), Bytes>, one: &DirectUse, files: &FileNames) {
    let (device, bytes) = (one.device, one.bytes);
    if one.who == OWN_RECORDING {
        return;
    }
    let Some(inode) = one.inode else {
        // Any file that this owner uses there may be it.
        for ((_, _, _, who), of) in
            by_who.range_mut((device, 0, 0, String::new())..=(device, u64::MAX, u32::MAX, String::new()))
        {
            if who == &one.who {
                of.direct.may_read |= bytes.read > 0;
                of.direct.may_write |= bytes.written > 0;
            }
        }
        return;
    };
    let known = by_who.keys().filter(|key| (key.0, key.1) == (device, inode)).map(|key| key.2).max();
    let several = files.of_turn(device, inode, 1).is_some() || known.is_some_and(|turn| turn > 0);
    let key = (device, inode, known.unwrap_or(0), one.who.clone());
    if bytes.read.saturating_add(bytes.written) == 0 && !by_who.contains_key(&key) {
        return;
    }
    let of = by_who.entry(key).or_default();
    of.direct = bytes;
    // The bytes may be of an earlier file with this number.
    of.direct.may_read |= several && bytes.read > 0;
    of.direct.may_write |= several && bytes.written > 0;
}

/// Device and inode.
type FileKey<'f> = (&'f str, u64);

fn coverage(all: &[FileUse], looked_for: bool) -> Coverage {
    let mut found = Coverage::default();
    let mut unnamed: BTreeMap<&str, (BTreeSet<FileKey<'_>>, u64)> = BTreeMap::new();
    let mut own = 0_u64;
    for one in all {
        found.bytes = found.bytes.saturating_add(one.bytes());
        match &one.unnamed {
            None => found.named_bytes = found.named_bytes.saturating_add(one.bytes()),
            Some(why) => {
                let (files, bytes) = unnamed.entry(why).or_default();
                files.insert((&one.device, one.inode));
                *bytes = bytes.saturating_add(one.bytes());
                own = own.saturating_add(if why == "metadata" { one.bytes() } else { 0 });
            }
        }
    }
    let of_files = found.bytes - own;
    found.named_percent = match (looked_for, of_files) {
        (true, 1..) => ((found.named_bytes as f64 / of_files as f64 * 10_000.0).round() / 100.0).into(),
        (true, 0) => Evidence::unknown("the trace has no events of files", "record with --events cache"),
        (false, _) => Evidence::unknown(
            "the recording has no paths of files",
            "record with `flashscope record` of this version, without --paths none",
        ),
    };
    found.unnamed = unnamed
        .into_iter()
        .map(|(why, (files, bytes))| Unnamed { why: why.to_owned(), files: files.len() as u64, bytes })
        .collect();
    found.unnamed.sort_by_key(|one| std::cmp::Reverse(one.bytes));
    found
}

/// Adds paths to the file tables of a block report.
pub fn name_block_files(report: &mut BlockReport, files: &FileNames) {
    for group in report.found.groups.iter_mut().filter(|group| group.by == GroupBy::File) {
        group.path = path_of(&group.name, files);
    }
    for file in &mut report.found.originators.files {
        file.path = Device::parse(&file.device).and_then(|device| files.display(device, file.inode));
    }
    if let Some(found) = report.readahead.as_mut().and_then(Evidence::known_mut) {
        name_brought(found, files);
    }
}

/// Adds paths to the file tables of a flash report.
pub fn name_flash_files(report: &mut FlashReport, files: &FileNames) {
    for file in report.found.wear.known_mut().into_iter().flat_map(|wear| &mut wear.by_file) {
        let device = file.device.as_deref().and_then(Device::parse);
        file.path = device.and_then(|device| files.display(device, file.inode));
    }
    if let Some(found) = report.readahead.as_mut().and_then(Evidence::known_mut) {
        name_brought(found, files);
    }
}

fn path_of(name: &str, files: &FileNames) -> Option<String> {
    FileId::parse(name).and_then(|file| files.display(file.device?, file.inode))
}

/// Adds paths to the tables of calls, where they have none yet.
pub fn name_calls(calls: &mut CallsFound, files: &FileNames) {
    for group in &mut calls.by_file {
        group.path = group.path.take().or_else(|| path_of(&group.name, files));
    }
    for call in calls.slowest.iter_mut().chain(&mut calls.wanted) {
        name_call(call, files);
    }
}

/// Adds the path of a call's file, where it has none yet.
pub fn name_call(call: &mut SlowCall, files: &FileNames) {
    let path = || call.file.as_deref().and_then(|file| path_of(file, files));
    call.path = call.path.take().or_else(path);
}

fn name_brought(found: &mut crate::cache::AccuracyFindings, files: &FileNames) {
    for file in &mut found.files {
        file.path = file.device.and_then(|device| files.display(device, file.inode));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn event(tid: TaskId, step: FileStep, inode: u64, bytes: u64) -> Event {
        let file = crate::testing::file(step, Some(Device::new(7, 0)), inode, 0, bytes);
        crate::testing::event(1, tid.0, EventKind::File(file))
    }

    #[test]
    fn files_of_one_inode_number_are_kept_apart() {
        let facts = json!({"names": {"search": [{"paths": "default"}], "files": [
            {"device": "7:0", "inode": 12, "path": "/a", "state": "deleted", "until_ns": 100},
            {"device": "7:0", "inode": 12, "path": "/b"}]}});
        let names = FileNames::of_facts(&facts);
        let mut uses = FileUses::new(|_, _| Some("cp"), &names, CacheShown::ALL);
        for (time, step, bytes) in
            [(50, FileStep::Write, 10), (101, FileStep::Write, 20), (102, FileStep::Dirtied, 4096)]
        {
            uses.event(&Event { time: TimeNs(time), ..event(TaskId(1), step, 12, bytes) });
        }
        let found = uses.finish(&DeviceNames::of_facts(&facts));
        let rows: Vec<_> = found.files.iter().map(|f| (f.path.as_deref(), f.written_bytes.expect("bytes"))).collect();
        assert_eq!(rows, [(Some("/b"), 20), (Some("/a (deleted)"), 10)]);
    }

    /// `dd bs=64k count=2` to ext4 where the kernel has probes: each write is shown whole, and page by page. Without probes it is shown page
    /// by page.
    #[test]
    fn a_write_that_two_events_show_counts_once() {
        let names = FileNames::default();
        let written = |probes: bool| {
            let mut uses = FileUses::new(|_, _| Some("dd"), &names, CacheShown::ALL);
            for _ in 0..2 {
                if probes {
                    uses.event(&event(TaskId(1), FileStep::Write, 12, 65536));
                }
                (0..16).for_each(|_| uses.event(&event(TaskId(1), FileStep::WriteBegin, 12, 4096)));
            }
            uses.finish(&DeviceNames::default()).files[0].written_bytes
        };
        assert_eq!((written(true), written(false)), (Some(131_072), Some(131_072)));
    }

    /// `pwrite64` of two pages, of which the second was not in memory at first; then the program writes the same again. Without calls a step may be a
    /// write of its own.
    #[test]
    fn a_copy_that_is_tried_again_counts_once() {
        let written = |calls: bool| {
            let names = FileNames::default();
            let mut uses = FileUses::new(|_, _| Some("dd"), &names, CacheShown::ALL);
            for _ in 0..2 {
                let call = |name: &str| crate::testing::event(1, 1, crate::testing::call(name, None));
                calls.then(|| uses.event(&call("sys_enter_pwrite64")));
                for (offset, bytes) in [(0, 4096), (4096, 4096), (4096, 100), (4196, 3996)] {
                    let file = crate::testing::file(FileStep::WriteBegin, Some(Device::new(8, 0)), 12, offset, bytes);
                    uses.event(&crate::testing::event(1, 1, EventKind::File(file)));
                }
                calls.then(|| uses.event(&call("sys_exit_pwrite64")));
            }
            uses.finish(&DeviceNames::default()).files[0].written_bytes
        };
        assert_eq!((written(true), written(false)), (Some(16_384), Some(24_576)));
    }

    /// A file with 10 bytes written and 20 read through the cache, and I/O past it.
    #[test]
    fn bytes_past_the_page_cache_count_or_are_unknown() {
        let device = Device::new(8, 1);
        let of = |inode, bytes| vec![DirectUse { who: "dd".into(), device, inode, bytes }];
        let sums = |read, written, may_read, may_write| DirectBytes { read, written, may_read, may_write };
        let mut of_another = of(None, sums(1, 1, true, true));
        of_another[0].who = "cp".into();
        for (direct, expected, not_shown) in [
            (vec![], vec![(12, Some(20), Some(10))], vec![]),
            (of(Some(12), sums(4, 3, false, false)), vec![(12, Some(24), Some(13))], vec![]),
            (of(Some(13), sums(4, 3, false, false)), vec![(12, Some(20), Some(10)), (13, Some(4), Some(3))], vec![]),
            (of(Some(12), sums(0, 3, false, true)), vec![(12, Some(20), None)], vec!["8:1"]),
            (of(Some(12), sums(4, 0, true, false)), vec![(12, None, Some(10))], vec!["8:1"]),
            (of(None, sums(0, 4096, false, true)), vec![(12, Some(20), None)], vec!["8:1"]),
            (of(None, sums(4096, 0, true, false)), vec![(12, None, Some(10))], vec!["8:1"]),
            (of_another, vec![(12, Some(20), Some(10))], vec![]),
        ] {
            let names = FileNames::default();
            let mut uses = FileUses::new(|_, _| Some("dd"), &names, CacheShown::ALL);
            for (step, bytes) in [(FileStep::Write, 10), (FileStep::Read, 20)] {
                let file = crate::testing::file(step, Some(device), 12, 0, bytes);
                uses.event(&crate::testing::event(1, 1, EventKind::File(file)));
            }
            let found = uses.finish_with(&DeviceNames::default(), &direct);
            let rows: Vec<_> = found.files.iter().map(|one| (one.inode, one.read_bytes, one.written_bytes)).collect();
            assert_eq!((rows, found.direct_not_shown), (expected, not_shown.into_iter().map(str::to_owned).collect()));
        }
    }

    /// Steps of ext4 on Linux 6.18, first byte and bytes, and what the program wrote.
    #[test]
    fn the_rest_of_a_write_in_several_folios_counts_once() {
        let written = |steps: &[(u64, u64)]| {
            let names = FileNames::default();
            let mut uses = FileUses::new(|_, _| Some("dd"), &names, CacheShown::ALL);
            for &(offset, bytes) in steps {
                let file = crate::testing::file(FileStep::WriteBegin, Some(Device::new(8, 0)), 12, offset, bytes);
                uses.event(&crate::testing::event(1, 1, EventKind::File(file)));
            }
            uses.finish(&DeviceNames::default()).files[0].written_bytes
        };
        // write() of seven pages, in folios of four, two and one; of 20,000 bytes; and of two pages that follow.
        assert_eq!(written(&[(0, 28672), (16384, 12288), (24576, 4096)]), Some(28672));
        assert_eq!(written(&[(0, 20000), (16384, 3616)]), Some(20000));
        assert_eq!(written(&[(0, 12288), (8192, 4096), (12288, 8192), (20480, 100)]), Some(20580));
        // The same page again; a part of a page after the page.
        assert_eq!(written(&[(0, 4096), (0, 4096)]), Some(8192));
        assert_eq!(written(&[(0, 4096), (100, 50)]), Some(4146));
    }

    /// A file that was only read, on each kind of file system.
    #[test]
    fn writes_that_no_event_shows_are_not_0() {
        let facts = json!({"names": {"devices": [], "mounts": [
            {"device": "0:30", "type": "btrfs", "point": "/b", "root": "/", "source": "/dev/vda"},
            {"device": "8:2", "type": "fuseblk", "point": "/n", "root": "/", "source": "/dev/sda2"},
            {"device": "0:31", "type": "ubifs", "point": "/u", "root": "/", "source": "ubi0:x"},
            {"device": "31:3", "type": "squashfs", "point": "/s", "root": "/", "source": "/dev/mtdblock3"},
            {"device": "8:1", "type": "xfs", "point": "/x", "root": "/", "source": "/dev/sda1"}]}});
        let devices = DeviceNames::of_facts(&facts);
        let all = [(0, 30), (8, 2), (0, 31), (31, 3), (31, 4), (8, 1)].map(|(major, minor)| Device::new(major, minor));
        let names = FileNames::default();
        let written = |shown: CacheShown, also: Option<Event>| {
            let mut uses = FileUses::new(|_, _| Some("cat"), &names, shown);
            for device in all {
                let file = crate::testing::file(FileStep::Cached, Some(device), 300, 0, 4096);
                uses.event(&crate::testing::event(1, 1, EventKind::File(file)));
            }
            also.iter().for_each(|event| uses.event(event));
            let found = uses.finish(&devices);
            let of =
                |device: Device| found.files.iter().find(|file| file.device == device.to_string() && file.inode == 300);
            (all.map(|device| of(device).expect("a row").written_bytes), found.writes_not_shown)
        };
        let (known, not_shown) = written(CacheShown::ALL, None);
        assert_eq!(known, [None, None, Some(0), Some(0), None, Some(0)]);
        assert_eq!(not_shown, ["0:30", "8:2", "31:4"]);
        let (known, _) = written(CacheShown { probed_writes: false, ..CacheShown::ALL }, None);
        assert_eq!(known, [None, None, None, Some(0), None, Some(0)]);
        // Another file's write shows that those of this file system are shown.
        let write = crate::testing::file(FileStep::WriteBegin, Some(all[4]), 301, 0, 10);
        let (known, _) = written(CacheShown::ALL, Some(crate::testing::event(2, 1, EventKind::File(write))));
        assert_eq!(known, [None, None, Some(0), Some(0), Some(0), Some(0)]);
    }

    #[test]
    fn bytes_are_somebodys_of_some_file() {
        let facts = json!({"names": {"search": [{"paths": "default"}],
            "devices": [{"device": "7:0", "name": "loop0", "file": "/x.img"}],
            "files": [{"device": "7:0", "inode": 12, "path": "/mnt/a"}, {"device": "7:0", "inode": 13, "why": "deleted"},
                      {"device": "7:0", "inode": 8, "why": "metadata"}]}});
        let names = FileNames::of_facts(&facts);
        let mut uses = FileUses::new(
            |tid, _| (tid < TaskId(9)).then_some(if tid < TaskId(3) { "vlc" } else { "cp" }),
            &names,
            CacheShown::ALL,
        );
        for (tid, step, inode, bytes) in [
            (1, FileStep::Read, 12, 4000),
            (2, FileStep::Cached, 12, 8192),
            (3, FileStep::Write, 12, 100),
            (3, FileStep::Dirtied, 12, 4096),
            (3, FileStep::Dirtied, 13, 4096),
            (9, FileStep::Cached, 8, 4096),
            (9, FileStep::Uncached, 8, 4096),
        ] {
            uses.event(&event(TaskId(tid), step, inode, bytes));
        }
        let found = uses.finish(&DeviceNames::of_facts(&facts));
        let rows: Vec<_> = found
            .files
            .iter()
            .map(|f| {
                (
                    f.who.as_str(),
                    f.path.as_deref(),
                    f.read_bytes.expect("bytes"),
                    f.cached_bytes,
                    f.written_bytes.expect("bytes"),
                )
            })
            .collect();
        assert_eq!(
            rows,
            [
                ("vlc", Some("/mnt/a"), 4000, 8192, 0),
                ("", None, 0, 4096, 0),
                ("cp", None, 0, 0, 4096),
                ("cp", Some("/mnt/a"), 0, 0, 100)
            ]
        );
        assert_eq!(found.device("7:0"), "loop0 (file /x.img)");
        assert_eq!(found.file(None, "7:0 inode 9"), "inode 9 on loop0 (file /x.img)");
        assert_eq!(found.file(Some("/mnt/a"), "7:0 inode 12"), "/mnt/a");
        assert_eq!(found.file(None, "(further files)"), "(further files)");
        assert_eq!((found.coverage.bytes, found.coverage.named_bytes), (8192 + 4096 + 4096 + 100, 8292));
        assert_eq!(found.coverage.named_percent.known(), Some(&66.94), "the journal needs no path");
        assert_eq!(found.coverage.unnamed.len(), 2);
    }
}
