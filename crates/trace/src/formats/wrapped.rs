//! Joins lines that a terminal, a mail or a forum has broken, and parts lines that have lost their ends.
//!
//! If a line is not understood, it is tried together with the next line. A terminal breaks at its last column, also inside words; mails and
//! forums break between words. The beginning of the text decides: the way that gives more events is used. Lines are joined only if that
//! gives more events.
//!
//! A broken line may still be an event, without its last fields. So an event waits for the next line. That line belongs to it if the event
//! ends at the terminal's last column, or if the line's first word did not fit into the event's line.

use super::parsed::Item;
use super::text::{Dialect, Lines, MAX_LINE};

/// The way in which lines are broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrap {
    Not,
    /// After this number of bytes; blanks at that place may be lost.
    Column(usize),
    /// At a blank; the longest line that begins an event has this number of bytes.
    Words(usize),
    /// Not broken: several events are in one line.
    Several,
}

/// Largest number of pieces of one line.
const MAX_PIECES: usize = 6;
/// Largest number of lost blanks at the end of a piece.
const LOST_BLANKS: usize = 2;
/// The same, if the line was broken in the blanks that fill a column: then the next piece begins with blanks.
const LOST_FILLING: usize = 24;
/// Shorter lines are not broken.
const SHORTEST: usize = 40;

/// Counts of events and malformed lines for a dialect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Understood {
    pub events: usize,
    pub malformed: usize,
}

impl Understood {
    pub fn of(dialect: &Dialect, wrap: Wrap, lines: &[&[u8]]) -> Understood {
        let mut found = Understood::default();
        let mut reader = reader(dialect, wrap);
        let mut count = |item: Item<'_>| match item {
            Item::Event { .. } | Item::Lost { .. } => found.events += 1,
            Item::Malformed(_) => found.malformed += 1,
            _ => {}
        };
        lines.iter().filter(|line| line.len() <= MAX_LINE).for_each(|line| reader.line(line, &mut count));
        reader.end(&mut count);
        found
    }
}

/// How these lines are broken. `None` unless joining gives more events, and also leaves few malformed lines, or less than half as many as
/// before: a mail has prose around the trace.
pub(crate) fn found(dialect: &Dialect, lines: &[&[u8]]) -> Option<(Wrap, Understood)> {
    let longest = lines.iter().map(|line| line.len()).max().filter(|&len| len >= SHORTEST)?;
    let of = |wrap| (wrap, Understood::of(dialect, wrap, lines));
    let begins = lines.iter().filter(|line| has_time(line)).map(|line| line.trim_ascii_end().len()).max();
    let (column, words) = (of(Wrap::Column(longest)), of(Wrap::Words(begins.unwrap_or(longest))));
    let best = if words.1.events > column.1.events { words } else { column };
    let plain = Understood::of(dialect, Wrap::Not, lines);
    let few = best.1.malformed * 4 <= best.1.events || best.1.malformed * 2 < plain.malformed;
    let is_better = best.1.events > plain.events + 1 && few;
    is_better.then_some(best)
}

/// A reader for lines that are broken in this way.
pub(crate) fn reader(dialect: &Dialect, wrap: Wrap) -> Box<dyn Lines> {
    let lines = (dialect.lines)();
    match wrap {
        Wrap::Not => lines,
        Wrap::Several => Box::new(Parted { lines }),
        _ => Box::new(Joined { lines, wrap, buffer: Vec::new(), pieces: 0, is_event: false, last: 0 }),
    }
}

/// Whether lines have several events each. `None` unless parting them gives more events.
pub(crate) fn several(dialect: &Dialect, lines: &[&[u8]]) -> Option<(Wrap, Understood)> {
    let times = |line: &&&[u8]| line.split(u8::is_ascii_whitespace).filter(|word| is_time(word)).count();
    if !lines.iter().any(|line| times(&line) > 1) {
        return None;
    }
    let (plain, parted) = (Understood::of(dialect, Wrap::Not, lines), Understood::of(dialect, Wrap::Several, lines));
    let is_better = parted.events > plain.events + 1 && parted.malformed * 4 <= parted.events;
    is_better.then_some((Wrap::Several, parted))
}

