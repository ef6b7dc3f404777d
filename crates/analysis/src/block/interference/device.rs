//! The time of a device by originator, and the originators that wait meanwhile.
//!
//! Input: requests that enter and leave the device, bios that begin and end to wait. Output, for any stretch of time: the busy time of
//! the device, the time of each originator, and the part of it while another waited. Each costs constant time, or a
//! few additions for each waiting originator; none depends on the number of bios in flight.

use super::super::by_owner::ByOwner;
use super::processors::Processors;
use super::{FURTHER, HELD_NS};
use crate::latency::LatencyHistogram;
use flashscope_trace::TaskId;
use foldhash::HashMap;
use std::collections::BTreeMap;

/// Nanoseconds as a floating-point number. A kernel time fits a signed number ([`flashscope_trace::TimeNs::MAX`]), whose conversion takes
/// a third of the instructions.
#[inline(always)]
pub(super) fn float(ns: u64) -> f64 {
    ns as i64 as f64
}

/// The place of a bio: before its request, in the scheduler, merged into a request, or in the device, where it does not wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    #[default]
    BeforeRequest,
    Scheduler,
    Merged,
    InDevice,
}

impl Place {
    /// The places in which bios wait.
    pub const ALL: [Place; WAITING] = [Place::BeforeRequest, Place::Scheduler, Place::Merged];

    pub fn waits(self) -> bool {
        self != Place::InDevice
    }
}

const WAITING: usize = 3;

/// Sectors of each originator (by its index among the device's) in a request; beyond four the last entry has the rest.
#[derive(Clone, Copy, Default)]
pub(super) struct Request {
    owners: [(usize, u32); 4],
    count: u8,
    bios: u32,
}

impl Request {
    /// Adds a bio. Returns whether the originators, or their shares, have changed.
    fn add(&mut self, owner: usize, sectors: u32) -> bool {
        self.bios += 1;
        let count = usize::from(self.count);
        if let Some((_, of)) = self.owners[..count].iter_mut().find(|(known, _)| *known == owner) {
            *of = of.saturating_add(sectors);
            return count > 1;
        }
        match self.owners.get_mut(count) {
            Some(free) => {
                *free = (owner, sectors);
                self.count += 1;
            }
            None => self.owners[3].1 = self.owners[3].1.saturating_add(sectors),
        }
        true
    }

    fn owners(&self) -> &[(usize, u32)] {
        &self.owners[..usize::from(self.count)]
    }

    fn share(&self, sectors: u32) -> f64 {
        if self.count == 1 {
            return 1.0;
        }
        let whole: f64 = self.owners().iter().map(|(_, sectors)| f64::from(*sectors)).sum();
        f64::from(sectors) / whole.max(1.0)
    }
}

/// Wait for an idle device: by row of the originator that it was kept idle for, by row that waited, and by place.
type KeptIdle = BTreeMap<(usize, usize, Place), f64>;

/// Bios of one originator that wait in one place: their number, and its integral over the device's virtual time.
#[derive(Clone, Copy, Default)]
struct Waiting {
    now: f64,
    integral: f64,
    at: f64,
}

impl Waiting {
    fn integral(&self, virtual_ns: f64) -> f64 {
        self.integral + self.now * (virtual_ns - self.at)
    }

    fn change(&mut self, by: f64, virtual_ns: f64) {
        self.integral = self.integral(virtual_ns);
        self.at = virtual_ns;
        self.now = (self.now + by).max(0.0);
    }
}

/// Waits of one originator in one step. The time in which the device served the originator itself is not counted, except
/// with [`Own::Stays`].
#[derive(Clone, Default)]
pub(super) struct Waits {
    /// Steps while the device served no others: the own work.
    pub unhindered: LatencyHistogram,
    /// The same for split bios that had other steps beside others.
    pub partly: LatencyHistogram,
    pub shortest: Option<u64>,
    /// Steps while it served others: their number and sum.
    pub hindered: u64,
    pub hindered_ns: f64,
}

impl Waits {
    /// `hindered`: `None` where the device served no others; else whether the wait counts. `shared`: the histogram of a shared row,
    /// which gets the time in place of `unhindered`.
    pub fn add(&mut self, ns: u64, hindered: Option<bool>, shared: Option<&mut LatencyHistogram>) {
        self.shortest = Some(self.shortest.map_or(ns, |known| known.min(ns)));
        match hindered {
            Some(true) => {
                self.hindered += 1;
                self.hindered_ns += float(ns);
            }
            Some(false) => {}
            None => shared.unwrap_or(&mut self.unhindered).add(ns),
        }
    }

    /// Wait of all of them behind others, with `own` nanoseconds of own work each. Negative where they took less.
    pub fn behind(&self, own: f64) -> f64 {
        self.hindered_ns - own * self.hindered as f64
    }
}

