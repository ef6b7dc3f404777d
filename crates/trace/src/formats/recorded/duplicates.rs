//! Finds events that two buffers (instances) of one trace both have: they count once.
//!
//! An event that is enabled in two instances is written to each in turn, on one CPU. Both records have equal bytes (type, flags, thread and
//! fields); their times differ by the duration of the write. Two equal records of *different* buffers within [`NEAR_NS`] are one event. Two
//! records of one buffer are two events.

use crate::record::Record;
use foldhash::HashMap;
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};

/// A write to a buffer takes less than a microsecond; an interrupt may come in between.
const NEAR_NS: u64 = 100_000;
/// Largest number of kept records per CPU; a CPU does not write more within that time.
const MAX_RECENT: usize = 4096;
/// Largest number of buffers; records of further buffers are all kept.
const MAX_BUFFERS: usize = 64;

struct Recent {
    time: u64,
    hash: u64,
    /// Bit mask of the buffers that have the record.
    buffers: u64,
}

#[derive(Default)]
pub(crate) struct Duplicates {
    cpus: HashMap<u16, VecDeque<Recent>>,
    names: Vec<String>,
    pub count: u64,
}

impl Duplicates {
    /// Whether another buffer had this record before, which is counted. Call it in order of time.
    pub fn is_one(&mut self, record: &Record<'_>) -> bool {
        let Some(bit) = self.bit(record.buffer) else { return false };
        let mut hasher = DefaultHasher::new();
        record.data.hash(&mut hasher);
        let (time, hash) = (record.time.0, hasher.finish());
        let recent = self.cpus.entry(record.cpu).or_default();
        while recent.len() >= MAX_RECENT || recent.front().is_some_and(|one| one.time.saturating_add(NEAR_NS) < time) {
            recent.pop_front();
        }
        match recent.iter_mut().find(|one| one.hash == hash && one.buffers & bit == 0) {
            Some(one) => {
                one.buffers |= bit;
                self.count += 1;
                true
            }
            None => {
                recent.push_back(Recent { time, hash, buffers: bit });
                false
            }
        }
    }

    fn bit(&mut self, name: &str) -> Option<u64> {
        let at = self.names.iter().position(|known| known == name).unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        });
        (at < MAX_BUFFERS).then(|| 1 << at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::Endian;
    use crate::events::TimeNs;
    use crate::ring::Missed;
    use crate::ring::schema::Schema;

    /// Which of these records (time, CPU, buffer, bytes) are there before.
    fn copies(records: &[(u64, u16, &'static str, &'static [u8])]) -> Vec<bool> {
        let schema = Schema::unknown(Endian::Little);
        let mut duplicates = Duplicates::default();
        let record = |&(time, cpu, buffer, data)| Record {
            time: TimeNs(time),
            cpu,
            buffer,
            missed: Missed::Nothing,
            schema: &schema,
            data,
        };
        records.iter().map(|one| duplicates.is_one(&record(one))).collect()
    }

    #[test]
    fn one_event_of_several_buffers_is_one() {
        let records: &[(u64, u16, &str, &[u8])] = &[
            (1000, 0, "", b"queue 8"),
            (1200, 0, "a", b"queue 8"),
            (1300, 0, "b", b"queue 8"),
            // The same again in all of them, before the last buffer has had the first.
            (1400, 0, "", b"wakes 7"),
            (1500, 0, "", b"wakes 7"),
            (1600, 0, "a", b"wakes 7"),
            (1700, 0, "a", b"wakes 7"),
        ];
        assert_eq!(copies(records), [false, true, true, false, false, true, true]);
    }

    #[test]
    fn another_buffers_own_events_are_kept() {
        let records: &[(u64, u16, &str, &[u8])] = &[
            (1000, 0, "", b"queue 8"),
            // Another CPU's; another one's bytes; the same much later.
            (1100, 1, "a", b"queue 8"),
            (1200, 0, "a", b"queue 9"),
            (500_000, 0, "a", b"queue 8"),
        ];
        assert_eq!(copies(records), [false; 4]);
    }
}
