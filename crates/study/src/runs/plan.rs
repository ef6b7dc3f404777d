//! The groups of a runs study, and the plan of each boot.

use std::collections::BTreeMap;

use super::definition::{Case, Postmark, Raw, Runs, Tracer};
use crate::definition::{Filesystem, Readahead};
use crate::lab::{MOUNT_POINT, Mount};
use crate::plan::{AGENT, RING_KIB};
use crate::size::Bytes;

/// One fresh boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RunSpec {
    /// Prefix of its figures' names: the case, and the values that distinguish its runs.
    pub name: String,
    pub case: String,
    pub board: String,
    pub kernel: String,
    pub tracer: Tracer,
    /// The same run also exists without a tracer: the processor's busy time is measured.
    pub compared: bool,
    pub partition: Bytes,
    /// RAM that replaces the board's.
    pub memory: Option<Bytes>,
    pub work: Work,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Postmark(Box<PostmarkWork>),
    Raw(Raw),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PostmarkWork {
    pub filesystem: Filesystem,
    pub options: Option<String>,
    pub sysctl: BTreeMap<String, String>,
    pub settings: Postmark,
    pub file_size: Option<Bytes>,
    pub readahead: Readahead,
    pub watch_s: u64,
}

impl RunSpec {
    /// `apf27-6.1-jffs2-ring`
    pub fn id(&self) -> String {
        format!("{}-{}-{}-{}", self.board, self.kernel, self.name.replace('.', "-"), self.tracer.as_str())
    }

    pub fn filesystem(&self) -> Option<Filesystem> {
        match &self.work {
            Work::Postmark(work) => Some(work.filesystem),
            Work::Raw(_) => None,
        }
    }
}

pub(super) fn groups(runs: &Runs) -> Vec<RunSpec> {
    let mut specs = Vec::new();
    for kernel in &runs.kernel {
        for case in &runs.case {
            let tracers = case.tracer.as_ref().unwrap_or(&runs.tracer);
            let compared = tracers.len() > 1 && tracers.contains(&Tracer::None);
            for (name, work) in works(case, runs.watch_s) {
                for &tracer in tracers {
                    specs.push(RunSpec {
                        name: if runs.kernel.len() > 1 { format!("{name}.{kernel}") } else { name.clone() },
                        case: case.name.clone(),
                        board: runs.board.clone(),
                        kernel: kernel.clone(),
                        tracer,
                        compared,
                        partition: runs.partition,
                        memory: case.memory,
                        work: work.clone(),
                    });
                }
            }
        }
    }
    specs
}

/// A case's works with their names: `jffs2`, or with lists `jffs2.16K.ra128.seed7`.
fn works(case: &Case, watch_s: u64) -> Vec<(String, Work)> {
    if let Some(raw) = case.raw {
        return vec![(case.name.clone(), Work::Raw(raw))];
    }
    let (Some(filesystem), Some(settings)) = (case.filesystem, &case.postmark) else { return Vec::new() };
    let sizes: Vec<Option<Bytes>> = match case.file_size.is_empty() {
        true => vec![None],
        false => case.file_size.iter().copied().map(Some).collect(),
    };
    let mut works = Vec::new();
    let seeds = if case.seed.is_empty() { vec![settings.seed] } else { case.seed.clone() };
    for &file_size in &sizes {
        for (&readahead, &seed) in case.readahead.iter().flat_map(|ahead| seeds.iter().map(move |seed| (ahead, seed))) {
            let mut name = case.name.clone();
            if let Some(size) = file_size {
                name += &format!(".{size}");
            }
            if case.readahead.len() > 1 {
                name += &format!(".ra{}", readahead.argument());
            }
            if case.seed.len() > 1 {
                name += &format!(".seed{seed}");
            }
            let settings = Postmark { seed, ..settings.clone() };
            let (options, sysctl) = (case.options.clone(), case.sysctl.clone());
            let work = PostmarkWork { filesystem, options, sysctl, settings, file_size, readahead, watch_s };
            works.push((name, Work::Postmark(Box::new(work))));
        }
    }
    works
}

