//! Bios in flight that a call may wait for: its own task's, and those of kernel threads.

use super::Layers;
use crate::Lookup;
use flashscope_trace::{BlockAction, BlockEvent, CallKind, Device, RequestFlags, TaskId, TimeNs};

/// Most bios followed at one time.
pub(super) const MAX_BIOS: usize = 1 << 14;
/// Most devices whose ends, or whose flush requests, are followed.
const MAX_DEVICES: usize = 256;
/// Number of bios after which a device without an issue and a completion ends none.
const SILENT: u32 = 4;
/// The sector that stands for a flush, which has none.
const FLUSH: u64 = u64::MAX - 1;

#[derive(Clone, Copy)]
pub(super) struct Bio {
    place: Place,
    end: u64,
    /// Sectors that no request has completed: a bio may be split among several.
    left: u64,
    tid: TaskId,
    issued: bool,
    /// Other tasks than its own may wait for it.
    shared: bool,
    /// Whether anybody waits for it ([`Ends`]).
    counts: bool,
}

/// Whether a trace shows the ends of a device's bios. A device of dm or md has requests of the devices below it alone, so that its bios
/// never end where `block_bio_complete` is not recorded.
#[derive(Clone, Copy)]
pub(super) enum Ends {
    Shown,
    /// Number of its bios so far.
    Unseen(u32),
}

/// Bios that other tasks may wait for: reads, and all others.
#[derive(Clone, Copy, Default)]
pub(super) struct Shared {
    reads: usize,
    writes: usize,
}

impl Shared {
    fn of(&mut self, bio: &Bio) -> &mut usize {
        if bio.place.1 { &mut self.writes } else { &mut self.reads }
    }

    /// Those that a call of this kind may wait for.
    pub fn for_call(self, kind: CallKind) -> usize {
        self.reads + if kind == CallKind::Read { 0 } else { self.writes }
    }
}

/// Device, whether it writes, first sector.
pub(super) type Place = (Device, bool, u64);

impl<L: Lookup<Name: AsRef<str>>> Layers<L> {
    /// Whether a bio that is queued on the device now is waited for.
    fn counts(&mut self, device: Device) -> bool {
        if self.ends.len() >= MAX_DEVICES && !self.ends.contains_key(&device) {
            return true;
        }
        let ends = self.ends.entry(device).or_insert(Ends::Unseen(0));
        let Ends::Unseen(bios) = ends else { return true };
        *bios = bios.saturating_add(1);
        let before = *bios;
        if before == SILENT {
            let of_device = |(&id, bio): (&u64, &Bio)| (bio.place.0 == device && bio.counts).then_some(id);
            let ids: Vec<u64> = self.bios.iter().filter_map(of_device).collect();
            for id in ids {
                let Some(&bio) = self.bios.get(&id) else { continue };
                self.count(bio, false);
                self.bios.insert(id, Bio { counts: false, ..bio });
            }
        }
        before < SILENT
    }

    /// The bios of which a request holds a part.
    fn met_by(&self, block: &BlockEvent) -> Vec<u64> {
        let place = |sector| (block.device, block.flags.kind() as u8 > 0, sector);
        let first = block.sector.saturating_sub(self.longest);
        let all = self.places.range((place(first), 0)..(place(block.end()), 0));
        all.map(|(_, id)| *id).filter(|id| self.bios.get(id).is_some_and(|bio| bio.end > block.sector)).collect()
    }

    /// The counters of the owner of this bio, with -1 or +1 for its state.
    fn count(&mut self, bio: Bio, joins: bool) {
        if !bio.counts {
            return;
        }
        let Some(task) = self.tasks.get_mut(&bio.tid) else { return };
        let of_all = if bio.issued { &mut self.issued } else { &mut self.queued };
        let of_task = if bio.issued { &mut task.issued } else { &mut task.queued };
        let counter = if bio.shared { of_all.of(&bio) } else { of_task };
        *counter = if joins { *counter + 1 } else { counter.saturating_sub(1) };
    }

