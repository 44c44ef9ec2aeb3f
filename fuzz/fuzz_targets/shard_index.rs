//! See `feedline_fuzz::shard_index`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| feedline_fuzz::shard_index::run(data));
