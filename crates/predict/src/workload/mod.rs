//! Extracts from a trace the accesses, in order, as a read-ahead model takes them, and the measured result of each.

mod cached;
mod cpu_wait;
mod descriptors;
pub mod overlap;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;

use flashscope_cachesim::{Access, OpenId, PAGE_BYTES};
use flashscope_trace::{Device, Event, EventKind, Facts, FileId, FileStep, FlashOp, Pair, Record, TaskId};

use crate::measured::flash_time::{FlashTimes, ReadRun};
use crate::measured::pages::{InCall, PageCosts};
use crate::measured::ubifs::{Nodes, Place, Places};
use crate::queue::{QueueReader, Queued};
use crate::workload::cached::Cached;
use crate::workload::cpu_wait::{CpuWait, can_run};
use crate::workload::descriptors::{Descriptors, integer};

/// One access of one task.
#[derive(Clone, Copy, Debug)]
pub struct TaskAccess {
    pub tid: TaskId,
    pub file: FileId,
    /// By descriptor where the trace has the calls, else by task.
    pub open: OpenId,
    pub access: Access,
    /// The call's index in [`Workload::calls`]; `None` for an access that is no read or fault.
    pub call: Option<u32>,
}

/// One `read()` or one fault, as recorded.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub tid: TaskId,
    pub file: FileId,
    pub is_fault: bool,
    /// Pages that were added to its file's cache.
    pub pages_added: u32,
    /// Array reads of flash while its task was in it.
    pub flash_reads: u32,
    /// Of those, the ones that read a part of a page, as UBIFS reads nodes.
    pub flash_reads_in_part: u32,
    pub began_ns: u64,
    /// Without the time of waiting for a CPU. `None` where the trace does not show its end. Where no event shows the end of a fault (no
    /// `file_fault_end`), it lasts to its last flash read plus the mean of its reads; 0 where it read none.
    pub duration_ns: Option<u64>,
    /// Time for which all calls had waited for a CPU when it began; and while it lasted.
    pub cpu_wait_before_ns: u64,
    pub cpu_wait_ns: u64,
}

impl Call {
    pub fn new(tid: TaskId, file: FileId, is_fault: bool, began_ns: u64) -> Call {
        Call {
            tid,
            file,
            is_fault,
            pages_added: 0,
            flash_reads: 0,
            flash_reads_in_part: 0,
            began_ns,
            duration_ns: None,
            cpu_wait_before_ns: 0,
            cpu_wait_ns: 0,
        }
    }

    /// The begin, by the clock that stands still while all calls wait for a CPU.
    pub fn clock_began_ns(&self) -> u64 {
        self.began_ns.saturating_sub(self.cpu_wait_before_ns)
    }

    /// Time of its end, where known.
    pub fn ended_ns(&self) -> Option<u64> {
        Some(self.began_ns.saturating_add(self.duration_ns?).saturating_add(self.cpu_wait_ns))
    }
}

