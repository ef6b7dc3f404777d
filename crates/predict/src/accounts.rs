//! Sums up a setting while it is played: pages by file and task, and the difference of their known costs from the mean.

use std::collections::{BTreeMap, HashMap};

use flashscope_cachesim::{Access, BulkReads, Cause, PageEvent, PageStep, Simulator};
use flashscope_trace::{FileId, TaskId};

use crate::cost::costs::Costs;
use crate::cost::squashfs::BlockReads;
use crate::measured::index::Index;
use crate::measured::pages::PageCosts;
use crate::queue::{Replay, Requested};
use crate::settings::{FilesystemOptions, Tally};
use crate::workload::TaskAccess;
use crate::workload::numbers::Numbers;

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
}

/// Sums of one setting, in all and by file and task.
pub struct Played<'p> {
    pub sums: Sums,
    numbers: &'p Numbers,
    /// By number; `None`: the file is not known.
    files: Vec<Option<Tally>>,
    tasks: Vec<Option<Tally>>,
    /// Index reads by page, where the recording's own window is played.
    pub index_of: HashMap<(FileId, u64), u64>,
}

impl Played<'_> {
    pub fn by_file(&self) -> BTreeMap<FileId, Tally> {
        list(&self.numbers.files, &self.files)
    }

    pub fn by_task(&self) -> BTreeMap<TaskId, Tally> {
        list(&self.numbers.tasks, &self.tasks)
    }

    pub fn of_file(&self, file: FileId) -> Option<&Tally> {
        self.files.get(self.numbers.file(file)?)?.as_ref()
    }
}

fn list<K: Ord + Copy>(names: &[K], tallies: &[Option<Tally>]) -> BTreeMap<K, Tally> {
    names.iter().zip(tallies).filter_map(|(&name, tally)| Some((name, (*tally)?))).collect()
}

pub struct Accounts<'p> {
    costs: &'p Costs<'p>,
    own: bool,
    options: FilesystemOptions,
    recorded_index: Option<&'p HashMap<(FileId, u64), u64>>,
    rates: Option<[f64; 3]>,
    index: Index<'p>,
    replay: Option<Replay<'p>>,
    times: Times,
    /// File and task of the step, by number.
    at: (usize, usize),
    played: Played<'p>,
}

/// For pages that came several times in the recording: how often each has come in this play.
#[derive(Default)]
struct Times(HashMap<(FileId, u64), usize>);

impl Times {
    fn next(&mut self, costs: &PageCosts, file: FileId, page: u64) -> usize {
        if !costs.came_again(file, page) {
            return 0;
        }
        let times = self.0.entry((file, page)).or_default();
        *times += 1;
        *times - 1
    }
}

impl<'p> Accounts<'p> {
    /// `own`: the recording's own window is played.
    pub fn new(
        costs: &'p Costs<'p>,
        numbers: &'p Numbers,
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
            times: Times::default(),
            at: (0, 0),
            played: Played {
                sums: Sums::default(),
                numbers,
                files: vec![None; numbers.files.len()],
                tasks: vec![None; numbers.tasks.len()],
                index_of: HashMap::new(),
            },
        }
    }

    /// The tally of a file, mostly the file of the step.
    fn of_file(&mut self, step: &TaskAccess, file: FileId) -> Option<&mut Tally> {
        let at = if file == step.file { Some(self.at.0) } else { self.played.numbers.file(file) };
        Some(self.played.files.get_mut(at?)?.get_or_insert_default())
    }

    /// Begins an access; the pair has the file's and the task's number.
    pub fn begin(&mut self, step: &TaskAccess, (file, task): (u32, u32)) {
        self.at = (file as usize, task as usize);
        let in_fault = matches!(step.access, Access::Fault { .. });
        let in_call = step.call.is_some() && !in_fault;
        let played = &mut self.played;
        let tallies = [played.tasks.get_mut(self.at.1), played.files.get_mut(self.at.0)];
        for tally in tallies.into_iter().flatten().map(Option::get_or_insert_default) {
            tally.calls += u64::from(in_call);
            if in_fault {
                *tally.faults.get_or_insert(0) += 1;
            }
        }
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
                let file = if event.file == step.file { Some(self.at.0) } else { self.played.numbers.file(event.file) };
                let played = &mut self.played;
                let tallies = [file.and_then(|at| played.files.get_mut(at)), played.tasks.get_mut(self.at.1)];
                for tally in tallies.into_iter().flatten().map(Option::get_or_insert_default) {
                    match cause {
                        Cause::Request => tally.pages_requested += 1,
                        _ => tally.pages_ahead += 1,
                    }
                    tally.pages_in_calls += u64::from(step.call.is_some() && !in_fault);
                    if in_fault {
                        *tally.pages_in_faults.get_or_insert(0) += 1;
                    }
                    tally.pages_in_advice += u64::from(matches!(step.access, Access::WillNeed { .. }));
                }
            }
            PageStep::Dropped { used } | PageStep::Evicted { used } | PageStep::TakenBack { used } => {
                if let Some(tally) = self.of_file(step, event.file) {
                    tally.pages_unused += u64::from(!used);
                }
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
        let cost = learned.or_else(|| workload.costs.nth(file, page, self.times.next(&workload.costs, file, page)));
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

    pub fn finish(mut self, simulator: &Simulator) -> Played<'p> {
        let played = &mut self.played;
        for (file, pages) in simulator.unused() {
            if let Some(tally) = played.numbers.file(file).and_then(|at| played.files.get_mut(at)) {
                tally.get_or_insert_default().pages_unused += pages;
            }
        }
        let sums = &mut played.sums;
        played.files.iter().flatten().for_each(|of_file| sums.tally.add(of_file));
        sums.bulk = simulator.bulk_reads();
        sums.replayed = self.replay.map(Replay::finish);
        self.played
    }
}
