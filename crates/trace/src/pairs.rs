//! Records and their typed form side by side: what exports with both need.

use crate::decode::reads::Reads;
use crate::decode::{Geometry, Typer};
use crate::error::Error;
use crate::events::{Event, TimeNs};
use crate::losses::{Loss, Losses};
use crate::record::Record;
use crate::trace::{Body, PhaseEvents, Trace};

/// A record, its event, or both.
#[derive(Clone, Copy, Debug)]
pub struct Pair<'a> {
    /// `None` for phases and marks, which were never in a ring.
    pub record: Option<&'a Record<'a>>,
    /// `None` where a record has no typed form (a return without its beginning, a record that is too short).
    pub event: Option<&'a Event>,
}

impl Pair<'_> {
    pub fn time(&self) -> TimeNs {
        self.record.map(|r| r.time).or(self.event.map(|e| e.time)).unwrap_or(TimeNs(0))
    }

    pub fn cpu(&self) -> u16 {
        self.record.map(|r| r.cpu).or(self.event.map(|e| e.cpu)).unwrap_or(0)
    }

    pub fn tid(&self) -> u32 {
        self.event.map(|e| e.tid).or(self.record.map(Record::tid)).unwrap_or(0)
    }
}

impl Trace {
    /// Hands every record with its event to `f`, oldest first, and phases among them. What it borrows is valid during the
    /// call only.
    pub fn for_each_pair(&self, f: &mut dyn FnMut(Pair<'_>)) -> Result<(), Error> {
        self.pairs(&Reads::default(), f)
    }

    /// As [`Trace::for_each_pair`], and reads of files beside them that only `mm_filemap_get_pages` shows, as events without a record.
    pub fn for_each_access(&self, f: &mut dyn FnMut(Pair<'_>)) -> Result<(), Error> {
        self.pairs(self.reads(), f)
    }

    fn pairs(&self, reads: &Reads, f: &mut dyn FnMut(Pair<'_>)) -> Result<(), Error> {
        let mut reads = reads.cursor();
        let mut phases = PhaseEvents::new(&self.phases);
        let decoded = match &self.body {
            Body::Ring(ring) => {
                let mut typer = Typer::new(Geometry::from_facts(self.facts()));
                typer.declare(ring.schemas.iter());
                let mut losses = self.run(ring, |record| {
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
                losses
            }
            Body::Flashmon(log) => {
                log.for_each_pair(f).map_err(|e| Error::io(&self.path, "read", e))?;
                Losses::new()
            }
            Body::Blktrace(log) => log
                .for_each_pair(&mut |record, event| f(Pair { record: Some(record), event }))
                .map_err(|e| Error::io(&self.path, "read", e))?,
            Body::Parsed(log) => {
                let mut typer = Typer::new(Geometry::default());
                typer.declare(log.schemas().iter());
                let walk = &mut |record: &Record<'_>| {
                    reads.around(record, &mut |read| match read {
                        Some(_) => f(Pair { record: None, event: read }),
                        None => {
                            let event = typer.event(record.time.0, record.cpu, record.schema, record.data);
                            f(Pair { record: Some(record), event });
                        }
                    });
                };
                let repeated = log.for_each_record(walk).map_err(|e| Error::io(&self.path, "read", e))?;
                let mut losses = typer.finish();
                losses.add(Loss::EventsRepeated, repeated);
                losses
            }
        };
        phases.rest(&mut |event| f(Pair { record: None, event: Some(event) }));
        self.set_losses(&decoded);
        Ok(())
    }
}
