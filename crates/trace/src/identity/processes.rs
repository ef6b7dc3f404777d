//! Finds the process of a thread, and the application of a process, over time.
//!
//! The agent's readings of processes (`FS_NAMES`) hold for the time of the reading. The trace's events give the changes in between:
//! `task_newtask` (a thread, or a process that is like its parent), `sched_process_exec`, `cgroup_attach_task`.

use super::apps::{App, AppKind, Signs, app_of};
use crate::decode::names::Names;
use crate::events::TimeNs;
use crate::facts::{rows, text};
use crate::ids::{ProcessId, TaskId};
use crate::record::tid;
use crate::ring::schema::{Field, Schema, Schemas, Value as FieldValue};
use foldhash::{HashMap, HashMapExt as _};
use serde_json::Value;
use std::sync::Arc;

/// `CLONE_THREAD` (include/uapi/linux/sched.h).
const CLONE_THREAD: u64 = 0x1_0000;
/// Largest number of changes of processes, and of threads.
const MAX_LIVES: usize = 200_000;
const MAX_THREADS: usize = 200_000;
/// The uids of two Android users are 100,000 apart (`AID_USER_OFFSET`, android_filesystem_config.h).
const UIDS_A_USER: u64 = 100_000;
/// Longest text that is kept, bytes: `PATH_MAX`.
const MOST_TEXT: usize = 4096;
const KTHREADD: ProcessId = ProcessId(2);

/// The process of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process<'t> {
    pub pid: ProcessId,
    /// Last name of its first thread.
    pub name: Option<&'t str>,
    /// Arguments of the last program that it executed; the program's path if the arguments are unknown.
    pub command: Option<&'t str>,
    /// `None`: the process is its own application.
    pub app: Option<&'t App>,
    /// Name of the application's first process, where the application is a container whose own name is an id.
    pub app_program: Option<&'t str>,
    /// It is the recorded command (`record -- CMD`), or was started by it.
    pub is_of_command: bool,
}

impl Process<'_> {
    /// The application's name in a report: `nginx (container 3f4e5d6c7b8a)`.
    pub fn app_label(&self) -> Option<String> {
        let app = self.app?;
        Some(self.app_program.map_or_else(|| app.to_string(), |program| format!("{program} ({app})")))
    }

    /// Whether `wanted` names this process: by its name, program, command line or application. The id of a container may be shortened to
    /// four letters or more.
    pub fn is_called(&self, wanted: &str) -> bool {
        let program = self.command.and_then(|command| command.split(' ').next());
        let file = program.map(|program| program.rsplit('/').next().unwrap_or(program));
        let of_app = |app: &App| {
            let service = app.kind == AppKind::Unit && app.name.strip_suffix(".service") == Some(wanted);
            let container = app.kind == AppKind::Container && wanted.len() >= 4 && app.name.starts_with(wanted);
            let is_label = self.app_program.is_some() && self.app_label().as_deref() == Some(wanted);
            app.name == wanted || service || container || app.has_id(wanted) || app.to_string() == wanted || is_label
        };
        [self.name, self.command, program, file].contains(&Some(wanted)) || self.app.is_some_and(of_app)
    }
}

/// Properties of a process. Its children share the texts.
#[derive(Clone, Debug, Default)]
struct Properties {
    name: Option<Arc<str>>,
    command: Option<Arc<str>>,
    cgroup: Arc<str>,
    uid: Option<u64>,
    mount_namespace: u64,
    pid_namespace: u64,
    is_kernel: bool,
    is_of_command: bool,
}

#[derive(Debug)]
struct Life {
    from: u64,
    /// A change of the process in the entry before, not a new process.
    is_change: bool,
    /// The agent has read the process since then.
    is_confirmed: bool,
    properties: Properties,
    app: Option<usize>,
    /// Index of the last entry of the same process; later entries belong to another process with this number.
    last: usize,
}

/// Processes of a trace; empty if it has no names.
#[derive(Debug, Default)]
pub struct Processes {
    lives: HashMap<ProcessId, Vec<Life>>,
    threads: HashMap<TaskId, Vec<(u64, ProcessId)>>,
    apps: Vec<App>,
    /// The first process of each application, and the time.
    first: Vec<(u64, ProcessId)>,
    life_count: usize,
    thread_count: usize,
    /// The recorded command.
    command: Option<ProcessId>,
    /// Changes above the limit.
    pub dropped: u64,
}

