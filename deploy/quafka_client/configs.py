"""Configs of topics, brokers and groups: DescribeConfigs, IncrementalAlterConfigs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from quafka_client.cluster import ClientCluster
from quafka_client.errors import ClientError, check
from quafka_proto.schema.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)


class ConfigResourceKind(IntEnum):
    """The kinds of resources that have configs, by Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


_SOURCES = {
    1: "topic",
    2: "broker",
    3: "cluster",
    4: "static",
    5: "default",
    6: "logger",
    7: "client metrics",
    8: "group",
}
_SET_FOR = {ConfigResourceKind.TOPIC: 1, ConfigResourceKind.BROKER: 2, ConfigResourceKind.GROUP: 8}
"""The source of a value that is set for one resource of a kind."""
_SET, _DELETE = 0, 1


@dataclass(frozen=True, slots=True)
class Config:
    """One config.

    Attributes:
        source: where it is set; "default" if nowhere.
        inherited: the value without the resource's own; None: unknown.
    """

    name: str
    value: str | None
    source: str
    read_only: bool
    sensitive: bool
    documentation: str | None
    inherited: str | None = None


async def describe(
    cluster: ClientCluster,
    kind: ConfigResourceKind,
    names: Sequence[str],
    *,
    documentation: bool = False,
    keys: Sequence[str] | None = None,
) -> dict[str, list[Config]]:
    """The configs of each resource, by its name: one request, of brokers one each.

    `keys`: only these, of those that the server knows; None: all.

    Raises ClientError.
    """
    if kind is ConfigResourceKind.BROKER:
        asked = [(await cluster.node(_node(name)), [name]) for name in names]
    else:
        asked = [(cluster.any, list(names))] if names else []
    found: dict[str, list[Config]] = {}
    for connection, some in asked:
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=kind,
                    resource_name=name,
                    configuration_keys=None if keys is None else list(keys),
                )
                for name in some
            ],
            include_synonyms=True,
            include_documentation=documentation,
        )
        for result in (await connection.call(request, DescribeConfigsResponse)).results:
            name = result.resource_name
            check(result.error_code, f"{kind.name.lower()} {name!r}", result.error_message)
            found[name] = [
                Config(
                    each.name,
                    None if each.is_sensitive else each.value,
                    _source(each.config_source, is_default=each.is_default),
                    each.read_only,
                    each.is_sensitive,
                    each.documentation,
                    None if each.is_sensitive else _inherited(each, _SET_FOR[kind]),
                )
                for each in sorted(result.configs, key=lambda each: each.name)
            ]
    return found


async def alter(
    cluster: ClientCluster,
    kind: ConfigResourceKind,
    name: str,
    changes: Mapping[str, str | None],
    *,
    validate_only: bool = False,
) -> None:
    """Set configs; None returns one to its default. All are changed or none. Raises ClientError."""
    request = IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    IncrementalAlterableConfig(
                        name=key, config_operation=_DELETE if value is None else _SET, value=value
                    )
                    for key, value in changes.items()
                ],
            )
        ],
        validate_only=validate_only,
    )
    connection = (
        await cluster.node(_node(name)) if kind is ConfigResourceKind.BROKER else cluster.any
    )
    (result,) = (await connection.call(request, IncrementalAlterConfigsResponse)).responses
    check(result.error_code, f"{kind.name.lower()} {name!r}", result.error_message)


def _inherited(config: DescribeConfigsResourceResult, own: int) -> str | None:
    if config.config_source != own:
        return config.value
    return next((each.value for each in config.synonyms if each.source != own), None)


def _node(name: str) -> int:
    try:
        return int(name)
    except ValueError as e:
        raise ClientError(f"{name!r} is not a broker's node id, which is a number") from e


def _source(code: int, *, is_default: bool) -> str:
    if code < 0:  # version 0 has no source, only whether it is the default
        return "default" if is_default else "topic"
    return _SOURCES.get(code, f"source {code}")
