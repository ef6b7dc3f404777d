//! What a setting does, as it is played: pages by file and by task, and by how much they differ from as many of the mean.

use std::collections::{BTreeMap, HashMap};

use flashscope_cachesim::{Access, BulkReads, Cause, PageEvent, PageStep, Simulator};
use flashscope_trace::FileId;

use crate::cost::costs::Costs;
use crate::cost::squashfs::BlockReads;
use crate::measured::index::Index;
use crate::measured::pages::PageCosts;
use crate::queue::{Asked, Replay};
use crate::settings::{FilesystemOptions, Tally};
use crate::workload::TaskAccess;

/// By how much the pages that come under a setting differ from as many of the mean.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known {
    pub flash_reads: f64,
    pub ns: f64,
}

/// What one setting does, before it is known what that costs.
pub struct Played {
    pub tally: Tally,
    pub by_file: BTreeMap<FileId, Tally>,
    pub by_task: BTreeMap<u32, Tally>,
    pub known: Known,
    pub blocks: BlockReads,
    pub bulk: BulkReads,
    pub index_reads: u64,
    /// For which pages, where the recording's own window is played.
    pub index_of: HashMap<(FileId, u64), u64>,
    /// Time and requests of a block queue.
    pub replayed: Option<(Option<f64>, Asked)>,
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
    played: Played,
}

/// How often pages have come that came more than once when they were recorded.
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
            played: Played {
                tally: Tally::default(),
                by_file: BTreeMap::new(),
                by_task: BTreeMap::new(),
                known: Known::default(),
                blocks: BlockReads::default(),
                bulk: BulkReads::default(),
                index_reads: 0,
                index_of: HashMap::new(),
                replayed: None,
            },
        }
    }

    /// An access begins.
    pub fn begin(&mut self, step: &TaskAccess) {
        let in_fault = matches!(step.access, Access::Fault { .. });
        let in_call = step.call.is_some() && !in_fault;
        let played = &mut self.played;
        for tally in [played.by_task.entry(step.tid).or_default(), played.by_file.entry(step.file).or_default()] {
            tally.calls += u64::from(in_call);
            tally.faults += u64::from(in_fault);
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

    /// What an access brings in.
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
                    self.played.blocks.add(workload, event.file, event.page, bytes, as_recorded);
                }
            }
            PageStep::Added { cause } => {
                self.known(step, event);
                let in_fault = matches!(step.access, Access::Fault { .. });
                let played = &mut self.played;
                for tally in
                    [played.by_file.entry(event.file).or_default(), played.by_task.entry(step.tid).or_default()]
                {
                    match cause {
                        Cause::Request => tally.pages_requested += 1,
                        _ => tally.pages_ahead += 1,
                    }
                    tally.pages_in_calls += u64::from(step.call.is_some() && !in_fault);
                    tally.pages_in_faults += u64::from(in_fault);
                    tally.pages_in_advice += u64::from(matches!(step.access, Access::WillNeed { .. }));
                }
            }
            PageStep::Dropped { used } | PageStep::Evicted { used } | PageStep::TakenBack { used } => {
                self.played.by_file.entry(event.file).or_default().pages_unused += u64::from(!used);
            }
        }
    }

    /// What is known of a page that comes.
    fn known(&mut self, step: &TaskAccess, PageEvent { file, page, .. }: PageEvent) {
        let workload = self.costs.workload;
        let of_index = match workload.nodes.runs.contains_key(&file) {
            true => self.index.reads(file, page),
            false => 0,
        };
        self.played.index_reads += of_index;
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
        // On UBIFS what it takes of the index is this run's own matter.
        let learned = if one_by_one.is_none() { workload.costs.learned(file, page) } else { None };
        let cost = learned.or_else(|| workload.costs.nth(file, page, self.times.next(&workload.costs, file, page)));
        let known = &mut self.played.known;
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
        let played = &mut self.played;
        for (file, pages) in simulator.unused() {
            played.by_file.entry(file).or_default().pages_unused += pages;
        }
        played.by_file.values().for_each(|of_file| played.tally.add(of_file));
        played.bulk = simulator.bulk_reads();
        played.replayed = self.replay.map(Replay::finish);
        self.played
    }
}
