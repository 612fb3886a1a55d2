"""What bulk answers travel on."""

from __future__ import annotations

from enum import StrEnum

from quafka_mesh_ops.transport.ladder import RUNGS

LARGE_DATAGRAMS = RUNGS[0]
"""Bytes of a datagram from which on QUIC carries bulk answers for no more CPU time than TLS."""


class BulkCarrier(StrEnum):
    """The values of `mesh.bulk`: TLS is used only if both ends choose it."""

    AUTO = "auto"
    """TLS where the route takes no large datagrams, so between hosts."""
    QUIC = "quic"
    TLS = "tls"
