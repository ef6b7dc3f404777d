//! Where the time of a call goes, layer by layer.
//!
//! Each moment of a call belongs to one layer:
//!
//! - While the task runs: the innermost layer that it has entered and not left.
//! - While it sleeps, to what is done for it: the device while it has a request (of the task or of a kernel thread that works
//!   for a file system), the block layer while such a bio waits for its issue, else the layer that such a thread is in, and
//!   after the last completion the interrupt's way back: handler, wake-up, until the task runs again.
//! - What none of this covers is unattributed. It is never given to a layer.
//!
//! A task that runs while the device works for it is doing two things at once: that time belongs to the task's layer, and
//! is counted once more as overlap.
//!
//! Sleep is what the scheduler's events (or `schedule` in a trace of functions) say. Where a trace has neither, a task is
//! taken to sleep while it is in no layer below the page cache and the device has its request.

use crate::{Analysis, LossCount, SystemFacts};
use flashscope_trace::{BlockAction, BlockEvent, Crossing, Device, Event, EventKind, TimeNs};
pub use flashscope_trace::{CallKind, Layer};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// Calls that are listed one by one.
pub const MAX_CALLS: usize = 4096;
/// Tasks followed at one time.
const MAX_TASKS: usize = 1 << 14;
/// Layers within layers.
const MAX_DEPTH: usize = 256;
/// Bios followed at one time.
const MAX_BIOS: usize = 1 << 14;

/// Time that one layer had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerTime {
    pub layer: Layer,
    pub ns: u64,
}

/// One call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallLayers {
    pub call: CallKind,
    pub task: String,
    pub tid: u32,
    pub begin_ns: u64,
    pub total_ns: u64,
    /// What the call gave: bytes, 0, or an error as a negative number.
    pub result: i64,
    /// From the task down to the device; layers without time are left out.
    pub layers: Vec<LayerTime>,
    pub unattributed_ns: u64,
    /// The device worked for the task while it ran.
    pub overlap_ns: u64,
    /// Slices in the order of time, for a picture; at most 64, then none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<Slice>,
}

/// A stretch of a call in one layer; `null` is unattributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    pub layer: Option<Layer>,
    pub begin_ns: u64,
    pub end_ns: u64,
}

/// All calls of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallSum {
    pub call: CallKind,
    pub n: u64,
    pub total_ns: u64,
    pub layers: Vec<LayerTime>,
    pub unattributed_ns: u64,
    pub overlap_ns: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayersFound {
    pub sums: Vec<CallSum>,
    /// In the order of their ends; the first [`MAX_CALLS`].
    pub calls: Vec<CallLayers>,
    /// Calls that had not ended, and returns whose call had begun before the trace.
    pub calls_cut: u64,
    /// Boundaries that were left without having been entered, or never left in their call.
    pub boundaries_unmatched: u64,
    /// Whether the trace says when tasks sleep.
    pub sleep_is_recorded: bool,
}

const SLICES: usize = 64;

#[derive(Clone)]
struct Call {
    kind: CallKind,
    begin: u64,
    times: [u64; 10],
    unattributed: u64,
    overlap: u64,
    slices: Vec<Slice>,
    /// A request of its was completed since it went to sleep.
    completed: bool,
}

impl Call {
    fn give(&mut self, layer: Option<Layer>, begin: u64, end: u64) {
        match layer {
            Some(layer) => self.times[layer as usize] += end - begin,
            None => self.unattributed += end - begin,
        }
        if let Some(last) = self.slices.last_mut()
            && last.layer == layer
            && last.end_ns == begin
        {
            last.end_ns = end;
        } else if self.slices.len() <= SLICES {
            self.slices.push(Slice { layer, begin_ns: begin, end_ns: end });
        }
    }
}

#[derive(Default)]
struct Task {
    stack: Vec<Layer>,
    asleep: bool,
    kernel: bool,
    known: bool,
    call: Option<Call>,
}

