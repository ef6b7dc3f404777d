//! Waits of each originator behind others, on each device.
//!
//! While a bio waits (for a request, in the scheduler, in a merged request) its device serves requests of its originator and of
//! others. Where the device has k requests, each gets 1/k of the time; a request of several originators is divided by bytes.
//!
//! The time that a step takes without others is its *own work*: the median of the originator's steps during which the device served
//! no others, less the time in which it served the originator itself. The fewer such steps there are, the more the median of all
//! originators counts, or the originator's shortest step, if that is shorter. Of a step during which the device served others, the
//! time beyond the own work, and beyond the originator's own part of the device, counts as wait behind the others. It is divided
//! among them by the time that the device gave them meanwhile.
//!
//! A request that waits long in the scheduler while the device is idle waits for the originator that the device served last, if that is
//! another: bfq keeps the device idle for the next request of a process, or a busy processor delays the hand-over of the request.
//! Where events show that another originator had the processor for most of the time that the device was idle, after the request was
//! inserted or after the originator's own request before it was completed, the step waited for that one.
//!
//! A split bio waits as long as any of its parts does, and each moment counts once: a part that waits for another
//! part waits for its originator's own work. If the device served others during one of its steps, the time of all its steps beyond
//! their own work counts as wait behind others: a device that is throttled stands idle afterwards. Where the trace does not show the
//! own work of the steps, the originator's part of a wait is in proportion to its part of the device meanwhile.
//!
//! Within the device requests may really run in parallel, so nothing is divided there. From the issue of a bio's last part to
//! its completion, the excess over the mean of the same kind and size class without others' requests in the device is
//! reported; without such a bio it is unknown.
//!
//! Totals of each originator are exact. Pairs are kept for [`TOLD_APART`] originators of a device: with more, the one
//! with the least waits in either direction joins a row that all others share, and is counted.

mod device;
mod processors;

use super::by_owner::MAX_OWNERS;
use super::groups::size_class;
use super::in_flight::{Bio, NEVER};
use super::lacks::{Lacks, known};
use super::watch::{Step, Watch};
use crate::{Evidence, LatencyHistogram, Unknown};
use device::{OneDevice, Own, OwnerHere, Place, SIZES, Waits, float};
use flashscope_trace::{BlockAction, BlockEvent, RequestKind, TaskId};
use foldhash::{HashMap, HashMapExt as _};
use processors::Processors;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Most originators of a device with a row of their own in the pairs.
pub const TOLD_APART: usize = 63;
/// The row of all others.
const FURTHER: usize = TOLD_APART;
/// Size classes times kinds.
const CLASSES: usize = SIZES * RequestKind::COUNT;
/// Weight of all originators' steps in the own work of a step, as a number of the originator's own steps. The same number of
/// split bios without company shows the own work of the originator's others.
const ENOUGH: u64 = 5;
/// Fewest steps that are evidence of own work: a single one of them does not move their median.
const SEEN: u64 = 3;
/// A request that waits this long for an idle device waits for the originator served last: bfq keeps a device idle for the next request
/// of a process, 8 ms (`slice_idle`), or 2 ms where its requests are scattered (`BFQ_MIN_TT`, block/bfq-iosched.c, Linux 6.1). Half of that.
const KEPT_IDLE_NS: u64 = 1_000_000;
/// Where the device was idle this long during a step, the task on the processor is checked: a step itself takes some 10 µs.
const HELD_NS: u64 = 100_000;

/// The stage in which a bio waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitStage {
    /// For a request: all of the device's are in use, or it is held in a plug (Q2G).
    Request,
    /// In the scheduler or in front of the driver (G2I, I2D).
    Scheduler,
    /// Merged into another's request (M2D), and before that (Q2M).
    Merged,
}

/// A step of a bio; each has own work.
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

    /// The place of a bio during the step. A merge is not known before it happens.
    fn place(self) -> Place {
        match self {
            Part::Q2g | Part::Q2m => Place::BeforeRequest,
            Part::G2i | Part::I2d => Place::Scheduler,
            Part::M2d => Place::Merged,
        }
    }
}

