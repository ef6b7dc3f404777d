//! Merges all lanes by time.

use super::lane::{Lane, Sink};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::io;

/// Passes every record of all lanes to `sink`, oldest first; at equal times in the order of the lanes. A lane whose times run backwards
/// keeps its own order.
pub(super) fn merge(lanes: &mut [Lane], sink: &mut impl Sink) -> io::Result<()> {
    let mut heads = BinaryHeap::with_capacity(lanes.len());
    for (i, lane) in lanes.iter_mut().enumerate() {
        if lane.start()? {
            heads.push(Reverse((lane.time, i)));
        }
    }
    let Some(Reverse((_, mut i))) = heads.pop() else { return Ok(()) };
    loop {
        // While this lane is the oldest, no other one is checked. A lane with a higher index is not the oldest at the other lane's time;
        // that time is not 0 then.
        let last = heads.peek().map_or(u64::MAX, |&Reverse((time, other))| time.saturating_sub(u64::from(i > other)));
        let lane = &mut lanes[i];
        let more = lane.hand_out(|time| time <= last, sink)?;
        if more {
            let Some(mut top) = heads.peek_mut() else { continue };
            let next = top.0.1;
            *top = Reverse((lane.time, i));
            i = next;
        } else {
            let Some(top) = heads.peek_mut() else { return Ok(()) };
            i = PeekMut::pop(top).0.1;
        }
    }
}
