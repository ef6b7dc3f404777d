//! The output of `perf script` for trace points: `COMM PID[/TID] [CPU] TIME: [PERIOD] [SYSTEM:]EVENT: TEXT OF THE EVENT`.
//!
//! Source: `tools/perf/builtin-script.c` (`perf_sample__fprintf_start`, `process_event`; Linux 6.1). Call chains (`-g`) and fields after
//! the event are ignored. perf does not print which clock its times are from.

use super::parsed::{Item, NOTHING_RECORDED, Value};
use super::text::{Dialect, Lines};
use super::{Format, Reader as FormatReader};
use crate::events::TimeNs;
use crate::formats::ftrace::{of_event, own_name, system_of, time};
use crate::ids::TaskId;
use crate::kind::TraceKind;
use crate::losses::Loss;

pub(crate) const FORMAT: Format = Format {
    name: "`perf script` text of trace points",
    read: "best effort",
    written: "no",
    recognised_by: "lines `COMM PID [CPU] TIME: SYSTEM:EVENT: …`",
    reader: FormatReader::Lines(DIALECT),
};

pub(crate) const DIALECT: Dialect = Dialect {
    kind: TraceKind::PerfScript,
    key: "perf_script",
    title: "perf script's text",
    clock: "unknown",
    why_no_event: NOTHING_RECORDED,
    lines: || Box::<Reader>::default(),
};

#[derive(Default)]
struct Reader {
    /// The previous line was an event or a step of its call chain.
    in_chain: bool,
    /// The text has had an event.
    in_events: bool,
}

impl Lines for Reader {
    fn line(&mut self, text: &[u8], f: &mut dyn FnMut(Item<'_>)) {
        let trimmed = text.trim_ascii();
        if let Some(head) = head(text) {
            self.in_chain = true;
            self.in_events = true;
            let Some(parsed) = of_event(head.system, head.name, head.rest) else { return f(Item::Malformed(text)) };
            let text = head.payload;
            let mut comm = if head.tid == TaskId::ENDED { ENDED } else { head.comm };
            // A step of the block layer has the name of the task that runs.
            if is_no_name(comm) && head.system == "block" {
                let told = parsed.fields.iter().find_map(|(key, value)| match value {
                    Value::Text(told) if *key == "comm" => Some(*told),
                    _ => None,
                });
                comm = told.unwrap_or(comm);
            }
            if !is_no_name(comm) {
                f(Item::Task { tid: head.tid, comm, time: head.time_ns });
            }
            f(Item::Event {
                cpu: head.cpu,
                time: Some(head.time_ns),
                tid: head.tid,
                flags: b"",
                text,
                parsed: &parsed,
            });
            return;
        }
        if trimmed.is_empty() || trimmed.starts_with(b"#") {
            self.in_chain &= !trimmed.is_empty();
            // perf's header, one for each perf.data (`--header`).
            if self.in_events && trimmed.starts_with(b"# captured on") {
                f(Item::Recording);
            }
            return;
        }
        if let Some(events) = lost(trimmed) {
            f(Item::Lost { cpu: 0, events: Some(events) });
            return;
        }
        if let Some(note) = note(trimmed) {
            if let Note::Named { tid, comm, time_ns } = note {
                f(Item::Task { tid, comm, time: time_ns });
            }
            return;
        }
        if let Some(chunks) = lost_chunks(trimmed) {
            return f(Item::Loss(Loss::GapsOfUnknownSize, chunks));
        }
        if matches!(trimmed, b"Warning:" | b"Check IO/CPU overload!") {
            return;
        }
        if !(self.in_chain && text[0].is_ascii_whitespace() && is_frame(trimmed)) {
            f(Item::Malformed(text));
        }
    }
}

struct Head<'a> {
    comm: &'a [u8],
    tid: TaskId,
    cpu: u16,
    time_ns: u64,
    system: &'a str,
    name: &'a str,
    /// The text after the event's name.
    rest: &'a [u8],
    /// The text from the system's name on.
    payload: &'a [u8],
}

/// A name may contain spaces and all other parts of a line: the first time that is followed by an event is taken.
fn head(line: &[u8]) -> Option<Head<'_>> {
    let colons = line.windows(2).enumerate().filter(|(_, w)| *w == b": ").map(|(at, _)| at);
    colons.take(8).find_map(|colon| head_at(line, colon))
}

