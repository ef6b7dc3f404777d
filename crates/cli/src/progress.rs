//! Progress on standard error: one line per step, and on a terminal a line that changes during a step.

use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use flashscope_study::RunProgress;
use flashscope_targets::Progress;

/// Steps as lines; byte counts only if the line can be rewritten.
pub struct Terminal {
    quiet: bool,
    live: bool,
    began: Instant,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Number of columns of a live line that the next line must clear.
    live_columns: usize,
    step: String,
    last_live: Option<Instant>,
}

impl Terminal {
    pub fn new(quiet: bool) -> Self {
        Terminal {
            quiet,
            live: std::io::stderr().is_terminal(),
            began: Instant::now(),
            state: Mutex::new(State::default()),
        }
    }

    pub fn line(&self, text: &str) {
        if self.quiet {
            return;
        }
        let mut state = self.lock();
        let clear = std::mem::take(&mut state.live_columns);
        let mut err = std::io::stderr().lock();
        if clear > 0 {
            // The terminal may be gone; a failure to show progress is ignored.
            let _ = write!(err, "\r{:clear$}\r", "");
        }
        // A step may contain a file name or a board's text.
        let text = flashscope_output::visible(text);
        let _ = writeln!(err, "[{:>5.1} s] {text}", self.began.elapsed().as_secs_f64());
    }

    /// Whether a line can be rewritten, and progress is shown.
    pub fn is_live(&self) -> bool {
        self.live && !self.quiet
    }

    /// Prints a line that the next one replaces.
    pub fn live(&self, text: &str) {
        if self.quiet {
            return;
        }
        let mut state = self.lock();
        let now = Instant::now();
        if state.last_live.is_some_and(|last| now - last < Duration::from_millis(100)) {
            return;
        }
        state.last_live = Some(now);
        let text = format!("[{:>5.1} s] {}", self.began.elapsed().as_secs_f64(), flashscope_output::visible(text));
        let width = ratatui::crossterm::terminal::size().map_or(0, |(width, _)| usize::from(width));
        let text = cut(&text, width);
        let columns = text.chars().count();
        let before = std::mem::replace(&mut state.live_columns, columns);
        let mut err = std::io::stderr().lock();
        let _ = write!(err, "\r{text}{:pad$}", "", pad = before.saturating_sub(columns));
        let _ = err.flush();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// What fits into one row: a carriage return does not lead back over a row that the terminal broke. 0: the width is unknown.
fn cut(text: &str, width: usize) -> &str {
    let end = text.char_indices().nth(width.saturating_sub(1)).filter(|_| width > 0);
    end.map_or(text, |(end, _)| &text[..end])
}

impl Progress for Terminal {
    fn step(&self, text: &str) {
        text.clone_into(&mut self.lock().step);
        self.line(text);
    }

    fn bytes(&self, done: u64, total: Option<u64>) {
        if self.quiet || !self.live {
            return;
        }
        let step = self.lock().step.clone();
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        match total {
            Some(total) => self.live(&format!("{step}: {:.1} of {:.1} MiB", mib(done), mib(total))),
            None => self.live(&format!("{step}: {:.1} MiB", mib(done))),
        }
    }
}

/// Progress of one study's groups on the terminal, with the study's name if several run together.
pub struct StudyLines<'a> {
    terminal: &'a Terminal,
    prefix: String,
    /// Number of finished groups, and of all groups.
    groups: Mutex<(usize, usize)>,
}

impl<'a> StudyLines<'a> {
    pub fn new(terminal: &'a Terminal, study: Option<&str>) -> StudyLines<'a> {
        let prefix = study.map_or_else(String::new, |name| format!("{name}: "));
        StudyLines { terminal, prefix, groups: Mutex::default() }
    }

    fn line(&self, text: &str) {
        self.terminal.line(&format!("{}{text}", self.prefix));
    }

    fn groups(&self) -> std::sync::MutexGuard<'_, (usize, usize)> {
        self.groups.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Progress for StudyLines<'_> {
    fn step(&self, text: &str) {
        self.terminal.step(&format!("{}{text}", self.prefix));
    }

    fn bytes(&self, done: u64, total: Option<u64>) {
        self.terminal.bytes(done, total);
    }
}

impl RunProgress for StudyLines<'_> {
    fn study_started(&self, groups: usize) {
        *self.groups() = (0, groups);
    }

    fn group_started(&self, id: &str, cells: usize) {
        self.line(&format!("{id}: booting a fresh board for {cells} cells"));
    }

    fn cell_started(&self, id: &str, cell: usize, cells: usize) {
        if self.terminal.live {
            self.terminal.live(&format!("{}{id}: cell {cell} of {cells}", self.prefix));
        } else if cell == 1 || cell == cells || cell.is_multiple_of(10) {
            // If lines cannot be rewritten, every tenth is enough.
            self.line(&format!("{id}: cell {cell} of {cells}"));
        }
    }

    fn group_finished(&self, id: &str, wall: Duration, reused: bool) {
        let (finished, groups) = {
            let mut groups = self.groups();
            groups.0 += 1;
            *groups
        };
        let how = match reused {
            true => "was finished before, with the same inputs: reused (--fresh measures again)".to_owned(),
            false => format!("finished in {:.1} s", wall.as_secs_f64()),
        };
        self.line(&format!("{id}: {how} ({finished} of {groups} groups)"));
    }

    fn progress(&self) -> &dyn Progress {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::cut;

    #[test]
    fn a_live_line_leaves_the_last_column_free() {
        assert_eq!(cut("recording", 5), "reco");
        assert_eq!(cut("äöü µs", 4), "äöü");
        assert_eq!(cut("recording", 10), "recording");
        assert_eq!(cut("recording", 9), "recordin");
        assert_eq!((cut("recording", 1), cut("recording", 0)), ("", "recording"));
    }
}
