//! The kernel's ring buffer: reads records from sub-buffers, and writes records into sub-buffers.
//!
//! Source: `kernel/trace/ring_buffer.c` and `include/linux/ring_buffer.h` (Linux 6.1): `struct buffer_data_page`,
//! `struct ring_buffer_event`, `enum ring_buffer_type`, `RB_MISSED_EVENTS`, `RB_MISSED_STORED`, `rb_fix_abs_ts`.

pub(crate) mod codec;
pub mod schema;

use crate::ring::schema::Layout;

/// `RB_MISSED_EVENTS`: events were lost between this sub-buffer and the one before.
const MISSED_EVENTS: u64 = 1 << 31;
/// `RB_MISSED_STORED`: the count of lost events is stored as a `long` after the committed bytes.
const MISSED_STORED: u64 = 1 << 30;
/// The bits of the commit field that count bytes (libtraceevent's `COMMIT_MASK`, `kbuffer-parse.c`).
const COMMIT_MASK: u64 = (1 << 27) - 1;

const TYPE_DATA_MAX: u32 = 28;
const TYPE_PADDING: u32 = 29;
const TYPE_TIME_EXTEND: u32 = 30;
const TYPE_TIME_STAMP: u32 = 31;
const DELTA_BITS: u32 = 27;
/// Absolute times carry 59 bits; the rest comes from the sub-buffer's own time (`TS_MSB`).
const ABSOLUTE_TOP: u64 = 0xf8 << 56;

/// Events that the kernel lost before a sub-buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Missed {
    #[default]
    Nothing,
    Events(u64),
    Unknown,
}

/// Position in one sub-buffer. It borrows nothing, so page buffers can be reused.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Walker {
    at: usize,
    end: usize,
    time: u64,
    pub missed: Missed,
    /// The sub-buffer holds less than its commit field states.
    pub cut: bool,
}

/// One step of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Walked {
    Record {
        time: u64,
        begin: usize,
        end: usize,
    },
    End,
    /// The rest of the sub-buffer is damaged.
    Damaged,
}

impl Walker {
    /// Reads the header. `None` if the page is shorter than a header.
    pub fn start(layout: &Layout, page: &[u8]) -> Option<Walker> {
        let time = layout.endian.u64(page, 0)?;
        let commit = layout.endian.uint(page, layout.commit_offset as usize, usize::from(layout.commit_size))?;
        let at = layout.data_offset as usize;
        if at > page.len() {
            return None;
        }
        let wanted = at + (commit & COMMIT_MASK) as usize;
        let end = wanted.min(page.len());
        let missed = if commit & MISSED_EVENTS == 0 {
            Missed::Nothing
        } else if commit & MISSED_STORED == 0 {
            Missed::Unknown
        } else {
            match layout.endian.uint(page, wanted, usize::from(layout.long_size)) {
                Some(n) => Missed::Events(n),
                None => Missed::Unknown,
            }
        };
        Some(Walker { at, end, time, missed, cut: end < wanted })
    }

