//! What tasks did before their first calls: since when each could run, and for how long it had run. Who comes first where calls overlap
//! hinges on it.

use std::collections::{BTreeMap, HashMap};

use super::held::can_run;

/// Tasks that are followed until their first call; what comes beyond is taken to begin with it.
const MAX_TASKS: usize = 1 << 12;

/// A task before its first call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Came {
    /// Since when it could run, as far as the trace shows: since it was made, or since it got the processor after it had slept.
    pub since_ns: u64,
    /// It was made then.
    pub is_new: bool,
    /// When it got the processor on which it made the call.
    pub got_ns: u64,
    /// How long it had run since it came, and how much of that was before any task's first call.
    pub ran_ns: u64,
    pub ran_before_all_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct Ready {
    came: Came,
    runs_since: Option<u64>,
}

impl Ready {
    fn at(time_ns: u64, is_new: bool) -> Ready {
        Ready { came: Came { since_ns: time_ns, is_new, ..Came::default() }, runs_since: None }
    }

    fn ran_ns(&self, time_ns: u64) -> u64 {
        self.came.ran_ns.saturating_add(self.runs_since.map_or(0, |since| time_ns.saturating_sub(since)))
    }
}

/// From a trace with `sched_switch`, and `task_newtask` for tasks that are made in it.
#[derive(Debug, Default)]
pub struct FirstCalls {
    ready: HashMap<u32, Ready>,
    has_begun: bool,
    pub came: BTreeMap<u32, Came>,
    /// Times that a task came and was not followed, for want of room.
    pub not_followed: u64,
}

impl FirstCalls {
    pub fn made(&mut self, time_ns: u64, tid: u32) {
        if self.came.contains_key(&tid) {
            return;
        }
        if self.ready.len() < MAX_TASKS {
            self.ready.insert(tid, Ready::at(time_ns, true));
        } else {
            self.not_followed += 1;
        }
    }

    /// The processor goes from `prev`, in that state, to `next`.
    pub fn switched(&mut self, time_ns: u64, prev: u32, prev_state: i64, next: u32) {
        if !can_run(prev_state) {
            self.ready.remove(&prev);
        } else if let Some(ready) = self.ready.get_mut(&prev) {
            (ready.came.ran_ns, ready.runs_since) = (ready.ran_ns(time_ns), None);
        }
        if next == 0 || self.came.contains_key(&next) {
            return;
        }
        if self.ready.len() < MAX_TASKS || self.ready.contains_key(&next) {
            let ready = self.ready.entry(next).or_insert_with(|| Ready::at(time_ns, false));
            ready.runs_since = Some(time_ns);
            ready.came.got_ns = time_ns;
        } else {
            self.not_followed += 1;
        }
    }

    /// A task begins a call.
    pub fn called(&mut self, time_ns: u64, tid: u32) {
        if !std::mem::replace(&mut self.has_begun, true) {
            for ready in self.ready.values_mut() {
                ready.came.ran_before_all_ns = ready.ran_ns(time_ns);
            }
        }
        // Without `sched_switch` nothing says when it ran.
        if let Some(ready) = self.ready.remove(&tid).filter(|ready| ready.runs_since.is_some()) {
            let ran_ns = ready.ran_ns(time_ns);
            self.came.insert(tid, Came { ran_ns, ..ready.came });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASLEEP: i64 = 1;

    #[test]
    fn what_a_task_did_before_its_first_call() {
        let mut calls = FirstCalls::default();
        calls.made(100, 8);
        calls.made(150, 9);
        calls.switched(200, 7, ASLEEP, 9);
        // 7 wakes and sleeps again.
        calls.switched(300, 9, 0, 7);
        calls.switched(310, 7, ASLEEP, 9);
        calls.called(500, 9);
        calls.switched(600, 9, 0x100, 8);
        calls.called(640, 8);
        calls.switched(700, 8, ASLEEP, 7);
        calls.called(710, 7);
        calls.called(720, 9);
        let came = |since_ns, is_new, got_ns, ran_ns, ran_before_all_ns| Came {
            since_ns,
            is_new,
            got_ns,
            ran_ns,
            ran_before_all_ns,
        };
        let expected =
            [(7, came(700, false, 700, 10, 0)), (8, came(100, true, 600, 40, 0)), (9, came(150, true, 310, 290, 290))];
        assert_eq!(calls.came, BTreeMap::from(expected));
    }

    #[test]
    fn who_never_got_the_processor_or_is_one_too_many_is_not_known() {
        let mut calls = FirstCalls::default();
        calls.called(10, 1);
        (0..MAX_TASKS as u32).for_each(|tid| calls.made(20, tid + 10));
        calls.switched(30, 0, 0, 5);
        calls.called(40, 5);
        calls.called(50, 10);
        assert_eq!((calls.came, calls.not_followed), (BTreeMap::new(), 1));
    }
}
