//! The header parser, and the decoders. Any bytes are a header or an error. A file that can be decoded has the size in its header,
//! and a part of it has the pixels of the whole.

use feedline_codec::{Format, Picture, Rect, decode_into, read_header};

use crate::pictures::{CropRequest, files};

/// Reads the header, and the picture if there is one.
pub fn run(data: &[u8]) {
    let Ok(header) = read_header(data) else { return };
    assert!(header.width > 0 && header.height > 0, "{header:?}");
    let area = u64::from(header.width) * u64::from(header.height);
    assert!(header.decode_bytes(Rect::whole(header.width, header.height), 3, true) >= area);
    let end = &data[data.len() - 5..];
    let request = CropRequest::of(&[end[0], end[1], end[2], end[3], data.len() as u8]);
    let options = request.options();
    let mut picture = Picture::default();
    let crop = request.crop(&header);
    let rows = request.rows(data, None, &header);
    if decode_into(data, &options, &mut picture).is_ok() {
        let (width, height) = header.size_at(options.fast.unwrap_or_default());
        assert_eq!((picture.width, picture.height), header.orientation.seen_size(width, height));
        let whole = picture.view().crop(crop.left, crop.top, crop.width, crop.height);
        let expected: Vec<u8> = whole.rows().flatten().copied().collect();
        // libjpeg may call a part of a damaged file damaged, and the whole not.
        assert!(rows == Some(expected) || header.format == Format::Jpeg, "{header:?} {crop:?}");
    }
}

/// Valid files, and headers of formats for which there is no encoder here.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = files();
    let mut bitmap = b"BM\x46\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x02\0\0\0\x02\0\0\0\x01\0\x18\0".to_vec();
    bitmap.resize(70, 0);
    seeds.push(bitmap);
    seeds.push(b"GIF89a\x01\0\x01\0\x80\0\0\0\0\0\xff\xff\xff,\0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0;".to_vec());
    seeds.push(b"RIFF\x1a\0\0\0WEBPVP8L\x0d\0\0\0\x2f\0\0\0\x10\x07\x10\x11\x11\x88\x88\xfe\x07\0".to_vec());
    seeds.push(b"RIFF\x16\0\0\0WEBPVP8X\x0a\0\0\0\x08\0\0\0\x03\0\0\x02\0\0EXIF\0\0\0\0".to_vec());
    seeds
}
