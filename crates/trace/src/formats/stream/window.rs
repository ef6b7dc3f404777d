//! The last seconds of an incoming stream, for `flashscope top`.
//!
//! Input: the agent's bytes as they arrive. Output: a stream for [`Session`](super::Session), with all descriptions and task names, and the
//! latest events. Memory is bounded for any input.

use super::frame::{HEADER, Header, MAX_FRAME, Scan, Scanner, encode_frame, kind};
use crate::bytes::Endian;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// Limit for descriptions and names, bytes.
const MOST_HEAD: usize = 32 << 20;
/// `FS_INSTANCE_MAIN`: the events that were asked for.
const MAIN: u16 = 0;

/// A sub-buffer of events, with its time of arrival.
struct Piece {
    at: Duration,
    source: u16,
    payload: Vec<u8>,
}

/// The window; the module's comment describes it.
pub struct StreamWindow {
    scanner: Scanner,
    /// Bytes of an incomplete frame.
    rest: Vec<u8>,
    head: Vec<(u16, u16, Vec<u8>)>,
    head_bytes: usize,
    pieces: VecDeque<Piece>,
    /// The number of leading `pieces` that [`StreamWindow::stream`] has returned.
    given_out: usize,
    piece_bytes: usize,
    length: Duration,
    most_bytes: usize,
    described: Option<Duration>,
    /// Sub-buffers that were dropped before any `stream` had them, and descriptions above the limit.
    dropped: u64,
    damaged: u64,
}

impl StreamWindow {
    /// Keeps events for `length`, or until one `stream` had them if that is later, but at most `most_bytes` of them.
    pub fn new(length: Duration, most_bytes: usize) -> StreamWindow {
        StreamWindow {
            scanner: Scanner::default(),
            rest: Vec::new(),
            head: Vec::new(),
            head_bytes: 0,
            pieces: VecDeque::new(),
            given_out: 0,
            piece_bytes: 0,
            length,
            most_bytes,
            described: None,
            dropped: 0,
            damaged: 0,
        }
    }

    /// Takes bytes that arrived at `now`; `now` must not decrease.
    pub fn push(&mut self, bytes: &[u8], now: Duration) {
        self.rest.extend_from_slice(bytes);
        let mut used = 0;
        loop {
            // A frame that ends with the bytes is complete: it needs no next frame.
            let last =
                Header::read(&self.rest[used..]).is_some_and(|header| header.frame_size() == self.rest.len() - used);
            match self.scanner.scan(&self.rest[used..], last) {
                Scan::Frame(header) => {
                    let payload = self.rest[used + HEADER..used + header.frame_size()].to_vec();
                    used += header.frame_size();
                    self.frame(header.kind, header.source, payload, now);
                }
                Scan::BadCrc(header) => {
                    self.damaged += header.frame_size() as u64;
                    used += header.frame_size();
                }
                Scan::Skip(n) => {
                    self.damaged += n as u64;
                    used += n;
                }
                Scan::More | Scan::Cut(_) | Scan::End => break,
            }
        }
        self.rest.drain(..used);
        debug_assert!(self.rest.len() <= MAX_FRAME + bytes.len());
        self.forget(now);
    }

    fn frame(&mut self, kind: u16, source: u16, payload: Vec<u8>, now: Duration) {
        match kind {
            // Instance 1 has the names of tasks.
            kind::DATA if Endian::Little.u16(&payload, 2) == Some(MAIN) => {
                self.piece_bytes += payload.len();
                self.pieces.push_back(Piece { at: now, source, payload });
            }
            // They belong to steps that ended, or are for people.
            kind::OUTPUT | kind::FILE | kind::LOG | kind::EXIT | kind::END => {}
            _ if self.head_bytes + payload.len() > MOST_HEAD => self.dropped += 1,
            _ => {
                if kind == kind::TASKS {
                    self.described.get_or_insert(now);
                }
                self.head_bytes += payload.len();
                self.head.push((kind, source, payload));
            }
        }
    }

