//! Renders tables with a given width, in plain characters.

use std::borrow::Cow;

use flashscope_output::escaped;

/// A table with one or two lines of headings. Text columns are aligned left, numbers right.
pub struct Table {
    heads: Vec<Vec<String>>,
    numbers: Vec<bool>,
    rows: Vec<Vec<String>>,
}

const GAP: usize = 2;
/// Smallest width of a text column.
const MIN_TEXT: usize = 12;
/// Width of the first column if its names have lines of their own.
const NARROW: usize = 4;
/// A word that is too long breaks after one of these.
const SEPARATORS: [char; 9] = ['/', '-', '_', '.', ':', ',', '|', '=', '+'];
/// Largest number of tables that a wide one is cut into.
const MAX_PARTS: usize = 3;

fn width(text: &str) -> usize {
    text.chars().count()
}

/// Width of a table of these columns.
fn total(columns: &[usize], widths: &[usize]) -> usize {
    2 + columns.iter().map(|&c| widths[c]).sum::<usize>() + GAP * columns.len().saturating_sub(1)
}

impl Table {
    /// One column per character of `kinds`: `t` text, `n` number.
    pub fn new(kinds: &str) -> Self {
        Self { heads: Vec::new(), numbers: kinds.chars().map(|k| k == 'n').collect(), rows: Vec::new() }
    }

