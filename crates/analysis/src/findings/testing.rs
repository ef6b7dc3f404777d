//! Workloads for the rules' unit tests.

use super::{Finding, Mount, Seen, Step, StorageFacts};
use crate::block::{BlockAnalysis, BlockFound, CarriedBytes, Originator, OwnerKind, Sizes};
use crate::cache::AccuracyFindings;
use crate::calls::{CallGroup, CallsFound};
use crate::flash::Life;
use crate::latency::LatencyNs;
use crate::testing::{block, event};
use crate::usage::UsageFound;
use crate::{Analysis as _, FlashAnalysis, FlashFindings, LossCount, OwnWear};
use flashscope_trace::{BlockAction, Device, EventKind, TaskId};

pub struct Work {
    pub storage: StorageFacts,
    pub block: Option<BlockFound>,
    pub flash: Option<FlashFindings>,
    pub life: Vec<Life>,
    pub own_wear: Vec<OwnWear>,
    pub readahead: Option<AccuracyFindings>,
    pub usage: UsageFound,
    pub calls: CallsFound,
    pub losses: Vec<LossCount>,
    pub span_ns: u64,
    pub is_of_process: bool,
}

impl Work {
    pub fn new(span_ns: u64) -> Work {
        Work {
            storage: StorageFacts::default(),
            block: None,
            flash: None,
            life: Vec::new(),
            own_wear: Vec::new(),
            readahead: None,
            usage: UsageFound::default(),
            calls: CallsFound::default(),
            losses: Vec::new(),
            span_ns,
            is_of_process: false,
        }
    }

    pub fn seen(&self) -> Seen<'_> {
        Seen {
            storage: &self.storage,
            block: self.block.as_ref(),
            flash: self.flash.as_ref(),
            life: &self.life,
            own_wear: &self.own_wear,
            readahead: self.readahead.as_ref(),
            usage: &self.usage,
            calls: &self.calls,
            losses: &self.losses,
            span_ns: self.span_ns,
            is_of_process: self.is_of_process,
        }
    }

    pub fn block(&mut self) -> &mut BlockFound {
        self.block.get_or_insert_with(|| BlockAnalysis::new(|_, _| None::<&str>, Sizes::default()).finish())
    }

    /// Calls of one kind by one process.
    pub fn call(&mut self, call: &str, name: &str, n: u64, total_ns: u64, bytes: u64) {
        let mean = total_ns / n.max(1);
        let ns = LatencyNs { n, mean, max: mean, ..LatencyNs::default() };
        self.calls.by_process.push(CallGroup { call: call.into(), name: name.into(), path: None, bytes, total_ns, ns });
    }

    /// The same by file.
    pub fn file_call(&mut self, call: &str, name: &str, n: u64, total_ns: u64) {
        let mean = total_ns / n.max(1);
        let ns = LatencyNs { n, mean, max: mean, ..LatencyNs::default() };
        self.calls.by_file.push(CallGroup { call: call.into(), name: name.into(), path: None, bytes: 0, total_ns, ns });
    }

    /// The same of a file whose path is known.
    pub fn path_call(&mut self, call: &str, (name, path): (&str, &str), n: u64, total_ns: u64) {
        self.file_call(call, name, n, total_ns);
        self.calls.by_file.last_mut().expect("a file").path = Some(path.to_owned());
    }

    /// A file system on the device 8:0.
    pub fn mount(&mut self, target: &str, kind: &str, options: &str) {
        self.storage.mounts.push(Mount {
            source: "/dev/sda".into(),
            target: target.into(),
            kind: kind.into(),
            options: options.split(',').map(str::to_owned).collect(),
            device: "8:0".into(),
            ..Mount::default()
        });
    }

    pub fn flash(&mut self) -> &mut FlashFindings {
        self.flash.get_or_insert_with(|| FlashAnalysis::new(&[], &[], &[], |_, _| None::<&str>).finish())
    }

    /// Bios of 4 KiB, one after the other, each so long in front of the device 8:0 and in it.
    pub fn bios(&mut self, n: u64, letters: &str, queue_ns: u64, device_ns: u64) {
        self.bios_of("task", n, letters, queue_ns, device_ns);
    }

    pub fn bios_of(&mut self, task: &str, n: u64, letters: &str, queue_ns: u64, device_ns: u64) {
        self.bios_by(letters, &[(task, 7, n, queue_ns, device_ns)]);
    }

    /// Of several tasks, one after the other: name, number, bios, and their times in the queue and in the device, ns.
    pub fn bios_by(&mut self, letters: &str, tasks: &[(&str, u32, u64, u64, u64)]) {
        let name = |tid: TaskId, _| tasks.iter().find(|task| task.1 == tid.0).map(|task| task.0);
        let mut analysis = BlockAnalysis::new(name, Sizes::default());
        let (mut now, mut sector) = (1, 0);
        for &(_, tid, n, queue_ns, device_ns) in tasks {
            for _ in 0..n {
                let step = |action, time| {
                    event(time, tid, EventKind::Block(block(action, Device::new(8, 0), letters, sector, 4096)))
                };
                analysis.event(&step(BlockAction::Queue, now));
                analysis.event(&step(BlockAction::Issue, now + queue_ns));
                now += queue_ns + device_ns;
                analysis.event(&step(BlockAction::Complete, now));
                now += 1;
                sector += 8;
            }
        }
        self.block = Some(analysis.finish());
    }

    pub fn owner(&mut self, name: &str, kind: OwnerKind, read_bytes: u64, written_bytes: u64) {
        let carriers: Vec<CarriedBytes> = Vec::new();
        let former_names = Vec::new();
        let name = name.into();
        let owner = Originator {
            name,
            kind,
            tid: TaskId(7),
            ordinal: None,
            former_names,
            under_former_names: Vec::new(),
            read_bytes,
            written_bytes,
            covered_bytes: 0,
            carriers,
        };
        self.block().originators.originators.push(owner);
    }
}

/// Names that the tests' traces have.
const NAMES: [&str; 9] = ["/data", "film", "sda", "vda", "dm-0", "secret", "8:0", "task", "(7)"];

/// A step has names of the trace only where they are quoted when it is printed: never within the fixed words.
fn names_are_apart(step: &Step) {
    let fixed: Vec<&str> = match step {
        Step::Set { value, .. } => vec![value],
        Step::Remount { options, undo, .. } => vec![options, undo],
        Step::Run { command, .. } => vec![command],
        Step::Code { line } => vec![line],
    };
    for name in NAMES {
        assert!(!fixed.iter().any(|words| words.contains(name)), "{name} of the trace is not quoted: {step:?}");
    }
}

/// The only finding.
pub fn only(mut findings: Vec<Finding>) -> Finding {
    assert_eq!(findings.len(), 1, "{findings:?}");
    findings[0].advice.iter().flat_map(|remedy| &remedy.steps).for_each(names_are_apart);
    findings.remove(0)
}
