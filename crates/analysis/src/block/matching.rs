//! Which bios a step belongs to.
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
//!
//! What comes of it is up to a [`Watch`]: statistics, distributions, interference.

use super::in_flight::{Bio, InFlight, NEVER, NONE, Place, Wanted};
use flashscope_trace::{BlockAction, BlockDetail, BlockEvent, Device, RequestFlags};
use serde::{Deserialize, Serialize};

/// Bios on their way that are remembered; beyond it the oldest is given up, and counted.
pub const MAX_IN_FLIGHT: usize = 1 << 18;
/// Devices that are told apart; the events of more are counted.
const MAX_DEVICES: usize = 1024;

/// What a bio has just had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Got,
    Merged,
    Inserted,
    Issued,
    /// The driver gave it back.
    Requeued,
}

/// Sees every bio's way. `at` names the bio from `queued` to `gone`, then it may name another one.
pub(super) trait Watch {
    /// Any event that has a device and data, before its bios have had their step.
    fn event(&mut self, _device: u16, _block: &BlockEvent, _now: u64) {}
    fn queued(&mut self, _at: u32, _bio: &Bio, _now: u64) {}
    /// Its times are those before the step.
    fn step(&mut self, _at: u32, _bio: &Bio, _step: Step, _now: u64) {}
    /// A second part has the name `to`; both are what they have become.
    fn split(&mut self, _from: u32, _to: u32) {}
    /// Its way is over, at `completed`, or as far as the trace goes (`NEVER`).
    fn gone(&mut self, _at: u32, _bio: &Bio, _completed: u64) {}
}

impl<A: Watch, B: Watch> Watch for (A, B) {
    fn event(&mut self, device: u16, block: &BlockEvent, now: u64) {
        self.0.event(device, block, now);
        self.1.event(device, block, now);
    }

    fn queued(&mut self, at: u32, bio: &Bio, now: u64) {
        self.0.queued(at, bio, now);
        self.1.queued(at, bio, now);
    }

    fn step(&mut self, at: u32, bio: &Bio, step: Step, now: u64) {
        self.0.step(at, bio, step, now);
        self.1.step(at, bio, step, now);
    }

    fn split(&mut self, from: u32, to: u32) {
        self.0.split(from, to);
        self.1.split(from, to);
    }

    fn gone(&mut self, at: u32, bio: &Bio, completed: u64) {
        self.0.gone(at, bio, completed);
        self.1.gone(at, bio, completed);
    }
}

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

/// What was counted beside the bios' ways.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MatchCounts {
    pub events: u64,
    pub begin_ns: u64,
    pub end_ns: u64,
    pub queued: u64,
    pub completed: u64,
    pub parts: u64,
    pub requeues: u64,
    pub without_data: u64,
    pub unfinished: u64,
    pub given_up: u64,
    /// Events of devices beyond those that are told apart.
    pub of_further_devices: u64,
    pub unmatched: UnmatchedSteps,
}

/// Puts steps and bios together; reads block events in order of time.
pub(super) struct Matching<W> {
    pub watch: W,
    devices: Vec<Device>,
    last: usize,
    bios: InFlight,
    counts: MatchCounts,
}

/// Any bio at an event's first sector.
#[inline(always)]
fn wanted(device: u16, block: &BlockEvent) -> Wanted {
    Wanted { place: Place::new(device, block.flags.kind()), sector: block.sector, most: u64::MAX }
}

/// What a walk over a request's bios found.
struct Walk {
    /// First sector that no bio covers; the request's end where all are there.
    reached: u64,
    found: bool,
}

impl<W: Watch> Matching<W> {
    pub fn new(watch: W) -> Self {
        let counts = MatchCounts { begin_ns: u64::MAX, ..MatchCounts::default() };
        Matching { watch, devices: Vec::new(), last: 0, bios: InFlight::new(MAX_IN_FLIGHT), counts }
    }

    #[inline]
    fn device(&mut self, device: Device) -> Option<u16> {
        if self.devices.get(self.last) == Some(&device) {
            return Some(self.last as u16);
        }
        self.other_device(device)
    }