impl Processes {
    /// The process of a thread; `None` if the trace does not show it. `names` are the trace's.
    pub(crate) fn get<'t>(&'t self, names: &'t Names, tid: TaskId, time: TimeNs) -> Option<Process<'t>> {
        let pid = self.pid(tid, time.0)?;
        let life = self.life(pid, time.0);
        let last = self.last_life(pid, time.0);
        let name = names
            .last_of_task(pid.first_thread(), time.0)
            .or_else(|| last.and_then(|life| life.properties.name.as_deref()));
        let command = last.and_then(|life| life.properties.command.as_deref());
        let number = life.and_then(|life| life.app);
        let app = number.and_then(|number| self.apps.get(number));
        let app_program = number.filter(|_| app.is_some_and(App::is_nameless)).and_then(|n| self.program(names, n));
        let is_of_command = life.is_some_and(|life| life.properties.is_of_command);
        Some(Process { pid, name, command, app, app_program, is_of_command })
    }

    /// Name of an application's first process.
    fn program<'t>(&'t self, names: &'t Names, app: usize) -> Option<&'t str> {
        let &(time, pid) = self.first.get(app)?;
        let read = || self.last_life(pid, time).and_then(|life| life.properties.name.as_deref());
        names.last_of_task(pid.first_thread(), time).or_else(read)
    }

    fn pid(&self, tid: TaskId, time: u64) -> Option<ProcessId> {
        // Before a thread had the number, a process may have had it.
        let before = self.threads.get(&tid).and_then(|list| {
            let after = list.partition_point(|&(from, _)| from <= time);
            list.get(after.checked_sub(1)?)
        });
        if let Some(&(_, pid)) = before {
            return Some(pid);
        }
        let pid = ProcessId::from(tid);
        self.lives.contains_key(&pid).then_some(pid)
    }

    /// The first entry also holds for earlier times, where the process existed before it was read; not if the entry is of its clone.
    fn life(&self, pid: ProcessId, time: u64) -> Option<&Life> {
        let list = self.lives.get(&pid)?;
        match list.partition_point(|life| life.from <= time) {
            0 => list.first().filter(|life| life.is_change),
            after => list.get(after - 1),
        }
    }

    /// The last entry of the process: after an `exec` it is still the same process.
    fn last_life(&self, pid: ProcessId, time: u64) -> Option<&Life> {
        self.lives.get(&pid)?.get(self.life(pid, time)?.last)
    }

    fn begin(&mut self, pid: ProcessId, life: Life) {
        if self.life_count >= MAX_LIVES {
            self.dropped += 1;
            return;
        }
        self.life_count += 1;
        self.lives.entry(pid).or_default().push(life);
    }

    fn change(&mut self, pid: ProcessId, time: u64, change: impl FnOnce(&mut Properties)) {
        let mut properties = self.life(pid, u64::MAX).map(|life| life.properties.clone()).unwrap_or_default();
        change(&mut properties);
        self.begin(pid, Life { from: time, is_change: true, is_confirmed: false, properties, app: None, last: 0 });
    }

    fn thread(&mut self, tid: TaskId, time: u64, pid: ProcessId) {
        if self.thread_count >= MAX_THREADS {
            self.dropped += 1;
            return;
        }
        self.thread_count += 1;
        self.threads.entry(tid).or_default().push((time, pid));
    }

    fn forked(&mut self, tid: TaskId, by: TaskId, is_thread: bool, time: u64) {
        let parent = self.pid(by, time).unwrap_or(by.into());
        if is_thread {
            self.thread(tid, time, parent);
            return;
        }
        // The number may have belonged to a thread before.
        if self.threads.contains_key(&tid) {
            self.thread(tid, time, tid.into());
        }
        let mut properties = self.life(parent, time).map(|life| life.properties.clone()).unwrap_or_default();
        properties.name = None;
        properties.is_kernel = parent == KTHREADD;
        properties.is_of_command |= self.command == Some(tid.into());
        self.begin(
            tid.into(),
            Life { from: time, is_change: false, is_confirmed: false, properties, app: None, last: 0 },
        );
    }

