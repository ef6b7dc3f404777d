//! Requests from the events of drivers: UFS, eMMC and SD cards, NVMe, SCSI.
//!
//! They are used where a trace has no step of the block layer. A command that the driver sends is a request's issue, and its response is the
//! completion. Queueing, files and merges are not in such a trace.
//!
//! Sources: `include/trace/events/{ufs,mmc,scsi}.h` and `drivers/nvme/host/trace.h` (Linux 4.9 to 6.18).

use crate::events::EventKind;
use crate::events::block::{BlockAction, BlockDetail, BlockEvent, RequestFlags};
use crate::ids::Device;
use crate::record::Record;
use crate::ring::schema::{Schema, Value};
use foldhash::{HashMap, HashMapExt as _};
use std::sync::Arc;

/// Most commands in flight, and most UFS hosts.
const MAX_PENDING: usize = 1 << 16;
const MAX_HOSTS: usize = 256;
/// Fewest commands that show the unit of their addresses.
const MIN_COMMANDS: u64 = 8;
/// The smallest logical block of UFS (JESD220, `bLogicalBlockSize`).
const UFS_BLOCK: u64 = 4096;
const SECTOR: u64 = 512;
/// The kernel's `EIO`, `ENODATA` (the medium cannot be read), `EILSEQ` (protection information), `ENOSPC`.
const EIO: i32 = -5;
const ENODATA: i32 = -61;
const EILSEQ: i32 = -84;
const ENOSPC: i32 = -28;

/// A driver's event that begins or ends a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Ufs,
    MmcStart,
    MmcDone,
    NvmeSetup,
    NvmeComplete,
    ScsiStart,
    ScsiDone,
}

impl Step {
    pub fn of(name: &str) -> Option<Step> {
        Some(match name {
            "ufshcd_command" => Step::Ufs,
            "mmc_request_start" => Step::MmcStart,
            "mmc_request_done" => Step::MmcDone,
            "nvme_setup_cmd" => Step::NvmeSetup,
            "nvme_complete_rq" => Step::NvmeComplete,
            "scsi_dispatch_cmd_start" => Step::ScsiStart,
            "scsi_dispatch_cmd_done" => Step::ScsiDone,
            _ => return None,
        })
    }
}

/// The drivers' events from which a trace's requests come.
#[derive(Clone, Debug)]
pub struct Commands {
    /// Their names.
    pub events: Vec<String>,
    /// Events whose sizes or addresses count logical blocks of unknown size; empty: all are known.
    pub without_block_size: Vec<&'static str>,
    units: Units,
}

/// Bytes of a logical block: of UFS's addresses, and of NVMe and SCSI.
#[derive(Clone, Copy, Debug)]
struct Units {
    ufs: u64,
    /// What a card's argument is divided by to give sectors: cards up to 2 GB count bytes.
    mmc: u64,
    others: u64,
    /// UFS commands are SCSI commands too: each counts once.
    scsi: bool,
}

/// Whether a trace with these events has commands alone.
fn are_alone<'a>(schemas: impl Iterator<Item = &'a Arc<Schema>>) -> bool {
    let mut any = false;
    for schema in schemas {
        if schema.system == "block" && (schema.name.starts_with("block_rq_") || schema.name.starts_with("block_bio_")) {
            return false;
        }
        any |= Step::of(&schema.name).is_some();
    }
    any
}

