//! Attributes I/O to a thread, its process or its application, and selects the I/O to show (`report --by`, `--process`).

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
    /// `wanted` as a label of a table: `tar (500, 2nd)`; `None` for other text.
    label: Option<(&'i str, TaskId, u32)>,
}

impl<'i> Attribution<'i> {
    pub fn new(inputs: &'i Inputs, args: &'i ReportArgs) -> Attribution<'i> {
        let wanted = args.process.as_deref();
        let label = wanted.and_then(split_task_label);
        Attribution { inputs, by: args.by.unwrap_or(ReportBy::Thread), wanted, label }
    }

    /// The same selection with another attribution.
    pub fn by(self, by: ReportBy) -> Attribution<'i> {
        Attribution { by, ..self }
    }

    /// Whether a thread is selected, by any of its names.
    pub fn is_wanted(&self, source: usize, tid: TaskId, time: TimeNs) -> bool {
        let Some(wanted) = self.wanted else { return true };
        self.inputs.comm(source, tid, time) == Some(wanted)
            || self.inputs.process(source, tid, time).is_some_and(|process| process.is_called(wanted))
            || self.label.is_some_and(|label| self.is_labelled(label, source, tid, time))
    }

    /// Whether a table has this label for the thread or its process.
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

    /// The member that a thread's I/O counts for; `None` if the trace has no name for the thread.
    pub fn member(&self, source: usize, tid: TaskId, time: TimeNs) -> Option<Member<'i>> {
        let (name, key) = self.named(source, tid, time)?;
        let is_wanted = self.wanted.is_some() && self.is_wanted(source, tid, time);
        let ordinal = match key {
            // The whole application.
            Some(TaskId(0)) => 1,
            _ if name == OWN_RECORDING => 1,
            key => self.inputs.task_ordinal(source, key.unwrap_or(tid), time),
        };
        let former_name = match key {
            Some(TaskId(0)) => None,
            key => self.inputs.former_name(source, key.unwrap_or(tid), time),
        };
        Some(Member { name, key, ordinal, is_wanted, former_name, holds: 0..0 })
    }

    /// Like `member`, with the range of time that it holds for.
    pub fn lasting_member(&self, source: usize, tid: TaskId, time: TimeNs) -> Option<Member<'i>> {
        let member = self.member(source, tid, time)?;
        let by_names = self.wanted.is_none() && !matches!(self.by, ReportBy::App | ReportBy::Process);
        let holds = self.inputs.only().filter(|_| by_names).map_or(0..0, |trace| trace.names_hold(tid, time));
        Some(Member { holds, ..member })
    }

    /// Only the member's name.
    pub fn group(&self, source: usize, tid: TaskId, time: TimeNs) -> Option<Cow<'i, str>> {
        self.named(source, tid, time).map(|(name, _)| name)
    }

    /// The member for calls: the thread, or the selected name.
    pub fn thread_or_wanted(&self, source: usize, tid: TaskId, time: TimeNs) -> Option<Member<'i>> {
        let name = Cow::Borrowed(self.name_or_wanted(source, tid, time)?);
        let ordinal = self.inputs.task_ordinal(source, tid, time);
        let former_name = self.inputs.former_name(source, tid, time);
        Some(Member { name, key: None, ordinal, is_wanted: false, former_name, holds: 0..0 })
    }

    /// The thread's name; for selected threads, the requested name.
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
            // A kernel thread keeps its own name.
            (_, Some(app)) if app.kind == AppKind::Kernel => thread(),
            (ReportBy::App, Some(app)) => {
                Some((Cow::Owned(process.app_label().unwrap_or_else(|| app.to_string())), Some(TaskId(0))))
            }
            // Processes with one name, such as shells, are one application. After an `exec` it is another one.
            (ReportBy::App, None) => {
                let then = self.inputs.former_name(source, process.pid.first_thread(), time);
                then.or(process.name).map(|name| (Cow::Borrowed(name), Some(TaskId(0)))).or_else(thread)
            }
            (_, _) => process.name.map(|name| (Cow::Borrowed(name), Some(process.pid.first_thread()))).or_else(thread),
        }
    }
}
