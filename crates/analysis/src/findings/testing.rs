//! Workloads for the rules' unit tests.

use super::{Finding, Seen, StorageFacts};
use crate::Analysis as _;
use crate::LossCount;
use crate::block::{BlockAnalysis, BlockFound, CarriedBytes, Originator, OwnerKind, Sizes};
use crate::calls::{CallGroup, CallsFound};
use crate::latency::LatencyNs;
use crate::testing::event;
use flashscope_trace::{BlockAction, BlockDetail, BlockEvent, Device, EventKind, RequestFlags};

pub struct Work {
    pub storage: StorageFacts,
    pub block: Option<BlockFound>,
    pub calls: CallsFound,
    pub losses: Vec<LossCount>,
    pub span_ns: u64,
}

impl Work {
    pub fn new(span_ns: u64) -> Work {
        Work {
            storage: StorageFacts::default(),
            block: None,
            calls: CallsFound::default(),
            losses: Vec::new(),
            span_ns,
        }
    }

    pub fn seen(&self) -> Seen<'_> {
        Seen {
            storage: &self.storage,
            block: self.block.as_ref(),
            calls: &self.calls,
            losses: &self.losses,
            span_ns: self.span_ns,
        }
    }

    pub fn block(&mut self) -> &mut BlockFound {
        self.block.get_or_insert_with(|| BlockAnalysis::new(|_, _| None::<&str>, Sizes::default()).finish())
    }

    /// Calls of one kind by one process.
    pub fn call(&mut self, call: &str, name: &str, n: u64, total_ns: u64, bytes: u64) {
        let mean = total_ns / n.max(1);
        let ns = LatencyNs { n, mean, max: mean, ..LatencyNs::default() };
        self.calls.by_process.push(CallGroup { call: call.into(), name: name.into(), bytes, total_ns, ns });
    }

    /// Bios of 4 KiB, one after the other, each so long in front of the device 8:0 and in it.
    pub fn bios(&mut self, n: u64, letters: &str, queue_ns: u64, device_ns: u64) {
        let mut analysis = BlockAnalysis::new(|_, _| Some("task"), Sizes::default());
        let mut now = 1;
        for number in 0..n {
            let step = |action, time| {
                let flags = RequestFlags::from_letters(letters.as_bytes());
                let block = BlockEvent {
                    action,
                    device: Device::new(8, 0),
                    flags,
                    sector: number * 8,
                    bytes: 4096,
                    error: 0,
                    cgroup: 0,
                    detail: BlockDetail::None,
                };
                event(time, 7, EventKind::Block(block))
            };
            analysis.event(&step(BlockAction::Queue, now));
            analysis.event(&step(BlockAction::Issue, now + queue_ns));
            now += queue_ns + device_ns;
            analysis.event(&step(BlockAction::Complete, now));
            now += 1;
        }
        self.block = Some(analysis.finish());
    }

    pub fn owner(&mut self, name: &str, kind: OwnerKind, read_bytes: u64, written_bytes: u64) {
        let carriers: Vec<CarriedBytes> = Vec::new();
        let owner =
            Originator { name: name.into(), kind, tid: 7, read_bytes, written_bytes, covered_bytes: 0, carriers };
        self.block().originators.originators.push(owner);
    }
}

/// The only finding.
pub fn only(mut findings: Vec<Finding>) -> Finding {
    assert_eq!(findings.len(), 1, "{findings:?}");
    findings.remove(0)
}
