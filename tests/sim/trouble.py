"""Makes the faults of a schedule happen, and ends them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

from tests.sim.air import AirTrouble
from tests.sim.faults import AWAY_KIND, Fault
from tests.sim.machines import BrokerMachine, ClientMachine, Machine, ServerMachine
from tests.sim.store import StoreTrouble

if TYPE_CHECKING:
    from tests.sim.world import World

_READY_S = 60.0
"""By then a server that was started again is ready, once no fault is under way."""
_STOP_S = 20.0


class Trouble:
    """Everything that goes wrong in one run."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._site = world.site
        self._under_way: dict[Fault, None] = {}
        self._ends: dict[Fault, Callable[[], None]] = {}

    def play(self, schedule: Sequence[Fault]) -> None:
        """Let all faults happen; returns when they are over and all servers are ready again."""
        steps = [(fault.at, 1, fault) for fault in schedule]
        steps += [(fault.ends, 0, fault) for fault in schedule]
        began = self._site.now
        for when, begins, fault in sorted(steps, key=lambda step: step[:2]):
            self._sleep_until(began + when)
            (self._begin if begins else self._end)(fault)
        self._await_stops()
        for each in self._world.machines.values():
            if not each.is_running and not isinstance(each, ClientMachine):
                each.start()
        self._world.history.note("world", "quiet", phase="start")
        self._await_servers()

    def _sleep_until(self, moment: float) -> None:
        if moment > self._site.now:
            self._site.hub.sleep(moment - self._site.now)
        self._restart_the_fallen()

    def _restart_the_fallen(self) -> None:
        """A server that ended by itself is started again, as a supervisor does."""
        for each in self._world.servers():
            if each.error is not None and not each.is_running and not self._is_down(each):
                self._note("restart", each.name, None)
                each.start()

    def _is_down(self, machine: Machine) -> bool:
        return any(
            fault.target == machine.name and fault.kind in ("kill", "power", "stop")
            for fault in self._under_way
        )

    def _await_stops(self) -> None:
        until = self._site.now + 2 * _STOP_S
        while self._under_way:
            assert self._site.now < until, f"not over: {list(map(str, self._under_way))}"
            self._site.hub.sleep(0.1)

    def _await_servers(self) -> None:
        until = self._site.now + _READY_S
        while not all(each.is_ready for each in self._world.servers()):
            if self._site.now > until:
                late = [each.name for each in self._world.servers() if not each.is_ready]
                self._site.problems.append(f"not ready after {_READY_S} s: {', '.join(late)}")
                return
            self._site.hub.sleep(0.5)
            self._restart_the_fallen()

    # --- one fault ------------------------------------------------------------------------------

    def _begin(self, fault: Fault) -> None:
        end = self._happens(fault)
        if end is not None:
            self._note(fault.kind, fault.target, "start", fault)
            self._under_way[fault] = None
            self._ends[fault] = end

    def _end(self, fault: Fault) -> None:
        end = self._ends.pop(fault, None)
        if end is None:
            return
        if fault.kind == "stop":  # takes its time; others go on
            self._site.hub.spawn(lambda: self._over(fault, end), "stop")
        else:
            self._over(fault, end)

    def _over(self, fault: Fault, end: Callable[[], None]) -> None:
        end()
        del self._under_way[fault]
        self._note(fault.kind, fault.target, "end")

    def _note(self, kind: str, node: str, phase: str | None, fault: Fault | None = None) -> None:
        self._site.note("fault", kind, node, phase)
        details = dict(fault.details) if fault is not None else {}
        self._world.history.note(
            "world", "fault", fault=kind, node=node, phase=phase, details=details
        )

    def _happens(self, fault: Fault) -> Callable[[], None] | None:
        """Make it happen; returns what ends it, or None if it cannot happen now."""
        kind = fault.kind
        if kind.startswith("air"):
            return self._air(fault)
        if kind == AWAY_KIND:
            return self._away(fault.target)
        if kind.startswith("store"):
            return self._store(fault)
        machine = self._world.machines[fault.target]
        if not machine.is_running or self._is_down(machine):
            return None
        if kind.startswith("disk"):
            return self._disk(fault, machine)
        return self._to_machine(fault, machine)

    def _to_machine(self, fault: Fault, machine: Machine) -> Callable[[], None]:
        match kind := fault.kind:
            case "kill" | "power":
                return self._kill(machine, power=kind == "power")
            case "stop":
                return self._stop(machine)
            case "pause":
                return self._pause(machine)
            case "skew":
                machine.set_skew(machine.skew + float(fault.details["by"]))
                return _nothing
            case "partition":
                return self._cut(machine, both=True)
            case "one way":
                return self._cut(machine, both=False)
        raise ValueError(kind)

    def _kill(self, machine: Machine, *, power: bool) -> Callable[[], None]:
        machine.kill(power=power)
        if isinstance(machine, ClientMachine):
            self._world.history.note(machine.session, "client", phase="stop")
        return machine.start

    def _stop(self, machine: Machine) -> Callable[[], None]:
        machine.stop()

        def start() -> None:
            until = self._site.now + _STOP_S
            while machine.is_running and self._site.now < until:
                self._site.hub.sleep(0.1)
            if machine.is_running:
                if isinstance(machine, ServerMachine) and self._site.trouble == StoreTrouble():
                    self._site.problems.append(f"{machine.name} does not stop in {_STOP_S} s")
                machine.kill()
            machine.start()

        return start

    def _pause(self, machine: Machine) -> Callable[[], None]:
        node = machine.node
        assert node is not None
        self._site.hub.pause(node)
        return lambda: self._site.hub.resume(node)

    def _cut(self, machine: Machine, *, both: bool) -> Callable[[], None]:
        """Cut a machine off from all others; one way: it hears nothing, but is heard."""
        air = self._site.air
        others = [name for name in self._world.machines if name != machine.name]
        pairs = [(other, machine.name) for other in others]
        if both:
            pairs += [(machine.name, other) for other in others]
        for pair in pairs:
            air.cut(*pair)

        def heal() -> None:
            for pair in pairs:
                air.heal(*pair)

        return heal

    def _air(self, fault: Fault) -> Callable[[], None]:
        trouble, details = self._site.air.trouble, fault.details
        match fault.kind:
            case "air loss":
                trouble.loss = details["share"]
                return lambda: _reset(trouble, AirTrouble(), "loss")
            case "air slow":
                trouble.latency_s = details["latency"]
                return lambda: _reset(trouble, AirTrouble(), "latency_s")
            case _:
                trouble.twice = trouble.late = details["share"]
                return lambda: _reset(trouble, AirTrouble(), "twice", "late")

    def _store(self, fault: Fault) -> Callable[[], None]:
        name = fault.kind.removeprefix("store ")
        name = "median_s" if name == "slow" else name
        trouble, details = self._site.trouble, fault.details
        assert name in {field.name for field in fields(StoreTrouble)}
        setattr(trouble, name, details.get("share", details.get("median", True)))
        return lambda: _reset(trouble, StoreTrouble(), name)

    def _away(self, name: str) -> Callable[[], None]:
        away = self._site.trouble.away
        away.add(name)
        return lambda: away.discard(name)

    def _disk(self, fault: Fault, machine: Machine) -> Callable[[], None]:
        assert isinstance(machine, BrokerMachine)
        match fault.kind:
            case "disk full":
                machine.disk.is_full = True

                def room() -> None:
                    machine.disk.is_full = False

                return room
            case "disk slow":
                before = machine.disk.sync_seconds
                machine.disk.sync_seconds = fault.details["sync"]

                def fast() -> None:
                    machine.disk.sync_seconds = before

                return fast
            case _:
                machine.disk.failing = 0.5

                def replace() -> None:
                    """A log whose fsync has failed takes no more writes until a restart."""
                    machine.disk.failing = 0.0
                    if machine.is_running:
                        machine.kill()
                        machine.start()

                return replace


def _reset(trouble: object, good: object, *names: str) -> None:
    for name in names:
        setattr(trouble, name, getattr(good, name))


def _nothing() -> None:
    pass
