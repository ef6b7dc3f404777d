//! Parses one line of ftrace's text: task, CPU, time, and the text of the event.
//!
//! Sources (Linux 6.1): `kernel/trace/trace_output.c` (`trace_print_context`, `trace_print_lat_context`, `trace_print_lat_fmt`),
//! `kernel/trace/trace.c` (`print_func_help_header_irq`, `print_trace_line` for lost events), `kernel/trace/trace_functions_graph.c`. The
//! output of `trace-cmd report` is similar.

use crate::events::TimeNs;
use crate::ids::{ProcessId, TaskId};

/// Longest name of a task: more than `TASK_COMM_LEN`, because pids are printed beside it.
const MAX_COMM: usize = 64;

/// The kind of a line.
#[derive(Debug, PartialEq)]
pub(super) enum Line<'a> {
    Event(Head<'a>, &'a [u8]),
    /// `[[CPU]] TIME: EVENT`, without a task.
    WithoutTask {
        cpu: u16,
        time_ns: u64,
        event: &'a [u8],
    },
    Graph(Graph<'a>),
    /// `CPU:0 [LOST 271 EVENTS]`; `None` if the number is unknown.
    Lost {
        cpu: u16,
        events: Option<u64>,
    },
    /// ` 0)  bash-12  =>  cat-13`
    Switch {
        cpu: u16,
        tid: TaskId,
        comm: &'a [u8],
    },
    /// Number of events in the text, and of all events written.
    Entries {
        shown: u64,
        written: u64,
    },
    /// No information: a comment, a ruler.
    Nothing,
    /// Not a line of ftrace.
    Unknown,
}

/// The part of a line before the event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Head<'a> {
    pub comm: &'a [u8],
    pub tid: TaskId,
    /// Its process, if the text has it.
    pub tgid: Option<ProcessId>,
    pub cpu: u16,
    /// Empty if the text has none.
    pub flags: &'a [u8],
    pub time_ns: u64,
}

/// A line of the function graph tracer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Graph<'a> {
    /// Only with the option funcgraph-abstime.
    pub time_ns: Option<u64>,
    pub cpu: u16,
    /// Only with the option funcgraph-proc.
    pub task: Option<(TaskId, &'a [u8])>,
    pub duration_ns: Option<u64>,
    pub depth: u32,
    pub what: GraphPart<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum GraphPart<'a> {
    /// `name() {`, or `name();` for a function without calls.
    Entry(&'a [u8]),
    /// `}`, with the name if the text has it.
    Exit(&'a [u8]),
    /// `/* event: … */`
    Event(&'a [u8]),
}

pub(super) fn parse(line: &[u8]) -> Line<'_> {
    let text = line.trim_ascii();
    if text.is_empty() {
        return Line::Nothing;
    }
    // The last two begin the output of trace-cmd report. A task's name may begin like any of these.
    if ["#", "----", "cpus=", "version = "].iter().any(|note| text.starts_with(note.as_bytes())) {
        return match (any_head(line), text.strip_prefix(b"#")) {
            (Some((head, rest)), _) => Line::Event(head, rest),
            (None, comment) => comment.and_then(entries).unwrap_or(Line::Nothing),
        };
    }
    if let Some(rest) = text.strip_prefix(b"CPU")
        && let Some(line) = about_cpu(rest)
    {
        return line;
    }
    // The first lines of atrace's output.
    let of_atrace = matches!(text, b"TRACE:" | b"capturing trace... done" | b"capturing trace...");
    if of_atrace || is_frame_of_dump(text) {
        return Line::Nothing;
    }
    // If a line has both forms, the graph's bar decides: events have no bar before their colon.
    if let Some(graph) = graph(line) {
        return graph;
    }
    match any_head(line) {
        Some((head, rest)) => Line::Event(head, rest),
        None => loss_behind(text)
            .or_else(|| without_task(text))
            .or(comment_behind(text).map(|_| Line::Nothing))
            .unwrap_or(Line::Unknown),
    }
}

/// `50.000005: block_rq_issue: 8,0 R 4096 () 1008 + 8 [dd]`, also behind `[001]`: what is left of a line without its first columns. The
/// times have microseconds or nanoseconds, and the event is of the block layer.
fn without_task(text: &[u8]) -> Option<Line<'_>> {
    let in_brackets = text.strip_prefix(b"[").and_then(|rest| {
        let (cpu, rest) = number(rest.trim_ascii_start())?;
        Some((u16::try_from(cpu).ok()?, rest.strip_prefix(b"]")?.trim_ascii_start()))
    });
    let (cpu, rest) = in_brackets.unwrap_or((0, text));
    let end = rest.iter().position(|&b| b == b':')?;
    let decimals = rest[..end].iter().rev().position(|&b| b == b'.')?;
    let event = rest[end + 1..].trim_ascii();
    let is_step = event.starts_with(b"block_") && matches!(decimals, 6 | 9);
    Some(Line::WithoutTask { cpu, time_ns: time(&rest[..end]).filter(|_| is_step)?, event })
}

/// A loss behind what a log, a terminal or grep put before the line: `[   62.09] CPU:0 [LOST 271 EVENTS]`.
fn loss_behind(text: &[u8]) -> Option<Line<'_>> {
    let behind = |sign: &[u8]| {
        let at = text.windows(sign.len()).rposition(|w| w == sign).filter(|&at| at > 0)?;
        (!text[at - 1].is_ascii_alphanumeric()).then(|| &text[at..])
    };
    match behind(b"CPU:") {
        Some(cpu) => about_cpu(&cpu[3..]),
        None => entries(behind(b"entries-in-buffer/entries-written:")?),
    }
}

