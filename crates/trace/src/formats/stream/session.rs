//! One pass over a stream file: steps, output, files, phases, and the places of each recording's ring buffer data.

use super::frame::{HEADER, Header, MAX_FRAME, Scan, Scanner, kind};
use super::index::{RunIndex, Spill};
use crate::bytes::Endian;
use crate::error::Error;
use crate::events::phase::{Mark, Phase, Phases};
use crate::facts::Facts;
use crate::ids::{MAX_CPUS, ProcessId, TaskId};
use crate::input::Input;
use crate::losses::{Loss, Losses};
use crate::ring::schema::{Layout, MAX_FORMATS_MEMORY, MAX_SUBBUF, Schema, Schemas};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Limits for the parts of a stream that stay in memory, and what is known of it.
#[derive(Clone, Copy, Debug)]
pub struct SessionOptions {
    /// Limit for each step's stdout, and for its stderr, bytes.
    pub output_bytes_per_step: usize,
    /// Limit for the output of all steps together, bytes.
    pub output_bytes: usize,
    /// The stream is a part of one that still comes in: a source without an end has lost nothing.
    pub goes_on: bool,
}

impl Default for SessionOptions {
    fn default() -> Self {
        SessionOptions { output_bytes_per_step: 1 << 20, output_bytes: 16 << 20, goes_on: false }
    }
}

/// Memory limit for facts, formats, statistics, tasks and similar data of all sources together.
const MAX_KEPT: usize = 32 << 20;
/// `FS_PROTOCOL_VERSION`
const PROTOCOL: u16 = 1;
/// Largest number of producers in a stream; each step of a plan is one.
const MAX_SOURCES: usize = 1 << 14;
/// Largest number of CPUs of all recordings; each counts twice, for its data and its tasks.
const MAX_LANES: usize = 8192;
/// Limit for the index of ring buffer data in memory, bytes; the rest goes to a temporary file. With three to four bytes for a sub-buffer
/// of 4 KiB, this is enough for 4 GiB.
const INDEX_MEMORY: usize = 4 << 20;
/// Longest text of facts or statistics, and its largest number of values: `FS_STATS` of 8192 CPUs has 1 MiB and 130,000.
const MAX_JSON: usize = 2 << 20;
const MAX_JSON_VALUES: usize = 200_000;
const MAX_LOG_LINES: usize = 10_000;
/// `FS_INSTANCE_REQUESTS`, the last known instance.
const MAX_INSTANCE: u16 = 2;

/// All that a board sent in one stream.
#[derive(Debug)]
pub struct Session {
    pub steps: Vec<Step>,
    pub recordings: Vec<RecordingInfo>,
    /// Losses of the stream itself; each recording's own losses are in its `Trace`.
    pub losses: Losses,
    /// Every producer sent its end, no part of the stream is missing, and source 0 (process 1 of a board, or the only producer) did not
    /// fail. The failure of a step is in its `status`.
    pub complete: bool,
    /// Messages of producers for people, in the stream's order.
    pub logs: Vec<LogLine>,
    pub(super) phases: Phases,
    pub(super) path: PathBuf,
    pub(super) file: Arc<Input>,
    pub(super) sources: Vec<Arc<SourceState>>,
    /// The index into `sources` for each recording.
    pub(super) recording_sources: Vec<usize>,
}

/// One step of a plan, or the output of a single recorder.
#[derive(Clone, Debug, Default)]
pub struct Step {
    pub source: u16,
    /// The step's name; empty if unknown.
    pub name: String,
    /// Exit code; 128 + n if signal n ended the step; `None` if it did not end.
    pub status: Option<i32>,
    pub begin_ns: Option<u64>,
    pub end_ns: Option<u64>,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// Bytes of output above the limit.
    pub output_dropped: u64,
    pub files: Vec<StoredFile>,
    /// The producer sent its end.
    pub finished: bool,
}

/// A file that a board sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredFile {
    pub path: String,
    /// Permission bits.
    pub mode: u32,
    pub size: u64,
    pieces: Vec<Piece>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    offset: u64,
    at: u64,
    length: u64,
}

