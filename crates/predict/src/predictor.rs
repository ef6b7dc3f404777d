//! Plays a recording's accesses under other settings.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet};

use flashscope_cachesim::{Access, PAGE_BYTES, PageEvent, Settings, Simulator};
use flashscope_trace::{FileId, TaskId};

use crate::accounts::{Accounts, Played, Sums};
use crate::cost::NodeCost;
use crate::cost::costs::Costs;
use crate::measured::index::DEPTH;
use crate::prediction::{NO_ENDS, NO_FAULTS, NO_FLASH, NO_SWITCHES, Recorded, Row, shown};
use crate::settings::{FilesystemOptions, Storage, TRIED_KIB, Tally};
use crate::workload::Workload;
use crate::workload::overlap::{Overlap, overlap};

/// Predicts settings for one workload.
pub struct Predictor<'a> {
    pub costs: Costs<'a>,
    /// Tasks whose calls of one file overlap. `None` behind a block queue, whose replay keeps each task's pauses.
    pub overlap: Option<Overlap>,
    /// The model's result under the recording's own window.
    own: OnceCell<Own>,
    /// Results of settings already played: each is needed several times.
    known: RefCell<HashMap<Setting, Sums>>,
    /// Open files whose window a simulation forgot: the highest count of any setting.
    pub windows_forgotten: Cell<u64>,
}

/// Window in KiB, whether it is played as the recording's own, and the other options.
type Setting = (u64, bool, FilesystemOptions);

/// The model's result under the recording's own window; predictions are calibrated with it.
#[derive(Default)]
struct Own {
    /// Flash reads for a page of a squashfs block of unknown cost; `None` where not all files read lie on squashfs.
    block_rate: Option<f64>,
    /// On UBIFS: reads of the index for each page that needed one.
    index: HashMap<(FileId, u64), u64>,
    /// Recorded flash reads minus modelled ones with `bulk_read`, if below 0: index nodes that were in memory.
    more_reads: f64,
}

