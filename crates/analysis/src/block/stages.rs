//! Where the time of block I/O goes: what `btt` prints, and reads and writes apart.
//!
//! Unit: the bio, as it was queued. A request holds the bios whose sectors it covers; each step of a request is a step of
//! each of its bios. Matching is by device, direction and sectors: bios side by side, from the request's first sector to its
//! last. Where several bios begin at one sector, a step takes the one that has not had it yet, of those the longest that
//! the request still has room for, then the oldest.
//!
//! - A bio that was split (`X`) is two parts from then on, each with the times of its own requests; it is one bio for Q2Q,
//!   and its parts count in every other stage.
//! - A request that the driver gave back (`R`) is issued anew: I2D ends, and D2C begins, with the last issue.
//! - A completion of a part of a request completes the bios in that part, and shortens the bio that it ends in.
//! - Bios without data (flushes) have no sectors to match by: they are counted, no more.

use super::in_flight::{Bio, InFlight, NEVER};
use crate::Analysis;
use flashscope_trace::{BlockAction, BlockDetail, BlockEvent, Device, Event, EventKind, RequestFlags, RequestKind};
use serde::{Deserialize, Serialize};

/// Bios on their way that are remembered; beyond it the oldest is given up, and counted.
pub const MAX_IN_FLIGHT: usize = 1 << 18;
/// Devices that are told apart; the events of more are counted as unmatched.
const MAX_DEVICES: usize = 1024;

/// From one step to another. Q queued, G request got, I inserted, M merged, D issued to the driver, C completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Between two bios that were queued on one device.
    Q2q,
    Q2g,
    G2i,
    Q2m,
    I2d,
    /// Of a bio that was merged into a request.
    M2d,
    D2c,
    Q2c,
    Q2d,
}

impl Stage {
    pub const ALL: [Stage; 9] =
        [Stage::Q2q, Stage::Q2g, Stage::G2i, Stage::Q2m, Stage::I2d, Stage::M2d, Stage::D2c, Stage::Q2c, Stage::Q2d];

    /// As btt prints it.
    pub fn name(self) -> &'static str {
        ["Q2Q", "Q2G", "G2I", "Q2M", "I2D", "M2D", "D2C", "Q2C", "Q2D"][self as usize]
    }
}

/// Times of one stage, nanoseconds; all zero where there are none. The mean is rounded down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageStats {
    pub n: u64,
    pub min_ns: u64,
    pub mean_ns: u64,
    pub max_ns: u64,
    pub total_ns: u64,
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
        self.min = self.min.min(time);
        self.max = self.max.max(time);
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

/// Steps that belong to no bio that was queued in the trace, in events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnmatchedSteps {
    pub got: u64,
    pub inserted: u64,
    pub merged: u64,
    pub issued: u64,
    pub completed: u64,
    pub requeued: u64,
    pub split: u64,
}

impl UnmatchedSteps {
    pub fn sum(&self) -> u64 {
        self.got + self.inserted + self.merged + self.issued + self.completed + self.requeued + self.split
    }
}

/// Stages of one device; reads, writes and discards apart. The stages are in the order of [`Stage::ALL`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceStages {
    pub device: String,
    pub all: Vec<StageStats>,
    pub reads: Vec<StageStats>,
    pub writes: Vec<StageStats>,
    pub discards: Vec<StageStats>,
}

/// What one pass finds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StagesFound {
    /// Names of the stages in all lists.
    pub stages: Vec<String>,
    /// Block events of any action.
    pub events: u64,
    pub begin_ns: u64,
    pub end_ns: u64,
    /// All devices together.
    pub all: Vec<StageStats>,
    pub devices: Vec<DeviceStages>,
    pub bios_queued: u64,
    pub bios_completed: u64,
    /// Parts that splits added to the bios.
    pub parts: u64,
    pub requeues: u64,
    /// Queued bios without data, which are in no stage.
    pub without_data: u64,
    /// Bios that were still on their way at the end, or given up because there were too many of them.
    pub unfinished: u64,
    pub given_up: u64,
    pub unmatched: UnmatchedSteps,
}

