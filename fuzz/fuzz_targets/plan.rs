//! See `feedline_fuzz::plan`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| feedline_fuzz::plan::run(data));
