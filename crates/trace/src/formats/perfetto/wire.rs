//! Iterates over the fields of a protobuf message.

use quick_protobuf::BytesReader;

/// A field's value by its wire type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// A wire type that no field here uses.
    Other,
}

impl<'a> Wire<'a> {
    pub fn number(self) -> Option<u64> {
        match self {
            Wire::Number(n) => Some(n),
            _ => None,
        }
    }

    pub fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Wire::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }
}

/// The fields of a message: number and value. Stops at the first invalid field; `damaged` is set then.
pub(super) struct Fields<'a> {
    bytes: &'a [u8],
    reader: BytesReader,
    pub damaged: bool,
}

impl<'a> Fields<'a> {
    pub fn new(bytes: &'a [u8]) -> Fields<'a> {
        Fields { bytes, reader: BytesReader::from_bytes(bytes), damaged: false }
    }

    fn field(&mut self) -> Option<(u32, Wire<'a>)> {
        let tag = self.reader.next_tag(self.bytes).ok()?;
        let value = match tag & 7 {
            0 => Wire::Number(self.reader.read_varint64(self.bytes).ok()?),
            2 => Wire::Bytes(self.reader.read_bytes(self.bytes).ok()?),
            1 | 5 => {
                self.reader.read_unknown(self.bytes, tag).ok()?;
                Wire::Other
            }
            _ => return None,
        };
        (tag >> 3 > 0).then_some((tag >> 3, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u32, Wire<'a>);

    fn next(&mut self) -> Option<(u32, Wire<'a>)> {
        if self.damaged || self.reader.is_eof() {
            return None;
        }
        let field = self.field();
        self.damaged = field.is_none();
        field
    }
}

/// The numbers of a packed repeated field, or a single number.
pub(super) fn numbers(value: Wire<'_>, into: &mut Vec<u64>) {
    match value {
        Wire::Number(n) => into.push(n),
        Wire::Bytes(bytes) => {
            let mut reader = BytesReader::from_bytes(bytes);
            while !reader.is_eof()
                && let Ok(n) = reader.read_varint64(bytes)
            {
                into.push(n);
            }
        }
        Wire::Other => {}
    }
}

/// Whether the bytes are a complete message whose field numbers are all `known`.
pub(super) fn is_message(bytes: &[u8], known: impl Fn(u32) -> bool) -> bool {
    let mut fields = Fields::new(bytes);
    let all = fields.by_ref().all(|(number, _)| known(number));
    all && !fields.damaged && !bytes.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_all_kinds_and_of_none() {
        let bytes = [0x08, 0x96, 0x01, 0x12, 2, b'h', b'i', 0x1d, 1, 2, 3, 4, 0x21, 1, 2, 3, 4, 5, 6, 7, 8];
        let all: Vec<_> = Fields::new(&bytes).collect();
        assert_eq!(all, [(1, Wire::Number(150)), (2, Wire::Bytes(b"hi")), (3, Wire::Other), (4, Wire::Other)]);
        assert!(is_message(&bytes, |_| true) && !is_message(&bytes, |n| n < 4));
        // Cut, a length beyond the end, a group, the number 0.
        for bad in [&bytes[..6], &[0x12, 200, 1][..], &[0x0b], &[0x00, 1], &[0x80]] {
            let mut fields = Fields::new(bad);
            fields.by_ref().for_each(drop);
            assert!(fields.damaged, "{bad:?}");
        }
        let mut n = vec![];
        numbers(Wire::Bytes(&[1, 0x96, 1, 0x80]), &mut n);
        assert_eq!(n, [1, 150]);
    }
}
