//! blktrace's binary records: per-CPU files, streams, pipes.
//!
//! `blktrace` writes one file for each CPU (`NAME.blktrace.N`), or all CPUs into one pipe (`-o -`), as pieces of one CPU one after the
//! other. `blkparse -d` writes one stream in order of time. All become lanes, each in the order of its times, that are merged.

pub mod blkparse;

mod decode;
mod lane;
mod merge;
mod open;
mod record;
mod scan;

pub use open::files_of;
pub(crate) use open::{Found, find, find_all, of_memory, of_parts, sets};

use crate::decode::names::Names;
use crate::events::{Event, TimeNs};
use crate::formats::{Format, Reader};
use crate::ids::TaskId;
use crate::losses::{Loss, Losses};
use crate::pairs::Pair;
use crate::record::Record;
use crate::ring::Missed;
use crate::ring::schema::Schema;
use crate::source::{Beside, Source};
use decode::Typer;
use lane::{Counts, Lane, Part, Sink};
use record::{Raw, V8};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) const FORMAT: Format = Format {
    name: "blktrace, versions 7 and 8: per-CPU files, `blktrace -o -`, `blkparse -d`",
    read: "yes",
    written: "no",
    recognised_by: "0x65617407 or 0x65617408, either byte order",
    reader: Reader::Bytes { is: |head| record::kind(head).is_some(), open: open::of_input },
};

/// An opened trace.
#[derive(Debug)]
pub(crate) struct Log {
    sources: Vec<Part>,
    /// Schemas of records of version 7 and 8.
    schemas: [Arc<Schema>; 2],
    pub cpus: u32,
    /// The kernel's name of the clock; `blkparse` if a stream's times count from its beginning.
    pub clock: &'static str,
    /// Set when a pass meets a record before which others are missing.
    gap: Arc<AtomicBool>,
}

impl Log {
    fn run(&self, sink: &mut impl Sink) -> io::Result<Losses> {
        let mut losses = Losses::new();
        for sources in self.sources.chunk_by(|a, b| a.recording == b.recording) {
            let mut lanes: Vec<Lane> = sources.iter().map(|source| Lane::new(source, sources.len())).collect();
            merge::merge(&mut lanes, sink)?;
            for lane in &lanes {
                count_losses(&mut losses, lane.counts);
            }
        }
        let last = self.sources.last().map_or(0, |source| source.recording);
        losses.add(Loss::RecordingsJoined, u64::from(last));
        Ok(losses)
    }

    pub fn for_each<F: FnMut(&Event) + ?Sized>(&self, f: &mut F) -> io::Result<Losses> {
        let mut events = Events { typer: Typer::new(), f, gap: &self.gap };
        let mut losses = self.run(&mut events)?;
        events.typer.count(&mut losses);
        Ok(losses)
    }

    /// Every record, with its event if it has one.
    fn pairs(&self, f: &mut dyn FnMut(&Record<'_>, Option<&Event>)) -> io::Result<Losses> {
        let mut typer = Typer::new();
        let mut data = Vec::new();
        let mut losses = self.run(&mut |raw: &Raw<'_>| {
            let schema = &self.schemas[usize::from(raw.header.size() == record::HEADER_MAX)];
            decode::put_record(&mut data, raw);
            let record = Record {
                time: TimeNs(raw.header.time()),
                cpu: decode::cpu(raw),
                buffer: "",
                missed: match raw.missing {
                    0 => Missed::Nothing,
                    n => Missed::Events(u64::from(n)),
                },
                schema,
                data: &data,
            };
            f(&record, typer.event(raw));
        })?;
        typer.count(&mut losses);
        Ok(losses)
    }
}

impl Source for Log {
    fn clock(&self) -> &str {
        self.clock
    }

    fn cpus(&self) -> u32 {
        self.cpus
    }

    fn schemas(&self) -> Box<dyn Iterator<Item = &Arc<Schema>> + '_> {
        Box::new(self.schemas.iter())
    }

    /// The kernel does not number the events that it drops (`__blk_add_trace`); only blktrace's own output says how many there were.
    fn has_uncounted_drops(&self) -> bool {
        true
    }

    fn gap(&self) -> Option<Arc<AtomicBool>> {
        Some(Arc::clone(&self.gap))
    }

    /// Adds the process names in the kernel's notes.
    fn names(&self, names: &mut Names) {
        // After an error, the names that were read before it stay.
        let _ = self.run(&mut Notes { names, gap: &self.gap });
    }

    fn for_each_record(&self, f: &mut dyn FnMut(&Record<'_>)) -> io::Result<Losses> {
        self.pairs(&mut |record, _| f(record))
    }

    fn for_each_pair(&self, _beside: &Beside<'_>, f: &mut dyn FnMut(Pair<'_>)) -> io::Result<Losses> {
        self.pairs(&mut |record, event| f(Pair { record: Some(record), event }))
    }
}

/// Passes on the typed form of records.
struct Events<'f, F: ?Sized> {
    typer: Typer,
    f: &'f mut F,
    gap: &'f AtomicBool,
}

impl<F: FnMut(&Event) + ?Sized> Sink for Events<'_, F> {
    #[inline(always)]
    fn record(&mut self, raw: &Raw<'_>) {
        if raw.missing > 0 {
            self.gap.store(true, Ordering::Relaxed);
        }
        if let Some(event) = self.typer.event(raw) {
            (self.f)(event);
        }
    }
}

/// Collects process names from records.
struct Notes<'n> {
    names: &'n mut Names,
    gap: &'n AtomicBool,
}

impl Sink for Notes<'_> {
    #[inline(always)]
    fn record(&mut self, raw: &Raw<'_>) {
        if raw.missing > 0 {
            self.gap.store(true, Ordering::Relaxed);
        }
        if let Some(name) = decode::process(raw) {
            let tid = TaskId(raw.header.pid());
            // Another CPU may have earlier events of this task.
            let from = if self.names.knows(tid) { raw.header.time() } else { 0 };
            self.names.set(tid, from, name);
        }
    }
}

fn count_losses(losses: &mut Losses, counts: Counts) {
    let Counts { missing, backwards, odd_times, malformed, skipped, cut } = counts;
    losses.add(Loss::RecordsMissing, missing);
    losses.add(Loss::TimesBackwards, backwards);
    losses.add(Loss::TimesImpossible, odd_times);
    losses.add(Loss::RecordsMalformed, malformed);
    losses.add(Loss::BytesSkipped, skipped);
    losses.add(Loss::DataCut, cut);
}

/// The record version, as the facts state it.
fn version_of(version: u8) -> u8 {
    if version == V8 { 8 } else { 7 }
}
