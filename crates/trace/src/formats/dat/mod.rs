//! trace-cmd's file format, `trace.dat`: versions 6 and 7 are read, version 6 is written.
//!
//! Source: trace-cmd's `trace-cmd.dat.v6(5)` and `…v7(5)`. Where they are silent (instances, the clock's text, unknown options), the
//! behaviour of trace-cmd 3.1.6. `docs/reference/formats.md` describes flashscope's own facts in such a file.

mod cursor;
pub(crate) mod own;
mod parts;
mod read;
mod recover;
mod v6;
mod v7;

use crate::formats::{Format, Reader};

pub(crate) const VERSION_6: Format = Format {
    name: "trace.dat of trace-cmd, version 6",
    read: "yes",
    written: "yes",
    recognised_by: "`17 08 44 \"tracing\"`, then `\"6\"`",
    reader: Reader::Bytes { is: read::looks_like_dat, open: read::open },
};

/// Read by the reader of [`VERSION_6`].
pub(crate) const VERSION_7: Format = Format {
    name: "trace.dat of trace-cmd, version 7 (none, zlib, zstd)",
    read: "yes",
    written: "no",
    recognised_by: "the same, then `\"7\"`",
    reader: Reader::None,
};

/// The first ten bytes.
pub(crate) const MAGIC: &[u8; 10] = b"\x17\x08\x44tracing";

const CUT_BEFORE_EVENTS: &str = "was cut before its first event: it has event formats and no events; copy it again";

/// Options; version 7 uses the same numbers for sections (`include/private/trace-cmd-private.h` of trace-cmd 3.1.6).
pub(crate) mod option {
    pub const DONE: u16 = 0;
    pub const DATE: u16 = 1;
    pub const CPUSTAT: u16 = 2;
    pub const BUFFER: u16 = 3;
    pub const TRACECLOCK: u16 = 4;
    pub const UNAME: u16 = 5;
    pub const OFFSET: u16 = 7;
    pub const CPUCOUNT: u16 = 8;
    pub const VERSION: u16 = 9;
    pub const TSC2NSEC: u16 = 14;
    pub const HEADER_INFO: u16 = 16;
    pub const FTRACE_EVENTS: u16 = 17;
    pub const EVENT_FORMATS: u16 = 18;
    pub const KALLSYMS: u16 = 19;
    pub const PRINTK: u16 = 20;
    pub const CMDLINES: u16 = 21;
}
