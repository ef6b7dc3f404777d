//! Load over time: bios in flight, work done, and distances between requests.
//!
//! A request begins at the sector it is issued for. A zone append begins where the device wrote it, which its completion shows, and counts then.

use super::in_flight::{Bio, NEVER, NONE};
use super::lacks::{Lacks, known};
use super::service::InService;
use super::watch::{Step, Watch};
use crate::Evidence;
use crate::latency::{LatencyHistogram, LatencyNs};
use flashscope_trace::{BlockAction, BlockEvent, RequestKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Most windows: more cannot be drawn.
const MAX_WINDOWS: usize = 512;
/// The narrowest window, nanoseconds: a power of two.
const NARROWEST_SHIFT: u32 = 10;

/// One window of time. A figure is `None` (null) where the trace lacks the events that it needs; the totals beside the
/// windows have the reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct BlockWindow {
    pub queued: Option<u64>,
    pub completed: Option<u64>,
    pub read_bytes: Option<u64>,
    pub written_bytes: Option<u64>,
    pub merges: Option<u64>,
    /// Requests that did not begin where the one before on their device had ended.
    pub seeks: Option<u64>,
    /// Bios between Q and C, on average over the window, in thousandths.
    pub in_flight_milli: Option<u64>,
    /// Requests between D and C, on average over the window, in thousandths.
    pub in_device_milli: Option<u64>,
    pub most_in_flight: Option<u64>,
    pub most_in_device: Option<u64>,
}

/// Counts of one window.
#[derive(Clone, Copy, Default)]
struct Counts {
    queued: u64,
    completed: u64,
    read_bytes: u64,
    written_bytes: u64,
    merges: u64,
    seeks: u64,
    most_in_flight: u64,
    most_in_device: u64,
}

/// Load over time, all devices together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct LoadOverTime {
    /// Begin of the first window.
    pub begin_ns: u64,
    pub window_ns: u64,
    /// Empty where one I/O may be two bios of the trace.
    pub windows: Vec<BlockWindow>,
    /// Requests that began where the one before on their device had ended.
    pub sequential: Evidence<u64>,
    /// Distances of the other requests, in sectors, in either direction; percentiles by nearest rank.
    pub seek_sectors: Evidence<LatencyNs>,
    pub most_in_flight: Evidence<u64>,
    pub most_in_device: Evidence<u64>,
}

#[derive(Clone, Copy, Default)]
struct Sum {
    window: Counts,
    /// Bios (below: requests) times nanoseconds.
    in_flight: u128,
    in_device: u128,
}

impl Sum {
    fn add(&mut self, other: &Sum) {
        let (a, b) = (&mut self.window, &other.window);
        a.queued += b.queued;
        a.completed += b.completed;
        a.read_bytes += b.read_bytes;
        a.written_bytes += b.written_bytes;
        a.merges += b.merges;
        a.seeks += b.seeks;
        a.most_in_flight = a.most_in_flight.max(b.most_in_flight);
        a.most_in_device = a.most_in_device.max(b.most_in_device);
        self.in_flight += other.in_flight;
        self.in_device += other.in_device;
    }
}

/// Windows that double in width when there are too many, so that the trace's length need not be known before.
#[derive(Default)]
pub(super) struct OverTime {
    shift: u32,
    first: u64,
    sums: Vec<Sum>,
    last: u64,
    /// Index of the window of `last`; below: its end.
    here: usize,
    until: u64,
    end: u64,
    flying: u64,
    serving: u64,
    /// Of these: bios of which one at their sector ended, and it is not decided which; whether they count as flying, and as serving.
    undecided: BTreeMap<u32, (bool, bool)>,
    service: InService,
    /// The last sector by device, for as many devices as the matching distinguishes.
    heads: Vec<u64>,
    /// Zone appends in the device, by device.
    appends: Vec<u64>,
    sequential: u64,
    shows_merges: bool,
    /// Distance to the request that is being issued.
    moved: Option<u64>,
    /// By bio: the driver gave it back, so that its next issue is no other request's.
    given_back: Vec<bool>,
    seeks: LatencyHistogram,
}

impl OverTime {
    pub fn new() -> OverTime {
        OverTime { shift: NARROWEST_SHIFT, last: NEVER, ..OverTime::default() }
    }

    fn index(&mut self, time: u64) -> usize {
        let mut at = (time >> self.shift).saturating_sub(self.first) as usize;
        while at >= MAX_WINDOWS {
            // If the first window is an odd one, it has no partner before it.
            let odd = (self.first & 1) as usize;
            let mut halved = vec![Sum::default(); (self.sums.len() + odd).div_ceil(2)];
            for (i, sum) in self.sums.iter().enumerate() {
                halved[(i + odd) / 2].add(sum);
            }
            self.sums = halved;
            self.shift += 1;
            self.first >>= 1;
            at = (time >> self.shift).saturating_sub(self.first) as usize;
        }
        if self.sums.len() <= at {
            self.sums.resize(at + 1, Sum::default());
        }
        at
    }