/// A producer's message for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    pub source: u16,
    /// 0 error, 1 warning, 2 information.
    pub level: u32,
    pub text: String,
}

/// One recorder's part of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordingInfo {
    pub source: u16,
    /// The name in its facts; empty if they were lost.
    pub name: String,
    pub cpus: u32,
    /// Number of ring sub-buffers, and their bytes.
    pub sub_buffers: u64,
    pub bytes: u64,
    /// Its recorder sent its end and did not fail.
    pub complete: bool,
}

/// `struct fs_hello`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub endian: Endian,
    pub long_size: u8,
    pub page_size: u32,
    pub subbuf_size: u32,
    pub cpus: u32,
}

/// The data of one producer.
#[derive(Debug, Default)]
pub(crate) struct SourceState {
    pub id: u16,
    pub hello: Option<Hello>,
    pub agent_version: String,
    pub facts: Option<String>,
    pub header_page: Option<String>,
    pub header_event: Option<String>,
    pub stats: Option<String>,
    pub names: Vec<String>,
    names_values: usize,
    pub schemas: Arc<Schemas>,
    raw_formats: Vec<(String, String)>,
    pub tasks: Vec<(TaskId, ProcessId, [u8; 16])>,
    pub lanes: BTreeMap<(u16, u16), Arc<RunIndex>>,
    building: BTreeMap<(u16, u16), RunIndex>,
    expected: u32,
    seen: u64,
    gaps: u64,
    /// Reason and count of `struct fs_end`.
    end: Option<(u32, u32)>,
    step: Option<Step>,
    pub losses: Losses,
}

impl SourceState {
    pub fn layout(&self) -> Layout {
        let hello = self.hello.unwrap_or(Hello {
            endian: Endian::Little,
            long_size: 8,
            page_size: 4096,
            subbuf_size: 0,
            cpus: 0,
        });
        let size = hello.subbuf_size.min(MAX_SUBBUF);
        match &self.header_page {
            Some(text) => Layout::parse(text, hello.endian, hello.long_size, size),
            None => {
                let size = if size == 0 { hello.page_size } else { size };
                Layout::of(hello.endian, hello.long_size, size)
            }
        }
    }

    fn step(&mut self) -> &mut Step {
        let id = self.id;
        self.step.get_or_insert_with(|| Step { source: id, ..Step::default() })
    }

    fn records(&self) -> bool {
        self.hello.is_some_and(|h| h.subbuf_size > 0) || !self.building.is_empty() || !self.lanes.is_empty()
    }
}

/// Whether a file with this beginning can be a stream.
pub(crate) fn looks_like_stream(head: &[u8]) -> bool {
    head.starts_with(&super::frame::MAGIC)
}

/// Bytes per read.
const CHUNK: usize = 256 << 10;

impl Session {
    /// Reads a whole stream file. If the stream is cut or damaged, the rest is read, and `losses` counts what is missing. Fails only if the
    /// file cannot be read or has no frame at all.
    pub fn open(path: &Path) -> Result<Session, Error> {
        Session::open_with(path, SessionOptions::default())
    }

    pub fn open_with(path: &Path, options: SessionOptions) -> Result<Session, Error> {
        Session::of(path, Input::open(path).map_err(|e| Error::io(path, "open", e))?, options)
    }

    /// Reads a stream in memory. Messages name it `path`, which need not exist.
    pub fn from_bytes(path: &Path, bytes: Arc<[u8]>, options: SessionOptions) -> Result<Session, Error> {
        Session::of(path, Input::Memory(bytes), options)
    }