    fn forget(&mut self, now: Duration) {
        while let Some(first) = self.pieces.front() {
            let given_out = self.given_out > 0;
            let old = given_out && now.saturating_sub(first.at) > self.length;
            if !old && self.piece_bytes <= self.most_bytes {
                break;
            }
            self.dropped += u64::from(!given_out);
            self.given_out = self.given_out.saturating_sub(1);
            self.piece_bytes -= first.payload.len();
            self.pieces.pop_front();
        }
    }

    /// A stream of the kept data; `None` before the first events.
    pub fn stream(&mut self, now: Duration) -> Option<Vec<u8>> {
        self.forget(now);
        if self.pieces.is_empty() {
            return None;
        }
        // Frame numbers start at 0 in each source, so that dropped frames do not count as losses.
        let mut next: HashMap<u16, u32> = HashMap::new();
        let mut out = Vec::with_capacity(self.head_bytes + self.piece_bytes);
        let head = self.head.iter().map(|(kind, source, payload)| (*kind, *source, payload));
        let pieces = self.pieces.iter().map(|piece| (kind::DATA, piece.source, &piece.payload));
        for (kind, source, payload) in head.chain(pieces) {
            let seq = next.entry(source).or_default();
            out.extend(encode_frame(kind, source, *seq, payload));
            *seq += 1;
        }
        self.given_out = self.pieces.len();
        Some(out)
    }

    /// The time at which the task names came. They are a recording's last description; events follow.
    pub fn described(&self) -> Option<Duration> {
        self.described
    }

    /// Sub-buffers that were dropped because too many arrived, before any `stream` had them.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Bytes that were damaged in transit.
    pub fn damaged(&self) -> u64 {
        self.damaged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(byte: u8, size: usize) -> Vec<u8> {
        let mut payload = vec![0, 0, 0, 0];
        payload.resize(size, byte);
        encode_frame(kind::DATA, 3, 0, &payload)
    }

    fn kinds(stream: &[u8]) -> Vec<(u16, u32, u8)> {
        let (mut scanner, mut at, mut found) = (Scanner::default(), 0, Vec::new());
        while let Scan::Frame(header) = scanner.scan(&stream[at..], true) {
            found.push((header.kind, header.seq, stream[at + header.frame_size() - 1]));
            at += header.frame_size();
        }
        assert_eq!(at, stream.len());
        found
    }

    #[test]
    fn descriptions_stay_and_events_go() {
        let second = Duration::from_secs;
        let mut window = StreamWindow::new(second(2), 1000);
        assert_eq!(window.stream(second(0)), None);
        let mut bytes = encode_frame(kind::HELLO, 3, 0, &[7; 20]);
        bytes.extend(data(1, 100));
        // However it is cut on its way.
        bytes.chunks(7).for_each(|part| window.push(part, second(0)));
        assert_eq!(window.described(), None);
        window.push(&data(2, 100), second(1));
        window.push(&data(3, 100), second(3));
        window.push(b"noise", second(3));
        window.push(&data(4, 100), second(3));
        window.push(&encode_frame(kind::LOG, 3, 9, b"text"), second(3));
        // The first one is old, but it was in no stream yet.
        for events in [&[(6, 1, 1), (6, 2, 2), (6, 3, 3), (6, 4, 4)][..], &[(6, 1, 2), (6, 2, 3), (6, 3, 4)]] {
            let stream = window.stream(second(3)).expect("events");
            assert_eq!(kinds(&stream), [&[(1, 0, 7)], events].concat());
        }
        assert_eq!((window.damaged(), window.dropped()), (5, 0));
        // More than there is room for.
        (10..30).for_each(|byte| window.push(&data(byte, 400), second(4)));
        let stream = window.stream(second(4)).expect("events");
        assert_eq!(kinds(&stream), [(1, 0, 7), (6, 1, 28), (6, 2, 29)]);
        assert_eq!(window.dropped(), 18, "of 20");
        assert_eq!(window.stream(second(9)), None);
    }
}
