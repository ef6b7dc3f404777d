//! The results about originators.

use super::{DirectUse, FormerName};
use crate::{Evidence, Unknown};
use flashscope_trace::{RequestKind, TaskId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Kind of an originator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OwnerKind {
    Task,
    /// A journal's, a garbage collector's or another kernel thread's own work.
    Kernel,
    /// Several tasks dirtied the page.
    Shared,
    /// A carrier without a known originator.
    Unknown,
}

/// Bytes that a carrier moved for an originator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct CarriedBytes {
    pub carrier: String,
    pub read_bytes: u64,
    pub written_bytes: u64,
}

/// I/O of one originator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct Originator {
    pub name: String,
    pub kind: OwnerKind,
    pub tid: TaskId,
    /// Its ordinal among tasks with this number and name, where it is not the first: the kernel reuses numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordinal: Option<u32>,
    /// Its names before this one, for example before an `exec`: it is one task, and its I/O is counted together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former_names: Vec<String>,
    /// How much of its I/O it did under such names, most first; those without I/O are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub under_former_names: Vec<FormerName>,
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// Bytes covered by discards, secure erases and writes of zeroes, which move no data.
    #[serde(default)]
    pub covered_bytes: u64,
    /// Most bytes first.
    pub carriers: Vec<CarriedBytes>,
}

impl Originator {
    /// Whether this is its name in a table, with or without its number.
    pub fn is_called(&self, name: &str) -> bool {
        let Some(rest) = name.strip_prefix(&*self.name) else { return false };
        let number = rest.strip_prefix(" (").and_then(|rest| rest.strip_suffix(')'));
        rest.is_empty() || number.is_some_and(|number| number == self.tid.to_string())
    }
}

/// Bytes queued of one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct FileBytes {
    pub device: String,
    pub inode: u64,
    /// The path, marked if the file was deleted or renamed: `/data/a (deleted)`; where the recording has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    pub written_bytes: u64,
}

/// Largest part of the bytes of all tasks with one number that others may have: a tenth.
const MOST_OF_OTHERS: u64 = 10;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct OriginatorsFound {
    /// Most bytes first.
    pub originators: Vec<Originator>,
    /// Written bytes of pages dirtied by one task; by several; of a kernel thread's own; of unknown originators.
    pub written_one_bytes: Evidence<u64>,
    pub written_shared_bytes: Evidence<u64>,
    pub written_kernel_bytes: Evidence<u64>,
    pub written_unknown_bytes: Evidence<u64>,
    /// Written bytes whose originator is the task that queued them.
    pub written_direct_bytes: Evidence<u64>,
    /// Bios of several originators.
    pub mixed_bios: Evidence<u64>,
    /// Files written back from the page cache, most bytes first; at most 256.
    pub files: Vec<FileBytes>,
    /// Files read and written past it.
    #[serde(skip)]
    pub direct: Vec<DirectUse>,
    /// Dirty pages that were forgotten before they were written, or lie in too many pieces of one write; below: extents that were
    /// forgotten. There were too many.
    pub pages_given_up: u64,
    pub extents_given_up: u64,
    /// Dirtied files, files being read or written back, written files and partitions that were not kept: too many.
    pub files_given_up: u64,
}

/// Sums over all owners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WrittenSums {
    pub one_bytes: u64,
    pub shared_bytes: u64,
    pub kernel_bytes: u64,
    pub unknown_bytes: u64,
    pub direct_bytes: u64,
    pub mixed_bios: u64,
}

impl WrittenSums {
    pub fn bytes(&self) -> u64 {
        let all = [self.one_bytes, self.shared_bytes, self.kernel_bytes, self.unknown_bytes, self.direct_bytes];
        all.into_iter().fold(0, u64::saturating_add)
    }
}

