//! Numbers of devices, files, threads and processes, with a type for each.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;

/// Largest number of CPUs: the kernel's own limit (`CONFIG_NR_CPUS` of x86-64).
pub(crate) const MAX_CPUS: u16 = 8192;

/// The kernel's number of a device (`dev_t`: 12 bits major, 20 bits minor).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema, Deserialize)]
#[serde(transparent)]
pub struct Device(pub u32);

impl Device {
    /// Majors above the kernel's own (`CHRDEV_MAJOR_MAX`, 511), for devices that only a driver's events name: `mmc0`, `nvme0n1`, an address of
    /// SCSI, `ufs0`.
    pub(crate) const MMC: u32 = 0xff0;
    pub(crate) const NVME: u32 = 0xff1;
    pub(crate) const SCSI: u32 = 0xff2;
    pub(crate) const UFS: u32 = 0xff3;

    pub fn new(major: u32, minor: u32) -> Device {
        Device(major << 20 | minor & 0xf_ffff)
    }

    pub fn major(self) -> u32 {
        self.0 >> 20
    }

    pub fn minor(self) -> u32 {
        self.0 & 0xf_ffff
    }

    /// `"254:0"`, as the kernel and facts write it, or another name that [`fmt::Display`] writes. `None` for what is no such name.
    pub fn parse(text: &str) -> Option<Device> {
        let number = |text: &str, bits: u32| text.parse::<u32>().ok().filter(|number| number >> bits == 0);
        let (major, minor) = if let Some(host) = text.strip_prefix("mmc") {
            (Device::MMC, number(host, 20)?)
        } else if let Some(host) = text.strip_prefix("ufs") {
            (Device::UFS, number(host, 20)?)
        } else if let Some(name) = text.strip_prefix("nvme") {
            let (controller, namespace) = name.split_once('n').unwrap_or((name, "0"));
            (Device::NVME, number(controller, 10)? << 10 | number(namespace, 10)?)
        } else if let Some(address) = text.strip_prefix("scsi ") {
            let parts: Vec<&str> = address.split(':').collect();
            let [host, channel, id, lun] = parts[..] else { return None };
            (Device::SCSI, number(host, 8)? << 12 | number(channel, 2)? << 10 | number(id, 5)? << 5 | number(lun, 5)?)
        } else {
            let (major, minor) = text.split_once(':')?;
            (number(major, 12)?, number(minor, 20)?)
        };
        Some(Device::new(major, minor))
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let minor = self.minor();
        match self.major() {
            Device::MMC => write!(f, "mmc{minor}"),
            // Namespaces count from 1; 0: the event names the controller alone.
            Device::NVME if minor & 0x3ff == 0 => write!(f, "nvme{}", minor >> 10),
            Device::NVME => write!(f, "nvme{}n{}", minor >> 10, minor & 0x3ff),
            Device::SCSI => {
                let (channel, id, lun) = (minor >> 10 & 3, minor >> 5 & 31, minor & 31);
                write!(f, "scsi {}:{channel}:{id}:{lun}", minor >> 12)
            }
            Device::UFS => write!(f, "ufs{minor}"),
            major => write!(f, "{major}:{minor}"),
        }
    }
}

/// Threads of which a text has the name alone. The kernel's numbers are below 2^22 (`PID_MAX_LIMIT`).
const UNNUMBERED: std::ops::Range<u32> = 0xe000_0000..0xf000_0000;

/// A number of the kernel with a type of its own, which is read and described as the plain number. -1, where the kernel has none (`pid_t`),
/// is 0 in results: unknown.
macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.0 {
                    number if number == u32::MAX || UNNUMBERED.contains(&number) => f.write_str("-1"),
                    number => number.fmt(f),
                }
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_u32(if self.0 == u32::MAX || UNNUMBERED.contains(&self.0) { 0 } else { self.0 })
            }
        }

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                u32::schema_name()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                u32::json_schema(generator)
            }
        }
    };
}

