"""Which broker serves which topic: a table of rules in which the first match wins. No I/O.

A rule is `[org/]pattern = host:port`. The pattern is a topic name in which `*` stands for any
characters and `?` for one; a rule without an org is for every org. The last rule is
`* = host:port`, so that every topic has a broker. Its broker is the *home* broker, which also
takes the ops that concern no topic.

In a cluster of shards, a rule names a shard, as in `orders = shard:2`, and pins topics to it; with
`group:` or `transaction:` before the pattern, groups or transactional ids. All others are hashed,
and so is the org's home: each shard is a broker here. Without shards, the home broker coordinates
all groups and transactions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from quafka_mesh_ops.settings import address
from quafka_mesh_ops.shards import Hashed, shard_name, shard_number, shard_of

_LAST_ORG = 0xFFFFFFFF
_RULE = re.compile(
    r"(?:([0-9]{1,10})/)?(?:(group|transaction):)?([A-Za-z0-9._*?-]{1,249})\s*=\s*(\S+)", re.ASCII
)
_ALL = "*"


@dataclass(frozen=True, slots=True)
class Route:
    """One rule. `org` is None in a rule for every org. `what`: the kind of names it is for."""

    org: int | None
    pattern: str
    broker: str
    what: Hashed = Hashed.TOPIC

    def __str__(self) -> str:
        org = "" if self.org is None else f"{self.org}/"
        what = "" if self.what is Hashed.TOPIC else f"{self.what.value.decode()}:"
        return f"{org}{what}{self.pattern}={self.broker}"


def parse(text: str) -> tuple[Route, ...]:
    """Read rules that are separated by commas; an empty text has none.

    Raises:
        ValueError: a part is not a rule, or a rule other than the last is `*=host:port`, or the
            last is not, unless all rules name shards.
    """
    routes = tuple(_route(part.strip()) for part in text.split(",") if part.strip())
    if are_shards(routes):
        return routes
    if any(route.what is not Hashed.TOPIC for route in routes):
        raise ValueError(text)
    if routes and (not _is_last(routes[-1]) or any(map(_is_last, routes[:-1]))):
        raise ValueError(text)
    return routes


def are_shards(routes: Sequence[Route]) -> bool:
    """Whether all rules name shards."""
    return all(shard_number(route.broker) is not None for route in routes)


def to_one(broker: str) -> tuple[Route, ...]:
    """The table of a gateway with one broker."""
    return (Route(None, _ALL, broker),)


def _route(text: str) -> Route:
    match = _RULE.fullmatch(text)
    if match is None:
        raise ValueError(text)
    org, what, pattern, broker = match.groups()
    if org is not None and not 1 <= int(org) <= _LAST_ORG:
        raise ValueError(text)
    kind = Hashed((what or "topic").encode())
    return Route(None if org is None else int(org), pattern, address(broker), kind)


def _is_last(route: Route) -> bool:
    return route.org is None and route.pattern == _ALL


class OrgRoutes:
    """The rules that apply to one org. Brokers are numbered from 0.

    Attributes:
        brokers: the addresses of the brokers that may serve the org's topics, by number.
        home: the number of the home broker.
    """

    def __init__(
        self, routes: Sequence[Route], org: int, shards: int = 0, *, by_name: bool = False
    ) -> None:
        """`shards`: the cluster's number of shards, to which names without a rule are hashed.

        `by_name`: groups and transactional ids are, too; otherwise they are at the home shard.
        """
        rules: dict[Hashed, list[tuple[re.Pattern[str], int]]] = {what: [] for what in Hashed}
        brokers = [shard_name(number) for number in range(shards)]
        for route in routes:
            if route.org not in (None, org):
                continue
            if route.broker not in brokers:
                brokers.append(route.broker)
            rules[route.what].append((_expression(route.pattern), brokers.index(route.broker)))
            if route.pattern == _ALL and not shards:
                break  # the org's topics never match a later rule
        self.brokers = tuple(brokers)
        last = rules[Hashed.TOPIC][-1:]
        self.home = shard_of(Hashed.HOME, org, "", shards) if shards else last[0][1]
        self._rules = rules
        self._org = org
        self._shards = shards
        self._hashed = set(Hashed) if by_name else {Hashed.TOPIC}
        self._cached: dict[tuple[Hashed, str], int] = {}

    def broker_of(self, topic: str) -> int:
        """The number of the broker that serves this topic."""
        return self.number_of(Hashed.TOPIC, topic)

    def coordinator_of_group(self, group: str) -> int:
        """The number of the broker that coordinates this group."""
        return self.number_of(Hashed.GROUP, group)

    def coordinator_of_transaction(self, transactional_id: str) -> int:
        """The number of the broker that coordinates the transactions of this id."""
        return self.number_of(Hashed.TRANSACTION, transactional_id)

    def coordinators(self, what: Hashed) -> Sequence[int]:
        """The numbers of all brokers that may coordinate groups, or transactions."""
        if what in self._hashed:
            return range(len(self.brokers))
        return sorted({self.home, *(number for _, number in self._rules[what])})

    def number_of(self, what: Hashed, name: str) -> int:
        """The number of the broker that has the topic, group or transactional id of this name."""
        number = self._cached.get((what, name))
        if number is None:
            matching = (broker for rule, broker in self._rules[what] if rule.fullmatch(name))
            number = next(matching, -1)
            if number < 0:
                hashed = self._shards and what in self._hashed
                number = shard_of(what, self._org, name, self._shards) if hashed else self.home
            if len(self._cached) >= _CACHED_NAMES:
                self._cached.clear()
            self._cached[what, name] = number
        return number


_CACHED_NAMES = 100_000
"""Names whose broker is cached. Bounded: clients may send any number of them."""


def _expression(pattern: str) -> re.Pattern[str]:
    wild = {"*": ".*", "?": "."}
    # Clients may send any text as a topic's name, also one with line ends.
    return re.compile("".join(wild.get(char) or re.escape(char) for char in pattern), re.DOTALL)