/// Requests that a split bio's originator has in the device during a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Own {
    Nothing,
    /// Requests, none of which is left at the end.
    Leaves,
    /// Requests, one of which is left at the end, in a device that serves several at once: the step did not wait for it. The
    /// time in which the device served it is part of the step.
    Stays,
}

impl Own {
    pub const COUNT: usize = 3;
}

/// Size classes with waits of their own.
pub(super) const SIZES: usize = 10;

/// An originator on this device.
#[derive(Default)]
pub(super) struct OwnerHere {
    pub number: u32,
    /// Sum of its shares of the requests in the device.
    weight: f64,
    /// Device time that it got, up to the virtual time beside it.
    given: f64,
    given_at: f64,
    requests: u32,
    entries: u64,
    /// Row of the matrix; `None` until it waits or is served.
    row: Option<usize>,
    /// Steps of bios that were not split.
    pub steps: [Waits; 5],
    /// Split bios: by step and by the originator's requests in the device; empty where there are none.
    pub split: Vec<Waits>,
    /// Split bios: number of those without others beside them; below: wait of the rest behind others, if the originator's
    /// part of a wait is in proportion to its part of the device.
    pub split_alone: u64,
    pub in_proportion_ns: f64,
    pub load: super::Load,
}

impl OwnerHere {
    pub fn is_further(&self) -> bool {
        self.row == Some(FURTHER)
    }

    pub fn row(&self) -> Option<usize> {
        self.row
    }

    /// Device time that it got, up to a virtual time.
    #[inline(always)]
    pub fn given(&self, virtual_ns: f64) -> f64 {
        self.given + self.weight * (virtual_ns - self.given_at)
    }
}

/// One device.
#[derive(Default)]
pub(super) struct OneDevice {
    last: u64,
    /// Requests in the device, counted once for each of their originators.
    parts: u64,
    active: u32,
    /// Most requests in the device at once.
    most_active: u32,
    each: f64,
    /// Time with any request in the device, nanoseconds.
    busy: u64,
    /// Grows by 1/k a nanosecond while k requests are in the device.
    virtual_ns: f64,
    requests: Vec<Request>,
    free: Vec<u32>,
    /// Originators that used the device; below: their index by number.
    pub owners: Vec<OwnerHere>,
    index: ByOwner,
    pub entries: u64,
    /// Originators by row.
    pub rows: Vec<u32>,
    weights: Vec<f64>,
    waiting: Vec<[Waiting; WAITING]>,
    /// Rows that wait now in each place, one bit each; and, by row served, those that waited there since `served` was
    /// last updated.
    waiting_rows: [u64; WAITING],
    unsettled: Vec<[u64; WAITING]>,
    /// By row served: for each row that waited, and place, the time; and the integral up to which it is known.
    served: Vec<Vec<[(f64, f64); WAITING]>>,
    /// Time of an idle device while requests waited, by the originator that it waited for: the last one served, or the one on the processor.
    kept_idle: KeptIdle,
    /// Owner of the request that left the device last; below: begin of the idle time.
    last_left: Option<usize>,
    idle_since: u64,
    /// Originators by task.
    tasks: HashMap<TaskId, usize>,
    /// D2C of requests that were alone in the device, by class.
    pub alone: Vec<super::Mean>,
    /// Steps of originators that share a row.
    pub unhindered: [LatencyHistogram; 5],
}

impl OneDevice {
    /// Accounts for the time up to now. Clocks of CPUs may differ: time never goes back.
    #[inline(always)]
    pub fn pass(&mut self, now: u64) {
        if self.owners.is_empty() {
            self.last = now;
            return;
        }
        if now > self.last {
            let lasted = now - self.last;
            if self.active > 0 {
                self.busy += lasted;
                self.virtual_ns += float(lasted) * self.each;
            }
            self.last = now;
        }
    }

    /// Index of an originator in `owners`, added where it is missing. `task` is its task.
    pub fn owner(&mut self, number: u32, task: TaskId) -> usize {
        if let Some(at) = self.index.get(number) {
            return usize::from(at);
        }
        let at = self.owners.len();
        self.owners.push(OwnerHere { number, ..OwnerHere::default() });
        self.index.set(number, at as u16);
        self.tasks.insert(task, at);
        at
    }

    pub fn busy(&self) -> u64 {
        self.busy
    }

    pub fn virtual_ns(&self) -> f64 {
        self.virtual_ns
    }

    fn row(&mut self, owner: usize) -> usize {
        match self.owners[owner].row {
            Some(row) => row,
            None => self.new_row(owner),
        }
    }

