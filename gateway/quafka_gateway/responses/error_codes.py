"""The Kafka error codes in a response: at its top level, of topics, of partitions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from functools import cache
from operator import attrgetter

from quafka_gateway.responses.encoded_response import EncodedResponse
from quafka_proto.message import Encoded, Message, Struct, lists_of_structs


def error_codes(response: Message | EncodedResponse | None) -> Collection[int]:
    """Return the error codes of a response at every level, each once."""
    if response is None:
        return ()
    if isinstance(response, EncodedResponse):
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
    """Return the same as `error_codes`; yield after each struct."""
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
    """Return whether a class has an error code itself, and its fields that hold more codes."""
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
            return  # encoded items have no error codes
        if own and items:
            found.update(map(_ERROR_CODE, items))
        for name, deeper in nested:
            for item in items or ():
                deeper(getattr(item, name), found)

    return find
