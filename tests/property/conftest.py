"""All tests of this folder are on simulated time."""

from __future__ import annotations

from tests.support.virtual.plugin import pytest_runtest_protocol

__all__ = ["pytest_runtest_protocol"]
