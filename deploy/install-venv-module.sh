#!/bin/sh
# Debian packages Python's venv module separately. Install it as root, else print the command.
# usage: install-venv-module.sh PYTHON VENV
set -eu
rm -rf "$2"
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing Debian's python3-venv ..." >&2
    apt-get update -qq && apt-get install -y -qq python3-venv >/dev/null
    exec "$1" -m venv "$2"
fi
echo "Python's venv module is missing; run: sudo apt-get install python3-venv" >&2
exit 1
