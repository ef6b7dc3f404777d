//! Runs a study of layers: a fresh boot for each group, and the layers of what its recording holds.

use std::collections::BTreeMap;
use std::path::Path;

use flashscope_analysis::Analysis as _;
use flashscope_analysis::layers::{CallLayers, Layers, Operation};
use flashscope_targets::board::{self, Board, ImageBuilder, Kernel, Run};
use flashscope_trace::{Crossings, Session};
use serde_json::Value;

use super::definition::LayersStudy;
use super::plan::{LayersSpec, STEP_READ, STEP_WRITE, groups, plan};
use super::result::{Boundary, LAYERS_SCHEMA, LayersGroup, LayersResult, figures};
use crate::boards::{Interrupted, each};
use crate::collect::losses;
use crate::lab::{self, KeepError};
use crate::options::{Options, Watch};
use crate::plan::{disk_mib, modules, partition_blocks};
use crate::result::Inputs;
use crate::size::Bytes;
use crate::statement::rows;

#[derive(Debug, thiserror::Error)]
pub enum LayersError {
    #[error(transparent)]
    Target(#[from] flashscope_targets::Error),
    #[error(transparent)]
    Trace(#[from] flashscope_trace::Error),
    #[error(
        "group {group}: board {board} has no {what}; name another board (flashscope board list), or another file system"
    )]
    NoStorage { group: String, board: String, what: &'static str },
    #[error("group {group}: the recording has no {what}: the board's console says why; run the study again")]
    Missing { group: String, what: &'static str },
    #[error("group {group}: {found} of {asked} {what} are in the recording")]
    Calls { group: String, what: &'static str, found: usize, asked: u64 },
    #[error("group {group}: the recording lost {count} events ({name}), so its calls are unknown; take fewer calls")]
    Lost { group: String, name: &'static str, count: u64 },
    #[error(transparent)]
    Keep(#[from] KeepError),
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

/// Runs a study to its end.
pub fn run(study: &LayersStudy, options: &Options, watch: &dyn Watch) -> Result<LayersResult, LayersError> {
    let mut definition = study.definition.clone();
    if let Some(kernel) = &options.kernel {
        definition.layers.kernel = vec![kernel.clone()];
    }
    let specs = groups(&definition.layers);
    watch.study_started(specs.len());
    let mut boards: BTreeMap<String, Board> = BTreeMap::new();
    for spec in &specs {
        if !boards.contains_key(&spec.storage.board) {
            boards.insert(spec.storage.board.clone(), board::load(&spec.storage.board)?);
        }
    }
    let done =
        each(&specs, &options.boards, &options.stop, |spec| group(spec, &boards[&spec.storage.board], options, watch))?;
    let mut clocks: Vec<String> = boards.into_values().map(|board| board.clock).collect();
    clocks.dedup();
    Ok(LayersResult {
        schema: LAYERS_SCHEMA,
        study: definition.name,
        title: definition.title,
        question: definition.question,
        clock: clocks.join("; "),
        flashscope: env!("CARGO_PKG_VERSION").to_owned(),
        study_sha256: study.sha256.clone(),
        published: rows(&definition.published, &figures(&done)),
        groups: done,
    })
}

fn group(spec: &LayersSpec, board: &Board, options: &Options, watch: &dyn Watch) -> Result<LayersGroup, LayersError> {
    let began = std::time::Instant::now();
    let kernel: Kernel = board.fetch(&spec.kernel, watch.progress())?;
    let mut image = ImageBuilder::new(board)?;
    let mut lines = image.add_port_modules(&kernel)?;
    let filesystem = spec.storage.filesystem;
    let (medium, device) = match (filesystem.on_disk(), board.chip(), board.disk()) {
        (false, Some(chip), _) => {
            lines.extend(image.add_nand(&kernel, &[partition_blocks(Bytes(spec.file_bytes()), chip.block_bytes())])?);
            lines.push("device-wait /dev/mtd0 5000".to_owned());
            (chip.name.clone(), None)
        }
        (true, _, Some(disk)) => {
            let set = |name: &str, value: String| (name.to_owned(), value);
            let mut changes = vec![set("size_mib", disk_mib(Bytes(spec.file_bytes())).to_string())];
            changes.extend(options.disk.iter().cloned());
            changes.push(set("filesystem", filesystem.as_str().to_owned()));
            let settings = disk.settings(&board.name, &changes)?;
            lines.extend(image.add_disk(&kernel, &settings)?);
            (format!("{} ({settings})", disk.name), Some(disk.device.clone()))
        }
        (on_disk, ..) => {
            let what = if on_disk { "disk" } else { "raw NAND" };
            return Err(LayersError::NoStorage { group: spec.id(), board: board.name.clone(), what });
        }
    };
    for path in image.add_module_closure(&kernel, modules(filesystem))? {
        lines.push(format!("module {path}"));
    }
    lines.extend(plan(spec, device.as_deref()));
    image.set_plan(&lines);
    let image = image.build()?;
    let inputs = lab::inputs(board, &spec.kernel, &kernel, &image, board.qemu_version()?);
    let kept = lab::kept_at(&options.store, &spec.id(), &inputs);
    if !options.fresh
        && let Some(group) = lab::kept::<LayersGroup>(&kept)
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

fn collect(port: &Path, spec: &LayersSpec, inputs: Inputs, medium: String) -> Result<LayersGroup, LayersError> {
    let group = spec.id();
    let session = Session::open(port)?;
    let missing = |what| LayersError::Missing { group: group.clone(), what };
    let read = session.step(STEP_READ).filter(|step| step.status == Some(0)).ok_or_else(|| missing("step 'read'"))?;
    let bench: Value = serde_json::from_slice(&read.stdout).map_err(|_| missing("result of step 'read'"))?;
    let measured = [&bench["measured"]["begin_ns"], &bench["measured"]["end_ns"]].map(Value::as_u64);
    let [Some(reads_begin), Some(reads_end)] = measured else { return Err(missing("times of step 'read'")) };
    let writes =
        session.phases().iter().find(|phase| phase.name == STEP_WRITE).ok_or_else(|| missing("phase 'write'"))?;
    let writes_end = writes.end_ns.ok_or_else(|| missing("end of phase 'write'"))?;

    let trace = session.recording(0)?;
    let crossings = Crossings::new(&trace);
    let mut layers = Layers::new(|tid, time| trace.comm(tid, time), crossings.sleep());
    trace.for_each_pair(&mut |pair| {
        if let Some(event) = pair.event {
            layers.event(event);
        }
        if let Some(record) = pair.record {
            crossings.read(record, &mut |tid, crossing| layers.crossing(crossing, tid, record.time));
        }
    })?;
    if let Some((name, count)) = lab::first_lost(&trace) {
        return Err(LayersError::Lost { group, name, count });
    }
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
            return Err(LayersError::Calls { group, what, found, asked: spec.calls });
        }
    }
    let facts = trace.facts();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let boundaries = facts["recording"]["boundaries"].as_array().into_iter().flatten().map(|one| Boundary {
        layer: text(&one["layer"]),
        what: if one["symbol"].is_null() { text(&one["enter"]) } else { text(&one["symbol"]) },
    });
    Ok(LayersGroup {
        id: group,
        inputs: Inputs {
            kernel_release: text(&facts["kernel"]["release"]),
            agent: text(&facts["agent"]["version"]),
            ..inputs
        },
        filesystem: spec.storage.filesystem.as_str().to_owned(),
        medium,
        boundaries: boundaries.collect(),
        sums: flashscope_analysis::layers::sums(&calls),
        calls,
        losses,
    })
}
