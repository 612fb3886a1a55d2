"""`python -m tests.bench [NAME ...]`: figures on this machine, each beside a baseline.

Every module of this folder that has a `main(arguments)` is a table. Without names those of `make
bench` are printed. Nothing here asserts a time.
"""

from __future__ import annotations

import os
import platform
import sys
from importlib import import_module
from itertools import takewhile

BRIEF = ("start", "product", "mesh", "codec")
"""What `make bench` prints."""


def main() -> None:
    """Print the named tables, with the options behind the last name."""
    names = list(takewhile(lambda word: not word.startswith("-"), sys.argv[1:]))
    options = sys.argv[1 + len(names) :]
    load = os.getloadavg()[0]
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, load {load:.1f}, "
        f"Python {platform.python_version()}"
    )
    for name in names or BRIEF:
        print(f"\n== {name}", flush=True)
        import_module(f"tests.bench.{name}").main(options)


if __name__ == "__main__":
    main()
