//! Cells of CSV files for spreadsheets.

use std::borrow::Cow;

/// Text as a CSV cell. Unless `raw`, an apostrophe precedes text that a spreadsheet would take for a formula (it begins with
/// `=`, `+`, `-`, `@`, a tab or a carriage return, and is no number). Quoted as RFC 4180 says, where necessary.
pub fn cell(text: &str, raw: bool) -> Cow<'_, str> {
    let formula = !raw && text.starts_with(['=', '+', '-', '@', '\t', '\r']) && !is_number(text);
    if !formula && !text.contains([',', '"', '\n', '\r']) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("\"{}{}\"", if formula { "'" } else { "" }, text.replace('"', "\"\"")))
}

/// Whether a spreadsheet reads it as a number; names of numbers (`-inf`) are none.
fn is_number(text: &str) -> bool {
    text.bytes().all(|c| c.is_ascii_digit() || b"+-.eE".contains(&c)) && text.parse::<f64>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_are_text_and_numbers_stay_numbers() {
        for (text, want) in [
            ("=1+1", "\"'=1+1\""),
            ("+cmd|' /C calc'!A0", "\"'+cmd|' /C calc'!A0\""),
            ("@SUM(1,2)", "\"'@SUM(1,2)\""),
            ("-2+3", "\"'-2+3\""),
            ("\t=1", "\"'\t=1\""),
            ("\r=1", "\"'\r=1\""),
            ("-inf", "\"'-inf\""),
            ("-", "\"'-\""),
            ("-5", "-5"),
            ("+1.5e-3", "+1.5e-3"),
            ("a,\"b\"", "\"a,\"\"b\"\"\""),
            ("a=1", "a=1"),
            ("", ""),
        ] {
            assert_eq!(cell(text, false), want, "{text:?}");
        }
        assert_eq!(cell("=1+1", true), "=1+1");
        assert_eq!(cell("=1,1", true), "\"=1,1\"");
    }
}
