//! What happens to I/O in the block layer: one model for blktrace and for the kernel's `block:` trace events.
//!
//! Sources: `include/uapi/linux/blktrace_api.h` (Linux 7.2) for actions and categories, `include/trace/events/block.h`
//! for the trace events, `kernel/trace/blktrace.c` (`blk_fill_rwbs`) for the letters of a request.

use crate::ids::Device;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// One step on the way of a bio or a request. Its process is `Event::tid`: the task that ran, which need not be the originator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockEvent {
    pub action: BlockAction,
    pub device: Device,
    pub flags: RequestFlags,
    /// First sector (of 512 bytes); of a bio that is remapped, on the lower device.
    pub sector: u64,
    pub bytes: u64,
    /// The kernel's error as a negative number; 0: none.
    pub error: i32,
    /// Id of the control group that asked; 0 where it was not recorded.
    pub cgroup: u64,
    pub detail: BlockDetail,
}

impl BlockEvent {
    /// The sector behind the last one.
    pub fn end(&self) -> u64 {
        self.sector.saturating_add(self.bytes.div_ceil(512))
    }

    /// The first sector and the bytes. `None`: it has no place (a plug); a flush has none either where the kernel says -1.
    pub fn place(&self) -> Option<(u64, u64)> {
        use BlockAction::*;
        let plug = matches!(self.action, Plug | Unplug | UnplugTimer | ZonePlug | ZoneUnplug) && self.bytes == 0;
        (!plug && self.sector != u64::MAX).then_some((self.sector, self.bytes))
    }

    /// The kernel's negative number, 0: none. `None`: a step that says nothing of it.
    pub fn result(&self) -> Option<i32> {
        use BlockAction::*;
        (matches!(self.action, Complete | Requeue | Abort) || self.error != 0).then_some(self.error)
    }

    /// What is asked of the device; a request to flush that moves no data is a flush, whichever way it points.
    #[inline]
    pub fn kind(&self) -> RequestKind {
        if self.bytes == 0 && self.flags.has(RequestFlags::FLUSH) { RequestKind::Flush } else { self.flags.kind() }
    }

    /// Of a command of the driver's own that moves nothing, as a test whether there is a disk: it is counted, and no request.
    pub fn is_command_without_data(&self) -> bool {
        self.bytes == 0 && self.kind() == RequestKind::Other
    }
}

/// What an action says beyond its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockDetail {
    None,
    /// Where a remapped bio comes from.
    Remap {
        device: Device,
        sector: u64,
    },
    /// Where a split bio's second part begins; the event's own range is the first part.
    Split {
        sector: u64,
    },
    /// Requests that left the plug.
    Unplug {
        requests: u64,
    },
}

