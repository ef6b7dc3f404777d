//! A recording under its own window where tasks' calls overlap. A window is read for milliseconds, and others run meanwhile: how far
//! each task had come when another's call began is taken from its reads of flash.

use std::collections::BTreeMap;

use flashscope_cachesim::{Next, PageEvent, Simulator};

use super::workload::{RanAt, Step, Workload};

/// Of the time that a page is made in: giving the processor to another and getting it back takes less, on `board:armv7` up to 0.15.
const MORE_THAN_A_CHANGE: f64 = 0.2;

#[derive(Default)]
struct Task {
    /// Reads of flash that were seen, less those that what was done needed.
    seen: f64,
    /// When its call was over.
    end_ns: u64,
    is_over: bool,
    /// How long it has had the processor since its last read of flash began.
    ran_ns: f64,
    has_read: bool,
    /// Pages that it has made since.
    made: u32,
}

pub struct Turns<'a> {
    workload: &'a Workload,
    simulator: Simulator,
    tasks: BTreeMap<u32, Task>,
    /// Reads of flash for a page of which no more is known.
    mean: f64,
    /// What the last read of flash of a bulk read takes, and to make a page of a node, ns.
    bulk_ns: Option<(f64, f64)>,
    /// Who got the processor when, from now on, and who has it since when.
    ran: std::slice::Iter<'a, RanAt>,
    running: (u32, u64),
}

