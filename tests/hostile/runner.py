"""Plays attacks beside a bystander and judges what came of each."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

from quafka_mesh_ops.settings import join_address
from quafka_telemetry import loop_turns
from tests.hostile import beside, logins
from tests.hostile.account import Account
from tests.hostile.another_gateway import AnotherGateway, allowed_gateways
from tests.hostile.arena import Arena
from tests.hostile.before_login import Before, idle_cpu, send_again
from tests.hostile.bystander import Bystander
from tests.hostile.catalogue import Attack
from tests.hostile.relay import Recording, Relay
from tests.support.cluster import Cluster, Process
from tests.support.kafka_calls import create_topic
from tests.support.raw_client import RawClient

PROGRAMS = ("gateway", "broker")
_HELD = (
    "quafka_gateway_request_memory_bytes",
    "quafka_gateway_response_memory_bytes",
)
_HELD_AFTER = 1 << 20
"""What the bystander may hold of requests and answers when it is looked at, in bytes."""
_CACHED = "quafka_gateway_fetch_cache_bytes"
_MEMORY_SECONDS = 10.0
_ATTACK_SECONDS = 240
_PACKAGES = ("proto", "mesh_ops", "broker", "gateway", "spark", "deploy")
_HERE = Path(__file__).parent
_CHECKOUT = _HERE.parents[1]
_MIB = 1 << 20
_AT_ONCE = ("--group-initial-rebalance-delay-ms", "0")
HERE, ELSEWHERE = "the same gateway", "another gateway"
"""Where a bystander may be, seen from the attackers."""


@dataclass(slots=True)
class Memory:
    """Resident memory of a process in MiB."""

    before: float = 0.0
    peak: float = 0.0
    after: float = 0.0


@dataclass(slots=True)
class Row:
    """What came of one attack."""

    attack: Attack
    seconds: float = 0.0
    turns: dict[str, float] = field(default_factory=dict[str, float])
    """The longest turn of each program's loop, in seconds; without what the machine took."""
    walls: dict[str, float] = field(default_factory=dict[str, float])
    """The same by the clock."""
    starved: float = 0.0
    """Seconds for which both programs together were ready to run and had no core."""
    memory: dict[str, Memory] = field(default_factory=dict[str, Memory])
    accounts: dict[str, Account] = field(default_factory=dict[str, Account])
    """Of each bystander, by where it is."""
    control: dict[str, Account] = field(default_factory=dict[str, Account])
    """The same without an attack, if the stage has such a phase."""
    before: Before | None = None
    """The same before a login, of an attack behind one."""
    problems: list[str] = field(default_factory=list[str])
    slow_loops: list[str] = field(default_factory=list[str])
    """Problems that a machine with too much to do may explain."""

    @property
    def account(self) -> Account:
        """Of the bystander at the attackers' gateway."""
        return self.accounts.get(HERE) or Account()


@dataclass(frozen=True, slots=True)
class Options:
    """How attacks are played.

    Attributes:
        code: a checkout whose programs are attacked; None: this one's.
        control_seconds: how long each new stage is watched without an attack; 0: it is not.
        elsewhere: a second bystander is at another gateway of the same broker.
    """

    code: Path | None = None
    control_seconds: float = 0.0
    elsewhere: bool = False


