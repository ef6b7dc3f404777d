//! Formats units, and escapes untrusted names.

pub use flashscope_analysis::units::{counted, digits, duration, grouped, number, percent, size};
pub use flashscope_output::{acts, visible};

/// Escapes text for HTML and SVG, for element content and quoted attributes.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in visible(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// "1 bio", "1,234 bios"
pub fn bios(n: u64) -> String {
    counted(n, "bio")
}

/// Milliseconds with two decimals, without the unit: for columns headed "ms".
pub fn ms(ns: u64) -> String {
    format!("{:.2}", ns as f64 / 1e6)
}

/// Microseconds with one decimal, without the unit.
pub fn us(ns: f64) -> String {
    format!("{:.1}", ns / 1e3)
}

/// "4 KiB", "5 MiB"; bytes if no unit divides the number.
pub fn bytes(n: u64) -> String {
    match n {
        0 => "0".to_owned(),
        n if n.is_multiple_of(1 << 30) => format!("{} GiB", n >> 30),
        n if n.is_multiple_of(1 << 20) => format!("{} MiB", n >> 20),
        n if n.is_multiple_of(1 << 10) => format!("{} KiB", n >> 10),
        n => format!("{n} B"),
    }
}

/// The letter of the n-th published value, from 0: A … Z, AA …
pub fn letter(n: usize) -> String {
    let last = char::from(b'A' + (n % 26) as u8);
    if n < 26 { last.to_string() } else { letter(n / 26 - 1) + &last.to_string() }
}

/// "65 to 75 %", "at least 50 %", "50 %".
pub fn published(min: f64, max: f64, unit: &str) -> String {
    let unit = visible(unit);
    if min == max {
        format!("{} {unit}", number(min, 2))
    } else {
        format!("{} to {} {unit}", number(min, 2), number(max, 2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_is_text() {
        assert_eq!(escape("<script>\"&'</script>"), "&lt;script&gt;&quot;&amp;&#39;&lt;/script&gt;");
        assert_eq!(escape("\u{1b}<"), "\\x1b&lt;");
    }

    #[test]
    fn numbers_with_units() {
        assert_eq!([0, 999, 1000, 1234567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([999, 1500, 43_215_000, 1_500_000_000].map(duration), ["999 ns", "1.5 µs", "43.22 ms", "1.50 s"]);
        assert_eq!([0, 512, 4096, 5 << 20, 1 << 30].map(bytes), ["0", "512 B", "4 KiB", "5 MiB", "1 GiB"]);
        assert_eq!(
            [1023, 1024, 2_757_632, 104_857_600, u64::MAX].map(size),
            ["1023 B", "1 KiB", "2.63 MiB", "100 MiB", "16,777,216 TiB"]
        );
        assert_eq!([0.0, 0.0004, 0.1234, 9.996, 19.57, 1234.6].map(digits), ["0", "0", "0.123", "10", "19.6", "1,235"]);
        assert_eq!([71.25, -0.04, 70.0, f64::NAN].map(percent), ["71.3 %", "0.0 %", "70.0 %", "–"]);
        assert_eq!([0, 25, 26, 27, 701, 702].map(letter), ["A", "Z", "AA", "AB", "ZZ", "AAA"]);
        assert_eq!(published(65.0, 75.0, "%"), "65 to 75 %");
        assert_eq!(published(1.5, 1.5, "µs"), "1.5 µs");
    }
}
