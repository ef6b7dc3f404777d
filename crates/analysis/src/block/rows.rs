//! Every bio, or every request, as a row: its times, stages, owner and result.
//!
//! A bio is taken as it was queued, its parts together. A request is what one issue gave to the driver, with all bios in it; its
//! steps before the issue are those of the bio that it was made for. Rows come in the order in which bios and requests end; those
//! still in flight at the end come last. Memory is bounded by what is in flight.

use super::errors::errno_name;
use super::followed::{BlockSetup, Followed};
use super::in_flight::{Bio, NEVER, NONE};
use super::originators::{Originators, OwnerKind};
use super::stages::{Stage, each_stage};
use super::watch::{Step, Watch};
use crate::{Lookup, Named};
use flashscope_trace::export::{Cell, Column, ColumnType};
use flashscope_trace::{
    BlockAction, BlockEvent, Device, DeviceNames, Event, EventKind, FileId, FileNames, Losses, RequestFlags,
    RequestKind, TaskId,
};

/// Whether rows are bios or requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowsOf {
    Bios,
    Requests,
}

/// The end of a bio or a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowStatus {
    Completed,
    /// Still in flight at the end of the trace.
    Unfinished,
    /// Its completion is not in the trace, or cannot be distinguished from another's.
    GivenUp,
    /// The trace has no completions, or its device has none.
    Unknown,
}

impl RowStatus {
    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            RowStatus::Completed => "completed",
            RowStatus::Unfinished => "unfinished",
            RowStatus::GivenUp => "given up",
            RowStatus::Unknown => "unknown",
        }
    }
}

/// The stages of a row; the time between two bios (Q2Q) belongs to no bio.
const STAGES: [Stage; 8] =
    [Stage::Q2g, Stage::G2i, Stage::Q2m, Stage::I2d, Stage::M2d, Stage::D2c, Stage::Q2c, Stage::Q2d];

/// A row. Times are the trace's, in nanoseconds; `None`: not in the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoRow {
    pub device: Device,
    /// First sector (of 512 bytes), as it was queued or issued.
    pub sector: u64,
    pub bytes: u64,
    pub kind: RequestKind,
    pub flags: RequestFlags,
    pub status: RowStatus,
    pub queued_ns: Option<u64>,
    pub got_ns: Option<u64>,
    pub merged_ns: Option<u64>,
    pub inserted_ns: Option<u64>,
    /// The last issue, where the driver gave it back.
    pub issued_ns: Option<u64>,
    pub completed_ns: Option<u64>,
    /// In the order of [`STAGES`].
    stages: [Option<u64>; 8],
    /// Numbers within this analysis; [`NONE`]: not known.
    owner: u32,
    carrier: u32,
    issuer: u32,
    /// Device of the file system, and inode.
    pub file: Option<FileId>,
    /// Of a bio: the number of parts it was split into (1: not split). Of a request: the number of bios, or parts of bios, in it; 0 where
    /// their queueing, or the splits, are not in the trace.
    pub pieces: u64,
    /// How often the driver gave it back. `None`: unknown, because no issue is in the trace.
    pub requeues: Option<u64>,
    /// Queued by an upper device, for a bio of that device. `None`: a request without any queueing in the trace, or one of a device
    /// that another may lie on.
    pub below: Option<bool>,
    /// The kernel's negative error number; 0: none.
    pub error: i32,
}

