//! An event as it was recorded: its format and its bytes.

use crate::ids::TaskId;
use crate::ring::Missed;
use crate::ring::schema::{Field, Schema, Value};
use crate::time::TimeNs;

/// One event, borrowed from the trace during the pass. It has every field in the kernel's own bytes.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    pub time: TimeNs,
    pub cpu: u16,
    /// Name of the ring buffer; empty for the main one, else the name of the instance.
    pub buffer: &'a str,
    /// Events missing on this CPU and buffer before this record.
    pub missed: Missed,
    /// The event's format. If the trace does not have it: a format named "unknown" without fields.
    pub schema: &'a Schema,
    pub data: &'a [u8],
}

impl<'a> Record<'a> {
    /// The kernel's number of this kind of event.
    pub fn id(&self) -> u16 {
        self.schema.endian.u16(self.data, 0).unwrap_or(0)
    }

    /// The task that ran when the event fired (`common_pid`, which is a thread id).
    pub fn tid(&self) -> TaskId {
        tid(self.schema, self.data)
    }

    /// A field's value by name; `None` if the event has no such field or the record is too short.
    pub fn get(&self, name: &str) -> Option<Value<'a>> {
        self.value(self.schema.field(name)?)
    }

    /// A field's value; `None` where the record is too short.
    #[inline]
    pub fn value(&self, field: &Field) -> Option<Value<'a>> {
        self.schema.value(field, self.data)
    }

    /// Every field with its value, in the format's order.
    pub fn fields(&self) -> impl Iterator<Item = (&'a Field, Option<Value<'a>>)> + use<'a> {
        let (schema, data) = (self.schema, self.data);
        schema.fields.iter().map(move |f| (f, schema.value(f, data)))
    }
}

/// `struct trace_entry` (`include/linux/trace_events.h`): type u16, flags u8, preempt count u8, pid i32.
#[inline]
pub(crate) fn tid(schema: &Schema, data: &[u8]) -> TaskId {
    match schema.fields.get(3) {
        Some(f) if f.offset == 4 && f.size == 4 => TaskId(schema.endian.u32(data, 4).unwrap_or(0)),
        _ => TaskId(schema.field("common_pid").and_then(|f| schema.uint(f, data)).unwrap_or(0) as u32),
    }
}
