//! Lines that a terminal, a mail or a forum has broken, put together again.
//!
//! A line that is none of the dialect, with the one behind it, may be one. A terminal breaks at its last column, inside of
//! words too; mails and forums break between words. The beginning of the text shows which: what makes more lines
//! events. Nothing is joined where no more of them are.

use super::parsed::Item;
use super::text::{Dialect, Lines, MAX_LINE};

/// How lines are broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrap {
    Not,
    /// Behind so many bytes; blanks there may be lost.
    Column(usize),
    /// At a blank.
    Words,
}

/// Pieces of one line at most.
const MAX_PIECES: usize = 4;
/// Blanks at a piece's end that were lost.
const LOST_BLANKS: usize = 2;
/// Shorter lines are not broken.
const SHORTEST: usize = 40;

/// What a dialect makes of some lines.
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

/// How these lines are broken; `None`: no way makes more of them events, and all but a few.
pub(crate) fn found(dialect: &Dialect, lines: &[&[u8]]) -> Option<(Wrap, Understood)> {
    let longest = lines.iter().map(|line| line.len()).max().filter(|&len| len >= SHORTEST)?;
    let of = |wrap| (wrap, Understood::of(dialect, wrap, lines));
    let (column, words) = (of(Wrap::Column(longest)), of(Wrap::Words));
    let best = if words.1.events > column.1.events { words } else { column };
    let plain = Understood::of(dialect, Wrap::Not, lines).events;
    let is_better = best.1.events > plain + 1 && best.1.malformed * 4 <= best.1.events;
    is_better.then_some(best)
}

/// A reader of such lines.
pub(crate) fn reader(dialect: &Dialect, wrap: Wrap) -> Box<dyn Lines> {
    let lines = (dialect.lines)();
    match wrap {
        Wrap::Not => lines,
        _ => Box::new(Joined { lines, wrap, buffer: Vec::new(), pieces: 0 }),
    }
}

struct Joined {
    lines: Box<dyn Lines>,
    wrap: Wrap,
    /// The beginning of a line.
    buffer: Vec<u8>,
    pieces: usize,
}

#[derive(PartialEq, Eq)]
enum Said {
    Event,
    Nothing,
    Malformed,
}

impl Joined {
    /// What the dialect says of a line. Reading one twice changes nothing.
    fn said(&mut self, line: &[u8]) -> Said {
        let mut said = Said::Nothing;
        self.lines.line(line, &mut |item| match item {
            Item::Event { .. } | Item::Lost { .. } => said = Said::Event,
            Item::Malformed(_) => said = Said::Malformed,
            _ => {}
        });
        said
    }

    fn give_up(&mut self, f: &mut dyn FnMut(Item<'_>)) {
        if self.pieces > 0 {
            f(Item::Malformed(&self.buffer));
        }
        self.buffer.clear();
        self.pieces = 0;
    }

    /// Adds a piece. False: this line does not go on so.
    fn join(&mut self, line: &[u8]) -> bool {
        match self.wrap {
            Wrap::Column(width) => {
                let end = self.pieces * width;
                if self.buffer.len() > end || self.buffer.len() + LOST_BLANKS < end {
                    return false;
                }
                self.buffer.resize(end, b' ');
            }
            _ => self.buffer.push(b' '),
        }
        self.buffer.extend_from_slice(line);
        self.pieces += 1;
        self.pieces <= MAX_PIECES && self.buffer.len() <= MAX_LINE
    }
}

impl Lines for Joined {
    fn line(&mut self, line: &[u8], f: &mut dyn FnMut(Item<'_>)) {
        let alone = self.said(line);
        if alone == Said::Event || line.trim_ascii().is_empty() {
            self.give_up(f);
            return self.lines.line(line, f);
        }
        if self.pieces > 0 && self.join(line) {
            let line = std::mem::take(&mut self.buffer);
            if self.said(&line) == Said::Event {
                self.pieces = 0;
                return self.lines.line(&line, f);
            }
            self.buffer = line;
            return;
        }
        self.give_up(f);
        match alone {
            Said::Malformed => {
                self.buffer.extend_from_slice(line);
                self.pieces = 1;
            }
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
