//! Runs a study of booting: a board for each root file system, and what its flash did during both boots.

use std::path::Path;

use flashscope_analysis::Analysis as _;
use flashscope_analysis::LossCount;
use flashscope_analysis::flash::{ActivityFold, ByTask, Geometry, OpCounts, TimelineFold};
use flashscope_targets::board::{self, Board, ImageBuilder, Kernel, Package, Run};
use flashscope_trace::{Event, EventKind, Session, TimeNs};

use super::definition::BootStudy;
use super::figures::figures;
use super::plan::{self, BOOTS, BootSpec, INIT_D, MAKE_SH, ROOTFS, STEP_MAKE, TOOLS};
use super::result::{BOOT_SCHEMA, Boot, BootGroup, BootResult, RootFs};
use crate::boards::{Interrupted, each};
use crate::collect::losses;
use crate::lab::{self, KeepError};
use crate::options::{Options, Watch};
use crate::plan::modules;
use crate::result::Inputs;
use crate::statement::rows;

#[derive(Debug, thiserror::Error)]
pub enum BootError {
    #[error(transparent)]
    Target(#[from] flashscope_targets::Error),
    #[error(transparent)]
    Trace(#[from] flashscope_trace::Error),
    #[error(transparent)]
    Keep(#[from] KeepError),
    #[error("board {board} has no raw NAND; name a board that has (flashscope board list)")]
    NoNand { board: String },
    #[error(
        "a partition of {blocks} erase blocks from block {first} on does not fit the {of} of {chip}; take a smaller one"
    )]
    Partition { first: u64, blocks: u64, of: u32, chip: String },
    #[error("group {group}: the recording has no {what}: the board's console says why; run the study again")]
    Missing { group: String, what: String },
    #[error("group {group}: the recording lost {count} events ({name}), so its phases are unknown")]
    Lost { group: String, name: &'static str, count: u64 },
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

/// What makes the images, on the board.
const TOOL_PACKAGES: [&str; 1] = ["mtd-utils"];

/// What makes the SSH server's keys.
const KEY_MAKER: &str = "dropbearkey";

/// What the root file system starts with, by its place in it.
const SCRIPTS: [(&str, &str); 7] = [
    ("rcS", include_str!("root/rcS")),
    ("rcK", include_str!("root/rcK")),
    ("S01syslogd", include_str!("root/S01syslogd")),
    ("S20urandom", include_str!("root/S20urandom")),
    ("S40network", include_str!("root/S40network")),
    ("S50sshd", include_str!("root/S50sshd")),
    ("S90prompt", include_str!("root/S90prompt")),
];

/// Runs a study to its end.
pub fn run(study: &BootStudy, options: &Options, watch: &dyn Watch) -> Result<BootResult, BootError> {
    let mut definition = study.definition.clone();
    if let Some(kernel) = &options.kernel {
        definition.boot.kernel = vec![kernel.clone()];
    }
    let boots = &definition.boot;
    let specs = plan::groups(boots);
    watch.study_started(specs.len());
    let board = board::load(&boots.board)?;
    let chip = board.chip().ok_or_else(|| BootError::NoNand { board: board.name.clone() })?;
    if boots.first_block.checked_add(boots.blocks).is_none_or(|end| end > u64::from(chip.blocks)) {
        return Err(BootError::Partition {
            first: boots.first_block,
            blocks: boots.blocks,
            of: chip.blocks,
            chip: chip.name.clone(),
        });
    }
    let done = each(&specs, &options.boards, &options.stop, |spec| {
        let began = std::time::Instant::now();
        watch.group_started(&spec.id(), 1);
        let kernel = board.fetch(&spec.kernel, watch.progress())?;
        let packages = board.fetch_packages(&kernel, &boots.packages, watch.progress())?;
        let tools = board.fetch_packages(&kernel, &TOOL_PACKAGES.map(str::to_owned), watch.progress())?;
        let lab = Lab { board: &board, kernel: &kernel, packages: &packages, tools: &tools, options, watch };
        let (group, reused) = lab.group(spec, boots.first_block, boots.blocks)?;
        watch.group_finished(&spec.id(), began.elapsed(), reused);
        Ok::<_, BootError>(group)
    })?;
    let figures = figures(&done);
    Ok(BootResult {
        schema: BOOT_SCHEMA,
        study: definition.name,
        title: definition.title,
        question: definition.question,
        clock: board.clock.clone(),
        flashscope: env!("CARGO_PKG_VERSION").to_owned(),
        study_sha256: study.sha256.clone(),
        published: rows(&definition.published, &figures),
        figures,
        groups: done,
    })
}

struct Lab<'a> {
    board: &'a Board,
    kernel: &'a Kernel,
    packages: &'a [Package],
    tools: &'a [Package],
    options: &'a Options,
    watch: &'a dyn Watch,
}

impl Lab<'_> {
    /// The group, and whether an earlier run with the same inputs had finished it.
    fn group(&self, spec: &BootSpec, first_block: u64, blocks: u64) -> Result<(BootGroup, bool), BootError> {
        let Lab { board, kernel, options, watch, .. } = *self;
        let chip = board.chip().ok_or_else(|| BootError::NoNand { board: board.name.clone() })?;
        let mut image = ImageBuilder::new(board)?;
        let mut lines = image.add_port_modules(kernel)?;
        lines.extend(image.add_nand(kernel, &[first_block, blocks])?);
        for path in image.add_module_closure(kernel, modules(spec.filesystem))? {
            lines.push(format!("module {path}"));
        }
        image.add_root(ROOTFS, self.packages)?;
        image.add_root(TOOLS, self.tools)?;
        image.add_file(MAKE_SH, 0o755, include_bytes!("root/make.sh").to_vec());
        for (name, text) in SCRIPTS {
            image.add_file(&format!("{INIT_D}/{name}"), 0o755, text.as_bytes().to_vec());
        }
        lines.extend(plan::flash(spec));
        lines.extend(plan::boots(spec));
        image.set_plan(&lines);
        let image = image.build()?;
        let inputs = lab::inputs(board, &spec.kernel, kernel, &image, board.qemu_version()?);
        let kept = lab::kept_at(&options.store, &spec.id(), &inputs);
        if !options.fresh
            && let Some(group) = lab::kept(&kept)
        {
            return Ok((group, true));
        }
        let run = Run { timeout: options.timeout, stop: Some(&*options.stop), ..Run::new(board, kernel, &image) };
        let boot = board::boot(&run, watch.progress())?;
        let pages_per_block = chip.pages_per_block;
        let pages = u64::from(pages_per_block);
        let group = collect(
            &boot.port_file(),
            spec,
            BootGroup {
                id: spec.id(),
                inputs,
                filesystem: spec.filesystem.as_str().to_owned(),
                chip: chip.name.clone(),
                page_bytes: chip.page_bytes,
                pages_per_block,
                partition_pages: [first_block * pages, (first_block + blocks) * pages],
                root: RootFs {
                    image_bytes: 0,
                    image_blocks: 0,
                    files: 0,
                    files_bytes: 0,
                    filler_bytes: 0,
                    packages: self.packages.iter().map(|p| format!("{} {}", p.name, p.version)).collect(),
                },
                boots: Vec::new(),
                losses: Vec::new(),
            },
        )?;
        lab::keep(&kept, &group)?;
        Ok((group, false))
    }
}

/// Fills in what the board sent.
fn collect(port: &Path, spec: &BootSpec, mut group: BootGroup) -> Result<BootGroup, BootError> {
    let session = Session::open(port)?;
    let missing = |what: &str| BootError::Missing { group: group.id.clone(), what: what.to_owned() };
    let step = |name: &str| {
        session.step(name).filter(|step| step.status == Some(0)).ok_or_else(|| missing(&format!("step '{name}'")))
    };
    let packages = std::mem::take(&mut group.root.packages);
    let made: RootFs = serde_json::from_slice(&step(STEP_MAKE)?.stdout)
        .map_err(|_| missing(&format!("result of step '{STEP_MAKE}'")))?;
    let trace = session.recording(0)?;
    let pages = u64::from(group.pages_per_block);
    let [first, end] = group.partition_pages.map(|page| page / pages);
    let shapes = [(0, Geometry { page_bytes: group.page_bytes, pages_per_block: group.pages_per_block })];
    let partitions = [(0, first, end - first)];
    let mut boots = Vec::new();
    for name in BOOTS {
        let phase = plan::phase(name);
        let marked = session.phases().iter().find(|one| one.name == phase).ok_or_else(|| missing(&phase))?;
        let end_ns = marked.end_ns.ok_or_else(|| missing(&phase))?;
        let init = step(&plan::init_step(name))?;
        let (Some(mounted), Some(prompt)) = (init.begin_ns, init.end_ns) else {
            return Err(missing(&plan::init_step(name)));
        };
        let begin = marked.begin_ns;
        let mut counts = OpCounts::default();
        let mut by_task = ByTask::new(|tid, time: TimeNs| trace.comm(tid, TimeNs(time.0 + begin)));
        let mut phases =
            ActivityFold::new(&shapes, &partitions, |tid, time: TimeNs| trace.comm(tid, TimeNs(time.0 + begin)));
        let mut timeline = TimelineFold::default();
        let mut keys_ns: Option<[u64; 2]> = None;
        trace.for_each(&mut |event| {
            let (EventKind::Flash(access), true) = (&event.kind, (begin..=end_ns).contains(&event.time.0)) else {
                return;
            };
            let event = Event { time: TimeNs(event.time.0 - begin), ..event.clone() };
            counts.add(access.op);
            if trace.comm(event.tid, TimeNs(event.time.0 + begin)).is_some_and(|name| name == KEY_MAKER) {
                let [first, _] = keys_ns.unwrap_or([event.time.0; 2]);
                keys_ns = Some([first, event.time.0]);
            }
            by_task.event(&event);
            phases.event(&event);
            timeline.event(&event);
        })?;
        boots.push(Boot {
            name: name.to_owned(),
            begin_ns: begin,
            duration_ns: end_ns.saturating_sub(begin),
            mounted_ns: mounted.saturating_sub(begin),
            prompt_ns: prompt.saturating_sub(begin),
            keys_ns,
            counts,
            by_task: by_task.finish(),
            phases: phases.finish(),
            timeline: timeline.finish(),
        });
    }
    if let Some((name, count)) = lab::first_lost(&trace) {
        return Err(BootError::Lost { group: spec.id(), name, count });
    }
    let facts = trace.facts();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let all: Vec<LossCount> = losses(&trace);
    Ok(BootGroup {
        inputs: Inputs {
            kernel_release: text(&facts["kernel"]["release"]),
            agent: text(&facts["agent"]["version"]),
            ..group.inputs
        },
        root: RootFs { packages, ..made },
        boots,
        losses: all,
        ..group
    })
}
