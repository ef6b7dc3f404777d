//! Who waits behind whom.
//!
//! While a bio waits (for a request, in the scheduler, in a merged request) its device serves requests of its owner and of
//! others. Time is handed out as it passes: where the device has k requests, each has 1/k of it, and a request of several
//! owners is theirs by bytes. What a bio waited while its device was idle after a request of another owner, in a step of
//! the way in which it waited for that owner, is the hand-over from it (and after a request of its own, the hand-over to the
//! other): completion, wake-up, dispatch. Both
//! together are the time behind that owner, less what the step takes anyway: its own work, which goes on while the device
//! serves others, is the median of the bios that found their device idle (where there was none, the shortest step seen).
//!
//! In the device (D2C) requests may really run side by side, so nothing is handed out there: the excess over the mean of
//! the same direction and size class with nobody else's request in the device is reported, and where there was no such
//! request it is unknown.

use super::groups::size_class;
use super::in_flight::{Bio, NEVER, NONE};
use super::matching::{Step, Watch};
use crate::latency::LatencyHistogram;
use flashscope_trace::{BlockAction, BlockEvent, RequestKind};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Owners that are told apart; of more, those that come first.
pub const MAX_OWNERS: usize = 64;
/// Bios whose waits are measured at one time; of more the wait is unknown, and counted.
const MAX_WAITING: usize = 1 << 14;
/// Devices.
const MAX_DEVICES: usize = 64;
/// Size classes times kinds.
const CLASSES: usize = 10 * RequestKind::COUNT;

/// Where a bio waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitStage {
    /// For a request: all of the device's are in use, or its plug is held (Q2G).
    Request,
    /// In the scheduler or in front of the driver (G2I, I2D).
    Scheduler,
    /// In a request of another's that it was merged into (M2D), and before it (Q2M).
    Merged,
}

/// A step of the way, each with work of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Part {
    Q2g,
    G2i,
    I2d,
    Q2m,
    M2d,
}

impl Part {
    const ALL: [Part; 5] = [Part::Q2g, Part::G2i, Part::I2d, Part::Q2m, Part::M2d];

    fn name(self) -> &'static str {
        match self {
            Part::Q2g => "Q2G",
            Part::G2i => "G2I",
            Part::I2d => "I2D",
            Part::Q2m => "Q2M",
            Part::M2d => "M2D",
        }
    }

    fn stage(self) -> WaitStage {
        match self {
            Part::Q2g => WaitStage::Request,
            Part::G2i | Part::I2d => WaitStage::Scheduler,
            Part::Q2m | Part::M2d => WaitStage::Merged,
        }
    }
}

/// What one owner's bios waited behind another owner's, on one device, in one stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitBehind {
    pub device: String,
    pub victim: String,
    pub behind: String,
    pub stage: WaitStage,
    /// While the device served the other.
    pub served_ns: u64,
    /// Hand-over from the other.
    pub handover_ns: u64,
}

/// An owner's bios on one device, and what they would have taken alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerLoad {
    pub device: String,
    pub owner: String,
    /// Completed, with their wait measured.
    pub bios: u64,
    pub mean_q2c_ns: u64,
    /// Behind other owners, of the mean.
    pub mean_behind_ns: u64,
    /// D2C above that of the same class alone in the device, of the mean; `null` where no bio of a class was alone.
    pub mean_device_excess_ns: Option<i64>,
    /// Mean Q2C less both (the excess where it is known).
    pub mean_alone_ns: u64,
    pub longest_q2c_ns: u64,
    /// Of one bio, its steps' own work included.
    pub longest_behind_ns: u64,
}

