//! Assigns a completion to one of several requests at the same place, for traces that may miss events. The report decides in the same way
//! (`analysis/block/completing.rs`). If nothing decides, none of the requests gets an end.

use super::perfetto::{Key, Next, Writer};
use crate::events::block::RequestKind;
use crate::median::{RunningMedian, factor_from_usual, is_of_newer, is_overdue};

/// The request that a completion belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    Oldest,
    Newest,
    /// It belongs to the newest request, and the oldest one's completion was lost.
    NewestAndLost,
    EitherOfTwo,
}

impl Writer<'_> {
    /// Holds back a completion at a place with several requests in flight until the next event there. Returns whether it was held back.
    pub(super) fn contest(&mut self, key: Key, time: u64) -> bool {
        let several = self.in_flight.get(&key).is_some_and(|list| list.len() > 1);
        let is_flush = usize::from(key.1) == RequestKind::Flush as usize;
        if several && !is_flush {
            self.contested.insert(key, time);
        }
        several && !is_flush
    }

    /// Assigns an earlier completion at a place, after another event came there.
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
            // A thread that waits for its request makes the next one when the request completes.
            let waited = next == Next::Request(oldest.tid) && oldest.tid != newest.tid;
            return if completes || waited { Whose::Oldest } else { Whose::Newest };
        };
        let is_usual = |took: u64| factor_from_usual(took, usual) <= 2.0;
        let is_overdue = is_overdue(older, usual);
        if is_overdue && !completes {
            Whose::NewestAndLost
        } else if is_overdue || is_of_newer(older, newer, usual) {
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
