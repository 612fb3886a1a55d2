"""pytest hooks of tests on simulated time: each test has a hub of its own.

The `conftest.py` of such a folder imports them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Generator
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.support.virtual.hub import Hub
from tests.support.virtual.installed import installed
from tests.support.virtual.loop import VirtualLoop
from tests.support.virtual.network import Network

__all__ = ["pytest_runtest_protocol"]


_PLAYED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Run setup, call and teardown of a test on one hub, with randomness of its own.

    pytest calls this hook of every `conftest.py` for every test of the run.
    """
    if _PLAYED in item.stash or not _is_for(item):
        return (yield)
    item.stash[_PLAYED] = True
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


def _is_for(item: pytest.Item) -> bool:
    """Whether a `conftest.py` above the test imports the hook, or `-p` names this module."""
    files = (
        Path(str(plugin.__file__))
        for plugin in item.config.pluginmanager.get_plugins()
        if getattr(plugin, "pytest_runtest_protocol", None) is pytest_runtest_protocol
    )
    return any(file == Path(__file__) or file.parent in item.path.parents for file in files)