/// What a step takes with nobody in the way, and how well that is known: an error in it is one in every wait of the step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnWork {
    pub device: String,
    /// As btt names it.
    pub step: String,
    /// Steps that waited behind others; from each of them `own_ns` was taken off.
    pub waited: u64,
    /// Steps of bios that found the device idle; where there was none, `own_ns` is the shortest step of all.
    pub idle: u64,
    /// Median of those.
    pub own_ns: u64,
    pub shortest_ns: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterferenceFound {
    pub owners: Vec<OwnerLoad>,
    /// Longest first.
    pub pairs: Vec<WaitBehind>,
    pub own_work: Vec<OwnWork>,
    /// Bios whose waits were not measured: too many on their way, or their owners or devices were too many.
    pub not_measured: u64,
    /// Requests with bios of several owners.
    pub shared_requests: u64,
}

#[derive(Clone, Copy, Default)]
struct Mean {
    n: u64,
    total: u128,
}

impl Mean {
    fn add(&mut self, ns: u64) {
        self.n += 1;
        self.total += u128::from(ns);
    }

    fn get(self) -> Option<u64> {
        (self.n > 0).then(|| (self.total / u128::from(self.n)) as u64)
    }
}

/// Time that a device gave to an owner, and that passed idle after it.
#[derive(Clone, Copy, Default)]
struct Given {
    served: f64,
    idle_after: f64,
}

/// What one owner waited behind one other.
#[derive(Clone, Copy, Default)]
struct Behind {
    served: f64,
    handover: f64,
}

#[derive(Clone, Default)]
struct Load {
    q2c: Mean,
    longest_q2c: u64,
    longest_behind: f64,
    d2c: Vec<(u64, f64)>,
}

#[derive(Clone, Copy)]
struct Request {
    /// Sectors of each owner; of more than four owners the last takes the rest.
    owners: [(u8, u32); 4],
    count: u8,
    left: u32,
}

impl Request {
    const NOTHING: Request = Request { owners: [(0, 0); 4], count: 0, left: 0 };

    fn add(&mut self, owner: u8, sectors: u32) {
        for (known, of) in &mut self.owners[..usize::from(self.count)] {
            if *known == owner {
                *of = of.saturating_add(sectors);
                return;
            }
        }
        match self.owners.get_mut(usize::from(self.count)) {
            Some(free) => {
                *free = (owner, sectors);
                self.count += 1;
            }
            None => self.owners[3].1 = self.owners[3].1.saturating_add(sectors),
        }
    }

    fn shares(&self) -> impl Iterator<Item = (u8, f64)> {
        let owners = &self.owners[..usize::from(self.count)];
        let whole: f64 = owners.iter().map(|(_, sectors)| f64::from(*sectors)).sum();
        owners.iter().map(move |&(owner, sectors)| (owner, f64::from(sectors) / whole.max(1.0)))
    }
}

#[derive(Default)]
struct OneDevice {
    given: Vec<Given>,
    requests: Vec<Request>,
    free: Vec<u32>,
    /// Names of the requests in the device.
    active: Vec<u32>,
    last: u64,
    /// Whose request was completed last.
    after: Option<u8>,
    waiting: u64,
    loads: Vec<Load>,
    behind: BTreeMap<(u8, Part, u8), Behind>,
    /// Steps of bios that found the device idle, and the shortest of all.
    unhindered: [LatencyHistogram; 5],
    shortest: [Option<u64>; 5],
    /// Steps in which an owner waited behind others.
    hindered: BTreeMap<(u8, Part), u64>,
    /// Requests that came into the device, all and by owner.
    entries: u64,
    own_entries: Vec<u64>,
    /// D2C with nobody else in the device, by class.
    alone: Vec<Mean>,
}

impl OneDevice {
    /// Hands out the time up to now.
    fn pass(&mut self, now: u64) {
        let lasted = now.saturating_sub(self.last) as f64;
        self.last = self.last.max(now);
        if lasted == 0.0 {
            return;
        }
        if self.active.is_empty() {
            if let Some(after) = self.after {
                self.given[usize::from(after)].idle_after += lasted;
            }
            return;
        }
        let each = lasted / self.active.len() as f64;
        for &request in &self.active {
            let request = self.requests[request as usize];
            for (owner, share) in request.shares() {
                self.given[usize::from(owner)].served += each * share;
            }
        }
    }

