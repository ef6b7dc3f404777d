//! Decodes the kernel's `block:` trace events to the block model.
//!
//! Source: `include/trace/events/block.h` (Linux 5.10, 6.1 and 7.2). The fields of an event come from its format. blktrace uses the same
//! trace points (`kernel/trace/blktrace.c`, `blk_register_tracepoints`), so each event has one of its actions.

use crate::events::block::{BlockAction, BlockDetail, BlockEvent, RequestFlags};
use crate::ids::Device;
use crate::ring::schema::{Field, Schema, Value};

const IOPRIO_CLASS_IDLE: u64 = 3;

/// How to read one kind of event.
pub(crate) struct BlockPlan {
    action: BlockAction,
    dev: Option<Field>,
    sector: Option<Field>,
    sectors: Option<Field>,
    /// For commands without sectors.
    bytes: Option<Field>,
    error: Option<Field>,
    rwbs: Option<Field>,
    /// `ioprio` (include/uapi/linux/ioprio.h): the class in the upper three of 16 bits.
    priority: Option<Field>,
    /// The text of a driver's own command, before 4.11.
    command: Option<Field>,
    old_dev: Option<Field>,
    old_sector: Option<Field>,
    new_sector: Option<Field>,
    requests: Option<Field>,
}

/// `None` for an event that is not a step of a bio or a request (`block_touch_buffer` and others).
pub(crate) fn plan(schema: &Schema) -> Option<BlockPlan> {
    if schema.system != "block" {
        return None;
    }
    let action = match schema.name.as_str() {
        "block_bio_queue" => BlockAction::Queue,
        // Merging a request into another one counts as a merge of its bios, as in blktrace.
        "block_bio_backmerge" | "block_rq_merge" => BlockAction::BackMerge,
        "block_bio_frontmerge" => BlockAction::FrontMerge,
        "block_getrq" => BlockAction::GetRq,
        "block_sleeprq" => BlockAction::SleepRq,
        "block_rq_requeue" => BlockAction::Requeue,
        "block_rq_issue" => BlockAction::Issue,
        "block_rq_complete" | "block_bio_complete" => BlockAction::Complete,
        "block_plug" => BlockAction::Plug,
        "block_unplug" => BlockAction::Unplug,
        // From blktrace's text; the kernel has no such event.
        "block_unplug_timer" => BlockAction::UnplugTimer,
        "block_rq_insert" => BlockAction::Insert,
        "block_split" => BlockAction::Split,
        "block_bio_bounce" => BlockAction::Bounce,
        "block_bio_remap" | "block_rq_remap" => BlockAction::Remap,
        "block_rq_abort" => BlockAction::Abort,
        _ => return None,
    };
    let field = |name: &str| schema.field(name).cloned();
    let plan = BlockPlan {
        action,
        dev: field("dev"),
        sector: field("sector"),
        sectors: field("nr_sector"),
        bytes: field("bytes"),
        error: field("error").or_else(|| field("errors")),
        rwbs: field("rwbs"),
        priority: field("ioprio"),
        command: field("cmd"),
        old_dev: field("old_dev"),
        old_sector: field("old_sector"),
        new_sector: field("new_sector"),
        requests: field("nr_rq"),
    };
    // Only plugs have no sector.
    let placed = plan.dev.is_some() && plan.sector.is_some();
    (placed || matches!(action, BlockAction::Plug | BlockAction::Unplug | BlockAction::UnplugTimer)).then_some(plan)
}

impl BlockPlan {
    /// `None`: the record is too short.
    pub fn read(&self, schema: &Schema, data: &[u8]) -> Option<BlockEvent> {
        let number = |field: &Option<Field>| match field {
            Some(f) => schema.uint(f, data),
            None => Some(0),
        };
        let sector = number(&self.sector)?;
        let mut flags = match self.rwbs.as_ref().map(|f| schema.value(f, data)) {
            Some(Some(Value::Text(letters))) => RequestFlags::from_letters(letters),
            Some(None) => return None,
            _ => RequestFlags::default(),
        };
        // The device does a flush for everybody, so the originator's priority does not apply to it.
        if number(&self.priority)? >> 13 == IOPRIO_CLASS_IDLE && !flags.has(RequestFlags::FLUSH) {
            flags.0 |= RequestFlags::IDLE.0;
        }
        let bytes = match number(&self.sectors)? {
            0 => number(&self.bytes)?,
            sectors => sectors.saturating_mul(512),
        };
        // The size of a command is not in sectors of the device.
        let command = self.command.as_ref().filter(|_| number(&self.sectors) == Some(0));
        if matches!(command.and_then(|f| schema.value(f, data)), Some(Value::Text(bytes)) if !bytes.is_empty()) {
            flags = RequestFlags::default();
        }
        // The kernel has 32 bits for the bytes of bios and requests (`bi_size`, `__data_len`) and 64 for those of a device. A flush without
        // a range may have the sector -1.
        if bytes > 1 << 32 || bytes > 0 && sector >= 1 << 55 {
            return None;
        }
        let detail = match self.action {
            BlockAction::Remap => {
                BlockDetail::Remap { device: Device(number(&self.old_dev)? as u32), sector: number(&self.old_sector)? }
            }
            BlockAction::Split => BlockDetail::Split { sector: number(&self.new_sector)? },
            BlockAction::Unplug | BlockAction::UnplugTimer => BlockDetail::Unplug { requests: number(&self.requests)? },
            _ => BlockDetail::None,
        };
        // A split's event does not give the size of the whole bio: its first part ends where the second begins.
        let bytes = match detail {
            BlockDetail::Split { sector: new } if self.sectors.is_none() => {
                new.saturating_sub(sector).saturating_mul(512)
            }
            _ => bytes,
        };
        let device = Device(number(&self.dev)? as u32);
        let error = number(&self.error)? as u32 as i32;
        Some(BlockEvent { action: self.action, device, flags, sector, bytes, error, cgroup: 0, detail })
    }
}