fn head_at(line: &[u8], colon: usize) -> Option<Head<'_>> {
    let before = &line[..colon];
    let space = before.iter().rposition(|&b| b == b' ')?;
    let time_ns = time(&before[space + 1..]).or_else(|| overflowed(&before[space + 1..]))?;
    let mut before = before[..space].trim_ascii_end();
    let mut cpu = 0;
    if let Some(inside) = before.strip_suffix(b"]") {
        let open = inside.iter().rposition(|&b| b == b'[')?;
        cpu = u16::try_from(number(&inside[open + 1..])?).ok()?;
        before = before[..open].trim_ascii_end();
    } else if let Some((front, number)) = latency_cpu(before) {
        (before, cpu) = (front, number);
    }
    // `comm pid` or `comm pid/tid`.
    let space = before.iter().rposition(|&b| b == b' ')?;
    let ids = &before[space + 1..];
    let tid = match ids.iter().position(|&b| b == b'/') {
        Some(slash) => task(&ids[..slash]).and_then(|_| task(&ids[slash + 1..]))?,
        None => task(ids)?,
    };
    let comm = before[..space].trim_ascii();
    // A thread may have an empty name, in a column of 16 characters.
    if comm.is_empty() && space < 16 || comm.len() > 64 {
        return None;
    }
    let comm = own_name(comm);
    let mut rest = line[colon + 1..].trim_ascii();
    // The number of events that a sample stands for.
    let end = rest.iter().position(|&b| b == b' ').unwrap_or(rest.len());
    if number(&rest[..end]).is_some() {
        rest = rest[end..].trim_ascii_start();
    }
    let payload = rest;
    let (first, behind) = name(rest)?;
    let (system, name, mut rest) = match name(behind) {
        Some((name, rest)) => (first, name, rest),
        // perf before 3.0 does not print the system.
        None => match system_of(first) {
            "text" => return None,
            system => (system, first, behind),
        },
    };
    // The modifiers of the recording: `block:block_rq_issue:k`.
    if let Some(end) = rest.iter().position(|&b| b == b':')
        && end > 0
        && rest[..end].iter().all(|b| b"ukhpPGHSDIWeb".contains(b))
    {
        rest = &rest[end + 1..];
    }
    Some(Head { comm, tid, cpu, time_ns, system, name, rest: rest.trim_ascii(), payload })
}

/// The number of a thread or process. -1: it had ended, as where a completion interrupts the end of a thread.
fn task(text: &[u8]) -> Option<TaskId> {
    let ended = (text == b"-1").then_some(TaskId::ENDED);
    ended.or_else(|| Some(TaskId(u32::try_from(number(text)?).ok()?)))
}

/// With `--Latency` a line begins with `%8.8s %7d %3d `, the last of which is the CPU. Other lines without a CPU in brackets do not have
/// this form.
fn latency_cpu(before: &[u8]) -> Option<(&[u8], u16)> {
    let aligned = |text: &[u8]| {
        let digits = text.trim_ascii_start();
        (digits.len() == text.len() || text[0] == b' ').then(|| number(digits)).flatten()
    };
    let (front, cpu) = before.split_at_checked(before.len().checked_sub(4)?)?;
    let (comm, tid) = front.split_at_checked(front.len().checked_sub(8)?)?;
    let is_so = cpu[0] == b' ' && tid[0] == b' ' && aligned(&tid[1..]).is_some() && comm.trim_ascii().len() <= 8;
    let cpu = aligned(&cpu[1..]).filter(|_| is_so)?;
    Some((front, u16::try_from(cpu).ok()?))
}

/// A line about tasks, which is not an event.
enum Note<'a> {
    Named { tid: TaskId, comm: &'a [u8], time_ns: u64 },
    Other,
}

/// `… TIME: PERF_RECORD_COMM exec: NAME:PID/TID` and similar lines. `perf script --show-task-events`, `--show-switch-events` and others
/// print them between the events (`perf_event__fprintf`).
fn note(line: &[u8]) -> Option<Note<'_>> {
    const RECORD: &[u8] = b" PERF_RECORD_";
    let at = line.windows(RECORD.len()).position(|w| w == RECORD)?;
    let before = line[..at].strip_suffix(b":")?;
    let time_ns = time(&before[before.iter().rposition(|&b| b == b' ')? + 1..])?;
    let rest = &line[at + RECORD.len()..];
    let named = rest.strip_prefix(b"COMM").and_then(|rest| {
        let rest = rest.strip_prefix(b" exec").unwrap_or(rest).strip_prefix(b":")?.trim_ascii();
        let colon = rest.iter().rposition(|&b| b == b':')?;
        let slash = rest.iter().rposition(|&b| b == b'/').filter(|&slash| slash > colon)?;
        let tid = TaskId(u32::try_from(number(&rest[slash + 1..])?).ok()?);
        Some(Note::Named { tid, comm: &rest[..colon], time_ns })
    });
    Some(named.unwrap_or(Note::Other))
}

