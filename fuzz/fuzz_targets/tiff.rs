//! See `feedline_fuzz::tiff`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| feedline_fuzz::tiff::run(data));