/// Whether the word is a time with at least microseconds, as before an event.
fn is_time(word: &[u8]) -> bool {
    let mut parts = word.strip_suffix(b":").unwrap_or(word).split(|&b| b == b'.');
    let (Some(seconds), Some(decimals), None) = (parts.next(), parts.next(), parts.next()) else { return false };
    let all_digits = |part: &[u8]| part.iter().all(u8::is_ascii_digit);
    !seconds.is_empty() && decimals.len() >= 6 && all_digits(seconds) && all_digits(decimals)
}

fn has_time(line: &[u8]) -> bool {
    line.split(u8::is_ascii_whitespace).any(is_time)
}

/// Where the second and further events of a line begin, by their times.
fn further_begins(line: &[u8]) -> Vec<usize> {
    let mut words: Vec<&[u8]> = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).collect();
    let at = |word: &[u8]| word.as_ptr() as usize - line.as_ptr() as usize;
    let mut begins = Vec::new();
    let times: Vec<usize> = (0..words.len()).filter(|&n| is_time(words[n])).collect();
    words.push(&line[line.len()..]);
    for pair in times.windows(2) {
        let (before, time) = (pair[0], pair[1]);
        // blkparse: device, CPU, number, time.
        if !words[time].ends_with(b":") {
            let is_device = |word: &[u8]| word.contains(&b',') && word.iter().all(|b| b.is_ascii_digit() || *b == b',');
            begins.extend((time >= before + 4 && is_device(words[time - 3])).then(|| at(words[time - 3])));
            continue;
        }
        let is_cpu = |n: &usize| {
            let inside = words[*n].strip_prefix(b"[").and_then(|word| word.strip_suffix(b"]"));
            inside.is_some_and(|inside| !inside.is_empty() && inside.iter().all(u8::is_ascii_digit))
        };
        // `COMM-TID [(TGID)] [CPU] [FLAGS] TIME`, or perf's `COMM PID [[CPU]] TIME`.
        let mut task = (time.saturating_sub(2).max(before + 1)..time).find(is_cpu).unwrap_or(time) - 1;
        if words[task].ends_with(b")") {
            task = (before..task + 1).rev().find(|&n| words[n].starts_with(b"(")).unwrap_or(task).saturating_sub(1);
        }
        task -= usize::from(task > 0 && words[task].iter().all(u8::is_ascii_digit));
        if task <= before + 1 {
            continue;
        }
        // Names may have blanks. The event before ends with a bracket, or the name is behind the blanks of its column; else it is one word.
        let ended = |n: &usize| words[*n].ends_with(b"]") || at(words[*n + 1]) > at(words[*n]) + words[*n].len() + 1;
        let end = (before + 2..task).rev().find(ended).unwrap_or(task - 1);
        begins.push(at(words[end + 1]));
    }
    begins
}

/// Reads lines that have several events each.
struct Parted {
    lines: Box<dyn Lines>,
}

