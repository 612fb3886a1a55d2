"""Limits of transactions."""

from __future__ import annotations

from dataclasses import dataclass

from quafka_broker.config.settings import LogSettings

LONGEST_NAME = 1_024
"""Characters of a transactional id."""


@dataclass(frozen=True, slots=True)
class TransactionLimits:
    """Limits of a transaction, and of all transactional ids of an org.

    Attributes:
        max_timeout_ms: the longest timeout that a producer may request.
        expiration_ms: how long an unused transactional id is kept.
        org_ids: the maximum number of transactional ids of an org.
        partitions: the maximum number of partitions and groups of one transaction, and of offsets
            in it.
        org_offset_bytes: the maximum bytes of an org's committed and pending offsets.
    """

    max_timeout_ms: int = 900_000
    expiration_ms: int = 604_800_000
    org_ids: int = 50_000
    partitions: int = 10_000
    org_offset_bytes: int = 512 << 20

    @classmethod
    def of(cls, config: LogSettings) -> TransactionLimits:
        """The limits by the broker's settings."""
        return cls(
            config.transaction_max_timeout_ms,
            config.transactional_id_expiration_ms,
            config.transaction_max_ids_per_org,
            config.transaction_max_partitions,
            config.offsets_max_bytes,
        )
