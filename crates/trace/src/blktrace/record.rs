//! One record, as the kernel writes it.
//!
//! Source: `include/uapi/linux/blktrace_api.h` of Linux 7.2: `struct blk_io_trace` (version 7, 48 bytes) and
//! `struct blk_io_trace2` (version 8, 64 bytes). A PDU of `pdu_len` bytes follows; where bit 8 of the action is set, its
//! first eight bytes are a control group's id.

use crate::bytes::Endian;

/// `BLK_IO_TRACE_MAGIC` without its lowest byte, which is the version.
const MAGIC: u32 = 0x6561_7400;
pub(super) const V7: u8 = 7;
pub(super) const V8: u8 = 8;
/// Size of a record of version 7, PDU not counted; the smaller one.
pub(super) const HEADER_MIN: usize = 48;
pub(super) const HEADER_MAX: usize = 64;
/// `__BLK_TA_CGROUP`, `__BLK_TN_CGROUP`.
pub(super) const CGROUP: u64 = 1 << 8;
/// `BLK_TC_NOTIFY`, where an action has it.
pub(super) const NOTIFY: u64 = 1 << (10 + 16);

/// A record's fixed part, in this machine's byte order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Header {
    pub time: u64,
    pub sector: u64,
    pub action: u64,
    pub sequence: u32,
    pub bytes: u32,
    pub pid: u32,
    pub device: u32,
    pub cpu: u32,
    pub error: u16,
    pub pdu_len: u16,
    /// Of the fixed part.
    pub size: u8,
}

/// The byte order and version that the first bytes of a record say.
pub(super) fn kind(bytes: &[u8]) -> Option<(Endian, u8)> {
    [Endian::Little, Endian::Big].into_iter().find_map(|endian| {
        let magic = endian.u32(bytes, 0)?;
        let version = magic as u8;
        (magic & !0xff == MAGIC && matches!(version, V7 | V8)).then_some((endian, version))
    })
}

/// Reads the fixed part; `None` where it has no magic of this byte order or is cut.
#[inline(always)]
pub(super) fn header(endian: Endian, bytes: &[u8]) -> Option<Header> {
    match endian {
        Endian::Little => parse::<false>(bytes),
        Endian::Big => parse::<true>(bytes),
    }
}

#[inline(always)]
fn parse<const BIG: bool>(bytes: &[u8]) -> Option<Header> {
    let b: &[u8; HEADER_MIN] = bytes.first_chunk()?;
    match u32_at::<BIG, HEADER_MIN, 0>(b).wrapping_sub(MAGIC) {
        7 => Some(Header {
            sequence: u32_at::<BIG, HEADER_MIN, 4>(b),
            time: u64_at::<BIG, HEADER_MIN, 8>(b),
            sector: u64_at::<BIG, HEADER_MIN, 16>(b),
            bytes: u32_at::<BIG, HEADER_MIN, 24>(b),
            action: u64::from(u32_at::<BIG, HEADER_MIN, 28>(b)),
            pid: u32_at::<BIG, HEADER_MIN, 32>(b),
            device: u32_at::<BIG, HEADER_MIN, 36>(b),
            cpu: u32_at::<BIG, HEADER_MIN, 40>(b),
            error: u16_at::<BIG, HEADER_MIN, 44>(b),
            pdu_len: u16_at::<BIG, HEADER_MIN, 46>(b),
            size: HEADER_MIN as u8,
        }),
        8 => {
            let b: &[u8; HEADER_MAX] = bytes.first_chunk()?;
            Some(Header {
                sequence: u32_at::<BIG, HEADER_MAX, 4>(b),
                time: u64_at::<BIG, HEADER_MAX, 8>(b),
                sector: u64_at::<BIG, HEADER_MAX, 16>(b),
                bytes: u32_at::<BIG, HEADER_MAX, 24>(b),
                pid: u32_at::<BIG, HEADER_MAX, 28>(b),
                action: u64_at::<BIG, HEADER_MAX, 32>(b),
                device: u32_at::<BIG, HEADER_MAX, 40>(b),
                cpu: u32_at::<BIG, HEADER_MAX, 44>(b),
                error: u16_at::<BIG, HEADER_MAX, 48>(b),
                pdu_len: u16_at::<BIG, HEADER_MAX, 50>(b),
                size: HEADER_MAX as u8,
            })
        }
        _ => None,
    }
}

