"""Restores logging after each test: the `quafka` command configures it for the whole process."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.support.virtual.plugin import pytest_runtest_protocol

__all__ = ["pytest_runtest_protocol"]


@pytest.fixture(autouse=True)
def _root_logger_as_before() -> Iterator[None]:
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
