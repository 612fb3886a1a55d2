"""Whoever asks for pages and opens none takes little memory."""

from __future__ import annotations

import asyncio

import pytest

from quafka_console.unopened import MOST_UNOPENED
from tests.bench.console import asked_page, joined


@pytest.mark.long
def test_pages_that_nobody_opens_are_given_up(console: str) -> None:
    url = console.rstrip("/")
    first, *_ = pages = [asked_page(f"{url}/audit") for _ in range(MOST_UNOPENED + 1)]

    async def opened(page: tuple[str, str]) -> str:
        async with joined(url, *page) as (_, answer):
            return answer

    assert asyncio.run(opened(first)).startswith("44"), "refused"
    assert asyncio.run(opened(pages[1])).startswith("40")
