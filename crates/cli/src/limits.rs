//! Ends a recording by itself: at `--max-size`, or before its disk is full.
//!
//! The recorder is asked to end, like by Ctrl-C. The data in its rings comes after that and is kept.

use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Space that is left free on disks with at least 16 times as much.
const MARGIN: u64 = 64 << 20;
/// The rings' data and the names are written after the end. So this much stays free on a small disk, or half of its size beyond the first
/// MiB.
const LEAST: u64 = 4 << 20;

/// The free space is asked for again after so many bytes, or a quarter of what stays free, and after this time: others
/// write there, too.
const LOOK_BYTES: u64 = 256 << 10;
const LOOK_TIME: Duration = Duration::from_millis(50);

fn margin(total: u64) -> u64 {
    MARGIN.min((total / 16).max(LEAST.min(total.saturating_sub(1 << 20) / 2)))
}

/// The limit that ended a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    MaxSize,
    /// Number of free bytes.
    Disk(u64),
}

/// The stream's file. It asks the recorder to end at a limit.
pub struct Limited {
    file: Arc<File>,
    /// The agent writes the file, and [`Limited::write`] gets a copy.
    agent_writes: bool,
    bytes: u64,
    /// At this number of bytes, or this time, the free space is asked for again.
    next: (u64, Instant),
    max: Option<u64>,
    margin: u64,
    stop: Arc<AtomicBool>,
    reached: Option<Reached>,
}

impl Limited {
    /// `agent_writes`: the file; what [`Limited`] gets is a copy.
    pub fn new(file: Arc<File>, agent_writes: bool, max: Option<u64>, stop: Arc<AtomicBool>) -> Limited {
        let margin = flashscope_output::total_bytes_of(&file).map_or(MARGIN, margin);
        Limited { file, agent_writes, bytes: 0, next: (0, Instant::now()), max, margin, stop, reached: None }
    }

    /// The limits as options of an agent that writes the file. It ends at once; this process sees the file some milliseconds later.
    pub fn of_agent(&self) -> Vec<String> {
        let max = self.max.into_iter().flat_map(|max| ["--max-bytes".to_owned(), max.max(1).to_string()]);
        max.chain(["--least-free".to_owned(), self.margin.max(1).to_string()]).collect()
    }

    /// Of a recording that has ended.
    pub fn reached(&mut self) -> Option<Reached> {
        if self.agent_writes {
            self.next = (0, Instant::now());
            self.look();
        }
        self.reached
    }

    fn look(&mut self) {
        if self.reached.is_some() {
            return;
        }
        // What another process writes may be longer than what was seen of it.
        let bytes = match self.agent_writes.then(|| self.file.metadata()) {
            Some(Ok(meta)) => meta.len(),
            _ => self.bytes,
        };
        if self.max.is_some_and(|max| bytes >= max) {
            self.reached = Some(Reached::MaxSize);
        } else if self.bytes >= self.next.0 || Instant::now() >= self.next.1 {
            self.next = (self.bytes + LOOK_BYTES.min(self.margin / 4), Instant::now() + LOOK_TIME);
            // A file system that does not report its free space is not guarded; if it becomes full, writing fails.
            let free = flashscope_output::free_bytes_of(&self.file).unwrap_or(u64::MAX);
            if free < self.margin {
                self.reached = Some(Reached::Disk(free));
            }
        }
        if self.reached.is_some() {
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = if self.agent_writes { bytes.len() } else { self.file.write(bytes)? };
        self.bytes += n as u64;
        self.look();
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_disk_keeps_room_for_the_end() {
        let kib = |total: u64| margin(total << 10) >> 10;
        assert_eq!([640, 1024, 8 << 10, 64 << 10, 256 << 10].map(kib), [40, 64, 3584, 4096, 16_384]);
        assert_eq!([1 << 30, 100 << 30].map(margin), [64 << 20, 64 << 20]);
    }

    #[test]
    fn a_limit_asks_once_and_keeps_what_comes_after() {
        let file = flashscope_output::temporary(&std::env::temp_dir()).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let mut limited = Limited::new(Arc::new(file), false, Some(10), Arc::clone(&stop));
        limited.write_all(b"123456789").unwrap();
        assert!(!stop.load(Ordering::Relaxed) && limited.reached().is_none());
        limited.write_all(b"0").unwrap();
        assert!(stop.load(Ordering::Relaxed));
        assert_eq!(limited.reached(), Some(Reached::MaxSize));
        limited.write_all(b"the rings' rest").unwrap();
        assert_eq!((limited.bytes, limited.reached()), (25, Some(Reached::MaxSize)));
    }
}
