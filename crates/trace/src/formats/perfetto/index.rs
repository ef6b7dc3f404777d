//! One pass over a trace's packets: finds the bundles of events of each CPU, and data that a trace has once.

use super::events::{Kind, Kinds};
use super::wire::{Fields, Wire, is_message, numbers};
use crate::error::Error;
use crate::formats::packed::{self, nameless};
use crate::input::Input;
use crate::losses::{Loss, Losses};
use std::collections::{HashMap, HashSet};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;

/// Fields of TracePacket (`trace_packet.proto`).
const FTRACE_EVENTS: u32 = 1;
const SEQUENCE: u32 = 10;
const PROCESS_TREE: u32 = 2;
const FTRACE_STATS: u32 = 34;
const TRACE_STATS: u32 = 35;
const DROPPED_BEFORE: u32 = 42;
const COMPRESSED: u32 = 50;
const MACHINE: u32 = 98;
/// Above the highest number that TracePacket has had.
const HIGHEST: u32 = 2000;

/// Largest packet that is read; Perfetto's own are below 1 MiB.
const MAX_PACKET: u64 = 16 << 20;
/// Limit for unpacking compressed packets: Perfetto packs some hundred KiB together.
const MAX_UNPACKED: u64 = 16 << 20;
/// Largest number of bundles: 48 MiB, allocated in steps of twice as many.
const MAX_BUNDLES: usize = 1 << 21;
/// Largest number of CPUs.
const MAX_CPUS: usize = 512;
/// Largest number of producers of packets with kernel events.
const MAX_SEQUENCES: usize = 4096;
/// Largest bundle of events, and the limit for those of all CPUs together.
const SMALLEST_BOUND: u64 = 512 << 10;
const ALL_BUNDLES: u64 = 64 << 20;
/// Largest number of task names from the process tree.
const MAX_NAMES: usize = 100_000;

/// The place of a bundle.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bundle {
    /// Time of the first event.
    first: u64,
    pub offset: u64,
    pub length: u32,
}

/// `FTRACE_CLOCK_UNKNOWN`
const UNKNOWN_CLOCK: u64 = 1;

/// The result of one pass.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// Bundles by CPU, in the file's order.
    pub lanes: Vec<(u16, Vec<Bundle>)>,
    pub names: Vec<(u32, Vec<u8>)>,
    pub kinds: Kinds,
    pub losses: Losses,
    /// The clock in the bundles (`FtraceClock`); [`UNKNOWN_CLOCK`] if they differ.
    pub clock: u64,
    pub packets: u64,
    clock_said: bool,
}

/// Whether the bytes begin like a trace: a sequence of packets with the fields of a packet.
pub(crate) fn looks_like(head: &[u8]) -> bool {
    // Otherwise every empty line would be the tag or the length of a packet.
    if head.iter().all(|&byte| byte == b'\n') {
        return false;
    }
    let mut at = 0;
    let mut packets = 0;
    while packets < 4 && head.get(at) == Some(&0x0a) {
        let Some((length, size)) = varint(&head[at + 1..]) else { break };
        let begin = at + 1 + size;
        let Some(end) = usize::try_from(length).ok().and_then(|n| begin.checked_add(n)) else { return false };
        if end > head.len() {
            // For a packet that extends beyond the head, the first field must have bytes.
            let tag = varint(&head[begin.min(head.len())..]).map(|(tag, _)| tag);
            return packets > 0
                || tag.is_some_and(|tag| [FTRACE_EVENTS, COMPRESSED].contains(&((tag >> 3) as u32)) && tag & 7 == 2);
        }
        if !is_message(&head[begin..end], |number| number < HIGHEST) {
            return false;
        }
        packets += 1;
        at = end;
    }
    packets > 1 || packets == 1 && at == head.len()
}

