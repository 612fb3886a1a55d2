"""DescribeConfigs (key 32), versions 0-4: configs of topics, groups, the broker and its loggers.

The cluster's only broker is this gateway: its configs are the settings of the home broker and of
the gateway. The cluster-wide defaults of brokers (resource "") are those that clients have set at
run time. Version 0 has no config sources: a config is "default" if the topic does not set it.

Settings may name orgs, listeners and folders: clients of other orgs than the gateway's own see only
numbers and switches, and of all other values only that they are set.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import fields, replace

from quafka_gateway.cluster.admin import DescribedTopic, GroupConfigs
from quafka_gateway.cluster.broker_link import BrokerUnavailableError
from quafka_gateway.config import EdgeSettings
from quafka_gateway.context import RequestContext
from quafka_gateway.handlers.authorized import (
    DENIED,
    DESCRIBE_CLUSTER_CONFIGS,
    DESCRIBE_GROUP_CONFIGS,
    DESCRIBE_TOPIC_CONFIGS,
    may_on_cluster,
)
from quafka_gateway.handlers.kafka_api import Api, ResponseLength
from quafka_gateway.handlers.order import Order, SeenState
from quafka_loop.slices import Slices, listed
from quafka_mesh_ops import described_settings
from quafka_mesh_ops.ops.admin import ConfigDescription, DescribeBroker
from quafka_proto.config_kinds import ConfigSource, ConfigType, ResourceType
from quafka_proto.errors import ErrorCode
from quafka_proto.message import Versions
from quafka_proto.schema.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from quafka_telemetry.tracing import TraceContext

_LOG_LEVELS = {
    logging.DEBUG: "DEBUG", logging.INFO: "INFO", logging.WARNING: "WARN",
    logging.ERROR: "ERROR", logging.CRITICAL: "FATAL",
}  # fmt: skip
_RESOURCES_PER_SLICE = 20
_MOST_RESOURCES = 10_000
"""Resources in one response: some 50 MB with synonyms and documentation."""
_UNCHANGEABLE = {
    "default.replication.factor": ("1", ConfigType.INT),
    "delete.topic.enable": ("true", ConfigType.BOOLEAN),
    "min.insync.replicas": ("1", ConfigType.INT),
    "unclean.leader.election.enable": ("false", ConfigType.BOOLEAN),
}
"""Broker configs that Kafka's tools look for, and that have only one value here."""
_SETTINGS_OF = {
    "broker.id": ("node_id",),
    "listeners": ("listen", "listeners"),
    "advertised.listeners": ("advertised_listener", "advertised_listeners", "listen", "listeners"),
    "listener.security.protocol.map": ("listener_security_protocol_map",),
}
"""The settings that Kafka's names of listeners stand for: the source is that of these settings."""
_PLAIN_TYPES = {ConfigType.BOOLEAN, ConfigType.INT, ConfigType.LONG, ConfigType.DOUBLE}
_PLAIN = {"log.cleanup.policy", "log.message.timestamp.type", "log.cleaner.min.cleanable.ratio"}
"""Text settings that clients of all orgs may see, because they name nothing."""


