//! Runs a study of whole workloads: a board for each, under each tracer.

use std::path::Path;

use super::collect::collect;
use super::definition::RunsStudy;
use super::figures::{costs, figures, spreads};
use super::plan::{FLASHMON_LOG, RAW_SCRIPT, RunSpec, Work, groups, plan, raw_script};
use super::result::{RUNS_SCHEMA, RunGroup, RunsResult};
use crate::error::StudyError;
use crate::kind::{Boot, Kind, Lab};
use crate::options::{Options, RunProgress};
use crate::plan::modules;
use crate::result::Inputs;
use crate::size::Bytes;
use crate::statement::rows;
use flashscope_targets::board::Chip;

/// The module that `kernel/flashmon` holds.
const FLASHMON: &str = "flashmon";

/// Runs a study to its end.
pub fn run(study: &RunsStudy, options: &Options, watch: &dyn RunProgress) -> Result<RunsResult, StudyError> {
    let mut definition = study.definition.clone();
    if let Some(kernel) = &options.kernel {
        definition.runs.kernel = vec![kernel.clone()];
    }
    definition.packages.extend(options.packages.iter().cloned());
    let specs = groups(&definition.runs);
    watch.study_started(specs.len());
    let workloads = Workloads { packages: &definition.packages };
    let lab = Lab::prepare(&workloads, &specs, options, watch)?;
    let groups = lab.run()?;
    let costs = costs(&groups);
    let spreads = spreads(&costs);
    let figures = figures(&groups, &costs, &spreads);
    Ok(RunsResult {
        header: lab.header(RUNS_SCHEMA, [&definition.name, &definition.title, &definition.question], &study.sha256),
        published: rows(&definition.published, &figures),
        groups,
        costs,
        spreads,
        figures,
    })
}

struct Workloads<'a> {
    packages: &'a [String],
}

impl Kind for Workloads<'_> {
    type Spec = RunSpec;
    type Group = RunGroup;
    type Medium = Chip;

    fn id(&self, spec: &RunSpec) -> String {
        spec.id()
    }

    fn target<'a>(&self, spec: &'a RunSpec) -> [&'a str; 2] {
        [&spec.board, &spec.kernel]
    }

    fn memory(&self, spec: &RunSpec) -> Option<Bytes> {
        spec.memory
    }

    fn modules(&self, spec: &RunSpec) -> Vec<&'static str> {
        let mut wanted = spec.filesystem().map_or(&[][..], modules).to_vec();
        wanted.extend(spec.tracer.is_flashmon().then_some(FLASHMON));
        wanted
    }

    fn packages(&self) -> Vec<Vec<String>> {
        vec![self.packages.to_vec()]
    }

    fn image(&self, spec: &RunSpec, boot: &mut Boot<'_>) -> Result<Chip, StudyError> {
        let chip = boot.board.chip().ok_or_else(|| StudyError::NoNand { board: boot.board.name.clone() })?.clone();
        boot.nand(&[spec.partition.0.div_ceil(u64::from(chip.block_bytes()))])?;
        boot.load(spec.filesystem().map_or(&[][..], modules), "")?;
        if spec.tracer.is_flashmon() {
            // Alone last: what it needs came with the chip.
            boot.load(&[FLASHMON], &format!(" log={FLASHMON_LOG}"))?;
        }
        boot.image.add_packages(&boot.packages[0])?;
        if let Work::Raw(raw) = &spec.work
            && raw.times > 1
        {
            boot.image.add_file(RAW_SCRIPT, 0o644, raw_script(raw).into_bytes());
        }
        boot.lines.extend(plan(spec));
        Ok(chip)
    }

    fn collect(&self, port: &Path, spec: &RunSpec, inputs: Inputs, chip: Chip) -> Result<RunGroup, StudyError> {
        collect(port, spec, inputs, &chip)
    }
}
