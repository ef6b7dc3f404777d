//! A format to copy: one line per request, `time,device,operation,sector,bytes,tid,task,end`, times in seconds.
//!
//! It is compiled for tests only. CONTRIBUTING.md describes the steps.

use super::parsed::{Item, NOTHING_RECORDED};
use super::text::{Dialect, Lines};
use super::{Format, Reader};
use crate::formats::ftrace::{of_event, time};
use crate::ids::TaskId;
use crate::kind::TraceKind;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

pub(super) const FORMAT: Format = Format {
    name: "the example",
    read: "yes",
    written: "no",
    recognised_by: "lines `time,device,operation,sector,bytes,tid,task,end`",
    reader: Reader::Lines(Dialect {
        kind: TraceKind::FtraceText,
        key: "example",
        title: "the example's text",
        clock: "unknown",
        why_no_event: NOTHING_RECORDED,
        lines: || Box::<Requests>::default(),
    }),
};

/// Largest number of completions that wait for later lines. Above it the earliest one is reported too early and counts as
/// `times_backwards`.
const MAX_PENDING: usize = 1 << 16;

#[derive(Default)]
struct Requests {
    /// Completions that are to be reported after later lines: time, thread, text.
    pending: BinaryHeap<Reverse<(u64, u32, String)>>,
}

impl Lines for Requests {
    fn line(&mut self, text: &[u8], f: &mut dyn FnMut(Item<'_>)) {
        if !text.starts_with(b"time,") && self.request(text, f).is_none() {
            f(Item::Malformed(text));
        }
    }

    fn end(&mut self, f: &mut dyn FnMut(Item<'_>)) {
        self.complete_until(u64::MAX, f);
    }
}

impl Requests {
    fn request(&mut self, line: &[u8], f: &mut dyn FnMut(Item<'_>)) -> Option<()> {
        let fields: Vec<&str> = std::str::from_utf8(line).ok()?.split(',').collect();
        let [begin, device, operation, sector, bytes, tid, task, end] = fields[..] else { return None };
        let (begin, end) = (time(begin.as_bytes())?, time(end.as_bytes())?);
        let (major, minor) = device.split_once(':')?;
        let (tid, sectors) = (TaskId(tid.parse().ok()?), bytes.parse::<u64>().ok()? / 512);
        self.complete_until(begin, f);
        f(Item::Task { tid, comm: task.as_bytes(), time: begin });
        let (what, range) = (format!("{major},{minor} {operation}"), format!("{sector} + {sectors}"));
        event("block_bio_queue", begin, tid, &format!("{what} {range} [{task}]"), f)?;
        event("block_rq_issue", begin, tid, &format!("{what} {bytes} () {range} [{task}]"), f)?;
        self.pending.push(Reverse((end, tid.0, format!("{what} () {range} [0]"))));
        Some(())
    }

    /// Reports the completions up to a time.
    fn complete_until(&mut self, now: u64, f: &mut dyn FnMut(Item<'_>)) {
        while self.pending.peek().is_some_and(|Reverse(first)| first.0 <= now) || self.pending.len() > MAX_PENDING {
            let Some(Reverse((time, tid, text))) = self.pending.pop() else { return };
            let _ = event("block_rq_complete", time, TaskId(tid), &text, f);
        }
    }
}

/// Makes one event, with the text that the kernel would have printed.
fn event(name: &str, time: u64, tid: TaskId, text: &str, f: &mut dyn FnMut(Item<'_>)) -> Option<()> {
    let parsed = of_event("block", name, text.as_bytes())?;
    f(Item::Event { cpu: 0, time: Some(time), tid, flags: b"", text: text.as_bytes(), parsed: &parsed });
    Some(())
}

#[test]
fn requests_come_in_order_of_time() {
    const FIXTURE: &[u8] = b"time,device,operation,sector,bytes,tid,task,end\n\
        1.000000,8:0,R,2048,4096,77,dd,1.000500\n\
        1.000100,8:0,W,2056,8192,78,cp,1.000200\n\
        1.000400,8:0\n";
    let trace = super::trace_of(&FORMAT, FIXTURE);
    let mut seen = Vec::new();
    trace
        .for_each(&mut |event| {
            let crate::EventKind::Block(block) = &event.kind else { panic!("{event:?}") };
            let task = trace.comm(event.tid, event.time).unwrap();
            seen.push((event.time.0 / 1000, format!("{task} {:?}", block.action), block.sector, block.bytes));
        })
        .unwrap();
    let step = |time, what: &str, sector, bytes| (time, what.to_string(), sector, bytes);
    assert_eq!(
        seen,
        [
            step(1_000_000, "dd Queue", 2048, 4096),
            step(1_000_000, "dd Issue", 2048, 4096),
            step(1_000_100, "cp Queue", 2056, 8192),
            step(1_000_100, "cp Issue", 2056, 8192),
            step(1_000_200, "cp Complete", 2056, 8192),
            step(1_000_500, "dd Complete", 2048, 4096),
        ]
    );
    assert_eq!(
        (trace.losses().get(crate::Loss::LinesMalformed), trace.losses().get(crate::Loss::TimesBackwards)),
        (1, 0)
    );
}
