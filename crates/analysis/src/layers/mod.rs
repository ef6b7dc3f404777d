//! Divides the time of a call among the layers.
//!
//! Each moment of a call belongs to one layer:
//!
//! - While the task runs: the innermost layer that it has entered and not left.
//! - While a kernel thread of storage runs instead of the task, which could run: the layer of that thread.
//! - While the task sleeps: the device while it has a request (of the task or of a kernel thread that works for a file system; a
//!   read waits for reads of such threads alone); the block layer while such a bio waits for its issue; else the layer of such a thread; after the last completion the interrupt
//!   path (handler, wake-up) until the task runs again.
//! - While it could run and another task has the CPU (it was preempted; or the other was switched in since the last completion, or others
//!   had since then the CPU that the task gets): other tasks. This time belongs to no layer.
//! - All other time is unattributed. It is never given to a layer.
//!
//! While a task runs and the device works for it, two things happen at once: that time belongs to the task's layer, and is counted
//! a second time as overlap.
//!
//! Sleep is shown by the scheduler's events (or by `schedule` in a trace of functions). Where a trace has neither, a task is assumed
//! to sleep while it is in no layer below the page cache and the device has its request.

use crate::kernel_threads::{home, is_of_storage};
use crate::{Analysis, Evidence, Lookup, LossCount, SystemFacts};
pub use flashscope_trace::{Layer, SleepSource};
mod bios;
mod found;
use bios::{Bio, Ends, Place, Shared};
use flashscope_trace::{CallKind, Crossing, Device, Event, EventKind, RequestKind, TaskId, TimeNs};
use foldhash::{HashMap, HashMapExt as _, HashSet};
pub use found::{CallLayers, CallSum, LayerTime, LayersFound, Operation, Slice};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Most operations that are listed one by one.
pub const MAX_CALLS: usize = 4096;
/// Most slices of one operation; a longer one keeps none.
pub const MAX_SLICES: usize = 512;
/// Most slices of all listed operations; later ones are listed without slices.
const MAX_SLICES_OF_ALL: usize = 1 << 16;
/// Most tasks followed at one time.
const MAX_TASKS: usize = 1 << 14;
/// Most nested layers.
const MAX_DEPTH: usize = 256;
/// Most writes of one task that wait for their sync; below: of all tasks.
const MAX_WRITTEN: usize = 64;
const MAX_WRITTEN_OF_ALL: usize = 4096;

#[derive(Clone)]
struct Call {
    kind: CallKind,
    file: Option<u32>,
    begin: u64,
    /// The time up to here is given to layers.
    since: u64,
    times: [u64; Layer::ALL.len()],
    stretches: [u64; Layer::ALL.len()],
    unattributed: u64,
    overlap: u64,
    overlap_stretches: u64,
    slept: u64,
    slices: Vec<Slice>,
    /// Time of the last completion of its request since it went to sleep.
    completed: Option<u64>,
    /// Time that the interrupt path was given since then, and its stretches.
    woken: (u64, u64),
    /// It entered a layer of storage, or queued a bio.
    touched: bool,
}

impl Call {
    fn give(&mut self, layer: Option<Layer>, begin: u64, end: u64) {
        match layer {
            Some(layer) => {
                self.times[layer as usize] += end - begin;
                self.stretches[layer as usize] += 1;
            }
            None => self.unattributed += end - begin,
        }
        if let Some(last) = self.slices.last_mut()
            && last.layer == layer
            && last.end_ns == begin
        {
            last.end_ns = end;
        } else if self.slices.len() <= MAX_SLICES {
            self.slices.push(Slice { layer, begin_ns: begin, end_ns: end });
        }
    }
}

impl Call {
    /// Since its last completion another task had the CPU that it gets now.
    fn waited_for_cpu(&mut self, completed: u64) {
        let (ns, stretches) = std::mem::take(&mut self.woken);
        for (layer, sign) in [(Layer::Interrupt, false), (Layer::OtherTasks, true)] {
            for (sum, moved) in [(&mut self.times, ns), (&mut self.stretches, stretches)] {
                let sum = &mut sum[layer as usize];
                *sum = if sign { *sum + moved } else { sum.saturating_sub(moved) };
            }
        }
        for slice in self.slices.iter_mut().rev().take_while(|slice| slice.end_ns > completed) {
            if slice.layer == Some(Layer::Interrupt) {
                slice.layer = Some(Layer::OtherTasks);
            }
        }
    }
}

