//! See `feedline_fuzz::worker_reply`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| feedline_fuzz::worker_reply::run(data));