struct OneDevice {
    device: Device,
    last_queue: u64,
    q2q: [Sum; 3],
    sums: [Sums; 3],
}

/// Folds block events into stage statistics; reads them in order of time.
pub struct Stages {
    devices: Vec<OneDevice>,
    last: usize,
    bios: InFlight,
    events: u64,
    time: (u64, u64),
    last_queue: u64,
    q2q: Sum,
    queued: u64,
    completed: u64,
    parts: u64,
    requeues: u64,
    without_data: u64,
    given_up: u64,
    unmatched: UnmatchedSteps,
}

impl Default for Stages {
    fn default() -> Self {
        Stages::new()
    }
}

/// What a walk over a request's bios found.
struct Walk {
    /// First sector that no bio covers; the request's end where all are there.
    reached: u64,
    found: bool,
}

impl Stages {
    pub fn new() -> Stages {
        Stages {
            devices: Vec::new(),
            last: 0,
            bios: InFlight::new(MAX_IN_FLIGHT),
            events: 0,
            time: (u64::MAX, 0),
            last_queue: NEVER,
            q2q: Sum::NOTHING,
            queued: 0,
            completed: 0,
            parts: 0,
            requeues: 0,
            without_data: 0,
            given_up: 0,
            unmatched: UnmatchedSteps::default(),
        }
    }

    #[inline]
    fn device(&mut self, device: Device) -> Option<u16> {
        if let Some(known) = self.devices.get(self.last)
            && known.device == device
        {
            return Some(self.last as u16);
        }
        self.other_device(device)
    }

    fn other_device(&mut self, device: Device) -> Option<u16> {
        self.last = match self.devices.iter().position(|d| d.device == device) {
            Some(at) => at,
            None if self.devices.len() == MAX_DEVICES => return None,
            None => {
                let sums = [[Sum::NOTHING; 9]; 3];
                self.devices.push(OneDevice { device, last_queue: NEVER, q2q: [Sum::NOTHING; 3], sums });
                self.devices.len() - 1
            }
        };
        Some(self.last as u16)
    }

    /// Hands the bios of a request to `step`, in order of their sectors: of those at one sector the one that `fits` likes
    /// best.
    #[inline(always)]
    fn walk(
        &mut self,
        device: u16,
        block: &BlockEvent,
        fits: impl Fn(&Bio) -> u8,
        mut step: impl FnMut(&mut Bio),
    ) -> Walk {
        let (kind, end) = (block.flags.kind(), block.end());
        let mut walk = Walk { reached: block.sector, found: false };
        while walk.reached < end {
            let Some(at) = self.bios.find(device, kind, walk.reached, end - walk.reached, &fits) else { break };
            let bio = self.bios.get(at);
            walk.reached = bio.end();
            walk.found = true;
            step(bio);
        }
        walk
    }

    fn queue(&mut self, device: u16, block: &BlockEvent, now: u64) {
        self.queued += 1;
        let kind = block.flags.kind();
        let one = &mut self.devices[usize::from(device)];
        if one.last_queue != NEVER {
            one.q2q[kind as usize].add(now.saturating_sub(one.last_queue));
        }
        one.last_queue = now;
        if self.last_queue != NEVER {
            self.q2q.add(now.saturating_sub(self.last_queue));
        }
        self.last_queue = now;
        let sectors = u32::try_from(block.bytes.div_ceil(512)).unwrap_or(u32::MAX);
        if let Some(gone) = self.bios.add(InFlight::bio(device, kind, block.sector, sectors, now)) {
            self.given_up += 1;
            self.account(&gone, NEVER);
        }
    }