    /// End of a window; `u64::MAX` where the clock ends before it.
    fn end_of(&self, at: usize) -> u64 {
        let next = self.first.saturating_add(at as u64 + 1);
        if next > u64::MAX >> self.shift { u64::MAX } else { next << self.shift }
    }

    /// Adds the time up to now. Returns the current window.
    #[inline]
    fn at(&mut self, now: u64) -> &mut Sum {
        if now >= self.until || self.last == NEVER {
            return self.at_another(now);
        }
        let now = now.max(self.last);
        self.end = now;
        self.pass(self.here, now);
        &mut self.sums[self.here]
    }

    #[cold]
    fn at_another(&mut self, now: u64) -> &mut Sum {
        if now == NEVER {
            // A step whose time is not known: no time passes.
            if self.sums.is_empty() {
                self.sums.push(Sum::default());
            }
            return &mut self.sums[self.here];
        }
        if self.last == NEVER {
            self.last = now;
            self.first = now >> self.shift;
        }
        let now = now.max(self.last);
        self.end = now;
        let here = self.index(now);
        let mut at = self.index(self.last);
        while self.last < now {
            self.pass(at, self.end_of(at).min(now));
            at += 1;
        }
        (self.here, self.until) = (here, self.end_of(here));
        &mut self.sums[here]
    }

    /// Adds the time up to `end`, all of it in one window.
    #[inline]
    fn pass(&mut self, at: usize, end: u64) {
        let lasted = end - self.last;
        if lasted == 0 {
            return;
        }
        let (flying, serving) = if self.undecided.is_empty() { (self.flying, self.serving) } else { self.left() };
        let sum = &mut self.sums[at];
        sum.in_flight += u128::from(lasted) * u128::from(flying);
        sum.in_device += u128::from(lasted) * u128::from(serving);
        sum.window.most_in_flight = sum.window.most_in_flight.max(flying);
        sum.window.most_in_device = sum.window.most_in_device.max(serving);
        self.last = end;
    }

    /// Bios in flight and requests in the device, without those that ended although it is not decided which these are.
    #[cold]
    fn left(&self) -> (u64, u64) {
        let ended = |of: fn(&(bool, bool)) -> bool| self.undecided.values().filter(|counts| of(counts)).count() as u64;
        (self.flying.saturating_sub(ended(|of| of.0)), self.serving.saturating_sub(ended(|of| of.1)))
    }

    /// The request that is being issued has a bio that is shown.
    #[inline]
    fn moves(&mut self, now: u64) {
        match self.moved.take() {
            None => {}
            Some(0) => self.sequential += 1,
            Some(sectors) => {
                self.seeks.add(sectors);
                self.at(now).window.seeks += 1;
            }
        }
    }

    /// A request is issued.
    fn issue(&mut self, device: usize, block: &BlockEvent) {
        self.service.issue();
        self.moved = None;
        if block.bytes == 0 || is_command(block) {
            return;
        }
        if self.heads.len() <= device {
            self.heads.resize(device + 1, NEVER);
            self.appends.resize(device + 1, 0);
        }
        match block.kind() {
            RequestKind::ZoneAppend => self.appends[device] += 1,
            _ => self.begins(device, block),
        }
    }

    fn begins(&mut self, device: usize, block: &BlockEvent) {
        let head = std::mem::replace(&mut self.heads[device], block.end());
        self.moved = (head != NEVER).then(|| head.abs_diff(block.sector));
    }

    /// A zone append completes: its sector is known now. An upper device has none in flight.
    #[cold]
    fn appended(&mut self, device: usize, block: &BlockEvent) {
        self.moved = None;
        let in_device = self.appends.get_mut(device).filter(|appends| **appends > 0 && block.bytes > 0);
        if let Some(appends) = in_device {
            *appends -= 1;
            self.begins(device, block);
        }
    }

    /// A bio of the request that is being issued.
    fn issued(&mut self, at: u32, now: u64) {
        if !self.given_back.is_empty() && self.forget_given_back(at) {
            self.moved = None;
        }
        self.moves(now);
        let change = self.service.step(at, Step::Issued);
        self.serve(change, now);
    }

    /// Whether the driver had given it back.
    fn forget_given_back(&mut self, at: u32) -> bool {
        self.given_back.get_mut(at as usize).is_some_and(std::mem::take)
    }

    #[cold]
    fn give_back(&mut self, at: u32) {
        let at = at as usize;
        if self.given_back.len() <= at {
            self.given_back.resize(at + 1, false);
        }
        self.given_back[at] = true;
    }

    fn serve(&mut self, change: i32, now: u64) {
        if change != 0 {
            self.at(now);
            self.serving = self.serving.saturating_add_signed(change.into());
        }
    }

