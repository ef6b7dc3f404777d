//! Events of the block layer: one model for blktrace and for the kernel's `block:` trace events.
//!
//! Sources: `include/uapi/linux/blktrace_api.h` (Linux 7.2) for actions and categories, `include/trace/events/block.h`
//! for the trace events, `kernel/trace/blktrace.c` (`blk_fill_rwbs`) for the letters of a request.

use crate::ids::Device;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// One step of a bio or a request. `Event::tid` is the task that ran, which need not be the originator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockEvent {
    pub action: BlockAction,
    pub device: Device,
    pub flags: RequestFlags,
    /// First sector (of 512 bytes); for a remapped bio, on the lower device.
    pub sector: u64,
    pub bytes: u64,
    /// The kernel's negative error number; 0: no error.
    pub error: i32,
    /// Id of the control group that requested the I/O; 0 if it was not recorded.
    pub cgroup: u64,
    pub detail: BlockDetail,
}

impl BlockEvent {
    /// The first sector after the range.
    pub fn end(&self) -> u64 {
        self.sector.saturating_add(self.bytes.div_ceil(512))
    }

    /// First sector and bytes. `None` for a plug, which has no sectors, and for a flush for which the kernel prints sector -1.
    pub fn place(&self) -> Option<(u64, u64)> {
        use BlockAction::*;
        let plug = matches!(self.action, Plug | Unplug | UnplugTimer | ZonePlug | ZoneUnplug) && self.bytes == 0;
        (!plug && self.sector != u64::MAX).then_some((self.sector, self.bytes))
    }

    /// The kernel's negative error number; 0: no error. `None` for a step that has no result.
    pub fn result(&self) -> Option<i32> {
        use BlockAction::*;
        (matches!(self.action, Complete | Requeue | Abort) || self.error != 0).then_some(self.error)
    }

    /// The kind of the request. A flush request without data is a flush, whether it is marked as a read or a write.
    #[inline]
    pub fn kind(&self) -> RequestKind {
        if self.bytes == 0 && self.flags.has(RequestFlags::FLUSH) { RequestKind::Flush } else { self.flags.kind() }
    }

    /// Whether it is a driver's command without data, such as a test for a medium. It is counted, but not as a request.
    pub fn is_command_without_data(&self) -> bool {
        self.bytes == 0 && self.kind() == RequestKind::Other
    }
}

/// Details of an action besides its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockDetail {
    None,
    /// The origin of a remapped bio.
    Remap {
        device: Device,
        sector: u64,
    },
    /// The first sector of a split bio's second part; the event's own range is the first part.
    Split {
        sector: u64,
    },
    /// Number of requests that left the plug.
    Unplug {
        requests: u64,
    },
}

