//! The screen of `top` in a terminal, and its keys. The terminal is restored however the screen ends.

use std::io::{self, IsTerminal as _, Stdout};
use std::ops::ControlFlow;
use std::time::Duration;

use flashscope_report::top::{TopBy, TopRow, TopSnapshot, bytes};
use flashscope_report::{duration, size, visible};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Row, Table, TableState, Wrap};

use crate::failure::Failure;

/// Sort orders of rows, largest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Bytes,
    Ios,
    P99,
    Waits,
}

impl Sort {
    const ALL: [(Sort, &'static str); 4] =
        [(Sort::Bytes, "bytes"), (Sort::Ios, "IOPS"), (Sort::P99, "p99"), (Sort::Waits, "waits")];

    fn value(self, row: &TopRow) -> f64 {
        match self {
            Sort::Bytes => bytes(row),
            Sort::Ios => row.ios_per_s.unwrap_or(0.0),
            Sort::P99 => row.times.map_or(0.0, |times| times.p99_ns as f64),
            Sort::Waits => row.waits_ns_per_s.unwrap_or(0.0),
        }
    }
}

/// The user's choices, independent of a terminal.
#[derive(Debug, Default)]
struct Choice {
    by: usize,
    sort: usize,
    filter: String,
    /// The user is typing the filter.
    typing: bool,
    paused: bool,
    /// Show only this process and its files.
    only: Option<String>,
    selected: usize,
}

impl Choice {
    fn by(&self) -> TopBy {
        TopBy::ALL[self.by]
    }

    /// The rows to show, in order.
    fn rows<'a>(&self, snapshot: &'a TopSnapshot) -> Vec<&'a TopRow> {
        let filter = self.filter.to_lowercase();
        let shown = |row: &&TopRow| {
            (row.name.to_lowercase().contains(&filter) || shown_name(row).to_lowercase().contains(&filter))
                && match (self.by(), &self.only) {
                    (TopBy::Process, Some(only)) => *only == row.name,
                    (TopBy::File, Some(only)) => row.processes.iter().any(|name| is_of(only, name)),
                    _ => true,
                }
        };
        let mut rows: Vec<&TopRow> = snapshot.rows(self.by()).iter().filter(shown).collect();
        let sort = Sort::ALL[self.sort].0;
        rows.sort_by(|a, b| sort.value(b).total_cmp(&sort.value(a)));
        rows
    }

    /// Handles a key. `Break`: the user quits.
    fn key(&mut self, code: KeyCode, modifiers: KeyModifiers, rows: &[String]) -> ControlFlow<()> {
        if code == KeyCode::Char('c') && modifiers.contains(KeyModifiers::CONTROL) {
            return ControlFlow::Break(());
        }
        if self.typing {
            match code {
                KeyCode::Enter => self.typing = false,
                KeyCode::Esc => (self.typing, self.filter) = (false, String::new()),
                KeyCode::Backspace => _ = self.filter.pop(),
                KeyCode::Char(c) if self.filter.len() < 64 => self.filter.push(c),
                _ => {}
            }
            return ControlFlow::Continue(());
        }
        match code {
            KeyCode::Char('q') => return ControlFlow::Break(()),
            KeyCode::Char('g') => (self.by, self.selected) = ((self.by + 1) % TopBy::ALL.len(), 0),
            KeyCode::Char('s') => self.sort = (self.sort + 1) % Sort::ALL.len(),
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Enter if self.by() == TopBy::Process => {
                if let Some(process) = rows.get(self.selected) {
                    self.only = Some(process.clone());
                    let files = TopBy::ALL.iter().position(|&by| by == TopBy::File);
                    (self.by, self.selected) = (files.unwrap_or(self.by), 0);
                }
            }
            KeyCode::Esc => (self.only, self.filter) = (None, String::new()),
            KeyCode::Down => self.selected = (self.selected + 1).min(rows.len().saturating_sub(1)),
            KeyCode::Up => self.selected = self.selected.saturating_sub(1),
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// Restores the terminal on drop, also after an error.
struct Raw;

impl Drop for Raw {
    fn drop(&mut self) {
        put_back();
    }
}

/// Restores the terminal. Errors cannot be reported any more.
pub fn put_back() {
    _ = disable_raw_mode();
    _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
}

/// The screen and its state.
pub struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    _raw: Raw,
    target: String,
    shows_files: bool,
    choice: Choice,
    snapshot: Option<TopSnapshot>,
}

fn failed(error: io::Error) -> Failure {
    Failure::new(format!("the terminal: {error}; --json needs none"))
}

impl Screen {
    pub fn open(target: &str, shows_files: bool) -> Result<Screen, Failure> {
        enable_raw_mode().map_err(failed)?;
        let raw = Raw;
        execute!(io::stdout(), EnterAlternateScreen).map_err(failed)?;
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout())).map_err(failed)?;
        let (target, choice) = (target.to_owned(), Choice::default());
        let mut screen = Screen { terminal, _raw: raw, target, shows_files, choice, snapshot: None };
        screen.draw()?;
        Ok(screen)
    }

