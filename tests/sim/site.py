"""What the machines of a simulation share: time, network, store, chance, and the trace."""

from __future__ import annotations

import os
import random as random_module
import uuid
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from hashlib import blake2b, sha256
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from aioquic.quic.stream import QuicStream
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from pyspark_quafka import scan, stream_planner
from quafka_broker import server as broker_server
from quafka_broker.shard import stored_log
from quafka_gateway.cluster import follower
from quafka_mesh_ops.identity import Identity
from quafka_objects.store import ObjectStore
from tests.sim.air import SimulatedAir
from tests.sim.clients import lake
from tests.sim.store import Objects, SimulatedStore, StoreTrouble
from tests.support.virtual.hub import Hub, Node
from tests.support.virtual.installed import installed
from tests.support.virtual.network import Network

if TYPE_CHECKING:
    from tests.sim.machines import BrokerMachine, Machine

STORE_URL = "s3://simulated/log"


class Site:
    """Everything around the machines of one run.

    Attributes:
        trouble: how bad the store is now.
        graves: killed processes. They are kept: freeing a greenlet would run its code.
        problems: errors that no program may have.
    """

    def __init__(self, seed: str, folder: Path) -> None:
        self.seed = seed
        self.folder = folder
        self.hub = Hub(self.random_of("order"))
        self.air = SimulatedAir(self.random_of("air"), self.note)
        self.net = Network(self.hub, self.air)
        self.objects = Objects()
        self.trouble = StoreTrouble()
        self.graves: list[Node] = []
        self.problems: list[str] = []
        self.lines: list[str] | None = None
        """The whole trace, if somebody wants it."""
        self.events = 0
        self.on_ready: Callable[[Machine], None] = lambda _: None
        self.brokers_by_folder: dict[Path, BrokerMachine] = {}
        self._digest = blake2b(digest_size=8)
        self._began = self.hub.now

    @property
    def now(self) -> float:
        """Seconds since the run began."""
        return self.hub.now - self._began

    def random_of(self, purpose: str) -> Random:
        """A source of chance of its own: what others draw does not change it."""
        return Random(f"{self.seed} {purpose}")

    # --- the trace ------------------------------------------------------------------------------

    def note(self, *fields: object) -> None:
        """Add an event to the trace."""
        self.events += 1
        line = f"{self.hub.now:.9f} {self.hub.turns} {' '.join(map(str, fields))}"
        self._digest.update(line.encode())
        if self.lines is not None:
            self.lines.append(line)

    def trace_hash(self) -> str:
        """A hash of all events so far."""
        return self._digest.hexdigest()

    def ready(self, machine: Machine) -> None:
        """A broker or gateway has started."""
        self.note("ready", machine.name)
        self.on_ready(machine)

    def ended(self, machine: Machine, error: BaseException) -> None:
        """A process has ended by an error."""
        self.note("ended", machine.name, type(error).__name__)

    def unhandled(self, machine: Machine, message: str, error: BaseException | None) -> None:
        """An event loop has reported an error that nobody handled."""
        self.note("unhandled", machine.name, message)
        self.problems.append(f"{machine.name}: {message}: {error!r}")

    # --- what machines need ---------------------------------------------------------------------

    def identity(self, name: str) -> Path:
        """The file of a node's key, the same in each run of the seed."""
        path = self.folder / f"{name}.key"
        if not path.exists():
            key = Ed25519PrivateKey.from_private_bytes(
                sha256(f"{self.seed} {name}".encode()).digest()
            )
            path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
            path.chmod(0o600)
        return path

    def node_id(self, name: str) -> str:
        """The node id of that key."""
        return Identity.load(self.identity(name)).node_id

    def open_store(self, *_: Any, **__: Any) -> ObjectStore:
        """The store, for the node that runs now."""
        node = self.hub.node
        chance = self.random_of(f"store {node.name if node else ''} {self.hub.now}")
        return SimulatedStore(self.objects, self.hub, node, chance, self.trouble, self.note)

    @contextmanager
    def installed(self) -> Generator[None]:
        """All product code runs on this site until the end of the block."""
        chance = self.random_of("urandom")
        with ExitStack() as stack:
            stack.enter_context(installed(self.hub, self.net))
            stack.enter_context(patch.object(QuicStream, "__hash__", _hash_of_stream))
            for where in (os, random_module):
                name = "urandom" if where is os else "_urandom"
                stack.enter_context(patch.object(where, name, chance.randbytes))
            stack.enter_context(
                patch.object(
                    uuid, "uuid4", lambda: uuid.UUID(int=chance.getrandbits(128), version=4)
                )
            )
            state = random_module.getstate()
            random_module.seed(f"{self.seed} random")
            stack.callback(random_module.setstate, state)
            for module in (stored_log, follower, stream_planner, scan, lake):
                stack.enter_context(patch.object(module, "open_store", self.open_store))
            stack.enter_context(patch.object(broker_server, "RealDisk", self._disk_of))
            yield

    def _disk_of(self, folder: Path) -> Any:
        return self.brokers_by_folder[folder.parent].disk


def _hash_of_stream(stream: QuicStream) -> int:
    """aioquic keeps the streams that it has served in a set, whose order decides who is next: by
    address, it would differ between two runs of a seed."""
    return -1 if stream.stream_id is None else stream.stream_id
