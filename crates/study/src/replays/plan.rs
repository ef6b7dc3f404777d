//! The groups of a replay study, and the plan of each boot.

use super::definition::{Case, Change, Lever, Replays, script};
use super::script::{Cgroup, Script};
use crate::definition::Filesystem;
use crate::lab::{MOUNT_POINT, Mount};
use crate::plan::AGENT;

/// One fresh boot.
#[derive(Clone, Debug)]
pub(super) struct ReplaySpec {
    /// `CASE[.LEVER][.KERNEL][.sN]`
    pub name: String,
    pub case: Case,
    pub lever: Lever,
    pub kernel: String,
    /// All scripts of the case joined to one.
    pub script: Script,
    /// Number of its tasks that belong to the application.
    pub own_tasks: usize,
    /// Process names of the application and of the others.
    pub application: Vec<String>,
    pub others: Vec<String>,
    /// Times from which its delay is measured: the start of the others; or, if it is alone, the starts of the others in the runs that it is
    /// compared with.
    pub delay_from_ns: Vec<u64>,
}

impl ReplaySpec {
    pub fn id(&self) -> String {
        format!("replays-{}-{}", self.case.board, self.name.replace('.', "-"))
    }

    /// The time of the others' first call.
    pub fn others_begin_ns(&self) -> u64 {
        let others = self.script.calls.iter().filter(|call| call.task >= self.own_tasks);
        others.map(|call| self.script.tasks[call.task].start_ns + call.time_ns).min().unwrap_or(0)
    }

    /// The group with the same application alone on the same kernel, with the same lever, else without a lever.
    pub fn alone(&self) -> Option<&str> {
        self.case.alone.as_deref()
    }
}

pub(super) fn groups(replays: &Replays, kernels: Option<&str>) -> Vec<ReplaySpec> {
    let mut specs = Vec::new();
    for case in &replays.case {
        let own = case.kernel.as_ref().unwrap_or(&replays.kernel);
        let all: Vec<String> = kernels.map_or_else(|| own.clone(), |kernel| vec![kernel.to_owned()]);
        let mut levers: Vec<Lever> = case
            .lever
            .iter()
            .filter_map(|name| replays.lever.iter().find(|lever| lever.name == *name).cloned())
            .collect();
        if levers.is_empty() {
            levers.push(Lever::default());
        }
        for (kernel, lever) in all.iter().flat_map(|kernel| levers.iter().map(move |lever| (kernel, lever))) {
            for (index, &shift) in case.shift_s.iter().enumerate() {
                let mut name = case.name.clone();
                if !case.lever.is_empty() {
                    name += &format!(".{}", lever.name);
                }
                if all.len() > 1 {
                    name += &format!(".{}", kernel.replace('.', "_"));
                }
                if case.shift_s.len() > 1 {
                    name += &format!(".s{index}");
                }
                let mut case = case.clone();
                let mut disk = replays.disk.get(&case.board).cloned().unwrap_or_default();
                disk.extend(case.disk.clone());
                disk.extend(lever.disk.clone());
                case.disk = disk;
                specs.extend(spec(name, case, lever.clone(), kernel.clone(), (shift * 1e9) as u64));
            }
        }
    }
    let begins: Vec<(Option<String>, u64)> =
        specs.iter().map(|spec| (spec.case.alone.clone(), spec.others_begin_ns())).collect();
    for spec in specs.iter_mut().filter(|spec| spec.others.is_empty()) {
        let of = |(alone, _): &&(Option<String>, u64)| alone.as_deref() == Some(spec.case.name.as_str());
        spec.delay_from_ns.extend(begins.iter().filter(of).map(|(_, begin)| *begin));
        spec.delay_from_ns.sort_unstable();
        spec.delay_from_ns.dedup();
    }
    specs
}

fn spec(name: String, case: Case, lever: Lever, kernel: String, shift_ns: u64) -> Option<ReplaySpec> {
    let mut scripts = case.scripts.iter().filter_map(|word| script(word).ok());
    let (mut whole, _) = scripts.next()?;
    change(&mut whole, &lever.application, "application");
    let own_tasks = whole.tasks.len();
    for (mut other, start_ns) in scripts {
        change(&mut other, &lever.others, "others");
        whole.beside(other, start_ns + shift_ns);
    }
    let names = |tasks: &[super::script::Task]| -> Vec<String> {
        let mut names: Vec<String> = tasks.iter().map(|task| task.name.chars().take(15).collect()).collect();
        names.sort();
        names.dedup();
        names
    };
    let (application, others) = (names(&whole.tasks[..own_tasks]), names(&whole.tasks[own_tasks..]));
    let delay_from_ns = Vec::new();
    let mut spec =
        ReplaySpec { name, case, lever, kernel, script: whole, own_tasks, application, others, delay_from_ns };
    spec.delay_from_ns.push(spec.others_begin_ns());
    Some(spec)
}

