//! Who has the one processor while calls are played. Of equal tasks, with one processor's defaults:
//! - up to 6.5 who has had it least, with credit for who slept and a debit for who is made (`place_entity`, `check_preempt_wakeup`,
//!   `check_preempt_tick`, kernel/sched/fair.c of 6.1.192);
//! - from 6.6 on, of those that have had no more than the mean, whose slice ends first (`pick_eevdf`, `place_entity`, `update_deadline`,
//!   `requeue_delayed_entity`, `check_preempt_wakeup_fair`, kernel/sched/fair.c of 6.12.107; `wakeup_preempt_fair` of 7.2.8).

use std::collections::{BTreeMap, BTreeSet};

use flashscope_cachesim::Kernel;

/// `sysctl_sched_latency`, `sysctl_sched_min_granularity` and `sysctl_sched_wakeup_granularity` of one processor, ns.
const LATENCY_NS: f64 = 6e6;
const LEAST_SLICE_NS: f64 = 0.75e6;
const WAKE_UP_NS: f64 = 1e6;
/// `sysctl_sched_base_slice` of one processor.
const BASE_SLICE_NS: f64 = 0.7e6;
/// `CONFIG_HZ=250`.
pub const TICK_NS: f64 = 4e6;
/// `sched_prio_to_weight` (kernel/sched/core.c) of nice 0, and of -20, which workers of `kblockd` have.
const WEIGHT: f64 = 1024.0;
const WORKER_WEIGHT: f64 = 88761.0;
/// `update_entity_lag`: the longer of two slices and a tick.
const MOST_LAG_NS: f64 = TICK_NS;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Rules {
    LeastRun {
        /// A slice is never shorter than the least (`BASE_SLICE`, from 5.13 on).
        has_least: bool,
    },
    Deadlines {
        /// Who is made waits for the slice of who runs.
        made_waits: bool,
    },
}

/// How a task comes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Comes {
    /// It can run from the begin on, and had run for so long by then.
    Ready { ran_ns: f64, is_new: bool },
    /// It is made later.
    Made,
    /// It wakes later, after it slept for long.
    Wakes,
    /// No more is known of it.
    Later,
}

#[derive(Clone, Copy, Debug)]
struct Entity {
    weight: f64,
    can_run: bool,
    /// It has not run yet; it slept before it could run from the begin on.
    is_new: bool,
    had_slept: bool,
    vruntime: f64,
    /// By deadlines: when its slice is over, and what that was when it was picked.
    deadline: f64,
    picked_deadline: f64,
    /// How much less than the mean it had when it slept.
    lag: f64,
    /// It sleeps and had more than the mean: it is among the others until it has not.
    is_delayed: bool,
}

pub struct Processor {
    rules: Rules,
    entities: BTreeMap<u32, Entity>,
    /// Those that can run, and those that are delayed.
    queued: BTreeSet<u32>,
    running: Option<u32>,
    picked_ns: f64,
    resched: bool,
    least_vruntime: f64,
}

impl Processor {
    pub fn new(kernel: Kernel) -> Processor {
        Processor {
            rules: match kernel {
                Kernel::V6_12 | Kernel::V7_2 => Rules::Deadlines { made_waits: kernel == Kernel::V7_2 },
                _ => Rules::LeastRun { has_least: kernel >= Kernel::V6_1 },
            },
            entities: BTreeMap::new(),
            queued: BTreeSet::new(),
            running: None,
            picked_ns: 0.0,
            resched: false,
            least_vruntime: 0.0,
        }
    }

    pub fn add(&mut self, tid: u32, comes: Comes) {
        let vruntime = match comes {
            Comes::Ready { ran_ns, .. } => ran_ns,
            Comes::Wakes => f64::NEG_INFINITY,
            Comes::Made | Comes::Later => 0.0,
        };
        let deadline = vruntime + BASE_SLICE_NS;
        let entity = Entity {
            weight: WEIGHT,
            can_run: matches!(comes, Comes::Ready { .. }),
            is_new: comes == Comes::Made,
            had_slept: matches!(comes, Comes::Ready { is_new: false, .. }),
            vruntime,
            deadline,
            picked_deadline: deadline,
            lag: 0.0,
            is_delayed: false,
        };
        self.entities.insert(tid, entity);
        self.queue(tid);
    }

    /// It is among those that are queued, or no longer.
    fn queue(&mut self, tid: u32) {
        match self.entities.get(&tid).is_some_and(|entity| entity.can_run || entity.is_delayed) {
            true => self.queued.insert(tid),
            false => self.queued.remove(&tid),
        };
    }

    fn queued(&self) -> impl Iterator<Item = (u32, &Entity)> {
        self.queued.iter().filter_map(|&tid| Some((tid, self.entities.get(&tid)?)))
    }

