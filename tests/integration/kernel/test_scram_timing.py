"""The time of an exchange does not give away whether a user exists.

`python -m tests.bench sasl` measures the same through a gateway, over ten thousand tries.
"""

from __future__ import annotations

import random
import time

import pytest

from quafka_gateway.security.sasl.mechanism import AuthenticationError
from quafka_gateway.security.sasl.scram import ScramServer
from tests.support.pairs import longer
from tests.unit.gateway.sasl.users import accounts_of, credential, user

pytestmark = pytest.mark.long

TRIES = 2_000
PLAYS = 3
"""Other work on the machine disturbs a measurement, but not three times in a row."""
LARGEST = 0.1
"""How far the share of pairs may be from one half; 1 µs of 23 shows as 0.28."""
ACCOUNTS = accounts_of(*(user(f"known-{number}", credential("secret")) for number in range(10)))


async def _seconds(name: str) -> float:
    server = ScramServer("SCRAM-SHA-256", ACCOUNTS)
    began = time.perf_counter()
    first = (await server.evaluate(f"n,,n={name},r=abc".encode())).token
    nonce = first.partition(b",")[0].removeprefix(b"r=")
    try:
        await server.evaluate(b"c=biws,r=" + nonce + b",p=" + b"A" * 43 + b"=")
    except AuthenticationError:
        return time.perf_counter() - began
    raise AssertionError("it was accepted")


async def test_known_and_unknown_users_take_the_same_time() -> None:
    shares: list[float] = []
    for _ in range(PLAYS):
        found: dict[str, list[float]] = {"known": [], "other": []}
        for _ in range(TRIES):
            kind = random.choice(["known", "other"])
            found[kind].append(await _seconds(f"{kind}-{random.randrange(10)}"))
        share, _ = longer(found["known"], found["other"])
        shares.append(share)
        if abs(share - 0.5) < LARGEST:
            return
    raise AssertionError(shares)
