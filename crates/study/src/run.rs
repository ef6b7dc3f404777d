//! Running a study: a fresh boot for each group, as many boards at once as asked, finished groups kept for a resume.

use std::collections::BTreeMap;
use std::process::Command;

use flashscope_targets::Progress;
use flashscope_targets::board::{self, Board, ImageBuilder, Kernel, Run};

use crate::boards::each;
use crate::collect::{Medium, collect};
use crate::definition::{Study, Workload};
use crate::error::RunError;
use crate::evaluate::{compare, verdict};
use crate::lab::{self, SQUASHFS_IMAGE};
use crate::options::{Options, Watch};
use crate::plan::{self, GroupSpec, Storage};
use crate::power;
use crate::result::{Group, PowerUsed, SCHEMA, StudyResult};

/// Runs a study to its end.
pub fn run(study: &Study, options: &Options, watch: &dyn Watch) -> Result<StudyResult, RunError> {
    let mut definition = study.definition.clone();
    if let Some(kernel) = &options.kernel {
        definition.matrix.kernel = vec![kernel.clone()];
    }
    definition.packages.extend(options.packages.iter().cloned());
    let specs = with_storage(plan::groups(&definition.matrix))?;
    watch.study_started(specs.len());
    let power = definition.power.as_deref().map(power::load).transpose()?;
    let lab = Lab::prepare(&definition.packages, &specs, watch)?;

    let mut groups = each(&specs, &options.boards, &options.stop, |spec| {
        lab.group(spec, definition.matrix.file_seed, options, watch)
    })?;
    if let Some(profile) = &power {
        power::add_energy(&mut groups, profile);
    }
    Ok(StudyResult {
        schema: SCHEMA,
        study: definition.name.clone(),
        title: definition.title.clone(),
        question: definition.question.clone(),
        clock: lab.clock(),
        flashscope: env!("CARGO_PKG_VERSION").to_owned(),
        study_sha256: study.sha256.clone(),
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

/// The groups whose board has the storage that their file system wants. A board, or a file system, that is left with none is an
/// error of who wrote the study.
fn with_storage(specs: Vec<GroupSpec>) -> Result<Vec<GroupSpec>, RunError> {
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
        Some(spec) => Err(RunError::NoStorage {
            group: spec.id(),
            what: if spec.filesystem.on_disk() { "disk" } else { "raw NAND" },
            board: spec.board,
        }),
        None => Ok(kept),
    }
}

/// Boards and kernels of a study, fetched before the first boot.
struct Lab {
    boards: BTreeMap<String, Board>,
    kernels: BTreeMap<(String, String), Kernel>,
    packages: BTreeMap<(String, String), Vec<board::Package>>,
    qemu: BTreeMap<String, String>,
}

impl Lab {
    fn prepare(packages: &[String], specs: &[GroupSpec], watch: &dyn Watch) -> Result<Lab, RunError> {
        let mut lab =
            Lab { boards: BTreeMap::new(), kernels: BTreeMap::new(), packages: BTreeMap::new(), qemu: BTreeMap::new() };
        for spec in specs {
            if !lab.boards.contains_key(&spec.board) {
                let board = board::load(&spec.board)?;
                lab.qemu.insert(spec.board.clone(), board.qemu_version()?);
                lab.boards.insert(spec.board.clone(), board);
            }
            let key = (spec.board.clone(), spec.kernel.clone());
            if !lab.kernels.contains_key(&key) {
                let board = &lab.boards[&spec.board];
                let kernel = board.fetch(&spec.kernel, watch.progress())?;
                if !packages.is_empty() {
                    let fetched = board.fetch_packages(&kernel, packages, watch.progress())?;
                    lab.packages.insert(key.clone(), fetched);
                }
                lab.kernels.insert(key, kernel);
            }
        }
        Ok(lab)
    }

    fn clock(&self) -> String {
        let mut clocks: Vec<&str> = self.boards.values().map(|board| board.clock.as_str()).collect();
        clocks.sort_unstable();
        clocks.dedup();
        clocks.join("; ")
    }

    fn group(&self, spec: &GroupSpec, file_seed: u64, options: &Options, watch: &dyn Watch) -> Result<Group, RunError> {
        let began = std::time::Instant::now();
        let board = &self.boards[&spec.board];
        let key = (spec.board.clone(), spec.kernel.clone());
        let kernel = &self.kernels[&key];

        let mut image = ImageBuilder::new(board)?;
        let mut lines = image.add_port_modules(kernel)?;
        let (storage, medium) = match (spec.filesystem.on_disk(), board.chip(), board.disk()) {
            (false, Some(chip), _) => {
                let blocks = plan::partition_blocks(spec.file_size, chip.block_bytes());
                lines.extend(image.add_nand(kernel, &[blocks])?);
                (Storage::Chip { page_bytes: chip.page_bytes }, Medium::Chip { name: chip.name.clone() })
            }
            (true, _, Some(disk)) => {
                let settings = disk.settings(&board.name, &disk_changes(spec, &options.disk))?;
                lines.extend(image.add_disk(kernel, &settings)?);
                let name = format!("{} ({settings})", disk.name);
                (Storage::Disk { device: &disk.device }, Medium::Disk { name, bytes: settings.size_bytes() })
            }
            (on_disk, ..) => {
                let what = if on_disk { "disk" } else { "raw NAND" };
                return Err(RunError::NoStorage { group: spec.id(), board: board.name.clone(), what });
            }
        };
        board.prepare_modules(kernel, plan::modules(spec.filesystem), watch.progress())?;
        for path in image.add_module_closure(kernel, plan::modules(spec.filesystem))? {
            lines.push(format!("module {path}"));
        }
        if let Some(packages) = self.packages.get(&key) {
            image.add_packages(packages)?;
        }
        if spec.filesystem.is_squashfs() {
            image.add_file(SQUASHFS_IMAGE, 0o644, squashfs(spec, file_seed)?);
        }
        if spec.workload == Workload::Sqlite {
            let program =
                flashscope_targets::companion_for(&board.agent, "flashscope-sqlite").map_err(RunError::NoSqlite)?;
            let bytes = std::fs::read(&program).map_err(|source| RunError::Store { path: program, source })?;
            image.add_file(plan::SQLITE, 0o755, bytes);
        }
        lines.extend(plan::plan(spec, storage, file_seed));
        image.set_plan(&lines);
        let image = image.build()?;

        let inputs = lab::inputs(board, &spec.kernel, kernel, &image, self.qemu[&spec.board].clone());
        let kept = lab::kept_at(&options.store, &spec.id(), &inputs);
        if !options.fresh
            && let Some(group) = lab::kept::<Group>(&kept)
        {
            watch.group_finished(&spec.id(), began.elapsed(), true);
            return Ok(group);
        }

        watch.group_started(&spec.id(), spec.cells.len());
        let boot = board::boot(
            &Run { timeout: options.timeout, stop: Some(&*options.stop), ..Run::new(board, kernel, &image) },
            &CellProgress { watch, id: spec.id(), cells: spec.cells.len() },
        )?;
        let group = collect(&boot.port_file(), spec, inputs, &medium)?;
        lab::keep(&kept, &group)?;
        watch.group_finished(&spec.id(), began.elapsed(), false);
        Ok(group)
    }
}

/// A board's steps as cells of a group.
struct CellProgress<'a> {
    watch: &'a dyn Watch,
    id: String,
    cells: usize,
}

impl Progress for CellProgress<'_> {
    fn step(&self, text: &str) {
        self.watch.progress().step(&format!("{}: {text}", self.id));
    }

    fn bytes(&self, done: u64, total: Option<u64>) {
        self.watch.progress().bytes(done, total);
    }

    fn plan_step(&self, name: &str) {
        if let Some(index) = plan::cell_of_step(name) {
            self.watch.cell_started(&self.id, index + 1, self.cells);
        }
    }
}