    #[inline]
    pub fn next(&mut self, layout: &Layout, page: &[u8]) -> Walked {
        let endian = layout.endian;
        loop {
            if self.at >= self.end {
                return Walked::End;
            }
            let page = &page[..self.end];
            let Some(head) = endian.u32(page, self.at) else {
                return self.damaged();
            };
            let (kind, delta) = match endian {
                crate::bytes::Endian::Little => (head & 31, u64::from(head >> 5)),
                crate::bytes::Endian::Big => (head >> DELTA_BITS, u64::from(head & 0x07ff_ffff)),
            };
            let body = self.at + 4;
            match kind {
                1..=TYPE_DATA_MAX => {
                    let end = body + kind as usize * 4;
                    if end > self.end {
                        return self.damaged();
                    }
                    self.time = self.time.wrapping_add(delta);
                    self.at = end;
                    return Walked::Record { time: self.time, begin: body, end };
                }
                0 => {
                    // The length counts itself; events are aligned to four bytes.
                    let Some(length) = endian.u32(page, body) else {
                        return self.damaged();
                    };
                    let end = body + ((length as usize).saturating_add(3) & !3);
                    if length < 4 || end > self.end {
                        return self.damaged();
                    }
                    self.time = self.time.wrapping_add(delta);
                    self.at = end;
                    return Walked::Record { time: self.time, begin: body + 4, end };
                }
                TYPE_PADDING => {
                    if delta == 0 {
                        // Only padding up to the end.
                        self.at = self.end;
                        return Walked::End;
                    }
                    // A discarded event. Its time delta counts, as in trace-cmd.
                    let Some(length) = endian.u32(page, body) else {
                        return self.damaged();
                    };
                    let end = body.saturating_add(length as usize);
                    if end > self.end || end <= self.at {
                        return self.damaged();
                    }
                    self.time = self.time.wrapping_add(delta);
                    self.at = end;
                }
                TYPE_TIME_EXTEND | TYPE_TIME_STAMP => {
                    let Some(high) = endian.u32(page, body) else {
                        return self.damaged();
                    };
                    let value = (u64::from(high) << DELTA_BITS) + delta;
                    if kind == TYPE_TIME_EXTEND {
                        self.time = self.time.wrapping_add(value);
                    } else {
                        let top = self.time & ABSOLUTE_TOP;
                        let mut absolute = value;
                        if top != 0 {
                            absolute |= top;
                            if absolute < self.time {
                                absolute = absolute.wrapping_add(1 << 59);
                            }
                        }
                        self.time = absolute;
                    }
                    self.at = body + 4;
                }
                _ => unreachable!("five bits"),
            }
        }
    }

    fn damaged(&mut self) -> Walked {
        self.at = self.end;
        Walked::Damaged
    }
}

/// Zeroes bytes that no reader takes for a record: the contents of discarded events, and the bytes after the last record.
pub(crate) fn forget_remains(layout: &Layout, page: &mut [u8]) {
    let (endian, size) = (layout.endian, usize::from(layout.commit_size));
    let Some(commit) = endian.uint(page, layout.commit_offset as usize, size) else { return page.fill(0) };
    let mut at = layout.data_offset as usize;
    let committed = (at + (commit & COMMIT_MASK) as usize).min(page.len());
    while let Some(head) = endian.u32(page, at).filter(|_| at < committed) {
        let (kind, delta) = match endian {
            crate::bytes::Endian::Little => (head & 31, head >> 5),
            crate::bytes::Endian::Big => (head >> DELTA_BITS, head & 0x07ff_ffff),
        };
        let length = endian.u32(page, at + 4).map_or(usize::MAX, |length| length as usize);
        let next = match kind {
            TYPE_PADDING if delta == 0 => committed,
            TYPE_PADDING | 0 => at.saturating_add(4).saturating_add(length.saturating_add(3) & !3),
            TYPE_TIME_EXTEND | TYPE_TIME_STAMP => at + 8,
            _ => at + 4 + kind as usize * 4,
        };
        if kind == TYPE_PADDING {
            let from = if delta == 0 { at + 4 } else { at + 8 };
            page.get_mut(from..next.min(committed)).unwrap_or_default().fill(0);
        }
        at = next.max(at + 4);
    }
    let counted = commit & MISSED_EVENTS != 0 && commit & MISSED_STORED != 0;
    let behind = committed + if counted { usize::from(layout.long_size) } else { 0 };
    page.get_mut(behind..).unwrap_or_default().fill(0);
}

/// Writes records into sub-buffers.
#[derive(Debug)]
pub struct Encoder {
    layout: Layout,
    page: Vec<u8>,
    last: u64,
    /// Events missing before the sub-buffer that is being filled, and before the next one.
    missed: Missed,
    missed_next: Missed,
}

impl Encoder {
    pub fn new(layout: Layout) -> Encoder {
        Encoder {
            layout,
            page: Vec::with_capacity(layout.subbuf_size as usize),
            last: 0,
            missed: Missed::Nothing,
            missed_next: Missed::Nothing,
        }
    }

    /// Marks that events are missing before the next record.
    pub fn missed(&mut self, missed: Missed) {
        self.missed_next = match (self.missed_next, missed) {
            (Missed::Nothing, m) | (m, Missed::Nothing) => m,
            (Missed::Events(a), Missed::Events(b)) => Missed::Events(a.saturating_add(b)),
            _ => Missed::Unknown,
        };
    }

    /// Size of the largest record that fits into one sub-buffer.
    pub fn room(&self) -> usize {
        // Header, a time extend, the long form's two words, and a long for a stored count.
        (self.layout.subbuf_size as usize).saturating_sub(self.layout.data_offset as usize + 8 + 8) & !3
    }

