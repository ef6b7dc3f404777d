//! Adds a report's data to a trace for Perfetto: slices with flows between them, and counters, on tracks of their own.
//!
//! Field numbers: `protos/perfetto/trace/track_event/track_event.proto` of Perfetto 59.1.

use super::perfetto::{PerfettoWritten, Writer, track};
use super::proto::fixed;
use crate::error::Error;
use crate::ids::TaskId;
use crate::trace::Trace;
use std::collections::HashMap;
use std::io::Write;

/// Largest number of tracks that a report adds.
const MAX_TRACKS: usize = 1 << 16;
/// Largest number of parallel lanes on one track; further slices are dropped and counted.
const MAX_LANES: usize = 1 << 10;

/// An annotation of a slice.
pub enum Note<'a> {
    Number(&'a str, u64),
    Text(&'a str, &'a str),
}

/// A slice; times are the trace's, in ns.
pub struct Slice<'a> {
    pub begin_ns: u64,
    pub end_ns: u64,
    pub category: &'a str,
    pub name: &'a str,
    pub notes: &'a [Note<'a>],
    /// Ids of the flows that begin here, and of those that end here.
    pub flows: &'a [u64],
    pub flows_end: &'a [u64],
}

/// Writer for a report's tracks.
pub struct PerfettoTracks<'w, 'a> {
    writer: &'w mut Writer<'a>,
    /// Track ids by parent and name.
    known: HashMap<(u64, String), u64>,
    /// The time at which each lane of a track becomes free.
    lanes: HashMap<u64, Vec<u64>>,
    left_out: u64,
}

/// Like [`super::perfetto`], followed by the tracks that `more` writes.
pub fn perfetto_with(
    trace: &Trace,
    out: &mut dyn Write,
    more: &mut dyn FnMut(&mut PerfettoTracks<'_, '_>) -> Result<(), Error>,
) -> Result<PerfettoWritten, Error> {
    let mut writer = Writer::new(trace, out);
    writer.all()?;
    let mut tracks = PerfettoTracks { writer: &mut writer, known: HashMap::new(), lanes: HashMap::new(), left_out: 0 };
    more(&mut tracks)?;
    let left_out = tracks.left_out;
    let mut written = writer.finish()?;
    written.left_out = left_out;
    Ok(written)
}

impl PerfettoTracks<'_, '_> {
    fn number(&mut self, parent: u64, name: &str) -> Option<(u64, bool)> {
        if let Some(&known) = self.known.get(&(parent, name.to_owned())) {
            return Some((known, false));
        }
        if self.known.len() >= MAX_TRACKS {
            return None;
        }
        let uuid = track::MORE | (self.known.len() as u64) << 16;
        self.known.insert((parent, name.to_owned()), uuid);
        Some((uuid, true))
    }

    /// Writes a slice on the track `path`, from the outermost group to the track's own name. Slices that overlap get lanes of their own.
    pub fn slice(&mut self, path: &[&str], slice: &Slice<'_>) {
        let mut parent = 0;
        for name in path {
            let Some((uuid, is_new)) = self.number(parent, name) else {
                self.left_out += 1;
                return;
            };
            if is_new {
                self.writer.declare(uuid, Some(parent).filter(|&uuid| uuid != 0), name, |_| {});
            }
            parent = uuid;
        }
        let lanes = self.lanes.entry(parent).or_default();
        let lane = match lanes.iter().position(|&free| free <= slice.begin_ns) {
            Some(lane) => lane,
            None if lanes.len() >= MAX_LANES => {
                self.left_out += 1;
                return;
            }
            None => {
                lanes.push(0);
                lanes.len() - 1
            }
        };
        lanes[lane] = slice.end_ns;
        let uuid = parent | (lane as u64 + 1);
        self.writer.declare(uuid, Some(parent), path.last().copied().unwrap_or_default(), |_| {});
        self.write(uuid, slice);
    }

    /// A slice on the track of a thread.
    pub fn of_thread(&mut self, tid: TaskId, slice: &Slice<'_>) {
        let uuid = self.writer.task(tid, slice.begin_ns);
        self.write(uuid, slice);
    }

    fn write(&mut self, uuid: u64, slice: &Slice<'_>) {
        let notes: Vec<_> = slice
            .notes
            .iter()
            .map(|note| match note {
                Note::Number(name, value) => super::perfetto::Note::Number(name, *value),
                Note::Text(name, value) => super::perfetto::Note::Text(name, value),
            })
            .collect();
        let (begins, ends) = (slice.flows, slice.flows_end);
        self.writer.begin(uuid, slice.begin_ns, slice.category, slice.name, &notes, |event| {
            // TrackEvent.flow_ids, terminating_flow_ids
            begins.iter().for_each(|&id| fixed(event, 47, id));
            ends.iter().for_each(|&id| fixed(event, 48, id));
        });
        self.writer.end(uuid, slice.end_ns.max(slice.begin_ns));
    }

    /// A value of a counter.
    pub fn counter(&mut self, name: &str, time_ns: u64, value: u64) {
        if let Some((uuid, _)) = self.number(u64::MAX, name) {
            self.writer.counter(uuid, name, time_ns, i64::try_from(value).unwrap_or(i64::MAX));
        }
    }
}
