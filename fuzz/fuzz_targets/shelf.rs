//! See `feedline_fuzz::shelf`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| feedline_fuzz::shelf::run(data));