impl<'a> Predictor<'a> {
    pub fn new(workload: &'a Workload, storage: Storage) -> Predictor<'a> {
        let costs = Costs::new(workload, storage);
        let overlap = overlap(&workload.calls).filter(|_| costs.queue.is_none());
        let known = RefCell::default();
        Predictor { costs, overlap, own: OnceCell::new(), known, windows_forgotten: Cell::default() }
    }

    /// Whether most reads begin where the task's last read of the same file ended.
    pub fn is_sequential(&self) -> bool {
        let mut ends: BTreeMap<(TaskId, FileId), u64> = BTreeMap::new();
        let (mut reads, mut follow) = (0_u64, 0_u64);
        for step in &self.costs.workload.steps {
            if let Access::Read { offset, length } = step.access {
                let end = ends.insert((step.tid, step.file), offset.saturating_add(length));
                reads += 1;
                follow += u64::from(end.unwrap_or(0) == offset);
            }
        }
        2 * follow > reads
    }

    /// `own`: the window is the recording's, and every recorded fault happens.
    fn simulator(&self, readahead_kib: u64, own: bool, options: FilesystemOptions) -> Simulator {
        let settings = Settings {
            readahead_pages: readahead_kib / (PAGE_BYTES / 1024),
            io_pages: self.costs.storage.io_pages,
            budget_pages: self.costs.storage.budget_pages,
            faults_of_another: !own,
        };
        let mut simulator = Simulator::new(self.costs.storage.kernel, settings);
        for (&file, &size) in &self.costs.workload.sizes {
            if !self.costs.workload.created.contains(&file) {
                simulator.set_size(file, size);
            }
            if let Some(&bytes) = file.device.and_then(|device| self.costs.storage.squashfs.get(&device)) {
                simulator.set_squashfs_block(file, options.squashfs_block.unwrap_or(bytes));
            }
            let mounted = || file.device.is_some_and(|device| self.costs.storage.bulk_read.contains(&device));
            if options.bulk_read.unwrap_or_else(mounted)
                && let Some(runs) = self.costs.workload.nodes.runs_of(file)
            {
                simulator.set_bulk_read(file, runs);
            }
        }
        for (file, pages) in &self.costs.workload.cached_before {
            pages.clone().for_each(|page| simulator.preload(*file, page));
        }
        simulator
    }

    /// Every page that reads and faults bring in, in order, under the recorded window.
    pub fn pages(&self, readahead_kib: u64) -> Vec<(FileId, u64)> {
        let mut simulator = self.simulator(readahead_kib, true, FilesystemOptions::default());
        let mut pages = Vec::new();
        let mut take = |event: PageEvent| {
            if event.is_read() {
                pages.push((event.file, event.page));
            }
        };
        let steps = self.costs.workload.steps.iter();
        steps.for_each(|step| simulator.apply(step.file, step.open, step.access, &mut take));
        pages
    }

    /// Predicts one window; `random` selects the files that are read with `POSIX_FADV_RANDOM`.
    pub fn row(&self, readahead_kib: u64, random: &dyn Fn(FileId) -> bool) -> Row {
        self.row_of(readahead_kib, random, FilesystemOptions::default())
    }

    /// Predicts one window with another mount option or block size.
    pub fn row_with(&self, readahead_kib: u64, options: FilesystemOptions) -> Row {
        self.row_of(readahead_kib, &|_| false, options)
    }

    /// A row without files and tasks; immediate where the setting was played before.
    pub(super) fn light_row(&self, readahead_kib: u64, options: FilesystemOptions) -> Row {
        self.priced(readahead_kib, options, self.setting(readahead_kib, false, options))
    }

    /// The result of a setting, from `known` or played now. Only its sums are kept: there may be many files.
    fn setting(&self, readahead_kib: u64, own: bool, options: FilesystemOptions) -> Sums {
        let known = self.known.borrow().get(&self.key(readahead_kib, own, options)).copied();
        known.unwrap_or_else(|| self.play(readahead_kib, &|_| false, own, options).sums)
    }

    /// Only faults, and the index of UBIFS, differ where the window is the recording's own.
    fn key(&self, readahead_kib: u64, own: bool, options: FilesystemOptions) -> Setting {
        let differs = self.costs.workload.faults > 0 || !self.costs.workload.nodes.runs.is_empty();
        (readahead_kib, own && differs, options)
    }

    /// Plays one setting; `own` as for [`Predictor::simulator`]. Calls are played in recorded order.
    fn play(
        &self,
        readahead_kib: u64,
        random: &dyn Fn(FileId) -> bool,
        own: bool,
        options: FilesystemOptions,
    ) -> Played {
        let mut simulator = self.simulator(readahead_kib, own, options);
        if !self.costs.storage.squashfs.is_empty() {
            simulator.tell_blocks();
        }
        if self.costs.queue.is_some() {
            simulator.tell_uses();
        }
        let mut accounts = Accounts::new(&self.costs, own, options, self.recorded_index(own));
        let mut opened = HashSet::new();
        for step in &self.costs.workload.steps {
            if random(step.file) && opened.insert((step.file, step.open)) {
                simulator.apply(step.file, step.open, Access::AdviseRandom, &mut |_| {});
            }
            accounts.begin(step);
            simulator.apply(step.file, step.open, step.access, &mut |event| accounts.event(step, event));
            accounts.end(step);
        }
        let played = accounts.finish(&simulator);
        self.windows_forgotten.set(self.windows_forgotten.get().max(simulator.windows_forgotten()));
        if opened.is_empty() {
            self.known.borrow_mut().insert(self.key(readahead_kib, own, options), played.sums);
        }
        played
    }

    fn row_of(&self, readahead_kib: u64, random: &dyn Fn(FileId) -> bool, options: FilesystemOptions) -> Row {
        let played = self.play(readahead_kib, random, false, options);
        let Played { mut by_file, mut by_task, sums, .. } = played;
        if self.costs.workload.faults_shown {
            by_file.values_mut().chain(by_task.values_mut()).for_each(Tally::shows_faults);
        }
        Row { by_file, by_task, ..self.priced(readahead_kib, options, sums) }
    }

    /// Adds flash reads and time to a setting's sums.
    fn priced(&self, readahead_kib: u64, options: FilesystemOptions, sums: Sums) -> Row {
        let Sums { mut tally, known, blocks, bulk, index_reads, replayed, .. } = sums;
        let of_bulk = bulk.reads > 0 || !self.costs.storage.bulk_read.is_empty();
        let (flash_reads, mut time_ns) = match self.costs.nodes.filter(|_| of_bulk) {
            Some(nodes) => {
                let (calls, pages) = (tally.requests(), tally.pages());
                let (more_reads, more_ns) = nodes.of_index(self.own().more_reads);
                let reads = nodes.flash_reads(pages, bulk, index_reads) + more_reads;
                (Some(reads), Some(nodes.time_ns(calls, pages, bulk, index_reads) + more_ns))
            }
            // The cost of a bulk read is not known without the places of nodes.
            None if bulk.reads > 0 => (None, None),
            None => {
                let of_pages = self.costs.flash_reads(&tally).map(|reads| (reads + known.flash_reads).max(0.0));
                match self.own().block_rate.filter(|_| of_pages.is_some()) {
                    Some(rate) => {
                        let flash_reads = blocks.flash_reads(rate);
                        (Some(flash_reads), self.costs.time_of_blocks_ns(&tally, flash_reads))
                    }
                    None => (of_pages, self.costs.time_ns(&tally).map(|ns| (ns + known.ns).max(0.0))),
                }
            }
        };
        if let Some((ns, reads)) = time_ns.as_mut().zip(flash_reads) {
            *ns = (*ns + reads * self.costs.more_a_read_ns).max(0.0);
        }
        if let Some((ns, _)) = replayed {
            time_ns = ns;
        }
        if self.costs.workload.faults_shown {
            tally.shows_faults();
        }
        Row {
            readahead_kib,
            random: false,
            options,
            bulk,
            wasted_bytes: tally.wasted_bytes(),
            flash_reads,
            queue: replayed.map(|(_, requested)| requested),
            time_ns,
            energy_uj: None,
            tally,
            by_file: BTreeMap::new(),
            by_task: BTreeMap::new(),
        }
    }

    fn own(&self) -> &Own {
        self.own.get_or_init(|| {
            let on_ubifs = !self.costs.workload.nodes.runs.is_empty();
            if self.costs.storage.squashfs.is_empty() && !on_ubifs {
                return Own::default();
            }
            let fits = self.recorded(&TRIED_KIB).fits_readahead_kib;
            let own = self.play(fits, &|_| false, true, FilesystemOptions::default());
            let sums = own.sums;
            let mut files = self.costs.workload.pages_added.keys();
            let on_squashfs = |&file: &FileId| self.costs.block_bytes(file, FilesystemOptions::default()).is_some();
            let only_squashfs = !self.costs.storage.squashfs.is_empty() && files.all(on_squashfs);
            let recorded = self.costs.workload.flash_reads;
            let of_bulk = self.costs.nodes.filter(|_| !self.costs.storage.bulk_read.is_empty());
            let more =
                |nodes: NodeCost| recorded as f64 - nodes.flash_reads(sums.tally.pages(), sums.bulk, sums.index_reads);
            // Index nodes on the way to each file's inode: opening the file read them.
            let most = (DEPTH * self.costs.workload.pages_added.len()) as f64;
            Own {
                block_rate: only_squashfs.then(|| sums.blocks.rate(recorded)),
                index: own.index_of,
                more_reads: of_bulk.map_or(0.0, more).clamp(-most, 0.0),
            }
        })
    }

    /// Index reads of each page in the recording. `None` on another file system, and where the recording itself is played.
    pub(super) fn recorded_index(&self, own: bool) -> Option<&HashMap<(FileId, u64), u64>> {
        (!own && !self.costs.workload.nodes.runs.is_empty()).then(|| &self.own().index)
    }

    /// The measurements of the recording, and the window of `settings` (KiB) that fits its pages best.
    pub fn recorded(&self, settings: &[u64]) -> Recorded {
        let recorded = &self.costs.workload.pages_added;
        let rows = settings.iter().map(|&kib| {
            let sums = self.setting(kib, true, FilesystemOptions::default());
            (sums.off, kib, sums.tally.pages())
        });
        let rows: Vec<(u64, u64, u64)> = rows.collect();
        let (least, fits, pages) = rows.iter().copied().min().unwrap_or_default();
        let fits_alone = rows.iter().filter(|&&(off, ..)| off == least).count() == 1;
        let workload = &self.costs.workload;
        let calls = workload.calls.iter().chain(&workload.advice);
        let timed_calls = calls.filter(|call| call.duration_ns.is_some()).count() as u64;
        Recorded {
            pages: recorded.values().copied().fold(0, u64::saturating_add),
            flash_reads: shown(workload.flash_seen, workload.flash_reads, NO_FLASH),
            time_ns: shown(timed_calls > 0, self.costs.busy_ns, NO_ENDS),
            timed_calls,
            faults: shown(workload.faults_shown, workload.faults, NO_FAULTS),
            cpu_wait_ns: shown(workload.switches_shown, workload.cpu_wait_ns, NO_SWITCHES),
            fits_readahead_kib: fits,
            predicted_pages: pages,
            fits_alone,
        }
    }
}