/// Waits of one owner's bios behind another owner, on one device, in one stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct WaitBehind {
    pub device: String,
    pub victim: String,
    pub behind: String,
    pub stage: WaitStage,
    /// While the device served the other owner.
    pub served_ns: u64,
    /// Waits for the hand-over after the other owner.
    pub handover_ns: u64,
}

/// An owner's bios on one device, with their time without others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct OwnerLoad {
    pub device: String,
    pub owner: String,
    /// Completed bios with a measured wait.
    pub bios: u64,
    pub mean_q2c_ns: u64,
    /// Part of the mean that was waited behind other owners.
    pub mean_behind_ns: u64,
    /// Part of the mean, from the last issue of a part to the completion, beyond that of the same class alone in the device. Unknown where
    /// no other owner used the device, or no bio of a class was alone in it.
    pub mean_device_excess_ns: Evidence<i64>,
    /// Mean Q2C without both parts. Unknown where the excess is.
    pub mean_alone_ns: Evidence<u64>,
    pub longest_q2c_ns: u64,
    /// Longest wait of one bio behind others, its steps' own work included.
    pub longest_behind_ns: u64,
}

/// Own work of a step, without others, and the evidence for it: an error in it affects every wait of the step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct OwnWork {
    pub device: String,
    /// Name as in btt.
    pub step: String,
    /// Steps that waited behind others; the own work of the owner was subtracted from each.
    pub waited: u64,
    /// Steps of all owners during which the device served no others.
    pub idle: u64,
    /// Median of those; where there are none, that of split bios with other steps beside others, else the shortest step.
    pub own_ns: u64,
    pub shortest_ns: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct InterferenceFound {
    pub owners: Vec<OwnerLoad>,
    /// Longest first.
    pub pairs: Vec<WaitBehind>,
    pub own_work: Vec<OwnWork>,
    /// Bios whose waits were not measured, because there were too many owners.
    pub not_measured: u64,
    /// Requests with bios of several owners.
    pub shared_requests: Evidence<u64>,
    /// Owners of a device without a row of their own in `pairs`: there they are "(further owners)"; in `owners` they are exact.
    #[serde(default)]
    pub further_owners: u64,
    /// Why others may have used the devices unseen: then it is unknown which bios were alone, and waits may be longer than reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unseen: Option<Unknown>,
}

impl InterferenceFound {
    /// Marks figures as unknown whose events are not in the trace.
    pub(super) fn lacks(&mut self, lacks: &Lacks) {
        self.shared_requests =
            known(std::mem::take(&mut self.shared_requests), &[&lacks.queueing, &lacks.requests]).flatten();
        // The place where a bio waited is known only at its issue.
        if let Some(why) = &lacks.requests {
            (self.owners, self.pairs, self.own_work) = Default::default();
            self.unseen = Some(why.clone());
        }
    }

