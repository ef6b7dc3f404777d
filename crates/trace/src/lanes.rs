//! Merges several sequences by time; each is read by a thread of its own, in bounded memory.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::mpsc::{Receiver, sync_channel};

/// Items in one batch of a reader thread, and bytes of their data: a line may have 64 KiB. Batches that a thread may be ahead.
const BATCH: usize = 512;
const BATCH_BYTES: usize = 64 << 10;
const BATCHES: usize = 4;

/// Hands the items of all lanes to `consume`, earliest first, with the index of the lane. At equal times the first lane comes first.
/// `produce` passes on one lane's items, in their order. `bytes`: what an item has on the heap. Returns what `produce` returned for each lane.
pub(crate) fn merge<S: Sync, T: Send, R: Send, E: Send>(
    lanes: &[S],
    produce: impl Fn(&S, &mut dyn FnMut(T)) -> Result<R, E> + Sync,
    (time, bytes): (impl Fn(&T) -> u64, impl Fn(&T) -> usize + Sync),
    mut consume: impl FnMut(usize, T),
) -> Result<Vec<R>, E> {
    let (produce, bytes) = (&produce, &bytes);
    std::thread::scope(|scope| {
        let mut threads = Vec::with_capacity(lanes.len());
        let mut batches = Vec::with_capacity(lanes.len());
        for lane in lanes {
            let (sender, receiver) = sync_channel::<Vec<T>>(BATCHES);
            threads.push(scope.spawn(move || {
                let (mut batch, mut held) = (Vec::with_capacity(BATCH), 0);
                let result = produce(lane, &mut |item| {
                    held += bytes(&item);
                    batch.push(item);
                    if batch.len() == BATCH || held >= BATCH_BYTES {
                        held = 0;
                        // A send fails only if the receiver has stopped reading.
                        let _ = sender.send(std::mem::replace(&mut batch, Vec::with_capacity(BATCH)));
                    }
                });
                let _ = sender.send(batch);
                result
            }));
            batches.push(Batches { receiver, batch: Vec::new().into_iter() });
        }
        let mut next: Vec<Option<T>> = batches.iter_mut().map(Batches::next).collect();
        let mut heads: BinaryHeap<_> =
            next.iter().enumerate().filter_map(|(i, item)| Some(Reverse((time(item.as_ref()?), i)))).collect();
        while let Some(Reverse((_, i))) = heads.pop() {
            if let Some(item) = next[i].take() {
                consume(i, item);
            }
            next[i] = batches[i].next();
            if let Some(item) = &next[i] {
                heads.push(Reverse((time(item), i)));
            }
        }
        let results = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|e| std::panic::resume_unwind(e)));
        results.collect()
    })
}

/// The receiving side of one reader thread's batches.
struct Batches<T> {
    receiver: Receiver<Vec<T>>,
    batch: std::vec::IntoIter<T>,
}

impl<T> Batches<T> {
    fn next(&mut self) -> Option<T> {
        loop {
            if let Some(item) = self.batch.next() {
                return Some(item);
            }
            self.batch = self.receiver.recv().ok()?.into_iter();
        }
    }
}