    fn read(&mut self, row: &Row, time: u64) {
        let mut properties = row.properties.clone();
        let known = self.lives.get_mut(&row.pid).and_then(|list| list.last_mut());
        properties.is_of_command =
            self.command == Some(row.pid) || known.as_ref().is_some_and(|life| life.properties.is_of_command);
        match known {
            Some(life) if !life.is_confirmed => (life.properties, life.is_confirmed) = (properties, true),
            Some(life) if same(&life.properties, &properties) => {}
            other => {
                let from = if other.is_some() { time } else { 0 };
                self.begin(
                    row.pid,
                    Life { from, is_change: false, is_confirmed: true, properties, app: None, last: 0 },
                );
            }
        }
    }

    /// Sets the application and the last entry of every entry.
    fn finish(&mut self, facts: &Value) {
        for list in self.lives.values_mut() {
            let mut last = list.len().saturating_sub(1);
            for (at, life) in list.iter_mut().enumerate().rev() {
                life.last = last;
                if !life.is_change {
                    last = at.saturating_sub(1);
                }
            }
        }
        let packages: HashMap<u64, &str> =
            rows(facts, "packages").filter_map(|row| Some((row["uid"].as_u64()?, text(&row["name"])?))).collect();
        let usual = |key: &str| {
            let of_init = rows(facts, "processes").find(|row| row["pid"] == 1).and_then(|row| row[key].as_u64());
            let mut counts: HashMap<u64, usize> = HashMap::new();
            rows(facts, "processes")
                .filter_map(|row| row[key].as_u64())
                .for_each(|ns| *counts.entry(ns).or_default() += 1);
            of_init.or_else(|| counts.into_iter().max_by_key(|&(_, count)| count).map(|(ns, _)| ns)).unwrap_or(0)
        };
        let (usual_mount_namespace, usual_pid_namespace) = (usual("mnt_ns"), usual("pid_ns"));
        let mut numbers: HashMap<App, usize> = HashMap::new();
        for (&pid, life) in self.lives.iter_mut().flat_map(|(pid, list)| list.iter_mut().map(move |life| (pid, life))) {
            let properties = &life.properties;
            let package =
                properties.uid.and_then(|uid| packages.get(&(uid % UIDS_A_USER)).or_else(|| packages.get(&uid)));
            let app = match properties.is_kernel {
                true => Some(App { kind: AppKind::Kernel, name: "kernel".to_owned() }),
                false => app_of(&Signs {
                    cgroup: &properties.cgroup,
                    mount_namespace: properties.mount_namespace,
                    pid_namespace: properties.pid_namespace,
                    package: package.copied(),
                    usual_mount_namespace,
                    usual_pid_namespace,
                }),
            };
            life.app = app.map(|app| {
                let number = *numbers.entry(app).or_insert_with_key(|app| {
                    self.apps.push(app.clone());
                    self.first.push((life.from, pid));
                    self.apps.len() - 1
                });
                let first = &mut self.first[number];
                *first = (*first).min((life.from, pid));
                number
            });
        }
    }
}

/// Whether the agent would report no change.
fn same(a: &Properties, b: &Properties) -> bool {
    (&a.command, &a.cgroup, a.uid, a.mount_namespace, a.pid_namespace)
        == (&b.command, &b.cgroup, b.uid, b.mount_namespace, b.pid_namespace)
}

struct Row {
    at: u64,
    pid: ProcessId,
    properties: Properties,
}

enum ProcessFields {
    New { pid: Field, flags: Field },
    Exec { pid: Option<Field>, filename: Field },
    Attach { pid: Field, path: Field },
}

/// Joins the agent's readings with the events.
pub(crate) struct ProcessReader<'f> {
    facts: &'f Value,
    plans: Vec<(u16, ProcessFields)>,
    /// Oldest last.
    waiting: Vec<Row>,
    found: Processes,
}

