//! Assigns kernel functions to layers, and reads when a task's calls enter and leave a layer.
//!
//! Boundaries are function names (Linux 5.10 to 7.2). The first names of each row are from Hasegawa et al., table 5, as far as the kernel
//! still has them. A function without a row belongs to the layer of its caller.

use crate::facts::Facts;
use crate::ids::TaskId;
use crate::record::Record;
use crate::ring::schema::{Field, Schema, Value};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;

/// Layers from the task down to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// Entry and exit of a system call. Its boundaries are the kernel's own events of calls.
    Call,
    /// The virtual file system.
    Vfs,
    /// The page cache, read-ahead and writeback.
    PageCache,
    FileSystem,
    /// UBI, if a file system uses it.
    Ubi,
    /// The block layer and its schedulers.
    Block,
    /// The MTD layer, for raw flash.
    Mtd,
    /// The device's driver; for raw NAND the NAND core with error correction.
    Driver,
    /// The device has the request: from the issue to the completion. For raw NAND: the chip's commands, while the driver waits for them.
    Device,
    /// From the interrupt to the end of the request.
    Interrupt,
    /// Not a kernel layer: the task could run, but another task has the CPU.
    OtherTasks,
}

impl Layer {
    pub const ALL: [Layer; 11] = [
        Layer::Call,
        Layer::Vfs,
        Layer::PageCache,
        Layer::FileSystem,
        Layer::Ubi,
        Layer::Block,
        Layer::Mtd,
        Layer::Driver,
        Layer::Device,
        Layer::Interrupt,
        Layer::OtherTasks,
    ];

    /// The name in results.
    pub fn name(self) -> &'static str {
        match self {
            Layer::Call => "call",
            Layer::Vfs => "vfs",
            Layer::PageCache => "page_cache",
            Layer::FileSystem => "file_system",
            Layer::Ubi => "ubi",
            Layer::Block => "block",
            Layer::Mtd => "mtd",
            Layer::Driver => "driver",
            Layer::Device => "device",
            Layer::Interrupt => "interrupt",
            Layer::OtherTasks => "other_tasks",
        }
    }

    pub fn from_name(name: &str) -> Option<Layer> {
        Layer::ALL.into_iter().find(|layer| layer.name() == name)
    }

    /// The layer for the agent's name in `recording.boundaries` (docs/reference/agent-protocol.md).
    fn of_agent(name: &str) -> Option<Layer> {
        Some(match name {
            "cache" => Layer::PageCache,
            "filesystem" | "journal" => Layer::FileSystem,
            "completion" => Layer::Interrupt,
            other => Layer::from_name(other)?,
        })
    }

    /// The layer of a function, by its name.
    pub fn of_function(name: &str) -> Option<Layer> {
        // Copies made by the compiler have a suffix: `nand_read_page_op.part.0`.
        let name = name.split('.').next().unwrap_or(name);
        let name = name.trim_start_matches('_');
        RULES
            .iter()
            .find(|(heads, _)| {
                heads.iter().any(|head| match head.strip_suffix('*') {
                    Some(head) => name.starts_with(head),
                    None => name == *head,
                })
            })
            .map(|(_, layer)| *layer)
    }
}

