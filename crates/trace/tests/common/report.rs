//! Compares `trace-cmd report -R` with our records of the same file: every event, time, field and flag.

use flashscope_trace::{Field, Missed, Record, TaskId, TimeNs, Trace, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// trace-cmd's output; `None`, with a message, if it is not installed. CI has it: `make test` installs it.
///
/// For the same command and file, trace-cmd 3.1.6 sometimes loses the decimals of all times, depending on its memory layout (`trace-cmd
/// report -l` and `-R -t -l` of armv7-5.10-io.dat: 9 of 2,400 runs; `setarch -R trace-cmd report -R -l`: 0 of 400): such a report is
/// requested again.
pub fn trace_cmd(args: &[&str], file: &Path) -> Option<String> {
    let mut said = None;
    for _ in 0..8 {
        let run = Command::new("trace-cmd").arg("report").args(args).arg(file).env("TRACECMD_TEMPDIR", "/tmp").output();
        let out = match run {
            Ok(out) => out,
            Err(e) => {
                assert!(std::env::var_os("CI").is_none(), "trace-cmd: {e}");
                println!("skipped: trace-cmd: {e}; install it (apt-get install trace-cmd) to compare with it");
                return None;
            }
        };
        assert_eq!(String::from_utf8_lossy(&out.stderr), "", "trace-cmd warns about {}", file.display());
        assert!(out.status.success(), "{}: {}", file.display(), out.status);
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let whole = !text.lines().any(lacks_decimals);
        said = Some(text);
        if whole {
            break;
        }
        println!("trace-cmd report {args:?} {}: times without decimals; asked anew", file.display());
    }
    said
}

fn lacks_decimals(line: &str) -> bool {
    let is_number = |w: &str| !w.is_empty() && w.bytes().all(|b| b.is_ascii_digit());
    let mut before_colons = line.split_whitespace().filter_map(|w| w.strip_suffix(':'));
    before_colons.find(|w| w.split('.').all(is_number)).is_some_and(|time| !time.contains('.'))
}

/// One line of `trace-cmd report -R -t`.
#[derive(Debug)]
struct Line {
    buffer: String,
    comm: String,
    tid: TaskId,
    cpu: u16,
    /// The text after the CPU with `-l`; trace-cmd 3.4 prints it always, before the time.
    flags: String,
    time: u64,
    event: String,
    fields: String,
}

/// An item of a report: an event, or events missing before the next one of a CPU.
#[derive(Debug)]
enum Said {
    Event(Line),
    Missed { cpu: u16, missed: Missed },
}

/// `CPU:0 [7 EVENTS DROPPED]`
fn missed(line: &str) -> Option<Said> {
    let (cpu, rest) = line.split_once("CPU:")?.1.split_once(" [")?;
    let number = rest.strip_suffix("EVENTS DROPPED]")?.trim();
    let missed = if number.is_empty() { Missed::Unknown } else { Missed::Events(number.parse().ok()?) };
    Some(Said::Missed { cpu: cpu.parse().ok()?, missed })
}

fn parse(line: &str) -> Said {
    if let Some(said) = missed(line) {
        return said;
    }
    let bracket = (0..line.len())
        .find(|&i| line[i..].starts_with(" [") && line.get(i + 5..i + 6) == Some("]"))
        .unwrap_or_else(|| panic!("no CPU in {line:?}"));
    let (head, rest) = (&line[..bracket], &line[bracket + 6..]);
    let (task, tid) = head.trim_end().rsplit_once('-').unwrap();
    let (buffer, comm) = task.trim_start().split_once(": ").unwrap_or(("", task));
    let (time, rest) = rest.trim_start().split_once(": ").unwrap_or_else(|| panic!("no time in {line:?}"));
    let (flags, time) = time.rsplit_once(' ').unwrap_or(("", time));
    let (seconds, decimals) = time.split_once('.').unwrap();
    assert_eq!(decimals.len(), 9, "{line:?}");
    let (event, fields) = rest.split_once(':').unwrap();
    Said::Event(Line {
        buffer: buffer.to_string(),
        comm: comm.trim_start().to_string(),
        tid: TaskId(tid.parse().unwrap()),
        cpu: line[bracket + 2..bracket + 5].parse().unwrap(),
        flags: flags.trim().to_string(),
        time: seconds.parse::<u64>().unwrap() * 1_000_000_000 + decimals.parse::<u64>().unwrap(),
        event: event.trim().to_string(),
        fields: format!(" {}", fields.strip_prefix(' ').unwrap_or(fields).trim_start()),
    })
}

/// The bases in which trace-cmd may have printed a number (octal, decimal, hex): it follows the event's print format, equally in every
/// line.
#[derive(Clone, Copy)]
struct Bases([bool; 3]);

impl Bases {
    const ANY: Bases = Bases([true; 3]);

    /// The bases in which `text` is `v`, both cut to `size` bytes.
    fn of(text: &str, v: u64, size: u32) -> Bases {
        let mask = if size >= 8 { u64::MAX } else { (1 << (size * 8)) - 1 };
        let same = |t: u64| t & mask == v & mask;
        let digits = text.strip_prefix("0x").unwrap_or(text);
        let decimal = text.parse::<i64>().is_ok_and(|t| same(t as u64)) || text.parse::<u64>().is_ok_and(same);
        let based = |base| u64::from_str_radix(digits, base).is_ok_and(same);
        Bases([based(8) && !text.starts_with("0x"), decimal, based(16)])
    }

    fn and(self, other: Bases) -> Bases {
        Bases(std::array::from_fn(|i| self.0[i] && other.0[i]))
    }

    fn any(self) -> bool {
        self.0.contains(&true)
    }
}

/// `ARRAY[01, 02]`: byte by byte, whatever the elements are.
fn array(bytes: &[u8]) -> String {
    let bytes: Vec<String> = bytes.iter().map(|b| format!("{b:02x}")).collect();
    format!("ARRAY[{}]", bytes.join(", "))
}

/// Counts of what was compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    pub events: usize,
    /// Fields without the common ones.
    pub fields: usize,
    /// Places where events are missing.
    pub gaps: usize,
    /// Kinds of events.
    pub kinds: BTreeSet<String>,
    /// Tasks with another name in trace-cmd's report than in the trace's events: number, name in the events, trace-cmd's name.
    pub renamed: BTreeSet<(TaskId, String, String)>,
}

