//! Mounts and block devices of a recording: the part of its facts that rules and their advice need.

use crate::calls::{is_read, is_write};
use crate::units::grouped;
use flashscope_trace::facts::CpuPressure;
use flashscope_trace::{
    Device, DeviceNames, Facts, FileNames, ProcessId, TaskId, Trace, facts, file_label, own_data, split_task_label,
};
use std::collections::{BTreeMap, BTreeSet};

/// Most mounts and devices.
const MAX_KEPT: usize = 256;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mount {
    pub source: String,
    pub target: String,
    /// `ext4`, `ubifs`, …
    pub kind: String,
    pub options: Vec<String>,
    /// `MAJOR:MINOR` of its files.
    pub device: String,
    /// Size, and below free bytes, when the recording began; `None`: the recording does not have them.
    pub size_bytes: Option<u64>,
    pub free_bytes: Option<u64>,
}

impl Mount {
    pub fn has(&self, option: &str) -> bool {
        self.options.iter().any(|one| one == option)
    }

    /// Whether it lies on raw flash, which has no block device.
    pub(super) fn is_of_flash(&self) -> bool {
        matches!(self.kind.as_str(), "ubifs" | "jffs2" | "yaffs" | "yaffs2")
    }

    /// The value of `NAME=VALUE`.
    pub fn value(&self, option: &str) -> Option<&str> {
        self.options.iter().find_map(|one| one.strip_prefix(option)?.strip_prefix('='))
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Disk {
    pub name: String,
    /// `MAJOR:MINOR`; empty: the recording does not have it.
    pub device: String,
    /// The scheduler in use.
    pub scheduler: Option<String>,
    pub read_ahead_kib: Option<u64>,
    /// Most requests of its queue in flight at once.
    pub nr_requests: Option<u64>,
    /// Size of the largest request.
    pub max_sectors_kib: Option<u64>,
    /// `write back` or `write through`.
    pub write_cache: Option<String>,
    /// Of device mapper: `CRYPT-LUKS2-…`.
    pub dm_uuid: Option<String>,
    /// Of device mapper: its name in dmsetup and cryptsetup.
    pub dm_name: Option<String>,
    /// Of a loop device: its backing file.
    pub backing_file: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StorageFacts {
    /// Where overlayfs is mounted: it lies on no device.
    pub overlays: Vec<String>,
    pub mounts: Vec<Mount>,
    pub disks: Vec<Disk>,
    /// Read-ahead of each mounted btrfs, which has a setting of its own (fs/btrfs/super.c).
    btrfs: Vec<ReadAhead>,
    /// Numbers of the swap devices.
    pub swaps: Vec<String>,
    /// Paths of the swap files, with the numbers of the devices that they lie on.
    pub swap_files: Vec<(String, String)>,
    /// Names of the devices; below: paths of the files that were touched.
    pub device_names: DeviceNames,
    pub file_names: FileNames,
    /// The recording is of one device, and of the calls has only those that sync or rename: reads, writes and opens were not asked for.
    pub lacks_calls: bool,
    /// The trace shows the layers of calls: `report --by layer`.
    pub has_layers: bool,
    /// Part of the recording in which some task waited for a free processor, of 1000 parts; `None`: the kernel does not say it.
    pub cpu_wait_permille: Option<u64>,
    /// `None`: the recording does not have it.
    pub dirty_limit: Option<DirtyLimit>,
    /// The process of each thread that calls or reads, as far as the trace shows it.
    pub processes: BTreeMap<TaskId, ProcessId>,
    /// Those of them whose command line begins with Python.
    pub python_threads: BTreeSet<TaskId>,
    /// Those of the recorded command (`record -- CMD`), and of what it started.
    pub command_threads: BTreeSet<TaskId>,
}

/// The read-ahead of a file system's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReadAhead {
    /// The file that sets it.
    pub path: String,
    pub kib: u64,
}

/// Limit of changed memory: above it the kernel makes programs wait for the device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirtyLimit {
    pub bytes: u64,
    /// Computed from a ratio: the kernel takes it of free memory and file pages, about the available memory (mm/page-writeback.c).
    pub is_estimate: bool,
    /// The setting: `vm.dirty_bytes=1048576`.
    pub setting: String,
    /// Available memory when the recording began.
    pub available_bytes: Option<u64>,
}

impl DirtyLimit {
    fn of(vm: &facts::Vm) -> Option<DirtyLimit> {
        let (bytes, is_estimate, setting) = match (vm.dirty_bytes, vm.dirty_ratio, vm.available_bytes) {
            (Some(bytes), ..) if bytes > 0 => (bytes, false, format!("vm.dirty_bytes={bytes}")),
            (_, Some(ratio), Some(available)) if ratio <= 100 => {
                (available / 100 * ratio, true, format!("vm.dirty_ratio={ratio}"))
            }
            _ => return None,
        };
        Some(DirtyLimit { bytes, is_estimate, setting, available_bytes: vm.available_bytes })
    }
}

impl StorageFacts {
    /// `stats`: counters of the recorder at the end (docs/reference/agent-protocol.md).
    pub fn of_recording(trace: &Trace) -> StorageFacts {
        let mut facts = StorageFacts::of_facts(trace.facts(), trace.device_names(), trace.file_names());
        facts.cpu_wait_permille = cpu_wait(&trace.facts().cpu_pressure, &Facts::of(trace.stats()).cpu_pressure);
        let is_of_device = !trace.facts().recording.filter.device.is_empty();
        let mut raw = trace.facts().recording.raw_syscalls.iter().filter_map(|call| call.name.as_deref());
        let has_calls = raw.any(reads_or_writes) || trace.schemas().any(|schema| begins_such(&schema.name));
        facts.lacks_calls = is_of_device && !has_calls;
        facts.has_layers = trace.crossings().are_there();
        facts
    }

