//! Traces that have the kernel's ring buffers: trace.dat and the agent's stream.

mod duplicates;
pub mod merge;
pub mod pages;
pub mod parallel;

use self::duplicates::Duplicates;
use self::merge::{Lane, LaneCounts, Raw, merge};
use self::pages::PageSource;
use self::parallel::{batch_size, merge_ahead};
use crate::decode::names::Names;
use crate::decode::tasks::TaskReader;
use crate::events::TimeNs;
use crate::input::Input;
use crate::losses::{Loss, Losses, TASKS, stats_by_cpu};
use crate::record::Record;
use crate::ring::codec::Codec;
use crate::ring::schema::{Layout, Schema, Schemas};
use crate::source::Source;
use foldhash::HashMap;
use serde_json::Value;
use std::io;
use std::sync::Arc;

/// The ring buffers in a file.
#[derive(Debug)]
pub(crate) struct Ring {
    pub file: Arc<Input>,
    pub layout: Layout,
    pub schemas: Arc<Schemas>,
    pub buffers: Vec<RingBuffer>,
    pub header_page: String,
    pub header_event: String,
    /// The kernel's name of the clock.
    pub clock: String,
    pub cpus: u32,
    /// Added to every time, for trace-cmd's options DATE and OFFSET.
    pub time_offset: i64,
    /// Texts of another tool that are only copied, at their place in the file.
    pub kallsyms: Option<Blob>,
    pub printk: Option<Blob>,
    pub uname: String,
    /// Events that the recorder read, by the kernel's counts at the end; empty if the trace has no counts.
    pub read: Delivered,
    /// Number of threads that read ahead; `None`: chosen by the file and the machine.
    pub threads: Option<usize>,
}

/// Largest text of another tool (kallsyms) that is copied.
const MAX_CARRIED: u64 = 24 << 20;

/// A text that is only copied.
#[derive(Clone, Debug)]
pub(crate) enum Blob {
    /// Its place in the file.
    File { offset: u64, size: u64 },
    /// Compressed. When it is unpacked, its size (u32) is put before it.
    Packed { offset: u64, packed: u32, unpacked: u32, codec: Codec },
    /// Unpacked.
    Memory(Arc<[u8]>),
}

impl Blob {
    /// The text. Empty if it is too large or damaged: no event needs it.
    pub fn read(blob: Option<&Blob>, file: &Input) -> io::Result<Vec<u8>> {
        match blob {
            Some(Blob::Memory(text)) => Ok(text.to_vec()),
            Some(Blob::File { offset, size }) if *size <= MAX_CARRIED => {
                let mut text = vec![0; *size as usize];
                file.read_exact_at(&mut text, *offset)?;
                Ok(text)
            }
            Some(Blob::Packed { offset, packed, unpacked, codec })
                if u64::from(*unpacked) <= MAX_CARRIED && packed <= unpacked && *unpacked > 4 =>
            {
                let mut bytes = vec![0; *packed as usize];
                file.read_exact_at(&mut bytes, *offset)?;
                let mut text = vec![0; *unpacked as usize];
                Ok(if codec.unpack(&bytes, &mut text) { text.split_off(4) } else { Vec::new() })
            }
            _ => Ok(Vec::new()),
        }
    }

    pub fn size(&self) -> u64 {
        match self {
            Blob::File { size, .. } => *size,
            Blob::Packed { unpacked, .. } => u64::from(*unpacked).saturating_sub(4),
            Blob::Memory(bytes) => bytes.len() as u64,
        }
    }
}

/// One ring buffer: the main one (without a name) or an instance.
#[derive(Debug)]
pub(crate) struct RingBuffer {
    pub name: String,
    /// By CPU.
    pub lanes: Vec<(u16, PageSource)>,
}

/// Name of the buffer with task names (`FS_INSTANCE_TASKS`).
pub(crate) const TASKS_BUFFER: &str = "tasks";

/// Number of events that the recorder read, from `FS_STATS`.
#[derive(Debug, Default)]
pub(crate) struct Delivered {
    /// Events by (instance, CPU).
    by_cpu: HashMap<(u64, u64), u64>,
    /// One instance has only task names: the trace is flashscope's own recording.
    of_tasks: bool,
}

impl Delivered {
    pub fn of(stats: &Value) -> Delivered {
        let mut out = Delivered::default();
        for (instance, cpu) in stats_by_cpu(stats) {
            out.of_tasks |= instance == TASKS;
            if let (Some(c), Some(read)) = (cpu["cpu"].as_u64(), cpu["read"].as_u64()) {
                out.by_cpu.insert((instance, c), read);
            }
        }
        out
    }
}