/// The settings of a group's disk: its file system, room for its file, and then what the user asks for.
fn disk_changes(spec: &GroupSpec, asked: &[(String, String)]) -> Vec<(String, String)> {
    let set = |name: &str, value: String| (name.to_owned(), value);
    let size = set("size_mib", plan::disk_mib(spec.file_size).to_string());
    let filesystem = set("filesystem", spec.filesystem.as_str().to_owned());
    std::iter::once(size).chain(asked.iter().cloned()).chain([filesystem]).collect()
}

fn squashfs(spec: &GroupSpec, file_seed: u64) -> Result<Vec<u8>, RunError> {
    squashfs_image(&[("data", spec.file_size.0, &spec.contents, file_seed)], SQUASHFS_BLOCK)
}

/// What mksquashfs takes for a block by default, bytes.
pub const SQUASHFS_BLOCK: u64 = 128 << 10;

/// A squashfs image with data files (name, bytes, contents, seed), as mksquashfs makes it by default (gzip) with such blocks, byte for
/// byte the same each time.
pub fn squashfs_image(files: &[(&str, u64, &str, u64)], block_bytes: u64) -> Result<Vec<u8>, RunError> {
    let dir = flashscope_targets::ScratchDir::new("squashfs")?;
    let root = dir.path().join("root");
    std::fs::create_dir(&root).map_err(|source| RunError::Store { path: root.clone(), source })?;
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
        "-noappend",
        "-quiet",
        "-no-progress",
        "-all-root",
        "-no-xattrs",
        "-mkfs-time",
        "0",
        "-all-time",
        "0",
        "-processors",
        "1",
    ]);
    mksquashfs.env_remove("SOURCE_DATE_EPOCH");
    run_quietly(mksquashfs, "mksquashfs", "squashfs-tools")?;
    std::fs::read(&image).map_err(|source| RunError::Store { path: image, source })
}

fn run_quietly(mut command: Command, program: &'static str, package: &'static str) -> Result<(), RunError> {
    let output =
        command.output().map_err(|error| RunError::Program { program, problem: error.to_string(), package })?;
    if !output.status.success() {
        let problem = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(RunError::Program { program, problem, package });
    }
    Ok(())
}
