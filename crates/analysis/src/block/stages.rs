//! Times of block I/O by stage, as `btt` prints them, and separately for reads and writes.

use super::counts::{GivenUp, MatchCounts, Unit, UnmatchedSteps};
use super::in_flight::{Bio, NEVER};
use super::lacks::{Lacks, LostEnds, known};
use super::matching::Matching;
use super::watch::Watch;
use crate::{Analysis, Evidence};
use flashscope_trace::{Device, Event, EventKind, RequestKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A stage: the time from one step to another. Q queued, G request allocated, I inserted, M merged, D issued to the driver, C completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Between two bios that were queued on one device; flushes without data are left out, as in btt.
    Q2q,
    Q2g,
    G2i,
    Q2m,
    I2d,
    /// For a bio that was merged into a request.
    M2d,
    D2c,
    Q2c,
    Q2d,
}

impl Stage {
    pub const ALL: [Stage; 9] =
        [Stage::Q2q, Stage::Q2g, Stage::G2i, Stage::Q2m, Stage::I2d, Stage::M2d, Stage::D2c, Stage::Q2c, Stage::Q2d];

    /// The name that btt prints.
    pub fn name(self) -> &'static str {
        ["Q2Q", "Q2G", "G2I", "Q2M", "I2D", "M2D", "D2C", "Q2C", "Q2D"][self as usize]
    }
}

/// Times of one stage, nanoseconds; all zero where there are none, and null in JSON. The mean is rounded down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
#[serde(into = "Written", from = "Written")]
pub struct StageStats {
    pub n: u64,
    pub min_ns: u64,
    pub mean_ns: u64,
    pub max_ns: u64,
    pub total_ns: u64,
}

/// Times of one stage, nanoseconds; null where there are none. The mean is rounded down.
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "StageStats")]
struct Written {
    n: u64,
    min_ns: Option<u64>,
    mean_ns: Option<u64>,
    max_ns: Option<u64>,
    total_ns: Option<u64>,
}

impl From<StageStats> for Written {
    fn from(StageStats { n, min_ns, mean_ns, max_ns, total_ns }: StageStats) -> Written {
        let [min_ns, mean_ns, max_ns, total_ns] =
            [min_ns, mean_ns, max_ns, total_ns].map(|time| (n > 0).then_some(time));
        Written { n, min_ns, mean_ns, max_ns, total_ns }
    }
}

impl From<Written> for StageStats {
    fn from(Written { n, min_ns, mean_ns, max_ns, total_ns }: Written) -> StageStats {
        let [min_ns, mean_ns, max_ns, total_ns] = [min_ns, mean_ns, max_ns, total_ns].map(Option::unwrap_or_default);
        StageStats { n, min_ns, mean_ns, max_ns, total_ns }
    }
}

#[derive(Clone, Copy, Debug)]
struct Sum {
    n: u64,
    min: u64,
    max: u64,
    total: u64,
}

impl Sum {
    const NOTHING: Sum = Sum { n: 0, min: u64::MAX, max: 0, total: 0 };

    #[inline]
    fn add(&mut self, time: u64) {
        self.n += 1;
        // Not `min` and `max`: that writes every time what almost never changes.
        if time < self.min {
            self.min = time;
        }
        if time > self.max {
            self.max = time;
        }
        self.total = self.total.saturating_add(time);
    }

    fn merge(&mut self, other: &Sum) {
        self.n += other.n;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.total = self.total.saturating_add(other.total);
    }

    fn finish(&self) -> StageStats {
        match self.n {
            0 => StageStats::default(),
            n => StageStats { n, min_ns: self.min, mean_ns: self.total / n, max_ns: self.max, total_ns: self.total },
        }
    }
}

type Sums = [Sum; 9];