#[derive(Default)]
struct Task {
    stack: Vec<Layer>,
    asleep: bool,
    /// Another task runs instead of it.
    preempted: bool,
    /// A kernel thread of storage: a sleeping task may wait for its work.
    kernel: bool,
    /// The layer of its own work outside of entered layers; below: whether the trace shows when it runs, and whether it runs.
    home: Option<Layer>,
    switches: bool,
    running: bool,
    call: Option<Call>,
    /// Its bios that wait for their issue; below: those in the device.
    queued: usize,
    issued: usize,
    /// Its writes to this file that a sync may follow.
    written: Vec<CallLayers>,
    written_file: Option<u32>,
}

impl Task {
    /// The layer in which it works for a sleeping task.
    fn helps_in(&self) -> Option<Layer> {
        if !self.kernel || self.asleep {
            return None;
        }
        self.stack.last().copied().or(if self.running { self.home } else { None })
    }

    fn is_idle(&self) -> bool {
        self.call.is_none() && self.stack.is_empty() && self.queued + self.issued == 0 && self.written.is_empty()
    }
}

/// Version of [`LayersReport`].
pub const LAYERS_REPORT_SCHEMA: u32 = 4;

/// Where the time of a trace's calls goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct LayersReport {
    pub schema: u32,
    /// Name of the trace.
    pub title: String,
    pub system: SystemFacts,
    /// All losses are listed, zero ones too.
    pub losses: Vec<LossCount>,
    #[serde(rename = "layers")]
    pub found: LayersFound,
}

#[derive(Clone, Copy)]
struct OnCpu {
    since: u64,
    /// Such tasks had the CPU one after the other since then.
    busy: u64,
}

/// Follows tasks through the layers. `lookup` returns a thread's name.
pub struct Layers<L> {
    lookup: L,
    only: Option<String>,
    tasks: HashMap<TaskId, Task>,
    /// New tasks that are refused before room is looked for again.
    no_room: usize,
    /// Tasks in a call, in the order of their numbers.
    calling: BTreeSet<TaskId>,
    /// By number, in order of queueing; below: the same by place.
    bios: BTreeMap<u64, Bio>,
    places: BTreeSet<(Place, u64)>,
    next_bio: u64,
    /// Sectors of the longest bio.
    longest: u64,
    ends: HashMap<Device, Ends>,
    /// Devices whose flush requests the trace shows; without them, a flush that waits never ends.
    flushed: HashSet<Device>,
    /// Device, first sector and time of queueing of the bios that other tasks may wait for; those of kernel threads if it is none.
    waited_for: Option<HashSet<(Device, u64, u64)>>,
    /// Numbers of such bios, as [`Task::queued`] and [`Task::issued`].
    queued: Shared,
    issued: Shared,
    /// Number of kernel threads that work in each layer.
    helpers: [usize; Layer::ALL.len()],
    /// Tasks on a CPU, other than kernel threads of storage, and the time since when.
    on_cpu: HashMap<TaskId, OnCpu>,
    /// When one of them last left its CPU, and since when the CPU was busy.
    left: Option<(u64, u64)>,
    written: usize,
    slices: usize,
    sleeps: bool,
    /// The trace has boundaries below the virtual file system.
    sees_storage: bool,
    sums: BTreeMap<Operation, CallSum>,
    found: LayersFound,
}

fn empty_sum(call: Operation) -> CallSum {
    let layers = Layer::ALL.map(|layer| LayerTime { layer, ns: 0, stretches: 0 }).to_vec();
    CallSum { call, n: 0, total_ns: 0, layers, unattributed_ns: 0, overlap_ns: 0, overlap_stretches: 0 }
}

