"""The kinds of quotas: Kafka's quota keys of clients, and also the limits of orgs."""

from __future__ import annotations

from enum import Enum

from quafka_mesh_ops.org_limits import LimitName

USER, CLIENT_ID, IP = "user", "client-id", "ip"
"""Kafka's types of entities."""


class QuotaKind(Enum):
    """One kind of quota; the value is Kafka's key."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUESTS = "request_percentage"
    MUTATIONS = "controller_mutation_rate"
    CONNECTIONS = "connection_creation_rate"

    @property
    def org_limit(self) -> LimitName:
        """The limit of a whole org."""
        return LimitName(self.value.replace("_", "."))


PLACES = {
    kind.value: place
    for place, kind in enumerate(
        (QuotaKind.PRODUCE, QuotaKind.FETCH, QuotaKind.MUTATIONS, QuotaKind.REQUESTS)
    )
}
"""The place of a key where Kafka lists the quotas of a user or client id."""

CLIENT_KINDS = (QuotaKind.PRODUCE, QuotaKind.FETCH, QuotaKind.REQUESTS, QuotaKind.MUTATIONS)
"""What users and client ids may have; addresses have connections alone."""