    pub(crate) fn of(path: &Path, file: Input, options: SessionOptions) -> Result<Session, Error> {
        // A small input needs no large buffer.
        let size = file.size().map_err(|e| Error::io(path, "read", e))?;
        let chunk = (size as usize).saturating_add(1).clamp(4096, CHUNK);
        let mut assembler = Assembler::new(options);
        let mut scanner = Scanner::default();
        let mut buffer: Vec<u8> = Vec::new();
        // `used`: bytes of the buffer that are consumed; `at`: offset of the buffer's first byte in the file.
        let (mut used, mut at, mut last, mut frames) = (0usize, 0u64, false, 0u64);
        loop {
            match scanner.scan(&buffer[used..], last) {
                Scan::Frame(header) => {
                    let size = header.frame_size();
                    let payload = &buffer[used + HEADER..used + size];
                    assembler.frame(&header, payload, at + used as u64);
                    if let Some(e) = assembler.failed.take() {
                        return Err(Error::io(path, "keep the index in a temporary file (TMPDIR) of", e));
                    }
                    if let Some((version, agent)) = assembler.refused.take() {
                        return Err(Error::OtherProtocol { path: path.to_path_buf(), version, agent, ours: PROTOCOL });
                    }
                    frames += 1;
                    used += size;
                }
                Scan::BadCrc(header) => {
                    assembler.bad_frame(&header);
                    used += header.frame_size();
                }
                Scan::Skip(n) => {
                    assembler.losses.add(Loss::BytesSkipped, n as u64);
                    used += n;
                    // A file of another kind is not searched up to its end.
                    if frames == 0 && at + used as u64 > 4 * MAX_FRAME as u64 {
                        break;
                    }
                }
                Scan::Cut(_) => {
                    assembler.losses.set(Loss::StreamCut, 1);
                    break;
                }
                Scan::End => break,
                Scan::More => {
                    buffer.drain(..used);
                    at += used as u64;
                    used = 0;
                    let before = buffer.len();
                    buffer.resize(before + chunk, 0);
                    let n = file
                        .fill_at(&mut buffer[before..], at + before as u64)
                        .map_err(|e| Error::io(path, "read", e))?;
                    buffer.truncate(before + n);
                    last = n == 0;
                }
            }
        }
        if frames == 0 {
            return Err(Error::Unrecognised {
                path: path.to_path_buf(),
                hint: "it has no frame of an agent; was the connection cut before any data arrived?",
            });
        }
        Ok(assembler.finish(path, file))
    }

    /// Phases of all producers, in order of their beginning.
    pub fn phases(&self) -> &[Phase] {
        &self.phases.phases
    }

    pub fn marks(&self) -> &[Mark] {
        &self.phases.marks
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The first step with this name.
    pub fn step(&self, name: &str) -> Option<&Step> {
        self.steps.iter().find(|s| s.name == name)
    }

    /// The contents of a stored file; holes read as zeros. Refuses more than `max_bytes`.
    pub fn read_file(&self, file: &StoredFile, max_bytes: u64) -> Result<Vec<u8>, Error> {
        if file.size > max_bytes {
            return Err(Error::Unsupported {
                path: self.path.clone(),
                what: format!("the stored file is {} bytes, more than the {max_bytes} wanted", file.size),
            });
        }
        let mut out = vec![0; file.size as usize];
        for piece in &file.pieces {
            let (begin, length) = (piece.offset as usize, piece.length as usize);
            self.file
                .read_exact_at(&mut out[begin..begin + length], piece.at)
                .map_err(|e| Error::io(&self.path, "read", e))?;
        }
        Ok(out)
    }
}

/// Takes frames in order and collects their contents.
struct Assembler {
    options: SessionOptions,
    sources: Vec<SourceState>,
    /// The source that has an id at the moment.
    current: HashMap<u16, usize>,
    phases: Phases,
    logs: Vec<LogLine>,
    losses: Losses,
    kept: usize,
    output_kept: usize,
    lanes: usize,
    index_memory: usize,
    spill: Option<Spill>,
    /// The error of writing the temporary file.
    failed: Option<std::io::Error>,
    /// The unsupported protocol of a producer, and the version of its agent.
    refused: Option<(u16, String)>,
}

/// The contents of a payload are invalid.
struct Malformed;

/// A field of a payload; payloads are little-endian on every machine.
fn u16_at(payload: &[u8], at: usize) -> Result<u16, Malformed> {
    Endian::Little.u16(payload, at).ok_or(Malformed)
}

fn u32_at(payload: &[u8], at: usize) -> Result<u32, Malformed> {
    Endian::Little.u32(payload, at).ok_or(Malformed)
}

fn u64_at(payload: &[u8], at: usize) -> Result<u64, Malformed> {
    Endian::Little.u64(payload, at).ok_or(Malformed)
}

impl Assembler {
    fn new(options: SessionOptions) -> Assembler {
        Assembler {
            options,
            sources: Vec::new(),
            current: HashMap::new(),
            phases: Phases::default(),
            logs: Vec::new(),
            losses: Losses::new(),
            kept: 0,
            output_kept: 0,
            lanes: 0,
            index_memory: 0,
            spill: None,
            failed: None,
            refused: None,
        }
    }