    /// `facts` of a recording (docs/reference/agent.md, "Facts").
    pub fn of_facts(facts: &Facts, device_names: DeviceNames, file_names: FileNames) -> StorageFacts {
        let text = |said: &Option<String>| said.clone().unwrap_or_default();
        let mount = |mount: &facts::Mount| Mount {
            source: text(&mount.source),
            target: text(&mount.target),
            kind: text(&mount.kind),
            options: text(&mount.options).split(',').map(str::to_owned).collect(),
            device: text(&mount.device),
            size_bytes: mount.size_bytes.filter(|&bytes| bytes > 0),
            free_bytes: mount.free_bytes,
        };
        let mounts: Vec<Mount> = facts.mounts.iter().take(MAX_KEPT).map(mount).collect();
        let overlays =
            mounts.iter().filter(|mount| mount.kind == "overlay").map(|mount| mount.target.clone()).collect();
        let mounts: Vec<Mount> = mounts.into_iter().filter(|mount| !mount.device.is_empty()).collect();
        let disk = |disk: &facts::Disk| {
            let name = text(&disk.name);
            let by_mount = || mounts.iter().find(|mount| mount.source == format!("/dev/{name}"));
            let device = match &disk.device {
                Some(device) => device.clone(),
                None => by_mount().map(|mount| mount.device.clone()).unwrap_or_default(),
            };
            Disk {
                device,
                scheduler: disk.scheduler.as_deref().map(in_use),
                read_ahead_kib: disk.read_ahead_kb,
                nr_requests: disk.nr_requests,
                max_sectors_kib: disk.max_sectors_kb,
                write_cache: disk.write_cache.clone(),
                dm_name: disk.dm_name.clone(),
                dm_uuid: disk.dm_uuid.clone(),
                backing_file: disk.of_loop.backing_file.clone(),
                name,
            }
        };
        let disks = facts.block.iter().take(MAX_KEPT).map(disk).collect();
        let swaps = facts.swaps.iter().take(MAX_KEPT).filter_map(|swap| swap.device.clone()).collect();
        let swap_file = |swap: &facts::Swap| {
            let path = swap.path.clone().filter(|_| swap.device.is_none())?;
            let holds = |mount: &&Mount| std::path::Path::new(&path).starts_with(&mount.target);
            let mount = mounts.iter().filter(holds).max_by_key(|mount| mount.target.len())?;
            Some((path.clone(), mount.device.clone()))
        };
        let swap_files = facts.swaps.iter().take(MAX_KEPT).filter_map(swap_file).collect();
        let btrfs = facts.bdi.iter().filter_map(|bdi| {
            let name = bdi.name.as_deref().filter(|name| name.starts_with("btrfs-"))?;
            Some(ReadAhead { path: format!("/sys/class/bdi/{name}/read_ahead_kb"), kib: bdi.read_ahead_kb? })
        });
        let btrfs = btrfs.take(MAX_KEPT).collect();
        let dirty_limit = DirtyLimit::of(&facts.vm);
        StorageFacts {
            mounts,
            overlays,
            disks,
            btrfs,
            swaps,
            swap_files,
            device_names,
            file_names,
            lacks_calls: false,
            has_layers: false,
            cpu_wait_permille: None,
            dirty_limit,
            processes: BTreeMap::new(),
            python_threads: BTreeSet::new(),
            command_threads: BTreeSet::new(),
        }
    }

