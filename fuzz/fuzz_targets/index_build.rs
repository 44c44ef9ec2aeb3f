//! See `feedline_fuzz::index_build`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| feedline_fuzz::index_build::run(data));