    pub(super) fn has_unseen(&mut self, why: &Unknown) {
        for owner in &mut self.owners {
            owner.mean_device_excess_ns = Evidence::Unknown(why.clone());
            owner.mean_alone_ns = Evidence::Unknown(why.clone());
        }
        self.unseen = Some(why.clone());
    }
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

/// An owner's completed bios on one device.
#[derive(Default)]
struct Load {
    q2c: Mean,
    longest_q2c: u64,
    longest_behind: f64,
    /// Number and sum of the times from the last issue of a part to the completion, by class.
    in_device: Vec<(usize, u64, f64)>,
}

/// A bio, or a part of one that was split.
#[derive(Clone, Copy, Default)]
struct Wait {
    known: bool,
    /// Its wait is shown; else it only counts for the own work.
    in_range: bool,
    device: u16,
    place: Place,
    /// Its owner: an index into the device's owners.
    owner: u32,
    request: Option<u32>,
    /// The bio that a part belongs to; of a whole bio itself. The following fields are only of the bio.
    root: u32,
    /// Its parts that are not in the device.
    waiting: u32,
    /// Time of its last step, and until then the device's busy time, and its owner's time.
    since: u64,
    busy: u64,
    given: f64,
    behind: f64,
    /// Its steps so far, those of them beside others (bits by step), and its wait in each, without its originator's part of the device.
    /// They count once the bio is completed: otherwise they would be waits without a Q2C.
    had: u8,
    beside: u8,
    steps: [f64; 5],
    /// Its wait is in `split_waits`.
    split: bool,
    /// No other's request was in the device when its last part came; below: the number of others' requests so far.
    alone: bool,
    others: u64,
}

/// Steps of split bios: as many as [`Part`] by [`Own`].
const SPLIT: usize = Part::ALL.len() * Own::COUNT;

/// Waits of a bio since it was split: by step, whether the device served others, and the time. They count once the bio is completed.
#[derive(Clone, Default)]
struct SplitWait {
    steps: Vec<(usize, bool, f64)>,
    /// Wait behind others if the originator's part of each step is in proportion to its part of the device.
    in_proportion: f64,
}

/// Measures the waits of bios; bounded by the bios in flight, and by the owners of a device.
pub(super) struct Interference {
    devices: Vec<OneDevice>,
    waits: Vec<Wait>,
    /// By name; only split bios have an entry.
    split_waits: HashMap<u32, SplitWait>,
    /// The request that is being issued.
    issuing: Option<u32>,
    pub(super) processors: Processors,
    /// Task of the owner whose bio is queued next.
    pub(super) task: TaskId,
    not_measured: u64,
    shared: u64,
}

impl Interference {
    pub fn new() -> Interference {
        let (devices, waits, split_waits) = (Vec::new(), Vec::new(), HashMap::new());
        let (issuing, processors, task) = (None, Processors::default(), TaskId(0));
        Interference { devices, waits, split_waits, issuing, processors, task, not_measured: 0, shared: 0 }
    }

    fn device(&mut self, device: u16) -> &mut OneDevice {
        let at = usize::from(device);
        if self.devices.len() <= at {
            self.devices.resize_with(at + 1, OneDevice::default);
        }
        &mut self.devices[at]
    }

    fn known(&mut self, at: u32) -> Option<&mut Wait> {
        self.waits.get_mut(at as usize).filter(|wait| wait.known)
    }

    #[inline(always)]
    fn put(&mut self, at: u32, wait: Wait) {
        let slot = at as usize;
        if self.waits.len() <= slot {
            self.waits.resize(slot + 1, Wait::default());
        }
        self.waits[slot] = wait;
    }

    /// A step ends, and the next one begins at `place`. The time since the bio's last step, of any part,
    /// belongs to this step.
    fn end_step(&mut self, at: u32, part: Part, place: Place, now: u64) {
        let Some(wait) = self.known(at) else { return };
        let (device, owner, root, in_range) = (usize::from(wait.device), wait.owner as usize, wait.root, wait.in_range);
        let before = wait.place;
        let Some(bio) = self.waits.get_mut(root as usize).filter(|bio| bio.known) else { return };
        let one = &mut self.devices[device];
        one.pass(now);
        let given = one.owners[owner].given(one.virtual_ns());
        if bio.waiting > 0 {
            let split = if bio.split { self.split_waits.get_mut(&root) } else { None };
            waited(one, bio, split, part, (now, given, &self.processors));
        }
        one.moves(owner, before, place, in_range);
        bio.waiting = (bio.waiting + u32::from(place.waits())).saturating_sub(u32::from(before.waits()));
        (bio.since, bio.busy, bio.given) = (now, one.busy(), given);
        self.waits[at as usize].place = place;
    }

    fn issued(&mut self, at: u32, bio: &Bio, now: u64) {
        let part = if bio.merged != NEVER { Part::M2d } else { Part::I2d };
        self.end_step(at, part, Place::InDevice, now);
        self.leave(at, now);
        self.enter(at, bio.sectors);
    }

    fn leave(&mut self, at: u32, now: u64) {
        let Some(wait) = self.known(at) else { return };
        let (device, Some(request)) = (usize::from(wait.device), wait.request.take()) else { return };
        let one = &mut self.devices[device];
        one.pass(now);
        one.leave(request);
    }

