"""A program's settings as Kafka shows the configs of a broker."""

from __future__ import annotations

from dataclasses import fields

from quafka_mesh_ops.ops.admin import ConfigDescription
from quafka_mesh_ops.settings import CommonSettings, Setting
from quafka_proto.config_kinds import ConfigSource, ConfigType
from quafka_proto.schema.configs import DescribeConfigsSynonym


def describe(settings: CommonSettings, of: type[CommonSettings]) -> list[ConfigDescription]:
    """Describe the settings that `of` declares, except the common ones. All are read-only."""
    common = {field.name for field in fields(CommonSettings)}
    found: list[ConfigDescription] = []
    for field in fields(of):
        if field.name in common:
            continue
        known: Setting = field.metadata["setting"]
        value = getattr(settings, field.name)
        shown, default = (None if v is None else known.show(v) for v in (value, field.default))
        name = field.name.replace("_", ".")
        synonyms: list[DescribeConfigsSynonym] = []
        if value != field.default:
            synonyms.append(DescribeConfigsSynonym(name, shown, ConfigSource.STATIC_BROKER))
        if default is not None:
            synonyms.append(DescribeConfigsSynonym(name, default, ConfigSource.DEFAULT))
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
        words = f"{known.help}. Allowed: {known.allowed}."
        kind = _kind(value, str(field.type))
        found.append(ConfigDescription(name, shown, source, kind, True, words, synonyms))
    return found


def _kind(value: object, declared: str) -> ConfigType:
    if value is None and declared.startswith("int"):
        return ConfigType.LONG
    if isinstance(value, bool):
        return ConfigType.BOOLEAN
    if isinstance(value, int):
        return ConfigType.LONG
    if isinstance(value, float):
        return ConfigType.DOUBLE
    return ConfigType.LIST if isinstance(value, tuple) else ConfigType.STRING
