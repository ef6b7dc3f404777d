//! Runs a study of runs: a fresh boot for each group; finished groups are kept for a resume.

use std::collections::BTreeMap;

use flashscope_targets::board::{self, Board, ImageBuilder, Kernel, Package, Run};

use super::collect::collect;
use super::definition::RunsStudy;
use super::error::RunsError;
use super::figures::{costs, figures, spreads};
use super::plan::{FLASHMON_LOG, RAW_SCRIPT, RunSpec, Work, groups, plan, raw_script};
use super::result::{RUNS_SCHEMA, RunGroup, RunsResult};
use crate::boards::each;
use crate::lab;
use crate::options::{Options, Watch};
use crate::plan::modules;
use crate::statement::rows;

/// The module that `kernel/flashmon` holds.
const FLASHMON: &str = "flashmon";

/// What all groups share, had before the first boot.
struct Runner<'a> {
    board: Board,
    qemu: String,
    kernels: BTreeMap<String, (Kernel, Vec<Package>)>,
    options: &'a Options,
    watch: &'a dyn Watch,
}

/// Runs a study to its end.
pub fn run(study: &RunsStudy, options: &Options, watch: &dyn Watch) -> Result<RunsResult, RunsError> {
    let mut definition = study.definition.clone();
    if let Some(kernel) = &options.kernel {
        definition.runs.kernel = vec![kernel.clone()];
    }
    definition.packages.extend(options.packages.iter().cloned());
    let specs = groups(&definition.runs);
    watch.study_started(specs.len());
    let runner = Runner::prepare(&definition.runs.board, &definition.packages, &specs, options, watch)?;

    let groups = each(&specs, &options.boards, &options.stop, |spec| runner.group(spec))?;
    let costs = costs(&groups);
    let spreads = spreads(&costs);
    let figures = figures(&groups, &costs, &spreads);
    Ok(RunsResult {
        schema: RUNS_SCHEMA,
        study: definition.name,
        title: definition.title,
        question: definition.question,
        clock: runner.board.clock.clone(),
        flashscope: env!("CARGO_PKG_VERSION").to_owned(),
        study_sha256: study.sha256.clone(),
        published: rows(&definition.published, &figures),
        groups,
        costs,
        spreads,
        figures,
    })
}

impl<'a> Runner<'a> {
    fn prepare(
        board: &str,
        packages: &[String],
        specs: &[RunSpec],
        options: &'a Options,
        watch: &'a dyn Watch,
    ) -> Result<Runner<'a>, RunsError> {
        let board = board::load(board)?;
        let qemu = board.qemu_version()?;
        let mut kernels = BTreeMap::new();
        for spec in specs {
            if kernels.contains_key(&spec.kernel) {
                continue;
            }
            let kernel = board.fetch(&spec.kernel, watch.progress())?;
            let packages = match packages.is_empty() {
                true => Vec::new(),
                false => board.fetch_packages(&kernel, packages, watch.progress())?,
            };
            kernels.insert(spec.kernel.clone(), (kernel, packages));
        }
        for spec in specs {
            let mut wanted = spec.filesystem().map_or(&[][..], modules).to_vec();
            if spec.tracer.is_flashmon() {
                wanted.push(FLASHMON);
            }
            board.prepare_modules(&kernels[&spec.kernel].0, &wanted, watch.progress())?;
        }
        Ok(Runner { board, qemu, kernels, options, watch })
    }

    fn group(&self, spec: &RunSpec) -> Result<RunGroup, RunsError> {
        let began = std::time::Instant::now();
        let other = spec.memory.map(|memory| self.board.with_memory_mib(memory.0 >> 20));
        let board = other.as_ref().unwrap_or(&self.board);
        let (kernel, packages) = &self.kernels[&spec.kernel];
        let chip = board.chip().ok_or_else(|| RunsError::NoChip { board: board.name.clone() })?;
        let mut image = ImageBuilder::new(board)?;
        let mut lines = image.add_port_modules(kernel)?;
        lines.extend(image.add_nand(kernel, &[spec.partition.0.div_ceil(u64::from(chip.block_bytes()))])?);
        for path in image.add_module_closure(kernel, spec.filesystem().map_or(&[][..], modules))? {
            lines.push(format!("module {path}"));
        }
        if spec.tracer.is_flashmon() {
            // Alone last: what it needs came with the chip.
            let paths = image.add_module_closure(kernel, &[FLASHMON])?;
            lines.extend(paths.iter().map(|path| format!("module {path} log={FLASHMON_LOG}")));
        }
        image.add_packages(packages)?;
        if let Work::Raw(raw) = &spec.work
            && raw.times > 1
        {
            image.add_file(RAW_SCRIPT, 0o644, raw_script(raw).into_bytes());
        }
        lines.extend(plan(spec));
        image.set_plan(&lines);
        let image = image.build()?;
        let inputs = lab::inputs(board, &spec.kernel, kernel, &image, self.qemu.clone());
        let kept = lab::kept_at(&self.options.store, &spec.id(), &inputs);
        if !self.options.fresh
            && let Some(group) = lab::kept::<RunGroup>(&kept)
        {
            self.watch.group_finished(&spec.id(), began.elapsed(), true);
            return Ok(group);
        }
        self.watch.group_started(&spec.id(), 1);
        let run =
            Run { timeout: self.options.timeout, stop: Some(&*self.options.stop), ..Run::new(board, kernel, &image) };
        let boot = board::boot(&run, self.watch.progress())?;
        let group = collect(&boot.port_file(), spec, inputs, chip)?;
        lab::keep(&kept, &group)?;
        self.watch.group_finished(&spec.id(), began.elapsed(), false);
        Ok(group)
    }
}
