//! Sums up a setting while it is played: pages by file and task, and the difference of their known costs from the mean.

use std::collections::{BTreeMap, HashMap};

use flashscope_cachesim::{Access, BulkReads, Cause, PageEvent, PageStep, Simulator};
use flashscope_trace::{FileId, TaskId};

use crate::cost::costs::Costs;
use crate::cost::squashfs::BlockReads;
use crate::measured::index::Index;
use crate::queue::{Replay, Requested};
use crate::settings::{FilesystemOptions, Tally};
use crate::workload::TaskAccess;

/// Difference between the cost of a setting's pages and as many pages of mean cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known {
    pub flash_reads: f64,
    pub ns: f64,
}

/// Sums of one setting, before its cost is computed.
#[derive(Clone, Copy, Default)]
pub struct Sums {
    pub tally: Tally,
    pub known: Known,
    pub blocks: BlockReads,
    pub bulk: BulkReads,
    pub index_reads: u64,
    /// Time and requests of a block queue.
    pub replayed: Option<(Option<f64>, Requested)>,
    /// Sum over files of the difference between recorded and predicted pages.
    pub off: u64,
}

/// Sums of one setting, in all and by file and task.
#[derive(Default)]
pub struct Played {
    pub sums: Sums,
    pub by_file: BTreeMap<FileId, Tally>,
    pub by_task: BTreeMap<TaskId, Tally>,
    /// Index reads by page, where the recording's own window is played.
    pub index_of: HashMap<(FileId, u64), u64>,
}

pub struct Accounts<'p> {
    costs: &'p Costs<'p>,
    own: bool,
    options: FilesystemOptions,
    recorded_index: Option<&'p HashMap<(FileId, u64), u64>>,
    rates: Option<[f64; 3]>,
    index: Index<'p>,
    replay: Option<Replay<'p>>,
    /// For pages that came several times in the recording: how often each has come in this play.
    times: HashMap<(FileId, u64), usize>,
    played: Played,
}