fn add(sums: &mut BTreeMap<Operation, CallSum>, call: &CallLayers) {
    let sum = sums.entry(call.call).or_insert_with(|| empty_sum(call.call));
    sum.n += 1;
    sum.total_ns = sum.total_ns.saturating_add(call.total_ns);
    sum.unattributed_ns = sum.unattributed_ns.saturating_add(call.unattributed_ns);
    sum.overlap_ns = sum.overlap_ns.saturating_add(call.overlap_ns);
    sum.overlap_stretches += call.overlap_stretches;
    for time in &call.layers {
        let of = &mut sum.layers[time.layer as usize];
        (of.ns, of.stretches) = (of.ns.saturating_add(time.ns), of.stretches + time.stretches);
    }
}

fn without_empty(sums: BTreeMap<Operation, CallSum>) -> Vec<CallSum> {
    let mut sums: Vec<CallSum> = sums.into_values().collect();
    sums.iter_mut().for_each(|sum| sum.layers.retain(|time| time.ns > 0));
    sums
}

/// Sums of a list of operations, by kind.
pub fn sums(calls: &[CallLayers]) -> Vec<CallSum> {
    let mut sums = BTreeMap::new();
    calls.iter().for_each(|call| add(&mut sums, call));
    without_empty(sums)
}

/// Joins writes and their sync into one operation.
fn joined(mut writes: Vec<CallLayers>, sync: CallLayers) -> CallLayers {
    let mut all = sync;
    all.call = Operation::WriteSync;
    let mut slices = Vec::new();
    for write in &mut writes {
        all.begin_ns = all.begin_ns.min(write.begin_ns);
        all.total_ns = all.total_ns.saturating_add(write.total_ns);
        all.calls += write.calls;
        all.unattributed_ns = all.unattributed_ns.saturating_add(write.unattributed_ns);
        all.overlap_ns = all.overlap_ns.saturating_add(write.overlap_ns);
        all.overlap_stretches += write.overlap_stretches;
        slices.append(&mut write.slices);
        all.result = match (all.result, write.result) {
            (sum, bytes) if sum >= 0 && bytes >= 0 => sum.saturating_add(bytes),
            (error, bytes) => error.min(bytes),
        };
        for time in &write.layers {
            match all.layers.iter_mut().find(|known| known.layer == time.layer) {
                Some(known) => {
                    known.ns = known.ns.saturating_add(time.ns);
                    known.stretches += time.stretches;
                }
                None => all.layers.push(*time),
            }
        }
    }
    all.layers.sort_by_key(|time| time.layer);
    slices.append(&mut all.slices);
    all.slices = if slices.len() <= MAX_SLICES { slices } else { Vec::new() };
    all
}

impl<L: Lookup<Name: AsRef<str>>> Layers<L> {
    /// `sleep`: the events of the trace that show when tasks sleep.
    pub fn new(lookup: L, sleep: SleepSource) -> Self {
        Layers {
            lookup,
            only: None,
            tasks: HashMap::new(),
            no_room: 0,
            calling: BTreeSet::new(),
            bios: BTreeMap::new(),
            places: BTreeSet::new(),
            next_bio: 0,
            longest: 0,
            ends: HashMap::new(),
            flushed: HashSet::default(),
            waited_for: None,
            queued: Shared::default(),
            issued: Shared::default(),
            helpers: [0; Layer::ALL.len()],
            on_cpu: HashMap::new(),
            left: None,
            written: 0,
            slices: 0,
            sleeps: sleep > SleepSource::Nothing,
            sees_storage: false,
            sums: BTreeMap::new(),
            found: LayersFound::new(sleep),
        }
    }

    /// Lists only operations of tasks with this name.
    pub fn only(mut self, process: Option<&str>) -> Self {
        self.only = process.map(str::to_owned);
        self
    }

    /// Of other tasks' bios only these are waited for: device, first sector and time of queueing.
    pub fn waits_for(mut self, bios: HashSet<(Device, u64, u64)>) -> Self {
        self.waited_for = Some(bios);
        self
    }

