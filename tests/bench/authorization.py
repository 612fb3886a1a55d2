"""`python -m tests.bench authorization`: what a decision costs, remembered and not."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from quafka_gateway.security.authorizer import Authorizer, right
from quafka_gateway.security.principal import Principal
from quafka_mesh_ops.ops.security import AclRecord
from quafka_proto.acl_kinds import Operation, Pattern, ResourceKind
from tests.support.acls import acl, change, directory_with

_READ = right(Operation.READ, ResourceKind.TOPIC)
_TIMES = 20_000
_NAME = "orders-7-eu"


def main(_arguments: Sequence[str]) -> None:
    """Measure and print."""
    print(f"{'rules':>28}  remembered µs  fresh µs  index ms  a change µs")
    for text, rules in _sets():
        _row(text, rules)


def _row(text: str, rules: Sequence[AclRecord]) -> None:
    directory = directory_with(*rules)
    began = time.perf_counter()
    access = Authorizer(directory, 1).access(1, Principal("User", "alice"), "192.0.2.1")
    built = (time.perf_counter() - began) * 1e3
    one_more = acl("User:alice", Operation.READ, ResourceKind.TOPIC, "one-more")

    def alter() -> None:
        change(directory, one_more)
        change(directory, one_more, removed=True)

    remembered = _micros(lambda: access.allows(_READ, _NAME))
    fresh = _micros(lambda: access.allows_once(_READ, _NAME))
    altered = _micros(alter, _TIMES // 10) / 2
    print(f"{text:>28}  {remembered:13.2f}  {fresh:8.2f}  {built:8.1f}  {altered:11.2f}")


def _sets() -> list[tuple[str, list[AclRecord]]]:
    def prefixed(name: str) -> AclRecord:
        return acl("User:alice", Operation.READ, ResourceKind.TOPIC, name, pattern=Pattern.PREFIXED)

    return [
        ("1 literal", [acl("User:alice", Operation.READ, ResourceKind.TOPIC, _NAME)]),
        ("10,000 prefixes", [prefixed(f"orders-{n}-") for n in range(10_000)]),
        ("1,024 nested prefixes", [prefixed("o" * n) for n in range(1, 1_025)]),
        (
            "of 10,000 other principals",
            [acl(f"User:{n}", Operation.READ, ResourceKind.TOPIC, _NAME) for n in range(10_000)],
        ),
    ]


def _micros(call: Callable[[], object], times: int = _TIMES) -> float:
    began = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - began) / times * 1e6
