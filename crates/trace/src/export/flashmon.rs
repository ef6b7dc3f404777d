//! Writes a trace as Flashmon's temporal log or spatial view.

use crate::bytes::until_nul;
use crate::decode::{ASSUMED_PAGES_PER_BLOCK, Geometry};
use crate::error::Error;
use crate::events::{EventKind, FlashOp};
use crate::formats::flashmon::{BlockCounts, Kind, MAX_BLOCKS};
use crate::trace::Trace;
use std::io::Write;

/// Counts of an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    pub lines: u64,
    /// Operations of other chips, which are left out: Flashmon's formats have one chip.
    pub other_chips: u64,
    /// Operations on blocks above the limit of a spatial view (1,048,576 blocks).
    pub beyond: u64,
}

fn pages_per_block(trace: &Trace) -> u64 {
    Geometry::from_facts(trace.facts()).pages_per_block.unwrap_or(ASSUMED_PAGES_PER_BLOCK)
}

/// Writes the flash operations of one chip as Flashmon's temporal log, with the trace's times.
pub fn write_log(trace: &Trace, chip: u16, out: &mut dyn Write) -> Result<Written, Error> {
    let per_block = pages_per_block(trace);
    let mut written = Written::default();
    let mut failed = None;
    trace.for_each(&mut |event| {
        let EventKind::Flash(access) = &event.kind else { return };
        if access.chip != chip {
            written.other_chips += 1;
            return;
        }
        if failed.is_some() {
            return;
        }
        let address = match access.op {
            FlashOp::Erase => access.page / per_block,
            _ => access.page,
        };
        let comm = trace.comm(event.tid, event.time).unwrap_or("<...>");
        let (seconds, nanoseconds) = (event.time.0 / 1_000_000_000, event.time.0 % 1_000_000_000);
        let letter = char::from(Kind::Flash(access.op).letter());
        let line = write!(out, "{seconds}.{nanoseconds:09};{letter};{address};")
            .and_then(|()| writeln!(out, "{}", one_field(comm)));
        match line {
            Ok(()) => written.lines += 1,
            Err(e) => failed = Some(e),
        }
    })?;
    match failed.map_or_else(|| out.flush(), Err) {
        Ok(()) => Ok(written),
        Err(e) => Err(Error::io(trace.path(), "write the export of", e)),
    }
}

/// Writes the counts of each block of one chip as Flashmon's spatial view.
pub fn write_spatial(trace: &Trace, chip: u16, out: &mut dyn Write) -> Result<Written, Error> {
    let per_block = pages_per_block(trace);
    let mut blocks = vec![BlockCounts::default(); chip_blocks(trace, chip).min(MAX_BLOCKS)];
    let mut written = Written::default();
    trace.for_each(&mut |event| {
        let EventKind::Flash(access) = &event.kind else { return };
        let block = access.page / per_block;
        if access.chip != chip {
            written.other_chips += 1;
            return;
        }
        if block >= MAX_BLOCKS as u64 {
            written.beyond += 1;
            return;
        }
        let block = block as usize;
        if blocks.len() <= block {
            blocks.resize(block + 1, BlockCounts::default());
        }
        match access.op {
            FlashOp::Read => blocks[block].reads += 1,
            FlashOp::Program => blocks[block].writes += 1,
            FlashOp::Erase => blocks[block].erases += 1,
        }
    })?;
    for b in &blocks {
        writeln!(out, "{} {} {}", b.reads, b.writes, b.erases)
            .map_err(|e| Error::io(trace.path(), "write the export of", e))?;
        written.lines += 1;
    }
    out.flush().map_err(|e| Error::io(trace.path(), "write the export of", e))?;
    Ok(written)
}

/// The number of a chip's blocks, from the facts: its partitions extend to its end.
fn chip_blocks(trace: &Trace, chip: u16) -> usize {
    let of_chip = trace.facts().mtd.iter().filter(|mtd| mtd.chip.unwrap_or(0) == u64::from(chip));
    of_chip
        .filter_map(|mtd| mtd.offset.unwrap_or(0).checked_add(mtd.size?)?.checked_div(mtd.erasesize?))
        .max()
        .map_or(0, |n| usize::try_from(n).unwrap_or(usize::MAX))
}

/// A task's name, made fit for the last field of a line.
fn one_field(comm: &str) -> String {
    let comm = String::from_utf8_lossy(until_nul(comm.as_bytes())).into_owned();
    comm.chars().map(|c| if c.is_control() || c == ';' || c == ',' { '?' } else { c }).collect()
}