    fn task(&mut self, tid: TaskId, time: TimeNs) -> Option<&mut Task> {
        if self.tasks.contains_key(&tid) {
            return self.tasks.get_mut(&tid);
        }
        if self.tasks.len() >= MAX_TASKS && self.no_room == 0 {
            self.tasks.retain(|_, task| !task.is_idle());
            self.no_room = if self.tasks.len() >= MAX_TASKS { MAX_TASKS } else { 0 };
        }
        if self.tasks.len() >= MAX_TASKS {
            self.no_room -= 1;
            self.found.events_not_followed += 1;
            return None;
        }
        // The idle task, whatever its name: interrupts come while it runs.
        let name = (self.lookup)(tid, time);
        let name = name.as_ref().map(AsRef::as_ref);
        let kernel = tid == TaskId(0) || name.is_some_and(is_of_storage);
        let new = Task { kernel, home: name.and_then(home), ..Task::default() };
        Some(self.tasks.entry(tid).or_insert(new))
    }

    /// Gives a call's time up to now to its layers.
    fn attribute(&mut self, tid: TaskId, now: u64) {
        let Some(task) = self.tasks.get_mut(&tid) else { return };
        let top = task.stack.last().copied();
        let Some(call) = &mut task.call else { return };
        let in_device = task.issued + self.issued.for_call(call.kind) > 0;
        let waits = task.queued + self.queued.for_call(call.kind) > 0;
        let begin = call.since;
        if now <= begin {
            return;
        }
        call.since = now;
        let idle_layers = matches!(top, Some(Layer::Call | Layer::Vfs | Layer::PageCache) | None);
        let asleep = task.asleep || !self.sleeps && idle_layers && (in_device || waits || call.completed.is_some());
        let helper = || Layer::ALL.into_iter().rev().find(|&layer| self.helpers[layer as usize] > 0);
        let layer = match asleep {
            false if task.preempted => helper().or(Some(Layer::OtherTasks)),
            false => top,
            true if in_device => Some(Layer::Device),
            true if waits => Some(Layer::Block),
            // Woken for its I/O, or delayed by another task: only the scheduler's events distinguish the two.
            true if !self.sleeps => helper(),
            true => helper().or(call.completed.map(|completed| {
                match self.on_cpu.iter().any(|(&other, on)| other != tid && on.since >= completed) {
                    true => Layer::OtherTasks,
                    false => Layer::Interrupt,
                }
            })),
        };
        call.give(layer, begin, now);
        if asleep && layer == Some(Layer::Interrupt) {
            call.woken = (call.woken.0 + now - begin, call.woken.1 + 1);
        }
        call.slept += if task.asleep { now - begin } else { 0 };
        if !asleep && in_device {
            call.overlap += now - begin;
            call.overlap_stretches += 1;
        }
    }

    /// The same for all calls: something that they may wait for changes.
    fn attribute_all(&mut self, now: u64) {
        // Few calls overlap, and this runs only where work for other tasks changes.
        let calling: Vec<TaskId> = self.calling.iter().copied().collect();
        for tid in calling {
            self.attribute(tid, now);
        }
    }

    /// A task crosses a boundary; in order of time with the events.
    pub fn crossing(&mut self, crossing: Crossing, tid: TaskId, time: TimeNs) {
        let Some(task) = self.task(tid, time) else { return };
        let before = task.helps_in();
        // A task that is switched in or out may use the CPU that another waits for.
        let kernel = task.kernel;
        match kernel || matches!(crossing, Crossing::Sleeps { .. } | Crossing::Wakes) {
            true => self.attribute_all(time.0),
            false => self.attribute(tid, time.0),
        }
        self.switch(crossing, tid, kernel, time);
        self.cross(crossing, tid, time);
        let after = self.tasks.get(&tid).and_then(Task::helps_in);
        if before != after {
            for (layer, joins) in [(before, false), (after, true)] {
                let Some(layer) = layer else { continue };
                let helpers = &mut self.helpers[layer as usize];
                *helpers = if joins { *helpers + 1 } else { helpers.saturating_sub(1) };
            }
        }
    }