/// Gives a script's tasks priorities, and a cgroup with this name.
fn change(script: &mut Script, change: &Change, cgroup: &str) {
    for task in &mut script.tasks {
        task.nice = change.nice.or(task.nice);
        task.ionice = change.ionice.clone().or(task.ionice.take());
        if !change.cgroup.is_empty() {
            task.cgroup = Some(cgroup.to_owned());
        }
    }
    if !change.cgroup.is_empty() {
        let settings = change.cgroup.iter().map(|(file, value)| (file.clone(), value.clone())).collect();
        script.cgroups.push(Cgroup { name: cgroup.to_owned(), settings });
    }
}

pub(super) const STEP: &str = "replay";
pub(super) const SCRIPT: &str = "/flashscope/script";
const CGROUPS: &str = "/sys/fs/cgroup";
const RING_KIB: u32 = 16 * 1024;

/// The plan once the storage exists. `device`: a formatted disk.
pub(super) fn plan(spec: &ReplaySpec, device: Option<&str>) -> Vec<String> {
    let mut mounting = Mount::new(spec.case.filesystem, device);
    if let (Some(options), Some(plain)) = (&spec.lever.mount, mounting.mount.strip_suffix(" -")) {
        mounting.mount = format!("{plain} {options}");
    }
    let mut lines = vec![format!("mkdir {MOUNT_POINT}")];
    lines.extend(mounting.prepare.iter().cloned());
    lines.push(mounting.mount.clone());
    lines.extend(mounting.settle());
    if spec.lever.after_s > 0 {
        lines.push(format!("sleep {}", spec.lever.after_s * 1000));
    }
    if spec.lever.set.keys().any(|path| path.starts_with(CGROUPS)) {
        lines.push(format!("mount cgroup2 {CGROUPS} cgroup2 -"));
    }
    for (path, value) in &spec.lever.set {
        lines.push(format!("write {path} {}", value.replace(' ', "%20")));
    }
    let events = match device {
        Some(_) => "block,cache",
        None if spec.case.filesystem == Filesystem::SquashfsUbiblock => "flash,block,cache",
        None => "flash,cache",
    };
    lines.push(format!("record-start --events {events} --mode stream --ring {RING_KIB}"));
    let existing = if spec.case.filesystem.is_squashfs() { " --existing" } else { "" };
    lines.push(format!(
        "run {STEP} {AGENT} bench replay --script {SCRIPT} --dir {MOUNT_POINT} --timing recorded --contents random --drop-caches{existing}"
    ));
    lines.push("record-stop".to_owned());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::Define as _;
    use crate::replays::ReplaysDefinition;

    const STUDY: &str = r#"
name = "s"
title = "t"
question = "q"
[replays]
kernel = ["6.1"]
[[replays.case]]
name = "c"
board = "armv7-blk"
filesystem = "ext4"
scripts = ["navit-fast", "writer@6"]
lever = ["l"]
[[replays.lever]]
name = "l"
LEVER
"#;

    fn lines(lever: &str) -> Result<Vec<String>, String> {
        let study: ReplaysDefinition = toml::from_str(&STUDY.replace("LEVER", lever)).expect("a study");
        study.check()?;
        Ok(plan(&groups(&study.replays, None)[0], Some("/dev/nullb0")))
    }

    fn place(lines: &[String], line: &str) -> usize {
        lines.iter().position(|one| one == line).unwrap_or_else(|| panic!("{line:?} is not in {lines:#?}"))
    }

    #[test]
    fn a_lever_may_be_an_option_of_the_mount_or_a_file_of_the_root_of_cgroup2() {
        assert!(place(&lines("").unwrap(), "mount /dev/nullb0 /mnt ext4 -") > 0);
        let sync = lines("mount = \"sync,noatime\"").unwrap();
        assert!(place(&sync, "mount /dev/nullb0 /mnt ext4 sync,noatime") > 0);
        let cost = lines("set = { \"/sys/fs/cgroup/io.cost.qos\" = \"254:0 enable=1\" }").unwrap();
        let mount = place(&cost, "mount cgroup2 /sys/fs/cgroup cgroup2 -");
        assert!(mount < place(&cost, "write /sys/fs/cgroup/io.cost.qos 254:0%20enable=1"));
        assert!(!sync.iter().any(|line| line.contains("cgroup2")));
        for odd in ["mount = \"\"", "mount = \"a b\"", "mount = \"a\\nrun x y\"", "set = { \"/etc/passwd\" = \"1\" }"] {
            assert!(lines(odd).unwrap_err().contains("replays.lever 'l'"), "{odd}");
        }
    }
}