/// A protobuf varint and its size in bytes.
fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0u64;
    for (n, &byte) in bytes.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f).checked_shl(7 * n as u32)?;
        if byte & 0x80 == 0 {
            return Some((value, n + 1));
        }
    }
    None
}

/// Passes every packet to `f`, with its offset. Returns false if the file ends inside a packet. Packets that are too large are counted.
fn packets(input: &Input, skipped: &mut u64, mut f: impl FnMut(u64, &[u8]) -> io::Result<()>) -> io::Result<bool> {
    let mut reader = BufReader::with_capacity(256 << 10, input.reader());
    let (mut at, mut buffer) = (0u64, Vec::new());
    loop {
        let Some((tag, size)) = read_varint(&mut reader)? else { return Ok(size_left(&mut reader)? == 0) };
        at += size;
        // Not the beginning of a packet: its length is unknown, so reading stops.
        if tag & 7 != 2 {
            return Ok(false);
        }
        let Some((length, size)) = read_varint(&mut reader)? else { return Ok(false) };
        at += size;
        if length > MAX_PACKET || tag != 0x0a {
            let passed = io::copy(&mut (&mut reader).take(length), &mut io::sink())?;
            *skipped += passed;
            if passed < length {
                return Ok(false);
            }
        } else {
            buffer.clear();
            (&mut reader).take(length).read_to_end(&mut buffer)?;
            if (buffer.len() as u64) < length {
                return Ok(false);
            }
            f(at, &buffer)?;
        }
        at += length;
    }
}

fn size_left(reader: &mut impl BufRead) -> io::Result<usize> {
    Ok(reader.fill_buf()?.len())
}

/// A varint and its size; `None` at the end, or if it is invalid.
fn read_varint(reader: &mut impl BufRead) -> io::Result<Option<(u64, u64)>> {
    let (mut value, mut byte) = (0u64, [0]);
    for n in 0..10 {
        if reader.read(&mut byte)? == 0 {
            return Ok(None);
        }
        value |= u64::from(byte[0] & 0x7f).wrapping_shl(7 * n);
        if byte[0] & 0x80 == 0 {
            return Ok(Some((value, u64::from(n) + 1)));
        }
    }
    Ok(None)
}

/// The whole packets in the data of a compressed packet. The flag is false if a part is cut or damaged.
fn whole_packets(bytes: &[u8]) -> (&[u8], bool) {
    let mut at = 0;
    while at < bytes.len() {
        let packet = |at: usize| {
            let (length, size) = varint(bytes.get(at + 1..)?).filter(|_| bytes[at] == 0x0a)?;
            let end = (at + 1 + size).checked_add(usize::try_from(length).ok()?)?;
            (end <= bytes.len()).then_some(end)
        };
        match packet(at) {
            Some(end) => at = end,
            None => return (&bytes[..at], false),
        }
    }
    (bytes, true)
}

/// Writes the trace with its compressed packets unpacked to a nameless file. Returns it with the number of packets that are cut or damaged;
/// `None` if no packet is compressed.
pub(super) fn unpacked(path: &Path, input: &Input) -> Result<Option<(Input, u64)>, Error> {
    let reading = |e| Error::io(path, "read", e);
    let mut any = false;
    let inside = |packet: &[u8]| Fields::new(packet).any(|(number, _)| number == COMPRESSED);
    packets(input, &mut 0, |_, packet| {
        any |= inside(packet);
        Ok(())
    })
    .map_err(reading)?;
    if !any {
        return Ok(None);
    }
    let given = input.given().map_err(reading)?;
    let most = packed::most(given);
    let mut file = io::BufWriter::with_capacity(256 << 10, nameless(path)?);
    let (mut written, mut damaged, mut inner) = (0u64, 0u64, Vec::new());
    let mut too_large = false;
    let unpacked = packets(input, &mut 0, |_, packet| {
        for (number, value) in Fields::new(packet) {
            if let (COMPRESSED, Wire::Bytes(packed)) = (number, value) {
                // Cut or damaged: the packets before that place are kept.
                inner.clear();
                let read = flate2::bufread::ZlibDecoder::new(packed).take(MAX_UNPACKED).read_to_end(&mut inner);
                let (whole, all) = whole_packets(&inner);
                damaged += u64::from(read.is_err() || !all);
                file.write_all(whole)?;
                written += whole.len() as u64;
            }
        }
        if !inside(packet) {
            file.write_all(&[0x0a])?;
            let mut length = packet.len();
            while length >= 0x80 {
                file.write_all(&[length as u8 | 0x80])?;
                length >>= 7;
            }
            file.write_all(&[length as u8])?;
            file.write_all(packet)?;
            written += packet.len() as u64 + 4;
        }
        too_large = written > most;
        if too_large { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(()) }
    });
    if too_large {
        return Err(Error::Unsupported { path: path.to_path_buf(), what: packed::grows_too_far(given, most) });
    }
    unpacked.map_err(reading)?;
    file.into_inner()
        .map(|file| Some((Input::File(file), damaged)))
        .map_err(|e| Error::io(path, "unpack", e.into_error()))
}

