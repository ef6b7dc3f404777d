//! Formats numbers with their units.

/// 1234567 → "1,234,567".
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// "1 request", "2 requests"
pub fn counted(n: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(n), if n == 1 { "" } else { "s" })
}

/// A time in a suitable unit.
pub fn duration(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}

/// "2.63 MiB": a number of bytes, to three digits.
pub fn size(n: u64) -> String {
    let (unit, shift) = match n {
        0..1024 => return format!("{n} B"),
        n if n < 1 << 20 => ("KiB", 10),
        n if n < 1 << 30 => ("MiB", 20),
        n if n < 1 << 40 => ("GiB", 30),
        _ => ("TiB", 40),
    };
    format!("{} {unit}", digits(n as f64 / (1u64 << shift) as f64))
}

/// A positive number to three digits, more where it is 1000 or above, and at most three behind the point.
pub fn digits(value: f64) -> String {
    if value >= 999.5 {
        return grouped(value.round() as u64);
    }
    let decimals = match value {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        v if v >= 0.9995 => 2,
        _ => 3,
    };
    number(value, decimals)
}

/// "71.3 %", one decimal always, for columns; a dash where there is no number.
pub fn percent(value: f64) -> String {
    // Plus zero turns -0 into 0.
    if value.is_finite() { format!("{:.1} %", (value * 10.0).round() / 10.0 + 0.0) } else { "–".to_owned() }
}

/// A number with at most `decimals`, without trailing zeros and without "-0".
pub fn number(value: f64, decimals: usize) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    let mut text = format!("{value:.decimals$}");
    if text.contains('.') {
        text.truncate(text.trim_end_matches('0').trim_end_matches('.').len());
    }
    if text == "-0" { "0".to_owned() } else { text }
}
