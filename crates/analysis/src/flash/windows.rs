//! Operations in each of a list of time windows, which may nest.

use super::OpCounts;
use crate::Analysis;
use flashscope_trace::{Event, EventKind, FlashOp, TaskId};
use std::collections::BTreeMap;

/// `begin_ns ≤ time < end_ns`, and of one task where `tid` is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub begin_ns: u64,
    pub end_ns: u64,
    pub tid: Option<TaskId>,
}

impl Window {
    pub fn new(begin_ns: u64, end_ns: u64) -> Self {
        Self { begin_ns, end_ns, tid: None }
    }

    /// Counts only operations for this task.
    pub fn of_task(self, tid: TaskId) -> Self {
        Self { tid: Some(tid), ..self }
    }
}

/// Counts flash commands in many windows in one pass: windows may touch, overlap and nest, and events may come in
/// any order. An event costs one binary search over the windows' edges.
#[derive(Debug)]
pub struct WindowCounts {
    windows: Vec<Window>,
    /// All edges, sorted, without doubles: segment i runs from edge i to edge i + 1.
    edges: Vec<u64>,
    all: Vec<OpCounts>,
    /// The same for each task that a window selects.
    tasks: BTreeMap<TaskId, Vec<OpCounts>>,
}

impl WindowCounts {
    pub fn new(windows: impl IntoIterator<Item = Window>) -> Self {
        let windows: Vec<Window> = windows.into_iter().collect();
        let mut edges: Vec<u64> = windows.iter().flat_map(|w| [w.begin_ns, w.end_ns]).collect();
        edges.sort_unstable();
        edges.dedup();
        let segments = vec![OpCounts::default(); edges.len().saturating_sub(1)];
        Self {
            tasks: windows.iter().filter_map(|w| Some((w.tid?, segments.clone()))).collect(),
            all: segments,
            windows,
            edges,
        }
    }

    fn access(&mut self, time_ns: u64, tid: TaskId, op: FlashOp) {
        let after = self.edges.partition_point(|&edge| edge <= time_ns);
        let Some(segment) = after.checked_sub(1).filter(|&s| s < self.all.len()) else {
            return;
        };
        self.all[segment].add(op);
        if let Some(task) = self.tasks.get_mut(&tid) {
            task[segment].add(op);
        }
    }
}

impl Analysis for WindowCounts {
    /// One entry per window, in the order in which the windows were given.
    type Output = Vec<OpCounts>;

    fn event(&mut self, event: &Event) {
        if let EventKind::Flash(access) = &event.kind {
            self.access(event.time.0, event.tid, access.op);
        }
    }

    fn finish(self) -> Vec<OpCounts> {
        let all = up_to_edge(&self.all);
        let tasks: BTreeMap<TaskId, Vec<OpCounts>> =
            self.tasks.iter().map(|(tid, segments)| (*tid, up_to_edge(segments))).collect();
        let edge = |time: u64| self.edges.partition_point(|&e| e < time);
        self.windows
            .iter()
            .map(|w| {
                if w.end_ns <= w.begin_ns {
                    return OpCounts::default();
                }
                let sums = match w.tid {
                    None => &all,
                    Some(tid) => &tasks[&tid],
                };
                let (first, last) = (sums[edge(w.begin_ns)], sums[edge(w.end_ns)]);
                OpCounts {
                    reads: last.reads - first.reads,
                    programs: last.programs - first.programs,
                    erases: last.erases - first.erases,
                }
            })
            .collect()
    }
}

/// Entry i: the sum of all operations before edge i.
fn up_to_edge(segments: &[OpCounts]) -> Vec<OpCounts> {
    let mut sum = OpCounts::default();
    let mut sums = vec![sum];
    for segment in segments {
        sum += *segment;
        sums.push(sum);
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{access, flash};
    use FlashOp::{Erase, Program, Read};

    fn reads(windows: &[Window], events: &[Event]) -> Vec<u64> {
        let mut fold = WindowCounts::new(windows.iter().copied());
        events.iter().for_each(|e| fold.event(e));
        fold.finish().iter().map(|c| c.reads).collect()
    }

    #[test]
    fn touching_nested_and_overlapping_windows() {
        let windows = [
            Window::new(10, 20),
            Window::new(20, 30), // touches the first
            Window::new(0, 100), // around all
            Window::new(15, 25), // overlaps both
            Window::new(40, 50), // empty
        ];
        let events: Vec<Event> =
            [5, 10, 15, 19, 20, 24, 25, 30, 100].iter().map(|&t| flash(t, 1, access(Read, 0))).collect();
        // 10 15 19 | 20 24 25 | 5 … 30 | 15 19 20 24 | none; 100 is outside of all.
        assert_eq!(reads(&windows, &events), [3, 3, 8, 4, 0]);
        let mut backwards = events;
        backwards.reverse();
        assert_eq!(reads(&windows, &backwards), [3, 3, 8, 4, 0]);
    }

    #[test]
    fn a_window_of_one_task() {
        let windows = [Window::new(0, 10), Window::new(0, 10).of_task(TaskId(7))];
        let events = [flash(1, 7, access(Read, 0)), flash(2, 8, access(Read, 1)), flash(3, 7, access(Read, 2))];
        assert_eq!(reads(&windows, &events), [3, 2]);
    }

    #[test]
    fn operations_apart() {
        let mut fold = WindowCounts::new([Window::new(0, 10)]);
        for op in [Read, Program, Program, Erase, Erase, Erase] {
            fold.event(&flash(1, 1, access(op, 0)));
        }
        assert_eq!(fold.finish(), [OpCounts { reads: 1, programs: 2, erases: 3 }]);
    }

    #[test]
    fn no_windows_empty_windows_backward_windows() {
        let event = [flash(5, 1, access(Read, 0))];
        assert_eq!(reads(&[], &event), [0; 0]);
        assert_eq!(reads(&[Window::new(5, 5)], &event), [0]);
        assert_eq!(reads(&[Window::new(9, 2)], &event), [0]);
        assert_eq!(reads(&[Window::new(9, 2), Window::new(0, u64::MAX)], &event), [0, 1]);
    }
}
