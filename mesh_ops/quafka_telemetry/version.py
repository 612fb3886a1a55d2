"""The version of Quafka."""

from __future__ import annotations

from functools import cache


@cache
def version() -> str:
    """Return the version of the wheel. The first call reads files: make it in a thread."""
    from importlib.metadata import version as version_of  # slow: only programs that need it pay

    return version_of("quafka")
