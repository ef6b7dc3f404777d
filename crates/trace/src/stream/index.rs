//! Where a lane's sub-buffers lie in a stream file, in a few bytes each.

/// Byte ranges of a file that hold nothing but data frames of one lane, in file order.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunIndex {
    /// Pairs of varints: bytes from the end of the run before, bytes of the run.
    packed: Vec<u8>,
    packed_end: u64,
    run: Option<(u64, u64)>,
    /// Sub-buffers in all runs.
    pub pages: u64,
    /// Bytes of their contents.
    pub bytes: u64,
}

impl RunIndex {
    /// A frame of `size` bytes at `at`; frames come in file order.
    pub fn push(&mut self, at: u64, size: u64) {
        self.pages += 1;
        self.bytes += size;
        match &mut self.run {
            Some((_, end)) if *end == at => *end += size,
            _ => {
                self.flush();
                self.run = Some((at, at + size));
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

    /// To be called after the last `push`.
    pub fn seal(&mut self) {
        self.flush();
        self.packed.shrink_to_fit();
    }

    /// The run at a cursor, which begins as the default.
    pub fn next(&self, cursor: &mut RunCursor) -> Option<(u64, u64)> {
        let gap = take(&self.packed, &mut cursor.at)?;
        let length = take(&self.packed, &mut cursor.at)?;
        let begin = cursor.end + gap;
        cursor.end = begin + length;
        Some((begin, cursor.end))
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RunCursor {
    at: usize,
    end: u64,
}

fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
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

    #[test]
    fn runs_come_back_joined() {
        let mut i = RunIndex::default();
        for (at, size) in [(10, 5), (15, 5), (1000, 1), (1 << 40, 300), ((1 << 40) + 300, 7)] {
            i.push(at, size);
        }
        i.seal();
        let mut c = RunCursor::default();
        let got: Vec<_> = std::iter::from_fn(|| i.next(&mut c)).collect();
        assert_eq!(got, [(10, 20), (1000, 1001), (1 << 40, (1 << 40) + 307)]);
        assert_eq!(i.pages, 5);
        assert!(i.packed.len() < 16);
    }
}
