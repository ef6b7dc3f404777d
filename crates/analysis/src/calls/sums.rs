//! Sums of calls by group, in bounded memory.

use crate::bounded::FURTHER;
use crate::latency::{LatencyHistogram, LatencyNs};
use foldhash::HashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;

/// Most groups by process and call, and by file and call. With more, the half with least time so far is merged into one group for
/// each call.
pub(crate) const MAX_GROUPS: usize = 8192;
/// Most known processes and files with a call, including those without a group of their own.
const MAX_KNOWN: usize = 1 << 16;

/// Calls of one kind by one process, or of one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
pub struct CallGroup {
    /// Name in the kernel: `read`, `fsync`, `openat`; or `page fault`.
    pub call: String,
    /// `NAME (THREAD)`, `DEVICE inode N`, or `(all)`.
    pub name: String,
    /// A file's path, where the recording has it; marked if the file was deleted or renamed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Bytes of the file that reads and writes requested, where the trace shows them: none beyond its end.
    pub bytes: u64,
    pub total_ns: u64,
    pub ns: LatencyNs,
}

/// Key of a sum; `path`: of the file, where several files had its inode number in turn.
#[derive(PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) call: String,
    pub(crate) name: String,
    pub(crate) path: Option<String>,
}

impl Key {
    pub(crate) fn new(call: &str, name: String) -> Key {
        Key { call: call.to_owned(), name, path: None }
    }
}

#[derive(Default)]
struct Sum {
    bytes: u64,
    times: LatencyHistogram,
}

impl Sum {
    fn add(&mut self, bytes: u64, duration: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.times.add(duration);
    }

    fn merge(&mut self, other: &Sum) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.times.merge(&other.times);
    }

    fn group(self, Key { call, name, path }: Key) -> CallGroup {
        let (bytes, total_ns, ns) = (self.bytes, self.times.total_ns(), self.times.finish());
        CallGroup { call, name, path, bytes, total_ns, ns }
    }
}

/// Sums by call and name.
#[derive(Default)]
pub(crate) struct Sums {
    /// `None`: merged, without a group of its own.
    groups: HashMap<Key, Option<Sum>>,
    with_group: usize,
    /// The merged groups, by call.
    further: HashMap<String, Sum>,
}

impl Sums {
    pub(crate) fn add(&mut self, key: Key, bytes: u64, duration: u64) {
        if let Some(sum) = self.groups.get_mut(&key) {
            let further = &mut self.further;
            sum.as_mut().unwrap_or_else(|| further.entry(key.call).or_default()).add(bytes, duration);
            return;
        }
        let known = self.groups.len() < MAX_KNOWN;
        if self.with_group == MAX_GROUPS && known {
            self.keep_longest(MAX_GROUPS / 2);
        }
        if self.with_group < MAX_GROUPS && known {
            let mut sum = Sum::default();
            sum.add(bytes, duration);
            self.groups.insert(key, Some(sum));
            self.with_group += 1;
            return;
        }
        self.further.entry(key.call.clone()).or_default().add(bytes, duration);
        if known {
            self.groups.insert(key, None);
        }
    }

    /// Keeps the `most` groups with most time. The others never get one again, so every listed sum is complete.
    fn keep_longest(&mut self, most: usize) {
        let time = |sum: &Option<Sum>| sum.as_ref().map_or(0, |sum| sum.times.total_ns());
        let mut times: Vec<u64> = self.groups.values().map(time).collect();
        times.sort_unstable_by_key(|&ns| Reverse(ns));
        let Some(&least) = times.get(most) else { return };
        for (key, sum) in &mut self.groups {
            if let Some(left) = sum.take_if(|sum| sum.times.total_ns() <= least) {
                self.further.entry(key.call.clone()).or_default().merge(&left);
                self.with_group -= 1;
            }
        }
    }

    /// Groups with most time first.
    pub(crate) fn finish(self) -> Vec<CallGroup> {
        let own = self.groups.into_iter().filter_map(|(key, sum)| Some((key, sum?)));
        let further = self.further.into_iter().map(|(call, sum)| (Key::new(&call, FURTHER.to_owned()), sum));
        let mut groups: Vec<CallGroup> = own.chain(further).map(|(key, sum)| sum.group(key)).collect();
        groups.sort_by(|a, b| {
            let key = |group: &CallGroup| {
                (Reverse(group.total_ns), group.call.clone(), group.name.clone(), group.path.clone())
            };
            key(a).cmp(&key(b))
        });
        groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_of_many_have_groups_of_their_own() {
        let mut sums = Sums::default();
        let key = |inode: u64| Key::new("read", format!("8:1 inode {inode}"));
        let many = MAX_KNOWN as u64 + 5000;
        for inode in 0..many {
            sums.add(key(inode), 1, 10);
            if inode == 20_000 {
                sums.add(key(1 << 40), 7, 1_000_000);
            }
            if inode % 5000 == 0 {
                sums.add(key(0), 1, 1000);
            }
        }
        let groups = sums.finish();
        assert!(groups.len() <= MAX_GROUPS + 1);
        let first: Vec<_> =
            groups[..3].iter().map(|group| (group.name.as_str(), group.bytes, group.total_ns)).collect();
        assert_eq!(first[0], ("8:1 inode 1099511627776", 7, 1_000_000));
        assert_eq!(first[1].0, FURTHER);
        let again = many.div_ceil(5000);
        assert_eq!(first[2], ("8:1 inode 0", 1 + again, 10 + again * 1000));
        assert_eq!(groups.iter().map(|group| group.bytes).sum::<u64>(), many + 7 + again);
        assert_eq!(groups.iter().map(|group| group.ns.n).sum::<u64>(), many + 1 + again);
    }
}
