//! Events for unit tests.

use flashscope_trace::{
    BlockAction, BlockDetail, BlockEvent, Device, Event, EventKind, FileEvent, FileStep, FlashAccess, FlashOp,
    RequestFlags, TaskId, TimeNs,
};

pub fn access(op: FlashOp, page: u64) -> FlashAccess {
    FlashAccess { op, page, offset_bytes: None, length_bytes: None, chip: 0 }
}

pub fn event(time: u64, tid: u32, kind: EventKind) -> Event {
    Event { time: TimeNs(time), cpu: 0, tid: TaskId(tid), kind }
}

pub fn flash(time: u64, tid: u32, access: FlashAccess) -> Event {
    event(time, tid, EventKind::Flash(access))
}

/// A step of a bio or request, with flags from these letters.
pub fn block(action: BlockAction, device: Device, letters: &str, sector: u64, bytes: u64) -> BlockEvent {
    let (flags, detail) = (RequestFlags::from_letters(letters.as_bytes()), BlockDetail::None);
    BlockEvent { action, device, flags, sector, bytes, error: 0, cgroup: 0, detail }
}

pub fn file(step: FileStep, device: Option<Device>, inode: u64, offset: u64, bytes: u64) -> FileEvent {
    FileEvent { step, device, inode, offset, bytes, size: None, block: 0, got: None }
}

/// Entry or return of a system call.
pub fn call(name: &str, result: Option<i64>) -> EventKind {
    EventKind::Other { system: "syscalls".into(), name: name.into(), result }
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
