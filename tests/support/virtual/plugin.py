"""pytest hooks of tests on simulated time: each test has a hub of its own.

The `conftest.py` of such a folder imports them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Generator
from unittest.mock import patch

import pytest

from tests.support.virtual.hub import Hub
from tests.support.virtual.installed import installed
from tests.support.virtual.loop import VirtualLoop
from tests.support.virtual.network import Network

__all__ = ["pytest_runtest_protocol"]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Run setup, call and teardown of a test on one hub, with randomness of its own."""
    random.seed(item.nodeid)
    hub = Hub()
    net = Network(hub)
    with (
        patch.object(
            asyncio.DefaultEventLoopPolicy, "new_event_loop", lambda _: VirtualLoop(hub, net)
        ),
        installed(hub, net),
    ):
        try:
            return (yield)
        finally:
            hub.end()
