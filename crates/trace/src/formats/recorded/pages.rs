//! Reads the sub-buffers of one lane (a CPU of a ring buffer) from a file piece by piece.

use crate::bytes::Endian;
use crate::formats::stream::frame::{HEADER, Header, kind};
use crate::formats::stream::index::{RunCursor, RunIndex};
use crate::input::Input;
use crate::ring::codec::Codec;
use std::io;
use std::sync::Arc;

/// Bytes that one lane reads at once, unless a sub-buffer is larger; and the limit for all lanes together.
const CHUNK: usize = 64 << 10;
const CHUNKS_IN_ALL: usize = 16 << 20;
/// Memory limit for all lanes together, if single sub-buffers or their packed chunks are larger.
const LANES_MEMORY: usize = 32 << 20;

/// The place of a lane's sub-buffers.
#[derive(Clone, Debug)]
pub(crate) enum PageSource {
    /// FS_DATA frames of a stream file.
    Runs(Arc<RunIndex>),
    /// Consecutive sub-buffers of `page` bytes each.
    Flat { offset: u64, size: u64, page: u32 },
    /// Compressed chunks of whole sub-buffers: the number of chunks, then each chunk after its packed and unpacked size.
    Chunks { offset: u64, size: u64, page: u32, codec: Codec, endian: Endian },
}

/// Largest chunk, packed or not; trace-cmd's chunks have ten pages.
const MAX_CHUNK: u32 = 4 << 20;

impl PageSource {
    /// Number of sub-buffers.
    pub fn count(&self, file: &Input) -> io::Result<u64> {
        match self {
            PageSource::Runs(index) => Ok(index.pages),
            PageSource::Flat { size, page, .. } => Ok(size.div_ceil(u64::from((*page).max(1)))),
            PageSource::Chunks { offset, size, page, endian, .. } => {
                let mut pages = 0;
                let page = (*page).max(1);
                each_chunk(file, *offset, *size, *endian, |unpacked| pages += u64::from(unpacked.div_ceil(page)))?;
                Ok(pages)
            }
        }
    }

    /// Unpacked size of the sub-buffers, from the sizes in the chunks; a stream's frames are never packed.
    pub fn unpacked_size(&self, file: &Input) -> io::Result<u64> {
        let mut whole = 0_u64;
        match self {
            PageSource::Runs(_) => {}
            PageSource::Flat { size, .. } => whole = *size,
            PageSource::Chunks { offset, size, endian, .. } => {
                each_chunk(file, *offset, *size, *endian, |unpacked| {
                    whole = whole.saturating_add(u64::from(unpacked))
                })?;
            }
        }
        Ok(whole)
    }

    /// Upper limit for the size of a sub-buffer.
    pub fn largest(&self) -> u64 {
        match self {
            PageSource::Runs(index) => index.largest,
            PageSource::Flat { page, .. } | PageSource::Chunks { page, .. } => u64::from(*page),
        }
    }

    pub fn is_packed(&self) -> bool {
        matches!(self, PageSource::Chunks { .. })
    }

    /// `lanes`: number of lanes that are read in parallel.
    pub fn open(&self, file: &Arc<Input>, lanes: usize) -> Pages {
        let (at, end) = match self {
            PageSource::Runs(_) => (0, 0),
            PageSource::Flat { offset, size, .. } => (*offset, offset.saturating_add(*size)),
            PageSource::Chunks { offset, size, .. } => chunks(*offset, *size),
        };
        Pages {
            chunk: (CHUNKS_IN_ALL / lanes.max(1)).clamp(4096, CHUNK),
            most: (LANES_MEMORY / lanes.max(1)).max(4096 + HEADER + 4),
            many: lanes > 64,
            file: Arc::clone(file),
            source: self.clone(),
            cursor: RunCursor::default(),
            at,
            end,
            buffer: Vec::new(),
            filled: 0,
            buffer_at: 0,
            page: 0..0,
            unpacked: Vec::new(),
            damaged: 0,
        }
    }
}

/// A reader of one lane's sub-buffers. It has at most one chunk of the file in memory.
#[derive(Debug)]
pub(crate) struct Pages {
    chunk: usize,
    /// Limit for a sub-buffer or packed chunk; a larger one counts as damaged.
    most: usize,
    /// There are so many lanes that unpacked chunks are not kept.
    many: bool,
    file: Arc<Input>,
    source: PageSource,
    cursor: RunCursor,
    /// Offset of the next byte, and the end of its range.
    at: u64,
    end: u64,
    buffer: Vec<u8>,
    /// Number of valid bytes in the buffer; the first one is at `buffer_at` of the file.
    filled: usize,
    buffer_at: u64,
    page: std::ops::Range<usize>,
    /// The current chunk, if the data is packed.
    unpacked: Vec<u8>,
    /// Sub-buffers that were indexed but could not be read again.
    pub damaged: u64,
}

impl Pages {
    /// The current sub-buffer.
    #[inline]
    pub fn page(&self) -> &[u8] {
        match self.source {
            PageSource::Chunks { .. } => &self.unpacked[self.page.clone()],
            _ => &self.buffer[self.page.clone()],
        }
    }

