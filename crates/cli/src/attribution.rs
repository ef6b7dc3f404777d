//! What I/O is counted for, and which is shown: a thread, its process or its application (`report --by`, `--process`).

use std::borrow::Cow;

use flashscope_analysis::{Member, OWN_RECORDING, split_task_label};
use flashscope_trace::{AppKind, TaskId, TimeNs};

use crate::args::{ReportArgs, ReportBy};
use crate::inputs::Inputs;

#[derive(Clone, Copy)]
pub struct Attribution<'i> {
    pub inputs: &'i Inputs,
    by: ReportBy,
    wanted: Option<&'i str>,
    /// The same, where it is a label of a table: `tar (500, 2nd)`.
    label: Option<(&'i str, TaskId, u32)>,
}

impl<'i> Attribution<'i> {
    pub fn new(inputs: &'i Inputs, args: &'i ReportArgs) -> Attribution<'i> {
        let wanted = args.process.as_deref();
        let label = wanted.and_then(split_task_label);
        Attribution { inputs, by: args.by.unwrap_or(ReportBy::Thread), wanted, label }
    }

    /// The same, where I/O is counted for something else.
    pub fn by(self, by: ReportBy) -> Attribution<'i> {
        Attribution { by, ..self }
    }

    /// Whether a thread is of what is shown, by any of its names.
    pub fn is_wanted(&self, source: usize, tid: TaskId, time: TimeNs) -> bool {
        let Some(wanted) = self.wanted else { return true };
        self.inputs.comm(source, tid, time) == Some(wanted)
            || self.inputs.process(source, tid, time).is_some_and(|process| process.is_called(wanted))
            || self.label.is_some_and(|label| self.is_labelled(label, source, tid, time))
    }

    /// Whether a table calls this thread, or its process, so.
    fn is_labelled(
        &self,
        (name, number, ordinal): (&str, TaskId, u32),
        source: usize,
        tid: TaskId,
        time: TimeNs,
    ) -> bool {
        let is = |task: TaskId| {
            self.inputs.comm(source, task, time) == Some(name)
                && self.inputs.task_ordinal(source, task, time) == ordinal
        };
        let of_process =
            || self.inputs.process(source, tid, time).is_some_and(|process| process.pid.first_thread() == number);
        (tid == number || of_process()) && is(number)
    }

    /// What a thread is counted as; `None` where the trace has no name for it.
    pub fn member(&self, source: usize, tid: TaskId, time: TimeNs) -> Option<Member<'i>> {
        let (name, key) = self.named(source, tid, time)?;
        let is_wanted = self.wanted.is_some() && self.is_wanted(source, tid, time);
        let ordinal = match key {
            // All of an application.
            Some(TaskId(0)) => 1,
            _ if name == OWN_RECORDING => 1,
            key => self.inputs.task_ordinal(source, key.unwrap_or(tid), time),
        };
        Some(Member { name, key, ordinal, is_wanted, holds: 0..0 })
    }

    /// The same, with the times for which it is the answer.
    pub fn lasting_member(&self, source: usize, tid: TaskId, time: TimeNs) -> Option<Member<'i>> {
        let member = self.member(source, tid, time)?;
        let by_names = self.wanted.is_none() && !matches!(self.by, ReportBy::App | ReportBy::Process);
        let holds = self.inputs.only().filter(|_| by_names).map_or(0..0, |trace| trace.names_hold(tid, time));
        Some(Member { holds, ..member })
    }

    /// The name alone.
    pub fn group(&self, source: usize, tid: TaskId, time: TimeNs) -> Option<Cow<'i, str>> {
        self.named(source, tid, time).map(|(name, _)| name)
    }

    /// The same for calls.
    pub fn thread_or_wanted(&self, source: usize, tid: TaskId, time: TimeNs) -> Option<Member<'i>> {
        let name = Cow::Borrowed(self.name_or_wanted(source, tid, time)?);
        let ordinal = self.inputs.task_ordinal(source, tid, time);
        Some(Member { name, key: None, ordinal, is_wanted: false, holds: 0..0 })
    }

    /// The thread's name; of what is shown, the name that was requested.
    pub fn name_or_wanted(&self, source: usize, tid: TaskId, time: TimeNs) -> Option<&'i str> {
        match self.wanted {
            Some(wanted) if self.is_wanted(source, tid, time) => Some(wanted),
            _ => self.inputs.comm(source, tid, time),
        }
    }

    fn named(&self, source: usize, tid: TaskId, time: TimeNs) -> Option<(Cow<'i, str>, Option<TaskId>)> {
        if let Some(recorder) = self.inputs.recorder(source, tid) {
            return Some((Cow::Borrowed(OWN_RECORDING), Some(recorder)));
        }
        let thread = || self.inputs.comm(source, tid, time).map(|name| (Cow::Borrowed(name), None));
        if !matches!(self.by, ReportBy::App | ReportBy::Process) {
            return thread();
        }
        let Some(process) = self.inputs.process(source, tid, time) else { return thread() };
        match (self.by, process.app) {
            // The work of a kernel thread goes by its own name.
            (_, Some(app)) if app.kind == AppKind::Kernel => thread(),
            (ReportBy::App, Some(app)) => Some((Cow::Owned(app.to_string()), Some(TaskId(0)))),
            // Processes of one name, as a shell's, are one application.
            (ReportBy::App, None) => process.name.map(|name| (Cow::Borrowed(name), Some(TaskId(0)))).or_else(thread),
            (_, _) => process.name.map(|name| (Cow::Borrowed(name), Some(process.pid.first_thread()))).or_else(thread),
        }
    }
}
