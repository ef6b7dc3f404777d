//! Runs a matrix study: composes the boots of its groups, and makes its squashfs images.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use flashscope_targets::board::{self, Board};

use crate::collect::collect;
use crate::definition::{Study, Workload};
use crate::error::StudyError;
use crate::evaluate::{compare, verdict};
use crate::kind::{Boot, Kind, Lab, no_storage};
use crate::lab::SQUASHFS_IMAGE;
use crate::medium::Medium;
use crate::options::{Options, RunProgress};
use crate::plan::{self, GroupSpec};
use crate::power;
use crate::result::{Group, Inputs, PowerUsed, SCHEMA, StudyResult};

/// Runs a study to its end.
pub fn run(study: &Study, options: &Options, watch: &dyn RunProgress) -> Result<StudyResult, StudyError> {
    let mut definition = study.definition.clone();
    if let Some(kernel) = &options.kernel {
        definition.matrix.kernel = vec![kernel.clone()];
    }
    definition.packages.extend(options.packages.iter().cloned());
    let specs = with_storage(plan::groups(&definition.matrix))?;
    watch.study_started(specs.len());
    let power = definition.power.as_deref().map(power::load).transpose()?;
    let cells = Cells { file_seed: definition.matrix.file_seed, packages: &definition.packages };
    let lab = Lab::prepare(&cells, &specs, options, watch)?;
    let mut groups = lab.run()?;
    if let Some(profile) = &power {
        power::add_energy(&mut groups, profile);
    }
    Ok(StudyResult {
        header: lab.header(SCHEMA, [&definition.name, &definition.title, &definition.question], &study.sha256),
        power: power.as_ref().map(|profile| PowerUsed {
            name: profile.name.clone(),
            title: profile.title.clone(),
            source: profile.source.clone(),
        }),
        comparisons: definition.published.iter().map(|published| compare(published, &groups)).collect(),
        verdicts: groups.iter().map(verdict).collect(),
        groups,
    })
}

/// The groups whose board has the storage for their file system. A board or file system without any group is an error in the study.
fn with_storage(specs: Vec<GroupSpec>) -> Result<Vec<GroupSpec>, StudyError> {
    let mut boards: BTreeMap<String, Board> = BTreeMap::new();
    for spec in &specs {
        if !boards.contains_key(&spec.board) {
            boards.insert(spec.board.clone(), board::load(&spec.board)?);
        }
    }
    let fits = |spec: &GroupSpec| match spec.filesystem.on_disk() {
        true => boards[&spec.board].disk().is_some(),
        false => boards[&spec.board].chip().is_some(),
    };
    let (kept, left): (Vec<GroupSpec>, Vec<GroupSpec>) = specs.into_iter().partition(fits);
    let lost = left.into_iter().find(|spec| {
        !kept.iter().any(|kept| kept.board == spec.board) || !kept.iter().any(|kept| kept.filesystem == spec.filesystem)
    });
    match lost {
        Some(spec) => Err(no_storage(spec.id(), &spec.board, spec.filesystem.on_disk())),
        None => Ok(kept),
    }
}

/// The cells of a matrix.
struct Cells<'a> {
    file_seed: u64,
    packages: &'a [String],
}

impl Kind for Cells<'_> {
    type Spec = GroupSpec;
    type Group = Group;
    type Medium = Medium;

    fn id(&self, spec: &GroupSpec) -> String {
        spec.id()
    }

    fn target<'a>(&self, spec: &'a GroupSpec) -> [&'a str; 2] {
        [&spec.board, &spec.kernel]
    }

    fn cells(&self, spec: &GroupSpec) -> usize {
        spec.cells.len()
    }

    fn modules(&self, spec: &GroupSpec) -> Vec<&'static str> {
        plan::modules(spec.filesystem).to_vec()
    }

    fn packages(&self) -> Vec<Vec<String>> {
        vec![self.packages.to_vec()]
    }

    fn image(&self, spec: &GroupSpec, boot: &mut Boot<'_>) -> Result<Medium, StudyError> {
        let size = ("size_mib".to_owned(), plan::disk_mib(spec.file_size).to_string());
        let medium = boot.storage(spec.id(), spec.filesystem, spec.file_size, vec![size])?;
        boot.load(plan::modules(spec.filesystem), "")?;
        boot.image.add_packages(&boot.packages[0])?;
        if spec.filesystem.is_squashfs() {
            boot.image.add_file(SQUASHFS_IMAGE, 0o644, squashfs(spec, self.file_seed)?);
        }
        if spec.workload == Workload::Sqlite {
            let program = flashscope_targets::companion_for(&boot.board.agent, "flashscope-sqlite")
                .map_err(StudyError::NoSqlite)?;
            let bytes = std::fs::read(&program).map_err(|source| StudyError::Store { path: program, source })?;
            boot.image.add_file(plan::SQLITE, 0o755, bytes);
        }
        boot.lines.extend(plan::plan(spec, &medium, self.file_seed));
        Ok(medium)
    }

    fn collect(&self, port: &Path, spec: &GroupSpec, inputs: Inputs, medium: Medium) -> Result<Group, StudyError> {
        collect(port, spec, inputs, &medium)
    }
}

fn squashfs(spec: &GroupSpec, file_seed: u64) -> Result<Vec<u8>, StudyError> {
    squashfs_image(&[("data", spec.file_size.0, &spec.contents, file_seed)], SQUASHFS_BLOCK)
}

/// Default block size of mksquashfs, bytes.
pub const SQUASHFS_BLOCK: u64 = 128 << 10;

/// A squashfs image with data files (name, bytes, contents, seed), with mksquashfs's defaults (gzip) and this block size. Equal calls give
/// equal bytes.
pub fn squashfs_image(files: &[(&str, u64, &str, u64)], block_bytes: u64) -> Result<Vec<u8>, StudyError> {
    let dir = flashscope_targets::ScratchDir::new("squashfs")?;
    let root = dir.path().join("root");
    std::fs::create_dir(&root).map_err(|source| StudyError::Store { path: root.clone(), source })?;
    let agent = flashscope_targets::host_agent()?;
    for &(name, bytes, contents, seed) in files {
        let mut create = Command::new(&agent);
        create
            .args(["bench", "read", "--create", "--count", "1", "--request", "1", "--file"])
            .arg(root.join(name))
            .args(["--size", &bytes.to_string(), "--contents", contents])
            .args(["--seed", &seed.to_string()]);
        run_quietly(create, "flashscope-agent", "gcc")?;
    }
    let image = dir.path().join("data.squashfs");
    let mut mksquashfs = Command::new("mksquashfs");
    mksquashfs.arg(&root).arg(&image).args(["-b", &block_bytes.to_string()]).args([
        "-noappend", "-quiet", "-no-progress", "-all-root", "-no-xattrs", "-mkfs-time", "0", "-all-time", "0",
        "-processors", "1",
    ]);
    mksquashfs.env_remove("SOURCE_DATE_EPOCH");
    run_quietly(mksquashfs, "mksquashfs", "squashfs-tools")?;
    std::fs::read(&image).map_err(|source| StudyError::Store { path: image, source })
}

fn run_quietly(mut command: Command, program: &'static str, package: &'static str) -> Result<(), StudyError> {
    let output =
        command.output().map_err(|error| StudyError::Program { program, problem: error.to_string(), package })?;
    if !output.status.success() {
        let problem = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(StudyError::Program { program, problem, package });
    }
    Ok(())
}