    #[cold]
    fn new_row(&mut self, owner: usize) -> usize {
        let row = if self.rows.len() < FURTHER { self.rows.len() } else { self.least_row().unwrap_or(FURTHER) };
        match self.rows.get_mut(row) {
            Some(number) => *number = self.owners[owner].number,
            None if row < FURTHER => self.rows.push(self.owners[owner].number),
            None => {}
        }
        self.make_row(row);
        self.owners[owner].row = Some(row);
        row
    }

    fn make_row(&mut self, row: usize) {
        if self.weights.len() == row {
            self.weights.push(0.0);
            self.waiting.push(Default::default());
            self.served.push(Vec::new());
            self.unsettled.push([u64::MAX; WAITING]);
        }
    }

    /// Frees the row of the idle originator with the least waits in either direction: its sums, and its later work, go to
    /// the row that all further ones share.
    fn least_row(&mut self) -> Option<usize> {
        self.make_row(FURTHER);
        (0..self.served.len()).for_each(|row| self.settle_served(row));
        let idle = |row: &usize| self.weights[*row] == 0.0 && self.waiting[*row].iter().all(|place| place.now == 0.0);
        let sum = |places: &[(f64, f64); WAITING]| places.iter().map(|(sum, _)| sum).sum::<f64>();
        let weight = |row: usize| {
            let of_others = (0..FURTHER).filter(|other| *other != row);
            of_others.map(|other| sum(&self.served[other][row]) + sum(&self.served[row][other])).sum::<f64>()
        };
        let (least, _) =
            (0..FURTHER).filter(idle).map(|row| (row, weight(row))).min_by(|(_, a), (_, b)| a.total_cmp(b))?;
        // Its own time is no wait behind another, and is left out.
        self.served[least][least] = Default::default();
        for other in 0..=FURTHER {
            for place in 0..WAITING {
                let served = std::mem::take(&mut self.served[least][other][place].0);
                self.served[FURTHER][other][place].0 += served;
            }
        }
        for of in 0..=FURTHER {
            let waited = std::mem::take(&mut self.served[of][least]);
            for (place, (sum, _)) in waited.into_iter().enumerate() {
                self.served[of][FURTHER][place].0 += sum;
            }
        }
        let shared = |row: usize| if row == least { FURTHER } else { row };
        for ((of, waiter, place), ns) in std::mem::take(&mut self.kept_idle) {
            *self.kept_idle.entry((shared(of), shared(waiter), place)).or_default() += ns;
        }
        self.waiting[least] = Default::default();
        if let Some(at) = self.index.get(self.rows[least]) {
            self.owners[usize::from(at)].row = Some(FURTHER);
        }
        Some(least)
    }

    /// A bio, or a part of one, moves to another place. Its wait counts only where it is shown.
    #[inline]
    pub fn moves(&mut self, owner: usize, from: Place, to: Place, counts: bool) {
        if from == to || !counts {
            return;
        }
        let (row, virtual_ns) = (self.row(owner), self.virtual_ns);
        let (bit, waiting) = (1 << row, &mut self.waiting[row]);
        if from.waits() {
            let left = &mut waiting[from as usize];
            left.change(-1.0, virtual_ns);
            if left.now == 0.0 {
                self.waiting_rows[from as usize] &= !bit;
            }
        }
        if to.waits() {
            waiting[to as usize].change(1.0, virtual_ns);
            if self.waiting_rows[to as usize] & bit == 0 {
                self.waiting_rows[to as usize] |= bit;
                self.unsettled.iter_mut().for_each(|rows| rows[to as usize] |= bit);
            }
        }
    }

    /// Adds the time that an originator was served since its weight changed last, for each row that waited.
    fn settle_served(&mut self, row: usize) {
        let (weight, served) = (self.weights[row], &mut self.served[row]);
        if served.len() < self.waiting.len() {
            served.resize(self.waiting.len(), Default::default());
        }
        let unsettled = std::mem::replace(&mut self.unsettled[row], self.waiting_rows);
        for (place, mut rows) in unsettled.into_iter().enumerate() {
            while let at = rows.trailing_zeros() as usize
                && at < served.len()
            {
                rows &= rows - 1;
                let (sum, known) = &mut served[at][place];
                let integral = self.waiting[at][place].integral(self.virtual_ns);
                *sum += weight * (integral - *known);
                *known = integral;
            }
        }
    }

    fn weigh(&mut self, owner: usize, by: f64, requests: i32) {
        let row = self.row(owner);
        self.settle_served(row);
        let virtual_ns = self.virtual_ns;
        let one = &mut self.owners[owner];
        one.given = one.given(virtual_ns);
        one.given_at = virtual_ns;
        one.requests = one.requests.saturating_add_signed(requests);
        let weight = if one.requests == 0 { 0.0 } else { one.weight + by };
        let change = weight - std::mem::replace(&mut one.weight, weight);
        // Originators beyond the most share a row: its weight is their sum.
        self.weights[row] = if row < FURTHER { weight } else { (self.weights[row] + change).max(0.0) };
    }

