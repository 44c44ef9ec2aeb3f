//! See `feedline_fuzz::state`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| feedline_fuzz::state::run(data));
