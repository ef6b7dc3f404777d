//! One record in the kernel's layout.
//!
//! Source: `include/uapi/linux/blktrace_api.h` of Linux 7.2: `struct blk_io_trace` (version 7, 48 bytes) and
//! `struct blk_io_trace2` (version 8, 64 bytes). A PDU of `pdu_len` bytes follows; where bit 8 of the action is set, its
//! first eight bytes are a control group's id.

use crate::bytes::Endian;

/// `BLK_IO_TRACE_MAGIC` without its lowest byte, the version.
const MAGIC: u32 = 0x6561_7400;
pub(super) const V7: u8 = 7;
pub(super) const V8: u8 = 8;
/// Size of a version 7 record without PDU; version 8 is larger.
pub(super) const HEADER_MIN: usize = 48;
pub(super) const HEADER_MAX: usize = 64;
/// `__BLK_TA_CGROUP`, `__BLK_TN_CGROUP`.
pub(super) const CGROUP: u32 = 1 << 8;
/// `BLK_TC_NOTIFY`, at its place in an action.
pub(super) const NOTIFY: u32 = 1 << (10 + 16);

/// Byte order and version of a record, from its first bytes.
pub(super) fn kind(bytes: &[u8]) -> Option<(Endian, u8)> {
    [Endian::Little, Endian::Big].into_iter().find_map(|endian| {
        let magic = endian.u32(bytes, 0)?;
        let version = magic as u8;
        (magic & !0xff == MAGIC && matches!(version, V7 | V8)).then_some((endian, version))
    })
}

/// A record's fixed part. Fields are read in place. A record of another byte order or version is rewritten as [`Plain`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Header<'a> {
    plain: &'a Plain,
    /// Upper half of the action in a version 8 record.
    action_high: u32,
    /// Size of the fixed part in the file.
    size: u8,
}

/// The fixed part of version 7, little-endian.
pub(super) type Plain = [u8; HEADER_MIN];

macro_rules! fields {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $at:literal;)*) => {
        impl Header<'_> {
            $(
                $(#[$doc])*
                #[inline(always)]
                pub fn $name(&self) -> $type {
                    let mut bytes = [0; size_of::<$type>()];
                    bytes.copy_from_slice(&self.plain[$at..$at + size_of::<$type>()]);
                    <$type>::from_le_bytes(bytes)
                }
            )*
        }
    };
}

fields! {
    sequence: u32 = 4;
    time: u64 = 8;
    sector: u64 = 16;
    bytes: u32 = 24;
    action_low: u32 = 28;
    pid: u32 = 32;
    device: u32 = 36;
    cpu: u32 = 40;
    /// Device and CPU.
    counter: u64 = 36;
    error: u16 = 44;
    pdu_len: u16 = 46;
}

impl<'a> Header<'a> {
    /// The fixed part at the beginning of `bytes`, if it is plain.
    #[inline(always)]
    pub fn plain(bytes: &'a [u8]) -> Option<Header<'a>> {
        let plain: &Plain = bytes.first_chunk()?;
        let fits = plain[..4] == (MAGIC | u32::from(V7)).to_le_bytes();
        fits.then_some(Header { plain, action_high: 0, size: HEADER_MIN as u8 })
    }

    /// The fixed part at the beginning of `bytes`; `None` if it is cut or has no magic of this byte order. If it is not plain, it is
    /// rewritten in `anew`.
    pub fn read(endian: Endian, bytes: &'a [u8], anew: &'a mut Plain) -> Option<Header<'a>> {
        if endian == Endian::Little
            && let Some(header) = Header::plain(bytes)
        {
            return Some(header);
        }
        let (action_high, size) = write_anew(endian, bytes, anew)?;
        Some(Header { plain: anew, action_high, size })
    }

    #[inline(always)]
    pub fn action(&self) -> u64 {
        u64::from(self.action_high) << 32 | u64::from(self.action_low())
    }

    /// Size of the fixed part, bytes.
    #[inline(always)]
    pub fn size(&self) -> usize {
        usize::from(self.size)
    }

    /// Size of the whole record, bytes.
    #[inline(always)]
    pub fn total(&self) -> usize {
        self.size() + usize::from(self.pdu_len())
    }

    #[inline(always)]
    pub fn is_notify(&self) -> bool {
        self.action_low() & NOTIFY != 0
    }

    /// The same record with another time, written to `anew`.
    pub fn at<'b>(&self, time: u64, anew: &'b mut Plain) -> Header<'b> {
        *anew = *self.plain;
        anew[8..16].copy_from_slice(&time.to_le_bytes());
        Header { plain: anew, action_high: self.action_high, size: self.size }
    }
}

