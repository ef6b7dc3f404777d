//! The text of `blkparse` without `-f`: one step of a bio or a request per line.
//!
//! `8,16   1        1     0.000000000  5529  Q  WS 274432 + 8 [fio]`: device, CPU, number, seconds, process, step, letters, range, name.
//! The kernel's `blk` tracer with the option blk_classic prints the same without the number. Times count from the first step, so the clock
//! is blkparse's own.

use super::lane::{MAX_COUNTERS, MAX_GAP};
use crate::formats::ftrace::{blk_event, time};
use crate::formats::parsed::{Item, NOTHING_RECORDED, Parsed, Value};
use crate::formats::text::{Dialect, Lines};
use crate::formats::{Format, Reader as FormatReader};
use crate::ids::TaskId;
use crate::kind::TraceKind;
use crate::losses::Loss;
use std::collections::HashMap;

pub(crate) const FORMAT: Format = Format {
    name: "blkparse's text (not of `-f`)",
    read: "yes",
    written: "no",
    recognised_by: "lines `MAJOR,MINOR CPU NUMBER SECONDS PID STEP …`",
    reader: FormatReader::Lines(DIALECT),
};

pub(crate) const DIALECT: Dialect = Dialect {
    kind: TraceKind::BlkparseText,
    key: "blkparse_text",
    title: "blkparse's text",
    clock: "blkparse",
    why_no_event: NOTHING_RECORDED,
    lines: || Box::<Reader>::default(),
};

/// Most colons and brackets of a prefix that are tried.
const MAX_PREFIX_ENDS: usize = 16;

#[derive(Default)]
struct Reader {
    /// The next number for each device and CPU.
    next: HashMap<(Vec<u8>, u16), u64>,
    /// The latest time of this recording.
    latest: u64,
    /// The text has had a step.
    in_steps: bool,
    /// The text has reached the sums after the steps.
    in_summary: bool,
    /// The last word of what a log put before the steps: `blkparse[12]:`.
    tag: Option<Vec<u8>>,
}

impl Lines for Reader {
    fn line(&mut self, text: &[u8], f: &mut dyn FnMut(Item<'_>)) {
        let behind = || {
            let (tag, text) = behind_prefix(text)?;
            Some((tag, head(text)?))
        };
        let found = head(text).map(|head| (&b""[..], head)).or_else(behind);
        let Some((tag, head)) = found else {
            let at = self
                .tag
                .as_ref()
                .and_then(|tag| text.windows(tag.len()).position(|w| w == &tag[..]).map(|at| at + tag.len()));
            self.other(&text[at.unwrap_or(0)..], f);
            return;
        };
        if !tag.is_empty() && self.tag.as_deref() != Some(tag) {
            self.tag = Some(tag.to_vec());
        }
        let Some(parsed) = step(&head) else { return f(Item::Malformed(text)) };
        self.in_summary = false;
        self.in_steps = true;
        self.count(&head, f);
        // A completion ends with its error, so the interrupted task has no name.
        let comm = parsed.fields.iter().find_map(|(key, value)| match value {
            Value::Text(comm) if *key == "comm" => Some(*comm),
            _ => None,
        });
        if let Some(comm) = comm {
            f(Item::Task { tid: head.tid, comm, time: head.time_ns });
        }
        let (cpu, tid) = (head.cpu, head.tid);
        f(Item::Event { cpu, time: Some(head.time_ns), tid, flags: b"", text: head.payload, parsed: &parsed });
        // Messages have no number of their own.
        if head.number.is_some_and(|n| n > 0) || head.number.is_some() && head.action == b"m" {
            f(Item::Numbered);
        }
    }
}

/// A step behind what a log or grep put before the line (`Nov 30 01:02:03 host blkparse[12]:   8,0    1 …`): the last word of the prefix,
/// which ends with a colon or a bracket, and the step.
fn behind_prefix(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let ends = line.iter().enumerate().filter(|(_, b)| matches!(b, b':' | b']')).map(|(at, _)| at + 1);
    ends.take(MAX_PREFIX_ENDS).find_map(|end| {
        let step_of = head(&line[end..]).filter(|head| head.number.is_some() && step(head).is_some())?;
        let begin = line[..end].iter().rposition(|&b| b == b' ').map_or(0, |at| at + 1);
        (!step_of.device.is_empty()).then_some((&line[begin..end], &line[end..]))
    })
}

/// The step in a line, if the line has blkparse's own form.
fn step<'a>(head: &Head<'a>) -> Option<Parsed<'a>> {
    if head.digits == 9 { blk_event(head.device, head.action, head.rest) } else { None }
}

