//! Builds the names of devices: `mmcblk0p2 (ext4, /data)`, `ubi0:rootfs (ubifs, /)`, `mtd3 "rootfs"`, `vg-home (dm-0, ext4, /home)`, `loop0
//! (ext4, /mnt, file /srv/disk.img)`. All other code uses this module for them.

use super::files::{file_label, own_data};
use crate::facts::{Facts, Mtd};
use crate::facts::{rows, text};
use crate::ids::Device;
use foldhash::HashMap;
use serde_json::Value;
use std::collections::BTreeMap;

/// The major number of MTD's block devices, and of JFFS2's and YAFFS2's super blocks (`MTD_BLOCK_MAJOR`, include/linux/mtd/mtd.h, 6.1).
const MTD_MAJOR: u32 = 31;
/// Largest depth of stacked devices that is followed.
const DEEPEST: usize = 16;

/// Names and properties of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceName {
    /// The usual name: `mmcblk0p2`, `vg-home`, `mtd3 "rootfs"`, `ubi0:rootfs`.
    pub name: String,
    /// The kernel's name, if it differs: `dm-0`.
    pub kernel_name: Option<String>,
    pub filesystem: Option<String>,
    /// First mount point.
    pub mounted_at: Option<String>,
    /// The file behind a loop device.
    pub file: Option<String>,
    /// Kernel names of the devices directly below.
    pub beneath: Vec<String>,
}

impl DeviceName {
    /// The name with file system, mount point and backing file.
    pub fn display(&self) -> String {
        let file = self.file.as_ref().map(|file| format!("file {file}"));
        let parts = [self.kernel_name.clone(), self.filesystem.clone(), self.mounted_at.clone(), file];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        if parts.is_empty() { self.name.clone() } else { format!("{} ({})", self.name, parts.join(", ")) }
    }
}

/// The devices of a recorded machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceNames {
    devices: BTreeMap<Device, DeviceName>,
    by_kernel_name: HashMap<String, Device>,
}

impl DeviceNames {
    /// From a trace's facts; empty if they have no names.
    pub fn of_facts(facts: &Value) -> DeviceNames {
        let mut names = DeviceNames::default();
        let volumes: HashMap<&str, &str> =
            rows(facts, "volumes").filter_map(|row| Some((text(&row["volume"])?, text(&row["name"])?))).collect();
        let mtd = mtd_names(facts);
        for row in rows(facts, "devices") {
            let (Some(device), Some(name)) = (text(&row["device"]).and_then(Device::parse), text(&row["name"])) else {
                continue;
            };
            names.by_kernel_name.insert(name.to_owned(), device);
            // Later rows are from the recording's end; a device that is gone by then keeps its earlier name.
            let shown = match text(&row["dm"]) {
                Some(dm) => dm.to_owned(),
                None => called(name, &volumes, &mtd),
            };
            let own = |key: &str| text(&row[key]).map(str::to_owned);
            let mut beneath: Vec<String> = own("disk").into_iter().collect();
            beneath.extend(row["below"].as_array().into_iter().flatten().filter_map(text).map(str::to_owned));
            names.devices.insert(
                device,
                DeviceName {
                    kernel_name: (shown != name && text(&row["dm"]).is_some()).then(|| name.to_owned()),
                    name: shown,
                    file: own("file"),
                    beneath,
                    ..DeviceName::default()
                },
            );
        }
        for (index, name) in &mtd {
            names
                .devices
                .entry(Device::new(MTD_MAJOR, *index))
                .or_insert_with(|| DeviceName { name: name.clone(), ..DeviceName::default() });
        }
        names.take_mounts(facts, &volumes, &mtd);
        names
    }

