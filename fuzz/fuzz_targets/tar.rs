//! See `feedline_fuzz::tar`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| feedline_fuzz::tar::run(data));