/// The stages of a bio that ended at `completed`, or (`NEVER`) without a known end. Q2Q belongs to no single bio.
#[inline(always)]
pub(super) fn each_stage(bio: &Bio, completed: u64, mut add: impl FnMut(Stage, u64)) {
    // A step with a time before that of the preceding step (the clock was set back) has no duration.
    let mut add = |stage: Stage, from: u64, to: u64| {
        if let Some(time) = to.checked_sub(from) {
            add(stage, time);
        }
    };
    if bio.is_request() {
        if completed != NEVER {
            add(Stage::D2c, bio.issued, completed);
        }
        return;
    }
    if bio.got != NEVER {
        add(Stage::Q2g, bio.queued, bio.got);
        if bio.inserted != NEVER {
            add(Stage::G2i, bio.got, bio.inserted);
        }
    }
    if bio.merged != NEVER {
        add(Stage::Q2m, bio.queued, bio.merged);
    }
    if bio.issued != NEVER {
        add(Stage::Q2d, bio.queued, bio.issued);
        if bio.inserted != NEVER {
            add(Stage::I2d, bio.inserted, bio.issued);
        } else if bio.merged != NEVER {
            add(Stage::M2d, bio.merged, bio.issued);
        }
    }
    if completed != NEVER {
        add(Stage::Q2c, bio.queued, completed);
        if bio.issued != NEVER {
            add(Stage::D2c, bio.issued, bio.device_done.min(completed));
        }
    }
}

/// Stages of one device by operation. The stages are in the order of [`Stage::ALL`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct DeviceStages {
    pub device: String,
    pub all: Vec<StageStats>,
    pub reads: Vec<StageStats>,
    pub writes: Vec<StageStats>,
    pub discards: Vec<StageStats>,
    /// All other kinds of operation that occurred.
    pub others: Vec<KindStages>,
}

/// Stages of one kind of operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct KindStages {
    pub kind: RequestKind,
    pub stages: Vec<StageStats>,
}

/// Results of one pass.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct StagesFound {
    /// Names of the stages in all lists.
    pub stages: Vec<String>,
    /// Block events of any action.
    pub events: u64,
    pub begin_ns: u64,
    pub end_ns: u64,
    /// The unit of all figures of this report.
    pub unit: Unit,
    /// All devices together.
    pub all: Vec<StageStats>,
    pub devices: Vec<DeviceStages>,
    pub bios_queued: Evidence<u64>,
    pub bios_completed: Evidence<u64>,
    /// Bios of lower devices that worked for these; not included above.
    pub bios_below: Evidence<u64>,
    /// Requests whose queueing is not in the trace; below: those of them that were completed.
    pub requests: Evidence<u64>,
    pub requests_completed: Evidence<u64>,
    /// Parts that splits added to the bios.
    pub parts: Evidence<u64>,
    pub requeues: Evidence<u64>,
    /// Issues of a request that was already in the device, without a requeue: D2C counts from the last one.
    #[serde(default)]
    pub reissued: Evidence<u64>,
    /// Commands of a driver's own without data; they are in no stage.
    pub without_data: u64,
    /// Bios still in flight at the end.
    pub unfinished: Evidence<u64>,
    /// Completed bios whose issue is not in the trace: their Q2C is known, their D2C is not.
    pub without_issue: Evidence<u64>,
    /// Bios whose end is not known, by the step that was lost.
    pub given_up: GivenUp,
    /// Events of devices beyond the most; their bios are in no stage.
    #[serde(default)]
    pub of_further_devices: u64,
    pub unmatched: UnmatchedSteps,
    /// Steps that name more bios than may be looked at for one event: some of their bios lack the step.
    #[serde(default)]
    pub steps_given_up: u64,
    /// Remaps (`block_bio_remap`) that were forgotten before their bio was queued, because more than 16,384 waited: such a bio counts as
    /// an I/O of its own.
    #[serde(default)]
    pub remaps_forgotten: u64,
    /// Zone appends to zones beyond the first 65,536: their completions belong to no bio.
    #[serde(default)]
    pub appends_of_further_zones: u64,
}

#[derive(Clone)]
struct OneDevice {
    last_queue: u64,
    q2q: [Sum; KINDS],
    sums: [Sums; KINDS],
    /// Sums of requests whose queueing is not in the trace.
    requests: [Sums; KINDS],
    /// Sums of bios below others: they count neither for the upper device nor for a program.
    below: [Sums; KINDS],
}

const KINDS: usize = RequestKind::COUNT;

