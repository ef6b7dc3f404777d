//! Reads a text file line by line in bounded memory, and passes each line to its dialect.

use super::parsed::{Item, Parser};
use super::text::{Dialect, MAX_LINE, plain, without_end, without_mark, without_number};
use super::wrapped::{self, Wrap};
use crate::input::Input;
use crate::kind::TraceKind;
use std::io::{self, BufRead, BufReader};
use std::sync::Arc;

/// A text in one dialect.
#[derive(Debug)]
pub(crate) struct Text {
    pub input: Arc<Input>,
    pub dialect: Dialect,
    pub wrap: Wrap,
    /// All lines have numbers before them.
    pub numbered: bool,
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
        }
    }

    fn walk(&self, f: &mut dyn FnMut(Item<'_>)) -> io::Result<()> {
        let mut lines = wrapped::reader(&self.dialect, self.wrap);
        let mut reader = BufReader::with_capacity(64 << 10, self.input.reader());
        let mut buffer = Vec::new();
        let mut first = true;
        loop {
            buffer.clear();
            let n = io::Read::take(&mut reader, MAX_LINE as u64).read_until(b'\n', &mut buffer)?;
            if n == 0 {
                lines.end(f);
                return Ok(());
            }
            if n == MAX_LINE && buffer.last() != Some(&b'\n') {
                reader.skip_until(b'\n')?;
                lines.too_long(&buffer, f);
                continue;
            }
            let line = without_end(&buffer);
            let line = if first { without_mark(line) } else { line };
            lines.line(&plain(if self.numbered { without_number(line) } else { line }), f);
            first = false;
        }
    }
}