impl Commands {
    /// `None` if the trace has steps of the block layer, or no command. `walk` reads all records.
    pub fn of<'a>(
        schemas: impl Iterator<Item = &'a Arc<Schema>>,
        block_bytes: Option<u64>,
        walk: impl FnOnce(&mut dyn FnMut(&Record<'_>)),
    ) -> Option<Commands> {
        if !are_alone(schemas) {
            return None;
        }
        let (mut events, mut ufs, mut not_whole): (Vec<String>, u64, bool) = (Vec::new(), 0, false);
        let (mut cards, mut not_bytes) = (0, false);
        walk(&mut |record| {
            let schema = record.schema;
            let Some(step) = Step::of(&schema.name) else { return };
            if !events.contains(&schema.name) {
                events.push(schema.name.clone());
            }
            let field = |name: &str| number(schema, record.data, name);
            if step == Step::Ufs && moves_data(field("opcode")) && field("lba").is_some_and(|lba| lba > 0) {
                ufs += 1;
                not_whole |= field("lba").is_some_and(|lba| !lba.is_multiple_of(UFS_BLOCK / SECTOR));
            }
            // Since 4.15 `blk_addr` has the sector.
            if step == Step::MmcStart && matches!(field("cmd_opcode"), Some(17 | 18 | 24 | 25)) {
                cards += u64::from(field("cmd_arg").is_some_and(|arg| arg > 0));
                not_bytes |= field("cmd_arg").is_some_and(|arg| !arg.is_multiple_of(SECTOR));
            }
        });
        let has = |name: &str| events.iter().any(|event| event == name);
        let mut without_block_size = Vec::new();
        let units = Units {
            // Before 5.12 the event gives a bio's sector, of whole logical blocks; later it gives the logical block (`scsi_get_lba`).
            ufs: block_bytes.unwrap_or(if not_whole { UFS_BLOCK } else { SECTOR }),
            mmc: if not_bytes || cards < MIN_COMMANDS { 1 } else { SECTOR },
            others: block_bytes.unwrap_or(SECTOR),
            scsi: !has("ufshcd_command"),
        };
        if block_bytes.is_none() {
            if has("ufshcd_command") && !not_whole && ufs < MIN_COMMANDS {
                without_block_size.push("ufshcd_command");
            }
            if has("nvme_setup_cmd") {
                without_block_size.push("nvme_setup_cmd");
            }
            if has("scsi_dispatch_cmd_start") && units.scsi {
                without_block_size.push("scsi_dispatch_cmd_start");
            }
        }
        (!events.is_empty()).then_some(Commands { events, without_block_size, units })
    }
}

/// Turns the events of drivers into steps of requests.
pub(crate) struct Translator {
    units: Units,
    hosts: Vec<Vec<u8>>,
    /// Commands without a response so far, by device and the driver's number.
    pending: HashMap<(Device, u64), BlockEvent>,
    /// First and last sector that the next erase of a card is about.
    erase: HashMap<Device, (u64, u64)>,
    /// Reads, writes and discards whose event has no size.
    pub without_size: u64,
}

impl Translator {
    /// `None` if sizes or addresses of the commands are unknown.
    pub fn new(commands: &Commands) -> Option<Translator> {
        commands.without_block_size.is_empty().then(|| Translator {
            units: commands.units,
            hosts: Vec::new(),
            pending: HashMap::new(),
            erase: HashMap::new(),
            without_size: 0,
        })
    }

    pub fn recording_begins(&mut self) {
        self.pending.clear();
        self.erase.clear();
    }

    pub fn kind(&mut self, step: Step, schema: &Schema, data: &[u8]) -> Option<EventKind> {
        self.read(step, schema, data).map(EventKind::Block)
    }

    /// `None` for a command that is not to storage, and for a response whose command is not in the trace.
    fn read(&mut self, step: Step, schema: &Schema, data: &[u8]) -> Option<BlockEvent> {
        let field = |name: &str| number(schema, data, name);
        match step {
            Step::Ufs => self.ufs(schema, data),
            Step::MmcStart => self.mmc_start(schema, data),
            Step::NvmeSetup => self.nvme_setup(schema, data),
            Step::ScsiStart | Step::ScsiDone if !self.units.scsi => None,
            Step::ScsiStart | Step::ScsiDone => self.scsi(step, schema, data),
            Step::MmcDone => {
                let key = (mmc(schema, data)?, field("mrq")?);
                let errors = ["sbc_err", "cmd_err", "data_err", "stop_err"].into_iter().filter_map(field);
                let error = errors.map(|error| error as i32).find(|&error| error != 0).unwrap_or(0);
                self.completed(key, error)
            }
            Step::NvmeComplete => {
                let key = (nvme(schema, data)?, nvme_key(schema, data)?);
                let mut event = self.completed(key, nvme_error(field("status")?))?;
                // The result of an append is the block that the device chose.
                if event.flags.has(RequestFlags::ZONE_APPEND)
                    && let Some(block) = field("result").or_else(|| field("res"))
                {
                    event.sector = block.saturating_mul(self.units.others) / SECTOR;
                }
                Some(event)
            }
        }
    }

