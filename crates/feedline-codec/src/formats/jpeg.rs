//! JPEG through libjpeg-turbo: the safe side of shim.c.
//!
//! In: the bytes of a file, or a header and the coefficients that `seek` has read. Out: rows, decoded in strips; `cancel` is called between them. Each picture gets a new decompressor. A
//! reused one would keep the tables of the previous picture, and a file without tables of its own would then decode differently on
//! another thread.
//!
//! Uses integer IDCT and smooth chroma upsampling, like Pillow and torchvision. Damage that libjpeg only warns of is an error,
//! because libjpeg continues with invented pixels.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use crate::error::CodecError;
use crate::format::Format;
use crate::formats::colour::{self, Layout};
use crate::header::Header;
use crate::memory::{grow, with_scratch};
use crate::options::{Mode, Target};
use crate::rect::Rect;
use crate::scale::Scale;
use crate::seek::{McuSource, ProgressiveCrop};

// Links the static library whose functions shim.c calls.
use turbojpeg_sys as _;

/// Bytes of output between two calls of `cancel`.
const STRIP_BYTES: usize = 1 << 20;

/// Rows of MCUs between two calls of `cancel`, for files with several scans.
const CONSUME_STEPS: u32 = 16;

/// With fewer columns libjpeg upsamples differently.
const MIN_COLUMNS: u32 = 16;

/// Decodes the part of a file that contains a crop. Returns the part.
pub(crate) fn decode_part(
    bytes: &[u8],
    header: &Header,
    crop: Rect,
    target: &mut Target<'_, '_>,
) -> Result<Rect, CodecError> {
    if header.needs_whole {
        let options = target.options;
        let stored = header.stored_rect(crop, options.scale().divisor());
        if let Some(mut read) = ProgressiveCrop::read(bytes, stored, &|| options.check_cancel())? {
            return decode_mcus(read.rect(), &read.header(), &mut read, crop, target);
        }
        // libjpeg smooths pictures with missing scans, and inside a crop differently. So the whole picture is decoded.
        return decode_with(Decompressor::open(bytes)?, None, Rect::whole(target.width, target.height), target);
    }
    decode_with(Decompressor::open(bytes)?, None, crop, target)
}

/// Decodes a crop of the stored picture from the MCUs of a part of it, which has a header of its own, without codes.
pub(crate) fn decode_mcus(
    around: Rect,
    header: &[u8],
    mcus: &mut dyn McuSource,
    crop: Rect,
    target: &mut Target<'_, '_>,
) -> Result<Rect, CodecError> {
    let options = target.options;
    let divisor = options.scale().divisor();
    // The part begins at an MCU, which has whole pixels at every scale.
    let (left, top) = (around.left / divisor, around.top / divisor);
    let (width, height) = (around.width.div_ceil(divisor), around.height.div_ceil(divisor));
    let mut target = Target { width, height, options, pixels: target.pixels };
    let part =
        decode_with(Decompressor::open(header)?, Some(&mut McuFeed(mcus)), crop.seen_from(left, top), &mut target)?;
    Ok(Rect { left: part.left + left, top: part.top + top, ..part })
}

fn decode_with<'a>(
    mut decompressor: Decompressor<'a>,
    mcus: Option<&'a mut McuFeed<'_>>,
    crop: Rect,
    target: &mut Target<'_, '_>,
) -> Result<Rect, CodecError> {
    let options = target.options;
    let info = decompressor.info;
    let divisor = options.scale().divisor();
    target.check_size(Format::Jpeg, info.width.div_ceil(divisor), info.height.div_ceil(divisor))?;
    if options.mode == Mode::Mask && info.components != 1 {
        let found = if info.components == 4 { "CMYK colour" } else { "RGB colour" };
        return Err(CodecError::NotAMask { format: Format::Jpeg, found });
    }
    let layout = decompressor.start(options.mode, options.fast)?;
    if let Some(mcus) = mcus {
        decompressor.take_coefficients(mcus)?;
    }
    // A progressive file is read completely before its first row, so cancellation is checked between steps.
    while !decompressor.consume(CONSUME_STEPS)? {
        options.check_cancel()?;
    }

    let part = decompressor.narrow(crop, layout)?;
    let row_bytes = part.width as usize * usize::from(options.mode.channels());
    let strip_bytes = row_bytes * (STRIP_BYTES / row_bytes).max(1);
    let pixels = target.pixels(part.width, part.height)?;
    // libjpeg converts to RGB and to grey itself. CMYK, and grey for an RGB target, are converted here, strip by strip.
    if layout.channels() == usize::from(options.mode.channels()) {
        for strip in pixels.chunks_mut(strip_bytes) {
            options.check_cancel()?;
            decompressor.read_rows(strip)?;
        }
        return Ok(part);
    }
    with_scratch(|scratch| {
        let stored_row = part.width as usize * layout.channels();
        for strip in pixels.chunks_mut(strip_bytes) {
            options.check_cancel()?;
            let stored = grow(scratch, (strip.len() / row_bytes * stored_row) as u64)?;
            decompressor.read_rows(stored)?;
            match options.mode {
                Mode::Rgb => colour::to_rgb(layout, stored, strip),
                _ => colour::to_grey(layout, stored, strip),
            }
        }
        Ok(part)
    })
}

