//! Predictions where tasks' calls overlap. Which call comes first, and which pages it finds, is another matter under another window:
//! what tasks do is played in virtual time, on one processor and one chip that the reader itself waits for.
//!
//! What it rests on:
//! - between two calls a task sleeps as long as it did when it was recorded. Where others kept it from going on then (the recorder
//!   among them), that is the median of where they did not;
//! - a task begins as long after the last call that was over by then, and goes on after one that lived within its pause (a child that
//!   it waited for). Where the trace shows it (`sched_switch`), those that could run when the first call began are ready then, behind
//!   whom had run less, and each runs before its first call as long as it did;
//! - a page takes what it took when it was recorded, or the mean; others may run between reads of flash, and have the chip between
//!   pages (`nand_get_device`, drivers/mtd/nand/raw/nand_base.c);
//! - on squashfs up to 5.19 a worker reads blocks for those who wait (`worker.rs`), and each unpacks its own, which others do not break
//!   (kernels without preemption, as Debian's are); pages that find their block in the buffer of squashfs take the time to look it up;
//! - timers come together within their slack;
//! - the processor goes to whom the kernel gives it (`processor.rs`).

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};

use flashscope_cachesim::{Access, BulkReads, FileId, Next, PageStep, Simulator};

use super::accounts::Accounts;
use super::first_calls::Came;
use super::index::Index;
use super::predict::{Made, Predictor};
use super::processor::{Comes, Processor, TICK_NS};
use super::worker::Worker;
use super::workload::{Call, Step, Workload};

/// The timer's slack (`timer_slack_ns` of a task): nobody sleeps for less, and who would sleep for so much longer wakes with another
/// (`__hrtimer_run_queues`, kernel/time/hrtimer.c).
const SLACK_NS: f64 = 50e3;
/// How finely a program's own work is played, and in how many pieces at most.
const PIECE_NS: f64 = 100e3;
const MOST_PIECES: f64 = 1000.0;
/// Tasks that are followed: with more, calls are played one after the other.
const MAX_TASKS: usize = 256;

/// In how many orders calls are played. What no recording shows decides who comes first where two come nearly at once: when the clock
/// ticks, and how much longer a pause was than the last time.
pub const ORDERS: u32 = 9;
/// Calls that are played in all of them: more are played in the first.
const MOST_CALLS: usize = 100_000;
/// Pages that are played in one order, and the part of them that are in all of them.
const MOST_PAGES: u64 = 1 << 20;
const ORDER_PAGES: u64 = 8;
/// By how much pauses differ at most, of their length.
const PAUSES_DIFFER: f64 = 0.01;

/// Calls of several tasks, some of which begin while another's goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overlap {
    pub tasks: usize,
    pub calls: usize,
    /// In how many orders they are played; 0: one call after the other, as they began when they were recorded.
    pub orders: u32,
}

pub fn overlap(workload: &Workload) -> Option<Overlap> {
    let mut latest: Option<(u32, u64)> = None;
    let mut tasks = HashSet::new();
    let mut overlaps = false;
    for call in &workload.calls {
        tasks.insert(call.tid);
        overlaps |= latest.is_some_and(|(tid, end)| tid != call.tid && call.began_ns < end);
        if let Some(end) = call.ended_ns().filter(|&end| latest.is_none_or(|(_, last)| end > last)) {
            latest = Some((call.tid, end));
        }
    }
    let (tasks, calls) = (tasks.len(), workload.calls.len());
    let pages = workload.pages_asked;
    let orders =
        match (tasks <= MAX_TASKS && pages <= MOST_PAGES, calls <= MOST_CALLS && pages <= MOST_PAGES / ORDER_PAGES) {
            (false, _) => 0,
            (true, false) => 1,
            (true, true) => ORDERS,
        };
    overlaps.then_some(Overlap { tasks, calls, orders })
}

/// A call, what was done before it since the task's last, and when it comes.
#[derive(Debug)]
struct Planned<'a> {
    /// After the task's last call, or what it awaits.
    pause_ns: f64,
    /// So many calls of a task.
    awaits: Option<(u32, usize)>,
    /// Work before the call.
    runs_ns: f64,
    steps: Vec<&'a Step>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Ready,
    Asleep(f64),
    /// For so many calls of a task, and then a pause.
    Awaits(u32, usize, f64),
    WaitsForChip,
    WaitsForPage(FileId, u64),
    /// For the buffer that squashfs keeps, and for a block of it.
    WaitsForBuffer,
    WaitsForWorker,
    Over,
}

/// Work without a break: others may run before and after it.
#[derive(Clone, Copy, Debug)]
struct Work {
    ns: f64,
    chip: Chip,
}

impl Work {
    fn of_processor(ns: f64) -> Work {
        Work { ns, chip: Chip::None }
    }

