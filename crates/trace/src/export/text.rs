//! Writes every field of every record as a line of text, at about the speed of memory.
//!
//! Costly decisions are made once. A plan for each format has the place and the printed form of every field. The words of a line (names of
//! fields, tasks and CPUs) are stored in blocks of a fixed size. A block is copied whole, and its length is added: that compiles to a few
//! moves, while a copy of variable size is a call.

use crate::error::Error;
use crate::events::TimeNs;
use crate::ids::TaskId;
use crate::merged::MergedTrace;
use crate::record::Record;
use crate::ring::Missed;
use crate::ring::schema::{Field, FieldKind, Schema, Value};
use crate::trace::Trace;
use std::io::{self, Write};

/// Writes every record as a line:
/// `[BUFFER: ]COMM-TID [CPU] SECONDS.NANOSECONDS: EVENT: NAME=VALUE …`, with all fields but the `common_` ones in the format's order.
/// `COMM` is `<...>` if it is unknown. Pointers and `unsigned long` are hexadecimal, other integers decimal, arrays `[1,2]`, bytes
/// hexadecimal in angle brackets. In text, everything but printable ASCII is escaped. `?` is a field that the record is too short for. A
/// line of its own reports events missing before a record. Returns the number of records.
pub fn text(trace: &Trace, out: &mut dyn Write) -> Result<u64, Error> {
    let mut printer = Printer::new(out);
    let names = trace.names();
    trace.for_each_record(&mut |record| {
        if printer.failed.is_none() {
            printer.record(record, |tid, time| names.span(tid, time));
        }
    })?;
    printer.finish().map_err(|e| Error::io(trace.path(), "write the export of", e))
}

/// Like [`text`], for several traces in order of time: each line begins with the path of its trace and a colon.
pub fn text_merged(merged: &MergedTrace, out: &mut dyn Write) -> Result<u64, Error> {
    let sources = merged.sources();
    let mut printer = Printer::new(out);
    let heads: Vec<String> = super::paths(merged).map(|path| format!("{}: ", path.escape_debug())).collect();
    // Formats and tasks are known for each source separately.
    let mut plans: Vec<Vec<Option<Box<RecordLine>>>> = sources.iter().map(|_| Vec::new()).collect();
    let mut tasks: Vec<Vec<Option<Task>>> = sources.iter().map(|_| vec![None; TASKS]).collect();
    merged.for_each_record(&mut |source, record| {
        if printer.failed.is_some() {
            return;
        }
        let s = &sources[source];
        let names = s.trace.names();
        std::mem::swap(&mut printer.plans, &mut plans[source]);
        std::mem::swap(&mut printer.tasks, &mut tasks[source]);
        printer.head.clone_from(&heads[source]);
        printer.record(record, |tid, time| {
            let (name, from, until) = names.span(tid, s.own_time(TimeNs(time)).0);
            let here = |t: u64| if t == u64::MAX { t } else { s.time(TimeNs(t)).0 };
            (name, here(from).min(time), here(until))
        });
        std::mem::swap(&mut printer.plans, &mut plans[source]);
        std::mem::swap(&mut printer.tasks, &mut tasks[source]);
    })?;
    printer.finish().map_err(|e| Error::io(super::first_path(merged), "write the export of", e))
}

/// Prepared text: a block of `N` bytes that is copied whole, of which the first `length` bytes count.
#[derive(Clone, Copy)]
struct Block<const N: usize> {
    bytes: [u8; N],
    length: u8,
}

impl<const N: usize> Block<N> {
    /// `None` if the text does not fit.
    fn of(text: &[u8]) -> Option<Block<N>> {
        let mut bytes = [0; N];
        bytes.get_mut(..text.len())?.copy_from_slice(text);
        Some(Block { bytes, length: text.len() as u8 })
    }
}

/// Bytes that are collected before a write, plus room for one step of a line.
const GATHERED: usize = 64 << 10;
const STEP: usize = 256;

struct Output<'a> {
    out: &'a mut dyn Write,
    buffer: Vec<u8>,
    at: usize,
    failed: Option<io::Error>,
}

