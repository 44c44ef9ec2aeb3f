//! Sizes in bytes as people write them: `"512MB"`, `"4 GiB"`, or a number.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

use super::limits::MAX_BYTES;

/// A number of bytes. At most [`MAX_BYTES`] when read from text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct ByteSize(pub u64);

impl ByteSize {
    /// Parses a size with decimal units (kB, MB, GB, TB) or binary units (KiB, MiB, GiB, TiB), in any case.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "kb" | "k" => 1000,
            "mb" | "m" => 1_000_000,
            "gb" | "g" => 1_000_000_000,
            "tb" | "t" => 1_000_000_000_000,
            "kib" => 1 << 10,
            "mib" => 1 << 20,
            "gib" => 1 << 30,
            "tib" => 1 << 40,
            _ => return None,
        };
        let number: f64 = number.parse().ok()?;
        let bytes = (number * factor as f64).round();
        // The limit also keeps the size inside TOML's signed 64-bit integers.
        (bytes <= MAX_BYTES as f64).then_some(Self(bytes as u64))
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a size is a number of bytes, or a text such as \"512MB\"")]
        enum Typed {
            Number(u64),
            Text(String),
        }
        match Typed::deserialize(deserializer)? {
            Typed::Number(bytes) => Ok(Self(bytes)),
            Typed::Text(text) => Self::parse(&text).ok_or_else(|| {
                serde::de::Error::custom(format!("{text:?} is not a size; write bytes, or a text such as \"512MB\""))
            }),
        }
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes @ 0..1000 => write!(f, "{bytes} B"),
            bytes @ 1000..1_000_000 => write!(f, "{:.1} kB", bytes as f64 / 1e3),
            bytes @ 1_000_000..1_000_000_000 => write!(f, "{:.1} MB", bytes as f64 / 1e6),
            bytes => write!(f, "{:.1} GB", bytes as f64 / 1e9),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        let check =
            |text: &str, bytes: Option<u64>| assert_eq!(ByteSize::parse(text).map(|size| size.0), bytes, "{text}");
        check("512MB", Some(512_000_000));
        check("4 GiB", Some(4 << 30));
        check("1.5gb", Some(1_500_000_000));
        check("77", Some(77));
        check("", None);
        check("12 parsecs", None);
        check("-1", None);
        check("1152921504606846976", Some(1 << 60));
        check("66666666666666666666MB", None);
    }
}