    /// A program's own work, which others may break anywhere.
    fn of_program(ns: f64) -> impl Iterator<Item = Work> {
        let pieces = (ns / PIECE_NS).ceil().clamp(0.0, MOST_PIECES);
        (0..pieces as u32).map(move |_| Work::of_processor(ns / pieces))
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Chip {
    None,
    /// Nobody else has it meanwhile.
    Has,
    /// Nor until what follows is done.
    Keeps,
}

struct Task<'a> {
    plan: VecDeque<Planned<'a>>,
    state: State,
    done: usize,
    /// What is left of what it does.
    steps: VecDeque<&'a Step>,
    now: Option<&'a Step>,
    work: VecDeque<Work>,
    in_call: bool,
    /// For the page that it waits for.
    has_waited: bool,
}

pub struct Race<'a, 's> {
    predictor: &'a Predictor<'a>,
    simulator: &'s mut Simulator,
    tasks: BTreeMap<u32, Task<'a>>,
    /// Those that sleep, by the bits of when their timer is due (bits of a number that is not negative order as it does), and those
    /// that wait for something else.
    sleepers: BTreeSet<(u64, u32)>,
    waiters: BTreeSet<u32>,
    now_ns: f64,
    next_tick_ns: f64,
    processor: Processor,
    chip: Option<u32>,
    /// On UBIFS: what of it is in memory.
    index: Index<'a>,
    /// On squashfs.
    worker: Option<Worker>,
    made: Made,
}

impl<'a, 's> Race<'a, 's> {
    /// `order`: of [`ORDERS`], in the first of which pauses are as they were recorded.
    pub fn new(predictor: &'a Predictor<'a>, simulator: &'s mut Simulator, made: Made, order: u32) -> Race<'a, 's> {
        simulator.take_turns();
        let workload = predictor.workload();
        let tasks = plans(workload);
        let began_ns = workload.calls.first().map_or(0, |call| call.began_ns);
        let mut processor = Processor::new(predictor.kernel());
        let tasks = tasks.into_iter().enumerate().map(|(at, (tid, mut plan))| {
            let longer = PAUSES_DIFFER * differs(order, at);
            plan.iter_mut().for_each(|planned| planned.pause_ns *= 1.0 + longer);
            let (state, comes) = match (plan.front_mut(), workload.came.get(&tid)) {
                (Some(first), Some(came)) if came.since_ns <= began_ns => {
                    first.runs_ns = came.ran_ns.saturating_sub(came.ran_before_all_ns) as f64;
                    let comes = Comes::Ready { ran_ns: came.ran_before_all_ns as f64, is_new: came.is_new };
                    (State::Ready, comes)
                }
                (Some(first), Some(came)) => (first.begins(0.0), if came.is_new { Comes::Made } else { Comes::Wakes }),
                (Some(first), None) => (first.begins(0.0), Comes::Later),
                (None, _) => (State::Over, Comes::Later),
            };
            processor.add(tid, comes);
            let task = Task {
                plan,
                state,
                done: 0,
                steps: VecDeque::new(),
                now: None,
                work: VecDeque::new(),
                in_call: false,
                has_waited: false,
            };
            (tid, task)
        });
        let tasks: BTreeMap<u32, Task> = tasks.collect();
        let worker = (0..).find(|tid| !tasks.contains_key(tid)).filter(|_| predictor.has_worker()).map(Worker::new);
        worker.iter().for_each(|worker| processor.add_worker(worker.tid));
        let first = workload.calls.first().and_then(|first| Some((first.tid, workload.came.get(&first.tid)?)));
        processor.begin(first.map(|(tid, came)| (tid, -(began_ns.saturating_sub(came.got_ns) as f64))));
        let mut race = Race {
            predictor,
            simulator,
            tasks,
            sleepers: BTreeSet::new(),
            waiters: BTreeSet::new(),
            now_ns: 0.0,
            next_tick_ns: TICK_NS * f64::from(order + 1) / f64::from(ORDERS),
            processor,
            chip: None,
            index: workload.nodes.index(),
            worker,
            made,
        };
        let states: Vec<(u32, State)> = race.tasks.iter().map(|(&tid, task)| (tid, task.state)).collect();
        states.into_iter().for_each(|(tid, state)| race.set(tid, state));
        race
    }

    /// `is_random`: its file is first read with `POSIX_FADV_RANDOM`.
    pub fn run(mut self, is_random: &mut dyn FnMut(&Step) -> bool, accounts: &mut Accounts) {
        loop {
            self.wake_sleepers();
            if let Some(tid) = self.processor.pick(self.now_ns) {
                match self.worker.as_ref().is_some_and(|worker| worker.tid == tid) {
                    true => self.serve(tid),
                    false => self.go_on(tid, is_random, accounts),
                }
                continue;
            }
            if let Some(next_ns) = self.next_sleeper_ns() {
                self.now_ns = self.now_ns.max(next_ns);
                self.ticks_until_now();
            } else if !self.wake_one_of_all() {
                return;
            }
        }
    }

    /// Nobody sleeps, and all wait: what they wait for does not come as it did when it was recorded.
    fn wake_one_of_all(&mut self) -> bool {
        let Some((&tid, _)) = self.tasks.iter().find(|(_, task)| task.state != State::Over) else { return false };
        self.wake(tid);
        true
    }

