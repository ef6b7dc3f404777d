//! Tables of a given width, in plain characters.

/// Columns with one or two lines of heads. Text columns stand left, numbers right.
pub struct Table {
    heads: Vec<Vec<String>>,
    numbers: Vec<bool>,
    rows: Vec<Vec<String>>,
}

const GAP: usize = 2;
/// Text columns are not made narrower.
const MIN_TEXT: usize = 16;
/// Tables that a wide one is cut into at most.
const MAX_PARTS: usize = 3;

fn width(text: &str) -> usize {
    text.chars().count()
}

/// Width of a table of these columns.
fn total(columns: &[usize], widths: &[usize]) -> usize {
    2 + columns.iter().map(|&c| widths[c]).sum::<usize>() + GAP * columns.len().saturating_sub(1)
}

impl Table {
    /// A column per character of `kinds`: `t` text, `n` number.
    pub fn new(kinds: &str) -> Self {
        Self { heads: Vec::new(), numbers: kinds.chars().map(|k| k == 'n').collect(), rows: Vec::new() }
    }

    pub fn head<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.heads.push(cells.into_iter().map(Into::into).collect());
    }

    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Lines, each indented by two; nothing where there is no row. Where the table is wider than `max`, its widest text columns are wrapped; where that
    /// does not help, it is cut into tables that all have the first column, if that names the rows; else each row becomes a
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
                None => {
                    let parts = self.parts(max, &widths).into_iter();
                    let parts: Vec<String> = parts.map(|part| self.lines(&part, &widths)).collect();
                    return if parts.is_empty() { self.paragraphs(max) } else { parts.join("\n") };
                }
            }
        }
        self.lines(&all, &widths)
    }

    /// The first column with as many others as fit, and again until all are there; none where that is no help.
    fn parts(&self, max: usize, widths: &[usize]) -> Vec<Vec<usize>> {
        let mut names: Vec<Option<&String>> = self.rows.iter().map(|row| row.first()).collect();
        names.sort_unstable();
        if names.windows(2).any(|pair| pair[0] == pair[1]) {
            return Vec::new();
        }
        let mut parts = vec![vec![0]];
        for column in 1..widths.len() {
            let part = parts.last_mut().expect("there is one");
            part.push(column);
            if total(part, widths) > max {
                part.pop();
                parts.push(vec![0, column]);
            }
        }
        if parts.len() > MAX_PARTS || parts.iter().any(|part| part.len() < 2 || total(part, widths) > max) {
            parts.clear();
        }
        parts
    }

    fn lines(&self, columns: &[usize], widths: &[usize]) -> String {
        let mut out = String::new();
        for (i, row) in self.heads.iter().chain(&self.rows).enumerate() {
            let wrapped: Vec<Vec<String>> =
                columns.iter().map(|&c| wrap(row.get(c).map_or("", |t| t), widths[c])).collect();
            for line in 0..wrapped.iter().map(Vec::len).max().unwrap_or(1) {
                let mut text = " ".repeat(2);
                for (at, (&c, cell)) in columns.iter().zip(&wrapped).enumerate() {
                    let part = cell.get(line).map_or("", |t| t);
                    let pad = " ".repeat(widths[c].saturating_sub(width(part)));
                    let gap = if at > 0 { " ".repeat(GAP) } else { String::new() };
                    text += &if self.numbers[c] { format!("{gap}{pad}{part}") } else { format!("{gap}{part}{pad}") };
                }
                out += text.trim_end();
                out.push('\n');
            }
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

/// Text in lines of at most `max`, the first indented by `first`, the others by `rest`.
pub fn paragraph(text: &str, max: usize, first: usize, rest: usize) -> String {
    let mut out = String::new();
    for (i, line) in wrap(text, max.saturating_sub(rest.max(first)).max(20)).iter().enumerate() {
        out += &format!("{}{line}\n", " ".repeat(if i == 0 { first } else { rest }));
    }
    out
}

/// Breaks at spaces, and within a word only where it alone is too long.
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
        for c in word.chars() {
            if width(&line) == max {
                lines.push(std::mem::take(&mut line));
            }
            line.push(c);
        }
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
        table.row(["D2C", "1.00 ms", "9.00 ms", "9.00 ms"]);
        assert!(table.render(28).contains("    max: 9.00 ms\n"));
    }

    #[test]
    fn too_narrow_a_terminal_gets_paragraphs() {
        let text = example().render(24);
        assert!(text.starts_with("  name: overrun\n    times: 12\n    meaning: entries\n"), "{text}");
        assert!(text.lines().all(|l| width(l) <= 26), "{text}");
    }

    #[test]
    fn long_words_break() {
        assert_eq!(wrap("abcdefgh ij", 3), ["abc", "def", "gh", "ij"]);
        assert_eq!(wrap("a b c", 3), ["a b", "c"]);
        assert_eq!(wrap("", 3), [""]);
    }
}