    fn take_mounts(&mut self, facts: &Value, volumes: &HashMap<&str, &str>, mtd: &BTreeMap<u32, String>) {
        for row in rows(facts, "mounts") {
            let (Some(device), Some(kind), Some(point)) =
                (text(&row["device"]).and_then(Device::parse), text(&row["type"]), text(&row["point"]))
            else {
                continue;
            };
            let name = self.devices.entry(device).or_insert_with(|| {
                let source = text(&row["source"]).unwrap_or("none");
                let source = source.strip_prefix("/dev/").unwrap_or(source);
                let memory = matches!(source, "none" | "nodev");
                DeviceName {
                    name: called(if memory { kind } else { source }, volumes, mtd),
                    beneath: if text(&row["source"]).is_some_and(|s| s.starts_with("/dev/")) {
                        vec![source.to_owned()]
                    } else {
                        Vec::new()
                    },
                    ..DeviceName::default()
                }
            });
            let whole = text(&row["root"]) == Some("/") && row["elsewhere"] != true;
            if name.filesystem.is_none() || (whole && name.mounted_at.is_none()) {
                name.filesystem = Some(kind.to_owned()).filter(|kind| *kind != name.name);
                name.mounted_at = Some(point.to_owned()).filter(|_| row["elsewhere"] != true);
            }
        }
    }

    pub fn get(&self, device: Device) -> Option<&DeviceName> {
        self.devices.get(&device)
    }

    /// The name with file system, mount point and backing file; the number of an unknown device.
    pub fn display(&self, device: Device) -> String {
        self.get(device).map_or_else(|| device.to_string(), DeviceName::display)
    }

    /// The type of the device's file system; empty if none is mounted. `None`: the device is unknown.
    pub fn filesystem(&self, device: Device) -> Option<&str> {
        // The name of a file system without a device is its type: tmpfs.
        self.get(device)
            .map(|name| name.filesystem.as_deref().unwrap_or(if device.major() == 0 { &name.name } else { "" }))
    }

    /// A file's label for a sentence: [`file_label`], or its role if it holds the file system's own data (`metadata of vda (ext4, /)`).
    pub fn file_label(&self, path: Option<&str>, device: Device, inode: u64) -> String {
        match (path, own_data(device, inode, |device| self.filesystem(device))) {
            (None, Some((what, device))) => format!("{what} {}", self.display(device)),
            _ => file_label(path, inode, &self.display(device)),
        }
    }

    /// Names of all devices below this one, the nearest first.
    pub fn stack(&self, device: Device) -> Vec<String> {
        let mut all = Vec::new();
        let mut next: Vec<&str> =
            self.get(device).into_iter().flat_map(|name| &name.beneath).map(String::as_str).collect();
        for _ in 0..DEEPEST {
            let mut lower = Vec::new();
            for kernel_name in std::mem::take(&mut next) {
                let known = self.by_kernel_name.get(kernel_name).and_then(|&device| self.get(device));
                let name = known.map_or_else(|| kernel_name.to_owned(), |known| known.name.clone());
                if !all.contains(&name) {
                    all.push(name);
                    lower.extend(known.into_iter().flat_map(|known| &known.beneath).map(String::as_str));
                }
            }
            next = lower;
        }
        all
    }

    pub fn iter(&self) -> impl Iterator<Item = (Device, &DeviceName)> {
        self.devices.iter().map(|(&device, name)| (device, name))
    }

    /// Finds a device by its name, the kernel's name, its number, or its mount point.
    pub fn find(&self, text: &str) -> Option<Device> {
        let wanted = text.strip_prefix("/dev/").unwrap_or(text);
        let by_name = || self.iter().find(|(_, name)| name.name == wanted || name.mounted_at.as_deref() == Some(text));
        // The kernel's `nvme0n1` is a disk: only without one the name is of a driver's events.
        let by_kernel_name = self.by_kernel_name.get(wanted).copied();
        by_kernel_name.or_else(|| by_name().map(|(device, _)| device)).or_else(|| Device::parse(wanted))
    }

    /// Adds what another trace knows and this one does not.
    pub fn extend(&mut self, other: DeviceNames) {
        for (device, name) in other.devices {
            self.devices.entry(device).or_insert(name);
        }
        for (name, device) in other.by_kernel_name {
            self.by_kernel_name.entry(name).or_insert(device);
        }
    }
}

/// `mtd3 "rootfs"`, by number.
fn mtd_names(facts: &Value) -> BTreeMap<u32, String> {
    let of = |mtd: &Mtd| {
        let index = u32::try_from(mtd.index?).ok()?;
        Some((index, format!("mtd{index} \"{}\"", mtd.name.as_deref()?)))
    };
    Facts::of(facts).mtd.iter().filter_map(of).collect()
}

