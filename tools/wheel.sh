#!/bin/sh
# Builds the wheel that is published: for every Linux with glibc 2.28 or later (RHEL 8, Ubuntu 20.04, Debian 10 and newer).
# Zig, a package of PyPI, links against that glibc on any machine. A target folder of its own keeps these builds apart.
set -eu
cd "$(dirname "$0")/.."
compatibility=manylinux_2_28
.venv/bin/pip install -q ziglang auditwheel
export CARGO_TARGET_DIR=target/manylinux
rm -rf target/manylinux/wheels
.venv/bin/maturin build --release --zig --compatibility "$compatibility" --out target/manylinux/wheels
wheel=$(ls target/manylinux/wheels/feedline-*.whl)
# auditwheel names the oldest tag that the library's symbols allow.
shown=$(.venv/bin/auditwheel show "$wheel" | tr '\n' ' ')
case $shown in
    *"following platform tag: \"${compatibility}_"*) echo "$wheel runs on $compatibility" ;;
    *) echo "$shown"; echo "error: $wheel does not fit $compatibility"; exit 1 ;;
esac