impl Output<'_> {
    /// Makes room for one step.
    #[inline(always)]
    fn room(&mut self) {
        if self.at > GATHERED {
            self.flush();
        }
    }

    #[cold]
    #[inline(never)]
    fn flush(&mut self) {
        if self.failed.is_none() {
            self.failed = self.out.write_all(&self.buffer[..self.at]).err();
        }
        self.at = 0;
    }

    /// Appends a block of at most `STEP` bytes. Call `room` before.
    #[inline(always)]
    fn block<const N: usize>(&mut self, block: &Block<N>) {
        self.fixed(&block.bytes, usize::from(block.length));
    }

    /// Copies all of `bytes` and counts `length` of them. Call `room` before.
    #[inline(always)]
    fn fixed<const N: usize>(&mut self, bytes: &[u8; N], length: usize) {
        self.buffer[self.at..self.at + N].copy_from_slice(bytes);
        self.at += length;
    }

    #[inline(always)]
    fn byte(&mut self, byte: u8) {
        self.buffer[self.at] = byte;
        self.at += 1;
    }

    /// Appends text of any length.
    fn text(&mut self, mut text: &[u8]) {
        while !text.is_empty() {
            self.room();
            let (now, rest) = text.split_at(text.len().min(STEP));
            self.buffer[self.at..self.at + now.len()].copy_from_slice(now);
            self.at += now.len();
            text = rest;
        }
    }

    fn escaped(&mut self, text: &[u8]) {
        if text.iter().all(|b| matches!(b, b' '..=b'~') && *b != b'\\') {
            self.text(text);
        } else {
            for byte in text {
                self.room();
                for b in std::ascii::escape_default(*byte) {
                    self.byte(b);
                }
            }
        }
    }

    #[inline(always)]
    fn decimal(&mut self, value: u64) {
        if value < 10 {
            self.byte(b'0' + value as u8);
            return;
        }
        // Digits end at index 20, so a block of 20 bytes from the first digit is always inside.
        let mut digits = [0u8; 40];
        let (mut at, mut rest) = (20, value);
        while rest >= 100 {
            let pair = (rest % 100) as usize;
            rest /= 100;
            at -= 2;
            digits[at..at + 2].copy_from_slice(&PAIRS[pair]);
        }
        at -= 2;
        digits[at..at + 2].copy_from_slice(&PAIRS[rest as usize]);
        at += usize::from(rest < 10);
        let mut block = [0; 20];
        block.copy_from_slice(&digits[at..at + 20]);
        self.fixed(&block, 20 - at);
    }

    #[inline(always)]
    fn signed(&mut self, value: i64) {
        if value < 0 {
            self.byte(b'-');
        }
        self.decimal(value.unsigned_abs());
    }

    /// Hexadecimal, with `0x`.
    #[inline(always)]
    fn hex(&mut self, value: u64) {
        let digits = (16 - value.leading_zeros() as usize / 4).max(1);
        let shifted = value << (4 * (16 - digits));
        let mut block = [0; 18];
        block[..2].copy_from_slice(b"0x");
        block[2..10].copy_from_slice(&nibbles((shifted >> 32) as u32));
        block[10..].copy_from_slice(&nibbles(shifted as u32));
        self.fixed(&block, 2 + digits);
    }

    /// Nine digits with leading zeros.
    #[inline(always)]
    fn nine(&mut self, value: u32) {
        let (high, low) = (value / 10_000, value % 10_000);
        let mut block = [b'0'; 9];
        block[0] = b'0' + (high / 10_000) as u8;
        let high = high % 10_000;
        block[1..3].copy_from_slice(&PAIRS[(high / 100) as usize]);
        block[3..5].copy_from_slice(&PAIRS[(high % 100) as usize]);
        block[5..7].copy_from_slice(&PAIRS[(low / 100) as usize]);
        block[7..9].copy_from_slice(&PAIRS[(low % 100) as usize]);
        self.fixed(&block, 9);
    }
}