/// A comment of the kernel's header behind such a prefix: `host kernel: # tracer: nop`, from its sign.
fn comment_behind(text: &[u8]) -> Option<&[u8]> {
    // print_trace_header(), print_event_info(), print_func_help_header_irq() in kernel/trace/trace.c (6.12), and the function graph's.
    const STARTS: [&str; 10] =
        ["tracer: ", "_-", "/ _-", "|", "TASK", "CPU", "TIME", "DURATION", "WARNING: FUNCTION TRACING", "latency: "];
    let signs = text.iter().enumerate().filter(|(_, b)| **b == b'#').map(|(at, _)| at);
    let is_comment = |at: &usize| {
        let comment = text[at + 1..].trim_ascii();
        let is_drawn = comment.iter().all(|b| b" |/_-=>".contains(b));
        let is_known = is_drawn || STARTS.iter().any(|start| comment.starts_with(start.as_bytes()));
        let is_word = text.get(at + 1).is_none_or(|&b| b == b' ');
        *at > 0 && !text[at - 1].is_ascii_alphanumeric() && is_word && is_known
    };
    signs.take(4).find(is_comment).map(|at| &text[at..])
}

/// Whether the line is the first of a text: the kernel's `# tracer: nop`, trace-cmd's `cpus=2`. A log may have put something before it.
pub(super) fn begins_text(line: &[u8]) -> bool {
    let text = line.trim_ascii();
    let text = if text.starts_with(b"#") { text } else { comment_behind(text).unwrap_or(text) };
    let cpus = text.strip_prefix(b"cpus=").is_some_and(|n| !n.is_empty() && n.iter().all(u8::is_ascii_digit));
    cpus || text.strip_prefix(b"#").is_some_and(|comment| comment.trim_ascii_start().starts_with(b"tracer: "))
}

/// `[   62.099990] Dumping ftrace buffer:` and its rulers, in the kernel's log (`ftrace_dump` in kernel/trace/trace.c).
fn is_frame_of_dump(text: &[u8]) -> bool {
    let stamp = text.strip_prefix(b"[").and_then(|rest| {
        let end = rest.iter().position(|&b| b == b']')?;
        let is_time = rest[..end].trim_ascii_start().iter().all(|&b| b.is_ascii_digit() || b == b'.');
        is_time.then_some(&rest[end + 1..])
    });
    let rest = stamp.unwrap_or(text).trim_ascii();
    let ruler = rest.len() > 3 && rest.iter().all(|&b| b == b'-');
    ruler || matches!(rest, b"Dumping ftrace buffer:" | b"(ftrace buffer empty)")
}

fn any_head(line: &[u8]) -> Option<(Head<'_>, &[u8])> {
    head(line).or_else(|| latency_head(line)).or_else(|| verbose_head(line))
}

/// A line with the flags directly after the CPU number (the kernel's option latency-format, `trace-cmd report -l`): `COMM-TID  CPUFLAGS
/// TIMEus: ` or `COMM-TID  CPUFLAGS SECONDS.FRACTION: `, and the rest. A name may contain all of that: the first place that matches is
/// taken.
fn latency_head(line: &[u8]) -> Option<(Head<'_>, &[u8])> {
    let dashes = line.iter().enumerate().filter(|&(_, &b)| b == b'-').map(|(at, _)| at);
    dashes.take(16).find_map(|dash| latency_head_at(line, dash))
}