impl OneDevice {
    const NOTHING: OneDevice = OneDevice {
        last_queue: NEVER,
        q2q: [Sum::NOTHING; KINDS],
        sums: [[Sum::NOTHING; 9]; KINDS],
        requests: [[Sum::NOTHING; 9]; KINDS],
        below: [[Sum::NOTHING; 9]; KINDS],
    };
}

/// Sums by device.
pub(super) struct StageSums {
    devices: Vec<OneDevice>,
    last_queue: u64,
    q2q: Sum,
}

impl StageSums {
    pub fn new() -> StageSums {
        StageSums { devices: Vec::new(), last_queue: NEVER, q2q: Sum::NOTHING }
    }

    #[inline]
    fn device(&mut self, device: u16) -> &mut OneDevice {
        let device = usize::from(device);
        if self.devices.len() <= device {
            self.devices.resize(device + 1, OneDevice::NOTHING);
        }
        &mut self.devices[device]
    }
}

impl Watch for StageSums {
    fn begins_again(&mut self) {
        self.last_queue = NEVER;
        self.devices.iter_mut().for_each(|one| one.last_queue = NEVER);
    }

    #[inline]
    fn queued(&mut self, _at: u32, bio: &Bio, now: u64) {
        if bio.kind == RequestKind::Flush {
            return;
        }
        let one = self.device(bio.device);
        if one.last_queue != NEVER
            && let Some(time) = now.checked_sub(one.last_queue)
        {
            one.q2q[bio.kind() as usize].add(time);
        }
        one.last_queue = now;
        if bio.below {
            return;
        }
        if self.last_queue != NEVER
            && let Some(time) = now.checked_sub(self.last_queue)
        {
            self.q2q.add(time);
        }
        self.last_queue = now;
    }

    #[inline]
    fn ended(&mut self, _at: u32, bio: &Bio, completed: u64) {
        let one = self.device(bio.device);
        let sums = match (bio.is_request(), bio.below) {
            (true, _) => &mut one.requests,
            (_, true) => &mut one.below,
            _ => &mut one.sums,
        };
        let sums = &mut sums[bio.kind() as usize];
        each_stage(bio, completed, |stage, time| sums[stage as usize].add(time));
    }
}

/// Makes stage statistics from block events, in order of time.
pub struct Stages(Matching<StageSums>);

impl Default for Stages {
    fn default() -> Self {
        Stages::new()
    }
}

impl Stages {
    pub fn new() -> Stages {
        Stages(Matching::new(StageSums::new()))
    }
}

impl Analysis for Stages {
    type Output = StagesFound;

    #[inline]
    fn event(&mut self, event: &Event) {
        if let EventKind::Block(block) = &event.kind {
            self.0.block(block, (event.tid.0, event.tid), event.time.0, || event.tid.0);
        }
    }

    fn finish(self) -> StagesFound {
        let (sums, devices, counts, ..) = self.0.finish();
        stages_found(sums, &devices, &counts, &Lacks::of(&counts, None, &[], &LostEnds::default()))
    }
}