    /// Where a timer is due, those within its slack come with it.
    fn wake_sleepers(&mut self) {
        if self.next_sleeper_ns().is_none_or(|until_ns| until_ns > self.now_ns) {
            return;
        }
        let until = ((self.now_ns + SLACK_NS).to_bits(), u32::MAX);
        for (_, tid) in self.sleepers.range(..=until).copied().collect::<Vec<_>>() {
            self.wake(tid);
        }
    }

    fn set(&mut self, tid: u32, state: State) {
        let Some(task) = self.tasks.get_mut(&tid) else { return };
        match std::mem::replace(&mut task.state, state) {
            State::Asleep(until_ns) => self.sleepers.remove(&(until_ns.to_bits(), tid)),
            _ => self.waiters.remove(&tid),
        };
        match state {
            State::Asleep(until_ns) => self.sleepers.insert((until_ns.to_bits(), tid)),
            State::Ready | State::Over => false,
            _ => self.waiters.insert(tid),
        };
    }

    fn wake(&mut self, tid: u32) {
        self.set(tid, State::Ready);
        self.processor.wake(tid);
    }

    /// It cannot run until then.
    fn leave(&mut self, tid: u32, until: State) {
        self.set(tid, until);
        self.processor.block(tid);
    }

    /// The task that runs does so for so long.
    fn pass(&mut self, tid: u32, ns: f64) {
        let end_ns = self.now_ns + ns;
        loop {
            // A tick matters while another could run that was not chosen yet.
            let tick_ns = if self.processor.ticks_matter() { self.next_tick_ns } else { f64::INFINITY };
            let next_ns = self.next_sleeper_ns().map_or(tick_ns, |until_ns| until_ns.min(tick_ns));
            let next_ns = next_ns.max(self.now_ns).min(end_ns);
            self.processor.ran(tid, next_ns - self.now_ns);
            self.now_ns = next_ns;
            self.wake_sleepers();
            self.ticks_until_now();
            if next_ns >= tick_ns {
                self.processor.tick(self.now_ns);
            }
            if next_ns >= end_ns {
                return;
            }
        }
    }

    fn next_sleeper_ns(&self) -> Option<f64> {
        self.sleepers.first().map(|&(until, _)| f64::from_bits(until))
    }

    fn ticks_until_now(&mut self) {
        let passed = ((self.now_ns - self.next_tick_ns) / TICK_NS).floor() + 1.0;
        self.next_tick_ns += TICK_NS * passed.max(0.0);
    }

    /// One read of flash by the worker.
    fn serve(&mut self, tid: u32) {
        let Some((ns, over)) = self.worker.as_mut().and_then(Worker::next) else {
            self.processor.block(tid);
            return;
        };
        self.pass(tid, ns);
        over.into_iter().for_each(|tid| self.wake(tid));
    }

    /// The task sleeps until the worker has read a block for it, which it unpacks then.
    fn ask(&mut self, tid: u32, file: FileId, first: u64) {
        let (reads, unpack_ns) = self.predictor.block_takes(file, first, self.made);
        let (Some(task), Some(worker)) = (self.tasks.get_mut(&tid), &mut self.worker) else { return };
        task.work.push_back(Work::of_processor(unpack_ns));
        worker.ask(tid, reads, self.predictor.between_reads_ns());
        let by = worker.tid;
        self.leave(tid, State::WaitsForWorker);
        self.processor.wake(by);
    }

    /// One thing that the task does.
    fn go_on(&mut self, tid: u32, is_random: &mut dyn FnMut(&Step) -> bool, accounts: &mut Accounts) {
        let Some(task) = self.tasks.get_mut(&tid) else { return };
        if let Some(&work) = task.work.front() {
            if work.chip != Chip::None && self.chip.is_some_and(|owner| owner != tid) {
                self.leave(tid, State::WaitsForChip);
                return;
            }
            if work.chip != Chip::None {
                self.chip = Some(tid);
            }
            task.work.pop_front();
            self.pass(tid, work.ns);
            if work.chip == Chip::Has {
                self.chip = None;
                self.wake_those(|state| state == State::WaitsForChip);
            }
        } else if let Some(next) = self.simulator.next_of(tid) {
            self.later(tid, next, accounts);
        } else if task.now.take().is_some_and(|step| step.call.is_some()) {
            // What was read is copied.
            task.work.push_back(Work::of_processor(self.predictor.call_ns()));
        } else if let Some(step) = task.steps.pop_front() {
            if is_random(step) {
                self.simulator.apply(step.file, step.open, Access::AdviseRandom, &mut |_| {});
            }
            self.begin(tid, step, accounts);
        } else {
            self.next_call(tid);
        }
    }

    fn see_what_is_unpacked(&mut self) {
        let simulator = &*self.simulator;
        let waiting = self.waiting(|state| match state {
            State::WaitsForBuffer => true,
            State::WaitsForPage(file, page) => !simulator.is_coming(file, page),
            _ => false,
        });
        waiting.into_iter().for_each(|tid| self.wake(tid));
    }