impl<'f> ProcessReader<'f> {
    /// `command`: the recorded one.
    pub fn new(facts: &'f Value, schemas: Option<&Schemas>, command: Option<ProcessId>) -> Self {
        let plans = schemas.into_iter().flat_map(Schemas::iter).filter_map(|s| Some((s.id, plan(s)?))).collect();
        let mut waiting: Vec<Row> = rows(facts, "processes").filter_map(row).collect();
        waiting.sort_by_key(|row| std::cmp::Reverse(row.at));
        let mut found = Processes { command, ..Processes::default() };
        for pair in rows(facts, "threads") {
            if let (Some(tid), Some(pid)) = (number(&pair[0]), number(&pair[1])) {
                found.thread(TaskId(tid), 0, ProcessId(pid));
            }
        }
        ProcessReader { facts, plans, waiting, found }
    }

    /// Whether the trace has any data about processes.
    pub fn is_useful(&self) -> bool {
        !self.waiting.is_empty() || !self.found.threads.is_empty()
    }

    fn until(&mut self, time: u64) {
        while self.waiting.last().is_some_and(|row| row.at <= time)
            && let Some(row) = self.waiting.pop()
        {
            self.found.read(&row, row.at);
        }
    }

    pub fn record(&mut self, time: u64, schema: &Schema, data: &[u8]) {
        let Some(at) = self.plans.iter().position(|(id, _)| *id == schema.id) else { return };
        self.until(time);
        let number = |f: &Field| schema.uint(f, data);
        let string = |f: &Field| match schema.value(f, data) {
            Some(FieldValue::Text(text)) => Some(Arc::<str>::from(String::from_utf8_lossy(text))),
            _ => None,
        };
        match &self.plans[at].1 {
            ProcessFields::New { pid, flags } => {
                if let (Some(pid), Some(flags)) = (number(pid), number(flags)) {
                    self.found.forked(TaskId(pid as u32), tid(schema, data), flags & CLONE_THREAD != 0, time);
                }
            }
            ProcessFields::Exec { pid, filename } => {
                let about = pid.as_ref().map_or(Some(tid(schema, data).0), |pid| number(pid).map(|pid| pid as u32));
                if let (Some(pid), Some(filename)) = (about, string(filename)) {
                    self.found.change(ProcessId(pid), time, |properties| properties.command = Some(filename));
                }
            }
            ProcessFields::Attach { pid, path } => {
                if let (Some(pid), Some(path)) = (number(pid), string(path)) {
                    let task = TaskId(pid as u32);
                    let pid = self.found.pid(task, time).unwrap_or(task.into());
                    // The root group tells nothing: another hierarchy may tell more.
                    let is_new = self.found.life(pid, u64::MAX).is_none_or(|life| *life.properties.cgroup != *path);
                    if path.len() > 1 && is_new {
                        self.found.change(pid, time, |properties| properties.cgroup = path);
                    }
                }
            }
        }
    }

    pub fn finish(mut self) -> Processes {
        self.until(u64::MAX);
        self.found.finish(self.facts);
        self.found
    }
}

fn number(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|number| u32::try_from(number).ok())
}

/// The position at which a kept text is cut.
fn end_of(text: &str) -> usize {
    (0..=text.len().min(MOST_TEXT)).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0)
}

fn row(row: &Value) -> Option<Row> {
    let own = |key: &str| text(&row[key]).map(|text| Arc::from(&text[..end_of(text)]));
    let pid = ProcessId(number(&row["pid"])?);
    let parent = ProcessId(number(&row["parent"]).unwrap_or(0));
    let properties = Properties {
        name: own("name"),
        command: own("command"),
        cgroup: own("cgroup").unwrap_or_default(),
        uid: row["uid"].as_u64(),
        mount_namespace: row["mnt_ns"].as_u64().unwrap_or(0),
        pid_namespace: row["pid_ns"].as_u64().unwrap_or(0),
        is_kernel: pid == KTHREADD || parent == KTHREADD,
        is_of_command: false,
    };
    Some(Row { at: row["at_ns"].as_u64()?, pid, properties })
}

