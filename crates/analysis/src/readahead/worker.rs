//! Who reads flash for those who wait: where squashfs lies on a block device of flash, a worker of `kblockd` does, one read after the
//! other, as they were asked for.

use std::collections::VecDeque;

/// In how many pieces a block is read at most, between which others may run.
const MOST_PIECES: f64 = 256.0;

#[derive(Clone, Copy, Debug)]
struct Asked {
    by: u32,
    pieces: u32,
    piece_ns: f64,
}

#[derive(Debug)]
pub struct Worker {
    pub tid: u32,
    asked: VecDeque<Asked>,
}

impl Worker {
    pub fn new(tid: u32) -> Worker {
        Worker { tid, asked: VecDeque::new() }
    }

    /// A task waits for so many reads of flash.
    pub fn ask(&mut self, by: u32, reads: f64, each_ns: f64) {
        let pieces = reads.ceil().clamp(1.0, MOST_PIECES);
        let piece_ns = (reads * each_ns / pieces).max(0.0);
        self.asked.push_back(Asked { by, pieces: pieces as u32, piece_ns });
    }

    /// For how long it reads next, and who waits for nothing more then.
    pub fn next(&mut self) -> Option<(f64, Option<u32>)> {
        let asked = self.asked.front_mut()?;
        asked.pieces = asked.pieces.saturating_sub(1);
        let Asked { by, pieces, piece_ns } = *asked;
        let is_over = pieces == 0;
        if is_over {
            self.asked.pop_front();
        }
        Some((piece_ns, is_over.then_some(by)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_reads_for_one_after_the_other() {
        let mut worker = Worker::new(0);
        assert_eq!(worker.next(), None);
        worker.ask(7, 2.0, 100.0);
        worker.ask(8, 1.5, 100.0);
        let did: Vec<_> = std::iter::from_fn(|| worker.next()).collect();
        assert_eq!(did, [(100.0, None), (100.0, Some(7)), (75.0, None), (75.0, Some(8))]);
    }

    #[test]
    fn nothing_is_too_much_or_too_little() {
        let mut worker = Worker::new(0);
        for reads in [0.0, f64::NAN, -5.0, 1e300] {
            worker.ask(7, reads, 1e3);
        }
        let did: Vec<_> = std::iter::from_fn(|| worker.next()).collect();
        assert_eq!(did.iter().filter(|(_, over)| over.is_some()).count(), 4);
        assert_eq!(did.len(), 259);
        assert!(did.iter().all(|(ns, _)| *ns >= 0.0), "{did:?}");
    }
}