impl<'p> Accounts<'p> {
    /// `own`: the recording's own window is played.
    pub fn new(
        costs: &'p Costs<'p>,
        own: bool,
        options: FilesystemOptions,
        recorded_index: Option<&'p HashMap<(FileId, u64), u64>>,
    ) -> Accounts<'p> {
        Accounts {
            costs,
            own,
            options,
            recorded_index,
            rates: costs.flash_rates(),
            index: costs.workload.nodes.index(),
            replay: costs.replay(),
            times: HashMap::new(),
            played: Played::default(),
        }
    }

    /// Changes the tallies of a file and of the step's task.
    fn tally(&mut self, file: FileId, step: &TaskAccess, change: impl Fn(&mut Tally)) {
        change(self.played.by_file.entry(file).or_default());
        change(self.played.by_task.entry(step.tid).or_default());
    }

    pub fn begin(&mut self, step: &TaskAccess) {
        let in_fault = matches!(step.access, Access::Fault { .. });
        self.tally(step.file, step, |tally| {
            tally.calls += u64::from(step.call.is_some() && !in_fault);
            if in_fault {
                *tally.faults.get_or_insert(0) += 1;
            }
        });
        if let Some(replay) = &mut self.replay {
            match self.costs.began_and_ended(step) {
                Some((began, ended)) => replay.begin(step.tid, began, ended),
                None => replay.beside(step.tid, matches!(step.access, Access::WillNeed { .. })),
            }
        }
    }

    pub fn end(&mut self, step: &TaskAccess) {
        if let Some(replay) = &mut self.replay {
            replay.end(self.costs.began_and_ended(step).is_some());
        }
    }

    /// Adds a page event of the access.
    pub fn event(&mut self, step: &TaskAccess, event: PageEvent) {
        if let Some(replay) = &mut self.replay {
            match event.step {
                _ if event.is_read() => replay.added(event.file, event.page),
                PageStep::Used => replay.used(event.file, event.page),
                _ => {}
            }
        }
        match event.step {
            PageStep::Added { cause: Cause::Write } | PageStep::Used => {}
            PageStep::Block => {
                if let Some((bytes, as_recorded)) = self.costs.block_bytes(event.file, self.options) {
                    let workload = self.costs.workload;
                    self.played.sums.blocks.add(workload, event.file, event.page, bytes, as_recorded);
                }
            }
            PageStep::Added { cause } => {
                self.add_page(step, event);
                let in_fault = matches!(step.access, Access::Fault { .. });
                self.tally(event.file, step, |tally| {
                    match cause {
                        Cause::Request => tally.pages_requested += 1,
                        _ => tally.pages_ahead += 1,
                    }
                    tally.pages_in_calls += u64::from(step.call.is_some() && !in_fault);
                    if in_fault {
                        *tally.pages_in_faults.get_or_insert(0) += 1;
                    }
                    tally.pages_in_advice += u64::from(matches!(step.access, Access::WillNeed { .. }));
                });
            }
            PageStep::Dropped { used } | PageStep::Evicted { used } | PageStep::TakenBack { used } => {
                self.played.by_file.entry(event.file).or_default().pages_unused += u64::from(!used);
            }
        }
    }

    /// Adds the cost of a page that comes into the cache.
    fn add_page(&mut self, step: &TaskAccess, PageEvent { file, page, .. }: PageEvent) {
        let workload = self.costs.workload;
        let of_index = match workload.nodes.runs.contains_key(&file) {
            true => self.index.reads(file, page),
            false => 0,
        };
        self.played.sums.index_reads += of_index;
        if self.own && of_index > 0 {
            self.played.index_of.insert((file, page), of_index);
        }
        let Some(rates) = self.rates else { return };
        let mean = match step.access {
            Access::Fault { .. } => rates[1],
            Access::WillNeed { .. } => rates[2],
            _ => rates[0],
        };
        let one_by_one = self.costs.one_by_one;
        // On UBIFS each play computes the index reads of a page itself.
        let learned = if one_by_one.is_none() { workload.costs.learned(file, page) } else { None };
        let cost = learned.or_else(|| {
            let mut nth = 0;
            if workload.costs.came_again(file, page) {
                let times = self.times.entry((file, page)).or_default();
                nth = std::mem::replace(times, *times + 1);
            }
            workload.costs.nth(file, page, nth)
        });
        let known = &mut self.played.sums.known;
        if let Some(cost) = cost {
            known.flash_reads += f64::from(cost.flash_reads) - mean;
            known.ns += cost.ns.map_or(0.0, |ns| f64::from(ns) - self.costs.mean_page_ns);
            if let (Some(node), Some(before)) = (one_by_one, self.recorded_index) {
                let then = before.get(&(file, page)).copied().unwrap_or(0);
                let (reads, ns) = node.of_index(of_index as f64 - then as f64);
                known.flash_reads += reads;
                known.ns += ns;
            }
        } else if let Some(node) = one_by_one {
            let (reads, ns) = node.instead_of(mean, workload.nodes.of(file, page), of_index);
            known.flash_reads += reads;
            known.ns += ns;
        }
    }

    pub fn finish(mut self, simulator: &Simulator) -> Played {
        for (file, pages) in simulator.unused() {
            self.played.by_file.entry(file).or_default().pages_unused += pages;
        }
        let sums = &mut self.played.sums;
        self.played.by_file.values().for_each(|of_file| sums.tally.add(of_file));
        sums.bulk = simulator.bulk_reads();
        sums.replayed = self.replay.map(Replay::finish);
        let model = |file: &FileId| self.played.by_file.get(file).map_or(0, Tally::pages);
        let recorded = self.costs.workload.pages_added.iter();
        sums.off = recorded.map(|(file, &pages)| model(file).abs_diff(pages)).fold(0, u64::saturating_add);
        self.played
    }
}
