"""Certificates whose time is over: OpenSSL reads the clock of the machine."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from quafka_loop import clock
from tests.unit.mesh_ops.test_bulk_peers import DAY, client_context, knock, other_certificate, port


async def test_a_certificate_that_expires_after_its_announcement_is_refused() -> None:
    async with port() as p:
        _, key = p.gateway.certificate(clock.utc_now())
        short = other_certificate(key, -DAY, timedelta(seconds=1))
        offer = p.offer(short)
        await asyncio.sleep(2.1)  # certificates count whole seconds
        assert await knock(p.number, offer.name, client_context(short), offer.token) == b""
        assert not p.attached
