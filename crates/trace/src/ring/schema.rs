//! Event formats as tracefs prints them, and the layout of ring sub-buffers.
//!
//! Sources: `Documentation/trace/events.rst` ("Event formats") and `kernel/trace/trace_events.c` (`f_show`,
//! Linux 6.1) for the text; `__data_loc` and `__rel_loc` as `include/trace/stages/` defines them.

use crate::bytes::{Endian, sign_extend, until_nul};
use std::sync::Arc;

/// Longest format text that is read; the kernel's are below 64 KiB.
const MAX_TEXT: usize = 1 << 20;
/// Largest number of fields of an event; the kernel's largest events have below 200.
const MAX_FIELDS: usize = 4096;
/// Memory limit for all formats of a trace. The 2,323 events of a 6.18 kernel without modules take 6 MiB, 2 MiB of them text.
pub(crate) const MAX_FORMATS_MEMORY: usize = 24 << 20;

/// The type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// One integer of 1, 2, 4 or 8 bytes.
    Int,
    /// Text of a fixed size, NUL-padded.
    Text,
    /// `count` integers of `element` bytes.
    Array { element: u32, count: u32 },
    /// Elements of `element` bytes elsewhere in the record: the field holds `length << 16 | offset`. The offset counts from the record's
    /// start, or from the field's end if `relative`.
    Dynamic { element: u32, text: bool, relative: bool },
    /// Any other type, as bytes.
    Opaque,
}

/// One field of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub name: String,
    /// The type in the format text, array brackets included (`unsigned long args[6]` gives `unsigned long[6]`).
    pub type_text: String,
    pub offset: u32,
    pub size: u32,
    pub signed: bool,
    pub kind: FieldKind,
    /// One of the `common_…` fields at the beginning of every event.
    pub common: bool,
}

/// A field's value, borrowed from the record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    Unsigned(u64),
    Signed(i64),
    /// Text up to its NUL; may be invalid UTF-8.
    Text(&'a [u8]),
    Array(Array<'a>),
    Bytes(&'a [u8]),
}

/// Integers side by side in a record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Array<'a> {
    bytes: &'a [u8],
    element: u32,
    signed: bool,
    endian: Endian,
}

impl<'a> Array<'a> {
    pub fn len(&self) -> usize {
        self.bytes.len() / self.element.max(1) as usize
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    pub fn get(&self, index: usize) -> Option<Value<'a>> {
        let size = self.element as usize;
        let raw = self.endian.uint(self.bytes, index.checked_mul(size)?, size)?;
        Some(if self.signed { Value::Signed(sign_extend(raw, size)) } else { Value::Unsigned(raw) })
    }
}

/// The format of one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    pub system: String,
    pub name: String,
    /// `common_type` of its records.
    pub id: u16,
    pub fields: Vec<Field>,
    /// The format file as the kernel gave it.
    pub text: String,
    pub endian: Endian,
    /// Smallest size of a record, bytes.
    pub min_size: u32,
}

impl Schema {
    /// Reads a format file's text. `long_size` is the kernel's.
    pub fn parse(system: &str, text: &str, endian: Endian, long_size: u8) -> Result<Schema, FormatError> {
        if text.len() > MAX_TEXT {
            return Err(FormatError::TooLong);
        }
        let mut name = None;
        let mut id = None;
        let mut fields = Vec::new();
        for line in text.lines() {
            let line = line.trim();
            if let Some(rest) = line.strip_prefix("name:") {
                name.get_or_insert_with(|| rest.trim().to_string());
            } else if let Some(rest) = line.strip_prefix("ID:") {
                let n = rest.trim().parse().map_err(|_| FormatError::BadId)?;
                id.get_or_insert(n);
            } else if line.starts_with("field:") {
                if fields.len() == MAX_FIELDS {
                    return Err(FormatError::TooLong);
                }
                fields.push(parse_field(line, long_size)?);
            } else if line.starts_with("print fmt:") {
                break;
            }
        }
        // ftrace's own events end with arrays that may be shorter than the format states (kernel_stack, print).
        let min_size = fields
            .iter()
            .filter(|f: &&Field| f.size > 0 && (system != "ftrace" || f.kind == FieldKind::Int))
            .map(|f| f.offset + f.size)
            .max()
            .unwrap_or(0);
        fields.shrink_to_fit();
        Ok(Schema {
            system: system.to_string(),
            name: name.filter(|n| !n.is_empty()).ok_or(FormatError::NoName)?,
            id: id.ok_or(FormatError::BadId)?,
            fields,
            text: text.to_string(),
            endian,
            min_size,
        })
    }

