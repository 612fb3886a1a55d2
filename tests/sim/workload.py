"""Which topics a run has, and which clients use them. Drawn from a seed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Protocol

from quafka_gateway.cluster import routes
from quafka_proto.errors import ErrorCode as E
from tests.sim.clients.admin_calls import Calls
from tests.sim.clients.administrator import Administrator
from tests.sim.clients.classic_consumer import ClassicConsumer
from tests.sim.clients.fetching import ISOLATIONS
from tests.sim.clients.group_consumer import GroupConsumer
from tests.sim.clients.idempotent import IdempotentProducer
from tests.sim.clients.job import Job, Place, Plan, TopicPlan
from tests.sim.clients.live_reader import LiveReader
from tests.sim.clients.offset_administrator import OffsetAdministrator
from tests.sim.clients.plain import PlainProducer
from tests.sim.clients.reader import SimpleReader
from tests.sim.clients.rights_administrator import RightsAdministrator, create_users
from tests.sim.clients.share_consumer import ShareConsumer
from tests.sim.clients.snapshot_reader import SnapshotReader
from tests.sim.clients.transactional import Copier, TransactionalProducer
from tests.sim.clients.wire import Link, LostError

_NAMES = ("a-orders", "b-events", "c-clicks", "d-states")
_COPIES = "e-copies"
_PASSING = "f-passing"
_COMPACTED = {"cleanup.policy": "compact"}
_SHORT = {"retention.bytes": "20000"}
_PACE = {
    "producer": (0.1, 0.3),
    "reader": (0.1, 0.3),
    "consumer": (0.1, 0.3),
    "live": (0.5, 2.0),
    "snapshots": (3.0, 8.0),
    "rights": (0.4, 1.5),
}
"""Seconds between two operations: least and most."""
_USUAL_PACE = (0.15, 0.4)
_GUARDED = 0.25
"""How often there are users and rights."""
LOGIN_PORT = 9093
_CONFIGS_KNOWN_S = 1.5
"""A gateway may use former configs of a group for a second."""

_Run = Callable[[Job], Awaitable[None]]


class Shape(Protocol):
    """What the workload needs to know of a run."""

    @property
    def clients(self) -> int:
        """About how many client programs there are."""
        ...

    @property
    def in_store(self) -> bool:
        """Whether the log is in the object store, where Spark reads it."""
        ...


class Workload:
    """Topics, groups and programs.

    Attributes:
        programs: by name; called with its job, each runs until cancelled.
        users: passwords by name; they log in at `LOGIN_PORT`.
    """

    def __init__(self, random: Random, shape: Shape) -> None:
        self._random = random
        self._topics = _topics(random)
        self._groups: dict[str, list[str]] = {}
        self._configs: list[tuple[str, str, str]] = []
        """What is set at the start: resource, name, value."""
        self.programs: dict[str, _Run] = {}
        self.users: dict[str, str] = {}
        self._paces: dict[str, float] = {}
        if any(not topic.lasts for topic in self._topics):
            self._add_administrator()
        self._add_producer()
        self._add_reader()
        kinds: list[Callable[[], None]] = [
            self._add_producer,
            self._add_plain_producer,
            self._add_reader,
            self._add_transactions,
            self._add_copiers,
            self._add_classic_group,
            self._add_group,
            self._add_share_group,
            self._add_administrator,
            self._add_offset_administrator,
        ]
        if random.random() < _GUARDED:
            self._add_users()
        if shape.in_store:
            kinds += [self._add_live_reader, self._add_live_reader, self._add_snapshots]
        random.shuffle(kinds)
        while len(self.programs) < shape.clients:
            for add in kinds:
                if len(self.programs) < shape.clients:
                    add()
        self.plan = Plan(self._topics, self._groups)

    def pace_of(self, name: str) -> float:
        """Seconds between two operations of a program."""
        return self._paces[name]

    def routes(self, addresses: Sequence[str]) -> tuple[routes.Route, ...]:
        """Which topic is at which broker; the last one has groups and transactions, too."""
        *others, home = addresses
        rules = [f"{name[0]}*={address}" for name, address in zip(_NAMES, others, strict=False)]
        return routes.parse(",".join([*rules, f"*={home}"]))

    async def prepare(self, job: Job) -> None:
        """Create the topics that last, and set configs; before any other client starts."""
        link = Link(job)
        calls = Calls(job, link)
        for topic in self._topics:
            if topic.lasts:
                create = partial(calls.create, topic.name, topic.partitions, topic.configs)
                await _until_done(link, create)
        for config in self._configs:
            await _until_done(link, partial(calls.alter_config, *config))
        if self.users:
            await _until_done(link, partial(create_users, link, self.users))
        link.leave()
        if self._configs:
            await asyncio.sleep(_CONFIGS_KNOWN_S)

    # --- programs ---------------------------------------------------------------------------

    def _add(self, kind: str, run: _Run) -> None:
        count = sum(name.startswith(f"{kind}-") for name in self.programs)
        name = f"{kind}-{count + 1}"
        self.programs[name] = run
        self._paces[name] = self._random.uniform(*_PACE.get(kind, _USUAL_PACE))

    def _some(self, of: Sequence[TopicPlan]) -> list[TopicPlan]:
        """One to all of them; at least one that lasts, so that there is always something to do."""
        some = self._random.sample(of, self._random.randint(1, len(of)))
        if not any(topic.lasts for topic in some):
            some.append(self._random.choice([topic for topic in of if topic.lasts]))
        return sorted(some, key=lambda topic: topic.name)

    @property
    def _lasting(self) -> list[TopicPlan]:
        return [topic for topic in self._topics if topic.lasts and topic.name != _COPIES]

    @property
    def _plain(self) -> list[TopicPlan]:
        """Those that keep everything."""
        return [topic for topic in self._lasting if not topic.configs]

    def _add_producer(self) -> None:
        some = self._some([topic for topic in self._topics if topic.name != _COPIES])
        most = self._random.choice((1, 5, 5))
        self._add("producer", lambda job: IdempotentProducer(job, some, most_in_flight=most).run())

    def _add_plain_producer(self) -> None:
        some = self._some(self._lasting)
        self._add("plain", lambda job: PlainProducer(job, some).run())

    def _add_reader(self) -> None:
        some = self._some(self._topics)
        self._add("reader", lambda job: SimpleReader(job, some).run())

    def _add_transactions(self) -> None:
        some, txn_id = self._some(self._lasting), f"writer-{len(self.programs)}"
        self._add("transactions", lambda job: TransactionalProducer(job, txn_id, some).run())

    def _add_copiers(self) -> None:
        """Copiers with a part of the source each; sometimes two with the same transactional id."""
        number = len(self.programs)
        source = self._random.choice(self._plain)
        target = self._copies()
        group = f"copiers-{number}"
        if group in self._groups:
            return
        self._groups[group] = [source.name]
        half = (source.partitions + 1) // 2
        parts = [part for part in (source.places[:half], source.places[half:]) if part]
        if len(parts) < 2 or self._random.random() < 0.3:
            parts.append(parts[-1])  # they fence each other
        for part in parts:
            txn_id = f"{group}-{part[0][1]}"
            self._add("copier", self._copier(txn_id, group, part, target))

    def _copier(self, txn_id: str, group: str, part: list[Place], target: TopicPlan) -> _Run:
        return lambda job: Copier(job, txn_id, group, part, target).run()

    def _copies(self) -> TopicPlan:
        """The topic that copiers write to."""
        known = [topic for topic in self._topics if topic.name == _COPIES]
        if not known:
            known = [TopicPlan(_COPIES, self._random.randint(1, 2))]
            self._topics += known
        return known[0]

    def _add_classic_group(self) -> None:
        group, names = self._new_group("classic")
        cooperative = self._random.random() < 0.5

        def run(job: Job) -> Awaitable[None]:
            return ClassicConsumer(job, group, names, cooperative=cooperative).run()

        for _ in range(self._random.randint(2, 3)):
            self._add("consumer", run)

    def _add_group(self) -> None:
        group, names = self._new_group("group")
        for _ in range(self._random.randint(2, 3)):
            self._add("consumer", lambda job: GroupConsumer(job, group, names).run())

    def _new_group(self, kind: str) -> tuple[str, list[str]]:
        name = f"{kind}-{len(self.programs)}"
        topics = [topic.name for topic in self._some(self._lasting)]
        self._groups[name] = topics
        return name, topics

    def _add_share_group(self) -> None:
        group = f"shares-{len(self.programs)}"
        names = [topic.name for topic in self._some(self._plain)]
        isolation = self._random.choice(ISOLATIONS)
        self._configs += [
            (f"group:{group}", "share.auto.offset.reset", "earliest"),
            (f"group:{group}", "share.isolation.level", isolation),
        ]
        for _ in range(self._random.randint(2, 3)):
            self._add("sharer", lambda job: ShareConsumer(job, group, names, isolation).run())

    def _add_administrator(self) -> None:
        self._add("administrator", lambda job: Administrator(job).run())

    def _add_offset_administrator(self) -> None:
        group = f"offsets-{len(self.programs)}"
        some = self._some(self._lasting)
        self._groups[group] = [topic.name for topic in some]
        self._add("offsets", lambda job: OffsetAdministrator(job, group, some).run())

    def _add_users(self) -> None:
        """Clients who log in, and an administrator who changes what they may."""
        topics = self._some(self._plain)
        self.users = {"alice": "a-secret", "bob": "b-secret"}
        self._add("rights", lambda job: RightsAdministrator(job, [*self.users], topics).run())
        for user in self.users:
            self._add("reader", self._logged_in(user, lambda job: SimpleReader(job, topics).run()))
        name = self._random.choice([*self.users])
        self._add("plain", self._logged_in(name, lambda job: PlainProducer(job, topics).run()))

    def _logged_in(self, user: str, run: _Run) -> _Run:
        def run_as_user(job: Job) -> Awaitable[None]:
            gateways = [gateway._replace(port=LOGIN_PORT) for gateway in job.gateways]
            return run(replace(job, gateways=gateways, login=(user, self.users[user])))

        return run_as_user

    def _add_live_reader(self) -> None:
        some = self._some(self._lasting)
        self._add("live", lambda job: LiveReader(job, some).run())

    def _add_snapshots(self) -> None:
        if "snapshots-1" not in self.programs:
            self._add("snapshots", lambda job: SnapshotReader(job).run())


def _topics(random: Random) -> list[TopicPlan]:
    """The first one keeps everything; others may be compacted, or keep little."""
    found = [TopicPlan(_NAMES[0], random.randint(1, 4))]
    for name in _NAMES[1 : random.randint(2, len(_NAMES))]:
        configs = random.choice(({}, {}, {}, _COMPACTED, _SHORT))
        found.append(TopicPlan(name, random.randint(1, 4), configs))
    if random.random() < 0.5:
        found.append(TopicPlan(_PASSING, random.randint(1, 2), lasts=False))
    return found


async def _until_done(link: Link, call: Callable[[], Awaitable[int]]) -> None:
    """Make an administrator's request until it is done, or was before."""
    while True:
        try:
            if await call() in (E.NONE, E.TOPIC_ALREADY_EXISTS):
                return
        except LostError:
            pass
        await link.back_off()
