//! Makes untrusted names and sentences safe to print.

use std::borrow::Cow;
use std::fmt::Write;

/// Most characters that are shown of an untrusted name or sentence.
const MAX_CHARS: usize = 2000;

/// Characters that control the output instead of being shown: controls (C0, DEL, C1), and format characters that hide or
/// reorder text (Unicode 15, general category Cf in the blocks that a name could plausibly abuse).
#[inline]
pub fn acts(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_control();
    }
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// One line of text that is safe on a terminal or a page: control characters are written out (`\x1b`, `\u{202e}`), and text
/// of more than 2,000 characters is cut and ends in "…".
pub fn visible(text: &str) -> Cow<'_, str> {
    if text.len() > MAX_CHARS
        && let Some((end, _)) = text.char_indices().nth(MAX_CHARS)
    {
        return Cow::Owned(escaped(&text[..end]).into_owned() + "…");
    }
    escaped(text)
}

/// As [`visible`] for a message, which begins with a name and ends with the reason: of one that is too long, the middle is left out. Not
/// where it has quotation marks: a command in it could lose one of a pair, and what the other one kept from acting would act.
pub fn visible_message(text: &str) -> Cow<'_, str> {
    if text.contains(['\'', '"', '`']) {
        return visible(text);
    }
    let ends = || {
        let (head, _) = text.char_indices().nth(MAX_CHARS / 2)?;
        let (tail, _) = text.char_indices().nth_back(MAX_CHARS / 2 - 1)?;
        (text.len() > MAX_CHARS && tail > head).then_some((head, tail))
    };
    match ends() {
        Some((head, tail)) => Cow::Owned(format!("{}…{}", escaped(&text[..head]), escaped(&text[tail..]))),
        None => escaped(text),
    }
}

/// As [`visible`], without a limit of length.
pub fn escaped(text: &str) -> Cow<'_, str> {
    if !text.chars().any(acts) {
        return Cow::Borrowed(text);
    }
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if acts(c) && u32::from(c) < 0x100 => _ = write!(out, "\\x{:02x}", u32::from(c)),
            c if acts(c) => _ = write!(out, "\\u{{{:x}}}", u32::from(c)),
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// JSON leaves DEL, C1 controls and reordering characters as they are; a terminal does not. They become `\u` escapes, which mean the same
/// to a parser. Line feeds between values stay.
pub fn escaped_json(json: &str) -> Cow<'_, str> {
    // Most results are long and plain ASCII: checking bytes is faster than checking characters.
    if json.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\n')) {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len());
    let mut rest = 0;
    for (at, acting) in json.match_indices(|c| c != '\n' && acts(c)) {
        out.push_str(&json[rest..at]);
        for unit in acting.encode_utf16() {
            _ = write!(out, "\\u{unit:04x}");
        }
        rest = at + acting.len();
    }
    out.push_str(&json[rest..]);
    Cow::Owned(out)
}

/// Two hexadecimal digits a byte, as checksums are written.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_is_written_out() {
        assert_eq!(visible("plain é 漢"), "plain é 漢");
        assert_eq!(visible("\u{1b}[31mred\u{7}"), "\\x1b[31mred\\x07");
        assert_eq!(visible("a\r\nb\tc"), "a\\x0d\\nb\\tc");
        assert_eq!(visible("\u{9b}2J\u{7f}"), "\\x9b2J\\x7f");
        assert_eq!(visible("txt\u{202e}gpj"), "txt\\u{202e}gpj");
        assert_eq!(visible("a\u{200b}b\u{feff}"), "a\\u{200b}b\\u{feff}");
    }

    #[test]
    fn endless_text_ends() {
        let shown = visible(&"x".repeat(1 << 20)).into_owned();
        assert_eq!(shown.chars().count(), 2001);
        assert!(shown.ends_with('…'));
    }

    #[test]
    fn a_long_message_keeps_its_reason() {
        let path = "é\u{7}".repeat(2500);
        let shown = visible_message(&format!("{path}: File name too long")).into_owned();
        assert!(shown.starts_with("é\\x07") && shown.contains('…') && shown.ends_with("\\x07: File name too long"));
        assert_eq!(shown.matches('é').count(), 990);
        for whole in ["", "short", &"x".repeat(2000)] {
            assert_eq!(visible_message(whole), whole);
        }
        assert_eq!(visible_message(&"x".repeat(2001)).chars().count(), 2001);
        for mark in ['\'', '"', '`'] {
            let typed = format!("type: rm {mark}{}{mark} {mark}; touch marked{mark}", "x".repeat(2500));
            assert_eq!(visible_message(&typed), visible(&typed), "the end is cut off, and nothing of it acts");
        }
    }
}