    fn wake_those(&mut self, waits: impl Fn(State) -> bool) {
        self.waiting(waits).into_iter().for_each(|tid| self.wake(tid));
    }

    fn waiting(&self, waits: impl Fn(State) -> bool) -> Vec<u32> {
        let so = |tid: &u32| self.tasks.get(tid).is_some_and(|task| waits(task.state));
        self.waiters.iter().copied().filter(so).collect()
    }

    /// An access up to where others may come.
    fn begin(&mut self, tid: u32, step: &'a Step, accounts: &mut Accounts) {
        accounts.begin(step);
        let before = self.simulator.bulk_reads();
        let mut added = Vec::new();
        self.simulator.turn(tid, step.file, step.open, step.access, &mut |event| {
            added.extend(event.is_read().then_some((event.file, event.page)));
            accounts.event(step, event);
        });
        let bulk = self.simulator.bulk_reads().since(before);
        let mut work = VecDeque::new();
        if matches!(step.access, Access::Read { .. }) {
            if self.predictor.block_bytes(step.file, self.made).is_some() {
                work.extend(Work::of_program(added.len() as f64 * self.predictor.to_add_ns()));
            }
        } else {
            // It was done at once.
            let alone = (added.len() as u64).saturating_sub(bulk.pages) as usize;
            work.extend(
                added.into_iter().take(alone).flat_map(|(file, page)| self.of_page(file, page, BulkReads::default())),
            );
            work.extend(self.of_bulk(bulk).into_iter().flatten());
        }
        if let Some(task) = self.tasks.get_mut(&tid) {
            (task.now, task.work) = (Some(step), work);
        }
    }

    /// What an access left.
    fn later(&mut self, tid: u32, next: Next, accounts: &mut Accounts) {
        let Some(task) = self.tasks.get_mut(&tid) else { return };
        let Some(step) = task.now else { return };
        if let Next::Wait { file, page } = next
            && self.simulator.is_coming(file, page)
            && !std::mem::replace(&mut task.has_waited, true)
        {
            self.leave(tid, State::WaitsForPage(file, page));
            return;
        }
        task.has_waited = false;
        if let Next::Block { waits: true, .. } = next {
            self.leave(tid, State::WaitsForBuffer);
            return;
        }
        let before = self.simulator.bulk_reads();
        let (mut added, mut of_blocks) = (0, false);
        self.simulator.go_on(tid, &mut |event| {
            added += u32::from(event.is_read());
            of_blocks |= event.step == PageStep::Block;
            accounts.event(step, event);
        });
        let bulk = self.simulator.bulk_reads().since(before);
        let mut work = VecDeque::new();
        match next {
            Next::Read { file, page } => {
                // Where nodes lie is looked up before they are read, for all of a bulk read at once.
                let nodes = page..page.saturating_add(bulk.nodes.max(1));
                work.extend(nodes.flat_map(|page| self.of_index(file, page)));
                match bulk.reads {
                    0 => work.extend(self.of_page(file, page, bulk)),
                    _ => work.extend(self.of_bulk(bulk).into_iter().flatten()),
                }
            }
            Next::There { file, page } => self.wake_those(|state| state == State::WaitsForPage(file, page)),
            Next::Block { file, first, .. } if of_blocks => {
                self.ask(tid, file, first);
                return;
            }
            Next::Unpacked => self.see_what_is_unpacked(),
            Next::Fill { .. } if added > 0 => {
                work.extend(self.predictor.bulk_takes(bulk).map(|(.., each_ns)| Work::of_processor(each_ns)));
            }
            Next::Lock { .. } => {
                work.extend(Work::of_program(f64::from(added) * self.predictor.to_add_ns()));
            }
            Next::Block { file, .. } => {
                work.push_back(Work::of_processor(self.predictor.to_find_ns(file, self.made)));
            }
            Next::Fill { .. } | Next::Look | Next::Wait { .. } => {}
        }
        if let Some(task) = self.tasks.get_mut(&tid) {
            task.work.extend(work);
        }
    }

    /// Its lock is the file's on JFFS2 (`f->sem`) and the file system's on YAFFS2 (`gross_lock`); UBIFS has none while it makes a page of
    /// a node.
    fn of_page(&self, file: FileId, page: u64, done: BulkReads) -> [Work; 2] {
        let (flash_ns, page_ns) = self.predictor.page_takes(file, page, done);
        let goes_on = self.predictor.on_ubifs().is_none();
        [
            Work { ns: flash_ns, chip: if goes_on { Chip::Keeps } else { Chip::Has } },
            Work { ns: page_ns, chip: if goes_on { Chip::Has } else { Chip::None } },
        ]
    }

    /// Nodes of the index that are not in memory yet.
    fn of_index(&mut self, file: FileId, page: u64) -> impl Iterator<Item = Work> + use<> {
        let nodes = self.predictor.index_takes(file).map(|each_ns| (self.index.reads(file, page), each_ns));
        let (count, ns) = nodes.unwrap_or_default();
        (0..count).map(move |_| Work { ns, chip: Chip::Has })
    }

