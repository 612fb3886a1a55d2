"""Node ids: what the settings know of an identity (identity.py)."""

from __future__ import annotations

import re

NodeId = str
"""64 lower-case hex digits: the raw Ed25519 public key (RFC 8032)."""

_NODE_ID = re.compile(r"[0-9a-f]{64}", re.ASCII)


def is_node_id(text: str) -> bool:
    """Whether a text is a node id as programs write it."""
    return _NODE_ID.fullmatch(text) is not None


def parse_node_id(text: str) -> NodeId:
    """Parse a node id; upper-case digits and surrounding blanks are accepted.

    Raises:
        ValueError: it is not a node id; the message describes one.
    """
    node_id = text.strip().lower()
    if _NODE_ID.fullmatch(node_id) is None:
        raise ValueError(
            f"{text!r} is not a node id: allowed are 64 hex digits, as `quafka node id` prints them"
        )
    return node_id