/// The first row that matches decides. `a*` matches a prefix. Underscores at the beginning of a name are ignored.
const RULES: [(&[&str], Layer); 11] = [
    // Commands of raw NAND that the agent probes.
    (
        &[
            "nand_read_page_op",
            "nand_read_data_op",
            "nand_change_read_column_op",
            "nand_prog_page_op",
            "nand_prog_page_begin_op",
            "nand_write_data_op",
            "nand_change_write_column_op",
            "nand_prog_page_end_op",
            "nand_erase_op",
        ],
        Layer::Device,
    ),
    // The completion path, as the agent probes it.
    (&["bio_endio", "blk_mq_end_request", "null_cmd_timer_expired", "sdhci_irq"], Layer::Interrupt),
    (&["ksys_*", "vfs_*", "do_fsync", "do_sys_*", "arm64_sys_*", "x64_sys_*", "sys_*", "new_sync_*"], Layer::Vfs),
    (
        &[
            "filemap_*",
            "generic_file_*",
            "generic_perform_write",
            "page_cache_*",
            "force_page_cache_*",
            "ondemand_readahead",
            "do_page_cache_ra",
            "do_sync_mmap_readahead",
            "read_pages",
            "do_writepages",
            "write_cache_pages",
            "file_write_and_wait_range",
            "file_fdatawait_range",
            "folio_wait_*",
            "wait_on_page_*",
            "writeback_*",
            "wb_*",
            "balance_dirty_pages*",
        ],
        Layer::PageCache,
    ),
    (
        &[
            "ext4_*", "jbd2_*", "jffs2_*", "ubifs_*", "squashfs_*", "f2fs_*", "yaffs_*", "yaffs2_*", "mpage_*",
            "iomap_*", "block_read_full_*", "blkdev_*",
        ],
        Layer::FileSystem,
    ),
    (&["ubi_*"], Layer::Ubi),
    (
        &["submit_bio*", "blk_*", "bio_*", "elv_*", "dd_*", "bfq_*", "kyber_*", "mtd_blktrans_*", "mtd_queue_rq"],
        Layer::Block,
    ),
    (&["mtd_*", "mtdblock_*", "mtdchar_*", "part_*"], Layer::Mtd),
    (
        &["handle_irq*", "generic_handle_*", "handle_domain_irq", "common_interrupt", "gic_handle_irq", "irq_*"],
        Layer::Interrupt,
    ),
    (&["nand_*", "ns_*", "spi_mem_*", "spinand_*"], Layer::Driver),
    (&["null_*", "mmc_*", "sdhci_*", "loop_*", "lo_*", "nvme_*", "scsi_*", "virtblk_*"], Layer::Driver),
];

/// Kinds of system calls that are followed through the layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallKind {
    Read,
    Write,
    /// `fsync`, `fdatasync`, `sync_file_range`, `msync`, `sync`, `syncfs`.
    Sync,
}

impl CallKind {
    /// The kind for the name of the kernel's event: `sys_enter_read`.
    pub fn of_call(name: &str) -> Option<CallKind> {
        match name {
            "read" | "pread64" | "readv" | "preadv" | "preadv2" => Some(CallKind::Read),
            "write" | "pwrite64" | "writev" | "pwritev" | "pwritev2" => Some(CallKind::Write),
            "fsync" | "fdatasync" | "sync_file_range" | "sync_file_range2" | "msync" | "sync" | "syncfs" => {
                Some(CallKind::Sync)
            }
            _ => None,
        }
    }
}

/// A boundary that a task crosses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crossing {
    /// A call begins, with its file descriptor if it has one.
    Call(CallKind, Option<u32>),
    /// The call returned this value.
    Returned(CallKind, i64),
    /// The task enters a layer.
    Enter(Layer),
    /// The task leaves a layer.
    Leave(Layer),
    /// The task stops running. `runnable`: it was preempted and does not wait.
    Sleeps { runnable: bool },
    /// The task runs again.
    Wakes,
}

/// The source of sleeps in a trace. Later variants show more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SleepSource {
    Nothing,
    /// Functions in which tasks wait for a page or for the journal: other waits are not seen.
    Waits,
    /// `schedule` in a trace of functions, if the tracer followed it.
    Functions,
    /// `sched:sched_switch`: every sleep, and the task that gets the CPU.
    Switches,
}

/// How to read one kind of record.
enum CrossingFields {
    Enter(CallKind, Option<Field>),
    Exit(CallKind, Option<Field>),
    Switch {
        prev: Field,
        state: Option<Field>,
        next: Field,
    },
    /// function_graph: a function is called, or returns.
    Function {
        function: Field,
        leaves: bool,
    },
    /// A boundary that the agent probes or a kernel event shows.
    Boundary {
        layer: Layer,
        leaves: bool,
    },
    /// A function in which a task sleeps.
    Wait {
        leaves: bool,
    },
}

/// Finds boundaries in records: the kernel's events of calls and of the scheduler, function_graph's, and the agent's.
pub struct Crossings {
    plans: HashMap<u16, CrossingFields>,
    /// Functions by address.
    symbols: Vec<(u64, Function)>,
}

#[derive(Clone, Copy)]
enum Function {
    Of(Layer),
    /// A task in this function does not run.
    Schedule,
    Other,
}

