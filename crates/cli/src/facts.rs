//! The schema of `doctor`'s JSON, which the agent writes in C (docs/reference/agent.md, "Facts"). These types are only for the schema: a
//! test validates the agents' output with it.
#![allow(dead_code)]

use schemars::JsonSchema;
use serde::Deserialize;

/// What a machine is, and what can be recorded on it.
#[derive(Deserialize, JsonSchema)]
pub struct Facts {
    access: Access,
    agent: Agent,
    kernel: Kernel,
    clocks: Clocks,
    /// Null without CONFIG_PSI; agents before 0.2.0 have none.
    #[serde(default)]
    cpu_pressure: Option<CpuPressure>,
    tracefs: Tracefs,
    groups: Vec<Group>,
    probe_points: Vec<ProbePoint>,
    mtd: Vec<Mtd>,
    block: Vec<Block>,
    ubi: Vec<Ubi>,
    bdi: Vec<Bdi>,
    mounts: Vec<Mount>,
    #[serde(default)]
    swaps: Vec<Swap>,
    /// Agents before 0.2.0 have none.
    #[serde(default)]
    vm: Option<Vm>,
}

/// Limits of changed pages, and the memory that is there for them.
#[derive(Deserialize, JsonSchema)]
struct Vm {
    /// 0: the ratio counts.
    dirty_bytes: Option<u64>,
    /// Percent of available memory.
    dirty_ratio: Option<u64>,
    dirty_background_bytes: Option<u64>,
    dirty_background_ratio: Option<u64>,
    available_bytes: Option<u64>,
}

/// A line of `/proc/swaps`
#[derive(Deserialize, JsonSchema)]
struct Swap {
    path: String,
    /// Null of a file in a file system.
    device: Option<String>,
}

/// The rights of the process that would record.
#[derive(Deserialize, JsonSchema)]
struct Access {
    uid: u32,
    capabilities: Vec<String>,
    instances: Option<Instances>,
    needs: Vec<Need>,
    /// What a recording agent keeps of the capabilities that it has; it gives up all others.
    #[serde(default)]
    keeps: Vec<Keep>,
}

#[derive(Deserialize, JsonSchema)]
struct Instances {
    uid: u32,
    gid: u32,
    /// Octal.
    mode: String,
}

/// A part of a recording, the right that it needs, and whether it is there.
#[derive(Deserialize, JsonSchema)]
struct Need {
    what: String,
    by: String,
    there: bool,
}

/// A capability, when it is kept, and what for.
#[derive(Deserialize, JsonSchema)]
struct Keep {
    capability: String,
    when: String,
    why: String,
}

#[derive(Deserialize, JsonSchema)]
pub struct Agent {
    version: String,
    /// SHA-256 of the agent's sources, first 16 digits; agents before 0.2.0 have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    build: Option<String>,
    protocol: u32,
    arch: String,
}

#[derive(Deserialize, JsonSchema)]
struct Kernel {
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

#[derive(Deserialize, JsonSchema)]
struct Clocks {
    /// Clocks that tracefs offers.
    trace: Vec<String>,
    monotonic_ns: u64,
}

/// `/proc/pressure/cpu`
#[derive(Deserialize, JsonSchema)]
struct CpuPressure {
    /// For how long tasks have waited for a free processor since boot, microseconds.
    some_us: u64,
    /// When this was read.
    monotonic_ns: u64,
}

#[derive(Deserialize, JsonSchema)]
struct Tracefs {
    path: Option<String>,
    error: Option<String>,
    instances: bool,
    kprobe_events: bool,
    /// Mounted for the recorder alone.
    private_mount: Option<bool>,
}

/// What a group of `--events` has here.
#[derive(Deserialize, JsonSchema)]
struct Group {
    group: String,
    /// Kernel events.
    events: u32,
    /// Probes of ours.
    probes: u32,
    /// The next step where the group has nothing.
    lacks: Option<String>,
    absent: Vec<Absent>,
    raw_syscalls: Vec<RawSyscall>,
}

#[derive(Deserialize, JsonSchema)]
struct Absent {
    group: String,
    event: String,
    why: String,
    loses: String,
}

#[derive(Deserialize, JsonSchema)]
struct RawSyscall {
    id: i64,
    name: String,
    arguments: Vec<String>,
}

#[derive(Deserialize, JsonSchema)]
struct ProbePoint {
    /// `read`, `program`, `erase`
    operation: String,
    symbol: String,
    /// `nand`, `mtd`, `spi-mem`
    level: String,
    /// `proved`, `present`, `absent`, `refused`, `silent`
    status: Option<String>,
    fired: Option<u64>,
    mtd: Option<u32>,
    /// Only after a trial.
    chosen: Option<bool>,
    note: String,
    loses: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
struct Mtd {
    index: u32,
    name: String,
    #[serde(rename = "type")]
    kind: String,
    size: u64,
    erasesize: u64,
    writesize: u64,
    subpagesize: Option<u64>,
    oobsize: u64,
    offset: Option<u64>,
    /// Numbers chips from 0: partitions of one chip share it.
    chip: Option<u32>,
    parent: Option<u32>,
    first_page: Option<u64>,
    chip_pointer: Option<u64>,
    mtd_pointer: Option<u64>,
    corrected_bits: Option<u64>,
    ecc_failures: Option<u64>,
    bad_blocks: Option<u64>,
}

#[derive(Deserialize, JsonSchema)]
struct Block {
    name: String,
    /// `254:0`
    device: Option<String>,
    size_bytes: Option<u64>,
    read_ahead_kb: Option<u64>,
    max_sectors_kb: Option<u64>,
    nr_requests: Option<u64>,
    scheduler: Option<String>,
    rotational: Option<u32>,
    write_cache: Option<String>,
    dm_name: Option<String>,
    dm_uuid: Option<String>,
    /// Of an eMMC.
    life_time: Option<String>,
    pre_eol_info: Option<String>,
    #[serde(rename = "loop")]
    of_loop: Option<Loop>,
}

#[derive(Deserialize, JsonSchema)]
struct Loop {
    backing_file: String,
    device: Option<String>,
    inode: Option<u64>,
    offset: u64,
    direct_io: u32,
}

#[derive(Deserialize, JsonSchema)]
struct Ubi {
    name: String,
    mtd_num: Option<u32>,
    eraseblock_size: Option<u64>,
    total_eraseblocks: Option<u64>,
    bad_peb_count: Option<u64>,
    reserved_for_bad: Option<u64>,
    max_ec: Option<u64>,
}

#[derive(Deserialize, JsonSchema)]
struct Bdi {
    name: String,
    read_ahead_kb: Option<u64>,
}

#[derive(Deserialize, JsonSchema)]
struct Mount {
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