impl<'a> Turns<'a> {
    pub fn new(workload: &'a Workload, mut simulator: Simulator, mean: f64, bulk_ns: Option<(f64, f64)>) -> Turns<'a> {
        simulator.take_turns();
        let (tasks, ran) = (BTreeMap::new(), workload.ran_at.iter());
        Turns { workload, simulator, tasks, mean, bulk_ns, ran, running: (0, 0) }
    }

    pub fn play(mut self, out: &mut dyn FnMut(PageEvent)) {
        let mut reads = self.workload.flash_read_at.iter().peekable();
        for step in &self.workload.steps {
            let call = step.call.and_then(|call| self.workload.calls.get(call as usize));
            let began = call.map_or(0, |call| call.began_ns);
            while let Some(&(tid, time)) = reads.next_if(|(_, time)| *time < began) {
                self.end_those_over(time, None, out);
                self.run_until(time, out);
                let task = self.tasks.entry(tid).or_default();
                match self.bulk_ns {
                    // It made a page of a node before: another read begins.
                    Some((read_ns, page_ns)) if !task.has_read || task.ran_ns > read_ns + page_ns / 2.0 => {
                        task.seen = 1.0
                    }
                    Some(_) => task.seen = 0.0,
                    None => task.seen += 1.0,
                }
                (task.has_read, task.ran_ns, task.made) = (true, 0.0, 0);
                self.go_on(tid, out);
            }
            self.end_those_over(began, Some(step.tid), out);
            self.run_until(began, out);
            if let Some(call) = call {
                let task = self.tasks.entry(step.tid).or_default();
                *task = Task { end_ns: call.ended_ns().unwrap_or(u64::MAX), ..Task::default() };
            }
            self.begin(step, out);
        }
        self.end_those_over(u64::MAX, None, out);
    }

    /// What bulk reads made of nodes until then.
    fn run_until(&mut self, time_ns: u64, out: &mut dyn FnMut(PageEvent)) {
        let Some((read_ns, page_ns)) = self.bulk_ns else { return };
        loop {
            let next = self.ran.as_slice().first().copied().filter(|next| next.time_ns < time_ns);
            let (tid, since) = self.running;
            let until = next.map_or(time_ns, |next| next.time_ns);
            // One that waited for a lock, and not in a read: `fstat()` takes `ui_mutex` (`ubifs_getattr`), which the bulk read had until now.
            let is_done =
                next.is_some_and(|next| next.was_blocked && self.tasks.get(&next.tid).is_none_or(|task| task.is_over));
            if let Some(task) = self.tasks.get_mut(&tid) {
                task.ran_ns += until.saturating_sub(since) as f64;
                // The page that it read first, and those after it. A task leaves the processor between two of them, where the first is
                // made and not yet unlocked.
                let pages = (task.ran_ns - read_ns) / page_ns;
                let made = if pages > 1.1 { pages.round() as u32 } else { 0 };
                while task.made < made {
                    match self.simulator.next_of(tid) {
                        Some(Next::There { .. } | Next::Fill { .. }) => self.simulator.go_on(tid, out),
                        _ => break,
                    };
                    task.made += 1;
                }
                while is_done
                    && pages > 0.9
                    && matches!(self.simulator.next_of(tid), Some(Next::There { .. } | Next::Fill { .. }))
                {
                    self.simulator.go_on(tid, out);
                }
                // There is more than its pages took: it went on, with the next window perhaps.
                while made > 0
                    && pages > pages.round() + MORE_THAN_A_CHANGE
                    && matches!(self.simulator.next_of(tid), Some(Next::Look | Next::Fill { is_over: true, .. }))
                {
                    self.simulator.go_on(tid, out);
                }
                // It left between two pages: what the change took is no page's.
                if made > 0 && next.is_some() {
                    task.ran_ns = read_ns + f64::from(made) * page_ns;
                }
            }
            self.running = (tid, until);
            match next {
                Some(next) => self.running = (next.tid, next.time_ns),
                None => return,
            }
            self.ran.next();
        }
    }

    /// Calls that were over by then, in their order, and the last one of a task that begins another.
    fn end_those_over(&mut self, time_ns: u64, begins: Option<u32>, out: &mut dyn FnMut(PageEvent)) {
        let is_over = |tid: u32, task: &Task| !task.is_over && (task.end_ns <= time_ns || begins == Some(tid));
        let over = self.tasks.iter().filter(|&(&tid, task)| is_over(tid, task));
        let mut over: Vec<(u64, u32)> = over.map(|(&tid, task)| (task.end_ns, tid)).collect();
        over.sort_unstable();
        for (end_ns, tid) in over {
            self.run_until(end_ns.min(time_ns), out);
            while self.simulator.go_on(tid, out) {}
            self.tasks.entry(tid).or_default().is_over = true;
        }
    }

    fn begin(&mut self, step: &Step, out: &mut dyn FnMut(PageEvent)) {
        let before = self.simulator.bulk_reads();
        self.simulator.turn(step.tid, step.file, step.open, step.access, out);
        // What is no read is done at once.
        let bulk = self.simulator.bulk_reads().since(before);
        self.tasks.entry(step.tid).or_default().seen -= (bulk.flash_reads_alone + bulk.flash_reads) as f64;
    }

    /// As far as the task's reads of flash have come: what is next has begun with the first read that nothing before it needed.
    fn go_on(&mut self, tid: u32, out: &mut dyn FnMut(PageEvent)) {
        loop {
            let Some(task) = self.tasks.get_mut(&tid).filter(|task| task.seen >= 1.0) else { return };
            match self.simulator.next_of(tid) {
                // It is made of what was read until the next read, or to the end of the call.
                Some(Next::Fill { is_last: true, .. }) if self.bulk_ns.is_none() => return,
                Some(next) => {
                    let before = self.simulator.bulk_reads();
                    self.simulator.go_on(tid, out);
                    if let Next::Read { file, page } = next {
                        let bulk = self.simulator.bulk_reads().since(before);
                        let known = self.workload.costs.recorded(file, page).map(|cost| f64::from(cost.flash_reads));
                        let of_page = if bulk.reads > 0 { Some(bulk.flash_reads as f64) } else { known };
                        task.seen -= of_page.unwrap_or(self.mean);
                    }
                }
                None => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use flashscope_cachesim::{Access, FileId, Kernel, NodeRuns, OpenId, PAGE_BYTES, Settings};

    use super::super::workload::{Call, Step};
    use super::*;

    const FILE: FileId = FileId { device: Some(1), inode: 1 };

    /// Task 1 reads page 1, the mark of its first window, and with it a window up to page 10, which is there, and one page behind it.
    /// Task 2 reads page 11 after so many of task 1's reads of flash.
    fn workload(seen: u64) -> Workload {
        let mut workload = Workload::default();
        workload.sizes.insert(FILE, 300 * PAGE_BYTES);
        for (tid, page, began_ns, duration_ns) in [(1, 0, 0, 50), (1, 1, 100, 5000), (2, 11, 1000, 1000)] {
            let call = workload.calls.len() as u32;
            let new = Call { duration_ns: Some(duration_ns), ..Call::new(tid, FILE, false, began_ns) };
            workload.calls.push(new);
            let access = Access::Read { offset: page * PAGE_BYTES, length: PAGE_BYTES };
            workload.steps.push(Step { tid, file: FILE, open: OpenId(tid.into()), access, call: Some(call) });
        }
        workload.flash_read_at = (0..seen).map(|read| (1, 101 + read)).collect();
        workload
    }

    fn play(workload: &Workload) -> Vec<u64> {
        let mut simulator = Simulator::new(Kernel::V6_1, Settings { readahead_pages: 32, ..Settings::default() });
        simulator.set_size(FILE, 300 * PAGE_BYTES);
        simulator.preload(FILE, 10);
        let mut came = Vec::new();
        Turns::new(workload, simulator, 3.0, None).play(&mut |event| {
            if event.is_read() {
                came.push(event.page);
            }
        });
        came
    }

    #[test]
    fn who_comes_before_a_window_s_next_run_finds_it_missing() {
        // Six pages of three reads each before the run behind page 10.
        let early = play(&workload(18));
        assert_eq!(early[4..12], [4, 5, 6, 7, 8, 9, 11, 12], "task 2's window");
        let late = play(&workload(19));
        assert_eq!(late[4..11], [4, 5, 6, 7, 8, 9, 11], "task 1's");
        assert!(early.len() > late.len(), "{early:?} {late:?}");
    }

    /// Task 1's bulk read begins with page 2: it has read flash and makes pages when task 2's call for page 31 begins, to whom it gave
    /// the processor so often, after so long each time.
    fn while_pages_are_made(times: u64, made_ns: u64) -> Vec<u64> {
        let mut workload = Workload::default();
        workload.sizes.insert(FILE, 300 * PAGE_BYTES);
        let calls = [(1, 0, 0, 50), (1, 1, 100, 50), (1, 2, 200, 100_000), (2, 31, 20_000, 100)];
        for (tid, page, began_ns, duration_ns) in calls {
            let call = workload.calls.len() as u32;
            let new = Call { duration_ns: Some(duration_ns), ..Call::new(tid, FILE, false, began_ns) };
            workload.calls.push(new);
            let access = Access::Read { offset: page * PAGE_BYTES, length: PAGE_BYTES };
            workload.steps.push(Step { tid, file: FILE, open: OpenId(tid.into()), access, call: Some(call) });
        }
        workload.flash_read_at = vec![(1, 1), (1, 101), (1, 201)];
        // 300 ns of the last read, and pages of 100 ns each.
        let ran = |(tid, time_ns)| RanAt { tid, time_ns, was_blocked: false };
        let changes = (0..times).flat_map(|time| {
            let since = 501 + time * (made_ns + 50);
            [(1, if time == 0 { 0 } else { since }), (2, since + made_ns)]
        });
        workload.ran_at = changes.map(ran).collect();
        let mut simulator = Simulator::new(Kernel::V6_1, Settings { readahead_pages: 0, ..Settings::default() });
        simulator.set_size(FILE, 300 * PAGE_BYTES);
        simulator.set_bulk_read(FILE, NodeRuns::new(vec![(0, 300)], 300));
        let mut came = Vec::new();
        Turns::new(&workload, simulator, 1.0, Some((300.0, 100.0))).play(&mut |event| {
            if event.is_read() {
                came.push(event.page);
            }
        });
        came
    }

    #[test]
    fn pages_of_a_bulk_read_come_one_after_the_other() {
        // Eight times four pages and what a change takes, which is no page.
        for (times, made_ns, before) in
            [(1, 0, 2), (1, 105, 2), (1, 160, 3), (1, 305, 4), (1, 405, 5), (2, 415, 9), (6, 415, 25)]
        {
            let came = while_pages_are_made(times, made_ns);
            let other = came.iter().position(|&page| page == 31);
            assert_eq!(other, Some(before + 1), "{times} × {made_ns} ns: {came:?}");
            assert_eq!(came.len(), 34, "{came:?}");
        }
    }
}
