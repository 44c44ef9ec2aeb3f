//! See `feedline_fuzz::progressive`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| feedline_fuzz::progressive::run(data));