    /// Memory use, counted for an allocator with 16-byte steps.
    pub(crate) fn memory(&self) -> usize {
        let heap = |s: &String| (s.capacity() + 8).next_multiple_of(16).max(32);
        let names: usize = self.fields.iter().map(|f| heap(&f.name) + heap(&f.type_text)).sum();
        let own = heap(&self.system) + heap(&self.name) + heap(&self.text);
        size_of::<Schema>() + 16 + own + self.fields.capacity() * size_of::<Field>() + names
    }

    /// The placeholder for a format that the trace does not have.
    pub(crate) fn unknown(endian: Endian) -> Schema {
        Schema {
            system: "unknown".to_string(),
            name: "unknown".to_string(),
            id: 0,
            fields: Vec::new(),
            text: String::new(),
            endian,
            min_size: 0,
        }
    }

    /// The field of this name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|f| f.name == name)
    }

    /// A field's value; `None` if the record is too short.
    #[inline]
    pub fn value<'a>(&self, field: &Field, data: &'a [u8]) -> Option<Value<'a>> {
        let at = field.offset as usize;
        let size = field.size as usize;
        match field.kind {
            FieldKind::Int => {
                let raw = self.endian.uint(data, at, size)?;
                Some(if field.signed { Value::Signed(sign_extend(raw, size)) } else { Value::Unsigned(raw) })
            }
            FieldKind::Text => {
                // Size 0: the field extends to the end of the record (ftrace:print's `buf`).
                let end = if size == 0 { data.len() } else { at + size };
                Some(Value::Text(until_nul(data.get(at..end)?)))
            }
            FieldKind::Array { element, .. } => Some(Value::Array(Array {
                bytes: data.get(at..at + size)?,
                element,
                signed: field.signed,
                endian: self.endian,
            })),
            FieldKind::Dynamic { element, text, relative } => {
                let loc = self.endian.u32(data, at)?;
                let base = if relative { at + 4 } else { 0 };
                let begin = base + (loc & 0xffff) as usize;
                let bytes = data.get(begin..begin + (loc >> 16) as usize)?;
                Some(if text {
                    Value::Text(until_nul(bytes))
                } else if matches!(element, 1 | 2 | 4 | 8) {
                    Value::Array(Array { bytes, element, signed: false, endian: self.endian })
                } else {
                    Value::Bytes(bytes)
                })
            }
            FieldKind::Opaque => {
                let end = if size == 0 { data.len() } else { at + size };
                Some(Value::Bytes(data.get(at..end)?))
            }
        }
    }

    /// A field's bytes; for a dynamic field, the bytes that it points to.
    #[inline]
    pub fn raw<'a>(&self, field: &Field, data: &'a [u8]) -> Option<&'a [u8]> {
        let at = field.offset as usize;
        match field.kind {
            FieldKind::Dynamic { relative, .. } => {
                let loc = self.endian.u32(data, at)?;
                let base = if relative { at + 4 } else { 0 };
                let begin = base + (loc & 0xffff) as usize;
                data.get(begin..begin + (loc >> 16) as usize)
            }
            _ if field.size == 0 => data.get(at..),
            _ => data.get(at..at + field.size as usize),
        }
    }

    /// An integer field's stored value, zero-extended.
    #[inline]
    pub fn uint(&self, field: &Field, data: &[u8]) -> Option<u64> {
        if field.kind != FieldKind::Int {
            return None;
        }
        self.endian.uint(data, field.offset as usize, field.size as usize)
    }

    /// A `long`, as system calls return it: signed, even if a 32-bit kernel's format calls it unsigned.
    pub fn long(&self, field: &Field, data: &[u8]) -> Option<i64> {
        match self.value(field, data)? {
            Value::Signed(v) => Some(v),
            Value::Unsigned(v) if field.size == 4 => Some(i64::from(v as u32 as i32)),
            Value::Unsigned(v) => Some(v as i64),
            _ => None,
        }
    }
}

/// Why a format text is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    #[error("no \"name:\" line")]
    NoName,
    #[error("no \"ID:\" line with a number below 65536")]
    BadId,
    #[error("a field line without offset, size and name")]
    BadField,
    #[error("longer than any kernel's format")]
    TooLong,
}

