"""The schemas of Kafka's APIs, one module per family of APIs, imported on first use.

A struct's fields are in the order of the wire, and have Kafka's names. The schemas cover every
version of Kafka 4.0 to 4.3, and the versions that Kafka 4.0 dropped (KIP-896), which clients
before 2.1 send.
"""

from __future__ import annotations

from importlib import import_module

from quafka_proto.message import REQUESTS, RESPONSES, Request, Response

MODULES: dict[str, tuple[int, ...]] = {
    "produce": (0,),
    "fetch": (1,),
    "list_offsets": (2,),
    "metadata": (3,),
    "offsets": (8, 9, 47),
    "groups": (10, 11, 12, 13, 14),
    "group_admin": (15, 16, 42),
    "sasl": (17, 36),
    "api_versions": (18,),
    "topics": (19, 20),
    "partitions": (21, 37, 75),
    "producer_id": (22,),
    "leader_epochs": (23,),
    "transactions": (24, 25, 26, 27, 28),
    "acls": (29, 30, 31),
    "configs": (32, 33, 44, 74),
    "log_dirs": (34, 35),
    "delegation_tokens": (38, 39, 40, 41),
    "replicas": (43, 45, 46),
    "quotas": (48, 49),
    "scram": (50, 51),
    "quorum": (55,),
    "cluster": (57, 60, 64),
    "transaction_admin": (61, 65, 66),
    "consumer_groups": (68, 69),
    "telemetry": (71, 72),
    "share_groups": (76, 77),
    "share_fetch": (78, 79),
    "streams_groups": (88, 89),
    "share_group_offsets": (90, 91, 92),
    "quafka": (20550, 20551, 20552, 20553, 20554),
}
"""The modules of this package, with the API keys of their schemas."""

_MODULE_OF = {key: module for module, keys in MODULES.items() for key in keys}


def request_type(key: int) -> type[Request] | None:
    """The request of an API key; None: the API has no schema."""
    _load(key)
    return REQUESTS.get(key)


def response_type(key: int) -> type[Response] | None:
    """The response of an API key; None: the API has no schema."""
    _load(key)
    return RESPONSES.get(key)


def _load(key: int) -> None:
    if key not in REQUESTS and key in _MODULE_OF:
        import_module(f"{__name__}.{_MODULE_OF[key]}")