    fn of_bulk(&self, bulk: BulkReads) -> Option<[Work; 2]> {
        let (flash_ns, page_ns, _) = self.predictor.bulk_takes(bulk).filter(|_| bulk.reads > 0)?;
        Some([Work { ns: flash_ns, chip: Chip::Has }, Work::of_processor(page_ns)])
    }

    /// What it did is over.
    fn next_call(&mut self, tid: u32) {
        let now_ns = self.now_ns;
        let Some(task) = self.tasks.get_mut(&tid) else { return };
        if task.in_call {
            task.in_call = false;
            task.done += 1;
            let next = task.plan.front_mut();
            if let Some(next) = next.filter(|next| next.awaits.is_none() && next.pause_ns < SLACK_NS) {
                task.work.push_back(Work::of_processor(next.pause_ns));
            } else {
                let until = task.plan.front_mut().map_or(State::Over, |next| next.begins(now_ns));
                self.leave(tid, until);
            }
            self.see_who_awaits();
            return;
        }
        let Some(planned) = task.plan.pop_front() else {
            self.leave(tid, State::Over);
            return;
        };
        task.in_call = true;
        task.work.extend(Work::of_program(planned.runs_ns));
        task.steps.extend(planned.steps);
    }

    fn see_who_awaits(&mut self) {
        let begins = |&tid: &u32| {
            let State::Awaits(of, calls, pause_ns) = self.tasks.get(&tid)?.state else { return None };
            let is_done = self.tasks.get(&of).is_none_or(|of| of.done >= calls);
            is_done.then_some((tid, State::Asleep(self.now_ns + pause_ns)))
        };
        for (tid, state) in self.waiters.iter().filter_map(begins).collect::<Vec<_>>() {
            self.set(tid, state);
        }
    }
}

/// By what part of the most the pauses of a task differ in an order: from -1 to 1, each task's in a sequence of its own.
fn differs(order: u32, task: usize) -> f64 {
    let (orders, half) = (ORDERS as usize, (ORDERS / 2) as usize);
    let step = order as usize * (task + 1) * 2 % orders;
    (if step > half { step as f64 - orders as f64 } else { step as f64 }) / half as f64
}

impl Planned<'_> {
    fn begins(&mut self, now_ns: f64) -> State {
        match self.awaits.take() {
            Some((of, calls)) => State::Awaits(of, calls, self.pause_ns),
            None => State::Asleep(now_ns + self.pause_ns),
        }
    }
}

/// What each task does, and when.
fn plans(workload: &Workload) -> BTreeMap<u32, VecDeque<Planned<'_>>> {
    let mut of_task: BTreeMap<u32, Vec<&Call>> = BTreeMap::new();
    for call in &workload.calls {
        of_task.entry(call.tid).or_default().push(call);
    }
    let mut plans: BTreeMap<u32, VecDeque<Planned>> =
        of_task.iter().map(|(&tid, calls)| (tid, pauses(tid, calls, workload, &of_task))).collect();
    // What is no call belongs to its task's next one; where its task makes none, to what came before it.
    let mut next: BTreeMap<u32, usize> = BTreeMap::new();
    let mut last = None;
    for step in &workload.steps {
        let tid = if plans.contains_key(&step.tid) { Some(step.tid) } else { last };
        let Some((tid, plan)) = tid.or(plans.keys().next().copied()).and_then(|tid| Some((tid, plans.get_mut(&tid)?)))
        else {
            continue;
        };
        let at = next.entry(tid).or_default();
        let here = (*at).min(plan.len().saturating_sub(1));
        if let Some(planned) = plan.get_mut(here) {
            planned.steps.push(step);
        }
        *at += usize::from(step.call.is_some());
        last = Some(tid);
    }
    plans
}

fn ended(call: &Call) -> u64 {
    call.ended_ns().unwrap_or(call.began_ns)
}

