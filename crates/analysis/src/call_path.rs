//! One call: its layers, the bios that it waited for, and the owners of other bios in the device at that time.

use crate::Evidence;
use crate::calls::{SlowCall, is_sync};
use crate::layers::LayerTime;
use schemars::JsonSchema;
use serde::Serialize;
use std::cmp::Reverse;

/// Most bios in the list: those that took longest.
const MAX_BIOS: usize = 20;

/// A bio in flight during the call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PathBio {
    pub device: String,
    pub sector: u64,
    pub bytes: u64,
    pub kind: String,
    pub flags: String,
    /// `NAME (THREAD)`, or the name of the kernel's own work.
    pub owner: String,
    #[serde(skip)]
    pub owner_tid: u64,
    #[serde(skip)]
    pub carrier_tid: u64,
    /// Of a journal's or another kernel thread.
    #[serde(skip)]
    pub of_kernel: bool,
    pub queued_ns: u64,
    pub issued_ns: Option<u64>,
    pub completed_ns: u64,
}

impl PathBio {
    fn writes_metadata(&self) -> bool {
        self.kind == "write" && self.flags.contains('M')
    }

    /// Whether it was queued after the earlier bio had written one of its sectors: a block of metadata is locked until it is written.
    fn writes_again(&self, earlier: &PathBio) -> bool {
        let end = |bio: &PathBio| bio.sector.saturating_add(bio.bytes / 512);
        let meets = self.sector < end(earlier) && earlier.sector < end(self);
        self.device == earlier.device && meets && earlier.completed_ns <= self.queued_ns
    }
}

/// The owner of bios that the device had while the call's own bios waited for their issue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Holder {
    pub device: String,
    pub owner: String,
    pub bios: u64,
    pub bytes: u64,
    /// Total time of all its bios in the device.
    pub in_device_ns: u64,
}

/// Version of [`CallPath`].
pub const CALL_PATH_SCHEMA: u32 = 1;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CallPath {
    pub schema: u32,
    pub call: SlowCall,
    /// From the task down to the device; the last entry is the unattributed time.
    pub layers: Evidence<Vec<LayerTime>>,
    pub unattributed_ns: Evidence<u64>,
    /// Bios of the task; for a sync also those of the journal, and another's earlier write of a block of metadata that the call wrote
    /// again. The longest first.
    pub bios: Vec<PathBio>,
    pub bios_not_listed: u64,
    pub held_up_by: Vec<Holder>,
}

/// Bios in flight during a call.
pub struct PathBios {
    /// Those that the call waited for.
    pub own: Vec<PathBio>,
    pub others: Vec<PathBio>,
}

/// `bios`: all bios in flight during the call.
pub fn path_bios(call: &SlowCall, bios: Vec<PathBio>) -> PathBios {
    let tid = u64::from(call.tid.0);
    let end = call.begin_ns + call.duration_ns;
    let is_own = |bio: &PathBio| {
        let of_task = bio.owner_tid == tid || bio.carrier_tid == tid;
        (of_task || is_sync(&call.call) && bio.of_kernel) && bio.queued_ns >= call.begin_ns && bio.queued_ns <= end
    };
    let (mut own, others): (Vec<PathBio>, Vec<PathBio>) = bios.into_iter().partition(is_own);
    if !is_sync(&call.call) {
        return PathBios { own, others };
    }
    let again: Vec<PathBio> = own.iter().filter(|bio| bio.writes_metadata()).cloned().collect();
    let is_written_again = |bio: &PathBio| bio.writes_metadata() && again.iter().any(|own| own.writes_again(bio));
    let (before, others): (Vec<PathBio>, Vec<PathBio>) = others.into_iter().partition(is_written_again);
    own.extend(before);
    PathBios { own, others }
}

pub fn call_path(call: SlowCall, layers: Evidence<(Vec<LayerTime>, u64)>, bios: PathBios) -> CallPath {
    let PathBios { mut own, others } = bios;
    let held_up_by = held_up(&own, &others);
    own.sort_by_key(|bio| (Reverse(bio.completed_ns.saturating_sub(bio.queued_ns)), bio.queued_ns));
    let bios_not_listed = own.len().saturating_sub(MAX_BIOS) as u64;
    own.truncate(MAX_BIOS);
    let unattributed_ns = layers.clone().map(|(_, ns)| ns);
    let layers = layers.map(|(layers, _)| layers);
    CallPath { schema: CALL_PATH_SCHEMA, call, layers, unattributed_ns, bios: own, bios_not_listed, held_up_by }
}