/// `lacks.unclear`: why one I/O may be two bios in this trace.
pub(super) fn stages_found(
    mut sums: StageSums,
    devices: &[Device],
    counts: &MatchCounts,
    lacks: &Lacks,
) -> StagesFound {
    let Lacks { queueing, completions, ends, files, lost, issues, requests, requeues, splits, unclear, .. } = lacks;
    let mut all = [Sum::NOTHING; 9];
    let unit = counts.unit();
    sums.devices.resize(devices.len(), OneDevice::NOTHING);
    let devices = sums
        .devices
        .iter_mut()
        .zip(devices)
        .map(|(one, device)| {
            let mut both = [Sum::NOTHING; 9];
            if unit == Unit::Request {
                one.sums = one.requests;
            }
            for (sums, q2q) in one.sums.iter_mut().zip(&one.q2q) {
                sums[Stage::Q2q as usize] = *q2q;
                for (to, from) in both.iter_mut().zip(sums.iter()) {
                    to.merge(from);
                }
            }
            for (to, from) in all.iter_mut().zip(&both) {
                to.merge(from);
            }
            for (sums, below) in one.sums.iter_mut().zip(&one.below) {
                for ((to, all), from) in sums.iter_mut().zip(both.iter_mut()).zip(below) {
                    to.merge(from);
                    all.merge(from);
                }
            }
            let list = |sums: &Sums| -> Vec<StageStats> { sums.iter().map(Sum::finish).collect() };
            let common = [RequestKind::Read, RequestKind::Write, RequestKind::Discard];
            let others = RequestKind::ALL.iter().filter(|kind| !common.contains(kind));
            let others = others.map(|&kind| KindStages { kind, stages: list(&one.sums[kind as usize]) });
            DeviceStages {
                device: device.to_string(),
                all: list(&both),
                reads: list(&one.sums[RequestKind::Read as usize]),
                writes: list(&one.sums[RequestKind::Write as usize]),
                discards: list(&one.sums[RequestKind::Discard as usize]),
                others: others.filter(|one| one.stages.iter().any(|stage| stage.n > 0)).collect(),
            }
        })
        .collect();
    // Between any two bios, on any devices.
    all[Stage::Q2q as usize] = sums.q2q;
    StagesFound {
        stages: Stage::ALL.iter().map(|stage| stage.name().to_owned()).collect(),
        events: counts.events,
        begin_ns: counts.begin_ns,
        end_ns: counts.end_ns,
        unit,
        all: if unclear.is_some() { Vec::new() } else { all.iter().map(Sum::finish).collect() },
        devices,
        bios_queued: known(counts.queued, &[queueing, unclear]),
        bios_completed: known(counts.completed, &[queueing, unclear, completions, ends, files]),
        bios_below: known(counts.below, &[queueing]),
        requests: known(counts.requests, &[issues]),
        requests_completed: known(counts.requests_completed, &[issues, completions, files]),
        parts: known(counts.parts, &[queueing, splits]),
        requeues: known(counts.requeues, &[requeues]),
        reissued: known(counts.reissued, &[issues, requests]),
        without_data: counts.without_data,
        unfinished: known(counts.unfinished, &[unclear, completions, ends, files, lost, issues]),
        without_issue: known(counts.without_issue, &[queueing, requests]),
        given_up: counts.given_up,
        of_further_devices: counts.of_further_devices,
        unmatched: match unit {
            // There no issue has a bio: that is no loss.
            Unit::Request => UnmatchedSteps { issued: 0, ..counts.unmatched },
            Unit::Bio => counts.unmatched,
        },
        steps_given_up: counts.steps_given_up,
        remaps_forgotten: counts.remaps_forgotten,
        appends_of_further_zones: counts.appends_of_further_zones,
    }
}

#[cfg(test)]
mod tests {
    use super::super::in_flight::MOST_IN_BUCKET;
    use super::super::matching::MAX_IN_FLIGHT;
    use super::*;
    use crate::testing::{block, event, steps};
    use flashscope_trace::{BlockAction, Device};

    fn run(ios: &str) -> StagesFound {
        let mut stages = Stages::new();
        steps(ios).iter().for_each(|event| stages.event(event));
        stages.finish()
    }

    fn of(found: &StagesFound, stage: Stage) -> (u64, u64, u64) {
        let s = found.all[stage as usize];
        (s.n, s.min_ns, s.max_ns)
    }

    #[test]
    fn one_request_by_hand() {
        let found = run("R 8+8: Q100 G110 I130 D170 C300 Q400");
        for (stage, want) in [
            (Stage::Q2q, (1, 300, 300)),
            (Stage::Q2g, (1, 10, 10)),
            (Stage::G2i, (1, 20, 20)),
            (Stage::I2d, (1, 40, 40)),
            (Stage::D2c, (1, 130, 130)),
            (Stage::Q2c, (1, 200, 200)),
            (Stage::Q2d, (1, 70, 70)),
            (Stage::Q2m, (0, 0, 0)),
        ] {
            assert_eq!(of(&found, stage), want, "{stage:?}");
        }
        assert_eq!((found.bios_completed, found.unfinished, found.unmatched.sum()), (1.into(), 1.into(), 0));
        assert_eq!(found.devices[0].reads, found.devices[0].all);
    }