class _Refused(Exception):  # noqa: N818
    """A resource without configs; becomes the error of its result."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


async def handle(
    request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResponse:
    """Describe each resource of the request."""
    if len(request.resources) > _MOST_RESOURCES:
        return await _too_many(request)
    writer = _Writer(request, context.version)
    names = [
        r.resource_name
        for r in request.resources
        if r.resource_type == ResourceType.TOPIC
        and context.may(DESCRIBE_TOPIC_CONFIGS, r.resource_name)
    ]
    results: list[DescribeConfigsResult] = []
    with context.child("gateway.kafka.describe_configs") as span:
        topics = iter(await context.tenant.admin.describe_topic_configs(names, span.context))
        groups = await _groups(request, context, span.context)
        slices = Slices(_RESOURCES_PER_SLICE)
        for resource in request.resources:
            await slices.done()
            result = DescribeConfigsResult(
                resource_type=resource.resource_type, resource_name=resource.resource_name
            )
            try:
                _check(resource, context)
                if resource.resource_type == ResourceType.TOPIC:
                    result.configs = writer.topic(next(topics), resource.configuration_keys)
                elif resource.resource_type == ResourceType.GROUP and resource.resource_name:
                    if isinstance(groups, BrokerUnavailableError):
                        raise groups
                    of_group = groups[resource.resource_name]
                    result.configs = writer.group(of_group, resource.configuration_keys)
                else:
                    found = await _describe(resource, context, span.context)
                    result.configs = writer.all(found, resource.configuration_keys)
            except (_Refused, BrokerUnavailableError) as e:
                result.error_code, result.error_message = e.code, str(e)
            results.append(result)
    return DescribeConfigsResponse(results=results)


API = Api(
    key=32,
    versions=Versions(0, 4),
    request=DescribeConfigsRequest,
    handle=handle,
    access=(DESCRIBE_TOPIC_CONFIGS, DESCRIBE_GROUP_CONFIGS, DESCRIBE_CLUSTER_CONFIGS),
    order=Order(reads=SeenState.CONFIGS | SeenState.TOPICS),
    response_length=ResponseLength.BY_REQUEST,
)


async def _too_many(request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    message = f"a request names {_MOST_RESOURCES} resources at most"
    return DescribeConfigsResponse(
        results=await listed(
            DescribeConfigsResult(
                error_code=ErrorCode.INVALID_REQUEST,
                error_message=message,
                resource_type=each.resource_type,
                resource_name=each.resource_name,
            )
            for each in request.resources
        )
    )


async def _groups(
    request: DescribeConfigsRequest, context: RequestContext, trace: TraceContext | None
) -> dict[str, GroupConfigs] | BrokerUnavailableError:
    """The configs of the groups that the client may know, by name."""
    names = {
        r.resource_name: None
        for r in request.resources
        if r.resource_type == ResourceType.GROUP
        and r.resource_name
        and context.may(DESCRIBE_GROUP_CONFIGS, r.resource_name)
    }
    if not names:
        return {}
    try:
        found = await context.tenant.admin.describe_group_configs(list(names), trace)
    except BrokerUnavailableError as e:
        return e
    return dict(zip(names, found, strict=True))


def _check(resource: DescribeConfigsResource, context: RequestContext) -> None:
    """Raises _Refused if the client may not know the resource's configs."""
    kind, name = resource.resource_type, resource.resource_name
    if kind == ResourceType.TOPIC and not context.may(DESCRIBE_TOPIC_CONFIGS, name):
        raise _Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, DENIED)
    if kind == ResourceType.GROUP and not context.may(DESCRIBE_GROUP_CONFIGS, name):
        raise _Refused(ErrorCode.GROUP_AUTHORIZATION_FAILED, DENIED)
    of_cluster = kind not in (ResourceType.TOPIC, ResourceType.GROUP)
    if of_cluster and not may_on_cluster(DESCRIBE_CLUSTER_CONFIGS, context):
        raise _Refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, DENIED)


async def _describe(
    resource: DescribeConfigsResource, context: RequestContext, trace: TraceContext | None
) -> list[ConfigDescription]:
    kind, name = resource.resource_type, resource.resource_name
    if kind == ResourceType.CLIENT_METRICS and name:
        return []  # no API can set any
    if kind not in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        raise _Refused(ErrorCode.INVALID_REQUEST, f"resource type {kind} has no configs here")
    if name not in (str(context.node_id), "" if kind == ResourceType.BROKER else None):
        message = f"the only broker is {context.node_id}, not {name!r}"
        raise _Refused(ErrorCode.INVALID_REQUEST, message)
    if kind == ResourceType.BROKER_LOGGER:
        return _loggers()
    broker = (await context.tenant.admin.call_home(DescribeBroker(), trace)).settings
    if not name:
        return _shown(_cluster_wide(broker), context)
    config = context.services.config
    facts = _facts(context)
    known = {each.name for each in facts}
    here = described_settings.describe(config, EdgeSettings)
    settings = [each for each in here if each.name not in known]
    return _shown(sorted([*broker, *settings, *facts], key=lambda each: each.name), context)


def _shown(settings: list[ConfigDescription], context: RequestContext) -> list[ConfigDescription]:
    if context.sees_all_orgs:
        return settings
    return [
        each
        if each.config_type in _PLAIN_TYPES or each.name in _PLAIN
        else replace(each, value=None, synonyms=[], sensitive=True)
        for each in settings
    ]


def _cluster_wide(settings: list[ConfigDescription]) -> list[ConfigDescription]:
    """Return the configs that clients have set for all brokers."""
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER
    return [
        ConfigDescription(
            each.name, synonym.value, source, each.config_type, False, each.documentation,
            [synonym],
        )
        for each in settings
        for synonym in each.synonyms
        if synonym.source == source
    ]  # fmt: skip


