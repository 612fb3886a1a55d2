"""Which version this is."""

from __future__ import annotations

from functools import cache


@cache
def version() -> str:
    """Of the wheel that both programs are in. The first call reads files, and is for a thread."""
    from importlib.metadata import version as version_of  # slow, and every start would pay

    return version_of("quafka")