    fn source(&mut self, header: &Header) -> Option<usize> {
        let known = self.current.get(&header.source).copied();
        // A stream appended to another (two joined files): the id starts again.
        let again = header.kind == kind::HELLO && header.seq == 0 && known.is_some_and(|i| self.sources[i].seen > 0);
        match known {
            Some(i) if !again => Some(i),
            _ if self.sources.len() >= MAX_SOURCES => None,
            _ => {
                let i = self.sources.len();
                self.sources.push(SourceState { id: header.source, ..SourceState::default() });
                self.current.insert(header.source, i);
                Some(i)
            }
        }
    }

    /// Counts a frame of a source, and the missing frames before it.
    fn count(&mut self, i: usize, seq: u32) {
        let s = &mut self.sources[i];
        if seq > s.expected {
            s.gaps += u64::from(seq - s.expected);
        }
        s.expected = seq.saturating_add(1).max(s.expected);
        s.seen += 1;
    }

    fn bad_frame(&mut self, header: &Header) {
        self.losses.add(Loss::FramesBadCrc, 1);
        // The header has no checksum: it is used only if it continues the source's numbers.
        if let Some(&i) = self.current.get(&header.source)
            && self.sources[i].expected == header.seq
        {
            self.count(i, header.seq);
        }
    }

    fn frame(&mut self, header: &Header, payload: &[u8], at: u64) {
        let Some(i) = self.source(header) else {
            self.losses.add(Loss::FramesMalformed, 1);
            return;
        };
        self.count(i, header.seq);
        if self.payload(i, header, payload, at).is_err() {
            self.losses.add(Loss::FramesMalformed, 1);
        }
    }

    /// Reserves memory for this many bytes; fails if the limit is reached.
    fn keep(&mut self, bytes: usize) -> Result<(), Malformed> {
        if self.kept + bytes > MAX_KEPT {
            return Err(Malformed);
        }
        self.kept += bytes;
        Ok(())
    }

    /// Moves the index to the temporary file, except for lanes with a small index.
    fn spill(&mut self) -> std::io::Result<()> {
        let spill = match &mut self.spill {
            Some(spill) => spill,
            None => self.spill.insert(Spill::create()?),
        };
        let enough = INDEX_MEMORY / 2 / self.lanes.max(1);
        for lane in self.sources.iter_mut().flat_map(|s| s.building.values_mut()) {
            if lane.memory() >= enough {
                self.index_memory -= lane.spill(spill)?;
            }
        }
        Ok(())
    }

    /// A JSON text with a bounded number of values.
    fn json(&mut self, payload: &[u8]) -> Result<String, Malformed> {
        if payload.len() > MAX_JSON || !crate::bytes::has_few_values(payload, MAX_JSON_VALUES) {
            return Err(Malformed);
        }
        self.text(payload)
    }

    fn text(&mut self, payload: &[u8]) -> Result<String, Malformed> {
        self.keep(payload.len())?;
        Ok(String::from_utf8_lossy(payload).into_owned())
    }

