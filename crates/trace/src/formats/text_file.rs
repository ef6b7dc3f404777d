//! Reads a text file line by line in bounded memory, and passes each line to its dialect.

use super::parsed::{Item, Parser};
use super::text::{Dialect, MAX_LINE, plain, without_end, without_mark, without_number};
use super::wrapped::{self, Wrap};
use crate::input::Input;
use crate::kind::TraceKind;
use std::io::{self, BufRead, BufReader};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A text in one dialect.
#[derive(Debug)]
pub(crate) struct Text {
    pub input: Arc<Input>,
    pub dialect: Dialect,
    pub wrap: Wrap,
    /// All lines have numbers before them.
    pub numbered: bool,
    /// Offset of the line that is read.
    pub at: AtomicU64,
}

impl Text {
    pub fn new(input: Arc<Input>, dialect: Dialect, wrap: Wrap, numbered: bool) -> Text {
        Text { input, dialect, wrap, numbered, at: AtomicU64::new(0) }
    }

    fn lines(&self, part: Range<u64>, f: &mut dyn FnMut(Item<'_>)) -> io::Result<()> {
        let mut lines = wrapped::reader(&self.dialect, self.wrap);
        let mut reader = BufReader::with_capacity(64 << 10, self.input.reader_at(part.start));
        let mut buffer = Vec::new();
        let mut at = part.start;
        loop {
            buffer.clear();
            let n = match at < part.end {
                true => io::Read::take(&mut reader, MAX_LINE as u64).read_until(b'\n', &mut buffer)?,
                false => 0,
            };
            if n == 0 {
                lines.end(f);
                return Ok(());
            }
            self.at.store(at, Ordering::Relaxed);
            let is_first = at == 0;
            at += n as u64;
            if n == MAX_LINE && buffer.last() != Some(&b'\n') {
                at += skip_line(&mut reader)?;
                lines.too_long(&buffer, f);
                continue;
            }
            let line = without_end(&buffer);
            let line = if is_first { without_mark(line) } else { line };
            lines.line(&plain(if self.numbered { without_number(line) } else { line }), f);
        }
    }
}

/// Skips the rest of a line. Returns the number of its bytes.
fn skip_line(reader: &mut impl BufRead) -> io::Result<u64> {
    let mut skipped = 0;
    loop {
        let there = reader.fill_buf()?;
        let end = there.iter().position(|&b| b == b'\n');
        let n = end.map_or(there.len(), |end| end + 1);
        reader.consume(n);
        skipped += n as u64;
        if end.is_some() || n == 0 {
            return Ok(skipped);
        }
    }
}

impl Parser for Text {
    fn kind(&self) -> TraceKind {
        self.dialect.kind
    }

    fn clock(&self) -> &str {
        self.dialect.clock
    }

    fn key(&self) -> &'static str {
        self.dialect.key
    }

    fn title(&self) -> &'static str {
        self.dialect.title
    }

    fn why_no_event(&self) -> &'static str {
        self.dialect.why_no_event
    }

    fn facts(&self, into: &mut serde_json::Value) {
        match self.wrap {
            Wrap::Not => {}
            Wrap::Column(width) => into["broken_lines"] = format!("joined: broken behind {width} bytes").into(),
            Wrap::Words(_) => into["broken_lines"] = "joined: broken between words".into(),
            Wrap::Several => into["broken_lines"] = "parted: several events in a line".into(),
        }
    }

    fn walk(&self, f: &mut dyn FnMut(Item<'_>)) -> io::Result<()> {
        self.lines(0..u64::MAX, f)
    }

    fn walk_part(&self, part: Range<u64>, f: &mut dyn FnMut(Item<'_>)) -> io::Result<()> {
        self.lines(part, f)
    }

    /// blkparse's times count from the first step of each text.
    fn position(&self) -> Option<u64> {
        (self.dialect.kind != TraceKind::BlkparseText).then(|| self.at.load(Ordering::Relaxed))
    }

    /// A broken line is reported with the next one.
    fn event_position(&self) -> Option<u64> {
        self.position().filter(|_| self.wrap == Wrap::Not)
    }

    fn is_in_order(&self) -> bool {
        true
    }
}