/// The file reads of a trace.
#[derive(Debug, Default)]
pub struct Workload {
    pub steps: Vec<TaskAccess>,
    pub calls: Vec<Call>,
    /// Calls that request pages beforehand: `readahead()`, `POSIX_FADV_WILLNEED`, `MADV_WILLNEED`.
    pub advice: Vec<Call>,
    /// Sizes in bytes. For a file that was never read to its end: up to where it was read, written or cached.
    pub sizes: BTreeMap<FileId, u64>,
    /// Files that were written from their begin on: their size is the bytes written so far.
    pub created: HashSet<FileId>,
    /// Files whose end no read reached: read-ahead beyond the pages in the trace is not predicted for them.
    pub open_ended: BTreeSet<FileId>,
    /// Pages that were read and never added: they were cached before the recording began.
    pub cached_before: Vec<(FileId, Range<u64>)>,
    /// Cached pages that were forgotten because there were too many.
    pub pages_forgotten: u64,
    /// Pages that accesses request, and pages that were added without a request.
    pub pages_asked: u64,
    /// Events of files beyond the most that are followed.
    pub of_further_files: u64,
    /// Pages added to files that were read or faulted on, except by writes.
    pub pages_added: BTreeMap<FileId, u64>,
    /// Pages added without a read, fault, write of their file or advice: by the file system itself ([`Access::Brought`]).
    pub pages_brought: u64,
    pub flash_reads: u64,
    pub faults: u64,
    /// Reads whose end the trace does not show.
    pub without_end: u64,
    /// Accesses beyond the most that are kept.
    pub left_out: u64,
    /// Calls, writes, open files and mappings that were forgotten because there were too many at once.
    pub forgotten: u64,
    /// Open files were distinguished by their descriptors.
    pub descriptors: bool,
    /// Every page that reads and faults brought in, in order; only with [`Collector::keep_pages`].
    pub pages: Vec<(FileId, u64)>,
    /// The measured cost of each page.
    pub costs: PageCosts,
    /// For how long calls waited for a CPU; 0 where the trace has no `sched_switch`.
    pub cpu_wait_ns: u64,
    /// Places of the data nodes of files on UBIFS.
    pub nodes: Nodes,
    /// Durations of flash reads.
    pub flash_times: FlashTimes,
    /// Whether the trace has events of the cache and of flash.
    pub cache_seen: bool,
    pub flash_seen: bool,
    /// Whether the trace would show faults of mapped files, and the running tasks.
    pub faults_shown: bool,
    pub switches_shown: bool,
    /// Requests of the block queue.
    pub queued: Queued,
}

impl Workload {
    /// Takes the layout of files from a recording that read their pages one by one: the cost of each page, the place of its node, and
    /// the ends of files that no read reached here. Returns the number of pages of this workload's files.
    pub fn learn(&mut self, layout: &Workload) -> usize {
        // Where no read reached a file's end, its bytes read: squashfs caches pages behind an end, up to its block's.
        let read = layout.steps.iter().filter_map(|step| match step.access {
            Access::Read { offset, length } if layout.open_ended.contains(&step.file) => {
                Some((step.file, offset.saturating_add(length)))
            }
            _ => None,
        });
        let ended = layout.sizes.iter().map(|(&file, &size)| (file, size));
        for (file, size) in read.chain(ended.filter(|(file, _)| !layout.open_ended.contains(file))) {
            if let Some(known) = self.sizes.get_mut(&file)
                && self.open_ended.contains(&file)
                && !self.created.contains(&file)
            {
                *known = (*known).max(size);
            }
        }
        self.open_ended.retain(|file| layout.open_ended.contains(file) || !layout.sizes.contains_key(file));
        self.nodes.learn(&layout.nodes, &self.sizes);
        self.costs.learn(&layout.costs, |file| self.sizes.contains_key(&file))
    }
}

/// Most accesses that are kept (48 bytes each and 48 for a call).
const MAX_STEPS: usize = 4_000_000;
/// Most pages of a call: 2 GiB (MAX_RW_COUNT, include/linux/fs.h).
const MOST_OF_A_CALL: u64 = 1 << 19;
/// Most files that are followed.
const MAX_FILES: usize = 1 << 17;
/// Most pages that accesses may request: this number, and `PAGES_AN_EVENT` for each event read. Each setting plays all of them.
const MOST_PAGES: u64 = 1 << 18;
const PAGES_AN_EVENT: u64 = 16;
/// Most pages of one cache event: more than any folio has.
const MOST_OF_A_FOLIO: u64 = 1 << 14;
/// Most tasks, open files and mappings that are followed at once.
const MAX_TASKS: usize = 1 << 16;

/// Makes room for a further key: a full table begins anew. Returns the number of entries that were forgotten.
fn make_room<K: Eq + std::hash::Hash, V>(table: &mut HashMap<K, V>, key: &K) -> u64 {
    if table.len() < MAX_TASKS || table.contains_key(key) {
        return 0;
    }
    let forgotten = table.len() as u64;
    table.clear();
    forgotten
}

