"""Declarations of a program's settings. The `quafka` command reads them from all sources.

A setting is a dataclass field made by `setting`: its name in TOML is the field's with dots
(`wal_fsync` is `wal.fsync`), in the environment `QUAFKA_WAL_FSYNC`, as a flag `--wal-fsync`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar, cast, dataclass_transform

from quafka_mesh_ops.bulk.carrier import BulkCarrier
from quafka_mesh_ops.grants import parse_entries
from quafka_mesh_ops.node_ids import NodeId, parse_node_id
from quafka_mesh_ops.units import MS
from quafka_telemetry.page_files import PageFiles


@dataclass(frozen=True, slots=True)
class Setting:
    """The declaration of a setting, except for its name.

    Attributes:
        help: one line for people.
        parse: text to value; raises ValueError if the text is not allowed.
        allowed: the allowed values, in words.
        blank: the text of a value that is not set.
        brief: a shorter line about a setting that most people use; `--help` shows these settings.
    """

    help: str
    parse: Callable[[str], Any]
    allowed: str
    blank: str = ""
    brief: str = ""

    def show(self, value: Any) -> str:
        """Return the text of a value."""
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, tuple):
            return ",".join(map(str, cast("tuple[Any, ...]", value)))
        return self.blank if value is None else str(value)


def setting(
    default: Any,
    help: str,  # noqa: A002
    parse: Callable[[str], Any],
    allowed: str,
    blank: str = "",
    brief: str = "",
) -> Any:
    """Make a dataclass field that is a setting."""
    return field(default=default, metadata={"setting": Setting(help, parse, allowed, blank, brief)})


def split_address(text: str) -> tuple[str, int]:
    """Split "host:port" or "[v6]:port".

    Raises:
        ValueError: it is neither, or the port is not 0 to 65535.
    """
    host, colon, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not colon or not bare or not port.isdecimal() or int(port) > 65_535:
        raise ValueError(text)
    if (":" in bare) != (host == f"[{bare}]"):
        raise ValueError(text)
    return bare, int(port)


def join_address(host: str, port: int) -> str:
    """Return the text that `split_address` splits; brackets an IPv6 host (RFC 3986, 3.2.2)."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


ADDRESS = "host:port"


def address(text: str) -> str:
    """Parse a listening or remote address."""
    split_address(text)
    return text


def optional_address(text: str) -> str:
    """Parse an address, or nothing."""
    return address(text) if text else ""


def addresses(text: str) -> tuple[str, ...]:
    """Parse addresses, separated by commas."""
    return tuple(address(part.strip()) for part in text.split(",") if part.strip())


def node_ids(text: str) -> tuple[NodeId, ...]:
    """Parse node ids, separated by commas."""
    return tuple(parse_node_id(part) for part in text.split(",") if part.strip())


def allow_entries(text: str) -> tuple[str, ...]:
    """Parse entries of an allow-list, separated by commas, into the form of grants.py."""
    return tuple(map(str, parse_entries(text)))


def boolean(text: str) -> bool:
    """Parse true or false."""
    return {"true": True, "false": False}[text.lower()]


def whole(low: int, high: int) -> Callable[[str], int]:
    """Make a parser of whole numbers from `low` to `high`."""

    def parse(text: str) -> int:
        value = int(text.replace("_", ""))
        if not low <= value <= high:
            raise ValueError(text)
        return value

    return parse


RATIO = "0 to 1"
_DECIMAL = re.compile(r"([0-9]{1,20}\.?[0-9]{0,20}|\.[0-9]{1,20})([eE][+-]?[0-9]{1,3})?")


def ratio(text: str) -> float:
    """Parse a decimal number from 0 to 1, such as Java prints: 0.5, 1.0E-4."""
    if _DECIMAL.fullmatch(text) is None or not 0 <= float(text) <= 1:
        raise ValueError(text)
    return float(text)


def path(text: str) -> Path:
    """Parse a path. An empty text is an unset variable, not the current folder: an error."""
    if not text or "\0" in text:
        raise ValueError(text)
    return Path(text)


def paths(text: str) -> tuple[Path, ...]:
    """Parse paths, separated by commas, or nothing."""
    return tuple(path(each.strip()) for each in text.split(",")) if text else ()


def optional_path(text: str) -> Path | None:
    """Parse a path, or nothing."""
    return path(text) if text else None


def datagram_size(text: str) -> int | None:
    """Parse auto (None) or a number of bytes."""
    return None if text == "auto" else whole(1_200, 60_000)(text)


def fsync(text: str) -> str:
    """Parse commit, never or interval:<ms>; the interval may have a unit."""
    if text in ("commit", "never"):
        return text
    kind, _, interval = text.partition(":")
    milliseconds = int(MS.plain(interval))
    if kind != "interval" or not 1 <= milliseconds <= 60_000:
        raise ValueError(text)
    return f"{kind}:{milliseconds}"


def choice(*allowed: str) -> Callable[[str], str]:
    """Make a parser that accepts the given words."""

    def parse(text: str) -> str:
        if text not in allowed:
            raise ValueError(text)
        return text

    return parse