/// A source of MCUs. C gets a pointer to it, which must be thin.
struct McuFeed<'s>(&'s mut dyn McuSource);

/// One decompressor for one file.
struct Decompressor<'a> {
    object: NonNull<Object>,
    info: Info,
    /// Bytes of an output row, known after `narrow`.
    row_bytes: usize,
    rows_left: u32,
    file: PhantomData<&'a [u8]>,
}

impl<'a> Decompressor<'a> {
    fn open(bytes: &'a [u8]) -> Result<Self, CodecError> {
        // SAFETY: C3, takes nothing.
        let object = unsafe { fl_jpeg_new() };
        // The object has about 4 KB. It is the only allocation that can fail here.
        let object = NonNull::new(object).ok_or(CodecError::OutOfMemory { bytes: 4096 })?;
        let mut this = Self { object, info: Info::default(), row_bytes: 0, rows_left: 0, file: PhantomData };
        let info = &raw mut this.info;
        // SAFETY: C1, `bytes` lives as long as `this`; C3 for the object.
        let status = unsafe { fl_jpeg_header(object.as_ptr(), bytes.as_ptr(), bytes.len(), info) };
        this.check(status)?;
        Ok(this)
    }

    fn start(&mut self, mode: Mode, fast: Option<Scale>) -> Result<Layout, CodecError> {
        let mut components = 0;
        // A mask of one component is grey too.
        let wants_grey = c_int::from(mode != Mode::Rgb);
        // 0 is the exact transform.
        let divisor = fast.map_or(0, Scale::divisor);
        // SAFETY: C3; `open` read the header.
        let status = unsafe {
            fl_jpeg_start(self.object.as_ptr(), wants_grey, divisor, &raw mut self.info, &raw mut components)
        };
        self.check(status)?;
        let layout = match components {
            1 => Layout::Grey,
            3 => Layout::Rgb,
            4 => Layout::Cmyk,
            _ => return Err(CodecError::unsupported(Format::Jpeg, format!("{components} components"))),
        };
        Ok(layout)
    }

    /// Uses coefficients from `mcus` instead of the file, of which only the header is given.
    fn take_coefficients(&mut self, mcus: &'a mut McuFeed<'_>) -> Result<(), CodecError> {
        let blocks = mcus.0.blocks_in_each();
        // SAFETY: C3; C8, `mcus` is borrowed for as long as the object lives and is what `next_mcu` expects.
        let status =
            unsafe { fl_jpeg_take(self.object.as_ptr(), next_mcu, std::ptr::from_mut(mcus).cast(), blocks as c_int) };
        self.check(status)
    }

    /// Reads some of a file with several scans. Returns true once rows can be read.
    fn consume(&mut self, steps: u32) -> Result<bool, CodecError> {
        let mut is_done = 0;
        // SAFETY: C3.
        let status = unsafe { fl_jpeg_consume(self.object.as_ptr(), steps, &raw mut is_done) };
        self.check(status)?;
        Ok(is_done != 0)
    }

    /// Skips to the first row of a crop, and leaves out columns that do not affect it. Returns the remaining part.
    fn narrow(&mut self, crop: Rect, layout: Layout) -> Result<Rect, CodecError> {
        let Info { width: full_width, height: full_height, .. } = self.info;
        assert!(crop.is_inside(full_width, full_height), "{crop:?} is not inside {full_width} x {full_height}");
        // Subsampled chroma pixels depend on their neighbours too.
        let right = (crop.right() + 1).max(MIN_COLUMNS).min(full_width);
        let mut left = crop.left.saturating_sub(1).min(right.saturating_sub(MIN_COLUMNS));
        let mut width = right - left;
        // SAFETY: C3.
        let status = unsafe { fl_jpeg_region(self.object.as_ptr(), &raw mut left, &raw mut width, crop.top) };
        self.check(status)?;
        self.row_bytes = width as usize * layout.channels();
        self.rows_left = crop.height;
        Ok(Rect { left, width, ..crop })
    }