    fn completed(&mut self, key: (Device, u64), error: i32) -> Option<BlockEvent> {
        let issued = self.pending.remove(&key)?;
        Some(BlockEvent { action: BlockAction::Complete, error, ..issued })
    }

    fn issued(&mut self, key: (Device, u64), event: BlockEvent) -> Option<BlockEvent> {
        if self.pending.len() == MAX_PENDING {
            self.pending.clear();
        }
        self.pending.insert(key, event);
        Some(event)
    }

    fn ufs(&mut self, schema: &Schema, data: &[u8]) -> Option<BlockEvent> {
        let field = |name: &str| number(schema, data, name);
        // `str` before 5.11, `enum ufs_trace_str_t` later.
        let action = match (text(schema, data, "str"), field("str_t")) {
            (Some(b"send" | b"send_req"), _) | (None | Some(b""), Some(0)) => BlockAction::Issue,
            (Some(b"complete" | b"complete_rsp"), _) | (None | Some(b""), Some(1)) => BlockAction::Complete,
            _ => return None,
        };
        let device = self.ufs_device(schema, data)?;
        let opcode = field("opcode")?;
        let flags = scsi_flags(opcode as u8);
        let mut event = command(action, device, flags);
        let bytes = field("transfer_len").map_or(0, |bytes| bytes as i32);
        if moves_data(Some(opcode)) || opcode == 0x42 {
            if bytes <= 0 {
                self.without_size += u64::from(action == BlockAction::Issue);
                return None;
            }
            event.bytes = bytes as u64;
            event.sector = field("lba")?.saturating_mul(self.units.ufs) / SECTOR;
        }
        placed(event)
    }

    fn ufs_device(&mut self, schema: &Schema, data: &[u8]) -> Option<Device> {
        let pointer;
        let name = match text(schema, data, "dev_name") {
            Some(name) => name,
            // Binary traces since 6.7 have the kernel's pointer of the logical unit.
            None => {
                pointer = number(schema, data, "sdev").unwrap_or(0).to_le_bytes();
                &pointer
            }
        };
        if let Some(device) = scsi_address(name) {
            return Some(device);
        }
        let at = self.hosts.iter().position(|host| host == name).or_else(|| {
            (self.hosts.len() < MAX_HOSTS).then(|| {
                self.hosts.push(name.to_vec());
                self.hosts.len() - 1
            })
        })?;
        Some(Device::new(Device::UFS, at as u32))
    }

    fn mmc_start(&mut self, schema: &Schema, data: &[u8]) -> Option<BlockEvent> {
        let field = |name: &str| number(schema, data, name);
        let (device, opcode, arg) = (mmc(schema, data)?, field("cmd_opcode")?, field("cmd_arg")?);
        // The event's own name, and the one in its text.
        let block = field("blksz").or_else(|| field("block_size")).unwrap_or(0);
        let bytes = field("blocks").unwrap_or(0).checked_mul(block)?;
        let data_flags = field("data_flags").unwrap_or(0);
        let mut event = command(BlockAction::Issue, device, RequestFlags::default());
        match opcode {
            // Commands of SDIO cards, such as Wi-Fi.
            5 | 52 | 53 => return None,
            // Single and multiple blocks; the tasks of a command queue, and those of a queue engine, which have no command.
            17 | 18 | 24 | 25 | 46 | 47 | 0 if bytes > 0 => {
                let write = data_flags & 0x100 != 0 || data_flags == 0 && matches!(opcode, 24 | 25 | 47);
                event.flags = if write { RequestFlags::WRITE } else { RequestFlags::READ };
                // A reliable write: it completes when its data is on the medium.
                if write && field("sbc_arg").is_some_and(|arg| arg & 1 << 31 != 0) {
                    event.flags.0 |= RequestFlags::FUA.0;
                }
                event.sector = field("blk_addr").unwrap_or(arg / self.units.mmc);
                event.bytes = bytes;
            }
            // SWITCH: FLUSH_CACHE (32) of EXT_CSD.
            6 if arg >> 16 & 0xff == 32 && arg >> 24 & 3 == 3 => event.flags = RequestFlags::FLUSH,
            32 | 35 => self.erase.entry(device).or_default().0 = arg,
            33 | 36 => self.erase.entry(device).or_default().1 = arg,
            38 => {
                let (first, last) = self.erase.remove(&device)?;
                let secure = if arg & 1 << 31 != 0 { RequestFlags::SECURE.0 } else { 0 };
                event.flags = RequestFlags(RequestFlags::WRITE.0 | RequestFlags::DISCARD.0 | secure);
                event.sector = first / self.units.mmc;
                event.bytes =
                    (last / self.units.mmc).checked_sub(event.sector)?.saturating_add(1).saturating_mul(SECTOR);
            }
            _ => {}
        }
        self.issued((device, field("mrq")?), placed(event)?)
    }