    /// Whether rows by application are shown: they need a second analysis.
    pub fn shows_apps(&self) -> bool {
        self.choice.by() == TopBy::App
    }

    /// Shows the last interval's snapshot, unless the screen is paused.
    pub fn show(&mut self, snapshot: TopSnapshot) -> Result<(), Failure> {
        if !self.choice.paused {
            self.snapshot = Some(snapshot);
        }
        self.draw()
    }

    /// Handles keys for this time. `Break`: the user quits, or the terminal is gone.
    pub fn keys(&mut self, wait: Duration) -> Result<ControlFlow<()>, Failure> {
        std::thread::sleep(wait);
        // crossterm (0.29) waits without end for a key from a terminal that has hung up, and uses a whole CPU for it.
        if !io::stdout().is_terminal() {
            return Ok(ControlFlow::Break(()));
        }
        while event::poll(Duration::ZERO).map_err(failed)? {
            if self.event(&event::read().map_err(failed)?)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn event(&mut self, event: &Event) -> Result<ControlFlow<()>, Failure> {
        let names: Vec<String> = match &self.snapshot {
            Some(snapshot) => self.choice.rows(snapshot).iter().map(|row| row.name.clone()).collect(),
            None => Vec::new(),
        };
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => {
                if self.choice.key(key.code, key.modifiers, &names).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            Event::Resize(..) => {}
            _ => return Ok(ControlFlow::Continue(())),
        }
        self.draw()?;
        Ok(ControlFlow::Continue(()))
    }

    fn draw(&mut self) -> Result<(), Failure> {
        let Screen { terminal, target, shows_files, choice, snapshot, .. } = self;
        terminal.draw(|frame| draw(frame, target, *shows_files, choice, snapshot.as_ref())).map_err(failed)?;
        Ok(())
    }
}

fn draw(
    frame: &mut ratatui::Frame<'_>,
    target: &str,
    shows_files: bool,
    choice: &Choice,
    snapshot: Option<&TopSnapshot>,
) {
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(2), Constraint::Min(1), Constraint::Length(1)]).areas(frame.area());
    let rows = snapshot.map(|snapshot| choice.rows(snapshot)).unwrap_or_default();
    frame.render_widget(Paragraph::new(head_lines(target, choice, snapshot)), head);
    let says_why = choice.by() == TopBy::File && rows.is_empty() && !shows_files;
    if says_why {
        let why = vec![
            Line::from("These events do not say which file a bio is of. End with q, and begin again with:"),
            Line::from("    --events block,cache,syscall"),
        ];
        frame.render_widget(Paragraph::new(why).wrap(Wrap { trim: true }), body);
    }
    // Each view has only columns for which its rows have figures.
    let (heads, lengths): (&[&str], &[u16]) = match choice.by() {
        TopBy::Process | TopBy::App => (&["syncs", "err", "waits for"], &[6, 5, 0]),
        TopBy::File => (&["used by"], &[0]),
        TopBy::Device => (&["err"], &[5]),
    };
    let lengths: Vec<u16> = [0, 11, 11, 7, 9, 9].into_iter().chain(lengths.iter().copied()).collect();
    let heads =
        [choice.by().name(), "read/s", "written/s", "IOPS", "p50", "p99"].into_iter().chain(heads.iter().copied());
    // The rest of the width is for the name, or three fifths of it if the row has a second name.
    let fixed: u16 = lengths.iter().sum::<u16>() + lengths.len() as u16 - 1;
    let free = usize::from(body.width.saturating_sub(fixed));
    let name_width = if lengths.ends_with(&[0]) { free * 3 / 5 } else { free };
    let widths = lengths.iter().enumerate().map(|(i, &length)| match (i, length) {
        (0, _) => Constraint::Length(name_width as u16),
        (_, 0) => Constraint::Fill(1),
        _ => Constraint::Length(length),
    });
    let cells = rows.iter().map(|row| Row::new(cells(row, choice.by(), name_width)));
    let table = Table::new(cells, widths)
        .header(Row::new(heads).style(Style::new().add_modifier(Modifier::BOLD)))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let selected = (!rows.is_empty()).then(|| choice.selected.min(rows.len() - 1));
    if !says_why {
        frame.render_stateful_widget(table, body, &mut TableState::default().with_selected(selected));
    }
    let keys = match choice.typing {
        true => format!("filter: {}_   Enter keeps it, Esc drops it", visible(&choice.filter)),
        false => "g group  s sort  / filter  Enter its files  Esc all  p pause  q quit".to_owned(),
    };
    frame.render_widget(Paragraph::new(keys), foot);
}