/// One Postmark run of a study.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostmarkCommand {
    pub name: String,
    pub filesystem: Filesystem,
    /// Mount options.
    pub options: Option<String>,
    pub readahead: Readahead,
    pub command: String,
}

/// All Postmark runs of a study, with the commands in its plans.
pub fn postmark_commands(runs: &Runs) -> Vec<PostmarkCommand> {
    let works = runs.case.iter().flat_map(|case| works(case, runs.watch_s));
    let commands = works.filter_map(|(name, work)| match work {
        Work::Postmark(work) => {
            let (filesystem, options, readahead) = (work.filesystem, work.options.clone(), work.readahead);
            Some(PostmarkCommand { name, filesystem, options, readahead, command: postmark(&work) })
        }
        Work::Raw(_) => None,
    });
    commands.collect()
}

pub(super) const STEP_POSTMARK: &str = "postmark";
/// Named like the parts of the run.
pub(super) const RAW_STEPS: [&str; 3] = ["erase", "write", "read"];
pub(super) const PHASE_AFTER: &str = "after";
const RAW_DATA: &str = "/tmp/data";
/// Steps that print the processor's seconds since its start, and its idle seconds.
pub(super) const IDLE_STEPS: [&str; 2] = ["idle-before", "idle-after"];
const IDLE: &str = "/proc/uptime";

/// Number of entries in flashmon's log: as much RAM as the ring.
pub(super) const FLASHMON_LOG: u32 = RING_KIB * 1024 / 16;

pub(super) const RAW_SCRIPT: &str = "/raw";

/// Several writes or reads in one step, so that they have one time.
pub(super) fn raw_script(raw: &Raw) -> String {
    let (bytes, times) = (raw.bytes.0, raw.times);
    format!(
        "set -e\nat=0\nwhile [ $at -lt $(({bytes} * {times})) ]; do\n\
         case $1 in\n\
         write) nandwrite --quiet --pad --start=$at /dev/mtd0 {RAW_DATA} ;;\n\
         read) nanddump --quiet --startaddress=$at --length={bytes} --file=/dev/null /dev/mtd0 ;;\n\
         esac\nat=$((at + {bytes}))\ndone\n"
    )
}

/// The plan once the chip exists.
pub(super) fn plan(spec: &RunSpec) -> Vec<String> {
    let mut lines = vec!["device-wait /dev/mtd0 5000".to_owned(), format!("mkdir {MOUNT_POINT}")];
    let start = match spec.tracer {
        Tracer::None => None,
        // The agent's default.
        Tracer::Stream => Some("record-start --events flash --mode stream".to_owned()),
        Tracer::Ring => Some(format!("record-start --events flash --mode ring --ring {RING_KIB}")),
        Tracer::FlashmonRing => Some("record-start --events flash --from flashmon --mode ring".to_owned()),
        Tracer::FlashmonStream => Some("record-start --events flash --from flashmon --mode stream".to_owned()),
    };
    match &spec.work {
        Work::Raw(raw) => {
            lines.push(format!("create {RAW_DATA} {} random 1", raw.bytes.0));
            lines.extend(start);
            let [erase, write, read] = RAW_STEPS;
            lines.push(format!("run {erase} flash_erase --quiet /dev/mtd0 0 0"));
            if raw.times > 1 {
                lines.extend([write, read].map(|step| format!("run {step} /bin/sh {RAW_SCRIPT} {step}")));
            } else {
                lines.push(format!("run {write} nandwrite --quiet --pad /dev/mtd0 {RAW_DATA}"));
                lines.push(format!("run {read} nanddump --quiet --length={} --file=/dev/null /dev/mtd0", raw.bytes.0));
            }
        }
        Work::Postmark(work) => {
            let mounting = Mount::new(work.filesystem, None);
            lines.extend(mounting.prepare.iter().cloned());
            lines.push(match &work.options {
                None => mounting.mount.clone(),
                Some(options) => format!("{} {options}", mounting.mount.trim_end_matches(" -")),
            });
            lines.extend(mounting.settle());
            lines.extend(work.sysctl.iter().map(|(path, value)| format!("write /proc/sys/{path} {value}")));
            lines.extend(start);
            let idle = |step: &str| spec.compared.then(|| format!("run {step} cat {IDLE}"));
            lines.extend(idle(IDLE_STEPS[0]));
            lines.push(format!("run {STEP_POSTMARK} {}", postmark(work)));
            if work.watch_s > 0 {
                lines.push(format!("phase-begin {PHASE_AFTER}"));
                lines.push(format!("sleep {}", work.watch_s * 1000));
                lines.push(format!("phase-end {PHASE_AFTER}"));
            }
            lines.extend(idle(IDLE_STEPS[1]));
        }
    }
    if spec.tracer != Tracer::None {
        lines.push("record-stop".to_owned());
    }
    lines
}

