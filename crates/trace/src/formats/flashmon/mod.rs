//! Reads and writes Flashmon's two text formats.
//!
//! Source: Olivier, Boukhobza and Senn, "Flashmon V2", section 3.3. The temporal log has lines `time;R|W|E;address[;task]` (the paper's
//! text says commas, its example has semicolons). The spatial view has reads, writes and erases of one block per line. Flashmon 2.1 adds
//! `C` lines to the log: reads that the MTD layer's page buffer answered without the flash. It leaves out the task if configured so
//! (`LOG_TASK=0`), and counts times from when it was loaded.
//!
//! The log of our module (`kernel/flashmon/README.md`) with `extended=1` has four more fields: `…;task;thread;duration_ns;cpu;sequence`.

use crate::bytes::Endian;
use crate::decode::ASSUMED_PAGES_PER_BLOCK;
use crate::decode::names::Names;
use crate::error::Error;
use crate::events::{Event, EventKind, FlashAccess, FlashOp, TimeNs};
use crate::formats::{Format, Reader};
use crate::ids::TaskId;
use crate::input::Input;
use crate::kind::TraceKind;
use crate::losses::{Loss, Losses};
use crate::pairs::Pair;
use crate::record::Record;
use crate::ring::Missed;
use crate::ring::schema::Schema;
use crate::source::{Beside, Opened, Source};
use std::collections::HashMap;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;

pub(crate) const LOG: Format = Format {
    name: "Flashmon's temporal log",
    read: "yes",
    written: "yes",
    recognised_by: "a first line `seconds.decimals;R|W|E|C;address[;task]`",
    reader: Reader::Bytes { is: |head| looks_like(head) == Looks::Log, open },
};

/// Not a trace: counts for each block ([`Spatial`]).
pub(crate) const SPATIAL: Format = Format {
    name: "Flashmon's spatial view",
    read: "counts of each block, by the library",
    written: "yes",
    recognised_by: "a first line of three numbers",
    reader: Reader::None,
};

/// Longest line that is read; Flashmon's own buffer has 128 bytes.
const MAX_LINE: usize = 4096;
/// Largest number of different task names in a log.
const MAX_TASKS: usize = 1 << 16;
/// Longest task name; the kernel's have 15 bytes.
const MAX_TASK: usize = 64;
/// Largest number of blocks of a chip: 1 TiB in blocks of 1 MiB. Their counts take 24 MiB.
pub(crate) const MAX_BLOCKS: usize = 1 << 20;

/// The contents of a line of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line<'a> {
    time_ns: u64,
    kind: Kind,
    /// Page of a read or write, block of an erase.
    address: u64,
    task: &'a [u8],
    extended: Option<Extended>,
}

/// The additional fields of an extended line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extended {
    thread: TaskId,
    duration_ns: u64,
    cpu: u16,
}

/// `task;thread;duration_ns;cpu;sequence`: here the task's name has no semicolon.
fn parse_extended(rest: &[u8]) -> Option<(&[u8], Extended)> {
    let mut parts = rest.split(|&b| b == b';');
    let task = parts.next()?;
    let mut number = || parse_number(parts.next()?);
    let (thread, duration_ns, cpu, _sequence) = (number()?, number()?, number()?, number()?);
    let extended = Extended { thread: TaskId(thread.try_into().ok()?), duration_ns, cpu: cpu.try_into().ok()? };
    parts.next().is_none().then_some((task, extended))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Flash(FlashOp),
    CacheHit,
}

impl Kind {
    pub(crate) fn letter(self) -> u8 {
        match self {
            Kind::Flash(FlashOp::Read) => b'R',
            Kind::Flash(FlashOp::Program) => b'W',
            Kind::Flash(FlashOp::Erase) => b'E',
            Kind::CacheHit => b'C',
        }
    }
}

