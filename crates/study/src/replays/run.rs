//! Runs a replay study: one board for each case, lever and shift.

use std::path::Path;

use super::collect::{collect, refused};
use super::definition::ReplaysStudy;
use super::figures::{figures, levers};
use super::plan::{ReplaySpec, SCRIPT, groups, plan};
use super::result::{Played, REPLAYS_SCHEMA, ReplaysResult};
use flashscope_targets::board::BootFailureKind;

use crate::definition::Filesystem;
use crate::error::StudyError;
use crate::kind::{Boot, Kind, Lab};
use crate::lab::SQUASHFS_IMAGE;
use crate::medium::Medium;
use crate::options::{Options, RunProgress};
use crate::result::Inputs;
use crate::run::{SQUASHFS_BLOCK, squashfs_image};
use crate::size::Bytes;
use crate::statement::rows;

/// Runs a study to its end.
pub fn run(study: &ReplaysStudy, options: &Options, watch: &dyn RunProgress) -> Result<ReplaysResult, StudyError> {
    let definition = &study.definition;
    let specs = groups(&definition.replays, options.kernel.as_deref());
    watch.study_started(specs.len());
    let lab = Lab::prepare(&Replayed, &specs, options, watch)?;
    let (mut groups, mut ran, mut refused) = (Vec::new(), Vec::new(), Vec::new());
    for (spec, played) in specs.iter().zip(lab.run()?) {
        match played {
            Played::Ran(group) => {
                groups.push(*group);
                ran.push(spec.clone());
            }
            // One entry for all shifts.
            Played::Refused(lever) if refused.contains(&lever) => {}
            Played::Refused(lever) => refused.push(lever),
        }
    }
    let levers = levers(&groups, &ran);
    let figures = figures(&groups, &ran, &levers);
    Ok(ReplaysResult {
        header: lab.header(REPLAYS_SCHEMA, [&definition.name, &definition.title, &definition.question], &study.sha256),
        published: rows(&definition.published, &figures),
        levers,
        refused,
        figures,
        groups,
    })
}

/// Applications, alone and together.
struct Replayed;

impl Kind for Replayed {
    type Spec = ReplaySpec;
    type Group = Played;
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

    fn collect(&self, port: &Path, spec: &ReplaySpec, inputs: Inputs, medium: Medium) -> Result<Played, StudyError> {
        collect(port, spec, inputs, medium.name().to_owned())
    }

    fn failed(&self, spec: &ReplaySpec, why: &BootFailureKind) -> Option<Played> {
        refused(spec, why)
    }

    fn is_whole(&self, spec: &ReplaySpec, played: &Played) -> bool {
        let Played::Ran(group) = played else { return true };
        group.reads_since.iter().map(|since| &since.from_ns).eq(&spec.delay_from_ns)
            && (group.delay.is_empty() || group.delay.iter().map(|delay| &delay.from_ns).eq(&spec.delay_from_ns))
    }
}

/// The script's files, named by their numbers, for `bench replay --existing`.
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
