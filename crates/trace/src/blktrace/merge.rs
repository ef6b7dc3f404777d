//! All lanes in order of time.

use super::lane::Lane;
use super::record::Raw;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::io;

/// Hands every record of all lanes to `f`, oldest first; of one time, in the order of the lanes. A lane whose times run
/// backwards keeps its own order.
pub(super) fn merge(lanes: &mut [Lane], mut f: impl FnMut(&Raw<'_>)) -> io::Result<()> {
    let mut heads = BinaryHeap::with_capacity(lanes.len());
    for (i, lane) in lanes.iter_mut().enumerate() {
        if lane.start()? {
            heads.push(Reverse((lane.head.time, i)));
        }
    }
    let Some(Reverse((_, mut i))) = heads.pop() else { return Ok(()) };
    loop {
        // As long as this lane is the oldest, no other has to be looked at.
        let until = heads.peek().map_or((u64::MAX, usize::MAX), |Reverse(next)| *next);
        let lane = &mut lanes[i];
        let more = loop {
            f(&lane.raw());
            if !lane.advance()? {
                break false;
            }
            if (lane.head.time, i) > until {
                break true;
            }
        };
        if more {
            let Some(mut top) = heads.peek_mut() else { continue };
            let next = top.0.1;
            *top = Reverse((lane.head.time, i));
            i = next;
        } else {
            let Some(top) = heads.peek_mut() else { return Ok(()) };
            i = PeekMut::pop(top).0.1;
        }
    }
}
