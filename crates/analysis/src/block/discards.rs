//! Discards that are merged into another's request, for which there is no event.
//!
//! A device that takes several ranges in one discard (NVMe, virtio) gets them in one request. The block layer merges bios into it
//! without a merge event (block/blk-merge.c, bio_attempt_discard_merge(), Linux 4.11 to 6.18). The request's issue and completion
//! name the first range's sector, and the bytes of all ranges. So an issue that is longer than the bios at its sectors holds the
//! bios that the same thread queued next and that got no request, if their sizes add up to the rest exactly. Otherwise the owner of
//! the rest is unknown.

use super::in_flight::{NEVER, NONE};
use super::matching::{Matching, Range};
use super::ranges::{MAX_REQUESTS, MAX_WAITING, Merged, is_there, waits};
use super::watch::{Step, Watch};

impl<W: Watch> Matching<W> {
    /// A discard waits for its request, or for the request that it is merged into.
    #[cold]
    pub(super) fn discard_queued(&mut self, at: u32) {
        let bio = *self.bios.see(at);
        let waiting = self.discards.waiting.entry(bio.device).or_default();
        let bios = &self.bios;
        while waiting.front().is_some_and(|&one| waiting.len() >= MAX_WAITING || !waits(bios.see(one.0), one)) {
            waiting.pop_front();
        }
        waiting.push_back((at, bio.queued));
    }

    /// A discard's request is longer than the bios at its sectors, which were just issued. Returns whether the rest is known.
    #[cold]
    pub(super) fn discards_merged(&mut self, range: Range, now: u64) -> bool {
        if !self.discards.any(range.place) {
            return false;
        }
        let Some((host, first)) = self.bios.find(range.from(range.sector), |bio| u8::from(bio.issued == now)) else {
            return false;
        };
        let (tid, queued) = (first.tid, first.queued);
        let device = range.place.device();
        let rest: u64 = self.gaps.iter().map(|&(begin, end)| end - begin).sum();
        let Some(waiting) = self.discards.waiting.get(&device) else { return false };
        let behind = waiting.iter().position(|&one| one == (host, queued)).map_or(0, |at| at + 1);
        let (mut bios, mut sectors) = (Vec::new(), 0);
        for &one in waiting.iter().skip(behind) {
            let bio = self.bios.see(one.0);
            if !waits(bio, one) || bio.tid != tid || bio.queued < queued {
                continue;
            }
            // It has a request of its own, and so have those behind it.
            if bio.got != NEVER || bio.merged != NEVER || bio.split_of != NONE || sectors >= rest {
                break;
            }
            sectors += u64::from(bio.sectors);
            bios.push(one);
        }
        if sectors != rest {
            return false;
        }
        for &(at, _) in &bios {
            let bio = self.bios.get(at);
            self.watch.step(at, bio, Step::Issued, now);
            bio.issued = now;
        }
        let merged = Merged { gaps: std::mem::take(&mut self.gaps), end: range.end, bios };
        let mut old = self.discards.merged.insert((device, range.sector), merged);
        if self.discards.merged.len() > MAX_REQUESTS {
            old = old.or_else(|| self.discards.merged.pop_first().map(|(_, merged)| merged));
        }
        // Their completion was lost, or too many are in the device.
        for one in old.into_iter().flat_map(|merged| merged.bios) {
            if is_there(self.bios.see(one.0), one) {
                self.give_up(one.0);
            }
        }
        true
    }

    /// Takes the ranges of a request that is completed or given back: the sectors of its first bios, and its other bios.
    fn take_merged(&mut self, range: Range) -> Option<(Vec<Range>, Vec<u32>)> {
        let key = (range.place.device(), range.sector);
        if self.discards.merged.get(&key)?.end != range.end {
            return None;
        }
        let merged = self.discards.merged.remove(&key)?;
        let (mut pieces, mut sector) = (Vec::new(), range.sector);
        for (begin, end) in merged.gaps {
            pieces.extend((sector < begin).then_some(Range { sector, end: begin, ..range }));
            sector = end;
        }
        pieces.extend((sector < range.end).then_some(Range { sector, ..range }));
        let there = merged.bios.into_iter().filter(|&one| is_there(self.bios.see(one.0), one)).map(|(at, _)| at);
        Some((pieces, there.collect()))
    }

    /// Whether a completion belongs to a request with several ranges; then all its bios are done.
    #[cold]
    pub(super) fn discards_done(&mut self, range: Range, error: i32, now: u64) -> bool {
        let Some((pieces, bios)) = self.take_merged(range) else { return false };
        pieces.into_iter().for_each(|piece| self.complete(piece, error, now));
        bios.into_iter().for_each(|at| self.take(at, now, error));
        true
    }

    /// Whether a request that the driver gave back has several ranges; then all its bios wait for their issue again.
    #[cold]
    pub(super) fn discards_requeued(&mut self, range: Range, now: u64) -> bool {
        let Some((pieces, bios)) = self.take_merged(range) else { return false };
        // Counted as one requeue.
        for (at, piece) in pieces.into_iter().enumerate() {
            let requeues = self.counts.requeues;
            self.requeued(piece, now);
            self.counts.requeues = if at == 0 { self.counts.requeues } else { requeues };
        }
        for at in bios {
            let bio = self.bios.get(at);
            self.watch.step(at, bio, Step::Requeued, now);
            bio.issued = NEVER;
            self.discard_queued(at);
        }
        true
    }
}
