//! File names as text, including names that are not UTF-8.
//!
//! A byte that is not part of a character becomes `\xNN`, as in `caf\xe9.jpg`. A backslash that would read as such an escape
//! becomes `\x5c`. So every file has a unique name, which leads back to the file.
//!
//! Always true: an escape stands only for a byte from 0x80 on or for a backslash, so no name hides a `/` or a `..`.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

/// A name or a path as text.
pub fn escaped(name: &[u8]) -> Cow<'_, str> {
    // Most names are plain UTF-8 and are returned without a copy.
    let is_plain = |text: &str| !text.match_indices('\\').any(|(at, _)| escape_at(text.as_bytes(), at).is_some());
    if let Ok(text) = str::from_utf8(name)
        && is_plain(text)
    {
        return text.into();
    }
    let mut text = String::with_capacity(name.len() + 8);
    for chunk in name.utf8_chunks() {
        let valid = chunk.valid();
        for (at, character) in valid.char_indices() {
            match character {
                '\\' if escape_at(valid.as_bytes(), at).is_some() => text.push_str("\\x5c"),
                _ => text.push(character),
            }
        }
        // These bytes are never ASCII, so their escapes are all from 0x80 on.
        for byte in chunk.invalid() {
            write!(text, "\\x{byte:02x}").expect("writing to a string cannot fail");
        }
    }
    text.into()
}

/// The path as text.
pub fn escaped_path(path: &Path) -> String {
    escaped(path.as_os_str().as_bytes()).into_owned()
}

/// The name or path of a text.
pub fn unescaped(text: &str) -> Cow<'_, OsStr> {
    if !text.contains("\\x") {
        return OsStr::new(text).into();
    }
    let bytes = text.as_bytes();
    let (mut name, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(&byte) = bytes.get(at) {
        let escape = escape_at(bytes, at);
        name.push(escape.unwrap_or(byte));
        // An escape has four characters: backslash, x and two digits.
        at += if escape.is_some() { 4 } else { 1 };
    }
    OsString::from_vec(name).into()
}

/// The byte of an escape at this place.
fn escape_at(text: &[u8], at: usize) -> Option<u8> {
    let [b'\\', b'x', high, low] = *text.get(at..at + 4)? else { return None };
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let byte = digit(high)? << 4 | digit(low)?;
    // Other escapes, such as `\x2f` for a slash, are ordinary text.
    (byte >= 0x80 || byte == b'\\').then_some(byte)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_in_utf8_are_unchanged_and_other_bytes_are_escaped() {
        for (name, text) in [
            (b"plain \\ \\x41 \\xZZ.jpg".as_slice(), "plain \\ \\x41 \\xZZ.jpg"),
            ("é/日本.png".as_bytes(), "é/日本.png"),
            (b"caf\xe9.jpg", "caf\\xe9.jpg"),
            (b"\\xe9", "\\x5cxe9"),
            (b"\\x5c", "\\x5cx5c"),
        ] {
            assert_eq!(escaped(name), text);
            assert_eq!(unescaped(text).as_bytes(), name, "{text}");
        }
    }

    #[test]
    fn no_escape_stands_for_a_part_of_a_path() {
        for text in ["\\x2e\\x2e\\x2f", "\\x2f", "\\x00", "\\x7e"] {
            assert_eq!(unescaped(text).as_bytes(), text.as_bytes());
        }
    }

    proptest! {
        #[test]
        fn every_name_has_a_text_that_leads_back_to_it(
            name in prop::collection::vec(prop_oneof![Just(b'\\'), Just(b'x'), Just(b'5'), Just(b'c'), Just(b'e'), any::<u8>()], 0..40),
        ) {
            let text = escaped(&name).into_owned();
            let back = unescaped(&text);
            prop_assert_eq!(back.as_bytes(), &*name);
        }
    }
}