/// A call that a task is in.
#[derive(Default)]
struct Inside {
    /// Its index in [`Workload::calls`], or in [`Workload::advice`].
    call: u32,
    is_advice: bool,
    offset: u64,
    requested_bytes: u64,
    /// Times of its first and last flash read.
    flash_ns: Option<(u64, u64)>,
    /// The consecutive flash reads at its end.
    flash_run: Option<Place>,
    flash_in_a_row: ReadRun,
    /// The page behind the last added one, where pages were added in order.
    brought_to: Option<u64>,
    /// Its pages and flash reads one by one.
    came: InCall,
}

impl Inside {
    fn began(&self, workload: &Workload) -> u64 {
        let calls = if self.is_advice { &workload.advice } else { &workload.calls };
        calls[self.call as usize].began_ns
    }

    fn call_of<'w>(&self, workload: &'w mut Workload) -> &'w mut Call {
        let calls = if self.is_advice { &mut workload.advice } else { &mut workload.calls };
        &mut calls[self.call as usize]
    }
}

/// Builds a workload from events in order of time.
#[derive(Default)]
pub struct Collector {
    workload: Workload,
    inside: HashMap<TaskId, Inside>,
    /// When the last call of any task ended.
    last_end_ns: u64,
    /// Pages that are cached, as far as the trace shows.
    cached: Cached,
    /// Files that are followed.
    files: HashSet<FileId>,
    /// Limits of requested pages: the first one (`None`: [`MOST_PAGES`]), and the sum by events so far.
    first_pages: Option<u64>,
    more_pages: u64,
    ended: HashSet<FileId>,
    /// Current sizes of files, where the trace has them.
    known_sizes: HashMap<FileId, u64>,
    /// Files that had no data behind their known size when they were read.
    read_up: HashSet<FileId>,
    /// The file that a task is writing: pages added meanwhile belong to the write.
    writing: HashMap<TaskId, FileId>,
    left_out: HashSet<Device>,
    descriptors: Descriptors,
    keep_pages: bool,
    through_block_layer: bool,
    places: Places,
    queue: QueueReader,
    cpu_wait: CpuWait,
    /// Workers read for waiting tasks: a task that runs instead of a call's may read for it.
    served_by_others: bool,
}

impl Collector {
    /// `in_ram`: devices whose files are not on storage. `facts`: of the recording.
    pub fn new(facts: &Facts, in_ram: impl IntoIterator<Item = Device>) -> Collector {
        let descriptors = Descriptors::new(facts);
        let places = Places::new(facts);
        let left_out = in_ram.into_iter().collect();
        Collector { left_out, descriptors, places, ..Collector::default() }
    }

    /// Lets accesses request `most` pages, and `PAGES_AN_EVENT` more for each event. The time to play a setting grows with them.
    pub fn limit_pages(&mut self, most: u64) {
        self.first_pages = Some(most);
    }

    /// Lists every added page in [`Workload::pages`].
    pub fn keep_pages(&mut self) {
        self.keep_pages = true;
    }

    /// The file system reads flash through a block device (squashfs on mtdblock or ubiblock): a kernel worker does the reads.
    pub fn through_block_layer(&mut self) {
        self.through_block_layer = true;
        self.served_by_others = true;
    }

    /// Takes one record of a trace and its typed form.
    pub fn pair(&mut self, pair: &Pair<'_>) {
        if let Some(record) = pair.record {
            if record.schema.name.starts_with("sys_exit") {
                let value = record.get("ret").and_then(integer);
                // 32-bit kernels' `long`, and formats that call it unsigned: an error is above every length.
                let got = value.filter(|&value| value as u32 <= u32::MAX - 4096).map(|value| value.max(0) as u64);
                self.returned(record.tid(), record.time.0, got);
                if let Some(value) = value {
                    self.descriptors.returned(record.tid(), value);
                }
            } else if record.schema.name.starts_with("sys_enter") {
                self.over(record.tid(), None, None);
                let asks_for_pages = self.descriptors.entered(record);
                self.take_accesses(record.tid());
                if asks_for_pages {
                    self.begin_advice(record.tid(), record.time.0);
                }
            } else if record.schema.name == "file_fault_end" {
                self.fault_over(record.tid(), record.time.0);
            } else if record.schema.name == "sched_switch" {
                self.switched(record);
            }
        }
        if let Some(event) = pair.event {
            self.event(event);
        }
    }