    pub fn finish(&self, lacks: &Lacks) -> LoadOverTime {
        let Lacks { queueing, completions, ends, files, failures: [lost, _], issues, requests, unclear, .. } = lacks;
        // An I/O whose end was lost is in flight until that is noticed.
        let of_bios: &[_] = &[queueing, unclear, completions, ends, files, lost];
        let of_requests: &[_] = &[issues, unclear, completions, requests, files, lost];
        let of_ends: &[_] = &[issues, completions, ends, files];
        let of_issues: &[_] = &[issues, unclear, requests];
        let when = |figure: u64, lacks: &[&_]| known(figure, lacks).known().copied();
        let most = |of: fn(&Counts) -> u64| self.sums.iter().map(|sum| of(&sum.window)).max().unwrap_or(0);
        let begin_ns = self.first << self.shift;
        let windows: Vec<BlockWindow> = self
            .sums
            .iter()
            .enumerate()
            .map(|(i, sum)| {
                let begin = begin_ns + ((i as u64) << self.shift);
                let lasted = u128::from(self.end_of(i).min(self.end).saturating_sub(begin).max(1));
                let counts = &sum.window;
                BlockWindow {
                    queued: when(counts.queued, &[queueing]),
                    completed: when(counts.completed, of_ends),
                    read_bytes: when(counts.read_bytes, of_ends),
                    written_bytes: when(counts.written_bytes, of_ends),
                    // Each bio gets a request or is merged: a trace with neither event would not show merges.
                    merges: self.shows_merges.then_some(counts.merges),
                    seeks: when(counts.seeks, of_issues),
                    in_flight_milli: when((sum.in_flight * 1000 / lasted) as u64, of_bios),
                    in_device_milli: when((sum.in_device * 1000 / lasted) as u64, of_requests),
                    most_in_flight: when(counts.most_in_flight, of_bios),
                    most_in_device: when(counts.most_in_device, of_requests),
                }
            })
            .collect();
        LoadOverTime {
            begin_ns,
            window_ns: 1 << self.shift,
            sequential: known(self.sequential, of_issues),
            seek_sectors: known(self.seeks.finish(), of_issues),
            most_in_flight: known(most(|counts| counts.most_in_flight), of_bios),
            most_in_device: known(most(|counts| counts.most_in_device), of_requests),
            windows: if unclear.is_some() { Vec::new() } else { windows },
        }
    }
}

/// A command of the driver's own: the kernel gives its data's length, and 0 for its sector (`blk_rq_trace_sector`).
fn is_command(block: &BlockEvent) -> bool {
    block.kind() == RequestKind::Other && block.sector == 0
}

impl Watch for OverTime {
    #[inline(always)]
    fn event(&mut self, device: u16, block: &BlockEvent, now: u64, shown: bool) {
        match block.action {
            BlockAction::Issue => self.issue(usize::from(device), block),
            BlockAction::Complete if block.kind() == RequestKind::ZoneAppend => {
                self.appended(usize::from(device), block);
            }
            BlockAction::GetRq => self.shows_merges = true,
            BlockAction::BackMerge | BlockAction::FrontMerge => {
                self.shows_merges = true;
                if shown {
                    self.at(now).window.merges += 1;
                }
            }
            _ => {}
        }
    }

    fn queued(&mut self, at: u32, bio: &Bio, now: u64) {
        self.forget_given_back(at);
        if bio.below {
            return;
        }
        self.at(now).window.queued += 1;
        self.flying += 1;
    }

    #[inline(always)]
    fn step(&mut self, at: u32, _bio: &Bio, step: Step, now: u64) {
        match step {
            Step::Issued => self.issued(at, now),
            Step::Requeued => {
                self.give_back(at);
                let change = self.service.step(at, step);
                self.serve(change, now);
            }
            Step::Got | Step::Merged | Step::Inserted => {}
        }
    }

    fn requested(&mut self, at: u32, _bio: &Bio, now: u64) {
        self.forget_given_back(at);
        self.issued(at, now);
    }

    fn part_ended(&mut self, at: u32, part: &Bio, completed: u64) {
        let now = if completed == NEVER { self.last } else { completed };
        let change = self.service.ended(at, part);
        self.serve(change, now);
    }

    fn undecided(&mut self, at: u32, bio: &Bio, now: u64) {
        self.at(now);
        let is_whole = bio.split_of == NONE;
        let flies = is_whole && !bio.below && !bio.is_request();
        self.undecided.insert(at, (flies, is_whole && self.service.is_last(at)));
    }

    fn decided(&mut self, at: u32) {
        self.undecided.remove(&at);
    }

    fn ended(&mut self, at: u32, bio: &Bio, completed: u64) {
        if !self.undecided.is_empty() {
            self.undecided.remove(&at);
        }
        let now = if completed == NEVER { self.last } else { completed };
        let change = self.service.ended(at, bio);
        self.serve(change, now);
        if completed != NEVER && bio.kind() == RequestKind::ZoneAppend {
            self.moves(now);
        }
        if bio.below {
            return;
        }
        let flying = u64::from(!bio.is_request());
        if completed != NEVER {
            let sum = self.at(now);
            sum.window.completed += 1;
            let bytes = bio.whole_bytes();
            match bio.kind() {
                RequestKind::Read => sum.window.read_bytes += bytes,
                kind if kind.writes_data() => sum.window.written_bytes += bytes,
                _ => {}
            }
        }
        self.flying -= flying;
    }
}
