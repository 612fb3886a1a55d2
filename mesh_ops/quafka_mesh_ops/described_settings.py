"""A program's settings as Kafka shows the configs of a broker."""

from __future__ import annotations

from dataclasses import fields

from quafka_mesh_ops.ops.admin import ConfigDescription, ConfigSynonym
from quafka_mesh_ops.settings import CommonSettings, Setting
from quafka_proto.config_kinds import ConfigSource, ConfigType


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
        synonyms = [ConfigSynonym(name, default, ConfigSource.DEFAULT)]
        if value != field.default:
            synonyms.insert(0, ConfigSynonym(name, shown, ConfigSource.STATIC_BROKER))
        source = synonyms[0].source
        words = f"{known.help}. Allowed: {known.allowed}."
        found.append(ConfigDescription(name, shown, source, _kind(value), True, words, synonyms))
    return found


def _kind(value: object) -> ConfigType:
    if isinstance(value, bool):
        return ConfigType.BOOLEAN
    if isinstance(value, int):
        return ConfigType.LONG
    if isinstance(value, float):
        return ConfigType.DOUBLE
    return ConfigType.LIST if isinstance(value, tuple) else ConfigType.STRING
