"""Why topics cannot be imported."""

from __future__ import annotations


class ImportRefusedError(Exception):
    """Nothing was imported, or no more of it; the message gives the reason."""