    /// What a step takes anyway, and of how many bios that is known.
    fn own_work(&self, part: Part) -> (u64, u64) {
        let idle = self.unhindered[part as usize].finish();
        (idle.n, if idle.n > 0 { idle.p50 } else { self.shortest[part as usize].unwrap_or(0) })
    }

    /// What each owner waited behind each other, its steps' own work taken off: of the hand-over first.
    fn behind_others(&self) -> BTreeMap<(u8, WaitStage, u8), Behind> {
        let mut out: BTreeMap<(u8, WaitStage, u8), Behind> = BTreeMap::new();
        for (&(victim, part), &n) in &self.hindered {
            let range = (victim, part, 0)..=(victim, part, u8::MAX);
            let own = self.own_work(part).1 as f64 * n as f64;
            let (served, handover) =
                self.behind.range(range.clone()).fold((0.0, 0.0), |sum, (_, b)| (sum.0 + b.served, sum.1 + b.handover));
            let keep = |all: f64, taken: f64| if all > 0.0 { ((all - taken) / all).max(0.0) } else { 0.0 };
            let of_handover = keep(handover, own);
            let of_served = keep(served, (own - handover).max(0.0));
            for (&(_, _, other), b) in self.behind.range(range) {
                let sum = out.entry((victim, part.stage(), other)).or_default();
                sum.served += b.served * of_served;
                sum.handover += b.handover * of_handover;
            }
        }
        out
    }

    /// Entries of others' requests so far.
    fn others_entered(&self, owner: u8) -> u64 {
        self.entries - self.own_entries[usize::from(owner)]
    }

    fn others_in_device(&self, owner: u8) -> bool {
        self.active.iter().any(|&r| self.requests[r as usize].shares().any(|(o, _)| o != owner))
    }
}

/// One bio's wait.
#[derive(Clone, Default)]
struct Wait {
    known: bool,
    owner: u8,
    device: u16,
    /// When the current step of its way began, and what the device had given until then.
    since: u64,
    given: Vec<Given>,
    /// The device served or others waited when the step began.
    hindered: bool,
    behind: f64,
    request: Option<u32>,
    /// Nobody else's request was in the device when it came, and how many of others' had come until then.
    alone: bool,
    others: u64,
}

pub(super) struct Interference {
    devices: Vec<OneDevice>,
    owners: Vec<u32>,
    waits: Vec<Wait>,
    tracked: usize,
    /// The request that is being issued.
    issuing: Option<u32>,
    not_measured: u64,
    shared: u64,
}

impl Interference {
    pub fn new() -> Interference {
        Interference {
            devices: Vec::new(),
            owners: Vec::new(),
            waits: Vec::new(),
            tracked: 0,
            issuing: None,
            not_measured: 0,
            shared: 0,
        }
    }

    fn owner(&mut self, owner: u32) -> Option<u8> {
        let at = match self.owners.iter().position(|&known| known == owner) {
            Some(at) => at,
            None if self.owners.len() == MAX_OWNERS => return None,
            None => {
                self.owners.push(owner);
                self.owners.len() - 1
            }
        };
        Some(at as u8)
    }

    fn wait(&mut self, at: u32) -> Option<&mut Wait> {
        self.waits.get_mut(at as usize).filter(|wait| wait.known)
    }

    fn device(&mut self, device: u16, now: u64) -> Option<&mut OneDevice> {
        let at = usize::from(device);
        if at >= MAX_DEVICES {
            return None;
        }
        if self.devices.len() <= at {
            self.devices.resize_with(at + 1, OneDevice::default);
        }
        let owners = self.owners.len();
        let device = &mut self.devices[at];
        if device.given.len() < owners {
            device.given.resize(owners, Given::default());
            device.loads.resize(owners, Load::default());
            device.own_entries.resize(owners, 0);
        }
        if device.alone.is_empty() {
            device.alone = vec![Mean::default(); CLASSES];
            device.last = now;
        }
        device.pass(now);
        Some(device)
    }