    fn switched(&mut self, record: &Record<'_>) {
        let number = |name: &str| record.get(name).and_then(integer);
        let (Some(prev), Some(state), Some(next)) = (number("prev_pid"), number("prev_state"), number("next_pid"))
        else {
            return;
        };
        let prev_in_call = Some(TaskId(prev as u32)).filter(|prev| self.inside.contains_key(prev));
        if !self.served_by_others {
            let prev_waits = prev_in_call.filter(|_| can_run(state));
            self.cpu_wait.switched(record.time.0, prev_waits, TaskId(next as u32), self.inside.len());
        }
    }

    /// The time by the clock that stands still while all calls wait for a CPU.
    fn clock(&self, time_ns: u64) -> u64 {
        time_ns.saturating_sub(self.cpu_wait.before(time_ns))
    }

    fn take_accesses(&mut self, tid: TaskId) {
        for (file, open, access) in std::mem::take(&mut self.descriptors.ready) {
            self.step(TaskAccess { tid, file, open, access, call: None });
        }
    }

    pub fn event(&mut self, event: &Event) {
        self.more_pages = self.more_pages.saturating_add(PAGES_AN_EVENT);
        let clock_ns = self.clock(event.time.0);
        match &event.kind {
            EventKind::Flash(access) if access.op == FlashOp::Read => {
                self.workload.flash_seen = true;
                let reader = match self.through_block_layer && !self.inside.contains_key(&event.tid) {
                    // A worker reads for a waiting task: with several, for the one that has waited longest.
                    true => {
                        self.inside.iter().min_by_key(|(_, inside)| inside.began(&self.workload)).map(|(&tid, _)| tid)
                    }
                    false => Some(event.tid),
                };
                if let Some(inside) = reader.and_then(|tid| self.inside.get_mut(&tid)) {
                    self.workload.flash_reads += 1;
                    let row = &mut inside.flash_in_a_row;
                    let in_part = row.read(access.chip, access.page, clock_ns, &mut self.workload.flash_times);
                    let call = inside.call_of(&mut self.workload);
                    call.flash_reads += 1;
                    call.flash_reads_in_part += in_part;
                    inside.came.read(clock_ns);
                    if self.through_block_layer {
                        inside.came.read_at(access.chip, access.page);
                    }
                    let first = inside.flash_ns.map_or(clock_ns, |(first, _)| first);
                    inside.flash_ns = Some((first, clock_ns));
                    inside.flash_run = Some(Place::after(inside.flash_run, access.chip, access.page));
                }
            }
            EventKind::File(step) => {
                let file = step.file();
                if step.device.is_some_and(|device| self.left_out.contains(&device)) {
                    return;
                }
                if self.files.len() < MAX_FILES {
                    self.files.insert(file);
                } else if !self.files.contains(&file) {
                    self.workload.of_further_files += 1;
                    return;
                }
                if let Some(bytes) = step.size {
                    self.has_size(event.tid, file, bytes);
                }
                self.file(event, step.step, file, step.offset, step.bytes);
            }
            EventKind::Block(block) => {
                self.served_by_others = true;
                self.queue.block(event.time.0, event.tid, block);
            }
            _ => {}
        }
    }

