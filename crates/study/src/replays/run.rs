//! Runs a study of replays: a board for each case, with each lever and shift.

use std::path::Path;

use super::collect::collect;
use super::definition::ReplaysStudy;
use super::figures::{figures, levers};
use super::plan::{ReplaySpec, SCRIPT, groups, plan};
use super::result::{REPLAYS_SCHEMA, ReplayGroup, ReplaysResult};
use crate::definition::Filesystem;
use crate::error::StudyError;
use crate::kind::{Boot, Kind, Lab};
use crate::lab::SQUASHFS_IMAGE;
use crate::medium::Medium;
use crate::options::{Options, Watch};
use crate::result::Inputs;
use crate::run::{SQUASHFS_BLOCK, squashfs_image};
use crate::size::Bytes;
use crate::statement::rows;

/// Runs a study to its end.
pub fn run(study: &ReplaysStudy, options: &Options, watch: &dyn Watch) -> Result<ReplaysResult, StudyError> {
    let definition = &study.definition;
    let specs = groups(&definition.replays, options.kernel.as_deref());
    watch.study_started(specs.len());
    let lab = Lab::prepare(&Replayed, &specs, options, watch)?;
    let groups = lab.run()?;
    let levers = levers(&groups, &specs);
    let figures = figures(&groups, &specs, &levers);
    Ok(ReplaysResult {
        header: lab.header(REPLAYS_SCHEMA, [&definition.name, &definition.title, &definition.question], &study.sha256),
        published: rows(&definition.published, &figures),
        levers,
        figures,
        groups,
    })
}

/// Applications, alone and together.
struct Replayed;

impl Kind for Replayed {
    type Spec = ReplaySpec;
    type Group = ReplayGroup;
    type Medium = Medium;

    fn id(&self, spec: &ReplaySpec) -> String {
        spec.id()
    }

    fn target<'a>(&self, spec: &'a ReplaySpec) -> [&'a str; 2] {
        [&spec.case.board, &spec.kernel]
    }

    fn memory(&self, spec: &ReplaySpec) -> Option<Bytes> {
        spec.case.memory
    }

    fn image(&self, spec: &ReplaySpec, boot: &mut Boot<'_>) -> Result<Medium, StudyError> {
        let (filesystem, bytes) = (spec.case.filesystem, Bytes(spec.script.file_bytes()));
        let disk = spec.case.disk.clone().into_iter().collect();
        let medium = boot.storage_and_modules(spec.id(), filesystem, bytes, disk)?;
        if filesystem == Filesystem::SquashfsUbiblock {
            boot.image.add_file(SQUASHFS_IMAGE, 0o644, files_image(spec)?);
        }
        boot.image.add_file(SCRIPT, 0o644, spec.script.text().into_bytes());
        boot.lines.extend(plan(spec, medium.device()));
        Ok(medium)
    }

    fn collect(
        &self,
        port: &Path,
        spec: &ReplaySpec,
        inputs: Inputs,
        medium: Medium,
    ) -> Result<ReplayGroup, StudyError> {
        collect(port, spec, inputs, medium.name().to_owned())
    }

    fn is_whole(&self, spec: &ReplaySpec, group: &ReplayGroup) -> bool {
        group.delay.is_empty() || group.delay.iter().map(|delay| &delay.from_ns).eq(&spec.delay_from_ns)
    }
}

/// The script's files under their numbers, as `bench replay --existing` looks for them.
fn files_image(spec: &ReplaySpec) -> Result<Vec<u8>, StudyError> {
    let names: Vec<String> = (0..spec.script.files.len()).map(|file| file.to_string()).collect();
    let files: Vec<(&str, u64, &str, u64)> = names
        .iter()
        .zip(&spec.script.files)
        .enumerate()
        .map(|(number, (name, file))| (name.as_str(), file.size.unwrap_or(0), "random", 1 + number as u64))
        .collect();
    squashfs_image(&files, SQUASHFS_BLOCK)
}
