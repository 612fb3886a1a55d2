"""Which broker serves which topic: a table of rules in which the first match wins. No I/O.

A rule is `[org/]pattern = host:port`. The pattern is a topic name in which `*` stands for any
characters and `?` for one; a rule without an org is for every org. The last rule is
`* = host:port`, so that every topic has a broker. Its broker is the *home* broker, which also
takes the ops that concern no topic.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from quafka_mesh_ops.settings import address

_LAST_ORG = 0xFFFFFFFF
_RULE = re.compile(r"(?:([0-9]{1,10})/)?([A-Za-z0-9._*?-]{1,249})\s*=\s*(\S+)", re.ASCII)
_ALL = "*"


@dataclass(frozen=True, slots=True)
class Route:
    """One rule. `org` is None in a rule for every org."""

    org: int | None
    pattern: str
    broker: str

    def __str__(self) -> str:
        org = "" if self.org is None else f"{self.org}/"
        return f"{org}{self.pattern}={self.broker}"


def parse(text: str) -> tuple[Route, ...]:
    """Read rules that are separated by commas; an empty text has none.

    Raises:
        ValueError: a part is not a rule, or a rule other than the last is `*=host:port`, or the
            last is not.
    """
    routes = tuple(_route(part.strip()) for part in text.split(",") if part.strip())
    if routes and (not _is_last(routes[-1]) or any(map(_is_last, routes[:-1]))):
        raise ValueError(text)
    return routes


def to_one(broker: str) -> tuple[Route, ...]:
    """The table of a gateway with one broker."""
    return (Route(None, _ALL, broker),)


def _route(text: str) -> Route:
    match = _RULE.fullmatch(text)
    if match is None:
        raise ValueError(text)
    org, pattern, broker = match.groups()
    if org is not None and not 1 <= int(org) <= _LAST_ORG:
        raise ValueError(text)
    return Route(None if org is None else int(org), pattern, address(broker))


def _is_last(route: Route) -> bool:
    return route.org is None and route.pattern == _ALL


class OrgRoutes:
    """The rules that apply to one org. Brokers are numbered from 0.

    Attributes:
        brokers: the addresses of the brokers that may serve the org's topics, by number.
        home: the number of the home broker.
    """

    def __init__(self, routes: Sequence[Route], org: int) -> None:
        rules: list[tuple[re.Pattern[str], int]] = []
        brokers: list[str] = []
        for route in routes:
            if route.org not in (None, org):
                continue
            if route.broker not in brokers:
                brokers.append(route.broker)
            rules.append((_expression(route.pattern), brokers.index(route.broker)))
            if route.pattern == _ALL:
                break  # the org's topics never match a later rule
        self.brokers = tuple(brokers)
        self.home = rules[-1][1]
        self._rules = rules
        self._cached: dict[str, int] = {}

    def broker_of(self, topic: str) -> int:
        """The number of the broker that serves this topic."""
        number = self._cached.get(topic)
        if number is None:
            number = next(broker for rule, broker in self._rules if rule.fullmatch(topic))
            if len(self._cached) >= _CACHED_TOPICS:
                self._cached.clear()
            self._cached[topic] = number
        return number


_CACHED_TOPICS = 100_000
"""Topics whose broker is cached. Bounded: clients may send any number of names."""


def _expression(pattern: str) -> re.Pattern[str]:
    wild = {"*": ".*", "?": "."}
    # Clients may send any text as a topic's name, also one with line ends.
    return re.compile("".join(wild.get(char) or re.escape(char) for char in pattern), re.DOTALL)