    fn file(&mut self, event: &Event, step: FileStep, file: FileId, offset: u64, bytes: u64) {
        match step {
            FileStep::Read if bytes > 0 => {
                self.over(event.tid, None, None);
                self.writing.remove(&event.tid);
                let open = self.descriptors.read(event.tid, file);
                self.take_accesses(event.tid);
                let call = self.workload.calls.len() as u32;
                let access = Access::Read { offset, length: bytes };
                if !self.step(TaskAccess { tid: event.tid, file, open, access, call: Some(call) }) {
                    return;
                }
                self.begin(event, call, file, offset, bytes, false);
            }
            FileStep::Fault => {
                self.over(event.tid, None, None);
                self.workload.faults += 1;
                let (open, advice) = self.descriptors.fault(event.tid, file, offset / PAGE_BYTES);
                self.take_accesses(event.tid);
                let access = Access::Fault { page: offset / PAGE_BYTES, advice };
                let call = self.workload.calls.len() as u32;
                if self.step(TaskAccess { tid: event.tid, file, open, access, call: Some(call) }) {
                    self.begin(event, call, file, offset, 0, true);
                }
            }
            FileStep::Write | FileStep::WriteBegin if bytes > 0 => {
                self.over(event.tid, None, None);
                self.workload.forgotten += make_room(&mut self.writing, &event.tid);
                self.writing.insert(event.tid, file);
                if offset == 0 && !self.workload.sizes.contains_key(&file) && !self.cached.knows(file) {
                    self.workload.created.insert(file);
                }
                self.grow(file, offset.saturating_add(bytes));
                let known = self.workload.created.contains(&file).then_some(0);
                if let Some(size) = self.known_sizes.get(&file).copied().or(known) {
                    self.known_sizes.insert(file, size.max(offset.saturating_add(bytes)));
                }
                self.read_up.remove(&file);
                let open = OpenId(u64::from(event.tid.0));
                self.step(TaskAccess {
                    tid: event.tid,
                    file,
                    open,
                    access: Access::Write { offset, length: bytes },
                    call: None,
                });
            }
            FileStep::Cached => self.pages_came(event, file, offset, bytes),
            FileStep::Uncached => {
                let first = offset / PAGE_BYTES;
                // Pages removed while the same task reads the file were taken back by read-ahead itself (squashfs): the model does so too.
                let inside = self.inside.get(&event.tid).map(|inside| inside.call_of(&mut self.workload).file);
                let taken_back = inside == Some(file);
                let end = first.saturating_add(bytes.div_ceil(PAGE_BYTES).min(MOST_OF_A_FOLIO));
                for (run, is_last) in self.cached.left(file, first..end, taken_back) {
                    let one = Access::Drop { page: run.start, pages: run.end - run.start };
                    let access = if is_last { Access::DropAll } else { one };
                    self.step(TaskAccess { tid: event.tid, file, open: OpenId(0), access, call: None });
                }
            }
            _ => {}
        }
    }

    /// Pages were added to the cache, in a call or without one.
    fn pages_came(&mut self, event: &Event, file: FileId, offset: u64, bytes: u64) {
        self.workload.cache_seen = true;
        let first = offset / PAGE_BYTES;
        let pages = bytes.div_ceil(PAGE_BYTES).min(MOST_OF_A_FOLIO);
        let end = first.saturating_add(pages);
        self.cached.add(file, first..end);
        self.grow(file, offset.saturating_add(bytes));
        if self.writing.get(&event.tid) == Some(&file) {
            return;
        }
        if !self.inside.contains_key(&event.tid) {
            self.workload.pages_brought += pages;
            let (tid, open, access) = (event.tid, OpenId(0), Access::Brought { page: first, pages: end - first });
            self.step(TaskAccess { tid, file, open, access, call: None });
            return;
        }
        self.came_for_advice(event.tid, file);
        self.queue.added(event.tid, event.time.0, file, first, pages);
        *self.workload.pages_added.entry(file).or_default() += pages;
        if self.keep_pages && self.workload.pages.len() < MAX_STEPS {
            self.workload.pages.extend((first..first.saturating_add(pages)).map(|page| (file, page)));
        }
        if let Some(inside) = self.inside.get_mut(&event.tid) {
            let call = inside.call_of(&mut self.workload);
            if call.file == file {
                let follows = call.pages_added == 0 || inside.brought_to == Some(first);
                inside.brought_to = follows.then_some(first.saturating_add(pages));
                call.pages_added += pages as u32;
                inside.came.pages(first..end);
            }
        }
    }

