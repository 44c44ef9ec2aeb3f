#!/bin/sh
# Cargo calls this instead of rustc. It adds libFuzzer's coverage to our own crates; all others are built as ever, so that
# they are shared with the ordinary build, and a stable compiler does.
compiler=$1
shift
case " $* " in
*" --crate-name feedline_"*)
    exec "$compiler" "$@" -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
        -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
        -Cllvm-args=-sanitizer-coverage-trace-compares
    ;;
esac
exec "$compiler" "$@"