fn held_up(own: &[PathBio], others: &[PathBio]) -> Vec<Holder> {
    let mut holders: Vec<Holder> = Vec::new();
    for other in others {
        let Some(issued) = other.issued_ns else { continue };
        // A point in time counts once, however many of the call's bios wait at it.
        let mut waits: Vec<(u64, u64)> = own
            .iter()
            .filter(|bio| bio.device == other.device)
            .filter_map(|bio| Some((bio.queued_ns.max(issued), bio.issued_ns?.min(other.completed_ns))))
            .filter(|(from, to)| from < to)
            .collect();
        waits.sort_unstable();
        let (mut ns, mut until) = (0, 0);
        for (from, to) in waits {
            let from = from.max(until);
            ns += to.saturating_sub(from);
            until = until.max(to);
        }
        if ns == 0 {
            continue;
        }
        match holders.iter_mut().find(|one| one.owner == other.owner && one.device == other.device) {
            Some(one) => {
                one.bios += 1;
                one.bytes = one.bytes.saturating_add(other.bytes);
                one.in_device_ns = one.in_device_ns.saturating_add(ns);
            }
            None => holders.push(Holder {
                device: other.device.clone(),
                owner: other.owner.clone(),
                bios: 1,
                bytes: other.bytes,
                in_device_ns: ns,
            }),
        }
    }
    holders.sort_by_key(|one| Reverse(one.in_device_ns));
    holders
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashscope_trace::TaskId;

    fn bio(tid: u64, times: [u64; 3]) -> PathBio {
        let [queued_ns, issued, completed_ns] = times;
        PathBio {
            device: "8:0".into(),
            sector: 8,
            bytes: 4096,
            kind: "write".into(),
            flags: "WS".into(),
            owner: format!("task ({tid})"),
            owner_tid: tid,
            carrier_tid: 0,
            of_kernel: tid == 99,
            queued_ns,
            issued_ns: Some(issued),
            completed_ns,
        }
    }

    fn call(name: &str) -> SlowCall {
        let (task, call) = ("task (7)".to_owned(), name.to_owned());
        SlowCall {
            number: 1,
            call,
            task,
            tid: TaskId(7),
            begin_ns: 100,
            duration_ns: 1000,
            file: None,
            path: None,
            bytes: 0,
        }
    }

    #[test]
    fn whoever_had_the_device_is_named() {
        // Its bio waits from 200 to 500; another's is in the device from 150 to 450, a third one's after that.
        let bios = || {
            vec![bio(7, [200, 500, 900]), bio(8, [120, 150, 450]), bio(9, [120, 600, 700]), bio(99, [300, 300, 400])]
        };
        let unknown = || Evidence::unknown("no boundaries", "");
        let path = call_path(call("fsync"), unknown(), path_bios(&call("fsync"), bios()));
        assert_eq!(path.bios.len(), 2);
        let held: Vec<_> = path.held_up_by.iter().map(|one| (one.owner.as_str(), one.in_device_ns)).collect();
        assert_eq!(held, [("task (8)", 250)]);
        // A read does not wait for the journal.
        let path = call_path(call("read"), unknown(), path_bios(&call("read"), bios()));
        assert_eq!(path.bios.len(), 1);
        assert_eq!(path.held_up_by.len(), 2);
    }
    /// A kernel's worker writes the block of inodes; the call's own write of the same block comes after it.
    #[test]
    fn a_block_that_another_writes_first_is_waited_for() {
        let metadata = |tid, sector, times| PathBio { sector, flags: "WM".into(), ..bio(tid, times) };
        let bios = || {
            vec![
                metadata(7, 8, [900, 910, 950]),
                metadata(8, 8, [200, 300, 880]),
                // Another block; and data.
                metadata(8, 16, [200, 300, 880]),
                bio(8, [210, 300, 870]),
            ]
        };
        let begins = |name| path_bios(&call(name), bios()).own.iter().map(|bio| bio.queued_ns).collect::<Vec<_>>();
        assert_eq!(begins("fsync"), [900, 200]);
        assert_eq!(begins("read"), [900]);
    }
}
