#!/bin/sh
# Runs the tests of feedline-memory under valgrind's memcheck, which checks reads, writes and frees. Valgrind's tools for threads
# do not know futexes, on which Rust's locks are built, and report every locked access as a race: see CONTRIBUTING.md.
set -eu
if ! command -v valgrind >/dev/null 2>&1; then
    if [ "$(id -u)" != 0 ] || ! { apt-get install -y -q valgrind || { apt-get update -q && apt-get install -y -q valgrind; }; } >/dev/null 2>&1; then
        echo "valgrind not found: install it"
        exit 1
    fi
fi
tests=$(cargo test -p feedline-memory --lib --no-run --message-format=json | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p')
valgrind --quiet --leak-check=full --show-leak-kinds=definite,indirect --errors-for-leak-kinds=definite,indirect --error-exitcode=9 "$tests" --quiet