macro_rules! actions {
    ($( $(#[$doc:meta])* $variant:ident = $code:literal, $name:literal, $letters:literal; )*) => {
        /// Kinds of steps, in the order of blktrace's numbers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum BlockAction {
            $( $(#[$doc])* $variant = $code, )*
        }

        impl BlockAction {
            pub const ALL: &'static [BlockAction] = &[ $( BlockAction::$variant, )* ];

            /// The action with blktrace's number (`enum blktrace_act`); `None` for an unknown number.
            #[inline]
            pub fn from_code(code: u16) -> Option<BlockAction> {
                const BY_CODE: [Option<BlockAction>; 32] = {
                    let mut by_code = [None; 32];
                    $( by_code[$code] = Some(BlockAction::$variant); )*
                    by_code
                };
                BY_CODE.get(usize::from(code)).copied().flatten()
            }

            /// The name in results: "back_merge".
            pub fn name(self) -> &'static str {
                match self { $( BlockAction::$variant => $name, )* }
            }

            /// blkparse's letter: "M".
            pub fn letters(self) -> &'static str {
                match self { $( BlockAction::$variant => $letters, )* }
            }
        }
    };
}

actions! {
    /// A bio entered the block layer.
    Queue = 1, "queue", "Q";
    /// The bio was appended to a request.
    BackMerge = 2, "back_merge", "M";
    /// The bio was put at the front of a request.
    FrontMerge = 3, "front_merge", "F";
    /// The bio got a new request.
    GetRq = 4, "get_rq", "G";
    /// The bio waits for a free request.
    SleepRq = 5, "sleep_rq", "S";
    /// The driver gave the request back.
    Requeue = 6, "requeue", "R";
    /// The request was sent to the driver.
    Issue = 7, "issue", "D";
    /// The driver completed the request.
    Complete = 8, "complete", "C";
    Plug = 9, "plug", "P";
    Unplug = 10, "unplug", "U";
    UnplugTimer = 11, "unplug_timer", "UT";
    /// The request entered the scheduler.
    Insert = 12, "insert", "I";
    /// A bio was split in two.
    Split = 13, "split", "X";
    Bounce = 14, "bounce", "B";
    /// A bio was redirected to a lower device (from a partition, device mapper, md).
    Remap = 15, "remap", "A";
    Abort = 16, "abort", "R";
    /// Data of a driver in its own format.
    DrvData = 17, "drv_data", "m";
    /// Writes to a zone are delayed.
    ZonePlug = 18, "zone_plug", "ZP";
    ZoneUnplug = 19, "zone_unplug", "ZU";
}

impl BlockAction {
    /// A step between a bio's queueing and its completion.
    #[inline]
    pub fn is_of_a_request(self) -> bool {
        use BlockAction::*;
        matches!(self, GetRq | Insert | BackMerge | FrontMerge | Issue)
    }
}

/// Properties of a request, as bits.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema, Deserialize)]
#[serde(transparent)]
pub struct RequestFlags(pub u32);

impl RequestFlags {
    pub const READ: RequestFlags = RequestFlags(1);
    pub const WRITE: RequestFlags = RequestFlags(1 << 1);
    /// The device's write cache is flushed before the request.
    pub const FLUSH: RequestFlags = RequestFlags(1 << 2);
    pub const SYNC: RequestFlags = RequestFlags(1 << 3);
    /// A command of a protocol such as SCSI or NVMe, not from a file system.
    pub const PASSTHROUGH: RequestFlags = RequestFlags(1 << 9);
    pub const AHEAD: RequestFlags = RequestFlags(1 << 11);
    pub const META: RequestFlags = RequestFlags(1 << 12);
    pub const DISCARD: RequestFlags = RequestFlags(1 << 13);
    /// The request completes only when its data is on the medium.
    pub const FUA: RequestFlags = RequestFlags(1 << 15);
    pub const ZONE_APPEND: RequestFlags = RequestFlags(1 << 16);
    pub const ZONE_RESET: RequestFlags = RequestFlags(1 << 17);
    pub const ZONE_RESET_ALL: RequestFlags = RequestFlags(1 << 18);
    pub const ZONE_FINISH: RequestFlags = RequestFlags(1 << 19);
    pub const ZONE_OPEN: RequestFlags = RequestFlags(1 << 20);
    pub const ZONE_CLOSE: RequestFlags = RequestFlags(1 << 21);
    /// Reset, finish, open or close of zones.
    pub const ZONE: RequestFlags = RequestFlags(0x3e << 16);
    pub const WRITE_ZEROES: RequestFlags = RequestFlags(1 << 22);
    /// Trace events of requests only, since Linux 6.11: the I/O priority has the class idle. Bios have no such field.
    pub const IDLE: RequestFlags = RequestFlags(1 << 29);
    /// Trace events only: the discard also erases the old data.
    pub const SECURE: RequestFlags = RequestFlags(1 << 30);
    /// Trace events only: the write is atomic.
    pub const ATOMIC: RequestFlags = RequestFlags(1 << 31);
    /// blktrace's categories that describe the request; the other categories describe the step.
    const OF_CATEGORIES: u32 = 0x7f_ba0f;

    /// Whether all of `flags` are set (for [`RequestFlags::ZONE`]: any).
    #[inline]
    pub fn has(self, flags: RequestFlags) -> bool {
        match flags {
            RequestFlags::ZONE => self.0 & flags.0 != 0,
            _ => self.0 & flags.0 == flags.0,
        }
    }

    /// Flags from the upper half of a blktrace action (`enum blktrace_cat`).
    #[inline]
    pub fn from_categories(categories: u64) -> RequestFlags {
        RequestFlags(categories as u32 & Self::OF_CATEGORIES)
    }

    /// Flags from the letters of `rwbs` in trace events; unknown letters are ignored. Kernels before 6.18 write `N` for operations on zones
    /// and for write zeroes; such requests get no direction.
    pub fn from_letters(rwbs: &[u8]) -> RequestFlags {
        let mut flags = RequestFlags::default();
        let mut rest = rwbs;
        if let Some(tail) = rest.strip_prefix(b"F") {
            flags.0 |= Self::FLUSH.0;
            rest = tail;
        }
        // The operation comes first; modifiers follow.
        match rest.first() {
            Some(b'R') => flags.0 |= Self::READ.0,
            Some(b'W') if rest.get(1) == Some(&b'Z') => {
                flags.0 |= Self::WRITE.0 | Self::WRITE_ZEROES.0;
                rest = &rest[1..];
            }
            Some(b'W') => flags.0 |= Self::WRITE.0,
            Some(b'D') => flags.0 |= Self::WRITE.0 | Self::DISCARD.0,
            Some(b'Z') => {
                let (operation, letters) = match rest.get(1..) {
                    Some([b'A', ..]) => (Self::ZONE_APPEND, 1),
                    Some([b'R', b'A', ..]) => (Self::ZONE_RESET_ALL, 2),
                    Some([b'R', ..]) => (Self::ZONE_RESET, 1),
                    Some([b'F', ..]) => (Self::ZONE_FINISH, 1),
                    Some([b'O', ..]) => (Self::ZONE_OPEN, 1),
                    Some([b'C', ..]) => (Self::ZONE_CLOSE, 1),
                    // An unknown operation does not count as a write.
                    _ => return flags,
                };
                flags.0 |= Self::WRITE.0 | operation.0;
                rest = &rest[letters..];
            }
            _ => {}
        }
        for letter in rest.iter().skip(1) {
            flags.0 |= match letter {
                b'F' => Self::FUA.0,
                b'A' => Self::AHEAD.0,
                b'S' => Self::SYNC.0,
                b'M' => Self::META.0,
                b'E' => Self::SECURE.0,
                b'U' => Self::ATOMIC.0,
                _ => 0,
            };
        }
        flags
    }

    /// The operation, equal for all steps of one piece of I/O. Without the size, a flush cannot be distinguished from a write.
    #[inline]
    pub fn kind(self) -> RequestKind {
        const RARE: u32 =
            RequestFlags::DISCARD.0 | RequestFlags::ZONE.0 | RequestFlags::ZONE_APPEND.0 | RequestFlags::WRITE_ZEROES.0;
        if self.0 & RARE != 0 {
            return self.rare_kind();
        }
        match self.0 & (Self::READ.0 | Self::WRITE.0) {
            0 if self.has(Self::FLUSH) => RequestKind::Flush,
            0 => RequestKind::Other,
            bits if bits & Self::WRITE.0 != 0 => RequestKind::Write,
            _ => RequestKind::Read,
        }
    }

    #[cold]
    fn rare_kind(self) -> RequestKind {
        for (flag, kind) in [
            (Self::ZONE_APPEND, RequestKind::ZoneAppend),
            (Self::ZONE_RESET, RequestKind::ZoneReset),
            (Self::ZONE_RESET_ALL, RequestKind::ZoneResetAll),
            (Self::ZONE_FINISH, RequestKind::ZoneFinish),
            (Self::ZONE_OPEN, RequestKind::ZoneOpen),
            (Self::ZONE_CLOSE, RequestKind::ZoneClose),
            (Self::WRITE_ZEROES, RequestKind::WriteZeroes),
            (Self::SECURE, RequestKind::SecureErase),
        ] {
            if self.0 & flag.0 != 0 {
                return kind;
            }
        }
        RequestKind::Discard
    }
}

/// The letters that blkparse prints (`blkparse_fmt.c`, `fill_rwbs`).
impl fmt::Display for RequestFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.has(Self::FLUSH) {
            f.write_str("F")?;
        }
        f.write_str(match self.kind() {
            RequestKind::Discard | RequestKind::SecureErase => "D",
            RequestKind::ZoneAppend => "ZA",
            RequestKind::ZoneReset => "ZR",
            RequestKind::ZoneResetAll => "ZRA",
            RequestKind::ZoneFinish => "ZF",
            RequestKind::ZoneOpen => "ZO",
            RequestKind::ZoneClose => "ZC",
            RequestKind::WriteZeroes => "WZ",
            RequestKind::Write => "W",
            RequestKind::Read => "R",
            RequestKind::Flush | RequestKind::Other => "N",
        })?;
        for (flag, letter) in
            [(Self::FUA, "F"), (Self::AHEAD, "A"), (Self::SYNC, "S"), (Self::META, "M"), (Self::SECURE, "E")]
        {
            if self.has(flag) {
                f.write_str(letter)?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for RequestFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}({:#x})", self.0)
    }
}

macro_rules! kinds {
    ($( $(#[$doc:meta])* $variant:ident = $name:literal; )*) => {
        /// Kinds of requests.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum RequestKind { $( $(#[$doc])* $variant, )* }

        impl RequestKind {
            pub const ALL: &'static [RequestKind] = &[ $( RequestKind::$variant, )* ];
            pub const COUNT: usize = RequestKind::ALL.len();

            /// The plural, for tables: "zone resets".
            pub fn plural(self) -> &'static str {
                match self { $( RequestKind::$variant => $name, )* }
            }
        }
    };
}

kinds! {
    Read = "reads";
    Write = "writes";
    Discard = "discards";
    /// Data in the device's cache goes to the medium; the request has no data of its own.
    Flush = "flushes";
    SecureErase = "secure erases";
    WriteZeroes = "writes of zeroes";
    /// The device chooses the sector in the zone and names it at completion.
    ZoneAppend = "zone appends";
    ZoneReset = "zone resets";
    ZoneResetAll = "resets of all zones";
    ZoneFinish = "zone finishes";
    ZoneOpen = "zone opens";
    ZoneClose = "zone closes";
    /// Drivers' own commands, and operations for which the kernel has no letter (`N`).
    Other = "other operations";
}

impl RequestKind {
    /// Whether data goes to the device.
    pub fn writes_data(self) -> bool {
        matches!(self, RequestKind::Write | RequestKind::ZoneAppend)
    }

    /// Whether it names a zone instead of sectors.
    pub fn manages_zones(self) -> bool {
        use RequestKind::*;
        matches!(self, ZoneReset | ZoneResetAll | ZoneFinish | ZoneOpen | ZoneClose)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_and_categories_say_the_same() {
        for (letters, categories) in [
            ("R", 0x1),
            ("RA", 0x801),
            ("RSM", 0x1009),
            ("W", 0x2),
            ("WS", 0xa),
            ("WFS", 0x800a),
            ("FWFSM", 0x900e),
            ("D", 0x2002),
            ("DS", 0x200a),
        ] {
            let flags = RequestFlags::from_letters(letters.as_bytes());
            assert_eq!(flags, RequestFlags::from_categories(categories), "{letters}");
            assert_eq!(flags.to_string(), letters);
        }
        assert_eq!(RequestFlags::from_letters(b"FN"), RequestFlags::FLUSH);
        assert_eq!(RequestFlags::from_letters(b"DE").to_string(), "DE");
        assert_eq!(RequestFlags::from_letters(b"").to_string(), "N");
        assert!(RequestFlags::from_letters(b"ZR").has(RequestFlags::ZONE));
        for (letters, kind) in [
            ("ZAS", RequestKind::ZoneAppend),
            ("ZRS", RequestKind::ZoneReset),
            ("ZRAS", RequestKind::ZoneResetAll),
            ("ZFS", RequestKind::ZoneFinish),
            ("ZOS", RequestKind::ZoneOpen),
            ("ZCS", RequestKind::ZoneClose),
            ("WZS", RequestKind::WriteZeroes),
            ("DE", RequestKind::SecureErase),
            ("DS", RequestKind::Discard),
            ("FF", RequestKind::Flush),
            ("F", RequestKind::Flush),
            ("N", RequestKind::Other),
            ("RA", RequestKind::Read),
            ("FWFSM", RequestKind::Write),
        ] {
            let flags = RequestFlags::from_letters(letters.as_bytes());
            assert_eq!(flags.kind(), kind, "{letters}");
            if kind != RequestKind::Flush {
                assert_eq!(flags.to_string(), letters);
            }
        }
        // Numbers of `enum blktrace_cat` (include/uapi/linux/blktrace_api.h, 6.18), behind a write's.
        for (bit, kind) in [
            (16, RequestKind::ZoneAppend),
            (17, RequestKind::ZoneReset),
            (18, RequestKind::ZoneResetAll),
            (19, RequestKind::ZoneFinish),
            (20, RequestKind::ZoneOpen),
            (21, RequestKind::ZoneClose),
            (22, RequestKind::WriteZeroes),
        ] {
            assert_eq!(RequestFlags::from_categories(1 << bit | 2).kind(), kind, "{bit}");
        }
        // What happened is no part of what it is.
        assert_eq!(RequestFlags::from_categories(0x5f0), RequestFlags::default());
    }

    #[test]
    fn actions_have_the_numbers_of_the_header() {
        for &action in BlockAction::ALL {
            assert_eq!(BlockAction::from_code(action as u16), Some(action));
        }
        assert_eq!(BlockAction::from_code(0), None);
        assert_eq!(BlockAction::from_code(20), None);
        assert_eq!(Device::new(259, 65537).to_string(), "259:65537");
    }
}
