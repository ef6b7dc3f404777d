//! Text for a terminal of a given width.

mod flash;
mod study;
mod table;

pub use flash::flash;
pub use study::study;

/// How to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Columns of the terminal.
    pub width: usize,
    /// SGR escape sequences for emphasis; none are written otherwise.
    pub colour: bool,
}

impl Default for Style {
    fn default() -> Self {
        Self { width: 100, colour: false }
    }
}

impl Style {
    fn width(self) -> usize {
        self.width.clamp(40, 140)
    }

    fn emphasis(self, code: &str, text: &str) -> String {
        if self.colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    fn bold(self, text: &str) -> String {
        self.emphasis("1", text)
    }

    fn heading(self, text: &str) -> String {
        format!("\n{}\n", self.bold(text))
    }
}
