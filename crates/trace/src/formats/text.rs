//! Dialects of text traces. A dialect classifies lines.

use super::parsed::Item;
use crate::kind::TraceKind;
use std::borrow::Cow;
use std::fmt;

/// Longest line that is read; the kernel's lines are below 8 KiB (`TRACE_SEQ_BUFFER_SIZE`, a page before 6.9).
pub(crate) const MAX_LINE: usize = 16 << 10;

/// A form of text. A new dialect implements [`Lines`]; `example.rs` shows how.
#[derive(Clone, Copy)]
pub(crate) struct Dialect {
    /// `FtraceText` for a new dialect, unless a command must distinguish it.
    pub kind: TraceKind,
    /// One word: the key of the reader's facts in JSON.
    pub key: &'static str,
    /// The name in messages.
    pub title: &'static str,
    /// The kernel's name of the clock; `unknown` if the text does not have it.
    pub clock: &'static str,
    /// Why a text may have no event, and what to do.
    pub why_no_event: &'static str,
    /// Makes a reader for one pass.
    pub lines: fn() -> Box<dyn Lines>,
}

impl fmt::Debug for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.title)
    }
}

/// Reads lines in the order of the text.
pub(crate) trait Lines {
    /// Reads one line without its end. Reports nothing for a line without content (a comment, a ruler).
    fn line(&mut self, line: &[u8], f: &mut dyn FnMut(Item<'_>));

    /// Gets the beginning of a line that is longer than [`MAX_LINE`].
    fn too_long(&mut self, begin: &[u8], f: &mut dyn FnMut(Item<'_>)) {
        f(Item::Malformed(begin));
    }

    /// Called at the end of the text. A reader that delays events reports the rest here.
    fn end(&mut self, _f: &mut dyn FnMut(Item<'_>)) {}
}

/// Line breaks in a web page's source.
const BREAKS: [&[u8]; 3] = [b"<br>", b"<br/>", b"<br />"];

/// Removes the line end and the quotation marks of mails (`> `, `>> `).
pub(crate) fn without_end(line: &[u8]) -> &[u8] {
    let text = line.strip_suffix(b"\n").unwrap_or(line);
    let mut text = text.strip_suffix(b"\r").unwrap_or(text);
    if text.ends_with(b">") {
        text = BREAKS.iter().find_map(|end| text.strip_suffix(*end)).unwrap_or(text);
    }
    while let Some(quoted) = text.strip_prefix(b"> ").or_else(|| text.strip_prefix(b">")) {
        text = quoted;
    }
    text
}

/// Characters that a web page's source may write by name.
const ENTITIES: [(&[u8], u8); 7] = [
    (b"&lt;", b'<'),
    (b"&gt;", b'>'),
    (b"&amp;", b'&'),
    (b"&quot;", b'"'),
    (b"&#39;", b'\''),
    (b"&#x27;", b'\''),
    (b"&nbsp;", b' '),
];

/// The line in the form in which its tool printed it. Removes colours of terminals (`ESC [ … m`), and replaces non-breaking spaces (U+00A0)
/// and named characters (`&lt;idle&gt;`) of web pages. Replaces the tabs between a table's columns: if the line has at least three, and
/// its first blank is a tab or two tabs are before the end of the time.
pub(crate) fn plain(line: &[u8]) -> Cow<'_, [u8]> {
    if !line.iter().any(|b| matches!(b, b'\t' | 0x1b | 0xc2 | b'&')) {
        return Cow::Borrowed(line);
    }
    let count = |text: &[u8]| text.iter().filter(|&&b| b == b'\t').count();
    let blank = line.iter().position(|b| matches!(b, b' ' | b'\t'));
    // Two tabs before the end of the time: the name has a blank.
    let time = line.windows(2).position(|w| matches!(w, b": " | b":\t")).unwrap_or(0);
    let first = blank.is_some_and(|at| at > 0 && (line[at] == b'\t' || count(&line[..time]) >= 2));
    let columns = count(line) >= 3 && first;
    let (mut out, mut rest) = (Vec::with_capacity(line.len()), line);
    while let [first, behind @ ..] = rest {
        rest = behind;
        match (first, behind) {
            (b'\t', _) if columns => out.push(b' '),
            (0xc2, [0xa0, behind @ ..]) => {
                out.push(b' ');
                rest = behind;
            }
            (b'&', _) => {
                match ENTITIES.iter().find(|(name, _)| line[line.len() - behind.len() - 1..].starts_with(name)) {
                    Some(&(name, sign)) => {
                        out.push(sign);
                        rest = &behind[name.len() - 1..];
                    }
                    None => out.push(b'&'),
                }
            }
            (0x1b, [b'[', codes @ ..]) => {
                let end = codes.iter().position(|b| !b.is_ascii_digit() && *b != b';').unwrap_or(codes.len());
                match codes.get(end) {
                    Some(b'm' | b'K') => rest = &codes[end + 1..],
                    _ => out.push(0x1b),
                }
            }
            _ => out.push(*first),
        }
    }
    Cow::Owned(out)
}

/// The number that `grep -n` (`12:`), `cat -n` (`12` and a tab) or `nl` put before a line, and the line.
fn number_of(line: &[u8]) -> Option<(u64, &[u8])> {
    let text = line.trim_ascii_start();
    let end = text.iter().position(|b| !b.is_ascii_digit()).unwrap_or(text.len());
    let number = std::str::from_utf8(&text[..end]).ok().filter(|n| n.len() <= 7)?.parse().ok()?;
    let rest = &text[end..];
    match rest.first() {
        Some(b':' | b'\t') => Some((number, &rest[1..])),
        // Right-aligned numbers with blanks behind them; the blanks may be the line's own.
        None | Some(b' ') if text.len() < line.len() => Some((number, rest)),
        _ => None,
    }
}

/// Whether all lines have numbers before them, each more than the one before; one more, where no colon follows it.
pub(crate) fn are_numbered(lines: &[&[u8]]) -> bool {
    let mut last: Option<u64> = None;
    let mut is_next = |line: &&[u8]| {
        let Some((number, rest)) = number_of(line) else { return false };
        let has_colon = line[..line.len() - rest.len()].ends_with(b":");
        let before = last.replace(number);
        before.is_none_or(|before| number == before + 1 || has_colon && number > before)
    };
    let mut lines = lines.iter().filter(|line| !line.trim_ascii().is_empty());
    lines.clone().count() >= 3 && lines.all(&mut is_next)
}

/// Removes the number before a line, if it has one.
pub(crate) fn without_number(line: &[u8]) -> &[u8] {
    number_of(line).map_or(line, |(_, rest)| rest)
}

/// Removes the byte order mark that Windows editors put at the beginning of a text.
pub(crate) fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)
}

/// Whether lines end with a lone carriage return, as on the first Macs.
pub(crate) fn has_lone_returns(text: &[u8]) -> bool {
    let alone = text.windows(2).filter(|w| w[0] == b'\r' && w[1] != b'\n').count();
    let ends = text.iter().filter(|&&b| b == b'\n').count();
    alone > 1 && alone > ends && !text.contains(&0)
}

/// Whether most lines have times with a decimal comma, as programs print in some languages.
pub(crate) fn has_decimal_commas(lines: &[&[u8]]) -> bool {
    let has = |line: &&&[u8]| {
        line.split(u8::is_ascii_whitespace).any(|word| {
            let word = word.strip_suffix(b":").unwrap_or(word);
            let parts: Vec<&[u8]> = word.split(|&b| b == b',').collect();
            let digits = parts.iter().all(|part| !part.is_empty() && part.iter().all(u8::is_ascii_digit));
            digits && parts.len() == 2 && matches!(parts[1].len(), 6 | 9)
        })
    };
    let all = lines.iter().filter(|line| !line.is_empty() && !line.starts_with(b"#")).count();
    lines.iter().filter(has).count() * 2 > all
}

#[cfg(test)]
mod tests {
    use super::{are_numbered, plain, without_end, without_number};

    #[test]
    fn the_end_of_a_line_is_no_part_of_it() {
        for line in
            ["C 8 + 8 [0]\n", "> C 8 + 8 [0]\r\n", "C 8 + 8 [0]<br>\n", "C 8 + 8 [0]<br />", ">> C 8 + 8 [0]<br/>\n"]
        {
            assert_eq!(without_end(line.as_bytes()), b"C 8 + 8 [0]", "{line:?}");
        }
        assert_eq!(without_end(b"<idle>\n"), b"<idle>");
    }

    #[test]
    fn numbers_before_all_lines_are_no_part_of_them() {
        let numbered = |text: &str| are_numbered(&text.lines().map(str::as_bytes).collect::<Vec<_>>());
        assert!(numbered("1:# tracer: nop\n2:#\n3: a-1 [000] 5.0: x: y"));
        assert!(numbered("7: a-1\n9: a-1\n120: a-1"));
        assert!(numbered("     1\t8,0 1 1\n     2\t\n     3\t8,0 1 2"));
        assert!(numbered("     9  8,0 1 1\n    10  8,0 1 2\n\n    11"));
        // blkparse's own lines, a table's first column, times of a day, a part of a text.
        for text in [
            "8,0 1 1\n8,0 1 2\n8,0 1 3",
            "1 0 0\n2 0 0\n3 0 0",
            "10:11:12 a\n10:11:13 b\n10:11:14 c",
            "1: a\n2: b\nc",
            "1: a\n2: b",
        ] {
            assert!(!numbered(text), "{text}");
        }
        assert!(!numbered("   1 0 0\n   3 0 0\n   4 0 0"));
        for (line, is) in
            [("12:  8,0", "  8,0"), ("    12\t8,0", "8,0"), ("    12  8,0", "  8,0"), ("CPU0 (8,0):", "CPU0 (8,0):")]
        {
            assert_eq!(without_number(line.as_bytes()), is.as_bytes());
        }
    }

    #[test]
    fn a_line_is_what_its_tool_printed() {
        for (line, is) in [
            ("a-1 [000] 5.0: x: y", "a-1 [000] 5.0: x: y"),
            ("a-1\t[000]\t5.0:\tx: y", "a-1 [000] 5.0: x: y"),
            ("my app\t1\t[000]\t5.0:\tx:\ty", "my app 1 [000] 5.0: x: y"),
            // Of `cat -n`, of a call chain, and in what a program wrote.
            ("     7\ta-1 [000] 5.0: x: y", "     7\ta-1 [000] 5.0: x: y"),
            ("\tffff\tsubmit_bio\t(kernel)", "\tffff\tsubmit_bio\t(kernel)"),
            ("a-1 [000] 5.0: print: a\tb\tc\td", "a-1 [000] 5.0: print: a\tb\tc\td"),
            ("\u{a0}a-1\u{a0}[000] 5.0: x: \u{c4}", " a-1 [000] 5.0: x: \u{c4}"),
            ("\u{1b}[01;31m\u{1b}[Ka-1\u{1b}[m\u{1b}[K [000] 5.0: x", "a-1 [000] 5.0: x"),
            (
                "  &lt;idle&gt;-0 [000] 5.0: x: R&amp;D 8 &lt;- (8,2) &quot;",
                "  <idle>-0 [000] 5.0: x: R&D 8 <- (8,2) \"",
            ),
            ("a&b-1 [000] 5.0: x: &", "a&b-1 [000] 5.0: x: &"),
            ("a\u{1b}[2Jb\u{1b}[", "a\u{1b}[2Jb\u{1b}["),
        ] {
            assert_eq!(&*plain(line.as_bytes()), is.as_bytes(), "{line:?}");
        }
    }
}