fn head_lines(target: &str, choice: &Choice, snapshot: Option<&TopSnapshot>) -> Vec<Line<'static>> {
    let target = visible(target);
    let Some(top) = snapshot else {
        return vec![Line::from(format!("flashscope top on {target}: waiting for the first events")), Line::from("")];
    };
    let sum = |f: fn(&TopRow) -> Option<f64>| top.device.iter().filter_map(f).sum::<f64>();
    let first = format!(
        "{target}  {:.0} s  read {}/s  written {}/s  most in flight {}{}",
        top.time_s,
        size(sum(|row| row.read_bytes_per_s).round() as u64),
        size(sum(|row| row.written_bytes_per_s).round() as u64),
        top.most_in_flight.known().map_or_else(|| "unknown".to_owned(), u64::to_string),
        if choice.paused { "  PAUSED" } else { "" },
    );
    let mut second = format!("by {}, most {} first", choice.by().name(), Sort::ALL[choice.sort].1);
    if let Some(only) = &choice.only {
        second += &format!("; only {}", visible(only));
    }
    if let Some(unused) = top.readahead_unused.known() {
        second += &format!("; read-ahead not used {:.0} %", unused * 100.0);
    }
    if let Some(erases) = top.most_erases_of_a_block.filter(|erases| *erases > 0) {
        second += &format!("; most erased block {erases}×");
    }
    if top.dropped > 0 {
        second += &format!("; {} sub-buffers of events were dropped: figures are too low", top.dropped);
    }
    vec![Line::from(first), Line::from(second)]
}

/// Whether `dd (7)` is one of the processes named `dd`.
fn is_of(process: &str, name: &str) -> bool {
    process.strip_prefix(name).is_some_and(|number| number.is_empty() || number.starts_with(" ("))
}

fn shown_name(row: &TopRow) -> &str {
    row.label.as_deref().unwrap_or(&row.name)
}

