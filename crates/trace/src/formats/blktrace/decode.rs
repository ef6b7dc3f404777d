//! Decodes blktrace's records to typed events, and to records with a schema.

use super::record::{CGROUP, HEADER_MIN, Raw, V7, V8};
use crate::bytes::{Endian, until_nul};
use crate::error::Error;
use crate::events::block::{BlockAction, BlockDetail, BlockEvent, RequestFlags};
use crate::events::{Event, EventKind, TimeNs};
use crate::ids::{Device, TaskId};
use crate::losses::{Loss, Losses};
use crate::ring::schema::{FormatError, Schema};
use std::path::Path;
use std::sync::Arc;

/// `enum blktrace_notify`.
const TN_PROCESS: u32 = 0;
const TN_MESSAGE: u32 = 2;

/// The name of a process; `None` unless the record is a note with one.
#[inline(always)]
pub(super) fn process<'a>(raw: &Raw<'a>) -> Option<&'a [u8]> {
    let note = raw.is_notify() && raw.header.action_low() & 0xff == TN_PROCESS;
    note.then(|| until_nul(raw.cgroup_and_pdu().1)).filter(|name| !name.is_empty())
}

/// The wall clock in a note, as seconds and nanoseconds (`trace_note_time`); the note's own time is the trace's.
pub(super) fn wall_clock_ns(raw: &Raw<'_>) -> Option<u64> {
    if !raw.is_notify() || raw.header.action_low() & 0xff != 1 {
        return None;
    }
    let pdu = raw.cgroup_and_pdu().1;
    let (seconds, nanoseconds) = (raw.endian.u32(pdu, 0)?, raw.endian.u32(pdu, 4)?);
    Some(u64::from(seconds) * 1_000_000_000 + u64::from(nanoseconds))
}

#[inline(always)]
pub(super) fn cpu(raw: &Raw<'_>) -> u16 {
    u16::try_from(raw.header.cpu()).unwrap_or(u16::MAX)
}

/// Turns records into typed events.
pub(super) struct Typer {
    event: Event,
    unknown: u64,
    short: u64,
}

impl Typer {
    pub fn new() -> Typer {
        let kind = EventKind::Mark { name: String::new() };
        Typer { event: Event { time: TimeNs(0), cpu: 0, tid: TaskId(0), kind }, unknown: 0, short: 0 }
    }

    pub fn count(&self, losses: &mut Losses) {
        losses.add(Loss::RecordsOfUnknownType, self.unknown);
        losses.add(Loss::RecordsMalformed, self.short);
    }

    /// The typed form; `None` for records without one (names of processes, the wall clock, unknown actions).
    #[inline(always)]
    pub fn event(&mut self, raw: &Raw<'_>) -> Option<&Event> {
        let h = &raw.header;
        if h.is_notify() {
            // The record itself is not passed on, so that it stays in registers.
            return self.note(h.action_low(), TimeNs(h.time()), cpu(raw), TaskId(h.pid()), raw.cgroup_and_pdu().1);
        }
        let Some(action) = BlockAction::from_code((h.action_low() & !CGROUP) as u16) else {
            self.unknown += 1;
            return None;
        };
        self.event.time = TimeNs(h.time());
        self.event.cpu = cpu(raw);
        self.event.tid = TaskId(h.pid());
        let block = BlockEvent {
            action,
            device: Device(h.device()),
            flags: flags(h.action() >> 16, h.bytes()),
            sector: h.sector(),
            bytes: u64::from(h.bytes()),
            // The kernel's negative error number, cut to 16 bits.
            error: i32::from(h.error() as i16),
            cgroup: 0,
            detail: BlockDetail::None,
        };
        let block = match &mut self.event.kind {
            EventKind::Block(known) => {
                *known = block;
                known
            }
            other => {
                *other = EventKind::Block(block);
                let EventKind::Block(new) = other else { return None };
                new
            }
        };
        if h.pdu_len() > 0 || has_detail(action) {
            let (cgroup, pdu) = raw.cgroup_and_pdu();
            block.cgroup = cgroup;
            match detail(action, pdu) {
                Some(detail) => block.detail = detail,
                None => self.short += u64::from(action != BlockAction::ZoneUnplug),
            }
        }
        Some(&self.event)
    }

    #[cold]
    fn note(&mut self, action: u32, time: TimeNs, cpu: u16, tid: TaskId, text: &[u8]) -> Option<&Event> {
        if action & 0xff != TN_MESSAGE {
            return None;
        }
        let name = String::from_utf8_lossy(until_nul(text)).trim_end_matches('\n').to_string();
        self.event = Event { time, cpu, tid, kind: EventKind::Mark { name } };
        Some(&self.event)
    }
}

