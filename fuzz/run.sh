#!/bin/sh
# Runs each target under libFuzzer: run.sh SECONDS [TARGET...], or `run.sh same` for a run that is always the same: a fixed
# number of inputs from a fixed seed, made of the seeds alone.
# What breaks a promise is left in fuzz/artifacts; the corpora in fuzz/corpus grow from run to run.
set -eu
cd "$(dirname "$0")"
time=$1
[ "$time" = same ] && rm -rf corpus
shift
targets=${*:-header index_build index_read cut progressive trimmed tiff tar shard_index volume wire worker_reply plan state costs shelf kept_sample}
if ! command -v c++ >/dev/null 2>&1; then
    echo "no C++ compiler: libFuzzer is left out, and only tests/mutations.rs ran the targets"
    exit 0
fi
# The target folder of the workspace: what our crates depend on is built once. Units of code of their own keep ours with
# coverage apart from those without.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$(cd .. && pwd)/target}"
apart=""
for crate in memory codec order data engine net; do
    apart="$apart --config profile.dev.package.feedline-$crate.codegen-units=128"
done
cargo run --quiet --bin seeds -- corpus
RUSTC_WRAPPER="$(pwd)/rustc.sh" cargo build --quiet --features libfuzzer $apart \
    $(for target in $targets; do echo "--bin $target"; done)
for target in $targets; do
    mkdir -p artifacts/"$target"
    log=artifacts/$target/log
    limit="-max_total_time=$time"
    # Targets that start an engine or write files for each input take longer.
    case "$time $target" in
    "same kept_sample" | "same costs" | "same shelf") limit="-seed=1 -runs=500" ;;
    "same "*) limit="-seed=1 -runs=5000" ;;
    esac
    echo "fuzzing $target $limit"
    if ! "$CARGO_TARGET_DIR"/debug/"$target" corpus/"$target" $limit -timeout=10 -rss_limit_mb=1024 \
        -max_len=16384 -artifact_prefix=artifacts/"$target"/ 2>"$log"; then
        tail -n 60 "$log"
        exit 1
    fi
    tail -n 2 "$log"
done