/// One pass over all packets.
pub(super) fn index(input: &Input) -> io::Result<Index> {
    let mut index = Index { kinds: Kinds::shipped(), ..Index::default() };
    let mut by_cpu: HashMap<u16, usize> = HashMap::new();
    let (mut skipped, mut bundles, mut stats, mut overwritten) = (0, 0usize, HashMap::new(), 0);
    let (mut others, mut dropped, mut sequences) = (0, 0, HashSet::new());
    let whole = packets(input, &mut skipped, |at, packet| {
        index.packets += 1;
        // A host can record its guests too. Devices and threads of the guests have the same numbers as the host's.
        let machine = Fields::new(packet).filter(|(number, _)| *number == MACHINE).last();
        if machine.and_then(|(_, value)| value.number()).is_some_and(|id| id != 0) {
            others += 1;
            return Ok(());
        }
        let (mut fields, mut sequence, mut after_a_gap, mut events) = (Fields::new(packet), 0, false, false);
        for (number, value) in fields.by_ref() {
            events |= number == FTRACE_EVENTS;
            match (number, value) {
                (SEQUENCE, Wire::Number(id)) => sequence = id,
                (DROPPED_BEFORE, Wire::Number(said)) => after_a_gap = said != 0,
                (FTRACE_EVENTS, Wire::Bytes(bytes)) => {
                    let (cpu, first) = index.bundle(bytes);
                    // Offset of the bundle in the file: it is a part of the packet.
                    let inside = bytes.as_ptr() as usize - packet.as_ptr() as usize;
                    let bundle = Bundle { first, offset: at + inside as u64, length: bytes.len() as u32 };
                    let full = by_cpu.len() == MAX_CPUS && !by_cpu.contains_key(&cpu);
                    if full || bundles == MAX_BUNDLES {
                        index.losses.add(Loss::BytesSkipped, bytes.len() as u64);
                        continue;
                    }
                    bundles += 1;
                    let lane = *by_cpu.entry(cpu).or_insert(index.lanes.len());
                    if lane == index.lanes.len() {
                        index.lanes.push((cpu, Vec::new()));
                    }
                    index.lanes[lane].1.push(bundle);
                }
                (PROCESS_TREE, Wire::Bytes(bytes)) => index.tree(bytes),
                (TRACE_STATS, Wire::Bytes(bytes)) => overwritten = overwritten_chunks(bytes),
                (FTRACE_STATS, Wire::Bytes(bytes)) => statistics(bytes, &mut stats),
                _ => {}
            }
        }
        if fields.damaged {
            index.losses.add(Loss::RecordsMalformed, 1);
        }
        if events {
            // The first packet of a sequence has this flag too.
            let first = sequences.len() < MAX_SEQUENCES && sequences.insert(sequence);
            dropped += u64::from(after_a_gap && !first);
        }
        Ok(())
    })?;
    index.losses.add(Loss::BytesSkipped, skipped);
    index.losses.add(Loss::DataCut, u64::from(!whole));
    index.losses.add(Loss::GapsOfUnknownSize, overwritten + dropped);
    index.losses.add(Loss::OtherMachines, others);
    for (begin, end) in stats.into_values() {
        let over = |n: usize| end.get(n).zip(begin.get(n)).map_or(0, |(e, b): (&u64, &u64)| e.saturating_sub(*b));
        index.losses.add(Loss::EventsOverwritten, over(0));
        index.losses.add(Loss::CommitOverruns, over(1));
        index.losses.add(Loss::EventsDropped, over(2));
    }
    // Larger bundles are not read.
    let most = SMALLEST_BOUND.max(ALL_BUNDLES / index.lanes.len().max(1) as u64);
    for (_, lane) in &mut index.lanes {
        // Bundles may not be in the order of their events. The sort is stable: with equal times the file's order stays.
        if !lane.is_sorted_by_key(|bundle| bundle.first) {
            lane.sort_by_key(|bundle| bundle.first);
        }
        let too_large: u64 = lane.iter().map(|b| u64::from(b.length)).filter(|&n| n > most).sum();
        index.losses.add(Loss::BytesSkipped, too_large);
        lane.retain(|bundle| u64::from(bundle.length) <= most);
    }
    index.lanes.sort_by_key(|(cpu, _)| *cpu);
    Ok(index)
}