    /// Adds a record. If that closes a full sub-buffer, returns it; the record is then in the next one. A record larger than `room` is
    /// refused.
    pub fn record(&mut self, time: u64, data: &[u8]) -> Result<Option<Vec<u8>>, TooLarge> {
        if data.len() > self.room() {
            return Err(TooLarge);
        }
        let length = data.len().next_multiple_of(4);
        let short = length > 0 && length <= TYPE_DATA_MAX as usize * 4;
        let need = 4 + length + if short { 0 } else { 4 } + 8;
        let mut full = None;
        // A time that runs backwards, or ahead by more than 59 bits, needs a new sub-buffer.
        let far = time < self.last || (time - self.last) >> 59 != 0;
        let no_room = self.page.len() + need > self.layout.subbuf_size as usize;
        if far || no_room || self.missed_next != Missed::Nothing {
            full = self.finish();
        }
        let endian = self.layout.endian;
        if self.page.is_empty() {
            endian.put_u64(&mut self.page, time);
            self.page.resize(self.layout.data_offset as usize, 0);
            self.last = time;
            self.missed = std::mem::take(&mut self.missed_next);
        }
        let mut delta = time - self.last;
        if delta >> DELTA_BITS != 0 {
            self.put_head(TYPE_TIME_EXTEND, delta & 0x07ff_ffff);
            endian.put_u32(&mut self.page, (delta >> DELTA_BITS) as u32);
            delta = 0;
        }
        if short {
            self.put_head(length as u32 / 4, delta);
        } else {
            self.put_head(0, delta);
            endian.put_u32(&mut self.page, length as u32 + 4);
        }
        self.page.extend_from_slice(data);
        self.page.resize(self.page.len().next_multiple_of(4), 0);
        self.last = time;
        Ok(full)
    }

    fn put_head(&mut self, kind: u32, delta: u64) {
        let delta = delta as u32;
        let head = match self.layout.endian {
            crate::bytes::Endian::Little => delta << 5 | kind,
            crate::bytes::Endian::Big => kind << DELTA_BITS | delta,
        };
        self.layout.endian.put_u32(&mut self.page, head);
    }

    /// The unfinished sub-buffer, cut after its last byte; `None` if it is empty.
    pub fn finish(&mut self) -> Option<Vec<u8>> {
        if self.page.is_empty() {
            return None;
        }
        let layout = self.layout;
        let mut page = std::mem::take(&mut self.page);
        let mut commit = (page.len() - layout.data_offset as usize) as u64;
        let mut behind = Vec::new();
        match std::mem::take(&mut self.missed) {
            Missed::Nothing => {}
            Missed::Unknown => commit |= MISSED_EVENTS,
            Missed::Events(n) => {
                let size = usize::from(layout.long_size);
                commit |= MISSED_EVENTS;
                if page.len() + size <= layout.subbuf_size as usize {
                    commit |= MISSED_STORED;
                    if size == 4 {
                        layout.endian.put_u32(&mut behind, u32::try_from(n).unwrap_or(u32::MAX));
                    } else {
                        layout.endian.put_u64(&mut behind, n);
                    }
                }
            }
        }
        let mut field = Vec::new();
        if layout.commit_size == 4 {
            layout.endian.put_u32(&mut field, commit as u32);
        } else {
            layout.endian.put_u64(&mut field, commit);
        }
        let at = layout.commit_offset as usize;
        page[at..at + field.len()].copy_from_slice(&field);
        page.extend_from_slice(&behind);
        Some(page)
    }
}

