//! Interprets the name of a member: the key of its sample, and its field.
//!
//! WebDataset's rule: the path up to the first dot of the base name is the key. The rest is the extension, whose case does not
//! matter.

/// Extensions of pictures, in lower case.
pub(crate) const PICTURES: [&str; 11] =
    ["jpg", "jpeg", "png", "webp", "tif", "tiff", "bmp", "gif", "ppm", "pgm", "pnm"];
/// The default field of a picture.
pub(crate) const IMAGE: &str = "image";
/// The field of a class in a shard.
pub(crate) const CLASS: &str = "cls";
/// The field of a class in a sample.
pub(crate) const LABEL: &str = "label";
/// Names that mean something else in a batch.
const TAKEN: [&str; 4] = [LABEL, "index", "key", "padded"];
/// Extensions of text.
const TEXTS: [&str; 2] = ["txt", "json"];

/// Key and extension of a member, as they are written. `None` if it is not a part of a sample.
pub(crate) fn split(name: &str) -> Option<(&str, &str)> {
    // The base name starts after the last slash. Dots in folder names do not count.
    let base = name.rfind('/').map_or(0, |slash| slash + 1);
    let dot = base + name[base..].find('.')?;
    let (key, extension) = (&name[..dot], &name[dot + 1..]);
    // In WebDataset, names such as `__meta__` are metadata and not samples.
    let is_metadata = |part: &str| part.len() >= 4 && part.starts_with("__") && part.ends_with("__");
    let is_sample = dot > base && !extension.is_empty() && !name.split('/').any(is_metadata);
    is_sample.then_some((key, extension))
}

/// Whether an extension, in lower case, is that of a picture.
pub(crate) fn is_picture(extension: &str) -> bool {
    PICTURES.contains(&extension.rsplit_once('.').map_or(extension, |(_, last)| last))
}

/// The field of an extension, which is given in lower case. `jpg` is `image`, and `mask.png` is `mask`. All other extensions are
/// field names themselves, with an underscore if the name is taken.
pub(crate) fn field_of(extension: &str) -> String {
    match extension.rsplit_once('.') {
        None if is_picture(extension) => IMAGE.to_owned(),
        Some((name, _)) if is_picture(extension) && !name.is_empty() && !is_special(name) => name.to_owned(),
        // Without the underscore, the member would hide a field that the engine adds.
        _ if TAKEN.contains(&extension) => format!("{extension}_"),
        _ => extension.to_owned(),
    }
}

/// Whether a field of this name is text.
pub(crate) fn is_text(field: &str) -> bool {
    field == CLASS || TEXTS.contains(&field.rsplit_once('.').map_or(field, |(_, last)| last))
}

/// Whether a picture's field cannot have this name, because the name means something else.
fn is_special(name: &str) -> bool {
    TAKEN.contains(&name) || is_text(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_ends_at_the_first_dot_of_the_base_name() {
        let check = |name: &str, expected: Option<(&str, &str)>| assert_eq!(split(name), expected, "{name}");
        check("a/b/c.jpg", Some(("a/b/c", "jpg")));
        check("a.d/c.mask.png", Some(("a.d/c", "mask.png")));
        check("./x.JPG", Some(("./x", "JPG")));
        for none in ["a", "a/b", ".hidden", "d/.jpg", "a.", "", "a.d/b", "__notes__/x.jpg", "__x.meta__"] {
            check(none, None);
        }
    }

    #[test]
    fn pictures_are_fields_by_name_and_other_members_by_extension() {
        for (extension, field) in [
            ("jpg", "image"),
            ("webp", "image"),
            ("tif", "image"),
            ("ppm", "image"),
            ("mask.png", "mask"),
            ("left.depth.png", "left.depth"),
            ("label.png", "label.png"),
            ("json.png", "json.png"),
            (".png", ".png"),
            ("cls", "cls"),
            ("txt", "txt"),
            ("nii.gz", "nii.gz"),
            ("key", "key_"),
        ] {
            assert_eq!(field_of(extension), field, "{extension}");
        }
        assert!(is_text("caption.txt") && is_text("json") && !is_text("txt.gz"));
    }
}
