//! Named parts of a run.

use crate::ids::TaskId;
use crate::losses::{Loss, Losses};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// A named part of a run; times are the trace clock's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct Phase {
    pub name: String,
    pub begin_ns: u64,
    /// `None`: the recording ended before the phase did.
    pub end_ns: Option<u64>,
    /// The task that the phase is about; 0: none.
    pub pid: TaskId,
    /// The producer of the message (the number of a plan's step).
    pub source: u16,
}

/// A named moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct Mark {
    pub name: String,
    pub time_ns: u64,
    pub pid: TaskId,
    pub source: u16,
}

/// Phases kept in all.
const MAX_PHASES: usize = 20_000;

/// Joins begin, end and mark messages to phases. Begin and end of a phase may come from different producers (two steps of a plan): they are
/// joined by name, the innermost phase first.
#[derive(Clone, Debug, Default, Serialize, JsonSchema, Deserialize)]
pub(crate) struct Phases {
    pub phases: Vec<Phase>,
    pub marks: Vec<Mark>,
    #[serde(skip)]
    open: HashMap<String, Vec<usize>>,
}

impl Phases {
    pub fn begin(&mut self, name: &str, time: u64, pid: TaskId, source: u16, losses: &mut Losses) {
        if self.phases.len() >= MAX_PHASES {
            losses.add(Loss::FramesMalformed, 1);
            return;
        }
        self.open.entry(name.to_string()).or_default().push(self.phases.len());
        self.phases.push(Phase { name: name.to_string(), begin_ns: time, end_ns: None, pid, source });
    }

    pub fn end(&mut self, name: &str, time: u64, losses: &mut Losses) {
        match self.open.get_mut(name).and_then(Vec::pop) {
            Some(i) => self.phases[i].end_ns = Some(time),
            None => losses.add(Loss::PhasesUnmatched, 1),
        }
    }

    pub fn mark(&mut self, name: &str, time: u64, pid: TaskId, source: u16, losses: &mut Losses) {
        if self.marks.len() >= MAX_PHASES {
            losses.add(Loss::FramesMalformed, 1);
            return;
        }
        self.marks.push(Mark { name: name.to_string(), time_ns: time, pid, source });
    }

    /// Sorts phases and marks by their beginning.
    pub fn sort(&mut self) {
        self.open.clear();
        self.phases.sort_by_key(|p| (p.begin_ns, std::cmp::Reverse(p.end_ns.unwrap_or(u64::MAX))));
        self.marks.sort_by_key(|m| m.time_ns);
    }
}
