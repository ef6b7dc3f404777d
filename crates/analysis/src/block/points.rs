//! The I/O distribution (block and size over time, per process), in bounded memory.

use super::by_owner::ByOwner;
use super::in_flight::{Bio, NEVER};
use super::watch::Watch;
use flashscope_trace::{Device, RequestKind};
use foldhash::{HashMap, HashMapExt as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::hash::{Hash, Hasher};

/// Most points: a figure of 900 × 400 dots shows no more.
const MAX_POINTS: usize = 6000;
/// When bins must grow, they grow first along an axis with more bins than this.
const TIME_BINS: u64 = 512;
const SECTOR_BINS: u64 = 256;
/// Most owners with a colour of their own: those with most bios; the rest share one.
const MAX_OWNERS: usize = 12;
/// Most owners counted separately before the largest are known; with more, the smaller half joins the rest.
const MAX_TOLD: usize = 256;
/// All owners that are not counted separately.
const REST: u16 = u16::MAX;
/// Most devices counted separately.
const MAX_DEVICES: u16 = 64;

/// Bios of one owner and direction near one time and sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct IoPoint {
    /// Middle of the bin: time of completion, first sector.
    pub time_ns: u64,
    pub sector: u64,
    pub device: u16,
    pub kind: RequestKind,
    /// Index into [`IoPoints::owners`].
    pub owner: u16,
    /// They do the work of bios of an upper device: counted there already.
    #[serde(default)]
    pub below: bool,
    pub bios: u32,
    pub bytes: u64,
    /// Queueing to completion: the sum of all bios; below: the longest.
    #[serde(default)]
    pub q2c_ns: u64,
    #[serde(default)]
    pub longest_q2c_ns: u64,
}

/// Completed bios over time and sectors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct IoPoints {
    /// Width of a bin; 1 where nothing was binned.
    pub bin_ns: u64,
    /// Height of a bin, by device: a small device beside a large one keeps its detail.
    pub bin_sectors: Vec<u64>,
    pub devices: Vec<String>,
    /// Most bios first; the last one may be for all others.
    pub owners: Vec<String>,
    /// By device, time, sector, direction, owner.
    pub points: Vec<IoPoint>,
    /// Completed bios of devices beyond the most: in no point.
    #[serde(default)]
    pub of_further_devices: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Bin {
    device: u16,
    time: u64,
    sector: u64,
    kind: RequestKind,
    owner: u16,
    below: bool,
}

impl Hash for Bin {
    /// Hashes three numbers instead of five.
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.time);
        state.write_u64(self.sector);
        let place = u64::from(self.device) << 33 | u64::from(self.below) << 32;
        state.write_u64(place | (self.kind as u64) << 16 | u64::from(self.owner));
    }
}

/// Sum of a bin's bios.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Sum {
    bios: u32,
    bytes: u64,
    q2c_ns: u64,
    longest_ns: u64,
}

impl Sum {
    fn add(&mut self, other: Sum) {
        self.bios = self.bios.saturating_add(other.bios);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.q2c_ns = self.q2c_ns.saturating_add(other.q2c_ns);
        self.longest_ns = self.longest_ns.max(other.longest_ns);
    }
}

/// Sectors of a device with bios, and the bins' height.
#[derive(Clone, Copy)]
struct Sectors {
    first: u64,
    last: u64,
    shift: u32,
}

impl Sectors {
    const NONE: Sectors = Sectors { first: u64::MAX, last: 0, shift: 0 };

    fn bins(&self) -> u64 {
        bins(self.last.saturating_sub(self.first), self.shift)
    }
}

/// Number of bins of this width in a span that could still be merged: 0 where they are as wide as 64 bits allow.
fn bins(span: u64, shift: u32) -> u64 {
    if shift == u64::BITS - 1 { 0 } else { span >> shift }
}

/// Bins that double in size when there are too many points.
pub(super) struct Points {
    time_shift: u32,
    bins: HashMap<Bin, Sum>,
    time: (u64, u64),
    /// Sectors by device.
    sectors: Vec<Sectors>,
    /// Owner, number of its bios, and bytes.
    owners: Vec<(u32, u64, u64)>,
    index: ByOwner,
    of_further_devices: u64,
}

impl Points {
    pub fn new() -> Points {
        Points {
            time_shift: 0,
            bins: HashMap::new(),
            time: (u64::MAX, 0),
            sectors: Vec::new(),
            owners: Vec::new(),
            index: ByOwner::default(),
            of_further_devices: 0,
        }
    }