macro_rules! actions {
    ($( $(#[$doc:meta])* $variant:ident = $code:literal, $name:literal, $letters:literal; )*) => {
        /// What happened. The order is blktrace's.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum BlockAction {
            $( $(#[$doc])* $variant = $code, )*
        }

        impl BlockAction {
            pub const ALL: &'static [BlockAction] = &[ $( BlockAction::$variant, )* ];

            /// By blktrace's number (`enum blktrace_act`); `None` for one that is not known.
            #[inline]
            pub fn from_code(code: u16) -> Option<BlockAction> {
                const BY_CODE: [Option<BlockAction>; 32] = {
                    let mut by_code = [None; 32];
                    $( by_code[$code] = Some(BlockAction::$variant); )*
                    by_code
                };
                BY_CODE.get(usize::from(code)).copied().flatten()
            }

            /// As results carry it: "back_merge".
            pub fn name(self) -> &'static str {
                match self { $( BlockAction::$variant => $name, )* }
            }

            /// As blkparse prints it: "M".
            pub fn letters(self) -> &'static str {
                match self { $( BlockAction::$variant => $letters, )* }
            }
        }
    };
}

actions! {
    /// A bio came.
    Queue = 1, "queue", "Q";
    /// It was put at the end of a request.
    BackMerge = 2, "back_merge", "M";
    /// It was put before a request.
    FrontMerge = 3, "front_merge", "F";
    /// It got a request of its own.
    GetRq = 4, "get_rq", "G";
    /// It waits for a request.
    SleepRq = 5, "sleep_rq", "S";
    /// The driver gave the request back.
    Requeue = 6, "requeue", "R";
    /// The request went to the driver.
    Issue = 7, "issue", "D";
    /// The driver has done it.
    Complete = 8, "complete", "C";
    Plug = 9, "plug", "P";
    Unplug = 10, "unplug", "U";
    UnplugTimer = 11, "unplug_timer", "UT";
    /// The request went to the scheduler.
    Insert = 12, "insert", "I";
    /// A bio was cut in two.
    Split = 13, "split", "X";
    Bounce = 14, "bounce", "B";
    /// A bio moved to a device below (a partition, device mapper, md).
    Remap = 15, "remap", "A";
    Abort = 16, "abort", "R";
    /// Bytes of a driver's own.
    DrvData = 17, "drv_data", "m";
    /// A zone's writes are delayed.
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

/// What a request is, as bits.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema, Deserialize)]
#[serde(transparent)]
pub struct RequestFlags(pub u32);

impl RequestFlags {
    pub const READ: RequestFlags = RequestFlags(1);
    pub const WRITE: RequestFlags = RequestFlags(1 << 1);
    /// With it a device's write cache is flushed first.
    pub const FLUSH: RequestFlags = RequestFlags(1 << 2);
    pub const SYNC: RequestFlags = RequestFlags(1 << 3);
    /// A command of its own kind (SCSI, NVMe), no file system's.
    pub const PASSTHROUGH: RequestFlags = RequestFlags(1 << 9);
    pub const AHEAD: RequestFlags = RequestFlags(1 << 11);
    pub const META: RequestFlags = RequestFlags(1 << 12);
    pub const DISCARD: RequestFlags = RequestFlags(1 << 13);
    /// It is done when it is on the medium.
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
    /// Trace events of requests from Linux 6.11 on: their I/O priority has the class idle. Bios have no such field.
    pub const IDLE: RequestFlags = RequestFlags(1 << 29);
    /// Trace events only: the discard erases what was there.
    pub const SECURE: RequestFlags = RequestFlags(1 << 30);
    /// Trace events only: the write is not torn.
    pub const ATOMIC: RequestFlags = RequestFlags(1 << 31);
    /// blktrace's categories that say what a request is; the others say what happened to it.
    const OF_CATEGORIES: u32 = 0x7f_ba0f;

    /// Whether all of `flags` are set (for [`RequestFlags::ZONE`]: any).
    #[inline]
    pub fn has(self, flags: RequestFlags) -> bool {
        match flags {
            RequestFlags::ZONE => self.0 & flags.0 != 0,
            _ => self.0 & flags.0 == flags.0,
        }
    }

    /// Of a blktrace action's upper half (`enum blktrace_cat`).
    #[inline]
    pub fn from_categories(categories: u64) -> RequestFlags {
        RequestFlags(categories as u32 & Self::OF_CATEGORIES)
    }

    /// Of the letters that trace events have in `rwbs`; letters that are not known are passed over. Kernels before 6.18 write
    /// `N` for operations on zones and for write zeroes: those have no direction here.
    pub fn from_letters(rwbs: &[u8]) -> RequestFlags {
        let mut flags = RequestFlags::default();
        let mut rest = rwbs;
        if let Some(tail) = rest.strip_prefix(b"F") {
            flags.0 |= Self::FLUSH.0;
            rest = tail;
        }
        // The operation comes first; what follows says how.
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
                    // One that is not known is no write.
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

    /// The operation that all steps of one piece of I/O share; without its bytes a flush cannot be distinguished from a write.
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

/// As blkparse prints them (`blkparse_fmt.c`, `fill_rwbs`).
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
        /// What a request asks of the device.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum RequestKind { $( $(#[$doc])* $variant, )* }

        impl RequestKind {
            pub const ALL: &'static [RequestKind] = &[ $( RequestKind::$variant, )* ];
            pub const COUNT: usize = RequestKind::ALL.len();

            /// As tables call several of them: "zone resets".
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
    /// What the device holds in its cache is to reach the medium; no data of its own.
    Flush = "flushes";
    SecureErase = "secure erases";
    WriteZeroes = "writes of zeroes";
    /// The device chooses the sector in the zone, and names it when it is done.
    ZoneAppend = "zone appends";
    ZoneReset = "zone resets";
    ZoneResetAll = "resets of all zones";
    ZoneFinish = "zone finishes";
    ZoneOpen = "zone opens";
    ZoneClose = "zone closes";
    /// Commands of a driver's own, and operations that the kernel has no letter for (`N`).
    Other = "other operations";
}

impl RequestKind {
    /// Data goes to the device.
    pub fn writes_data(self) -> bool {
        matches!(self, RequestKind::Write | RequestKind::ZoneAppend)
    }

    /// It names a zone, and no sectors.
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
