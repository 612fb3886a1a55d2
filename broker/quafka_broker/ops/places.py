"""Op 0x32, open places: see quafka_broker.places."""

from __future__ import annotations

from quafka_broker.state import BrokerState
from quafka_mesh_ops.handlers import OpContext
from quafka_mesh_ops.ops.places import OpenPlaces, OpenPlacesResp


async def handle(state: BrokerState, context: OpContext, op: OpenPlaces) -> OpenPlacesResp:
    """Return the name of the socket for descriptors, and a token for it."""
    return state.places.open(context.peer)