    /// Fills `strip` with the next rows. It must hold a whole number of rows.
    fn read_rows(&mut self, strip: &mut [u8]) -> Result<(), CodecError> {
        assert!(
            self.row_bytes > 0 && strip.len().is_multiple_of(self.row_bytes),
            "a strip of {} bytes holds no whole number of rows of {}",
            strip.len(),
            self.row_bytes
        );
        let rows = u32::try_from(strip.len() / self.row_bytes).ok().filter(|&rows| rows <= self.rows_left);
        let rows = rows.expect("strips are cut from a picture of the size the header gave");
        // SAFETY: C2, `strip` holds `rows` rows of `row_bytes`, which is what libjpeg writes for its layout; C3.
        let status = unsafe { fl_jpeg_rows(self.object.as_ptr(), strip.as_mut_ptr(), self.row_bytes, rows) };
        self.check(status)?;
        self.rows_left -= rows;
        Ok(())
    }

    fn check(&self, status: c_int) -> Result<(), CodecError> {
        if status == Status::OK {
            return Ok(());
        }
        // SAFETY: C3.
        let message = unsafe { fl_jpeg_message(self.object.as_ptr()) };
        // SAFETY: C3, the message is part of the object and ends with a zero.
        let message = unsafe { CStr::from_ptr(message) };
        let reason = message.to_string_lossy().into_owned();
        Err(match status {
            Status::TRUNCATED => CodecError::truncated(Format::Jpeg, reason),
            Status::UNSUPPORTED => CodecError::unsupported(Format::Jpeg, reason),
            Status::OUT_OF_MEMORY => CodecError::OutOfMemory {
                bytes: u64::from(self.info.width) * u64::from(self.info.height) * u64::from(self.info.components),
            },
            _ => CodecError::damaged(Format::Jpeg, reason),
        })
    }
}

impl Drop for Decompressor<'_> {
    fn drop(&mut self) {
        // SAFETY: C3, the object is freed once, here.
        unsafe { fl_jpeg_free(self.object.as_ptr()) };
    }
}

/// The callback of libjpeg for each MCU: writes its blocks, or returns 0 if there is none.
extern "C" fn next_mcu(mcus: *mut c_void, blocks: *mut [i16; 64]) -> c_int {
    // SAFETY: C8, this is the pointer that `take_coefficients` passed, and nothing else uses it while this function runs.
    let mcus = unsafe { &mut *mcus.cast::<McuFeed<'_>>() };
    // SAFETY: C8, as many blocks as an MCU has.
    let blocks = unsafe { std::slice::from_raw_parts_mut(blocks, mcus.0.blocks_in_each()) };
    // No panic may cross the C boundary. One would be a bug, and becomes an error of this picture.
    let is_there = catch_unwind(AssertUnwindSafe(|| mcus.0.next(blocks).is_some())).unwrap_or(false);
    c_int::from(is_there)
}

/// Kept equal to the enum in shim.c.
pub(super) struct Status;

impl Status {
    pub(super) const OK: c_int = 0;
    const TRUNCATED: c_int = 2;
    const UNSUPPORTED: c_int = 3;
    const OUT_OF_MEMORY: c_int = 4;
}

#[repr(C)]
struct Object {
    opaque: [u8; 0],
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Info {
    width: u32,
    height: u32,
    components: u32,
}

unsafe extern "C" {
    fn fl_jpeg_new() -> *mut Object;
    fn fl_jpeg_free(object: *mut Object);
    fn fl_jpeg_message(object: *const Object) -> *const c_char;
    fn fl_jpeg_header(object: *mut Object, data: *const u8, length: usize, info: *mut Info) -> c_int;
    fn fl_jpeg_start(
        object: *mut Object,
        wants_grey: c_int,
        divisor: u32,
        info: *mut Info,
        components: *mut u32,
    ) -> c_int;
    fn fl_jpeg_take(
        object: *mut Object,
        next: extern "C" fn(*mut c_void, *mut [i16; 64]) -> c_int,
        from: *mut c_void,
        blocks: c_int,
    ) -> c_int;
    fn fl_jpeg_consume(object: *mut Object, steps: u32, is_done: *mut c_int) -> c_int;
    fn fl_jpeg_region(object: *mut Object, left: *mut u32, width: *mut u32, top: u32) -> c_int;
    fn fl_jpeg_rows(object: *mut Object, target: *mut u8, stride: usize, rows: u32) -> c_int;
}
