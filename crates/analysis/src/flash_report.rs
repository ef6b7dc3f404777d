//! The report on the flash operations of one trace, and the pass over the events that builds it.

use crate::flash::{
    Activities, ActivityFold, AmplificationFold, BlockMap, Blocks, ByTask, Counts, Geometry, Health, LabelledCounts,
    LatencyHistogram, LatencyNs, LayerBytes, Life, Phases, PhasesFound, TaskOps, Timeline, TimelineFold, UbiRegion,
    Wear, WearFold, Yaffs2Fold,
};
use crate::{Analysis, Evidence, Lookup, OwnWear, Unknown};
use flashscope_trace::{Device, Event, EventKind, FlashOp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Version of [`FlashReport`]'s fields; raised when the meaning of one changes.
pub const FLASH_REPORT_SCHEMA: u32 = 2;

/// The report on one trace. It contains no time and no path of the host.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct FlashReport {
    pub schema: u32,
    /// The file name of the trace, without folders.
    pub title: String,
    pub system: SystemFacts,
    pub chips: Vec<ChipShape>,
    /// Remaining life of each chip at this rate of erases; empty without a stated endurance or without an erase.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub life: Vec<Life>,
    pub probes: Vec<ProbeFacts>,
    /// Chips with bit errors (corrected or not) or bad blocks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub health: Vec<Health>,
    /// All kinds of losses, also those that are zero.
    pub losses: Vec<LossCount>,
    /// Accuracy of read-ahead; absent if the trace has no file reads or no page cache events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readahead: Option<crate::Evidence<crate::cache::AccuracyFindings>>,
    /// Names of devices and files; empty if the recording has none.
    #[serde(default, skip_serializing_if = "crate::NamesFound::is_empty")]
    pub names: crate::NamesFound,
    /// Findings, the most important first.
    #[serde(default)]
    pub findings: Vec<crate::finding::Finding>,
    /// Durations of system calls; empty if the trace has none.
    #[serde(default)]
    pub calls: crate::calls::CallsFound,
    #[serde(flatten)]
    pub found: FlashFindings,
}

/// Where the trace comes from, as its recording says; empty where it does not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct SystemFacts {
    pub kernel_release: String,
    pub machine: String,
    pub cpus: u32,
    pub agent_version: String,
    /// The trace clock: "mono".
    pub clock: String,
    /// "jffs2 on mtd0 at /mnt"
    pub mounts: Vec<String>,
    /// What its storage says of its own wear.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wear: Vec<OwnWear>,
    /// Why the flight recorder wrote it: "fsync>5ms: a sync of task 12 took 18.7 ms". Empty for other recordings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub captured: Vec<String>,
    /// What a recording is limited to: "--comm dd --device loop0". Empty where all was recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limited_to: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct ChipShape {
    pub chip: u16,
    pub name: String,
    pub page_bytes: u32,
    pub pages_per_block: u32,
    /// 0 where it is not known.
    pub blocks: u32,
}

impl ChipShape {
    pub fn geometry(&self) -> Geometry {
        Geometry { page_bytes: self.page_bytes, pages_per_block: self.pages_per_block }
    }
}

/// A probe of the recording, and what it cannot see.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct ProbeFacts {
    pub event: String,
    pub operation: String,
    pub symbol: String,
    pub level: String,
    pub loses: String,
}

/// A named counter of something that was not seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct LossCount {
    pub name: String,
    pub count: u64,
    pub meaning: String,
}

/// Results of one pass over the events.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema, Deserialize)]
pub struct FlashFindings {
    /// Events of every kind.
    pub events: u64,
    pub begin_ns: u64,
    pub end_ns: u64,
    /// Unknown where the trace would not show any operation of raw flash.
    pub counts: Evidence<LabelledCounts>,
    pub by_task: Vec<TaskOps>,
    pub phases: PhasesFound,
    /// Unmarked phases that the file systems' own work shows.
    #[serde(default)]
    pub activities: Activities,
    /// What of a YAFFS2's operations is no file's, once more.
    #[serde(default, skip_serializing_if = "Activities::is_empty")]
    pub yaffs2: Activities,
    pub timeline: Timeline,
    pub blocks: BlockMap,
    /// Unknown as `counts` are.
    pub wear: Evidence<Wear>,
    /// Bytes at each layer, from the calls down.
    #[serde(default)]
    pub amplification: Vec<LayerBytes>,
    /// Operations whose durations were recorded.
    pub durations: Vec<OpDurations>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct OpDurations {
    pub op: FlashOp,
    pub latency_ns: LatencyNs,
}

/// One pass that feeds every flash analysis, in order of time. Memory is bounded for any trace.
pub struct FlashAnalysis<L> {
    events: u64,
    time: Option<(u64, u64)>,
    counts: Counts,
    by_task: ByTask<L>,
    wear: WearFold<L>,
    amplification: AmplificationFold<L>,
    phases: Phases,
    activities: ActivityFold<L>,
    yaffs2: Yaffs2Fold<L>,
    timeline: TimelineFold,
    blocks: Blocks,
    durations: [LatencyHistogram; 3],
    /// The trace would show operations of raw flash.
    shows_operations: bool,
}

impl<L: Lookup<Name: AsRef<str>> + Clone> FlashAnalysis<L> {
    /// `shapes`: number, shape and blocks (0: not known) of each chip. `partitions`, where known: chip, first erase block, and number of
    /// blocks. `ubi`: where UBI lies. `lookup`: the name of a thread at a time.
    pub fn new(shapes: &[(u16, Geometry, u32)], partitions: &[(u16, u64, u64)], ubi: &[UbiRegion], lookup: L) -> Self {
        let chips: Vec<_> = shapes.iter().map(|&(chip, shape, _)| (chip, shape)).collect();
        let chips = chips.as_slice();
        Self {
            events: 0,
            time: None,
            counts: Counts::new(chips),
            wear: WearFold::new(shapes, lookup.clone()),
            amplification: AmplificationFold::new(
                chips.iter().map(|(chip, shape)| (*chip, shape.page_bytes)),
                ubi,
                lookup.clone(),
            ),
            activities: ActivityFold::new(chips, partitions, lookup.clone()),
            yaffs2: Yaffs2Fold::new(chips, partitions, lookup.clone()),
            by_task: ByTask::new(lookup),
            phases: Phases::default(),
            timeline: TimelineFold::default(),
            blocks: Blocks::new(chips),
            durations: Default::default(),
            shows_operations: true,
        }
    }