/// Compares a file event by event and field by field with the output of this host's trace-cmd.
pub fn compare(trace: &Trace, file: &Path) -> Option<Compared> {
    let compared = compare_text(trace, &trace_cmd(&["-R", "-t"], file)?);
    compare_flags(trace, &trace_cmd(&["-R", "-t", "-l"], file)?, &trace_cmd(&["-t", "-l"], file)?);
    Some(compared)
}

/// Compares with the text of `trace-cmd report -R -t`.
pub fn compare_text(trace: &Trace, text: &str) -> Compared {
    let mut lines = text.lines().filter(|l| !l.starts_with("cpus=")).map(parse);
    let mut tids = BTreeSet::new();
    trace.for_each_record(&mut |r| _ = tids.insert(r.tid())).unwrap();
    let end = TimeNs(u64::MAX);
    let last_names: BTreeMap<TaskId, &str> =
        tids.into_iter().filter_map(|tid| Some((tid, trace.comm(tid, end)?))).collect();
    let in_events = names_in_events(trace);
    let mut bases = BTreeMap::<(u16, String), Bases>::new();
    let mut done = Compared::default();
    trace
        .for_each_record(&mut |r| {
            done.events += 1;
            let at = done.events;
            let mut next = || lines.next().unwrap_or_else(|| panic!("trace-cmd has no event {at}: {}", r.schema.name));
            let mut said = next();
            if r.missed != Missed::Nothing {
                assert!(
                    matches!(said, Said::Missed { cpu, missed } if (cpu, missed) == (r.cpu, r.missed)),
                    "event {at}: {:?} on CPU {} before it, trace-cmd says {said:?}",
                    r.missed,
                    r.cpu
                );
                done.gaps += 1;
                said = next();
            }
            let Said::Event(line) = said else { panic!("event {at}: we know of no gap before it: {said:?}") };
            assert_eq!(
                (line.buffer.as_str(), line.time, line.cpu, line.event.as_str(), line.tid),
                (r.buffer, r.time.0, r.cpu, r.schema.name.as_str(), r.tid()),
                "event {at}"
            );
            // trace-cmd has one name of a task, which the kernel noted at some time; our names follow the events.
            let last = *last_names.get(&r.tid()).unwrap_or(&"<...>");
            if line.comm != last {
                let ours = (r.tid(), last.to_string());
                assert!(in_events.contains(&ours), "event {at}: {ours:?} is {:?} to trace-cmd", line.comm);
                done.renamed.insert((ours.0, ours.1, line.comm.clone()));
            }
            // trace-cmd 3.4 always prints the flags.
            if let Some(flags) = line.flags.strip_prefix("-0x") {
                let flags = u64::from_str_radix(flags, 16).unwrap_or_else(|_| panic!("flags of {line:?}"));
                assert_eq!(r.get("common_flags"), Some(Value::Unsigned(flags)), "event {at}");
            }
            done.fields += fields(r, &line, &mut bases);
            done.kinds.insert(r.schema.name.clone());
        })
        .unwrap();
    if let Some(more) = lines.next() {
        panic!("trace-cmd has more: {more:?}");
    }
    done
}

