"""The broker's own topics: they belong to no org, and hold its journals."""

from __future__ import annotations

from quafka_broker.partitions.partition import PartitionId, topic_hash

INTERNAL_ORG = 0


def _only_partition(name: str) -> PartitionId:
    return PartitionId(INTERNAL_ORG, topic_hash(INTERNAL_ORG, name), 0, 0)


REGISTRY_NAME = "__quafka_registry"
GROUPS_NAME = "__quafka_groups"
TRANSACTIONS_NAME = "__quafka_transactions"
SECURITY_NAME = "__quafka_security"
SHARES_NAME = "__quafka_shares"
REGISTRY = _only_partition(REGISTRY_NAME)
GROUPS = _only_partition(GROUPS_NAME)
TRANSACTIONS = _only_partition(TRANSACTIONS_NAME)
SECURITY = _only_partition(SECURITY_NAME)
SHARES = _only_partition(SHARES_NAME)
INTERNAL_NAMES = {
    REGISTRY: REGISTRY_NAME, GROUPS: GROUPS_NAME, TRANSACTIONS: TRANSACTIONS_NAME,
    SECURITY: SECURITY_NAME, SHARES: SHARES_NAME,
}  # fmt: skip
