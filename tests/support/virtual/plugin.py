"""pytest plugin: each test has a hub of its own, and all its event loops run on it."""

from __future__ import annotations

import asyncio
from collections.abc import Generator

import pytest

from tests.support.virtual import threads
from tests.support.virtual.hub import Hub
from tests.support.virtual.installed import installed
from tests.support.virtual.loop import VirtualLoop
from tests.support.virtual.network import Network

_networks: list[Network] = []


class VirtualPolicy(asyncio.DefaultEventLoopPolicy):
    """Makes loops of the hub in use."""

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        if not _networks:
            return super().new_event_loop()
        return VirtualLoop(threads.current_hub(), _networks[-1])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Run setup, call and teardown of a test on one hub."""
    hub = Hub()
    net = Network(hub)
    policy = asyncio.get_event_loop_policy()
    asyncio.set_event_loop_policy(VirtualPolicy())
    _networks.append(net)
    try:
        with installed(hub, net):
            return (yield)
    finally:
        _networks.pop()
        asyncio.set_event_loop_policy(policy)


@pytest.fixture(scope="session")
def event_loop_policy() -> asyncio.AbstractEventLoopPolicy:
    """What pytest-asyncio makes its loops with."""
    return VirtualPolicy()