    /// A bio's way is over, or as far as the trace goes.
    #[inline]
    fn account(&mut self, bio: &Bio, completed: u64) {
        let sums = &mut self.devices[usize::from(bio.device)].sums[bio.kind as usize];
        let mut add = |stage: Stage, from: u64, to: u64| sums[stage as usize].add(to.saturating_sub(from));
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
                add(Stage::D2c, bio.issued, completed);
            }
        }
    }

    fn complete(&mut self, device: u16, block: &BlockEvent, now: u64) {
        let (kind, end) = (block.flags.kind(), block.end());
        let mut reached = block.sector;
        // A device above others (device mapper, md) completes bios that it never issued.
        let fits = |bio: &Bio| 1 + u8::from(bio.issued != NEVER);
        while reached < end {
            if let Some(at) = self.bios.find(device, kind, reached, end - reached, fits) {
                let bio = self.bios.remove(at);
                reached = bio.end();
                self.completed += u64::from(!bio.part);
                self.account(&bio, now);
            } else if let Some(at) = self.bios.find(device, kind, reached, u64::MAX, fits) {
                // The rest of it comes with another completion.
                let bio = self.bios.remove(at);
                let done = (end - reached) as u32;
                self.bios.add(Bio { sector: end, sectors: bio.sectors - done, ..bio });
                reached = end;
            } else {
                break;
            }
        }
        if reached < end {
            self.unmatched.completed += 1;
        }
    }

    fn split(&mut self, device: u16, block: &BlockEvent) {
        let fresh = |bio: &Bio| u8::from(bio.issued == NEVER && u64::from(bio.sectors) * 512 > block.bytes);
        let kind = block.flags.kind();
        let Some(at) = self.bios.find(device, kind, block.sector, u64::MAX, fresh) else {
            self.unmatched.split += 1;
            return;
        };
        let BlockDetail::Split { sector } = block.detail else { return };
        let bio = *self.bios.get(at);
        if sector <= bio.sector || sector >= bio.end() {
            self.unmatched.split += 1;
            return;
        }
        let first = (sector - bio.sector) as u32;
        self.bios.get(at).sectors = first;
        self.parts += 1;
        let second = Bio { sector, sectors: bio.sectors - first, part: true, ..bio };
        if let Some(gone) = self.bios.add(second) {
            self.given_up += 1;
            self.account(&gone, NEVER);
        }
    }

    #[inline]
    fn block(&mut self, block: &BlockEvent, now: u64) {
        self.events += 1;
        self.time = (self.time.0.min(now), self.time.1.max(now));
        // A command of its own kind has no sectors that could be matched.
        if block.bytes == 0 || block.flags.has(RequestFlags::PASSTHROUGH) {
            self.without_data += u64::from(block.action == BlockAction::Queue);
            return;
        }
        let Some(device) = self.device(block.device) else { return };
        let unmatched = |walk: Walk| u64::from(!walk.found || walk.reached < block.end());
        match block.action {
            BlockAction::Queue => self.queue(device, block, now),
            BlockAction::GetRq => {
                let walk = self.walk(
                    device,
                    block,
                    |bio| if bio.got == NEVER && bio.merged == NEVER { 2 } else { 0 },
                    |bio| bio.got = now,
                );
                self.unmatched.got += unmatched(walk);
            }
            BlockAction::Insert => {
                let walk = self.walk(
                    device,
                    block,
                    |bio| u8::from(bio.issued == NEVER) * (1 + u8::from(bio.inserted == NEVER)),
                    |bio| {
                        // A merged bio waits from its merge on, as in btt.
                        if bio.inserted == NEVER && bio.merged == NEVER {
                            bio.inserted = now;
                        }
                    },
                );
                self.unmatched.inserted += unmatched(walk);
            }
            BlockAction::BackMerge | BlockAction::FrontMerge => {
                // The range of a request that is merged into another is that of bios which have had their step.
                let walk = self.walk(
                    device,
                    block,
                    |bio| u8::from(bio.issued == NEVER) * (1 + u8::from(bio.got == NEVER && bio.merged == NEVER)),
                    |bio| {
                        if bio.got == NEVER && bio.merged == NEVER {
                            bio.merged = now;
                        }
                    },
                );
                self.unmatched.merged += unmatched(walk);
            }
            BlockAction::Issue => {
                let fits = |bio: &Bio| {
                    u8::from(bio.issued == NEVER)
                        * (1 + u8::from(bio.got != NEVER || bio.merged != NEVER) + u8::from(bio.inserted != NEVER))
                };
                let walk = self.walk(device, block, fits, |bio| bio.issued = now);
                self.unmatched.issued += unmatched(walk);
            }
            BlockAction::Requeue => {
                self.requeues += 1;
                let walk = self.walk(device, block, |bio| 1 + u8::from(bio.issued != NEVER), |bio| bio.issued = NEVER);
                self.unmatched.requeued += unmatched(walk);
            }
            BlockAction::Complete => self.complete(device, block, now),
            BlockAction::Split => self.split(device, block),
            _ => {}
        }
    }
}

