"""Two QUIC connections joined in memory, over a path that loses, repeats, reorders and damages."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field

from aioquic.quic import events
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from quafka_loop import clock
from quafka_mesh_ops.identity import Identity
from quafka_mesh_ops.transport.aioquic_adapter.mutual_tls import quic_configuration
from quafka_mesh_ops.transport.aioquic_adapter.quic import MeshQuic
from quafka_mesh_ops.transport.endpoint import checker
from quafka_mesh_ops.transport.ladder import DatagramLadder

CLIENT, SERVER = ("client", 1), ("server", 2)
_STEP = 0.0005


@dataclass(frozen=True)
class Faults:
    """The shares of lost, repeated, reordered and damaged datagrams, 0 to 1.

    `latency`: steps that each takes; `delay`: further steps at most. `mtu`: larger ones vanish.
    """

    loss: float = 0.0
    repeat: float = 0.0
    damage: float = 0.0
    delay: int = 0
    latency: int = 0
    mtu: int = 1 << 16


@dataclass
class End:
    """One end: its received data by stream, and its ended streams."""

    quic: MeshQuic
    received: dict[int, bytearray] = field(default_factory=lambda: defaultdict(bytearray))
    ended: set[int] = field(default_factory=set)
    pieces: int = 0
    closed: str | None = None

    def hear(self) -> None:
        while (event := self.quic.next_event()) is not None:
            if isinstance(event, events.StreamDataReceived):
                self.received[event.stream_id] += event.data
                self.pieces += 1
                if event.end_stream:
                    self.ended.add(event.stream_id)
            elif isinstance(event, events.ConnectionTerminated):
                self.closed = event.reason_phrase
        if self.quic.is_closed and self.closed is None:
            self.closed = self.quic.close_reason


class Wire:
    """Moves datagrams between the two; time is counted in steps of half a millisecond."""

    def __init__(
        self,
        client: type[MeshQuic],
        server: type[MeshQuic],
        size: int,
        faults: Faults = Faults(),
        seed: int = 0,
        ladders: tuple[DatagramLadder, DatagramLadder] | None = None,
    ) -> None:
        """Both ends use datagrams of `size`, unless `ladders` are given."""
        keys = [Identity(Ed25519PrivateKey.generate()) for _ in range(2)]
        ours, theirs = keys
        self.now = 100.0
        self.faults = Faults(latency=faults.latency, mtu=faults.mtu)
        self._random = random.Random(seed)
        self._flying: list[list[tuple[int, bytes]]] = [[], []]
        self._steps = 0
        quic = client(
            quic_configuration(ours, clock.utc_now(), is_client=True, datagram_size=size),
            checker({theirs.node_id}),
            ladder=ladders[0] if ladders else None,
        )
        quic.connect(SERVER, self.now)
        self.client = End(quic)
        self.server = End(
            server(
                quic_configuration(theirs, clock.utc_now(), is_client=False, datagram_size=size),
                checker({ours.node_id}),
                original_destination_connection_id=quic.original_destination_connection_id,
                ladder=ladders[1] if ladders else None,
            )
        )
        self.run(lambda: quic._handshake_confirmed and self.server.quic._handshake_confirmed)
        self.faults = faults

    def run(self, until: object, steps: int = 40_000) -> None:
        """Let time pass until the condition holds, for 20 seconds at most."""
        assert callable(until)
        for _ in range(steps):
            if until():
                return
            self.step()
        raise AssertionError("it never came to that")

    def step(self) -> None:
        """One turn of both loops."""
        self.now += _STEP
        self._steps += 1
        for index, (sender, receiver, origin) in enumerate(
            [(self.client, self.server, CLIENT), (self.server, self.client, SERVER)]
        ):
            timer = sender.quic.get_timer()
            if timer is not None and timer <= self.now:
                sender.quic.handle_timer(self.now)
            if sender.quic._network_paths:  # a server has none before its first datagram
                for data, _ in sender.quic.datagrams_to_send(self.now):
                    self._fly(index, bytes(data))
            arrived = [data for when, data in self._flying[index] if when <= self._steps]
            self._flying[index] = [x for x in self._flying[index] if x[0] > self._steps]
            if arrived:
                receiver.quic.receive_datagrams(arrived, origin, self.now)
            sender.hear()
            receiver.hear()

    def _fly(self, index: int, data: bytes) -> None:
        chance, faults = self._random.random, self.faults
        if chance() < faults.loss or len(data) > faults.mtu:
            return
        if chance() < faults.damage:
            at = self._random.randrange(len(data))
            data = data[:at] + bytes([data[at] ^ 1 << self._random.randrange(8)]) + data[at + 1 :]
        for _ in range(1 + (chance() < faults.repeat)):
            late = faults.latency + self._random.randint(0, faults.delay)
            self._flying[index].append((self._steps + late, data))