    /// Whether the traces would show operations of raw flash: if not, their number is unknown instead of 0.
    pub fn shows_operations(mut self, shows: bool) -> Self {
        self.shows_operations = shows;
        self
    }

    /// Devices of the mounts that lie on raw flash, from the recording.
    pub fn with_mounts_on(mut self, devices: &[Device]) -> Self {
        self.wear = self.wear.with_mounts_on(devices);
        self
    }

    /// The partitions with a YAFFS2, from the recording.
    pub fn with_yaffs2_on(mut self, partitions: &[(u16, u64, u64)]) -> Self {
        self.yaffs2 = self.yaffs2.mounted(partitions);
        self
    }
}

impl<L: Lookup<Name: AsRef<str>>> Analysis for FlashAnalysis<L> {
    type Output = FlashFindings;

    fn event(&mut self, event: &Event) {
        let now = event.time.0;
        self.events += 1;
        let (low, high) = self.time.get_or_insert((now, now));
        (*low, *high) = (now.min(*low), now.max(*high));
        if let EventKind::FlashDone { op, duration_ns } = event.kind {
            self.durations[op as usize].add(duration_ns);
        }
        self.counts.event(event);
        self.by_task.event(event);
        self.wear.event(event);
        self.amplification.event(event);
        self.phases.event(event);
        self.activities.event(event);
        self.yaffs2.event(event);
        self.timeline.event(event);
        self.blocks.event(event);
    }

    fn finish(self) -> FlashFindings {
        let (begin_ns, end_ns) = self.time.unwrap_or((0, 0));
        let (counts, wear) = (self.counts.finish(), self.wear.finish());
        let amplification = self.amplification.finish(&wear);
        let mut phases = self.phases.finish();
        let is_known = self.shows_operations || counts.total.sum() + counts.mtd_calls.sum() > 0;
        let why = (!is_known).then(not_shown);
        if let Some(why) = &why {
            phases.has_no_counts(why);
        }
        FlashFindings {
            events: self.events,
            begin_ns,
            end_ns,
            counts: why.clone().map_or(Evidence::Known(counts), Evidence::Unknown),
            by_task: self.by_task.finish(),
            phases,
            activities: self.activities.finish(),
            yaffs2: self.yaffs2.finish(),
            timeline: self.timeline.finish(),
            blocks: self.blocks.finish(),
            // Nothing is known of the layers below the calls.
            amplification: if is_known { amplification } else { Vec::new() },
            wear: why.map_or(Evidence::Known(wear), Evidence::Unknown),
            durations: [FlashOp::Read, FlashOp::Program, FlashOp::Erase]
                .into_iter()
                .map(|op| OpDurations { op, latency_ns: self.durations[op as usize].finish() })
                .filter(|d| d.latency_ns.n > 0)
                .collect(),
        }
    }
}

/// Why operations of raw flash are unknown.
fn not_shown() -> Unknown {
    Unknown::new(
        "the trace has no events of raw flash (flashscope:nand_read, nand_program, nand_erase): what happened there is unknown",
        "record with `flashscope record --events flash,cache,syscall`",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{access, begin, end, event, flash};
    use flashscope_trace::TaskId;

    #[test]
    fn one_pass_answers_all() {
        let shape = Geometry { page_bytes: 2048, pages_per_block: 64 };
        let mut pass = FlashAnalysis::new(&[(0, shape, 0)], &[], &[], |tid, _| (tid == TaskId(7)).then_some("cat"));
        for e in [
            begin(10, "run"),
            flash(20, 7, access(FlashOp::Read, 65)),
            event(25, 7, EventKind::FlashDone { op: FlashOp::Read, duration_ns: 5 }),
            end(30, "run"),
            flash(40, 8, access(FlashOp::Erase, 64)),
        ] {
            pass.event(&e);
        }
        let found = pass.finish();
        assert_eq!((found.events, found.begin_ns, found.end_ns), (5, 10, 40));
        assert_eq!(found.counts.known().expect("counts").total.sum(), 2);
        assert_eq!(found.by_task[0].task, "cat");
        assert_eq!(found.by_task[1].task, "tid 8");
        assert_eq!(found.phases.phases[0].counts.known().expect("counts").reads, 1);
        assert_eq!(found.timeline.points.len(), 2);
        assert_eq!(found.blocks.blocks.len(), 1);
        assert_eq!(found.blocks.blocks[0].block, 1);
        assert_eq!(found.durations.len(), 1);
        assert_eq!(found.durations[0].latency_ns.max, 5);

        let report = FlashReport {
            schema: FLASH_REPORT_SCHEMA,
            title: "t".into(),
            system: SystemFacts::default(),
            chips: vec![],
            life: vec![],
            probes: vec![],
            health: Vec::new(),
            losses: vec![],
            readahead: None,
            names: Default::default(),
            findings: Vec::new(),
            calls: Default::default(),
            found,
        };
        let json = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<FlashReport>(&json).unwrap(), report);
    }
}