    /// The process of each of these tasks; `None` where the trace does not show one of them.
    fn processes_of(&self, labels: &[&str]) -> Option<Vec<(TaskId, ProcessId)>> {
        let of = |label: &&str| {
            let (_, tid, _) = split_task_label(label)?;
            Some((tid, *self.processes.get(&tid)?))
        };
        labels.iter().map(of).collect()
    }

    pub(super) fn are_threads_of_one(&self, labels: &[&str]) -> bool {
        let known = self.processes_of(labels).unwrap_or_default();
        known.len() > 1 && known.iter().all(|(_, process)| *process == known[0].1)
    }

    /// Several tasks of one name: "8 processes called cp", "8 threads called w of process 100"; or "tasks", where the trace does not
    /// distinguish them.
    pub(super) fn tasks_called(&self, name: &str, labels: &[&str]) -> String {
        let n = grouped(labels.len() as u64);
        let known = self.processes_of(labels).unwrap_or_default();
        if self.are_threads_of_one(labels) {
            format!("{n} threads called {name} of process {}", known[0].1)
        } else if !known.is_empty() && known.iter().all(|(tid, process)| *process == (*tid).into()) {
            format!("{n} processes called {name}")
        } else {
            format!("{n} tasks called {name}")
        }
    }

    /// Mounts on raw flash.
    pub fn flash_mounts(&self) -> impl Iterator<Item = &Mount> {
        self.mounts.iter().filter(|mount| mount.is_of_flash())
    }

    pub fn mounts_of<'a>(&'a self, device: &'a str) -> impl Iterator<Item = &'a Mount> {
        self.mounts.iter().filter(move |mount| mount.device == device)
    }

    /// The whole disk with this number, or the disk of a mounted partition with this number.
    pub fn disk(&self, device: &str) -> Option<&Disk> {
        let whole = self.disks.iter().find(|disk| !disk.device.is_empty() && disk.device == device);
        whole.or_else(|| {
            let source = self.mounts_of(device).find_map(|mount| mount.source.strip_prefix("/dev/"))?;
            let of = |disk: &&Disk| {
                let rest = source.strip_prefix(disk.name.as_str());
                rest.is_some_and(|rest| rest.trim_start_matches('p').chars().all(|c| c.is_ascii_digit()))
            };
            self.disks.iter().filter(of).max_by_key(|disk| disk.name.len())
        })
    }

    /// The read-ahead of files on a device; `None`: no fact has it, or there are several btrfs, and none says which one it is.
    pub(super) fn read_ahead(&self, device: &str) -> Option<ReadAhead> {
        let disk = self.disk(device)?;
        let source = format!("/dev/{}", disk.name);
        let is_there = |mount: &&Mount| mount.device == device || mount.source == source;
        match self.mounts.iter().filter(is_there).any(|mount| mount.kind == "btrfs") {
            true => self.btrfs.first().filter(|_| self.btrfs.len() == 1).cloned(),
            false => Some(ReadAhead {
                path: format!("/sys/block/{}/queue/read_ahead_kb", disk.name),
                kib: disk.read_ahead_kib?,
            }),
        }
    }