impl Index {
    /// Reads the parts of a bundle besides its events. Returns its CPU and the time of its first event.
    fn bundle(&mut self, bytes: &[u8]) -> (u16, u64) {
        let (mut cpu, mut first, mut clock) = (0, None::<u64>, 0);
        let mut times = Vec::new();
        for (number, value) in Fields::new(bytes) {
            match (number, value) {
                (1, Wire::Number(n)) => cpu = u16::try_from(n).unwrap_or(u16::MAX),
                (2, Wire::Bytes(event)) if first.is_none() => {
                    first = Fields::new(event).find(|(n, _)| *n == 1).and_then(|(_, v)| v.number());
                }
                (4, Wire::Bytes(compact)) => {
                    for (_, times_of) in Fields::new(compact).filter(|(n, _)| matches!(n, 1 | 7)) {
                        let mut steps = Vec::new();
                        numbers(times_of, &mut steps);
                        times.extend(steps.first());
                    }
                }
                (5, Wire::Number(said)) => clock = said,
                (8, Wire::Bytes(_)) => self.losses.add(Loss::SubBuffersDamaged, 1),
                (11, Wire::Bytes(descriptor)) => self.kinds.declare(descriptor),
                _ => {}
            }
        }
        if std::mem::replace(&mut self.clock_said, true) && self.clock != clock {
            self.clock = UNKNOWN_CLOCK;
        } else {
            self.clock = clock;
        }
        (cpu, first.into_iter().chain(times).min().unwrap_or(0))
    }

    /// `ProcessTree`: names of processes and of their threads.
    fn tree(&mut self, bytes: &[u8]) {
        for (number, value) in Fields::new(bytes) {
            let (Wire::Bytes(one), 1 | 2) = (value, number) else { continue };
            let (mut id, mut name) = (0, None);
            for (field, value) in Fields::new(one) {
                match (number, field, value) {
                    (_, 1, Wire::Number(n)) => id = n as u32,
                    (2, 2, Wire::Bytes(text)) => name = Some(text),
                    // The first word of the command line.
                    (1, 3, Wire::Bytes(text)) if name.is_none() => name = Some(comm(text)),
                    _ => {}
                }
            }
            if let Some(name) = name.filter(|name| !name.is_empty())
                && self.names.len() < MAX_NAMES
            {
                self.names.push((id, name[..name.len().min(64)].to_vec()));
            }
        }
    }
}