class Stage:
    """One cluster and its bystanders; a context manager. Plays attacks that take the same
    arguments."""

    def __init__(self, attack: Attack, options: Options) -> None:
        self.arguments = (attack.broker, attack.gateway, attack.listeners)
        self._attack = attack if attack.behind_login else beside.with_listener(attack)
        self._relay: Relay | None = None
        self._idle = 0.0
        self._options = options
        self._open = ExitStack()
        self._arena: Arena | None = None
        self._bystanders: dict[str, Bystander] = {}
        self._control: dict[str, Account] = {}

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            folder = Path(tempfile.mkdtemp(prefix="quafka-hostile-"))
            opening.callback(shutil.rmtree, folder, ignore_errors=True)
            attack, env = self._attack, _environment(self._options.code)
            if attack.prepare is not None:
                attack.prepare(folder)
            broker, gateway = (
                tuple(each.format(folder=folder) for each in some)
                for some in (attack.broker, attack.gateway)
            )
            allowed = allowed_gateways(folder)
            cluster = Cluster(
                folder, _AT_ONCE + allowed + broker, gateway, env=env, listeners=attack.listeners
            )
            opening.enter_context(_killed(cluster))
            cluster.start_broker()
            cluster.start_gateway()
            another = partial(AnotherGateway, cluster, gateway, attack.listeners, env)
            if attack.behind_login:
                logins.make_orgs(cluster)
                self._relay = opening.enter_context(logins.relay(cluster, folder))
            else:
                beside.make_org(cluster, beside.ORG)
            address = None if self._relay is None else self._relay.address
            self._arena = Arena(cluster, folder, another, address)
            self._bring_bystanders(cluster, folder, opening)
            if attack.behind_login:
                self._idle = idle_cpu(cluster.gateway)
            self._open = opening.pop_all()
        return self

    def _bring_bystanders(self, cluster: Cluster, folder: Path, opening: ExitStack) -> None:
        """Start them, and watch them without an attack."""
        login = self._attack.behind_login
        inside, listener = (
            (logins.BYSTANDERS, logins.CLIENTS) if login else (beside.LISTENER, beside.LISTENER)
        )
        addresses = {HERE: cluster.address_of(listener)}
        if self._options.elsewhere:
            gateway = opening.enter_context(self.arena.another_gateway())
            addresses[ELSEWHERE] = gateway.address_of(listener)
        settings = logins.bystander_settings(folder) if login else {}
        for number, (place, address) in enumerate(addresses.items()):
            topic = f"bystander-{number}"
            with RawClient(cluster.address_of(inside)) as client:
                create_topic(client, topic)
            bystander = Bystander(join_address(*address), topic, folder / f"{topic}.log", settings)
            self._bystanders[place] = opening.enter_context(bystander)
        self.arena.waiting = self._waiting
        self._accounts()
        if self._options.control_seconds:
            time.sleep(self._options.control_seconds)
            self._control = self._accounts()

    def _waiting(self) -> list[str]:
        return [
            f"{kind} at {place}"
            for place, each in self._bystanders.items()
            for kind in each.waiting()
        ]

    def _accounts(self) -> dict[str, Account]:
        """Of all bystanders, since the last time."""
        return {place: each.account() for place, each in self._bystanders.items()}

    def __exit__(self, *exc_info: object) -> None:
        self._open.close()

    @property
    def arena(self) -> Arena:
        """Where attacks take place."""
        assert self._arena is not None
        return self._arena

    @property
    def usable(self) -> bool:
        """Whether both programs run and nobody was lost from sight."""
        try:
            self.arena.alive()
        except AssertionError:
            return False
        return True

    def play(self, attack: Attack) -> Row:
        """Run an attack and judge it; never raises for what the product does."""
        row = Row(attack, control=self._control)
        arena = self.arena
        restarts = arena.restarts
        before = self._look(row)
        for name in PROGRAMS:
            arena.longest[name] = arena.longest_by_clock[name] = 0.0
        began = time.monotonic()
        try:
            with _deadline(_ATTACK_SECONDS):
                attack.run(arena)
        except Exception as e:
            row.problems.append(_short(e))
        row.seconds = time.monotonic() - began
        recorded: Recording = Counter()
        try:
            arena.alive()
            if self._relay is not None:
                recorded = self._relay.recorded()
            row.accounts = self._accounts()
            self._look_again(row, before)
        except (AssertionError, OSError) as e:
            row.problems.append(_short(e))
        row.turns = dict(arena.longest)
        row.walls = dict(arena.longest_by_clock)
        _judge(row, restarted=arena.restarts > restarts)
        if self._relay is not None and not row.problems:
            self._send_again(row, recorded)
        return row

    def _send_again(self, row: Row, recorded: Recording) -> None:
        """The same before a login."""
        there = logins.clients_address(self.arena.cluster)
        try:
            row.before = send_again(self.arena, recorded, there, self._idle)
            accounts = self._accounts()
        except (AssertionError, OSError) as e:
            row.problems.append(f"before a login: {_short(e)}")
            return
        found = [*row.before.problems, *_missed(accounts)]
        row.problems += [f"before a login: {problem}" for problem in found]

    def _look(self, row: Row) -> dict[str, float]:
        """Before: read everything once, so that the next reading is of the attack alone."""
        figures = self.arena.figures("gateway")
        self.arena.figures("broker")
        for name, process in self._processes():
            resident = _resident(process)
            row.memory[name] = Memory(resident, resident, resident)
            Path(f"/proc/{process.pid}/clear_refs").write_text("5")  # resets the peak
            row.starved -= _starved(process)
        return figures

    def _look_again(self, row: Row, before: dict[str, float]) -> None:
        """After: the longest turns first, then memory, for which one may have to wait."""
        figures = self.arena.figures("gateway")
        self.arena.figures("broker")
        row.starved += sum(_starved(process) for _, process in self._processes())
        until = time.monotonic() + _MEMORY_SECONDS
        while True:
            cached = (figures[_CACHED] - before[_CACHED]) / _MIB
            problems = [f"{name} is {figures[name]:.0f}" for name in _HELD
                        if figures[name] > _HELD_AFTER]  # fmt: skip
            for name, process in self._processes():
                memory = row.memory[name]
                memory.after = _resident(process)
                memory.peak = max(memory.peak, _resident(process, "VmHWM"))
                grown = memory.after - memory.before - (cached if name == "gateway" else 0)
                if grown > row.attack.growth_mib:
                    problems.append(f"the {name} keeps {grown:.0f} MiB")
            if not problems or time.monotonic() > until:
                break
            time.sleep(0.2)
            figures = self.arena.figures("gateway")
        row.problems += problems

    def _processes(self) -> Iterator[tuple[str, Process]]:
        yield "gateway", self.arena.cluster.gateway
        yield "broker", self.arena.cluster.broker


