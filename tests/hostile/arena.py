"""Where an attack takes place: a cluster, and ways to get at it."""

from __future__ import annotations

import asyncio
import http.client
import itertools
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from quafka_mesh_ops.identity import Identity
from quafka_proto.headers import encode_request
from quafka_proto.message import Message
from quafka_proto.schema.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tests.hostile.another_gateway import AnotherGateway
from tests.support.cluster import Cluster
from tests.support.raw_client import RawClient

T = TypeVar("T")
_PATIENCE = 150.0
_LONGEST = "quafka_loop_longest_turn_seconds"
_LONGEST_BY_CLOCK = "hostile_loop_longest_turn_seconds"


class Arena:
    """A broker and a gateway with a bystander on them, for one attack after the other."""

    _numbers = itertools.count(1)

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        another_gateway: Callable[[], AnotherGateway],
        address: tuple[str, int] | None = None,
    ) -> None:
        """`address`: for attackers; None: the gateway's."""
        self.cluster = cluster
        self.another_gateway = another_gateway
        """Starts a second gateway with the same listeners, for an attack that needs two."""
        self._address = address
        self.folder = folder
        """For the attacks' own files."""
        self.longest = {"broker": 0.0, "gateway": 0.0}
        """The longest turn of each program's event loop that has been read, in seconds."""
        self.longest_by_clock = dict(self.longest)
        """The same with the time for which other work had the machine."""
        self.waiting: Callable[[], list[str]] = list
        """The calls of another org that wait; see `others_are_served`."""
        self.restarts = 0
        """How often the broker has been restarted."""

    @property
    def address(self) -> tuple[str, int]:
        """Of the gateway, for the attackers' clients."""
        return self._address or self.cluster.address

    @property
    def mesh_address(self) -> tuple[str, int]:
        """Of the broker, UDP."""
        return self.cluster.mesh_address

    @property
    def gateway_identity(self) -> Identity:
        """The gateway's own, which the broker allows."""
        return Identity.load_or_create(self.cluster.folder / "gateway.key")

    @property
    def broker_id(self) -> str:
        """The broker's node id."""
        return Identity.load_or_create(self.cluster.folder / "broker.key").node_id

    def name(self, prefix: str = "t") -> str:
        """A name that nobody has used here: of a topic, a group, ..."""
        return f"{prefix}-{next(self._numbers)}"

    def connect(self, timeout: float = 60.0) -> RawClient:
        """A Kafka client that sends what it is given; a context manager."""
        return RawClient(self.address, timeout, "attacker")

    def raw(self, timeout: float = 60.0) -> socket.socket:
        """A TCP connection to the gateway; a context manager."""
        return socket.create_connection(self.address, timeout)

    def topic(self, partitions: int = 1) -> str:
        """A new topic."""
        name = self.name()
        wanted = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        with self.connect() as client:
            request = CreateTopicsRequest(topics=[wanted], timeout_ms=30_000)
            answer = client.call(request, CreateTopicsResponse, 5)
        assert answer.topics[0].error_code == 0, answer.topics[0]
        return name

    def figures(self, program: str) -> dict[str, float]:
        """Each sample of /metrics that has no labels; `program` is "broker" or "gateway".

        Reading resets the longest turn of that program's loop, so `longest` keeps it.
        """
        process = self.cluster.broker if program == "broker" else self.cluster.gateway
        host, port = str(process.ready["operations"]).rsplit(":", 1)
        client = http.client.HTTPConnection(host, int(port), timeout=_PATIENCE)
        try:
            client.request("GET", "/metrics")
            text = client.getresponse().read().decode()
        finally:
            client.close()
        pairs = (line.split() for line in text.splitlines() if line[0] != "#")
        found = {name: float(value) for name, value in pairs if "{" not in name}
        for longest, name in (
            (self.longest, _LONGEST),
            (self.longest_by_clock, _LONGEST_BY_CLOCK),
        ):
            longest[program] = max(longest[program], found[name])
        return found

    def others_are_served(self) -> None:
        """Fail unless each kind of call of another org is answered now, however slowly.

        For attacks that hold something: what waits for them to end is found whatever the machine's
        speed.
        """
        kinds = self.waiting()
        assert not kinds, f"calls of another org wait: {', '.join(kinds)}"

    def restart_broker(self) -> None:
        """Stop the broker in order and start it on its data. Fails where it cannot start."""
        self.figures("broker")
        self.restarts += 1
        code = self.cluster.broker.stop()
        assert code == 0, f"the broker ended with {code}"
        self.cluster.start_broker()

    def alive(self) -> None:
        """Fail unless both processes run."""
        for name, process in (
            ("broker", self.cluster.broker),
            ("gateway", self.cluster.gateway),
        ):
            code = process.popen.poll()
            assert code is None, f"the {name} has ended with {code}"


def frame(request: Message, version: int, number: int = 1) -> bytes:
    """A request as it is sent, its length in front."""
    return b"".join(encode_request(number, "attacker", request, version))


def run(work: Coroutine[Any, Any, T]) -> T:
    """For attacks of many connections: their own event loop."""
    return asyncio.run(work)
