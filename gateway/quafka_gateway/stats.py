"""What a gateway counts of its clients and their requests: plain numbers, added to in passing."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable
from dataclasses import dataclass, field
from functools import cache
from operator import attrgetter
from typing import NamedTuple

from quafka_gateway.answers.encoded_answer import EncodedAnswer
from quafka_proto.message import Encoded, Message, Struct, lists_of_structs
from quafka_telemetry.metrics import Histogram

SLOW_REQUESTS = 100
"""So many are remembered."""


class SlowRequest(NamedTuple):
    """One that took long.

    Attributes:
        at: Unix time of its end.
        seconds: how long it took, without `parked`.
        errors: Kafka's error codes in its answer.
        trace_id: 32 hex digits; "" where it was not sampled.
    """

    at: float
    api: str
    client_id: str
    peer: str
    seconds: float
    parked: float
    errors: tuple[int, ...]
    trace_id: str


@dataclass(slots=True, eq=False)
class ApiStats:
    """One API's requests. `seconds` has no time in it for which they were parked."""

    requests: int = 0
    errors: dict[int, int] = field(default_factory=dict[int, int])
    seconds: Histogram = field(default_factory=Histogram)
    parked: float = 0.0


@dataclass(slots=True, eq=False)
class GatewayStats:
    """Of one gateway, since its start."""

    slow_seconds: float = 0.5
    """From here on a request is remembered."""
    received: int = 0
    sent: int = 0
    accepted: int = 0
    refused: int = 0
    malformed: int = 0
    apis: dict[str, ApiStats] = field(default_factory=dict[str, ApiStats])
    slow: deque[SlowRequest] = field(default_factory=lambda: deque(maxlen=SLOW_REQUESTS))

    def done(self, api: str, errors: Iterable[int], seconds: float, parked: float) -> bool:
        """A request was answered after so many seconds, and `parked` more; whether it was slow."""
        stats = self.apis.get(api)
        if stats is None:
            stats = self.apis[api] = ApiStats()
        stats.requests += 1
        stats.seconds.observe(seconds)
        stats.parked += parked
        for code in errors:
            stats.errors[code] = stats.errors.get(code, 0) + 1
        return seconds >= self.slow_seconds


def error_codes(response: Message | EncodedAnswer | None) -> Collection[int]:
    """The Kafka errors in a response, each once: of the whole, of topics, of partitions."""
    if response is None:
        return ()
    if isinstance(response, EncodedAnswer):
        return response.errors
    own, nested = _errors_in(type(response))
    found: set[int] = set()
    if own:
        found.add(_ERROR_CODE(response))
    for name, find in nested:
        find(getattr(response, name), found)
    found.discard(0)
    return found


def error_codes_in_steps(response: Struct) -> Generator[None, None, set[int]]:
    """As `error_codes`, a step at a time: yields after each struct."""
    found: set[int] = set()
    own, nested = _errors_in(type(response))
    if own:
        found.add(_ERROR_CODE(response))
    for name, _ in nested:
        items: list[Struct] | Encoded | None = getattr(response, name)
        for item in items if isinstance(items, list) else ():
            found |= yield from error_codes_in_steps(item)
            yield
    found.discard(0)
    return found


_Find = Callable[[list[Struct] | Encoded | None, set[int]], None]
_ERROR_CODE = attrgetter("error_code")


@cache
def _errors_in(kind: type[Struct]) -> tuple[bool, list[tuple[str, _Find]]]:
    """Whether a class has an error code of its own, and its fields that hold more of them."""
    nested = [
        (name, _finder(element))
        for name, element in lists_of_structs(kind)
        if any(_errors_in(element))
    ]
    return "error_code" in kind.FIELDS, nested


def _finder(kind: type[Struct]) -> _Find:
    own, nested = _errors_in(kind)

    def find(items: list[Struct] | Encoded | None, found: set[int]) -> None:
        if isinstance(items, Encoded):
            return  # without errors
        if own and items:
            found.update(map(_ERROR_CODE, items))
        for name, deeper in nested:
            for item in items or ():
                deeper(getattr(item, name), found)

    return find