    fn begin(&mut self, event: &Event, call: u32, file: FileId, offset: u64, requested_bytes: u64, is_fault: bool) {
        let tid = event.tid;
        self.workload.calls.push(Call::new(tid, file, is_fault, event.time.0));
        let pages = (offset / PAGE_BYTES, offset.saturating_add(requested_bytes.max(1)).div_ceil(PAGE_BYTES));
        self.queue.begin(tid, event.time.0, file, pages, is_fault);
        if self.inside.len() < MAX_TASKS || self.inside.contains_key(&tid) {
            self.enter(tid, Inside { call, offset, requested_bytes, ..Inside::default() });
        } else {
            self.workload.forgotten += 1;
        }
    }

    fn enter(&mut self, tid: TaskId, inside: Inside) {
        let call = inside.call_of(&mut self.workload);
        let began_ns = call.began_ns;
        call.cpu_wait_before_ns = self.cpu_wait.before(began_ns);
        self.inside.insert(tid, inside);
        self.cpu_wait.runs(began_ns, tid, self.inside.len());
    }

    /// Adds the costs of an ended call's pages, one by one; squashfs reads blocks, and each page gets the mean.
    fn add_costs(&mut self, call: Call, came: &InCall, ended_ns: Option<u64>) {
        // Served alone: no other task is in a call, and none was since this one began.
        let alone = self.inside.is_empty() && self.last_end_ns <= call.clock_began_ns();
        self.last_end_ns = ended_ns.unwrap_or(self.last_end_ns).max(self.last_end_ns);
        let ended_ns = ended_ns.filter(|_| alone);
        self.workload.costs.add(call.file, came, ended_ns, self.through_block_layer.then_some(alone));
    }

    /// Notes the place of the node of the last page that a call brought in.
    fn note_place(&mut self, inside: &Inside) {
        let Call { file, pages_added, flash_reads, .. } = *inside.call_of(&mut self.workload);
        if let (Some(behind), Some(place)) = (inside.brought_to, inside.flash_run) {
            let place = if pages_added == 1 { place } else { place.of_the_last_page() };
            self.places.note(file, behind.saturating_sub(1), place, flash_reads);
        }
    }

    /// Begins a call that requests pages without reading them; its file is that of the first page added.
    fn begin_advice(&mut self, tid: TaskId, time_ns: u64) {
        if self.workload.advice.len() >= MAX_STEPS || self.inside.len() >= MAX_TASKS {
            self.workload.left_out += 1;
            return;
        }
        let call = self.workload.advice.len() as u32;
        self.workload.advice.push(Call::new(tid, FileId { device: None, inode: 0 }, false, time_ns));
        self.enter(tid, Inside { call, is_advice: true, ..Inside::default() });
    }

    /// The first page added in such a call shows the file of its descriptor.
    fn came_for_advice(&mut self, tid: TaskId, file: FileId) {
        let Some(inside) = self.inside.get(&tid).filter(|inside| inside.is_advice) else { return };
        let call = inside.call_of(&mut self.workload);
        if call.pages_added > 0 {
            return;
        }
        call.file = file;
        self.descriptors.advised(tid, file);
        self.take_accesses(tid);
    }

    /// The event of a read or a fault has the size of its file.
    fn has_size(&mut self, tid: TaskId, file: FileId, bytes: u64) {
        self.ended.insert(file);
        match self.known_sizes.insert(file, bytes) {
            // All earlier accesses were to a file of that size.
            None => {
                self.workload.sizes.insert(file, bytes);
            }
            Some(before) if before != bytes => {
                self.step(TaskAccess { tid, file, open: OpenId(0), access: Access::Resized { bytes }, call: None });
            }
            Some(_) => {}
        }
    }