macro_rules! columns {
    ($pieces:literal) => {
        &[
            Column::required("device", ColumnType::Text),
            Column::required("sector", ColumnType::Number),
            Column::required("bytes", ColumnType::Number),
            Column::required("kind", ColumnType::Text),
            Column::required("flags", ColumnType::Text),
            Column::required("status", ColumnType::Text),
            Column::optional("queued_ns", ColumnType::Number),
            Column::optional("got_ns", ColumnType::Number),
            Column::optional("merged_ns", ColumnType::Number),
            Column::optional("inserted_ns", ColumnType::Number),
            Column::optional("issued_ns", ColumnType::Number),
            Column::optional("completed_ns", ColumnType::Number),
            Column::optional("q2g_ns", ColumnType::Number),
            Column::optional("g2i_ns", ColumnType::Number),
            Column::optional("q2m_ns", ColumnType::Number),
            Column::optional("i2d_ns", ColumnType::Number),
            Column::optional("m2d_ns", ColumnType::Number),
            Column::optional("d2c_ns", ColumnType::Number),
            Column::optional("q2c_ns", ColumnType::Number),
            Column::optional("q2d_ns", ColumnType::Number),
            Column::optional("owner", ColumnType::Text),
            Column::optional("owner_tid", ColumnType::Number),
            Column::optional("owner_kind", ColumnType::Text),
            Column::optional("carrier", ColumnType::Text),
            Column::optional("carrier_tid", ColumnType::Number),
            Column::optional("issuer", ColumnType::Text),
            Column::optional("issuer_tid", ColumnType::Number),
            Column::optional("file_device", ColumnType::Text),
            Column::optional("file_inode", ColumnType::Number),
            Column::optional($pieces, ColumnType::Number),
            Column::optional("requeues", ColumnType::Number),
            Column::optional("below", ColumnType::Flag),
            Column::optional("error", ColumnType::Signed),
            Column::optional("error_name", ColumnType::Text),
            Column::optional("device_name", ColumnType::Text),
            Column::optional("file_path", ColumnType::Text),
            Column::optional("owner_ordinal", ColumnType::Number),
            Column::optional("carrier_ordinal", ColumnType::Number),
            Column::optional("issuer_ordinal", ColumnType::Number),
        ]
    };
}

/// Version of the columns, which only grow.
pub const ROWS_SCHEMA: u32 = 1;
/// The columns of a table of bios.
pub const BIO_COLUMNS: &[Column] = columns!("parts");
/// The columns of a table of requests.
pub const REQUEST_COLUMNS: &[Column] = columns!("bios");

impl RowsOf {
    pub fn columns(self) -> &'static [Column] {
        match self {
            RowsOf::Bios => BIO_COLUMNS,
            RowsOf::Requests => REQUEST_COLUMNS,
        }
    }

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            RowsOf::Bios => "bios",
            RowsOf::Requests => "requests",
        }
    }
}

/// A row with the names of its owners, files and devices.
pub struct NamedRow<'a, L> {
    pub row: &'a IoRow,
    originators: &'a Originators<L>,
    names: &'a (FileNames, DeviceNames),
}