/// The first name of a process with this command: 15 bytes of the file name (`TASK_COMM_LEN`). Names of kernel threads contain slashes.
fn comm(command: &[u8]) -> &[u8] {
    let kernel_thread = !command.starts_with(b"/") && !command.starts_with(b".");
    let name = if kernel_thread { command } else { command.rsplit(|&b| b == b'/').next().unwrap_or(command) };
    &name[..name.len().min(if kernel_thread { 64 } else { 15 })]
}

/// `TraceStats`: chunks in Perfetto's own buffers that newer chunks overwrote.
fn overwritten_chunks(bytes: &[u8]) -> u64 {
    let buffers = Fields::new(bytes).filter_map(|(number, value)| value.bytes().filter(|_| number == 1));
    let counts = buffers.map(|buffer| Fields::new(buffer).find(|(n, _)| *n == 3).and_then(|(_, v)| v.number()));
    counts.map(Option::unwrap_or_default).fold(0, u64::saturating_add)
}

/// `FtraceStats`: each CPU's losses at the beginning and at the end.
fn statistics(bytes: &[u8], into: &mut HashMap<u64, ([u64; 3], [u64; 3])>) {
    let (mut at_end, mut cpus) = (false, Vec::new());
    for (number, value) in Fields::new(bytes) {
        match (number, value) {
            (1, Wire::Number(phase)) => at_end = phase == 2,
            (2, Wire::Bytes(cpu)) => {
                let mut lost = [0; 3];
                let mut id = 0;
                for (field, value) in Fields::new(cpu) {
                    match (field, value.number()) {
                        (1, Some(n)) => id = n,
                        (3, Some(n)) => lost[0] = n,
                        (4, Some(n)) => lost[1] = n,
                        (8, Some(n)) => lost[2] = n,
                        _ => {}
                    }
                }
                cpus.push((id, lost));
            }
            _ => {}
        }
    }
    for (cpu, lost) in cpus {
        if into.len() < MAX_CPUS || into.contains_key(&cpu) {
            let (begin, end) = into.entry(cpu).or_default();
            *(if at_end { end } else { begin }) = lost;
        }
    }
}

/// `GenericEventDescriptor`: describes a kind of event that Perfetto does not know, like a protobuf message.
impl Kinds {
    fn declare(&mut self, bytes: &[u8]) {
        let (mut id, mut group, mut descriptor) = (0, &b""[..], &b""[..]);
        for (number, value) in Fields::new(bytes) {
            match (number, value) {
                (1, Wire::Number(n)) => id = n as u32,
                (2, Wire::Bytes(b)) => descriptor = b,
                (3, Wire::Bytes(b)) => group = b,
                _ => {}
            }
        }
        let (mut name, mut fields) = (&b""[..], Vec::new());
        // DescriptorProto: name 1, field 2; FieldDescriptorProto: name 1, number 3, type 5.
        for (number, value) in Fields::new(descriptor) {
            match (number, value) {
                (1, Wire::Bytes(b)) => name = b,
                (2, Wire::Bytes(field)) if fields.len() < 64 => {
                    let (mut called, mut number, mut kind) = (&b""[..], vec![], vec![]);
                    for (part, value) in Fields::new(field) {
                        match part {
                            1 => called = value.bytes().unwrap_or_default(),
                            3 => numbers(value, &mut number),
                            5 => numbers(value, &mut kind),
                            _ => {}
                        }
                    }
                    // int64, int32, sfixed32, sfixed64, sint32, sint64 (`FieldDescriptorProto.Type`).
                    let signed = matches!(kind.first(), Some(3 | 5 | 15..=18));
                    fields.push((number.first().copied().unwrap_or(0) as u32, called, signed));
                }
                _ => {}
            }
        }
        if let Some(kind) = Kind::described(group, name, &fields) {
            self.add(id, kind);
        }
    }
}