    fn grow(&mut self, file: FileId, end: u64) {
        if !self.ended.contains(&file) {
            let size = self.workload.sizes.entry(file).or_default();
            *size = (*size).max(end);
        }
    }

    /// Pages that the model visits for an access, whatever the window.
    fn pages_of(&self, step: &TaskAccess) -> u64 {
        let size = self.known_sizes.get(&step.file).copied().unwrap_or(u64::MAX);
        let within = |offset: u64, length: u64, size: u64| {
            let end = offset.saturating_add(length).min(size).div_ceil(PAGE_BYTES);
            end.saturating_sub(offset / PAGE_BYTES).min(MOST_OF_A_CALL)
        };
        match step.access {
            Access::Read { offset, length } => within(offset, length, size),
            Access::Write { offset, length } => within(offset, length, u64::MAX),
            Access::WillNeed { offset, length } => within(offset, if length == 0 { u64::MAX } else { length }, size),
            Access::Brought { pages, .. } | Access::Drop { pages, .. } => pages,
            _ => 1,
        }
    }

    fn step(&mut self, step: TaskAccess) -> bool {
        let pages = self.workload.pages_asked.saturating_add(self.pages_of(&step));
        let room = self.workload.steps.len() < MAX_STEPS
            && pages <= self.first_pages.unwrap_or(MOST_PAGES).saturating_add(self.more_pages);
        match room {
            true => {
                self.workload.pages_asked = pages;
                self.workload.steps.push(step);
            }
            false => self.workload.left_out += 1,
        }
        room
    }

    /// A system call of the task returned; `got`: the number of bytes, where known.
    pub fn returned(&mut self, tid: TaskId, time_ns: u64, got: Option<u64>) {
        self.writing.remove(&tid);
        self.over(tid, Some(time_ns), got);
    }

    /// The fault that the task is in ended; an outer call goes on.
    fn fault_over(&mut self, tid: TaskId, time_ns: u64) {
        let in_fault = self.inside.get(&tid).is_some_and(|inside| inside.call_of(&mut self.workload).is_fault);
        if in_fault && let Some(inside) = self.inside.remove(&tid) {
            self.queue.over(tid, Some(time_ns));
            self.leave(tid, &inside, Some(time_ns), true);
        }
    }

    /// Ends a call; `fault_ends`: the time is also a fault's end. Returns the time by the clock that stands still while all calls wait for a
    /// CPU.
    fn leave(&mut self, tid: TaskId, inside: &Inside, ended_ns: Option<u64>, fault_ends: bool) {
        if let Some(ended_ns) = ended_ns {
            self.cpu_wait.runs(ended_ns, tid, self.inside.len());
        }
        let call = *inside.call_of(&mut self.workload);
        let ended = ended_ns.filter(|_| fault_ends || !call.is_fault).map(|ended_ns| (ended_ns, self.clock(ended_ns)));
        self.add_costs(call, &inside.came, ended.map(|(_, clock_ns)| clock_ns));
        self.note_place(inside);
        let call = inside.call_of(&mut self.workload);
        call.flash_reads_in_part += inside.flash_in_a_row.in_part();
        if let Some((ended_ns, clock_ns)) = ended {
            let duration_ns = clock_ns.saturating_sub(call.clock_began_ns());
            call.duration_ns = Some(duration_ns);
            call.cpu_wait_ns = ended_ns.saturating_sub(call.began_ns).saturating_sub(duration_ns);
        }
    }