fn parse_line(line: &[u8]) -> Option<Line<'_>> {
    let separator = *line.iter().find(|&&b| b == b';' || b == b',')?;
    let mut parts = line.splitn(4, |&b| b == separator);
    let time_ns = parse_time(trim(parts.next()?))?;
    let kind = match trim(parts.next()?) {
        b"R" => Kind::Flash(FlashOp::Read),
        b"W" => Kind::Flash(FlashOp::Program),
        b"E" => Kind::Flash(FlashOp::Erase),
        b"C" => Kind::CacheHit,
        _ => return None,
    };
    let address = parse_number(trim(parts.next()?))?;
    let rest = parts.next().map_or(&b""[..], trim);
    // A table of block requests has sizes and times in the place of the task.
    if separator == b',' && rest.contains(&b',') && rest.iter().all(|b| b.is_ascii_digit() || b" ,.".contains(b)) {
        return None;
    }
    let (task, extended) = match parse_extended(rest).filter(|_| separator == b';') {
        Some((task, extended)) => (task, Some(extended)),
        None => (rest, None),
    };
    Some(Line { time_ns, kind, address, task, extended })
}

fn trim(bytes: &[u8]) -> &[u8] {
    bytes.trim_ascii()
}

fn parse_number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Seconds with up to nine decimals.
fn parse_time(text: &[u8]) -> Option<u64> {
    let mut parts = text.splitn(2, |&b| b == b'.');
    let seconds = parse_number(parts.next()?)?;
    let nanoseconds = match parts.next() {
        None => 0,
        Some(decimals) if decimals.len() <= 9 => parse_number(decimals)? * 10u64.pow(9 - decimals.len() as u32),
        Some(_) => return None,
    };
    let time = seconds.checked_mul(1_000_000_000)?.checked_add(nanoseconds)?;
    TimeNs(time).is_possible().then_some(time)
}

/// The kind of a text file, by its first lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Looks {
    Log,
    Spatial,
    Neither,
}

pub(crate) fn looks_like(head: &[u8]) -> Looks {
    // The last line of the head may be cut: it counts only if it is the only line.
    let mut lines = head.split(|&b| b == b'\n').map(trim).filter(|l| !l.is_empty());
    match lines.next() {
        Some(first) if parse_line(first).is_some() => Looks::Log,
        Some(first) if parse_spatial(first).is_some() => Looks::Spatial,
        _ => Looks::Neither,
    }
}

/// A temporal log. Only the extended format has thread ids; otherwise every task name gets a number, from 1.
#[derive(Debug)]
pub(crate) struct Log {
    file: Arc<Input>,
    tasks: HashMap<Vec<u8>, TaskId>,
    pub cpus: u16,
    schema: Arc<Schema>,
}

/// The format of the records that the log's lines become.
const SCHEMA: &str = "name: flashmon_access\nID: 1\nformat:\n\
    \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
    \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
    \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
    \tfield:char operation[8];\toffset:8;\tsize:8;\tsigned:0;\n\
    \tfield:u64 address;\toffset:16;\tsize:8;\tsigned:0;\n\
    \tfield:__data_loc char[] task;\toffset:24;\tsize:4;\tsigned:0;\n\n\
    print fmt: \"%s %llu %s\", REC->operation, REC->address, __get_str(task)\n";

/// Opens a log. It does not say how many pages a block has.
pub(crate) fn open(path: &Path, input: Input) -> Result<Opened, Error> {
    let (log, names, losses) = Log::open(path, input)?;
    let facts = serde_json::json!({"flashmon": {"pages_per_block_assumed": ASSUMED_PAGES_PER_BLOCK}});
    Ok(Opened { facts, losses, names, ..Opened::of(TraceKind::FlashmonLog, log) })
}