/// Rewrites the fixed part. Returns the upper half of the action, and the size in the file.
#[inline(never)]
fn write_anew(endian: Endian, bytes: &[u8], to: &mut Plain) -> Option<(u32, u8)> {
    /// A field's place in the file, its size, and its new place.
    type Field = (usize, usize, usize);
    const SAME: [Field; 4] = [(4, 4, 4), (8, 8, 8), (16, 8, 16), (24, 4, 24)];
    const OF_V7: [Field; 6] = [(28, 4, 28), (32, 4, 32), (36, 4, 36), (40, 4, 40), (44, 2, 44), (46, 2, 46)];
    const OF_V8: [Field; 5] = [(28, 4, 32), (40, 4, 36), (44, 4, 40), (48, 2, 44), (50, 2, 46)];
    let (said, version) = kind(bytes)?;
    let size = if version == V8 { HEADER_MAX } else { HEADER_MIN };
    let bytes = bytes.get(..size).filter(|_| said == endian)?;
    let rest: &[Field] = if version == V8 { &OF_V8 } else { &OF_V7 };
    for &(from, size, at) in SAME.iter().chain(rest) {
        to[at..at + size].copy_from_slice(&endian.uint(bytes, from, size)?.to_le_bytes()[..size]);
    }
    let mut action_high = 0;
    if version == V8 {
        let action = endian.u64(bytes, 32)?;
        to[28..32].copy_from_slice(&(action as u32).to_le_bytes());
        action_high = (action >> 32) as u32;
    }
    Some((action_high, size as u8))
}

/// One whole record during a pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct Raw<'a> {
    pub header: Header<'a>,
    pub endian: Endian,
    /// Its position in the file.
    pub position: u64,
    /// Number of records missing before this one, by its number.
    pub missing: u32,
    /// Fixed part and PDU, as they lie in the file.
    pub bytes: &'a [u8],
}

impl<'a> Raw<'a> {
    /// Control group (0: none) and the PDU after it.
    #[inline]
    pub fn cgroup_and_pdu(&self) -> (u64, &'a [u8]) {
        let pdu = self.bytes.get(self.header.size()..).unwrap_or_default();
        if self.header.action_low() & CGROUP == 0 {
            return (0, pdu);
        }
        match self.endian.u64(pdu, 0) {
            Some(id) => (id, &pdu[8..]),
            None => (0, pdu),
        }
    }

    /// For a remap: the device that the I/O came from, and the CPU, in the form of [`Header::counter`].
    pub fn origin(&self) -> Option<u64> {
        /// `__BLK_TA_REMAP`
        const REMAP: u32 = 15;
        if self.header.action_low() & 0xff != REMAP {
            return None;
        }
        // struct blk_io_trace_remap begins with device_from.
        let device = Endian::Big.u32(self.cgroup_and_pdu().1, 0)?;
        Some(u64::from(self.header.cpu()) << 32 | u64::from(device))
    }

    #[inline(always)]
    pub fn is_notify(&self) -> bool {
        self.header.is_notify()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record of either version and byte order.
    fn built(endian: Endian, version: u8) -> Vec<u8> {
        let mut b = Vec::new();
        endian.put_u32(&mut b, MAGIC | u32::from(version));
        endian.put_u32(&mut b, 5);
        endian.put_u64(&mut b, 0x0102_0304_0506_0708);
        endian.put_u64(&mut b, 2048);
        endian.put_u32(&mut b, 4096);
        if version == V7 {
            endian.put_u32(&mut b, 0x0011_0101);
            endian.put_u32(&mut b, 77);
        } else {
            endian.put_u32(&mut b, 77);
            endian.put_u64(&mut b, 0x7_0011_0101);
        }
        endian.put_u32(&mut b, 8 << 20 | 1);
        endian.put_u32(&mut b, 3);
        endian.put_u16(&mut b, 0xfffb);
        endian.put_u16(&mut b, 12);
        if version == V8 {
            b.extend_from_slice(&[0; 12]);
        }
        endian.put_u64(&mut b, 99);
        b.extend_from_slice(b"name");
        b
    }

    #[test]
    fn both_versions_in_both_byte_orders_read_the_same() {
        for endian in [Endian::Little, Endian::Big] {
            for (version, size, mask) in [(V7, 48, 0xffff_ffff), (V8, 64, u64::MAX)] {
                let bytes = built(endian, version);
                assert_eq!(kind(&bytes), Some((endian, version)));
                let mut anew = [0; HEADER_MIN];
                let header = Header::read(endian, &bytes, &mut anew).unwrap();
                assert_eq!((header.time(), header.sector()), (0x0102_0304_0506_0708, 2048));
                assert_eq!((header.action(), header.sequence(), header.bytes()), (0x7_0011_0101 & mask, 5, 4096));
                assert_eq!((header.pid(), header.device(), header.cpu()), (77, 8 << 20 | 1, 3));
                assert_eq!((header.error(), header.pdu_len(), header.size()), (0xfffb, 12, size));
                assert_eq!(header.counter(), 3 << 32 | 8 << 20 | 1);
                assert_eq!(header.total(), bytes.len());
                let raw = Raw { header, endian, position: 0, missing: 0, bytes: &bytes };
                assert_eq!(raw.cgroup_and_pdu(), (99, b"name".as_slice()));
                for cut in 0..size {
                    assert!(Header::read(endian, &bytes[..cut], &mut [0; HEADER_MIN]).is_none());
                }
            }
        }
        assert_eq!(kind(b"\x09tae"), None);
        assert_eq!(kind(b"\x07ta"), None);
        assert!(Header::read(Endian::Big, &built(Endian::Little, V7), &mut [0; HEADER_MIN]).is_none());
    }
}