    fn forget(&mut self, id: u64) {
        if let Some(bio) = self.bios.remove(&id) {
            self.places.remove(&(bio.place, id));
            self.count(bio, false);
        }
    }

    /// A flush: a request of one serves all bios that wait when it is issued.
    pub(super) fn flush(&mut self, block: &BlockEvent, tid: TaskId, time: TimeNs) {
        if block.action == BlockAction::Issue && self.flushed.len() < MAX_DEVICES {
            self.flushed.insert(block.device);
        }
        if self.flushed.contains(&block.device) {
            let placed = BlockEvent { sector: FLUSH, bytes: 512, flags: RequestFlags::WRITE, ..*block };
            self.step(&placed, block.sector, tid, time);
        }
    }

    /// `sector`: as the event has it.
    pub(super) fn step(&mut self, block: &BlockEvent, sector: u64, tid: TaskId, time: TimeNs) {
        let steps = matches!(block.action, BlockAction::Issue | BlockAction::Requeue | BlockAction::Complete)
            && block.bytes > 0;
        let queues = block.action == BlockAction::Queue && block.bytes > 0;
        if steps && (self.ends.len() < MAX_DEVICES || self.ends.contains_key(&block.device)) {
            self.ends.insert(block.device, Ends::Shown);
        }
        let ids = if steps { self.met_by(block) } else { Vec::new() };
        let mut owners: Vec<TaskId> = ids.iter().filter_map(|id| Some(self.bios.get(id)?.tid)).collect();
        // It may be the first event of the task.
        if queues && self.task(tid, time).is_none() {
            return;
        }
        owners.push(tid);
        let place = (block.device, block.flags.kind() as u8 > 0, block.sector);
        let of_kernel = self.tasks.get(&tid).is_some_and(|task| task.kernel);
        let shared = match &self.waited_for {
            Some(bios) => bios.contains(&(block.device, sector, time.0)),
            None => of_kernel,
        };
        let is_shared = |id: &u64| self.bios.get(id).is_some_and(|bio| bio.shared);
        let for_all = queues && shared || of_kernel || ids.iter().any(is_shared);
        match for_all {
            true => self.attribute_all(time.0),
            false => owners.iter().for_each(|&tid| self.attribute(tid, time.0)),
        }
        if queues {
            if self.bios.len() >= MAX_BIOS
                && let Some((&oldest, bio)) = self.bios.first_key_value()
            {
                self.found.bios_given_up += u64::from(bio.counts);
                self.forget(oldest);
            }
            if let Some(call) = self.tasks.get_mut(&tid).and_then(|task| task.call.as_mut()) {
                call.touched = true;
            }
            let left = block.end().saturating_sub(block.sector);
            self.longest = self.longest.max(left);
            let counts = block.sector == FLUSH || self.counts(block.device);
            let bio = Bio { place, end: block.end(), left, tid, issued: false, shared, counts };
            self.bios.insert(self.next_bio, bio);
            self.places.insert((place, self.next_bio));
            self.count(bio, true);
            self.next_bio += 1;
        }
        for id in ids {
            let Some(&bio) = self.bios.get(&id) else { continue };
            if block.action == BlockAction::Complete {
                if block.sector == FLUSH && !bio.issued {
                    continue;
                }
                let done = bio.end.min(block.end()).saturating_sub(bio.place.2.max(block.sector));
                if done < bio.left {
                    self.bios.insert(id, Bio { left: bio.left - done, ..bio });
                    continue;
                }
                self.forget(id);
                for owner in self.calling.iter().filter(|&&owner| bio.shared || owner == bio.tid) {
                    if let Some(call) = self.tasks.get_mut(owner).and_then(|task| task.call.as_mut())
                        && (*owner == bio.tid || call.kind != CallKind::Read || !bio.place.1)
                    {
                        call.completed = Some(time.0);
                        call.woken = (0, 0);
                    }
                }
                continue;
            }
            let changed = Bio { issued: block.action == BlockAction::Issue, counts: true, ..bio };
            self.count(bio, false);
            self.count(changed, true);
            self.bios.insert(id, changed);
        }
    }
}
