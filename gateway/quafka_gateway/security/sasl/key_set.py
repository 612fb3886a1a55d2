"""The public keys of the issuer of tokens (RFC 7517), from a file or over HTTPS.

They are read before the gateway serves clients, again at an interval, and soon after a token names
a key that is not known. While they cannot be read, the last ones hold.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import urllib.request
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any, cast
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit

from joserfc.errors import JoseError
from joserfc.jwk import JWKRegistry, KeySet

from quafka_loop import clock
from quafka_telemetry.startup import StartupError

log = logging.getLogger("quafka.gateway.sasl")

_MOST_BYTES = 1 << 20
_MOST_KEYS = 100
_TIMEOUT = 10.0
"""Seconds for the whole answer."""
_LEAST_PAUSE = 10.0
"""Seconds between two reads that tokens with unknown keys cause."""
_RETRY_SECONDS = 30.0


class KeySetError(Exception):
    """The keys cannot be read. The message is one sentence."""


class KeySetSource:
    """Keeps an issuer's keys up to date: `start`, then `keys` at any time, at last `close`."""

    def __init__(self, url: str, refresh_seconds: float) -> None:
        self._url = url
        self._refresh_seconds = refresh_seconds
        self._wanted = asyncio.Event()
        self._read_at = 0.0  # loop time of the last read's end
        self._renewed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.keys = KeySet([])
        """The keys as last read."""

    async def start(self) -> None:
        """Read the keys, and go on reading them at the interval.

        Raises:
            StartupError: a file cannot be used. A server that is away does not end the start.
        """
        loop = asyncio.get_running_loop()
        ok = await self.refresh()
        if not ok and self._url.startswith("file:"):
            raise StartupError(f"sasl.oauthbearer.jwks.endpoint.url: no keys in {self._url}")
        self._task = loop.create_task(self._keep(ok))

    async def close(self) -> None:
        """Stop reading the keys."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def wait_newer(self, seconds: float) -> bool:
        """Have the keys read soon, and wait for it at most this long; whether they are newer."""
        before = self.keys
        self._wanted.set()
        self._renewed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._renewed.wait()
        return self.keys is not before

    async def _keep(self, ok: bool) -> None:
        loop = asyncio.get_running_loop()
        while True:
            pause = self._refresh_seconds if ok else min(_RETRY_SECONDS, self._refresh_seconds)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wanted.wait()
                    await asyncio.sleep(max(0.0, self._read_at + _LEAST_PAUSE - loop.time()))
            self._wanted.clear()
            ok = await self.refresh()

    async def refresh(self) -> bool:
        """Read the keys now; False: the last ones hold, and the log has the reason."""
        try:
            self.keys = await asyncio.to_thread(read_keys, self._url)
        except KeySetError as e:
            log.warning("cannot read the keys of tokens: %s", e)
            return False
        finally:
            self._read_at = asyncio.get_running_loop().time()
            self._renewed.set()
        return True


def read_keys(url: str) -> KeySet:
    """Read a key set. Blocks.

    Raises:
        KeySetError: it cannot be read, is too long, or has no key for signatures.
    """
    try:
        data = _read_file(url) if url.startswith("file:") else _read_https(url)
    except (OSError, HTTPException, ValueError) as e:
        raise KeySetError(f"{url}: {e}") from e
    if len(data) > _MOST_BYTES:
        raise KeySetError(f"{url}: more than {_MOST_BYTES} bytes")
    return parse_keys(url, data)


def parse_keys(url: str, data: bytes) -> KeySet:
    """The public keys for signatures in a key set; others are skipped. Raises KeySetError."""
    try:
        told: Any = json.loads(data)
        listed = cast("list[Any]", told["keys"])[:_MOST_KEYS]
    except (ValueError, KeyError, TypeError, RecursionError) as e:
        raise KeySetError(f"{url}: not a set of keys") from e
    found: list[Any] = []
    for each in listed:
        # A symmetric key in a public file would be no secret.
        if isinstance(each, dict) and each.get("kty") in ("RSA", "EC"):  # pyright: ignore[reportUnknownMemberType]
            public = {k: v for k, v in cast("dict[str, Any]", each).items() if k != "d"}
            with suppress(JoseError, ValueError, TypeError, KeyError):
                found.append(JWKRegistry.import_key(public))
    if not found:
        raise KeySetError(f"{url}: no RSA or EC key")
    return KeySet(found)


def _read_file(url: str) -> bytes:
    with Path(unquote(urlsplit(url).path)).open("rb") as file:
        return file.read(_MOST_BYTES + 1)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The keys come from the host that the setting names."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


def _read_https(url: str) -> bytes:
    handler = urllib.request.HTTPSHandler(context=ssl.create_default_context())
    opener = urllib.request.build_opener(handler, _NoRedirect())
    until = clock.monotonic() + _TIMEOUT
    chunks: list[bytes] = []
    size = 0
    try:
        opened = opener.open(url, timeout=_TIMEOUT / 2)
    except HTTPError as e:
        e.close()  # the error is the response, whose connection is open
        raise
    with opened as response:
        while size <= _MOST_BYTES and (chunk := response.read1(64 << 10)):
            chunks.append(chunk)
            size += len(chunk)
            if clock.monotonic() > until:
                raise KeySetError(f"{url}: the answer takes more than {_TIMEOUT:g} seconds")
    return b"".join(chunks)