    pub fn head<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.heads.push(cells.into_iter().map(Into::into).collect());
    }

    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(|cell| escaped(&cell.into()).into_owned()).collect());
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The lines of the table, indented by two; empty without rows. If the table is wider than `max`, its widest text columns are wrapped.
    /// If that is not enough, it is cut into several tables that repeat the first text columns. If these leave no room, each row becomes a
    /// paragraph of "head: value".
    pub fn render(&self, max: usize) -> String {
        if self.is_empty() {
            return String::new();
        }
        let columns = self.numbers.len();
        let mut widths: Vec<usize> = (0..columns)
            .map(|c| self.heads.iter().chain(&self.rows).filter_map(|r| r.get(c)).map(|t| width(t)).max().unwrap_or(0))
            .collect();
        let all: Vec<usize> = (0..columns).collect();
        while total(&all, &widths) > max {
            let widest = (0..columns).filter(|&c| !self.numbers[c] && widths[c] > MIN_TEXT).max_by_key(|&c| widths[c]);
            match widest {
                Some(c) => widths[c] -= 1,
                None if self.numbers.iter().filter(|number| !**number).count() == 1 && !self.numbers[0] => {
                    // Names get lines of their own if that leaves room for all numbers.
                    let narrow: Vec<usize> = [&[NARROW], &widths[1..]].concat();
                    if total(&all, &narrow) <= max {
                        widths[0] -= total(&all, &widths) - max;
                    } else {
                        return self.cut(max, &widths);
                    }
                }
                None => return self.cut(max, &widths),
            }
        }
        self.lines(&all, &widths, max)
    }

    /// The table in several parts, or as paragraphs.
    fn cut(&self, max: usize, widths: &[usize]) -> String {
        let parts: Vec<String> =
            self.parts(max, widths).into_iter().map(|part| self.lines(&part, widths, max)).collect();
        if parts.is_empty() { self.paragraphs(max) } else { parts.join("\n") }
    }

    /// The columns of each part: the leading text columns, and as many others as fit. Empty if that does not help.
    fn parts(&self, max: usize, widths: &[usize]) -> Vec<Vec<usize>> {
        let keys: Vec<usize> = (0..widths.len()).take_while(|&c| !self.numbers[c]).collect();
        let keys = if keys.is_empty() || keys.len() == widths.len() { vec![0] } else { keys };
        let mut parts = vec![keys.clone()];
        for column in keys.len()..widths.len() {
            let part = parts.last_mut().expect("there is one");
            part.push(column);
            if total(part, widths) > max {
                part.pop();
                parts.push([&keys[..], &[column]].concat());
            }
        }
        if parts.len() > MAX_PARTS || parts.iter().any(|part| part.len() <= keys.len() || total(part, widths) > max) {
            parts.clear();
        }
        parts
    }

    fn lines(&self, columns: &[usize], widths: &[usize], max: usize) -> String {
        let mut out = String::new();
        for (i, row) in self.heads.iter().chain(&self.rows).enumerate() {
            let cell = |c: usize| row.get(c).map_or("", |text| text);
            // A path that is longer than its column has its own line: in the column it would be broken.
            let long_word = |c: usize| cell(c).split(' ').any(|word| width(word) > widths[c]);
            // Prose at the end of a row stays in its column.
            let is_name = |c: usize| c + 1 < self.numbers.len() && wrap(cell(c), widths[c]).len() > 2;
            let is_long = |c: usize| !self.numbers[c] && (long_word(c) || is_name(c));
            let (first, others): (Vec<usize>, Vec<usize>) =
                columns.iter().copied().filter(|&c| is_long(c)).partition(|&c| Some(&c) == columns.first());
            first.iter().for_each(|&c| out += &paragraph(cell(c), max, 2, 4));
            let wrapped: Vec<Vec<String>> = columns
                .iter()
                .map(|&c| if is_long(c) { vec![String::new()] } else { wrap(cell(c), widths[c]) })
                .collect();
            for line in 0..wrapped.iter().map(Vec::len).max().unwrap_or(1) {
                let mut text = " ".repeat(2);
                for (at, (&c, cell)) in columns.iter().zip(&wrapped).enumerate() {
                    let part = cell.get(line).map_or("", |t| t);
                    let pad = " ".repeat(widths[c].saturating_sub(width(part)));
                    let gap = if at > 0 { " ".repeat(GAP) } else { String::new() };
                    text += &if self.numbers[c] { format!("{gap}{pad}{part}") } else { format!("{gap}{part}{pad}") };
                }
                if !text.trim().is_empty() {
                    out += text.trim_end();
                    out.push('\n');
                }
            }
            others.iter().for_each(|&c| out += &paragraph(cell(c), max, 4, 6));
            if i + 1 == self.heads.len() {
                out += &format!("  {}\n", "-".repeat(total(columns, widths).saturating_sub(2)));
            }
        }
        out
    }

    fn paragraphs(&self, max: usize) -> String {
        let mut out = String::new();
        for row in &self.rows {
            for (c, cell) in row.iter().enumerate().filter(|(_, cell)| !cell.is_empty()) {
                let head: Vec<&str> =
                    self.heads.iter().filter_map(|h| h.get(c)).map(|h| h.trim()).filter(|h| !h.is_empty()).collect();
                let indent = if c == 0 { 2 } else { 4 };
                let text = if head.is_empty() { cell.clone() } else { format!("{}: {cell}", head.join(", ")) };
                out += &paragraph(&text, max, indent, indent + 2);
            }
        }
        out
    }
}

/// A word that is not to stand alone on the last line: "each.", "of it", a duration.
const MAX_SHORT: usize = 12;

/// Text in lines of at most `max`, the first indented by `first`, the others by `rest`. Control characters in names are escaped.
pub fn paragraph(text: &str, max: usize, first: usize, rest: usize) -> String {
    let max = max.saturating_sub(rest.max(first)).max(20);
    let mut lines = wrap(&escaped(text), max);
    lengthen_last(&mut lines, max);
    indented(&lines, first, rest)
}

/// A last line of one short word is easily missed: the word before goes with it.
fn lengthen_last(lines: &mut [String], max: usize) {
    let [.., before, last] = lines else { return };
    let Some((rest, word)) = before.rsplit_once(' ') else { return };
    if last.contains(' ') || width(last) > MAX_SHORT || !rest.contains(' ') || width(word) + 1 + width(last) > max {
        return;
    }
    *last = format!("{word} {last}");
    *before = rest.to_owned();
}