impl Analysis for Stages {
    type Output = StagesFound;

    #[inline]
    fn event(&mut self, event: &Event) {
        if let EventKind::Block(block) = &event.kind {
            self.block(block, event.time.0);
        }
    }

    fn finish(mut self) -> StagesFound {
        let unfinished = self.bios.len() as u64;
        let rest: Vec<Bio> = self.bios.rest().copied().collect();
        for bio in &rest {
            self.account(bio, NEVER);
        }
        let mut all = [Sum::NOTHING; 9];
        let devices = self
            .devices
            .iter_mut()
            .map(|one| {
                let mut both = [Sum::NOTHING; 9];
                for (sums, q2q) in one.sums.iter_mut().zip(&one.q2q) {
                    sums[Stage::Q2q as usize] = *q2q;
                    for (to, from) in both.iter_mut().zip(sums.iter()) {
                        to.merge(from);
                    }
                }
                for (to, from) in all.iter_mut().zip(&both) {
                    to.merge(from);
                }
                let list = |sums: &Sums| sums.iter().map(Sum::finish).collect();
                DeviceStages {
                    device: one.device.to_string(),
                    all: list(&both),
                    reads: list(&one.sums[RequestKind::Read as usize]),
                    writes: list(&one.sums[RequestKind::Write as usize]),
                    discards: list(&one.sums[RequestKind::Discard as usize]),
                }
            })
            .collect();
        // Between any two bios, whichever their devices.
        all[Stage::Q2q as usize] = self.q2q;
        let (begin_ns, end_ns) = if self.events == 0 { (0, 0) } else { self.time };
        StagesFound {
            stages: Stage::ALL.iter().map(|stage| stage.name().to_owned()).collect(),
            events: self.events,
            begin_ns,
            end_ns,
            all: all.iter().map(Sum::finish).collect(),
            devices,
            bios_queued: self.queued,
            bios_completed: self.completed,
            parts: self.parts,
            requeues: self.requeues,
            without_data: self.without_data,
            unfinished,
            given_up: self.given_up,
            unmatched: self.unmatched,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::event;

    fn run(steps: &[(u64, BlockAction, &str, u64, u64, BlockDetail)]) -> StagesFound {
        let mut stages = Stages::new();
        for &(time, action, rwbs, sector, sectors, detail) in steps {
            let block = BlockEvent {
                action,
                device: Device::new(8, 0),
                flags: RequestFlags::from_letters(rwbs.as_bytes()),
                sector,
                bytes: sectors * 512,
                error: 0,
                cgroup: 0,
                detail,
            };
            stages.event(&event(time, 1, EventKind::Block(block)));
        }
        stages.finish()
    }

    fn of(found: &StagesFound, stage: Stage) -> (u64, u64, u64) {
        let s = found.all[stage as usize];
        (s.n, s.min_ns, s.max_ns)
    }

    use BlockAction::*;
    const NO: BlockDetail = BlockDetail::None;

    #[test]
    fn one_request_by_hand() {
        let found = run(&[
            (100, Queue, "R", 8, 8, NO),
            (110, GetRq, "R", 8, 8, NO),
            (130, Insert, "R", 8, 8, NO),
            (170, Issue, "R", 8, 8, NO),
            (300, Complete, "R", 8, 8, NO),
            (400, Queue, "R", 8, 8, NO),
        ]);
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
        assert_eq!((found.bios_completed, found.unfinished, found.unmatched.sum()), (1, 1, 0));
        assert_eq!(found.devices[0].reads, found.devices[0].all);
    }

    #[test]
    fn merged_bios_share_their_requests_way() {
        let found = run(&[
            (0, Queue, "W", 8, 8, NO),
            (1, GetRq, "W", 8, 8, NO),
            (2, Queue, "W", 16, 8, NO),
            (5, BackMerge, "W", 16, 8, NO),
            (9, Issue, "W", 8, 16, NO),
            (19, Complete, "W", 8, 16, NO),
        ]);
        assert_eq!(of(&found, Stage::Q2m), (1, 3, 3));
        assert_eq!(of(&found, Stage::M2d), (1, 4, 4));
        assert_eq!(of(&found, Stage::D2c), (2, 10, 10));
        assert_eq!(of(&found, Stage::Q2c), (2, 17, 19));
        assert_eq!((found.unmatched.sum(), found.unfinished), (0, 0));
    }

    #[test]
    fn several_requests_at_one_sector_and_both_directions_are_kept_apart() {
        let found = run(&[
            (0, Queue, "R", 8, 8, NO),
            (1, Queue, "R", 8, 8, NO),
            (2, Queue, "W", 8, 8, NO),
            (3, Queue, "R", 8, 16, NO),
            (10, Issue, "R", 8, 8, NO),
            (11, Issue, "R", 8, 8, NO),
            (12, Issue, "R", 8, 16, NO),
            (13, Issue, "W", 8, 8, NO),
            (20, Complete, "R", 8, 8, NO),
            (21, Complete, "R", 8, 8, NO),
            (22, Complete, "R", 8, 16, NO),
            (23, Complete, "W", 8, 8, NO),
        ]);
        assert_eq!(of(&found, Stage::D2c), (4, 10, 10));
        assert_eq!(of(&found, Stage::Q2c), (4, 19, 21));
        assert_eq!((found.unmatched.sum(), found.unfinished), (0, 0));
        assert_eq!(found.devices[0].writes[Stage::Q2c as usize].n, 1);
    }

    #[test]
    fn splits_requeues_and_parts_of_completions() {
        let found = run(&[
            (0, Queue, "R", 0, 24, NO),
            (1, Split, "R", 0, 8, BlockDetail::Split { sector: 8 }),
            (2, GetRq, "R", 0, 8, NO),
            (3, GetRq, "R", 8, 16, NO),
            (10, Issue, "R", 0, 8, NO),
            (11, Requeue, "R", 0, 8, NO),
            (12, Issue, "R", 0, 8, NO),
            (13, Issue, "R", 8, 16, NO),
            (20, Complete, "R", 0, 8, NO),
            (30, Complete, "R", 8, 8, NO),
            (40, Complete, "R", 16, 8, NO),
        ]);
        assert_eq!((found.parts, found.requeues, found.bios_queued, found.bios_completed), (1, 1, 1, 1));
        assert_eq!(of(&found, Stage::D2c), (2, 8, 27));
        assert_eq!(of(&found, Stage::Q2c), (2, 20, 40));
        assert_eq!((found.unmatched.sum(), found.unfinished), (0, 0));
    }

    #[test]
    fn what_cannot_be_matched_is_counted() {
        let found = run(&[
            (1, Issue, "R", 0, 8, NO),
            (2, Complete, "R", 0, 8, NO),
            (3, Queue, "FN", 0, 0, NO),
            (4, GetRq, "R", 0, 8, NO),
            (5, Split, "R", 0, 8, BlockDetail::Split { sector: 4 }),
            (6, Requeue, "W", 0, 8, NO),
        ]);
        let u = found.unmatched;
        assert_eq!((u.issued, u.completed, u.got, u.split, u.requeued), (1, 1, 1, 1, 1));
        assert_eq!((found.without_data, found.bios_queued), (1, 0));
    }

    #[test]
    fn memory_is_bounded_whatever_never_completes() {
        let mut stages = Stages::new();
        let block = |sector| BlockEvent {
            action: Queue,
            device: Device::new(8, 0),
            flags: RequestFlags::WRITE,
            sector,
            bytes: 4096,
            error: 0,
            cgroup: 0,
            detail: NO,
        };
        for i in 0..MAX_IN_FLIGHT as u64 + 1000 {
            stages.event(&event(i, 1, EventKind::Block(block(i * 8))));
        }
        let found = stages.finish();
        assert_eq!((found.unfinished, found.given_up), (MAX_IN_FLIGHT as u64, 1000));
    }
}