    fn enter(&mut self, at: u32, sectors: u32) {
        let Some(wait) = self.waits.get_mut(at as usize).filter(|wait| wait.known) else { return };
        let one = &mut self.devices[usize::from(wait.device)];
        let owner = wait.owner as usize;
        let (request, shared) = one.enter(self.issuing, owner, sectors);
        let (others, alone) = (one.others_entered(owner), !one.others_in_device(owner));
        wait.request = Some(request);
        let root = wait.root;
        self.issuing = Some(request);
        self.shared += u64::from(shared);
        let bio = &mut self.waits[root as usize];
        (bio.others, bio.alone) = (others, alone);
    }

    /// A bio, or a part, ends. Returns its root; `None` where its waits are not measured.
    fn end(&mut self, at: u32, now: u64) -> Option<u32> {
        self.leave(at, now);
        let wait = self.known(at)?;
        let place = std::mem::replace(&mut wait.place, Place::InDevice);
        let (device, owner, root, in_range) = (usize::from(wait.device), wait.owner as usize, wait.root, wait.in_range);
        if place.waits() {
            self.devices[device].moves(owner, place, Place::InDevice, in_range);
            let bio = &mut self.waits[root as usize];
            bio.waiting = bio.waiting.saturating_sub(1);
        }
        Some(root)
    }