    /// Goes to the next sub-buffer; false at the end.
    pub fn advance(&mut self) -> io::Result<bool> {
        if let PageSource::Chunks { page, codec, endian, .. } = self.source {
            return self.advance_chunks(page as usize, codec, endian);
        }
        loop {
            if self.at >= self.end {
                let PageSource::Runs(index) = &self.source else {
                    return Ok(false);
                };
                let Some((begin, end)) = index.next(&mut self.cursor)? else {
                    return Ok(false);
                };
                (self.at, self.end) = (begin, end);
            }
            let left = self.end - self.at;
            if let PageSource::Flat { page, .. } = self.source {
                let want = u64::from(page).min(left) as usize;
                if want > self.most {
                    self.damaged += left.div_ceil(u64::from(page));
                    self.at = self.end;
                    continue;
                }
                let range = self.load(self.at, want, left)?;
                self.at += want as u64;
                if range.is_empty() {
                    self.at = self.end;
                    continue;
                }
                self.page = range;
                return Ok(true);
            }
            let range = self.load(self.at, HEADER.min(left as usize), left)?;
            let header = Header::read(&self.buffer[range])
                .filter(|h| h.kind == kind::DATA && h.length >= 4)
                .filter(|h| h.frame_size() as u64 <= left);
            let Some(header) = header else {
                // The file has changed since it was indexed.
                self.damaged += 1;
                self.at = self.end;
                continue;
            };
            let size = header.frame_size();
            if size > self.most {
                self.damaged += 1;
                self.at += size as u64;
                continue;
            }
            let range = self.load(self.at, size, left)?;
            if range.len() < size {
                self.damaged += 1;
                self.at = self.end;
                continue;
            }
            self.at += size as u64;
            self.page = range.start + HEADER + 4..range.end;
            return Ok(true);
        }
    }

    fn advance_chunks(&mut self, page: usize, codec: Codec, endian: Endian) -> io::Result<bool> {
        loop {
            if self.page.end < self.unpacked.len() {
                self.page = self.page.end..(self.page.end + page).min(self.unpacked.len());
                return Ok(true);
            }
            self.unpacked.clear();
            self.page = 0..0;
            let left = self.end.saturating_sub(self.at);
            if left < 8 {
                return Ok(false);
            }
            let head = self.load(self.at, 8, left)?;
            let sizes = chunk_head(endian, &self.buffer[head]);
            let Some((packed, unpacked)) = sizes.filter(|&(p, _)| u64::from(p) + 8 <= left) else {
                // A chunk's place follows from the chunk before: the rest cannot be found.
                self.damaged += 1;
                self.at = self.end;
                return Ok(false);
            };
            if packed as usize > self.most / 2 {
                self.damaged += 1;
                self.at += 8 + u64::from(packed);
                continue;
            }
            let range = self.load(self.at + 8, packed as usize, left - 8)?;
            self.at += 8 + u64::from(packed);
            let most = if self.many { self.most } else { self.most / 2 };
            self.unpacked.resize(if unpacked as usize <= most { unpacked as usize } else { 0 }, 0);
            let good = codec.unpack(&self.buffer[range], &mut self.unpacked);
            if self.many {
                self.buffer = Vec::new();
                self.filled = 0;
            }
            if !good {
                self.damaged += 1;
                self.unpacked.clear();
            }
        }
    }

    /// Loads `want` bytes at `at` into the buffer, fewer at the end of the file. Reads ahead up to `left` bytes.
    fn load(&mut self, at: u64, want: usize, left: u64) -> io::Result<std::ops::Range<usize>> {
        let inside = at
            .checked_sub(self.buffer_at)
            .and_then(|o| usize::try_from(o).ok())
            .filter(|&o| o.checked_add(want).is_some_and(|e| e <= self.filled));
        if let Some(begin) = inside {
            return Ok(begin..begin + want);
        }
        let size = (self.chunk as u64).min(left).max(want as u64) as usize;
        if self.buffer.len() < size {
            self.buffer.resize(size, 0);
        }
        self.buffer_at = at;
        self.filled = 0;
        self.filled = self.file.fill_at(&mut self.buffer[..size], at)?;
        Ok(0..want.min(self.filled))
    }
}

/// Begin and end of the chunks. The number before them is not used; trace-cmd 3.1.6 does not count its four bytes in the size.
fn chunks(offset: u64, size: u64) -> (u64, u64) {
    let begin = offset.saturating_add(4);
    (begin, begin.saturating_add(size))
}

/// Passes each chunk's stated unpacked size to `f`, as far as the chunks can be followed.
fn each_chunk(file: &Input, offset: u64, size: u64, endian: Endian, mut f: impl FnMut(u32)) -> io::Result<()> {
    let (mut at, end) = chunks(offset, size);
    let mut head = [0; 8];
    while at + 8 <= end && file.fill_at(&mut head, at)? == head.len() {
        let Some((packed, unpacked)) = chunk_head(endian, &head) else { break };
        f(unpacked);
        at += 8 + u64::from(packed);
    }
    Ok(())
}

/// Packed and unpacked size of a chunk; `None` if they are invalid.
fn chunk_head(endian: Endian, head: &[u8]) -> Option<(u32, u32)> {
    let (packed, unpacked) = (endian.u32(head, 0)?, endian.u32(head, 4)?);
    (packed <= MAX_CHUNK && unpacked <= MAX_CHUNK).then_some((packed, unpacked))
}
