"""The sources of settings, the later ones winning: defaults, TOML file, environment, flags."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from quafka_mesh_ops.settings import CommonSettings, Setting
from quafka_mesh_ops.suggestions import did_you_mean
from quafka_mesh_ops.units import plain, unit_of

C = TypeVar("C", bound=CommonSettings)

CONFIG_VARIABLE = "QUAFKA_CONFIG"
DEFAULT = "default"
"""The source of a setting that nobody has set."""
BROKERS_VARIABLE = "QUAFKA_BROKERS"
"""The bootstrap servers of the client commands; not a setting of a program."""
COMMAND_CONFIG_VARIABLE = "QUAFKA_COMMAND_CONFIG"
REGISTRY_VARIABLE = "QUAFKA_REGISTRY"
CLIENT_VARIABLES = frozenset(
    {
        BROKERS_VARIABLE, COMMAND_CONFIG_VARIABLE, REGISTRY_VARIABLE, "QUAFKA_SECURITY_PROTOCOL",
        "QUAFKA_SASL_MECHANISM", "QUAFKA_SASL_USERNAME", "QUAFKA_SASL_PASSWORD",
        "QUAFKA_SASL_TOKEN", "QUAFKA_SSL_CA_LOCATION", "QUAFKA_SSL_KEY_PASSWORD",
    }
)  # fmt: skip
"""How the client commands connect (commands/security.py); not settings of a program."""
SECRETS_PREFIX = "QUAFKA_REDIS_"
"""Variables with users and passwords of Redis, which topics may name (sources/redis/url.py)."""


class SettingError(Exception):
    """An unknown setting or a value that is not allowed (exit code 2). The message names the
    setting, its value, its source and the allowed values."""


@dataclass(frozen=True, slots=True)
class Effective(Generic[C]):
    """A program's settings, and the source of each."""

    config: C
    sources: dict[str, str]


def dotted(field: str) -> str:
    """A setting's name: `wal_fsync` is `wal.fsync`."""
    return field.replace("_", ".")


def variable(field: str) -> str:
    """The environment variable of a setting."""
    return f"QUAFKA_{field.upper()}"


def flag(field: str) -> str:
    """The flag of a setting."""
    return f"--{field.replace('_', '-')}"


def declared(config: type[CommonSettings]) -> dict[str, Setting]:
    """A program's settings by field name."""
    return {field.name: field.metadata["setting"] for field in fields(config)}


def shown(field: str, known: Setting, value: Any) -> str:
    """A value for people: sizes and times with units."""
    unit = unit_of(dotted(field))
    if unit is None or isinstance(value, bool) or not isinstance(value, int):
        return known.show(value)
    return unit.show_all(known.show(value))


def allowed(field: str, known: Setting) -> str:
    """The allowed values, in words: sizes and times with units."""
    unit = unit_of(dotted(field))
    if unit is None:
        return known.allowed
    whole = f", in whole {unit.whole}" if unit.base > 1 else ""
    return unit.show_all(known.allowed) + whole


def load(
    config: type[C],
    flags: Mapping[str, str | None],
    environment: Mapping[str, str] = os.environ,
    known_elsewhere: Mapping[str, Setting] | None = None,
) -> Effective[C]:
    """Read all sources.

    Args:
        flags: values by field name, and `config`.
        known_elsewhere: settings of other programs, accepted in a shared file or environment.

    Raises:
        SettingError: an unknown name or a value that is not allowed.
    """
    known = declared(config)
    everywhere = known | dict(known_elsewhere or {})
    path = flags.get("config") or environment.get(CONFIG_VARIABLE)
    texts: dict[str, tuple[str, str]] = {}
    if path:
        texts |= _from_file(Path(path), everywhere)
    texts |= _from_environment(environment, everywhere)
    for name in known:
        value = flags.get(name)
        if value is not None:
            texts[name] = (value, f"flag {flag(name)}")
    values: dict[str, Any] = {}
    sources: dict[str, str] = dict.fromkeys(known, DEFAULT)
    for name, (text, source) in texts.items():
        if name in known:
            values[name] = parsed(name, known[name], text, source)
            sources[name] = source
    return Effective(config(**values), sources)


def parsed(name: str, known: Setting, text: str, source: str | None = None) -> Any:
    """The value of a setting. Raises SettingError, which also names the source."""
    where = f"{dotted(name)} = {text!r}" + (f" ({source})" if source else "")
    must = f"must be {allowed(name, known)}"
    try:
        number = plain(dotted(name), text)
    except ValueError as e:
        raise SettingError(f"{where}: {e}; {must}") from e
    try:
        return known.parse(number)
    except (ValueError, KeyError) as e:
        raise SettingError(f"{where}: {must}") from e


def _from_environment(
    environment: Mapping[str, str], known: Mapping[str, Setting]
) -> dict[str, tuple[str, str]]:
    by_variable = {variable(name): name for name in known}
    found: dict[str, tuple[str, str]] = {}
    for name, text in environment.items():
        if not name.startswith("QUAFKA_") or name.startswith(SECRETS_PREFIX):
            continue
        if name not in by_variable:
            if name == CONFIG_VARIABLE or name in CLIENT_VARIABLES:
                continue
            raise SettingError(f"{name} is not a setting{did_you_mean(name, by_variable)}")
        found[by_variable[name]] = (text, f"env {name}")
    return found


def _from_file(path: Path, known: Mapping[str, Setting]) -> dict[str, tuple[str, str]]:
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except OSError as e:
        raise SettingError(f"cannot read {path}: {e.strerror or e}") from e
    except ValueError as e:
        raise SettingError(f"{path} is not TOML: {e}") from e
    except RecursionError as e:
        raise SettingError(f"the values of {path} are nested too deeply") from e
    by_name = {dotted(name): name for name in known}
    found: dict[str, tuple[str, str]] = {}
    for name, value in flat(content):
        if name not in by_name:
            raise SettingError(f"{path}: {name} is not a setting{did_you_mean(name, by_name)}")
        found[by_name[name]] = (as_text(value), f"file {path}")
    return found


def flat(table: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Undo TOML's nesting: `a.b = 1` is a table in a table, the setting is `a.b`."""
    found: list[tuple[str, Any]] = []
    for key, value in table.items():
        if isinstance(value, dict):
            found += flat(cast("dict[str, Any]", value), f"{prefix}{key}.")
        else:
            found.append((prefix + key, value))
    return found


def as_text(value: Any) -> str:
    """A value of TOML as the variable or the flag of the setting would have it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(map(str, cast("list[Any]", value)))
    return str(value)
