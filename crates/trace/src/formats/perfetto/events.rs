//! Converts Perfetto's messages of kernel events to events with names and fields.

use super::wire::{Fields, Wire, numbers};
use crate::formats::ftrace::system_of;
use crate::formats::parsed::{Item, Parsed, Value};
use crate::ids::TaskId;
use crate::losses::Loss;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

/// `FtraceEvent.generic`: the older form of events without a message of their own.
const GENERIC: u32 = 327;
/// `FtraceEvent.kprobe_event`
const KPROBE: u32 = 542;
/// Largest number of event kinds that a trace may describe.
const MAX_KINDS: usize = 4096;
/// Longest text, bytes.
const MAX_TEXT: usize = 4096;
/// Largest number of fields of an event.
const MAX_FIELDS: usize = 48;

/// A kind of event.
#[derive(Debug)]
pub(super) struct Kind {
    system: String,
    name: String,
    /// Fields by number: name, and whether it is signed.
    fields: HashMap<u32, (String, bool)>,
    /// Device numbers are the C library's `dev_t`, as in Perfetto's own messages of kernel events.
    user_devices: bool,
}

impl Kind {
    /// A kind that the trace describes.
    pub fn described(group: &[u8], name: &[u8], fields: &[(u32, &[u8], bool)]) -> Option<Kind> {
        let text = |bytes: &[u8]| {
            let text = std::str::from_utf8(bytes).ok().filter(|t| !t.is_empty() && t.len() <= 128)?;
            text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_').then(|| text.to_string())
        };
        let name = text(name)?;
        let known = system_of(&name);
        let system = text(group).unwrap_or_else(|| known.to_string());
        let fields = fields.iter().filter_map(|&(n, name, signed)| Some((n, (text(name)?, signed)))).collect();
        // The fields of a probe are as the probe read them.
        Some(Kind { user_devices: known != "text" && known != "flashscope", system, name, fields })
    }
}

/// Kinds by their field number in FtraceEvent.
#[derive(Clone, Debug, Default)]
pub(super) struct Kinds(HashMap<u32, Arc<Kind>>);

impl Kinds {
    /// The kinds that have a message of their own in Perfetto (`events.txt`).
    pub fn shipped() -> Kinds {
        static SHIPPED: LazyLock<Kinds> = LazyLock::new(|| {
            let lines = include_str!("events.txt").lines().filter(|line| !line.starts_with('#'));
            Kinds(lines.filter_map(Kinds::line).collect())
        });
        SHIPPED.clone()
    }

    fn line(line: &str) -> Option<(u32, Arc<Kind>)> {
        let mut words = line.split(' ');
        let id = words.next()?.parse().ok()?;
        let system = words.next()?;
        let name = words.next()?.to_string();
        let field = |word: &str| {
            let (name, number) = word.split_once(':')?;
            let signed = number.ends_with('-');
            Some((number.trim_end_matches('-').parse().ok()?, (name.to_string(), signed)))
        };
        let fields = words.filter_map(field).collect();
        let system = if system == "-" { "text" } else { system }.to_string();
        Some((id, Arc::new(Kind { system, name, fields, user_devices: true })))
    }

    pub fn add(&mut self, id: u32, kind: Kind) {
        if self.0.len() < MAX_KINDS {
            // A trace cannot redefine Perfetto's own kinds.
            self.0.entry(id).or_insert_with(|| Arc::new(kind));
        }
    }
}

/// The task that runs on a CPU, from the compact form of `sched_switch`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Running(Option<TaskId>);

/// The events of a bundle in order of time.
pub(super) struct Bundle {
    bytes: Vec<u8>,
    /// Time and place of each event; the next event is at the end.
    order: Vec<(u64, Place)>,
    compact: Compact,
    lost: bool,
}

#[derive(Clone, Copy)]
enum Place {
    /// The range of an event's message in the bundle, bytes.
    Event(u32, u32),
    Switch(u32),
    Waking(u32),
}

/// `FtraceEventBundle.CompactSched`: columns instead of messages; times are differences.
#[derive(Default)]
struct Compact {
    names: Vec<(u32, u32)>,
    /// Columns by field number.
    columns: [Vec<u64>; 13],
}

