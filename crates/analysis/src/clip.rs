//! Limits the length of names.

/// Names are cut to this many bytes: the stream allows a name as long as a frame.
const MAX_NAME_BYTES: usize = 200;

/// The beginning of a name.
pub(crate) fn clip(name: &str) -> &str {
    let mut end = name.len().min(MAX_NAME_BYTES);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_character_is_cut_in_two() {
        assert_eq!(clip("sync"), "sync");
        assert_eq!(clip(&"x".repeat(201)).len(), 200);
        assert_eq!(clip(&format!("x{}", "ä".repeat(100))).len(), 199);
    }
}