def play_all(attacks: list[Attack], options: Options) -> Iterator[Row]:
    """Play attacks in order, on as few clusters as possible."""
    stages = Stages(options)
    try:
        for attack in attacks:
            yield stages.play(attack)
    finally:
        stages.close()


class Stages:
    """The stage of the last attack, kept for the next one where that can use it."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._stage: Stage | None = None

    def play(self, attack: Attack) -> Row:
        """Play it on the stage that there is, or on a new one."""
        stage = self._stage
        arguments = (attack.broker, attack.gateway, attack.listeners)
        if stage is None or stage.arguments != arguments or not stage.usable:
            self.close()
            stage = self._stage = Stage(attack, self._options).__enter__()
        row = stage.play(attack)
        if row.problems:
            self.close()  # what this attack broke must not fail the next one
        return row

    def close(self) -> None:
        """End the cluster."""
        if self._stage is not None:
            self._stage.__exit__(None, None, None)
            self._stage = None


def _judge(row: Row, *, restarted: bool) -> None:
    limit = row.attack.loop_seconds
    row.problems += _missed(row.accounts, restarted=restarted)
    if limit is not None:
        row.slow_loops = [
            f"the {name}'s loop had a turn of {seconds * 1000:.0f} ms"
            for name, seconds in row.turns.items()
            if seconds > limit
        ]


def _missed(accounts: Mapping[str, Account], *, restarted: bool = False) -> Iterator[str]:
    """What bystanders have noticed. While a broker restarts, clients must try again."""
    for place, account in accounts.items():
        who = f"the bystander at {place}"
        if account.lost:
            yield f"{len(account.lost)} records of {who} are lost"
        if account.doubled:
            yield f"{len(account.doubled)} records of {who} are there twice"
        errors = [*sorted(set(account.errors)), *([] if restarted else account.retried)]
        yield from (f"{who}: {error}" for error in errors)


def _environment(code: Path | None) -> dict[str, str]:
    """For the processes of the cluster: how turns are measured, and another checkout."""
    paths = [_HERE / "inject", *((code or _CHECKOUT) / package for package in _PACKAGES)]
    probe = str(loop_turns.__file__)
    return {"PYTHONPATH": os.pathsep.join(map(str, paths)), "HOSTILE_LOOP_TURNS": probe}


@contextmanager
def _killed(cluster: Cluster) -> Iterator[None]:
    """At the end, whatever has happened to them."""
    yield
    for running in ("_gateway", "_broker"):
        process = getattr(cluster, running)
        if process is not None and process.popen.poll() is None:
            process.kill()


@contextmanager
def _deadline(seconds: int) -> Iterator[None]:
    def too_late(_number: int, _frame: Any) -> None:
        raise TimeoutError(f"not over within {seconds} s")

    before = signal.signal(signal.SIGALRM, too_late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _short(e: BaseException) -> str:
    """The error, and where the attack was."""
    at = next(
        (f for f in reversed(traceback.extract_tb(e.__traceback__)) if "attacks_" in f.filename),
        None,
    )
    where = f" ({Path(at.filename).name}:{at.lineno})" if at else ""
    return f"{type(e).__name__}: {str(e)[:300]}{where}"


def _resident(process: Process, field: str = "VmRSS") -> float:
    """In MiB. Raises AssertionError: the process has ended."""
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("a process has ended")


def _starved(process: Process) -> float:
    """Seconds that its first thread was runnable without a core (proc(5), schedstat)."""
    return int(Path(f"/proc/{process.pid}/schedstat").read_text().split()[1]) / 1e9