    fn payload(&mut self, i: usize, header: &Header, payload: &[u8], at: u64) -> Result<(), Malformed> {
        match header.kind {
            kind::HELLO => self.hello(i, payload)?,
            kind::FACTS => self.sources[i].facts = Some(self.json(payload)?),
            kind::NAMES => {
                let values = crate::bytes::values(payload);
                let kept = self.sources[i].names_values;
                if kept + values > MAX_JSON_VALUES || self.keep(payload.len()).is_err() {
                    self.losses.add(Loss::NamesDropped, 1);
                    return Ok(());
                }
                let text = self.json(payload)?;
                self.sources[i].names_values += values;
                self.sources[i].names.push(text);
            }
            kind::STATS => self.sources[i].stats = Some(self.json(payload)?),
            kind::HEADER_PAGE => self.sources[i].header_page = Some(self.text(payload)?),
            kind::HEADER_EVENT => self.sources[i].header_event = Some(self.text(payload)?),
            kind::FORMAT => self.format(i, payload)?,
            kind::DATA => self.data(i, header, payload, at)?,
            kind::TASKS => self.tasks(i, payload)?,
            kind::PHASE => self.phase(i, payload)?,
            kind::OUTPUT => self.output(i, payload)?,
            kind::EXIT => {
                let (begin, end, status) = (u64_at(payload, 0)?, u64_at(payload, 8)?, u32_at(payload, 16)?);
                let step = self.sources[i].step();
                step.begin_ns = Some(begin);
                step.end_ns = Some(end);
                step.status = Some(status as i32);
            }
            kind::LOG => {
                let level = u32_at(payload, 0)?;
                if self.logs.len() < MAX_LOG_LINES {
                    let text = self.text(&payload[4..])?;
                    let source = self.sources[i].id;
                    self.logs.push(LogLine { source, level, text });
                } else {
                    self.losses.add(Loss::OutputBytesDropped, payload.len() as u64);
                }
            }
            kind::FILE => self.file(i, payload, at)?,
            kind::STEP => {
                let name = self.text(payload)?;
                self.sources[i].step().name = name;
            }
            kind::END => {
                let end = (u32_at(payload, 0)?, u32_at(payload, 4)?);
                let s = &mut self.sources[i];
                s.end = Some(end);
                if let Some(step) = &mut s.step {
                    step.finished = true;
                }
            }
            // For the waiting process; not a part of a recording.
            kind::PROGRESS => {}
            _ => self.losses.add(Loss::FramesUnknownType, 1),
        }
        Ok(())
    }

    /// The agent's data about itself and its kernel.
    fn hello(&mut self, i: usize, payload: &[u8]) -> Result<(), Malformed> {
        // In another protocol, the fields after the version may have other places: they are not read.
        let protocol = u16_at(payload, 0)?;
        if protocol != PROTOCOL {
            let agent = payload.get(16..).map(String::from_utf8_lossy).unwrap_or_default();
            let agent = agent.chars().filter(|c| !c.is_control()).take(40).collect();
            self.refused = Some((protocol, agent));
            return Ok(());
        }
        let hello = Hello {
            endian: if *payload.get(2).ok_or(Malformed)? == 0 { Endian::Little } else { Endian::Big },
            long_size: *payload.get(3).ok_or(Malformed)?,
            page_size: u32_at(payload, 4)?,
            subbuf_size: u32_at(payload, 8)?,
            cpus: u32_at(payload, 12)?,
        };
        if !matches!(hello.long_size, 4 | 8) || hello.subbuf_size > MAX_SUBBUF {
            return Err(Malformed);
        }
        let version = self.text(payload.get(16..).ok_or(Malformed)?)?;
        let s = &mut self.sources[i];
        s.agent_version = version;
        s.hello = Some(hello);
        Ok(())
    }

    /// A kernel format: system, name and text.
    fn format(&mut self, i: usize, payload: &[u8]) -> Result<(), Malformed> {
        let mut parts = payload.splitn(3, |&b| b == 0);
        let (Some(system), Some(_name), Some(text)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(Malformed);
        };
        if self.keep(2 * payload.len()).is_err() {
            self.losses.add(Loss::FormatsDropped, 1);
            return Ok(());
        }
        let text = String::from_utf8_lossy(text).into_owned();
        let system = String::from_utf8_lossy(system).into_owned();
        // Parsed at the end, because a later HELLO may still tell the byte order.
        self.sources[i].raw_formats.push((system, text));
        Ok(())
    }

