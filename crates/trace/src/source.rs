//! The interface between an input format and [`crate::Trace`].

use crate::decode::commands::{Commands, Translator};
use crate::decode::names::Names;
use crate::decode::reads::Reads;
use crate::decode::{Disks, Geometry, Typer};
use crate::events::phase::Phases;
use crate::events::{Event, EventKind};
use crate::kind::TraceKind;
use crate::losses::Losses;
use crate::pairs::{Pair, PhaseEvents};
use crate::record::Record;
use crate::ring::schema::Schema;
use serde_json::Value;
use std::any::Any;
use std::fmt::Debug;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// An opened trace of one format. Its events can be read any number of times.
pub(crate) trait Source: Any + Debug + Send + Sync {
    /// The kernel's name of the clock.
    fn clock(&self) -> &str;

    /// CPUs of the recorded machine.
    fn cpus(&self) -> u32;

    /// The formats of its events.
    fn schemas(&self) -> Box<dyn Iterator<Item = &Arc<Schema>> + '_>;

    /// Whether the format counts missing events.
    fn counts_missing(&self) -> bool {
        true
    }

    /// Whether events may be missing that the trace does not count.
    fn has_uncounted_drops(&self) -> bool {
        false
    }

    /// A flag that is set when a pass meets a record before which others are missing; `None` for formats without numbered records.
    fn gap(&self) -> Option<Arc<AtomicBool>> {
        None
    }

    /// How many further recordings the current pass has met; `None` for formats that do not show where one begins.
    fn recordings(&self) -> Option<Arc<AtomicU64>> {
        None
    }

    /// Whether a further recording begins at an earlier time than the latest one before it.
    fn recordings_fall_back(&self) -> bool {
        false
    }

    /// Adds task names that only the events have.
    fn names(&self, _names: &mut Names) {}

    /// Sets the number of threads that read ahead, for formats that can be read so.
    fn set_threads(&mut self, _threads: usize) {}

    /// Hands every record to `f`, oldest first. Returns the losses of decoding.
    fn for_each_record(&self, f: &mut dyn FnMut(&Record<'_>)) -> io::Result<Losses>;

    /// Hands every record with its event to `f`, and the items of `beside` between them.
    fn for_each_pair(&self, beside: &Beside<'_>, f: &mut dyn FnMut(Pair<'_>)) -> io::Result<Losses> {
        let mut reads = beside.reads.cursor();
        let mut phases = PhaseEvents::new(beside.phases);
        let mut typer = Typer::new(
            beside.geometry.clone(),
            Disks::of_facts(beside.facts),
            beside.commands.and_then(Translator::new),
        );
        typer.declare(self.schemas());
        let (recordings, mut met) = (self.recordings(), 0);
        let mut losses = self.for_each_record(&mut |record| {
            phases.before(record.time, &mut |event| f(Pair { record: None, event: Some(event) }));
            if let Some(recordings) = &recordings
                && recordings.load(Ordering::Relaxed) > met
            {
                met = recordings.load(Ordering::Relaxed);
                typer.recording_begins();
                reads.recording_begins();
                let event = Event { time: record.time, cpu: record.cpu, tid: record.tid(), kind: EventKind::Recording };
                f(Pair { record: None, event: Some(&event) });
            }
            reads.around(record, &mut |read| match read {
                Some(_) => f(Pair { record: None, event: read }),
                None => {
                    let event = typer.event(record.time.0, record.cpu, record.schema, record.data);
                    f(Pair { record: Some(record), event });
                }
            });
        })?;
        losses.merge(&typer.finish());
        phases.rest(&mut |event| f(Pair { record: None, event: Some(event) }));
        Ok(losses)
    }
}

/// The result of opening a file.
pub(crate) struct Opened {
    pub kind: TraceKind,
    pub source: Box<dyn Source>,
    /// Facts about the machine and the recorder; null if there are none.
    pub facts: Value,
    /// The kernel's counts at the end of the recording.
    pub stats: Value,
    pub phases: Phases,
    /// Losses before the events were decoded.
    pub losses: Losses,
    pub names: Names,
}

impl Opened {
    /// An opened trace without facts, statistics, phases, losses and names.
    pub fn of(kind: TraceKind, source: impl Source + 'static) -> Opened {
        Opened {
            kind,
            source: Box::new(source),
            facts: Value::Null,
            stats: Value::Null,
            phases: Phases::default(),
            losses: Losses::new(),
            names: Names::default(),
        }
    }
}

/// What a trace has besides its records.
pub(crate) struct Beside<'a> {
    pub geometry: Geometry,
    pub facts: &'a Value,
    /// File reads that no record of our probes shows.
    pub reads: &'a Reads,
    pub phases: &'a Phases,
    /// Drivers' commands, where no step of the block layer is in the trace.
    pub commands: Option<&'a Commands>,
}
