"""The name that a person may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_LONGEST = 64
"""Characters of a name that is compared: the time grows with the square, and clients send names."""
_CLOSE = 0.7  # with difflib's 0.6, --adopt is close to --ops


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of an error's sentence: "; did you mean X?" if a known name is close, else ""."""
    close = difflib.get_close_matches(name, known, 1, _CLOSE) if len(name) <= _LONGEST else []
    return f"; did you mean {close[0]}?" if close else ""
