//! Tables of a given width, in plain characters.

/// Columns with one or two lines of heads. Text columns stand left, numbers right.
pub struct Table {
    heads: Vec<Vec<String>>,
    numbers: Vec<bool>,
    rows: Vec<Vec<String>>,
}

const GAP: usize = 2;
/// Text columns are not made narrower.
const MIN_TEXT: usize = 20;

fn width(text: &str) -> usize {
    text.chars().count()
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

    /// Lines, each indented by two. Where the table is wider than `max`, its widest text columns are wrapped; where that
    /// does not help, each row becomes a paragraph of "head: value".
    pub fn render(&self, max: usize) -> String {
        let columns = self.numbers.len();
        let mut widths: Vec<usize> = (0..columns)
            .map(|c| self.heads.iter().chain(&self.rows).filter_map(|r| r.get(c)).map(|t| width(t)).max().unwrap_or(0))
            .collect();
        let total = |widths: &[usize]| 2 + widths.iter().sum::<usize>() + GAP * columns.saturating_sub(1);
        while total(&widths) > max {
            let widest = (0..columns).filter(|&c| !self.numbers[c] && widths[c] > MIN_TEXT).max_by_key(|&c| widths[c]);
            match widest {
                Some(c) => widths[c] -= 1,
                None => return self.paragraphs(max),
            }
        }
        let mut out = String::new();
        for (i, row) in self.heads.iter().chain(&self.rows).enumerate() {
            let wrapped: Vec<Vec<String>> =
                (0..columns).map(|c| wrap(row.get(c).map_or("", |t| t), widths[c])).collect();
            for line in 0..wrapped.iter().map(Vec::len).max().unwrap_or(1) {
                let mut text = " ".repeat(2);
                for (c, cell) in wrapped.iter().enumerate() {
                    let part = cell.get(line).map_or("", |t| t);
                    let pad = " ".repeat(widths[c].saturating_sub(width(part)));
                    let gap = if c > 0 { " ".repeat(GAP) } else { String::new() };
                    text += &if self.numbers[c] { format!("{gap}{pad}{part}") } else { format!("{gap}{part}{pad}") };
                }
                out += text.trim_end();
                out.push('\n');
            }
            if i + 1 == self.heads.len() {
                out += &format!("  {}\n", "-".repeat(total(&widths).saturating_sub(2)));
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
