"""What kaskade shows of a cluster, by its own services, and what it changes; printed as JSON.

Its decoders of records and its terminal are left out: they need much, and are not used here.
"""

from __future__ import annotations

import asyncio
import json
import sys
import types
from importlib import import_module
from typing import Any


class Anything(type):
    """Of classes that have whatever is asked of them."""

    def __getattr__(cls, name: str) -> str:
        return name


class Absent(types.ModuleType):
    """Has whatever is imported from it."""

    def __getattr__(self, name: str) -> Anything:
        return Anything(name, (Exception,), {})


for absent in ("kaskade.deserializers", "fastavro", "fastavro.schema", "textual", "textual.app"):
    sys.modules[absent] = Absent(absent)

commands: Any = import_module("kaskade.commands")
services: Any = import_module("kaskade.services")


async def pages(service: Any, name: str) -> dict[str, Any]:
    topics = await service.metadata()
    offsets = await service.enrich_offsets(topics)
    groups = await service.load_groups()
    lag = service.apply_groups(topics, groups)
    failed = [str(error) for result in (offsets, groups, lag) for error in result.errors]
    shown = topics[name]
    return {
        "topics": sorted(topics),
        "errors": failed,
        "partitions": shown.partitions_count(),
        "records": shown.records_count(),
        "groups": {group.id: group.lag_count() for group in shown.groups},
    }


def main(bootstrap: str, name: str) -> None:
    service = services.TopicService({"bootstrap.servers": bootstrap})
    found = {"before": asyncio.run(pages(service, name))}
    own = commands.CreateTopicCommand("by-kaskade", 1, None, 1, "delete", 1_000_000)
    service.create(own)
    service.add_partitions("by-kaskade", 3)
    service.edit("by-kaskade", {"retention.ms": "2000000", "cleanup.policy": "delete"})
    found["configs"] = service.get_configs("by-kaskade")
    found["after"] = asyncio.run(pages(service, "by-kaskade"))
    service.delete("by-kaskade")
    print(json.dumps(found))


main(*sys.argv[1:])
