#!/bin/sh
# Tests open the page of a node in a real browser. Installs Chromium and its driver if possible. Otherwise the test reports
# that they are missing.
set -u
if command -v chromium >/dev/null 2>&1 && command -v chromedriver >/dev/null 2>&1; then
    exit 0
fi
install() {
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends chromium chromium-driver fonts-dejavu-core
}
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    if install >/dev/null 2>&1 || { apt-get update -q && install; } >/dev/null 2>&1; then
        exit 0
    fi
fi
echo "chromium and chromedriver not found: tests/test_node_page.py will fail (install both, e.g. apt-get install chromium chromium-driver)"
