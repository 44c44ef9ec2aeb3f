//! See `feedline_fuzz::kept_sample`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| feedline_fuzz::kept_sample::run(data));