    /// A step of the way is over: what it waited goes to those whom the device served.
    fn settle(&mut self, at: u32, part: Part, now: u64) {
        let Some(wait) = self.waits.get(at as usize).filter(|wait| wait.known) else { return };
        let (device, owner) = (wait.device, wait.owner);
        let mut wait = std::mem::take(&mut self.waits[at as usize]);
        let Some(one) = self.device(device, now) else { return };
        let lasted = now.saturating_sub(wait.since);
        let shortest = &mut one.shortest[part as usize];
        *shortest = Some(shortest.map_or(lasted, |known| known.min(lasted)));
        let since = |other: usize| wait.given.get(other).copied().unwrap_or_default();
        let served_of = |other: usize, given: &Given| (given.served - since(other).served).max(0.0);
        let others = || one.given.iter().enumerate().filter(|(other, _)| *other != usize::from(owner));
        let all: f64 = others().map(|(other, given)| served_of(other, given)).sum();
        // Idle after a request of its own, before one of another's: a hand-over to that one.
        let own = usize::from(owner);
        let own_idle = one.given[own].idle_after - since(own).idle_after;
        let waits: Vec<(u8, f64, f64)> = others()
            .filter_map(|(other, given)| {
                let served = served_of(other, given);
                let handover = given.idle_after - since(other).idle_after + own_idle * served / all.max(1.0);
                (served > 0.0).then_some((other as u8, served, handover))
            })
            .collect();
        // Another may come first where the device was idle when the step began.
        let waited = !waits.is_empty();
        for (other, served, handover) in waits {
            let behind = one.behind.entry((owner, part, other)).or_default();
            behind.served += served;
            behind.handover += handover;
            wait.behind += served + handover;
        }
        if waited {
            *one.hindered.entry((owner, part)).or_default() += 1;
        } else if !wait.hindered {
            one.unhindered[part as usize].add(lasted);
        }
        wait.since = now;
        wait.given.clone_from(&one.given);
        // It waits itself.
        wait.hindered = !one.active.is_empty() || one.waiting > 1;
        self.waits[at as usize] = wait;
    }

    fn leave(&mut self, at: u32, now: u64) {
        let Some(wait) = self.wait(at) else { return };
        let (device, request) = (wait.device, wait.request.take());
        let Some(request) = request else { return };
        let Some(one) = self.device(device, now) else { return };
        let entry = &mut one.requests[request as usize];
        entry.left = entry.left.saturating_sub(1);
        if entry.left == 0 {
            one.after = entry.shares().next().map(|(owner, _)| owner);
            one.active.retain(|&active| active != request);
            one.free.push(request);
        }
    }

    fn enter(&mut self, at: u32, bio: &Bio, now: u64) {
        let Some(wait) = self.wait(at) else { return };
        let (device, owner) = (wait.device, wait.owner);
        let issuing = self.issuing;
        let Some(one) = self.device(device, now) else { return };
        let request = match issuing {
            Some(request) => request,
            None => {
                let request = one.free.pop().unwrap_or_else(|| {
                    one.requests.push(Request::NOTHING);
                    (one.requests.len() - 1) as u32
                });
                one.requests[request as usize] = Request::NOTHING;
                one.active.push(request);
                request
            }
        };
        let entry = &mut one.requests[request as usize];
        let before = entry.count;
        entry.add(owner, bio.sectors);
        entry.left += 1;
        let shared = before == 1 && entry.count == 2;
        if entry.count > before {
            one.entries += 1;
            one.own_entries[usize::from(owner)] += 1;
        }
        let others = one.others_entered(owner);
        let alone = !one.others_in_device(owner);
        self.issuing = Some(request);
        self.shared += u64::from(shared);
        if let Some(wait) = self.wait(at) {
            wait.request = Some(request);
            wait.alone = alone;
            wait.others = others;
        }
    }