    fn owner(&mut self, owner: u32, bios: u64, bytes: u64) -> u16 {
        if let Some(at) = self.index.get(owner) {
            let known = &mut self.owners[usize::from(at)];
            (known.1, known.2) = (known.1 + bios, known.2.saturating_add(bytes));
            return at;
        }
        if self.owners.len() == MAX_TOLD {
            self.forget();
        }
        let at = self.owners.len() as u16;
        self.owners.push((owner, bios, bytes));
        self.index.set(owner, at);
        at
    }

    /// Owners by their share of the bios or of the bytes, whichever is larger, most first; and the new number of each old one:
    /// those after the first `kept` join the rest. Bytes count too, because a few large writes matter as much as many small ones.
    fn ranked(&self, kept: usize) -> (Vec<(u32, u64, u64)>, Vec<u16>) {
        let sum = |of: fn(&(u32, u64, u64)) -> u64| self.owners.iter().map(|one| u128::from(of(one))).sum::<u128>();
        let (all_bios, all_bytes) = (sum(|one| one.1), sum(|one| one.2));
        let share =
            |&(_, bios, bytes): &(u32, u64, u64)| (u128::from(bios) * all_bytes).max(u128::from(bytes) * all_bios);
        let mut order: Vec<usize> = (0..self.owners.len()).collect();
        order.sort_by_key(|&at| (std::cmp::Reverse(share(&self.owners[at])), self.owners[at].0));
        order.truncate(kept);
        let mut numbers = vec![REST; self.owners.len()];
        for (new, &old) in order.iter().enumerate() {
            numbers[old] = new as u16;
        }
        (order.into_iter().map(|at| self.owners[at]).collect(), numbers)
    }

    fn renumbered(&self, numbers: &[u16]) -> HashMap<Bin, Sum> {
        let mut bins = HashMap::with_capacity(MAX_POINTS + 1);
        for (bin, sum) in &self.bins {
            let owner = numbers.get(usize::from(bin.owner)).copied().unwrap_or(REST);
            add(&mut bins, Bin { owner, ..*bin }, *sum);
        }
        bins
    }

    #[cold]
    fn forget(&mut self) {
        let (owners, numbers) = self.ranked(MAX_TOLD / 2);
        self.bins = self.renumbered(&numbers);
        self.index = ByOwner::default();
        owners.iter().enumerate().for_each(|(at, (owner, _, _))| self.index.set(*owner, at as u16));
        self.owners = owners;
    }

    fn coarsen(&mut self) {
        while self.bins.len() > MAX_POINTS {
            let time = bins(self.time.1 - self.time.0, self.time_shift);
            // The device with the finest bins.
            let finest = (0..self.sectors.len()).max_by_key(|&at| self.sectors[at].bins()).unwrap_or(0);
            let sectors = self.sectors.get(finest).map_or(0, Sectors::bins);
            if time == 0 && sectors == 0 {
                return;
            }
            let along_time = u128::from(time) * u128::from(SECTOR_BINS) >= u128::from(sectors) * u128::from(TIME_BINS);
            if along_time {
                self.time_shift += 1;
            } else {
                self.sectors[finest].shift += 1;
            }
            let old = std::mem::replace(&mut self.bins, HashMap::with_capacity(MAX_POINTS + 1));
            for (mut bin, sum) in old {
                if along_time {
                    bin.time >>= 1;
                } else if usize::from(bin.device) == finest {
                    bin.sector >>= 1;
                }
                add(&mut self.bins, bin, sum);
            }
        }
    }

