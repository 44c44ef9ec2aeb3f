//! See `feedline_fuzz::header`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| feedline_fuzz::header::run(data));