    /// One that reads for the others, and has slept until now.
    pub fn add_worker(&mut self, tid: u32) {
        self.add(tid, Comes::Wakes);
        if let Some(entity) = self.entities.get_mut(&tid) {
            entity.weight = WORKER_WEIGHT;
        }
    }

    /// All are added, and this one has it since then. Who had slept woke beside those who had run, however long; none is farther behind
    /// than a latency, or it would have had its turn.
    pub fn begin(&mut self, running: Option<(u32, f64)>) {
        if let Some((tid, since_ns)) = running {
            (self.running, self.picked_ns) = (Some(tid), since_ns);
        }
        let ready = || self.entities.values().filter(|entity| entity.can_run);
        let Some(most) = ready().map(|entity| entity.vruntime).reduce(f64::max) else { return };
        let credit = if self.by_least_run() { LATENCY_NS / 2.0 } else { 0.0 };
        for entity in self.entities.values_mut().filter(|entity| entity.can_run) {
            let beside = if entity.had_slept { entity.vruntime - credit } else { entity.vruntime - most };
            entity.vruntime = beside.clamp(-LATENCY_NS, 0.0);
            entity.deadline = entity.vruntime + BASE_SLICE_NS;
            entity.picked_deadline = entity.deadline;
        }
        let ready = self.entities.values().filter(|entity| entity.can_run);
        self.least_vruntime = ready.map(|entity| entity.vruntime).fold(0.0, f64::min);
    }

    fn by_least_run(&self) -> bool {
        matches!(self.rules, Rules::LeastRun { .. })
    }

    fn running(&self) -> Option<&Entity> {
        self.entities.get(&self.running?)
    }

    fn ready(&self) -> impl Iterator<Item = (u32, &Entity)> {
        self.queued().filter(|(_, entity)| entity.can_run)
    }

    /// A tick may give it to another.
    pub fn ticks_matter(&self) -> bool {
        !self.resched && self.ready().nth(1).is_some()
    }

    /// The mean of those that are queued.
    fn mean(&self) -> Option<f64> {
        let count = self.queued.len();
        (count > 0).then(|| self.queued().map(|(_, entity)| entity.vruntime).sum::<f64>() / count as f64)
    }

    /// The task that runs did so for so long.
    pub fn ran(&mut self, tid: u32, ns: f64) {
        if let Some(entity) = self.entities.get_mut(&tid) {
            entity.vruntime += ns * WEIGHT / entity.weight;
        }
        if self.by_least_run() {
            // update_min_vruntime
            let least = self.ready().map(|(_, entity)| entity.vruntime).fold(f64::INFINITY, f64::min);
            if least.is_finite() {
                self.least_vruntime = self.least_vruntime.max(least);
            }
        }
    }

    /// `update_deadline`, which the kernel comes to by ticks and by changes of tasks; whether a slice is over.
    fn update(&mut self) -> bool {
        let Some(running) = self.running.and_then(|tid| self.entities.get_mut(&tid)) else { return false };
        let by_deadline = !matches!(self.rules, Rules::LeastRun { .. });
        let is_over = by_deadline && running.can_run && running.vruntime >= running.deadline;
        if is_over {
            running.deadline = running.vruntime + BASE_SLICE_NS;
        }
        is_over
    }

    pub fn wake(&mut self, tid: u32) {
        match self.rules {
            Rules::LeastRun { .. } => self.wake_by_least_run(tid),
            Rules::Deadlines { made_waits } => self.wake_by_deadline(tid, made_waits),
        }
    }

    fn wake_by_least_run(&mut self, tid: u32) {
        let running = self.running().map(|running| running.vruntime);
        let others = self.ready().count() as f64;
        let Some(entity) = self.entities.get_mut(&tid) else { return };
        entity.can_run = true;
        entity.vruntime = match std::mem::take(&mut entity.is_new) {
            true => self.least_vruntime + LATENCY_NS / (others + 1.0),
            false => entity.vruntime.max(self.least_vruntime - LATENCY_NS / 2.0),
        };
        let most_ns = WAKE_UP_NS * WEIGHT / entity.weight;
        self.resched |= running.is_some_and(|running| running - entity.vruntime > most_ns);
        self.queue(tid);
    }