/// A time that a 32-bit perf printed with `--ns`. From 5 s on, seconds in ns overflow, and the fraction is too large by the lost multiple
/// of 2^32 (`perf_sample__fprintf_start`: `nsecs -= secs * NSEC_PER_SEC`, with `unsigned long secs`). It then has ten digits or more.
fn overflowed(text: &[u8]) -> Option<u64> {
    let dot = text.iter().position(|&b| b == b'.')?;
    let (seconds, fraction) = (number(&text[..dot])?, number(&text[dot + 1..])?);
    let second = seconds.checked_mul(1_000_000_000)?;
    let lost = second & !u64::from(u32::MAX);
    let ns = fraction.checked_sub(lost).filter(|&ns| lost > 0 && ns < 1_000_000_000)?;
    second.checked_add(ns).filter(|&time| TimeNs(time).is_possible())
}

/// The name of [`TaskId::ENDED`].
const ENDED: &[u8] = b"(ended threads)";

/// `:4711`: perf does not know the thread's name (`thread__comm_str`, `thread__new`). A name may be empty, too.
fn is_no_name(comm: &[u8]) -> bool {
    comm.is_empty() || comm.strip_prefix(b":").is_some_and(|id| number(id.strip_prefix(b"-").unwrap_or(id)).is_some())
}

/// A name before a colon.
fn name(text: &[u8]) -> Option<(&str, &[u8])> {
    let end = text.iter().position(|&b| b == b':')?;
    let name = std::str::from_utf8(&text[..end]).ok()?;
    let fits =
        (1..=128).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b));
    fits.then(|| (name, &text[end + 1..]))
}

fn number(text: &[u8]) -> Option<u64> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    digits.then(|| std::str::from_utf8(text).ok()?.parse().ok()).flatten()
}

/// `PERF_RECORD_LOST lost 123`, with --show-lost-events.
fn lost(text: &[u8]) -> Option<u64> {
    let behind = |what: &[u8]| text.windows(what.len()).position(|w| w == what).map(|at| at + what.len());
    let at = behind(b"PERF_RECORD_LOST lost").or_else(|| behind(b"PERF_RECORD_LOST_SAMPLES lost"))?;
    let rest = text[at..].trim_ascii();
    number(&rest[..rest.iter().position(|b| !b.is_ascii_digit()).unwrap_or(rest.len())])
}

/// `Processed 213 events and lost 3 chunks!` (`perf_session__warn_about_errors` of tools/perf/util/session.c).
fn lost_chunks(text: &[u8]) -> Option<u64> {
    let text = text.strip_prefix(b"Processed ")?.strip_suffix(b" chunks!")?;
    let at = text.windows(17).position(|w| w == b" events and lost ")?;
    number(&text[at + 17..])
}

/// `ffffffff811c248d submit_bio+0x1d (/lib/modules/…/vmlinux)`; inlined functions have no address.
fn is_frame(text: &[u8]) -> bool {
    let end = text.iter().position(|&b| b == b' ').unwrap_or(text.len());
    let address = (1..=16).contains(&end) && text[..end].iter().all(u8::is_ascii_hexdigit);
    address || text.ends_with(b")")
}

/// Whether the times count from the line before (`--deltatime`): with absolute times, perf's lines are in order of time.
pub(crate) fn has_deltas(lines: &[&[u8]]) -> bool {
    let times: Vec<u64> = lines.iter().filter_map(|line| Some(head(line)?.time_ns)).collect();
    let back = times.windows(2).filter(|pair| pair[1] < pair[0]).count();
    times.first() == Some(&0) && back > 0 && back * 5 >= times.len()
}

