"""A continuous copy: one session after another, new topics, groups' offsets, and a status."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from types import FrameType

from quafka.copying.groups import translate
from quafka.copying.job import CopiedPartition, Job, partitions_of, reach
from quafka.copying.session import CopySession, JobFencedError, TopicRefusedError
from quafka_client.cluster import ClientCluster
from quafka_client.errors import ClientError, LoginError, UnreachableError
from quafka_client.groups import COPY_STATE
from quafka_loop import clock

_FIRST_WAIT, _LONGEST_WAIT = 0.5, 30.0
_STATE_SECONDS = 3_600.0
_REFUSED_SECONDS = 60.0
_TOPICS_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class MirrorPlan:
    """What a mirror copies. Patterns are those of a shell: `orders-*`.

    `prefix`: what the names of the copies begin with. All times are in seconds.
    """

    topics: Sequence[str]
    exclude: Sequence[str] = ()
    groups: Sequence[str] = ()
    prefix: str = ""
    commit_seconds: float = 1.0
    refresh_seconds: float = 30.0
    groups_seconds: float = 60.0
    status_seconds: float = 10.0

    def wants(self, topic: str) -> bool:
        """Whether a topic is copied; a copy that this mirror makes is not copied again."""
        return (
            any(fnmatchcase(topic, pattern) for pattern in self.topics)
            and not any(fnmatchcase(topic, pattern) for pattern in self.exclude)
            and not (self.prefix and topic.startswith(self.prefix))
        )


@dataclass(slots=True)
class MirrorStatus:
    """What a mirror does. `lag`: records of the source that are not copied yet, as far as known.

    `records`, `bytes`: copied since the start; `rate`: records per second since the last status;
    `groups`: with translated offsets; `problems`: why something is not copied.
    """

    time_ms: int = 0
    state: str = "starting"
    topics: int = 0
    partitions: int = 0
    records: int = 0
    bytes: int = 0
    rate: float = 0.0
    lag: int = 0
    groups: int = 0
    lost: int = 0
    sessions: int = 0
    problems: list[str] = field(default_factory=list[str])


class Stop:
    """SIGTERM and Ctrl-C: the job commits what it has, and ends. A second Ctrl-C does not wait."""

    def __init__(self) -> None:
        self.asked = False

    def __enter__(self) -> Stop:
        self._before = {
            which: signal.signal(which, self._remember) for which in (signal.SIGINT, signal.SIGTERM)
        }
        return self

    def __exit__(self, *_: object) -> None:
        for which, before in self._before.items():
            signal.signal(which, before)

    def _remember(self, _signal: int, _frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


class Mirror:
    """Runs a job until it is stopped."""

    def __init__(
        self, job: Job, plan: MirrorPlan, report: Callable[[MirrorStatus], None], stop: Stop
    ) -> None:
        self._job = job
        self._plan = plan
        self._report = report
        self._stop = stop
        self.status = MirrorStatus()
        self._copied = (0, 0)
        """Records and bytes of earlier sessions."""
        self._told = (0, clock.monotonic())
        self._refused: dict[str, tuple[float, str]] = {}
        """Topics that are left out, by name: until when, and why."""

    def run(self) -> None:
        """Copy until stopped; after a failure a new session begins.

        Raises:
            JobFencedError: another process runs the same job.
            LoginError: a cluster refuses the first login.
        """
        wait, copied = _FIRST_WAIT, 0
        while not self._stop.asked:
            try:
                self._session()
                return
            except JobFencedError:
                raise
            except ClientError as e:
                # Later a login may fail because a server is being restarted.
                if isinstance(e, LoginError) and self.status.state == "starting":
                    raise
                if isinstance(e, TopicRefusedError):
                    self._refused[e.topic] = (clock.monotonic() + _REFUSED_SECONDS, str(e))
                # Several refused topics are found one after another.
                if self._copied[0] > copied or isinstance(e, TopicRefusedError):
                    copied, wait = self._copied[0], _FIRST_WAIT
                self.status.state = "waiting"
                if str(e) not in self.status.problems:
                    self.status.problems.append(str(e))
                self._tell(self._copied)
                self._pause(wait)
                wait = min(2 * wait, _LONGEST_WAIT)

    def _pause(self, seconds: float) -> None:
        until = clock.monotonic() + seconds
        while clock.monotonic() < until and not self._stop.asked:
            clock.sleep(0.1)

    def _session(self) -> None:
        plan, status = self._plan, self.status
        status.sessions += 1
        asyncio.run(reach(self._job))
        # Fences an earlier process of this job before its state is read.
        with CopySession(self._job, plan.commit_seconds) as session:
            begin = self._copied
            now = clock.monotonic()
            refresh_at, tell_at = now, now + plan.status_seconds
            groups_at = now + min(plan.groups_seconds, 5.0)
            keep_at = now + _STATE_SECONDS
            while not self._stop.asked:
                now = clock.monotonic()
                if now >= refresh_at:
                    session.add(asyncio.run(self._new_partitions(session)))
                    refresh_at = clock.monotonic() + plan.refresh_seconds
                    status.state = "running"
                session.step()
                self._copied = (begin[0] + session.records, begin[1] + session.bytes)
                if now >= tell_at:
                    status.lag = session.lag()
                    self._tell(self._copied)
                    tell_at = now + plan.status_seconds
                if plan.groups and now >= groups_at:
                    session.commit()
                    asyncio.run(self._groups(session))
                    groups_at = clock.monotonic() + plan.groups_seconds
                if now >= keep_at:
                    session.keep_state()
                    keep_at = now + _STATE_SECONDS
            session.commit()
            self._copied = (begin[0] + session.records, begin[1] + session.bytes)
            if plan.groups:
                asyncio.run(self._groups(session))
            status.state = "stopped"
            status.lag = session.lag()
            self._tell(self._copied)

    async def _new_partitions(self, session: CopySession) -> list[CopiedPartition]:
        """Partitions that match and are not copied yet. Raises ClientError."""
        plan, job, status = self._plan, self._job, self.status
        status.problems.clear()
        known = {each.source for each in session.partitions}
        now = clock.monotonic()
        self._refused = {name: its for name, its in self._refused.items() if its[0] > now}
        status.problems += [why for _, why in self._refused.values()]
        found: list[CopiedPartition] = []
        async with job.source.cluster() as source, job.target.cluster() as target:
            every = (await source.metadata(None)).topics
            wanted = {
                topic.name: len(topic.partitions)
                for topic in every
                if topic.name and not topic.is_internal and not topic.error_code
                if not topic.name.startswith(("__", *COPY_STATE)) and plan.wants(topic.name)
                if topic.name not in self._refused
            }
            new = [
                name for name, count in wanted.items()
                if any((name, number) not in known for number in range(count))
            ]  # fmt: skip
            for at in range(0, len(new), _TOPICS_AT_ONCE):
                found += await self._some(source, target, new[at : at + _TOPICS_AT_ONCE])
        added = [each for each in found if each.source not in known]
        status.lost += sum(each.lost for each in added)
        places = known | {each.source for each in added}
        status.topics, status.partitions = len({topic for topic, _ in places}), len(places)
        return added

    async def _some(
        self, source: ClientCluster, target: ClientCluster, topics: Sequence[str]
    ) -> list[CopiedPartition]:
        """The partitions of some topics; one that cannot be copied is a problem of its own."""
        names = {name: self._plan.prefix + name for name in topics}
        try:
            return await partitions_of(self._job, source, target, names)
        except UnreachableError:
            raise
        except ClientError as e:
            if len(names) == 1:
                self.status.problems.append(str(e))
                return []
        half = len(topics) // 2
        return [
            *await self._some(source, target, topics[:half]),
            *await self._some(source, target, topics[half:]),
        ]

    async def _groups(self, session: CopySession) -> None:
        async with self._job.source.cluster() as source, self._job.target.cluster() as target:
            found = await translate(source, target, session.partitions, self._plan.groups)
        self.status.groups = len({each.group for each in found})

    def _tell(self, copied: tuple[int, int]) -> None:
        status, now = self.status, clock.monotonic()
        status.time_ms = clock.time_ns() // 1_000_000
        status.records, status.bytes = copied
        before, at = self._told
        status.rate = round((status.records - before) / max(now - at, 1e-3), 1)
        self._told = (status.records, now)
        self._report(status)