    /// The device's name with its file system and place; without names `NAME (NUMBER)`, or the number alone.
    pub fn device_name(&self, device: &str) -> String {
        if let Some(known) = Device::parse(device).and_then(|device| self.device_names.get(device)) {
            return known.display();
        }
        match self.disk(device) {
            Some(disk) => format!("{} ({device})", disk.name),
            None => device.to_owned(),
        }
    }

    /// A file in a sentence.
    pub fn file_name(&self, device: &str, inode: u64) -> String {
        if let Some((what, of)) = self.file_systems_own(device, inode) {
            return format!("{what} {}", self.device_name(&of.to_string()));
        }
        let path = Device::parse(device).and_then(|device| self.file_names.display(device, inode));
        file_label(path.as_deref(), inode, &self.device_name(device))
    }

    /// What it is, if the inode holds a file system's own data and is no file, and of which device.
    pub(super) fn file_systems_own(&self, device: &str, inode: u64) -> Option<(&'static str, Device)> {
        let device = Device::parse(device)?;
        let own = || own_data(device, inode, |device| self.device_names.filesystem(device));
        self.file_names.display(device, inode).is_none().then(own)?
    }
}

fn reads_or_writes(call: &str) -> bool {
    is_read(call) || is_write(call)
}

/// Whether the event is the begin of a call that reads or writes.
fn begins_such(event: &str) -> bool {
    event.strip_prefix("sys_enter_").is_some_and(reads_or_writes)
}

fn cpu_wait(begin: &CpuPressure, end: &CpuPressure) -> Option<u64> {
    let waited_ns = end.some_us?.checked_sub(begin.some_us?)?.checked_mul(1000)?;
    let of_ns = end.monotonic_ns?.checked_sub(begin.monotonic_ns?).filter(|&ns| ns > 0)?;
    Some(waited_ns.min(of_ns).checked_mul(1000)? / of_ns)
}

/// `none [mq-deadline] bfq`: the one in brackets.
fn in_use(schedulers: &str) -> String {
    let within = schedulers.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    within.map_or(schedulers, |(name, _)| name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn calls_are_known_by_their_events() {
        for (event, is) in [
            ("sys_enter_pwrite64", true),
            ("sys_enter_fsync", false),
            ("sys_exit_read", false),
            ("block_bio_queue", false),
        ] {
            assert_eq!(begins_such(event), is, "{event}");
        }
    }

    /// Setting the disk's read-ahead changes nothing for files on btrfs.
    #[test]
    fn btrfs_has_a_read_ahead_of_its_own() {
        let of = |bdis: &[&str], device: &str| {
            let bdi: Vec<_> = bdis.iter().map(|name| json!({"name": name, "read_ahead_kb": 4096})).collect();
            let mounts = json!([
                {"source": "/dev/sda", "target": "/b", "type": "btrfs", "options": "rw", "device": "0:40"},
                {"source": "/dev/sdb", "target": "/e", "type": "ext4", "options": "rw", "device": "8:16"},
            ]);
            let disk = |name, device| json!({"name": name, "read_ahead_kb": 128, "device": device});
            let block = [disk("sda", "8:0"), disk("sdb", "8:16")];
            let facts = Facts::of(&json!({"mounts": mounts, "block": block, "bdi": bdi}));
            let storage = StorageFacts::of_facts(&facts, DeviceNames::default(), FileNames::default());
            storage.read_ahead(device).map(|one| (one.path, one.kib))
        };
        let own = Some(("/sys/class/bdi/btrfs-3/read_ahead_kb".to_owned(), 4096));
        assert_eq!((of(&["8:0", "btrfs-3"], "0:40"), of(&["8:0", "btrfs-3"], "8:0")), (own.clone(), own));
        assert_eq!(of(&["btrfs-3", "btrfs-4"], "0:40"), None);
        assert_eq!(of(&["btrfs-3"], "8:16"), Some(("/sys/block/sdb/queue/read_ahead_kb".to_owned(), 128)));
    }

    #[test]
    fn waiting_for_a_processor_is_a_part_of_the_recording() {
        let at = |some_us, monotonic_ns| CpuPressure { some_us, monotonic_ns };
        let begin = at(Some(1_000), Some(1_000_000));
        assert_eq!(cpu_wait(&begin, &at(Some(1_750), Some(2_000_000))), Some(750));
        // The kernel adds up a little late.
        assert_eq!(cpu_wait(&begin, &at(Some(2_001), Some(2_000_000))), Some(1000));
        for end in [at(None, Some(2_000_000)), at(Some(1_750), None), at(Some(10), Some(2_000_000)), begin.clone()] {
            assert_eq!(cpu_wait(&begin, &end), None);
        }
    }

    #[test]
    fn threads_and_processes_are_told_apart() {
        let labels = ["w (101)", "w (102)"];
        let of = |known: &[(u32, u32)]| {
            let processes = known.iter().map(|&(tid, pid)| (TaskId(tid), ProcessId(pid))).collect();
            StorageFacts { processes, ..StorageFacts::default() }.tasks_called("w", &labels)
        };
        assert_eq!(of(&[(101, 101), (102, 102)]), "2 processes called w");
        assert_eq!(of(&[(101, 100), (102, 100)]), "2 threads called w of process 100");
        // A process and its thread.
        assert_eq!(of(&[(101, 101), (102, 101)]), "2 threads called w of process 101");
        // Threads of two processes; and where one is not known.
        assert_eq!(of(&[(101, 100), (102, 90)]), "2 tasks called w");
        assert_eq!(of(&[(101, 101)]), "2 tasks called w");
    }

    #[test]
    fn bytes_count_before_the_ratio() {
        let of = |facts: serde_json::Value| DirtyLimit::of(&Facts::of(&json!({ "vm": facts })).vm);
        let ratio = json!({"dirty_bytes": 0, "dirty_ratio": 20, "available_bytes": 1000});
        let limit = |facts| of(facts).map(|limit| (limit.bytes, limit.is_estimate, limit.setting));
        assert_eq!(limit(ratio), Some((200, true, "vm.dirty_ratio=20".into())));
        let bytes = json!({"dirty_bytes": 4096, "dirty_ratio": 0, "available_bytes": null});
        assert_eq!(limit(bytes), Some((4096, false, "vm.dirty_bytes=4096".into())));
        for unknown in [json!({}), json!({"dirty_ratio": 20}), json!({"dirty_ratio": 101, "available_bytes": 100})] {
            assert_eq!(of(unknown), None);
        }
    }

    #[test]
    fn facts_are_read() {
        let facts = json!({
            "mounts": [
                {"source": "/dev/mmcblk0p2", "target": "/data", "type": "ext4", "options": "rw,commit=1", "device": "179:2"},
                {"source": "tmpfs", "target": "/run", "type": "tmpfs", "options": "rw", "device": null},
            ],
            "swaps": [{"path": "/data/swap", "device": null}, {"path": "/database/swap", "device": null}],
            "block": [{"name": "mmcblk0", "scheduler": "none [mq-deadline] bfq", "read_ahead_kb": 128, "device": "179:0"}],
        });
        fn of(facts: &Facts) -> StorageFacts {
            StorageFacts::of_facts(facts, DeviceNames::default(), FileNames::default())
        }
        let storage = of(&Facts::of(&facts));
        assert_eq!(storage.mounts.len(), 1);
        assert_eq!((storage.mounts[0].value("commit"), storage.mounts[0].has("sync")), (Some("1"), false));
        let disk = storage.disk("179:2").expect("the disk of its partition");
        assert_eq!((disk.name.as_str(), disk.scheduler.as_deref()), ("mmcblk0", Some("mq-deadline")));
        assert_eq!(storage.swap_files, [("/data/swap".to_owned(), "179:2".to_owned())]);
        assert_eq!(storage.device_name("179:0"), "mmcblk0 (179:0)");
        assert_eq!(storage.device_name("8:0"), "8:0");
        assert_eq!(of(&Facts::default()), StorageFacts::default());
    }
}