impl Log {
    /// Reads the whole log once, for task names and malformed lines.
    pub fn open(path: &Path, input: Input) -> Result<(Log, Names, Losses), Error> {
        let mut log = Log {
            file: Arc::new(input),
            tasks: HashMap::new(),
            cpus: 1,
            schema: Arc::new(
                Schema::parse("flashmon", SCHEMA, Endian::Little, 8)
                    .map_err(|e| Error::Unsupported { path: path.to_path_buf(), what: e.to_string() })?,
            ),
        };
        let mut names = Names::default();
        let mut losses = Losses::new();
        let (mut tasks, mut last) = (HashMap::new(), 0);
        let (mut threads, mut cpus) = (HashMap::<TaskId, Vec<u8>>::new(), 1);
        log.lines(|line| match line {
            None => losses.add(Loss::LinesMalformed, 1),
            Some(line) => {
                if line.time_ns < last {
                    losses.add(Loss::TimesBackwards, 1);
                }
                last = line.time_ns;
                if let Some(extended) = line.extended {
                    cpus = cpus.max(extended.cpu.saturating_add(1));
                    // A thread may change its name.
                    let known = threads.get(&extended.thread);
                    if line.task.is_empty() || known.is_some_and(|name| name == line.task) {
                    } else if (known.is_some() || threads.len() < MAX_TASKS) && line.task.len() <= MAX_TASK {
                        names.set(extended.thread, if known.is_some() { line.time_ns } else { 0 }, line.task);
                        threads.insert(extended.thread, line.task.to_vec());
                    } else {
                        losses.add(Loss::NamesDropped, 1);
                    }
                } else if line.task.is_empty() || tasks.contains_key(line.task) {
                } else if tasks.len() < MAX_TASKS && line.task.len() <= MAX_TASK {
                    let tid = TaskId(tasks.len() as u32 + 1);
                    names.set(tid, 0, line.task);
                    tasks.insert(line.task.to_vec(), tid);
                } else {
                    losses.add(Loss::NamesDropped, 1);
                }
            }
        })
        .map_err(|e| Error::io(path, "read", e))?;
        log.tasks = tasks;
        log.cpus = cpus;
        Ok((log, names, losses))
    }

    fn lines(&self, mut f: impl FnMut(Option<Line<'_>>)) -> io::Result<()> {
        // The reader has its own position: two passes over one open file do not disturb each other.
        let mut reader = BufReader::with_capacity(64 << 10, self.file.reader());
        let mut line = Vec::new();
        loop {
            line.clear();
            let n = io::Read::take(&mut reader, MAX_LINE as u64).read_until(b'\n', &mut line)?;
            if n == 0 {
                return Ok(());
            }
            if n == MAX_LINE && line.last() != Some(&b'\n') {
                reader.skip_until(b'\n')?;
                f(None);
                continue;
            }
            let text = trim(&line);
            if !text.is_empty() {
                // Without its end a line was cut, perhaps within a number, which would then be another one.
                f(parse_line(text).filter(|_| line.ends_with(b"\n")));
            }
        }
    }

    fn tid(&self, line: &Line<'_>) -> TaskId {
        match line.extended {
            Some(extended) => extended.thread,
            None => self.tasks.get(line.task).copied().unwrap_or_default(),
        }
    }

    fn event(&self, line: &Line<'_>) -> Event {
        let flash =
            |op, page| EventKind::Flash(FlashAccess { op, page, offset_bytes: None, length_bytes: None, chip: 0 });
        let kind = match line.kind {
            Kind::CacheHit => {
                EventKind::Other { system: "flashmon".to_string(), name: "mtd_cache_hit".to_string(), result: None }
            }
            Kind::Flash(FlashOp::Erase) => flash(FlashOp::Erase, line.address.saturating_mul(ASSUMED_PAGES_PER_BLOCK)),
            Kind::Flash(op) => flash(op, line.address),
        };
        let cpu = line.extended.map_or(0, |extended| extended.cpu);
        Event { time: TimeNs(line.time_ns), cpu, tid: self.tid(line), kind }
    }

    fn records(&self, f: &mut dyn FnMut(&Line<'_>, &Record<'_>)) -> io::Result<()> {
        let mut data = Vec::new();
        self.lines(|line| {
            let Some(line) = line else { return };
            data.clear();
            data.extend_from_slice(&[1, 0, 0, 0]);
            data.extend_from_slice(&self.tid(&line).0.to_le_bytes());
            data.extend_from_slice(&[line.kind.letter(), 0, 0, 0, 0, 0, 0, 0]);
            data.extend_from_slice(&line.address.to_le_bytes());
            data.extend_from_slice(&((line.task.len() as u32) << 16 | 28).to_le_bytes());
            data.extend_from_slice(line.task);
            let record = Record {
                time: TimeNs(line.time_ns),
                cpu: line.extended.map_or(0, |extended| extended.cpu),
                buffer: "",
                missed: Missed::Nothing,
                schema: &self.schema,
                data: &data,
            };
            f(&line, &record);
        })
    }
}

impl Source for Log {
    /// Times count from when Flashmon was loaded.
    fn clock(&self) -> &str {
        "flashmon"
    }

