"""Which version this is."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version as version_of


@cache
def version() -> str:
    """Of the wheel that both programs are in."""
    return version_of("quafka")