    /// A CPU's sub-buffer: only its place is kept.
    fn data(&mut self, i: usize, header: &Header, payload: &[u8], at: u64) -> Result<(), Malformed> {
        let (cpu, instance) = (u16_at(payload, 0)?, u16_at(payload, 2)?);
        if instance > MAX_INSTANCE || cpu >= MAX_CPUS {
            return Err(Malformed);
        }
        let building = &mut self.sources[i].building;
        if !building.contains_key(&(instance, cpu)) {
            if self.lanes >= MAX_LANES {
                return Err(Malformed);
            }
            self.lanes += 1;
        }
        let lane = building.entry((instance, cpu)).or_default();
        self.index_memory += lane.push(at, header.frame_size() as u64);
        if self.index_memory > INDEX_MEMORY
            && let Err(e) = self.spill()
        {
            self.failed = Some(e);
        }
        Ok(())
    }

    /// Names of tasks.
    fn tasks(&mut self, i: usize, payload: &[u8]) -> Result<(), Malformed> {
        let (tasks, rest) = payload.as_chunks::<24>();
        if self.keep(payload.len()).is_err() {
            self.losses.add(Loss::NamesDropped, tasks.len() as u64);
            return Ok(());
        }
        for t in tasks {
            let (tid, tgid) = (Endian::Little.u32(t, 0).unwrap_or(0), Endian::Little.u32(t, 4).unwrap_or(0));
            let mut comm = [0; 16];
            comm.copy_from_slice(&t[8..24]);
            self.sources[i].tasks.push((TaskId(tid), ProcessId(tgid), comm));
        }
        if !rest.is_empty() {
            return Err(Malformed);
        }
        Ok(())
    }

    /// The beginning or end of a phase, or a mark.
    fn phase(&mut self, i: usize, payload: &[u8]) -> Result<(), Malformed> {
        let (time, phase_kind, pid) = (u64_at(payload, 0)?, u32_at(payload, 8)?, u32_at(payload, 12)?);
        let name = self.text(payload.get(16..).ok_or(Malformed)?)?;
        let id = self.sources[i].id;
        let (phases, losses) = (&mut self.phases, &mut self.losses);
        match phase_kind {
            0 => phases.begin(&name, time, TaskId(pid), id, losses),
            1 => phases.end(&name, time, losses),
            2 => phases.mark(&name, time, TaskId(pid), id, losses),
            _ => return Err(Malformed),
        }
        Ok(())
    }

    /// A part of a step's output.
    fn output(&mut self, i: usize, payload: &[u8]) -> Result<(), Malformed> {
        let fd = u32_at(payload, 0)?;
        let bytes = &payload[4..];
        let room_all = self.options.output_bytes.saturating_sub(self.output_kept);
        let limit = self.options.output_bytes_per_step;
        let step = self.sources[i].step();
        let out = match fd {
            1 => &mut step.stdout,
            2 => &mut step.stderr,
            _ => return Err(Malformed),
        };
        let take = bytes.len().min(limit.saturating_sub(out.len())).min(room_all);
        out.extend_from_slice(&bytes[..take]);
        let dropped = (bytes.len() - take) as u64;
        step.output_dropped += dropped;
        self.output_kept += take;
        self.losses.add(Loss::OutputBytesDropped, dropped);
        Ok(())
    }

