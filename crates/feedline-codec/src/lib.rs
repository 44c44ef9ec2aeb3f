//! Decodes, encodes, resizes and converts pictures.
//!
//! In: the bytes of files, all of which may be hostile. Out: packed pixels, or tensors in native byte order. Nothing here knows
//! samples, files, threads or randomness. Damaged bytes give a [`CodecError`], never a panic, an access out of bounds or unlimited
//! memory. Sizes from the caller that contradict each other are bugs and panic.
//!
//! Always true: the same bytes and options give the same pixels on every machine, with SIMD and without. [`VERSION`] names
//! everything that may change them between releases.
//!
//! # Invariants that `unsafe` relies on
//!
//! - C1: the bytes of a file outlive the decoder that reads them and do not change: it borrows them.
//! - C2: a pointer handed to C comes from a slice whose length was compared with what C will read or write.
//! - C3: a C object is made by `fl_jpeg_new`, owned by one `Decompressor`, used through `&mut` and freed in its `Drop`;
//!   its functions write only to it and to their arguments, and never unwind or jump into Rust.
//! - C4: if `fl_jpeg_encode` returns 0, it has set a pointer and a length. The caller owns these bytes from then on.
//! - C5: a function with `target_feature` is called only by way of a [`Simd`] that detected these features, or all processors of the
//!   architecture have them.
//! - C6: vector loads and stores go through references to arrays of just that many bytes, by unaligned instructions. Streaming
//!   stores assert their alignment.
//! - C7: structs of libwebp's encoder are initialised by libwebp, and freed once by the function that libwebp has for it. The
//!   memory writer holds the bytes that a successful `WebPEncode` wrote.
//! - C8: `next_mcu` gets the pointer that was registered with it, which stays borrowed as long as the object lives and is used by
//!   nothing else. It also gets the blocks of one MCU, whose number the shim checks. It never unwinds.
//! - C9: `WebPDecode` writes only to its config, and to the output memory that the config names. It compares the size of that
//!   memory with the crop and the stride, refuses crops outside the picture, and keeps no pointer when it returns.

mod decode;
mod depth;
mod encode;
mod error;
mod format;
mod formats;
mod header;
mod kernels;
mod memory;
mod options;
mod orientation;
mod part;
mod rect;
mod resample;
mod scale;
mod seek;
mod view;

pub use decode::Picture;
pub use depth::{decode_into, decode_part_into};
pub use encode::{encode_jpeg, encode_jpeg_as, encode_png, encode_webp};
pub use error::{BadIndex, BadTrimmed, CodecError};
pub use format::Format;
pub use formats::{JpegCoding, Subsampling, TiffCoding, TiffPacking, WebPCoding, encode_tiff};
pub use header::{Header, read_header};
pub use kernels::{
    Affine, ColourStep, DeepNumbers, Simd, change_colours, flip_horizontal, flip_vertical, interleaved_bf16,
    interleaved_f16, interleaved_f32, mean_luma, numbers_of_16_bits, planes_bf16, planes_f16, planes_f32, planes_u8,
};
pub use options::{DecodeOptions, Mode};
pub use orientation::Orientation;
pub use part::{Encoded, trim_progressive};
pub use rect::Rect;
pub use resample::{Filter, Resampler, Resizing};
pub use scale::Scale;
pub use seek::{NotSeekable, SeekIndex, Trimmed};
pub use view::View;

/// Names everything that decides pixels. Part of the values fingerprint: change it when output may differ. libwebp 1.6 is not named,
/// because it gives the pixels of the WebP decoder of image-0.25.
pub const VERSION: &str = "libjpeg-turbo-3.1 png-0.18 image-0.25 resize-6.1 kernels-1";

/// Whether libjpeg-turbo was built with SIMD. Without, pixels are the same at half the speed.
pub const fn has_jpeg_simd() -> bool {
    cfg!(jpeg_simd)
}
