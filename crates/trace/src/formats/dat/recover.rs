//! Reads a version 7 file that was cut before the options with the places of its CPU data. The sections before the options are found one
//! after the other, and each CPU's data by its contents.

use super::cursor::Cursor;
use super::option;
use crate::bytes::Endian;
use crate::input::Input;
use std::io;

/// Largest number of sections before the cut; trace-cmd writes a dozen.
const MAX_SECTIONS: usize = 4096;
/// Largest number of CPUs.
const MAX_CPUS: usize = 1024;

/// Ring buffer data whose table is missing.
pub(super) struct Found {
    pub offset: u64,
    /// CPU, offset, size. The CPU's number is its index; a CPU without data is not counted.
    pub cpus: Vec<(u32, u64, u64)>,
}

/// The first section of ring buffer data after `at`. Sections of instances follow it, but their names are lost.
pub(super) fn data(c: &Cursor<'_>, file: &Input, at: u64, page: u32) -> io::Result<Option<Found>> {
    let mut at = at;
    for _ in 0..MAX_SECTIONS {
        let mut head = [0; 16];
        if at.saturating_add(16) > c.size || file.fill_at(&mut head, at)? < 16 {
            return Ok(None);
        }
        let e = c.endian;
        let (id, flags, size) = (e.u16(&head, 0), e.u16(&head, 2).unwrap_or(0), e.u64(&head, 8).unwrap_or(0));
        if id == Some(option::BUFFER) {
            // The data is page-aligned.
            let begin = (at + 16).next_multiple_of(u64::from(page));
            let end = at.saturating_add(16).saturating_add(size).min(c.size);
            let cpus = if flags & 1 == 0 { flat(file, e, begin, end, page)? } else { packed(file, e, begin, end)? };
            return Ok(Some(Found { offset: at, cpus }));
        }
        at = at.saturating_add(16).saturating_add(size);
    }
    Ok(None)
}

/// Uncompressed: each CPU's sub-buffers follow those of the CPU before. A time that falls back begins the next CPU.
fn flat(file: &Input, e: Endian, begin: u64, end: u64, page: u32) -> io::Result<Vec<(u32, u64, u64)>> {
    let (mut cpus, mut last) = (Vec::<(u32, u64, u64)>::new(), u64::MAX);
    let mut at = begin;
    while at < end {
        let mut time = [0; 8];
        if file.fill_at(&mut time, at)? < 8 {
            break;
        }
        let time = e.u64(&time, 0).unwrap_or(0);
        let size = u64::from(page).min(end - at);
        let count = cpus.len();
        match cpus.last_mut() {
            Some((_, _, length)) if time >= last => *length += size,
            _ if count == MAX_CPUS => break,
            _ => cpus.push((count as u32, at, size)),
        }
        last = time;
        at += size;
    }
    Ok(cpus)
}

/// Compressed: for each CPU the number of its chunks, then for each chunk packed size, unpacked size and bytes.
fn packed(file: &Input, e: Endian, begin: u64, end: u64) -> io::Result<Vec<(u32, u64, u64)>> {
    let word = |at: u64| -> io::Result<Option<u32>> {
        let mut bytes = [0; 4];
        Ok(if at + 4 > end || file.fill_at(&mut bytes, at)? < 4 { None } else { e.u32(&bytes, 0) })
    };
    let (mut cpus, mut at) = (Vec::new(), begin);
    while cpus.len() < MAX_CPUS
        && let Some(chunks @ 1..) = word(at)?
    {
        let first = at;
        at += 4;
        for _ in 0..chunks {
            let Some(size) = word(at)? else { break };
            at = at.saturating_add(8).saturating_add(u64::from(size)).min(end);
        }
        cpus.push((cpus.len() as u32, first, at - first));
    }
    Ok(cpus)
}