/// A record that is too large for a sub-buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::Endian;

    fn walk(layout: &Layout, page: &[u8]) -> (Vec<(u64, Vec<u8>)>, Missed, bool) {
        let Some(mut w) = Walker::start(layout, page) else {
            return (vec![], Missed::Nothing, true);
        };
        let mut out = vec![];
        loop {
            match w.next(layout, page) {
                Walked::Record { time, begin, end } => out.push((time, page[begin..end].to_vec())),
                Walked::End => return (out, w.missed, w.cut),
                Walked::Damaged => return (out, w.missed, true),
            }
        }
    }

    fn layouts() -> Vec<Layout> {
        let mut all = vec![];
        for endian in [Endian::Little, Endian::Big] {
            for long in [4, 8] {
                for size in [256, 4096, 65536] {
                    all.push(Layout::of(endian, long, size));
                }
            }
        }
        all
    }

    #[test]
    fn what_is_written_is_read_in_every_layout() {
        for layout in layouts() {
            let mut e = Encoder::new(layout);
            let mut want = vec![];
            let mut pages = vec![];
            let mut time = 1_000_000u64;
            for i in 0..500u64 {
                time += if i % 50 == 0 { 1 << 40 } else { i * 7 };
                let data = vec![i as u8; (i as usize % 40) * 4 + 4];
                if i == 200 {
                    e.missed(Missed::Events(5));
                }
                if i == 300 {
                    e.missed(Missed::Unknown);
                }
                if data.len() > e.room() {
                    assert_eq!(e.record(time, &data), Err(TooLarge));
                    continue;
                }
                pages.extend(e.record(time, &data).unwrap());
                want.push((time, data));
            }
            pages.extend(e.finish());
            let mut got = vec![];
            let mut missed = vec![];
            for p in &pages {
                assert!(p.len() <= layout.subbuf_size as usize);
                let (records, m, damaged) = walk(&layout, p);
                assert!(!damaged);
                got.extend(records);
                if m != Missed::Nothing {
                    missed.push(m);
                }
            }
            assert_eq!(got, want);
            assert_eq!(missed, [Missed::Events(5), Missed::Unknown]);
        }
    }

    #[test]
    fn kernel_forms_by_hand() {
        let l = Layout::of(Endian::Little, 4, 4096);
        let mut p = vec![];
        p.extend(0xf800_0000_0000_1000u64.to_le_bytes());
        p.extend([0; 4]);
        let mut word = |w: u32| p.extend(w.to_le_bytes());
        // delta 5, 4 bytes of data
        word(5 << 5 | 1);
        word(0xaaaa);
        // a discarded event: delta 3, 8 bytes after the head
        word(3 << 5 | 29);
        word(8);
        word(0);
        // extend by (1 << 27) + 2
        word(2 << 5 | 30);
        word(1);
        // long form: 8 + 4
        word(1 << 5);
        word(12);
        word(1);
        word(2);
        // absolute time 0x2000_0000 + 9 within the page's top bits
        word(9 << 5 | 31);
        word(4);
        word(1);
        word(0xbbbb);
        // padding to the end
        word(29);
        let commit = (p.len() - 12 + 8) as u32 | 1 << 31;
        p.extend([0xee; 8]);
        p[8..12].copy_from_slice(&commit.to_le_bytes());
        let (r, m, damaged) = walk(&l, &p);
        assert!(!damaged);
        assert_eq!(m, Missed::Unknown);
        let top = 0xf8u64 << 56;
        assert_eq!(r.len(), 3);
        assert_eq!(r[0], (top + 0x1005, 0xaaaau32.to_le_bytes().to_vec()));
        // The discarded event's delta counts; the long form is 8 bytes of data.
        assert_eq!(r[1].0, top + 0x1008 + (1 << 27) + 2 + 1);
        assert_eq!(r[1].1, [1, 0, 0, 0, 2, 0, 0, 0]);
        assert_eq!(r[2].0, top + (4 << 27) + 9);
    }

    /// Small deterministic generator (xorshift64*, Marsaglia 2003, Vigna 2016).
    pub(crate) struct Rng(pub u64);
    impl Rng {
        pub fn next(&mut self) -> u64 {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
        }
    }

    #[test]
    fn any_bytes_end() {
        let mut rng = Rng(7);
        for layout in layouts() {
            let mut e = Encoder::new(layout);
            let mut page = None;
            for i in 0..100_000 {
                if let Ok(Some(p)) = e.record(i * 1000, &[1; 20]) {
                    page = Some(p);
                    break;
                }
            }
            let page = page.unwrap();
            for cut in 0..page.len().min(300) {
                walk(&layout, &page[..cut]);
            }
            for _ in 0..2000 {
                let mut p = page.clone();
                for _ in 0..1 + rng.next() % 8 {
                    let at = rng.next() as usize % p.len();
                    p[at] = rng.next() as u8;
                }
                let (r, _, _) = walk(&layout, &p);
                assert!(r.len() <= p.len() / 4);
            }
        }
    }
}