fn latency_head_at(line: &[u8], dash: usize) -> Option<(Head<'_>, &[u8])> {
    let behind = &line[dash + 1..];
    let end = behind.iter().position(|&b| b == b' ')?;
    let (tid, comm) = task(&line[..dash + 1 + end])?;
    let (cpu, rest) = number(behind[end..].trim_ascii_start())?;
    let space = rest.iter().position(|&b| b == b' ')?;
    let (flags, rest) = (&rest[..space], rest[space..].trim_ascii_start());
    let is_flag = |b: &u8| matches!(b, b'.' | b'#' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z');
    // With `trace-cmd report -l -R`, CPU and flags are a number: `0-0x2f`.
    let hexadecimal = flags.strip_prefix(b"-0x").filter(|n| !n.is_empty() && n.iter().all(u8::is_ascii_hexdigit));
    let letters = (4..=8).contains(&flags.len()) && flags.iter().all(is_flag);
    if !letters && hexadecimal.is_none() {
        return None;
    }
    let flags = if letters { flags } else { b"" };
    let colon = rest.iter().position(|&b| b == b':')?;
    let time_ns = time(&rest[..colon]).or_else(|| microseconds(&rest[..colon]))?;
    let head = Head { comm, tid, tgid: None, cpu: u16::try_from(cpu).ok()?, flags, time_ns };
    Some((head, without_difference(rest[colon + 1..].trim_ascii())))
}

/// The kernel's options latency-format and verbose (`lat_print_timestamp`): `COMM TID CPU FLAGS PREEMPT-COUNT INDEX [MICROSECONDS]
/// MILLISECONDSms (+MILLISECONDSms): `, and the rest. Counts, index and the time in brackets are hexadecimal. The other times are the time
/// since the buffer's beginning and until the next event. A name may contain all of that: the last place that matches is taken.
fn verbose_head(line: &[u8]) -> Option<(Head<'_>, &[u8])> {
    let brackets = line.iter().enumerate().filter(|&(_, &b)| b == b'[').map(|(at, _)| at);
    brackets.take(16).filter_map(|at| verbose_head_at(line, at)).last()
}

fn verbose_head_at(line: &[u8], at: usize) -> Option<(Head<'_>, &[u8])> {
    let hexadecimal = |text: &[u8]| u64::from_str_radix(std::str::from_utf8(text).ok()?, 16).ok();
    let inside = &line[at + 1..];
    let end = inside.iter().position(|&b| b == b']').filter(|&end| end >= 8)?;
    let us = hexadecimal(&inside[..end])?;
    let rest = inside[end + 1..].strip_prefix(b" ")?.trim_ascii_start();
    let close = rest.windows(4).position(|w| w == b"ms):")?;
    let is_time = |b: &u8| b.is_ascii_digit() || b".ms (+".contains(b);
    if !rest[..close].iter().all(is_time) {
        return None;
    }
    let mut before = line[..at].trim_ascii_end();
    let mut word = || {
        let space = before.iter().rposition(|&b| b == b' ')?;
        let word = &before[space + 1..];
        before = before[..space].trim_ascii_end();
        Some(word)
    };
    let (index, preempt, flags) = (word()?, word()?, word()?);
    if index.len() < 8 || preempt.len() < 8 || hexadecimal(index).and(hexadecimal(preempt)).is_none() {
        return None;
    }
    let whole = |text| number(text).filter(|(_, rest)| rest.is_empty()).map(|(n, _)| n);
    whole(flags)?;
    let (cpu, tid) = (whole(word()?)?, whole(word()?)?);
    let comm = own_name(before.trim_ascii_start());
    let (cpu, tid) = (u16::try_from(cpu).ok()?, TaskId(u32::try_from(tid).ok()?));
    let time_ns = us.checked_mul(1000).filter(|&ns| TimeNs(ns).is_possible())?;
    let head = Head { comm, tid, tgid: None, cpu, flags: b"", time_ns };
    Some((head, rest[close + 4..].trim_ascii()))
}

/// `(+2648)  block_bio_queue: …`: with `--ts-diff`, trace-cmd prints the time since the previous event.
fn without_difference(text: &[u8]) -> &[u8] {
    let behind = text.strip_prefix(b"(+").and_then(number).and_then(|(_, rest)| rest.strip_prefix(b")"));
    behind.map_or(text, <[u8]>::trim_ascii_start)
}

/// Whether the lines are from `trace-cmd report -i A -i B`, which prints several files together: `A: cpus=2`, `B: cpus=2` come first.
pub(super) fn of_several_files(lines: &[&[u8]]) -> bool {
    let of_file = |line: &&&[u8]| {
        let at = line.windows(7).position(|w| w == b": cpus=");
        at.is_some_and(|at| at > 0 && line[at + 7..].iter().all(u8::is_ascii_digit))
    };
    lines.iter().filter(of_file).count() > 1
}

/// `1734314933us+`: the mark shows how long the next event took to come.
fn microseconds(text: &[u8]) -> Option<u64> {
    let (us, rest) = number(text.trim_ascii())?;
    let mark = rest.strip_prefix(b"us")?.trim_ascii();
    matches!(mark, b"" | b"+" | b"!" | b"#" | b"*" | b"@" | b"$" | b"&").then(|| us.checked_mul(1000))?
}

/// `# entries-in-buffer/entries-written: 208/479   #P:1`
fn entries<'a>(comment: &[u8]) -> Option<Line<'a>> {
    let rest = comment.trim_ascii().strip_prefix(b"entries-in-buffer/entries-written:")?.trim_ascii();
    let (shown, rest) = number(rest)?;
    let (written, _) = number(rest.strip_prefix(b"/")?)?;
    Some(Line::Entries { shown, written })
}

/// The kernel's `CPU:0 [LOST 271 EVENTS]`, trace-cmd's `CPU:0 [271 EVENTS DROPPED]` and `CPU 1 is empty`.
fn about_cpu<'a>(rest: &[u8]) -> Option<Line<'a>> {
    if rest.ends_with(b"is empty") {
        return Some(Line::Nothing);
    }
    let (cpu, rest) = number(rest.strip_prefix(b":")?.trim_ascii())?;
    let cpu = u16::try_from(cpu).ok()?;
    let inside = rest.trim_ascii().strip_prefix(b"[")?.strip_suffix(b"]")?;
    if !inside.ends_with(b"EVENTS") && !inside.ends_with(b"DROPPED") {
        return None;
    }
    let events = inside.split(|&b| b == b' ').find_map(|word| Some(number(word)?.0));
    Some(Line::Lost { cpu, events })
}

/// Leading digits, and the text after them.
pub(super) fn number(text: &[u8]) -> Option<(u64, &[u8])> {
    let end = text.iter().position(|b| !b.is_ascii_digit()).unwrap_or(text.len());
    let digits = std::str::from_utf8(&text[..end]).ok()?;
    Some((digits.parse().ok()?, &text[end..]))
}

/// Seconds with a fraction of up to nine digits.
pub(crate) fn time(text: &[u8]) -> Option<u64> {
    let (seconds, rest) = number(text)?;
    let decimals = rest.strip_prefix(b".")?;
    let (fraction, rest) = number(decimals)?;
    if !rest.is_empty() || decimals.len() > 9 {
        return None;
    }
    let time = seconds.checked_mul(1_000_000_000)?.checked_add(fraction * 10u64.pow(9 - decimals.len() as u32))?;
    TimeNs(time).is_possible().then_some(time)
}

/// `COMM-TID`: a name may contain spaces, dashes and digits.
pub(super) fn task(text: &[u8]) -> Option<(TaskId, &[u8])> {
    let text = text.trim_ascii();
    let dash = text.iter().rposition(|&b| b == b'-')?;
    let (tid, rest) = number(&text[dash + 1..])?;
    if !rest.is_empty() || dash > MAX_COMM {
        return None;
    }
    Some((TaskId(u32::try_from(tid).ok()?), own_name(&text[..dash])))
}

/// A task's name without text that a pager, a table or `cat -n` put before it. Kernel and perf print names in a column of 16 letters
/// (`TASK_COMM_LEN`). A worker's name is longer if its queue follows (`wq_worker_comm` in kernel/workqueue.c). Text put before a name ends
/// with a space: a longer word is a name that was written by hand.
pub(crate) fn own_name(text: &[u8]) -> &[u8] {
    const WORKER: &[u8] = b"kworker/";
    let name = text.rsplit(|&b| b == b'\t').next().unwrap_or_default();
    match name.len() {
        0..=16 if name.len() == text.len() => text,
        len => {
            let worker = name.windows(WORKER.len()).rposition(|w| w == WORKER);
            let word = name.iter().rposition(u8::is_ascii_whitespace).map_or(0, |space| space + 1);
            name[worker.unwrap_or(word).min(len.saturating_sub(16))..].trim_ascii()
        }
    }
}

/// `COMM-TID [(TGID)] [CPU] [FLAGS] TIME: `, and the rest. A name may contain all of that: the first place that matches is taken, beginning
/// with the column at which the kernel ends names (`%16s-%-7d`).
fn head(line: &[u8]) -> Option<(Head<'_>, &[u8])> {
    let brackets = line.iter().enumerate().filter(|&(_, &b)| b == b'[').map(|(at, _)| at);
    let kernels = kernels_column(line);
    kernels.into_iter().chain(brackets).find_map(|at| head_at(line, at))
}

/// `COMM-TID [CPU] … COUNT: EVENT: …`: the clocks `counter` and `x86-tsc` give numbers that are not times (`trace_clocks` in
/// kernel/trace/trace.c).
pub(super) fn has_raw_count(line: &[u8]) -> bool {
    let brackets = line.iter().enumerate().filter(|&(_, &b)| b == b'[').map(|(at, _)| at);
    kernels_column(line).into_iter().chain(brackets).any(|at| {
        let behind_cpu = number(&line[at + 1..]).and_then(|(_, rest)| rest.strip_prefix(b"]"));
        let count = behind_cpu.and_then(|rest| rest.split(|&b| b == b':').next());
        let count = count.and_then(|rest| rest.rsplit(|&b| b == b' ').next());
        let digits = count.is_some_and(|c| !c.is_empty() && c.iter().all(u8::is_ascii_digit));
        digits && task(line[..at].split(|&b| b == b'(').next().unwrap_or_default()).is_some()
    })
}

/// The CPU's bracket, if the line's name ends at the kernel's column.
fn kernels_column(line: &[u8]) -> Option<usize> {
    if line.get(16) != Some(&b'-') {
        return None;
    }
    let (_, rest) = number(&line[17..])?;
    Some(line.len() - rest.len() + rest.iter().position(|&b| b == b'[')?)
}

fn head_at(line: &[u8], at: usize) -> Option<(Head<'_>, &[u8])> {
    let (cpu, rest) = number(&line[at + 1..])?;
    let rest = rest.strip_prefix(b"]")?.trim_ascii_start();
    let mut before = line[..at].trim_ascii();
    let mut tgid = None;
    if before.ends_with(b")") {
        // With the option record-tgid.
        let open = before.iter().rposition(|&b| b == b'(')?;
        tgid = number(before[open + 1..].trim_ascii_start())
            .and_then(|(tgid, _)| Some(ProcessId(u32::try_from(tgid).ok()?)));
        before = &before[..open];
    }
    let (tid, comm) = task(before)?;
    let colon = |text: &[u8]| text.iter().position(|&b| b == b':');
    let (mut flags, mut rest) = (&b""[..], rest);
    let mut end = colon(rest)?;
    if let Some(space) = rest[..end].iter().rposition(|&b| b == b' ') {
        (flags, rest) = (rest[..space].trim_ascii(), rest[space..].trim_ascii_start());
        end = colon(rest)?;
        if flags.len() > 16 || flags.contains(&b' ') {
            return None;
        }
    }
    let time_ns = time(&rest[..end])?;
    let head = Head { comm, tid, tgid, cpu: u16::try_from(cpu).ok()?, flags, time_ns };
    Some((head, without_difference(rest[end + 1..].trim_ascii())))
}

/// `[TIME |] CPU) [COMM-TID |] [DURATION] | FUNCTION`
fn graph(line: &[u8]) -> Option<Line<'_>> {
    let mut rest = line.trim_ascii_start();
    let mut time_ns = None;
    if let Some(bar) = rest.iter().position(|&b| b == b'|')
        && let Some(t) = time(rest[..bar].trim_ascii())
    {
        time_ns = Some(t);
        rest = rest[bar + 1..].trim_ascii_start();
    }
    let (cpu, after) = number(rest)?;
    let cpu = u16::try_from(cpu).ok()?;
    rest = after.strip_prefix(b")")?;
    if let Some(arrow) = rest.windows(4).position(|w| w == b" => ")
        && !rest.contains(&b'|')
    {
        let (tid, comm) = task(&rest[arrow + 4..])?;
        return Some(Line::Switch { cpu, tid, comm });
    }
    // The last bar before the function; a name may contain a bar, numbers do not.
    let mut parts = rest.splitn(2, |&b| b == b'|');
    let (mut first, mut tail) = (parts.next()?, parts.next()?);
    let mut of = None;
    if let Some(found) = task(first) {
        of = Some(found);
        let mut parts = tail.splitn(2, |&b| b == b'|');
        (first, tail) = (parts.next()?, parts.next()?);
    }
    let duration_ns = match first.trim_ascii() {
        b"" => None,
        said => Some(duration(said)?),
    };
    let function = tail.trim_ascii();
    // Two spaces, and two more for each level.
    let indent = tail.iter().take_while(|&&b| b == b' ').count();
    let depth = (indent.saturating_sub(2) / 2) as u32;
    let what = if let Some(after) = function.strip_prefix(b"}") {
        GraphPart::Exit(comment(after).unwrap_or(b""))
    } else if let Some(event) = comment(function) {
        GraphPart::Event(event)
    } else {
        // Arguments and return values, if printed, stay in the record's text.
        let name = &function[..function.iter().position(|&b| b == b'(')?];
        (!name.is_empty()).then_some(GraphPart::Entry(name))?
    };
    Some(Line::Graph(Graph { time_ns, cpu, task: of, duration_ns, depth, what }))
}