/// The flags of a request. A step that moves no data and is not a write is not a read either, whatever its category (a plug, an empty
/// flush): blkparse prints `N` for it (`fill_rwbs`).
#[inline(always)]
fn flags(categories: u64, bytes: u32) -> RequestFlags {
    let flags = RequestFlags::from_categories(categories);
    match bytes {
        0 if !flags.has(RequestFlags::WRITE) => RequestFlags(flags.0 & !RequestFlags::READ.0),
        _ => flags,
    }
}

/// Whether this kind of action has data besides its range.
#[inline(always)]
fn has_detail(action: BlockAction) -> bool {
    use BlockAction::*;
    const DETAILED: u32 =
        1 << Remap as u32 | 1 << Split as u32 | 1 << Unplug as u32 | 1 << UnplugTimer as u32 | 1 << ZoneUnplug as u32;
    DETAILED >> action as u32 & 1 != 0
}

/// The data of an action; `None` if its PDU is too short. PDUs of remap, split and unplug are big-endian on every machine
/// (`kernel/trace/blktrace.c`: `cpu_to_be32`, `cpu_to_be64`).
fn detail(action: BlockAction, pdu: &[u8]) -> Option<BlockDetail> {
    let be = Endian::Big;
    Some(match action {
        // struct blk_io_trace_remap: device_from, device_to, sector_from.
        BlockAction::Remap => BlockDetail::Remap { device: Device(be.u32(pdu, 0)?), sector: be.u64(pdu, 8)? },
        BlockAction::Split => BlockDetail::Split { sector: be.u64(pdu, 0)? },
        BlockAction::Unplug | BlockAction::UnplugTimer | BlockAction::ZoneUnplug => {
            BlockDetail::Unplug { requests: be.u64(pdu, 0)? }
        }
        _ => BlockDetail::None,
    })
}

/// Bytes in a [`crate::Record`] before the kernel's record: the common fields, the place of the PDU, the control group.
const PREFIX: usize = 24;

/// Makes a record with the fields of [`schemas`]: the prefix, then the kernel's bytes unchanged.
pub(super) fn put_record(data: &mut Vec<u8>, raw: &Raw<'_>) {
    let (cgroup, pdu) = raw.cgroup_and_pdu();
    let e = raw.endian;
    data.clear();
    e.put_u16(data, u16::from(if raw.header.size() == HEADER_MIN { V7 } else { V8 }));
    data.extend_from_slice(&[0, 0]);
    e.put_u32(data, raw.header.pid());
    let at = PREFIX + raw.bytes.len() - pdu.len();
    e.put_u32(data, (pdu.len() as u32) << 16 | at as u32);
    e.put_u32(data, 0);
    e.put_u64(data, cgroup);
    data.extend_from_slice(raw.bytes);
}

/// Schemas for records of both versions, in the form of kernel formats.
pub(super) fn schemas(endian: Endian) -> Result<[Arc<Schema>; 2], FormatError> {
    let v7 = [("action", "u32", 4), ("pid", "u32", 4), ("device", "u32", 4), ("cpu", "u32", 4)];
    let v8 = [("pid", "u32", 4), ("action", "u64", 8), ("device", "u32", 4), ("cpu", "u32", 4)];
    let one = |name: &str, id: u8, middle: &[(&str, &str, usize)]| {
        let mut text = format!("name: {name}\nID: {id}\nformat:\n");
        let common = [
            ("common_type", "unsigned short", 2),
            ("common_flags", "unsigned char", 1),
            ("common_preempt_count", "unsigned char", 1),
            ("common_pid", "int", 4),
            ("pdu", "__data_loc u8[]", 4),
            ("", "", 4),
            ("cgroup", "u64", 8),
            ("magic", "u32", 4),
            ("sequence", "u32", 4),
            ("time", "u64", 8),
            ("sector", "u64", 8),
            ("bytes", "u32", 4),
        ];
        let tail = [("error", "u16", 2), ("pdu_len", "u16", 2)];
        let mut offset = 0;
        for &(name, kind, size) in common.iter().chain(middle).chain(&tail) {
            if !name.is_empty() {
                text += &format!("\tfield:{kind} {name};\toffset:{offset};\tsize:{size};\tsigned:0;\n");
            }
            offset += size;
        }
        Schema::parse("blktrace", &text, endian, 8).map(Arc::new)
    };
    Ok([one("record", V7, &v7)?, one("record2", V8, &v8)?])
}

pub(super) fn schemas_or(path: &Path, endian: Endian) -> Result<[Arc<Schema>; 2], Error> {
    schemas(endian).map_err(|e| Error::Unsupported { path: path.to_path_buf(), what: e.to_string() })
}
