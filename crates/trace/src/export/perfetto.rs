//! Writes a trace for Perfetto: tasks and devices as tracks, operations as slices, totals as counters.
//!
//! Native protobuf. Message and field numbers: `protos/perfetto/trace/trace_packet.proto`, `track_event/*.proto`, `clock_snapshot.proto`,
//! `system_info.proto` and `protos/perfetto/common/builtin_clock.proto` of Perfetto 59.1. Each is named where it is written.
//! docs/reference/formats.md, "Perfetto", describes how the trace processor shows them.

use super::proto::{bytes, message, number};
use crate::error::Error;
use crate::events::block::{BlockAction, BlockEvent, RequestFlags, RequestKind};
use crate::events::{Event, EventKind, FlashAccess, FlashOp};
use crate::facts::Kernel;
use crate::ids::{Device, TaskId};
use crate::median::RunningMedian;
use crate::pairs::Pair;
use crate::task_label::task_label;
use crate::trace::Trace;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io::{self, Write};

/// Counts of an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerfettoWritten {
    /// Operations with a duration, and phases.
    pub slices: u64,
    /// Operations without one, marks and other events.
    pub instants: u64,
    /// Values of counters.
    pub counts: u64,
    /// Block requests with an issue and a completion; each one is a slice.
    pub requests: u64,
    /// Completions of block requests whose issue was not recorded or has a later time. They are not in the file.
    pub unmatched: u64,
    /// Ends of empty flushes that wait for a device flush. The device flush is a request and has the slice.
    pub waiting_flushes: u64,
    /// Slices of a report that were dropped at a limit.
    pub left_out: u64,
}

/// Tasks with tracks of their own; further tasks share one.
const MAX_TASKS: usize = 1 << 20;
/// Limits for nested operations of a task, and for tasks, that wait for their return (as in `Typer`).
const MAX_PENDING: usize = 8;
const MAX_PENDING_TASKS: usize = 1 << 16;
/// Largest number of block requests in flight.
const MAX_IN_FLIGHT: usize = 1 << 16;
/// Largest number of parallel tracks for phases.
const MAX_PHASE_LANES: usize = 64;
/// Block devices with tracks of their own.
const MAX_DEVICES: usize = 4096;

/// `TrackEvent.Type`
const SLICE_BEGIN: u64 = 1;
const SLICE_END: u64 = 2;
const INSTANT: u64 = 3;
const COUNTER: u64 = 4;

/// Writes a trace that Perfetto's UI and trace processor open.
///
/// - Every task is a thread with its name. (It is also its own process: a trace knows thread ids only.) Flash operations are slices if
///   their durations were recorded (`--detail duration`), else instants. Calls at the MTD layer and all other events are instants.
/// - Every block device has tracks with a slice from each request's issue to its completion, and a counter of requests in flight. If
///   requests were not recorded, bios take their place.
/// - Counters give the totals of flash reads, programs and erases of each chip.
/// - Phases are slices and marks are instants, on tracks of their own. Losses are an instant `losses` at the end.
pub fn perfetto(trace: &Trace, out: &mut dyn Write) -> Result<PerfettoWritten, Error> {
    let mut writer = Writer::new(trace, out);
    writer.all()?;
    writer.finish()
}

/// Track ids: the highest byte is the kind of the track.
pub(super) mod track {
    pub const TASK: u64 = 1 << 56;
    pub const OTHER_TASKS: u64 = 2 << 56;
    pub const PHASE: u64 = 3 << 56;
    pub const MARKS: u64 = 4 << 56;
    pub const FLASH_COUNT: u64 = 5 << 56;
    pub const IN_FLIGHT: u64 = 6 << 56;
    pub const DEVICE: u64 = 7 << 56;
    pub const REQUEST: u64 = 8 << 56;
    pub const LOSSES: u64 = 9 << 56;
    /// Tracks of a report; the lowest 16 bits are the lane.
    pub const MORE: u64 = 10 << 56;
}

