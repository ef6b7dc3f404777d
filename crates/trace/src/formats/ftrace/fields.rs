//! Parses words, numbers and `key=value` in an event's text.

use crate::formats::parsed::{Parsed, Value};

/// Largest number of fields in one line.
const MAX_FIELDS: usize = 48;

pub(super) fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|w| w == what)
}

pub(super) fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&b| b == b' ').filter(|w| !w.is_empty())
}

/// The kernel's device number for `8,0`.
pub(super) fn device(word: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(word).ok()?;
    let (major, minor) = text.split_once(',')?;
    let (major, minor): (u64, u64) = (major.parse().ok()?, minor.parse().ok()?);
    (major < 1 << 12 && minor < 1 << 20).then_some(major << 20 | minor)
}

/// `key=value key=value`: a value ends before the next word with a name and an equals sign.
pub(super) fn pairs<'a>(out: &mut Parsed<'a>, rest: &'a [u8]) {
    let mut open: Option<(&str, usize)> = None;
    let mut at = 0;
    let mut last = 0;
    while at < rest.len() {
        let begin = at + rest[at..].iter().take_while(|&&b| b == b' ').count();
        let end = begin + rest[begin..].iter().take_while(|&&b| b != b' ').count();
        if let Some(key) = key(&rest[begin..end]) {
            if let Some((key, value)) = open.take() {
                push(out, key, &rest[value..last]);
            }
            open = Some((key, begin + key.len() + 1));
        }
        at = end;
        last = end;
    }
    if let Some((key, value)) = open {
        push(out, key, &rest[value..last]);
    }
}

fn key(word: &[u8]) -> Option<&str> {
    let equals = word.iter().position(|&b| b == b'=')?;
    let key = std::str::from_utf8(&word[..equals]).ok()?;
    let begins = key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let name = begins && key.len() <= 64 && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    name.then_some(key)
}

pub(super) fn push<'a>(out: &mut Parsed<'a>, key: &'a str, value: &'a [u8]) {
    // sched_switch has an arrow between its two tasks.
    let value = value.trim_ascii();
    let value = value.strip_suffix(b"==>").unwrap_or(value).trim_ascii();
    // A task's name is text, even if it looks like a number.
    add(out, key, if key.ends_with("comm") { Value::Text(value) } else { value_of(value) });
}

/// Adds a field, unless there is one with this name; `text` and `flags` are reserved.
pub(super) fn add<'a>(out: &mut Parsed<'a>, key: &'a str, value: Value<'a>) {
    let ours = key.starts_with("common_") || matches!(key, "text" | "flags");
    if !ours && out.fields.len() < MAX_FIELDS && out.fields.iter().all(|(k, _)| *k != key) {
        out.fields.push((key, value));
    }
}

/// A number if the text is one (decimal, or hexadecimal with 0x), else text.
pub(super) fn value_of(text: &[u8]) -> Value<'_> {
    let number = || {
        let text = std::str::from_utf8(text).ok()?;
        if let Some(hex) = text.strip_prefix("0x") {
            let digits = hex.bytes().all(|b| b.is_ascii_hexdigit());
            return if digits { u64::from_str_radix(hex, 16).ok().map(Value::Unsigned) } else { None };
        }
        if let Some(digits) = text.strip_prefix('-') {
            let digits = digits.bytes().all(|b| b.is_ascii_digit());
            return if digits { text.parse().ok().map(Value::Signed) } else { None };
        }
        let digits = text.bytes().all(|b| b.is_ascii_digit());
        if digits { text.parse().ok().map(Value::Unsigned) } else { None }
    };
    number().unwrap_or(Value::Text(text))
}
