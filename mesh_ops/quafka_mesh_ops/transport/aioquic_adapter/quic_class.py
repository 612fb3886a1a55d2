"""Chooses the class of the mesh's QUIC connections."""

from __future__ import annotations

import logging

import aioquic

from quafka_mesh_ops.transport.aioquic_adapter.batched import BatchedQuic
from quafka_mesh_ops.transport.aioquic_adapter.quic import MeshQuic

logger = logging.getLogger("quafka.mesh")

KNOWN_AIOQUIC = "1.7."
"""The releases whose private names `BatchedQuic` was written against."""


def quic_class(batched: bool) -> type[MeshQuic]:
    """Return the connection class to use; the stock path with an unknown aioquic."""
    if batched and not aioquic.__version__.startswith(KNOWN_AIOQUIC):
        logger.warning(
            "the mesh builds packets one by one: bursts need aioquic %sx, installed is %s",
            KNOWN_AIOQUIC,
            aioquic.__version__,
        )
        return MeshQuic
    return BatchedQuic if batched else MeshQuic
