//! Findings of a report: what rules look at beside the report's own figures.

use flashscope_analysis::Analysis as _;
use flashscope_analysis::block::BlockReport;
use flashscope_analysis::calls::{Calls, CallsFound};
use flashscope_analysis::findings::{self, Seen, StorageFacts};
use flashscope_analysis::{FlashReport, LossCount};
use flashscope_trace::{Event, TimeNs, Trace};

use crate::inputs::Inputs;

/// Takes the events of a report in beside its own analysis.
pub struct Answers<L> {
    calls: Calls<L>,
    /// Times of the first and the last event that is shown.
    span: Option<(u64, u64)>,
}

impl<L, N> Answers<L>
where
    L: FnMut(u32, TimeNs) -> Option<N>,
    N: AsRef<str>,
{
    pub fn new(lookup: L, process: Option<&str>) -> Self {
        Answers { calls: Calls::new(lookup).only(process), span: None }
    }

    pub fn event(&mut self, event: &Event, shown: bool) {
        self.calls.counts = shown;
        self.calls.event(event);
        if shown {
            let (_, last) = self.span.get_or_insert((event.time.0, event.time.0));
            *last = event.time.0.max(*last);
        }
    }

    fn finish(self) -> (CallsFound, u64) {
        let (begin, end) = self.span.unwrap_or((0, 0));
        (self.calls.finish(), end.saturating_sub(begin))
    }

    pub fn of_block(self, inputs: &Inputs, report: &mut BlockReport) {
        let (calls, span_ns) = self.finish();
        let storage = storage(inputs);
        let seen = Seen { block: Some(&report.found), ..seen(&storage, &calls, &report.losses, span_ns) };
        report.findings = findings::find(&seen);
        report.calls = calls;
    }

    pub fn of_flash(self, inputs: &Inputs, report: &mut FlashReport) {
        let (calls, span_ns) = self.finish();
        let storage = storage(inputs);
        report.findings = findings::find(&seen(&storage, &calls, &report.losses, span_ns));
        report.calls = calls;
    }
}

fn seen<'a>(storage: &'a StorageFacts, calls: &'a CallsFound, losses: &'a [LossCount], span_ns: u64) -> Seen<'a> {
    Seen { storage, block: None, calls, losses, span_ns }
}

/// Mounts and devices of the first machine.
fn storage(inputs: &Inputs) -> StorageFacts {
    inputs.traces().next().map(Trace::facts).map(StorageFacts::of_facts).unwrap_or_default()
}
