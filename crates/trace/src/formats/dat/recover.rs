//! A file of version 7 that was cut before the options that say where its CPU data lies: the sections in front of them are
//! found one behind the other, and the data of each CPU by what it is made of.

use super::cursor::Cursor;
use super::option;
use crate::bytes::Endian;
use crate::input::Input;
use std::io;

/// Sections in front of the cut: trace-cmd writes a dozen.
const MAX_SECTIONS: usize = 4096;
/// CPUs whose data is distinguished.
const MAX_CPUS: usize = 1024;

/// Ring-buffer data whose table is not in the file.
pub(super) struct Found {
    pub offset: u64,
    /// CPU, offset, size. A CPU's number is its place: one that recorded nothing is not counted.
    pub cpus: Vec<(u32, u64, u64)>,
}

/// The first section of ring-buffer data behind `at`: those of instances follow it, and have no name any more.
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
            // The data begins at a whole page.
            let begin = (at + 16).next_multiple_of(u64::from(page));
            let end = at.saturating_add(16).saturating_add(size).min(c.size);
            let cpus = if flags & 1 == 0 { flat(file, e, begin, end, page)? } else { packed(file, e, begin, end)? };
            return Ok(Some(Found { offset: at, cpus }));
        }
        at = at.saturating_add(16).saturating_add(size);
    }
    Ok(None)
}

/// Sub-buffers of one CPU behind those of another: a CPU's times run forwards.
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

/// Each CPU has the number of its chunks, and then these: packed size, unpacked size, bytes.
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
