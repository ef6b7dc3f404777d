//! Reads integers of either byte order from byte slices; every read is bounds-checked.

/// Byte order of the machine that wrote the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endian {
    Little,
    Big,
}

impl Endian {
    #[inline]
    pub fn u16(self, bytes: &[u8], at: usize) -> Option<u16> {
        let b = array::<2>(bytes, at)?;
        Some(match self {
            Endian::Little => u16::from_le_bytes(b),
            Endian::Big => u16::from_be_bytes(b),
        })
    }

    #[inline]
    pub fn u32(self, bytes: &[u8], at: usize) -> Option<u32> {
        let b = array::<4>(bytes, at)?;
        Some(match self {
            Endian::Little => u32::from_le_bytes(b),
            Endian::Big => u32::from_be_bytes(b),
        })
    }

    #[inline]
    pub fn u64(self, bytes: &[u8], at: usize) -> Option<u64> {
        let b = array::<8>(bytes, at)?;
        Some(match self {
            Endian::Little => u64::from_le_bytes(b),
            Endian::Big => u64::from_be_bytes(b),
        })
    }

    /// An unsigned integer of 1, 2, 4 or 8 bytes.
    #[inline]
    pub fn uint(self, bytes: &[u8], at: usize, size: usize) -> Option<u64> {
        match size {
            1 => bytes.get(at).map(|&b| u64::from(b)),
            2 => self.u16(bytes, at).map(u64::from),
            4 => self.u32(bytes, at).map(u64::from),
            8 => self.u64(bytes, at),
            _ => None,
        }
    }

    pub(crate) fn put_u16(self, out: &mut Vec<u8>, value: u16) {
        out.extend_from_slice(&match self {
            Endian::Little => value.to_le_bytes(),
            Endian::Big => value.to_be_bytes(),
        });
    }

    pub(crate) fn put_u32(self, out: &mut Vec<u8>, value: u32) {
        out.extend_from_slice(&match self {
            Endian::Little => value.to_le_bytes(),
            Endian::Big => value.to_be_bytes(),
        });
    }

    pub(crate) fn put_u64(self, out: &mut Vec<u8>, value: u64) {
        out.extend_from_slice(&match self {
            Endian::Little => value.to_le_bytes(),
            Endian::Big => value.to_be_bytes(),
        });
    }
}

#[inline]
fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// Sign-extends an integer of `size` bytes.
#[inline]
pub(crate) fn sign_extend(value: u64, size: usize) -> i64 {
    match size {
        1 => i64::from(value as u8 as i8),
        2 => i64::from(value as u16 as i16),
        4 => i64::from(value as u32 as i32),
        _ => value as i64,
    }
}

/// Whether a JSON text can hold at most `most` values: one byte of text can take a hundred bytes of memory. Separators inside strings count
/// too.
pub(crate) fn has_few_values(json: &[u8], most: usize) -> bool {
    values(json) <= most
}

/// Upper bound for the number of values in a JSON text.
pub(crate) fn values(json: &[u8]) -> usize {
    json.iter().filter(|b| matches!(b, b',' | b'[' | b'{' | b':')).count()
}

/// Text of a fixed-size, NUL-padded field.
pub(crate) fn until_nul(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    &bytes[..end]
}

/// Appends a number as LEB128, as protobuf does: seven bits per byte, the lowest first.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_either_order_and_refuses_what_is_not_there() {
        let b = [1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(Endian::Little.u32(&b, 1), Some(0x0504_0302));
        assert_eq!(Endian::Big.u32(&b, 1), Some(0x0203_0405));
        assert_eq!(Endian::Big.u64(&b, 0), Some(0x0102_0304_0506_0708));
        assert_eq!(Endian::Little.u64(&b, 1), None);
        assert_eq!(Endian::Little.u16(&b, usize::MAX), None);
        assert_eq!(Endian::Little.uint(&b, 0, 3), None);
        assert_eq!(sign_extend(0xff, 1), -1);
        assert_eq!(sign_extend(0x8000, 2), -32768);
        assert_eq!(sign_extend(0x8000, 4), 0x8000);
    }
}