/// The part of a name that fits; of a path its end, which has the file name.
fn fitted(name: &str, width: usize) -> String {
    let length = name.chars().count();
    if length <= width || !name.starts_with('/') {
        return name.to_owned();
    }
    format!("…{}", name.chars().skip(length + 1 - width.max(1)).collect::<String>())
}

fn cells(row: &TopRow, by: TopBy, name_width: usize) -> Vec<String> {
    let time = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), duration);
    let bytes = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| size(value.round() as u64));
    let rate = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.0}"));
    let errors = || row.errors.map_or_else(|| "-".to_owned(), |n| n.to_string());
    let mut cells = vec![
        fitted(&visible(shown_name(row)), name_width),
        bytes(row.read_bytes_per_s),
        bytes(row.written_bytes_per_s),
        rate(row.ios_per_s),
        time(row.times.map(|times| times.p50_ns)),
        time(row.times.map(|times| times.p99_ns)),
    ];
    match by {
        TopBy::Process | TopBy::App => cells.extend([
            rate(row.syncs_per_s),
            errors(),
            match (&row.waits_behind, row.waits_ns_per_s) {
                (Some(other), Some(ns)) => format!("{}/s {}", duration(ns.round() as u64), visible(other)),
                (None, Some(_)) => String::new(),
                (_, None) => "-".to_owned(),
            },
        ]),
        TopBy::File => cells.push(visible(&row.processes.join(", ")).into_owned()),
        TopBy::Device => cells.push(errors()),
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::backend::TestBackend;

    fn snapshot() -> TopSnapshot {
        let row = |name: &str, read: f64, written: f64, ios: f64| TopRow {
            name: name.to_owned(),
            read_bytes_per_s: Some(read),
            written_bytes_per_s: Some(written),
            ios_per_s: Some(ios),
            ..TopRow::default()
        };
        TopSnapshot {
            process: vec![row("dd", 0.0, 3e6, 10.0), row("app\u{1b}[2J", 1e6, 0.0, 200.0)],
            file: vec![
                TopRow {
                    label: Some("/data/film".into()),
                    processes: vec!["dd".into()],
                    ..row("8:0 inode 12", 1.0, 0.0, 1.0)
                },
                TopRow { label: Some("/data/other".into()), ..row("8:0 inode 13", 1.0, 0.0, 1.0) },
            ],
            device: vec![TopRow { label: Some("sda (ext4, /data)".into()), ..row("8:0", 1e6, 3e6, 210.0) }],
            ..TopSnapshot::empty(1.0, 1.0)
        }
    }

    fn picture(choice: &Choice, snapshot: &TopSnapshot) -> String {
        let mut terminal = Terminal::new(TestBackend::new(100, 8)).expect("a terminal");
        terminal.draw(|frame| draw(frame, "local", false, choice, Some(snapshot))).expect("drawn");
        let buffer = terminal.backend().buffer().clone();
        buffer
            .content()
            .chunks(100)
            .map(|line| line.iter().map(|cell| cell.symbol()).collect::<String>() + "\n")
            .collect()
    }

    fn press(choice: &mut Choice, snapshot: &TopSnapshot, codes: &[KeyCode]) -> bool {
        codes.iter().all(|&code| {
            let names: Vec<String> = choice.rows(snapshot).iter().map(|row| row.name.clone()).collect();
            choice.key(code, KeyModifiers::NONE, &names).is_continue()
        })
    }

    fn order(picture: &str) -> Vec<&str> {
        let names = ["dd", "app", "8:0"];
        picture.lines().filter_map(|line| names.into_iter().find(|name| line.starts_with(name))).collect()
    }

    /// A name is shown unchanged or escaped; it can neither control the terminal, nor join lines, nor cover another row.
    #[test]
    fn names_act_nowhere_on_the_screen() {
        let names = [
            "a\u{1b}[2Jb\u{7}".to_owned(),
            "a\nb\r\tc".to_owned(),
            "txt\u{202e}gpj\u{2066}".to_owned(),
            "; curl x | sh".to_owned(),
            "=cmd()|x".to_owned(),
            "\u{9b}2J\u{200b}\u{feff}".to_owned(),
            "n".repeat(4096),
            String::from_utf8_lossy(b"a\xff\xfe").into_owned(),
        ];
        for name in &names {
            let row = || TopRow {
                name: name.clone(),
                label: Some(name.clone()),
                processes: vec![name.clone(), name.clone()],
                waits_behind: Some(name.clone()),
                waits_ns_per_s: Some(1e6),
                ..TopRow::default()
            };
            let top = TopSnapshot {
                process: vec![row()],
                app: vec![row()],
                file: vec![row()],
                device: vec![row()],
                ..TopSnapshot::empty(1.0, 1.0)
            };
            for by in 0..4 {
                let choice = Choice { by, filter: name.clone(), typing: true, ..Choice::default() };
                let mut terminal = Terminal::new(TestBackend::new(100, 8)).expect("a terminal");
                terminal.draw(|frame| draw(frame, name, false, &choice, Some(&top))).expect("drawn");
                for cell in terminal.backend().buffer().content() {
                    assert!(!cell.symbol().chars().any(flashscope_output::acts), "{name:?}: {:?}", cell.symbol());
                }
            }
        }
    }

    #[test]
    fn a_table_without_files_says_what_to_type() {
        let by_file = Choice { by: 2, ..Choice::default() };
        let shown = picture(&by_file, &TopSnapshot::empty(1.0, 1.0));
        assert!(shown.contains("--events block,cache,syscall"), "{shown}");
    }

    #[test]
    fn of_a_long_path_the_end_is_seen() {
        assert_eq!(fitted("/data/film", 10), "/data/film");
        assert_eq!(fitted("/data/films", 10), "…ata/films");
        assert_eq!(fitted("kworker/u8:3 (369)", 10), "kworker/u8:3 (369)");
        assert_eq!(fitted("/a", 0), "…");
    }

    #[test]
    fn keys_sort_filter_and_drill() {
        let top = snapshot();
        let mut choice = Choice::default();
        let first = picture(&choice, &top);
        assert_eq!(order(&first), ["dd", "app"], "{first}");
        assert!(!first.contains('\u{1b}'), "{first}");
        assert!(press(&mut choice, &top, &[KeyCode::Char('s')]));
        assert_eq!(order(&picture(&choice, &top)), ["app", "dd"]);
        assert!(press(&mut choice, &top, &[KeyCode::Char('/'), KeyCode::Char('D'), KeyCode::Enter]));
        assert_eq!(order(&picture(&choice, &top)), ["dd"]);
        // Enter shows the files of the selected process.
        assert!(press(&mut choice, &top, &[KeyCode::Esc, KeyCode::Down, KeyCode::Enter]));
        assert_eq!((choice.only.as_deref(), choice.by()), (Some("dd"), TopBy::File));
        let files = picture(&choice, &top);
        assert!(files.contains("/data/film") && !files.contains("/data/other") && files.contains("only dd"), "{files}");
        assert!(press(&mut choice, &top, &[KeyCode::Esc, KeyCode::Char('g')]));
        let devices = picture(&choice, &top);
        assert!(devices.contains("sda (ext4, /data)") && !devices.contains("8:0"), "{devices}");
        // Rows match by either name.
        for name in ["8:0", "SDA"] {
            choice.filter = name.to_owned();
            assert_eq!(choice.rows(&top).len(), 1, "{name}");
        }
        choice.filter.clear();
        // While the filter is typed, q is a letter.
        assert!(press(&mut choice, &top, &[KeyCode::Char('/'), KeyCode::Char('q'), KeyCode::Esc]));
        assert!(!press(&mut choice, &top, &[KeyCode::Char('q')]));
    }
}
