//! Which page cache events a trace has. Read-ahead analyses need them.

use std::sync::Arc;

use super::file::{FileStep, plan};
use crate::ring::schema::Schema;

/// Kinds of page cache events in a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheShown {
    /// File reads: our own probes, or the kernel's event since 6.12.
    pub reads: bool,
    /// File writes, pages that become dirty, or calls that write.
    pub writes: bool,
    /// Events of writes that name the file.
    pub written_files: bool,
    /// Our own probe of such writes; below: the kernel's event of pages that become dirty.
    pub probed_writes: bool,
    pub dirtied: bool,
    /// Faults of mapped files.
    pub faults: bool,
    /// Pages that leave the cache.
    pub departures: bool,
}

impl CacheShown {
    pub const ALL: CacheShown = CacheShown {
        reads: true,
        writes: true,
        written_files: true,
        probed_writes: true,
        dirtied: true,
        faults: true,
        departures: true,
    };

    pub fn of<'a>(schemas: impl Iterator<Item = &'a Arc<Schema>>) -> CacheShown {
        let mut shown = CacheShown::default();
        for schema in schemas {
            let step = plan(schema).map(|plan| plan.step);
            shown.probed_writes |= step == Some(FileStep::Write);
            shown.dirtied |= step == Some(FileStep::Dirtied);
            match (step, schema.name.as_str()) {
                (Some(FileStep::Read), _) | (_, "mm_filemap_get_pages") => shown.reads = true,
                (Some(FileStep::Fault), _) | (_, "mm_filemap_fault") => shown.faults = true,
                (Some(FileStep::Uncached), _) => shown.departures = true,
                (Some(FileStep::Write | FileStep::WriteBegin | FileStep::Dirtied), _) => {
                    (shown.writes, shown.written_files) = (true, true)
                }
                (_, "sys_enter_write" | "sys_enter_pwrite64") => shown.writes = true,
                _ => {}
            }
        }
        shown
    }

    /// The kinds that either trace has.
    pub fn or(self, other: CacheShown) -> CacheShown {
        CacheShown {
            reads: self.reads || other.reads,
            writes: self.writes || other.writes,
            written_files: self.written_files || other.written_files,
            probed_writes: self.probed_writes || other.probed_writes,
            dirtied: self.dirtied || other.dirtied,
            faults: self.faults || other.faults,
            departures: self.departures || other.departures,
        }
    }
}
