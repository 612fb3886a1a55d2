"""The error of a source that cannot be served."""

from __future__ import annotations


class AdoptionError(Exception):
    """The folders cannot be served; the message gives the reason in one sentence."""
