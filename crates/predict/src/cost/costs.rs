//! What a recording's calls, pages and flash reads cost, and what as much of another setting costs.

use flashscope_cachesim::PAGE_BYTES;
use flashscope_trace::FileId;

use crate::cost::{Busy, Cost, NodeCost};
use crate::queue::{DeviceCost, QueueCost, Replay};
use crate::settings::{FilesystemOptions, Storage, Tally};
use crate::workload::{TaskAccess, Workload};

/// What calls, pages and flash reads of one recording cost.
pub struct Costs<'a> {
    pub workload: &'a Workload,
    pub storage: Storage,
    pub cost: Option<Cost>,
    pub fault_cost: Option<Cost>,
    pub advice_cost: Option<Cost>,
    pub busy_ns: u64,
    pub mean_page_ns: f64,
    pub queue: Option<QueueCost>,
    pub nodes: Option<NodeCost>,
    /// On UBIFS, where pages were read one by one: what a page takes that was not read.
    pub one_by_one: Option<NodeCost>,
    /// What a read of flash takes more than when it was recorded.
    pub more_a_read_ns: f64,
}

impl<'a> Costs<'a> {
    pub fn new(workload: &'a Workload, storage: Storage) -> Costs<'a> {
        let busy = Busy::of(workload);
        let [cost, fault_cost, advice_cost] = [&busy.reads, &busy.faults, &busy.advice].map(Cost::fit);
        // squashfs reads its blocks by bios of its own, which are not its pages'.
        let of_queue = cost.is_none() && fault_cost.is_none() && storage.squashfs.is_empty();
        let queue = workload.queued.cost.filter(|_| of_queue);
        let alone = workload.nodes.alone.filter(|_| storage.bulk_read.is_empty());
        let times = workload.flash_times.times();
        let fit = |single_reads: f64| NodeCost::fit(&busy, single_reads, times);
        let one_by_one = alone.and_then(fit);
        // Where no node was read alone: what one touches that lies anywhere, a page of flash more than it is long.
        let nodes = workload.nodes.flash_pages.and_then(|pages| fit(alone.unwrap_or(pages + 1.0)));
        let (busy_ns, mean_page_ns) = (busy.total_ns, workload.costs.mean_ns());
        Costs {
            workload,
            storage,
            cost,
            fault_cost,
            advice_cost,
            busy_ns,
            mean_page_ns,
            queue,
            nodes,
            one_by_one,
            more_a_read_ns: 0.0,
        }
    }

    /// A call without pages, a page in it, a fault without pages, a page in it: ns.
    pub fn of_calls_and_pages(&self) -> Option<[f64; 4]> {
        let reads = self.cost.or(self.fault_cost.map(Cost::of_pages))?;
        let faults = self.fault_cost.unwrap_or(reads.of_pages());
        Some([reads.call_ns, reads.page_ns, faults.call_ns, faults.page_ns])
    }

    /// A fault that reads, and each page that it brings in, ns. Behind a block queue nothing overlaps: each waits for a request of its own.
    pub fn of_faults(&self) -> Option<[f64; 2]> {
        let queued = || {
            let DeviceCost { request_ns, kib_ns, .. } = self.queue?.device;
            Some([request_ns, kib_ns * (PAGE_BYTES / 1024) as f64])
        };
        self.of_calls_and_pages().map(|[.., call_ns, page_ns]| [call_ns, page_ns]).or_else(queued)
    }

    /// The block size of the squashfs that files lie on; `None` where there is none, or several.
    pub fn squashfs_block(&self) -> Option<u64> {
        let mut sizes = self.storage.squashfs.values();
        sizes.next().filter(|first| sizes.all(|size| size == *first)).copied()
    }

    /// Whether files lie on UBIFS, and whether some of it was mounted with `bulk_read`.
    pub fn on_ubifs(&self) -> Option<bool> {
        (!self.workload.nodes.runs.is_empty()).then_some(!self.storage.bulk_read.is_empty())
    }

    /// How large a file's blocks are, bytes, and whether they were when it was recorded.
    pub fn block_bytes(&self, file: FileId, options: FilesystemOptions) -> Option<(u64, bool)> {
        let recorded = *file.device.and_then(|device| self.storage.squashfs.get(&device))?;
        let bytes = options.squashfs_block.unwrap_or(recorded);
        Some((bytes, bytes == recorded))
    }

    /// When its call began when it was recorded, and when it ended, as far as that is known.
    pub fn began_and_ended(&self, step: &TaskAccess) -> Option<(u64, Option<u64>)> {
        let call = self.workload.calls.get(step.call? as usize)?;
        Some((call.began_ns, call.ended_ns()))
    }

    pub fn replay(&self) -> Option<Replay<'_>> {
        self.queue.map(|cost| Replay::new(&cost, self.storage.request_bytes, &self.workload.queued.extents))
    }

    /// What a call takes that brings nothing in.
    pub fn call_ns(&self) -> f64 {
        self.of_calls_and_pages().map_or(0.0, |[call_ns, ..]| call_ns)
    }

    /// Pages of the mean: reads and faults each by their own fit; what has none (all of it was cached when it was recorded) by the
    /// other's pages.
    pub fn time_ns(&self, tally: &Tally) -> Option<f64> {
        let reads = self.cost.or(self.fault_cost.map(Cost::of_pages))?;
        let faults = self.fault_cost.unwrap_or(reads.of_pages());
        let advice = self.advice_cost.unwrap_or(reads).page_ns * tally.pages_in_advice as f64;
        let calls = reads.time_ns(tally.calls, tally.pages_in_calls);
        Some(calls + faults.time_ns(tally.faults.unwrap_or(0), tally.pages_in_faults.unwrap_or(0)) + advice)
    }

    /// On squashfs a block takes what was read for it, however many of its pages are kept.
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

    /// Reads of flash for a page in reads, in faults and in advice.
    pub fn flash_rates(&self) -> Option<[f64; 3]> {
        let of = |cost: Option<Cost>| cost.map(|cost| cost.flash_reads_per_page);
        let reads = of(self.cost.or(self.fault_cost))?;
        Some([reads, of(self.fault_cost).unwrap_or(reads), of(self.advice_cost).unwrap_or(reads)])
    }
}