    pub fn finish(self, devices: &[flashscope_trace::Device], name: impl Fn(u32) -> String) -> InterferenceFound {
        let name = |owner: u8| name(self.owners[usize::from(owner)]);
        let mut found = InterferenceFound {
            not_measured: self.not_measured,
            shared_requests: self.shared,
            ..InterferenceFound::default()
        };
        for (one, device) in self.devices.iter().zip(devices) {
            let device = device.to_string();
            let behind = one.behind_others();
            for part in Part::ALL {
                let waited = one.hindered.iter().filter(|((_, of), _)| *of == part).map(|(_, n)| n).sum();
                if waited > 0 {
                    let (idle, own_ns) = one.own_work(part);
                    let shortest_ns = one.shortest[part as usize].unwrap_or(0);
                    let (device, step) = (device.clone(), part.name().to_owned());
                    found.own_work.push(OwnWork { device, step, waited, idle, own_ns, shortest_ns });
                }
            }
            for (owner, load) in one.loads.iter().enumerate().filter(|(_, load)| load.q2c.n > 0) {
                let n = load.q2c.n as f64;
                let mut excess = Some(0.0);
                for (class, &(count, total)) in load.d2c.iter().enumerate().filter(|(_, (count, _))| *count > 0) {
                    let alone = one.alone[class].get();
                    excess = excess.zip(alone).map(|(sum, alone)| sum + total - count as f64 * alone as f64);
                }
                let mean = load.q2c.get().unwrap_or(0);
                let waited = behind.iter().filter(|((victim, ..), _)| usize::from(*victim) == owner);
                let behind = (waited.map(|(_, b)| b.served + b.handover).sum::<f64>() / n).round();
                let excess = excess.map(|sum| (sum / n).round());
                let alone = (mean as f64 - behind - excess.unwrap_or(0.0)).max(0.0);
                found.owners.push(OwnerLoad {
                    device: device.clone(),
                    owner: name(owner as u8),
                    bios: load.q2c.n,
                    mean_q2c_ns: mean,
                    mean_behind_ns: behind as u64,
                    mean_device_excess_ns: excess.map(|e| e as i64),
                    mean_alone_ns: alone as u64,
                    longest_q2c_ns: load.longest_q2c,
                    longest_behind_ns: load.longest_behind as u64,
                });
            }
            for ((victim, stage, other), b) in behind {
                let (served_ns, handover_ns) = (b.served.round() as u64, b.handover.round() as u64);
                if served_ns.saturating_add(handover_ns) > 0 {
                    let (victim, behind) = (name(victim), name(other));
                    found.pairs.push(WaitBehind {
                        device: device.clone(),
                        victim,
                        behind,
                        stage,
                        served_ns,
                        handover_ns,
                    });
                }
            }
        }
        found.owners.sort_by(|a, b| {
            let total = |o: &OwnerLoad| o.mean_behind_ns.saturating_mul(o.bios);
            total(b).cmp(&total(a)).then_with(|| (&a.device, &a.owner).cmp(&(&b.device, &b.owner)))
        });
        found.pairs.sort_by(|a, b| {
            let key = |w: &WaitBehind| w.served_ns.saturating_add(w.handover_ns);
            key(b).cmp(&key(a)).then_with(|| {
                (&a.device, &a.victim, &a.behind, a.stage).cmp(&(&b.device, &b.victim, &b.behind, b.stage))
            })
        });
        found
    }
}

impl Watch for Interference {
    fn event(&mut self, _device: u16, block: &BlockEvent, _now: u64) {
        if block.action == BlockAction::Issue {
            self.issuing = None;
        }
    }

    fn queued(&mut self, at: u32, bio: &Bio, now: u64) {
        let slot = at as usize;
        if self.waits.len() <= slot {
            self.waits.resize_with(slot + 1, Wait::default);
        }
        self.waits[slot].known = false;
        let owner = if self.tracked < MAX_WAITING { self.owner(bio.owner) } else { None };
        let (Some(owner), Some(one)) = (owner, self.device(bio.device, now)) else {
            self.not_measured += 1;
            return;
        };
        let hindered = !one.active.is_empty() || one.waiting > 0;
        one.waiting += 1;
        let given = one.given.clone();
        self.tracked += 1;
        self.waits[slot] = Wait {
            known: true,
            owner,
            device: bio.device,
            since: now,
            given,
            hindered,
            behind: 0.0,
            request: None,
            alone: false,
            others: 0,
        };
    }

