//! The status line of a running recording: elapsed time, events, size and losses. All but the size come from the agent's stream.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use crate::progress::Terminal;
use flashscope_targets::{FS_PROGRESS, Frames};

/// Passes a stream on, and shows its progress reports on a terminal.
pub struct Live<'a, W> {
    out: W,
    terminal: &'a Terminal,
    frames: Frames,
    /// Printed when the recorder begins to write, because it may refuse the request before that.
    begins: Option<String>,
    bytes: u64,
    began: Instant,
    /// Last reported events and losses.
    reported: Option<(u64, u64)>,
}

impl<'a, W: Write> Live<'a, W> {
    pub fn new(out: W, terminal: &'a Terminal, begins: Option<String>) -> Live<'a, W> {
        Live { out, terminal, frames: Frames::default(), begins, bytes: 0, began: Instant::now(), reported: None }
    }
}

/// `0:42  12,345 events  3.4 MiB  nothing lost`.
fn line(elapsed: Duration, bytes: u64, reported: Option<(u64, u64)>) -> String {
    let seconds = elapsed.as_secs();
    let mib = bytes as f64 / f64::from(1 << 20);
    let (events, lost) = reported.unwrap_or_default();
    let lost = if lost == 0 { "nothing lost".to_owned() } else { format!("{lost} LOST: larger --ring") };
    format!("recording {}:{:02}  {events} events  {mib:.1} MiB  {lost}", seconds / 60, seconds % 60)
}

impl<W: Write> Write for Live<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        if let Some(begins) = self.begins.take_if(|_| written > 0) {
            self.terminal.line(&begins);
        }
        self.bytes += written as u64;
        if self.terminal.is_live() {
            let reported = &mut self.reported;
            self.frames.follow(&bytes[..written], &mut |kind, payload| {
                if kind == FS_PROGRESS && payload.len() >= 24 {
                    let number = |at: usize| u64::from_le_bytes(payload[at..at + 8].try_into().unwrap_or_default());
                    *reported = Some((number(8), number(16)));
                }
            });
            self.terminal.live(&line(self.began.elapsed(), self.bytes, self.reported));
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_has_time_events_size_and_losses() {
        let text = line(Duration::from_secs(102), 3 << 20, Some((12_345, 0)));
        assert_eq!(text, "recording 1:42  12345 events  3.0 MiB  nothing lost");
        let text = line(Duration::from_secs(2), 0, Some((1, 7)));
        assert_eq!(text, "recording 0:02  1 events  0.0 MiB  7 LOST: larger --ring");
    }
}
