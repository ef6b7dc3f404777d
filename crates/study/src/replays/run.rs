//! Runs a study of replays: a fresh boot for each group; finished groups are kept for a resume.

use std::collections::BTreeMap;

use flashscope_targets::board::{self, Board, ImageBuilder, Kernel, Run};

use super::collect::collect;
use super::definition::ReplaysStudy;
use super::error::ReplaysError;
use super::figures::{figures, levers};
use super::plan::{ReplaySpec, SCRIPT, groups, plan};
use super::result::{REPLAYS_SCHEMA, ReplayGroup, ReplaysResult};
use crate::boards::each;
use crate::definition::Filesystem;
use crate::lab::{self, SQUASHFS_IMAGE};
use crate::options::{Options, Watch};
use crate::plan::{modules, partition_blocks};
use crate::run::{SQUASHFS_BLOCK, squashfs_image};
use crate::size::Bytes;
use crate::statement::rows;

/// Runs a study to its end.
pub fn run(study: &ReplaysStudy, options: &Options, watch: &dyn Watch) -> Result<ReplaysResult, ReplaysError> {
    let definition = study.definition.clone();
    let specs = groups(&definition.replays, options.kernel.as_deref());
    watch.study_started(specs.len());
    let mut boards: BTreeMap<String, Board> = BTreeMap::new();
    for spec in &specs {
        if !boards.contains_key(&spec.case.board) {
            boards.insert(spec.case.board.clone(), board::load(&spec.case.board)?);
        }
    }
    let done =
        each(&specs, &options.boards, &options.stop, |spec| group(spec, &boards[&spec.case.board], options, watch))?;
    let levers = levers(&done, &specs);
    let figures = figures(&done, &specs, &levers);
    let mut clocks: Vec<String> = boards.into_values().map(|board| board.clock).collect();
    clocks.dedup();
    Ok(ReplaysResult {
        schema: REPLAYS_SCHEMA,
        study: definition.name,
        title: definition.title,
        question: definition.question,
        clock: clocks.join("; "),
        flashscope: env!("CARGO_PKG_VERSION").to_owned(),
        study_sha256: study.sha256.clone(),
        published: rows(&definition.published, &figures),
        levers,
        figures,
        groups: done,
    })
}

fn group(spec: &ReplaySpec, board: &Board, options: &Options, watch: &dyn Watch) -> Result<ReplayGroup, ReplaysError> {
    let began = std::time::Instant::now();
    let other = spec.case.memory.map(|memory| board.with_memory_mib(memory.0 >> 20));
    let board = other.as_ref().unwrap_or(board);
    let kernel: Kernel = board.fetch(&spec.kernel, watch.progress())?;
    let mut image = ImageBuilder::new(board)?;
    let mut lines = image.add_port_modules(&kernel)?;
    let filesystem = spec.case.filesystem;
    let (medium, device) = match (filesystem.on_disk(), board.chip(), board.disk()) {
        (false, Some(chip), _) => {
            let blocks = partition_blocks(Bytes(spec.script.file_bytes()), chip.block_bytes());
            lines.extend(image.add_nand(&kernel, &[blocks])?);
            lines.push("device-wait /dev/mtd0 5000".to_owned());
            (chip.name.clone(), None)
        }
        (true, _, Some(disk)) => {
            let mut changes: Vec<(String, String)> =
                spec.case.disk.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
            changes.extend(options.disk.iter().cloned());
            changes.push(("filesystem".to_owned(), filesystem.as_str().to_owned()));
            let settings = disk.settings(&board.name, &changes)?;
            lines.extend(image.add_disk(&kernel, &settings)?);
            (format!("{} ({settings})", disk.name), Some(disk.device.clone()))
        }
        (on_disk, ..) => {
            let what = if on_disk { "disk" } else { "raw NAND" };
            return Err(ReplaysError::NoStorage { group: spec.id(), board: board.name.clone(), what });
        }
    };
    for path in image.add_module_closure(&kernel, modules(filesystem))? {
        lines.push(format!("module {path}"));
    }
    if filesystem == Filesystem::SquashfsUbiblock {
        image.add_file(SQUASHFS_IMAGE, 0o644, files_image(spec)?);
    }
    image.add_file(SCRIPT, 0o644, spec.script.text().into_bytes());
    lines.extend(plan(spec, device.as_deref()));
    image.set_plan(&lines);
    let image = image.build()?;
    let inputs = lab::inputs(board, &spec.kernel, &kernel, &image, board.qemu_version()?);
    let kept = lab::kept_at(&options.store, &spec.id(), &inputs);
    if !options.fresh
        && let Some(group) = lab::kept::<ReplayGroup>(&kept)
    {
        watch.group_finished(&spec.id(), began.elapsed(), true);
        return Ok(group);
    }
    watch.group_started(&spec.id(), 1);
    let run = Run { timeout: options.timeout, stop: Some(&*options.stop), ..Run::new(board, &kernel, &image) };
    let boot = board::boot(&run, watch.progress())?;
    let group = collect(&boot.port_file(), spec, inputs, medium)?;
    lab::keep(&kept, &group)?;
    watch.group_finished(&spec.id(), began.elapsed(), false);
    Ok(group)
}

/// The script's files under their numbers, as `bench replay --existing` looks for them.
fn files_image(spec: &ReplaySpec) -> Result<Vec<u8>, ReplaysError> {
    let names: Vec<String> = (0..spec.script.files.len()).map(|file| file.to_string()).collect();
    let files: Vec<(&str, u64, &str, u64)> = names
        .iter()
        .zip(&spec.script.files)
        .enumerate()
        .map(|(number, (name, file))| (name.as_str(), file.size.unwrap_or(0), "random", 1 + number as u64))
        .collect();
    squashfs_image(&files, SQUASHFS_BLOCK).map_err(|error| ReplaysError::Image(Box::new(error)))
}