impl<L: Lookup<Name: Named>> NamedRow<'_, L> {
    /// Passes the row's cells to `take`, in the order of [`BIO_COLUMNS`] or [`REQUEST_COLUMNS`].
    pub fn cells(&self, take: impl FnOnce(&[Cell<'_>])) {
        let row = self.row;
        let (device, flags) = (row.device.to_string(), row.flags.to_string());
        let owner = self.originators.owner(row.owner);
        let owner_kind = owner.as_ref().map(|(_, kind, _)| owner_kind(*kind));
        // The originator of a carrier's work is not known.
        let owner = owner.filter(|(_, kind, _)| *kind != OwnerKind::Unknown);
        let unlike = |other: u32| other != row.owner || owner.is_none();
        let carrier = self.originators.owner(row.carrier).filter(|_| unlike(row.carrier));
        let issuer = self.originators.owner(row.issuer);
        let file_device = row.file.and_then(|file| file.device).map(|device| device.to_string());
        let name = |one: &'_ Option<(std::borrow::Cow<'_, str>, OwnerKind, Option<TaskId>)>| {
            one.as_ref().map(|(name, ..)| name.to_string())
        };
        let tid = |one: &Option<(std::borrow::Cow<'_, str>, OwnerKind, Option<TaskId>)>| -> Cell<'static> {
            one.as_ref().and_then(|(.., tid)| *tid).filter(|tid| tid.has_number()).map(|tid| u64::from(tid.0)).into()
        };
        let ordinal = |known: bool, one: u32| -> Cell<'static> {
            Some(one).filter(|_| known).and_then(|one| self.originators.ordinal(one)).map(u64::from).into()
        };
        let (owner_name, carrier_name, issuer_name) = (name(&owner), name(&carrier), name(&issuer));
        let completed = row.status == RowStatus::Completed;
        let times = [row.queued_ns, row.got_ns, row.merged_ns, row.inserted_ns, row.issued_ns, row.completed_ns]
            .map(Cell::from);
        let stages = row.stages.map(Cell::from);
        let (files, devices) = self.names;
        let device_name = devices.get(row.device).map(|name| name.display());
        let file_path = row.file.and_then(|file| files.display(file.device?, file.inode));
        let head = [
            Cell::Text(&device),
            Cell::Number(row.sector),
            Cell::Number(row.bytes),
            Cell::Text(kind_name(row.kind)),
            Cell::Text(&flags),
            Cell::Text(row.status.name()),
        ];
        let tail = [
            owner_name.as_deref().into(),
            tid(&owner),
            owner_kind.into(),
            carrier_name.as_deref().into(),
            tid(&carrier),
            issuer_name.as_deref().into(),
            tid(&issuer),
            file_device.as_deref().into(),
            row.file.map(|file| file.inode).into(),
            Some(row.pieces).filter(|&pieces| pieces > 0).into(),
            row.requeues.into(),
            row.below.map_or(Cell::Unknown, Cell::Flag),
            if completed || row.error != 0 { Cell::Signed(i64::from(row.error)) } else { Cell::Unknown },
            Some(row.error).filter(|&error| error != 0).map(errno_name).into(),
            device_name.as_deref().into(),
            file_path.as_deref().into(),
            ordinal(owner.is_some(), row.owner),
            ordinal(carrier.is_some(), row.carrier),
            ordinal(issuer.is_some(), row.issuer),
        ];
        let mut cells = [Cell::Unknown; BIO_COLUMNS.len()];
        let all = head.iter().chain(&times).chain(&stages).chain(&tail);
        cells.iter_mut().zip(all).for_each(|(cell, value)| *cell = *value);
        take(&cells);
    }
}

fn owner_kind(kind: OwnerKind) -> &'static str {
    match kind {
        OwnerKind::Task => "task",
        OwnerKind::Kernel => "kernel",
        OwnerKind::Shared => "shared",
        OwnerKind::Unknown => "unknown",
    }
}

/// The name in JSON reports.
pub(crate) fn kind_name(kind: RequestKind) -> &'static str {
    match kind {
        RequestKind::Read => "read",
        RequestKind::Write => "write",
        RequestKind::Discard => "discard",
        RequestKind::Flush => "flush",
        RequestKind::SecureErase => "secure_erase",
        RequestKind::WriteZeroes => "write_zeroes",
        RequestKind::ZoneAppend => "zone_append",
        RequestKind::ZoneReset => "zone_reset",
        RequestKind::ZoneResetAll => "zone_reset_all",
        RequestKind::ZoneFinish => "zone_finish",
        RequestKind::ZoneOpen => "zone_open",
        RequestKind::ZoneClose => "zone_close",
        RequestKind::Other => "other",
    }
}

/// Counts of the pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowsFound {
    /// Block events; of these the queueings of bios, and the issues of requests.
    pub events: u64,
    pub queued: u64,
    pub issued: u64,
    /// Events of devices beyond the most; they are in no row.
    pub of_further_devices: u64,
}

/// Makes rows from the events of a trace, in order of time.
pub struct IoRows<L> {
    followed: Followed<L, Collector>,
    names: (FileNames, DeviceNames),
    /// A set of blktrace files lacks those of some CPUs, or events are lost: completions may be among them.
    ends_may_be_lost: bool,
}

impl<L: Lookup<Name: Named>> IoRows<L> {
    /// `lookup` returns the name of a thread at a time.
    pub fn new(of: RowsOf, lookup: L, setup: impl Into<BlockSetup>) -> Self {
        let mut setup = setup.into();
        let maybe_below = std::mem::take(&mut setup.maybe_below);
        let ends_may_be_lost = !setup.missing_cpus.is_empty();
        let mut followed = Followed::new(Collector::new(of), lookup, setup);
        followed.matching.watch.maybe_below = maybe_below;
        followed.matching.watch.splits_not_shown = followed.matching.splits_not_shown;
        IoRows { followed, names: Default::default(), ends_may_be_lost }
    }