impl Crossings {
    /// `kernel_symbols`: text of `/proc/kallsyms`; called only if calls of functions are recorded.
    pub(crate) fn of<'a>(
        facts: &Facts,
        schemas: impl Iterator<Item = &'a Arc<Schema>>,
        kernel_symbols: impl FnOnce() -> Option<String>,
    ) -> Crossings {
        let boundaries = facts.recording.boundaries.iter();
        let layers: HashMap<&str, &str> =
            boundaries.filter_map(|one| Some((one.symbol.as_deref()?, one.layer.as_deref()?))).collect();
        let plans: HashMap<u16, CrossingFields> =
            schemas.filter_map(|schema| Some((schema.id, plan(schema, &layers)?))).collect();
        let functions = plans.values().any(|plan| matches!(plan, CrossingFields::Function { .. }));
        Crossings { plans, symbols: if functions { symbols(kernel_symbols().as_deref()) } else { Vec::new() } }
    }

    /// Whether the trace has events of layers.
    pub fn are_there(&self) -> bool {
        self.plans.values().any(|plan| {
            matches!(
                plan,
                CrossingFields::Enter(..) | CrossingFields::Function { .. } | CrossingFields::Boundary { .. }
            )
        })
    }

    /// The best source of sleeps that the trace has.
    pub fn sleep(&self) -> SleepSource {
        let source = |plan: &CrossingFields| match plan {
            CrossingFields::Switch { .. } => SleepSource::Switches,
            CrossingFields::Function { .. } => SleepSource::Functions,
            CrossingFields::Wait { .. } => SleepSource::Waits,
            _ => SleepSource::Nothing,
        };
        self.plans.values().map(source).max().unwrap_or(SleepSource::Nothing)
    }

    fn function(&self, address: u64) -> Function {
        let after = self.symbols.partition_point(|(at, _)| *at <= address);
        after.checked_sub(1).map_or(Function::Other, |at| self.symbols[at].1)
    }

    /// Hands every boundary in a record to `f`, with the task that crosses it.
    pub fn read(&self, record: &Record<'_>, f: &mut dyn FnMut(TaskId, Crossing)) {
        let (schema, tid) = (record.schema, record.tid());
        let Some(plan) = self.plans.get(&schema.id) else { return };
        let number = |field: &Field| schema.uint(field, record.data);
        match plan {
            CrossingFields::Enter(kind, file) => {
                f(tid, Crossing::Call(*kind, file.as_ref().and_then(number).map(|fd| fd as u32)))
            }
            CrossingFields::Exit(kind, result) => {
                let result = result.as_ref().and_then(|field| record.schema.long(field, record.data));
                f(tid, Crossing::Returned(*kind, result.unwrap_or(0)));
            }
            CrossingFields::Switch { prev, state, next } => {
                // The low 8 bits are the reason for sleeping. If they are 0, the task can run; bits above them mark a preempted task. In
                // text the state is letters: `R`, and `R+` for a preempted task.
                let runnable = match state.as_ref().and_then(|field| record.value(field)) {
                    Some(Value::Text(text)) => text.starts_with(b"R"),
                    _ => state.as_ref().and_then(number).unwrap_or(1) & 0xff == 0,
                };
                if let Some(prev) = number(prev) {
                    f(TaskId(prev as u32), Crossing::Sleeps { runnable });
                }
                if let Some(next) = number(next) {
                    f(TaskId(next as u32), Crossing::Wakes);
                }
            }
            CrossingFields::Function { function, leaves } => {
                match (self.function(number(function).unwrap_or(0)), leaves) {
                    (Function::Of(layer), false) => f(tid, Crossing::Enter(layer)),
                    (Function::Of(layer), true) => f(tid, Crossing::Leave(layer)),
                    (Function::Schedule, false) => f(tid, Crossing::Sleeps { runnable: false }),
                    (Function::Schedule, true) => f(tid, Crossing::Wakes),
                    (Function::Other, _) => {}
                }
            }
            CrossingFields::Wait { leaves: false } => f(tid, Crossing::Sleeps { runnable: false }),
            CrossingFields::Wait { leaves: true } => f(tid, Crossing::Wakes),
            CrossingFields::Boundary { layer, leaves: false } => f(tid, Crossing::Enter(*layer)),
            CrossingFields::Boundary { layer, leaves: true } => f(tid, Crossing::Leave(*layer)),
        }
    }
}

