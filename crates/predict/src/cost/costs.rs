//! Costs of a recording's calls, pages and flash reads, and the cost of another setting computed from them.

use flashscope_cachesim::PAGE_BYTES;
use flashscope_trace::FileId;

use crate::cost::{Busy, Cost, NodeCost};
use crate::queue::{DeviceCost, QueueCost, Replay};
use crate::settings::{FilesystemOptions, Storage, Tally};
use crate::workload::{TaskAccess, Workload};

/// Costs of calls, pages and flash reads of one recording.
pub struct Costs<'a> {
    pub workload: &'a Workload,
    pub storage: Storage,
    pub cost: Option<Cost>,
    pub fault_cost: Option<Cost>,
    pub advice_cost: Option<Cost>,
    pub busy_ns: u64,
    pub mean_page_ns: f64,
    /// `None` where reads read their pages themselves, or the trace has no block events.
    pub queue: Option<QueueCost>,
    pub nodes: Option<NodeCost>,
    /// On UBIFS, where pages were read one by one: the cost of a page that the recording does not show.
    pub one_by_one: Option<NodeCost>,
    /// Time added to every flash read, for another chip. The recording's own times do not change.
    pub more_a_read_ns: f64,
}

impl<'a> Costs<'a> {
    pub fn new(workload: &'a Workload, storage: Storage) -> Costs<'a> {
        let busy = Busy::of(workload);
        let [cost, fault_cost, advice_cost] = busy.kinds.each_ref().map(Cost::fit);
        // squashfs reads its blocks by its own bios, which differ from its pages.
        let of_queue = cost.is_none() && fault_cost.is_none() && storage.squashfs.is_empty();
        let queue = workload.queued.cost.filter(|_| of_queue);
        let alone = workload.nodes.alone.filter(|_| storage.bulk_read.is_empty());
        let times = workload.flash_times.times();
        let fit = |single_reads: f64| NodeCost::fit(&busy, single_reads, times);
        let one_by_one = alone.and_then(fit);
        // Where no node was read alone: the pages of flash that a node at any offset touches, one more than its length.
        let nodes = workload.nodes.flash_pages.and_then(|pages| fit(alone.unwrap_or(pages + 1.0)));
        Costs {
            workload,
            storage,
            cost,
            fault_cost,
            advice_cost,
            busy_ns: busy.total_ns,
            mean_page_ns: workload.costs.mean_ns(),
            queue,
            nodes,
            one_by_one,
            more_a_read_ns: 0.0,
        }
    }

    /// The costs of reads and of faults. Each has its own fit; where one has none (all its pages were cached in the recording) it uses
    /// the other's cost of a page.
    fn fits(&self) -> Option<(Cost, Cost)> {
        let reads = self.cost.or(self.fault_cost.map(Cost::of_pages))?;
        Some((reads, self.fault_cost.unwrap_or(reads.of_pages())))
    }

    /// Time of a fault that reads, and of each page that it brings in, ns. Behind a block queue nothing overlaps: each fault waits for
    /// its own request.
    pub fn of_faults(&self) -> Option<[f64; 2]> {
        let queued = || {
            let DeviceCost { request_ns, kib_ns, .. } = self.queue?.device;
            Some([request_ns, kib_ns * (PAGE_BYTES / 1024) as f64])
        };
        self.fits().map(|(_, faults)| [faults.call_ns, faults.page_ns]).or_else(queued)
    }

    /// The block size of squashfs; `None` where no file lies on squashfs, or block sizes differ.
    pub fn squashfs_block(&self) -> Option<u64> {
        let mut sizes = self.storage.squashfs.values();
        sizes.next().filter(|first| sizes.all(|size| size == *first)).copied()
    }

    /// Whether a UBIFS file system was mounted with `bulk_read`; `None` where no file lies on UBIFS.
    pub fn on_ubifs(&self) -> Option<bool> {
        (!self.workload.nodes.runs.is_empty()).then_some(!self.storage.bulk_read.is_empty())
    }

    /// A file's block size in bytes, and whether it is the recorded one. `None` where the file is not on squashfs.
    pub fn block_bytes(&self, file: FileId, options: FilesystemOptions) -> Option<(u64, bool)> {
        let recorded = *file.device.and_then(|device| self.storage.squashfs.get(&device))?;
        let bytes = options.squashfs_block.unwrap_or(recorded);
        Some((bytes, bytes == recorded))
    }

    /// Recorded begin and end of the step's call; `None` for the end where the trace does not show it.
    pub fn began_and_ended(&self, step: &TaskAccess) -> Option<(u64, Option<u64>)> {
        let call = self.workload.calls.get(step.call? as usize)?;
        Some((call.began_ns, call.ended_ns()))
    }

    /// Time of the recorded calls behind a block queue, ns. `None` on other storage, and where the end of a call is not in the trace.
    pub fn recorded_behind_queue_ns(&self) -> Option<f64> {
        let all_ended = self.workload.calls.iter().all(|call| call.duration_ns.is_some());
        self.queue.filter(|_| all_ended).map(|_| self.busy_ns as f64)
    }

    pub fn replay(&self) -> Option<Replay<'_>> {
        self.queue.map(|cost| Replay::new(&cost, self.storage.request_bytes, &self.workload.queued.extents))
    }

    /// Time of a call that brings no page in.
    pub fn call_ns(&self) -> f64 {
        self.fits().map_or(0.0, |(reads, _)| reads.call_ns)
    }

    /// Time at mean cost.
    pub fn time_ns(&self, tally: &Tally) -> Option<f64> {
        let (reads, faults) = self.fits()?;
        let advice = self.advice_cost.unwrap_or(reads).page_ns * tally.pages_in_advice as f64;
        let calls = reads.time_ns(tally.calls, tally.pages_in_calls);
        Some(calls + faults.time_ns(tally.faults.unwrap_or(0), tally.pages_in_faults.unwrap_or(0)) + advice)
    }

    /// Time on squashfs, by flash reads: a block costs its flash reads, however many of its pages are kept.
    pub fn time_of_blocks_ns(&self, tally: &Tally, flash_reads: f64) -> Option<f64> {
        let calls_ns = |calls: usize| self.call_ns() * calls as f64;
        let of_blocks_ns = self.busy_ns as f64 - calls_ns(self.workload.calls.len());
        let each_ns = of_blocks_ns.max(0.0) / self.workload.flash_reads.max(1) as f64;
        (self.workload.flash_reads > 0).then(|| calls_ns(tally.requests() as usize) + each_ns * flash_reads)
    }

    pub fn flash_reads(&self, tally: &Tally) -> Option<f64> {
        let of_faults = tally.pages_in_faults.unwrap_or(0);
        let rest = tally.pages() - of_faults - tally.pages_in_advice;
        let parts = [rest, of_faults, tally.pages_in_advice];
        Some(self.flash_rates()?.iter().zip(parts).map(|(each, pages)| each * pages as f64).sum())
    }

    /// Flash reads for a page in reads, in faults and in advice.
    pub fn flash_rates(&self) -> Option<[f64; 3]> {
        let of = |cost: Option<Cost>| cost.map(|cost| cost.flash_reads_per_page);
        let reads = of(self.cost.or(self.fault_cost))?;
        Some([reads, of(self.fault_cost).unwrap_or(reads), of(self.advice_cost).unwrap_or(reads)])
    }
}
