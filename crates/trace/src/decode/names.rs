//! Names of tasks by thread id and time.

use crate::decode::lives::{CloneStep, Lives};
use crate::ids::TaskId;
use foldhash::HashMap;
use std::collections::HashSet;
use std::ops::Range;

/// Largest number of entries; a busy build forks some hundred tasks a second.
const MAX_ENTRIES: usize = 200_000;
/// Largest number of different names.
const MAX_NAMES: usize = 100_000;
/// Longest name that is kept, in bytes: the kernel's names have 15, the long names of its workers 64.
const MAX_NAME: usize = 64;
/// Largest number of known user tasks.
const MAX_USERS: usize = 1 << 16;
/// `kthreadd`, the parent of all kernel threads (`rest_init()` of init/main.c, 6.1).
const KTHREADD: TaskId = TaskId(2);

/// A task has a name (index into `texts`) from a time on.
#[derive(Clone, Copy, Debug)]
struct Entry {
    from: u64,
    name: u32,
    /// The same task was renamed, as by an `exec`. `false`: the number may have gone to another task.
    is_rename: bool,
}

/// Names of tasks over time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    texts: Vec<Box<str>>,
    by_text: HashMap<Box<str>, u32>,
    tasks: foldhash::HashMap<TaskId, Vec<Entry>>,
    /// Names without a time.
    saved: HashMap<TaskId, u32>,
    entries: usize,
    users: HashSet<TaskId>,
    lives: HashMap<TaskId, Lives>,
    /// For numbers that several tasks had: from each time on, the ordinal among the tasks with this last name.
    ordinals: HashMap<TaskId, Vec<(u64, u32)>>,
    pub dropped: u64,
}

impl Names {
    /// `tid` has the name `comm` from `time` on. Times of one `tid` should not run backwards; if they do, the later call counts.
    pub fn set(&mut self, tid: TaskId, time: u64, comm: &[u8]) {
        self.enter(tid, time, comm, false);
    }

    /// A new task begins. It may have the number and name of an earlier task.
    pub fn begin(&mut self, tid: TaskId, time: u64, comm: &[u8]) {
        self.enter(tid, time, comm, false);
        if let Some(last) = self.tasks.get(&tid).and_then(|list| list.last()).copied()
            && last.from < time
            && self.entries < MAX_ENTRIES
        {
            let again = Entry { from: time, name: last.name, is_rename: false };
            self.tasks.entry(tid).or_default().push(again);
            self.entries += 1;
        }
    }

    /// A clone event of this task. Returns whether another task had the number before.
    pub fn cloned(&mut self, tid: TaskId, step: CloneStep, time: u64) -> bool {
        if self.lives.len() >= MAX_ENTRIES && !self.lives.contains_key(&tid) {
            self.dropped += 1;
            return false;
        }
        self.lives.entry(tid).or_default().begin(step, time)
    }

    /// A task ended: its number is free.
    pub fn ended(&mut self, tid: TaskId) {
        if self.lives.len() < MAX_ENTRIES || self.lives.contains_key(&tid) {
            self.lives.entry(tid).or_default().end();
        }
    }

    /// Computes the ordinals of tasks that share a number and a name. Call it when all names are known.
    pub fn number_tasks(&mut self) {
        let several = self.lives.iter().filter(|(_, lives)| !lives.begins().is_empty());
        self.ordinals = several.map(|(&tid, lives)| (tid, self.ordinals(tid, lives.begins()))).collect();
    }

    fn ordinals(&self, tid: TaskId, begins: &[u64]) -> Vec<(u64, u32)> {
        let list = self.tasks.get(&tid).map_or(&[][..], Vec::as_slice);
        let named = list.chunk_by(|_, next| next.is_rename).flat_map(|names| {
            // Renames of a task whose first name is unknown.
            let last = names.last().filter(|_| !names[0].is_rename).map(|entry| entry.name);
            names.iter().map(move |entry| (entry.from, Some(last.unwrap_or(entry.name))))
        });
        let mut named = std::iter::once((0, None)).chain(named).peekable();
        let mut begins = begins.iter().copied().peekable();
        let (mut name, mut task, mut ordinals) = (None, 0, Vec::new());
        // By name: the last task that had it, and the count of tasks that had it.
        let mut tasks: HashMap<Option<u32>, (usize, u32)> = HashMap::default();
        while let Some(from) = named.peek().map(|one| one.0).into_iter().chain(begins.peek().copied()).min() {
            task += usize::from(begins.next_if_eq(&from).is_some());
            while let Some((_, now)) = named.next_if(|one| one.0 == from) {
                name = now;
            }
            let (last, number) = tasks.entry(name).or_insert((task, 1));
            if *last != task {
                (*last, *number) = (task, *number + 1);
            }
            ordinals.push((from, *number));
        }
        ordinals
    }