    #[test]
    fn merged_bios_share_their_requests_way() {
        let found = run("W 8+8: Q0 G1; W 16+8: Q2 M5; W 8+16: D9 C19");
        assert_eq!(of(&found, Stage::Q2m), (1, 3, 3));
        assert_eq!(of(&found, Stage::M2d), (1, 4, 4));
        assert_eq!(of(&found, Stage::D2c), (2, 10, 10));
        assert_eq!(of(&found, Stage::Q2c), (2, 17, 19));
        assert_eq!((found.unmatched.sum(), found.unfinished), (0, 0.into()));
    }

    #[test]
    fn several_requests_at_one_sector_and_both_directions_are_kept_apart() {
        let found = run("R 8+8: Q0 Q1 D10 D11 C20 C21; W 8+8: Q2 D13 C23; R 8+16: Q3 D12 C22");
        assert_eq!(of(&found, Stage::D2c), (4, 10, 10));
        assert_eq!(of(&found, Stage::Q2c), (4, 19, 21));
        assert_eq!((found.unmatched.sum(), found.unfinished), (0, 0.into()));
        assert_eq!(found.devices[0].writes[Stage::Q2c as usize].n, 1);
    }

    #[test]
    fn splits_requeues_and_parts_of_completions() {
        let found = run("R 0+24: Q0; R 0+8: X1>8 G2 D10 R11 D12 C20; R 8+16: G3 D13; R 8+8: C30; R 16+8: C40");
        assert_eq!(
            (found.parts.clone(), found.requeues.clone(), found.bios_queued.clone(), found.bios_completed.clone()),
            (1.into(), 1.into(), 1.into(), 1.into())
        );
        // One bio: from its first issue (the last one of a request that came back) to its last part's completion.
        assert_eq!(of(&found, Stage::D2c), (1, 28, 28));
        assert_eq!(of(&found, Stage::Q2c), (1, 40, 40));
        assert_eq!((found.unmatched.sum(), found.unfinished), (0, 0.into()));
    }

    #[test]
    fn a_second_issue_without_a_requeue_is_the_same_requests() {
        let found = run("R 8+8: Q0 G2; R 16+8: Q1; R 8+16: D10 D40 C90");
        assert_eq!((of(&found, Stage::D2c), of(&found, Stage::Q2c)), ((2, 50, 50), (2, 89, 90)));
        assert_eq!(
            (found.reissued.clone(), found.requests.clone(), found.unmatched.sum(), found.given_up.sum()),
            (1.into(), 0.into(), 0, 0)
        );
        // A request was allocated in between: the second issue is another's, whose queueing is not there.
        let found = run("R 8+8: Q0 G2 G30; R 16+8: Q1; R 8+16: D10 D40 C90");
        assert_eq!((found.reissued, found.requests, found.unmatched.issued), (0.into(), 1.into(), 1));
        // So it is where it has other sectors.
        let found = run("R 8+8: Q0 G2; R 16+8: Q1; R 8+16: D10 C90; R 8+24: D40");
        assert_eq!(
            (found.reissued.clone(), found.requests.clone(), of(&found, Stage::D2c)),
            (0.into(), 1.into(), (2, 80, 80))
        );
    }

    #[test]
    fn a_request_is_not_that_of_a_bio_which_a_later_one_of_its_thread_overtook() {
        // The first bio lost its request, issue and completion; the queueing of the third, of the same sectors, is lost too. So is that of
        // the write: events are missing.
        let found = run("R 8+8: Q0 G1000; W 0+8: G50; R 64+8: Q100 G110 D120 C150");
        assert_eq!((of(&found, Stage::Q2g), found.unmatched.got), ((1, 10, 10), 2));
    }

    #[test]
    fn what_cannot_be_matched_is_counted() {
        let found = run("R 0+8: D1 C2 G4 X5>4; FN 0+0: Q3; W 0+8: R6");
        let u = found.unmatched;
        // The issue is a request's whose queueing is not there, and the completion is that request's.
        assert_eq!((u.issued, u.completed, u.got, u.split, u.requeued), (1, 0, 1, 1, 1));
        assert_eq!((found.requests, found.requests_completed), (1.into(), 1.into()));
        // A flush is a bio.
        assert_eq!((found.without_data, found.bios_queued, found.unfinished), (0, 1.into(), 1.into()));
    }

