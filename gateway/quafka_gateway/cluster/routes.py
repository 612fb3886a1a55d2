"""Which broker serves which topic: a plain table, first match wins. Pure.

A rule is `[org/]pattern = host:port`. The pattern is a topic name in which `*` stands for any
characters and `?` for one; without an org it is for every org. The last rule is `* = host:port`,
so that every topic has a broker: the *home* broker, which also answers what concerns no topic.
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
    """One rule. `org` None: of every org."""

    org: int | None
    pattern: str
    broker: str

    def __str__(self) -> str:
        org = "" if self.org is None else f"{self.org}/"
        return f"{org}{self.pattern}={self.broker}"


def parse(text: str) -> tuple[Route, ...]:
    """Rules, separated by commas; none at all is allowed.

    Raises:
        ValueError: one is not a rule, or the last is not `*=host:port`, or one before it is.
    """
    routes = tuple(_route(part.strip()) for part in text.split(",") if part.strip())
    if routes and (not _is_last(routes[-1]) or any(map(_is_last, routes[:-1]))):
        raise ValueError(text)
    return routes


def to_one(broker: str) -> tuple[Route, ...]:
    """The table of a gateway that has one broker."""
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
    """The table as one org sees it. Brokers are numbered from 0 on.

    `brokers`: the addresses that its topics can be at; `home`: the number of the last rule's.
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
                break  # nothing of this org comes further
        self.brokers = tuple(brokers)
        self.home = rules[-1][1]
        self._rules = rules
        self._known: dict[str, int] = {}

    def broker_of(self, topic: str) -> int:
        """The number of the broker that serves this topic."""
        number = self._known.get(topic)
        if number is None:
            number = next(broker for rule, broker in self._rules if rule.fullmatch(topic))
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[topic] = number
        return number


_REMEMBERED = 100_000
"""Topics whose broker is remembered: clients may ask for names without end."""


def _expression(pattern: str) -> re.Pattern[str]:
    wild = {"*": ".*", "?": "."}
    # Clients may send any text as a topic's name, line ends included.
    return re.compile("".join(wild.get(char) or re.escape(char) for char in pattern), re.DOTALL)
