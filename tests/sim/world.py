"""A run: brokers, gateways and clients, everything that goes wrong, and what the checkers say."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quafka_broker.config.settings import StoreUrl
from tests.sim.checkers import check_all
from tests.sim.clients.final import final_reads
from tests.sim.clients.job import Gateway, Job
from tests.sim.faults import Fault, Targets, draw
from tests.sim.history import Event, History
from tests.sim.machines import (
    KAFKA_PORT,
    MESH_PORT,
    BrokerMachine,
    ClientMachine,
    GatewayMachine,
    Machine,
    ServerMachine,
)
from tests.sim.recipe import OUSTED_S, Recipe, recipe_of
from tests.sim.site import STORE_URL, Site
from tests.sim.trouble import Trouble
from tests.sim.workload import LOGIN_PORT, Workload

_START_S = 60.0
"""By then all programs run, and the topics exist."""
_END_S = 180.0
"""How long the last reads may take."""
_STOP_S = 15.0
_LEAST_QUIET_S = 3.0


@dataclass
class Result:
    """What a run has come to.

    Attributes:
        violations: what must not happen, and did.
        trace: a hash of all events.
        seconds: virtual time.
        ops: calls of clients that have an outcome.
        faults: how many of each kind.
        cpu: seconds of this process.
    """

    seed: int
    violations: list[str] = field(default_factory=list[str])
    trace: str = ""
    seconds: float = 0.0
    ops: int = 0
    faults: Counter[str] = field(default_factory=Counter[str])
    cpu: float = 0.0
    schedule: Sequence[Fault] = ()
    events: Sequence[Event] = ()
    lines: Sequence[str] = ()

    def summary(self) -> str:
        """The last line of a run."""
        verdict = "ok" if not self.violations else self.violations[0]
        return (
            f"seed {self.seed}: trace {self.trace}, {self.seconds:.0f} virtual s, {self.ops} ops, "
            f"{self.faults.total()} faults, {verdict}"
        )


def simulate(
    seed: int,
    schedule: Sequence[Fault] | None = None,
    *,
    keep_lines: bool = False,
    recipe: Recipe | None = None,
) -> Result:
    """Play a seed, with its own faults and recipe or with others.

    A process should play one seed only: a killed program leaves its objects behind.
    """
    folder = Path(tempfile.mkdtemp(prefix="quafka-sim-", dir=_memory()))
    cpu = time.process_time()
    try:
        world = World(recipe or recipe_of(seed), folder, schedule)
        if keep_lines:
            world.site.lines = []
        with world.site.installed():
            result = world.run()
        result.cpu = time.process_time() - cpu
        return result
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _memory() -> str | None:
    """A file system in memory, if there is one."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


