//! A table, shared by the terminal and the HTML page.

/// A table for either renderer; its text is untrusted.
pub struct Rows {
    /// One character per column: `t` text, `n` number.
    pub kinds: &'static str,
    /// Headings of one or two lines.
    pub heads: &'static [&'static str],
    pub rows: Vec<Vec<String>>,
    /// Number of rows that are left out.
    pub more: usize,
}

impl Rows {
    pub fn new<T>(
        kinds: &'static str,
        heads: &'static [&'static str],
        all: impl ExactSizeIterator<Item = T>,
        most: usize,
        row: impl Fn(T) -> Vec<String>,
    ) -> Self {
        let more = all.len().saturating_sub(most);
        Self { kinds, heads, rows: all.take(most).map(row).collect(), more }
    }
}
