//! See `feedline_fuzz::trimmed`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| feedline_fuzz::trimmed::run(data));