    fn nvme_setup(&mut self, schema: &Schema, data: &[u8]) -> Option<BlockEvent> {
        let field = |name: &str| number(schema, data, name);
        // Queue 0 is for the controller.
        if field("qid")? == 0 {
            return None;
        }
        let device = nvme(schema, data)?;
        let words = schema.field("cdw10").and_then(|field| schema.raw(field, data));
        let word = |at: usize, size: usize| {
            let bytes = words?.get(at..at + size)?;
            Some(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
        };
        let flags = match field("opcode")? {
            0 => RequestFlags::FLUSH,
            1 => RequestFlags::WRITE,
            2 => RequestFlags::READ,
            8 => RequestFlags(RequestFlags::WRITE.0 | RequestFlags::WRITE_ZEROES.0),
            // Its ranges are in the data.
            9 => {
                self.without_size += 1;
                return None;
            }
            0x7d => RequestFlags(RequestFlags::WRITE.0 | RequestFlags::ZONE_APPEND.0),
            _ => RequestFlags::default(),
        };
        let mut event = command(BlockAction::Issue, device, flags);
        if !matches!(flags, RequestFlags::FLUSH | RequestFlags(0)) {
            let blocks = field("length").or_else(|| word(8, 2))?.saturating_add(1);
            event.bytes = blocks.saturating_mul(self.units.others);
            event.sector = field("slba").or_else(|| word(0, 8))?.saturating_mul(self.units.others) / SECTOR;
            if field("ctrl").or_else(|| word(10, 2)).is_some_and(|control| control & 1 << 14 != 0) {
                event.flags.0 |= RequestFlags::FUA.0;
            }
        }
        self.issued((device, nvme_key(schema, data)?), placed(event)?)
    }

    fn scsi(&mut self, step: Step, schema: &Schema, data: &[u8]) -> Option<BlockEvent> {
        let field = |name: &str| number(schema, data, name);
        let device = scsi_device(field("host_no")?, field("channel")?, field("id")?, field("lun")?)?;
        let mut hex = Vec::new();
        let block = match text(schema, data, "raw") {
            Some(text) => {
                let bytes = text.split(|b| !b.is_ascii_hexdigit()).filter(|word| word.len() == 2);
                hex.extend(bytes.filter_map(|word| u8::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()));
                &hex[..]
            }
            None => schema.field("cmnd").and_then(|field| schema.raw(field, data))?,
        };
        let action = if step == Step::ScsiStart { BlockAction::Issue } else { BlockAction::Complete };
        let opcode = *block.first()?;
        let mut event = command(action, device, scsi_flags(opcode));
        if step == Step::ScsiDone && field("sense_key") != Some(1) {
            let is = |name: &str, good: [&[u8]; 2]| match text(schema, data, name) {
                Some(text) => good.contains(&text.trim_ascii_end().strip_suffix(b")").unwrap_or(text)),
                None => number(schema, data, name).is_none_or(|value| value == 0),
            };
            let good = is("host", [b"DID_OK", b"0x0"]) && is("status", [b"SAM_STAT_GOOD", b"0x0"]);
            let failed = field("result").is_some_and(|result| result & 0xff_00ff != 0);
            event.error = if good && !failed { 0 } else { EIO };
        }
        let big = |at: usize, size: usize| {
            let bytes = block.get(at..at + size)?;
            Some(bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
        };
        let (first, blocks) = match opcode {
            0x08 | 0x0a => (big(1, 3)? & 0x1f_ffff, Some(big(4, 1)?).filter(|&n| n > 0).unwrap_or(256)),
            0x28 | 0x2a | 0x41 => (big(2, 4)?, big(7, 2)?),
            0xa8 | 0xaa => (big(2, 4)?, big(6, 4)?),
            0x88 | 0x8a | 0x93 => (big(2, 8)?, big(10, 4)?),
            // Its ranges are in the data.
            0x42 => {
                self.without_size += u64::from(action == BlockAction::Issue);
                return None;
            }
            _ => (0, 0),
        };
        let modifier = block.get(1).is_some_and(|bits| bits & 8 != 0);
        if modifier && matches!(opcode, 0x28 | 0x2a | 0xa8 | 0xaa | 0x88 | 0x8a) {
            event.flags.0 |= RequestFlags::FUA.0;
        } else if modifier && matches!(opcode, 0x41 | 0x93) {
            event.flags = RequestFlags(RequestFlags::WRITE.0 | RequestFlags::DISCARD.0);
        }
        event.sector = first.saturating_mul(self.units.others) / SECTOR;
        event.bytes = blocks.saturating_mul(self.units.others);
        placed(event)
    }
}

fn command(action: BlockAction, device: Device, flags: RequestFlags) -> BlockEvent {
    BlockEvent { action, device, flags, sector: 0, bytes: 0, error: 0, cgroup: 0, detail: BlockDetail::None }
}

/// `None` for a range that no device has.
fn placed(event: BlockEvent) -> Option<BlockEvent> {
    (event.bytes <= 1 << 40 && event.sector < 1 << 55).then_some(event)
}

/// A field's number; -1 keeps all bits.
fn number(schema: &Schema, data: &[u8], name: &str) -> Option<u64> {
    match schema.value(schema.field(name)?, data)? {
        Value::Unsigned(n) => Some(n),
        Value::Signed(n) => Some(n as u64),
        _ => None,
    }
}

fn text<'a>(schema: &Schema, data: &'a [u8], name: &str) -> Option<&'a [u8]> {
    match schema.value(schema.field(name)?, data)? {
        Value::Text(text) => Some(text),
        _ => None,
    }
}

/// The number at the end of `text` behind `prefix`.
fn numbered(text: &[u8], prefix: &str) -> Option<u64> {
    std::str::from_utf8(text).ok()?.strip_prefix(prefix)?.parse().ok()
}

fn mmc(schema: &Schema, data: &[u8]) -> Option<Device> {
    let host = numbered(text(schema, data, "name")?, "mmc")?;
    (host < 1 << 20).then(|| Device::new(Device::MMC, host as u32))
}

/// The namespace. A response names its disk, or its controller alone.
fn nvme(schema: &Schema, data: &[u8]) -> Option<Device> {
    let controller = number(schema, data, "ctrl_id")?;
    // The disk is not in the event before 4.18; the response has no namespace then, so that the controller stands for it.
    let disk = text(schema, data, "disk").and_then(|disk| {
        let (controller, namespace) = std::str::from_utf8(disk).ok()?.strip_prefix("nvme")?.rsplit_once('n')?;
        let controller = controller.split_once('c').map_or(controller, |(subsystem, _)| subsystem);
        Some((controller.parse::<u64>().ok()?, namespace.parse::<u64>().ok()?))
    });
    let (controller, namespace) = disk.unwrap_or((controller, 0));
    (controller < 1 << 10 && namespace < 1 << 10)
        .then(|| Device::new(Device::NVME, (controller << 10 | namespace) as u32))
}

/// Controller, queue and number of a command.
fn nvme_key(schema: &Schema, data: &[u8]) -> Option<u64> {
    let field = |name: &str| number(schema, data, name);
    Some(field("ctrl_id")? << 48 | (field("qid")? & 0xffff_ffff) << 16 | field("cid")? & 0xffff)
}

/// As `nvme_error_status` (drivers/nvme/host/core.c, 6.18) and `blk_status_to_errno` turn a status into an error.
fn nvme_error(status: u64) -> i32 {
    match status & 0x7ff {
        0 => 0,
        0x81 => ENOSPC,
        0x280 | 0x281 | 0x287 => ENODATA,
        0x282..=0x284 => EILSEQ,
        _ => EIO,
    }
}

/// What a SCSI command does.
fn scsi_flags(opcode: u8) -> RequestFlags {
    match opcode {
        0x08 | 0x28 | 0x88 | 0xa8 => RequestFlags::READ,
        0x0a | 0x2a | 0x8a | 0xaa => RequestFlags::WRITE,
        0x35 | 0x91 => RequestFlags::FLUSH,
        0x41 | 0x93 => RequestFlags(RequestFlags::WRITE.0 | RequestFlags::WRITE_ZEROES.0),
        0x42 => RequestFlags(RequestFlags::WRITE.0 | RequestFlags::DISCARD.0),
        _ => RequestFlags::default(),
    }
}

fn moves_data(opcode: Option<u64>) -> bool {
    opcode.is_some_and(|opcode| matches!(opcode, 0x08 | 0x0a | 0x28 | 0x2a | 0x88 | 0x8a | 0xa8 | 0xaa))
}

fn scsi_device(host: u64, channel: u64, id: u64, lun: u64) -> Option<Device> {
    // Well-known logical units of UFS, such as 49488, are no disks.
    let fits = host < 1 << 8 && channel < 1 << 2 && id < 1 << 5 && lun < 1 << 5;
    fits.then(|| Device::new(Device::SCSI, (host << 12 | channel << 10 | id << 5 | lun) as u32))
}

/// `0:0:0:4`
fn scsi_address(name: &[u8]) -> Option<Device> {
    let mut parts = std::str::from_utf8(name).ok()?.split(':').map(|part| part.parse::<u64>().ok());
    let [host, channel, id, lun] = [parts.next()??, parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then(|| scsi_device(host, channel, id, lun))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_have_the_names_of_their_drivers() {
        assert_eq!(scsi_address(b"1:0:2:4").map(|device| device.to_string()).as_deref(), Some("scsi 1:0:2:4"));
        assert_eq!([scsi_address(b"1d84000.ufshc"), scsi_address(b"0:0:0:49488"), scsi_address(b"0:0:0")], [None; 3]);
        for (device, name) in [
            (Device::new(Device::MMC, 1), "mmc1"),
            (Device::new(Device::NVME, 2 << 10 | 1), "nvme2n1"),
            (Device::new(Device::NVME, 2 << 10), "nvme2"),
            (Device::new(Device::UFS, 0), "ufs0"),
        ] {
            assert_eq!(device.to_string(), name);
        }
    }

    /// A schema with these fields one after the other, each `type name`, `type name[n]` or `__data_loc type[] name`.
    fn schema(name: &str, fields: &[(&str, usize)]) -> Schema {
        let mut format = format!("name: {name}\nID: 7\nformat:\n");
        let mut at = 8;
        for (field, size) in fields {
            let signed = u8::from(field.starts_with("int"));
            format += &format!("\tfield:{field};\toffset:{at};\tsize:{size};\tsigned:{signed};\n");
            at += size;
        }
        Schema::parse("test", &(format + "\nprint fmt: \"\"\n"), crate::bytes::Endian::Little, 8).expect("a format")
    }

    /// A record: eight bytes of common fields, then these.
    fn record(parts: &[&[u8]]) -> Vec<u8> {
        [&[0; 8][..]].iter().chain(parts).flat_map(|part| part.iter().copied()).collect()
    }

    fn translator(ufs: u64, others: u64) -> Translator {
        let units = Units { ufs, mmc: 1, others, scsi: true };
        let commands = Commands { events: Vec::new(), without_block_size: Vec::new(), units };
        Translator::new(&commands).expect("the units are known")
    }

    /// What a step says: its action, device, letters, first sector, bytes and error.
    fn said(event: Option<BlockEvent>) -> String {
        let Some(event) = event else { return "nothing".to_owned() };
        let BlockEvent { action, device, flags, sector, bytes, error, .. } = event;
        format!("{} {device} {flags} {sector} {bytes} {error}", action.letters())
    }

    #[test]
    fn binary_records_of_nvme_have_what_the_text_has() {
        let mut of = translator(4096, 4096);
        let setup = schema(
            "nvme_setup_cmd",
            &[
                ("char disk[32]", 32),
                ("int ctrl_id", 4),
                ("int qid", 4),
                ("u8 opcode", 1),
                ("u16 cid", 2),
                ("u8 cdw10[24]", 24),
            ],
        );
        let mut disk = [0; 32];
        disk[..7].copy_from_slice(b"nvme1n2");
        let words = |block: u64, blocks: u16, control: u16| {
            let mut words = [0; 24];
            words[..8].copy_from_slice(&block.to_le_bytes());
            words[8..10].copy_from_slice(&(blocks - 1).to_le_bytes());
            words[10..12].copy_from_slice(&control.to_le_bytes());
            words
        };
        let command = |opcode: u8, cid: u16, words: [u8; 24]| {
            record(&[&disk, &1u32.to_le_bytes(), &3u32.to_le_bytes(), &[opcode], &cid.to_le_bytes(), &words])
        };
        let data = command(1, 9, words(100, 2, 1 << 14));
        assert_eq!(said(of.read(Step::NvmeSetup, &setup, &data)), "D nvme1n2 WF 800 8192 0");
        let data = command(0x7d, 10, words(0, 1, 0));
        assert_eq!(said(of.read(Step::NvmeSetup, &setup, &data)), "D nvme1n2 ZA 0 4096 0");
        let data = command(9, 11, [0; 24]);
        assert_eq!((said(of.read(Step::NvmeSetup, &setup, &data)), of.without_size), ("nothing".to_owned(), 1));
        let complete = schema(
            "nvme_complete_rq",
            &[
                ("char disk[32]", 32),
                ("int ctrl_id", 4),
                ("int qid", 4),
                ("u16 cid", 2),
                ("u64 result", 8),
                ("u16 status", 2),
            ],
        );
        let done = |cid: u16, result: u64, status: u16| {
            let parts: [&[u8]; 6] = [
                &disk,
                &1u32.to_le_bytes(),
                &3u32.to_le_bytes(),
                &cid.to_le_bytes(),
                &result.to_le_bytes(),
                &status.to_le_bytes(),
            ];
            record(&parts)
        };
        assert_eq!(said(of.read(Step::NvmeComplete, &complete, &done(9, 0, 0x4281))), "C nvme1n2 WF 800 8192 -61");
        // The device chose the block of an append.
        assert_eq!(said(of.read(Step::NvmeComplete, &complete, &done(10, 5, 0))), "C nvme1n2 ZA 40 4096 0");
        assert_eq!(said(of.read(Step::NvmeComplete, &complete, &done(10, 5, 0))), "nothing");
    }

    /// Linux 6.7 and later: a pointer of the logical unit, and the step as a number.
    #[test]
    fn binary_records_of_ufs_have_what_the_text_has() {
        let mut of = translator(4096, 4096);
        let ufs = schema(
            "ufshcd_command",
            &[
                ("struct scsi_device * sdev", 8),
                ("enum ufs_trace_str_t str_t", 4),
                ("u64 lba", 8),
                ("int transfer_len", 4),
                ("u8 opcode", 1),
            ],
        );
        let command = |unit: u64, step: u32, lba: u64, bytes: i32, opcode: u8| {
            record(&[&unit.to_le_bytes(), &step.to_le_bytes(), &lba.to_le_bytes(), &bytes.to_le_bytes(), &[opcode]])
        };
        for (data, says) in [
            (command(0xffff_8000, 0, 1001, 8192, 0x2a), "D ufs0 W 8008 8192 0"),
            (command(0xffff_8000, 1, 1001, 8192, 0x2a), "C ufs0 W 8008 8192 0"),
            (command(0xffff_9000, 0, 7, 4096, 0x42), "D ufs1 D 56 4096 0"),
            (command(0xffff_9000, 0, u64::MAX, -1, 0x35), "D ufs1 FN 0 0 0"),
            (command(0xffff_9000, 2, u64::MAX, -1, 0), "nothing"),
            (command(0xffff_9000, 0, 0, -1, 0x88), "nothing"),
        ] {
            assert_eq!(said(of.read(Step::Ufs, &ufs, &data)), says);
        }
        assert_eq!(of.without_size, 1);
    }

    /// The kernel calls the size of a block `blksz`, and prints it as `block_size`.
    #[test]
    fn binary_records_of_cards_have_what_the_text_has() {
        let mut of = translator(4096, 4096);
        let names =
            ["u32 cmd_opcode", "u32 cmd_arg", "unsigned int blocks", "unsigned int blk_addr", "unsigned int blksz"];
        let mut fields: Vec<(&str, usize)> = names.map(|name| (name, 4)).into();
        fields.extend([("unsigned int data_flags", 4), ("struct mmc_request * mrq", 8), ("__data_loc char[] name", 4)]);
        let start = schema("mmc_request_start", &fields);
        let location: u32 = 5 << 16 | 44;
        let numbers: Vec<u8> = [25, 8000, 8, 8000, 512, 0x100].iter().flat_map(|n: &u32| n.to_le_bytes()).collect();
        let data = record(&[&numbers, &0xc66d_9954u64.to_le_bytes(), &location.to_le_bytes(), b"mmc0\0"]);
        assert_eq!(said(of.read(Step::MmcStart, &start, &data)), "D mmc0 W 8000 4096 0");
    }

    #[test]
    fn binary_records_of_scsi_have_what_the_text_has() {
        let mut of = translator(4096, 4096);
        let scsi = schema(
            "scsi_dispatch_cmd_done",
            &[
                ("u32 host_no", 4),
                ("u32 channel", 4),
                ("u32 id", 4),
                ("u32 lun", 4),
                ("int result", 4),
                ("__data_loc unsigned char[] cmnd", 4),
            ],
        );
        let command = |result: u32, cmnd: &[u8]| {
            let location = (cmnd.len() as u32) << 16 | 32;
            let numbers: Vec<u8> = [2, 0, 1, 0, result, location].iter().flat_map(|n: &u32| n.to_le_bytes()).collect();
            record(&[&numbers, cmnd])
        };
        for (step, result, cmnd, says) in [
            (Step::ScsiStart, 0, &[0x28, 0, 0, 0, 1, 0, 0, 0, 2, 0][..], "D scsi 2:0:1:0 R 2048 8192 0"),
            (Step::ScsiDone, 2, &[0x28, 0, 0, 0, 1, 0, 0, 0, 2, 0], "C scsi 2:0:1:0 R 2048 8192 -5"),
            (Step::ScsiDone, 0x1_0000, &[0x0a, 0x3f, 0xff, 0xff, 0, 0], "C scsi 2:0:1:0 W 16777208 1048576 -5"),
            (Step::ScsiDone, 0, &[0x93, 8, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0], "C scsi 2:0:1:0 D 8 12288 0"),
            (Step::ScsiStart, 0, &[0x41, 0, 0, 0, 0, 1, 0, 0, 1, 0], "D scsi 2:0:1:0 WZ 8 4096 0"),
            (Step::ScsiStart, 0, &[0x28, 0], "nothing"),
        ] {
            assert_eq!(said(of.read(step, &scsi, &command(result, cmnd))), says, "{cmnd:x?}");
        }
    }

    #[test]
    fn a_status_is_the_error_that_the_kernel_makes_of_it() {
        assert_eq!([0x0, 0x4002, 0x281, 0x4281, 0x81].map(nvme_error), [0, EIO, ENODATA, ENODATA, ENOSPC]);
    }
}