    fn cpus(&self) -> u32 {
        u32::from(self.cpus)
    }

    fn schemas(&self) -> Box<dyn Iterator<Item = &Arc<Schema>> + '_> {
        Box::new(std::iter::once(&self.schema))
    }

    fn counts_missing(&self) -> bool {
        false
    }

    fn for_each_record(&self, f: &mut dyn FnMut(&Record<'_>)) -> io::Result<Losses> {
        self.records(&mut |_, record| f(record))?;
        Ok(Losses::new())
    }

    /// Ends of operations are events without a record.
    fn for_each_pair(&self, _beside: &Beside<'_>, f: &mut dyn FnMut(Pair<'_>)) -> io::Result<Losses> {
        let mut ends = Ends::default();
        self.records(&mut |line, record| {
            ends.before(line.time_ns, f);
            ends.of(line);
            f(Pair { record: Some(record), event: Some(self.event(line)).as_ref() });
        })?;
        ends.before(u64::MAX, f);
        Ok(Losses::new())
    }
}

/// Operations that have begun and not ended. They are few: one for each task in the flash driver.
#[derive(Default)]
struct Ends(Vec<Event>);

impl Ends {
    /// More than a chip does at once. Above this limit the oldest operation is reported too early.
    const MOST: usize = 4096;

    fn of(&mut self, line: &Line<'_>) {
        let (Some(extended), Kind::Flash(op)) = (line.extended, line.kind) else { return };
        let time = TimeNs(line.time_ns.saturating_add(extended.duration_ns));
        let kind = EventKind::FlashDone { op, duration_ns: extended.duration_ns };
        let at = self.0.partition_point(|end| end.time <= time);
        self.0.insert(at, Event { time, cpu: extended.cpu, tid: extended.thread, kind });
    }

    /// Reports the operations that end before a time.
    fn before(&mut self, time_ns: u64, f: &mut dyn FnMut(Pair<'_>)) {
        let due = self.0.partition_point(|end| end.time.0 <= time_ns).max(self.0.len().saturating_sub(Self::MOST));
        self.0.drain(..due).for_each(|end| f(Pair { record: None, event: Some(&end) }));
    }
}

/// Counts of operations on one erase block, as in the spatial view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockCounts {
    pub reads: u64,
    pub writes: u64,
    pub erases: u64,
}

fn parse_spatial(line: &[u8]) -> Option<BlockCounts> {
    let mut numbers = line.split(|&b| b == b';' || b == b',' || b.is_ascii_whitespace()).filter(|n| !n.is_empty());
    let counts = BlockCounts {
        reads: parse_number(numbers.next()?)?,
        writes: parse_number(numbers.next()?)?,
        erases: parse_number(numbers.next()?)?,
    };
    numbers.next().is_none().then_some(counts)
}