/// Of one task's calls.
fn pauses<'a>(
    tid: u32,
    calls: &[&Call],
    workload: &Workload,
    all: &BTreeMap<u32, Vec<&Call>>,
) -> VecDeque<Planned<'a>> {
    let Some(first) = calls.first() else { return VecDeque::new() };
    // Since when it could run, and how long it did before its first call.
    let (came_ns, runs_ns) = match workload.came.get(&tid) {
        Some(&Came { since_ns, ran_ns, .. }) => (since_ns.min(first.began_ns), ran_ns),
        None => (first.began_ns, 0),
    };
    let others = || all.iter().filter(move |(other, _)| **other != tid);
    // What was over when it began.
    let before = others().filter_map(|(&other, calls)| {
        let over = calls.partition_point(|call| ended(call) <= came_ns);
        Some((ended(calls.get(over.checked_sub(1)?)?), other, over))
    });
    let planned =
        |pause_ns: u64, awaits| Planned { pause_ns: pause_ns as f64, awaits, runs_ns: 0.0, steps: Vec::new() };
    let mut plan = VecDeque::new();
    let begins = match before.max() {
        Some((end, other, over)) => planned(came_ns.saturating_sub(end), Some((other, over))),
        None => {
            let begin = workload.calls.first().map_or(came_ns, |call| call.began_ns);
            planned(came_ns.saturating_sub(begin), None)
        }
    };
    plan.push_back(Planned { runs_ns: runs_ns as f64, ..begins });
    let mut kept_waiting = Vec::new();
    let mut free = Vec::new();
    for two in calls.windows(2) {
        let (from, to) = (ended(two[0]), two[1].began_ns);
        let within = others().filter_map(|(&other, calls)| {
            let (first, last) = (calls.first()?, ended(calls.last()?));
            (first.began_ns >= from && last <= to).then_some((last, other, calls.len()))
        });
        if let Some((end, other, count)) = within.max() {
            plan.push_back(planned(to.saturating_sub(end), Some((other, count))));
            continue;
        }
        let pause = to.saturating_sub(from);
        let another = two[1].kept_waiting
            || others().any(|(_, calls)| {
                let next = calls.partition_point(|call| call.began_ns < to);
                next.checked_sub(1)
                    .and_then(|last| calls.get(last))
                    .is_some_and(|call| ended(call).saturating_add(JUST_BEFORE_NS) >= to)
            });
        if another {
            kept_waiting.push(plan.len())
        } else {
            free.push(pause)
        }
        plan.push_back(planned(pause, None));
    }
    let middle = free.len() / 2;
    if !free.is_empty() {
        let median = *free.select_nth_unstable(middle).1 as f64;
        for at in kept_waiting {
            plan[at].pause_ns = plan[at].pause_ns.min(median);
        }
    }
    plan
}

/// A call that was over just before another's began kept that one waiting.
const JUST_BEFORE_NS: u64 = 50_000;

#[cfg(test)]
mod tests {
    use flashscope_cachesim::{Kernel, OpenId, PAGE_BYTES};

    use super::super::predict::Storage;
    use super::*;

    const FILE: FileId = FileId { device: Some(1), inode: 1 };
    const MS: u64 = 1_000_000;

    /// Reads of a task: the first page and how many, when it began, and for how long. A page that comes takes three reads of flash.
    fn workload(reads: &[(u32, u64, u64, u64, u64)]) -> Workload {
        let mut workload = Workload::default();
        workload.sizes.insert(FILE, 300 * PAGE_BYTES);
        for &(tid, page, pages, began_ns, duration_ns) in reads {
            let call = workload.calls.len() as u32;
            let (pages_added, flash_reads) = (pages as u32, 3 * pages as u32);
            let came = Call { pages_added, flash_reads, ..Call::new(tid, FILE, false, began_ns) };
            workload.calls.push(Call { duration_ns: Some(duration_ns), ..came });
            let access = Access::Read { offset: page * PAGE_BYTES, length: pages * PAGE_BYTES };
            workload.steps.push(Step { tid, file: FILE, open: OpenId(tid.into()), access, call: Some(call) });
        }
        workload.pages_added.insert(FILE, workload.calls.iter().map(|call| u64::from(call.pages_added)).sum());
        workload
    }

    /// How many pages each task brings in without read-ahead.
    fn pages(workload: &Workload) -> Vec<u64> {
        let row = Predictor::new(workload, Storage::new(Kernel::V6_1)).row(0, &|_| false);
        row.by_task.values().map(super::super::predict::Tally::pages).collect()
    }

    #[test]
    fn calls_overlap_where_one_begins_while_another_s_goes_on() {
        let second = |tid, began_ms| overlap(&workload(&[(1, 0, 1, 0, MS), (tid, 1, 1, began_ms * MS / 2, MS)]));
        assert_eq!(second(2, 1), Some(Overlap { tasks: 2, calls: 2, orders: ORDERS }));
        assert_eq!([second(2, 2), second(1, 1)], [None, None]);
        let many: Vec<_> = (0..300).map(|tid| (tid, 0, 1, u64::from(tid), MS)).collect();
        assert_eq!(overlap(&workload(&many)), Some(Overlap { tasks: 300, calls: 300, orders: 0 }));
    }

    /// Task 1 reads for 20 ms; task 2 wants a page of that in the middle, and does not wait for its end.
    #[test]
    fn who_wakes_comes_before_who_has_read_long() {
        let of = |began_ms| workload(&[(1, 0, 20, 0, 20 * MS), (2, 10, 1, began_ms * MS, MS), (2, 0, 1, 30 * MS, MS)]);
        assert_eq!(pages(&of(5)), [19, 1]);
        assert_eq!(pages(&of(15)), [20, 0]);
    }