    fn set_active(&mut self, active: u32) {
        self.active = active;
        self.most_active = self.most_active.max(active);
        self.each = if active > 0 { 1.0 / f64::from(active) } else { 0.0 };
    }

    /// A bio enters the device, in a new request or one that is being issued. Returns the request's number, and whether the
    /// request now has several originators.
    pub fn enter(&mut self, request: Option<u32>, owner: usize, sectors: u32) -> (u32, bool) {
        let number = request.unwrap_or_else(|| {
            self.set_active(self.active + 1);
            self.free.pop().unwrap_or_else(|| {
                self.requests.push(Request::default());
                (self.requests.len() - 1) as u32
            })
        });
        if request.is_none() {
            let mut alone = Request::default();
            alone.add(owner, sectors);
            self.requests[number as usize] = alone;
            self.weigh(owner, 1.0, 1);
            self.parts += 1;
            self.entries += 1;
            self.owners[owner].entries += 1;
            return (number, false);
        }
        let before = self.requests[number as usize];
        let mut after = before;
        if after.add(owner, sectors) {
            for &(owner, sectors) in before.owners() {
                self.weigh(owner, -before.share(sectors), 0);
            }
            for (at, &(owner, sectors)) in after.owners().iter().enumerate() {
                let new = at >= usize::from(before.count);
                self.weigh(owner, after.share(sectors), i32::from(new));
                if new {
                    self.parts += 1;
                    self.entries += 1;
                    self.owners[owner].entries += 1;
                }
            }
        }
        self.requests[number as usize] = after;
        (number, before.count == 1 && after.count == 2)
    }

    /// A bio of a request leaves the device; the request leaves with its last bio.
    pub fn leave(&mut self, number: u32) {
        let request = &mut self.requests[number as usize];
        request.bios = request.bios.saturating_sub(1);
        if request.bios > 0 {
            return;
        }
        let request = *request;
        for &(owner, sectors) in request.owners() {
            self.weigh(owner, -request.share(sectors), -1);
        }
        self.last_left = request.owners().first().map(|(owner, _)| *owner);
        self.parts -= u64::from(request.count);
        self.set_active(self.active.saturating_sub(1));
        self.idle_since = self.last;
        self.free.push(number);
    }

    /// Number of others' requests that entered so far.
    pub fn others_entered(&self, owner: usize) -> u64 {
        self.entries - self.owners[owner].entries
    }

    /// Counts a wait for a device that was idle since another's request left it. Returns whether it was.
    pub fn was_kept_idle(&mut self, owner: usize, ns: f64) -> bool {
        let Some(last) = self.last_left.filter(|last| *last != owner && self.active == 0) else { return false };
        self.kept_idle_by(last, owner, Place::Scheduler, ns);
        true
    }

    /// Counts a wait for the processor while the device was idle. `since`: the begin of the wait at this place. Returns whether another
    /// originator had the processor for most of that time.
    pub fn was_held(&mut self, owner: usize, place: Place, since: u64, (ns, processors): (f64, &Processors)) -> bool {
        let from = since.max(self.idle_since);
        if self.active > 0 || self.last.saturating_sub(from) < HELD_NS {
            return false;
        }
        let holder = processors.most_of(from, self.last).and_then(|task| self.tasks.get(&task).copied());
        let Some(holder) = holder.filter(|holder| *holder != owner) else { return false };
        self.kept_idle_by(holder, owner, place, ns);
        true
    }

    fn kept_idle_by(&mut self, other: usize, owner: usize, place: Place, ns: f64) {
        let (other, owner) = (self.row(other), self.row(owner));
        *self.kept_idle.entry((other, owner, place)).or_default() += ns;
    }

    /// By row: time that the idle device waited for it while bios of `row` waited in this place.
    pub fn kept_idle_for(&self, row: usize, place: Place) -> Vec<f64> {
        (0..self.served.len()).map(|of| self.kept_idle.get(&(of, row, place)).copied().unwrap_or(0.0)).collect()
    }

    /// Whether it has served several requests at once.
    pub fn is_parallel(&self) -> bool {
        self.most_active > 1
    }

    pub fn is_in_device(&self, owner: usize) -> bool {
        self.owners[owner].requests > 0
    }

    pub fn others_in_device(&self, owner: usize) -> bool {
        self.parts > u64::from(self.owners[owner].requests)
    }

    /// By row: time that it was served while bios of `row` waited in any of these places.
    pub fn served_beside(&mut self, row: usize, places: &[Place]) -> Vec<f64> {
        (0..self.served.len()).for_each(|of| self.settle_served(of));
        self.served.iter().map(|of| places.iter().map(|place| of[row][*place as usize].0).sum()).collect()
    }
}
