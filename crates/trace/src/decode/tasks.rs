//! Task names from the kernel's own events.
//!
//! Sources: `task_newtask` and `sched_process_fork` (a child has its parent's name), and `task_rename` for every change, exec included
//! (`__set_task_comm`, `fs/exec.c`, Linux 6.1). `sched_process_exec` counts if renames are not recorded, `sched_process_exit` if nothing
//! else names the task, and `sched_switch` and `sched_wakeup` in other tools' traces. A clone after an exit shows that the number now
//! belongs to another task (`lives.rs`).

use crate::bytes::until_nul;
use crate::decode::lives::CloneStep;
use crate::decode::names::Names;
use crate::ids::TaskId;
use crate::record::tid;
use crate::ring::schema::{Field, Schema, Schemas, Value};

/// `TASK_COMM_LEN` without its NUL.
const COMM: usize = 15;

enum TaskFields {
    New {
        pid: Field,
        comm: Field,
        step: CloneStep,
    },
    Rename {
        pid: Option<Field>,
        old: Option<Field>,
        new: Field,
    },
    /// The name is used only if renames are not recorded.
    Exec {
        pid: Option<Field>,
        filename: Field,
        names: bool,
    },
    /// The name is used only if no other event gives one.
    Exit {
        pid: Field,
        comm: Field,
    },
    Switch {
        pairs: Vec<(Field, Field)>,
    },
}

pub(crate) struct TaskReader {
    plans: Vec<(u16, TaskFields)>,
}

impl TaskReader {
    pub fn new(schemas: &Schemas) -> TaskReader {
        let renames = schemas.named("task_rename").is_some();
        let plans = schemas.iter().filter_map(|s| Some((s.id, plan(s, renames)?))).collect();
        TaskReader { plans }
    }

    pub fn is_useful(&self) -> bool {
        !self.plans.is_empty()
    }

    pub fn record(&mut self, time: u64, schema: &Schema, data: &[u8], names: &mut Names) {
        let Some((_, plan)) = self.plans.iter().find(|(id, _)| *id == schema.id) else {
            return;
        };
        let text = |f: &Field| match schema.value(f, data) {
            Some(Value::Text(t)) => Some(t),
            Some(Value::Bytes(t)) => Some(until_nul(t)),
            _ => None,
        };
        let task = |f: &Field| schema.uint(f, data).map(|v| TaskId(v as u32));
        // Events without a pid of their own concern the task that ran.
        let about = |f: &Option<Field>| match f {
            Some(f) => task(f),
            None => Some(tid(schema, data)),
        };
        match plan {
            TaskFields::New { pid, comm, step } => {
                if let (Some(pid), Some(comm)) = (task(pid), text(comm)) {
                    names.cloned(pid, *step, time);
                    names.begin(pid, time, comm);
                    names.forked(pid, tid(schema, data));
                }
            }
            TaskFields::Rename { pid, old, new } => {
                if let (Some(pid), Some(new)) = (about(pid), text(new)) {
                    if let Some(old) = old.as_ref().and_then(text)
                        && !names.knows(pid)
                    {
                        names.set(pid, 0, old);
                    }
                    names.rename(pid, time, new);
                }
            }
            TaskFields::Exec { pid, filename, names: is_named } => {
                if let (Some(pid), Some(path)) = (about(pid), text(filename)) {
                    names.executed(pid);
                    if !is_named {
                        return;
                    }
                    let name = path.rsplit(|&b| b == b'/').next().unwrap_or(path);
                    names.rename(pid, time, &name[..name.len().min(COMM)]);
                }
            }
            TaskFields::Exit { pid, comm } => {
                if let (Some(pid), Some(comm)) = (task(pid), text(comm)) {
                    if !names.knows(pid) {
                        names.set(pid, 0, comm);
                    }
                    names.ended(pid);
                }
            }
            TaskFields::Switch { pairs } => {
                for (pid, comm) in pairs {
                    if let (Some(pid), Some(comm)) = (task(pid), text(comm)) {
                        let time = if names.knows(pid) { time } else { 0 };
                        names.set(pid, time, comm);
                    }
                }
            }
        }
    }
}

fn plan(s: &Schema, renames: bool) -> Option<TaskFields> {
    let field = |n: &str| s.field(n).cloned();
    Some(match (s.system.as_str(), s.name.as_str()) {
        (_, "task_newtask") => TaskFields::New { pid: field("pid")?, comm: field("comm")?, step: CloneStep::NewTask },
        (_, "sched_process_fork") => {
            TaskFields::New { pid: field("child_pid")?, comm: field("child_comm")?, step: CloneStep::Fork }
        }
        (_, "task_rename") => TaskFields::Rename { pid: field("pid"), old: field("oldcomm"), new: field("newcomm")? },
        (_, "sched_process_exec") => {
            TaskFields::Exec { pid: field("pid"), filename: field("filename")?, names: !renames }
        }
        ("sched", "sched_switch") => TaskFields::Switch {
            pairs: vec![(field("prev_pid")?, field("prev_comm")?), (field("next_pid")?, field("next_comm")?)],
        },
        ("sched", "sched_wakeup" | "sched_wakeup_new" | "sched_waking") => {
            TaskFields::Switch { pairs: vec![(field("pid")?, field("comm")?)] }
        }
        // The task started before the recording (or before the part that is left) and ended in it.
        (_, "sched_process_exit" | "sched_process_free") => {
            TaskFields::Exit { pid: field("pid")?, comm: field("comm")? }
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::Endian;

    /// `include/trace/events/sched.h`, Linux 6.1.
    const EXIT: &str = "name: sched_process_exit\nID: 300\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
        \tfield:pid_t pid;\toffset:24;\tsize:4;\tsigned:1;\n";

    #[test]
    fn an_exit_names_what_nothing_else_does() {
        let mut schemas = Schemas::new();
        schemas.insert(Schema::parse("sched", EXIT, Endian::Little, 8).unwrap());
        let (mut reader, mut names) = (TaskReader::new(&schemas), Names::default());
        names.set(TaskId(8), 0, b"known");
        for pid in [7u32, 8] {
            let mut data = vec![0; 28];
            data[8..12].copy_from_slice(b"sync");
            data[24..].copy_from_slice(&pid.to_le_bytes());
            reader.record(500, schemas.get(300).unwrap(), &data, &mut names);
        }
        assert_eq!((names.get(TaskId(7), 100), names.get(TaskId(8), 600)), (Some("sync"), Some("known")));
    }
}