    fn step(&mut self, at: u32, bio: &Bio, step: Step, now: u64) {
        match step {
            Step::Got => self.settle(at, Part::Q2g, now),
            Step::Merged => self.settle(at, Part::Q2m, now),
            Step::Inserted => self.settle(at, Part::G2i, now),
            Step::Issued => {
                self.settle(at, if bio.merged != NEVER { Part::M2d } else { Part::I2d }, now);
                self.leave(at, now);
                self.enter(at, bio, now);
                if let Some(device) = self.wait(at).map(|wait| wait.device)
                    && let Some(one) = self.devices.get_mut(usize::from(device))
                {
                    one.waiting = one.waiting.saturating_sub(1);
                }
            }
            Step::Requeued => {
                self.leave(at, now);
                if let Some((device, since)) = self.wait(at).map(|wait| (wait.device, &mut wait.since)).map(|(d, s)| {
                    *s = now;
                    (d, now)
                }) && let Some(one) = self.device(device, since)
                {
                    one.waiting += 1;
                    let given = one.given.clone();
                    if let Some(wait) = self.wait(at) {
                        wait.given = given;
                    }
                }
            }
        }
    }

    fn split(&mut self, from: u32, to: u32) {
        let Some(wait) = self.wait(from).cloned() else { return };
        let slot = to as usize;
        if self.waits.len() <= slot {
            self.waits.resize_with(slot + 1, Wait::default);
        }
        if let Some(one) = self.devices.get_mut(usize::from(wait.device)) {
            one.waiting += 1;
        }
        self.waits[slot] = wait;
    }

    fn part_gone(&mut self, at: u32, part: &Bio, completed: u64) {
        let now = if completed == NEVER { part.queued } else { completed };
        self.leave(at, now);
        let Some(device) = self.wait(at).map(|wait| wait.device) else { return };
        if let Some(one) = self.devices.get_mut(usize::from(device))
            && part.issued == NEVER
        {
            one.waiting = one.waiting.saturating_sub(1);
        }
    }