fn parse_field(line: &str, long_size: u8) -> Result<Field, FormatError> {
    let bad = FormatError::BadField;
    let (mut declaration, mut offset, mut size, mut signed) = (None, None, None, false);
    for part in line.split(';') {
        let Some((key, value)) = part.trim().split_once(':') else {
            continue;
        };
        let value = value.trim();
        match key {
            "field" | "field special" => declaration = Some(value),
            // __rel_loc and __data_loc have 16-bit offsets, so a record is never larger than 64 KiB.
            "offset" => {
                offset = value.parse::<u32>().ok().filter(|&v| v <= 0xffff);
            }
            "size" => size = value.parse::<u32>().ok().filter(|&v| v <= 0xffff),
            "signed" => signed = value == "1",
            _ => {}
        }
    }
    let declaration = declaration.ok_or(bad)?;
    let (offset, size) = (offset.ok_or(bad)?, size.ok_or(bad)?);

    // "type name", "type name[count]", "__data_loc type[] name".
    let (head, brackets) = match declaration.find('[') {
        Some(at) if declaration.trim_end().ends_with(']') => (&declaration[..at], Some(&declaration[at..])),
        _ => (declaration, None),
    };
    let head = head.trim_end();
    let not_a_name = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
    let begin = head.char_indices().rfind(|&(_, c)| not_a_name(c)).map_or(0, |(i, c)| i + c.len_utf8());
    let name = &head[begin..];
    let base = head[..begin].trim_end();
    if name.is_empty() {
        return Err(bad);
    }
    let (dynamic, relative, element_type) = if let Some(rest) = base.strip_prefix("__data_loc") {
        (true, false, rest)
    } else if let Some(rest) = base.strip_prefix("__rel_loc") {
        (true, true, rest)
    } else {
        (false, false, base)
    };
    let element_type = element_type.split('[').next().unwrap_or("").trim();
    let plain_char = element_type == "char" || element_type == "const char";
    let element = element_size(element_type, long_size);

    let kind = if dynamic {
        if size != 4 {
            return Err(bad);
        }
        FieldKind::Dynamic { element: element.unwrap_or(1), text: plain_char, relative }
    } else if let Some(brackets) = brackets {
        if plain_char {
            FieldKind::Text
        } else {
            // The count may be an expression or a macro's name; then it follows from the size.
            let count = brackets.trim_matches(|c| c == '[' || c == ']').trim().parse::<u32>().ok().filter(|&n| n > 0);
            let element = element.or_else(|| count.filter(|n| size % n == 0).map(|n| size / n));
            match element {
                Some(e @ (1 | 2 | 4 | 8)) if size > 0 && size % e == 0 => {
                    FieldKind::Array { element: e, count: size / e }
                }
                _ => FieldKind::Opaque,
            }
        }
    } else if matches!(size, 1 | 2 | 4 | 8) {
        FieldKind::Int
    } else {
        FieldKind::Opaque
    };
    let type_text = match brackets {
        Some(b) if !dynamic => format!("{base}{b}"),
        _ => base.to_string(),
    };
    Ok(Field { common: name.starts_with("common_"), name: name.to_string(), type_text, offset, size, signed, kind })
}

/// Element size of a C type that does not depend on a header.
fn element_size(type_text: &str, long_size: u8) -> Option<u32> {
    if type_text.ends_with('*') {
        return Some(u32::from(long_size));
    }
    let words: Vec<&str> = type_text
        .split_whitespace()
        .filter(|w| !matches!(*w, "const" | "volatile" | "unsigned" | "signed" | "struct" | "enum"))
        .collect();
    match words.as_slice() {
        ["char" | "u8" | "s8" | "__u8" | "__s8" | "bool" | "uint8_t" | "int8_t" | "__be8"] => Some(1),
        ["short" | "u16" | "s16" | "__u16" | "__s16" | "__le16" | "__be16" | "uint16_t"] | ["short", "int"] => Some(2),
        ["int" | "u32" | "s32" | "__u32" | "__s32" | "__le32" | "__be32" | "uint32_t" | "x32"] => Some(4),
        ["u64" | "s64" | "__u64" | "__s64" | "__le64" | "__be64" | "uint64_t" | "x64"]
        | ["long", "long"]
        | ["long", "long", "int"] => Some(8),
        ["long" | "size_t" | "ssize_t"] | ["long", "int"] => Some(u32::from(long_size)),
        // "unsigned" alone.
        [] if !type_text.is_empty() && type_text.contains("signed") => Some(4),
        _ => None,
    }
}

/// The layout of a ring buffer's sub-buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    pub endian: Endian,
    /// Size of the kernel's `long`: 4 or 8.
    pub long_size: u8,
    /// Offset and size of the commit field.
    pub commit_offset: u32,
    pub commit_size: u8,
    /// Offset of the first event.
    pub data_offset: u32,
    /// Size of a whole sub-buffer, header included.
    pub subbuf_size: u32,
}

/// Largest sub-buffer that is read: the size of a stream's largest frame.
pub const MAX_SUBBUF: u32 = 1 << 20;