#[derive(Clone, Copy)]
struct Bio {
    device: Device,
    sector: u64,
    end: u64,
    write: bool,
    tid: u32,
    issued: bool,
}

/// Version of [`LayersReport`].
pub const LAYERS_REPORT_SCHEMA: u32 = 1;

/// Where the time of a trace's calls goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayersReport {
    pub schema: u32,
    /// Name of the trace.
    pub title: String,
    pub system: SystemFacts,
    /// All losses are listed, zero ones too.
    pub losses: Vec<LossCount>,
    pub findings: LayersFound,
}

/// Follows tasks through the layers. `lookup` says what a thread is called.
pub struct Layers<L> {
    lookup: L,
    tasks: HashMap<u32, Task>,
    /// Tasks in a call, in the order of their numbers.
    calling: BTreeMap<u32, ()>,
    bios: Vec<Bio>,
    last: u64,
    sleeps: bool,
    sums: BTreeMap<CallKind, CallSum>,
    found: LayersFound,
}

fn empty_sum(call: CallKind) -> CallSum {
    let layers = Layer::ALL.map(|layer| LayerTime { layer, ns: 0 }).to_vec();
    CallSum { call, n: 0, total_ns: 0, layers, unattributed_ns: 0, overlap_ns: 0 }
}

/// All calls of a list, by kind.
pub fn sums(calls: &[CallLayers]) -> Vec<CallSum> {
    let mut sums: BTreeMap<CallKind, CallSum> = BTreeMap::new();
    for call in calls {
        let sum = sums.entry(call.call).or_insert_with(|| empty_sum(call.call));
        sum.n += 1;
        sum.total_ns += call.total_ns;
        sum.unattributed_ns += call.unattributed_ns;
        sum.overlap_ns += call.overlap_ns;
        for time in &call.layers {
            sum.layers[time.layer as usize].ns += time.ns;
        }
    }
    without_empty(sums)
}

fn without_empty(sums: BTreeMap<CallKind, CallSum>) -> Vec<CallSum> {
    sums.into_values()
        .map(|mut sum| {
            sum.layers.retain(|time| time.ns > 0);
            sum
        })
        .collect()
}