    pub fn finish(&self, devices: &[Device], name: impl Fn(u32) -> String) -> IoPoints {
        let middle = |index: u64, shift: u32| if shift == 0 { index } else { (index << shift) | (1 << (shift - 1)) };
        let (owners, numbers) = self.ranked(MAX_OWNERS);
        let mut bins: Vec<(Bin, Sum)> = self.renumbered(&numbers).into_iter().collect();
        let mut owners: Vec<String> = owners.into_iter().map(|(owner, _, _)| name(owner)).collect();
        let rest = owners.len() as u16;
        let mut others = false;
        for (bin, _) in bins.iter_mut().filter(|(bin, _)| bin.owner == REST) {
            (bin.owner, others) = (rest, true);
        }
        if others {
            owners.push("(further owners)".to_owned());
        }
        bins.sort_unstable();
        IoPoints {
            bin_ns: 1 << self.time_shift,
            bin_sectors: self.sectors.iter().map(|sectors| 1 << sectors.shift).collect(),
            devices: devices.iter().take(usize::from(MAX_DEVICES)).map(Device::to_string).collect(),
            owners,
            of_further_devices: self.of_further_devices,
            points: bins
                .into_iter()
                .map(|(bin, sum)| IoPoint {
                    time_ns: middle(bin.time, self.time_shift),
                    sector: middle(bin.sector, self.sectors[usize::from(bin.device)].shift),
                    device: bin.device,
                    kind: bin.kind,
                    owner: bin.owner,
                    below: bin.below,
                    bios: sum.bios,
                    bytes: sum.bytes,
                    q2c_ns: sum.q2c_ns,
                    longest_q2c_ns: sum.longest_ns,
                })
                .collect(),
        }
    }
}

fn add(bins: &mut HashMap<Bin, Sum>, bin: Bin, sum: Sum) {
    bins.entry(bin).or_default().add(sum);
}