class World:
    """Everything in one run."""

    def __init__(self, recipe: Recipe, folder: Path, schedule: Sequence[Fault] | None) -> None:
        self.recipe = recipe
        self.site = Site(str(recipe.seed), folder)
        self.history = History(lambda: self.site.now)
        self.brokers = {f"broker-{n}": f"10.0.0.{n}" for n in range(1, recipe.brokers + 1)}
        self.gateways = {f"gateway-{n}": f"10.0.1.{n}" for n in range(1, recipe.gateways + 1)}
        self.workload = Workload(self.site.random_of("workload"), recipe)
        self.machines: dict[str, Machine] = {}
        self._own = 0  # machines of the world's own clients
        self._gateway_key = self.site.identity("gateway")
        self._make_machines()
        clients = [name for name, each in self.machines.items() if isinstance(each, ClientMachine)]
        targets = Targets(list(self.brokers), list(self.gateways), clients, recipe.in_store)
        self._drawn = draw(self.site.random_of("faults"), targets, 0.0, recipe.fault_seconds)
        self.schedule = list(self._drawn if schedule is None else schedule)
        self.trouble = Trouble(self)

    # --- machines -------------------------------------------------------------------------------

    def _make_machines(self) -> None:
        recipe, site = self.recipe, self.site
        for name, address in self.brokers.items():
            settings = self._store_settings if recipe.in_store else self._folder_settings(name)
            self.machines[name] = BrokerMachine(site, name, address, settings)
        for name, address in self.gateways.items():
            self.machines[name] = GatewayMachine(
                site, name, address, self._gateway_key, self._gateway_settings
            )
        for number, (name, program) in enumerate(self.workload.programs.items(), 1):
            self.machines[name] = ClientMachine(
                site, name, f"10.0.2.{number}", self._client(name, program)
            )

    def _folder_settings(self, name: str) -> Callable[[Path], dict[str, Any]]:
        others = tuple(
            f"{self.site.node_id(each)}@{address}:{MESH_PORT}"
            for each, address in self.brokers.items()
            if len(self.brokers) > 1
        )

        def settings(folder: Path) -> dict[str, Any]:
            return {
                "data": folder,
                "mesh_allow": (self.site.node_id("gateway"),),
                "mesh_brokers": others,
                **self.recipe.broker,
            }

        return settings

    def _store_settings(self, folder: Path) -> dict[str, Any]:
        return {
            "data": StoreUrl(STORE_URL),
            "cache": folder,
            "store_shards": self.recipe.shards,
            "mesh_allow": (self.site.node_id("gateway"),),
            **self.recipe.broker,
        }

    def _gateway_settings(self) -> dict[str, Any]:
        logins = {"login_port": LOGIN_PORT} if self.workload.users else {}
        return {**self._gateway_brokers(), **logins}

    def _gateway_brokers(self) -> dict[str, Any]:
        if self.recipe.in_store:
            return {"brokers": (STORE_URL,)}
        allowed = tuple(self.site.node_id(name) for name in self.brokers)
        addresses = [f"{address}:{MESH_PORT}" for address in self.brokers.values()]
        if len(addresses) == 1:
            return {"mesh_peers": tuple(addresses), "mesh_allow": allowed}
        return {"mesh_routes": self.workload.routes(addresses), "mesh_allow": allowed}

    def _client(
        self, name: str, program: Callable[[Job], Awaitable[None]]
    ) -> Callable[[str], Callable[[], Awaitable[None]]]:
        def session(who: str) -> Callable[[], Awaitable[None]]:
            return lambda: program(self.job(who, self.workload.pace_of(name)))

        return session

    def job(self, who: str, pace: float = 0.1) -> Job:
        """What a client program is given."""
        gateways = [Gateway(name, host, KAFKA_PORT) for name, host in self.gateways.items()]
        chance = self.site.random_of(f"client {who}")
        chance.shuffle(gateways)
        return Job(who, gateways, self.history, chance, self.workload.plan, pace)

    def servers(self) -> list[ServerMachine]:
        """Brokers and gateways."""
        return [each for each in self.machines.values() if isinstance(each, ServerMachine)]

    def clients(self) -> list[ClientMachine]:
        """The machines of clients."""
        return [each for each in self.machines.values() if isinstance(each, ClientMachine)]

    # --- the run --------------------------------------------------------------------------------

    def run(self) -> Result:
        """Start everything, let things go wrong, then recover, and check."""
        recipe, hub = self.recipe, self.site.hub
        self.history.note("world", "run", seed=recipe.seed, bounds=recipe.bounds)
        for each in self.servers():
            each.start()
        self._await(lambda: all(each.is_ready for each in self.servers()), _START_S)
        self._play("prepare", self.workload.prepare)
        for client in self.clients():
            client.start()
        hub.sleep(recipe.calm_seconds)
        self.trouble.play(self.schedule)
        over = self.site.now
        self._await_progress()
        self.history.note("world", "quiet", phase="end")
        self._stop_clients()
        if recipe.in_store:
            hub.sleep(max(0.0, over + OUSTED_S - self.site.now))
        self._play("final", final_reads)
        self.history.note("world", "quiet", phase="end")
        return self._result()

    def _await_progress(self) -> None:
        """Let all clients make progress; whether they have is what a checker finds out."""
        recipe, hub, events = self.recipe, self.site.hub, self.history.events
        until, seen = self.site.now + recipe.quiet_seconds, len(events)
        waiting = {each.session for each in self.clients() if each.is_running}
        hub.sleep(_LEAST_QUIET_S)
        while self.site.now < until and (waiting or not recipe.ends_early):
            waiting.difference_update(
                event["who"] for event in events[seen:] if event["type"] == "ok"
            )
            seen = len(events)
            hub.sleep(1.0)

    def _stop_clients(self) -> None:
        clients = [each for each in self.clients() if each.is_running]
        for each in clients:
            each.stop()
        until = self.site.now + _STOP_S
        while self.site.now < until and any(each.is_running for each in clients):
            self.site.hub.sleep(0.5)
        for each in clients:
            if each.is_running:
                self.site.problems.append(f"{each.name} does not stop")
                each.kill()

    def _play(self, name: str, program: Callable[[Job], Awaitable[None]]) -> None:
        """Run a client program of the world's own to its end."""
        self._own += 1
        machine = ClientMachine(
            self.site, name, f"10.0.3.{self._own}", lambda who: lambda: program(self.job(who))
        )
        machine.start()
        self._await(lambda: not machine.is_running, _END_S)
        if machine.error is not None:
            raise machine.error

    def _await(self, condition: Callable[[], bool], seconds: float) -> None:
        until = self.site.now + seconds
        while not condition():
            if self.site.now > until:
                raise TimeoutError(f"after {seconds} s the run is where it was")
            self.site.hub.sleep(0.25)

    def _result(self) -> Result:
        events = self.history.events
        violations = [f"{each.name}: {each.message}" for each in check_all(events)]
        return Result(
            seed=self.recipe.seed,
            violations=self.site.problems + violations,
            trace=self.site.trace_hash(),
            seconds=self.site.now,
            ops=sum(event["type"] in ("ok", "fail") for event in events),
            faults=Counter(fault.kind for fault in self.schedule),
            schedule=self.schedule,
            events=events,
            lines=self.site.lines or (),
        )