def mesh_allowed_file_setting(what: str = "node ids") -> Any:
    """Declare the setting that every program on the mesh has, besides `mesh.allow`.

    The name mesh.allow.file is impossible: in TOML a name cannot be a list and a table at once.
    """
    help_ = f"file with further {what}, one per line; reread while the program runs"
    return setting(None, help_, optional_path, "a path")


def mesh_datagram_size_setting() -> Any:
    """Declare the setting that every program on the mesh has."""
    help_ = "size of the mesh's UDP datagrams in bytes; auto: found for each path"
    return setting(None, help_, datagram_size, "auto, or 1200 to 60000", blank="auto")


def mesh_batched_setting() -> Any:
    """Declare the setting that every program on the mesh has."""
    help_ = "build and read the mesh's packets in bursts; false: one by one, as stock aioquic"
    return setting(True, help_, boolean, "true, false")


RECORDS_AUTO, RECORDS_BY_VALUE = "auto", "value"


def mesh_records_setting() -> Any:
    """Declare the setting that brokers and gateways have."""
    help_ = (
        "how records travel between a broker and a gateway of the same user on its host; auto: "
        "the gateway reads them from the log's files, and writes large requests to shared memory; "
        "value: always over the mesh"
    )
    allowed = (RECORDS_AUTO, RECORDS_BY_VALUE)
    return setting(RECORDS_AUTO, help_, choice(*allowed), ", ".join(allowed))


def mesh_bulk_setting() -> Any:
    """Declare the setting that every program on the mesh has."""
    help_ = (
        "how bulk answers travel: in the QUIC connection, or over TLS on TCP if both sides do; "
        "auto: over TLS between hosts"
    )
    return setting(BulkCarrier.AUTO.value, help_, choice(*BulkCarrier), ", ".join(BulkCarrier))


def ops_listen_setting(default: str, whose: str = "") -> Any:
    """Declare the address of a program's operations port."""
    help_ = f"HTTP address of {whose}health, metrics and status pages; port 0: any free one"
    brief = f"address of {whose}status and metrics"
    return setting(default, help_, address, ADDRESS, brief=brief)


def ops_port_fallback_setting() -> Any:
    """Declare whether a program does without its operations port; `quafka up` sets it."""
    help_ = "whether any free port is taken if the port of ops.listen is in use"
    return setting(False, help_, boolean, "true, false")


def trace_url(text: str) -> str:
    """Check a URL template, so that nothing else becomes a link on a page."""
    if text and not (text.startswith(("http://", "https://")) and "{trace_id}" in text):
        raise ValueError(text)
    return text


LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("console", "json")


S = TypeVar("S")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def settings_class(declared: type[S]) -> type[S]:
    """Make a dataclass of declarations, which the type checkers take as frozen.

    At run time it is not, and it has only the methods of `CommonSettings`: those of a dataclass
    with 200 fields take longer to compile than most modules to import, in every process.
    """
    return dataclass(init=False, repr=False, eq=False)(declared)


@settings_class
class CommonSettings:
    """The settings of every program."""

    def __init__(self, **values: Any) -> None:
        unknown = values.keys() - {each.name for each in fields(self)}
        if unknown:
            raise TypeError(f"{type(self).__name__} has no setting {min(unknown)}")
        self.__dict__.update(values)  # the others have their defaults from the class

    log_level: str = setting(
        "info", "lowest severity of log lines shown", choice(*LOG_LEVELS),
        ", ".join(LOG_LEVELS),
        brief="lowest severity of log lines: debug, info, warning, error",
    )  # fmt: skip
    log_format: str = setting(
        "console", "format of log lines", choice(*LOG_FORMATS), ", ".join(LOG_FORMATS)
    )


@settings_class
class OpsSettings(CommonSettings):
    """The settings of every long-running program."""

    ops_trace_url: str = setting(
        "", "URL of a trace in a tracing UI, for links on /statusz", trace_url,
        "http(s)://… with {trace_id} in it",
    )  # fmt: skip
    ops_token_file: Path | None = setting(
        None, "file of bearer tokens, one per line; only clients with one may read the operations "
        "pages", optional_path, "a path",
    )  # fmt: skip
    ops_ssl_certfile: Path | None = setting(
        None, "PEM file of the certificates of the operations pages; with it they are HTTPS",
        optional_path, "a path",
    )  # fmt: skip
    ops_ssl_keyfile: Path | None = setting(
        None, "PEM file of the certificate's key, not encrypted; default: it is in "
        "ops.ssl.certfile", optional_path, "a path",
    )  # fmt: skip
    ops_ssl_ca_file: Path | None = setting(
        None, "PEM file of authorities; only clients with a certificate from them, or a token, may "
        "read the operations pages", optional_path, "a path",
    )  # fmt: skip
    ops_slow_ms: int = setting(
        500, "requests that take this long, excluding parked time, are shown on /statusz",
        whole(1, 3_600_000), "1 to 3600000",
    )  # fmt: skip

    @property
    def page_files(self) -> PageFiles:
        """The files that restrict the operations pages."""
        return PageFiles(
            self.ops_token_file,
            self.ops_ssl_certfile,
            self.ops_ssl_keyfile,
            self.ops_ssl_ca_file,
        )
