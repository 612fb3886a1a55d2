"""Notifies groups of created, changed or deleted topics: many at once, in slices."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Collection

from quafka_broker.groups.group import Group
from quafka_broker.groups.table import GroupEntry, Key
from quafka_loop.slices import Slices

log = logging.getLogger("quafka.broker.groups")

_PER_SLICE = 100
_NAMES_AS_A_GROUP = 20
"""The number of names whose lookup is as much work as a group."""
_TOGETHER_SECONDS = 0.05
"""The delay, which lets the topics of one request reach the groups as one change."""


class TopicNews:
    """The topics that have changed since the last notification. For one event loop."""

    def __init__(
        self,
        every_group: Callable[[], list[tuple[Key, GroupEntry]]],
        tell: Callable[[Key, Group, Collection[str]], None],
    ) -> None:
        """`tell` gets a group, and the names of its org's changed topics."""
        self._every_group = every_group
        self._tell = tell
        self._changed: defaultdict[int, dict[str, None]] = defaultdict(dict)
        self._task: asyncio.Task[None] | None = None

    def topic_changed(self, org: int, name: str) -> None:
        """Note a topic; the groups are notified soon."""
        self._changed[org][name] = None
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Stop notifying."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            while self._changed:
                await asyncio.sleep(_TOGETHER_SECONDS)
                changed, self._changed = self._changed, defaultdict(dict)
                slices = Slices(_PER_SLICE)
                for key, entry in self._every_group():
                    names = changed.get(key[0], ())
                    if names:
                        self._tell_one(key, entry.group, names)
                    await slices.done(1 + len(names) // _NAMES_AS_A_GROUP)
        finally:
            self._task = None

    def _tell_one(self, key: Key, group: Group, names: Collection[str]) -> None:
        try:
            self._tell(key, group, names)
        except Exception:  # a bug in one group must not stop the notification of others
            log.exception("group %r could not be notified of changed topics", key[1])
