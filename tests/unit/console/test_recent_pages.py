"""Status pages that are shared."""

from __future__ import annotations

import asyncio

import pytest

from quafka_console.data import recent_pages
from quafka_console.data.recent_pages import RecentPages
from quafka_console.data.status_reader import OperationsPort, StatusPages

PORTS = [OperationsPort("http://gateway:1")]


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of ports of each reading, which takes a second."""
    found: list[int] = []

    async def read(ports: list[OperationsPort]) -> StatusPages:
        found.append(len(ports))
        await asyncio.sleep(1.0)
        return StatusPages([], {})

    monkeypatch.setattr(recent_pages, "read_status_pages", read)
    return found


async def test_one_reading_serves_all_until_it_is_old(readings: list[int]) -> None:
    pages = RecentPages()
    await asyncio.gather(*(pages.read(PORTS) for _ in range(5)))
    await pages.read(PORTS)
    assert readings == [1]
    await asyncio.sleep(2.5)
    await pages.read(PORTS)
    assert readings == [1, 1]
    await pages.read([*PORTS, *PORTS])
    assert readings == [1, 1, 2], "of other ports"


async def test_one_who_leaves_does_not_end_the_reading_of_others(readings: list[int]) -> None:
    pages = RecentPages()
    leaving = asyncio.create_task(pages.read(PORTS))
    staying = asyncio.create_task(pages.read(PORTS))
    await asyncio.sleep(0.5)
    leaving.cancel()
    assert (await staying).problems == {}
    assert readings == [1]