/// Like [`paragraph`], followed by commands, each for a shell or a line of code (`true`). They break between their words only; a shell
/// command continues with a backslash. `None`: a word of a command is longer than a line.
pub fn paragraph_with(
    text: &str,
    commands: &[(Cow<'_, str>, bool)],
    max: usize,
    first: usize,
    rest: usize,
) -> Option<String> {
    let max = max.saturating_sub(rest.max(first)).max(20);
    let mut lines = wrap(&escaped(text), max);
    let mut line = lines.pop().unwrap_or_default();
    for (command, is_code) in commands {
        let words = shell_words(command);
        let goes_on = if *is_code { "" } else { " \\" };
        for (at, word) in words.iter().enumerate() {
            let more = if at + 1 < words.len() { goes_on.len() } else { 0 };
            if width(word) + more > max {
                return None;
            }
            if width(&line) + 1 + width(word) + more > max {
                line += if at > 0 { goes_on } else { "" };
                lines.push(std::mem::take(&mut line));
            } else {
                line.push(' ');
            }
            line += word;
        }
    }
    lines.push(line);
    Some(indented(&lines, first, rest))
}

/// The words of a command, unchanged. A blank in single quotes belongs to a word.
fn shell_words(command: &str) -> Vec<&str> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let is_between = |c: char| {
        let escaped = std::mem::take(&mut is_escaped);
        match c {
            '\'' if !escaped => is_quoted = !is_quoted,
            '\\' if !is_quoted => is_escaped = !escaped,
            _ => {}
        }
        c == ' ' && !is_quoted
    };
    command.split(is_between).collect()
}

fn indented(lines: &[String], first: usize, rest: usize) -> String {
    let indent = |at: usize| " ".repeat(if at == 0 { first } else { rest });
    lines.iter().enumerate().map(|(at, line)| format!("{}{line}\n", indent(at))).collect()
}

/// Wraps text at spaces. A word that is too long breaks after a separator, as in paths, and elsewhere only if it has none.
pub fn wrap(text: &str, max: usize) -> Vec<String> {
    let max = max.max(1);
    if width(text) <= max {
        return vec![text.to_owned()];
    }
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split(' ') {
        if !line.is_empty() && width(&line) + 1 + width(word) > max {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        let mut rest: Vec<char> = word.chars().collect();
        while width(&line) + rest.len() > max {
            let most = max - width(&line);
            let last = |of: &[char]| rest[..most].iter().rposition(|c| of.contains(c));
            let at = last(&['/']).filter(|&at| at >= most / 2).or_else(|| last(&SEPARATORS)).map_or(most, |at| at + 1);
            line.extend(rest.drain(..at));
            lines.push(std::mem::take(&mut line));
        }
        line.extend(rest);
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Table {
        let mut table = Table::new("tnt");
        table.head(["name", "times", "meaning"]);
        table.row(["overrun", "12", "entries that the ring wrote over"]);
        table.row(["gap", "0", "frames missing"]);
        table
    }

    #[test]
    fn columns_align() {
        assert_eq!(
            example().render(80),
            "  name     times  meaning\n\
             \u{20} ------------------------------------------------\n\
             \u{20} overrun     12  entries that the ring wrote over\n\
             \u{20} gap          0  frames missing\n"
        );
    }

    #[test]
    fn the_last_text_column_wraps() {
        assert_eq!(
            example().render(40),
            "  name     times  meaning\n\
             \u{20} --------------------------------------\n\
             \u{20} overrun     12  entries that the ring\n\
             \u{20}                 wrote over\n\
             \u{20} gap          0  frames missing\n"
        );
    }

    #[test]
    fn a_table_of_many_numbers_is_cut_where_its_rows_have_names() {
        let mut table = Table::new("tnnn");
        table.head(["stage", "mean", "p99", "max"]);
        table.row(["Q2C", "1.00 ms", "12.00 ms", "123.00 ms"]);
        table.row(["D2C", "1.00 ms", "9.00 ms", "9.00 ms"]);
        assert_eq!(
            table.render(28),
            "  stage     mean       p99\n\
             \u{20} ------------------------\n\
             \u{20} Q2C    1.00 ms  12.00 ms\n\
             \u{20} D2C    1.00 ms   9.00 ms\n\
             \n\
             \u{20} stage        max\n\
             \u{20} ----------------\n\
             \u{20} Q2C    123.00 ms\n\
             \u{20} D2C      9.00 ms\n"
        );
    }

    #[test]
    fn all_columns_of_text_stand_before_the_numbers_of_a_cut_table() {
        let mut table = Table::new("ttnn");
        table.head(["call", "process", "n", "time"]);
        table.row(["write", "dd (1)", "12", "12.00 ms"]);
        table.row(["write", "dd (2)", "1", "1.00 ms"]);
        assert_eq!(
            table.render(26),
            "  call   process   n\n\
             \u{20} ------------------\n\
             \u{20} write  dd (1)   12\n\
             \u{20} write  dd (2)    1\n\
             \n\
             \u{20} call   process      time\n\
             \u{20} ------------------------\n\
             \u{20} write  dd (1)   12.00 ms\n\
             \u{20} write  dd (2)    1.00 ms\n"
        );
    }

    #[test]
    fn a_path_has_a_line_of_its_own_where_its_column_is_too_narrow() {
        let mut table = Table::new("tn");
        table.head(["file", "bytes"]);
        table.row(["/var/lib/app/data/first.sqlite", "12 KiB"]);
        table.row(["/etc/fstab", "1 KiB"]);
        assert_eq!(
            table.render(34),
            "  file                       bytes\n\
             \u{20} --------------------------------\n\
             \u{20} /var/lib/app/data/first.sqlite\n\
             \u{20}                           12 KiB\n\
             \u{20} /etc/fstab                 1 KiB\n"
        );
        let mut table = Table::new("ttn");
        table.head(["call", "file", "took"]);
        table.row(["write", "/var/lib/app/data/first.sqlite", "1 ms"]);
        assert_eq!(
            table.render(30),
            "  call   file             took\n\
             \u{20} ----------------------------\n\
             \u{20} write                   1 ms\n\
             \u{20}   /var/lib/app/data/\n\
             \u{20}     first.sqlite\n"
        );
    }

    #[test]
    fn too_narrow_a_terminal_gets_paragraphs() {
        let text = example().render(20);
        assert!(text.starts_with("  name: overrun\n    times: 12\n    meaning: entries\n"), "{text}");
        assert!(text.lines().all(|l| width(l) <= 26), "{text}");
    }

    #[test]
    fn long_words_break() {
        assert_eq!(wrap("abcdefgh ij", 3), ["abc", "def", "gh", "ij"]);
        assert_eq!(wrap("/var/lib/app/first.sqlite", 12), ["/var/lib/", "app/first.", "sqlite"]);
        assert_eq!(wrap("a b c", 3), ["a b", "c"]);
        assert_eq!(paragraph("a\u{1b}[2J\nb", 40, 0, 0), "a\\x1b[2J\\nb\n");
        assert_eq!(wrap("", 3), [""]);
    }

    #[test]
    fn a_short_word_does_not_stand_alone_on_the_last_line() {
        assert_eq!(paragraph("the device takes long for each.", 27, 0, 0), "the device takes long\nfor each.\n");
        // One that is long, and where the line before has only two words.
        assert_eq!(paragraph("the device takes /var/lib/app/log", 22, 0, 0), "the device takes\n/var/lib/app/log\n");
        assert_eq!(paragraph("a-long-word another-one each.", 24, 0, 0), "a-long-word another-one\neach.\n");
    }
}