/// Reads a spatial view: one entry per block, in order. A malformed line is an error, because it would shift the blocks of all later lines.
pub fn read_spatial(path: &Path) -> Result<Vec<BlockCounts>, Error> {
    let file = flashscope_output::open_input(path).map_err(|e| Error::io(path, "open", e))?;
    spatial_view(path, BufReader::new(file))
}

/// Like [`read_spatial`], for a view in memory; messages name it `path`.
pub fn parse_spatial_view(path: &Path, text: &[u8]) -> Result<Vec<BlockCounts>, Error> {
    spatial_view(path, text)
}

fn spatial_view(path: &Path, mut reader: impl BufRead) -> Result<Vec<BlockCounts>, Error> {
    let (mut blocks, mut line, mut at) = (Vec::new(), Vec::new(), 0u64);
    loop {
        line.clear();
        let n = io::Read::take(&mut reader, MAX_LINE as u64)
            .read_until(b'\n', &mut line)
            .map_err(|e| Error::io(path, "read", e))?;
        if n == 0 {
            return Ok(blocks);
        }
        let text = trim(&line);
        if !text.is_empty() {
            let counts = parse_spatial(text).filter(|_| line.ends_with(b"\n")).ok_or_else(|| {
                let shown: String = text.escape_ascii().to_string().chars().take(40).collect();
                Error::malformed(
                    path,
                    at,
                    "reads, writes and erases of a block, and the line's end",
                    format!("\"{shown}\""),
                )
            })?;
            if blocks.len() == MAX_BLOCKS {
                return Err(Error::malformed(path, at, format!("at most {MAX_BLOCKS} blocks"), "more"));
            }
            blocks.push(counts);
        }
        at += n as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_paper_and_their_variants() {
        let paper = parse_line(b"13.551048336;R;22655;cat").unwrap();
        assert_eq!(
            paper,
            Line {
                time_ns: 13_551_048_336,
                kind: Kind::Flash(FlashOp::Read),
                address: 22655,
                task: b"cat",
                extended: None
            }
        );
        assert_eq!(parse_line(b"13.551048336,R,22655,cat"), Some(paper));
        assert_eq!(parse_line(b" 13.551048336; R ;22655; cat \r"), Some(paper));
        let erase = parse_line(b"13.563917567;E;1025;jffs2_gcd_mtd6").unwrap();
        assert_eq!((erase.kind, erase.address), (Kind::Flash(FlashOp::Erase), 1025));
        assert_eq!(parse_line(b"0.5;C;7").unwrap().time_ns, 500_000_000);
        assert_eq!(parse_line(b"0.5;W;7").unwrap().task, b"");
        // A name with the separator in it.
        assert_eq!(parse_line(b"0.5;W;7;a;b").unwrap().task, b"a;b");
        for bad in [
            &b""[..],
            b";",
            b"13.5;X;1;cat",
            b"13.5;R;-1;cat",
            b"13.5;R;18446744073709551616;cat",
            b"18446744074.0;R;1",
            b"1.0000000001;R;1",
            b"1.;R;1",
            b"1.5;R",
            b"x;R;1",
            b"1 2 3",
        ] {
            assert_eq!(parse_line(bad), None, "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn spatial_lines() {
        let want = BlockCounts { reads: 64, writes: 0, erases: 3 };
        for line in [&b"64 0 3"[..], b"64;0;3", b"64,0,3", b"  64\t0 3 \r"] {
            assert_eq!(parse_spatial(line), Some(want));
        }
        for line in [&b"64 0"[..], b"64 0 3 1", b"64 0 x", b""] {
            assert_eq!(parse_spatial(line), None);
        }
        assert_eq!(looks_like(b"\n1 2 3\n"), Looks::Spatial);
        assert_eq!(looks_like(b"1.0;R;3\n"), Looks::Log);
        assert_eq!(looks_like(b"hello;R;3\n"), Looks::Neither);
    }
}
