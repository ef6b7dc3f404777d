//! Runs a layers study: a fresh boot for each group, and the layers of the calls in its recording.

use std::path::Path;

use flashscope_analysis::Analysis as _;
use flashscope_analysis::layers::{CallLayers, Layers, Operation};
use flashscope_trace::Session;
use serde_json::Value;

use super::definition::LayersStudy;
use super::plan::{LayersSpec, STEP_READ, STEP_WRITE, groups, plan};
use super::result::{Boundary, LAYERS_SCHEMA, LayersGroup, LayersResult, figures};
use crate::collect::losses;
use crate::error::StudyError;
use crate::kind::{Boot, Kind, Lab};
use crate::lab;
use crate::medium::Medium;
use crate::options::{Options, RunProgress};
use crate::plan::disk_mib;
use crate::result::Inputs;
use crate::size::Bytes;
use crate::statement::rows;

/// Runs a study to its end.
pub fn run(study: &LayersStudy, options: &Options, watch: &dyn RunProgress) -> Result<LayersResult, StudyError> {
    let mut definition = study.definition.clone();
    if let Some(kernel) = &options.kernel {
        definition.layers.kernel = vec![kernel.clone()];
    }
    let specs = groups(&definition.layers);
    watch.study_started(specs.len());
    let lab = Lab::prepare(&Calls, &specs, options, watch)?;
    let groups = lab.run()?;
    Ok(LayersResult {
        header: lab.header(LAYERS_SCHEMA, [&definition.name, &definition.title, &definition.question], &study.sha256),
        published: rows(&definition.published, &figures(&groups)),
        groups,
    })
}

/// Single reads and writes.
struct Calls;

impl Kind for Calls {
    type Spec = LayersSpec;
    type Group = LayersGroup;
    type Medium = Medium;

    fn id(&self, spec: &LayersSpec) -> String {
        spec.id()
    }

    fn target<'a>(&self, spec: &'a LayersSpec) -> [&'a str; 2] {
        [&spec.storage.board, &spec.kernel]
    }

    fn image(&self, spec: &LayersSpec, boot: &mut Boot<'_>) -> Result<Medium, StudyError> {
        let bytes = Bytes(spec.file_bytes());
        let size = ("size_mib".to_owned(), disk_mib(bytes).to_string());
        let medium = boot.storage_and_modules(spec.id(), spec.storage.filesystem, bytes, vec![size])?;
        boot.lines.extend(plan(spec, medium.device()));
        Ok(medium)
    }

    fn collect(
        &self,
        port: &Path,
        spec: &LayersSpec,
        inputs: Inputs,
        medium: Medium,
    ) -> Result<LayersGroup, StudyError> {
        collect(port, spec, inputs, medium.name())
    }
}

fn collect(port: &Path, spec: &LayersSpec, inputs: Inputs, medium: &str) -> Result<LayersGroup, StudyError> {
    let group = spec.id();
    let session = Session::open(port)?;
    let missing = |what: &str| StudyError::Missing { group: group.clone(), what: what.to_owned() };
    let bench: Value = lab::printed(&session, &group, STEP_READ)?;
    let measured = [&bench["measured"]["begin_ns"], &bench["measured"]["end_ns"]].map(Value::as_u64);
    let [Some(reads_begin), Some(reads_end)] = measured else { return Err(missing("times of step 'read'")) };
    let writes =
        session.phases().iter().find(|phase| phase.name == STEP_WRITE).ok_or_else(|| missing("phase 'write'"))?;
    let writes_end = writes.end_ns.ok_or_else(|| missing("end of phase 'write'"))?;

    let trace = session.recording(0)?;
    let crossings = trace.crossings();
    let mut layers = Layers::new(|tid, time| trace.comm(tid, time), crossings.sleep());
    trace.for_each_pair(&mut |pair| {
        if let Some(event) = pair.event {
            layers.event(event);
        }
        if let Some(record) = pair.record {
            crossings.read(record, &mut |tid, crossing| layers.crossing(crossing, tid, record.time));
        }
    })?;
    lab::whole(&trace, &group, "its calls are unknown; take fewer calls")?;
    let found = layers.finish();
    let mut losses = losses(&trace);
    losses.extend(found.losses());
    let wanted = |call: &CallLayers| {
        call.result == spec.bytes as i64
            && match call.call {
                Operation::Read => (reads_begin..=reads_end).contains(&call.begin_ns),
                Operation::WriteSync => (writes.begin_ns..=writes_end).contains(&call.begin_ns),
                Operation::Write | Operation::Sync => false,
            }
    };
    let calls: Vec<CallLayers> = found.calls.into_iter().filter(wanted).collect();
    for (operation, what) in [(Operation::Read, "cold reads"), (Operation::WriteSync, "writes with their syncs")] {
        let found = calls.iter().filter(|call| call.call == operation).count();
        if found as u64 != spec.calls {
            return Err(StudyError::Calls { group, what, found, asked: spec.calls });
        }
    }
    let facts = trace.facts();
    let boundaries = facts.recording.boundaries.iter().map(|one| Boundary {
        layer: one.layer.clone().unwrap_or_default(),
        what: one.symbol.clone().or(one.enter.clone()).unwrap_or_default(),
    });
    Ok(LayersGroup {
        id: group,
        inputs: inputs.recorded(facts),
        filesystem: spec.storage.filesystem.as_str().to_owned(),
        medium: medium.to_owned(),
        boundaries: boundaries.collect(),
        sums: flashscope_analysis::layers::sums(&calls),
        calls,
        losses,
    })
}
