//! Where and when: the I/O distribution (block and size over time, per process), in bounded memory.

use super::in_flight::{Bio, NEVER};
use super::matching::Watch;
use flashscope_trace::{Device, RequestKind};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Points at most: a figure of 900 × 400 dots shows no more.
const MAX_POINTS: usize = 6000;
/// When bins must grow, they grow first along the axis that is finer than these many bins.
const TIME_BINS: u64 = 512;
const SECTOR_BINS: u64 = 256;
/// Owners with a colour of their own; the rest share one.
const MAX_OWNERS: usize = 12;
/// Devices told apart.
const MAX_DEVICES: u16 = 64;

/// Bios of one owner and direction near one time and sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoPoint {
    /// Middle of the bin: time of completion, first sector.
    pub time_ns: u64,
    pub sector: u64,
    pub device: u16,
    pub kind: RequestKind,
    /// Index into [`IoPoints::owners`].
    pub owner: u16,
    pub bios: u32,
    pub bytes: u64,
}

/// Completed bios over time and sectors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoPoints {
    /// Width of a bin; 1 and 1 where nothing was binned.
    pub bin_ns: u64,
    pub bin_sectors: u64,
    pub devices: Vec<String>,
    pub owners: Vec<String>,
    /// By device, time, sector, direction, owner.
    pub points: Vec<IoPoint>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Bin {
    device: u16,
    time: u64,
    sector: u64,
    kind: RequestKind,
    owner: u16,
}

/// Bins that double when there are too many points.
pub(super) struct Points {
    time_shift: u32,
    sector_shift: u32,
    bins: HashMap<Bin, (u32, u64)>,
    time: (u64, u64),
    sectors: (u64, u64),
    owners: Vec<u32>,
}

impl Points {
    pub fn new() -> Points {
        Points {
            time_shift: 0,
            sector_shift: 0,
            bins: HashMap::new(),
            time: (u64::MAX, 0),
            sectors: (u64::MAX, 0),
            owners: Vec::new(),
        }
    }

    fn owner(&mut self, owner: u32) -> u16 {
        if let Some(at) = self.owners.iter().position(|&known| known == owner) {
            return at as u16;
        }
        if self.owners.len() == MAX_OWNERS {
            return MAX_OWNERS as u16;
        }
        self.owners.push(owner);
        (self.owners.len() - 1) as u16
    }

    fn coarsen(&mut self) {
        while self.bins.len() > MAX_POINTS {
            let bins = |range: (u64, u64), shift: u32| (range.1 - range.0) >> shift;
            let (time, sectors) = (bins(self.time, self.time_shift), bins(self.sectors, self.sector_shift));
            if time == 0 && sectors == 0 {
                return;
            }
            let along_time = time * SECTOR_BINS >= sectors * TIME_BINS;
            if along_time {
                self.time_shift += 1;
            } else {
                self.sector_shift += 1;
            }
            let old = std::mem::take(&mut self.bins);
            for (mut bin, (bios, bytes)) in old {
                if along_time {
                    bin.time >>= 1;
                } else {
                    bin.sector >>= 1;
                }
                let sum = self.bins.entry(bin).or_default();
                sum.0 = sum.0.saturating_add(bios);
                sum.1 = sum.1.saturating_add(bytes);
            }
        }
    }

    pub fn finish(&self, devices: &[Device], name: impl Fn(u32) -> String) -> IoPoints {
        let middle = |index: u64, shift: u32| if shift == 0 { index } else { (index << shift) | (1 << (shift - 1)) };
        let mut bins: Vec<(&Bin, &(u32, u64))> = self.bins.iter().collect();
        bins.sort_unstable();
        let mut owners: Vec<String> = self.owners.iter().map(|&owner| name(owner)).collect();
        if self.bins.keys().any(|bin| usize::from(bin.owner) == MAX_OWNERS) {
            owners.push("(further owners)".to_owned());
        }
        IoPoints {
            bin_ns: 1 << self.time_shift,
            bin_sectors: 1 << self.sector_shift,
            devices: devices.iter().take(usize::from(MAX_DEVICES)).map(Device::to_string).collect(),
            owners,
            points: bins
                .into_iter()
                .map(|(bin, &(bios, bytes))| IoPoint {
                    time_ns: middle(bin.time, self.time_shift),
                    sector: middle(bin.sector, self.sector_shift),
                    device: bin.device,
                    kind: bin.kind,
                    owner: bin.owner,
                    bios,
                    bytes,
                })
                .collect(),
        }
    }
}

impl Watch for Points {
    fn gone(&mut self, _at: u32, bio: &Bio, completed: u64) {
        if completed == NEVER || bio.device >= MAX_DEVICES {
            return;
        }
        self.time = (self.time.0.min(completed), self.time.1.max(completed));
        self.sectors = (self.sectors.0.min(bio.sector), self.sectors.1.max(bio.sector));
        let bin = Bin {
            device: bio.device,
            time: completed >> self.time_shift,
            sector: bio.sector >> self.sector_shift,
            kind: bio.kind(),
            owner: self.owner(bio.owner),
        };
        let sum = self.bins.entry(bin).or_default();
        sum.0 = sum.0.saturating_add(1);
        sum.1 = sum.1.saturating_add(u64::from(bio.sectors) * 512);
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
            let bio = InFlight::bio(0, flags, i * 7919 % 1_000_003, 8, (i % 40) as u32, i * 1000);
            points.gone(0, &bio, i * 1000 + 500);
        }
        let found = points.finish(&[Device::new(8, 0)], |owner| owner.to_string());
        assert!(found.points.len() <= MAX_POINTS, "{}", found.points.len());
        assert_eq!(found.points.iter().map(|p| u64::from(p.bios)).sum::<u64>(), 1_000_000);
        assert_eq!(found.points.iter().map(|p| p.bytes).sum::<u64>(), 1_000_000 * 4096);
        assert_eq!((found.owners.len(), found.owners[MAX_OWNERS].as_str()), (13, "(further owners)"));
    }
}