/// Numbers and names of tasks in the kernel's events.
fn names_in_events(trace: &Trace) -> BTreeSet<(TaskId, String)> {
    let pairs = [("prev_pid", "prev_comm"), ("next_pid", "next_comm"), ("pid", "comm"), ("pid", "newcomm")];
    let mut all = BTreeSet::new();
    trace
        .for_each_record(&mut |r| {
            for (pid, comm) in pairs {
                if let (Some(Value::Signed(pid)), Some(Value::Text(comm))) = (r.get(pid), r.get(comm)) {
                    all.insert((TaskId(pid as u32), String::from_utf8_lossy(comm).into_owned()));
                }
            }
        })
        .unwrap();
    all
}

/// Compares the event's own fields. Returns how many there were.
fn fields(r: &Record<'_>, line: &Line, bases: &mut BTreeMap<(u16, String), Bases>) -> usize {
    let own: Vec<(&Field, Option<Value<'_>>)> = r.fields().filter(|(f, _)| !f.common).collect();
    for (i, (field, value)) in own.iter().enumerate() {
        let begin = format!(" {}=", field.name);
        let at = line.fields.find(&begin).unwrap_or_else(|| panic!("no{begin} in {line:?}")) + begin.len();
        let end = match own.get(i + 1) {
            Some((next, _)) => at + line.fields[at..].find(&format!(" {}=", next.name)).expect("the next field"),
            None => line.fields.len(),
        };
        let text = line.fields[at..end].trim_end();
        let value = value.unwrap_or_else(|| panic!("{}: cut", field.name));
        let mut number = |v: u64| {
            let known = bases.entry((r.id(), field.name.clone())).or_insert(Bases::ANY);
            // libtraceevent 1.8 finds functions for addresses: `ksys_read (0xc0483000)`.
            let digits = text.strip_suffix(')').and_then(|t| t.rsplit_once('(')).map_or(text, |(_, inside)| inside);
            *known = known.and(Bases::of(digits, v, field.size));
            known.any()
        };
        let raw = || r.schema.raw(field, r.data).expect("bytes of a field that has a value");
        let same = match value {
            Value::Unsigned(v) => number(v),
            Value::Signed(v) => number(v as u64),
            // If one text of a field is not printable, trace-cmd prints bytes, from then on for all texts of the field.
            Value::Text(t) => text == String::from_utf8_lossy(t).trim_end() || text == array(raw()),
            // libtraceevent takes bytes (`u8`, `s8`) for text as long as they are printable, so 0, 0, 0, 0 is an empty text.
            Value::Array(a) if a.len() == raw().len() => {
                let until_nul = raw().split(|&b| b == 0).next().unwrap_or_default();
                text == array(raw()) || text == String::from_utf8_lossy(until_nul)
            }
            Value::Array(_) | Value::Bytes(_) => text == array(raw()),
        };
        assert!(same, "{} at {}, {}: {text:?} against {value:?}", r.schema.name, r.time.0, field.name);
    }
    own.len()
}

/// The word before the time of each event (with `-l`: CPU and flags), and the event's name.
fn latency_words(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let is_time = |w: &str| w.split_once('.').is_some_and(|(s, d)| s.parse::<u64>().is_ok() && d.len() == 10);
    let lines = text.lines().filter(|l| !l.starts_with("cpus=") && missed(l).is_none());
    lines.map(move |line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let time = words.iter().position(|w| w.ends_with(':') && is_time(w)).unwrap_or_else(|| panic!("{line:?}"));
        (words[time - 1], words[time + 1])
    })
}

/// Compares the common fields `common_flags` and `common_preempt_count`: the first with `-R -l` (`0-0x9`: CPU, flags), the second with `-l`
/// alone (`0d.h1.`: CPU, three letters for flags, two digits or dots).
fn compare_flags(trace: &Trace, raw: &str, letters: &str) {
    let mut raw = latency_words(raw);
    // Unless it prints raw fields, trace-cmd joins the two events of a function that calls no other.
    let joined = |event: &str| event.starts_with("funcgraph_");
    let mut letters = latency_words(letters).filter(|(_, event)| !joined(event));
    let mut count = 0;
    trace
        .for_each_record(&mut |r| {
            count += 1;
            let common = |name| match r.get(name) {
                Some(Value::Unsigned(v)) => v,
                other => panic!("event {count}: {name} is {other:?}"),
            };
            let (flags, depth) = (common("common_flags"), common("common_preempt_count"));
            let (said, _) = raw.next().expect("as many events as in the other report");
            assert_eq!(said, format!("{}-{flags:#x}", r.cpu), "event {count}");
            if joined(&r.schema.name) {
                return;
            }
            let (said, _) = letters.next().expect("as many events as in the other report");
            let digit = |n| if n == 0 { '.' } else { char::from_digit(n as u32, 16).expect("four bits") };
            let want: String = [digit(depth & 15), digit(depth >> 4)].iter().collect();
            let said = said.trim_start_matches(|c: char| c.is_ascii_digit()).get(3..5);
            assert_eq!(said, Some(&*want), "event {count}: {depth:#x}");
        })
        .unwrap();
    assert_eq!((raw.next(), letters.next()), (None, None));
}