impl<L, N> Layers<L>
where
    L: FnMut(u32, TimeNs) -> Option<N>,
    N: AsRef<str>,
{
    /// `sleeps`: the trace says when tasks sleep.
    pub fn new(lookup: L, sleeps: bool) -> Self {
        Layers {
            lookup,
            tasks: HashMap::new(),
            calling: BTreeMap::new(),
            bios: Vec::new(),
            last: 0,
            sleeps,
            sums: BTreeMap::new(),
            found: LayersFound::default(),
        }
    }

    fn task(&mut self, tid: u32, time: TimeNs) -> Option<&mut Task> {
        if self.tasks.len() >= MAX_TASKS && !self.tasks.contains_key(&tid) {
            self.tasks.retain(|_, task| task.call.is_some() || !task.stack.is_empty());
            if self.tasks.len() >= MAX_TASKS {
                return None;
            }
        }
        let kernel = match self.tasks.get(&tid) {
            Some(task) if task.known => task.kernel,
            _ => (self.lookup)(tid, time).map_or(tid == 0, |name| crate::kernel_threads::is_of_storage(name.as_ref())),
        };
        let task = self.tasks.entry(tid).or_default();
        (task.kernel, task.known) = (kernel, true);
        Some(task)
    }

    /// Hands the time up to now to the layers of every call that is going on.
    fn pass(&mut self, now: u64) {
        let begin = self.last;
        self.last = begin.max(now);
        if now <= begin || self.calling.is_empty() {
            return;
        }
        // What is done for somebody who waits.
        let kernel = |tid: u32| self.tasks.get(&tid).is_some_and(|task| task.kernel);
        let threads = self.tasks.values().filter(|t| t.kernel && !t.asleep);
        let helper = threads.filter_map(|t| t.stack.last().copied()).max();
        let mut given = Vec::with_capacity(self.calling.len());
        for &tid in self.calling.keys() {
            let Some(task) = self.tasks.get(&tid) else { continue };
            let of = |bio: &&Bio| bio.tid == tid || kernel(bio.tid);
            let in_device = self.bios.iter().filter(of).any(|bio| bio.issued);
            let waits = self.bios.iter().filter(of).any(|bio| !bio.issued);
            let top = task.stack.last().copied();
            let idle_layers = matches!(top, Some(Layer::Call | Layer::Vfs | Layer::PageCache) | None);
            let completed = task.call.as_ref().is_some_and(|call| call.completed);
            let asleep = task.asleep || !self.sleeps && idle_layers && (in_device || waits || completed);
            let layer = match asleep {
                false => top,
                true if in_device => Some(Layer::Device),
                true if waits => Some(Layer::Block),
                true => helper.or(completed.then_some(Layer::Interrupt)),
            };
            given.push((tid, layer, !asleep && in_device));
        }
        for (tid, layer, overlaps) in given {
            if let Some(call) = self.tasks.get_mut(&tid).and_then(|task| task.call.as_mut()) {
                call.give(layer, begin, now);
                call.overlap += if overlaps { now - begin } else { 0 };
            }
        }
    }

    /// A task crosses a boundary; in order of time with the events.
    pub fn crossing(&mut self, crossing: Crossing, tid: u32, time: TimeNs) {
        self.pass(time.0);
        let calls_cut = &mut self.found.calls_cut;
        match crossing {
            Crossing::Returned(kind, result) => {
                let Some(task) = self.tasks.get_mut(&tid) else {
                    *calls_cut += 1;
                    return;
                };
                task.asleep = false;
                let left_open = task.stack.len().saturating_sub(1) as u64;
                task.stack.clear();
                self.calling.remove(&tid);
                match task.call.take() {
                    Some(call) if call.kind == kind => {
                        self.found.boundaries_unmatched += left_open;
                        self.ended(call, tid, time, result);
                    }
                    _ => *calls_cut += 1,
                }
            }
            Crossing::Call(kind) => {
                let begin = time.0;
                let Some(task) = self.task(tid, time) else { return };
                task.asleep = false;
                task.stack.clear();
                task.stack.push(Layer::Call);
                let slices = Vec::new();
                let call = Call { kind, begin, times: [0; 10], unattributed: 0, overlap: 0, slices, completed: false };
                let before = task.call.replace(call);
                self.calling.insert(tid, ());
                self.found.calls_cut += u64::from(before.is_some());
            }
            Crossing::Enter(layer) => {
                let Some(task) = self.task(tid, time) else { return };
                task.asleep = false;
                if let Some(call) = &mut task.call {
                    call.completed = false;
                }
                if task.stack.len() < MAX_DEPTH {
                    task.stack.push(layer);
                }
            }
            Crossing::Leave(layer) => {
                let Some(task) = self.task(tid, time) else { return };
                task.asleep = false;
                if let Some(call) = &mut task.call {
                    call.completed = false;
                }
                // What lies above it was never left: a return that was missed.
                match task.stack.iter().rposition(|&open| open == layer) {
                    Some(at) => {
                        let missed = task.stack.len() - 1 - at;
                        task.stack.truncate(at);
                        self.found.boundaries_unmatched += missed as u64;
                    }
                    None => self.found.boundaries_unmatched += u64::from(task.call.is_some()),
                }
            }
            Crossing::Sleeps { runnable } => {
                if let Some(task) = self.task(tid, time) {
                    task.asleep = !runnable;
                    if let Some(call) = &mut task.call {
                        call.completed = false;
                    }
                }
            }
            Crossing::Wakes => {
                if let Some(task) = self.task(tid, time) {
                    task.asleep = false;
                }
            }
        }
    }

    fn ended(&mut self, call: Call, tid: u32, time: TimeNs, result: i64) {
        let layers: Vec<LayerTime> = Layer::ALL
            .into_iter()
            .map(|layer| LayerTime { layer, ns: call.times[layer as usize] })
            .filter(|time| time.ns > 0)
            .collect();
        let total_ns = time.0.saturating_sub(call.begin);
        let sum = self.sums.entry(call.kind).or_insert_with(|| empty_sum(call.kind));
        sum.n += 1;
        sum.total_ns += total_ns;
        sum.unattributed_ns += call.unattributed;
        sum.overlap_ns += call.overlap;
        for time in &mut sum.layers {
            time.ns += call.times[time.layer as usize];
        }
        if self.found.calls.len() < MAX_CALLS {
            let name = (self.lookup)(tid, time);
            let task =
                name.as_ref().map_or_else(|| format!("tid {tid}"), |n| crate::flash::clip(n.as_ref()).to_owned());
            let slices = if call.slices.len() <= SLICES { call.slices } else { Vec::new() };
            self.found.calls.push(CallLayers {
                call: call.kind,
                task,
                tid,
                begin_ns: call.begin,
                total_ns,
                result,
                layers,
                unattributed_ns: call.unattributed,
                overlap_ns: call.overlap,
                slices,
            });
        }
    }

    fn block(&mut self, block: &BlockEvent, tid: u32, time: TimeNs) {
        if block.bytes == 0 {
            return;
        }
        let write = block.flags.kind() as u8 > 0;
        let within = |bio: &Bio| {
            bio.device == block.device && bio.write == write && bio.sector >= block.sector && bio.end <= block.end()
        };
        match block.action {
            BlockAction::Queue => {
                if self.bios.len() >= MAX_BIOS {
                    self.bios.remove(0);
                }
                let (device, sector, end) = (block.device, block.sector, block.end());
                // It may be the first that is heard of the task.
                let _ = self.task(tid, time);
                self.bios.push(Bio { device, sector, end, write, tid, issued: false });
            }
            BlockAction::Issue => {
                self.bios.iter_mut().filter(|bio| within(bio)).for_each(|bio| bio.issued = true);
            }
            BlockAction::Requeue => {
                self.bios.iter_mut().filter(|bio| within(bio)).for_each(|bio| bio.issued = false);
            }
            BlockAction::Complete => {
                let before = self.bios.len();
                self.bios.retain(|bio| !within(bio));
                if self.bios.len() < before {
                    for tid in self.calling.keys() {
                        if let Some(call) = self.tasks.get_mut(tid).and_then(|task| task.call.as_mut()) {
                            call.completed = true;
                        }
                    }
                }
            }
            _ => {}
        }
    }
}

