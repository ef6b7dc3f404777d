//! Dialects of text: each says of a line what it is.

use super::parsed::Item;
use crate::kind::TraceKind;
use std::fmt;

/// Longest line that is read; the kernel's own are below 8 KiB (`TRACE_SEQ_BUFFER_SIZE`, a page before 6.9).
pub(crate) const MAX_LINE: usize = 16 << 10;

/// One way of printing a trace. A new one implements [`Lines`]; `example.rs` shows how.
#[derive(Clone, Copy)]
pub(crate) struct Dialect {
    pub kind: TraceKind,
    /// The key of its facts.
    pub key: &'static str,
    /// As messages call it.
    pub title: &'static str,
    /// The kernel's name of the clock, `unknown` where the text does not say it.
    pub clock: &'static str,
    /// A reader for one pass.
    pub lines: fn() -> Box<dyn Lines>,
}

impl fmt::Debug for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.title)
    }
}

/// Reads lines in the order of the text.
pub(crate) trait Lines {
    /// One line without its end. Says nothing of one that carries nothing (a comment, a ruler).
    fn line(&mut self, line: &[u8], f: &mut dyn FnMut(Item<'_>));

    /// The beginning of a line beyond [`MAX_LINE`].
    fn too_long(&mut self, begin: &[u8], f: &mut dyn FnMut(Item<'_>)) {
        f(Item::Malformed(begin));
    }

    /// The end of the text, for a reader that holds events back until their time has come.
    fn end(&mut self, _f: &mut dyn FnMut(Item<'_>)) {}
}

/// A line without what ends it, and without the marks of a quotation in a mail (`> `, `>> `).
pub(crate) fn without_end(line: &[u8]) -> &[u8] {
    let text = line.strip_suffix(b"\n").unwrap_or(line);
    let mut text = text.strip_suffix(b"\r").unwrap_or(text);
    while let Some(quoted) = text.strip_prefix(b"> ").or_else(|| text.strip_prefix(b">")) {
        text = quoted;
    }
    text
}

/// The beginning of a text without the byte order mark that editors of Windows put there.
pub(crate) fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)
}