    /// The ordinal, from 1, among the tasks that had this number and name one after the other.
    pub fn ordinal(&self, tid: TaskId, time: u64) -> u32 {
        let Some(list) = self.ordinals.get(&tid) else { return 1 };
        let after = list.partition_point(|&(from, _)| from <= time);
        after.checked_sub(1).map_or(1, |at| list[at].1)
    }

    /// The task that has `tid` at `time` is renamed.
    pub fn rename(&mut self, tid: TaskId, time: u64, comm: &[u8]) {
        self.enter(tid, time, comm, true);
    }

    fn enter(&mut self, tid: TaskId, time: u64, comm: &[u8], is_rename: bool) {
        let Some(name) = self.text(comm) else { return };
        let full = self.entries >= MAX_ENTRIES;
        if full && !self.tasks.contains_key(&tid) {
            self.dropped += 1;
            return;
        }
        let list = self.tasks.entry(tid).or_default();
        let is_known = list.len() > 1;
        match list.last_mut() {
            // In text, the line of the rename may already have the new name.
            Some(last) if last.name == name => last.is_rename |= is_rename && last.from == time && is_known,
            Some(last) if last.from >= time => last.name = name,
            _ if full => self.dropped += 1,
            _ => {
                list.push(Entry { from: time, name, is_rename });
                self.entries += 1;
            }
        }
    }

    /// A task was created by another one: only kthreadd creates kernel threads.
    pub fn forked(&mut self, tid: TaskId, by: TaskId) {
        match by {
            KTHREADD => drop(self.users.remove(&tid)),
            _ => self.executed(tid),
        }
    }

    /// A task executed a program, so it is not a kernel thread.
    pub fn executed(&mut self, tid: TaskId) {
        if tid != TaskId(0) && self.users.len() < MAX_USERS {
            self.users.insert(tid);
        }
    }

    /// Tasks that are known not to be kernel threads.
    pub fn users(&self) -> &HashSet<TaskId> {
        &self.users
    }

    /// The tracer's name of `tid` at the end (`saved_cmdlines`). It is used if nothing tells the name at a time.
    pub fn set_saved(&mut self, tid: TaskId, comm: &[u8]) {
        if self.entries >= MAX_ENTRIES && !self.saved.contains_key(&tid) {
            self.dropped += 1;
        } else if let Some(name) = self.text(comm)
            && self.saved.insert(tid, name).is_none()
        {
            self.entries += 1;
        }
    }

    /// The index of a name. `None`, which is counted, if there are too many names.
    fn text(&mut self, comm: &[u8]) -> Option<u32> {
        let text = String::from_utf8_lossy(&comm[..comm.len().min(MAX_NAME)]);
        match self.by_text.get(text.as_ref()) {
            Some(&n) => Some(n),
            None if self.texts.len() < MAX_NAMES => {
                let n = self.texts.len() as u32;
                let boxed: Box<str> = text.into();
                self.texts.push(boxed.clone());
                self.by_text.insert(boxed, n);
                Some(n)
            }
            None => {
                self.dropped += 1;
                None
            }
        }
    }

    fn saved(&self, tid: TaskId) -> Option<&str> {
        Some(&self.texts[*self.saved.get(&tid)? as usize])
    }

    /// Whether there is a name of `tid` with a time.
    pub fn knows(&self, tid: TaskId) -> bool {
        self.tasks.contains_key(&tid)
    }

    pub fn get(&self, tid: TaskId, time: u64) -> Option<&str> {
        if tid == TaskId(0) {
            return Some("<idle>");
        }
        let Some(list) = self.tasks.get(&tid) else { return self.saved(tid) };
        let after = list.partition_point(|entry| entry.from <= time);
        list.get(after.checked_sub(1)?).map(|entry| self.name(entry))
    }

    fn name(&self, entry: &Entry) -> &str {
        &self.texts[entry.name as usize]
    }

    /// The last name of the task that has `tid` at `time`.
    pub fn last_of_task(&self, tid: TaskId, time: u64) -> Option<&str> {
        match self.names_of_task(tid, time).last() {
            Some(last) => Some(self.name(last)),
            None => self.get(tid, time),
        }
    }