    fn wake_by_deadline(&mut self, tid: u32, made_waits: bool) {
        self.update();
        let mean = self.mean();
        let queued = self.queued.len() as f64;
        let least = self.least_vruntime;
        let Some(entity) = self.entities.get_mut(&tid) else { return };
        let was_delayed = std::mem::take(&mut entity.is_delayed);
        let waits = made_waits && entity.is_new;
        // Who is among the others still, and has more than the mean, stays where it is.
        if !was_delayed || mean.is_some_and(|mean| mean > entity.vruntime) {
            let is_new = std::mem::take(&mut entity.is_new);
            let lag = if was_delayed { 0.0 } else { entity.lag };
            // The mean moves as it comes.
            entity.vruntime = mean.map_or(least, |mean| mean - lag * (queued + 1.0) / queued);
            entity.deadline = entity.vruntime + if is_new { BASE_SLICE_NS / 2.0 } else { BASE_SLICE_NS };
        }
        entity.can_run = true;
        self.queue(tid);
        self.resched |= !waits && self.running().is_some_and(|running| running.can_run) && self.best() == Some(tid);
    }

    /// It sleeps, waits or is over.
    pub fn block(&mut self, tid: u32) {
        self.update();
        let mean = self.mean();
        let by_deadline = !self.by_least_run();
        let Some(entity) = self.entities.get_mut(&tid) else { return };
        entity.can_run = false;
        if let Some(mean) = mean.filter(|_| by_deadline) {
            self.least_vruntime = self.least_vruntime.max(mean);
            entity.lag = (mean - entity.vruntime).clamp(-MOST_LAG_NS, MOST_LAG_NS);
            entity.is_delayed = entity.lag < 0.0;
        }
        self.queue(tid);
    }

    /// `pick_eevdf`.
    fn best(&self) -> Option<u32> {
        let mean = self.mean()?;
        // What is the mean itself must not be lost to rounding.
        let is_eligible = |entity: &Entity| entity.vruntime <= mean + 1e-3;
        let running = self.running.zip(self.running()).filter(|(_, entity)| entity.can_run && is_eligible(entity));
        if let Some((tid, entity)) = running
            && entity.deadline == entity.picked_deadline
        {
            return Some(tid);
        }
        let others = self.queued().filter(|&(tid, entity)| Some(tid) != self.running && is_eligible(entity));
        let other = others.min_by(|(_, a), (_, b)| a.deadline.total_cmp(&b.deadline));
        match (running, other) {
            (Some((tid, entity)), Some((_, other))) if entity.deadline < other.deadline => Some(tid),
            (_, Some((tid, _))) => Some(tid),
            (running, None) => running.map(|(tid, _)| tid),
        }
    }

    /// Who has it from now on.
    pub fn pick(&mut self, now_ns: f64) -> Option<u32> {
        self.ready().next()?;
        let goes_on = !self.resched && self.running().is_some_and(|running| running.can_run);
        self.resched = false;
        let next = match self.rules {
            Rules::LeastRun { .. } => {
                let (tid, vruntime) =
                    self.ready().map(|(tid, entity)| (tid, entity.vruntime)).min_by(|a, b| a.1.total_cmp(&b.1))?;
                self.least_vruntime = self.least_vruntime.max(vruntime);
                tid
            }
            _ if goes_on => self.running?,
            Rules::Deadlines { .. } => loop {
                let best = self.best().or_else(|| self.ready().next().map(|(tid, _)| tid))?;
                let entity = self.entities.get_mut(&best)?;
                entity.picked_deadline = entity.deadline;
                // Its turn has come, and it sleeps: it is gone, and has lost nothing.
                if !std::mem::take(&mut entity.is_delayed) {
                    break best;
                }
                entity.lag = 0.0;
                self.queue(best);
            },
        };
        if !goes_on {
            (self.running, self.picked_ns) = (Some(next), now_ns);
        }
        self.running
    }

