//! The protobuf wire format (protobuf.dev, "Encoding"), as far as it is needed for writing: varints and length-delimited fields.

pub(super) use crate::bytes::put_varint as varint;

/// A field of wire type 0.
pub(super) fn number(out: &mut Vec<u8>, field: u32, value: u64) {
    varint(out, u64::from(field) << 3);
    varint(out, value);
}

/// A field of wire type 2: text, bytes or a message.
pub(super) fn bytes(out: &mut Vec<u8>, field: u32, value: &[u8]) {
    varint(out, u64::from(field) << 3 | 2);
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

/// A field of wire type 1.
pub(super) fn fixed(out: &mut Vec<u8>, field: u32, value: u64) {
    varint(out, u64::from(field) << 3 | 1);
    out.extend_from_slice(&value.to_le_bytes());
}

/// A message that `build` fills.
pub(super) fn message(out: &mut Vec<u8>, field: u32, build: impl FnOnce(&mut Vec<u8>)) {
    let mut inner = Vec::new();
    build(&mut inner);
    bytes(out, field, &inner);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_s_own_examples() {
        let mut out = vec![];
        number(&mut out, 1, 150);
        assert_eq!(out, [0x08, 0x96, 0x01]);
        out.clear();
        bytes(&mut out, 2, b"testing");
        assert_eq!(out, [0x12, 0x07, 0x74, 0x65, 0x73, 0x74, 0x69, 0x6e, 0x67]);
        out.clear();
        message(&mut out, 3, |m| number(m, 1, 150));
        assert_eq!(out, [0x1a, 0x03, 0x08, 0x96, 0x01]);
        out.clear();
        fixed(&mut out, 1, 150);
        assert_eq!(out, [0x09, 0x96, 0, 0, 0, 0, 0, 0, 0]);
        out.clear();
        varint(&mut out, u64::MAX);
        assert_eq!(out, [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
    }
}