/// The two digits of every number below 100.
const PAIRS: [[u8; 2]; 128] = {
    let mut pairs = [[b'0'; 2]; 128];
    let mut i = 0;
    while i < 100 {
        pairs[i] = [b'0' + (i / 10) as u8, b'0' + (i % 10) as u8];
        i += 1;
    }
    pairs
};

/// Eight hexadecimal digits: spreads four bits to each byte, then moves values above nine up to the letters.
#[inline(always)]
fn nibbles(value: u32) -> [u8; 8] {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let mut x = u64::from(value);
    x = (x | x << 16) & 0x0000_ffff_0000_ffff;
    x = (x | x << 8) & 0x00ff_00ff_00ff_00ff;
    x = (x | x << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    let letters = ((x + 6 * ONES) >> 4) & ONES;
    (x + u64::from(b'0') * ONES + letters * u64::from(b'a' - b'0' - 10)).to_be_bytes()
}

/// The printed form of a field.
enum How {
    /// Unsigned: a mask for the field's bits.
    Unsigned(u64),
    Hex(u64),
    /// Signed: the number of bits above the sign.
    Signed(u32),
    /// Any other field, by index.
    Other,
}

struct PrintedField {
    how: How,
    offset: usize,
    field: u32,
    /// " name="; `None` if it is too long for a block.
    name: Option<Block<32>>,
}

/// The printed form of one format's records.
struct RecordLine {
    /// Address of the format: two traces can have different formats with one id.
    of: *const Schema,
    event: Vec<u8>,
    event_block: Option<Block<64>>,
    little: bool,
    steps: Vec<PrintedField>,
}

impl RecordLine {
    fn new(schema: &Schema) -> RecordLine {
        let mut event = b": ".to_vec();
        schema.name.bytes().for_each(|b| event.extend(std::ascii::escape_default(b)));
        event.push(b':');
        let steps = schema.fields.iter().enumerate().filter(|(_, f)| !f.common).map(|(i, f)| PrintedField {
            how: how(f),
            offset: f.offset as usize,
            field: i as u32,
            name: Block::of(&field_name(f)),
        });
        RecordLine {
            of: schema,
            event_block: Block::of(&event),
            event,
            little: schema.endian == crate::bytes::Endian::Little,
            steps: steps.collect(),
        }
    }
}

fn field_name(field: &Field) -> Vec<u8> {
    // Field names have only letters, digits and underscores: the format's parser accepts no others.
    format!(" {}=", field.name).into_bytes()
}

fn how(field: &Field) -> How {
    if field.kind != FieldKind::Int {
        return How::Other;
    }
    let bits = 8 * field.size;
    let mask = u64::MAX >> (64 - bits);
    let address = field.type_text.ends_with('*') || field.type_text == "unsigned long";
    match (address, field.signed) {
        (true, _) => How::Hex(mask),
        (_, true) => How::Signed(64 - bits),
        _ => How::Unsigned(mask),
    }
}

/// "COMM-TID" of a task, and the time that it holds for.
#[derive(Clone, Copy)]
struct Task {
    tid: TaskId,
    from: u64,
    until: u64,
    text: Block<48>,
}

/// Tasks whose text is cached. Two tasks may share a place; then the text is made again.
const TASKS: usize = 256;
const CPUS: usize = 64;

struct Printer<'a> {
    output: Output<'a>,
    /// Text at the beginning of every line.
    head: String,
    plans: Vec<Option<Box<RecordLine>>>,
    tasks: Vec<Option<Task>>,
    /// " [CPU] ".
    cpus: Vec<Block<16>>,
    second: u64,
    /// "SECONDS.".
    second_text: Block<24>,
    lines: u64,
    failed: Option<io::Error>,
}

