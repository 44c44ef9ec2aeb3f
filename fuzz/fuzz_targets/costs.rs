//! See `feedline_fuzz::costs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| feedline_fuzz::costs::run(data));