/// `cat    77 [000] 5120.900000: …` without an event name, as `-F comm,tid,cpu,time,trace` prints it.
pub(crate) fn lacks_event(line: &[u8]) -> bool {
    let Some(colon) = line.windows(2).position(|w| w == b": ") else { return false };
    let exact = |time: &[u8]| {
        self::time(time).is_some() && matches!(time.rsplit(|&b| b == b'.').next(), Some(d) if matches!(d.len(), 6 | 9))
    };
    let words: Vec<&[u8]> = line[..colon].split(|&b| b == b' ').filter(|w| !w.is_empty()).collect();
    let is_cpu = |word: &[u8]| word.first() == Some(&b'[') && word.last() == Some(&b']');
    let [before @ .., at] = &words[..] else { return false };
    let pid = before.iter().rev().find(|word| !is_cpu(word));
    exact(at) && before.len() > 1 && pid.is_some_and(|pid| pid.split(|&b| b == b'/').all(|n| number(n).is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_with_and_without_their_parts() {
        for (line, comm, tid, cpu, time_ns, event, rest) in [
            (
                "   dmcrypt_write  4711 [004] 5120.859875:      block:block_bio_queue: 8,32 WFS 8208 + 4 [x]",
                "dmcrypt_write",
                4711,
                4,
                5_120_859_875_000,
                "block:block_bio_queue",
                "8,32 WFS 8208 + 4 [x]",
            ),
            (
                "my prog 1: 2  12/13 [001] 1.000000001: 1 sched:sched_stat: a=1",
                "my prog 1: 2",
                13,
                1,
                1_000_000_001,
                "sched:sched_stat",
                "a=1",
            ),
            (
                "cat 7 2.5: syscalls:sys_enter_read: fd: 0x3",
                "cat",
                7,
                0,
                2_500_000_000,
                "syscalls:sys_enter_read",
                "fd: 0x3",
            ),
            ("cat 7 [001] 2.5: block_plug: [cat]", "cat", 7, 1, 2_500_000_000, "block:block_plug", "[cat]"),
            (
                "     tar     801   2    77.000000: block:block_plug: [tar]",
                "tar",
                801,
                2,
                77_000_000_000,
                "block:block_plug",
                "[tar]",
            ),
            (
                "             tar     801    77.000000: block:block_plug: [tar]",
                "tar",
                801,
                0,
                77_000_000_000,
                "block:block_plug",
                "[tar]",
            ),
            (":-1 0 [000] 3.0: block:block_plug: [cat]", ":-1", 0, 0, 3_000_000_000, "block:block_plug", "[cat]"),
            (
                "                     4711 [000]     3.000000: block:block_plug: [cat]",
                "",
                4711,
                0,
                3_000_000_000,
                "block:block_plug",
                "[cat]",
            ),
            (
                "             :-1    -1/-1     [000]     3.000000: block:block_plug: [cat]",
                ":-1",
                TaskId::ENDED.0,
                0,
                3_000_000_000,
                "block:block_plug",
                "[cat]",
            ),
        ] {
            let h = head(line.as_bytes()).expect(line);
            assert_eq!((h.comm, h.tid.0, h.cpu, h.time_ns), (comm.as_bytes(), tid, cpu, time_ns), "{line}");
            assert_eq!((format!("{}:{}", h.system, h.name).as_str(), h.rest), (event, rest.as_bytes()), "{line}");
        }
        // perf 6.1 of armhf with --ns, 11.270758928 s after boot; and a number that is no such time.
        let line = |time: &str| format!("dd    97 [000]    {time}:      block:block_bio_queue: 254,0 RM 8742 + 2 [dd]");
        let time_of = |time: &str| Some(head(line(time).as_bytes())?.time_ns);
        assert_eq!(time_of("11.8860693520"), Some(11_270_758_928));
        assert_eq!(time_of("4.8860693520"), None);
        assert_eq!(time_of("11.9960693520"), None);
        // ftrace's text, counts of cycles, and a sample without an event's text.
        for line in [
            "   4711 [001] 2.5: block:block_plug: [cat]",
            "            bash-1 [001]  6.4: a: b",
            "cat 7 [000] 2.5: cycles: ffff x",
            "cat 7 [000] 2.5:",
            ": ",
            "",
        ] {
            assert!(head(line.as_bytes()).is_none(), "{line}");
        }
    }

    #[test]
    fn lines_that_are_no_events() {
        assert_eq!(lost(b"cat 7 [000] 2.5: PERF_RECORD_LOST lost 123"), Some(123));
        assert_eq!(lost(b"cat 7 [000] 2.5: PERF_RECORD_LOST_SAMPLES lost 5"), Some(5));
        let named = |line: &'static str| match note(line.as_bytes()) {
            Some(Note::Named { tid, comm, time_ns }) => {
                Some((tid.0, std::str::from_utf8(comm).expect("a name"), time_ns))
            }
            Some(Note::Other) => Some((0, "", 0)),
            None => None,
        };
        for (line, want) in [
            ("sh 90 [002] 1.5: PERF_RECORD_COMM exec: a: b [c]:90/91", Some((91, "a: b [c]", 1_500_000_000))),
            ("sh 90 [002] 1.5: PERF_RECORD_COMM: sh:90/90", Some((90, "sh", 1_500_000_000))),
            ("sh 90 [002] 1.5: PERF_RECORD_FORK(90:90):(1:1)", Some((0, "", 0))),
            ("sh 90 [002] x: PERF_RECORD_EXIT(90:90):(1:1)", None),
            ("sh 90 [002] 1.5: block:block_plug: [PERF_RECORD_COMM]", None),
        ] {
            assert_eq!(named(line), want, "{line}");
        }
        assert!(is_frame(b"ffffffff811c248d submit_bio+0x1d ([kernel.kallsyms])") && !is_frame(b"zz top"));
    }
}
