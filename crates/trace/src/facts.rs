//! A recording's facts about its machine and itself, typed (`docs/reference/agent.md`, "Facts").
//!
//! A trace is untrusted: a fact that is absent or has another type is unknown (`None`, or left out of its list); the other facts stay.
//! Names of devices, files and processes have tables of their own (`identity`). Facts that are not listed here stay in the JSON of exports
//! ([`Trace::facts_json`](crate::Trace::facts_json)).

use serde::de::{DeserializeOwned, Deserializer};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::{Device, TaskId};

/// Largest size or count of a device or file system: 9 PB, and the largest count that a double can hold.
const MOST_BYTES: u64 = 1 << 53;
/// Largest erase block, file system block, or window in KiB: 32 bits.
const MOST_UNIT: u64 = u32::MAX as u64;
/// Largest memory page: the kernel's largest is 1 MiB (arch/hexagon/Kconfig).
const MOST_PAGE: u64 = 1 << 20;

/// A field's value; `None` if unknown.
pub trait Known: Sized {
    fn known(value: Value) -> Self;
}

impl<T: DeserializeOwned> Known for Option<T> {
    fn known(value: Value) -> Self {
        serde_json::from_value(value).ok()
    }
}

impl<T: DeserializeOwned> Known for Vec<T> {
    fn known(value: Value) -> Self {
        let Value::Array(all) = value else { return Vec::new() };
        all.into_iter().filter_map(|one| serde_json::from_value(one).ok()).collect()
    }
}

fn known<'de, D: Deserializer<'de>, T: Known>(from: D) -> Result<T, D::Error> {
    Value::deserialize(from).map(T::known)
}

/// A type as the agent writes it, and the type in which it is read: any value may be unknown there.
pub trait Fact {
    type Read: Known;
}

macro_rules! values {
    ($($value:ty)*) => {$(
        impl Fact for $value {
            type Read = Option<$value>;
        }
    )*};
}

values! { bool u32 u64 i64 String }

impl<T: Fact> Fact for Option<T> {
    type Read = T::Read;
}

impl<T: DeserializeOwned> Fact for Vec<T> {
    type Read = Vec<T>;
}

macro_rules! read_as {
    ($written:ty) => {
        <$written as Fact>::Read
    };
    ($written:ty => $read:ty) => {
        $read
    };
}