impl OriginatorsFound {
    /// The task with a thread's number, for sums by number. Where several tasks had it in turn, the sums are of all: it is
    /// the one with nearly all of their bytes, or `None`.
    pub fn task(&self, tid: TaskId) -> Option<&Originator> {
        let all = || self.originators.iter().filter(|one| one.tid == tid && one.kind == OwnerKind::Task);
        let bytes =
            |one: &Originator| one.read_bytes.saturating_add(one.written_bytes).saturating_add(one.covered_bytes);
        let sum = all().map(bytes).fold(0, u64::saturating_add);
        let mut tasks = all();
        let first = tasks.next()?;
        let Some(_) = tasks.next() else { return Some(first) };
        let most = all().max_by_key(|one| bytes(one))?;
        (sum > 0 && sum - bytes(most) <= sum / MOST_OF_OTHERS).then_some(most)
    }

    /// Written bytes by originator, where the trace shows it.
    pub fn written(&self) -> Option<WrittenSums> {
        Some(WrittenSums {
            one_bytes: *self.written_one_bytes.known()?,
            shared_bytes: *self.written_shared_bytes.known()?,
            kernel_bytes: *self.written_kernel_bytes.known()?,
            unknown_bytes: *self.written_unknown_bytes.known()?,
            direct_bytes: *self.written_direct_bytes.known()?,
            mixed_bios: *self.mixed_bios.known()?,
        })
    }

    pub(in crate::block) fn set_written(&mut self, sums: Evidence<WrittenSums>) {
        let of = |figure: fn(&WrittenSums) -> u64| sums.as_ref().map(figure);
        self.written_one_bytes = of(|sums| sums.one_bytes);
        self.written_shared_bytes = of(|sums| sums.shared_bytes);
        self.written_kernel_bytes = of(|sums| sums.kernel_bytes);
        self.written_unknown_bytes = of(|sums| sums.unknown_bytes);
        self.written_direct_bytes = of(|sums| sums.direct_bytes);
        self.mixed_bios = of(|sums| sums.mixed_bios);
    }

    /// Marks totals over devices or owners as unknown.
    pub(in crate::block) fn is_unknown(&mut self, why: &Unknown) {
        (self.originators, self.files) = (Vec::new(), Vec::new());
        self.set_written(Evidence::Unknown(why.clone()));
    }
}

/// The sum that an operation's bytes belong to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Moved {
    Read,
    Written,
    Covered,
}

impl Moved {
    pub fn of(kind: RequestKind) -> Moved {
        match kind {
            RequestKind::Read => Moved::Read,
            kind if kind.writes_data() => Moved::Written,
            _ => Moved::Covered,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_originator_has_its_name_alone_or_with_its_number() {
        let named = |name: &str| {
            let json = serde_json::json!({
                "name": name, "kind": "task", "tid": 12, "read_bytes": 0, "written_bytes": 0, "carriers": []
            });
            serde_json::from_value::<Originator>(json).unwrap()
        };
        let cat = named("cat");
        assert!(cat.is_called("cat") && cat.is_called("cat (12)"));
        for other in ["ca", "cat2", "cat (1)", "cat (012)", "cat (12", "cat 12", "cat (12) (12)", ""] {
            assert!(!cat.is_called(other), "{other}");
        }
        assert!(named("cat (12)").is_called("cat (12) (12)") && named("").is_called(" (12)"));
    }

    #[test]
    fn a_number_of_several_tasks_is_that_of_nearly_all_bytes_or_of_none() {
        let of = |kind: &str, bytes: &[u64]| {
            let one = |(at, bytes): (usize, &u64)| {
                let name = format!("tar{at} (12)");
                let json = serde_json::json!({
                    "name": name, "kind": kind, "tid": 12, "read_bytes": bytes, "written_bytes": 0, "carriers": []
                });
                serde_json::from_value(json).unwrap()
            };
            let originators = bytes.iter().enumerate().map(one).collect();
            let found = OriginatorsFound { originators, ..OriginatorsFound::default() };
            found.task(TaskId(12)).map(|one| one.name.clone())
        };
        for bytes in [&[0][..], &[910, 90], &[900, 100]] {
            assert_eq!(of("task", bytes).as_deref(), Some("tar0 (12)"), "{bytes:?}");
        }
        for bytes in [&[890, 110][..], &[0, 0], &[]] {
            assert_eq!(of("task", bytes), None, "{bytes:?}");
        }
        assert_eq!(of("unknown", &[5]), None);
    }
}
