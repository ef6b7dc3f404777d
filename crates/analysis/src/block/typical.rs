//! How long devices usually take for a request, by device and kind: a running median of bios that were alone at their sector.

use flashscope_trace::RequestKind;

/// A running median: one time that is far off moves it as little as one that is near.
#[derive(Clone, Copy, Default)]
struct Median {
    n: u64,
    ns: u64,
}

impl Median {
    /// By how much it moves at least, as a power of two.
    const STEP: u32 = 4;

    #[inline(always)]
    fn add(&mut self, ns: u64) {
        self.n += 1;
        let step = if self.n < 1 << Self::STEP { self.ns / self.n } else { self.ns >> Self::STEP };
        self.ns = match ns {
            _ if self.n == 1 => ns,
            _ if ns > self.ns => self.ns.saturating_add(step + 1).min(ns),
            _ => self.ns.saturating_sub(step).max(ns),
        };
    }
}

/// The times of all devices, by the device's number and the kind of request.
#[derive(Default)]
pub(super) struct TypicalTimes(Vec<[Median; RequestKind::COUNT]>);

impl TypicalTimes {
    pub fn add_device(&mut self) {
        self.0.push([Median::default(); RequestKind::COUNT]);
    }

    #[inline(always)]
    pub fn add(&mut self, device: u16, kind: usize, ns: u64) {
        self.0[usize::from(device)][kind].add(ns);
    }

    /// The time of this kind of request; where the device has had none of it, that of the kind that it has had most.
    pub fn of(&self, device: u16, kind: usize) -> Option<u64> {
        let of_device = &self.0[usize::from(device)];
        let own = &of_device[kind];
        let most = if own.n > 0 { Some(own) } else { of_device.iter().max_by_key(|median| median.n) };
        most.filter(|median| median.n > 0).map(|median| median.ns)
    }
}