impl Layout {
    /// The layout if there is no `header_page`: a 64-bit time, a `long`, the data (`struct buffer_data_page`,
    /// `kernel/trace/ring_buffer.c`).
    pub fn of(endian: Endian, long_size: u8, subbuf_size: u32) -> Layout {
        let long_size = if long_size == 4 { 4 } else { 8 };
        Layout {
            endian,
            long_size,
            commit_offset: 8,
            commit_size: long_size,
            data_offset: 8 + u32::from(long_size),
            subbuf_size: subbuf_size.clamp(64, MAX_SUBBUF),
        }
    }

    /// Like `of`, but the text of `events/header_page` takes precedence. `subbuf_size` 0: take that from the text too.
    pub fn parse(text: &str, endian: Endian, long_size: u8, subbuf_size: u32) -> Layout {
        let mut layout = Layout::of(endian, long_size, subbuf_size);
        let (mut commit, mut data) = (None, None);
        for line in text.lines() {
            let Ok(field) = parse_field(line.trim(), long_size) else {
                continue;
            };
            match field.name.as_str() {
                "commit" => commit = Some((field.offset, field.size)),
                "data" => data = Some((field.offset, field.size)),
                _ => {}
            }
        }
        if let Some((offset, size @ (4 | 8))) = commit
            && offset <= 64
        {
            layout.commit_offset = offset;
            layout.commit_size = size as u8;
            layout.long_size = size as u8;
            layout.data_offset = offset + size;
        }
        if let Some((offset, size)) = data
            && (layout.commit_offset + u32::from(layout.commit_size)..=128).contains(&offset)
        {
            layout.data_offset = offset;
            if subbuf_size == 0 {
                layout.subbuf_size = (offset + size).clamp(64, MAX_SUBBUF);
            }
        }
        layout
    }
}

/// The formats of one recording, by event id.
#[derive(Clone, Debug, Default)]
pub struct Schemas {
    by_id: Vec<Option<Arc<Schema>>>,
    order: Vec<u16>,
}

impl Schemas {
    pub fn new() -> Schemas {
        Schemas::default()
    }

    /// Adds a format. It replaces an earlier format with the same id.
    pub fn insert(&mut self, schema: Schema) {
        let id = schema.id;
        let at = usize::from(id);
        if self.by_id.len() <= at {
            self.by_id.resize(at + 1, None);
        }
        if self.by_id[at].replace(Arc::new(schema)).is_none() {
            self.order.push(id);
        }
    }

    /// Like `insert`, if the remaining `memory` is enough. Returns false, and adds nothing, if it is not.
    #[must_use]
    pub(crate) fn insert_within(&mut self, schema: Schema, memory: &mut usize) -> bool {
        let freed = self.get(schema.id).map_or(0, |old| old.memory());
        match (*memory + freed).checked_sub(schema.memory()) {
            Some(left) => *memory = left,
            None => return false,
        }
        self.insert(schema);
        true
    }

    #[inline]
    pub fn get(&self, id: u16) -> Option<&Arc<Schema>> {
        self.by_id.get(usize::from(id))?.as_ref()
    }