    /// Task 2 could run when task 1's first call began, which had run for long by then; its call was recorded later.
    #[test]
    fn who_could_run_and_had_run_less_is_next() {
        let mut of = workload(&[(1, 0, 20, 0, 20 * MS), (2, 10, 1, 15 * MS, MS)]);
        assert_eq!(pages(&of), [20, 0]);
        let came = |since_ns, is_new, ran_before_all_ns| Came {
            since_ns,
            is_new,
            got_ns: since_ns,
            ran_ns: ran_before_all_ns,
            ran_before_all_ns,
        };
        of.came = BTreeMap::from([(1, came(0, true, 10 * MS)), (2, came(0, true, 0))]);
        assert_eq!(pages(&of), [19, 1]);
        // One that slept until then comes before one that runs; one that is made is put behind it, and goes on with its own work first.
        of.came = BTreeMap::from([(2, came(5 * MS, false, 0))]);
        assert_eq!(pages(&of), [19, 1]);
        of.came.insert(2, came(5 * MS, true, 0));
        assert_eq!(pages(&of), [20, 0]);
        of.came.insert(2, Came { ran_ns: 12 * MS, ..came(5 * MS, false, 0) });
        assert_eq!(pages(&of), [20, 0]);
    }

    /// UBIFS with bulk reads: 100 us a read of flash, three for the node of a page, and as many before the file's first one.
    #[test]
    fn the_index_takes_its_time_too() {
        let reads = |second_us: u64| {
            let us = MS / 1000;
            let mut workload = workload(&[
                (2, 250, 1, 0, 5 * us),
                (1, 8, 1, 10 * us, 600 * us),
                (2, 200, 1, second_us * us, 300 * us),
                (1, 200, 1, 1110 * us, 100 * us),
            ]);
            workload.cached_before = vec![(FILE, 250..251)];
            for (call, flash_reads) in workload.calls.iter_mut().zip([0, 6, 3, 0]) {
                (call.pages_added, call.flash_reads) = (flash_reads.min(1), flash_reads);
            }
            workload.nodes.runs.insert(FILE, flashscope_cachesim::NodeRuns::new(vec![(0, 300)], 300));
            workload.nodes.flash_pages = Some(2.0);
            let storage = Storage { bulk_read: [1].into(), ..Storage::new(Kernel::V6_1) };
            let row = Predictor::new(&workload, storage).row(0, &|_| false);
            row.by_task.values().map(super::super::predict::Tally::pages).collect::<Vec<_>>()
        };
        assert_eq!(reads(1050), [1, 1], "task 1 reads the index first");
        assert_eq!(reads(1250), [2, 0]);
    }

    #[test]
    fn what_a_window_brings_in_later_is_waited_for_and_not_read_twice() {
        // With a window of 32 pages, task 2 asks for one that task 1's call has added and not read.
        let reads = [(1, 0, 20, 0, 20 * MS), (2, 10, 1, 5 * MS, MS), (2, 50, 1, 30 * MS, MS)];
        let workload = workload(&reads);
        let row = Predictor::new(&workload, Storage::new(Kernel::V6_1)).row(128, &|_| false);
        assert_eq!(row.by_task[&2].pages(), 1, "{row:?}");
        assert!(row.between.is_none(), "{row:?}");
    }

    #[test]
    fn timers_come_together_within_their_slack() {
        let workload = workload(&[(1, 0, 1, 0, MS), (2, 1, 1, 0, MS), (3, 2, 1, 0, MS)]);
        let predictor = Predictor::new(&workload, Storage::new(Kernel::V6_1));
        let mut simulator = predictor.simulator(0, false);
        let mut race = Race::new(&predictor, &mut simulator, Made::default(), 0);
        for (tid, until_us) in [(1, 100.0), (2, 140.0), (3, 160.0)] {
            race.set(tid, State::Asleep(until_us * 1e3));
        }
        let mut awake_at = |us: f64| {
            race.now_ns = us * 1e3;
            race.wake_sleepers();
            race.tasks.values().map(|task| task.state == State::Ready).collect::<Vec<bool>>()
        };
        assert_eq!(awake_at(99.0), [false; 3]);
        assert_eq!(awake_at(100.0), [true, true, false], "40 us early; 60 are too many");
        assert_eq!(awake_at(160.0), [true; 3]);
    }

    /// squashfs on 5.10: 300 us a read of flash, two for a page of a block, which is unpacked for 8 ms.
    fn on_squashfs(reads: &[(u32, u64, u64, u64, u64)], window_kib: u64) -> super::super::predict::Row {
        let mut of = workload(reads);
        let mut call = super::super::pages::InCall::default();
        call.page(96, 0);
        (0..64).for_each(|read| call.read(read * 300_000));
        of.costs.add(FILE, &call, None, Some(true));
        for call in &mut of.calls {
            (call.pages_added, call.flash_reads) = (32, 64);
        }
        of.flash_reads = 64 * reads.len() as u64;
        (of.flash_reads_once, of.worked_ns) = (of.flash_reads, 8 * MS * reads.len() as u64);
        of.pages_added.insert(FILE, 32 * reads.len() as u64);
        let storage = Storage { squashfs: [(1, 128 << 10)].into(), ..Storage::new(Kernel::V5_10) };
        Predictor::new(&of, storage).row(window_kib, &|_| false)
    }

