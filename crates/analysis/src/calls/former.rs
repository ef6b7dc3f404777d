//! Calls that a process made under a name that it had before an `exec` or another change of name.

use foldhash::HashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;

/// Most groups. Calls beyond have the last name alone.
const MAX_GROUPS: usize = 1 << 12;

/// Calls of one kind by one process under one of its earlier names. They are in the sums of the process, too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct FormerCalls {
    pub call: String,
    /// The process as in the other tables: `NAME (THREAD)`.
    pub name: String,
    pub former_name: String,
    pub n: u64,
    pub total_ns: u64,
}

#[derive(Default)]
pub(crate) struct Former(HashMap<(String, String, String), (u64, u64)>);

impl Former {
    pub fn add(&mut self, call: &str, name: &str, former_name: String, duration: u64) {
        let key = (call.to_owned(), name.to_owned(), former_name);
        if self.0.len() < MAX_GROUPS || self.0.contains_key(&key) {
            let (n, total) = self.0.entry(key).or_default();
            (*n, *total) = (*n + 1, total.saturating_add(duration));
        }
    }

    /// Most time first.
    pub fn finish(self) -> Vec<FormerCalls> {
        let group = |((call, name, former_name), (n, total_ns))| FormerCalls { call, name, former_name, n, total_ns };
        let mut all: Vec<FormerCalls> = self.0.into_iter().map(group).collect();
        all.sort_by(|a, b| {
            (Reverse(a.total_ns), &a.call, &a.name, &a.former_name).cmp(&(
                Reverse(b.total_ns),
                &b.call,
                &b.name,
                &b.former_name,
            ))
        });
        all
    }
}

#[cfg(test)]
mod tests {
    use crate::{Analysis as _, Member};
    use flashscope_trace::{Device, EventKind, FileStep, TimeNs};
    use std::borrow::Cow;

    /// python3 writes for 3 ms and executes dd, which writes for 1 ms: the sums have both, and say how much was python3's.
    #[test]
    fn calls_before_an_exec_are_named() {
        use crate::calls::Calls;
        use crate::testing::{call, event, file};
        let named = |_, time: TimeNs| {
            let former_name = (time.0 < 10_000_000).then_some("python3");
            Some(Member {
                name: Cow::Borrowed("dd"),
                key: None,
                ordinal: 1,
                is_wanted: false,
                former_name,
                holds: 0..0,
            })
        };
        let mut calls = Calls::new(named);
        for (begin, end) in [(1_000_000, 4_000_000), (20_000_000, 21_000_000)] {
            calls.event(&event(begin, 7, call("sys_enter_write", None)));
            let write = file(FileStep::Write, Some(Device::new(8, 1)), 12, 0, 4096);
            calls.event(&event(begin + 1, 7, EventKind::File(write)));
            calls.event(&event(end, 7, call("sys_exit_write", Some(4096))));
        }
        let found = calls.finish();
        let groups: Vec<_> = found.by_process.iter().map(|one| (one.name.as_str(), one.ns.n, one.total_ns)).collect();
        assert_eq!(groups, [("dd (7)", 2, 4_000_000)]);
        let [former] = &found.under_former_names[..] else { panic!("{found:?}") };
        assert_eq!((former.name.as_str(), former.former_name.as_str()), ("dd (7)", "python3"));
        assert_eq!((former.call.as_str(), former.n, former.total_ns), ("write", 1, 3_000_000));
    }
}