pub(super) enum Note<'a> {
    Number(&'a str, u64),
    Text(&'a str, &'a str),
}

struct Pending {
    time: u64,
    access: FlashAccess,
}

/// Changes of the queue depth that are kept until the device's first completion.
const MAX_DEPTHS: usize = 1 << 12;

/// The requests in flight on a block device. A slice that overlaps another needs a lane of its own.
#[derive(Default)]
pub(super) struct Queue {
    free: BTreeSet<u32>,
    lanes: u32,
    in_flight: i64,
    /// The device had a completion.
    completes: bool,
    /// Queue depth by time, before the first completion.
    depths: Vec<(u64, i64)>,
    /// The usual duration of requests, by kind.
    pub took: [RunningMedian; RequestKind::COUNT],
}

/// The next event at a place after a completion there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Completion,
    /// A request from this thread.
    Request(TaskId),
    End,
}

pub(super) struct InFlight {
    pub time: u64,
    lane: u32,
    pub tid: TaskId,
    sector: u64,
    bytes: u64,
    /// Bytes that are not completed yet.
    left: u64,
    flags: String,
}

/// Key of a request that waits for its completion: device, kind, and the first sector that is not completed.
pub(super) type Key = (Device, u8, u64);

fn key(block: &BlockEvent) -> Key {
    let kind = block.kind();
    // A flush has no sectors; kernels print different values for it.
    (block.device, kind as u8, if kind == RequestKind::Flush { 0 } else { block.sector })
}

pub(super) struct Writer<'a> {
    trace: &'a Trace,
    out: &'a mut dyn Write,
    failed: Option<io::Error>,
    written: PerfettoWritten,
    packet: Vec<u8>,
    body: Vec<u8>,
    note: Vec<u8>,
    /// `BuiltinClock` of the trace's times; 0: none fits.
    clock: u64,
    last: u64,
    tasks: HashSet<(TaskId, u32)>,
    tracks: HashSet<u64>,
    flash_counts: BTreeMap<(u16, FlashOp), u64>,
    /// Operations whose returns are recorded.
    returns: Vec<FlashOp>,
    pending: HashMap<(TaskId, FlashOp), Vec<Pending>>,
    /// Only bios were recorded: they are shown instead of requests.
    bios: bool,
    pub(super) devices: HashMap<Device, Queue>,
    pub(super) in_flight: HashMap<Key, Vec<InFlight>>,
    /// Events may be missing. With several requests at one place it is then open which one completed.
    may_miss: bool,
    /// Completions that are not yet assigned to a request.
    pub(super) contested: BTreeMap<Key, u64>,
    pub(super) in_flight_all: usize,
}

