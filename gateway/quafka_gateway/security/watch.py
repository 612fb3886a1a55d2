"""Keeps this gateway's copy of orgs, users, ACLs and quotas up to date: a long poll of a broker.

The broker answers at once when a record has changed, so a revoked user or rule is known here one
round trip later. While the broker is unavailable, the gateway continues with the copy that it has.
"""

from __future__ import annotations

import asyncio
import logging
from random import uniform

from quafka_gateway.cluster.broker_link import BrokerLink, BrokerUnavailableError
from quafka_gateway.security.directory import Directory
from quafka_mesh_ops.ops.security import WatchSecurity

log = logging.getLogger("quafka.gateway.security")

PARKED_SECONDS = 30.0
_ANSWER_SECONDS = 5.0
"""How long an answer may take beyond the time for which the broker parks the op."""
_RETRY_SECONDS = 0.2, 1.0
"""Between attempts, at random: gateways do not ask a restarted broker all at once."""
_PACE_SECONDS = 0.02
"""Between two polls that brought nothing: a broker that drains answers at once."""


class SecurityWatch:
    """Feeds a directory from the cluster's security broker."""

    def __init__(
        self, link: BrokerLink, directory: Directory, *, wants_secret: bool = False
    ) -> None:
        """`wants_secret`: clients log in by SASL, for which gateways share a secret."""
        self._link = link
        self._directory = directory
        self._wants_secret = wants_secret
        self._task: asyncio.Task[None] | None = None
        self._reported = False

    def start(self) -> None:
        """Begin to watch, in the background."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Stop watching. The directory stays as it is."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                await self._poll()
                self._now("")
            except BrokerUnavailableError as e:
                self._now(str(e))
                await asyncio.sleep(uniform(*_RETRY_SECONDS))  # noqa: S311
            except Exception:
                # What a listener could not take must not end the watch: a revocation would be lost.
                log.exception("reading orgs, users, ACLs and quotas again after an error")
                self._directory.ask_anew()
                await asyncio.sleep(_RETRY_SECONDS[1])

    def _now(self, problem: str) -> None:
        if problem and not self._reported:
            log.warning("no updates of orgs, users, ACLs and quotas: %s", problem)
        elif self._reported and not problem:
            log.info("orgs, users, ACLs and quotas are up to date again")
        self._reported = bool(problem)
        if problem or self._directory.complete:
            self._directory.problem = problem

    async def _poll(self) -> None:
        copy = self._directory
        wait_ms = round(PARKED_SECONDS * 1000)
        op = WatchSecurity(*copy.asked, wait_ms, copy.began, self._wants_secret)
        answer = await self._link.call(op, None, PARKED_SECONDS + _ANSWER_SECONDS)
        self._directory.learn(answer)
        if not answer.changes and not answer.more:
            await asyncio.sleep(_PACE_SECONDS)
