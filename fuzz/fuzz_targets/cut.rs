//! See `feedline_fuzz::cut`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| feedline_fuzz::cut::run(data));