    pub fn len(&self) -> usize {
        self.order.len()
    }

    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// The formats in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Schema>> + '_ {
        self.order.iter().filter_map(|&id| self.get(id))
    }

    pub fn named(&self, name: &str) -> Option<&Arc<Schema>> {
        self.iter().find(|s| s.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXEC: &str = "name: sched_process_exec\nID: 365\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
        \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:__data_loc char[] filename;\toffset:8;\tsize:4;\tsigned:0;\n\
        \tfield:pid_t pid;\toffset:12;\tsize:4;\tsigned:1;\n\
        \tfield:pid_t old_pid;\toffset:16;\tsize:4;\tsigned:1;\n\n\
        print fmt: \"filename=%s pid=%d old_pid=%d\", __get_str(filename), REC->pid, REC->old_pid\n";

    fn one(field: &str, long_size: u8) -> Result<Field, FormatError> {
        parse_field(&format!("field:{field}"), long_size)
    }

    #[test]
    fn reads_names_offsets_and_dynamic_text() {
        let s = Schema::parse("sched", EXEC, Endian::Little, 8).unwrap();
        assert_eq!((s.name.as_str(), s.id), ("sched_process_exec", 365));
        assert_eq!(s.min_size, 20);
        let mut data = vec![0x6d, 1, 0, 0, 7, 0, 0, 0];
        data.extend(0x0009_0014u32.to_le_bytes());
        data.extend(7i32.to_le_bytes());
        data.extend((-1i32).to_le_bytes());
        data.extend(b"/bin/cat\0\0\0\0");
        let v = |n: &str| s.value(s.field(n).unwrap(), &data).unwrap();
        assert_eq!(v("filename"), Value::Text(b"/bin/cat"));
        assert_eq!(v("pid"), Value::Signed(7));
        assert_eq!(v("old_pid"), Value::Signed(-1));
        assert_eq!(v("common_type"), Value::Unsigned(365));
        // A location that points behind the record.
        data[10] = 0xff;
        assert_eq!(s.value(s.field("filename").unwrap(), &data), None);
    }

    #[test]
    fn field_kinds_and_widths() {
        let f = one("unsigned long args[6];offset:16;size:48;signed:0", 8).unwrap();
        assert_eq!(f.kind, FieldKind::Array { element: 8, count: 6 });
        let f = one("unsigned long args[6];offset:12;size:24;signed:0", 4).unwrap();
        assert_eq!(f.kind, FieldKind::Array { element: 4, count: 6 });
        assert_eq!(f.type_text, "unsigned long[6]");
        let f = one("char comm[TASK_COMM_LEN];offset:12;size:16;signed:0", 8).unwrap();
        assert_eq!((f.kind, f.name.as_str()), (FieldKind::Text, "comm"));
        let f = one("__rel_loc u32[] x;offset:12;size:4;signed:0", 8).unwrap();
        assert_eq!(f.kind, FieldKind::Dynamic { element: 4, text: false, relative: true });
        let f = one("const char * name;offset:8;size:8;signed:0", 8).unwrap();
        assert_eq!((f.kind, f.type_text.as_str()), (FieldKind::Int, "const char *"));
        let f = one("struct cgroup_subsys_state *css;offset:8;size:4;signed:0", 4).unwrap();
        assert_eq!((f.kind, f.name.as_str()), (FieldKind::Int, "css"));
        // A struct of a size that is no integer.
        let f = one("struct in6_addr addr;offset:8;size:16;signed:0", 8).unwrap();
        assert_eq!(f.kind, FieldKind::Opaque);
        // An array of a typedef: the count gives the element's size.
        let f = one("sector_t s[2];offset:8;size:16;signed:0", 8).unwrap();
        assert_eq!(f.kind, FieldKind::Array { element: 8, count: 2 });
        let f = one("__u8 cmd[32];offset:8;size:32;signed:0", 8).unwrap();
        assert_eq!(f.kind, FieldKind::Array { element: 1, count: 32 });
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in [
            "",
            "field:",
            "field:;offset:0;size:1;",
            "field:int x;size:4;",
            "field:int x;offset:-1;size:4;",
            "field:int x;offset:70000;size:4;",
            "field:int x;offset:4;size:4294967296;",
            "field:__data_loc char[] s;offset:8;size:8;",
            "field:[];offset:8;size:8;",
        ] {
            assert!(parse_field(bad, 8).is_err(), "{bad}");
        }
        assert_eq!(Schema::parse("s", "name: x\nID: 65536\n", Endian::Little, 8).unwrap_err(), FormatError::BadId);
        assert_eq!(Schema::parse("s", "ID: 5\n", Endian::Little, 8).unwrap_err(), FormatError::NoName);
        for cut in 0..EXEC.len() {
            let _ = Schema::parse("s", &EXEC[..cut], Endian::Big, 4);
        }
    }

    #[test]
    fn header_page_of_32_and_64_bit_kernels() {
        let text64 = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
            \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
            \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
            \tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n";
        let l = Layout::parse(text64, Endian::Little, 8, 0);
        assert_eq!((l.commit_size, l.data_offset, l.subbuf_size), (8, 16, 4096));
        let text32 = text64
            .replace("commit;\toffset:8;\tsize:8", "commit;\toffset:8;\tsize:4")
            .replace("offset:16;\tsize:4080", "offset:12;\tsize:4084");
        let l = Layout::parse(&text32, Endian::Big, 4, 0);
        assert_eq!((l.commit_size, l.data_offset, l.subbuf_size), (4, 12, 4096));
        // A 32-bit kernel that aligns its data to eight bytes.
        let aligned = text32.replace("offset:12;\tsize:4084", "offset:16;\tsize:4080");
        let l = Layout::parse(&aligned, Endian::Little, 4, 8192);
        assert_eq!((l.commit_size, l.data_offset, l.subbuf_size), (4, 16, 8192));
        let l = Layout::parse("", Endian::Little, 4, 0);
        assert_eq!((l.commit_size, l.data_offset, l.subbuf_size), (4, 12, 64));
    }
}