/// Defines each object twice: a struct in which every field may be unknown, and in `complete` as the agent writes it, for the schema.
/// `=>` is the type in which a field is read, if `Fact` does not say it. Only recordings have the fields behind `+ recorded`.
macro_rules! objects {
    ($($(#[$about:meta])* $name:ident {
        $($(#[$meta:meta])* $field:ident: $type:ty $(=> $read:ty)?,)*
    } $(+ recorded { $($(#[$more_meta:meta])* $more:ident: $more_type:ty $(=> $more_read:ty)?,)* })?)*) => {
        $(
            $(#[$about])*
            #[derive(Clone, Debug, Default, PartialEq, Deserialize)]
            #[serde(default)]
            pub struct $name {
                $($(#[$meta])* #[serde(deserialize_with = "known")] pub $field: read_as!($type $(=> $read)?),)*
                $($($(#[$more_meta])* #[serde(deserialize_with = "known")] pub $more: read_as!($more_type $(=> $more_read)?),)*)?
            }

            impl Known for $name {
                fn known(value: Value) -> Self {
                    serde_json::from_value(value).unwrap_or_default()
                }
            }

            impl Fact for $name {
                type Read = $name;
            }
        )*

        /// The facts as the agent's `probe` writes them, for the schema of `doctor --json`.
        #[allow(dead_code, reason = "they are only for the schema")]
        pub mod complete {
            use crate::ids::TaskId;
            use schemars::JsonSchema;

            $(
                $(#[$about])*
                #[derive(JsonSchema)]
                pub struct $name {
                    $($(#[$meta])* $field: $type,)*
                }
            )*

            #[derive(JsonSchema)]
            pub struct Agent {
                version: String,
                /// SHA-256 of the agent's sources, first 16 digits; agents before 0.2.0 have none.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                build: Option<String>,
                protocol: u32,
                arch: String,
            }
        }
    };
}

objects! {
    /// What a machine is, and what can be recorded on it; a recording's facts have more.
    Facts {
        access: Access => Option<Access>,
        agent: Agent,
        kernel: Kernel,
        clocks: Clocks,
        /// Null without CONFIG_PSI; agents before 0.2.0 have none. In a recording's facts: from its beginning. In its statistics: from its
        /// end.
        #[serde(default)]
        cpu_pressure: Option<CpuPressure>,
        tracefs: Tracefs,
        /// The state of each group of `--events` on this machine.
        groups: Vec<Group>,
        probe_points: Vec<ProbePoint>,
        mtd: Vec<Mtd>,
        block: Vec<Disk>,
        ubi: Vec<Ubi>,
        /// Directories of /sys/class/bdi.
        bdi: Vec<Bdi>,
        mounts: Vec<Mount>,
        #[serde(default)]
        swaps: Vec<Swap>,
        /// Agents before 0.2.0 have none.
        #[serde(default)]
        vm: Option<Vm>,
    } + recorded {
        recording: Recording,
        flashmon: Flashmon,
        blktrace: Blktrace,
    }

    /// The rights of the process that would record.
    Access {
        uid: u32,
        capabilities: Vec<String>,
        instances: Option<Instances>,
        needs: Vec<Need> => Option<Vec<Need>>,
        /// What a recording agent keeps of the capabilities that it has; it gives up all others.
        #[serde(default)]
        keeps: Vec<Kept>,
    }

    Instances {
        uid: u32,
        gid: u32,
        /// Octal.
        mode: String,
    }

    /// A capability, when it is kept, and why.
    Kept {
        capability: String,
        when: String,
        why: String,
    }

    /// A part of a recording, the right that it needs, and whether the process has it.
    Need {
        what: String,
        by: String,
        there: bool,
    }

    Kernel {
        release: String,
        version: String,
        machine: String,
        page_size: u64,
        /// Bytes of a `long` of the kernel.
        long_size: u32,
        cpus_possible: Option<u32>,
        cmdline: Option<String>,
        /// Null on a virtual board.
        boot_id: Option<String>,
    }

    Clocks {
        /// Clocks that tracefs offers; null where it cannot be read.
        trace: Option<Vec<String>>,
        monotonic_ns: u64,
    }

    /// `/proc/pressure/cpu`
    CpuPressure {
        /// Time that tasks waited for a free processor since boot, microseconds.
        some_us: u64,
        /// When this was read.
        monotonic_ns: u64,
    }

    Tracefs {
        path: Option<String>,
        error: Option<String>,
        instances: bool,
        kprobe_events: bool,
        /// Mounted for the recorder alone.
        private_mount: Option<bool>,
    }

    /// What a group of `--events` has here.
    Group {
        group: String,
        /// Kernel events.
        events: u32,
        /// Probes of ours.
        probes: u32,
        /// What to do if the group has no events.
        lacks: Option<String>,
        absent: Vec<Absent>,
        raw_syscalls: Vec<RawSyscall>,
    }

    /// An event that the kernel does not have.
    Absent {
        group: String,
        event: String,
        why: String,
        loses: String,
    }

    ProbePoint {
        /// `read`, `program`, `erase`
        operation: String,
        symbol: String,
        /// `nand`, `mtd`, `spi-mem`
        level: String,
        /// `proved`, `present`, `absent`, `refused`, `silent`
        status: Option<String>,
        fired: Option<u64>,
        mtd: Option<u64>,
        /// Known only after a trial.
        chosen: Option<bool>,
        note: String,
        loses: Option<String>,
    } + recorded {
        chip: u64,
    }

    /// An MTD device; sizes in bytes.
    Mtd {
        index: u64,
        name: String,
        #[serde(rename = "type")]
        kind: String,
        size: u64,
        erasesize: u64,
        writesize: u64,
        subpagesize: Option<u64>,
        oobsize: u64,
        /// Offset on its chip, bytes.
        offset: Option<u64>,
        /// Number of the chip, from 0. Partitions of one chip share it.
        chip: Option<u64>,
        parent: Option<u64>,
        first_page: Option<u64>,
        /// Kernel addresses of `struct nand_chip` and `struct mtd_info`.
        chip_pointer: Option<u64>,
        mtd_pointer: Option<u64>,
        corrected_bits: Option<u64>,
        ecc_failures: Option<u64>,
        bad_blocks: Option<u64>,
    }

    /// A whole block device (not a partition).
    Disk {
        name: String,
        /// `254:0`
        device: Option<String>,
        size_bytes: Option<u64>,
        read_ahead_kb: Option<u64>,
        max_sectors_kb: Option<u64>,
        /// Largest number of requests in a queue, those that wait in its scheduler included.
        nr_requests: Option<u64>,
        scheduler: Option<String>,
        rotational: Option<u32>,
        write_cache: Option<String>,
        dm_name: Option<String>,
        dm_uuid: Option<String>,
        /// eMMC only.
        life_time: Option<String>,
        pre_eol_info: Option<String>,
        #[serde(rename = "loop")]
        of_loop: Option<Loop>,
    }

    /// The backing file of a loop device.
    Loop {
        backing_file: String,
        device: Option<String>,
        inode: Option<u64>,
        offset: u64,
        direct_io: u64,
    }

    /// `/sys/class/ubi/ubiN`
    Ubi {
        name: String,
        mtd_num: Option<u64>,
        /// Size of a logical erase block.
        eraseblock_size: Option<u64>,
        total_eraseblocks: Option<u64>,
        bad_peb_count: Option<u64>,
        reserved_for_bad: Option<u64>,
        max_ec: Option<u64>,
    }

    Bdi {
        name: String,
        read_ahead_kb: Option<u64>,
    }

    Mount {
        source: String,
        target: String,
        #[serde(rename = "type")]
        kind: String,
        options: String,
        device: Option<String>,
        block_bytes: Option<u64>,
        size_bytes: Option<u64>,
        free_bytes: Option<u64>,
    }

    /// A line of `/proc/swaps`
    Swap {
        path: String,
        /// Null if the swap area is a file in a file system.
        device: Option<String>,
    }

    /// Limits of changed pages (`/proc/sys/vm`), and the memory that is there for them (`/proc/meminfo`).
    Vm {
        /// 0: the ratio is used instead.
        dirty_bytes: Option<u64>,
        /// Percent of the memory that can be dirtied, about the available memory.
        dirty_ratio: Option<u64>,
        dirty_background_bytes: Option<u64>,
        dirty_background_ratio: Option<u64>,
        available_bytes: Option<u64>,
    }

    /// A system call by number, with the names of its registers.
    RawSyscall {
        id: i64,
        name: String,
        arguments: Vec<String> => Option<Vec<Option<String>>>,
    }

    /// Facts about the recording itself.
    Recording {
        name: String,
        clock: String,
        probes: Vec<Probe>,
        /// Functions and events at layer boundaries.
        boundaries: Vec<Boundary>,
        absent: Vec<Absent>,
        raw_syscalls: Vec<RawSyscall>,
        trigger: Trigger => Option<Trigger>,
        filter: Filter,
        own: Own,
    }

    /// The filter of the recording: only these were recorded.
    Filter {
        device: Vec<String>,
        /// `device`, plus the devices of their stacks that are recorded whole.
        devices: Vec<String>,
        pid: Vec<i64>,
        cgroup: Vec<String>,
        comm: Vec<String>,
    }

    Probe {
        event: String,
        operation: String,
        symbol: String,
        level: String,
        loses: String,
    }

    Boundary {
        layer: String,
        symbol: String,
        enter: String,
    }

    /// The reason why a flight recorder wrote its data.
    Trigger {
        reason: String,
        captures_lost: u64,
    }

    /// The recorder's own tasks; the recorder itself is first.
    Own {
        tasks: Vec<TaskId>,
    }

    Flashmon {
        pages_per_block: u64,
    }

    Blktrace {
        /// CPUs whose files are missing.
        cpus_missing: Vec<u64>,
    }
}

/// The recorder's agent, as results name it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct Agent {
    #[serde(deserialize_with = "known")]
    pub version: Option<String>,
    #[serde(deserialize_with = "known")]
    pub protocol: Option<u32>,
    #[serde(deserialize_with = "known")]
    pub arch: Option<String>,
}

impl Known for Agent {
    fn known(value: Value) -> Self {
        serde_json::from_value(value).unwrap_or_default()
    }
}

impl Fact for Agent {
    type Read = Agent;
}

impl Facts {
    pub fn of(json: &Value) -> Facts {
        let mut facts = Facts::deserialize(json).unwrap_or_default();
        facts.add_later_mounts(json);
        facts.forget_impossible();
        facts
    }

    /// Adds mounts made during the recording, which are in the names.
    fn add_later_mounts(&mut self, json: &Value) {
        for row in rows(json, "mounts") {
            let is_known = |known: &Mount| known.device.as_deref() == row["device"].as_str();
            if self.mounts.iter().any(is_known) || text(&row["root"]) != Some("/") {
                continue;
            }
            // Of an overlay the agent sends no options.
            let options =
                text(&row["options"]).or_else(|| (row["type"] == "overlay" && row["elsewhere"] != true).then_some(""));
            let (Some(device), Some(options)) = (text(&row["device"]), options) else { continue };
            let of = |name: &str| text(&row[name]).map(str::to_owned);
            let (device, options) = (Some(device.to_owned()), Some(options.to_owned()));
            let (source, target, kind) = (of("source"), of("point"), of("type"));
            self.mounts.push(Mount { source, target, kind, options, device, ..Mount::default() });
        }
    }

    /// Forgets sizes and counts that no machine has, so that sums and products of the others do not overflow. Kernel addresses and inode
    /// numbers may have any value.
    fn forget_impossible(&mut self) {
        let mtd = self.mtd.iter_mut().flat_map(|mtd| {
            [
                (&mut mtd.size, MOST_BYTES),
                (&mut mtd.erasesize, MOST_UNIT),
                (&mut mtd.writesize, MOST_UNIT),
                (&mut mtd.oobsize, MOST_UNIT),
                (&mut mtd.offset, MOST_BYTES),
                (&mut mtd.corrected_bits, MOST_BYTES),
                (&mut mtd.ecc_failures, MOST_BYTES),
                (&mut mtd.bad_blocks, MOST_BYTES),
            ]
        });
        let disks = self.block.iter_mut().flat_map(|disk| {
            let [window, request] = [&mut disk.read_ahead_kb, &mut disk.max_sectors_kb];
            let [size, offset] = [&mut disk.size_bytes, &mut disk.of_loop.offset];
            [(window, MOST_UNIT), (request, MOST_UNIT), (size, MOST_BYTES), (offset, MOST_BYTES)]
        });
        let ubi = self.ubi.iter_mut().flat_map(|ubi| {
            [
                (&mut ubi.eraseblock_size, MOST_UNIT),
                (&mut ubi.bad_peb_count, MOST_BYTES),
                (&mut ubi.reserved_for_bad, MOST_BYTES),
                (&mut ubi.max_ec, MOST_BYTES),
            ]
        });
        let bdi = self.bdi.iter_mut().map(|bdi| (&mut bdi.read_ahead_kb, MOST_UNIT));
        let mounts = self.mounts.iter_mut().flat_map(|mount| {
            let [all, free] = [&mut mount.size_bytes, &mut mount.free_bytes];
            [(&mut mount.block_bytes, MOST_UNIT), (all, MOST_BYTES), (free, MOST_BYTES)]
        });
        let page = (&mut self.kernel.page_size, MOST_PAGE);
        let others = [page, (&mut self.flashmon.pages_per_block, MOST_UNIT)];
        let trigger = self.recording.trigger.iter_mut().map(|trigger| (&mut trigger.captures_lost, MOST_BYTES));
        for (number, most) in mtd.chain(disks).chain(ubi).chain(bdi).chain(mounts).chain(others).chain(trigger) {
            *number = number.filter(|&number| number <= most);
        }
    }

    /// The MTD device with this number.
    pub fn mtd(&self, index: u64) -> Option<&Mtd> {
        self.mtd.iter().find(|mtd| mtd.index == Some(index))
    }

    /// The first mount of a device.
    pub fn mount_of(&self, device: Device) -> Option<&Mount> {
        self.mounts.iter().find(|mount| mount.device() == Some(device))
    }
}

impl Mtd {
    /// Whether it is raw NAND, not NOR or RAM.
    pub fn is_nand(&self) -> bool {
        self.kind.as_deref().is_some_and(|kind| kind.contains("nand"))
    }
}

impl Mount {
    pub fn device(&self) -> Option<Device> {
        self.device.as_deref().and_then(Device::parse)
    }

    pub fn is(&self, kind: &str) -> bool {
        self.kind.as_deref() == Some(kind)
    }
}

/// The rows of an array in the facts.
pub(crate) fn rows<'f>(facts: &'f Value, key: &str) -> impl Iterator<Item = &'f Value> {
    facts["names"][key].as_array().into_iter().flatten()
}

pub(crate) fn text(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_number_that_no_machine_has_is_unknown() {
        let most = u64::MAX >> 1;
        let facts = Facts::of(&json!({
            "kernel": {"page_size": most},
            "mtd": [{"index": 0, "size": most, "erasesize": most, "offset": 4096, "ecc_failures": most, "chip_pointer": most},
                    {"index": 1, "size": 268_435_456, "erasesize": 131_072}],
            "block": [{"read_ahead_kb": most, "max_sectors_kb": 512, "loop": {"inode": most, "offset": most}}],
            "mounts": [{"block_bytes": most, "size_bytes": 1_u64 << 53, "free_bytes": (1_u64 << 53) + 1}],
            "flashmon": {"pages_per_block": most},
        }));
        let [wrong, right] = [&facts.mtd[0], &facts.mtd[1]];
        assert_eq!((wrong.size, wrong.erasesize, wrong.ecc_failures), (None, None, None));
        assert_eq!((wrong.index, wrong.offset, wrong.chip_pointer), (Some(0), Some(4096), Some(most)));
        assert_eq!((right.size, right.erasesize), (Some(268_435_456), Some(131_072)));
        assert_eq!((facts.kernel.page_size, facts.flashmon.pages_per_block), (None, None));
        let disk = &facts.block[0];
        assert_eq!((disk.read_ahead_kb, disk.max_sectors_kb), (None, Some(512)));
        assert_eq!((disk.of_loop.inode, disk.of_loop.offset), (Some(most), None));
        let mount = &facts.mounts[0];
        assert_eq!((mount.block_bytes, mount.size_bytes, mount.free_bytes), (None, Some(1 << 53), None));
    }

    #[test]
    fn what_is_mounted_later_has_its_options() {
        let row = |device: &str, root: &str, point: &str| json!({"device": device, "root": root, "point": point, "type": "ubifs", "source": "ubi0:data", "options": "rw,sync"});
        let mut without = row("0:26", "/", "/elsewhere");
        without.as_object_mut().expect("a row").remove("options");
        let facts = Facts::of(&json!({
            "mounts": [{"source": "/dev/sda1", "target": "/", "type": "ext4", "options": "rw", "device": "8:1", "free_bytes": 5}],
            "names": {"mounts": [row("8:1", "/", "/"), row("0:25", "/", "/m"), row("0:25", "/", "/m"), row("0:27", "/sub", "/b"), without]},
        }));
        let said: Vec<_> =
            facts.mounts.iter().map(|mount| (mount.target.as_deref(), mount.options.as_deref())).collect();
        assert_eq!(said, [(Some("/"), Some("rw")), (Some("/m"), Some("rw,sync"))]);
        assert_eq!((facts.mounts[0].free_bytes, facts.mounts[1].free_bytes), (Some(5), None));
        // Of an overlay the agent sends no options.
        let overlay = |elsewhere: bool| json!({"device": "0:41", "root": "/", "point": "/o", "type": "overlay", "source": "none", "elsewhere": elsewhere});
        for (elsewhere, told) in [(false, 1), (true, 0)] {
            let facts = Facts::of(&json!({"names": {"mounts": [overlay(elsewhere)]}}));
            assert_eq!(facts.mounts.iter().filter(|mount| mount.kind.as_deref() == Some("overlay")).count(), told);
        }
    }

    #[test]
    fn a_fact_of_another_type_is_unknown_and_leaves_the_others() {
        let facts = Facts::of(&json!({
            "kernel": {"release": "6.1.0", "page_size": "4096", "future": [1]},
            "mtd": [{"index": 0, "type": "nand", "size": -1, "chip": null}, "x", 3, {"index": "1"}],
            "mounts": {"not": "a list"},
            "block": [{"name": "loop0", "loop": null}, {"name": "loop1", "loop": {"inode": 7, "offset": 1.5}}],
            "recording": {"own": {"tasks": [11, -1, "x", 4294967296u64, 12]}, "trigger": 5},
            "agent": 7,
        }));
        assert_eq!((facts.kernel.release.as_deref(), facts.kernel.page_size), (Some("6.1.0"), None));
        assert_eq!(facts.mtd.iter().map(|mtd| mtd.index).collect::<Vec<_>>(), [Some(0), None]);
        assert!(facts.mtd[0].is_nand() && facts.mtd[0].size.is_none() && facts.mtd[0].chip.is_none());
        assert!(facts.mounts.is_empty());
        assert_eq!((facts.block[1].of_loop.inode, facts.block[1].of_loop.offset), (Some(7), None));
        assert_eq!(facts.recording.own.tasks, [TaskId(11), TaskId(12)]);
        assert_eq!((facts.recording.trigger, facts.agent), (None, Agent::default()));
        for nonsense in [json!(null), json!([1, 2]), json!("x"), json!(3)] {
            assert_eq!(Facts::of(&nonsense), Facts::default());
        }
    }
}
