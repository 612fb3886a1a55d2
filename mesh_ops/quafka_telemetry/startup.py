"""The error with which a process refuses to start."""

from __future__ import annotations


class StartupError(Exception):
    """A process cannot start. The message is one sentence for the operator (exit code 1)."""
