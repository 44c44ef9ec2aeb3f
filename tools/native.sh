#!/bin/sh
# The C part (libjpeg-turbo) needs an assembler for its SIMD code. Installs one if possible. The build also works without it.
set -u
if command -v nasm >/dev/null 2>&1 || command -v yasm >/dev/null 2>&1; then
    exit 0
fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    if apt-get install -y -q nasm >/dev/null 2>&1 || { apt-get update -q && apt-get install -y -q nasm; } >/dev/null 2>&1; then
        exit 0
    fi
fi
echo "nasm not found: JPEG decoding is built without SIMD, with the same pixels at half the speed (install nasm, then make clean)"