impl Reader {
    /// Checks the number: the kernel numbers the steps of each device and CPU.
    fn count(&mut self, head: &Head<'_>, f: &mut dyn FnMut(Item<'_>)) {
        // Messages have no number; the tracer prints none.
        let Some(number) = head.number.filter(|&n| n > 0 && head.action != b"m") else { return };
        let mut key = (head.device.to_vec(), head.cpu);
        // Another recording, with numbers and times of its own, or a copy of this one.
        if number == 1 && head.time_ns < self.latest && self.next.get(&key).is_some_and(|&next| next > 1) {
            f(Item::Recording);
            self.next.clear();
            self.latest = 0;
        }
        self.latest = self.latest.max(head.time_ns);
        // In a remap of a partition's trace, blkparse prints the disk but the partition's number.
        if let Some(origin) = origin(head) {
            let origin = (origin.to_vec(), head.cpu);
            let before = |key| self.next.get(key).map(|next| number.wrapping_sub(*next));
            if before(&origin).is_some_and(|gap| gap < before(&key).unwrap_or(number - 1)) {
                key = origin;
            }
        }
        let full = self.next.len() == MAX_COUNTERS;
        match self.next.get_mut(&key) {
            Some(next) => {
                let gap = number.wrapping_sub(*next);
                if (1..u64::from(MAX_GAP)).contains(&gap) {
                    f(Item::Loss(Loss::RecordsMissing, gap));
                }
                *next = number + 1;
            }
            None if full => {}
            None => drop(self.next.insert(key, number + 1)),
        }
    }

    /// A line without a step.
    fn other(&mut self, text: &[u8], f: &mut dyn FnMut(Item<'_>)) {
        let trimmed = text.trim_ascii();
        if let Some(rest) = trimmed.strip_prefix(b"Skips:") {
            // `Skips: 2 forward (1,234 -   0.5%)`: records that blkparse found missing. The numbers show them already, if the text is
            // complete.
            self.in_summary = true;
            if !rest.trim_ascii().starts_with(b"0 forward") && self.next.is_empty() {
                f(Item::Loss(Loss::GapsOfUnknownSize, 1));
            }
            return;
        }
        self.in_summary |= is_summary(trimmed) || self.in_steps && is_program(trimmed);
        let said = trimmed.is_empty() || trimmed.starts_with(b"#") || is_file(trimmed);
        if !said && !self.in_summary {
            f(Item::Malformed(text));
        }
    }
}

/// For a remap: the device from which the I/O came: `WS 18285248 + 8 <- (253,1) 18283200`.
fn origin<'a>(head: &Head<'a>) -> Option<&'a [u8]> {
    let rest = head.rest;
    let begin = rest.iter().position(|&b| b == b'(').filter(|_| head.action == b"A")? + 1;
    rest[begin..].split(|&b| b == b')').next()
}

/// `CPU0 (16):`, `Total (8,16):`
fn is_summary(text: &[u8]) -> bool {
    let named = text.starts_with(b"CPU") || text.starts_with(b"Total (");
    named && text.ends_with(b"):") || text.starts_with(b"Throughput (R/W)") || text.starts_with(b"Events (")
}

/// `kworker/0:1H (42)`: with -s, the sums of this program follow.
fn is_program(text: &[u8]) -> bool {
    let pid = text.strip_suffix(b")").and_then(|text| text.rsplit(|&b| b == b'(').next());
    pid.is_some_and(|pid| !pid.is_empty() && pid.iter().all(|b| b.is_ascii_digit() || matches!(b, b',' | b' ')))
        && text.contains(&b' ')
}

/// `Input file sda.blktrace.0 added`: blkparse's message about its input.
fn is_file(text: &[u8]) -> bool {
    text.starts_with(b"Input file ") && text.ends_with(b" added")
}

/// The part of a line before the letters of the step.
struct Head<'a> {
    device: &'a [u8],
    cpu: u16,
    number: Option<u64>,
    time_ns: u64,
    /// Number of decimals of the time; blkparse and the kernel print nine.
    digits: usize,
    tid: TaskId,
    action: &'a [u8],
    /// After the action.
    rest: &'a [u8],
    /// The action and all text after it.
    payload: &'a [u8],
}

fn head(text: &[u8]) -> Option<Head<'_>> {
    let mut rest = text;
    let device = word(&mut rest)?;
    let comma = device.iter().position(|&b| b == b',')?;
    // blkparse aligns the minor number: `8,0   ` and `8,16  `.
    let minor = &device[comma + 1..];
    let digits = |bytes: &[u8]| !bytes.is_empty() && bytes.len() <= 7 && bytes.iter().all(u8::is_ascii_digit);
    if !digits(&device[..comma]) || !digits(minor) {
        return None;
    }
    let cpu = u16::try_from(number(word(&mut rest)?)?).ok()?;
    let next = word(&mut rest)?;
    let (number, time_ns) = match time(next) {
        Some(time_ns) => (None, time_ns),
        None => (Some(number(next)?), time(word(&mut rest)?)?),
    };
    let digits = text[..text.len() - rest.len()].rsplit(|&b| b == b'.').next().map_or(0, <[u8]>::len);
    let tid = TaskId(u32::try_from(self::number(word(&mut rest)?)?).ok()?);
    let payload = rest.trim_ascii();
    let action = word(&mut rest)?;
    (action.len() <= 2).then_some(Head { device, cpu, number, time_ns, digits, tid, action, rest, payload })
}