impl Lines for Parted {
    fn line(&mut self, line: &[u8], f: &mut dyn FnMut(Item<'_>)) {
        let mut from = 0;
        for begin in further_begins(line) {
            if begin > from {
                self.lines.line(&line[from..begin], f);
                from = begin;
            }
        }
        self.lines.line(&line[from..], f);
    }

    fn too_long(&mut self, begin: &[u8], f: &mut dyn FnMut(Item<'_>)) {
        self.lines.too_long(begin, f);
    }

    fn end(&mut self, f: &mut dyn FnMut(Item<'_>)) {
        self.lines.end(f);
    }
}

struct Joined {
    lines: Box<dyn Lines>,
    wrap: Wrap,
    /// The beginning of a line that may continue.
    buffer: Vec<u8>,
    pieces: usize,
    /// The beginning alone is an event.
    is_event: bool,
    /// Bytes of the last piece.
    last: usize,
}

#[derive(PartialEq, Eq)]
enum Said {
    Event,
    Nothing,
    Malformed,
}

impl Joined {
    /// How the dialect classifies a line. A line may be read twice without effect.
    fn said(&mut self, line: &[u8]) -> Said {
        let mut said = Said::Nothing;
        self.lines.line(line, &mut |item| match item {
            Item::Event { .. } | Item::Lost { .. } => said = Said::Event,
            Item::Malformed(_) => said = Said::Malformed,
            _ => {}
        });
        said
    }

    /// Reports the beginning alone: no further piece belongs to it.
    fn give_up(&mut self, f: &mut dyn FnMut(Item<'_>)) {
        let begin = std::mem::take(&mut self.buffer);
        match self.pieces {
            0 => {}
            _ if self.is_event => self.lines.line(&begin, f),
            _ => f(Item::Malformed(&begin)),
        }
        self.pieces = 0;
        self.is_event = false;
    }

    fn begin(&mut self, line: &[u8], is_event: bool) {
        self.buffer.extend_from_slice(line);
        self.pieces = 1;
        self.is_event = is_event;
        self.last = line.trim_ascii_end().len();
    }

    /// Whether a line may continue the event before it, because its first word did not fit there.
    fn had_no_room(&self, line: &[u8]) -> bool {
        // `join` checks that a terminal's line is full.
        let Wrap::Words(width) = self.wrap else { return true };
        let word = line.split(u8::is_ascii_whitespace).find(|word| !word.is_empty());
        word.is_some_and(|word| self.last + 1 + word.len() > width)
    }

    /// Adds a piece. Returns false if the line cannot continue like this.
    fn join(&mut self, line: &[u8]) -> bool {
        match self.wrap {
            Wrap::Column(width) => {
                let end = self.pieces * width;
                let lost = if line.starts_with(b" ") { LOST_FILLING } else { LOST_BLANKS };
                if self.buffer.len() > end || self.buffer.len() + lost < end {
                    return false;
                }
                self.buffer.resize(end, b' ');
            }
            _ => self.buffer.push(b' '),
        }
        self.buffer.extend_from_slice(line);
        self.last = line.trim_ascii_end().len();
        self.pieces += 1;
        self.pieces <= MAX_PIECES && self.buffer.len() <= MAX_LINE
    }
}

impl Lines for Joined {
    fn line(&mut self, line: &[u8], f: &mut dyn FnMut(Item<'_>)) {
        let alone = self.said(line);
        if line.trim_ascii().is_empty() {
            self.give_up(f);
            return self.lines.line(line, f);
        }
        if alone == Said::Event {
            self.give_up(f);
            return self.begin(line, true);
        }
        let may_belong = self.pieces > 0 && (!self.is_event || !has_time(line) && self.had_no_room(line));
        let before = self.buffer.len();
        if may_belong && self.join(line) {
            let joined = std::mem::take(&mut self.buffer);
            let is_event = self.said(&joined) == Said::Event;
            self.buffer = joined;
            if is_event || !self.is_event {
                self.is_event = is_event;
                return;
            }
        }
        if self.is_event {
            self.buffer.truncate(before);
        }
        self.give_up(f);
        match alone {
            Said::Malformed => self.begin(line, false),
            _ => self.lines.line(line, f),
        }
    }

    fn too_long(&mut self, begin: &[u8], f: &mut dyn FnMut(Item<'_>)) {
        self.give_up(f);
        self.lines.too_long(begin, f);
    }

    fn end(&mut self, f: &mut dyn FnMut(Item<'_>)) {
        self.give_up(f);
        self.lines.end(f);
    }
}