    /// Who has a CPU.
    fn switch(&mut self, crossing: Crossing, tid: TaskId, kernel: bool, time: TimeNs) {
        match crossing {
            Crossing::Wakes => {
                // One event says who leaves the CPU and who gets it.
                let before = self.left.take().filter(|(left, _)| *left == time.0);
                if let Some(call) = self.tasks.get_mut(&tid).and_then(|task| task.call.as_mut())
                    && let (Some((_, busy)), Some(completed)) = (before, call.completed)
                    && busy <= completed
                {
                    call.waited_for_cpu(completed);
                }
                if !kernel && self.on_cpu.len() < MAX_TASKS {
                    let busy = before.map_or(time.0, |(_, busy)| busy);
                    self.on_cpu.insert(tid, OnCpu { since: time.0, busy });
                }
            }
            Crossing::Sleeps { .. } => self.left = self.on_cpu.remove(&tid).map(|on| (time.0, on.busy)),
            _ => {}
        }
    }

    fn cross(&mut self, crossing: Crossing, tid: TaskId, time: TimeNs) {
        let Some(task) = self.tasks.get_mut(&tid) else { return };
        let found = &mut self.found;
        // A task that crosses a boundary runs; earlier completions no longer matter.
        match crossing {
            Crossing::Sleeps { runnable } => {
                // Outside of every layer only the scheduler shows it.
                task.switches |= task.stack.is_empty();
                task.running = false;
                task.asleep = !runnable;
                task.preempted = runnable;
            }
            _ => {
                task.running = task.switches;
                task.asleep = false;
                task.preempted = false;
            }
        }
        if !matches!(crossing, Crossing::Wakes)
            && let Some(call) = &mut task.call
        {
            call.completed = None;
        }
        match crossing {
            Crossing::Call(kind, file) => {
                task.stack.clear();
                task.stack.push(Layer::Call);
                let call = Call {
                    kind,
                    file,
                    begin: time.0,
                    since: time.0,
                    times: [0; Layer::ALL.len()],
                    stretches: [0; Layer::ALL.len()],
                    unattributed: 0,
                    overlap: 0,
                    overlap_stretches: 0,
                    slept: 0,
                    slices: Vec::new(),
                    completed: None,
                    woken: (0, 0),
                    touched: false,
                };
                found.calls_cut += u64::from(task.call.replace(call).is_some());
                self.calling.insert(tid);
            }
            Crossing::Returned(kind, result) => {
                let left_open = task.stack.len().saturating_sub(1) as u64;
                task.stack.clear();
                self.calling.remove(&tid);
                match task.call.take() {
                    Some(call) if call.kind == kind => {
                        found.boundaries_unmatched += left_open;
                        self.ended(call, tid, time, result);
                    }
                    _ => found.calls_cut += 1,
                }
            }
            Crossing::Enter(layer) => {
                let of_storage = !matches!(layer, Layer::Call | Layer::Vfs | Layer::Interrupt | Layer::OtherTasks);
                self.sees_storage |= of_storage;
                if let Some(call) = &mut task.call {
                    call.touched |= of_storage;
                }
                match task.stack.len() < MAX_DEPTH {
                    true => task.stack.push(layer),
                    false => found.boundaries_unmatched += 1,
                }
            }
            // The layers above it were never left: their returns were missed.
            Crossing::Leave(layer) => match task.stack.iter().rposition(|&open| open == layer) {
                Some(at) => {
                    found.boundaries_unmatched += (task.stack.len() - 1 - at) as u64;
                    task.stack.truncate(at);
                }
                None => found.boundaries_unmatched += u64::from(task.call.is_some()),
            },
            Crossing::Sleeps { .. } | Crossing::Wakes => {}
        }
    }