impl<'a> Printer<'a> {
    fn new(out: &'a mut dyn Write) -> Printer<'a> {
        Printer {
            output: Output { out, buffer: vec![0; GATHERED + 2 * STEP], at: 0, failed: None },
            head: String::new(),
            plans: Vec::new(),
            tasks: vec![None; TASKS],
            cpus: (0..CPUS as u16).map_while(cpu_text).collect(),
            second: u64::MAX,
            second_text: Block { bytes: [0; 24], length: 0 },
            lines: 0,
            failed: None,
        }
    }

    fn finish(mut self) -> io::Result<u64> {
        self.output.flush();
        match self.failed.or(self.output.failed) {
            Some(e) => Err(e),
            None => self.output.out.flush().map(|()| self.lines),
        }
    }

    /// `span` returns a task's name at a time, and the beginning and end of the time that it holds for.
    #[inline]
    fn record<'n>(&mut self, r: &Record<'_>, span: impl Fn(TaskId, u64) -> (Option<&'n str>, u64, u64)) {
        self.lines += 1;
        if r.missed != Missed::Nothing {
            self.missed(r);
        }
        if !self.head.is_empty() {
            self.output.text(self.head.as_bytes());
        }
        if !r.buffer.is_empty() {
            self.output.escaped(r.buffer.as_bytes());
            self.output.text(b": ");
        }
        let (tid, time) = (r.tid(), r.time.0);
        match &self.tasks[tid.0 as usize % TASKS] {
            Some(t) if t.tid == tid && t.from <= time && time < t.until => {
                self.output.room();
                self.output.block(&t.text);
            }
            _ => self.new_task(tid, time, span(tid, time)),
        }
        self.output.room();
        match self.cpus.get(usize::from(r.cpu)) {
            Some(cpu) => self.output.block(cpu),
            None => self.output.text(format!(" [{:03}] ", r.cpu).as_bytes()),
        }
        let second = time / 1_000_000_000;
        if second != self.second {
            self.new_second(second);
        }
        self.output.room();
        self.output.block(&self.second_text);
        self.output.nine((time % 1_000_000_000) as u32);

        let id = usize::from(r.schema.id);
        let known = matches!(self.plans.get(id), Some(Some(p)) if std::ptr::eq(p.of, r.schema));
        if !known {
            self.new_plan(r.schema);
        }
        let Some(Some(plan)) = self.plans.get(id) else { return };
        let output = &mut self.output;
        match &plan.event_block {
            Some(event) => output.block(event),
            None => output.text(&plan.event),
        }
        for step in &plan.steps {
            output.room();
            match &step.name {
                Some(name) => output.block(name),
                None => output.text(&field_name(&r.schema.fields[step.field as usize])),
            }
            // Reads eight bytes at once if the record has them; the mask keeps the field's bits.
            let word = match r.data.get(step.offset..step.offset + 8).and_then(|b| <[u8; 8]>::try_from(b).ok()) {
                Some(b) if plan.little => u64::from_le_bytes(b),
                _ => {
                    slow_field(output, r, step);
                    continue;
                }
            };
            match step.how {
                How::Unsigned(mask) => output.decimal(word & mask),
                How::Hex(mask) => output.hex(word & mask),
                How::Signed(above) => output.signed((word << above) as i64 >> above),
                How::Other => slow_field(output, r, step),
            }
        }
        output.room();
        output.byte(b'\n');
    }

    #[cold]
    fn missed(&mut self, r: &Record<'_>) {
        let line = match r.missed {
            Missed::Nothing => return,
            Missed::Events(n) => format!("CPU:{} [{n} EVENTS DROPPED]\n", r.cpu),
            Missed::Unknown => format!("CPU:{} [EVENTS DROPPED]\n", r.cpu),
        };
        self.output.text(self.head.as_bytes());
        self.output.text(line.as_bytes());
    }

    #[cold]
    #[inline(never)]
    fn new_task(&mut self, tid: TaskId, time: u64, (comm, from, until): (Option<&str>, u64, u64)) {
        let mut text = Vec::new();
        comm.unwrap_or("<...>").bytes().for_each(|b| text.extend(std::ascii::escape_default(b)));
        text.extend_from_slice(format!("-{tid}").as_bytes());
        self.output.text(&text);
        debug_assert!(from <= time);
        self.tasks[tid.0 as usize % TASKS] = Block::of(&text).map(|text| Task { tid, from, until, text });
    }

    #[cold]
    #[inline(never)]
    fn new_second(&mut self, second: u64) {
        self.second = second;
        // 2^64 ns have eleven digits of seconds.
        if let Some(text) = Block::of(format!("{second}.").as_bytes()) {
            self.second_text = text;
        }
    }

    #[cold]
    #[inline(never)]
    fn new_plan(&mut self, schema: &Schema) {
        let id = usize::from(schema.id);
        if self.plans.len() <= id {
            self.plans.resize_with(id + 1, || None);
        }
        self.plans[id] = Some(Box::new(RecordLine::new(schema)));
    }
}

fn cpu_text(cpu: u16) -> Option<Block<16>> {
    Block::of(format!(" [{cpu:03}] ").as_bytes())
}

/// Prints fields that are not integers, are at the end of a record, or have the other byte order.
#[inline(never)]
fn slow_field(output: &mut Output<'_>, r: &Record<'_>, step: &PrintedField) {
    let field = &r.schema.fields[step.field as usize];
    let hex = matches!(step.how, How::Hex(_));
    match r.value(field) {
        None => output.text(b"?"),
        Some(Value::Unsigned(v)) if hex => output.hex(v),
        Some(Value::Signed(v)) if hex => output.hex(v as u64 & (u64::MAX >> (64 - 8 * field.size.clamp(1, 8)))),
        Some(value) => any_value(output, value),
    }
}

fn any_value(output: &mut Output<'_>, value: Value<'_>) {
    output.room();
    match value {
        Value::Unsigned(v) => output.decimal(v),
        Value::Signed(v) => output.signed(v),
        Value::Text(text) => output.escaped(text),
        Value::Array(array) => {
            output.byte(b'[');
            for (i, value) in (0..array.len()).filter_map(|i| array.get(i)).enumerate() {
                if i > 0 {
                    output.byte(b',');
                }
                any_value(output, value);
            }
            output.room();
            output.byte(b']');
        }
        Value::Bytes(bytes) => {
            output.byte(b'<');
            for &b in bytes {
                output.room();
                output.fixed(&[b"0123456789abcdef"[usize::from(b >> 4)], b"0123456789abcdef"[usize::from(b & 15)]], 2);
            }
            output.byte(b'>');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(f: impl Fn(&mut Output<'_>)) -> String {
        let mut bytes = Vec::new();
        let mut output = Output { out: &mut bytes, buffer: vec![0; GATHERED + 2 * STEP], at: 0, failed: None };
        f(&mut output);
        output.flush();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn integers_are_those_of_the_standard_library() {
        let mut values = vec![0, 1, 9, 10, 99, 100, 101, 999, 1000, 65_535, u64::MAX, u64::MAX - 1, 1 << 63];
        for shift in 0..64 {
            values.extend([1 << shift, (1 << shift) - 1, 0x0123_4567_89ab_cdef_u64.rotate_left(shift)]);
        }
        for digits in 1..20 {
            values.extend([10u64.pow(digits) - 1, 10u64.pow(digits), 10u64.pow(digits) + 1]);
        }
        for v in values {
            assert_eq!(printed(|o| o.decimal(v)), v.to_string());
            assert_eq!(printed(|o| o.signed(v as i64)), (v as i64).to_string());
            assert_eq!(printed(|o| o.hex(v)), format!("{v:#x}"));
            let nine = (v % 1_000_000_000) as u32;
            assert_eq!(printed(|o| o.nine(nine)), format!("{nine:09}"));
        }
    }

    #[test]
    fn text_of_any_length_leaves_whole_and_escaped() {
        let long = "x".repeat(3 * GATHERED + 7);
        assert_eq!(printed(|o| o.text(long.as_bytes())), long);
        assert_eq!(printed(|o| o.escaped(b"a\n\x1b[2J\\\xff")), "a\\n\\x1b[2J\\\\\\xff");
        let array = Value::Bytes(&[0x0f; 40_000]);
        assert_eq!(printed(|o| any_value(o, array)), format!("<{}>", "0f".repeat(40_000)));
    }
}
