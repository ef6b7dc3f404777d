//! Records together with their typed events, for exports that need both.

use crate::events::phase::Phases;
use crate::events::{Event, EventKind, TimeNs};
use crate::ids::TaskId;
use crate::record::Record;

/// A record, its event, or both.
#[derive(Clone, Copy, Debug)]
pub struct Pair<'a> {
    /// `None` for phases and marks, which do not come from a ring buffer.
    pub record: Option<&'a Record<'a>>,
    /// `None` if the record has no typed form (a return without its beginning, a record that is too short).
    pub event: Option<&'a Event>,
}

impl Pair<'_> {
    pub fn time(&self) -> TimeNs {
        self.record.map(|r| r.time).or(self.event.map(|e| e.time)).unwrap_or(TimeNs(0))
    }

    pub fn cpu(&self) -> u16 {
        self.record.map(|r| r.cpu).or(self.event.map(|e| e.cpu)).unwrap_or(0)
    }

    pub fn tid(&self) -> TaskId {
        self.event.map(|e| e.tid).or(self.record.map(Record::tid)).unwrap_or_default()
    }
}

/// Turns phases and marks into events, in order between the others.
pub(crate) struct PhaseEvents {
    /// Oldest last. `true`: sorted before events of the same time.
    waiting: Vec<(u64, bool, Event)>,
}

impl PhaseEvents {
    pub fn new(phases: &Phases) -> PhaseEvents {
        let mut waiting = Vec::new();
        let event = |time: u64, pid: TaskId, kind: EventKind| Event { time: TimeNs(time), cpu: 0, tid: pid, kind };
        for p in &phases.phases {
            let name = p.name.clone();
            waiting.push((p.begin_ns, true, event(p.begin_ns, p.pid, EventKind::PhaseBegin { name })));
            if let Some(end) = p.end_ns {
                let name = p.name.clone();
                waiting.push((end, false, event(end, p.pid, EventKind::PhaseEnd { name })));
            }
        }
        for m in &phases.marks {
            let name = m.name.clone();
            waiting.push((m.time_ns, true, event(m.time_ns, m.pid, EventKind::Mark { name })));
        }
        // The sort is stable: a phase's begin stays before its end if both have the same time.
        waiting.sort_by_key(|&(time, first, _)| (time, !first));
        waiting.reverse();
        PhaseEvents { waiting }
    }

    #[inline]
    pub fn before(&mut self, time: TimeNs, f: &mut dyn FnMut(&Event)) {
        while let Some((t, first, event)) = self.waiting.last()
            && (*t < time.0 || (*t == time.0 && *first))
        {
            f(event);
            self.waiting.pop();
        }
    }

    pub fn rest(&mut self, f: &mut dyn FnMut(&Event)) {
        while let Some((_, _, event)) = self.waiting.pop() {
            f(&event);
        }
    }
}
