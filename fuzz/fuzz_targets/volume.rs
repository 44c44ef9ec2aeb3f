//! See `feedline_fuzz::volume`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| feedline_fuzz::volume::run(data));
