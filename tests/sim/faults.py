"""What goes wrong in a run, and when: a schedule that a seed draws, or that a file names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from random import Random
from typing import Any


@dataclass(frozen=True, eq=False)
class Fault:
    """One thing that goes wrong for a while.

    Attributes:
        at: seconds since the run began.
        kind: see `KINDS`.
        target: the name of a machine; empty: the store or the network.
        seconds: how long; of a killed process, until it is started again.
        details: the rest, by kind.
    """

    at: float
    kind: str
    target: str = ""
    seconds: float = 0.0
    details: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def ends(self) -> float:
        """When it is over."""
        return self.at + self.seconds

    def __str__(self) -> str:
        details = "".join(f" {name}={value}" for name, value in self.details.items())
        return f"{self.at:.2f} s: {self.kind} {self.target} for {self.seconds:.2f} s{details}"


def dumps(faults: Sequence[Fault]) -> list[dict[str, Any]]:
    """Faults as JSON."""
    return [asdict(fault) for fault in faults]


def loads(found: Sequence[dict[str, Any]]) -> list[Fault]:
    """The faults of JSON."""
    return [Fault(**each) for each in found]


@dataclass(frozen=True)
class Targets:
    """The machines of a run that faults may happen to."""

    brokers: Sequence[str]
    gateways: Sequence[str]
    clients: Sequence[str]
    in_store: bool


_SHORT, _LONG = (0.2, 2.0), (3.0, 9.0)
_OUTAGE = (4.5, 15.0)
"""Of the store: longer than leases, sometimes longer than a broker waits before it refuses."""
_RARE = ("power", "disk full", "disk fails", "store down", "one way")
_STORMS = 0.15
"""How often a broker is killed while its storage is slow: then much is on its way to it."""

BROKER_KINDS = ("kill", "power", "stop", "pause", "skew", "partition", "one way")
AWAY_KIND = "store away"
"""The store does not answer this one machine: its shards are taken while it lives."""
DISK_KINDS = ("disk full", "disk slow", "disk fails")
STORE_KINDS = ("store busy", "store lost", "store late", "store slow", "store down")
GATEWAY_KINDS = ("kill", "stop", "pause", "skew", "partition", "one way")
CLIENT_KINDS = ("kill", "pause", "partition")
AIR_KINDS = ("air loss", "air slow", "air disorder")
KINDS = tuple(
    dict.fromkeys(
        (
            *BROKER_KINDS,
            AWAY_KIND,
            *DISK_KINDS,
            *STORE_KINDS,
            *GATEWAY_KINDS,
            *CLIENT_KINDS,
            *AIR_KINDS,
        )
    )
)


def draw(random: Random, targets: Targets, begin: float, end: float) -> list[Fault]:
    """Draw the faults of a run; the last one is over at `end`. Of a machine, one at a time."""
    pace = random.choice((0.7, 1.5, 3.0))
    busy: dict[str, float] = {}
    found: list[Fault] = []
    at = begin + random.expovariate(1 / pace)
    while at < end:
        draws = _storm if random.random() < _STORMS else _one
        faults = draws(random, targets, at, end)
        if all(busy.get(fault.target or fault.kind, 0.0) <= at for fault in faults):
            found += faults
            for fault in faults:
                place = fault.target or fault.kind
                busy[place] = max(busy.get(place, 0.0), fault.ends)
        at += random.expovariate(1 / pace)
    return found


def _storm(random: Random, targets: Targets, at: float, end: float) -> list[Fault]:
    """Slow storage, and in the middle of it the end of a broker; over at `end`."""
    broker = random.choice(targets.brokers)
    kind, target = ("store slow", "") if targets.in_store else ("disk slow", broker)
    slow = min(random.uniform(1.0, 4.0), end - at)
    killed = random.uniform(0.2, 1.0) * slow
    down = min(random.uniform(*_SHORT), end - at - killed)
    return [
        _fault(random, at, kind, target, slow),
        _fault(random, at + killed, random.choice(("kill", "power")), broker, down),
    ]


def _one(random: Random, targets: Targets, at: float, end: float) -> list[Fault]:
    kinds: Sequence[str]
    match random.choices(("broker", "gateway", "client", "air", "data"), (5, 3, 2, 2, 3))[0]:
        case "broker":
            target, kinds = random.choice(targets.brokers), BROKER_KINDS
            if targets.in_store:
                kinds = (*BROKER_KINDS, AWAY_KIND)
        case "gateway":
            target, kinds = random.choice(targets.gateways), GATEWAY_KINDS
        case "client" if targets.clients:
            target, kinds = random.choice(targets.clients), CLIENT_KINDS
        case "data" if targets.in_store:
            target, kinds = "", STORE_KINDS
        case "data":
            target, kinds = random.choice(targets.brokers), DISK_KINDS
        case _:
            target, kinds = "", AIR_KINDS
    kind = random.choices(kinds, [1 if each in _RARE else 2 for each in kinds])[0]
    is_outage = kind in ("store down", AWAY_KIND)
    lengths = (_SHORT, _LONG, _OUTAGE) if is_outage else (_SHORT, _SHORT, _LONG)
    seconds = min(random.uniform(*random.choice(lengths)), end - at)
    return [_fault(random, at, kind, target, seconds)]


def _fault(random: Random, at: float, kind: str, target: str, seconds: float) -> Fault:
    return Fault(round(at, 3), kind, target, round(seconds, 3), _details(random, kind))


def _details(random: Random, kind: str) -> dict[str, Any]:
    match kind:
        case "skew":
            return {"by": round(random.choice((0.5, 5.0, 30.0)) * random.choice((-1, 1)), 3)}
        case "air loss":
            return {"share": random.choice((0.02, 0.1, 0.3))}
        case "air slow":
            return {"latency": random.choice((0.005, 0.04, 0.2))}
        case "air disorder":
            return {"share": random.choice((0.05, 0.3))}
        case "store busy" | "store lost" | "store late":
            return {"share": random.choice((0.05, 0.2, 0.5))}
        case "store slow":
            return {"median": random.choice((0.035, 0.2, 1.0))}
        case "disk slow":
            return {"sync": random.choice((0.02, 0.2, 1.0))}
        case _:
            return {}