/// The usual name for a kernel's name or a mount's source.
fn called(name: &str, volumes: &HashMap<&str, &str>, mtd: &BTreeMap<u32, String>) -> String {
    // ubi0_1, or the block device ubiblock0_1 above it.
    let volume = name.strip_prefix("ubiblock").map(|number| format!("ubi{number}"));
    if let Some(title) = volumes.get(volume.as_deref().unwrap_or(name))
        && let Some((ubi, _)) = volume.as_deref().unwrap_or(name).split_once('_')
    {
        return format!("{ubi}:{title}");
    }
    let index = name.strip_prefix("mtdblock").or_else(|| name.strip_prefix("mtd"));
    if let Some(found) = index.and_then(|index| index.parse().ok()).and_then(|index: u32| mtd.get(&index)) {
        return found.clone();
    }
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_device_has_one_name() {
        let facts = json!({
            "mtd": [{"index": 3, "name": "rootfs"}, {"index": 4, "name": "data"}],
            "names": {
                "devices": [
                    {"device": "179:0", "name": "mmcblk0", "card": "DG4008"},
                    {"device": "179:2", "name": "mmcblk0p2", "disk": "mmcblk0"},
                    {"device": "254:0", "name": "dm-0", "dm": "vg-home", "below": ["mmcblk0p2"]},
                    {"device": "7:0", "name": "loop0", "file": "/srv/disk.img"},
                    {"device": "31:3", "name": "mtdblock3"},
                    {"device": "252:0", "name": "ubiblock0_0"},
                ],
                "volumes": [{"volume": "ubi0_0", "name": "rootfs"}, {"volume": "ubi0_1", "name": "data"}],
                "mounts": [
                    {"device": "179:2", "type": "ext4", "point": "/data", "root": "/", "source": "/dev/mmcblk0p2"},
                    {"device": "179:2", "type": "ext4", "point": "/srv/data", "root": "/x", "source": "/dev/mmcblk0p2"},
                    {"device": "254:0", "type": "ext4", "point": "/home", "root": "/", "source": "/dev/mapper/vg-home"},
                    {"device": "7:0", "type": "ext4", "point": "/mnt", "root": "/", "source": "/dev/loop0"},
                    {"device": "0:15", "type": "ubifs", "point": "/var", "root": "/", "source": "ubi0:data"},
                    {"device": "0:16", "type": "ubifs", "point": "/opt", "root": "/", "source": "/dev/ubi0_1"},
                    {"device": "252:0", "type": "squashfs", "point": "/", "root": "/", "source": "/dev/ubiblock0_0"},
                    {"device": "31:4", "type": "jffs2", "point": "/cfg", "root": "/", "source": "mtd4"},
                    {"device": "0:30", "type": "btrfs", "point": "/b", "root": "/", "source": "/dev/loop0"},
                    {"device": "0:31", "type": "tmpfs", "point": "/tmp", "root": "/", "source": "none"},
                ],
            },
        });
        let names = DeviceNames::of_facts(&facts);
        for (device, display) in [
            ("179:0", "mmcblk0"),
            ("179:2", "mmcblk0p2 (ext4, /data)"),
            ("254:0", "vg-home (dm-0, ext4, /home)"),
            ("7:0", "loop0 (ext4, /mnt, file /srv/disk.img)"),
            ("31:3", "mtd3 \"rootfs\""),
            ("31:4", "mtd4 \"data\" (jffs2, /cfg)"),
            ("252:0", "ubi0:rootfs (squashfs, /)"),
            ("0:15", "ubi0:data (ubifs, /var)"),
            ("0:16", "ubi0:data (ubifs, /opt)"),
            ("0:30", "loop0 (btrfs, /b)"),
            ("0:31", "tmpfs (/tmp)"),
            ("8:0", "8:0"),
        ] {
            assert_eq!(names.display(Device::parse(device).unwrap()), display);
        }
        assert_eq!(names.stack(Device::new(254, 0)), ["mmcblk0p2", "mmcblk0"]);
        assert_eq!(names.find("/dev/mmcblk0p2"), Some(Device::new(179, 2)));
        assert_eq!(names.find("vg-home"), Some(Device::new(254, 0)));
        assert_eq!(names.find("/data"), Some(Device::new(179, 2)));
        assert_eq!(names.find("sda"), None);
    }
}