def _facts(context: RequestContext) -> list[ConfigDescription]:
    listeners = context.services.listeners
    endpoints = ",".join(str(each.endpoint) for each in listeners)
    advertised = ",".join(str(each.advertised_endpoint) for each in listeners)
    protocols = ",".join(f"{each.name}:{each.protocol}" for each in listeners)
    node = str(context.node_id), ConfigType.INT
    facts = {
        **_UNCHANGEABLE,
        "broker.id": node,
        "listeners": (endpoints, ConfigType.STRING),
        "advertised.listeners": (advertised, ConfigType.STRING),
        "listener.security.protocol.map": (protocols, ConfigType.STRING),
    }
    config = context.services.config
    given = {each.name for each in fields(config) if getattr(config, each.name) != each.default}
    found: list[ConfigDescription] = []
    for name, (value, kind) in facts.items():
        is_given = not given.isdisjoint(_SETTINGS_OF.get(name, ()))
        source = ConfigSource.STATIC_BROKER if is_given else ConfigSource.DEFAULT
        synonyms = [DescribeConfigsSynonym(name, value, source)]
        words = "This value is fixed."
        found.append(ConfigDescription(name, value, source, kind, True, words, synonyms))
    return found


def _loggers() -> list[ConfigDescription]:
    """Return the loggers of this gateway with their levels."""
    known = [name for name in logging.root.manager.loggerDict if name.startswith("quafka")]
    levels = {name: logging.getLogger(name).getEffectiveLevel() for name in sorted(known)}
    levels = {"root": logging.root.level, **levels}
    return [
        ConfigDescription(
            name, _LOG_LEVELS.get(level, str(level)), ConfigSource.DYNAMIC_BROKER_LOGGER,
            ConfigType.STRING, True, "Set by log.level.", [],
        )
        for name, level in levels.items()
    ]  # fmt: skip


class _Writer:
    """Encodes descriptions as the request wants them; makes what topics share once."""

    def __init__(self, request: DescribeConfigsRequest, version: int) -> None:
        self._synonyms = request.include_synonyms
        self._documentation = request.include_documentation
        self._has_sources = version >= 1
        self._common: dict[int, dict[str, DescribeConfigsResourceResult]] = {}

    def topic(
        self, topic: DescribedTopic, keys: list[str] | None
    ) -> list[DescribeConfigsResourceResult]:
        """Return a topic's configs. Raises _Refused."""
        found, defaults = topic
        if found.error_code:
            raise _Refused(found.error_code, found.error_message)
        written = dict(self._shared(defaults))
        own = {each.name: each.value for each in found.own or []}
        fixed = {each.name: each.value for each in found.fixed or []}
        for each in defaults:
            name = each.name
            if name in own:
                synonym = DescribeConfigsSynonym(name, own[name], ConfigSource.DYNAMIC_TOPIC)
                written[name] = self._write(_valued(each, synonym), is_default=False)
            elif name in fixed:
                synonym = DescribeConfigsSynonym(name, fixed[name], ConfigSource.DEFAULT)
                written[name] = self._write(_valued(each, synonym), is_default=True)
        return [each for name, each in written.items() if not keys or name in keys]

    def group(
        self, group: GroupConfigs, keys: list[str] | None
    ) -> list[DescribeConfigsResourceResult]:
        """Return a group's configs."""
        written = dict(self._shared(group.defaults))
        own = {each.name: each.value for each in group.own}
        for each in group.defaults:
            if each.name in own:
                synonym = DescribeConfigsSynonym(
                    each.name, own[each.name], ConfigSource.DYNAMIC_GROUP
                )
                written[each.name] = self._write(_valued(each, synonym), is_default=False)
        return [each for name, each in written.items() if not keys or name in keys]

    def _shared(
        self, defaults: list[ConfigDescription]
    ) -> dict[str, DescribeConfigsResourceResult]:
        """What all resources with these defaults share, made once."""
        common = self._common.get(id(defaults))
        if common is None:
            common = {each.name: self._write(each, is_default=True) for each in defaults}
            self._common[id(defaults)] = common
        return common

    def all(
        self, found: Iterable[ConfigDescription], keys: list[str] | None
    ) -> list[DescribeConfigsResourceResult]:
        """Return the configs of a resource that is not a topic."""
        return [
            self._write(each, is_default=each.source == ConfigSource.DEFAULT)
            for each in found
            if not keys or each.name in keys
        ]

    def _write(self, each: ConfigDescription, *, is_default: bool) -> DescribeConfigsResourceResult:
        written = DescribeConfigsResourceResult(
            name=each.name,
            value=None if each.sensitive else each.value,
            read_only=each.read_only,
            is_sensitive=each.sensitive,
            config_type=each.config_type,
            documentation=each.documentation if self._documentation else None,
        )
        if self._has_sources:
            written.config_source = each.source
        else:
            written.is_default = is_default
        if self._synonyms:
            written.synonyms = each.synonyms
        return written


def _valued(each: ConfigDescription, synonym: DescribeConfigsSynonym) -> ConfigDescription:
    """Return the config with a synonym that overrides all others."""
    return ConfigDescription(
        each.name, synonym.value, synonym.source, each.config_type, each.read_only,
        each.documentation, [synonym, *each.synonyms], each.sensitive,
    )  # fmt: skip