fn plan(s: &Schema) -> Option<ProcessFields> {
    let field = |n: &str| s.field(n).cloned();
    Some(match s.name.as_str() {
        "task_newtask" => ProcessFields::New { pid: field("pid")?, flags: field("clone_flags")? },
        "sched_process_exec" => ProcessFields::Exec { pid: field("pid"), filename: field("filename")? },
        "cgroup_attach_task" => ProcessFields::Attach { pid: field("pid")?, path: field("dst_path")? },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn facts() -> Value {
        json!({"names": {
            "threads": [[101, 100]],
            "packages": [{"name": "org.videolan.vlc", "uid": 10057}],
            "processes": [
                {"at_ns": 5, "pid": 1, "parent": 0, "uid": 0, "name": "init", "mnt_ns": 1, "pid_ns": 2},
                {"at_ns": 5, "pid": 9, "parent": 2, "uid": 0, "name": "kworker/0:1"},
                {"at_ns": 5, "pid": 100, "parent": 1, "uid": 1000, "name": "vlc", "command": "/usr/bin/vlc a.mkv",
                 "cgroup": "/user.slice/app-vlc-7.scope", "mnt_ns": 1, "pid_ns": 2},
                {"at_ns": 5, "pid": 200, "parent": 1, "uid": 1_010_057_u64, "name": "droid", "mnt_ns": 1, "pid_ns": 2},
                {"at_ns": 900, "pid": 300, "parent": 100, "uid": 0, "name": "sh", "command": "sh -c x", "mnt_ns": 77, "pid_ns": 2},
            ],
        }})
    }

    #[test]
    fn a_thread_belongs_to_its_process_and_that_to_its_application() {
        let facts = facts();
        let mut reader = ProcessReader::new(&facts, None, None);
        reader.until(10);
        // A process that was forked is like its parent until the agent has read it.
        reader.found.forked(TaskId(300), TaskId(101), false, 500);
        reader.found.forked(TaskId(301), TaskId(300), true, 600);
        reader.found.change(ProcessId(300), 700, |properties| properties.command = Some("/bin/sh".into()));
        let found = reader.finish();
        let mut names = Names::default();
        names.set(TaskId(101), 0, b"demux");
        names.set(TaskId(100), 0, b"vlc");
        let of = |tid, time| found.get(&names, tid, TimeNs(time)).unwrap();
        let demuxer = of(TaskId(101), 50);
        assert_eq!((demuxer.pid.0, demuxer.name, demuxer.command), (100, Some("vlc"), Some("/usr/bin/vlc a.mkv")));
        assert!(
            ["vlc", "app-vlc-7.scope", "/usr/bin/vlc", "/usr/bin/vlc a.mkv"].iter().all(|name| demuxer.is_called(name))
        );
        assert!(!demuxer.is_called("demux") && !demuxer.is_called("vl"));
        assert_eq!(of(TaskId(9), 50).app.unwrap().kind, AppKind::Kernel);
        assert_eq!(of(TaskId(200), 50).app.map(App::to_string).as_deref(), Some("org.videolan.vlc"));
        assert_eq!(
            (of(TaskId(301), 650).pid, of(TaskId(301), 650).app.map(App::to_string).as_deref()),
            (ProcessId(300), Some("app-vlc-7.scope"))
        );
        assert_eq!(of(TaskId(300), 950).app.map(App::to_string).as_deref(), Some("container mnt:[77]"));
        assert_eq!(of(TaskId(300), 750).command, Some("sh -c x"), "what was read of a program holds from its begin");
        assert_eq!(of(TaskId(1), 5).app, None);
        assert_eq!(found.get(&names, TaskId(4711), TimeNs(5)), None);
    }

    /// The agent reads the command after it was started, and its children never.
    #[test]
    fn what_the_command_starts_is_of_the_command() {
        let facts = facts();
        let mut reader = ProcessReader::new(&facts, None, Some(ProcessId(300)));
        reader.until(10);
        reader.found.forked(TaskId(300), TaskId(100), false, 500);
        reader.found.forked(TaskId(302), TaskId(300), false, 600);
        reader.found.forked(TaskId(303), TaskId(302), false, 700);
        reader.found.forked(TaskId(304), TaskId(100), false, 800);
        let found = reader.finish();
        let names = Names::default();
        let of = |tid| found.get(&names, TaskId(tid), TimeNs(950)).unwrap().is_of_command;
        assert_eq!([300, 302, 303].map(of), [true; 3]);
        assert_eq!([1, 100, 304].map(of), [false; 3]);
    }

    #[test]
    fn a_number_is_of_a_process_and_then_of_a_thread() {
        let facts = json!({"names": {"processes": [
            {"at_ns": 5, "pid": 100, "parent": 1, "name": "workload", "command": "/bin/workload", "cgroup": "/system.slice/w.service"},
            {"at_ns": 5, "pid": 200, "parent": 1, "name": "cc", "command": "/bin/cc", "cgroup": "/system.slice/cc.service"},
        ]}});
        let mut reader = ProcessReader::new(&facts, None, None);
        reader.until(10);
        reader.found.forked(TaskId(300), TaskId(100), false, 20);
        reader.found.forked(TaskId(300), TaskId(200), true, 40);
        reader.found.forked(TaskId(300), TaskId(100), false, 60);
        reader.found.forked(TaskId(400), TaskId(200), true, 40);
        let (found, names) = (reader.finish(), Names::default());
        let of = |tid, time| {
            let process = found.get(&names, TaskId(tid), TimeNs(time));
            process.map(|process| (process.pid, process.app.map(|app| app.name.as_str())))
        };
        assert_eq!(of(300, 30), Some((ProcessId(300), Some("w.service"))));
        assert_eq!(of(300, 50), Some((ProcessId(200), Some("cc.service"))));
        assert_eq!(of(300, 70), Some((ProcessId(300), Some("w.service"))));
        assert_eq!(of(300, 15).and_then(|(_, app)| app), None, "of an earlier process that nothing tells of");
        assert_eq!((of(400, 30), of(400, 50)), (None, Some((ProcessId(200), Some("cc.service")))));
    }

    #[test]
    fn a_container_without_a_name_has_that_of_its_first_process() {
        let id = "4".repeat(64);
        let process = |pid: u32, name: &str, cgroup: String| json!({"at_ns": 5, "pid": pid, "parent": 1, "name": name, "cgroup": cgroup});
        let facts = json!({"names": {"processes": [
            process(31, "worker", format!("/docker/{id}")),
            process(30, "nginx", format!("/docker/{id}")),
            process(40, "init", "/lxc/web".to_owned()),
        ]}});
        let mut reader = ProcessReader::new(&facts, None, None);
        reader.until(10);
        let (found, names) = (reader.finish(), Names::default());
        let of = |pid| found.get(&names, TaskId(pid), TimeNs(50)).expect("a process");
        for pid in [30, 31] {
            let label = of(pid).app_label();
            assert_eq!(label.as_deref(), Some("nginx (container 444444444444)"));
            assert!(of(pid).is_called("nginx (container 444444444444)") && of(pid).is_called("4444"));
        }
        assert_eq!(of(40).app_label().as_deref(), Some("container web"));
    }

    /// 100 MB of command line for a mebibyte of facts, and a chain of changes that every look-up went through.
    #[test]
    fn children_share_what_was_told_of_their_parent() {
        let command = "x".repeat(1 << 20);
        let facts = json!({"names": {"processes": [{"at_ns": 5, "pid": 100, "parent": 1, "command": command}]}});
        let mut reader = ProcessReader::new(&facts, None, None);
        reader.until(10);
        for child in 0..50_000 {
            reader.found.forked(TaskId(1000 + child), TaskId(100), false, 100 + u64::from(child));
        }
        for time in 0..50_000 {
            reader.found.change(ProcessId(100), 100_000 + time, |properties| properties.uid = Some(time));
        }
        let found = reader.finish();
        let names = Names::default();
        let of = |tid, time| found.get(&names, tid, TimeNs(time)).unwrap().command.unwrap();
        assert_eq!((of(TaskId(100), 7).len(), of(TaskId(1000), 1000).as_ptr()), (4096, of(TaskId(100), 7).as_ptr()));
        assert!((0..50_000).all(|time| of(TaskId(100), time * 3).as_ptr() == of(TaskId(50_999), 900_000).as_ptr()));
        assert_eq!(found.last_life(ProcessId(100), 7).unwrap().properties.uid, Some(49_999), "as it was last");
    }
}
