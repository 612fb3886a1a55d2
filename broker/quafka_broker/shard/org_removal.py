"""Deletes the data of deleted orgs from a broker, in the background.

Users, rules and quotas are deleted first, then topics, groups and transactional ids, some at a
time, and finally the org's record, so that a restart continues the deletion. Gateways reject all
clients of the org from the beginning. The log's bytes are freed as after other deletions of topics.
"""

from __future__ import annotations

import asyncio
import logging
from itertools import islice

from quafka_broker.partitions.errors import StorageError
from quafka_broker.state import BrokerState

log = logging.getLogger("quafka.broker.security")

_AT_ONCE = 200
_RETRY_SECONDS = 1.0
"""The pause before another attempt, for members that rejoin and transactions that end."""


async def run_org_removal(state: BrokerState) -> None:
    """Keep deleting orgs that are marked as deleted."""
    security = state.security
    while True:
        await security.deleting.wait()
        security.deleting.clear()
        for org in security.orgs_to_delete():
            try:
                if await remove_org(state, org):
                    log.info("org %d was deleted", org)
                    continue
            except StorageError as e:
                log.warning("org %d cannot be deleted now: %s", org, e)
            security.deleting.set()
        if security.deleting.is_set():
            await asyncio.sleep(_RETRY_SECONDS)


async def remove_org(state: BrokerState, org: int) -> bool:
    """Delete the data of an org; False if some of it is still in use.

    Raises:
        StorageError: some of it still exists.
    """
    while await state.security.remove_records(org):
        pass
    left = await _remove_topics(state, org)
    left += await _remove_groups(state, org)
    await state.group_configs.drop_org(org)
    left += await _remove_transactions(state, org)
    if not left:
        await state.security.org_is_gone(org)
    return not left


async def _remove_topics(state: BrokerState, org: int) -> int:
    """Delete topics; returns how many remain. Topics of Kafka's folders are not the broker's."""
    topics = [
        topic
        for topic in state.registry.topics(org)
        if not state.sources.of(topic).unchangeable(topic)
    ]
    for at in range(0, len(topics), _AT_ONCE):
        await asyncio.gather(*map(state.topics.delete, topics[at : at + _AT_ONCE]))
    for unnamed in [each for each in state.registry.unnamed if each.org == org]:
        await state.topics.drop_unnamed(unnamed)
    return sum(state.registry.by_id(org, topic.uuid) is not None for topic in topics)


async def _remove_groups(state: BrokerState, org: int) -> int:
    """Delete groups, with members, offsets and share partitions; returns how many remain."""
    names = iter([entry.group.name for entry in state.groups.groups(org)])
    while some := list(islice(names, _AT_ONCE)):
        for name in some:
            state.groups.expel(org, name)
        await asyncio.gather(*(state.groups.delete_group(org, name) for name in some))
    for group in [key for key in state.shares.table.groups if key[0] == org]:
        await state.shares.drop(group, [])
    return len(state.groups.groups(org))


async def _remove_transactions(state: BrokerState, org: int) -> int:
    """Abort open transactions and forget their ids; returns how many remain."""
    coordinator, table = state.transactions.coordinator, state.transactions.table
    keys = iter([key for key in table.entries if key[0] == org])
    while some := list(islice(keys, _AT_ONCE)):
        await asyncio.gather(*(coordinator.abort(key, lambda _: True) for key in some))
        await asyncio.gather(*(coordinator.forget(key, unused_ms=0) for key in some))
    return table.count(org)