fn plan(schema: &Schema, layers: &HashMap<&str, &str>) -> Option<CrossingFields> {
    let field = |name: &str| schema.field(name).cloned();
    if schema.system == "flashscope" || schema.system.starts_with("flashscope_") {
        let (symbol, leaves) = match schema.name.strip_prefix("enter_") {
            Some(symbol) => (symbol, false),
            None => (schema.name.strip_prefix("leave_")?, true),
        };
        return match layers.get(symbol) {
            Some(&"wait") => Some(CrossingFields::Wait { leaves }),
            Some(layer) => Some(CrossingFields::Boundary { layer: Layer::of_agent(layer)?, leaves }),
            None => Some(CrossingFields::Boundary { layer: Layer::of_function(symbol)?, leaves }),
        };
    }
    match (schema.system.as_str(), schema.name.as_str()) {
        ("syscalls", name) => match name.strip_prefix("sys_enter_") {
            Some(call) => Some(CrossingFields::Enter(CallKind::of_call(call)?, field("fd"))),
            None => Some(CrossingFields::Exit(CallKind::of_call(name.strip_prefix("sys_exit_")?)?, field("ret"))),
        },
        ("sched", "sched_switch") => Some(CrossingFields::Switch {
            prev: field("prev_pid")?,
            state: field("prev_state"),
            next: field("next_pid")?,
        }),
        ("irq", "irq_handler_entry" | "softirq_entry") => {
            Some(CrossingFields::Boundary { layer: Layer::Interrupt, leaves: false })
        }
        ("irq", "irq_handler_exit" | "softirq_exit") => {
            Some(CrossingFields::Boundary { layer: Layer::Interrupt, leaves: true })
        }
        ("ftrace", "funcgraph_entry") => Some(CrossingFields::Function { function: field("func")?, leaves: false }),
        ("ftrace", "funcgraph_exit") => Some(CrossingFields::Function { function: field("func")?, leaves: true }),
        _ => None,
    }
}

/// Largest number of symbols that are read.
const MAX_SYMBOLS: usize = 1 << 20;

/// Parses lines `ffffffff81000000 T name [module]`.
fn symbols(text: Option<&str>) -> Vec<(u64, Function)> {
    let mut found: Vec<(u64, Function)> = text
        .into_iter()
        .flat_map(str::lines)
        .take(MAX_SYMBOLS)
        .filter_map(|line| {
            let mut words = line.split_ascii_whitespace();
            let address = u64::from_str_radix(words.next()?, 16).ok()?;
            let name = words.nth(1)?;
            let function = match name {
                "schedule" | "io_schedule" | "schedule_timeout" | "io_schedule_timeout" | "jbd2_log_wait_commit" => {
                    Function::Schedule
                }
                name => Layer::of_function(name).map_or(Function::Other, Function::Of),
            };
            Some((address, function))
        })
        .collect();
    found.sort_by_key(|(address, _)| *address);
    found.dedup_by_key(|(address, _)| *address);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_have_their_layers() {
        for (name, layer) in [
            ("ksys_read", Some(Layer::Vfs)),
            ("__x64_sys_read", Some(Layer::Vfs)),
            ("filemap_read", Some(Layer::PageCache)),
            ("ext4_mpage_readpages", Some(Layer::FileSystem)),
            ("jffs2_do_readpage_nolock", Some(Layer::FileSystem)),
            ("submit_bio_noacct", Some(Layer::Block)),
            ("__submit_bio", Some(Layer::Block)),
            ("blk_mq_flush_plug_list.part.0", Some(Layer::Block)),
            ("mtd_read_oob", Some(Layer::Mtd)),
            ("mtd_queue_rq", Some(Layer::Block)),
            ("nand_read_page_op", Some(Layer::Device)),
            ("nand_read_oob", Some(Layer::Driver)),
            ("null_queue_rq", Some(Layer::Driver)),
            ("ubi_io_read", Some(Layer::Ubi)),
            ("handle_irq_event", Some(Layer::Interrupt)),
            ("bio_endio", Some(Layer::Interrupt)),
            ("bio_add_page", Some(Layer::Block)),
            ("mutex_lock", None),
            ("", None),
        ] {
            assert_eq!(Layer::of_function(name), layer, "{name}");
        }
        for layer in Layer::ALL {
            assert_eq!(Layer::from_name(layer.name()), Some(layer));
        }
    }
}
