//! Sizes as people write them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer};

/// A number of bytes: `4096`, `"4K"`, `"5M"`, `"1GiB"`. Suffixes are powers of 1024, as in the kernel's own knobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

impl Bytes {
    pub fn kib(self) -> u64 {
        self.0 / 1024
    }
}

impl FromStr for Bytes {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let number: u64 = text[..digits].parse().map_err(|_| wrong(text))?;
        let shift = match text[digits..].trim().to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            _ => return Err(wrong(text)),
        };
        number.checked_mul(1 << shift).map(Bytes).ok_or_else(|| wrong(text))
    }
}

fn wrong(text: &str) -> String {
    format!("'{text}' is not a size: write bytes, or a number with K, M or G")
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, suffix) = match self.0 {
            n if n >= 1 << 20 && n % (1 << 20) == 0 => (n >> 20, "M"),
            n if n >= 1 << 10 && n % (1 << 10) == 0 => (n >> 10, "K"),
            n => (n, ""),
        };
        write!(f, "{number}{suffix}")
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        number_or_text(deserializer, |bytes| Ok(Bytes(bytes)))
    }
}

/// A value that a study file states as a number, or as a text that is parsed.
pub(crate) fn number_or_text<'de, T, D>(
    deserializer: D,
    number: impl Fn(u64) -> Result<T, String>,
) -> Result<T, D::Error>
where
    T: FromStr<Err = String>,
    D: Deserializer<'de>,
{
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Raw {
        Number(u64),
        Text(String),
    }
    let value = match Raw::deserialize(deserializer)? {
        Raw::Number(value) => number(value),
        Raw::Text(text) => text.parse(),
    };
    value.map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_are_powers_of_1024() {
        for (text, bytes) in
            [("0", 0), ("4096", 4096), ("4K", 4096), ("128KiB", 131072), ("5M", 5 << 20), ("1 GiB", 1 << 30)]
        {
            assert_eq!(text.parse::<Bytes>().unwrap().0, bytes, "{text}");
        }
        for text in ["", "K", "4X", "-1", "99999999999G", "18446744073709551616"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
        assert_eq!(Bytes(5 << 20).to_string(), "5M");
    }
}