impl<'a> Writer<'a> {
    pub(super) fn new(trace: &'a Trace, out: &'a mut dyn Write) -> Writer<'a> {
        let returns = [FlashOp::Read, FlashOp::Program, FlashOp::Erase].into_iter().filter(|op| {
            let done = format!("nand_{}_done", op.name());
            trace.schemas().any(|s| s.name == done && s.system.starts_with("flashscope"))
        });
        Writer {
            returns: returns.collect(),
            // BuiltinClock: MONOTONIC 3, MONOTONIC_RAW 5, BOOTTIME 6.
            clock: match trace.clock() {
                "mono" => 3,
                "mono_raw" => 5,
                "boot" => 6,
                _ => 0,
            },
            bios: {
                let recorded = |name: &str| trace.schemas().any(|s| s.system == "block" && s.name == name);
                recorded("block_bio_queue") && !recorded("block_rq_issue")
            },
            trace,
            out,
            failed: None,
            written: PerfettoWritten::default(),
            packet: Vec::new(),
            body: Vec::new(),
            note: Vec::new(),
            last: 0,
            tasks: HashSet::new(),
            tracks: HashSet::new(),
            flash_counts: BTreeMap::new(),
            pending: HashMap::new(),
            devices: HashMap::new(),
            in_flight: HashMap::new(),
            may_miss: trace.may_miss_events(),
            contested: BTreeMap::new(),
            in_flight_all: 0,
        }
    }

    /// Writes `packet` as one Trace.packet (1), with the fields that all our packets have.
    fn flush_packet(&mut self) {
        // TracePacket.trusted_packet_sequence_id
        number(&mut self.packet, 10, 1);
        self.body.clear();
        bytes(&mut self.body, 1, &self.packet);
        if self.failed.is_none() {
            self.failed = self.out.write_all(&self.body).err();
        }
        self.packet.clear();
    }

    /// Writes the whole trace.
    pub(super) fn all(&mut self) -> Result<(), Error> {
        self.head();
        self.phases();
        let trace = self.trace;
        trace.for_each_pair(&mut |pair| {
            if self.failed.is_none() {
                self.pair(pair);
            }
        })?;
        self.rest();
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<PerfettoWritten, Error> {
        match self.failed.take().map_or_else(|| self.out.flush(), Err) {
            Ok(()) => Ok(self.written),
            Err(e) => Err(Error::io(self.trace.path(), "write the export of", e)),
        }
    }

    fn head(&mut self) {
        // TracePacket.sequence_flags: SEQ_INCREMENTAL_STATE_CLEARED
        number(&mut self.packet, 13, 1);
        if self.clock != 0 {
            let clock = self.clock;
            // TracePacket.clock_snapshot { primary_trace_clock }: the clock of all times.
            message(&mut self.packet, 6, |snapshot| number(snapshot, 2, clock));
        }
        self.flush_packet();
        let kernel = &self.trace.facts().kernel;
        if *kernel != Kernel::default() {
            let said = |of: &Option<String>| of.clone().unwrap_or_default().into_bytes();
            let (version, release, machine) = (said(&kernel.version), said(&kernel.release), said(&kernel.machine));
            // TracePacket.system_info.utsname { sysname, version, release, machine }
            message(&mut self.packet, 45, |info| {
                message(info, 1, |utsname| {
                    bytes(utsname, 1, b"Linux");
                    bytes(utsname, 2, &version);
                    bytes(utsname, 3, &release);
                    bytes(utsname, 4, &machine);
                });
            });
            self.flush_packet();
        }
    }

    /// TracePacket.track_descriptor { uuid, parent_uuid, name, … }, once.
    pub(super) fn declare(&mut self, uuid: u64, parent: Option<u64>, name: &str, more: impl FnOnce(&mut Vec<u8>)) {
        if !self.tracks.insert(uuid) {
            return;
        }
        message(&mut self.packet, 60, |d| {
            number(d, 1, uuid);
            if let Some(parent) = parent {
                number(d, 5, parent);
            }
            if !name.is_empty() {
                bytes(d, 2, name.as_bytes());
            }
            more(d);
        });
        self.flush_packet();
    }

    pub(super) fn counter(&mut self, uuid: u64, name: &str, time: u64, value: i64) {
        // TrackDescriptor.counter { unit: UNIT_COUNT }
        self.declare(uuid, None, name, |d| message(d, 8, |c| number(c, 3, 2)));
        self.stamp(time);
        // TrackEvent { type, track_uuid, counter_value }
        message(&mut self.packet, 11, |e| {
            number(e, 9, COUNTER);
            number(e, 11, uuid);
            number(e, 30, value as u64);
        });
        self.flush_packet();
        self.written.counts += 1;
    }

    /// TracePacket.timestamp and timestamp_clock_id.
    fn stamp(&mut self, time: u64) {
        number(&mut self.packet, 8, time);
        if self.clock != 0 {
            number(&mut self.packet, 58, self.clock);
        }
    }

    fn event(&mut self, kind: u64, track: u64, time: u64, category: &str, name: &str, notes: &[Note<'_>]) {
        self.event_with(kind, (track, time), category, name, notes, |_| {});
    }

    /// Begins a slice; `more` adds fields to its TrackEvent.
    pub(super) fn begin(
        &mut self,
        track: u64,
        time: u64,
        category: &str,
        name: &str,
        notes: &[Note<'_>],
        more: impl FnOnce(&mut Vec<u8>),
    ) {
        self.event_with(SLICE_BEGIN, (track, time), category, name, notes, more);
        self.written.slices += 1;
    }

    pub(super) fn end(&mut self, track: u64, time: u64) {
        self.event(SLICE_END, track, time, "", "", &[]);
    }

    /// TracePacket.track_event { type, track_uuid, categories, name, debug_annotations }
    fn event_with(
        &mut self,
        kind: u64,
        (track, time): (u64, u64),
        category: &str,
        name: &str,
        notes: &[Note<'_>],
        more: impl FnOnce(&mut Vec<u8>),
    ) {
        self.stamp(time);
        self.body.clear();
        let event = &mut self.body;
        number(event, 9, kind);
        number(event, 11, track);
        if kind != SLICE_END {
            bytes(event, 22, category.as_bytes());
            bytes(event, 23, name.as_bytes());
        }
        for note in notes {
            self.note.clear();
            // DebugAnnotation { name, uint_value | string_value }
            match note {
                Note::Number(name, value) => {
                    bytes(&mut self.note, 10, name.as_bytes());
                    number(&mut self.note, 3, *value);
                }
                Note::Text(name, value) => {
                    bytes(&mut self.note, 10, name.as_bytes());
                    bytes(&mut self.note, 6, value.as_bytes());
                }
            }
            bytes(event, 4, &self.note);
        }
        more(event);
        bytes(&mut self.packet, 11, &self.body);
        self.flush_packet();
    }

    fn slice(&mut self, track: u64, begin: u64, end: u64, category: &str, name: &str, notes: &[Note<'_>]) {
        self.event(SLICE_BEGIN, track, begin, category, name, notes);
        self.event(SLICE_END, track, end, category, "", &[]);
        self.written.slices += 1;
    }

    fn instant(&mut self, track: u64, time: u64, category: &str, name: &str, notes: &[Note<'_>]) {
        self.event(INSTANT, track, time, category, name, notes);
        self.written.instants += 1;
    }

    /// The track of a task; declared at its first use.
    pub(super) fn task(&mut self, tid: TaskId, time: u64) -> u64 {
        // Thread 0 is the idle task of every CPU; numbers above i32 are not thread ids.
        let known = tid != TaskId(0) && i32::try_from(tid.0).is_ok();
        let ordinal = self.trace.task_ordinal(tid, crate::TimeNs(time));
        let task = (tid, ordinal);
        if !known || (!self.tasks.contains(&task) && self.tasks.len() >= MAX_TASKS) {
            self.declare(track::OTHER_TASKS, None, "idle and others", |_| {});
            return track::OTHER_TASKS;
        }
        let uuid = track::TASK | u64::from(ordinal - 1) << 32 | u64::from(tid.0);
        if ordinal > 1 {
            // Perfetto has one thread for each number.
            if self.tasks.insert(task) {
                let name = self.trace.last_name(tid, crate::TimeNs(time)).unwrap_or("<...>");
                let name = task_label(name, tid, ordinal);
                self.declare(uuid, None, &name, |_| {});
            }
        } else if self.tasks.insert(task) {
            // A thread's track has the thread's last name. Each slice has the name at its time.
            let name = self.trace.comm(tid, crate::TimeNs(u64::MAX)).unwrap_or("<...>");
            // TrackDescriptor.thread { pid, tid, thread_name }
            self.declare(uuid, None, "", |d| {
                message(d, 4, |thread| {
                    number(thread, 1, u64::from(tid.0));
                    number(thread, 2, u64::from(tid.0));
                    bytes(thread, 5, name.as_bytes());
                });
            });
        }
        uuid
    }

    fn comm(&self, tid: TaskId, time: u64) -> &'a str {
        self.trace.comm(tid, crate::TimeNs(time)).unwrap_or("<...>")
    }

    /// Phases may overlap: each takes the first lane that is free when it begins.
    fn phases(&mut self) {
        let mut lanes: Vec<u64> = Vec::new();
        for phase in self.trace.phases() {
            let end = phase.end_ns.unwrap_or(u64::MAX);
            let lane = match lanes.iter().position(|&busy| busy <= phase.begin_ns) {
                Some(lane) => lane,
                // Phases above the limit share the last lane, where slices may look longer than they are.
                None if lanes.len() == MAX_PHASE_LANES => MAX_PHASE_LANES - 1,
                None => {
                    lanes.push(0);
                    lanes.len() - 1
                }
            };
            lanes[lane] = end;
            let uuid = track::PHASE | lane as u64;
            self.declare(uuid, None, "phases", |_| {});
            self.event(SLICE_BEGIN, uuid, phase.begin_ns, "phase", &phase.name, &[]);
            // A phase without an end stays open.
            if let Some(end) = phase.end_ns {
                self.event(SLICE_END, uuid, end.max(phase.begin_ns), "phase", "", &[]);
            }
            self.written.slices += 1;
        }
    }

    fn pair(&mut self, pair: Pair<'_>) {
        let time = pair.time().0;
        self.last = self.last.max(time);
        match (pair.event, pair.record) {
            (Some(Event { kind: EventKind::Block(block), tid, .. }), record) => {
                // If requests are recorded, the end of a bio is not a request's completion.
                let of_bio = record.is_some_and(|r| r.schema.name == "block_bio_complete");
                if of_bio && !self.bios || !self.block(block, time, *tid) {
                    let track = self.task(*tid, time);
                    let name = record.map_or(block.action.name(), |r| &*r.schema.name);
                    self.instant(track, time, "block", name, &[]);
                }
            }
            (Some(event), _) => self.typed(event),
            (None, Some(record)) => {
                let track = self.task(record.tid(), time);
                self.instant(track, time, &record.schema.system, &record.schema.name, &[]);
            }
            (None, None) => {}
        }
    }

    fn typed(&mut self, event: &Event) {
        let (time, tid) = (event.time.0, event.tid);
        match &event.kind {
            EventKind::Flash(access) => {
                self.count_flash(access, time);
                if !self.returns.contains(&access.op) {
                    self.flash(time, None, tid, access);
                    return;
                }
                if self.pending.len() >= MAX_PENDING_TASKS && !self.pending.contains_key(&(tid, access.op)) {
                    self.flash(time, None, tid, access);
                    return;
                }
                let list = self.pending.entry((tid, access.op)).or_default();
                list.push(Pending { time, access: *access });
                if list.len() > MAX_PENDING {
                    let oldest = list.remove(0);
                    self.flash(oldest.time, None, tid, &oldest.access);
                }
            }
            EventKind::FlashDone { op, duration_ns } => {
                let begin = time.saturating_sub(*duration_ns);
                let list = self.pending.get_mut(&(tid, *op));
                let found = list.and_then(|list| {
                    let at = list.iter().rposition(|p| p.time == begin)?;
                    Some(list.remove(at))
                });
                if let Some(found) = found {
                    self.flash(begin, Some(time), tid, &found.access);
                }
            }
            EventKind::Mtd { op, address, length_bytes } => {
                let track = self.task(tid, time);
                let notes = [
                    Note::Number("address", *address),
                    Note::Number("length_bytes", *length_bytes),
                    Note::Text("comm", self.comm(tid, time)),
                ];
                self.instant(track, time, "mtd", mtd_name(*op), &notes);
            }
            // Phases come from the trace's list of them; block events were handled before.
            EventKind::PhaseBegin { .. } | EventKind::PhaseEnd { .. } | EventKind::Block(_) => {}
            EventKind::Recording => self.recording_ends(),
            EventKind::File(e) => {
                let track = self.task(tid, time);
                let notes = [
                    Note::Number("inode", e.inode),
                    Note::Number("offset", e.offset),
                    Note::Number("bytes", e.bytes),
                    Note::Text("comm", self.comm(tid, time)),
                ];
                self.instant(track, time, "file", e.step.name(), &notes);
            }
            EventKind::Mark { name } => {
                self.declare(track::MARKS, None, "marks", |_| {});
                self.instant(track::MARKS, time, "mark", name, &[]);
            }
            EventKind::Other { system, name, .. } => {
                let track = self.task(tid, time);
                self.instant(track, time, system, name, &[]);
            }
        }
    }

    fn count_flash(&mut self, access: &FlashAccess, time: u64) {
        let count = self.flash_counts.entry((access.chip, access.op)).or_default();
        *count += 1;
        let count = i64::try_from(*count).unwrap_or(i64::MAX);
        let op = match access.op {
            FlashOp::Read => 0,
            FlashOp::Program => 1,
            FlashOp::Erase => 2,
        };
        let uuid = track::FLASH_COUNT | u64::from(access.chip) << 8 | op;
        self.counter(uuid, &format!("chip {} {}s", access.chip, access.op.name()), time, count);
    }

    fn flash(&mut self, begin: u64, end: Option<u64>, tid: TaskId, access: &FlashAccess) {
        let track = self.task(tid, begin);
        let mut notes = vec![
            Note::Number("page", access.page),
            Note::Number("chip", u64::from(access.chip)),
            Note::Text("comm", self.comm(tid, begin)),
        ];
        notes.extend(access.offset_bytes.map(|v| Note::Number("offset_bytes", u64::from(v))));
        notes.extend(access.length_bytes.map(|v| Note::Number("length_bytes", u64::from(v))));
        match end {
            Some(end) => self.slice(track, begin, end, "flash", access.op.name(), &notes),
            None => self.instant(track, begin, "flash", access.op.name(), &notes),
        }
    }

    /// Handles an event of a request. Returns false if the event should be shown like any other.
    fn block(&mut self, block: &BlockEvent, time: u64, tid: TaskId) -> bool {
        let begin = if self.bios { BlockAction::Queue } else { BlockAction::Issue };
        let key = key(block);
        if !self.contested.is_empty() && (block.action == begin || block.action == BlockAction::Requeue) {
            self.decide_contested(key, Next::Request(tid));
        }
        if block.action == begin {
            if block.is_command_without_data() {
                return false;
            }
            let known = self.devices.len() < MAX_DEVICES || self.devices.contains_key(&block.device);
            if self.in_flight_all >= MAX_IN_FLIGHT || !known {
                return false;
            }
            let queue = self.devices.entry(block.device).or_default();
            let lane = queue.free.pop_first().unwrap_or_else(|| {
                queue.lanes += 1;
                queue.lanes - 1
            });
            queue.in_flight += 1;
            let depth = queue.in_flight;
            self.in_flight_all += 1;
            let (flags, sector, bytes) = (block.flags.to_string(), block.sector, block.bytes);
            let request = InFlight { time, lane, tid, sector, bytes, left: bytes, flags };
            self.in_flight.entry(key).or_default().push(request);
            self.depth(block.device, time, depth);
            return true;
        }
        match block.action {
            BlockAction::Complete => self.complete(block, key, time),
            BlockAction::Requeue if !self.bios => {
                // The request is issued again: this attempt is over.
                if let Some(request) = self.taken(key, time) {
                    self.free_lane(block.device, request.lane);
                    self.request(block.device, &request, Some(time));
                }
                false
            }
            _ => false,
        }
    }

    fn complete(&mut self, block: &BlockEvent, key: Key, time: u64) -> bool {
        self.completes(block.device);
        let key = match block.kind() {
            // The completion is at the sector that the device chose in the zone.
            RequestKind::ZoneAppend => self.appended(block).unwrap_or(key),
            _ => {
                self.decide_contested(key, Next::Completion);
                key
            }
        };
        // Requests of another boot, or issued before the clock was set back, have no completion.
        while let Some(at) = self.next(key)
            && self.in_flight.get(&key).is_some_and(|list| list[at].time > time)
        {
            if let Some(stale) = self.taken(key, time) {
                self.free_lane(block.device, stale.lane);
            }
        }
        // Tasks wait for the device's flush (`FF`). Their own flushes (`FWS`) end after it and are never issued.
        let flush = block.kind() == RequestKind::Flush;
        let own = |list: &Vec<InFlight>, at: usize| !flush || list[at].flags == block.flags.to_string();
        let next = self.next(key).filter(|&at| self.in_flight.get(&key).is_some_and(|list| own(list, at)));
        let Some(first) = next.and_then(|at| self.in_flight.get_mut(&key)?.get_mut(at)) else {
            // The end of a bio in the flush machinery is not a request's completion.
            let waits = flush && block.flags.has(RequestFlags::WRITE);
            let of_bio = block.bytes == 0 && (!flush || waits);
            self.written.waiting_flushes += u64::from(waits);
            self.written.unmatched += u64::from(!of_bio);
            return !of_bio;
        };
        if block.bytes > 0 && block.bytes < first.left {
            first.left -= block.bytes;
            let list = self.in_flight.get_mut(&key);
            if let Some(rest) = list.zip(next).map(|(list, at)| list.remove(at)) {
                self.drop_empty(key);
                self.in_flight.entry((key.0, key.1, block.end())).or_default().push(rest);
            }
            return true;
        }
        if self.may_miss && block.kind() != RequestKind::ZoneAppend && self.contest(key, time) {
            return true;
        }
        self.ended(key, time);
        true
    }

    /// The next request at a place completed.
    pub(super) fn ended(&mut self, key: Key, time: u64) {
        let Some(request) = self.taken(key, time) else { return };
        self.free_lane(key.0, request.lane);
        if let Some(queue) = self.devices.get_mut(&key.0) {
            queue.took[usize::from(key.1)].add(time.saturating_sub(request.time));
        }
        self.written.requests += 1;
        self.request(key.0, &request, Some(time));
    }

    /// The zone append of a completion: it has the same size and is in the nearest zone that begins before the completion's sector. Returns
    /// its place.
    fn appended(&mut self, block: &BlockEvent) -> Option<Key> {
        let kind = RequestKind::ZoneAppend as u8;
        let of_size = |list: &[InFlight]| list.iter().position(|one| one.left == block.bytes);
        let here = |&(device, of, sector): &Key| device == block.device && of == kind && sector <= block.sector;
        let all = self.in_flight.iter().filter(|(key, _)| here(key));
        let (key, at) = all.filter_map(|(key, list)| Some((*key, of_size(list)?))).max_by_key(|(key, _)| key.2)?;
        let next = self.next(key)?;
        if let Some(list) = self.in_flight.get_mut(&key) {
            let one = list.remove(at);
            list.insert(next, one);
        }
        Some(key)
    }

    /// The index of the request, among those at a place, that the next completion there belongs to.
    fn next(&self, key: Key) -> Option<usize> {
        let last = self.in_flight.get(&key)?.len().checked_sub(1)?;
        Some(if self.may_miss { last } else { 0 })
    }

    /// Removes that request from those in flight.
    fn taken(&mut self, key: Key, time: u64) -> Option<InFlight> {
        let next = self.next(key)?;
        let request = self.in_flight.get_mut(&key)?.remove(next);
        self.drop_empty(key);
        self.in_flight_all -= 1;
        self.one_less(key.0, time);
        Some(request)
    }

    pub(super) fn one_less(&mut self, device: Device, time: u64) {
        if let Some(queue) = self.devices.get_mut(&device) {
            queue.in_flight -= 1;
            let depth = queue.in_flight;
            self.depth(device, time, depth);
        }
    }

    pub(super) fn drop_empty(&mut self, key: Key) {
        if self.in_flight.get(&key).is_some_and(Vec::is_empty) {
            self.in_flight.remove(&key);
        }
    }

    fn free_lane(&mut self, device: Device, lane: u32) {
        if let Some(queue) = self.devices.get_mut(&device) {
            queue.free.insert(lane);
        }
    }

    /// Before the first completion the number in flight is unknown: the counter starts then, and includes the earlier changes.
    fn depth(&mut self, device: Device, time: u64, depth: i64) {
        let Some(queue) = self.devices.get_mut(&device) else { return };
        if !queue.completes {
            if queue.depths.len() == MAX_DEPTHS {
                queue.depths.clear();
            }
            queue.depths.push((time, depth));
            return;
        }
        self.count_depth(device, time, depth);
    }

    fn completes(&mut self, device: Device) {
        let Some(queue) = self.devices.get_mut(&device).filter(|queue| !queue.completes) else { return };
        queue.completes = true;
        for (time, depth) in std::mem::take(&mut queue.depths) {
            self.count_depth(device, time, depth);
        }
    }

    fn count_depth(&mut self, device: Device, time: u64, depth: i64) {
        let uuid = track::IN_FLIGHT | u64::from(device.0);
        self.counter(uuid, &format!("{device} in flight"), time, depth);
    }

    pub(super) fn request(&mut self, device: Device, request: &InFlight, end: Option<u64>) {
        let parent = track::DEVICE | u64::from(device.0);
        self.declare(parent, None, &format!("block {device}"), |_| {});
        let uuid = track::REQUEST | u64::from(request.lane) << 32 | u64::from(device.0);
        self.declare(uuid, Some(parent), "requests", |_| {});
        let notes = [
            Note::Number("sector", request.sector),
            Note::Number("bytes", request.bytes),
            Note::Number("tid", u64::from(request.tid.0)),
            Note::Text("comm", self.comm(request.tid, request.time)),
        ];
        match end {
            Some(end) => self.slice(uuid, request.time, end, "block", &request.flags, &notes),
            None => {
                self.event(SLICE_BEGIN, uuid, request.time, "block", &request.flags, &notes);
                self.written.slices += 1;
            }
        }
    }

    /// Writes operations without a return, and the losses.
    fn rest(&mut self) {
        let mut pending: Vec<_> = std::mem::take(&mut self.pending).into_iter().collect();
        pending.sort_unstable_by_key(|(key, _)| *key);
        for ((tid, _), list) in pending {
            for p in list {
                self.flash(p.time, None, tid, &p.access);
            }
        }
        self.recording_ends();
        let losses = self.trace.losses();
        let notes: Vec<_> =
            losses.iter().filter(|&(_, n)| n > 0).map(|(loss, n)| Note::Number(loss.name(), n)).collect();
        if !notes.is_empty() {
            self.declare(track::LOSSES, None, "what is missing", |_| {});
            self.instant(track::LOSSES, self.last, "flashscope", "losses", &notes);
        }
    }

    /// Requests in flight stay open: nothing that comes later ends them.
    fn recording_ends(&mut self) {
        while let Some((&key, _)) = self.contested.first_key_value() {
            self.decide_contested(key, Next::End);
        }
        let mut in_flight: Vec<_> = std::mem::take(&mut self.in_flight).into_iter().collect();
        in_flight.sort_unstable_by_key(|(key, _)| *key);
        for ((device, ..), list) in in_flight {
            for request in list {
                self.request(device, &request, None);
                self.in_flight_all -= 1;
                if let Some(queue) = self.devices.get_mut(&device) {
                    queue.in_flight -= 1;
                }
            }
        }
    }
}

fn mtd_name(op: FlashOp) -> &'static str {
    match op {
        FlashOp::Read => "mtd_read",
        FlashOp::Program => "mtd_write",
        FlashOp::Erase => "mtd_erase",
    }
}