    /// The range of time around `time` in which the task's names do not change; the end is exclusive.
    pub fn hold(&self, tid: TaskId, time: u64) -> Range<u64> {
        let list = self.tasks.get(&tid).map_or(&[][..], Vec::as_slice);
        let after = list.partition_point(|entry| entry.from <= time);
        let from = after.checked_sub(1).map_or(0, |at| list[at].from);
        let until = list.get(after).map_or(u64::MAX, |entry| entry.from);
        let Some(list) = self.ordinals.get(&tid) else { return from..until };
        let after = list.partition_point(|&(from, _)| from <= time);
        let begun = after.checked_sub(1).map_or(0, |at| list[at].0);
        from.max(begun)..list.get(after).map_or(until, |&(next, _)| next.min(until))
    }

    /// Earlier names of the task whose last name is `last`, oldest first.
    pub fn former_of_task(&self, tid: TaskId, last: &str) -> Vec<&str> {
        let list = self.tasks.get(&tid).map_or(&[][..], Vec::as_slice);
        let mut tasks = list.chunk_by(|_, next| next.is_rename);
        let is_it = |names: &&[Entry]| names.last().is_some_and(|entry| self.name(entry) == last);
        let names = tasks.rfind(is_it).unwrap_or_default();
        names[..names.len().saturating_sub(1)].iter().map(|entry| self.name(entry)).collect()
    }

    fn names_of_task(&self, tid: TaskId, time: u64) -> &[Entry] {
        let list = self.tasks.get(&tid).map_or(&[][..], Vec::as_slice);
        let after = list.partition_point(|entry| entry.from <= time);
        let renames = list[after..].iter().take_while(|entry| entry.is_rename).count();
        let Some(begin) = list[..after].iter().rposition(|entry| !entry.is_rename) else { return &[] };
        &list[begin..after + renames]
    }

    /// Like `get`, with the beginning and the end of the time that it holds for; the end is exclusive.
    pub fn span(&self, tid: TaskId, time: u64) -> (Option<&str>, u64, u64) {
        if tid == TaskId(0) {
            return (Some("<idle>"), 0, u64::MAX);
        }
        let Some(list) = self.tasks.get(&tid) else { return (self.saved(tid), 0, u64::MAX) };
        let after = list.partition_point(|entry| entry.from <= time);
        let until = list.get(after).map_or(u64::MAX, |entry| entry.from);
        match after.checked_sub(1).and_then(|i| list.get(i)) {
            Some(entry) => (Some(self.name(entry)), entry.from, until),
            None => (None, 0, until),
        }
    }