    #[test]
    fn two_in_different_blocks_of_squashfs_take_the_buffer_from_each_other() {
        let ms = MS;
        let reads = |second_ms: u64| [(1, 0, 2, 0, 30 * ms), (2, 40, 2, second_ms * ms, 30 * ms)];
        let blocks =
            |second_ms, kib| on_squashfs(&reads(second_ms), kib).flash_reads.map(|reads| (reads / 64.0).round());
        // Without a window a block is read past the buffer.
        assert_eq!(blocks(5, 0), Some(2.0));
        // One after the other: the second page of each finds its block.
        assert_eq!(blocks(200, 16), Some(2.0));
        // Who waits for the buffer gets it before the second page comes.
        assert!(blocks(5, 16) > Some(2.0), "{:?}", blocks(5, 16));
    }

    /// Both read the same pages, one at a time, with pauses of about the same length: who is first hinges on little.
    #[test]
    fn a_row_says_between_what_it_is() {
        let mut reads = Vec::new();
        for n in 0..40 {
            reads.push((1, n * 3, 2, n * 4 * MS, 2 * MS));
            reads.push((2, n * 3 + 1, 2, n * 4 * MS + MS, 3 * MS));
        }
        reads.sort_by_key(|read| read.3);
        let row = Predictor::new(&workload(&reads), Storage::new(Kernel::V6_1)).row(16, &|_| false);
        let between = row.between.expect("it hinges on who is first");
        let [least, most] = between.pages;
        assert!(least < most && (least..=most).contains(&row.tally.pages()), "{between:?} {}", row.tally.pages());
        assert_eq!(between.plays, ORDERS);
    }

    #[test]
    fn a_task_goes_on_after_a_child_that_it_waited_for() {
        let ms = |reads: &[(u32, u64, u64, u64, u64)]| {
            let reads: Vec<_> =
                reads.iter().map(|&(tid, page, pages, at, for_)| (tid, page, pages, at * MS, for_ * MS)).collect();
            workload(&reads)
        };
        // Task 2 lives within task 1's pause; task 3 begins when task 1's first call is over, and is read by both.
        let workload = ms(&[(1, 0, 1, 0, 1), (2, 1, 1, 3, 1), (3, 2, 1, 5, 9), (2, 3, 1, 6, 1), (1, 4, 1, 9, 1)]);
        let plans = plans(&workload);
        let of =
            |tid: u32| plans[&tid].iter().map(|planned| (planned.pause_ns / 1e6, planned.awaits)).collect::<Vec<_>>();
        assert_eq!(of(1), [(0.0, None), (2.0, Some((2, 2)))]);
        assert_eq!(of(2), [(2.0, Some((1, 1))), (2.0, None)]);
        assert_eq!(of(3), [(1.0, Some((2, 1)))]);
        assert_eq!(pages(&workload), [2, 2, 1]);
    }

    #[test]
    fn a_pause_that_others_made_longer_is_the_median_of_those_they_did_not() {
        let ms = MS;
        let mut workload = workload(&[
            (1, 0, 1, 0, ms),
            (1, 1, 1, 2 * ms, ms),
            (2, 100, 5, 3 * ms, 4 * ms),
            (1, 2, 1, 6 * ms, 2 * ms),
            (1, 3, 1, 9 * ms, ms),
        ]);
        let pauses = |workload: &Workload| {
            plans(workload)[&1].iter().map(|planned| planned.pause_ns / 1e6).collect::<Vec<f64>>()
        };
        assert_eq!(pauses(&workload), [0.0, 1.0, 1.0, 1.0]);
        // Another had the processor that makes no calls.
        let last = workload.calls.len() - 1;
        for (at, pause_ns) in [(0, 0), (last, 4 * ms)] {
            workload.calls.push(Call { began_ns: 20 * ms + pause_ns, ..workload.calls[at] });
        }
        let made = pauses(&workload).len();
        workload.calls.last_mut().unwrap().kept_waiting = true;
        let kept = pauses(&workload);
        assert_eq!((kept.len(), kept[made - 1]), (made, 1.0), "{kept:?}");
    }

    #[test]
    fn what_does_not_come_is_not_waited_for_and_nothing_is_too_long() {
        let most = u64::MAX;
        let absurd = workload(&[
            (1, 0, 5, 0, most),
            (2, 1, 1, 1, most),
            (3, 2, 1, most / 2, most / 2),
            (1, 9, 1, most - 5, 5),
            (2, 9, 1, most, most),
        ]);
        assert_eq!(pages(&absurd).iter().sum::<u64>(), 6);
        let row = on_squashfs(
            &[
                (0, 0, 5, 0, most),
                (2, 33, 9, 1, most),
                (3, 200, 1, most / 2, most / 2),
                (0, 250, 40, most - 5, 5),
                (2, 0, 1, most, most),
            ],
            20,
        );
        assert!(row.flash_reads.is_some_and(f64::is_finite), "{row:?}");
    }
}
