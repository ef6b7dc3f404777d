//! The places of a lane's sub-buffers in a stream file, packed to a few bytes each. Above a limit they go to a temporary file.

use crate::bytes::put_varint as put;
use crate::input::Input;
use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;

/// Byte ranges of a file that contain only data frames of one lane, in file order.
#[derive(Debug, Default)]
pub(crate) struct RunIndex {
    /// Offset and length of each part in the temporary file, oldest first.
    spilled: Vec<(u64, u32)>,
    spill: Option<Arc<Input>>,
    /// Pairs of varints: distance from the end of the previous run, and length of the run.
    packed: Vec<u8>,
    packed_end: u64,
    run: Option<(u64, u64)>,
    /// Number of sub-buffers in all runs.
    pub pages: u64,
    /// Bytes in all sub-buffers.
    pub bytes: u64,
    /// Size of the largest frame.
    pub largest: u64,
}

impl RunIndex {
    /// Adds a frame of `size` bytes at `at`; frames come in file order. Returns the growth of the index in memory.
    pub fn push(&mut self, at: u64, size: u64) -> usize {
        self.pages += 1;
        self.bytes += size;
        self.largest = self.largest.max(size);
        match &mut self.run {
            Some((_, end)) if *end == at => {
                *end += size;
                0
            }
            _ => {
                let before = self.packed.len();
                self.flush();
                self.run = Some((at, at + size));
                self.packed.len() - before
            }
        }
    }

    fn flush(&mut self) {
        if let Some((begin, end)) = self.run.take() {
            put(&mut self.packed, begin - self.packed_end);
            put(&mut self.packed, end - begin);
            self.packed_end = end;
        }
    }

    /// Bytes in memory.
    pub fn memory(&self) -> usize {
        self.packed.len()
    }

    /// Moves the index from memory to the temporary file. Returns the number of bytes.
    pub fn spill(&mut self, into: &mut Spill) -> io::Result<usize> {
        let size = self.packed.len();
        if size > 0 {
            self.spilled.push((into.at, size as u32));
            into.write(&self.packed)?;
            self.packed = Vec::new();
        }
        Ok(size)
    }

    /// Call it after the last `push`, with the temporary file if there is one.
    pub fn seal(&mut self, spill: Option<&Arc<Input>>) {
        self.flush();
        self.packed.shrink_to_fit();
        self.spill = spill.filter(|_| !self.spilled.is_empty()).cloned();
    }

    /// The next run. A cursor begins with its default value.
    pub fn next(&self, cursor: &mut RunCursor) -> io::Result<Option<(u64, u64)>> {
        let pair = match (&self.spill, self.spilled.get(cursor.part)) {
            (Some(spill), Some(&part)) => self.next_spilled(spill, part, cursor)?,
            _ => pair(&self.packed, &mut cursor.at),
        };
        let Some((gap, length)) = pair else { return Ok(None) };
        let begin = cursor.end + gap;
        cursor.end = begin + length;
        Ok(Some((begin, cursor.end)))
    }

    fn next_spilled(&self, spill: &Input, part: (u64, u32), cursor: &mut RunCursor) -> io::Result<Option<(u64, u64)>> {
        let (offset, length) = part;
        // Two varints have at most 20 bytes; a part ends between pairs.
        if cursor.window.len() - cursor.in_window < 20 && cursor.at < length as usize {
            let want = (length as usize - cursor.at).min(WINDOW);
            cursor.window.resize(want, 0);
            spill.read_exact_at(&mut cursor.window, offset + cursor.at as u64)?;
            cursor.in_window = 0;
        }
        let before = cursor.in_window;
        let found = pair(&cursor.window, &mut cursor.in_window);
        cursor.at += cursor.in_window - before;
        if cursor.at >= length as usize || found.is_none() {
            cursor.part += 1;
            cursor.at = 0;
            cursor.in_window = 0;
            cursor.window = Vec::new();
        }
        Ok(found)
    }
}

/// Bytes of the temporary file that a cursor buffers.
const WINDOW: usize = 1024;

#[derive(Clone, Debug, Default)]
pub(crate) struct RunCursor {
    part: usize,
    /// Position in the part, or in the index in memory.
    at: usize,
    window: Vec<u8>,
    in_window: usize,
    end: u64,
}

/// The temporary file of one session. It has no name, so it is gone when the process ends.
#[derive(Debug)]
pub(crate) struct Spill {
    file: File,
    at: u64,
}

impl Spill {
    pub fn create() -> io::Result<Spill> {
        Ok(Spill { file: flashscope_output::temporary(&std::env::temp_dir())?, at: 0 })
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    pub fn into_input(self) -> Arc<Input> {
        Arc::new(Input::File(self.file))
    }
}

fn pair(bytes: &[u8], at: &mut usize) -> Option<(u64, u64)> {
    Some((take(bytes, at)?, take(bytes, at)?))
}

fn take(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let (mut value, mut shift) = (0u64, 0);
    loop {
        let b = *bytes.get(*at)?;
        *at += 1;
        value |= u64::from(b & 0x7f) << shift;
        if b & 0x80 == 0 {
            return Some(value);
        }
        shift += 7;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(index: &RunIndex) -> Vec<(u64, u64)> {
        let mut c = RunCursor::default();
        std::iter::from_fn(|| index.next(&mut c).unwrap()).collect()
    }

    #[test]
    fn runs_come_back_joined() {
        let mut i = RunIndex::default();
        for (at, size) in [(10, 5), (15, 5), (1000, 1), (1 << 40, 300), ((1 << 40) + 300, 7)] {
            i.push(at, size);
        }
        i.seal(None);
        assert_eq!(runs(&i), [(10, 20), (1000, 1001), (1 << 40, (1 << 40) + 307)]);
        assert_eq!(i.pages, 5);
        assert!(i.packed.len() < 16);
    }

    #[test]
    fn runs_come_back_from_the_temporary_file() {
        for every in [1, 2, 3, 500, 5000] {
            let mut spill = Spill::create().unwrap();
            let (mut a, mut b) = (RunIndex::default(), RunIndex::default());
            let mut want = vec![];
            let mut at = 0;
            for i in 0..9000u64 {
                at += 1 + (i % 7) * (i % 11) * 1000;
                a.push(at, 24);
                want.push((at, at + 24));
                at += 24;
                b.push(at, 100);
                at += 100;
                if i % every == every - 1 {
                    a.spill(&mut spill).unwrap();
                    assert_eq!(a.memory(), 0);
                }
                if i == 77 {
                    b.spill(&mut spill).unwrap();
                }
            }
            let spill = spill.into_input();
            a.seal(Some(&spill));
            b.seal(Some(&spill));
            assert_eq!(runs(&a), want);
            assert_eq!(runs(&b).len(), 9000);
            assert_eq!(runs(&b).last().unwrap().1, at);
        }
    }
}