/// Takes the next word off `rest`.
fn word<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let text = rest.trim_ascii_start();
    let end = text.iter().position(|b| matches!(b, b' ' | b'\t')).unwrap_or(text.len());
    *rest = &text[end..];
    (end > 0).then(|| &text[..end])
}

fn number(text: &[u8]) -> Option<u64> {
    let digits = text.iter().all(u8::is_ascii_digit);
    digits.then(|| std::str::from_utf8(text).ok()?.parse().ok()).flatten()
}

/// Whether lines have blkparse's heads but not its own form of steps: `-f` or `-F` changed them.
pub(crate) fn has_changed_columns(lines: &[&[u8]]) -> bool {
    /// Number of steps in blkparse's own form, and in others.
    #[derive(Default)]
    struct Count {
        own: usize,
        other: usize,
    }
    let mut kinds: HashMap<&[u8], Count> = HashMap::new();
    for head in lines.iter().filter_map(|line| head(line)) {
        if is_action(head.action) {
            let count = kinds.entry(head.action).or_default();
            *(if step(&head).is_some() { &mut count.own } else { &mut count.other }) += 1;
        }
    }
    if has_bytes_for_sectors(lines) {
        return true;
    }
    // A single line may be cut: it does not show another format.
    let own: usize = kinds.values().map(|count| count.own).sum();
    kinds.values().any(|count| count.other > count.own && (count.other > 1 || own == 0))
}

/// Whether sizes are in bytes (`%N`), where blkparse prints sectors: consecutive bios on a device show it.
fn has_bytes_for_sectors(lines: &[&[u8]]) -> bool {
    let (mut last, mut bytes) = (HashMap::<&[u8], u64>::new(), 0usize);
    for head in lines.iter().filter_map(|line| head(line)).filter(|head| head.action == b"Q") {
        let Some(parsed) = step(&head) else { continue };
        let field = |name: &str| match parsed.fields.iter().find(|(key, _)| *key == name)?.1 {
            Value::Unsigned(n) => Some(n),
            _ => None,
        };
        let (Some(sector), Some(size)) = (field("sector"), field("nr_sector")) else { continue };
        match size {
            0 => continue,
            size if size % 512 != 0 => return false,
            size => {
                let next = last.insert(head.device, sector + size / 512);
                bytes += usize::from(next == Some(sector));
            }
        }
    }
    bytes > 1
}

fn is_action(word: &[u8]) -> bool {
    matches!(
        word,
        b"Q" | b"G" | b"M" | b"F" | b"I" | b"D" | b"C" | b"P" | b"U" | b"UT" | b"A" | b"X" | b"R" | b"S" | b"B"
    )
}

/// Whether most of these lines are from blkparse with a custom format (`-f`): a step's letter with a device, a time or a kind of request,
/// but not in blkparse's own places.
pub(crate) fn of_another_format(lines: &[&[u8]]) -> bool {
    let is_one = |line: &&[u8]| {
        let is_csv = !line.contains(&b' ');
        let separators = |b: &u8| matches!(b, b' ' | b'\t' | b';' | b'|') || is_csv && *b == b',';
        let words: Vec<&[u8]> = line.split(separators).map(|w| w.strip_suffix(b",").unwrap_or(w)).collect();
        let digits = |part: &[u8]| (1..=7).contains(&part.len()) && part.iter().all(u8::is_ascii_digit);
        let device = |w: &&[u8]| w.split(|&b| b == b',').count() == 2 && w.split(|&b| b == b',').all(digits);
        let exact = |w: &&[u8]| time(w).is_some() && w.iter().rev().position(|&b| b == b'.') == Some(9);
        let kind = |w: &&[u8]| (1..=5).contains(&w.len()) && w.iter().all(|b| b"RWDFSAMN".contains(b)) && *w != b"A";
        let beside =
            |at: usize| words.iter().enumerate().any(|(other, w)| other != at && (device(w) || exact(w) || kind(w)));
        let is_step = words.iter().enumerate().any(|(at, w)| is_action(w) && *w != b"R" && beside(at));
        is_step && words.iter().filter(|w| !w.is_empty()).count() >= 3
    };
    let like = lines.iter().filter(|line| is_one(line)).count();
    like > 0 && like * 2 >= lines.len()
}