    /// The task left its read.
    fn over(&mut self, tid: TaskId, ended_ns: Option<u64>, got: Option<u64>) {
        if let (Some(got), Some(inside)) = (got, self.inside.get(&tid)) {
            self.queue.got(tid, inside.offset.saturating_add(got).div_ceil(PAGE_BYTES));
        }
        let waited_until = self.queue.over(tid, ended_ns);
        let Some(inside) = self.inside.remove(&tid) else { return };
        self.leave(tid, &inside, ended_ns, false);
        let call = inside.call_of(&mut self.workload);
        if call.is_fault {
            let after = |(first, last): (u64, u64)| {
                let one = last.saturating_sub(first) / u64::from(call.flash_reads.max(2) - 1);
                last.saturating_sub(call.clock_began_ns()).saturating_add(one)
            };
            let behind_queue = waited_until.map_or(0, |until| until.saturating_sub(call.began_ns));
            call.duration_ns = Some(inside.flash_ns.map_or(behind_queue, after));
            return;
        }
        if inside.is_advice {
            return;
        }
        let file = call.file;
        self.workload.without_end += u64::from(ended_ns.is_none());
        let end = inside.offset.saturating_add(got.unwrap_or(inside.requested_bytes));
        match got {
            // Short, but not empty: the file ends here.
            Some(got) if 0 < got && got < inside.requested_bytes && !self.known_sizes.contains_key(&file) => {
                self.workload.sizes.insert(file, end);
                self.ended.insert(file);
            }
            // No data, as the last read of a file finds: it proves the known size, and nothing else.
            Some(0) if self.workload.sizes.get(&file).is_some_and(|&size| size <= inside.offset) => {
                self.read_up.insert(file);
            }
            Some(0) => {}
            Some(_) => self.grow(file, end),
            None => {}
        }
        if got.is_some_and(|got| got > 0) {
            let first = inside.offset / PAGE_BYTES;
            // No call returns more than it requested, even if a damaged event says so.
            let end = end.min(inside.offset.saturating_add(inside.requested_bytes)).div_ceil(PAGE_BYTES);
            self.cached.found(file, first..end.clamp(first, first.saturating_add(MOST_OF_A_CALL)));
        }
    }

    pub fn finish(mut self) -> Workload {
        let tasks: Vec<TaskId> = self.inside.keys().copied().collect();
        for tid in tasks {
            self.over(tid, None, None);
        }
        let mut workload = self.workload;
        workload.queued = self.queue.finish();
        workload.cpu_wait_ns = self.cpu_wait.total_ns();
        workload.forgotten += self.descriptors.forgotten;
        workload.descriptors = self.descriptors.any();
        // A file with pages cached before, or with an end other than its last write's, was not created in the trace.
        let mut written: HashMap<FileId, u64> = HashMap::new();
        for step in &workload.steps {
            if let Access::Write { offset, length } = step.access {
                let end = written.entry(step.file).or_default();
                *end = (*end).max(offset.saturating_add(length));
            }
        }
        let sizes = &workload.sizes;
        workload.created.retain(|file| {
            let pages = |bytes: u64| bytes.div_ceil(PAGE_BYTES);
            written.get(file).zip(sizes.get(file)).is_some_and(|(&end, &size)| pages(end) >= pages(size))
        });
        // Where nothing was cached and no read returned, the requests alone show the size.
        for step in &workload.steps {
            if let Access::Read { offset, length } = step.access
                && !self.ended.contains(&step.file)
                && !workload.sizes.contains_key(&step.file)
            {
                workload.sizes.insert(step.file, offset.saturating_add(length));
            }
        }
        // The device's own cache (directories, block maps) is read by the file system: it is not modelled.
        let read: HashSet<FileId> = workload
            .steps
            .iter()
            .filter(|step| matches!(step.access, Access::Read { .. } | Access::Fault { .. }))
            .map(|step| step.file)
            .collect();
        workload.pages_added.retain(|file, _| read.contains(file));
        workload.sizes.retain(|file, _| read.contains(file));
        workload.pages.retain(|(file, _)| read.contains(file));
        workload.nodes = self.places.nodes(workload.sizes.keys().copied());
        let is_open = |file: &FileId| !self.ended.contains(file) && !self.read_up.contains(file);
        workload.open_ended = workload.sizes.keys().copied().filter(is_open).collect();
        workload.cached_before = self.cached.before();
        workload.pages_forgotten = self.cached.forgotten;
        workload
    }
}

#[cfg(test)]
mod tests;
