#!/bin/sh
# Runs the tests of feedline-memory under valgrind's memcheck: what is read, written and freed. Its tools for threads know
# no futex, which Rust's locks are made of, and call everything behind them a race: see CONTRIBUTING.md.
set -eu
if ! command -v valgrind >/dev/null 2>&1; then
    if [ "$(id -u)" != 0 ] || ! { apt-get install -y -q valgrind || { apt-get update -q && apt-get install -y -q valgrind; }; } >/dev/null 2>&1; then
        echo "valgrind not found: install it"
        exit 1
    fi
fi
tests=$(cargo test -p feedline-memory --lib --no-run --message-format=json | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p')
valgrind --quiet --leak-check=full --show-leak-kinds=definite,indirect --errors-for-leak-kinds=definite,indirect --error-exitcode=9 "$tests" --quiet
