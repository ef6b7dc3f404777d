//! Finds the partition of a file if an event names only the disk. `writeback_dirty_folio` and `writeback_single_inode` print the name of
//! the backing device (`179:0`), which all partitions of a disk share. The mounts in the recording's facts show which partitions have a
//! file system. If several have one, the previous event of the same thread that names file and partition decides. Without such an event the
//! disk stays.

use crate::events::file::FileEvent;
use crate::facts::{rows, text};
use crate::ids::{Device, FileId, TaskId};
use foldhash::{HashMap, HashMapExt as _};
use serde_json::Value;
use std::collections::BTreeSet;

/// Read-only file systems: their pages never become dirty.
const READ_ONLY: [&str; 5] = ["squashfs", "erofs", "cramfs", "romfs", "iso9660"];
/// Threads whose last file is kept.
const MAX_THREADS: usize = 1 << 16;

#[derive(Default)]
struct Disk {
    partitions: BTreeSet<Device>,
    /// Partitions with a writable file system.
    mounted: BTreeSet<Device>,
}

/// Partitions of the recorded machine's disks.
#[derive(Default)]
pub(crate) struct Disks {
    disks: HashMap<Device, Disk>,
    /// The last file of each thread on a disk with several file systems.
    last: HashMap<TaskId, FileId>,
}

impl Disks {
    /// From a trace's facts; empty if they have no names.
    pub fn of_facts(facts: &Value) -> Disks {
        let device = |row: &Value| text(&row["device"]).and_then(Device::parse);
        let by_name: HashMap<&str, Device> =
            rows(facts, "devices").filter_map(|row| Some((text(&row["name"])?, device(row)?))).collect();
        let mut disks: HashMap<Device, Disk> = HashMap::new();
        for row in rows(facts, "devices") {
            if let (Some(part), Some(&disk)) = (device(row), text(&row["disk"]).and_then(|disk| by_name.get(disk))) {
                disks.entry(disk).or_default().partitions.insert(part);
            }
        }
        for row in rows(facts, "mounts") {
            let (Some(device), Some(kind)) = (device(row), text(&row["type"])) else { continue };
            let on = disks.values_mut().find(|disk| disk.partitions.contains(&device));
            if let Some(disk) = on.filter(|_| !READ_ONLY.contains(&kind)) {
                disk.mounted.insert(device);
            }
        }
        Disks { disks, last: HashMap::new() }
    }

    /// Replaces the disk by the partition. `by_disk`: the event names the backing device.
    pub fn find(&mut self, tid: TaskId, step: &mut FileEvent, by_disk: bool) {
        let Some(device) = step.device.filter(|_| !self.disks.is_empty()) else { return };
        if !by_disk {
            let several = |disk: &Disk| disk.mounted.len() > 1 && disk.mounted.contains(&device);
            if self.disks.values().any(several) && (self.last.len() < MAX_THREADS || self.last.contains_key(&tid)) {
                self.last.insert(tid, step.file());
            }
            return;
        }
        let Some(disk) = self.disks.get(&device) else { return };
        // block/bdev.c: the inode number of a block device's page cache is its dev_t.
        let cached = u32::try_from(step.inode).ok().map(Device).filter(|part| disk.partitions.contains(part));
        let last = || self.last.get(&tid).filter(|file| file.inode == step.inode).and_then(|file| file.device);
        step.device = match (cached, disk.mounted.len()) {
            (Some(part), _) => Some(part),
            (None, 1) => disk.mounted.first().copied(),
            _ => last().filter(|part| disk.mounted.contains(part)).or(step.device),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FileStep;
    use serde_json::json;

    fn step(device: (u32, u32), inode: u64) -> FileEvent {
        let device = Some(Device::new(device.0, device.1));
        FileEvent { step: FileStep::Dirtied, device, inode, offset: 0, bytes: 4096, size: None, block: 0, got: None }
    }

    #[test]
    fn a_disks_event_is_of_the_partition_with_a_file_system() {
        let device =
            |number: &str, name: &str, disk: Option<&str>| json!({"device": number, "name": name, "disk": disk});
        let mut disks = Disks::of_facts(&json!({"names": {
            "devices": [
                device("179:0", "mmcblk0", None), device("179:1", "mmcblk0p1", Some("mmcblk0")),
                device("179:2", "mmcblk0p2", Some("mmcblk0")), device("8:0", "sda", None),
                device("8:1", "sda1", Some("sda")), device("8:2", "sda2", Some("sda")), device("7:0", "loop0", None)],
            "mounts": [
                {"device": "179:1", "type": "squashfs", "point": "/"}, {"device": "179:2", "type": "ext4", "point": "/data"},
                {"device": "8:1", "type": "ext4", "point": "/a"}, {"device": "8:2", "type": "f2fs", "point": "/b"},
                {"device": "7:0", "type": "ext4", "point": "/c"}]}}));
        let mut find = |tid, mut step: FileEvent, by_disk| {
            disks.find(tid, &mut step, by_disk);
            let device = step.device.expect("a device");
            (device.major(), device.minor())
        };
        // squashfs has no dirty pages: it is the other one's.
        assert_eq!(find(TaskId(1), step((179, 0), 12), true), (179, 2));
        // The page cache of the partition itself.
        assert_eq!(find(TaskId(1), step((179, 0), 179 << 20 | 1), true), (179, 1));
        assert_eq!(find(TaskId(1), step((7, 0), 12), true), (7, 0));
        // Two file systems on one disk: which one is not known, unless the same thread's last event says it of this file.
        assert_eq!(find(TaskId(1), step((8, 0), 12), true), (8, 0));
        assert_eq!(find(TaskId(1), step((8, 2), 12), false), (8, 2));
        assert_eq!(find(TaskId(1), step((8, 0), 12), true), (8, 2));
        assert_eq!(find(TaskId(2), step((8, 0), 12), true), (8, 0));
        assert_eq!(find(TaskId(1), step((8, 0), 13), true), (8, 0));
        // A super block's own number stays.
        assert_eq!(find(TaskId(1), step((179, 0), 12), false), (179, 0));
    }
}