    /// A part of a file that a step sent.
    fn file(&mut self, i: usize, payload: &[u8], at: u64) -> Result<(), Malformed> {
        let (offset, mode, path_length) = (u64_at(payload, 0)?, u32_at(payload, 8)?, u32_at(payload, 12)? as usize);
        let path = payload.get(16..16usize.checked_add(path_length).ok_or(Malformed)?).ok_or(Malformed)?;
        let begin = 16 + path_length + 1;
        if payload.get(begin - 1) != Some(&0) {
            return Err(Malformed);
        }
        let length = (payload.len() - begin) as u64;
        let end = offset.checked_add(length).ok_or(Malformed)?;
        let piece = Piece { offset, at: at + (HEADER + begin) as u64, length };
        self.keep(size_of::<Piece>())?;
        let path = String::from_utf8_lossy(path);
        let files = &mut self.sources[i].step().files;
        match files.iter_mut().rev().find(|f| f.path == path) {
            Some(f) => {
                f.size = f.size.max(end);
                f.pieces.push(piece);
            }
            None => {
                let path = path.into_owned();
                self.keep(path.len() + size_of::<StoredFile>())?;
                self.sources[i].step().files.push(StoredFile { path, mode, size: end, pieces: vec![piece] });
            }
        }
        Ok(())
    }

    fn finish(mut self, path: &Path, file: Input) -> Session {
        let mut failed = false;
        let spill = self.spill.take().map(Spill::into_input);
        let mut formats_memory = MAX_FORMATS_MEMORY;
        for s in &mut self.sources {
            // The end has the number of frames before it. Without an end, gaps in the numbers are counted.
            let missing = match s.end {
                Some((_, frames)) => (u64::from(frames) + 1).saturating_sub(s.seen),
                None => s.gaps,
            };
            self.losses.add(Loss::FramesMissing, missing);
            match s.end {
                None => self.losses.add(Loss::SourcesUnfinished, u64::from(!self.options.goes_on)),
                // FS_END_FAILURE. The failure of a step is in its status; a failed recorder or process 1 has lost data.
                Some((2, _)) if s.id == 0 || s.records() => {
                    self.losses.add(Loss::SourcesFailed, 1);
                    failed |= s.id == 0;
                }
                Some(_) => {}
            }
            let (endian, long_size) = s.hello.map_or((Endian::Little, 8), |h| (h.endian, h.long_size));
            let mut schemas = Schemas::new();
            for (system, text) in s.raw_formats.drain(..) {
                let added = match Schema::parse(&system, &text, endian, long_size) {
                    Ok(schema) => schemas.insert_within(schema, &mut formats_memory),
                    Err(_) => false,
                };
                s.losses.add(Loss::FormatsDropped, u64::from(!added));
            }
            s.schemas = Arc::new(schemas);
            for (key, mut index) in std::mem::take(&mut s.building) {
                index.seal(spill.as_ref());
                s.lanes.insert(key, Arc::new(index));
            }
        }
        self.phases.sort();
        let complete = !failed
            && [
                Loss::StreamCut,
                Loss::SourcesUnfinished,
                Loss::FramesMissing,
                Loss::FramesBadCrc,
                Loss::FramesMalformed,
                Loss::BytesSkipped,
            ]
            .iter()
            .all(|&l| self.losses.get(l) == 0);
        let mut recordings = Vec::new();
        let mut recording_sources = Vec::new();
        let mut steps = Vec::new();
        for (i, s) in self.sources.iter_mut().enumerate() {
            if s.records() {
                recordings.push(RecordingInfo {
                    source: s.id,
                    name: recording_name(s.facts.as_deref()),
                    cpus: s.hello.map_or(0, |h| h.cpus),
                    sub_buffers: s.lanes.values().map(|l| l.pages).sum(),
                    bytes: s.lanes.values().map(|l| l.bytes).sum(),
                    complete: matches!(s.end, Some((reason, _)) if reason != 2),
                });
                recording_sources.push(i);
            }
            steps.extend(s.step.take());
        }
        Session {
            steps,
            recordings,
            losses: self.losses,
            complete,
            logs: self.logs,
            phases: self.phases,
            path: path.to_path_buf(),
            file: Arc::new(file),
            sources: self.sources.into_iter().map(Arc::new).collect(),
            recording_sources,
        }
    }
}

fn recording_name(facts: Option<&str>) -> String {
    facts
        .and_then(|facts| serde_json::from_str::<Facts>(facts).ok())
        .and_then(|facts| facts.recording.name)
        .unwrap_or_default()
}