    /// `name` returns an owner's name, and `shown` whether its rows are shown: those in which it waits, or others wait for it.
    pub fn finish(
        mut self,
        devices: &[flashscope_trace::Device],
        name: impl Fn(u32) -> String,
        shown: impl Fn(u32) -> bool,
    ) -> InterferenceFound {
        let mut found = InterferenceFound {
            not_measured: self.not_measured,
            shared_requests: self.shared.into(),
            ..InterferenceFound::default()
        };
        for (one, device) in self.devices.iter_mut().zip(devices) {
            let device = device.to_string();
            let work = WorkOfDevice::of(one);
            if one.owners.iter().any(|owner| owner.load.q2c.n > 0 && shown(owner.number)) {
                found.own_work.extend(work.found(&device));
            }
            let mut pairs: BTreeMap<(usize, WaitStage, usize), (f64, f64)> = BTreeMap::new();
            for at in 0..one.owners.len() {
                let owner = &one.owners[at];
                if owner.load.q2c.n == 0 {
                    continue;
                }
                let (number, behind) = (owner.number, Behind::of(owner, &work));
                if shown(number) {
                    found.owners.push(load_found(one, at, &behind, &device, name(number)));
                }
                behind.divide(one, at, &mut pairs);
            }
            let of_row = |row: usize| match one.rows.get(row) {
                Some(&owner) => name(owner),
                None => "(further owners)".to_owned(),
            };
            let further = |owner: &OwnerHere| owner.is_further() && shown(owner.number);
            let shows = |row: usize| match one.rows.get(row) {
                Some(&owner) => shown(owner),
                None => one.owners.iter().any(further),
            };
            pairs.retain(|&(victim, _, other), _| shows(victim) || shows(other));
            found.further_owners += one.owners.iter().filter(|owner| owner.is_further()).count() as u64;
            for ((victim, stage, other), (served, handover)) in pairs {
                let (served_ns, handover_ns) = (served.round() as u64, handover.round() as u64);
                if served_ns.saturating_add(handover_ns) > 0 {
                    let (device, victim, behind) = (device.clone(), of_row(victim), of_row(other));
                    found.pairs.push(WaitBehind { device, victim, behind, stage, served_ns, handover_ns });
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

/// Own work on one device, of the steps of bios and of split bios.
struct WorkOfDevice {
    steps: [OneWork; 5],
    split: [OneWork; SPLIT],
}

#[derive(Clone, Copy)]
struct OneWork {
    /// While the device served no others.
    idle: u64,
    own_ns: u64,
    shortest_ns: u64,
    waited: u64,
}

impl OneWork {
    fn of<'a>(mut all: LatencyHistogram, owners: impl Iterator<Item = &'a Waits>) -> OneWork {
        let (mut shortest, mut waited) = (None::<u64>, 0);
        let mut partly = LatencyHistogram::default();
        for one in owners {
            all.merge(&one.unhindered);
            partly.merge(&one.partly);
            shortest = shortest.into_iter().chain(one.shortest).min();
            waited += one.hindered;
        }
        if all.finish().n == 0 {
            all = partly;
        }
        let (idle, shortest_ns) = (all.finish(), shortest.unwrap_or(0));
        let own_ns = if idle.n > 0 { idle.p50 } else { shortest_ns };
        OneWork { idle: idle.n, own_ns, shortest_ns, waited }
    }

    /// Own work of one owner's steps, nanoseconds: the fewer steps it has, the more those of all owners count.
    fn own_ns(self, owner: &Waits) -> f64 {
        let own = owner.unhindered.finish();
        let all = owner.shortest.map_or(self.own_ns, |shortest| shortest.min(self.own_ns)) as f64;
        let n = if own.n >= SEEN { own.n as f64 } else { 0.0 };
        (own.p50 as f64 * n + all * ENOUGH as f64) / (n + ENOUGH as f64)
    }
}

impl WorkOfDevice {
    fn of(one: &OneDevice) -> WorkOfDevice {
        let of_step = |step: usize| one.owners.iter().map(move |owner| &owner.steps[step]);
        let of_split = |step: usize| one.owners.iter().filter_map(move |owner| owner.split.get(step));
        WorkOfDevice {
            steps: std::array::from_fn(|step| OneWork::of(one.unhindered[step].clone(), of_step(step))),
            split: std::array::from_fn(|step| OneWork::of(LatencyHistogram::default(), of_split(step))),
        }
    }

    fn found(&self, device: &str) -> Vec<OwnWork> {
        let row = |step: String, work: &OneWork| {
            let OneWork { idle, own_ns, shortest_ns, waited } = *work;
            (waited > 0).then(|| OwnWork { device: device.to_owned(), step, waited, idle, own_ns, shortest_ns })
        };
        let steps = Part::ALL.into_iter().filter_map(|part| row(part.name().to_owned(), &self.steps[part as usize]));
        let split = self.split.iter().enumerate().filter_map(|(at, work)| {
            let own = ["", ", after its own request", ", beside its own request"][at % Own::COUNT];
            row(format!("{} of a split bio{own}", Part::ALL[at / Own::COUNT].name()), work)
        });
        steps.chain(split).collect()
    }
}

/// Whether the trace shows the own work of an owner's split bios: some of them had no company, or nearly all their waits are in steps
/// that were also seen while the device served no others.
fn is_own_work_known(owner: &OwnerHere) -> bool {
    let waited = |one: &Waits| one.hindered_ns;
    let seen = |one: &&Waits| one.unhindered.finish().n + one.partly.finish().n >= SEEN;
    let all: f64 = owner.split.iter().map(waited).sum();
    owner.split_alone >= ENOUGH || owner.split.iter().filter(seen).map(waited).sum::<f64>() >= 0.9 * all
}

/// Wait of all bios of an owner behind others, nanoseconds, by step; of split bios by stage.
struct Behind {
    steps: [f64; 5],
    split: [f64; 3],
}

impl Behind {
    /// A step that took less than usual beside others compensates one that took more. Only the sum is at least 0, and
    /// no more than the sum is divided among others.
    fn of(owner: &OwnerHere, work: &WorkOfDevice) -> Behind {
        let mut steps: [f64; 5] =
            std::array::from_fn(|at| owner.steps[at].behind(work.steps[at].own_ns(&owner.steps[at])));
        let mut split = [0.0; 3];
        for (at, (one, work)) in owner.split.iter().zip(work.split).enumerate() {
            split[Part::ALL[at / Own::COUNT].stage() as usize] += one.behind(work.own_ns(one));
        }
        if !is_own_work_known(owner) {
            let total: f64 = split.iter().sum();
            let part = if total > 0.0 { owner.in_proportion_ns / total } else { 0.0 };
            split.iter_mut().for_each(|ns| *ns *= part);
        }
        let each = || steps.iter().chain(&split);
        let (sum, more): (f64, f64) = (each().sum(), each().filter(|ns| **ns > 0.0).sum());
        let part = if more > 0.0 { (sum / more).max(0.0) } else { 0.0 };
        steps.iter_mut().chain(&mut split).for_each(|ns| *ns = ns.max(0.0) * part);
        Behind { steps, split }
    }

    fn sum(&self) -> f64 {
        self.steps.iter().chain(&self.split).sum()
    }

    /// Divides it among the owners that the device served meanwhile.
    fn divide(&self, one: &mut OneDevice, owner: usize, pairs: &mut BTreeMap<(usize, WaitStage, usize), (f64, f64)>) {
        let Some(victim) = one.owners[owner].row() else { return };
        let of_steps = Part::ALL.into_iter().map(|part| (part.stage(), part.place(), self.steps[part as usize]));
        let of_split = [
            (WaitStage::Request, Place::BeforeRequest, self.split[0]),
            (WaitStage::Scheduler, Place::Scheduler, self.split[1]),
            (WaitStage::Merged, Place::Merged, self.split[2]),
        ];
        for (stage, place, waited) in of_steps.chain(of_split).filter(|(.., waited)| *waited >= 0.5) {
            // Owners that share a row wait behind one another too.
            let others = |mut served: Vec<f64>| {
                if victim < FURTHER {
                    served[victim] = 0.0;
                }
                let all: f64 = served.iter().sum();
                (served, all)
            };
            let (mut served, mut all) = others(one.served_beside(victim, &[place]));
            if all < 0.5 {
                // The trace lacks the step that led here: it waited at its place before.
                (served, all) = others(one.served_beside(victim, &Place::ALL));
            }
            let (kept_idle, kept_all) = others(one.kept_idle_for(victim, place));
            let of_served = (waited / all.max(1.0)).min(1.0);
            let handover = (waited - all).max(0.0);
            let each = served.into_iter().zip(kept_idle).enumerate();
            for (other, (served, kept)) in each.filter(|(_, (served, kept))| served + kept > 0.0) {
                let sum = pairs.entry((victim, stage, other)).or_default();
                sum.0 += served * of_served;
                sum.1 += handover * (served + kept) / (all + kept_all);
            }
        }
    }
}

fn load_found(one: &OneDevice, owner: usize, behind: &Behind, device: &str, name: String) -> OwnerLoad {
    let load = &one.owners[owner].load;
    let n = load.q2c.n as f64;
    let mean = load.q2c.get().unwrap_or(0);
    let mean_behind = behind.sum() / n;
    let (excess, alone) = if one.others_entered(owner) == 0 {
        let why = "no other process used this device, so there is no comparison";
        (Evidence::unknown(why, ""), Evidence::unknown(why, ""))
    } else {
        let mut sum = Some(0.0);
        for &(class, count, total) in &load.in_device {
            let alone = one.alone.get(class).and_then(|alone| alone.get());
            sum = sum.zip(alone).map(|(sum, alone)| sum + total - count as f64 * alone as f64);
        }
        match sum {
            Some(sum) => {
                let alone = (mean as f64 - mean_behind - sum / n).round();
                debug_assert!(alone >= -1.0, "{name}: {alone} ns alone, of {mean} ns and {mean_behind} behind others");
                (Evidence::Known((sum / n).round() as i64), Evidence::Known(alone.max(0.0) as u64))
            }
            None => {
                let why = "no request of the same kind and size was alone in the device";
                let next = "record until others have ended, or before they begin";
                (Evidence::unknown(why, next), Evidence::unknown(why, next))
            }
        }
    };
    debug_assert!(mean_behind <= mean as f64 + 1.0, "{name}: waited {mean_behind} of {mean} ns");
    OwnerLoad {
        device: device.to_owned(),
        owner: name,
        bios: load.q2c.n,
        mean_q2c_ns: mean,
        mean_behind_ns: mean_behind.round() as u64,
        mean_device_excess_ns: excess,
        mean_alone_ns: alone,
        longest_q2c_ns: load.longest_q2c,
        longest_behind_ns: load.longest_behind as u64,
    }
}

impl Watch for Interference {
    fn begins_again(&mut self) {
        self.processors.begin_again();
    }

    fn event(&mut self, _device: u16, block: &BlockEvent, _now: u64, _shown: bool) {
        if block.action == BlockAction::Issue {
            self.issuing = None;
        }
    }

    fn queued(&mut self, at: u32, bio: &Bio, now: u64) {
        if bio.owner >= MAX_OWNERS {
            self.put(at, Wait::default());
            self.not_measured += 1;
            return;
        }
        let (device, in_range, task) = (bio.device, bio.in_range, self.task);
        let one = self.device(device);
        one.pass(now);
        let owner = one.owner(bio.owner, task);
        one.moves(owner, Place::InDevice, Place::BeforeRequest, in_range);
        let (busy, given) = (one.busy(), one.owners[owner].given(one.virtual_ns()));
        let begun =
            Wait { known: true, in_range, device, owner: owner as u32, root: at, waiting: 1, ..Wait::default() };
        self.put(at, Wait { since: now, busy, given, ..begun });
    }

    #[inline(always)]
    fn step(&mut self, at: u32, bio: &Bio, step: Step, now: u64) {
        match step {
            Step::Got => self.end_step(at, Part::Q2g, Place::Scheduler, now),
            Step::Merged => self.end_step(at, Part::Q2m, Place::Merged, now),
            Step::Inserted => self.end_step(at, Part::G2i, Place::Scheduler, now),
            Step::Issued => self.issued(at, bio, now),
            Step::Requeued => {
                self.leave(at, now);
                self.end_step(at, Part::I2d, Place::Scheduler, now);
            }
        }
    }

    fn split(&mut self, from: u32, to: u32) {
        let Some(&mut wait) = self.known(from) else { return };
        self.devices[usize::from(wait.device)].moves(wait.owner as usize, Place::InDevice, wait.place, wait.in_range);
        self.put(to, Wait { request: None, ..wait });
        let bio = &mut self.waits[wait.root as usize];
        bio.waiting += u32::from(wait.place.waits());
        if !bio.split {
            bio.split = true;
            let mut split = SplitWait::default();
            for part in Part::ALL.into_iter().filter(|part| bio.had >> *part as u8 & 1 != 0) {
                let others = bio.beside >> part as u8 & 1 != 0;
                split.steps.push((part as usize * Own::COUNT, others, bio.steps[part as usize]));
            }
            self.split_waits.insert(wait.root, split);
        }
    }

    fn part_ended(&mut self, at: u32, part: &Bio, completed: u64) {
        let now = if completed == NEVER { part.queued } else { completed };
        if self.end(at, now).is_some_and(|root| root != at) {
            self.waits[at as usize].known = false;
        }
    }

    fn ended(&mut self, at: u32, bio: &Bio, completed: u64) {
        if bio.is_request() {
            return;
        }
        let now = if completed == NEVER { bio.queued } else { completed };
        if self.end(at, now).is_none() {
            return;
        }
        let wait = &mut self.waits[at as usize];
        wait.known = false;
        let split = if wait.split { self.split_waits.remove(&at) } else { None };
        if completed == NEVER {
            return;
        }
        let one = &mut self.devices[usize::from(wait.device)];
        let owner = wait.owner as usize;
        let others = one.others_entered(owner);
        let q2c = now.saturating_sub(bio.queued);
        match split {
            None => waited_in_steps(one, wait, q2c),
            Some(split) => waited_split(one, wait, &split, q2c),
        }
        let load = &mut one.owners[owner].load;
        if bio.in_range {
            load.q2c.add(q2c);
            load.longest_q2c = load.longest_q2c.max(q2c);
            load.longest_behind = load.longest_behind.max(wait.behind);
        }
        if bio.issued != NEVER {
            let class = (size_class(bio.whole_sectors) * RequestKind::COUNT + bio.kind() as usize).min(CLASSES - 1);
            // Since its last part was issued.
            let in_device = now.saturating_sub(wait.since).min(q2c);
            if bio.in_range {
                match load.in_device.iter_mut().find(|(known, ..)| *known == class) {
                    Some((_, n, sum)) => (*n, *sum) = (*n + 1, *sum + in_device as f64),
                    None => load.in_device.push((class, 1, in_device as f64)),
                }
            }
            if wait.alone && others == wait.others {
                if one.alone.is_empty() {
                    one.alone = vec![Mean::default(); CLASSES];
                }
                one.alone[class].add(in_device);
            }
        }
    }
}

/// Counts a step in which a bio waited.
fn waited(
    one: &mut OneDevice,
    bio: &mut Wait,
    split: Option<&mut SplitWait>,
    part: Part,
    (now, given, processors): (u64, f64, &Processors),
) {
    let lasted = now.saturating_sub(bio.since);
    let (served, lasted_ns) = (float((one.busy() - bio.busy).min(lasted)), float(lasted));
    let own = (given - bio.given).clamp(0.0, served);
    let waited = lasted_ns - own;
    let (owner, shown) = (bio.owner as usize, if bio.in_range { waited } else { 0.0 });
    // Half a nanosecond: the sums are of fractions.
    let others = served - own >= 0.5
        || (part == Part::I2d || own >= 0.5)
            && lasted >= HELD_NS
            && one.was_held(owner, part.place(), bio.since, (shown, processors))
        || part == Part::I2d && served == 0.0 && lasted >= KEPT_IDLE_NS && one.was_kept_idle(owner, shown);
    if others {
        bio.behind += waited;
    }
    let Some(split) = split else {
        bio.had |= 1 << part as u8;
        bio.beside |= u8::from(others) << part as u8;
        bio.steps[part as usize] += waited;
        return;
    };
    let (class, waited) = match own >= 0.5 {
        true if one.is_parallel() && one.is_in_device(bio.owner as usize) => (Own::Stays, lasted_ns),
        true => (Own::Leaves, waited),
        false => (Own::Nothing, waited),
    };
    let step = part as usize * Own::COUNT + class as usize;
    if others {
        let of_own = if served - own >= 0.5 { own * lasted_ns / served } else { own };
        split.in_proportion += (lasted_ns - of_own).max(0.0);
    }
    split.steps.push((step, others, waited));
}

fn of_split(here: &mut OwnerHere) -> &mut [Waits] {
    if here.split.is_empty() {
        here.split = vec![Waits::default(); SPLIT];
    }
    &mut here.split
}

/// Counts the steps of a completed bio; all of them together are no longer than its Q2C.
fn waited_in_steps(one: &mut OneDevice, bio: &Wait, q2c: u64) {
    let OneDevice { owners, unhindered, .. } = one;
    let here = &mut owners[bio.owner as usize];
    let shares_row = here.is_further();
    let mut left = float(q2c);
    for part in Part::ALL.into_iter().filter(|part| bio.had >> *part as u8 & 1 != 0) {
        let waited = bio.steps[part as usize].min(left);
        left -= waited;
        let hindered = (bio.beside >> part as u8 & 1 != 0).then_some(bio.in_range);
        let shared = shares_row.then_some(&mut unhindered[part as usize]);
        here.steps[part as usize].add(waited as u64, hindered, shared);
    }
}

/// Counts the steps of a completed bio that was split; all of them together are no longer than its Q2C.
fn waited_split(one: &mut OneDevice, bio: &Wait, split: &SplitWait, q2c: u64) {
    let OneDevice { owners, unhindered, .. } = one;
    let beside = split.steps.iter().any(|&(_, others, _)| others);
    let sum: f64 = split.steps.iter().map(|(.., ns)| ns).sum();
    let part = if sum > q2c as f64 { q2c as f64 / sum } else { 1.0 };
    let here = &mut owners[bio.owner as usize];
    if !beside {
        here.split_alone += 1;
    } else if bio.in_range {
        here.in_proportion_ns += split.in_proportion.min(q2c as f64);
    }
    let of_split = of_split(here);
    for &(step, others, ns) in &split.steps {
        let (waits, ns) = (&mut of_split[step], ns * part);
        waits.shortest = Some(waits.shortest.map_or(ns as u64, |known| known.min(ns as u64)));
        match (beside, others) {
            (false, _) => {
                waits.unhindered.add(ns as u64);
                if step % Own::COUNT == Own::Nothing as usize {
                    unhindered[step / Own::COUNT].add(ns as u64);
                }
            }
            (true, false) => waits.partly.add(ns as u64),
            (true, true) => {}
        }
        if beside && bio.in_range {
            waits.hindered += 1;
            waits.hindered_ns += ns;
        }
    }
}

#[cfg(test)]
mod tests;
