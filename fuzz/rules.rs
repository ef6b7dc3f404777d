//! Findings: what every rule says of a trace, as `report` collects it.

use flashscope_analysis::block::BlockReport;
use flashscope_analysis::calls::Calls;
use flashscope_analysis::findings::{self, Finding, Seen, StorageFacts};
use flashscope_analysis::usage::Usage;
use flashscope_analysis::{Analysis, Evidence, FlashReport};
use flashscope_trace::Trace;

/// The report that the rules look at.
#[derive(Clone, Copy)]
pub enum Of<'a> {
    Block(&'a BlockReport),
    Flash(&'a FlashReport),
}

/// Calls and usage of a trace, and the findings of all rules on a report of it.
pub fn find(trace: &Trace, of: Of<'_>) -> Vec<Finding> {
    let mut calls = Calls::new(|tid, time| trace.comm(tid, time)).files(&trace.file_names());
    let mut usage = Usage::default();
    let mut span: Option<(u64, u64)> = None;
    let _ = trace.for_each(&mut |event| {
        calls.event(event);
        usage.event(event);
        let (_, last) = span.get_or_insert((event.time.0, event.time.0));
        *last = event.time.0.max(*last);
    });
    let (calls, usage) = (calls.finish(), usage.finish());
    let losses = [calls.losses(), usage.losses()].concat();
    let (begin, end) = span.unwrap_or_default();
    let (system, readahead) = match of {
        Of::Block(report) => (&report.system, &report.readahead),
        Of::Flash(report) => (&report.system, &report.readahead),
    };
    let mut seen = Seen {
        storage: &StorageFacts::of_recording(trace),
        block: None,
        flash: None,
        life: &[],
        own_wear: &system.wear,
        readahead: readahead.as_ref().and_then(Evidence::known),
        calls: &calls,
        usage: &usage,
        losses: &losses,
        is_of_process: false,
        span_ns: end.saturating_sub(begin),
    };
    match of {
        Of::Block(report) => seen.block = Some(&report.found),
        Of::Flash(report) => seen.flash = Some(&report.found),
    }
    findings::find(&seen)
}