    /// The clock ticks for the task that runs.
    pub fn tick(&mut self, now_ns: f64) {
        let Some(tid) = self.running else { return };
        let (count, least, weight) =
            self.ready().fold((0, f64::INFINITY, 0.0), |(count, least, weight), (other, entity)| {
                let least = if other == tid { least } else { least.min(entity.vruntime) };
                (count + 1, least, weight + entity.weight)
            });
        match self.rules {
            Rules::Deadlines { .. } => self.resched |= self.update() && count > 1,
            Rules::LeastRun { has_least } => {
                let Some(running) = self.running().filter(|_| count > 1) else { return };
                let least_ns = if has_least { LEAST_SLICE_NS } else { 0.0 };
                let period_ns = LATENCY_NS.max(f64::from(count) * LEAST_SLICE_NS);
                let slice_ns = (period_ns * running.weight / weight).max(least_ns);
                let ran_ns = now_ns - self.picked_ns;
                let far_ahead = ran_ns >= LEAST_SLICE_NS && running.vruntime - least > slice_ns;
                self.resched |= ran_ns > slice_ns || far_ahead;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: f64 = 1e6;

    fn processor(kernel: Kernel) -> Processor {
        let mut processor = Processor::new(kernel);
        processor.add(1, Comes::Later);
        processor.add(2, Comes::Later);
        processor.wake(1);
        assert_eq!(processor.pick(0.0), Some(1));
        processor
    }

    /// Who wakes has it when the other has run a millisecond more, or used up its slice.
    #[test]
    fn who_wakes_is_next_after_who_has_run() {
        for (kernel, ran_ms, next) in [
            (Kernel::V6_1, 0.9, 1),
            (Kernel::V6_1, 1.1, 2),
            (Kernel::V6_12, 0.6, 1),
            (Kernel::V6_12, 0.8, 2),
            (Kernel::V7_2, 0.8, 2),
        ] {
            let mut processor = processor(kernel);
            processor.ran(1, ran_ms * MS);
            processor.wake(2);
            assert_eq!(processor.pick(ran_ms * MS), Some(next), "{kernel:?} {ran_ms}");
        }
    }

    /// Both can run: a tick changes them after half of the latency, or after any slice.
    #[test]
    fn a_tick_changes_them_after_a_slice() {
        for (kernel, ticks) in [(Kernel::V6_1, 4), (Kernel::V6_12, 4)] {
            let mut processor = processor(kernel);
            processor.wake(2);
            let mut had = Vec::new();
            for tick in 1..=ticks {
                let tid = processor.pick(f64::from(tick - 1) * TICK_NS).unwrap();
                processor.ran(tid, TICK_NS);
                processor.tick(f64::from(tick) * TICK_NS);
                had.push(tid);
            }
            had.sort_unstable();
            assert_eq!(had, [1, 1, 2, 2], "{kernel:?}");
        }
    }

    /// By deadlines, who slept with more than its part has no more when it wakes early, and no less when it wakes late.
    #[test]
    fn who_had_more_than_its_part_waits_for_the_others() {
        let slept = |ran_ms: f64| {
            let mut processor = processor(Kernel::V6_12);
            processor.wake(2);
            processor.ran(1, 2.0 * MS);
            processor.block(1);
            assert_eq!(processor.pick(2.0 * MS), Some(2));
            processor.ran(2, ran_ms * MS);
            processor.wake(1);
            processor.pick((2.0 + ran_ms) * MS)
        };
        assert_eq!([slept(0.5), slept(1.5), slept(3.0)], [Some(2), Some(2), Some(1)]);
    }

    /// One ran for long before the begin, and the other woke just then, or was made with it.
    #[test]
    fn who_could_run_at_the_begin_is_behind_by_a_latency_at_most() {
        for (kernel, is_new, until_ms) in [
            (Kernel::V6_1, false, 3.0),
            (Kernel::V6_1, true, 6.0),
            (Kernel::V6_12, false, 0.0),
            (Kernel::V6_12, true, 6.0),
        ] {
            let mut processor = Processor::new(kernel);
            processor.add(1, Comes::Ready { ran_ns: 100.0 * MS, is_new: true });
            processor.add(2, Comes::Ready { ran_ns: 0.0, is_new });
            processor.begin(Some((1, -100.0 * MS)));
            let [one, two] = [1, 2].map(|tid| processor.entities[&tid].vruntime);
            assert_eq!((one, two), (0.0, -until_ms * MS), "{kernel:?} {is_new}");
            assert_eq!((processor.least_vruntime, processor.running), (-until_ms * MS, Some(1)));
        }
    }

    /// A worker of nice -20 has nearly all of a period, that is until the second tick, and what it runs counts for little.
    #[test]
    fn who_wakes_beside_a_worker_comes_at_the_second_tick() {
        for kernel in [Kernel::V5_10, Kernel::V6_1] {
            let mut processor = processor(kernel);
            processor.ran(1, 10.0 * MS);
            processor.add_worker(9);
            processor.wake(9);
            processor.block(1);
            let mut had = Vec::new();
            for tick in 0..3 {
                let tid = processor.pick(f64::from(tick) * TICK_NS).unwrap();
                had.push(tid);
                if tick == 0 {
                    processor.wake(2);
                }
                processor.ran(tid, TICK_NS);
                processor.tick(f64::from(tick + 1) * TICK_NS);
            }
            assert_eq!(had, [9, 9, 2], "{kernel:?}");
            let ran = processor.entities[&9].vruntime - 7.0 * MS;
            assert!((0.09 * MS..0.1 * MS).contains(&ran), "{ran}");
        }
    }

    #[test]
    fn nobody_is_no_panic() {
        for kernel in Kernel::ALL {
            let mut processor = Processor::new(kernel);
            assert_eq!(processor.pick(0.0), None);
            processor.wake(1);
            processor.block(1);
            processor.tick(0.0);
            processor.add(1, Comes::Wakes);
            processor.wake(1);
            assert_eq!(processor.pick(1.0), Some(1), "{kernel:?}");
            processor.block(1);
            assert_eq!(processor.pick(2.0), None, "{kernel:?}");
        }
    }
}
