//! systrace's and atrace's HTML: ftrace's text inside a page. The rest of the page is ignored.
//!
//! Newer pages have it in `<script class="trace-data" …>`, one text per script (the second is a list of processes). Older pages have it as
//! lines of a JavaScript string that end with `\n\`, the last one with `\n";`.

use crate::formats::ftrace::{self, Reader as Ftrace};
use crate::formats::parsed::{Item, PACKED};
use crate::formats::text::{Dialect, Lines};
use crate::formats::{Format, Reader as FormatReader};
use crate::kind::TraceKind;

/// Recognised by its HTML page ([`is_page`]), before the dialects are tried.
pub(crate) const FORMAT: Format = Format {
    name: "systrace and atrace: text and HTML",
    read: "best effort",
    written: "no",
    recognised_by: "the same; a page of HTML with such text inside",
    reader: FormatReader::None,
};

pub(crate) const DIALECT: Dialect = Dialect {
    kind: TraceKind::FtraceText,
    key: "ftrace_text",
    title: "a web page (systrace's page or another)",
    clock: "unknown",
    why_no_event: "nothing was recorded, or the trace stands in the text of the page; save its lines alone, and give that file",
    lines: || Box::<Reader>::default(),
};

/// Whether a file is an HTML page.
pub(crate) fn is_page(head: &[u8]) -> bool {
    let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    let begins = |tag: &[u8]| head.len() >= tag.len() && head[..tag.len()].eq_ignore_ascii_case(tag);
    begins(b"<!doctype html") || begins(b"<html")
}

#[derive(Default)]
struct Reader {
    state: State,
    text: Ftrace,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Outside,
    /// After the tag, before the first line of the text.
    Before,
    Inside,
    /// Inside a text of another kind.
    Other,
}

/// Finds a text. HTML names may be in upper or lower case.
fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|w| w.eq_ignore_ascii_case(what))
}

impl Lines for Reader {
    fn line(&mut self, line: &[u8], f: &mut dyn FnMut(Item<'_>)) {
        if self.state != State::Outside {
            match find(line, b"</script>") {
                None => return self.inside(line, f),
                Some(end) => {
                    self.inside(&line[..end], f);
                    self.state = State::Outside;
                }
            }
        }
        self.begin(line, f);
    }

    fn too_long(&mut self, begin: &[u8], f: &mut dyn FnMut(Item<'_>)) {
        if self.state == State::Inside || self.state == State::Before && begin.starts_with(PACKED) {
            f(Item::Malformed(begin));
        }
    }
}

impl Reader {
    /// Looks for the beginning of a text.
    fn begin(&mut self, line: &[u8], f: &mut dyn FnMut(Item<'_>)) {
        let data = find(line, b"trace-data").or_else(|| find(line, b"viewer-data"));
        let tag = data.filter(|&at| find(&line[..at], b"<script").is_some());
        let rest = match (tag, find(line, b"linuxPerfData = \"")) {
            (Some(at), _) => line[at..].iter().position(|&b| b == b'>').map(|end| &line[at + end + 1..]),
            (None, Some(at)) => Some(&line[at + 17..]),
            (None, None) => None,
        };
        if let Some(rest) = rest {
            self.state = State::Before;
            self.text = Ftrace::default();
            self.inside(rest, f);
        }
    }

    fn inside(&mut self, line: &[u8], f: &mut dyn FnMut(Item<'_>)) {
        let ends: [&[u8]; 3] = [b"\\n\\", b"\\n\";", b"\\n\""];
        let line = ends.iter().find_map(|end| line.trim_ascii_end().strip_suffix(*end)).unwrap_or(line);
        let text = line.trim_ascii();
        // Older pages put this line after the trace: it has no task and no time of the trace.
        if text.starts_with(b"dummy-0000 ") {
            return;
        }
        if self.state == State::Before && !matches!(text, b"" | b"\\" | b"TRACE:") {
            self.state = match ftrace::is_line(line) {
                true => State::Inside,
                false => State::Other,
            };
        }
        if self.state == State::Other && text.starts_with(PACKED) {
            f(Item::Malformed(text));
        }
        if self.state == State::Inside && !matches!(text, b"\";" | b"\"") {
            self.text.line(line, f);
        }
    }
}
