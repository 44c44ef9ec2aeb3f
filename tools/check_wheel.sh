#!/bin/sh
# Tests the wheel of tools/wheel.sh in a Debian 11 root (glibc 2.31). Debian 11 has Python 3.9 and the wheel needs 3.10, so the
# shared library is loaded there, with every symbol bound. Needs root, debootstrap and the machine's Debian mirror.
set -eu
cd "$(dirname "$0")/.."
wheel=$(pwd)/$(ls target/manylinux/wheels/feedline-*.whl)
root=$(pwd)/target/debian11
if [ "$(id -u)" != 0 ]; then
    echo "error: a Debian root can be made by root only"
    exit 1
fi
command -v debootstrap >/dev/null 2>&1 || apt-get install -y -q debootstrap >/dev/null 2>&1 ||
    { apt-get update -q && apt-get install -y -q debootstrap; } >/dev/null
if [ ! -e "$root/ready" ]; then
    rm -rf "$root"
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep '/debian/$' | sort -u | head -n 1)
    debootstrap --variant=minbase --include=python3 bullseye "$root" "$mirror" >"$root.log" 2>&1 ||
        { tail -n 5 "$root.log"; exit 1; }
    touch "$root/ready"
fi
rm -rf "$root/opt/wheel"
mkdir -p "$root/opt/wheel"
.venv/bin/python -m zipfile -e "$wheel" "$root/opt/wheel"
# Every symbol that is not Python's own must exist in this glibc, in the right version.
missing=$(chroot "$root" ldd -r /opt/wheel/feedline/_feedline.abi3.so 2>&1 | grep -E 'not found|undefined symbol' | grep -vE 'undefined symbol: _?Py' || true)
if [ -n "$missing" ]; then
    echo "$missing"
    echo "error: the library does not load with $(chroot "$root" ldd --version | head -n 1)"
    exit 1
fi
# Python 3.9 lacks a few functions of 3.10: stand-ins let the library load, but nothing calls them.
wanted=$(nm -D --undefined-only "$root/opt/wheel/feedline/_feedline.abi3.so" | grep -oE '\b_?Py[A-Za-z0-9_]+' | sort -u)
given=$(nm -D --defined-only "$root"/usr/bin/python3.9 | awk '{ print $3 }' | sort -u)
echo "$wanted" | grep -vxF "$given" | sed 's/.*/void &(void) { __builtin_trap(); }/' >"$root/opt/wheel/newer.c"
.venv/bin/python -m ziglang cc -target x86_64-linux-gnu.2.28 -shared -w -o "$root/opt/wheel/newer.so" "$root/opt/wheel/newer.c"
chroot "$root" python3 -c '
import ctypes, platform
ctypes.CDLL("/opt/wheel/newer.so", mode=ctypes.RTLD_GLOBAL)
library = ctypes.CDLL("/opt/wheel/feedline/_feedline.abi3.so")
assert library.PyInit__feedline
print("the library loads with", *platform.libc_ver(), "in Python", platform.python_version())'
