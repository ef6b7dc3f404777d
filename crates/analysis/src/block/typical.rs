//! The usual time of a request by device and kind: a running median of bios that were alone at their sector.

use flashscope_trace::{RequestKind, RunningMedian};

/// The times of all devices, by the device's number and the kind of request.
#[derive(Default)]
pub(super) struct TypicalTimes(Vec<[RunningMedian; RequestKind::COUNT]>);

impl TypicalTimes {
    pub fn add_device(&mut self) {
        self.0.push([RunningMedian::default(); RequestKind::COUNT]);
    }

    #[inline(always)]
    pub fn add(&mut self, device: u16, kind: usize, ns: u64) {
        self.0[usize::from(device)][kind].add(ns);
    }

    /// The time of this kind of request; where the device has had none of it, the time of the kind that it has had most.
    pub fn of(&self, device: u16, kind: usize) -> Option<u64> {
        let of_device = &self.0[usize::from(device)];
        RunningMedian::of_kind(of_device, kind)
    }
}
