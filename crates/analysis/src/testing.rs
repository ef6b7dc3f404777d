//! Events for unit tests.

use flashscope_trace::{Event, EventKind, FlashAccess, FlashOp, TaskId, TimeNs};

pub fn access(op: FlashOp, page: u64) -> FlashAccess {
    FlashAccess { op, page, offset_bytes: None, length_bytes: None, chip: 0 }
}

pub fn event(time: u64, tid: u32, kind: EventKind) -> Event {
    Event { time: TimeNs(time), cpu: 0, tid: TaskId(tid), kind }
}

pub fn flash(time: u64, tid: u32, access: FlashAccess) -> Event {
    event(time, tid, EventKind::Flash(access))
}

pub fn mtd(time: u64, tid: u32, op: FlashOp, address: u64, length_bytes: u64) -> Event {
    event(time, tid, EventKind::Mtd { op, address, length_bytes })
}

pub fn begin(time: u64, name: &str) -> Event {
    event(time, 0, EventKind::PhaseBegin { name: name.into() })
}

pub fn end(time: u64, name: &str) -> Event {
    event(time, 0, EventKind::PhaseEnd { name: name.into() })
}
