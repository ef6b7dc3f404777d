//! What each format gives of a trace's events.

use crate::decode::names::Names;
use crate::decode::reads::Reads;
use crate::decode::{Disks, Geometry, Typer};
use crate::events::phase::Phases;
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
use std::sync::atomic::AtomicBool;

/// An opened trace of one format. Its events are gone through as often as one likes.
pub(crate) trait Source: Any + Debug + Send + Sync {
    /// The kernel's name of the clock.
    fn clock(&self) -> &str;

    /// CPUs of the recorded machine.
    fn cpus(&self) -> u32;

    /// The formats of its events.
    fn schemas(&self) -> Box<dyn Iterator<Item = &Arc<Schema>> + '_>;

    /// Whether what is missing is counted, as far as the format goes.
    fn counts_missing(&self) -> bool {
        true
    }

    /// Whether events may be missing that nothing in the trace counts.
    fn has_uncounted_drops(&self) -> bool {
        false
    }

    /// Set once a pass has met a record behind others that are missing, where records are numbered.
    fn gap(&self) -> Option<Arc<AtomicBool>> {
        None
    }

    /// Adds names of tasks that only its events have.
    fn names(&self, _names: &mut Names) {}

    /// Lets so many threads read ahead, where it can be read so.
    fn set_threads(&mut self, _threads: usize) {}

    /// Hands every record to `f`, oldest first, and says what was lost in decoding.
    fn for_each_record(&self, f: &mut dyn FnMut(&Record<'_>)) -> io::Result<Losses>;

    /// Hands every record with its event to `f`, and what stands beside the records.
    fn for_each_pair(&self, beside: &Beside<'_>, f: &mut dyn FnMut(Pair<'_>)) -> io::Result<Losses> {
        let mut reads = beside.reads.cursor();
        let mut phases = PhaseEvents::new(beside.phases);
        let mut typer = Typer::new(beside.geometry.clone(), Disks::of_facts(beside.facts));
        typer.declare(self.schemas());
        let mut losses = self.for_each_record(&mut |record| {
            phases.before(record.time, &mut |event| f(Pair { record: None, event: Some(event) }));
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

/// What opening a file finds.
pub(crate) struct Opened {
    pub kind: TraceKind,
    pub source: Box<dyn Source>,
    /// What was known about the machine and the recorder; null where there is nothing.
    pub facts: Value,
    /// The kernel's counts at the end of the recording.
    pub stats: Value,
    pub phases: Phases,
    /// What was lost before the events were decoded.
    pub losses: Losses,
    pub names: Names,
}

impl Opened {
    /// Without facts, statistics, phases, losses and names.
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

/// What a trace has beside its records.
pub(crate) struct Beside<'a> {
    pub geometry: Geometry,
    pub facts: &'a Value,
    /// Reads of files that no record of ours has.
    pub reads: &'a Reads,
    pub phases: &'a Phases,
}
