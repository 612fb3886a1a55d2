"""Logins: how many a second, what they do to the gateway's loop, and what their times give away.

Every login is a connection of its own: handshake, exchange, close. A SCRAM client has hashed its
password before, so that the figures are the gateway's; the number of iterations costs a SCRAM
server nothing, and a PLAIN server each time. "Turn" is the longest of the gateway's event loop.

Then wrong passwords of known and unknown users in random order, over SCRAM: the share of pairs of
one each in which the known user's answers took longer (0.5: no difference), and by how many
standard deviations that differs from chance.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import hashlib
import hmac
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from quafka_proto.codec import decode
from quafka_proto.headers import decode_response_header, encode_request
from quafka_proto.schema.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
)
from tests.support.cluster import Cluster
from tests.support.pairs import longer
from tests.support.prometheus import Scrape
from tests.support.sasl_users import alter_users, upsertion

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ROWS = [
    ("SCRAM-SHA-256", 4_096), ("SCRAM-SHA-256", 15_000), ("SCRAM-SHA-512", 4_096),
    ("SCRAM-SHA-512", 15_000), ("PLAIN", 4_096), ("PLAIN", 15_000),
]  # fmt: skip
AT_ONCE = 16
PASSWORD = "secret"
USERS = 10


class Login:
    """One connection that logs in. `spent`: seconds until each of the two answers of SCRAM."""

    def __init__(self, mechanism: str, name: str, password: str = PASSWORD) -> None:
        self._mechanism = mechanism
        self._name = name
        self._password = password
        self.spent = 0.0

    async def run(self, address: tuple[str, int]) -> bool:
        """Whether the gateway has let it in."""
        self._reader, self._writer = await asyncio.open_connection(*address)
        try:
            await self._ask(SaslHandshakeRequest(mechanism=self._mechanism), 1)
            if self._mechanism == "PLAIN":
                answer = await self._token(f"\0{self._name}\0{self._password}".encode())
            else:
                answer = await self._scram()
            return answer.error_code == 0
        finally:
            self._writer.transport.abort()

    async def _scram(self) -> SaslAuthenticateResponse:
        name = HASHES[self._mechanism]
        bare = f"n={self._name},r=fyko+d2lbbFgONRv9qkxdawL"
        first = (await self._token(f"n,,{bare}".encode())).auth_bytes.decode()
        nonce, salt, iterations = (part[2:] for part in first.split(","))
        salted = _salted(name, self._password, base64.b64decode(salt), int(iterations))
        key = hmac.digest(salted, b"Client Key", name)
        without = f"c=biws,r={nonce}"
        signature = hmac.digest(
            hashlib.new(name, key).digest(), f"{bare},{first},{without}".encode(), name
        )
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        return await self._token(f"{without},p={base64.b64encode(proof).decode()}".encode())

    async def _token(self, token: bytes) -> SaslAuthenticateResponse:
        request = SaslAuthenticateRequest(auth_bytes=token)
        began = time.perf_counter()
        frame = await self._ask(request, 1)
        self.spent += time.perf_counter() - began
        _, at = decode_response_header(SaslAuthenticateResponse, 1, frame)
        answer = decode(SaslAuthenticateResponse, 1, frame, at)
        assert isinstance(answer, SaslAuthenticateResponse)
        return answer

    async def _ask(
        self, request: SaslHandshakeRequest | SaslAuthenticateRequest, version: int
    ) -> bytes:
        self._writer.write(b"".join(encode_request(1, "bench", request, version)))
        size = int.from_bytes(await self._reader.readexactly(4))
        return await self._reader.readexactly(size)


@cache
def _salted(name: str, password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(name, password.encode(), salt, iterations)


async def _rate(address: tuple[str, int], mechanism: str, name: str, seconds: float) -> float:
    """Logins a second of some connections side by side."""
    assert await Login(mechanism, name).run(address)
    until = time.monotonic() + seconds
    count = 0

    async def log_in() -> None:
        nonlocal count
        while time.monotonic() < until:
            assert await Login(mechanism, name).run(address)
            count += 1

    began = time.monotonic()
    await asyncio.gather(*(log_in() for _ in range(AT_ONCE)))
    return count / (time.monotonic() - began)


async def _times(address: tuple[str, int], tries: int) -> tuple[list[float], list[float]]:
    """Seconds that wrong passwords of known and of unknown users take."""
    found: tuple[list[float], list[float]] = ([], [])
    order = [number % 2 for number in range(tries)]
    random.shuffle(order)
    for kind in order:
        name = f"{('known', 'other')[kind]}-{random.randrange(USERS)}"
        login = Login("SCRAM-SHA-256", name, "wrong")
        assert not await login.run(address)
        found[kind].append(login.spent)
    return found


def main(arguments: Sequence[str]) -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench sasl", description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each mechanism")
    parser.add_argument("--tries", type=int, default=10_000, help="of wrong passwords")
    args = parser.parse_args(arguments)
    settings = (
        *("--sasl-enabled-mechanisms", "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"),
        *("--listener-security-protocol-map", "INSIDE:PLAINTEXT,CLIENTS:SASL_PLAINTEXT"),
        *("--super-users", "User:ANONYMOUS", "--max-failed-authentications-per-ip", "0"),
        *("--connection-failed-authentication-delay-ms", "0", "--log-level", "error"),
    )
    listeners = "INSIDE://127.0.0.1:0,CLIENTS://127.0.0.1:0"
    with (
        tempfile.TemporaryDirectory() as folder,
        Cluster(Path(folder), gateway_args=settings, listeners=listeners) as cluster,
    ):
        address = cluster.address_of("CLIENTS")
        print(f"{'':16}{'iterations':>12}{'logins/s':>12}{'turn ms':>10}")
        for mechanism, iterations in ROWS:
            held = "SCRAM-SHA-256" if mechanism == "PLAIN" else mechanism
            name = f"{mechanism}-{iterations}"
            change = upsertion(name, PASSWORD, held, iterations)
            alter_users(cluster.address_of("INSIDE"), change)
            operations = cluster.gateway.ready["operations"]
            Scrape(operations)  # begins to measure anew
            rate = asyncio.run(_rate(address, mechanism, name, args.seconds))
            turn = Scrape(operations)("quafka_loop_longest_turn_seconds") * 1e3
            print(f"{mechanism:16}{iterations:12}{rate:12.0f}{turn:10.1f}", flush=True)
        if not args.tries:
            return
        alter_users(
            cluster.address_of("INSIDE"),
            *(upsertion(f"known-{number}", PASSWORD) for number in range(USERS)),
        )
        known, unknown = asyncio.run(_times(address, args.tries))
        share, deviations = longer(known, unknown)
        medians = [f"{statistics.median(each) * 1e6:.1f} µs" for each in (known, unknown)]
        print(
            f"\n{args.tries} wrong passwords: medians {medians[0]} known, {medians[1]} unknown; "
            f"known longer in {share:.4f} of pairs ({deviations:+.1f} standard deviations)"
        )
