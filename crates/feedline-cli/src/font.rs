//! The font of labels in `feedline show`: printable ASCII in 8 x 8 pixels.

use font8x8::legacy::BASIC_LEGACY;

/// Columns of one character.
pub(crate) const WIDTH: usize = 8;
/// Rows of one character.
pub(crate) const HEIGHT: usize = 8;

/// The pixels (column, row) of a text. Other characters than printable ASCII become question marks.
pub(crate) fn pixels(text: &str) -> impl Iterator<Item = (usize, usize)> + '_ {
    text.chars().enumerate().flat_map(|(number, character)| {
        let printable = if character == ' ' || character.is_ascii_graphic() { character } else { '?' };
        let rows = BASIC_LEGACY[printable as usize];
        (0..HEIGHT * WIDTH).filter_map(move |pixel| {
            let (row, column) = (pixel / WIDTH, pixel % WIDTH);
            // Each row is a byte, with the leftmost pixel in its lowest bit.
            (rows[row] >> column & 1 == 1).then_some((number * WIDTH + column, row))
        })
    })
}

/// The text, truncated to `most` characters. Two dots mark a truncated text.
pub(crate) fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let kept: String = text.chars().take(most.saturating_sub(2)).collect();
    format!("{kept}..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_told_apart_and_stay_in_their_cell() {
        for (number, character) in ('!'..='~').enumerate() {
            let drawn: Vec<_> = pixels(&character.to_string()).collect();
            assert!(!drawn.is_empty(), "{character}");
            assert!(drawn.iter().all(|&(x, y)| x < WIDTH && y < HEIGHT));
            let next = ('!'..='~').nth(number + 1);
            assert!(next.is_none_or(|next| pixels(&next.to_string()).ne(drawn)), "{character}");
        }
        assert_eq!(pixels(" ").count(), 0);
        assert!(pixels("é").eq(pixels("?")));
    }

    #[test]
    fn long_texts_are_cut() {
        assert_eq!(cut("short", 5), "short");
        assert_eq!(cut("longer", 5), "lon..");
    }
}