    fn gone(&mut self, at: u32, bio: &Bio, completed: u64) {
        if bio.is_request() || self.wait(at).is_none() {
            return;
        }
        let now = if completed == NEVER { bio.queued } else { completed };
        self.leave(at, now);
        let Some(wait) = self.waits.get_mut(at as usize).map(std::mem::take) else { return };
        self.tracked -= 1;
        let owner = wait.owner;
        let Some(one) = self.devices.get_mut(usize::from(wait.device)) else { return };
        if bio.issued == NEVER && bio.whole == NONE {
            one.waiting = one.waiting.saturating_sub(1);
        }
        if completed == NEVER {
            return;
        }
        let load = &mut one.loads[usize::from(owner)];
        let q2c = now.saturating_sub(bio.queued);
        load.q2c.add(q2c);
        load.longest_q2c = load.longest_q2c.max(q2c);
        load.longest_behind = load.longest_behind.max(wait.behind);
        if bio.issued != NEVER {
            let class = (size_class(bio.whole_sectors) * RequestKind::COUNT + bio.kind() as usize).min(CLASSES - 1);
            let d2c = now.saturating_sub(bio.issued);
            if load.d2c.is_empty() {
                load.d2c = vec![(0, 0.0); CLASSES];
            }
            load.d2c[class].0 += 1;
            load.d2c[class].1 += d2c as f64;
            if wait.alone && one.others_entered(owner) == wait.others {
                one.alone[class].add(d2c);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::matching::Matching;
    use super::*;
    use BlockAction::*;
    use flashscope_trace::{BlockDetail, Device, RequestFlags};

    fn run(steps: &[(u64, BlockAction, u32, u64)]) -> InterferenceFound {
        let mut matching = Matching::new(Interference::new());
        for &(time, action, owner, sector) in steps {
            let block = BlockEvent {
                action,
                device: Device::new(8, 0),
                flags: RequestFlags::WRITE,
                sector,
                bytes: 4096,
                error: 0,
                cgroup: 0,
                detail: BlockDetail::None,
            };
            matching.block(&block, (owner, owner), time, || owner);
        }
        let (interference, devices, ..) = matching.finish();
        interference.finish(&devices, |owner| format!("task {owner}"))
    }

    /// One request at a time, 100 each; whoever comes second waits for the rest of the first and for the hand-over.
    #[test]
    fn a_wait_belongs_to_whom_the_device_serves() {
        let found = run(&[
            (0, Queue, 1, 0),
            (2, GetRq, 1, 0),
            (3, Issue, 1, 0),
            (10, Queue, 2, 64),
            (103, Complete, 1, 0),
            // The request is free; the waiter runs ten later.
            (113, GetRq, 2, 64),
            (114, Issue, 2, 64),
            (214, Complete, 2, 64),
        ]);
        let [pair] = found.pairs.as_slice() else { panic!("{:?}", found.pairs) };
        assert_eq!((pair.victim.as_str(), pair.behind.as_str(), pair.stage), ("task 2", "task 1", WaitStage::Request));
        // From 10 to 103 the device served task 1; of the ten until the request was got, two are what it takes anyway.
        assert_eq!((pair.served_ns, pair.handover_ns), (93, 8));
        let [own] = found.own_work.as_slice() else { panic!("{:?}", found.own_work) };
        assert_eq!((own.step.as_str(), own.waited, own.idle, own.own_ns, own.shortest_ns), ("Q2G", 1, 1, 2, 2));
        let of = |name: &str| found.owners.iter().find(|o| o.owner == name).expect("an owner");
        let second = of("task 2");
        assert_eq!((second.mean_q2c_ns, second.mean_behind_ns, second.mean_device_excess_ns), (204, 101, Some(0)));
        assert_eq!(second.mean_alone_ns, 103);
        assert_eq!((of("task 1").mean_q2c_ns, of("task 1").mean_behind_ns), (103, 0));
        assert_eq!((found.not_measured, found.shared_requests), (0, 0));
    }

    #[test]
    fn ones_own_queue_is_no_interference() {
        let found = run(&[
            (0, Queue, 1, 0),
            (1, Issue, 1, 0),
            (2, Queue, 1, 64),
            (100, Complete, 1, 0),
            (101, Issue, 1, 64),
            (200, Complete, 1, 64),
        ]);
        assert_eq!(found.pairs, []);
        assert_eq!(found.owners[0].mean_behind_ns, 0);
    }

    #[test]
    fn a_device_with_two_requests_gives_each_half_of_its_time() {
        let found = run(&[
            (0, Queue, 1, 0),
            (0, Issue, 1, 0),
            (0, Queue, 2, 64),
            (0, Issue, 2, 64),
            (0, Queue, 3, 128),
            (100, Complete, 1, 0),
            (100, Issue, 3, 128),
            (150, Complete, 2, 64),
            (200, Complete, 3, 128),
        ]);
        let of = |behind: &str| found.pairs.iter().filter(|p| p.behind == behind).map(|p| p.served_ns).sum::<u64>();
        assert_eq!((of("task 1"), of("task 2")), (50, 50));
        // None was ever alone in the device.
        assert!(found.owners.iter().all(|o| o.mean_device_excess_ns.is_none()), "{:?}", found.owners);
    }

    #[test]
    fn more_owners_than_are_told_apart_are_counted() {
        let steps: Vec<_> = (0..100u32).map(|i| (u64::from(i), Queue, i, u64::from(i) * 8)).collect();
        assert_eq!(run(&steps).not_measured, 36);
    }
}