impl<L, N> Analysis for Layers<L>
where
    L: FnMut(u32, TimeNs) -> Option<N>,
    N: AsRef<str>,
{
    type Output = LayersFound;

    /// Block events; boundaries come by [`Layers::crossing`].
    fn event(&mut self, event: &Event) {
        if let EventKind::Block(block) = &event.kind {
            self.pass(event.time.0);
            self.block(block, event.tid, event.time);
        }
    }

    fn finish(mut self) -> LayersFound {
        self.found.calls_cut += self.calling.len() as u64;
        self.found.sleep_is_recorded = self.sleeps;
        self.found.sums = without_empty(self.sums);
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::event;
    use CallKind::Read;
    use Crossing::{Call, Enter, Leave, Returned, Sleeps, Wakes};
    use Layer::{Driver, FileSystem, Interrupt, PageCache, Vfs};
    use flashscope_trace::{BlockDetail, RequestFlags};

    fn block(time: u64, tid: u32, action: BlockAction) -> Step {
        let block = BlockEvent {
            action,
            device: flashscope_trace::Device::new(8, 0),
            flags: RequestFlags::READ,
            sector: 0,
            bytes: 4096,
            error: 0,
            cgroup: 0,
            detail: BlockDetail::None,
        };
        Step::Block(event(time, tid, EventKind::Block(block)))
    }

    enum Step {
        Block(Event),
        Crossing(u64, Crossing),
    }

    fn run(sleeps: bool, events: &[Step]) -> LayersFound {
        let mut layers = Layers::new(
            |tid, _| match tid {
                1 => Some("app"),
                9 => Some("kworker/0:1H"),
                _ => None,
            },
            sleeps,
        );
        for step in events {
            match step {
                Step::Block(event) => layers.event(event),
                Step::Crossing(time, crossing) => layers.crossing(*crossing, 1, TimeNs(*time)),
            }
        }
        layers.finish()
    }

    fn at(time: u64, crossing: Crossing) -> Step {
        Step::Crossing(time, crossing)
    }

    /// A cold read, from the call down to the device and back; every nanosecond is somebody's.
    #[test]
    fn a_cold_read_by_hand() {
        let found = run(
            true,
            &[
                at(100, Call(Read)),
                at(101, Enter(Vfs)),
                at(110, Enter(PageCache)),
                at(130, Enter(FileSystem)),
                at(150, Enter(Layer::Block)),
                block(155, 1, BlockAction::Queue),
                at(165, Enter(Driver)),
                block(166, 1, BlockAction::Issue),
                at(170, Leave(Driver)),
                at(175, Leave(Layer::Block)),
                at(180, Leave(FileSystem)),
                at(190, Sleeps { runnable: false }),
                block(266, 0, BlockAction::Complete),
                at(280, Wakes),
                at(300, Leave(PageCache)),
                at(309, Leave(Vfs)),
                at(310, Returned(Read, 4096)),
            ],
        );
        let call = &found.calls[0];
        let of = |layer| call.layers.iter().find(|t| t.layer == layer).map_or(0, |t| t.ns);
        assert_eq!((call.total_ns, call.unattributed_ns, call.result, call.task.as_str()), (210, 0, 4096, "app"));
        assert_eq!(
            [Layer::Call, Vfs, PageCache, FileSystem, Layer::Block, Driver, Layer::Device, Interrupt].map(of),
            [2, 18, 50, 25, 20, 5, 76, 14]
        );
        // From the issue to its sleep the task and the device both worked.
        assert_eq!(call.overlap_ns, 24);
        assert_eq!(call.layers.iter().map(|t| t.ns).sum::<u64>() + call.unattributed_ns, call.total_ns);
        assert_eq!((found.calls_cut, found.boundaries_unmatched, found.sleep_is_recorded), (0, 0, true));
    }

    #[test]
    fn without_the_schedulers_events_a_wait_is_what_the_device_says() {
        let found = run(
            false,
            &[
                at(0, Call(Read)),
                at(0, Enter(PageCache)),
                block(10, 1, BlockAction::Queue),
                block(20, 9, BlockAction::Issue),
                block(120, 0, BlockAction::Complete),
                at(130, Leave(PageCache)),
                at(130, Returned(Read, 1)),
            ],
        );
        let times: Vec<(Layer, u64)> = found.calls[0].layers.iter().map(|t| (t.layer, t.ns)).collect();
        assert_eq!(times, [(PageCache, 10), (Layer::Block, 10), (Layer::Device, 100), (Interrupt, 10)]);
        assert!(!found.sleep_is_recorded);
    }

    #[test]
    fn what_is_missing_is_counted() {
        let found = run(
            false,
            &[
                at(0, Returned(Read, 0)),
                at(1, Call(Read)),
                at(2, Leave(Vfs)),
                at(3, Enter(PageCache)),
                at(4, Returned(Read, 0)),
                at(5, Call(Read)),
            ],
        );
        assert_eq!((found.calls_cut, found.boundaries_unmatched, found.calls.len()), (2, 2, 1));
    }

    #[test]
    fn endless_calls_stay_bounded() {
        let mut layers = Layers::new(|_, _| None::<&str>, true);
        for i in 0..40_000u32 {
            layers.crossing(Enter(Vfs), i, TimeNs(u64::from(i)));
            layers.crossing(Leave(Vfs), i, TimeNs(u64::from(i)));
        }
        assert!(layers.tasks.len() <= MAX_TASKS);
    }
}