impl Ring {
    fn run(&self, mut f: impl FnMut(&Record<'_>)) -> io::Result<Losses> {
        let with_events = self.buffers.iter().filter(|b| b.name != TASKS_BUFFER && !b.lanes.is_empty());
        if with_events.count() < 2 {
            return self.run_buffers(None, f);
        }
        let mut duplicates = Duplicates::default();
        let mut losses = self.run_buffers(None, |record| {
            if !duplicates.is_one(record) {
                f(record);
            }
        })?;
        losses.add(Loss::EventsRepeated, duplicates.count);
        Ok(losses)
    }

    /// Number of threads that read ahead, and their batch size; `None`: the caller's thread reads everything.
    fn prefetch(&self, only: Option<usize>) -> Option<(usize, usize)> {
        let buffers = self.buffers.iter().enumerate().filter(|(b, _)| only.is_none_or(|o| o == *b));
        let sources = || buffers.clone().flat_map(|(_, buffer)| buffer.lanes.iter().map(|(_, pages)| pages));
        let lanes = sources().count();
        let threads = match self.threads {
            Some(threads) => threads,
            None if sources().any(PageSource::is_packed) => cores() - 1,
            None => 0,
        };
        let batch = batch_size(lanes, sources().map(PageSource::largest).max().unwrap_or(0))?;
        Some((threads.min(lanes), batch)).filter(|&(threads, _)| threads > 0)
    }

    /// One pass over all buffers, or over one of them. Returns the losses of decoding.
    fn run_buffers(&self, only: Option<usize>, mut f: impl FnMut(&Record<'_>)) -> io::Result<Losses> {
        let count: usize = self.buffers.iter().map(|b| b.lanes.len()).sum();
        let mut lanes = Vec::with_capacity(count);
        for (b, buffer) in self.buffers.iter().enumerate() {
            if only.is_none_or(|o| o == b) {
                for (cpu, pages) in &buffer.lanes {
                    lanes.push(Lane::new(*cpu, b as u16, pages.open(&self.file, count)));
                }
            }
        }
        let mut reader = Reader {
            ring: self,
            unknown: Schema::unknown(self.layout.endian),
            without_format: 0,
            short: 0,
            odd_times: 0,
        };
        // There are two closures, so that each is compiled into its own merge.
        match self.prefetch(only) {
            Some((threads, batch)) => {
                merge_ahead(&self.layout, &mut lanes, threads, batch, |raw| reader.hand(raw, &mut f))
            }
            None => merge(&self.layout, &mut lanes, |raw| reader.hand(raw, &mut f)),
        }?;

        let mut losses = Losses::new();
        losses.add(Loss::RecordsOfUnknownType, reader.without_format);
        losses.add(Loss::RecordsMalformed, reader.short);
        losses.add(Loss::TimesImpossible, reader.odd_times);
        for lane in &lanes {
            let LaneCounts { records, damaged, backwards, missed_events, gaps_of_unknown_size } = lane.counts;
            losses.add(Loss::SubBuffersDamaged, damaged);
            losses.add(Loss::TimesBackwards, backwards);
            // For task names the kernel's own count is used: they are not I/O events.
            if !(self.read.of_tasks && u64::from(lane.buffer) == TASKS) {
                losses.add(Loss::EventsMissedAtGaps, missed_events);
                losses.add(Loss::GapsOfUnknownSize, gaps_of_unknown_size);
            }
            if let Some(&read) = self.read.by_cpu.get(&(u64::from(lane.buffer), u64::from(lane.cpu))) {
                losses.add(Loss::EventsNotDelivered, read.saturating_sub(records));
            }
        }
        if only.is_none() {
            for (&(buffer, cpu), &read) in &self.read.by_cpu {
                if !lanes.iter().any(|l| (u64::from(l.buffer), u64::from(l.cpu)) == (buffer, cpu)) {
                    losses.add(Loss::EventsNotDelivered, read);
                }
            }
        }
        Ok(losses)
    }

    /// One pass over the task buffer, if the trace has one.
    pub fn for_each_of_tasks(&self, f: impl FnMut(&Record<'_>)) -> io::Result<()> {
        match self.tasks_buffer() {
            Some(only) => self.run_buffers(Some(only), f).map(drop),
            None => Ok(()),
        }
    }

    fn tasks_buffer(&self) -> Option<usize> {
        self.buffers.iter().position(|b| b.name == TASKS_BUFFER && !b.lanes.is_empty())
    }
}

impl Source for Ring {
    fn clock(&self) -> &str {
        &self.clock
    }

    fn cpus(&self) -> u32 {
        self.cpus
    }

    fn schemas(&self) -> Box<dyn Iterator<Item = &Arc<Schema>> + '_> {
        Box::new(self.schemas.iter())
    }

    fn names(&self, names: &mut Names) {
        let mut reader = TaskReader::new(&self.schemas);
        if reader.is_useful() {
            // After an error, the names that were read before it stay.
            let _ = self.run_buffers(self.tasks_buffer(), |record| {
                reader.record(record.time.0, record.schema, record.data, names);
            });
        }
    }

    fn set_threads(&mut self, threads: usize) {
        self.threads = Some(threads);
    }

    fn for_each_record(&self, f: &mut dyn FnMut(&Record<'_>)) -> io::Result<Losses> {
        self.run(f)
    }
}

/// Adds the format to a record's bytes.
struct Reader<'r> {
    ring: &'r Ring,
    unknown: Schema,
    without_format: u64,
    short: u64,
    /// Records with a time that no clock can have.
    odd_times: u64,
}

impl Reader<'_> {
    #[inline(always)]
    fn hand(&mut self, raw: Raw<'_>, f: &mut impl FnMut(&Record<'_>)) {
        let ring = self.ring;
        let time = TimeNs(raw.time.wrapping_add_signed(ring.time_offset));
        if !time.is_possible() {
            self.odd_times += 1;
            return;
        }
        let id = ring.layout.endian.u16(raw.data, 0).unwrap_or(0);
        let schema = match ring.schemas.get(id) {
            Some(schema) => &**schema,
            None => {
                self.without_format += 1;
                &self.unknown
            }
        };
        if raw.data.len() < schema.min_size as usize {
            self.short += 1;
        }
        f(&Record {
            time,
            cpu: raw.cpu,
            buffer: &ring.buffers[usize::from(raw.buffer)].name,
            missed: raw.missed,
            schema,
            data: raw.data,
        });
    }
}

/// Number of cores that this process may use.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