#[inline(always)]
fn bytes_at<const N: usize, const M: usize, const AT: usize>(b: &[u8; N]) -> [u8; M] {
    let mut out = [0; M];
    out.copy_from_slice(&b[AT..AT + M]);
    out
}

#[inline(always)]
fn u16_at<const BIG: bool, const N: usize, const AT: usize>(b: &[u8; N]) -> u16 {
    let raw = bytes_at::<N, 2, AT>(b);
    if BIG { u16::from_be_bytes(raw) } else { u16::from_le_bytes(raw) }
}

#[inline(always)]
fn u32_at<const BIG: bool, const N: usize, const AT: usize>(b: &[u8; N]) -> u32 {
    let raw = bytes_at::<N, 4, AT>(b);
    if BIG { u32::from_be_bytes(raw) } else { u32::from_le_bytes(raw) }
}

#[inline(always)]
fn u64_at<const BIG: bool, const N: usize, const AT: usize>(b: &[u8; N]) -> u64 {
    let raw = bytes_at::<N, 8, AT>(b);
    if BIG { u64::from_be_bytes(raw) } else { u64::from_le_bytes(raw) }
}

impl Header {
    /// Bytes of the whole record.
    #[inline]
    pub fn total(&self) -> usize {
        usize::from(self.size) + usize::from(self.pdu_len)
    }
}

/// One whole record on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Raw<'a> {
    pub header: &'a Header,
    pub endian: Endian,
    /// Records missing before this one, by its own number.
    pub missing: u32,
    /// Fixed part and PDU, as they lie in the file.
    pub bytes: &'a [u8],
}

impl<'a> Raw<'a> {
    /// Control group (0: none) and what follows it.
    #[inline]
    pub fn cgroup_and_pdu(&self) -> (u64, &'a [u8]) {
        let pdu = self.bytes.get(usize::from(self.header.size)..).unwrap_or_default();
        if self.header.action & CGROUP == 0 {
            return (0, pdu);
        }
        match self.endian.u64(pdu, 0) {
            Some(id) => (id, &pdu[8..]),
            None => (0, pdu),
        }
    }

    pub fn is_notify(&self) -> bool {
        self.header.action & NOTIFY != 0
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
            endian.put_u64(&mut b, 0x0011_0101);
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
            for (version, size) in [(V7, 48), (V8, 64)] {
                let bytes = built(endian, version);
                assert_eq!(kind(&bytes), Some((endian, version)));
                let header = header(endian, &bytes).unwrap();
                let want = Header {
                    time: 0x0102_0304_0506_0708,
                    sector: 2048,
                    action: 0x0011_0101,
                    sequence: 5,
                    bytes: 4096,
                    pid: 77,
                    device: 8 << 20 | 1,
                    cpu: 3,
                    error: 0xfffb,
                    pdu_len: 12,
                    size,
                };
                assert_eq!(header, want);
                assert_eq!(header.total(), bytes.len());
                let raw = Raw { header: &header, endian, missing: 0, bytes: &bytes };
                assert_eq!(raw.cgroup_and_pdu(), (99, b"name".as_slice()));
                for cut in 0..usize::from(size) {
                    assert_eq!(super::header(endian, &bytes[..cut]), None);
                }
            }
        }
        assert_eq!(kind(b"\x09tae"), None);
        assert_eq!(kind(b"\x07ta"), None);
        assert_eq!(header(Endian::Big, &built(Endian::Little, V7)), None);
    }
}
