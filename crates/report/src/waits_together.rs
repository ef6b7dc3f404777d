//! Combines the waits of tasks with one name, which a build or script starts one after the other, for one sentence.
//!
//! Input: waits between originators, by task. Output: the same, with five or more tasks with one name on one device as one originator.

use flashscope_analysis::block::{InterferenceFound, OwnerLoad, WaitBehind};
use flashscope_analysis::{Evidence, split_task_label};
use std::collections::{BTreeMap, BTreeSet};

/// This many tasks with one name become one.
const MIN_TOGETHER: usize = 5;

/// `NAME (TID)` without the number; `None` for other text.
fn plain(name: &str) -> Option<&str> {
    split_task_label(name).map(|(name, ..)| name)
}

/// The common label of the tasks with one name on one device.
struct Labels(BTreeMap<(String, String), usize>);

impl Labels {
    /// From pairs of device and name, each once.
    fn of<'a>(tasks: impl Iterator<Item = (&'a str, &'a str)>) -> Labels {
        let mut labels = Labels(BTreeMap::new());
        for (device, name) in tasks.collect::<BTreeSet<_>>() {
            if let Some(name) = plain(name) {
                *labels.0.entry((device.to_owned(), name.to_owned())).or_default() += 1;
            }
        }
        labels.0.retain(|_, tasks| *tasks >= MIN_TOGETHER);
        labels
    }

    fn label(&self, device: &str, name: &str) -> String {
        let together = plain(name).and_then(|plain| {
            let tasks = self.0.get(&(device.to_owned(), plain.to_owned()))?;
            Some(format!("{tasks} tasks named {plain}"))
        });
        together.unwrap_or_else(|| name.to_owned())
    }
}

/// Owners, worst first, and the waits between them.
pub(crate) fn together(all: &InterferenceFound) -> (Vec<OwnerLoad>, Vec<WaitBehind>) {
    let waited = all.owners.iter().filter(|owner| owner.mean_behind_ns > 0);
    let victims = Labels::of(waited.map(|owner| (owner.device.as_str(), owner.owner.as_str())));
    let culprits = Labels::of(all.pairs.iter().map(|pair| (pair.device.as_str(), pair.behind.as_str())));
    let mut owners: Vec<OwnerLoad> = Vec::new();
    for owner in &all.owners {
        let label = victims.label(&owner.device, &owner.owner);
        match owners.iter_mut().find(|known| known.owner == label && known.device == owner.device) {
            Some(known) => add(known, owner),
            None => owners.push(OwnerLoad { owner: label, ..owner.clone() }),
        }
    }
    owners.sort_by_key(|owner| std::cmp::Reverse(owner.mean_behind_ns.saturating_mul(owner.bios)));
    let pair = |pair: &WaitBehind| WaitBehind {
        victim: victims.label(&pair.device, &pair.victim),
        behind: culprits.label(&pair.device, &pair.behind),
        ..pair.clone()
    };
    (owners, all.pairs.iter().map(pair).collect())
}

fn both<T: Copy>(a: &Evidence<T>, b: &Evidence<T>, mean: impl Fn(T, T) -> T) -> Evidence<T> {
    match (a, b) {
        (Evidence::Known(a), Evidence::Known(b)) => Evidence::Known(mean(*a, *b)),
        (Evidence::Unknown(why), _) | (_, Evidence::Unknown(why)) => Evidence::Unknown(why.clone()),
    }
}

/// Adds an owner to the sum; means are over all bios of both.
fn add(to: &mut OwnerLoad, one: &OwnerLoad) {
    let bios = to.bios.saturating_add(one.bios).max(1);
    let mean = |a: i128, b: i128| (a * i128::from(to.bios) + b * i128::from(one.bios)) / i128::from(bios);
    let ns = |a: u64, b: u64| mean(a.into(), b.into()) as u64;
    let alone = both(&to.mean_alone_ns, &one.mean_alone_ns, ns);
    let excess = both(&to.mean_device_excess_ns, &one.mean_device_excess_ns, |a, b| mean(a.into(), b.into()) as i64);
    *to = OwnerLoad {
        mean_q2c_ns: ns(to.mean_q2c_ns, one.mean_q2c_ns),
        mean_behind_ns: ns(to.mean_behind_ns, one.mean_behind_ns),
        mean_device_excess_ns: excess,
        mean_alone_ns: alone,
        longest_q2c_ns: to.longest_q2c_ns.max(one.longest_q2c_ns),
        longest_behind_ns: to.longest_behind_ns.max(one.longest_behind_ns),
        bios,
        ..to.clone()
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashscope_analysis::block::WaitStage;

    fn owner(name: &str, bios: u64, behind: u64, alone: Evidence<u64>) -> OwnerLoad {
        OwnerLoad {
            device: "8:0".to_owned(),
            owner: name.to_owned(),
            bios,
            mean_q2c_ns: 2 * behind,
            mean_behind_ns: behind,
            mean_device_excess_ns: Evidence::Known(-3),
            mean_alone_ns: alone,
            longest_q2c_ns: behind,
            longest_behind_ns: behind,
        }
    }

    #[test]
    fn tasks_of_one_name_are_one_and_means_are_of_all_bios() {
        let mut all = InterferenceFound { owners: vec![owner("cp (9)", 1, 900, 1.into())], ..Default::default() };
        all.owners.extend((10..15).map(|tid| owner(&format!("cc1 ({tid})"), tid, tid * 10, (tid * 10).into())));
        for tid in 20..25 {
            let (device, victim, stage) = ("8:0".to_owned(), "cc1 (12)".to_owned(), WaitStage::Scheduler);
            let behind = format!("ld (gold) ({tid})");
            all.pairs.push(WaitBehind { device, victim, behind, stage, served_ns: 7, handover_ns: 0 });
        }
        let (owners, pairs) = together(&all);
        let names: Vec<&str> = owners.iter().map(|owner| owner.owner.as_str()).collect();
        assert_eq!(names, ["5 tasks named cc1", "cp (9)"]);
        // 10 · 100 + … + 14 · 140, in 60 bios.
        let cc1 = &owners[0];
        assert_eq!((cc1.bios, cc1.mean_behind_ns, cc1.longest_behind_ns), (60, 120, 140));
        assert_eq!((&cc1.mean_alone_ns, &cc1.mean_device_excess_ns), (&120.into(), &Evidence::Known(-3)));
        let of = |pair: &WaitBehind| pair.victim == "5 tasks named cc1" && pair.behind == "5 tasks named ld (gold)";
        assert!(pairs.iter().all(of), "{pairs:?}");
        // An unknown value is not 0; four tasks stay separate.
        all.owners[2].mean_alone_ns = Evidence::unknown("never alone", "");
        assert!(together(&all).0[0].mean_alone_ns.why().is_some());
        all.owners.truncate(5);
        assert!(together(&all).0.iter().all(|owner| owner.owner.ends_with(')')));
    }
}