impl Watch for Points {
    fn ended(&mut self, _at: u32, bio: &Bio, completed: u64) {
        if completed == NEVER || bio.whole_sectors == 0 {
            return;
        }
        if bio.device >= MAX_DEVICES {
            self.of_further_devices += 1;
            return;
        }
        self.time = (self.time.0.min(completed), self.time.1.max(completed));
        let device = usize::from(bio.device);
        if self.sectors.len() <= device {
            self.sectors.resize(device + 1, Sectors::NONE);
        }
        let sectors = &mut self.sectors[device];
        (sectors.first, sectors.last) = (sectors.first.min(bio.sector), sectors.last.max(bio.sector));
        let sector = bio.sector >> sectors.shift;
        let bytes = bio.whole_bytes();
        // An owner has what it asked for, not what each device of a stack did for it.
        let (bios, asked) = if bio.below { (0, 0) } else { (1, bytes) };
        let bin = Bin {
            device: bio.device,
            time: completed >> self.time_shift,
            sector,
            kind: bio.kind(),
            owner: self.owner(bio.owner, bios, asked),
            below: bio.below,
        };
        // For a request without queueing in the trace: from its issue.
        let q2c_ns = completed.saturating_sub(if bio.is_request() { bio.issued } else { bio.queued });
        let sum = Sum { bios: 1, bytes, q2c_ns, longest_ns: q2c_ns };
        add(&mut self.bins, bin, sum);
        if self.bins.len() > MAX_POINTS {
            self.coarsen();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::in_flight::InFlight;
    use super::*;
    use flashscope_trace::RequestFlags;

    #[test]
    fn a_million_bios_are_a_few_thousand_points_and_none_is_lost() {
        let mut points = Points::new();
        for i in 0..1_000_000u64 {
            let flags = if i % 3 == 0 { RequestFlags::READ } else { RequestFlags::WRITE };
            let bio = InFlight::plain(0, flags, i * 7919 % 1_000_003, 8, (i % 40) as u32, i * 1000);
            points.ended(0, &bio, i * 1000 + 500);
        }
        let found = points.finish(&[Device::new(8, 0)], |owner| owner.to_string());
        assert!(found.points.len() <= MAX_POINTS, "{}", found.points.len());
        assert_eq!(found.points.iter().map(|p| u64::from(p.bios)).sum::<u64>(), 1_000_000);
        assert_eq!(found.points.iter().map(|p| p.bytes).sum::<u64>(), 1_000_000 * 4096);
        assert_eq!((found.owners.len(), found.owners[MAX_OWNERS].as_str()), (13, "(further owners)"));
    }

    /// A hostile trace: any time and any sector, and more owners than bins.
    #[test]
    fn times_and_sectors_of_64_bits_do_not_overflow() {
        let mut points = Points::new();
        for i in 0..40_000u64 {
            let (time, sector) = (u64::MAX / 40_000 * i, u64::MAX - (i << (i % 50)));
            let flags = if i % 2 == 0 { RequestFlags::READ } else { RequestFlags::WRITE };
            let bio = InFlight::plain((i % 60) as u16, flags, sector, 8, i as u32, time);
            points.ended(0, &bio, time);
        }
        let found = points.finish(&[Device::new(8, 0)], |owner| owner.to_string());
        assert_eq!(found.points.iter().map(|p| u64::from(p.bios)).sum::<u64>(), 40_000);
    }

    #[test]
    fn a_few_large_writes_have_a_name_as_many_small_ones_do() {
        let mut points = Points::new();
        for i in 0..10_000u64 {
            let bio = InFlight::plain(0, RequestFlags::READ, i * 8, 8, (i % 40) as u32, i * 1000);
            points.ended(0, &bio, i * 1000 + 500);
        }
        let bio = InFlight::plain(0, RequestFlags::WRITE, 0, 100_000, 99, 0);
        points.ended(0, &bio, 700);
        let found = points.finish(&[Device::new(8, 0)], |owner| owner.to_string());
        assert_eq!(found.owners[0], "99");
    }

    #[test]
    fn a_small_device_keeps_its_detail_beside_a_large_one() {
        let mut points = Points::new();
        for i in 0..20_000u64 {
            let (device, sectors) = if i % 2 == 0 { (0, 1 << 40) } else { (1, 1 << 10) };
            let bio = InFlight::plain(device, RequestFlags::READ, i * 7_368_787 % sectors, 8, 1, i * 1000);
            points.ended(0, &bio, i * 1000 + 1);
        }
        let found = points.finish(&[Device::new(8, 0), Device::new(8, 16)], |owner| owner.to_string());
        let rows = |device| {
            let sectors = found.points.iter().filter(|p| p.device == device).map(|p| p.sector);
            sectors.collect::<std::collections::BTreeSet<u64>>().len()
        };
        // As many rows as the large one, give or take a doubling.
        assert!(rows(1) * 2 >= rows(0) && rows(1) >= 32, "{} {} of {:?}", rows(0), rows(1), found.bin_sectors);
    }

    #[test]
    fn who_has_most_is_told_however_late_and_however_many_others_there_are() {
        let mut points = Points::new();
        let mut bio = |owner: u32, at: u64| {
            let bio = InFlight::plain(0, RequestFlags::READ, at * 8, 8, owner, at);
            points.ended(0, &bio, at + 1);
        };
        let mut at = 0..;
        (0..1000).for_each(|owner| bio(owner, at.next().expect("endless")));
        for owner in [5000, 5001, 5000] {
            (0..50).for_each(|_| bio(owner, at.next().expect("endless")));
        }
        let found = points.finish(&[Device::new(8, 0)], |owner| owner.to_string());
        assert_eq!((found.owners.len(), &found.owners[..2]), (13, &["5000".to_owned(), "5001".to_owned()][..]));
        let bios = |owner| found.points.iter().filter(|p| p.owner == owner).map(|p| p.bios).sum::<u32>();
        assert_eq!((bios(0), bios(1), bios(12)), (100, 50, 990));
    }

    #[test]
    fn bios_of_too_many_devices_are_counted() {
        let mut points = Points::new();
        for device in 0..100 {
            points.ended(0, &InFlight::plain(device, RequestFlags::READ, 8, 8, 1, 100), 150);
        }
        let devices: Vec<Device> = (0..100).map(|minor| Device::new(8, minor)).collect();
        let found = points.finish(&devices, |owner| owner.to_string());
        assert_eq!((found.devices.len(), found.points.len(), found.of_further_devices), (64, 64, 36));
    }

    /// What a disk does for a loop device is in a point of its own, and does not make its owner larger.
    #[test]
    fn bios_below_others_are_told_apart() {
        let mut points = Points::new();
        let upper = InFlight::plain(0, RequestFlags::WRITE, 8, 8, 1, 100);
        let lower = Bio { below: true, ..InFlight::plain(1, RequestFlags::WRITE, 64, 8, 1, 110) };
        let other = InFlight::plain(1, RequestFlags::WRITE, 800, 16, 2, 105);
        for (bio, completed) in [(&lower, 150), (&upper, 160), (&other, 170)] {
            points.ended(0, bio, completed);
        }
        let found = points.finish(&[Device::new(7, 0), Device::new(8, 0)], |owner| owner.to_string());
        let shown: Vec<_> = found.points.iter().map(|p| (p.device, p.owner, p.below, p.bytes)).collect();
        assert_eq!(found.owners, ["2", "1"]);
        assert_eq!(shown, [(0, 1, false, 4096), (1, 1, true, 4096), (1, 0, false, 8192)]);
    }
}
