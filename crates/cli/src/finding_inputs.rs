//! Inputs of the findings that are not in the report itself.

use flashscope_analysis::Analysis as _;
use flashscope_analysis::block::BlockReport;
use flashscope_analysis::calls::{Calls, CallsFound};
use flashscope_analysis::findings::{self, Seen, StorageFacts};
use flashscope_analysis::usage::{Usage, UsageFound};
use flashscope_analysis::{Evidence, FlashReport, Lookup, LossCount, Named, name_calls};
use flashscope_trace::{BlockAction, Event, EventKind, RequestFlags, TimeNs, split_task_label};

use crate::inputs::Inputs;

/// Analyses events for the findings, besides the report's own analysis.
pub struct FindingInputs<L> {
    calls: Calls<L>,
    usage: Usage,
    is_of_process: bool,
    /// Times of the first and the last event of this recording that is shown; before: the length of recordings before.
    span: Option<(u64, u64)>,
    before_ns: u64,
}

impl<L: Lookup<Name: Named>> FindingInputs<L> {
    pub fn new(lookup: L, process: Option<&str>, inputs: &Inputs) -> Self {
        let calls = Calls::new(lookup).only(process).files(&inputs.names().0).of_device(inputs.is_of_device());
        // A recording of one device lacks pages of that device's own cache.
        let has_pages =
            inputs.traces().any(|trace| trace.schemas().any(|one| one.name == "mm_filemap_add_to_page_cache"));
        let usage = Usage::default().of_files_alone(inputs.is_of_device() && has_pages);
        FindingInputs { calls, usage, is_of_process: process.is_some(), span: None, before_ns: 0 }
    }

    #[inline]
    pub fn event(&mut self, event: &Event, shown: bool) {
        if event.kind == EventKind::Recording {
            self.calls.event(event);
            self.usage.event(event);
            self.before_ns = self.span_ns();
            self.span = None;
            return;
        }
        // For calls, only a bio's queueing and completion matter; for usage, its queueing and requests of the class idle.
        let (for_calls, for_usage) = match &event.kind {
            EventKind::Block(block) => {
                let queued = block.action == BlockAction::Queue;
                let idle = block.action == BlockAction::Insert && block.flags.has(RequestFlags::IDLE);
                (queued || block.action == BlockAction::Complete, queued || idle)
            }
            _ => (true, true),
        };
        if for_calls {
            self.calls.counts = shown;
            self.calls.event(event);
        }
        if shown {
            if for_usage {
                self.usage.event(event);
            }
            let (_, last) = self.span.get_or_insert((event.time.0, event.time.0));
            *last = event.time.0.max(*last);
        }
    }

    /// The length of the shown range, without the time between recordings.
    fn span_ns(&self) -> u64 {
        self.before_ns.saturating_add(self.span.map_or(0, |(begin, end)| end.saturating_sub(begin)))
    }

    /// Calls, usage and the length of the shown range.
    fn finish(self, inputs: &Inputs) -> OfTrace {
        let span_ns = self.span_ns();
        let mut calls = self.calls.finish();
        name_calls(&mut calls, &inputs.names().0);
        let usage = self.usage.finish();
        OfTrace { storage: of_tasks(inputs, &calls, &usage), calls, usage, is_of_process: self.is_of_process, span_ns }
    }

    pub fn of_block(self, inputs: &Inputs, report: &mut BlockReport) {
        let of_trace = self.finish(inputs);
        report.losses.extend(of_trace.losses());
        report.findings = findings::find(&Seen {
            block: Some(&report.found),
            own_wear: &report.system.wear,
            readahead: report.readahead.as_ref().and_then(Evidence::known),
            ..of_trace.seen(&report.losses)
        });
        report.calls = of_trace.calls;
    }

    pub fn of_flash(self, inputs: &Inputs, report: &mut FlashReport) {
        let of_trace = self.finish(inputs);
        report.losses.extend(of_trace.losses());
        report.findings = findings::find(&Seen {
            flash: Some(&report.found),
            life: &report.life,
            own_wear: &report.system.wear,
            readahead: report.readahead.as_ref().and_then(Evidence::known),
            ..of_trace.seen(&report.losses)
        });
        report.calls = of_trace.calls;
    }
}

/// The inputs of findings that all traces have.
struct OfTrace {
    storage: StorageFacts,
    calls: CallsFound,
    usage: UsageFound,
    is_of_process: bool,
    span_ns: u64,
}

impl OfTrace {
    /// Calls and usage above the limits.
    fn losses(&self) -> Vec<LossCount> {
        [self.calls.losses(), self.usage.losses()].concat()
    }

    fn seen<'a>(&'a self, losses: &'a [LossCount]) -> Seen<'a> {
        Seen {
            storage: &self.storage,
            block: None,
            flash: None,
            life: &[],
            own_wear: &[],
            readahead: None,
            calls: &self.calls,
            usage: &self.usage,
            losses,
            is_of_process: self.is_of_process,
            span_ns: self.span_ns,
        }
    }
}

/// Storage, with the last known processes of threads with calls, and of those that read.
fn of_tasks(inputs: &Inputs, calls: &CallsFound, usage: &UsageFound) -> StorageFacts {
    let mut storage = storage(inputs);
    let callers = calls.by_process.iter().filter_map(|group| split_task_label(&group.name)).map(|(_, tid, _)| tid);
    for tid in callers.chain(usage.readers.iter().map(|reader| reader.tid)) {
        let Some(process) = inputs.process(0, tid, TimeNs::MAX) else { continue };
        storage.processes.insert(tid, process.pid);
        if process.is_of_command {
            storage.command_threads.insert(tid);
        }
        if process.command.is_some_and(findings::is_run_by_python) {
            storage.python_threads.insert(tid);
        }
    }
    storage
}

/// Mounts and devices of the first machine.
fn storage(inputs: &Inputs) -> StorageFacts {
    inputs.traces().next().map(StorageFacts::of_recording).unwrap_or_default()
}