    fn other_device(&mut self, device: Device) -> Option<u16> {
        self.last = match self.devices.iter().position(|&d| d == device) {
            Some(at) => at,
            None if self.devices.len() == MAX_DEVICES => return None,
            None => {
                self.devices.push(device);
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
        mut step: impl FnMut(&mut W, u32, &mut Bio),
    ) -> Walk {
        let end = block.end();
        let mut wanted = wanted(device, block);
        let mut found = false;
        while wanted.sector < end {
            wanted.most = end - wanted.sector;
            let Some((at, bio)) = self.bios.find(wanted, &fits) else { break };
            wanted.sector = bio.end();
            found = true;
            step(&mut self.watch, at, bio);
        }
        Walk { found, reached: wanted.sector }
    }

    #[inline(always)]
    fn add(&mut self, bio: Bio) -> u32 {
        if let Some((at, gone)) = self.bios.make_room() {
            self.counts.given_up += 1;
            self.watch.gone(at, &gone, NEVER);
        }
        self.bios.add(bio)
    }

    fn queue(&mut self, device: u16, block: &BlockEvent, owner: u32, now: u64) {
        self.counts.queued += 1;
        let sectors = u32::try_from(block.bytes.div_ceil(512)).unwrap_or(u32::MAX);
        let at = self.add(InFlight::bio(device, block.flags, block.sector, sectors, owner, now));
        self.watch.queued(at, self.bios.get(at), now);
    }

    fn complete(&mut self, device: u16, block: &BlockEvent, now: u64) {
        let end = block.end();
        let mut wanted = wanted(device, block);
        // A device above others (device mapper, md) completes bios that it never issued.
        let fits = |bio: &Bio| 1 + u8::from(bio.issued != NEVER);
        while wanted.sector < end {
            wanted.most = end - wanted.sector;
            if let Some((at, bio)) = self.bios.find(wanted, fits) {
                wanted.sector = bio.end();
                self.counts.completed += u64::from(!bio.part);
                self.watch.gone(at, bio, now);
                self.bios.remove(at);
            } else if let Some((at, _)) = self.bios.find(Wanted { most: u64::MAX, ..wanted }, fits) {
                // The rest of it comes with another completion.
                self.bios.shorten(at, wanted.most as u32);
                wanted.sector = end;
            } else {
                self.counts.unmatched.completed += 1;
                break;
            }
        }
    }

    fn split(&mut self, device: u16, block: &BlockEvent) {
        let fresh = |bio: &Bio| u8::from(bio.issued == NEVER && u64::from(bio.sectors) * 512 > block.bytes);
        let Some((at, bio)) = self.bios.find(wanted(device, block), fresh) else {
            self.counts.unmatched.split += 1;
            return;
        };
        let BlockDetail::Split { sector } = block.detail else { return };
        if sector <= bio.sector || sector >= bio.end() {
            self.counts.unmatched.split += 1;
            return;
        }
        let first = (sector - bio.sector) as u32;
        let second = Bio { sector, sectors: bio.sectors - first, part: true, next: NONE, ..*bio };
        bio.sectors = first;
        self.counts.parts += 1;
        let second = self.add(second);
        self.watch.split(at, second);
    }

    /// One block event. A bio that it queues belongs to `owner`.
    #[inline]
    pub fn block(&mut self, block: &BlockEvent, owner: u32, now: u64) {
        let counts = &mut self.counts;
        counts.events += 1;
        if now < counts.begin_ns {
            counts.begin_ns = now;
        }
        if now > counts.end_ns {
            counts.end_ns = now;
        }
        // A command of its own kind has no sectors that could be matched.
        if block.bytes == 0 || block.flags.has(RequestFlags::PASSTHROUGH) {
            counts.without_data += u64::from(block.action == BlockAction::Queue);
            return;
        }
        let Some(device) = self.device(block.device) else {
            self.counts.of_further_devices += 1;
            return;
        };
        self.watch.event(device, block, now);
        let unmatched = |walk: Walk| u64::from(!walk.found || walk.reached < block.end());
        match block.action {
            BlockAction::Queue => self.queue(device, block, owner, now),
            BlockAction::GetRq => {
                let walk = self.walk(
                    device,
                    block,
                    |bio| if bio.got == NEVER && bio.merged == NEVER { 2 } else { 0 },
                    |watch, at, bio| {
                        watch.step(at, bio, Step::Got, now);
                        bio.got = now;
                    },
                );
                self.counts.unmatched.got += unmatched(walk);
            }
            BlockAction::Insert => {
                let walk = self.walk(
                    device,
                    block,
                    |bio| u8::from(bio.issued == NEVER) * (1 + u8::from(bio.inserted == NEVER)),
                    |watch, at, bio| {
                        // A merged bio waits from its merge on, as in btt.
                        if bio.inserted == NEVER && bio.merged == NEVER {
                            watch.step(at, bio, Step::Inserted, now);
                            bio.inserted = now;
                        }
                    },
                );
                self.counts.unmatched.inserted += unmatched(walk);
            }
            BlockAction::BackMerge | BlockAction::FrontMerge => {
                // The range of a request that is merged into another is that of bios which have had their step.
                let walk = self.walk(
                    device,
                    block,
                    |bio| u8::from(bio.issued == NEVER) * (1 + u8::from(bio.got == NEVER && bio.merged == NEVER)),
                    |watch, at, bio| {
                        if bio.got == NEVER && bio.merged == NEVER {
                            watch.step(at, bio, Step::Merged, now);
                            bio.merged = now;
                        }
                    },
                );
                self.counts.unmatched.merged += unmatched(walk);
            }
            BlockAction::Issue => {
                let fits = |bio: &Bio| {
                    u8::from(bio.issued == NEVER)
                        * (1 + u8::from(bio.got != NEVER || bio.merged != NEVER) + u8::from(bio.inserted != NEVER))
                };
                let walk = self.walk(device, block, fits, |watch, at, bio| {
                    watch.step(at, bio, Step::Issued, now);
                    bio.issued = now;
                });
                self.counts.unmatched.issued += unmatched(walk);
            }
            BlockAction::Requeue => {
                self.counts.requeues += 1;
                let walk = self.walk(
                    device,
                    block,
                    |bio| 1 + u8::from(bio.issued != NEVER),
                    |watch, at, bio| {
                        watch.step(at, bio, Step::Requeued, now);
                        bio.issued = NEVER;
                    },
                );
                self.counts.unmatched.requeued += unmatched(walk);
            }
            BlockAction::Complete => self.complete(device, block, now),
            BlockAction::Split => self.split(device, block),
            _ => {}
        }
    }

    /// What is still on its way is handed over, and all that was found.
    pub fn finish(mut self) -> (W, Vec<Device>, MatchCounts) {
        self.counts.unfinished = self.bios.len() as u64;
        for (at, bio) in self.bios.rest() {
            self.watch.gone(at, bio, NEVER);
        }
        if self.counts.events == 0 {
            self.counts.begin_ns = 0;
        }
        (self.watch, self.devices, self.counts)
    }
}
