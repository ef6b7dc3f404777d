//! Runs a boot study: one board for each root file system, with the flash operations of both boots.

use std::path::Path;

use flashscope_analysis::Analysis as _;
use flashscope_analysis::flash::{ActivityFold, ByTask, Geometry, OpCounts, TimelineFold};
use flashscope_targets::board::Chip;
use flashscope_trace::{Event, EventKind, Session, TimeNs, Trace};

use super::definition::{BootStudy, Boots};
use super::figures::figures;
use super::plan::{self, BOOTS, BootSpec, INIT_D, MAKE_SH, ROOTFS, STEP_MAKE, TOOLS};
use super::result::{BOOT_SCHEMA, Boot, BootGroup, BootResult, RootFs};
use crate::collect::losses;
use crate::error::StudyError;
use crate::kind::{self, Kind, Lab};
use crate::lab;
use crate::options::{Options, RunProgress};
use crate::plan::modules;
use crate::result::Inputs;
use crate::statement::rows;

/// Packages with the tools that make the images, on the board.
const TOOL_PACKAGES: [&str; 1] = ["mtd-utils"];

/// The program that generates the SSH server's keys.
const KEY_MAKER: &str = "dropbearkey";

/// The scripts in the root file system, by their path there.
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
pub fn run(study: &BootStudy, options: &Options, watch: &dyn RunProgress) -> Result<BootResult, StudyError> {
    let mut definition = study.definition.clone();
    if let Some(kernel) = &options.kernel {
        definition.boot.kernel = vec![kernel.clone()];
    }
    let boots = &definition.boot;
    let specs = plan::groups(boots);
    watch.study_started(specs.len());
    let lab = Lab::prepare(boots, &specs, options, watch)?;
    let groups = lab.run()?;
    let figures = figures(&groups);
    Ok(BootResult {
        header: lab.header(BOOT_SCHEMA, [&definition.name, &definition.title, &definition.question], &study.sha256),
        published: rows(&definition.published, &figures),
        figures,
        groups,
    })
}

impl Kind for Boots {
    type Spec = BootSpec;
    type Group = BootGroup;
    type Medium = (Chip, Vec<String>);

    fn id(&self, spec: &BootSpec) -> String {
        spec.id()
    }

    fn target<'a>(&self, spec: &'a BootSpec) -> [&'a str; 2] {
        [&spec.board, &spec.kernel]
    }

    fn packages(&self) -> Vec<Vec<String>> {
        vec![self.packages.clone(), TOOL_PACKAGES.map(str::to_owned).to_vec()]
    }

    fn image(&self, spec: &BootSpec, boot: &mut kind::Boot<'_>) -> Result<(Chip, Vec<String>), StudyError> {
        let chip = boot.board.chip().ok_or_else(|| StudyError::NoNand { board: boot.board.name.clone() })?.clone();
        if self.first_block.checked_add(self.blocks).is_none_or(|end| end > u64::from(chip.blocks)) {
            let (first, blocks) = (self.first_block, self.blocks);
            return Err(StudyError::Partition { first, blocks, of: chip.blocks, chip: chip.name });
        }
        boot.nand(&[self.first_block, self.blocks])?;
        boot.load(modules(spec.filesystem), "")?;
        let [packages, tools] = boot.packages else { unreachable!("two lists are fetched") };
        boot.image.add_root(ROOTFS, packages)?;
        boot.image.add_root(TOOLS, tools)?;
        boot.image.add_file(MAKE_SH, 0o755, include_bytes!("root/make.sh").to_vec());
        for (name, text) in SCRIPTS {
            boot.image.add_file(&format!("{INIT_D}/{name}"), 0o755, text.as_bytes().to_vec());
        }
        boot.lines.extend(plan::flash(spec));
        boot.lines.extend(plan::boots(spec));
        Ok((chip, packages.iter().map(|package| format!("{} {}", package.name, package.version)).collect()))
    }

    fn collect(
        &self,
        port: &Path,
        spec: &BootSpec,
        inputs: Inputs,
        (chip, packages): (Chip, Vec<String>),
    ) -> Result<BootGroup, StudyError> {
        let group = spec.id();
        let session = Session::open(port)?;
        let root: RootFs = lab::printed(&session, &group, STEP_MAKE)?;
        let trace = session.recording(0)?;
        let mut boots = Vec::new();
        for name in BOOTS {
            boots.push(one_boot(&session, &trace, &group, name, &chip, [self.first_block, self.blocks])?);
        }
        lab::whole(&trace, &group, "its phases are unknown")?;
        let facts = trace.facts();
        let pages = u64::from(chip.pages_per_block);
        Ok(BootGroup {
            id: group,
            inputs: inputs.recorded(facts),
            filesystem: spec.filesystem.as_str().to_owned(),
            chip: chip.name,
            page_bytes: chip.page_bytes,
            pages_per_block: chip.pages_per_block,
            partition_pages: [self.first_block * pages, (self.first_block + self.blocks) * pages],
            root: RootFs { packages, ..root },
            boots,
            losses: losses(&trace),
        })
    }
}

/// The flash operations of one boot. `partition`: its first block, and its number of blocks.
fn one_boot(
    session: &Session,
    trace: &Trace,
    group: &str,
    name: &str,
    chip: &Chip,
    partition: [u64; 2],
) -> Result<Boot, StudyError> {
    let missing = |what: String| StudyError::Missing { group: group.to_owned(), what };
    let shapes = [(0, Geometry { page_bytes: chip.page_bytes, pages_per_block: chip.pages_per_block })];
    let partitions = [(0, partition[0], partition[1])];
    let phase = plan::phase(name);
    let marked = session.phases().iter().find(|one| one.name == phase).ok_or_else(|| missing(phase.clone()))?;
    let end_ns = marked.end_ns.ok_or_else(|| missing(phase))?;
    let init = lab::finished(session, group, &plan::init_step(name))?;
    let (Some(mounted), Some(prompt)) = (init.begin_ns, init.end_ns) else {
        return Err(missing(plan::init_step(name)));
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
    Ok(Boot {
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
    })
}
