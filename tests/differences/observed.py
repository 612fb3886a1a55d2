"""An answer as what a client can tell about it: flat, and without what differs by nature."""

from __future__ import annotations

from typing import Any

from quafka_proto.message import Message, Struct

Observed = dict[str, object]
"""Values by their path in the answer, such as `topics[0].error_code`."""

_BY_NATURE = {
    "api_keys",
    "broker_id",
    "brokers",
    "cluster_authorized_operations",
    "cluster_id",
    "controller_id",
    "coordinator_id",
    "error_message",
    "finalized_features",
    "finalized_features_epoch",
    "generation_id",
    "host",
    "isr_nodes",
    "leader",
    "leader_epoch",
    "leader_id",
    "log_dir",
    "member_id",
    "node_id",
    "port",
    "producer_id",
    "rack",
    "replica_nodes",
    "supported_features",
    "throttle_time_ms",
    "topic_id",
    "usable_bytes",  # of the disk, on which others write meanwhile
}
"""Fields whose values differ between any two clusters, or are sentences."""


def observe(answer: Message) -> Observed:
    """The fields of an answer."""
    found: Observed = {}
    _walk(answer, "", found)
    return found


def _walk(value: Any, path: str, found: Observed) -> None:
    if isinstance(value, Struct):
        for name in value.FIELDS:
            if name not in _BY_NATURE:
                _walk(getattr(value, name), f"{path}.{name}" if path else name, found)
    elif isinstance(value, list):
        value = [each for each in value if not _is_internal(each)]
        found[f"{path}.length"] = len(value)
        for place, item in enumerate(value):
            label = _label(item, place)
            while f"{path}[{label}]" in found:  # a name that is there twice
                label = f"{label}, again"
            found[f"{path}[{label}]"] = True
            _walk(item, f"{path}[{label}]", found)
    elif isinstance(value, (bytes, bytearray, memoryview)):
        found[path] = bytes(value)
    else:
        found[path] = value


def _label(item: Any, place: int) -> object:
    """What names an item within its list: servers answer in orders of their own."""
    if not isinstance(item, Struct):
        return place
    for name in ("name", "partition_index", "partition", "index", "resource_name"):
        found = getattr(item, name, None)
        if found is not None and found != "":
            return found
    return place


def _is_internal(item: Any) -> bool:
    """Whether an item is one of Kafka's topics for its own state."""
    names = (getattr(item, name, None) for name in ("name", "resource_name"))
    return any(isinstance(name, str) and name.startswith("__") for name in names)