number! {
    /// The kernel's number of a thread (`task_struct.pid`, `gettid()`); 0 is the idle task of every CPU, or unknown.
    TaskId
}

impl TaskId {
    /// Threads that had ended: perf has -1 for all of them (`perf_event_pid_type`, kernel/events/core.c).
    pub const ENDED: TaskId = TaskId(u32::MAX);

    /// Stands for the threads with this name, of which a text has no number (FNV-1a of the name).
    pub fn of_name(name: &[u8]) -> TaskId {
        let hash = name.iter().fold(0x811c_9dc5, |hash: u32, &byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        TaskId(UNNUMBERED.start | hash & (UNNUMBERED.end - UNNUMBERED.start - 1))
    }

    pub fn has_number(self) -> bool {
        self != TaskId::ENDED && !UNNUMBERED.contains(&self.0)
    }
}

number! {
    /// The kernel's number of a process (`task_struct.tgid`, `getpid()`).
    ProcessId
}

impl ProcessId {
    pub fn first_thread(self) -> TaskId {
        TaskId(self.0)
    }
}

impl From<TaskId> for ProcessId {
    /// The process whose first thread this is.
    fn from(first_thread: TaskId) -> ProcessId {
        ProcessId(first_thread.0)
    }
}

/// A file, as events name it. An inode's number may be another file's later: [`crate::FileNames::turn`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema, Deserialize)]
pub struct FileId {
    /// Of its file system; `None` where the event names none that has a number (an MTD device's cache).
    pub device: Option<Device>,
    pub inode: u64,
}

impl FileId {
    pub fn on(device: Device, inode: u64) -> FileId {
        FileId { device: Some(device), inode }
    }

    /// `"254:0 inode 12"`, as tables name a file without a path. `None` for what names no device or is no such name.
    pub fn parse(text: &str) -> Option<FileId> {
        let (device, inode) = text.split_once(" inode ")?;
        Some(FileId::on(Device::parse(device)?, inode.parse().ok()?))
    }
}

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.device {
            Some(device) => write!(f, "{device} inode {}", self.inode),
            None => write!(f, "inode {}", self.inode),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_thread_without_a_number_has_none_in_results() {
        for (tid, text, json) in [
            (TaskId(7), "7", "7"),
            (TaskId(0), "0", "0"),
            (TaskId::ENDED, "-1", "0"),
            (TaskId::of_name(b"dd"), "-1", "0"),
        ] {
            assert_eq!(
                (tid.to_string(), serde_json::to_string(&tid).expect("JSON")),
                (text.to_owned(), json.to_owned())
            );
        }
    }

    #[test]
    fn numbers_are_written_and_described_as_plain_ones() {
        let written = serde_json::to_string(&BTreeMap::from([(TaskId(7), ProcessId(5))])).unwrap();
        assert_eq!(written, r#"{"7":5}"#);
        assert_eq!(schemars::schema_for!(Vec<Option<TaskId>>), schemars::schema_for!(Vec<Option<u32>>));
    }

    #[test]
    fn a_devices_name_is_read_as_it_is_written() {
        for name in ["254:0", "mmc0", "mmc12", "ufs3", "nvme0", "nvme1n2", "scsi 2:0:1:3"] {
            assert_eq!(Device::parse(name).map(|device| device.to_string()).as_deref(), Some(name));
        }
        for other in
            ["", "4096:0", "0:1048576", "mmcblk0", "mmc", "ufs0p1", "nvme0n1p1", "nvme1024", "scsi 1:2", "scsi 1:4:0:0"]
        {
            assert_eq!(Device::parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_files_name_is_read_as_it_is_written() {
        let file = FileId::on(Device::new(7, 0), 12);
        assert_eq!((file.to_string().as_str(), FileId::parse("7:0 inode 12")), ("7:0 inode 12", Some(file)));
        assert_eq!(FileId { device: None, inode: 12 }.to_string(), "inode 12");
        for other in ["(further files)", "inode 12", "7 inode 12", "7:0 inode x"] {
            assert_eq!(FileId::parse(other), None, "{other}");
        }
    }
}