    /// Sets the paths of files and names of devices for the rows.
    pub fn names(mut self, names: (FileNames, DeviceNames)) -> Self {
        self.names = names;
        self
    }

    /// See [`super::BlockAnalysis::events_are_missing`].
    pub fn events_are_missing(&mut self) {
        self.followed.events_are_missing();
    }

    /// See [`super::BlockAnalysis::losses`].
    pub fn losses(&mut self, losses: &Losses) {
        self.ends_may_be_lost |= losses.of_ends().next().is_some();
    }

    /// Takes an event; the rows that it ends go to `sink`.
    pub fn event(&mut self, event: &Event, sink: &mut dyn FnMut(NamedRow<'_, L>)) {
        let (tid, time) = (event.tid, event.time);
        match &event.kind {
            EventKind::File(file) => self.followed.file(file, tid, time),
            EventKind::Block(block) => {
                self.followed.remap(block, tid, time);
                let mut owner = 0;
                match block.action {
                    BlockAction::Queue => {
                        let carrier = self.followed.originators.issuer(tid, time);
                        let file;
                        (owner, file) = self.followed.queue(block, tid, time);
                        let watch = &mut self.followed.matching.watch;
                        (watch.next_carrier, watch.next_file) = (carrier, file);
                    }
                    BlockAction::Issue => {
                        self.followed.matching.watch.next_issuer = self.followed.originators.issuer(tid, time)
                    }
                    _ => {}
                }
                self.followed.matching.block(block, (owner, tid), time.0, || NONE);
                self.followed.matching.watch.shift = self.followed.matching.clock.shift;
                emit(&mut self.followed.matching.watch.done, (&self.followed.originators, &self.names), sink);
            }
            EventKind::Other { name, .. } => self.followed.originators.call(name, tid),
            EventKind::Recording => self.followed.recording_begins(time.0),
            _ => {}
        }
    }

    /// Passes on the rows still in flight.
    pub fn finish(self, sink: &mut dyn FnMut(NamedRow<'_, L>)) -> RowsFound {
        let Followed { matching, originators, .. } = self.followed;
        let completes = matching.completes.clone();
        let (mut watch, devices, counts, ..) = matching.finish();
        watch.close();
        if counts.endless.is_some() || self.ends_may_be_lost {
            let known = !self.ends_may_be_lost;
            let ends = |device| known && devices.iter().position(|&one| one == device).is_none_or(|at| completes[at]);
            for row in watch.done.iter_mut().filter(|row| row.status == RowStatus::Unfinished && !ends(row.device)) {
                row.status = RowStatus::Unknown;
            }
        }
        emit(&mut watch.done, (&originators, &self.names), sink);
        RowsFound {
            events: counts.events,
            queued: watch.queued,
            issued: watch.issued,
            of_further_devices: counts.of_further_devices,
        }
    }
}

/// The originator of a row, and the names of its file and device.
type Lookups<'a, L> = (&'a Originators<L>, &'a (FileNames, DeviceNames));

fn emit<L>(done: &mut Vec<IoRow>, (originators, names): Lookups<'_, L>, sink: &mut dyn FnMut(NamedRow<'_, L>)) {
    for row in done.drain(..) {
        sink(NamedRow { row: &row, originators, names });
    }
}

/// State of a bio in flight, by its name.
#[derive(Clone, Copy)]
struct Kept {
    sector: u64,
    bytes: u64,
    carrier: u32,
    file: Option<FileId>,
    /// The name of the bio that this is a part of; its own name, where it is no part.
    root: u32,
    parts: u64,
    /// Each part has a request of its own in the trace, where the trace has no splits.
    parts_known: bool,
    requeues: u64,
    /// The request that holds it.
    request: u32,
}

/// A request in flight.
#[derive(Clone, Copy)]
struct Request {
    row: IoRow,
    /// Number of bios in it; below: of those not done.
    members: u64,
    left: u64,
    /// The last completion of a bio in it; unknown where one of them is unknown.
    completed: u64,
    unknown: bool,
    /// `row` has the bio that the request was made for.
    led: bool,
}

struct Collector {
    of: RowsOf,
    devices: Vec<Device>,
    next_carrier: u32,
    next_issuer: u32,
    next_file: Option<FileId>,
    kept: Vec<Kept>,
    requests: Vec<Request>,
    free: Vec<u32>,
    /// The request whose bios are being reported.
    current: u32,
    unfinished: bool,
    /// A completion was seen.
    completes: bool,
    done: Vec<IoRow>,
    queued: u64,
    issued: u64,
    splits_not_shown: bool,
    maybe_below: Vec<Device>,
    /// What was added to the times of this recording, where the trace has several: rows have the trace's own.
    shift: u64,
}

fn known(time: u64) -> Option<u64> {
    (time != NEVER).then_some(time)
}

/// The earlier of two times that may be unknown.
fn earlier(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

impl Collector {
    fn new(of: RowsOf) -> Collector {
        Collector {
            of,
            devices: Vec::new(),
            next_carrier: NONE,
            next_issuer: NONE,
            next_file: None,
            kept: Vec::new(),
            requests: Vec::new(),
            free: Vec::new(),
            current: NONE,
            unfinished: false,
            completes: false,
            done: Vec::new(),
            queued: 0,
            issued: 0,
            splits_not_shown: false,
            maybe_below: Vec::new(),
            shift: 0,
        }
    }

    fn keep(&mut self, at: u32, kept: Kept) {
        let index = at as usize;
        if self.kept.len() <= index {
            self.kept.resize(index + 1, kept);
        }
        self.kept[index] = kept;
    }

    fn status(&self, completed: u64) -> RowStatus {
        match (completed, self.unfinished) {
            (NEVER, _) if !self.completes => RowStatus::Unknown,
            (NEVER, true) => RowStatus::Unfinished,
            (NEVER, false) => RowStatus::GivenUp,
            _ => RowStatus::Completed,
        }
    }

    /// The events of an issue are over: the bios of the request are known.
    fn close(&mut self) {
        let request = std::mem::replace(&mut self.current, NONE);
        if request != NONE && self.requests[request as usize].left == 0 {
            self.end(request);
        }
    }

    fn open(&mut self, device: Device, block: &BlockEvent, now: u64) {
        let row = IoRow {
            device,
            sector: block.sector,
            bytes: block.bytes,
            kind: block.kind(),
            flags: block.flags,
            status: RowStatus::GivenUp,
            queued_ns: None,
            got_ns: None,
            merged_ns: None,
            inserted_ns: None,
            issued_ns: Some(now),
            completed_ns: None,
            stages: [None; 8],
            owner: NONE,
            carrier: NONE,
            issuer: self.next_issuer,
            file: None,
            pieces: 0,
            requeues: Some(0),
            below: None,
            error: 0,
        };
        let request = Request { row, members: 0, left: 0, completed: 0, unknown: false, led: false };
        self.current = match self.free.pop() {
            Some(free) => {
                self.requests[free as usize] = request;
                free
            }
            None => {
                self.requests.push(request);
                (self.requests.len() - 1) as u32
            }
        };
    }

    /// A bio is in the request that is being issued.
    fn join(&mut self, at: u32, bio: &Bio) {
        if self.current == NONE || self.of == RowsOf::Bios {
            return;
        }
        let request = self.requests[self.current as usize];
        // The device's flush is one request, however many bios wait for it.
        if request.row.kind == RequestKind::Flush && request.members > 0 {
            return;
        }
        let before = self.kept[at as usize].request;
        if before != NONE {
            // The driver gave it back: the earlier issue had no effect.
            let issuer = self.requests[before as usize].row.issuer;
            self.leave(before);
            if request.members == 0 {
                self.requests[self.current as usize].row.issuer = issuer;
            }
        }
        self.kept[at as usize].request = self.current;
        let kept = self.kept[at as usize];
        let request = &mut self.requests[self.current as usize];
        request.members += 1;
        request.left += 1;
        let row = &mut request.row;
        row.requeues = row.requeues.max(Some(kept.requeues));
        if bio.is_request() {
            return;
        }
        row.pieces += 1;
        row.below = Some(row.below == Some(true) || bio.below);
        row.queued_ns = earlier(row.queued_ns, known(bio.queued));
        let leads = bio.got != NEVER && !request.led;
        if leads || row.pieces == 1 {
            (row.got_ns, row.inserted_ns) = (known(bio.got), known(bio.inserted));
            request.led = bio.got != NEVER;
        }
        if row.pieces == 1 {
            (row.owner, row.carrier) = (bio.owner, kept.carrier);
            row.file = kept.file;
        } else {
            // Where they differ, there is none.
            let same = |a: u32, b: u32| if a == b { a } else { NONE };
            (row.owner, row.carrier) = (same(row.owner, bio.owner), same(row.carrier, kept.carrier));
            row.file = row.file.filter(|file| kept.file == Some(*file));
        }
    }

    /// A bio is in another request now.
    fn leave(&mut self, request: u32) {
        let one = &mut self.requests[request as usize];
        one.left -= 1;
        if one.left == 0 && request != self.current {
            self.free.push(request);
        }
    }

    /// A bio's part in its request is over.
    fn part_over(&mut self, at: u32, bio: &Bio, completed: u64) {
        let Some(kept) = self.kept.get_mut(at as usize) else { return };
        let request = std::mem::replace(&mut kept.request, NONE);
        if request == NONE {
            return;
        }
        let one = &mut self.requests[request as usize];
        one.left -= 1;
        one.unknown |= completed == NEVER;
        one.completed = one.completed.max(if completed == NEVER { 0 } else { completed });
        if one.row.error == 0 {
            one.row.error = bio.error;
        }
        if one.left == 0 && request != self.current {
            self.end(request);
        }
    }

    fn end(&mut self, request: u32) {
        self.free.push(request);
        let Request { mut row, members, completed, unknown, .. } = self.requests[request as usize];
        if members == 0 {
            return;
        }
        let completed = if unknown { NEVER } else { completed };
        row.status = self.status(completed);
        row.completed_ns = known(completed);
        let between = |from: Option<u64>, to: Option<u64>| to?.checked_sub(from?);
        row.stages = [
            between(row.queued_ns, row.got_ns),
            between(row.got_ns, row.inserted_ns),
            None,
            between(row.inserted_ns, row.issued_ns),
            None,
            between(row.issued_ns, row.completed_ns),
            between(row.queued_ns, row.completed_ns),
            between(row.queued_ns, row.issued_ns),
        ];
        row.below = row.below.filter(|&below| self.is_clear(below, row.device));
        self.push(row);
    }

    /// Whether the bio had a request of its own, or the trace shows its splits anyway.
    fn has_request(&self, bio: &Bio) -> bool {
        !self.splits_not_shown || bio.kind == RequestKind::Flush || bio.got != NEVER || bio.merged != NEVER
    }

    fn push(&mut self, mut row: IoRow) {
        let IoRow { queued_ns, got_ns, merged_ns, inserted_ns, issued_ns, completed_ns, .. } = &mut row;
        for time in [queued_ns, got_ns, merged_ns, inserted_ns, issued_ns, completed_ns].into_iter().flatten() {
            *time = time.saturating_sub(self.shift);
        }
        self.done.push(row);
    }

    /// Whether it is known that I/O of this device is below none of another.
    fn is_clear(&self, below: bool, device: Device) -> bool {
        below || !self.maybe_below.contains(&device)
    }

    fn bio_over(&mut self, kept: Kept, bio: &Bio, completed: u64) {
        let mut stages = [None; 8];
        each_stage(bio, completed, |stage, time| {
            if let Some(at) = STAGES.iter().position(|&one| one == stage) {
                stages[at] = Some(time);
            }
        });
        let device = self.devices[usize::from(bio.device)];
        self.push(IoRow {
            device,
            sector: kept.sector,
            bytes: kept.bytes,
            kind: bio.kind,
            flags: bio.flags,
            status: self.status(completed),
            queued_ns: known(bio.queued),
            got_ns: known(bio.got),
            merged_ns: known(bio.merged),
            inserted_ns: known(bio.inserted),
            issued_ns: known(bio.issued),
            completed_ns: known(completed),
            stages,
            owner: bio.owner,
            carrier: kept.carrier,
            issuer: NONE,
            file: kept.file,
            pieces: if kept.parts_known && self.has_request(bio) { kept.parts } else { 0 },
            requeues: Some(kept.requeues).filter(|&times| times > 0 || self.issued > 0),
            below: Some(bio.below).filter(|&below| self.is_clear(below, device)),
            error: bio.error,
        });
    }
}

impl Watch for Collector {
    fn event(&mut self, device: u16, block: &BlockEvent, now: u64, _shown: bool) {
        self.close();
        let index = usize::from(device);
        if self.devices.len() <= index {
            self.devices.resize(index + 1, block.device);
        }
        self.devices[index] = block.device;
        match block.action {
            BlockAction::Queue => self.queued += 1,
            BlockAction::Complete => self.completes = true,
            BlockAction::Issue => {
                self.issued += 1;
                self.open(block.device, block, now);
            }
            _ => {}
        }
    }

    fn queued(&mut self, at: u32, bio: &Bio, _now: u64) {
        let (carrier, file) = (std::mem::replace(&mut self.next_carrier, NONE), self.next_file.take());
        // An empty flush lies at an internal number of the matching.
        let sector = if bio.kind == RequestKind::Flush { 0 } else { bio.sector };
        let kept = Kept {
            sector,
            bytes: bio.bytes(),
            carrier,
            file,
            root: at,
            parts: 1,
            parts_known: true,
            requeues: 0,
            request: NONE,
        };
        self.keep(at, kept);
    }

    fn requested(&mut self, at: u32, bio: &Bio, _now: u64) {
        let kept = Kept {
            sector: bio.sector,
            bytes: bio.bytes(),
            carrier: NONE,
            file: None,
            root: at,
            parts: 1,
            parts_known: true,
            requeues: 0,
            request: NONE,
        };
        self.keep(at, kept);
        self.join(at, bio);
    }

    fn step(&mut self, at: u32, bio: &Bio, step: Step, _now: u64) {
        match step {
            Step::Issued => self.join(at, bio),
            Step::Requeued => {
                let kept = &mut self.kept[at as usize];
                kept.requeues += 1;
                // The next issue is not known yet; it stays unknown if that event is lost.
                if let Some(request) = self.requests.get_mut(kept.request as usize) {
                    request.row.issued_ns = None;
                }
            }
            Step::Got | Step::Merged | Step::Inserted => {}
        }
    }

    fn absorbed(&mut self, at: u32, _bio: &Bio) {
        let request = std::mem::replace(&mut self.kept[at as usize].request, NONE);
        if request != NONE {
            self.requests[request as usize].members -= 1;
            self.leave(request);
        }
    }

    fn split(&mut self, from: u32, to: u32) {
        let kept = Kept { request: NONE, requeues: 0, ..self.kept[from as usize] };
        self.keep(to, kept);
        self.kept[kept.root as usize].parts += 1;
    }

    fn part_ended(&mut self, at: u32, part: &Bio, completed: u64) {
        self.part_over(at, part, completed);
        let Kept { root, requeues, .. } = self.kept[at as usize];
        self.kept[root as usize].parts_known &= self.has_request(part);
        if root != at {
            self.kept[root as usize].requeues += requeues;
        }
    }

    fn data_written(&mut self, at: u32, bio: &Bio, completed: u64) {
        self.part_over(at, bio, completed);
    }

    fn ended(&mut self, at: u32, bio: &Bio, completed: u64) {
        self.part_over(at, bio, completed);
        if self.of == RowsOf::Bios && !bio.is_request() {
            let kept = self.kept[at as usize];
            self.bio_over(kept, bio, completed);
        }
    }

    fn at_end(&mut self, unfinished: bool) {
        self.close();
        self.unfinished = unfinished;
    }

    fn begins_again(&mut self) {
        self.unfinished = false;
    }
}
