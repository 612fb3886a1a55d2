"""Attacks that follow from the schemas: every API with forged lengths, and at hostile sizes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from quafka_gateway.api import APIS
from quafka_gateway.handlers.kafka_api import AnyApi
from tests.hostile.arena import Arena
from tests.hostile.catalogue import attack
from tests.hostile.forging import paths, written

FORGERIES: list[Callable[[int], int]] = [
    lambda _true: (1 << 31) - 1,
    lambda true: true + 1,
    lambda _true: 1 << 20,
]
_FRAME = 100 << 20
_MANY, _MOST = 20_000, 249_000
"""Items of an array: as many as a large cluster has, and just below what a request may have."""
_LONG = {"string": (32_767, 1 << 20), "bytes": (1 << 16, 1 << 20, 16 << 20)}
_ANSWER_SECONDS = 60.0
_ACKS: dict[str, object] = {"acks": -1}
"""Without it a produce request is not answered."""


def _versions(api: AnyApi) -> Iterator[int]:
    yield from sorted({api.versions.low, api.versions.high})


def _settled(arena: Arena, frame: bytes, seconds: float = _ANSWER_SECONDS) -> None:
    """Send it; there must be an answer, or the connection is closed. Raises TimeoutError."""
    with arena.connect(seconds) as client, contextlib.suppress(ConnectionError):
        client.socket.sendall(frame)
        client.receive_frame()


@attack("each length and count of each API is forged", part_of_tests=True)
def forged(arena: Arena) -> None:
    for api in APIS.values():
        for version in _versions(api):
            _, lengths = written(api.request, version)
            for number in range(lengths):
                for forgery in FORGERIES:
                    frame, _ = written(
                        api.request, version, values=_ACKS, forge=number, forged=forgery
                    )
                    _settled(arena, frame, 10)


def _hostile_sizes(api: AnyApi) -> Iterator[dict[str, int]]:
    for path, kind in paths(api.request, api.versions.high):
        for size in _LONG.get(kind, (_MANY, _MOST) if kind == "array" else ()):
            yield {path: size}


def _enter(api: AnyApi) -> None:
    @attack(f"{api.name} at hostile sizes", "sizes")
    def sizes(arena: Arena) -> None:
        for chosen in _hostile_sizes(api):
            frame, _ = written(api.request, api.versions.high, sizes=chosen, values=_ACKS)
            assert len(frame) < _FRAME
            try:
                _settled(arena, frame)
            except TimeoutError as e:
                raise AssertionError(f"no answer to {chosen} within {_ANSWER_SECONDS} s") from e


for one in APIS.values():
    _enter(one)
