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

/// Steps of I/Os of the device 8:0, in order of time. An I/O is `FLAGS SECTOR+SECTORS: STEP …`; `;` stands between I/Os. A step is blkparse's
/// letter and its time, such as `D10`. Its thread is 1; with `t2` before the colon 2, and as `C150/0` 0. `X1>8` splits the bio at
/// sector 8.
pub fn steps(ios: &str) -> Vec<Event> {
    steps_from(0, ios)
}

/// The same, with times from `begin` on.
pub fn steps_from(begin: u64, ios: &str) -> Vec<Event> {
    let number = |text: &str| text.parse::<u64>().expect("a number");
    let mut all = Vec::new();
    for io in ios.split(';').filter(|io| !io.trim().is_empty()) {
        let (words, steps) = io.split_once(':').expect("a colon before the steps");
        let mut words = words.split_whitespace();
        let letters = words.next().expect("flags");
        let (sector, sectors) = words.next().and_then(|range| range.split_once('+')).expect("SECTOR+SECTORS");
        let thread = words.next().map_or(1, |thread| number(thread.trim_start_matches('t')));
        for step in steps.split_whitespace() {
            let (step, tid) = step.split_once('/').map_or((step, thread), |(step, tid)| (step, number(tid)));
            let (letter, time) = step.split_at(1);
            let (time, split) = time.split_once('>').map_or((time, None), |(time, at)| (time, Some(number(at))));
            let action = BlockAction::ALL.iter().find(|action| action.letters() == letter).expect("a step");
            let mut block = block(*action, Device::new(8, 0), letters, number(sector), number(sectors) * 512);
            block.detail = split.map_or(BlockDetail::None, |sector| BlockDetail::Split { sector });
            all.push(event(begin + number(time), tid as u32, EventKind::Block(block)));
        }
    }
    all.sort_by_key(|event| event.time);
    all
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