    /// The last name of every task, by thread id.
    pub fn last(&self) -> Vec<(TaskId, &str)> {
        let mut all: Vec<_> =
            self.tasks.iter().filter_map(|(&tid, list)| Some((tid, self.name(list.last()?)))).collect();
        let only_saved = self.saved.keys().filter(|tid| !self.tasks.contains_key(tid));
        all.extend(only_saved.filter_map(|&tid| Some((tid, self.saved(tid)?))));
        all.sort_unstable();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_holds_from_its_time_on() {
        let mut n = Names::default();
        n.set(TaskId(7), 0, b"sh");
        n.set(TaskId(7), 100, b"cat");
        n.set(TaskId(7), 100, b"dog");
        n.set(TaskId(7), 200, b"dog");
        n.set(TaskId(9), 50, b"\xff");
        assert_eq!(n.get(TaskId(7), 99), Some("sh"));
        assert_eq!(n.get(TaskId(7), 100), Some("dog"));
        assert_eq!(n.get(TaskId(9), 49), None);
        assert_eq!(n.get(TaskId(9), 51), Some("\u{fffd}"));
        assert_eq!(n.get(TaskId(0), 0), Some("<idle>"));
        assert_eq!(n.span(TaskId(7), 150), (Some("dog"), 100, u64::MAX));
        assert_eq!(n.span(TaskId(9), 49), (None, 0, 50));
        assert_eq!(n.span(TaskId(7), 5), (Some("sh"), 0, 100));
        assert_eq!(n.get(TaskId(8), 0), None);
        assert_eq!(n.last(), [(TaskId(7), "dog"), (TaskId(9), "\u{fffd}")]);
    }

    #[test]
    fn a_renamed_task_is_one_and_a_number_that_is_used_again_is_another() {
        let mut n = Names::default();
        n.set(TaskId(7), 10, b"sh");
        n.rename(TaskId(7), 100, b"dd");
        n.rename(TaskId(7), 200, b"cat");
        n.set(TaskId(7), 300, b"sh");
        n.rename(TaskId(7), 400, b"ls");
        assert_eq!(
            (n.get(TaskId(7), 50), n.last_of_task(TaskId(7), 50), n.last_of_task(TaskId(7), 250)),
            (Some("sh"), Some("cat"), Some("cat"))
        );
        assert_eq!(n.former_of_task(TaskId(7), "cat"), ["sh", "dd"]);
        assert_eq!((n.last_of_task(TaskId(7), 300), n.former_of_task(TaskId(7), "ls")), (Some("ls"), vec!["sh"]));
        assert_eq!(
            (n.hold(TaskId(7), 5), n.hold(TaskId(7), 150), n.hold(TaskId(7), 400)),
            (0..10, 100..200, 400..u64::MAX)
        );
        assert_eq!(n.hold(TaskId(9), 5), 0..u64::MAX);
        n.begin(TaskId(7), 500, b"ls");
        n.rename(TaskId(7), 600, b"cp");
        assert_eq!((n.last_of_task(TaskId(7), 450), n.last_of_task(TaskId(7), 550)), (Some("ls"), Some("cp")));
        assert_eq!((n.last_of_task(TaskId(7), 9), n.last_of_task(TaskId(0), 9)), (None, Some("<idle>")));
        // A text's line with the rename has the new name.
        n.set(TaskId(9), 0, b"sh");
        n.set(TaskId(9), 10, b"dd");
        n.rename(TaskId(9), 10, b"dd");
        assert_eq!(n.last_of_task(TaskId(9), 5), Some("dd"));
        // Where nothing says that it is the same task, it is another one.
        n.set(TaskId(8), 0, b"a");
        n.set(TaskId(8), 10, b"b");
        assert_eq!((n.last_of_task(TaskId(8), 5), n.former_of_task(TaskId(8), "b")), (Some("a"), vec![]));
    }

    #[test]
    fn tasks_with_one_number_and_name_are_numbered() {
        let mut n = Names::default();
        let tid = TaskId(500);
        n.set(tid, 0, b"tar");
        n.ended(tid);
        for (time, program) in [(100, &b"gzip"[..]), (200, b"tar"), (300, b"tar")] {
            assert!(n.cloned(tid, CloneStep::NewTask, time));
            n.begin(tid, time, b"sh");
            assert!(!n.cloned(tid, CloneStep::Fork, time + 1));
            n.begin(tid, time + 1, b"sh");
            n.rename(tid, time + 10, program);
            n.ended(tid);
        }
        n.number_tasks();
        let of = |time| (n.last_of_task(tid, time).unwrap(), n.ordinal(tid, time));
        assert_eq!([0, 99, 101, 150].map(of), [("tar", 1), ("tar", 1), ("gzip", 1), ("gzip", 1)]);
        assert_eq!([201, 299, 301, 900].map(of), [("tar", 2), ("tar", 2), ("tar", 3), ("tar", 3)]);
        assert_eq!((n.hold(tid, 50), n.hold(tid, 250)), (0..100, 210..300));
        assert_eq!((n.ordinal(TaskId(7), 5), n.hold(TaskId(7), 5)), (1, 0..u64::MAX));
        // None of its names is known.
        n.cloned(TaskId(8), CloneStep::Fork, 10);
        n.cloned(TaskId(8), CloneStep::Fork, 20);
        n.number_tasks();
        assert_eq!([5, 15, 25].map(|time| n.ordinal(TaskId(8), time)), [1, 1, 2]);
        assert_eq!(n.hold(TaskId(8), 15), 0..20);
    }

    #[test]
    fn a_name_without_a_time_holds_where_no_other_does() {
        let mut n = Names::default();
        n.set_saved(TaskId(7), b"cat");
        n.set_saved(TaskId(8), b"init");
        assert!(!n.knows(TaskId(7)));
        assert_eq!(n.span(TaskId(7), 5), (Some("cat"), 0, u64::MAX));
        n.set(TaskId(7), 0, b"sh");
        assert_eq!((n.get(TaskId(7), 100), n.get(TaskId(8), 100)), (Some("sh"), Some("init")));
        assert_eq!(n.last(), [(TaskId(7), "sh"), (TaskId(8), "init")]);
    }
}
