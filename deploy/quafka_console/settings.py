"""The settings of `quafka console`."""

from __future__ import annotations

from pathlib import Path

from quafka_client.registry.address import registry_url
from quafka_mesh_ops import settings
from quafka_mesh_ops.settings import CommonSettings, setting, settings_class

CONSOLE = "127.0.0.1:9094"


def _urls(text: str) -> tuple[str, ...]:
    """Parse URLs of operations ports, separated by commas."""
    found = tuple(each.strip().rstrip("/") for each in text.split(",") if each.strip())
    for url in found:
        if not url.startswith(("http://", "https://")):
            raise ValueError(url)
    return found


def _url(text: str) -> str:
    """Parse the URL of a schema registry, or nothing."""
    return registry_url(text) if text else ""


def _names(text: str) -> tuple[str, ...]:
    """Parse host names, separated by commas."""
    return tuple(each.strip().lower() for each in text.split(",") if each.strip())


@settings_class
class ConsoleSettings(CommonSettings):
    """The settings of the console, except what it shows."""

    console_listen: str = setting(
        CONSOLE, "HTTP address of the console; anyone who reaches it may use it, unless the "
        "gateway's listener asks for a login", settings.address, settings.ADDRESS,
        brief="HTTP address of the console",
    )  # fmt: skip
    console_command_config: Path | None = setting(
        None, "properties file of a Kafka client: security.protocol, TLS, credentials. With a "
        "protocol that logs in, and without credentials, each person signs in",
        settings.optional_path, "a path",
        brief="properties file of a Kafka client: protocol, TLS, credentials",
    )  # fmt: skip
    console_hosts: tuple[str, ...] = setting(
        (), "further host names under which browsers may open the console, besides localhost and "
        "IP addresses", _names, "host names, separated by commas",
    )  # fmt: skip
    console_read_only: bool = setting(
        False, "refuse every change", settings.boolean, "true, false",
        brief="refuse every change in the console",
    )  # fmt: skip
    console_operations_token_file: Path | None = setting(
        None, "file with the bearer token for operations ports that ask for one, in its first "
        "line", settings.optional_path, "a path",
    )  # fmt: skip
    console_operations_ca_file: Path | None = setting(
        None, "PEM file of the authorities of operations ports that are HTTPS; default: those of "
        "the system", settings.optional_path, "a path",
    )  # fmt: skip
    console_traces_token_file: Path | None = setting(
        None, "file of bearer tokens, one per line; only programs with one may export traces to "
        "the console. Without it everyone may, or nobody, if people sign in",
        settings.optional_path, "a path",
    )  # fmt: skip
    console_nice: int = setting(
        10, "how far the console gives way to other programs of its host, as with nice(1)",
        settings.whole(0, 19), "0 to 19",
    )  # fmt: skip
    console_traces_bytes: int = setting(
        64 << 20, "bytes of traces that are kept in memory, the last ones",
        settings.whole(1 << 20, 1 << 32), "1048576 to 4294967296",
    )  # fmt: skip


@settings_class
class ConsoleConfig(ConsoleSettings):
    """The settings of `quafka console`."""

    console_brokers: tuple[str, ...] = setting(
        ("localhost:9092",), "Kafka addresses of the cluster", settings.addresses,
        "host:port, separated by commas", brief="Kafka addresses of the cluster",
    )  # fmt: skip
    console_operations: tuple[str, ...] = setting(
        ("http://localhost:9093", "http://localhost:9193"),
        "URLs of the operations ports of gateways and brokers, for health and charts", _urls,
        "URLs, separated by commas",
    )  # fmt: skip
    console_trace_url: str = setting(
        "", "URL of a trace in a tracing UI such as Jaeger, for links", settings.trace_url,
        "http(s)://… with {trace_id} in it", brief="URL of a trace in a tracing UI, for links",
    )  # fmt: skip
    console_registry_url: str = setting(
        "", "URL of a schema registry (Confluent's HTTP API), by which the console decodes values",
        _url, "http(s)://…", brief="URL of a schema registry, to decode values",
    )  # fmt: skip
    console_registry_user: str = setting(
        "", "user of the schema registry; default: none", str, "a name",
        brief="user of the schema registry",
    )  # fmt: skip
    console_registry_password_file: Path | None = setting(
        None, "file of that user's password, in its first line", settings.optional_path, "a path",
    )  # fmt: skip