    #[test]
    fn events_of_too_many_devices_are_counted() {
        let mut stages = Stages::new();
        for i in 0..1100u64 {
            for (action, time) in [(BlockAction::Queue, i * 10), (BlockAction::Complete, i * 10 + 5)] {
                let block = block(action, Device::new(8, i as u32), "R", 8, 4096);
                stages.event(&event(time, 1, EventKind::Block(block)));
            }
        }
        let found = stages.finish();
        assert_eq!((found.devices.len(), found.bios_completed, found.of_further_devices), (1024, 1024.into(), 2 * 76));
        assert_eq!((found.events, found.unmatched.sum()), (2200, 0));
    }

    #[test]
    fn memory_is_bounded_whatever_never_completes() {
        let mut stages = Stages::new();
        for i in 0..MAX_IN_FLIGHT as u64 + 1000 {
            let block = block(BlockAction::Queue, Device::new(8, 0), "W", i * 8, 4096);
            stages.event(&event(i, 1, EventKind::Block(block)));
        }
        let found = stages.finish();
        // Without any completion it is unknown what was still in flight.
        assert_eq!((found.unfinished.known(), found.given_up.too_many), (None, 1000));
    }

    #[test]
    fn bios_of_one_sector_are_bounded_and_those_given_up_are_counted() {
        // Direct reads of one sector by so many threads at a time, all of which end.
        let of = |count: usize| {
            let ios: String = (0..count).map(|i| format!("R 8+8: Q{i} C{};", 10_000 + i)).collect();
            run(&ios)
        };
        let found = of(MOST_IN_BUCKET);
        assert_eq!((found.bios_completed, found.given_up.too_many, found.unmatched.completed), (1024.into(), 0, 0));
        let found = of(MOST_IN_BUCKET + 10);
        assert_eq!((found.bios_completed, found.given_up.too_many, found.unmatched.completed), (1024.into(), 10, 10));
    }

    #[test]
    fn steps_look_at_so_many_bios_and_what_is_beyond_is_counted() {
        let of = |bios: u64, steps: &str| {
            let queued: String = (0..bios).map(|i| format!("R {i}+1: Q{i};")).collect();
            run(&format!("{queued} R 0+{bios}: {steps}"))
        };
        // A request of bios that lie side by side, as many as O_DIRECT of 512 bytes makes, is followed to its end.
        let found = of(8192, "D100000 C100001");
        assert_eq!((found.bios_completed, found.unmatched.sum()), (8192.into(), 0));
        // One of more is followed as far as it goes.
        let found = of(20_000, "D100000");
        assert_eq!((found.unmatched.sum(), found.steps_given_up, found.requests), (0, 1, 0.into()));
        // Of those that were not looked at, none is known to have been completed.
        let found = of(20_000, "D100000 C100001");
        assert_eq!((found.unmatched.sum(), found.steps_given_up, found.bios_completed), (0, 2, 128.into()));
        // As are steps that say over and over again that they are of all bios: they have to end.
        let inserts: String = (0..20_000).map(|i| format!("I{} ", 100_000 + i)).collect();
        let found = of(5000, &inserts);
        assert!((19_000..20_000).contains(&found.steps_given_up), "{}", found.steps_given_up);
        assert_eq!(found.unmatched.sum(), 0);
    }

    /// Bios at every second sector; steps name the range of all of them. As many as need the index of where bios begin.
    #[test]
    fn bios_behind_gaps_are_found_among_few_and_among_many() {
        for bios in [100_u64, 1000] {
            let queued: String = (0..bios).map(|i| format!("R {}+1: Q{i};", i * 2)).collect();
            let found = run(&format!("{queued} R 0+{}: G5000 D5001 C6000", 2 * bios));
            assert_eq!((&found.bios_completed, found.given_up.sum()), (&bios.into(), 0), "{bios}");
            assert_eq!(of(&found, Stage::D2c), (bios, 999, 999), "{bios}");
        }
    }
}
