//! Records and their typed form side by side: what exports with both need.

use crate::decode::Geometry;
use crate::decode::reads::Reads;
use crate::error::Error;
use crate::events::phase::Phases;
use crate::events::{Event, EventKind, TimeNs};
use crate::record::Record;
use crate::source::Beside;
use crate::trace::Trace;

/// A record, its event, or both.
#[derive(Clone, Copy, Debug)]
pub struct Pair<'a> {
    /// `None` for phases and marks, which were never in a ring.
    pub record: Option<&'a Record<'a>>,
    /// `None` where a record has no typed form (a return without its beginning, a record that is too short).
    pub event: Option<&'a Event>,
}

impl Pair<'_> {
    pub fn time(&self) -> TimeNs {
        self.record.map(|r| r.time).or(self.event.map(|e| e.time)).unwrap_or(TimeNs(0))
    }

    pub fn cpu(&self) -> u16 {
        self.record.map(|r| r.cpu).or(self.event.map(|e| e.cpu)).unwrap_or(0)
    }

    pub fn tid(&self) -> u32 {
        self.event.map(|e| e.tid).or(self.record.map(Record::tid)).unwrap_or(0)
    }
}

impl Trace {
    /// Hands every record with its event to `f`, oldest first, and phases among them. What it borrows is valid during the
    /// call only.
    pub fn for_each_pair(&self, f: &mut dyn FnMut(Pair<'_>)) -> Result<(), Error> {
        self.pairs(&Reads::default(), f)
    }

    /// As [`Trace::for_each_pair`], and reads of files beside them that only `mm_filemap_get_pages` shows, as events without a record.
    pub fn for_each_access(&self, f: &mut dyn FnMut(Pair<'_>)) -> Result<(), Error> {
        self.pairs(self.reads(), f)
    }

    fn pairs(&self, reads: &Reads, f: &mut dyn FnMut(Pair<'_>)) -> Result<(), Error> {
        let beside = Beside { geometry: Geometry::from_facts(self.facts()), reads, phases: &self.phases };
        let decoded = self.source.for_each_pair(&beside, f).map_err(|e| Error::io(&self.path, "read", e))?;
        self.set_losses(&decoded);
        Ok(())
    }
}

/// Phases and marks as events, between the others.
pub(crate) struct PhaseEvents {
    /// Oldest last; true: comes before events of the same time.
    waiting: Vec<(u64, bool, Event)>,
}

impl PhaseEvents {
    pub fn new(phases: &Phases) -> PhaseEvents {
        let mut waiting = Vec::new();
        let event = |time: u64, pid: u32, kind: EventKind| Event { time: TimeNs(time), cpu: 0, tid: pid, kind };
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
        // Stable: a phase's begin stays before its end where both are at one time.
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