fn postmark(work: &PostmarkWork) -> String {
    let settings = &work.settings;
    let mut command = format!(
        "{AGENT} bench postmark --dir {MOUNT_POINT} --config {} --seed {} --readahead {}",
        settings.config,
        settings.seed,
        work.readahead.argument()
    );
    let size = work.file_size.map(|size| size.0);
    for (option, value) in [
        ("files", settings.files),
        ("transactions", settings.transactions),
        ("subdirectories", settings.subdirectories),
        ("read-bias", settings.read_bias),
        ("size-min", size),
        ("size-max", size.or(settings.size_max.map(|size| size.0))),
    ] {
        if let Some(value) = value {
            command += &format!(" --{option} {value}");
        }
    }
    if let Some(contents) = &settings.contents {
        command += &format!(" --contents {contents}");
    }
    if settings.cold_reads {
        command += " --cold-reads";
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::RunsStudy;

    fn specs(text: &str) -> Vec<RunSpec> {
        groups(&RunsStudy::parse("study", text).unwrap().definition.runs)
    }

    #[test]
    fn each_file_system_is_watched_after_its_workload() {
        let specs = specs(include_str!("../../../../studies/postmark.toml"));
        for name in ["jffs2", "yaffs2", "ubifs"] {
            let spec = specs.iter().find(|spec| spec.name == name).unwrap();
            assert_eq!(spec.id(), format!("apf27-6.1-{name}-ring"));
            let lines = plan(spec);
            let at = |head: &str| lines.iter().position(|line| line.starts_with(head)).unwrap();
            assert!(at("mount") < at("record-start") && at("record-start") < at("run postmark"));
            assert!(at("run postmark") < at("sleep 600000") && at("sleep") < at("record-stop"));
        }
    }

    #[test]
    fn a_cost_is_taken_without_and_with_the_tracer() {
        let specs = specs(include_str!("../../../../studies/tracer-cost.toml"));
        let of = |name: &str| specs.iter().filter(|spec| spec.name == name).map(plan).collect::<Vec<_>>();
        // The study of flashmon's cost on the default board is of this kind too.
        assert_eq!(self::specs(include_str!("../../../../bench/flashmon-cost.toml")).len(), 12);
        for (name, tracers) in [("raw", 5), ("ubifs.seed42", 4)] {
            let plans = of(name);
            assert_eq!(plans.len(), tracers, "{name}");
            assert!(!plans[0].iter().any(|line| line.starts_with("record")));
            for traced in &plans[1..] {
                let rest: Vec<&String> = traced.iter().filter(|line| !line.starts_with("record")).collect();
                assert_eq!(rest, plans[0].iter().collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn lists_of_a_case_name_its_runs() {
        let specs = specs(include_str!("../../../../studies/postmark-partial-reads.toml"));
        let spec = specs.iter().find(|spec| spec.name == "jffs2.16K.ra128").unwrap();
        assert!(plan(spec).iter().any(|line| {
            line.contains("--readahead 128") && line.contains("--size-min 16384 --size-max 16384 --cold-reads")
        }));
    }
}
