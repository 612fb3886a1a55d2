"""Chooses the class of the mesh's QUIC connections."""

from __future__ import annotations

import logging

import aioquic

from quafka_mesh_ops.transport.batched import BatchedQuic
from quafka_mesh_ops.transport.quic import MeshQuic

logger = logging.getLogger("quafka.mesh")

KNOWN_AIOQUIC = "1.7."
"""The releases whose private names `BatchedQuic` was written against."""


def quic_class(batched: bool) -> type[MeshQuic]:
    """The connection class to use; the stock path where aioquic is not the one known here."""
    if batched and not aioquic.__version__.startswith(KNOWN_AIOQUIC):
        logger.warning(
            "the mesh's packets are built one by one: batches need aioquic %s, this is %s",
            KNOWN_AIOQUIC,
            aioquic.__version__,
        )
        return MeshQuic
    return BatchedQuic if batched else MeshQuic