    fn ended(&mut self, call: Call, tid: TaskId, time: TimeNs, result: i64) {
        let name = (self.lookup)(tid, time);
        let name = name.as_ref().map(AsRef::as_ref);
        if self.only.is_some() && self.only.as_deref() != name {
            return;
        }
        // A write to the page cache alone shows only where the trace has its boundaries; a sync always touches storage.
        let untold = call.kind == CallKind::Sync || call.kind == CallKind::Write && !self.sees_storage;
        if !call.touched && !untold {
            self.found.calls_without_storage += 1;
            return;
        }
        if let Evidence::Known(slept) = &mut self.found.slept_ns {
            *slept += call.slept;
        }
        let layers = Layer::ALL.into_iter().map(|layer| {
            let (ns, stretches) = (call.times[layer as usize], call.stretches[layer as usize]);
            LayerTime { layer, ns, stretches }
        });
        let done = CallLayers {
            call: match call.kind {
                CallKind::Read => Operation::Read,
                CallKind::Write => Operation::Write,
                CallKind::Sync => Operation::Sync,
            },
            task: name.map_or_else(|| format!("tid {tid}"), |name| crate::clip::clip(name).to_owned()),
            tid,
            ordinal: None,
            begin_ns: call.begin,
            total_ns: time.0.saturating_sub(call.begin),
            calls: 1,
            result,
            layers: layers.filter(|time| time.ns > 0).collect(),
            unattributed_ns: call.unattributed,
            overlap_ns: call.overlap,
            overlap_stretches: call.overlap_stretches,
            slices: if call.slices.len() <= MAX_SLICES { call.slices } else { Vec::new() },
        };
        match call.kind {
            CallKind::Read => self.list(done),
            CallKind::Write => {
                let room = self.written < MAX_WRITTEN_OF_ALL;
                let Some(task) = self.tasks.get_mut(&tid) else { return };
                // Writes to another file, or too many: the earlier ones count as never synced.
                let other = task.written_file != call.file || task.written.len() >= MAX_WRITTEN || !room;
                let before = if other { std::mem::take(&mut task.written) } else { Vec::new() };
                if room {
                    task.written_file = call.file;
                    task.written.push(done);
                    self.written += 1;
                } else {
                    self.list(done);
                }
                self.alone(before);
            }
            CallKind::Sync => {
                let Some(task) = self.tasks.get_mut(&tid) else { return };
                let same = call.file.is_none() || task.written_file == call.file;
                let writes = if same { std::mem::take(&mut task.written) } else { Vec::new() };
                self.written -= writes.len();
                let done = if writes.is_empty() { done } else { joined(writes, done) };
                self.list(done);
            }
        }
    }

    /// Writes without a sync.
    fn alone(&mut self, writes: Vec<CallLayers>) {
        self.written -= writes.len();
        for write in writes {
            self.list(write);
        }
    }

    fn list(&mut self, mut done: CallLayers) {
        add(&mut self.sums, &done);
        if self.found.calls.len() >= MAX_CALLS {
            self.found.calls_not_listed += 1;
            return;
        }
        if self.slices + done.slices.len() > MAX_SLICES_OF_ALL {
            done.slices = Vec::new();
        }
        self.slices += done.slices.len();
        self.found.calls.push(done);
    }

    /// No call, bio or task goes on after the end of a recording.
    fn recording_ends(&mut self) {
        let mut open: Vec<TaskId> =
            self.tasks.iter().filter(|(_, t)| !t.written.is_empty()).map(|(tid, _)| *tid).collect();
        open.sort_unstable();
        for tid in open {
            let writes = self.tasks.get_mut(&tid).map(|task| std::mem::take(&mut task.written)).unwrap_or_default();
            self.alone(writes);
        }
        self.found.calls_cut += self.calling.len() as u64;
        self.tasks.clear();
        self.calling.clear();
        self.bios.clear();
        self.places.clear();
        self.ends.clear();
        self.flushed.clear();
        self.longest = 0;
        self.on_cpu.clear();
        (self.queued, self.issued, self.helpers) = (Shared::default(), Shared::default(), [0; Layer::ALL.len()]);
    }
}

impl<L: Lookup<Name: AsRef<str>>> Analysis for Layers<L> {
    type Output = LayersFound;

    /// Takes block events; boundaries go to [`Layers::crossing`].
    fn event(&mut self, event: &Event) {
        match &event.kind {
            EventKind::Block(block) if block.kind() == RequestKind::Flush => self.flush(block, event.tid, event.time),
            EventKind::Block(block) => self.step(block, block.sector, event.tid, event.time),
            EventKind::Recording => self.recording_ends(),
            _ => {}
        }
    }

    fn finish(mut self) -> LayersFound {
        self.recording_ends();
        self.found.calls.sort_by_key(|call| (call.begin_ns, call.tid));
        self.found.sums = without_empty(self.sums);
        self.found
    }
}

#[cfg(test)]
mod tests;
