//! Devices above devices: device mapper, md, partitions. One I/O of a program is one bio where the program asked, and one or
//! more where the hardware did it; the way from one to the other is told by the remap events between them.
//!
//! A bio that is queued where a remap leads from a bio on its way is *below* that one. It is not counted again in what
//! programs did: only in the figures of its own device, and in the table of the stack. The upper bio is in the device while
//! those below it are: its D is their first issue, and D2C ends with their last completion.
//!
//! A partition queues nothing of its own: its remap is a step on the way, and no level.

use super::in_flight::{Bio, InFlight, NEVER, Place};
use flashscope_trace::{Device, RequestKind};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// Remaps whose bio has not come, and levels, that are remembered.
const MAX_REMAPS: usize = 1 << 14;
const MAX_LEVELS: usize = 1024;

/// What one device adds above another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackLevel {
    pub upper: String,
    pub lower: String,
    /// Bios of the upper device that had any below them, their bytes, and those below them.
    pub upper_bios: u64,
    pub upper_bytes: u64,
    pub lower_bios: u64,
    pub lower_bytes: u64,
    /// Means, nanoseconds: from the upper bio's queueing to that of the first below it; from the last completion below to
    /// its own; and both times of the upper bio's whole.
    pub mean_down_ns: u64,
    pub mean_up_ns: u64,
    pub mean_below_ns: u64,
    pub mean_q2c_ns: u64,
}

/// An upper bio that has bios below it.
#[derive(Clone, Copy)]
struct Above {
    queued: u64,
    lower: u16,
    first_queued: u64,
    first_issue: u64,
    all_issued: bool,
    /// The last completion in the lowest device, and that of a bio just below.
    last: u64,
    last_below: u64,
    all_completed: bool,
    bios: u64,
    bytes: u64,
}

#[derive(Default)]
struct Sums {
    upper_bios: u64,
    upper_bytes: u64,
    lower_bios: u64,
    lower_bytes: u64,
    down: u128,
    up: u128,
    below: u128,
    q2c: u128,
}

#[derive(Default)]
pub(super) struct Stack {
    remaps: HashMap<(Device, u64), (Device, u64)>,
    /// By the upper bio's name.
    above: HashMap<u32, Above>,
    /// The upper bio of each that is below one, with the time at which it was queued.
    below: HashMap<u32, (u32, u64)>,
    levels: BTreeMap<(u16, u16), Sums>,
}

impl Stack {
    /// A bio moves to a lower device. `queues`: the upper device is one to which bios are queued.
    pub fn remapped(&mut self, to: (Device, u64), from: (Device, u64), queues: bool) {
        if !queues && (self.remaps.is_empty() || !self.remaps.contains_key(&from)) {
            return;
        }
        if self.remaps.len() >= MAX_REMAPS {
            self.remaps.clear();
        }
        self.remaps.insert(to, from);
    }

    /// Where a bio that is queued here comes from: the highest device and sector to which remaps lead.
    pub fn origin(&mut self, at: (Device, u64)) -> Option<(Device, u64)> {
        if self.remaps.is_empty() {
            return None;
        }
        let mut from = self.remaps.remove(&at)?;
        // A partition lies between.
        while let Some(higher) = self.remaps.remove(&from) {
            from = higher;
        }
        Some(from)
    }

    pub fn is_empty(&self) -> bool {
        self.below.is_empty() && self.above.is_empty()
    }

    /// A bio below another was queued.
    pub fn add(&mut self, upper: (u32, u64), at: u32, bio: &Bio) {
        self.below.insert(at, upper);
        let above = self.above.entry(upper.0).or_insert(Above {
            queued: upper.1,
            lower: bio.device,
            first_queued: bio.queued,
            first_issue: NEVER,
            all_issued: true,
            last: 0,
            last_below: 0,
            all_completed: true,
            bios: 0,
            bytes: 0,
        });
        above.bios += 1;
        above.bytes += u64::from(bio.whole_sectors) * 512;
    }

    /// A bio is over: what it was above gives it its time in the device, and it gives its own to the one above it.
    pub fn over(&mut self, at: u32, bio: &mut Bio, completed: u64) {
        if let Some(above) = self.above.remove(&at).filter(|above| above.queued == bio.queued) {
            bio.issued = if above.all_issued { above.first_issue } else { NEVER };
            bio.device_done = if above.all_completed { above.last } else { NEVER };
            if !above.all_completed {
                bio.issued = NEVER;
            }
            self.count(bio, &above, completed);
        }
        let Some((upper, queued)) = self.below.remove(&at) else { return };
        if let Some(above) = self.above.get_mut(&upper).filter(|above| above.queued == queued) {
            above.first_issue = above.first_issue.min(bio.issued);
            above.all_issued &= bio.issued != NEVER;
            above.all_completed &= completed != NEVER;
            let done = if bio.device_done == NEVER { completed } else { bio.device_done };
            above.last = above.last.max(if done == NEVER { 0 } else { done });
            above.last_below = above.last_below.max(if completed == NEVER { 0 } else { completed });
        }
    }

    fn count(&mut self, bio: &Bio, above: &Above, completed: u64) {
        if completed == NEVER || !bio.shown || !above.all_completed || self.levels.len() >= MAX_LEVELS {
            return;
        }
        let sums = self.levels.entry((bio.device, above.lower)).or_default();
        sums.upper_bios += 1;
        sums.upper_bytes += u64::from(bio.whole_sectors) * 512;
        sums.lower_bios += above.bios;
        sums.lower_bytes += above.bytes;
        sums.down += u128::from(above.first_queued.saturating_sub(bio.queued));
        sums.up += u128::from(completed.saturating_sub(above.last_below));
        sums.below += u128::from(above.last_below.saturating_sub(above.first_queued));
        sums.q2c += u128::from(completed.saturating_sub(bio.queued));
    }

    pub fn finish(&self, devices: &[Device]) -> Vec<StackLevel> {
        let level = |(&(upper, lower), sums): (&(u16, u16), &Sums)| {
            let mean = |sum: u128| (sum / u128::from(sums.upper_bios.max(1))) as u64;
            StackLevel {
                upper: devices[usize::from(upper)].to_string(),
                lower: devices[usize::from(lower)].to_string(),
                upper_bios: sums.upper_bios,
                upper_bytes: sums.upper_bytes,
                lower_bios: sums.lower_bios,
                lower_bytes: sums.lower_bytes,
                mean_down_ns: mean(sums.down),
                mean_up_ns: mean(sums.up),
                mean_below_ns: mean(sums.below),
                mean_q2c_ns: mean(sums.q2c),
            }
        };
        self.levels.iter().map(level).collect()
    }
}

/// The bio of an upper device that lies at a sector: one that begins there, or that holds it.
pub(super) fn upper(bios: &InFlight, device: u16, kind: RequestKind, sector: u64) -> Option<u32> {
    let place = Place::new(device, kind);
    let mut found = None;
    for (at, bio) in bios.rest() {
        if bio.place == place && bio.sector <= sector && sector < bio.end().max(bio.sector + 1) {
            // The newest, of several.
            if found.is_none_or(|(_, queued)| queued <= bio.queued) {
                found = Some((at, bio.queued));
            }
        }
    }
    found.map(|(at, _)| at)
}