fn comment(text: &[u8]) -> Option<&[u8]> {
    Some(text.trim_ascii().strip_prefix(b"/*")?.strip_suffix(b"*/")?.trim_ascii())
}

/// `+ 16.304 us`: a mark for long durations, then microseconds.
fn duration(text: &[u8]) -> Option<u64> {
    let text = text.strip_suffix(b"us")?.trim_ascii();
    let text = match text.split_first() {
        Some((b'+' | b'!' | b'#' | b'*' | b'@' | b'$' | b'&', rest)) => rest.trim_ascii(),
        _ => text,
    };
    let (us, rest) = number(text)?;
    let fraction = match rest.strip_prefix(b".") {
        None if rest.is_empty() => 0,
        None => return None,
        Some(decimals) => {
            let (n, rest) = number(decimals)?;
            if !rest.is_empty() || decimals.len() > 3 {
                return None;
            }
            n * 10u64.pow(3 - decimals.len() as u32)
        }
    };
    us.checked_mul(1000)?.checked_add(fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(line: &str) -> (String, u32, u16, String, u64, String) {
        let Line::Event(h, rest) = parse(line.as_bytes()) else { panic!("{line}: {:?}", parse(line.as_bytes())) };
        let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
        (text(h.comm), h.tid.0, h.cpu, text(h.flags), h.time_ns, text(rest))
    }

    #[test]
    fn the_header_is_known_behind_a_prefix() {
        for line in [
            "[  99.000000] # tracer: nop",
            "12:# tracer: nop",
            "trace.txt:2:#",
            "Nov 30 01:02:03 host app[12]: #           TASK-PID   CPU#  |||||  TIMESTAMP  FUNCTION",
            "Nov 30 01:02:03 host app[12]: #                                _-----=> irqs-off/BH-disabled",
            "host app: #              | |         |   |||||     |         |",
            "host app: #                               / _----=> need-resched",
            "host app: # TIME        CPU  DURATION                  FUNCTION CALLS",
        ] {
            assert_eq!(parse(line.as_bytes()), Line::Nothing, "{line}");
            assert_eq!(begins_text(line.as_bytes()), line.ends_with("# tracer: nop"), "{line}");
        }
        for line in ["root@host:~# cat trace", "see issue #", "a # b", "C# TASK", "[ 1.0] usb 1-1: # of ports: 4"] {
            let is_prompt = line.ends_with('#');
            assert_eq!(parse(line.as_bytes()) == Line::Nothing, is_prompt, "{line}");
        }
    }

    #[test]
    fn a_name_is_without_what_stands_before_its_column() {
        for (text, want) in [
            ("      4  Web Content: (2", "Web Content: (2"),
            ("12: kworker/u8:3-events_unbound", "kworker/u8:3-events_unbound"),
            ("123:kworker/0:1H-kblockd", "kworker/0:1H-kblockd"),
            ("dmcrypt_write/253:0", "dmcrypt_write/253:0"),
            ("  17   dmcrypt_write/253:0", "dmcrypt_write/253:0"),
            ("3\t        busybox", "busybox"),
        ] {
            assert_eq!(String::from_utf8_lossy(own_name(text.as_bytes())), want, "{text}");
        }
    }

    #[test]
    fn heads_of_all_kernels() {
        for (line, want) in [
            (
                "         busybox-77      [000] d....     3.280203: sched_switch: x",
                ("busybox", 77, 0, "d....", 3_280_203_000, "sched_switch: x"),
            ),
            // Before 2.6.37 there were no flags; trace-cmd prints none either.
            ("            bash-16939 [001]  6075.461561: a: b", ("bash", 16939, 1, "", 6_075_461_561_000, "a: b")),
            ("<idle>-0     [000]   12.123456789: x: y", ("<idle>", 0, 0, "", 12_123_456_789, "x: y")),
            ("           <...>-9       [003] ...1   0.5: x:", ("<...>", 9, 3, "...1", 500_000_000, "x:")),
            (
                "         busybox-81      (     81) [000] .....     3.326915: sys_enter: NR 1 ()",
                ("busybox", 81, 0, ".....", 3_326_915_000, "sys_enter: NR 1 ()"),
            ),
            (
                "           a b-c-12      (-----) [000] ..... 1.0: e: f",
                ("a b-c", 12, 0, ".....", 1_000_000_000, "e: f"),
            ),
            ("            #a b-12      [000] ..... 1.0: e: f", ("#a b", 12, 0, ".....", 1_000_000_000, "e: f")),
            // Names that begin like a header's lines.
            ("          cpus=2-12      [000] ..... 1.0: e: f", ("cpus=2", 12, 0, ".....", 1_000_000_000, "e: f")),
            ("           ----x-12      [000] ..... 1.0: e: f", ("----x", 12, 0, ".....", 1_000_000_000, "e: f")),
            ("      #1-12      0d..1 1.0: e: f", ("#1", 12, 0, "d..1", 1_000_000_000, "e: f")),
            // A name that looks like the rest of a line.
            (
                " a-1 [003] 2.0: -12      [000] ..... 1.0: e: f",
                ("a-1 [003] 2.0: ", 12, 0, ".....", 1_000_000_000, "e: f"),
            ),
            (
                "     kworker/0:1-23      [000] d..2. 100.5: f: x [7]",
                ("kworker/0:1", 23, 0, "d..2.", 100_500_000_000, "f: x [7]"),
            ),
        ] {
            let want = (want.0.to_string(), want.1, want.2, want.3.to_string(), want.4, want.5.to_string());
            assert_eq!(event(line), want, "{line}");
        }
        for line in [
            "x", "a-1 [0] 1.0", "a-1 [0] 12: x", "a-x [0] 1.0: y", "-", "[", "a-1 [99999999] 1.0: x", "\u{fffd}) |",
            "6)|(",
        ] {
            assert_eq!(parse(line.as_bytes()), Line::Unknown, "{line}");
        }
    }

    /// Printed by Linux 6.18.
    #[test]
    fn heads_of_the_verbose_latency_format() {
        for (line, want) in [
            (
                " qemu-system-arm    6109   1 16 00000000 00000011 [3c77633a6] 66.306ms (+0.012ms): block_rq_complete: 254,0 R () 8 + 8 [0]",
                ("qemu-system-arm", 6109, 1, 16_231_314_342_000, "block_rq_complete: 254,0 R () 8 + 8 [0]"),
            ),
            (
                "             a 1    6375   0 0 00000000 00000003 [3c776313e] 65.689ms (+0.129ms): block_plug: [a 1]",
                ("a 1", 6375, 0, 16_231_313_726_000, "block_plug: [a 1]"),
            ),
        ] {
            let want = (want.0.to_string(), want.1, want.2, String::new(), want.3, want.4.to_string());
            assert_eq!(event(line), want, "{line}");
        }
        for line in
            ["dd 6375 0 0 00000000 00000003 [zz] 65.689ms (+0.129ms): x", "dd 1 0 0 0 3 [3c776313e] 6ms (+0ms): x"]
        {
            assert_eq!(parse(line.as_bytes()), Line::Unknown, "{line}");
        }
    }

    #[test]
    fn lost_events_and_comments() {
        let lost = |events| Line::Lost { cpu: 0, events };
        assert_eq!(parse(b"CPU:0 [LOST 271 EVENTS]"), lost(Some(271)));
        assert_eq!(parse(b"CPU:0 [LOST EVENTS]"), lost(None));
        assert_eq!(parse(b"CPU:0 [271 EVENTS DROPPED]"), lost(Some(271)));
        assert_eq!(parse(b"CPU 1 is empty"), Line::Nothing);
        assert_eq!(parse(b"##### CPU 2 buffer started ####"), Line::Nothing);
        let shown = parse(b"# entries-in-buffer/entries-written: 208/479   #P:1");
        assert_eq!(shown, Line::Entries { shown: 208, written: 479 });
    }

    #[test]
    fn graphs() {
        let of = |line: &'static str| match parse(line.as_bytes()) {
            Line::Graph(g) => g,
            other => panic!("{line}: {other:?}"),
        };
        let g = of(" 0)   2.656 us    |      __fget_light();");
        assert_eq!((g.cpu, g.duration_ns, g.depth, g.what), (0, Some(2656), 2, GraphPart::Entry(b"__fget_light")));
        let g = of(" 1) + 16.304 us   |        } /* vfs_read */");
        assert_eq!((g.cpu, g.duration_ns, g.depth, g.what), (1, Some(16_304), 3, GraphPart::Exit(b"vfs_read")));
        let g = of("    4.118508 |   0)   my prog-83   |               |  ksys_read() {");
        assert_eq!((g.time_ns, g.task), (Some(4_118_508_000), Some((TaskId(83), &b"my prog"[..]))));
        assert_eq!((g.duration_ns, g.depth, g.what), (None, 0, GraphPart::Entry(b"ksys_read")));
        let g = of(" 0)               |  /* sched_switch: prev_comm=a */");
        assert_eq!(g.what, GraphPart::Event(b"sched_switch: prev_comm=a"));
        assert_eq!(parse(b" 0)    bash-12    =>   cat-13  "), Line::Switch { cpu: 0, tid: TaskId(13), comm: b"cat" });
        assert_eq!(parse(b" ------------------------------------------ "), Line::Nothing);
    }

    #[test]
    fn any_cut_of_a_line_ends() {
        for line in [
            &b"         busybox-81      (     81) [000] .....     3.326915: sys_enter: NR 1 ()"[..],
            b"    4.118508 |   0)   my prog-83   |   + 16.304 us  |  ksys_read() {",
            b"CPU:0 [LOST 271 EVENTS]",
            b" 0)    bash-12    =>   cat-13  ",
        ] {
            for begin in 0..line.len() {
                for end in begin..line.len() {
                    parse(&line[begin..end]);
                }
            }
        }
    }

    #[test]
    fn latency_lines_of_the_kernel_and_of_trace_cmd() {
        for (line, comm, tid, cpu, flags, time_ns, rest) in [
            (
                "ksoftirq-22        1..s.. 1734314926us : block_rq_complete: x",
                "ksoftirq",
                22,
                1,
                "..s..",
                1_734_314_926_000,
                "block_rq_complete: x",
            ),
            ("flashsco-16370     1..s.. 1734315099us+: e: y", "flashsco", 16370, 1, "..s..", 1_734_315_099_000, "e: y"),
            ("kworker/-10979    12d..1.   15us!: e: y", "kworker/", 10979, 12, "d..1.", 15_000, "e: y"),
            (
                "      dd-110     0d.h1.    10.654895: block_rq_complete:    254,0 RM () 2316 + 2 [0]",
                "dd",
                110,
                0,
                "d.h1.",
                10_654_895_000,
                "block_rq_complete:    254,0 RM () 2316 + 2 [0]",
            ),
            ("    sh-x-109     0...1.    10.638306963: e: 0x1", "sh-x", 109, 0, "...1.", 10_638_306_963, "e: 0x1"),
            // With -R the flags are a number.
            ("rcu_sche-12      0-0x2f    11.248078: e: x=1", "rcu_sche", 12, 0, "", 11_248_078_000, "e: x=1"),
        ] {
            let (h, got) = latency_head(line.as_bytes()).expect(line);
            assert_eq!(
                (h.comm, h.tid, h.cpu, h.flags, h.time_ns),
                (comm.as_bytes(), TaskId(tid), cpu, flags.as_bytes(), time_ns),
                "{line}"
            );
            assert_eq!(got, rest.as_bytes(), "{line}");
        }
        for line in [
            "a-1 0..s.. 12ms : x", "a-1 0-0x 1.0: x", "a-1 0-0xg 1.0: x", "a-1 0 12us : x", "a-b 0..s.. 12us : x", "-",
            "a-1 0..s.. 12us",
        ] {
            assert_eq!(latency_head(line.as_bytes()), None, "{line}");
        }
    }
}
