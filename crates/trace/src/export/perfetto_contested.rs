//! Of which of several requests at one place a completion is, where the trace may miss events: as the report decides it
//! (`analysis/block/completing.rs`). Where nothing says it, none of them has an end.

use super::perfetto::{Key, Next, Writer};
use crate::events::block::RequestKind;
use crate::median::RunningMedian;

/// How much nearer to the usual time the newest one's has to be, as a factor.
const NEARER: f64 = 1.3;
/// How many times longer than usual a request is in the device until its completion is taken for lost.
const OVERDUE: u64 = 4;

/// Whose a completion is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    Oldest,
    Newest,
    /// The newest one's, and the oldest one's was lost.
    NewestAndLost,
    EitherOfTwo,
}

impl Writer<'_> {
    /// A completion at a place where several requests are in flight waits for what comes there next: whether it does.
    pub(super) fn contest(&mut self, key: Key, time: u64) -> bool {
        let several = self.in_flight.get(&key).is_some_and(|list| list.len() > 1);
        let is_flush = usize::from(key.1) == RequestKind::Flush as usize;
        if several && !is_flush {
            self.contested.insert(key, time);
        }
        several && !is_flush
    }

    /// Decides whose an earlier completion at a place is, now that something else came there.
    pub(super) fn decide_contested(&mut self, key: Key, next: Next) {
        let Some(time) = self.contested.remove(&key) else { return };
        match self.whose(key, time, next) {
            Whose::Newest => self.ended(key, time),
            Whose::NewestAndLost => {
                self.ended(key, time);
                let Some(oldest) = self.in_flight.get_mut(&key).map(|list| list.remove(0)) else { return };
                self.drop_empty(key);
                self.one_less(key.0, time);
                self.in_flight_all -= 1;
                self.request(key.0, &oldest, None);
            }
            Whose::Oldest => {
                if let Some(list) = self.in_flight.get_mut(&key) {
                    list.rotate_left(1);
                }
                self.ended(key, time);
            }
            Whose::EitherOfTwo => {
                let Some(list) = self.in_flight.get_mut(&key) else { return };
                let newest = list.pop();
                let oldest = (!list.is_empty()).then(|| list.remove(0));
                self.drop_empty(key);
                self.one_less(key.0, time);
                for request in oldest.into_iter().chain(newest) {
                    self.in_flight_all -= 1;
                    self.request(key.0, &request, None);
                }
            }
        }
    }

    fn whose(&self, key: Key, time: u64, next: Next) -> Whose {
        let completes = next == Next::Completion;
        let list = self.in_flight.get(&key).map_or(&[][..], |list| &list[..]);
        let ([oldest, .., newest], Some(queue)) = (list, self.devices.get(&key.0)) else { return Whose::Newest };
        let (older, newer) = (time.saturating_sub(oldest.time), time.saturating_sub(newest.time));
        let Some(usual) = RunningMedian::of_kind(&queue.took, usize::from(key.1)) else {
            // A thread that waits for its request makes the next one when it is done.
            let waited = next == Next::Request(oldest.tid) && oldest.tid != newest.tid;
            return if completes || waited { Whose::Oldest } else { Whose::Newest };
        };
        let off = |took: u64| {
            let ratio = took.max(1) as f64 / usual.max(1) as f64;
            ratio.max(1.0 / ratio)
        };
        let is_usual = |took: u64| off(took) <= 2.0;
        let is_overdue = older > OVERDUE.saturating_mul(usual);
        if is_overdue && !completes {
            Whose::NewestAndLost
        } else if is_overdue || off(newer) * NEARER < off(older) {
            Whose::Newest
        } else if !completes
            && (oldest.tid == newest.tid || is_usual(older) && is_usual(newer) && older - newer < usual)
        {
            Whose::EitherOfTwo
        } else {
            Whose::Oldest
        }
    }
}
