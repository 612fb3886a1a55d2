"""Both servers side by side, and what they answer differently."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from tests.differences.known import reason_of
from tests.differences.observed import Observed
from tests.differences.plays import PLAYS, Server
from tests.differences.sweep import sweep
from tests.support.apache_kafka import apache_kafka
from tests.support.cluster import Cluster
from tests.support.raw_client import RawClient

ABSENT = "-"


class Difference(NamedTuple):
    """One value of an answer; `why` is empty where nothing explains it."""

    where: str
    path: str
    quafka: object
    kafka: object
    why: str


def differences(folder: Path, only: str = "") -> Iterator[Difference]:
    """All differences in what contains `only`, from two servers that are started for it."""
    with ExitStack() as stack:
        kafka = stack.enter_context(apache_kafka(folder / "kafka"))
        cluster = stack.enter_context(Cluster(folder / "quafka"))
        host, port = kafka.bootstrap.rsplit(":", 1)
        addresses = cluster.address, (host, int(port))
        for address in addresses:
            Server(stack.enter_context(RawClient(address, 60))).prepare()
        if not only or only == "sweep":
            for name, ours, theirs in sweep(*addresses):
                yield from _compared(name, ours, theirs)
        for name, function in PLAYS.items():
            if only in name:
                clients = [stack.enter_context(RawClient(each, 60)) for each in addresses]
                servers = [Server(client) for client in clients]
                for server in servers:
                    function(server)
                yield from _compared(name, servers[0].observed, servers[1].observed)


def _compared(where: str, ours: Observed, theirs: Observed) -> Iterator[Difference]:
    for path in dict.fromkeys((*ours, *theirs)):
        quafka, kafka = ours.get(path, ABSENT), theirs.get(path, ABSENT)
        if quafka != kafka:
            yield Difference(where, path, quafka, kafka, reason_of(where, path, quafka, kafka))
