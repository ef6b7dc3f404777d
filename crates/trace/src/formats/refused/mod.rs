//! Recognises files that are not traces, or not readable ones. For each kind: what it lacks and what to do instead.

mod kinds;
mod recognise;

use super::Head;

/// A kind of file and its patterns, any of which is enough.
struct Refused {
    /// The name, after "looks like".
    what: &'static str,
    /// What is missing, and the command to type.
    why: &'static str,
    is: &'static [Is],
}

/// A pattern is a set of words that a line has, in any order, separated by `|`. `^` is the beginning of the line, `$` its end.
enum Is {
    /// The file begins with these bytes.
    Magic(&'static [u8]),
    /// The head of the file has these bytes.
    Has(&'static [u8]),
    /// The first line.
    First(&'static str),
    /// One of the first lines: tables may have titles and rulers before their headings.
    Line(&'static str),
    /// Most of the first lines.
    Most(&'static str),
    MostOf(fn(&[u8]) -> bool),
    /// One of the first lines has these whole words in this order.
    Columns(&'static str),
    By(fn(&Head, &[&[u8]]) -> bool),
}

impl Is {
    fn of(&self, head: &Head, lines: &[&[u8]]) -> bool {
        match self {
            Is::Magic(bytes) => head.bytes().starts_with(bytes),
            Is::Has(bytes) => find(head.bytes(), bytes).is_some(),
            Is::First(pattern) => lines.first().is_some_and(|line| has(line, pattern)),
            Is::Line(pattern) => any(lines, |line| has(line, pattern)),
            Is::Most(pattern) => most(lines, |line| has(line, pattern)),
            Is::MostOf(is) => most(lines, is),
            Is::Columns(words) => any(lines, |line| recognise::has_words(line, words)),
            Is::By(is) => is(head, lines),
        }
    }
}

const RECORD: &str = "record with `flashscope record --events block,syscall,cache -- COMMAND` or `blktrace -d DEVICE`";

/// The error text for a file that cannot be read; `None` if its kind is unknown.
pub(crate) fn refusal(head: &Head) -> Option<String> {
    if head.bytes().is_empty() {
        return Some("is empty".to_string());
    }
    let mut lines: Vec<&[u8]> = head.lines().into_iter().map(<[u8]>::trim_ascii).filter(|l| !l.is_empty()).collect();
    // Patterns for text do not apply to binary files, whose lines match by chance.
    if recognise::is_binary(head.bytes()) {
        lines.clear();
    } else if lines.is_empty() {
        return Some(format!("is a text of empty lines: nothing was recorded, or its contents were lost; {RECORD}"));
    }
    let found = kinds::ALL.iter().find(|refused| refused.is.iter().any(|is| is.of(head, &lines)))?;
    Some(format!("looks like {}: {}", found.what, found.why.replace("RECORD", RECORD)))
}

/// An archive, or a packed file that cannot be unpacked here.
pub(crate) fn is_archive(head: &Head) -> bool {
    let packed: &[&[u8]] =
        &[b"PK\x03\x04", b"BZh", b"\x04\x22\x4d\x18", b"7z\xbc\xaf", b"Rar!", b"LZIP", b"\x5d\x00\x00"];
    packed.iter().any(|magic| head.bytes().starts_with(magic)) || head.bytes().get(257..262) == Some(b"ustar")
}

/// Number of first lines that are checked.
const LINES: usize = 40;

fn any(lines: &[&[u8]], is: impl Fn(&[u8]) -> bool) -> bool {
    lines.iter().take(LINES).any(|line| is(line))
}

fn most(lines: &[&[u8]], is: impl Fn(&[u8]) -> bool) -> bool {
    let first = &lines[..lines.len().min(LINES)];
    let like = first.iter().filter(|line| is(line)).count();
    like > 0 && like * 3 >= first.len() * 2
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|w| w == what)
}

/// Whether the line has all words of the pattern.
fn has(line: &[u8], pattern: &str) -> bool {
    pattern.split('|').all(|word| {
        let (word, begins) = word.strip_prefix('^').map_or((word, false), |word| (word, true));
        let (word, ends) = word.strip_suffix('$').map_or((word, false), |word| (word, true));
        match (begins, ends) {
            (true, true) => line == word.as_bytes(),
            (true, false) => line.starts_with(word.as_bytes()),
            (false, true) => line.ends_with(word.as_bytes()),
            (false, false) => find(line, word.as_bytes()).is_some(),
        }
    })
}
