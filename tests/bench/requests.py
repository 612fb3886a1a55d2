"""Small requests and produces: the first rows of `python -m tests.bench kafka`."""

from __future__ import annotations

from collections.abc import Sequence

from tests.bench import kafka


def main(arguments: Sequence[str]) -> None:
    """Measure and print; takes the options of `kafka`."""
    kafka.main(["--only", "loads", "latency", "produce", *arguments])
