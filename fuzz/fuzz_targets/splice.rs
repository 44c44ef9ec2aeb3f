//! See `feedline_fuzz::splice`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| feedline_fuzz::splice::run(data));