impl Bundle {
    pub fn new(bytes: Vec<u8>) -> Bundle {
        let (mut order, mut compact, mut lost) = (Vec::new(), Compact::default(), false);
        let place = |part: &[u8]| {
            let at = part.as_ptr() as usize - bytes.as_ptr() as usize;
            (at as u32, (at + part.len()) as u32)
        };
        for (number, value) in Fields::new(&bytes) {
            match (number, value) {
                (2, Wire::Bytes(event)) => {
                    let time = Fields::new(event).find(|(n, _)| *n == 1).and_then(|(_, v)| v.number());
                    let (begin, end) = place(event);
                    order.push((time.unwrap_or(0), Place::Event(begin, end)));
                }
                (3, Wire::Number(n)) => lost = n != 0,
                (4, Wire::Bytes(columns)) => {
                    for (number, value) in Fields::new(columns) {
                        match (number, value) {
                            (5, Wire::Bytes(name)) => compact.names.push(place(name)),
                            (1..=12, value) => numbers(value, &mut compact.columns[number as usize]),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        for (column, place) in [(1, Place::Switch as fn(u32) -> Place), (7, Place::Waking)] {
            let mut time = 0u64;
            for (row, &step) in compact.columns[column].iter().enumerate() {
                time = time.wrapping_add(step);
                order.push((time, place(row as u32)));
            }
        }
        // The sort is stable: events with one time keep the file's order.
        order.sort_by_key(|(time, _)| *time);
        order.reverse();
        Bundle { bytes, order, compact, lost }
    }

    pub fn next_time(&self) -> Option<u64> {
        self.order.last().map(|(time, _)| *time)
    }

    /// Reports the next event.
    pub fn hand(&mut self, cpu: u16, kinds: &Kinds, running: &mut Running, f: &mut dyn FnMut(Item<'_>)) {
        let Some((time, place)) = self.order.pop() else { return };
        if std::mem::take(&mut self.lost) {
            f(Item::Lost { cpu, events: None });
        }
        match place {
            Place::Event(begin, end) => event(cpu, time, &self.bytes[begin as usize..end as usize], kinds, f),
            Place::Switch(row) => self.switch(cpu, time, row as usize, running, f),
            Place::Waking(row) => self.waking(cpu, time, row as usize, running, f),
        }
    }

    fn column(&self, number: usize, row: usize) -> u64 {
        self.compact.columns[number].get(row).copied().unwrap_or(0)
    }

    fn name(&self, index: u64) -> &[u8] {
        let place = usize::try_from(index).ok().and_then(|i| self.compact.names.get(i));
        place.map_or(&b""[..], |&(begin, end)| &self.bytes[begin as usize..end as usize])
    }

    fn switch(&self, cpu: u16, time: u64, row: usize, running: &mut Running, f: &mut dyn FnMut(Item<'_>)) {
        let (next, comm) = (TaskId(self.column(3, row) as u32), self.name(self.column(6, row)));
        if !comm.is_empty() {
            f(Item::Task { tid: next, comm, time });
        }
        // The task that leaves the CPU is the task that came last; it is unknown for a CPU's first switch.
        if let Some(prev) = running.0.replace(next) {
            let mut parsed = Parsed { system: "sched", name: "sched_switch".into(), fields: Vec::with_capacity(5) };
            parsed.fields.push(("prev_pid", Value::Signed(i64::from(prev.0))));
            parsed.fields.push(("prev_state", Value::Signed(self.column(2, row) as i64)));
            parsed.fields.push(("next_comm", Value::Text(&comm[..comm.len().min(64)])));
            parsed.fields.push(("next_pid", Value::Signed(i64::from(next.0))));
            parsed.fields.push(("next_prio", Value::Signed(self.column(4, row) as i64)));
            f(Item::Event { cpu, time: Some(time), tid: prev, flags: b"", text: b"", parsed: &parsed });
        }
    }

    fn waking(&self, cpu: u16, time: u64, row: usize, running: &Running, f: &mut dyn FnMut(Item<'_>)) {
        let (pid, comm) = (TaskId(self.column(8, row) as u32), self.name(self.column(11, row)));
        if !comm.is_empty() {
            f(Item::Task { tid: pid, comm, time });
        }
        if let Some(tid) = running.0 {
            let mut parsed = Parsed { system: "sched", name: "sched_waking".into(), fields: Vec::with_capacity(4) };
            parsed.fields.push(("comm", Value::Text(&comm[..comm.len().min(64)])));
            parsed.fields.push(("pid", Value::Signed(i64::from(pid.0))));
            parsed.fields.push(("prio", Value::Signed(self.column(10, row) as i64)));
            parsed.fields.push(("target_cpu", Value::Signed(self.column(9, row) as i64)));
            f(Item::Event { cpu, time: Some(time), tid, flags: b"", text: b"", parsed: &parsed });
        }
    }
}

/// Reports one `FtraceEvent`.
fn event(cpu: u16, time: u64, bytes: &[u8], kinds: &Kinds, f: &mut dyn FnMut(Item<'_>)) {
    let (mut tid, mut timed, mut found) = (TaskId(0), false, None);
    let mut fields = Fields::new(bytes);
    for (number, value) in fields.by_ref() {
        match (number, value) {
            (1, Wire::Number(_)) => timed = true,
            (2, Wire::Number(n)) => tid = TaskId(n as u32),
            // Flags of an event (`common_flags`).
            (5, _) => {}
            (number, Wire::Bytes(message)) => found = Some((number, message)),
            _ => {}
        }
    }
    let (Some((number, message)), true, false) = (found, timed, fields.damaged) else {
        return f(Item::Loss(Loss::RecordsMalformed, 1));
    };
    if number == GENERIC {
        return generic(cpu, time, tid, message, f);
    }
    let Some(kind) = kinds.0.get(&number) else { return f(Item::Loss(Loss::RecordsOfUnknownType, 1)) };
    let mut parsed = Parsed { system: &kind.system, name: kind.name.clone(), fields: Vec::with_capacity(8) };
    let mut fields = Fields::new(message);
    for (number, value) in fields.by_ref() {
        let Some((name, signed)) = kind.fields.get(&number) else { continue };
        if let Some(value) = value_of(value, *signed) {
            push(&mut parsed, name, value, kind.user_devices);
        }
    }
    if fields.damaged {
        return f(Item::Loss(Loss::RecordsMalformed, 1));
    }
    if number == KPROBE
        && let Some(Value::Text(name)) = field(&parsed, "name")
        && let Ok(name) = std::str::from_utf8(name)
    {
        parsed.system = system_of(name);
        parsed.name = name.chars().take(128).filter(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
    }
    complete(&mut parsed, kind);
    hand(cpu, time, tid, &parsed, f);
}

fn value_of(value: Wire<'_>, signed: bool) -> Option<Value<'_>> {
    Some(match value {
        Wire::Number(n) if signed => Value::Signed(n as i64),
        Wire::Number(n) => Value::Unsigned(n),
        Wire::Bytes(text) => Value::Text(&text[..text.len().min(MAX_TEXT)]),
        Wire::Other => return None,
    })
}

fn field<'a>(parsed: &Parsed<'a>, name: &str) -> Option<Value<'a>> {
    parsed.fields.iter().find(|(key, _)| *key == name).map(|(_, value)| *value)
}

fn push<'a>(parsed: &mut Parsed<'a>, name: &'a str, value: Value<'a>, user_devices: bool) {
    let ours = name.starts_with("common_") || matches!(name, "text" | "flags" | "");
    if ours || parsed.fields.len() == MAX_FIELDS || parsed.fields.iter().any(|(key, _)| *key == name) {
        return;
    }
    let value = match value {
        Value::Unsigned(n) if user_devices && matches!(name, "dev" | "s_dev" | "old_dev") => Value::Unsigned(device(n)),
        value => value,
    };
    parsed.fields.push((name, value));
}

/// The kernel's number of a device, from the C library's (`makedev`).
fn device(user: u64) -> u64 {
    let major = user >> 8 & 0xfff | user >> 32 & 0xffff_f000;
    let minor = user & 0xff | user >> 12 & 0xffff_ff00;
    (major & 0xfff) << 20 | minor & 0xf_ffff
}

/// Adds the fields that a step of the block layer needs: protobuf may omit a number that is 0.
fn complete<'a>(parsed: &mut Parsed<'a>, kind: &'a Kind) {
    if parsed.system != "block" {
        return;
    }
    for name in ["dev", "sector", "nr_sector", "error"] {
        if let Some((name, signed)) =
            kind.fields.values().find(|(known, _)| known == name).map(|(n, s)| (n.as_str(), *s))
            && field(parsed, name).is_none()
        {
            // Before 6.x the field had the name `errors`, and Perfetto's message has both.
            if name == "error" && field(parsed, "errors").is_some() {
                continue;
            }
            parsed.fields.push((name, if signed { Value::Signed(0) } else { Value::Unsigned(0) }));
        }
    }
}

/// Reports a `GenericFtraceEvent`, with the names of the event and its fields from the message.
fn generic(cpu: u16, time: u64, tid: TaskId, message: &[u8], f: &mut dyn FnMut(Item<'_>)) {
    let text = |bytes| std::str::from_utf8(bytes).ok().filter(|t: &&str| t.len() <= 128);
    let Some(name) = Fields::new(message).find(|(n, _)| *n == 1).and_then(|(_, v)| text(v.bytes()?)) else {
        return f(Item::Loss(Loss::RecordsMalformed, 1));
    };
    let known = system_of(name);
    let user_devices = known != "text" && known != "flashscope";
    let mut parsed = Parsed { system: known, name: name.to_string(), fields: Vec::new() };
    for (number, value) in Fields::new(message) {
        let (2, Wire::Bytes(one)) = (number, value) else { continue };
        let (mut called, mut value) = (None, None);
        for (number, wire) in Fields::new(one) {
            match number {
                1 => called = wire.bytes().and_then(text),
                3 | 5 => value = value_of(wire, false),
                4 => value = value_of(wire, true),
                _ => {}
            }
        }
        if let (Some(called), Some(value)) = (called, value) {
            push(&mut parsed, called, value, user_devices);
        }
    }
    hand(cpu, time, tid, &parsed, f);
}

/// Reports an event, and the task names in it.
fn hand(cpu: u16, time: u64, tid: TaskId, parsed: &Parsed<'_>, f: &mut dyn FnMut(Item<'_>)) {
    let mut task = |id: Option<Value<'_>>, name: &str| {
        let id = match id {
            Some(Value::Signed(n)) => u32::try_from(n).ok(),
            Some(Value::Unsigned(n)) => u32::try_from(n).ok(),
            _ => None,
        };
        // A field that was omitted is empty.
        if let (Some(tid), Some(Value::Text(comm @ [_, ..]))) = (id, field(parsed, name)) {
            f(Item::Task { tid: TaskId(tid), comm, time });
        }
    };
    match (parsed.system, parsed.name.as_str()) {
        // The originator, if the event has the name of the running task.
        ("block", _) => task(Some(Value::Unsigned(u64::from(tid.0))), "comm"),
        ("sched", "sched_switch") => {
            task(field(parsed, "prev_pid"), "prev_comm");
            task(field(parsed, "next_pid"), "next_comm");
        }
        ("sched", _) => task(field(parsed, "pid"), "comm"),
        ("task", "task_newtask") => task(field(parsed, "pid"), "comm"),
        ("task", "task_rename") => task(field(parsed, "pid"), "newcomm"),
        _ => {}
    }
    f(Item::Event { cpu, time: Some(time), tid, flags: b"", text: b"", parsed });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_and_the_table_of_events() {
        // 259:65537 as makedev() has it.
        let (major, minor) = (259u64, 65537u64);
        let user = (major & 0xfff) << 8 | minor & 0xff | (minor & 0xffff_ff00) << 12;
        assert_eq!(device(user), major << 20 | minor);
        let kinds = Kinds::shipped();
        let issue = &kinds.0[&45];
        assert_eq!((issue.system.as_str(), issue.name.as_str()), ("block", "block_rq_issue"));
        assert_eq!(issue.fields[&3], ("nr_sector".to_string(), false));
        assert_eq!(kinds.0[&125].fields[&7], ("error".to_string(), true));
        assert!(kinds.0.len() > 580);
    }
}
