"""The network between nodes: latency, loss, reordering, duplication, partitions. All by a seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tests.support.virtual.hub import Node
from tests.support.virtual.network import Air

_LOOPBACK_S = 0.00002
_RETRANSMISSION_S = 0.2
_BYTES_PER_SECOND = 100e6


@dataclass
class AirTrouble:
    """How bad the network is now.

    Attributes:
        latency_s: one way; each packet takes up to half more.
        loss: share of packets lost.
        twice: share of datagrams that arrive twice.
        late: share of datagrams that arrive after later ones.
    """

    latency_s: float = 0.0005
    loss: float = 0.0
    twice: float = 0.0
    late: float = 0.0


class SimulatedAir(Air):
    """What happens to each packet."""

    def __init__(self, random: Random, note: Callable[..., None]) -> None:
        self.trouble = AirTrouble()
        self._random = random
        self._note = note
        self._cuts: dict[tuple[str, str], int] = {}

    def cut(self, source: str, target: str) -> None:
        """Let nothing through from one node to another, until `heal`."""
        self._cuts[source, target] = self._cuts.get((source, target), 0) + 1

    def heal(self, source: str, target: str) -> None:
        """End one `cut`."""
        left = self._cuts.get((source, target), 0) - 1
        if left > 0:
            self._cuts[source, target] = left
        else:
            self._cuts.pop((source, target), None)

    def is_cut(self, source: Node | None, target: Node | None) -> bool:
        return (
            bool(self._cuts)
            and source is not None
            and target is not None
            and (source.name, target.name) in self._cuts
        )

    def stream_seconds(self, source: Node | None, target: Node | None, size: int) -> float:
        seconds = self._seconds(source, target, size)
        while source is not target and self._random.random() < self.trouble.loss:
            seconds += _RETRANSMISSION_S
        self._note("tcp", source and source.name, target and target.name, size)
        return seconds

    def datagram_seconds(self, source: Node | None, target: Node | None, size: int) -> list[float]:
        trouble, random = self.trouble, self._random
        self._note("udp", source and source.name, target and target.name, size)
        if source is target:
            return [_LOOPBACK_S]
        if trouble.loss and random.random() < trouble.loss:
            return []
        found = [self._seconds(source, target, size)]
        if trouble.twice and random.random() < trouble.twice:
            found.append(found[0] + random.uniform(0, 0.05))
        if trouble.late and random.random() < trouble.late:
            found[0] += random.uniform(0, 0.02)
        return found

    def _seconds(self, source: Node | None, target: Node | None, size: int) -> float:
        if source is target:
            return _LOOPBACK_S
        latency = self.trouble.latency_s
        return latency * self._random.uniform(1.0, 1.5) + size / _BYTES_PER_SECOND
