//! Bios in the kernel's flush machinery, the next step of each, and the figures about flushes. The steps are in `flushes.rs`.

use super::in_flight::{Bio, NEVER};
use super::lacks::{Lacks, known};
use super::watch::Watch;
use crate::Evidence;
use crate::latency::{LatencyHistogram, LatencyNs};
use flashscope_trace::{Device, RequestFlags, RequestKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Counts and durations of flushes; times in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct FlushesFound {
    /// The flush machinery's requests to devices: from issue to completion.
    pub requests: LatencyNs,
    /// Total time of these requests: how long the devices were busy with flushes.
    pub requests_total_ns: Evidence<u64>,
    /// Bios that only flush; below: bios with data that flush before it or after it.
    pub empty_bios: Evidence<u64>,
    pub data_bios: Evidence<u64>,
    /// The steps of bios with data, as far as the trace shows them: flush before the data, the data, flush after it.
    pub before_data: LatencyNs,
    pub data: LatencyNs,
    pub after_data: LatencyNs,
}

/// The flush machinery's own requests.
#[derive(Default)]
pub(super) struct FlushRequests(LatencyHistogram);

impl Watch for FlushRequests {
    #[inline(always)]
    fn ended(&mut self, _at: u32, bio: &Bio, completed: u64) {
        if bio.kind == RequestKind::Flush && bio.is_request() && completed != NEVER {
            self.0.add(completed.saturating_sub(bio.issued));
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Needs {
    FlushBefore,
    Data,
    FlushAfter,
    End,
}

/// A span of time whose begin or end may be unknown.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub from: u64,
    pub to: u64,
}

impl Span {
    pub const UNKNOWN: Span = Span { from: NEVER, to: NEVER };

    fn count(self, times: &mut LatencyHistogram) {
        if self.from != NEVER && self.to != NEVER {
            times.add(self.to.saturating_sub(self.from));
        }
    }
}

/// A bio in the flush machinery.
pub(super) struct Waiting {
    pub at: u32,
    pub device: u16,
    pub kind: RequestKind,
    pub flags: RequestFlags,
    pub sector: u64,
    pub end: u64,
    pub empty: bool,
    pub shown: bool,
    /// It was issued itself, with its own flags.
    pub own: bool,
    pub needs: Needs,
    /// Whether its data was issued with FUA; `None` where the issue was not seen.
    pub keeps_fua: Option<bool>,
    /// Issue of the flush that it waits for.
    pub pending: u64,
    pub served: u64,
    /// No other flush was issued meanwhile: the completion was that of its flush.
    pub sure: bool,
    /// Completion of a flush, meanwhile, whose issue is not in the trace.
    pub unseen: u64,
    pub before: Span,
    pub data: Span,
    pub after: Span,
}

#[derive(Default)]
pub(super) struct Flushes {
    pub waiting: Vec<Waiting>,
    /// Upper and lower devices: a flush came in the lower one while a bio of the upper one waited for a flush, and no event shows that
    /// one lies on the other.
    pub doubtful: Vec<(Device, Device)>,
    /// Number of last completions seen.
    pub ends: u64,
    /// Devices for which an empty flush's own completion was seen.
    pub own_ends: BTreeSet<u16>,
    /// By device: issue of the last flush.
    pub last_issue: BTreeMap<u16, u64>,
    pub empty: u64,
    pub with_data: u64,
    before: LatencyHistogram,
    data: LatencyHistogram,
    after: LatencyHistogram,
}

impl Flushes {
    pub fn finish(&self, lacks: &Lacks, requests: &FlushRequests) -> FlushesFound {
        let Lacks { queueing, completions, issues, requests: no_requests, .. } = lacks;
        FlushesFound {
            requests: requests.0.finish(),
            requests_total_ns: known(requests.0.total_ns(), &[issues, completions, no_requests]),
            empty_bios: known(self.empty, &[queueing]),
            data_bios: known(self.with_data, &[queueing]),
            before_data: self.before.finish(),
            data: self.data.finish(),
            after_data: self.after.finish(),
        }
    }

    pub fn count(&mut self, waiting: &Waiting) {
        if !waiting.empty && waiting.shown {
            waiting.before.count(&mut self.before);
            waiting.data.count(&mut self.data);
            waiting.after.count(&mut self.after);
        }
    }

    /// Finds the one that a flush served last, because the end follows its flush at once; of equals the oldest.
    pub fn find_served(
        &self,
        device: u16,
        fits: impl Fn(&Waiting) -> bool,
        served: impl Fn(&Waiting) -> u64,
    ) -> Option<usize> {
        let all = self.waiting.iter().enumerate().filter(|(_, one)| one.device == device && fits(one));
        all.min_by_key(|(_, one)| u64::MAX - served(one)).map(|(at, _)| at)
    }

    pub fn find(&self, device: u16, fits: impl Fn(&Waiting) -> bool) -> Option<usize> {
        self.waiting.iter().position(|one| one.device == device && fits(one))
    }
}
